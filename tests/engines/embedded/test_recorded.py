"""Whole rollout batches that a run records: what the objective was given, whole files, the same after a resume."""

from __future__ import annotations

import pytest
import torch

from run_views import Watch
from tokenpo.cli.view import SilentView
from tokenpo.engines.embedded import loop
from tokenpo.engines.embedded.loop import resume, train
from tokenpo.runs.rollouts import read


def files(directory):
    return {file.name: file.read_bytes() for file in (directory / "rollouts").iterdir()}


def recording(every, **more):
    return {"rollouts_every": every, **more}


def test_what_is_recorded_is_what_was_trained_on(small, coin, tmp_path, monkeypatch):
    given = []
    improve = loop.improve

    def watched(trainer, step, *rest):
        given.append(step.rollouts)
        return improve(trainer, step, *rest)

    monkeypatch.setattr(loop, "improve", watched)
    config = small(
        tmp_path / "run", output=recording(2), method={"name": "archer"}, rollout={"temperature": 0.7, "rescore": True}
    )
    run = train(config, SilentView()).directory
    assert sorted(files(run)) == ["step-000002.jsonl", "step-000004.jsonl"]
    for step, facts in ((2, given[1]), (4, given[3])):
        found = read(run, step)
        assert (found.step, found.moved, found.notes) == (step, True, ())
        width = found.rollouts.mask.shape[1]
        for name, x in vars(facts).items():
            seen = getattr(found.rollouts, name)
            if x is None:
                assert seen is None, name
                continue
            x = x[:, :width] if x.dim() == 2 else x
            x = x.masked_fill(~facts.mask[:, :width], 0) if x.dim() == 2 else x
            assert torch.equal(seen.to(x.dtype), x), name
        assert {"ref_logprob", "old_entropy", "rollout_logprob", "temperature"} <= found.inputs
        # rescore: what the sampler said differs from what the trainer says.
        assert [r.correct for r in found.responses] == [r.reward > 0 for r in found.responses]
        assert all(r.prompt and len(r.tokens) == len(r.token_ids) for r in found.responses)


def test_the_policy_after_the_updates_is_recorded(small, coin, tmp_path):
    """Without a step of the optimiser it is the one that sampled; with one it is another."""
    still, moved = (
        train(small(tmp_path / str(lr), output=recording(1), train={"lr": lr}), SilentView()).directory
        for lr in (0.0, 1e-2)
    )
    found = read(still, 1)
    torch.testing.assert_close(found.policy.logprob, found.rollouts.old_logprob, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.policy.entropy, found.rollouts.old_entropy, rtol=0, atol=1e-5)
    found = read(moved, 1)
    assert (found.policy.logprob - found.rollouts.old_logprob).abs().max() > 1e-3
    assert torch.equal(found.at_first_update().policy.logprob, found.rollouts.old_logprob)


def test_a_resumed_run_records_the_same_bytes(small, coin, tmp_path):
    once = train(small(tmp_path / "once", output=recording(1)), SilentView()).directory
    output = recording(1, checkpoint_every=2)
    with pytest.raises(RuntimeError, match="power cut"):
        train(small(tmp_path / "twice", output=output), Watch(crash=3))
    stale = tmp_path / "twice" / "rollouts" / "step-000003.jsonl"
    assert stale.is_file()  # one more than the checkpoint knows
    stale.with_name("step-000009.jsonl").write_text("of another life\n")
    twice = resume(tmp_path / "twice", SilentView()).directory
    assert sorted(files(once)) == [f"step-00000{i}.jsonl" for i in (1, 2, 3, 4)]
    assert files(once) == files(twice)


def test_recording_may_begin_with_a_resume(small, coin, tmp_path):
    train(small(tmp_path / "run", train={"steps": 2}), SilentView())
    run = resume(tmp_path / "run", SilentView(), small(tmp_path / "run", output=recording(1))).directory
    assert sorted(files(run)) == ["step-000003.jsonl", "step-000004.jsonl"]


def test_recording_changes_no_step(small, coin, tmp_path):
    runs = [train(small(tmp_path / f"r{every}", output=recording(every)), SilentView()).directory for every in (0, 1)]
    one, two = ((run / "model" / "model.safetensors").read_bytes() for run in runs)
    assert one == two and not (runs[0] / "rollouts").exists()
