"""verl's own functions, trainer and program with our names in its two registries."""

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from verl import DataProto
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1 import trainer_base
from verl.workers.config import FSDPActorConfig, FSDPOptimizerConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

import tokenpo
import tokenpo.hosts.verl.plugin
from hosts.verl.support import batches, run
from hosts.verl.support.composed import composed
from run_views import lines
from tokenpo.base.errors import UnknownName, Unsupported
from tokenpo.core import trial
from tokenpo.core.parts import ConstantLength, TokenMean
from tokenpo.core.types import Batch, Policy, Rollouts, Totals
from tokenpo.hosts.verl.configure import CORRECTION
from tokenpo.hosts.verl.registries import ESTIMATOR, LOSS_MODE, MODES, fitting
from tokenpo.methods import METHODS

from .test_runs import settings

LENGTH = 9
RECORDED = Path(__file__).parents[3] / "docs" / "rollouts.jsonl"


def fits(name: str) -> bool:
    try:
        return bool(fitting(name))
    except Unsupported:
        return False


FITTING = [name for name in METHODS if fits(name)]


def test_what_fits() -> None:
    """Credit from rewards and a loss of rows alone; the issue's own example of a loss is among them."""
    assert {"grpo", "dapo", "dr_grpo", "gspo", "cispo", "sapo", "rloo", "maxrl", "luspo"} <= set(FITTING)
    assert not {"gtpo", "hapo", "tepo", "clip_cov", "lopti", "ha_dw", "ppo", "opd"} & set(FITTING)


def handed(name: str, rewards: Tensor, mask: Tensor, index: list[str]) -> Tensor:
    """Advantages by verl's own dispatch."""
    batch = {"token_level_rewards": rewards, "response_mask": mask.long()}
    data = DataProto(TensorDict(batch, [len(mask)]), {"uid": np.array(index, dtype=object)})
    return compute_advantage(data, adv_estimator=f"tokenpo/{name}", config=None).batch["advantages"]


