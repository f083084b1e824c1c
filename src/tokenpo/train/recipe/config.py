"""The settings of a run with their defaults, how a file, `--method` and `--set` change them, and hints on mistakes.

A recipe is a TOML file whose tables are the sections below. Method options are checked by the method's own
builder, task options by the task.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ...base import text
from ...base.errors import TokenPOError, UnknownName, nearest
from ...base.files import expanded, read_text
from ...core.head.kept import MOST, Cut
from ...core.on_policy import KLHold
from .command_line import apply, put, short

_PATH = r"^[^\x00-\x1f]+$"
_MOST = 5  # mistakes in one message: a file that is no recipe at all would fill the screen
_FREE = ("options", "method")  # tables with the options of a task or a method


def _listed(names: Any) -> Any:
    """Names from text with commas, or as they are."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


Decay = Annotated[float, Field(ge=0, lt=1)]
Trackers = Annotated[list[Literal["trackio", "wandb"]], BeforeValidator(_listed)]


def setting(default: Any, meaning: str | None = None, **bounds: Any) -> Any:
    """A field with its default, its comment in a written recipe and pydantic's bounds."""
    return Field(default=default, description=meaning, **bounds)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _none(cls, raw: Any) -> Any:
        """Turns "none" into None for fields that accept it, as TOML has no null."""
        if not isinstance(raw, dict):
            return raw
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {k: None if v == "none" and k in optional else v for k, v in raw.items()}


class Lora(Section):
    rank: int = setting(16, ge=1, le=10**5)
    alpha: float = setting(32.0, gt=0)
    targets: str | list[str] = setting("all-linear", "module names, or all-linear")


class Model(Section):
    path: str = setting("tiny", "directory, hub id, or tiny: the package's model", pattern=_PATH)
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    device: str = setting("auto", "cpu, cuda, cuda:1, ...; auto: cuda where there is one")
    lora: Lora | None = None
    template: dict[str, bool | int | float | str] = setting({}, "of the chat template: enable_thinking = false")


class Task(Section):
    name: str = "dial_sum"
    seed: int | None = setting(None, "of the problems; none: the run's")
    options: dict[str, Any] = setting({}, "options of the task")


class Method(BaseModel):
    """`name` (a method, or "file.py:function") and any keywords of that method's builder."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "dapo"

    @property
    def label(self) -> str:
        return short(self.name)

    @property
    def options(self) -> dict[str, Any]:
        """The builder's keywords, as the file has them."""
        return dict(self.model_extra or {})


class SoftOverlong(Section):
    length: int | None = setting(None, "tokens at which the penalty is full; none: max_new_tokens", ge=1)
    cache: int = setting(..., "tokens over which it grows", ge=1)


class GroupOverlong(Section):
    easy: float = setting(0.5, "accuracy from which a prompt counts as easy", ge=0, le=1)
    scale: float = setting(0.5, "largest penalty", ge=0)
    threshold: float = setting(0.0, "a response is correct when its reward exceeds this")


class Criterion(Section):
    over: Literal["token", "total", "mean", "every"] = setting("token", "or a response by its tokens' sum, mean, each")
    of: Literal["ratio", "k2", "k3", "tv", "binary_kl"] = setting("ratio", "old / sampler's, or a divergence, nats")
    low: float = setting(0.0, "smallest value that is kept", ge=0)
    high: float | None = setting(None, "largest value that is kept; none: no bound", ge=0)


class Correction(Section):
    preset: str | None = setting(None, "tis, icepop, seq_mis, mis_geo, ..., in place of the settings below")
    level: Literal["token", "sequence", "geometric"] | None = setting("token", "unit of a weight; none: no weight")
    mode: Literal["truncate", "mask"] = setting("truncate", "beyond the bounds: clamp, or drop")
    cap: float | None = setting(2.0, "largest weight; none: no bound", ge=1)
    floor: float = setting(0.0, "smallest weight", ge=0, le=1)
    normalise: bool = setting(False, "divide by the mean over the rollout batch")
    reject: list[Criterion] = setting([], "criteria; what fails one of them is dropped")
    leaves: bool = setting(False, "rejected tokens leave the denominators")


