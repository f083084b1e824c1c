"""vLLM's two processor interfaces as bare as the adapter needs them, so that it is tested where vLLM is not installed.

`test_processor.py` holds these signatures against the real ones where it is.
"""

# ruff: noqa: B027
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from types import ModuleType
from typing import Any

import numpy as np
import torch


@dataclass
class SamplingParams:
    """Of vLLM's fields those that the processors read, and those that TRL fills."""

    n: int = 1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 16
    logprobs: int | None = None
    extra_args: dict[str, Any] | None = None


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: Any
    added: Any
    moved: Any


class V1(ABC):
    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None: ...

    @abstractmethod
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool: ...

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None: ...


@dataclass(frozen=True)
class LogitsProcRequestState:
    device: torch.device
    max_num_reqs: int
    vocab_size: int
    all_token_ids: Any
    prompt_len: Any
    prefill_len: Any
    total_len: Any


@dataclass(frozen=True)
class LogitsContext:
    expanded_idx_mapping: torch.Tensor
    idx_mapping: torch.Tensor
    idx_mapping_np: np.ndarray
    expanded_local_pos: torch.Tensor
    input_ids: torch.Tensor
    pos: torch.Tensor
    seq_lens_upper_bound_np: np.ndarray


class V2(ABC):
    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None: ...

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None: ...

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    @abstractmethod
    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor: ...


def modules() -> dict[str, ModuleType]:
    """What stands in for vLLM in sys.modules."""
    names = (
        "vllm vllm.v1 vllm.v1.sample vllm.v1.sample.logits_processor vllm.v1.worker vllm.v1.worker.gpu "
        "vllm.v1.worker.gpu.sample vllm.v1.worker.gpu.sample.logits_processor"
    ).split()
    made = {name: ModuleType(name) for name in names}
    made["vllm"].__dict__.update(SamplingParams=SamplingParams, __version__="stand-in")
    made["vllm.v1.sample.logits_processor"].__dict__.update(
        LogitsProcessor=V1, BatchUpdate=BatchUpdate, MoveDirectionality=MoveDirectionality
    )
    made["vllm.v1.worker.gpu.sample.logits_processor"].__dict__.update(
        LogitsProcessor=V2, LogitsContext=LogitsContext, LogitsProcRequestState=LogitsProcRequestState
    )
    return made
