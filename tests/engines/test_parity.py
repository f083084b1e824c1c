"""The numbers of docs/parity.md, computed again for methods of three kinds; `parity.py --check` does the rest."""

from __future__ import annotations

import dataclasses

import pytest

from foreign_support import need

need("trl", "trl is not installed: the numbers of docs/parity.md were not computed again")
need("verl.workers.utils.padding", "verl is not installed: the numbers of docs/parity.md were not computed again")

from parity_support import Gap, Measured, measured  # noqa: E402

# The plain one; two passes and a reference; batch scope with a draw; one that only the embedded engine has.
NAMES = ("grpo", "lopti", "kl_cov", "arm")


@pytest.fixture(scope="module")
def found() -> dict[str, Measured]:
    return measured(NAMES, timeout=500)


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_computes_the_objective(name: str, found: dict[str, Measured]) -> None:
    gaps = {field.name: getattr(found[name], field.name) for field in dataclasses.fields(Measured)}
    refused = gaps.pop("refused")
    assert set(refused) == ({"TRL", "verl"} if name == "arm" else set())
    for engine, gap in gaps.items():
        assert (gap is None) == (name == "arm" and engine != "embedded")
        if isinstance(gap, Gap):
            assert max(gap.loss, gap.gradient) < (1e-11 if engine.startswith("verl") else 1e-5), engine
