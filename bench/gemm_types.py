"""The element types of `gemm.py`: what the product is in MLIR, how operands are drawn, who the peer is, which peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.dialect.isa.mma import Mma, of_types

MLIR = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> {b_axes}>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @matmul(%A: {a}, %B: {b}, %C: {c}) {{
  %zero = arith.constant {zero} : {o}
  linalg.fill ins(%zero : {o}) outs(%C : {c})
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}
"""

PEAK_WARPS, PEAK_ACCUMULATORS, PEAK_TURNS = 8, 8, 4096
POISON_INTEGER = -123456789


@dataclass(frozen=True)
class Kind:
    """One type: MLIR's name, torch's, the ISA's, and the types of C, the default first.

    `peer` makes the call of the library that is compared, of A (m x k), B (k x n) and its transpose; `by_columns` says
    that the peer takes B by columns, so that B is stored transposed for the fair comparison.
    """

    mlir: str
    torch: str
    isa: str
    outputs: tuple[str, ...]
    peer_name: str
    peer: Callable[[Any, Any, Any, Any], Callable[[], object]]
    by_columns: bool = False
    tf32: bool = False

    def text(self, size: tuple[int, int, int], out: str, transposed: bool) -> str:
        """The product, from zero."""
        m, n, k = size
        b = f"memref<{n}x{k}x{self.mlir}>" if transposed else f"memref<{k}x{n}x{self.mlir}>"
        axes, zero = "(n, k)" if transposed else "(k, n)", "0" if out.startswith("i") else "0.0"
        a, c = f"memref<{m}x{k}x{self.mlir}>", f"memref<{m}x{n}x{out}>"
        return MLIR.format(a=a, b=b, c=c, b_axes=axes, zero=zero, o=out)

    def draw(self, torch: Any, shape: tuple[int, int]) -> Any:
        """N(0, 1); of integers, all values alike."""
        if self.mlir == "i8":
            return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
        dtype = getattr(torch, self.torch)
        return torch.randn(*shape, device="cuda", dtype=torch.float64 if self.mlir == "f64" else None).to(dtype)

    @property
    def row(self) -> Mma:
        """The largest instruction."""
        wide = {"s8": "s32", "f64": "f64"}.get(self.isa, "f32")
        return max((r for r in of_types(self.isa, self.isa) if r.d.name == wide), key=lambda r: (r.shape.k, r.shape.m))


def output(torch: Any, shape: tuple[int, int], out: str) -> Any:
    """C, full of what no right kernel leaves behind."""
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32"}
    return torch.full(shape, POISON_INTEGER if out == "i32" else float("nan"), device="cuda",
                      dtype=getattr(torch, names[out]))  # fmt: skip


class Words:
    """A tensor of bytes that the array interface has no type for, as raw words."""

    def __init__(self, tensor: Any) -> None:
        self.owner = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape), "typestr": "|V1", "data": (tensor.data_ptr(), False), "version": 3
        }  # fmt: skip


def argument(tensor: Any) -> Any:
    """A tensor as an argument of a kernel."""
    return Words(tensor) if "float8" in str(tensor.dtype) else tensor


def _matmul(torch: Any, a: Any, b: Any, transposed: Any) -> Callable[[], object]:
    torch.backends.cuda.matmul.allow_tf32 = True
    return lambda: torch.matmul(a, b)


def _integers(torch: Any, a: Any, b: Any, transposed: Any) -> Callable[[], object]:
    return lambda: torch._int_mm(a, transposed.t())  # torch has no public name for it


def _scaled(torch: Any, a: Any, b: Any, transposed: Any) -> Callable[[], object]:
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(
        a, transposed.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


KINDS = {
    "bf16": Kind("bf16", "bfloat16", "bf16", ("f32", "bf16"), "cuBLAS", _matmul),
    "f16": Kind("f16", "float16", "f16", ("f32", "f16"), "cuBLAS", _matmul),
    "tf32": Kind("f32", "float32", "tf32", ("f32",), "cuBLAS", _matmul, tf32=True),
    "f64": Kind("f64", "float64", "f64", ("f64",), "cuBLAS", _matmul),
    "s8": Kind("i8", "int8", "s8", ("i32",), "cuBLASLt", _integers, by_columns=True),
    "e4m3": Kind("f8E4M3FN", "float8_e4m3fn", "e4m3", ("bf16", "f32"), "cuBLASLt, fast", _scaled, by_columns=True),
}


def peak_ptx(kind: str, target: str) -> str:
    """A kernel that only multiplies: independent accumulators per warp, operands in registers.

    Each accumulator has a B of its own, and A of e4m3 changes in every turn: sm_90 has no instruction for it, so ptxas
    makes two f16 products from zero, then additions; constant ones would leave the loop, equal ones be made once.
    """
    row, count = KINDS[kind].row, PEAK_ACCUMULATORS
    na, nb, nd = (row.registers(role) for role in "abd")
    held = {"f64": "f64", "s32": "b32"}.get(row.d.name, "f32")
    given = "f64" if row.a.name == "f64" else "b32"
    lines = [".version 8.4", f".target {target}", ".address_size 64", ".visible .entry peak(.param .u64 out)", "{"]
    lines += [".reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>;"]
    lines += [f".reg .{held} %f<{nd * count + 1}>; .reg .{given} %x<{na + nb * count}>;", "mov.u32 %r0, %tid.x;"]
    for i in range(na + nb * count):
        # Small distinct numbers: bits 0x3C00 to 0x3CFF are near 1 in f16 and tiny in bf16, and never NaN.
        lines.append(f"mad.lo.u32 %r2, %r0, {2 * i + 1}, 0x3C003C00;")
        lines.append(f"cvt.rn.f64.u32 %x{i}, %r2;" if given == "f64" else f"mov.b32 %x{i}, %r2;")
    zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(held, "0")
    lines += [f"mov.{held} %f{i}, {zero};" for i in range(nd * count + 1)]
    lines += ["mov.u32 %r1, 0;", "again:"]
    if kind == "e4m3":
        lines += [f"xor.b32 %x{i}, %x{i}, %r1;" for i in range(na)]

    def group(letter: str, first: int, number: int) -> str:
        return "{" + ", ".join(f"%{letter}{first + i}" for i in range(number)) + "}"

    for i in range(count):
        acc = group("f", nd * i, nd)
        lines.append(f"{row.spelling} {acc}, {group('x', 0, na)}, {group('x', na + nb * i, nb)}, {acc};")
    lines += ["add.u32 %r1, %r1, 1;", f"setp.lt.u32 %p, %r1, {PEAK_TURNS};", "@%p bra again;"]
    add = {"f32": "add.f32", "f64": "add.f64"}.get(held, "add.s32")
    lines += [f"{add} %f{nd * count}, %f{nd * count}, %f{i};" for i in range(nd * count)]
    size = 8 if held == "f64" else 4
    lines += ["ld.param.u64 %d0, [out];", f"mul.wide.u32 %d1, %r0, {size};", "add.u64 %d2, %d0, %d1;"]
    lines += [f"st.global.{held} [%d2], %f{nd * count};", "ret;", "}"]
    return "\n".join(lines)
