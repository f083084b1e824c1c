"""Batched sampling with a KV cache that records the log-prob and entropy of every token.

Each prompt is run once and its cache repeated for its group; finished rows leave the batch. Every rollout has its own
random numbers (`token_draw`), so that its tokens do not depend on batch order, padding or group size.

Axes: P prompts, G samples of each, N = P·G rollouts, T tokens of the longest response, M running rollouts.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import TokenPOError, present
from ...core.head.kept import Cut, trimmed
from ...core.head.projection import evaluating
from .decoder import CacheDecoder, PackedDecoder, Step, not_finite
from .graphed import decode_graphed
from .model import LanguageModel, Prompts, positions
from .packed import can_pack
from .token_draw import draw, draw_cut, greedy, stream_keys, uniforms

# Number of steps whose uniform numbers are computed at once.
_BLOCK = 64
# Finished rows are dropped when at most this share of the rows remains; dropping fewer costs more than it saves.
_WORTHWHILE = 15 / 16


@dataclass(frozen=True)
class Sampling:
    """How to sample.

    Args:
        max_new_tokens: longest response, EOS included.
        temperature: at least 1.2e-38; 0 takes the most probable token, with statistics at temperature 1.
        seed: together with a prompt's stream id and the sample's index in its group, fixes every random number.
        cut: the tokens that may be chosen; greedy sampling does not read it.
    """

    max_new_tokens: int
    temperature: float = 1.0
    seed: int = 0
    cut: Cut = Cut()

    def __post_init__(self) -> None:
        reason = self.cut.fault
        if self.max_new_tokens < 1:
            reason = f"max_new_tokens is {self.max_new_tokens}, expected at least 1"
        elif self.temperature != 0 and not 1.2e-38 <= self.temperature <= 3.4e38:  # float32 divides by it
            reason = f"temperature is {self.temperature}, expected 0 (greedy) or 1.2e-38 to 3.4e38"
        if reason:
            raise TokenPOError(f"Sampling.{reason}")

    @property
    def cuts(self) -> bool:
        """Whether some tokens may not be chosen."""
        return self.temperature > 0 and self.cut != Cut()


@dataclass(frozen=True, eq=False)
class Samples:
    """N = P·G rollouts; row = prompt·G + g. A tool's tokens are in the response, outside the mask.

    Args:
        token_ids: [N, T] int64, pad_id after the response.
        mask: [N, T] bool, true on sampled tokens, EOS included.
        logprob: [N, T] float32 nats, of the token at the base temperature; 0 after the response.
        entropy: [N, T] float32 nats, over the full vocabulary at the base temperature; 0 after the response.
        temperature: [N, T] float32, at which the token was sampled; 1 after the response and for greedy sampling.
        rollout_logprob: [N, T] float32 nats, at the temperature that sampled the token; 0 after the response.
        prompt: [N] int64, index into the prompts.
        finished: [N] bool, an EOS was sampled (false: cut at max_new_tokens).
        kept_ids: [N, T, K] int32, the tokens that might have been sampled, filled up with -1; None is the whole
            vocabulary. Log-probabilities and entropies are over these tokens.
    """

    token_ids: Tensor
    mask: Tensor
    logprob: Tensor
    entropy: Tensor
    temperature: Tensor
    rollout_logprob: Tensor
    prompt: Tensor
    finished: Tensor
    kept_ids: Tensor | None

    def __len__(self) -> int:
        return self.mask.shape[0]


class Tool(Protocol):
    """Inserts tokens into a response while it is sampled."""

    @property
    def ends(self) -> Collection[int]:
        """The tokens after which the tool is called."""
        ...

    def __call__(self, row: int, token_ids: Sequence[int]) -> Sequence[int]:
        """The tokens to insert into the response of a row, from all of its tokens so far; may be empty."""
        ...


def sample(
    lm: LanguageModel, prompts: Prompts, group_size: int, sampling: Sampling, *, streams: Sequence[int] | None = None,
    rule: Any = None, tool: Tool | None = None, limits: Sequence[int] | None = None,
) -> Samples:  # fmt: skip
    """Samples `group_size` responses to every prompt.

    Args:
        prompts: token ids of each prompt, none empty.
        streams: one id per prompt that selects its random numbers; by default the prompt's position.
        rule: adaptive temperature, `rule(entropy [M], base) -> temperature [M]`; not for greedy or cut sampling.
        tool: its inserted tokens count towards `max_new_tokens`.
        limits: longest response to each prompt, from 1 to `sampling.max_new_tokens`, which is the default.

    Raises:
        TokenPOError: more positions than the model has.
        NotFinite: no token can be sampled from some logits.
    """
    if sampling.cuts and (reason := sampling.cut.too_many(lm.model.get_output_embeddings().weight.shape[0])):
        raise TokenPOError(reason)
    for prompt, longest in zip(prompts, limits or [sampling.max_new_tokens] * len(prompts), strict=True):
        require_length(lm, len(prompt), longest)
    device, n = lm.device, len(prompts) * group_size
    prompt = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    stream = prompt if streams is None else torch.tensor(list(streams), device=device).repeat_interleave(group_size)
    keys = stream_keys(sampling.seed, stream, torch.arange(group_size, device=device).repeat(len(prompts)))
    limit = None if limits is None else torch.tensor(list(limits), device=device).repeat_interleave(group_size)
    inserted = None if tool is None else _Inserted(tool, n)
    with evaluating(lm.model):
        # Rules and tools call Python between two steps, which a recorded step cannot do.
        fixed = rule is None and tool is None
        record = decode_graphed(lm, prompts, group_size, sampling, keys, limit) if fixed else None
        if record is None:
            kind = PackedDecoder if can_pack(lm) else CacheDecoder
            decoder = kind(lm, prompts, group_size, sampling.max_new_tokens)
            record = _decode(lm, decoder, sampling, keys, rule, limit, inserted)
    return _assemble(record, prompt, lm.pad_id)


class _Inserted:
    """Calls a tool for each of N responses and inserts its tokens one by one."""

    def __init__(self, tool: Tool, n: int) -> None:
        self._tool, self._ends = tool, frozenset(tool.ends)
        self._text: list[list[int]] = [[] for _ in range(n)]
        self._waiting: list[list[int]] = [[] for _ in range(n)]

    def after(self, rows: Tensor, drawn: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
        """([M] next token, [M] bool: it is the sampled one)."""
        token, sampled = drawn.tolist(), [True] * len(drawn)
        for place, (row, going) in enumerate(zip(rows.tolist(), alive.tolist(), strict=True)):
            if not going:
                continue
            text, waiting = self._text[row], self._waiting[row]
            if waiting:
                token[place], sampled[place] = waiting.pop(0), False
            text.append(token[place])
            if sampled[place] and token[place] in self._ends:
                waiting.extend(self._tool(row, text))
        return torch.tensor(token, device=drawn.device), torch.tensor(sampled, device=drawn.device)


def _decode(
    lm: LanguageModel, decoder: PackedDecoder | CacheDecoder, sampling: Sampling, keys: Tensor, rule: Any,
    limit: Tensor | None, inserted: _Inserted | None,
) -> list[Step]:  # fmt: skip
    logits, n = decoder.logits, len(keys)
    is_eos = lm.ends(logits.shape[-1])
    rows, alive = torch.arange(n, device=lm.device), torch.ones(n, dtype=torch.bool, device=lm.device)
    record: list[Step] = []
    block = keys.new_empty(0)
    for step in range(sampling.max_new_tokens):
        if step % _BLOCK == 0 and sampling.temperature:
            block = uniforms(keys, step, min(_BLOCK, sampling.max_new_tokens - step))
        if sampling.temperature == 0:
            drawn = greedy(logits)
        elif sampling.cuts:
            drawn = draw_cut(logits, block[step % _BLOCK][rows], sampling.temperature, sampling.cut)
            drawn = drawn._replace(kept=trimmed(present(drawn.kept, "the kept tokens")))
        else:
            drawn = draw(logits, block[step % _BLOCK][rows], sampling.temperature, rule)
        token, sampled = drawn.token, torch.ones_like(alive)
        if inserted is not None:
            token, sampled = inserted.after(rows, drawn.token, alive)
        ended = is_eos[token] & sampled
        record.append(Step(rows, alive, drawn, ended, token, sampled))
        alive = alive & ~ended
        if limit is not None:
            alive = alive & (limit[rows] > step + 1)
        # The only wait for the device per step.
        left, sound = torch.stack([alive.sum(), torch.isfinite(drawn.logprob).all()]).tolist()
        if not sound:
            raise not_finite(step, int(rows[~torch.isfinite(drawn.logprob)][0]), n)
        if left == 0 or step + 1 == sampling.max_new_tokens:
            break
        if left <= _WORTHWHILE * len(rows):
            order = decoder.keep(alive.nonzero().squeeze(-1), ~alive)
            rows, alive, token = rows[order], alive[order], token[order]
        logits = decoder.step(token)
    return record


def _assemble(record: list[Step], prompt: Tensor, pad_id: int) -> Samples:
    alive = torch.cat([step.alive for step in record])
    sizes = torch.tensor([len(step.rows) for step in record], device=prompt.device)
    column = torch.arange(len(record), device=prompt.device).repeat_interleave(sizes)[alive]
    row = torch.cat([step.rows for step in record])[alive]
    sampled = torch.cat([step.sampled for step in record])[alive]

    def table(values: list[Tensor], fill: float, dtype: torch.dtype, *, inserted: bool = False) -> Tensor:
        """[N, T, ...] of the values; `fill` after the end, and on inserted tokens unless `inserted`."""
        flat = torch.cat(values)[alive].to(dtype)
        out = torch.full((len(prompt), len(record), *flat.shape[1:]), fill, dtype=dtype, device=prompt.device)
        out[row, column] = flat if inserted else flat.masked_fill(~sampled.view(-1, *[1] * (flat.dim() - 1)), fill)
        return out

    draws = [step.drawn for step in record]
    kept = [draw.kept for draw in draws if draw.kept is not None]
    widest = max((x.shape[1] for x in kept), default=0)
    kept = [pad(x, (0, widest - x.shape[1]), value=-1) for x in kept]
    return Samples(
        token_ids=table([step.token for step in record], pad_id, torch.int64, inserted=True),
        mask=table([step.alive for step in record], 0, torch.bool),
        logprob=table([d.logprob for d in draws], 0, torch.float32),
        entropy=table([d.entropy for d in draws], 0, torch.float32),
        temperature=table([d.temperature for d in draws], 1, torch.float32),
        rollout_logprob=table([d.rollout_logprob for d in draws], 0, torch.float32),
        prompt=prompt,
        finished=table([step.ended for step in record], 0, torch.bool).any(1),
        kept_ids=trimmed(table(kept, -1, torch.int32)) if kept else None,
    )


def require_room(lm: LanguageModel, prompt: Sequence[int], sampling: Sampling) -> None:
    """Raises TokenPOError if a prompt and its longest response exceed the model's positions."""
    require_length(lm, len(prompt), sampling.max_new_tokens)


def require_length(lm: LanguageModel, prompt: int, longest: int) -> None:
    """Raises TokenPOError if `prompt` tokens and `longest` new ones exceed the model's positions."""
    most = positions(lm.model)
    if most is not None and prompt + longest > most:
        long = f"a prompt of {prompt} tokens and {longest} new ones exceed the model's {most} positions"
        raise TokenPOError(f"{long}: lower max_new_tokens or shorten the prompt")
