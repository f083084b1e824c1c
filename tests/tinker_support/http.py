"""The server over HTTP: the routes that the real clients ask, with what `server.py` computes behind them.

Samples are drawn one request at a time, so that rounding does not depend on when requests come.
"""

import copy
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
from tinker import AdamParams, Datum, ModelInput, TensorData
from tinker.proto import tinker_public_pb2 as proto

from tokenpo.train.models import Sampling, sample

from .server import MODEL, Cloud, Weights, stopping

# (status, headers, body) in place of an answer, None for a connection that is reset.
Fault = Callable[[str, bytes], "tuple[int, dict[str, str], bytes] | None"]
JSON, PROTO = {"Content-Type": "application/json"}, {"Content-Type": "application/x-protobuf"}


def whole(kind: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """An answer as it is."""
    return 200, PROTO if kind in ("sample", "forward", "backward") else JSON, body


class Wire:
    """A server on a port of this machine; `fault` takes the kind of an answer and its bytes."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.lock = cloud, threading.Lock()
        self.fault: Fault = whole
        self.models: dict[str, Weights] = {}
        self.samplers: dict[str, Any] = {}
        self.answers: dict[str, tuple[str, bytes]] = {}
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body waits 40 ms for the headers to be acknowledged

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                route = self.path.removeprefix("/api/v1/")
                with wire.lock:
                    kind, told = wire.routed(route, body)
                    found = wire.fault(kind, told)
                if found is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, headers, told = found
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(told))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(told)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def routed(self, route: str, body: bytes) -> tuple[str, bytes]:
        """The kind of an answer and its bytes. What is computed waits under a number until it is fetched."""
        if route == "forward_backward":
            return self.later(*self.passed(body))
        asked = json.loads(body) if body else {}
        if route == "retrieve_future":
            return self.answers[asked["request_id"]]
        if route == "asample":
            ids = [str(number) for number in range(asked["num_samples"])]
            return self.later("sample", self.sampled(asked), sample_sequence_ids=ids)
        if route == "client/config":
            return route, b'{"proto_write_fwdbwd": true, "fwd_via_fwdbwd": true}'  # the oldest client asks
        made = getattr(self, route.replace("/", "_"), None)
        if made is None:
            return route, b"{}"
        kind, told = made(SimpleNamespace(**asked))
        return self.later(kind, json.dumps(told).encode()) if kind else (route, json.dumps(told).encode())

    def later(self, kind: str, body: bytes, **more: Any) -> tuple[str, bytes]:
        number = str(len(self.answers))
        self.answers[number] = kind, body
        return "promise", json.dumps({"request_id": number, **more}).encode()

    def create_session(self, asked: Any) -> tuple[str, Any]:
        return "", {"session_id": "session"}

    def create_model(self, asked: Any) -> tuple[str, Any]:
        self.models[name := f"run-{len(self.models)}"] = self.cloud.weights()
        return "create", {"model_id": name, "type": "create_model"}

    def get_info(self, asked: Any) -> tuple[str, Any]:
        data = {"arch": "tiny", "model_name": MODEL, "tokenizer_id": str(self.cloud.directory)}
        return "", {"model_data": data, "model_id": asked.model_id, "type": "get_info"}

    def weights_info(self, asked: Any) -> tuple[str, Any]:
        return "", {"base_model": MODEL, "is_lora": True, "lora_rank": 8}

    def optim_step(self, asked: Any) -> tuple[str, Any]:
        given = {key: value for key, value in asked.adam_params.items() if key in AdamParams.model_fields}
        self.models[asked.model_id].step(AdamParams(**given))
        return "step", {"metrics": {}, "type": "optim_step"}

    def save_weights(self, asked: Any) -> tuple[str, Any]:
        path = f"tinker://run/weights/{asked.path}"
        self.cloud.keep(path, self.models[asked.model_id])
        return "save", {"path": path, "type": "save_weights"}

    def load_weights(self, asked: Any) -> tuple[str, Any]:
        # The oldest clients load into a model that they have made.
        name = getattr(asked, "model_id", None) or f"{asked.session_id}:train:{asked.model_seq_id}"
        self.models[name] = self.cloud.weights(asked.path)
        return "load", {"path": asked.path, "type": "load_weights"}

    def save_weights_for_sampler(self, asked: Any) -> tuple[str, Any]:
        name = f"sampler-{len(self.samplers)}"
        self.samplers[name] = copy.deepcopy(self.models[asked.model_id].lm)
        if getattr(asked, "path", None):
            return "final", {"path": f"tinker://run/sampler_weights/{asked.path}", "type": "save_weights_for_sampler"}
        return "sampler", {"path": None, "sampling_session_id": name, "type": "save_weights_for_sampler"}

    def passed(self, body: bytes) -> tuple[str, bytes]:
        asked = proto.ForwardBackwardRequest.FromString(body)
        data = []
        for one in asked.data:
            tokens = [t for x in one.model_input for t in np.frombuffer(x.encoded_text.tokens, np.int32).tolist()]
            inputs = {}
            for name, x in one.loss_fn_inputs.items():
                kind = np.float32 if x.dtype == proto.DTYPE_FLOAT32 else np.int64
                inputs[name] = TensorData.from_numpy(np.frombuffer(x.dense, kind))
            data.append(Datum(ModelInput.from_ints(tokens), inputs))
        found = self.models[asked.model_id].forward_backward(data, asked.forward_only, asked.loss_fn)
        told = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics=found.metrics)
        rows = [out["logprobs"].to_numpy().astype(np.float32) for out in found.loss_fn_outputs]
        record = told.loss_fn_outputs.add(num_datums=len(rows))
        field = record.fields["logprobs"]
        field.dtype, field.data = proto.DTYPE_FLOAT32, b"".join(row.tobytes() for row in rows)
        field.offsets = np.cumsum([0, *(row.nbytes for row in rows)]).astype(np.int64).tobytes()
        return "forward" if asked.forward_only else "backward", told.SerializeToString()

    def sampled(self, asked: dict[str, Any]) -> bytes:
        params = asked["sampling_params"]
        lm = stopping(self.samplers[asked["sampling_session_id"]], params.get("stop"))
        prompt = [token for chunk in asked["prompt"]["chunks"] for token in chunk["tokens"]]
        how = Sampling(params["max_tokens"], params["temperature"])
        out = sample(lm, [prompt], asked["num_samples"], how, streams=[params["seed"]])
        told = proto.SampleResponse()
        for ids, lp, mask, finished in zip(out.token_ids, out.logprob, out.mask, out.finished, strict=True):
            told.sequences.add(
                stop_reason=proto.STOP_REASON_STOP if finished else proto.STOP_REASON_LENGTH,
                tokens=ids[mask].numpy().astype(np.int32).tobytes(),
                logprobs=lp[mask].numpy().astype(np.float32).tobytes(),
            )
        return told.SerializeToString()
