"""Each engine's loss path on frozen rollouts of a tiny model: the numbers of docs/parity.md.

The embedded engine is beside the plain objective, and TRL's and verl's loss paths beside the embedded engine's.

All of it on the frozen rollouts of `trl_support.frozen` and a random model of a few thousand parameters, through what
the tests of the two adapters use. TRL's old policy is the model's, and its steps move the weights; for the others three
sets of weights stand for reference, old and current policy.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad

import tokenpo
from hosts.verl.support import batches
from hosts.verl.support.composed import composed
from random_models import random_qwen
from tokenpo.base.errors import Unsupported
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.trial import Inputs
from tokenpo.core.types import Rollouts
from tokenpo.hosts.trl.objective import chosen
from tokenpo.hosts.verl.configure import configure
from tokenpo.train.recipe.config import Config
from tokenpo.train.recipe.objective import require_here
from trl_support import beside, frozen
from trl_support.reference import Reference, apart
from trl_support.small import config

# Four groups, two optimiser steps on them, twice.
SCHEDULE = beside.schedule(4, 2, chunks=4, iterations=2)
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
    """

    embedded: Gap | None
    trl: Gap | None
    verl_1: Gap | None
    verl_2: Gap | None


def measured(names: Sequence[str], *, timeout: float) -> dict[str, Measured]:
    """Every method in every engine.

    Args:
        timeout: seconds that TRL may take for all of them.

    Raises:
        AssertionError: the policy of a step has not moved, or a gradient is nothing: there would be nothing to compare.
    """
    said = {name: _refused(name) for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        model = random_qwen(Path(scratch) / "model")
        here = [name for name in names if not _sentences(_trl, name, reported=True)]
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
            )
    return found


def _case(name: str) -> dict[str, Any]:
    return beside.case(name, "parity", SCHEDULE, list(REWARDS.get(name, PLAIN)))


def _trl(name: str, *, reported: bool) -> None:
    options = beside.OPTIONS.get(name, {}) if reported else {}
    passes = len(tokenpo.method(name).split())
    args = config(Path("unused"), method=name, method_options=options, num_iterations=passes)
    chosen(args, None, {"rollout_func": print} if reported else {})


def _refused(name: str) -> dict[str, list[str]]:
    objective = tokenpo.method(name)
    # A whole distribution is not among the frozen facts.
    taught = None if objective.teacher_beta is None else Config()
    said = {
        "embedded": _sentences(require_here, objective, taught),
        "verl": _sentences(lambda: configure(composed(f"+algorithm.tokenpo.method={name}"))),
    }
    return {engine: sentences for engine, sentences in said.items() if sentences}


def _sentences(ask: Callable[..., object], *given: Any, **named: Any) -> list[str]:
    """The sentences with which an engine refuses; none where it takes the method."""
    try:
        ask(*given, **named)
    except Unsupported as error:
        return [*error.args]
    return []


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
        "mask reward group old_logprob old_entropy rollout_logprob ref_logprob token_ids value teacher_logprob "
        "temperature"
    ).split()
    facts = {name: getattr(rollouts, name) for name in names}
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


def plainly(
    model: Any,
    objective: tokenpo.Objective,
    rollouts: tokenpo.Rollouts,
    prompts: Sequence[Sequence[int]],
    credit: tokenpo.Credit,
    length: int,
    generator: torch.Generator,
) -> tuple[float, dict[str, torch.Tensor]]:
    """The objective on the whole step at once, and its gradient by the name of the parameter.

    Args:
        prompts: token ids of each group's prompt.
        length: the longest response that was allowed.
        generator: for what objectives of batch scope draw.
    """
    assert rollouts.token_ids is not None
    width, views = rollouts.mask.shape[1], []
    for row, (group, ids) in enumerate(zip(rollouts.group.tolist(), rollouts.token_ids, strict=True)):
        said = ids[: int(rollouts.mask[row].sum())]
        prompt = torch.tensor(prompts[group])
        logits = model(input_ids=torch.cat([prompt, said])[None]).logits[0, len(prompt) - 1 : -1]
        log_p = logits.float().log_softmax(-1)  # every token of these rollouts was sampled at 1
        entropy = -(log_p.exp() * log_p).sum(-1)
        drift = ((2 * log_p).exp() * (log_p + entropy[:, None])).sum(-1)
        found = log_p.gather(1, said[:, None])[:, 0], entropy, drift
        views.append([pad(x, (0, width - len(said))) for x in found])
    logprob, entropy, drift = (torch.stack(view) for view in zip(*views, strict=True))
    if not objective.entropy_gradient:
        entropy = entropy.detach()
    batch = tokenpo.Batch(rollouts, credit, tokenpo.Policy(logprob, entropy, drift.detach()))
    if objective.scope == "batch":
        batch = objective.observe(batch, generator)
    loss = objective.loss(batch, tokenpo.Totals.of(rollouts, length)).value
    names, parameters = zip(*model.named_parameters(), strict=True)
    return float(loss.detach()), dict(
        zip(names, torch.autograd.grad(loss, parameters, materialize_grads=True), strict=True)
    )
