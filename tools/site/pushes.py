"""The table of a family's page that says how strongly its methods push which tokens, from the gradients of the code.

A number is the mean over tokens of a method's gradient to their log-probability, divided by DAPO's at ratio 1. So 1 is
DAPO's first update of a batch. All other inputs are neutral: the sampler and the reference are the old policy.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from layout import table
from torch import Tensor

import tokenpo
from tokenpo.core import trial
from tokenpo.core.types import EXTRA, FACTS
from tokenpo.methods.families import FAMILIES

SIZE = 8  # responses of a group
# A row of the table of trust: DAPO with the weights that TRL adds for vLLM, by default one for a whole response.
IN_TRL = "`dapo` in TRL with vLLM"
TRLS = tokenpo.parts.RolloutCorrection(sequence=True, mask=True, cap=3.0)
# Heading, the inputs, their log-ratios [N, T] and the tokens that the column averages.
Column = tuple[str, trial.Inputs, Tensor, Tensor]
# Drop extremes that a drawn batch hardly has.
EXTREMES = ("clip_b", "clip_v")
# Methods whose push depends on a greedy answer, several rewards, drafts, a draw, the prompt, the pass, how many tokens
# moved, or
# goes through the entropy.
LEFT_OUT = (
    "remax", "gdpo", "igrpo", "s_grpo", "arm", "lopti", "m2po", "m2po_rollout", "skywork_entropy", "aer", *EXTREMES,
)  # fmt: skip


def inputs(rights: Sequence[int], length: Tensor, logprob: Tensor, entropy: Tensor) -> trial.Inputs:
    """Groups with so many right responses each, which come first; the other arguments broadcast to [N, T]."""
    drawn = trial.example(groups=len(rights), size=SIZE, length=max(int(length.max()), logprob.shape[1]), columns=1)
    shape = drawn.rollouts["mask"].shape
    like = {"old_logprob": logprob.expand(shape), "old_entropy": entropy.expand(shape)}
    fields = {}
    for name, x in {**drawn.rollouts, **drawn.policy}.items():
        neutral = ({**FACTS, **EXTRA}[name].neutral if x.is_floating_point() else None) or 0.0
        fields[name] = like.get(name, like[neutral] if isinstance(neutral, str) else torch.full_like(x, neutral))
    reward = torch.tensor([float(place < right) for right in rights for place in range(SIZE)], dtype=torch.float64)
    fields |= {
        "group": drawn.rollouts["group"],
        "mask": (torch.arange(shape[1]) < length).expand(shape),
        "reward": reward,
        "rewards": reward[:, None],
    }
    return trial.Inputs(*({k: fields.get(k, x) for k, x in of.items()} for of in (drawn.rollouts, drawn.policy)))


def push(name: str, given: trial.Inputs, moved: Tensor) -> Tensor:
    """The gradient [N, T] of a method's objective to the log-probabilities, over all its passes."""
    objective = tokenpo.method("dapo" if name == IN_TRL else name)
    objective = dataclasses.replace(objective, weights=(TRLS,)) if name == IN_TRL else objective
    policy = {**given.policy, "logprob": given.policy["logprob"] + moved}
    now = trial.Inputs(given.rollouts, policy)
    return -sum(now.evaluate(part).gradient for part in objective.split())


def pushes(family: str) -> str:
    """The table of a family; methods with the same numbers share a row."""
    columns = list(COLUMNS[family]())
    head = ("method", *(title for title, *_ in columns))
    rows: dict[tuple[str, ...], list[str]] = {}
    first = [push("dapo", given, torch.zeros_like(moved)) for _, given, moved, _ in columns]
    for name in dict.fromkeys(("dapo", "grpo", *FAMILIES[family][1], *[IN_TRL] * (family == "trust"))):
        if name in LEFT_OUT:
            continue
        made = [push(name, given, moved) for _, given, moved, _ in columns]
        means = [
            float((new / old)[chosen].mean()) for new, old, (_, _, _, chosen) in zip(made, first, columns, strict=True)
        ]
        unit = means[-1] if family == "probability" else 1.0
        row = tuple(f"{round(mean / unit, 2) + 0.0:g}".replace("-", "−") for mean in means)
        if name == IN_TRL:
            return table(head, [*((", ".join(names), *row) for row, names in rows.items()), (name, *row)])
        rows.setdefault(row, []).append(f"`{name}`")
    return table(head, [(", ".join(names), *row) for row, names in rows.items()])


def first_update(name: str) -> str:
    """Whose update a method makes while the policy is the one that sampled: "DAPO's", "GRPO's" or "its own"."""
    objective = tokenpo.method(name)
    if name in EXTREMES or objective.entropy_gradient or len(objective.split()) > 1:
        return "its own"
    given = spread((2, 4, 4, 6) * 4, 200, ragged=True)
    made = push(name, given, still(given))
    same = (f"{of}'s" for of in ("DAPO", "GRPO") if torch.allclose(made, push(of.lower(), given, still(given)), 1e-9))
    more = " and a KL" if "ref_logprob" in objective.needs else ""
    more = " where q is 1" if "rollout_logprob" in objective.needs else more
    factor = (made / push("dapo", given, still(given)))[given.rollouts["mask"]]
    scaled = "DAPO's, scaled" if torch.allclose(factor, factor.mean(), 1e-9) else "its own"
    return next((whose + more for whose in same), scaled)


