"""The adapter's parts by hand: schedule, contract with TRL, objective, temperature. Imports TRL."""

import dataclasses
import functools
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import TrlParser  # pyright: ignore
from trl.generation import vllm_generation as home  # pyright: ignore

import refused
import tokenpo
from tokenpo.base.errors import TokenPOError, Unsupported
from tokenpo.core.parts import GeometricSequence, ReferenceKl, Reweighted, RolloutCorrection, TokenRatio
from tokenpo.core.request_temperature import PROCESSOR
from tokenpo.hosts.trl import TokenPOConfig, check_import
from tokenpo.hosts.trl.objective import chosen, with_reference
from tokenpo.hosts.trl.records import judging
from tokenpo.hosts.trl.temperature import Generated, Served, Temperature, of_draw, with_vllm
from trl_support.small import config

args = functools.partial(config, Path("unused"))


def objective(requested: Any = None, /, **given: Any) -> tokenpo.Objective:
    return chosen(args(**({"method": None} if requested else {}) | given), requested)


def test_without_trl_its_settings_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(
        Unsupported, match=r"needs trl>=1\.16,<1\.17, and it cannot be imported .*: pip install 'tokenpo"
    ):
        check_import()


def test_evaluations_and_vllms_first_batch_are_drawn_at_the_base_temperature() -> None:
    method = tokenpo.method("hapo")

    def kind(use_vllm: bool, training: bool, numbers: dict[str, float]) -> type:
        learner = SimpleNamespace(memory={method.temperature: numbers})
        model = SimpleNamespace(training=training)
        args = SimpleNamespace(kept_tokens=False)
        settings = {"temperature": 0.7, "policy_objective": method, "use_vllm": use_vllm, "args": args}
        return type(of_draw(SimpleNamespace(**settings, learner=learner, model=model)))

    known = {"pivot": -1.5, "spread": 0.5, "top": 1.0, "bottom": -1.0}
    assert kind(False, False, known) is kind(True, False, known) is kind(True, True, {}) is Temperature
    assert (kind(False, True, known), kind(True, True, known)) == (Generated, Served)


@pytest.mark.parametrize(("half", "method"), [(False, "hapo"), (True, "grpo")])
def test_trls_own_vllm_gets_our_processor_and_the_trainers_precision(half: bool, method: str, monkeypatch) -> None:
    """TRL leaves the type to vLLM, which takes half precision; afterwards TRL has its own engine back."""
    monkeypatch.setattr(home, "LLM", made := lambda **named: named, raising=False)
    given = args(use_vllm=True, vllm_mode="colocate", bf16=half)
    trainer = SimpleNamespace(model=SimpleNamespace(dtype=torch.float32))
    with with_vllm(trainer, tokenpo.method(method), given):
        named = home.LLM(model="a")
    adapted = {} if half else {"logits_processors": [PROCESSOR], "dtype": "float32"}
    assert named == {"model": "a", **adapted} and home.LLM is made


def test_every_request_to_vllm_carries_the_numbers() -> None:
    numbers = {"tokenpo_tau": 0.4}
    for mode, key in (("colocate", "extra_args"), ("server", "vllm_xargs")):
        generation = SimpleNamespace(mode=mode, generation_kwargs={key: {"mine": 1}})
        with Served(SimpleNamespace(vllm_generation=generation), 1.0, None, numbers).sampling():
            assert generation.generation_kwargs == {key: {"mine": 1, **numbers}}
        assert generation.generation_kwargs == {key: {"mine": 1}}


def test_trls_parser_reads_the_settings() -> None:
    line = ["--output_dir", "unused", "--use_cpu", "true", "--bf16", "false", "--method", "dapo", "--trace_every", "2"]
    line += ["--method_options", '{"high": 0.3, "dual": null}']
    (given,) = TrlParser(TokenPOConfig).parse_args_and_config(line)
    assert chosen(given) == tokenpo.method("dapo", high=0.3, dual=None)
    assert given.trace_every == 2


@pytest.mark.parametrize("requested", ["gspo", tokenpo.method("gspo")])
def test_two_methods(requested: Any) -> None:
    assert objective(requested, method="gspo") == objective(requested) == tokenpo.method("gspo")
    refused.check("gspo method=", lambda: objective(requested, method="grpo"), error=TokenPOError)


def test_vllms_correction_is_a_weight_of_ours() -> None:
    """TRL's default with vLLM: the product of a response's ratios, dropped above 3. A method that corrects for the
    policy that sampled is left as it is."""
    default = RolloutCorrection(sequence=True, mask=True, cap=3.0, floor=0.0)
    assert objective("gspo", use_vllm=True).weights == (default,)
    assert objective("gspo", use_vllm=True, vllm_importance_sampling_correction=False).weights == ()
    own = dataclasses.replace(tokenpo.method("gspo"), weights=(RolloutCorrection(cap=7.0),))
    for method in (own, tokenpo.method("dppo_tv"), tokenpo.method("dppo_kl")):
        assert objective(method, use_vllm=True) == method


def test_who_reports_log_probabilities() -> None:
    """vLLM, with tools too, and a rollout_func; that tools alone do not is in test_refusals.py."""
    for bound in ({"rollout_func": print}, {}, {"tools": [print]}):
        given = args(method="dppo_tv", use_vllm="rollout_func" not in bound)
        assert "rollout_logprob" in chosen(given, None, bound).needs


@pytest.mark.parametrize(
    ("method", "beta", "loaded"),
    [("grpo", 0.0, 0.0), ("archer", 0.0, 0.001), ("adv_reweight", 0.0, 0.001), ("grpo", 0.2, 0.2)],
)
def test_the_reference_is_loaded_where_it_is_read(method: str, beta: float, loaded: float) -> None:
    given = args(beta=beta, method=method)
    made = chosen(given)
    assert with_reference(given, made).beta == loaded
    assert given.beta == beta
    assert ("ref_logprob" in made.needs) == (loaded != 0.0)


def test_the_reference_penalty_takes_the_ratio_at_the_methods_level() -> None:
    """As TRL does by default; its switch turns the ratio off."""
    sequence, token = Reweighted(ReferenceKl(0.2), GeometricSequence()), Reweighted(ReferenceKl(0.2), TokenRatio())
    levels = {"grpo": token, "gspo": sequence, "gspo_token": sequence, "cispo": token, "vespo": token}
    assert {name: objective(name, beta=0.2).penalties[-1] for name in levels} == levels
    assert objective(beta=0.2, use_bias_correction_kl=False).penalties == (ReferenceKl(0.2),)


BINARY, GRADED = [0.0, 1.0, math.nan], [0.1, 1.0, 0.0]


@pytest.mark.parametrize(
    ("columns", "judge"),
    [
        ({"formatted": BINARY, "correct": BINARY}, 1),  # examples/trl_gsm8k.py has both
        ({"accuracy_reward": BINARY, "formatted": GRADED}, 0),
        ({"correct": BINARY, "accuracy": GRADED}, 1),
        ({"anything": BINARY}, 0),
        ({"anything": GRADED}, None),
        ({"correct": GRADED, "formatted": BINARY}, None),
        ({"correct": [1.0, -1.0, 1.0]}, None),
    ],
)
def test_the_function_that_judges(columns, judge):
    assert judging([*columns], torch.tensor([*columns.values()]).T) == judge
