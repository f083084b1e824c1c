"""A recorded rollout batch: as JSON Lines, one response a line, and as the tensors that an objective takes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..base.files import explained, whole
from ..base.jsonl import whole_lines
from ..core.ops.group import numbered
from ..core.types import FACTS as DECLARED
from ..core.types import Policy, Rollouts
from .response import FACTS, KNOWN, NOW, PER_RESPONSE, WHOLE, Response, parse, plain

FOLDER = "rollouts"
# Subdirectory with the record of a run: ours and verl's, and TRL's trainer's.
PLACES = ("", "tokenpo")


@dataclass(frozen=True, eq=False)
class Recording:
    """N responses of one rollout batch, in float64.

    Args:
        responses: the rows, in the order of the file `source`.
        rollouts: the recorded inputs; `group` counts from 0 in the order in which groups appear.
        policy: the current policy at the same tokens; the old policy's numbers if the file has no `logprob`.
        moved: the file has a `logprob`, so ratios differ from 1.
        unread, notes: unknown fields; parts that were left out, and groups of odd sizes.
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
        return frozenset(self.rollouts.known() | self.policy.known())

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
    notes: Sequence[str],
) -> Recording:  # fmt: skip
    """The batch of these responses, named by `where` in messages."""
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
        if (values := [response.single.get(name) for response in responses])[0] is not None
    }
    known: dict[str, Any] = {
        "mask": torch.arange(int(lengths.max())) < lengths[:, None],
        "reward": torch.tensor([response.reward for response in responses], dtype=torch.float64),
        "group": torch.tensor(numbered([response.group for response in responses])),
        "rewards": torch.tensor(rewards, dtype=torch.float64) if names else None,
        "trajectory": None if responses[0].trajectory is None else torch.tensor(numbered([*_trajectories(responses)])),
        "kept_ids": _kept_ids(responses, int(lengths.max())),
        **single,
        **facts,
    }
    rollouts = Rollouts.of({name: x for name, x in known.items() if x is not None})
    notes = [*notes, *_of_groups(responses)]
    if unread:
        notes.append(f"Fields that the format does not know, not read: {', '.join(unread)}.")
    policy = Policy(**now)  # pyright: ignore[reportArgumentType]
    return Recording(source, tuple(responses), rollouts, policy, moved, responses[0].step, tuple(unread), tuple(notes))


def _require_alike(responses: Sequence[Response], where: Callable[[int], str]) -> None:
    """Refuses inputs and rewards that only some responses have."""
    inputs = frozenset().union(*(response.given for response in responses))
    for row, response in enumerate(responses):
        if missing := sorted(inputs - response.given):
            other = next(i for i, candidate in enumerate(responses) if missing[0] in candidate.given)
            lacks = f"no field {missing[0]!r}, which {where(other)} has"
            raise TokenPOError(f"{where(row)}: {lacks}: write it for every response, or for none")


def _padded(responses: Sequence[Response], name: str) -> Tensor | None:
    """[N, T] of one field, zero after the end of a response; None if the field is absent."""
    rows = [r.token_ids if name == "token_ids" else r.numbers.get(name) for r in responses]
    if rows[0] is None:
        return None
    width = max(len(response.tokens) for response in responses)
    padded = [[*row, *[0] * (width - len(row))] for row in rows if row is not None]
    return torch.tensor(padded, dtype=torch.long if name in WHOLE else torch.float64)


def _trajectories(responses: Sequence[Response]) -> Iterable[Hashable]:
    """The trajectory of each row; without one each row is its own."""
    return (row if response.trajectory is None else (response.trajectory,) for row, response in enumerate(responses))


def _kept_ids(responses: Sequence[Response], width: int) -> Tensor | None:
    """[N, T, K] int32, -1 where a token has fewer; None if the field is absent."""
    sets = [response.kept_ids for response in responses]
    if sets[0] is None:
        return None
    table = torch.full((len(sets), width, max(1, *(len(ids) for row in sets for ids in row or ()))), -1).int()
    for row, own in enumerate(sets):
        for column, ids in enumerate(own or ()):
            table[row, column, : len(ids)] = torch.tensor(ids)
    return table


