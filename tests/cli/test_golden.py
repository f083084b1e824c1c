"""Golden values: of every method, plain JSON, the same bytes again, and read with NumPy alone as the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import tokenpo
from tokenpo.cli.main import main
from tokenpo.lab.golden import MEANINGS, golden

PAGE = Path(__file__).parents[2] / "docs" / "golden.md"


@pytest.mark.parametrize("name", tokenpo.methods.METHODS)
def test_the_stages_of_every_method_add_up_and_read_back(name):
    """The value is the sum of its terms, and a step against the written gradient lowers it as much as that says."""
    objective = tokenpo.method(name)
    values = golden(name, objective)
    assert json.loads(json.dumps(values, allow_nan=False)) == values == golden(name, objective)
    assert len(json.dumps(values)) < 40_000
    stages = {key: torch.tensor([x for row in values["derivation"][key] for x in row if x is not None]).double()
              for key in ("loss", "coefficient")}  # fmt: skip
    assert (stages["loss"] * stages["coefficient"]).sum().item() == pytest.approx(values["value"], rel=1e-5)
    assert set(values["derivation"]) - {"signals"} <= set(MEANINGS)
    assert objective.needs <= {*values["inputs"]["rollouts"], *values["inputs"]["policy"]}
    assert ("entropy" in values["gradient"]) == objective.entropy_gradient


def test_the_gradient_is_that_of_the_value():
    values = golden("grpo", tokenpo.method("grpo"))
    flat = [x for row in values["gradient"]["logprob"] for x in row if x is not None]
    rows = zip(*(values["derivation"][k] for k in ("advantage", "ratio", "clipped", "coefficient")), strict=True)
    by_hand = [
        -(0.0 if clipped else a * r * c) for row in rows for a, r, clipped, c in zip(*row, strict=True) if a is not None
    ]
    assert flat == pytest.approx(by_hand, rel=1e-12)


def test_the_page_reads_a_file_without_tokenpo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["golden", "grpo", "--out", "grpo.json"]) == 0
    (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    capsys.readouterr()
    assert "tokenpo" not in code
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), {})
    assert capsys.readouterr().out == shown


def test_options_and_mistakes(tmp_path, capsys):
    assert main(["golden", "grpo:high=0.3", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert (
        json.loads(text)["method"] == "grpo:high=0.3" and "high=0.3" in text and max(map(len, text.splitlines())) < 2000
    )
    assert main(["golden", "grpo,dapo"]) == 2 and "names 2 methods" in capsys.readouterr().err
    assert main(["golden", "grpo", "--out", str(tmp_path / "no" / "x.json")]) == 2
    assert "give another place" in capsys.readouterr().err
