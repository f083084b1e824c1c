"""Trains with TRL as a person would, samples drawn by the model itself, and writes down what came of it.

    real_run.py MODEL_DIR OUT PART...

Every part is a function of this file and makes OUT/PART.json, and the run directories OUT/PART*.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, gather_object
from peft import LoraConfig
from safetensors.torch import save_file

import tokenpo
from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.hosts.trl.forward import replaced
from tokenpo.hosts.trl.temperature import RuleProcessor
from trl_support import leave
from trl_support.frozen_run import Dump, Tapped
from trl_support.small import config, even, prompts, sums
from trl_support.small import right as solved


def accuracy(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    return even(completion_ids)


class Drawing(Tapped):
    """Keeps every rollout batch, its prompts, and what the memories held when it was drawn."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        memory = self.learner.state_dict()["memory"]
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            found = self.current.batch
            self.batches.append((found, gather_object(list(found.prompts)), memory))
        return output


NAMES = ("mask", "reward", "group", "token_ids", "temperature", "old_logprob", "old_entropy", "rollout_logprob")


def drawing(model: str, directory: Path, reward: Any, **settings: Any) -> dict[str, Any]:
    """A run whose rollout batches, weights and gradients are written down, and what each rank saw."""
    trainer = Drawing(model=model, reward_funcs=reward, args=config(directory, **settings), train_dataset=prompts())
    trainer.seen, trainer.batches = [], []
    trainer.add_callback(Dump(trainer, directory))
    trainer.train()
    for number, (found, _, _) in enumerate(trainer.batches):
        if found.rollouts is not None:
            kept = {name: getattr(found.rollouts, name) for name in NAMES}
            kept["sampled_at"] = found.rows["sampled_at"]
            there = {name: x.contiguous() for name, x in kept.items() if x is not None}
            save_file(there, directory / f"batch{number}.safetensors")
    return {
        "seen": gather_object(trainer.seen),
        "prompts": [texts for _, texts, _ in trainer.batches],
        "memory": [memory for _, _, memory in trainer.batches],
        "kept": [found.kept for found, _, _ in trainer.batches],
        "discarded": [found.equal for found, _, _ in trainer.batches],
        "drawn": [len(found.drawn["rewards"]) for found, _, _ in trainer.batches],
    }


def hapo(model: str, out: Path) -> dict[str, Any]:
    """Two rollout batches of two updates each; the second is drawn at temperatures of its own."""
    settings = {"method_options": {"tau": 0.4}, "steps_per_generation": 2, "max_steps": 4, "temperature": 1.2}
    applied: list[list[list[float]]] = []
    original = RuleProcessor.__call__

    def spied(self: RuleProcessor, input_ids: Any, scores: Any) -> Any:
        if not self.called:
            applied.append([])
        heated = original(self, input_ids, scores)
        largest = scores.abs().argmax(1, keepdim=True)
        applied[-1].append((self.base * scores.gather(1, largest) / heated.gather(1, largest))[:, 0].tolist())
        return heated

    with replaced(RuleProcessor, "__call__", spied):
        return drawing(model, out / "hapo", even, method="hapo", **settings) | {"applied": applied}


