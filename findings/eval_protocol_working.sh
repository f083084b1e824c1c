#!/usr/bin/env bash
# Package: eval-protocol 0.3.33, math_reward, whose last resort for a text without box, tag or #### is its numbers.
# Expectation: the last number counts, or any: "2 + 3 = 5, so the answer is 5" is right for 5.
# Behaviour: as soon as an unmarked text has more than one number, the right answer earns 0 ("ambiguous"): a policy that
#   does not use a box yet is paid for the bare number and loses it by showing its working.
# Output seen: "5" 1, "The answer is 5." 1, "2 + 3 = 5, so the answer is 5." 0, the same with \boxed{5} 1, with #### 5 1.
# In tokenpo: `math` reads the statement at the end of an unmarked text (docs/tasks.md).
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
from eval_protocol.rewards.math import math_reward

cases = [("5", 1), ("The answer is 5.", 1), ("2 + 3 = 5, so the answer is 5.", 0),
         (r"2 + 3 = 5, so the answer is \boxed{5}.", 1), ("2 + 3 = 5, so the answer is\n#### 5", 1)]
seen = []
for text, _ in cases:
    messages = [Message(role="user", content="?"), Message(role="assistant", content=text)]
    seen.append(math_reward(messages=messages, ground_truth="5").score)
    print(f"{text!r} for 5: {seen[-1]:g}")
assert seen == [expected for _, expected in cases], seen
PY
