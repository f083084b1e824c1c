#!/usr/bin/env bash
# Package: reasoning-gym 0.1.25, generator puzzle24 ("make 24 of these four numbers").
# Expectation: an expression earns 1.0 only if it uses the numbers of its own item.
# Behaviour: the scorer asks for four numbers between 1 and 10 and a value whose whole part is 24; it does not look at the
#   item. The answer of any item is right for every other, so that a policy which always says one expression earns 1.0.
# Output seen: the answers of the other items earn 1.0 on 20 of 20 items.
# In tokenpo: `tokenpo audit` ranks an answer that is rewarded for many different prompts (docs/verifiers.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check reasoning-gym==0.1.25
"$folder/venv/bin/python" - <<'PY'
import reasoning_gym

data = reasoning_gym.create_dataset("puzzle24", size=20, seed=7)
numbers = {tuple(sorted(item["metadata"]["numbers"])) for item in data}
constant = data[0]["answer"]
scores = [data.score_answer(constant, item) for item in data]
print(f"{len(numbers)} different sets of numbers; {constant!r} for all of them earns {scores}")
assert len(numbers) > 10 and set(scores) == {1.0}
PY
