#!/usr/bin/env bash
# Package: eval-protocol 0.3.33, diversity_reward: the share of different 1-, 2- and 3-grams, weighted 0.2, 0.3, 0.5.
# Expectation: between 0 and 1, and 1 for a text that never repeats itself, whatever its length.
# Behaviour: a text that is too short for an n-gram gets that n-gram's weight again: one word earns 2.2, two 1.5, and
#   "yes yes" more than any long text can. A policy that optimises it stops after one word.
# Output seen: one word 2.2, two 1.5, the same word twice 1.4, eleven different words 1.0, a sentence with "the" twice < 1.
# In tokenpo: a reward is the user's function; the metric `length` falls where such a reward is optimised (docs/metrics.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check openai==2.54.0 mcp==1.30.0 httpx-aiohttp==0.2.0 python-dotenv==1.2.4
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-deps eval-protocol==0.3.33
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
import sysconfig
import types

# Without the package's __init__, which needs 400 MB more.
for name in ("eval_protocol", "eval_protocol.rewards"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [f"{sysconfig.get_path('purelib')}/{name.replace('.', '/')}"]

from eval_protocol.rewards.repetition import diversity_reward

texts = ["hello", "hello there", "yes yes", "one two three four five six seven eight nine ten eleven",
         "the cat sat on the mat and slept"]
seen = []
for text in texts:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
    seen.append(round(diversity_reward(messages=messages).score, 2))
    print(f"{text!r}: {seen[-1]}")
assert seen[:4] == [2.2, 1.5, 1.4, 1.0] and seen[4] < 1, seen
PY
