"""verl 0.9.1's own batches, padded as of its V0 trainer and nested as of its V1 trainer, exported and read again."""

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.utils import tensordict_utils as tensordicts
from verl.workers.utils import padding

from oracle_support import ragged, tensors
from tokenpo.base.errors import MissingInput, NotFinite
from tokenpo.hosts.verl.export import from_batch
from tokenpo.records import read, step_file, write_lines


def fields(sample):
    """verl's names; the reward stands on the last token, as its reward manager puts it."""
    field = tensors(sample, padding=0.0)
    mask = field["mask"]
    scores = torch.zeros(mask.shape, dtype=torch.float64)
    scores[torch.arange(len(mask)), (mask.sum(1) - 1).clamp(min=0)] = field["reward"]
    return {
        "responses": torch.where(mask, field["token_ids"], 0),
        "response_mask": mask.long(),
        "old_log_probs": field["old_logprob"],
        "ref_log_prob": field["ref_logprob"],
        "rollout_log_probs": field["rollout_logprob"],
        "token_level_scores": scores * mask,
    }


def uids(sample):
    return [f"u{g}" for g in sample.group]


def padded(sample):
    return DataProto.from_dict(tensors=fields(sample), non_tensors={"uid": np.array(uids(sample), dtype=object)})


def nested(sample):
    """As V1 keeps them: jagged, one row as long as its response."""
    mask = torch.tensor(sample.mask)
    entropy = torch.tensor(sample.old_entropy)
    made = fields(sample) | {"entropy": entropy}
    made["rm_scores"] = made.pop("token_level_scores")
    shape = torch.nested.as_nested_tensor([row[row] for row in mask], layout=torch.jagged)
    rows = {name: padding.response_to_nested(x, shape) for name, x in made.items()}
    return tensordicts.get_tensordict({**rows, "uid": uids(sample)})


def exported(tmp_path, batch, **more):
    write_lines(step_file(tmp_path, 8), from_batch(batch, step=8, **more))
    return read(tmp_path)


def same(found, sample):
    field = tensors(sample, padding=0.0)
    for name in ("mask", "reward", "old_logprob", "ref_logprob", "rollout_logprob", "old_entropy"):
        assert torch.equal(getattr(found.rollouts, name), field[name]), name
    assert torch.equal(found.rollouts.token_ids[found.rollouts.mask], field["token_ids"][field["mask"]])
    assert [response.group for response in found.responses] == uids(sample)


def test_a_padded_or_nested_batch_comes_back_whole(tmp_path):
    """Without the row that has no response token, with which verl fills up a batch."""
    sample = ragged(0)
    entropy = torch.tensor(sample.old_entropy)
    found = exported(tmp_path, padded(sample), entropies=entropy, correct=[bool(r) for r in sample.reward])
    assert len(found.responses) == len(sample.reward) - 1
    same(found, sample.alive())
    assert found.correct == [bool(r) for r in sample.alive().reward]
    assert found.step == 8
    sample = ragged(1).alive()
    same(exported(tmp_path / "nested", nested(sample)), sample)


def test_the_version_is_that_of_the_weights_that_sampled(tmp_path):
    """As of verl's asynchronous trainers; unknown for a response that two weights sampled."""
    sample = ragged(0).alive()
    batch, rows = padded(sample), len(sample.reward)
    steps = np.array([3 + i % 2 for i in range(rows)], dtype=object)
    batch.non_tensor_batch |= {"min_global_steps": steps, "max_global_steps": steps}
    found = exported(tmp_path, batch).rollouts
    assert found.version.tolist() == (torch.tensor(steps.astype(int))[:, None] * found.mask).tolist()
    batch.non_tensor_batch["max_global_steps"] = np.array([*steps[:-1], 9], dtype=object)
    assert exported(tmp_path / "two", batch).rollouts.version is None
    assert exported(tmp_path / "none", padded(sample)).rollouts.version is None


def test_what_is_not_there_is_named():
    sample = ragged(0)
    for name in ("old_log_probs", "response_mask", "uid"):
        batch = padded(sample)
        owner = batch.non_tensor_batch if name == "uid" else batch.batch
        del owner[name]
        with pytest.raises(MissingInput, match=f"verl's batch holds no '{name}'"):
            from_batch(batch)
    batch = padded(sample)
    del batch.batch["token_level_scores"]
    with pytest.raises(MissingInput, match=r"holds no rewards \(token_level_scores, rm_scores, token_level_rewards\)"):
        from_batch(batch)


def test_a_wrong_number_is_named_by_its_row_in_verls_batch():
    """Not by its place among the rows that have a response."""
    sample = ragged(0)
    dead = int(np.flatnonzero(~sample.mask.any(1))[0])
    row = int(np.flatnonzero(sample.mask.any(1) & (np.arange(len(sample.mask)) > dead))[0])
    batch = padded(sample)
    batch.batch["old_log_probs"][row, int(sample.mask[row].argmax())] = torch.inf
    with pytest.raises(NotFinite, match=rf"old_logprob\[{row}, "):
        from_batch(batch)
