"""Distillation losses in worlds where everything can be computed: their expected update beside four true gradients.

A student p and a teacher q are tables over the states of a small world, of which all responses are listed. The
expectation of an update over the student's own responses, and its noise, are then finite sums in float64. A "form" is a
loss, summed over the tokens of a response: an `Objective`, or a formula over `Tokens`.

Axes: N responses, T tokens of a response (padded), S states, V tokens of the vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenpo.core.head.token_stats import stats_from_logits
from tokenpo.core.learner import Learner
from tokenpo.core.objective import Objective
from tokenpo.core.seeds import keyed_generator
from tokenpo.lab.exact.sampling import Walk, rollouts, view
from tokenpo.lab.exact.truth import truth
from tokenpo.lab.exact.world import State, World

DEPTH, VOCABULARY, KEPT = 4, 4, 2  # longest response; tokens, of which the last ends a response; k of top-k
SPREAD = 1.0  # standard deviation of the student's logits from 0, and of the teacher's from the student's
STEPS, RATE = 100, 2.0  # number and size of training steps
NONE = 1e-10  # an expected update that is relatively shorter than this is rounding


@dataclass(frozen=True, eq=False)
class Taught:
    """A world with a teacher's logits [S, V]; the student begins as the world's initial policy."""

    world: World
    teacher: Tensor


@functools.cache
def taught(seed: int) -> Taught:
    """A random student, teacher and reward; next-token distributions depend on the position and the last token."""
    draws = keyed_generator(seed, "distillation")
    places = [(t, last) for t in range(DEPTH) for last in range(VOCABULARY - 1 if t else 1)]
    logits, moved = SPREAD * torch.randn(2, len(places), VOCABULARY, dtype=torch.float64, generator=draws)
    right = torch.randint(2, logits.shape, generator=draws).double().tolist()
    states = tuple(
        State(f"{t}/{last}", tuple(p), (*(f"{t + 1}/{v}" if t + 1 < DEPTH else x for v, x in enumerate(r[:-1])), r[-1]))
        for (t, last), p, r in zip(places, logits.softmax(-1).tolist(), right, strict=True)
    )
    world = World(f"taught{seed}", "", None, "Student and teacher differ at random.", states, {"0/0": 1.0})
    return Taught(world, world.initial + moved)


@functools.lru_cache(maxsize=64)
def responses(world: World) -> Walk:
    """Every response of a world with one prompt, once, each in its own group."""
    paths: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((int(world.starts[0]),), ())]
    ended = paths[:0]
    for states, tokens in paths:  # the loop itself appends to `paths`
        for token, state in enumerate(world.next[states[-1]].tolist()):
            found = ended if state < 0 else paths
            found.append((states if state < 0 else (*states, state), (*tokens, token)))
    states, tokens = torch.zeros(2, len(ended), world.length, dtype=torch.long)
    mask = torch.zeros(states.shape, dtype=torch.bool)
    for n, (s, v) in enumerate(ended):
        states[n, : len(s)], tokens[n, : len(v)], mask[n, : len(v)] = torch.tensor(s), torch.tensor(v), True
    reward = torch.where(mask, world.reward[states, tokens], 0.0).sum(1)
    return Walk(states, tokens, mask, reward, torch.arange(len(ended)))


@dataclass(frozen=True, eq=False)
class Tokens:
    """Log-probabilities of the student p, which carry the graph, and of the teacher q.

    Args:
        logp, logq: [N, T, V], of every token.
        lp, lq: [N, T], of the sampled tokens.
        mask: [N, T] bool.
    """

    logp: Tensor
    logq: Tensor
    lp: Tensor
    lq: Tensor
    mask: Tensor

    @property
    def x(self) -> Tensor:
        """[N, T] log q − log p of the sampled token, without gradient; 0 after the end."""
        return torch.where(self.mask, self.lq - self.lp, 0.0).detach()

    def top(self, of: Tensor) -> Tensor:
        """[N, T, V] bool, the `KEPT` likeliest tokens under `of` [N, T, V]."""
        return of >= of.topk(KEPT).values[..., -1:]


Form = Objective | Callable[[Tokens], Tensor]


def updates(at: Taught, form: Form, logits: Tensor | None = None, size: int = 1) -> tuple[Tensor, Tensor]:
    """(probability [M], −∂loss/∂logits [M, S·V], mean over its responses) of each of the M possible groups.

    Args:
        logits: [S, V] of the student; None takes the world's initial policy.
        size: responses in a group.
    """
    logits, walked = at.world.initial if logits is None else logits.detach(), responses(at.world)
    chance = torch.where(walked.mask, walked.taken(logits.log_softmax(-1)), 0.0).sum(1).exp()
    if size > 1:
        several = torch.tensor([*itertools.product(range(len(chance)), repeat=size)])
        walked, chance = walked.rows(several.flatten()), chance[several].prod(1)
        walked = dataclasses.replace(walked, group=torch.arange(len(several)).repeat_interleave(size))
    # Every response gets its own copy of the table, so that one backward pass gives each response's gradient.
    rows = len(walked.reward)
    tables = logits.repeat(rows, 1).requires_grad_()
    own = dataclasses.replace(walked, states=walked.states + len(logits) * torch.arange(rows)[:, None])
    (gradient,) = torch.autograd.grad(_loss(at, form, walked, own, logits, tables), tables)
    return chance, -gradient.view(-1, size, logits.numel()).mean(1)


def _loss(at: Taught, form: Form, walked: Walk, own: Walk, logits: Tensor, tables: Tensor) -> Tensor:
    """The loss, summed over the tokens of all rows."""
    logq = at.teacher.log_softmax(-1)
    lq = walked.taken(logq)
    if not isinstance(form, Objective):
        logp = tables.log_softmax(-1)
        return form(Tokens(logp[own.states], logq[walked.states], own.taken(logp), lq, walked.mask))[walked.mask].sum()
    facts = dataclasses.replace(rollouts(at.world, walked, logits, form.needs), teacher_logprob=lq)
    (update,) = Learner(form, length=at.world.length).begin(facts).updates()
    rows = own.rows(update.rows)
    policy = view(tables, rows, form.needs - {"teacher_divergence"})
    if form.teacher_beta is not None:
        logits, teacher = tables[rows.states].flatten(0, 1), at.teacher[walked.states[update.rows]].flatten(0, 1)
        stats = stats_from_logits(logits, rows.tokens.flatten(), teacher=teacher, beta=form.teacher_beta)
        policy = dataclasses.replace(policy, teacher_divergence=stats[-1].view_as(rows.states))  # pyright: ignore
    return update.evaluate(policy)[1].value * walked.mask.sum()


@dataclass(frozen=True)
class Found:
    """Results of a form in a world.

    Args:
        cosine: between its expected update and each of `ways`; NaN if the expected update is 0.
        bias: distance of its expected update from each of `ways`, relative to the length of that way.
        needed: number of responses at which signal and noise of their mean update are equal; inf if the expected update
            is 0.
        left: reverse KL of whole responses after training on expected updates, relative to the start.
    """

    cosine: Mapping[str, float]
    bias: Mapping[str, float]
    needed: float
    left: float


def judge(at: Taught, form: Form) -> Found:
    """Compares the expected update with all of `ways`, and follows it."""
    start = at.world.initial
    (chance, each), down = updates(at, form), ways(at, start)
    mean, logits = chance @ each, start
    noise = float((chance @ (each - mean).square().sum(1)) / mean.square().sum())
    none = float(mean.norm()) < NONE * float(down["reverse"].norm())
    for _ in range(STEPS):  # plain steps along the expected update
        chance_now, each_now = updates(at, form, logits)
        logits = logits + RATE * (chance_now @ each_now).view_as(logits)
    return Found(
        {name: math.nan if none else float(mean @ way / mean.norm() / way.norm()) for name, way in down.items()},
        {name: float((mean - way).norm() / way.norm()) for name, way in down.items()},
        math.inf if none else noise, float(apart(at, logits) / apart(at, start)),
    )  # fmt: skip


def apart(at: Taught, logits: Tensor) -> Tensor:
    """KL(p ‖ q) of whole responses, nats."""
    return truth(at.world, logits).visits @ reverse(logits.log_softmax(-1), at.teacher.log_softmax(-1))


def ways(at: Taught, logits: Tensor) -> dict[str, Tensor]:
    """Descent directions −∂D/∂logits [S·V], by the name of the divergence D.

    "sequence" is the reverse KL of whole responses. The others are divergences of the next token at the visited states,
    as if the student did not choose these states.
    """
    logits = logits.detach().requires_grad_()
    p, q = logits.log_softmax(-1), at.teacher.log_softmax(-1)
    visits = truth(at.world, logits).visits.detach()
    values = {"sequence": apart(at, logits)}
    values |= {name: visits @ kind(p, q) for name, kind in {"reverse": reverse, "forward": forward, "jsd": jsd}.items()}
    return {name: -torch.autograd.grad(x, logits, retain_graph=True)[0].flatten() for name, x in values.items()}


def reverse(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) of log-probabilities over the last axis."""
    return (p.exp() * (p - q)).sum(-1)


def forward(p: Tensor, q: Tensor) -> Tensor:
    """KL(q ‖ p)."""
    return reverse(q, p)


def jsd(p: Tensor, q: Tensor) -> Tensor:
    """½ KL(q ‖ m) + ½ KL(p ‖ m), m = ½ q + ½ p."""
    m = torch.logaddexp(p, q) - math.log(2)
    return (reverse(q, m) + reverse(p, m)) / 2
