#!/usr/bin/env bash
# Package: transformers 5.10.4, AutoTokenizer on a directory of its own making (config.json, tokenizer.json).
# Expectation: the tokenizer is the one in tokenizer.json, whatever the model's type: 2024 is one token where the file has
#   that token and does not part digits.
# Behaviour: for model_type qwen2 the file's splitting rule is replaced by Qwen2's, with any tokenizer_class in
#   tokenizer_config.json: digits come one by one, and the ids are others than those that the model was trained on. With
#   model_type llama or qwen3 the file's rule is used.
# Output seen: "in 2024": llama and qwen3 ['in', 'Ġ', '2024'], qwen2 ['in', 'Ġ', '2', '0', '2', '4'].
# In tokenpo: the loader compares the two and follows tokenizer.json with a warning (train/models/model.py, docs/embedded.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check transformers==5.10.4
"$folder/venv/bin/python" - "$folder" <<'PY'
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

tokens = ["<end>", "i", "n", "Ġ", "2", "0", "4", "in", "20", "24", "2024"]
merges = [("i", "n"), ("2", "0"), ("2", "4"), ("20", "24")]
seen = {}
for kind in ("llama", "qwen3", "qwen2"):
    directory = Path(sys.argv[1], kind)
    directory.mkdir()
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"model_type": kind}))
    for name in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "eos_token": "<end>"}))
        loaded = AutoTokenizer.from_pretrained(directory)
        seen[kind, name] = loaded.convert_ids_to_tokens(loaded("in 2024", add_special_tokens=False)["input_ids"])
        print(f"{kind} {name} -> {type(loaded).__name__}: {seen[kind, name]}")
file, parted = ["in", "Ġ", "2024"], ["in", "Ġ", "2", "0", "2", "4"]
assert {tuple(x) for (kind, _), x in seen.items() if kind != "qwen2"} == {tuple(file)}, seen
assert {tuple(x) for (kind, _), x in seen.items() if kind == "qwen2"} == {tuple(parted)}, seen
PY
