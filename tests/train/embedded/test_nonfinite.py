"""NaN and infinity at every place where numbers enter: named, stopped or skipped, and no weight ever takes them in."""

import dataclasses
import json
import math
import random
import re
from types import SimpleNamespace

import pytest
import torch

import tokenpo
from run_views import Watch, lines
from tokenpo.base.errors import NotFinite, TokenPOError
from tokenpo.cli.view import SilentView
from tokenpo.core.learner import Step
from tokenpo.core.parts import Penalty, Weight
from tokenpo.core.statistics import Statistics
from tokenpo.records import Tracer
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded.forward import Forward
from tokenpo.train.run.embedded.loop import build_engine, train, with_optional_inputs
from tokenpo.train.run.embedded.teacher import Teacher
from tokenpo.train.run.embedded.updates import Trainer, _descend, gradients, improve
from tokenpo.train.run.evaluation import evaluate
from tokenpo.train.tasks import Score

BAD = [float("nan"), float("inf"), float("-inf")]
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
        objective = tokenpo.method(name)
        if "role" in objective.needs:
            continue  # the engine refuses them
        plan = SimpleNamespace(config=engine.config, objective=objective)
        engine = dataclasses.replace(engine, plan=plan, reference=engine.lm, teacher=Teacher(engine.lm, "3"))
        trainer = Trainer.of(engine.config, engine.lm, objective)
        facts, kept = experience.rollouts, experience.kept
        rollouts = with_optional_inputs(engine, trainer.forward, facts, kept)
        if (bought := objective.continuations) is not None:  # as if half of the continuations were right
            gain = bought.gain(rollouts, bought.at(rollouts), torch.full_like(rollouts.old_logprob, 0.5))
            rollouts = dataclasses.replace(rollouts, gain=gain)
        if (parts := objective.coalitions) is not None:  # as if every other part of a response were right
            gain = parts.gain(rollouts, lambda asked: [float(i % 2) for i in range(len(asked))])
            rollouts = dataclasses.replace(rollouts, gain=gain)
        step, wrong = trainer.learner.begin(rollouts), chance.randrange(2)
        first = {}
        taught = engine.teacher.taught(trainer.forward, rollouts, kept) if objective.teacher_beta is not None else None

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


def test_a_skipped_update_moves_nothing_and_a_run_goes_on(small, coin, tmp_path, monkeypatch):
    """The second of four updates has a broken gradient: it is named, counted, and not in the means of the step."""
    wanted = small(tmp_path / "run", rollout=ROLLOUT, train={"steps": 2, "nonfinite": "skip"})
    real, calls = torch.nn.utils.get_total_norm, iter(range(100))

    def norm(grads):
        if next(calls) == 1:
            grads[0][...] = float("nan")
        return real(grads)

    monkeypatch.setattr(torch.nn.utils, "get_total_norm", norm)
    view = Watch()
    train(wanted, view)
    made = lines(tmp_path / "run")
    assert [line.get("skipped_updates") for line in made] == [None, 1, 0]
    said = r"step 1: skipped update 2 of 2: the norm of the gradient of grpo is nan: the gradient of model\.\S+"
    assert any(re.match(said, x) for x in view.lines)
    assert made[1]["loss"] is not None and made[1]["grad_norm"] is not None
    state = json.loads((tmp_path / "run" / "checkpoints" / "step-000002" / "state.json").read_text())
    assert state["learner"]["updates"] == 4  # it keeps its place: the order of rows and the warm-up follow the number


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


def test_a_loss_that_is_no_number_is_not_learned_from(begin, monkeypatch):
    """Its gradient may be finite all the same."""
    _, trainer, experience = begin(rollout=ROLLOUT, train={"nonfinite": "skip"})
    monkeypatch.setattr(Statistics, "loss", math.nan)
    step = trainer.learner.begin(experience.rollouts)
    improve(trainer, step, experience.kept.prompts, Tracer(0))
    assert step.statistics.skipped == [f"update {i} of 2: the loss of grpo is nan" for i in (1, 2)]
    assert not trainer.optimizer.state


