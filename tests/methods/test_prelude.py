"""The prelude of the oracles against numbers by hand; each number is there to see one thing go wrong, and mutants do.

The batch of all: rewards 2, 1, 0 in group 7, a lone 5 in group 3 and a rollout without tokens, whose reward 9 counts
nowhere. Ratios e^0.1, e^0.3 | e^-0.5 | 1, e^30 | 1; π_ref = 2 π.
"""

import ast
import types
from pathlib import Path

import numpy as np
import pytest

from oracle_support import of
from oracles import prelude

MASK = np.array([[1, 1], [1, 0], [1, 1], [1, 0], [0, 0]], bool)
X = np.array([[0.1, 0.3], [-0.5, 0], [0, 30], [0, 0], [0, 0]])
LP = np.full((5, 2), np.log(0.25)) * MASK
REWARD, GROUP = np.array([2, 1, 0, 5, 9]), np.array([7, 7, 7, 3, 7])
S = of(MASK, REWARD, GROUP, logprob=LP, old_logprob=LP - X, ref_logprob=LP + np.log(2))
ONES = np.ones((5, 2))


def same(got: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(expected, float), rtol=1e-12, atol=1e-15)


def numbers_of(p: types.ModuleType) -> None:
    """Asserts every number, of the prelude or of a mutant."""
    assert [rows.tolist() for rows in p.groups(S)] == [[3], [0, 1, 2]]

    # mean 1, std 1 (with G; it would be sqrt(2/3) without the 1): ±1 / (1 + eps); nobody is beside the lone 5
    same(p.group_advantage(S)[:, 0], [1 / (1 + 1e-6), 0, -1 / (1 + 1e-6), 0, 0])
    same(p.group_advantage(S, eps=0.5)[:, 0], [1 / 1.5, 0, -1 / 1.5, 0, 0])
    same(p.group_advantage(S, std=False)[:, 0], [1, 0, -1, 0, 0])
    # given rewards 1, 1, 4: mean 2, variance 3; three times 0.1 has a mean that is not 0.1
    same(p.group_advantage(S, np.array([1.0, 1, 4, 0, 0]), std=False)[:, 0], [-1, -1, 2, 0, 0])
    same(p.group_advantage(S, np.array([1.0, 1, 4, 0, 0]), eps=0)[:3, 0], np.array([-1, -1, 2]) / np.sqrt(3))
    assert not p.group_advantage(S, np.full(5, 0.1)).any()

    # of 1, 2, 3 the mean is 2 and the variance 1; a single number has none
    on = np.array([[True, True, False], [True, False, False]])
    x = np.array([[1.0, 2, 7], [3, 7, 7]])
    same(p.whitened(x, on), np.array([[-1, 0, 0], [1, 0, 0]]) / np.sqrt(1 + 1e-8))
    assert not p.whitened(x, on & (x == 3)).any()

    # beyond 20 the ratio stands still; to the reference it is 1/2 everywhere
    r, dr = p.ratio(S)
    same(r, np.exp([[0.1, 0.3], [-0.5, 0], [0, 20], [0, 0], [0, 0]]))
    same(dr, np.where(X > 20, 0, np.exp(X)))
    same(np.where(MASK, p.ratio(S, S.ref_logprob), 0.5), np.full((2, 5, 2), 0.5))

    same(p.lengths(S)[:, 0], [2, 1, 2, 1, 1])
    same(p.response_mean(S, X + 1)[:, 0], [1.2, 0.5, 16, 1, 0])
    w, dw = p.sequence_ratio(S)
    same(w[:, 0], np.exp([0.2, -0.5, 15, 0, 0]))
    same(dw, w)

    # right answers stop above 1.3, wrong ones below 0.8, each where it stands on the other side; at a bound it moves
    r, A = np.array([0.5, 0.8, 1.0, 1.3, 2.0, 9.0]), np.array([[2.0], [-2.0]])
    J, dJ = p.clipped(r, 3 * r, A, 0.2, 0.3)
    same(J, [[1, 1.6, 2, 2.6, 2.6, 2.6], [-1.6, -1.6, -2, -2.6, -4, -18]])
    same(dJ, [[3, 4.8, 6, 7.8, 0, 0], [0, -4.8, -6, -7.8, -12, -54]])
    J, dJ = p.clipped(r, 3 * r, A, 0.2, 0.3, 2.0)
    same(J, [[1, 1.6, 2, 2.6, 2.6, 2.6], [-1.6, -1.6, -2, -2.6, -4, -4]])
    same(dJ, [[3, 4.8, 6, 7.8, 0, 0], [0, -4.8, -6, -7.8, -12, 0]])
    same(p.clipped(r, r, A), p.clipped(r, r, A, 0.2, 0.2))

    same(p.likelihood(S, 3 * ONES), [3 * LP, 3 * ONES])
    k, dk = p.k3(S)
    same(k[MASK], np.full(6, 1 - np.log(2)))
    same(dk[MASK], np.full(6, -1))

    # of four: ranks 0, 1.5 -> 2 (to even), 2.1 -> 2, 3
    x = np.array([4.0, 1, 3, 2])
    same([p.nearest_rank(x, q) for q in (0, 0.5, 0.7, 1)], [1, 3, 3, 4])

    # six tokens, four responses; lengths 2, 1, 2, 1
    J, dJ = np.arange(10.0).reshape(5, 2) + 1, 2 * ONES
    value, gradient = p.loss(0.1 * ONES, J, dJ)
    same(value, -5.5)
    same(gradient, -0.2 * ONES)
    for mean, value, slope in (
        (p.token_mean, -(3 + 3 + 11 + 7) / 6, [[1 / 3] * 2, [1 / 3, 0], [1 / 3] * 2, [1 / 3, 0], [0, 0]]),
        (p.sequence_sum, -(3 + 3 + 11 + 7) / 4, [[0.5] * 2, [0.5, 0], [0.5] * 2, [0.5, 0], [0, 0]]),
        (p.sequence_mean, -(1.5 + 3 + 5.5 + 7) / 4, [[0.25] * 2, [0.5, 0], [0.25] * 2, [0.5, 0], [0, 0]]),
    ):
        got = mean(S, J, dJ)
        same(got[0], value)
        same(got[1], np.negative(slope))


