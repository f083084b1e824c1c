"""Methods of each kind, and mixtures of them, on the task and the model of the quickstart recipe: a few real steps."""

import pytest

from method_kinds import of_each_kind
from run_views import lines
from tokenpo.base.errors import Unsupported
from tokenpo.methods import method
from tokenpo.train.recipe.config import load_config
from tokenpo.train.recipe.files import find_recipe
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View

STEPS = 2
SMALL = (
    f"train.steps={STEPS}", "train.minibatches=2", "rollout.prompts=4", "rollout.group_size=6", "evaluate.problems=0",
    "output.trace_every=1", "task.options.operands=3", "rollout.max_new_tokens=32", "seed=1",
)  # fmt: skip


def steps(name: str, out, *settings: str) -> list[dict]:
    """The metrics of a short run."""
    overrides = (*SMALL, f"output.dir={out}", *settings)
    assert train(load_config(find_recipe("quickstart"), method=name, overrides=overrides), View()).finished
    return lines(out)


# method -> the input that the engine lacks, in a recipe without a teacher
REFUSED = {"gkd": "teacher_divergence"}
REFUSED |= dict.fromkeys(("opd", "rlsd", "rto", "sdar", "sdpo"), "teacher_logprob")
FEWER = {"vineppo": {"every": 32, "continuations": 2}}


@pytest.mark.parametrize("name", [name for name in of_each_kind() if name not in REFUSED])
def test_a_method_of_each_kind_makes_its_steps(name: str, tmp_path) -> None:
    options = FEWER.get(name, {})
    lines = steps(name, tmp_path / "run", *(f"method.{key}={x}" for key, x in options.items()))
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert (tmp_path / "run" / "objective.txt").read_text() == f"{method(name, **options)}\n"
    assert all(0 <= line["grad_norm"] < 1e4 for line in lines)
    # Not in every batch: some methods learn from few groups only.
    assert any(line["grad_norm"] > 0 and line["effective_tokens"] > 0 for line in lines)
    if not method(name).assumes_on_policy:
        assert any((line["kl"] or 0) > 0 for line in lines), "the policy has not moved between the updates of a batch"


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_reads_what_the_engine_lacks_is_refused_before_anything_is_sampled(name: str, tmp_path) -> None:
    with pytest.raises(Unsupported, match=f"^{name} needs {REFUSED[name]}, which the embedded engine does not provide"):
        steps(name, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_correction_and_reference_go_with_a_method(tmp_path) -> None:
    """The old log-probs come from the trainer's own pass, so that there is something to correct."""
    settings = (
        "rollout.rescore=true rollout.correction.level=sequence rollout.correction.mode=mask "
        "rollout.correction.cap=1.5 rollout.correction.floor=0.5 train.reference_kl.beta=0.1 "
        "train.reference_kl.straight_through=true"
    ).split()
    lines = steps("cispo", tmp_path / "run", *settings)
    assert all(line["grad_norm"] > 0 for line in lines)
    text = (tmp_path / "run" / "objective.txt").read_text()
    assert "RolloutCorrection(sequence=True, mask=True, cap=1.5, floor=0.5, " in text
    assert "ReferenceKl(beta=0.1, estimator=StraightThrough(value=K3(), gradient=K2())" in text
