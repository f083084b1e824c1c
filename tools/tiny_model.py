"""The tiny model: a Qwen3 of half a million parameters that reads bytes, warmed up on worked solutions of dial_sum.

    python tools/tiny_model.py OUT

Without options this re-makes the weights that ship in the package (`tokenpo.train.models.directory.ASSETS`), in seven
minutes of one core: bit for bit on the same machine and torch, to the same accuracy elsewhere. With options it makes
the starting point of a harder dial:

    python tools/tiny_model.py models/dial23 --modulus 23 --leap 0.7
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tokenpo.train.models import LanguageModel, save
from tokenpo.train.tasks.generated import DialSum

OPERANDS = (2, 12)
SEED = 1000  # of the problems: another order than any run's, and never a held-out expression
SPECIAL = {"pad_token": "<|pad|>", "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
PAD, BOS, EOS = range(3)  # their ids, in the order of SPECIAL

Example = tuple[str, str]  # prompt, completion


@dataclass(frozen=True)
class WarmUp:
    """Settings of the supervised steps.

    Args:
        steps: optimiser steps, each on `batch` fresh examples.
        lr: peak step of the matrices (Muon), after a linear rise over `rise` steps and before a cosine fall to zero.
        lr_rest: the same for embeddings and norms (AdamW).
        seed: of the initial weights.
    """

    steps: int = 1500
    batch: int = 32
    lr: float = 0.02
    lr_rest: float = 3e-3
    rise: int = 50
    seed: int = 0

    def rate(self, step: int) -> float:
        """Share of the peak rate at step 0 ... steps - 1."""
        fall = 0.5 + 0.5 * math.cos(math.pi * max(0, step - self.rise) / max(1, self.steps - self.rise))
        return min(1.0, (step + 1) / self.rise) * fall


class Muon(torch.optim.Optimizer):
    """Momentum with nearly orthogonal updates (Newton-Schulz), for matrices; a quarter of AdamW's steps here.

    torch's own works in bfloat16, which is slow on a CPU and differs between processors; this one in the parameters'
    dtype.
    """

    def __init__(self, matrices: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for matrix in group["params"]:
                held = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                held.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(held, group["momentum"]))
                rows, columns = matrix.shape
                matrix.sub_(update, alpha=group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Five quintic Newton-Schulz steps: same singular vectors, singular values between about 0.7 and 1.2."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, after pad, bos and eos; decoding is exact, and no bos is added.

    Its chat template is the messages' contents, so chat data runs on it too.
    """
    symbols = [*SPECIAL.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(BPE(vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, padding_side="left", **SPECIAL
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return fast


def config(layers: int = 3, width: int = 128, head: int = 32) -> Qwen3Config:
    """The shape; by default 0.59 million parameters.

    Args:
        head: size of an attention head, of which there are width / head, two for each pair of keys and values.
    """
    return Qwen3Config(
        vocab_size=3 + 256, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
        num_attention_heads=width // head, num_key_value_heads=width // head // 2, head_dim=head,
        max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        dtype="float32",
    )  # fmt: skip


def fresh(seed: int = 0, shape: Qwen3Config | None = None) -> Qwen3ForCausalLM:
    """A model with random weights that depend on `seed` and its shape alone."""
    with torch.random.fork_rng(devices=[]):
        model = Qwen3ForCausalLM(shape or config())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
            else:
                parameter.fill_(1.0)
    return model


def warm_up(
    model: Qwen3ForCausalLM,
    examples: Callable[[int], Sequence[Example]],
    settings: WarmUp,
    watch: Callable[[int, float], None] | None = None,
) -> None:
    """Supervised steps on `examples(step)`: next-token loss on each completion and the eos after it, in place.

    Args:
        examples: step number to `settings.batch` pairs (prompt, completion).
        watch: called with (step, loss in nats per token) after every step.
    """
    encoder = tokenizer()
    learn(model, (_pack(encoder, examples(step)) for step in range(settings.steps)), settings, watch)


def learn(
    model: Qwen3ForCausalLM,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    settings: WarmUp,
    watch: Callable[[int, float], object] | None = None,
    *,
    autocast: bool = False,
) -> None:
    """A supervised step on each batch, on the model's device, in place.

    Args:
        batches: input ids and next tokens [N, T], where -1 has no loss.
        watch: called with (step, loss in nats per token) after every step.
        autocast: bf16 forward passes on a GPU.
    """
    matrices = [p for p in model.model.layers.parameters() if p.dim() > 1]
    rest = [*model.model.embed_tokens.parameters(), *(p for p in model.parameters() if p.dim() == 1)]
    optimisers = (
        (Muon(matrices, settings.lr), settings.lr),
        (torch.optim.AdamW(rest, lr=settings.lr_rest, betas=(0.9, 0.98), weight_decay=0.0), settings.lr_rest),
    )
    model.train()
    for step, batch in enumerate(batches):
        ids, target = (x.to(model.device) for x in batch)
        keep = target >= 0
        with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast and model.device.type != "cpu"):
            logits = model(input_ids=ids, use_cache=False).logits[keep]
        loss = torch.nn.functional.cross_entropy(logits.float(), target[keep])
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, peak in optimisers:
            optimiser.param_groups[0]["lr"] = peak * settings.rate(step)
            optimiser.step()
        if watch is not None:
            watch(step, loss.item())
    model.eval()


def _pack(encoder: PreTrainedTokenizerFast, examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Input ids [N,T], padded on the right (so causal attention needs no mask), and next tokens [N,T], -1 = no loss."""
    prompts = encoder([prompt for prompt, _ in examples], add_special_tokens=False)["input_ids"]
    answers = encoder([answer for _, answer in examples], add_special_tokens=False)["input_ids"]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(examples), width), PAD)
    target = torch.full((len(examples), width), -1)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        whole = torch.tensor([*prompt, *answer, EOS])
        ids[row, : len(whole) - 1] = whole[:-1]
        target[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
    return ids, target


def make(directory: Path, task: DialSum, settings: WarmUp) -> None:
    """Writes a warmed-up model as a Hugging Face directory.

    Args:
        task: gives the problems and their worked solutions; step s sees problems s·batch ... (s+1)·batch - 1.
    """
    began = time.process_time()

    def examples(step: int) -> Sequence[Example]:
        # Facts first: without leaps every result is one fact of a table, and leaps are made of facts.
        leap = task.leap * min(1.0, 2 * step / settings.steps)
        teacher = replace(task, leap=leap)
        problems = teacher.problems("train", step * settings.batch, settings.batch)
        return [(str(problem.prompt), teacher.solution(problem)) for problem in problems]

    def watch(step: int, loss: float) -> None:
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} of {settings.steps}   loss {loss:.3f}   {time.process_time() - began:.0f} s")

    model = fresh(settings.seed)
    warm_up(model, examples, settings, watch)
    save(LanguageModel(model, tokenizer(), (EOS,), PAD), directory)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Warms up the tiny model on dial_sum.")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument(
        "--operands", type=int, nargs="+", default=OPERANDS, help="a number, or the fewest and the most"
    )
    parser.add_argument("--modulus", type=int, default=10)
    parser.add_argument("--leap", type=float, default=0.6, help="probability of a leap after an operand")
    parser.add_argument("--steps", type=int, default=WarmUp.steps)
    parser.add_argument("--seed", type=int, default=WarmUp.seed, help="of the initial weights")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # one order of summation: the same bytes every time
    task = DialSum(operands=options.operands, modulus=options.modulus, leap=options.leap, seed=SEED)
    make(options.out, task, WarmUp(steps=options.steps, seed=options.seed))


if __name__ == "__main__":
    main()
