"""The command of verl's main program for one of our recipes, and the data files that it reads.

The section [verl] of a recipe holds verl's own settings that no other section has: nodes, tensor parallelism, memory, a
data set in verl's columns.

    [verl.actor_rollout_ref.rollout]
    tensor_model_parallel_size = 4            # actor_rollout_ref.rollout.tensor_model_parallel_size=4

    [verl."+reward".reward_kwargs]
    max_resp_len = 20480                      # +reward.reward_kwargs.max_resp_len=20480: Hydra's + adds a new key
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError, Unsupported
from ...base.files import expanded, refuse_links
from ...recipe.config import Config, Section, Teacher
from ...recipe.plan import Plan
from ...tasks import Split, held_out, make_task
from . import require_inputs
from .data import write_parquet
from .settings import ACTOR, PLACES, ROLLOUT

MODEL, OURS = "actor_rollout_ref.model", "+algorithm.tokenpo"
REWARD = "pkg://tokenpo.engines.verl.data"
TEACHER = "distillation.teacher_models.teacher_model"
LONGEST_PROMPT = 1024
# Plain prompts reach the model unchanged, as in the embedded engine.
_PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
# A key in Hydra's grammar; a leading + adds a key that verl's configuration lacks, ++ adds or changes one.
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.-]*")
_BARE = re.compile(r"(?!(true|false|null|nan|inf)$)[A-Za-z_/][\w./-]*", re.IGNORECASE)


def command(plan: Plan) -> list[str]:
    """`python -m verl.trainer.main_ppo` with the overrides of a recipe; `prepare` writes the files it names.

    Raises:
        Unsupported: verl can't honour a setting or provide an input of the method.
        TokenPOError: Hydra cannot read a key of [verl], or another section sets it too.
    """
    config = plan.config
    needs = plan.objective.needs
    _refuse(config, taught="teacher_logprob" in needs)
    require_inputs(plan.objective)  # fail here, before a cluster starts
    ours = {**_algorithm(config), **_data_and_model(config), **_sampling_and_updates(config), **_trainer(config)}
    more = {"critic.model.path": config.model.path} if "value" in needs else {}
    if config.teacher is not None and "teacher_logprob" in needs:
        ours |= {f"{TEACHER}.model_path": config.teacher.path}
        more |= {"distillation.nnodes": 1, "distillation.n_gpus_per_node": 1}
        more |= {f"{TEACHER}.inference.tensor_model_parallel_size": 1}
    settings = with_passthrough(_defaults(config) | more, ours, config.verl)
    words = [
        f"{key}={_no_reference(literal(value)) if key in ours else literal(value)}" for key, value in settings.items()
    ]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *words]


def resumes(config: Config) -> bool:
    """Whether verl resumes the run in the run directory: [verl.trainer] resume_mode = "auto"."""
    return dict(_flat(config.verl)).get("trainer.resume_mode") == "auto"


def prepare(config: Config) -> None:
    """Writes the files that `command` names, training and held-out problems; none if [verl.data] names files."""
    refuse_links(config.directory())
    if brings_data(config.verl):
        return
    task, rollout, seed = config.task, config.rollout, config.problem_seed
    batches = 1 + rollout.max_extra_batches if rollout.dynamic_sampling else 1
    counts: dict[Split, int] = {"train": config.train.steps * rollout.prompts * batches}
    with closing(make_task(task.name, task.options, seed)) as generator:
        counts["test"] = held_out(generator, max(1, config.evaluate.problems))
    for split, count in counts.items():
        write_parquet(_file(config, split), task.name, task.options, seed, split, count)


def _file(config: Config, split: str) -> Path:
    return config.directory().absolute() / "data" / f"{split}.parquet"


def brings_data(section: Mapping[str, Any]) -> bool:
    """Whether [verl.data] names both data files, in verl's columns, which verl scores without our task."""
    named = dict(_flat(section))
    missing = [key for key in ("train_files", "val_files") if f"data.{key}" not in named]
    if len(missing) == 1:
        raise TokenPOError(f"[verl.data] names data files, but no {missing[0]}: add it, or leave both to the task")
    return not missing


def with_passthrough(
    defaults: Mapping[str, Any], ours: Mapping[str, Any], section: Mapping[str, Any]
) -> dict[str, Any]:
    """verl's keys and values: `defaults` (which [verl] may replace), `ours` (which it may not) and [verl]'s own."""
    theirs = dict(_flat(section))
    for key in theirs:
        for written in ours:
            mine, other = (f"{name.lstrip('+')}." for name in (key, written))
            if mine.startswith(other) or other.startswith(mine):
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
        # Inside Hydra's quotes a backslash escapes only directly before a quote.
        return '"' + re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value) + '"'
    return str(value)


def _no_reference(text: str) -> str:
    """Escapes ${, which OmegaConf would read as a reference; only values of [verl] may hold references."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a section with their whole paths, however nested they are written, and their values."""

    def null(value: Any) -> Any:  # TOML has no null: a recipe writes "none"
        return [null(item) for item in value] if isinstance(value, list) else None if value == "none" else value

    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        elif _KEY.fullmatch(key):
            yield key, null(value)
        else:
            raise TokenPOError(
                f"[verl]: {key!r} is no key of verl's configuration: write its path, as in [verl.trainer] nnodes = 2; "
                'only a new key begins with +, as in [verl."+reward".reward_kwargs]'
            )


