"""A run directory in, one self-contained HTML page out."""

from __future__ import annotations

from .page import write_report

__all__ = ["write_report"]
