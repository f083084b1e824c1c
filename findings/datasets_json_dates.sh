#!/usr/bin/env bash
# Packages: datasets 5.2.0 on pyarrow 26.0.1, load_dataset("json") on .jsonl.
# Expectation: a quoted answer stays text: "2024-01-01" comes back as "2024-01-01", as "007", "1e3" and "10:30" do.
# Behaviour: a column whose every text is a date becomes timestamps, and a reward function gets datetime objects: no
#   response equals one, and str() adds a time of day. One answer of another kind keeps the whole column text. Rows given
#   to Dataset.from_list stay text, so the same data differ by how they came in.
# Output seen: 2024-01-01 -> datetime(2024, 1, 1, 0, 0); with "unknown" among the rows, or from_list: text.
# In tokenpo: a recipe's .jsonl is read by Python's json and stays text; docs/trl.md says it for a TRL data set.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1
HF_HOME="$folder" HF_HUB_OFFLINE=1 FOLDER="$folder" "$folder/venv/bin/python" - <<'PY'
import json
import os
from pathlib import Path

from datasets import Dataset, disable_progress_bars, load_dataset

disable_progress_bars()


def column(name, answers):
    path = Path(os.environ["FOLDER"], f"{name}.jsonl")
    path.write_text("".join(json.dumps({"answer": x}) + "\n" for x in answers))
    rows = load_dataset("json", data_files=str(path), split="train")
    print(f"{answers} -> {rows.features['answer'].dtype}: {rows['answer'][:]}")
    return rows["answer"][:]


dates = ["2024-01-01", "2024-02-29"]
kept = [column(f"kept{i}", x) == x for i, x in enumerate((["007", "7"], ["1e3"], ["10:30"], [*dates, "unknown"]))]
changed = column("dates", dates)
listed = Dataset.from_list([{"answer": x} for x in dates])["answer"][:]
print("from_list:", listed)
assert all(kept) and listed == dates and [type(x).__name__ for x in changed] == ["datetime"] * 2
assert str(changed[0]) == "2024-01-01 00:00:00"
PY
