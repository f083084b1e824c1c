"""Turns pip's report of an installation into requirements with hashes, for the machine that asks.

    pip install --dry-run --ignore-installed --report report.json -r constraints.txt
    python tools/hashes.py report.json > constraints-hashes.txt
    pip install --require-hashes -r constraints-hashes.txt

The list is not part of the repository: a hash belongs to one file, and compiled packages (torch first of all, whose CPU
wheels also differ by index) have another file for each platform and version of Python. With --require-hashes pip wants
them all, so a list made on one machine refuses the next.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def lines(report: dict) -> list[str]:
    """One requirement per installed file.

    Raises:
        SystemExit: a file without a hash (a checkout, say), for which pip would refuse the whole list.
    """
    found = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if not digest:
            raise SystemExit(f"{name} {version} has no sha256 in the report: install it from an index")
        found.append(f"{name}=={version} --hash=sha256:{digest}")
    return sorted(found, key=str.lower)


if __name__ == "__main__":
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
