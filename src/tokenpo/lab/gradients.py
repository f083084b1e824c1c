"""Measures of a method's updates at a checkpoint of a run, where the gradient of the reward is itself estimated.

That gradient is estimated from many more rollouts than an update has. No statistic multiplies an estimate with itself,
so the gradient's noise does not lower a cosine. All measures are inner products, so vectors with one entry per weight
of the model can be replaced by vectors of few coordinates.

Axes: R replicates, K batches of each, D weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..base.text import number
from ..page.frame import write
from ..page.table import Cell, Row, Table
from ..page.text import percent, visible
from .estimate import Estimate, Number, combined, jackknife, load_json
from .exact.measures import root, squared_mean, unit
from .exact.study import BASE

TITLES = {
    "useful": "useful progress", "against": "− dapo's", "single": "single cosine", "cosine": "cosine", "snr": "SNR",
    "after/useful": "after: useful", "after/against": "− dapo's", "after/cosine": "cosine", "after/snr": "SNR",
}  # fmt: skip
MEANING = (
    "Useful progress: how far an update climbs along the gradient of the reward, per root mean square of its size. "
    "Cosine: of the expected update with that gradient; single: of one batch's update, in the mean. SNR: power of the "
    "expected update over power of its noise. After: the same update once the policy has left the one that sampled, "
    "per size on policy. Standard errors stand below."
)


@dataclass
class Judged:
    """Results of a method at a checkpoint.

    Args:
        objective: its text.
        numbers: by the keys of `TITLES`.
        paired: estimates for differences to another method on the same rollouts, whose noise then cancels.
    """

    objective: str
    numbers: dict[str, Number] = field(default_factory=dict)
    paired: dict[str, Estimate] = field(default_factory=dict)

    def add(self, estimates: Mapping[str, Estimate], prefix: str = "") -> None:
        """Adds estimates under a prefix; useful progress is kept for paired differences."""
        self.numbers |= {prefix + key: Number.of(x) for key, x in estimates.items()}
        self.paired[f"{prefix}useful"] = estimates["useful"]


def coordinates(vectors: Tensor) -> Tensor:
    """[M, M] float64 vectors with the same inner products as these [M, D]."""
    values, axes = torch.linalg.eigh((vectors @ vectors.T).double())
    return axes * values.clamp(min=0).sqrt()


def together(truth: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the reward [R, D] and directions [R, K, D] in common coordinates."""
    vectors = coordinates(torch.cat([truth, single.flatten(0, 1)]))
    return vectors[: len(truth)], vectors[len(truth) :].view(*single.shape[:2], -1)


def on_policy(truth: Tensor, single: Tensor) -> dict[str, Estimate]:
    """useful, single, cosine and snr, as in `exact.measures`.

    Args:
        truth: [R, D] estimated gradients of the reward, independent of each other and of the directions.
        single: [R, K, D] directions of small batches, at the policy that sampled them.
    """
    truth, single = together(truth, single)

    def useful(truth: Tensor, single: Tensor) -> float:
        return float(_along(single, truth).mean() / root(single.square().sum(-1).mean()))

    def cosines(truth: Tensor, single: Tensor) -> float:
        return float(_along(unit(single), truth).mean())

    statistics = {"useful": useful, "single": cosines, "cosine": _cosine, "snr": _snr}
    return {name: jackknife(statistic, truth, single) for name, statistic in statistics.items()}


def off_policy(truth: Tensor, size: Tensor, moved: Tensor) -> dict[str, Estimate]:
    """cosine and snr after the policy has moved to θ', and useful: E⟨g(θ'), ∇J(θ')⟩ / (sqrt(E|g(θ)|²) |∇J(θ')|).

    Args:
        truth: [R, D] estimated gradients of the reward at θ'.
        size: [R, K] lengths of the directions at θ, the policy that sampled.
        moved: [R, K, D] directions at θ', on the same rollouts.
    """
    truth, moved = together(truth, moved)

    def useful(J: Tensor, at: Tensor, to: Tensor) -> float:
        return float(_along(to, J).mean() / root(at.square().mean()))

    estimates = {name: jackknife(statistic, truth, moved) for name, statistic in (("cosine", _cosine), ("snr", _snr))}
    return estimates | {"useful": jackknife(useful, truth, size.double(), moved)}


def reliability(truth: Tensor) -> float:
    """cos² between the mean of the replicates [R, D] and the gradient that it estimates: its share of signal power."""
    return float((squared_mean(x := coordinates(truth)) / x.mean(0).square().sum()).clamp(-1, 1))


def _cosine(truth: Tensor, single: Tensor) -> float:
    """The cosine; not cut at 1, as half the estimates of a true cosine of 1 lie above 1."""
    return float(_along(single.flatten(0, 1).mean(0), truth) / root(squared_mean(single.flatten(0, 1))))


