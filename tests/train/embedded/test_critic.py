"""The value head: its gradients are those of the formula, its warm-up moves nothing else, and nobody else has one."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file

from run_views import numbers
from tokenpo.base.errors import NotFinite
from tokenpo.records import Tracer
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View
from tokenpo.train.run.updates import Trainer, gradients, improve


@pytest.fixture
def begun(begin, double_dir):
    """A trainer in float64 with a value head that is not zero, a step begun with its values, and the prompts."""

    def build(critic: dict | None = None, **options):
        model = {"dtype": "float64", "path": str(double_dir)}
        sections = {"rollout": {"prompts": 6, "group_size": 4, "max_new_tokens": 9}, "train": {"ratio_tolerance": 1e9}}
        chosen = {"name": "ppo", "value_clip": 0.2, **options}
        engine, trainer, batch = begin(model=model, method=chosen, critic=critic or {}, **sections)
        _turn(trainer.critic.head, 0.3)
        rollouts = engine.complete(batch.rollouts, batch.kept)
        _turn(trainer.critic.head, 0.3)  # the critic has moved since: the clip of the value acts
        return trainer, trainer.learner.begin(rollouts), batch.kept.prompts

    return build


def _turn(head: torch.nn.Module, size: float) -> None:
    draws = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for x in head.parameters():
            x += size * torch.randn(x.shape, generator=draws, dtype=x.dtype)


def _hidden(trainer: Trainer, step, prompts) -> list[torch.Tensor]:
    """[T, H] of every response, each text run alone through transformers' own model."""
    found = []
    for row, mask in enumerate(step.rollouts.mask):
        prompt, ids = prompts[int(step.rollouts.group[row])], step.rollouts.token_ids[row, mask].tolist()
        out = trainer.lm.model(torch.tensor([[*prompt, *ids]]), output_hidden_states=True)
        found.append(out.hidden_states[-1][0, len(prompt) - 1 : -1])
    return found


def _oracle(trainer: Trainer, step, prompts) -> torch.Tensor:
    """The critic's loss, written from its formula: rewards of 0 or 1 at the end, lam = gamma = 1, clip 0.2."""
    rollouts, head = step.rollouts, trainer.critic.head
    total = torch.zeros((), dtype=torch.float64)
    for row, hidden in enumerate(_hidden(trainer, step, prompts)):
        value, old = hidden @ head.weight + head.bias, rollouts.value[row, : len(hidden)].double()
        near = torch.minimum(torch.maximum(value, old - 0.2), old + 0.2)
        gap = float(rollouts.reward[row])
        total = total + 0.5 * torch.maximum((value - gap) ** 2, (near - gap) ** 2).sum()
    return total / float(rollouts.mask.sum())


def _gradients(trainer: Trainer, step, prompts, rows: int = 1000, tokens: int = 10**6) -> tuple[torch.Tensor, ...]:
    """Of the model and of the value head, flat, and the critic's loss, on one update of all rows."""
    forward = dataclasses.replace(trainer.forward, micro_rows=rows, micro_tokens=tokens)
    update = step.update(torch.arange(len(step.rollouts)))
    list(gradients(dataclasses.replace(trainer, forward=forward), update, prompts))
    flat = (
        torch.cat([x.grad.flatten() for x in part]) for part in (trainer.parameters, trainer.critic.head.parameters())
    )
    return *flat, update.statistics._sums["value_loss"]


def _policy(trainer: Trainer, step, prompts) -> torch.Tensor:
    """The policy's gradient without any critic."""
    bare = dataclasses.replace(trainer, forward=dataclasses.replace(trainer.forward, critic=None))
    list(gradients(bare, step.update(torch.arange(len(step.rollouts))), prompts))
    return torch.cat([x.grad.flatten() for x in trainer.parameters])


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_those_of_the_formula(begun, shared):
    trainer, step, prompts = begun({"shared": shared})
    policy = _policy(trainer, step, prompts)
    model, head, loss = _gradients(trainer, step, prompts)
    parameters = [*trainer.critic.head.parameters(), *trainer.parameters]
    wanted = _oracle(trainer, step, prompts)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)  # the old value is held in float32
    found = torch.autograd.grad(wanted, parameters, allow_unused=True)
    weight, bias, *rest = (torch.zeros_like(x) if g is None else g for g, x in zip(found, parameters, strict=True))
    exact, through = torch.cat([weight, bias[None]]), torch.cat([x.flatten() for x in rest])
    assert (head - exact).norm() <= 1e-6 * exact.norm() and through.norm() > 0.01 * policy.norm()
    if shared:
        assert (model - policy - through).norm() <= 1e-6 * through.norm()
    else:
        assert (model - policy).norm() <= 1e-14 * policy.norm()


