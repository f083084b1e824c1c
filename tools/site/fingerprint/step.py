"""One designed optimiser step, in which the properties of one token vary and everything else is fixed.

The step has eight groups of eight responses. The token occurs in two responses: a right one (first row of the first
group) and a wrong one (first row of the second group). The push on it is the gradient of the method's loss:

    push = −∂L/∂lp · tokens of the step

GRPO's push at ratio 1, default length and a half-right group is about its advantage, ±0.94. The denominators are those
of a step with this number of responses and `LENGTH` tokens on average; `LENGTH` is also Dr. GRPO's constant.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenpo.core.trial import Evaluation, columns_of, counted, differentiate, example
from tokenpo.core.types import Batch, Credit, Policy, Rollouts, Totals

GROUPS, SIZE, WIDTH, LENGTH = 8, 8, 32, 16
ROWS = GROUPS * SIZE
FOCAL = (0, SIZE)  # rows of the token: right, wrong
FIRST_ENTROPY = 1.5  # nats, of the run's first batch, before entropies fell
SURPRISE = 0.001  # probability of one token in every right response but the token's own
DRAWS = 32  # number of seeds to average over, for a method that chooses tokens at random
TOTALS = Totals(tokens=float(ROWS * LENGTH), sequences=float(ROWS), length=float(LENGTH))


@dataclass(frozen=True)
class Facts:
    """Properties of the token and its surroundings; each has its default while another varies.

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
        batch_entropy: mean entropy of the other responses, nats; the log-probability of their tokens is −entropy.
        earlier_accuracy: share of right responses in the batch before, in eighths, for methods with a memory.
        ref_ratio: p_ref / p_old of the token.
        rollout_ratio: p_old / p of the sampling engine, for the token.
        prompt_logprob: mean log-probability of a token of the prompt, nats.
        influence: of the token; that of other tokens has mean 0 and standard deviation 1.
        divergence: of the group's next-token distributions at the token's position; 0.5 on average elsewhere.
        other: (field, value at the token) of further floating-point inputs [N, T].
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
    """[P, 2, 2] pushes: for each of the facts, in the right and the wrong response, on log-probability and entropy.

    NaN where the group's accuracy excludes such a response.

    Args:
        seeds: to average over, for a method that chooses tokens at random; None takes `DRAWS` seeds.
    """
    if seeds is None:
        seeds = range(DRAWS if getattr(objective, "draws", False) else 1)
    # Facts that differ only in the current policy share the rollouts and phase one.
    rollouts = {f: dataclasses.replace(f, ratio=1.0, response_ratio=1.0, entropy_change=0.0) for f in facts}
    found: dict[Facts, Tensor] = {}
    for shared in dict.fromkeys(rollouts.values()):
        sharing = [f for f in facts if rollouts[f] == shared]
        found |= dict(zip(sharing, _pushes(objective, shared, sharing, seeds), strict=True))
    return torch.stack([found[f] for f in facts])


def _pushes(objective: Any, shared: Facts, facts: Sequence[Facts], seeds: Sequence[int]) -> Tensor:
    """`pushes` of facts that all have the rollouts of `shared`."""
    fields = _fields(shared, columns_of(objective, 2))
    rollouts = Rollouts.of(fields, objective.needs)
    credit = objective.prepare(rollouts, *_state(objective, shared))
    rollouts = counted(objective, rollouts)
    policies = [_policy(objective, fields, one) for one in facts]
    step = differentiated(objective, rollouts, credit, policies, torch.tensor(FOCAL), TOTALS, seeds)
    slopes = -torch.stack([step.gradient, step.entropy_gradient], -1) * TOTALS.tokens
    at_token = slopes.view(len(facts), -1, 2, WIDTH, 2).mean(1)[:, :, round(shared.position) - 1]
    possible = torch.tensor([shared.accuracy > 0.5 / SIZE, shared.accuracy < 1 - 0.5 / SIZE])
    return torch.where(possible[:, None], at_token, torch.nan)


