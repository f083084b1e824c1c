"""Everything that should run on a GPU, on the stand-in. Run by `test_stand_in`, in a process of its own."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import tokenpo
from device.stand_in import DEVICE, NAME, There, stand_in, waits
from gpu import tests as on_a_card
from gpu.tests import TRAINED, trained
from random_models import random_gpt2, random_qwen
from tokenpo.cli.main import main
from tokenpo.core import trial
from tokenpo.core.head.fused import fused_gradient, fused_loss
from tokenpo.core.types import Rollouts, Totals
from tokenpo.engines.embedded.facts import MAKERS
from tokenpo.methods import METHODS
from tokenpo.models import Sampling, load, sample
from tokenpo.models.graphed import BLOCK, Graphs

V, H = 50, 6


@pytest.fixture(autouse=True)
def device():
    """A program that has the device."""
    with stand_in() as there:
        yield there


def close(there: Tensor, here: Tensor, tolerance: float = 1e-12) -> None:
    assert there.device == DEVICE
    torch.testing.assert_close(there.cpu(), here, rtol=tolerance, atol=tolerance)


def test_two_devices_do_not_meet(device):
    x = torch.ones(3, device=device)
    assert isinstance(x, There) and x.device == DEVICE
    with pytest.raises(RuntimeError, match="two devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="numpy"):
        x.numpy()
    assert type(x.cpu()) is Tensor and (x + torch.tensor(1.0)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", METHODS)
def test_an_objective(name, device):
    objective, inputs = tokenpo.method(name), trial.example(0)
    here, there = (x.evaluate(objective) for x in (inputs, inputs.map(lambda x: x.to(device))))
    close(there.loss.value, here.loss.value)
    close(there.gradient, here.gradient)
    close(there.entropy_gradient, here.entropy_gradient)
    mask = inputs.rollouts["mask"]
    for term, x in there.loss.terms.items():
        torch.testing.assert_close(x.cpu()[mask], here.loss.terms[term][mask], rtol=1e-12, atol=1e-12)


# A gradient through the entropy, statistics of the whole step, a ratio of the response.
@pytest.mark.parametrize("name", ["tepo", "skywork_entropy", "clip_cov"])
@pytest.mark.parametrize("way", ["loss", "gradient", "lean"])
def test_the_objective_with_the_head(name, way, device):
    objective, inputs = tokenpo.method(name), trial.example(1)
    g = torch.Generator().manual_seed(0)
    wanted = {"mask", "reward", "group", "old_logprob", "token_ids", "temperature"} | objective.needs
    fields = {k: x for k, x in inputs.rollouts.items() if k in wanted}
    hidden = torch.randn(int(fields["mask"].sum()), H, generator=g, dtype=torch.float64)
    head = torch.randn(V, H, generator=g, dtype=torch.float64)

    def gradients(where: Any) -> tuple[Tensor, Tensor, Tensor]:
        rollouts = Rollouts(**{k: x.to(where) for k, x in fields.items()})
        h, w = (x.to(where).requires_grad_() for x in (hidden, head))
        step = objective, h, w, rollouts, objective.prepare(rollouts), Totals.of(rollouts)
        if way == "loss":
            fused = fused_loss(*step, chunk=20)
            fused.loss.value.backward()
            return fused.loss.value.detach(), h.grad, w.grad
        fused, pulled = fused_gradient(*step, lean=way == "lean", **({} if way == "lean" else {"chunk": 20}))
        return fused.loss.value, pulled, w.grad

    for there, here in zip(gradients(device), gradients("cpu"), strict=True):
        close(there, here, 1e-11)


# Runs, objectives and samplers have tests of their own here.
CASES = [name for name in on_a_card.cases(True, NAME) if name.split()[0] not in ("run", "objectives", "sampler")]


@pytest.mark.parametrize("case", CASES)
def test_what_is_checked_on_a_card(case):
    assert on_a_card.cases(True, NAME)[case]()


@pytest.mark.parametrize("make", [random_qwen, random_gpt2])
def test_the_sampler(make, tmp_path):
    path = make(tmp_path / "model")
    prompts, sampling = [[5, 6, 7], [8], [9, 10]], Sampling(12, seed=3)
    here, there = (sample(load(path, device=name), prompts, 4, sampling) for name in ("cpu", NAME))
    for field in dataclasses.fields(here):
        close(getattr(there, field.name), getattr(here, field.name), 1e-5)


def test_the_sampler_waits_once_a_token(tmp_path):
    """And where rows leave that have ended: here none does."""
    lm = load(random_qwen(tmp_path / "model"), device=NAME)
    lm = dataclasses.replace(lm, eos_ids=())
    made = []
    for length in (1, 8, 24):  # the first also probes the model
        with waits() as counted:
            assert sample(lm, [[5, 6, 7], [8]], 4, Sampling(length)).mask.shape == (8, length)
        made.append(counted.total())
    assert made[2] - made[1] == 16


@pytest.mark.parametrize("make", [random_qwen, random_gpt2])
def test_recorded_steps_wait_once_a_block(make, tmp_path):
    """Nothing in a step waits, so that a CUDA graph can hold it."""
    lm = load(make(tmp_path / "model"), device=NAME)
    lm = dataclasses.replace(lm, eos_ids=())
    lm.abilities["graphed"] = Graphs(lambda step, moved: step)
    made = []
    for length in (2, BLOCK, 3 * BLOCK):  # the first also probes the model and compares a step
        with waits() as counted:
            assert sample(lm, [[5, 6, 7], [8]], 4, Sampling(length)).mask.shape == (8, length)
        made.append(counted.total())
    assert made[2] - made[1] == 2


@pytest.mark.parametrize("make", [random_qwen, random_gpt2])
def test_inputs_with_a_forward_pass_of_their_own(make, tmp_path):
    path, prompts = make(tmp_path / "model"), [[5, 6, 7], [8, 9]]
    mask = torch.arange(5) < torch.tensor([[5], [3], [4], [1]])
    fields = {"mask": mask, "reward": torch.tensor([1.0, 0, 1, 0]), "group": torch.tensor([0, 0, 1, 1])}
    fields |= {"old_logprob": 0.0 * mask, "temperature": mask + 0.5, "token_ids": torch.arange(20).view(4, 5)}
    made = {}
    for where in ("cpu", NAME):
        lm, facts = load(path, device=where), Rollouts(**{key: x.to(where) for key, x in fields.items()})
        made[where] = {name: make(lm, facts, prompts, 1000) for name, make in MAKERS.items()}
    for name, here in made["cpu"].items():
        close(made[NAME][name], here, 1e-5)
        assert here.any(), name


# What is special about the other methods of TRAINED is in their objectives or inputs.
RUNS = {name: TRAINED[name] for name in ("hapo", "lopti", "ha_dw", "nthr")}
RUNS["hapo"] = [*RUNS["hapo"], *TRAINED["kl_cov"]]  # short forward passes
RUNS["lopti"] = TRAINED["adv_reweight"]  # LoRA
# dynamic sampling; a KL to a reference, an old policy that is scored again; minibatches of rows
RUNS["ha_dw"] = [*RUNS["ha_dw"], *TRAINED["grpo"], *TRAINED["tw_grpo"]]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_the_processor(name, tmp_path):
    """The same responses from the same random numbers, so the same rewards; numbers of float32 in another order."""
    here, there = (trained(tmp_path / where, name, where, *RUNS[name]) for where in ("cpu", NAME))
    for mine, theirs in zip(there, here, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6) and mine["grad_norm"] > 0
    weights = [load_file(tmp_path / where / "model" / "model.safetensors") for where in ("cpu", NAME)]
    for key, x in weights[0].items():
        torch.testing.assert_close(weights[1][key], x, rtol=1e-5, atol=1e-6)


# What an update of one forward pass waits for, with a trace of two responses, by module.
WAITS = {
    "models/packed.py": (9, "how many tokens, prompts and responses share a call of the attention"),
    "models/score.py": (5, "which rows one forward pass takes; the prompts in use"),
    "engines/embedded/facts.py": (2, "the prompts in use"),
    "engines/embedded/forward.py": (3, "how long each row is; the rows of a forward pass"),
    "core/update.py": (3, "the rows that can have a gradient; whether they are the update's, twice"),
    "core/types.py": (1, "the denominators"),
    "core/boundary.py": (1, "whether log-probabilities are finite"),
    "core/head/fused.py": (1, "the tokens of the mask"),
    "core/head/token_stats.py": (1, "the tokens that have a gradient"),
    "core/statistics.py": (1, "whether the loss is finite"),
    "core/learner.py": (1, "whether the norm of the gradient is finite"),
    "runs/records.py": (2, "which rows are traced; their numbers"),
}


def test_how_often_an_update_waits(tmp_path):
    """The difference of four epochs and two, of one update each."""
    made = []
    for epochs in (2, 4):
        with waits() as counted:
            more = ["--set", f"train.epochs={epochs}", "--set", "train.minibatches=1"]
            trained(tmp_path / str(epochs), "hapo", NAME, *more)
        made.append(counted.copy())
    grown = {module: (made[1][module] - made[0][module]) / 2 for module in made[1]}
    assert {module: count for module, count in grown.items() if count} == {k: count for k, (count, _) in WAITS.items()}


def test_how_often_the_fused_head_waits(device):
    """The tokens, finite?, live: once each; in chunks the lengths too, and the last two a chunk."""
    problem = on_a_card.Problem(torch.float32, small=True)
    for chunk, most in ((1000, 3), (30, 2 + 2 * 4)):
        problem.chunk = chunk
        objective = tokenpo.method("dapo")
        rollouts = problem.rollouts(objective.needs, NAME)
        step = objective, *problem.on(NAME)[:2], rollouts, objective.prepare(rollouts), Totals.of(rollouts)
        with waits() as counted:
            fused_gradient(*step, chunk=chunk)
        assert counted.total() <= most, counted


def test_a_run_with_autocast_computes_in_halves(tmp_path):
    whole, half = (
        trained(tmp_path / str(on), "dapo", NAME, "--set", f"train.autocast={json.dumps(on)}")[-1]
        for on in (False, True)
    )
    assert half["entropy"] != whole["entropy"] == pytest.approx(half["entropy"], rel=0.1)


def test_a_run_goes_on_to_the_same_bytes(tmp_path):
    whole = trained(tmp_path / "whole", "skywork_entropy", NAME, steps=2)
    trained(tmp_path / "part", "skywork_entropy", NAME, steps=1)
    assert main(["train", "--resume", str(tmp_path / "part"), "--set", "train.steps=2"]) == 0
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "part")]
    assert weights[0] == weights[1] and whole[-1]["step"] == 2


def test_held_out_problems(tmp_path):
    words = ["eval", "tiny", "--task", "dial_sum", "--problems", "4", "--samples-per-prompt", "2"]
    words += ["--max-new-tokens", "24", "--device"]
    found = []
    for where in ("cpu", NAME):
        with waits() as counted:
            assert main([*words, where, "--out", str(tmp_path / where)]) == 0
        assert (counted.total() > 0) == (where == NAME), "evaluated on the device that was asked for"
        result = json.loads((tmp_path / where / "results.json").read_text())
        found.append([result["numbers"], result["per_prompt"], result["length"]])
    assert found[0] == found[1]


@pytest.mark.slow  # as long as all others together
def test_gradients_at_a_checkpoint(tmp_path):
    """What `tokenpo gradients` finds on the device is what it finds on the processor."""
    found = []
    for where in ("cpu", NAME):
        trained(tmp_path / where, "dapo", where, "--set", "rollout.group_size=2")
        words = ["gradients", str(tmp_path / where), "tepo", "--after", "1", "--batches", "8", "--rollouts", "16"]
        with waits() as counted:
            assert main([*words, "--json", str(tmp_path / f"{where}.json")]) == 0
        assert (counted.total() > 0) == (where == NAME), "computed on the device of the run"
        found.append(json.loads((tmp_path / f"{where}.json").read_text()))
    here, there = (file["methods"]["tepo"]["paired"] for file in found)
    assert here["useful"][1] and there["after/useful"] == pytest.approx(here["after/useful"], abs=1e-4)
    assert there["useful"] == pytest.approx(here["useful"], abs=1e-4)
