"""TRL's own loss: its GRPO trainer without a model, called as its training loop calls it.

TRL computes with settings and counts in torch's default dtype, which is float64 here: remaining differences from the
reference implementation are differences of meaning, not of rounding.
"""

# pyright: reportMissingImports=false
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from host_settings import TRANSLATED
from torch import Tensor
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from . import EMPTY, PIECES, Compared, Step, once


class Ranks(Accelerator):
    """An accelerator of one process that reports `ranks` processes."""

    ranks = 1

    @property
    def num_processes(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.ranks


class Trainer(GRPOTrainer):
    """TRL's trainer made from settings only; an attribute that it lacks is the setting of that name."""

    def __init__(self, **settings: Any) -> None:
        self.args = GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **settings)
        self.accelerator = Ranks(cpu=True)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self._metrics = {"train": defaultdict(list)}
        self.epsilon_low = self.args.epsilon
        self.epsilon_high = self.args.epsilon if self.args.epsilon_high is None else self.args.epsilon_high
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self.entropy_coef, self.aux_loss_enabled = self.args.entropy_coef, False
        self._entropy_bonus_enabled = self.entropy_coef != 0 or self.args.use_adaptive_entropy
        self._last_world_entropy, self._entropy_window_stats = float("inf"), None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.args, name)

    def _get_per_token_logps_and_entropies(self, model: Any, *rows: Any, **how: Any) -> tuple:
        return model.logprob, model.entropy, None


@contextmanager
def float64() -> Iterator[None]:
    """Context manager: torch's default dtype is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def of_rows(trainer: Trainer, fields: dict[str, Tensor], logprob: Tensor, entropy: Tensor, rows: Any) -> Tensor:
    """TRL's loss of one micro-batch, with graph.

    Args:
        fields: TRL's inputs of every row, and `num_items_in_batch`; those that a trainer without a model needs are
            filled in.
        logprob, entropy: [N, T] of the current policy.
        rows: of the micro-batch.
    """
    mask = fields["completion_mask"]
    text = {"prompt_ids": mask.new_zeros(len(mask), 1), "prompt_mask": mask.new_ones(len(mask), 1)}
    inputs = {"completion_ids": torch.zeros_like(mask), **text, **fields}
    inputs = {name: x[rows] if x.dim() else x for name, x in inputs.items()}
    return trainer.compute_loss(SimpleNamespace(logprob=logprob[rows], entropy=entropy[rows]), inputs)


def loss(step: Step, **settings: Any) -> Tensor:
    """The loss of a step, whose gradient is averaged over ranks."""
    old, written = step.rollouts, step.written
    with float64():
        pieces = len(step.ranks[0])
        trainer = Trainer(gradient_accumulation_steps=pieces, max_completion_length=step.length, **settings)
        trainer.accelerator.ranks = len(step.ranks)
        fields = {
            "completion_mask": (written & old.mask.any(1, keepdim=True)).long(),
            "tool_mask": (old.mask | ~written).long(),
            "advantages": step.advantage,
            "old_per_token_logps": old.old_logprob,
            "ref_per_token_logps": old.need("ref_logprob"),
            "num_items_in_batch": old.mask.sum(),
        }
        policy = step.policy.logprob, step.policy.need("entropy")
        losses = [of_rows(trainer, fields, *policy, rows) for rank in step.ranks for rows in rank]
    return torch.stack(losses).sum() / len(step.ranks)


_EMPTY = {EMPTY: "A response without tokens counts in the mean over responses."}
_BY_TYPE: dict[str, dict[str, str]] = {"grpo": _EMPTY, "dr_grpo": _EMPTY, "sapo": _EMPTY, "luspo": _EMPTY} | {
    "bnpo": dict.fromkeys(PIECES, "Each micro-batch divides by its own tokens, so that the split changes the loss.")
}
COMPARED = (
    *(
        Compared(row.method, row.options, row.theirs, _BY_TYPE.get(row.theirs.get("loss_type", ""), {}))
        for row in TRANSLATED
        # These depend on earlier steps and on tokens of other ranks.
        if not row.theirs.keys() & {"use_adaptive_entropy", "top_entropy_quantile"}
    ),
    once("dapo", {}, {}, "Both clips are 0.2, without a dual clip; DAPO's recipe has 0.2/0.28 and 10."),
    once(
        "cispo", {}, {"loss_type": "cispo"},
        "`epsilon_high` is the cap itself and falls back on 0.2; the paper caps at 1 + 0.28.",
    ),
    once(
        "gspo", {}, {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        "A response's ratio is clipped at 0.2 unless told; the paper has 3e-4 and 4e-4.",
    ),
    once(
        "dapo", {"dual": 1.1}, {"epsilon_high": 0.28, "delta": 1.1},
        "`delta` below the clip also holds right tokens back, which a dual clip never does.",
    ),
)  # fmt: skip
