"""The core methods in small worlds, through the learner: what is known of them shows, and what is not there does not.

Expected updates against closed forms.
"""

import math
from statistics import fmean

import pytest
import torch
from torch import Tensor

import tokenpo
from enumerated import enumerated
from tokenpo.lab.exact import measures, training
from tokenpo.lab.exact.contestant import Contestant, push
from tokenpo.lab.exact.model import Network, Table
from tokenpo.lab.exact.sampling import Walk, rollouts, walk
from tokenpo.lab.exact.truth import slopes, truth
from tokenpo.lab.exact.world import State, World
from tokenpo.lab.exact.worlds import WORLDS

# Means of tokens and of responses, a ratio of the response, statistics of the step, a gradient through the entropy.
CORE = ("dapo", "grpo", "gspo", "clip_cov", "tepo")
FOUR = ("sure_fork_filler", "two_modes", "free_length", "easy_and_hard")
# Methods that divide by the length of a response: short answers count more there, and length is free.
BY_LENGTH = {"grpo", "gspo"}


@pytest.fixture(scope="module")
def worlds() -> dict[str, Table]:
    return {name: Table(build()) for name, build in WORLDS.items()}


def contestant(name: str, **options: float) -> Contestant:
    return Contestant(name, tokenpo.method(name, **options))


@pytest.mark.parametrize("world", ["two_modes", "free_length"])
@pytest.mark.parametrize("method", CORE)
def test_on_policy(method, world, worlds):
    """The expected update is the gradient's direction, wherever nothing is divided by."""
    result = measures.observe(contestant(method), worlds[world], "init")
    found = {name: measure(result) for name, measure in measures.MEASURES.items()}
    assert all(math.isfinite(x.value) and math.isfinite(x.error) for x in found.values())
    assert -1 <= found["single"].value <= 1 and -1 <= found["useful"].value <= 1
    assert (found["cosine"].value > 0.99) != (world == "free_length" and method in BY_LENGTH)


def test_hapo_gives_the_surest_decision_nothing(worlds):
    model = worlds["sure_fork_filler"]
    result, fork = measures.observe(contestant("hapo"), model, "init"), model.world.index["fork"]
    by_state = result.single.unflatten(-1, model.start().shape).abs().amax((0, 1, 3))
    assert by_state[fork] < 1e-12 < 1e-4 < by_state[torch.arange(len(by_state)) != fork].min()
    assert measures.useful(result).value == pytest.approx(0, abs=1e-12)


def test_clip_after_a_drift(worlds):
    """A drift of 0.01 nats a token on one state is more than GRPO's clip allows there: nothing is left toward it."""
    world = worlds["fork_sure_filler"]
    left = {}
    for name in ("grpo", "cispo"):
        method = contestant(name)
        left[name] = measures.drift(method, world, measures.observe(method, world, "init"), "toward").value
    assert left["grpo"] == pytest.approx(0, abs=1e-9) and left["cispo"] > 0.9


def test_training_arrives_or_stands(worlds):
    dapo = training.expected(contestant("dapo"), worlds["two_modes"], 0)
    assert dapo.J[0] == pytest.approx(0.4) and dapo.J[-1] >= training.GOAL > dapo.J[-2]
    assert len(dapo.J) - 2 < dapo.arrival <= len(dapo.J) - 1
    assert dapo.entropy[-1] < dapo.on_arrival("entropy") < dapo.entropy[-2]
    stuck = training.expected(contestant("forking_tokens"), worlds["sure_fork_filler"], 0)
    assert stuck.stands and stuck.arrival == math.inf and math.isnan(stuck.on_arrival("entropy"))
    assert stuck.J[-1] == pytest.approx(0.08, abs=1e-12)


def test_seeds_repeat_and_differ(monkeypatch):
    monkeypatch.setattr(training, "NOISY", 4)
    network = Network(WORLDS["two_modes"]())
    once, again, other = (training.noisy(contestant("hapo"), network, 0.2, seed).J for seed in (0, 0, 1))
    assert once == again != other and len(once) == training.NOISY + 1


