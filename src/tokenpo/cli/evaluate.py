"""`tokenpo eval` and `audit`: the accuracy of a model or of samples, and rewarded responses that look wrong."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import expanded
from .options import add_command, need, need_engine
from .streams import progress

if TYPE_CHECKING:
    from ..train.recipe.config import Config

EXAMPLES = """examples:
  tokenpo eval tiny --task dial_sum --problems 50 --samples-per-prompt 8 --k 1,4,8 --max-new-tokens 64
  tokenpo eval runs/quickstart-tepo-seed0                           on what the run itself was evaluated on
  tokenpo eval runs/quickstart-tepo-seed0 --task-option operands=10 on harder problems of its task
  tokenpo eval Qwen/Qwen3-0.6B --benchmark math500 --samples-per-prompt 4 --k 1,4 --temperature 0.6
  tokenpo eval MODEL --benchmark aime25 --data aime25.jsonl --samples-per-prompt 32 --k 1,8,32
  tokenpo eval --samples samples.jsonl --k 1,4,8

benchmarks: math500 aime24 aime25 amc23 minerva olympiadbench omni_math gsm8k countdown
Docs: docs/evaluation.md. Ctrl-C keeps what was sampled; the same command goes on from there.
"""
AUDITS = """examples:
  tokenpo audit runs/my-run                    its recorded rollouts, else its samples.jsonl
  tokenpo audit samples.jsonl --show 5
  tokenpo audit completions_00010.parquet      written by TRL's log_completions

