"""Kernels that are `llvm.func` with operations of `nvvm`: lowered by the rows, and run on the interpreter."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from upstream import ABSENT, mlir_opt, piped
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx, ptx_module
from warploom.passes.pipeline import lower
from warploom.passes.to_nvvm.convert import ConvertWarpToNvvmPass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import Kernel, compile, load_ptx

PRODUCT = """func.func @f(%A: memref<40x56xbf16>, %B: memref<56x24xbf16>, %C: memref<40x24xf32>) {
  linalg.matmul ins(%A, %B : memref<40x56xbf16>, memref<56x24xbf16>) outs(%C : memref<40x24xf32>)
  return
}"""

HOPPER = """func.func @f(%A: memref<96x128xf16>, %B: memref<128x72xf16>, %C: memref<96x72xf16>) {
  linalg.matmul ins(%A, %B : memref<96x128xf16>, memref<128x72xf16>) outs(%C : memref<96x72xf16>)
  return
}"""


def to_ptx(text: str, target: str | None = None) -> str:
    context = make_context()
    module = parse_mlir(context, text)
    before = f"warp-set-target{{arch={target}}}," if target else ""
    lower(module, context, f"{before}convert-warp-to-ptx")
    return print_ptx(ptx_module(module))


def as_nvvm(ptx: str) -> str:
    module, out = ModuleOp([import_ptx(parse_ptx(ptx))]), StringIO()
    ConvertWarpToNvvmPass().apply(make_context(), module)
    Printer(out).print_op(module)
    return out.getvalue()


def results(kernel: Kernel, *arguments: np.ndarray) -> np.ndarray:
    copies = [argument.copy() for argument in arguments]
    kernel(*copies, device="interp", checks="all")
    return copies[-1]


def bf16(*shape: int) -> np.ndarray:
    import ml_dtypes

    return np.random.default_rng().standard_normal(shape).astype(ml_dtypes.bfloat16)


def half(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float16)


def test_a_product_out_and_back_has_the_same_words() -> None:
    kernel = compile(PRODUCT, target="sm_80")
    arguments = bf16(40, 56), bf16(56, 24), np.random.default_rng().standard_normal((40, 24)).astype(np.float32)
    back = replace(kernel, ptx=to_ptx(as_nvvm(kernel.ptx)))
    assert back.ptx != kernel.ptx
    assert (results(back, *arguments) == results(kernel, *arguments)).all()


@pytest.mark.slow
def test_a_product_of_hopper_out_and_back_has_the_same_words() -> None:
    kernel = compile(HOPPER, target="sm_90a", cta=(64, 64, 64), mma="m64n64k16", stages=3)
    arguments = half(96, 128), half(128, 72), half(96, 72)
    back = replace(kernel, ptx=to_ptx(as_nvvm(kernel.ptx)))
    assert "wgmma.mma_async" in back.ptx
    assert (results(back, *arguments) == results(kernel, *arguments)).all()


@pytest.mark.slow
def test_a_product_in_tensor_memory_out_and_back_has_the_same_words() -> None:
    kernel = compile(HOPPER, target="sm_100a", cta=(64, 64, 64), mma="m64n64k16")
    arguments = half(96, 128), half(128, 72), half(96, 72)
    text = as_nvvm(kernel.ptx)
    assert "nvvm.tcgen05.mma " in text
    assert not re.findall(r'inline_asm[^"]*"[^"]', text)
    back = replace(kernel, ptx=to_ptx(text))
    assert "tcgen05.mma" in back.ptx
    assert (results(back, *arguments) == results(kernel, *arguments)).all()


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_a_product_through_mlir_opt_has_the_same_words() -> None:
    kernel = compile(PRODUCT, target="sm_80")
    arguments = bf16(40, 56), bf16(56, 24), np.random.default_rng().standard_normal((40, 24)).astype(np.float32)
    text = piped(as_nvvm(kernel.ptx), ("mlir-opt", "--canonicalize", "--cse"))
    back = replace(kernel, ptx=to_ptx(text))
    assert (results(back, *arguments) == results(kernel, *arguments)).all()


THREAD = """gpu.module @kernels {
  gpu.func @k(%A: memref<64xf32>, %B: memref<64xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %bx = gpu.block_id x
    %tx = gpu.thread_id x
    %c32 = arith.constant 32 : index
    %o = arith.muli %bx, %c32 : index
    %i = arith.addi %o, %tx : index
    %x = memref.load %A[%i] : memref<64xf32>
    %w = arith.constant 32 : i32
    %one = arith.constant 1 : i32
    %s, %p = gpu.shuffle xor %x, %one, %w : f32
    %zero = arith.constant 0.0 : f32
    %r = arith.select %p, %s, %zero : f32
    %y = arith.subf %x, %r : f32
    gpu.barrier
    memref.store %y, %B[%i] : memref<64xf32>
    gpu.return
  }
}"""


FLOATS = """sub.rn.f16x2 %r1, %r2, %r3;
    fma.rn.bf16x2 %r1, %r1, %r2, %r3;
    neg.bf16x2 %r1, %r1;
    max.f16x2 %r1, %r1, %r2;
    rcp.rn.f32 %f1, %f0;
    div.approx.f32 %f1, %f1, %f0;
    min.NaN.xorsign.abs.f32 %f1, %f1, %f0;
    cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f0;
    cvt.rn.f16x2.e4m3x2 %r4, %h0;
    setp.ltu.f32 %p0, %f1, %f0;
    setp.ne.f32 %p1, %f1, %f0;
    mul.rn.f32 %f1, %f1, %f1;"""


def test_arithmetic_of_floats_out_and_back_is_the_same() -> None:
    text = as_nvvm(f""".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{
    .reg .pred %p<2>;\n.reg .b16 %h<1>;\n.reg .b32 %r<5>;\n.reg .b64 %rd<2>;\n.reg .f32 %f<2>;
    ld.param.u64 %rd0, [a];
    cvta.to.global.u64 %rd1, %rd0;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1];
    ld.global.f32 %f0, [%rd1];
    {FLOATS}
    @%p0 st.global.b32 [%rd1], %r4;
    @%p1 st.global.b32 [%rd1+4], %r1;
    st.global.f32 [%rd1+8], %f1;
    ret;\n}}\n""")
    assert re.findall(r"inline_asm \"([^ \"]+)", text) == ["rcp.rn.f32"]
    opcode = re.compile(r"(?:sub|fma|neg|max|rcp|div|min|cvt|setp|mul)\.\S+")
    back = [word for word in opcode.findall(to_ptx(text)) if not word.startswith("cvt.u")]
    assert back == opcode.findall(FLOATS)


PACKED = """add.u16x2 %r1, %r1, %r2;
    min.s16x2 %r2, %r1, %r2;
    max.u16x2 %r3, %r2, %r3;
    add.s8x4 %r4, %r3, %r4;
    neg.s8x4 %r4, %r4;
    add.rn.f32x2 %rd2, %rd2, %rd2;"""


def test_arithmetic_on_packed_numbers_is_left_as_it_is() -> None:
    """LLVM's on the whole register would carry from one number to the next."""
    text = as_nvvm(f""".version 9.2\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{
    .reg .b32 %r<5>;\n.reg .b64 %rd<3>;
    ld.param.u64 %rd0, [a];
    cvta.to.global.u64 %rd1, %rd0;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1];
    ld.global.b64 %rd2, [%rd1+16];
    {PACKED}
    st.global.v4.b32 [%rd1], {{%r1, %r2, %r3, %r4}};
    st.global.b64 [%rd1+16], %rd2;
    ret;\n}}\n""")
    opcodes = [line.split()[0] for line in PACKED.splitlines()]
    assert re.findall(r"inline_asm \"([^ \"]+)", text) == opcodes
    assert [word for word in re.findall(r"\b(?:add|min|max|neg|sub)\.\S+", to_ptx(text)) if "x" in word] == opcodes


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_what_upstream_lowers_gpu_to() -> None:
    inner = "gpu.module(convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=1})"
    passes = f"builtin.module({inner},convert-to-llvm,reconcile-unrealized-casts,canonicalize,cse)"
    ptx = to_ptx(piped(THREAD, ("mlir-opt", f"--pass-pipeline={passes}")), "sm_80")
    x = np.random.default_rng().standard_normal(64).astype(np.float32)
    y = np.full(64, np.nan, np.float32)
    load_ptx(ptx).launch("k", (2, 1, 1), (32, 1, 1), [x, y], device="interp", checks="all")
    assert (y == x - x.reshape(-1, 2)[:, ::-1].reshape(-1)).all()


