"""The temperature of TRL's draws: one constant, or the method's rule per token, which a logits processor applies.

TRL's own vLLM engine is created with ours, a server must be started with it; requests carry the objective's memory.
"""

import copy
import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import LogitsProcessor, LogitsProcessorList

from ...base.errors import Unsupported, present, refuse
from ...core.head.kept import Cut, keep_only_, trimmed
from ...core.head.softmax import entropy_of, softmax_parts
from ...core.objective import Objective
from ...core.on_policy import FULL_TOLERANCE, HALF_TOLERANCE
from ...core.request_temperature import PROCESSOR, TemperatureRule, extra_args
from . import moved
from .config import TokenPOConfig
from .forward import KEPT, replaced
from .settings import contradicted, cut_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Temperature:
    """A draw at TRL's own, constant temperature."""

    trainer: Any
    base: float
    rule: TemperatureRule | None = None  # (entropy of a token's logits at the base temperature, base) -> temperature

    def sampling(self) -> AbstractContextManager[None]:
        """Context manager in which TRL samples at this temperature."""
        return nullcontext()

    def of(self, entropy: Tensor) -> Tensor:
        """[M, T] temperature of each token, from the entropy [M, T] (nats) of its logits at the base temperature."""
        return torch.full_like(entropy, self.base) if self.rule is None else self.rule(entropy, self.base)

    def kept(self, output: Mapping[str, Any]) -> dict[str, Tensor]:
        """What to add to TRL's output: the tokens that the sampler kept, if they are recorded."""
        return {}

    def check(self, output: Mapping[str, Any], rows: Mapping[str, Tensor]) -> None:
        """Compares vLLM's log-probabilities of a run's first draw with the trainer's; later the two drift apart slowly.

        Raises:
            Unsupported: they differ by more than their precision, and no correction is on; with one it is a warning.
        """
        trainer, args = self.trainer, self.trainer.args
        first = args.use_vllm and trainer.current is None and "rollout_logprob" in rows
        if not first or self.rule or any(contradicted(args)):  # these change the probabilities on purpose
            return
        mean, tolerance = distance(trainer, rows, "rollout_logprob")
        if mean <= tolerance:
            return
        objective = trainer.policy_objective
        difference = (
            f"{objective.name}: vLLM's log-probabilities are {mean:.2g} nats a token from those of TRL's trainer, "
            f"above {tolerance:g}, so that it does not sample the policy that is trained: let both compute in one "
            "precision (a server with --dtype float32 --logprobs-mode processed_logprobs for a trainer in float32, or "
            "bf16=True for one in bfloat16), or set a larger ratio_tolerance"
        )
        if "rollout_logprob" not in objective.needs:
            raise Unsupported(f"{difference}; vllm_importance_sampling_correction=True would weigh for it")
        logger.warning(f"{difference}; vllm_importance_sampling_correction weighs for it")


def _processed(trainer: Any, processor: LogitsProcessor, **changes: float) -> AbstractContextManager[None]:
    """Context manager: generation asks the processor last, with these changes of TRL's generation config."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    original = model.generate

    def generate(*args: Any, generation_config: Any, logits_processor: Any = None, **named: Any) -> Any:
        config = copy.deepcopy(generation_config)
        config.update(**changes)
        processors = LogitsProcessorList([*(logits_processor or ()), processor])
        return original(*args, generation_config=config, logits_processor=processors, **named)

    return replaced(model, "generate", generate)


class RuleProcessor(LogitsProcessor):
    """Scales logits so that generation's division by the base temperature leaves them at the rule's temperature."""

    def __init__(self, rule: TemperatureRule, base: float) -> None:
        self.rule, self.base, self.called = rule, base, False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.called = True
        temperature = self.rule(entropy_of(softmax_parts(scores, 1.0 / self.base)), self.base)
        return scores * (self.base / temperature.to(scores.dtype))[:, None]


class CutProcessor(LogitsProcessor):
    """Leaves the tokens that a cut keeps at the base temperature, and records them for every step."""

    def __init__(self, cut: Cut, base: float) -> None:
        self.cut, self.base = cut, base
        self.steps: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ids, kept = self.cut.of(softmax_parts(scores, 1.0 / self.base).p)
        self.steps.append(trimmed(ids.int().masked_fill(~kept, -1)))
        return keep_only_(scores.clone(), self.steps[-1])


class Kept(Temperature):
    """Top-p, top-k and min-p, applied by our logits processor in place of transformers' own."""

    @functools.cached_property
    def processor(self) -> CutProcessor:
        return CutProcessor(cut_of(self.trainer.args), self.base)

    def sampling(self) -> AbstractContextManager[None]:
        vocabulary = self.trainer.accelerator.unwrap_model(self.trainer.model_wrapped).get_output_embeddings().weight
        refuse([text] if (text := self.processor.cut.too_many(len(vocabulary))) else [])
        return _processed(self.trainer, self.processor, top_p=1.0, top_k=0, min_p=0.0)

    def kept(self, output: Mapping[str, Any]) -> dict[str, Tensor]:
        """The kept tokens of the completions [M, T, K], -1 last."""
        steps, (count, width) = self.processor.steps, output["completion_ids"].shape
        if len(steps) < width or any(len(x) != count for x in steps):
            raise moved("transformers' generation was not asked once, with our logits processor, for all rows")
        widest = max(x.shape[1] for x in steps)
        table = torch.stack([pad(x, (0, widest - x.shape[1]), value=-1) for x in steps[:width]], 1)
        return {KEPT: table.masked_fill(output["completion_mask"][..., None] == 0, -1)}


