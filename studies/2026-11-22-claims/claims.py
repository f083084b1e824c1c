"""The claims of the papers on the embedded bed: runs, numbers, and their section of docs/bed.md.

    python claims.py run --out runs/claims       train and evaluate what is missing: hours, resumable
    python claims.py collect --out runs/claims   write every number of the runs to claims.json
    python claims.py page                        write a section of docs/bed.md from claims.json
    python claims.py page --check                exit 1 if it is not what the numbers say

Tasks, budgets, thresholds and claims are the constants below. They were written down before the runs, but for the two
claims by `train-area` and the rules by which `ledger.py` judges, which came after them; so no margin was registered,
and no row can be shown to be smaller than one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools" / "site")]
NUMBERS, PAGE = HERE / "claims.json", HERE.parents[1] / "docs" / "bed.md"

import ledger  # noqa: E402
from layout import write_section  # noqa: E402

SEEDS = 10
METHODS = ("grpo", "dapo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo")
VARIANTS = ("tepo_v1", "hapo:tau=0", "hapo:token_mean_advantage=false", "hapo:beta=0", "hapo:alpha=0")
METRICS = (
    "accuracy", "area", "steps", "train-area", "train-steps", "entropy", "mean:entropy", "length", "sd:grad_norm",
    "mean:grad_norm",
)  # fmt: skip
SHOWN = (
    "accuracy", "area", "train-area", "train-steps", "pass@1", "pass@4", "pass@16", "entropy", "mean:entropy",
    "cv:grad_norm",
)  # fmt: skip
SAMPLED = ("dapo", "gtpo", "grpo_s")
K = (1, 4, 16)
PROBLEMS = 100


CLAIMS = (
    ledger.Claim("TEPO", "learns more on the way than GRPO", "tepo", "grpo", "train-area", True),
    ledger.Claim("TEPO", "learns more on the way than DAPO", "tepo", "dapo", "train-area", True),
    ledger.Claim("TEPO", "reaches the reward sooner than GRPO", "tepo", "grpo", "train-steps", False),
    ledger.Claim("TEPO", "reaches the reward sooner than DAPO", "tepo", "dapo", "train-steps", False),
    ledger.Claim("TEPO", "needs less than half of GRPO's steps", "tepo", "grpo", "train-steps", False, 0.5),
    ledger.Claim("TEPO", "needs less than half of DAPO's steps", "tepo", "dapo", "train-steps", False, 0.5),
    ledger.Claim("GTPO", "beats DAPO at pass@4", "gtpo", "dapo", "pass@4", True),
    ledger.Claim("GTPO", "beats DAPO at pass@16", "gtpo", "dapo", "pass@16", True),
    ledger.Claim("GRPO-S", "beats DAPO at pass@4", "grpo_s", "dapo", "pass@4", True),
    ledger.Claim("GRPO-S", "beats DAPO at pass@16", "grpo_s", "dapo", "pass@16", True),
    ledger.Claim("TR-GRPO", "smooths the gradient norm, against GRPO", "tr_grpo", "grpo", "cv:grad_norm", False),
    ledger.Claim("HAPO", "ends more accurate than DAPO", "hapo", "dapo", "accuracy", True),
    ledger.Claim("HAPO", "is more accurate than DAPO on the way", "hapo", "dapo", "area", True),
    ledger.Claim("HAPO", "keeps more entropy than DAPO", "hapo", "dapo", "entropy", True),
)
_PARTS = {
    "tau=0": "adaptive temperature",
    "token_mean_advantage=false": "token-level group average",
    "beta=0": "redistribution of advantages",
    "alpha=0": "adaptive clipping",
}
ABLATIONS = (
    *(
        ledger.Claim("HAPO", f"{part} {what}", "hapo", f"hapo:{off}", metric, True)
        for off, part in _PARTS.items()
        for metric, what in (("area", "raises accuracy on the way"), ("mean:entropy", "keeps entropy on the way"))
    ),
    ledger.Claim("TEPO", "the KL mask raises accuracy on the way", "tepo", "tepo_v1", "area", True),
    ledger.Claim("TEPO", "the KL mask keeps entropy", "tepo", "tepo_v1", "entropy", True),
)


@dataclass(frozen=True)
class Task:
    """A recipe, the accuracy that `steps` waits for, the methods, and what `tokenpo eval` is told of its problems."""

    recipe: str
    threshold: float
    methods: tuple[str, ...]
    evaluation: tuple[str, ...]


TASKS = (
    Task("quickstart", 0.9, METHODS + VARIANTS, ("--max-new-tokens", "80")),
    Task("long_chains", 0.5, METHODS + VARIANTS, ("--max-new-tokens", "112", "--task-option", "operands=[8,16]")),
)


def comparison(task: Task, out: Path, methods: Sequence[str]) -> list[str]:
    """The command that trains; the same one again skips what is done."""
    settings = ("train.steps=30", "evaluate.samples=0", "evaluate.every=5")
    return [
        "compare", task.recipe, "--methods", ",".join(methods), "--seeds", str(SEEDS), "--out", str(out / task.recipe),
        "--threshold", str(task.threshold), *(word for setting in settings for word in ("--set", setting)),
        "--metrics", ",".join(METRICS),
    ]  # fmt: skip


def evaluations(task: Task, out: Path) -> Iterator[tuple[str, int, Path, list[str]]]:
    """(method, seed, directory, command) of each evaluation by samples; problems and draws are those of the seed."""
    for method in SAMPLED:
        for seed in range(SEEDS):
            name = f"{method}-seed{seed}"
            directory = out / f"{task.recipe}-eval" / name
            yield method, seed, directory, [
                "eval", str(out / task.recipe / name), "--task", "dial_sum", *task.evaluation, "--seed", str(seed),
                "--problems", str(PROBLEMS), "--samples-per-prompt", str(max(K)), "--k", ",".join(map(str, K)),
                "--rows", "400", "--device", "cpu", "--out", str(directory),
            ]  # fmt: skip


def run(out: Path) -> None:
    """Everything that is missing: first the methods of the claims, then the ablations, then the samples."""
    tokenpo = [sys.executable, "-m", "tokenpo"]
    for count in (len(METHODS), None):
        for task in TASKS:
            subprocess.run([*tokenpo, *comparison(task, out, task.methods[:count])], check=True)
    for task in TASKS:
        for *_, directory, command in evaluations(task, out):
            if not (directory / "results.json").is_file():
                subprocess.run([*tokenpo, *command], check=True)


def collect(out: Path) -> None:
    """claims.json: values by task, metric, method and seed, with the runs whose number is a lower bound."""
    tasks = {task.recipe: _numbers(task, out) for task in TASKS}
    NUMBERS.write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")


def _numbers(task: Task, out: Path) -> dict[str, Any]:
    found = json.loads((out / task.recipe / "compare.json").read_text(encoding="utf-8"))
    metrics = {
        metric["name"]: {
            label: [_short(by_seed[str(seed)]) for seed in range(SEEDS)] for label, by_seed in metric["values"].items()
        }
        for metric in found["metrics"]
    }
    for method, seed, directory, _ in evaluations(task, out):
        for number in json.loads((directory / "results.json").read_text(encoding="utf-8"))["numbers"]:
            if number["metric"] == "pass@k":
                values = metrics.setdefault(f"pass@{number['k']}", {}).setdefault(method, [None] * SEEDS)
                values[seed] = _short(number["value"])
    never = {metric["name"]: {k: v for k, v in metric["censored"].items() if v} for metric in found["metrics"]}
    return {
        "threshold": task.threshold,
        "versions": found["versions"],
        "values": metrics,
        "never": {name: of for name, of in never.items() if of},
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def commands() -> Mapping[str, str]:
    """What the page shows as having made its numbers, by task."""
    out = Path("runs/claims")
    shown = {}
    for task in TASKS:
        *_, sampled = next(evaluations(task, out))
        lines = (comparison(task, out, task.methods), sampled)
        shown[task.recipe] = "\n".join("tokenpo " + " ".join(line) for line in lines)
    return shown


def found(numbers: Mapping[str, Any]) -> ledger.Tasks:
    """The numbers of claims.json, with the coefficient of variation of the gradient norm, which they imply."""
    tasks = {}
    for name, task in numbers.items():
        values = task["values"]
        sd, mean = values["sd:grad_norm"], values["mean:grad_norm"]
        cv = {method: [x / y for x, y in zip(sd[method], mean[method], strict=True)] for method in sd}
        tasks[name] = {**task, "values": {**values, "cv:grad_norm": cv}}
    return tasks


def page(numbers: Mapping[str, Any]) -> str:
    """The section of docs/bed.md."""
    tasks, looks = found(numbers), ledger.Looks((SEEDS,), (1.0,))
    claims, ablations = (ledger.judge(of, tasks, looks) for of in (CLAIMS, ABLATIONS))
    return TEMPLATE.format(
        seeds=SEEDS,
        claims=ledger.rows(claims),
        summary=ledger.summary(claims),
        families=ledger.families(claims),
        ablations=ledger.rows(ablations),
        ablation_summary=ledger.summary(ablations),
        ablation_families=ledger.families(ablations),
        means="\n\n".join(ledger.means(task, of, SHOWN) for task, of in tasks.items()),
        commands="\n\n".join(f"```sh\n{command}\n```" for command in commands().values()),
    )


TEMPLATE = """\
No claim of a paper shows with {seeds} seeds. Six tests refute a claim of TEPO: its training curve lies below GRPO's
and DAPO's, and where every run arrives it takes more than half of their steps. No single part of HAPO, and not TEPO's KL
mask, makes a difference that ten seeds show.

