"""Continuations in the embedded engine: drawn from the right places, counted, and the same on resume."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from run_views import numbers
from tokenpo.cli.view import SilentView
from tokenpo.core.parts import Continuations, EveryTokens
from tokenpo.core.seeds import keyed_seed
from tokenpo.engines.embedded.loop import build_engine, resume, train
from tokenpo.engines.embedded.rollout import collect
from tokenpo.models import Sampling, sample
from tokenpo.recipe.plan import Plan

LENGTH = 6


def one_by_one(engine, experience, plan: Continuations, cursor: int) -> tuple[torch.Tensor, int]:
    """Value [N, T] at the cuts and tokens drawn: a call of the sampler for each prefix, the coin's rule by hand."""
    facts, kept = experience.rollouts, experience.kept
    value, tokens, known = torch.zeros_like(facts.old_logprob), 0, {}
    seed = keyed_seed(engine.config.seed, "continuations", cursor)
    for row, t in plan.at(facts).nonzero().tolist():
        said = facts.token_ids[row, :t].tolist()
        key = (int(facts.group[row]), tuple(said))
        if key not in known:
            prompt = kept.prompts[key[0]] + said
            drawn = sample(engine.lm, [prompt], plan.count, Sampling(LENGTH - t, 1.0, seed), streams=[len(known)])
            sums = (drawn.token_ids * drawn.mask).sum(1) + sum(said)
            known[key] = float((sums % 2 == 0).double().mean())
            tokens += int(drawn.mask.sum())
        value[row, t] = known[key]
    return value, tokens


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_drawn_is_what_one_call_for_each_prefix_draws(count, small, coin, tmp_path) -> None:
    """Whatever stands beside it; shared prefixes once; gains are made of these values."""
    engine = build_engine(Plan(small(tmp_path / "run")))
    plan = Continuations(EveryTokens(2), count)
    seen = collect(engine.config, engine.lm, engine.task, 8, None, plan)
    value, tokens = one_by_one(engine, seen, plan, 8)
    facts = dataclasses.replace(seen.rollouts, gain=None)
    gain = plan.gain(facts, plan.at(facts), value).float()
    assert torch.equal(seen.rollouts.gain, gain * facts.mask)
    assert seen.continued == tokens > 0
    assert value.unique().numel() > 1
    prefixes = {
        (int(facts.group[row]), tuple(facts.token_ids[row, :t].tolist()))
        for row, t in plan.at(facts).nonzero().tolist()
    }
    assert len(prefixes) < int(plan.at(facts).sum()), "the prompt of a group is a prefix that all share"


def test_without_a_plan_nothing_is_drawn(small, coin, tmp_path) -> None:
    engine = build_engine(Plan(small(tmp_path / "run")))
    seen = collect(engine.config, engine.lm, engine.task, 0, None)
    assert seen.rollouts.gain is None
    assert seen.continued == 0


@pytest.mark.parametrize("method", [
    {"name": "vineppo", "every": 3, "continuations": 2}, {"name": "spo", "interval": 2, "continuations": 2},
    {"name": "remax"},
])  # fmt: skip
def test_a_run_learns_counts_and_resumes(method, small, coin, tmp_path) -> None:
    """Two steps and two more are four, in every number; the weights have moved."""
    whole = small(tmp_path / "whole", method=method, evaluate={"problems": 0})
    half = small(tmp_path / "half", method=method, evaluate={"problems": 0}, train={"steps": 2})
    train(whole, SilentView())
    train(half, SilentView())
    resume(tmp_path / "half", SilentView(), small(tmp_path / "half", method=method, evaluate={"problems": 0}))
    made = numbers(tmp_path / "whole")
    assert len(made) == 4 and made == numbers(tmp_path / "half")
    assert all(line["continued_tokens"] > 0 and line["grad_norm"] > 0 for line in made)


def test_the_baseline_is_the_reward_of_a_greedy_response(small, coin, tmp_path) -> None:
    """One greedy response to each kept problem, whatever else is drawn; `continued` counts its tokens too."""
    engine = build_engine(Plan(small(tmp_path / "run", method={"name": "remax"})))
    seen = collect(engine.config, engine.lm, engine.task, 8, None, baseline=True)
    plain = collect(engine.config, engine.lm, engine.task, 8, None)
    assert plain.rollouts.baseline is None and plain.continued == 0
    assert torch.equal(seen.rollouts.token_ids, plain.rollouts.token_ids)
    tokens, rewards = 0, []
    for prompt in seen.kept.prompts:
        drawn = sample(engine.lm, [prompt], 1, Sampling(LENGTH, 0.0))
        tokens += int(drawn.mask.sum())
        rewards.append(float((drawn.token_ids * drawn.mask).sum() % 2 == 0))
    assert seen.rollouts.baseline.tolist() == [rewards[group] for group in seen.rollouts.group.tolist()]
    assert seen.continued == tokens
