"""TRL 1.16's settings through our trainer's door: the objective made of them is TRL's own loss of them.

What is translated is asked by our method, what is used by TRL's own field. Settings that take a trainer to show are
in tests/hosts/trl/test_beside.py.
"""

import dataclasses
import re
from typing import Any

import host_settings
import numpy as np
import pytest
from host_settings import TRANSLATED
from transformers import TrainingArguments

import tokenpo
from foreign_support import ours
from foreign_support.trl_trainer import GRPOConfig, loss, rollouts
from oracle_support import Sample, close, ragged
from tokenpo.hosts.trl import TokenPOConfig
from tokenpo.hosts.trl.objective import chosen
from tokenpo.hosts.trl.settings import CORRECTIONS, REFUSED
from trl_support.small import BESIDE

G = 4
seeds = pytest.mark.parametrize("seed", range(2))
GRPO = {"loss_type": "grpo"}
RESPONSE = {**GRPO, "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
BETA = {"beta": 0.3}
PLAIN = {**BETA, "use_bias_correction_kl": False}
BOUNDS = [(None, 1.5), (0.7, None), (0.7, 1.5)]
MASK = {"off_policy_mask_threshold": 0.02}


def _bounded(mode: str, **bounds: float | None) -> dict[str, Any]:
    names = {f"vllm_importance_sampling_{name}": x for name, x in {"mode": mode, **bounds}.items()}
    return {"use_vllm": True, **names}


# (method, TRL's settings of the same loss, the settings that are used)
USED = [
    ("grpo", GRPO, BETA),
    ("grpo", GRPO, PLAIN),
    ("gspo", RESPONSE, BETA),
    ("gspo", RESPONSE, PLAIN),
    ("grpo", GRPO, MASK),
    ("grpo", GRPO, {**MASK, **BETA}),
    *(("grpo", GRPO, _bounded(mode, clip_min=low, clip_max=high)) for mode in CORRECTIONS for low, high in BOUNDS),
    ("grpo", GRPO, _bounded("sequence_truncate", cap=2.0)),
    ("grpo", GRPO, {**_bounded("sequence_mask"), **PLAIN}),
    ("grpo", GRPO, {**_bounded("sequence_mask"), **MASK}),
    ("vespo", {"loss_type": "vespo"}, _bounded("token_mask", clip_max=1.5)),
    ("vespo", {"loss_type": "vespo"}, _bounded("token_truncate", clip_max=1.5)),
    ("grpo", GRPO, {"use_vllm": True, "vllm_importance_sampling_correction": False}),
]


def objective_of(method: str, options: Any = None, **settings: Any) -> tokenpo.Objective:
    args = TokenPOConfig(
        "unused", method=method, method_options=dict(options or {}), use_cpu=True, bf16=False, report_to="none",
        max_completion_length=9, **settings,
    )  # fmt: skip
    return chosen(args)


def _batch(seed: int) -> Sample:
    """Groups of four in TRL's order; the policy has left them, and the engine that sampled was half a nat away."""
    rng = np.random.default_rng(seed)
    sample = ragged(seed).alive()
    moved = np.minimum(np.where(sample.mask, sample.old_logprob + 0.5 * rng.normal(size=sample.mask.shape), 0), 0)
    group, left = np.repeat(np.arange(len(sample.reward) // G), G), np.where(sample.mask, sample.logprob - 0.05, 0)
    return sample.but(group=group, logprob=left, rollout_logprob=moved)


@seeds
@pytest.mark.parametrize(("method", "theirs", "settings"), USED, ids=str)
def test_what_is_used_is_the_same_loss(method: str, theirs: dict, settings: dict, seed: int) -> None:
    sample, how = _batch(seed), {**theirs, **settings}
    got, advantage = ours(objective_of(method, **settings), sample)
    correction = None
    if settings.get("use_vllm") and settings.get("vllm_importance_sampling_correction", True):
        correction = rollouts(sample, num_generations=G, **{**how, "beta": 0.0})["importance_sampling_ratio"]
        weights = np.broadcast_to(correction, sample.mask.shape)[sample.mask]
        assert (weights == 0).any() or len(np.unique(weights)) < len(weights), "no bound was met"
    if "off_policy_mask_threshold" in settings:
        assert 0 < (got.terms["weight"][sample.mask] == 0).mean() < 1, "no response was masked"
    close(got, loss(sample, advantage, correction=correction, sampled="use_vllm" in settings, **how))


def test_every_loss_type_is_translated() -> None:
    """The trainer holds no list of them; the help of the setting does."""
    known = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"].split("Supported values are")[1].split(".")[0]
    assert set(re.findall(r"'(\w+)'", known)) == {row.theirs.get("loss_type", "dapo") for row in TRANSLATED}


def test_every_field_is_told_once() -> None:
    """But for those of transformers, which act before or after the loss unless they are named."""
    told = [*REFUSED, *(name for _, name, _ in host_settings.TRL)]
    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert len(told) == len(set(told))
    newer = set(host_settings.NEWER)
    assert newer <= fields or not newer & fields, "transformers has some of its newer fields"
    assert fields - TrainingArguments.__dataclass_fields__.keys() <= set(told) <= fields | newer


def test_every_field_that_reaches_the_loss_is_in_a_case() -> None:
    used = {name for fate, name, _ in host_settings.TRL if fate == "used"}
    shown = {name for settings in BESIDE.values() for name in settings}
    shown |= {"num_generations", "max_completion_length", "per_device_train_batch_size"}
    assert used <= {name for *_, settings in USED for name in settings} | shown


def test_what_is_translated_is_refused_by_its_own_name() -> None:
    alone = {"multi_objective_aggregation", "entropy_coef", "entropy_coef_min"}
    assert {name for row in TRANSLATED for name in row.theirs} == {*REFUSED} - alone
