"""An update is exact: neither its split into micro-batches nor the rows it skips change the gradient."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tokenpo.base.errors import Unsupported
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.types import Batch, Totals
from tokenpo.engines.embedded.engine import build_engine
from tokenpo.engines.embedded.forward import Forward
from tokenpo.engines.embedded.rollout import collect
from tokenpo.engines.embedded.step import (
    Learner,
    RatioCheck,
    _descend,
    accumulate,
    improve,
    learning_rate,
    live_rows,
    minibatches,
)
from tokenpo.recipe.config import Train
from tokenpo.runs.tally import Tally, Tracer

METHODS = ["grpo", "dr_grpo", "hapo", "tepo", "clip_cov", "kl_cov", "grpo_s"]


@pytest.fixture
def make(small, tmp_path, coin, double_dir):
    """Learner, rollouts, prompts and credit, with the policy a little away from the one that sampled."""

    def build(method: str, dtype: str, settled: int = 0, move: float = 0.05, **options):
        coin.settled = settled
        rollout = {"prompts": 6, "group_size": 4, "max_new_tokens": 9}
        model = {"dtype": dtype, **({"path": str(double_dir)} if dtype == "float64" else {})}
        config = small(tmp_path, method={"name": method, **options}, model=model, rollout=rollout)
        engine = build_engine(config)
        experience = collect(config, engine.lm, engine.task, 0, None)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for x in engine.lm.model.parameters():
                x += move * torch.randn(x.shape, generator=generator, dtype=x.dtype) * x.abs().mean()
        rollouts = experience.rollouts
        if "ref_logprob" in engine.objective.needs:
            rollouts = dataclasses.replace(rollouts, ref_logprob=rollouts.old_logprob)
        learner = Learner.of(config, engine.lm, engine.objective)
        return learner, rollouts, experience.kept.prompts, engine.objective.prepare(rollouts)

    return build


def gradient(learner: Learner, rollouts, prompts, credit, rows: int = 1000, tokens: int = 10**6) -> torch.Tensor:
    forward = dataclasses.replace(learner.forward, micro_rows=rows, micro_tokens=tokens)
    accumulate(dataclasses.replace(learner, forward=forward), rollouts, prompts, credit, 0, Tally())
    return torch.cat([x.grad.flatten() for x in learner.parameters])


def straight(learner: Learner, rollouts, prompts, credit) -> torch.Tensor:
    """The whole minibatch in one forward and one backward pass, no row left out."""
    for x in learner.parameters:
        x.grad = None
    batch = Batch(rollouts, credit, learner.forward.policy(rollouts, prompts))
    batch = learner.objective.observe(batch, keyed_generator(learner.seed, "observe", 0))
    learner.objective.loss(batch, Totals.of(rollouts, learner.length)).value.backward()
    return torch.cat([x.grad.flatten() for x in learner.parameters])


# In float32 sums of some hundred terms in another order, which come through a whole model.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("method", METHODS)
def test_any_split_into_micro_batches_gives_the_same_gradient(make, method, dtype, tolerance):
    learner, *data = make(method, dtype)
    whole = gradient(learner, *data)
    assert whole.norm() > 1e-3
    for rows, tokens in ((1, 10**6), (5, 10**6), (1000, 40)):
        assert (gradient(learner, *data, rows, tokens) - whole).norm() <= tolerance * whole.norm()


@pytest.mark.parametrize("method", ["grpo", "hapo", "tr_grpo", "gtpo", "gspo", "clip_cov", "tepo"])
def test_rows_without_advantage_are_skipped_and_nothing_changes(make, method):
    learner, rollouts, prompts, credit = make(method, "float64", settled=2)
    assert learner.skips
    assert 0 < len(live_rows(rollouts, credit, skip=True)) <= 12 < len(live_rows(rollouts, credit, skip=False)) == 24
    exact = straight(learner, rollouts, prompts, credit)
    assert (gradient(learner, rollouts, prompts, credit, 5) - exact).norm() <= 1e-12 * exact.norm()


@pytest.mark.parametrize(("method", "options"), [("kl_cov", {"fraction": 0.5}), ("grpo", {"beta": 0.1})])
def test_rows_with_a_penalty_are_never_skipped(make, method, options):
    learner, rollouts, prompts, credit = make(method, "float64", settled=2, **options)
    assert not learner.skips
    exact = straight(learner, rollouts, prompts, credit)
    assert (gradient(learner, rollouts, prompts, credit, 5) - exact).norm() <= 1e-12 * exact.norm()


def test_a_minibatch_without_live_rows_is_an_update_with_gradient_zero(make):
    learner, *live = make("grpo", "float32")
    _, *dead = make("grpo", "float32", settled=1)
    accumulate(learner, *live, 0, Tally())
    _descend(learner, 0)
    before = torch.cat([x.detach().flatten() for x in learner.parameters])
    accumulate(learner, *dead, 1, Tally())
    assert all(x.grad is not None and not x.grad.any() for x in learner.parameters)
    _descend(learner, 1)
    after = torch.cat([x.detach().flatten() for x in learner.parameters])
    assert (after - before).abs().max() > 1e-4  # Adam's momentum goes on, as it would had the rows been evaluated


def test_every_row_is_in_one_minibatch_of_each_epoch():
    group = torch.arange(5).repeat_interleave(3)
    for by in ("groups", "rows"):
        plan = minibatches(group, Train(minibatches=2, epochs=3, minibatch_by=by), torch.Generator().manual_seed(0))
        assert len(plan) == 6
        for epoch in (plan[:2], plan[2:4], plan[4:]):
            assert torch.cat(epoch).sort().values.tolist() == list(range(15))
        assert plan[0].tolist() != plan[2].tolist()
        whole = all(len(set(group[part].tolist())) * 3 == len(part) for part in plan)
        assert whole == (by == "groups")


def test_fewer_groups_than_minibatches_make_fewer_updates():
    plan = minibatches(torch.tensor([0, 0, 1, 1]), Train(minibatches=8), torch.Generator().manual_seed(0))
    assert [len(part) for part in plan] == [2, 2]


def test_warm_up_is_linear_and_reaches_the_rate():
    options = Train(lr=1.0, warmup=3)
    assert [learning_rate(options, i) for i in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate(Train(lr=1.0), 0) == 1.0


def test_a_policy_that_did_not_sample_is_refused(make):
    learner, *data = make("grpo", "float32", move=0.5)
    with pytest.raises(Unsupported, match=r"grpo: before the first update.*rollout\.rescore"):
        improve(learner, *data, 0, Tracer(0), RatioCheck())
    learner, *data = make("grpo", "float32", move=0.0)
    tally = improve(learner, *data, 0, Tracer(0), RatioCheck())
    assert tally.updates == 2


def test_the_policy_is_held_to_the_sampler_in_the_first_batch_that_shows_something(make):
    learner, rollouts, prompts, credit = make("grpo", "float32", move=0.5)
    silent, check = dataclasses.replace(credit, advantage=torch.zeros_like(credit.advantage)), RatioCheck()
    improve(learner, rollouts, prompts, silent, 0, Tracer(0), check)
    with pytest.raises(Unsupported, match="before the first update"):
        improve(learner, rollouts, prompts, credit, 2, Tracer(0), check)
    learner, *data = make("grpo", "float32", move=0.0)
    improve(learner, *data, 0, Tracer(0), check)
    learner, *data = make("grpo", "float32", move=0.5)
    improve(learner, *data, 0, Tracer(0), check)  # asked once


def test_the_policy_is_held_to_the_sampler_after_an_update_that_was_skipped(make, monkeypatch):
    learner, rollouts, *rest = make("grpo", "float32", move=0.5)
    learner = dataclasses.replace(learner, options=learner.options.model_copy(update={"nonfinite": "skip"}))
    real, calls = Forward._passes, []

    def passes(self, *arguments):
        calls.append(1)
        for seen in real(self, *arguments):
            yield seen._replace(out=seen.out.index_fill(0, torch.tensor([0]), torch.nan)) if len(calls) == 1 else seen

    monkeypatch.setattr(Forward, "_passes", passes)
    with pytest.raises(Unsupported, match="before the first update"):
        improve(learner, rollouts, *rest, 0, Tracer(0), RatioCheck())
    assert len(calls) > 1


def test_the_summary_is_that_of_the_tensors_of_the_loss(make):
    learner, rollouts, prompts, credit = make("dapo", "float64")
    tally = Tally()
    accumulate(learner, rollouts, prompts, credit, 0, tally)
    tally.add_update(torch.tensor(2.0), 0.5)
    policy = learner.forward.policy(rollouts, prompts)
    loss = learner.objective.loss(Batch(rollouts, credit, policy), Totals.of(rollouts, learner.length))
    mask = rollouts.mask
    scored = mask & (credit.advantage != 0).any(1)[:, None]
    ratio, clipped = loss.terms["ratio"], loss.terms["clipped"].bool() & scored
    seen = tally.summary()
    assert clipped.any()
    assert seen["ratio_mean"] == pytest.approx(float(ratio[scored].mean()))
    assert seen["ratio_min"] == pytest.approx(float(ratio[scored].min()))
    assert seen["ratio_max"] == pytest.approx(float(ratio[scored].max()))
    assert seen["clip_fraction"] == pytest.approx(float(clipped.sum() / mask.sum()))
    assert seen["clip_low_fraction"] == pytest.approx(float((clipped & (ratio < 0.8)).sum() / mask.sum()))
    assert seen["effective_tokens"] == pytest.approx(float((scored & ~clipped).sum() / mask.sum()))
    kl = (ratio - 1 - ratio.log())[scored].mean()
    assert seen["kl"] == pytest.approx(float(kl))
    assert (seen["loss"], seen["grad_norm"], seen["lr"]) == (pytest.approx(loss.value.item()), 2.0, 0.5)


def test_traces_are_the_terms_of_the_last_minibatch(make):
    learner, rollouts, prompts, credit = make("grpo", "float32", settled=2, move=0.0)
    tracer = Tracer(3)
    improve(learner, rollouts, prompts, credit, 0, tracer)
    assert 0 < len(tracer.found) <= 3
    for row, terms in tracer.found.items():
        assert {len(values) for values in terms.values()} == {int(rollouts.mask[row].sum())}
        assert terms["advantage"][0] == pytest.approx(float(credit.advantage[row, 0]))
        assert terms["advantage"][0] != 0
    assert any(abs(x - 1) > 1e-4 for terms in tracer.found.values() for x in terms["ratio"])


def test_a_trace_holds_the_effective_coefficient_and_both_divergences(make):
    """With J = w · min(r A, clip(r) A) − beta (eˣ − 1 − x), x = lp_ref − lp, a token is pushed with
    c = −∂loss/∂lp = w r A − beta (1 − eˣ), without the first part where it is clipped."""
    learner, rollouts, prompts, credit = make("adv_reweight", "float64", beta=0.5, a=0.4, move=0.2)
    rollouts = dataclasses.replace(rollouts, ref_logprob=rollouts.old_logprob - 0.3)
    tracer = Tracer(8)
    improve(learner, rollouts, prompts, credit, 0, tracer)
    assert len(tracer.found) == 6  # best and worst of the three groups of a minibatch
    seen = {
        name: np.concatenate([terms[name] for terms in tracer.found.values()])
        for name in tracer.found[min(tracer.found)]
    }
    assert 0 < seen["clipped"].sum() < len(seen["clipped"]) and seen["weight"].std() > 0.01
    x = seen["old_logprob"] - 0.3 - seen["logprob"]
    free = np.where(seen["clipped"] == 1, 0.0, seen["weight"] * seen["ratio"] * seen["advantage"])
    np.testing.assert_allclose(seen["effective"], free - 0.5 * (1 - np.exp(x)), rtol=1e-5, atol=1e-6)
    moved = seen["logprob"] - seen["old_logprob"]
    np.testing.assert_allclose(seen["kl"], np.exp(moved) - 1 - moved, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(seen["kl_ref"], np.exp(x) - 1 - x, rtol=1e-4, atol=1e-6)


def test_a_token_outside_the_last_pass_has_no_effective_coefficient(make):
    learner, rollouts, prompts, credit = make("lopti", "float64", eta=0.02)
    tracer = Tracer(8)
    improve(learner, rollouts, prompts, credit, 0, tracer)
    pairs = [(c, e) for t in tracer.found.values() for c, e in zip(t["coefficient"], t["effective"], strict=True)]
    assert {c > 0 for c, _ in pairs} == {True, False}
    assert all(e == 0 for c, e in pairs if c == 0) and any(e != 0 for c, e in pairs if c > 0)


def test_tracing_changes_nothing(make):
    after = []
    for most in (0, 8):
        learner, *data = make("tr_grpo", "float32")
        improve(learner, *data, 0, Tracer(most))
        after.append(torch.cat([x.detach().flatten() for x in learner.parameters]))
    assert torch.equal(*after)


def test_every_rollout_batch_is_shuffled_anew(make, monkeypatch):
    learner, *data = make("grpo", "float32", move=0.0)
    seeds: list[int] = []

    def spy(group, options, generator):
        seeds.append(generator.initial_seed())
        return minibatches(group, options, generator)

    monkeypatch.setattr("tokenpo.engines.embedded.step.minibatches", spy)
    for updates in (0, 2, 0):
        improve(learner, *data, updates, Tracer(0))
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize("method", ["grpo", "gspo", "clip_cov", "tepo"])
def test_a_model_whose_head_is_not_plain_learns_the_same_from_its_logits(make, method):
    learner, *data = make(method, "float64")
    fused = gradient(learner, *data, 5)
    learner.lm.abilities["plain_head"] = False
    assert (gradient(learner, *data, 5) - fused).norm() <= 1e-12 * fused.norm()


def test_no_logits_of_a_micro_batch_are_kept_for_the_way_back(make, monkeypatch):
    """What the graph of a pass saves has at most as many numbers as the head, although the tokens times the vocabulary
    are many times more."""
    learner, rollouts, *data = make("grpo", "float32")
    sizes = []

    def pack(x):
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        accumulate(learner, rollouts, *data, 0, Tally())
    head = learner.lm.model.get_output_embeddings().weight
    assert int(rollouts.mask.sum()) * len(head) > 4 * max(sizes)
