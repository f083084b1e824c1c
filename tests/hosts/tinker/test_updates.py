"""Updates on a server are those of the embedded engine: same rollouts, same numbers."""

import dataclasses

import pytest
import torch
from tinker import AdamParams, SampledSequence, SampleResponse

import tokenpo
from tinker_support import MODEL, Cloud, Service
from tokenpo.base.errors import NotFinite, TokenPOError, Unsupported
from tokenpo.core.learner import Learner
from tokenpo.hosts.tinker import Trainer, rollouts, score
from tokenpo.hosts.tinker.gradient import CROSS_ENTROPY, Loss
from tokenpo.records import Tracer
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.rollout import Experience
from tokenpo.train.run.updates import Trainer as Embedded
from tokenpo.train.run.updates import improve

# One of each kind: a sequence ratio, whole-step looks, two passes, a memory, a reference, the prompt's log-probability,
# the sampler's, rows that are dropped.
METHODS = ["gspo", "clip_cov", "lopti", "ha_dw", "adv_reweight", "arm", "dppo_kl", "reinforce_rej"]
# Adam's first steps are ±lr however small a gradient is, so that rounding would decide the sign of some. With an eps
# far above rounding and below the gradients, steps are smooth in them.
ADAM = {"lr": 1e-3, "eps": 1e-4, "grad_clip": None}


@pytest.fixture(scope="module")
def batch() -> Experience:
    """Eight problems, four responses each, by the package's own sampler."""
    config = recipe("grpo")
    engine = Local.open(Plan(config))
    return engine.collect(0)


def recipe(method: str, **options):
    return parse_config(
        {
            "seed": 3,
            "model": {"path": "tiny", "device": "cpu", "dtype": "float64"},
            "task": {"name": "dial_sum", "options": {"operands": 3}},
            "method": {"name": method, **options},
            "rollout": {"prompts": 8, "group_size": 4, "max_new_tokens": 40},
            "train": {"minibatches": 2, "micro_rows": 7, **ADAM},
        },
        "recipe.toml",
    )


class Seen:
    """The gradients before each step of an optimiser."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def __call__(self, weights) -> None:
        held = [x.grad.flatten() if x.grad is not None else torch.zeros(x.numel()) for x in weights.parameters]
        self.gradients.append(torch.cat(held).clone())


def service_trainer(method: str | tokenpo.Objective, cloud: Cloud, **options) -> Trainer:
    objective = tokenpo.method(method) if isinstance(method, str) else method
    client = Service(cloud).create_lora_training_client(MODEL).result()
    adam = AdamParams(learning_rate=ADAM["lr"], beta1=0.9, beta2=0.999, eps=ADAM["eps"])
    return Trainer(client, objective, length=40, seed=3, adam=adam, **options)


def facts(batch: Experience, method: str) -> tokenpo.Rollouts:
    """With a reference and a prompt's log-probability of made-up numbers, where they are read."""
    given, needs = batch.rollouts, tokenpo.method(method).needs
    assert given is not None
    if "ref_logprob" in needs:
        given = dataclasses.replace(given, ref_logprob=given.old_logprob * 0.9 - 0.1)
    if "prompt_logprob" in needs:
        given = dataclasses.replace(given, extra={"prompt_logprob": -0.1 - 0.01 * given.group.float()})
    return given


