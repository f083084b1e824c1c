"""One recipe trained by TRL: the program that `tokenpo train --engine trl` and `tokenpo launch` start.

    accelerate launch -m tokenpo.engines.trl.main RECIPE [--method NAME] [--set KEY=VALUE] [--out DIR] [--resume]

Every process of a run is one of these.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]

from ...base.errors import TokenPOError
from ...core.objective import Objective
from ...models import load, save
from ...models.chat import chat_ids
from ...models.tokens import token_ids
from ...recipe.config import Config, load_config
from ...recipe.files import find_recipe
from ...recipe.plan import Plan
from ...runs.evaluation import evaluate
from ...runs.trackers import require_trackers
from ...tasks import make_task, refuse_tool
from . import TokenPOConfig, TokenPOTrainer
from .recipe import TaskRewards, accepted, model_path, peft_config, schedule, settings

# Prompts whose length tells how long prompts are.
_MEASURED = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all is well, 2 on a mistake of the user."""
    options = _parser().parse_args(arguments)
    try:
        recipe = find_recipe(options.recipe)
        config = load_config(recipe, method=options.method, overrides=options.set, out=options.out)
        run(config, resume=options.resume)
    except TokenPOError as error:
        print(f"tokenpo: {error}", file=sys.stderr)
        return 2
    return 0


def run(config: Config, *, resume: bool = False) -> TokenPOTrainer:
    """Trains; leaves the model in DIR/model, TRL's checkpoints in DIR/trl and the records in DIR/trl/tokenpo."""
    objective, directory = accepted(config), config.directory()
    require_trackers(config.output.track)
    # transformers hands its project to trackio alone.
    os.environ.setdefault("WANDB_PROJECT", config.output.project or "tokenpo")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with closing(make_task(config.task.name, config.task.options, config.problem_seed)) as task:
        refuse_tool(task, "TRL")
        rewards = TaskRewards(task)
        rows = rewards.rows(config.train.steps * config.rollout.prompts)
        trainer = _trainer(config, objective, directory, rewards, rows)
        records = trainer.bookkeeping
        records.described = config.model_dump(mode="json")
        if config.evaluate.problems:
            if not resume:
                records.before = _in_first_process(trainer, lambda: _evaluated(config, task, model_path(config)))
            records.at_end = lambda: _finished(trainer, config, task, directory)
        else:
            records.at_end = lambda: _saved(trainer, config, directory)
        trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def _trainer(
    config: Config, objective: Objective, directory: Path, rewards: TaskRewards, rows: list[dict[str, Any]]
) -> TokenPOTrainer:
    from accelerate import PartialState  # pyright: ignore[reportMissingImports]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path(config), padding_side="left")
    texts = [row["prompt"] for row in rows[:_MEASURED]]
    longest = max(len(_ids(tokenizer, text)) for text in texts)
    processes = PartialState(cpu=config.model.device == "cpu").num_processes
    cycle = schedule(config, objective, processes, longest)
    return TokenPOTrainer(
        model=model_path(config),
        reward_funcs=[rewards.reward, rewards.accuracy],
        args=TokenPOConfig(**settings(config, cycle, directory), reward_weights=[1.0, 0.0]),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config(config),
        method=objective,
    )


def _ids(tokenizer: Any, prompt: Any) -> Sequence[int]:
    if isinstance(prompt, str):
        return token_ids(tokenizer, prompt)
    return chat_ids(tokenizer, prompt)


def _finished(trainer: Any, config: Config, task: Any, directory: Path) -> dict[str, float]:
    _saved(trainer, config, directory)
    return _in_first_process(trainer, lambda: _evaluated(config, task, str(directory / "model")))


def _saved(trainer: Any, config: Config, directory: Path) -> dict[str, float]:
    """A whole model in DIR/model; a LoRA adapter also by itself, in DIR/adapter.

    Every process takes part, as each may hold only a shard of the weights.
    """
    if hasattr(trainer.accelerator.unwrap_model(trainer.model), "merge_and_unload"):
        trainer.save_model(str(directory / "adapter"))
        return _in_first_process(trainer, lambda: _merged(config, directory))
    trainer.save_model(str(directory / "model"))
    trainer.accelerator.wait_for_everyone()
    return {}


def _merged(config: Config, directory: Path) -> dict[str, float]:
    """Merges the adapter that was written: weights that are sharded over processes cannot be merged where they are."""
    from peft import PeftModel

    lm = load(model_path(config), dtype=config.model.dtype)
    merged = PeftModel.from_pretrained(lm.model, str(directory / "adapter")).merge_and_unload()
    save(dataclasses.replace(lm, model=merged), directory / "model")
    return {}


def _in_first_process(trainer: Any, work: Any) -> dict[str, float]:
    """Does the work in the first process while the others wait; its result, empty in the others."""
    metrics = {}
    if trainer.accelerator.is_main_process:
        with _whole_models():
            metrics = work()
    trainer.accelerator.wait_for_everyone()
    return metrics


@contextlib.contextmanager
def _whole_models() -> Iterator[None]:
    """Models loaded inside are whole: under DeepSpeed's ZeRO-3 all processes would have to load them."""
    from transformers.integrations import deepspeed

    reference = deepspeed._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def _evaluated(config: Config, task: Any, path: str) -> dict[str, float]:
    """Held-out accuracy of a model directory, as the embedded engine measures it."""
    at_path = config.model_copy(update={"model": config.model.model_copy(update={"path": path, "lora": None})})
    result = evaluate(at_path, Plan(at_path).load_model(), task)
    print(f"held-out: {result}", flush=True)
    return result.metrics()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenpo.engines.trl.main", description="Train a recipe with TRL.")
    parser.add_argument("recipe", metavar="RECIPE", help="path of a TOML file or config.json, or a name")
    parser.add_argument("--method", metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the run directory")
    return parser


if __name__ == "__main__":
    status = main()
    # A process that ends while the threads of gloo live can be aborted by them, after all work is done.
    if status == 0 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.exit(status)