def _of_groups(responses: Sequence[Response]) -> list[str]:
    """Notes on groups whose size shows that responses may be missing."""
    whole = dict(zip(_trajectories(responses), responses, strict=True))
    sizes = Counter(response.group for response in whole.values())
    if len(sizes) > 1 and max(sizes.values()) == 1:
        return ["Every response is a group of its own: give the responses to one prompt the same group."]
    common = max(sorted(set(sizes.values()), reverse=True), key=list(sizes.values()).count)
    odd = [f"{group!s:.40} has {size}" for group, size in sizes.items() if size != common]
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    said = f"Groups differ in size (most have {common} responses; group {', group '.join(odd[:3])}{more}): if "
    return [f"{said}responses are missing, the credit of their group is not that of the training."] if odd else []


def read(path: Path | str, step: int | None = None) -> Recording:
    """Reads the rollout batch of a JSON Lines file, or of a run directory; of several steps by default the last."""
    path = Path(path)
    if path.is_dir():
        run = next((path / place for place in PLACES if recorded_steps(path / place)), path)
        steps = recorded_steps(run)
        chosen = _choose_step(str(path), steps, step) if steps else None
        if chosen is None:
            raise TokenPOError(f"{path} holds no recorded rollouts: train with --set output.rollouts_every=10")
        path = step_file(run, chosen)
    if not path.is_file():
        raise TokenPOError(f"{path}: there is no such file: give a run directory, or rollouts (docs/rollouts.md)")
    return _read_lines(path, step)


def step_file(run: Path | str, step: int) -> Path:
    """The file with a step's rollouts in a run directory."""
    return Path(run) / FOLDER / f"step-{step:06d}.jsonl"


def recorded_steps(run: Path) -> list[int]:
    """The steps with recorded rollouts in a run directory, ascending."""
    names = (re.fullmatch(r"step-(\d+)\.jsonl", file.name) for file in (run / FOLDER).glob("step-*.jsonl"))
    return sorted(int(name[1]) for name in names if name)


def drop_after(run: Path, step: int) -> None:
    """Removes the rollouts of later steps; a run resumed from `step` records them again."""
    for later in recorded_steps(run):
        if later > step:
            step_file(run, later).unlink()


def write_lines(path: Path | str, records: Iterable[Response | Mapping[str, Any]]) -> Path:
    """Writes the file whole or not at all; ValueError for a non-finite number, TokenPOError if it cannot be written."""
    path = Path(path)
    with explained(lambda why: f"{path} cannot be written: {why}; give another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair is not a character, but its escape is allowed in a JSON string.
        with whole(path) as part, part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            for response in records:
                line = response.as_json() if isinstance(response, Response) else response
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _read_lines(path: Path, step: int | None = None) -> Recording:
    """The batch of a step, by default the last; a note counts lines that are not JSON objects."""
    notes: list[str] = []
    lines = [(line.number, line.value) for line in whole_lines(path, _object, notes)]
    if not lines:
        cause = notes[0].rstrip(".") if notes else "the file is empty"
        raise TokenPOError(f"{path} holds no response ({cause}): write one JSON object a line (docs/rollouts.md)")
    read_lines = [(number, parse(f"{path} line {number}", value)) for number, value in lines]
    steps = sorted({response.step for _, response in read_lines if response.step is not None})
    chosen_step = _choose_step(str(path), steps, step)
    chosen = [(number, response) for number, response in read_lines if response.step in (chosen_step, None)]
    if len(steps) > 1:
        notes.append(f"{path.name} holds {len(steps)} steps; shown is step {chosen_step}.")
    unread = dict.fromkeys(name for _, value in lines for name in map(plain, value) if name not in KNOWN)
    where = [f"{path} line {number}" for number, _ in chosen]
    return record(str(path), [response for _, response in chosen], where.__getitem__, [*unread], notes)


def _choose_step(source: str, steps: list[int], step: int | None) -> int | None:
    """`step`, or the last step; TokenPOError if it is missing."""
    if step is None:
        return steps[-1] if steps else None
    if step not in steps:
        listed = ", ".join(map(str, steps[-20:])) or "none is named"
        raise TokenPOError(f"{source} holds no rollouts of step {step} (steps: {listed}): give one of these")
    return step


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    return value
