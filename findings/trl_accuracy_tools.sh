#!/usr/bin/env bash
# Packages: trl 1.16.0, transformers 5.10.4, math-verify 0.9.0, torch 2.13.0 (CPU): GRPOTrainer with tools, and TRL's own
#   accuracy_reward on what that trainer hands it.
# Expectation: a response that calls a tool and then gives the right answer earns 1, as it does without the call.
# Behaviour: the reward reads the first message of a response, which is the call. The answer after the tool's reply is
#   never read: the right one earns 0, and a right guess before the call earns 1 whatever follows. There is no warning. A
#   policy learns not to call. think_format_reward and reasoning_accuracy_reward read the first message, too.
# Output seen: \boxed{42} 1; call, 42, \boxed{42} 0; "Maybe \boxed{42}" with the call, 42, \boxed{41} 1.
# In tokenpo: rewards of tokenpo.trl are TRL's; docs/trl.md says to read the last message.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check torch==2.13.0 trl==1.16.0 transformers==5.10.4 \
    math-verify==0.9.0 jmespath==1.1.0
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_instruct_2507_chat_template
from trl.rewards import accuracy_reward, reasoning_accuracy_reward, think_format_reward

CALL = '<tool_call>\n{"name": "multiply", "arguments": {"a": 6, "b": 7}}\n</tool_call>'
RIGHT, WRONG = r"\boxed{42}", r"\boxed{41}"
# The turns of four responses, in place of what a model would sample, and what they earn.
RESPONSES = [((RIGHT,), 1), ((CALL, RIGHT), 0), ((f"Maybe {WRONG}.\n{CALL}", RIGHT), 0),
             ((f"Maybe {RIGHT}.\n{CALL}", WRONG), 1)]

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
made.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|pad|>")
tokenizer.chat_template = qwen3_instruct_2507_chat_template
model = Qwen3ForCausalLM(Qwen3Config(
    vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, head_dim=8, eos_token_id=tokenizer.eos_token_id,
))
turns = iter(range(2))
earned = []


def generate(input_ids, **settings):
    turn = next(turns)
    texts = [f"{said[turn]}<|im_end|>" for said, _ in RESPONSES if len(said) > turn]
    rows = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")["input_ids"]
    return torch.cat([input_ids, rows], 1)


def multiply(a: int, b: int) -> int:
    """Multiplies two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        Their product.
    """
    return a * b


def reward(completions, solution, **columns):
    rewards = accuracy_reward(completions, solution)
    for completion, value in zip(completions, rewards):
        print(" | ".join(f"{message['role']}: {message['content']}" for message in completion), "->", value)
    earned.extend(rewards)
    return rewards


model.generate = generate
row = {"prompt": [{"role": "user", "content": "How much is 6 times 7?"}], "solution": "$42$"}
config = GRPOConfig(sys.argv[1], per_device_train_batch_size=4, num_generations=4, max_steps=1, max_completion_length=400,
                    bf16=False, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no")
data = Dataset.from_list([row])
GRPOTrainer(model, reward, config, train_dataset=data, processing_class=tokenizer, tools=[multiply]).train()
assert earned == [expected for _, expected in RESPONSES], earned
said = ("assistant", ""), ("tool", "42"), ("assistant", f"<think>6 times 7</think>{RIGHT}")
late = [[{"role": role, "content": content} for role, content in said]]
assert think_format_reward(late) == reasoning_accuracy_reward(late, ["$42$"]) == [0]
assert think_format_reward([late[0][2:]]) == reasoning_accuracy_reward([late[0][2:]], ["$42$"]) == [1]
PY
