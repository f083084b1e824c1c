"""docs/gpu.md: what a card is asked, what was predicted before, and what it answered.

python tools/site/gpu.py collect runs/gpu    put the lines of a run into docs/gpu.json
python tools/site/gpu.py                     write docs/gpu.md
python tools/site/gpu.py --check             exit 1 if docs/gpu.md is not what docs/gpu.json says
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layout import cell, table, write

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS, PAGE = DOCS / "gpu.json", DOCS / "gpu.md"
# Of an H100: products in bf16 and bytes moved, as large products and copies reach them.
FLOPS, BYTES = 790e12, 3.0e12
# Tokens, hidden size, vocabulary, chunks.
SHAPES = {"8,192 tokens, H = 4096": (8192, 4096, 151936, 1), "32,768 tokens, H = 3584": (32768, 3584, 151936, 4)}

PARTS = {
    "tests": "Is it right? Losses, gradients and runs on the card against the CPU in float64",
    "kernels": "The softmax kernel beside torch's passes and a copy",
    "fused": "The objective with its head, as a multiple of the bare products",
    "sampler": "The embedded sampler beside `generate`",
    "train": "Training runs and steps of the embedded engine, beside TRL's trainer",
    "trl": "TRL's trainer with our objective, in the model's head and by TRL's own pass",
    "bed": "Learning against KL: seven methods on a model of its own",
}

HEAD = """\
<!-- Written by tools/site/gpu.py from docs/gpu.json: change those. -->

# On a GPU

{status}

`make gpu` measures everything below on a card. It sets up an environment of its own (5 GB of downloads), runs seven
pieces of a few minutes each, and goes on where it ended when it is called again. `make gpu PART=fused` runs one piece;
`make gpu SMALL=1 DEVICE=cpu` runs all of them in small on a CPU, to see that they work.

| piece | question |
| --- | --- |
{pieces}

## Predictions

Written down before the first run on a card. The floor of the fused objective is three matrix products (logits, gradient
of the hidden states, gradient of the head) at {flops:.0f} TFLOP/s. To these come three passes over the logits in bf16
(the softmax kernel reads them twice and writes them once) at {bytes:.1f} TB/s, and, where the tokens need several
chunks, the float32 sum of the head's gradient, which is read and written for each chunk.

{predictions}

With the tokens in one chunk the multiple is 1 + {per_hidden:.0f} / H: 1.06 at H = 4096, 1.09 at 2,900, 1.17 at 1,536,
1.29 at 896. To come below, a kernel has to read each row of logits once (a row of 151,936 in bf16 is larger than the
shared memory of a multiprocessor, so several have to share one), or the products' epilogues have to do the softmax.

| | products | logits | what else differs |
| --- | --- | --- | --- |
| ours | 3 | one buffer, the residual in place; a chunk is a 32nd of the card's memory, at most 2.5 GiB | any objective, entropy, temperature per token; tokens without a gradient are left out |
| ours, the vocabulary in tiles | 4 | 4,096 tokens x 8,192 of the vocabulary | the head's gradient is summed in float32 a tile at a time |
| quack's linear cross-entropy (c8ec317) | 3 | chunks of 4,096 tokens, the gradient in place | cross-entropy only; sums the head's gradient in float32 inside the product, as ours |
| cut-cross-entropy (d42911f) | 4 | never in the card's memory | cross-entropy only; by default leaves out blocks of the gradient that are nearly zero |
| Liger's GRPO loss (0.8.5) | 4 | a sequence x a part of the vocabulary | its backward products are in float32; `torch.compile` covers the loss alone, not the products |
"""


RESULTS = """\
## Results

**It is right.** Losses and gradients of all methods agree with the CPU in float64 to 1e-14 in float64 and 2e-6 in
float32; the fused head to 1e-6 in float32 and 0.5 % in bf16; runs end in the CPU's weights to 5e-8. Three runs are
listed as failed: they count gradients that are exactly zero, which rounding decides, and the count is no longer
compared. The same seed gives the same bytes with `torch.use_deterministic_algorithms(True)`, and weights that differ by
3e-7 without. The quickstart rises from 0.35 to 0.94 in 20 steps and 7 seconds, and its first responses are the CPU's.

**The objective with its head**, H = 4096, 8,192 tokens, forward and backward, memory beyond the gradients:

{listed}

Of our 47 ms, 41 were kernels, as predicted; in the others the card waited for Python. Since then the loss is queued
whole before anything waits, and the rows of a tile begin where the card multiplies fast; neither was measured again.

The card's clocks move: at 32,768 tokens the products took 164 ms beside the one and 148 ms beside the other, so that
multiples are good to a tenth. Liger's loss ran without `torch.compile`, which by default it has.

