# Written by tools/site/docs.py from the builders: change those, then run `make docs`.
# The overloads for names of the table come first, so that what overlaps is never ambiguous.
# pyright: reportOverlappingOverload=false
"""One paper, one file, one builder in the table."""

from collections.abc import Callable
from typing import Any, Literal, overload

from ..core.objective import Objective
from .adv_reweight import adv_reweight as adv_reweight
from .aer import aer as aer
from .archer import archer as archer
from .arm import arm as arm
from .aspo import aspo as aspo
from .ce_gppo import ce_gppo as ce_gppo
from .cispo import cispo as cispo
from .cov import clip_cov as clip_cov
from .cov import kl_cov as kl_cov
from .dapo import dapo as dapo
from .dhpo import dhpo as dhpo
from .dppo import dppo_kl as dppo_kl
from .dppo import dppo_tv as dppo_tv
from .dr_grpo import dr_grpo as dr_grpo
from .dro import dro as dro
from .eb_cispo import eb_cispo as eb_cispo
from .edge_grpo import edge_grpo as edge_grpo
from .egspo import egspo as egspo
from .fipo import fipo as fipo
from .forking_tokens import forking_tokens as forking_tokens
from .gdpo import gdpo as gdpo
from .gigpo import gigpo as gigpo
from .gmpo import gmpo as gmpo
from .gpg import gpg as gpg
from .grpo import grpo as grpo
from .grpo_passk import grpo_passk as grpo_passk
from .gspo import gspo as gspo
from .gspo import gspo_token as gspo_token
from .gtpo import grpo_s as grpo_s
from .gtpo import gtpo as gtpo
from .ha_dw import ha_dw as ha_dw
from .hapo import hapo as hapo
from .hmpo import hmpo as hmpo
from .lopti import lopti as lopti
from .luspo import luspo as luspo
from .m2po import m2po as m2po
from .m2po import m2po_rollout as m2po_rollout
from .maxrl import maxrl as maxrl
from .mt_grpo import mt_grpo as mt_grpo
from .nthr import nthr as nthr
from .opo import opo as opo
from .opsm import opsm as opsm
from .otb import otb as otb
from .paper import Paper as Paper
from .paper import kinds_of as kinds_of
from .paper import options_of as options_of
from .paper import published as published
from .prime_rl import prime_rl as prime_rl
from .raft import raft as raft
from .raft import raft_pp as raft_pp
from .real import real as real
from .reinforce_pp import reinforce_pp as reinforce_pp
from .reinforce_pp import reinforce_pp_baseline as reinforce_pp_baseline
from .reinforce_rej import reinforce_rej as reinforce_rej
from .rloo import rloo as rloo
from .rollout_is import rollout_is as rollout_is
from .s_grpo import s_grpo as s_grpo
from .sapo import sapo as sapo
from .sent import sent as sent
from .skywork_entropy import skywork_entropy as skywork_entropy
from .spo import spo as spo
from .stapo import stapo as stapo
from .t_spmo import t_spmo as t_spmo
from .tepo import tepo as tepo
from .tepo import tepo_v1 as tepo_v1
from .thr import thr as thr
from .topr import topr as topr
from .tr_grpo import tr_grpo as tr_grpo
from .tw_grpo import tw_grpo as tw_grpo
from .vespo import vespo as vespo
from .vineppo import vineppo as vineppo

METHODS: dict[str, Callable[..., Objective]]

class WrongOptions:
    """What a type checker makes of `method` with an option or a kind that the method does not have: it would raise."""

def builder(name: str) -> Callable[..., Objective]: ...
def paper(name: str) -> Paper: ...

Known = Literal[
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gspo_token",
    "clip_cov",
    "kl_cov",
    "tepo_v1",
    "tepo",
    "gtpo",
    "grpo_s",
    "tr_grpo",
    "hapo",
    "adv_reweight",
    "cispo",
    "gmpo",
    "sapo",
    "aspo",
    "archer",
    "ce_gppo",
    "dppo_tv",
    "dppo_kl",
    "forking_tokens",
    "stapo",
    "edge_grpo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "raft",
    "raft_pp",
    "reinforce_rej",
    "gpg",
    "opo",
    "sent",
    "s_grpo",
    "lopti",
    "ha_dw",
    "skywork_entropy",
    "aer",
    "t_spmo",
    "tw_grpo",
    "nthr",
    "thr",
    "arm",
    "grpo_passk",
    "maxrl",
    "hmpo",
    "topr",
    "luspo",
    "vespo",
    "dhpo",
    "egspo",
    "vineppo",
    "spo",
    "opsm",
    "rollout_is",
    "prime_rl",
    "dro",
    "m2po",
    "m2po_rollout",
    "fipo",
    "real",
    "gdpo",
    "otb",
    "mt_grpo",
    "gigpo",
    "eb_cispo",
]

