"""The script that measures phase one in verl's driver runs; its numbers are for a quiet machine."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from foreign_support import need

need("verl.workers.utils.padding", "verl is not installed: phase one was not measured")


def test_it_measures_what_the_driver_holds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """16 responses of 64 tokens: mask (8 bytes), score and log-prob (4 each) come in, two advantages go back."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    script = importlib.import_module("verl_driver")
    script.main(["--responses", "16", "--tokens", "64", "--method", "grpo", "--alone"])
    printed = capsys.readouterr().out
    assert printed.startswith("grpo") and "0.0 M tokens" in printed and "at most" in printed
    fields = script.batch(["response_mask", "rm_scores", "old_log_probs"], script.torch.tensor([3, 1]), None)
    assert {name: x.values().nbytes for name, x in fields.items() if name != "uid"} == {
        "response_mask": 32, "rm_scores": 16, "old_log_probs": 16,
    }  # fmt: skip
