"""Trains with our settings on frozen rollouts and evaluates every micro-batch by TRL's own loss, too.

    own_run.py MODEL_DIR CASES.json OUT

A case has the settings of TRL's loss that say the same under `theirs`. Both losses see the same rows, weights and
advantages. Every case makes OUT/NAME-rankR.json: one record of each micro-batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

from tokenpo.engines.trl import TokenPOConfig
from tokenpo.engines.trl.loss import by_policy, in_head
from tokenpo.engines.trl.objective import chosen
from tokenpo.engines.trl.updates import ROW
from trl_support import frozen
from trl_support.both_run import Both, distance
from trl_support.frozen_run import built

THEIRS = "theirs_"
reported = frozen.reported


class Beside(Both):
    """Before a micro-batch is learned from: TRL's own loss of it, and ours."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """Ours, and beside it what TRL makes of the same rollouts."""
        found = super()._generate_and_score_completions(inputs)
        self.batches -= 1
        theirs = GRPOTrainer._generate_and_score_completions(self, inputs)
        return found | {f"{THEIRS}{name}": x for name, x in theirs.items()}

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        metrics = self._metrics["train"]
        before = {name: len(values) for name, values in metrics.items()}
        loss = super()._compute_loss(model, inputs)
        grown = {name: values[before.get(name, 0) :] for name, values in metrics.items()}
        # TRL's own number, then ours.
        self.apart[-1]["metrics"] = {name: values for name, values in grown.items() if len(values) == 2}
        return loss

    def _micro(self, model: Any, inputs: Any) -> dict[str, Any]:
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
        found = self.gradient(value)
        record = {
            "loss": [float(value), float(theirs)],
            "gradient": distance(found, expected),
            "credit": float(credited.abs().max()),
            "advantage": float(credit.advantage.where(mask, 0.0).abs().max()),
            "empty": int((~mask.any(1)).sum()),
        }
        if "importance_sampling_ratio" in given:
            # Dropped, or at a bound, as several tokens are.
            weights = given["importance_sampling_ratio"].expand(len(mask), width)[mask[:, :width]]
            record["bounded"] = int((weights == 0).sum() + (weights.unique(return_counts=True)[1] > 1).sum())
        if ours.batch is not None:
            record["moved"] = float((ours.batch.policy.logprob - rollouts.old_logprob).abs()[mask].max())
            if rollouts.ref_logprob is not None:
                record["away"] = float((ours.batch.policy.logprob - rollouts.ref_logprob).abs()[mask].max())
        return record


def near(batch: int, row: int) -> list[float]:
    """What the engine that sampled says of a response: about what the model says, over and under."""
    return [x - 1.5 for x in reported(batch, row)]


def run(model: str, case: dict[str, Any], out: Path) -> None:
    more: dict[str, Any] = {}
    if case.get("served"):
        # TRL would start vLLM; here the rollout_func says what it would have reported.
        asked = TokenPOConfig("unused", use_cpu=True, bf16=False, use_vllm=True, **case["settings"])
        more["method"] = chosen(asked, case["method"], own_rollouts=False)
    trainer = built(Beside, model, case, out / case["name"], **more)
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
    trainer.apart = []
    trainer.train()
    rank = trainer.accelerator.process_index
    (out / f"{case['name']}-rank{rank}.json").write_text(json.dumps(trainer.apart))


if __name__ == "__main__":
    frozen.reported = near
    for case in json.loads(Path(sys.argv[2]).read_text()):
        run(sys.argv[1], case, Path(sys.argv[3]))
