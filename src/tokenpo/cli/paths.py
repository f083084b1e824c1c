"""Paths on the command line, for argparse's `type`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..base.errors import TokenPOError
from ..base.files import expanded


def path(text: str) -> Path:
    """The path with the home directory for a leading ~, which a shell leaves where it is quoted.

    Raises:
        ArgumentTypeError: the home of a user who is not known here.
    """
    try:
        return expanded(text)
    except TokenPOError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
