"""Damages every kind of file that is read and counts what comes of it, within a time budget. --seconds 120 --seed 0

A small run is made first. Each case changes one of its files (values, keys, bytes, lines, the header of tensors) as
hypothesis draws it, makes the checksums right again where there are any, and has the file read as the commands do. A
case is refused (one sentence), accepted, or a failure: another exception, a second line in the sentence, or more than
`LONGEST` seconds. Failures are printed with what reproduces them, and the exit code is 1; with --accepted, what was
accepted with one changed value is listed, to be judged by a reader.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st

from tokenpo.base.errors import TokenPOError

LONGEST = 20
MEMORY = 16 * 2**30
RECIPE = {
    "rollout": {"prompts": 2, "group_size": 2, "max_new_tokens": 4},
    "train": {"steps": 1, "minibatches": 1},
    "evaluate": {"problems": 2, "samples": 1},
    "output": {"trace_every": 1, "rollouts_every": 1},
    "model": {"device": "cpu"},
}
HOSTILE = st.one_of(
    st.sampled_from(
        [None, True, False, -1, 0, 1, 2, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")]
    ),
    st.sampled_from(
        [
            "", "x", "\x00", "\x1b[31m", "\ud800", "../x", "a" * 3000, "$HOME", "{{", "1e9", "none", "tiny",
            "F32\nX\r\x85",
        ]
    ),
    st.sampled_from([[], {}, [[]], {"": None}, [None], ["x"] * 3, {"a": {"b": []}}]),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.recursive(st.none() | st.integers(-2, 2), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
)  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "set", "set", "drop", "add", "nest"]), HOSTILE),
    min_size=1,
    max_size=3,
)
SPLICES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=3)


class Hang(BaseException):
    """Longer than any file may take."""


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every path in a tree of JSON; of long lists and tables the first twelve items."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items)[:12]:
        yield (*path, key)
        if len(path) < 12:
            yield from places(item, (*path, key))


def changed(tree: Any, changes: list[tuple[int, str, Any]]) -> tuple[Any, list[str]]:
    """The tree with these changes, and what they were."""
    tree, told = copy.deepcopy(tree), []
    for number, kind, value in changes:
        paths = list(places(tree))
        if not paths:
            break
        value = copy.deepcopy(value)  # or what is put into it would be in every later case
        *above, last = paths[number % len(paths)]
        told.append(f"{kind} {'.'.join(map(str, [*above, last]))} = {repr(value)[:40]}")
        inside = tree
        for key in above:
            inside = inside[key]
        if kind == "drop":
            del inside[last]
        elif kind == "add" and isinstance(inside, dict):
            inside[f"{last}_"] = value
        elif kind == "nest":
            for _ in range(2000):
                value = [value]
            inside[last] = value
        else:
            inside[last] = value
    return tree, told


def encoded(tree: Any) -> bytes:
    try:
        return json.dumps(tree).encode()
    except RecursionError:  # a file may be deeper than Python writes
        return b"[" * 5000


def as_tree(content: bytes, changes: list) -> tuple[bytes, list[str]]:
    tree, told = changed(json.loads(content), changes)
    return encoded(tree), told


def as_lines(content: bytes, changes: list) -> tuple[bytes, list[str]]:
    tree, told = changed([json.loads(line) for line in content.splitlines()[:20]], changes)
    return b"\n".join(map(encoded, tree)) + b"\n", told


def as_toml(content: bytes, changes: list) -> tuple[bytes, list[str]]:
    tree, told = changed(RECIPE, changes)
    return encoded(tree), told


def as_dotted(content: bytes, changes: list) -> tuple[bytes, list[str]]:
    """Many keys of many parts, in TOML."""
    lines = []
    for number, kind, _ in changes:
        depth = 1 + number % 97
        lines += [".".join([f"{kind}{row}", *"x" * depth]) + " = 1" for row in range(min(number, 10**5 // depth))]
    return "\n".join(lines).encode(), [f"{len(lines)} keys"]


def as_tensors(content: bytes, changes: list) -> tuple[bytes, list[str]]:
    (size,) = struct.unpack("<Q", content[:8])
    header, told = as_tree(content[8 : 8 + size], changes)
    return struct.pack("<Q", len(header)) + header + content[8 + size :], told


def spliced(content: bytes, splices: list[tuple[float, int, bytes]]) -> tuple[bytes, list[str]]:
    for share, length, new in splices:
        at = int(share * len(content))
        content = content[:at] + new + content[at + length :]
    return content, ["bytes"]


Reader = Callable[[Path], Any]


def read_model(run: Path) -> None:
    from tokenpo.models import load

    lm = load(run / "model")
    lm.encode("1+1=")
    lm.encode([{"role": "user", "content": "1+1="}])


def read_checkpoint(run: Path) -> None:
    from tokenpo.models import load
    from tokenpo.runs import checkpoint
    from tokenpo.runs.directory import cut_back, open_checkpoint, resumed

    resumed(run, None)
    model = load(run.parent / "whole" / "model").model
    saved, progress, _ = open_checkpoint(run)
    if saved is not None:
        checkpoint.restore(saved, (model, torch.optim.AdamW(model.parameters())), None)
    cut_back(run, progress)


def read_recipe(run: Path) -> None:
    from tokenpo.recipe.config import load_config
    from tokenpo.recipe.objective import build_objective

    build_objective(load_config(run / "mine.json"))


def read_dotted(run: Path) -> None:
    from tokenpo.recipe.config import load_config

    load_config(run / "mine.toml")


def read_answers(run: Path) -> None:
    """What a Tinker server said: the tree of an answer stands for the client's objects."""
    from tokenpo.base.files import json_object
    from tokenpo.engines.tinker.answers import Answers, require_path, require_scores
    from tokenpo.engines.tinker.responses import Limits, samples

    text = json.dumps(json_object(run / "answer.json"))
    told = json.loads(text, object_hook=lambda table: SimpleNamespace(**table))
    with Answers("http://server").asking("in sampling"):
        samples(told.responses, {2}, Limits(2, 4, 30))
        require_scores(torch.tensor(told.scores, dtype=torch.float32), 2)
        require_path(told.path)


