"""docs/gpu.md: what a card is asked, what was predicted before, and what it answered.

python tools/site/gpu.py collect runs/gpu    put the lines of a run into docs/gpu.json
python tools/site/gpu.py                     write docs/gpu.md
python tools/site/gpu.py --check             exit 1 if docs/gpu.md is not what docs/gpu.json says
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layout import table, write

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS, PAGE = DOCS / "gpu.json", DOCS / "gpu.md"
# Of an H100: products in bf16 and bytes moved, as large products and copies reach them.
FLOPS, BYTES = 790e12, 3.0e12
# Tokens, hidden size, vocabulary, chunks.
SHAPES = {"8,192 tokens, H = 4096": (8192, 4096, 151936, 1), "32,768 tokens, H = 3584": (32768, 3584, 151936, 4)}

PARTS = {
    "tests": "Is it right? Losses, gradients and runs on the card against the CPU in float64",
    "kernels": "The softmax kernel against torch's passes and a copy",
    "fused": "The objective with its head, as a multiple of the bare products",
    "sampler": "The embedded sampler against `generate`",
    "train": "Training runs and steps of the embedded engine, against TRL's trainer",
    "trl": "TRL's trainer with our objective, in the model's head and by TRL's own pass",
}

HEADS = {
    "fused": "ours", "torch": "plain torch", "trl": "TRL's head",
    "verl": "verl's head", "verl's Triton": "verl's Triton kernel", "Liger": "Liger's GRPO loss, without entropy",
    "Liger, compiled": "the same, compiled",
}  # fmt: skip
SAMPLED = [(model, rows) for model in ("0.1B", "0.5B") for rows in (64, 256, 512)]
MICRO_BATCH = ("head_ms", "head_peak_gib", "trl_ms", "trl_peak_gib")

HEAD = """\
<!-- Written by tools/site/gpu.py from docs/gpu.json: change those. -->

# On a GPU

{status}

`make gpu` measures all this on a card; [gpu.json](gpu.json) has every number. It sets up an environment of its own (5 GB of downloads), runs six
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
| quack's linear cross-entropy (c8ec317) | 3 | chunks of 4,096 tokens, the gradient in place | cross-entropy only; sums the head's gradient in float32 inside the product, as ours |
| cut-cross-entropy (d42911f) | 4 | never in the card's memory | cross-entropy only; by default leaves out blocks of the gradient that are nearly zero |
| Liger's GRPO loss (0.8.5) | 4 | a sequence x a part of the vocabulary | its backward products are in float32; `torch.compile` covers the loss alone, not the products |
"""


RESULTS = """\
## Results

**It is right.** Losses and gradients of all methods agree with the CPU in float64 to 4e-15 in float64 and 2e-6 in
float32; the fused head to 1e-6 in float32 and 0.5 % in bf16; sampled tokens are the CPU's; runs end in the CPU's
weights to 4e-8. The same seed gives the same bytes with `torch.use_deterministic_algorithms(True)`, and weights that
differ by 3e-7 without. The quickstart rises from 0.35 to 0.94 (sampled) in 20 steps and 6 seconds, and its first responses are the
CPU's.

**The objective with its head**, forward and backward: time as a multiple of the bare matrix products of the same run,
and memory beyond the gradients.

{fused}

Of our {own:.0f} ms at 8,192 tokens the card computes for 41, and its clocks move by a tenth from run to run, so that
differences below a tenth say nothing. Other objectives take as long (TEPO {tepo:.2f}, GSPO {gspo:.2f} times the
products); one that trains the entropy keeps its gradient too ({aer:.2f}). Where half of the groups have no advantage,
a run takes {dead:.2f} times the products, as tokens without a gradient are left out of the backward products. Chunks
of 1 GiB in place of 2.5 take {chunk:.2f}.

**The sampler**, random models in bf16, 128 new tokens:

{sampler}

`generate` waits for Python. At half a billion parameters and 64 rows it makes {slow:.0f} steps a second in its first run and {warm:.0f} at best, in its fourth (`generate` loads kernels of its own
for every length), where ours makes {ours:.0f}: {ratio:.1f} times as many. After two whole runs of each, ours is {middle:.1f} times as fast at 256 rows and
{large:.1f} times at 512. With `cache_implementation="static"`, whose first run compiles for {compiling:.0f} s, ours is
{compiled:.1f} times as fast at 256 rows. Ours replays a recorded step: {replay:.1f} ms at 512 rows, of which {draw:.1f} draw the tokens.
vLLM was not installed.