@pytest.mark.parametrize("name", FITTING)
def test_through_verls_loss_by_ranks_and_micro_batches(name: str) -> None:
    """verl's `ppo_loss` in float64: two ranks, micro-batches of three; rows of padding, which hold NaN, for means over
    tokens (verl counts such rows in the mean over sequences)."""
    objective = batches.method(name)
    padding = (0, 5, 6, 17) if objective.aggregate == TokenMean() else ()
    sample = batches.both(seed=3, padding=padding)
    data, padded = sample.data.copy(), sample.data.select("rm_scores", "response_mask").to_padded_tensor()
    advantage = handed(
        name,
        padded["rm_scores"].where(padded["response_mask"].bool(), 0.0),
        padded["response_mask"],
        [str(uid) for uid in data["uid"]],
    )
    lengths = data["responses"].offsets().diff().tolist()
    data["advantages"] = batches.jagged([row[:length] for row, length in zip(advantage, lengths, strict=True)])
    one = tokenpo.method(name).aggregate
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        optim=FSDPOptimizerConfig(lr=1e-6),
        policy_loss=PolicyLossConfig(loss_mode=f"tokenpo/{name}"),
        loss_agg_mode=MODES[one],
        loss_scale_factor=LENGTH if one == ConstantLength() else None,
    )
    loss = functools.partial(ppo_loss, config)
    value, _ = batches.engine(sample, data, list(range(len(data))), loss, ranks=2, micro=3)
    expected = batches.directly(sample, tokenpo.method(name) if one == ConstantLength(1.0) else objective)
    assert value == pytest.approx(float(expected.loss.value), rel=1e-10, abs=1e-14)
    torch.testing.assert_close(batches.gradient(sample, "logprob"), expected.gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", ["grpo", "dapo", "cispo", "rloo"])
def test_through_the_steps_of_verls_fully_asynchronous_trainer(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own functions: credit within each prompt, and the ratio to the policy that sampled each token."""
    objective, inputs = batches.method(name), trial.example(2)
    facts = Rollouts.of(inputs.rollouts).only({"rollout_logprob"})
    words = [f"{LOSS_MODE}=tokenpo/{name}", f"{ESTIMATOR}=tokenpo/{name}", f"{CORRECTION}.bypass_mode=True"]
    config = composed(*words, f"actor_rollout_ref.actor.loss_agg_mode={MODES[tokenpo.method(name).aggregate]}")
    started: list[str] = []
    kinds = ("actor_rollout", "critic", "reference_policy", "reward_model")
    steps = {f"_create_{kind}_class{'es' if kind == kinds[0] else ''}": lambda: started.append("") for kind in kinds}
    reward = torch.zeros_like(facts.old_logprob).index_put((torch.arange(16), facts.mask.sum(1) - 1), facts.reward)
    own = {"metrics": {}, "timing_raw": {}, "reward_tensor": reward, "reward_extra_infos_dict": {}}
    trainer: Any = SimpleNamespace(config=config, **steps, **own)
    SeparateRayPPOTrainer._create_worker_classes(trainer)
    assert len(started) == 4 and f"tokenpo is active in verl's own trainer: {words[0]}" in capsys.readouterr().out
    fields = {"response_mask": facts.mask.long(), "rollout_log_probs": facts.need("rollout_logprob")}
    data = DataProto(TensorDict(fields, [16]), {"uid": np.array([f"uid_{g}" for g in facts.group], dtype=object)})
    for step in ("_fit_compute_log_prob", "_fit_compute_advantage"):
        data = getattr(SeparateRayPPOTrainer, step)(trainer, data)
    ours, direct = (inputs.policy["logprob"].clone().requires_grad_() for _ in range(2))
    value, _ = get_policy_loss_fn(f"tokenpo/{name}")(
        old_log_prob=data.batch["old_log_probs"], log_prob=ours, advantages=data.batch["advantages"],
        response_mask=data.batch["response_mask"], loss_agg_mode=config.actor_rollout_ref.actor.loss_agg_mode,
    )  # fmt: skip
    sampled = dataclasses.replace(facts, old_logprob=facts.need("rollout_logprob")).only(objective.needs)
    batch = Batch(sampled, objective.prepare(sampled), Policy(direct))
    wanted = objective.loss(batch, Totals.of(sampled, LENGTH)).value
    assert value.item() == pytest.approx(wanted.item(), rel=1e-12)
    gradients = torch.autograd.grad(value, ours)[0], torch.autograd.grad(wanted, direct)[0]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-15)


def test_a_microbatch_of_padding_alone_keeps_its_graph() -> None:
    logprob = torch.zeros(2, 3, requires_grad=True)
    zeros = torch.zeros(2, 3)
    loss = get_policy_loss_fn("tokenpo/cispo")
    value, _ = loss(old_log_prob=zeros, log_prob=logprob, advantages=zeros, response_mask=zeros)
    value.backward()
    assert value == 0 and logprob.grad is not None and not logprob.grad.any()


def test_an_unknown_name_is_refused_before_anything_starts() -> None:
    config = composed("trainer.v1.trainer_mode=sync", f"{LOSS_MODE}=tokenpo/cispoo")
    with pytest.raises(UnknownName, match="cispo"):
        trainer_base.get_trainer_cls("sync")(config=config)
    with pytest.raises(ValueError, match="tokenpo/cispoo"):
        get_policy_loss_fn("tokenpo/cispoo")
    with pytest.raises(Unsupported, match=r"gtpo needs old_entropy.*algorithm\.tokenpo\.method=gtpo"):
        get_adv_estimator_fn("tokenpo/gtpo")(token_level_rewards=None, response_mask=None, index=None, config=None)


def test_each_process_that_imports_verls_functions_has_the_names() -> None:
    """By the entry point, or by VERL_USE_EXTERNAL_MODULES where the package is on the path alone."""
    code = (
        "from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as estimators, POLICY_LOSS_REGISTRY as losses\n"
        "assert {'tokenpo/cispo', 'tokenpo/gtpo'} <= losses.keys() & estimators.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=run.environment()
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_verls_own_trainer_learns_with_the_two_settings(tmp_path: Path) -> None:
    """An unmodified main_ppo: verl's own trainer, CISPO's loss and credit of ours, two workers."""
    words = settings(
        tmp_path,
        25,
        **{"trainer.v1.trainer_mode": "sync", LOSS_MODE: "tokenpo/cispo", "algorithm.adv_estimator": "tokenpo/cispo"},
    )
    words = {key: value for key, value in words.items() if "algorithm.tokenpo" not in key}
    log = tmp_path / "metrics.jsonl"
    text = run.main_ppo(words, tmp_path, timeout=1800, env={"VERL_FILE_LOGGER_PATH": str(log)})
    assert f"tokenpo is active in verl's own trainer: {LOSS_MODE}=tokenpo/cispo" in run.plain(text)
    logged = [line["data"] for line in lines(tmp_path)]
    rewards = [line["critic/rewards/mean"] for line in logged if "critic/rewards/mean" in line]
    print([round(reward, 3) for reward in rewards])
    assert len(rewards) == 25 and sum(rewards[-5:]) / 5 >= sum(rewards[:5]) / 5 + 0.1
    # On-policy, with a ratio of 1, every token has CISPO's whole weight.
    assert logged[0]["actor/tokenpo/cispo/weight"] == pytest.approx(1.0, abs=0.01)
