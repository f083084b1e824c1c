"""One of two processes that share every sequence, in verl's way: its own function gathers what each has scored."""

import torch

import tokenpo
from tokenpo.core.ops.masked import unpacked
from tokenpo.core.trial import example
from tokenpo.core.types import Policy, Totals

RANKS = 2


def half(rank: int, folder: str) -> None:
    """Half of the packed tokens on each of two ranks; verl's engine gathers them with this function."""
    from verl.utils.ulysses import gather_outputs_and_unpad, set_ulysses_sequence_parallel_group

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    set_ulysses_sequence_parallel_group(torch.distributed.group.WORLD)
    inputs = example()
    places, whole = inputs.rollouts["mask"], inputs.policy["logprob"][inputs.rollouts["mask"]]
    behind = -len(whole) % RANKS
    mine = torch.nn.functional.pad(whole, (0, behind)).chunk(RANKS)[rank].clone().requires_grad_()
    gathered = gather_outputs_and_unpad(mine, gather_dim=0, unpad_dim=0, padding_size=behind)
    objective = tokenpo.method("gspo")
    rollouts = tokenpo.Rollouts.of(inputs.rollouts).only(objective.needs)
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), Policy(unpacked(gathered, places)))
    value = objective.loss(batch, Totals.of(rollouts)).value
    value.backward()
    torch.save({"value": value.detach(), "gradient": mine.grad}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()
