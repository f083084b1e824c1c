"""Trains one recipe with TRL; `tokenpo train --engine trl` and `tokenpo launch` start it in each process.

accelerate launch -m tokenpo.engines.trl.main RECIPE [--method NAME] [--set KEY=VALUE] [--out DIR] [--resume]
"""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]

from ...base.errors import TokenPOError
from ...models import load, save
from ...models.vocabulary import chat_ids, token_ids
from ...recipe.config import Config, load_config
from ...recipe.files import find_recipe
from ...recipe.objective import TAUGHT
from ...recipe.plan import Plan
from ...runs.evaluation import evaluate
from ...runs.trackers import require_trackers
from ...tasks import make_task, refuse_tool
from . import TokenPOConfig, TokenPOTrainer
from .recipe import TaskRewards, peft_config, require, schedule, settings

# Number of prompts that are tokenized to find the longest.
_MEASURED = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 on success, 2 on a user's error."""
    parser = argparse.ArgumentParser(prog="tokenpo.engines.trl.main", description="Train a recipe with TRL.")
    parser.add_argument("recipe", metavar="RECIPE", help="path of a TOML file or config.json, or a name")
    parser.add_argument("--method", metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the run directory")
    options = parser.parse_args(arguments)
    try:
        given = {"method": options.method, "overrides": options.set, "out": options.out}
        run(load_config(find_recipe(options.recipe), **given), resume=options.resume)
    except TokenPOError as error:
        print(f"tokenpo: {error}", file=sys.stderr)
        return 2
    return 0


def run(config: Config, *, resume: bool = False) -> TokenPOTrainer:
    """Trains; leaves the model in DIR/model, TRL's checkpoints in DIR/trl and the records in DIR/trl/tokenpo."""
    plan, directory = Plan(config), config.directory()
    require(plan)
    require_trackers(config.output.track)
    # transformers hands its project to trackio alone.
    os.environ.setdefault("WANDB_PROJECT", config.output.project or "tokenpo")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with closing(make_task(config.task.name, config.task.options, config.problem_seed)) as task:
        refuse_tool(task, "TRL")
        trainer = _trainer(plan, directory, TaskRewards(task))
        records = trainer.bookkeeping
        records.described = config.model_dump(mode="json")
        if config.evaluate.problems and not resume:
            records.before = _in_first_process(trainer, lambda: _evaluated(config, task, str(plan.model)))

        def finish() -> dict[str, float]:
            _save(trainer, plan, directory)
            if not config.evaluate.problems:
                return {}
            return _in_first_process(trainer, lambda: _evaluated(config, task, str(directory / "model")))

        records.at_end = finish
        trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def _trainer(plan: Plan, directory: Path, rewards: TaskRewards) -> TokenPOTrainer:
    from accelerate import PartialState  # pyright: ignore[reportMissingImports]
    from transformers import AutoTokenizer

    config, model = plan.config, str(plan.model)
    rows = rewards.rows(config.train.steps * config.rollout.prompts)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    prompts = [row["prompt"] for row in rows[:_MEASURED]]
    longest = max(len(token_ids(tokenizer, x) if isinstance(x, str) else chat_ids(tokenizer, x)) for x in prompts)
    processes = PartialState(cpu=config.model.device == "cpu").num_processes
    cycle = schedule(plan, processes, longest)
    return TokenPOTrainer(
        model=model,
        reward_funcs=[rewards.reward, rewards.accuracy],
        args=TokenPOConfig(**settings(config, cycle, directory), reward_weights=[1.0, 0.0]),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config(config),
        method=plan.objective,
        teacher_model=str(plan.teacher) if plan.objective.needs & TAUGHT else None,
    )


def _save(trainer: Any, plan: Plan, directory: Path) -> None:
    """A whole model in DIR/model; a LoRA adapter also in DIR/adapter. Every process takes part: it may hold a shard."""
    if not hasattr(trainer.accelerator.unwrap_model(trainer.model), "merge_and_unload"):
        trainer.save_model(str(directory / "model"))
        trainer.accelerator.wait_for_everyone()
        return
    trainer.save_model(str(directory / "adapter"))

    def merge() -> dict[str, float]:
        from peft import PeftModel

        # From the files, because weights sharded over processes cannot be merged in place.
        lm = load(plan.model, dtype=plan.config.model.dtype)
        merged = PeftModel.from_pretrained(lm.model, str(directory / "adapter")).merge_and_unload()
        save(dataclasses.replace(lm, model=merged), directory / "model")
        return {}

    _in_first_process(trainer, merge)


def _in_first_process(trainer: Any, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Runs `work` in the first process while the others wait; its result there, {} in the others."""
    metrics = {}
    if trainer.accelerator.is_main_process:
        with _whole_models():
            metrics = work()
    trainer.accelerator.wait_for_everyone()
    return metrics


@contextlib.contextmanager
def _whole_models() -> Iterator[None]:
    """Switches DeepSpeed's ZeRO-3 off for loading, so that one process alone can load a whole model."""
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


if __name__ == "__main__":
    status = main()
    # Threads of gloo that live at exit can abort the process after all work is done.
    if status == 0 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.exit(status)
