"""Data-set files: the two layouts, the order of rows, the test split, and every way to get a file wrong."""

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.train.tasks import make_task
from tokenpo.train.tasks.files import read_rows
from tokenpo.train.tasks.types import Score, Task

TRL = [{"prompt": f"{i}+1=", "answer": i + 1, "level": i % 3} for i in range(20)]
VERL = [
    {"prompt": [{"role": "user", "content": f"{i}+1="}], "reward_model": {"style": "rule", "ground_truth": str(i + 1)}}
    for i in range(20)
]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", "utf-8")
    return str(path)


def made(path: str, seed: int = 0, **options: Any) -> Task:
    return make_task("files", {"path": path} | options, seed)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("rows", [TRL, VERL], ids=["trl", "verl"])
def test_both_layouts_in_both_formats(tmp_path: Path, suffix: str, rows: list[dict[str, Any]]) -> None:
    task = made(written(tmp_path / f"data{suffix}", rows))
    problems = task.problems("train", 0, 18) + task.problems("test", 0, 2)
    assert sorted(str(p.prompt) for p in problems) == sorted(str(row["prompt"]) for row in rows)
    assert all(p.columns in rows for p in problems)
    right = task.score(problems, [rf"\boxed{{{p.answer}}}" for p in problems], [[]] * 20)
    assert right == [Score(1.0, True)] * 20
    assert task.score(problems[:1], [r"\boxed{0}"], [[]]) == [Score(0.0, False)]


def test_json_columns_of_parquet_are_what_they_say(tmp_path: Path) -> None:
    """`datasets` 5 keeps messages and tables with unequal keys in Arrow's JSON type."""
    chats = [[{"role": "user", "content": "a", "name": "x"}], [{"role": "user", "content": "b"}]]
    messages = pyarrow.array([json.dumps(message) for chat in chats for message in chat], pyarrow.json_())
    columns = {
        "prompt": pyarrow.ListArray.from_arrays([0, 1, 2], messages),
        "extra_info": pyarrow.array(['{"a": 1}', None], pyarrow.json_()),
        "answer": pyarrow.array(['{"b": [1]}', "7"]),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "d.parquet")
    (_, first), (_, second) = read_rows(tmp_path / "d.parquet")
    assert first == {"prompt": chats[0], "extra_info": {"a": 1}, "answer": '{"b": [1]}'}
    assert second == {"prompt": chats[1], "extra_info": None, "answer": "7"}


