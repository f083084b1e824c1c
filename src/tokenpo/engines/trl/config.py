"""`TokenPOConfig`: TRL's `GRPOConfig` with a method in place of the settings of TRL's own loss."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar

from transformers import TrainingArguments
from trl import GRPOConfig  # pyright: ignore

from ...base.errors import TokenPOError, Unsupported
from .fields import KNOWN, REFUSED, remedy
from .objective import CORRECTIONS

# Keywords of what samples, which TRL takes from generation_kwargs rather than from a setting: that setting.
OVERRIDING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_completion_length",
    "max_tokens": "max_completion_length",
}
# Those that would make every response of a group the same, and what leaves them different.
SAMPLING = {"do_sample": True, "num_beams": 1}


@dataclass
class TokenPOConfig(GRPOConfig):
    """TRL's settings, and which method trains.

    Settings of TRL's own loss must stay as they are: another value is refused, naming what says the same here. `beta`
    and `use_bias_correction_kl` keep their meaning, a k3 penalty on leaving the reference model, times the ratio by
    default, and go with every method.

    Raises:
        Unsupported: a setting of TRL's own loss or one that is not known here was changed, or generation_kwargs says
            another thing than a setting.
        TokenPOError: a value out of range.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "method_options"]

    method: str = field(default="grpo", metadata={"help": "Name of the method; `tokenpo methods` lists them."})
    method_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Keywords of the method, as a dict or a JSON string: '{\"low\": 0.1}'."}
    )
    dynamic_sampling: bool = field(
        default=False, metadata={"help": "Drop groups whose rewards are all equal, and draw others."}
    )
    max_extra_batches: int = field(
        default=3, metadata={"help": "How often dynamic sampling may draw anew for one rollout batch."}
    )
    minibatch_by: str = field(
        default="rows",
        metadata={"help": "What an optimiser step takes of a rollout batch: shuffled 'rows', or whole 'groups'."},
    )
    fused_objective: bool | None = field(
        default=None,
        metadata={
            "help": "Compute the loss together with the model's head, where its logits are nothing but the head's "
            "product; False never does, None only on a CPU."
        },
    )
    ratio_tolerance: float | None = field(
        default=None,
        metadata={
            "help": "How far the log-probabilities of two passes over the same tokens may lie apart before the first "
            "update, nats, the mean over tokens; None is 0.05."
        },
    )
    trace_every: int = field(
        default=10, metadata={"help": "Rollout batches between traces of single tokens for the report; 0: none."}
    )
    trace_rollouts: int = field(default=4, metadata={"help": "Responses of one trace."})
    rollouts_every: int = field(
        default=0, metadata={"help": "Rollout batches between whole ones in tokenpo/rollouts, for `tokenpo explain`."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = GRPOConfig.__dataclass_fields__
        for name in REFUSED:
            value, usual = getattr(self, name, None), fields[name].default if name in fields else None
            if value != usual:
                raise Unsupported(
                    f"TokenPOConfig.{name} = {value!r} is a setting of TRL's own loss, which the method replaces: "
                    f"leave it at {usual!r} and {remedy(name, value)}"
                )
        _require_known(self)
        _require_same_sampling(self)
        if isinstance(self.method_options, str):
            raise TokenPOError(
                f"TokenPOConfig.method_options = {self.method_options!r} is no JSON object: write '{{\"low\": 0.1}}'"
            )
        if self.minibatch_by not in ("rows", "groups"):
            raise TokenPOError(f"TokenPOConfig.minibatch_by = {self.minibatch_by!r} must be 'rows' or 'groups'")
        if (mode := self.vllm_importance_sampling_mode) not in CORRECTIONS:
            raise TokenPOError(
                f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r} must be one of {', '.join(CORRECTIONS)}"
            )
        if self.ratio_tolerance is not None and not self.ratio_tolerance > 0:
            raise TokenPOError(f"TokenPOConfig.ratio_tolerance = {self.ratio_tolerance} must be above 0")
        for name in ("max_extra_batches", "trace_every", "trace_rollouts", "rollouts_every"):
            if getattr(self, name) < 0:
                raise TokenPOError(f"TokenPOConfig.{name} = {getattr(self, name)} must not be negative")


def _require_known(args: TokenPOConfig) -> None:
    """Raises Unsupported where a field is set that TRL did not have when this adapter was written.

    Nobody has looked whether it reaches the loss.
    """
    own = GRPOConfig.__dataclass_fields__.keys() - TrainingArguments.__dataclass_fields__.keys()
    for name in sorted(own - KNOWN):
        value, spec = getattr(args, name), GRPOConfig.__dataclass_fields__[name]
        usual = spec.default if spec.default_factory is MISSING else spec.default_factory()
        if value != usual:
            raise Unsupported(
                f"TokenPOConfig.{name} = {value!r} is a field of the installed TRL that tokenpo does not know: leave "
                f"it at {usual!r}, or install trl 1.16"
            )


def _require_same_sampling(args: TokenPOConfig) -> None:
    """Raises Unsupported where TRL would sample by generation_kwargs, and the trainer go by the setting."""
    keywords: Any = args.generation_kwargs or {}
    for key, name in OVERRIDING.items():
        setting = getattr(args, name)
        if key in keywords and keywords[key] != setting:
            raise Unsupported(
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} is not the {name} = {setting!r} that "
                f"the trainer goes by: leave it out, and set TokenPOConfig.{name}"
            )
    for key, usual in SAMPLING.items():
        if keywords.get(key, usual) != usual:
            raise Unsupported(
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} draws no samples of the policy, so that "
                f"a group has nothing to compare: leave it at {usual!r}"
            )
