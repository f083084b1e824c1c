"""`TokenPOConfig`: TRL's `GRPOConfig`, where a method may replace the settings of TRL's own loss."""

from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar

from trl import GRPOConfig as Theirs  # pyright: ignore

from ...base.errors import TokenPOError, refuse
from ...core.on_policy import KLHold
from .settings import faults

DEFAULTS = {
    name: spec.default if spec.default_factory is MISSING else spec.default_factory()
    for name, spec in Theirs.__dataclass_fields__.items()
}


def setting(default: Any, words: str) -> Any:
    return field(default=default, metadata={"help": words})


@dataclass
class TokenPOConfig(Theirs):
    """TRL's settings and the method; docs/trl.md lists how TRL's own settings are treated.

    Raises:
        Unsupported: a setting of TRL's own loss was changed, or two settings contradict each other.
        TokenPOError: `method_options` or the settings of a held KL that do not fit.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*Theirs._VALID_DICT_FIELDS, "method_options"]

    method: str | None = setting(None, "Name of the method; None: the one that computes TRL's own loss.")
    method_options: dict[str, Any] | str | None = setting(
        None, "Keywords of the method, as a dict or a JSON string: '{\"low\": 0.1}'."
    )
    dynamic_sampling: bool = setting(False, "Drop groups whose rewards are all equal, and draw others.")
    max_extra_batches: int = setting(3, "How often dynamic sampling may draw anew for one rollout batch.")
    fused_objective: bool | None = setting(
        None,
        "Compute the loss together with the model's head, where its logits are nothing but the head's product; False "
        "never does, None only on a CPU.",
    )
    kept_tokens: bool = setting(
        False, "Take probabilities over the tokens that top_p, top_k and min_p keep, in transformers' own generation."
    )
    ratio_tolerance: float | None = setting(
        None,
        "How far the log-probabilities of two passes over the same tokens may lie apart before the first update, nats, "
        "the mean over tokens; None is 0.05.",
    )
    kl_target: float | None = setting(
        None, "Nats per token by which a rollout batch may move the policy; a factor on TRL's learning rate holds it."
    )
    kl_stop: float | None = setting(
        None, "Nats per token before an optimiser step that ends its rollout batch; None: twice kl_target."
    )
    trace_every: int = setting(10, "Rollout batches between traces of single tokens for the report; 0: none.")
    trace_rollouts: int = setting(4, "Responses of one trace.")
    rollouts_every: int = setting(0, "Rollout batches between whole ones in tokenpo/rollouts, for `tokenpo explain`.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.method_options, str):
            raise TokenPOError(
                f"TokenPOConfig.method_options = {self.method_options!r} is no JSON object: write '{{\"low\": 0.1}}'"
            )
        refuse(faults(self, DEFAULTS))
        self.kl_hold()

    def kl_hold(self) -> KLHold | None:
        """The controller of a rollout batch's KL; None without `kl_target` and `kl_stop`."""
        return KLHold.of(self.kl_target, self.kl_stop)
