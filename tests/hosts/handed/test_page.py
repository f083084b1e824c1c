"""The adapters that docs/other_hosts.md shows, called as NeMo-RL's trainer and slime's call a loss."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import tokenpo

PAGE = Path(__file__).parents[3] / "docs" / "other_hosts.md"
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


MICRO = [rows.tolist() for rows in torch.arange(8).split(3)]


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    return adapters()


@pytest.mark.parametrize("name", ["dapo", "gspo", "dr_grpo"])
def test_nemo_rls_micro_batches_add_up_to_the_step(shown: dict[str, Any], name: str) -> None:
    """Each is given the counts of the whole step."""
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(8) >= PROMPT) & (torch.arange(8) < (PROMPT + LENGTH)[:, None])
    old, now = (-torch.rand(8, 8, generator=generator) for _ in range(2))
    objective = tokenpo.method(name)
    whole = tokenpo.Rollouts(mask=mask[:, 1:], reward=REWARD, group=GROUP, old_logprob=old[:, 1:])
    step = tokenpo.Learner(objective, length=6, ratio=None).begin(whole)
    advantages = torch.cat([torch.zeros(8, 1), step.credit.advantage], 1)  # its adv_estimator
    data = {
        "token_mask": mask.float(),
        "sample_mask": torch.ones(8),
        "advantages": advantages,
        "prev_logprobs": old,
        "generation_logprobs": old,
        "reference_policy_logprobs": old,
    }
    loss = shown["TokenPOLoss"](objective, length=6)
    total = torch.zeros(())
    for rows in MICRO:
        part = {key: x[rows] for key, x in data.items()}
        total += loss(part, global_valid_seqs=8, global_valid_toks=mask.sum(), next_token_logprobs=now[rows, 1:])[0]
    update = step.update(torch.arange(8))
    torch.testing.assert_close(total, update.evaluate(tokenpo.Policy(now[:, 1:]))[1].value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("name", "per_token"), [("dapo", True), ("gspo", False), ("cispo", True)])
def test_slimes_micro_batches_add_up_to_the_step(shown: dict[str, Any], name: str, per_token: bool) -> None:
    """Credit is given for all responses; slime divides by itself."""
    step, objective = SlimeStep(), tokenpo.method(name)
    step.args.calculate_per_token_loss = per_token
    slime = shown["Slime"](objective, step.args, scored)
    _, advantage = slime.credit(step.args, step.samples)
    advantages = [torch.full((int(n),), a) for n, a in zip(LENGTH, advantage, strict=True)]
    batch = {**step.whole, "log_probs": step.old, "advantages": advantages}
    total = sum(step.loss(slime, batch, rows) for rows in MICRO) / (int(LENGTH.sum()) if per_token else 8)
    padded, moved = (pad_sequence(x, batch_first=True) for x in (step.old, step.now))
    facts = tokenpo.Rollouts(mask=torch.arange(6) < LENGTH[:, None], reward=REWARD, group=GROUP, old_logprob=padded)
    (update,) = tokenpo.Learner(objective, length=6, ratio=None).begin(facts).updates()
    torch.testing.assert_close(total, update.evaluate(tokenpo.Policy(moved))[1].value, rtol=1e-5, atol=1e-7)


def test_micro_batches_without_a_token_are_a_zero_with_its_graph(shown: dict[str, Any]) -> None:
    now, empty = torch.randn(2, 7, requires_grad=True), torch.zeros(2, 8)
    names = ("advantages", "prev_logprobs", "generation_logprobs", "reference_policy_logprobs")
    data = {"token_mask": empty + 1, "sample_mask": torch.zeros(2), **dict.fromkeys(names, empty)}
    value, _ = shown["TokenPOLoss"](tokenpo.method("dapo"), length=6)(data, 8, 40, now)
    value.backward()
    assert value == 0 and now.grad is not None and not now.grad.any()
    step = SlimeStep()
    step.after = [x.requires_grad_() for x in step.after]
    masks = [torch.zeros(int(n)) for n in LENGTH]
    batch = {**step.whole, "loss_masks": masks, "log_probs": step.old, "advantages": masks}
    value = step.loss(shown["Slime"](tokenpo.method("grpo"), step.args, scored), batch, [0, 1])
    value.backward()
    assert value == 0 and step.after[0].grad is not None and not step.after[0].grad.any()
