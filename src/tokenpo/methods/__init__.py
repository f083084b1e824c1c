"""All methods, by name: a file for each kind.

`tokenpo.methods.hapo(beta=0.5)` and `tokenpo.method("hapo", beta=0.5)` are the same. Plain imports let an editor
complete names and options; every list of methods has the order of the imports.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..base.errors import UnknownName, nearest
from ..core.objective import Objective
from ..core.types import Rollouts as Rollouts  # `extra` takes what the parts of methods declare
from .extensions import Teaching as Teaching
from .extensions import extended as extended
from .from_text import read
from .own import own
from .paper import Paper as Paper
from .signature import Option as Option
from .signature import check_options
from .signature import options_of as options_of

# isort: off
from .baselines import grpo as grpo, dr_grpo as dr_grpo, dapo as dapo, gspo as gspo, gspo_token as gspo_token
from .cov import clip_cov as clip_cov, kl_cov as kl_cov
from .tepo import tepo as tepo, tepo_v1 as tepo_v1
from .gtpo import gtpo as gtpo, grpo_s as grpo_s
from .tr_grpo import tr_grpo as tr_grpo
from .hapo import hapo as hapo
from .probability import adv_reweight as adv_reweight
from .clipping import cispo as cispo
from .responses import gmpo as gmpo
from .clipping import sapo as sapo, aspo as aspo
from .entropy import archer as archer
from .clipping import ce_gppo as ce_gppo
from .regions import dppo_tv as dppo_tv, dppo_kl as dppo_kl
from .entropy import forking_tokens as forking_tokens
from .probability import stapo as stapo
from .entropy import edge_grpo as edge_grpo
from .advantages import rloo as rloo, reinforce_pp as reinforce_pp, reinforce_pp_baseline as reinforce_pp_baseline
from .advantages import raft as raft, raft_pp as raft_pp, reinforce_rej as reinforce_rej, gpg as gpg, opo as opo
from .entropy import sent as sent
from .segments import s_grpo as s_grpo
from .probability import lopti as lopti
from .rewards import ha_dw as ha_dw
from .entropy import skywork_entropy as skywork_entropy, aer as aer
from .segments import t_spmo as t_spmo
from .contrib.weights import tw_grpo as tw_grpo, nthr as nthr, thr as thr, arm as arm
from .rewards import grpo_passk as grpo_passk, maxrl as maxrl, hmpo as hmpo
from .responses import topr as topr, luspo as luspo, vespo as vespo, dhpo as dhpo
from .entropy import egspo as egspo
from .segments import vineppo as vineppo, spo as spo
from .contrib.credit import ospo as ospo
from .responses import opsm as opsm
from .contrib.credit import igrpo as igrpo
from .regions import rollout_is as rollout_is, prime_rl as prime_rl
from .clipping import dro as dro
from .regions import m2po as m2po, m2po_rollout as m2po_rollout
from .clipping import fipo as fipo
from .responses import real as real
from .rewards import gdpo as gdpo
from .contrib.credit import otb as otb
from .segments import mt_grpo as mt_grpo, gigpo as gigpo
from .advantages import remax as remax, eb_cispo as eb_cispo
from .critics import ppo as ppo, vapo as vapo, rto as rto
from .teachers import opd as opd, gkd as gkd, rlsd as rlsd, sdar as sdar, sdpo as sdpo
from .advantages import lite_ppo as lite_ppo, prpo as prpo, flash_reinforce as flash_reinforce
from .shared_tokens import ktae as ktae, gtpo_conflict as gtpo_conflict
from .clipping import up as up, decoupled as decoupled
from .regions import vaco as vaco
from .lengths import holder as holder, delta_l as delta_l
from .cov import clip_b as clip_b, clip_v as clip_v
from .tilted import gvpo as gvpo, target_po as target_po
from .teachers import iw_opd as iw_opd
# isort: on

METHODS: dict[str, Callable[..., Objective]] = {name: x for name, x in globals().items() if hasattr(x, "paper")}
"""Name -> builder."""


def builder(name: str) -> Callable[..., Objective]:
    """The builder of a method: a name of `METHODS`, or a user's "file.py:function", whose file is executed.

    Raises:
        UnknownName: no such method, module or function; the message names the nearest.
        TokenPOError: the module cannot be imported.
    """
    if not isinstance(name, str):
        raise UnknownName(f"a method's name is text, such as 'dapo' or 'mine.py:late', not {name!r}")
    if ":" in name:
        return own(name)
    if name not in METHODS:
        own_file = "name a function in your file, FILE.py:FUNCTION" if name.endswith(".py") else nearest(name, METHODS)
        raise UnknownName(f"no method is called {name!r}: {own_file}")
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
        AttributeError: its builder has no `@Paper(...)`.
    """
    return builder(name).paper  # type: ignore[attr-defined]
