"""Decoding in fixed places against the ordinary sampler; the steps run as they are instead of in CUDA graphs."""

import dataclasses
import warnings

import pytest
import torch

from tokenpo.base.errors import NotFinite
from tokenpo.core.head.kept import Cut
from tokenpo.train.models import Sampling, graphed, sample
from tokenpo.train.models.graphed import BLOCK, FixedStep, Graphs


class Spy:
    """Repeats a step by running it; counts the steps it was given and their runs."""

    def __init__(self) -> None:
        self.recorded = self.runs = 0

    def __call__(self, step, moved):
        self.recorded += 1
        before = [x.clone() for x in moved]
        step()  # as a recorder does that loads kernels
        for x, old in zip(moved, before, strict=True):
            x.copy_(old)

        def replay():
            self.runs += 1
            step()

        return replay


def both(lm, *arguments, **options):
    """The ordinary samples, those of fixed places, and the recorder."""
    lm.abilities["graphed"] = None
    ordinary = sample(lm, *arguments, **options)
    spy = Spy()
    lm.abilities["graphed"] = Graphs(spy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ordinary, sample(lm, *arguments, **options), spy


def assert_equal(ordinary, fixed):
    for field in dataclasses.fields(ordinary):
        a, b = getattr(ordinary, field.name), getattr(fixed, field.name)
        if a is None:
            assert b is None
            continue
        assert a.dtype == b.dtype
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5, msg=lambda text, name=field.name: f"{name}: {text}")


# Prompts of unequal length are padded, and rows that end early leave the batch.
@pytest.mark.parametrize(
    ("family", "temperature"),
    [("qwen3", 1.0), ("qwen3", 0.0), *((name, 0.8) for name in ("qwen3", "qwen2", "llama", "cohere2_scale", "gpt2"))],
)
def test_samples_are_the_ordinary_ones(load_family, prompts, family, temperature):
    ordinary, fixed, spy = both(load_family(family, eos=(1, 2)), prompts, 16, Sampling(100, temperature, seed=1))
    if temperature:
        assert ordinary.mask.sum(1).unique().numel() > 3
    assert ordinary.mask.shape[1] > 2 * BLOCK
    assert_equal(ordinary, fixed)
    assert spy.runs


@pytest.mark.parametrize("cut", [Cut(top_p=0.8), Cut(top_k=5), Cut(0.9, 7, 0.05)])
def test_the_tokens_that_a_cut_keeps_are_the_ordinary_ones(lm, prompts, cut):
    """Also where one step was recorded for another number of them, and where rows leave the batch."""
    ordinary, fixed, spy = both(lm, prompts, 16, Sampling(100, 0.8, seed=1, cut=cut))
    assert_equal(ordinary, fixed)
    assert spy.runs and fixed.kept_ids is not None
    other = Sampling(60, 0.8, seed=1, cut=Cut(top_k=3))
    again = sample(lm, prompts, 16, other)
    assert spy.recorded == len(lm.abilities["graphed"].replays)
    lm.abilities["graphed"] = None
    assert_equal(sample(lm, prompts, 16, other), again)


def test_rows_and_slots_come_in_few_sizes(lm, prompts):
    """Buffers that grow, rows that leave, and steps that are recorded once and kept for the next call."""
    ordinary, fixed, spy = both(lm, prompts, 20, Sampling(100, seed=1))
    assert_equal(ordinary, fixed)
    graphs = lm.abilities["graphed"]
    windows = [window[:2] for window in graphs.replays]
    assert len({rows for rows, _ in windows}) > 1 < len({slots for _, slots in windows})
    before = spy.recorded
    assert_equal(sample(lm, prompts, 20, Sampling(100, seed=1)), fixed)
    assert spy.recorded == before == len(windows)


def test_streams_and_weights_that_change_in_place(lm, prompts):
    both(lm, prompts, 4, Sampling(40))
    graphs, spy = lm.abilities["graphed"], lm.abilities["graphed"].recorder
    before = spy.recorded
    with torch.no_grad():
        for weight in lm.model.parameters():
            weight.mul_(1.1)
    fixed = sample(lm, prompts, 4, Sampling(40), streams=[3, 1, 4, 0, 2])
    assert spy.recorded == before
    # A weight in another place makes the recorded steps stale.
    norm = lm.model.model.norm
    norm.weight = torch.nn.Parameter(norm.weight.detach().clone())
    assert_equal(sample(lm, prompts, 4, Sampling(40), streams=[3, 1, 4, 0, 2]), fixed)
    assert spy.recorded > before
    lm.abilities["graphed"] = None
    assert_equal(sample(lm, prompts, 4, Sampling(40), streams=[3, 1, 4, 0, 2]), fixed)
    assert graphs.verified


def test_a_rule_and_a_tool_take_the_ordinary_path(lm, prompts):
    lm.abilities["graphed"] = Graphs(spy := Spy())

    class Silent:
        ends = (4,)

        def __call__(self, row, token_ids):
            return []

    sample(lm, prompts, 2, Sampling(8), rule=lambda entropy, base: base + 0 * entropy)
    sample(lm, prompts, 2, Sampling(8), tool=Silent())
    assert not spy.recorded


def test_weights_that_break_are_found_with_row_and_token(lm, monkeypatch):
    """NaN at one position of one response, after the step that is compared."""
    run = graphed.packed_logits

    def breaking(model, ids, position, packing, *keep):
        logits = run(model, ids, position, packing, *keep)
        if not keep and isinstance(packing, FixedStep):
            logits[5] = torch.where(packing.step == 7, float("nan"), logits[5])
        return logits

    monkeypatch.setattr(graphed, "packed_logits", breaking)
    lm = dataclasses.replace(lm, eos_ids=())
    lm.abilities["graphed"] = Graphs(Spy())
    with pytest.raises(NotFinite, match="at token 7 of response 5 of 8"):
        sample(lm, [[5, 6], [7]], 4, Sampling(40))
    # A response that has ended by then is whole.
    assert torch.isfinite(sample(lm, [[5, 6], [7]], 4, Sampling(40), limits=[40, 7]).logprob).all()
    # Of ten rows that are left, the first place holds another response than at the start.
    monkeypatch.setattr(graphed, "packed_logits", lambda *a: run(*a) * torch.where(a[-1].step == 20, float("nan"), 1.0))
    with pytest.raises(NotFinite, match=r"at token 20 of response 3\d of 40"):
        sample(lm, [[5, 6], *([7, 8 + i] for i in range(3))], 10, Sampling(80), limits=[3, 3, 3, 80])


@pytest.mark.parametrize("fault", ["a wait", "another step"])
def test_a_fault_leaves_the_ordinary_path_and_one_warning(lm, prompts, fault, monkeypatch):
    wanted = sample(lm, prompts, 4, Sampling(20))

    def recorder(step, moved):
        if fault == "a wait":
            raise RuntimeError("called a synchronizing CUDA operation\nand more")
        return step

    if fault == "another step":
        forward = FixedStep.attend
        monkeypatch.setattr(FixedStep, "attend", lambda *a: 1.01 * forward(*a))
    lm.abilities["graphed"] = Graphs(recorder)
    message = "without CUDA graphs.*(synchronizing CUDA operation$|differ by .* of the largest)"
    with pytest.warns(UserWarning, match=message):
        fixed = sample(lm, prompts, 4, Sampling(20))
    assert_equal(wanted, fixed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal(wanted, sample(lm, prompts, 4, Sampling(20)))
