"""verl's V1 trainer: its settings with `algorithm.tokenpo`."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]
from tensordict import TensorDict  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.v1 import trainer_base  # pyright: ignore[reportMissingImports]

import tokenpo
import tokenpo.engines.verl.plugin  # where the package is on the path but not installed
from engines.verl.support.composed import composed
from tokenpo.core.learner import Learner
from tokenpo.core.parts import RewardToGo, TokenMean
from tokenpo.engines.verl.configure import configure
from tokenpo.engines.verl.layout import rollouts_of
from tokenpo.engines.verl.plugin import OTHERS, refuse
from tokenpo.engines.verl.registries import ESTIMATOR, LOSS_MODE, policy_loss, require
from tokenpo.engines.verl.settings import ACTOR, ROLLOUT, SETTINGS, Setting
from tokenpo.engines.verl.trainer import DRIFT, TokenPOTrainer, learner_of, one_output_each
from tokenpo.methods import METHODS

from .case import Case

# A value other than verl's default, of the setting's own kind.
OTHER = {
    "'grpo'": "gae", "False": "True", "True": "False", "None": "0.5", "0": "0.01", "'vanilla'": "gspo",
    "'token-mean'": "seq-mean-token-mean", "1.0": "0.5", "0.2": "0.3", "3.0": "4.0", "0.0002": "0.002", "5.0": "6.0",
    "0.1": "0.2", "1.05": "1.1", "0.001": "0.01", "'low_var_kl'": "abs",
}  # fmt: skip
# Rows for some objectives, or with several values: a method, and a value that is refused.
WHERE = {
    "algorithm.filter_groups.enable": ("ha_dw", "True"),
    f"{ACTOR}.strategy": ("grpo", "megatron"),
    f"{ACTOR}.optim.lr_scheduler_type": ("lopti", "cosine"),
    f"{ACTOR}.optim.warmup_style": ("kl_cov", "cosine"),
    f"{ACTOR}.optim.lr_warmup_steps": ("clip_cov", "5"),
    f"{ACTOR}.optim.lr_warmup_steps_ratio": ("sent", "0.1"),
    f"{ROLLOUT}.top_p": ("grpo", "0.9"),
    f"{ROLLOUT}.top_k": ("dppo_tv", "50"),
    f"{ROLLOUT}.name": ("hapo", "sglang"),
    "critic.loss_agg_mode": ("ppo", "seq-mean-token-mean"),
    f"{ROLLOUT}.agent.default_agent_loop": ("hapo", "tool_agent"),
    f"{ROLLOUT}.temperature": ("opd", "0.7"),
    **{f"distillation.distillation_loss.{name}": ("opd", value) for name, value in (
        ("loss_mode", "k1"), ("use_task_rewards", "False"), ("distillation_loss_coef", "0.5"),
        ("loss_max_clamp", "10.0"), ("log_prob_min_clamp", "-10.0"), ("use_policy_gradient", "True"),
        ("policy_loss_mode", "gspo"), ("clip_ratio", "0.3"), ("clip_ratio_low", "0.3"), ("clip_ratio_high", "0.3"),
    )},
}  # fmt: skip
LOSS_INPUTS = ("old_log_prob", "log_prob", "advantages", "response_mask", "rollout_is_weights")
# An override with which the method of such a row reads its input.
BESIDE = {f"{ROLLOUT}.top_p": "algorithm.rollout_correction.rollout_is=token"}


class _Own(TokenMean):
    """A denominator of the user's."""


def _settings(method: str, *words: str) -> Callable[[Path], object]:
    """verl's main program with these overrides, up to our trainer's constructor."""
    return lambda directory: configure(composed(f"+algorithm.tokenpo.method={method}", *words))


def _stock_trainer(mode: str, *words: str) -> Callable[[Path], object]:
    """verl's own trainer."""
    return lambda directory: trainer_base.get_trainer_cls(mode)(
        config=composed(f"trainer.v1.trainer_mode={mode}", *words)
    )


LEGACY, SEPARATED = OTHERS


def _imported(module: str) -> Callable[[Path], None]:
    """A program of verl's imports its trainer."""

    def ask(directory: Path) -> None:
        before = sys.argv
        sys.argv = ["main_ppo", "+algorithm.tokenpo.method=grpo"]
        try:
            refuse(module)
        finally:
            sys.argv = before

    return ask