def differentiated(
    objective: Any, rollouts: Rollouts, credit: Credit, policies: Sequence[Policy], rows: Tensor, totals: Totals,
    seeds: Sequence[int] = (0,),
) -> Evaluation:  # fmt: skip
    """The loss of these rows of a step, with its gradients, under each of the current policies in turn; all at once."""
    if getattr(objective, "scope", "row") == "batch":
        steps = [(policy, torch.Generator().manual_seed(seed)) for policy in policies for seed in seeds]
        batches = [objective.observe(Batch(rollouts, credit, policy), draws).rows(rows) for policy, draws in steps]
    else:
        batches = [Batch(rollouts.rows(rows), credit.rows(rows), policy.rows(rows)) for policy in policies]
    parts = [vars(batch.policy) for batch in batches]
    policy = {name: torch.cat([part[name] for part in parts]) for name, x in parts[0].items() if x is not None}
    credit = Credit.joined([batch.credit for batch in batches])
    return differentiate(objective, rollouts.rows(rows.repeat(len(batches))), credit, Policy(**policy), totals)


def _state(objective: Any, facts: Facts) -> tuple[Any, ...]:
    """The memories' numbers after two batches with accuracy `earlier_accuracy`: entropy `FIRST_ENTROPY`, then this."""
    if not getattr(objective, "memories", ()):
        return ()
    row, state = torch.arange(ROWS), objective.start()
    for entropy in (FIRST_ENTROPY, facts.batch_entropy):
        reward = _right(row % SIZE, row // SIZE, facts.earlier_accuracy)
        fields = {**_fields(Facts(batch_entropy=entropy), columns_of(objective, 2)), "reward": reward}
        state = objective.after(state, Rollouts.of(fields, objective.needs))
    return (state,)


def _policy(objective: Any, fields: Mapping[str, Tensor], facts: Facts) -> Policy:
    """The current policy, which has moved at the token and at the other tokens of its response."""
    focal, column = list(FOCAL), round(facts.position) - 1
    logprob = fields["old_logprob"].clone()
    logprob[focal] += math.log(facts.response_ratio)
    logprob[focal, column] = min(math.log(facts.probability) + math.log(facts.ratio), 0.0)
    entropy = fields["old_entropy"].clone()
    entropy[focal, column] = max(facts.entropy + facts.entropy_change, 0.0)
    known = {**fields, "logprob": logprob.clamp(max=0.0), "entropy": entropy}
    return Policy.of(known, objective.needs)


@functools.lru_cache(maxsize=256)
def _fields(facts: Facts, columns: int) -> Mapping[str, Tensor]:
    """Every input by name; an input that is not designed here, such as a future one, is taken from `example`.

    Args:
        columns: number of reward functions.
    """
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
    # The k-th response of a group shares its first 2k tokens with the first response.
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
    # Two turns of equal length, and further rewards that are unrelated to the first.
    turn = (torch.arange(WIDTH) >= WIDTH // 2).long().expand(ROWS, WIDTH)
    arriving = torch.zeros_like(old).scatter(1, length[:, None] - 1, reward[:, None])
    rewards = torch.stack([reward, *((place % k == 0).double() for k in range(3, columns + 2))], 1)
    designed |= {"turn": turn, "anchor": turn, "token_reward": arriving, "rewards": rewards}
    others = {name: x.clone() for name, x in _undesigned().items() if name not in designed}
    for name, value in facts.other:
        others[name][focal, column] = value
    return designed | others


@functools.cache
def _undesigned() -> dict[str, Tensor]:
    inputs = example(groups=GROUPS, size=SIZE, length=WIDTH)
    known = {**inputs.rollouts, **inputs.policy}
    # Padding of `example`, which may be response tokens here, gets the average.
    return {name: x.nan_to_num(float(x.nanmean())) if x.is_floating_point() else x for name, x in known.items()}


def _right(place: Tensor, group: Tensor, accuracy: float) -> Tensor:
    """1.0 for this share of each group's responses, independently of their length."""
    return ((place * 3 + group) % SIZE < round(accuracy * SIZE)).double()


def _beside(old: Tensor, column: int, ratio: float) -> Tensor:
    """The log-probabilities of another policy, which differs from the old one at the token by this ratio."""
    moved = old.clone()
    moved[list(FOCAL), column] = (moved[list(FOCAL), column] + math.log(ratio)).clamp(max=0.0)
    return moved
