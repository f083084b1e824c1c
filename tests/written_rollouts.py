"""Recorded rollouts as a user's ten lines would write them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oracle_support import Sample

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
            "drafts": int(sample.drafts[i]),
            "tokens": [f"t{t}" for t in np.flatnonzero(kept)],
            **{name: getattr(sample, name)[i][kept].tolist() for name in names},
        }
        for i, kept in enumerate(sample.mask)
    ]
