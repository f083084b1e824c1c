"""Why did the entropy collapse? Two recorded batches of a run, early and late, and what each method would do to them.

python examples/entropy_collapse.py        seconds on one core; entropy_collapse.txt has its output

The recording is made here, of a policy that is a table of logits. One of a real run is written the same way, in ten
lines: docs/rollouts.md. `tokenpo explain FILE` draws it.
"""

import torch

import tokenpo

N, T, V, GROUP = 256, 6, 8, 8
METHODS = ("grpo", "gtpo", "tr_grpo", "forking_tokens", "skywork_entropy")


def recorded(sharpness, seed=0):
    """A batch of responses and the policy that sampled them; the sharper, the surer of one token at each position."""
    logits = sharpness * torch.linspace(1, 0, V).expand(T, V) * torch.linspace(0.5, 1.5, T)[:, None]
    ids = torch.multinomial(logits.softmax(-1), N, replacement=True, generator=torch.Generator().manual_seed(seed)).T
    stats = tokenpo.stats_from_logits(logits.expand(N, T, V).reshape(-1, V), ids.reshape(-1), 1.0, drift=True)
    logprob, entropy, drift = (x.view(N, T).double() for x in (stats.logprob, stats.entropy, stats.entropy_drift))
    rollouts = tokenpo.Rollouts(
        mask=torch.ones(N, T, dtype=torch.bool),
        reward=(ids < 3).sum(1).ge(4).double(),
        group=torch.arange(N) // GROUP,
        old_logprob=logprob,
        old_entropy=entropy,
    )
    return rollouts, tokenpo.Policy(logprob=logprob, entropy=entropy, entropy_drift=drift)


def lowers(rollouts, policy, push):
    """Share of the push on tokens whose entropy it lowers, to first order of a step in the logits.

    A token's entropy falls where push · (p (log p + H) − entropy_drift) > 0.
    """
    gain = policy.logprob.exp() * (policy.logprob + policy.entropy) - policy.entropy_drift
    return float((push.abs() * (push * gain > 0)).sum() / push.abs().sum())


def push_of(objective, rollouts, policy):
    """−∂L/∂lp of every token [N, T]."""
    given = {"logprob": policy.logprob.clone().requires_grad_()}
    given |= {name: vars(policy)[name] for name in ("entropy", "entropy_drift") if name in objective.needs}
    batch = tokenpo.Batch(rollouts=rollouts, credit=objective.prepare(rollouts), policy=tokenpo.Policy(**given))
    loss = objective.loss(objective.observe(batch), tokenpo.Totals.of(rollouts, length=T))
    return -torch.autograd.grad(loss.value, given["logprob"])[0]


if __name__ == "__main__":
    for name, sharpness in (("early", 1.0), ("late", 6.0)):
        rollouts, policy = recorded(sharpness)
        tokens = rollouts.old_entropy[rollouts.mask]
        low, middle, high = (float(tokens.quantile(q)) for q in (0.1, 0.5, 0.9))
        silent = sum(rollouts.reward[rollouts.group == g].std() == 0 for g in rollouts.group.unique())
        print(
            f"{name}: mean reward {rollouts.reward.mean():.2f}; {int(silent)} of {N // GROUP} groups have equal rewards"
        )
        print(f"  entropy {low:.2f}, {middle:.2f}, {high:.2f} nats at 10, 50, 90 % of the tokens")
        for method in METHODS:
            push = push_of(tokenpo.method(method), rollouts, policy)
            forks = float(push.abs()[rollouts.old_entropy >= high].sum() / push.abs().sum())
            share = lowers(rollouts, policy, push)
            print(f"  {method:<15} {share:4.0%} of its push lowers entropy, {forks:4.0%} lies where entropy is highest")
