"""Converts verl's batch, nested tensors [N, *] of responses, to rollouts, and their credit to fields of verl's batch.

Rows without a response token, which verl adds as padding, are left out of every statistic.
"""

# pyright: reportMissingImports=false
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.workers.utils.padding import response_to_nested

from ...base.errors import MissingInput
from ...core.objective import Objective
from ...core.ops import turns
from ...core.ops.group import numbered
from ...core.ops.masked import inside, unpacked
from ...core.parts import BatchSignal, MemorySignal, Part, Signal, walk
from ...core.types import Credit, Policy, Rollouts
from . import TOKEN_FIELDS

# Fields with one number per row that phase one adds to verl's batch.
REWARD, GROUP, SEQUENCES = "tokenpo_reward", "tokenpo_group", "tokenpo_sequences"
TRAJECTORY, TOKENS = "tokenpo_trajectory", "tokenpo_tokens"  # of sessions with several outputs


def padded(field: Any) -> Tensor:
    """A nested tensor [N, *] as [N, T] with its graph; zeros after each row, T is the longest row."""
    return unpacked(field.values(), inside(field.offsets().diff()))


def column(field: Any) -> list[Any]:
    """One value per row, from verl's array, list or tensordict stack."""
    return field.tolist() if hasattr(field, "tolist") else list(field)


def token_facts(data: TensorDict, needs: Iterable[str], temperature: float) -> dict[str, Tensor]:
    """The mask, `old_logprob` and the token fields in `needs`, [N, T] each; MissingInput if verl lacks one."""
    mask = padded(data["response_mask"]).bool()
    facts = {"mask": mask}
    for name in sorted({"old_logprob", *needs}):
        if name == "temperature":
            facts[name] = torch.full(mask.shape, temperature, device=mask.device)
        if name in TOKEN_FIELDS:
            field, remedy = TOKEN_FIELDS[name]
            if field not in data:
                raise MissingInput(f"verl's batch holds no {field} for {name}: set {remedy}")
            facts[name] = padded(data[field])
    return facts


def signal_fields(objective: Objective) -> dict[Part, str]:
    """Signal -> its field in verl's batch, the same in every process."""
    kinds = (Signal, MemorySignal, BatchSignal)
    parts = dict.fromkeys(part for part in walk(objective) if isinstance(part, kinds))
    return {part: f"tokenpo_signal_{number}" for number, part in enumerate(parts)}


