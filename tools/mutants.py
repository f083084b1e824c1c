"""Breaks the core on purpose, one place at a time, and reports every break that no test notices.

    python tools/mutants.py [--only PATH ...] [--sample K] [--seed S] [--list]

Each mutant is one changed expression of `ops`, `signals`, `stages`, `methods`, `fused`, `objective.py`,
`phase_two.py` or `blocks.py`: a flipped sign, a swapped operator, a dropped mask, stop-gradient or clamp, a
changed constant. A forked child of a process that has torch loaded already imports the package with that one change and
runs the core's tests until the first failure: the nearest tests first, the rest after. Works on a copy of the tree.
Exit 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from equivalent import EQUIVALENT
from mutation import Change, changes

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/tokenpo")
FOLDERS = ("ops", "signals", "stages", "methods", "fused")
FILES = ("objective.py", "phase_two.py", "blocks.py")
# In this order: small and sharp ones first.
TESTS = (
    "tests/core/test_objective.py", "tests/core/ops", "tests/core/parts", "tests/core/test_types.py",
    "tests/methods/test_table.py", "tests/core/test_selection.py", "tests/core/test_polar.py",
    "tests/core/test_parts.py",
    "tests/core/test_blocks.py", "tests/core/test_fused_oracle.py", "tests/core/test_fused.py",
    "tests/methods",
    "tests/core/test_check_method.py", "tests/test_outside_method.py",
)  # fmt: skip
PYTEST = ("-x", "-q", "-o", "addopts=", "--import-mode=importlib", "-m", "not slow", "-p", "no:cacheprovider")
PARALLEL = 2
SECONDS = 240.0
NO_TESTS = 5


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Args:
        path: of the file, relative to the repository.
        change: what is written where.
    """

    path: Path
    change: Change

    @property
    def module(self) -> str:
        parts = self.path.relative_to("src").with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def key(self) -> tuple[str, str, str]:
        return str(self.path.relative_to(PACKAGE)), self.change.before, self.change.after

    @property
    def equivalent(self) -> str | None:
        """Why nothing can notice it, if that is known."""
        return EQUIVALENT.get(self.key)

    def __str__(self) -> str:
        return f"{self.path}:{self.change.line}\n    - {self.change.before}\n    + {self.change.after}"


