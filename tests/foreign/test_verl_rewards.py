"""What verl's own rewards accept, as docs/verifiers.md says."""

import pytest

from foreign_support import need
from foreign_support.verl_losses import MISSING

gsm8k = need("verl.utils.reward_score.gsm8k", MISSING)
math_dapo = need("verl.utils.reward_score.math_dapo", MISSING)


@pytest.mark.parametrize(
    ("completion", "paid"),
    [
        ("#### 18 dollars", 1),
        ("#### 18, so", 1),
        ("#### 1,8", 1),
        ("#### 18.", 0),
        ("#### $18", 0),
        ("####18", 0),
        ("#### 18" + " " * 293, 1),
        ("#### 18" + " " * 301, 0),
    ],
)
def test_gsm8k(completion: str, paid: int) -> None:
    assert gsm8k.compute_score(completion, "18") == paid


@pytest.mark.parametrize(("completion", "paid"), [(r"\boxed{18}" + "." * 90, 1), (r"\boxed{18}" + "." * 91, -1)])
def test_math_dapo_reads_a_box_at_the_end(completion: str, paid: int) -> None:
    assert math_dapo.compute_score(completion, "18")["score"] == paid
