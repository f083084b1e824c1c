"""Every function of the package that behaves differently on a GPU, with the test that covers it without one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tokenpo
from tokenpo.cli import compare
from tokenpo.core.statistics import Statistics

PACKAGE, ROOT = Path(tokenpo.__file__).parent, Path(__file__).parents[2]
CASES = "device/cases.py::"
HEAD = CASES + "test_the_objective_with_the_head"
CARD_ONLY = ""
# Function: (what is different on a GPU, the test that takes that branch or a stand-in's).
BRANCHES = {
    "cli/compare.py _jobs": ("one run at a time", "device/test_branches.py::test_a_comparison_shares_no_card"),
    "core/head/fused.py Work.run": ("autocast of the device is off", CASES + "test_what_is_checked_on_a_card"),
    "core/head/fused.py Work.run_lean": ("autocast of the device is off", HEAD),
    "core/head/projection.py _add_product": (
        "halves are multiplied into a float32 sum",
        "core/head/test_token_stats.py::test_halves_are_multiplied_into_the_wider_sum_where_torch_can",
    ),
    "core/head/projection.py _adds_wide": (
        "whether torch can do so is tried",
        "core/head/test_token_stats.py::test_halves_are_multiplied_into_the_wider_sum_where_torch_can",
    ),
    "core/head/projection.py chunk_rows": (
        "a chunk is a share of the card's memory",
        "core/head/test_token_stats.py::test_a_chunk_is_sixteen_megabytes_and_at_least_512_rows",
    ),
    "core/head/projection.py tile_rows": ("larger tiles", HEAD),
    "core/head/softmax.py block_rows": ("larger blocks, where torch's passes run", HEAD),
    "core/head/softmax_backend.py sums_for": (
        "Triton's kernel; here only what is left to torch",
        "core/head/test_softmax.py::test_a_processor_and_a_tensor_without_memory_have_torchs_passes",
    ),
    "core/head/softmax_backend.py _kernel": (
        "the kernel is compared with torch first",
        "core/head/interpreted_softmax.py::test_passes_the_comparison_before_its_first_use",
    ),
    "core/head/softmax_triton.py sums": (
        "launched on the tensors' device",
        "core/head/interpreted_softmax.py::test_numbers_that_a_card_is_asked_for",
    ),
    "core/head/tiles.py Tiled.of": ("larger tiles of the vocabulary", HEAD),
    "core/head/projection.py same_dtype": (
        "autocast's dtype of the device",
        "core/head/test_token_stats.py::test_autocast_uses_its_dtype_and_gives_gradients_in_the_parameters_dtype",
    ),
    "core/ops/known_gradient.py _Known.backward": ("an incoming 1 is multiplied, not looked at", HEAD),
    "core/statistics.py Statistics._add": (
        "float32 on Apple's, which lacks float64",
        "device/test_branches.py::test_statistics_without_float64",
    ),
    "engines/embedded/facts.py _scores": (
        "autocast of the device is off",
        "engines/embedded/test_facts.py::test_products_keep_their_precision_under_autocast",
    ),
    "engines/embedded/updates.py ratio_check": (
        "a wider tolerance under autocast",
        CASES + "test_a_run_with_autocast_computes_in_halves",
    ),
    "engines/trl/forward.py Forward.of": (
        "the head is fused where asked for",
        "engines/trl/test_forward.py::test_the_head_is_used_where_it_is_plain_and_whole",
    ),
    "engines/trl/forward.py Forward._by_logits": ("TRL's autocast", "foreign/test_trl_stand_in.py::"),
    "engines/trl/forward.py head_work": ("TRL's autocast", "foreign/test_trl_stand_in.py::"),
    "engines/trl/teacher.py Teacher.head": ("TRL's autocast", "engines/trl/test_teacher.py::"),
    "engines/trl/recipe.py require": ("TRL takes no card by number", "refusal_cases/trl.py::"),
    "engines/vllm/runners.py V1Rows.apply": ("copied while the device works", "engines/vllm/test_processor.py::"),
    "engines/vllm/runners.py V2Slots.apply_staged_writes": (
        "copied while the device works",
        "engines/vllm/test_processor.py::",
    ),
    "models/device.py resolve_device": ("auto is a GPU", "models/test_model.py::test_unknown_dtype_and_device"),
    "models/device.py precision": (
        "bf16 autocast on request",
        CASES + "test_a_run_with_autocast_computes_in_halves",
    ),
    "models/graphed.py FixedStep.run": ("autocast of the device", "models/test_graphed.py::test_half_precision"),
    "models/graphed.py _cache_dtype": ("autocast of the device", "models/test_graphed.py::test_half_precision"),
    "models/graphed.py _without_cached_casts": (
        "autocast of the device",
        "models/test_graphed.py::test_half_precision",
    ),
    "models/graphed.py decode_graphed": (
        "steps are recorded, here by a stand-in for a graph",
        "models/test_graphed.py::test_samples_are_the_ordinary_ones",
    ),
    "models/graphed.py Graphs.decode": ("large buffers are not kept", CARD_ONLY),
    "models/graphed.py _recorded_for": ("autocast of the device", "models/test_graphed.py::test_half_precision"),
    "models/graphed.py _CudaGraphs.__call__": ("a step is recorded as a CUDA graph", CARD_ONLY),
    "models/graphed.py _refuse_waits": (
        "a step that waits is not recorded; here the waits are counted",
        CASES + "test_recorded_steps_wait_once_a_block",
    ),
    "models/packed.py attention": ("torch's fused attention", CASES + "test_a_run_is_that_of_the_processor"),
    "models/packed.py _probe": ("autocast of the device is off", CASES + "test_a_run_with_autocast_computes_in_halves"),
    "models/score.py probe_head": (
        "autocast of the device is off",
        CASES + "test_a_run_with_autocast_computes_in_halves",
    ),
}


def device_dependent(node: ast.AST) -> bool:
    """Whether an expression looks at the device, names what only a GPU has, or one of the sizes for a GPU."""
    match node:
        case ast.Attribute(attr="type", value=owner):
            return "device" in ast.unparse(owner)
        case ast.Attribute(attr=name):
            return name in ("is_cuda", "cuda", "is_autocast_enabled", "get_autocast_dtype")
        case ast.Call(func=ast.Attribute(attr="autocast")):
            return True
        case ast.Constant(value=str(text)):
            return text in ("cuda", "mps")
        case ast.Name(id=name):
            return name.startswith("_GPU_")
        case ast.keyword(arg=name):
            return name in ("non_blocking", "pin_memory", "out_dtype")
        case ast.Import() | ast.ImportFrom():
            return "triton" in ast.unparse(node)
    return False


def branches(tree: ast.AST, inside: str = "") -> Iterator[str]:
    """The functions that hold such an expression, as often as they do."""
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, ast.FunctionDef | ast.ClassDef)
        here = f"{inside}.{node.name}".lstrip(".") if named else inside
        if inside and device_dependent(node):
            yield inside
        yield from branches(node, here)


def test_the_table_has_every_branch() -> None:
    found = {
        f"{file.relative_to(PACKAGE).as_posix()} {function}"
        for file in PACKAGE.rglob("*.py")
        for function in branches(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert found - BRANCHES.keys() == set(), "behaves differently on a GPU: add it here with a test that covers it"
    assert BRANCHES.keys() - found == set(), "no longer looks at the device"


@pytest.mark.parametrize("place", [place for _, place in BRANCHES.values() if place != CARD_ONLY])
def test_the_tests_are_there(place: str) -> None:
    file, name = place.split("::")
    assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_a_comparison_shares_no_card() -> None:
    def plan(device: str) -> SimpleNamespace:
        config = SimpleNamespace(model=SimpleNamespace(device=device), threads=1)
        return SimpleNamespace(runs=[SimpleNamespace(config=config)] * 2)

    assert compare._jobs(plan("cuda")) == compare._jobs(plan("cuda:1")) == 1
    assert compare._jobs(plan("cpu")) >= 1


class OnApples(torch.Tensor):
    """Says that it is on a device without float64."""

    device = torch.device("mps")


def test_statistics_without_float64() -> None:
    for kind, dtype in ((torch.Tensor, torch.float64), (OnApples, torch.float32)):
        statistics = Statistics()
        statistics._add(loss=torch.ones(()).as_subclass(kind))
        assert statistics._sums["loss"].dtype == dtype
