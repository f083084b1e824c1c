"""Trains SmolLM2-135M on sums with several methods and seeds, and with single-seed variations.

    make models/smollm2/config.json
    python studies/real-model/study.py run --seconds 6000      # goes on where it stopped; one JSON line a run
    python studies/real-model/study.py plan                    # the runs in order, and which are done

Each run is a process of its own, so that its memory and weights go with it. Nothing but `runs.jsonl` is kept.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tokenpo.core.seeds import keyed_seed
from tokenpo.train.models import Sampling
from tokenpo.train.recipe.config import load_config
from tokenpo.train.recipe.files import find_recipe
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.checkpoint import Progress
from tokenpo.train.run.directory import LOGS, OpenRun, new_directory
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.rollout import draw, facts
from tokenpo.train.run.step import Run
from tokenpo.train.tasks.generated import Generated, Sums
from tokenpo.train.tasks.types import Problem, Score

RUNS = Path(__file__).with_name("runs.jsonl")
LITERAL = {"weight_placement": "ratio", "kl_weighting": "inside"}
METHODS = {
    "dapo": ("dapo", {}), "tr_grpo_literal": ("tr_grpo", LITERAL), "grpo": ("grpo", {}), "gspo": ("gspo", {}),
    "cispo": ("cispo", {}), "tepo": ("tepo", {}), "gtpo": ("gtpo", {}), "grpo_s": ("grpo_s", {}),
    "tr_grpo": ("tr_grpo", {}), "hapo": ("hapo", {}),
}  # fmt: skip
SMALL = {"rollout.prompts": 8, "train.steps": 6}  # half of the recipe's prompts, 12 updates
TUNING, SEEDS = 100, range(1, 10)
RATES = (1e-5, 2e-5, 3e-5)
KEPT = (
    "accuracy", "reward", "entropy", "kl", "clip_fraction", "length", "truncated", "equal_reward_groups", "grad_norm",
    "seconds_rollout", "seconds_update",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: its name, its method with options, its seed, and settings that differ from the recipe's.

    Args:
        reward: rewards of training: true, random, flipped or echo; accuracy always counts the right answers.
        task: sums or sorting.
        more: also evaluates subtraction, sums of three digits and pass@8.
    """

    name: str
    method: str
    seed: int
    options: dict
    settings: dict
    reward: str = "true"
    more: bool = False
    task: str = "sums"


def jobs() -> list[Job]:
    """All runs in order, as far as they are known before the tuning seed has chosen a rate."""
    rate = chosen()
    tuning = [Job(f"rate {x:g}", "dapo", TUNING, {}, {**SMALL, "train.lr": x}) for x in RATES]
    if rate is None:
        return tuning
    small = {**SMALL, "train.lr": rate}

    def round_of(seed: int) -> list[Job]:
        return [Job(f"{name} {seed}", method, seed, options, small) for name, (method, options) in METHODS.items()]

    def side(name: str, reward: str = "true", **changes: object) -> Job:
        settings = {**small, **{key.replace("__", "."): value for key, value in changes.items()}}
        return Job(name, "dapo", 1, {}, settings, reward)

    recipe = [
        Job("before", "dapo", 0, {}, {"train.steps": 0}, more=True),
        Job("recipe", "dapo", 0, {}, {}, more=True),  # `tokenpo train smollm2 --set train.autocast=true`
    ]
    sides = [
        side("random rewards", "random"),
        side("flipped rewards", "flipped"),
        side("echoes paid", "echo"),
        side("rate 1e-4", train__lr=1e-4),
        side("lora", model__lora__rank=16, train__lr=1e-4),
        side("group of 2", rollout__group_size=2, rollout__prompts=32),
        side("group of 4", rollout__group_size=4, rollout__prompts=16),
        side("group of 16", rollout__group_size=16, rollout__prompts=4),
    ]
    rounds = {seed: round_of(seed) for seed in SEEDS}
    others = [job for seed in SEEDS[2:] for job in rounds[seed]]
    return [*tuning, *rounds[1], *recipe, *sides[:6], *rounds[2], *sides[6:], *others]


# ---- Tasks


class Differences(Sums):
    """Subtraction of two numbers of two digits, asked in the words of the sums."""

    def draw(self, split, position):
        problem = super().draw(split, position)
        a, b = map(int, re.findall(r"\d+", problem.prompt[0]["content"]))
        asked = f"What is {a} - {b}? Give only the number."
        return dataclasses.replace(problem, prompt=[{"role": "user", "content": asked}], answer=str(a - b))


