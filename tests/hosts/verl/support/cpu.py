"""verl on a machine without an accelerator: test support, never product.

Loaded in every process by verl itself, with VERL_USE_EXTERNAL_MODULES naming this module and VERL_PLATFORM=cpu. It
adds a platform, lets the FSDP2 engine run on the CPU with gloo, and registers a small rollout server (server.py).
"""

import contextlib
import functools
from types import ModuleType
from typing import Any

import torch
import wrapt
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(ModuleType):
    """verl's uses of torch.cuda; a CPU answers with nothing or zero."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0

    def mem_get_info(self) -> tuple[int, int]:
        return 0, 0

    def get_device_name(self) -> str:
        return "CPU"

    get_rng_state = staticmethod(torch.get_rng_state)
    set_rng_state = staticmethod(torch.set_rng_state)


def _answers(value: Any = None) -> Any:
    return lambda self, *_: value


@PlatformRegistry.register("cpu")
class CpuPlatform(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _Device("cpu_device")
    is_available, device_count, current_device = _answers(True), _answers(1), _answers("cpu")
    set_device = synchronize = set_allocator_settings = empty_cache = _answers()
    profiler_start = profiler_stop = cudart = _answers()
    manual_seed = manual_seed_all = lambda self, seed: torch.manual_seed(seed)
    get_device_capability = _answers((None, None))
    communication_backend_name = _answers("gloo")
    visible_devices_envvar = _answers("CUDA_VISIBLE_DEVICES")
    nvtx_range = _answers(contextlib.nullcontext())
    ray_resource_name, ray_noset_envvars, is_ipc_supported = _answers("GPU"), _answers([]), _answers(False)


def _gloo(_: Any) -> None:
    from verl.utils import distributed

    # verl's own default names the CPU twice, for gloo and for the accelerator.
    stock = distributed.initialize_global_process_group_ray
    distributed.initialize_global_process_group_ray = functools.partial(stock, backend="gloo")


def _engine(_: Any) -> None:
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

    class Unpinned:
        def _build_fsdp_module(self, module: Any) -> Any:
            # A reference would be offloaded to pinned memory, which needs an accelerator.
            config: Any = self.engine_config  # pyright: ignore[reportAttributeAccessIssue]
            forward_only = config.forward_only
            object.__setattr__(config, "forward_only", False)
            try:
                return super()._build_fsdp_module(module)  # pyright: ignore[reportAttributeAccessIssue]
            finally:
                object.__setattr__(config, "forward_only", forward_only)

    for kind, engine in (("language_model", FSDPEngineWithLMHead), ("value_model", FSDPEngineWithValueHead)):
        register = EngineRegistry.register(model_type=kind, backend=["fsdp2"], device="cpu")
        register(type(engine.__name__, (Unpinned, engine), {}))


def _no_trl(_: Any) -> None:
    from verl.models.transformers import monkey_patch

    # Where TRL is installed beside it, verl 0.9.1 imports a value head that TRL 1.16 no longer has.
    monkey_patch.is_trl_available = lambda: False


def _values(module: Any) -> None:
    from transformers import AutoModelForTokenClassification as Auto

    def load(local_path: str, torch_dtype: torch.dtype, model_config: Any, **_: Any) -> Any:
        # verl's own asks for flash attention, which needs an accelerator.
        return Auto.from_pretrained(local_path, dtype=torch_dtype, config=model_config, attn_implementation="sdpa")

    module.load_valuehead_model = load


def _buffer(_: Any) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    # verl's own 2 seconds are most of a step here.
    ReplayBuffer.__init__ = functools.partialmethod(ReplayBuffer.__init__, poll_interval=0.05)


def _rollout(_: Any) -> None:
    from verl.workers.rollout import base

    base._ROLLOUT_REGISTRY["cpu", "async"] = "hosts.verl.support.server.Adapter"


def _replica(_: Any) -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def load() -> Any:
        from hosts.verl.support.server import Replica

        return Replica

    RolloutReplicaRegistry.register("cpu", load)


def _turns(_: Any) -> None:
    import hosts.verl.support.turns  # noqa: F401 - registers itself


for action, module in (
    (_gloo, "verl.utils.distributed"),
    (_engine, "verl.workers.engine"),
    (_no_trl, "verl.models.transformers.monkey_patch"),
    (_rollout, "verl.workers.rollout.base"),
    (_replica, "verl.workers.rollout.replica"),
    (_buffer, "verl.trainer.ppo.v1.replay_buffer"),
    (_values, "verl.utils.model"),
):
    wrapt.register_post_import_hook(action, module)
import tokenpo.hosts.verl.plugin  # noqa: E402, F401 - where the package is on the path but not installed

wrapt.register_post_import_hook(_turns, "verl.trainer.ppo.v1")  # after the plug-in's own
