"""Every method against its oracle on random batches, and the oracles against themselves.

An oracle in `tests/oracles` is the method from its paper on the NumPy prelude, with the gradient derived by hand; its
`cases` are the options that are compared here.
"""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, batches, ragged, score
from oracles import ORACLES, prelude

METHODS = tokenpo.methods.METHODS
CASES = [(name, options) for name in METHODS for options in ORACLES[name].cases]
every_case = pytest.mark.parametrize(("name", "options"), CASES)
# What they draw at random goes to their oracles in their own tests.
DRAWN = {"clip_cov", "s_grpo"}

# Methods that stop the gradient of a weight on purpose: the differences of their values are not their gradients.
STOPPED = {"cispo", "aspo", "ce_gppo", "dppo_kl", "dppo_tv", "rollout_is", "fipo", "real", "topr", "vespo", "eb_cispo"}
STOPPED |= {"sdpo", "up", "gvpo", "target_po", "decoupled"}
# The same for some of the options; of m2po the bound is a token, without gradient.
STOPPED_WITH = {
    "tr_grpo": lambda options: options.get("weight_prob") != "old",
    "dhpo": lambda options: options["mixing"] == "entropy",
    "egspo": lambda options: options["curve"] == "chord",
    "m2po": lambda options: options.get("budget") != 9.0,
    "sdar": lambda options: options.get("coef") != 0.0,
}
LINEAR = {"cispo", "eb_cispo", "vespo", "rollout_is", "real", "topr", "gvpo", "target_po"}
EXACT = [(n, o) for n, o in CASES if n not in STOPPED and not STOPPED_WITH.get(n, lambda _: False)(o)]
EXACT += [("m2po", {"budget": 0.0}), *(("lopti", {"part": part, "a": 0.3, "beta": 0.3}) for part in (0, 1))]
EXACT += [("ha_dw", {"past": [0.2, 0.9]}), *((name, {}) for name in sorted(DRAWN))]
# how few tokens may speak: only a group's single best rollout; only where the responses of a group part
FEW = {"grpo_passk": 7, "t_spmo": 11}


# Options of no formula: what the tests of the methods or of the parts show by hand.
BY_HAND = {
    "dapo": {"overlong_length", "overlong_cache"},
    "holder": {"last", "batches"},
    "gtpo": {"group_overlong"},
    "grpo_s": {"group_overlong"},
    "hapo": {"tau"},
    "aer": {"delta", "rule", "tau"},
    "skywork_entropy": {"controller", "delta"},
    "vineppo": {"continuations", "every", "separator"},
    "spo": {"continuations", "interval"},
    "ospo": {"union"},
    "igrpo": {"drafts", "template"},
}


@pytest.mark.parametrize("name", sorted(METHODS.keys() - DRAWN))
def test_cases_hold_the_defaults_and_every_option(name: str) -> None:
    varied = {option for options in ORACLES[name].cases for option in options}
    assert varied == inspect.signature(METHODS[name]).parameters.keys() - BY_HAND.get(name, set())


@every_case
def test_is_its_oracle(name: str, options: dict) -> None:
    for sample in batches(name):
        agrees(name, sample, **options)


@pytest.mark.parametrize("name", dict(EXACT))
def test_gradient_is_the_derivative_of_the_value(name: str) -> None:
    """Along eight directions, each of which moves every token."""
    (sample,), step = batches(name, 2), 1e-7
    # ties of old and new are corners of |x|, where no difference quotient exists
    tie = sample.mask & (np.abs(sample.logprob - sample.old_logprob) < 1e-4)
    sample = sample.but(logprob=sample.logprob - 0.01 * tie)
    directions = np.random.default_rng(0).normal(size=(8, *sample.mask.shape)) * sample.mask
    moved = []
    for options in (options for n, options in EXACT if n == name):
        drawn = {"selected": sample.mask & (np.indices(sample.mask.shape).sum(0) % 2 == 0)} if name in DRAWN else {}
        gradient = score(name, sample, **options, **drawn).gradient
        for way in directions:
            up, down = (sample.but(logprob=sample.logprob + e * way) for e in (step, -step))
            difference = score(name, up, **options, **drawn).value - score(name, down, **options, **drawn).value
            assert (gradient * way).sum() == pytest.approx(difference / (2 * step), rel=2e-6, abs=5e-8), options
        moved.append(np.count_nonzero(gradient))
    assert max(moved) > FEW.get(name, 15)


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in CASES if n in ("aer", "skywork_entropy")])
def test_entropy_gradient_is_the_derivative_of_the_value(name: str, options: dict) -> None:
    """The value is linear in the entropies: a difference over 1 has no error but rounding."""
    (sample,) = batches(name, 2)
    gradient = score(name, sample, **options).entropy_gradient
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        step = np.zeros(sample.mask.shape)
        step[i, t] = 0.5
        ends = [score(name, sample.but(entropy=sample.entropy + e * step), **options).value for e in (1, -1)]
        assert gradient[i, t] == pytest.approx(ends[0] - ends[1], rel=1e-9, abs=1e-14), (i, t)
    assert gradient.any() == (options["start"] > 0 and (name == "aer" or "target" in options))


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in CASES if n in LINEAR])
def test_a_detached_weight_leaves_a_value_linear_in_the_logprob(name: str, options: dict) -> None:
    """-Σ c lp with a coefficient that has no gradient: the value is the gradient's product with lp."""
    (sample,) = batches(name, 0)
    got = score(name, sample, **options)
    assert got.value == pytest.approx((got.gradient * sample.logprob).sum(), rel=1e-12)
    assert np.count_nonzero(got.gradient) > 15


def test_batches_reach_every_branch() -> None:
    """Clipped and unclipped tokens of both signs, beyond the dual clip; sequence ratios inside and outside 3e-4."""
    seen = set()
    for seed in range(4):
        sample = ragged(seed)
        x = np.where(sample.mask, sample.logprob - sample.old_logprob, 0)
        s = x.sum(1, keepdims=True) / np.maximum(sample.mask.sum(1, keepdims=True), 1)
        mixed = sample.mask & ~np.isin(sample.group, [4, 11])[:, None]
        right = (sample.reward > 0)[:, None]
        branches = {"above": x > 0.3, "below": x < -0.3, "inside": np.abs(x) < 0.1, "still": x == 0, "dual": x > 2.4}
        branches |= {"falling": sample.entropy < sample.old_entropy, "certain": sample.old_entropy < 1e-8}
        branches |= {"row above": s > 0.3, "row below": s < -0.3}
        branches |= {"row just above": (s > 0) & (s < 3e-4), "row just below": (s < 0) & (s > -3e-4)}
        for outcome, rows in (("right", mixed & right), ("wrong", mixed & ~right)):
            seen |= {(outcome, name) for name, where in branches.items() if (rows & where).any()}
    assert seen == {(outcome, name) for outcome in ("right", "wrong") for name in branches}


def test_oracles_import_numpy_the_prelude_and_the_standard_library_alone() -> None:
    allowed = {"numpy", "prelude", "math", "itertools", "collections", "fractions"}
    for path in Path(prelude.__file__).parent.glob("[a-z]*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert set(modules) <= allowed, path
