"""Distillation losses of TRL 1.16 and verl 0.9.1, their own functions, in a world with a teacher: the updates of the
form that docs/distillation.md says they are, response by response.
"""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from distillation_forms import FORMS
from distillation_worlds import KEPT, Form, Tokens, taught, updates
from torch import Tensor

from foreign_support.required import need

TRL, VERL = "distillation losses: trl is missing", "distillation losses: verl is missing"


def same(theirs: Form, name: str, within: float = 1e-10) -> None:
    for seed in range(3):
        (_, ours), (_, found) = (updates(taught(seed), form) for form in (FORMS[name], theirs))
        assert ours.norm() > 1e-3 and torch.allclose(found, ours, rtol=0, atol=within)


def sampled(t: Tokens) -> Tensor:
    """[N, T] the sampled tokens, found by their log-probabilities: no two of a state are alike."""
    return (t.logp == t.lp[..., None]).double().argmax(-1)


@pytest.mark.parametrize(("beta", "name"), [(0.0, "full forward"), (0.5, "full JSD"), (1.0, "full reverse")])
def test_trl_gkd(beta: float, name: str) -> None:
    trainer = need("trl.experimental.gkd.gkd_trainer", TRL).GKDTrainer
    same(lambda t: trainer.generalized_jsd_loss(t.logp, t.logq, beta=beta, reduction="none").sum(-1), name)


def test_trl_self_distillation() -> None:
    """SDPO's sampled token, before its mean over a response; SDFT's top-k."""
    losses = need("trl.experimental.sdpo.loss_utils", TRL)
    alone = losses.compute_sampled_token_self_distillation_loss
    same(lambda t: alone(t.logp, t.logq, sampled(t), distillation_alpha=1.0), "credit x")
    losses = need("trl.experimental.sdft.loss_utils", TRL)
    given = {"distillation_topk": KEPT, "distillation_alpha": 0.5, "distillation_add_tail": False}
    name = "top-k renormalised JSD, student's"
    same(lambda t: losses.compute_topk_self_distillation_loss(t.logp, t.logq, **given), name)


def test_trl_iw_opd() -> None:
    trainer = need("trl.experimental.iw_opd.iw_opd_trainer", TRL).IWOPDTrainer
    of = SimpleNamespace(
        temperature=1.0, iw_opd_gamma=0.5, iw_opd_epsilon=1e-12, model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip

    def theirs(t: Tokens) -> Tensor:
        tokens, labels = sampled(t), torch.where(t.mask, 1, -100)
        total = trainer._compute_iw_opd_loss(of, t.logp, tokens, labels, t.lq, num_items_in_batch=1)
        return torch.zeros_like(t.lp).index_put((torch.tensor(0), torch.tensor(0)), total)

    same(theirs, "credit x, early ones more")


def verl_estimate(t: Tokens, mode: str) -> Tensor:
    algos = need("verl.trainer.ppo.core_algos", VERL)
    return algos.kl_penalty(logprob=t.lp, ref_logprob=t.lq, kl_penalty=mode)


@pytest.mark.parametrize(("mode", "name"), [("k1", "credit x"), ("k2", "credit −k2"), ("k3", "credit −k3")])
def test_verl_with_a_policy_gradient(mode: str, name: str) -> None:
    """The advantage is the loss's negative (`distillation_loss`); k3 is the default."""
    settings = need("verl.workers.config.distillation", VERL).DistillationLossConfig()
    assert (settings.loss_mode, settings.use_policy_gradient) == ("k3", True)
    same(lambda t: verl_estimate(t, mode).detach() * t.lp, name)


def test_verl_without() -> None:
    same(lambda t: verl_estimate(t, "k3"), "path of k3")


def test_verl_top_k() -> None:
    """`forward_kl_topk`: its sum over the teacher's tokens, in float32, then held at 0 and above."""
    losses = need("verl.trainer.distillation.fsdp.losses", VERL)
    config: Any = SimpleNamespace(distillation_loss=SimpleNamespace(log_prob_min_clamp=-10.0))

    def theirs(t: Tokens) -> Tensor:
        top = t.logq.flatten(0, 1).topk(KEPT)
        nested = [torch.nested.nested_tensor([x], layout=torch.jagged) for x in (top.values, top.indices)]
        found = losses.compute_forward_kl_topk(t.logp.flatten(0, 1)[None], *nested, config, "thd")
        return found["distillation_losses"].view_as(t.lp).clamp_min(0.0)

    same(theirs, "top-k forward, at least 0", 1e-6)
