"""SkyRL and prime-rl by their contracts: stand-ins with the signatures of their sources call our loss as they do.

With the path of a clone in SKYRL or PRIME_RL, as `make test-hosts` sets them, that framework stands in its own place.

On two batches of sixteen responses, the example of the laws and one that a run recorded, loss and gradient by
mini-batch or by sample are the objective's of each whole mini-batch.
"""

import contextlib
import dataclasses
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import conformance
import tokenpo
from tokenpo.base.errors import Unsupported
from tokenpo.core.trial import example
from tokenpo.core.types import Batch, Policy, Rollouts, Totals
from tokenpo.hosts import prime_rl, skyrl, verl
from tokenpo.hosts.advantage_only import remedy
from tokenpo.hosts.trl import objective as trl
from tokenpo.methods import METHODS
from tokenpo.records import read
from tokenpo.train.recipe.objective import require_here

ALGORITHM = {"use_kl_loss": False, "advantage_batch_normalize": False, "max_seq_len": 9.0}
HALVES = (slice(0, 8), slice(8, 16))


@pytest.fixture(params=["example", "recorded"])
def batch(request: pytest.FixtureRequest) -> tuple[Rollouts, Tensor]:
    """Facts of sixteen ragged responses in several groups, and the current log-probabilities."""
    if request.param == "recorded":
        found = read(Path(__file__).parents[3] / "docs" / "rollouts.jsonl")
        old = found.rollouts.old_logprob
        # The run had neither another sampler nor a reference: a little off, so that these ratios are others.
        off = 0.01 * (torch.arange(old.shape[1]) % 7 == 0)
        facts = dataclasses.replace(found.rollouts, rollout_logprob=old - off, ref_logprob=old - 2 * off)
        return facts.only({"rollout_logprob", "ref_logprob"}), found.policy.logprob
    inputs = example()
    rollouts = Rollouts.of(inputs.rollouts).only({"rollout_logprob", "ref_logprob"})
    return rollouts, inputs.policy["logprob"].nan_to_num(-1.0)


def expected(objective: tokenpo.Objective, rollouts: Rollouts, logprob: Tensor, rows: slice) -> tuple[float, Tensor]:
    """Loss and gradient of one mini-batch, credit given on the whole batch."""
    leaf = logprob.clone().requires_grad_()
    credit = objective.prepare(rollouts)
    part = rollouts.rows(rows)
    loss = objective.loss(Batch(part, credit.rows(rows), Policy(leaf[rows])), Totals.of(part, 9.0))
    loss.value.backward()
    return loss.value.item(), leaf.grad


# --- SkyRL, as its trainer and worker call the two registries -----------------------------------------------------


class Registry:
    def __init__(self) -> None:
        self.known: dict = {}

    def register(self, name, fn) -> None:
        if name in self.known:
            raise ValueError(name)
        self.known[name] = fn

    def get(self, name):
        return self.known[name]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """An empty module of that name, inside empty packages."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
    return sys.modules[name]


UTILS = "skyrl.backends.skyrl_train.utils.ppo_utils"


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for SkyRL's registries, and for its division of advantages beside them."""
    module = stand_in(monkeypatch, UTILS)
    module.AdvantageEstimatorRegistry, module.PolicyLossRegistry = Registry(), Registry()
    module.apply_loss_reduction_to_advantages_minibatch = normalised
    return module


@pytest.fixture
def theirs(request: pytest.FixtureRequest) -> Any:
    """SkyRL's module with its registries: that of a clone, or the stand-in."""
    if "SKYRL" not in os.environ:
        yield request.getfixturevalue("registries")
        return
    module = import_module(UTILS)
    assert Path(module.__file__).is_relative_to(Path(os.environ["SKYRL"]).resolve())
    yield module
    for registry in (module.AdvantageEstimatorRegistry, module.PolicyLossRegistry):
        registry.unregister("tokenpo")


def normalised(advantages: Tensor, mask: Tensor, reduction: str, rows: int, longest: float) -> Tensor:
    """SkyRL's trainer divides the advantages of each mini-batch."""
    if reduction == "token_mean":
        return advantages / mask.sum()
    if reduction == "sequence_mean":
        return advantages / (mask.sum(1, keepdim=True).clamp(min=1) * len(mask))
    assert reduction == "seq_mean_token_sum_norm"
    return advantages / (longest * len(mask))


