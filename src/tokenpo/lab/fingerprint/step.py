"""One designed optimiser step, in which the facts of one token vary and everything else stands still.

The step holds eight groups of eight responses. The token is the same in two of them: in a right response (first row of
the first group) and in a wrong one (first row of the second). The push on it is the gradient of the method's loss:

    push = −∂L/∂lp · tokens of the step

GRPO's at ratio 1, usual length and a group half right is about its advantage, ±0.94. The denominators are those of a
step of this many responses with `LENGTH` tokens on average, which is Dr. GRPO's constant here, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.trial import differentiate, example
from ...core.types import Batch, Credit, Policy, Rollouts, Totals

GROUPS, SIZE, WIDTH, LENGTH = 8, 8, 32, 16
ROWS = GROUPS * SIZE
FOCAL = (0, SIZE)  # rows of the token: right, wrong
FIRST_ENTROPY = 1.5  # nats: of the run's first batch; by now the policy is surer
SURPRISE = 0.001  # probability of one token in every other response that is right
DRAWS = 32  # a method that draws tokens at random shows the mean over as many seeds
TOTALS = Totals(tokens=float(ROWS * LENGTH), sequences=float(ROWS), length=float(LENGTH))


@dataclass(frozen=True)
class Facts:
    """The token and its surroundings; a fact stands at its default while another varies.

    Args:
        ratio: p / p_old of the token.
        probability: p_old of the token.
        entropy: of the old policy at the token, nats.
        entropy_change: the current policy's entropy there less the old one's, nats.
        response_ratio: p / p_old of every other token of its response.
        response_entropy: mean entropy of those tokens, nats.
        position: of the token, from 1.
        length: tokens of its response.
        accuracy: share of right responses in its group, in eighths.
        batch_accuracy: share of right responses in every other group, in eighths.
        batch_entropy: mean entropy of the other responses, nats; their tokens are as improbable as that says.
        earlier_accuracy: share of right responses in the batch before, in eighths, for methods with a memory.
        ref_ratio: p_ref / p_old of the token.
        rollout_ratio: p_old / p of the sampling engine, for the token.
        prompt_logprob: mean log-probability of a token of the prompt, nats.
        influence: of the token; those of the others have mean 0 and deviation 1.
        divergence: of the group's next-token distributions at the token's position; 0.5 on average elsewhere.
        other: field -> value of any further input [N, T] of floating point, at the token.
    """

    ratio: float = 1.0
    probability: float = 0.1
    entropy: float = 0.35
    entropy_change: float = 0.0
    response_ratio: float = 1.0
    response_entropy: float = 0.5
    position: float = 9
    length: float = LENGTH
    accuracy: float = 0.5
    batch_accuracy: float = 0.5
    batch_entropy: float = 0.5
    earlier_accuracy: float = 0.5
    ref_ratio: float = 1.0
    rollout_ratio: float = 1.0
    prompt_logprob: float = -1.0
    influence: float = 1.0
    divergence: float = 0.5
    other: tuple[tuple[str, float], ...] = ()


def pushes(objective: Any, facts: Sequence[Facts], seeds: Sequence[int] | None = None) -> Tensor:
    """[P, 2, 2]: for each of the facts, in the right and the wrong response, the push on the token's log-probability
    and on its entropy; NaN where the group's accuracy leaves no such response.

    `seeds` are those of a method that draws tokens at random, whose mean it is; None takes `DRAWS` of them.
    """
    if seeds is None:
        seeds = range(DRAWS if getattr(objective, "draws", False) else 1)
    drawn = {f: dataclasses.replace(f, ratio=1.0, response_ratio=1.0, entropy_change=0.0) for f in facts}
    found: dict[Facts, Tensor] = {}
    for one in dict.fromkeys(drawn.values()):
        alike = [f for f in facts if drawn[f] == one]
        found |= dict(zip(alike, _pushes(objective, one, alike, seeds), strict=True))
    return torch.stack([found[f] for f in facts])


def _pushes(objective: Any, drawn: Facts, facts: Sequence[Facts], seeds: Sequence[int]) -> Tensor:
    fields = _fields(drawn)
    rollouts = Rollouts.of(fields, objective.needs)
    credit = objective.prepare(rollouts, *_state(objective, drawn))
    policies = [_policy(objective, fields, one) for one in facts]
    focal = torch.tensor(FOCAL)
    if getattr(objective, "scope", "row") == "batch":
        steps = [(policy, torch.Generator().manual_seed(seed)) for policy in policies for seed in seeds]
        batches = [objective.observe(Batch(rollouts, credit, policy), draw).rows(focal) for policy, draw in steps]
    else:
        batches = [Batch(rollouts.rows(focal), credit.rows(focal), policy.rows(focal)) for policy in policies]
    # The rows of several steps one below the other: they stand alone once the credit holds all that they share.
    credit, given = Credit.joined([batch.credit for batch in batches]), [vars(batch.policy) for batch in batches]
    policy = Policy(**{name: torch.cat([p[name] for p in given]) for name, x in given[0].items() if x is not None})
    found = differentiate(objective, rollouts.rows(focal.repeat(len(batches))), credit, policy, TOTALS)
    slopes = -torch.stack([found.gradient, found.entropy_gradient], -1) * TOTALS.tokens
    pushed = slopes.view(len(facts), -1, 2, WIDTH, 2).mean(1)[:, :, round(drawn.position) - 1]
    possible = torch.tensor([drawn.accuracy > 0.5 / SIZE, drawn.accuracy < 1 - 0.5 / SIZE])
    return torch.where(possible[:, None], pushed, torch.nan)


def _state(objective: Any, facts: Facts) -> tuple[Any, ...]:
    """What the memories hold after a batch of `FIRST_ENTROPY` and one of this, both `earlier_accuracy` right."""
    if not getattr(objective, "memories", ()):
        return ()
    row, state = torch.arange(ROWS), objective.start()
    for entropy in (FIRST_ENTROPY, facts.batch_entropy):
        reward = _right(row % SIZE, row // SIZE, facts.earlier_accuracy)
        fields = {**_fields(Facts(batch_entropy=entropy)), "reward": reward}
        state = objective.after(state, Rollouts.of(fields, objective.needs))
    return (state,)


def _policy(objective: Any, fields: Mapping[str, Tensor], facts: Facts) -> Policy:
    """The current policy: it has moved at the token, and at the others of its response."""
    focal, column = list(FOCAL), round(facts.position) - 1
    logprob = fields["old_logprob"].clone()
    logprob[focal] += math.log(facts.response_ratio)
    logprob[focal, column] = min(math.log(facts.probability) + math.log(facts.ratio), 0.0)
    entropy = fields["old_entropy"].clone()
    entropy[focal, column] = max(facts.entropy + facts.entropy_change, 0.0)
    known = {**fields, "logprob": logprob.clamp(max=0.0), "entropy": entropy}
    return Policy.of(known, objective.needs)


@functools.lru_cache(maxsize=256)
def _fields(facts: Facts) -> Mapping[str, Tensor]:
    """Every input by name; one that is not designed here is `example`'s, as a new field of `Rollouts` would be."""
    row, place = torch.arange(ROWS), torch.arange(ROWS) % SIZE
    group, column = row // SIZE, round(facts.position) - 1
    focal = list(FOCAL)
    length = LENGTH + 2 * (row * 5 % SIZE) - (SIZE - 1)
    length[focal] = round(facts.length)
    # A stride of about the golden ratio spreads every response over all quantiles, without randomness.
    rank = (torch.arange(ROWS * WIDTH) * 2531 % (ROWS * WIDTH)).view(ROWS, WIDTH).double() + 0.5
    share = rank / rank.numel()
    spread = -torch.log1p(-share)  # exponential with mean 1: most tokens are sure, a few are not
    entropy, old = facts.batch_entropy * spread, -facts.batch_entropy * spread
    entropy[focal], old[focal] = facts.response_entropy * spread[focal], -1.0 - 0.5 * spread[focal]
    entropy[focal, column], old[focal, column] = facts.entropy, math.log(facts.probability)
    prompt = -0.5 - 0.25 * group.double()
    prompt[group < len(FOCAL)] = facts.prompt_logprob
    divergence = 0.5 * spread[::SIZE].repeat_interleave(SIZE, 0)
    divergence[: len(FOCAL) * SIZE, column] = facts.divergence
    # Within a group the k-th response shares its first 2k tokens with the first one.
    shared = torch.arange(WIDTH) < torch.where(place == 0, WIDTH, 2 * place)[:, None]
    ids = torch.where(
        shared, group[:, None] * WIDTH + torch.arange(WIDTH), 1000 + torch.arange(ROWS * WIDTH).view_as(old)
    )
    reward = _right(place, group, facts.batch_accuracy)
    for at, own in ((0, 1.0), (1, 0.0)):
        others = place[1:SIZE] * 3 % (SIZE - 1) < round(facts.accuracy * SIZE) - own
        reward[at * SIZE], reward[at * SIZE + 1 : (at + 1) * SIZE] = own, others.double()
    lucky = torch.nonzero((reward > 0) & ~torch.isin(row, torch.tensor(FOCAL)))[:, 0]
    old[lucky, lucky % SIZE] = math.log(SURPRISE)
    designed = {
        "mask": torch.arange(WIDTH) < length[:, None], "reward": reward, "group": group, "old_logprob": old,
        "old_entropy": entropy, "prompt_logprob": prompt, "divergence": divergence, "token_ids": ids,
        "rollout_logprob": _beside(old, column, 1 / facts.rollout_ratio), "temperature": torch.ones_like(old),
        "ref_logprob": _beside(old, column, facts.ref_ratio), "influence": math.sqrt(12) * (share - 0.5),
    }  # fmt: skip
    designed["influence"][focal, column] = facts.influence
    # Two turns of equal length, and a second reward that has nothing to do with the first.
    turn = (torch.arange(WIDTH) >= WIDTH // 2).long().expand(ROWS, WIDTH)
    arriving = torch.zeros_like(old).scatter(1, length[:, None] - 1, reward[:, None])
    second = (place % 3 == 0).double()
    designed |= {"turn": turn, "anchor": turn, "token_reward": arriving, "rewards": torch.stack([reward, second], 1)}
    others = {name: x.clone() for name, x in _undesigned().items() if name not in designed}
    for name, value in facts.other:
        others[name][focal, column] = value
    return designed | others


@functools.cache
def _undesigned() -> dict[str, Tensor]:
    inputs = example(groups=GROUPS, size=SIZE, length=WIDTH)
    known = {**inputs.rollouts, **inputs.policy}
    # Its padding lies elsewhere: there a number is as on average.
    return {name: x.nan_to_num(float(x.nanmean())) if x.is_floating_point() else x for name, x in known.items()}


def _right(place: Tensor, group: Tensor, accuracy: float) -> Tensor:
    """1.0 at this share of each group's responses, whatever their length."""
    return ((place * 3 + group) % SIZE < round(accuracy * SIZE)).double()


def _beside(old: Tensor, column: int, ratio: float) -> Tensor:
    """The log-probabilities, at the token those of another policy."""
    moved = old.clone()
    moved[list(FOCAL), column] = (moved[list(FOCAL), column] + math.log(ratio)).clamp(max=0.0)
    return moved
