"""A recorded rollout batch as the tensors that an objective takes, with notes for its reader."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.ops.group import numbered
from ...core.types import FACTS as DECLARED
from ...core.types import Policy, Rollouts
from .response import FACTS, NOW, PER_RESPONSE, WHOLE, Response


@dataclass(frozen=True, eq=False)
class Recording:
    """N responses of one rollout batch, in float64.

    Args:
        source: the file that it was read from.
        responses: the rows, in the order of the file.
        rollouts: the facts; `group` counts from 0 in the order in which groups appear.
        policy: the current policy at the same tokens; the old one's numbers where the file has no `logprob`.
        moved: the file has a `logprob`, so that ratios differ from 1.
        step: of the training, where the file says so.
        unread: fields of the file that the format does not know.
        notes: parts that were left out, and groups of odd sizes.
    """

    source: str
    responses: tuple[Response, ...]
    rollouts: Rollouts
    policy: Policy
    moved: bool
    step: int | None
    unread: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs that are given."""
        owners = (self.rollouts, self.policy)
        return frozenset(name for owner in owners for name, value in vars(owner).items() if value is not None)

    def at_first_update(self) -> Recording:
        """The same facts when the policy is still the one that sampled them."""
        old = Policy(logprob=self.rollouts.old_logprob, entropy=self.rollouts.old_entropy)
        return dataclasses.replace(self, policy=old, moved=False)

    @property
    def lag(self) -> Tensor | None:
        """[N, T] updates between the policy that sampled the token and the newest that sampled any; None where one
        policy sampled all, or none is known."""
        version, mask = self.rollouts.version, self.rollouts.mask
        if version is None or len(version[mask].unique()) == 1:
            return None
        return (version[mask].max() - version) * mask

    @property
    def reward_names(self) -> tuple[str, ...]:
        """The names of the columns of `rollouts.rewards`."""
        return tuple(self.responses[0].rewards or ())

    @property
    def correct(self) -> list[bool | None]:
        return [response.correct for response in self.responses]

    @property
    def entropy(self) -> Tensor | None:
        """[N, T] nats of the policy that sampled, or of the current one where that is all there is."""
        return self.policy.entropy if self.rollouts.old_entropy is None else self.rollouts.old_entropy


def record(
    source: str, responses: Sequence[Response], where: Callable[[int], str], unread: Sequence[str],
    notes: Sequence[str], left_out: bool = False,
) -> Recording:  # fmt: skip
    """The batch of these responses.

    Args:
        where: names a row by its number, for messages.
        unread: fields of the file that the format does not know.
        notes: on the file so far.
        left_out: lines of the file could not be read, so groups may lack responses that the training had.

    Raises:
        TokenPOError: no response with a token, or an input that only some of them have.
    """
    if not any(response.tokens for response in responses):
        raise TokenPOError(f"{source} holds no response with a token: write at least one")
    _require_alike(responses, where)
    moved = "logprob" in responses[0].numbers
    facts, now = ({name: _padded(responses, name) for name in names} for names in ((*FACTS, *WHOLE), NOW))
    if not moved:
        # The policy is the one that sampled: the numbers of one are those of the other.
        now["logprob"] = facts["old_logprob"]
        now["entropy"] = facts["old_entropy"] if now["entropy"] is None else now["entropy"]
        facts["old_entropy"] = now["entropy"] if facts["old_entropy"] is None else facts["old_entropy"]
    lengths = torch.tensor([len(response.tokens) for response in responses])
    names = list(responses[0].rewards or ())
    rewards = [[math.nan if x is None else x for x in map((r.rewards or {}).get, names)] for r in responses]
    single = {
        name: torch.tensor(values, dtype=torch.long if DECLARED[name].kind.whole else torch.float64)
        for name in PER_RESPONSE
        if (values := [getattr(response, name) for response in responses])[0] is not None
    }
    given: dict[str, Any] = {**single, **facts}
    rollouts = Rollouts(
        mask=torch.arange(int(lengths.max())) < lengths[:, None],
        reward=torch.tensor([response.reward for response in responses], dtype=torch.float64),
        group=torch.tensor(numbered([response.group for response in responses])),
        rewards=torch.tensor(rewards, dtype=torch.float64) if names else None,
        **given,
    )
    notes = [*notes, *_of_groups(responses, left_out)]
    if unread:
        notes.append(f"Fields that the format does not know, not read: {', '.join(unread)}.")
    policy = Policy(**now)  # pyright: ignore[reportArgumentType]
    return Recording(source, tuple(responses), rollouts, policy, moved, responses[0].step, tuple(unread), tuple(notes))


def _require_alike(responses: Sequence[Response], where: Callable[[int], str]) -> None:
    """Refuses inputs, or names of rewards, that only some of the responses have: nothing is made up for the others."""
    inputs = frozenset().union(*(response.given for response in responses))
    for row, response in enumerate(responses):
        if missing := sorted(inputs - response.given):
            other = next(i for i, candidate in enumerate(responses) if missing[0] in candidate.given)
            raise TokenPOError(
                f"{where(row)}: no field {missing[0]!r}, which {where(other)} has: write it for every response, or for "
                "none"
            )
        first, these = (set(x.rewards or ()) for x in (responses[0], response))
        if first != these:
            raise TokenPOError(
                f"{where(row)}: 'rewards' has the names {', '.join(sorted(these))}, and {where(0)} has "
                f"{', '.join(sorted(first))}: write {sorted(these ^ first)[0]!r} into both, null where it does not "
                "apply, or into none"
            )


def _padded(responses: Sequence[Response], name: str) -> Tensor | None:
    """[N, T] of one field, zero behind the end of a response; None where it is not there."""
    rows = [r.token_ids if name == "token_ids" else r.numbers.get(name) for r in responses]
    if rows[0] is None:
        return None
    width = max(len(response.tokens) for response in responses)
    padded = [[*row, *[0] * (width - len(row))] for row in rows if row is not None]
    return torch.tensor(padded, dtype=torch.long if name in WHOLE else torch.float64)


def _of_groups(responses: Sequence[Response], left_out: bool) -> list[str]:
    """Groups that a missing response has changed, as far as their sizes show it."""
    sizes = Counter(response.group for response in responses)
    if len(sizes) > 1 and max(sizes.values()) == 1:
        return ["Every response is a group of its own: give the responses to one prompt the same group."]
    usual = max(sorted(set(sizes.values()), reverse=True), key=list(sizes.values()).count)
    odd = [f"{group!s:.40} has {size}" for group, size in sizes.items() if size != usual]
    if not odd:
        if not left_out:
            return []
        return [
            "What was left out may change a group's mean and deviation; every group that is left has the same size, so "
            "whole groups may be missing."
        ]
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    why = "its group lost a response" if left_out else "responses are missing"
    return [
        f"Groups differ in size (most have {usual} responses; group {', group '.join(odd[:3])}{more}): where {why}, "
        "mean and deviation of the group, and so its credit, are not those of the training."
    ]
