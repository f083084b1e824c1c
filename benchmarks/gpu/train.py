"""Whole runs of the embedded engine: that the quickstart learns, that a run repeats itself, a step beside TRL's."""

import functools
import importlib.util
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import step
from tokenpo.train.recipe.config import load_config
from tokenpo.train.recipe.files import find_recipe
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View

Case = Callable[[], dict[str, float | str]]
ORDINALS = ("first", "second", "third", "fourth", "fifth")
SMALL = ("rollout.prompts=4", "rollout.group_size=4", "rollout.max_new_tokens=16")


def cases(small: bool, device: str) -> dict[str, Case]:
    given = SMALL if small else ()
    sizes = (
        {"0.1M": replace(step.SIZES["0.1M"], new_tokens=4)} if small else {x: step.SIZES[x] for x in ("0.5B", "1.6M")}
    )
    return {
        "quickstart": functools.partial(quickstart, device, 2 if small else 20, given),
        "deterministic": functools.partial(deterministic, device, 2 if small else 4, given),
        "deterministic algorithms": functools.partial(with_torchs_own, device, 2 if small else 4, given),
        **{f"step {name}": functools.partial(beside_trl, work, device) for name, work in sizes.items()},
        **{
            f"step {name} of ours alone, five steps": functools.partial(alone, work, device)
            for name, work in sizes.items()
        },
    }


@dataclass(frozen=True)
class Ran:
    """A run that ended: its metrics of each step, its first responses, its weights."""

    metrics: list[dict[str, float]]
    first: list[str]
    weights: bytes
    tensors: dict[str, torch.Tensor]
    seconds: float


def quickstart_run(device: str, steps: int, given: tuple[str, ...]) -> Ran:
    """The shipped recipe with the shipped tiny model and TEPO, without evaluations."""
    settings = (
        f"model.device={device}",
        f"train.steps={steps}",
        "evaluate.problems=0",
        "output.samples=100000",
        "output.checkpoint_every=0",
        *given,
    )
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "run")
        config = load_config(find_recipe("quickstart"), method="tepo", overrides=settings, out=out)
        start = time.perf_counter()
        train(config, View())
        seconds = time.perf_counter() - start
        lines = {name: (out / f"{name}.jsonl").read_text().splitlines() for name in ("metrics", "samples")}
        samples = [json.loads(line) for line in lines["samples"]]
        file = out / "model" / "model.safetensors"
        return Ran(
            [json.loads(line) for line in lines["metrics"]],
            [sample["completion"] for sample in samples if sample["step"] == 1],
            file.read_bytes(),
            load_file(file),
            seconds,
        )


def quickstart(device: str, steps: int, given: tuple[str, ...]) -> dict[str, float | str]:
    """Reward of the first and of the last batches, and seconds."""
    ran = quickstart_run(device, steps, given)
    reward = [line["reward"] for line in ran.metrics]
    few = max(1, steps // 5)
    parts = {name: sum(line[name] for line in ran.metrics) for name in ("seconds_rollout", "seconds_update")}
    return {
        "steps": steps,
        "reward_first": sum(reward[:few]) / few,
        "reward_last": sum(reward[-few:]) / few,
        "mean_of_batches": few,
        "seconds": round(ran.seconds, 2),
        **{k: round(x, 2) for k, x in parts.items()},
    }


def deterministic(device: str, steps: int, given: tuple[str, ...]) -> dict[str, float | str]:
    """Two runs with one seed, and the first step of the same run on the processor."""
    one, two = (quickstart_run(device, steps, given) for _ in range(2))
    here = quickstart_run("cpu", 1, given)
    apart = [number for number, pair in enumerate(zip(one.metrics, two.metrics, strict=True), 1) if differ(*pair)]
    same = [a == b for a, b in zip(one.first, here.first, strict=True)]
    return {
        "steps": steps,
        "same_bytes": one.weights == two.weights,
        "largest_difference": max(float((x - two.tensors[key]).abs().max()) for key, x in one.tensors.items()),
        "first_step_with_other_metrics": apart[0] if apart else 0,
        "reward_of_first_batch": one.metrics[0]["reward"],
        "reward_of_first_batch_on_cpu": here.metrics[0]["reward"],
        "share_of_first_responses_as_on_cpu": sum(same) / len(same),
    }


def with_torchs_own(device: str, steps: int, given: tuple[str, ...]) -> dict[str, float | str]:
    """The same two runs with torch's deterministic algorithms, and the operations that have none."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            one, two = (quickstart_run(device, steps, given) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(before)
    without = {str(x.message).split(" does not have")[0][:80] for x in seen if "determinis" in str(x.message).lower()}
    same = one.weights == two.weights
    return {"same_bytes": same, "seconds": round(two.seconds, 2), "without": "; ".join(sorted(without))}


def differ(one: dict[str, float], two: dict[str, float]) -> bool:
    """Whether two steps differ in more than the time they took."""
    timed = ("seconds", "tokens_per_second", "memory")
    return any(one[key] != two[key] for key in one if not key.startswith(timed))


def beside_trl(work: step.Work, device: str) -> dict[str, float | str]:
    """Milliseconds, tokens and peak memory of a training step of ours and of TRL's trainer."""
    torch.set_num_threads(1)
    names = ["tokenpo", *(["TRL"] if importlib.util.find_spec("trl") else [])]
    steps, warmup = 5, 2  # both load and compile kernels in the first steps
    millions, found = step.compared(work, names, "", 1, steps, warmup, device)
    shape: dict[str, Any] = {
        "millions_of_parameters": round(millions, 2),
        "dtype": work.dtype,
        "responses": work.prompts * work.group,
        "most_tokens": work.new_tokens,
        "updates": work.updates,
        "steps": steps - warmup,
    }
    for name, taken in found.items():
        shape |= {
            f"{name}_ms": round(taken.milliseconds, 1),
            f"{name}_tokens": round(taken.tokens),
            f"{name}_peak_gib": round(taken.bytes / 2**30, 2),
        }
    if "TRL" not in found:
        return shape | {"left out": "TRL is not installed"}
    return shape | {"TRL / tokenpo": round(found["TRL"].milliseconds / found["tokenpo"].milliseconds, 2)}


def alone(work: step.Work, device: str) -> dict[str, float | str]:
    """Seconds of each of five steps of ours, the first with all that is loaded and compiled."""
    with tempfile.TemporaryDirectory() as place:
        step.save_model(work, Path(place, "model"), device)
        seconds = step.ours(work, Path(place), len(ORDINALS), device, half=False).seconds
    return {f"{ordinal} s": round(x, 3) for ordinal, x in zip(ORDINALS, seconds, strict=True)}
