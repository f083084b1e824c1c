"""Memory and time of phase one in verl's driver, on nested tensors as verl holds them.

    python benchmarks/verl_driver.py [--responses 8192] [--tokens 20000] [--shortest 20000] [--method hapo ...]

Each method runs in a process of its own, with one thread. Responses have between `--shortest` and `--tokens` tokens;
their numbers are random. Measured is what the driver does with them for one rollout batch: verl's nested fields to
rollouts, credit and memories, and credit back to nested fields. What verl's own queue holds and copies is not in it.
Printed are the CPU seconds of each part, the size of the fields that came and that go back, and the most memory that
the process held above what it held with the fields alone.
"""

import argparse
import gc
import itertools
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

GIB = 2**30


def held(name: str) -> int:
    """Bytes of this process: VmRSS is what it holds, VmHWM the most it held since that was last cleared."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise SystemExit(f"/proc/self/status has no {name}: this script is for Linux")


def nested(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def batch(names: Sequence[str], lengths: torch.Tensor, generator: torch.Generator) -> dict[str, Any]:
    """verl's fields of these names for responses of these lengths [N], groups of 16."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    tokens = int(offsets[-1])
    made: dict[str, Any] = {"uid": [f"prompt-{row // 16}" for row in range(len(lengths))]}
    for name in names:
        if name == "response_mask":
            made[name] = nested(torch.ones(tokens, dtype=torch.int64), offsets)
        elif name == "rm_scores":
            scores = torch.zeros(tokens)
            scores[offsets[1:] - 1] = torch.randint(0, 2, lengths.shape, generator=generator).float()
            made[name] = nested(scores, offsets)
        elif name != "uid":
            # An entropy, a log-probability: what matters is that they differ from token to token.
            drawn = torch.empty(tokens).exponential_(2.0, generator=generator)
            made[name] = nested(drawn if name == "entropy" else drawn.neg_(), offsets)
    return made


def measure(method: str, responses: int, longest: int, shortest: int) -> str:
    import tokenpo
    from tokenpo.core.learner import Learner
    from tokenpo.hosts.verl.layout import credit_fields, dealt, fields, rollouts_of

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(shortest, longest + 1, (responses,), generator=generator)
    objective = tokenpo.method(method)
    learner = Learner(objective, length=longest)
    data = batch(fields(objective), lengths, generator)
    came = sum(x.values().nbytes for x in data.values() if isinstance(x, torch.Tensor))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    base, clock = held("VmRSS"), [time.process_time()]
    rollouts, where = rollouts_of(data, objective, 1.0)  # pyright: ignore[reportArgumentType]
    clock.append(time.process_time())
    step = learner.begin(rollouts)
    clock.append(time.process_time())
    out = credit_fields(objective, rollouts, step.credit, where, dealt(responses, 4, responses // 4))
    clock.append(time.process_time())
    goes = sum(x.values().nbytes if x.is_nested else x.nbytes for x in out.values())
    read, begin, back = (after - before for before, after in itertools.pairwise(clock))
    return (
        f"{method:12s} {int(lengths.sum()) / 1e6:7.1f} M tokens   fields {came / GIB:5.2f} GiB in, {goes / GIB:5.2f} "
        f"back   above them {(held('VmHWM') - base) / GIB:6.2f} GiB at most   read {read:6.1f} s   credit "
        f"{begin:6.1f} s   write {back:6.1f} s"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=20000, help="of the longest response")
    parser.add_argument("--shortest", type=int, default=None, help="tokens of the shortest; all are equal if left out")
    parser.add_argument("--method", nargs="+", default=["grpo", "tepo", "gtpo", "hapo"])
    parser.add_argument("--alone", action="store_true", help="in this process, for one method")
    given = parser.parse_args(arguments)
    shortest = given.tokens if given.shortest is None else given.shortest
    if given.alone:
        print(measure(given.method[0], given.responses, given.tokens, shortest), flush=True)
        return
    for method in given.method:
        words = ["--responses", given.responses, "--tokens", given.tokens, "--shortest", shortest, "--alone"]
        command = [sys.executable, __file__, *map(str, words), "--method", method]
        if (done := subprocess.run(command, check=False)).returncode:
            print(
                f"{method}: ended by {done.returncode} (-9 is what the system does where memory runs out)", flush=True
            )


if __name__ == "__main__":
    main()
