"""Log-probability, entropy and loss of the completions in a micro-batch of TRL.

They are computed inside the model's head, if it is plain and whole in every process; by TRL's own pass, which never
holds all logits; or from all logits, for the entropy drift. A trainer scores old and new
policy in the same way: at equal weights the numbers must be equal, because |log ratio| has a kink there.
"""

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...base.errors import NotFinite, Unsupported, present
from ...core.head.fused import Fused
from ...core.head.projection import probe_head
from ...core.head.token_stats import TokenStats, stats_from_logits, token_stats
from ...core.objective import Objective
from ...core.ops.known_gradient import known
from ...core.ops.masked import unpacked
from ...core.ops.ratio import k3
from ...core.parts import ReferenceKl, Reweighted, walk
from ...core.types import Batch, Loss, Policy
from ...core.update import Update

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# Key of TRL's inputs for the row numbers in the rollout batch.
ROW = "tokenpo_row"
# Key for the tokens that the sampler kept [M, T, K] (`Rollouts.kept_ids`); absent if it kept all, or is not known.
KEPT = "tokenpo_kept"

# Devices on which the loss is computed inside the head by default, fixed so that runs of one seed are the same.
IN_HEAD_BY_DEFAULT = frozenset({"cpu"})
_TEXT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


@dataclass(frozen=True)
class Forward:
    trainer: Any
    in_head: bool  # score inside the model's head
    drift: bool  # compute `Policy.entropy_drift` too
    entropy_grad: bool  # keep the graph of the entropy

    @staticmethod
    def of(trainer: Any, objective: Objective) -> "Forward":
        """Must be called before the model is wrapped."""
        setting = trainer.args.fused_objective
        use_head = trainer.accelerator.device.type in IN_HEAD_BY_DEFAULT if setting is None else setting
        in_head = use_head and not trainer.aux_loss_enabled and has_whole_plain_head(trainer)
        if setting and not in_head:
            logger.warning("fused_objective=True, but this model has no whole plain head: it takes TRL's own passes")
        return Forward(trainer, in_head, "entropy_drift" in objective.needs, objective.entropy_gradient)

    def policy(self, model: Any, inputs: Mapping[str, Any], rows: int | None = None) -> Policy:
        """Log-probability and entropy [M, T] of the completions, with graph unless gradients are off.

        Args:
            inputs: TRL's, with a multimodal model's own.
            rows: rows per pass; None scores all at once.
        """
        if not self.drift and not self.in_head and KEPT not in inputs:
            return self.by_trl(model, inputs, rows)[0]
        if "pixel_values" in inputs:
            raise Unsupported(
                f"{self.trainer.policy_objective.name} takes a pass with logits for entropy_drift, which TRL has for "
                "text only: choose another method for this model"
            )
        score, count = self._by_head if self.in_head else self._by_logits, len(inputs["completion_ids"])
        pieces = []
        for start in range(0, count, rows or count):
            at = slice(start, start + (rows or count))
            pieces.append(score(model, {name: inputs[name][at] for name in (*_TEXT, KEPT) if name in inputs}))
        logprob, entropy, drift = (None if c[0] is None else torch.cat(c) for c in zip(*pieces, strict=True))
        return Policy(logprob, entropy, drift)  # pyright: ignore[reportArgumentType]

    def by_trl(
        self, model: Any, inputs: Mapping[str, Any], rows: int | None, *, aux: bool = False
    ) -> tuple[Policy, Tensor | None]:
        """Like `policy`, by TRL's own pass, for any model that TRL has prepared; with its `aux_loss`, if asked for."""
        score = self.trainer._get_per_token_logps_and_entropies
        logprob, entropy, aux_loss = score(
            model=model,
            **texts(inputs),
            logits_to_keep=inputs["completion_ids"].size(1),
            batch_size=rows,
            compute_entropy=True,
            compute_aux_loss=aux,
            **{name: inputs[name] for name in inspect.signature(score).parameters if name in inputs},  # image inputs
        )
        return Policy(logprob, entropy if self.entropy_grad else entropy.detach()), aux_loss

    def _by_head(self, model: Any, part: Mapping[str, Tensor]) -> list[Tensor | None]:
        """The first three of `TokenStats` [M, T], zero where the completion has ended."""
        mask, ids = part["completion_mask"].bool(), part["completion_ids"]
        kept = part[KEPT][mask] if KEPT in part else None

        def work(hidden: Tensor, head: nn.Linear) -> TokenStats:
            inputs = hidden[mask], head.weight, ids[mask], self.trainer.temperature
            return token_stats(*inputs, bias=head.bias, drift=self.drift, entropy_grad=self.entropy_grad, kept=kept)

        stats = head_work(self.trainer, model, part, work)
        return [None if x is None else unpacked(x, mask) for x in stats[:3]]

    def _by_logits(self, model: Any, part: Mapping[str, Tensor]) -> list[Tensor | None]:
        """Like `_by_head`, with values after the end of a completion too."""
        length = part["completion_ids"].shape[1]
        kept = "logits_to_keep" in inspect.signature(base_of(self.trainer).forward).parameters
        with self.trainer.accelerator.autocast():
            out = model(**texts(part), **({"logits_to_keep": length + 1} if kept else {}))
        stats = stats_from_logits(
            out.logits[:, -length - 1 : -1].flatten(0, 1),
            part["completion_ids"].flatten(),
            self.trainer.temperature,
            drift=self.drift,
            entropy_grad=self.entropy_grad,
            kept=part[KEPT].flatten(0, 1) if KEPT in part else None,
        )
        return [None if x is None else x.view(-1, length) for x in stats[:3]]


