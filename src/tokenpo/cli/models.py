"""`tokenpo import`, `export` and `push`: models come from GGUF files, and go to them or to a hub."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from .options import add_command, need_engine

IMPORT = """examples:
  tokenpo import SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
  tokenpo eval models/smollm2 --task sums

The weights are dequantised. The tokenizer cuts texts by the rule that the file names; an unknown rule is rejected.
"""
EXPORT = """examples:
  tokenpo export runs/smollm2-dapo-seed0 trained.gguf
  tokenpo export runs/smollm2-dapo-seed0 trained-q8.gguf --as q8_0
"""
PUSH = """examples:
  tokenpo push runs/smollm2-dapo-seed0 me/smollm2-sums

Log in first with `hf auth login`, or set HF_TOKEN. The model card is the README.md in RUN/model: read it before.
"""


def add(commands: Any) -> None:
    parser = add_command(commands, import_model, "make a model directory of a GGUF file", IMPORT, name="import")
    parser.take("file", "FILE", "a .gguf file that holds a whole model")
    parser.take("dir", "DIR", "directory to write, new or empty")
    dtype = "of the weights: float32, bfloat16, float16; default: float32"
    parser.take("--dtype", "NAME", dtype, default="float32")

    parser = add_command(commands, export, "write a model as a GGUF file, for llama.cpp", EXPORT)
    parser.take("model", "MODEL", "the directory of a run or of a model, or a hub id")
    parser.take("file", "FILE", "the .gguf file to write")
    stored = "how matrices are stored: f32, f16, bf16, q8_0; default: f16"
    parser.take("--as", "NAME", stored, default="f16", dest="stored")

    parser = add_command(commands, push, "upload a run's model, with its card, to a hub", PUSH)
    parser.take("model", "MODEL", "the directory of a run or of a model")
    parser.take("name", "OWNER/NAME", "the repository on the hub; it is made if it doesn't exist")
    parser.flag("--public", "make a new repository public; default: private")


def import_model(options: argparse.Namespace) -> int:
    need_engine()
    from ..train.models.gguf import import_gguf

    return _tell(import_gguf(options.file, options.dir, options.dtype), options.dir)


def export(options: argparse.Namespace) -> int:
    need_engine()
    from ..train.models import locate
    from ..train.models.gguf import export_gguf

    return _tell(export_gguf(locate(options.model), options.file, options.stored), options.file)


def push(options: argparse.Namespace) -> int:
    need_engine()
    from ..train.models import locate

    directory = Path(locate(options.model))
    if not any((directory / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise TokenPOError(f"{directory} is not the directory of a model, with a config.json: give that, or a run's")
    make_repository(options.name, options.public)
    upload(directory, options.name)
    return 0


def make_repository(name: str, public: bool = False) -> None:
    """Makes a repository on the hub, unless it exists; TokenPOError without a login, a right or a connection."""
    from huggingface_hub import HfApi

    with _uploading(name):
        HfApi().create_repo(name, private=not public, exist_ok=True)


def upload(directory: Path, name: str) -> None:
    """Uploads the files of a model to a repository that exists, and prints its address; raises as make_repository."""
    from huggingface_hub import HfApi

    with _uploading(name):
        message = "Trained by tokenpo"
        written = HfApi().upload_folder(repo_id=name, folder_path=directory, commit_message=message)
    print(f"uploaded to {written}")


@contextmanager
def _uploading(name: str) -> Iterator[None]:
    from httpx import HTTPError
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except (HTTPError, HFValidationError, OSError) as error:
        reason = " ".join(str(error).split())
        remedy = "log in with `hf auth login`, or set HF_TOKEN, and check the name"
        raise TokenPOError(f"can't upload to {name}: {reason}; {remedy}") from error


def _tell(about: Mapping[str, str], written: Any) -> int:
    print("\n".join(f"{key:<13} {value}" for key, value in about.items()))
    print(f"written to {written}")
    return 0
