"""Host functions: signatures before lowering, launches after it."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime.base.errors import HostError
from warploom.runtime.base.launch import Launch, Parameter, Problem, ScratchBuffer
from warploom.runtime.kernel.lowering import signature_of
from warploom.runtime.plan import host

LOWERED = """
func.func @two(%A: memref<4x8xf16>, %B: memref<8x4xf16>, %C: memref<4x4xf32>) {{
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %x = arith.constant 6 : index
  %threads = arith.constant 128 : index
  %shared = arith.constant 49152 : i32
  "gpu.launch_func"(%x, %one, %one, %threads, %one, %one, %shared, %A, %B, %C)
    <{{kernel = @kernels::@first, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 3, 0>}}>
    : (index, index, index, index, index, index, i32, memref<4x8xf16>, memref<8x4xf16>, memref<4x4xf32>) -> ()
  "gpu.launch_func"(%one, %x, %one, %threads, %one, %one, %C)
    <{{kernel = {kernel}, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0>}}>
    : (index, index, index, index, index, index, memref<4x4xf32>) -> ()
  {extra}
  func.return
}}
"""


def parse(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "host.mlir")


def lowered(kernel: str = "@kernels::@second", extra: str = "") -> ModuleOp:
    return parse(LOWERED.format(kernel=kernel, extra=extra))


def test_launches_are_read_in_order() -> None:
    assert host.plan(host.choose(lowered(), None)).launches == (
        Launch("first", (6, 1, 1), (128, 1, 1), 49152, (0, 1, 2), "kernels"),
        Launch("second", (1, 6, 1), (128, 1, 1), 0, (2,), "kernels"),
    )


def test_a_foreign_operation_is_named_with_its_place() -> None:
    with pytest.raises(HostError, match=r"host.mlir:14:3: host function @two: .* got arith.shli; loops over elements"):
        host.plan(host.choose(lowered(extra="%s = arith.shli %x, %x : index"), None))


def test_a_kernel_is_named_with_its_module() -> None:
    with pytest.raises(HostError, match="expected kernel @module::@kernel, got @second"):
        host.plan(host.choose(lowered(kernel="@second"), None))


def test_sizes_may_be_arguments() -> None:
    text = LOWERED.replace("%x = arith.constant 6 : index", "").replace("%C: memref", "%x: index, %C: memref", 1)
    assert host.plan(host.choose(parse(text.format(kernel="@kernels::@second", extra="")), None)).dynamic
    assert not host.plan(host.choose(lowered(), None)).dynamic


SCRATCH = """%w = memref.alloc() : memref<3x5xf32>
  %v = memref.alloc() : memref<7xbf16>
  memref.dealloc %w : memref<3x5xf32>
  "gpu.launch_func"(%one, %x, %one, %threads, %one, %one, %v, %C)
    <{kernel = @kernels::@third, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0>}>
    : (index, index, index, index, index, index, memref<7xbf16>, memref<4x4xf32>) -> ()
  memref.dealloc %v : memref<7xbf16>"""


def test_scratch_memory_may_have_to_be_zero() -> None:
    text = SCRATCH.replace("memref.alloc() : memref<7xbf16>", "memref.alloc() {warp.zeroed} : memref<7xbf16>")
    assert host.plan(host.choose(lowered(extra=text), None)).scratch == (
        ScratchBuffer(60),
        ScratchBuffer(14, zeroed=True),
    )


def test_scratch_memory_counts_on_after_the_parameters() -> None:
    plan = host.plan(host.choose(lowered(extra=SCRATCH), None))
    assert plan.scratch == (ScratchBuffer(60), ScratchBuffer(14))
    assert plan.launches[2].arguments == (4, 2)


@pytest.mark.parametrize(("word", "buffers"), [("", 2), (" {warp.zeroed}", 4)])
def test_scratch_memory_that_was_freed_is_used_again(word: str, buffers: int) -> None:
    """By memory of the same size that need not be zero."""
    again = SCRATCH.replace("%w", "%u").replace("%v", "%t")
    plan = host.plan(host.choose(lowered(extra=(SCRATCH + "\n" + again).replace("alloc()", f"alloc(){word}")), None))
    assert (len(plan.scratch), len(plan.launches)) == (buffers, 4)
    assert plan.launches[3].arguments == ((4, 2) if not word else (6, 2))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (SCRATCH.replace("%v, %C)", "%w, %C)").replace("memref<7xbf16>, memref", "memref<3x5xf32>, memref"),
         "expected operand 0 to be an argument of the host function, or memory allocated in it and not yet freed"),
        ("%w = memref.alloc() : memref<4xf128>", "expected scratch memory of known size, row-major, with elements of"),
        ("%w = memref.alloc() : memref<4xf32, strided<[2]>>", "of known size, row-major"),
    ],
)  # fmt: skip
def test_scratch_memory_that_cannot_be(extra: str, message: str) -> None:
    with pytest.raises(HostError, match=message):
        host.plan(host.choose(lowered(extra=extra), None))


def test_signature_of_a_lowered_function_writes_every_array() -> None:
    signature = signature_of(host.choose(lowered(), "two"))
    assert signature.parameters[0] == Parameter("A", "f16", (4, 8))
    assert signature.written == {0, 1, 2}
    assert str(signature) == "@two(%A: 4x8xf16, %B: 8x4xf16, %C: 4x4xf32)"


MATMUL = """
func.func @f(%A: memref<4x8xf16>, %B: memref<8x4xf16>, %C: memref<4x4xf32>, %D: memref<4x4xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<4x4xf32>)
  linalg.matmul ins(%A, %B : memref<4x8xf16>, memref<8x4xf16>) outs(%C : memref<4x4xf32>)
  linalg.matmul ins(%A, %B : memref<4x8xf16>, memref<8x4xf16>) outs(%D : memref<4x4xf32>)
  return
}
"""


def test_signature_knows_what_is_written_and_what_is_filled_first() -> None:
    signature = signature_of(host.choose(parse(MATMUL), None))
    assert (signature.written, signature.filled) == ({2, 3}, {2})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("memref<4x4xf128>", "no array can be passed as memref<4x4xf128>; element types are f16, bf16"),
        ("memref<4x4xf32, affine_map<(i, j) -> (j, i)>>", "expected a row-major or strided memref"),
        ("!llvm.ptr", "no array can be passed as !llvm.ptr"),
    ],
)
def test_parameters_that_no_array_can_be(kind: str, message: str) -> None:
    module = parse(f"func.func @f(%A: {kind}) {{ return }}")
    with pytest.raises(HostError, match=rf"host.mlir:1:1: @f: parameter 0 \(%A\): {message}"):
        signature_of(host.choose(module, None))


def test_a_function_is_chosen_by_name_when_there_are_several() -> None:
    module = parse("func.func @f() { return } func.func @g() { return } func.func private @h()")
    assert host.choose(module, "g").sym_name.data == "g"
    with pytest.raises(HostError, match=r"got 2 \(@f, @g\); name one"):
        host.choose(module, None)
    with pytest.raises(HostError, match="no function @h in the module; it has @f, @g"):
        host.choose(module, "h")


def test_a_module_without_functions() -> None:
    with pytest.raises(HostError, match=r"got 0 \(none\); wrap the operations in a func.func"):
        host.choose(parse("builtin.module {}"), None)


@pytest.mark.parametrize(
    ("a", "b", "maps", "expected"),
    [
        ("4x8", "8x6", ("d0, d2", "d2, d1", "d0, d1"), [Problem(4, 6, 8)]),
        ("8x4", "6x8", ("d2, d0", "d1, d2", "d0, d1"), [Problem(4, 6, 8)]),
        ("4x8", "8x6", ("d0, d2", "d2, d1", "d0 + d1, d1"), []),
    ],
)
def test_products_are_read_off_the_loops(a: str, b: str, maps: tuple[str, ...], expected: list[Problem]) -> None:
    listed = ", ".join(f"affine_map<(d0, d1, d2) -> ({m})>" for m in maps)
    types = f"memref<{a}xf16>, memref<{b}xf16>"
    text = f"""
