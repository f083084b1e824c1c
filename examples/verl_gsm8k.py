"""verl with GSM8K: the data in verl's columns, a reward, and the command of verl's main program with our trainer.

python examples/verl_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl --test test.jsonl --method tepo
python examples/verl_gsm8k.py --small        two steps on two workers of a CPU; needs verl and a clone's tests

Data are JSON Lines or Parquet with `question` and `answer`, which ends with `#### NUMBER`. Without --small the command
is printed, for one GPU. CLUSTER has the numbers that several GPUs or machines change: docs/verl.md.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet

ASK = "Reason step by step, and end with #### and the final number alone, as in #### 12"
CLUSTER = {
    "trainer.nnodes": 1,  # machines; Ray joins them, and paths then lead to storage that they share
    "trainer.n_gpus_per_node": 1,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,  # GPUs that hold one copy of the sampler
    "data.train_batch_size": 64,  # prompts of a step
    "actor_rollout_ref.rollout.n": 8,  # responses to each
    "actor_rollout_ref.actor.ppo_mini_batch_size": 16,  # prompts of an update; times n it divides by the GPUs
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,  # responses of a pass: what fits into a GPU's memory
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
    "data.max_response_length": 512,
}
# Two workers, and a model of 0.1 M weights that knows sums on a dial: 3-9+6= is 0.
SMALL = CLUSTER | {
    "trainer.n_gpus_per_node": 2,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
    "data.train_batch_size": 8,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
    "data.max_response_length": 64,
    "trainer.total_training_steps": 2,
    "trainer.val_before_train": False,
    "actor_rollout_ref.actor.optim.lr": "3e-4",
}
FEW = [
    {"question": f"{a}+{b}*{a}-{b}=", "answer": f"#### {((a + b) * a - b) % 10}"}
    for a in range(1, 10)
    for b in range(1, 10)
]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """verl's reward function: 1 where the last number behind a # is the reference."""
    found = re.findall(r"#\s*(-?[\d,.]*\d)", solution_str)
    return float(bool(found) and found[-1].replace(",", "") == ground_truth)


def read(path):
    """The rows of a file."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_columns(rows, split, ask):
    """The rows in verl's columns."""
    return [
        {
            "data_source": "gsm8k",
            "prompt": [{"role": "user", "content": f"{row['question']} {ask}".strip()}],
            "ability": "math",
            "reward_model": {
                "style": "rule",
                "ground_truth": row["answer"].rpartition("####")[2].strip().replace(",", ""),
            },
            "extra_info": {"split": split, "index": index},
        }
        for index, row in enumerate(rows)
    ]


def prepare(train, test, folder, ask=ASK):
    """Writes both files; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, rows in (("train", train), ("test", test)):
        paths.append(folder / f"{split}.parquet")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(in_columns(rows, split, ask)), paths[-1])
        print(f"{paths[-1]}: {len(rows)} rows")
    return paths


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
        "data.max_prompt_length": 512,
        "reward.custom_reward_function.path": Path(__file__).absolute(),
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.optim.lr": "1e-6",
        "trainer.total_epochs": 1,
        "trainer.test_freq": 20,
        "trainer.default_local_dir": f"{run}/checkpoints",
        "trainer.logger": "[console]",
        **CLUSTER,
    }


def command(given):
    """The words of verl's main program."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *(f"{key}={value}" for key, value in given.items())]


def small(method, folder):
    """Two steps on two gloo workers of this machine; prints what the report has of each."""
    sys.path.insert(0, str(Path(__file__).absolute().parents[1] / "tests"))
    from hosts.verl.support import run  # what verl lacks on a CPU: a platform, a sampler, a model for its chat

    given = settings(run.model(folder / "model"), method, *prepare(FEW, FEW[:8], folder, ""), folder / "run")
    words = command(given | SMALL | run.CPU | run.FLOAT32)
    subprocess.run(words, cwd=folder, env=run.environment(), check=True)
    for line in (folder / "run" / "metrics.jsonl").read_text().splitlines():
        made = json.loads(line)
        print({name: made.get(name) for name in ("step", "reward", "grad_norm", "entropy")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--method", default="tepo")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        with tempfile.TemporaryDirectory() as folder:
            small(options.method, Path(folder))
    else:
        files = prepare(read(options.data), read(options.test), Path("data/gsm8k").absolute())
        run = Path(f"runs/verl-{options.method}").absolute()
        words = command(settings(options.model, options.method, *files, run))
        print(" \\\n    ".join([shlex.join(words[:3]), *map(shlex.quote, words[3:])]))
