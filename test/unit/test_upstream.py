"""`-t upstream`: levels above PTX as upstream `mlir-opt` reads them, where there is one."""

from __future__ import annotations

import re
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from upstream import ABSENT, mlir_opt

from warploom.passes.context import make_context, parse_mlir
from warploom.passes.pipeline import lower
from warploom.passes.upstream import UpstreamTarget

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAGMENTS = "warploom-schedule{target=sm_120a},warploom-tile"
LEVELS = {
    "schedule": "warploom-schedule{target=sm_120a}",
    "fragments": FRAGMENTS,
    "allocated": f"{FRAGMENTS},warp-pipeline,warp-expand,warp-allocate",
}


def printed(example: str, level: str) -> str:
    ctx, out = make_context(), StringIO()
    module = parse_mlir(ctx, (EXAMPLES / example).read_text())
    lower(module, ctx, LEVELS[level])
    before = str(module)
    UpstreamTarget().emit(ctx, module, out)
    assert str(module) == before
    return out.getvalue()


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", ["matmul_bias_gelu.mlir", "dynamic_matmul.mlir", "block_scaled_matmul.mlir"])
def test_mlir_opt_reads_and_verifies_it(example: str, level: str) -> None:
    command = [mlir_opt() or "", "--allow-unregistered-dialect"]
    done = subprocess.run(command, input=printed(example, level), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = '"warp.matmul"' if level == "schedule" else '"warp.mma'
    assert wanted in done.stdout
    assert ("gpu.func" in done.stdout) == (level != "schedule")


def test_the_swizzle_of_a_tile_is_said_by_what_makes_it() -> None:
    text = printed("matmul_bias_gelu.mlir", "fragments")
    made = re.findall(r'"memref\.alloc".*bf16.*', text)
    assert made
    for line in made:
        assert re.search(r"warp\.layout = #warp\.swizzle<\d+>.* -> memref<[\dx]+xbf16, 3 : i64>$", line)
    assert re.findall(r"memref<[^>]*#", text) == []


def test_this_compiler_reads_it_too() -> None:
    parse_mlir(make_context(), printed("matmul_bias_gelu.mlir", "schedule")).verify()
