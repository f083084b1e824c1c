"""The methods that take turns, and where their trainer writes; importable without verl."""

from __future__ import annotations

METHODS = (
    "grpo", "dr_grpo", "dapo", "gspo", "tepo", "gtpo", "grpo_s", "tr_grpo", "clip_cov", "kl_cov", "lopti", "hapo",
)  # fmt: skip
CHOSEN, LOG = "TOKENPO_TEST_METHODS", "turns.jsonl"
