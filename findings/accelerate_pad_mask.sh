#!/usr/bin/env bash
# Packages: accelerate 1.15.0, torch 2.13.0 (CPU, gloo), two processes.
# Expectation: pad_across_processes fills a boolean mask up with False and leaves it boolean.
# Behaviour: on the rank whose tensor is shorter the mask becomes int64, on the other it stays boolean. As an index the
#   integers pick rows 1 and 0 where the mask would drop a row, so that rewards change places without an error.
# Output seen: rank 0 int64 [1, 0], rewards[mask] = [9.0, 7.0]; rank 1 bool [True, True]; torch.uint8 stays uint8.
# In tokenpo: masks become uint8 before they are padded and gathered, and boolean again afterwards (hosts/trl).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check torch==2.13.0 accelerate==1.15.0
cat > "$folder/run.py" <<'PY'
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
mask = accelerator.pad_across_processes(torch.ones(1 + rank, dtype=torch.bool), dim=0)
byte = accelerator.pad_across_processes(torch.ones(1 + rank, dtype=torch.uint8), dim=0)
rewards = torch.tensor([7.0, 9.0])
print(f"rank {rank}: {mask.dtype} {mask.tolist()}, rewards[mask] = {rewards[mask].tolist()}, {byte.dtype}", flush=True)
assert byte.dtype == torch.uint8 and accelerator.num_processes == 2
if rank == 0:
    assert mask.dtype == torch.int64 and rewards[mask].tolist() == [9.0, 7.0]
else:
    assert mask.dtype == torch.bool and rewards[mask].tolist() == [7.0, 9.0]
PY
ACCELERATE_USE_CPU=1 OMP_NUM_THREADS=1 "$folder/venv/bin/torchrun" --nproc_per_node 2 "$folder/run.py"
