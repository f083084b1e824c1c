"""All methods, by name. A method with parts of its own has its own file; the others share `compositions`.

`tokenpo.methods.hapo(beta=0.5)` and `tokenpo.method("hapo", beta=0.5)` are the same. Plain imports let an editor
complete names and options; every list of methods has the order of the imports.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..base.errors import TokenPOError, UnknownName, nearest
from ..core.objective import Objective
from .extensions import Teaching as Teaching
from .extensions import extended as extended
from .from_text import read
from .own import own
from .paper import Paper as Paper
from .signature import Option as Option
from .signature import check_options
from .signature import options_of as options_of

# isort: off
from .compositions import grpo as grpo, dr_grpo as dr_grpo, dapo as dapo, gspo as gspo, gspo_token as gspo_token
from .cov import clip_cov as clip_cov, kl_cov as kl_cov
from .tepo import tepo as tepo, tepo_v1 as tepo_v1
from .gtpo import gtpo as gtpo, grpo_s as grpo_s
from .compositions import tr_grpo as tr_grpo
from .hapo import hapo as hapo
from .adv_reweight import adv_reweight as adv_reweight
from .compositions import cispo as cispo
from .gmpo import gmpo as gmpo
from .sapo import sapo as sapo
from .aspo import aspo as aspo
from .compositions import archer as archer
from .ce_gppo import ce_gppo as ce_gppo
from .dppo import dppo_tv as dppo_tv, dppo_kl as dppo_kl
from .forking_tokens import forking_tokens as forking_tokens
from .stapo import stapo as stapo
from .edge_grpo import edge_grpo as edge_grpo
from .rloo import rloo as rloo
from .reinforce_pp import reinforce_pp as reinforce_pp, reinforce_pp_baseline as reinforce_pp_baseline
from .raft import raft as raft, raft_pp as raft_pp, reinforce_rej as reinforce_rej
from .gpg import gpg as gpg
from .opo import opo as opo
from .sent import sent as sent
from .token_efficient import s_grpo as s_grpo
from .adv_reweight import lopti as lopti
from .ha_dw import ha_dw as ha_dw
from .skywork_entropy import skywork_entropy as skywork_entropy
from .aer import aer as aer
from .token_efficient import t_spmo as t_spmo
from .contrib.tw_grpo import tw_grpo as tw_grpo
from .contrib.nthr import nthr as nthr
from .contrib.thr import thr as thr
from .contrib.arm import arm as arm
from .grpo_passk import grpo_passk as grpo_passk
from .maxrl import maxrl as maxrl
from .hmpo import hmpo as hmpo
from .topr import topr as topr
from .compositions import luspo as luspo
from .vespo import vespo as vespo
from .dhpo import dhpo as dhpo
from .egspo import egspo as egspo
from .compositions import vineppo as vineppo
from .spo import spo as spo
from .contrib.ospo import ospo as ospo
from .compositions import opsm as opsm
from .contrib.igrpo import igrpo as igrpo
from .rollout_is import rollout_is as rollout_is
from .prime_rl import prime_rl as prime_rl
from .dro import dro as dro
from .m2po import m2po as m2po, m2po_rollout as m2po_rollout
from .fipo import fipo as fipo
from .real import real as real
from .gdpo import gdpo as gdpo
from .contrib.otb import otb as otb
from .mt_grpo import mt_grpo as mt_grpo
from .gigpo import gigpo as gigpo
from .remax import remax as remax
from .compositions import eb_cispo as eb_cispo
from .ppo import ppo as ppo, vapo as vapo
from .rto import rto as rto
from .opd import opd as opd
from .gkd import gkd as gkd
from .rlsd import rlsd as rlsd
from .sdar import sdar as sdar
from .sdpo import sdpo as sdpo
# isort: on

METHODS: dict[str, Callable[..., Objective]] = {name: x for name, x in globals().items() if hasattr(x, "paper")}
"""Name -> builder."""


def builder(name: str) -> Callable[..., Objective]:
    """The builder of a method: a name of `METHODS`, or a user's "file.py:function", whose file is executed.

    Raises:
        UnknownName: no such method, module or function; the message names the nearest.
        TokenPOError: the module cannot be imported.
    """
    known, colon, _ = name.partition(":")
    if known in METHODS and colon:
        raise UnknownName(f"no method is called {name!r}: give the options of {known} apart, as --set method.KEY=VALUE")
    if colon:
        return own(name)
    if name.endswith(".py"):
        raise UnknownName(f"{name} is a file, not a method: name a function in it, {name}:FUNCTION")
    if name not in METHODS:
        raise UnknownName(f"no method is called {name!r}: {nearest(name, METHODS)}")
    return METHODS[name]


def method(name: str, **options: Any) -> Objective:
    """The objective of a method, named as in `builder`.

    >>> method("dapo", high=0.3).surrogate
    Clip(bounds=FixedBounds(low=0.2, high=0.3), ratio=TokenRatio(), dual=10.0)

    Raises:
        UnknownName: no such method or keyword; the message names the nearest.
        TokenPOError: a value of the wrong kind, or a function of your own that returns no objective.
    """
    build = builder(name)
    check_options(name, options, build)
    return build(**options)


def build_method(name: str, options: Mapping[str, Any]) -> Objective:
    """The objective of a method, with its options as text files write them: "none" for None, lists for tuples.

    Raises:
        UnknownName: as `method`.
        TokenPOError: as `method`, or an option that is missing.
    """
    if "name" in options:
        raise UnknownName(f"method {name} has no option 'name': a method is named before its options")
    return read(f"method {name}", builder(name), options)


def paper(name: str) -> Paper:
    """The paper that a method comes from.

    Raises:
        UnknownName: no such method.
        TokenPOError: its builder has no `@Paper(...)`.
    """
    source = getattr(builder(name), "paper", None)
    if source is None:
        raise TokenPOError(f"method {name} names no paper: put @Paper(...) above its builder")
    return source