@pytest.mark.parametrize("method", ["dapo", "grpo", "dr_grpo", "gspo", "cispo", "rloo", "maxrl", "dppo_kl"])
def test_skyrl_computes_the_objective(method: str, batch, theirs) -> None:
    rollouts, logprob = batch
    objective = tokenpo.method(method)
    skyrl.register(objective)
    config = SimpleNamespace(**ALGORITHM, loss_reduction=skyrl.REDUCTIONS[type(objective.aggregate)])
    estimate, loss = (kind.get("tokenpo") for kind in (theirs.AdvantageEstimatorRegistry, theirs.PolicyLossRegistry))
    rewards = torch.zeros_like(logprob)
    rewards[torch.arange(16), rollouts.mask.sum(1) - 1] = rollouts.reward
    advantages, _ = estimate(
        token_level_rewards=rewards,
        response_mask=rollouts.mask.long(),
        index=[f"uid-{g}" for g in rollouts.group],
        values=None,
        grpo_norm_by_std=True,
        gamma=1.0,
        lambd=1.0,
        config=config,
    )
    for rows in HALVES:
        leaf = logprob.clone().requires_grad_()
        mask = rollouts.mask[rows]
        divided = theirs.apply_loss_reduction_to_advantages_minibatch
        scaled = divided(advantages[rows].clone(), mask.double(), config.loss_reduction, 3, config.max_seq_len)
        total = 0.0
        for micro in (slice(0, 3), slice(3, 8)):
            value, metrics = loss(
                leaf[rows][micro],
                rollouts.old_logprob[rows][micro],
                scaled[micro],
                config=config,
                loss_mask=mask[micro].float(),
                rollout_logprobs=rollouts.rollout_logprob[rows][micro],
            )
            value.backward()
            total += value.item()
            assert 0 <= metrics["clip_ratio"] <= 1
        wanted, gradient = expected(objective, rollouts.only(objective.needs), logprob, rows)
        assert total == pytest.approx(wanted, rel=1e-12)
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-12, atol=1e-15)
    with pytest.raises(ValueError):
        skyrl.register(objective)


@pytest.mark.parametrize("method", ["grpo", "eb_cispo", "gpg"])
def test_skyrls_padding_changes_no_credit(method: str, batch, registries) -> None:
    """Copies of the first row under uids of their own."""
    rollouts, logprob = batch
    objective = tokenpo.method(method)
    skyrl.register(objective)
    rewards = torch.zeros_like(logprob)
    rewards[:, -1] = rollouts.reward
    uids = [f"uid-{g}" for g in rollouts.group]
    config = SimpleNamespace(**ALGORITHM, loss_reduction=skyrl.REDUCTIONS[type(objective.aggregate)])
    estimate = partial(registries.AdvantageEstimatorRegistry.get("tokenpo"), config=config)
    ones = torch.ones_like(rewards).long()
    right, _ = estimate(token_level_rewards=rewards, response_mask=ones, index=uids)
    rows = [*range(16), 0, 0, 0, 0]
    padded, _ = estimate(
        token_level_rewards=rewards[rows], response_mask=ones[rows], index=[*uids, *(f"pad{i}" for i in range(4))]
    )
    assert torch.equal(padded[:16], right) and right.any() and not padded[16:].any()


