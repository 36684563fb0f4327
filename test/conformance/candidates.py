"""Spellings of matrix instructions, far past the legal ones: every shape with every type, sum, kind and qualifier.

Nothing here knows which are legal. The operands follow from shape and types alone, by the counts of matrix elements
per lane, so that a legal spelling has the operands it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4,
    "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32, "u32": 32, "ue8m0": 8,
}  # fmt: skip
"""Element types, some of which are no multiplicands, and their widths."""

INPUTS = tuple(t for t in BITS if t not in ("u32", "ue8m0"))
NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
SUMS = (("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32"), ("s32", "s32"), ("f64", "f64"))
"""Types of D and C."""

DENSE = (
    *((8, 8, k) for k in (4, 8, 16, 32, 64, 128)),
    *((16, 8, k) for k in (4, 8, 16, 32, 64, 128, 256, 512)),
    (16, 16, 16),
)
SPARSE = (*((16, 8, k) for k in (4, 8, 16, 32, 64, 128, 256)), (8, 8, 16), (16, 16, 16))
WMMA = ((16, 16, 16), (8, 32, 16), (32, 8, 16), (16, 16, 8), (8, 8, 4), (8, 8, 32), (8, 8, 128), (16, 8, 16),
        (16, 16, 4), (32, 32, 16))  # fmt: skip

Size = tuple[int, int, int]
KINDS = ("kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4")
LAYOUTS = ("row", "col")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An opcode and operands for it; `family` is the instruction's name."""

    family: str
    spelling: str
    operands: str

    @property
    def statement(self) -> str:
        return f"{self.spelling} {self.operands};"


@cache
def registers(count: int, type: str = "b32") -> str:
    """Registers in braces that hold elements of a type."""
    letter = {"f32": "f", "f64": "d", "s32": "s"}.get(type, "r")
    return "{" + ", ".join(f"%{letter}{i}" for i in range(max(1, count))) + "}"


def registers_of(elements: int, bits: int, lanes: int = 32) -> int:
    """Registers per lane for a matrix spread over the lanes."""
    return elements * bits // (lanes * max(32, bits))


@cache
def shape(size: Size) -> str:
    return "m{}n{}k{}".format(*size)


