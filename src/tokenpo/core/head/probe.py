"""Tests whether a model's logits are nothing but its head's product, which the fused loss then computes itself."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def probe_head(model: Any) -> bool:
    """Whether a causal LM's logits are exactly head(hidden), without a soft cap (Gemma) or scale (Cohere).

    Runs a forward pass over a few tokens. `model` has the interface of transformers' models.
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or model.base_model is model or "forward" in vars(head):
        return False
    device = head.weight.device
    ids = torch.arange(8, device=device).unsqueeze(0) % head.weight.shape[0]
    inputs = inputs_of(model, ids, torch.ones_like(ids))
    with evaluating(model), torch.autocast(device.type, enabled=False):
        body = model.base_model(**inputs)
        hidden = getattr(body, "last_hidden_state", None)
        # Compared bit by bit, as a soft cap hardly changes small logits; a false alarm only costs speed.
        return hidden is not None and torch.equal(head(hidden), model(**inputs).logits)


def inputs_of(model: Any, ids: Tensor, attended: Tensor) -> dict[str, Any]:
    """The keywords for a forward pass over ids [P, T] without a cache, as far as the model takes them."""
    inputs = {"input_ids": ids, "attention_mask": attended, "use_cache": False}
    accepted = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in accepted}


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Runs the block in eval mode without gradients, then restores the mode."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()
