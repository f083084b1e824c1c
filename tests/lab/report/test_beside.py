"""Two runs in one page: one scale, the prompts that both have, and what one of them lacks."""

import json

import pytest

from page_tree import drawn, embedded, read_html
from run_views import lines
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.lab.report import write_report
from written_runs import write_lines


def configured(run, **changes):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | changes))
    return run


@pytest.fixture
def pair(make_run, traced):
    """grpo with advantages of ±1 at steps 1 and 2, hapo with ±4 at steps 2 and 3; step 2 shares the prompts b and c."""

    def line(step, prompt, size, **terms):
        found = traced("ab", step=step, group=ord(prompt), advantage=[-size, size], entropy=[0.5, 0.1], **terms)
        return found | {"prompt": prompt}

    one = [line(s, p, 1.0) for s in (1, 2) for p in "abc"]
    other = [line(s, p, 4.0, temperature=[1.0, 1.1]) for s in (2, 3) for p in "cbd"]
    return (
        configured(make_run(steps=3, trace=one, name="one"), method={"name": "grpo"}),
        configured(make_run(steps=3, trace=other, name="other"), seed=4),
    )


def page(pair):
    return read_html(write_report(pair[0], beside=pair[1]).read_text(encoding="utf-8"))


def test_one_scale_for_both_and_what_one_lacks(pair):
    """Largest advantage 4 over 4.5 steps of the scale: 0.889, rounded up to 1; the ends are ±4.5. ±1 lie one step out:
    between 0.5 and 1.5, ±4 at the ends."""
    tree = page(pair)
    texts = [span.text for span in tree.all("div", "legend")[0].one("ol").all("span")]
    assert texts == ["-4.5", "-3.5", "-2.5", "-1.5", "-0.5", "0.5", "1.5", "2.5", "3.5", "4.5"]
    levels = {(c.run, names[0]) for c in embedded(tree) for _, _, names in c.tokens}
    assert levels == {("grpo", "a3"), ("grpo", "a5"), ("hapo", "a0"), ("hapo", "a8")}
    heat = {(c.run, columns["temperature"]) for c in embedded(tree) for _, columns, _ in c.tokens}
    assert heat == {("grpo", "–"), ("hapo", "1"), ("hapo", "1.1")}
    lacks = [p.text for p in tree.all("p", "lacks")]
    assert lacks[0].startswith("Not in the trace of grpo: weight, ") and "temperature" in lacks[0]
    assert lacks[1].startswith("Not in the trace of hapo: weight, ") and "temperature" not in lacks[1]


def test_the_first_view_is_a_prompt_that_both_answered_if_there_is_one(pair):
    tree = page(pair)
    assert [(c.run, c.step, c.prompt) for c in drawn(tree)] == [("grpo", 2, "b"), ("hapo", 2, "b")]
    message = [p.text for p in tree.all("p", "lead")]
    assert "2 of the 6 prompts of grpo were traced in both runs at the same step." in message
    assert len(tree.all("select")) == 8
    traced = lines(pair[1], "trace.jsonl")
    write_lines(pair[1] / "trace.jsonl", [x | {"prompt": x["prompt"] + "!"} for x in traced])
    tree = page(pair)
    assert [(c.run, c.step, c.prompt) for c in drawn(tree)] == [("grpo", 1, "a"), ("hapo", 2, "c!")]
    assert any(p.text.startswith("0 of the 6 prompts") for p in tree.all("p", "lead"))


def test_head_and_place(pair, capsys):
    tree = page(pair)
    assert tree.one("h1").text == "grpo on dial_sum, beside hapo"
    facts = {div.one("dt").text: div.one("dd").text for div in tree.one("header").all("div") if len(div.all("dt")) == 1}
    assert facts["beside, tokens only"] == "hapo" and facts["settings that differ"] == "seed: 3 -> 4"
    assert main(["report", str(pair[0]), "--beside", str(pair[1])]) == 0
    assert capsys.readouterr().out == f"{pair[0] / 'beside-other.html'}\n"
    assert not (pair[0] / "report.html").exists()
    with pytest.raises(TokenPOError, match="nowhere is not a directory"):
        write_report(pair[0], beside=pair[0] / "nowhere")
    configured(pair[0], method={"name": "hapo"})
    assert {c.run for c in embedded(page(pair))} == {"hapo (one)", "hapo (other)"}


def test_a_run_is_found_where_its_engine_keeps_the_record(pair, tmp_path):
    """TRL keeps it below the directory of the run, which is what a person gives."""
    for run in pair:
        (tmp_path / "runs" / run.name).mkdir(parents=True)
        run.rename(tmp_path / "runs" / run.name / "tokenpo")
    one, other = (tmp_path / "runs" / run.name for run in pair)
    assert write_report(one) == one / "tokenpo" / "report.html"
    assert write_report(other, beside=one).name == "beside-one.html"