def kernel_of(body: str, arguments: str = "%a: !llvm.ptr<1>", before: str = "") -> str:
    return f"""gpu.module @m {{
      {before}
      llvm.func @k({arguments}) attributes {{nvvm.kernel, nvvm.reqntid = array<i32: 32, 1, 1>}} {{
        {body}
      }}
    }}"""


def test_values_that_blocks_pass_are_given_all_at_once() -> None:
    ptx = to_ptx(kernel_of("""
        %zero = llvm.mlir.constant(0 : i32) : i32
        %one = llvm.mlir.constant(1 : i32) : i32
        %last = llvm.mlir.constant(12 : i32) : i32
        %t = nvvm.read.ptx.sreg.tid.x : i32
        llvm.br ^loop(%zero, %t, %one : i32, i32, i32)
      ^loop(%i: i32, %x: i32, %y: i32):
        %n = llvm.add %i, %one : i32
        %s = llvm.add %x, %y : i32
        %m = llvm.icmp "slt" %n, %last : i32
        llvm.cond_br %m, ^loop(%n, %y, %s : i32, i32, i32), ^end(%y, %x : i32, i32)
      ^end(%p: i32, %q: i32):
        %d = llvm.sub %p, %q : i32
        %w = llvm.sext %t : i32 to i64
        %at = llvm.getelementptr %a[%w] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
        llvm.store %d, %at : i32, !llvm.ptr<1>
        llvm.return"""), "sm_80")  # fmt: skip
    out = np.full(32, -1, np.int32)
    load_ptx(ptx).launch("k", (1, 1, 1), (32, 1, 1), [out], device="interp", checks="all")

    def meant(t: int) -> int:
        x, y = t, 1
        for _ in range(11):
            x, y = y, x + y
        return y - x

    assert out.tolist() == [meant(t) for t in range(32)]