def test_the_order_is_seeded_endless_reshuffled_and_of_random_access(tmp_path: Path) -> None:
    path = written(tmp_path / "data.jsonl", TRL)
    order = [p.prompt for p in made(path).problems("train", 0, 54)]
    epochs = [order[:18], order[18:36], order[36:]]
    assert all(sorted(epoch) == sorted(epochs[0]) and len(set(epoch)) == 18 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    late = made(path)
    for start in (40, 3, 17, 36):
        assert [p.prompt for p in late.problems("train", start, 5)] == order[start : start + 5]
    assert [p.prompt for p in made(path, seed=1).problems("train", 0, 18)] != epochs[0]


def test_the_held_out_prompts_depend_on_neither_seed_nor_row_order(tmp_path: Path) -> None:
    def held_out(rows: list[dict[str, Any]], seed: int) -> set[str]:
        task = made(written(tmp_path / "data.jsonl", rows), seed, holdout=0.25)
        test = {str(p.prompt) for p in task.problems("test", 0, task.test_size)}
        assert not test & {str(p.prompt) for p in task.problems("train", 0, 40)}
        return test

    twice = TRL[::-1] + TRL[3:9]
    assert held_out(TRL, 0) == held_out(twice, 7) and len(held_out(TRL, 0)) == 5
    task = made(str(tmp_path / "data.jsonl"))
    assert task.test_size == 2, "a tenth"
    with pytest.raises(TokenPOError, match=r"^task 'files' has 2 held-out problems, not the 3 asked for: ask for fewe"):
        task.problems("test", 1, 2)


def test_a_test_file_and_a_warning_where_it_overlaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, rows in (("a.jsonl", TRL[:15]), ("b.parquet", TRL[15:]), ("c.jsonl", TRL[:3])):
        written(tmp_path / name, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = made("~/a.jsonl", test_path="~/b.parquet")
    assert [p.prompt for p in task.problems("test", 0, 5)] == [f"{i}+1=" for i in (15, 16, 17, 18, 19)]
    assert [p.prompt for p in task.problems("test", 3, 2)] == ["18+1=", "19+1="]
    with pytest.warns(UserWarning, match="3 of the 3 prompts"):
        made("~/a.jsonl", test_path="~/c.jsonl")


def test_a_system_message_begins_a_chat_that_has_none(tmp_path: Path) -> None:
    asked, own = {"role": "user", "content": "1+1="}, {"role": "system", "content": "Own."}
    path = written(tmp_path / "a.jsonl", [{"prompt": p, "answer": "2"} for p in ("1+1=", [asked], [own, asked])])
    brief = {"role": "system", "content": "Brief."}
    task = made(path, chat=True, system="Brief.")
    prompts = [p.prompt for p in (*task.train, *task.test)]
    assert sorted(prompts, key=repr) == sorted([[brief, asked], [brief, asked], [own, asked]], key=repr)
    with pytest.raises(TokenPOError, match="line 1: 'prompt' is plain text, which has no system message: set chat"):
        made(path, system="Brief.")


def test_own_columns_chat_and_a_reward_function_without_answers(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "target": ["a", "b"], "level": i} for i in range(4)]
    path = written(tmp_path / "data.parquet", rows)
    task = made(path, prompt_key="question", answer_key="target", chat=True)
    (problem,) = task.problems("train", 0, 1)
    assert problem.prompt == [{"role": "user", "content": problem.columns["question"]}]
    assert task.score([problem], ["#### B"], [[]])[0].correct

    (tmp_path / "score.py").write_text("def score(completions, level): return [l / 4 for l in level]")
    task = made(path, prompt_key="question", verifier=f"{tmp_path}/score.py:score", correct_at=0.5)
    problems = task.problems("train", 0, 3)
    expected = [Score(p.columns["level"] / 4, p.columns["level"] >= 2) for p in problems]
    assert task.score(problems, ["x"] * 3, [[]] * 3) == expected and problems[0].answer is None
    task.close()


GOOD = b'{"prompt": "p", "answer": "a"}\n'


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.jsonl", GOOD + b'{"prompt": ', r"d.jsonl line 2: not a JSON object in UTF-8 .*write one a line"),
        ("d.jsonl", GOOD + b'{"promt": "p"}', r"line 2: no column 'prompt' .*did you mean 'promt'.*prompt_key"),
        ("d.jsonl", b'{"prompt": "p", "gold": 1}', r"no column 'answer' \(columns: prompt, gold\): .*answer_key"),
        ("d.jsonl", GOOD + b'{"prompt": 3, "answer": "a"}', "line 2: 'prompt' is 3: give text"),
        ("d.jsonl", b'{"prompt": [{"role": "user"}], "answer": "a"}', "holds the message {'role': 'user'}"),
        ("d.jsonl", b'{"prompt": "p", "answer": null}', "'answer' is None: give text, a number, or a list"),
        ("d.jsonl", b'{"prompt": "p", "answer": NaN}', "'answer' is nan"),
        ("d.jsonl", b'{"prompt": "p", "reward_model": "x"}', "'reward_model.ground_truth' is None: give"),
        ("d.json", GOOD, r"can't read files called \*.json \(one JSON object a line is .jsonl\); known: .jsonl, .parq"),
        ("d.parquet", GOOD, "not a readable parquet file"),
    ],
)
def test_errors_name_file_line_key_and_remedy(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenPOError, match=words) as caught:
        made(str(tmp_path / name))
    assert name in str(caught.value)
    assert isinstance(caught.value, MissingInput) == ("no column" in words)


def test_missing_files_and_contradictory_options(tmp_path: Path) -> None:
    path = written(tmp_path / "train.jsonl", TRL)
    assert made(path, holdout="none").problems("test", 0, 2) == made(path).problems("test", 0, 2)
    shares = [(path, {"holdout": share}, "holdout .*number") for share in (0.0, 1.0, True, "0.1")]
    for place, options, words in (
        (str(tmp_path / "trian.jsonl"), {}, "No such file"),
        (str(tmp_path / "nowhere" / "train.jsonl"), {}, "No such file"),
        (path, {"test_path": path, "holdout": 0.1}, "not both"),
        (path, {"verifier_seconds": "none"}, "verifier_seconds = 'none' must be a number"),
        *shares,
    ):
        with pytest.raises(TokenPOError, match=words):
            made(place, **options)
