"""Private surfaces of verl that the adapter uses; a failure names what moved. Whole runs use the rest."""

import functools
import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
from verl.trainer.ppo.v1 import PPOTrainerSync

import tokenpo.hosts.verl.plugin  # noqa: F401 - where the package is on the path but not installed
from tokenpo.hosts.verl.trainer import TokenPOTrainer

NEW = {"objective", "send_loss", "_plan", "_observed", "_current", "_check"}  # of our trainer alone


def test_our_trainer_overrides_what_verls_has() -> None:
    overridden = {name: x for name, x in vars(TokenPOTrainer).items() if inspect.isfunction(x) and name not in NEW}
    for name, ours in overridden.items():
        theirs = getattr(PPOTrainerSync, name, None)
        assert theirs is not None, f"verl {version('verl')}: PPOTrainerSync.{name} is gone, trainer.py overrides it"
        found, expected = (list(inspect.signature(method).parameters) for method in (theirs, ours))
        assert found == expected, f"verl {version('verl')}: PPOTrainerSync.{name} takes {found}, not {expected}"


# What no run on the CPU would show: premise -> where verl's source has it -> its words.
TRAINER, WORKERS = "verl.trainer.ppo.v1:PPOTrainerSync", "verl.workers"
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "the trainer calls the overridden methods in this order": {
        f"{TRAINER}._step_once": (
            "self.on_sample_begin()", "self._compute_old_log_prob(batch, metrics=metrics)",
            "self._compute_advantage(batch, metrics=metrics)", "self._update_actor(batch, metrics=metrics)",
        ),
        f"{TRAINER}._build_replay_buffer": ("refill_fn=self._add_prompts_to_generate", 'self.trainer_mode == "sync"'),
        f"{TRAINER}._setup": ("self._load_checkpoint()", "self.actor_rollout_wg.init_model()"),
        f"{TRAINER}._compute_old_log_prob": ('"calculate_entropy": True', '"old_log_probs", "entropy"', "bypass_mode"),
    },
    "the engine counts tokens over ranks": {
        f"{WORKERS}.engine.fsdp.transformer_impl:FSDPEngine.forward_backward_batch": (
            'data["loss_mask"].sum()', "batch_num_tokens", "dp_size", "all_reduce",
        ),
        "verl.trainer.ppo.core_algos:agg_loss": ("* dp_size", "batch_num_tokens"),
    },
    "minibatches are dealt as the driver counts them": {
        f"{WORKERS}.engine_workers:TrainingWorker.train_mini_batch": (
            "mini_batch_size // self.engine.get_data_parallel_size()", "tu.make_iterator",
        ),
        "verl.utils.tensordict_utils:make_iterator": (
            "torch.arange(tensordict.shape[0])", "batch_size=mini_batch_size",
        ),
    },
    "padding rows have an empty mask and a uid of their own": {
        "verl.trainer.ppo.padding_utils:construct_minimal_padding_template": (
            "response_mask = torch.zeros_like(responses)",
        ),
        "verl.trainer.ppo.padding_utils:upsample_batch_to_divisible_size": ('pad_uid = f"pad{uuid.uuid4().hex}"',),
    },
    "every process loads plug-ins by entry point": {"verl": ('group="verl.plugins"', "VERL_USE_EXTERNAL_PLUGINS")},
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
        "import tokenpo.hosts.verl.plugin, tokenpo.hosts.verl.trainer as ours\n"
        "from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY as known\n"
        "assert known['tokenpo'] is ours.TokenPOTrainer\n"
        "guarded = [mode for mode, kind in known.items() if '_Guard' in str(kind.__mro__)]\n"
        "assert sorted(guarded) == ['colocate_async', 'separate_async', 'sync'], guarded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "NOT active" not in done.stderr, done.stderr


def test_metrics_are_reduced_by_name() -> None:
    from verl.utils.metric import Metric, reduce_metrics

    assert reduce_metrics({"a": [1.0, 3.0], "b_min": [1.0, 3.0]}) == {"a": 2.0, "b_min": 1.0}
    # Two ranks of two micro-batches each: the mean over ranks of the sum over micro-batches, (3 + 7) / 2.
    ranks = [Metric("sum", first) for first in (1.0, 3.0)]
    for rank, second in zip(ranks, (2.0, 4.0), strict=True):
        rank.append(second)
    assert Metric.aggregate_dp(ranks) == 5.0
