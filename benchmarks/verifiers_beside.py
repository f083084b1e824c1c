"""Other projects' verifiers beside `math`, on the pairs of tests/train/tasks/pairs/kinds.tsv: docs/verifiers.md.

    python benchmarks/verifiers_beside.py --packages DIR      # installs the packages into DIR, writes the page

The packages come without what they need, as only their verifiers run: other modules that these import are stand-ins.
Each verifier gets the reference in the form that its project's data has it.
"""

import argparse
import importlib.machinery
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).parent))

from verifier_pairs import Pair, judge, read

PAGE = Path(__file__).resolve().parents[1] / "docs" / "verifiers.md"
PINNED = ("trl==1.16.0", "verl==0.9.1", "ms-swift==4.6.0", "inspect-ai==0.3.285", "lm-eval==0.4.13",
          "opencompass==0.5.4", "areal==1.0.4", "antlr4-python3-runtime==4.11.0")  # fmt: skip
STAND_INS = {"trl", "swift", "areal", "inspect_ai", "opencompass", "anyio"}
Verifier = Callable[[str, str], Any]  # (reference, completion) to what is true or 1 for right


class StandIns:
    """Finds modules of the packages that are not installed whole: any name of theirs is a mock."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        top = name.split(".", maxsplit=1)[0]
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if top in STAND_INS else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def module(path: Path, name: str) -> Any:
    """The module of one file, under the name that it has in its package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def verifiers(root: Path) -> dict[str, Verifier]:
    """By the name of their column."""
    from math_verify import parse, verify

    sys.meta_path.insert(0, StandIns())  # type: ignore[arg-type]
    verl = root / "verl/utils/reward_score"
    gsm8k, dapo, reward = (module(verl / f"{name}.py", name) for name in ("gsm8k", "math_dapo", "math_reward"))
    accuracy = module(root / "trl/rewards/accuracy_rewards.py", "trl.rewards.accuracy_rewards").accuracy_reward
    swift = module(root / "swift/rewards/orm.py", "swift.rewards.orm").MathAccuracy()
    areal = module(root / "areal/reward/__init__.py", "areal.reward").MathVerifyWorker(timeout=None)
    geometry = module(root / "areal/reward/geometry3k.py", "areal.reward.geometry3k").geometry3k_reward_fn
    inspect = module(root / "inspect_ai/scorer/_math.py", "inspect_ai.scorer._math")
    minerva = module(root / "lm_eval/tasks/minerva_math/utils.py", "minerva")
    compass = module(root / "opencompass/evaluator/math_evaluator.py", "opencompass.evaluator.math_evaluator")

    def inspect_math(gold: str, text: str) -> bool:
        parsed, error = inspect._parse_targets_worker((gold,))
        return error is None and inspect._score_answer_worker(text, parsed).status == "correct"

    def opencompass(gold: str, text: str) -> bool:
        said = MagicMock()
        compass._verify_worker(text, gold, said)
        outcome, *more = said.put.call_args.args[0]
        return outcome == "ok" and more[0]

    return {
        "math-verify": lambda gold, text: verify(parse(f"${gold}$"), parse(text)),
        "TRL": lambda gold, text: accuracy([[{"content": text}]], [f"${gold}$"])[0],
        "verl gsm8k": lambda gold, text: gsm8k.compute_score(text, gold),
        "verl math_dapo": lambda gold, text: dapo.compute_score(text, gold)["acc"],
        "verl math_reward": lambda gold, text: reward.compute_score(text, gold),
        "ms-swift": lambda gold, text: swift([text], [f"${gold}$"])[0],
        "AReaL": lambda gold, text: areal.verify(text, gold),
        "AReaL geometry": lambda gold, text: geometry("", text, [], [], gold),
        "inspect": inspect_math,
        "minerva": lambda gold, text: minerva.process_results(
            {"solution": rf"\boxed{{{gold}}}", "answer": gold}, [text]
        )["math_verify"],
        "opencompass": opencompass,
    }  # fmt: skip


@dataclass(frozen=True)
class Verdicts:
    """What one verifier says: of each pair, whether it is rewarded."""

    name: str
    rewarded: list[bool]

    def errors(self, pairs: Sequence[Pair], kind: str = "") -> tuple[int, int]:
        """(wrong and rewarded, right and not rewarded)."""
        judged = [(pair, paid) for pair, paid in zip(pairs, self.rewarded, strict=True) if kind in ("", pair.kind)]
        return (
            sum(paid and not pair.right for pair, paid in judged),
            sum(pair.right and not paid for pair, paid in judged),
        )


