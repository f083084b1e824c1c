#!/usr/bin/env bash
# Packages: accelerate 1.15.0, torch 2.13.0 (CPU).
# Expectation: `accelerate launch --cpu --num_machines 2 --num_processes 2 --machine_rank R`, with the main process's
#   address, started on both machines makes one run of two processes, as torchrun does.
# Behaviour: each machine trains alone as rank 0 of 1, without an error or a warning. Nothing is averaged, and both save
#   into the same directory as the main process. The launcher takes its simple path and sets neither RANK nor WORLD_SIZE.
# Output seen: machine 0: rank 0 of 1; machine 1: rank 0 of 1; torchrun: rank 0 of 2 and rank 1 of 2.
# In tokenpo: docs/trl.md names torchrun for several CPU processes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check torch==2.13.0 accelerate==1.15.0
cat > "$folder/run.py" <<'PY'
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
print(f"rank {accelerator.process_index} of {accelerator.num_processes}", flush=True)
PY
cd "$folder"
export OMP_NUM_THREADS=1
for machine in 0 1; do
  venv/bin/accelerate launch --cpu --num_machines 2 --num_processes 2 --machine_rank "$machine" --mixed_precision no \
    --dynamo_backend no --main_process_ip 127.0.0.1 --main_process_port 29731 run.py > "machine$machine" 2> "said$machine" &
done
wait
ACCELERATE_USE_CPU=1 venv/bin/torchrun --nproc_per_node 2 --master_port 29732 run.py > torchrun
for machine in 0 1; do
  echo "machine $machine: $(cat "machine$machine")$(grep -i "warn\|error" "said$machine" || true)"
  test "$(cat "machine$machine")" = "rank 0 of 1"
done
echo "torchrun: $(sort torchrun | paste -sd ,)"
test "$(sort torchrun | paste -sd ,)" = "rank 0 of 2,rank 1 of 2"
