"""Trains recipes on a server: it samples and updates; verification and credit run here."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx
import tinker
import torch
from torch import Tensor

from ....base.errors import TokenPOError, Unsupported, present
from ....base.files import json_object, write_whole
from ....base.text import first_line
from ....core.learner import Step
from ....core.seeds import keyed_seed
from ....core.types import Policy, Rollouts
from ....hosts.tinker.answers import SERVICE, Answers, value
from ....hosts.tinker.gradient import CROSS_ENTROPY, probe
from ....hosts.tinker.responses import RATIO, table_of
from ....hosts.tinker.trainer import Prompts, Trainer, score
from ....records import Tracer
from ....records.trace import require_same_tokens
from ...models import Samples, Sampling, Vocabulary
from ...models.vocabulary import set_variables
from ...recipe import SERVER, TINKER
from ...recipe.config import Config
from ...recipe.plan import Plan
from ...tasks import Split, Task, ToolTask
from .. import checkpoint
from ..checkpoint import Progress
from ..evaluation import Evaluation, evaluate
from ..rollout import Draw, Experience, credit_inputs, gather, pose, verify
from ..step import FEWER
from ..trackers import require_trackers
from .needs import accepted


class Server:
    """The backend on a server, which keeps the weights and the optimiser's state.

    A resumed run makes equal updates if the server is deterministic.
    """

    name: ClassVar[str] = TINKER
    probed: ClassVar[bool] = False  # Thinking Machines' service too; any other server always is
    smaller: ClassVar[str] = FEWER

    def __init__(self, plan: Plan, task: Task, session: tinker.ServiceClient) -> None:
        self.config, self.objective, self.task, self.session = plan.config, plan.objective, task, session
        self.answers = Answers.of(plan.config.tinker.base_url, plan.config.tinker.seconds)
        self.sampler: tuple[int, tinker.SamplingClient] | None = None
        self.scorers: dict[str, tinker.SamplingClient] = {}
        self.saved = ""

    @classmethod
    def open(cls, plan: Plan) -> Server:
        accepted(plan)
        require_trackers(plan.config.output.track)
        if plan.config.threads is not None:
            torch.set_num_threads(plan.config.threads)
        task = plan.make_task()
        try:
            if isinstance(task, ToolTask):
                raise Unsupported(f"task {task.name!r} calls a tool, which a Tinker server can't: leave out --engine")
            return cls(plan, task, connect(plan.config))
        except BaseException:
            task.close()
            raise

    def start(self, saved: Path | None, progress: Progress) -> None:
        config, self.saved = self.config, progress.remote
        other = self.answers.address != SERVICE
        loss = probe(self.training_client, self.answers) if other or self.probed else CROSS_ENTROPY
        self.client = self.training_client(self.saved)
        self.trainer = Trainer(
            self.client,
            self.objective,
            length=config.rollout.max_new_tokens,
            seed=config.seed,
            adam=self.adam,
            ratio=dataclasses.replace(RATIO, tolerance=config.train.ratio_tolerance or RATIO.tolerance),
            kl=config.train.kl_hold(),
            loss=loss,
            answers=self.answers,
        )
        self.learner = self.trainer.learner
        tokenizer: Any = self.answers.one(self.client.get_tokenizer, "in giving its tokenizer")
        set_variables(tokenizer, config.model.template)
        self.vocabulary = Vocabulary(tokenizer, (tokenizer.eos_token_id,))
        self.ends = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        if "ref_logprob" in self.objective.needs:
            self.scorers["ref_logprob"] = self.scorer(config.model.path, "reference")
        if "teacher_logprob" in self.objective.needs:
            path = present(present(config.teacher, "the teacher of the recipe").path, "teacher.path")
            self.scorers["teacher_logprob"] = teacher = self.scorer(path, "teacher")
            theirs = self.answers.one(teacher.get_tokenizer, "in giving the teacher's tokenizer")
            require_same_tokens("teacher.path", path, theirs, tokenizer)

    def training_client(self, saved: str = "") -> tinker.TrainingClient:
        """The recipe's model with fresh adapters, or with weights and optimiser from `saved`; raises as `Answers`."""
        if saved:
            load = self.session.create_training_client_from_state_with_optimizer
            return self.answers.one(lambda: load(saved), f"when asked for {saved}")
        name, rank = self.config.model.path, present(self.config.model.lora, "model.lora").rank
        seed, make = keyed_seed(self.config.seed, "model") % 2**31, self.session.create_lora_training_client
        return self.answers.one(lambda: make(name, rank, seed), f"when asked for the model {name}")

    def scorer(self, path: str, role: str) -> tinker.SamplingClient:
        """A sampling client of a server's model, by name, or of saved weights, by path."""
        make, saved = self.session.create_sampling_client, path.startswith("tinker://")
        ask = functools.partial(make, path) if saved else functools.partial(make, base_model=path)
        return self.answers.one(ask, f"when asked for the {role}")

    def about(self) -> str:
        return f" on a Tinker server, training run {self.client.model_id}"

    def collect(self, cursor: int) -> Experience:
        options = self.config.rollout
        sampling = Sampling(options.max_new_tokens, 1.0, keyed_seed(self.config.seed, "sampling"))

        def fresh(start: int, count: int) -> Draw:
            return self.draw("train", start, count, options.group_size, sampling)

        return gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)

    def complete(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        prompts, fields = kept.prompts, credit_inputs(kept, rollouts, self.objective.needs)
        if self.config.rollout.rescore:
            fields["old_logprob"] = self.trainer.score(rollouts, prompts)
        for name, scorer in self.scorers.items():
            fields[name] = self.reported(scorer, rollouts, prompts)
        if "prompt_logprob" in self.objective.needs:
            scores = [each or [0.0] for each in self.scores(self.weights(), prompts, "in scoring prompts")]
            means = [math.fsum(each) / len(each) for each in scores]
            rollouts = dataclasses.replace(rollouts, extra={"prompt_logprob": torch.tensor(means)[rollouts.group]})
        return dataclasses.replace(rollouts, **fields)

    def improve(self, step: Step, kept: Draw, tracer: Tracer) -> None:
        self.trainer.improve(step, kept.prompts, tracer, **self.config.train.minibatch_options())

    def judge(self, rollouts: Rollouts, kept: Draw) -> Policy:
        return Policy(self.trainer.score(rollouts, kept.prompts))

    def evaluate(self) -> Evaluation:
        return evaluate(self.config, self.task, functools.partial(self.draw, "test"))

    def save(self, directory: Path, progress: Progress) -> None:
        if progress.step:
            name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{directory.name}-step-{progress.step:06d}")
            self.saved = self.path(lambda: self.client.save_state(name, overwrite=True), "in saving a checkpoint")
        self._write(directory)
        checkpoint.save(directory, dataclasses.replace(progress, remote=self.saved))

    def finish(self, directory: Path, step: int) -> list[str]:
        kept = self.path(lambda: self.client.save_weights_for_sampler("final"), "in saving the weights")
        self._write(directory, weights=self.saved, sampler=kept)
        return [f"weights on the server, for a sampling client: {kept}"]

    @staticmethod
    def is_finished(directory: Path, step: int, /) -> bool:
        return "sampler" in json_object(directory / SERVER)

    def close(self) -> None:
        self.task.close()

    def weights(self) -> tinker.SamplingClient:
        if self.sampler is None or self.sampler[0] != self.learner.updates:
            client = self.answers.one(
                self.client.save_weights_and_get_sampling_client, "in giving the weights to a sampler"
            )
            self.sampler = self.learner.updates, client
        return self.sampler[1]

    def path(self, ask: Callable[[], Any], doing: str) -> str:
        """Asks the server to save, and returns the path that it reports."""
        return self.answers.one(lambda: value(ask()).path, doing)

    def draw(self, split: Split, start: int, count: int, each: int, sampling: Sampling) -> Draw:
        """Responses to `count` problems from position `start` on; each problem has a seed of its own."""
        problems, prompts = pose(self.vocabulary, self.task, split, start, count)
        sampler, requests = self.weights(), []
        for place, prompt in enumerate(prompts, start):
            params = tinker.SamplingParams(
                max_tokens=sampling.max_new_tokens,
                seed=keyed_seed(sampling.seed, split, place) % 2**31,
                stop=list(self.vocabulary.eos_ids),  # some servers stop only at these
                temperature=sampling.temperature,
                top_k=-1,
                top_p=1.0,
            )
            requests.append(functools.partial(sampler.sample, tinker.ModelInput.from_ints(prompt), each, params))
        responses: list[tinker.SampleResponse] = self.answers.all(requests, "in sampling")
        with self.answers.asking("in sampling"):
            table = table_of(responses, self.ends)
        heat = torch.ones_like(table.logprob)
        out = Samples(**table._asdict(), entropy=None, temperature=heat, rollout_logprob=table.logprob, kept_ids=None)
        return verify(self.vocabulary, self.task, start, problems, prompts, out, sampling.temperature or 1.0)

    def adam(self, number: int) -> tinker.AdamParams:
        train = self.config.train
        return tinker.AdamParams(
            learning_rate=train.rate(number),
            beta1=train.betas[0],
            beta2=train.betas[1],
            eps=train.eps,
            weight_decay=train.weight_decay,
            grad_clip_norm=train.grad_clip or 0.0,
        )

    def scores(self, client: tinker.SamplingClient, sequences: Prompts, doing: str) -> list[list[float]]:
        """The log-probability of each token except the first of each sequence."""
        sent = [tinker.ModelInput.from_ints(list(one)) for one in sequences]
        requests = [functools.partial(client.compute_logprobs, one) for one in sent]
        return [answer[1:] for answer in self.answers.all(requests, doing)]

    def reported(self, client: tinker.SamplingClient, rollouts: Rollouts, prompts: list[list[int]]) -> Tensor:
        """[N, T] log-probabilities of the responses by a sampling client."""

        def ask(sent: Prompts) -> list[Tensor]:
            scores = self.scores(client, sent, "in scoring responses by another model")
            return [torch.tensor(x, dtype=torch.float32) for x in scores]

        return score(rollouts, prompts, ask)

    def _write(self, directory: Path, **places: str) -> None:
        written = {"training_run": str(self.client.model_id), **places}
        write_whole(directory / SERVER, json.dumps(written, indent=1) + "\n")


class ProbedServer(Server):
    """The backend on any server, which is probed first."""

    probed: ClassVar[bool] = True


def connect(config: Config) -> tinker.ServiceClient:
    """A session with the recipe's server; TokenPOError if nothing answers or there is no key."""
    answers = Answers.of(config.tinker.base_url, config.tinker.seconds)
    address = answers.address
    if not _has_key():
        remedy = "set TINKER_API_KEY (for a server of your own any text), or store one with tinker auth login"
        raise TokenPOError(f"the Tinker server at {address} wants a key, and there is none: {remedy}")
    try:
        with httpx.stream("GET", address, timeout=10):  # the client itself would try for minutes
            pass
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        remedy = "start it, or give its address with --set tinker.base_url=URL"
        raise TokenPOError(f"no Tinker server answers at {address} ({first_line(error)}): {remedy}") from error
    return answers.one(lambda: tinker.ServiceClient(base_url=address), "in beginning a session")


def _has_key() -> bool:
    """Whether the client finds a key; the oldest supported client has no `tinker.auth` and reads only variables."""
    try:
        from tinker.auth import tinker_has_credentials
    except ImportError:
        return any(os.environ.get(name) for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"))
    return tinker_has_credentials()
