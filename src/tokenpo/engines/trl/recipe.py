"""Translates a recipe to TRL's settings; a setting that cannot be translated is refused with a remedy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.errors import Unsupported
from ...core.negotiation import negotiate
from ...recipe.config import Config
from ...recipe.objective import TAUGHT
from ...recipe.plan import Plan
from ...tasks import Problem, Score, Task
from .cycle import Cycle
from .objective import ALWAYS, ENGINE, REMEDIES

# A recipe has no setting for vLLM or a rollout_func: there the trainer's own model samples.
RECIPE_REMEDIES = REMEDIES | {
    "rollout_logprob": "take the ratio to the old policy, which is the one that samples in a recipe's run (for dppo: "
    "--set method.anchor=old), or leave out --engine trl",
    "rewards": "give TokenPOTrainer the functions as reward_funcs, or leave out --engine trl",
    **dict.fromkeys(TAUGHT, "say which model the teacher is: --set teacher.path=DIR"),
}


def schedule(plan: Plan, processes: int, longest_prompt: int) -> Cycle:
    """The cycle with the largest micro-batches that the recipe allows and that divide its minibatches evenly.

    Args:
        longest_prompt: tokens.

    Raises:
        Unsupported: the rows of a rollout batch cannot be divided evenly.
    """
    rollout, train = plan.config.rollout, plan.config.train
    rows = rollout.prompts * rollout.group_size
    if rows % (train.minibatches * processes):
        raise Unsupported(
            f"rollout.prompts x rollout.group_size = {rows} rows cannot be divided evenly over train.minibatches = "
            f"{train.minibatches} and {processes} processes, as TRL does: change one of them"
        )
    each = rows // (train.minibatches * processes)
    if train.minibatches > 1 and train.minibatch_by == "groups" and each % rollout.group_size:
        raise Unsupported(
            f"train.minibatch_by = 'groups': TRL leaves rows where they were drawn, and each of {processes} processes "
            f"takes {each} rows of a minibatch, no whole groups of rollout.group_size = {rollout.group_size}: --set "
            "train.minibatch_by=rows, or change rollout.prompts, train.minibatches or the processes"
        )
    most = max(1, min(train.micro_rows, train.micro_tokens // (rollout.max_new_tokens + longest_prompt)))
    micro = max(size for size in range(1, min(each, most) + 1) if each % size == 0)
    accumulate = each // micro
    passes = len(plan.objective.split())
    return Cycle(accumulate, accumulate * train.minibatches, train.epochs * passes, passes, micro)


def settings(config: Config, cycle: Cycle, directory: Path) -> dict[str, Any]:
    """Keywords of `TokenPOConfig`."""
    train, rollout, output = config.train, config.rollout, config.output
    saved = output.checkpoint_every > 0
    return {
        "output_dir": str(directory / "trl"),
        "seed": config.seed,
        "use_cpu": config.model.device == "cpu",
        "model_init_kwargs": {"dtype": config.model.dtype},
        "bf16": train.autocast and config.model.device != "cpu",
        "gradient_checkpointing": False,
        "num_generations": rollout.group_size,
        "max_completion_length": rollout.max_new_tokens,
        "per_device_train_batch_size": cycle.rows,
        "gradient_accumulation_steps": cycle.accumulate,
        "steps_per_generation": cycle.chunks,
        "minibatch_by": train.minibatch_by if train.minibatches > 1 else "rows",
        "num_iterations": cycle.iterations,
        "max_steps": train.steps * cycle.updates,
        "shuffle_dataset": False,
        "learning_rate": train.lr,
        "lr_scheduler_type": "constant_with_warmup" if train.warmup else "constant",
        "warmup_steps": train.warmup + 1 if train.warmup else 0,
        "adam_beta1": train.betas[0],
        "adam_beta2": train.betas[1],
        "adam_epsilon": train.eps,
        "max_grad_norm": train.grad_clip or 0.0,
        "save_strategy": "steps" if saved else "no",
        "save_steps": output.checkpoint_every * cycle.updates if saved else 500,
        "save_total_limit": output.keep,
        "report_to": list(output.track) or "none",
        "project": output.project or "tokenpo",
        "logging_steps": cycle.updates,
        # Settings of the same name.
        **rollout.model_dump(include={"temperature", "dynamic_sampling", "max_extra_batches"}),
        **train.model_dump(include={"ratio_tolerance", "kl_target", "kl_stop", "weight_decay"}),
        **output.model_dump(include={"trace_every", "trace_rollouts", "rollouts_every"}),
    }


def require(plan: Plan) -> None:
    """Raises Unsupported if TRL cannot honour a setting or provide a method's input; the message has the remedy."""
    config, device = plan.config, plan.config.model.device
    for refused, sentence in (
        (
            config.rollout.correction is not None,
            "rollout.correction: without vLLM the sampler is the trainer's own model; --set rollout.correction=none",
        ),
        (config.train.nonfinite == "skip", "train.nonfinite = 'skip': --set train.nonfinite=stop"),
        (config.evaluate.every > 0, "evaluate.every: it evaluates before and after; --set evaluate.every=0"),
        (
            device not in ("auto", "cpu", "cuda"),
            f"model.device = {device!r}: accelerate chooses the device of each process; --set model.device=auto",
        ),
        (
            config.teacher is not None and config.teacher.hint is not None,
            "teacher.hint: its teacher reads what the policy reads; --set teacher.hint=none with a teacher.path",
        ),
        (config.rollout.group_size < 2, "rollout.group_size = 1: TRL wants groups of two at least"),
    ):
        if refused:
            raise Unsupported(f"the TRL engine does not have {sentence}, or leave out --engine trl")
    # A recipe's run hands TRL the reward of its task as one function.
    taught = frozenset() if plan.teacher is None else TAUGHT
    negotiate(plan.objective, (ALWAYS - {"rewards"}) | taught, ENGINE, RECIPE_REMEDIES)


def peft_config(config: Config) -> Any:
    """LoRA as peft describes it; None without."""
    lora = config.model.lora
    if lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType] - peft scales by any number
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )


class TaskRewards:
    """A task as two reward functions of TRL's: its reward, which trains, and `accuracy`, which is only logged."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._problems: Sequence[Problem] = ()
        self._last: tuple[Any, Sequence[Score]] = (None, ())

    def rows(self, count: int) -> list[dict[str, Any]]:
        """A data set of the first `count` problems of the training split, in their order."""
        self._problems = [*self._task.problems("train", 0, count)]
        return [{"prompt": problem.prompt, "place": place} for place, problem in enumerate(self._problems)]

    def reward(self, **columns: Any) -> list[float]:
        return [score.reward for score in self._scores(**columns)]

    def accuracy(self, **columns: Any) -> list[float]:
        return [float(score.correct) for score in self._scores(**columns)]

    def _scores(
        self, completions: list[Any], completion_ids: list[Any], place: list[int], **columns: Any
    ) -> Sequence[Score]:
        """Scores of responses; kept, because TRL gives both functions the same responses one after the other."""
        if self._last[0] is not completion_ids:
            texts = [x if isinstance(x, str) else x[-1]["content"] for x in completions]
            scores = self._task.score([self._problems[i] for i in place], texts, completion_ids)
            self._last = completion_ids, scores
        return self._last[1]
