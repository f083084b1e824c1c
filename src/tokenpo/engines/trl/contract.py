"""The private surface of TRL that this adapter rests on; where it has moved, one sentence says what and the remedy."""

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...base.errors import Unsupported

RANGE = "trl>=1.16,<2"

# Methods that are overridden take exactly these parameters.
OVERRIDDEN = {
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_generate_and_score_completions": ("self", "inputs"),
    "_compute_loss": ("self", "model", "inputs"),
    "_tokenize_prompts": ("self", "prompts"),
}
# One that is called takes at least these, by keyword.
CALLED = "_get_per_token_logps_and_entropies"
GIVEN = ("model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy")
# With these TRL makes its reference, and this adapter a teacher.
FUNCTIONS = ("add_fused_lm_head", "create_model_from_path")
# Attributes of a trainer that was built.
READ = (
    "_step", "_buffered_inputs", "_metrics", "_logs", "_tokenizer", "reward_weights", "reward_func_names",
    "num_generations", "num_generations_eval", "max_completion_length", "temperature", "eos_token_ids", "accelerator",
    "aux_loss_enabled", "mask_truncated_completions",
)  # fmt: skip


def check_import() -> None:
    """Raises Unsupported where TRL is missing, broken, or another version than this adapter was written for."""
    try:
        from trl import GRPOTrainer  # pyright: ignore
        from trl.trainer import utils  # pyright: ignore
    except ImportError as error:
        raise Unsupported(
            f"tokenpo.engines.trl needs {RANGE}, and it cannot be imported ({error}): pip install 'tokenpo[trl]'"
        ) from error
    if missing := [name for name in FUNCTIONS if not hasattr(utils, name)]:
        raise moved(f"trl.trainer.utils has no {', '.join(missing)}")
    check_class(GRPOTrainer)


def check_class(trainer: Any) -> None:
    """Raises Unsupported where a method of TRL's trainer is missing or takes other parameters."""
    for name in (*OVERRIDDEN, CALLED):
        method = getattr(trainer, name, None)
        if method is None:
            raise moved(f"GRPOTrainer has no {name}")
        parameters = tuple(inspect.signature(method).parameters)
        if (expected := OVERRIDDEN.get(name, parameters)) != parameters:
            raise moved(f"GRPOTrainer.{name} takes ({', '.join(parameters)}), expected ({', '.join(expected)})")
        if missing := [x for x in GIVEN if name == CALLED and x not in parameters]:
            raise moved(f"GRPOTrainer.{name} takes no {', '.join(missing)}")


def check_instance(trainer: Any) -> None:
    """Raises Unsupported where a trainer that was built lacks an attribute."""
    if missing := [name for name in READ if not hasattr(trainer, name)]:
        raise moved(f"GRPOTrainer has no {', '.join(missing)}")


def launched_alone(processes: int) -> bool:
    """Whether accelerate's launcher was asked for several processes and started one, as it does without a GPU.

    It then sets a port to meet at, where no other process comes.
    """
    launched = "ACCELERATE_USE_CPU" in os.environ and "MASTER_PORT" in os.environ
    return launched and processes == 1 and "WORLD_SIZE" not in os.environ


def moved(what: str) -> Unsupported:
    """The error for a part of TRL that is not as expected: its version, the difference, the remedy."""
    try:
        installed = version("trl")
    except PackageNotFoundError:
        installed = "of unknown version"
    return Unsupported(
        f"trl {installed} is not the one that tokenpo.engines.trl was written for: {what}; install trl 1.16, or a "
        "tokenpo that knows yours"
    )


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of an object and restores it at the end; one that came from the class is deleted again."""
    own = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
