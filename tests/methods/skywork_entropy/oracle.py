"""Skywork-OR1's adaptive entropy (2505.22312): loss and hand-derived gradients, NumPy float64."""

from oracle_support.prelude import clipped, crossed, group_advantage, ratio, token_mean

# The mean entropy of the batches is about 0.7: below 9, above 0.2.
CASES = crossed(
    [{}, {"target": 9.0}, {"target": 9.0, "low": 0.1, "high": 0.3}], start=(0.0, 0.003, 0.5), largest=(1.0,)
)


def skywork_entropy(
    s, *, controller="current", was_below=True, target=0.2, start=0.0, largest=0.005, low=0.2, high=0.2
):  # fmt: skip
    """`start` is α as the batches before left it; `was_below` is their gate, which controller="released" reads;
    `largest` matters to `after`."""
    # + c H with c = α 1[Hbar_old < target]: H has a gradient, c none; the authors' code: the batch before has opened or
    # closed the gate
    c = start * (was_below if controller == "released" else s.old_entropy[s.mask].mean() < target)
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return *token_mean(s, J + c * s.entropy, dJ), token_mean(s, c * s.entropy, c)[1]


def after(alpha, Hbar, target=0.2, delta=1e-4, largest=0.005):
    """α after a batch whose tokens had the mean old entropy `Hbar` (released: mean -lp_old): up below the target, else
    down, in [0, largest]."""
    return min(max(alpha + (delta if Hbar < target else -delta), 0.0), largest)