class ReferenceKl(Section):
    beta: float = setting(..., "coefficient", gt=0)
    estimator: Literal["k1", "k2", "k3"] = "k3"
    straight_through: bool = setting(False, "the estimator's value, k2's gradient")
    unbiased: bool = setting(False, "k1 or k3 times the token's ratio, with gradient through both")


class Rollout(Section):
    prompts: int = setting(32, "problems of one rollout batch", ge=1, le=10**5)
    group_size: int = setting(8, "responses to each problem", ge=1, le=10**5)
    max_new_tokens: int = setting(64, "longest response, end of sequence included", ge=1, le=10**7)
    temperature: float = setting(1.0, "of the sampler; float32 divides by it", ge=1.2e-38, le=3.4e38)
    top_p: float = setting(1.0, "sample among the fewest tokens whose probabilities reach this sum; 1: off", gt=0, le=1)
    top_k: int = setting(0, "sample among this many most probable tokens; 0: off", ge=0, le=MOST)
    min_p: float = setting(0.0, "sample among tokens of this share of the largest probability; 0: off", ge=0, le=1)
    dynamic_sampling: bool = setting(False, "drop groups whose rewards are all equal, and refill")
    max_extra_batches: int = setting(3, "how often one batch may be refilled", ge=0, le=10**4)
    soft_overlong: SoftOverlong | None = setting(None, "DAPO's penalty on long responses")
    group_overlong: GroupOverlong | None = setting(None, "GTPO's penalty on long answers to easy prompts")
    rescore: bool = setting(False, "old log-prob and entropy from a forward pass, not from the sampler")
    correction: Correction | None = setting(None, "weights old / sampler's, with rescore or an adaptive temperature")

    @property
    def cut(self) -> Cut:
        """The tokens that the sampler may choose."""
        return Cut(self.top_p, self.top_k, self.min_p)


class Train(Section):
    steps: int = setting(60, "rollout batches, each followed by epochs x minibatches updates", ge=1, le=10**9)
    epochs: int = setting(1, "passes over one rollout batch", ge=1, le=10**4)
    minibatches: int = setting(4, "optimiser updates of one epoch", ge=1, le=10**5)
    minibatch_by: Literal["groups", "rows"] = setting("groups", "unit that minibatches do not split")
    micro_rows: int = setting(256, "most rows of one forward and backward pass", ge=1)
    micro_tokens: int = setting(16384, "most tokens of one pass: rows x (prompt + response)", ge=1)
    lr: float = setting(2e-4, "of AdamW, after the warm-up", ge=0, le=100)
    warmup: int = setting(0, "updates over which lr rises linearly", ge=0)
    weight_decay: float = setting(0.0, ge=0, le=100)
    betas: tuple[Decay, Decay] = setting((0.9, 0.999), strict=False)
    eps: float = setting(1e-8, gt=0)
    grad_clip: float | None = setting(1.0, "largest gradient norm; none: no limit", gt=0)
    nonfinite: Literal["stop", "skip"] = setting("stop", "at NaN or an infinity; skip: count the update and go on")
    autocast: bool = setting(False, "products in bf16, weights and optimiser in float32; nothing on a CPU without bf16")
    reference_kl: ReferenceKl | None = setting(None, "penalty on leaving the reference model")
    ratio_tolerance: float | None = setting(None, "nats; none: 1e-3, in half precision 0.05", gt=0)
    kl_target: float | None = setting(None, "nats per token that a batch moves the policy; lr follows it", gt=0)
    kl_stop: float | None = setting(None, "nats per token that end a batch; none: twice kl_target", gt=0)

    def rate(self, update: int) -> float:
        """The learning rate of an update (0, 1, ...): rises linearly over `warmup` updates, then is constant."""
        return self.lr * min(1.0, (update + 1) / (self.warmup + 1))

    def minibatch_options(self) -> dict[str, Any]:
        """The keywords of `core.learner.make_updates`."""
        skip = self.nonfinite == "skip"
        return {"epochs": self.epochs, "minibatches": self.minibatches, "by": self.minibatch_by, "skip": skip}

    def kl_hold(self) -> KLHold | None:
        """The rule that holds the KL of a rollout batch; None without kl_target and kl_stop."""
        return KLHold.of(self.kl_target, self.kl_stop)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            held = self.kl_hold()
        except TokenPOError as error:
            raise ValueError(str(error)) from error
        if held is not None and held.target is None and self.epochs * self.minibatches == 1:
            raise ValueError("kl_stop ends a batch between its updates, and it has one: set minibatches to 2 or more")
        return self


