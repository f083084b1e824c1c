"""The site: built as `make site` builds it, and complete in itself."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.__main__ import cli

import tokenpo
from page_tree import read_html
from tokenpo.methods import METHODS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
# Attributes by which a page loads something, and links.
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """--strict: a page outside the navigation, a broken link or a missing anchor among documents ends the build."""
    out = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setattr(sys, "path", [*sys.path])
        command = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(out)]
        cli.main(command, standalone_mode=False)  # raises where the command would end with an error
    return out


class Page:
    """The files that a page loads, its links, and the anchors that links lead to."""

    def __init__(self, path: Path) -> None:
        nodes = [*read_html(path.read_text(encoding="utf-8"))]
        loads = (node.attributes.get(LOADS.get(node.tag, "")) for node in nodes)
        self.loads = [loaded for loaded in loads if loaded is not None]
        self.links = [node["href"] for node in nodes if node.tag == "a" and node.attributes.get("href")]
        self.anchors = {name for node in nodes for name in map(node.attributes.get, ("id", "name")) if name}


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_page_loads_only_what_lies_beside_it(pages: dict[Path, Page]) -> None:
    assert len(pages) > len(METHODS)
    for path, page in pages.items():
        for loaded in page.loads:
            if loaded.startswith("data:"):
                continue
            assert not urlsplit(loaded).scheme, f"{path.name} loads {loaded}"
            assert (path.parent / unquote(urlsplit(loaded).path)).exists(), f"{path.name} loads {loaded}"


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme:
                continue
            to = (path.parent / unquote(url.path)).resolve() if url.path else path
            to = to / "index.html" if to.is_dir() else to
            there = pages.get(to)
            if not to.exists() or (url.fragment and there and unquote(url.fragment) not in there.anchors | {"__top"}):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_the_reference_opens_with_what_people_call(site: Path) -> None:
    text = (site / "reference" / "tokenpo.html").read_text(encoding="utf-8")
    names = [name.removeprefix("tokenpo.") for name in re.findall(r'<h2 id="([^"]+)"', text)]
    assert {*names} == {*tokenpo.__all__} - {"methods"}
    assert names[0] == "method" and names[-1] == "Unsupported"
