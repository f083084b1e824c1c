"""TRL's trainer with our loss: a micro-batch with the loss in the model's head beside TRL's own pass; whole steps."""

import argparse
import functools
import gc
import importlib.util
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from timing import Run, milliseconds, peak_bytes

Case = Callable[[], dict[str, float | str]]
# Name -> hidden size, weights, autocast: the widths of Qwen2.5 of 0.5 B and 1.5 B parameters, with two layers.
HEADS = {
    "head 896, bf16": (896, "bfloat16", False),
    "head 896, autocast": (896, "float32", True),
    "head 1536, bf16": (1536, "bfloat16", False),
}
# Method, and whether the loss is computed in the head.
RUNS = {"tepo, in the head": ("tepo", True), "hapo, in the head": ("hapo", True), "hapo, TRL's pass": ("hapo", False)}


def cases(small: bool, device: str) -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, (hidden, dtype, autocast) in HEADS.items():
        shape = (
            {"vocabulary": 64, "hidden": 64, "rows": 8, "length": 4}
            if small
            else {"vocabulary": 151936, "hidden": hidden, "rows": 16, "length": 512}
        )
        chosen = argparse.Namespace(**shape, dtype=dtype, autocast=autocast, device=device)
        found[name] = functools.partial(micro_batch, chosen, 1 if small else 7)
    found |= {
        f"steps of {name}": functools.partial(steps, method, fused, *((2, 16) if small else (30, 64)), device)
        for name, (method, fused) in RUNS.items()
    }
    return found if importlib.util.find_spec("trl") else dict.fromkeys(found, missing)


def missing() -> dict[str, float | str]:
    return {"left out": "TRL is not installed"}


def micro_batch(chosen: argparse.Namespace, rounds: int) -> dict[str, float | str]:
    """Milliseconds, peak memory beyond weights and gradients, and how far each gradient is from that in float32."""
    import trl_head

    fresh()
    with tempfile.TemporaryDirectory() as directory:
        made = trl_head.trainer(chosen, directory)
        inputs, update = trl_head.micro_batch(chosen, made)
        runs = trl_head.candidates(made, inputs, update)
        gradients = {name: gradient(made.model, run) for name, run in runs.items()}
        peaks = {name: peak_bytes(run, chosen.device) / 2**30 for name, run in runs.items()}
        taken = milliseconds(runs, rounds, chosen.device)
        made.model.float()
        with torch.autocast(chosen.device, enabled=False), exact(made):
            whole = gradient(made.model, trl_head.candidates(made, inputs, update)["TRL's pass"])
    found: dict[str, Any] = {k: getattr(chosen, k) for k in ("rows", "length", "hidden", "vocabulary")}
    for name, short in (("in the head", "head"), ("TRL's pass", "trl")):
        found |= {
            f"{short}_ms": round(taken[name], 2),
            f"{short}_peak_gib": round(peaks[name], 3),
            f"{short}_gradient_from_float32": distance(gradients[name], whole),
        }
    ours, theirs = gradients.values()
    return found | {
        "gradients_apart": distance(ours, theirs),
        "TRL / head": round(taken["TRL's pass"] / taken["in the head"], 3),
    }


def fresh() -> None:
    """Has accelerate forget the precision of the trainer before, which it keeps for the whole process."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    gc.collect()


@contextmanager
def exact(made: Any) -> Iterator[None]:
    """Without the trainer's autocast."""
    from tokenpo.hosts.trl.forward import replaced

    with replaced(made.accelerator, "autocast", lambda *_, **__: torch.autocast("cpu", enabled=False)):
        yield


def gradient(model: Any, run: Run) -> dict[str, torch.Tensor]:
    run()
    return {name: x.grad.float().clone() for name, x in model.named_parameters()}


def distance(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """Of the whole gradients, relative to the second."""
    apart = math.sqrt(sum(float((x - two[name]).square().sum()) for name, x in one.items()))
    return float(f"{apart / math.sqrt(sum(float(x.square().sum()) for x in two.values())):.3g}")


def steps(method: str, fused: bool | None, count: int, rows: int, device: str) -> dict[str, float | str]:
    """Rollout batches of two updates in bf16 autocast: rewards, whether all numbers are finite, and warnings."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

    import step
    from tokenpo.hosts.trl import TokenPOConfig, TokenPOTrainer

    fresh()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place, heard() as said:
        step.save_model(replace(step.SIZES["0.1M"], ends=80), Path(place, "model"))
        args = TokenPOConfig(
            f"{place}/out", use_cpu=device == "cpu", bf16=True, gradient_checkpointing=False, report_to="none",
            save_strategy="no", logging_steps=2, disable_tqdm=True, learning_rate=3e-3, max_steps=2 * count,
            per_device_train_batch_size=rows // 2, gradient_accumulation_steps=1, steps_per_generation=2,
            num_generations=8, max_completion_length=16, method=method, fused_objective=fused,
        )  # fmt: skip
        trainer = TokenPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(f"{place}/model", dtype=torch.float32),
            reward_funcs=even,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": step.PROMPTS}),
            processing_class=AutoTokenizer.from_pretrained(f"{place}/model"),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    logs = [line for line in trainer.state.log_history if "reward" in line]
    few = max(1, count // 6)
    numbers = [x for line in logs for key, x in line.items() if key in ("loss", "grad_norm", "entropy", "reward")]
    found: dict[str, Any] = {
        "steps": len(logs),
        "in_head": trainer.forward_passes.in_head,
        "reward_first": sum(line["reward"] for line in logs[:few]) / few,
        "reward_last": sum(line["reward"] for line in logs[-few:]) / few,
        "finite": all(math.isfinite(x) for x in numbers),
        "ms_of_a_step": round(1e3 * sorted(line["step_time"] for line in logs)[len(logs) // 2], 1),
        "warnings": len(said),
    }
    return found | {f"warning_{i}": text[:300] for i, text in enumerate(said[:3], 1)}


def even(completion_ids: list[list[int]], **columns: object) -> list[float]:
    """The share of even tokens."""
    return [sum(i % 2 == 0 for i in ids) / len(ids) for ids in completion_ids]


@contextmanager
def heard() -> Iterator[list[str]]:
    """The texts of warnings, of Python's and of our own loggers."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    ours = logging.getLogger("tokenpo")
    ours.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            yield texts
        texts += list(dict.fromkeys(str(one.message) for one in seen))
    finally:
        ours.removeHandler(handler)
