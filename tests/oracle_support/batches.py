"""Random batches in NumPy float64: ragged, off-policy, with every corner that the methods distinguish."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

INDEX_FIELDS = ("token_ids", "turn", "anchor")  # [N, T] of whole numbers
# [N] or [N, R].
ROW_FIELDS = {
    "reward": float,
    "group": int,
    "prompt_logprob": float,
    "baseline": float,
    "drafts": int,
    "rewards": float,
}


@dataclass(frozen=True, eq=False)
class Sample:
    """One batch: mask [N, T] bool, reward, group, prompt_logprob, baseline and drafts [N], rewards [N, R], token_ids,
    turn and anchor [N, T] int, and the other [N, T] fields, zero on padding."""

    mask: np.ndarray
    reward: np.ndarray
    group: np.ndarray
    old_logprob: np.ndarray
    logprob: np.ndarray
    ref_logprob: np.ndarray
    old_entropy: np.ndarray
    entropy: np.ndarray
    entropy_drift: np.ndarray
    rollout_logprob: np.ndarray
    temperature: np.ndarray
    influence: np.ndarray
    divergence: np.ndarray
    token_reward: np.ndarray
    old_collision: np.ndarray
    gain: np.ndarray
    value: np.ndarray
    teacher_logprob: np.ndarray
    teacher_divergence: np.ndarray
    staleness: np.ndarray
    prompt_logprob: np.ndarray
    baseline: np.ndarray
    drafts: np.ndarray
    rewards: np.ndarray
    token_ids: np.ndarray
    turn: np.ndarray
    anchor: np.ndarray

    def but(self, **fields: np.ndarray) -> Sample:
        """The same batch with some fields exchanged."""
        return dataclasses.replace(self, **fields)

    def on_policy(self) -> Sample:
        """The same batch at ratio 1: every policy says what the old one said."""
        return self.but(
            logprob=self.old_logprob,
            ref_logprob=self.old_logprob,
            rollout_logprob=self.old_logprob,
            entropy=self.old_entropy,
        )

    def rows(self, index: np.ndarray) -> Sample:
        """The rows at `index`."""
        return Sample(**{name: getattr(self, name)[index] for name in NAMES})

    def alive(self) -> Sample:
        """The rollouts that have a token."""
        return self.rows(np.flatnonzero(self.mask.any(1)))

    def widened(self, columns: int) -> Sample:
        """The same batch with more padding on the right."""
        wide = {
            name: np.pad(getattr(self, name), ((0, 0), (0, columns))) for name in ("mask", *INDEX_FIELDS, *TOKEN_FIELDS)
        }
        return self.but(**wide)


NAMES = tuple(field.name for field in dataclasses.fields(Sample))
TOKEN_FIELDS = tuple(name for name in NAMES if name not in ("mask", *INDEX_FIELDS, *ROW_FIELDS))


def of(mask: np.ndarray, reward: np.ndarray, group: np.ndarray, **fields: np.ndarray) -> Sample:
    """A sample from the fields that matter; the others are zero (temperature and old_collision: one)."""
    mask = np.asarray(mask, bool)
    fields |= {"reward": reward, "group": group, "rewards": fields.get("rewards", np.asarray(reward)[:, None])}
    rows = {name: np.asarray(fields.pop(name, np.zeros(len(mask))), kind) for name, kind in ROW_FIELDS.items()}
    tokens = {}
    for name in (*INDEX_FIELDS, *TOKEN_FIELDS):
        given = fields.pop(name, np.full(mask.shape, float(name in ("temperature", "old_collision"))))
        tokens[name] = np.where(mask, np.asarray(given, int if name in INDEX_FIELDS else float), 0)
    assert not fields, f"unknown: {list(fields)}"
    return Sample(mask, **rows, **tokens)


def by_hand(
    ratios: list[list[float]],
    reward: list[float],
    group: list[int] | None = None,
    *,
    p_old: float = 0.25,
    **fields: list[list[float]],
) -> Sample:
    """A sample from ragged lists: every token's ratio, any more [N, T] fields, and the old probability `p_old`.

    Without `group` it is one.
    """
    width = max(map(len, ratios))

    def padded(rows: list[list[float]]) -> np.ndarray:
        return np.array([[*row, *[0.0] * (width - len(row))] for row in rows])

    mask = np.arange(width) < np.array([[len(row)] for row in ratios])
    old = np.full(mask.shape, np.log(p_old))
    logprob = old + np.log(np.where(mask, padded(ratios), 1.0))
    given = {"old_logprob": old, "logprob": logprob, "ref_logprob": old, **{k: padded(v) for k, v in fields.items()}}
    return of(mask, np.array(reward), np.array(group or [0] * len(ratios)), **given)


def ragged(seed: int, *, width: int = 9, equal_lengths: bool = False, binary: bool = True) -> Sample:
    """Six groups of 5, 4, 6, 3 (equal rewards), 1 and 2 interleaved rollouts, one of them without any token.

    Rows stand still, move inside 3e-4 or further, and of the latter some tokens leap past a dual clip of 10; some
    entropies are zero, tiny or unchanged. `test_batches_reach_every_branch` holds this to it.
    """
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([7, 2, 30, 4, 11, 0], [5, 4, 6, 3, 1, 2]))
    n, shape = len(group), (len(group), width)
    length = np.full(n, width) if equal_lengths else rng.integers(1, width + 1, n)
    if not equal_lengths:
        length[np.flatnonzero(group == 30)[0]] = 0
    mask = np.arange(width) < length[:, None]

    reward = rng.integers(0, 2, n).astype(float) if binary else np.round(rng.normal(size=n), 2)
    for g in (7, 2, 30, 0):  # both outcomes on rows that have tokens
        first, second = np.flatnonzero((group == g) & (length > 0))[:2]
        reward[first], reward[second] = (1.0, 0.0) if binary else (0.8, -0.4)
    reward[group == 4] = 1.0

    old = -rng.exponential(2.5, shape) - 1e-3
    scale = rng.choice([0.0, 2e-4, 0.05, 0.4], size=(n, 1), p=[0.1, 0.3, 0.3, 0.3])
    leap = (scale >= 0.05) & (rng.random(shape) < 0.25)
    shift = scale * rng.normal(size=shape) + leap * rng.uniform(-3.0, 4.5, shape)
    logprob = np.minimum(old + shift, -1e-3)
    old[second, 0], logprob[second, 0] = -4.5, -1.0  # a wrong token beyond the dual clip
    old_entropy = rng.gamma(0.7, 1.0, shape)
    old_entropy[rng.random(shape) < 0.05] = 0.0
    old_entropy[rng.random(shape) < 0.05] = 1e-11
    entropy = np.abs(old_entropy + rng.choice([0.0, 0.3], size=shape) * rng.normal(size=shape))
    d = rng.exponential(size=(31, width))[group]  # of a group at a position
    sample = of(
        mask, reward, group, old_logprob=old, logprob=logprob, old_entropy=old_entropy, entropy=entropy,
        ref_logprob=np.minimum(old + 0.4 * rng.normal(size=shape), -1e-3),
        entropy_drift=0.2 * rng.normal(size=shape),
        rollout_logprob=np.minimum(old + 0.01 * rng.normal(size=shape), -1e-3),
        temperature=rng.uniform(0.8, 1.2, shape), influence=rng.normal(size=shape), divergence=d,
        prompt_logprob=-rng.exponential(size=31)[group], token_ids=rng.integers(0, 3, shape),
    )  # fmt: skip
    return sample.but(**_turns(rng, sample))


def holed(seed: int) -> Sample:
    """`ragged` of which a tool has written some tokens, anywhere in a response: they are outside the mask."""
    sample = ragged(seed, binary=False)
    mask = sample.mask & (np.random.default_rng(seed).random(sample.mask.shape) > 0.3)
    return sample.but(**{name: getattr(sample, name) * mask for name in (*INDEX_FIELDS, *TOKEN_FIELDS)}, mask=mask)


def _turns(rng: np.random.Generator, sample: Sample) -> dict[str, np.ndarray]:
    """Turns of a few tokens each, some of which begin in the same state, and what came of them."""
    mask, shape = sample.mask, sample.mask.shape
    turn = np.cumsum(rng.random(shape) < 0.3, 1)
    state = np.take_along_axis(rng.integers(0, 2, (shape[0], shape[1] + 1)), turn, 1)
    others = np.round(rng.normal(size=(shape[0], 2)), 2)
    return {
        "rewards": np.column_stack([sample.reward, others]),
        "turn": np.where(mask, turn, 0),
        "anchor": np.where(mask, state, 0),
        "token_reward": np.where(mask & (rng.random(shape) < 0.4), rng.integers(-1, 3, shape), 0.0),
        "old_collision": np.where(mask, rng.uniform(0.05, 1.0, shape), 0.0),
        "gain": np.where(mask, np.round(rng.normal(size=shape), 2), 0.0),
        "value": np.where(mask, np.round(rng.normal(size=shape), 2), 0.0),
        "baseline": np.round(rng.normal(size=31), 2)[sample.group],
        "teacher_logprob": np.where(mask, np.minimum(sample.old_logprob + rng.normal(size=shape), -1e-3), 0.0),
        "teacher_divergence": np.where(mask, rng.exponential(0.3, shape), 0.0),
        "staleness": np.where(mask, rng.integers(0, 4, shape), 0.0),
    }
