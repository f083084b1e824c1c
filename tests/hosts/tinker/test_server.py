"""Against the server at TINKER_URL, whatever it is: `make test-tinker TINKER_URL=http://... TINKER_MODEL=NAME`.

A reward that any model learns, for responses that end early, so that it rises only where `stop` is kept.
"""

import os

import pytest
import tinker
import torch

from tokenpo.hosts.tinker import Trainer, probe, rollouts
from tokenpo.methods import method

URL, MODEL = os.environ.get("TINKER_URL", ""), os.environ.get("TINKER_MODEL", "")
pytestmark = pytest.mark.skipif(not URL, reason="no server: give TINKER_URL (make test-tinker TINKER_URL=http://...)")
LENGTH, EACH, BATCHES = 48, 16, 6


def value(answer):
    """Clients before 0.38 return some answers and no future."""
    return answer.result() if hasattr(answer, "result") else answer


def sampled(client, tokenizer, seed: int):
    prompts = [tokenizer.encode(f"{i} + {i + seed} = ") for i in range(4)]
    params = tinker.SamplingParams(max_tokens=LENGTH, seed=seed, stop=[tokenizer.eos_token_id])
    sampler = value(client.save_weights_and_get_sampling_client())
    asked = [sampler.sample(tinker.ModelInput.from_ints(prompt), EACH, params) for prompt in prompts]
    responses = [one.result(600) for one in asked]
    rows = [row for response in responses for row in response.sequences]
    return responses, prompts, torch.tensor([1 - len(row.tokens) / LENGTH for row in rows])


def batches(client, tokenizer, trainer: Trainer, numbers: range) -> list[float]:
    means = []
    for number in numbers:
        responses, prompts, reward = sampled(client, tokenizer, number)
        facts = rollouts(responses, reward, ends={tokenizer.eos_token_id})
        trainer.train(facts, prompts)
        means.append(float(reward.mean()))
    return means


def test_a_reward_rises_and_a_resumed_run_goes_on() -> None:
    service = tinker.ServiceClient(base_url=URL)
    model = MODEL or service.get_server_capabilities().supported_models[0].model_name

    def create():
        return value(service.create_lora_training_client(model, rank=16))

    loss, client = probe(create), create()
    tokenizer, adam = client.get_tokenizer(), tinker.AdamParams(learning_rate=2e-3)
    trainer = Trainer(client, method("grpo"), length=LENGTH, loss=loss, adam=adam)
    before = batches(client, tokenizer, trainer, range(BATCHES))
    saved = client.save_state("lane", overwrite=True).result(600).path
    resumed = value(service.create_training_client_from_state_with_optimizer(saved))
    again = Trainer(resumed, method("grpo"), length=LENGTH, loss=loss, adam=adam)
    again.learner.load_state_dict(trainer.learner.state_dict())
    after = batches(resumed, tokenizer, again, range(BATCHES, BATCHES + 2))
    print(f"{model} by {loss}: {[round(x, 3) for x in before]}, resumed {[round(x, 3) for x in after]}")
    assert sum(before[-2:]) > sum(before[:2]) and sum(after) > sum(before[:2])
