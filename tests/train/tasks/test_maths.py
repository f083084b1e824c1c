"""The verifier `math`: labelled pairs, references that cannot be read, and the steps that answers are read by."""

import re
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verifier_pairs as pairs
from tokenpo.base.errors import TokenPOError
from tokenpo.train.tasks.types import Problem
from tokenpo.train.tasks.verify import Verifier, checked


def test_the_counts_of_trust_are_those_of_the_pairs() -> None:
    """The whole table of docs/trust.md, class by class: one verdict that changes turns this red."""
    page = (Path(__file__).parents[3] / "docs" / "trust.md").read_text("utf-8").splitlines()
    tables = {name: pairs.read(name) for name in pairs.SETS}
    tuned, held_out = ({(pair.reference, pair.text) for pair in table} for table in tables.values())
    assert len(tuned & held_out) < 0.1 * len(held_out)  # some answers anybody would write
    scores = pairs.judge([pair for table in tables.values() for pair in table])
    for (name, table), least in zip(tables.items(), (500, 150), strict=True):
        assert len(table) >= least and len(set(table)) == len(table)
        assert {pair.kind for pair in table} == {"gsm8k", "math", "aime", "adversarial"}
        written = [line for line in page if line.startswith(f"| {name} |")]
        assert pairs.confusion(name, table, scores[: len(table)]) == written
        scores = scores[len(table) :]


def test_every_kind_of_error_is_judged_as_labelled(math: Verifier) -> None:
    """Each kind was an error: of this verifier, as a real model's text showed, or of others (docs/verifiers.md)."""
    table = pairs.read("kinds")
    assert len(table) >= 400 and len(set(table)) == len(table)
    for pair, score in zip(table, pairs.judge(table), strict=True):
        assert score.correct == pair.right, (pair, score)
    echoes = [pair for pair in table if pair.kind == "echo"]
    chats = [Problem([{"role": "user", "content": pair.question}], pair.reference) for pair in echoes]
    scores = math(chats, [pair.text for pair in echoes], [[]] * len(echoes))
    assert [score.correct for score in scores] == [pair.right for pair in echoes]
    assert {score.note for score in scores} >= {"question repeated", ""}


def test_decimals_are_the_numbers_they_are() -> None:
    for pair, score in zip(table := pairs.read("decimals"), pairs.judge(table), strict=True):
        assert (score.correct, score.note) == (pair.right, ""), (pair, score)


def test_a_chat_template_that_opens_the_thinking(math: Verifier) -> None:
    chat = Problem([{"role": "user", "content": "1+3?"}], "4", rendered="<|assistant|>\n<think>\n")
    texts = [r"Maybe \boxed{4}? Let me check", r"So 4.</think>\boxed{4}", r"\boxed{4}</think> 5"]
    assert [score.correct for score in math([chat] * 3, texts, [[]] * 3)] == [False, True, False]


def test_every_step_of_the_spelling_is_one_that_a_pair_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenpo.train.tasks.maths import spelling

    tables = (pairs.read(name) for name in (*pairs.SETS, "kinds"))
    texts = {text for table in tables for pair in table for text in (pair.reference, pair.text)}
    texts |= {re.sub(r"^\\boxed\{(.*)\}$", r"\1", text) for text in texts}
    steps = spelling.STEPS
    before = {text: spelling.spelled(text) for text in texts}
    for number, step in enumerate(steps):
        monkeypatch.setattr(spelling, "STEPS", steps[:number] + steps[number + 1 :])
        assert any(spelling.spelled(text) != spelling_ for text, spelling_ in before.items()), step


SIGNS = r"\ { } ( ) [ ] $ , ; : = < > + - * / ^ _ . ! ? | & 0 1 2 9 x e i ° ½ ²"
WORDS = r"\frac \sqrt \pm \cup \in \text{ \{ \} \le \ne \ldots \approx \pmod \overline cm or and answer is"
BITS = [" ", "\n", *SIGNS.split(), *WORDS.split()]


