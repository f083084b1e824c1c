"""Runs with TRL as a person makes them: adaptive temperature, LoRA, a reference, evaluation, resume, the report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tokenpo
from tokenpo.evidence.report import write_report
from tokenpo.runs.read import read_run, read_trace
from tokenpo.runs.rollouts import read
from trl_support import run_script
from trl_support.reference import Reference, agrees, heated

pytestmark = pytest.mark.usefixtures("trl_here")
PARTS = ("hapo", "lora", "reference", "resume", "dynamic", "recording", "broken", "parser")


@pytest.fixture(scope="module")
def out(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("real")
    run_script("real_run.py", model_dir, directory, *PARTS)
    return directory


@pytest.fixture(scope="module")
def two(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Two processes: where they ran, and what came of a part."""
    directory = tmp_path_factory.mktemp("two")
    run_script("real_run.py", model_dir, directory, "dynamic", "recording", processes=2)
    return lambda name: (directory, json.loads((directory / f"{name}.json").read_text()))


@pytest.fixture(scope="module")
def part(out: Path) -> Callable[[str], dict[str, Any]]:
    return lambda name: json.loads((out / f"{name}.json").read_text())


def _lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "tokenpo" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("fused", [True, False])
def test_a_part_of_a_users_own_that_fails_is_named(part: Callable, fused: bool) -> None:
    """Before TRL would have made every weight NaN."""
    said = part("broken")
    raised = r"TokenPOError: objective grpo: weight Own\(divides=False\) raised KeyError at real_run\.py:\d+: 'x'"
    assert re.fullmatch(raised, said[f"raises {fused}"])
    nan = (
        r"NotFinite: the loss of grpo is nan in a micro-batch of TRL's: weight Own\(divides=True\) is inf on token 0 of"
    )
    assert re.match(nan, said[f"divides {fused}"])


def test_adaptive_temperature_is_the_rules_and_the_loss_is_evaluated_at_it(
    part: Callable, out: Path, model_dir: Path
) -> None:
    heated(model_dir, out / "hapo", part("hapo"))


@pytest.mark.parametrize("processes", [1, 2])
def test_dynamic_sampling_trains_on_groups_that_differ(
    processes: int, part: Callable, two: Callable, out: Path, model_dir: Path
) -> None:
    directory, parts = (out, part("dynamic")) if processes == 1 else two("dynamic")
    ran = parts["some"]
    objective = tokenpo.method("ha_dw")
    reference, state = Reference(model_dir, objective, seed=3, longest=8), objective.start()
    assert ran["kept"] == [3, 3]
    assert max(ran["drawn"]) > 12
    for batch in range(2):
        facts = load_file(directory / "some" / f"batch{batch}.safetensors")
        reward = facts["reward"].view(3, 4)
        assert (reward != reward[:, :1]).any(1).all()
        assert all(int(text.split("+")[0]) % 2 for text in ran["prompts"][batch])
        assert all(len(set(ran["prompts"][batch][4 * g : 4 * g + 4])) == 1 for g in range(3))
        assert 0 < ran["discarded"][batch] < 1
        # The memory, the mean reward of what came before, has seen all that was drawn, which is better than was kept.
        state = {objective.memories[0]: ran["memory"][batch][0]}
        agrees(directory / "some", ran, batch, 4, reference, state)
    (kept,) = objective.after(objective.start(), reference_rollouts(directory / "some")).values()
    assert ran["memory"][1][0]["1"] > kept["1"]


def reference_rollouts(directory: Path) -> tokenpo.Rollouts:
    """The first rollout batch as it was trained on."""
    known = load_file(directory / "batch0.safetensors")
    return tokenpo.Rollouts(**{name: x for name, x in known.items() if name != "sampled_at"})


@pytest.mark.parametrize("processes", [1, 2])
def test_places_that_dynamic_sampling_cannot_fill_count_nowhere(
    processes: int, part: Callable, two: Callable, out: Path, model_dir: Path
) -> None:
    directory, parts = (out, part("dynamic")) if processes == 1 else two("dynamic")
    few, never = parts["few"], parts["never"]
    assert few["drawn"] == [12, 12]
    short = [batch for batch, kept in enumerate(few["kept"]) if 0 < kept < 3]
    assert short
    reference = Reference(model_dir, tokenpo.method("ha_dw"), seed=3, longest=8)
    for batch in short:
        facts = load_file(directory / "few" / f"batch{batch}.safetensors")
        assert facts["mask"].any(1).sum() == 4 * few["kept"][batch]
        agrees(directory / "few", few, batch, 4, reference, {reference.objective.memories[0]: few["memory"][batch][0]})
    assert never["kept"] == [0]
    assert never["drawn"] == [24]
    grads = load_file(directory / "never" / "step3.safetensors")
    assert not any(x.any() for name, x in grads.items() if name.startswith("grad/"))


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_recorded_is_what_was_trained_on_and_the_policy_after_it(
    processes: int, part: Callable, two: Callable, out: Path, model_dir: Path
) -> None:
    directory, ran = (out, part("recording")) if processes == 1 else two("recording")
    run = directory / "recording" / "tokenpo"
    assert sorted(file.name for file in (run / "rollouts").iterdir()) == ["step-000002.jsonl", "step-000004.jsonl"]
    found, facts = read(run, 2), load_file(directory / "recording" / "batch1.safetensors")
    mask = facts["mask"][:, : found.rollouts.mask.shape[1]]
    assert torch.equal(found.rollouts.mask, mask) and not facts["mask"][:, mask.shape[1] :].any()
    for name in ("old_logprob", "old_entropy", "temperature", "token_ids"):
        seen, given = getattr(found.rollouts, name), facts[name][:, : mask.shape[1]]
        assert torch.equal(seen[mask].to(given.dtype), given[mask]), name
    assert {"ref_logprob"} <= found.inputs
    # Two updates a batch: what the second samples with has had two.
    assert set(found.rollouts.version[mask].tolist()) == {2}
    lines = _lines(directory / "recording")
    assert all(line["lag_0_ratio_mean"] == pytest.approx(1, abs=1e-5) and line["lag_1_share"] > 0 for line in lines)
    assert torch.equal(found.rollouts.reward.float(), facts["reward"])
    assert torch.equal(found.rollouts.group, facts["group"])
    prompts = ran["prompts"][1]
    assert [response.prompt for response in found.responses] == prompts
    even = [sum(ids[kept].tolist()) % 2 == 0 for ids, kept in zip(facts["token_ids"], facts["mask"], strict=True)]
    assert list(found.correct) == even and len({*even}) == 2
    # The weights before the third batch are those after the second.
    reference = Reference(model_dir, tokenpo.method("archer"), seed=3, longest=8)
    given = {name: facts[name] for name in ("mask", "reward", "group", "token_ids", "temperature")}
    given["temperature"] = given["temperature"].where(facts["mask"], 1.0)
    weights = load_file(directory / "recording" / "step4.safetensors")
    after = reference.scored(given, [reference.lm.encode(text) for text in prompts[::4]], weights)
    torch.testing.assert_close(
        found.policy.logprob[mask].float(), after.old_logprob[:, : mask.shape[1]][mask], rtol=1e-4, atol=1e-5
    )
    assert float((found.policy.logprob - found.rollouts.old_logprob)[mask].abs().max()) > 1e-2
    for trace in map(json.loads, (run / "trace.jsonl").read_text().splitlines()):
        if trace["step"] == 2:
            assert trace["correct"] == even[trace["row"]]


