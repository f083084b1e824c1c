"""Says whether accelerate's launcher left this process alone; the launcher is asked by the test."""

import os

from accelerate import PartialState

from tokenpo.engines.trl.contract import launched_alone

processes = PartialState(cpu=True).num_processes
# In one write: print's newline comes apart, and two processes share the stream.
os.write(1, f"processes {processes} alone {launched_alone(processes)}\n".encode())
