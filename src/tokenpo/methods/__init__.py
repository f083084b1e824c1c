"""One paper, one file, one builder in the table. A builder's keywords are the only place where its defaults live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import TokenPOError, UnknownName, nearest
from ..core.objective import Objective
from .adv_reweight import adv_reweight
from .aer import aer
from .archer import archer
from .arm import arm
from .aspo import aspo
from .ce_gppo import ce_gppo
from .cispo import cispo
from .cov import clip_cov, kl_cov
from .dapo import dapo
from .dhpo import dhpo
from .dppo import dppo_kl, dppo_tv
from .dr_grpo import dr_grpo
from .dro import dro
from .eb_cispo import eb_cispo
from .edge_grpo import edge_grpo
from .egspo import egspo
from .fipo import fipo
from .forking_tokens import forking_tokens
from .gdpo import gdpo
from .gigpo import gigpo
from .gmpo import gmpo
from .gpg import gpg
from .grpo import grpo
from .grpo_passk import grpo_passk
from .gspo import gspo, gspo_token
from .gtpo import grpo_s, gtpo
from .ha_dw import ha_dw
from .hapo import hapo
from .hmpo import hmpo
from .lopti import lopti
from .luspo import luspo
from .m2po import m2po, m2po_rollout
from .maxrl import maxrl
from .mt_grpo import mt_grpo
from .nthr import nthr
from .opo import opo
from .opsm import opsm
from .otb import otb
from .own import own
from .paper import Paper, check_options, kinds_of, options_of, published
from .prime_rl import prime_rl
from .raft import raft, raft_pp
from .real import real
from .reinforce_pp import reinforce_pp, reinforce_pp_baseline
from .reinforce_rej import reinforce_rej
from .rloo import rloo
from .rollout_is import rollout_is
from .s_grpo import s_grpo
from .sapo import sapo
from .sent import sent
from .skywork_entropy import skywork_entropy
from .spo import spo
from .stapo import stapo
from .t_spmo import t_spmo
from .tepo import tepo, tepo_v1
from .thr import thr
from .topr import topr
from .tr_grpo import tr_grpo
from .tw_grpo import tw_grpo
from .vespo import vespo
from .vineppo import vineppo

METHODS: dict[str, Callable[..., Objective]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": dapo,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "tepo_v1": tepo_v1,
    "tepo": tepo,
    "gtpo": gtpo,
    "grpo_s": grpo_s,
    "tr_grpo": tr_grpo,
    "hapo": hapo,
    "adv_reweight": adv_reweight,
    "cispo": cispo,
    "gmpo": gmpo,
    "sapo": sapo,
    "aspo": aspo,
    "archer": archer,
    "ce_gppo": ce_gppo,
    "dppo_tv": dppo_tv,
    "dppo_kl": dppo_kl,
    "forking_tokens": forking_tokens,
    "stapo": stapo,
    "edge_grpo": edge_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "raft": raft,
    "raft_pp": raft_pp,
    "reinforce_rej": reinforce_rej,
    "gpg": gpg,
    "opo": opo,
    "sent": sent,
    "s_grpo": s_grpo,
    "lopti": lopti,
    "ha_dw": ha_dw,
    "skywork_entropy": skywork_entropy,
    "aer": aer,
    "t_spmo": t_spmo,
    "tw_grpo": tw_grpo,
    "nthr": nthr,
    "thr": thr,
    "arm": arm,
    "grpo_passk": grpo_passk,
    "maxrl": maxrl,
    "hmpo": hmpo,
    "topr": topr,
    "luspo": luspo,
    "vespo": vespo,
    "dhpo": dhpo,
    "egspo": egspo,
    "vineppo": vineppo,
    "spo": spo,
    "opsm": opsm,
    "rollout_is": rollout_is,
    "prime_rl": prime_rl,
    "dro": dro,
    "m2po": m2po,
    "m2po_rollout": m2po_rollout,
    "fipo": fipo,
    "real": real,
    "gdpo": gdpo,
    "otb": otb,
    "mt_grpo": mt_grpo,
    "gigpo": gigpo,
    "eb_cispo": eb_cispo,
}


def builder(name: str) -> Callable[..., Objective]:
    """The builder of a method: keywords to `Objective`.

    Args:
        name: of the table; or a function of your own, "file.py:function" or "package.module:function", whose module is
            executed.

    Raises:
        UnknownName: no such method, module or function; the message names the nearest.
        TokenPOError: the module cannot be imported.
    """
    if ":" in name:
        return own(name)
    if name not in METHODS:
        raise UnknownName(f"no method is called {name!r}: {nearest(name, METHODS)}")
    return METHODS[name]


def method(name: str, **options: Any) -> Objective:
    """The objective of a method.

    >>> method("dapo", high=0.3).surrogate
    Clip(bounds=FixedBounds(low=0.2, high=0.3), ratio=TokenRatio(), dual=10.0)

    Args:
        name: as `builder` takes it.
        options: keywords of the builder.

    Raises:
        UnknownName: no such method or keyword; the message names the nearest.
        TokenPOError: a value of the wrong kind, or a function of your own that makes no objective.
    """
    build = builder(name)
    check_options(name, options, options_of(build))
    return build(**options)


def paper(name: str) -> Paper:
    """The paper that a method comes from.

    Raises:
        UnknownName: no such method.
        TokenPOError: its builder was not marked with `published`.
    """
    build = builder(name)
    source = getattr(build, "paper", None)
    if source is None:
        raise TokenPOError(f"method {name} names no paper: mark its builder with @published(Paper(...))")
    return source


__all__ = [
    "METHODS", "Paper", "adv_reweight", "aer", "archer", "arm", "aspo", "builder", "ce_gppo", "cispo", "clip_cov",
    "dapo", "dhpo", "dppo_kl", "dppo_tv", "dr_grpo", "dro", "eb_cispo", "edge_grpo", "egspo", "fipo", "forking_tokens",
    "gdpo", "gigpo", "gmpo", "gpg", "grpo", "grpo_passk", "grpo_s", "gspo", "gspo_token", "gtpo", "ha_dw", "hapo",
    "hmpo", "kinds_of", "kl_cov", "lopti", "luspo", "m2po", "m2po_rollout", "maxrl", "method", "mt_grpo", "nthr", "opo",
    "opsm", "options_of", "otb", "paper", "prime_rl", "published", "raft", "raft_pp", "real", "reinforce_pp",
    "reinforce_pp_baseline", "reinforce_rej", "rloo", "rollout_is", "s_grpo", "sapo", "sent", "skywork_entropy", "spo",
    "stapo", "t_spmo", "tepo", "tepo_v1", "thr", "topr", "tr_grpo", "tw_grpo", "vespo", "vineppo",
]  # fmt: skip
