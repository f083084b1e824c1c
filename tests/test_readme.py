"""README against the package and the studies; what it says of exact worlds is in test_exact_findings.py."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import card_page
import kl_law
import pytest

from tokenpo.cli.main import main

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_commands_are_there(capsys: pytest.CaptureFixture) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"make (\w+)", TEXT)) <= set(targets)
    words = set(re.findall(r"`tokenpo (\w+)", TEXT))
    assert words
    for word in words:
        with pytest.raises(SystemExit, match="0"):
            main([word, "--help"])


def test_it_is_one_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 50 and sum(line.startswith("![") for line in lines) == 1


def test_on_the_bed_nothing_leads_dapo() -> None:
    """All differences of train-area from DAPO on both tasks; 0.03 is the margin that docs/bed.md registered."""
    assert "no method learns more than DAPO by the margin set before" in TEXT
    assert "TEPO learns less, CISPO and HAPO a little less" in TEXT
    page, _, _ = (ROOT / "docs" / "bed.md").read_text(encoding="utf-8").partition("<!-- /bed -->")
    found = re.findall(r"\| (\w+) \| train-area, (\w+) − dapo \| (\S+) \| (\S+) to (\S+) \|", page)
    assert {name for _, name, *_ in found} >= {"tepo", "hapo", "gtpo", "cispo"} and len(found) == 10
    assert all(float(middle) < 0.03 for *_, middle, _, _ in found)
    assert all(float(high) < 0 for _, name, _, _, high in found if name in ("cispo", "tepo", "hapo"))
    mean = {name: fmean(float(x) for _, other, x, *_ in found if other == name) for name in ("tepo", "cispo", "hapo")}
    assert mean["tepo"] < -0.03 < min(mean["cispo"], mean["hapo"])


def test_with_the_kl_held_five_methods_learn_less_and_one_a_little_more() -> None:
    assert "CISPO, TEPO, TR-GRPO, GRPO-S and GSPO learn less on at least one of three tasks" in TEXT
    assert "GTPO, held, 0.02 more on one" in TEXT
    found = kl_law.verdicts(kl_law.PAGE.read_text(encoding="utf-8"))
    words = {(key[0], key[3].partition(" ")[0], seen.word) for key, seen in found.items()}
    for held_or_tuned in ("P1", "P1d"):
        less = {name for prediction, name, word in words if prediction == held_or_tuned and word == "smaller"}
        assert less == {"cispo", "tepo", "tr_grpo", "grpo_s", "gspo"}
    larger = [(key, seen.mean) for key, seen in found.items() if seen.word == "larger"]
    assert larger == [(("P1", "search", "first", "gtpo - dapo"), "+0.021")]


def test_on_a_gpu_four_methods_are_alike() -> None:
    assert "CISPO, HAPO, GTPO and GRPO stay within 0.02 of DAPO and TR-GRPO learns less" in TEXT
    words = {key: verdict.word for key, verdict in card_page.verdicts(card_page.PAGE.read_text("utf-8")).items()}
    for part in card_page.PARTS:
        ends = " − dapo, held"
        verdict = {x.removesuffix(ends): word for (at, x), word in words.items() if at == part and x.endswith(ends)}
        alike = {name for name, word in verdict.items() if word == "alike"}
        assert alike == {"cispo", "hapo", "gtpo", "grpo"} and verdict["tr_grpo"] == "smaller"
