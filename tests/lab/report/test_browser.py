"""The report in a real Chromium: its script draws what the trace holds, and hostile markup does not run."""

import shutil
import subprocess
from pathlib import Path

import pytest

from page_tree import Node, drawn, embedded, read_html

pytestmark = pytest.mark.slow
PUT = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"


def opened(path: Path, profile: Path) -> Node:
    """The page after its scripts have run."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("NOT CHECKED in a browser: chromium is not installed")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    command = [program, *quiet, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    return read_html(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_the_script_draws_the_first_and_the_last_step(story, tmp_path):
    run, written = story
    shown = drawn(opened(run / "report.html", tmp_path))
    assert [one.step for one in shown] == [1, 1, 60, 60] and all(one in embedded(written) for one in shown)


@pytest.mark.parametrize("policy", [True, False])
def test_the_policy_stops_markup_that_gets_into_the_page(story, tmp_path, policy):
    html = (story[0] / "report.html").read_text(encoding="utf-8").replace("<main>", PUT + "<main>", 1)
    if not policy:  # the control: without it the markup runs
        html = html.replace('http-equiv="Content-Security-Policy"', 'name="off"')
    (tmp_path / "spoilt.html").write_text(html, encoding="utf-8")
    title = opened(tmp_path / "spoilt.html", tmp_path / "profile").one("title").text
    assert title == ("hapo on dial_sum: tokenpo report" if policy else "pwned")
