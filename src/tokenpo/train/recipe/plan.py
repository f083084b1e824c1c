"""The plan of a run: its config and everything derived from it, computed once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ...base.files import expanded, fingerprint
from ...core.objective import Objective
from ...core.seeds import keyed_seed
from .. import models as language
from ..models import LanguageModel, LoraOptions
from ..models.directory import identity, is_local
from ..models.half import halved
from ..models.vocabulary import set_variables
from ..tasks import Task, make_task
from .config import Config
from .objective import build_objective


@dataclass(frozen=True)
class Plan:
    """A config with its objective, its model and the contents it depends on; each is computed when first read."""

    config: Config

    @cached_property
    def objective(self) -> Objective:
        return build_objective(self.config)

    @cached_property
    def model(self) -> str | Path:
        """The directory of the model, or its name on the hub."""
        return language.locate(self.config.model.path)

    @cached_property
    def teacher(self) -> str | Path | None:
        """The directory of the teacher, or its name on the hub; None without one, or if it is the policy itself."""
        teacher = self.config.teacher
        return None if teacher is None or teacher.path is None else language.locate(teacher.path)

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that the steps depend on: all but `train.steps` and `output`, which a resumed run may change."""
        settings = self.config.model_dump(mode="json", exclude={"output": True, "train": {"steps"}})
        return json.loads(json.dumps(settings))

    @cached_property
    def contents(self) -> Mapping[str, str]:
        """Hashes of the files of model, task, verifier and method, without their imports, by the setting of each.

        A model of the hub is left out, and so is a missing file: reading it fails with a message of its own.
        """
        options = self.config.task.options
        paths = {name: value for name, value in options.items() if name.endswith("path") and isinstance(value, str)}
        files = {f"task.options.{name}": expanded(value) for name, value in paths.items()}
        code = {"task.options.verifier": str(options.get("verifier", "")), "method.name": self.config.method.name}
        for setting, name in code.items():
            place = name.rpartition(":")[
                0
            ]  # of "file.py:function"; the file of a module is not known before its import
            files |= {setting: expanded(place)} if place.endswith(".py") else {}
        hashes = {name: fingerprint([file]) for name, file in files.items() if file.is_file()}
        for setting, place in (("model.path", self.model), ("teacher.path", self.teacher)):
            if place and is_local(place) and (directory := Path(place).expanduser()).is_dir():
                hashes[setting] = identity(directory)
        return {f"contents of {name}": value for name, value in hashes.items()}

    def load_model(self, other: str | Path | None = None) -> LanguageModel:
        """The model with its dtype and adapters, on its device; or the `other` one, without adapters."""
        options = self.config.model
        lora = options.lora if other is None else None
        adapters = None if lora is None else LoraOptions(**dict(lora))
        with torch.random.fork_rng():  # LoRA's initial factors come from the global generator
            torch.manual_seed(keyed_seed(self.config.seed, "model"))
            lm = language.load(other or self.model, dtype=options.dtype, device=options.device, lora=adapters)
        if other is None:
            set_variables(lm.tokenizer, options.template)
        return halved(lm, trained=other is None) if self.config.train.autocast else lm

    def make_task(self) -> Task:
        """The task; the caller closes it."""
        return make_task(self.config.task.name, self.config.task.options, self.config.problem_seed)
