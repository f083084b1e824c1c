"""algorithm.tokenpo and verl's own settings: what is set for an objective, what is refused and with which remedy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tokenpo
from foreign_support import need
from tokenpo.methods import METHODS

need("verl.workers.utils.padding", "verl is not installed: our settings were not read from its config")

from omegaconf import DictConfig, OmegaConf  # noqa: E402

from engines.verl.support.composed import composed  # noqa: E402
from tokenpo.base.errors import TokenPOError, UnknownName, Unsupported  # noqa: E402
from tokenpo.core.parts import (  # noqa: E402
    K3,
    Criterion,
    LogLikelihood,
    Mean,
    ReferenceKl,
    Rejection,
    RolloutCorrection,
    SoftOverlong,
)
from tokenpo.engines.verl.configure import Settings, configure  # noqa: E402
from tokenpo.engines.verl.correction import KEYS  # noqa: E402
from tokenpo.engines.verl.settings import SETTINGS  # noqa: E402
from tokenpo.models.request_temperature import PROCESSOR  # noqa: E402


def _asked(*words: str) -> tuple[Settings, DictConfig]:
    config = composed(*words)
    return configure(config), config


def test_the_objective_is_that_of_a_recipe() -> None:
    got, config = _asked(
        "+algorithm.tokenpo.method=hapo",
        "+algorithm.tokenpo.options.tau=0",
        "+algorithm.tokenpo.soft_overlong.cache=16",
        "+algorithm.tokenpo.correction.level=sequence",
        "+algorithm.tokenpo.reference_kl.beta=0.01",
    )
    plain = tokenpo.method("hapo", tau=0)
    assert got.objective.credit == plain.credit and got.objective.surrogate == plain.surrogate
    assert got.objective.shaping == (SoftOverlong(512, 16),)
    assert got.objective.weights == (*plain.weights, RolloutCorrection(sequence=True))
    assert [type(part) for part in got.objective.penalties] == [ReferenceKl]
    assert config.trainer.v1.trainer_mode == "sync"
    assert config.actor_rollout_ref.actor.use_kl_loss is True
    assert config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu == 4


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["tepo"], "actor_rollout_ref.actor.calculate_entropy", True),
        (["grpo", "+algorithm.tokenpo.correction.cap=2"], "actor_rollout_ref.rollout.calculate_log_probs", True),
        (["hapo"], "actor_rollout_ref.rollout.agent.default_agent_loop", "tokenpo_single_turn"),
    ],
)
def test_what_is_set(words: list[str], key: str, value: Any) -> None:
    off = "actor_rollout_ref.rollout.calculate_log_probs=False"
    got, config = _asked(off, f"+algorithm.tokenpo.method={words[0]}", *words[1:])
    assert OmegaConf.select(config, key) == value
    assert any(note.startswith(f"set {key}={value} (was ") for note in got.notes)


def test_vllm_is_told_the_processor() -> None:
    place = "actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors"
    words = ["+algorithm.tokenpo.method=hapo", "actor_rollout_ref.rollout.name=vllm"]
    _, config = _asked(*words)
    assert list(OmegaConf.select(config, place)) == [PROCESSOR]
    _, config = _asked(*words, f"+{place}=[mine]")
    assert list(OmegaConf.select(config, place)) == ["mine", PROCESSOR]
    _, config = _asked(*words, "+algorithm.tokenpo.options.tau=0")
    assert OmegaConf.select(config, place) is None


def test_grpo_changes_nothing_but_the_mode() -> None:
    config = composed("+algorithm.tokenpo.method=grpo")
    before = OmegaConf.to_container(config, resolve=False)
    got = configure(config)
    config.trainer.v1.trainer_mode = "tokenpo"
    assert OmegaConf.to_container(config, resolve=False) == before
    assert got.objective == tokenpo.method("grpo") and not got.notes and got.report is None


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], TokenPOError, r"needs a method: add \+algorithm.tokenpo.method=grpo"),
        (["+algorithm.tokenpo.options.low=0.1"], TokenPOError, r"needs a method: add \+algorithm.tokenpo.method=grpo"),
        (["+algorithm.tokenpo.method=hap"], UnknownName, "did you mean 'hapo'"),
        (["+algorithm.tokenpo.method=hapo", "+algorithm.tokenpo.option.tau=1"], UnknownName, "did you mean 'options'"),
        (["+algorithm.tokenpo.method=hapo", "+algorithm.tokenpo.options.tua=1"], UnknownName, "did you mean 'tau'"),
        (["+algorithm.tokenpo.method=grpo", "+algorithm.tokenpo.correction.cup=1"], UnknownName, "did you mean 'cap'"),
        *(
            (["+algorithm.tokenpo.method=grpo", f"+algorithm.tokenpo.{word}"], TokenPOError, message)
            for word, message in (
                ("ratio_tolerance=x", r"^\+algorithm\.tokenpo\.ratio_tolerance: .* must be a number"),
                ("ratio_tolerance=-1", r"ratio_tolerance: .* greater than 0"),
                ("trace_every=-3", "no effect without a report"),
                ("report=3", r"^\+algorithm\.tokenpo\.report: .*string"),
                ("nonfinite=go", r"^\+algorithm\.tokenpo\.nonfinite: .*'stop' or 'skip'"),
                ("options=[1]", "options of the method"),
            )
        ),
        (
            ["+algorithm.tokenpo.method=grpo", "+algorithm.tokenpo.report=x", "+algorithm.tokenpo.trace_every=true"],
            TokenPOError,
            r"^\+algorithm\.tokenpo\.trace_every: .* must be a number",
        ),
    ],
)
def test_a_mistake_is_named(words: list[str], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        configure(composed(*words))


def test_verls_own_correction_becomes_weights_and_verl_is_left_none() -> None:
    """Its numbers against verl's functions: tests/foreign/test_verl_corrections.py."""
    place = "algorithm.rollout_correction"
    config = composed(
        "+algorithm.tokenpo.method=grpo", f"{place}.rollout_is=token", f"{place}.rollout_rs=seq_mean_k3",
        f"{place}.rollout_rs_threshold=0.01", f"{place}.bypass_mode=True", f"{place}.loss_type=reinforce",
    )  # fmt: skip
    found = configure(config)
    assert found.objective.weights == (
        RolloutCorrection(current=True),
        Rejection((Criterion(Mean(), high=0.01, of=K3()),), current=True),
    )
    assert found.objective.bypass and found.objective.surrogate == LogLikelihood()
    assert {key: OmegaConf.select(config, f"{place}.{key}") for key in KEYS} == KEYS
    assert any("verl itself corrects nothing" in note for note in found.notes)
    assert config.actor_rollout_ref.rollout.calculate_log_probs
    with pytest.raises(TokenPOError, match="comes on top of RolloutCorrection"):
        configure(
            composed(
                "+algorithm.tokenpo.method=grpo", f"{place}.rollout_is=token", "+algorithm.tokenpo.correction.cap=2"
            )
        )