class Teacher(Section):
    path: str | None = setting(None, "model with the same tokenizer; none: the policy, with a hint", pattern=_PATH)
    hint: str | None = setting(None, "before the prompt, for the teacher alone; {answer}: the reference", min_length=1)
    coef: float | None = setting(None, "of the teacher, for a method that has none (tokenpo.with_teacher)", gt=0)
    form: Literal["credit", "penalty", "divergence"] = setting("credit", "form in which coef adds the teacher")


class Critic(Section):
    lr: float = setting(0.03, "of Adam on the value head's bias; weights divide it by their number", gt=0, le=100)
    warmup: int = setting(0, "first rollout batches, which train the value head alone", ge=0, le=10**9)
    shared: bool = setting(False, "its loss trains the model too; false: it trains the value head alone")


class Evaluate(Section):
    every: int = setting(0, "steps between evaluations; 0: only before and after", ge=0)
    problems: int = setting(200, "held-out problems; 0: no evaluation", ge=0, le=10**6)
    samples: int = setting(8, "k of avg@k, at the rollout temperature; 0: greedy only", ge=0, le=10**5)
    rows: int = setting(256, "responses sampled at once", ge=1)


class Output(Section):
    dir: str | None = setting(None, "run directory; none: runs/NAME-METHOD-seedSEED", pattern=_PATH)
    checkpoint_every: int = setting(20, "steps; 0: only at the end and on Ctrl-C", ge=0)
    keep: int = setting(2, "checkpoints kept", ge=1)
    rollouts_every: int = setting(0, "steps between whole batches in rollouts/; 0: none", ge=0)
    samples: int = setting(4, "responses written to samples.jsonl each step", ge=0)
    trace_every: int = setting(10, "steps between traces of single tokens; 0: none", ge=0)
    trace_rollouts: int = setting(4, "responses of one trace", ge=0)
    track: Trackers = setting([], "live trackers: trackio, wandb")
    project: str | None = setting(None, "of trackio and wandb; none: tokenpo", min_length=1)


class Config(Section):
    name: str = setting("run", "of the run directory", pattern=r"^[^./\x00-\x1f][^/\x00-\x1f]*$")
    seed: int = setting(0, ge=0)
    threads: int | None = setting(None, "CPU threads; none: torch decides", ge=1, le=4096)
    model: Model = Model()
    task: Task = Task()
    method: Method = Method()
    rollout: Rollout = Rollout()
    train: Train = Train()
    critic: Critic | None = setting(None, "value head of a method that reads value")
    teacher: Teacher | None = setting(None, "a model that scores the policy's tokens")
    evaluate: Evaluate = Evaluate()
    output: Output = Output()

    @property
    def problem_seed(self) -> int:
        return self.seed if self.task.seed is None else self.task.seed

    def directory(self) -> Path:
        return expanded(self.output.dir or f"runs/{self.name}-{self.method.label}-seed{self.seed}")


def load_config(
    recipe: Path, *, method: str | None = None, overrides: Sequence[str] = (), out: Path | str | None = None
) -> Config:
    """The config of a recipe (TOML, or a run's config.json) after `--method`, `--set section.key=value`, `--out`.

    Another method than the recipe's starts from its own defaults: one method's options mean nothing to another.

    Raises:
        TokenPOError: not TOML or JSON, an override without "=", a value of the wrong kind.
        UnknownName: a section or key that does not exist.
    """
    raw = read_raw(recipe)
    raw.setdefault("name", recipe.stem)
    current = raw.get("method")
    if method is not None and not (isinstance(current, dict) and current.get("name") == method):
        raw["method"] = {"name": method}
    flags = [f" --set {override:.80}" for override in overrides] + [f" --out {out}"] * bool(out)
    for override in overrides:
        apply(raw, override)
    if out:  # as plain text: read as TOML it may become another name
        put(raw, ("output", "dir"), str(out), "--out")
    return parse_config(raw, f"{recipe}{''.join(flags)}")


