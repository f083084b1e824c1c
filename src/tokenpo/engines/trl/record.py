"""The run directory of a TRL run, OUTPUT_DIR/tokenpo: what `tokenpo report` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.files import aside
from ...base.jsonl import Lines, cut
from ...core.ops import ranked
from ...core.types import Rollouts
from ...models.tokens import pieces
from ...runs.records import credit_metrics
from ...runs.versions import versions
from .phase_one import Drawn, mixed
from .prompts import plain

FILES = ("metrics.jsonl", "trace.jsonl")


class Recorder:
    """Appends one line of metrics for each rollout batch, and traces of single tokens.

    A line stays open until the next thing happens, so that TRL's log of its last update can still add to it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pending: dict[str, Any] | None = None
        self._lines = [Lines(directory / name) for name in FILES]

    @staticmethod
    def begin(directory: Path, sizes: Mapping[str, int], **files: Any) -> Recorder:
        """A new run, or one that goes on where a checkpoint knew the sizes of its files.

        Another run's directory is moved aside, never written over.

        Args:
            files: config (JSON), objective (text).
        """
        if not sizes and directory.exists():
            directory.rename(aside(directory))
        going_on = bool(sizes) and directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        for name, size in sizes.items() if going_on else ():
            cut(directory / name, size)
        text = json.dumps(files["config"], indent=2, default=str)
        (directory / "config.json").write_text(text + "\n", encoding="utf-8")
        (directory / "objective.txt").write_text(files["objective"] + "\n", encoding="utf-8")
        software = versions() | {name: version(name) for name in ("trl", "accelerate", "datasets")}
        (directory / "versions.json").write_text(json.dumps(software, indent=2) + "\n", encoding="utf-8")
        return Recorder(directory)

    def add(self, metrics: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> None:
        self.flush()
        self._pending = dict(metrics)
        for record in traces:
            self._lines[1].write(record)

    def amend(self, **values: float) -> None:
        """Adds to the line of the last rollout batch, while it is open."""
        if self._pending is not None:
            self._pending |= values

    def flush(self) -> None:
        if self._pending is not None:
            self._lines[0].write(self._pending)
            self._pending = None

    def sizes(self) -> dict[str, int]:
        self.flush()
        return {lines.path.name: lines.sync() for lines in self._lines}

    def close(self) -> None:
        self.flush()
        for lines in self._lines:
            lines.close()


def batch_metrics(drawn: Drawn, reward_names: Sequence[str], weights: Tensor, group_size: int) -> dict[str, float]:
    """Over every response that was drawn; the names are those of the embedded engine."""
    each = drawn.rows["each"]
    rewards = (each * weights.to(each.device)).nansum(1)[~each.isnan().all(1)]
    metrics = {
        "reward": float(rewards.mean()) if len(rewards) else torch.nan,
        "reward_std": float(rewards.double().std()) if len(rewards) > 1 else torch.nan,
        **{f"rewards/{name}": float(each[:, i].nanmean()) for i, name in enumerate(reward_names)},
        "length": float(drawn.rows["length"].float().mean()),
        "length_min": float(drawn.rows["length"].min()),
        "length_max": float(drawn.rows["length"].max()),
        "truncated": float(drawn.rows["truncated"].float().mean()),
        "equal_reward_groups": 1 - len(mixed(drawn.rows, group_size)) * group_size / len(each),
        "discarded_groups": drawn.discarded,
    }
    if "accuracy" in reward_names:
        metrics["accuracy"] = metrics["rewards/accuracy"]
    if drawn.everything is not None:
        metrics |= _token_metrics(drawn.everything)
    if drawn.rollouts is None or drawn.credit is None:
        return metrics | {"groups": 0, "zero_advantage_groups": 1.0}
    trained = slice(0, drawn.kept * group_size)
    return metrics | credit_metrics(drawn.rollouts.rows(trained), drawn.credit.rows(trained))


def _token_metrics(rollouts: Rollouts) -> dict[str, float]:
    assert rollouts.old_entropy is not None
    assert rollouts.temperature is not None
    entropy = rollouts.old_entropy[rollouts.mask]
    return {
        "entropy": float(entropy.mean()),
        **{f"entropy_q{q}": float(ranked.quantile(entropy, q / 100)) for q in (10, 50, 90)},
        "temperature_mean": float(rollouts.temperature[rollouts.mask].mean()),
    }


def traces(step: int, drawn: Drawn, terms_by_row: Mapping[int, Any], tokenizer: Any) -> list[dict]:
    """One record for each traced response of this rank, as the embedded engine writes them."""
    rollouts = drawn.rollouts
    if rollouts is None or rollouts.token_ids is None:
        return []
    return [
        {
            "step": step,
            "row": row,
            "group": int(rollouts.group[row]),
            "prompt": plain(drawn.prompts[row - drawn.mine.start]),
            "tokens": pieces(tokenizer, rollouts.token_ids[row][rollouts.mask[row]].tolist()),
            "reward": float(rollouts.reward[row]),
            "terms": terms,
        }
        for row, terms in sorted(terms_by_row.items())
    ]
