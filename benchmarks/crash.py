"""Kills training runs at random moments and resumes them: python benchmarks/crash.py --kills 100

Every run is a process of its own, ended by SIGKILL at a random moment of its life (while it starts, samples, updates,
writes a line or a checkpoint), again and again until it gets to its end; every tenth life has a full disk instead (a
limit on the size of its files, which fails writes in the middle as a full disk does). Afterwards it must have left
what the uninterrupted run of the same recipe left: the same bytes of weights, optimiser, model, samples and traces, and
every line of metrics once, in order, with the same numbers but for seconds.

A life is cut short after a time drawn uniformly from 0 to a little more than what one whole life takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

METHODS = {
    "hapo": {},
    "ha_dw": {},
    "aer": {"start": 0.1, "largest": 1.0, "delta": 0.01},
    "skywork_entropy": {"start": 0.1, "largest": 1.0, "delta": 0.01},
    "lopti": {},
}
# Right when the tokens sum to an even number: half of what a random model says, so that every step teaches.
EVEN = """def even(completions, completion_ids):
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]
"""
FULL = 40_000  # bytes of a file: less than a checkpoint's tensors, more than most logs


def recipe(path: Path, method: str, model: Path) -> Path:
    options = "\n".join(f"{key} = {value}" for key, value in METHODS[method].items())
    path.write_text(
        f"""seed = 3
threads = 1
[model]
path = {json.dumps(str(model))}
device = "cpu"
[task]
name = "files"
[task.options]
path = "{path.parent}/sums.jsonl"
verifier = "{path.parent}/even.py:even"
[method]
name = "{method}"
{options}
[rollout]
prompts = 4
group_size = 4
max_new_tokens = 8
[train]
steps = 6
minibatches = 2
epochs = 2
lr = 1e-2
[evaluate]
problems = 4
samples = 0
every = 2
[output]
checkpoint_every = 1
keep = 2
trace_every = 1
"""
    )
    return path


def small_model(directory: Path) -> Path:
    """The architecture of the tiny model with weights that fit in a page or two."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from tokenpo.models.directory import ASSETS

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=259, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.5,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = list(range(2, 259, 6))
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(ASSETS).save_pretrained(directory)
    return directory


def live(arguments: list[str], *, after: float | None = None, full: bool = False) -> int:
    """One life of a run, forked so that it need not import anything; its status as subprocess would give it."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open("child.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        if full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))
        from tokenpo.cli.main import main

        code = 1
        try:
            code = main(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def left(run: Path) -> dict[str, object]:
    last = max((run / "checkpoints").glob("step-*"))
    state = json.loads((last / "state.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    files = ("samples.jsonl", "trace.jsonl", "model/model.safetensors")
    return {
        **{name: (run / name).read_bytes() for name in files},
        **{name: (last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")},
        "state": {key: value for key, value in state.items() if key != "sizes"},
        "metrics": [{key: x for key, x in line.items() if not key.startswith("seconds")} for line in lines],
        "names": sorted(path.name for path in (run / "checkpoints").iterdir()),
    }


def trial(work: Path, method: str, expected: dict, seconds: float, kills: Counter, chance: random.Random) -> None:
    run, file = work / f"{method}-run", work / f"{method}.toml"
    shutil.rmtree(run, ignore_errors=True)
    while True:
        begun = (run / "config.json").exists()
        arguments = ["train", "--resume", str(run)] if begun else ["train", str(file), "--out", str(run)]
        full = begun and chance.random() < 0.1
        after = chance.uniform(0.0, 1.05 * seconds)
        code = live([*arguments, "--no-report"], after=None if full else after, full=full)
        if code == -9:
            kills["killed"] += 1
        elif full and code == 2:
            kills["full disk"] += 1
        elif code == 0:
            break
        elif code == 2 and (run / "model").is_dir() and left(run) == expected:
            break  # it was killed after its last byte
        else:
            raise SystemExit(f"{method}: a life ended with {code}:\n{Path('child.log').read_text()[-2000:]}")
    got = left(run)
    for name in expected:
        if got[name] != expected[name]:
            raise SystemExit(f"{method}: {name} differs from the uninterrupted run")
    kills["runs"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch

    import tokenpo.engines.embedded.loop  # noqa: F401  (imported before the forks)

    torch.set_num_threads(1)
    chance, kills, began = random.Random(options.seed), Counter(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        os.chdir(work)
        model = small_model(work / "model")
        rows = [json.dumps({"prompt": f"{i}=", "answer": str(i)}) for i in range(40)]
        (work / "sums.jsonl").write_text("\n".join(rows))
        (work / "even.py").write_text(EVEN)
        expected, seconds = {}, {}
        for method in METHODS:
            file = recipe(work / f"{method}.toml", method, model)
            start = time.monotonic()
            if live(["train", str(file), "--out", str(work / f"{method}-once"), "--no-report"]):
                raise SystemExit(Path("child.log").read_text())
            seconds[method] = time.monotonic() - start
            expected[method] = left(work / f"{method}-once")
            moved = [line.get("grad_norm") for line in expected[method]["metrics"]]
            if not any(moved):
                raise SystemExit(f"{method}: nothing was learnt, so there is nothing to lose")
        while kills["killed"] + kills["full disk"] < options.kills:
            method = list(METHODS)[kills["runs"] % len(METHODS)]
            trial(work, method, expected[method], seconds[method], kills, chance)
    print(
        f"{kills['killed']} SIGKILLs and {kills['full disk']} full disks over {kills['runs']} runs of "
        f"{', '.join(METHODS)}: every run resumed to the bytes of the uninterrupted one "
        f"({time.monotonic() - began:.0f} s of wall-clock, {sys.platform}, torch {torch.__version__})"
    )


if __name__ == "__main__":
    main()
