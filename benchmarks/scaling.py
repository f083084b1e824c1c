"""What a step costs as it grows: sampling, scoring and the update, each against four sizes.

    python benchmarks/scaling.py [--repeats 3] [--out docs/scaling] [--axes group length vocabulary parameters]

One thread, float32, a random Qwen3 that never ends a response, GRPO with one update, four prompts. From the base
(groups of 8, 64 tokens, a vocabulary of 512, 0.6 M parameters) one size at a time is changed. Written are OUT.json, the
median CPU seconds of every point with a straight line through them (least squares of relative errors: intercept, slope
and the largest relative distance of a point from it), and OUT.png, a panel for each size. Sampling grows with the
length a little faster than in a straight line, since every token attends to those before it; with the vocabulary and
with the parameters a part that does not depend on them comes first.
"""

import argparse
import dataclasses
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import tokenpo
from tokenpo.records import Tracer
from tokenpo.train.models import LanguageModel, Sampling, sample, score
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.updates import Trainer, improve

PROMPTS, PROMPT_TOKENS = 4, 8
PARTS = ("sampling", "scoring", "update")
COLOURS = ("#0a66a8", "#a2528a", "#1a8a66")  # of the pages


@dataclass(frozen=True)
class Sizes:
    group: int = 8
    length: int = 64
    vocabulary: int = 512
    width: int = 128
    layers: int = 3


AXES: dict[str, list[dict[str, int]]] = {
    "group": [{"group": n} for n in (8, 16, 32, 48, 64)],
    "length": [{"length": n} for n in (32, 64, 128, 192, 256)],
    "vocabulary": [{"vocabulary": n} for n in (512, 4096, 8192, 16384, 32768)],
    "parameters": [{"width": w, "layers": n} for w, n in ((128, 3), (192, 4), (256, 4), (320, 5), (384, 6))],
}
LABELS = {
    "group": "responses to a prompt",
    "length": "tokens of a response",
    "vocabulary": "vocabulary",
    "parameters": "parameters, millions",
}


def model(sizes: Sizes) -> LanguageModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=sizes.vocabulary, hidden_size=sizes.width, intermediate_size=11 * sizes.width // 4,
        num_hidden_layers=sizes.layers, num_attention_heads=sizes.width // 32, num_key_value_heads=sizes.width // 64,
        head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1,
        pad_token_id=0,
    )  # fmt: skip
    return LanguageModel(Qwen3ForCausalLM(config).eval(), SimpleNamespace(), (), 0)


def cost(sizes: Sizes, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each part, and the parameters in millions."""
    lm = model(sizes)
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(3, sizes.vocabulary, (PROMPTS, PROMPT_TOKENS), generator=generator).tolist()
    settings: dict[str, Any] = {
        "threads": 1,
        "rollout": {"group_size": sizes.group, "prompts": PROMPTS, "max_new_tokens": sizes.length},
        "train": {"lr": 0.0, "minibatches": 1},
    }
    objective = tokenpo.method("grpo")
    trainer = Trainer.of(parse_config(settings, "benchmark"), lm, objective)
    seen: dict[str, list[float]] = {part: [] for part in PARTS}
    for turn in range(repeats + 1):
        marks = [time.process_time()]
        drawn = sample(lm, prompts, sizes.group, Sampling(sizes.length, seed=turn))
        marks.append(time.process_time())
        with torch.no_grad():
            score(lm, prompts, drawn.prompt, drawn.token_ids, drawn.mask)
        marks.append(time.process_time())
        rollouts = tokenpo.Rollouts(
            mask=drawn.mask,
            reward=torch.arange(len(drawn)).remainder(2).float(),
            group=drawn.prompt,
            old_logprob=drawn.logprob,
            temperature=drawn.temperature,
            token_ids=drawn.token_ids,
        )
        improve(trainer, trainer.learner.begin(rollouts), prompts, Tracer(0))
        marks.append(time.process_time())
        if turn:
            for part, before, after in zip(PARTS, marks, marks[1:], strict=False):
                seen[part].append(after - before)
    medians = {part: statistics.median(values) for part, values in seen.items()}
    return medians | {"parameters": sum(p.numel() for p in lm.model.parameters()) / 1e6}


def line(x: list[float], y: list[float]) -> dict[str, float]:
    """Intercept and slope with the least relative errors, and the largest of these that is left."""
    wanted = np.maximum(np.array(y), 1e-9)
    columns = np.stack([np.ones(len(x)), np.array(x)], 1) / wanted[:, None]
    intercept, slope = np.linalg.lstsq(columns, np.ones(len(x)), rcond=None)[0]
    off = np.abs((intercept + slope * np.array(x)) / wanted - 1).max()
    return {"intercept": float(intercept), "slope": float(slope), "largest_relative_error": float(off)}


def draw(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for panel, (axis, one) in zip(panels.flat, found["axes"].items(), strict=False):
        for part, marker, colour in zip(PARTS, "os^", COLOURS, strict=True):
            fit = one["lines"][part]
            panel.plot(one["x"], one["seconds"][part], marker, color=colour, label=part)
            straight = [fit["intercept"] + fit["slope"] * x for x in one["x"]]
            panel.plot(one["x"], straight, "--", color=colour, linewidth=1)
        panel.set_xlabel(LABELS[axis])
        panel.set_ylabel("CPU seconds a step")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
        panel.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--points", type=int, default=5, help="of each axis, from its smallest")
    parser.add_argument("--base", nargs="+", default=[], metavar="SIZE=N", help="another base, e.g. length=16")
    parser.add_argument("--out", type=Path, default=Path("docs/scaling"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    base = Sizes(**{name: int(value) for name, value in (pair.split("=") for pair in options.base)})
    found: dict[str, Any] = {"base": dataclasses.asdict(base), "repeats": options.repeats, "axes": {}}
    for axis in options.axes:
        x, seconds = [], {part: [] for part in PARTS}
        for change in AXES[axis][: options.points]:
            here = cost(dataclasses.replace(base, **change), options.repeats)
            x.append(here["parameters"] if axis == "parameters" else change[axis])
            for part in PARTS:
                seconds[part].append(here[part])
            print(f"{axis:<11}{x[-1]:>9.4g}  " + "  ".join(f"{part} {here[part]:.3f} s" for part in PARTS), flush=True)
        lines = {part: line(x, seconds[part]) for part in PARTS}
        found["axes"][axis] = {"x": x, "seconds": seconds, "lines": lines}
        for part, fit in lines.items():
            print(f"  {part:<9} within {100 * fit['largest_relative_error']:.0f} % of a straight line", flush=True)
    options.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