def test_the_value_is_that_of_the_head_before_the_updates(begun):
    trainer, step, prompts = begun()
    rollouts = step.rollouts
    fresh = trainer.forward.value(trainer.critic, rollouts, prompts)
    head = trainer.critic.head
    for row, hidden in enumerate(_hidden(trainer, step, prompts)):
        seen = fresh[row, rollouts.mask[row]].double()
        torch.testing.assert_close(seen, (hidden @ head.weight + head.bias).detach(), rtol=1e-5, atol=1e-6)
    assert (fresh[~rollouts.mask] == 0).all() and not torch.equal(fresh, rollouts.value)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 10**6), (5, 10**6), (1000, 40)])
def test_the_split_into_micro_batches_changes_nothing(begun, rows, tokens):
    trainer, step, prompts = begun()
    model, head, loss = _gradients(trainer, step, prompts)
    others = _gradients(trainer, step, prompts, rows, tokens)
    for one, other in zip((model, head, loss), others, strict=True):
        assert (one - other).norm() <= 1e-12 * one.norm()


def _state(trainer: Trainer) -> list[bytes]:
    moments = [x for entry in trainer.optimizer.state.values() for x in entry.values()]
    return [x.detach().numpy().tobytes() for x in (*trainer.lm.model.parameters(), *moments)]


@pytest.mark.parametrize("shared", [False, True])
def test_the_warm_up_trains_the_value_head_alone(begun, shared):
    trainer, step, prompts = begun({"warmup": 1, "shared": shared})
    before, head = _state(trainer), trainer.critic.head.weight.detach().clone()
    improve(trainer, step, prompts, Tracer(4))
    assert _state(trainer) == before and not torch.equal(trainer.critic.head.weight, head)
    seen = step.metrics()
    assert (seen["lr"], seen["grad_norm"], trainer.learner.updates, step.made) == (0, 0, 0, 0)
    assert seen["value_loss"] == pytest.approx(step.statistics._sums["value_loss"].item() / 2) and math.isnan(
        seen["kl"]
    )
    assert not trainer.critic.alone
    improve(trainer, trainer.learner.begin(step.rollouts), prompts, Tracer(0))
    assert _state(trainer) != before and trainer.learner.updates == 2


def test_rows_without_an_advantage_teach_the_critic(begun):
    trainer, step, prompts = begun(whiten=False)
    _, whole, _ = _gradients(trainer, step, prompts)
    silent = dataclasses.replace(step.credit, advantage=torch.zeros_like(step.credit.advantage))
    model, head, _ = _gradients(trainer, dataclasses.replace(step, credit=silent), prompts)
    assert not model.any() and (head - whole).norm() <= 1e-12 * whole.norm()


def test_a_broken_value_head_ends_the_run_or_is_skipped(begun):
    trainer, step, prompts = begun()
    with torch.no_grad():
        trainer.critic.head.weight[0] = math.inf
    before = _state(trainer)
    with pytest.raises(NotFinite, match="value"):
        improve(trainer, step, prompts, Tracer(0))
    again = dataclasses.replace(trainer, options=trainer.options.model_copy(update={"nonfinite": "skip"}))
    improve(again, step, prompts, Tracer(0))
    assert len(step.statistics.skipped) == 2 and _state(trainer) == before


@pytest.mark.parametrize("name", ["ppo", "vapo"])
@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_a_run_says_where_its_value_head_is(name, lora, small, coin, tmp_path):
    sections = {"method": {"name": name}, "critic": {"warmup": 1}, "model": {"lora": lora} if lora else {}}
    found = train(small(tmp_path / "run", **sections), View())
    lines = numbers(found.directory)[1:]
    assert all("explained_variance" in line and line["value_loss"] > 0 for line in lines)
    assert lines[0]["lr"] == 0 < lines[1]["lr"]
    last = found.directory / "checkpoints" / "step-000004" / "critic.safetensors"
    assert found.left[-1] == f"value head: {last} (model/ is without it)"
    head = load_file(last)
    assert head["batches"] == 4 and head["weight"].dtype == torch.float32 and head["weight"].any()
