"""TRL's asynchronous trainer beside ours: its own queue, packing, pass and optimiser; a stub samples, as TRL allows.

The kernel of its attention, which wants a GPU, is a few lines here.
"""

# pyright: reportMissingImports=false
import queue
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trl.experimental import async_grpo as theirs
from trl.experimental.async_grpo import async_grpo_trainer, packing
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import TreeRow

import refused
import tokenpo
from random_models import random_experts
from tokenpo.core.types import Batch, Credit, Policy, Rollouts, Totals
from tokenpo.hosts.trl.asynchronous import require
from tokenpo.trl import AsyncGRPOTrainer
from trl_support.small import Gradients, prompts


def attention(q: Any, k: Any, v: Any, starts: Any, paths: Any, *_: Any, softmax_scale: float, **how: Any) -> Any:
    """Each segment [starts[i], starts[i + 1]) attends to its path, whose end it is."""
    out = torch.empty_like(q)
    repeat = q.shape[1] // k.shape[1]
    for i in range(len(starts) - 1):
        mine, path = slice(starts[i], starts[i + 1]), slice(paths[i], paths[i + 1])
        n, m = mine.stop - mine.start, path.stop - path.start
        key, value = (x[path].repeat_interleave(repeat, 1) for x in (k, v))
        later = torch.ones(n, m).bool().tril(int(m - n))
        scores = torch.einsum("qhd,khd->hqk", q[mine], key) * softmax_scale
        weights = scores.masked_fill(~later, -torch.inf).softmax(-1)
        out[mine] = torch.einsum("hqk,khd->qhd", weights, value)
    return out


class Worker:
    """Hands out its samples; it moves no weights."""

    def __init__(self, samples: list[RolloutSample]) -> None:
        self.rollout_buffer, self.metrics_queue = queue.Queue(), queue.Queue()
        for sample in samples:
            self.rollout_buffer.put(sample)

    start = stop = update_model_version = check_health = init_weight_transfer = pause = send_weights = resume = (
        lambda self, *given: None
    )
    destroy = start


