"""A trainer that changes its method every other step, so that one start of Ray serves every method.

The first step of a turn makes one optimiser step on the whole rollout batch, where the policy is the one that sampled:
the objective is evaluated in the driver, and the workers must report the same loss. The second step makes two.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import torch
from verl.trainer.ppo.v1.trainer_base import register_trainer

import tokenpo
from hosts.verl.support.run import CHOSEN, LOG, METHODS
from tokenpo.hosts.verl.trainer import TokenPOTrainer, learner_of


@register_trainer("tokenpo_turns")
class Turns(TokenPOTrainer):
    def on_step_begin(self) -> None:
        turn, second = divmod(self.global_steps - 1, 2)
        self.name = os.environ.get(CHOSEN, ",".join(METHODS)).split(",")[turn]
        if not second:
            self.tokenpo = dataclasses.replace(self.tokenpo, objective=tokenpo.method(self.name))
            self.learner = learner_of(self.tokenpo, self.config)
            self.send_loss()
        whole = self.config.data.train_batch_size
        self.config.actor_rollout_ref.actor.ppo_mini_batch_size = whole // 2 if second else whole
        self.expected: float | None = None
        super().on_step_begin()

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        whole = self.config.actor_rollout_ref.actor.ppo_mini_batch_size == self.config.data.train_batch_size
        if whole and not self.objective.passes:
            self.expected = self._directly()
        return super()._update_actor(batch, metrics)

    def _directly(self) -> float:
        step = self.learner.step
        assert step is not None
        facts = step.rollouts
        update = step.update(torch.arange(len(facts.mask)))
        policy = tokenpo.Policy(logprob=facts.old_logprob, entropy=facts.old_entropy)
        update.observe(policy)
        return float(update.evaluate(policy)[1].value)

    def _compute_metrics(self, batch: Any, metrics: dict, *rest: Any, **named: Any) -> None:
        super()._compute_metrics(batch, metrics, *rest, **named)
        mine = {"step": self.global_steps, "method": self.name, "expected": self.expected}
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) or hasattr(v, "item")}
        folder = Path(self.config.trainer.default_local_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a") as stream:
            stream.write(json.dumps({**numbers, **mine}) + "\n")
