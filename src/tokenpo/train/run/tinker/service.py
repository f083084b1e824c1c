"""A session with a server."""

from __future__ import annotations

import os

import httpx
import tinker

from ....base.errors import TokenPOError
from ....base.text import first_line
from ....hosts.tinker.answers import Answers
from ...recipe.config import Config


def connect(config: Config) -> tinker.ServiceClient:
    """A session with the recipe's server; TokenPOError if nothing answers or there is no key."""
    answers = Answers.of(config.tinker.base_url, config.tinker.seconds)
    address = answers.address
    if not _has_key():
        raise TokenPOError(
            f"the Tinker server at {address} wants a key, and there is none: set TINKER_API_KEY (a server of your own "
            "may take any text), or store one with tinker auth login"
        )
    try:
        with httpx.stream("GET", address, timeout=10):  # the client itself would try for minutes
            pass
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TokenPOError(
            f"no Tinker server answers at {address} ({first_line(error)}): start it, or give its address with "
            "--set tinker.base_url=URL"
        ) from error
    return answers.one(lambda: tinker.ServiceClient(base_url=address), "in beginning a session")


def _has_key() -> bool:
    """Whether the client finds a key; the oldest supported client has no `tinker.auth` and reads only variables."""
    try:
        from tinker.auth import tinker_has_credentials
    except ImportError:
        return any(os.environ.get(name) for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"))
    return tinker_has_credentials()
