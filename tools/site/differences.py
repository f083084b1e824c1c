"""Writes docs/differences.md: where TRL and verl, at their defaults, give other numbers than a paper, on one input.

    python tools/site/differences.py             compute both numbers of every row and write the page
    python tools/site/differences.py --check     exit 1 where the page is not what they give

It takes an environment with TRL and verl, as `make test-engines` sets it up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from layout import cell, table

import tokenpo

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from foreign_support import trl_trainer, verl_losses  # noqa: E402
from foreign_support.verl_losses import core  # noqa: E402
from oracle_support import Sample, by_hand, of, ragged, run  # noqa: E402

PAGE = ROOT / "docs" / "differences.md"
TEXT = """\
<!-- Written by `python tools/site/differences.py` with the engines' environment: do not edit. -->

# Where frameworks differ from the papers

A framework that has a method of the same name need not give the paper's numbers, most often because a default of PPO's
stands where the paper chose another. Each row below puts one input into the framework's own function and into ours,
which follows the paper, and shows what came out. Both numbers are computed when this page is written, with the versions
named; a test of the engines' lane computes them again. Our trainers for [TRL](trl.md) and [verl](verl.md) do not use
these functions: there the loss is ours. Everything else that was compared, and agrees, is in
[`tests/foreign`](../tests/foreign); [golden values](golden.md) hold another implementation to ours.

Versions: {versions}.

{rows}
"""
SILENT = "a batch in which one of the responses has no token"
RAGGED = "random ragged batch"


@dataclass(frozen=True)
class Difference:
    """One input in both: `compute` gives the framework's number and ours."""

    framework: str
    method: str
    said: str
    given: str
    shown: str
    compute: Callable[[], tuple[float, float]]


def _verl(mode: str, name: str, sample: Sample, aggregate: str = "token-mean", **actor: object) -> tuple[float, float]:
    got = run(tokenpo.method(name), sample)
    return verl_losses.loss(mode, sample, got.terms["advantage"], aggregate, **actor).value, got.value  # type: ignore[arg-type]


def _trl(name: str, sample: Sample, loss_type: str = "", **settings: object) -> tuple[float, float]:
    got = run(tokenpo.method(name), sample)
    theirs = trl_trainer.loss(sample, got.terms["advantage"], loss_type=loss_type or name, **settings)  # type: ignore[arg-type]
    return theirs.value, got.value


def _largest_push(name: str, loss_type: str) -> tuple[float, float]:
    sample = ragged(0).alive().on_policy()
    got = run(tokenpo.method(name), sample)
    theirs = trl_trainer.loss(sample, got.terms["advantage"], loss_type=loss_type)
    return float(np.abs(theirs.gradient).max()), float(np.abs(got.gradient).max())


def _lone(estimator: str, name: str) -> tuple[float, float]:
    """The advantage of a response alone in its group, of reward 1."""
    import torch

    one = torch.ones((1, 1), dtype=torch.float64)
    theirs, _ = core.get_adv_estimator_fn(estimator)(
        token_level_rewards=one, response_mask=one.long(), config=core.AlgoConfig(), index=np.zeros(1, int)
    )
    got = run(tokenpo.method(name), by_hand([[1.0]], [1.0], [0]))
    return float(theirs[0, 0]), float(got.terms["advantage"][0, 0])


def _held_reference() -> tuple[float, float]:
    one = np.ones((1, 1))
    sample = of(one, np.ones(1), np.zeros(1, int), logprob=-5 * one, old_logprob=-5 * one, ref_logprob=-2 * one)
    import torch

    theirs = core.kl_penalty(torch.tensor(sample.logprob), torch.tensor(sample.ref_logprob), "low_var_kl")
    return float(theirs[0, 0]), run(tokenpo.method("grpo", beta=1.0), sample).value


def _delta() -> tuple[float, float]:
    sample = by_hand([[1.15]], [1.0], [0])
    got = run(tokenpo.method("dapo", dual=1.1), sample, advantage=np.ones((1, 1)))
    return trl_trainer.loss(sample, np.ones((1, 1)), loss_type="dapo", delta=1.1).value, got.value


DIFFERENCES = (
    Difference(
        "TRL", "cispo", "`epsilon_high` is the cap itself and falls back on 0.2; the paper caps at 1 + 0.28.",
        f"{RAGGED}, ratio 1", "largest gradient", lambda: _largest_push("cispo", "cispo"),
    ),
    Difference(
        "TRL", "grpo", "A response without tokens counts in the mean over responses.", SILENT, "loss",
        lambda: _trl("grpo", ragged(0)),
    ),
    Difference(
        "TRL", "dapo", "`delta` below the clip also holds right tokens back, which a dual clip never does.",
        "A = 1, ratio 1.15, delta 1.1", "loss", _delta,
    ),
    Difference(
        "verl", "dapo", "Dual clip 3 and both clips 0.2 unless told; DAPO's recipe has 10 and 0.2/0.28.",
        RAGGED, "loss", lambda: _verl("vanilla", "dapo", ragged(0).alive()),
    ),
    Difference(
        "verl", "gmpo", "The log-ratio is clipped at PPO's 0.2 unless told; the paper clips at 0.4.",
        RAGGED, "loss", lambda: _verl("geo_mean", "gmpo", ragged(0).alive()),
    ),
    Difference(
        "verl", "gspo", "A response's ratio is clipped at PPO's 0.2 unless told; the paper has 3e-4 and 4e-4.",
        RAGGED, "loss", lambda: _verl("gspo", "gspo", ragged(0).alive(), "seq-mean-token-mean"),
    ),
    Difference(
        "verl", "kl_cov", "Coefficient 0.1 and a share of 2e-4 unless told; the paper's are 1, and 2e-3 for 7B.",
        RAGGED, "loss", lambda: _verl("kl_cov", "kl_cov", ragged(0)),
    ),
    Difference(
        "verl", "dr_grpo", "Without `loss_scale_factor` it divides by the padded width, which padding changes.",
        "random ragged batch, padded to 9", "loss",
        lambda: _verl("vanilla", "dr_grpo", ragged(0).widened(9), "seq-mean-token-sum-norm", clip_ratio_c=1e9),
    ),
    Difference(
        "verl", "grpo", "A response alone in its group is compared with 0; it has nothing to be compared with.",
        "one response, reward 1", "advantage", lambda: _lone("grpo", "grpo"),
    ),
    Difference(
        "verl", "grpo with a reference", "The divergence k3 stops at 10, and its gradient with it.",
        "lp = −5, lp_ref = −2", "divergence", _held_reference,
    ),
)  # fmt: skip


def page() -> str:
    """The page, every number computed."""
    from importlib.metadata import version

    rows = []
    for one in DIFFERENCES:
        theirs, ours = one.compute()
        if np.isclose(theirs, ours, rtol=1e-6):
            raise SystemExit(
                f"{one.framework} {one.method}: both give {ours:.6g}: the difference is gone, drop the row"
            )
        numbers = (f"{theirs:.6g}", f"{ours:.6g}")
        rows.append((one.framework, cell(one.method), cell(one.given), one.shown, *numbers, cell(one.said)))
    head = ("framework", "method", "given", "number", "framework's", "paper's", "why")
    versions = ", ".join(f"{name} {version(name)}" for name in ("trl", "verl"))
    return TEXT.format(versions=versions, rows=table(head, rows))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check, text = parser.parse_args(given).check, page()
    if check:
        fresh = PAGE.read_text(encoding="utf-8") == text
        print("as computed" if fresh else "docs/differences.md is stale: run `python tools/site/differences.py`")
        return int(not fresh)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
