"""`tokenpo explain` as a user calls it."""

import json
import math

import pytest

from run_views import lines
from tokenpo.cli.main import main
from tokenpo.lab.explain.page import REJECTED
from tokenpo.lab.page.tokens import scales
from written_rollouts import FOUR, write


@pytest.fixture
def explain(tmp_path, monkeypatch, capsys):
    """`explain(file, ...)` -> exit status, output, errors; relative paths are in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main(["explain", *map(str, arguments)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_table_page_and_numbers(explain, tmp_path):
    write(tmp_path / "mine.jsonl")
    status, out, err = explain("mine.jsonl", "--methods", "grpo,dapo,tau@hapo:tau=0", "--tokens")
    assert (status, err) == (0, "")
    assert out.startswith("grpo and dapo push most alike (cosine 0.943), dapo and tau least (0.721).\n")
    assert "4 responses in 2 groups, 6 tokens" in out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    # |push|/a: 0.75 0.75 1.5 and 0 0 0 (test_push): mean 0.5 a = 0.354; right 1.5 of 3; high entropy 0.6 and
    # 0.9: 1.5 of 3; silent 3 of 6.
    assert [cell.strip() for cell in rows["grpo"].split("│")[2:9]] == [
        "0.354", "50 %", "50 %", "50 %", "50 %", "50 %", "50 %",
    ]  # fmt: skip
    # Vectors 0.75 0.75 −1.5 and 1 1 −1: 3 / √(3.375 · 3) = 0.943.
    assert "0.943" in out
    folder = tmp_path / "runs" / "explain-mine"
    assert out.splitlines()[-3:] == [
        f"{name}: runs/explain-mine/{file}"
        for name, file in (("page", "explain.html"), ("numbers", "explain.json"), ("tokens", "tokens.jsonl"))
    ]
    assert sorted(file.name for file in folder.iterdir()) == ["explain.html", "explain.json", "tokens.jsonl"]
    record = json.loads((folder / "explain.json").read_text())
    assert [m["label"] for m in record["methods"]] == ["grpo", "dapo", "tau"]
    assert record["methods"][2]["options"] == {"tau": 0}
    assert record["methods"][0]["cosines"]["dapo"] == pytest.approx(3 / (3.375 * 3) ** 0.5, rel=1e-12)
    assert record["share_of_tokens"] == pytest.approx({"right": 5 / 6, "wrong": 1 / 6, "high": 2 / 6, "low": 4 / 6})
    tokens = lines(folder, "tokens.jsonl")
    a = 0.5 / (0.5**0.5 + 1e-6)
    result = tokens[1]["methods"]["grpo"]
    # To the last digit but one: a processor's square root of a half may end in 5 or in 6.
    assert result.pop("advantage") == pytest.approx([-a], rel=1e-14)
    assert result.pop("push") == pytest.approx([-1.5 * a], rel=1e-14)
    assert result == {"weight": [1], "clipped": [0]}
    assert [len(line["methods"]["tau"]["push"]) for line in tokens] == [2, 1, 2, 1]
    written = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert explain("mine.jsonl", "--methods", "grpo,dapo,tau@hapo:tau=0", "--tokens", "--out", "again")[0] == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()} == written


def test_what_a_correction_rejects_is_marked_and_noted(explain, tmp_path):
    """ρ = 6 on one token of the first response, 1.1 on all others: IcePop's 5 drops the token, a product of at most 2
    the response. GRPO's pushes on what is left are ρ times its own."""
    sampled = [
        [-0.1 - math.log(6), -0.2 - math.log(1.1)],
        *([x - math.log(1.1) for x in line["old_logprob"]] for line in FOUR[1:]),
    ]
    write(tmp_path / "mine.jsonl", [line | {"rollout_logprob": x} for line, x in zip(FOUR, sampled, strict=True)])
    status, out, _ = explain("mine.jsonl", "--methods", "grpo,dapo", "--correction", "icepop", "--tokens")
    assert status == 0
    note = "note: grpo: the correction for the policy that sampled rejects 16.7 % of the tokens: 0 of 4 responses whole"
    assert f"{note} and tokens of 1 more." in " ".join(out.split())
    # (log 6 + 5 log 1.1) / 6 = 0.378 and log 6 = 1.79
    assert "note: The policy that sampled is 0.378 nats a token from the old one, and 1.79 at most." in out
    tokens = lines(tmp_path / "runs/explain-mine", "tokens.jsonl")
    assert [line["methods"]["grpo"]["rejected"] for line in tokens] == [[1, 0], [0], [0, 0], [0]]
    assert [line["methods"]["grpo"]["weight"] for line in tokens] == [
        pytest.approx(row, rel=1e-12) for row in ([0, 1.1], [1.1], [1.1, 1.1], [1.1])
    ]
    page = (tmp_path / "runs/explain-mine/explain.html").read_text()
    assert "1 where the correction" in page
    # The dropped token, value 1, has a strong colour, and 0 the weakest.
    (scale,), *_ = scales([(REJECTED, [0, 0, 1])])
    shown = [f".{scale.level(x)}{{background:var(--s{shade})" for x, shade in ((0, 0), (1, 6))]
    assert all(rule in "".join(scale.rules(0)) for rule in shown)
    status, out, _ = explain("mine.jsonl", "--methods", "grpo", "--correction", "seq-mis")
    assert "33.3 % of the tokens: 1 of 4 responses whole." in " ".join(out.split())
    status, out, _ = explain("mine.jsonl", "--methods", "grpo", "--correction", "tis")
    assert (status, "rejects" in out) == (0, False)
    write(tmp_path / "same.jsonl", [line | {"rollout_logprob": line["old_logprob"]} for line in FOUR])
    status, out, _ = explain("same.jsonl", "--methods", "grpo", "--correction", "tis")
    assert "is the old one on every token: a correction has nothing to act on." in " ".join(out.split())


