#!/usr/bin/env bash
# Package: reasoning-gym 0.1.25.
# Expectation: the answer of an item, handed to its own generator's score_answer, earns 1.0 in every generator.
# Behaviour: in five generators the item's answer is None, and None earns 0.0. A data set whose reference is item["answer"]
#   has no reference there, and a check that every item solves itself fails.
# Output seen: boxnet, graph_color, propositional_logic, rubiks_cube, rush_hour: answer None, score 0.0.
# In tokenpo: a problem without an answer is rejected when the data are read (docs/tasks.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check reasoning-gym==0.1.25
"$folder/venv/bin/python" - <<'PY'
import reasoning_gym

names = ["boxnet", "chain_sum", "graph_color", "maze", "propositional_logic", "rubiks_cube", "rush_hour", "word_sorting"]
lacking = []
for name in names:
    data = reasoning_gym.create_dataset(name, size=3, seed=7)
    answers = [item["answer"] for item in data]
    scores = [data.score_answer(item["answer"], item) for item in data]
    print(f"{name}: answers {['None' if a is None else 'text' for a in answers]}, their scores {scores}")
    if all(a is None for a in answers) and not any(scores):
        lacking.append(name)
assert lacking == ["boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"], lacking
PY
