"""slime and NeMo-RL from clones of theirs, whose paths are in SLIME and NEMO_RL (`make test-hosts`).

Their packages import CUDA's, so that signatures are read from the sources; slime's reduction, which needs none of that,
is taken out and called.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import conformance
import tokenpo
from page_adapters import LENGTH, PAGE, SlimeStep, adapters, scored


def tree(variable: str, path: str) -> ast.Module:
    """The parsed file of a clone."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} has no path of a clone: make test-hosts")
    return ast.parse((Path(os.environ[variable]) / path).read_text(encoding="utf-8"))


def named(found: ast.AST, name: str) -> Any:
    """The function or class of that name."""
    (one,) = (node for node in ast.walk(found) if getattr(node, "name", None) == name)
    return one


def strings(found: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(found) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def arguments(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


LOSS = "slime/backends/megatron_utils/loss.py"


def test_slime_calls_a_custom_loss_as_the_page_says() -> None:
    function = named(tree("SLIME", LOSS), "loss_function")
    calls = [
        [ast.unparse(argument) for argument in node.args]
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and any(ast.unparse(argument) == "sum_of_sample_mean" for argument in node.args)
    ]
    sums = "args batch logits sum_of_sample_mean".split()
    assert sums in calls or ["func", *sums] in calls, calls
    assert {"rollout_mask_sums", "loss_masks", "response_lengths"} <= strings(function)


def test_slime_hands_over_the_fields_that_the_page_reads() -> None:
    handed = strings(tree("SLIME", "slime/backends/megatron_utils/model.py"))
    page = PAGE.read_text(encoding="utf-8")
    read = set(re.findall(r'batch(?:\[|\.get\()"(\w+)"', page[page.index("class Slime") :]))
    assert {"rollout_mask_sums", "advantages", "log_probs"} <= read <= handed | {"unconcat_tokens"}, read - handed


@pytest.mark.parametrize("together", [False, True])
def test_slimes_own_reduction_of_our_terms_is_our_loss(together: bool) -> None:
    """Its sum over samples, divided by `rollout_mask_sums`, for rollouts of one sample and of two."""
    source = named(tree("SLIME", "slime/backends/megatron_utils/cp_utils.py"), "get_sum_of_sample_mean")
    space: dict[str, Any] = {
        "torch": torch,
        "Callable": Callable,
        "mpu": SimpleNamespace(get_context_parallel_world_size=lambda: 1),
    }
    exec(compile(ast.unparse(source), LOSS, "exec"), space)
    step, length = SlimeStep(), LENGTH.tolist()
    advantages = [torch.full((n,), 1.0 - 2.0 * (row % 2)) for row, n in enumerate(length)]
    sums = [length[row // 2 * 2] + length[row // 2 * 2 + 1] if together else length[row] for row in range(8)]
    batch = {**step.whole, "log_probs": step.old, "advantages": advantages, "rollout_mask_sums": sums}
    value = step.loss(adapters()["Slime"](tokenpo.method("grpo"), step.args, scored), batch, list(range(8)))
    ratio = torch.cat([(now - old).exp() for now, old in zip(step.now, step.old, strict=True)])
    held = torch.minimum(ratio * torch.cat(advantages), ratio.clamp(0.8, 1.2) * torch.cat(advantages))
    reduce = space["get_sum_of_sample_mean"](length, length, step.whole["loss_masks"], torch.tensor(sums))
    torch.testing.assert_close(value, -reduce(held), rtol=1e-5, atol=1e-6)


def test_nemo_rl_calls_a_loss_as_the_page_says() -> None:
    protocol = named(tree("NEMO_RL", "nemo_rl/algorithms/loss/interfaces.py"), "LossFunction")
    (call,) = (one for one in protocol.body if getattr(one, "name", None) == "__call__")
    assert arguments(call) == ["self", "data", "global_valid_seqs", "global_valid_toks"] and call.args.kwarg
    assert {"loss_type", "input_type"} <= {ast.unparse(one.target) for one in protocol.body if hasattr(one, "target")}
    clipped = named(tree("NEMO_RL", "nemo_rl/algorithms/loss/loss_functions.py"), "ClippedPGLossFn")
    (own,) = (one for one in clipped.body if getattr(one, "name", None) == "__call__")
    assert arguments(own)[1:] == ["next_token_logprobs", "data", "global_valid_seqs", "global_valid_toks"]
    page = PAGE.read_text(encoding="utf-8")
    read = set(re.findall(r'data\["(\w+)"\]', page[page.index("class TokenPOLoss") : page.index("## slime")]))
    assert len(read) == 6 and read <= strings(own), read - strings(own)


@pytest.mark.parametrize(("host", "variable"), [("skyrl", "SKYRL"), ("prime-rl", "PRIME_RL")])
def test_every_difference_of_a_hosts_own_losses_is_known_and_every_known_one_shows(host: str, variable: str) -> None:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} has no path of a clone: make test-hosts")
    assert conformance.unknown(host) == []
