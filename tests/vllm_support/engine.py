"""vLLM's engine and client as far as TRL uses them, around a transformers model: V1's order of sampling, our processor.

Each step divides the logits by the temperature, calls the processors and reports log-probabilities of what is left, as
vLLM's V1 sampler does with `logprobs_mode="processed_logprobs"`. No scheduler, no cache, no GPU: what these show is
that TRL, the processor and the trainer agree on numbers, not that vLLM runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from . import settings


class Engine:
    """In place of `vllm.LLM`.

    Attributes:
        made: every engine.
        deaf: samples without its processors, as a vLLM that lost them would.
        named: the other arguments that it was made with.
        extra_args: of every call.
    """

    made: ClassVar[list[Engine]] = []
    deaf = False

    def __init__(self, *, model: str, seed: int, logprobs_mode: str, **named: Any) -> None:
        from transformers import AutoModelForCausalLM

        self.made.append(self)
        self.named, self.extra_args = named, []
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.processors = [
            _named(name)(settings(logprobs_mode), torch.device("cpu"), False)
            for name in named.get("logits_processors") or ()
        ]
        self._generator = torch.Generator().manual_seed(seed)
        runner = SimpleNamespace(model=self)
        worker = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm_engine = SimpleNamespace(model_executor=worker, model_config=SimpleNamespace(max_model_len=64))

    def load_weights(self, pairs: Iterable[tuple[str, torch.Tensor]]) -> None:
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in pairs:
                own[name].copy_(value)

    def reset_prefix_cache(self) -> None: ...

    @torch.no_grad()
    def generate(self, prompts: list[dict[str, list[int]]], sampling_params: Any, use_tqdm: bool = True) -> list[Any]:
        """One response a prompt; every request keeps its row until all are done."""
        self.extra_args.append(sampling_params.extra_args)
        ends = set(self.model.generation_config.eos_token_id)
        texts = [list(prompt["prompt_token_ids"]) for prompt in prompts]
        said: list[list[int]] = [[] for _ in texts]
        logprobs: list[list[dict[int, Any]]] = [[] for _ in texts]
        self._update(added=[(row, sampling_params, texts[row], said[row]) for row in range(len(texts))])
        for _ in range(sampling_params.max_tokens):
            z = torch.stack([self.model(torch.tensor([a + b])).logits[0, -1] for a, b in zip(texts, said, strict=True)])
            z = z.float() / sampling_params.temperature
            for processor in () if self.deaf else self.processors:
                z = processor.apply(z)
            log_p = z.log_softmax(-1)
            drawn = torch.multinomial(log_p.exp(), 1, generator=self._generator)[:, 0].tolist()
            for row, token in enumerate(drawn):
                if said[row] and said[row][-1] in ends:
                    continue
                said[row].append(token)
                logprobs[row].append({token: SimpleNamespace(logprob=float(log_p[row, token]), rank=1)})
        self._update(removed=range(len(texts)))
        return [
            SimpleNamespace(prompt_token_ids=text, outputs=[SimpleNamespace(token_ids=ids, logprobs=entries)])
            for text, ids, entries in zip(texts, said, logprobs, strict=True)
        ]

    def _update(self, added: Sequence[Any] = (), removed: Iterable[int] = ()) -> None:
        batch = importlib.import_module("vllm.v1.sample.logits_processor").BatchUpdate
        update = batch(batch_size=len(added), removed=list(removed), added=list(added), moved=[])
        for processor in self.processors:
            processor.update_state(update)


class Client:
    """In place of TRL's client of a vLLM server; the server is an `Engine` of the model at `path`."""

    path: str
    processors: Sequence[str] = ()
    bodies: ClassVar[list[Mapping[str, Any]]] = []

    def __init__(self, **rest: Any) -> None:
        mode = "processed_logprobs"
        self.engine = Engine(model=self.path, seed=0, logprobs_mode=mode, logits_processors=self.processors)

    def init_communicator(self, device: Any) -> None: ...

    def get_server_info(self) -> dict[str, Any]:
        return {"model_config": {"logprobs_mode": "processed_logprobs", "logits_processors": list(self.processors)}}

    def update_named_params(self, metadata: Any, pairs: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.engine.load_weights(pairs)

    def reset_prefix_cache(self) -> None: ...

    def generate(self, prompts: list[list[int]], features: Any, *, n: int, generation_kwargs: Any, **body: Any) -> Any:
        self.bodies.append(generation_kwargs)
        # `vllm_xargs` of a request becomes its extra_args: vllm/entrypoints/openai/completion/protocol.py.
        params = SimpleNamespace(
            temperature=body["temperature"],
            max_tokens=body["max_tokens"],
            min_p=body["min_p"],
            extra_args=generation_kwargs.get("vllm_xargs"),
        )
        rows = [{"prompt_token_ids": prompt} for prompt in prompts for _ in range(n)]
        outputs = [out.outputs[0] for out in self.engine.generate(rows, params)]
        return {
            "prompt_ids": prompts,
            "completion_ids": [out.token_ids for out in outputs],
            "logprobs": [[[entry.logprob for entry in place.values()] for place in out.logprobs] for out in outputs],
        }


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
