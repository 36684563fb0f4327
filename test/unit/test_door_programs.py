"""Kernels in upstream's dialects compute what numpy does: drawn ones, and those that were wrong or refused."""

from __future__ import annotations

import numpy as np
import pytest
from door_programs import KINDS, outcome
from upstream_kernels import to_ptx
from xdsl.utils.exceptions import DiagnosticException

from warploom.runtime import load_ptx

DRAWN = {"warpgroup": 2, "contract": 4, "opaque": 6, "fragments": 6}
"""How many kernels of a kind are drawn, where others than 10: those of matrices take longer."""


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_kernels_are_right(kind: str) -> None:
    outcomes = [outcome(number, kind) for number in range(DRAWN.get(kind, 10))]
    assert [f"{each.reason}\n{each.text}" for each in outcomes if each.kind == "wrong"] == []
    refused = {each.reason for each in outcomes if each.kind == "refused"}
    assert all("needs sm_90" in reason for reason in refused), refused


def text_of(body: str, result: str, *, llvm: bool = False) -> str:
    """A kernel whose threads make `%r` of a number `%x`."""
    if llvm:
        return f"""gpu.module @m {{ llvm.func @k(%X: !llvm.ptr<1>, %Y: !llvm.ptr<1>) attributes {{nvvm.kernel}} {{
      %t = nvvm.read.ptx.sreg.tid.x : i32
      %p = llvm.getelementptr %X[%t] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      %x = llvm.load %p : !llvm.ptr<1> -> i32
      {body}
      %q = llvm.getelementptr %Y[%t] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {result}
      llvm.store %r, %q : {result}, !llvm.ptr<1>
      llvm.return
    }} }}"""
    return f"""gpu.module @m {{ gpu.func @k(%X: memref<32xi32>, %Y: memref<32x{result}>) kernel
        attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
      %t = gpu.thread_id x
      %x = memref.load %X[%t] : memref<32xi32>
      {body}
      memref.store %r, %Y[%t] : memref<32x{result}>
      gpu.return
    }} }}"""


def run(body: str, result: str, *, llvm: bool = False) -> np.ndarray:
    """What 32 threads store as `%r`, each made of its number of `X`."""
    made = np.zeros(32, {"i32": np.int32, "i64": np.int64, "f16": np.float16, "bf16": np.int16}[result])
    module = load_ptx(to_ptx(text_of(body, result, llvm=llvm), "sm_80"))
    module.launch("k", grid=(1, 1, 1), block=(32, 1, 1), args=[X.copy(), made], device="interp", checks="all")
    return made


X = np.arange(32, dtype=np.int32) * 123456789


