"""The KL of a rollout batch held in TRL, beside the embedded engine's learner on the same rollouts and weights."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokenpo
from trl_support import beside, frozen
from trl_support.beside import case, schedule
from trl_support.reference import Reference

LR = 2e-2  # of `frozen_run.py`
BATCHES = 3


def _case(key: str, plan: dict[str, int], target: float | None, stop: float | None = None) -> dict[str, Any]:
    return case("grpo", key, plan, ["sums"]) | {
        "batches": BATCHES, "settings": {"kl_target": target, "kl_stop": stop}
    }  # fmt: skip


STEPS, ALONE = schedule(2, 2, chunks=4, iterations=2), schedule(4, 2)
CASES = {
    1: [_case("held", STEPS, 2e-3), _case("stopped", STEPS, None, 1e-3), _case("alone", ALONE, 2e-3)],
    2: [_case("held", schedule(2, 1, chunks=2, iterations=2), 2e-3)],
}


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, beside.Ran]]:
    """Where the runs are, and the steps of each; all cases of a number of processes run at once."""

    @functools.cache
    def directory(processes: int) -> tuple[Path, beside.Ran]:
        out = tmp_path_factory.mktemp("held")
        return out, beside.ran(model_dir, out, CASES[processes], processes)

    return directory


@pytest.mark.parametrize(("processes", "name"), [(n, one["name"]) for n, cases in CASES.items() for one in cases])
def test_rates_and_stops_are_the_embedded_engines(processes: int, name: str, ran: Callable, model_dir: Path) -> None:
    out, of = ran(processes)
    steps = of(name)
    lines = [json.loads(line) for line in (out / name / "run/tokenpo/metrics.jsonl").read_text().splitlines()]
    expected = _embedded(model_dir, steps)
    assert len(lines) == BATCHES and len({line["kl_rate"] for line in lines}) > (name != "grpo-stopped")
    for line, wanted in zip(lines, expected, strict=True):
        for what in ("kl_rate", "kl_left_out", "lr", *(["kl", "kl_reached"] if wanted is not expected[-1] else [])):
            assert line[what] == pytest.approx(wanted[what], rel=1e-3, abs=1e-9), what
    left = [line["kl_left_out"] for line in lines]
    assert any(left) == (name != "grpo-alone")
    ranks = [json.loads((out / name / f"rank{rank}.json").read_text()) for rank in range(processes)]
    assert len({(rank["rate"], rank["weights"]) for rank in ranks}) == 1


def test_a_rate_is_lent_to_one_step() -> None:
    """TRL's schedule may go on from the learning rate that it finds, as ReduceLROnPlateau does."""
    from tokenpo.engines.trl.records import TokenPOCallback

    current = SimpleNamespace(settle=lambda: None, check=lambda lr: True)
    trainer: Any = SimpleNamespace(learner=SimpleNamespace(kl=tokenpo.KLHold(0.004), rate=0.125), current=current)
    recorder, optimizer = (
        TokenPOCallback(trainer, Path()),
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5),
    )
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
