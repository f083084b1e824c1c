"""Whether the numbers of a card are right, against float64 on the processor.

Each case gives the largest relative errors |out - reference| / |reference| (Frobenius norms) and fails above a
tolerance. Models are random or the tiny one of the package.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tokenpo
from tokenpo.core import trial
from tokenpo.core.head.fused import fused_gradient, fused_loss
from tokenpo.core.head.token_stats import token_stats
from tokenpo.core.types import Batch, Policy, Rollouts, Totals
from tokenpo.methods import METHODS

Numbers = dict[str, float | str]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}
# A clip, a ratio of the response, a gradient through the entropy, an entropy without, statistics of the whole step.
# Of all unclipped tokens, so that rounding changes nothing about which are drawn.
FUSED: dict[str, dict[str, Any]] = {
    "dapo": {},
    "gspo": {"low": 0.2, "high": 0.28},
    "skywork_entropy": {},
    "tepo": {},
    "clip_cov": {"low": 0.2, "high": 0.28, "fraction": 0.2, "cov_low": -torch.inf, "cov_high": torch.inf},
}
# (rows, longest response, H, V, chunk): some 700 tokens.
SHAPES = {False: (32, 34, 256, 32_003, 256), True: (16, 10, 16, 101, 30)}
TRAINED = {
    "tepo": [],
    "hapo": ["--set", "rollout.temperature=1.2"],
    "kl_cov": ["--set", "train.micro_tokens=60"],
    "adv_reweight": ["--set", "model.lora.rank=2"],
    "grpo": ["--set", "train.reference_kl.beta=0.1", "--set", "rollout.rescore=true"],
}
# Eight answers of some ten tokens, of which one is wrong. An eps that is large beside gradients: AdamW by itself makes
# whole steps of rounding.
RUN = [
    "--no-report", "--set", "task.options.operands=3", "--set", "rollout.prompts=2", "--set", "rollout.group_size=4",
    "--set", "rollout.max_new_tokens=24", "--set", "evaluate.problems=0", "--set", "output.checkpoint_every=1",
    "--set", "train.eps=1", "--set", "train.lr=0.05",
]  # fmt: skip
# Nor which gradients are exactly 0, such as that of a KL between equal policies: rounding decides.
UNTIMED = ("seconds", "tokens_per_second", "memory", "effective_tokens")


def cases(small: bool, device: str) -> dict[str, Callable[[], Numbers]]:
    """What is checked, by name."""
    torch.set_float32_matmul_precision("highest")
    found: dict[str, Callable[[], Numbers]] = {}
    for dtype in (torch.float64, torch.float32):
        found[f"objectives {_name(dtype)}"] = functools.partial(objectives, dtype, device)
    for way, dtype in itertools.product(WAYS, (torch.float32, torch.bfloat16)):
        found[f"{way} {_name(dtype)}"] = functools.partial(head, WAYS[way], dtype, small, device)
    found["fused_gradient under autocast"] = functools.partial(autocast_head, small, device)
    for model in ("tiny",) if small else ("tiny", "28M"):
        found[f"sampler {model}"] = functools.partial(sampler, model, small, device)
    for name in ("hapo", "adv_reweight") if small else ("tepo", "hapo", "kl_cov", "adv_reweight", "grpo"):
        found[f"run {name}"] = functools.partial(run, name, device)
    found["run under autocast"] = functools.partial(autocast_run, device)
    found["run resumed"] = functools.partial(resumed, device)
    return found


def objectives(dtype: torch.dtype, device: str) -> Numbers:
    """Loss and gradients of every method on random inputs."""
    worst: dict[str, float] = {}
    for name in METHODS:
        objective = tokenpo.method(name)
        inputs = trial.example(0).map(lambda x: x.to(dtype) if x.is_floating_point() else x)
        wanted = inputs.map(lambda x: x.double() if x.is_floating_point() else x).evaluate(objective)
        seen = inputs.map(lambda x: x.to(device)).evaluate(objective)
        # With its gradient, as a loss may cancel to nearly 0.
        losses = [torch.cat([x.loss.value.detach().reshape(1), x.gradient.flatten()]) for x in (seen, wanted)]
        parts = {"loss": tuple(losses), "gradient": (seen.gradient, wanted.gradient)}
        parts["entropy gradient"] = seen.entropy_gradient, wanted.entropy_gradient
        _note(worst, parts, TOLERANCE[dtype], name)
    return {**worst, "methods": float(len(METHODS))}


class Problem:
    """Ragged responses in groups of eight, every other group with equal rewards; a temperature for every token.

    Old log-probabilities and entropies lie away from the bounds of clips and masks, where rounding would decide.
    """

    def __init__(self, dtype: torch.dtype, small: bool) -> None:
        n, t, h, v, self.chunk = SHAPES[small]
        g = torch.Generator().manual_seed(1)
        self.mask = torch.arange(t) < torch.randint(t // 3, t + 1, (n, 1), generator=g)
        m = int(self.mask.sum())
        self.hidden, self.head, self.bias = (
            (torch.randn(*size, generator=g) * spread).to(dtype)
            for size, spread in (((m, h), 1.0), ((v, h), h**-0.5), ((v,), 1.0))
        )
        self.target = torch.randint(v, (m,), generator=g)
        self.heat = 0.5 + torch.rand(m, generator=g)
        self.reward = (torch.rand(n, generator=g) > 0.4).float()
        self.reward[::8], self.reward[1::8] = 1.0, 0.0
        self.reward[torch.arange(n) // 8 % 2 == 1] = 1.0
        self.group = torch.arange(n) // 8
        moved = torch.tensor([-0.6, -0.1, 0.12, 0.7])[torch.randint(4, (m,), generator=g)]
        logprob, entropy = self.stats(*(x.double() for x in (self.hidden, self.head, self.bias)))
        self.old = (logprob - moved).clamp(max=-1e-3).float()
        self.old_entropy = (entropy * torch.where(torch.rand(m, generator=g) < 0.5, 0.8, 1.2)).float()

    def stats(self, hidden: Tensor, head: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [M] as they are written."""
        logp = torch.log_softmax((hidden @ head.t() + bias) / self.heat.unsqueeze(-1), -1)
        return logp.gather(-1, self.target.unsqueeze(-1)).squeeze(-1), -(logp.exp() * logp).sum(-1)

    def table(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """[N, T] of the numbers [M] of the tokens."""
        return torch.full(self.mask.shape, fill, dtype=x.dtype).masked_scatter(self.mask, x)

    def rollouts(self, needs: Collection[str], device: str, dtype: torch.dtype = torch.float32) -> Rollouts:
        facts = {"old_logprob": self.table(self.old), "temperature": self.table(self.heat, 1.0), "reward": self.reward}
        if "old_entropy" in needs:
            facts["old_entropy"] = self.table(self.old_entropy)
        given = {name: x.to(dtype) for name, x in facts.items()}
        given |= {"mask": self.mask, "group": self.group, "token_ids": self.table(self.target)}
        return Rollouts(**{name: x.to(device) for name, x in given.items()})

    def reference(self, name: str) -> dict[str, Tensor]:
        """Everything in float64 on the processor, through autograd, from all logits at once."""
        objective = tokenpo.method(name, **FUSED[name])
        rollouts = self.rollouts(objective.needs, "cpu", torch.float64)
        leaves = [x.double().requires_grad_() for x in (self.hidden, self.head, self.bias)]
        logprob, entropy = self.stats(*leaves)
        needed = entropy if objective.entropy_gradient else entropy.detach()
        policy = Policy(self.table(logprob), self.table(needed) if "entropy" in objective.needs else None)
        batch = objective.observe(Batch(rollouts, objective.prepare(rollouts), policy), _drawn())
        value = objective.loss(batch, Totals.of(rollouts)).value
        return _seen(value, logprob, entropy, torch.autograd.grad(value, [logprob, *leaves]))

    def on(self, device: str, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Hidden states, head and bias as leaves on the device."""
        return [x.to(device, dtype or x.dtype, copy=True).requires_grad_() for x in (self.hidden, self.head, self.bias)]


def _seen(value: Tensor, logprob: Tensor, entropy: Tensor, gradients: Sequence[Tensor]) -> dict[str, Tensor]:
    """What is compared; the terms of a loss may cancel, so it stands beside the sum of their sizes."""
    pull, hidden, head, bias = gradients
    return {
        "loss": torch.stack([value.double(), pull.double().abs().sum()]),
        "logprob": logprob,
        "entropy": entropy,
        "hidden gradient": hidden,
        "head gradient": head,
        "bias gradient": bias,
    }


Way = Callable[[Problem, str, list[Tensor], str], dict[str, Tensor]]


def _fused(by_graph: bool, problem: Problem, name: str, leaves: list[Tensor], device: str) -> dict[str, Tensor]:
    """By `fused_loss`, or by `fused_gradient`."""
    objective = tokenpo.method(name, **FUSED[name])
    rollouts = problem.rollouts(objective.needs, device)
    hidden, head, bias = leaves
    step = objective, hidden, head, rollouts, objective.prepare(rollouts), Totals.of(rollouts)
    how: dict[str, Any] = {"bias": bias, "generator": _drawn()}
    if by_graph:
        fused = fused_loss(*step, chunk=problem.chunk, **how)
        fused.loss.value.backward()
        pulled = hidden.grad
    else:
        fused, pulled = fused_gradient(*step, chunk=problem.chunk, **how)
    assert pulled is not None and head.grad is not None and bias.grad is not None
    dead = (fused.pull[rollouts.mask] == 0) & (not objective.entropy_gradient)
    if pulled[dead].any() or (not dead.any() and not objective.entropy_gradient):
        raise ArithmeticError(f"{name}: tokens without advantage have a gradient, or there are none")
    at = rollouts.mask
    gradients = fused.pull[at], pulled, head.grad, bias.grad
    return _seen(fused.loss.value, fused.policy.logprob[at], fused.entropy[at], gradients)


def _apart(problem: Problem, name: str, leaves: list[Tensor], device: str) -> dict[str, Tensor]:
    """By `token_stats` and the loss through autograd."""
    objective = tokenpo.method(name, **FUSED[name])
    rollouts = problem.rollouts(objective.needs, device)
    hidden, head, bias = leaves
    seen = token_stats(
        hidden, head, problem.target.to(device), problem.heat.to(device), bias=bias, chunk=problem.chunk,
        entropy_grad=objective.entropy_gradient,
    )  # fmt: skip
    tables = [torch.zeros_like(rollouts.old_logprob).masked_scatter(rollouts.mask, x) for x in seen[:2]]
    policy = Policy(tables[0], tables[1] if "entropy" in objective.needs else None)
    batch = objective.observe(Batch(rollouts, objective.prepare(rollouts), policy), _drawn())
    value = objective.loss(batch, Totals.of(rollouts)).value
    return _seen(value, seen.logprob, seen.entropy, torch.autograd.grad(value, [seen.logprob, *leaves]))


WAYS: dict[str, Way] = {
    "fused_loss": functools.partial(_fused, True),
    "fused_gradient": functools.partial(_fused, False),
    "token_stats": _apart,
}


def head(way: Way, dtype: torch.dtype, small: bool, device: str) -> Numbers:
    """Loss, statistics and gradients from hidden states and head."""
    problem, worst = _problem(dtype, small), {}
    for name in FUSED:
        seen, wanted = way(problem, name, problem.on(device), device), _reference(problem, name)
        _note(worst, {what: (x, wanted[what]) for what, x in seen.items()}, TOLERANCE[dtype], name)
    return {**worst, "tokens": float(len(problem.target))}


def autocast_head(small: bool, device: str) -> Numbers:
    """A float32 head, whose products autocast makes in bf16, against the head rounded to bf16."""
    problem, worst = _problem(torch.bfloat16, small), {}
    for name in FUSED:
        leaves = problem.on(device, torch.float32)
        with torch.autocast(device, dtype=torch.bfloat16):
            seen = WAYS["fused_gradient"](problem, name, leaves, device)
        if seen["head gradient"].dtype != torch.float32:
            raise ArithmeticError(f"the gradient of a float32 head is {seen['head gradient'].dtype}")
        wanted = _reference(problem, name)
        _note(worst, {what: (x, wanted[what]) for what, x in seen.items()}, TOLERANCE[torch.bfloat16], name)
    return worst


def sampler(model: str, small: bool, device: str) -> Numbers:
    """The tokens that the device samples, and their statistics where the tokens are those of the processor."""
    from sampler import random_model
    from tokenpo.train.models import Sampling, sample

    rows, length = (2, 8) if small else (4, 32)
    prompts = torch.randint(3, 22, (rows, 17), generator=torch.Generator().manual_seed(1)).tolist()
    here, there = (sample(random_model(model, x), prompts, 4, Sampling(length, seed=3)) for x in ("cpu", device))
    both = {field.name: (getattr(there, field.name).cpu(), getattr(here, field.name)) for field in _tensors(here)}
    if both["token_ids"][0].shape != both["token_ids"][1].shape:
        raise ArithmeticError("the device samples responses of other lengths than the processor")
    alike = (both["token_ids"][0] == both["token_ids"][1]).all(1)
    if alike.float().mean() < 0.9:
        raise ArithmeticError(f"{float(alike.float().mean()):.3g} of the responses are those of the processor")
    worst: dict[str, float] = {}
    parts = {
        what: (x[alike], y[alike]) for what, (x, y) in both.items() if x.is_floating_point() and len(x) == len(alike)
    }
    _note(worst, parts, 1e-4, model)
    return {**worst, "equal responses": float(alike.float().mean()), "responses": float(len(alike))}


def trained(out: Path, name: str, where: str, *more: str, steps: int = 1) -> list[dict[str, float]]:
    """The metrics of a run; the model it leaves is in `out`."""
    from tokenpo.cli.main import main

    given = ["--method", name, "--set", f"model.device={where}", "--set", f"train.steps={steps}", "--out", str(out)]
    if main(["train", "quickstart", *given, *RUN, *more]) != 0:
        raise RuntimeError(f"the run of {name} on {where} failed")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: x for k, x in line.items() if not k.startswith(UNTIMED)} for line in lines]


def run(name: str, device: str) -> Numbers:
    """Two steps of the embedded engine on the device and on the processor: metrics and the model that is left."""
    with _quiet() as folder:
        here, there = (
            trained(folder / label, name, where, *TRAINED[name], steps=2)
            for label, where in (("here", "cpu"), ("there", device))
        )
        errors = {
            f"step {i + 1} {key}": abs(line[key] - x) / max(abs(x), 1e-3)
            for i, (line, wanted) in enumerate(zip(there, here, strict=True))
            for key, x in wanted.items()
            if isinstance(x, int | float)
        }
        weights = max(
            _relative(x, y) for x, y in zip(_weights(folder / "there"), _weights(folder / "here"), strict=True)
        )
    where = max(errors, key=lambda key: errors[key])
    if not errors[where] <= 1e-3 or not weights <= 1e-4:
        raise ArithmeticError(f"{where} differs by {errors[where]:.2g}, the weights by {weights:.2g}")
    return {"metrics": errors[where], "at": where, "weights": weights, "grad_norm": there[-1]["grad_norm"]}


def autocast_run(device: str) -> Numbers:
    """bf16 forward passes: other numbers, near those of float32, on a card and on a CPU with bf16."""
    from tokenpo.train.models.half import has_bf16

    with _quiet() as folder:
        whole, half = (
            trained(folder / str(on), "dapo", device, "--set", f"train.autocast={json.dumps(on)}")[-1]
            for on in (False, True)
        )
    error = abs(half["entropy"] / whole["entropy"] - 1)
    if not error < 0.2 or (error != 0) != has_bf16(torch.device(device)):
        raise ArithmeticError(f"under autocast the entropy differs by {error:.2g}")
    return {"entropy": error, "grad_norm": abs(half["grad_norm"] / whole["grad_norm"] - 1)}


def resumed(device: str) -> Numbers:
    """Two steps in one run, again, and with an interruption: whether the model's bytes are the same."""
    from tokenpo.cli.main import main

    with _quiet() as folder:
        for label, steps in (("whole", 2), ("again", 2), ("part", 1)):
            trained(folder / label, "skywork_entropy", device, steps=steps)
        if main(["train", "--resume", str(folder / "part"), "--set", "train.steps=2"]) != 0:
            raise RuntimeError("the run did not resume")
        whole, *others = (_weights(folder / label) for label in ("whole", "again", "part"))
        errors = [max(_relative(x, y) for x, y in zip(other, whole, strict=True)) for other in others]
    if max(errors) > 1e-4:
        raise ArithmeticError(f"a repeated run differs by {errors[0]:.2g}, a resumed one by {errors[1]:.2g}")
    return {"a repeated run": errors[0], "a resumed run": errors[1]}


def _weights(folder: Path) -> list[Tensor]:
    from safetensors.torch import load_file

    found = load_file(folder / "model" / "model.safetensors")
    return [found[name] for name in sorted(found)]


@contextlib.contextmanager
def _quiet() -> Iterator[Path]:
    """A folder of runs that print nothing."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        yield Path(folder)


@functools.cache
def _problem(dtype: torch.dtype, small: bool) -> Problem:
    return Problem(dtype, small)


@functools.cache
def _reference(problem: Problem, name: str) -> dict[str, Tensor]:
    return problem.reference(name)


def _drawn() -> torch.Generator:
    """The draws of a method, on the processor in every case."""
    return torch.Generator().manual_seed(3)


def _relative(x: Tensor, reference: Tensor) -> float:
    x, reference = x.detach().cpu().double(), reference.detach().cpu().double()
    return float((x - reference).norm() / reference.norm().clamp(min=1e-12))


def _note(worst: dict[str, float], parts: dict[str, tuple[Tensor, Tensor]], tolerance: float, name: str) -> None:
    """Keeps the largest relative errors.

    Raises:
        ArithmeticError: one is above the tolerance, or not a number.
    """
    for what, (x, wanted) in parts.items():
        error = _relative(x, wanted)
        if not error <= tolerance:
            raise ArithmeticError(f"{name}: {what} differs by {error:.2g}, more than {tolerance:g}")
        worst[what] = max(worst.get(what, 0.0), error)


def _tensors(x: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(x) if isinstance(getattr(x, field.name), Tensor)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
