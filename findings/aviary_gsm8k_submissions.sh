#!/usr/bin/env bash
# Packages: aviary-gsm8k 0.37.0 on fhaviary 0.37.0: an agent solves GSM8K with the tools calculator and submit_answer.
# Expectation: an episode earns 1 for the right answer and 0 for a wrong one; the first submission ends it.
# Behaviour: a message may hold several calls. All are run, also after one that ends the episode, and their rewards add
#   up: the right answer five times earns 5, and a list of guesses earns 1 if one of them is right. Only a text that is
#   not a number costs something (-1). A policy that optimises it submits one answer many times, or guesses in bulk.
# Output seen: for 18: "18" 1, "17" 0, five times "18" 5, "16" "17" "18" in one message 1, "18 dollars" -1.
# In tokenpo: an agent's environment is the user's; `reward` above 1 shows it. docs/verifiers.md lists it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check fhaviary==0.37.0
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-deps aviary-gsm8k==0.37.0
"$folder/venv/bin/python" -W ignore - <<'PY'
import asyncio
import sys
import types

sys.modules["datasets"] = types.ModuleType("datasets")  # it only loads the problems

from aviary.core import ToolCall, ToolRequestMessage
from aviary.envs.gsm8k.env import CalculatorEnv


async def play(answers):
    game = CalculatorEnv("an item", "How much is 3 times 6?", 18.0)
    await game.reset()
    calls = [ToolCall.from_name("submit_answer", answer=answer) for answer in answers]
    said, reward, done, _ = await game.step(ToolRequestMessage(tool_calls=calls))
    assert done and len(said) == len(answers)
    print(f"one message submits {answers}: reward {reward:g}, replies {[message.content for message in said]}")
    return reward


messages = [["18"], ["17"], ["18"] * 5, ["16", "17", "18"], ["18", "17"], ["18 dollars"]]
seen = [asyncio.run(play(answers)) for answers in messages]
assert seen == [1, 0, 5, 1, 1, -1], seen
PY