@overload
def method(
    name: Literal["grpo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """Every token of a response gets the response's group-normalised reward."""

@overload
def method(
    name: Literal["dr_grpo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    length: float | None = None,
) -> Objective:
    """GRPO without division by the group's deviation or by the response's length."""

@overload
def method(
    name: Literal["dapo"],
    *,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 10.0,
    overlong_length: int | None = None,
    overlong_cache: int | None = None,
) -> Objective:
    """Token mean over the batch, a clip that leaves more room above, and a soft penalty on overlong responses."""

@overload
def method(
    name: Literal["gspo"],
    *,
    low: float = 0.0003,
    high: float = 0.0004,
) -> Objective:
    """One likelihood ratio for the response, normalised by its length, clipped as a whole."""

@overload
def method(
    name: Literal["gspo_token"],
    *,
    low: float = 0.0003,
    high: float = 0.0004,
) -> Objective:
    """GSPO's ratio in a form that takes token-level advantages."""

@overload
def method(
    name: Literal["clip_cov"],
    *,
    low: float = 1.0,
    high: float = 1.0,
    fraction: float = 0.0002,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
) -> Objective:
    """A random few of the tokens with high covariance get no gradient."""

@overload
def method(
    name: Literal["kl_cov"],
    *,
    fraction: float = 0.002,
    coef: float = 1.0,
) -> Objective:
    """The tokens with the highest covariance are held at the old policy."""

@overload
def method(
    name: Literal["tepo_v1"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """The response's likelihood ratio at every token, averaged over all tokens."""

@overload
def method(
    name: Literal["tepo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 1.0,
    decreasing: str = "delta",
    kl_target: str = "old",
    estimator: str = "k3",
) -> Objective:
    """TEPO v2: v1 with a KL on tokens of right answers whose entropy is falling."""

@overload
def method(
    name: Literal["gtpo"],
    *,
    low: float = 0.2,
    high: float = 0.28,
    a1: float = 1.0,
    a2: float = 0.1,
    normalise: str = "with_zeros",
    scope: str = "group",
    entropy_clamp: tuple[float, float] | None = None,
    threshold: float = 0.0,
    group_overlong: bool = False,
) -> Objective:
    """Right tokens earn more where entropy is high, wrong tokens lose more where it is low."""

@overload
def method(
    name: Literal["grpo_s"],
    *,
    low: float = 0.2,
    high: float = 0.28,
    b1: float = 1.0,
    b2: float = 0.1,
    mean: str = "arithmetic",
    threshold: float = 0.0,
    group_overlong: bool = False,
) -> Objective:
    """Responses are rewarded by their mean entropy: right ones for a high, wrong ones punished for a low one."""

@overload
def method(
    name: Literal["tr_grpo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    alpha: float = 2.0,
    tau: float = 9.0,
    mu: float = 0.25,
    lower: float = 1.0,
    upper: float = 1.4,
    shape: str = "inside",
    weight_placement: str = "advantage",
    weight_prob: str = "current",
    beta: float = 0.0,
    kl_weighting: str = "none",
) -> Objective:
    """GRPO whose tokens weigh more the more probable they are."""

@overload
def method(
    name: Literal["hapo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 10.0,
    quantile: float = 0.8,
    tau: float = 0.05,
    token_mean_advantage: bool = True,
    beta: float = 1.0,
    alpha: float = 1.0,
    sign: str = "paper",
    entropy: str = "old",
) -> Objective:
    """Temperature, advantage, redistribution and clip bounds follow the entropy of the token."""

@overload
def method(
    name: Literal["adv_reweight"],
    *,
    low: float = 0.2,
    high: float = 0.24,
    dual: float | None = 10.0,
    a: float = 0.2,
    beta: float = 0.001,
    bounded_kl: bool = False,
) -> Objective:
    """Tokens weigh a p_old + 1 − a: the improbable ones a little less."""

@overload
def method(
    name: Literal["cispo"],
    *,
    high: float = 0.28,
    low: float = 1.0,
    absolute: bool = False,
) -> Objective:
    """The importance weight is clipped and detached, so every token keeps a gradient."""

@overload
def method(
    name: Literal["gmpo"],
    *,
    low: float = 0.4,
    high: float = 0.4,
) -> Objective:
    """One ratio for the response: the geometric mean of its clipped token ratios."""

@overload
def method(
    name: Literal["sapo"],
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
) -> Objective:
    """Tokens fade out smoothly as their ratio leaves 1, instead of being cut off."""

@overload
def method(
    name: Literal["aspo"],
    *,
    low_eps: float = 0.2,
    high_eps: float = 0.4,
    quantile: float = 0.8,
    dual: float = 3.0,
    entropy: str = "old",
) -> Objective:
    """Positive tokens are weighted by the inverse ratio, with wider bounds where entropy is high."""

@overload
def method(
    name: Literal["archer"],
    *,
    low_clip: float = 0.2,
    high_clip: float = 0.5,
    kl: float = 0.001,
    quantile: float = 0.8,
    dual: float | None = None,
    entropy: str = "old",
) -> Objective:
    """A wide clip and no KL where entropy is high, a narrow clip and a KL where it is low."""

@overload
def method(
    name: Literal["ce_gppo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    beta1: float = 0.75,
    beta2: float = 1.0,
    dual: float | None = None,
) -> Objective:
    """Clipped tokens keep a gradient whose weight is the bound times a coefficient."""

@overload
def method(
    name: Literal["dppo_tv"],
    *,
    threshold: float = 0.15,
    cap: float = 20.0,
    anchor: str = "rollout",
) -> Objective:
    """Tokens whose probability moved too far from the sampler's are dropped."""

@overload
def method(
    name: Literal["dppo_kl"],
    *,
    threshold: float = 0.05,
    cap: float = 20.0,
    anchor: str = "rollout",
) -> Objective:
    """The same, measured by the binary KL divergence."""

@overload
def method(
    name: Literal["forking_tokens"],
    *,
    fraction: float = 0.2,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = None,
    beta: float = 0.0,
    entropy: str = "old",
    denominator: str = "all",
) -> Objective:
    """Only the tokens with the highest entropy of the batch get a gradient."""

@overload
def method(
    name: Literal["stapo"],
    *,
    prob: float = 0.002,
    quantile: float = 0.75,
    low: float = 0.2,
    high: float = 0.28,
    policy: str = "current",
) -> Objective:
    """Unlikely tokens of right responses are dropped where the policy was sure of another one."""

@overload
def method(
    name: Literal["edge_grpo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    eps: float = 1e-06,
) -> Objective:
    """Advantages are divided by the response's mean entropy."""

@overload
def method(
    name: Literal["rloo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """The advantage is the reward minus the mean of the group's other rewards."""

@overload
def method(
    name: Literal["reinforce_pp"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """No group: returns are normalised over all tokens of the batch."""

@overload
def method(
    name: Literal["reinforce_pp_baseline"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """The group's mean is the baseline, the batch's deviation the scale."""

@overload
def method(
    name: Literal["raft"],
) -> Objective:
    """Log-likelihood of right responses, weighted by their reward."""

@overload
def method(
    name: Literal["raft_pp"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """RAFT with an importance ratio and its clip."""

@overload
def method(
    name: Literal["reinforce_rej"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """The reward itself is the advantage, in groups that hold right and wrong responses."""

@overload
def method(
    name: Literal["gpg"],
    *,
    sequence_mean: bool = False,
) -> Objective:
    """The plain policy gradient of group advantages, without ratio, clip or deviation."""

@overload
def method(
    name: Literal["opo"],
) -> Objective:
    """The plain policy gradient, its baseline weighted by the length of the responses."""

@overload
def method(
    name: Literal["sent"],
    *,
    fraction: float = 0.0002,
    low_entropy: float = 0.8,
    strong: float = 2.0,
    weak: float = 0.5,
    coef: float = 1.0,
    beta: float = 0.0,
    entropy: str = "current",
) -> Objective:
    """Among sure tokens, those with extreme covariance are held at the old policy."""

@overload
def method(
    name: Literal["s_grpo"],
    *,
    fraction: float = 0.5,
    low: float = 0.2,
    high: float = 0.2,
    always: int = 0,
) -> Objective:
    """Each response learns from a random part of its tokens."""

@overload
def method(
    name: Literal["lopti"],
    *,
    eta: float = 0.4,
    a: float = 0.0,
    high_first: bool = False,
    low: float = 0.2,
    high: float = 0.24,
    dual: float | None = 10.0,
    beta: float = 0.001,
    bounded_kl: bool = False,
) -> Objective:
    """Improbable tokens first, then the rest, in two optimiser passes."""

@overload
def method(
    name: Literal["ha_dw"],
    *,
    scale: float = 1.3,
    history: int = 10,
    anchor: str = "prior",
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Advantages grow on hard prompts answered right and on easy ones answered wrong."""

@overload
def method(
    name: Literal["skywork_entropy"],
    *,
    target: float = 0.2,
    delta: float = 0.0001,
    largest: float = 0.005,
    start: float = 0.0,
    low: float = 0.2,
    high: float = 0.2,
    controller: str = "current",
) -> Objective:
    """GRPO over tokens with an entropy bonus whose coefficient keeps the entropy near a target."""

@overload
def method(
    name: Literal["aer"],
    *,
    tau: float = 0.4,
    rho: float = 0.5,
    rule: str = "sign",
    delta: float = 0.0001,
    largest: float = 0.005,
    start: float = 0.0,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """GRPO over tokens with an entropy bonus for hard prompts, steered to a share of the initial entropy."""

@overload
def method(
    name: Literal["t_spmo"],
    *,
    count: str = "pairs",
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """A token learns by what its alternatives at the same prefix were worth."""

@overload
def method(
    name: Literal["tw_grpo"],
    *,
    alpha: float = 1.7,
    low: float = 0.2,
    high: float = 0.28,
) -> Objective:
    """Tokens weigh more at positions where the group's next-token distributions lie apart."""

@overload
def method(
    name: Literal["nthr"],
    *,
    beta: float = 1.0,
    eta: float | None = None,
    low: float = 0.2,
    high: float = 0.2,
    kl: float = 0.0001,
) -> Objective:
    """Tokens of wrong responses that make right ones likely are pushed down less."""

@overload
def method(
    name: Literal["thr"],
    *,
    p: float = 0.1,
    mask: bool = True,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Advantages lean on the tokens that make right responses more likely, or away from them."""

@overload
def method(
    name: Literal["arm"],
    *,
    alpha: float = 0.1,
    fraction: float = 0.2,
    only_correct: bool = False,
    low: float = 0.2,
    high: float = 0.28,
) -> Objective:
    """Advantages fall with the policy's confidence in the response and rise with its confidence in the prompt."""

@overload
def method(
    name: Literal["grpo_passk"],
    *,
    std: bool = True,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Only a group's single best response learns, by its lead over the second best."""

@overload
def method(
    name: Literal["maxrl"],
    *,
    baseline: str = "practical",
    order: int | None = None,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 3.0,
) -> Objective:
    """The advantage is relative to the prompt's rate of success, so that hard prompts count more."""

@overload
def method(
    name: Literal["hmpo"],
    *,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 10.0,
    scale: float = 1.0,
    shift: float = 0.8,
    cap: float = 1.0,
    additive: bool = False,
    threshold: float = 0.0,
    by_score: bool = False,
    beta: float = 0.001,
) -> Objective:
    """The reward of a right answer falls with its length and ends at the median of its group."""

@overload
def method(
    name: Literal["topr"],
    *,
    level: str = "sequence",
    signal: str = "outcome",
    threshold: float = 0.5,
) -> Objective:
    """Log-likelihood up for right answers, down for wrong ones as far as the policy still gives them."""

@overload
def method(
    name: Literal["luspo"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """One ratio for the response, as in GSPO, and a sum over its tokens in place of their mean."""

@overload
def method(
    name: Literal["vespo"],
    *,
    k_pos: float = 2.0,
    lambda_pos: float = 3.0,
    k_neg: float = 3.0,
    lambda_neg: float = 2.0,
) -> Objective:
    """The policy gradient, weighted by a smooth function of how far the whole response has moved."""

@overload
def method(
    name: Literal["dhpo"],
    *,
    mixing: str = "average",
    form: str = "mix_of_mins",
    low: float = 0.2,
    high: float = 0.28,
    sequence_low: float = 0.0003,
    sequence_high: float = 0.0004,
) -> Objective:
    """The ratios of the token and of the response are clipped apart and mixed."""

@overload
def method(
    name: Literal["egspo"],
    *,
    quantile: float = 0.8,
    attenuation: float = 0.5,
    curve: str = "constant",
    low: float = 0.2,
    high: float = 0.28,
) -> Objective:
    """Tokens with high entropy learn in full, the others less."""

@overload
def method(
    name: Literal["vineppo"],
    *,
    every: int = 16,
    separator: int | None = None,
    continuations: int = 9,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """A step is worth what it adds to the mean reward of continuations drawn before and behind it."""

@overload
def method(
    name: Literal["spo"],
    *,
    interval: int = 5,
    below: float = 0.9,
    continuations: int = 9,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Segments between improbable tokens are worth what they add, and only improbable tokens learn."""

@overload
def method(
    name: Literal["opsm"],
    *,
    delta: float = 0.5,
    anchor: str = "old",
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """Wrong responses that the policy has left are masked."""

@overload
def method(
    name: Literal["rollout_is"],
    *,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Tokens that the sampler found likelier or less likely by more than this are dropped."""

@overload
def method(
    name: Literal["prime_rl"],
    *,
    low: float = 0.2,
    high: float = 0.2,
    kl: float = 0.001,
) -> Objective:
    """The ratio to the sampler, masked by how far the probability has moved."""

@overload
def method(
    name: Literal["dro"],
    *,
    beta: float = 0.05,
) -> Objective:
    """The log-likelihood, weighed by the advantage and held to the old policy."""

@overload
def method(
    name: Literal["m2po"],
    *,
    budget: float = 0.04,
    low: float = 0.3,
    high: float = 0.5,
) -> Objective:
    """A clip that begins where the second moment of the step's log-ratios exceeds a budget."""

@overload
def method(
    name: Literal["m2po_rollout"],
    *,
    threshold: float = 0.04,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """The tokens on which sampler and old policy are farthest apart are dropped."""

@overload
def method(
    name: Literal["fipo"],
    *,
    decay: float = 32.0,
    least: float = 1.0,
    most: float = 1.2,
    safety: float = 4.0,
    dual: float | None = None,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """Tokens are weighed by how the policy has moved on what follows them."""

@overload
def method(
    name: Literal["real"],
    *,
    tau: float = 0.5,
) -> Objective:
    """Right and wrong responses of a group are told apart by their mean log-ratio."""

@overload
def method(
    name: Literal["gdpo"],
    *,
    form: str = "trl",
    weights: tuple[float, ...] = (),
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """Several rewards, none of which drowns another: each is normalised before they are added."""

@overload
def method(
    name: Literal["otb"],
    *,
    zero_tail: bool = True,
    token_reward: bool = False,
    rollout_cap: float | None = None,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """The baseline of a token weighs the rollouts by how far each has moved the gradient up to it."""

@overload
def method(
    name: Literal["mt_grpo"],
    *,
    coef: float = 1.0,
    outcome_rewards: int = 1,
    low: float = 0.2,
    high: float = 0.2,
    beta: float = 0.0,
) -> Objective:
    """What a tool call earned counts for the tokens that made it, the outcome for all."""

@overload
def method(
    name: Literal["gigpo"],
    *,
    omega: float = 1.0,
    gamma: float = 1.0,
    std: bool = False,
    eps: float = 1e-06,
    by_turn: bool = True,
    low: float = 0.2,
    high: float = 0.2,
) -> Objective:
    """A turn is compared with the turns that began in the same state, the trajectory with its group."""

@overload
def method(
    name: Literal["eb_cispo"],
    *,
    high: float = 2.0,
    low: float = 1.0,
) -> Objective:
    """The baseline leans on the other prompts where groups say little; the importance weight is clipped, detached."""

@overload
def method(name: Known, **options: Any) -> WrongOptions: ...
@overload
def method(name: str, **options: Any) -> Objective: ...
