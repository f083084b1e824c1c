"""The adapter's parts by hand: schedule, contract with TRL, heat, recipes. Imports TRL into this process."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokenpo
from foreign_support import need
from tokenpo.base.errors import TokenPOError, UnknownName, Unsupported
from tokenpo.core.parts import GeometricSequence, ReferenceKl, Reweighted, TokenRatio
from tokenpo.methods import METHODS

MISSING = "trl is not installed: the adapter to it was not tested"
need("trl", MISSING)

from transformers.generation.logits_process import TemperatureLogitsWarper  # noqa: E402

from refusal_cases.trl import dropped, recipe  # noqa: E402
from tokenpo.engines.trl import TokenPOConfig, contract  # noqa: E402
from tokenpo.engines.trl.cycle import Cycle  # noqa: E402
from tokenpo.engines.trl.objective import chosen, with_reference  # noqa: E402
from tokenpo.engines.trl.recipe import TaskRewards, accepted, schedule, settings  # noqa: E402
from tokenpo.engines.trl.rollout_batch import stacked  # noqa: E402
from tokenpo.engines.trl.temperature import Constant, Generated, RuleProcessor, Served, of_draw  # noqa: E402
from tokenpo.engines.trl.updates import by_groups  # noqa: E402


def args(**given: Any) -> TokenPOConfig:
    usual = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}
    return TokenPOConfig("unused", **(usual | given))


def test_a_chunk_belongs_to_the_step_that_takes_it() -> None:
    """Six chunks, four to a step, taken twice: steps of chunks 0-3, then 4, 5, 0, 1, then 2-5."""
    cycle = Cycle(4, 6, 2)
    assert (cycle.micro_steps, cycle.updates) == (12, 3)
    assert [cycle.chunks_of(k) for k in range(3)] == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    assert [cycle.place(m) for m in (0, 3, 4, 11, 12, 17)] == [(0, 0), (0, 3), (1, 0), (2, 3), (0, 0), (1, 1)]
    seen = [chunk for k in range(3) for chunk in cycle.chunks_of(k)]
    assert sorted(seen) == sorted([*range(6)] * 2)


def test_passes_follow_each_other_over_the_whole_rollout_batch() -> None:
    cycle = Cycle(2, 4, 4, passes=2)
    assert [cycle.pass_of(k) for k in range(cycle.updates)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_remedy_is_accepted() -> None:
    assert Cycle(4, 4, 1).updates == 1
    assert Cycle(2, 4, 1).updates == 2
    assert Cycle(2, 2, 2, 2).updates == 2


def test_a_moved_surface_is_said_in_one_sentence() -> None:
    class Moved:
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list): ...
        def _generate_and_score_completions(self, inputs): ...
        def _compute_loss(self, model, inputs, extra): ...

    with pytest.raises(Unsupported, match=r"_compute_loss takes \(self, model, inputs, extra\).*install trl 1\.16"):
        contract.check_class(Moved)
    Moved._compute_loss = lambda self, model, inputs: None
    with pytest.raises(Unsupported, match="has no _get_per_token_logps_and_entropies"):
        contract.check_class(Moved)
    Moved._get_per_token_logps_and_entropies = lambda self, model, input_ids: None
    with pytest.raises(Unsupported, match="takes no attention_mask, logits_to_keep, batch_size, compute_entropy"):
        contract.check_class(Moved)
    with pytest.raises(Unsupported, match="has no _step, _buffered_inputs"):
        contract.check_instance(SimpleNamespace())


def test_the_rule_comes_before_the_constant_temperature() -> None:
    """Logits through the processor, then transformers' own division by the base: logits over the rule's temperature."""
    base, logits = 1.3, torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    entropies = []

    def rule(entropy: torch.Tensor, at: float) -> torch.Tensor:
        entropies.append(entropy)
        return torch.linspace(0.5, 2.0, 5) * at

    processor = RuleProcessor(rule, base)
    warped = TemperatureLogitsWarper(base)(None, processor(None, logits))
    temperature = torch.linspace(0.5, 2.0, 5) * base
    torch.testing.assert_close(warped, logits / temperature[:, None], rtol=1e-5, atol=1e-6)
    p = (logits / base).softmax(-1)
    torch.testing.assert_close(entropies[0], -(p * p.log()).sum(-1), rtol=1e-5, atol=1e-6)
    assert processor.called


def test_generate_is_itself_again_afterwards() -> None:
    class Model:
        def generate(self, **named):
            return named

    model, processor = Model(), RuleProcessor(lambda entropy, base: entropy, 1.0)
    trainer = SimpleNamespace(model_wrapped=model, accelerator=SimpleNamespace(unwrap_model=lambda model: model))
    with Generated(trainer, 1.0, processor.rule, processor).sampling():
        assert model.generate(a=1, logits_processor=["other"]) == {"a": 1, "logits_processor": ["other", processor]}
    assert model.generate(a=1) == {"a": 1}
    assert "generate" not in vars(model)


def test_rows_of_several_draws_are_padded_to_the_widest() -> None:
    """Prompts on the left, responses on the right, rewards not at all."""
    parts = [
        {
            "out_prompt_ids": torch.tensor([[1, 2]]),
            "mask": torch.tensor([[True]]),
            "rewards": torch.tensor([[0.5, 1.0]]),
        },
        {
            "out_prompt_ids": torch.tensor([[3]]),
            "mask": torch.tensor([[True, True]]),
            "rewards": torch.tensor([[2.0, 0.0]]),
        },
    ]
    found = stacked(parts)
    assert found["out_prompt_ids"].tolist() == [[1, 2], [0, 3]]
    assert found["mask"].tolist() == [[True, False], [True, True]]
    assert found["rewards"].tolist() == [[0.5, 1.0], [2.0, 0.0]]


def test_generation_kwargs_may_repeat_a_setting_and_add_to_them() -> None:
    """That a contradiction is refused is in test_refusals.py."""
    kwargs = {"temperature": 0.3, "max_new_tokens": 8, "typical_p": 0.9}
    assert args(temperature=0.3, max_completion_length=8, generation_kwargs=kwargs).generation_kwargs == kwargs


def test_vllms_correction_is_a_weight_of_ours() -> None:
    """TRL's default with vLLM: the product of a response's ratios, dropped above 3."""
    objective = chosen(args(use_vllm=True), "gspo", own_rollouts=False)
    assert objective.weights == (tokenpo.core.parts.RolloutCorrection(sequence=True, mask=True, cap=3.0, floor=0.0),)
    off = chosen(args(use_vllm=True, vllm_importance_sampling_correction=False), "gspo", own_rollouts=False)
    assert off.weights == ()


def test_who_reports_log_probabilities() -> None:
    """vLLM, with tools too, and a rollout_func; that tools alone do not is in test_refusals.py."""
    for how in ({"own_rollouts": True, "reported": True}, {"own_rollouts": False}, {"own_rollouts": True}):
        given = args(method="dppo_tv", use_vllm="reported" not in how)
        assert "rollout_logprob" in chosen(given, None, **how).needs


@pytest.mark.parametrize("method", ["dppo_tv", "dppo_kl"])
def test_what_corrects_for_vllm_itself_is_not_corrected_twice(method: str) -> None:
    assert chosen(args(use_vllm=True), method, own_rollouts=False) == tokenpo.method(method)
    own = dataclasses.replace(tokenpo.method("gspo"), weights=(tokenpo.core.parts.RolloutCorrection(cap=7.0),))
    assert chosen(args(use_vllm=True), own, own_rollouts=False) == own


def test_vllm_heats() -> None:
    harmless = {"seed": 1, "stop": ["#"]}
    assert chosen(args(use_vllm=True, method="hapo", generation_kwargs=harmless), None, own_rollouts=False).temperature


@pytest.mark.parametrize(
    ("reported", "shift", "refused"),
    [
        (-1.02, 0.1, False),  # 0.02 from the adapted -1.0, 0.12 from the base -0.9
        (-0.92, 0.1, True),
        (-0.9, 0.0005, False),  # nothing to tell apart
    ],
)
def test_what_vllm_reports_shows_whether_it_was_heated(reported: float, shift: float, refused: bool) -> None:
    """Two tokens that count and one of padding that does not; the adapted log-probability is -1."""
    objective = tokenpo.method("hapo")
    rule = objective.temperature
    assert rule is not None
    numbers = {"pivot": -1.5, "spread": 0.5, "top": 1.0, "bottom": -1.0}
    entropy = torch.tensor([[0.1, 0.2, 0.3]])
    facts = {
        "mask": torch.tensor([[True, True, False]]), "old_logprob": torch.full((1, 3), shift - 1.0),
        "old_entropy": entropy, "rollout_logprob": torch.tensor([[reported, reported, -50.0]]),
    }  # fmt: skip
    asked = []

    def policy(model: object, output: object, rows: int, heat: torch.Tensor) -> tokenpo.Policy:
        asked.append(heat)
        return tokenpo.Policy(torch.full((1, 3), -1.0), entropy)

    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(gather=lambda x: x),
        args=SimpleNamespace(per_device_train_batch_size=1),
        model=None,
        policy_objective=objective,
        forward_passes=SimpleNamespace(policy=policy),
    )
    served = Served(trainer, 1.0, functools.partial(rule, numbers=numbers), {})
    if refused:
        said = r"are 0.08 nats a token from .* adapted temperature and 0.02 from those at 1:"
        with pytest.raises(Unsupported, match=said):
            served.check({}, facts)
    else:
        served.check({}, facts)
    torch.testing.assert_close(asked, [rule(entropy, 1.0, numbers)])


def test_each_draw_has_the_temperature_of_what_samples_it() -> None:
    objective = tokenpo.method("hapo")
    rule = objective.temperature
    numbers = {"pivot": -1.5, "spread": 0.5, "top": 1.0, "bottom": -1.0}

    def of(use_vllm: bool, method: tokenpo.Objective = objective, training: bool = True, told: bool = True) -> Any:
        return of_draw(
            SimpleNamespace(
                temperature=0.7, policy_objective=method, use_vllm=use_vllm,
                learner=SimpleNamespace(memory={rule: numbers if told else {}}),
                model=SimpleNamespace(training=training), model_wrapped="wrapped",
                accelerator=SimpleNamespace(unwrap_model=lambda model: f"un{model}"),
            )
        )  # fmt: skip

    for use_vllm in (False, True):
        assert type(of(use_vllm, training=False)) is Constant
        assert type(of(use_vllm, tokenpo.method("grpo"))) is Constant
    constant = of(True, told=False)
    assert type(constant) is Constant and constant.base == 0.7
    generated, served = of(False), of(True)
    assert isinstance(generated, Generated) and isinstance(served, Served)
    assert generated.processor.base == 0.7
    entropy = torch.tensor([0.1, 0.9])
    torch.testing.assert_close(generated.processor.rule(entropy, 0.7), rule(entropy, 0.7, numbers))
    torch.testing.assert_close(served.of(entropy), rule(entropy, 0.7, numbers))
    assert {"tokenpo_pivot": -1.5, "tokenpo_tau": rule.tau}.items() <= served.numbers.items() and served.base == 0.7
    torch.testing.assert_close(constant.of(torch.zeros(2, 3)), torch.full((2, 3), 0.7), rtol=0, atol=0)


def test_the_reference_is_loaded_where_it_is_read() -> None:
    for name, beta, expected in (
        ("grpo", 0.0, 0.0),
        ("archer", 0.0, 0.001),
        ("adv_reweight", 0.0, 0.001),
        ("grpo", 0.2, 0.2),
    ):
        given = args(beta=beta, method=name)
        objective = chosen(given, None, own_rollouts=False)
        assert with_reference(given, objective).beta == expected
        assert given.beta == beta
        assert ("ref_logprob" in objective.needs) == (expected != 0.0)


def test_the_reference_penalty_takes_the_ratio_at_the_methods_level() -> None:
    """As TRL does by default; its switch turns the ratio off."""
    plain = ReferenceKl(0.2)
    for name, ratio in (
        ("grpo", TokenRatio()),
        ("gspo", GeometricSequence()),
        ("gspo_token", GeometricSequence()),
        ("cispo", TokenRatio()),
        ("vespo", TokenRatio()),
    ):
        objective = chosen(args(beta=0.2, method=name), None, own_rollouts=False)
        assert objective.penalties[-1] == Reweighted(plain, ratio), name
    objective = chosen(args(beta=0.2, use_bias_correction_kl=False), None, own_rollouts=False)
    assert objective.penalties == (plain,)


def test_which_methods_trl_can_train() -> None:
    """All but those that compare more than rewards inside a group, draw more, or read the sampler's own numbers."""
    refused = set()
    for name in METHODS:
        try:
            chosen(args(method=name), None, own_rollouts=False)
        except Unsupported:
            refused.add(name)
    assert refused == {
        *("tw_grpo", "nthr", "thr", "arm", "vineppo", "spo", "dppo_tv", "dppo_kl", "otb", "gigpo"),
        *("rollout_is", "prime_rl", "m2po_rollout"),
    }


