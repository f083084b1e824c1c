"""The core methods in small worlds, through the learner: what is known of them shows, and what is not there does not.

Expected updates against closed forms; rollouts of a world against plain sums over one group.
"""

import json
import math

import pytest
import torch
from torch import Tensor

import tokenpo
from tokenpo.cli.main import main
from tokenpo.core.types import Batch, Policy, Totals
from tokenpo.lab.exact import measures
from tokenpo.lab.exact.measures import MEASURES, Walk, direction, directions, lacking, measure, walk
from tokenpo.lab.exact.worlds import WORLDS, State, World
from tokenpo.methods import METHODS, method

# Means of tokens and of responses, a ratio of the response, statistics of the step, a gradient through the entropy.
CORE = ("dapo", "grpo", "gspo", "clip_cov", "tepo")
# Methods that divide by the length of a response: short answers count more there, and length is free.
BY_LENGTH = {"grpo", "gspo"}


@pytest.mark.parametrize("world", ["two_modes", "free_length"])
@pytest.mark.parametrize("method", CORE)
def test_on_policy(method, world):
    """The expected update is the gradient's direction, wherever nothing is divided by."""
    found = measure(tokenpo.method(method), WORLDS[world]())
    assert all(math.isfinite(x.value) and math.isfinite(x.error) for x in found.values())
    assert -1 <= found["progress"].value <= 1
    assert (found["cosine"].value > 0.99) != (world == "free_length" and method in BY_LENGTH)


def test_hapo_gives_the_surest_decision_nothing():
    world, hapo = WORLDS["sure_fork_filler"](), tokenpo.method("hapo")
    fork = world.index["fork"]
    by_state = directions(hapo, world).single.unflatten(-1, world.initial.shape).abs().amax((0, 1, 3))
    assert by_state[fork] < 1e-12 < 1e-4 < by_state[torch.arange(len(by_state)) != fork].min()
    assert measure(hapo, world)["progress"].value == pytest.approx(0, abs=1e-12)


def test_clip_after_a_drift():
    """A drift of 0.01 nats a token on one state is more than GRPO's clip allows there: nothing is left toward it."""
    left = {
        name: measure(tokenpo.method(name), WORLDS["fork_sure_filler"]())["moved"].value for name in ("grpo", "cispo")
    }
    assert left["grpo"] == pytest.approx(0, abs=1e-9) and left["cispo"] > 0.9


def test_statistics_of_vectors_whose_expectation_is_known():
    """g = 0.8 along and 0.6 across, with noise of power 4 in 1,000 directions: E|g|² is 5; the jackknife of a mean is
    its standard error."""
    draws = torch.Generator().manual_seed(0)
    mean = torch.zeros(1000, dtype=torch.float64)
    mean[:2] = torch.tensor([0.8, 0.6], dtype=torch.float64)
    single = mean + torch.randn(8, 64, 1000, dtype=torch.float64, generator=draws) * (4 / 1000) ** 0.5
    assert float(measures._square(single)) == pytest.approx(5, rel=0.02)
    # |E g|² is 1 although each replicate's mean has noise of power 4 / 64 on it.
    assert float(measures._squared_mean(single.mean(1))) == pytest.approx(1, abs=0.05)
    found, x = measures._jackknife(lambda x: float(x.mean()), single[:, 0, 0]), single[:, 0, 0]
    assert found.value == pytest.approx(float(x.mean()))
    assert found.error == pytest.approx(float(x.std() / 8**0.5))
    assert measures._root(torch.tensor(0.0)) == math.inf


Q, GROUP = 0.3, 8
COIN = World("coin", (State("toss", (Q, 1 - Q), (1.0, 0.0)),), {"toss": 1.0})


def counted(method: str) -> Tensor:
    """[2] the expected direction on a world of one token: every number of right answers, by its probability."""
    objective, total = tokenpo.method(method), torch.zeros(1, 2, dtype=torch.float64)
    for right in range(GROUP + 1):
        tokens = (torch.arange(GROUP) >= right).long()[:, None]
        batch = Walk(
            torch.zeros_like(tokens), tokens, tokens >= 0, 1.0 - tokens[:, 0].double(), torch.zeros(GROUP).long()
        )
        chance = math.comb(GROUP, right) * Q**right * (1 - Q) ** (GROUP - right)
        total += chance * direction(objective, COIN, batch, COIN.initial)
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


