"""TRL on frozen rollouts beside the embedded engine: value and gradient of every optimiser step are the same."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trl_support import beside, frozen
from trl_support.beside import case, schedule

ALIGNED = schedule(4, 2)
STALE = schedule(4, 1, chunks=3)
TWICE = schedule(2, 2, chunks=4, iterations=2)
FOLDED = schedule(4, 4, chunks=2, iterations=2)
# Three rows of each rank in a micro-batch: 12 rows of two ranks are three groups, and the second lies on both.
SPLIT = schedule(3, 1, chunks=2, iterations=2)
SPLIT_WHOLE = schedule(3, 2)
# One group of each rank in a step.
GROUPED = schedule(2, 2, chunks=8)
GROUPS = {"minibatch_by": "groups"}
# Without the model's head: TRL's own pass, and for the entropy drift the one with logits.
OWN = {"fused_objective": False}
DRIFT = {"decreasing": "analytic"}

MANY = (
    "grpo", "dapo", "dr_grpo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo", "gspo", "clip_cov", "kl_cov", "lopti",
    "ha_dw", "aer", "skywork_entropy", "dppo_tv", "forking_tokens", "stapo",
)  # fmt: skip
SOME = ("grpo", "dapo", "clip_cov", "ha_dw")


def _cases(key: str, plan: dict[str, int], *methods: str, **more: Any) -> list[dict[str, Any]]:
    rewards = {name: ["sums", "lengths"] if name in SOME and not more else ["sums"] for name in methods}
    return [{**case(name, key, plan, rewards[name]), **more} for name in methods]


UNSCORED = {"rewards": ["seldom"]}
CASES = {
    1: [
        *_cases("twice", TWICE, *MANY),
        *(one for key, plan in (("aligned", ALIGNED), ("stale", STALE), ("folded", FOLDED))
          for one in _cases(key, plan, *SOME)),
        *_cases("unscored", STALE, "grpo", **UNSCORED),
        *_cases("groups", GROUPED, "grpo", "kl_cov", settings=GROUPS),
        *_cases("own", TWICE, *SOME, "gspo", "kl_cov", "aer", settings=OWN),
        *_cases("drift", TWICE, "tepo", options=DRIFT),
        *_cases("own-drift", TWICE, "tepo", options=DRIFT, settings=OWN),
        *_cases("own-unscored", STALE, "grpo", **UNSCORED, settings=OWN),
    ],
    2: [
        *_cases("split", SPLIT, "grpo", "tepo", "gtpo", "hapo", "gspo", "kl_cov", "lopti"),
        *_cases("split-whole", SPLIT_WHOLE, "dapo", "grpo_s", "tr_grpo", "clip_cov", "ha_dw"),
        *_cases("unscored", SPLIT, "grpo", **UNSCORED),
        *_cases("groups", GROUPED, "grpo", settings=GROUPS),
        *_cases("own", SPLIT, "gspo", "kl_cov", settings=OWN),
        *_cases("own-unscored", SPLIT, "grpo", **UNSCORED, settings=OWN),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], beside.Ran]:
    """The steps of each case; all cases of a number of processes run at once."""
    return functools.cache(lambda n: beside.ran(model_dir, tmp_path_factory.mktemp("frozen"), CASES[n], n))


@pytest.mark.parametrize(("processes", "name"), [(n, one["name"]) for n, cases in CASES.items() for one in cases])
def test_every_step_is_the_embedded_engines(processes: int, name: str, ran: Callable, model_dir: Path) -> None:
    steps = ran(processes)(name)
    found = beside.compared(model_dir, steps)
    for number, step in enumerate(found):
        # Terms up to a hundred times as large cancel in some.
        assert step.loss == pytest.approx(step.expected, rel=2e-5, abs=1e-6), f"loss of step {number}"
        assert step.apart <= 1e-5 * step.norm, f"gradient of step {number}"
    assert any(step.norm > 1e-3 for step in found), "no step has a gradient to compare"
    if steps[0].case.get("settings") == GROUPS:
        each = [{row // frozen.GROUP for row in step.rows} for step in steps]
        assert [len(groups) * frozen.GROUP for groups in each] == [len(step.rows) for step in steps]
        every = sorted(group for groups in each for group in groups)
        assert every == list(range(steps[0].case["rows"] // frozen.GROUP))
    # Several updates on a rollout batch move the policy far enough for clips and ratios to act.
    assert any(step.moved > 0.3 for step in found) == (steps[0].case["updates"] > 1)
