"""Pictures for a README or a paper: how all of them look, and how they are written. Only here matplotlib draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import TokenPOError
from ...base.files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0b62a4", "#c04a00", "#6a6a6a"
DPI = 140
FORMATS: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}


def dress(axes: Axes, title: str, x_label: str, y_label: str = "") -> None:
    """How every chart of a picture looks: title at the left, small type, no frame."""
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x_label, fontsize=8)
    axes.set_ylabel(y_label, fontsize=8)
    axes.tick_params(labelsize=7.5)
    axes.spines[["top", "right"]].set_visible(False)


def save(make: Callable[[], Figure], out: Path | str) -> Path:
    """Writes what `make` draws: the same bytes whatever the settings, the day and the hour.

    Raises:
        TokenPOError: an ending that is neither PNG nor SVG, a directory that does not exist, a place that cannot be
            written.
    """
    import matplotlib
    from matplotlib import style

    out = _place(out)
    with style.context("default"), matplotlib.rc_context({"svg.hashsalt": "tokenpo"}):
        figure = make()
        try:
            with whole(out) as part:
                figure.savefig(part, dpi=DPI, facecolor="white", metadata=FORMATS[out.suffix], format=out.suffix[1:])
        except OSError as error:
            why = error.strerror or error
            raise TokenPOError(f"{out} cannot be written: {why}; give another place") from error
    return out


def _place(out: Path | str) -> Path:
    out = Path(out)
    if out.suffix not in FORMATS:
        raise TokenPOError(f"{out}: a picture is {' or '.join(FORMATS)}, not {out.suffix or 'a file without ending'}")
    if out.is_dir():
        raise TokenPOError(f"{out} is a directory: name a file in it")
    if not out.parent.is_dir():
        raise TokenPOError(f"{out}: there is no directory {out.parent}: make it, or name another place")
    return out
