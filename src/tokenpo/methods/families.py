"""Groups methods by what they change: the headings of `tokenpo methods`, and one page of the documents each."""

from ..base.errors import UnknownName

_TITLES = {
    "baselines": "Rewards against a group or a batch",
    "responses": "One ratio for a response",
    "trust": "Ratio and trust region of a token",
    "entropy": "Entropy and covariance of a token",
    "probability": "Probability of a token",
    "segments": "Credit measured on tokens and segments",
    "critics": "A critic, or a reward model of tokens",
    "teachers": "A teacher",
}
_METHODS = {
    "baselines": "grpo dapo dr_grpo rloo lite_ppo prpo flash_reinforce reinforce_pp reinforce_pp_baseline "
    "remax gpg opo raft raft_pp reinforce_rej maxrl ha_dw grpo_passk hmpo eb_cispo gdpo igrpo",
    "responses": "gspo gspo_token gmpo luspo tepo_v1 vespo dhpo opsm real topr holder delta_l gvpo target_po",
    "trust": "cispo sapo aspo ce_gppo dppo_tv dppo_kl m2po m2po_rollout rollout_is prime_rl dro fipo up vaco decoupled",
    "entropy": "gtpo grpo_s hapo tepo clip_cov kl_cov clip_b clip_v archer forking_tokens "
    "edge_grpo egspo sent skywork_entropy aer",
    "probability": "tr_grpo adv_reweight lopti stapo arm s_grpo",
    "segments": "vineppo spo ospo t_spmo ktae gtpo_conflict mt_grpo gigpo otb tw_grpo nthr thr",
    "critics": "ppo vapo rto",
    "teachers": "opd iw_opd gkd rlsd sdar sdpo",
}
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (title, tuple(_METHODS[name].split())) for name, title in _TITLES.items()
}
"""Name of a family -> its title and its methods."""


def family(method: str) -> str:
    """Names the family of a method.

    >>> family("hapo")
    'entropy'

    Raises:
        UnknownName: no family has the method.
    """
    for name, (_, methods) in FAMILIES.items():
        if method in methods:
            return name
    raise UnknownName(f"no family has the method {method!r}: add it to one in tokenpo/methods/families.py")