def samples(count: int) -> list[RolloutSample]:
    random, made = np.random.default_rng(0), []
    for i in range(count):
        size = int(random.integers(2, 9))
        ids = np.concatenate([np.array([5, 6 + i // 4, 7]), random.integers(3, 200, size)])
        mask = np.array([0] * 3 + [1] * size)
        mask[4] = i % 3 > 0  # a tool's token
        old = np.where(mask, -random.uniform(1, 9, len(ids)), 0.0).astype(np.float32)
        advantage = float(random.normal()) * (i % 4 != 3)
        made.append(RolloutSample([], [], ids, mask, old, advantage, 0, i // 4, {"reward": 0.0}))
    return made


def trained(kind: type, model: Path, out: Path, settings: Mapping[str, Any], **more: Any) -> tuple[Any, torch.Tensor]:
    args = theirs.AsyncGRPOConfig(
        str(out), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False, max_steps=3,
        per_device_train_batch_size=8, learning_rate=1e-2, max_grad_norm=0.0, save_strategy="no", disable_tqdm=True,
        token_budget=-1, max_completion_length=16, **settings,
    )  # fmt: skip
    seen, worker = Gradients(), Worker(samples(64))  # the loader fetches a batch ahead
    trainer = kind(
        str(model), len, args, prompts(), callbacks=[seen], rollout_worker=worker, weight_transfer=worker, **more
    )
    trainer.train()
    return [line for line in trainer.state.log_history if "grad_norm" in line], torch.stack(seen.rows)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *device: None)
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2, "router_aux_loss_coef": 0.7}], ids=str)
def test_its_own_loss_is_a_method(settings: dict[str, Any], tmp_path: Path) -> None:
    """Values and gradients of three steps, on which each other's errors would add up."""
    model = random_experts(tmp_path / "model")
    expected, theirs_gradients = trained(theirs.AsyncGRPOTrainer, model, tmp_path / "theirs", settings)
    method = tokenpo.method("dapo", high=0.2, dual=None)
    lines, gradients = trained(AsyncGRPOTrainer, model, tmp_path / "ours", settings, method=method)
    for line, other in zip(lines, expected, strict=True):
        for name in ("loss", "grad_norm", "kl", "entropy", "ratio", "sample/staleness_mean"):
            assert line[name] == pytest.approx(other[name], rel=1e-5, abs=1e-7), name
        assert 0 < other["clip_ratio/region_mean"] < 1 and "clip_ratio/region_mean" not in line
    torch.testing.assert_close(gradients, theirs_gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["dapo", "grpo", "gspo", "cispo", "sapo", "dppo_tv", "opsm", "luspo"])
def test_the_loss_of_two_ranks_is_the_objectives(name: str) -> None:
    """TRL packs 4 and 8 responses, which share tokens of their prompts and answers; float64."""
    objective, made, rows, total = tokenpo.method(name), samples(12), [TreeRow(), TreeRow()], 0.0
    for i, one in enumerate(made):
        fields = ("input_ids", "completion_mask", "old_log_probs", "group_id", "advantage", "metrics")
        rows[i >= 4].add({field: getattr(one, field) for field in fields})
    inputs = {
        k: x.double() if x.is_floating_point() else x
        for k, x in async_grpo_trainer.DataCollatorForRollout(0, 2)([rows]).items()
    }
    leaf = (-3 * torch.rand(inputs["input_ids"].shape, dtype=torch.float64)).requires_grad_()
    reduced = SimpleNamespace(reduce=lambda count: count + (8 if count == 4 else 4))
    trainer: Any = SimpleNamespace(
        policy_objective=objective, accelerator=reduced, args=SimpleNamespace(max_completion_length=16)
    )
    for rank in (0, 1):
        part = {field: x[rank : rank + 1] for field, x in inputs.items() if field != "global_n_tokens"}
        out = SimpleNamespace(log_probs=leaf[rank : rank + 1], entropy=torch.zeros(1, leaf.shape[1]))
        given = part | {"global_n_tokens": inputs["global_n_tokens"]}
        total = total + AsyncGRPOTrainer._objective_loss(trainer, out, given)
    (gradient,) = torch.autograd.grad(total, leaf)
    # The same responses, each by itself.
    longest = max(int(one.completion_mask.sum()) for one in made)
    table = {field: torch.zeros(12, longest, dtype=torch.float64) for field in ("old", "advantage", "mask")}
    logprob = []
    for i, one in enumerate(made):
        rank, place = (0, i) if i < 4 else (1, i - 4)
        mine = [
            k
            for k in range(inputs["token_index"].shape[1])
            if inputs["token_index"][rank, k] >= 0 and inputs["segment_id"][rank, k] == place
        ]
        count = len(mine)
        assert count == one.completion_mask.sum()
        table["old"][i, :count] = torch.tensor(one.old_log_probs[one.completion_mask == 1]).double()
        table["advantage"][i, :count], table["mask"][i, :count] = float(np.float32(one.advantage)), 1
        scored = leaf[rank, inputs["token_index"][rank, mine]]
        logprob.append(torch.nn.functional.pad(scored, (0, longest - count)))
    mask = table["mask"].bool()
    rollouts = Rollouts(mask, torch.zeros(12), torch.arange(12), table["old"], rollout_logprob=table["old"])
    batch = Batch(rollouts.only(objective.needs), Credit(table["advantage"]), Policy(torch.stack(logprob)))
    wanted = objective.loss(batch, Totals(float(mask.sum()), 12.0, 16.0)).value
    torch.testing.assert_close(total, wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted, leaf)[0], rtol=1e-12, atol=1e-15)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize(
    "names",
    [
        "dr_grpo deviation", "hapo old_entropy", "lopti ref_logprob", "clip_cov whole update", "ha_dw remembers",
        "rloo own credit", "vaco Aligned sampled", "gpg LogLikelihood older", "m2po_rollout Nearest", "gdpo rewards",
    ],
)  # fmt: skip
def test_what_trl_does_not_hand_over(names: str) -> None:
    refused.check(names, require, tokenpo.method(names.split()[0]))