def test_the_first_update_of_a_policy_that_moved(explain, tmp_path):
    now = [
        line | {"logprob": line["old_logprob"], "old_logprob": [x - 0.5 for x in line["old_logprob"]]} for line in FOUR
    ]
    path = write(tmp_path / "mine.jsonl", now)
    _, later, _ = explain(path, "--methods", "grpo")
    status, first, _ = explain(path, "--methods", "grpo", "--first-update")
    # Ratios are e^½ = 1.65: of group a the right answer is clipped, the wrong one pushed by 1.65 · 1.5 a / 6 = 0.291.
    assert "│ grpo         │ 0.291 │" in later and "The policy has moved since it sampled" in later
    assert status == 0
    assert "│ grpo         │ 0.354 │" in first and "The policy is the one that sampled" in first


def test_a_method_without_its_input_is_refused_and_the_others_are_shown(explain, tmp_path):
    status, out, err = explain(write(tmp_path / "mine.jsonl"), "--methods", "grpo,archer", "--out", "here")
    assert status == 2
    assert "│ grpo" in out and "│ archer" not in out
    assert err.startswith("tokenpo: archer needs what ") and "write 'ref_logprob'" in err
    record = json.loads((tmp_path / "here" / "explain.json").read_text())
    assert [m["label"] for m in record["methods"]] == ["grpo"]
    assert record["refused"][0]["label"] == "archer"
    assert "archer needs what" in (tmp_path / "here" / "explain.html").read_text()


def test_a_run_with_several_steps(explain, tmp_path):
    folder = tmp_path / "run" / "rollouts"
    folder.mkdir(parents=True)
    for step in (2, 10):
        write(folder / f"step-{step:06d}.jsonl", [line | {"step": step} for line in FOUR])
    assert "step 10: 4 responses" in explain("run", "--methods", "grpo")[1]
    assert (tmp_path / "runs" / "explain-run-step10" / "explain.html").is_file()
    assert "step 2: 4 responses" in explain("run", "--methods", "grpo", "--step", 2)[1]
    folder.parent.rename("v1.5b")  # a dot in the name of a run begins no suffix
    assert "page: runs/explain-v1.5b-step2/explain.html" in explain("v1.5b", "--methods", "grpo", "--step", 2)[1]