def test_every_choice_meets_every_case() -> None:
    seen = prelude.crossed([{}, {"c": 5}], a=(1, 2), b=(3,))
    assert seen == [{"a": 1, "b": 3}, {"a": 1, "b": 3, "c": 5}, {"a": 2, "b": 3}, {"a": 2, "b": 3, "c": 5}]


def test_by_hand() -> None:
    numbers_of(prelude)


SOURCE = Path(prelude.__file__).read_text(encoding="utf-8")
MUTANTS = [
    ("alive & (s.group == g)", "s.group == g"),
    ("np.unique(s.group[alive])", "np.unique(s.group)[1:]"),
    ("s.reward if reward is None else reward", "s.reward"),
    ("if R.min() < R.max():", "if True:"),
    ("(R - R.mean()) / (R.std(ddof=1) + eps", "(R.mean() - R) / (R.std(ddof=1) + eps"),
    ("R.std(ddof=1)", "R.std()"),
    ("R.std(ddof=1) + eps", "R.std(ddof=1) + 1e-6"),
    ("eps=1e-6", "eps=1e-4"),
    ("if std else 1", "if True else 1"),
    ("len(y) > 1", "len(y) > 0"),
    ("y.var(ddof=1)", "y.var()"),
    ("y.var(ddof=1) + 1e-8", "y.var(ddof=1) + 1e-6"),
    ("y - y.mean()", "y"),
    ("s.old_logprob if before is None else before", "s.old_logprob"),
    ("np.clip(x, -20, 20)", "x"),
    ("np.abs(x) <= 20", "np.abs(x) <= 40"),
    ("np.where(np.abs(x) <= 20, r, 0)", "np.where(np.abs(x) <= 20, 1, 0)"),
    ("keepdims=True), 1)", "keepdims=True), 2)"),
    ("(s.mask * x).sum", "x.sum"),
    ("/ lengths(s)\n\n\ndef sequence_ratio", "/ x.shape[1]\n\n\ndef sequence_ratio"),
    ("s.logprob - s.old_logprob))", "s.old_logprob - s.logprob))"),
    ("low=0.2, high=0.2", "low=0.2, high=0.28"),
    ("np.minimum(r * A", "np.maximum(r * A"),
    ("np.clip(r, 1 - low, 1 + high) * A)", "np.clip(r, 1 - high, 1 + high) * A)"),
    ("np.clip(r, 1 - low, 1 + high) * A)", "np.clip(r, 1 - low, 1 + low) * A)"),
    ("r <= 1 + high", "r < 1 + high"),
    ("r >= 1 - low", "r > 1 - low"),
    ("np.where(A > 0, r", "np.where(A < 0, r"),
    ("* A * dr", "* A * r"),
    ("(A < 0) & (r > dual)", "r > dual"),
    ("np.where(floor, dual * A, J)", "J"),
    ("np.where(floor, 0, dJ)", "dJ"),
    ("return c * s.logprob, c", "return c * s.logprob, c * s.logprob"),
    ("s.ref_logprob - s.logprob", "s.logprob - s.ref_logprob"),
    ("u - np.log(u) - 1, 1 - u", "u - np.log(u) - 1, u - 1"),
    ("u - np.log(u) - 1, 1 - u", "u - 1, 1 - u"),
    ("np.sort(x)[round", "x[round"),
    ("(len(x) - 1)", "len(x) // 1.01"),
    ("np.sort(x)[round(", "np.sort(x)[int("),
    ("return -(share * J).sum(), -share * dJ", "return -(share * J).sum(), share * dJ"),
    ("return -(share * J).sum(), -share * dJ", "return -(share * J).mean(), -share * dJ"),
    ("s.mask / s.mask.sum()", "s.mask / s.mask.size"),
    ("s.mask / s.mask.any(1).sum()", "s.mask / len(s.mask)"),
    ("J / lengths(s), dJ / lengths(s)", "J / lengths(s), dJ"),
    ("J / lengths(s), dJ / lengths(s)", "J, dJ / lengths(s)"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("before", "after"), MUTANTS)
def test_a_mutant_is_seen(before: str, after: str) -> None:
    assert SOURCE.count(before) == 1
    mutant = types.ModuleType("mutant")
    exec(SOURCE.replace(before, after), vars(mutant))
    with pytest.raises((AssertionError, IndexError)), np.errstate(all="ignore"):
        numbers_of(mutant)


def test_it_imports_numpy_alone() -> None:
    """And the oracles besides the standard library that and the prelude."""
    allowed = {"numpy", "prelude", "math", "itertools", "collections"}
    for path in Path(prelude.__file__).parent.glob("[a-z]*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert set(modules) <= allowed, path