def _refuse(config: Config, *, taught: bool) -> None:
    rollout, train, out, teacher = config.rollout, config.train, config.output, config.teacher or Teacher()
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
        (train.kl_hold() is not None, "train.kl_target or kl_stop", "set both to 'none': its optimiser is verl's"),
        (teacher.hint is not None, "teacher.hint", "set it to 'none': its teacher reads what the policy reads"),
        (taught and teacher.path is None, "a method that reads a teacher without teacher.path", "name a model there"),
        (config.critic is not None, "the section critic", "write [verl.critic]: verl trains a model of its own"),
        (out.rollouts_every > 0, f"output.rollouts_every = {out.rollouts_every}", export),
    )
    for bad, what, remedy in refusals:
        if bad:
            raise Unsupported(f"{what} means nothing to verl: {remedy}")


def _defaults(config: Config) -> dict[str, Any]:
    """Settings that only the section [verl] can change."""
    greedy = config.evaluate.samples == 0
    return {
        "data.max_prompt_length": LONGEST_PROMPT,
        f"{ACTOR}.strategy": "fsdp2",
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.val_kwargs.temperature": 0 if greedy else config.rollout.temperature,
        "trainer.n_gpus_per_node": 1,
        "trainer.resume_mode": "disable",  # verl's own default resumes from any checkpoint that it finds
    }


def _algorithm(config: Config) -> dict[str, Any]:
    method = config.method.name
    file, _, function = method.rpartition(":")
    if file.endswith(".py"):  # absolute, because workers have other working directories
        method = f"{expanded(file).absolute()}:{function}"
    out: dict[str, Any] = {
        "trainer.v1.trainer_mode": "tokenpo",
        "algorithm.adv_estimator": "grpo",
        f"{OURS}.method": method,
    }
    out |= {f"{OURS}.options.{key}": value for key, value in (config.method.model_extra or {}).items()}
    for name, (section, key) in PLACES.items():
        value = getattr(getattr(config, section), key, None)  # a recipe may have no teacher
        if isinstance(value, Section):
            some = bool(value.model_fields_set)  # an empty section means its defaults
            dumped = value.model_dump(exclude_unset=some, exclude_none=not some).items()
            out |= {f"{OURS}.{name}.{key}": "none" if x is None else x for key, x in dumped}
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


def _data_and_model(config: Config) -> dict[str, Any]:
    out: dict[str, Any] = {
        "data.seed": config.seed,
        "data.train_batch_size": config.rollout.prompts,
        "data.max_response_length": config.rollout.max_new_tokens,
        f"{MODEL}.path": config.model.path,
    }
    if lora := config.model.lora:
        out |= {
            f"{MODEL}.lora_rank": lora.rank,
            f"{MODEL}.lora_alpha": lora.alpha,
            f"{MODEL}.target_modules": lora.targets,
            f"{ROLLOUT}.load_format": "safetensors",
        }
    if brings_data(config.verl):
        return out  # verl shuffles the rows and scores them by their data_source; its prompts are messages
    train, test = str(_file(config, "train")), str(_file(config, "test"))
    out |= {"data.train_files": train, "data.val_files": test, "data.shuffle": False}
    out["reward.custom_reward_function.path"] = REWARD
    with closing(make_task(config.task.name, config.task.options, config.seed)) as task:
        if isinstance(task.problems("train", 0, 1)[0].prompt, str):
            out[f"{MODEL}.custom_chat_template"] = _PLAIN
    return out


def _sampling_and_updates(config: Config) -> dict[str, Any]:
    rollout, train, samples = config.rollout, config.train, config.evaluate.samples
    half = config.model.dtype == "bfloat16"
    longest = dict(_flat(config.verl)).get("data.max_prompt_length", LONGEST_PROMPT) + rollout.max_new_tokens
    out: dict[str, Any] = {
        f"{ROLLOUT}.n": rollout.group_size,
        f"{ROLLOUT}.temperature": rollout.temperature,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.val_kwargs.n": samples or 1,
        f"{ROLLOUT}.val_kwargs.do_sample": samples > 0,
        f"{ACTOR}.ppo_epochs": train.epochs,
        f"{ACTOR}.ppo_mini_batch_size": rollout.prompts // train.minibatches,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(train.micro_tokens, longest),
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.optim.lr": train.lr,
        f"{ACTOR}.optim.weight_decay": train.weight_decay,
        f"{ACTOR}.optim.betas": list(train.betas),
        # verl always clips; no norm is this large.
        f"{ACTOR}.optim.clip_grad": 1e9 if train.grad_clip is None else train.grad_clip,
        f"+{ACTOR}.optim.override_optimizer_config.eps": train.eps,
        f"{ACTOR}.fsdp_config.model_dtype": "bf16" if half else "fp32",
    }
    if train.warmup:
        out[f"{ACTOR}.optim.lr_warmup_steps"] = train.warmup
    if not (train.autocast or half):  # the reference too: its log-probs are compared with the actor's
        out |= {
            f"+{place}.fsdp_config.mixed_precision.{kind}_dtype": "fp32"
            for place in (ACTOR, "actor_rollout_ref.ref")
            for kind in ("param", "reduce", "buffer")
        }
    return out


def _trainer(config: Config) -> dict[str, Any]:
    output, steps, evaluated = config.output, config.train.steps, config.evaluate.problems > 0
    return {
        "trainer.project_name": output.project or "tokenpo",
        "trainer.experiment_name": config.name,
        # Our files hold exactly one pass; with other files total_training_steps ends the run.
        "trainer.total_epochs": steps if brings_data(config.verl) else 1,
        "trainer.total_training_steps": steps,
        "trainer.default_local_dir": str(config.directory().absolute() / "checkpoints"),
        "trainer.save_freq": output.checkpoint_every or steps,
        "trainer.max_actor_ckpt_to_keep": output.keep,
        "trainer.val_before_train": evaluated,
        "trainer.test_freq": (config.evaluate.every or steps) if evaluated else -1,
        "trainer.logger": ["console", *output.track],
    }
