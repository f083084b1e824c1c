"""The base model of the study: supervised steps on worked solutions of the mixture, on any device.

Ready when what it samples from held-out prompts is right often enough, as card.toml says. Worker processes make the
examples, so that a GPU need not wait for them.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "2026-11-24-kl-law"), str(HERE.parents[1] / "tools")]

AHEAD = 2  # batches a worker has in store


@dataclass
class Course:
    """Learning rates of the supervised steps: a rise, then the peak, and a linear fall to 0 from step `falls` on."""

    lr: float
    lr_rest: float
    rise: int
    cool: int
    falls: int | None = None

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Course:
        return Course(*(settings[name] for name in ("lr", "lr_rest", "rise", "cool")))

    def rate(self, step: int) -> float:
        """Share of the peak rate."""
        down = 1.0 if self.falls is None else max(0.0, 1 - (step - self.falls) / self.cool)
        return min(1.0, (step + 1) / self.rise) * down

    def over(self, made: int) -> bool:
        return self.falls is not None and made >= self.falls + self.cool


def batch(settings: Mapping[str, Any], step: int) -> tuple[Any, Any]:
    """Input ids and next tokens of a step, [N, T] int16 arrays."""
    import bases
    from tiny_model import WarmUp, _pack, tokenizer

    # `bases.examples` has its share of leaps after half of its steps.
    course = WarmUp(steps=2 * settings["leaps_from"], batch=settings["batch"] // 2, seed=settings["seed"])
    habits = settings.get("habits", {})
    pairs = [pair for kind in ("dial", "search") for pair in bases.examples(kind, course, step, **habits)]
    _known.setdefault("tokenizer", tokenizer())
    ids, target = _pack(_known["tokenizer"], pairs)
    return tuple(x[:, : settings["tokens"]].short().numpy() for x in (ids, target))


_known: dict[str, Any] = {}


def batches(settings: Mapping[str, Any], pool: Pool, jobs: int) -> Iterator[tuple[Any, Any]]:
    """The batches of all steps in order, int64 tensors on the processor."""
    import torch

    steps, waiting = iter(range(settings["steps"])), deque[Any]()
    waiting.extend(pool.apply_async(batch, (settings, step)) for step in itertools.islice(steps, AHEAD * jobs))
    while waiting:
        ids, target = waiting.popleft().get(timeout=120)
        if (step := next(steps, None)) is not None:
            waiting.append(pool.apply_async(batch, (settings, step)))
        yield torch.from_numpy(ids).long(), torch.from_numpy(target).long()


def accuracy(lm: Any, prompts: Sequence[str], limit: int, temperature: float, samples: int = 1) -> float:
    """Share of right answers."""
    import mixture

    from tokenpo.models import Sampling, sample

    drawn = sample(lm, [lm.encode(prompt) for prompt in prompts], samples, Sampling(limit, temperature, seed=0))
    rows = zip(drawn.prompt.tolist(), drawn.token_ids.cpu(), drawn.mask.cpu(), strict=True)
    texts = [(prompts[at], lm.decode(ids[mask].tolist())) for at, ids, mask in rows]
    return sum(mixture.right(*text) for text in texts) / len(texts)


def written(out: Path, operands: Sequence[int]) -> list[str]:
    """The held-out prompts of the task with so many operands, whose files are then in `out`."""
    import mixture

    mixture.write(out, (operands[0], operands[1]))
    return [json.loads(line)["prompt"] for line in (out / "test.jsonl").read_text(encoding="utf-8").splitlines()]


def opened(lm: Any, graphs: bool) -> Any:
    """The model, its abilities found out in full precision; from then on a GPU's products are in TF32.

    Args:
        graphs: False is to sample without CUDA graphs.

    Raises:
        RuntimeError: it lacks an ability without which runs would take far longer.
    """
    import torch

    from tokenpo.models.packed import can_pack
    from tokenpo.models.score import has_plain_head

    if not (can_pack(lm) and has_plain_head(lm)):
        raise RuntimeError("the model of this study should run packed, and its head should be plain")
    if not graphs:
        lm.abilities["graphed"] = None
    if lm.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return lm


def make(out: Path, plan: Mapping[str, Any], device: str, pool: Pool, jobs: int) -> dict[str, Any]:
    """Writes OUT/base (bf16 weights), the task's files, and OUT/base.json with what is known of it, unless it is there.

    Raises:
        RuntimeError: it is not as good, or as bad, as a base model of the study has to be.
    """
    if (out / "base.json").is_file():
        return json.loads((out / "base.json").read_text(encoding="utf-8"))
    import torch
    from tiny_model import EOS, PAD, config, fresh, learn, tokenizer

    from tokenpo.models import LanguageModel, save

    settings, limit, began = plan["base"], plan["rollout"]["max_new_tokens"], time.monotonic()
    levels = plan["task"]["operands"]
    prompts = written(out, levels[len(levels) // 2])
    model = fresh(settings["seed"], config(*(settings[name] for name in ("layers", "width", "head")))).to(device)
    lm = opened(LanguageModel(model, tokenizer(), (EOS,), PAD), graphs=False)
    checks: list[dict[str, float]] = []
    course, made = Course.of(settings), 0

    def watch(step: int, loss: float) -> None:
        nonlocal made
        seconds, made = time.monotonic() - began, step + 1
        late = seconds > settings["seconds"]
        due = made >= settings["leaps_from"] and made % settings["check_every"] == 0
        if course.falls is None and (due or late):
            right = accuracy(lm, prompts, limit, 1.0, samples=2)
            checks.append({"step": made, "loss": round(loss, 6), "accuracy": right, "seconds": round(seconds, 1)})
            print("base", checks[-1], flush=True)
            course.falls = made if late or right >= settings["stop_at"] else None
        elif made % 25 == 0 or made == 1:
            print(f"base: step {made}, loss {loss:.3f}, {seconds:.1f} s", flush=True)

    source = itertools.takewhile(lambda _: not course.over(made), batches(settings, pool, jobs))
    learn(model, source, course, watch, autocast=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    shares = [accuracy(lm, written(out, level), limit, 1.0, samples=4) for level in levels]
    chosen = min(range(len(levels)), key=lambda i: abs(shares[i] - settings["stop_at"]))
    prompts = written(out, levels[chosen])
    found = {
        "accuracy": shares[chosen],
        "greedy": accuracy(lm, prompts, limit, 0.0),
        "dial": accuracy(lm, [x for x in prompts if x.endswith("=")], limit, 1.0, samples=4),
        "operands": levels[chosen],
        "by_operands": shares,
        "steps": made,
        "seconds": round(time.monotonic() - began, 1),
        "parameters": sum(x.numel() for x in model.parameters()),
        "checks": checks,
    }
    print("base", {name: x for name, x in found.items() if name != "checks"}, flush=True)
    low, high = settings["between"]
    if not low <= found["accuracy"] <= high:
        raise RuntimeError(f"the base model is right at {found['accuracy']:.2f}, which is not between {low} and {high}")
    save(LanguageModel(model.bfloat16(), tokenizer(), (EOS,), PAD), out / "base")
    (out / "base.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if device == "cuda":
        del model, lm
        torch.cuda.empty_cache()
    return found
