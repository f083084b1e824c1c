"""Trains recipes on a server: it samples and updates; verification and credit run here."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from tinker import AdamParams, ModelInput, SampleResponse, SamplingClient, SamplingParams, ServiceClient
from torch import Tensor

from ...base.errors import present
from ...base.files import json_object, write_whole
from ...core.learner import Learner, Step
from ...core.objective import Objective
from ...core.seeds import keyed_seed
from ...core.types import Policy, Rollouts
from ...models import Sampling, Vocabulary
from ...models.vocabulary import require_same_tokens
from ...recipe.config import Config
from ...recipe.hosts import TINKER, Host
from ...recipe.plan import Plan
from ...runs import checkpoint, loop
from ...runs.checkpoint import Progress
from ...runs.evaluation import Evaluation, evaluated
from ...runs.loop import FEWER, Outcome
from ...runs.records import Tracer
from ...runs.rollouts.draw import Draw, posed, verified
from ...runs.rollouts.experience import Experience, credited, gather
from ...runs.trackers import require_trackers
from ...runs.updates import learning_rate
from ...runs.view import View
from ...tasks import Split, Task, refuse_tool
from . import service
from .answers import Answers, require_path, require_scores
from .gradient import probe
from .needs import RATIO, accepted
from .responses import Limits, samples
from .trainer import Trainer, sequence

FILE = TINKER.marker  # records where the weights are


def train(config: Config, view: View) -> Outcome:
    """A fresh run, to its end or an interrupt (`runs.loop.train`); TokenPOError if the server fails."""
    return loop.train(Server, config, view)


def resume(directory: Path, view: View, wanted: Config | None = None) -> Outcome:
    """Resumes from the newest checkpoint (`runs.loop.resume`); equal updates if the server is deterministic."""
    return loop.resume(Server, directory, view, wanted, accept=None)


def final_sampler(directory: Path) -> str | None:
    """The path of a finished run's weights, for a sampling client; None if the run is not finished."""
    return json_object(directory / FILE).get("sampler")


