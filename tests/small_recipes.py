"""A recipe of a few steps from plain sections, as a file would hold them."""

from typing import Any

from tokenpo.train.recipe.config import Config, parse_config


def merged(usual: dict[str, Any], sections: dict[str, Any], place: str = "recipe.toml") -> Config:
    """The usual sections, each with what replaces some of it."""
    raw = {**usual}
    for name, section in sections.items():
        raw[name] = {**raw.get(name, {}), **section} if isinstance(section, dict) else section
    return parse_config(raw, place)
