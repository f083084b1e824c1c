"""What the embedded engine computes for methods that read inputs of their own (`core.parts.Supplied`).

All is computed under the current weights, without gradient. The responses to one prompt are a group; responses without
a token belong to none. If the head is plain, at most one chunk of logits is alive at a time.

Axes: P prompts, N rollouts, T response tokens (padded), M tokens of a group, H hidden size, V vocabulary.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.head.kept import keep_only_
from ...core.head.projection import chunk_rows
from ...core.head.softmax import part as rows_of
from ...core.head.softmax import wide
from ...core.objective import Objective
from ...core.ops import masked
from ...core.request_temperature import TemperatureRule
from ...core.types import Rollouts
from ..models import LanguageModel, Sampling, sample
from ..models.score import MAX_TOKENS, has_plain_head, predictions, score
from ..tasks import Task
from .rollout import Draw, grade, respond
from .updates import texts

Prompts = Sequence[Sequence[int]]


@dataclass
class GroupTokens:
    """The tokens of one group (`core.parts.Tokens`)."""

    lm: LanguageModel
    row: Tensor
    column: Tensor
    target: Tensor
    hidden: Tensor
    temperature: Tensor
    kept: Tensor | None  # the tokens that probabilities are over; None is the whole vocabulary

    @property
    def chunk(self) -> int:
        return chunk_rows(self.lm.model.get_output_embeddings().weight.shape[0])

    def log_probabilities(self, at: Tensor) -> Tensor:
        out, lm = self.hidden[at], self.lm
        logits = (lm.model.get_output_embeddings()(out) if has_plain_head(lm) else out).to(wide(lm.model.dtype))
        logits = logits / self.temperature[at, None]
        return (logits if self.kept is None else keep_only_(logits, self.kept[at])).log_softmax(-1)


@dataclass
class Forwarded:
    """The part of a sampler that takes forward passes alone.

    Args:
        max_tokens: most tokens of a forward pass, if a group has no more.
    """

    lm: LanguageModel
    prompts: Prompts
    max_tokens: int = MAX_TOKENS

    def tokens(self, rollouts: Rollouts) -> Iterator[GroupTokens]:
        """The tokens of one group at a time. Small groups share forward passes; a large group may need several."""
        prompts, owner, ids, mask, heat = texts(rollouts, self.prompts)
        for rows in _whole_groups(prompts, owner, mask, self.max_tokens):
            pieces = list(
                predictions(self.lm, prompts, owner[rows], ids[rows], mask[rows], heat[rows], self.max_tokens)
            )
            row, column, target, out = (
                torch.cat(part) for part in zip(*((p.row, p.column, p.target, p.out) for p in pieces), strict=True)
            )
            row = rows.to(row.device)[row]
            temperature, group = heat.to(row.device)[row, column], owner.to(row.device)[row]
            kept = None if rollouts.kept_ids is None else rollouts.kept_ids[row, column]
            for one in group.unique():
                at = (group == one).nonzero()[:, 0]
                yield GroupTokens(self.lm, row[at], column[at], target[at], out[at], temperature[at], rows_of(kept, at))

    def prompt_logprob(self, rollouts: Rollouts) -> Tensor:
        """[N] nats, the mean log-probability of a prompt's tokens after the first; 0 for a prompt of one token."""
        width = max(2, *(len(prompt) for prompt in self.prompts)) - 1
        length = torch.tensor([len(prompt) - 1 for prompt in self.prompts])
        token_ids = torch.tensor([[*prompt[1:], *[0] * (width + 1 - len(prompt))] for prompt in self.prompts])
        mask = torch.arange(width) < length[:, None]
        first, heat = [prompt[:1] for prompt in self.prompts], float(rollouts.need("temperature")[rollouts.mask][0])
        policy = score(self.lm, first, torch.arange(len(first)), token_ids, mask, heat, max_tokens=self.max_tokens)
        return masked.mean(policy.logprob, mask.to(self.lm.device), dim=1)[:, 0][rollouts.group]


