"""Whole runs of recipes, on a server in this process."""

import json
import re
import socket
from pathlib import Path

import pytest
import tinker
import torch

from run_views import lines, numbers
from tinker_support import MODEL, Cloud, Service, resume, train
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.tinker import loop as service


def test_a_run_leaves_what_report_and_explain_read(small, cloud: Cloud, capsys: pytest.CaptureFixture) -> None:
    outcome = train(small(evaluate={"problems": 4, "samples": 2}))
    assert outcome.finished and len(outcome.evaluations) == 2
    directory = outcome.directory
    made = lines(directory)
    assert [line["step"] for line in made] == [0, 1, 2, 3] and "entropy" not in made[1]
    assert {"reward", "accuracy", "clip_fraction", "kl", "effective_tokens"} <= made[1].keys()
    assert made[3]["eval/k"] == 2
    trace = lines(directory, "trace.jsonl")
    assert {line["step"] for line in trace} == {1, 2, 3}
    assert {"advantage", "ratio", "loss", "effective", "temperature"} <= trace[0]["terms"].keys()
    assert json.loads((directory / "service.json").read_text())["sampler"] in cloud.saved
    assert main(["report", str(directory)]) == 0 and (directory / "report.html").stat().st_size > 10_000
    rollouts = next((directory / "rollouts").glob("*.jsonl"))
    told_by_lag = {name for name in made[1] if name.startswith("lag")}
    updates = small().train.epochs * small().train.minibatches
    assert bool(told_by_lag) == (updates > 1) == ("version" in lines(rollouts.parent, rollouts.name)[0])
    assert main(["explain", str(rollouts), "--method", "grpo"]) == 0
    assert "responses" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["lopti", "ha_dw"])
def test_a_resumed_run_makes_the_same_updates(method: str, small, cloud: Cloud, tmp_path: Path) -> None:
    """Memories, optimiser and the place in the problems: two steps and one more are three."""
    given = {"method": {"name": method}, "rollout": {"dynamic_sampling": True, "max_extra_batches": 1}}
    whole = train(small(**given)).directory
    part = tmp_path / "part"
    train(small(**given, train={"steps": 2}, output={"dir": str(part)}))
    config = small(**given, output={"dir": str(part)})
    outcome = resume(part, config)
    assert outcome.finished and outcome.directory == part
    assert json.dumps(numbers(part)) == json.dumps(numbers(whole))
    assert len(lines(part, "trace.jsonl")) == len(lines(whole, "trace.jsonl"))
    with pytest.raises(TokenPOError, match="has made all of its 3 steps"):
        resume(part, config)


@pytest.mark.parametrize("method", ["adv_reweight", "arm", "dppo_tv", "gdpo"])
def test_what_a_method_reads_is_asked_of_the_server(method: str, small, cloud: Cloud) -> None:
    """A reference of the base model, the prompt's log-probability, the sampler's; and the task's rewards by name."""
    directory = train(small(method={"name": method}, train={"steps": 2})).directory
    (first, *_) = lines(directory, f"rollouts/{next((directory / 'rollouts').iterdir()).name}")
    # Lines of recorded rollouts hold what the objective was given.
    name = {"adv_reweight": "ref_logprob", "arm": "prompt_logprob", "dppo_tv": "rollout_logprob"}.get(method, "rewards")
    assert name in first


@pytest.mark.parametrize(
    "given", [{"method": {"name": "opd"}}, {"method": {"name": "rlsd"}}, {"teacher": {"coef": 0.1}}]
)
def test_a_teacher_of_the_servers_scores_what_was_sampled(given: dict, small, cloud: Cloud) -> None:
    """Weights that were saved on the server, larger by a tenth."""
    lm, path = cloud.model(), "tinker://other/sampler_weights/final"
    cloud.saved[path] = {name: 1.1 * x for name, x in lm.model.state_dict().items()}
    lm.model.load_state_dict(cloud.saved[path])
    taught = {**given, "teacher": {"path": path, **given.get("teacher", {})}}
    directory = train(small(**taught, train={"steps": 1}, output={"rollouts_every": 1})).directory
    assert lines(directory)[-1]["teacher_kl"] > 1e-3
    for row in lines(directory, "rollouts/step-000001.jsonl"):
        prompt, ids = lm.encode(row["prompt"]), row["token_ids"]
        logits = lm.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        wanted = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
        assert row["teacher_logprob"] == pytest.approx(wanted.tolist(), rel=1e-4, abs=1e-6)


def test_the_old_policy_can_be_scored_by_the_trainer(small, cloud: Cloud, tmp_path: Path) -> None:
    """A sampler that is off by more than the tolerance is refused, and with rollout.rescore learnt from."""
    cloud.told = lambda tokens, logprobs: (tokens, [x - 0.1 for x in logprobs])
    with pytest.raises(TokenPOError, match=r"is 0.1 nats, above 0.05: set rollout.rescore = true"):
        train(small())
    again = {"dir": str(tmp_path / "again"), "rollouts_every": 1}
    rescored = small(rollout={"rescore": True, "correction": {"cap": 2.0}}, output=again)
    directory = train(rescored).directory
    first = lines(directory, "rollouts/step-000001.jsonl")[0]
    assert first["rollout_logprob"][0] == pytest.approx(first["old_logprob"][0] - 0.1, abs=1e-4)


def test_the_command_line(small, cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--set", f"model.path={MODEL}", "--set", "model.lora.rank=8", "--set", "rollout.prompts=4"]
    words += ["--set", "rollout.max_new_tokens=40", "--set", "train.steps=1", "--set", "evaluate.problems=2"]
    run = tmp_path / "made"
    given = ["train", "quickstart", "--engine", "tinker", "--method", "grpo", *words, "--out", str(run)]
    assert main(given) == 0
    said = capsys.readouterr().out
    assert "on a Tinker server, training run run-1" in said and "step 1/1" in said
    assert "weights on the server, for a sampling client: tinker://run-1/sampler_weights/final" in said
    assert (run / "report.html").is_file()
    assert main(["train", "--resume", str(run)]) == 2
    assert "resume it with --engine tinker" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--engine", "tinker", "--set", "train.steps=2"]) == 0
    assert [line["step"] for line in lines(run)] == [0, 1, 2]


def test_without_a_key_or_a_server_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TokenPOError, match="wants a key, and there is none: set TINKER_API_KEY"):
        service.connect(parse_config({}, "test"))
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(TokenPOError, match=rf"no Tinker server answers at {address} .*tinker\.base_url=URL"):
        service.connect(parse_config({"tinker": {"base_url": address}}, "test"))


PAGE = Path(__file__).parents[3] / "docs" / "tinker.md"


def test_the_loop_of_the_page_trains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    cloud = Cloud(ASSETS)
    monkeypatch.setattr(tinker, "ServiceClient", lambda: Service(cloud))
    [code] = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "Qwen/Qwen3-8B" in code
    names: dict = {}
    exec(compile(code.replace("Qwen/Qwen3-8B", MODEL), str(PAGE), "exec", dont_inherit=True), names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert names["state"]["updates"] == 4 and list(cloud.saved) == [names["saved"]]
