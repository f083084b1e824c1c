"""A method of one's own: its part and its builder, then held to the laws, explained token by token, and drawn.

python examples/new_method.py        a few seconds on one core; new_method.txt beside it is what it prints
"""

import dataclasses
import tempfile
from pathlib import Path

import tokenpo
from tokenpo.lab.fingerprint.curves import distance
from tokenpo.lab.fingerprint.drawing import ranges, write


class Doubt(tokenpo.parts.Weight):
    """1 where the old policy was at a loss, 1 - share where it was sure."""

    reads = {"old_entropy"}
    share: tokenpo.ranges.Share

    def __call__(self, batch, trust):
        doubt = 1 - (-batch.need("old_entropy").clamp(min=0)).exp()
        return 1 - self.share + self.share * doubt


def doubting(*, share: tokenpo.ranges.Share = 0.8) -> tokenpo.Objective:
    """DAPO that learns less where the policy was sure."""
    return dataclasses.replace(tokenpo.method("dapo"), name="doubting", weights=(Doubt(share),))


if __name__ == "__main__":
    mine, grpo = doubting(), tokenpo.method("grpo")
    print(mine)
    print(f"\n{len(tokenpo.check_method(mine))} laws hold\n")
    print(*ranges("doubting", mine), sep="\n")
    for name in ("dapo", "grpo", "forking_tokens"):
        far, where = distance(mine, tokenpo.method(name))
        print(f"from {name}: {far:.2f}, over the {where}")
    with tempfile.TemporaryDirectory() as folder:
        picture = write("doubting", mine, grpo, Path(folder) / "doubting.svg")
        print(f"a picture of {picture.stat().st_size // 1000} kB: {picture.name}")
