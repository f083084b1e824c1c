"""Directions at a checkpoint: what the engine's own update makes; and what the run would do next."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.cli.view import SilentView
from tokenpo.core.objective import Objective
from tokenpo.engines.embedded.directions import AtCheckpoint
from tokenpo.engines.embedded.loop import train
from tokenpo.engines.embedded.updates import Trainer, gradients
from tokenpo.methods import method
from tokenpo.recipe.config import load_config
from tokenpo.runs.rollouts.experience import facts


@pytest.fixture
def run(small, tmp_path: Path, coin) -> Path:
    return train(small(tmp_path / "run", output={"checkpoint_every": 2}), SilentView()).directory


@pytest.fixture
def at(run: Path) -> Iterator[AtCheckpoint]:
    with closing(AtCheckpoint(run, frozenset({"influence", "ref_logprob"}), 2, 8, 64)) as made:
        yield made


def close(x: Tensor, y: Tensor) -> None:
    assert y.norm() > 0
    assert (x - y).norm() < 1e-5 * y.norm()


@pytest.mark.parametrize(
    ("name", "options"),
    [("kl_cov", {}), ("lopti", {}), ("skywork_entropy", {"start": 0.005, "target": 9.0})],
)
@pytest.mark.parametrize("moved", [False, True])
def test_is_the_engines_own(at: AtCheckpoint, name: str, options: dict[str, float], moved: bool) -> None:
    """The same rollouts through the engine's own forward passes, which fuse the head and the loss."""
    shared = [[at.rollouts()[0][0]]]
    if moved:
        at.move(2)
    objective = method(name, **options)
    (found,) = at.directions([objective], shared, moved=moved)
    trainer = Trainer.of(at.engine.config, at.engine.lm, objective)
    rollouts, prompts = shared[0][0]
    step, total = trainer.learner.begin(rollouts), torch.zeros(())
    for part in range(len(objective.split())):
        list(gradients(trainer, step.update(torch.arange(len(rollouts)), part), prompts))
        total = total - torch.cat([x.grad.flatten() for x in trainer.parameters])
    close(found[0, 0], total)


def test_the_gradient_of_the_reward(at: AtCheckpoint) -> None:
    """Dr. GRPO divides by a constant: on the same rollouts it is REINFORCE against the group's mean, to a scale."""
    first, reward = next(at.gradients())
    start = at._next.cursor + 8 * at._groups
    drawn = at._draw(start, at._problems)
    (direction,) = at.directions([method("dr_grpo")], [[(facts(drawn), drawn.prompts)]], moved=False)
    assert reward == pytest.approx(float(drawn.reward().mean()))
    # (R − mean of all) / (N · length) for (R − mean of the other 3) / N
    close(direction[0, 0] * at.engine.config.rollout.max_new_tokens * 4 / 3, first)


@torch.no_grad()
def test_how_far_the_policy_has_come(at: AtCheckpoint) -> None:
    """k3 and the share of ratios beyond 0.2, written out, where the old log-probs are 0.3 nats off."""
    chance, changes, shifted = torch.Generator().manual_seed(0), [], []
    for batches in at.rollouts():
        shifted.append([])
        for rollouts, prompts in batches:
            old = rollouts.old_logprob + 0.3 * torch.randn(rollouts.mask.shape, generator=chance)
            shifted[-1].append((dataclasses.replace(rollouts, old_logprob=old), prompts))
            changes.append((at.trainer.forward.policy(rollouts, prompts).logprob - old)[rollouts.mask].double())
    change, found = torch.cat(changes), at.distance(shifted)
    assert found.kl == pytest.approx(float((change.exp() - 1 - change).mean()), rel=1e-9)
    assert found.far == float(((change.exp() - 1).abs() > 0.2).double().mean())
    assert 0.2 < found.far < 0.8


def test_moves_as_the_run_would(at: AtCheckpoint, run: Path) -> None:
    """One step of two minibatches from step 2 on, bit for bit; and nothing in the run's directory has changed."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    shared = at.rollouts()
    assert at.distance(shared).kl == pytest.approx(0, abs=1e-9)
    at.move(2)
    assert at.distance(shared).kl > 1e-5
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    config = load_config(run / "config.json", overrides=["train.steps=3"], out=run.parent / "other")
    train(config, SilentView())
    with closing(AtCheckpoint(run.parent / "other", frozenset(), 3, 8, 64)) as next_one:
        for ours, theirs in zip(at.trainer.parameters, next_one.trainer.parameters, strict=True):
            assert torch.equal(ours, theirs)


def test_begins_before_the_first_step(small, tmp_path: Path, coin) -> None:
    run = train(small(tmp_path / "run", train={"steps": 1}, output={"keep": 3}), SilentView()).directory
    with closing(AtCheckpoint(run, frozenset(), 0, 8, 64)) as at:
        assert (at.step, at.trainer.learner.updates) == (0, 0)
        at.move(1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"step": 3}, r"no good checkpoint of step 3: give one that is there \(2, 4\)"),
        ({"batches": 12}, "batches is 12: give a multiple of 8"),
        ({"rollouts": 8}, "rollouts is 8: give a multiple of 32"),
    ],
)
def test_refuses(run: Path, given: dict[str, int], said: str) -> None:
    with pytest.raises(TokenPOError, match=said):
        AtCheckpoint(run, frozenset(), **{"step": 2, "batches": 8, "rollouts": 64, **given})


MINE = """
import tokenpo

def doubled():
    return tokenpo.method("dapo", low=0.2)
"""


def test_command(small, tmp_path: Path, coin, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """DAPO by another name is DAPO; what stands in the file is not run again, but the user's code is."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    train(small(Path("run"), train={"steps": 2}), SilentView())
    asked: list[list[str]] = []
    made_by = AtCheckpoint.directions

    def watched(at: AtCheckpoint, chosen: list[Objective], *given, moved: bool):
        asked.append([objective.name for objective in chosen])
        return made_by(at, chosen, *given, moved=moved)

    monkeypatch.setattr(AtCheckpoint, "directions", watched)
    common = ["--batches", "8", "--rollouts", "64", "--after", "3", "--json", "found.json"]
    assert main(["gradients", "run", "mine.py:doubled", "grpo", *common]) == 0
    assert asked == [["dapo", "dapo", "grpo"]] * 2
    held = json.loads(Path("found.json").read_text())
    assert held["about"]["step"] == 2 and held["about"]["kl"] > 0 and held["about"]["rollouts"] == 64
    numbers = held["methods"]["doubled"]["numbers"]
    assert numbers["against"] == numbers["after/against"] == [0, 0]
    assert numbers["useful"] == held["methods"]["dapo"]["numbers"]["useful"]
    assert held["methods"]["grpo"]["numbers"]["after/useful"] != numbers["after/useful"]
    asked.clear()
    assert "doubled cannot be told from DAPO; grpo " in capsys.readouterr().out
    assert main(["gradients", "run", "mine.py:doubled", "gspo", *common]) == 0
    assert asked == [["dapo", "gspo"]] * 2
    out = capsys.readouterr().out
    assert "grpo" not in out, "of a file with several methods, those that were asked for"
    assert "after step 2" in out and "gspo" in out and "numbers: found.json" in out
    assert main(["gradients", "run", "gspo", *common, "--batches", "16"]) == 2
    assert "another checkpoint or setting (batches differ)" in capsys.readouterr().err