def has_whole_plain_head(trainer: Any) -> bool:
    """Whether logits are exactly hidden states times a head that every process holds; ask before the model is wrapped.

    False also for multimodal and compiled models, and for float16, whose loss scale would come after the gradients.
    """
    accelerator, model = trainer.accelerator, base_of(trainer)
    kind = accelerator.distributed_type.value
    if not (kind == "NO" or kind.startswith("MULTI_")) or trainer.args.torch_compile:
        return False
    if accelerator.mixed_precision == "fp16" or model.config.get_text_config() is not model.config:
        return False
    weight = getattr(model.get_output_embeddings(), "weight", None)
    ordinary = type(weight) is nn.Parameter and weight.dtype != torch.float16
    return ordinary and len({x.device for x in model.parameters()}) == 1 and probe_head(model)


def head_work(
    trainer: Any, model: Any, inputs: Mapping[str, Any], work: Callable[[Tensor, nn.Linear], Result]
) -> Result:
    """Runs a forward pass that returns `work(hidden, head)`; hidden [M, T, H] are the states that predict completions.

    Wrappers of the model (DDP, PEFT, autocast) see the head used where it usually is.
    """
    base, length = base_of(trainer), inputs["completion_ids"].shape[1]

    def forward(*args: Any, labels: Any = None, **named: Any) -> Result:
        return work(predicting(base, length, *args, **named), base.get_output_embeddings())

    with trainer.accelerator.autocast(), replaced(base, "forward", forward):
        return model(**texts(inputs))


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of an object and restores it at the end; one that came from the class is deleted again."""
    own = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def predicting(base: Any, length: int, *args: Any, **named: Any) -> Tensor:
    """[M, length, H], the final hidden states that predict the last `length` tokens."""
    hidden = base.base_model(*args, **{**named, "use_cache": False}).last_hidden_state
    return hidden[:, -length - 1 : -1]  # a token is predicted one place before it


def base_of(trainer: Any) -> Any:
    """The transformers model inside the trainer's wrappers."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def place(model: Any) -> None:
    """Gives a model with absolute positions those of its tokens; TRL hands over none, and padding would count."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner = getattr(whole, "base_model", whole)
    rotary = any("rotary" in type(part).__name__.lower() for part in inner.modules())
    if not rotary and "position_ids" in inspect.signature(inner.forward).parameters:
        inner.register_forward_pre_hook(_placed, with_kwargs=True)


def _placed(inner: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    mask, ids = named.get("attention_mask"), given[0] if given else named.get("input_ids")
    if named.get("position_ids") is None and mask is not None and ids is not None and mask.shape == ids.shape:
        named = {**named, "position_ids": (mask.long().cumsum(1) - 1).clamp(min=0)}
    return given, named


def texts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Prompts and completions joined as a model's inputs, [M, L] each."""
    return {
        "input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
    }


def padded(policy: Policy, width: int) -> Policy:
    """The policy of a micro-batch, padded to `width` tokens."""
    fields = {name: x for name, x in vars(policy).items() if x is not None}
    return Policy(**{name: pad(x, (0, width - x.shape[1])) for name, x in fields.items()})


@dataclass(frozen=True, eq=False)
class MicroLoss:
    """The loss of one rank's micro-batch; [M, T] tensors are as wide as the rollout batch."""

    value: Tensor  # with graph; a zero with graph if no row has a response token: every rank must run backward
    batch: Batch | None  # None in that case
    loss: Loss | None
    entropy: Tensor  # [M, T] of the current policy, detached, nats
    aux: Tensor | None = None  # TRL's load-balancing loss of a mixture of experts, with graph