**TRL's trainer**: a micro-batch of 16 x 512 tokens takes TRL's own pass 1.09 times as long as our pass in the model's
head. Ours holds 1.6 GiB more. TRL's pass stays the default on a GPU."""


def predicted() -> Iterator[tuple[str, ...]]:
    for name, (m, h, v, chunks) in SHAPES.items():
        floor = 6 * m * h * v / FLOPS
        softmax = 3 * 2 * m * v / BYTES
        # Written once, then read and written; at last read and written in bf16.
        sums = 0 if chunks == 1 else ((2 * chunks - 1) * 4 + 6) * v * h / BYTES
        peak = 2 * m * v / chunks + (4 * v * h if chunks > 1 else 0)
        times = (floor, softmax, sums, floor + softmax + sums)
        yield name, *(f"{1e3 * x:.1f} ms" for x in times), f"{times[-1] / floor:.2f}", f"{peak / 2**30:.1f} GiB"


def page(found: Mapping[str, Any]) -> str:
    head = ("shape", "three products", "softmax", "sums", "all", "multiple", "memory beyond the gradients")
    status = "Nothing has run on a GPU yet."
    if found:
        about = found["machine"]
        versions = ", ".join(f"{name} {x}" for name, x in about.items() if name not in ("card", "memory", "driver"))
        status = (
            f"Measured on one {about['card']} ({about.get('memory', '')}, driver {about.get('driver', '')}; {versions})"
        )
        status += f" on {found['date']}. {found['notes']}\n\n{results(found['parts'])}"
    text = HEAD.format(
        status=status, pieces="\n".join(f"| `{name}` | {words} |" for name, words in PARTS.items()),
        flops=FLOPS / 1e12, bytes=BYTES / 1e12, per_hidden=FLOPS / BYTES, predictions=table(head, [*predicted()]),
    )  # fmt: skip
    for part, words in PARTS.items():
        lines = found.get("parts", {}).get(part, [])
        if lines:
            text += f"\n## {words}\n\n`make gpu PART={part}`\n\n" + "\n\n".join(tables(lines)) + "\n"
    return text


def results(parts: Mapping[str, Any]) -> str:
    """What was seen, in sentences."""
    seen = {(part, line["case"]): line.get("numbers", {}) for part, lines in parts.items() for line in lines}

    def of(case: str) -> str:
        numbers = seen["fused", case]
        return f"{numbers['multiple']:.2f} times the products and {numbers['peak_gib']:.1f} GiB"

    rows = [
        ("ours", "gpu8k fused"), ("ours, the vocabulary in tiles", "gpu8k fused, lean"), ("plain torch", "gpu8k torch"),
        ("TRL's head", "gpu8k trl"), ("verl's head", "gpu8k verl"), ("verl's Triton kernel", "gpu8k verl's Triton"),
        ("Liger's GRPO loss, not compiled, without entropy", "gpu8k Liger"), ("ours, 32,768 tokens", "gpu fused"),
        ("ours, 32,768 tokens, the vocabulary in tiles", "gpu fused, lean"),
    ]  # fmt: skip
    listed = "\n".join(f"- {words}: {of(case)}" for words, case in rows if ("fused", case) in seen)
    return RESULTS.format(listed=listed)


def tables(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table for all cases that have the same numbers; one of a single case and many numbers stands upright."""
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for line in lines:
        numbers = line.get("numbers") or {"failed": line.get("error", "")}
        names = tuple(name.replace("_", " ") for name in numbers)
        alike.setdefault(names, []).append((named(line["case"]), *(shown(x) for x in numbers.values())))
    for names, rows in alike.items():
        if len(rows) == 1 and len(names) > 8:
            yield table(("", rows[0][0]), [*zip(map(cell, names), rows[0][1:], strict=True)])
        else:
            yield table(("case", *map(cell, names)), rows)


def named(case: str) -> str:
    """The case, its shape in words."""
    for shape, words in zip(("gpu8k ", "gpu "), SHAPES, strict=True):
        if case.startswith(shape):
            return f"{words}: {case.removeprefix(shape)}"
    return cell(case)


def shown(x: Any) -> str:
    text = f"{x:.4g}" if isinstance(x, float) else str(x)
    return cell(text)


def collect(folder: Path) -> None:
    """Puts the latest line of each case into docs/gpu.json; cases that it lacks keep what they have."""
    found = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {"parts": {}}
    for part in PARTS:
        file = folder / f"{part}.jsonl"
        if not file.is_file():
            continue
        known = {line["case"]: line for line in found["parts"].get(part, [])}
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            found["machine"] = line.pop("machine")
            if "numbers" in line or "numbers" not in known.get(line["case"], {}):
                known[line["case"]] = line
        found["parts"][part] = [*known.values()]
    NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
        return 0
    return write(PAGE, page(json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
