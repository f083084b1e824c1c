"""One recorded response: read and checked from a file's line, or made from a batch of tensors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from ..base.errors import MissingInput, TokenPOError, nearest
from ..core.facts import facts_of
from ..core.types import EXTRA, Policy, Rollouts
from ..core.types import FACTS as DECLARED
from ..methods import METHODS  # noqa: F401 (their parts declare what is in EXTRA)

# Fields with one number per token: FACTS are fractional, WHOLE are integers, NOW belong to the current policy.
_OF_ROLLOUTS = {name: fact for name, fact in DECLARED.items() if name not in facts_of(Policy)}
FACTS, WHOLE = (
    tuple(name for name, fact in _OF_ROLLOUTS.items() if fact.shape == "[N, T]" and fact.kind.whole is whole)
    for whole in (False, True)
)
NOW = tuple(facts_of(Policy))
# Optional fields with one number for the response.
PER_RESPONSE = tuple(name for name, fact in EXTRA.items() if fact.shape == "[N]")
PER_TOKEN = (*FACTS, *NOW, *(name for name in WHOLE if name != "token_ids"))
ONE = ("temperature", "version")  # a line may have one number for all its tokens
REQUIRED = {
    "group": "the same number or text for all responses to one prompt",
    "reward": "the number that the response earned",
    "tokens": "one string for each response token, or token_ids",
    "old_logprob": "the log-probability, in nats, of each token under the policy that the update starts from",
}
_OTHERS = "trajectory token_ids kept_ids prompt correct step rewards".split()
KNOWN = frozenset((*REQUIRED, *_OTHERS, *PER_RESPONSE, *PER_TOKEN))


@dataclass(frozen=True)
class Response:
    """One response of T tokens; None is unknown.

    Args:
        numbers: name -> T numbers; names are those of `PER_TOKEN`.
        single: name -> a number; names are those of `PER_RESPONSE`.
        rewards: reward function -> its reward; None where a function does not apply.
        kept_ids: T lists, the tokens among which the sampler chose; none for the whole vocabulary.
    """

    group: int | str
    reward: float
    tokens: tuple[str, ...]
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    token_ids: tuple[int, ...] | None = None
    prompt: str = ""
    correct: bool | None = None
    step: int | None = None
    single: Mapping[str, float] = field(default_factory=dict)
    rewards: dict[str, float | None] | None = None
    trajectory: int | str | None = None
    kept_ids: tuple[tuple[int, ...], ...] | None = None

    @property
    def given(self) -> frozenset[str]:
        plain = [name for name in ("token_ids", "step", "trajectory", "kept_ids") if getattr(self, name) is not None]
        return frozenset([*self.numbers, *self.single, *plain, *(f"rewards.{name}" for name in self.rewards or ())])

    def as_json(self) -> dict[str, Any]:
        """The line of a JSON Lines file, without absent fields."""
        places = ("step", "group", "trajectory", "prompt", "reward", "correct")
        line: dict[str, Any] = {name: getattr(self, name) for name in places}
        line |= {name: getattr(self, name) for name in ("rewards", "tokens", "token_ids", "kept_ids")}
        line |= {**self.single, **self.numbers}
        line |= {name: x[0] for name in ONE if len(set(x := self.numbers.get(name, ()))) == 1}
        return {name: value for name, value in line.items() if value is not None}


def responses(
    rollouts: Rollouts, tokens: Sequence[Sequence[str]], *, groups: Sequence[int | str] | None = None,
    prompts: Sequence[str] | None = None, correct: Sequence[bool | None] | None = None, step: int | None = None,
    policy: Policy | None = None, reward_names: Sequence[str] | None = None,
) -> Iterator[Response]:  # fmt: skip
    """A batch of tensors as responses; a float32 number becomes the shortest decimal that reads back as the same.

    Args:
        tokens: for each of N rollouts one string per response token.
        groups: [N] names, in place of `rollouts.group`.
        policy: the current policy, if it is not the one that sampled.
        reward_names: [R] names of the columns of `rollouts.rewards`; None numbers them.
    """
    columns = {name: rollouts.get(name) if name not in NOW else policy and policy.get(name) for name in PER_TOKEN}
    per_token = {name: x.detach().cpu() for name, x in columns.items() if x is not None}
    group_names = rollouts.group.tolist() if groups is None else groups
    ids = None if rollouts.token_ids is None else rollouts.token_ids.cpu()
    kept = None if rollouts.kept_ids is None else rollouts.kept_ids.cpu()
    single = {name: x.tolist() for name in PER_RESPONSE if (x := rollouts.get(name)) is not None}
    reward = rollouts.reward.tolist()
    each = None if rollouts.rewards is None else rollouts.rewards.tolist()
    trajectory = None if rollouts.trajectory is None else rollouts.trajectory.tolist()
    names = [str(i) for i in range(len(each[0]))] if each and reward_names is None else reward_names or ()
    for row, row_mask in enumerate(rollouts.mask.cpu()):
        yield Response(
            group=group_names[row],
            reward=shortest(reward[row]),
            tokens=tuple(tokens[row]),
            numbers={name: tuple(map(shortest, x[row][row_mask].tolist())) for name, x in per_token.items()},
            token_ids=None if ids is None else tuple(ids[row][row_mask].tolist()),
            prompt="" if prompts is None else prompts[row],
            correct=None if correct is None else correct[row],
            step=step,
            single={name: shortest(x[row]) for name, x in single.items()},
            trajectory=None if trajectory is None else trajectory[row],
            rewards=None
            if each is None
            else {name: None if math.isnan(x) else shortest(x) for name, x in zip(names, each[row], strict=True)},
            kept_ids=None
            if kept is None
            else tuple(tuple(i for i in own if i >= 0) for own in kept[row][row_mask].tolist()),
        )


def shortest(x: float) -> float:
    """The shortest decimal with the same float32 value; integers, and numbers that are not float32, stay the same.

    >>> shortest(0.10000000149011612), shortest(0.1)
    (0.1, 0.1)
    """
    with np.errstate(over="ignore"):
        y = np.float32(x)
    return float(str(y)) if isinstance(x, float) and float(y) == x else x


def parse(where: str, line: Mapping[str, Any]) -> Response:
    """A checked response; null means that an optional field is absent; `where` is its place in messages."""
    line = {name: value for name, value in line.items() if value is not None}
    for name, meaning in REQUIRED.items():
        if name not in line and not (name == "tokens" and "token_ids" in line):
            fields = nearest(name, map(plain, line), "fields")
            raise MissingInput(f"{where}: no field {name!r} ({fields}): give {meaning}")
    try:
        read: Any = _Line.model_validate(line)
    except ValidationError as error:
        raise TokenPOError(f"{where}: {_explained(error.errors(include_url=False)[0])}") from None
    ids = None if read.token_ids is None else tuple(read.token_ids)
    tokens = tuple(f"[{i}]" for i in ids or ()) if read.tokens is None else tuple(read.tokens)
    numbers = {name: values for name in PER_TOKEN if (values := getattr(read, name)) is not None}
    numbers |= {name: [x] * len(tokens) for name in ONE if isinstance(x := numbers.get(name), int | float)}
    for name, values in (("token_ids", ids), ("kept_ids", read.kept_ids), *numbers.items()):
        if values is not None and len(values) != len(tokens):
            raise TokenPOError(
                f"{where}: {name!r} has {len(values)} values for {len(tokens)} tokens: give one for each"
            )
    for name, values in numbers.items():
        kind = DECLARED[name].kind  # checked here too, because a batch cannot name the line
        wrong = next((i for i, x in enumerate(values) if kind.outside(x)), None)
        if wrong is not None:
            raise TokenPOError(f"{where}: '{name}[{wrong}]' is {values[wrong]:g}, but {kind.words}")
    plainly = {name: getattr(read, name) for name in _PLAIN}
    per_token = {name: tuple(values) for name, values in numbers.items()}
    single = {name: x for name in PER_RESPONSE if (x := getattr(read, name)) is not None}
    kept = None if read.kept_ids is None else tuple(map(tuple, read.kept_ids))
    return Response(**plainly, single=single, tokens=tokens, token_ids=ids, numbers=per_token, kept_ids=kept)


def plain(name: str) -> str:
    """A field's name for a message: short, without control sequences."""
    return (name if name.isprintable() else repr(name))[:40]


