"""The audit of rewarded responses: each finding on small written responses, the hosts' columns, and the page."""

import json

import pytest

from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.cli.main import main
from tokenpo.lab.audit import audit, form, read_lines

pytest.importorskip("math_verify")

LINES = [
    {"prompt": "What is 6+4?", "completion": "6 + 4", "reference": "10", "correct": True},
    {"prompt": "What is 7+4?", "completion": "7 + 4", "reference": "11", "correct": True},
    {"prompt": "What is 8+4?", "completion": "12", "reference": "12", "correct": True},
    {"prompt": "What is 8+5?", "completion": "12", "reference": "13", "correct": True},
    {"prompt": "What is 8+6?", "completion": "12", "reference": "14", "correct": True},
    {"prompt": "What is 8+7?", "completion": "The answer is 15.", "reference": "15", "correct": False},
    {"prompt": "What is 8+8?\n<think>", "completion": r"Maybe \boxed{16}?", "reference": "16", "correct": True},
    {"prompt": "What is 8+9?", "completion": r"\boxed{16}, no: \boxed{17}", "reference": "17", "correct": True},
    {"prompt": "What is 9+9?", "completion": r"\boxed{18} and", "reference": "18", "correct": True, "finished": False},
    {"prompt": "What is 9+1?", "completion": "11", "reference": "10", "correct": False},
    {"prompt": "Say it.", "completion": "it", "correct": True},
]


def written(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def test_each_finding_has_its_lines_and_the_echo_is_first(tmp_path):
    lines = read_lines(written(tmp_path / "a.jsonl", LINES))
    result = audit(lines)
    found = {one.name: [lines.index(line) for line, _ in one.lines] for one in result.findings}
    assert found == {
        "echo": [0, 1],
        "wrong": [3, 4, 6],
        "constant": [2, 3, 4],
        "cut off": [6, 8],
        "boxes": [7],
        "missed": [5],
    }
    assert result.findings[0].name == "echo"
    assert {(True, "N", 3), (True, "N + N", 2), (False, "N", 1)} <= set(result.forms) and len(result.notes) == 1
    assert result.forms[0][2] == max(count for _, _, count in result.forms)
    right = [{"prompt": "What is 6+4?", "completion": "10", "reference": "10", "reward": 1.0}]
    assert audit(read_lines(written(tmp_path / "b.jsonl", right))).findings == []


def test_a_format_that_math_never_reads_is_not_wrong(tmp_path):
    """The quickstart's answers: all right, and none in a form that `math` knows."""
    form = {"prompt": "9-5+2+6=", "completion": "9-5+2+6=4;4#2", "reference": "2", "correct": True}
    result = audit(read_lines(written(tmp_path / "a.jsonl", [form] * 3)))
    assert result.findings == [] and len(result.notes) == 1
    read = {"prompt": "6+4?", "completion": "9", "reference": "10", "correct": True}
    (finding,) = audit(read_lines(written(tmp_path / "b.jsonl", [form, read]))).findings
    assert finding.name == "wrong" and len(finding.lines) == 2


@pytest.mark.parametrize(
    "line",
    [
        {"input": "6+4?", "output": "10", "gts": "10", "score": 1.0},  # verl's rollout_data_dir
        {"prompt": [{"role": "user", "content": "6+4?"}], "completion": [{"content": "10"}], "solution": "10",
         "accuracy_reward": 1.0},  # TRL's log_completions
        {"step": 1, "group": 0, "prompt": "6+4?", "tokens": ["1", "0"], "reward": 1.0, "answer": "10"},
    ],
)  # fmt: skip
def test_the_columns_of_each_host(tmp_path, line):
    (tmp_path / "rollouts").mkdir()
    written(tmp_path / "rollouts" / "step-000001.jsonl", [line, line | {"correct": False}])
    first, second = read_lines(tmp_path)
    assert (first.prompt, first.completion, first.reference, first.rewarded) == ("6+4?", "10", "10", True)
    assert not second.rewarded


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(TokenPOError, match="has no responses"):
        read_lines(tmp_path)
    with pytest.raises(MissingInput, match=r"a.jsonl line 1: no column .*columns: prompt, said"):
        read_lines(written(tmp_path / "a.jsonl", [{"prompt": "?", "said": "10"}]))
    with pytest.raises(MissingInput, match="reward"):
        read_lines(written(tmp_path / "a.jsonl", [{"prompt": "?", "completion": "10"}]))


def test_the_page_and_the_json(tmp_path, capsys):
    hostile = {"prompt": "6+4?\x1b[2J", "completion": "\x07\x1b]0;x\n6 + 4 = 9", "reference": "10", "correct": True}
    path = written(tmp_path / "a.jsonl", [*LINES, hostile])
    assert main(["audit", str(path), "--show", "9"]) == 0
    said = capsys.readouterr().out
    assert "12 responses, 10 rewarded." in said and "␛" in said and "\x1b" not in said and "\x07" not in said
    assert said.index("echo (") < said.index("wrong (") < said.index("missed (") < said.index("N + N")
    assert main(["audit", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["responses"] == 12 and len(result["findings"][0]["responses"]) == 2


def test_forms():
    assert form("First, 3.\nThe sum is 12 + 30 = 42.") == "w N + N = N."
    assert form(r"so \boxed{\frac{4,000}{3}} it is") == r"\boxed{\frac{N}{N}}"
    assert form("") == ""