class Sorting(Generated):
    """Three different numbers of two digits to sort; the last three numbers of a response are its answer."""

    about = "sorting"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def draw(self, split, position):
        rng = random.Random(f"sorting/{self.seed}/{split}/{position}")
        numbers = rng.sample(range(10, 100), 3)
        while (sum(numbers) % 10 == 0) != (split == "test"):  # a tenth is held out
            numbers = rng.sample(range(10, 100), 3)
        text = f"Sort these numbers from smallest to largest: {', '.join(map(str, numbers))}."
        asked = [{"role": "user", "content": f"{text} Give only the sorted numbers."}]
        return Problem(prompt=asked, answer=", ".join(map(str, sorted(numbers))))

    def judge(self, problem, completion):
        answer = ", ".join(re.findall(r"\d+", completion)[-3:])
        return Score(float(answer == problem.answer), answer == problem.answer, "", answer)


class Paid:
    """A task whose rewards differ from its accuracy."""

    def __init__(self, task, how: str, seed: int) -> None:
        self._task, self._how, self._rng = task, how, random.Random(f"{how} {seed}")

    def __getattr__(self, name):
        return getattr(self._task, name)

    def score(self, problems, completions, completion_ids):
        scores = self._task.score(problems, completions, completion_ids)
        return [self._paid(*x) for x in zip(scores, problems, completions, strict=True)]

    def _paid(self, score, problem, completion):
        if self._how == "random":
            reward = float(self._rng.random() < 0.5)
        elif self._how == "flipped":
            reward = abs(score.reward - (self._rng.random() < 0.2))
        else:  # an evaluating verifier takes A + B for its value
            echo = _value(completion) == int(problem.answer)
            return dataclasses.replace(score, reward=float(echo), note="echo" if echo and not score.correct else "")
        return dataclasses.replace(score, reward=reward)


def _value(text: str) -> int | None:
    """The value of the last sum of numbers in a text."""
    found = re.findall(r"\d+(?:\s*\+\s*\d+)*", text.replace(",", ""))
    return sum(map(int, found[-1].split("+"))) if found else None


# ---- One run


class Quiet:
    """A view that prints what a run says, and nothing of its steps."""

    def start(self, about, directory, step, notes): ...

    def say(self, text):
        print(f"  {text}", flush=True)

    def step(self, metrics, total):
        print("  " + " ".join(f"{k} {metrics[k]:.3g}" for k in KEPT if k in metrics), flush=True)

    def stop(self): ...


