"""The page in a real Chromium: chosen by keyboard, and hostile texts stay text."""

from contextlib import closing

import pytest

from chromium import Chromium, Page
from page_tree import drawn, embedded, read_html

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with closing(Chromium(tmp_path_factory.mktemp("chromium"))) as chromium:
        yield chromium


@pytest.fixture
def open_page(browser):
    """`open_page(report file)` -> the page; at the end it must not have complained."""
    opened: list[Page] = []

    def go(path) -> Page:
        opened.append(browser.open(path.as_uri()))
        return opened[-1]

    yield go
    for page in opened:
        assert page.complaints() == []
        page.close()


def each(what: str, found: str) -> str:
    """A script: the list of `what` of every element x that `found` selects."""
    return f"[...document.querySelectorAll('{found}')].filter(x => x.offsetParent).map(x => {what})"


def tree(page: Page):
    return read_html("<!doctype html>" + page.html())


def chosen(page: Page) -> dict[str, str]:
    """The menus as their visible texts."""
    return dict(page.eval(each("[x.id, x.selectedOptions[0].text]", "select")))


def focus(page: Page, selector: str, *keys: str) -> None:
    """Presses keys on an element."""
    page.eval(f"document.querySelector('{selector}').focus()")
    page.press(*keys)


def test_the_first_view_is_the_first_and_the_last_step(story, open_page):
    run, written = story
    page = open_page(run / "report.html")
    shown = drawn(tree(page))
    assert [one.step for one in shown] == [1, 1, 60, 60] and all(one in embedded(written) for one in shown)


def test_every_response_can_be_reached_by_keyboard(story, open_page):
    """Tab leads to the menus, in which the arrow keys choose; every step and prompt shows what the trace holds."""
    run, written = story
    page = open_page(run / "report.html")
    focus(page, "#both", "Tab")
    assert page.eval("document.activeElement.id") == "left-step"
    found = []
    for step in range(7):
        assert chosen(page)["left-step"] == str([1, 10, 20, 30, 40, 50, 60][step])
        page.press("Tab")
        assert page.eval("document.activeElement.id") == "left-prompt"
        for prompt in range(2):
            found += drawn(tree(page))[:2]
            page.press(*["ArrowDown"] * (prompt == 0))
        page.press("ArrowUp")
        focus(page, "#left-step")
        page.press("ArrowDown")
    assert found == embedded(written)
    focus(page, "#left-response", "ArrowDown", "ArrowDown")
    assert chosen(page)["left-response"].startswith("row 1: ")
    assert [len(pane.all("article")) for pane in tree(page).all("section", "pane")] == [1, 2]


def test_the_policy_stops_what_is_put_into_the_page(story, browser):
    """The control: a script, a handler and markup from text that get into the page all the same do not run."""
    run, _ = story
    path = run / "spoilt.html"
    html = (run / "report.html").read_text(encoding="utf-8")
    put = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
    path.write_text(html.replace("<main>", put + "<main>", 1), encoding="utf-8")
    page = browser.open(path.as_uri())
    assert page.eval("document.title") == "hapo on dial_sum: tokenpo report"
    stopped = [line for line in page.complaints() if "Content Security Policy" in line]
    assert len(stopped) >= 2
    free = html.replace('http-equiv="Content-Security-Policy"', 'name="off"').replace("<main>", put + "<main>", 1)
    path.write_text(free, encoding="utf-8")
    assert browser.open(path.as_uri()).eval("document.title") == "pwned"
    page.close()
