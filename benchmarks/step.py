"""A whole training step of the embedded engine beside TRL's trainer, on the same work: sample, reward, learn.

    python benchmarks/step.py [--sizes 1.6M 0.1M 0.5B] [--rounds 3] [--steps 8] [--warmup 2] [--device cuda]
    python benchmarks/step.py --sizes smollm2 --model models/smollm2 --rounds 2 --steps 3 --warmup 1

Without TRL, the embedded engine alone.

Both train the same random Qwen3 of byte tokens with GRPO on the same prompts and the same reward (an even sum of token
ids), on one thread in float32: 1.6 M parameters with one update for each rollout batch, 0.1 M with four. For a GPU
there is 0.5B, of the widths of Qwen2.5 and with bf16 weights. TRL is tuned: no autocast, no gradient checkpointing, no
reference model, no reports, one process. The learning rate is 0, so that answers stay as long as they are. "smollm2" is
the model of `make smollm2`, asked for sums, in both precisions: in bf16 ours keeps weights and optimiser in float32
(train.autocast), TRL's weights are bf16. Runs of a few steps take turns, each in a process of its own; the first steps
of each are left out. The figures are the median CPU time of a step (a rollout batch with its updates; on a GPU,
wall-clock), also for each response token, since lengths are drawn, its ratio to the first line, and the most memory of
the process (on a GPU, allocated). Ours records entropies and checks what it learns from, as always; TRL logs its
metrics, as always.
"""

import argparse
import importlib.util
import itertools
import multiprocessing
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from timing import clock
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View

PROMPTS = [f"{i % 10}{i // 10 % 10}+{i * 7 % 10}{i * 3 % 10}=" for i in range(64)]
SUMS = [f"What is {10 + i} + {11 + 7 * i % 89}? Give only the number." for i in range(64)]
REWARD = """def even(completions, completion_ids):
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]
"""


@dataclass(frozen=True)
class Work:
    """One size: the model's widths and the shape of a step; one token in `ends` ends a response."""

    hidden: int
    inner: int
    layers: int
    heads: int
    updates: int
    prompts: int = 16
    group: int = 8
    new_tokens: int = 64
    vocabulary: int = 259
    ends: int = 40
    dtype: str = "float32"
    variants: tuple[str, ...] = ("tokenpo", "TRL")

    @property
    def prompt_list(self) -> list[str]:
        return SUMS if self.layers == 0 else PROMPTS


SIZES = {
    "1.6M": Work(192, 528, 4, 6, updates=1),
    "0.1M": Work(64, 160, 2, 2, updates=4),
    "0.5B": Work(896, 4864, 24, 14, 1, prompts=8, new_tokens=128, vocabulary=151936, ends=400, dtype="bfloat16"),
    "smollm2": Work(0, 0, 0, 0, 1, prompts=8, new_tokens=24, variants=("tokenpo", "tokenpo bf16", "TRL bf16", "TRL")),
}


@dataclass(frozen=True)
class Timed:
    """CPU seconds and response tokens of each step; most bytes held at once."""

    seconds: list[float]
    tokens: list[float]
    bytes: int = 0


@dataclass(frozen=True)
class Summary:
    """Medians: milliseconds of a step and of each response token; mean tokens of a step; most bytes held at once."""

    milliseconds: float
    per_token: float
    tokens: float
    bytes: int


