"""The numbers for a terminal: one column per k, the interval below each value."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from ...base.console import Console
from .estimators import METRICS
from .summary import Number, Summary

_NOTES = 5  # kinds of notes that are shown, the most frequent ones


def show(summary: Summary, title: str, console: Console) -> None:
    """Prints the table, and below it what a reader of it should know."""
    console.print(Text(f"{title}: {summary.prompts} prompts, {summary.samples} samples, {summary.correct} right"))
    console.print(_table(summary), soft_wrap=True)
    console.print(Text("Below each value its 95 % interval over prompts: w Wilson, b bootstrap."), soft_wrap=True)
    for sentence in (*_reward(summary.reward), *_facts(summary), *summary.sentences):
        console.print(Text(sentence), soft_wrap=True)


def _table(summary: Summary) -> Table:
    ks = list(dict.fromkeys(number.k for number in summary.numbers))
    cells = {(number.metric, number.k): _cell(number) for number in summary.numbers}
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for k in ks:
        table.add_column(f"k = {k}", justify="right", no_wrap=True)
    for metric in METRICS:
        table.add_row(Text(metric), *(cells[metric, k] for k in ks))
    return table


def _cell(number: Number) -> Text:
    if math.isnan(number.value):
        return Text("NaN\n")
    return Text.assemble(
        (f"{number.value:.3f}\n", "bold"), (f"{number.low:.3f} to {number.high:.3f} {number.kind[:1]}", "dim")
    )


def _reward(number: Number | None) -> list[str]:
    if number is None:
        return []
    ends = f", {number.low:.3f} to {number.high:.3f} {number.kind[:1]}" if number.kind else ""
    return [f"Mean reward of a sample: {number.value:.3f}{ends}."]


def _facts(summary: Summary) -> list[str]:
    facts = []
    if summary.length is not None:
        facts.append(f"mean length {summary.length:.1f} tokens")
    if summary.cut is not None:
        facts.append(f"{summary.cut:.1%} cut at the length limit")
    often = sorted(summary.notes.items(), key=lambda item: -item[1])[:_NOTES]
    facts += [f"{count / summary.samples:.1%} {_plain(note)}" for note, count in often]
    return [f"Samples: {', '.join(facts)}."] if facts else []


def _plain(note: str) -> str:
    """A note of anybody's file: short, and nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in note)[:40]
