"""The page in a real Chromium: a heading sorts, a part of a name filters, a measure is chosen."""

from contextlib import closing

import pytest

from chromium import Chromium

pytestmark = pytest.mark.slow
ROWS = """[...document.querySelectorAll(".choice.m0 tbody tr")].filter(row => !row.hidden)
    .map(row => row.cells[0].textContent.trim())"""
SHOWN = """[...document.querySelectorAll(".choice")].filter(x => getComputedStyle(x).display === "block").length"""


def test_sorts_and_filters(made, tmp_path):
    with closing(Chromium(tmp_path)) as browser:
        page = browser.open(f"file://{made / 'x.html'}")
        assert page.eval(SHOWN) == 1
        for measure in ("m1", "m0"):
            page.eval(f'document.getElementById("{measure}").click()')
            assert page.eval(SHOWN) == 1
        # Useful progress: exact credit is above DAPO, whose clip does nothing on policy.
        page.eval('document.querySelectorAll(".choice.m0 thead button")[1].click()')
        assert page.eval(ROWS)[0] == "exact credit"
        page.eval('document.querySelectorAll(".choice.m0 thead button")[1].click()')
        assert page.eval(ROWS)[-1] == "exact credit"
        page.eval("""(() => {
            const find = document.getElementById("find");
            find.value = "nothing";
            find.dispatchEvent(new Event("input"));
        })()""")
        assert sorted(page.eval(ROWS)) == ["dapo", "exact credit"]
        assert page.complaints() == []