@pytest.mark.parametrize("right", [1, 4, 12, 30, 39])
def test_grpo_with_a_divergence_moves_success_as_its_recurrence_says(right):
    """Of 40 responses `right` are right, p of them; the reference succeeds with q = 0.3. GRPO's maximiser around the
    policy succeeds with h(p), logit h(p) = logit q + 1 / (beta s), s the deviation: 2503.06639, read in the author's
    post https://ymroueh.me/post/post_2. Up the logit of p, GRPO less beta KL(π ‖ reference) has the gradient
    p (1 - p) beta (logit h(p) - logit p): it rests where h does, above q.
    """
    count, beta, q, p = 40, 2.0, torch.tensor(0.3, dtype=torch.float64), torch.tensor(right / 40, dtype=torch.float64)
    wins = torch.arange(count)[:, None] < right
    logit = p.logit().requires_grad_()
    logprob = torch.where(wins, logit, -logit).sigmoid().log()
    rollouts = tokenpo.Rollouts(
        mask=torch.ones_like(wins), reward=wins[:, 0].double(), group=torch.zeros(count).long(),
        old_logprob=logprob.detach(), ref_logprob=torch.where(wins, q, 1 - q).log(),
    )  # fmt: skip
    kl = tokenpo.parts.ReferenceKl(beta, tokenpo.parts.K2())
    objective = tokenpo.methods.extended(tokenpo.method("grpo"), reference=kl)
    batch = Batch(rollouts, objective.prepare(rollouts), Policy(logprob))
    (slope,) = torch.autograd.grad(-objective.loss(batch, Totals.of(rollouts)).value, logit)
    deviation = math.sqrt(right * (count - right) / (count * (count - 1))) + 1e-6
    h = (q.logit() + 1 / (beta * deviation)).sigmoid()
    assert float(slope) == pytest.approx(float(p * (1 - p) * beta * (h.logit() - p.logit())), rel=1e-9)
    assert h > q


def test_perfect_credit_puts_everything_on_decisions():
    world, dapo = WORLDS["forks_between_sure"](), tokenpo.method("dapo")
    single = directions(dapo, world, perfect=True).single.unflatten(-1, world.initial.shape)
    fillers = [number for name, number in world.index.items() if not name.startswith("fork")]
    assert single[:, :, fillers].abs().max() < 1e-12 < single.abs().max()
    assert measure(dapo, world, perfect=True)["progress"].value > 0.9


MINE = """
import tokenpo

def still():
    return tokenpo.method("dapo", high=0.0)
"""


def test_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measures, "REPLICATES", 2)
    monkeypatch.setattr(measures, "POPULATION", 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    assert main(["exact", "mine.py:still", "--world", "two_modes,free_length", "--json", "all.json"]) == 0
    found = json.loads((tmp_path / "all.json").read_text())
    assert list(found) == ["dapo", "still", "perfect credit"]
    assert all(list(row) == ["two_modes", "free_length"] for row in found.values())
    assert set(found["still"]["two_modes"]) == set(MEASURES)
    # On policy the clip does nothing; after a drift up the gradient it leaves less than DAPO's.
    assert found["still"]["two_modes"]["progress"] == found["dapo"]["two_modes"]["progress"]
    assert found["still"]["two_modes"]["moved"][0] < found["dapo"]["two_modes"]["moved"][0]
    assert found["perfect credit"]["two_modes"]["progress"][0] > found["dapo"]["two_modes"]["progress"][0]
    out = capsys.readouterr().out
    assert out.startswith("still compared with DAPO, in 2 worlds: cosine larger in 0 and smaller in 0")
    assert "free_length" in out and "numbers: all.json" in out


WORLD = WORLDS["lucky_guess"]()
SECOND = slice(8, 16)


@pytest.fixture(scope="module")
def batch():
    """The second of four groups: what is read of a group is not to hang on its number."""
    walked = walk(WORLD, WORLD.initial, 4, 8, torch.Generator().manual_seed(5)).rows(SECOND)
    assert 0 < float(walked.reward.mean()) < 1 and not bool(walked.mask.all())
    return walked


REFUSED = {*"vineppo spo ospo igrpo remax thr nthr tw_grpo arm opd gkd iw_opd rlsd sdar sdpo rto decoupled".split()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_or_is_refused(name, batch):
    assert bool(lacking(method(name))) == (name in REFUSED)
    if name not in REFUSED:
        assert bool(direction(method(name), WORLD, batch, WORLD.initial).isfinite().all())
