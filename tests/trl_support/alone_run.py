"""Says whether accelerate's launcher left this process alone; the launcher is asked by the test."""

from accelerate import PartialState

from tokenpo.engines.trl.contract import launched_alone

processes = PartialState(cpu=True).num_processes
print(f"processes {processes} alone {launched_alone(processes)}", flush=True)
