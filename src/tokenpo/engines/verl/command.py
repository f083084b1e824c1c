"""The line of verl's main program that runs one of our recipes, and the problems it reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from ...base.errors import Unsupported
from ...base.files import expanded
from ...recipe.config import Config
from ...recipe.objective import build_objective
from ...tasks import held_out, make_task
from .data import write_parquet
from .passthrough import brings_data, literal, with_passthrough

REWARD = "pkg://tokenpo.engines.verl.data"
LONGEST_PROMPT = 1024
# Plain prompts reach the model as they are, as they do in the embedded engine.
_PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
# Settings that a recipe says nothing about outside its section [verl]; what that section says takes their place.
_DEFAULTS = frozenset({
    "data.max_prompt_length", "actor_rollout_ref.actor.strategy", "actor_rollout_ref.rollout.name",
    "actor_rollout_ref.rollout.tensor_model_parallel_size", "actor_rollout_ref.rollout.val_kwargs.temperature",
    "trainer.n_gpus_per_node", "trainer.resume_mode",
})  # fmt: skip


def command(config: Config, extra: Iterable[str] = ()) -> list[str]:
    """`python -m verl.trainer.main_ppo` with the overrides of a recipe; `prepare` writes the files it names.

    Args:
        extra: overrides of your own, which come last: GPUs, the rollout server, the longest prompt.

    Raises:
        Unsupported: a setting that verl can't honour; the message names the remedy.
    """
    _refuse(config)
    build_objective(config)  # options are checked here, not on a cluster
    sections = (_algorithm(config), _data(config), _model(config), _rollout(config), _actor(config), _trainer(config))
    settings = {key: value for section in sections for key, value in section.items()}
    settings = with_passthrough(settings, config.verl, _DEFAULTS)
    words = [f"{key}={literal(value)}" for key, value in settings.items()]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *words, *extra]


def resumes(config: Config) -> bool:
    """Whether the recipe asks verl to go on with what the run directory holds: [verl.trainer] resume_mode = "auto"."""
    return config.verl.get("trainer", {}).get("resume_mode") == "auto"


def prepare(config: Config) -> None:
    """Writes the problems that `command` names: those of the run's steps, and the held-out ones.

    Nothing where the recipe's [verl.data] names files of its own.
    """
    if brings_data(config.verl):
        return
    train, test = _files(config)
    task, rollout = config.task, config.rollout
    seed = config.seed if task.seed is None else task.seed
    batches = 1 + rollout.max_extra_batches if rollout.dynamic_sampling else 1
    count = config.train.steps * rollout.prompts * batches
    write_parquet(train, task.name, task.options, seed, "train", count)
    with closing(make_task(task.name, task.options, seed)) as generator:
        count = held_out(generator, max(1, config.evaluate.problems))
    write_parquet(test, task.name, task.options, seed, "test", count)


def _files(config: Config) -> tuple[Path, Path]:
    folder = config.directory().absolute() / "data"
    return folder / "train.parquet", folder / "test.parquet"


def _refuse(config: Config) -> None:
    rollout, train = config.rollout, config.train
    updates = train.epochs * train.minibatches
    model, chat = config.model, "verl's agent loop wants a chat model: give the path of one"
    gpus = "choose GPUs with trainer.n_gpus_per_node and CUDA_VISIBLE_DEVICES, and set model.device = 'auto'"
    divisor = f"choose a divisor of rollout.prompts = {rollout.prompts}"
    schedule = (
        "verl's schedule moves once a rollout batch: set it to 0, or train.epochs and train.minibatches to 1; "
        "[verl.actor_rollout_ref.actor.optim] lr_warmup_steps counts rollout batches"
    )
    refusals = (
        (model.path == "tiny", "model.path = 'tiny'", chat),
        (model.device != "auto", f"model.device = {model.device!r}", gpus),
        (model.dtype == "float64", "model.dtype = 'float64'", "set it to 'float32' or 'bfloat16'"),
        (config.threads is not None, f"threads = {config.threads}", "set it to 'none', and OMP_NUM_THREADS outside"),
        (rollout.prompts % train.minibatches != 0, f"train.minibatches = {train.minibatches}", divisor),
        (train.warmup > 0 and updates > 1, f"train.warmup = {train.warmup}", schedule),
        (
            config.output.rollouts_every > 0,
            f"output.rollouts_every = {config.output.rollouts_every}",
            "set it to 0; tokenpo.engines.verl.export writes a batch from a trainer of yours",
        ),
    )
    for bad, what, remedy in refusals:
        if bad:
            raise Unsupported(f"{what} means nothing to verl: {remedy}")


def _anywhere(method: str) -> str:
    """The name of a method, whose own file is found from every directory: workers have directories of their own."""
    file, _, function = method.rpartition(":")
    return f"{expanded(file).absolute()}:{function}" if file.endswith(".py") else method


def _algorithm(config: Config) -> dict[str, Any]:
    rollout, place = config.rollout, "+algorithm.tokenpo"
    out: dict[str, Any] = {
        "trainer.v1.trainer_mode": "tokenpo",
        "algorithm.adv_estimator": "grpo",
        f"{place}.method": _anywhere(config.method.name),
    }
    out |= {f"{place}.options.{key}": value for key, value in (config.method.model_extra or {}).items()}
    sections = {
        "soft_overlong": rollout.soft_overlong, "group_overlong": rollout.group_overlong,
        "correction": rollout.correction, "reference_kl": config.train.reference_kl,
    }  # fmt: skip
    for name, section in sections.items():
        if section is not None:
            # An empty section says something too: its defaults.
            some = bool(section.model_fields_set)
            asked = section.model_dump(exclude_unset=some, exclude_none=not some).items()
            out |= {f"{place}.{name}.{key}": "none" if value is None else value for key, value in asked}
    out |= {
        f"{place}.nonfinite": config.train.nonfinite,
        f"{place}.report": str(config.directory().absolute()),
        f"{place}.trace_rollouts": config.output.trace_rollouts,
        f"{place}.trace_every": config.output.trace_every,
    }
    if config.train.ratio_tolerance is not None:
        out[f"{place}.ratio_tolerance"] = config.train.ratio_tolerance
    if rollout.dynamic_sampling:
        out |= {
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward",
            "algorithm.filter_groups.max_num_gen_batches": 1 + rollout.max_extra_batches,
        }
    return out


def _data(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {
        "data.seed": config.seed,
        "data.train_batch_size": config.rollout.prompts,
        "data.max_prompt_length": LONGEST_PROMPT,
        "data.max_response_length": config.rollout.max_new_tokens,
    }
    if brings_data(config.verl):
        return out  # verl shuffles the rows, and scores them by their data_source
    train, test = _files(config)
    ours = {"data.train_files": str(train), "data.val_files": str(test), "data.shuffle": False}
    return ours | out | {"reward.custom_reward_function.path": REWARD}


def _model(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {"actor_rollout_ref.model.path": config.model.path}
    lora = config.model.lora
    if lora is not None:
        out |= {
            "actor_rollout_ref.model.lora_rank": lora.rank,
            "actor_rollout_ref.model.lora_alpha": lora.alpha,
            "actor_rollout_ref.model.target_modules": lora.targets,
            "actor_rollout_ref.rollout.load_format": "safetensors",
        }
    if brings_data(config.verl):
        return out  # its prompts are messages
    with closing(make_task(config.task.name, config.task.options, config.seed)) as task:
        plain = isinstance(task.problems("train", 0, 1)[0].prompt, str)
    if plain:
        out["actor_rollout_ref.model.custom_chat_template"] = _PLAIN
    return out


def _rollout(config: Config) -> dict[str, Any]:
    rollout, evaluate = config.rollout, config.evaluate
    greedy = evaluate.samples == 0
    return {
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.n": rollout.group_size,
        "actor_rollout_ref.rollout.temperature": rollout.temperature,
        "actor_rollout_ref.rollout.seed": config.seed,
        "actor_rollout_ref.rollout.val_kwargs.n": 1 if greedy else evaluate.samples,
        "actor_rollout_ref.rollout.val_kwargs.do_sample": not greedy,
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0 if greedy else rollout.temperature,
    }


def _actor(config: Config) -> dict[str, Any]:
    train, half, place = config.train, config.model.dtype == "bfloat16", "actor_rollout_ref.actor"
    longest = config.verl.get("data", {}).get("max_prompt_length", LONGEST_PROMPT) + config.rollout.max_new_tokens
    out: dict[str, Any] = {
        f"{place}.strategy": "fsdp2",
        f"{place}.ppo_epochs": train.epochs,
        f"{place}.ppo_mini_batch_size": config.rollout.prompts // train.minibatches,
        f"{place}.use_dynamic_bsz": True,
        f"{place}.ppo_max_token_len_per_gpu": max(train.micro_tokens, longest),
        f"{place}.data_loader_seed": config.seed,
        f"{place}.optim.lr": train.lr,
        f"{place}.optim.weight_decay": train.weight_decay,
        f"{place}.optim.betas": list(train.betas),
        # verl always clips; so large a norm is never met.
        f"{place}.optim.clip_grad": 1e9 if train.grad_clip is None else train.grad_clip,
        f"+{place}.optim.override_optimizer_config.eps": train.eps,
        f"{place}.fsdp_config.model_dtype": "bf16" if half else "fp32",
    }
    if train.warmup:
        out[f"{place}.optim.lr_warmup_steps"] = train.warmup
    if not (train.autocast or half):
        # The reference too, whose log-probs are compared with the actor's.
        for place in ("actor_rollout_ref.actor", "actor_rollout_ref.ref"):
            for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
                out[f"+{place}.fsdp_config.mixed_precision.{name}"] = "fp32"
    return out


def _trainer(config: Config) -> dict[str, Any]:
    output, steps, evaluated = config.output, config.train.steps, config.evaluate.problems > 0
    return {
        "trainer.n_gpus_per_node": 1,
        "trainer.project_name": output.project or "tokenpo",
        "trainer.experiment_name": config.name,
        # The files that we write hold one pass; for others the number of steps is the only end.
        "trainer.total_epochs": steps if brings_data(config.verl) else 1,
        "trainer.total_training_steps": steps,
        "trainer.resume_mode": "disable",  # verl's own default takes up any checkpoint that it finds
        "trainer.default_local_dir": str(config.directory().absolute() / "checkpoints"),
        "trainer.save_freq": output.checkpoint_every or steps,
        "trainer.max_actor_ckpt_to_keep": output.keep,
        "trainer.val_before_train": evaluated,
        "trainer.test_freq": (config.evaluate.every or steps) if evaluated else -1,
        "trainer.logger": ["console", *output.track],
    }
