"""Pure pieces of sampling, torch only: seeds, a private stream of uniforms per rollout, and one draw from logits."""

from __future__ import annotations

from .draw import Draw, TemperatureRule, draw, greedy
from .streams import stream_keys, uniforms

__all__ = ["Draw", "TemperatureRule", "draw", "greedy", "stream_keys", "uniforms"]
