"""A whole training step of the embedded engine beside TRL's trainer, on the same work: sample, reward, learn.

    python benchmarks/step.py [--sizes 1.6M 0.1M 0.5B] [--rounds 3] [--steps 8] [--warmup 2] [--device cuda]

Without TRL, the embedded engine alone.

Both train the same random Qwen3 of byte tokens with GRPO on the same prompts and the same reward (an even sum of token
ids), on one thread in float32: 1.6 M parameters with one update for each rollout batch, 0.1 M with four. For a GPU
there is 0.5B, of the widths of Qwen2.5 and with bf16 weights. TRL is tuned: no autocast, no gradient checkpointing, no
reference model, no reports, one process. The learning rate is 0, so that answers stay as long as they are. Runs of a
few steps take turns; the first steps of each are left out. The figure is the median CPU time of a step (a rollout batch
with its updates; on a GPU, wall-clock) and its ratio; tokens of a step stand beside it, since lengths are drawn, and on
a GPU the most memory held at once. Ours records entropies and checks what it learns from, as always; TRL logs its
metrics, as always.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from timing import clock, peak_bytes
from tokenpo.cli.view import SilentView
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.embedded import train

PROMPTS = [f"{i % 10}{i // 10 % 10}+{i * 7 % 10}{i * 3 % 10}=" for i in range(64)]
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


SIZES = {
    "1.6M": Work(192, 528, 4, 6, updates=1),
    "0.1M": Work(64, 160, 2, 2, updates=4),
    "0.5B": Work(896, 4864, 24, 14, 1, prompts=8, new_tokens=128, vocabulary=151936, ends=400, dtype="bfloat16"),
}


@dataclass(frozen=True)
class Timed:
    """CPU seconds and response tokens of each step."""

    seconds: list[float]
    tokens: list[float]


@dataclass(frozen=True)
class Summary:
    """Median milliseconds and mean response tokens of a step; most bytes held at once, 0 on a CPU."""

    milliseconds: float
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


def ours(work: Work, folder: Path, steps: int, device: str) -> Timed:
    marks, tokens = [clock(device)], []

    class Watch(SilentView):
        def step(self, metrics, total) -> None:
            marks.append(clock(device))
            tokens.append(metrics["length"] * work.prompts * work.group)

    (folder / "even.py").write_text(REWARD)
    rows = [f'{{"prompt": "{prompt}", "answer": "0"}}' for prompt in PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(rows))
    with tempfile.TemporaryDirectory() as out:
        config = parse_config(
            {
                "threads": 1,
                "model": {"path": str(folder / "model"), "device": device, "dtype": work.dtype},
                "task": {
                    "name": "files",
                    "options": {"path": str(folder / "prompts.jsonl"), "verifier": f"{folder / 'even.py'}:even"},
                },
                "method": {"name": "grpo"},
                "rollout": {"prompts": work.prompts, "group_size": work.group, "max_new_tokens": work.new_tokens},
                "train": {"steps": steps, "lr": 0.0, "minibatches": work.updates},
                "evaluate": {"problems": 0},
                "output": {"dir": str(Path(out, "run")), "checkpoint_every": 0, "trace_every": 0, "samples": 0},
            },
            "benchmark",
        )
        train(config, Watch())
    return Timed(differences(marks), tokens)


def trl(work: Work, folder: Path, steps: int, device: str) -> Timed:
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
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=getattr(torch, work.dtype))
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=even,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        callbacks=[Watch()],
    )
    trainer.train()
    return Timed(differences(marks), tokens)


def differences(marks: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(marks)]


def compared(
    work: Work, names: Sequence[str], rounds: int, steps: int, warmup: int, device: str
) -> tuple[float, dict[str, Summary]]:
    """Parameters in millions, and what each has taken: rounds of `steps` steps in turn, less the first `warmup`."""
    runs: dict[str, Callable[[Work, Path, int, str], Timed]] = {"tokenpo": ours, "TRL": trl}
    seen: dict[str, list[Timed]] = {name: [] for name in names}
    peak = dict.fromkeys(names, 0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        millions = save_model(work, folder / "model", device)
        for name in list(names) * rounds:
            gc.collect()

            def run(name: str = name) -> None:
                seen[name].append(runs[name](work, folder, steps, device))

            if device == "cpu":
                run()
            else:
                torch.cuda.empty_cache()
                peak[name] = max(peak[name], peak_bytes(run, device))
    found = {
        name: Summary(
            1e3 * statistics.median(kept(timed, "seconds", warmup)),
            statistics.mean(kept(timed, "tokens", warmup)),
            peak[name],
        )
        for name, timed in seen.items()
    }
    return millions, found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["1.6M", "0.1M"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of one run")
    parser.add_argument("--warmup", type=int, default=2, help="steps of a run that are left out")
    parser.add_argument("--new-tokens", type=int, help="most tokens of a response")
    parser.add_argument("--only", nargs="+", choices=["tokenpo", "TRL"], default=["tokenpo", "TRL"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    names = [name for name in options.only if name != "TRL" or importlib.util.find_spec("trl")]
    for size in options.sizes:
        work = SIZES[size]
        if options.new_tokens:
            work = replace(work, new_tokens=options.new_tokens)
        millions, found = compared(work, names, options.rounds, options.steps, options.warmup, options.device)
        print(
            f"{millions:.2f} M parameters, {work.prompts} x {work.group} responses of {work.new_tokens} tokens at most"
            f", {work.updates} updates a step, {options.rounds} runs of {options.steps} steps less {options.warmup}"
        )
        for name, taken in found.items():
            memory = f"   {taken.bytes / 2**30:.2f} GiB" if taken.bytes else ""
            print(f"  {name:<9}{taken.milliseconds:9.0f} ms a step   {taken.tokens:7.0f} tokens{memory}", flush=True)
        if len(found) == 2:
            ratio = found["TRL"].milliseconds / found["tokenpo"].milliseconds
            print(f"  TRL / tokenpo {ratio:.2f}", flush=True)


def kept(timed: list[Timed], field: str, warmup: int) -> list[float]:
    return [value for run in timed for value in getattr(run, field)[warmup:]]


if __name__ == "__main__":
    main()
