"""A teacher in TRL's trainer: its numbers are transformers' own, and the loss of `gkd` is TRL's. Imports TRL."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DistillationTrainer  # pyright: ignore

import tokenpo
from random_models import random_llama
from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.hosts.trl.forward import base_of, texts
from trl_support.small import config, even, prompts


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wider than the student, with a head of its own."""
    return random_llama(tmp_path_factory.mktemp("teacher"))


class Beside(TokenPOTrainer):
    """Keeps, of every micro-batch, the loss and its gradients here and in TRL's distillation."""

    mixed: float

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        value, base = super()._compute_loss(model, inputs), base_of(self)
        theirs = SimpleNamespace(
            beta=self.mixed,
            temperature=self.temperature,
            accelerator=self.accelerator,
            teacher_model=self.teacher.model,
            model_kwarg_keys=(),
            _is_vlm=False,
            _forward_redirection=lambda _, __, work, *given, **named: work(*given, **named),
        )
        theirs._get_last_hidden_state = functools.partial(DistillationTrainer._get_last_hidden_state, theirs)
        tokens = int(self.current.update.totals.tokens)
        other, _, _ = DistillationTrainer._compute_loss(theirs, base, inputs, tokens)  # pyright: ignore[reportArgumentType]
        weights = list(base.parameters())
        self.seen.append([(x, torch.autograd.grad(x, weights, retain_graph=True)) for x in (value, other)])
        return value


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gkd_is_trls_own_distillation(beta: float, model_dir: Path, teacher_dir: Path, tmp_path: Path) -> None:
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-2}
    trainer = Beside(
        str(model_dir),
        even,
        config(tmp_path, method=None, temperature=0.7, **given),
        train_dataset=prompts(),
        method=tokenpo.method("gkd", beta=beta),
        teacher_model=str(teacher_dir),
    )
    trainer.mixed, trainer.seen = beta, []
    trainer.train()
    assert len(trainer.seen) == 4
    for (ours, found), (theirs, wanted) in trainer.seen:
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-6) and ours.item() > 0.1
        assert max(float(x.abs().max()) for x in wanted) > 1e-2
        for x, y in zip(found, wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


class Scored(TokenPOTrainer):
    """Keeps what the last rollout batch says of the teacher, and TRL's tensors."""

    def drawn(self, inputs: Any, size: int) -> Any:
        self.last = super().drawn(inputs, size)
        return self.last


@pytest.mark.parametrize(("form", "fused"), [("opd", True), ("penalty", False)])
def test_tokens_are_scored_by_the_teacher_and_learnt_from(
    form: Any, fused: bool, model_dir: Path, teacher_dir: Path, tmp_path: Path
) -> None:
    method = tokenpo.method("opd")
    if form != "opd":
        method = tokenpo.with_teacher(tokenpo.method("grpo"), 1.0, form=form)
    teacher = AutoModelForCausalLM.from_pretrained(teacher_dir)
    settings = {"per_device_train_batch_size": 64, "max_steps": 30, "learning_rate": 1e-2, "logging_steps": 1}
    trainer = Scored(
        str(model_dir),
        even,
        config(tmp_path, method=None, temperature=0.7, fused_objective=fused, **settings),
        train_dataset=prompts(),
        method=method,
        teacher_model=teacher,
    )
    trainer.train()
    output, rows = trainer.last.output, trainer.last.rows
    length = output["completion_ids"].shape[1]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(teacher_dir)(**texts(output)).logits[:, -length - 1 : -1] / 0.7
    wanted = logits.log_softmax(-1).gather(2, output["completion_ids"][..., None])[..., 0]
    torch.testing.assert_close(rows["teacher_logprob"][rows["mask"]], wanted[rows["mask"]], rtol=1e-5, atol=1e-5)
    kl = [line["teacher_kl"] for line in trainer.state.log_history if "teacher_kl" in line]
    assert len(kl) == 30 and sum(kl[-3:]) < 0.95 * sum(kl[:3])


def test_a_teacher_that_cannot_teach_is_refused(model_dir: Path, teacher_dir: Path, tmp_path: Path) -> None:
    def ask(method: str, teacher: str = str(teacher_dir)) -> None:
        given = {"train_dataset": prompts(), "method": method, "teacher_model": teacher}
        TokenPOTrainer(str(model_dir), even, config(tmp_path, method=None), **given)

    with pytest.raises(TokenPOError, match="teacher_model: grpo reads no teacher"):
        ask("grpo")
    tokenizer = AutoTokenizer.from_pretrained(teacher_dir)
    tokenizer.add_tokens(["another"])
    other = AutoModelForCausalLM.from_pretrained(teacher_dir)
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(TokenPOError, match=r"teacher_model: the tokens of .*other are not those of the policy"):
        ask("opd", str(tmp_path / "other"))