def test_a_recipes_rollout_batch_is_trls() -> None:
    """32 x 8 rows, four minibatches of 64: on two ranks 32 rows each, in micro-batches of at most 20: 16 and 16."""
    config = recipe(train={"minibatches": 4, "epochs": 3, "micro_rows": 20, "steps": 5})
    plan = schedule(config, accepted(config), 2, 10)
    assert (plan.rows, plan.accumulate, plan.chunks, plan.iterations, plan.updates) == (16, 2, 8, 3, 12)
    found = settings(config, plan, config.directory())
    assert found["max_steps"] == 60
    assert found["save_steps"] == 20 * 12
    # 16384 tokens hold 4096 rows of four; of 4000 tokens a row, four fit.
    long = schedule(recipe(rollout={"max_new_tokens": 4000}), accepted(config), 1, 10)
    assert long.rows == 4
    assert found["minibatch_by"] == "groups"
    whole = recipe(train={"minibatches": 1})
    assert settings(whole, plan, Path())["minibatch_by"] == "rows"


def test_minibatches_of_whole_groups_need_whole_groups_on_every_process() -> None:
    """8 groups of 4 in four minibatches: one process takes 8 rows of each, two take 4, and four would take 2."""
    sections = {"rollout": {"prompts": 8, "group_size": 4}, "train": {"minibatches": 4}}
    config = recipe(**sections)
    assert [schedule(config, accepted(config), n, 10).accumulate for n in (1, 2)] == [1, 1]
    rows = recipe(**{**sections, "train": {"minibatches": 4, "minibatch_by": "rows"}})
    assert schedule(rows, accepted(rows), 4, 10).rows == 2