def settled(prompts: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """Half of the prompts are always right."""
    told = zip(prompts, even(completion_ids), strict=True)
    return [1.0 if int(prompt.split("+")[0]) % 2 == 0 else value for prompt, value in told]


def right(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    return [1.0] * len(completion_ids)


def dynamic(model: str, out: Path) -> dict[str, Any]:
    """Three groups to a rollout batch, however many processes; with two, the second group lies on both."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    plan = {
        "per_device_train_batch_size": 6 // processes, "steps_per_generation": 2, "num_iterations": 2, "max_steps": 8,
        "dynamic_sampling": True, "method": "ha_dw", "method_options": {},
    }  # fmt: skip
    never = plan | {"max_extra_batches": 1, "method": "grpo", "max_steps": 4}
    return {
        "some": drawing(model, out / "some", settled, **plan),
        "few": drawing(model, out / "few", settled, **plan, max_extra_batches=0),
        "never": drawing(model, out / "never", right, **never),
    }


def recording(model: str, out: Path) -> dict[str, Any]:
    """Four rollout batches of two updates each, every second kept whole; with two processes a group lies on both."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    plan = {"per_device_train_batch_size": 6 // processes, "steps_per_generation": 2, "max_steps": 8}
    settings = {"method": "archer", "rollouts_every": 2, "reward_weights": [1.0, 0.0]}
    return drawing(model, out / "recording", [settled, accuracy], **plan, **settings)


def lora(model: str, out: Path) -> dict[str, Any]:
    peft = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    args = config(out / "lora", method="tepo", beta=0.1, num_iterations=2, max_steps=4)
    trainer = TokenPOTrainer(model, [even, accuracy], args, train_dataset=prompts(), peft_config=peft)
    before = {name: x.detach().clone() for name, x in trainer.model.named_parameters()}
    trainer.train()
    moved = [name for name, x in trainer.model.named_parameters() if not torch.equal(x, before[name])]
    return {"moved": moved, "log": trainer.state.log_history, "objective": str(trainer.policy_objective)}


def reference(model: str, out: Path) -> dict[str, Any]:
    """A method that reads the reference model, which TRL loads for it; evaluated before and after an update."""
    evaluated = {"per_device_eval_batch_size": 8, "eval_strategy": "steps", "eval_steps": 1}
    args = config(out / "reference", method="archer", max_steps=3, **evaluated)
    trainer = TokenPOTrainer(model, even, args, train_dataset=prompts(), eval_dataset=prompts(4))
    trainer.train()
    return {"log": trainer.state.log_history, "beta": trainer.beta}


def resume(model: str, out: Path) -> dict[str, Any]:
    """Four rollout batches at once, and two and two: HAPO draws at temperatures that it remembers, a KL is held."""

    def run(name: str, steps: int, **train: Any) -> TokenPOTrainer:
        settings = {"method_options": {"tau": 0.4}, "steps_per_generation": 2, "rollouts_every": 1, "kl_target": 0.01}
        args = config(out / name, method="hapo", **settings, max_steps=steps, save_strategy="steps", save_steps=4)
        trainer = TokenPOTrainer(model=model, reward_funcs=even, args=args, train_dataset=prompts())
        trainer.train(**train)
        return trainer

    whole = run("resume-whole", 8)
    run("resume-parts", 4)
    first = (out / "resume-parts" / "tokenpo" / "metrics.jsonl").read_text()
    # What a crash after the checkpoint leaves behind is cut away.
    with (out / "resume-parts" / "tokenpo" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "reward": 77}\n')
    (out / "resume-parts" / "tokenpo" / "rollouts" / "step-000009.jsonl").write_text("{}")
    parts = run("resume-parts", 8, resume_from_checkpoint=True)
    return {
        "same": all(torch.equal(x, y) for x, y in zip(whole.model.parameters(), parts.model.parameters(), strict=True)),
        "first": first.count("\n"),
        "rates": sorted({row["learning_rate"] for row in whole.state.log_history if "learning_rate" in row}),
        "logged": sorted({name for row in whole.state.log_history for name in row if name.startswith("kl_")}),
        "wrong": refused(lambda: run("resume-parts", 9, resume_from_checkpoint=_moved_checkpoint(out))),
        "card": (out / "resume-parts" / "README.md").read_text(),
    }


def _moved_checkpoint(out: Path) -> str:
    """The last checkpoint as if it had been taken one update later."""
    path = out / "resume-parts" / "checkpoint-8"
    state = json.loads((path / "trainer_state.json").read_text())
    (path / "trainer_state.json").write_text(json.dumps(state | {"global_step": 7}))
    return str(path)


def refused(build: Any) -> str:
    try:
        build()
    except tokenpo.TokenPOError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


# Cases of `whole` and `sharded` with further settings: a temperature for every token, statistics of the whole step, a
# reference.
CASES: dict[str, dict[str, Any]] = {
    "hapo": {"save_strategy": "steps", "save_steps": 2, "dynamic_sampling": True}, "kl_cov": {}, "adv_reweight": {},
}  # fmt: skip
# Two rollout batches of four prompts, two updates each. An eps that is large beside gradients: AdamW by itself makes
# whole steps of rounding.
SMALL: dict[str, Any] = {
    "max_steps": 4, "adam_epsilon": 1.0, "learning_rate": 0.05, "max_grad_norm": 1.0, "num_generations": 8,
    "per_device_train_batch_size": 8, "max_completion_length": 48, "model_init_kwargs": {"dtype": "float32"},
    "steps_per_generation": 2, "gradient_accumulation_steps": 1,
}  # fmt: skip


def whole(model: str, out: Path, kind: DistributedType = DistributedType.MULTI_CPU) -> None:
    """Runs in two processes, each with all weights."""
    for case, more in CASES.items():
        lora = LoraConfig(r=2, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = TokenPOTrainer(
            model,
            solved,
            config(out / case, method=case, use_cpu=kind == DistributedType.MULTI_CPU, **SMALL, **more),
            train_dataset=sums(),
            peft_config=lora if case == "adv_reweight" else None,
        )
        assert trainer.accelerator.distributed_type == kind
        assert trainer.forward_passes.in_head == (kind == DistributedType.MULTI_CPU)
        trainer.train()
        trainer.save_model(str(out / case / "model"))


SHARDS = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}


def sharded(model: str, out: Path) -> None:
    """The same, each with a shard by FSDP2: accelerate shards on GPUs alone, and is told that there are some."""

    def on_the_processor(state: PartialState) -> None:
        state.device = torch.device("cpu")

    os.environ.update(SHARDS)
    PartialState._prepare_backend = lambda *told, **more: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = on_the_processor
    whole(model, out, DistributedType.FSDP)


if __name__ == "__main__":
    out = Path(sys.argv[2])
    for part in sys.argv[3:]:
        found = json.dumps(globals()[part](sys.argv[1], out))
        if os.environ.get("RANK", "0") == "0":
            (out / f"{part}.json").write_text(found)
    leave()