Docs: docs/verifiers.md
"""
PROBLEMS = 200  # default number of problems of a task that generates them without end
SAMPLING = ("samples_per_prompt", "temperature", "top_p", "top_k", "min_p", "max_new_tokens", "rows", "dtype", "device")
CHANGES = ("question", "answer", "reference", "prompt", "verifier", "extract")
ASKING = ("benchmark", "data", "task", "task_option", "problems", "question", "answer", "reference", "prompt", "chat")


def add(commands: Any) -> None:
    about = "avg@k, pass@k, pass^k and maj@k of a model or of samples, with intervals"
    parser = add_command(commands, evaluate, about, EXAMPLES, name="eval")
    take = parser.take
    take("model", "MODEL", "run directory, model directory, hub id, or tiny", nargs="?")
    take("--samples", "FILE", "samples made elsewhere (JSON Lines), in place of MODEL")
    take("--k", "K,K,...", "values of k; default: 1 and the number of samples per prompt")
    take("--seed", "N", "seed of samples, bootstrap and, with --task, problems; default: the run's, or 0")
    parser.take("--out", "DIR", "directory to write; default: runs/eval-MODEL-NAME-seedN")

    group = parser.add_argument_group("problems")
    take("--benchmark", "NAME|FILE", "a benchmark by name, or a .jsonl or .parquet file", group=group)
    take("--data", "FILE", "a local copy of the benchmark's problems", group=group)
    take("--task", "NAME", "the test split of a task, such as dial_sum; default: that of the run", group=group)
    option = "an option of the task; may be repeated"
    take("--task-option", "KEY=VALUE", option, group=group, action="append", default=[])
    most = f"only the first N; default: all, or {PROBLEMS} of a task that generates them"
    take("--problems", "N", most, group=group)
    take("--question", "COLUMN", "column with the question", group=group)
    take("--answer", "COLUMN", "column with the reference answer", group=group)
    reference = "how to read it from that column: whole, hash, boxed, ..., or all: join a list"
    take("--reference", "HOW", reference, group=group)
    take("--prompt", "TEXT", "what to ask, with {question} and {COLUMN} filled in from the row", group=group)
    chat = "ask in the chat format; default: yes if the model has one"
    group.add_argument("--chat", choices=("yes", "no"), help=chat)
    take("--verifier", "NAME", "math, exact, ..., or package.module:function", group=group)
    take("--extract", "HOW", "how to read the answer from a completion: boxed, tag, hash, ...", group=group)

    about = "by default a run that is evaluated on its own task is sampled as in training"
    group = parser.add_argument_group("sampling", about)
    take("--samples-per-prompt", "N", "default: 1", group=group)
    take("--temperature", "T", "0 is greedy; default: 1", group=group, type=float)
    take("--top-p", "P", "sample among the fewest tokens that reach this probability", group=group, type=float)
    take("--top-k", "K", "sample among this many most probable tokens", group=group, type=int)
    take("--min-p", "P", "sample among tokens of at least this share of the largest", group=group, type=float)
    take("--max-new-tokens", "N", "longest sample; default: 512", group=group)
    take("--rows", "N", "responses sampled at once; default: 64", group=group)
    take("--dtype", "NAME", "float32, bfloat16, ...; default: float32", group=group)
    take("--device", "NAME", "cpu, cuda, ...; default: cuda where there is one", group=group)

    parser = add_command(commands, audit, "rewarded responses that look wrong, from any host", AUDITS)
    parser.take("responses", "RESPONSES", "a run directory, or a .jsonl or .parquet file", type=expanded)
    parser.take("--show", "N", "responses shown of each finding; default: 3", default=3)
    least = "least reward that counts as rewarded, where a line has no `correct`; default: 1"
    parser.take("--rewarded-at", "X", least, type=float, default=1.0)
    parser.flag("--json", "print JSON, with every response of a finding")


def evaluate(options: argparse.Namespace) -> int:
    need_engine()
    run = _run(options)
    _check(options, run is not None)
    options.seed = options.seed if options.seed is not None else run.seed if run is not None else 0
    return _of_samples(options) if options.samples else _of_model(options, run)


def _run(options: argparse.Namespace) -> Config | None:
    """The settings of the run directory MODEL; None if it is not a run directory, or if other problems are named."""
    from ..train.models.directory import is_local, is_run, refuse_adapter, require_there
    from ..train.recipe.config import load_config

    if options.model in (None, "tiny") or options.task or options.benchmark:
        return None
    path = expanded(options.model)
    if is_local(options.model) or path.parts[0] == "runs":
        require_there(path)
    refuse_adapter(path)
    return load_config(path / "config.json") if is_run(path) else None


def _check(options: argparse.Namespace, is_run: bool) -> None:
    """Refuses options that would be ignored, and values out of range."""
    drawn, named = options.samples is not None, options.benchmark is not None

    def given(*names: str) -> str:
        """The first of these options that is given, as it is written; "" if none is."""
        found = (name for name in names if getattr(options, name) not in (None, []))
        return f"--{next(found, '')}".replace("_", "-").removesuffix("--")

    ignored, foreign = given(*SAMPLING, *ASKING), given("data", "chat", *CHANGES)
    asked = named != (options.task is not None) or is_run
    needs = "eval needs --benchmark NAME (tokenpo eval --help) or --task NAME; only a run directory brings its own task"
    elsewhere = "set up a benchmark with --question, --answer and --prompt"
    for wrong, said in (
        ((options.seed or 0) < 0, f"--seed is {options.seed}, expected at least 0"),
        ((options.model is None) != drawn, "eval needs a MODEL to sample or --samples FILE, one of the two"),
        (drawn and ignored, f"{ignored} has no effect on --samples, which are drawn already: leave it out"),
        (drawn and options.extract and not options.verifier, "--extract needs a verifier: name one with --verifier"),
        (not drawn and not asked, needs),
        (not drawn and foreign and not named, f"{foreign} goes with --benchmark; a task takes --task-option KEY=VALUE"),
        (
            options.problems is not None and options.problems < 1,
            f"--problems is {options.problems}, expected at least 1",
        ),
        (named and options.task_option, f"--task-option goes with --task; {elsewhere}"),
    ):
        if wrong:
            raise TokenPOError(said)


def _of_samples(options: argparse.Namespace) -> int:
    from ..lab.evaluate.run import describe_file, prepare
    from ..lab.evaluate.summary import read_samples
    from ..train.tasks.verify import VerifierOptions, make_verifier

    ks, verifier = _ks(options.k), None
    if options.verifier:
        verifier = make_verifier(options.verifier, VerifierOptions(options.extract or ""), "eval")
    try:
        samples, notes = read_samples(options.samples, verifier)
    finally:
        if verifier is not None:
            verifier.close()
    source = verifier.source if verifier is not None else ""
    config = describe_file(options.samples, options.verifier, options.extract, options.seed, source)
    if options.out is not None:
        prepare(options.out, config)
    _report(samples, ks, notes, config, options.samples.name, options.out, options.seed)
    return 0


def _of_model(options: argparse.Namespace, run: Config | None) -> int:
    from ..lab.evaluate import run as evaluation
    from ..lab.evaluate.summary import read_samples
    from ..train import models as language
    from ..train.tasks import held_out

    # The options are checked before anything is loaded.
    ks, sampling, where = _ks(options.k), _sampling(options, run), language.locate(options.model)
    task, described = _benchmark(options) if options.benchmark else _task(options, run)
    try:
        of_run = run.evaluate.problems if run is not None else 0
        count = held_out(task, options.problems or of_run or getattr(task, "test_size", None) or PROBLEMS)
        task.problems("test", 0, count)  # raises here if there are too few, not after half of them were sampled
        dtype = options.dtype or (run.model.dtype if run is not None else "float32")
        if run is not None:
            how = (
                f"temperature {sampling.temperature:g}, at most {sampling.max_new_tokens} tokens, seed {sampling.seed}"
            )
            asks = " with ".join([f"the run's task {described['task']}", *options.task_option])
            print(f"{asks}: {count} held-out problems, samples of each: {sampling.samples}, {how}")
        lm = language.load(where, dtype=dtype, device=options.device or "auto")
        if options.benchmark:
            described["chat"] = options.chat == "yes" or (options.chat is None and bool(lm.tokenizer.chat_template))
            task = evaluation.as_chat(task) if described["chat"] else task
        plan = evaluation.SamplingPlan(lm, task, count, sampling)
        about = {"path": options.model, "digest": evaluation.model_digest(where, lm), "dtype": dtype}
        config = evaluation.describe(plan, about, described)
        name = described.get("task") or described["benchmark"]
        # The output directory is named after the model and the file.
        parts = [Path(x).name.removesuffix(".jsonl").removesuffix(".parquet") or "model" for x in (options.model, name)]
        out = options.out or evaluation.free_directory("-".join(parts), config, options.seed)
        with progress(count, "prompts") as watch:
            evaluation.sample_model(plan, out, config, watch)
    except KeyboardInterrupt:
        print("tokenpo: interrupted; what was sampled is kept, the same command goes on from there", file=sys.stderr)
        return 130
    finally:
        task.close()
    samples, notes = read_samples(out / evaluation.SAMPLES)
    _report(samples, ks, notes, config, f"{options.model} on {name}", out, options.seed)
    return 0


def _sampling(options: argparse.Namespace, run: Config | None) -> Any:
    """How to sample: by the given options, else as the run was evaluated."""
    from ..lab.evaluate.run import SamplingOptions

    names = ("max_new_tokens", "rows", "temperature", "seed", "top_p", "top_k", "min_p")
    given = {name: getattr(options, name) for name in names} | {"samples": options.samples_per_prompt}
    of_run: dict[str, Any] = {}
    if run is not None:
        of_run = {"max_new_tokens": run.rollout.max_new_tokens, "temperature": run.rollout.temperature}
        of_run |= run.rollout.cut._asdict()
        of_run |= {"rows": run.evaluate.rows, "samples": run.evaluate.samples or 1}
        if options.temperature == 0:  # greedy samples of a prompt are all the same
            of_run["samples"] = 1
    return SamplingOptions(**of_run | {name: value for name, value in given.items() if value is not None})


def _task(options: argparse.Namespace, run: Config | None) -> tuple[Any, dict[str, Any]]:
    """The task of --task or of the run, with the options that --task-option changes; and its description."""
    from ..train.recipe.command_line import toml_value
    from ..train.tasks import make_task

    settings = {}
    for text in options.task_option:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise TokenPOError(f"--task-option {text}: write KEY=VALUE, e.g. operands=10")
        settings[key.strip()] = toml_value(value)
    name, seed = options.task, options.seed
    if run is not None:
        name, settings, seed = run.task.name, {**run.task.options, **settings}, run.problem_seed
    return make_task(name, settings, seed), {"task": name, "options": settings}


def _benchmark(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The benchmark by name or file as a task, and its description."""
    from ..lab.evaluate.benchmarks import benchmark, load

    changes = {name: getattr(options, name) for name in CHANGES}
    entry = benchmark(options.benchmark, options.data, **changes)
    file = None if entry.hub else expanded(options.data or options.benchmark)
    task: Any = load(entry, file, options.problems)
    return task, {"benchmark": options.benchmark, "file": file and str(file), **vars(entry)}