@pytest.mark.parametrize(
    ("plan", "rows", "remedy"),
    [
        ((2, 4, 1), 2, None),  # steps of four rows
        ((1, 4, 1), 8, None),
        ((4, 2, 2), 3, None),  # every step takes all chunks, twice
        ((1, 4, 1), 2, "= 2 rows: make them a multiple of 4, or set minibatch_by='rows'"),
        ((2, 3, 2), 4, "steps_per_generation = 3 of a rollout batch: make it a multiple"),
    ],
)
def test_which_schedules_hold_whole_groups(plan: tuple, rows: int, remedy: str | None) -> None:
    if remedy is None:
        Cycle(*plan, rows=rows).require_whole_groups(4)
        return
    with pytest.raises(Unsupported, match=re.escape(remedy)):
        Cycle(*plan, rows=rows).require_whole_groups(4)


def test_whole_groups_are_put_together_again() -> None:
    """Rows 8 to 19 of a second rank, shuffled by TRL into chunks of two: six groups of two, in a drawn order."""
    shuffled = torch.tensor([13, 8, 19, 10, 9, 16, 11, 18, 12, 15, 17, 14])
    chunks = [
        {"tokenpo_row": rows, "ids": torch.stack([rows, -rows], 1), "text": [str(int(r)) for r in rows],
         "count": torch.tensor(7), "none": None}
        for rows in shuffled.split(2)
    ]  # fmt: skip
    found = by_groups(chunks, 2, torch.Generator().manual_seed(0))
    rows = [chunk["tokenpo_row"].tolist() for chunk in found]
    assert sorted(rows) == [[first, first + 1] for first in range(8, 20, 2)]
    assert rows != sorted(rows)
    for chunk in found:
        assert chunk["ids"][:, 0].tolist() == (-chunk["ids"][:, 1]).tolist() == chunk["tokenpo_row"].tolist()
        assert chunk["text"] == [str(row) for row in chunk["tokenpo_row"].tolist()]
        assert (int(chunk["count"]), chunk["none"]) == (7, None)


