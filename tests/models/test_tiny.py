"""The shipped tiny model: its directory, its tokenizer, its accuracy, and that the command re-makes it."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_model import Example, WarmUp, _pack, config, fresh, main, orthogonal, tokenizer, warm_up
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenpo.models import LanguageModel, Sampling, load, sample
from tokenpo.models.directory import ASSETS
from tokenpo.tasks.dial_sum import DialSum, evaluate

DIALS = DialSum(operands=8)


@pytest.fixture(scope="module")
def shipped() -> LanguageModel:
    return load(ASSETS)


def accuracy(lm: LanguageModel, count: int, group: int, temperature: float, operands: int = 8) -> tuple[float, float]:
    """Share right, and mean response length, on held-out problems."""
    task = DialSum(operands=operands)
    problems = task.problems("test", 0, count)
    prompts = [lm.encode(problem.prompt) for problem in problems]
    samples = sample(lm, prompts, group, Sampling(max_new_tokens=6 * operands, temperature=temperature, seed=0))
    lengths = samples.mask.sum(1)
    texts = [lm.decode(ids[:n].tolist()) for ids, n in zip(samples.token_ids, lengths, strict=True)]
    repeated = [problems[i] for i in samples.prompt.tolist()]
    scores = task.score(repeated, texts, [[]] * len(texts))
    return sum(score.correct for score in scores) / len(scores), lengths.float().mean().item()


@pytest.mark.parametrize(
    "text", ["3-9+6*6-1*8*8-9=", "", " two  spaces ", "line\nline\n\n", "\t\r\n", "naïve 数 🙂", "\x00"]
)
def test_tokenizer_gives_back_the_exact_text(text):
    for encoder in (tokenizer(), AutoTokenizer.from_pretrained(ASSETS)):
        ids = encoder(text)["input_ids"]
        assert len(ids) == len(text.encode())
        assert all(i > 2 for i in ids), "no special token is added"
        assert encoder.decode(ids) == text


def test_tokenizer_has_its_special_tokens_and_a_chat_template():
    encoder, made = AutoTokenizer.from_pretrained(ASSETS), tokenizer()
    assert encoder.backend_tokenizer.to_str() == made.backend_tokenizer.to_str()
    assert encoder.chat_template == made.chat_template
    assert (encoder.pad_token_id, encoder.bos_token_id, encoder.eos_token_id) == (0, 1, 2)
    assert len(encoder) == config().vocab_size
    assert encoder.decode([2, *encoder("7")["input_ids"], 0], skip_special_tokens=True) == "7"
    chat = [{"role": "user", "content": "1+"}, {"role": "user", "content": "2="}]
    assert encoder.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == "1+2="


def test_directory_is_ordinary_and_small():
    model = AutoModelForCausalLM.from_pretrained(ASSETS)
    assert [p.shape for p in model.parameters()] == [p.shape for p in fresh().parameters()]
    assert sum(file.stat().st_size for file in ASSETS.iterdir()) < 2_500_000
    assert {file.suffix for file in ASSETS.iterdir()} <= {".json", ".safetensors", ".jinja"}


def test_fresh_weights_depend_on_the_seed_alone():
    before = torch.random.get_rng_state()
    first = fresh(3).state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(1)
    second = fresh(3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], fresh(4).state_dict()["lm_head.weight"])


def test_warm_up_learns_what_follows_the_prompt_and_repeats_itself():
    def examples(step: int) -> list[Example]:
        return [("ab", "c"), ("abab", "d")]

    losses: list[float] = []
    first, second = fresh(0), fresh(0)
    warm_up(first, examples, WarmUp(steps=40, rise=5), lambda _, loss: losses.append(loss))
    warm_up(second, examples, WarmUp(steps=40, rise=5))
    assert losses[-1] < 0.05 < losses[0]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    encoder = tokenizer()
    for prompt, completion in examples(0):
        ids = torch.tensor([encoder(prompt)["input_ids"]])
        out = first.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
        assert out[0, ids.shape[1] :].tolist() == [*encoder(completion)["input_ids"], encoder.eos_token_id]


def test_prompt_tokens_bear_no_loss():
    ids, target = _pack(tokenizer(), [("ab", "c"), ("a", "bcd")])
    a, b, c, d = tokenizer()("abcd")["input_ids"]
    assert ids.tolist() == [[a, b, c, 0], [a, b, c, d]]
    assert target.tolist() == [[-1, c, 2, -1], [b, c, d, 2]]


def test_newton_schulz_keeps_directions_and_evens_out_singular_values():
    generator = torch.Generator().manual_seed(0)
    for rows, columns in ((6, 6), (4, 9), (9, 4)):
        matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        inner = u.T @ orthogonal(matrix) @ v.T
        values = inner.diagonal()
        torch.testing.assert_close(inner, values.diag(), rtol=0, atol=1e-9)
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_shipped_model_is_right_about_as_often_as_stated(shipped):
    greedy, short = accuracy(shipped, 200, 1, 0.0)
    sampled, longer = accuracy(shipped, 50, 8, 1.0)
    assert 0.15 < greedy < 0.32
    assert 0.22 < sampled < 0.42
    assert short < 22 < 26 < longer < 31, "greedily it leaps all the way; sampled, it steps now and then"


def test_shipped_model_is_uncertain_where_it_decides_to_step_or_leap(shipped):
    problems = DIALS.problems("test", 0, 16)
    prompts = [shipped.encode(problem.prompt) for problem in problems]
    samples = sample(shipped, prompts, 8, Sampling(max_new_tokens=48, seed=0))
    decisions, others = [], []
    for ids, mask, entropy in zip(samples.token_ids, samples.mask, samples.entropy, strict=True):
        text = shipped.decode(ids[mask].tolist())
        for position, character in enumerate(text):
            # After the second operand of a step and later: "=" (a step) or the next operator (a leap).
            after_operand = position >= 3 and text[position - 1].isalnum() and character in "+-*="
            decided = after_operand and text[position - 2] in "+-*"
            (decisions if decided else others).append(entropy[position].item())
    mean = torch.tensor(decisions).mean().item()
    assert mean == pytest.approx(-0.6 * math.log(0.6) - 0.4 * math.log(0.4), abs=0.1)
    assert mean > 3 * torch.tensor(others).mean().item()


def test_small_steps_are_known_facts(shipped):
    """Every fact of the tables, as the second step of a problem whose first step leads to it."""
    prompts, answers = [], []
    for value in range(10):
        first = 2 if value == 1 else 1
        opening = f"{first}+{(value - first) % 10}"
        for rest in (f"{operator}{digit}" for operator in "+-*" for digit in range(1, 10)):
            prompts.append(shipped.encode(f"{opening}{rest}={opening}={value};{value}{rest}="))
            answers.append(str(evaluate(f"{opening}{rest}")))
    samples = sample(shipped, prompts, 1, Sampling(max_new_tokens=1, temperature=0.0))
    said = [shipped.decode(ids[:1].tolist()) for ids in samples.token_ids]
    assert sum(a == b for a, b in zip(said, answers, strict=True)) / 270 > 0.97


@pytest.mark.slow
def test_the_command_makes_what_is_shipped(tmp_path, shipped):
    """The same bytes where the arithmetic is the same; the same accuracy where it is not."""
    main([str(tmp_path / "tiny")])
    made = load(tmp_path / "tiny")
    for count, group, temperature in ((200, 1, 0.0), (50, 8, 1.0)):
        again, ours = (accuracy(lm, count, group, temperature)[0] for lm in (made, shipped))
        assert again == pytest.approx(ours, abs=0.1)
