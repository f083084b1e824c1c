"""Trains with TRL on responses that a real vLLM samples, in the same process or in a server.

    trl_run.py MODEL OUT [URL]

Without a URL TRL makes its vLLM itself; with one, TRL talks to the server there. No weights can be sent to a server on
a CPU (TRL: NCCL only), so its run moves none. Makes OUT/colocate.json or OUT/server.json, and run directories.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import vllm
from trl.generation import vllm_generation as home

from tokenpo.hosts.trl import TokenPOTrainer
from trl_support.real_run import drawing, refused
from trl_support.small import config, even, prompts

HAPO = {
    "method": "hapo", "method_options": {"tau": 0.4}, "steps_per_generation": 2, "max_steps": 4, "temperature": 1.2,
    "use_vllm": True, "vllm_importance_sampling_correction": False,
}  # fmt: skip
ENGINE = {"vllm_max_model_length": 64, "vllm_gpu_memory_utilization": 0.3}


class Told(logging.Handler):
    """What tokenpo warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("tokenpo").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def engine(**fixed: Any) -> Any:
    """vLLM's `LLM`, small, and with these arguments whatever else is asked for."""
    return lambda **named: vllm.LLM(**{**named, "enforce_eager": True, "max_num_seqs": 16, **fixed})


def colocated(model: str, out: Path) -> dict[str, Any]:
    home.LLM = engine()
    ran = drawing(model, out / "colocate", even, **HAPO, **ENGINE, vllm_mode="colocate")
    return ran | {"gaps": gaps(model, out)}


def gaps(model: str, out: Path) -> dict[str, Any]:
    """What is said of a vLLM whose precision is not the trainer's."""
    home.LLM = engine(dtype="bfloat16")
    found = {}
    kinds = {"weighed": {}, "unweighed": {"vllm_importance_sampling_correction": False}, "half": {"bf16": True}}
    for name, more in kinds.items():
        told = Told()
        args = config(out / name, method="grpo", max_steps=1, use_vllm=True, vllm_mode="colocate", **ENGINE, **more)
        trainer = TokenPOTrainer(model=model, reward_funcs=even, args=args, train_dataset=prompts())
        found[name] = {"said": refused(trainer.train), "warned": told.lines}
    return found


def served(model: str, out: Path, url: str) -> dict[str, Any]:
    still = {"learning_rate": 0.0, "vllm_mode": "server", "vllm_server_base_url": url}

    class Client(home.VLLMClient):
        def init_communicator(self, device: Any) -> None: ...

        def update_named_params(self, metadata: Any, pairs: Any) -> None: ...

    home.VLLMClient = Client
    told = Told()
    return drawing(model, out / "server", even, **HAPO, **still) | {"warned": told.lines}


if __name__ == "__main__":
    model, out, *url = sys.argv[1:]
    kind = "server" if url else "colocate"
    found = served(model, Path(out), *url) if url else colocated(model, Path(out))
    (Path(out) / f"{kind}.json").write_text(json.dumps(found))
