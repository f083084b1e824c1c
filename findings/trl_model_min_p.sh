#!/usr/bin/env bash
# Packages: trl 1.16.0, transformers 5.10.4, torch 2.13.0 (CPU): GRPOTrainer on a model whose generation_config says how
#   to sample.
# Expectation: GRPOConfig decides alone: the model's temperature, top_k, repetition_penalty and min_p change no response.
# Behaviour: TRL hands over its own values of the first three, but its default min_p is None, and transformers fills None
#   from the model. So the model's min_p cuts what is sampled, as do its no_repeat_ngram_size and suppress_tokens, which
#   GRPOConfig does not have. The loss stays that of the whole vocabulary, without a warning.
# Output seen: temperature, top_k and repetition_penalty change nothing; with min_p = 0.999 eight responses are one text;
#   with GRPOConfig(min_p=0.0) they are as without it; no_repeat_ngram_size = 1 removes every repeated token,
#   suppress_tokens its tokens.
# In tokenpo: tokenpo.trl samples with TRL; docs/trl_reference.md says to set min_p=0.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check torch==2.13.0 trl==1.16.0 transformers==5.10.4
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
made.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")


def sampled(own, **given):
    """The eight responses of a rollout batch, with these settings in the model's generation_config and in GRPOConfig."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, eos_token_id=tokenizer.eos_token_id,
    ))
    model.generation_config.update(do_sample=True, **own)
    seen = []

    def reward(completion_ids, **columns):
        seen.extend(map(tuple, completion_ids))
        return [0.0] * len(completion_ids)

    config = GRPOConfig(sys.argv[1], per_device_train_batch_size=8, num_generations=8, max_steps=1, bf16=False,
                        use_cpu=True, max_completion_length=12, report_to="none", logging_strategy="no",
                        disable_tqdm=True, save_strategy="no", **given)
    data = Dataset.from_list([{"prompt": "abc"}])
    GRPOTrainer(model, reward, config, train_dataset=data, processing_class=tokenizer).train()
    repeated = sum(len(x) - len(set(x)) for x in seen)
    print(f"model {own}, GRPOConfig {given}: {len(set(seen))} different texts of 8, {repeated} repeated tokens")
    return seen, repeated


plain, repeated = sampled({})
assert len(set(plain)) == 8 and repeated > 0
for own in ({"temperature": 0.1}, {"top_k": 2}, {"repetition_penalty": 5.0}):
    assert sampled(own)[0] == plain
assert len(set(sampled({"min_p": 0.999})[0])) == 1
assert sampled({"min_p": 0.999}, min_p=0.0)[0] == plain
assert sampled({"no_repeat_ngram_size": 1})[1] == 0
first = sorted({int(x[0]) for x in plain})
assert all(set(x).isdisjoint(first) for x in sampled({"suppress_tokens": first})[0])
PY