def do(job: Job, place: Path, model: str) -> dict:
    """Trains, evaluates, and returns the line of the run."""
    began = time.process_time()
    settings = {
        "model.path": model, "threads": 1, "train.autocast": "true", "seed": job.seed, "output.trace_every": 0,
        "output.checkpoint_every": 0, **job.settings,
        **{f"method.{k}": v for k, v in job.options.items()},
    }  # fmt: skip
    steps = settings.pop("train.steps", 16)
    overrides = [f"{k}={v}" for k, v in settings.items()] + [f"train.steps={max(steps, 1)}"]
    config = load_config(find_recipe("smollm2"), method=job.method, overrides=overrides, out=str(place / "run"))
    plan = Plan(config)
    model = Local.open(plan)
    if job.task == "sorting":
        model.task = Sorting(job.seed)
    if job.reward != "true":
        model.task = Paid(model.task, job.reward, job.seed)
    progress = Progress(sizes=dict.fromkeys(LOGS, 0))
    model.start(None, progress)
    directory = new_directory(config)
    run = Run(model, plan, OpenRun(directory, config, 0, print), Quiet(), progress)
    for _ in range(steps):
        run.step()
    run.records.close()
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    curve = {k: [_short(x[k]) for x in lines] for k in KEPT if lines and k in lines[0]}
    notes = {k: [x.get(k, 0.0) for x in lines] for k in {k for x in lines for k in x if k.startswith("note/")}}
    ends = {"held_out": lines[-1]["eval/accuracy"], "held_out_length": lines[-1]["eval/length"]} if lines else {}
    if job.more:
        ends |= further(model.lm, job.seed, passes=job.name in ("before", "recipe"), held_out=not lines)
    if job.name == "before":
        ends |= rounding(model.trainer.forward, job.seed)
    return {
        **dataclasses.asdict(job), **ends, "curve": curve, "notes": notes,
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def further(lm, seed: int, *, passes: bool, held_out: bool) -> dict:
    """Greedy accuracy on 100 problems of other tasks, and pass@8 of 50 sums."""
    evaluation = keyed_seed(seed, "evaluation")
    tasks = {"differences": Differences(seed=seed), "three_digits": Sums(digits=3, seed=seed)}
    if held_out:
        tasks["held_out"] = Sums(seed=seed)
    found, texts = {}, {}
    for name, task in tasks.items():
        answers = draw(lm, task, "test", 0, 100, 1, Sampling(16, 0.0, evaluation))
        found[name], texts[name] = float(answers.correct().mean()), answers.completions[:3]
    greedy = draw(lm, Sums(seed=seed), "test", 0, 100, 1, Sampling(16, 0.0, evaluation)).completions
    found["bare"] = sum(bool(re.fullmatch(r"\s*\d+\s*", text)) for text in greedy) / len(greedy)
    texts["sums"] = greedy[:3]
    if passes:
        answers = draw(lm, Sums(seed=seed), "test", 0, 50, 8, Sampling(16, 1.0, evaluation))
        right = answers.correct().view(50, 8)
        found |= {"avg@8": float(right.mean()), "pass@8": float(right.amax(1).mean())}
        sums = [int(problem.answer) for problem in answers.problems for _ in range(8)]
        equal = [_value(text) == sum_ for text, sum_ in zip(answers.completions, sums, strict=True)]
        found["evaluated"] = sum(equal) / len(equal)  # right for a verifier that evaluates A + B
    return {**found, "texts": texts}


@torch.no_grad()
def rounding(forward, seed: int) -> dict:
    """Log-probabilities of the bf16 sampler against those of the float32 weights, on about 2,000 sampled tokens."""
    answers = draw(forward.lm, Sums(seed=seed), "test", 100, 18, 8, Sampling(16, 1.0, keyed_seed(seed, "evaluation")))
    rollouts = facts(answers)
    whole = dataclasses.replace(forward, lm=forward.lm.trained).policy(rollouts, answers.prompts)
    gap = (whole.logprob - rollouts.old_logprob)[rollouts.mask].double()
    outside = float(((gap.exp() - 1).abs() > 0.2).double().mean())
    return {"tokens": len(gap), "gap": float(gap.abs().mean()), "largest": float(gap.abs().max()), "outside": outside}


def _short(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.4g}")


def process(job: Job, model: str) -> None:
    """The run in a process of its own, whose line is appended to RUNS."""
    place = Path(tempfile.mkdtemp(prefix="real-model-"))
    try:
        line = do(job, place, model)
        with RUNS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def done() -> list[dict]:
    return [json.loads(line) for line in RUNS.read_text("utf-8").splitlines()] if RUNS.exists() else []


def chosen() -> float | None:
    """The rate of the tuning run with the highest mean training accuracy; None before all are made."""
    tried = {x["settings"]["train.lr"]: x for x in done() if x["seed"] == TUNING}
    if len(tried) < len(RATES):
        return None
    return max(tried, key=lambda lr: sum(tried[lr]["curve"]["accuracy"]))


def main(jobs: Callable[[], list[Job]], about: str | None) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "plan"))
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--model", default="models/smollm2")
    parser.add_argument("--last", action="store_true", help="begin with the last run: for a second process")
    options = parser.parse_args()
    began, fork = time.monotonic(), multiprocessing.get_context("fork")
    while True:
        made = done()
        names = {x["name"] for x in made}
        left = [job for job in jobs() if job.name not in names]
        if options.last:
            left.reverse()
        if options.command == "plan":
            print("\n".join([f"done: {', '.join(sorted(names))}", *(f"left: {job.name}" for job in left)]))
            return
        longest = max((x["cpu_seconds"] for x in made if x["name"] not in ("recipe", "before")), default=0)
        if not left or time.monotonic() - began + longest > options.seconds:
            return
        print(f"{left[0].name} ({len(made)} made)", flush=True)
        child = fork.Process(target=process, args=(left[0], options.model))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(f"{left[0].name} failed")


if __name__ == "__main__":
    main(jobs, __doc__)
