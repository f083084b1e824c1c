#!/usr/bin/env bash
# Packages: accelerate 1.15.0, torch 2.13.0 (CPU), one process.
# Expectation: gather_for_metrics drops what was added to fill the last batch up. One process adds nothing, so all rows of
#   every batch come back, also where each prompt became three responses.
# Behaviour: in the last batch it keeps as many rows as the data set has left, whatever the tensor's rows are: of 6
#   responses to 2 prompts it returns the first 2, both of the first prompt. Full batches come back whole.
# Output seen: batches of 4, 4, 2 prompts with 3 responses each give 12, 12 and 2 rows; gather gives 12, 12 and 6.
# In tokenpo: rows of responses are gathered with Accelerator.gather, and padding rows are marked (docs/trl.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check torch==2.13.0 accelerate==1.15.0
OMP_NUM_THREADS=1 "$folder/venv/bin/python" -W ignore - <<'PY'
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
seen = []
for prompts in accelerator.prepare(DataLoader(range(10), batch_size=4)):
    responses = prompts.repeat_interleave(3)
    kept = accelerator.gather_for_metrics(responses)
    seen.append((len(prompts), len(kept), len(accelerator.gather(responses))))
    print(f"{len(prompts)} prompts, {len(responses)} responses: gather_for_metrics {kept.tolist()}")
assert accelerator.num_processes == 1 and seen == [(4, 12, 12), (4, 12, 12), (2, 2, 6)], seen
PY