def _report(samples: Any, ks: Any, notes: Any, config: Any, title: str, out: Path | None, seed: int) -> None:
    from ..lab.evaluate.run import write_results
    from ..lab.evaluate.summary import show, summarise

    summary = summarise(samples, ks, seed, notes)
    show(summary, title, sys.stdout)
    if out is not None:
        print(f"results: {write_results(out, config, summary)}")


def _ks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise TokenPOError(f"--k {text}: give whole numbers of at least 1 with commas between, such as 1,4,8")
    return sorted({int(part) for part in parts})


def audit(options: argparse.Namespace) -> int:
    """Reads the responses and prints what was found."""
    need("rich", "math_verify")
    from ..lab.audit import audit as judge
    from ..lab.audit import read_lines
    from ..lab.page.text import print_parts, visible

    result = judge(read_lines(options.responses, options.rewarded_at))
    if options.json:
        findings = [
            {"finding": found.name, "meaning": found.meaning, "responses": [
                {"where": line.where, "prompt": line.prompt, "completion": line.completion, "said": said}
                for line, said in found.lines]}
            for found in result.findings
        ]  # fmt: skip
        forms = [{"rewarded": rewarded, "form": form, "count": count} for rewarded, form, count in result.forms]
        print(json.dumps({"responses": len(result.lines), "findings": findings, "forms": forms}))
        return 0
    paid = sum(line.rewarded for line in result.lines)
    parts = [f"{len(result.lines)} responses, {paid} rewarded."]
    for found in result.findings:
        parts.append(f"\n{found.name} ({len(found.lines)}): {found.meaning}")
        for line, said in found.lines[: max(0, options.show)]:
            prompt, end = visible(line.prompt[-200:].strip(), limit=60), visible(line.completion[-400:], limit=400)
            parts.append(f"  {visible(line.where, limit=80)}: {prompt} -> {end[-100:]}  ({visible(said, limit=120)})")
    if not result.findings:
        parts.append("Nothing looks wrong.")
    for wanted, title in ((True, "rewarded"), (False, "not rewarded")):
        forms = [f"  {count:6}  {visible(form, limit=60)}" for paid, form, count in result.forms if paid is wanted]
        parts += [f"\nmost frequent forms, {title} (N: a number, w: words):", *forms[:5]] if forms else []
    print_parts([*parts, *result.notes], sys.stdout)
    return 0