def test_the_best_step_size_is_that_of_the_whole_grid(monkeypatch):
    """With a grid of five: each of its sizes has been tried, none has a larger area, and both neighbours a smaller."""
    monkeypatch.setattr(training, "GRID", (0.2, 0.8, 3.2, 12.8, 51.2))
    monkeypatch.setattr(training, "START", 0)
    monkeypatch.setattr(training, "SEEDS", 1)
    monkeypatch.setattr(training, "NOISY", 6)
    method, network = contestant("dapo"), Network(WORLDS["easy_and_hard"]())
    size, runs = training.tuned(method, network)
    areas = [training.noisy(method, network, x, 0).area for x in training.GRID]
    assert fmean(run.area for run in runs) == max(areas) == areas[training.GRID.index(size)]
    assert 0 < training.GRID.index(size) < 4 and areas[4] < max(areas) - 0.1


def test_kl_of_a_batch(monkeypatch):
    """By hand in a world of one token: p log(p/q) + (1 - p) log((1 - p)/(1 - q)), p before the batch and q after it."""
    monkeypatch.setattr(training, "NOISY", 3)
    run = training.noisy(contestant("dapo"), Network(COIN), 0.4, 0)
    p, q = run.J[:2]
    assert run.kl[0] == pytest.approx(p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)), rel=1e-12)
    assert run.kl[0] > 1e-4
    assert len(run.kl) == training.NOISY == len(run.J) - 1


def test_hapo_samples_at_its_own_temperature(worlds):
    """From the second batch on; the log-probabilities stay those of the constant one, so that the ratio is 1."""
    with_it, without = (
        training.expected(contestant("hapo", tau=tau), worlds["free_length"], 0).J for tau in (0.05, 0.0)
    )
    assert with_it[1] == without[1] and with_it[2] != without[2]


Q, GROUP = 0.3, 8
COIN = World("coin", "", None, "", (State("toss", (Q, 1 - Q), (1.0, 0.0)),), {"toss": 1.0})


def counted(method: str) -> Tensor:
    """[2] the expected direction on a world of one token: every number of right answers, by its probability."""
    options = {"weight_placement": "advantage"} if method == "tr_grpo" else {}
    contestant, total = Contestant(method, tokenpo.method(method, **options)), torch.zeros(1, 2, dtype=torch.float64)
    for right in range(GROUP + 1):
        tokens = (torch.arange(GROUP) >= right).long()[:, None]
        batch = Walk(
            torch.zeros_like(tokens), tokens, tokens >= 0, 1.0 - tokens[:, 0].double(), torch.zeros(GROUP).long()
        )
        learner = contestant.learner(COIN)
        chance = math.comb(GROUP, right) * Q**right * (1 - Q) ** (GROUP - right)
        total += chance * push(learner, contestant.begin(learner, COIN, batch, COIN.initial), batch, COIN.initial)
    return total[0]


def sigmoid_weight(p: float) -> float:
    """TR-GRPO's: 2 sigmoid(9 (p - 0.25)), kept in [1, 1.4]."""
    return min(max(2 / (1 + math.exp(-9 * (p - 0.25))), 1.0), 1.4)


