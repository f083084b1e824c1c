"""The page in a real Chromium: chosen by keyboard, linked by its address, and hostile texts stay text."""

import random
from contextlib import closing

import pytest

from chromium import Chromium, Page
from page_tree import drawn, embedded, read_html
from tokenpo.lab.report.page import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with closing(Chromium(tmp_path_factory.mktemp("chromium"))) as chromium:
        yield chromium


@pytest.fixture
def open_page(browser):
    """`open_page(report file, fragment="")` -> the page; at the end it must not have complained."""
    opened: list[Page] = []

    def go(path, fragment: str = "") -> Page:
        opened.append(browser.open(path.as_uri() + fragment))
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


def by(page: Page) -> str:
    return page.eval("document.querySelector('[name=quantity]:checked + span').textContent")


def focus(page: Page, selector: str, *keys: str) -> None:
    """Presses keys on an element."""
    page.eval(f"document.querySelector('{selector}').focus()")
    page.press(*keys)


def colours(page: Page) -> list[str]:
    """The background of every token of the left side."""
    return page.eval(
        "[...document.querySelectorAll('#left .tokens tbody tr')].map(t => getComputedStyle(t).background)"
    )


def test_the_script_draws_what_the_writer_drew(story, open_page):
    """The first view is drawn twice: by Python for everyone, and again by the script; both are the same."""
    run, written = story
    page = open_page(run / "report.html")
    assert drawn(tree(page)) == drawn(written)
    assert len(drawn(written)) == 4
    assert page.eval("location.hash") == ""


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


def test_a_view_is_linked_by_its_address(story, open_page):
    run, _ = story
    page = open_page(run / "report.html")
    focus(page, "#left-step", "ArrowDown")
    focus(page, "#left-response", "ArrowDown")
    focus(page, "[name=quantity]:checked", "ArrowRight")
    address = page.eval("location.hash")
    assert address == "#by=weight&left=10.1.1&right=60.1.all"
    again = open_page(run / "report.html", address)
    assert (chosen(again), by(again)) == (chosen(page), by(page)) and by(again) == "weight"
    assert drawn(tree(again)) == drawn(tree(page))
    again.eval("location.hash = '#by=ratio&left=20.2.all&right=none'")
    again.eval("new Promise(done => setTimeout(done, 50))", wait=True)
    assert (chosen(again)["left-step"], by(again)) == ("20", "ratio")
    assert [pane["id"] for pane in tree(again).all("section", "pane") if "hidden" not in pane.attributes] == ["left"]


QUANTITIES = [
    "advantage", "weight", "effective coefficient", "ratio", "clip state", "entropy", "probability", "temperature",
    "KL moved", "KL to reference",
]  # fmt: skip


def whole_trace(steps=(1, 5), seed=0, **changed):
    """Responses with every quantity that a trace can hold; the same prompts for every seed."""
    rng, lines = random.Random(seed), []
    for step in steps:
        for row in range(4):
            old = [-abs(rng.gauss(0, 1)) for _ in range(12)]
            ratio = [1 + 0.3 * rng.random() for _ in old]
            names = ("advantage", "effective", "weight", "entropy", "kl", "kl_ref", "temperature")
            terms = {name: [abs(rng.gauss(0, 1)) for _ in old] for name in names}
            terms["advantage"] = [x * (-1) ** row for x in terms["advantage"]]
            terms |= {"ratio": ratio, "clipped": [float(r > 1.2) for r in ratio], "old_logprob": old}
            line = {"step": step, "row": row, "group": row // 2, "prompt": f"{step}+{row // 2}=", "reward": row % 2}
            line |= {"tokens": [f"t{i} " for i in range(12)], "correct": bool(row % 2), "answer": "7"}
            lines.append(line | {"terms": {k: v for k, v in (terms | changed).items() if v is not None}})
    return lines


def test_tokens_are_coloured_by_every_quantity_and_its_numbers_are_those_of_the_trace(make_run, open_page):
    """Chosen by arrow keys, each quantity gives its own colours, and its legend is the one that is seen."""
    trace = whole_trace()
    page = open_page(write_report(make_run(steps=5, trace=trace)), "#left=5.2.2&right=none")
    (card,) = drawn(tree(page))
    assert card.prompt == trace[7]["prompt"] == "5+1="
    for i, (text, columns, _) in enumerate(card.tokens):
        assert text == trace[7]["tokens"][i].replace(" ", "␣")
        for label, name in (("effective coefficient", "effective"), ("KL moved", "kl"), ("KL to reference", "kl_ref")):
            assert float(columns[label]) == pytest.approx(trace[7]["terms"][name][i], rel=0.0051)
    focus(page, "[name=quantity]")
    result = {}
    legend = each("x.querySelector('b').textContent", ".legend")
    swatch = each("[x.className, getComputedStyle(x).backgroundColor]", ".legend i")
    token = each("[[...x.classList], getComputedStyle(x).backgroundColor]", ".tokens tbody tr")
    for name in QUANTITIES:
        if result:
            page.press("ArrowRight")
        assert by(page) == name and page.eval(legend) == [name]
        legends = dict(page.eval(swatch))
        for classes, colour in page.eval(token):
            assert [legends[c] for c in classes if c in legends] == [colour]
        result[name] = tuple(colours(page))
    assert len(set(result.values())) == len(QUANTITIES)


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
