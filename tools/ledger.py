"""The ledger of claims as a page: each claim is one paired test per task, judged together with all the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layout import cell, table

from tokenpo.evidence.compare import paired

Tasks = Mapping[str, Mapping[str, Any]]
SHOWN = (
    "accuracy", "area", "train-area", "train-steps", "pass@1", "pass@4", "pass@16", "entropy", "mean:entropy",
    "sd:grad_norm",
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """`method` lies above (or below) factor times `other` in `metric`: d_s = method_s − factor · other_s."""

    paper: str
    words: str
    method: str
    other: str
    metric: str
    above: bool
    factor: float = 1.0


CLAIMS = (
    Claim("TEPO", "reaches the reward sooner than GRPO", "tepo", "grpo", "train-steps", False),
    Claim("TEPO", "reaches the reward sooner than DAPO", "tepo", "dapo", "train-steps", False),
    Claim("TEPO", "needs less than half of GRPO's steps", "tepo", "grpo", "train-steps", False, 0.5),
    Claim("TEPO", "needs less than half of DAPO's steps", "tepo", "dapo", "train-steps", False, 0.5),
    Claim("GTPO", "beats DAPO at pass@4", "gtpo", "dapo", "pass@4", True),
    Claim("GTPO", "beats DAPO at pass@16", "gtpo", "dapo", "pass@16", True),
    Claim("GRPO-S", "beats DAPO at pass@4", "grpo_s", "dapo", "pass@4", True),
    Claim("GRPO-S", "beats DAPO at pass@16", "grpo_s", "dapo", "pass@16", True),
    Claim("TR-GRPO", "smooths the gradient norm, against GRPO", "tr_grpo", "grpo", "sd:grad_norm", False),
    Claim("HAPO", "ends more accurate than DAPO", "hapo", "dapo", "accuracy", True),
    Claim("HAPO", "is more accurate than DAPO on the way", "hapo", "dapo", "area", True),
    Claim("HAPO", "keeps more entropy than DAPO", "hapo", "dapo", "entropy", True),
)
_PARTS = {
    "tau=0": "adaptive temperature",
    "token_mean_advantage=false": "token-level group average",
    "beta=0": "redistribution of advantages",
    "alpha=0": "adaptive clipping",
}
ABLATIONS = (
    *(
        Claim("HAPO", f"{part} {what}", "hapo", f"hapo:{off}", metric, True)
        for off, part in _PARTS.items()
        for metric, what in (("area", "raises accuracy on the way"), ("mean:entropy", "keeps entropy on the way"))
    ),
    Claim("TEPO", "the KL mask raises accuracy on the way", "tepo", "tepo_v1", "area", True),
    Claim("TEPO", "the KL mask keeps entropy", "tepo", "tepo_v1", "entropy", True),
)


@dataclass(frozen=True)
class Judged:
    """One claim on one task: p is of the sign-flip test, adjusted after Holm over all claims and tasks."""

    claim: Claim
    task: str
    differences: tuple[float, ...]
    mean: float
    low: float
    high: float
    adjusted: float
    family: int

    @property
    def verdict(self) -> str:
        if self.adjusted <= paired.ALPHA * (1 + 1e-9):
            return "**holds here**" if (self.mean > 0) == self.claim.above else "**the opposite here**"
        needed = paired.seeds_needed(self.differences, self.family) if any(self.differences) else None
        return f"inconclusive (takes about {needed} seeds)" if needed else "inconclusive"


def judge(claims: Sequence[Claim], tasks: Tasks) -> list[Judged]:
    """All claims on all tasks that measured both methods, as one family: at most 5 % of such ledgers err."""
    pairs = [
        (claim, task, _differences(claim, found["values"]))
        for claim in claims
        for task, found in tasks.items()
        if {claim.method, claim.other} <= found["values"][claim.metric].keys()
    ]
    p = [float(paired.sign_flip(paired.canonical(d)[0])) for *_, d in pairs]
    return [
        Judged(claim, task, d, statistics.fmean(d), *paired.bootstrap(d), adjusted, len(pairs))
        for (claim, task, d), adjusted in zip(pairs, paired.holm(p).tolist(), strict=True)
    ]


def _differences(claim: Claim, values: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[float, ...]:
    of = values[claim.metric]
    return tuple(a - claim.factor * b for a, b in zip(of[claim.method], of[claim.other], strict=True))


def page(tasks: Tasks, commands: Mapping[str, str]) -> str:
    claims, ablations = judge(CLAIMS, tasks), judge(ABLATIONS, tasks)
    return PAGE.format(
        commands="\n\n".join(f"```sh\n{command}\n```" for command in commands.values()),
        seeds=len(claims[0].differences),
        count=len(claims),
        ablation_count=len(ablations),
        claims=_ledger(claims),
        ablations=_ledger(ablations),
        summary=_summary(claims),
        ablation_summary=_summary(ablations),
        means="\n\n".join(_means(task, found) for task, found in tasks.items()),
    )


def _ledger(judged: Sequence[Judged]) -> str:
    head = ("paper", "claim", "task", "difference in", "mean", "95 % interval", "p, Holm", "verdict")
    rows = []
    for item in judged:
        claim = item.claim
        factor = "" if claim.factor == 1 else f"{claim.factor:g} · "
        what = f"{claim.metric}, {claim.method} − {factor}{claim.other}"
        interval = f"{item.low:+.3g} to {item.high:+.3g}"
        row = (claim.paper, claim.words, item.task, what, f"{item.mean:+.3g}", interval, f"{item.adjusted:.3f}")
        rows.append((*map(cell, row), item.verdict))
    return table(head, rows)


def _summary(judged: Sequence[Judged]) -> str:
    verdicts = [item.verdict for item in judged]
    holds, opposite = verdicts.count("**holds here**"), verdicts.count("**the opposite here**")
    return (
        f"Of {len(judged)} tests, {holds} hold here, {opposite} show the opposite, and "
        f"{len(judged) - holds - opposite} are inconclusive."
    )


def _means(task: str, found: Mapping[str, Any]) -> str:
    values = found["values"]
    rows = []
    for method in values["accuracy"]:
        row = [f"`{method}`"]
        for metric in SHOWN:
            numbers = values.get(metric, {}).get(method)
            never = len(found["never"].get(metric, {}).get(method, []))
            mean = f"{statistics.fmean(numbers):.3g}" if numbers else ""
            row.append(f"≥ {mean} ({never} never)" if never else mean)
        rows.append(tuple(row))
    return f"### {task}\n\nThe threshold of `train-steps` is {found['threshold']}.\n\n{table(('method', *SHOWN), rows)}"


PAGE = """\
<!-- Written by tools/claims.py from docs/claims.json: `python tools/claims.py page`. -->

