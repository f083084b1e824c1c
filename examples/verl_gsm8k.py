"""verl with GSM8K: the data in verl's columns, a reward, and the command of verl's main program with our trainer.

python examples/verl_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl --test test.jsonl --method tepo

Data are JSON Lines or Parquet with `question` and `answer`, which ends with `#### NUMBER`. The command is for one GPU.
CLUSTER has the numbers that several GPUs or machines change: docs/verl.md. On CPUs: verl_smollm2.py.
"""

import argparse
import json
import re
import shlex
import sys
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


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """verl's reward function: 1 where the last number behind a # is the reference."""
    found = re.findall(r"#\s*(-?[\d,.]*\d)", solution_str)
    return float(bool(found) and found[-1].replace(",", "") == ground_truth)


def read(path):
    """The rows of a file."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_columns(rows, split):
    """The rows in verl's columns."""
    return [
        {
            "data_source": "gsm8k",
            "prompt": [{"role": "user", "content": f"{row['question']} {ASK}"}],
            "ability": "math",
            "reward_model": {
                "style": "rule",
                "ground_truth": row["answer"].rpartition("####")[2].strip().replace(",", ""),
            },
            "extra_info": {"split": split, "index": index},
        }
        for index, row in enumerate(rows)
    ]


def prepare(train, test, folder):
    """Writes both files; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, rows in (("train", train), ("test", test)):
        paths.append(folder / f"{split}.parquet")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(in_columns(rows, split)), paths[-1])
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--method", default="tepo")
    options = parser.parse_args()
    files = prepare(read(options.data), read(options.test), Path("data/gsm8k").absolute())
    run = Path(f"runs/verl-{options.method}").absolute()
    words = command(settings(options.model, options.method, *files, run))
    print(" \\\n    ".join([shlex.join(words[:3]), *map(shlex.quote, words[3:])]))
