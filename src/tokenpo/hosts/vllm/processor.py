"""The logits processor to name to vLLM: the adaptive temperature under each of its two model runners.

V1 divides by the temperature and then calls processors, on batch rows that are added, removed and moved. V2 calls
processors first, on request slots, and then divides. The two take processors of different classes, and vLLM chooses the
runner late, so this class inherits from both, as far as the installed version has them.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...base.errors import TokenPOError, Unsupported, present, refuse
from ...core.request_temperature import PREFIX, Heat, factors, read

if TYPE_CHECKING:
    from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

HOMES = ("vllm.v1.sample.logits_processor", "vllm.v1.worker.gpu.sample.logits_processor")


class Numbers:
    """Gives each distinct heat, a temperature rule with its numbers, an id from 1 on."""

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
        return {number: heat for number, heat in self._ready.items() if number in used}


class V1Rows:
    """Follows vLLM's persistent batch and scales the rows whose request carries a heat, by T_t / T."""

    def __init__(self, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._numbers = Numbers(device)
        self._rows: dict[int, int] = {}  # row of the batch -> number of its heat
        self._which: Tensor | None = None

    def update_state(self, batch_update: Any) -> None:
        """Applies removed, added and moved rows, in the order that vLLM's BatchUpdate prescribes."""
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
    begin = f"a request with {PREFIX}* keys has"
    faults = {
        f"{begin} temperature {temperature:g}: set it above 0, or leave the keys out": not temperature > 0,
        f"{begin} min_p = {min_p:g}: vLLM's two runners apply it on different sides of the adaptive temperature, so "
        "set min_p=0 or leave the keys out": bool(min_p),
    }
    refuse((fault for fault, made in faults.items() if made), TokenPOError)


def _bases() -> tuple[type, ...]:
    """The processor base classes of the runners that this vLLM has."""
    bases = []
    for home in HOMES:
        with contextlib.suppress(ImportError, AttributeError):
            bases.append(importlib.import_module(home).LogitsProcessor)
    if not bases:
        raise Unsupported(
            f"vLLM's logits processors are at neither {' nor '.join(HOMES)}: install vLLM 0.31 to 0.33, or switch the "
            "adaptive temperature off"
        )
    return tuple(bases)


class AdaptiveTemperatureProcessor(*_bases()):
    """Applies the adaptive temperature in vLLM; Unsupported if it would report log-probabilities of another one."""

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        # V1's runner gives (device, is_pin_memory), V2's its request states.
        require_processed(vllm_config)
        self.chosen: Any = (V1Rows if len(runner) == 2 else V2Slots)(*runner)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        check(sampling_params.temperature, sampling_params.min_p, sampling_params.extra_args)

    def apply(self, logits: Tensor, *context: Any) -> Tensor:
        return self.chosen.apply(logits, *context)

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: Any) -> None:
        self.chosen.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return self.chosen.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self.chosen.apply_staged_writes()
