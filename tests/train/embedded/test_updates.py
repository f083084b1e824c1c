"""An update is exact: neither its split into micro-batches nor the rows it skips change the gradient."""

import dataclasses

import numpy as np
import pytest
import torch

from tokenpo.base.errors import Unsupported
from tokenpo.core.learner import Step
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.types import Batch, Totals
from tokenpo.core.update import Update
from tokenpo.records import Tracer
from tokenpo.train.run.updates import Trainer, _descend, gradients, improve

METHODS = ["grpo", "dr_grpo", "hapo", "tepo", "clip_cov", "kl_cov", "grpo_s"]


@pytest.fixture
def make(begin, coin, double_dir):
    """Trainer, a step begun on a rollout batch, and its prompts; the policy a little away from the one that sampled."""

    def build(method: str, dtype: str, settled: int = 0, move: float = 0.05, tolerance: float | None = 1e9, **options):
        coin.settled = settled
        rollout = {"prompts": 6, "group_size": 4, "max_new_tokens": 9}
        model = {"dtype": dtype, **({"path": str(double_dir)} if dtype == "float64" else {})}
        chosen = {"name": method, **options}
        train = {"ratio_tolerance": tolerance}
        engine, trainer, experience = begin(method=chosen, model=model, rollout=rollout, train=train)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for x in engine.lm.model.parameters():
                x += move * torch.randn(x.shape, generator=generator, dtype=x.dtype) * x.abs().mean()
        rollouts = experience.rollouts
        if "ref_logprob" in engine.objective.needs:
            rollouts = dataclasses.replace(rollouts, ref_logprob=rollouts.old_logprob)
        return trainer, trainer.learner.begin(rollouts), experience.kept.prompts

    return build


def whole(step: Step) -> Update:
    """One update on every row."""
    return step.update(torch.arange(len(step.rollouts)))


def again(trainer: Trainer, step: Step, **fields) -> Step:
    """The same rollout batch as the next step, with other facts or credit."""
    fresh = trainer.learner.look(fields.pop("rollouts", step.rollouts))
    trainer.learner.step = dataclasses.replace(fresh, **fields)
    return trainer.learner.step


def gradient(trainer: Trainer, step: Step, prompts, rows: int = 1000, tokens: int = 10**6) -> torch.Tensor:
    forward = dataclasses.replace(trainer.forward, micro_rows=rows, micro_tokens=tokens)
    for _ in gradients(dataclasses.replace(trainer, forward=forward), whole(step), prompts):
        pass
    return torch.cat([x.grad.flatten() for x in trainer.parameters])


def straight(trainer: Trainer, step: Step, prompts) -> torch.Tensor:
    """The whole minibatch in one forward and one backward pass, no row left out."""
    for x in trainer.parameters:
        x.grad = None
    batch = Batch(step.rollouts, step.credit, trainer.forward.policy(step.rollouts, prompts))
    batch = step.objective.observe(batch, keyed_generator(step.seed, "observe", 0))
    step.objective.loss(batch, Totals.of(step.rollouts, step.length)).value.backward()
    return torch.cat([x.grad.flatten() for x in trainer.parameters])


# In float32 sums of some hundred terms in another order, which come through a whole model.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("method", METHODS)
def test_any_split_into_micro_batches_gives_the_same_gradient(make, method, dtype, tolerance):
    trainer, *data = make(method, dtype)
    whole = gradient(trainer, *data)
    assert whole.norm() > 1e-3
    for rows, tokens in ((1, 10**6), (5, 10**6), (1000, 40)):
        assert (gradient(trainer, *data, rows, tokens) - whole).norm() <= tolerance * whole.norm()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in ("grpo", "hapo", "tr_grpo", "gtpo", "gspo", "clip_cov", "tepo")),
        ("kl_cov", {"fraction": 0.5}),
        ("grpo", {"beta": 0.1}),
    ],
)
def test_rows_without_gradient_are_skipped_and_nothing_changes(make, method, options):
    """Those without an advantage, unless a penalty acts on them."""
    trainer, step, prompts = make(method, "float64", settled=2, **options)
    live = len(whole(step).live())
    assert live == len(step.rollouts) == 24 if options else 0 < live <= 12
    exact = straight(trainer, step, prompts)
    assert (gradient(trainer, step, prompts, 5) - exact).norm() <= 1e-12 * exact.norm()


def test_a_minibatch_without_live_rows_is_an_update_with_gradient_zero(make):
    _, dead, _ = make("grpo", "float32", settled=1)
    trainer, live, prompts = make("grpo", "float32")
    gradient(trainer, live, prompts)
    _descend(trainer, whole(live))
    before = torch.cat([x.detach().flatten() for x in trainer.parameters])
    gradient(trainer, dead, prompts)
    assert all(x.grad is not None and not x.grad.any() for x in trainer.parameters)
    _descend(trainer, whole(dead))
    after = torch.cat([x.detach().flatten() for x in trainer.parameters])
    assert (after - before).abs().max() > 1e-4  # Adam's momentum goes on, as it would had the rows been evaluated