@given(st.lists(st.sampled_from(BITS), max_size=14).map("".join))
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
def test_any_text_is_read(text: str) -> None:
    """To an answer or to none: an exception in the process would be a note that says nothing of the answer."""
    from tokenpo.train.tasks.maths.equal import unmarked
    from tokenpo.train.tasks.maths.reading import read

    for answer in (read(text), unmarked(text)):
        assert answer is None or isinstance(answer.is_maths, bool)


MONEY = {
    "USD 45": ["$45", "45 USD", "45 dollars", "US$45", r"\text{USD } 45.00", "usd45", "USD $45"],
    "EUR 45": ["€45", "45 €", "45€", "45 euros", "EUR 45.00"], "£45": ["GBP 45", "45 GBP", "45£"],
    "CHF 45": ["45 CHF"], "Rs. 45": ["INR 45", "₹45", "45 rupees", "Rs 45"], "¥45": ["JPY 45", "45 yen", "45¥"],
}  # fmt: skip


@pytest.mark.parametrize(("reference", "also"), MONEY.items())
def test_money_is_read_with_its_sign_or_code_on_either_side(reference: str, also: list[str]) -> None:
    from tokenpo.train.tasks.maths.equal import equal

    other = [text for text in (*MONEY, "45€") if text not in (reference, *also)]
    for right in (reference, "45", *also):
        assert equal([reference], right, True)[:2] == [True, ""], right
        assert equal([right], reference, True)[:2] == [True, ""], right
    for wrong in (*other, "46", "4.5", "4500", "USD 54", "USD 45.01", "45 cents", "-45", "USD x", "45 kg"):
        assert equal([reference], wrong, True)[0] is False, wrong

    for letters in (r"rs\sqrt{45}", r"CAD \cdot 45", "usd-45", r"Rs\pi"):
        for wrong in (r"\sqrt{45}", "45", "-45", r"\pi"):
            assert equal([letters], wrong, True)[0] is False, (letters, wrong)


@pytest.mark.parametrize(
    "reference", [r"\$36", r"\$18.90", r"\$32,\!348", "$36", r"32,\!348", "42%", "Monday", r"\text{(B)}"]
)
def test_references_of_data_sets_are_read(math: Verifier, reference: str) -> None:
    number = re.sub(r"[^\d.a-zA-Z]|text", "", reference)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(math, [Problem("?", reference)])
    [score] = math([Problem("?", reference)], [rf"\boxed{{{number}}}"], [[]])
    assert (score.correct, score.note) == (True, "")


UNREADABLE = [r"\frac{1}{", r"\$", r"x \odot 3", "She had seven apples, ate three of them and has four left"]


def test_unreadable_references_are_counted_before_a_run_with_the_first_three(math: Verifier) -> None:
    rows = [Problem("?", answer, place=f"d.jsonl line {n}") for n, answer in enumerate(["7", *UNREADABLE], start=1)]
    with pytest.warns(UserWarning, match="cannot read 4 of 5 references") as caught:
        assert checked(math, rows) == rows
    (warning,) = caught
    said = str(warning.message)
    assert [f"d.jsonl line {n}: " in said for n in range(1, 6)] == [False, True, True, True, False]
    with pytest.raises(TokenPOError, match=r"cannot read 4 of 4 references.*line 2: .*take the verifier 'exact'"):
        checked(math, rows[1:])


@pytest.mark.parametrize(
    ("texts", "same"),
    [
        ([r"\boxed{2,3}", r"\boxed{3, 2}", r"\boxed{x = 2 \text{ or } x = 3}"], True),
        ([r"\boxed{(1,2]}", r"\boxed{1 < x \le 2}"], True),
        ([r"\boxed{0.25}", r"\boxed{\frac14}", r"\boxed{1/4}"], True),
        ([r"\boxed{(2,3)}", r"\boxed{(3,2)}"], False),
        ([r"\boxed{101_2}", r"\boxed{101_3}"], False),
    ],
)
def test_a_majority_vote_counts_equal_answers_as_one(math: Verifier, texts: list[str], same: bool) -> None:
    answers = [score.answer for score in math([Problem("?", "7")] * len(texts), texts, [[]] * len(texts))]
    assert len(set(answers)) == (1 if same else len(texts))
