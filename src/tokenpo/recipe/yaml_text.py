"""Read a recipe in YAML with the values and limits of TOML, without tags and references."""

from typing import Any

import yaml  # installed with transformers

from .command_line import DEEPEST, LONGEST, MOST, toml_value


def tables(text: str) -> dict[str, Any]:
    """The tables of a YAML text; raises ValueError or RecursionError if it is not YAML.

    A value without quotes is read as in TOML (1e-3 is a number, yes is text), a value in quotes is text; `null` is
    "none".
    """
    if len(text) > LONGEST:
        raise ValueError(f"a recipe has at most {LONGEST:,} characters")
    try:
        _require_bounded(text)
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ValueError(f"{error.problem}{mark and f' (at line {mark.line + 1}, column {mark.column + 1})'}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("it holds no sections (a recipe in TOML is called .toml)")
    return _value(node)


def _require_bounded(text: str) -> None:
    """Refuses references, tags and excessive size while parsing, before the values are built."""
    depth = keys = 0
    for event in yaml.parse(text, yaml.BaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        keys += isinstance(event, yaml.ScalarEvent)
        place = f" (at line {event.start_mark.line + 1})"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            raise ValueError(f"references and tags have no place in a recipe{place}")
        if depth > DEEPEST or keys > 2 * MOST:
            raise ValueError(f"a recipe is at most {DEEPEST} deep and has at most {MOST:,} keys{place}")


def _value(node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        if node.style is not None:
            return node.value
        return "none" if node.value in ("", "~", "null") else toml_value(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    table = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in table:
            raise ValueError(f"a key is a name, and stands once (at line {key.start_mark.line + 1})")
        table[key.value] = _value(item)
    return table
