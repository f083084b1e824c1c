"""The small parts of the adapter that need no Ray: plug-in, checks after an update, checkpoint, temperature, records.

Private surfaces of verl that the adapter uses: a failure names what moved.
"""

import inspect
import math
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics

import tokenpo
import tokenpo.hosts.verl.plugin
from run_views import lines
from tokenpo.base.errors import TokenPOError
from tokenpo.core.learner import Learner
from tokenpo.hosts.verl import layout, temperature
from tokenpo.hosts.verl.configure import Keys, Settings
from tokenpo.hosts.verl.record import Record
from tokenpo.hosts.verl.trainer import DRIFT, FILE, TokenPOTrainer, resume
from tokenpo.records.run import read_run


def test_a_teacher_says_a_token_one_place_before_it() -> None:
    """Prompts of two tokens and of one; verl's last entry is a dummy."""
    told = [torch.arange(5.0)[:, None], torch.arange(10.0, 14.0)[:, None]]
    masks = [torch.ones(3, dtype=torch.long), torch.ones(3, dtype=torch.long)]
    data = {"teacher_logprobs": told, "response_mask": masks}
    found = layout.taught({name: torch.nested.as_nested_tensor(x, layout=torch.jagged) for name, x in data.items()})
    assert [x.tolist() for x in found["tokenpo_teacher"].unbind()] == [[1, 2, 3], [10, 11, 12]]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_stops_the_run(norm: float) -> None:
    """verl skips such an update with a printed line and goes on."""
    grpo = tokenpo.method("grpo")
    stop = SimpleNamespace(learner=Learner(grpo, length=9), tokenpo=Settings(grpo, Keys("grpo")), global_steps=7)
    metrics = {f"actor/{DRIFT}": 0.0, "actor/grad_norm": 1.0}
    check: Any = TokenPOTrainer._check
    check(stop, metrics)
    metrics["actor/grad_norm"] = reduce_metrics({"actor/grad_norm": [1.0, norm]})["actor/grad_norm"]
    with pytest.raises(TokenPOError, match=r"step 7: the gradient norm is .*nonfinite=skip"):
        check(stop, metrics)
    stop.tokenpo = Settings(grpo, Keys("grpo", nonfinite="skip"))
    check(stop, metrics)


def _remembering(tau: float = 0.3) -> Learner:
    learner = Learner(tokenpo.method("hapo", tau=tau), length=3)
    rollouts = tokenpo.Rollouts(
        mask=torch.ones(2, 3, dtype=torch.bool),
        reward=torch.tensor([1.0, 0.0]),
        group=torch.tensor([0, 0]),
        old_logprob=torch.full((2, 3), -1.0),
        old_entropy=torch.tensor([[0.1, 0.5, 2.0], [0.3, 0.4, 1.0]]),
    )
    learner.begin(rollouts)
    learner.updates = 12
    return learner


def _saved(learner: Learner, directory: Path) -> Path:
    """As our trainer saves it, up to the call of verl's own."""
    trainer: Any = SimpleNamespace(
        learner=learner, global_steps=3, config=OmegaConf.create({"trainer": {"default_local_dir": str(directory)}})
    )
    with pytest.raises(TypeError, match="super"):
        TokenPOTrainer._save_checkpoint(trainer)
    return directory / "global_step_3" / FILE


def test_the_learner_survives(tmp_path: Path) -> None:
    saved, fresh = _remembering(), Learner(tokenpo.method("hapo", tau=0.3), length=3)
    file = _saved(saved, tmp_path)
    resume(fresh, file)
    assert (fresh.memory, fresh.updates) == (saved.memory, 12) and fresh.memory[fresh.objective.memories[0]]
    with pytest.raises(TokenPOError, match="another objective"):
        resume(Learner(tokenpo.method("hapo", tau=0.2), length=3), file)
    file.write_text('{"memory": ')
    with pytest.raises(ValueError):
        resume(fresh, file)
    with pytest.raises(FileNotFoundError):
        resume(fresh, tmp_path / FILE)


def test_a_loop_that_the_data_name_gives_way_to_ours() -> None:
    """verl asks a data set's column before its default, and its own single-turn loop drops the numbers."""
    column = {"agent_name": np.array(["single_turn_agent", "tokenpo_single_turn"], dtype=object)}
    batch = tu.get_tensordict(column)
    temperature.use_loop(tokenpo.method("grpo"), batch)
    assert layout.column(batch["agent_name"]) == list(column["agent_name"])
    temperature.use_loop(tokenpo.method("hapo"), batch)
    assert batch["agent_name"] == "tokenpo_single_turn"
    bare = tu.get_tensordict({"uid": np.array(["a", "b"], dtype=object)})
    temperature.use_loop(tokenpo.method("hapo"), bare)
    assert "agent_name" not in bare


NEW = {"objective", "send_loss", "_plan", "_observed", "_current", "_check"}  # of our trainer alone


def test_our_trainer_overrides_what_verls_has() -> None:
    overridden = {name: x for name, x in vars(TokenPOTrainer).items() if inspect.isfunction(x) and name not in NEW}
    for name, ours in overridden.items():
        theirs = getattr(PPOTrainerSync, name, None)
        assert theirs is not None, f"verl {version('verl')}: PPOTrainerSync.{name} is gone, trainer.py overrides it"
        found, expected = (list(inspect.signature(method).parameters) for method in (theirs, ours))
        assert found == expected, f"verl {version('verl')}: PPOTrainerSync.{name} takes {found}, not {expected}"


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


def test_metrics_have_the_reports_names(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.log(1, {"critic/score/mean": 0.25, "actor/entropy": 0.5, "val-core/dial_sum/acc/mean@8": 0.4, "odd": "text"})
    several = {"odd/tensor": torch.arange(2.0), "odd/array": np.arange(3), "odd/texts": np.array(["a", "b"])}
    record.log(2, {"critic/score/mean": np.float32(0.5), "response_length/mean": torch.tensor([7.0]), **several})
    run = read_run(tmp_path)
    assert run.series("reward") == [(1, 0.25), (2, 0.5)]
    assert run.series("eval/avg") == [(1, 0.4)] and run.series("eval/k") == [(1, 8)]
    assert run.series("length") == [(2, 7.0)] and not any(name.startswith("odd") for name in lines(tmp_path)[1])


def test_a_fresh_run_moves_anothers_record_aside_and_a_resumed_one_cuts_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    (path / "data").mkdir(parents=True)
    first = Record(path, 0, {"method": {"name": "grpo"}}, "objective grpo")
    for step in (1, 2, 3):
        first.log(step, {"critic/score/mean": step / 4})
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')  # killed in the middle of a line
    resumed = Record(path, 2, {}, "objective grpo")
    resumed.log(3, {"critic/score/mean": 1.0})
    assert read_run(path).series("reward") == [(1, 0.25), (2, 0.5), (3, 1.0)]
    fresh = Record(path, 0, {"method": {"name": "tepo"}}, "objective tepo")
    fresh.log(1, {"critic/score/mean": 0.0})
    assert read_run(path).series("reward") == [(1, 0.0)]
    assert len(lines(tmp_path / "report.1")) == 3
    assert read_run(tmp_path / "report.1").objective.startswith("objective grpo")
    assert (path / "data").is_dir() and not (tmp_path / "report.1" / "data").exists()
