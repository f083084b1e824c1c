"""Writes constraints-hashes.txt: the pins of constraints.txt with the sha256 of every file the index has of each.

    pip install uv
    python tools/hashes.py            asks the index (PyPI, where nothing else is configured)
    python tools/hashes.py --check    asks nobody; exit 1 where the two files name other versions

All files of a version are in the list, those of every platform and Python, so it holds anywhere. torch is not in it:
its wheels differ by index too (CPU and CUDA builds have the same version), and pip wants a hash for whichever it takes.
setuptools is, which builds what comes as source, and our wheel.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS, LIST = ROOT / "constraints.txt", ROOT / "constraints-hashes.txt"
APART = "torch"
HEAD = """\
# Written by tools/hashes.py: the versions of constraints.txt with the sha256 of every file that PyPI has of them, for
# `make HASHES=1`. torch is not here (SECURITY.md says why); setuptools builds what comes as source.
"""


def pins(text: str) -> list[str]:
    """name==version of a requirements file, names as the index writes them."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return sorted(f"{re.sub('[-_.]+', '-', name).lower()}=={version}" for name, version in found)


def wanted() -> list[str]:
    """What the list should pin."""
    known = pins(PINS.read_text(encoding="utf-8"))
    return [pin for pin in known if pin.partition("==")[0] != APART]


def problems(text: str) -> list[str]:
    """What is wrong with a list: other versions, or a pin without a hash, for which pip would refuse it whole."""
    found = [f"not pinned as in {PINS.name}: {pin}" for pin in sorted({*wanted()} ^ {*pins(text)})]
    bare = re.findall(r"^(\S+==\S++)(?! \\\n    --hash=sha256:[0-9a-f]{64}\b)", text, re.MULTILINE)
    return found + [f"without a hash: {pin}" for pin in bare]


def hashed(requirements: Sequence[str]) -> str:
    """uv's own answer; it resolves nothing, as every requirement is a pin."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "pins.txt")
        source.write_text("\n".join(requirements), encoding="utf-8")
        command = ["uv", "pip", "compile", "--no-config", "--quiet", "--no-deps", "--universal", "--generate-hashes"]
        done = subprocess.run(
            [*command, "--no-header", "--no-annotate", str(source)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"uv failed, nothing was written:\n{done.stderr}")
    return HEAD + done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing and ask nobody; exit 1 when it is stale")
    check = parser.parse_args(arguments).check
    text = LIST.read_text(encoding="utf-8") if check else hashed(wanted())
    wrong = problems(text)
    print("\n".join(wrong) or f"{LIST.name}: {len(pins(text))} pins, {text.count('--hash=')} hashes")
    if not (check or wrong):
        LIST.write_text(text, encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