MMA = """%c = llvm.mlir.constant(0.000000e+00 : f32) : f32
        %i = nvvm.read.ptx.sreg.tid.x : i32
        %0 = nvvm.mma.sync A[%i, %i] B[%i] C[%c, %c, %c, %c] {layoutA = #nvvm.mma_layout<row>,
          layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<TYPE>,
          multiplicandBPtxType = #nvvm.mma_type<TYPE>, shape = #nvvm.shape<m = 16, n = 8, k = K>}
          : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
        llvm.return"""


WGMMA = """%i = nvvm.read.ptx.sreg.tid.x : i32
        %s = llvm.insertvalue %i, %u[0] : !llvm.struct<(i32, i32, i32, i32)>
        %0 = nvvm.wgmma.mma_async %d, %d, %s, <m = 64, n = 8, k = K>, D [<s32>, <one>], A [<TYPE>, <one>, <row>],
          B [<TYPE>, <one>, <LAYOUT>] : !llvm.struct<(i32, i32, i32, i32)> -> !llvm.struct<(i32, i32, i32, i32)>
        llvm.return"""
WGMMA = f"%u = llvm.mlir.undef : !llvm.struct<(i32, i32, i32, i32)>\n%d = llvm.mlir.constant(0 : i64) : i64\n{WGMMA}"


OPAQUE = """%i = nvvm.read.ptx.sreg.tid.x : i32
        %0 = nvvm.wmma.mma %i, %i, %i {eltypeA = #nvvm.mma_type<s8>, eltypeB = #nvvm.mma_type<s32>, k = 16 : i32,
          layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<row>, m = 16 : i32, n = 16 : i32}
          : (i32, i32, i32) -> !llvm.struct<(i32, i32, i32, i32, i32, i32, i32, i32)>
        llvm.return"""