def read_problems(run: Path) -> None:
    from tokenpo.tasks import make_task

    with contextlib.closing(make_task("files", {"path": str(run / "problems.jsonl")}, 0)) as task:
        for problem in task.problems("train", 0, 3):
            task.score([problem], [r"\boxed{1}"], [[1]])


def command(*arguments: str) -> Reader:
    def read(run: Path) -> None:
        from tokenpo.cli.main import parser

        options = parser().parse_args([argument.replace("RUN", str(run)) for argument in arguments])
        options.run(options)

    return read


EXPLAIN = ("--methods", "grpo", "--out", "RUN/explained")
# The file, how it is taken apart, how it is read.
FORMATS: dict[str, tuple[str, Callable, Reader]] = {
    "recipe": ("mine.json", as_toml, read_recipe),
    "recipe, dotted keys": ("mine.toml", as_dotted, read_dotted),
    "answers of a server": ("answer.json", as_tree, read_answers),
    "problems": ("problems.jsonl", as_lines, read_problems),
    "rollouts, lines": ("rollouts/step-000001.jsonl", as_lines, command("explain", "RUN", *EXPLAIN)),
    "metrics": ("metrics.jsonl", as_lines, command("report", "RUN")),
    "trace": ("trace.jsonl", as_lines, command("report", "RUN")),
    "config of a run": ("config.json", as_tree, read_checkpoint),
    "inputs of a run": ("inputs.json", as_tree, read_checkpoint),
    "state of a checkpoint": ("checkpoints/step-000001/state.json", as_tree, read_checkpoint),
    "weights of a checkpoint": ("checkpoints/step-000001/model.safetensors", as_tensors, read_checkpoint),
    "moments of a checkpoint": ("checkpoints/step-000001/optimizer.safetensors", as_tensors, read_checkpoint),
    "checksums of a checkpoint": ("checkpoints/step-000001/checksums.json", as_tree, read_checkpoint),
    "config of a model": ("model/config.json", as_tree, read_model),
    "generation config": ("model/generation_config.json", as_tree, read_model),
    "tokenizer": ("model/tokenizer.json", as_tree, read_model),
    "tokenizer settings": ("model/tokenizer_config.json", as_tree, read_model),
    "weights of a model": ("model/model.safetensors", as_tensors, read_model),
}


def _sparse(file: Path) -> None:
    with file.open("wb") as hole:
        hole.truncate(2**40)


