"""NaN and infinity at every place where numbers enter: named, stopped or skipped, and no weight ever takes them in."""

import dataclasses
import math
import random
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokenpo
from guessing import Guess
from run_views import lines
from tokenpo.base.errors import NotFinite, TokenPOError
from tokenpo.core.learner import Step
from tokenpo.records import Tracer
from tokenpo.train.run.embedded import Local, Teacher
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View
from tokenpo.train.run.updates import Forward, Trainer, _descend, gradients, improve
from tokenpo.train.tasks import Score

BAD = [float("nan"), float("inf"), float("-inf")]
# Options at which the method trains on responses of high entropy.
LEARNS = {"gtpo_conflict": {"most": math.inf}}
ROLLOUT = {"prompts": 4, "group_size": 4, "max_new_tokens": 6}


@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_no_method_lets_a_number_that_is_not_finite_into_the_weights(begin, monkeypatch, nonfinite):
    """Logits or a gradient broken in one update of one rollout batch, for each method of the table in turn.

    The broken update leaves weights and moments as they were, and the other one moves them.
    """
    train = {"nonfinite": nonfinite, "micro_rows": 1000}
    engine, _, experience = begin(rollout=ROLLOUT, train=train, method={"name": "remax"})
    start = {name: x.detach().clone() for name, x in engine.lm.model.named_parameters()}
    ordinary, chance, broken = Forward.passes, random.Random(0), {"logits": 0, "gradient": 0}
    for name in tokenpo.methods.METHODS:
        kind, bad = chance.choice(list(broken)), chance.choice(BAD)
        objective = tokenpo.method(name, **LEARNS.get(name, {}))
        plan: Any = SimpleNamespace(config=engine.config, objective=objective)
        engine = Local(plan, engine.lm, engine.task, engine.lm, Teacher(engine.lm, "3"))
        trainer = engine.trainer
        facts, kept = experience.rollouts, experience.kept
        rollouts = engine.complete(facts, kept)
        for part in objective.supplied:
            rollouts = dataclasses.replace(
                rollouts, extra={part.gives: part.supply(rollouts, Guess(engine.lm, kept.prompts))}
            )
        step, wrong = trainer.learner.begin(rollouts), chance.randrange(2)
        first = {}
        taught = engine.teach(rollouts, kept)

        def passes(self, rollouts, prompts, kind=kind, bad=bad, first=first, wrong=wrong):
            rows = first.setdefault("rows", rollouts.group.unique().tolist())
            for seen in ordinary(self, rollouts, prompts):
                if (rollouts.group.unique().tolist() == rows) == (wrong == 0):
                    if kind == "logits":
                        seen = seen._replace(out=seen.out.index_fill(0, torch.tensor([0]), bad))
                    elif seen.out.requires_grad:
                        seen.out.register_hook(lambda grad: grad.index_fill(0, torch.tensor([0]), bad))
                yield seen

        with monkeypatch.context() as patch:
            patch.setattr(Forward, "passes", passes)
            words = r"Policy\.logprob\[\d+, \d+\] is" if kind == "logits" else "gradient of model"
            arguments = (trainer, step, kept.prompts, Tracer(0), None, taught)
            if nonfinite == "stop":
                with pytest.raises(NotFinite, match=rf"update \d of \d: .*{words}"):
                    improve(*arguments)
            else:
                improve(*arguments)
                skipped = step.statistics.skipped
                assert skipped, name
                assert all(re.search(words, why) for why in skipped)
                assert trainer.learner.metrics()["skipped_updates"] == len(skipped)
                broken[kind] += len(skipped)
        with torch.no_grad():
            for parameter, x in engine.lm.model.named_parameters():
                assert torch.isfinite(x).all(), (name, parameter)
                x.copy_(start[parameter])
        moments = [value for entry in trainer.optimizer.state.values() for value in entry.values()]
        assert all(torch.isfinite(value).all() for value in moments), name
    assert nonfinite == "stop" or min(broken.values()) > 10


