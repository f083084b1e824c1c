"""The exact nearest-rank quantile of many values, beside one pass over them and beside torch's own ways.

    python benchmarks/quantiles.py [--count 50000000] [--rounds 5] [--q 0.8] [--kinds entropy normal ties zeros]

One pass over memory is a copy into a tensor that exists already (it reads and writes); a sum, which reads only, stands
beside it. `torch.sort` and `torch.kthvalue` take the same place. "over 4 ranks" takes the quantile of four parts whose
counts are summed in this process, one after another, so its time is that of all ranks together. One thread, float32;
candidates take turns; medians of CPU time and their ratios to the copy and to the sum. `torch.quantile` refuses more
than 2^24 values.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from timing import milliseconds
from tokenpo.core.ops import ranked

Make = Callable[[int, torch.Generator], Tensor]
KINDS: dict[str, Make] = {
    # Most tokens are nearly certain, a few are not: what entropies of a policy look like.
    "entropy": lambda n, g: torch.randn(n, generator=g).mul_(3).sub_(4).exp_().clamp_(max=12),
    "normal": lambda n, g: torch.randn(n, generator=g),
    "ties": lambda n, g: torch.randn(n, generator=g).mul_(4).round_(),
    "zeros": lambda n, g: torch.randn(n, generator=g).clamp_(min=0),
}
PARTS = 4


def over_ranks(parts: list[Tensor], q: float) -> float:
    """The quantile of all parts, each in a thread of its own whose counts wait for the others'."""
    barrier, given, found = threading.Barrier(len(parts)), {}, {}

    def work(rank: int) -> None:
        def reduce(counts: Tensor) -> Tensor:
            given[rank] = counts
            barrier.wait()
            total = torch.stack([given[other] for other in range(len(parts))]).sum(0)
            barrier.wait()
            return total

        found[rank] = float(ranked.quantile(parts[rank], q, reduce))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found.values())) == 1
    return found[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--q", type=float, default=0.8)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    for kind in options.kinds:
        x = KINDS[kind](options.count, generator)
        rank, copy, parts = ranked.nearest_rank(options.q, len(x)), torch.empty_like(x), list(x.chunk(PARTS))
        seen = float(ranked.quantile(x, options.q))
        for other in (x.kthvalue(rank + 1).values, x.sort().values[rank], over_ranks(parts, options.q)):
            if float(other) != seen:
                raise SystemExit(f"{kind}: the quantile is {float(other)}, not {seen}")
        times = milliseconds(
            {
                "copy": lambda copy=copy, x=x: copy.copy_(x),
                "sum": x.sum,
                "tokenpo": lambda x=x: ranked.quantile(x, options.q),
                f"over {PARTS} ranks": lambda parts=parts: over_ranks(parts, options.q),
                "kthvalue": lambda x=x, rank=rank: x.kthvalue(rank + 1),
                "sort": x.sort,
            },
            options.rounds,
        )
        print(f"{kind}: {len(x)} values, the {options.q:g} quantile is {seen:.6g}, {options.rounds} rounds")
        for name, ms in times.items():
            beside = f"{ms / times['copy']:8.2f} copies {ms / times['sum']:8.2f} sums" if times["sum"] else ""
            print(f"  {name:<14}{ms:10.1f} ms {beside}", flush=True)


if __name__ == "__main__":
    main()
