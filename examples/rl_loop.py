"""Reinforcement learning of a language model in one file: task, sampler, policy, loop.

python examples/rl_loop.py                             the package's tiny model learns arithmetic on a dial, in a minute
python examples/rl_loop.py --model DIR --lr 1e-5 --length 16 --minibatches 2      any causal chat model learns sums
python examples/rl_loop.py --method hapo               any method; one that needs more than is recorded here names it

All but the loss is PyTorch and transformers. `tokenpo.Learner` has what a method carries through a run: credit,
denominators, several updates on one batch, memories, and the check that the ratio is 1 before the first update.
Axes: N responses, T tokens of the longest response, P tokens of the longest prompt, V vocabulary.
"""

import argparse
import copy
import json
import random
import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import tokenpo

OPTIONS = {  # the defaults fit the tiny model
    "model": "tiny",  # a directory or hub id
    "method": "dapo",
    "batches": 12,
    "prompts": 32,  # of a batch
    "group": 8,  # responses to one prompt
    "length": 64,  # new tokens of a response at most
    "minibatches": 4,  # updates on a batch
    "rows": 64,  # responses of one forward and backward pass
    "lr": 3e-4,
    "seed": 0,
    "save": "",  # a directory for the trained model
}


# ---- Task: a prompt, its answer, and a reward for a response.


def dial(rng):
    """An expression in the tiny model's own language: left to right, modulo 10; a response ends with #VALUE."""
    value = rng.randint(1, 9)
    prompt = str(value)
    for _ in range(7):
        sign, digit = rng.choice("+-*"), rng.randint(1, 9)
        value = {"+": value + digit, "-": value - digit, "*": value * digit}[sign] % 10
        prompt += f"{sign}{digit}"
    return f"{prompt}=", value


def chat_sum(rng):
    """A sum of two numbers of two digits, as a chat."""
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    return [{"role": "user", "content": f"What is {a} + {b}? Give only the number."}], a + b


def reward_of(text, answer):
    """1 if the last number of the response is the answer, else 0."""
    numbers = re.findall(r"-?\d+", text)
    return float(bool(numbers) and int(numbers[-1]) == answer)


# ---- Sampler: responses to prompts, from the very distribution that the loss sees.


class Text(NamedTuple):
    """N prompts with a response each: token ids, and masks that are 1 on tokens and 0 on padding."""

    prompt: Tensor  # [N, P], padded on the left, so that all prompts end where responses begin
    prompt_mask: Tensor  # [N, P] int
    response: Tensor  # [N, T]
    mask: Tensor  # [N, T] bool, the token that ends a response included

    def rows(self, index):
        return Text(*(x[index] for x in self))


def encode(tokenizer, prompts, device):
    """Token ids of prompts [N, P] and their mask. A chat template writes the special tokens itself."""
    chat = {"add_generation_prompt": True, "return_dict": True}
    ids = [
        (tokenizer(prompt) if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt, **chat))["input_ids"]
        for prompt in prompts
    ]
    widest = max(map(len, ids))
    padded = torch.tensor([[0] * (widest - len(x)) + x for x in ids], device=device)
    return padded, torch.tensor([[0] * (widest - len(x)) + [1] * len(x) for x in ids], device=device)


@torch.no_grad()
def sample(model, tokenizer, prompts, length, *, greedy=False):
    """A response of at most `length` tokens to each prompt."""
    prompt, prompt_mask = encode(tokenizer, prompts, model.device)
    how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    whole = model.generate(input_ids=prompt, attention_mask=prompt_mask, max_new_tokens=length, **how)
    response = whole[:, prompt.shape[1] :]
    end = torch.isin(response, torch.tensor(model.generation_config.eos_token_id, device=model.device))
    return Text(prompt, prompt_mask, response, (end.cumsum(1) - end.long()) == 0)


def decode(tokenizer, text):
    """The responses as strings."""
    rows = zip(text.response, text.mask, strict=True)
    return tokenizer.batch_decode([ids[mask] for ids, mask in rows], skip_special_tokens=True)


# ---- Policy: what the model says of sampled tokens, in one forward pass.


def policy_of(model, text):
    """Log-probability and entropy of every response token, [N, T] nats."""
    attention = torch.cat([text.prompt_mask, text.mask.long()], 1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)  # models with absolute positions would count the padding
    ids, length = torch.cat([text.prompt, text.response], 1), text.response.shape[1]
    # The logits at a token predict the next one. `tokenpo.token_stats` would spare the memory of [N, T, V].
    options = {"logits_to_keep": length + 1, "use_cache": False}
    logits = model(input_ids=ids, attention_mask=attention, position_ids=positions, **options).logits
    logprob = logits[:, -length - 1 : -1].float().log_softmax(-1)
    sampled = logprob.gather(-1, text.response[..., None])[..., 0]
    return tokenpo.Policy(logprob=sampled, entropy=-(logprob.exp() * logprob).sum(-1))


