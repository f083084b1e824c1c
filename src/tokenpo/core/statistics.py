"""Statistics of an optimiser step, summed on the device from the tensors of its losses and read from it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .ops.ratio import k3
from .types import Batch, Loss, Totals

# Lower ends of the bins of lags, in updates.
LAGS = (0, 1, 2, 4, 8)
_BY_LAG = tuple(f"lag_{least}_{what}" for what in ("tokens", "ratio", "clipped") for least in LAGS)
_SUMS = ("count", "ratio", "low", "high", "kl", "live", "live_kl", "effective", "loss", "distance", "fresh", *_BY_LAG)
_EXTREMES = ("ratio_min", "ratio_max", "distance")


class Statistics:
    """Sums over evaluated tokens; fractions are of all tokens of the minibatches, including those of skipped rows."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._extremes: dict[str, Tensor] = {}
        self._tokens = 0.0
        self._updates: list[tuple[Tensor, float]] = []
        self.skipped: list[str] = []

    def add_minibatch(self, totals: Totals) -> None:
        """Adds the minibatch's tokens to the denominator of fractions."""
        self._tokens += totals.tokens

    @torch.no_grad()
    def add(self, batch: Batch, loss: Loss, number: int = 0, live: Tensor | None = None) -> None:
        """Adds the rows of one loss of the update `number`; `live` [N] bool are those that can have a gradient."""
        mask, terms = batch.mask, loss.terms
        moved = torch.where(mask, batch.policy.logprob.detach() - batch.rollouts.old_logprob, 0.0)
        moving = mask if live is None else mask & live[:, None]
        ratio, clipped = terms["ratio"], terms["clipped"].bool() & mask
        below = clipped & (ratio < 1)
        fresh, version = mask, batch.rollouts.version
        if version is not None:
            # The ratio check leaves out tokens of an older policy, whose ratio need not be 1 before the first update.
            fresh = mask & (version == number)
            self._add_lags(number - version, mask, ratio, clipped)
        effective = (terms["advantage"] * terms["weight"] != 0) & ~clipped | (terms["penalty"] != 0)
        self._add(
            count=mask.sum(),
            ratio=ratio.where(mask, 0.0).sum(),
            low=below.sum(),
            high=(clipped & ~below).sum(),
            kl=k3(moved).sum(),
            live=moving.sum(),
            live_kl=k3(moved).where(moving, 0.0).sum(),
            effective=(effective & (terms["coefficient"] != 0) & mask).sum(),
            loss=loss.value.detach(),
            distance=moved.abs().where(fresh, 0.0).sum(),
            fresh=fresh.sum(),
        )
        self._reach("ratio_min", -ratio.where(mask, torch.inf).min())
        self._reach("ratio_max", ratio.where(mask, -torch.inf).max())
        self._reach("distance", moved.abs().where(fresh, 0.0).max())

    def add_value(self, loss: Loss) -> None:
        """Adds the rows of one loss of the critic; `across` does not sum it over ranks."""
        self._add(value_loss=loss.value.detach())

    def include(self, other: Statistics, *, made: bool = True) -> None:
        """Adds the sums of another minibatch, without its updates; without its losses if its update is not made."""
        self._tokens += other._tokens
        self._add(**{name: x for name, x in other._sums.items() if made or name not in ("loss", "value_loss")})
        for name, value in other._extremes.items():
            self._reach(name, value)

    def add_update(self, grad_norm: Tensor, lr: float) -> None:
        """Adds an update's gradient norm and learning rate."""
        self._updates.append((grad_norm, lr))

    @property
    def loss(self) -> float:
        """The sum of the losses."""
        return float(self._sums.get("loss", 0.0))

    @property
    def live_kl(self) -> float:
        """k3 estimate of KL(old || new), nats, mean over tokens of live rows; NaN without any."""
        return _over(float(self._sums.get("live_kl", 0.0)), float(self._sums.get("live", 0.0)))

    def across(
        self, add: Callable[[Tensor], Tensor], largest: Callable[[Tensor], Tensor], device: torch.device | str
    ) -> Statistics:
        """The statistics over all ranks, which must all call it; `add` and `largest` reduce a vector on the device."""
        whole = Statistics()
        whole._tokens, whole._updates = self._tokens, self._updates
        zero, least = torch.zeros(()), torch.full((), -torch.inf)
        sums = add(torch.stack([self._sums.get(name, zero).float().to(device) for name in _SUMS]))
        extremes = largest(torch.stack([self._extremes.get(name, least).float().to(device) for name in _EXTREMES]))
        if sums[_SUMS.index("count")] > 0:  # otherwise no rank has evaluated a token
            whole._sums = dict(zip(_SUMS, sums, strict=True))
            whole._extremes = dict(zip(_EXTREMES, extremes, strict=True))
        return whole

    def disagreement(self) -> tuple[float, float] | None:
        """(largest, mean) |lp − lp_old|, nats, over tokens that this version sampled; None without such tokens."""
        if not self._sums or not self._sums["fresh"]:
            return None
        return float(self._extremes["distance"]), float(self._sums["distance"] / self._sums["fresh"])

    def summary(self) -> dict[str, float]:
        """The step's metrics by name; NaN without an evaluated token."""
        sums = dict(zip(self._sums, _numbers([*self._sums.values()]), strict=True))
        scored, every = sums.get("count", 0.0), self._tokens
        low, high = _over(sums.get("low", 0.0), every), _over(sums.get("high", 0.0), every)
        updates = max(len(self._updates), 1)
        return {
            "ratio_mean": _over(sums.get("ratio", 0.0), scored),
            "ratio_min": -float(self._extremes.get("ratio_min", torch.nan)),
            "ratio_max": float(self._extremes.get("ratio_max", torch.nan)),
            "clip_fraction": low + high,
            "clip_low_fraction": low,
            "clip_high_fraction": high,
            "kl": _over(sums.get("kl", 0.0), scored),
            "effective_tokens": _over(sums.get("effective", 0.0), every),
            "loss": sums.get("loss", 0.0) / updates,
            "grad_norm": sum(_numbers([norm for norm, _ in self._updates])) / updates,
            "lr": self._updates[-1][1] if self._updates else torch.nan,
            "skipped_updates": len(self.skipped),
            **({"value_loss": sums["value_loss"] / updates} if "value_loss" in sums else {}),
            **self._by_lag(sums),
        }

    def _add_lags(self, lag: Tensor, mask: Tensor, ratio: Tensor, clipped: Tensor) -> None:
        place = torch.bucketize(lag, torch.tensor(LAGS[1:], device=lag.device), right=True).flatten()
        sums = (
            torch.zeros(len(LAGS), device=lag.device).double().index_add_(0, place, x.double().flatten())
            for x in (mask, ratio.where(mask, 0.0), clipped)
        )
        self._add(**dict(zip(_BY_LAG, torch.cat([*sums]), strict=True)))

    @staticmethod
    def _by_lag(sums: Mapping[str, float]) -> dict[str, float]:
        tokens = {least: count for least in LAGS if (count := sums.get(f"lag_{least}_tokens", 0.0))}
        metrics: dict[str, float] = {}
        for least, count in tokens.items():
            metrics[f"lag_{least}_share"] = count / sum(tokens.values())
            metrics[f"lag_{least}_ratio_mean"] = sums[f"lag_{least}_ratio"] / count
            metrics[f"lag_{least}_clip_fraction"] = sums[f"lag_{least}_clipped"] / count
        return metrics

    def _add(self, **values: Tensor) -> None:
        for name, value in values.items():
            value = value.double() if value.device.type != "mps" else value.float()
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def _reach(self, name: str, value: Tensor) -> None:
        self._extremes[name] = torch.maximum(self._extremes[name], value) if name in self._extremes else value


def _numbers(values: list[Tensor]) -> list[float]:
    return torch.stack(values).tolist() if values else []


def _over(a: float, b: float) -> float:
    return a / b if b else math.nan