def test_what_would_be_ignored_is_compared_with_verls_own_default() -> None:
    config = composed("+algorithm.tokenpo.method=grpo")
    missing = object()
    usual = {one.key: one.only[0] for one in SETTINGS if one.fate == "refused" and one.key != "critic.enable"}
    found = {name: OmegaConf.select(config, name, default=missing) for name in usual}
    found.pop("actor_rollout_ref.actor.loss_scale_factor"), found.pop("distillation.enabled")
    # No key of verl's YAML, but a field that may be added.
    assert found.pop("actor_rollout_ref.actor.policy_loss.rollout_correction") is missing
    assert found == {name: usual[name] for name in found}


def _keys(node: Any, prefix: str) -> set[str]:
    """Of a composed section, down to the leaves, without what only says which class a section is."""
    found: set[str] = set()
    for key in node:
        below = OmegaConf.select(node, str(key), throw_on_missing=False)
        whole = isinstance(below, DictConfig) and len(below)
        found |= _keys(below, f"{prefix}.{key}") if whole else {f"{prefix}.{key}"}
    return {name for name in found if not name.endswith("._target_")}


def _fields(kind: type, prefix: str) -> set[str]:
    """Of a class of verl's settings: some are in no YAML, and may be added."""
    return {f"{prefix}.{field.name}" for field in dataclasses.fields(kind) if field.name != "_target_"}


def test_every_key_of_algorithm_and_actor_is_told_once() -> None:
    from verl.trainer.config import AlgoConfig
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    actor, config = "actor_rollout_ref.actor", composed()
    present = _keys(config.algorithm, "algorithm") | _keys(config.actor_rollout_ref.actor, actor)
    for kind, place in (
        (AlgoConfig, "algorithm"),
        (FSDPActorConfig, actor),
        (PolicyLossConfig, f"{actor}.policy_loss"),
    ):
        # A section whose keys are in the YAML is told by them.
        present |= {name for name in _fields(kind, place) if not any(key.startswith(f"{name}.") for key in present)}
    told = [setting.key for setting in SETTINGS]
    assert len(told) == len(set(told))
    told = [name for name in told if name.startswith(("algorithm.", f"{actor}."))]
    by = {
        key: [name for name in told if name == key or (name.endswith(".*") and key.startswith(name[:-1]))]
        for key in present
    }
    assert {key: names for key, names in by.items() if len(names) != 1} == {}
    assert {name for names in by.values() for name in names} == set(told)


def test_dynamic_sampling_goes_with_hapo() -> None:
    got, _ = _asked("+algorithm.tokenpo.method=hapo", "algorithm.filter_groups.enable=True")
    assert got.objective == tokenpo.method("hapo")


def test_what_is_unlikely_to_be_meant() -> None:
    words = ["+algorithm.tokenpo.method=kl_cov", "data.train_batch_size=64"]
    once, _ = _asked(*words, "actor_rollout_ref.actor.ppo_mini_batch_size=64")
    often, _ = _asked(*words, "actor_rollout_ref.actor.ppo_mini_batch_size=16")
    assert any("cannot act" in note for note in once.notes)
    assert not any("cannot act" in note for note in often.notes)


def test_every_method_is_taken_or_refused_by_name() -> None:
    refused = set()
    for name in METHODS:
        try:
            got, _ = _asked(f"+algorithm.tokenpo.method={name}")
            assert dataclasses.replace(got.objective, name=name) == tokenpo.method(name)
        except Unsupported as error:
            refused.add(name)
            assert str(error).startswith(f"{name} needs ")
    assert refused == {"nthr", "thr", "tw_grpo", "arm", "vineppo", "spo", "gdpo", "otb", "mt_grpo", "gigpo"}
