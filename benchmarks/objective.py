"""Overhead of an objective: phase one, loss and backward, given the log-probabilities of 512 x 1024 tokens.

    python benchmarks/objective.py [--rounds 15] [--rows 512] [--length 1024] [--only METHOD ...]
    python benchmarks/objective.py --alone [--terms TERM ...]     # from credit to gradient only, with its temporaries
    python benchmarks/objective.py --profile METHOD

One thread, float32, ragged responses in groups of eight. Runs of all candidates alternate; the figure is the median CPU
time of the process, so that a busy machine disturbs less. Where verl is importable, the same work by its functions
(GRPO's outcome advantage, the registered policy loss, its aggregation) stands beside ours. Its numbers include what it
always does (metrics, dual clip), ours what we always do (checks at the boundary, the terms that reports draw).

`--alone` leaves phase one out, ours and theirs: from the advantages to the gradient at the log-probabilities, beside
verl's vanilla policy loss, TRL's `compute_loss` (its metrics included, no model) and the clipped loss in three lines.
Temporaries are the most memory held at once, that gradient included, from the allocator's record, in tensors [N, T] of
float32; ours include what `Loss.terms` keeps.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import tokenpo
from timing import milliseconds, peak_bytes

TERMS = ("ratio", "clipped")


@dataclass(frozen=True)
class Data:
    """One optimiser step: mask [N, T] bool, reward [N], group [N], and [N, T] fields by name."""

    mask: Tensor
    reward: Tensor
    group: Tensor
    fields: dict[str, Tensor]

    @staticmethod
    def of(rows: int, length: int, size: int = 8) -> Data:
        g = torch.Generator().manual_seed(0)
        mask = torch.arange(length) < torch.randint(length // 4, length + 1, (rows, 1), generator=g)
        old = -torch.rand(rows, length, generator=g).exp() + 1 - 1e-3
        step = 0.2 * torch.randn(rows, length, generator=g)
        fields = {
            "old_logprob": old,
            "logprob": (old + step).clamp(max=-1e-4),
            "rollout_logprob": (old + 0.1 * step).clamp(max=-1e-4),
            "ref_logprob": (old - step).clamp(max=-1e-4),
            "old_entropy": torch.rand(rows, length, generator=g),
            "entropy": torch.rand(rows, length, generator=g),
            "entropy_drift": 0.1 * torch.randn(rows, length, generator=g),
            "influence": torch.randn(rows, length, generator=g),
            "divergence": torch.rand(rows, length, generator=g),
            "prompt_logprob": -torch.rand(rows, generator=g),
            "token_ids": torch.randint(0, 50, (rows, length), generator=g),
        }
        reward = (torch.rand(rows, generator=g) < 0.5).float()
        return Data(mask, reward, torch.arange(rows) // size, fields)


def ours(objective: tokenpo.Objective, data: Data, terms: Sequence[str] | None = None) -> Callable[[], None]:
    """From plain tensors to the gradient, with exactly the inputs that the objective needs.

    With `terms` from the credit alone: what an engine asks for at every micro-batch.
    """
    chosen = {name: data.fields[name] for name in objective.needs}
    policy = {name: chosen.pop(name) for name in ("entropy", "entropy_drift") if name in chosen}
    generator = torch.Generator().manual_seed(0)

    def begun() -> tuple[tokenpo.Rollouts, tokenpo.Credit, tokenpo.Totals]:
        known = {"mask": data.mask, "reward": data.reward, "group": data.group}
        rollouts = tokenpo.Rollouts.of(known | {"old_logprob": data.fields["old_logprob"]} | chosen)
        return rollouts, objective.prepare(rollouts), tokenpo.Totals.of(rollouts)

    known = None if terms is None else begun()

    def run() -> None:
        logprob = data.fields["logprob"].detach().requires_grad_()
        if objective.entropy_gradient:
            policy["entropy"] = data.fields["entropy"].detach().requires_grad_()
        rollouts, credit, totals = known or begun()
        batch = objective.observe(tokenpo.Batch(rollouts, credit, tokenpo.Policy(logprob, **policy)), generator)
        objective.loss(batch, totals, terms).value.backward()

    return run


def three_lines(data: Data) -> Callable[[], None]:
    """PPO's clipped loss as one would write it down."""
    old, advantage = data.fields["old_logprob"], advantages(data)

    def run() -> None:
        logprob = data.fields["logprob"].detach().requires_grad_()
        ratio = (logprob - old).exp()
        clipped = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        (-(clipped * data.mask).sum() / data.mask.sum()).backward()

    return run


def advantages(data: Data) -> Tensor:
    """GRPO's, [N, T]."""
    rollouts = tokenpo.Rollouts(data.mask, data.reward, data.group, data.fields["old_logprob"])
    return tokenpo.method("grpo").prepare(rollouts).advantage.contiguous()


def trls(data: Data) -> Callable[[], None] | None:
    """TRL's loss of one micro-batch, or None where it is not installed."""
    if importlib.util.find_spec("trl") is None:
        return None
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from foreign_support.trl_trainer import Trainer

    trainer = Trainer(gradient_accumulation_steps=1, loss_type="grpo", beta=0.0)
    n = len(data.mask)
    fields = {
        "completion_mask": data.mask.long(),
        "completion_ids": data.fields["token_ids"],
        "prompt_ids": torch.zeros(n, 1, dtype=torch.long),
        "prompt_mask": torch.ones(n, 1, dtype=torch.long),
        "advantages": advantages(data)[:, 0].contiguous(),
        "old_per_token_logps": data.fields["old_logprob"],
        "num_items_in_batch": data.mask.sum(),
    }

    def run() -> None:
        logprob = data.fields["logprob"].detach().requires_grad_()
        trainer.compute_loss(SimpleNamespace(logprob=logprob, entropy=data.fields["entropy"]), fields).backward()

    return run


