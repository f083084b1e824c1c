"""A training micro-batch of TRL's trainer with the loss in the model's head, beside the same by TRL's own pass.

    python benchmarks/trl_head.py [--vocabulary 8192] [--hidden 256] [--rows 16] [--length 64] [--rounds 9] [--memory]

Needs TRL. A random Qwen3 of two layers with an untied head; prompts of 16 tokens; forward and backward of the whole
model under GRPO, the policy near the one that sampled. One thread, float32; the two take turns in a process that keeps
what it frees, unless `--fresh`; medians of CPU time and the ratio. `--memory` shows the most memory held at once beyond
weights and gradients instead. On a GPU (`--device cuda --dtype bfloat16`) time is what lies between two of its events.
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

import tokenpo
from timing import Run, keep_memory, milliseconds, peak_bytes
from tokenpo.core.update import Update
from tokenpo.hosts.trl import TokenPOConfig, TokenPOTrainer
from tokenpo.hosts.trl.forward import ROW, by_policy, in_head
from tokenpo.train.models.directory import ASSETS

PROMPT, GROUP = 16, 8


def trainer(chosen: argparse.Namespace, directory: str) -> TokenPOTrainer:
    torch.manual_seed(0)
    heads = max(4, chosen.hidden // 64)
    config = Qwen3Config(
        vocab_size=chosen.vocabulary, hidden_size=chosen.hidden, intermediate_size=2 * chosen.hidden,
        num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=2, head_dim=chosen.hidden // heads,
        tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.device(chosen.device):
        model = Qwen3ForCausalLM(config).to(getattr(torch, chosen.dtype))
    args = TokenPOConfig(
        directory, use_cpu=chosen.device == "cpu", bf16=chosen.autocast, method="grpo", gradient_checkpointing=False,
        report_to="none", num_generations=GROUP, per_device_train_batch_size=chosen.rows, fused_objective=True,
    )  # fmt: skip
    data = Dataset.from_dict({"prompt": ["1+1="] * chosen.rows})
    made = TokenPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(ASSETS),
    )
    assert made.forward_passes.in_head
    return made


def micro_batch(chosen: argparse.Namespace, made: TokenPOTrainer) -> tuple[dict[str, torch.Tensor], Update]:
    """Every response as long as allowed, every group with an advantage."""
    draw = torch.Generator().manual_seed(1)
    shape, device = (chosen.rows, chosen.length), chosen.device
    ids = torch.randint(3, chosen.vocabulary, shape, generator=draw).to(device)
    ones = torch.ones(shape, dtype=torch.long, device=device)
    prompt = torch.randint(3, chosen.vocabulary, (chosen.rows, PROMPT), generator=draw).to(device)
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": ids,
        "completion_mask": ones,
    }
    place = torch.arange(chosen.rows, device=device)
    facts: dict[str, Any] = {
        "mask": ones.bool(),
        "reward": (place % 2).float(),
        "group": place // GROUP,
        "temperature": ones.float(),
    }
    with torch.no_grad(), made.accelerator.autocast():
        now = made.forward_passes.policy(made.model, inputs).logprob.float()
    near = now + 0.05 * torch.randn(shape, generator=draw).to(device)
    rollouts = tokenpo.Rollouts(**facts, old_logprob=near, token_ids=ids)
    return inputs | {ROW: place}, made.learner.begin(rollouts).update(place)


def candidates(made: TokenPOTrainer, inputs: dict[str, torch.Tensor], update: Update) -> dict[str, Run]:
    def run(score: Callable[..., Any]) -> Run:
        def once() -> None:
            for parameter in made.model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
            with made.accelerator.autocast():
                value = score(made.model, inputs, update).value
            value.backward()

        return once

    ours = made.forward_passes
    theirs = dataclasses.replace(ours, in_head=False)
    return {"in the head": run(partial(in_head, ours)), "TRL's pass": run(partial(by_policy, theirs))}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in {"vocabulary": 8192, "hidden": 256, "rows": 16, "length": 64, "rounds": 9}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--autocast", action="store_true", help="bf16 autocast, as TRL's users have it by default")
    parser.add_argument("--fresh", action="store_true", help="large memory goes back to the system when it is freed")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not chosen.fresh:
        keep_memory()
    with tempfile.TemporaryDirectory() as directory:
        made = trainer(chosen, directory)
        runs = candidates(made, *micro_batch(chosen, made))
        print(f"{chosen.rows} x {chosen.length} tokens, hidden {chosen.hidden}, vocabulary {chosen.vocabulary}")
        if chosen.memory:
            for name, run in runs.items():
                run()
                print(f"  {name:<12}{peak_bytes(run, chosen.device) / 1e6:8.1f} MB", flush=True)
            return
        median = milliseconds(runs, chosen.rounds, chosen.device)
        for name, value in median.items():
            print(f"  {name:<12}{value:8.1f} ms", flush=True)
        ours, theirs = median.values()
        print(f"  TRL's pass / in the head {theirs / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
