"""A rollout server on the CPU: an actor with the model that answers what arrives together as one batch."""

import asyncio
import json
import os
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

WAIT = 0.05  # seconds that a batch waits for more


@ray.remote
class Server:
    def __init__(self, directory: str, max_new_tokens: int, seed: int) -> None:
        torch.set_num_threads(1)
        from tokenpo.train import models as lm

        self.lm = lm.load(directory, device="cpu")
        self.max_new_tokens, self.seed, self.number, self.global_steps = max_new_tokens, seed, 0, 0
        self.waiting: list[tuple[list[int], dict, asyncio.Future]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **_: Any) -> TokenOutput:
        if "prompt_logprobs" in sampling_params:
            return self._scored(list(prompt_ids), sampling_params["prompt_logprobs"])
        answer: asyncio.Future = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), sampling_params, answer))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(WAIT, self._answer)
        return await answer

    @torch.no_grad()
    def _scored(self, ids: list[int], most: int) -> TokenOutput:
        """A teacher's: entry t is of token t + 1, and the last is none."""
        assert most == 0
        found = self.lm.model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        told = [*found.gather(1, torch.tensor(ids[1:])[:, None]).tolist(), [0.0]]
        shown = {"prompt_ids": [[i] for i in [*ids[1:], 0]], "prompt_logprobs": told}
        return TokenOutput(token_ids=[0], stop_reason="completed", extra_fields=shown)

    def _answer(self) -> None:
        batch, self.waiting = self.waiting, []
        kinds: dict[str, list[tuple[list[int], dict, asyncio.Future]]] = {}
        for item in batch:
            kinds.setdefault(repr(sorted(item[1].items())), []).append(item)
        for alike in kinds.values():
            try:
                self._sample(alike)
            except BaseException as error:
                for _, _, answer in alike:
                    answer.set_exception(error)

    def _sample(self, alike: list[tuple[list[int], dict, asyncio.Future]]) -> None:
        from tokenpo.hosts.vllm import read
        from tokenpo.train.models import Sampling, sample

        settings = alike[0][1]
        self.number += 1
        if "TOKENPO_TEST_SEEN" in os.environ:
            with open(os.environ["TOKENPO_TEST_SEEN"], "a") as stream:  # noqa: PTH123 - one line, from an actor
                stream.write(json.dumps(settings) + "\n")
        sampling = Sampling(self.max_new_tokens, float(settings["temperature"]), self.seed * 1000003 + self.number)
        heat = read(settings.get("extra_args"))
        rule = None if heat is None else lambda entropy, base: base * heat(entropy)
        drawn = sample(self.lm, [prompt for prompt, _, _ in alike], 1, sampling, rule=rule)
        for row, (_, _, answer) in enumerate(alike):
            mask = drawn.mask[row]
            answer.set_result(
                TokenOutput(
                    token_ids=drawn.token_ids[row][mask].tolist(),
                    log_probs=drawn.logprob[row][mask].tolist() if settings.get("logprobs") else None,
                    stop_reason="completed",
                    extra_fields={"global_steps": self.global_steps},
                )
            )

    async def load_weights(self, weights: dict[str, torch.Tensor], global_steps: int) -> None:
        with torch.no_grad():
            missing, unknown = self.lm.model.load_state_dict(weights, strict=False)
        assert not unknown and all("lm_head" in name for name in missing), (missing, unknown)
        self.global_steps = global_steps

    async def wake_up(self, **_: Any) -> None: ...

    async def sleep(self) -> None: ...

    async def clear_kv_cache(self) -> None: ...


class Replica(RolloutReplica):
    async def launch_servers(self) -> None:
        name = f"cpu_server_{self.replica_rank}{self.name_suffix}"
        server = Server.options(name=name, num_cpus=0, max_concurrency=1000).remote(
            self.model_config.path, self.config.response_length, self.replica_rank
        )
        self.servers, self._server_handle, self._server_address = [server], server, name


class Adapter(BaseRollout):
    """In each worker: hands the weights to the replica's server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        size = self.config.tensor_model_parallel_size
        self.replica, self.first = divmod(int(os.environ["RANK"]), size)

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int = 0, **_: Any) -> None:
        full = {name: tensor.detach().clone() for name, tensor in weights}  # every rank takes part in the gathering
        if self.first == 0:
            await ray.get_actor(f"cpu_server_{self.replica}").load_weights.remote(full, global_steps or 0)
