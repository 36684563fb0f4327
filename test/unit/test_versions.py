"""Kernels of which a call chooses one, by how its arguments lie and how large they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from warploom.passes.schedule.candidates import FORMAT
from warploom.runtime import Kernel, compile
from warploom.runtime.cli.command import main
from warploom.runtime.kernel.binding import launch_values

BF16 = np.dtype(ml_dtypes.bfloat16)
ANYWHERE = "strided<[?, 1], offset: ?>"
CHUNK = 16


def text(layout: str = "", attributes: str = "") -> str:
    """D = relu(A B + bias) of any size."""
    where = f", {layout}" if layout else ""
    a, d = f"memref<?x?xbf16{where}>", f"memref<?x?xf32{where}>"
    return f"""func.func @f(%A: {a}{attributes}, %B: {a}{attributes}, %bias: memref<?xf32>, %D: {d}{attributes}) {{
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%D : {d})
      linalg.matmul ins(%A, %B : {a}, {a}) outs(%D : {d})
      linalg.generic {{indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
                       iterator_types = ["parallel", "parallel"]}} ins(%bias : memref<?xf32>) outs(%D : {d}) {{
      ^bb0(%b: f32, %x: f32):
        %sum = arith.addf %x, %b : f32
        %y = arith.maximumf %sum, %zero : f32
        linalg.yield %y : f32
      }}
      return
    }}"""


@pytest.fixture(scope="module")
def anywhere() -> Kernel:
    return compile(text(ANYWHERE), target="sm_90a")


def placed(array: Any, gap: int = 0, shift: int = 0) -> Any:
    """A copy whose rows are that many elements apart, and begin so many elements behind a multiple of 16 bytes."""
    rows, columns = array.shape
    base = np.zeros(rows * (columns + gap) + 2 * CHUNK, array.dtype)
    start = -(base.ctypes.data // base.itemsize) % (CHUNK // base.itemsize) + shift
    view = as_strided(base[start:], array.shape, ((columns + gap) * base.itemsize, base.itemsize))
    view[...] = array
    return view


def drawn(m: int, n: int, k: int, gap: int = 0, shift: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((m, k), (k, n)))
    d = np.full((m, n), np.nan, np.float32)
    return placed(a, gap, shift), placed(b, gap), rng.standard_normal(n).astype(np.float32), placed(d, gap)


def launched(kernel: Kernel, arguments: tuple[Any, ...]) -> list[str]:
    plan = kernel.plan_for(launch_values(kernel.function, arguments))
    return [launch.kernel for launch in plan.launches]


def assert_right(arguments: tuple[Any, ...]) -> None:
    a, b, bias, d = arguments
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[1] + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y) + np.abs(bias))
    assert (np.abs(d - np.maximum(x @ y + bias, 0)) <= bound).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("size", "gap", "shift", "wgmma"),
    [
        ((65, 72, 40), 0, 0, True),
        ((65, 72, 40), 8, 0, True),
        ((65, 72, 40), 3, 0, False),
        ((65, 72, 40), 0, 1, False),
        ((66, 71, 41), 0, 0, False),
        ((1, 8, 8), 0, 0, False),
        ((64, 200, 136), 0, 0, False),
    ],
)
def test_each_call_takes_the_kernel_that_fits_and_is_right(
    anywhere: Kernel, size: tuple[int, int, int], gap: int, shift: int, wgmma: bool
) -> None:
    """Rows of 16 bytes and more than a few of them go by tensor copies; all others are right as well."""
    arguments = drawn(*size, gap, shift)
    (name,) = launched(anywhere, arguments)
    kernel = anywhere.ptx.split(f".entry {name}(")[1].split(".entry")[0]
    assert ("wgmma.mma_async" in kernel) == wgmma
    anywhere(*arguments, device="interp", checks="all" if size[0] == 65 and not gap else ())
    assert_right(arguments)


def test_a_few_rows_a_few_tiles_and_large_results_have_kernels_of_their_own(anywhere: Kernel) -> None:
    n, k = 2048, 64
    names: list[str] = []
    for m in (1, 64, 65, 1024, 2048, 4096):
        a, b, bias, d = (
            np.empty(shape, kind) for shape, kind in (((m, k), BF16), ((k, n), BF16), (n, "f4"), ((m, n), "f4"))
        )
        names += launched(anywhere, (a, b, bias, d))
    few, also_few, tiles, more_tiles, large, larger = names
    assert (few, tiles, large) == (also_few, more_tiles, larger)
    assert len({few, tiles, large}) == 3


def test_calls_whose_arguments_lie_alike_share_a_plan(anywhere: Kernel) -> None:
    arguments = drawn(65, 72, 40)
    plans = [anywhere.plan_for(launch_values(anywhere.function, drawn(65, 72, 40, shift=s))) for s in (0, 8, 1)]
    assert plans[0] is anywhere.plan_for(launch_values(anywhere.function, arguments)) is plans[1]
    assert plans[2] is not plans[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("attributes", ["", " {warp.divisible = 8 : i64}"])
def test_fields_of_a_schedule_are_those_of_one_kernel(attributes: str) -> None:
    kernel = compile(text(attributes=attributes), target="sm_80", stages=3)
    assert kernel.ptx.count(".entry") == 1
    arguments = drawn(65, 72, 40)
    kernel(*arguments, device="interp")
    assert_right(arguments)


def test_what_was_measured_is_not_chosen_anew(tmp_path: Path) -> None:
    """A product that a file of tuned schedules knows has its one kernel."""
    best = "cta = 32x64x32, warp = 16x32, mma = m16n8k16, stages = 2, swizzle = 64, group = 1, accumulate = f32"
    key = "?x?x? bf16 x bf16 -> f32, with an epilogue"
    devices = {"A GPU": {"target": "sm_80", "products": {key: {"best": best, "measured": {}}}}}
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({"format": FORMAT, "devices": devices}))
    kernel = compile(text(), target="sm_80", tuned=file)
    assert (str(kernel.schedule[0]), kernel.ptx.count(".entry")) == (best, 1)
    assert len([s for s in compile(text(), target="sm_90a", tuned=file).schedules.values() if s]) == 5


def test_what_is_said_of_a_call_is_said_of_its_kernel(anywhere: Kernel) -> None:
    """Of no call, of a large one."""
    assert ": 1 launch of 12 kernels, by size and strides, cta = 128x256x64" in repr(anywhere)
    few, any_rows = (anywhere.called_with(*drawn(*size)) for size in ((64, 72, 40), (64, 71, 41)))
    assert [kernel.schedule for kernel in (few, any_rows)] == [
        tuple(anywhere.schedules[launch.kernel] for launch in kernel.launches) for kernel in (few, any_rows)
    ]
    assert len({anywhere.schedule, few.schedule, any_rows.schedule}) == 3


def test_the_command_names_the_kernel_that_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "any.mlir"
    file.write_text(text())
    words = ["A=random:9x40", "B=random:40x16", "bias=random:16", "D=zeros:9x16"]
    arguments = [word for one in words for word in ("--in", one)]
    assert main(["run", str(file), "--device", "interp", "--target", "sm_90a", "--check", *arguments]) == 0
    out = capsys.readouterr().out
    assert "128x256" not in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith(("kernel", "uses"))] == ["f:", "f:"]


@pytest.mark.slow
def test_convolutions_of_any_size_have_versions_too() -> None:
    """Their batch has two loops more, whose sizes are not known either."""
    kind = "memref<?x?x?x?xf16>"
    out = "memref<?x?x?x?xf32>"
    kernel = compile(
        f"""func.func @f(%X: {kind}, %F: {kind}, %Y: {out}) {{
      linalg.conv_2d_nhwc_hwcf ins(%X, %F : {kind}, {kind}) outs(%Y : {out})
      return
    }}""",
        target="sm_90a",
    )
    rng = np.random.default_rng(5)
    x, f = rng.standard_normal((1, 5, 9, 8)).astype(np.float16), rng.standard_normal((2, 3, 8, 16)).astype(np.float16)
    y = np.zeros((1, 4, 7, 16), np.float32)
    kernel(x, f, y, device="interp")
    wide, taps = x.astype(np.float64), f.astype(np.float64)
    exact = sum(
        np.einsum("nhwc,cf->nhwf", wide[:, i : i + 4, j : j + 7], taps[i, j]) for i in range(2) for j in range(3)
    )
    assert (np.abs(y - exact) <= 1e-4).all()