def test_a_larger_ratio_tolerance_lets_two_passes_differ(tmp_path: Path) -> None:
    """That dropout is refused at the usual one is in test_refusals.py."""
    dropped(ratio_tolerance=50.0)(tmp_path)
    lines = (tmp_path / "out" / "tokenpo" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2]
    for tolerance in (0.0, -1.0, float("nan")):
        with pytest.raises(TokenPOError, match=r"ratio_tolerance = .* must be above 0"):
            args(ratio_tolerance=tolerance)
    config = recipe(train={"ratio_tolerance": 0.2})
    plan = schedule(config, accepted(config), 1, 10)
    assert settings(config, plan, tmp_path)["ratio_tolerance"] == 0.2


def test_minibatch_by_is_rows_or_groups() -> None:
    with pytest.raises(TokenPOError, match="minibatch_by = 'group' must be 'rows' or 'groups'"):
        args(minibatch_by="group")


def test_a_task_is_two_reward_functions() -> None:
    from tokenpo.tasks import make_task

    task = make_task("dial_sum", {}, 0)
    rewards = TaskRewards(task)
    rows = rewards.rows(3)
    problems = task.problems("train", 0, 3)
    assert [row["prompt"] for row in rows] == [problem.prompt for problem in problems]
    answers = [f"#{problem.answer}" for problem in problems]
    wrong = [answers[0], "#", answers[2]]
    ids = [[1], [2], [3]]
    given = {"completions": wrong, "completion_ids": ids, "place": [0, 1, 2], "prompts": rows}
    assert rewards.reward(**given) == rewards.accuracy(**given) == [1.0, 0.0, 1.0]
    assert rewards.accuracy(completions=answers, completion_ids=[[1], [2], [3]], place=[0, 1, 2]) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"method": "grpoo"}, UnknownName, "did you mean 'grpo'"),
        ({"method_options": {"lowe": 0.1}}, UnknownName, "method grpo has no option 'lowe'; did you mean 'low'"),
        ({"method_options": "low"}, TokenPOError, "TokenPOConfig.method_options = 'low' is no JSON object"),
    ],
)
def test_a_mistake_in_the_method_is_named(given: dict, error: type, said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        chosen(args(**given), None, own_rollouts=False)


def test_a_method_is_a_name_or_a_value() -> None:
    with pytest.raises(TokenPOError, match="expected the name of a method or an Objective"):
        chosen(args(), 3, own_rollouts=False)  # pyright: ignore[reportArgumentType]


def test_without_trl_its_settings_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(Unsupported, match=r"needs trl>=1\.16,<2, and it cannot be imported .*: pip install 'tokenpo"):
        contract.check_import()
