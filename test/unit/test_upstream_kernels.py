"""Kernels in upstream's dialects (`nvgpu`, `gpu`, `memref`, `vector`, `arith`) on the interpreter, under all checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from upstream_kernels import KERNELS, RNG, drawn, loaded, poisoned, to_ptx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.passes.to_nvvm.convert import ConvertWarpToNvvmPass
from warploom.passes.universe import make_context
from warploom.runtime import PtxModule, TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError


def run(module: PtxModule, name: str, arguments: Sequence[object], *, threads: int = 32, shared: int = 0) -> None:
    module.launch(
        name, grid=(1, 1, 1), block=(threads, 1, 1), args=arguments, shared=shared, device="interp", checks="all"
    )


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What sums in f32 of exact products, each rounded toward zero at worst, may differ by."""
    return a.shape[1] * 2.0**-22 * (abs(a).astype(np.float64) @ abs(b).astype(np.float64))


def test_a_product_of_a_warp_with_copies_and_ldmatrix() -> None:
    a, b, d = drawn(16, 16), drawn(16, 8), poisoned(16, 8)
    loaded("mma", "sm_80").launch(
        "mma", grid=(1, 1, 1), block=(32, 1, 1), args=[a, b, d], device="interp", checks="all"
    )
    assert (abs(d - product(a, b)) <= bound(a, b)).all()


def through_nvvm(name: str, arch: str) -> PtxModule:
    """A kernel whose PTX became operations of `nvvm`, none of them inline PTX, and PTX again."""
    ptx = ModuleOp([import_ptx(parse_ptx(to_ptx((KERNELS / f"{name}.mlir").read_text(), arch)))])
    ConvertWarpToNvvmPass().apply(make_context(), ptx)
    text = str(ptx)
    assert "nvvm.wmma.mma" in text
    assert not re.findall(r'inline_asm[^"]*"[^"]', text)
    return load_ptx(to_ptx(text, arch))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("load", [loaded, through_nvvm])
def test_opaque_matrices_exchanges_and_reductions(load: Callable[[str, str], PtxModule]) -> None:
    a, b, d = drawn(16, 16), drawn(16, 16), poisoned(16, 16)
    x, y, z = RNG.standard_normal(32).astype(np.float32), poisoned(32), np.full(32, -7, np.int32)
    run(load("subgroup", "sm_80"), "wmma", [a, b, d, x, y, z])
    exact, error = product(a, b.T), bound(a, b.T)
    assert (abs(d - exact**2) <= error * (2 * abs(exact) + error) + 2.0**-23 * exact**2).all()
    lanes = np.arange(32)
    moved = np.where(lanes % 16 >= 3, x[lanes - 3], 0).reshape(4, 8).astype(np.float64)
    sums = moved.sum(1).repeat(8) + 1.5
    slack = (abs(moved).sum(1).repeat(8) + 1.5) * 2.0**-20 * 1.5**lanes
    assert (abs(y - sums * 1.5**lanes) <= slack).all()
    assert (z == 31).all()


def test_a_product_of_a_warpgroup_with_tensor_copies() -> None:
    a, b, d = drawn(128, 128), drawn(128, 128), poisoned(128, 128)
    maps = [TensorMap(a, box=(128, 64), swizzle=128), TensorMap(b, box=(64, 64), swizzle=128)]
    run(loaded("warpgroup", "sm_90a"), "gemm", [*maps, d], threads=128, shared=65536)
    assert (abs(d - product(a, b)) <= bound(a, b)).all()


def test_the_body_of_a_launch_becomes_a_kernel() -> None:
    x, y = RNG.standard_normal(64).astype(np.float32), poisoned(64)
    text = (KERNELS / "launch.mlir").read_text()
    module = load_ptx(to_ptx(text, "sm_80", "gpu-kernel-outlining,"))
    module.launch("f_kernel", grid=(2, 1, 1), block=(32, 1, 1), args=[x, y], device="interp", checks="all")
    doubled = x.reshape(2, 32)[:, ::-1].reshape(-1) * np.float32(2.5)
    assert (y == np.where(doubled > 2.5, np.sqrt(np.maximum(doubled, 0)), doubled)).all()


