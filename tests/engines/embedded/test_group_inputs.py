"""What the engine computes for methods that compare more than rewards inside a group."""

from __future__ import annotations

import pytest
import torch

from oracle_support.group_stats import naive_collision, naive_divergence, naive_influence, naive_prompt_logprob
from tokenpo.cli.view import SilentView
from tokenpo.engines.embedded.loop import train, with_optional_inputs

INPUTS = {
    "tw_grpo": "divergence",
    "nthr": "influence",
    "thr": "influence",
    "arm": "prompt_logprob",
    "otb": "old_collision",
}


def recomputed(name: str, lm, rollouts, kept) -> torch.Tensor:
    """By full forward passes under the weights of the moment."""
    texts = (lm, kept.prompts, rollouts.group, kept.token_ids, kept.mask, kept.temperature)
    if name == "influence":
        return naive_influence(*texts, kept.reward())
    if name == "divergence":
        return naive_divergence(*texts)
    if name == "old_collision":
        return naive_collision(*texts)
    return torch.tensor(naive_prompt_logprob(lm, kept.prompts, 0.8), dtype=torch.float64)[rollouts.group]


@pytest.mark.parametrize("method", INPUTS)
def test_a_run_sees_what_a_naive_recomputation_gives(method, small, coin, tmp_path, monkeypatch):
    """In every step, of the weights before it; the passes of at most 60 tokens cut through groups."""
    steps = []

    def watched(engine, forward, rollouts, kept):
        facts = with_optional_inputs(engine, forward, rollouts, kept)
        steps.append((facts, recomputed(INPUTS[method], engine.lm, rollouts, kept)))
        return facts

    monkeypatch.setattr("tokenpo.engines.embedded.loop.with_optional_inputs", watched)
    config = small(
        tmp_path / "run", method={"name": method}, train={"steps": 2, "micro_tokens": 60},
        rollout={"temperature": 0.8}, evaluate={"problems": 0},
    )  # fmt: skip
    assert train(config, SilentView()).finished
    assert len(steps) == 2
    for facts, wanted in steps:
        got = getattr(facts, INPUTS[method])
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
        assert wanted.unique().numel() > 3
        others = set(INPUTS.values()) - {INPUTS[method]}
        assert all(getattr(facts, name) is None for name in others), "nobody asked for these"
