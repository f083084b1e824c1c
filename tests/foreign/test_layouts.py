"""The packed layouts of hosts as [N, T]: verl without padding, TRL's padding-free batches, a sequence cut over ranks.

A ratio over a response has to see all of it. verl gathers log-probabilities from the ranks of a sequence before the
loss is called; TRL refuses to cut sequences in GRPO.
"""

from pathlib import Path

import torch
from torch.multiprocessing.spawn import spawn

import tokenpo
from foreign_support import need
from foreign_support.cut_sequence import RANKS, half
from tokenpo.core.ops.masked import inside, unpacked
from tokenpo.core.trial import evaluate, example

LENGTHS = torch.tensor([3, 1, 4, 2])


def test_verls_rows_without_padding() -> None:
    """Its model's output [S] over prompts and responses becomes [N, T] in verl's way and in ours."""
    need("verl", "verl is not installed: its layout was not compared with ours")
    from tensordict import TensorDict
    from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding, response_from_nested

    prompt, width = torch.tensor([2, 3, 1, 2]), 4
    asked, answered = inside(prompt).flip(1), inside(LENGTHS)
    whole = torch.cat([asked, answered], 1)
    ids = torch.arange(whole.numel()).reshape(whole.shape)
    data = TensorDict({
        "input_ids": ids, "attention_mask": whole.long(), "response_mask": answered.long(), "position_ids": ids,
        "prompts": ids[:, :-width], "responses": ids[:, -width:],
    }, batch_size=4)  # fmt: skip
    flat = left_right_2_no_padding(data.clone())
    assert torch.equal(flat["input_ids"].values(), ids[whole])
    # The model's output at a token is of the one after it.
    scored = torch.nested.nested_tensor_from_jagged(ids[whole].double(), flat["input_ids"].offsets())
    ours = unpacked(ids[whole].double(), whole)[:, -width - 1 : -1] * answered
    assert torch.equal(no_padding_2_padding(scored, data), ours)
    rows = response_from_nested(
        scored,
        torch.nested.as_nested_tensor(
            [row[keep] for row, keep in zip(ids[:, -width:], answered, strict=True)], layout=torch.jagged
        ),
    )
    assert torch.equal(unpacked(rows.values(), inside(rows.offsets().diff())), ours)


def test_verl_gathers_a_sequence_that_ranks_share_before_a_ratio_over_it(tmp_path: Path) -> None:
    """Value and gradient of gspo from two ranks that hold half of the packed tokens each are those of the whole; verl
    averages gradients over ranks, so that each gathers with a factor of their number."""
    need("verl", "verl is not installed: its gathering of sequences was not called")
    spawn(half, (str(tmp_path),), nprocs=RANKS)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    inputs, objective = example(), tokenpo.method("gspo")
    rollouts, policy = (x.only(objective.needs) for x in inputs.values())
    wanted = evaluate(objective, rollouts, policy)
    for one in found:
        torch.testing.assert_close(one["value"], wanted.loss.value, rtol=1e-12, atol=1e-14)
    places = inputs.rollouts["mask"]
    whole = torch.cat([one["gradient"] for one in found])[: int(places.sum())] / RANKS
    torch.testing.assert_close(whole, wanted.gradient[places], rtol=1e-11, atol=1e-14)
