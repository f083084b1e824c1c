"""Update directions of many methods at a checkpoint of a run, on shared rollouts, and the gradient of the reward.

A direction is −∂loss/∂weights of one update, as one vector. Several methods share one forward pass of a batch; the
gradient of each loss in log-probabilities and entropies is then taken back to the weights, one method at a time.

Axes: R replicates, K batches of each, D trained weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError, Unsupported
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.ops.kl import k3
from ...core.seeds import keyed_seed
from ...core.types import Policy, Rollouts
from ...methods.rloo import LeaveOneOut
from ...models import Sampling
from ...recipe.engines import EMBEDDED
from ...runs import checkpoint
from ...runs.directory import require_engine, resumed
from ...runs.records import Tracer
from ...runs.rollouts.draw import Draw, draw
from ...runs.rollouts.experience import facts
from .loop import build_engine, with_optional_inputs
from .rollout import collect
from .updates import Prompts, Trainer, improve, ratio_check

REPLICATES = 8  # R; standard errors are over replicates
AT_ONCE = 4  # methods whose directions are in memory at once
PIECE = 32  # problems drawn at once for the gradient of the reward
UNSHARED = frozenset({"gain", "baseline", "role"})  # inputs that shared rollouts lack
FAR = 0.2  # distance of a ratio from 1, in `Moved`


@dataclass(frozen=True)
class Moved:
    """Distance of the policy from the sampling policy, over the tokens of the shared rollouts."""

    kl: float  # nats per token, KL(old policy || new policy) by k3
    far: float  # share of the tokens whose ratio differs from 1 by more than `FAR`


class AtCheckpoint:
    """A checkpoint of a run, rollouts sampled there, and the updates that the run would make next.

    Args:
        run: directory of a run of the embedded engine; nothing in it is changed.
        needs: inputs of the objectives that will be evaluated.
        step: step of the checkpoint; None is the newest.
        batches: number of shared batches, each as large as a minibatch of the run; a multiple of R.
        rollouts: number of rollouts for the gradient of the reward; a multiple of R groups.
    """

    def __init__(self, run: Path, needs: frozenset[str], step: int | None, batches: int, rollouts: int) -> None:
        for name in sorted(needs & UNSHARED):
            raise Unsupported(
                f"a method needs {name}, for which the embedded engine draws and scores nothing here, as all methods "
                f"share their rollouts: leave out methods that read {name}"
            )
        if "teacher_divergence" in needs:
            raise Unsupported(
                "a method needs teacher_divergence, and here a teacher of the embedded engine scores sampled tokens "
                "alone: leave out methods that compare whole distributions"
            )
        require_engine(run, EMBEDDED)
        plan, _ = resumed(run, None)
        if "value" in needs and plan.objective.critic is None:
            raise Unsupported(
                f"a method needs value, and this run of the embedded engine trains no critic, as {plan.objective.name} "
                "reads no value: leave out methods that read value, or take a run of such a method"
            )
        config = plan.config
        if plan.objective.drafts is not None:
            raise Unsupported(
                f"{plan.objective.name} puts drafts into its prompts, and here the embedded engine samples none: take "
                "a run without drafts"
            )
        self.group = group = config.rollout.group_size
        if group < 2:
            raise TokenPOError(f"{run} has groups of one response: a gradient of the reward takes 2 or more of each")
        for name, given, least in (("batches", batches, REPLICATES), ("rollouts", rollouts, REPLICATES * group)):
            if given < least or given % least:
                raise TokenPOError(
                    f"{name} is {given}: give a multiple of {least}, as {REPLICATES} replicates share it"
                )
        self._batches, self._problems = batches // REPLICATES, rollouts // (REPLICATES * group)
        self.run, self.engine, self._needs = run, build_engine(plan, needs), needs
        self.trainer = Trainer.of(config, self.engine.lm, self.engine.objective)
        path = checkpoint.newest(run)[0] if step is None else checkpoint.of_step(run, step)
        progress = checkpoint.progress_of(path)
        checkpoint.restore(path, *self.trainer.trained)
        if progress.learner:  # none was saved before the first step
            self.trainer.learner.load_state_dict(progress.learner)
        self.step, self.objective = progress.step, self.engine.objective
        self._forward = dataclasses.replace(self.trainer.forward, drift=True, entropy_grad=True)
        engine, rule = self.engine, self.trainer.rule()
        self._next = collect(config, engine.lm, engine.task, progress.cursor, rule, self.objective)
        self._groups = max(1, config.rollout.prompts // config.train.minibatches)

    def about(self) -> dict[str, Any]:
        """The checkpoint and the sample sizes, for a file."""
        return {
            "step": self.step, "weights": checkpoint.weights(self.run, self.step),
            "replicates": REPLICATES, "batches": REPLICATES * self._batches,
            "rollouts": REPLICATES * self._problems * self.group, "batch": self._groups * self.group,
            "group": self.group,
        }  # fmt: skip

    def close(self) -> None:
        """Closes the task, which may hold processes."""
        self.engine.task.close()

    def rollouts(self) -> list[list[tuple[Rollouts, Prompts]]]:
        """[R][K] batches sampled from the current policy, with their prompts and all inputs in `needs`."""
        replicates = []
        for replicate in range(REPLICATES):
            count = self._batches * self._groups
            drawn = self._draw(self._next.cursor + replicate * count, count)
            whole = with_optional_inputs(self.engine, self.trainer.forward, facts(drawn), drawn, self._needs)
            rows = torch.arange(len(whole)).view(self._batches, -1)
            replicates.append([(whole.rows(part), drawn.prompts) for part in rows])
        return replicates

    def gradients(self) -> Iterator[tuple[Tensor, float]]:
        """Yields R pairs of the gradient [D] of the mean reward (REINFORCE, leave-one-out baseline) and that reward.

        The gradient is unbiased; its problems are not those of `rollouts` or of another replicate.
        """
        start = self._next.cursor + REPLICATES * self._batches * self._groups
        for replicate in range(REPLICATES):
            yield self._gradient(start + replicate * self._problems)

    def directions(
        self, objectives: Sequence[Objective], shared: Sequence[Sequence[tuple[Rollouts, Prompts]]], *, moved: bool
    ) -> Iterator[Tensor]:
        """Yields the directions [R, K, D] of each objective; `moved`: the policy is no longer the one that sampled."""
        for first in range(0, len(objectives), AT_ONCE):
            chunk = objectives[first : first + AT_ONCE]
            size = sum(x.numel() for x in self.trainer.parameters)
            out = torch.empty(len(chunk), len(shared), len(shared[0]), size)
            for r, batches in enumerate(shared):
                for k, (rollouts, prompts) in enumerate(batches):
                    seen = self._forward.policy(rollouts, prompts)
                    for place, objective in enumerate(chunk):
                        out[place, r, k] = self._direction(objective, rollouts, seen, moved)
            yield from out

    def move(self, minibatches: int) -> None:
        """Makes the run's next `minibatches` updates, all on its next rollout batch, in several epochs if needed."""
        trainer, experience = self.trainer, self._next
        if experience.kept is None or experience.rollouts is None:
            raise TokenPOError("the run's next rollout batch has no group to learn from: take another --step")
        forward, kept = trainer.forward, experience.kept
        rollouts = with_optional_inputs(self.engine, forward, experience.rollouts, kept)
        step = trainer.learner.begin(rollouts, drawn=experience.everything())
        passes = len(self.objective.split()) * trainer.options.minibatches
        options = trainer.options.model_copy(update={"epochs": math.ceil(minibatches / passes)})
        again = dataclasses.replace(trainer, options=options)
        taught = self.engine.taught(forward, step.rollouts, kept)
        improve(again, step, kept.prompts, Tracer(0), most=minibatches, taught=taught)

    @torch.no_grad()
    def distance(self, shared: Iterable[Sequence[tuple[Rollouts, Prompts]]]) -> Moved:
        """The distance from the policy that sampled the rollouts to the current one."""
        change = torch.cat([
            (self._forward.policy(rollouts, prompts).logprob - rollouts.old_logprob)[rollouts.mask].double()
            for batches in shared for rollouts, prompts in batches
        ])  # fmt: skip
        far = (change.exp() - 1).abs() > FAR
        return Moved(float(k3(change).mean()), float(far.double().mean()))

    def _draw(self, start: int, count: int) -> Draw:
        """Responses to some training problems, with other random numbers than the run's."""
        config, engine = self.engine.config, self.engine
        seed = keyed_seed(config.seed, "directions")
        sampling = Sampling(config.rollout.max_new_tokens, config.rollout.temperature, seed)
        autocast = config.train.autocast
        return draw(engine.lm, engine.task, "train", start, count, self.group, sampling, autocast=autocast)

    def _gradient(self, start: int) -> tuple[Tensor, float]:
        # Zero if all groups have equal rewards.
        end, total, reward = start + self._problems, self._flat([None] * len(self.trainer.parameters)), 0.0
        for at in range(start, end, PIECE):
            drawn = self._draw(at, min(PIECE, end - at))
            rollouts = facts(drawn)
            reward += float(rollouts.reward.sum())
            credit = LeaveOneOut()(rollouts, torch.zeros_like(rollouts.reward))[:, 0]
            for part in self._forward.splits(rollouts, drawn.prompts, credit.nonzero()[:, 0]):
                logprob = self._forward.policy(rollouts.rows(part), drawn.prompts).logprob
                value = (credit[part, None] * logprob).sum() / (self._problems * self.group)
                total = total + self._flat(torch.autograd.grad(value, self.trainer.parameters, allow_unused=True))
        return total, reward / (self._problems * self.group)

    def _direction(self, objective: Objective, rollouts: Rollouts, scored: Policy, moved: bool) -> Tensor:
        """[D] direction of a batch: all passes of the objective at the current weights."""
        config = self.engine.config
        check = None if moved else ratio_check(config.train, self.engine.lm)
        learner = Learner(objective, length=config.rollout.max_new_tokens, seed=config.seed, ratio=check)
        ends = {"logprob": scored.logprob, "entropy": scored.need("entropy")}
        leaves = {name: x.detach() for name, x in ends.items()}
        leaves["logprob"].requires_grad_()
        leaves["entropy"].requires_grad_(objective.entropy_gradient)
        policy = Policy(**leaves, entropy_drift=scored.entropy_drift)
        for update in learner.begin(rollouts).updates():
            update.observe(policy)
            loss = update.evaluate(policy)[1].value
            learner.check(update)
            if loss.requires_grad:
                loss.backward()
        pairs = [(ends[name], -x.grad) for name, x in leaves.items() if x.grad is not None]
        if not pairs:
            return torch.zeros(())
        outputs, gradients = zip(*pairs, strict=True)
        options = {"retain_graph": True, "allow_unused": True}
        return self._flat(torch.autograd.grad(outputs, self.trainer.parameters, gradients, **options))

    def _flat(self, grads: Sequence[Tensor | None]) -> Tensor:
        """[D] on the CPU; zero for a weight without gradient."""
        pairs = zip(grads, self.trainer.parameters, strict=True)
        return torch.cat([(torch.zeros_like(x) if g is None else g).flatten().float().cpu() for g, x in pairs])
