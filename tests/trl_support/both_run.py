"""Trains with TRL on frozen rollouts and evaluates every micro-batch in both ways: in the head, and by TRL's own pass.

    both_run.py CASES.json OUT

A case has its `model` beside what `beside.planned` gives, and may ask for `lora`. Every case makes OUT/NAME-rankR.json:
one record of each micro-batch.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch

from tokenpo.engines.trl.loss import MicroLoss, by_policy, in_head
from trl_support.frozen_run import built
from trl_support.tapped import Tapped


class Both(Tapped):
    """Before a micro-batch is learned from: how far the two ways are apart at it, from the same old policy."""

    apart: list[dict[str, Any]]

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        if self.model.training:
            self.apart.append(self._micro(model, inputs))
        return super()._compute_loss(model, inputs)

    def _micro(self, model: Any, inputs: Any) -> dict[str, Any]:
        update = self.current.update_of(model, inputs)
        ours = self.forward_passes
        theirs = dataclasses.replace(ours, in_head=False)
        one = in_head(ours, model, inputs, update)
        first = self.gradient(one.value)
        other = by_policy(theirs, model, inputs, update)
        if other.batch is not None:
            other.batch.policy.logprob.retain_grad()
        second = self.gradient(other.value)
        return _compared(one, other) | {"gradient": distance(first, second)}

    def gradient(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Of one loss alone, through DDP where there is one; what has been accumulated stays."""
        leaves = [x for x in self.model.parameters() if x.requires_grad]
        held = [x.grad for x in leaves]
        for x in leaves:
            x.grad = None
        value.backward()
        found = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        for x, grad in zip(leaves, held, strict=True):
            x.grad = grad
        return found


def _compared(one: MicroLoss, other: MicroLoss) -> dict[str, Any]:
    if one.batch is None or other.batch is None or one.loss is None or other.loss is None:
        return {"tokens": 0, "loss": [float(one.value), float(other.value)]}
    mask = one.batch.mask
    pulls = [part.batch.policy.logprob.grad[mask] for part in (one, other)]
    # Without the bounds of the ratio, which depend on no policy and may be infinite.
    names = sorted(set(one.loss.terms) - {"low", "high"})
    terms = [torch.stack([part.loss.terms[name][mask] for name in names]) for part in (one, other)]
    return {
        "tokens": int(mask.sum()),
        "loss": [float(one.loss.value), float(other.loss.value)],
        "pull": distance([pulls[0]], [pulls[1]]),
        "entropy": distance([one.entropy[mask]], [other.entropy[mask]]),
        "terms": distance([terms[0]], [terms[1]]),
        "ratio_is_one": float((one.loss.terms["ratio"][mask] == 1).float().mean()),
    }


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> list[float]:
    """Norm of the difference, and of the second."""
    left, right = torch.cat([x.flatten() for x in a]), torch.cat([x.flatten() for x in b])
    return [float((left - right).norm()), float(right.norm())]


def run(case: dict[str, Any], out: Path) -> None:
    more = {}
    if case.get("lora"):
        from peft import LoraConfig

        # Both of its factors begin at random, so that both have a gradient.
        more["peft_config"] = LoraConfig(
            r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
        )
    trainer = built(Both, case["model"], case, out / case["name"], **more)
    assert trainer.forward_passes.in_head
    trainer.apart = []
    trainer.train()
    rank = trainer.accelerator.process_index
    (out / f"{case['name']}-rank{rank}.json").write_text(json.dumps(trainer.apart))


if __name__ == "__main__":
    for case in json.loads(Path(sys.argv[1]).read_text()):
        run(case, Path(sys.argv[2]))
