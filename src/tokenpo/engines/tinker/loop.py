"""A recipe trained on a server: sample there, verify and give credit here, update there; and write everything down."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import torch
from tinker import AdamParams, ModelInput, SampleResponse, SamplingClient, SamplingParams, ServiceClient, TrainingClient
from torch import Tensor

from ...base.errors import NotFinite, TokenPOError
from ...base.files import json_object, write_whole
from ...base.interrupt import Interrupt
from ...core.learner import Step
from ...core.objective import Objective
from ...core.seeds import keyed_seed
from ...core.types import Policy, Rollouts
from ...models import Sampling, Vocabulary
from ...recipe.config import Config
from ...recipe.hosts import TINKER
from ...recipe.objective import warnings
from ...runs import checkpoint
from ...runs.checkpoint import LearnerState, Progress
from ...runs.directory import (
    LOGS,
    OpenRun,
    describe,
    evaluations,
    held,
    new_directory,
    open_checkpoint,
    require_host,
    resumed_config,
)
from ...runs.evaluation import Evaluation, evaluated
from ...runs.records import Clock, rollout_metrics, rollout_records, sample_records, step_metrics, trace_records
from ...runs.rollouts import step_file, write_lines
from ...runs.rollouts.draw import Draw, posed, verified
from ...runs.rollouts.experience import Experience, credited, gather
from ...runs.tracer import Tracer
from ...runs.trackers import Trackers, require_trackers
from ...runs.view import View, about
from ...tasks import Split, Task, make_task
from . import service
from .needs import RATIO, accepted, require_one_answer
from .responses import samples
from .service import result
from .trainer import Trainer, sequence

FILE = TINKER.marker  # says where the weights are


def train(config: Config, view: View) -> tuple[Path, bool]:
    """A fresh run, to its end or to an interrupt; its directory, and whether it came to its end.

    Raises:
        TokenPOError: what the recipe asks for cannot be had, or the server failed.
    """
    objective = accepted(config)
    require_trackers(config.output.track)
    with closing(_task(config)) as task:
        session = service.connect(config)
        client = service.training_client(session, config)
        directory = new_directory(config)
        with held(directory):
            describe(directory, config, str(objective))
            write_whole(directory / FILE, json.dumps({"training_run": str(client.model_id)}) + "\n")
            progress = Progress(sizes=dict.fromkeys(LOGS, 0))
            run = Training(config, objective, task, session, client, directory, view, progress)
            run.save()
            return directory, run.run([])


def resume(directory: Path, view: View, wanted: Config | None = None) -> tuple[Path, bool]:
    """Goes on from the last checkpoint: the same updates where the server repeats itself.

    Raises:
        TokenPOError: as `train`, and no run there, or another config.
    """
    require_host(directory, TINKER)
    config, _ = resumed_config(directory, wanted, accept=None)
    objective = accepted(config)
    with closing(_task(config)) as task, held(directory):
        progress, notes = open_checkpoint(directory, None, None)
        if progress.step >= config.train.steps and "sampler" in json_object(directory / FILE):
            raise TokenPOError(
                f"{directory} has made all of its {progress.step} steps: to go on, resume it with "
                f"--set train.steps={2 * progress.step}"
            )
        session = service.connect(config)
        client = service.training_client(session, config, progress.remote)
        describe(directory, config, str(objective))
        return directory, Training(config, objective, task, session, client, directory, view, progress).run(notes)


class Training:
    """A run between its first step and its last."""

    def __init__(
        self,
        config: Config,
        objective: Objective,
        task: Task,
        session: ServiceClient,
        client: TrainingClient,
        directory: Path,
        view: View,
        progress: Progress,
    ) -> None:
        self.config, self.objective, self.task, self.client = config, objective, task, client
        self.view, self.directory = view, directory
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        ratio = dataclasses.replace(RATIO, tolerance=config.train.ratio_tolerance or RATIO.tolerance)
        length = config.rollout.max_new_tokens
        self.trainer = Trainer(client, objective, length=length, seed=config.seed, adam=self.adam, ratio=ratio)
        self.learner = self.trainer.learner
        if progress.learner:
            self.learner.load_state_dict(progress.learner)
        tokenizer: Any = client.get_tokenizer()
        self.vocabulary = Vocabulary(tokenizer, (tokenizer.eos_token_id,))
        self.ends = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        self.reference: SamplingClient | None = None
        if "ref_logprob" in objective.needs:
            base = session.create_sampling_client(base_model=config.model.path)
            self.reference = result(base, "when asked for the reference")
        self.sampler: tuple[int, SamplingClient] | None = None
        self.number, self.cursor, self.sizes = progress.step, progress.cursor, progress.sizes
        self.remote = progress.remote
        self.records = OpenRun(directory, config, Trackers.open(directory, config, progress.step, view.say))
        self.interrupt = Interrupt()

    def run(self, notes: Sequence[str]) -> bool:
        """To the end, or to an interrupt: whether it is the end."""
        config = self.config
        model = f" on a Tinker server, training run {self.client.model_id}"
        lines = about(config, model, str(self.objective))
        self.view.start(lines, self.directory, self.number, [*notes, *warnings(self.objective, config, TINKER)])
        try:
            with self.interrupt:
                if not self.sizes["metrics.jsonl"] and self.number == 0 and config.evaluate.problems:
                    self.view.say(f"evaluating on {config.evaluate.problems} held-out problems")
                    self.records.log({"step": 0, **self.evaluate().metrics()})
                while self.number < config.train.steps and not self.interrupt.asked:
                    self.step()
                self.save()
            finished = self.number >= config.train.steps
            if finished:
                kept = result(self.client.save_weights_for_sampler("final"), "in saving the weights")
                told = {"training_run": str(self.client.model_id), "weights": self.remote, "sampler": kept.path}
                write_whole(self.directory / FILE, json.dumps(told, indent=1) + "\n")
            return finished
        finally:
            self.view.stop()
            self.records.close()

    def step(self) -> None:
        """Samples a rollout batch, gives it credit, makes the updates on it and writes it all down."""
        config, clock, number = self.config, Clock(), self.number + 1
        options, output = config.rollout, config.output
        with clock.part("rollout"):
            experience = gather(
                self.draws, self.cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling
            )
        if self.interrupt.asked:
            return  # nothing has changed yet
        traced = output.trace_every > 0 and (number == 1 or _due(number, output.trace_every))
        tracer = Tracer(output.trace_rollouts if traced else 0)
        with clock.part("update"):
            step = self.learn(experience, tracer)
        self.number, self.cursor = number, experience.cursor
        self.write(experience, step, tracer)
        metrics = {"step": number, **rollout_metrics(experience), **step_metrics(step)}
        if config.evaluate.problems and (number == config.train.steps or _due(number, config.evaluate.every)):
            with clock.part("evaluation"):
                metrics |= self.evaluate().metrics()
        metrics |= clock.summary()
        self.records.log(metrics)
        self.view.step(metrics, config.train.steps)
        if _due(number, output.checkpoint_every) and number < config.train.steps:
            self.save()

    def learn(self, experience: Experience, tracer: Tracer) -> Step | None:
        """Credit and the updates; None where no group is left to learn from."""
        kept, rollouts, options = experience.kept, experience.rollouts, self.config.train
        everything = experience.everything() if self.learner.memory else None
        if kept is None or rollouts is None:
            if everything is not None:
                self.learner.remember(everything)
            return None
        try:
            facts = self.learner.dated(self.completed(rollouts, kept), options.epochs * options.minibatches)
            step = self.trainer.train(
                facts,
                kept.prompts,
                drawn=everything,
                epochs=options.epochs,
                minibatches=options.minibatches,
                by=options.minibatch_by,
                tracer=tracer,
                skip=options.nonfinite == "skip",
            )
        except NotFinite as error:
            raise NotFinite(
                f"step {self.number + 1}, {error}; the run can go on from its last checkpoint: find what made it, or "
                'set train.nonfinite = "skip" to leave such updates out and count them'
            ) from error
        for why in step.statistics.skipped:
            self.view.say(f"step {self.number + 1}: skipped {why}")
        return step

    def completed(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        """The rollouts with what the task tells of rewards and turns, and what takes further requests, where the
        objective reads it or the recipe asks for it."""
        prompts, fields = kept.prompts, credited(kept, rollouts, self.objective.needs)
        if self.config.rollout.rescore:
            fields["old_logprob"] = self.trainer.score(rollouts, prompts)
        if self.reference is not None:
            fields["ref_logprob"] = self._reported(self.reference, rollouts, prompts)
        if "prompt_logprob" in self.objective.needs:
            mine = [self.weights().compute_logprobs(ModelInput.from_ints(prompt)) for prompt in prompts]
            found = [result(future, "in scoring a prompt")[1:] or [0.0] for future in mine]
            means = [math.fsum(cast(list[float], each)) / len(each) for each in found]
            fields["prompt_logprob"] = torch.tensor(means)[rollouts.group]
        return dataclasses.replace(rollouts, **fields)

    @staticmethod
    def _reported(client: SamplingClient, rollouts: Rollouts, prompts: list[list[int]]) -> Tensor:
        """[N, T] log-probabilities of the responses by a sampling client."""
        found, asked = torch.zeros_like(rollouts.old_logprob), []
        for row in rollouts.mask.any(1).nonzero()[:, 0].tolist():
            tokens, start = sequence(rollouts, row, prompts)
            asked.append((row, start, client.compute_logprobs(ModelInput.from_ints(tokens))))
        for row, start, future in asked:
            told = torch.tensor(result(future, "in scoring by the reference")[start:], dtype=found.dtype)
            found[row, : len(told)] = told
        return found

    def weights(self) -> SamplingClient:
        """A sampler of the weights as they are."""
        if self.sampler is None or self.sampler[0] != self.learner.updates:
            made = self.client.save_weights_and_get_sampling_client()
            self.sampler = self.learner.updates, result(made, "in giving the weights to a sampler")
        return self.sampler[1]

    def draws(self, start: int, count: int) -> Draw:
        sampling = Sampling(self.config.rollout.max_new_tokens, 1.0, keyed_seed(self.config.seed, "sampling"))
        return self.draw("train", start, count, self.config.rollout.group_size, sampling)

    def draw(self, split: Split, start: int, count: int, each: int, sampling: Sampling) -> Draw:
        """Responses to `count` problems from position `start` on; each problem has a seed of its own."""
        problems, prompts = posed(self.vocabulary, self.task, split, start, count)
        sampler, asked = self.weights(), []
        for place, prompt in enumerate(prompts, start):
            params = SamplingParams(
                max_tokens=sampling.max_new_tokens,
                seed=keyed_seed(sampling.seed, split, place) % 2**31,
                temperature=sampling.temperature,
                top_k=-1,
                top_p=1.0,
            )
            asked.append(sampler.sample(ModelInput.from_ints(prompt), each, params))
        responses: list[SampleResponse] = [result(future, "in sampling") for future in asked]
        out = samples(responses, self.ends)
        return verified(self.vocabulary, self.task, start, problems, prompts, out, sampling.temperature or 1.0)

    def evaluate(self) -> Evaluation:
        return evaluated(self.config, self.task, lambda *asked: self.draw("test", *asked))

    def adam(self, number: int) -> AdamParams:
        """The optimiser's numbers of an update, as the recipe has them."""
        train = self.config.train
        return AdamParams(
            learning_rate=train.lr * min(1.0, (number + 1) / (train.warmup + 1)),
            beta1=train.betas[0],
            beta2=train.betas[1],
            eps=train.eps,
            weight_decay=train.weight_decay,
            grad_clip_norm=train.grad_clip or 0.0,
        )

    def write(self, experience: Experience, step: Step | None, tracer: Tracer) -> None:
        """Responses, traces, and on request the whole batch with what the policy says of it after the updates."""
        number, words, kept = self.number, self.vocabulary, experience.kept
        if _due(number, self.config.output.rollouts_every) and kept is not None and step is not None:
            policy = Policy(self.trainer.score(step.rollouts, kept.prompts))
            write_lines(step_file(self.directory, number), rollout_records(number, words, kept, step.rollouts, policy))
        for record in sample_records(number, experience.drawn[0], self.config.output.samples):
            self.records.samples.write(record)
        for record in trace_records(number, words, kept, tracer) if kept is not None else ():
            self.records.trace.write(record)

    def save(self) -> None:
        """A checkpoint: weights and the optimiser's state stay on the server, all else is here."""
        if self.number:
            name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{self.directory.name}-step-{self.number:06d}")
            self.remote = result(self.client.save_state(name, overwrite=True), "in saving a checkpoint").path
        state, records = cast(LearnerState, self.learner.state_dict()), self.records
        progress = Progress(self.number, self.cursor, state, records.sizes(), records.settings, self.remote)
        checkpoint.begin(self.directory, progress)
        checkpoint.prune(self.directory, records.keep, progress.step)


def told(directory: Path) -> tuple[list[dict[str, float]], str]:
    """Of a finished run: its evaluations, and where the weights are that a sampler takes."""
    return evaluations(directory), str(json_object(directory / FILE).get("sampler"))


def _task(config: Config) -> Task:
    seed = config.seed if config.task.seed is None else config.task.seed
    task = make_task(config.task.name, config.task.options, seed)
    require_one_answer(task)
    return task


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