HAPO took log-probabilities and entropies at each token's own temperature; it now takes them at the constant one.

<details markdown="1"><summary>The papers' claims. {summary}</summary>

{claims}

</details>

<details markdown="1"><summary>Without one part. {ablation_summary}</summary>

The difference is the whole method less the one without the part; `tepo_v1` is TEPO without its KL mask. On the
quickstart, which every variant solves, the tests can tell little but speed.

{ablations}

</details>

<details markdown="1"><summary>Means</summary>

{means}

</details>

<details markdown="1"><summary>What was set before, and the commands</summary>

Claims, metrics and thresholds were set before the runs; the two rows by `train-area` and the rules of judgement were not.
p is corrected over the rows of a paper: claims {families}; parts {ablation_families}. pass@k is the unbiased estimate from
16 samples of each of 100 held-out problems.

`python studies/2026-11-22-claims/claims.py run` trains and evaluates, `collect` writes
[claims.json](../studies/2026-11-22-claims/claims.json) with every number of every run, `page` writes this section. The
commands, one of the evaluations by samples standing for all:

{commands}

</details>
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "collect", "page"))
    parser.add_argument("--out", type=Path, default=Path("runs/claims"))
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.what == "run":
        run(chosen.out)
    elif chosen.what == "collect":
        collect(chosen.out)
    else:
        return write_section(PAGE, "claims", page(json.loads(NUMBERS.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
