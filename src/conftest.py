"""Doctests of a module are collected where what it imports is installed."""

from importlib.util import find_spec

collect_ignore_glob = [f"tokenpo/hosts/{name}/*" for name in ("trl", "verl", "vllm") if find_spec(name) is None]
if find_spec("triton") is None:
    collect_ignore_glob.append("tokenpo/core/head/softmax_triton.py")
