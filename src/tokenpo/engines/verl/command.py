"""The line of verl's main program that runs one of our recipes, and the problems it reads.

The section [verl] of a recipe holds settings of verl's own, handed on as they are written. A cluster run needs settings
that a recipe of ours has no place for: nodes, tensor parallelism, memory, a data set in verl's columns.

    [verl.actor_rollout_ref.rollout]
    tensor_model_parallel_size = 4            # actor_rollout_ref.rollout.tensor_model_parallel_size=4

    [verl."+reward".reward_kwargs]
    max_resp_len = 20480                      # +reward.reward_kwargs.max_resp_len=20480: Hydra's + adds a new key
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError, Unsupported
from ...base.files import expanded
from ...recipe.config import Config, Section
from ...recipe.objective import build_objective
from ...tasks import held_out, make_task
from .data import write_parquet
from .settings import ACTOR, PLACES, ROLLOUT

MODEL, OURS = "actor_rollout_ref.model", "+algorithm.tokenpo"
REWARD = "pkg://tokenpo.engines.verl.data"
LONGEST_PROMPT = 1024
# Plain prompts reach the model as they are, as they do in the embedded engine.
_PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
# Hydra's own spelling of a key; a leading + adds one that verl's configuration does not have, ++ adds or changes.
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.-]*")
_BARE = re.compile(r"(?!(true|false|null|nan|inf)$)[A-Za-z_/][\w./-]*", re.IGNORECASE)


def command(config: Config, extra: Iterable[str] = ()) -> list[str]:
    """`python -m verl.trainer.main_ppo` with the overrides of a recipe; `prepare` writes the files it names.

    Args:
        extra: overrides of your own, which come last: GPUs, the rollout server, the longest prompt.

    Raises:
        Unsupported: a setting that verl can't honour; the message names the remedy.
        TokenPOError: a key of [verl] that Hydra could not read, or that another section sets too.
    """
    _refuse(config)
    build_objective(config)  # options are checked here, not on a cluster
    sections = (_algorithm(config), _data(config), _model(config), _rollout(config), _actor(config), _trainer(config))
    ours = {key: value for section in sections for key, value in section.items()}
    settings = with_passthrough(_defaults(config), ours, config.verl)
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
    seed = config.problem_seed
    batches = 1 + rollout.max_extra_batches if rollout.dynamic_sampling else 1
    count = config.train.steps * rollout.prompts * batches
    write_parquet(train, task.name, task.options, seed, "train", count)
    with closing(make_task(task.name, task.options, seed)) as generator:
        count = held_out(generator, max(1, config.evaluate.problems))
    write_parquet(test, task.name, task.options, seed, "test", count)


def brings_data(section: Mapping[str, Any]) -> bool:
    """Whether [verl.data] names files in verl's columns: then verl reads and scores them, and our task is not asked.

    Raises:
        TokenPOError: the train file without the held-out one, or the reverse.
    """
    named = section.get("data", {})
    missing = [key for key in ("train_files", "val_files") if key not in named]
    if len(missing) == 1:
        raise TokenPOError(f"[verl.data] names data files, but no {missing[0]}: add it, or leave both to the task")
    return not missing


def with_passthrough(
    defaults: Mapping[str, Any], ours: Mapping[str, Any], section: Mapping[str, Any]
) -> dict[str, Any]:
    """verl's keys and values: defaults, the recipe's, and behind them those of its section [verl].

    Args:
        defaults: about which the recipe's other sections say nothing: [verl] takes their place.

    Raises:
        TokenPOError: a key that Hydra could not read, or one that the recipe sets in another section too.
    """
    theirs = dict(_flat(section, ""))
    for key in theirs:
        for written in ours:
            mine, other = (f"{name.lstrip('+')}." for name in (key, written))
            if mine.startswith(other) or other.startswith(mine):
                # Two values for one setting would be decided by their order, which nobody sees.
                raise TokenPOError(
                    f"[verl]: {key} comes from the recipe's other sections already "
                    f"({written}={literal(ours[written])}): take it out of [verl] and change it there"
                )
    return {**defaults, **ours, **theirs}


def literal(value: Any) -> str:
    """A value in Hydra's grammar.

    >>> literal([1e-06, True, "left", "a, b"]), literal(None), literal({})
    ('[1e-06,true,left,"a, b"]', 'null', '{}')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{literal(key)}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str) and not _BARE.fullmatch(value):
        # Between Hydra's quotes backslashes escape only where they lead up to a quote.
        return '"' + re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value) + '"'
    return str(value)


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        elif _KEY.fullmatch(key):
            yield key, _nulls(value)
        else:
            raise TokenPOError(
                f"[verl]: {key!r} is no key of verl's configuration: write its path, as in [verl.trainer] nnodes = 2; "
                'only a new key begins with +, as in [verl."+reward".reward_kwargs]'
            )


