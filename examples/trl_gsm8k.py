"""TRL as one would really run it: a Qwen-like chat model, GSM8K's columns, LoRA, two rewards, an evaluation.

python examples/trl_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct --data train.jsonl --test test.jsonl --method tepo
python examples/trl_gsm8k.py --small        a random model of a few thousand weights, two updates, no download

Data are JSON Lines with GSM8K's columns, `question` and `answer`; the answer ends with `#### NUMBER`.
"""

import argparse
import re
import tempfile

from datasets import Dataset, load_dataset

from tokenpo.trl import GRPOConfig, GRPOTrainer

SYSTEM = "Reason step by step and put the final number behind ####."
FEW = [
    {"question": f"Ann has {a} apples and buys {b}. How many?", "answer": f"{a}+{b}={a + b}\n#### {a + b}"}
    for a, b in ((2, 3), (4, 1), (7, 2), (5, 5))
]


def number(text):
    """The number behind the last ####, or None."""
    found = re.findall(r"####\s*(-?[\d,.]*\d)", text)
    return float(found[-1].replace(",", "")) if found else None


def correct(completions, answer, **columns):
    """1 where the number is the one of the data; every column of a row is handed in."""
    pairs = [(number(c[0]["content"]), number(a)) for c, a in zip(completions, answer, strict=True)]
    return [float(found is not None and found == right) for found, right in pairs]


def formatted(completions, **columns):
    """A tenth for a number where one is asked for."""
    return [0.1 * (number(c[0]["content"]) is not None) for c in completions]


def prepared(rows):
    """TRL's schema: a conversation to answer, and the columns that rewards read."""
    asked = [{"role": "system", "content": SYSTEM}]
    return rows.map(lambda row: {"prompt": [*asked, {"role": "user", "content": row["question"]}]})


def tiny_model(folder):
    """A directory with a random Qwen model and the tokenizer of the package's tiny model, given a chat template."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from tokenpo import locate

    tokenizer = AutoTokenizer.from_pretrained(locate("tiny"))
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"num_key_value_heads": 2, "vocab_size": len(tokenizer), "max_position_embeddings": 512}
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **more, **special)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--test")
    parser.add_argument("--method", default="dapo")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    from peft import LoraConfig

    folder = tempfile.mkdtemp()
    if options.small:
        train = test = prepared(Dataset.from_list(FEW))
        where = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "max_steps": 2}
        size = {"num_generations": 2, "per_device_train_batch_size": 4, "max_completion_length": 8, "logging_steps": 1}
    else:
        files = load_dataset("json", data_files={"train": options.data, "test": options.test})
        train, test = (prepared(files[name]) for name in ("train", "test"))
        where = {"bf16": True, "num_train_epochs": 1, "eval_steps": 50, "save_steps": 100}
        size = {"num_generations": 8, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 4,
                "steps_per_generation": 8, "max_completion_length": 512, "logging_steps": 5}  # fmt: skip
    args = GRPOConfig(
        f"{folder}/run" if options.small else f"runs/trl-{options.method}",
        method=options.method, learning_rate=1e-4, lr_scheduler_type="constant", report_to="none",
        reward_weights=[1.0, 1.0], eval_strategy="no" if options.small else "steps",
        per_device_eval_batch_size=4, **size, **where,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=tiny_model(f"{folder}/model") if options.small else options.model,
        reward_funcs=[correct, formatted],
        args=args,
        train_dataset=train,
        eval_dataset=test,
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    print(trainer.policy_objective)
    trainer.train()
    trainer.save_model()
    print("updates:", trainer.state.global_step)
    print("test reward is a number:", trainer.evaluate()["eval_reward"] >= 0)


if __name__ == "__main__":
    main()