@pytest.mark.parametrize("method", ["dapo", "cispo", "dppo_kl", "maxrl"])
def test_skyrls_steps_of_a_trajectory_are_one_response(method: str, registries) -> None:
    """generator.step_wise_trajectories: the estimator gets last rows with a mask of floating ones; a loss gets rows."""
    objective, inputs = tokenpo.method(method), example(5)
    cuts = torch.rand(inputs.rollouts["mask"].shape, generator=torch.Generator().manual_seed(0)) < 0.3
    rows, places = inputs.cut(cuts)
    order = (places.amax(1) >= 0).nonzero()[:, 0]
    order = order[places[order].amax(1).argsort()]  # a trajectory's rows stand together
    rows, places = rows.map(lambda x: x[order]), places[order]
    rollouts, mask = rows.rollouts, rows.rollouts["mask"]
    last = torch.cat([rollouts["trajectory"].diff() != 0, torch.tensor([True])])
    rewards = torch.zeros_like(rollouts["old_logprob"])
    rewards[last, 0] = rollouts["reward"][last]
    skyrl.register(objective)
    estimate, loss = (
        kind.get("tokenpo") for kind in (registries.AdvantageEstimatorRegistry, registries.PolicyLossRegistry)
    )
    config = SimpleNamespace(**ALGORITHM, loss_reduction="token_mean", policy_loss_type="tokenpo")
    uids = [f"uid-{g}" for g in rollouts["group"][last]]
    of_last, _ = estimate(
        token_level_rewards=rewards[last], response_mask=torch.ones(len(uids), 9), index=uids, config=config
    )
    number = torch.cat([torch.tensor([0]), last[:-1].long()]).cumsum(0)
    scaled = of_last[number] * mask / mask.sum()
    leaf, total = rows.policy["logprob"].nan_to_num().requires_grad_(), 0.0
    for row in range(len(mask)):
        fields = (
            x[row : row + 1].nan_to_num() for x in (rollouts["old_logprob"], scaled, mask, rollouts["rollout_logprob"])
        )
        old, a, m, sampler = fields
        value, _ = loss(leaf[row : row + 1], old, a, config=config, loss_mask=m.float(), rollout_logprobs=sampler)
        value.backward()
        total += value.item()
    whole = inputs.evaluate(objective)
    assert total == pytest.approx(whole.loss.value.item(), rel=1e-11)
    wanted = whole.gradient.flatten()[places].where(places >= 0, 0.0)
    torch.testing.assert_close(leaf.grad, wanted, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (tokenpo.method("grpo"), "grpo has a mean of responses, in which SkyRL counts rows"),
        (dataclasses.replace(tokenpo.method("tepo_v1"), name="mine"), "mine reads whole responses in its loss"),
        (tokenpo.method("opo"), "opo has a credit that differs between tokens or depends on lengths"),
        (tokenpo.method("dapo", overlong_length=8, overlong_cache=4), "dapo has a credit that differs between tokens"),
        (tokenpo.method("cispo"), "cispo is not the policy_loss_type too"),
    ],
)
def test_skyrls_steps_of_a_trajectory_that_hide_what_a_method_reads(method: Any, words: str, registries) -> None:
    skyrl.register(method)
    config = SimpleNamespace(**ALGORITHM, loss_reduction=skyrl.REDUCTIONS[type(method.aggregate)])
    config.policy_loss_type = "other" if method.name == "cispo" else "tokenpo"
    estimate = registries.AdvantageEstimatorRegistry.get("tokenpo")
    with pytest.raises(Unsupported, match=words):
        estimate(token_level_rewards=torch.rand(4, 9), response_mask=torch.ones(4, 9), index=[*"aabb"], config=config)


def test_skyrls_own_program_calls_our_entry_point(registries, monkeypatch: pytest.MonkeyPatch) -> None:
    """As trainer.override_entrypoint makes it do, with the words of its command line."""
    seen = []
    stand_in(monkeypatch, "skyrl.train.entrypoints.main_base").main = lambda: seen.append(list(sys.argv))
    place = "trainer.algorithm."
    names = [f"{place}policy_loss_type=tokenpo/cispo", f"{place}advantage_estimator=tokenpo/rloo", "data.x=tokenpo/y"]
    monkeypatch.setattr(sys, "argv", ["main_base", "trainer.override_entrypoint=tokenpo.hosts.skyrl", *names])
    skyrl.main()
    assert seen == [["main_base", *names]]
    for registry in (registries.AdvantageEstimatorRegistry, registries.PolicyLossRegistry):
        assert set(registry.known) == {"tokenpo/cispo", "tokenpo/rloo"}
    monkeypatch.setattr(sys, "argv", ["main_base", f"{place}policy_loss_type=tokenpo/tepo"])
    with pytest.raises(Unsupported, match="tepo needs"):
        skyrl.main()


# --- prime-rl, as its trainer calls a custom loss -----------------------------------------------------------------


@dataclasses.dataclass
class LossInputs:
    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = None


@dataclasses.dataclass
class LossOutputs:
    loss: Tensor
    metrics: dict


@pytest.fixture
def prime(monkeypatch: pytest.MonkeyPatch) -> None:
    if "PRIME_RL" in os.environ:
        module = import_module("prime_rl.trainer.rl.loss")
        assert Path(module.__file__).is_relative_to(Path(os.environ["PRIME_RL"]).resolve())
        return
    stand_in(monkeypatch, "prime_rl.trainer.rl.loss").LossOutputs = LossOutputs


def sample(rollouts: Rollouts, logprob: Tensor, advantages: Tensor, row: int, **more: Tensor) -> LossInputs:
    """A prompt of two tokens before each response, which the mask leaves out."""

    def whole(x: Tensor) -> Tensor:
        return torch.cat([x.new_zeros(2), x[row]])

    ref = None if rollouts.ref_logprob is None else whole(rollouts.ref_logprob)
    old, credit, mask = whole(rollouts.old_logprob), whole(advantages), whole(rollouts.mask)
    return LossInputs(whole(logprob), old, ref, credit, mask, **more)


def called(method: str, samples: list[Any], tokens: int) -> Tensor:
    """Our loss of each sample, added up and divided as prime-rl does."""
    outputs = [prime_rl.loss(one, method=method) for one in samples]
    assert sum(len(output.metrics["clipped"]) for output in outputs) == tokens
    return torch.stack([output.loss for output in outputs]).sum() / tokens


