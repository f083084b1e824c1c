"""`tokenpo audit`: rewarded responses that look wrong, ranked, on one page."""

import argparse
import json
import sys
from typing import Any

from .options import add_command, add_flag, argument, need, path

EXAMPLES = """examples:
  tokenpo audit runs/my-run                    its recorded rollouts, else its samples.jsonl
  tokenpo audit samples.jsonl --show 5
  tokenpo audit completions_00010.parquet      written by TRL's log_completions

Docs: docs/verifiers.md
"""


def add(commands: Any) -> None:
    parser = add_command(commands, audit, "rewarded responses that look wrong, from any host", EXAMPLES)
    argument(parser, "responses", "RESPONSES", "a run directory, or a .jsonl or .parquet file", type=path)
    argument(parser, "--show", "N", "responses shown of each finding; default: 3", default=3)
    least = "least reward that counts as rewarded, where a line has no `correct`; default: 1"
    argument(parser, "--rewarded-at", "X", least, type=float, default=1.0)
    add_flag(parser, "--json", "print JSON, with every response of a finding")


def audit(options: argparse.Namespace) -> int:
    """Reads the responses and prints what was found."""
    need("rich", "math_verify")
    from ..lab.audit import audit as judge
    from ..lab.audit import read_lines
    from ..lab.page.table import print_parts
    from ..lab.page.text import visible

    result = judge(read_lines(options.responses, options.rewarded_at))
    if options.json:
        findings = [
            {"finding": found.name, "meaning": found.meaning, "responses": [
                {"where": line.where, "prompt": line.prompt, "completion": line.completion, "said": said}
                for line, said in found.lines]}
            for found in result.findings
        ]  # fmt: skip
        forms = [{"rewarded": rewarded, "form": form, "count": count} for rewarded, form, count in result.forms]
        print(json.dumps({"responses": len(result.lines), "findings": findings, "forms": forms}))
        return 0
    paid = sum(line.rewarded for line in result.lines)
    parts = [f"{len(result.lines)} responses, {paid} rewarded."]
    for found in result.findings:
        parts.append(f"\n{found.name} ({len(found.lines)}): {found.meaning}")
        for line, said in found.lines[: max(0, options.show)]:
            prompt, end = visible(line.prompt[-200:].strip(), limit=60), visible(line.completion[-400:], limit=400)
            parts.append(f"  {visible(line.where, limit=80)}: {prompt} -> {end[-100:]}  ({visible(said, limit=120)})")
    if not result.findings:
        parts.append("Nothing looks wrong.")
    for wanted, title in ((True, "rewarded"), (False, "not rewarded")):
        forms = [f"  {count:6}  {visible(form, limit=60)}" for paid, form, count in result.forms if paid is wanted]
        parts += [f"\nmost frequent forms, {title} (N: a number, w: words):", *forms[:5]] if forms else []
    print_parts([*parts, *result.notes], sys.stdout)
    return 0
