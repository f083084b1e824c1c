"""A session with a server, the model trained there, and each failure of either in one sentence."""

from __future__ import annotations

from typing import TypeVar

import httpx
import tinker
from tinker.lib.base_url import resolve_base_url

from ...base.errors import TokenPOError, present
from ...base.text import first_line
from ...core.seeds import keyed_seed
from ...recipe.config import Config

T = TypeVar("T")


def result(future: tinker.APIFuture[T], doing: str) -> T:
    """The result of a request; a TokenPOError where it failed."""
    try:
        return future.result()
    except (tinker.TinkerError, RuntimeError) as error:  # a client that has failed once refuses with the latter
        raise TokenPOError(
            f"the Tinker server failed {doing}: {first_line(error)}; once it answers, the run goes on from its last "
            "checkpoint with --resume RUN --engine tinker"
        ) from error


def connect(config: Config) -> tinker.ServiceClient:
    """A session with the server of the recipe; a TokenPOError where nothing answers, or there is no key."""
    address = resolve_base_url(config.tinker.base_url)
    if not tinker.auth.tinker_has_credentials():
        raise TokenPOError(
            f"the Tinker server at {address} wants a key, and there is none: set TINKER_API_KEY (a server of your own "
            "may take any text), or store one with tinker auth login"
        )
    try:
        httpx.get(address, timeout=10)  # the client itself would try for minutes
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TokenPOError(
            f"no Tinker server answers at {address} ({first_line(error)}): start it, or give its address with "
            "--set tinker.base_url=URL"
        ) from error
    return tinker.ServiceClient(base_url=address)


def training_client(service: tinker.ServiceClient, config: Config, saved: str = "") -> tinker.TrainingClient:
    """The model of the recipe with fresh adapters, or with saved weights and optimiser; raises as `result`."""
    lora, name = present(config.model.lora, "model.lora"), config.model.path
    if saved:
        return result(service.create_training_client_from_state_with_optimizer(saved), f"when asked for {saved}")
    seed = keyed_seed(config.seed, "model") % 2**31
    return result(service.create_lora_training_client(name, lora.rank, seed), f"when asked for the model {name}")
