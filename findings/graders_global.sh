#!/usr/bin/env bash
# Packages: verl 0.9.1 (prime_code), skyrl-gym 0.4.0 (envs/lcb), lighteval 0.13.0 (tasks/lcb): graders of programs, with
#   tests that give standard input.
# Expectation: a program that prints the right number under python passes.
# Behaviour: each grader makes the whole program the body of a function, so its top-level variables become local. A
#   function that says `global total` then finds no such name, or sets another variable than the one that is printed.
#   The right program earns 0, by a NameError or as a wrong answer. Reading the variable works, and so does a list.
# Output seen: all five print 10 under python; all three graders pass "reads", "no function" and "list", and fail "adds"
#   and "sets". verl's error is NameError for "adds"; for "sets" the output is 0.
# In tokenpo: it ships no grader of programs; docs/verifiers.md lists this one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check skyrl-gym==0.4.0 numpy==2.4.6 tqdm==4.70.1
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-deps verl==0.9.1 lighteval==0.13.0
cat > "$folder/run.py" <<'PY'
import json
import multiprocessing
import runpy
import subprocess
import sys
import sysconfig

PROGRAMS = {
    "no function": ("n = int(input())\nprint(2 * n)\n", 1),
    "reads": ("n = int(input())\ndef twice():\n    return 2 * n\nprint(twice())\n", 1),
    "list": ("total = [0]\ndef add(x):\n    total[0] += x\nadd(2 * int(input()))\nprint(total[0])\n", 1),
    "adds": ("total = 0\ndef add(x):\n    global total\n    total += x\nadd(2 * int(input()))\nprint(total)\n", 0),
    "sets": ("best = 0\ndef visit(x):\n    global best\n    best = x\nvisit(2 * int(input()))\nprint(best)\n", 0),
}

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    site = sysconfig.get_path("purelib")
    # Single files: importing the packages would need torch and more.
    sys.path.insert(0, f"{site}/verl/utils/reward_score")
    from prime_code import compute_score as verl

    lighteval = runpy.run_path(f"{site}/lighteval/tasks/tasks/lcb/codegen_metrics.py")["check_correctness"]
    from skyrl_gym.envs.lcb.livecodebench import compute_score as skyrl

    tests = {"inputs": ["5\n"], "outputs": ["10\n"]}
    for name, (code, expected) in PROGRAMS.items():
        plain = subprocess.run([sys.executable, "-c", code], input="5\n", capture_output=True, text=True, check=True)
        response = f"```python\n{code}```"
        score, details = verl(response, json.dumps(tests), continuous=True)
        seen = {
            "verl": float(score),
            "skyrl": skyrl(response, [{"input": "5\n", "output": "10", "testtype": "stdin", "metadata": {}}])[1],
            "lighteval": float(lighteval({"input_output": json.dumps(tests)}, code, timeout=5) == [True]),
        }
        why = details[0].get("error") or f"output {details[0]['output']!r}" if score != 1 else ""
        print(f"{name}: python prints {plain.stdout.strip()}; {seen} {why}")
        assert plain.stdout == "10\n" and set(seen.values()) == {expected}
PY
"$folder/venv/bin/python" -W ignore "$folder/run.py"