def trained(method: str, samples: list[Any], tokens: int) -> Tensor:
    """prime-rl's settings load our loss, which its `compute_loss` calls for each sample of two micro-batches."""
    theirs, configs = (import_module(f"prime_rl.{name}") for name in ("trainer.rl.loss", "configs.trainer"))
    settings = {"import_path": "tokenpo.hosts.prime_rl.loss", "kwargs": {"method": method}}
    function = theirs.setup_rl_loss_fn(configs.CustomLossConfig(**settings))
    names = ("trainer_logprobs", "inference_logprobs", "ref_logprobs", "advantages", "loss_mask")
    scales = {"rl_scale": tokens, "ce_scale": 1, "ref_kl_scale": 1}
    losses = []
    for given in (samples[:5], samples[5:]):
        fields = [[getattr(one, name) for one in given] for name in names]
        losses.append(theirs.compute_loss(*fields, None, None, None, rl_loss_fn=function, **scales)[0])
    return torch.stack(losses).sum()


CLONED = pytest.mark.skipif("PRIME_RL" not in os.environ, reason="PRIME_RL has no clone of prime-rl: make test-hosts")


@pytest.mark.parametrize("evaluate", [called, pytest.param(trained, marks=CLONED)])
@pytest.mark.parametrize("method", ["dapo", "cispo", "dppo_kl", "adv_reweight", "prime_rl"])
def test_prime_rl_computes_the_objective(method: str, evaluate: Any, batch, prime) -> None:
    """Sums of samples over the tokens of the step are the token mean, with the ratio to the policy that sampled."""
    rollouts, logprob = batch
    rollouts = dataclasses.replace(rollouts, rollout_logprob=rollouts.old_logprob)
    objective = tokenpo.method(method)
    wanted, gradient = expected(objective, rollouts.only(objective.needs), logprob, slice(0, 16))
    advantages, leaf = objective.prepare(rollouts.only(objective.needs)).advantage, logprob.clone().requires_grad_()
    samples = [sample(rollouts, leaf, advantages, row) for row in range(16)]
    total = evaluate(method, samples, int(rollouts.mask.sum()))
    total.backward()
    assert total.item() == pytest.approx(wanted, rel=1e-12)
    torch.testing.assert_close(leaf.grad, gradient, rtol=1e-12, atol=1e-15)


def test_prime_rls_token_weights_are_multiplied_in(batch, prime) -> None:
    rollouts, logprob = batch
    advantages = tokenpo.method("dapo").prepare(rollouts.only(frozenset())).advantage
    row = int(advantages.abs().amax(1).argmax())
    plain = prime_rl.loss(sample(rollouts, logprob, advantages, row), method="dapo").loss
    half = torch.full((2 + logprob.shape[1],), 0.5, dtype=torch.float64)
    weighted = prime_rl.loss(sample(rollouts, logprob, advantages, row, loss_weights=half), method="dapo").loss
    assert weighted.item() == pytest.approx(plain.item() / 2, rel=1e-12) and plain.item() != 0


def test_prime_rl_has_a_zero_for_a_sample_without_a_token(batch, prime) -> None:
    """Its dummy batches, where micro-batches do not divide among workers; every rank has to run backward."""
    rollouts, logprob = batch
    leaf = logprob.clone().requires_grad_()
    one = dataclasses.replace(rollouts, mask=torch.arange(16)[:, None] * rollouts.mask > 0)
    output = prime_rl.loss(sample(one, leaf, torch.zeros_like(logprob), 0), method="dapo")
    output.loss.backward()
    assert output.loss == 0 and (leaf.grad == 0).all() and output.metrics["clipped"].shape == (0,)


@pytest.mark.parametrize(("host", "variable"), [("skyrl", "SKYRL"), ("prime-rl", "PRIME_RL")])
def test_every_difference_of_a_hosts_own_losses_is_known_and_every_known_one_shows(host: str, variable: str) -> None:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} has no path of a clone: make test-hosts")
    assert conformance.unknown(host) == []


# --- What a refusal recommends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_engine_is_recommended_that_refuses_the_method(method: str) -> None:
    objective, takers = tokenpo.method(method), set()
    with contextlib.suppress(Unsupported):
        require_here(objective)
        takers.add("the embedded engine")
    lacks = {"TRL": trl.lacking(objective, reported=True), "verl": verl.lacking(objective)}
    takers |= {name for name, faults in lacks.items() if not any(faults)}
    told = {name for name in ("the embedded engine", "TRL", "verl") if name in remedy(objective)}
    assert told <= takers and bool(told) == bool(takers) and (len(takers) < 3 or told == takers)