def _nulls(value: Any) -> Any:
    """TOML has no null: "none" stands for it, as everywhere in a recipe."""
    if isinstance(value, list):
        return [_nulls(item) for item in value]
    return None if value == "none" else value


def _files(config: Config) -> tuple[Path, Path]:
    folder = config.directory().absolute() / "data"
    return folder / "train.parquet", folder / "test.parquet"


def _refuse(config: Config) -> None:
    rollout, train, out = config.rollout, config.train, config.output
    model, chat = config.model, "verl's agent loop wants a chat model: give the path of one"
    gpus = "choose GPUs with trainer.n_gpus_per_node and CUDA_VISIBLE_DEVICES, and set model.device = 'auto'"
    divisor = f"choose a divisor of rollout.prompts = {rollout.prompts}"
    schedule = (
        "verl's schedule moves once a rollout batch: set it to 0, or train.epochs and train.minibatches to 1; "
        "[verl.actor_rollout_ref.actor.optim] lr_warmup_steps counts rollout batches"
    )
    export = "set it to 0; tokenpo.engines.verl.export writes a batch from a trainer of yours"
    refusals = (
        (model.path == "tiny", "model.path = 'tiny'", chat),
        (model.device != "auto", f"model.device = {model.device!r}", gpus),
        (model.dtype == "float64", "model.dtype = 'float64'", "set it to 'float32' or 'bfloat16'"),
        (config.threads is not None, f"threads = {config.threads}", "set it to 'none', and OMP_NUM_THREADS outside"),
        (rollout.prompts % train.minibatches != 0, f"train.minibatches = {train.minibatches}", divisor),
        (train.warmup > 0 and train.epochs * train.minibatches > 1, f"train.warmup = {train.warmup}", schedule),
        (out.rollouts_every > 0, f"output.rollouts_every = {out.rollouts_every}", export),
    )
    for bad, what, remedy in refusals:
        if bad:
            raise Unsupported(f"{what} means nothing to verl: {remedy}")


def _anywhere(method: str) -> str:
    """The name of a method, whose own file is found from every directory: workers have directories of their own."""
    file, _, function = method.rpartition(":")
    return f"{expanded(file).absolute()}:{function}" if file.endswith(".py") else method


def _defaults(config: Config) -> dict[str, Any]:
    """Settings about which a recipe says nothing outside its section [verl]."""
    greedy = config.evaluate.samples == 0
    return {
        "data.max_prompt_length": LONGEST_PROMPT,
        f"{ACTOR}.strategy": "fsdp2",
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.val_kwargs.temperature": 0 if greedy else config.rollout.temperature,
        "trainer.n_gpus_per_node": 1,
        "trainer.resume_mode": "disable",  # verl's own default takes up any checkpoint that it finds
    }


