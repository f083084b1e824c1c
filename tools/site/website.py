"""Add to the site what is not a document of docs/, as hooks of MkDocs.

on_config         the methods and the reference join the navigation
on_files          home page, reference, live pages, assets, and every file of the repository that a document links to
on_page_markdown  links to such files lead to their pages; the gallery stands on the page of all methods
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

import formula
import gallery
import live
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tokenpo.methods import METHODS
from tokenpo.methods.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tools" / "site" / "assets"
ASSETS = ("site.css", "gallery.js", "iframe-worker.js")
HOSTS = ("trl", "verl", "vllm")
EVIDENCE = ("evaluate.summary", "compare.verdict", "explain.explanation", "report.page")
LAB = ("exact.worlds", "exact.measures")
# Page of the reference -> its modules, the public ones.
REFERENCE = {
    "tokenpo": ["tokenpo"],
    "methods": [
        "tokenpo.methods",
        *(f"tokenpo.methods.{name}" for name in ("extensions", "paper", "signature", "options")),
    ],
    "parts": ["tokenpo.core.parts"],
    "ops": [
        f"tokenpo.core.{room}.{path.stem}"
        for room in ("ops", "head")
        for path in sorted((ROOT / "src/tokenpo/core" / room).glob("[a-z]*.py"))
    ],
    "models": ["tokenpo.train.models"],
    "tasks": ["tokenpo.train.tasks"],
    "recipe": ["tokenpo.train.recipe.config", "tokenpo.train.recipe.plan", "tokenpo.train.recipe.objective"],
    "runs": ["tokenpo.train.run.loop", "tokenpo.records.run", "tokenpo.records.rollouts"],
    "hosts": [f"tokenpo.hosts.{name}" for name in HOSTS],
    "evidence": [f"tokenpo.lab.{name}" for name in EVIDENCE],
    "lab": [f"tokenpo.lab.{name}" for name in LAB],
}
# What people call comes first, errors last.
CALLED = (
    "method", "corrected", "with_teacher", "Learner", "Rollouts", "Policy", "Batch", "Totals", "Credit", "Loss",
    "Objective", "KLHold", "RatioCheck", "check_method", "stats_from_logits", "token_stats",
    "fused_loss", "negotiate", "locate",
    "TokenPOError", "MissingInput", "UnknownName", "Unsupported",
)  # fmt: skip
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(?=[#)])")
PICTURE = re.compile(  # of a page for GitHub, in two colour schemes
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)"[^>]* alt="([^"]*)">\s*</picture>'
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = "examples/README.md"
# Neither found by the search nor in the navigation.
APART = "---\nsearch: {exclude: true}\nhide: [navigation]\n---\n"


def on_config(config: MkDocsConfig) -> None:
    assert config.nav is not None
    sections = {title: pages for entry in config.nav if isinstance(entry, dict) for title, pages in entry.items()}
    sections["Methods"].append({"By family": [{title: f"methods/{kind}.md"} for kind, (title, _) in FAMILIES.items()]})
    sections["Reference"].extend({name: f"reference/{name}.md"} for name in REFERENCE)
    sections["Start"].append({"Examples": page_of(EXAMPLES)})


def on_files(files: Files, config: MkDocsConfig) -> None:
    home = (HERE / "home.md").read_text(encoding="utf-8").replace("METHODS", str(len(METHODS)))
    made = {"index.md": home}
    made |= {f"reference/{name}.md": reference(name, modules) for name, modules in REFERENCE.items()}
    made |= {page_of(path): shown(path) for path in sorted(linked())}
    made |= {f"assets/{name}": (HERE / name).read_text(encoding="utf-8") for name in ASSETS}
    made |= {f"live/{name}.html": text for name, text in live.pages().items()}
    made |= {f"assets/fingerprints/{name}.svg": text for name, text in gallery.fingerprints().items()}
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    if not here.startswith("files/"):
        markdown = markdown.replace(r"\<", "&lt;")  # an escape of GitHub's that Python's Markdown does not know
    if here == "methods/README.md":
        markdown = gallery.in_place_of_the_table(markdown)
        page.meta["hide"] = ["navigation", "toc"]
    elif here == "family.md":
        page.meta["hide"] = ["navigation", "toc"]  # its picture is as wide as the page
    elif here.startswith("methods/"):
        markdown = formula.typeset(markdown)
    markdown = PICTURE.sub(r'<img alt="\3" src="\2#only-light"><img alt="\3" src="\1#only-dark">', markdown)
    if here == "index.md" or here.startswith("reference/"):
        return markdown
    source = EXAMPLES if here == page_of(EXAMPLES) else f"docs/{here}"
    source = here.removeprefix("files/") if here.startswith("files/") else source
    return LINK.sub(lambda link: relpath(page_of(target(source, link[1])), dirname(here) or "."), markdown)


def reference(name: str, modules: list[str]) -> str:
    """A page of the reference."""
    if name == "tokenpo":
        options = "    options:\n      show_root_heading: true\n      heading_level: 2\n"
        return "# tokenpo\n\n" + "\n".join(f"::: tokenpo.{one}\n{options}" for one in CALLED)
    if len(modules) == 1:
        return f"# {modules[0]}\n\n::: {modules[0]}\n"
    inside = (f"## {m}\n\n::: {m}\n    options:\n      heading_level: 3\n" for m in modules)
    return f"# {name}\n\n" + "\n".join(inside)


def target(source: str, link: str) -> str:
    """What a link of a document means, from the root of the repository."""
    return normpath(join(dirname(source), link))


def page_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/") and path != "docs/README.md":
        return path.removeprefix("docs/")
    if path in ("README.md", "docs/README.md"):
        return "index.md"
    if path == EXAMPLES:  # it stands in the navigation, where a README would be the first page of its section
        return "examples.md"
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


@cache
def linked() -> frozenset[str]:
    """Every file outside docs/ that a document, or one of them, links to."""
    found: set[str] = set()
    left = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    while left:
        source = left.pop()
        text = FENCE.sub("", (ROOT / source).read_text(encoding="utf-8"))
        new = {target(source, link) for link in LINK.findall(text)}
        new = {path for path in new - found if not path.startswith("docs/") and (ROOT / path).exists()} - {"README.md"}
        found |= new
        left += [path for path in new if path.endswith(".md")]
    return frozenset(found)


def shown(path: str) -> str:
    """A file of the repository as a page: text and notebooks as they read, the rest as code."""
    at = ROOT / path
    if path.endswith(".md"):
        return APART * (path != EXAMPLES) + at.read_text(encoding="utf-8")
    if at.is_dir():
        names = sorted(entry.name + "/" * entry.is_dir() for entry in at.iterdir() if entry.name[0] not in "._")
        return f"{APART}# {path}\n\n" + "\n".join(f"- `{name}`" for name in names)
    if path.endswith(".ipynb"):
        cells = json.loads(at.read_text(encoding="utf-8"))["cells"]
        return APART + "\n\n".join(told for cell in cells for told in in_words(cell))
    return f"{APART}# {at.name}\n\n`{path}`\n\n`````{at.suffix[1:]}\n{at.read_text(encoding='utf-8')}\n`````\n"


def in_words(cell: dict[str, Any]) -> Iterator[str]:
    """A cell of a notebook, and below it what it shows."""
    text = "".join(cell["source"])
    yield text if cell["cell_type"] == "markdown" else f"`````py\n{text}\n`````"
    for output in cell.get("outputs", ()):
        data = output.get("data", {"text/plain": output.get("text")})
        yield "`````text\n" + "".join(data["text/plain"]).rstrip("\n") + "\n`````"
