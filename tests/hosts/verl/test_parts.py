"""The small parts of the adapter that need no Ray: plug-in, checks after an update, checkpoint, temperature."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.core.learner import Learner
from tokenpo.hosts.verl import layout, temperature
from tokenpo.hosts.verl.configure import Keys, Settings
from tokenpo.hosts.verl.plugin import after_import
from tokenpo.hosts.verl.trainer import DRIFT, FILE, TokenPOTrainer, resume


def test_a_failing_plug_in_is_loud(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RuntimeError("moved")

    with pytest.raises(RuntimeError, match="moved"):
        after_import("sys", fails)
    assert "tokenpo is NOT active in this process" in capsys.readouterr().err


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
    for damage in ("", "[1]", '{"memory": [{"pivot": "x"}]}'):
        file.write_text(damage)
        with pytest.raises(TokenPOError, match=r"tokenpo\.json cannot be taken up, and hapo needs what it remembered"):
            resume(fresh, file)
    with pytest.raises(TokenPOError, match=r"tokenpo\.json cannot be taken up"):
        resume(fresh, tmp_path / FILE)


def test_a_method_without_memory_resumes_from_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grpo = Learner(tokenpo.method("grpo"), length=3)
    resume(grpo, tmp_path / FILE)
    resume(grpo, _saved(_remembering(), tmp_path))
    assert grpo.updates == 0
    assert "trained with another objective than grpo" in capsys.readouterr().out
    grpo.updates = 7
    again = Learner(tokenpo.method("grpo"), length=3)
    resume(again, _saved(grpo, tmp_path))
    assert again.updates == 7


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
