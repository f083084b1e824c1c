"""The softmax's Triton kernel: its numbers through Triton's interpreter, its code for cards that are not here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from foreign_support.required import need

triton = need("triton", "Triton is not installed: its kernel was neither run nor compiled")


def test_interpreted_it_gives_what_torch_gives():
    cases = Path(__file__).with_name("interpreted_softmax.py")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


def usage(machine_code: bytes, folder: Path) -> str:
    """What NVIDIA's own tool, which Triton brings, says of registers and stack."""
    (folder / "kernel.cubin").write_bytes(machine_code)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([tool, "-res-usage", folder / "kernel.cubin"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("card", [80, 90])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp64"])
def test_compiles_for_an_a100_and_for_an_h200(card, dtype, tmp_path):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tokenpo.core.head.softmax_triton import _row

    wide = "*fp64" if dtype == "fp64" else "*fp32"
    types = {"logits": f"*{dtype}", "out": f"*{dtype}", "scales": wide, "sums": wide}
    types |= dict.fromkeys(("m", "v", "stride", "out_stride"), "i32")
    types |= dict.fromkeys(("BLOCK", "MOMENTS"), "constexpr")
    for moments in (False, True):
        source = ASTSource(_row, types, {"BLOCK": 8192, "MOMENTS": moments})
        made = triton.compile(source, target=GPUTarget("cuda", card, 32), options={"num_warps": 16})
        assert "STACK:0" in usage(made.asm["cubin"], tmp_path), "what does not fit the registers goes to memory"
        # The interpreter lets every NaN through; a card does only where it is told to.
        assert "max.NaN" in made.asm["ptx"] or dtype == "fp64"
        products = re.findall(r"arith\.muli .* : (\w+)", made.asm["ttir"])
        assert set(products) == {"i64"} and len(products) >= 3, "a place in memory is counted in 32 bits"