def _first_update(metrics: dict[str, float]) -> Callable[[Path], None]:
    """Our trainer's check after verl's first update."""

    def ask(directory: Path) -> None:
        config = composed("+algorithm.tokenpo.method=grpo")
        trainer: Any = SimpleNamespace(learner=learner_of(configure(config), config))
        TokenPOTrainer._check(trainer, metrics)

    return ask


def _arriving_at_a_tool(directory: Path) -> None:
    """A rollout of three tokens whose second one, with a reward on it, is a tool's."""
    objective = dataclasses.replace(METHODS["grpo"](), name="mine", credit=RewardToGo())

    def row(*numbers: float) -> Any:
        return torch.nested.as_nested_tensor([torch.tensor(numbers)], layout=torch.jagged)

    data = {"response_mask": row(1, 0, 1), "rm_scores": row(0.0, 1.0, 0.0), "old_log_probs": row(-1.0, -1.0, -1.0)}
    rollouts_of(TensorDict({**data, "uid": torch.tensor([0])}, [1]), objective, 1.0)


def _named_loop(directory: Path) -> None:
    """The first prompts of our trainer, from a data set with that column."""
    trainer: Any = TokenPOTrainer.__new__(TokenPOTrainer)
    trainer.learner, trainer.global_steps = Learner(tokenpo.method("hapo"), length=9), 1
    trainer.config = OmegaConf.create({"data": {"train_batch_size": 2}})
    columns = {"raw_prompt": ["1+1=", "1+2="], "agent_name": ["single_turn_agent", "tool_agent"]}
    trainer.train_dataloader_it = iter([{name: np.array(cells, dtype=object) for name, cells in columns.items()}])
    trainer._next_train_batch()


def _reads(method: str, name: str, option: str = "") -> Case:
    remedy = f"train it with the embedded engine (tokenpo train --method {method}), or choose another method"
    words = [f"+algorithm.tokenpo.options.{option}"] if option else []
    with_option = f" with `{option}`" if option else ""
    return Case(f"`{method}`{with_option}, which reads `{name}`", _settings(method, *words), (method, name), remedy)


def _kept(setting: Setting) -> Case:
    """A row of the table that refuses values, for some objectives or for all."""
    method, other = WHERE.get(setting.key) or ("grpo", OTHER[repr(setting.only[0])])
    back = "null" if setting.only[:1] == (None,) else next(iter(setting.only), None)
    request = f"`{setting.key}={other}`" + (f" with `{method}`" if setting.key in WHERE else "")
    words = [word for key, word in BESIDE.items() if key == setting.key]
    return Case(request, _settings(method, f"{setting.key}={other}", *words),
                (f"{setting.key}={other}", method, setting.why or setting.words),
                setting.remedy or f"set {setting.key}={back}")  # fmt: skip


