"""Trains with TRL on responses that a vLLM samples, as far as there is one without a GPU: `vllm_support.engine`.

    served_run.py MODEL_DIR OUT

TRL's own VLLMGeneration drives it in colocate and in server mode; the processors' interfaces are vLLM's own where it is
installed, and stand-ins elsewhere. Makes OUT/served.json and the run directories OUT/colocate and OUT/server.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from trl.generation import vllm_generation as home

from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.hosts.vllm import PROCESSOR
from trl_support.real_run import drawing, refused
from trl_support.small import config, even, prompts
from vllm_support import stand_in
from vllm_support.engine import Client, Engine

HAPO = {
    "method": "hapo", "method_options": {"tau": 0.4}, "steps_per_generation": 2, "max_steps": 4, "temperature": 1.2,
    "use_vllm": True, "vllm_importance_sampling_correction": False,
}  # fmt: skip


def colocated(model: str, out: Path) -> dict[str, Any]:
    home.LLM = Engine
    ran = drawing(model, out, even, **HAPO, vllm_mode="colocate")
    return ran | {"told": Engine.made[-1].extra_args, "same": home.LLM is Engine}


def made(model: str, out: Path, **settings: Any) -> dict[str, Any]:
    """The arguments of a trainer's engine that TRL leaves out."""
    home.LLM = Engine
    args = config(out, method="grpo", use_vllm=True, vllm_mode="colocate", **settings)
    TokenPOTrainer(model=model, reward_funcs=even, args=args, train_dataset=prompts())
    return {name: Engine.made[-1].named.get(name) for name in ("dtype", "logits_processors")}


def server(model: str, out: Path, *processors: str) -> dict[str, Any]:
    home.VLLMClient, Client.path, Client.processors = Client, model, processors
    ran = drawing(model, out, even, **HAPO, vllm_mode="server")
    return ran | {"told": Client.bodies}


def main(model: str, out: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        sys.modules.update(stand_in.modules())
    home.SamplingParams = importlib.import_module("vllm").SamplingParams
    home.is_vllm_available = lambda: True
    found: dict[str, Any] = {"colocate": colocated(model, out / "colocate")}
    found["made"] = {str(half): made(model, out / "made", bf16=half) for half in (False, True)}
    found["server"] = server(model, out / "server", PROCESSOR)
    found["bare"] = refused(lambda: server(model, out / "bare"))
    Engine.deaf = True
    found["deaf"] = refused(lambda: colocated(model, out / "deaf"))
    (out / "served.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