def test_the_policy_is_held_to_the_sampler_in_the_first_batch_that_shows_something(make):
    trainer, step, prompts = make("grpo", "float32", move=0.5, tolerance=None)
    silent = dataclasses.replace(step.credit, advantage=torch.zeros_like(step.credit.advantage))
    improve(trainer, again(trainer, step, credit=silent), prompts, Tracer(0))
    with pytest.raises(Unsupported, match=r"grpo: before the first update.*rollout\.rescore"):
        improve(trainer, again(trainer, step), prompts, Tracer(0))
    moved, step, prompts = make("grpo", "float32", move=0.0, tolerance=None)
    improve(moved, step, prompts, Tracer(0))
    assert moved.learner.updates == 2
    other = dataclasses.replace(trainer, learner=moved.learner)
    improve(other, again(other, step), prompts, Tracer(0))  # asked once


@pytest.mark.parametrize("more", [{}, {"rescore": True}])
@pytest.mark.parametrize("cut", [{"top_p": 0.7}, {"top_p": 0.9, "top_k": 5, "min_p": 0.05}])
def test_ratios_are_one_before_the_first_update_where_the_sampler_cuts(begin, double_dir, cut, more):
    """With the recorded sets, up to a sampler's float32; without them the check before the first update finds it."""
    engine, trainer, batch = begin(
        rollout={"prompts": 6, "group_size": 4, "max_new_tokens": 9, **cut, **more},
        model={"dtype": "float64", "path": str(double_dir)}, method={"name": "grpo", "beta": 0.1},
    )  # fmt: skip
    rollouts, prompts = engine.complete(batch.rollouts, batch.kept), batch.kept.prompts
    mask, kept = rollouts.mask, rollouts.kept_ids
    assert ((kept >= 0).sum(2)[mask] < engine.lm.model.config.vocab_size).all()
    step = trainer.learner.begin(rollouts)
    seen = 0
    for rows, part, loss in gradients(trainer, whole(step), prompts):
        new, old, reference = part.policy.logprob, rollouts.old_logprob[rows], rollouts.ref_logprob[rows]
        assert torch.equal(new.float(), reference)  # over the same sets
        assert not more or torch.equal(new.float(), old)
        torch.testing.assert_close(new.float(), old, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(loss.terms["ratio"][part.mask], (new - old)[part.mask].exp())
        seen += len(rows)
    assert seen == len(mask)
    improve(trainer, again(trainer, step), prompts, Tracer(0))
    engine, trainer, _ = begin(model={"dtype": "float64", "path": str(double_dir)}, method={"name": "grpo"})
    blind = trainer.learner.begin(dataclasses.replace(rollouts, kept_ids=None))
    with pytest.raises(Unsupported, match="before the first update"):
        improve(trainer, blind, prompts, Tracer(0))


def test_a_trace_holds_the_effective_coefficient_and_both_divergences(make):
    """With J = w · min(r A, clip(r) A) − beta (eˣ − 1 − x), x = lp_ref − lp, a token is pushed with
    c = −∂loss/∂lp = w r A − beta (1 − eˣ), without the first part where it is clipped."""
    trainer, step, prompts = make("adv_reweight", "float64", beta=0.5, a=0.4, move=0.2)
    away = dataclasses.replace(step.rollouts, ref_logprob=step.rollouts.old_logprob - 0.3)
    tracer = Tracer(6)
    improve(trainer, again(trainer, step, rollouts=away), prompts, tracer)
    assert len(tracer.found) == 6  # best and worst of three groups
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


@pytest.mark.parametrize("method", ["grpo", "gspo", "clip_cov", "tepo"])
def test_a_model_whose_head_is_not_plain_learns_the_same_from_its_logits(make, method):
    trainer, *data = make(method, "float64")
    fused = gradient(trainer, *data, 5)
    trainer.lm.abilities["plain_head"] = False
    assert (gradient(trainer, *data, 5) - fused).norm() <= 1e-12 * fused.norm()


def test_no_logits_of_a_micro_batch_are_kept_for_the_way_back(make, monkeypatch):
    """What the graph of a pass saves has at most as many numbers as the head, although the tokens times the vocabulary
    are many times more."""
    trainer, step, prompts = make("grpo", "float32")
    sizes = []

    def pack(x):
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        gradient(trainer, step, prompts)
    head = trainer.lm.model.get_output_embeddings().weight
    assert int(step.rollouts.mask.sum()) * len(head) > 4 * max(sizes)