CASES = [
    Case("`igrpo`, which puts drafts into its prompts", _settings("igrpo"), ("igrpo", "drafts"),
         "train with the embedded engine (tokenpo train)"),
    *(_reads(method, name) for method, name in (
        ("nthr", "influence"), ("thr", "influence"), ("tw_grpo", "divergence"), ("vineppo", "gain"), ("spo", "gain"),
        ("ospo", "gain"),
        ("arm", "prompt_logprob"), ("otb", "old_collision"), ("gigpo", "anchor"), ("gdpo", "rewards"),
        ("gkd", "teacher_divergence"),
    )),
    Case("a credit by token, with a reward on a tool's token", _arriving_at_a_tool, ("mine", "rm_scores"),
         "let the reward manager put them on the last token of the turn before"),
    _reads("tepo", "entropy_drift", "decreasing=analytic"),
    *(_kept(setting) for setting in SETTINGS if setting.only or setting.never),
    Case("a correction of which what is rejected leaves the denominators",
         _settings("grpo", *(f"+algorithm.tokenpo.correction.{word}" for word in ("preset=mis_geo", "leaves=true"))),
         ("grpo", "correction.leaves = true"), "set +algorithm.tokenpo.correction.leaves=false"),
    Case("`hapo`'s adaptive temperature with a data set whose column `agent_name` names a loop of verl's",
         _named_loop, ("hapo", "temperature", "tool_agent", "agent_name"), "set it to tokenpo_single_turn"),
    Case("`algorithm.tokenpo` with an asynchronous trainer of verl's",
         _stock_trainer("colocate_async", "+algorithm.tokenpo.method=grpo"),
         ("algorithm.tokenpo", "trainer.v1.trainer_mode=colocate_async", "earlier policies"),
         "set trainer.v1.trainer_mode=tokenpo"),
    *(Case(request, _stock_trainer("sync", *words), things, remedy) for request, words, things, remedy in (
        ("`loss_mode=tokenpo/gtpo`", [f"{LOSS_MODE}=tokenpo/gtpo"], ("gtpo", "old_entropy"),
         "+algorithm.tokenpo.method=gtpo"),
        ("`adv_estimator=tokenpo/ha_dw`", [f"{ESTIMATOR}=tokenpo/ha_dw"], ("ha_dw", "remembers"),
         "+algorithm.tokenpo.method=ha_dw"),
        ("`loss_mode=tokenpo/vineppo`", [f"{LOSS_MODE}=tokenpo/vineppo"], ("vineppo", "gain"),
         "train with the embedded engine"),
        ("`loss_mode=tokenpo/grpo` with verl's default `loss_agg_mode`", [f"{LOSS_MODE}=tokenpo/grpo"],
         ("grpo", "loss_agg_mode=token-mean"), f"set {ACTOR}.loss_agg_mode=seq-mean-token-mean"),
        ("`loss_mode=tokenpo/dr_grpo` without a length",
         [f"{LOSS_MODE}=tokenpo/dr_grpo", f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"],
         ("dr_grpo", "loss_scale_factor"), "set it to data.max_response_length"),
        ("`loss_mode=tokenpo/cispo` with a bound of verl's losses",
         [f"{LOSS_MODE}=tokenpo/cispo", f"{ACTOR}.clip_ratio_high=0.28"], ("cispo", "clip_ratio_high=0.28"),
         f"set {ACTOR}.clip_ratio_high=0.2"),
        ("`loss_mode=tokenpo/cispo` with a rollout correction",
         [f"{LOSS_MODE}=tokenpo/cispo", "algorithm.rollout_correction.rollout_is=token"], ("cispo", "rollout_is=token"),
         "+algorithm.tokenpo.method=cispo"),
    )),
    *(Case(f"`adv_estimator=tokenpo/grpo` with `{key}={value}`",
           _stock_trainer("sync", f"{ESTIMATOR}=tokenpo/grpo", f"{key}={value}"), ("grpo", f"{key}={value}"),
           f"set {key}={back}")
      for key, value, back in (
        ("algorithm.norm_adv_by_std_in_grpo", False, True), ("algorithm.gamma", 0.9, 1.0), ("algorithm.lam", 0.9, 1.0),
        ("algorithm.use_pf_ppo", True, False), ("critic.enable", True, False), ("trainer.critic_warmup", 5, 0),
    )),
    Case("`loss_mode=tokenpo/cispo` with the weights of a rollout correction in verl's legacy trainer",
         lambda directory: policy_loss("cispo", **dict.fromkeys(LOSS_INPUTS, torch.zeros(1, 1))),
         ("cispo", "algorithm.rollout_correction"), "+algorithm.tokenpo.method=cispo"),
    Case("an objective with a denominator of your own in verl's registry",
         lambda directory: require(dataclasses.replace(tokenpo.method("cispo"), aggregate=_Own())),
         ("cispo",), "+algorithm.tokenpo.method=cispo"),
    Case("`algorithm.tokenpo` with verl's legacy trainer", _imported(LEGACY),
         ("algorithm.tokenpo", "trainer.use_v1=False"), "set trainer.use_v1=True"),
    Case("`algorithm.tokenpo` with verl's one-step-off or fully asynchronous program", _imported(SEPARATED),
         ("algorithm.tokenpo", "one-step-off"), "start verl.trainer.main_ppo with trainer.v1.trainer_mode=tokenpo"),
    Case("an agent loop that gives several outputs for a session",
         lambda directory: one_output_each(["a_0_0", "a_0_1"]), ("a_0_1", "session"), "let the loop return one output"),
    Case("code that replaces the actor's loss after the start", _first_update({}), ("tokenpo's loss",),
         "remove what calls set_loss_fn"),
    Case("an old-log-prob pass and an update that disagree by more than `ratio_tolerance`",
         _first_update({f"actor/{DRIFT}": 0.5}), ("grpo", "0.5 nats"), "raise +algorithm.tokenpo.ratio_tolerance"),
]  # fmt: skip
