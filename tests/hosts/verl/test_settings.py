"""algorithm.tokenpo and verl's own settings: what is set for an objective, what is refused and with which remedy."""

import dataclasses
from typing import Any

import pytest
from host_settings import VERL
from omegaconf import DictConfig, OmegaConf

import tokenpo
from hosts.verl.support.composed import composed
from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.core.parts import K3, Criterion, LogLikelihood, Mean, Rejection, RolloutCorrection
from tokenpo.core.request_temperature import PROCESSOR
from tokenpo.hosts.verl.configure import KEYS, Settings, configure
from tokenpo.hosts.verl.settings import SETTINGS


def _configured(*words: str) -> tuple[Settings, DictConfig]:
    config = composed(*words)
    return configure(config), config


GRPO, KEY, POLICY = "+algorithm.tokenpo.method=grpo", "+algorithm.tokenpo", "actor_rollout_ref"


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ([f"{KEY}.method=tepo"], f"{POLICY}.actor.calculate_entropy", True),
        ([GRPO, f"{KEY}.correction.cap=2"], f"{POLICY}.rollout.calculate_log_probs", True),
        (
            [f"{KEY}.method=hapo", "algorithm.filter_groups.enable=True"],
            f"{POLICY}.rollout.agent.default_agent_loop",
            "tokenpo_single_turn",
        ),
        ([GRPO, f"{KEY}.reference_kl.beta=0.01"], f"{POLICY}.actor.use_kl_loss", True),
        ([GRPO, f"{KEY}.reference_kl.beta=0.01"], f"{POLICY}.ref.log_prob_micro_batch_size_per_gpu", 4),
    ],
)
def test_what_is_set(words: list[str], key: str, value: Any) -> None:
    got, config = _configured(f"{POLICY}.rollout.calculate_log_probs=False", *words)
    assert OmegaConf.select(config, key) == value
    assert any(note.startswith(f"set {key}={value} (was ") for note in got.notes)


def test_vllm_is_told_the_processor() -> None:
    place = "actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors"
    words = ["+algorithm.tokenpo.method=hapo", "actor_rollout_ref.rollout.name=vllm"]
    _, config = _configured(*words)
    assert list(OmegaConf.select(config, place)) == [PROCESSOR]
    _, config = _configured(*words, f"+{place}=[mine]")
    assert list(OmegaConf.select(config, place)) == ["mine", PROCESSOR]
    _, config = _configured(*words, "+algorithm.tokenpo.options.tau=0")
    assert OmegaConf.select(config, place) is None


def test_grpo_changes_nothing_but_the_mode() -> None:
    config = composed("+algorithm.tokenpo.method=grpo")
    before = OmegaConf.to_container(config, resolve=False)
    got = configure(config)
    config.trainer.v1.trainer_mode = "tokenpo"
    assert OmegaConf.to_container(config, resolve=False) == before
    assert got.objective == tokenpo.method("grpo") and not got.notes and got.keys.report is None


NO_METHOD = r"needs a method: add \+algorithm.tokenpo.method=dapo"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], TokenPOError, NO_METHOD),
        ([f"{KEY}.method=hap"], UnknownName, "did you mean 'hapo'"),
        (
            [GRPO, f"{KEY}.ratio_tolerance=x"],
            TokenPOError,
            r"^\+algorithm\.tokenpo: option ratio_tolerance = 'x' must be a number",
        ),
        ([GRPO, f"{KEY}.options=[1]"], TokenPOError, "expected options of it"),
    ],
)
def test_a_mistake_is_named(words: list[str], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        configure(composed(*words))


def test_verls_own_correction_becomes_weights_and_verl_is_left_none() -> None:
    """Its numbers against verl's functions: tests/foreign/test_verl_corrections.py."""
    place = "algorithm.rollout_correction"
    config = composed(
        "+algorithm.tokenpo.method=grpo",
        f"{place}.rollout_is=token",
        f"{place}.rollout_rs=seq_mean_k3",
        f"{place}.rollout_rs_threshold=0.01",
        f"{place}.bypass_mode=True",
        f"{place}.loss_type=reinforce",
    )
    found = configure(config)
    assert found.objective.weights == (
        RolloutCorrection(current=True),
        Rejection((Criterion(Mean(), high=0.01, of=K3()),), current=True),
    )
    assert found.objective.bypass and found.objective.surrogate == LogLikelihood()
    assert {key: OmegaConf.select(config, f"{place}.{key}") for key in KEYS} == KEYS
    assert any("verl itself corrects nothing" in note for note in found.notes)
    assert config.actor_rollout_ref.rollout.calculate_log_probs
    twice = composed(GRPO, f"{place}.rollout_is=token", f"{KEY}.correction.cap=2")
    with pytest.raises(TokenPOError, match="comes on top of RolloutCorrection"):
        configure(twice)


def test_what_would_be_ignored_is_compared_with_verls_own_default() -> None:
    config, missing = composed(), object()
    actor = "actor_rollout_ref.actor"
    # No default in verl's YAML, but a key that may be set; the first three follow another or are None.
    apart = {"critic.enable", "distillation.enabled", f"{actor}.loss_scale_factor"}
    added = {
        f"{actor}.policy_loss.rollout_correction": missing,
        "actor_rollout_ref.rollout.repetition_penalty": missing,
    }
    usual = {one.key: one.only[0] for one in SETTINGS if one.fate == "refused" and one.key not in apart}
    there = {name: OmegaConf.select(config, name, default=missing) for name in usual}
    assert there == usual | added


def _keys(node: Any, prefix: str) -> set[str]:
    """The leaves of a composed section, without the names of classes."""
    names: set[str] = set()
    for key in node:
        below = OmegaConf.select(node, str(key), throw_on_missing=False)
        whole = isinstance(below, DictConfig) and len(below)
        names |= _keys(below, f"{prefix}.{key}") if whole else {f"{prefix}.{key}"}
    return {name for name in names if not name.endswith("._target_")}


def test_every_key_of_algorithm_and_actor_has_one_row() -> None:
    from verl.trainer.config import AlgoConfig
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    actor, config = "actor_rollout_ref.actor", composed()
    present = _keys(config.algorithm, "algorithm") | _keys(config.actor_rollout_ref.actor, actor)
    for kind, place in (
        (AlgoConfig, "algorithm"),
        (FSDPActorConfig, actor),
        (PolicyLossConfig, f"{actor}.policy_loss"),
    ):
        # Some fields of verl's classes are in no YAML; a section whose keys are in it is there by them.
        fields = {f"{place}.{field.name}" for field in dataclasses.fields(kind) if field.name != "_target_"}
        present |= {name for name in fields if not any(key.startswith(f"{name}.") for key in present)}
    keys = [*(setting.key for setting in SETTINGS), *(key for _, key, _ in VERL)]
    assert len(keys) == len(set(keys))
    keys = [name for name in keys if name.startswith(("algorithm.", f"{actor}."))]
    rows = {
        key: [name for name in keys if name == key or (name.endswith(".*") and key.startswith(name[:-1]))]
        for key in present
    }
    assert {key: names for key, names in rows.items() if len(names) != 1} == {}
    assert {name for names in rows.values() for name in names} == set(keys)
