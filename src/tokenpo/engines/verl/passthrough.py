"""The section [verl] of a recipe: settings of verl's own, handed on as they are written.

A cluster run needs settings that a recipe of ours has no place for: nodes, tensor parallelism, memory, the prompt
length, a data set in verl's columns. They stand in tables whose paths are verl's:

    [verl.actor_rollout_ref.rollout]
    tensor_model_parallel_size = 4            # actor_rollout_ref.rollout.tensor_model_parallel_size=4

    [verl."+reward".reward_kwargs]
    max_resp_len = 20480                      # +reward.reward_kwargs.max_resp_len=20480: Hydra's + adds a new key
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ...base.errors import TokenPOError

# Hydra's own spelling of a key; a leading + adds one that verl's configuration does not have, ++ adds or changes.
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.-]*")
_BARE = re.compile(r"(?!(true|false|null|nan|inf)$)[A-Za-z_/][\w./-]*", re.IGNORECASE)


def with_passthrough(
    ours: Mapping[str, Any], section: Mapping[str, Any], defaults: Container[str] = ()
) -> dict[str, Any]:
    """Our settings and behind them those of the recipe's section [verl].

    Args:
        ours: verl's key -> value.
        section: the nested tables of [verl].
        defaults: keys of ours about which the recipe's other sections say nothing: [verl] takes their place.

    Raises:
        TokenPOError: a key that Hydra could not read, or one that the recipe sets in another section too.
    """
    theirs = dict(_flat(section, ""))
    replaced = {_plain(key) for key in theirs}
    kept = {key: value for key, value in ours.items() if not (key in defaults and _plain(key) in replaced)}
    for key in theirs:
        _refuse(key, kept)
    return kept | theirs


def brings_data(section: Mapping[str, Any]) -> bool:
    """Whether [verl.data] names files in verl's columns: then verl reads and scores them, and our task is not asked.

    Raises:
        TokenPOError: the train file without the held-out one, or the reverse.
    """
    named = section.get("data", {})
    missing = [key for key in ("train_files", "val_files") if key not in named]
    if len(missing) == 1:
        raise TokenPOError(f"[verl.data] names data files, but no {missing[0]}: add it, or leave both to the task")
    return not missing


def literal(value: Any) -> str:
    """A value in Hydra's grammar.

    >>> literal([1e-06, True, "left", "a, b"]), literal(None), literal({})
    ('[1e-06,true,left,"a, b"]', 'null', '{}')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{literal(key)}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str) and not _BARE.fullmatch(value):
        # Between Hydra's quotes backslashes escape only where they lead up to a quote.
        return '"' + re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value) + '"'
    return str(value)


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        elif _KEY.fullmatch(key):
            yield key, _nulls(value)
        else:
            raise TokenPOError(
                f"[verl]: {key!r} is no key of verl's configuration: write its path, as in [verl.trainer] nnodes = 2; "
                'only a new key begins with +, as in [verl."+reward".reward_kwargs]'
            )


def _nulls(value: Any) -> Any:
    """TOML has no null: "none" stands for it, as everywhere in a recipe."""
    if isinstance(value, list):
        return [_nulls(item) for item in value]
    return None if value == "none" else value


def _refuse(key: str, ours: Mapping[str, Any]) -> None:
    """Two values for one setting would be decided by their order, which nobody sees."""
    plain = _plain(key)
    for written in ours:
        other = _plain(written)
        if f"{plain}.".startswith(f"{other}.") or f"{other}.".startswith(f"{plain}."):
            raise TokenPOError(
                f"[verl]: {key} comes from the recipe's other sections already ({written}={literal(ours[written])}): "
                "take it out of [verl] and change it there"
            )


def _plain(key: str) -> str:
    return key.lstrip("+")
