"""Every private surface of verl that the adapter touches: each test says in one sentence what moved."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

from foreign_support import need

need("transfer_queue", "verl's V1 trainer is not installed: its private surfaces were not looked at")
need("verl.trainer.ppo.v1", "verl's V1 trainer is not installed: its private surfaces were not looked at")

from omegaconf import OmegaConf  # noqa: E402
from verl.trainer.ppo.v1 import PPOTrainerSync, trainer_base  # noqa: E402

import tokenpo.engines.verl.plugin  # noqa: E402, F401 - where the package is on the path but not installed
from tokenpo.base.errors import Unsupported  # noqa: E402

OVERRIDDEN = {
    "__init__": ["config"],
    "on_init_end": [],
    "_build_replay_buffer": [],
    "on_sample_begin": [],
    "_next_train_batch": ["num_prompts"],
    "_add_prompts_to_generate": ["num_prompts"],
    "_compute_advantage": ["batch", "metrics"],
    "_update_actor": ["batch", "metrics"],
    "_save_checkpoint": [],
    "_load_checkpoint": [],
    "_validate": [],
    "_compute_metrics": ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
}


@pytest.mark.parametrize(("name", "parameters"), OVERRIDDEN.items())
def test_trainer_method(name: str, parameters: list[str]) -> None:
    method = getattr(PPOTrainerSync, name, None)
    assert method is not None, f"verl {version('verl')}: PPOTrainerSync.{name} is gone, trainer.py overrides it"
    found = list(inspect.signature(method).parameters)[1:]
    assert found == parameters, f"verl {version('verl')}: PPOTrainerSync.{name} takes {found}, not {parameters}"


TRAINER, WORKERS = "verl.trainer.ppo.v1:PPOTrainerSync", "verl.workers"
# What the adapter builds on -> where verl's source has it -> the words that say so.
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "the trainer calls what is overridden": {
        f"{TRAINER}._step_once": (
            "self.on_sample_begin()", "self._compute_old_log_prob(batch, metrics=metrics)",
            "self._compute_advantage(batch, metrics=metrics)", "self._update_actor(batch, metrics=metrics)",
        ),
        f"{TRAINER}._build_replay_buffer": (
            "refill_fn=self._add_prompts_to_generate", 'self.trainer_mode == "sync"',
        ),
        f"{TRAINER}.init": ("self._setup()", "self.on_init_end()"),
        f"{TRAINER}._setup": ("self._load_checkpoint()", "self.actor_rollout_wg.init_model()"),
        f"{TRAINER}.fit": (
            "self._save_checkpoint()", "self._compute_metrics(batch, metrics", "val_metrics = self._validate()",
            "self.logger.log(data=val_metrics, step=self.global_steps)",
        ),
        f"{TRAINER}._add_batch_to_generate": ("self._next_train_batch()",),
    },
    "the buffer waits through one method": {
        "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer.sample": (
            "self._wait_for_next_poll(partition_id, last_debug_time)", "self.refill_fn(dispatch_count)",
            "len(self.pending_keys[partition_id]) + len(self.running_keys[partition_id])",
        ),
    },
    "a trainer is registered by name": {
        "verl.trainer.ppo.v1.trainer_base:register_trainer": ("TRAINER_REGISTRY[name] = cls",),
    },
    "old log-probs come with entropies": {
        f"{TRAINER}._compute_old_log_prob": (
            '"calculate_entropy": True', '"old_log_probs", "entropy"', "bypass_mode",
        ),
    },
    "an update reads these settings and names its metrics": {
        f"{TRAINER}._update_actor": (
            "self.config.actor_rollout_ref.actor.ppo_mini_batch_size",
            '"epochs": self.config.actor_rollout_ref.actor.ppo_epochs', 'rename_dict(output["metrics"], "actor/")',
            "reduce_metrics(output)",
        ),
    },
    "the engine counts tokens over ranks and averages": {
        f"{WORKERS}.engine.fsdp.transformer_impl:FSDPEngine.forward_backward_batch": (
            'data["loss_mask"].sum()', "batch_num_tokens", "dp_size", "all_reduce",
        ),
        f"{WORKERS}.engine.fsdp.transformer_impl:FSDPEngineWithLMHead.forward_step": (
            "loss_function(", "model_output=model_output, data=micro_batch, dp_group=",
        ),
    },
    "verl's own loss scales as ours": {
        "verl.trainer.ppo.core_algos:agg_loss": ("* dp_size", "batch_num_tokens"),
    },
    "minibatches are dealt as the driver counts them": {
        f"{WORKERS}.engine_workers:TrainingWorker.train_mini_batch": (
            "mini_batch_size // self.engine.get_data_parallel_size()", "tu.make_iterator",
        ),
        "verl.utils.tensordict_utils:make_iterator": (
            "torch.arange(tensordict.shape[0])", "batch_size=mini_batch_size",
        ),
        f"{WORKERS}.engine_workers:ActorRolloutRefWorker.set_loss_fn": ("self.actor.set_loss_fn(loss_fn=loss_fn)",),
    },
    "padding rows have an empty mask and a uid of their own": {
        "verl.trainer.ppo.padding_utils:construct_minimal_padding_template": (
            "response_mask = torch.zeros_like(responses)",
        ),
        "verl.trainer.ppo.padding_utils:upsample_batch_to_divisible_size": ('pad_uid = f"pad{uuid.uuid4().hex}"',),
    },
    "the model output is shifted by one token": {
        f"{WORKERS}.utils.padding:no_padding_2_padding": ("values[seq_offset - resp_len - 1 : seq_offset - 1]",),
        f"{WORKERS}.utils.padding:response_from_nested": ("values[seq_offset - resp_len - 1 : seq_offset - 1]",),
        f"{WORKERS}.utils.padding:response_to_nested": ("def response_to_nested(tensor: torch.Tensor, response_mask:",),
    },
    "an agent loop gets the fields of its prompt": {
        "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ.__ray_metadata__.modified_class.generate_sequences": (
            "elif isinstance(v, NonTensorData):", "prompt[k] = v.data",
        ),
        "verl.experimental.agent_loop.single_turn_agent_loop:SingleTurnAgentLoop.run": ("self, sampling_params",),
    },
    "plug-ins are loaded by entry point": {"verl": ('group="verl.plugins"', "VERL_USE_EXTERNAL_PLUGINS")},
    "the reward function is called by keyword": {
        "verl.experimental.reward_loop.reward_manager.naive:NaiveRewardManager.run_single": (
            "data_source=data_source", "solution_str=response_str", 'result["score"]',
        ),
    },
}  # fmt: skip


@pytest.mark.parametrize("premise", SOURCES)
def test_verls_source_still_says_that(premise: str) -> None:
    for place, words in SOURCES[premise].items():
        module, _, path = place.partition(":")
        source = inspect.getsource(functools.reduce(getattr, filter(None, path.split(".")), import_module(module)))
        gone = [word for word in words if word not in source]
        assert not gone, f"verl {version('verl')}: {place} no longer contains {gone}"


def test_the_trainer_can_be_imported_first() -> None:
    """verl loads the plug-in in the middle of that import, when there is no trainer to register yet."""
    code = (
        "import tokenpo.engines.verl.plugin, tokenpo.engines.verl.trainer as ours\n"
        "from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY as known\n"
        "assert known['tokenpo'] is ours.TokenPOTrainer\n"
        "guarded = [mode for mode, kind in known.items() if '_Guard' in str(kind.__mro__)]\n"
        "assert sorted(guarded) == ['colocate_async', 'separate_async', 'sync'], guarded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "NOT active" not in done.stderr, done.stderr


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_verls_own_trainers_refuse_our_settings(mode: str) -> None:
    trainer = {"v1": {"trainer_mode": mode}}
    config = OmegaConf.create({"algorithm": {"tokenpo": {"method": "grpo"}}, "trainer": trainer})
    with pytest.raises(Unsupported, match=rf"trainer_mode={mode} starts .*: set trainer\.v1\.trainer_mode=tokenpo"):
        trainer_base.get_trainer_cls(mode)(config=config)


@pytest.mark.parametrize("program", ["one_step_off_policy.main_ppo", "fully_async_policy.fully_async_main"])
def test_verls_asynchronous_programs_refuse_our_settings(program: str) -> None:
    """As they are started; they say so before they start Ray."""
    words = [sys.executable, "-m", f"verl.experimental.{program}", "+algorithm.tokenpo.method=grpo"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "one-step-off and fully asynchronous programs are made of" in done.stderr


def test_metrics_are_reduced_by_name() -> None:
    from verl.utils.metric import Metric, reduce_metrics

    assert reduce_metrics({"a": [1.0, 3.0], "b_min": [1.0, 3.0]}) == {"a": 2.0, "b_min": 1.0}
    # Two ranks of two micro-batches each: the mean over ranks of the sum over micro-batches, (3 + 7) / 2.
    ranks = [Metric("sum", first) for first in (1.0, 3.0)]
    for rank, second in zip(ranks, (2.0, 4.0), strict=True):
        rank.append(second)
    assert Metric.aggregate_dp(ranks) == 5.0


def test_our_agent_loop_is_in_verls_table() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    assert "tokenpo_single_turn" in _agent_loop_registry
