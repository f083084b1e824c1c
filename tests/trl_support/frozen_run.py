"""Trains with TRL on frozen rollouts and writes weights, gradients, losses and rows of every optimiser step.

    frozen_run.py MODEL_DIR CASES.json OUT

Every case makes OUT/NAME/rankR.json and, on the first rank, OUT/NAME/stepK.safetensors.
"""

import json
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from safetensors.torch import save_file
from transformers import TrainerCallback

from tokenpo.hosts.trl import TokenPOTrainer
from trl_support import frozen, leave
from trl_support.small import config


class Tapped(TokenPOTrainer):
    """Remembers the rows and the loss of every micro-batch."""

    seen: list[dict[str, Any]]
    batches: Any

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            step, rows = self.state.global_step, inputs["tokenpo_row"].tolist()
            self.seen.append({"step": step, "rows": rows, "loss": float(loss)})
        return loss


class Dump(TrainerCallback):
    """Writes weights and gradients just before an update."""

    def __init__(self, trainer: Any, directory: Path) -> None:
        self.trainer, self.directory = trainer, directory
        directory.mkdir(parents=True, exist_ok=True)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.accelerator.is_main_process:
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            tensors = {f"weight/{n}": x.detach().clone() for n, x in model.named_parameters()}
            tensors |= {f"grad/{n}": x.grad.clone() for n, x in model.named_parameters() if x.grad is not None}
            save_file(tensors, self.directory / f"step{state.global_step}.safetensors")


def sampled(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """TRL's rollout_func: this rank's rows of the rollout batch."""
    batch, first = trainer.batches, trainer.accelerator.process_index * len(prompts)
    trainer.batches += 1
    rows = range(first, first + len(prompts))
    return {
        "prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts],
        "completion_ids": [frozen.completion(batch, row) for row in rows],
        "logprobs": [frozen.reported(batch, row) for row in rows],
    }


def built(kind: type[Tapped], model: str, case: dict[str, Any], directory: Path, **more: Any) -> Tapped:
    """A trainer of one case."""
    functions = [getattr(frozen, name) for name in case["rewards"]]
    args = config(
        directory / "run", method=case["method"], method_options=case.get("options"), bf16=case.get("bf16", False),
        gradient_checkpointing=case.get("checkpointing", False), num_generations=frozen.GROUP,
        max_completion_length=frozen.LONGEST, learning_rate=2e-2, shuffle_dataset=False,
        reward_weights=frozen.WEIGHTS[: len(functions)], **case["schedule"], **case.get("settings", {}),
    )  # fmt: skip
    dataset = Dataset.from_dict({"prompt": frozen.prompts()})
    trainer = kind(model=model, reward_funcs=functions, args=args, train_dataset=dataset, rollout_func=sampled, **more)
    trainer.seen, trainer.batches = [], 0
    return trainer


if __name__ == "__main__":
    for case in json.loads(Path(sys.argv[2]).read_text()):
        directory = Path(sys.argv[3]) / case["name"]
        trainer = built(Tapped, sys.argv[1], case, directory)
        trainer.add_callback(Dump(trainer, directory))
        trainer.train()
        weights = sum(float(x.double().sum()) for x in trainer.model.parameters())
        found = {"seen": trainer.seen, "updates": trainer.cycle.updates, "weights": weights}
        found["rate"] = trainer.learner.rate
        (directory / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
    leave()
