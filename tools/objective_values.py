"""The numbers and the refusals of every method, to show that a change of the code changed none of them.

    python tools/objective_values.py > before.json             ... change the code ...
    python tools/objective_values.py --compare before.json     exit 1 and name every difference

Each method is built at its defaults and with each option at other values: other numbers, other choices, and values
that it refuses. What can be built is evaluated on two trial batches: the loss, the sum and the digest of each gradient
and of each term. A number that differs by rounding alone is counted, not named.
"""

import argparse
import hashlib
import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tokenpo
from tokenpo.core import trial
from tokenpo.methods import METHODS, Option, options_of

SEEDS = (0, 1)
TRIED = (-1, "nonsense", 1e9, None, 0, 0.5)
ROUNDING = 1e-12


def values() -> dict[str, dict[str, Any]]:
    """METHOD -> "OPTION=VALUE" -> what came of it; "" for the defaults."""
    found: dict[str, dict[str, Any]] = {}
    for name, build in sorted(METHODS.items()):
        found[name] = {"": attempt(name, {})}
        for key, option in options_of(build).items():
            found[name] |= {f"{key}={value!r}": attempt(name, {key: value}) for value in alternatives(option)}
    return found


def alternatives(option: Option) -> Iterator[Any]:
    """What an option is tried at."""
    if isinstance(option.default, bool):
        yield from (not option.default, "nonsense")
        return
    yield from TRIED
    if isinstance(option.default, int | float):
        yield from (option.default * 1.5 + 0.05, math.nan, math.inf)
    yield from option.choices


def attempt(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The objective and its numbers, or the sentence by which it is refused."""
    try:
        objective = tokenpo.method(name, **options)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    found: dict[str, Any] = {"text": str(objective), "scope": objective.scope, "memories": str(objective.memories)}
    for seed in SEEDS:
        try:
            found[str(seed)] = numbers(objective, seed)
        except Exception as error:
            found[str(seed)] = f"{type(error).__name__}: {error}"
    return found


def numbers(objective: tokenpo.Objective, seed: int) -> dict[str, Any]:
    inputs = trial.example(seed)
    seen = inputs.evaluate(objective)
    mask = inputs.rollouts["mask"]
    return {
        "loss": repr(float(seen.loss.value)),
        "gradient": digest(seen.gradient),
        "entropy gradient": digest(seen.entropy_gradient),
        **{name: digest(term.where(mask, 0.0)) for name, term in sorted(seen.loss.terms.items())},
    }


def digest(x: Tensor) -> list[str]:
    """[sum, hash of all its numbers]."""
    x = x.detach().double().contiguous()
    return [repr(float(x.sum())), hashlib.sha256(x.numpy().tobytes()).hexdigest()[:16]]


def differences(before: Any, after: Any, place: str = "") -> Iterator[tuple[str, bool]]:
    """(what differs and how, whether by rounding alone)."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            where = f"{place} {key}".strip()
            if key in before and key in after:
                yield from differences(before[key], after[key], where)
            else:
                yield f"{where}: only {'before' if key in before else 'after'}", False
    elif before != after:
        yield f"{place}:\n  - {before}\n  + {after}", rounded(before, after)


def rounded(before: Any, after: Any) -> bool:
    """Whether two losses, or the sums of two digests, are the same but for rounding."""
    try:
        a, b = (float(x[0] if isinstance(x, list) else x) for x in (before, after))
    except ValueError:  # two texts
        return False
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="FILE", type=Path, help="what this program printed before")
    file = parser.parse_args(given).compare
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    now = json.loads(json.dumps(values()))
    if file is None:
        json.dump(now, sys.stdout, indent=0, ensure_ascii=False)
        return 0
    found = list(differences(json.loads(file.read_text(encoding="utf-8")), now))
    real = [text for text, by_rounding in found if not by_rounding]
    print(*real, f"{len(real)} of {sum(map(len, now.values()))} differ, {len(found) - len(real)} by rounding", sep="\n")
    return int(bool(real))


if __name__ == "__main__":
    sys.exit(main())
