#!/usr/bin/env bash
# Package: verl 0.9.1, verl.utils.reward_score.gsm8k with method="flexible" (the last number counts, no #### needed).
# Expectation: "The answer is 18." is right for 18, as "The answer is 18" is.
# Behaviour: the full stop belongs to the number, "18." is not "18", and the right answer earns 0. So does 18.0, a comma
#   behind it, and 1,018 for itself with the comma. A word, "!" or a currency sign at the end does not disturb.
# Output seen: 1 for "... is 18", "18!", "$18", "18%", "18 apples."; 0 for "... is 18.", "18,", "18.0", "18...".
# In tokenpo: `math` reads a full stop as the end of a sentence (docs/tasks.md); docs/verifiers.md has verl's strict mode.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-deps verl==0.9.1
"$folder/venv/bin/python" - <<'PY'
import runpy
import sysconfig

# The file alone: importing the package would need torch, Ray and more.
path = f"{sysconfig.get_path('purelib')}/verl/utils/reward_score/gsm8k.py"
compute_score = runpy.run_path(path)["compute_score"]
texts = {"The answer is 18": 1, "It is 18!": 1, "It is $18": 1, "18%": 1, "She has 18 apples.": 1,
         "The answer is 18.": 0, "It is 18, I think": 0, "It is 18.0": 0, "18...": 0}
seen = {text: compute_score(text, "18", method="flexible") for text in texts}
for text, score in seen.items():
    print(f"{text!r} for 18: {score:g}")
assert seen == texts
PY
