"""`tokenpo doctor`: what is installed, what each extra lacks, and which device trains."""

import argparse
import os
import platform
import textwrap
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Any

from ..base.errors import TokenPOError
from .options import add_command, need

# Extras that users install; the others are for who works on the package.
EXTRAS = {
    "train": "the embedded engine, eval, compare",
    "lora": "LoRA in the embedded engine",
    "gguf": "import and export of GGUF files",
    "tasks": "the verifier math, Parquet files",
    "hub": "benchmarks from the Hugging Face hub",
    "trl": "training in TRL",
    "verl": "training in verl on Ray",
    "tinker": "a loop on a Tinker server",
    "trackio": "curves in trackio",
    "wandb": "curves in Weights & Biases",
}


def add(commands: Any) -> None:
    add_command(commands, doctor, "show versions, the device, and what each extra lacks")


def doctor(options: argparse.Namespace) -> int:
    need("packaging")
    import torch

    try:
        about = metadata("tokenpo")
    except PackageNotFoundError as error:
        raise TokenPOError("tokenpo is not installed here: pip install . in a clone of the repository") from error
    print(f"tokenpo {about['Version']}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(f"torch {torch.__version__}, {_device(torch)}\n")
    versions, lacking = set(), False
    for extra, purpose in EXTRAS.items():
        have, lack = examine(about.get_all("Requires-Dist") or [], extra)
        versions.update(have)
        lacking = lacking or bool(lack)
        print(_lines(f"{extra:<8} {'lacks ' + ', '.join(lack) if lack else 'ready'} ({purpose})", indent=9))
    print(_lines(f"\nversions {', '.join(sorted(versions, key=str.lower))}", indent=9))
    if lacking:
        print("\npip install 'tokenpo[EXTRA]' adds what an extra lacks.")
    return 0


def examine(required: Iterable[str], extra: str) -> tuple[list[str], list[str]]:
    """The packages of an extra with their versions, and those that are absent or of a version out of its range.

    Args:
        required: requirements as a distribution's metadata lists them (Requires-Dist).
    """
    from packaging.requirements import Requirement

    have, lack = [], []
    for requirement in map(Requirement, required):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            lack.append(f"{requirement.name}{requirement.specifier}")
            continue
        if requirement.specifier.contains(found, prereleases=True):
            have.append(f"{requirement.name} {found}")
        else:
            lack.append(f"{requirement.name}{requirement.specifier} (here {found})")
    return have, lack


def _lines(text: str, indent: int) -> str:
    return textwrap.fill(text, width=110, subsequent_indent=" " * indent, replace_whitespace=False)


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        count, (major, minor) = torch.cuda.device_count(), torch.cuda.get_device_capability()
        return (
            f"{count} x {torch.cuda.get_device_name()} (compute capability {major}.{minor}, CUDA {torch.version.cuda})"
        )
    return f"no CUDA; {torch.get_num_threads()} threads on {os.cpu_count()} CPUs"
