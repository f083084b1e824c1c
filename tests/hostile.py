"""Texts that try to get out of a page, a run made of them, and the markup that a page may consist of."""

import json
from collections.abc import Callable
from pathlib import Path

from written_runs import write_lines

HOSTILE = (
    "</script><img src=x onerror=\"document.title='pwned'\">",
    "</style></title></textarea><script>document.title='pwned'</script>",
    "<svg onload=\"document.title='pwned'\"><iframe src='javascript:alert(1)'></iframe>",
    '" onmouseover="document.title=1" x="',
    "' autofocus onfocus=alert(1) '",
    "--></pre><base href=//evil.example><meta http-equiv=refresh content=0>",
    "{{ 7*7 }}{% raw %}${7*7}{{ policy }}",
    "&lt;script&gt;&#60;b&#62;<!--",
    "\u202eltr\u2066x\u2069\u200f\ufeff\u00ad",
    "\x00\x07\x1b[31mred\x7f\x85\r\n\u2028\u2029",
    "\ud800\ufffe\U0001f600",
)
ELEMENTS = """
html head meta title style body header p h1 h2 h3 div section span small svg path circle rect text dl dt dd pre main
figure figcaption ul ol li details summary table thead tbody tr th td fieldset legend label input b i article code
script noscript select g template tspan
"""
ATTRIBUTES = """
lang charset http-equiv content name class aria-label aria-labelledby aria-hidden role viewbox d x y cx cy dy r width
height tabindex id type checked scope hidden
"""


def spoilt(make_run: Callable[..., Path], write: Callable[[int], str], name: str = "run") -> Path:
    """A run in which `write(i)` gives every text that a file of the run can hold."""
    terms = {"entropy": [0.1 * i for i in range(len(HOSTILE))], "advantage": [1.0, None] * 5 + [0.5]}
    lines = []
    for step in range(2):
        line = {"step": step, "row": 0, "group": 0, "reward": None, "correct": None, "prompt": write(step)}
        line |= {"tokens": [write(i) for i in range(len(HOSTILE))], "answer": write(step + 2), "terms": terms}
        lines.append(line | {"terms": terms | {write(i) + "term": terms["entropy"] for i in range(9)}})
    run = make_run(steps=3, trace=lines, name=name)
    rows = [{"step": s} | {write(i) + "metric": s + i for i in range(len(HOSTILE))} for s in range(3)]
    rows = [row | {write(0) + "steady": 1.0, "entropy": None} for row in rows]
    write_lines(run / "metrics.jsonl", rows)
    config = {"method": {"name": write(0)}, "task": {"name": write(1)}, "seed": write(2), "model": write(8)}
    (run / "config.json").write_text(json.dumps(config | {write(i): write(i) for i in range(len(HOSTILE))}))
    (run / "versions.json").write_text(json.dumps({write(i): write(i) for i in range(len(HOSTILE))}))
    (run / "objective.txt").write_text("\n".join(write(i) for i in range(10)), encoding="utf-8")
    return run
