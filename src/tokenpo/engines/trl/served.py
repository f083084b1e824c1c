"""Adaptive temperature where vLLM samples for TRL.

our trainer -> the vLLM that TRL makes gets our logits processor; a server must have been started with it
every draw  -> each request carries the numbers of the objective's memory
afterwards  -> vLLM reports no temperatures: they follow from the entropies of one forward pass at the base temperature
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import broadcast_object_list  # pyright: ignore[reportMissingImports]
from torch import Tensor

from ...base.errors import Unsupported
from ...core.objective import Objective, State
from ...core.types import Policy
from ..vllm import PROCESSOR, extra_args
from .config import TokenPOConfig
from .contract import moved

# What may stand in generation_kwargs: it changes no probability.
_HARMLESS = ("seed", "stop", "stop_token_ids", "include_stop_str_in_output", "extra_args", "vllm_xargs")
# Mean nats a token between log-probabilities at the two temperatures, below which nothing can be told apart.
_TELLING = 1e-3


def contradicted(args: TokenPOConfig) -> str | None:
    """The setting under which vLLM would sample from other logits than the trainer sees, with what to do about it.

    The temperature of a token would then be another than the one that the trainer works out.
    """
    for name, usual in (("top_p", (1.0,)), ("top_k", (0, -1, None)), ("min_p", (0.0, None))):
        if getattr(args, name) not in usual:
            return f"{name} = {getattr(args, name)}: leave it at {usual[0]}"
    if args.vllm_structured_outputs_regex is not None:
        return "vllm_structured_outputs_regex: leave it out"
    for name in args.generation_kwargs or {}:
        if name not in _HARMLESS:
            return f"generation_kwargs[{name!r}]: leave it out"
    return None


@contextmanager
def with_processor(objective: Objective, args: TokenPOConfig) -> Iterator[None]:
    """While it lasts, a vLLM that TRL makes in this process gets our logits processor: TRL hands it none.

    Raises:
        Unsupported: TRL made its vLLM in another way.
    """
    from trl.generation import vllm_generation as home  # pyright: ignore

    original = getattr(home, "LLM", None)
    # Without vLLM the name is absent, and TRL says itself what to install.
    if objective.temperature is None or not args.use_vllm or args.vllm_mode != "colocate" or original is None:
        yield
        return
    engines: list[Any] = []

    def engine(*arguments: Any, **keywords: Any) -> Any:
        keywords["logits_processors"] = [*(keywords.get("logits_processors") or ()), PROCESSOR]
        engines.append(original(*arguments, **keywords))
        return engines[-1]

    home.LLM = engine
    try:
        yield
    finally:
        home.LLM = original
    if not engines:
        raise moved("its vLLM was not made through trl.generation.vllm_generation.LLM")


def require_server(trainer: Any, objective: Objective) -> None:
    """Raises Unsupported, in every process, where the server was not started with our logits processor.

    Such a server ignores the numbers of a request without a word.
    """
    if objective.temperature is None or not trainer.use_vllm or trainer.vllm_mode != "server":
        return
    processors: list[Any] = [None]
    if trainer.accelerator.is_main_process:
        processors[0] = trainer.vllm_generation.vllm_client.get_server_info().get("model_config", {})
        processors[0] = [str(name) for name in processors[0].get("logits_processors") or ()]
    broadcast_object_list(processors, from_process=0)
    if not any(PROCESSOR.partition(":")[2] in name for name in processors[0]):
        raise Unsupported(
            f"{objective.name} adapts the temperature from token to token, and the vLLM server of TRL's trainer at "
            f"{trainer.args.vllm_server_base_url or trainer.args.vllm_server_host} runs without tokenpo's logits "
            f"processor: start it with --logits-processors {PROCESSOR} --logprobs-mode processed_logprobs, where "
            "tokenpo is installed"
        )


@dataclass
class Served:
    """The adaptive temperature of one draw by vLLM.

    Args:
        trainer: TRL's, whose vLLM draws.
        objective: whose temperature it is.
        state: what its memories hold.
        base: vLLM's temperature.
    """

    trainer: Any
    objective: Objective
    state: State
    base: float
    _plain: Policy | None = field(default=None, init=False)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """While it lasts, every request that TRL makes carries the numbers."""
        generation = self.trainer.vllm_generation
        before: Mapping[str, Any] = generation.generation_kwargs
        key = "extra_args" if generation.mode == "colocate" else "vllm_xargs"
        numbers = {**(before.get(key) or {}), **extra_args(self.objective, self.state)}
        generation.generation_kwargs = {**before, key: numbers}
        try:
            yield
        finally:
            generation.generation_kwargs = before

    @torch.no_grad()
    def tokens(self, output: Mapping[str, Any]) -> Tensor:
        """[M, T] at which the tokens were sampled, by the rule of the trainer's own entropies at the base."""
        trainer, rule = self.trainer, self.objective.temperature
        rows = trainer.args.per_device_train_batch_size
        self._plain = plain = trainer.forward_passes.fused(trainer.model, output, rows)
        assert rule is not None
        assert plain.entropy is not None
        return rule(plain.entropy.float(), self.base, self.state[rule])

    def check(self, facts: Mapping[str, Tensor]) -> None:
        """What vLLM reports must be nearer to the adapted temperature than to the base one, over all ranks.

        Raises:
            Unsupported: it is not: whatever sampled did not apply the numbers.
        """
        if "rollout_logprob" not in facts:
            raise moved("GRPOTrainer keeps no log-probabilities of vLLM's")
        assert self._plain is not None  # `tokens` comes first
        mask, adapted, base = facts["mask"], facts["old_logprob"], self._plain.logprob.float()
        reported = facts["rollout_logprob"]
        apart = [(adapted - base).abs(), (reported - adapted).abs(), (reported - base).abs()]
        local = torch.stack([mask.sum().float(), *(x.where(mask, 0.0).sum() for x in apart)])
        tokens, shift, to_adapted, to_base = self.trainer.accelerator.gather(local[None]).sum(0).tolist()
        if shift > _TELLING * tokens and to_adapted >= to_base:
            raise Unsupported(
                f"{self.objective.name}: the log-probabilities that vLLM reports are {to_adapted / tokens:.2g} nats a "
                f"token from those at the adapted temperature and {to_base / tokens:.2g} from those at {self.base:g}: "
                "its logits processor does not run; update vLLM or TRL to the versions in docs/vllm.md, or switch the "
                "adaptive temperature off"
            )
