"""safetensors: the same batch as the JSON Lines hold, and each mistake is one sentence."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from oracle_support import ragged
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.runs.rollouts import read
from written_rollouts import FOUR, lines_of, write, write_tensors

N, T = 2, 3


def plain(**fields):
    """What a user saves: two responses of three and of two tokens."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    tensors = {"mask": mask, "reward": torch.tensor([1.0, 0.0]), "group": torch.tensor([3, 3])}
    tensors |= {"old_logprob": torch.full((N, T), -1.0).masked_fill(~mask, torch.nan), **fields}
    return {name: x for name, x in tensors.items() if x is not None}


@pytest.mark.parametrize("lines", [FOUR, lines_of(ragged(1)), [line | {"step": 4} for line in FOUR]])
def test_both_formats_hold_the_same(tmp_path, lines):
    one = read(write(tmp_path / "r.jsonl", lines))
    two = read(write_tensors(tmp_path / "r.safetensors", one.responses))
    for owner in ("rollouts", "policy"):
        for name, x in vars(getattr(one, owner)).items():
            y = getattr(getattr(two, owner), name)
            assert (x is None) == (y is None), name
            assert x is None or torch.equal(x, y), name
    for a, b in zip(one.responses, two.responses, strict=True):
        assert (a.tokens, a.prompt, a.group, a.correct) == (b.tokens, b.prompt, b.group, b.correct)
    assert (one.moved, one.step, one.correct) == (two.moved, two.step, two.correct)


def test_ten_lines_of_a_user(tmp_path):
    path = tmp_path / "r.safetensors"
    texts = {"tokens": json.dumps([["a", "b", "c"], ["d", "e"]]), "prompt": json.dumps(["p", "p"]), "step": "12"}
    save_file(plain(correct=torch.tensor([1, 0], dtype=torch.uint8)), path, texts)
    found = read(path)
    assert [r.tokens for r in found.responses] == [("a", "b", "c"), ("d", "e")]
    assert found.rollouts.old_logprob.tolist() == [[-1, -1, -1], [-1, -1, 0]]
    assert (found.step, found.correct) == (12, [True, False])
    save_file(plain(token_ids=torch.arange(6).view(N, T), extra=torch.ones(1)), path)
    found = read(path)
    assert found.responses[1].tokens == ("[3]", "[4]")
    assert found.unread == ("extra",)
    save_file(plain(), path)
    assert read(path).responses[1].tokens == ("·", "·")


@pytest.mark.parametrize(
    ("fields", "texts", "message"),
    [
        ({"old_logprob": None, "logp": torch.ones(N, T)}, {}, r"no tensor 'old_logprob' \(tensors: group, logp, "),
        ({"old_logprob": torch.ones(N, 2)}, {}, r"'old_logprob' has shape \[2, 2\]: give \[N, T\] = \[2, 3\]"),
        ({"reward": torch.ones(N, 1)}, {}, r"'reward' has shape \[2, 1\]: give \[N\] = \[2\]"),
        ({"mask": torch.ones(4).bool()}, {}, r"'mask' has shape \[4\]: give \[N, T\]"),
        ({"old_logprob": torch.full((N, T), torch.nan)}, {}, r"row 0: 'old_logprob\[0\]' is nan: give a finite number"),
        ({"group": torch.ones(N)}, {}, r"row 0: 'group' is 1.0: give a whole number"),
        ({}, {"tokens": "[[]"}, "metadata 'tokens' is not JSON"),
        ({}, {"tokens": "[[]]"}, "metadata 'tokens' is no list of 2 values"),
        ({}, {"tokens": '[["a"], ["b"]]'}, "row 0: 'old_logprob' has 3 numbers for 1 tokens"),
        ({}, {"step": "soon"}, "row 0: 'step' is 'soon': give a whole number"),
        ({}, {"step": "9" * 5000}, r"metadata 'step' is '9{20}'\.\.\.: give a whole number of at most 18 digits"),
        ({}, {"prompt": "[" * 100_000}, "metadata 'prompt' is not JSON"),
        ({"correct": torch.tensor([1.0, torch.nan])}, {}, "row 1: 'correct' is nan: give 1, 0, or -1 where it was not"),
        ({"correct": torch.tensor([0.5, 1.0])}, {}, "row 0: 'correct' is 0.5: give 1, 0"),
        ({"correct": torch.tensor([1, 2])}, {}, "row 1: 'correct' is 2: give 1, 0"),
    ],
)
def test_a_mistake_is_named_with_tensor_and_remedy(tmp_path, fields, texts, message):
    path = tmp_path / "r.safetensors"
    save_file(plain(**fields), path, texts)
    with pytest.raises(TokenPOError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert isinstance(caught.value, MissingInput) == ("no tensor" in message)


def test_a_file_that_was_cut(tmp_path):
    path = tmp_path / "r.safetensors"
    save_file(plain(), path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TokenPOError, match=r"is not a whole safetensors file .*: write it again"):
        read(path)
