#!/usr/bin/env bash
# Package: reasoning-gym 0.1.25, generators game_of_life (the board after some steps) and game_of_life_halting (True or False).
# Expectation: an answer without any thought earns little: an empty board is seldom right, "foo" never.
# Behaviour: game_of_life pays the share of right cells, and most cells are dead: the empty board earns 0.97 on average,
#   the board of another item 0.94. game_of_life_halting pays 1.0 for any text.
# Output seen: empty board 0.97 (right on 5 of 20), another item's board above 0.9; "foo" 1.0 on 20 of 20.
# In tokenpo: `tokenpo audit` ranks an answer that is rewarded for many different prompts (docs/verifiers.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check reasoning-gym==0.1.25
"$folder/venv/bin/python" - <<'PY'
import json

import reasoning_gym

data = reasoning_gym.create_dataset("game_of_life", size=20, seed=7)
items = list(data)
empty = [data.score_answer(json.dumps([[0] * 10] * 10), item) for item in items]
other = [data.score_answer(items[i - 1]["answer"], item) for i, item in enumerate(items)]
print(f"empty board: mean {sum(empty) / 20:.3f}, least {min(empty):.2f}, right on {empty.count(1.0)}")
print(f"another item's board: mean {sum(other) / 20:.3f}")
halting = reasoning_gym.create_dataset("game_of_life_halting", size=20, seed=7)
foo = [halting.score_answer("foo", item) for item in halting]
print(f"halting, 'foo': {foo}")
assert sum(empty) / 20 > 0.96 and empty.count(1.0) == 5 and sum(other) / 20 > 0.9 and foo == [1.0] * 20
PY