@torch.no_grad()
def policy_in_pieces(model, text, rows):
    """`policy_of` without a graph, `rows` responses at a time."""
    pieces = [policy_of(model, text.rows(piece)) for piece in torch.arange(len(text.mask)).split(rows)]
    return tokenpo.Policy(*(torch.cat([getattr(x, name) for x in pieces]) for name in ("logprob", "entropy")))


# ---- Loop.


def load(where):
    """Model and tokenizer; dropout is off, as the model that is trained must be the one that sampled."""
    where = tokenpo.locate(where)
    tokenizer = AutoTokenizer.from_pretrained(where)
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32).eval()
    ends = model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id] if ends is None else ends if isinstance(ends, list) else [ends]
    # Nothing else of the checkpoint's own settings: a repetition penalty would change what is sampled.
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[0])
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def accuracy(model, tokenizer, problems, length):
    """Share of right greedy responses."""
    texts = decode(tokenizer, sample(model, tokenizer, [prompt for prompt, _ in problems], length, greedy=True))
    return sum(reward_of(text, answer) for text, (_, answer) in zip(texts, problems, strict=True)) / len(problems)


def train(options):
    """Trains a model; returns the accuracy on held-out prompts before and after."""
    torch.manual_seed(options.seed)
    rng, task = random.Random(options.seed), dial if options.model == "tiny" else chat_sum
    model, tokenizer = load(options.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    objective = tokenpo.method(options.method)
    reference = copy.deepcopy(model) if "ref_logprob" in objective.needs else None
    learner = tokenpo.Learner(objective, length=options.length, seed=options.seed)
    held_out = [task(random.Random(f"held out {i}")) for i in range(64)]
    before = accuracy(model, tokenizer, held_out, options.length)
    print(f"greedy accuracy on {len(held_out)} held-out prompts: {before:.2f}")

    for batch in range(options.batches):
        # Sample `group` responses to each prompt and reward them.
        problems = [problem for problem in (task(rng) for _ in range(options.prompts)) for _ in range(options.group)]
        text = sample(model, tokenizer, [prompt for prompt, _ in problems], options.length)
        said = decode(tokenizer, text)
        reward = torch.tensor([reward_of(x, answer) for x, (_, answer) in zip(said, problems, strict=True)])

        # Record what the policy says of its responses before it moves.
        old = policy_in_pieces(model, text, options.rows)
        ref = None if reference is None else policy_in_pieces(reference, text, options.rows).logprob
        rollouts = tokenpo.Rollouts(
            mask=text.mask,
            reward=reward.to(model.device),
            old_logprob=old.logprob,
            old_entropy=old.entropy,
            ref_logprob=ref,
            token_ids=text.response,
            group=torch.arange(len(said), device=model.device) // options.group,
        )

        # Update: the learner deals whole groups into minibatches, and the losses of their pieces add up.
        for update in learner.begin(rollouts).updates(minibatches=options.minibatches):
            if update.observes:  # the method looks at the whole update first
                update.observe(policy_in_pieces(model, text.rows(update.rows), options.rows))
            for rows in update.pieces(options.rows):
                _, loss = update.evaluate(policy_of(model, text.rows(rows)), rows)
                loss.value.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            learner.check(update, norm)  # the ratio was 1 before the first update; loss and gradient are finite
            optimizer.step()
            optimizer.zero_grad()

        entropy, example = float(old.entropy[text.mask].mean()), f"{problems[0][0]} {said[0]!r}"
        print(f"batch {batch + 1:2}: accuracy {reward.mean():.2f}, entropy {entropy:.2f} nats, such as {example}")

    after = accuracy(model, tokenizer, held_out, options.length)
    print(f"greedy accuracy on {len(held_out)} held-out prompts: {after:.2f}")
    if options.save:
        model.save_pretrained(options.save)
        tokenizer.save_pretrained(options.save)
        state = {"learner": learner.state_dict()}  # save it with the optimiser's; load_state_dict continues
        Path(options.save, "state.json").write_text(json.dumps(state))
    return before, after


def options_of(arguments=None):
    """The options, from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in OPTIONS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    train(options_of())
