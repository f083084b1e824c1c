"""The losses of docs/distillation.md: objectives of the package, and formulas that others publish or compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from distillation_worlds import Form, Tokens, forward, jsd, reverse
from torch import Tensor

from tokenpo.core import parts
from tokenpo.core.objective import Objective
from tokenpo.core.ops.kl import k2, k3
from tokenpo.methods.sdar import Gated


def _score(credit: Callable[[Tokens], Tensor]) -> Form:
    """The loss of a credit: −credit · log p of the sampled token."""
    return lambda t: -credit(t).detach() * t.lp


def _mean_to_go(t: Tokens) -> Tensor:
    """[N, T] mean of x over the tokens from this one on."""
    total, count = (x.flip(1).cumsum(1).flip(1) for x in (t.x, t.mask.double()))
    return total / count.clamp(min=1)


def _early(t: Tokens) -> Tensor:
    """[N, T] 1.5 at the first token, less as more of the response's Σ|x| has gone by."""
    size = t.x.abs()
    return 1.5 - 0.5 * (size.cumsum(1) - size) / size.sum(1, keepdim=True).clamp(min=1e-12)


def _on(kept: Tensor, terms: Tensor) -> Tensor:
    return torch.where(kept, terms, 0.0).sum(-1)


def _within(x: Tensor, kept: Tensor) -> Tensor:
    """Renormalised on the kept tokens, and next to nothing elsewhere."""
    return x.masked_fill(~kept, -99.0).log_softmax(-1)


def _truncated(t: Tokens) -> Tensor:
    return _on(t.top(t.logq), t.logq.exp() * (t.logq - t.logp))


def _tail(t: Tokens) -> Tensor:
    p, q = (_on(~t.top(t.logq), x.exp()) for x in (t.logp, t.logq))
    return _truncated(t) + q * (q.log() - p.log())


def _kept(student: bool, kind: Callable[[Tensor, Tensor], Tensor]) -> Form:
    """A divergence of both, renormalised on the tokens that one of them likes best."""

    def tokens(t: Tokens) -> Tensor:
        kept = t.top(t.logp if student else t.logq)
        return kind(_within(t.logp, kept), _within(t.logq, kept))

    return tokens


def _ours(credit: parts.CreditStage, *penalties: parts.Penalty) -> Objective:
    return Objective(credit, parts.Unclipped(), parts.TokenMean(), penalties=penalties)


FORMS: dict[str, Form] = {
    "credit x to go": _ours(parts.TeacherCredit(gamma=1.0)),
    "credit x": _ours(parts.TeacherCredit()),
    "credit x + KL of the state": _score(lambda t: t.x + reverse(t.logp, t.logq)),
    "credit x to go / tokens left": _score(_mean_to_go),
    "credit x / length": _score(lambda t: t.x / t.mask.sum(1, keepdim=True)),
    "credit x within ±1": _ours(parts.TeacherCredit(bound=1.0)),
    "credit x, early ones more": _score(lambda t: t.x * _early(t)),
    "credit σ(5x)": _ours(parts.NoCredit(), parts.TeacherKl(1.0, Gated(5.0))),
    "credit −k2": _score(lambda t: -k2(t.x)),
    "credit −k3": _score(lambda t: -k3(t.x)),
    "credit −KL of the state": _score(lambda t: -_on(t.top(t.logp), t.logp.exp() * (t.logp - t.logq))),
    "path of k1": lambda t: t.lp - t.lq,
    "path of k2": _ours(parts.NoCredit(), parts.TeacherKl(1.0)),
    "path of k3": _ours(parts.NoCredit(), parts.TeacherKl(1.0, parts.K3())),
    "path and credit of k3": lambda t: k3(t.lq - t.lp) + k3(t.x) * t.lp,
    "full reverse": _ours(parts.NoCredit(), parts.TeacherDivergence(beta=1.0)),
    "full forward": _ours(parts.NoCredit(), parts.TeacherDivergence(beta=0.0)),
    "full JSD": _ours(parts.NoCredit(), parts.TeacherDivergence(beta=0.5)),
    "full forward, terms within 0.05": lambda t: (t.logq.exp() * (t.logq - t.logp)).clamp(max=0.05).sum(-1),
    "top-k forward and a tail": _tail,
    "top-k soft targets": lambda t: -_on(t.top(t.logq), _within(t.logq, t.top(t.logq)).exp() * t.logp),
    "top-k forward": _truncated,
    "top-k forward, at least 0": lambda t: _truncated(t).clamp(min=0.0),
    "top-k reverse": lambda t: _on(t.top(t.logq), t.logp.exp() * (t.logp - t.logq)),
    "top-k generalised reverse": lambda t: _on(
        t.top(t.logq), t.logp.exp() * (t.logp - t.logq) - t.logp.exp() + t.logq.exp()
    ),
    "top-k renormalised forward": _kept(False, forward),
    "top-k renormalised, half and half": _kept(False, lambda p, q: (forward(p, q) + reverse(p, q)) / 2),
    "top-k renormalised JSD, student's": _kept(True, jsd),
}