def verdict(verifier: Verifier, pair: Pair) -> bool:
    try:
        return float(verifier(pair.reference, pair.text) or 0) >= 1
    except Exception:  # an error in a reward function is a reward of 0 at best
        return False


# Pairs to show in full, with what is right: what verifiers disagree about, whatever its kind.
SHOWN: tuple[tuple[Any, ...], ...] = (
    (False, "10", "6 + 4", "What is 6 + 4?"), (False, "4", r"Maybe \boxed{4}? let me check", "1+3? <think>\n"),
    (True, "72", r"\boxed{3}. Wait, it is \boxed{72}"), (True, "72", "<answer>72</answer>"), (True, "72", "(72)"),
    (True, "18", "The answer is 18."), (True, "18", "#### 18 dollars"), (True, "18", "#### 18."),
    (True, r"-\frac{1}{4}", r"\boxed{-1/4}"), (True, r"2\frac34", r"\boxed{11/4}"), (True, "No", "Answer: No."),
    (False, r"3\sqrt{2}", r"\boxed{3}"), (False, r"2\sqrt{3}", r"\boxed{5\sqrt{3}}"), (False, "7", "√17"),
    (False, r"\frac54", r"\boxed{2 3/4}"), (False, "42_8", r"\boxed{42}"), (False, "5", r"\boxed{2x=5}"),
    (False, r"\frac13", r"\boxed{0.3333333}"), (False, "3.0", r"\boxed{3.0000001}"),
    (True, "(1,2)", r"\boxed{1<x<2}"), (True, "1<x<2", r"\boxed{(1,2)}"), (False, "ABC", r"\boxed{CAB}"),
)  # fmt: skip

TEXT = r"""<!-- Written by benchmarks/verifiers_beside.py: change that, then run it. -->

# Verifiers beside each other

{pairs} pairs of a reference and a completion, by kind of error. Each cell is *wrong but rewarded / right but not
rewarded*; an empty cell is 0 / 0. A reward that pays wrong text teaches it; one that misses right text costs signal.

{table}

The last column is the verifier `math` of this package. **It has no errors here because it was mended with these
pairs**; [trust](trust.md#maths-answers) counts others. We wrote and labelled all pairs
([`kinds.tsv`](../tests/train/tasks/pairs/kinds.tsv)) by
[our conventions](tasks.md#what-the-verifier-math-counts-as-the-same-answer); the echo
comes from a real model's rollouts, the other kinds from errors that people report of verifiers and from forms that
textbooks have. None is copied. Another convention is no error of another project: most compare the answer in a box.
None of them reads the question or the prompt, so none can know an echo or an open thought.

Versions: {versions}.
math-verify, TRL and ms-swift get the reference between dollars, minerva (lm-eval's metric
`math_verify`) in a box, the others bare. verl's gsm8k is "strict", for which a prompt asks for `####`.

## Where they disagree

✓ is a reward of 1. The second column says what we hold for right.

{shown}

- math-verify compares to six places where the reference or the answer has a decimal point: `0.3333333` is 1/3 and
  `3.0000001` is 3.0; between whole numbers it is exact.
- It reads an equation as its right side, `2 3/4` as 5/4, and no bases. `(1,2)` and `1<x<2` are one answer in one
  direction only: which is the reference matters. opencompass hands it the answer as the reference.
- TRL and ms-swift read boxes that stand close together as one list, which earns 0.
- verl's gsm8k compares the digits, points and commas right after the last `#### ` in the last 300 characters, without
  its commas. Its math_reward compares text; so does math_dapo, which reads a box in the last 100 characters only.
- AReaL hands over bare references, so that `3\sqrt{{2}}` becomes 3. Its geometry reward reads the last number:
  `\boxed{{5\sqrt{{3}}}}` is 2√3.
- inspect reads most unmarked text; `√17` earns 1 for 7.

Made by `python benchmarks/verifiers_beside.py --packages DIR`.

## Known surprises

Each script in [`findings`](../findings) installs the package, runs it without tokenpo and shows it.

| package | reward | surprise | script |
| --- | --- | --- | --- |
| eval-protocol | `accuracy_reward` | 43 earns 0.8 for 42, and 2021 earns 1 for 2020. | eval_protocol_near |
| eval-protocol | `math_reward` | Without a box, a right answer with its working earns 0. | eval_protocol_working |
| eval-protocol | `diversity_reward` | One word earns 2.2, a long text at most 1. | eval_protocol_diversity |
| verl | gsm8k, "flexible" | `The answer is 18.` earns 0 because of the full stop. | verl_gsm8k_flexible |
| TRL | `accuracy_reward`, tools | It reads the call, not the answer after it. | trl_accuracy_tools |
| inspect | `match(numeric=True)` | `18%`, `x=18` and `\boxed{{18}}` are wrong for 18. | inspect_match_numeric |
| skyrl-gym | LiveCodeBench | Programs that read or write bytes fail. | skyrl_gym_stdin |
| verl, skyrl-gym, lighteval | prime_code, LiveCodeBench | Programs with `global` fail. | graders_global |
| bfcl-eval | texts in calls | `x*2` is right for `x**2`, and 5 for -5. | bfcl_strings |
| aviary-gsm8k | `submit_answer` | Five right submissions in one message earn 5. | aviary_gsm8k_submissions |
| textarena | games for one | An invalid move keeps the share reached. | textarena_invalid_move |
| reasoning-gym | `game_of_life` | An empty board earns 0.97. | reasoning_gym_game_of_life |
| reasoning-gym | `game_of_life_halting` | Any text earns 1. | reasoning_gym_game_of_life |
| reasoning-gym | `puzzle24` | One answer is right for all items. | reasoning_gym_puzzle24 |

Pay a game of textarena only where `info["invalid_move"]` is False.

## Look at your own rewards

```sh
tokenpo audit runs/my-run                    # its recorded rollouts, else its samples.jsonl
tokenpo audit completions_00010.parquet      # TRL's log_completions; verl's rollout_data_dir works too
```

It prints one page: the rewarded responses that look wrong, the surest kind first, with a few of each.

| finding | rewarded responses that |
| --- | --- |
| echo | repeat an expression of the question |
| wrong | the verifier `math` calls wrong |
| cut off | end in a thought, in an open box, or at the length limit |
| constant | are one text for prompts with different references |
| boxes | hold several different boxed answers |
| missed | are not rewarded, but right for `math` |
| disagreement | `math` and math-verify judge differently |
| outside | have no box, tag or `####`, where most have one |

The most frequent forms of rewarded and other responses follow, with N for a number and w for words. Findings are hints:
look at them. A reference is needed for echo, wrong, missed and disagreement. `--json` prints every response of a
finding; `--rewarded-at` is the reward that counts where a line has no `correct`.

SmolLM2-135M-Instruct gave 160 responses to 40 sums of two numbers, of 24 tokens at most. The verifier as it was before
it read the question rewarded 23, of which 20 only repeat the sum: the audit ranks the echo first.
"""


