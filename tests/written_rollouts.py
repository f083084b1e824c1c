"""Recorded rollouts as a user's ten lines would write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from oracle_support import Sample
from tokenpo.runs.rollouts import Response
from tokenpo.runs.rollouts.recording import record

# Two groups of two; rewards 1, 0 and 1, 1. Six tokens: two, one, two, one.
FOUR: tuple[dict[str, Any], ...] = (
    {"group": "a", "prompt": "1+1=", "reward": 1.0, "correct": True, "tokens": ["2", "."],
     "old_logprob": [-0.1, -0.2], "entropy": [0.3, 0.1]},
    {"group": "a", "prompt": "1+1=", "reward": 0, "correct": False, "tokens": ["3"],
     "old_logprob": [-2.0], "entropy": [0.9]},
    {"group": "b", "prompt": "1+2=", "reward": 1.0, "correct": True, "tokens": ["3", "."],
     "old_logprob": [-0.1, -0.3], "entropy": [0.2, 0.4]},
    {"group": "b", "prompt": "1+2=", "reward": 1.0, "correct": True, "tokens": ["3"],
     "old_logprob": [-0.5], "entropy": [0.6]},
)  # fmt: skip


def write(path: Path, lines: Iterable[Mapping[str, Any]] = FOUR) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def lines_of(sample: Sample) -> list[dict[str, Any]]:
    """A sample of the oracles, with every input that an objective may ask for."""
    names = [name for name, x in vars(sample).items() if np.ndim(x) == 2 and name not in ("mask", "rewards")]
    return [
        {
            "group": int(sample.group[i]),
            "reward": float(sample.reward[i]),
            "correct": bool(sample.reward[i] > 0),
            "rewards": {f"r{k}": float(x) for k, x in enumerate(sample.rewards[i])},
            "prompt_logprob": float(sample.prompt_logprob[i]),
            "baseline": float(sample.baseline[i]),
            "role": int(sample.role[i]),
            "tokens": [f"t{t}" for t in np.flatnonzero(kept)],
            **{name: getattr(sample, name)[i][kept].tolist() for name in names},
        }
        for i, kept in enumerate(sample.mask)
    ]


def write_tensors(path: Path, responses: Sequence[Response]) -> Path:
    """Responses of one step as a user would save them with safetensors, in float64."""
    batch = record(str(path), responses, str, [], [])
    owners = {**vars(batch.rollouts), **(vars(batch.policy) if batch.moved else {})}
    tensors = {name: x.contiguous() for name, x in owners.items() if x is not None}
    if any(x is not None for x in batch.correct):  # -1: not judged
        tensors["correct"] = torch.tensor([-1 if x is None else int(x) for x in batch.correct], dtype=torch.int8)
    texts = {name: [getattr(response, name) for response in responses] for name in ("tokens", "prompt", "group")}
    texts |= {"rewards": batch.reward_names} if batch.reward_names else {}
    metadata = {name: json.dumps(values, ensure_ascii=False) for name, values in texts.items()}
    save_file(tensors, path, metadata | ({} if batch.step is None else {"step": str(batch.step)}))
    return path
