"""Kernels of a `gpu.module` that nothing launches, run with a grid, a block and arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import ArgumentError, CompileError, HostError, compile, load_kernels
from warploom.runtime.cli.command import main
from warploom.runtime.numerics.floats import Array

PRODUCT = """\
func.func @product(%A: memref<40x48xf16>, %B: memref<48x24xf16>, %C: memref<40x24xf32>) {
  linalg.matmul ins(%A, %B : memref<40x48xf16>, memref<48x24xf16>) outs(%C : memref<40x24xf32>)
  return
}
"""
GRID, BLOCK = 4, 128
TWO = """\
gpu.module @m {
  gpu.func @first() kernel { gpu.return }
  gpu.func @second() kernel { gpu.return }
}
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel of a product, over fragments and without what launches it."""
    folder = tmp_path_factory.mktemp("bare")
    source, whole_path, path = folder / "product.mlir", folder / "whole.mlir", folder / "bare.mlir"
    source.write_text(PRODUCT)
    schedule = "cta=32,16,32 warp=16,8 stages=3"
    assert main(["compile", str(source), "--emit", "mlir", "--schedule", schedule, "-o", str(whole_path)]) == 0
    module = parse_mlir(make_context(), whole_path.read_text())
    for op in list(module.ops):
        if op.name == "func.func":
            op.detach()
    path.write_text(str(module))
    return path


def arrays() -> list[Array]:
    random = np.random.default_rng(11)
    shapes = (((40, 48), np.float16), ((48, 24), np.float16), ((40, 24), np.float32))
    return [random.standard_normal(shape).astype(dtype) for shape, dtype in shapes]


def test_it_computes_its_product(bare: Path) -> None:
    a, b, c = arrays()
    start = c.astype(np.float64)
    module = load_kernels(bare)
    (name,) = module.kernels
    module.launch(name, GRID, BLOCK, [a, b, c], device="interp")
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(c - (start + a @ b)) <= 50 * 2.0**-23 * (np.abs(start) + np.abs(a) @ np.abs(b)))


def test_its_shared_memory_is_that_of_the_launch_it_had(bare: Path) -> None:
    (launch,) = compile(PRODUCT, cta=(32, 16, 32), warp=(16, 8), stages=3).launches
    assert (launch.grid[0], launch.block[0]) == (GRID, BLOCK)
    module = load_kernels(bare.read_text())
    assert module.shared == {launch.kernel: launch.shared}
    assert launch.shared > 0


def test_the_command(bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = arrays()
    for name, array in zip("abc", (a, b, c), strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    arguments = [word for name in "abc" for word in ("--arg", f"{tmp_path}/{name}.npy")]
    out = ["--out", f"2={tmp_path}/d.npy", "--device", "interp"]
    assert main(["run", str(bare), "--grid", "4", "--block", "128", *arguments, *out]) == 0
    assert "bytes of dynamic shared memory" in capsys.readouterr().out
    load_kernels(bare).launch("product", GRID, BLOCK, [a, b, c], device="interp")
    assert np.array_equal(np.load(tmp_path / "d.npy").view(np.uint32), c.view(np.uint32))


def test_with_less_shared_memory_it_fails(bare: Path) -> None:
    with pytest.raises(Exception, match="shared"):
        load_kernels(bare).launch("product", GRID, BLOCK, arrays(), shared=64, device="interp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PRODUCT, r"<mlir>: expected one gpu\.module, whose kernels are launched, got 0 \(none\)"),
        (TWO + TWO.replace("@m", "@n"), r"expected one gpu\.module, .* got 2 \(@m, @n\)"),
        ("gpu.module @m { gpu.func", r"<mlir>:1:\d+: error: "),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        load_kernels(text)


def test_a_function_is_hinted_away_from(bare: Path) -> None:
    with pytest.raises(HostError, match=r"got 0 \(none\); launch a kernel of its gpu\.module with a grid and a block"):
        compile(bare)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "4"], "a kernel is launched with --block, such as --block 4,1,1"),
        (["--grid", "4", "--block", "32", "--check"], "--check is for functions of .mlir files"),
        (["--arg", "i32:1"], "--arg is for kernels, which are launched with --grid and --block"),
        (["--grid", "1", "--block", "32"], "expected --kernel, as the file has 2 kernels (first, second)"),
        (["--grid", "1", "--block", "32", "--kernel", "third"], "no kernel 'third' in <PTX of "),
    ],
)
def test_misuse_of_the_command(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(TWO)
    assert main(["run", str(path), *options]) == 1
    assert message in capsys.readouterr().err


def test_a_kernel_that_does_not_say_its_block() -> None:
    assert ".reqntid" not in load_kernels(TWO).text
    total = """gpu.module @m {
  gpu.func @k(%x: f32) kernel {
    %sum = gpu.all_reduce add %x {} : (f32) -> (f32)
    gpu.return
  }
}
"""
    with pytest.raises(
        CompileError, match=r"<mlir>:2:3: error: expected gpu\.known_block_size on the kernel: gpu\.all_"
    ):
        load_kernels(total)
    assert ".reqntid 64, 1, 1" in load_kernels(total, block=64).text


def test_a_name_that_is_none() -> None:
    with pytest.raises(ArgumentError, match=r"no kernel 'k' in <PTX of <mlir>>; it has first, second"):
        load_kernels(TWO, block=32).launch("k", 1, 1, [])


def test_vectors_of_integers_become_floats() -> None:
    text = """gpu.module @kernels {
      gpu.func @k(%A: memref<128xi8>, %B: memref<128xf32>, %C: memref<128xi32>) kernel {
        %t = gpu.thread_id x
        %four = index.constant 4
        %i = index.mul %t, %four
        %a = vector.load %A[%i] : memref<128xi8>, vector<4xi8>
        %b = arith.sitofp %a : vector<4xi8> to vector<4xf32>
        vector.store %b, %B[%i] : memref<128xf32>, vector<4xf32>
        gpu.barrier memfence [#gpu.address_space<workgroup>]
        %c = arith.fptosi %b : vector<4xf32> to vector<4xi32>
        vector.store %c, %C[%i] : memref<128xi32>, vector<4xi32>
        gpu.return
      }
    }"""
    a = np.random.default_rng().integers(-128, 128, 128, np.int8)
    b, c = np.full(128, np.nan, np.float32), np.zeros(128, np.int32)
    load_kernels(text).launch("k", 1, 32, [a, b, c], device="interp", checks="all")
    np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(c, a)
