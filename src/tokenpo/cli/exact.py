"""`tokenpo exact`: a method's expected update beside the true gradient, in small worlds."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..base.errors import choose
from .options import ONE_METHOD, add_command, argument, need, objectives, place
from .streams import progress

EXAMPLES = """examples:
  tokenpo exact hapo tepo                     in the twelve worlds
  tokenpo exact mine.py:late --world two_modes,free_length --json late.json

Worlds, measures and what was found: docs/exact.md
"""


def add(commands: Any) -> None:
    parser = add_command(
        commands, exact, "a method's expected update beside the true gradient, in small worlds", EXAMPLES
    )
    argument(parser, "methods", "METHOD", ONE_METHOD, nargs="+")
    argument(parser, "--world", "LIST", "names of worlds; default: the twelve")
    place(parser, "--json", "FILE", "the numbers: value and standard error by method, world and measure")


def exact(options: argparse.Namespace) -> int:
    need("pydantic", "rich")
    import torch

    from ..lab.exact import table
    from ..lab.exact.measures import measure
    from ..lab.exact.worlds import TURNS, WORLDS
    from ..lab.page.frame import write

    names = (options.world or ",".join(WORLDS)).split(",")
    worlds = [choose("world", name, WORLDS | TURNS)() for name in names]
    chosen = {**objectives([table.BASE], "exact")[0], **objectives(options.methods, "exact")[0]}
    torch.set_num_threads(1)  # a world is small: more threads only wait for each other
    entrants = [(label, objective, False) for label, objective in chosen.items()]
    entrants.append((table.PERFECT, chosen[table.BASE], True))
    results: dict[str, Any] = {}
    with progress(len(worlds) * len(entrants), "") as tell:
        for label, objective, perfect in entrants:
            for world in worlds:
                tell(sum(map(len, results.values())), label)
                results.setdefault(label, {})[world.name] = measure(objective, world, perfect=perfect)
    table.show(results, names, sys.stdout)
    if options.json:
        print(f"numbers: {write(json.dumps(results, indent=1), options.json)}")
    return 0
