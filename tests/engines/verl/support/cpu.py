"""verl on a machine without an accelerator: test support, never product.

Loaded in every process by verl itself, with VERL_USE_EXTERNAL_MODULES naming this module and VERL_PLATFORM=cpu. It
adds a platform, lets the FSDP2 engine run on the CPU with gloo, and registers a small rollout server (server.py).
"""

from __future__ import annotations

import contextlib
import functools
from types import ModuleType
from typing import Any

import torch
import wrapt
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(ModuleType):
    """What verl asks torch.cuda for; a CPU has none of it, so every answer is nothing or zero."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0

    def mem_get_info(self) -> tuple[int, int]:
        return 0, 0

    def get_device_name(self) -> str:
        return "CPU"

    def get_rng_state(self) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


@PlatformRegistry.register("cpu")
class CpuPlatform(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _Device("cpu_device")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _gloo(_: Any) -> None:
    from verl.utils import distributed

    # verl's own default would name the CPU twice, once for gloo and once for the accelerator.
    stock = distributed.initialize_global_process_group_ray
    distributed.initialize_global_process_group_ray = functools.partial(stock, backend="gloo")


def _engine(_: Any) -> None:
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    @EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
    class CpuEngine(FSDPEngineWithLMHead):
        def _build_fsdp_module(self, module: Any) -> Any:
            # A reference would be offloaded to pinned memory, which needs an accelerator.
            forward_only = self.engine_config.forward_only
            object.__setattr__(self.engine_config, "forward_only", False)
            try:
                return super()._build_fsdp_module(module)
            finally:
                object.__setattr__(self.engine_config, "forward_only", forward_only)


def _no_trl(_: Any) -> None:
    from verl.models.transformers import monkey_patch

    # Where TRL is installed beside it, verl 0.9.1 imports a value head that TRL 1.16 no longer has.
    monkey_patch.is_trl_available = lambda: False


def _rollout(_: Any) -> None:
    from verl.workers.rollout import base

    base._ROLLOUT_REGISTRY["cpu", "async"] = "engines.verl.support.server.Adapter"


def _replica(_: Any) -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def load() -> Any:
        from engines.verl.support.server import Replica

        return Replica

    RolloutReplicaRegistry.register("cpu", load)


wrapt.register_post_import_hook(_gloo, "verl.utils.distributed")
wrapt.register_post_import_hook(_engine, "verl.workers.engine")
wrapt.register_post_import_hook(_no_trl, "verl.models.transformers.monkey_patch")
wrapt.register_post_import_hook(_rollout, "verl.workers.rollout.base")
wrapt.register_post_import_hook(_replica, "verl.workers.rollout.replica")
import tokenpo.engines.verl.plugin  # noqa: E402, F401 - where the package is on the path but not installed


def _turns(_: Any) -> None:
    import engines.verl.support.turns  # noqa: F401 - registers itself


wrapt.register_post_import_hook(_turns, "verl.trainer.ppo.v1")
