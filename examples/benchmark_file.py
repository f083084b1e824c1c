"""A benchmark in a file, evaluated: avg@k, pass@k, pass^k and maj@k with intervals, and the hardest questions.

python examples/benchmark_file.py        ten seconds on one core; benchmark_file.txt has its output

The file is JSON Lines with GSM8K's columns, `question` and `answer`; the answer ends with `#### NUMBER`. Its questions
are written here, sums on a dial, which the tiny model of the package can read. A language model and the real file need
nothing but the first four words: tokenpo eval MODEL --benchmark gsm8k --data test.jsonl. What the columns, prompts and
verifiers are, and how to name others: docs/evaluation.md.
"""

import contextlib
import json
import tempfile
from pathlib import Path

from tokenpo.cli.main import main
from tokenpo.train.tasks import make_task

# The tiny model takes the bare question, and ends its answer with #NUMBER; `exact` compares texts.
TINY = ["--prompt", "{question}", "--extract", "hash", "--verifier", "exact"]
SAMPLING = ["--samples-per-prompt", "16", "--k", "1,4,16", "--max-new-tokens", "48", "--seed", "0"]


def written(path, count):
    """`count` questions in GSM8K's columns."""
    problems = make_task("dial_sum", {"operands": [3, 6]}, seed=1).problems("test", 0, count)
    rows = [{"question": p.prompt, "answer": f"By small steps.\n#### {p.reference}"} for p in problems]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        written(Path("dial.jsonl"), 24)
        words = ["eval", "tiny", "--benchmark", "gsm8k", "--data", "dial.jsonl", *TINY, *SAMPLING]
        if main([*words, "--out", "evaluated"]):  # as on the command line
            raise SystemExit("no evaluation")
        results = json.loads(Path("evaluated/results.json").read_text(encoding="utf-8"))
        samples = [
            json.loads(line) for line in Path("evaluated/samples.jsonl").read_text(encoding="utf-8").splitlines()
        ]
    print("\nThe hardest questions, and a wrong answer to each:")
    for hard in sorted(results["per_prompt"], key=lambda one: one["correct"])[:3]:
        wrong = next(one for one in samples if one["problem"] == hard["problem"] and not one["correct"])
        [asked], rate = wrong["prompt"], f"{hard['correct']} of {hard['samples']} right, pass@4 {hard['pass@4']:.2f}"
        print(f"  {rate}: {asked['content']} {wrong['completion']}, the reference is {wrong['reference']}")
