"""The model card of a run, which hubs show: what was trained, by which method, on which data, and how it went."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from ...base.files import expanded
from ...base.text import disarmed, flat, number
from ...methods import METHODS, builder
from ...records.run import Run, read_run
from ..models.directory import LICENCES, card_data, is_local

ROWS = 12  # of the table of steps
_SECTIONS = ("train.", "rollout.", "task.", "method.", "model.", "seed", "teacher.", "critic.")


def files(directory: Path) -> dict[str, bytes]:
    """README.md of a run's model, and the licence file of the model that it began with, if there is one."""
    run = read_run(directory)
    base = str(flat(run.config).get("model.path", ""))
    place = expanded(base) if base and base != "tiny" and is_local(base) else None
    about = card_data(place) if place else {}
    licences = [place / name for name in LICENCES if (place / name).is_file()] if place else []
    return {
        "README.md": "\n".join(_card(run, base, place, about)).encode("utf-8", "replace"),
        **{file.name: file.read_bytes() for file in licences},
    }


def _card(run: Run, base: str, place: Path | None, about: Mapping[str, Any]) -> Iterator[str]:
    settings = flat(run.config)
    method, task = str(settings.get("method.name", "")), str(settings.get("task.name", ""))
    name = place.name if place else base
    data = ModelCardData(
        library_name="transformers",
        tags=["tokenpo", "reinforcement-learning", *([method] if method in METHODS else [])],
        license=about.get("license"),
        base_model=about.get("base_model") if place else base if "/" in base else None,
    )
    yield f"---\n{data.to_yaml()}\n---\n"
    yield f"# {disarmed(run.label)}\n"
    yield f"`{disarmed(name)}`, trained by tokenpo on the task `{disarmed(task)}`, method `{disarmed(method)}`.\n"
    if source := getattr(builder(method), "paper", None) if method in METHODS else None:
        yield f"Method: {source.title}, {source.reference}.\n"
    if held_out := [(x, y) for x, y in run.series("eval/accuracy") if y is not None]:
        ends = dict(run.series("eval/low")), dict(run.series("eval/high"))
        (first, before), (last, after) = held_out[0], held_out[-1]
        spans = [f"{number(ends[0].get(x))} to {number(ends[1].get(x))}" for x in (first, last)]
        yield (
            f"Held-out accuracy, greedy: {number(before)} ({spans[0]}) at step {number(first)}, {number(after)} "
            f"({spans[1]}) at step {number(last)}; 95 % intervals.\n"
        )
    yield "| step | accuracy of training | reward | entropy, nats | length, tokens |\n| --: | --: | --: | --: | --: |"
    columns = [dict(run.series(name)) for name in ("accuracy", "reward", "entropy", "length")]
    steps = sorted(columns[0])
    for step in steps[:: max(1, -(-len(steps) // ROWS))]:
        yield f"| {number(step)} | {' | '.join(number(column.get(step)) for column in columns)} |"
    yield "\n```py\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
    yield "model = AutoModelForCausalLM.from_pretrained(DIRECTORY)"
    yield "tokenizer = AutoTokenizer.from_pretrained(DIRECTORY)\n```\n"
    yield "Settings (`tokenpo train` with a recipe of these repeats the run):\n\n```toml"
    for key, value in {**settings, **({"model.path": name} if place else {})}.items():  # a card is public
        if key.startswith(_SECTIONS) and value not in (None, [], {}):
            yield f"{key} = {disarmed(json.dumps(value))}"
    versions = [f"{key} {disarmed(str(x))}" for key, x in run.versions.items() if x and key != "machine"]
    yield f"```\n\nVersions: {', '.join(versions)}.\n"
