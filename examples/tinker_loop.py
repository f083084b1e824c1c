"""A loop of one's own on a Tinker server: sampling, a task's verifier, updates, held-out accuracy, saved weights.

export TINKER_API_KEY=...                    a server of your own may accept any text
python examples/tinker_loop.py --model Qwen/Qwen3-8B
python examples/tinker_loop.py --base-url http://localhost:8123 --model DIR --lora-rank 32 --lr 2e-3
python examples/tinker_loop.py --model Qwen/Qwen3-8B --length 512 --task files \
    --options '{"path": "train.jsonl", "test_path": "test.jsonl"}'

Run again with the same --state, it goes on from there.
"""

import argparse
import json
from pathlib import Path

import torch
from tinker import AdamParams, ModelInput, SamplingParams, ServiceClient

import tokenpo
from tokenpo.hosts.tinker import Trainer, probe, rollouts
from tokenpo.train.tasks import make_task


def value(answer):
    """What the server answered; clients before 0.38 return some answers and no future."""
    return answer.result() if hasattr(answer, "result") else answer


def prompt_ids(tokenizer, prompt):
    """Token ids of a text, or of chat messages up to the response."""
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


def sampled(sampler, tokenizer, task, problems, options, each, temperature, seed):
    """(responses of the server, token ids of the prompts, score of each response by the task's verifier)."""
    prompts = [prompt_ids(tokenizer, problem.prompt) for problem in problems]
    futures = []
    for place, prompt in enumerate(prompts):
        # For training: temperature 1, no top_k, no top_p. Some servers stop only at the tokens in `stop`.
        params = SamplingParams(
            max_tokens=options.length, temperature=temperature, seed=seed + place, stop=[tokenizer.eos_token_id]
        )
        futures.append(sampler.sample(ModelInput.from_ints(prompt), each, params))
    responses = [future.result() for future in futures]
    ids = [list(one.tokens) for response in responses for one in response.sequences]
    texts = [tokenizer.decode(one, skip_special_tokens=True) for one in ids]
    asked = [problem for problem in problems for _ in range(each)]
    return responses, prompts, task.score(asked, texts, ids)


def train(service, options):
    task = make_task(options.task, options.options, options.seed)
    held_out = task.problems("test", 0, options.problems)
    state = json.loads(options.state.read_text()) if options.state.exists() else {"step": 0}

    def fresh():
        return value(service.create_lora_training_client(options.model, rank=options.lora_rank))

    loss = probe(fresh)  # the server's loss that takes a gradient to the weights
    if state["step"]:
        client = value(service.create_training_client_from_state_with_optimizer(state["weights"]))
    else:
        client = fresh()
    tokenizer, adam = client.get_tokenizer(), AdamParams(learning_rate=options.lr)
    hold = None if options.kl is None else tokenpo.KLHold(options.kl)
    trainer = Trainer(
        client, tokenpo.method(options.method), length=options.length, seed=options.seed, adam=adam, kl=hold, loss=loss
    )
    if state["step"]:
        trainer.learner.load_state_dict(state["learner"])

    for step in range(state["step"], options.steps + 1):
        sampler = value(client.save_weights_and_get_sampling_client())
        if step % options.every == 0 or step == options.steps:
            *_, scores = sampled(sampler, tokenizer, task, held_out, options, 1, 0.0, 0)
            right = sum(score.correct for score in scores) / len(scores)
            weights = client.save_state(f"after-{step}", overwrite=True).result().path  # with the optimiser's state
            state = {"step": step, "weights": weights, "learner": trainer.learner.state_dict()}
            options.state.write_text(json.dumps(state))
            print(f"after step {step}: {right:.2f} of {len(held_out)} held-out problems right")
        if step == options.steps:
            break
        problems, seed = task.problems("train", step * options.prompts, options.prompts), step * options.prompts
        responses, prompts, scores = sampled(sampler, tokenizer, task, problems, options, options.group, 1.0, seed)
        reward = torch.tensor([score.reward for score in scores])
        trainer.train(rollouts(responses, reward), prompts, minibatches=options.minibatches)
        metrics = trainer.learner.metrics()
        print(f"step {step + 1}: mean reward {reward.mean():.2f}, KL {metrics['kl']:.2g} nats a token")

    print("weights for a sampling client:", client.save_weights_for_sampler("final").result().path)
    task.close()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="the server; default: TINKER_BASE_URL, else Thinking Machines' service")
    parser.add_argument("--model", required=True)
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--method", default="dapo")
    parser.add_argument("--task", default="sums")
    parser.add_argument("--options", type=json.loads, default={}, help="of the task, as JSON")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--minibatches", type=int, default=2)
    parser.add_argument("--length", type=int, default=16, help="longest response, tokens")
    parser.add_argument("--lr", type=float, default=4e-5)
    parser.add_argument("--kl", type=float, help="hold the KL of a batch at these nats a token, by the learning rate")
    parser.add_argument("--problems", type=int, default=100, help="held-out problems")
    parser.add_argument("--every", type=int, default=4, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("tinker-state.json"))
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    train(ServiceClient(base_url=options.base_url), options)
