"""The log of a run: a run that learns nothing says so once; the commit is that of a clone."""

import logging
import math
import shutil
import subprocess
from pathlib import Path

import pytest

from tokenpo.records import RunLog
from tokenpo.records.log import Watch, commit

GOOD = {"reward": 0.4, "zero_advantage_groups": 0.1, "kl": 0.001, "entropy": 0.2, "grad_norm": 0.3, "lr": 1e-4}
DEAD = GOOD | {"reward": 0.0, "zero_advantage_groups": 1.0, "kl": math.nan, "grad_norm": 0.0}
SAME = DEAD | {"reward": 0.5}


def steps(*made: dict, begin: int = 0, **of_run: bool) -> dict[int, list[str]]:
    """What is said at each step that says anything."""
    watch = Watch(begin, **of_run)
    said = {step: watch({"step": step, **line}) for step, line in enumerate(made, begin + 1)}
    assert watch.said == [text for texts in said.values() for text in texts]
    return {step: texts for step, texts in said.items() if texts}


@pytest.mark.parametrize(
    ("made", "step", "sign", "remedy"),
    [
        ([DEAD] * 9, 3, "the reward of every response was 0 in the first 3 batches", "verifier finds their answers"),
        ([SAME] * 9, 3, "the rewards of every group were equal in 3 batches in a row", "larger groups"),
        ([GOOD, *[DEAD] * 9], 4, "the rewards of every group were equal in 3 batches in a row", "larger groups"),
        ([DEAD, DEAD, GOOD, *[DEAD] * 9], 6, "the rewards of every group were equal", "larger groups"),
        (
            [GOOD, *[GOOD | {"kl": 14_317.0}] * 9],
            2,
            "the KL of a step, 1.43e+04 per token, is more than 0.5",
            "kl_stop",
        ),
        ([GOOD, *[GOOD | {"kl_moved": 0.6, "kl": None}] * 2], 2, "the KL of a step, 0.6 per token", "learning rate"),
        ([GOOD, *[GOOD | {"entropy": 0.009}] * 9], 2, "the entropy, 0.009 per token, is below 0.01", "temperature"),
        ([GOOD, *[GOOD | {"grad_norm": 0.0}] * 9], 2, "the gradient norm is 0", "weights are frozen"),
    ],
)
def test_each_sign_is_said_once_with_its_remedy(made: list[dict], step: int, sign: str, remedy: str) -> None:
    made = [{name: x for name, x in line.items() if x is not None} for line in made]
    ((at, (text,)),) = steps(*made).items()
    assert at == step and text.startswith(f"step {step}: {sign}") and remedy in text


def test_what_is_healthy_or_not_known_says_nothing() -> None:
    edge = GOOD | {"kl": 0.5, "entropy": 0.01}
    unknown = {"reward": math.nan, "zero_advantage_groups": 1.0, "kl": math.nan, "entropy": math.nan, "groups": 0}
    warming = GOOD | {"grad_norm": 0.0, "lr": 0.0}
    assert not steps(*[GOOD, edge] * 5) | steps(*[DEAD, DEAD, GOOD] * 5) | steps(*[unknown | {"grad_norm": 0.0}] * 9)
    assert not steps(*[{}] * 9) | steps(*[warming] * 9)
    assert not steps(*[SAME | {"grad_norm": 0.2}] * 9, rewarded=False), "a teacher teaches where rewards are equal"
    assert not Watch()({"step": 0, "entropy": 0.0}), "the evaluation before the first step"


def test_a_run_that_goes_on_is_not_at_its_start() -> None:
    ((step, (text,)),) = steps(*[DEAD] * 5, begin=7).items()
    assert step == 10 and "equal in 3 batches" in text


def test_a_run_of_another_framework_warns_once_and_again_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    run = RunLog(tmp_path / "run", 0, {}, "objective", ())
    for step in range(1, 6):
        run.write({"step": step, **DEAD})
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("warning: step 3: the reward of every response")
    run.warn()
    assert caplog.messages == caplog.messages[:1] * 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_clone_has_its_commit_and_says_that_it_was_changed(tmp_path: Path) -> None:
    package = tmp_path / "clone" / "src" / "ours"
    package.mkdir(parents=True)
    (package / "it.py").write_text("x = 1\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", str(tmp_path / "clone"), *words], check=True)
    head = subprocess.run(["git", "-C", str(package), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert commit(package) == head.stdout.strip()
    commit.cache_clear()
    (package / "it.py").write_text("x = 2\n")
    assert commit(package) == head.stdout.strip() + " and changes"
    assert commit(shutil.copytree(package, tmp_path / "elsewhere" / "src" / "ours")) is None
