#!/usr/bin/env bash
# Package: bfcl-eval 2026.3.23 (Berkeley's function-calling leaderboard), its comparison of calls (ast_checker), on the
#   first items that it ships.
# Expectation: case and spaces of a text argument do not matter; signs, powers and decimal points do.
# Behaviour: before two texts are compared, spaces and , . / - _ * ^ are removed. `x**2` is `x*2`, `x-2` and `x2`; -5 as
#   text is 5, 1.5 is 15, and the first of November is the eleventh of January. `x+2` differs, and numbers that are not
#   text are exact. Trained on it, a policy is paid for integrating another function.
# Output seen: items 13 to 16 of simple_python accept their function with * for **, and with every minus sign dropped.
# In tokenpo: a reward is the user's function; docs/verifiers.md lists this one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-deps bfcl-eval==2026.3.23
"$folder/venv/bin/python" - <<'PY'
import json
import sys
import sysconfig
import types
from pathlib import Path

# Without the list of models and the converters for other languages, which need the clients of twenty services.
for name, member in {
    "constants.model_config": "MODEL_CONFIG_MAPPING",
    "eval_checker.ast_eval.type_convertor.java_type_converter": "java_type_converter",
    "eval_checker.ast_eval.type_convertor.js_type_converter": "js_type_converter",
}.items():
    module = sys.modules[f"bfcl_eval.{name}"] = types.ModuleType(name)
    setattr(module, member, {"any": types.SimpleNamespace(underscore_to_dot=False)})

from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

data = Path(sysconfig.get_path("purelib"), "bfcl_eval/data")
items = [[json.loads(line) for line in (data / part / "BFCL_v4_simple_python.json").read_text().splitlines()]
         for part in (".", "possible_answer")]


def right(function, call, accepted):
    return ast_checker(function, call, accepted, Language.PYTHON, "simple_python", "any")["valid"]


for item, answer in list(zip(*items))[13:17]:
    (name, accepted), = answer["ground_truth"][0].items()
    function = item["function"]
    given = {key: values[0] if values[0] != "" else values[1] for key, values in accepted.items()}
    text = given["function"]
    for changed in dict.fromkeys([text, text.replace("**", "*"), text.replace("-", ""), f"{text}+1"]):
        call = {**given, "function": changed}
        verdict = right(function, [{name: call}], answer["ground_truth"])
        print(f"{item['id']}: {changed!r} for {text!r}: {verdict}")
        assert verdict == ("+1" not in changed)

one = {"name": "f", "parameters": {"type": "dict", "properties": {"x": {"type": "string"}}, "required": ["x"]}}
cases = [("x-2", "x**2", True), ("x+2", "x**2", False), ("5", "-5", True), ("1.5", "15", True),
         ("1/11/2024", "11/1/2024", True), ("2/1/2024", "1/2/2024", False)]
for text, reference, expected in cases:
    verdict = right([one], [{"f": {"x": text}}], [{"f": {"x": [reference]}}])
    print(f"{text!r} for {reference!r}: {verdict}")
    assert verdict is expected
PY