@pytest.mark.parametrize("method", METHODS)
def test_updates_are_the_embedded_engines(method: str, batch: Experience) -> None:
    """Loss, gradients, weights and metrics of two epochs of two minibatches, sent in chunks of five sequences."""
    config, given, prompts = recipe(method), facts(batch, method), batch.kept.prompts
    embedded = Embedded.of(config, Local.open(Plan(config)).lm, tokenpo.method(method))
    expected = Seen()
    embedded.optimizer.register_step_pre_hook(lambda *_: expected(embedded))
    for _ in range(2):
        step = embedded.learner.begin(given)
        improve(embedded, step, prompts, Tracer(0))

    seen = Seen()
    trainer = service_trainer(method, Cloud(ASSETS, seen=seen, dtype="float64"))
    for _ in range(2):
        ours = trainer.train(given, prompts, minibatches=2)

    assert len(seen.gradients) == len(expected.gradients) == 4 * len(trainer.learner.objective.split())
    first, wanted = seen.gradients[0], expected.gradients[0]
    assert (first - wanted).norm() <= 1e-6 * wanted.norm()
    for found, wanted in zip(trainer.client.weights.parameters, embedded.parameters, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    told, known = ours.statistics.summary(), step.statistics.summary()
    unknown = {"grad_norm"}  # the server keeps it to itself
    for name in known.keys() - unknown:  # log-probabilities travel in float32: 2e-7 of |lp| up to 20, twice
        assert told[name] == pytest.approx(known[name], rel=5e-6, abs=1e-6, nan_ok=True), name


def trained(batch: Experience, loss: Loss, **server: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients and weights of two updates by a loss of a server."""
    trainer = service_trainer("grpo", Cloud(ASSETS, seen=(seen := Seen()), dtype="float64", **server), loss=loss)
    trainer.train(batch.rollouts, batch.kept.prompts, minibatches=2)
    return seen.gradients, trainer.client.weights.parameters


def test_a_server_that_divides_gets_the_same_gradient_by_importance_sampling(batch: Experience) -> None:
    gradients, weights = trained(batch, CROSS_ENTROPY)
    others, moved = trained(batch, Loss("importance_sampling"), divides=True)
    for one, other in zip(gradients, others, strict=True):
        assert (one - other).norm() <= 1e-5 * one.norm()
    for one, other in zip(weights, moved, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_server_that_averages_gets_the_gradient_times_its_sequences(batch: Experience, request) -> None:
    _, weights = trained(batch, CROSS_ENTROPY)
    request.getfixturevalue("averaging")
    for one, other in zip(weights, trained(batch, Loss("cross_entropy", mean=True))[1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stop", [1.0, 1e-9])
def test_a_held_kl_is_the_embedded_engines(stop: float, batch: Experience) -> None:
    config, prompts = recipe("grpo"), batch.kept.prompts
    held = config.train.model_copy(update={"kl_target": 1e-10, "kl_stop": stop})
    config = config.model_copy(update={"train": held})
    embedded = Embedded.of(config, Local.open(Plan(config)).lm, tokenpo.method("grpo"))
    trainer = service_trainer("grpo", cloud := Cloud(ASSETS, dtype="float64"), kl=held.kl_hold())
    for number in range(2):
        improve(embedded, embedded.learner.begin(batch.rollouts), prompts, Tracer(0))
        trainer.train(batch.rollouts, prompts, minibatches=2)
        told, known = trainer.learner.metrics(), embedded.learner.metrics()
        for name in ("kl", "kl_rate", "kl_left_out", "lr"):
            assert told[name] == pytest.approx(known[name], rel=1e-5, nan_ok=True), (number, name)
    assert known["kl_rate"] < 0.125 and known["kl_left_out"] == (2 if stop < 1 else 0)
    assert cloud.requests.count("step") == (1 if stop < 1 else 4)
    for found, wanted in zip(trainer.client.weights.parameters, embedded.parameters, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_a_sampling_client_scores_the_responses(batch: Experience) -> None:
    """A teacher: weights that were saved on the server, larger by a tenth."""
    path, prompts, given = "tinker://other/sampler_weights/final", batch.kept.prompts, batch.rollouts
    lm = (cloud := Cloud(ASSETS)).model()
    cloud.saved[path] = {name: 1.1 * x for name, x in lm.model.state_dict().items()}
    lm.model.load_state_dict(cloud.saved[path])
    found = score(Service(cloud).create_sampling_client(path).result(), given, prompts)
    for row, mask in enumerate(given.mask):
        prompt, ids = prompts[int(given.group[row])], given.token_ids[row, mask]
        logits = lm.model(torch.tensor([[*prompt, *ids.tolist()]])).logits[0, len(prompt) - 1 : -1]
        wanted = logits.log_softmax(-1)[torch.arange(len(ids)), ids]
        torch.testing.assert_close(found[row, mask], wanted, rtol=1e-4, atol=1e-5)
    assert not found[~given.mask].any()


def test_a_batch_without_advantage_is_a_step_of_no_gradient(batch: Experience) -> None:
    """As in the embedded engine, where the optimiser's step is made with zeros; the server sees one row."""
    seen = Seen()
    equal = dataclasses.replace(batch.rollouts, reward=torch.ones_like(batch.rollouts.reward))
    trainer = service_trainer("grpo", Cloud(ASSETS, seen=seen))
    step = trainer.train(equal, batch.kept.prompts)
    assert len(seen.gradients) == 1 and not seen.gradients[0].any() and trainer.learner.updates == 1
    assert step.statistics.loss == 0


def test_what_others_wrote_into_a_response_is_context_and_not_learnt_from(batch: Experience) -> None:
    """The policy's tokens around a tool's: scored where they stand, as if all were the policy's, but the tool's not."""
    trainer = service_trainer("grpo", Cloud(ASSETS))
    whole = trainer.score(batch.rollouts, batch.kept.prompts)
    mask = batch.rollouts.mask.clone()
    mask[:, 2:4] = False
    holes = dataclasses.replace(batch.rollouts, mask=mask)
    torch.testing.assert_close(trainer.score(holes, batch.kept.prompts)[mask], whole[mask], rtol=0, atol=1e-6)


def test_the_ratio_is_checked_before_anything_moves(batch: Experience) -> None:
    trainer = service_trainer("grpo", cloud := Cloud(ASSETS))
    off = dataclasses.replace(batch.rollouts, old_logprob=batch.rollouts.old_logprob - 0.5)
    with pytest.raises(
        Unsupported, match=r"the mean \|log-prob of the trainer - old log-prob\| is 0.5 nats.*Trainer.score"
    ):
        trainer.train(off, batch.kept.prompts)
    assert "step" not in cloud.requests
    trainer.train(batch.rollouts, batch.kept.prompts)  # the client still takes requests
    assert cloud.requests.count("step") == 1


def test_a_comparison_with_the_sampler_that_cannot_act_is_said(batch: Experience) -> None:
    same = dataclasses.replace(batch.rollouts, rollout_logprob=batch.rollouts.old_logprob)
    with pytest.warns(UserWarning, match="Aligned cannot act: take old_logprob from Trainer.score"):
        service_trainer("vaco", Cloud(ASSETS)).train(same, batch.kept.prompts)


@dataclasses.dataclass(frozen=True)
class Broken(tokenpo.parts.Penalty):
    """Infinite gradient, finite value: √x at 0."""

    def __call__(self, batch, trust):
        return (batch.policy.logprob - batch.policy.logprob.detach()).abs().sqrt()


def test_a_gradient_that_is_not_finite_never_reaches_the_server(batch: Experience) -> None:
    objective = dataclasses.replace(tokenpo.method("grpo"), penalties=(Broken(),))
    trainer = service_trainer(objective, cloud := Cloud(ASSETS))
    with pytest.raises(NotFinite, match=r"update 1 of 1: loss or gradient is not finite: .*Broken"):
        trainer.train(batch.rollouts, batch.kept.prompts)
    step = trainer.train(batch.rollouts, batch.kept.prompts, skip=True)
    assert "step" not in cloud.requests and len(step.statistics.skipped) == 1 and trainer.learner.updates == 1


def response(*rows: tuple[list[int], list[float] | None]) -> SampleResponse:
    return SampleResponse(
        [SampledSequence("stop", str(i), _tokens_list=t, _logprobs_list=lp) for i, (t, lp) in enumerate(rows)]
    )


def test_responses_become_facts() -> None:
    """Two prompts, two responses each: padded to the longest, sampler's log-probabilities as the old ones."""
    told = [response(([4, 2], [-0.5, -1.0]), ([2], [-2.0])), response(([5, 6, 2], [-0.1, -0.2, -0.3]), ([2], [-3.0]))]
    facts = rollouts(told, torch.tensor([1.0, 0.0, 0.0, 1.0]), ends={2})
    assert facts.group.tolist() == [0, 0, 1, 1] and facts.mask.sum(1).tolist() == [2, 1, 3, 1]
    assert facts.token_ids.tolist() == [[4, 2, 0], [2, 0, 0], [5, 6, 2], [2, 0, 0]]
    torch.testing.assert_close(facts.old_logprob[2], torch.tensor([-0.1, -0.2, -0.3]))
    assert torch.equal(facts.old_logprob, facts.rollout_logprob) and bool((facts.temperature[facts.mask] == 1).all())
    assert facts.version is None and rollouts(told, facts.reward, version=7).version.max() == 7
    step = Learner(tokenpo.method("grpo"), length=3).begin(facts)
    assert step.credit.advantage[0, 0] == -step.credit.advantage[1, 0] > 0


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ([response(([2], [-1.0])), response(([2], [-1.0]), ([2], [-1.0]))], r"groups of \[1, 2\] responses"),
        ([response(([2], None))], "without a log-probability for each token"),
        ([response(([2], [float("nan")]))], "a log-probability that is not finite in response 0"),
    ],
)
def test_responses_that_cannot_be_learnt_from_are_refused(told: list[SampleResponse], sentence: str) -> None:
    count = sum(len(one.sequences) for one in told)
    with pytest.raises(TokenPOError, match=sentence):
        rollouts(told, torch.zeros(count), ends={2})