@pytest.mark.parametrize("name", ["divui", "remui"])
def test_numbers_without_a_sign_above_2_31_divide(name: str) -> None:
    made = run(f"%c = arith.constant -8 : i32\n%r = arith.{name} %x, %c : i32", "i32")
    unsigned, by = X.view(np.uint32), np.uint32(2**32 - 8)
    assert (made.view(np.uint32) == (unsigned // by if name == "divui" else unsigned % by)).all()


WRAPPED = {
    "divui %a, %b": 2**31 - 2, "minui %a, %b": 2, "addi %c, %c": -2, "muli %c, %c": 1, "subi %a, %c": 2**31 - 3
}  # fmt: skip


@pytest.mark.parametrize(("operation", "number"), WRAPPED.items())
def test_constants_of_32_bits_wrap_around(operation: str, number: int) -> None:
    """Of -4, 2 and 2^31 - 1."""
    constants = "\n".join(
        f"%{name} = arith.constant {value} : i32" for name, value in (("a", -4), ("b", 2), ("c", 2**31 - 1))
    )
    assert (run(f"{constants}\n%r = arith.{operation} : i32", "i32") == number).all()


def test_a_loop_carries_conditions() -> None:
    body = """%n = arith.constant false
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      %k = arith.constant 50 : i32
      %yes = arith.constant true
      %l = scf.for %i = %c0 to %c3 step %c1 iter_args(%p = %n) -> (i1) {
        %q = arith.xori %p, %yes : i1
        scf.yield %q : i1
      }
      %r = arith.select %l, %k, %x : i32"""
    assert (run(body, "i32") == 50).all()


@pytest.mark.parametrize(
    ("operation", "kind", "number"),
    [
        ("llvm.zext {c} : i32 to i64", "i64", 2**32 - 5),
        ("llvm.sext {c} : i32 to i64", "i64", -5),
        ("llvm.mlir.constant(-2.875 : bf16) : bf16", "bf16", 0xC038 - 2**16),
        ("llvm.fadd {h}, {h} : f16", "f16", 3.0),
    ],
)
def test_constants_of_llvm_have_their_types(operation: str, kind: str, number: float) -> None:
    text = operation.format(c="%c", h="%h")
    constants = "%c = llvm.mlir.constant(-5 : i32) : i32\n%h = llvm.mlir.constant(1.5 : f16) : f16"
    assert (run(f"{constants}\n%r = {text}", kind, llvm=True) == number).all()


def test_a_vector_is_repeated_along_its_dimension_of_size_1() -> None:
    body = """%v = arith.constant dense<[[3], [5]]> : vector<2x1xi32>
      %b = vector.broadcast %v : vector<2x1xi32> to vector<2x4xi32>
      %r = vector.extract %b[0, 3] : i32 from vector<2x4xi32>"""
    assert (run(body, "i32") == 3).all()


def test_vectors_of_16_bit_integers_lie_in_halves_of_registers() -> None:
    body = """%h = arith.trunci %x : i32 to i16
      %c = arith.constant dense<[1, -2, 3, -4]> : vector<4xi16>
      %v = vector.broadcast %h : i16 to vector<4xi16>
      %s = arith.muli %v, %c : vector<4xi16>
      %f = vector.shape_cast %s : vector<4xi16> to vector<2x2xi16>
      %m = vector.transpose %f, [1, 0] : vector<2x2xi16> to vector<2x2xi16>
      %g = vector.extract %m[0] : vector<2xi16> from vector<2x2xi16>
      %q = vector.reduction <add>, %g : vector<2xi16> into i16
      %r = arith.extsi %q : i16 to i32"""
    assert (run(body, "i32") == (4 * X).astype(np.int16)).all()


BODIES: dict[str, tuple[str, np.ndarray]] = {
    "a part of memory from an offset that is computed": (
        """%c7 = arith.constant 7 : index
      %o = arith.minui %t, %c7 : index
      %v = memref.reinterpret_cast %X to offset: [%o], sizes: [4, 3], strides: [5, 1]
        : memref<32xi32> to memref<4x3xi32, strided<[5, 1], offset: ?>>
      %c2 = arith.constant 2 : index
      %r = memref.load %v[%c2, %c2] : memref<4x3xi32, strided<[5, 1], offset: ?>>""",
        X[np.minimum(np.arange(32), 7) + 12],
    ),
    "views that are cast, merged and divided": (
        """%e = memref.expand_shape %X [[0, 1]] output_shape [8, 4] : memref<32xi32> into memref<8x4xi32>
      %f = memref.cast %e : memref<8x4xi32> to memref<?x4xi32>
      %g = memref.cast %f : memref<?x4xi32> to memref<8x4xi32>
      %h = memref.collapse_shape %g [[0, 1]] : memref<8x4xi32> into memref<32xi32>
      %r = memref.load %h[%t] : memref<32xi32>""",
        X,
    ),
    "memory of each thread": (
        """%m = memref.alloca() : memref<4xi32, #gpu.address_space<private>>
      %c3 = arith.constant 3 : index
      %i = arith.andi %t, %c3 : index
      memref.store %x, %m[%i] : memref<4xi32, #gpu.address_space<private>>
      %r = memref.load %m[%i] : memref<4xi32, #gpu.address_space<private>>""",
        X,
    ),
    "turns until a condition of each thread fails": (
        """%one = arith.constant 1 : i32
      %first = arith.index_cast %t : index to i32
      %n = arith.constant 20 : i32
      %zero = arith.constant 0 : i32
      %last, %r = scf.while (%i = %first, %s = %zero) : (i32, i32) -> (i32, i32) {
        %more = arith.cmpi slt, %i, %n : i32
        scf.condition(%more) %i, %s : i32, i32
      } do {
      ^bb0(%j: i32, %u: i32):
        %k = arith.addi %j, %one : i32
        %v = arith.addi %u, %j : i32
        scf.yield %k, %v : i32, i32
      }""",
        np.array([sum(range(first, 20)) for first in range(32)]),
    ),
    "halves of other lanes": (
        """%c4 = arith.constant 4 : index
      %i = arith.shrui %t, %c4 : index
      %s = arith.index_castui %i : index to i16
      %h = arith.sitofp %s : i16 to f16
      %c16 = arith.constant 16 : i32
      %c32 = arith.constant 32 : i32
      %o, %p = gpu.shuffle xor %h, %c16, %c32 : f16
      %q = gpu.subgroup_reduce add %o cluster(size = 4) : (f16) -> f16
      %r = arith.fptosi %q : f16 to i32""",
        np.repeat([4, 0], 16),
    ),
    "where a thread is in the grid, and arithmetic of index": (
        """%g = gpu.global_id x
      %k = index.constant 3
      %a = index.and %g, %k
      %b = index.maxu %a, %k
      %s = index.shl %g, %b
      %r = arith.index_cast %s : index to i32""",
        np.arange(32) << 3,
    ),
    "a number of numbers": (
        """%v = vector.from_elements %x, %x, %x : vector<3xi32>
      %s = vector.shuffle %v, %v [0, 4] : vector<3xi32>, vector<3xi32>
      %r = vector.reduction <add>, %s, %x : vector<2xi32> into i32""",
        3 * X,
    ),
    "parts of a vector in another order": (
        """%v = vector.from_elements %x, %x, %x, %x, %x, %x : vector<2x3xi32>
      %c = arith.constant dense<[[1, 2, 3], [4, 5, 6]]> : vector<2x3xi32>
      %m = arith.muli %v, %c : vector<2x3xi32>
      %e = vector.extract_strided_slice %m {offsets = [1], sizes = [1], strides = [1]}
        : vector<2x3xi32> to vector<1x3xi32>
      %t2 = vector.transpose %m, [1, 0] : vector<2x3xi32> to vector<3x2xi32>
      %a = vector.extract %e[0, 1] : i32 from vector<1x3xi32>
      %d = vector.extract %t2[2, 0] : i32 from vector<3x2xi32>
      %r = arith.addi %a, %d : i32""",
        8 * X,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_threads_compute(name: str) -> None:
    body, expected = BODIES[name]
    assert (run(body, "i32") == expected).all()


@pytest.mark.parametrize(("operation", "kind"), [("lshr", np.uint8), ("ashr", np.int8), ("add", np.int8)])
def test_numbers_of_8_bits_of_llvm(operation: str, kind: type) -> None:
    body = f"""%b = llvm.trunc %x : i32 to i8
      %k = llvm.mlir.constant(1 : i8) : i8
      %c = llvm.{operation} %b, %k : i8
      %r = llvm.sext %c : i8 to i32"""
    narrow = X.astype(kind)
    expected = (narrow + kind(1) if operation == "add" else narrow >> 1).astype(np.int8)
    assert (run(body, "i32", llvm=True) == expected).all()


def test_a_literal_of_8_bits_has_no_sign_where_its_operation_has_none() -> None:
    body = """%b = llvm.trunc %x : i32 to i8
      %k = llvm.mlir.constant(-9 : i8) : i8
      %c = llvm.urem %b, %k : i8
      %r = llvm.zext %c : i8 to i32"""
    assert (run(body, "i32", llvm=True) == X.astype(np.uint8) % 247).all()


def test_structs_with_arrays_and_parts_of_vectors_of_llvm() -> None:
    """As MLIR lowers memory, and vectors of several dimensions."""
    kind = "!llvm.struct<(i32, array<2 x i32>, array<2 x vector<4xf16>>)>"
    body = f"""%u = llvm.mlir.poison : {kind}
      %v = llvm.mlir.poison : vector<2xi32>
      %0 = llvm.mlir.constant(0 : i32) : i32
      %1 = llvm.mlir.constant(1 : i32) : i32
      %v0 = llvm.insertelement %x, %v[%0 : i32] : vector<2xi32>
      %v1 = llvm.insertelement %t, %v0[%1 : i32] : vector<2xi32>
      %h = llvm.bitcast %v1 : vector<2xi32> to vector<4xf16>
      %s = llvm.shufflevector %h, %h [2, 3, 4, 5] : vector<4xf16>
      %a = llvm.insertvalue %1, %u[1, 0] : {kind}
      %b = llvm.insertvalue %t, %a[1, 1] : {kind}
      %c = llvm.insertvalue %s, %b[2, 1] : {kind}
      %d = llvm.extractvalue %c[2, 1] : {kind}
      %e = llvm.bitcast %d : vector<4xf16> to vector<2xi32>
      %f = llvm.extractelement %e[%1 : i32] : vector<2xi32>
      %g = llvm.extractelement %e[%0 : i32] : vector<2xi32>
      %i = llvm.extractvalue %c[1, 1] : {kind}
      %j = llvm.sub %f, %g : i32
      %r = llvm.add %j, %i : i32"""
    assert (run(body, "i32", llvm=True) == X).all()


def test_parts_of_registers_are_not_put_together() -> None:
    body = """%h = llvm.bitcast %x : i32 to vector<2xf16>
      %s = llvm.shufflevector %h, %h [1, 2] : vector<2xf16>
      %r = llvm.bitcast %s : vector<2xf16> to i32"""
    with pytest.raises(DiagnosticException, match=r"elements that fill registers together, got \[1, 2\]"):
        to_ptx(text_of(body, "i32", llvm=True), "sm_80")


def test_an_access_of_llvm_is_ordered() -> None:
    body = "%r = llvm.load %p atomic acquire {alignment = 4 : i64} : !llvm.ptr<1> -> i32"
    assert "ld.acquire.sys.global.b32" in to_ptx(text_of(body, "i32", llvm=True), "sm_80")


def test_shifts_of_pairs_are_refused() -> None:
    body = """%v = llvm.bitcast %x : i32 to vector<2xi16>
      %s = llvm.shl %v, %v : vector<2xi16>
      %r = llvm.bitcast %s : vector<2xi16> to i32"""
    with pytest.raises(DiagnosticException, match=r"llvm.shl of vector<2xi16> is not lowered"):
        to_ptx(text_of(body, "i32", llvm=True), "sm_80")


def test_sums_of_tf32_are_those_of_its_shape() -> None:
    """A load of C says nothing of the products that it is for."""
    a, b, c = (
        np.random.default_rng().integers(-4, 5, shape).astype(np.float32) for shape in ((16, 8), (8, 16), (16, 16))
    )
    matrix = '!gpu.mma_matrix<{}xf32, "{}Op">'.format
    load = "gpu.subgroup_mma_load_matrix"
    text = f"""gpu.module @m {{ gpu.func @k(%A: memref<16x8xf32>, %B: memref<8x16xf32>, %C: memref<16x16xf32>) kernel
        attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
      %z = arith.constant 0 : index
      %a = {load} %A[%z, %z] {{leadDimension = 8 : index}} : memref<16x8xf32> -> {matrix("16x8", "A")}
      %b = {load} %B[%z, %z] {{leadDimension = 16 : index}} : memref<8x16xf32> -> {matrix("8x16", "B")}
      %c = {load} %C[%z, %z] {{leadDimension = 16 : index}} : memref<16x16xf32> -> {matrix("16x16", "C")}
      %d = gpu.subgroup_mma_compute %a, %b, %c : {matrix("16x8", "A")}, {matrix("8x16", "B")} -> {matrix("16x16", "C")}
      gpu.subgroup_mma_store_matrix %d, %C[%z, %z] {{leadDimension = 16 : index}}
        : {matrix("16x16", "C")}, memref<16x16xf32>
      gpu.return
    }} }}"""
    expected = a @ b + c
    load_ptx(to_ptx(text, "sm_80")).launch(
        "k", grid=(1, 1, 1), block=(32, 1, 1), args=[a, b, c], device="interp", checks="all"
    )
    assert (c == expected).all()


def test_a_matrix_of_integers_is_negated() -> None:
    matrix = '!gpu.mma_matrix<16x16xi32, "COp">'
    text = f"""gpu.module @m {{ gpu.func @k(%C: memref<16x16xi32>) kernel
        attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
      %z = arith.constant 0 : index
      %c = gpu.subgroup_mma_load_matrix %C[%z, %z] {{leadDimension = 16 : index}} : memref<16x16xi32> -> {matrix}
      %d = gpu.subgroup_mma_elementwise negates %c : ({matrix}) -> {matrix}
      gpu.subgroup_mma_store_matrix %d, %C[%z, %z] {{leadDimension = 16 : index}} : {matrix}, memref<16x16xi32>
      gpu.return
    }} }}"""
    c = np.random.default_rng().integers(-(2**31), 2**31, (16, 16)).astype(np.int32)
    negated = -c
    load_ptx(to_ptx(text, "sm_80")).launch(
        "k", grid=(1, 1, 1), block=(32, 1, 1), args=[c], device="interp", checks="all"
    )
    assert (c == negated).all()


def test_constant_sums_of_a_warpgroup_are_fenced() -> None:
    """They are moved to registers where the product is, behind the fence of the program."""
    sums = "!llvm.struct<(f32, f32, f32, f32)>"
    text = f"""gpu.module @m {{ llvm.func @k(%Y: !llvm.ptr<1>) attributes {{nvvm.kernel}} {{
      %d = llvm.mlir.constant(0 : i64) : i64
      %c = llvm.mlir.constant(1.5 : f32) : f32
      %s0 = llvm.mlir.undef : {sums}
      %s1 = llvm.insertvalue %c, %s0[0] : {sums}
      %s2 = llvm.insertvalue %c, %s1[1] : {sums}
      %s3 = llvm.insertvalue %c, %s2[2] : {sums}
      %s4 = llvm.insertvalue %c, %s3[3] : {sums}
      nvvm.wgmma.fence.aligned
      %r = nvvm.wgmma.mma_async %d, %d, %s4, <m = 64, n = 8, k = 16>, D [<f32>, <one>], A [<bf16>, <one>, <row>],
        B [<bf16>, <one>, <col>] : {sums} -> {sums}
      nvvm.wgmma.commit.group.sync.aligned
      nvvm.wgmma.wait.group.sync.aligned 0
      %v = llvm.extractvalue %r[0] : {sums}
      llvm.store %v, %Y : f32, !llvm.ptr<1>
      llvm.return
    }} }}"""
    lines = [line.split()[0] for line in to_ptx(text, "sm_90a").splitlines() if line.strip()]
    product = next(i for i, line in enumerate(lines) if line.startswith("wgmma.mma_async"))
    moves = [i for i, line in enumerate(lines) if line == "mov.f32" and i < product]
    assert len(moves) == 4
    assert "wgmma.fence.sync.aligned;" in lines[max(moves) : product]