def test_a_missing_wait_for_copies_is_found() -> None:
    text = (KERNELS / "mma.mlir").read_text().replace("nvgpu.device_async_wait %g\n", "\n")
    a, b, d = drawn(16, 16), drawn(16, 8), poisoned(16, 8)
    with pytest.raises(InterpreterError, match=r"cp\.async"):
        run(load_ptx(to_ptx(text, "sm_80")), "mma", [a, b, d])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "memref<64x64xf16, 3>, swizzle",
            "memref<32x64xf16, 3>, swizzle",
            "boxes of 64 lines of 128 bytes, got memref<32",
        ),
        (
            "%e = nvgpu.warpgroup.mma %dA",
            """%dC = scf.for %v = %c0 to %c1 step %c1 iter_args(%w = %dA) -> (!dA) {
        scf.yield %w : !dA
      }
      %e = nvgpu.warpgroup.mma %dC""",
            "expected descriptors of nvgpu.warpgroup.generate.descriptor",
        ),
    ],
)
def test_operands_of_a_warpgroup_that_are_not_where_it_reads(old: str, new: str, message: str) -> None:
    text = (KERNELS / "warpgroup.mlir").read_text().replace(old, new)
    text = text.replace("gpu.module", "!dA = !nvgpu.warpgroup.descriptor<tensor = !sA>\ngpu.module")
    with pytest.raises(DiagnosticException, match=message):
        to_ptx(text, "sm_90a")


def test_the_bits_of_a_vector() -> None:
    body = """%i = arith.constant 0 : index
    %t = gpu.thread_id x
    %a = vector.load %A[%t, %i] : memref<32x4xi16>, vector<4xi16>
    %f = vector.bitcast %a : vector<4xi16> to vector<2xf32>
    %d = vector.bitcast %f : vector<2xf32> to vector<1xf64>
    %n = vector.bitcast %d : vector<1xf64> to vector<16xi4>
    %s = vector.shape_cast %n : vector<16xi4> to vector<2x8xi4>
    %r = vector.transpose %s, [1, 0] : vector<2x8xi4> to vector<8x2xi4>
    %q = vector.shape_cast %r : vector<8x2xi4> to vector<16xi4>
    %b = vector.bitcast %q : vector<16xi4> to vector<8xi8>
    vector.store %b, %B[%t, %i] : memref<32x8xi8>, vector<8xi8>"""
    a, b = RNG.integers(-(2**15), 2**15, (32, 4)).astype(np.int16), np.zeros((32, 8), np.int8)
    run(load_ptx(to_ptx(kernel(body, "%A: memref<32x4xi16>, %B: memref<32x8xi8>"), "sm_80")), "k", [a, b])
    nibbles = a.view(np.uint8)[:, :, None] >> np.array([0, 4]) & 15
    low, high = nibbles.reshape(32, 2, 8)[:, 0], nibbles.reshape(32, 2, 8)[:, 1]
    assert (b.view(np.uint8) == (low | high << 4)).all()


def test_sums_that_are_read_before_their_products_end_are_found() -> None:
    """Upstream waits for all groups of products but one, unless `waitGroup` says otherwise."""
    text = (KERNELS / "warpgroup.mlir").read_text().replace(", waitGroup = 0 : i64", "")
    a, b, d = drawn(128, 128), drawn(128, 128), poisoned(128, 128)
    maps = [TensorMap(a, box=(128, 64), swizzle=128), TensorMap(b, box=(64, 64), swizzle=128)]
    with pytest.raises(InterpreterError, match="wgmma"):
        run(load_ptx(to_ptx(text, "sm_90a")), "gemm", [*maps, d], threads=128, shared=65536)


def kernel(body: str, arguments: str) -> str:
    return f"""gpu.module @m {{
  gpu.func @k({arguments}) kernel attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
    {body}
    gpu.return
  }}
}}"""


MMA = """%a = arith.constant dense<1.0> : vector<4x2xf16>
    %b = arith.constant dense<1.0> : vector<2x2xf16>
    %c = arith.constant dense<0.0> : vector<2x2xf32>
    %d = nvgpu.mma.sync(%a, %b, %c) {{mmaShape = [{}]}} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>)
      -> vector<2x2xf32>"""