class Server:
    """The backend on a server, which keeps the weights and the optimiser's state."""

    host: ClassVar[Host] = TINKER
    smaller: ClassVar[str] = FEWER

    def __init__(self, config: Config, objective: Objective, task: Task, session: ServiceClient) -> None:
        self.config, self.objective, self.task, self.session = config, objective, task, session
        self.answers = Answers.of(config)
        self.sampler: tuple[int, SamplingClient] | None = None
        self.scorers: dict[str, SamplingClient] = {}
        self.saved = ""

    @classmethod
    def open(cls, plan: Plan) -> Server:
        config, objective = plan.config, accepted(plan)
        require_trackers(config.output.track)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        task = plan.make_task()
        try:
            refuse_tool(task, "Tinker")
            return cls(config, objective, task, service.connect(config))
        except BaseException:
            task.close()
            raise

    def start(self, saved: Path | None, progress: Progress) -> None:
        config, self.saved = self.config, progress.remote
        loss = probe(lambda: service.training_client(self.session, config, self.answers), self.answers)
        self.client = service.training_client(self.session, config, self.answers, progress.remote)
        ratio = dataclasses.replace(RATIO, tolerance=config.train.ratio_tolerance or RATIO.tolerance)
        length = config.rollout.max_new_tokens
        self.trainer = Trainer(
            self.client,
            self.objective,
            length=length,
            seed=config.seed,
            adam=self.adam,
            ratio=ratio,
            kl=config.train.kl_hold(),
            loss=loss,
            answers=self.answers,
        )
        tokenizer: Any = self.answers.call(self.client.get_tokenizer, "in giving its tokenizer")
        self.words = Vocabulary(tokenizer, (tokenizer.eos_token_id,))
        self.ends = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        if "ref_logprob" in self.objective.needs:
            self.scorers["ref_logprob"] = self.scorer(config.model.path, "reference")
        if "teacher_logprob" in self.objective.needs:
            path = present(present(config.teacher, "the teacher of the recipe").path, "teacher.path")
            self.scorers["teacher_logprob"] = teacher = self.scorer(path, "teacher")
            theirs = self.answers.call(teacher.get_tokenizer, "in giving the teacher's tokenizer")
            require_same_tokens("teacher.path", path, theirs, tokenizer)

    def scorer(self, path: str, role: str) -> SamplingClient:
        """A sampling client of a server's model, by name, or of saved weights, by path."""
        make, saved = self.session.create_sampling_client, path.startswith("tinker://")
        ask = functools.partial(make, path) if saved else functools.partial(make, base_model=path)
        return self.answers.one(ask, f"when asked for the {role}")

    @property
    def learner(self) -> Learner:
        return self.trainer.learner

    @property
    def vocabulary(self) -> Vocabulary:
        return self.words

    def about(self) -> str:
        return f" on a Tinker server, training run {self.client.model_id}"

    def collect(self, cursor: int) -> Experience:
        options = self.config.rollout
        sampling = Sampling(options.max_new_tokens, 1.0, keyed_seed(self.config.seed, "sampling"))

        def fresh(start: int, count: int) -> Draw:
            return self.draw("train", start, count, options.group_size, sampling)

        return gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)

    def complete(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        prompts, fields = kept.prompts, credited(kept, rollouts, self.objective.needs)
        if self.config.rollout.rescore:
            fields["old_logprob"] = self.trainer.score(rollouts, prompts)
        for name, scorer in self.scorers.items():
            fields[name] = self.reported(scorer, rollouts, prompts)
        if "prompt_logprob" in self.objective.needs:
            scores = [each or [0.0] for each in self.scores(self.weights(), prompts, "in scoring prompts")]
            means = [math.fsum(each) / len(each) for each in scores]
            fields["prompt_logprob"] = torch.tensor(means)[rollouts.group]
        return dataclasses.replace(rollouts, **fields)

    def improve(self, step: Step, kept: Draw, tracer: Tracer) -> None:
        self.trainer.improve(step, kept.prompts, tracer, self.config.train)

    def judge(self, rollouts: Rollouts, kept: Draw) -> Policy:
        return Policy(self.trainer.score(rollouts, kept.prompts))

    def evaluate(self) -> Evaluation:
        return evaluated(self.config, self.task, lambda *asked: self.draw("test", *asked))

    def save(self, directory: Path, progress: Progress) -> None:
        if progress.step:
            name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{directory.name}-step-{progress.step:06d}")
            self.saved = self.path(lambda: self.client.save_state(name, overwrite=True), "in saving a checkpoint")
        self._write(directory)
        checkpoint.begin(directory, dataclasses.replace(progress, remote=self.saved))

    def finish(self, directory: Path, step: int) -> list[str]:
        kept = self.path(lambda: self.client.save_weights_for_sampler("final"), "in saving the weights")
        self._write(directory, weights=self.saved, sampler=kept)
        return [f"weights on the server, for a sampling client: {kept}"]

    @staticmethod
    def is_finished(directory: Path, step: int, /) -> bool:
        return final_sampler(directory) is not None

    def close(self) -> None:
        self.task.close()

    def weights(self) -> SamplingClient:
        """A sampling client of the current weights."""
        if self.sampler is None or self.sampler[0] != self.learner.updates:
            client = self.answers.one(
                self.client.save_weights_and_get_sampling_client, "in giving the weights to a sampler"
            )
            self.sampler = self.learner.updates, client
        return self.sampler[1]

    def path(self, ask: Callable[[], Any], doing: str) -> str:
        """Asks the server to save, and returns the path that it reports."""
        saved = self.answers.one(ask, doing)
        with self.answers.asking(doing):
            return require_path(saved.path)

    def draw(self, split: Split, start: int, count: int, each: int, sampling: Sampling) -> Draw:
        """Responses to `count` problems from position `start` on; each problem has a seed of its own."""
        problems, prompts = posed(self.words, self.task, split, start, count)
        sampler, requests = self.weights(), []
        for place, prompt in enumerate(prompts, start):
            params = SamplingParams(
                max_tokens=sampling.max_new_tokens,
                seed=keyed_seed(sampling.seed, split, place) % 2**31,
                stop=list(self.words.eos_ids),  # some servers stop only at these
                temperature=sampling.temperature,
                top_k=-1,
                top_p=1.0,
            )
            requests.append(functools.partial(sampler.sample, ModelInput.from_ints(prompt), each, params))
        responses: list[SampleResponse] = self.answers.all(requests, "in sampling")
        with self.answers.asking("in sampling"):
            out = samples(responses, self.ends, Limits(each, sampling.max_new_tokens, len(self.words.tokenizer)))
        return verified(self.words, self.task, start, problems, prompts, out, sampling.temperature or 1.0)

    def adam(self, number: int) -> AdamParams:
        """The optimiser's settings of an update, from the recipe."""
        train = self.config.train
        return AdamParams(
            learning_rate=learning_rate(train, number),
            beta1=train.betas[0],
            beta2=train.betas[1],
            eps=train.eps,
            weight_decay=train.weight_decay,
            grad_clip_norm=train.grad_clip or 0.0,
        )

    def scores(self, client: SamplingClient, sequences: Sequence[Sequence[int]], doing: str) -> list[list[float]]:
        """The log-probability of each token except the first of each sequence."""
        requests = [functools.partial(client.compute_logprobs, ModelInput.from_ints(list(one))) for one in sequences]
        answers = self.answers.all(requests, doing)
        with self.answers.asking(doing):
            for one, answer in zip(sequences, answers, strict=True):
                require_scores(torch.tensor(answer[1:], dtype=torch.float32), len(one) - 1)
        return [cast(list[float], answer[1:]) for answer in answers]

    def reported(self, client: SamplingClient, rollouts: Rollouts, prompts: list[list[int]]) -> Tensor:
        """[N, T] log-probabilities of the responses by a sampling client."""
        table, rows = torch.zeros_like(rollouts.old_logprob), rollouts.mask.any(1).nonzero()[:, 0].tolist()
        sent = [sequence(rollouts, row, prompts) for row in rows]
        scores = self.scores(client, [tokens for tokens, _ in sent], "in scoring responses by another model")
        for row, (_, start), each in zip(rows, sent, scores, strict=True):
            table[row, : len(each) - start + 1] = torch.tensor(each[start - 1 :], dtype=table.dtype)
        return table

    def _write(self, directory: Path, **places: str) -> None:
        """Writes FILE; `asked_again` counts the requests that this process repeated after a failure."""
        written = {"training_run": str(self.client.model_id), **places, "asked_again": self.answers.again}
        write_whole(directory / FILE, json.dumps(written, indent=1) + "\n")
