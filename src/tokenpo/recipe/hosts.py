"""Descriptions of the engines that can train a recipe; their code is in `engines`.

A new engine is one value here and a folder `engines/NAME` with a module `launch` (see `engines.launch`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Host:
    name: str  # name of its folder, of its value of `--engine` and of its section in a recipe
    words: str  # its name in messages
    resume: str  # how to resume its runs, for messages
    marker: str = ""  # the file or folder that marks its runs, below the run directory; "" for none
    records: str = ""  # where the records of its runs lie, below the run directory
    package: str = ""  # the package that must be installed; "" needs none
    commanded: bool = False  # trains in processes of its own, so that `tokenpo launch` can print their command
    one_process: str = ""  # what to write in place of `--processes N`; "" allows several
    compared: Mapping[str, object] = field(default_factory=dict)  # settings of a comparison that the user leaves open
    changeable: bool = False  # a run can be resumed with other settings
    goes_on: bool = False  # the command that began a run also continues it
    whole_machine: bool = False  # a run takes the whole machine, so that runs come one after the other
    own_metrics: bool = False  # logs its own metrics: a comparison leaves out the package's metrics that no run has

    def again(self, directory: object) -> str:
        """The command that resumes a run of the package's own loop."""
        return f"tokenpo train --resume {directory}" + ("" if self is EMBEDDED else f" --engine {self.name}")


EMBEDDED = Host(
    "embedded",
    "the embedded engine",
    resume="leave out --engine",
    one_process="leave it out, or add --engine trl",
    compared={"threads": 1},
    changeable=True,
)
TINKER = Host(
    "tinker",
    "the Tinker engine",
    resume="resume it with --engine tinker",
    marker="service.json",
    package="tinker",
    one_process="leave it out: the server has its own",
    compared={"threads": 1},
)
TRL = Host(
    "trl",
    "the TRL engine",
    resume="resume it with --engine trl",
    marker="trl",
    records="trl/tokenpo",
    package="trl",
    commanded=True,
    compared={"threads": 1, "evaluate.every": 0},  # it evaluates before and after
)
VERL = Host(
    "verl",
    "the verl engine",
    resume="give its recipe with --engine verl --set verl.trainer.resume_mode=auto and this --out",
    marker="trace-parts",
    package="verl",
    commanded=True,
    one_process="leave it out, and write trainer.n_gpus_per_node and nnodes into the recipe's section [verl.trainer]",
    # It has no setting for threads, and validates greedily or by samples.
    compared={"evaluate.samples": 0, "verl.trainer.resume_mode": "auto"},
    goes_on=True,
    whole_machine=True,
    own_metrics=True,
)
HOSTS: Mapping[str, Host] = {host.name: host for host in (EMBEDDED, TINKER, TRL, VERL)}