@pytest.mark.parametrize(
    ("body", "arch", "message"),
    [
        (MMA.format("16, 8, 16"), "sm_75", "nvgpu.mma.sync takes .*m16n8k16"),
        (MMA.format("16, 8, 12"), "sm_80", "nvgpu.mma.sync of .*m16n8k12"),
        (
            "%v = arith.constant dense<true> : vector<8xi1>\n    %y = vector.bitcast %v : vector<8xi1> to vector<8xi1>",
            "sm_80",
            "lowered for numbers of whole bytes, got vector<8xi1>",
        ),
        ("%v = arith.constant dense<1.0> : vector<3xf16>", "sm_80", "vectors of whole registers, got vector<3xf16>"),
        (
            "%y = nvvm.redux.sync fmin %x, %i : f32 -> f32",
            "sm_90a",
            "redux.sync.min.f32",
        ),
        ("%y = gpu.all_reduce and %x uniform {} : (f32) -> f32", "sm_80", "and does not combine numbers of f32"),
        (
            "%y = gpu.all_reduce %x uniform {\n^bb(%a: f32):\n gpu.yield %a : f32\n} : (f32) -> f32",
            "sm_80",
            "a body of one block that takes two numbers",
        ),
        ("%y = gpu.all_reduce %x uniform {} : (f32) -> f32", "sm_80", "the name of an operation, or a body"),
        (
            "%s = memref.get_global @g : memref<4xf32>",
            "sm_80",
            "expected shared memory, got memref",
        ),
        (
            "%t = gpu.thread_id x\n    %v = vector.load %m[%t] : memref<32xf16>, vector<4xf16>",
            "sm_80",
            "takes an address that is a multiple of 4 bytes, this one is of 2",
        ),
    ],
)
def test_what_cannot_be_lowered_is_located(body: str, arch: str, message: str) -> None:
    with pytest.raises(DiagnosticException, match=message) as caught:
        to_ptx(kernel(body, "%m: memref<32xf16>, %i: i32, %x: f32"), arch)
    assert "kernels.mlir" in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("arith.extf %v : vector<4xf16> to vector<8xf32>", "vector<8xf32> has 8 elements, got 4"),
        ("vector.shape_cast %v : vector<4xf16> to vector<2xf16>", "vector<2xf16> has 2 elements, got 4"),
        ("vector.extract %v[7] : f16 from vector<4xf16>", "f16 has 1 elements, got 0"),
        ("vector.transpose %v, [1] : vector<4xf16> to vector<4xf16>", "all dimensions of vector<4xf16>, got"),
        (
            "vector.extract_strided_slice %v {offsets = [1], sizes = [2], strides = [3]}"
            " : vector<4xf16> to vector<2xf16>",
            "a part of vector<4xf16>, got element 4",
        ),
        ("vector.broadcast %v : vector<4xf16> to vector<6xf16>", "vector<4xf16> does not repeat along vector<6xf16>"),
    ],
)
def test_vectors_of_other_sizes_are_refused(operation: str, message: str) -> None:
    body = f"%v = arith.constant dense<1.0> : vector<4xf16>\n%w = {operation}"
    with pytest.raises(DiagnosticException, match=message):
        to_ptx(kernel(body, "%m: memref<32xf16>"), "sm_80")


def sized(body: str, arguments: str, *block: int) -> str:
    """A kernel for blocks of a shape."""
    return kernel(body, arguments).replace("array<i32: 32, 1, 1>", f"array<i32: {', '.join(map(str, block))}>")


def test_threads_print() -> None:
    body = """%t = gpu.thread_id x
    %b = arith.constant 2 : i8
    gpu.printf "thread %lld: %d, %.3f, %d %lld\\0A", %t, %b, %x, %c, %n : index, i8, f16, i1, i64"""
    n = 123456789012345
    module = load_ptx(
        to_ptx(
            sized(body, "%x: f16, %c: i1, %m: memref<1xi64>", 3, 1, 1).replace(
                "%t = gpu", "%0 = arith.constant 0 : index\n    %n = memref.load %m[%0] : memref<1xi64>\n    %t = gpu"
            ),
            "sm_80",
        )
    )
    printed: list[str] = []
    arguments = [np.float16(-1.5), True, np.array([n])]
    module.launch("k", 1, 3, arguments, device="interp", checks="all", output=printed.append)
    assert "".join(printed) == "".join(f"thread {t}: 2, -1.500, 1 {n}\n" for t in range(3))