@cache
def _fragments(size: Size, types: tuple[str, str, str, str], *, in_bytes: bool = False, sparse: bool = False) -> str:
    """d, a, b, c of a product, the types being those of d, a, b, c."""
    (m, n, k), (d, a, b, c) = size, types
    lanes = 8 if size == (8, 8, 4) and BITS[a] == 16 else 32
    bits = {t: 8 if in_bytes else BITS[t] for t in (a, b)}
    return ", ".join((
        registers(registers_of(m * n, BITS[d], lanes), d),
        registers(registers_of(m * k // (2 if sparse else 1), bits[a], lanes), a),
        registers(registers_of(k * n, bits[b], lanes), b),
        registers(registers_of(m * n, BITS[c], lanes), c),
    ))  # fmt: skip


_METADATA = ", %r39, 0"
_SCALES = ", %r38, {0, 0}, %r37, {0, 0}"


def _product(
    variant: str, size: Size, types: tuple[str, str, str, str], *, layouts: str = "row.col", before: str = "",
    scale: str = "", after: str = "",
) -> Candidate:  # fmt: skip
    """One spelling of `mma` or `mma.sp`; `before` and `scale` stand before the types, `after` after them."""
    sparse = ".sp" in variant
    in_bytes = before in (".kind::f8f6f4", ".kind::mxf8f6f4")
    operands = _fragments(size, types, in_bytes=in_bytes, sparse=sparse)
    operands += (_METADATA if sparse else "") + (_SCALES if scale else "")
    spelling = f"mma{variant}.sync.aligned.{shape(size)}.{layouts}{before}{scale}.{'.'.join(types)}{after}"
    return Candidate("mma.sp" if sparse else "mma", spelling, operands)


def _types(inputs: Iterable[tuple[str, str]], sums: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    for (a, b), (d, c) in product(inputs, sums):
        yield d, a, b, c


def _squares(names: Iterable[str]) -> list[tuple[str, str]]:
    each = tuple(names)
    return list(product(each, each))


_INTEGERS = ("s8", "u8", "s4", "u4", "b1")
_ALIKE = [(t, t) for t in INPUTS]


def products(variant: str, sizes: tuple[Size, ...]) -> Iterator[Candidate]:
    """`mma`, or with a variant `mma.sp`: all types, then the qualifiers of each kind of number on every kind."""
    for size in sizes:
        for types in _types(_squares(INPUTS), SUMS):
            yield _product(variant, size, types)
        for types, layouts in product(_types(_ALIKE, SUMS), ("row.row", "col.row", "col.col")):
            yield _product(variant, size, types, layouts=layouts)
        for types in _types([*_squares(_INTEGERS), *_ALIKE], SUMS):
            yield _product(variant, size, types, before=".satfinite")
        for types, suffix in product(_types(_ALIKE, SUMS), (".rn", ".rz", ".rm", ".rp")):
            yield _product(variant, size, types, after=suffix)
        for types, suffix in product(_types(_squares(_INTEGERS), SUMS[-2:]), (".xor.popc", ".and.popc", ".xor")):
            yield _product(variant, size, types, after=suffix)
    for size, kind, types in product(sizes[-7:], KINDS, _types(_squares((*NARROW, "f16")), SUMS[:4])):
        yield _product(variant, size, types, before=f".{kind}")


def scaled(variant: str, sizes: tuple[Size, ...]) -> Iterator[Candidate]:
    """Block scaling: every kind with every number and type of scales."""
    vectors = ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X")
    inputs = _squares((*NARROW, "s4"))
    for size, kind, vector, types, scale in product(
        sizes, ("", *KINDS), vectors, _types(inputs, SUMS[:2]), ("", ".ue8m0", ".ue4m3", ".e4m3")
    ):
        if kind or types[1] == types[2]:
            before = f".{kind}" if kind else ""
            yield _product(variant, size, types, before=before, scale=f".block_scale{vector}", after=scale)


MATRICES = {"m8n8": 64, "m16n16": 256, "m8n16": 128, "m16n8": 128, "m8n32": 256}
MOVED = (
    "b16",
    "b8",
    "b32",
    "b8x16.b6x16_p32",
    "b8x16.b4x16_p64",
    "b8x16",
    "b6x16_p32",
    "b16.b8",
    "f16",
    "s8.s4",
    "u8.u4",
)
SPACES = ("", ".shared", ".shared::cta", ".shared::cluster", ".global", ".local")


def moves() -> Iterator[Candidate]:
    """`ldmatrix`, `stmatrix`, `movmatrix`."""
    for (matrix, elements), count, trans, space, type in product(
        MATRICES.items(), (1, 2, 4, 8), ("", ".trans"), SPACES, MOVED
    ):
        bits = 16 if type in ("b16", "f16") else 32 if type == "b32" else 8
        rest = f".sync.aligned.{matrix}.x{count}{trans}{space}.{type}"
        vector = registers(min(8, count * registers_of(elements, bits)))
        yield Candidate("ldmatrix", f"ldmatrix{rest}", f"{vector}, [%p]")
        yield Candidate("stmatrix", f"stmatrix{rest}", f"[%p], {vector}")
    for matrix, trans, type in product(MATRICES, ("", ".trans"), MOVED):
        yield Candidate("movmatrix", f"movmatrix.sync.aligned.{matrix}{trans}.{type}", "%r0, %r1")


@cache
def _wmma_registers(size: Size, role: str, type: str) -> str:
    m, n, k = size
    elements = {"a": m * k, "b": k * n}.get(role, m * n)
    return registers(8 if type == "f16" and role in "ab" else registers_of(elements, BITS[type]), type)


def wmma_memory() -> Iterator[Candidate]:
    """`wmma.load` and `wmma.store`."""
    for size, layout, space, type in product(WMMA, LAYOUTS, SPACES, BITS):
        rest = f"sync.aligned.{layout}.{shape(size)}{space}.{type}"
        for role in "abcd":
            yield Candidate("wmma.load", f"wmma.load.{role}.{rest}", f"{_wmma_registers(size, role, type)}, [%p], %r39")
        for role in "dc":
            operands = f"[%p], {_wmma_registers(size, role, type)}, %r39"
            yield Candidate("wmma.store", f"wmma.store.{role}.{rest}", operands)


def wmma_products() -> Iterator[Candidate]:
    """`wmma.mma`."""
    sums = [*SUMS, ("s32", "f32"), ("bf16", "bf16")]
    for size, layouts in product(WMMA, product(LAYOUTS, LAYOUTS)):
        base = f"sync.aligned.{'.'.join(layouts)}.{shape(size)}"
        for (d, c), end in product(sums, ("", ".satfinite")):
            yield _wmma(size, f"wmma.mma.{base}.{d}.{c}{end}", (d, "f16", "f16", c))
        for d, a, b, c in _types([*_ALIKE, *_squares(_INTEGERS), ("f16", "bf16"), ("e4m3", "e5m2")], sums[:6]):
            types = f"{d}.{a}.{b}.{c}"
            for spelling in (
                f"wmma.mma.{base}.{types}",
                f"wmma.mma.{base}.{types}.satfinite",
                f"wmma.mma.xor.popc.{base}.{types}",
                f"wmma.mma.and.popc.{base}.{types}",
                *((f"wmma.mma.{base}.{rounding}.{types}" for rounding in ("rn", "rz", "rm", "rp")) if a == b else ()),
            ):
                yield _wmma(size, spelling, (d, a, b, c))


def _wmma(size: Size, spelling: str, types: tuple[str, str, str, str]) -> Candidate:
    fragments = (_wmma_registers(size, role, t) for role, t in zip("dabc", types, strict=True))
    return Candidate("wmma.mma", spelling, ", ".join(fragments))


def _all() -> Iterator[Candidate]:
    yield from products("", DENSE)
    yield from scaled("", DENSE[8:12])
    for variant in (".sp", ".sp::ordered_metadata"):
        yield from products(variant, SPARSE)
        yield from scaled(variant, SPARSE[3:6])
    yield from moves()
    yield from wmma_memory()
    yield from wmma_products()


@cache
def candidates() -> tuple[Candidate, ...]:
    """All of them, each spelling once."""
    return tuple({c.spelling: c for c in _all()}.values())
