import pytest
import torch
from safetensors.torch import load_file

from run_views import lines
from tokenpo.core.parts import GroupOverlong, SoftOverlong
from tokenpo.methods import method
from tokenpo.records import Tracer
from tokenpo.train.recipe.config import Config, parse_config
from tokenpo.train.recipe.objective import build_objective
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View
from tokenpo.train.run.updates import gradients, improve
from tokenpo.train.tasks import Score


def recipe(**sections) -> Config:
    return parse_config(sections, "test")


def test_lora_trains_adapters_against_their_own_base(small, coin, tmp_path):
    pytest.importorskip("peft")
    from tokenpo.train.models import load

    lora = {"lora": {"rank": 2, "targets": ["q_proj", "v_proj"]}}
    config = small(tmp_path / "run", model=lora, method={"name": "grpo", "beta": 0.1}, evaluate={"problems": 0})
    assert Local.open(Plan(config)).reference is None
    assert train(config, View()).finished
    before, after = load(config.model.path).model, load(tmp_path / "run" / "model").model
    changed = [
        name
        for (name, x), y in zip(before.named_parameters(), after.parameters(), strict=True)
        if not torch.equal(x, y)
    ]
    assert changed
    assert all("q_proj" in name or "v_proj" in name for name in changed)

    import peft

    alone = peft.PeftModel.from_pretrained(load(config.model.path).model, str(tmp_path / "run" / "adapter"))
    assert not list((tmp_path / "run" / "adapter").glob("*.bin"))
    for (name, x), y in zip(alone.merge_and_unload().named_parameters(), after.parameters(), strict=True):
        assert torch.equal(x, y), name


def test_overlong_penalties_of_the_recipe_join_the_method():
    objective = build_objective(
        recipe(
            method={"name": "dapo"},
            rollout={"max_new_tokens": 40, "soft_overlong": {"cache": 8}, "group_overlong": {"easy": 0.25}},
        )
    )
    assert objective.shaping == (*method("dapo").shaping, SoftOverlong(40, 8), GroupOverlong(easy=0.25))


@pytest.mark.parametrize(("name", "fraction"), [("kl_cov", 1.0), ("sent", 0.5)])
def test_what_cannot_act_in_one_update_does_not(name, fraction, small, tmp_path):
    """The sampler and the trainer score the same policy: what rounding leaves between the two is no distance."""
    weights = []
    for key, price in (("off", 0.0), ("on", 5.0)):
        chosen = {"name": name, "fraction": fraction, "coef": price}
        config = small(tmp_path / key, method=chosen, train={"steps": 1, "minibatches": 1}, evaluate={"problems": 0})
        assert train(config, View()).finished
        weights.append((tmp_path / key / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("how", ["copy", "weights"])
def test_half_precision_runs(how, small, coin, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: True)
    sections = {
        "copy": {"train": {"autocast": True}, "method": {"name": "grpo", "beta": 0.1}},
        "weights": {"model": {"dtype": "bfloat16"}, "method": {"name": "tepo"}},
    }
    config = small(tmp_path / "run", evaluate={"problems": 0}, **sections[how])
    assert train(config, View()).finished
    first = lines(tmp_path / "run")[0]
    assert first["grad_norm"] > 0 and first["kl"] < 0.2
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert {x.dtype for x in saved.values()} == {torch.float32 if how == "copy" else torch.bfloat16}


@pytest.mark.parametrize("lora", [False, True])
def test_half_precision_has_the_gradient_of_float32(lora, begin, monkeypatch):
    """From a bf16 copy, summed in float32 over several passes; copies are renewed after the update."""
    if lora:
        pytest.importorskip("peft")
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: True)
    found = []
    for autocast in (False, True):
        more = {"model": {"lora": {"rank": 2}}} if lora else {}
        settings = {"autocast": autocast, "micro_rows": 5, "ratio_tolerance": 1e9}
        engine, trainer, experience = begin(train=settings, **more)
        if not found:
            rollouts, prompts = experience.rollouts, experience.kept.prompts
        update = trainer.learner.begin(rollouts).update(torch.arange(len(rollouts)))
        for _ in gradients(trainer, update, prompts):
            pass
        assert {x.grad.dtype for x in trainer.parameters} == {torch.float32}
        found.append(torch.cat([x.grad.flatten() for x in trainer.parameters]))
    plain, half = found
    assert 0 < (half - plain).norm() < 0.05 * plain.norm()
    improve(trainer, trainer.learner.begin(rollouts), prompts, Tracer(0))
    lm = engine.lm
    for copy, weight in zip(lm.model.parameters(), lm.master.model.parameters(), strict=True):
        assert torch.equal(copy, weight.bfloat16())


@pytest.mark.parametrize("lora", [False, True])
def test_the_reference_keeps_saying_what_the_first_policy_said(lora, begin):
    if lora:
        pytest.importorskip("peft")
    adapters = {"lora": {"rank": 2, "targets": ["q_proj", "v_proj"]}} if lora else {}
    engine, trainer, experience = begin(model=adapters, method={"name": "grpo", "beta": 0.1})
    forward = trainer.forward
    with torch.no_grad():
        for x in engine.lm.model.parameters():
            x += 0.3 * x.requires_grad
    facts = engine.complete(experience.rollouts, experience.kept)
    torch.testing.assert_close(facts.ref_logprob, facts.old_logprob, rtol=0, atol=1e-4)
    with torch.no_grad():
        now = forward.policy(facts, experience.kept.prompts).logprob
    assert (now - facts.ref_logprob).abs().max() > 0.1


def test_training_raises_the_reward(small, coin, tmp_path, monkeypatch):
    """Even tokens are rewarded one by one; a policy that climbs the wrong way would shun them."""

    def score(problems, completions, completion_ids):
        return [Score(sum(i % 2 == 0 for i in ids) / len(ids), False) for ids in completion_ids]

    monkeypatch.setattr(coin, "score", score)
    sections = {"rollout": {"prompts": 8, "group_size": 8}, "train": {"steps": 12, "lr": 2e-2}}
    train(small(tmp_path / "run", method={"name": "hapo"}, evaluate={"problems": 0}, **sections), View())
    first, *_, last = lines(tmp_path / "run")
    assert first["reward"] < 0.65 and last["reward"] > 0.85
