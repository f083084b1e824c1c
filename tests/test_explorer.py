"""The explorer: its grid is the pushes, it loads nothing, and in a browser its sliders move the lines."""

import base64
import json
import re
from contextlib import closing
from pathlib import Path

import explorer
import pytest
import torch
from fingerprint.step import Facts, pushes

import tokenpo
from chromium import Chromium

PAGE = Path(__file__).parents[1] / "docs" / "explorer.html"
FEW = {name: tokenpo.method(name) for name in ("grpo", "gspo", "tr_grpo")}


def unpacked(held: dict) -> torch.Tensor:
    numbers = torch.frombuffer(bytearray(base64.b64decode(held["pushes"])), dtype=torch.int16)
    return numbers.view(held["shape"]).double() / explorer.SCALE


def test_the_grid_holds_the_pushes_of_the_facts_that_matter() -> None:
    accuracy, _, probability, _, ratio = (values for _, values in explorer.GRID.values())
    held = unpacked(explorer.packed(explorer.grid(FEW["tr_grpo"])))
    assert list(held.shape) == [len(accuracy), 1, len(probability), 1, len(ratio), 2]
    facts = Facts(accuracy=accuracy[1], probability=probability[2], ratio=ratio[6])
    torch.testing.assert_close(held[1, 0, 2, 0, 6], pushes(FEW["tr_grpo"], [facts])[0, :, 0], atol=6e-4, rtol=0)


def test_the_page_is_one_small_file_that_loads_nothing() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(page) < 600_000 and "default-src &#39;none&#39;" in page
    assert not re.search(r"""(?:src|href)=|url\(|@import|fetch\(|innerHTML""", page)
    held = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert list(held["methods"]) == list(tokenpo.methods.METHODS)


@pytest.mark.slow
def test_sliders_move_the_lines(tmp_path: Path) -> None:
    with closing(Chromium(tmp_path / "profile")) as browser:
        page = browser.open(PAGE.as_uri())
        lines = "[...document.querySelectorAll('#chart .line')].map((x) => x.getAttribute('d')).join()"
        before = page.eval(lines)
        assert before.count("M") == 6 and "NaN" not in before
        page.eval("document.getElementById('at-accuracy').focus()")
        page.press("ArrowRight")
        assert page.eval(lines) != before
