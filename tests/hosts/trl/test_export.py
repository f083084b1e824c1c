"""What TRL 1.16's own trainer makes of a generation batch, exported and read again."""

import numpy as np
import pytest
import torch

from foreign_support.trl_trainer import rollouts
from oracle_support import Sample, ragged, tensors
from tokenpo.base.errors import MissingInput
from tokenpo.hosts.trl.export import from_inputs
from tokenpo.records import read, step_file, write_lines

G = 4


class Words:
    """As much of a tokenizer as an export asks for."""

    def decode(self, ids, **how):
        return "".join(f"<{i}>" for i in ids)

    def convert_ids_to_tokens(self, i):
        return f"<{i}>"


def batch() -> Sample:
    """Five groups of four, in TRL's order, no rollout without tokens."""
    return ragged(0).alive().but(group=np.repeat(np.arange(5), G))


def generated(sample: Sample):
    """What `_generate_and_score_completions` returns: two iterations, so that TRL keeps the old log-probs."""
    made = rollouts(sample, num_generations=G, num_iterations=2)
    made = {name: torch.tensor(x) for name, x in made.items()}
    # The stand-in has one prompt for all and one token for all; a run has its own.
    made["prompt_ids"] = torch.tensor(sample.group)[:, None] + 7
    made["completion_ids"] = torch.arange(sample.mask.size).view(sample.mask.shape)
    return made


def exported(sample, tmp_path, made, **more):
    rewards = torch.tensor(sample.reward)
    found = from_inputs(made, rewards=rewards, tokenizer=Words(), step=3, temperature=0.9, **more)
    write_lines(step_file(tmp_path, 3), found)
    return read(tmp_path)


def test_trls_own_batch_comes_back_whole(tmp_path):
    sample = batch()
    field = tensors(sample, padding=0.0)
    made = generated(sample)
    assert {"old_per_token_logps", "completion_mask", "advantages"} <= made.keys()
    made["ref_per_token_logps"] = torch.tensor(sample.ref_logprob)
    made["sampling_per_token_logps"] = torch.tensor(sample.rollout_logprob)
    known = {"old_entropies": field["old_entropy"], "logprobs": field["logprob"], "entropies": field["entropy"]}
    found = exported(sample, tmp_path, made, **known)
    facts, now = found.rollouts, found.policy
    for seen, name in (
        (facts.old_logprob, "old_logprob"),
        (facts.ref_logprob, "ref_logprob"),
        (facts.reward, "reward"),
        (facts.rollout_logprob, "rollout_logprob"),
        (facts.old_entropy, "old_entropy"),
        (now.logprob, "logprob"),
        (now.entropy, "entropy"),
        (facts.mask, "mask"),
        (facts.group, "group"),
    ):
        assert torch.equal(seen, field[name]), name
    assert torch.equal(facts.token_ids[facts.mask], made["completion_ids"][facts.mask])
    assert found.responses[5].prompt == "<8>"
    assert found.responses[5].tokens[0] == f"<{5 * sample.mask.shape[1]}>"
    assert (found.step, found.moved, set(facts.temperature[facts.mask].tolist())) == (3, True, {0.9})


def test_a_tools_words_are_no_response_tokens(tmp_path):
    sample, made = batch(), generated(batch())
    made["tool_mask"] = torch.ones_like(made["completion_mask"])
    made["tool_mask"][:, 1] = 0
    found = exported(sample, tmp_path, made)
    lengths = torch.tensor([len(response.tokens) for response in found.responses])
    assert torch.equal(lengths, torch.tensor(sample.mask).sum(1) - torch.tensor(sample.mask)[:, 1].long())
    assert torch.equal(found.rollouts.old_logprob[:, 1][lengths > 1], made["old_per_token_logps"][:, 2][lengths > 1])


def test_without_old_log_probs_the_current_ones_are_asked_for(tmp_path):
    sample, made = batch(), generated(batch())
    old = made.pop("old_per_token_logps")
    with pytest.raises(MissingInput, match=r"no old_per_token_logps.*give from_inputs\(\.\.\., logprobs=\.\.\.\)"):
        exported(sample, tmp_path, made)
    found = exported(sample, tmp_path, made, logprobs=old)
    assert not found.moved
    assert torch.equal(found.rollouts.old_logprob, old * found.rollouts.mask)
