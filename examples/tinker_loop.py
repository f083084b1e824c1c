"""A loop of one's own on a Tinker server: GSM8K's columns, a reward, an evaluation, a state to go on from.

export TINKER_API_KEY=...
python examples/tinker_loop.py --model Qwen/Qwen3-8B --data train.jsonl --test test.jsonl --state gsm8k.json
python examples/tinker_loop.py --small        the tests' server in this process: ten seconds, no key, no download

Data are JSON Lines with `question` and `answer`, which ends with `#### NUMBER`. Run again with the same --state, it
goes on from there. tinker_loop.txt has the output of --small. It has not run against a real server. Clients
before tinker 0.38 return what they make and no future: leave out `.result()` behind `create_...` and `get_...` there.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import torch
from tinker import AdamParams, ModelInput, SamplingParams, ServiceClient

import tokenpo
from tokenpo.hosts.tinker import Trainer, probe, rollouts

ASK = "\nReason step by step and put the final number behind ####."


def number(text):
    """The number behind the last #, or None."""
    found = re.findall(r"#\s*(-?[\d,.]*\d)", text)
    return float(found[-1].replace(",", "")) if found else None


def asked(sampler, tokenizer, rows, options, seed=0, greedy=False):
    """Responses to each row, the token ids of the prompts, and the rewards [N]: 1 where the number is the row's."""
    messages = [[{"role": "user", "content": row["question"] + options.ask}] for row in rows]
    texts = [tokenizer.apply_chat_template(m, tokenize=False, add_generation_prompt=True) for m in messages]
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    each, temperature = (1, 0.0) if greedy else (options.group, 1.0)  # training: temperature 1, no top_k, no top_p
    how = {"max_tokens": options.length, "temperature": temperature, "stop": [tokenizer.eos_token_id]}
    futures = []
    for place, prompt in enumerate(prompts):
        params = SamplingParams(**how, seed=seed + place)
        futures.append(sampler.sample(ModelInput.from_ints(prompt), each, params))
    responses = [future.result() for future in futures]
    said = [
        (tokenizer.decode(one.tokens, skip_special_tokens=True), row["answer"])
        for response, row in zip(responses, rows, strict=True)
        for one in response.sequences
    ]
    return responses, prompts, torch.tensor([float(number(text) == number(answer)) for text, answer in said])


def train(service, options):
    texts = [Path(path).read_text(encoding="utf-8") for path in (options.data, options.test)]
    rows, test = ([json.loads(line) for line in text.splitlines()] for text in texts)
    state = json.loads(options.state.read_text()) if options.state.exists() else {"steps": 0}

    def fresh():
        return service.create_lora_training_client(options.model, rank=32).result()

    loss = probe(fresh)  # the one of the server's losses that takes a gradient to the weights
    if state["steps"]:
        client = service.create_training_client_from_state_with_optimizer(state["weights"]).result()
    else:
        client = fresh()
    tokenizer, adam = client.get_tokenizer(), AdamParams(learning_rate=options.lr)
    trainer = Trainer(client, tokenpo.method(options.method), length=options.length, adam=adam, loss=loss)
    if state["steps"]:
        trainer.learner.load_state_dict(state["learner"])
    for step in range(state["steps"], options.steps + 1):
        sampler = client.save_weights_and_get_sampling_client().result()
        if step % options.every == 0:
            right = asked(sampler, tokenizer, test, options, greedy=True)[2].mean()
            weights = client.save_state(f"after-{step}", overwrite=True).result().path  # weights and optimiser
            kept = {"steps": step, "weights": weights, "learner": trainer.learner.state_dict()}
            options.state.write_text(json.dumps(kept))
            print(f"after step {step}: {right:.2f} of the test right; kept, with {kept['learner']['updates']} updates")
        if step == options.steps:
            break
        taken = [rows[(step * options.prompts + k) % len(rows)] for k in range(options.prompts)]
        responses, prompts, reward = asked(sampler, tokenizer, taken, options, seed=step * options.prompts)
        trainer.train(rollouts(responses, reward), prompts, minibatches=2)
        mixed = sum(0 < group.mean() < 1 for group in reward.split(options.group))
        print(f"step {step + 1}: mean reward {reward.mean():.2f}, {mixed} of {len(taken)} groups differ within")


def small(options, folder):
    """The server of the tests, sums that its tiny model can read, and numbers that go with them."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from tinker_support import MODEL, Cloud, Service
    from tokenpo import locate
    from tokenpo.train.tasks import make_task

    for split, count in (("train", 32), ("test", 16)):
        problems = make_task("dial_sum", {"operands": [3, 6]}, seed=0).problems(split, 0, count)
        lines = [json.dumps({"question": p.prompt, "answer": f"#### {p.reference}"}) + "\n" for p in problems]
        (folder / f"{split}.jsonl").write_text("".join(lines))
    options.model, options.ask, options.data, options.test = MODEL, "", folder / "train.jsonl", folder / "test.jsonl"
    options.state, options.length, options.prompts, options.lr, options.every = folder / "state.json", 40, 8, 2e-4, 2
    service = Service(Cloud(locate("tiny")))
    for options.steps in (2, 4):  # the second time it goes on from the state
        train(service, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--state", type=Path, default=Path("tinker-state.json"))
    parser.add_argument("--method", default="dapo")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args(namespace=argparse.Namespace(group=8, prompts=16, length=512, lr=4e-5, every=10, ask=ASK))
    if given.small:
        with tempfile.TemporaryDirectory() as place:
            small(given, Path(place))
    else:
        train(ServiceClient(), given)
