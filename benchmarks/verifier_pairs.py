"""The labelled pairs of tests/train/tasks/pairs through the verifier `math`: python benchmarks/verifier_pairs.py

Prints the table of docs/trust.md, how often verdict and label differ in each class; with --show the pairs of the table
`pairs` that differ. `held_out` was written before the verifier was mended and is only counted. `kinds` has a question
beside each pair; benchmarks/verifiers_beside.py gives it to other verifiers too.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpo.train.tasks.types import Problem, Score
from tokenpo.train.tasks.verify import VerifierOptions, make_verifier

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "train" / "tasks" / "pairs"
SETS = ("pairs", "held_out")


@dataclass(frozen=True)
class Pair:
    """A completion, what it answers, and whether it is right; `kind` says what it is like."""

    kind: str
    right: bool
    reference: str
    text: str
    question: str = "?"


def read(name: str) -> list[Pair]:
    """The pairs of a file of tab-separated columns; a line break is written as ⏎."""
    lines = (FOLDER / f"{name}.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    found = []
    for kind, label, *question, reference, text in rows:
        cells = (cell.replace("⏎", "\n") for cell in (reference, text, *question))
        found.append(Pair(kind, {"right": True, "wrong": False}[label], *cells))
    return found


def judge(pairs: Sequence[Pair]) -> list[Score]:
    """The verdicts."""
    math = make_verifier("math", VerifierOptions(verifier_seconds=20, verifier_workers=2), "pairs")
    try:
        problems = [Problem(pair.question, pair.reference) for pair in pairs]
        return math(problems, [pair.text for pair in pairs], [[]] * len(pairs))
    finally:
        math.close()


def confusion(name: str, pairs: Sequence[Pair], scores: Sequence[Score]) -> list[str]:
    """Lines of a table: what became of the right and the wrong ones of each class."""
    counts = Counter((pair.kind, pair.right, score.correct) for pair, score in zip(pairs, scores, strict=True))
    cells = [(True, True), (True, False), (False, False), (False, True)]
    rows = [(kind, [counts[kind, *cell] for cell in cells]) for kind in dict.fromkeys(pair.kind for pair in pairs)]
    rows.append(("all", [sum(row[cell] for _, row in rows) for cell in range(len(cells))]))
    return [f"| {name} | {kind} | {' | '.join(map(str, row))} |" for kind, row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--show", action="store_true", help="the pairs of the tuned table that differ from their label")
    options = parser.parse_args()
    print("| set | class | right, scored 1 | right, scored 0 | wrong, scored 0 | wrong, scored 1 |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in SETS:
        pairs = read(name)
        scores = judge(pairs)
        print("\n".join(confusion(name, pairs, scores)))
        for pair, score in zip(pairs, scores, strict=True):
            if options.show and name == "pairs" and score.correct != pair.right:
                print(f"  {'missed' if pair.right else 'WRONG'} {pair.reference!r} {pair.text!r}: {score}")


if __name__ == "__main__":
    main()