def test_an_update_skipped_half_way_leaves_nothing_behind(begin, monkeypatch):
    """The first of two updates breaks in its second micro-batch: weights, moments and statistics are those of the
    second update alone."""
    engine, _, experience = begin(rollout=ROLLOUT, train={"nonfinite": "skip", "micro_rows": 2})
    rollouts, prompts = experience.rollouts, experience.kept.prompts
    start = [x.detach().clone() for x in engine.lm.model.parameters()]

    def after(run) -> tuple[list[torch.Tensor], dict[str, float]]:
        trainer = Trainer.of(engine.config, engine.lm, engine.objective)
        run(trainer, trainer.learner.begin(rollouts))
        moments = [value for entry in trainer.optimizer.state.values() for value in entry.values()]
        found = [x.detach().clone() for x in (*trainer.parameters, *moments)]
        with torch.no_grad():
            for x, value in zip(trainer.parameters, start, strict=True):
                x.copy_(value)
        return found, trainer.learner.metrics()

    def second(trainer: Trainer, step: Step) -> None:
        update = list(step.updates(minibatches=2))[1]
        list(gradients(trainer, update, prompts))
        _descend(trainer, update)

    alone, said_alone = after(second)
    ordinary, calls = Forward.passes, []

    def passes(self, *arguments):
        calls.append(1)
        for seen in ordinary(self, *arguments):
            yield seen._replace(out=seen.out * math.nan) if len(calls) == 2 else seen

    monkeypatch.setattr(Forward, "passes", passes)
    left, said = after(lambda trainer, step: improve(trainer, step, prompts, Tracer(0)))
    assert len(calls) > 3
    assert all(torch.equal(a, b) for a, b in zip(left, alone, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(left, start, strict=False))
    assert said == said_alone | {"skipped_updates": 1}


def test_a_reward_that_is_no_number(small, coin, tmp_path, monkeypatch):
    """1e300 is an infinity in float32. Skipped, the batch is evaluated and saved where that is due."""
    judge, drawn = type(coin).score, iter(range(100))

    def score(self, problems, completions, ids):
        scores = judge(self, problems, completions, ids)
        training = self.seen[-1][0] == "train"
        return [*scores[:5], Score(1e300, False), *scores[6:]] if training and next(drawn) == 1 else scores

    monkeypatch.setattr(type(coin), "score", score)
    sections = {"rollout": ROLLOUT, "evaluate": {"problems": 6, "every": 2}, "output": {"checkpoint_every": 2}}
    with pytest.raises(TokenPOError, match=r"step 2, rollouts: task 'coin' .* for response 1 to problem 5"):
        train(small(tmp_path / "stop", **sections), View())
    drawn = iter(range(100))
    run = train(small(tmp_path / "skip", train={"nonfinite": "skip", "steps": 3}, **sections), View())
    assert [line["step"] for line in run.evaluations] == [0, 2, 3]
    made = lines(tmp_path / "skip")[1:]
    assert [line["skipped_updates"] for line in made] == [0, 2, 0] and made[1]["reward"] is None
    assert [start for split, start, _ in coin.seen if split == "train"][-3:] == [0, 4, 8]
    assert (tmp_path / "skip" / "checkpoints" / "step-000002").is_dir()


def test_updates_that_overflow_the_weights_stop_the_run_before_a_checkpoint(small, coin, tmp_path, monkeypatch):
    step, calls = torch.optim.AdamW.step, iter(range(100))

    def broken(self, *arguments):
        step(self, *arguments)
        if next(calls) == 3:
            self.param_groups[0]["params"][0].data[0] = float("inf")

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    config = small(tmp_path / "run", rollout=ROLLOUT, evaluate={"problems": 0}, output={"checkpoint_every": 1})
    with pytest.raises(TokenPOError, match=r"step 2, the update broke the weights model\.embed_tokens\.weight"):
        train(config, View())
    assert max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == "step-000001"
