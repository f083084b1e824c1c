"""What every page of this package must be, whatever texts it holds."""

import base64
import hashlib
import re
import unicodedata

from page_tree import Node, read_html


def skeleton(tree: Node) -> list[tuple[str, list[str], dict[str, str | None]]]:
    """Everything of a page that is not text: no accessible names, no policy (it holds a hash), no line breaks."""
    left_out = ("aria-label", "content", "class")
    return [
        (
            node.tag,
            [name for name in node.classes if name != "br"],
            {k: v for k, v in node.attributes.items() if k not in left_out},
        )
        for node in tree
    ]


def stands_alone(html: str, script: str = "") -> None:
    """Nothing is loaded, nothing runs but `script`, style and script are admitted by hash, and nothing hides."""
    tree = read_html(html)
    (style,) = tree.one("style").inside
    expected = f"default-src 'none'; style-src '{digest(str(style))}'; base-uri 'none'; form-action 'none'"
    if script:
        expected += f"; script-src '{digest(script)}'; require-trusted-types-for 'script'; trusted-types 'none'"
    metas = tree.all("meta")
    assert [meta.attributes.get("http-equiv", "charset") for meta in metas[:2]] == [
        "charset",
        "Content-Security-Policy",
    ]
    assert metas[1]["content"] == expected and not [m for m in metas[2:] if "http-equiv" in m.attributes]
    own = [node.text for node in tree.all("script") if not node.attributes]
    assert own == ([script.strip()] if script else [])
    # The loaders as markup; text that looks like one is escaped.
    assert not {node.tag for node in tree} & {"link", "img", "iframe", "base", "object", "embed"}
    assert not re.search(r"url\(|@import|@font-face", str(style))
    names = {name for node in tree for name in node.attributes}
    assert not [name for name in names if name in ("style", "src", "href") or name.startswith("on")]
    assert {c for c in html if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} == {"\n"}


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
