"""The embedded engine beside the plain objective, and TRL's and verl's loss paths beside the embedded engine's.

All of it on the frozen rollouts of `trl_support.frozen` and a random model of a few thousand parameters, through what
the tests of the two adapters use. TRL's old policy is the model's, and its steps move the weights; for the others three
sets of weights stand for reference, old and current policy.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tokenpo
from engines.verl.support import batches
from engines.verl.support.composed import composed
from random_models import random_qwen
from tokenpo.base.errors import Unsupported
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.trial import Inputs
from tokenpo.core.types import Rollouts
from tokenpo.engines.trl import TokenPOConfig
from tokenpo.engines.trl.objective import chosen
from tokenpo.engines.verl.configure import configure
from tokenpo.recipe.config import Config
from tokenpo.recipe.objective import require_here
from trl_support import beside, frozen
from trl_support.reference import Reference, apart

from .plain import plainly

# Four groups, two optimiser steps on them, twice.
SCHEDULE = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2,
}  # fmt: skip
# Right and wrong; with lengths where a best response must be alone at the top.
PLAIN = ("sums",)
REWARDS = {"grpo_passk": ("sums", "lengths")}
SEED = 3
# Standard deviation of what is added to every weight: the policy moves far enough for clips and ratios to act.
MOVES = 0.05
# Rows of verl's rollout batch that it adds itself, for two ranks of ten rows.
PADDING = (0, 5, 6, 17)


@dataclass(frozen=True)
class Gap:
    """Differences relative to the loss and to the norm of the gradient."""

    loss: float
    gradient: float


@dataclass(frozen=True)
class Measured:
    """What is known of one method.

    Args:
        embedded, trl, verl_1, verl_2: its gap in each engine; None where it is refused.
        refused: engine -> the sentence of the refusal; of TRL also where only vLLM or a rollout_func is missing.
    """

    embedded: Gap | None
    trl: Gap | None
    verl_1: Gap | None
    verl_2: Gap | None
    refused: dict[str, str]


def measured(names: Sequence[str], *, timeout: float) -> dict[str, Measured]:
    """Every method in every engine.

    Args:
        timeout: seconds that TRL may take for all of them.

    Raises:
        AssertionError: the policy of a step has not moved, or a gradient is nothing: there would be nothing to compare.
    """
    said = _refused(names)
    with tempfile.TemporaryDirectory() as scratch:
        model = random_qwen(Path(scratch) / "model")
        here = [name for name in names if _trl(name, reported=True) is None]
        (Path(scratch) / "trl").mkdir()
        cases = {name: _case(name) for name in here}
        ran = beside.ran(model, Path(scratch) / "trl", list(cases.values()), 1, timeout=timeout)
        found = {}
        for name in names:
            verl = "verl" not in said[name]
            found[name] = Measured(
                embedded=None if "embedded" in said[name] else _embedded(model, name),
                trl=_of_steps(beside.compared(model, ran(cases[name]["name"]))) if name in cases else None,
                verl_1=_verl(model, name, 1) if verl else None,
                verl_2=_verl(model, name, 2) if verl else None,
                refused=said[name],
            )
    return found


def _case(name: str) -> dict[str, Any]:
    return beside.case(name, "parity", SCHEDULE, list(REWARDS.get(name, PLAIN)))


def _trl(name: str, *, reported: bool) -> str | None:
    """The sentence with which TRL's adapter refuses; None where it takes the method."""
    options = beside.OPTIONS.get(name, {}) if reported else {}
    args = TokenPOConfig("unused", method=name, method_options=options, use_cpu=True, bf16=False, report_to="none")
    try:
        chosen(args, None, own_rollouts=reported, reported=reported)
    except Unsupported as error:
        return str(error)
    return None