class Generated(Temperature):
    """The rule applied by a logits processor in transformers' generation."""

    @functools.cached_property
    def processor(self) -> RuleProcessor:
        return RuleProcessor(present(self.rule, "the rule of the temperature"), self.base)

    def sampling(self) -> AbstractContextManager[None]:
        return _processed(self.trainer, self.processor)

    def check(self, output: Mapping[str, Any], rows: Mapping[str, Tensor]) -> None:
        """Raises Unsupported if generation did not call the processor."""
        if not self.processor.called:
            raise moved("transformers' generation was not asked with our logits processor")


@dataclass(frozen=True)
class Served(Temperature):
    """The rule applied by vLLM; every request carries `numbers`, the rule's constants and memory."""

    numbers: Mapping[str, float] = field(default_factory=dict)

    def sampling(self) -> AbstractContextManager[None]:
        generation = self.trainer.vllm_generation
        before: Mapping[str, Any] = generation.generation_kwargs
        key = "extra_args" if generation.mode == "colocate" else "vllm_xargs"
        return replaced(generation, "generation_kwargs", {**before, key: {**(before.get(key) or {}), **self.numbers}})


def distance(trainer: Any, rows: Mapping[str, Tensor], other: str) -> tuple[float, float]:
    """(mean |difference| per token of all ranks between log-probabilities and the old ones, largest allowed), nats."""
    mask, apart = rows["mask"], (rows[other] - rows["old_logprob"]).abs().float()
    local = torch.stack([mask.sum().float(), apart.where(mask, 0.0).sum()])
    tokens, total = trainer.accelerator.gather(local[None]).sum(0).tolist()
    default = FULL_TOLERANCE if _in_float32(trainer, trainer.args) else HALF_TOLERANCE
    return total / max(tokens, 1.0), default if trainer.args.ratio_tolerance is None else trainer.args.ratio_tolerance


def of_draw(trainer: Any) -> Temperature:
    """The method's rule if it has one and the trainer trains; evaluations are drawn at the base temperature."""
    base, objective, state = float(trainer.temperature), trainer.policy_objective, trainer.learner.memory
    adaptive = objective.temperature
    if trainer.args.kept_tokens:
        return Kept(trainer, base)
    # vLLM draws the first rollout batch at one temperature: there are no numbers to send it yet.
    if adaptive is None or not trainer.model.training or (trainer.use_vllm and not state[adaptive]):
        return Temperature(trainer, base)
    rule = functools.partial(adaptive, numbers=state[adaptive])
    if trainer.use_vllm:
        return Served(trainer, base, rule, extra_args(objective, state))
    return Generated(trainer, base, rule)


@contextmanager
def with_vllm(trainer: Any, objective: Objective, args: TokenPOConfig) -> Iterator[None]:
    """Context manager: a vLLM engine that TRL makes inside gets our logits processor, if the temperature is adaptive,
    and float32, if the trainer computes in it (vLLM's default is half precision)."""
    from trl.generation import vllm_generation as home  # pyright: ignore

    original = getattr(home, "LLM", None)
    # Without vLLM the name is absent, and TRL's own error names what to install.
    if not args.use_vllm or args.vllm_mode != "colocate" or original is None:
        yield
        return

    def engine(*arguments: Any, **keywords: Any) -> Any:
        if objective.temperature is not None:
            keywords["logits_processors"] = [*(keywords.get("logits_processors") or ()), PROCESSOR]
        if _in_float32(trainer, args) and not keywords.get("quantization"):
            keywords.setdefault("dtype", "float32")
        return original(*arguments, **keywords)

    with replaced(home, "LLM", engine):
        yield


def _in_float32(trainer: Any, args: TokenPOConfig) -> bool:
    return trainer.model.dtype == torch.float32 and not (args.bf16 or args.fp16)
