"""A teacher in a run: its log-probabilities are its own, in its own context, and whoever can't teach is refused."""

import pytest
import torch

from run_views import numbers
from tokenpo.base.errors import TokenPOError
from tokenpo.train.models import load, save
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View
from tokenpo.train.run.updates import gradients

SHAPE = {"rollout": {"prompts": 4, "group_size": 3, "max_new_tokens": 9}}


@pytest.fixture(scope="module")
def other_dir(model_dir, tmp_path_factory):
    """The policy's model with other weights."""
    lm, path = load(model_dir), tmp_path_factory.mktemp("teacher")
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for x in lm.model.parameters():
            x += 0.1 * torch.randn(x.shape, generator=draws)
    save(lm, path)
    return path


def _taught(config):
    """The batch with the teacher's log-probabilities, and the engine."""
    engine = Local.open(Plan(config))
    batch = engine.collect(0)
    return engine.complete(batch.rollouts, batch.kept), batch.kept, engine


def _alone(lm, prompt: list[int], ids: list[int]) -> torch.Tensor:
    """[T] of a text that transformers' own model runs alone."""
    return _distribution(lm, prompt, ids)[torch.arange(len(ids)), torch.tensor(ids)]


def _distribution(lm, prompt: list[int], ids: list[int]) -> torch.Tensor:
    """[T, V] log-probabilities."""
    return lm.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1)


@pytest.mark.parametrize("hint, own", [(None, False), ("{answer} is it: ", False), ("{answer} is it: ", True)])
def test_each_token_is_scored_in_the_teachers_context(small, tmp_path, other_dir, hint, own):
    teacher = {} if hint is None else {"hint": hint}
    if not own:
        teacher["path"] = str(other_dir)
    config = small(tmp_path / "run", method={"name": "opd"}, teacher=teacher, **SHAPE)
    rollouts, kept, engine = _taught(config)
    lm = engine.lm if own else load(other_dir)
    for row, mask in enumerate(rollouts.mask):
        problem, ids = kept.problems[int(rollouts.group[row])], rollouts.token_ids[row, mask].tolist()
        before = (hint or "").replace("{answer}", str(problem.answer))
        expected = _alone(lm, lm.encode(before + problem.prompt), ids)
        assert torch.allclose(rollouts.teacher_logprob[row, mask].double(), expected, atol=2e-5)


@pytest.mark.parametrize("method", [{"name": "opd"}, {"name": "rto", "dpo": 1.0, "bound": 9.0, "beta": 0.0}])
def test_a_run_with_a_teacher_lowers_its_divergence_and_resumes_bit_for_bit(small, tmp_path, other_dir, method):
    """RTO with a large share of the teacher, of which the policy is the reference at first."""
    options = {
        "method": method,
        "teacher": {"path": str(other_dir)},
        "rollout": {"prompts": 32, "group_size": 4, "max_new_tokens": 6},
        "evaluate": {"problems": 0},
        "train": {"steps": 4, "minibatches": 8, "lr": 3e-3, "micro_rows": 128},
        "output": {"checkpoint_every": 2, "keep": 5},
    }
    whole, cut = small(tmp_path / "whole", **options), small(tmp_path / "cut", **options)
    train(whole, View())
    kl = [line["teacher_kl"] for line in numbers(tmp_path / "whole") if "teacher_kl" in line]
    assert len(kl) == 4 and kl[-1] < 0.9 * kl[0]
    train(cut.model_copy(update={"train": cut.train.model_copy(update={"steps": 2})}), View())
    resume(tmp_path / "cut", View(), cut)
    assert numbers(tmp_path / "cut") == numbers(tmp_path / "whole")


def test_whole_distributions_are_compared_in_the_teachers_context(small, tmp_path, coin, double_dir):
    model = {"dtype": "float64", "path": str(double_dir)}
    config = small(
        tmp_path, model=model, method={"name": "gkd", "beta": 0.3}, teacher={"hint": "see {answer} "}, **SHAPE
    )
    rollouts, kept, engine = _taught(config)
    trainer = engine.trainer
    step = trainer.learner.begin(rollouts)
    (update,) = step.updates()
    list(gradients(trainer, update, kept.prompts, engine.teach(step.rollouts, kept)))
    found = [x.grad.clone() for x in trainer.parameters]

    total = 0.0
    for row, mask in enumerate(rollouts.mask):
        problem, ids = kept.problems[int(rollouts.group[row])], rollouts.token_ids[row, mask].tolist()
        hinted = engine.lm.encode(f"see {problem.answer} " + problem.prompt)
        p = _distribution(engine.lm, kept.prompts[int(rollouts.group[row])], ids)
        q = _distribution(engine.lm, hinted, ids).detach()
        middle = (0.3 * q.exp() + 0.7 * p.exp()).log()
        total += (0.3 * q.exp() * (q - middle) + 0.7 * p.exp() * (p - middle)).sum()
    expected = torch.autograd.grad(total / int(rollouts.mask.sum()), trainer.parameters)
    assert max(float(x.abs().max()) for x in expected) > 1e-4
    for x, y in zip(found, expected, strict=True):
        assert torch.allclose(x, y, rtol=1e-8, atol=1e-11)


def test_another_tokenizer_is_refused(small, tmp_path, other_dir):
    lm = load(other_dir)
    lm.tokenizer.add_tokens(["<new>"])
    lm.model.resize_token_embeddings(len(lm.tokenizer))
    save(lm, tmp_path / "more")
    with pytest.raises(TokenPOError, match=r"teacher.path: the tokens of .*more are not those of"):
        Local.open(Plan(small(tmp_path, method={"name": "opd"}, teacher={"path": str(tmp_path / "more")})))
