"""The explorer: one file in which sliders set the facts of a token, and chosen methods say how hard they push it.

The pushes of a grid over all facts are computed ahead. Of a fact that a method does not depend on, one value is kept.
"""

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fingerprint.curves import EQUAL, gap
from fingerprint.step import Facts, pushes
from markupsafe import Markup
from torch import Tensor

from tokenpo.lab.page import frame

HERE = Path(__file__).parent
# Field of `Facts` -> name, and its values; which of them the policy alone knows comes last, as one credit serves them.
GRID: dict[str, tuple[str, tuple[float, ...]]] = {
    "accuracy": ("accuracy of the group", (0.125, 0.25, 0.5, 0.75, 0.875)),
    "entropy": ("entropy at the token, nats", (0.03, 0.35, 1.6)),
    "probability": ("p_old", (0.01, 0.1, 0.3, 0.6, 0.95)),
    "response_ratio": ("ratio of the response's other tokens", (0.75, 0.9, 1.0, 1.1, 1.33)),
    "ratio": (
        "ratio p / p_old",
        (0.2, 0.4, 0.6, 0.75, 0.79, 0.81, 0.9, 1.0, 1.1, 1.19, 1.21, 1.27, 1.29, 1.5, 2.0, 4.0),
    ),
}
DRAWS = 4  # of a method that draws tokens: fewer than for a picture, as the grid has many points
SCALE, MOST = 1000, 32.0  # pushes are kept in thousandths, beyond ±32 as 32


def render(objectives: Mapping[str, Any]) -> str:
    """The page as text. The same objectives give the same bytes."""
    held = {
        "facts": [{"key": key, "title": title, "values": values} for key, (title, values) in GRID.items()],
        "scale": SCALE,
        "methods": {name: packed(grid(objective)) for name, objective in objectives.items()},
    }
    return frame.render(
        HERE / "explorer.html",
        "How hard each method pushes a token",
        script=(HERE / "explorer.js").read_text(encoding="utf-8"),
        data=Markup(json.dumps(held, separators=(",", ":")).replace("<", "\\u003c")),  # no end tag inside a script
        names=list(objectives),
        drawn_from=digest(objectives),
    )


def digest(objectives: Mapping[str, Any]) -> str:
    """Stands for what a page is made from: choices, the code of the room, a few pushes of each method."""
    made = [f"{name}\n{objective}\n{_sample(objective)}" for name, objective in objectives.items()]
    made += [path.read_text(encoding="utf-8") for path in sorted(HERE.glob("explorer.*"))]
    return hashlib.sha256("\n".join(made).encode()).hexdigest()


def drawn_from(page: str) -> str:
    """The digest in a page; "" where there is none."""
    found = re.search(r'<meta name="drawn-from" content="(\w+)">', page)
    return found[1] if found else ""


def grid(objective: Any) -> Tensor:
    """Pushes on the log-probability [accuracy, entropy, probability, response ratio, ratio, right and wrong]."""
    readers = objective.needs & {"entropy", "old_entropy"}
    values = [values if readers or key != "entropy" else (Facts.entropy,) for key, (_, values) in GRID.items()]
    facts = [
        dataclasses.replace(Facts(), **dict(zip(GRID, point, strict=True))) for point in itertools.product(*values)
    ]
    seeds = range(DRAWS) if getattr(objective, "draws", False) else None
    return pushes(objective, facts, seeds)[..., 0].view(*map(len, values), 2)


def packed(pushed: Tensor) -> dict[str, Any]:
    """The grid without the dimensions along which nothing changes: its shape, and the numbers as base64 of int16."""
    for dim in range(pushed.dim() - 1):
        if gap(pushed, pushed.narrow(dim, 0, 1).expand_as(pushed)) < EQUAL:
            pushed = pushed.narrow(dim, 0, 1)
    numbers = (pushed.clamp(-MOST, MOST) * SCALE).round().to(torch.int16).contiguous()
    return {"shape": list(pushed.shape), "pushes": base64.b64encode(numbers.numpy().tobytes()).decode()}


def _sample(objective: Any) -> list[str]:
    sample = pushes(objective, [Facts(), Facts(ratio=1.25), Facts(accuracy=0.25, probability=0.4)], seeds=[0])
    return [f"{x:.4g}" for x in sample.flatten().tolist()]
