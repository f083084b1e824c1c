"""`tokenpo import`: make a model directory of a GGUF file."""

from __future__ import annotations

import argparse
from typing import Any

from .options import add_command, argument, need_engine

EXAMPLES = """examples:
  tokenpo import SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
  tokenpo eval models/smollm2 --task sums

The weights are dequantised. The tokenizer cuts texts by the rule that the file names; an unknown rule is refused.
"""


def add(commands: Any) -> None:
    parser = add_command(commands, import_model, "make a model directory of a GGUF file", EXAMPLES, name="import")
    argument(parser, "file", "FILE", "a .gguf file that holds a whole model")
    argument(parser, "dir", "DIR", "directory to write, new or empty")
    argument(
        parser, "--dtype", "NAME", "of the weights: float32, bfloat16, float16; default: float32", default="float32"
    )
    parser.set_defaults(places={"dir": "DIR"})


def import_model(options: argparse.Namespace) -> int:
    need_engine()
    from ..train.models.gguf_import import import_gguf

    about = import_gguf(options.file, options.dir, options.dtype)
    print("\n".join(f"{key:<13} {value}" for key, value in about.items()))
    print(f"written to {options.dir}")
    return 0
