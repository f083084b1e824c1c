"""The model card of a run says what its files say."""

import json
import tomllib
from pathlib import Path

from huggingface_hub import metadata_load

from run_views import View
from tokenpo.train.models import load
from tokenpo.train.run import card
from tokenpo.train.run.loop import train


def table(text: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return rows[2:]


def write(run: Path, model: str, steps: int) -> Path:
    run.mkdir()
    sections = {"model": {"path": model}, "task": {"name": "sums"}, "method": {"name": "dapo"}, "seed": 3}
    (run / "config.json").write_text(json.dumps({**sections, "train": {"lr": 1e-5, "autocast": False}}))
    (run / "objective.txt").write_text("dapo")
    (run / "versions.json").write_text('{"torch": "2.13.0", "machine": "secret", "peft": null}')
    first = {"step": 0, "eval/accuracy": 0.06, "eval/low": 0.03, "eval/high": 0.13}
    lines = [
        {"step": i, "accuracy": i / 100, "reward": i / 10, "entropy": 2.0, "length": 9} for i in range(1, steps + 1)
    ]
    last = {**lines[-1], "eval/accuracy": 0.7, "eval/low": 0.6, "eval/high": 0.78}
    text = "".join(json.dumps(line) + "\n" for line in (first, *lines[:-1], last))
    (run / "metrics.jsonl").write_text(text)
    return run


def test_a_card_has_source_course_and_settings(tmp_path: Path) -> None:
    base = tmp_path / "smollm2"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: mit\nbase_model: its/base\n---\n")
    (base / "LICENSE").write_bytes(b"words")
    made = card.files(write(tmp_path / "run", str(base), 30))
    assert made["LICENSE"] == b"words"
    text = made["README.md"].decode()
    (tmp_path / "README.md").write_text(text)
    about = metadata_load(tmp_path / "README.md") or {}
    assert (about["license"], about["base_model"], about["library_name"]) == ("mit", "its/base", "transformers")
    assert about["tags"] == ["tokenpo", "reinforcement-learning", "dapo"]
    assert "`smollm2`, trained by tokenpo on the task `sums`, method `dapo`" in text and "arXiv:2503.14476" in text
    assert "0.06 (0.03 to 0.13) at step 0, 0.7 (0.6 to 0.78) at step 30" in text
    assert [row[0] for row in table(text)] == [str(i) for i in range(1, 31, 3)]
    assert table(text)[1] == ["4", "0.04", "0.4", "2", "9"]
    settings = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    assert settings["model"] == {"path": "smollm2"} and str(tmp_path) not in text
    assert settings["train"] == {"lr": 1e-5, "autocast": False} and settings["seed"] == 3
    assert "torch 2.13.0" in text and "secret" not in text and "peft" not in text


def test_a_hub_model_is_the_base(tmp_path: Path) -> None:
    made = card.files(write(tmp_path / "run", "owner/name", 1))
    assert list(made) == ["README.md"] and b"base_model: owner/name\n" in made["README.md"]


def test_a_finished_run_has_a_card(small, coin, tmp_path: Path) -> None:
    train(small(tmp_path / "run"), View())
    text = (tmp_path / "run/model/README.md").read_text()
    assert text.startswith("---\n") and [row[0] for row in table(text)] == ["1", "2", "3", "4"]
    assert load(tmp_path / "run/model").eos_ids
