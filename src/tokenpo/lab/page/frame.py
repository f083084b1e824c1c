"""The frame of every page: a single file with escaped text that loads nothing and runs only its own script."""

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ...base.errors import TokenPOError
from ...base.files import write_whole

HERE = Path(__file__).parent


def render(source: Path, title: str, /, *, rules: Iterable[str] = (), script: str = "", **values: Any) -> str:
    """The page of a template as text; the same arguments give the same bytes.

    A style sheet of the template's name follows the common one and `rules`. `script` is the only one that may run.
    Values are escaped unless they are Markup.
    """
    sheets = [sheet for sheet in (HERE / "style.css", source.with_suffix(".css")) if sheet.is_file()]
    style = "\n".join([*(sheet.read_text(encoding="utf-8") for sheet in sheets), *rules])
    # Only what has these hashes may load or run, and the script may not turn text into markup.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    if script:
        policy += f"; script-src '{_digest(script)}'; require-trusted-types-for 'script'; trusted-types 'none'"
    loader = jinja2.FileSystemLoader([source.parent, HERE])
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template(source.name)
    style, script = Markup(style), Markup(script)
    return template.render(policy=policy, style=style, script=script, title=title, **values)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write(text: str, target: Path) -> Path:
    """Writes a file completely or not at all; raises TokenPOError if it cannot be written."""
    try:
        return write_whole(target, text)
    except OSError as error:
        raise TokenPOError(f"cannot write {target}: {error.strerror}; give another place") from error