def by_policy(forward: Forward, model: Any, inputs: Mapping[str, Any], update: Update | None) -> MicroLoss:
    """The loss from log-probabilities with graph; `update` is None if no row has a response token."""
    mask = None if update is None else update.of(inputs[ROW])[0].mask
    if forward.trainer.aux_loss_enabled:
        policy, aux = forward.by_trl(model, inputs, None, aux=True)
    else:
        policy, aux = forward.policy(model, inputs), None
    if update is None or mask is None or not mask.any():
        return MicroLoss(policy.logprob.nan_to_num().sum() * 0.0, None, None, policy.need("entropy").detach(), aux)
    policy = padded(policy, mask.shape[1])
    batch, loss = update.evaluate(policy, inputs[ROW])
    return MicroLoss(loss.value, batch, loss, policy.need("entropy").detach(), aux)


def in_head(forward: Forward, model: Any, inputs: Mapping[str, Any], update: Update | None) -> MicroLoss:
    """Like `by_policy`, computed inside the head, which must be whole and plain."""
    shape, device, teacher = inputs["completion_ids"].shape, inputs["completion_ids"].device, None
    if update is None:
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
    else:
        mask = update.of(inputs[ROW])[0].mask[:, : shape[1]]
        if update.objective.teacher_beta is not None:
            teacher = forward.trainer.teacher.head(inputs, mask)

    def work(hidden: Tensor, head: nn.Linear) -> tuple[Tensor, tuple[Batch, Fused] | None]:
        scored = hidden[mask]
        if update is None or not len(scored):
            graph = [x for x in (scored, head.weight, head.bias) if x is not None]
            return known(scored.new_zeros((), dtype=torch.float32), graph, [torch.zeros_like(x) for x in graph]), None
        batch, fused = update.evaluate_head(scored, head.weight, inputs[ROW], bias=head.bias, teacher=teacher)
        # The loss is an output of its own, because DDP looks for it there.
        return fused.loss.value, (batch, fused)

    value, made = head_work(forward.trainer, model, inputs, work)
    if made is None:
        return MicroLoss(value, None, None, torch.zeros(shape, device=device))
    batch, fused = made
    return MicroLoss(value, batch, fused.loss, fused.entropy)


def require_finite(update: Update, rows: Tensor, scored: MicroLoss) -> None:
    """Raises NotFinite for a loss that is NaN or infinite, naming the part that made it; call before backward."""
    value = float(scored.value.detach())
    if not math.isfinite(value):
        cause = update.culprit(present(scored.batch, "the batch of a loss").policy, rows)
        raise NotFinite(f"the loss of {update.objective.name} is {value} in a micro-batch of TRL's: {cause}")


@torch.no_grad()
def measured(accelerator: Any, scored: MicroLoss, update: Update | None) -> dict[str, float]:
    """TRL's metrics `entropy`, `clip_ratio/*` and `kl` over the micro-batches of all ranks; all ranks must call it."""
    batch, entropy = scored.batch, scored.entropy
    # Tokens; over tokens the sums of entropy, clipped below, clipped above and divergence; over responses the smallest
    # share clipped below and the largest share clipped above.
    local = entropy.new_tensor([0.0, 0.0, 0.0, 0.0, 0.0, math.inf, -math.inf], dtype=torch.float32)
    divergence = None
    if batch is not None and scored.loss is not None:
        mask, terms = batch.mask, scored.loss.terms
        clipped = terms["clipped"].bool() & mask
        below = clipped & (terms["ratio"] < 1)
        above = clipped & ~below
        divergence = _divergence(batch, update)
        length = mask.sum(1)
        shares = [(side.sum(1) / length)[length > 0] for side in (below, above)]
        sums = [mask, entropy.where(mask, 0.0), below, above, local[:0] if divergence is None else divergence]
        local = torch.stack([*(x.sum().float() for x in sums), shares[0].min(), shares[1].max()])
    ranks = accelerator.gather(local[None])
    n, entropies, low, high, moved = ranks[:, :5].sum(0).tolist()
    least, most = (float(ranks[:, 5].min()), float(ranks[:, 6].max())) if n else (math.nan, math.nan)
    n = n or math.nan
    metrics = {
        "entropy": entropies / n,
        "clip_ratio/low_mean": low / n,
        "clip_ratio/high_mean": high / n,
        "clip_ratio/region_mean": (low + high) / n,
        "clip_ratio/low_min": least,
        "clip_ratio/high_max": most,
    }
    return metrics if divergence is None else metrics | {"kl": moved / n}


def _divergence(batch: Batch, update: Update | None) -> Tensor | None:
    """[M, T] k3 to the reference as TRL logs it: times the ratio if the objective's penalty has one."""
    if batch.rollouts.ref_logprob is None:
        return None
    divergence = k3(torch.where(batch.mask, batch.rollouts.ref_logprob - batch.policy.logprob.detach(), 0.0))
    for part in walk(update.objective.penalties if update is not None else ()):
        if isinstance(part, Reweighted) and isinstance(part.penalty, ReferenceKl):
            divergence = part.ratio(batch) * divergence
    return divergence
