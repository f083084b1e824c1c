#!/usr/bin/env bash
# Package: skyrl-gym 0.4.0, the grader of LiveCodeBench programs (envs/lcb), tests of the kind "stdin".
# Expectation: a right program passes, however it reads its input.
# Behaviour: standard input is a text object put in its place. What reads text passes, open(0) too; what reads bytes
#   (sys.stdin.buffer, which contest programs use because it is fast) fails, and so does writing to sys.stdout.buffer.
#   The reward says 0 as for a wrong program: a policy is taught to avoid it.
# Output seen: input, sys.stdin.readline, sys.stdin.read, open(0) 1; sys.stdin.buffer.read and .readline, stdout.buffer 0.
# In tokenpo: it ships no grader of programs; docs/verifiers.md says what to look for in one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check skyrl-gym==0.4.0
cat > "$folder/run.py" <<'PY'
from skyrl_gym.envs.lcb.livecodebench import compute_score

TESTS = [{"input": "5 7\n", "output": "12", "testtype": "stdin", "metadata": {}}]
ADD = "print(sum(map(int, {}.split())))"
PROGRAMS = {
    "input()": (ADD.format("input()"), 1),
    "sys.stdin.readline": ("import sys\n" + ADD.format("sys.stdin.readline()"), 1),
    "sys.stdin.read": ("import sys\n" + ADD.format("sys.stdin.read()"), 1),
    "open(0)": (ADD.format("open(0).read()"), 1),
    "sys.stdin.buffer.readline": ("import sys\n" + ADD.format("sys.stdin.buffer.readline()"), 0),
    "sys.stdin.buffer.read": ("import sys\n" + ADD.format("sys.stdin.buffer.read()"), 0),
    "sys.stdout.buffer": ("import sys\na, b = map(int, input().split())\nsys.stdout.buffer.write(b'%d' % (a + b))", 0),
    "wrong": ("print(13)", 0),
}

if __name__ == "__main__":
    seen = {name: compute_score(f"```python\n{code}\n```", TESTS)[1] for name, (code, _) in PROGRAMS.items()}
    for name, score in seen.items():
        print(f"{name}: {score:g}")
    assert seen == {name: expected for name, (_, expected) in PROGRAMS.items()}
PY
"$folder/venv/bin/python" -W ignore "$folder/run.py"
