"""The section [verl] of a recipe: overrides for verl's own configuration, handed on as they are written.

A cluster run needs settings that a recipe of ours has no place for: nodes, tensor parallelism, memory, the prompt
length. They stand in tables whose paths are verl's:

    [verl.actor_rollout_ref.rollout]
    tensor_model_parallel_size = 4            # actor_rollout_ref.rollout.tensor_model_parallel_size=4

    [verl."+reward".reward_kwargs]
    max_resp_len = 20480                      # +reward.reward_kwargs.max_resp_len=20480: Hydra's + adds a new key
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import TokenPOError

# Hydra's own spelling of a key; a leading + adds one that verl's configuration does not have, ++ adds or changes.
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.-]*")
_BARE = re.compile(r"(?!(true|false|null|nan|inf)$)[A-Za-z_/][\w./-]*", re.IGNORECASE)


def with_passthrough(ours: Sequence[str], section: Mapping[str, Any]) -> list[str]:
    """Our overrides followed by those of the recipe's section [verl].

    Args:
        ours: "key=value", as Hydra takes them.
        section: the nested tables of [verl].

    Raises:
        TokenPOError: a key that Hydra could not read, or one that we set already.
    """
    taken = {_plain(key): key for key in (override.partition("=")[0] for override in ours)}
    theirs = list(_flat(section, ""))
    for key, _ in theirs:
        _refuse(key, taken)
    return [*ours, *(f"{key}={literal(value)}" for key, value in theirs)]


def literal(value: Any) -> str:
    """A value of TOML in Hydra's grammar; "none" stands for null, as everywhere in a recipe.

    >>> literal([1e-06, True, "left", "a, b"]), literal("none"), literal({})
    ('[1e-06,true,left,"a, b"]', 'null', '{}')
    """
    if value is None or value == "none":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, str) and not _BARE.fullmatch(value):
        # Between Hydra's quotes backslashes escape only where they lead up to a quote.
        return '"' + re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value) + '"'
    return "{}" if isinstance(value, Mapping) else str(value)


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        elif _KEY.fullmatch(key):
            yield key, value
        else:
            raise TokenPOError(
                f"[verl]: {key!r} is no key of verl's configuration: write its path, as in [verl.trainer] nnodes = 2; "
                'only a new key begins with +, as in [verl."+reward".reward_kwargs]'
            )


def _refuse(key: str, taken: Mapping[str, str]) -> None:
    """Two values for one setting would be decided by their order, which nobody sees."""
    plain = _plain(key)
    for other, written in taken.items():
        if f"{plain}.".startswith(f"{other}.") or f"{other}.".startswith(f"{plain}."):
            raise TokenPOError(
                f"[verl]: {key} is set by the recipe's other sections (as {written}): take it out of [verl] and "
                "change it there"
            )


def _plain(key: str) -> str:
    return key.lstrip("+~")