def read_raw(recipe: Path) -> dict[str, Any]:
    """The tables of a recipe or a config.json; raises TokenPOError if it cannot be read or parsed."""
    kind = "JSON" if recipe.suffix == ".json" else "TOML"
    try:
        text = read_text(recipe).removeprefix("\ufeff")  # the mark that some editors of Windows write first
        raw = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise TokenPOError(f"{recipe} cannot be read: {error.strerror}; give a recipe or a run's directory") from error
    except (ValueError, RecursionError) as error:
        raise TokenPOError(f"{recipe} is not {kind} in UTF-8: {error}; mend that place") from error
    if not isinstance(raw, dict):
        raise TokenPOError(f"{recipe} holds a {type(raw).__name__}, expected the sections of a recipe")
    if "model_type" in raw:
        run = recipe.parent.parent if recipe.parent.name == "model" else "the directory of a run"
        raise TokenPOError(f"{recipe.parent} is a model, not a run: give {run}")
    return raw


def parse_config(raw: Mapping[str, Any], where: str) -> Config:
    """A checked config; errors begin with `where`."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        problems = error.errors()
        unknown = any(problem["type"] == "extra_forbidden" for problem in problems)
        raise (UnknownName if unknown else TokenPOError)(f"{where}: {_explain_all(problems)}") from None


def _explain_all(problems: Sequence[ErrorDetails]) -> str:
    # A value that fits none of several types is one mistake, although pydantic reports several problems.
    found = {_place(problem): problem for problem in reversed(problems)}
    sentences = [_explain(problem, path) for path, problem in list(reversed(found.items()))[:_MOST]]
    more = [f"and {len(found) - _MOST} more mistakes"] if len(found) > _MOST else []
    return "; ".join([*sentences, *more])


def _place(problem: ErrorDetails) -> tuple[str, ...]:
    """The path of the setting, without pydantic's labels for the members of a union."""
    path = tuple(map(str, problem["loc"]))
    return next((path[:n] for n in range(1, len(path)) if not fields_of(path[:n]) and path[n - 1] not in _FREE), path)


def _explain(problem: ErrorDetails, path: tuple[str, ...]) -> str:
    *sections, key = path
    place, whole = f"section [{'.'.join(sections)}]" if sections else "the top level", ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"{place} has no key {key!r}: {_meant(key, tuple(sections))}"
    if problem["type"] == "missing" and isinstance(problem["loc"][-1], str):  # a list may lack a value
        return f"{place} lacks the key {key!r}: write it there, or --set {whole}=VALUE"
    mistake = problem["msg"].lower().removeprefix("value error, ")
    if problem["type"] == "missing":
        mistake = "it has too few values"
    if problem["type"] in ("model_type", "dict_type"):
        keys = f", where KEY is one of {', '.join(fields_of(path))}" if fields_of(path) else ""
        mistake = f"it is a section: write [{whole}] and its settings below, or --set {whole}.KEY=VALUE{keys}"
    return f"{whole} = {problem['input']!r:.80}: {mistake}"


def _meant(key: str, section: tuple[str, ...]) -> str:
    """A hint for an unknown key: where the key or its initials exist (learning_rate: lr), or the nearest key."""
    sections: list[tuple[str, ...]] = [()]
    for path in sections:  # the list grows by inner sections
        sections += [(*path, name) for name in fields_of(path)]
    names = [key, "".join(word[:1] for word in key.split("_"))]
    places = [section] if names[1] in fields_of(section) else sections
    elsewhere = [".".join((*path, name)) for name in names for path in places if name in fields_of(path)]
    return f"did you mean {' or '.join(elsewhere)}?" if elsewhere else nearest(key, fields_of(section))


def differences(old: Config, new: Config) -> list[str]:
    """One line for each setting that differs: "train.lr: 0.001 -> 0.002"."""
    return text.differences(old.model_dump(mode="json"), new.model_dump(mode="json"))


def fields_of(sections: Iterable[str]) -> Mapping[str, FieldInfo]:
    """The settings of a section; none below a free table such as task.options."""
    model: type[BaseModel] = Config
    for section in sections:
        if section not in model.model_fields:
            return {}
        annotation: Any = model.model_fields[section].annotation
        options = (annotation, *getattr(annotation, "__args__", ()))
        found = next((x for x in options if isinstance(x, type) and issubclass(x, BaseModel)), None)
        if found is None:
            return {}
        model = found
    return model.model_fields
