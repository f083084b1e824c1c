from __future__ import annotations

import asyncio
import copy
import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tinker import AdamParams, Datum, ModelInput, SampledSequence, SampleResponse, SamplingClient, TensorData
from tinker import TrainingClient as RealTrainingClient
from tinker.lib.chunked_fwdbwd_helpers import combine_fwd_bwd_output_results
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture
from tinker.types import ForwardBackwardOutput
from tinker.types.client_config_response import ClientConfigResponse
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tokenpo.train.models import LanguageModel, Sampling, load, sample

MODEL = "test/tiny"  # what the server calls its one model


def done(value: Any) -> AwaitableConcurrentFuture:
    future: Future = Future()
    future.set_result(value)
    return AwaitableConcurrentFuture(future)


class Holder:
    """The part of the clients' connection that they use here: a loop on a thread, and the server's settings."""

    def __init__(self, chunk: int) -> None:
        self._client_config = ClientConfigResponse(
            fwdbwd_max_chunk_len=chunk, parallel_fwdbwd_chunks=False, sample_no_retries=True
        )
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run_coroutine_threadsafe(self, coroutine: Any) -> AwaitableConcurrentFuture:
        return AwaitableConcurrentFuture(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def get_telemetry(self) -> None:
        return None


@dataclass(eq=False)
class Cloud:
    """What outlives a session: the models that can be trained, and what was saved.

    Args:
        directory: of the model.
        dtype: that it computes in; what goes over the network is float32 in any case.
        chunk: most sequences of one request.
        seen: asked with the server before each step of its optimiser.
        divides: the loss of each sequence by max(sum of its weights, 1e-9), as SkyRL's jax backend does.
        saved: weights, and the optimiser's state with those to go on from, by path.
        requests: kinds, in order.
    """

    directory: Path
    chunk: int = 5
    seen: Callable[[Weights], None] | None = None
    dtype: str = "float32"
    divides: bool = False
    saved: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def model(self) -> LanguageModel:
        return load(self.directory, dtype=self.dtype)

    def weights(self, path: str = "") -> Weights:
        """A fresh model that is trained, or one that was kept there."""
        weights = Weights(self.model(), self.divides)
        if path:
            model, optimizer = copy.deepcopy(self.saved[path])
            weights.lm.model.load_state_dict(model)
            weights.optimizer.load_state_dict(optimizer)
        return weights

    def keep(self, path: str, weights: Weights) -> None:
        self.saved[path] = copy.deepcopy((weights.lm.model.state_dict(), weights.optimizer.state_dict()))


class Weights:
    """One model that is trained: its gradients add up until the optimiser's step."""

    def __init__(self, lm: LanguageModel, divides: bool = False) -> None:
        self.lm, self.divides = lm, divides
        self.parameters = list(lm.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, weight_decay=0.0)

    def logprobs(self, data: Sequence[Datum]) -> list[Tensor]:
        """Of every target token, at temperature 1."""
        inputs = [torch.tensor(datum.model_input.to_ints()) for datum in data]
        targets = [datum.loss_fn_inputs["target_tokens"].to_torch() for datum in data]
        logits = self.lm.model(input_ids=pad_sequence(inputs, batch_first=True), use_cache=False).logits
        found = logits.log_softmax(-1)
        return [row[: len(t)].gather(-1, t[:, None])[:, 0] for row, t in zip(found, targets, strict=True)]

    def loss(self, logprob: Tensor, datum: Datum, kind: str) -> Tensor:
        given = {name: each.to_torch() for name, each in datum.loss_fn_inputs.items()}
        weights = given.get("weights", torch.ones_like(logprob))
        value = (logprob - given["logprobs"]).exp() * given["advantages"] if kind != "cross_entropy" else logprob
        return -(value * weights).sum() / (weights.sum().clamp(min=1e-9) if self.divides else 1.0)

    def forward_backward(
        self, data: Sequence[Datum], forward_only: bool, kind: str = "cross_entropy"
    ) -> ForwardBackwardOutput:
        with torch.set_grad_enabled(not forward_only):
            logprobs = self.logprobs(data)
            loss = sum(self.loss(lp, datum, kind) for lp, datum in zip(logprobs, data, strict=True))
            if not forward_only:
                loss.backward()
        outputs = [{"logprobs": TensorData.from_torch(lp.detach().float())} for lp in logprobs]
        return ForwardBackwardOutput("ArrayRecord", outputs, {"loss:sum": float(loss.detach())})

    def step(self, params: AdamParams) -> None:
        for group in self.optimizer.param_groups:
            group["lr"], group["eps"], group["weight_decay"] = params.learning_rate, params.eps, params.weight_decay
            group["betas"] = params.beta1, params.beta2
        if params.grad_clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.parameters, params.grad_clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


class TrainingClient(RealTrainingClient):
    def __init__(self, cloud: Cloud, holder: Holder, weights: Weights) -> None:
        super().__init__(holder, 0, "run-1", info=SimpleNamespace())  # pyright: ignore[reportArgumentType]
        self.cloud, self.weights = cloud, weights

    def get_tokenizer(self) -> Any:
        return self.weights.lm.tokenizer

    def _run_fwd_bwd(self, requests: Any, loss_fn: str, loss_fn_config: Any, *, forward_only: bool) -> Any:
        async def run() -> ForwardBackwardOutput:
            parts = []
            for chunk in requests:
                async with self._take_turn(chunk.request_id):
                    self.cloud.requests.append("forward" if forward_only else "backward")
                    parts.append(self.weights.forward_backward(chunk.data, forward_only, loss_fn))
            return combine_fwd_bwd_output_results(parts)

        return self.holder.run_coroutine_threadsafe(run())

    def optim_step(self, optim_params: Any = None, *, adam_params: Any = None) -> Any:
        request = self._get_request_id()

        async def run() -> None:
            async with self._take_turn(request):
                self.cloud.requests.append("step")
                if self.cloud.seen:
                    self.cloud.seen(self.weights)
                self.weights.step(optim_params or adam_params)

        return self.holder.run_coroutine_threadsafe(run())

    def save_state(self, name: str, *args: Any, overwrite: bool = False, **settings: Any) -> Any:
        path = f"tinker://run-1/weights/{name}"
        assert overwrite or path not in self.cloud.saved
        self.cloud.keep(path, self.weights)
        return done(SimpleNamespace(path=path))

    def save_weights_for_sampler(self, name: str, *args: Any, **settings: Any) -> Any:
        path = f"tinker://run-1/sampler_weights/{name}"
        self.cloud.saved[path] = copy.deepcopy(self.weights.lm.model.state_dict())
        return done(SimpleNamespace(path=path))

    def save_weights_and_get_sampling_client(self, *args: Any, **settings: Any) -> Any:
        return done(Sampler(self.cloud, self.holder, copy.deepcopy(self.weights.lm)))


def stopping(lm: LanguageModel, stop: Any) -> LanguageModel:
    """The model whose responses end at the ids it was asked to stop at and nowhere else, as SkyRL's server's do."""
    return dataclasses.replace(lm, eos_ids=tuple(stop or ()))


class Waited(AwaitableConcurrentFuture):
    """Samples that are drawn once a client waits for some of them."""

    def __init__(self, future: Future, draw: Callable[[], None]) -> None:
        super().__init__(future)
        self._draw = draw

    def result(self, timeout: float | None = None) -> Any:
        self._draw()
        return super().result(timeout)

    async def result_async(self, timeout: float | None = None) -> Any:
        self._draw()
        return await super().result_async(timeout)


class Sampler(SamplingClient):
    """Of a snapshot. All that was asked for before a client waits is drawn together.

    Rounding depends on what is drawn together, so that no clock may decide it: a busy machine would change digits.
    """

    def __init__(self, cloud: Cloud, holder: Any, lm: LanguageModel) -> None:
        self.cloud, self.holder, self.lm = cloud, holder, lm
        self._asked: list[tuple[ModelInput, int, Any, asyncio.Future]] = []
        self._sent = self._answered = 0
        self.retry_handler = SimpleNamespace(execute=lambda ask: ask())  # pyright: ignore[reportAttributeAccessIssue]

    def get_tokenizer(self) -> Any:
        return self.lm.tokenizer

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, prompt: ModelInput, num_samples: int, sampling_params: Any
    ) -> Any:
        assert (sampling_params.top_k, sampling_params.top_p) == (-1, 1.0)
        future = super().sample(prompt, num_samples, sampling_params).future()
        self._sent += 1
        return Waited(future, lambda: self.holder.run_coroutine_threadsafe(self._answer(self._sent)))

    async def _sample_async_impl(
        self,
        prompt: ModelInput,
        num_samples: int,
        sampling_params: Any,
        include_prompt_logprobs: bool,
        *args: Any,
        **settings: Any,
    ) -> SampleResponse:
        if include_prompt_logprobs:
            ids = prompt.to_ints()
            data = [Datum(ModelInput.from_ints(ids[:-1]), {"target_tokens": ids[1:]})]
            with torch.no_grad():
                (found,) = Weights(self.lm).logprobs(data) if len(ids) > 1 else (torch.zeros(0),)
            return SampleResponse([], _prompt_logprobs_list=[None, *found.tolist()])
        answer = self.holder.loop.create_future()
        self._asked.append((prompt, num_samples, sampling_params, answer))
        return await answer

    async def _answer(self, sent: int) -> None:
        while len(self._asked) < sent:  # some are on their way
            await asyncio.sleep(0)
        asked, self._answered = self._asked[self._answered : sent], max(self._answered, sent)
        try:
            for response, (*_, answer) in zip(self._drawn([one[:3] for one in asked]), asked, strict=True):
                answer.set_result(response)
        except BaseException as error:
            for *_, answer in asked:
                if not answer.done():
                    answer.cancel() if isinstance(error, asyncio.CancelledError) else answer.set_exception(error)

    def _drawn(self, asked: Sequence[tuple[ModelInput, int, Any]]) -> list[SampleResponse]:
        if not asked:
            return []
        _, each, params = asked[0]
        alike = {(number, one.max_tokens, one.temperature, str(one.stop)) for _, number, one in asked}
        assert len(alike) == 1, alike
        # Without a seed a server draws as it likes.
        seeds = [place if one.seed is None else one.seed for place, (_, _, one) in enumerate(asked)]
        how = Sampling(params.max_tokens, params.temperature)
        lm = stopping(self.lm, params.stop)
        out = sample(lm, [prompt.to_ints() for prompt, *_ in asked], each, how, streams=seeds)
        rows = []
        for ids, lp, mask, finished in zip(out.token_ids, out.logprob, out.mask, out.finished, strict=True):
            tokens, logprobs = ids[mask].tolist(), lp[mask].tolist()
            reason = "stop" if finished else "length"
            rows.append(SampledSequence(reason, str(len(rows)), _tokens_list=tokens, _logprobs_list=logprobs))
        return [SampleResponse(rows[place : place + each]) for place in range(0, len(rows), each)]


class Service:
    """A session."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.holder = cloud, Holder(cloud.chunk)

    def create_lora_training_client(self, base_model: str, rank: int = 32, seed: int | None = None) -> Any:
        assert base_model == MODEL
        return done(TrainingClient(self.cloud, self.holder, self.cloud.weights()))

    def create_training_client_from_state_with_optimizer(self, path: str) -> Any:
        return done(TrainingClient(self.cloud, self.holder, self.cloud.weights(path)))

    def create_sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> Any:
        lm = self.cloud.model()
        if model_path:
            lm.model.load_state_dict(self.cloud.saved[model_path])
        return done(Sampler(self.cloud, self.holder, lm))
