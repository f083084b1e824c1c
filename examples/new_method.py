"""A method of one's own: its part and its builder, then tested against the laws and compared token by token.

python examples/new_method.py        a few seconds on one core; new_method.txt has its output
"""

import dataclasses

import torch

import tokenpo


class Doubt(tokenpo.parts.Weight):
    """1 where the old policy was at a loss, 1 - share where it was sure."""

    reads = {"old_entropy"}
    share: tokenpo.ranges.Share

    def __call__(self, batch, trust):
        doubt = 1 - (-batch.need("old_entropy").clamp(min=0)).exp()
        return 1 - self.share + self.share * doubt


def doubting(*, share: tokenpo.ranges.Share = 0.8) -> tokenpo.Objective:
    """DAPO that learns less where the policy was sure."""
    return dataclasses.replace(tokenpo.method("dapo"), name="doubting", weights=(Doubt(share),))


def pushes(objective: tokenpo.Objective, entropy: list[float]) -> list[float]:
    """-dL/dlp of the tokens of a right response with these entropies, next to a wrong one, in units of a mean token."""
    shape = (2, len(entropy))
    rollouts = tokenpo.Rollouts(
        mask=torch.ones(shape, dtype=torch.bool),
        reward=torch.tensor([1.0, 0.0]),
        group=torch.tensor([0, 0]),
        old_logprob=torch.full(shape, -1.0),
        old_entropy=torch.tensor([entropy, entropy]),
    )
    policy = tokenpo.Policy(logprob=rollouts.old_logprob.clone().requires_grad_())
    batch = tokenpo.Batch(rollouts=rollouts, credit=objective.prepare(rollouts), policy=policy)
    loss = objective.loss(batch, tokenpo.Totals.of(rollouts, length=len(entropy)))
    (gradient,) = torch.autograd.grad(loss.value, policy.logprob)
    return (-gradient[0] * gradient.numel()).tolist()


if __name__ == "__main__":
    print(doubting())
    print(f"\n{len(tokenpo.check_method(doubting()))} laws hold\n")
    entropy = [0.0, 0.1, 0.3, 1.0, 3.0]
    print("entropy, nats     ", *(f"{x:6.1f}" for x in entropy))
    shown = {"dapo": tokenpo.method("dapo"), "share 0.4": doubting(share=0.4), "share 0.8": doubting()}
    for name, objective in shown.items():
        print(f"push of {name:<10}", *(f"{x:6.3f}" for x in pushes(objective, entropy)))