def lines(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, *body = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([head, f"| {' | '.join('---' for _ in rows[0])} |", *body])


def page(pairs: list[Pair], found: list[Verdicts], shown: list[Pair], said: list[Verdicts]) -> str:
    kinds = list(dict.fromkeys(pair.kind for pair in pairs))

    def cells(kind: str = "") -> list[str]:
        errors = (verdicts.errors(pairs, kind) for verdicts in found)
        return [f"{wrong} / {missed}" if wrong or missed else "" for wrong, missed in errors]

    sizes = {kind: sum(pair.kind == kind for pair in pairs) for kind in kinds}
    head = ["kind", "pairs", *(verdicts.name for verdicts in found)]
    rows = [[kind, str(size), *cells(kind)] for kind, size in sizes.items()]
    disagreements = [
        [
            f"`{pair.reference}` ← `{pair.text}`".replace("\n", " "),
            "right" if pair.right else "wrong",
            *("✓" if verdicts.rewarded[row] else "" for verdicts in said),
        ]
        for row, pair in enumerate(shown)
    ]
    names = [line.split("==") for line in PINNED[:-1]] + [["math-verify", version("math-verify")]]
    return TEXT.format(
        pairs=len(pairs),
        table=lines([head, *rows, ["all", str(len(pairs)), *cells()]]),
        shown=lines([["reference ← completion", "", *(verdicts.name for verdicts in said)], *disagreements]),
        versions=", ".join(f"{name} {number}" for name, number in names),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, required=True, help="a folder for the packages; made if missing")
    root = parser.parse_args().packages
    if not root.is_dir():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", root, *PINNED], check=True
        )
    sys.path.insert(0, str(root))  # antlr4, which lm-eval pins
    logging.disable(logging.ERROR)
    pairs = read("kinds")
    shown = [Pair("", *cells) for cells in SHOWN]
    others = verifiers(root)
    found, said = [], []
    for name, verifier in others.items():
        found.append(Verdicts(name, [verdict(verifier, pair) for pair in pairs]))
        said.append(Verdicts(name, [verdict(verifier, pair) for pair in shown]))
    found.append(Verdicts("`math`", [score.correct for score in judge(pairs)]))
    said.append(Verdicts("`math`", [score.correct for score in judge(shown)]))
    PAGE.write_text(page(pairs, found, shown, said), "utf-8")


if __name__ == "__main__":
    main()