def _refused(names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for name in names:
        objective = tokenpo.method(name)
        try:
            # A whole distribution is not among the frozen facts.
            require_here(objective, None if objective.teacher_beta is None else Config())
        except Unsupported as error:
            found[name]["embedded"] = str(error)
        if sentence := _trl(name, reported=False):
            found[name]["TRL"] = sentence
        try:
            configure(composed(f"+algorithm.tokenpo.method={name}"))
        except Unsupported as error:
            found[name]["verl"] = str(error)
    return found


def _of_steps(steps: Sequence[beside.Compared]) -> Gap:
    """The largest of a run; the loss relative to its largest, since that of a step may be 0."""
    assert any(step.moved > 0.3 for step in steps)
    compared = [step for step in steps if step.norm > 1e-3]
    assert compared
    scale = max(abs(step.expected) for step in steps)
    loss = max(abs(step.loss - step.expected) for step in steps) / scale
    return Gap(loss, max(step.apart / step.norm for step in compared))


def _moved(weights: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: x + MOVES * torch.randn(x.shape, generator=generator) for name, x in weights.items()}


def _valued(rollouts: Rollouts) -> Rollouts:
    """With a critic's values and a teacher's log-probabilities, which differ from token to token."""
    return dataclasses.replace(rollouts, value=rollouts.old_logprob.exp(), teacher_logprob=1.5 * rollouts.old_logprob)


def _embedded(model: Path, name: str) -> Gap:
    """The embedded engine in micro-batches of three rows beside the objective called plainly, at the same weights."""
    case = beside.planned(_case(name), 1)
    objective = tokenpo.method(name, **case["options"])
    reference = Reference(model, objective, seed=SEED, longest=frozen.LONGEST, micro_rows=3)
    lm, groups = reference.lm, case["rows"] // frozen.GROUP
    old = _moved({f"weight/{n}": x.detach().clone() for n, x in lm.model.named_parameters()}, 1)
    now, state = _moved(old, 2), objective.start()
    for batch in range(2):
        # The first rollout batch is there for what is remembered of it.
        prompts = [lm.encode(text) for text in frozen.prompts()[batch * groups : (batch + 1) * groups]]
        rollouts = _valued(reference.scored(beside.facts(case, batch), prompts, old))
        credit, state = objective.prepare(rollouts, state), objective.after(state, rollouts)
    steps, passes = [], objective.split()
    for number, part in enumerate(passes):
        rows, share = list(range(case["rows"])), number / len(passes)
        loss, grads = reference.gradient(now, rows, number, share, rollouts, prompts, credit)
        ours = {n: x.clone() for n, x in grads.items()}
        draws = keyed_generator(SEED, "observe", number)
        expected, plain = plainly(lm.model, part, rollouts, prompts, credit, frozen.LONGEST, draws)
        steps.append(beside.Compared(loss, expected, *apart(ours, plain), reference.moved(rollouts, prompts)))
    return _of_steps(steps)


@functools.cache
def _inputs(model: Path, rewards: tuple[str, ...]) -> Inputs:
    """The frozen rollouts with three policies' views of them, float64."""
    case = beside.planned(beside.case("dppo_tv", "parity", SCHEDULE, list(rewards)), 1)
    reference = Reference(model, tokenpo.method("archer"), seed=SEED, longest=frozen.LONGEST)
    old = _moved({f"weight/{n}": x.detach().clone() for n, x in reference.lm.model.named_parameters()}, 1)
    prompts = [reference.lm.encode(text) for text in frozen.prompts()[: case["rows"] // frozen.GROUP]]
    rollouts = _valued(reference.scored(beside.facts(case, 0), prompts, old))
    current = reference.scored(beside.facts(case, 0), prompts, _moved(old, 2))
    names = (
        "mask",
        "reward",
        "group",
        "old_logprob",
        "old_entropy",
        "rollout_logprob",
        "ref_logprob",
        "token_ids",
        "value",
        "teacher_logprob",
    )
    facts = {name: getattr(rollouts, name) for name in (*names, "temperature")}
    policy = {"logprob": current.old_logprob, "entropy": current.old_entropy}
    return Inputs(facts, policy).map(lambda x: x.double() if x.is_floating_point() else x)


def _verl(model: Path, name: str, ranks: int) -> Gap:
    """verl's replacement loss on its own layout beside the objective on the same rollouts, in float64: the gradients to
    the log-probabilities and entropies of the tokens, which is where verl's engine takes over."""
    whole = batches.method(name, **beside.OPTIONS.get(name, {}))
    steps = []
    for part in whole.split():
        sample = batches.both(SEED, PADDING if ranks > 1 else (), _inputs(model, REWARDS.get(name, PLAIN)))
        expected = batches.directly(sample, part)
        ((value, _),) = batches.through_verl(sample, part, ranks=ranks, micro=3 if ranks > 1 else 16)
        theirs = {view: batches.gradient(sample, view) for view in ("logprob", "entropy")}
        ours = {"logprob": expected.gradient, "entropy": expected.entropy_gradient}
        moved = sample.inputs.policy["logprob"] - sample.inputs.rollouts["old_logprob"]
        furthest = float(moved[sample.inputs.rollouts["mask"]].abs().max())
        steps.append(beside.Compared(value, float(expected.loss.value), *apart(theirs, ours), furthest))
    return _of_steps(steps)
