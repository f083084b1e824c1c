"""The command `tokenpo` and its parser. A command imports what it needs when it runs."""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence

from .. import __version__
from ..base.errors import TokenPOError, UnknownName, enough_memory, nearest
from .options import Command
from .streams import outliving

EXAMPLES = """examples:
  tokenpo train quickstart                                 a recipe of the package
  tokenpo train quickstart --method hapo --set seed=1      another method, another seed
  tokenpo train quickstart --method mine.py:late           a method of your own (docs/own_method.md)
  tokenpo recipes quickstart                               every setting, and what it means
  tokenpo train my.toml --set train.lr=3e-4 --set method.low=0.1
  tokenpo train --resume runs/quickstart-tepo-seed0        continue after Ctrl-C
  tokenpo compare quickstart --methods grpo,tepo --seeds 10
  tokenpo explain rollouts.jsonl --methods grpo,tepo       what each would do to every token
  tokenpo exact tepo hapo                                  their updates and the true gradient, in small worlds
  tokenpo eval runs/quickstart-tepo-seed0 --k 1,8          on the task of the run
  tokenpo audit runs/quickstart-tepo-seed0                 rewarded responses that look wrong
"""
# The modules with commands, as --help lists them.
COMMANDS = "train methods compare evaluate models doctor"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 2 on a mistake of the user, 130 when interrupted."""
    try:
        with outliving():
            return _answer(arguments)
    finally:
        if arguments is None:  # Ctrl-C while Python ends would be a traceback
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _answer(arguments: Sequence[str] | None) -> int:
    try:
        options = _parsed(sys.argv[1:] if arguments is None else arguments)
        with enough_memory("", "ask for less at a time (rows, samples, tokens), or use a machine with more"):
            return options.run(options)
    except KeyboardInterrupt:
        print("tokenpo: interrupted", file=sys.stderr)
        return 130
    except TokenPOError as error:
        print(f"tokenpo: {error}", file=sys.stderr)
        return 2


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; UnknownName for an unknown command names the nearest one, which argparse does not do."""
    top = parser()
    (names,) = (action.choices for action in top._actions if isinstance(action, argparse._SubParsersAction))
    if arguments and not arguments[0].startswith("-") and arguments[0] not in names:
        raise UnknownName(f"no command is called {arguments[0]!r}: {nearest(arguments[0], names)}")
    return top.parse_args(arguments)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tokenpo",
        description="Token-level policy optimisation for reinforcement learning with verifiable rewards.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"tokenpo {__version__}", help="print the version")
    top.set_defaults(run=_help, program=top)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=Command)
    for name in COMMANDS.split():
        importlib.import_module(f".{name}", __package__).add(commands)
    return top


def _help(options: argparse.Namespace) -> int:
    options.program.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
