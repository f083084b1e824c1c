"""What a recipe of a paper asks of its GPUs, on paper: memory on each, and seconds of a step, from formulas.

    python benchmarks/estimate_recipe.py papers/dapo_qwen2.5_32b [--set verl.trainer.nnodes=8] [--gpu H200] [--mean 0.5]

Nothing is measured here, and no run has shown how far it is off. Bytes and operations follow from the model's shape and
the recipe; the assumptions are the constants below. What has no one value is an interval. Axes: N responses, T the
longest prompt and response, V vocabulary, H hidden size, G GPUs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from estimate import FLOAT, GIGA, GPUS, HALF, Gpu
from tokenpo.recipe.config import Config, load_config
from tokenpo.recipe.files import find_recipe
from tokenpo.recipe.objective import build_objective

MEMORY = {"H100": 80e9, "H200": 141e9}
UTILISATION = (0.2, 0.5)  # of the peak, in passes of the whole model
MEAN = 0.25  # of the longest response: what a response has on average
STATE = 4 * FLOAT  # of a parameter: itself, its gradient, two moments of Adam
# Of a logit: in half with its gradient in place; or as autograd keeps it (estimate.py).
LOGIT = (2 * HALF, 2 * HALF + 3 * FLOAT)
UPDATE = 4  # forward passes that an update is worth: forward, again for the checkpoints, twice backward


@dataclass(frozen=True)
class Shape:
    """A decoder with gated feed-forward layers and a head of its own, as the model's config.json has it.

    Args:
        hidden: H.
        attention: heads times their size.
        cached: key-value heads times their size.
        inner: width of the feed-forward layer.
        biased: queries, keys and values have biases (Qwen2.5); else queries and keys are normed (Qwen3).
        head: size of a head.
    """

    layers: int
    hidden: int
    attention: int
    cached: int
    inner: int
    vocabulary: int
    biased: bool
    head: int = 128

    @property
    def parameters(self) -> int:
        narrow = self.attention + 2 * self.cached if self.biased else 2 * self.head
        layer = self.hidden * (2 * self.attention + 2 * self.cached + 3 * self.inner + 2) + narrow
        return self.layers * layer + self.hidden * (2 * self.vocabulary + 1)


_7B = Shape(28, 3584, 3584, 512, 18944, 152064, biased=True)
SHAPES = {
    "Qwen/Qwen2.5-7B": _7B,
    "Qwen/Qwen2.5-Math-7B": _7B,
    "starriver030515/Qwen2.5-Math-7B-32k": _7B,
    "Qwen/Qwen2.5-32B": Shape(64, 5120, 5120, 1024, 27648, 152064, biased=True),
    "Qwen/Qwen3-8B-Base": Shape(36, 4096, 4096, 1024, 12288, 151936, biased=False),
    "Qwen/Qwen3-14B": Shape(40, 5120, 5120, 1024, 17408, 151936, biased=False),
}


@dataclass(frozen=True)
class Load:
    """What a recipe lays on verl.

    Args:
        rows: responses of a step, N.
        prompt: tokens of the longest prompt.
        response: tokens of the longest response.
        micro_tokens: of a micro-batch, on a GPU.
        scorings: forward passes for log-probabilities: the old policy's, and the reference's where there is one.
        gpus: G.
        shards: GPUs over which the state is divided.
        parallel: GPUs of one sampler.
        sampler: share of a GPU's memory that sampling takes.
    """

    rows: int
    prompt: int
    response: int
    micro_tokens: int
    scorings: int
    gpus: int
    shards: int
    parallel: int
    sampler: float

    @staticmethod
    def of(config: Config) -> Load:
        verl, rollout = config.verl, config.rollout
        gpus = verl["trainer"]["nnodes"] * verl["trainer"]["n_gpus_per_node"]
        model = verl["actor_rollout_ref"]
        shards = _at(model, "actor", "fsdp_config", "fsdp_size", default=-1)
        return Load(
            rows=rollout.prompts * rollout.group_size,
            prompt=verl["data"]["max_prompt_length"],
            response=rollout.max_new_tokens,
            micro_tokens=config.train.micro_tokens,
            scorings=1 + ("ref_logprob" in build_objective(config).needs),
            gpus=gpus,
            shards=gpus if shards == -1 else shards,
            parallel=model["rollout"]["tensor_model_parallel_size"],
            sampler=model["rollout"]["gpu_memory_utilization"],
        )


@dataclass(frozen=True)
class Needs:
    """What comes out: GB of one GPU, seconds of one step."""

    weights: float  # of the sampler
    held: int  # longest responses that one sampler's cache holds at once
    state: float  # weights in float32, gradients, Adam's moments
    passes: float  # checkpoints, one layer recomputed, embedding and head
    logits: tuple[float, float]
    update: tuple[float, float]
    sampling: float  # no less than this

    @property
    def updating(self) -> tuple[float, float]:
        low, high = (self.state + self.passes + logits for logits in self.logits)
        return low, high


def needs(shape: Shape, load: Load, gpu: Gpu, memory: float, mean: float = MEAN) -> Needs:
    """The memory of a GPU of `memory` bytes, and the time; responses are `mean` of the longest on average."""
    weights = HALF * shape.parameters / load.parallel
    cached = 2 * HALF * shape.layers * shape.cached / load.parallel  # of a token, on each GPU of a sampler
    micro = load.micro_tokens
    # Of the layer that is recomputed: its stream and norms, queries, attention's result, gates, keys and values.
    layer = HALF * micro * (4 * shape.hidden + 2 * shape.attention + 2 * shape.cached + 3 * shape.inner)
    passes = HALF * (shape.layers * micro * shape.hidden + 2 * shape.vocabulary * shape.hidden) + layer
    length = mean * load.response
    forward = 2 * (shape.parameters - shape.vocabulary * shape.hidden) + 2 * length * shape.attention * shape.layers
    operations = (load.scorings + UPDATE) * forward * load.rows * length / load.gpus
    slow, fast = UTILISATION
    # The weights once for each token of the longest response, the cache of a response for each token after it.
    read = load.response * weights + load.rows * length**2 / 2 * cached * load.parallel / load.gpus
    return Needs(
        weights=weights / GIGA,
        held=int((load.sampler * memory - weights) / (cached * (load.prompt + load.response))),
        state=STATE * shape.parameters / load.shards / GIGA,
        passes=passes / GIGA,
        logits=(LOGIT[0] * micro * shape.vocabulary / GIGA, LOGIT[1] * micro * shape.vocabulary / GIGA),
        update=(operations / gpu.peak_flops / fast, operations / gpu.peak_flops / slow),
        sampling=read / gpu.peak_bytes,
    )


def _at(table: Any, *path: str, default: Any) -> Any:
    for name in path:
        table = table.get(name, {})
    return table if table != {} else default


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", metavar="RECIPE")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--gpu", choices=GPUS, default="H100")
    parser.add_argument("--mean", type=float, default=MEAN, help="of the longest response")
    options = parser.parse_args(arguments)
    config = load_config(find_recipe(options.recipe), overrides=options.set)
    load, shape = Load.of(config), SHAPES[str(config.model.path)]
    found = needs(shape, load, GPUS[options.gpu], MEMORY[options.gpu], options.mean)
    low, high = found.updating
    print(
        f"{options.recipe} on {load.gpus} {options.gpu}: {shape.parameters / GIGA:.2f} B parameters, {load.rows} "
        f"responses of {load.response} tokens at most, {options.mean * load.response:.0f} on average\n"
        f"  sampling   {found.weights:.1f} GB of weights on a GPU; a sampler holds {found.held} of the longest "
        f"responses; {found.sampling:.0f} s at least\n"
        f"  updating   {low:.0f} to {high:.0f} GB on a GPU: state {found.state:.1f}, passes {found.passes:.1f}, logits "
        f"{found.logits[0]:.1f} to {found.logits[1]:.1f}\n"
        f"  a step     {found.update[0]:.0f} to {found.update[1]:.0f} s of scoring and update"
    )


if __name__ == "__main__":
    main()
