"""Which reward function of TRL's says that a response is correct."""

import math

import pytest
import torch

from tokenpo.hosts.trl.records import judging

BINARY, GRADED = [0.0, 1.0, math.nan], [0.1, 1.0, 0.0]


@pytest.mark.parametrize(
    ("columns", "judge"),
    [
        ({"formatted": BINARY, "correct": BINARY}, 1),  # examples/trl_gsm8k.py has both
        ({"accuracy_reward": BINARY, "formatted": GRADED}, 0),
        ({"correct": BINARY, "accuracy": GRADED}, 1),
        ({"anything": BINARY}, 0),
        ({"anything": GRADED}, None),
        ({"correct": GRADED, "formatted": BINARY}, None),
        ({"correct": [1.0, -1.0, 1.0]}, None),
    ],
)
def test_the_function_that_judges(columns, judge):
    assert judging([*columns], torch.tensor([*columns.values()]).T) == judge