def spread(rights: Sequence[int] = (2, 4, 4, 6), length: int = 40, *, ragged: bool = False) -> trial.Inputs:
    """Tokens and responses of very different entropy; the mean of −log p of tokens with entropy H is H."""
    random = torch.Generator().manual_seed(0)
    number = len(rights) * SIZE

    def exponential(columns: int = length) -> Tensor:
        return -(1 - torch.rand(number, columns, generator=random, dtype=torch.float64)).log()

    entropy = 0.2 * exponential() ** 2 * (0.5 + 0.5 * exponential(1))
    logprob = (-entropy * exponential()).clamp(max=-1e-6)
    least = length // 4 if ragged else length
    return inputs(rights, torch.randint(least, length + 1, (number, 1), generator=random), logprob, entropy)


def sides(given: trial.Inputs) -> dict[str, Tensor]:
    """The tokens of right and of wrong responses."""
    mask, right = given.rollouts["mask"], given.rollouts["reward"][:, None] > 0
    return {"right": right & mask, "wrong": ~right & mask}


def first(chosen: Tensor) -> Tensor:
    """The first of these tokens alone."""
    return chosen & (chosen.flatten().cumsum(0).view_as(chosen) == 1)


def even(rights: Sequence[int] = (4, 4, 4, 4), lengths: Sequence[int] = (20,)) -> trial.Inputs:
    """Tokens of probability 0.2 and one entropy; the lengths take turns."""
    number = len(rights) * SIZE
    length = torch.tensor(lengths).repeat(number // len(lengths))[:, None]
    one = torch.ones(1, 1, dtype=torch.float64)
    return inputs(rights, length, (0.2 * one).log(), 0.7 * one)


def still(given: trial.Inputs) -> Tensor:
    return torch.zeros_like(given.rollouts["old_logprob"])


def log(ratio: float) -> Tensor:
    return torch.tensor(ratio, dtype=torch.float64).log()


def ratios() -> Iterator[Column]:
    given = even()
    given = given.replace(staleness=torch.full_like(given.rollouts["staleness"], 4.0))
    yield "ratio 1", given, still(given), given.rollouts["mask"]
    for side, chosen in sides(given).items():
        token = first(chosen)
        for ratio in {"right": (0.5, 1.1, 2.0, 4.0), "wrong": (0.5, 0.9, 2.0, 4.0)}[side]:
            yield f"{side}, {ratio:g}", given, token * log(ratio), token
    token, sampled = first(sides(given)["right"]), given.rollouts["rollout_logprob"]
    for q in (1.1, 2.0):
        yield f"right, q {q:g}", given.replace(rollout_logprob=sampled - token * log(q)), still(given), token


def entropies() -> Iterator[Column]:
    given = spread()
    mask, entropy = given.rollouts["mask"], given.rollouts["old_entropy"]
    high = entropy >= entropy[mask].quantile(0.8)
    some = torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.1
    for ratios in ({}, {"right": 1.3, "wrong": 0.75}):
        for side, chosen in sides(given).items():
            moved = (some & chosen) * log(ratios.get(side, 1.0))
            told = f", ratio {ratios[side]:g}" if ratios else ""
            for level, those in (("sure", ~high), ("unsure", high)):
                yield f"{side}, {level}{told}", given, moved, chosen & those & (some if ratios else mask)


def probabilities() -> Iterator[Column]:
    given = spread()
    p = given.rollouts["old_logprob"].exp()
    for low, high in ((0, 0.002), (0.002, 0.1), (0.1, 0.4), (0.4, 1)):
        yield f"p {low:g} to {high:g}", given, still(given), sides(given)["right"] & (low <= p) & (p < high)


def groups() -> Iterator[Column]:
    rights = (1, 4, 7)
    given = even(rights)
    for side, chosen in sides(given).items():
        for group, right in enumerate(rights):
            if (side, right) == ("wrong", 4):
                continue  # as the right ones
            those = given.rollouts["group"][:, None] == group
            yield f"{side}, {right} of {SIZE} right", given, still(given), chosen & those
    yield from lengths()


def lengths() -> Iterator[Column]:
    given = even(lengths=(20, 40))
    long = given.rollouts["mask"][:, 20:].any(1, keepdim=True)
    for side, chosen in sides(given).items():
        for tokens, those in ((20, ~long), (40, long)):
            yield f"{side}, {tokens} tokens", given, still(given), chosen & those


def responses() -> Iterator[Column]:
    yield from (column for column in lengths() if column[0].startswith("right"))  # wrong ones are the same
    given = even()
    for side, chosen in sides(given).items():
        token, ratio = first(chosen), {"right": 1.5, "wrong": 0.67}[side]
        yield f"{side}, ratio {ratio}", given, token * log(ratio), token
        yield f"{side}, next to ratio {ratio}", given, token * log(ratio), chosen & token.any(1, keepdim=True) & ~token


COLUMNS: dict[str, Callable[[], Iterator[Column]]] = {
    "baselines": groups, "responses": responses, "trust": ratios, "entropy": entropies, "probability": probabilities,
}  # fmt: skip
