"""A loop of one's own around `tokenpo.Learner`: several updates on a rollout batch, micro-batches, a checkpoint.

python examples/own_loop.py [METHOD]        a second on one core; own_loop.txt beside it is what it prints

The policy is a table of logits, so that nothing but torch is needed; with a language model `view` is its forward pass.
"""

import json
import sys

import torch

import tokenpo
from tokenpo.core.head.token_stats import stats_from_logits

N, T, V, GROUP = 32, 6, 10, 8  # responses, tokens of the longest, vocabulary, responses to one prompt


def view(logits, token_ids, mask):
    """What the policy says of sampled tokens: log-probability and entropy, [N, T] nats."""
    flat = logits.expand(len(token_ids), T, V).reshape(-1, V)
    stats = stats_from_logits(flat, token_ids.reshape(-1), 1.0)
    return tokenpo.Policy(logprob=stats.logprob.view(mask.shape), entropy=stats.entropy.view(mask.shape))


@torch.no_grad()
def roll_out(logits, generator):
    """Token 0 ends a response and is part of it; a response is right when it holds a 3."""
    token_ids = torch.multinomial(logits.softmax(-1), N, replacement=True, generator=generator).T
    mask = ((token_ids == 0).cumsum(1) - (token_ids == 0).long()) == 0
    old = view(logits, token_ids, mask)
    right = ((token_ids == 3) & mask).any(1).float()
    group = torch.arange(N) // GROUP
    return tokenpo.Rollouts(
        mask=mask, reward=right, group=group, old_logprob=old.logprob, old_entropy=old.entropy, token_ids=token_ids
    )


def main(method="tepo", batches=20):
    logits, generator = torch.zeros(T, V, requires_grad=True), torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD([logits], lr=5.0)
    learner = tokenpo.Learner(tokenpo.method(method), length=T)  # length: the longest response allowed
    for batch in range(batches):
        rollouts = roll_out(logits, generator)
        for update in learner.begin(rollouts).updates(epochs=2, minibatches=2):
            if update.observes:  # an objective that looks at the whole update first
                update.observe(view(logits, rollouts.token_ids[update.rows], rollouts.mask[update.rows]))
            for rows in update.pieces(12):  # micro-batches add up
                _, loss = update.evaluate(view(logits, rollouts.token_ids[rows], rollouts.mask[rows]), rows)
                loss.value.backward()
            learner.check(update)  # ratio 1 before the first update; finite
            optimizer.step()
            optimizer.zero_grad()
        if batch in (0, 2, 4, 9, batches - 1):
            print(f"batch {batch + 1}: mean reward {rollouts.reward.mean():.2f}")
    saved = json.dumps(learner.state_dict())
    again = tokenpo.Learner(tokenpo.method(method), length=T)
    again.load_state_dict(json.loads(saved))
    print(f"a checkpoint of {len(saved)} characters, taken back: {again.state_dict() == learner.state_dict()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
