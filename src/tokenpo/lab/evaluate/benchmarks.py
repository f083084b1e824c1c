"""The table of benchmarks, and the loading of an entry, or of a file in its place, as problems with a verifier."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ...base.errors import MissingInput, TokenPOError, UnknownName, nearest, require_package
from ...base.text import first_line
from ...train.tasks.extract import EXTRACTORS
from ...train.tasks.files import READERS, Files, Layout, Row, read_rows
from ...train.tasks.verify import VerifierOptions, checked, make_verifier

BOXED = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
TAGGED = "Think step by step, then give {what} alone between <answer> and </answer>."
ALL = "all"  # all references of a list are required, so they are joined


@dataclass(frozen=True)
class Benchmark:
    """A data set: its place, its columns, its prompt and its verifier.

    Args:
        title: the name as in papers.
        hub, config: data set and configuration on the Hugging Face hub; hub is "" for a file of the user.
        split: on the hub; several, as in "2ppl+3ppl", alternate, so that the first problems are of every kind.
        question: column with the question; "" if the prompt names all columns that it needs.
        answer: column with the reference; "" is the first that exists of answer, solution and verl's
            reward_model.ground_truth.
        reference: how to extract the reference from that column, a name of `EXTRACTORS`; "all" joins a list.
        prompt: template; {question} is the question, {NAME} any column except the reference's (countdown's is part of
            the question). Questions that are chat messages are not changed.
        verifier: "math", "exact", "countdown", or your own function by its dotted path.
        extract: how to extract the answer from a completion, a name of `EXTRACTORS`; "" is the verifier's default.
    """

    title: str
    hub: str = ""
    split: str = ""
    config: str = ""
    question: str = "problem"
    answer: str = "answer"
    reference: str = "whole"
    prompt: str = BOXED
    verifier: str = "math"
    extract: str = ""


# Two public loaders of each data set agree on columns and problems; on olympiadbench not on those with several answers.
BENCHMARKS: Mapping[str, Benchmark] = {
    "math500": Benchmark("MATH-500", "HuggingFaceH4/MATH-500", "test"),
    "aime24": Benchmark("AIME 2024", "HuggingFaceH4/aime_2024", "train"),
    "aime25": Benchmark("AIME 2025", "math-ai/aime25", "test"),
    "amc23": Benchmark("AMC 2023", "math-ai/amc23", "test", question="question"),
    "minerva": Benchmark("Minerva Math", "math-ai/minervamath", "test", question="question"),
    "olympiadbench": Benchmark(
        "OlympiadBench (open-ended, text only, English maths)", "Hothan/OlympiadBench", "train",
        "OE_TO_maths_en_COMP", question="question", answer="final_answer", reference=ALL
    ),
    "omni_math": Benchmark("Omni-MATH", "KbsdJames/Omni-MATH", "test"),
    "gsm8k": Benchmark("GSM8K", "openai/gsm8k", "test", "main", question="question", reference="hash"),
    "countdown": Benchmark(
        "Countdown, 3 to 4 numbers", "Jiayi-Pan/Countdown-Tasks-3to4", "train", question="", answer="target",
        prompt="Using the numbers {nums}, make an expression that equals {target}. Use + - * / and brackets, and "
        "each number exactly once.\n\n" + TAGGED.replace("{what}", "the expression"),
        verifier="countdown"
    ),
}  # fmt: skip


def benchmark(name: str, file: Path | None = None, **changes: str | None) -> Benchmark:
    """The entry called `name` (case, blanks and hyphens are ignored), or a new entry for the file `name`.

    `file` is a local copy of its problems; `changes` replace fields, where they are not None.
    """
    entries = {_plain(key): entry for key, entry in BENCHMARKS.items()}
    if _plain(name) in entries:
        entry = entries[_plain(name)]
        entry = entry if file is None else dataclasses.replace(entry, hub="", split="", config="")
    elif Path(name).suffix in READERS:
        if file is not None:
            raise TokenPOError(f"--benchmark {name} and --data {file} each name a file of problems: leave one out")
        entry = Benchmark(Path(name).name, question="", answer="", prompt="{question}")
    else:
        hint = f"{nearest(name, BENCHMARKS)}, or give a file called *.jsonl or *.parquet"
        raise UnknownName(f"no benchmark is called {name!r}: {hint}")
    entry = dataclasses.replace(entry, **{key: value for key, value in changes.items() if value is not None})
    if entry.reference not in (ALL, *EXTRACTORS):
        raise UnknownName(
            f"reference={entry.reference!r} is not a choice; {nearest(entry.reference, [ALL, *EXTRACTORS])}"
        )
    return entry


def load(entry: Benchmark, file: Path | None = None, most: int | None = None) -> Files:
    """The first `most` problems of an entry as the test split, with their verifier; `file` is a .jsonl or .parquet file
    that is read in place of the hub.
    """
    verifier = make_verifier(entry.verifier, VerifierOptions(entry.extract), "eval")
    rows = read_rows(file) if file else _hub_rows(entry.hub, entry.config, entry.split, _columns(entry), most)
    rows = rows[:most]
    question = entry.question
    if not question and "{question}" in entry.prompt:
        question = next((key for key in ("prompt", "question", "problem") if key in rows[0][1]), "prompt")
    needs, options = (verifier.needs_answer, verifier.gives_away), ("--question", "--answer")
    layout = Layout(question, entry.answer, *needs, template=entry.prompt, options=options)
    problems = [
        dataclasses.replace(problem, answer=_reference(problem.answer, entry, at))
        for problem, (at, _) in zip(layout.problems(rows), rows, strict=True)
    ]
    return Files(0, [], checked(verifier, problems), verifier, name=entry.title)


def _hub_rows(hub: str, config: str, split: str, columns: list[str], most: int | None = None) -> list[Row]:
    """The rows of a split, at most `most`, with each row's place for messages."""
    require_package(f"{hub}, unless a local copy is given with --data FILE,", "datasets", "hub")
    datasets: Any = import_module("datasets")
    try:
        table = datasets.load_dataset(hub, config or None, split=split)
    except Exception as error:
        raise TokenPOError(
            f"the data set {hub} ({split}) can't be loaded from the hub: {first_line(error)}; give a local copy "
            "with --data FILE"
        ) from error
    found = list(table.column_names)
    if lacking := next((name for name in columns if name not in found), None):
        raise MissingInput(
            f"{hub} has no column {lacking!r} ({nearest(lacking, found, 'columns')}): "
            "name yours with --question, --answer or --prompt"
        )
    table = table.select_columns(columns).select(range(min(len(table), most or len(table))))
    return [(f"{hub} {split} row {i}", dict(row)) for i, row in enumerate(table)]


def _reference(answer: Any, entry: Benchmark, where: str) -> Any:
    if entry.reference == ALL:
        return ", ".join(map(str, answer)) if isinstance(answer, list) else answer
    if entry.reference == "whole" or not isinstance(answer, str):
        return answer
    reference = EXTRACTORS[entry.reference](answer)
    if reference is None:
        raise TokenPOError(f"{where}: {entry.reference!r} finds no reference in {answer!r:.80}: set --reference")
    return reference


def _columns(entry: Benchmark) -> list[str]:
    """The columns to read from the hub; pictures and long solutions are left out."""
    placeholders = re.findall(r"\{([A-Za-z_]\w*)\}", entry.prompt)
    columns = [entry.question, entry.answer, *(name for name in placeholders if name != "question")]
    return list(dict.fromkeys(name for name in columns if name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