@dataclass(frozen=True)
class Foreign:
    """How verl is asked for a method: its registered loss, its aggregation, its config and whether to divide by std."""

    loss: str
    aggregate: str
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    std: bool = True


VERL = {
    "grpo": Foreign("vanilla", "seq-mean-token-mean"),
    "dr_grpo": Foreign("vanilla", "seq-mean-token-sum-norm", std=False),
    "dapo": Foreign("vanilla", "token-mean", {"clip_ratio_high": 0.28, "clip_ratio_c": 10.0}),
    "gspo": Foreign("gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    "gspo_token": Foreign("gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    "clip_cov": Foreign("clip_cov", "token-mean", {"clip_ratio_low": 1.0, "clip_ratio_high": 1.0}),
    "kl_cov": Foreign("kl_cov", "token-mean"),
    "tepo_v1": Foreign("gspo", "token-mean"),
}


def verls(name: str, data: Data, *, phase_one: bool = True) -> Callable[[], None] | None:
    """The same work by verl, or None where it has no such method or is not installed."""
    try:
        from verl.trainer.ppo import core_algos
        from verl.workers.config import ActorConfig, PolicyLossConfig
    except ImportError:
        return None
    if name not in VERL:
        return None
    foreign = VERL[name]
    loss = core_algos.get_policy_loss_fn(foreign.loss)
    policy_loss = PolicyLossConfig(loss_mode=foreign.loss, kl_cov_ratio=2e-3, ppo_kl_coef=1.0)
    config = ActorConfig(
        strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=8, policy_loss=policy_loss, **foreign.config
    )
    mask = data.mask.long()  # as its data protocol carries it
    last = data.mask.sum(1, keepdim=True) - 1
    rewards = torch.zeros(data.mask.shape).scatter_(1, last, data.reward[:, None])
    index = data.group.numpy()
    old = data.fields["old_logprob"]

    def credit() -> Tensor:
        return core_algos.compute_grpo_outcome_advantage(rewards, mask, index, norm_adv_by_std_in_grpo=foreign.std)[0]

    known = None if phase_one else credit()

    def run() -> None:
        logprob = data.fields["logprob"].detach().requires_grad_()
        advantage = credit() if known is None else known
        value, _ = loss(old, logprob, advantage, mask, loss_agg_mode=foreign.aggregate, config=config)
        value.backward()

    return run


def losses_alone(data: Data, names: list[str], rounds: int, terms: Sequence[str] = TERMS) -> str:
    """A line for each method and each peer: milliseconds, how often it fits into verl's vanilla, temporaries."""
    peers = {"verl vanilla": verls("grpo", data, phase_one=False), "TRL": trls(data), "three lines": three_lines(data)}
    runs = {name: run for name, run in peers.items() if run is not None}
    runs |= {name: ours(tokenpo.method(name), data, terms) for name in names}
    times, size = milliseconds(runs, rounds), 4 * data.mask.numel()
    vanilla = times.get("verl vanilla")
    lines = [f"{'loss alone':<22}{'ms':>8}{'verl/it':>9}{'temporaries':>13}"]
    for name, run in runs.items():
        faster = f"{'-':>9}" if vanilla is None or not times[name] else f"{vanilla / times[name]:>9.2f}"
        lines.append(f"{name:<22}{times[name]:>8.2f}{faster}{peak_bytes(run) / size:>13.1f}")
    return "\n".join(lines)


def table(times: dict[tuple[str, str], float]) -> str:
    """Milliseconds and ratios: to verl's corresponding function, and to our own GRPO."""
    lines = [f"{'method':<22}{'ours ms':>9}{'verl ms':>9}{'ours/verl':>11}{'ours/our grpo':>15}"]
    for (name, who), ms in times.items():
        if who == "ours":
            other = times.get((name, "verl"))
            beside = f"{'-':>9}{'-':>11}" if other is None else f"{other:>9.1f}{ms / other:>11.2f}"
            lines.append(f"{name:<22}{ms:>9.1f}{beside}{ms / times['grpo', 'ours']:>15.2f}")
    return "\n".join(lines)


def profile(run: Callable[[], None]) -> str:
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(5):
            run()
    return seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="default: those whose inputs it makes")
    parser.add_argument("--alone", action="store_true", help="the losses without phase one, and their temporaries")
    parser.add_argument("--terms", nargs="*", default=list(TERMS), help="that a loss alone keeps")
    parser.add_argument("--profile", metavar="METHOD", help="show where one method spends its time instead")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    data = Data.of(options.rows, options.length)
    if options.profile:
        method = tokenpo.method(options.profile)
        print(profile(ours(method, data, TERMS if options.alone else None)))
        return
    names = options.only or [x for x in tokenpo.methods.METHODS if tokenpo.method(x).needs <= data.fields.keys()]
    print(f"{options.rows} x {options.length} tokens, float32, one thread, median CPU time of {options.rounds} rounds")
    if options.alone:
        print(losses_alone(data, names, options.rounds, options.terms))
        return
    runs: dict[tuple[str, str], Callable[[], None]] = {("grpo", "ours"): ours(tokenpo.method("grpo"), data)}
    for name in names:
        runs[name, "ours"] = ours(tokenpo.method(name), data)
        if (theirs := verls(name, data)) is not None:
            runs[name, "verl"] = theirs
    print(table(milliseconds(runs, options.rounds)))


if __name__ == "__main__":
    main()
