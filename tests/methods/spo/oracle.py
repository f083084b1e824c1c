"""SPO-chain (2505.23564), from the gain of segments: loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, loss, ratio, whitened

CASES = [{}, {"below": 0.3}, {"low": 0.1, "high": 0.4}]


def spo(s, *, below=0.9, low=0.2, high=0.2):
    # whitened over the improbable tokens, in the mean over them; the others get 0
    kept = s.mask & (np.exp(s.old_logprob) < below)
    return loss(kept / max(1, kept.sum()), *clipped(*ratio(s), whitened(s.gain, kept), low, high))