def test_reductions_over_a_block_of_three_dimensions() -> None:
    body = """%x = gpu.thread_id x
    %y = gpu.thread_id y
    %z = gpu.thread_id z
    %v = memref.load %A[%z, %y, %x] : memref<3x3x5xf32>
    %sum = gpu.all_reduce add %v uniform {} : (f32) -> f32
    memref.store %sum, %S[%z, %y, %x] : memref<3x3x5xf32>
    %i = memref.load %B[%z, %y, %x] : memref<3x3x5xi32>
    %greatest = gpu.all_reduce %i {
    ^bb(%a: i32, %b: i32):
      %c = arith.maxsi %a, %b : i32
      gpu.yield %c : i32
    } : (i32) -> i32
    memref.store %greatest, %B[%z, %y, %x] : memref<3x3x5xi32>"""
    arguments = "%A: memref<3x3x5xf32>, %S: memref<3x3x5xf32>, %B: memref<3x3x5xi32>"
    a, s = RNG.standard_normal((3, 3, 5)).astype(np.float32), poisoned(3, 3, 5)
    b = RNG.integers(-(2**31), 2**31, (3, 3, 5)).astype(np.int32)
    greatest = b.max()
    module = load_ptx(to_ptx(sized(body, arguments, 5, 3, 3), "sm_80"))
    module.launch("k", 1, (5, 3, 3), [a, s, b], device="interp", checks="all")
    assert (abs(s - a.astype(np.float64).sum()) <= 6 * 2.0**-24 * abs(a).sum()).all()
    assert (b == greatest).all()


@pytest.mark.parametrize(
    ("kind", "passed", "block", "back"),
    [
        ("i64", "%i : i32", "%j: i32", "%j : i32"),
        ("i32", "%i : i32", "", "%x : i32"),
        ("i32", "", "%j: i32", "%j : i32"),
        ("i32", "%i : i32", "%j: i32", ""),
        ("i32", "%i : i32", "%j: i32", "%y : i64"),
    ],
)
def test_what_a_loop_passes_on_has_one_type(kind: str, passed: str, block: str, back: str) -> None:
    body = f"""%x = arith.constant 1 : i32
    %y = arith.constant 1 : i64
    %true = arith.constant true
    %r = scf.while (%i = %x) : (i32) -> {kind} {{
      scf.condition(%true) {passed}
    }} do {{
    ^bb0{f"({block})" if block else ""}:
      scf.yield {back}
    }}"""
    with pytest.raises(VerifyException, match=r"a region of scf\.while that takes i32 and passes on"):
        to_ptx(kernel(body, "%m: memref<32xf16>"), "sm_80")


def test_a_body_of_several_blocks() -> None:
    """Euclid's algorithm: a branch sets both arguments of its own block at once."""
    body = """%t = gpu.thread_id x
    %a = memref.load %A[%t] : memref<32xi32>
    %b = memref.load %B[%t] : memref<32xi32>
    %zero = arith.constant 0 : i32
    cf.br ^loop(%b, %a : i32, i32)
  ^loop(%n: i32, %m: i32):
    %done = arith.cmpi eq, %n, %zero : i32
    cf.cond_br %done, ^end(%m : i32), ^next
  ^next:
    %r = arith.remui %m, %n : i32
    cf.br ^loop(%r, %n : i32, i32)
  ^end(%g: i32):
    memref.store %g, %B[%t] : memref<32xi32>"""
    a, b = (RNG.integers(0, 5000, 32).astype(np.int32) for _ in "ab")
    expected = np.gcd(a, b)
    run(load_ptx(to_ptx(kernel(body, "%A: memref<32xi32>, %B: memref<32xi32>"), "sm_80")), "k", [a, b])
    assert (b == expected).all()


def test_operations_of_nvvm_in_a_kernel_of_gpu() -> None:
    body = """%t = gpu.thread_id x
    %all = arith.constant -1 : i32
    %five = arith.constant 5 : i32
    %last = arith.constant 31 : i32
    %x = memref.load %A[%t] : memref<32xi32>
    %y = nvvm.shfl.sync bfly %all, %x, %five, %last : i32 -> i32
    %even = arith.cmpi slt, %x, %y : i32
    %votes = nvvm.vote.sync ballot %all, %even -> i32
    %first = nvvm.elect.sync -> i1
    %one = arith.select %first, %votes, %y : i32
    nvvm.barrier0
    memref.store %one, %A[%t] : memref<32xi32>"""
    a = RNG.integers(-1000, 1000, 32).astype(np.int32)
    y = a[np.arange(32) ^ 5]
    expected = np.where(np.arange(32) == 0, np.packbits(a < y, bitorder="little").view(np.int32), y)
    run(load_ptx(to_ptx(kernel(body, "%A: memref<32xi32>"), "sm_90a")), "k", [a])
    assert (a == expected).all()


