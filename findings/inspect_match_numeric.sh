#!/usr/bin/env bash
# Package: inspect-ai 0.3.285, scorer match(numeric=True), which takes the last number of a completion.
# Expectation: signs around a number do not matter: 18%, $18, 18$ and \boxed{18} are 18; 18.0000001 is not.
# Behaviour: a currency sign is read over on either side, a percent sign, a box or an equals sign makes the right answer
#   wrong ("no number"), and numbers that agree to five places are equal. A half written as one character is 0.5.
# Output seen: "$18", "18$", "18!", "18.0000001", "1e3" right; "18%", "\boxed{18}", "x=18", "18th" wrong.
# In tokenpo: `math` reads boxes, percent and units by the rules of docs/tasks.md.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check inspect-ai==0.3.285
"$folder/venv/bin/python" - <<'PY'
import asyncio

from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.scorer import Target, match
from inspect_ai.solver import TaskState

CASES = [("The answer is 18.", "18", "C"), ("$18", "18", "C"), ("18$", "18", "C"), ("18!", "18", "C"), ("1e3", "1000", "C"),
         ("18.0000001", "18", "C"), ("½", "0.5", "C"), ("18%", "18", "I"), (r"\boxed{18}", "18", "I"), ("x=18", "18", "I"),
         ("18th", "18", "I")]


async def main():
    scorer, wrong = match(numeric=True), []
    for text, target, expected in CASES:
        state = TaskState(model=ModelName("mockllm/model"), sample_id=1, epoch=1, input="?", messages=[],
                          output=ModelOutput.from_content("mockllm", text))
        value = (await scorer(state, Target(target))).value
        print(f"{text!r} for {target}: {'right' if value == 'C' else 'wrong'}")
        wrong += [text] if value != expected else []
    assert not wrong, wrong


asyncio.run(main())
PY
