"""The divergence from a teacher's top tokens and a tail against TRL 1.16's distillation with a server."""

import pytest
import torch

pytest.importorskip("trl", reason="trl is not installed: its tail of a teacher's tokens was not compared with ours")

from tokenpo import token_stats
from tokenpo.core.head.teacher import TopTokens


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_loss_add_tail(beta: float) -> None:
    from trl.experimental.server_distillation.server_distillation_trainer import _add_tail_bucket, _jsd_divergence

    g = torch.Generator().manual_seed(0)
    z, taught = (2 * torch.randn(7, 30, generator=g, dtype=torch.float64) for _ in range(2))
    logprob, ids = taught.log_softmax(-1).topk(4)
    z.requires_grad_()
    mask = torch.ones_like(ids, dtype=torch.bool)
    p, support = _add_tail_bucket(z.log_softmax(-1).gather(-1, ids), mask)
    theirs = _jsd_divergence(p, _add_tail_bucket(logprob, mask)[0], beta, support).sum(-1)
    top, eye = TopTokens(ids, logprob), torch.eye(30, dtype=torch.float64)
    ours = token_stats(z, eye, ids[:, 0], teacher=top, beta=beta).teacher_divergence
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    mine, other = (torch.autograd.grad(x.sum(), z)[0] for x in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-11)
