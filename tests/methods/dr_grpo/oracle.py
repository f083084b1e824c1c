"""Dr. GRPO (2503.20783): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, lengths, ratio, sequence_sum

CASES = [{}, {"low": 0.1, "high": 0.4}, {"length": 64}, {"length": 5, "high": 0.3}]


def dr_grpo(s, *, low=0.2, high=0.2, length=None):
    # A_i = R_i - mean_g: no division by the standard deviation
    J, dJ = clipped(*ratio(s), group_advantage(s, std=False), low, high)

    # the sum over the tokens of a response is divided by a constant, the longest response (allowed)
    constant = lengths(s).max() if length is None else length
    return sequence_sum(s, J / constant, dJ / constant)
