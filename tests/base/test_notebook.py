"""What a notebook shows of a value: its numbers, on response tokens alone, and no text that becomes markup."""

from __future__ import annotations

import re

import torch

import tokenpo
from page_tree import read_html
from tokenpo.base.notebook import table
from tokenpo.evidence.explain.explanation import explain_all
from tokenpo.recipe.command_line import parse_entries
from tokenpo.runs.rollouts import read
from written_rollouts import write


def rows(html: str) -> dict[str, list[str]]:
    """First cell -> the others."""
    found = (re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html))
    return {cells[0]: cells[1:] for cells in found if cells}


def test_rollouts_and_loss_are_described_without_their_padding() -> None:
    rollouts = tokenpo.Rollouts(
        mask=torch.tensor([[True, True], [True, False]]),
        reward=torch.tensor([1.0, 0.0]),
        group=torch.tensor([0, 0]),
        old_logprob=torch.tensor([[-1.0, -2.0], [-3.0, torch.nan]]),
    )
    assert "Rollouts: 2 responses in 1 groups, 3 tokens" in rollouts._repr_html_()
    assert rows(rollouts._repr_html_())["old_logprob"] == ["[2, 2]", "-2", "-3", "-1"]
    assert rows(rollouts._repr_html_())["reward"] == ["[2]", "0.5", "0", "1"]

    objective = tokenpo.method("grpo")
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(rollouts.old_logprob))
    loss = objective.loss(batch, tokenpo.Totals.of(rollouts))
    assert f"Loss {loss.value.item():.3g}, of 3 tokens" in loss._repr_html_()
    assert rows(loss._repr_html_())["ratio"] == ["[2, 2]", "1", "1", "1"]


def test_an_objective_shows_its_choices() -> None:
    html = tokenpo.method("hapo")._repr_html_()
    assert "<b>objective hapo</b>" in html
    assert rows(html)["needs"] == ["old_entropy"] and rows(html)["surrogate"][0].startswith("Clip(")


def test_an_explanation_shows_its_shares(tmp_path) -> None:
    result = explain_all(read(write(tmp_path / "r.jsonl")), parse_entries("grpo,dapo", "test"))
    html = result._repr_html_()
    assert {"grpo", "dapo", "1 grpo", "2 dapo"} <= rows(html).keys()


def test_no_text_is_markup() -> None:
    html = table("<img>", ["<b>"], [["<script>alert(1)</script>\x1b"]])
    assert {node.tag for node in read_html(html)} <= {"p", "b", "table", "tr", "th", "td"}
    assert "\\x1b" in html
