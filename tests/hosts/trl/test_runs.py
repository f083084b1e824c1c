"""Runs with TRL as a person makes them: adaptive temperature, LoRA, a reference, evaluation, resume, the report."""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tokenpo
from run_views import lines, numbers
from tokenpo.lab.report.page import write_report
from tokenpo.records import read
from tokenpo.records.run import read_run, read_trace
from trl_support import run_script
from trl_support.reference import Reference, agrees, heated

PARTS = {1: ("hapo", "lora", "reference", "resume", "dynamic", "recording"), 2: ("dynamic", "recording")}
CLIPPED = {f"clip_ratio/{name}" for name in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")}


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Where a number of processes ran, and the results of a part of `real_run.py`."""

    @functools.cache
    def directory(processes: int) -> Path:
        out = tmp_path_factory.mktemp("real")
        run_script("real_run.py", model_dir, out, *PARTS[processes], processes=processes)
        return out

    def results(part: str, processes: int = 1) -> tuple[Path, dict[str, Any]]:
        return directory(processes), json.loads((directory(processes) / f"{part}.json").read_text())

    return results


def test_adaptive_temperature_is_the_rules_and_the_loss_is_evaluated_at_it(ran: Callable, model_dir: Path) -> None:
    out, part = ran("hapo")
    heated(model_dir, out / "hapo", part)


@pytest.mark.parametrize("processes", [1, 2])
def test_dynamic_sampling_trains_on_groups_that_differ(processes: int, ran: Callable, model_dir: Path) -> None:
    out, parts = ran("dynamic", processes)
    directory, part = out / "some", parts["some"]
    objective = tokenpo.method("ha_dw")
    (memory,) = objective.memories
    reference = Reference(model_dir, objective, seed=3, longest=8)
    assert part["kept"] == [3, 3]
    assert max(part["drawn"]) > 12
    for batch in range(2):
        facts = load_file(directory / f"batch{batch}.safetensors")
        reward = facts["reward"].view(3, 4)
        assert (reward != reward[:, :1]).any(1).all()
        assert all(int(text.split("+")[0]) % 2 for text in part["prompts"][batch])
        assert all(len(set(part["prompts"][batch][4 * g : 4 * g + 4])) == 1 for g in range(3))
        assert 0 < part["discarded"][batch] < 1
        agrees(directory, part, batch, 4, reference, {memory: part["memory"][batch][0]})
    # The memory, the mean reward of earlier batches, counts all that was drawn, which is better than the kept groups.
    known = load_file(directory / "batch0.safetensors")
    first = tokenpo.Rollouts(**{name: x for name, x in known.items() if name != "sampled_at"})
    assert part["memory"][1][0]["1"] > objective.after(objective.start(), first)[memory]["1"]


@pytest.mark.parametrize("processes", [1, 2])
def test_places_that_dynamic_sampling_cannot_fill_count_nowhere(processes: int, ran: Callable, model_dir: Path) -> None:
    out, parts = ran("dynamic", processes)
    few, never = parts["few"], parts["never"]
    assert few["drawn"] == [12, 12]
    short = [batch for batch, kept in enumerate(few["kept"]) if 0 < kept < 3]
    assert short
    reference = Reference(model_dir, tokenpo.method("ha_dw"), seed=3, longest=8)
    for batch in short:
        facts = load_file(out / "few" / f"batch{batch}.safetensors")
        assert facts["mask"].any(1).sum() == 4 * few["kept"][batch]
        agrees(out / "few", few, batch, 4, reference, {reference.objective.memories[0]: few["memory"][batch][0]})
    assert (never["kept"], never["drawn"]) == ([0], [24])
    grads = load_file(out / "never" / "step3.safetensors")
    assert not any(x.any() for name, x in grads.items() if name.startswith("grad/"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_record_is_the_batch_that_was_trained_on_and_the_policy_after_it(
    processes: int, ran: Callable, model_dir: Path
) -> None:
    out, part = ran("recording", processes)
    directory = out / "recording"
    run = directory / "tokenpo"
    assert sorted(file.name for file in (run / "rollouts").iterdir()) == ["step-000002.jsonl", "step-000004.jsonl"]
    found, facts = read(run, 2), load_file(directory / "batch1.safetensors")
    width = found.rollouts.mask.shape[1]
    mask = facts["mask"][:, :width]
    assert torch.equal(found.rollouts.mask, mask) and not facts["mask"][:, width:].any()
    for name in ("old_logprob", "old_entropy", "temperature", "token_ids"):
        recorded, given = getattr(found.rollouts, name), facts[name][:, :width]
        assert torch.equal(recorded[mask].to(given.dtype), given[mask]), name
    assert "ref_logprob" in found.inputs
    # Two updates a batch: the policy that samples the second has had two.
    assert set(found.rollouts.version[mask].tolist()) == {2}
    for line in lines(run):
        assert line["lag_0_ratio_mean"] == pytest.approx(1, abs=1e-5) and line["lag_1_share"] > 0
    assert torch.equal(found.rollouts.reward.float(), facts["reward"])
    assert torch.equal(found.rollouts.group, facts["group"])
    prompts = part["prompts"][1]
    assert [response.prompt for response in found.responses] == prompts
    even = [sum(ids[kept].tolist()) % 2 == 0 for ids, kept in zip(facts["token_ids"], facts["mask"], strict=True)]
    assert list(found.correct) == even and len({*even}) == 2
    # The weights before the third batch are those after the second.
    reference = Reference(model_dir, tokenpo.method("archer"), seed=3, longest=8)
    given = {name: facts[name] for name in ("mask", "reward", "group", "token_ids", "temperature")}
    given["temperature"] = given["temperature"].where(facts["mask"], 1.0)
    weights = load_file(directory / "step4.safetensors")
    after = reference.scored(given, [reference.lm.encode(text) for text in prompts[::4]], weights).old_logprob
    torch.testing.assert_close(found.policy.logprob[mask].float(), after[:, :width][mask], rtol=1e-4, atol=1e-5)
    assert float((found.policy.logprob - found.rollouts.old_logprob)[mask].abs().max()) > 1e-2
    for trace in lines(run, "trace.jsonl"):
        if trace["step"] == 2:
            assert trace["correct"] == even[trace["row"]]


def test_lora_trains_the_adapter_alone_and_the_reference_is_the_model_without_it(ran: Callable) -> None:
    out, part = ran("lora")
    assert part["moved"] and all("lora_" in name for name in part["moved"])
    assert "ReferenceKl(beta=0.1, estimator=K3()" in part["objective"]
    logged = [row for row in part["log"] if "loss" in row]
    assert len(logged) == 4
    assert logged[0]["kl"] == pytest.approx(0.0, abs=1e-6)  # the adapter begins as nothing
    assert logged[1]["kl"] > 1e-3
    # Metrics have TRL's names; accuracy is the reward function of that name.
    assert {
        *(
            "reward reward_std rewards/even/mean rewards/even/std rewards/accuracy/mean frac_reward_zero_std "
            "completions/mean_length completions/clipped_ratio num_tokens step_time grad_norm"
        ).split()
    } <= set(logged[0])
    for row in logged:
        assert {"entropy", "kl"} | CLIPPED <= set(row)
        assert row["clip_ratio/region_mean"] == pytest.approx(row["clip_ratio/low_mean"] + row["clip_ratio/high_mean"])
        assert row["clip_ratio/low_min"] <= row["clip_ratio/low_mean"] + 1e-6
    for line in lines(out / "lora" / "tokenpo"):
        assert line["accuracy"] == line["rewards/even"] == pytest.approx(line["reward"] / 2)


def test_a_method_that_reads_the_reference_gets_one_and_an_evaluation_disturbs_nothing(ran: Callable) -> None:
    _, part = ran("reference")
    assert part["beta"] != 0.0
    evaluated = [row for row in part["log"] if "eval_loss" in row]
    assert len(evaluated) == 3
    assert all(math.isfinite(row["eval_loss"]) and "eval_reward" in row and "eval_kl" in row for row in evaluated)


def test_a_resumed_run_is_the_run_that_never_stopped(ran: Callable) -> None:
    out, part = ran("resume")
    assert part["same"]
    assert part["first"] == 2
    whole, parts = (numbers(out / name / "tokenpo") for name in ("resume-whole", "resume-parts"))
    assert whole == parts and [line["step"] for line in parts] == [1, 2, 3, 4]
    assert len({line["kl_rate"] for line in parts}) > 2
    assert part["logged"] == ["kl_left_out", "kl_rate", "kl_reached"]
    assert part["rates"] == [1e-2]  # TRL's own, which its schedule goes on from
    assert [line["lr"] for line in parts] == [1e-2 * line["kl_rate"] for line in parts]
    assert "multiple of 2" in part["wrong"]
    kept, again = (
        {file.name: file.read_bytes() for file in (out / name / "tokenpo" / "rollouts").iterdir()}
        for name in ("resume-whole", "resume-parts")
    )
    assert kept == again and len(kept) == 4
    card = part["card"]
    assert "TokenPO (hapo)" in card and "huggingface.co/papers/2509.16591" in card and "- tokenpo" in card


def test_the_report_renders_a_run(ran: Callable) -> None:
    directory = ran("resume")[0] / "resume-parts" / "tokenpo"
    run, trace = read_run(directory), read_trace(directory)
    assert run.notes == trace.notes == ()
    assert run.config["method"]["name"] == "hapo"
    assert {"reward", "entropy", "kl", "clip_fraction", "grad_norm", "temperature_mean"} <= set(run.names)
    assert "hapo" in write_report(directory).read_text()
    rollout = trace.load(trace.index[0][1])
    assert {"advantage", "ratio", "weight", "entropy", "temperature", "effective"} <= set(rollout.terms)