@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "tr_grpo"])
def test_one_decision(method):
    """k of G are right. The gradient of log p is (1-q)(1,-1) for the right token and q(-1,1) for the wrong one. With
    advantages (1 - k/G)/s and -(k/G)/s the update is k(G-k)/(G² s) (w(q)(1-q) + w(1-q) q) (1,-1): s is the deviation
    plus 1e-6 or, in Dr. GRPO, 1; w is TR-GRPO's weight or 1.
    """
    weight = sigmoid_weight if method == "tr_grpo" else lambda _: 1.0
    size = 0.0
    for k in range(1, GROUP):
        deviation = math.sqrt(k * (GROUP - k) / (GROUP * (GROUP - 1)))
        scale = 1.0 if method == "dr_grpo" else deviation + 1e-6
        chance = math.comb(GROUP, k) * Q**k * (1 - Q) ** (GROUP - k)
        size += chance * k * (GROUP - k) / GROUP**2 / scale * (weight(Q) * (1 - Q) + weight(1 - Q) * Q)
    torch.testing.assert_close(
        counted(method), torch.tensor([size, -size], dtype=torch.float64), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("name", ["two_modes", "sparse_chain", "free_length", "easy_and_hard", "lucky_guess"])
def test_dr_grpo_climbs_the_mean_reward(name):
    """Groups of two, all pairs of responses by their probability: the expected update is c ∇J. A_i = (R_i - R_j)/2 and
    1/N Σ 1/L: c = (G-1)/G · 1/L = 1/(2L).
    """
    world = WORLDS[name]()
    every, logits = enumerated(world), world.initial.clone().requires_grad_()
    chance = (logits.detach().log_softmax(-1)[every.states, every.tokens] * every.mask).sum(1).exp()
    pairs = torch.cat([torch.cartesian_prod(*[(every.prompt == p).nonzero()[:, 0]] * 2) for p in every.prompt.unique()])
    weight = world.shares[every.prompt[pairs[:, 0]]] * chance[pairs].prod(1)
    rows = pairs.flatten()
    group = torch.arange(len(pairs)).repeat_interleave(2)
    batch = Walk(every.states[rows], every.tokens[rows], every.mask[rows], every.reward[rows], group)
    objective = tokenpo.method("dr_grpo")
    learner = tokenpo.Learner(objective, length=world.length)
    update = learner.begin(rollouts(world, batch, world.initial, objective.needs)).update(torch.arange(len(rows)))
    logprob = update.rollouts.old_logprob.clone().requires_grad_()
    update.evaluate(tokenpo.Policy(logprob=logprob))[1].value.backward()
    assert logprob.grad is not None
    # All rows weigh the same in the loss: 1/N each. In the expectation a pair weighs what it is probable.
    push_on = -logprob.grad * len(pairs) * weight.repeat_interleave(2)[:, None]
    taken = logits.log_softmax(-1)[batch.states, batch.tokens]
    (expected,) = torch.autograd.grad((push_on * taken * batch.mask).sum(), logits)
    torch.testing.assert_close(expected, slopes(world, logits)["J"] / (2 * world.length), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", FOUR)
def test_dr_grpo_has_cosine_one_from_samples(name):
    """What is measured agrees with what is proven: within four standard errors, and the error is small."""
    result = measures.observe(Contestant("dr_grpo", tokenpo.method("dr_grpo")), Table(WORLDS[name]()), "init")
    found = measures.cosine(result)
    assert found.error < 0.01
    assert abs(found.value - 1) <= max(4 * found.error, 1e-3)


def test_exact_credit_puts_everything_on_decisions():
    world = WORLDS["forks_between_sure"]()
    result = measures.observe(Contestant("exact", tokenpo.method("dapo"), exact=True), Table(world), "init")
    assert measures.deciding_share(result).value == pytest.approx(1, abs=1e-12)
    assert measures.useful(result).value > 0.9


@pytest.mark.parametrize("even", [True, False])
def test_sampling_follows_the_policy(even):
    """Visits and reward of 16,384 responses; dealt evenly they are off by less than four independent errors / 5."""
    world = WORLDS["lucky_guess"]()
    walked = walk(world, world.initial, 2048, 8, torch.Generator().manual_seed(3), even=even)
    at, count = truth(world, world.initial), len(walked.reward)
    J = float(at.J)
    slack = 4 * math.sqrt(J * (1 - J) / count) * (0.2 if even else 1)
    assert float(walked.reward.mean()) == pytest.approx(J, abs=slack)
    visits = torch.bincount(walked.states[walked.mask], minlength=len(world.states)) / count
    torch.testing.assert_close(visits.double(), at.visits, rtol=0, atol=4 * 0.5 / math.sqrt(count))