def _snr(truth: Tensor, single: Tensor) -> float:
    g = single.flatten(0, 1)
    signal, power = squared_mean(g), g.square().sum(-1).mean()
    return float(signal / (power - signal)) if power > 0 else 0.0


def _along(g: Tensor, truth: Tensor) -> Tensor:
    """[...] component of g [..., D] along the gradient that the replicates [R, D] estimate."""
    return g @ truth.mean(0) / root(squared_mean(truth))


def compare(rows: Mapping[str, Judged]) -> None:
    """Adds to every row its difference from DAPO, with the error that remains after the rollouts' noise cancels."""
    base = rows[BASE].paired
    for row in rows.values():
        for key, x in row.paired.items():
            if key in base:
                row.numbers[key.replace("useful", "against")] = Number.of(combined(lambda a, b: a - b, x, base[key]))


def table(rows: Mapping[str, Judged], title: str) -> Table:
    """A table of methods x measures, sorted by useful progress."""
    columns = [key for key in TITLES if any(key in row.numbers for row in rows.values())]
    body = []
    for label in sorted(rows, key=lambda label: -rows[label].numbers["useful"].value):
        numbers = [rows[label].numbers.get(key) for key in columns]
        cells = [Cell("–") if x is None else Cell(x.text, x.note) for x in numbers]
        body.append(Row(visible(label, limit=60), cells, apart=label == BASE))
    return Table(["method", *(TITLES[key] for key in columns)], body, title=title)


def verdict(rows: Mapping[str, Judged]) -> str:
    """A sentence about which methods make more useful progress than DAPO, by two standard errors of the difference."""
    against = {label: row.numbers["against"] for label, row in rows.items() if label != BASE}
    if not against:
        return "DAPO alone: name methods to compare it with."
    beyond = {label: math.copysign(1, x.value) * (abs(x.value) > 2 * x.error) for label, x in against.items()}
    if len(against) > 4:
        most = max(against, key=lambda label: against[label].value)
        better = sum(sign > 0 for sign in beyond.values())
        most = visible(most, limit=60)
        return f"{better} of {len(against)} methods make more useful progress than DAPO; {most} makes most."
    how = {1: "makes more useful progress than DAPO", -1: "makes less useful progress than DAPO"}
    near = "cannot be told from DAPO"
    return "; ".join(f"{visible(label, limit=60)} {how.get(int(sign), near)}" for label, sign in beyond.items()) + "."


def save(about: Mapping[str, Any], rows: Mapping[str, Judged], path: Path) -> Path:
    """Writes the checkpoint's description and all numbers of the methods as JSON; raises as `frame.write`."""
    lines = []
    for label, row in rows.items():
        numbers = {key: x.pair() for key, x in row.numbers.items()}
        kept = {"objective": row.objective, "numbers": numbers, "paired": {k: x.row() for k, x in row.paired.items()}}
        lines.append(json.dumps(label) + ": " + json.dumps(kept, separators=(",", ":")))
    return write(f'{{"about": {json.dumps(about)},\n"methods": {{\n' + ",\n".join(lines) + "\n}}\n", path)


def load(path: Path) -> tuple[dict[str, Any], dict[str, Judged]]:
    """Reads a file that `save` wrote; refuses any other."""

    def judged(row: Mapping[str, Any]) -> Judged:
        numbers = {key: Number(*(math.nan if x is None else x for x in pair)) for key, pair in row["numbers"].items()}
        return Judged(row["objective"], numbers, {key: Estimate.of_row(x) for key, x in row["paired"].items()})

    def parse(text: Any) -> tuple[dict[str, Any], dict[str, Judged]]:
        return dict(text["about"]), {label: judged(row) for label, row in text["methods"].items()}

    return load_json(path, "gradients", parse)


def context(about: Mapping[str, Any]) -> str:
    """A paragraph about the reliability of the estimated gradient and the distance that the policy has moved."""
    known = f"Of the power of the estimated gradient of the reward {percent(about['reliability'])} is signal"
    if "kl" not in about:
        return f"{known}."
    later, far = percent(about["after/reliability"]), percent(about["far"])
    reward, kl = number(about["after/reward"]), number(about["kl"], 2)
    return (
        f"{known}, {later} after {about['after']} minibatches; what noise takes out of a statistic is put back. By "
        f"then the mean reward is {reward}, the policy has moved {kl} nats a token, and the ratio of {far} of the "
        "tokens is further than 0.2 from 1."
    )


def require_same(path: Path, held: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Raises TokenPOError, naming the file and the differences, if its methods are at another checkpoint or setting."""
    if differ := [key for key in about if held.get(key) != about[key]]:
        names = ", ".join(differ)
        raise TokenPOError(f"{path} is of another checkpoint or setting ({names} differ): give another file")