def test_elements_that_threads_change_at_once() -> None:
    """Lanes count in bins, by an affine map of their numbers; the largest is taken of what each bin had."""
    body = """%t = gpu.thread_id x
    %one = llvm.mlir.constant(1 : i32) : i32
    %bin = affine.apply affine_map<(d0)[s0] -> ((d0 floordiv 4) mod 3 + s0 * 2 - 2)>(%t)[%one_index]
    %before = memref.atomic_rmw addi %one, %A[%bin] : (i32, memref<3xi32>) -> i32
    %zero = arith.constant 0 : index
    %x = memref.atomic_rmw maxs %before, %B[%zero] : (i32, memref<1xi32>) -> i32"""
    arguments = "%A: memref<3xi32>, %B: memref<1xi32>"
    a, b = np.zeros(3, np.int32), np.full(1, -1, np.int32)
    body = f"%one_index = arith.constant 1 : index\n    {body}"
    run(load_ptx(to_ptx(kernel(body, arguments), "sm_80")), "k", [a, b])
    assert (a == [12, 12, 8]).all()
    assert (b == 11).all()


def test_threads_as_indices_of_dimensions() -> None:
    """Lane 12 i + 4 j + k of 24 moves an element to the place k, i, j of sizes of which one is a value."""
    body = """%t = gpu.thread_id x
    %two = arith.constant 2 : index
    %at:3 = affine.delinearize_index %t into (%two, 3, 4) : index, index, index
    %x = memref.load %A[%t] : memref<32xf32>
    %to = affine.linearize_index [%at#2, %at#0, %at#1] by (4, %two, 3) : index
    %in = arith.cmpi ult, %t, %all : index
    scf.if %in {
      memref.store %x, %B[%to] : memref<24xf32>
    }"""
    a, b = RNG.random(32, np.float32), np.full(24, np.nan, np.float32)
    text = kernel(f"%all = arith.constant 24 : index\n    {body}", "%A: memref<32xf32>, %B: memref<24xf32>")
    run(load_ptx(to_ptx(text, "sm_80")), "k", [a, b])
    assert (b.reshape(4, 2, 3) == a[:24].reshape(2, 3, 4).transpose(2, 0, 1)).all()


CONTRACT = """#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#turned = affine_map<(i, j) -> (j, i)>
gpu.module @m {{
  gpu.func @k(%A: memref<{a}x{t}>, %B: memref<{b}x{t}>, %C: memref<{c}xf32>) kernel
      attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c40 = arith.constant 40 : index
    %z = arith.constant 0.0 : {t}
    %zero = arith.constant dense<0.0> : vector<32x16xf32>
    %r = scf.for %i = %c0 to %c40 step %c16 iter_args(%acc = %zero) -> (vector<32x16xf32>) {{
      %a = vector.transfer_read %A[{at_a}], %z {{{read_a}}} : memref<{a}x{t}>, vector<{va}x{t}>
      %b = vector.transfer_read %B[{at_b}], %z {{{read_b}}} : memref<{b}x{t}>, vector<{vb}x{t}>
      %d = vector.contract {{indexing_maps = [{maps}, #mn],
             iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<{kind}>}}
             %a, %b, %acc : vector<{va}x{t}>, vector<{vb}x{t}> into vector<32x16xf32>
      scf.yield %d : vector<32x16xf32>
    }}
    vector.transfer_write %r, %C[%c0, %c0] {{{write}}} : vector<32x16xf32>, memref<{c}xf32>
    gpu.return
  }}
}}"""
PLAIN = {
    "a": "30x40", "b": "40x13", "c": "30x13", "t": "f16", "at_a": "%c0, %i", "at_b": "%i, %c0", "kind": "add",
    "read_a": "", "read_b": "", "va": "32x16", "vb": "16x16", "maps": "#mk, #kn", "write": "",
}  # fmt: skip
TURNED = "permutation_map = #turned"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("more", "swapped"),
    [
        ({}, ""),
        ({"a": "40x30", "at_a": "%i, %c0", "va": "16x32", "maps": "#km, #kn"}, "a"),
        ({"b": "13x40", "at_b": "%c0, %i", "read_b": TURNED}, "b"),
        ({"maps": "#mk, #nk", "b": "13x40", "at_b": "%c0, %i", "c": "13x30", "write": TURNED}, "bc"),
        ({"maps": "#mk, #nk", "read_b": TURNED, "a": "32x40", "read_a": "in_bounds = [true, false]"}, ""),
    ],
)  # fmt: skip
def test_products_of_vectors(more: dict[str, str], swapped: str) -> None:
    """What lies outside of memory is read as zero, and not written."""
    fields = PLAIN | more
    m = int(fields["a"].split("x")[1 if "a" in swapped else 0])
    a, b = drawn(m, 40), drawn(40, 13)
    c = poisoned(13, 30) if "c" in swapped else poisoned(30, 13)
    passed = [np.ascontiguousarray(each.T) if name in swapped else each for name, each in (("a", a), ("b", b))]
    run(load_ptx(to_ptx(CONTRACT.format(**fields), "sm_80")), "k", [*passed, c])
    exact, error = product(a, b)[:30], bound(a, b)[:30]
    assert (abs((c.T if "c" in swapped else c) - exact) <= error).all()