_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Numbering = list[_Number]


_PLAIN = ("group", "reward", "prompt", "correct", "step", "rewards", "trajectory")  # as `Response` declares them
_TYPES: dict[str, Any] = {x.name: (x.type, ... if x.default is MISSING else x.default) for x in fields(Response)}
_TYPES = {name: _TYPES[name] for name in _PLAIN}
_TYPES |= dict.fromkeys(PER_TOKEN, (list[float] | None, None)) | dict.fromkeys(PER_RESPONSE, (float | None, None))
_TYPES |= dict.fromkeys(WHOLE, (_Numbering | None, None))
_TYPES["rewards"] = (dict[str, float | None] | None, Field(default=None, min_length=1))
_TYPES |= {"tokens": (list[str] | None, None), "kept_ids": (list[_Numbering] | None, None)}
_TYPES |= {"temperature": (list[float] | float | None, None), "version": (None | _Numbering | _Number, None)}
# Nothing is converted: true is not a group, and 1 is not a verdict.
_Line = create_model("_Line", __config__=ConfigDict(strict=True, allow_inf_nan=False), **_TYPES)


def _explained(problem: ErrorDetails) -> str:
    name, *steps = problem["loc"]
    place = str(name) + "".join(f"[{step}]" for step in steps if isinstance(step, int))
    return f"{place!r} is {problem['input']!r:.40}: {problem['msg'].replace('Input', 'it', 1)}"
