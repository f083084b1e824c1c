"""The adapters for NeMo-RL and slime that docs/other_hosts.md shows, and stand-ins for the trainers that call them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

PAGE = Path(__file__).parents[1] / "docs" / "other_hosts.md"
PROMPT = 2  # tokens before each response
LENGTH = torch.tensor([5, 3, 6, 4, 6, 2, 5, 6])
GROUP = torch.arange(8) // 4
REWARD = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])


def adapters() -> dict[str, Any]:
    """What the blocks of the page define: `TokenPOLoss` and `Slime`."""
    space: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), space)
    return space


def scored(logits: Tensor, batch: dict[str, Any], args: Any) -> tuple[list[Tensor], list[Tensor]]:
    """slime's get_log_probs_and_entropy: the logit before a token scores it; sequences follow each other in one row."""
    logprobs, entropies, end = [], [], 0
    for tokens, response in zip(batch["unconcat_tokens"], batch["response_lengths"], strict=True):
        end += len(tokens)
        log_softmax = logits[0, end - response - 1 : end - 1].div(args.rollout_temperature).log_softmax(-1)
        logprobs.append(log_softmax.gather(-1, tokens[-response:, None])[:, 0])
        entropies.append(-(log_softmax.exp() * log_softmax).sum(-1))
    return logprobs, entropies


def arguments() -> Any:
    """slime's settings."""
    return SimpleNamespace(
        context_parallel_size=1, entropy_coef=0.0, rollout_temperature=0.8, calculate_per_token_loss=False
    )


@dataclass
class SlimeStep:
    """Eight responses as slime hands them over: its fields, logits of each, log-probabilities before and now."""

    args: Any = field(default_factory=arguments)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        tokens = [torch.randint(7, (PROMPT + int(n),), generator=generator) for n in LENGTH]
        before, self.after = ([torch.randn(len(x), 7, generator=generator) for x in tokens] for _ in range(2))
        self.whole: dict[str, Any] = {
            "unconcat_tokens": tokens,
            "response_lengths": LENGTH.tolist(),
            "rollout_mask_sums": LENGTH.tolist(),
            "loss_masks": [torch.ones(int(n)) for n in LENGTH],
        }
        (self.old, _), (self.now, _) = (scored(torch.cat(x)[None], self.whole, self.args) for x in (before, self.after))
        self.samples = [
            SimpleNamespace(response_length=int(n), reward=float(r), group_index=int(g))
            for n, r, g in zip(LENGTH, REWARD, GROUP, strict=True)
        ]

    def loss(self, slime: Any, batch: dict[str, Any], rows: list[int]) -> Tensor:
        """What the adapter's loss is of these rows, packed into one row of logits."""
        part = {key: [x[row] for row in rows] for key, x in batch.items()}
        return slime.loss(self.args, part, torch.cat([self.after[row] for row in rows])[None], None)[0]
