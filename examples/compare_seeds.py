"""Is one method better than another? The same seeds for both, differences by pairs, a margin stated before the runs.

python examples/compare_seeds.py        ten seconds on one core; compare_seeds.txt has its output

The loop is your own, here around a policy that is a table of logits: all that the verdict needs is one number for each
method and seed. For a recipe, `tokenpo compare RECIPE --methods ... --margin ...` makes the runs too, and for runs that
exist `tokenpo compare --runs A='runs/a-*' B='runs/b-*'` reads them: docs/comparison.md.

Three seeds can decide nothing, which is known before they run, and here shown. The learning rate is one for all: part
of a difference may be how long the steps of a method are, and a fair comparison tunes it for each (docs/results.md).
"""

import torch

import tokenpo
from tokenpo.lab.compare.verdict import judge

# Decided before the first run: who against whom, how many seeds, the least difference of mean rewards that matters.
BASELINE, METHODS, SEEDS, MARGIN = "grpo", ("dapo", "grpo_s"), 8, 0.03
N, T, V, GROUP, BATCHES = 32, 6, 8, 8, 20  # responses, tokens of the longest, vocabulary, responses to a prompt


def view(logits, token_ids, mask):
    """What the policy says of sampled tokens: log-probability and entropy, [N, T] nats."""
    stats = tokenpo.stats_from_logits(logits.expand(len(token_ids), T, V).reshape(-1, V), token_ids.reshape(-1), 1.0)
    return tokenpo.Policy(logprob=stats.logprob.view(mask.shape), entropy=stats.entropy.view(mask.shape))


@torch.no_grad()
def roll_out(logits, generator):
    """Token 0 ends a response and is part of it; a response is right when it holds two 3s."""
    token_ids = torch.multinomial(logits.softmax(-1), N, replacement=True, generator=generator).T
    mask = ((token_ids == 0).cumsum(1) - (token_ids == 0).long()) == 0
    old, right = view(logits, token_ids, mask), ((token_ids == 3) & mask).sum(1) >= 2
    group = torch.arange(N) // GROUP
    return tokenpo.Rollouts(
        mask=mask, reward=right.double(), group=group, old_logprob=old.logprob, old_entropy=old.entropy
    ), token_ids


def run(method, seed):
    """The number that is compared: the mean reward over the batches of one run.

    The seed is all that chance depends on, so two methods with the same seed draw the same first batch.
    """
    logits = torch.zeros(T, V, dtype=torch.float64, requires_grad=True)
    generator, optimizer = torch.Generator().manual_seed(seed), torch.optim.SGD([logits], lr=4.0)
    learner, rewards = tokenpo.Learner(tokenpo.method(method), length=T, seed=seed), []
    for _ in range(BATCHES):
        rollouts, token_ids = roll_out(logits, generator)
        rewards.append(float(rollouts.reward.mean()))
        for update in learner.begin(rollouts).updates(epochs=2, minibatches=2):
            _, loss = update.evaluate(view(logits, token_ids[update.rows], rollouts.mask[update.rows]), update.rows)
            loss.value.backward()
            learner.check(update)
            optimizer.step()
            optimizer.zero_grad()
    return sum(rewards) / BATCHES


if __name__ == "__main__":
    reward = {method: {seed: run(method, seed) for seed in range(SEEDS)} for method in (BASELINE, *METHODS)}
    for method, by_seed in reward.items():
        print(f"{method:<7} mean reward {sum(by_seed.values()) / SEEDS:.3f}")
    for seeds in (3, SEEDS):
        print(f"\nThe first {seeds} seeds, with a margin of {MARGIN} on the mean reward")
        taken = {method: {seed: reward[method][seed] for seed in range(seeds)} for method in reward}
        for pair in judge(taken, [(method, BASELINE) for method in METHODS], margin=MARGIN):
            print(f"{pair.a} - {pair.b}: {pair.mean:+.3f}, 95 % interval {pair.low:+.3f} to {pair.high:+.3f}")
            print(f"  by seed {' '.join(f'{d:+.3f}' for d in pair.differences)}")
            print(f"  {pair.verdict}: {pair.reason}")
