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

from ....base.errors import TokenPOError
from ....core.ops.group import numbered
from ....core.types import FACTS as DECLARED
from ....core.types import Policy, Rollouts
from .response import FACTS, NOW, PER_RESPONSE, WHOLE, Response


@dataclass(frozen=True, eq=False)
class Recording:
    """N responses of one rollout batch, in float64.

    Args:
        responses: the rows, in the order of the file `source`.
        rollouts: the recorded inputs; `group` counts from 0 in the order in which groups appear.
        policy: the current policy at the same tokens; the old policy's numbers if the file has no `logprob`.
        moved: the file has a `logprob`, so ratios differ from 1.
        step: the training step, if the file has one.
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
        """The names of the inputs that the recording has."""
        owners = (self.rollouts, self.policy)
        return frozenset(name for owner in owners for name, value in vars(owner).items() if value is not None)

    def at_first_update(self) -> Recording:
        """The same rollouts with the old policy as the current one."""
        old = Policy(logprob=self.rollouts.old_logprob, entropy=self.rollouts.old_entropy)
        return dataclasses.replace(self, policy=old, moved=False)

    @property
    def lag(self) -> Tensor | None:
        """[N, T] updates between the policy that sampled a token and the newest one that sampled any token; None if one
        policy sampled all, or versions are unknown."""
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
        """[N, T] nats of the policy that sampled; if absent, of the current policy."""
        return self.policy.entropy if self.rollouts.old_entropy is None else self.rollouts.old_entropy


def record(
    source: str, responses: Sequence[Response], where: Callable[[int], str], unread: Sequence[str],
    notes: Sequence[str], left_out: bool = False,
) -> Recording:  # fmt: skip
    """The batch of these responses.

    Args:
        where: row number -> the row's name in messages.
        unread, notes: as in `Recording`, so far.
        left_out: some lines could not be read, so groups may lack responses of the training.

    Raises:
        TokenPOError: no response has a token, or only some responses have an input.
    """
    if not any(response.tokens for response in responses):
        raise TokenPOError(f"{source} holds no response with a token: write at least one")
    _require_alike(responses, where)
    moved = "logprob" in responses[0].numbers
    facts, now = ({name: _padded(responses, name) for name in names} for names in ((*FACTS, *WHOLE), NOW))
    if not moved:
        # The current policy is the one that sampled, so both have the same numbers.
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
    inputs: dict[str, Any] = {**single, **facts}
    rollouts = Rollouts(
        mask=torch.arange(int(lengths.max())) < lengths[:, None],
        reward=torch.tensor([response.reward for response in responses], dtype=torch.float64),
        group=torch.tensor(numbered([response.group for response in responses])),
        rewards=torch.tensor(rewards, dtype=torch.float64) if names else None,
        **inputs,
    )
    notes = [*notes, *_of_groups(responses, left_out)]
    if unread:
        notes.append(f"Fields that the format does not know, not read: {', '.join(unread)}.")
    policy = Policy(**now)  # pyright: ignore[reportArgumentType]
    return Recording(source, tuple(responses), rollouts, policy, moved, responses[0].step, tuple(unread), tuple(notes))


def _require_alike(responses: Sequence[Response], where: Callable[[int], str]) -> None:
    """Refuses inputs, or names of rewards, that only some responses have; no value is invented for the others."""
    inputs = frozenset().union(*(response.given for response in responses))
    for row, response in enumerate(responses):
        if missing := sorted(inputs - response.given):
            other = next(i for i, candidate in enumerate(responses) if missing[0] in candidate.given)
            raise TokenPOError(
                f"{where(row)}: no field {missing[0]!r}, which {where(other)} has: write it for every response, or for "
                "none"
            )
        first, names = (set(x.rewards or ()) for x in (responses[0], response))
        if first != names:
            raise TokenPOError(
                f"{where(row)}: 'rewards' has the names {', '.join(sorted(names))}, and {where(0)} has "
                f"{', '.join(sorted(first))}: write {sorted(names ^ first)[0]!r} into both, null where it does not "
                "apply, or into none"
            )


def _padded(responses: Sequence[Response], name: str) -> Tensor | None:
    """[N, T] of one field, zero after the end of a response; None if the field is absent."""
    rows = [r.token_ids if name == "token_ids" else r.numbers.get(name) for r in responses]
    if rows[0] is None:
        return None
    width = max(len(response.tokens) for response in responses)
    padded = [[*row, *[0] * (width - len(row))] for row in rows if row is not None]
    return torch.tensor(padded, dtype=torch.long if name in WHOLE else torch.float64)


def _of_groups(responses: Sequence[Response], left_out: bool) -> list[str]:
    """Notes on groups whose size shows that responses may be missing."""
    sizes = Counter(response.group for response in responses)
    if len(sizes) > 1 and max(sizes.values()) == 1:
        return ["Every response is a group of its own: give the responses to one prompt the same group."]
    common = max(sorted(set(sizes.values()), reverse=True), key=list(sizes.values()).count)
    odd = [f"{group!s:.40} has {size}" for group, size in sizes.items() if size != common]
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
        f"Groups differ in size (most have {common} responses; group {', group '.join(odd[:3])}{more}): where {why}, "
        "mean and deviation of the group, and so its credit, are not those of the training."
    ]
