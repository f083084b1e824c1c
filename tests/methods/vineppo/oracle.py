"""VinePPO (2410.01679), from the gain of segments: loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, ratio, token_mean, whitened

CASES = [{}, {"low": 0.1, "high": 0.4}]


def vineppo(s, *, low=0.2, high=0.2):
    return token_mean(s, *clipped(*ratio(s), whitened(s.gain, s.mask), low, high))
