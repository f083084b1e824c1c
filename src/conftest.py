"""Doctests of an adapter's modules are collected where its engine is: elsewhere they cannot be imported."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [f"tokenpo/engines/{name}/*" for name in ("trl", "verl", "vllm") if find_spec(name) is None]