func.func @product(%A: memref<{a}xf16>, %B: memref<{b}xf16>, %C: memref<4x6xf32>) {{
  linalg.generic {{indexing_maps = [{listed}], iterator_types = ["parallel", "parallel", "reduction"]}}
    ins(%A, %B : {types}) outs(%C : memref<4x6xf32>) {{
  ^bb0(%a: f16, %b: f16, %c: f32):
    linalg.yield %c : f32
  }}
  return
}}"""
    assert list(signature_of(host.choose(parse(text), None)).products) == expected


def test_batches_and_other_operations() -> None:
    text = """
func.func @two(%A: memref<3x4x8xf16>, %B: memref<3x8x6xf16>, %C: memref<3x4x6xf32>, %z: f32) {
  linalg.fill ins(%z : f32) outs(%C : memref<3x4x6xf32>)
  linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%A, %B : memref<3x4x8xf16>, memref<3x8x6xf16>) outs(%C : memref<3x4x6xf32>) {
  ^bb0(%a: f16, %b: f16, %c: f32):
    linalg.yield %c : f32
  }
  OTHER
  return
}"""
    assert signature_of(host.choose(parse(text.replace("OTHER", "")), None)).products == (Problem(4, 6, 8, 3),)
    other = "linalg.add ins(%C, %C : memref<3x4x6xf32>, memref<3x4x6xf32>) outs(%C : memref<3x4x6xf32>)"
    assert signature_of(host.choose(parse(text.replace("OTHER", other)), None)).products == (Problem(4, 6, 8, 3),)
