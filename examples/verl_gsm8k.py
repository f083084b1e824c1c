"""verl with GSM8K: the data in verl's columns, then the command of its main program with our trainer.

python examples/verl_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl --test test.jsonl --method tepo
python examples/verl_gsm8k.py --small        four questions of its own; verl_gsm8k.txt beside it is what this printed

Data are JSON Lines or Parquet with `question` and `answer`, which ends with `#### NUMBER`. Rows of the data source
openai/gsm8k are scored by verl's own function: 1 where what follows the last #### is the reference, character by
character. The command is printed, for one GPU; it runs as it is printed, on a machine with verl: docs/verl.md.
"""

import argparse
import contextlib
import json
import shlex
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet

ASK = "Reason step by step, and end with #### and the final number alone, as in #### 12"
FEW = [{"question": f"Ann has {a} apples and buys {b}. How many?", "answer": f"{a}+{b}={a + b}\n#### {a + b:,}"}
       for a, b in ((2, 3), (4, 1), (7, 2), (1000, 8))]  # fmt: skip


def read(path):
    """The rows of a file."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_columns(rows, split):
    """verl's columns. The reference has no commas, as verl takes them out of what the model says."""
    return [
        {
            "data_source": "openai/gsm8k",
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
    return paths


def command(model, method, train, test, run):
    """The words of verl's main program. Trainer, method and report are ours; the other settings are verl's own."""
    settings = {
        "trainer.v1.trainer_mode": "tokenpo",
        "algorithm.adv_estimator": "grpo",
        "+algorithm.tokenpo.method": method,
        "+algorithm.tokenpo.report": run,
        "actor_rollout_ref.model.path": model,
        "data.train_files": train,
        "data.val_files": test,
        "data.train_batch_size": 64,
        "data.max_prompt_length": 512,
        "data.max_response_length": 512,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": 16,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.actor.optim.lr": "1e-6",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        "trainer.total_epochs": 1,
        "trainer.test_freq": 20,
        "trainer.default_local_dir": f"{run}/checkpoints",
        "trainer.logger": "[console]",
    }
    return ["python", "-m", "verl.trainer.main_ppo", *(f"{key}={value}" for key, value in settings.items())]


def main(model, method, train, test, data):
    files = prepare(train, test, data)
    for path, rows in zip(files, (train, test), strict=True):
        print(f"{path}: {len(rows)} rows")
    print(json.dumps(pyarrow.parquet.read_table(files[0]).to_pylist()[-1], indent=1))
    words = command(model, method, *files, f"runs/verl-{method}")
    print(" \\\n    ".join([shlex.join(words[:3]), *map(shlex.quote, words[3:])]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--method", default="tepo")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            main(options.model, options.method, FEW, FEW, Path("data"))
    else:
        main(options.model, options.method, read(options.data), read(options.test), Path("data/gsm8k").absolute())
