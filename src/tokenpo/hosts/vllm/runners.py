"""The adaptive temperature under each of vLLM's two runners; imports no vLLM.

V1 divides by the temperature and then calls processors, on batch rows that are added, removed and moved. V2 calls
processors first, on request slots, and then divides.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...base.errors import TokenPOError, Unsupported, present
from ...core.request_temperature import PREFIX, Heat, factors, read


class Numbers:
    """Gives each distinct heat (temperature rule with its numbers) an id from 1 on; drops heats that no row uses."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = device
        self._numbers: dict[Heat, int] = {}
        self._ready: dict[int, Heat] = {}
        self._next = 1

    def of(self, heat: Heat | None, used: set[int]) -> int:
        """The id of a heat, 0 for None; `used` are the ids that rows still hold."""
        if heat is None:
            return 0
        if heat not in self._numbers:
            # Every training step brings new heats; drop those of earlier steps.
            self._numbers = {known: number for known, number in self._numbers.items() if number in used}
            self._ready = self.named(used) | {self._next: heat.on(self._device)}
            self._numbers[heat] = self._next
            self._next += 1
        return self._numbers[heat]

    def named(self, used: set[int]) -> dict[int, Heat]:
        """The heats with these ids, on the device."""
        return {number: heat for number, heat in self._ready.items() if number in used}


class V1Rows:
    """Follows vLLM's persistent batch and scales the rows whose request carries a heat.

    vLLM runs an argmax-invariant processor after the temperature: it sees the entropy at the base temperature, and the
    remaining factor is T_t / T.
    """

    def __init__(self, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._numbers = Numbers(device)
        self._rows: dict[int, int] = {}  # row of the batch -> number of its heat
        self._which: Tensor | None = None

    def update_state(self, batch_update: Any) -> None:
        """Applies removed, added and moved rows in this order, which vLLM's BatchUpdate prescribes."""
        if batch_update is None:
            return
        rows = self._rows
        for row in batch_update.removed:
            rows.pop(row, None)
        for row, params, *_ in batch_update.added:
            # A new request may replace one that was not reported as removed.
            rows[row] = self._numbers.of(read(params.extra_args), set(rows.values()))
        for source, target, direction in batch_update.moved:
            other = rows.get(target, 0)
            rows[target] = rows.get(source, 0)
            rows[source] = other if direction.name == "SWAP" else 0
        self._rows, self._which = {row: number for row, number in rows.items() if number}, None

    def apply(self, logits: Tensor) -> Tensor:
        """Scales logits [M, V], already divided by the base temperature, in place and returns them."""
        used = set(self._rows.values())
        if not used:
            return logits
        if self._which is None or len(self._which) != len(logits):
            which = [self._rows.get(row, 0) for row in range(len(logits))]
            self._which = torch.tensor(which, dtype=torch.int64).to(self._device, non_blocking=True)
        return divide(logits, factors(logits, self._which, self._numbers.named(used)))


class V2Slots:
    """Keeps a heat and a base temperature per request slot, and scales the rows of slots with a heat."""

    def __init__(self, req_states: Any) -> None:
        self._device = req_states.device
        self._numbers = Numbers(self._device)
        self._slots = np.zeros(req_states.max_num_reqs, dtype=np.int64)  # slot -> number of its heat
        self._base = np.ones(req_states.max_num_reqs, dtype=np.float32)
        self._on_device: tuple[Tensor, Tensor] | None = None

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether the new request in this slot carries a heat."""
        heat = read(sampling_params.extra_args)
        self._slots[req_idx] = 0
        self._slots[req_idx] = self._numbers.of(heat, set(self._slots.tolist()))
        self._base[req_idx] = 1.0 if heat is None else sampling_params.temperature
        self._on_device = None
        return heat is not None

    def apply_staged_writes(self) -> None:
        if self._on_device is None:
            # New tensors, because a running step may still read the old ones.
            host = torch.from_numpy(self._slots.copy()), torch.from_numpy(self._base.copy())
            slots, base = (x.to(self._device, non_blocking=True) for x in host)
            self._on_device = slots, base

    def apply(self, logits: Tensor, ctx: Any) -> Tensor:
        """Scales logits [M, V] before the temperature, one row per token to sample, in place and returns them."""
        used = set(self._slots[ctx.idx_mapping_np].tolist()) - {0}
        if not used:
            return logits
        self.apply_staged_writes()
        which, base = (x[ctx.expanded_idx_mapping] for x in present(self._on_device, "a table of the slots"))
        return divide(logits, factors(logits, which, self._numbers.named(used), base))


def divide(logits: Tensor, factor: Tensor) -> Tensor:
    """Divides each row of logits [M, V] by its factor [M] in place; a factor of 1 changes no bit."""
    return logits.div_(factor.to(logits.dtype).unsqueeze(-1))


def require_processed(vllm_config: Any) -> None:
    """Raises Unsupported if vLLM would return log-probabilities without temperature and processor."""
    mode = vllm_config.model_config.logprobs_mode
    if mode != "processed_logprobs":
        raise Unsupported(
            f"vLLM runs with logprobs_mode={mode!r}, which does not report log-probabilities of the distribution that "
            'the adaptive temperature samples from: set logprobs_mode="processed_logprobs"'
        )


def check(temperature: float, min_p: float, given: Mapping[str, Any] | None) -> None:
    """Raises TokenPOError if a request's keys are wrong, or one of its settings contradicts them."""
    if read(given) is None:
        return
    if not temperature > 0:
        raise TokenPOError(
            f"a request to vLLM with {PREFIX}* keys has temperature {temperature:g}: greedy decoding has no "
            "temperature to adapt, so give a temperature above 0 or leave the keys out"
        )
    if min_p:
        raise TokenPOError(
            f"a request with {PREFIX}* keys has min_p = {min_p:g}: vLLM's two runners apply it on different sides of "
            "the adaptive temperature, so set min_p=0 or leave the keys out"
        )
