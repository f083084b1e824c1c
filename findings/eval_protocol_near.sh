#!/usr/bin/env bash
# Package: eval-protocol 0.3.33 (once reward-kit), accuracy_reward, which compares the answer with the reference.
# Expectation: a wrong number earns 0: 43 for 42, 2021 for 2020.
# Behaviour: a whole number earns the more the nearer it is: 1.0 within 1 %, then 0.8, 0.5 and 0.3 up to 20 %. So any year
#   near the right one is right, and 43 is worth 0.8 of 42, while 42.1 and the fraction 3/4 for 0.75 are worth nothing.
# Output seen: for 42: 42 1.0, 43 0.8, 45 0.5, 50 0.3, 42.1 and -42 0.0; for 2020: 2021 1.0; for 0.75: 3/4 0.0.
# In tokenpo: `math` earns 0 or 1. `tokenpo audit --rewarded-at 0.8` lists such responses as wrong (docs/verifiers.md).
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

from eval_protocol.models import Message
from eval_protocol.rewards.accuracy import accuracy_reward

seen = {}
expected = {("42", "42"): 1.0, ("43", "42"): 0.8, ("45", "42"): 0.5, ("50", "42"): 0.3, ("42.1", "42"): 0.0,
            ("-42", "42"): 0.0, ("2021", "2020"): 1.0, ("3/4", "0.75"): 0.0}
for text, reference in expected:
    messages = [Message(role="user", content="?"), Message(role="assistant", content=f"The answer is {text}")]
    seen[text, reference] = accuracy_reward(messages=messages, ground_truth=[Message(role="assistant", content=reference)]).score
    print(f"{text} for {reference}: {seen[text, reference]:.3f}")
assert all(abs(seen[x] - expected[x]) < 1e-6 for x in expected), seen
PY
