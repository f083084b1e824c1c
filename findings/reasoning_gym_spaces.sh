#!/usr/bin/env bash
# Package: reasoning-gym 0.1.25.
# Expectation: a space before the right answer and a line break behind it change no score; scorers strip them.
# Behaviour: every generator chooses for itself. Some strip. Some compare whole texts, so that the right answer earns 0.
#   Many pay the share of the text that the answer fills, so that a one-digit answer falls to a third, a long one hardly.
#   The same habit pays wrong texts: "7 or 12" earns more than nothing for 12.
# Output seen: chain_sum 1.0, binary_matrix 0.0, count_bits 0.5, dice 0.0, number_filtering 0.9 (means over 12 items).
# In tokenpo: the reward of a run is the user's function; tokenpo strips text before it compares it (docs/tasks.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check reasoning-gym==0.1.25
"$folder/venv/bin/python" - <<'PY'
import reasoning_gym

seen = {}
for name in ("chain_sum", "binary_matrix", "count_bits", "dice", "number_filtering"):
    data = reasoning_gym.create_dataset(name, size=12, seed=7)
    exact = [data.score_answer(item["answer"], item) for item in data]
    spaced = [data.score_answer(f" {item['answer']}\n", item) for item in data]
    seen[name] = round(sum(spaced) / 12, 2)
    print(f"{name}: as it stands {sum(exact) / 12:g}, with a space before and a line break behind {seen[name]}")
    assert min(exact) == 1
either = reasoning_gym.create_dataset("count_bits", size=1, seed=7)
item = either[0]
print("two answers, of which one is right:", either.score_answer(f"{int(item['answer']) + 1} or {item['answer']}", item))
assert seen == {"chain_sum": 1.0, "binary_matrix": 0.0, "count_bits": 0.5, "dice": 0.0, "number_filtering": 0.9}, seen
PY
