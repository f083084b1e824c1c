"""Trains with TRL on responses that a vLLM samples, as far as there is one without a GPU: `vllm_support.engine`.

    served_run.py MODEL_DIR OUT

TRL's own VLLMGeneration drives it in colocate and in server mode; the processors' interfaces are vLLM's own where it is
installed, and stand-ins elsewhere. Makes OUT/served.json and the run directories OUT/colocate and OUT/server.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from trl.generation import vllm_generation as home

from tokenpo.engines.trl import TokenPOTrainer
from tokenpo.engines.vllm import PROCESSOR
from trl_support.real_run import config, drawing, even, prompts, refused
from vllm_support import stand_in
from vllm_support.engine import Client, Engine

HAPO = {
    "method": "hapo", "method_options": {"tau": 0.4}, "steps_per_generation": 2, "max_steps": 4, "temperature": 1.2,
    "use_vllm": True, "vllm_importance_sampling_correction": False,
}  # fmt: skip


def colocated(model: str, out: Path, **more: Any) -> dict[str, Any]:
    engines: list[Engine] = []

    def make(**named: Any) -> Engine:
        engines.append(Engine(**named))
        return engines[-1]

    home.LLM = make
    ran = drawing(model, out, even, **HAPO, vllm_mode="colocate", **more)
    return ran | {"told": engines[0].told, "same": home.LLM is make}


def made(model: str, out: Path, **settings: Any) -> dict[str, Any]:
    """What the engine of a trainer is made with that TRL does not say."""
    named: list[dict[str, Any]] = []

    def make(**given: Any) -> Engine:
        named.append(given)
        return Engine(**given)

    home.LLM = make
    args = config(out, method="grpo", use_vllm=True, vllm_mode="colocate", **settings)
    TokenPOTrainer(model=model, reward_funcs=even, args=args, train_dataset=prompts())
    return {name: named[0].get(name) for name in ("dtype", "logits_processors")}


def server(model: str, out: Path, processors: list[str]) -> dict[str, Any]:
    clients: list[Client] = []

    class Here(Client):
        path = model

        def __init__(self, **rest: Any) -> None:
            super().__init__(**rest)
            clients.append(self)

    Here.processors = processors
    home.VLLMClient = Here
    ran = drawing(model, out, even, **HAPO, vllm_mode="server")
    return ran | {"told": clients[0].bodies}


def main(model: str, out: Path) -> None:
    real = importlib.util.find_spec("vllm") is not None
    if not real:
        sys.modules.update(stand_in.modules())
    home.SamplingParams = importlib.import_module("vllm").SamplingParams
    home.is_vllm_available = lambda: True
    found: dict[str, Any] = {"real": real, "colocate": colocated(model, out / "colocate")}
    found["made"] = {str(half): made(model, out / "made", bf16=half) for half in (False, True)}
    found["server"] = server(model, out / "server", [PROCESSOR])
    found["bare"] = refused(lambda: server(model, out / "bare", []))
    Engine.deaf = True
    found["deaf"] = refused(lambda: colocated(model, out / "deaf"))
    (out / "served.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