# The claims of the papers, tried here

What the papers report of their methods, tested on the embedded bed with paired seeds: the tiny model that ships, two
arithmetic tasks, thirty rollout batches of 32 prompts x 8 responses with four updates each. That is far from the
papers' models, data and budgets. A claim that does not show here is not refuted there; a claim that holds here is not
proven there. Every method ran at its defaults and at the recipe's learning rate, nothing was tuned for any of them, and
claims, metrics, thresholds and tests were fixed before the runs.

{summary}

{claims}

Each row is the mean over {seeds} seeds of a paired difference; equal seeds share initial weights, order of prompts and
the sampler's random numbers. p is the exact sign-flip test's, corrected by Holm over all {count} rows: at most 5 % of
such ledgers hold a false verdict. The interval (bootstrap, not corrected) shows the size. `train-steps` is the first
step with a training accuracy at the threshold (a run that never got there counts as one step beyond its end, a lower
bound); `area` the mean height of the held-out greedy accuracy over the steps;
`entropy` that of the tokens sampled in the last step, `mean:entropy` over all steps, in nats; `sd:grad_norm` the
standard deviation of the gradient norm over the steps; pass@k the unbiased estimate from 16 samples of each of 100
held-out problems.
[Comparison](comparison.md) says how the tests work.

## Ablations

HAPO without each of its four parts, and TEPO without its KL mask (`tepo_v1`): the difference is the whole method minus
the one without the part. {ablation_summary} Corrected over these {ablation_count} rows. On the
quickstart, which every variant solves, they can tell little but speed.

{ablations}

## Means

{means}

## How it was made

`python tools/claims.py run` trains and evaluates, `collect` writes [claims.json](claims.json) with every number of
every run, `page` writes this page. The commands, one of the evaluations by samples standing for all:

{commands}
"""
