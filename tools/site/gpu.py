"""The tables of docs/gpu.md: what was predicted for a card, and what it answered.

python tools/site/gpu.py collect runs/gpu    put the lines of a run into docs/gpu.json
python tools/site/gpu.py                     write the tables
python tools/site/gpu.py --check             exit 1 if they are not what docs/gpu.json says
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layout import filled, table, write

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS, PAGE = DOCS / "gpu.json", DOCS / "gpu.md"
# Of an H100: products in bf16 and bytes moved, as large products and copies reach them.
FLOPS, BYTES = 790e12, 3.0e12
# Tokens, hidden size, vocabulary, chunks.
SHAPES = {"8,192 tokens, H = 4096": (8192, 4096, 151936, 1), "32,768 tokens, H = 3584": (32768, 3584, 151936, 4)}
PARTS = ("tests", "kernels", "fused", "sampler", "train", "trl")
HEADS = {
    "fused": "ours", "torch": "plain torch", "trl": "TRL's head",
    "verl": "verl's head", "verl's Triton": "verl's Triton kernel", "Liger": "Liger's GRPO loss, without entropy",
    "Liger, compiled": "the same, compiled",
}  # fmt: skip
SAMPLED = [(model, rows) for model in ("0.1B", "0.5B") for rows in (64, 256, 512)]
MICRO_BATCH = ("head_ms", "head_peak_gib", "trl_ms", "trl_peak_gib")


def predicted() -> Iterator[tuple[str, ...]]:
    for name, (m, h, v, chunks) in SHAPES.items():
        floor = 6 * m * h * v / FLOPS
        softmax = 3 * 2 * m * v / BYTES
        # Written once, then read and written; at last read and written in bf16.
        sums = 0 if chunks == 1 else ((2 * chunks - 1) * 4 + 6) * v * h / BYTES
        peak = 2 * m * v / chunks + (4 * v * h if chunks > 1 else 0)
        times = (floor, softmax, sums, floor + softmax + sums)
        yield name, *(f"{1e3 * x:.1f} ms" for x in times), f"{times[-1] / floor:.2f}", f"{peak / 2**30:.1f} GiB"


def numbers() -> dict[tuple[str, str], Any]:
    """(part, case) -> its numbers."""
    parts = json.loads(NUMBERS.read_text(encoding="utf-8"))["parts"]
    return {(part, line["case"]): line.get("numbers", {}) for part, lines in parts.items() for line in lines}


def predictions() -> str:
    head = ("shape", "three products", "softmax", "sums", "all", "multiple", "memory beyond the gradients")
    return table(head, [*predicted()])


def fused() -> str:
    seen = numbers()

    def of(case: str) -> str:
        found = seen.get(("fused", case))
        return f"{found['multiple']:.2f} · {found['peak_gib']:.1f} GiB" if found else ""

    return table(("", *SHAPES), [(words, of(f"gpu8k {case}"), of(f"gpu {case}")) for case, words in HEADS.items()])


def sampler() -> str:
    seen = numbers()
    rows = [
        (f"{model}, {rows} rows", f"{rate:,.0f}", f"{rate / rows:.0f}")
        for model, rows in SAMPLED
        if (rate := seen.get(("sampler", f"{model} {rows} rows, graphs"), {}).get("tokens/s"))
    ]
    return table(("model", "tokens a second", "steps a second"), rows)


def trl() -> str:
    rows = [
        (case.removeprefix("head "), *(f"{x[key]:.1f}" for key in MICRO_BATCH), f"{x['TRL / head']:.2f}")
        for (part, case), x in numbers().items()
        if part == "trl" and "TRL / head" in x
    ]
    return table(("hidden size", "ours in the head, ms", "GiB", "TRL's pass, ms", "GiB", "TRL's / ours"), rows)


def collect(folder: Path) -> None:
    """Puts the latest line of each case into docs/gpu.json; cases that it lacks keep what they have."""
    found = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {"parts": {}}
    for part in PARTS:
        file = folder / f"{part}.jsonl"
        if not file.is_file():
            continue
        known = {line["case"]: line for line in found["parts"].get(part, [])}
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            found["machine"] = found.get("machine", {}) | line.pop("machine")  # a piece may lack packages of another
            line["card"] = found["machine"]["card"]
            if "numbers" in line or "numbers" not in known.get(line["case"], {}):
                known[line["case"]] = line
        found["parts"][part] = [*known.values()]
    NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
        return 0
    sections = {"fused": fused, "sampler": sampler, "trl": trl, "predictions": predictions}
    return write(PAGE, filled(PAGE.read_text(encoding="utf-8"), sections))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
