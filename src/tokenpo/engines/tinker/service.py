"""A session with a server, and the model trained there."""

from __future__ import annotations

import os

import httpx
import tinker

from ...base.errors import TokenPOError, present
from ...base.text import first_line
from ...core.seeds import keyed_seed
from ...recipe.config import Config
from .answers import Answers


def connect(config: Config) -> tinker.ServiceClient:
    """A session with the recipe's server; TokenPOError if nothing answers or there is no key."""
    answers = Answers.of(config)
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
    return answers.call(lambda: tinker.ServiceClient(base_url=address), "in beginning a session")


def training_client(
    service: tinker.ServiceClient, config: Config, answers: Answers, saved: str = ""
) -> tinker.TrainingClient:
    """The recipe's model with fresh adapters, or with weights and optimiser from `saved`; raises as `Answers`."""
    lora, name = present(config.model.lora, "model.lora"), config.model.path
    if saved:
        return answers.one(
            lambda: service.create_training_client_from_state_with_optimizer(saved), f"when asked for {saved}"
        )
    seed = keyed_seed(config.seed, "model") % 2**31
    return answers.one(
        lambda: service.create_lora_training_client(name, lora.rank, seed), f"when asked for the model {name}"
    )


def _has_key() -> bool:
    """Whether the client finds a key; the oldest supported client has no `tinker.auth` and reads only variables."""
    try:
        from tinker.auth import tinker_has_credentials
    except ImportError:
        return any(os.environ.get(name) for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"))
    return tinker_has_credentials()
