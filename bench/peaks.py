"""How fast an instruction can multiply: kernels that do nothing else, all operands in registers."""

from __future__ import annotations

from collections.abc import Iterable

from warploom.dialect.isa.mma import Mma, of_types
from warploom.dialect.isa.sparse_mma import rows as sparse_rows

WARPS, ACCUMULATORS, TURNS = 8, 8, 4096

WIDEST_SUM = {"s8": "s32", "f64": "f64"}
"""What products are accumulated in, where it is not f32."""


def dense_row(name: str) -> Mma:
    """The largest `mma` for operands of a type, by its name in the ISA."""
    return _largest(of_types(name, name), name)


def sparse_row(name: str) -> Mma:
    """The largest `mma.sp::ordered_metadata` for operands of a type."""
    rows = [r for r in sparse_rows() if r.a.name == r.b.name == name and r.ordered and not (r.satfinite or r.kind)]
    return _largest(rows, name)


def _largest(rows: Iterable[Mma], name: str) -> Mma:
    accumulate = WIDEST_SUM.get(name, "f32")
    return max((r for r in rows if r.d.name == accumulate), key=lambda r: (r.shape.k, r.shape.m))


def ptx_of(row: Mma, target: str) -> str:
    """A kernel that only multiplies: independent accumulators per warp, operands in registers.

    Each accumulator has a B of its own, and A of 8-bit floats changes in every turn: sm_90 has no instruction for it,
    so ptxas makes two f16 products from zero, then additions; constant ones would leave the loop, equal ones be made
    once.
    Every code of a sparse A's metadata names elements 0 and 1.
    """
    count = ACCUMULATORS
    na, nb, nd = (row.registers(role) for role in "abd")
    constraint = {"f64": "f64", "s32": "b32"}.get(row.d.name, "f32")
    asm_letter = "f64" if row.a.name == "f64" else "b32"
    lines = [".version 8.5", f".target {target}", ".address_size 64", ".visible .entry peak(.param .u64 out)", "{"]
    lines += [".reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<3>;"]
    lines += [
        f".reg .{constraint} %f<{nd * count + 1}>; .reg .{asm_letter} %x<{na + nb * count}>;",
        "mov.u32 %r0, %tid.x;",
    ]
    for i in range(na + nb * count):
        # Small distinct numbers: bits 0x3C00 to 0x3CFF are near 1 in f16 and tiny in bf16, and never NaN.
        lines.append(f"mad.lo.u32 %r2, %r0, {2 * i + 1}, 0x3C003C00;")
        lines.append(f"cvt.rn.f64.u32 %x{i}, %r2;" if asm_letter == "f64" else f"mov.b32 %x{i}, %r2;")
    zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(constraint, "0")
    lines += [f"mov.{constraint} %f{i}, {zero};" for i in range(nd * count + 1)]
    lines += ["mov.u32 %r1, 0;", "mov.u32 %r3, 0x44444444;", "again:"]
    if row.a.is_float and row.a.bits == 8:
        lines += [f"xor.b32 %x{i}, %x{i}, %r1;" for i in range(na)]

    def group(letter: str, first: int, number: int) -> str:
        return "{" + ", ".join(f"%{letter}{first + i}" for i in range(number)) + "}"

    metadata = ", %r3, 0" if row.spelling.startswith("mma.sp") else ""
    for i in range(count):
        acc = group("f", nd * i, nd)
        lines.append(f"{row.spelling} {acc}, {group('x', 0, na)}, {group('x', na + nb * i, nb)}, {acc}{metadata};")
    lines += ["add.u32 %r1, %r1, 1;", f"setp.lt.u32 %p, %r1, {TURNS};", "@%p bra again;"]
    add = {"f32": "add.f32", "f64": "add.f64"}.get(constraint, "add.s32")
    lines += [f"{add} %f{nd * count}, %f{nd * count}, %f{i};" for i in range(nd * count)]
    size = 8 if constraint == "f64" else 4
    lines += ["ld.param.u64 %d0, [out];", f"mul.wide.u32 %d1, %r0, {size};", "add.u64 %d2, %d0, %d1;"]
    lines += [f"st.global.{constraint} [%d2], %f{nd * count};", "ret;", "}"]
    return "\n".join(lines)


def operations(row: Mma, ctas: int) -> int:
    """Additions and multiplications of a launch of the kernel; a sparse A's zeros count."""
    m, n, k = row.shape
    return 2 * m * n * k * ACCUMULATORS * TURNS * WARPS * ctas