def save_model(work: Work, directory: Path, device: str = "cpu") -> float:
    """Writes the model; its parameters in millions."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=work.vocabulary, hidden_size=work.hidden, intermediate_size=work.inner,
        num_hidden_layers=work.layers, num_attention_heads=work.heads, num_key_value_heads=2,
        head_dim=work.hidden // work.heads, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(getattr(torch, work.dtype))
    model.generation_config.eos_token_id = [2, *range(10 + work.ends, work.vocabulary - work.ends, work.ends)]
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(ASSETS).save_pretrained(directory)
    return sum(p.numel() for p in model.parameters()) / 1e6


def ours(work: Work, folder: Path, steps: int, device: str, half: bool) -> Timed:
    marks, tokens = [clock(device)], []

    class Watch(View):
        def step(self, metrics, total) -> None:
            marks.append(clock(device))
            tokens.append(metrics["length"] * work.prompts * work.group)

    (folder / "even.py").write_text(REWARD)
    rows = [f'{{"prompt": "{prompt}", "answer": "0"}}' for prompt in work.prompt_list]
    (folder / "prompts.jsonl").write_text("\n".join(rows))
    with tempfile.TemporaryDirectory() as out:
        config = parse_config(
            {
                "threads": 1,
                "model": {"path": str(folder / "model"), "device": device, "dtype": work.dtype},
                "task": {
                    "name": "files",
                    "options": {
                        "path": str(folder / "prompts.jsonl"),
                        "verifier": f"{folder / 'even.py'}:even",
                        "chat": work.layers == 0,
                    },
                },
                "method": {"name": "grpo"},
                "rollout": {"prompts": work.prompts, "group_size": work.group, "max_new_tokens": work.new_tokens},
                "train": {"steps": steps, "lr": 0.0, "minibatches": work.updates, "autocast": half},
                "evaluate": {"problems": 0},
                "output": {"dir": str(Path(out, "run")), "checkpoint_every": 0, "trace_every": 0, "samples": 0},
            },
            "benchmark",
        )
        train(config, Watch())
    return Timed(differences(marks), tokens)


def trl(work: Work, folder: Path, steps: int, device: str, half: bool) -> Timed:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    marks, tokens = [], []

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **rest) -> None:
            marks.append(clock(device))

        def on_step_end(self, args, state, control, **rest) -> None:
            if state.global_step % work.updates == 0:
                marks.append(clock(device))

    def even(completion_ids: list[list[int]], **columns: object) -> list[float]:
        tokens.append(sum(len(ids) for ids in completion_ids))
        return [float(sum(ids) % 2 == 0) for ids in completion_ids]

    rows = work.prompts * work.group
    settings = GRPOConfig(
        str(folder / "trl"), use_cpu=device == "cpu", bf16=False, gradient_checkpointing=False, report_to="none",
        save_strategy="no", logging_steps=10**6, disable_tqdm=True, seed=0, learning_rate=0.0,
        lr_scheduler_type="constant", max_steps=steps * work.updates, per_device_train_batch_size=rows // work.updates,
        gradient_accumulation_steps=1, steps_per_generation=work.updates, num_generations=work.group,
        max_completion_length=work.new_tokens, temperature=1.0, beta=0.0, loss_type="grpo",
    )  # fmt: skip
    dtype = torch.bfloat16 if half else getattr(torch, work.dtype)
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype)
    prompts: list = work.prompt_list
    if work.layers == 0:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=even,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        callbacks=[Watch()],
    )
    trainer.train()
    return Timed(differences(marks), tokens)


def differences(marks: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(marks)]


def measured(name: str, work: Work, folder: Path, steps: int, device: str) -> Timed:
    """One run, to be called in a process of its own."""
    torch.set_num_threads(1)
    run = ours if name.startswith("tokenpo") else trl
    timed = run(work, folder, steps, device, name.endswith("bf16"))
    if device == "cpu":
        return replace(timed, bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return replace(timed, bytes=torch.cuda.max_memory_allocated())


def compared(
    work: Work, names: Sequence[str], model: str, rounds: int, steps: int, warmup: int, device: str
) -> tuple[float, dict[str, Summary]]:
    """Parameters in millions, and what each has taken: rounds of `steps` steps in turn, less the first `warmup`."""
    seen: dict[str, list[Timed]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if work.layers:
            millions = save_model(work, folder / "model", device)
        else:
            (folder / "model").symlink_to(Path(model).absolute())
            millions = 134.52
        for name in list(names) * rounds:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                seen[name].append(pool.submit(measured, name, work, folder, steps, device).result())
            print(f"  {name}: {seen[name][-1]}", file=sys.stderr, flush=True)
    found = {}
    for name, timed in seen.items():
        seconds, tokens = kept(timed, "seconds", warmup), kept(timed, "tokens", warmup)
        each = [1e3 * a / b for a, b in zip(seconds, tokens, strict=True)]
        peak = max(run.bytes for run in timed)
        milliseconds = 1e3 * statistics.median(seconds)
        found[name] = Summary(milliseconds, statistics.median(each), statistics.mean(tokens), peak)
    return millions, found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["1.6M", "0.1M"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of one run")
    parser.add_argument("--warmup", type=int, default=2, help="steps of a run that are left out")
    parser.add_argument("--new-tokens", type=int, help="most tokens of a response")
    parser.add_argument("--only", nargs="+", help="the variants to run, all by default")
    parser.add_argument("--model", default="models/smollm2", help="directory of the model of smollm2")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args(arguments)
    for size in options.sizes:
        work = SIZES[size]
        if options.new_tokens:
            work = replace(work, new_tokens=options.new_tokens)
        names = [x for x in options.only or work.variants if "TRL" not in x or importlib.util.find_spec("trl")]
        millions, found = compared(
            work, names, options.model, options.rounds, options.steps, options.warmup, options.device
        )
        print(
            f"{millions:.2f} M parameters, {work.prompts} x {work.group} responses of {work.new_tokens} tokens at most"
            f", {work.updates} updates a step, {options.rounds} runs of {options.steps} steps less {options.warmup}"
        )
        first = next(iter(found.values())).per_token
        for name, taken in found.items():
            print(
                f"  {name:<13}{taken.milliseconds:9.0f} ms a step{taken.tokens:8.0f} tokens{taken.per_token:8.2f} ms "
                f"each{taken.per_token / first:7.2f}{taken.bytes / 2**30:8.2f} GiB",
                flush=True,
            )


def kept(timed: list[Timed], field: str, warmup: int) -> list[float]:
    return [value for run in timed for value in getattr(run, field)[warmup:]]


if __name__ == "__main__":
    main()