@dataclasses.dataclass(frozen=True)
class Fewer(Weight):
    """NaN on one token of one rollout of the whole batch, told by its log-probability."""

    logprob: float

    def __call__(self, batch, trust):
        return torch.where(batch.rollouts.old_logprob == self.logprob, math.nan, torch.ones_like(trust.ratio))


@dataclasses.dataclass(frozen=True)
class Root(Penalty):
    """0 with an infinite slope where the policy has not moved."""

    def __call__(self, batch, trust):
        moved = batch.policy.logprob - batch.rollouts.old_logprob
        return torch.where(moved > 1, moved.sqrt(), 0.0)


@pytest.mark.parametrize("micro", [2, 1000])
def test_a_part_that_breaks_the_loss_is_named_with_the_place_in_the_rollout_batch(begin, micro):
    engine, _, experience = begin(rollout=ROLLOUT, train={"nonfinite": "skip", "micro_rows": micro})
    rollouts, row = experience.rollouts, 5
    token = int(rollouts.mask[row].sum()) - 1
    weight = Fewer(float(rollouts.old_logprob[row, token]))
    assert (rollouts.old_logprob[rollouts.mask] == weight.logprob).sum() == 1
    objective = dataclasses.replace(tokenpo.method("grpo"), weights=(weight,), name="mine")
    trainer = Trainer.of(engine.config, engine.lm, objective)
    step = trainer.learner.begin(rollouts)
    assert step.credit.advantage[row].any()
    improve(trainer, step, experience.kept.prompts, Tracer(0))
    said = f"the loss of mine is nan: weight {weight!r} is nan on token {token} of rollout {row}"
    assert [why.partition(": ")[2] for why in step.statistics.skipped] == [said]


def test_a_part_that_breaks_the_gradient_is_named(begin):
    engine, _, experience = begin(rollout=ROLLOUT)
    objective = dataclasses.replace(tokenpo.method("grpo"), penalties=(Root(),))
    trainer = Trainer.of(engine.config, engine.lm, objective)
    step = trainer.learner.begin(experience.rollouts)
    with pytest.raises(NotFinite, match=r"is nan: the gradient of penalty Root\(\) is nan on token \d+ of rollout"):
        improve(trainer, step, experience.kept.prompts, Tracer(0))


def test_a_reward_that_is_no_number(small, coin, tmp_path, monkeypatch, bad=1e300):
    """1e300 is an infinity in float32."""
    judge, drawn = type(coin).score, iter(range(100))

    def score(self, problems, completions, ids):
        scores = judge(self, problems, completions, ids)
        return [*scores[:5], Score(bad, False), *scores[6:]] if next(drawn) == 1 else scores

    monkeypatch.setattr(type(coin), "score", score)
    sections = {"rollout": ROLLOUT, "evaluate": {"problems": 0}}
    with pytest.raises(
        TokenPOError, match=r"step 2, rollouts: task 'coin' gave the reward \S+ for response 1 to problem 5"
    ):
        train(small(tmp_path / "stop", **sections), SilentView())
    drawn, view = iter(range(100)), Watch()
    run = train(small(tmp_path / "skip", train={"nonfinite": "skip"}, **sections), view)
    assert run.steps == 4
    made = lines(tmp_path / "skip")
    assert [line["skipped_updates"] for line in made] == [0, 2, 0, 0]
    assert made[1]["reward"] is None
    assert [start for split, start, _ in coin.seen if split == "train"][-4:] == [0, 4, 8, 12]
    assert any(line.startswith("step 2: skipped the rollout batch: task 'coin'") for line in view.lines)