**A training step** of half a billion parameters, 64 responses of at most 128 tokens, one update, median of {steps} after
two: {step:.1f} s and {step_gib:.1f} GiB, TRL's trainer {trl_step:.1f} s and {trl_gib:.1f} GiB, {beside:.1f} times as
long. In a process of its own, ours took {later} a step. At 1.7 million parameters in float32, a second step of TRL's
takes {tiny:.1f} times as long as ours.

**TRL's trainer**, a micro-batch of 16 x 512 tokens, a model of two layers:

{trl}

Both gradients are equally far from float32's. In a whole model the head is a smaller part, so that less is gained, and
the memory stays: TRL's pass stays the default on a GPU, and `fused_objective=True` is worth a try where a GiB or two
are free."""


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
    return HEAD.format(
        status=status,
        pieces="\n".join(f"| `{name}` | {words} |" for name, words in PARTS.items()),
        flops=FLOPS / 1e12,
        bytes=BYTES / 1e12,
        per_hidden=FLOPS / BYTES,
        predictions=table(head, [*predicted()]),
    )


def results(parts: Mapping[str, Any]) -> str:
    """What was seen, in sentences."""
    seen = {(part, line["case"]): line.get("numbers", {}) for part, lines in parts.items() for line in lines}

    def multiple(case: str) -> float:
        return seen["fused", f"gpu8k {case}"]["multiple"]

    def of(case: str) -> str:
        numbers = seen.get(("fused", case))
        return f"{numbers['multiple']:.2f} · {numbers['peak_gib']:.1f} GiB" if numbers else ""

    fused = [(words, of(f"gpu8k {case}"), of(f"gpu {case}")) for case, words in HEADS.items()]
    sampler = [
        (f"{model}, {rows} rows", f"{rate:,.0f}", f"{rate / rows:.0f}")
        for model, rows in SAMPLED
        if (rate := seen.get(("sampler", f"{model} {rows} rows, graphs"), {}).get("tokens/s"))
    ]
    steps = {rows: seen["sampler", f"0.5B {rows} rows, graphs"]["tokens/s"] / rows for rows in (64, 256, 512)}
    theirs = [*seen["sampler", "0.5B 64 rows, generate, 48 tokens, run after run"].values()]
    static = seen["sampler", "0.5B 256 rows, generate compiled"]
    step, tiny = seen["train", "step 0.5B"], seen["train", "step 1.6M"]
    later = [*seen["train", "step 0.5B of ours alone, five steps"].values()][1:]
    trl = [
        (case.removeprefix("head "), *(f"{x[key]:.1f}" for key in MICRO_BATCH), f"{x['TRL / head']:.2f}")
        for (part, case), x in seen.items()
        if part == "trl" and "TRL / head" in x
    ]
    return RESULTS.format(
        own=seen["fused", "gpu8k fused"]["ms"], replay=1e3 / steps[512], draw=seen["sampler", "parts of a step"]["draw"] / 1e3,
        fused=table(("", *SHAPES), fused), tepo=multiple("fused, tepo"), gspo=multiple("fused, gspo"),
        aer=multiple("fused, aer, a gradient of the entropy"), dead=multiple("fused, half of the groups dead"),
        chunk=multiple("fused, chunk of 1 GiB"),
        sampler=table(("model", "tokens a second", "steps a second"), sampler), slow=theirs[0], warm=max(theirs),
        ours=steps[64], ratio=steps[64] / max(theirs), large=seen["sampler", "0.5B 512 rows, generate"]["graphs / generate"],
        middle=seen["sampler", "0.5B 256 rows, generate"]["graphs / generate"],
        compiling=static["first s"], compiled=256 * steps[256] / static["tokens/s"],
        step=step["tokenpo_ms"] / 1e3, steps=step["steps"], beside=step["TRL / tokenpo"], step_gib=step["tokenpo_peak_gib"], trl_step=step["TRL_ms"] / 1e3,
        trl_gib=step["TRL_peak_gib"], later=f"{min(later):.1f} to {max(later):.1f} s", tiny=tiny["TRL / tokenpo"],
        trl=table(("hidden size", "ours in the head, ms", "GiB", "TRL's pass, ms", "GiB", "TRL's / ours"), trl),
    )  # fmt: skip


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
    return write(PAGE, page(json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
