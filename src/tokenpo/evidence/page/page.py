"""What every page of this package is: one file that loads nothing and runs nothing but its own script, escaped."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

import jinja2

from ...base.errors import TokenPOError
from ...base.files import write_whole
from ...base.text import number
from .text import percent

HERE = Path(__file__).parent


@functools.cache
def template(folder: Path, name: str) -> jinja2.Template:
    """A template of `folder`; it may import from those of the report."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["number"] = number
    return environment.get_template(name)


def stylesheet(*files: Path) -> str:
    """The report's style sheet, and `files` after it."""
    return "\n".join(file.read_text(encoding="utf-8") for file in (HERE / "style.css", *files))


def policy(style: str, script: str = "") -> str:
    """Nothing may be loaded or run; the one style sheet, and a script if there is one, are admitted by their hashes.

    The script may not make markup from text either.
    """
    admitted = f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    if script:
        admitted += f"; script-src '{_digest(script)}'; require-trusted-types-for 'script'; trusted-types 'none'"
    return admitted


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write(text: str, target: Path) -> Path:
    """Writes a file whole or not at all.

    Raises:
        TokenPOError: the place cannot be written.
    """
    try:
        return write_whole(target, text)
    except OSError as error:
        raise TokenPOError(f"cannot write the report to {target}: {error.strerror}; give another place") from error