def test_a_skipped_rollout_batch_is_evaluated_and_saved_where_that_is_due(small, coin, tmp_path, monkeypatch):
    """The last two of four batches are rewarded with an infinity; what is held out is judged as ever."""
    judge, drawn = type(coin).score, iter(range(100))

    def score(self, problems, completions, ids):
        training = self.seen[-1][0] == "train"
        broken = training and next(drawn) >= 2
        return [Score(math.inf, False)] * len(ids) if broken else judge(self, problems, completions, ids)

    monkeypatch.setattr(type(coin), "score", score)
    often = {"evaluate": {"problems": 6, "every": 3}, "output": {"checkpoint_every": 3, "keep": 5}}
    outcome = train(small(tmp_path / "run", rollout=ROLLOUT, train={"nonfinite": "skip"}, **often), Watch())
    assert [line["step"] for line in outcome.evaluations] == [0, 3, 4]
    made = lines(tmp_path / "run")
    assert [line.get("skipped_updates") for line in made] == [None, 0, 0, 2, 2]
    assert ["seconds_evaluation" in line for line in made[1:]] == [False, False, True, True]
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert saved == ["step-000000", "step-000003", "step-000004"]


def test_an_evaluation_that_is_not_finite_ends_a_run_that_skips(small, coin, tmp_path, monkeypatch):
    """Broken weights: every rollout batch is skipped, and nothing can be told of what is held out."""
    config = small(tmp_path, rollout=ROLLOUT, train={"nonfinite": "skip"})
    engine, real, calls = build_engine(Plan(config)), evaluate, iter(range(100))

    def broken(config, lm, task):
        found = real(config, lm, task)
        if next(calls):
            return found
        with torch.no_grad():
            engine.lm.model.get_input_embeddings().weight[40:] = float("nan")
        return found

    monkeypatch.setattr("tokenpo.train.run.embedded.loop.build_engine", lambda config: engine)
    monkeypatch.setattr("tokenpo.train.run.embedded.loop.evaluate", broken)
    view = Watch()
    with pytest.raises(NotFinite, match="logits hold NaN or an infinity at token"):
        train(config, view)
    skipped = [line for line in view.lines if "skipped the rollout batch" in line]
    assert len(skipped) == 4 and all("logits hold NaN or an infinity at token" in line for line in skipped)


def test_a_task_that_gives_too_few_scores(small, coin, tmp_path, monkeypatch):
    monkeypatch.setattr(type(coin), "score", lambda self, problems, completions, ids: [Score(1.0, True)] * 3)
    with pytest.raises(TokenPOError, match="'coin' gave 3 scores for 16 responses"):
        train(small(tmp_path, rollout=ROLLOUT, evaluate={"problems": 0}), SilentView())


@pytest.mark.parametrize("vocabulary", [259, 3000])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_nothing_can_be_drawn_from(vocabulary, bad):
    """The index stays inside, so that a GPU survives it, and the log-prob says it."""
    from tokenpo.train.models.token_draw import draw

    logits = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(0))
    sound = draw(logits, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), 1.0)
    logits[1, 7] = bad
    drawn = draw(logits, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), 1.0)
    assert 0 <= int(drawn.token[1]) < vocabulary
    assert not torch.isfinite(drawn.logprob[1])
    assert torch.equal(drawn.logprob[[0, 2]], sound.logprob[[0, 2]])


def test_updates_that_overflow_the_weights_stop_the_run_before_a_checkpoint(small, coin, tmp_path, monkeypatch):
    step, calls = torch.optim.AdamW.step, iter(range(100))

    def broken(self, *arguments):
        step(self, *arguments)
        if next(calls) == 3:
            self.param_groups[0]["params"][0].data[0] = float("inf")

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    config = small(tmp_path / "run", rollout=ROLLOUT, evaluate={"problems": 0}, output={"checkpoint_every": 1})
    with pytest.raises(TokenPOError, match=r"step 2, the update broke the weights model\.embed_tokens\.weight"):
        train(config, SilentView())
    assert max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == "step-000001"