def test_a_product_of_bits_of_a_warpgroup() -> None:
    body = WGMMA.replace("TYPE", "b1").replace("K", "256").replace("LAYOUT", "col")
    assert "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc" in to_ptx(kernel_of(body), "sm_90a")


def test_what_is_done_under_a_predicate() -> None:
    variable = "llvm.mlir.global internal @bar() {addr_space = 3 : i32} : !llvm.array<8 x i8>"
    ptx = to_ptx(kernel_of("""%b = llvm.mlir.addressof @bar : !llvm.ptr<3>
        %n = nvvm.read.ptx.sreg.tid.x : i32
        %c = llvm.mlir.constant(7 : i32) : i32
        %p = llvm.icmp "ult" %n, %c : i32
        nvvm.mbarrier.init %b, %c, predicate = %p : !llvm.ptr<3>, i32, i1
        llvm.return""", before=variable), "sm_80")  # fmt: skip
    assert re.search(r"@%p\d+ mbarrier\.init\.shared\.b64 \[%r\d+\], 7;", ptx)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("body", "target", "message"),
    [
        (MMA.replace("TYPE", "tf32").replace("K", "12"), "sm_80", "m16n8k12"),
        (MMA.replace("TYPE", "tf32").replace("K", "4"), "sm_75", "needs"),
        ("nvvm.cluster.arrive\nllvm.return", "sm_80", "needs"),
        (WGMMA.replace("TYPE", "s8").replace("K", "32").replace("LAYOUT", "row"), "sm_90a",
         "nvvm.wgmma.mma_async is not lowered with layoutB = row"),
        (OPAQUE, "sm_80", "expected 2 + 2 + 8 registers, got 3"),
        ("nvvm.prefetch level = L2, evict_priority = evict_first, %a : !llvm.ptr<1>\nllvm.return", "sm_80",
         "nvvm.prefetch is not lowered with evictPriority = evict_first"),
        ("%x = llvm.mlir.undef : vector<4xi8>\n%y = llvm.add %x, %x : vector<4xi8>\nllvm.return", "sm_80",
         "llvm.add of vector<4xi8> is not lowered"),
        ("nvvm.tcgen05.wait <load>\nllvm.return", "sm_90a", "nvvm.tcgen05.wait takes tcgen05.wait::ld"),
        ("%i = nvvm.read.ptx.sreg.tid.x : i7\nllvm.return", "sm_80",
         "nvvm.read.ptx.sreg.tid.x: there are no registers for i7"),
        ("%x = llvm.mlir.constant(dense<1.0> : vector<2xf32>) : vector<2xf32>\nllvm.return", "sm_80",
         "expected a number"),
        ("%b = llvm.mlir.addressof @nothing : !llvm.ptr<3>\nllvm.return", "sm_80", "there is no variable 'nothing'"),
        ('llvm.inline_asm "{ mov.b32 a, 1; }", "" : () -> ()\nllvm.return', "sm_80", "where it is one instruction"),
        ('llvm.inline_asm "bar.sync $1;", "" : () -> ()\nllvm.return', "sm_80",
         "inline PTX names $1, and there are 0 registers"),
        ("%n = llvm.mlir.constant(1 : i32) : i32\n%x = llvm.alloca %n x i32 : (i32) -> !llvm.ptr\nllvm.return", "sm_80",
         "llvm.alloca is not lowered to PTX inside a kernel"),
    ],
)  # fmt: skip
def test_what_is_refused(body: str, target: str, message: str) -> None:
    with pytest.raises(DiagnosticException, match=re.escape(message)):
        to_ptx(kernel_of(body), target)


def test_only_kernels_are_taken() -> None:
    with pytest.raises(DiagnosticException, match=re.escape("expected kernels, llvm.func with nvvm.kernel")):
        to_ptx("gpu.module @m { llvm.func @f() { llvm.return } }", "sm_80")