def _algorithm(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {
        "trainer.v1.trainer_mode": "tokenpo",
        "algorithm.adv_estimator": "grpo",
        f"{OURS}.method": _anywhere(config.method.name),
    }
    out |= {f"{OURS}.options.{key}": value for key, value in (config.method.model_extra or {}).items()}
    for name, (section, key) in PLACES.items():
        value = getattr(getattr(config, section), key)
        if isinstance(value, Section):
            # An empty section says something too: its defaults.
            some = bool(value.model_fields_set)
            asked = value.model_dump(exclude_unset=some, exclude_none=not some).items()
            out |= {f"{OURS}.{name}.{key}": "none" if x is None else x for key, x in asked}
        elif value is not None:
            out[f"{OURS}.{name}"] = value
    out[f"{OURS}.report"] = str(config.directory().absolute())
    if config.rollout.dynamic_sampling:
        out |= {
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward",
            "algorithm.filter_groups.max_num_gen_batches": 1 + config.rollout.max_extra_batches,
        }
    return out


def _data(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {
        "data.seed": config.seed,
        "data.train_batch_size": config.rollout.prompts,
        "data.max_response_length": config.rollout.max_new_tokens,
    }
    if brings_data(config.verl):
        return out  # verl shuffles the rows, and scores them by their data_source
    train, test = _files(config)
    ours = {"data.train_files": str(train), "data.val_files": str(test), "data.shuffle": False}
    return ours | out | {"reward.custom_reward_function.path": REWARD}


def _model(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {f"{MODEL}.path": config.model.path}
    lora = config.model.lora
    if lora is not None:
        out |= {
            f"{MODEL}.lora_rank": lora.rank,
            f"{MODEL}.lora_alpha": lora.alpha,
            f"{MODEL}.target_modules": lora.targets,
            f"{ROLLOUT}.load_format": "safetensors",
        }
    if brings_data(config.verl):
        return out  # its prompts are messages
    with closing(make_task(config.task.name, config.task.options, config.seed)) as task:
        plain = isinstance(task.problems("train", 0, 1)[0].prompt, str)
    return out | ({f"{MODEL}.custom_chat_template": _PLAIN} if plain else {})


def _rollout(config: Config) -> dict[str, Any]:
    rollout, samples = config.rollout, config.evaluate.samples
    return {
        f"{ROLLOUT}.n": rollout.group_size,
        f"{ROLLOUT}.temperature": rollout.temperature,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.val_kwargs.n": samples or 1,
        f"{ROLLOUT}.val_kwargs.do_sample": samples > 0,
    }


def _actor(config: Config) -> dict[str, Any]:
    train, half = config.train, config.model.dtype == "bfloat16"
    longest = config.verl.get("data", {}).get("max_prompt_length", LONGEST_PROMPT) + config.rollout.max_new_tokens
    out: dict[str, Any] = {
        f"{ACTOR}.ppo_epochs": train.epochs,
        f"{ACTOR}.ppo_mini_batch_size": config.rollout.prompts // train.minibatches,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(train.micro_tokens, longest),
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.optim.lr": train.lr,
        f"{ACTOR}.optim.weight_decay": train.weight_decay,
        f"{ACTOR}.optim.betas": list(train.betas),
        # verl always clips; so large a norm is never met.
        f"{ACTOR}.optim.clip_grad": 1e9 if train.grad_clip is None else train.grad_clip,
        f"+{ACTOR}.optim.override_optimizer_config.eps": train.eps,
        f"{ACTOR}.fsdp_config.model_dtype": "bf16" if half else "fp32",
    }
    if train.warmup:
        out[f"{ACTOR}.optim.lr_warmup_steps"] = train.warmup
    if not (train.autocast or half):
        # The reference too, whose log-probs are compared with the actor's.
        for place in (ACTOR, "actor_rollout_ref.ref"):
            for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
                out[f"+{place}.fsdp_config.mixed_precision.{name}"] = "fp32"
    return out


def _trainer(config: Config) -> dict[str, Any]:
    output, steps, evaluated = config.output, config.train.steps, config.evaluate.problems > 0
    return {
        "trainer.project_name": output.project or "tokenpo",
        "trainer.experiment_name": config.name,
        # The files that we write hold one pass; for others the number of steps is the only end.
        "trainer.total_epochs": steps if brings_data(config.verl) else 1,
        "trainer.total_training_steps": steps,
        "trainer.default_local_dir": str(config.directory().absolute() / "checkpoints"),
        "trainer.save_freq": output.checkpoint_every or steps,
        "trainer.max_actor_ckpt_to_keep": output.keep,
        "trainer.val_before_train": evaluated,
        "trainer.test_freq": (config.evaluate.every or steps) if evaluated else -1,
        "trainer.logger": ["console", *output.track],
    }
