"""Trains with TRL on frozen rollouts and evaluates every micro-batch by TRL's own loss too, at the same rows, weights
and advantages.

    beside_run.py CASES.json OUT

Every case makes OUT/NAME-rankR.json: one record of each micro-batch.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

from tokenpo.hosts.trl import TokenPOConfig
from tokenpo.hosts.trl.forward import ROW, by_policy, in_head
from tokenpo.hosts.trl.objective import chosen
from trl_support import frozen, leave
from trl_support.frozen_run import Tapped, built

THEIRS = "theirs_"
reported = frozen.reported


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> list[float]:
    """Norm of the difference, and of the second."""
    left, right = torch.cat([x.flatten() for x in a]), torch.cat([x.flatten() for x in b])
    return [float((left - right).norm()), float(right.norm())]


class Beside(Tapped):
    """Before a micro-batch is learned from: TRL's own loss and ours."""

    records: list[dict[str, Any]]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """Our inputs, and TRL's of the same rollouts."""
        found = super()._generate_and_score_completions(inputs)
        self.batches -= 1
        theirs = GRPOTrainer._generate_and_score_completions(self, inputs)
        return found | {f"{THEIRS}{name}": x for name, x in theirs.items()}

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        metrics = self._metrics["train"]
        before = {name: len(values) for name, values in metrics.items()}
        if self.model.training:
            self.records.append(self.record(model, inputs))
        loss = super()._compute_loss(model, inputs)
        grown = {name: values[before.get(name, 0) :] for name, values in metrics.items()}
        # TRL's own number, then ours.
        self.records[-1]["metrics"] = {name: values for name, values in grown.items() if len(values) == 2}
        return loss

    def gradient(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Of one loss alone, through DDP where there is one; accumulated gradients stay."""
        leaves = [x for x in self.model.parameters() if x.requires_grad]
        held = [x.grad for x in leaves]
        for x in leaves:
            x.grad = None
        value.backward()
        found = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        for x, grad in zip(leaves, held, strict=True):
            x.grad = grad
        return found

    def record(self, model: Any, inputs: Any) -> dict[str, Any]:
        update = self.current.update_of(model, inputs)
        given = {name.removeprefix(THEIRS): x for name, x in inputs.items() if name.startswith(THEIRS)}
        if update is None:
            theirs = GRPOTrainer._compute_loss(self, model, given)
            norm = float(sum(x.norm() for x in self.gradient(theirs)))
            return {"loss": [0.0, float(theirs)], "gradient": [norm, norm], "credit": 0.0, "advantage": 0.0}
        rollouts, credit = update.of(inputs[ROW])
        mask, width = rollouts.mask, inputs["completion_ids"].shape[1]
        # Where the group's deviation is divided by, TRL adds 1e-4 to it.
        credited = torch.where(mask, credit.advantage - given["advantages"][:, None], 0.0)
        theirs = GRPOTrainer._compute_loss(self, model, given | {"advantages": credit.advantage[:, :width]})
        expected = self.gradient(theirs)
        score = in_head if self.forward_passes.in_head else by_policy
        ours = score(self.forward_passes, model, inputs, update)
        # As the trainer hands it over: gradients are averaged over ranks.
        value = ours.value * self.accelerator.num_processes
        record = {
            "loss": [float(value), float(theirs)],
            "gradient": distance(self.gradient(value), expected),
            "credit": float(credited.abs().max()),
            "advantage": float(credit.advantage.where(mask, 0.0).abs().max()),
            "empty": int((~mask.any(1)).sum()),
        }
        if "importance_sampling_ratio" in given:
            # Dropped, or at a bound, as several tokens are.
            weights = given["importance_sampling_ratio"].expand(len(mask), width)[mask[:, :width]]
            record["bounded"] = int((weights == 0).sum() + (weights.unique(return_counts=True)[1] > 1).sum())
        if ours.batch is not None:
            now = ours.batch.policy.logprob
            for name, other in (("moved", rollouts.old_logprob), ("away", rollouts.ref_logprob)):
                if other is not None:
                    record[name] = float((now - other).abs()[mask].max())
        return record


def near(batch: int, row: int) -> list[float]:
    """Reported log-probabilities about those of the model, over and under."""
    return [x - 1.5 for x in reported(batch, row)]


def trls(case: dict[str, Any], out: Path) -> Beside:
    more: dict[str, Any] = {}
    if case.get("served"):
        # TRL would start vLLM; here the rollout_func reports in its place.
        settings = TokenPOConfig("unused", use_cpu=True, bf16=False, use_vllm=True, **case["settings"])
        more["method"] = chosen(settings, case["method"])
    trainer = built(Beside, case["model"], case, out / case["name"], **more)
    if case.get("served"):
        trainer.use_vllm, trainer._last_loaded_step = True, 0
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
    args = trainer.args
    for name, value in case["theirs"].items():
        setattr(args, name, value)
        if hasattr(trainer, name):
            setattr(trainer, name, value)
    trainer.epsilon_low = args.epsilon
    trainer.epsilon_high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    trainer.eos_token_ids = list(range(*case["ends"])) if "ends" in case else trainer.eos_token_ids
    return trainer


if __name__ == "__main__":
    out = Path(sys.argv[2])
    frozen.reported = near
    for case in json.loads(Path(sys.argv[1]).read_text()):
        trainer = trls(case, out)
        trainer.records = []
        trainer.train()
        rank = trainer.accelerator.process_index
        (out / f"{case['name']}-rank{rank}.json").write_text(json.dumps(trainer.records))
    leave()
