"""TRL on frozen rollouts beside the embedded engine: value and gradient of every optimiser step are the same, and so is
how the KL of a rollout batch is held."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokenpo
from run_views import lines
from trl_support import beside, frozen
from trl_support.beside import case, schedule
from trl_support.reference import Reference

ALIGNED = schedule(4, 2)
STALE = schedule(4, 1, chunks=3)
TWICE = schedule(2, 2, chunks=4, iterations=2)
FOLDED = schedule(4, 4, chunks=2, iterations=2)
# Three rows of each rank in a micro-batch: 12 rows of two ranks are three groups, and the second lies on both.
SPLIT = schedule(3, 1, chunks=2, iterations=2)
SPLIT_WHOLE = schedule(3, 2)
# Without the model's head: TRL's own pass, and for the entropy drift the one with logits.
OWN = {"fused_objective": False}
DRIFT = {"decreasing": "analytic"}

MANY = (
    "grpo dapo dr_grpo tepo gtpo grpo_s tr_grpo hapo gspo clip_cov kl_cov lopti ha_dw aer skywork_entropy dppo_tv "
    "forking_tokens stapo"
).split()
SOME = ("grpo", "dapo", "clip_cov", "ha_dw")


def _cases(key: str, plan: dict[str, int], *methods: str, **more: Any) -> list[dict[str, Any]]:
    rewards = {name: ["sums", "lengths"] if name in SOME and not more else ["sums"] for name in methods}
    return [{**case(name, key, plan, rewards[name]), **more} for name in methods]


UNSCORED = {"rewards": ["seldom"]}
CASES = {
    1: [
        *_cases("twice", TWICE, *MANY),
        *(
            one
            for key, plan in (("aligned", ALIGNED), ("stale", STALE), ("folded", FOLDED))
            for one in _cases(key, plan, *SOME)
        ),
        *_cases("unscored", STALE, "grpo", **UNSCORED),
        *_cases("own", TWICE, *SOME, "gspo", "kl_cov", "aer", settings=OWN),
        *_cases("drift", TWICE, "tepo", options=DRIFT),
        *_cases("own-drift", TWICE, "tepo", options=DRIFT, settings=OWN),
        *_cases("own-unscored", STALE, "grpo", **UNSCORED, settings=OWN),
    ],
    2: [
        *_cases("split", SPLIT, "grpo", "tepo", "gtpo", "hapo", "gspo", "kl_cov", "lopti"),
        *_cases("split-whole", SPLIT_WHOLE, "dapo", "grpo_s", "tr_grpo", "clip_cov", "ha_dw"),
        # With checkpoints DDP waits for the gradient of every parameter, without a token too.
        *_cases("unscored", SPLIT, "grpo", **UNSCORED, checkpointing=True),
        *_cases("own", SPLIT, "gspo", "kl_cov", settings=OWN),
        *_cases("own-unscored", SPLIT, "grpo", **UNSCORED, settings=OWN),
    ],
}

LR = 2e-2  # of `frozen_run.py`
BATCHES = 3


def _held(key: str, plan: dict[str, int], target: float | None, stop: float | None = None) -> dict[str, Any]:
    return case("grpo", key, plan, ["sums"]) | {"batches": BATCHES, "settings": {"kl_target": target, "kl_stop": stop}}


HELD = {
    1: [_held("held", TWICE, 2e-3), _held("stopped", TWICE, None, 1e-3), _held("alone", ALIGNED, 2e-3)],
    2: [_held("held", schedule(2, 1, chunks=2, iterations=2), 2e-3)],
}


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, beside.Ran]]:
    """Where the runs are, and the steps of each; all cases of a number of processes run at once."""

    @functools.cache
    def directory(processes: int) -> tuple[Path, beside.Ran]:
        out = tmp_path_factory.mktemp("frozen")
        return out, beside.ran(model_dir, out, [*CASES[processes], *HELD[processes]], processes)

    return directory


@pytest.mark.parametrize(("processes", "name"), [(n, one["name"]) for n, cases in CASES.items() for one in cases])
def test_every_step_is_the_embedded_engines(processes: int, name: str, ran: Callable, model_dir: Path) -> None:
    steps = ran(processes)[1](name)
    found = beside.compared(model_dir, steps)
    for number, step in enumerate(found):
        # Terms up to a hundred times as large cancel in some.
        assert step.loss == pytest.approx(step.expected, rel=2e-5, abs=1e-6), f"loss of step {number}"
        assert step.apart <= 1e-5 * step.norm, f"gradient of step {number}"
    assert any(step.norm > 1e-3 for step in found), "no step has a gradient to compare"
    # Several updates on a rollout batch move the policy far enough for clips and ratios to act.
    assert any(step.moved > 0.3 for step in found) == (steps[0].case["updates"] > 1)


@pytest.mark.parametrize(("processes", "name"), [(n, one["name"]) for n, cases in HELD.items() for one in cases])
def test_rates_and_stops_are_the_embedded_engines(processes: int, name: str, ran: Callable, model_dir: Path) -> None:
    out, of = ran(processes)
    steps = of(name)
    logged, expected = lines(out / name / "run/tokenpo"), _embedded(model_dir, steps)
    assert len(logged) == BATCHES and len({line["kl_rate"] for line in logged}) > (name != "grpo-stopped")
    for line, wanted in zip(logged, expected, strict=True):
        for what in ("kl_rate", "kl_left_out", "lr", *(["kl", "kl_reached"] if wanted is not expected[-1] else [])):
            assert line[what] == pytest.approx(wanted[what], rel=1e-3, abs=1e-9), what
    left = [line["kl_left_out"] for line in logged]
    assert any(left) == (name != "grpo-alone")
    ranks = [json.loads((out / name / f"rank{rank}.json").read_text()) for rank in range(processes)]
    assert len({(rank["rate"], rank["weights"]) for rank in ranks}) == 1


def test_a_rate_is_lent_to_one_step() -> None:
    """TRL's schedule may go on from the learning rate that it finds, as ReduceLROnPlateau does."""
    from tokenpo.hosts.trl.records import TokenPOCallback

    current = SimpleNamespace(settle=lambda: None, check=lambda lr: True)
    trainer: Any = SimpleNamespace(learner=SimpleNamespace(kl=tokenpo.KLHold(0.004), rate=0.125), current=current)
    recorder, optimizer = TokenPOCallback(trainer, Path()), torch.optim.SGD([torch.zeros(1)], lr=0.5)
    recorder.on_pre_optimizer_step(None, None, None, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.0625
    recorder.on_optimizer_step(None, None, None, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.5


def _embedded(model_dir: Path, steps: list[beside.Step]) -> list[dict[str, float]]:
    """Metrics of every rollout batch by a learner that sees TRL's weights; nothing after the last step."""
    case = steps[0].case
    updates, groups = case["updates"], case["rows"] // frozen.GROUP
    hold = tokenpo.KLHold.of(case["settings"]["kl_target"], case["settings"]["kl_stop"])
    reference = Reference(model_dir, tokenpo.method("grpo"), seed=3, longest=frozen.LONGEST, kl=hold)
    learner, forward, found = reference.trainer.learner, reference.trainer.forward, []
    for batch in range(BATCHES):
        prompts = [reference.lm.encode(text) for text in frozen.prompts()[batch * groups : (batch + 1) * groups]]
        here = steps[batch * updates : (batch + 1) * updates]
        begun = learner.begin(reference.scored(beside.facts(case, batch), prompts, here[0].tensors))
        for place, step in enumerate(here):
            reference.weigh(step.tensors)
            update = begun.update(torch.tensor(step.rows), number=step.number)
            with torch.no_grad():
                update.evaluate(forward.policy(update.rollouts, prompts), update.rows)
            made = learner.check(update, lr=LR * learner.rate)
            after = steps[step.number + 1].tensors if step.number + 1 < len(steps) else None
            if after is not None:
                same = all(torch.equal(step.tensors[x], after[x]) for x in after if x.startswith("weight/"))
                assert same != made, f"step {place} of rollout batch {batch}"
        if learner.measures_end and after is not None:
            reference.weigh(after)
            with torch.no_grad():
                learner.end(update, forward.policy(update.rollouts, prompts))
        found.append(learner.metrics())
    return found