def test_lora_trains_the_adapter_alone_and_the_reference_is_the_model_without_it(part: Callable) -> None:
    ran = part("lora")
    assert ran["moved"]
    assert all("lora_" in name for name in ran["moved"])
    assert "ReferenceKl(beta=0.1, estimator=K3()" in ran["objective"]
    logged = [row for row in ran["log"] if "loss" in row]
    assert len(logged) == 4
    assert logged[0]["kl"] == pytest.approx(0.0, abs=1e-6)  # the adapter begins as nothing
    assert logged[1]["kl"] > 1e-3


def test_metrics_have_trls_names(part: Callable) -> None:
    logged = [row for row in part("lora")["log"] if "loss" in row]
    names = {
        "reward", "reward_std", "rewards/even/mean", "rewards/even/std", "rewards/accuracy/mean",
        "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio", "num_tokens", "step_time",
        "grad_norm",
    }  # fmt: skip
    every = {"entropy", "kl"} | {
        f"clip_ratio/{x}" for x in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")
    }
    assert names | every <= set(logged[0])
    assert all(every <= set(row) for row in logged)
    for row in logged:
        assert row["clip_ratio/region_mean"] == pytest.approx(row["clip_ratio/low_mean"] + row["clip_ratio/high_mean"])
        assert row["clip_ratio/low_min"] <= row["clip_ratio/low_mean"] + 1e-6


def test_a_method_that_reads_the_reference_gets_one_and_an_evaluation_disturbs_nothing(part: Callable) -> None:
    ran = part("reference")
    assert ran["beta"] != 0.0
    evaluated = [row for row in ran["log"] if "eval_loss" in row]
    assert len(evaluated) == 3
    assert all(math.isfinite(row["eval_loss"]) and "eval_reward" in row and "eval_kl" in row for row in evaluated)


def test_a_resumed_run_is_the_run_that_never_stopped(part: Callable, out: Path) -> None:
    ran = part("resume")
    assert ran["same"]
    assert ran["first"] == 2
    whole, parts = (_lines(out / name) for name in ("resume-whole", "resume-parts"))
    assert [line["step"] for line in parts] == [1, 2, 3, 4]
    assert [_lasting(line) for line in whole] == [_lasting(line) for line in parts]
    assert "multiple of 2" in ran["wrong"]
    kept, again = (
        {file.name: file.read_bytes() for file in (out / name / "tokenpo" / "rollouts").iterdir()}
        for name in ("resume-whole", "resume-parts")
    )
    assert kept == again and len(kept) == 4


def _lasting(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith("seconds")}


def test_the_model_card_names_the_method_and_its_paper(part: Callable) -> None:
    card = part("resume")["card"]
    assert "TokenPO (hapo)" in card
    assert "huggingface.co/papers/2509.16591" in card
    assert "- tokenpo" in card


def test_the_report_renders_what_the_run_left(out: Path) -> None:
    directory = out / "resume-parts" / "tokenpo"
    run, trace = read_run(directory), read_trace(directory)
    assert run.notes == ()
    assert trace.notes == ()
    assert run.config["method"]["name"] == "hapo"
    assert {"reward", "entropy", "kl", "clip_fraction", "grad_norm", "temperature_mean"} <= set(run.names)
    page = write_report(directory).read_text()
    assert "hapo" in page
    rollout = trace.load(trace.index[0][1])
    assert {"advantage", "ratio", "weight", "entropy", "temperature", "effective"} <= set(rollout.terms)


def test_accuracy_is_the_reward_function_of_that_name(out: Path) -> None:
    for line in _lines(out / "lora"):
        assert line["accuracy"] == line["rewards/even"] == pytest.approx(line["reward"] / 2)


def test_trls_parser_reads_the_settings(part: Callable) -> None:
    ran = part("parser")
    assert "FixedBounds(low=0.2, high=0.3)" in ran["objective"]
    assert "dual=None" in ran["objective"]
    assert ran["trace_every"] == 2
    assert ran["tags"] == ["trl", "tokenpo"]