@dataclass(kw_only=True)
class Sampler(Forwarded):
    """The sampler of a rollout batch (`core.parts.Sampler`).

    Args:
        kept: the problems and prompts of the rollouts.
        again: how continuations are sampled; its seed is the batch's own.
        continued: number of tokens sampled so far.
    """

    task: Task
    kept: Draw
    again: Sampling
    rule: TemperatureRule | None
    continued_tokens: int = 0

    def supply(self, objective: Objective, rollouts: Rollouts) -> Rollouts:
        """The rollouts with the inputs that the objective's parts compute."""
        extra = {}
        for part in objective.supplied:
            with torch.no_grad():
                x = part.supply(rollouts, self)
            extra[part.gives] = x.to(rollouts.old_logprob.dtype) if x.is_floating_point() else x
        return dataclasses.replace(rollouts, extra=extra) if extra else rollouts

    def greedy(self, rollouts: Rollouts) -> Tensor:
        """[N], the reward of a greedy response to the prompt."""
        kept, likeliest = self.kept, dataclasses.replace(self.again, temperature=0.0)
        drawn = respond(self.lm, self.task, kept.start, kept.problems, kept.prompts, 1, likeliest)
        self.continued_tokens += int(drawn.mask.sum())
        return drawn.reward().to(rollouts.reward.device)[rollouts.group]

    def score(self, parts: Sequence[tuple[int, list[int]]]) -> list[float]:
        """The rewards of parts of responses, each the row and its token ids."""
        problems = [self.kept.problems[row // self.kept.group_size] for row, _ in parts]
        named = [f"a part of response {row}" for row, _ in parts].__getitem__
        _, scores = grade(self.lm, self.task, problems, [ids for _, ids in parts], named)
        return [each.reward for each in scores]

    def continued(self, rollouts: Rollouts, cuts: Tensor, count: int) -> Tensor:
        """[N, T], the mean reward of `count` continuations at each cut.

        Responses to one problem that share a prefix share its continuations. No continuation makes a response longer
        than `again.max_new_tokens`; random numbers are keyed by the order in which prefixes first appear.
        """
        ids, groups, kept = rollouts.need("token_ids").tolist(), rollouts.group.tolist(), self.kept
        places: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
        for row, t in cuts.nonzero().tolist():
            places.setdefault((groups[row], tuple(ids[row][:t])), []).append((row, t))
        value = torch.zeros_like(rollouts.old_logprob)
        # At most the batch's number of rows at once, sorted by length, because the longest takes the time of all.
        order = sorted(enumerate(places), key=lambda numbered: len(numbered[1][1]))
        size = max(1, len(rollouts) // count)
        for first in range(0, len(order), size):
            streams, prefixes = zip(*order[first : first + size], strict=True)
            texts = [[*kept.prompts[group], *prefix] for group, prefix in prefixes]
            limits = [self.again.max_new_tokens - len(prefix) for _, prefix in prefixes]
            longest = dataclasses.replace(self.again, max_new_tokens=max(limits))
            out = sample(self.lm, texts, count, longest, streams=streams, rule=self.rule, limits=limits)
            origins = [prefix for prefix in prefixes for _ in range(count)]
            rows = zip(origins, out.token_ids.cpu(), out.mask.cpu(), strict=True)
            token_ids = [[*prefix, *row[mask].tolist()] for (_, prefix), row, mask in rows]
            problems = [kept.problems[group] for group, _ in origins]
            name = [f"a continuation of problem {group}" for group, _ in origins].__getitem__
            _, scores = grade(self.lm, self.task, problems, token_ids, name)
            reward = torch.tensor([each.reward for each in scores], dtype=torch.float64).view(-1, count).mean(1)
            self.continued_tokens += int(out.mask.sum())
            for prefix, mean in zip(prefixes, reward.tolist(), strict=True):
                for row, t in places[prefix]:
                    value[row, t] = mean
        return value


def _whole_groups(prompts: Prompts, owner: Tensor, mask: Tensor, max_tokens: int) -> Iterator[Tensor]:
    """Rows with a token, in batches of whole groups: at most `max_tokens` tokens, or a single group."""
    length, members = mask.sum(1).tolist(), dict[int, list[int]]()
    for row, group in enumerate(owner.tolist()):
        if length[row]:
            members.setdefault(group, []).append(row)
    batch: list[int] = []
    tokens = 0
    for group, rows in members.items():
        size = sum(len(prompts[group]) + length[row] for row in rows)
        if batch and tokens + size > max_tokens:
            yield torch.tensor(batch, device=owner.device)
            batch, tokens = [], 0
        batch += rows
        tokens += size
    if batch:
        yield torch.tensor(batch, device=owner.device)