MAPS = "".join(f"#{name} = affine_map<(m, n, k) -> ({name[0]}, {name[1]})>\n" for name in ("mk", "kn", "mn"))
MULTIPLY = """vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"],
      kind = #vector.kind<add>} %a, %b, %c : vector<16x8xf16>, vector<8x16xf16> into vector<16x16xf32>"""


def test_a_read_stands_before_the_writes_behind_it() -> None:
    """Both products take in what C was before the first of them is written."""
    write = "vector.transfer_write {}, %C[%i, %i] : vector<16x16xf32>, memref<16x16xf32>".format
    body = f"""%i = arith.constant 0 : index
    %z = arith.constant 0.0 : f16
    %y = arith.constant 0.0 : f32
    %a = vector.transfer_read %A[%i, %i], %z : memref<16x8xf16>, vector<16x8xf16>
    %b = vector.transfer_read %B[%i, %i], %z : memref<8x16xf16>, vector<8x16xf16>
    %c = vector.transfer_read %C[%i, %i], %y : memref<16x16xf32>, vector<16x16xf32>
    %d = {MULTIPLY}
    {write("%d")}
    %e = {MULTIPLY}
    {write("%e")}"""
    text = MAPS + kernel(body, "%A: memref<16x8xf16>, %B: memref<8x16xf16>, %C: memref<16x16xf32>")
    a, b = (RNG.integers(-3, 4, shape).astype(np.float16) for shape in ((16, 8), (8, 16)))
    c = RNG.integers(-3, 4, (16, 16)).astype(np.float32)
    expected = product(a, b) + c
    run(load_ptx(to_ptx(text, "sm_80")), "k", [a, b, c])
    assert (c == expected).all()


def test_a_matrix_may_end_beside_a_place_that_is_no_multiple_of_a_fragment() -> None:
    """Columns 3 to 15 of C take the first 13 of D: what lies beside them is the next row."""
    body = f"""%i = arith.constant 0 : index
    %j = arith.constant 3 : index
    %z = arith.constant 0.0 : f16
    %a = vector.transfer_read %A[%i, %i], %z : memref<16x8xf16>, vector<16x8xf16>
    %b = vector.transfer_read %B[%i, %i], %z : memref<8x16xf16>, vector<8x16xf16>
    %c = arith.constant dense<1.0> : vector<16x16xf32>
    %d = {MULTIPLY}
    vector.transfer_write %d, %C[%i, %j] : vector<16x16xf32>, memref<20x16xf32>"""
    text = MAPS + kernel(body, "%A: memref<16x8xf16>, %B: memref<8x16xf16>, %C: memref<20x16xf32>")
    a, b = (RNG.integers(-3, 4, shape).astype(np.float16) for shape in ((16, 8), (8, 16)))
    c = RNG.integers(-3, 4, (20, 16)).astype(np.float32)
    expected = c.astype(np.float64)
    expected[:16, 3:] = (product(a, b) + 1)[:, :13]
    run(load_ptx(to_ptx(text, "sm_80")), "k", [a, b, c])
    assert (c == expected).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"t": "f32"}, r":18:7.*there is no mma for 32 x 16 x 16 of vector<32x16xf32> x vector<16x16xf32>"),
        ({"kind": "mul"}, r":18:7.*lowered for sums of products"),
        ({"maps": "#mk, #mk"}, r":18:7.*lowered for sums of products"),
        ({"read_a": "permutation_map = affine_map<(i, j) -> (i, 0)>"}, r":16:7.*two dimensions of memory"),
    ],
)
def test_vectors_that_are_no_fragments(more: dict[str, str], message: str) -> None:
    with pytest.raises(DiagnosticException, match=message):
        to_ptx(CONTRACT.format(**PLAIN | more), "sm_80")