# What may lie in a file's place. Each is tried once with every format, whatever the seed.
SPECIAL: dict[str, Callable[[Path], Any]] = {
    "a pipe": lambda file: os.mkfifo(file),
    "a directory": lambda file: file.mkdir(),
    "a link to an endless device": lambda file: file.symlink_to("/dev/zero"),
    "a link to nothing": lambda file: file.symlink_to("nothing"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a link out of the run": lambda file: file.symlink_to(Path(sys.executable)),
    "an empty file": lambda file: file.write_bytes(b""),
    "a terabyte of zeros": _sparse,
}


def special(name: str, whole: Path, failures: list[str]) -> Counter:
    file, _, read = FORMATS[name]
    run, counts = whole.parent / "run", Counter()
    for what, put in SPECIAL.items():
        if put is _sparse and file.endswith(".safetensors"):
            continue  # is read to its end, as a terabyte of weights would be
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        (run / file).unlink()
        put(run / file)
        outcome = read_case(read, run)
        kind = outcome if outcome in ("accepted", "refused", "hang") else "failed"
        counts[kind] += 1
        if kind in ("hang", "failed"):
            failures.append(f"{name}: {what} in its place: {outcome}")
    return counts


def make_run(directory: Path) -> None:
    from tokenpo.cli.view import SilentView
    from tokenpo.engines.embedded.loop import train
    from tokenpo.recipe.config import parse_config

    train(parse_config({**RECIPE, "output": {**RECIPE["output"], "dir": str(directory)}}, "fuzz"), SilentView())
    (directory / "mine.json").write_text(json.dumps(RECIPE))
    (directory / "mine.toml").write_text("")
    row = {"tokens": [4, 2], "logprobs": [-0.5, -1.0], "stop_reason": "stop"}
    answer = {"responses": [{"sequences": [row, row]}] * 2, "scores": [-1.0, -2.0], "path": "tinker://saved"}
    (directory / "answer.json").write_text(json.dumps(answer))
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(4)]
    (directory / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))


@contextlib.contextmanager
def on_the_clock() -> Iterator[None]:
    """An alarm is a `Hang`, and memory is bounded; both as before at the end."""

    def hang(*_: Any) -> None:
        raise Hang

    before, limits = signal.signal(signal.SIGALRM, hang), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def read_case(read: Reader, run: Path) -> str:
    """What came of a case: accepted, refused, or what went wrong."""
    signal.alarm(LONGEST)
    faulthandler.dump_traceback_later(3 * LONGEST, exit=True, file=sys.__stderr__)  # native code hears no alarm
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            read(run)
    except TokenPOError as error:
        return "refused" if not re.search(r"[\x00-\x1f\x7f-\x9f]", str(error)) else f"no plain line: {error!r:.300}"
    except Hang:
        return "hang"
    except BaseException as error:  # panics of native libraries are no Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error!s:.200} ({last.filename.rpartition('/')[2]}:{last.lineno})"
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
    return "accepted"


def fuzz(name: str, whole: Path, budget: float, seed: int, accepted: Counter, failures: list[str]) -> Counter:
    file, take_apart, read = FORMATS[name]
    run = whole.parent / "run"
    counts, ends = Counter(), time.monotonic() + budget
    original = (whole / file).read_bytes()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=10**6, deadline=None, database=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(st.one_of(CHANGES, CHANGES, CHANGES, SPLICES))
    def case(drawn: list) -> None:
        if time.monotonic() > ends:
            raise TimeoutError
        content, told = (take_apart if isinstance(drawn[0][1], str) else spliced)(original, drawn)
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        (run / file).write_bytes(content)
        sums = (run / file).with_name("checksums.json")
        if sums.exists() and sums != run / file:
            known = json.loads(sums.read_text())
            sums.write_text(json.dumps({**known, (run / file).name: hashlib.sha256(content).hexdigest()}))
        outcome = read_case(read, run)
        kind = outcome if outcome in ("accepted", "refused", "hang") else "failed"
        counts[kind] += 1
        if kind == "accepted" and len(told) == 1 and told != ["bytes"]:
            accepted[f"{name}: {told[0]}"] += 1
        elif kind in ("hang", "failed"):
            failures.append(f"{name}: {'; '.join(told)}: {outcome}" + (f" {drawn!r:.300}" if told == ["bytes"] else ""))

    with contextlib.suppress(TimeoutError):
        case()
    return counts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="for all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(FORMATS), default=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--accepted", action="store_true", help="list what was accepted")
    options = parser.parse_args(arguments)
    accepted, failures = Counter(), []
    print(f"{'file':28}{'cases':>8}{'refused':>9}{'accepted':>9}{'failed':>8}{'hangs':>7}", flush=True)
    total: Counter = Counter()
    with tempfile.TemporaryDirectory() as scratch, on_the_clock():
        make_run(whole := Path(scratch) / "whole")
        for name in options.only:
            counts = special(name, whole, failures)
            counts += fuzz(name, whole, options.seconds / len(options.only), options.seed, accepted, failures)
            total += counts
            _tell(name, counts)
    _tell("all", total)
    print("\n".join([*(f"accepted {n} x {what}" for what, n in accepted.most_common() if options.accepted), *failures]))
    return 1 if failures else 0


def _tell(name: str, counts: Counter) -> None:
    told = [sum(counts.values()), *(counts[kind] for kind in ("refused", "accepted", "failed", "hang"))]
    print(f"{name:28}{told[0]:8,}{told[1]:9,}{told[2]:9,}{told[3]:8,}{told[4]:7,}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
