"""The files of a run hold what they promise."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from run_views import Watch, lines
from tokenpo.records import read
from tokenpo.train.run import embedded as loop
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.rollout import Experience
from tokenpo.train.run.step import PAID, View, paid_lines, rollout_metrics, sample_records
from tokenpo.train.tasks import Problem, Score

STEP = {
    *(
        "step reward reward_std accuracy entropy entropy_q10 entropy_q50 entropy_q90 length length_min length_max "
        "ratio_mean ratio_min ratio_max clip_fraction clip_low_fraction clip_high_fraction kl zero_advantage_groups "
        "equal_reward_groups effective_tokens truncated continued_tokens discarded_groups grad_norm loss lr "
        "temperature_mean seconds_rollout seconds_update seconds_other"
    ).split()
}


def test_a_run_directory_is_complete(small, coin, tmp_path):
    train(small(tmp_path / "run", evaluate={"every": 2}), View())
    run = tmp_path / "run"
    metrics = lines(run, "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3, 4]
    assert [line["step"] for line in metrics if "eval/accuracy" in line] == [0, 2, 4]
    assert all(line.keys() >= STEP for line in metrics[1:])
    assert metrics[1]["note/odd"] == pytest.approx(1 - metrics[1]["accuracy"])
    samples = lines(run, "samples.jsonl")
    late = [(line["step"], line["position"]) for line in samples if line["step"] > PAID]
    assert late == [(4, 12), (4, 13), (4, 14), (4, 15)]
    assert {"prompt", "completion", "reward", "correct", "note", "length", "finished"} <= samples[0].keys()
    assert json.loads((run / "config.json").read_text())["train"]["lr"] == 0.01
    assert json.loads((run / "versions.json").read_text())["torch"] == torch.__version__
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000000", "step-000004"]


def test_the_first_steps_show_what_they_reward():
    """A line each on the first rewarded response to a problem, which need not be the first response."""
    rewards = [0, 1, 0, 1, 0, 0, 0, 0.5, 1]
    piece: Any = SimpleNamespace(
        start=6, group_size=3, problems=[Problem(f"p{i}", str(i)) for i in range(3)], mask=torch.ones(9, 2).bool(),
        question=lambda group: f"p{group}" if group else [{"role": "user", "content": "p" * 90}], finished=[True] * 9,
        completions=[f"c{row}" for row in range(9)], scores=[Score(float(x), x == 1) for x in rewards],
    )  # fmt: skip
    first = list(sample_records(PAID, piece, 2))
    assert [x["completion"] for x in first] == ["c0", "c3", "c1", "c7"]
    assert [x["position"] for x in first] == [6, 7, 6, 8]
    assert [x["completion"] for x in sample_records(PAID + 1, piece, 2)] == ["c0", "c3"]
    assert list(sample_records(1, piece, 0)) == []
    assert list(paid_lines(first)) == [
        "rewarded 1: 'p1' -> 'c3', expected '1'",
        f"rewarded 1: '{'p' * 20}...{'p' * 20}' -> 'c1', expected '0'",
        "rewarded 0.5: 'p2' -> 'c7', expected '2'",
    ]


def test_statistics_are_over_everything_drawn_by_hand():
    """Rewards (1 0)(1 1) and, from a second draw, (0 0): mean 1/2, squared deviations 6/4 over n - 1 = 5; two of the
    three groups are equal. Lengths 1 2 3 3 and 2 2."""

    def piece(rewards: list[float], lengths: list[int]) -> SimpleNamespace:
        mask = torch.arange(3) < torch.tensor(lengths)[:, None]
        scores = [Score(reward, reward > 0) for reward in rewards]
        return SimpleNamespace(
            problems=[Problem("", 0)] * (len(rewards) // 2),
            group_size=2,
            prompt=torch.arange(len(rewards)) // 2,
            scores=scores,
            mask=mask,
            reward=lambda: torch.tensor(rewards).float(),
            entropy=mask.float(),
            temperature=mask.float(),
            kept_ids=torch.tensor([[1, 4], [2, -1], [3, 0]]).expand(len(mask), 3, 2),
            finished=torch.tensor([x < 3 for x in lengths]),
        )

    drawn: Any = [piece([1, 0, 1, 1], [1, 2, 3, 3]), piece([0, 0], [2, 2])]
    got = rollout_metrics(Experience(None, None, drawn, 0.0, 3))
    assert got["reward"] == 0.5
    assert got["reward_std"] == pytest.approx(0.3**0.5, rel=1e-12)
    assert got["equal_reward_groups"] == pytest.approx(2 / 3, rel=1e-12)
    assert (got["length"], got["length_min"], got["length_max"]) == (pytest.approx(13 / 6), 1, 3)
    assert got["truncated"] == pytest.approx(1 / 3, rel=1e-6)
    assert got["kept_tokens"] == pytest.approx((6 * 2 + 5 * 1 + 2 * 2) / 13)  # of 6, 5 and 2 tokens
    alone = rollout_metrics(Experience(None, None, [piece([1, 1], [1, 1])], 0.0, 1))  # pyright: ignore
    assert alone["reward_std"] == 0 and alone["equal_reward_groups"] == 1


def test_a_trace_has_one_number_per_token(small, coin, tmp_path):
    train(small(tmp_path / "run", output={"trace_every": 2, "trace_rollouts": 2}), View())
    traces = lines(tmp_path / "run", "trace.jsonl")
    assert [line["step"] for line in traces] == [1, 1, 2, 2, 4, 4]
    for line in traces:
        assert {len(values) for values in line["terms"].values()} == {len(line["tokens"])}
        needed = {"advantage", "weight", "ratio", "clipped", "low", "high", "loss", "logprob", "entropy", "temperature"}
        needed |= {"old_logprob", "kl", "effective"}
        assert needed <= line["terms"].keys() and "kl_ref" not in line["terms"]
        assert line["prompt"] == f"{line['answer']}="


def files(directory):
    return {file.name: file.read_bytes() for file in (directory / "rollouts").iterdir()}


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8, "top_k": 6}])
def test_what_is_recorded_is_what_was_trained_on(cut, small, coin, tmp_path, monkeypatch):
    given = []
    improve = loop.improve

    def watched(trainer, step, *rest, **more):
        given.append(step.rollouts)
        return improve(trainer, step, *rest, **more)

    monkeypatch.setattr(loop, "improve", watched)
    config = small(
        tmp_path / "run",
        output={"rollouts_every": 2},
        method={"name": "archer"},
        rollout={"temperature": 0.7, "rescore": True, **cut},
    )
    run = train(config, View()).directory
    assert sorted(files(run)) == ["step-000002.jsonl", "step-000004.jsonl"]
    for step, facts in ((2, given[1]), (4, given[3])):
        found = read(run, step)
        assert (found.step, found.moved, found.notes) == (step, True, ())
        width = found.rollouts.mask.shape[1]
        assert facts.known().keys() == found.rollouts.known().keys()
        for name, x in facts.known().items():
            seen = found.rollouts.need(name)
            x = x[:, :width] if x.dim() > 1 else x
            x = x.masked_fill(~facts.mask[:, :width], 0) if x.dim() == 2 else x
            assert torch.equal(seen.to(x.dtype), x), name
        assert {"ref_logprob", "old_entropy", "rollout_logprob", "temperature"} <= found.inputs
        assert ("kept_ids" in found.inputs) == bool(cut)
        # rescore: what the sampler said differs from what the trainer says.
        assert [r.correct for r in found.responses] == [r.reward > 0 for r in found.responses]
        assert all(r.prompt and len(r.tokens) == len(r.token_ids) for r in found.responses)


def test_a_resumed_run_records_the_same_bytes(small, coin, tmp_path):
    once = train(small(tmp_path / "once", output={"rollouts_every": 1}), View()).directory
    output = {"rollouts_every": 1, "checkpoint_every": 2}
    with pytest.raises(RuntimeError, match="power cut"):
        train(small(tmp_path / "twice", output=output), Watch(crash=3))
    stale = tmp_path / "twice" / "rollouts" / "step-000003.jsonl"
    assert stale.is_file()  # one more than the checkpoint knows
    stale.with_name("step-000009.jsonl").write_text("of another life\n")
    twice = resume(tmp_path / "twice", View()).directory
    assert sorted(files(once)) == [f"step-00000{i}.jsonl" for i in (1, 2, 3, 4)]
    assert files(once) == files(twice)