class Mutated(importlib.machinery.SourceFileLoader):
    """Loads a file as if it held another text."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str):
        return compile(self.text, self.path, "exec", dont_inherit=True)


class Hook(importlib.abc.MetaPathFinder):
    """Finds the mutated module before anybody else does."""

    def __init__(self, mutant: Mutant, root: Path) -> None:
        self.mutant, self.file = mutant, root / mutant.path

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.mutant.module:
            return None
        loader = Mutated(fullname, str(self.file), self.mutant.change.text)
        places = [str(self.file.parent)] if self.file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, self.file, loader=loader, submodule_search_locations=places
        )


def sources() -> list[Path]:
    """The files that are mutated, in the order of their names."""
    found = [p for folder in FOLDERS for p in sorted((ROOT / PACKAGE / folder).glob("*.py"))]
    return [p.relative_to(ROOT) for p in (*found, *(ROOT / PACKAGE / name for name in FILES))]


def mutants(only: list[str]) -> list[Mutant]:
    """Every mutant of the files whose path begins with one of `only` (all, if there is none)."""
    chosen = [p for p in sources() if not only or any(str(p).startswith(o.removeprefix("./")) for o in only)]
    return [Mutant(path, change) for path in chosen for change in changes((ROOT / path).read_text())]


def nearest_tests(path: Path) -> list[str]:
    """The tests that are about this file: the first to ask."""
    here = path.relative_to(PACKAGE)
    near = [Path("tests") / here.parent / f"test_{here.stem}.py"]
    if here.parts[0] == "methods":
        names = [n.name for n in ast.parse((ROOT / path).read_text()).body if isinstance(n, ast.FunctionDef)]
        near = [Path("tests/methods/test_table.py"), *(Path("tests/methods") / name for name in names)]
    if here.parts[0] == "signals":
        near = [Path("tests/core/parts")]
    if here.parts[0] == "fused":
        near = [Path("tests/core/test_fused_oracle.py"), Path("tests/core/test_fused.py")]
    return [str(p) for p in near if (ROOT / p).exists()]


def copied() -> tempfile.TemporaryDirectory:
    """The tree as it is now, so that it can be edited while the mutants run."""
    place = tempfile.TemporaryDirectory(prefix="mutants-")
    ignored = shutil.ignore_patterns("__pycache__", "assets")
    for name in ("src", "tests", "benchmarks"):  # tests share their measuring with the benchmarks
        shutil.copytree(ROOT / name, Path(place.name) / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", place.name)
    return place


def child(mutant: Mutant | None, root: Path, log: Path) -> int:
    """Runs the tests on a mutant (None: on the code as it is) and never returns; the exit code is pytest's."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(root)
        sys.path.insert(0, str(root / "src"))
        near = nearest_tests(mutant.path) if mutant else []
        if mutant:
            sys.meta_path.insert(0, Hook(mutant, root))
        import pytest

        code = int(pytest.main([*PYTEST, *near])) if near else 0
        if code in (0, NO_TESTS):
            rest = [test for test in TESTS if (root / test).exists() and test not in near]
            code = int(pytest.main([*PYTEST, *rest]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def verdicts(queue: list[Mutant], root: Path) -> Iterator[tuple[Mutant, str, float]]:
    """(mutant, "killed" | "timeout" | "survived", seconds), as they come."""
    waiting = collections.deque(queue)
    running: dict[int, tuple[Mutant, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < PARALLEL:
                mutant = waiting.popleft()
                log = root / f"mutant-{len(waiting)}.log"
                running[child(mutant, root, log)] = (mutant, time.monotonic())
            for pid, (mutant, start) in list(running.items()):
                seconds = time.monotonic() - start
                verdict = judged(pid, seconds)
                if verdict is not None:
                    del running[pid]
                    yield mutant, verdict, seconds
            time.sleep(0.01)
    finally:
        for pid in running:
            os.killpg(pid, signal.SIGKILL)


def judged(pid: int, seconds: float) -> str | None:
    """What became of a child, None while it runs; one that runs too long is ended."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
    if seconds <= SECONDS:
        return None
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def baseline(root: Path) -> None:
    """The tests must pass on the code as it is, or every mutant would count as killed."""
    log = root / "baseline.log"
    start = time.monotonic()
    pid = child(None, root, log)
    try:
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.killpg(pid, signal.SIGKILL)
        raise
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"the tests fail without any mutant:\n{log.read_text()[-3000:]}")
    print(f"tests pass on the code as it is, {time.monotonic() - start:.0f} s", flush=True)


def table(counts: dict[Path, collections.Counter], equivalent: collections.Counter) -> str:
    kinds = ("killed", "timeout", "survived")
    lines = [f"{'file':<32}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>10}{'equivalent':>12}"]
    total: collections.Counter = collections.Counter()
    for path in sorted({*counts, *equivalent}):
        c = collections.Counter(counts.get(path, {}), equivalent=equivalent[path])
        total.update(c)
        lines.append(_row(str(path.relative_to(PACKAGE)), c, kinds))
    return "\n".join([*lines, _row("all", total, kinds)])


def _row(name: str, c: collections.Counter, kinds: tuple[str, ...]) -> str:
    killed, timeout, survived = (c[kind] for kind in kinds)
    return f"{name:<32}{sum(c.values()):>9}{killed:>9}{timeout:>9}{survived:>10}{c['equivalent']:>12}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="PATH", help="only files whose path begins like this")
    parser.add_argument("--sample", type=int, metavar="K", help="a random K of the mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="show the mutants and stop")
    options = parser.parse_args()

    everything = mutants(options.only)
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(range(len(everything)), min(options.sample, len(everything)))
        everything = [everything[i] for i in sorted(chosen)]
    queue = [m for m in everything if m.equivalent is None]
    if stale := EQUIVALENT.keys() - {m.key for m in mutants([])}:
        print("no longer a mutant, drop from tools/equivalent.py:", *sorted(stale), sep="\n  ")
    if options.list:
        print(*everything, sep="\n")
        return 0

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children and the copy go too
    os.environ.update(OMP_NUM_THREADS="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.dont_write_bytecode = False  # in the copy: what does not change need not be compiled again
    import numpy  # noqa: F401  the children inherit what is loaded here
    import pytest  # noqa: F401
    import torch  # noqa: F401

    print(f"{len(queue)} mutants, {len(everything) - len(queue)} known to be equivalent", flush=True)
    counts: dict[Path, collections.Counter] = collections.defaultdict(collections.Counter)
    equivalent = collections.Counter(m.path for m in everything if m.equivalent)
    survivors = []
    start = time.monotonic()
    with copied() as place:
        baseline(Path(place))
        for n, (mutant, verdict, seconds) in enumerate(verdicts(queue, Path(place)), 1):
            counts[mutant.path][verdict] += 1
            if verdict == "survived":
                survivors.append(mutant)
                print(f"[{n}/{len(queue)}] survived after {seconds:.0f} s: {mutant}", flush=True)
    print(table(counts, equivalent))
    print(f"{time.monotonic() - start:.0f} s")
    if survivors:
        print(f"\n{len(survivors)} survived:")
        print(*sorted(survivors, key=lambda m: (str(m.path), m.change.line)), sep="\n")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