def taught(data: TensorDict) -> TensorDict:
    """`teacher_logprob` as a field of the batch, from verl's teacher on prompts and responses [N, *, 1]."""
    lengths = data["response_mask"].offsets().diff().tolist()
    # Entry t belongs to token t + 1; the last entry belongs to no token.
    rows = [x[-length - 1 : -1, 0] for x, length in zip(data["teacher_logprobs"].unbind(), lengths, strict=True)]
    name, _ = TOKEN_FIELDS["teacher_logprob"]
    return TensorDict({name: torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, [len(rows)])


def fields(objective: Objective) -> list[str]:
    """The fields of verl's batch that phase one reads."""
    token_fields = [TOKEN_FIELDS[name][0] for name in sorted(objective.needs) if name in TOKEN_FIELDS]
    return ["uid", "response_mask", "rm_scores", "old_log_probs", *token_fields]


@dataclass(frozen=True, eq=False)
class Rows:
    """Maps rows of verl's batch to our rollouts."""

    live: Tensor  # [N] bool, rows with a response token: the rollouts [L, T], in this order
    response_mask: Any  # nested like the responses [N, *]

    def numbers(self, rows: Sequence[int]) -> Tensor:
        """The numbers of the rollouts in these rows; rows without a response token are skipped."""
        index = torch.as_tensor(rows)
        return (self.live.cumsum(0) - 1)[index[self.live[index]]]

    def some(self, rows: Sequence[int]) -> "Rows":
        masks = self.response_mask.unbind()
        nested = torch.nested.as_nested_tensor([masks[row] for row in rows], layout=torch.jagged)
        return Rows(self.live[torch.as_tensor(rows)], nested)

    def nested(self, values: Tensor) -> Tensor:
        """`values` [L, T] nested like the responses, zeros in rows that are not live; T may exceed the longest row."""
        longest = int(self.response_mask.offsets().diff().max())
        every = values.new_zeros(len(self.live), longest)
        every[self.live, : values.shape[1]] = values[:, :longest]
        return response_to_nested(every, self.response_mask)

    def signals(self, objective: Objective, credit: Credit, known: Mapping[Part, Any] | None = None) -> TensorDict:
        """The credit's signals as fields, without those in `known`."""
        names, dtype = signal_fields(objective), credit.advantage.dtype
        new = {part: value for part, value in credit.signals.items() if part in names and part not in (known or {})}
        out = {names[part]: self.nested(value.to(dtype)) for part, value in new.items()}
        return TensorDict(out, batch_size=len(self.live))

    def policy(self, outputs: TensorDict, width: int) -> Policy:
        """[L, width] of verl's log_probs and entropy, nested like the responses."""
        views = (padded(outputs[name])[self.live] for name in ("log_probs", "entropy"))
        return Policy(*(torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in views))


def in_order(keys: Sequence[str]) -> list[int]:
    """The rows of verl's batch, in which outputs of one session (`UID_SESSION_OUTPUT`) swap places to ascend."""
    order, places = list(range(len(keys))), dict[str, list[int]]()
    for row, key in enumerate(keys):
        places.setdefault(session(key), []).append(row)
    for rows in places.values():
        for place, row in zip(rows, sorted(rows, key=lambda row: int(keys[row].rsplit("_", 1)[1])), strict=True):
            order[place] = row
    return order


def session(key: str) -> str:
    """The session of a row of verl's batch."""
    return key.rsplit("_", 1)[0]


def rollouts_of(
    data: TensorDict, objective: Objective, temperature: float, sessions: Sequence[str] | None = None
) -> tuple[Rollouts, Rows]:
    """The rollouts of verl's whole batch, from `fields(objective)` of every row, and the rows that hold them.

    `sessions` names the session of each row; outputs of one are parts of one trajectory.

    Raises:
        MissingInput: verl did not fill a field.
    """
    facts = token_facts(data, objective.needs, temperature)
    if "turn" in objective.needs:
        facts["turn"] = turns.numbered(facts["mask"])
    if "token_reward" in objective.needs:
        facts["token_reward"] = padded(data["rm_scores"]).float()
    live = facts["mask"].any(1)
    uid = itertools.compress(map(str, column(data["uid"])), live.tolist())
    fields: dict[str, Any] = {name: value[live] for name, value in facts.items()}
    reward = padded(data["rm_scores"]).sum(1)[live]
    if sessions is not None:
        fields["trajectory"] = torch.tensor(numbered(list(itertools.compress(sessions, live.tolist()))))
    return Rollouts(reward=reward, group=torch.tensor(numbered(list(uid))), **fields), Rows(live, data["response_mask"])


def credit_fields(
    objective: Objective, rollouts: Rollouts, credit: Credit, rows: Rows, minibatches: Iterable[Sequence[int]]
) -> TensorDict:
    """The fields that phase one adds to verl's batch; its critic is fitted to `returns`.

    `minibatches` are the rows of each optimiser step; the number of live rows is a denominator of its losses, and a row
    of a trajectory counts as its share of the trajectory's tokens.
    """
    advantage, sequences = rows.nested(credit.advantage), torch.zeros(len(rows.live), dtype=torch.float64)
    length = rollouts.mask.sum(1) if credit.length is None else credit.length
    share = sequences.masked_scatter(rows.live, rollouts.mask.sum(1).double() / length)
    for minibatch in minibatches:
        sequences[list(minibatch)] = share[list(minibatch)].sum()
    columns = {
        # The numbers of padding rows are above all others: they are nobody's trajectory.
        name: torch.arange(len(rows.live), 2 * len(rows.live)).to(x).masked_scatter(rows.live, x)
        for name, x in (
            (REWARD, rollouts.reward),
            (GROUP, rollouts.group),
            (TRAJECTORY, rollouts.trajectory),
            (TOKENS, credit.length),
        )
        if x is not None
    }
    out = rows.signals(objective, credit)
    returns = credit.advantage if objective.critic is None else credit.signals[objective.critic]
    out.update({"advantages": advantage, "returns": rows.nested(returns), SEQUENCES: sequences, **columns})
    return out


def dealt(rows: int, ranks: int, size: int) -> list[list[int]]:
    """The rows of each optimiser step of an unshuffled batch: verl's ranks split their own shares one by one."""
    share, part = rows // ranks, size // ranks
    return [
        [rank * share + start + offset for rank in range(ranks) for offset in range(part)]
        for start in range(0, share, part)
    ]
