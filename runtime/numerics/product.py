"""What a matrix instruction computes: from its row and the target to a function of matrices.

`arithmetic("sm_100", row)` is what one form of `mma`, `mma.sp`, `wmma.mma` or `wgmma` does there::

    >>> arithmetic("sm_80", matrix_form("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")).block
    8

Each row of parameters says what it rests on. `confirmed` is said only of rows whose answers a GPU of that architecture
gave too, word for word, in recordings that the tests replay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np

from ...dialect.isa.form import (
    KIND_F8F6F4,
    KIND_MXF4,
    KIND_MXF4NVF4,
    KIND_MXF8F6F4,
    ElementType,
    ProductForm,
    element_type,
)
from ...dialect.isa.wmma import WmmaMma
from . import f64 as numerics_f64
from . import floats
from .floats import Array
from .fused_sum import (
    Multiplicand,
    Truncation,
    decoded,
    dot,
    fdp,
    group_dots,
    grouped_sum,
    multiplicand,
    small_codes,
    small_values,
    spread,
)

Row = ProductForm

# How each architecture computes: the parameters, and where they come from.

ALGORITHMS = FUSED, WIDENED, SCALAR, CHAIN, GROUPED, INTEGER, BITS = (
    "fused", "widened", "scalar", "chain", "grouped", "integer", "bits",
)  # fmt: skip
"""The algorithms, which docs/arithmetic.md explains."""


@dataclass(frozen=True, slots=True)
class Arithmetic(Truncation):
    """How an architecture, and later ones up to the next row, multiplies operands of one family.

    With `half_addend`, an f16 C enters a sum with f32 D as it is, and a subnormal one has the least exponent of f16.
    Without it, C is converted to f32 first. `evidence` names the source.
    """

    sm: int
    family: str
    algorithm: str
    evidence: str
    sparse: bool = False
    half_addend: bool = False

    @property
    def arch(self) -> str:
        """The first architecture it is about, such as "sm_80"."""
        return f"sm_{self.sm}"

    @property
    def confirmed(self) -> bool:
        """Whether a GPU agreed word for word, in recordings that the tests replay."""
        return self.evidence.startswith(_H200)

    @property
    def compared(self) -> str:
        """Who compared it with a GPU of that architecture, word for word; "no one" if nobody did."""
        if self.confirmed:
            return "the tests"
        return next((who for said, who in _COMPARED.items() if self.evidence.startswith(said)), "no one")

    def __str__(self) -> str:
        return f"{self.arch} {self.family}{' sparse' if self.sparse else ''}"


_MODELS = "published models: MMA-Sim 2.1.1, MATLAB-tensor-core, arXiv 2511.10909 and 2512.07004"
_PUBLIC = (
    f"{_MODELS}; no difference from the 5000 dot products of moderate numbers per format that MATLAB-tensor-core "
    "recorded on V100, A100, A2, Ada, L40S, B200 (test/public_words.py)"
)
_COMPARED: Mapping[str, str] = MappingProxyType({
    _PUBLIC: "test/public_words.py",
    _MODELS: "the models' authors",
    "MMA-Sim": "the models' authors",
})  # fmt: skip
_H200 = "results of an H200 for normal, wide, subnormal, cancelling, random and special operands: no difference"
_LIKE_DENSE = "assumed, as no published model covers mma.sp: the selected products form blocks as in the dense form"
_EXACT = "the ISA defines the result exactly"
_ISA = f"{_EXACT} (9.7.14.5.14)"
_TENSOR_MEMORY = (
    "MMA-Sim 2.1.1's model of tcgen05.mma, of which test/public_models.py finds no difference; no recorded word is "
    "known to come from it"
)
_VOLTA = f"{_PUBLIC}; ptxas 12.4 assembles wmma to the machine instruction of m8n8k4"
_SASS = "machine code of ptxas 13.0"


def _blocks(sm: int, block: int, fraction: int, zero: int, evidence: str, sparse: str) -> tuple[Arithmetic, ...]:
    """f16, bf16 and tf32, dense and (with evidence for it) sparse; tf32 blocks have half as many products."""
    blocks = (("f16", block), ("bf16", block), ("tf32", block // 2))[: 3 if sm >= 80 else 1]
    return tuple(
        Arithmetic(sm, family, FUSED, why, dense == 1, block=block, fraction=fraction, zero_exponent=zero)
        for dense, why in enumerate((evidence, sparse))
        if why
        for family, block in blocks
    )


ROWS: tuple[Arithmetic, ...] = (
    # Half precision, bf16, tf32
    Arithmetic(70, "f16", FUSED, _VOLTA, block=4, fraction=23, zero_exponent=-131, half_addend=True),
    *_blocks(75, 8, 24, -132, _MODELS, ""),
    *_blocks(80, 8, 24, -132, _PUBLIC, _LIKE_DENSE),
    *_blocks(90, 16, 25, -133, _H200, _H200),
    *_blocks(100, 16, 25, -133, _PUBLIC, _LIKE_DENSE),
    # wmma m16n16k8 of tf32: on an H200 four products at a time, unlike mma
    Arithmetic(80, "wmma tf32", FUSED, _PUBLIC, block=4, fraction=24, zero_exponent=-132),
    Arithmetic(90, "wmma tf32", FUSED, _H200, block=4, fraction=25, zero_exponent=-133),
    Arithmetic(100, "wmma tf32", FUSED, _PUBLIC, block=4, fraction=25, zero_exponent=-133),
    # m8n8k4: the tensor core's own on sm_70, which sm_75 still has; multiply-adds of single elements from sm_80
    *(
        Arithmetic(sm, "m8n8k4", FUSED, why, block=4, fraction=23, zero_exponent=-131, half_addend=True)
        for sm, why in ((70, _MODELS), (75, f"{_MODELS}; ptxas 12.4 assembles it to the instruction of sm_70"))
    ),
    Arithmetic(80, "m8n8k4", SCALAR, f"{_SASS} for sm_90; assumed for the others"),
    Arithmetic(90, "m8n8k4", SCALAR, _H200),
    Arithmetic(100, "m8n8k4", SCALAR, f"{_SASS} for sm_90; assumed for the others"),
    # 8-bit floating point
    Arithmetic(89, "fp8", FUSED, _PUBLIC, block=16, fraction=13, zero_exponent=-132, mantissa=13),
    Arithmetic(89, "fp8", FUSED, _LIKE_DENSE, sparse=True, block=16, fraction=13, zero_exponent=-132, mantissa=13),
    *(
        Arithmetic(sm, "fp8", WIDENED, why, sparse, block=16, fraction=25, zero_exponent=-133)
        for sm, sparse, why in (
            (90, False, _H200),
            (90, True, _H200),
            (100, False, f"{_PUBLIC}; {_SASS} converts the operands as for sm_90"),
            (100, True, "assumed: as on sm_90"),
        )
    ),
    Arithmetic(120, "fp8", FUSED, _MODELS, block=32, fraction=25, zero_exponent=-133),
    Arithmetic(120, "fp8", FUSED, _LIKE_DENSE, sparse=True, block=32, fraction=25, zero_exponent=-133),
    # The narrow floating-point types, with and without scales
    *(
        Arithmetic(100, family, FUSED, why, sparse=sparse, block=32, fraction=25, zero_exponent=-133)
        for family in (KIND_F8F6F4, KIND_MXF8F6F4)
        for sparse, why in ((False, _MODELS), (True, _LIKE_DENSE))
    ),
    *(
        Arithmetic(100, KIND_MXF4, GROUPED, why, sparse=sparse, block=64, fraction=35, zero_exponent=-139)
        for sparse, why in ((False, _MODELS), (True, _LIKE_DENSE))
    ),
    # Double precision
    Arithmetic(80, "f64", CHAIN, "assumed: as on sm_90"),
    Arithmetic(90, "f64", CHAIN, _H200),
    Arithmetic(100, "f64", CHAIN, "assumed: as on sm_90"),
    # Integers and single bits
    *(
        Arithmetic(sm, family, algorithm, _H200 if sm == 90 else why, sparse)
        for sm, family, algorithm, why in (
            (72, "int8", INTEGER, _ISA),
            (90, "int8", INTEGER, _H200),
            (100, "int8", INTEGER, _ISA),
            (75, "int4", INTEGER, _ISA),
            (90, "int4", INTEGER, f"{_H200}; made of two s8 products, the first from 0, which is the same sum"),
            (100, "int4", INTEGER, _ISA),
        )
        for sparse in (False, True)
    ),
    # Warpgroups: one block an instruction
    *(
        Arithmetic(
            90, f"wgmma {name}", FUSED, _H200, sparse, block=block, fraction=bits, zero_exponent=-133, mantissa=kept
        )
        for name, block, bits, kept in (
            ("f16", 16, 25, 23),
            ("bf16", 16, 25, 23),
            ("tf32", 8, 25, 23),
            ("fp8", 32, 13, 13),
        )
        for sparse in (False, True)
    ),
    Arithmetic(90, "wgmma int8", INTEGER, _H200),
    Arithmetic(90, "wgmma int8", INTEGER, _H200, sparse=True),
    Arithmetic(90, "wgmma b1", BITS, _H200),
    # Tensor memory: one block an instruction
    *(
        Arithmetic(100, f"tcgen05 {name}", algorithm, why, sparse, block=block, fraction=fraction, zero_exponent=zero)
        for name, algorithm, block, fraction, zero in (
            ("f16", FUSED, 16, 25, -133),
            ("bf16", FUSED, 16, 25, -133),
            ("tf32", FUSED, 8, 25, -133),
            (KIND_F8F6F4, FUSED, 32, 25, -133),
            (KIND_MXF8F6F4, FUSED, 32, 25, -133),
            (KIND_MXF4, GROUPED, 64, 35, -139),
        )
        for sparse, why in ((False, _TENSOR_MEMORY), (True, _LIKE_DENSE))
    ),
    *(Arithmetic(100, "tcgen05 int8", INTEGER, f"{_EXACT} (9.7.16.10)", sparse) for sparse in (False, True)),
    Arithmetic(75, "b1", BITS, _ISA),
    Arithmetic(90, "b1", BITS, _H200),
    Arithmetic(100, "b1", BITS, _ISA),
)
"""By architecture and family of operands."""


def family(row: Row) -> str:
    """The family of an instruction's operands, as `Arithmetic.family` has it."""
    if row.kind:
        return row.UNIT + (KIND_MXF4 if row.kind == KIND_MXF4NVF4 else row.kind)
    if row.products > 1:
        return "m8n8k4"
    if isinstance(row, WmmaMma) and row.a.name == "tf32":
        return "wmma tf32"
    narrow = 1 < row.a.bits <= 8
    return row.UNIT + (f"{'fp' if row.a.is_float else 'int'}{row.a.bits}" if narrow else row.a.name)


@cache
def arithmetic(target: str, row: Row) -> Arithmetic:
    """The arithmetic of an instruction on a target such as "sm_100" or "sm_90a".

    A target without a row of its own has the arithmetic of the nearest lower one: sm_103 that of sm_100. Raises
    ValueError for a target that cannot be parsed, or an instruction without a known arithmetic there.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", target)
    if match is None:
        raise ValueError(f"unknown target '{target}'; a target is written like sm_90a")
    wanted, sparse = family(row), row.sparse
    rows = [a for a in ROWS if a.family == wanted and a.sparse == sparse]
    older = [a for a in rows if a.sm <= int(match[1])]
    if not older:
        first = min((a.sm for a in rows), default=0)
        raise ValueError(f"no arithmetic of {row.spelling} is known for {target}; the oldest is sm_{first}")
    return max(older, key=lambda a: a.sm)


# Integer products: s8, u8, s4, u4 and single bits.
#
# Sums are exact, then cut to 32 bits: they wrap or, with `.satfinite`, are clamped. Products of bytes are summed in
# f32, which is exact: 64 products of at most 255 * 255 stay below 2^24 as long as half of them are zeros (A sparse),
# and no instruction has more.

_LOW, _TOP = -(1 << 31), (1 << 31) - 1


def values(words: Array, element: ElementType) -> Array:
    """Bytes that hold one element each, as f32."""
    if not element.signed:
        return words.astype(np.float32)
    if element.bits == 8:
        return words.view(np.int8).astype(np.float32)
    return ((words ^ np.uint8(8)).astype(np.int8) - np.int8(8)).astype(np.float32)


def add(sums: Array, c: Array, satfinite: bool) -> Array:
    """C plus the sums, as 32-bit words."""
    total = sums + c.view(np.int32)
    if satfinite:
        total = np.clip(total, _LOW, _TOP)
    return total.astype(np.int32).view(np.uint32)


def bits(a: Array, b: Array, c: Array, op: str) -> Array:
    """C plus the number of ones in the xor, or the and, of words of A (k / 32, m, warps) and B (k / 32, n, warps)."""
    function = np.bitwise_xor if op == "xor" else np.bitwise_and
    total = c.copy()
    for row, column in zip(a, b, strict=True):
        total += np.bitwise_count(function(row[:, None], column[None]))
    return total


# Matrix instructions that an architecture has no unit for: ptxas makes them of others.
#
# **8-bit floats on sm_90 and sm_100** are widened to f16, exactly. P are the products with k mod 4 < 2, Q the others;
# t = fused(P, 0), t = fused(Q, t), D = C + t, an ordinary addition to nearest, of f32 or f16. For `mma.sp` P and Q go
# by the place of an element among the stored ones. Read in machine code of ptxas 13.0, and replayed.
#
# **m8n8k4 with f16 from sm_80 on** is made of scalar instructions, see `scalar_product`.

_F16 = element_type("f16")


@cache
def _as_halves(kind: ElementType) -> Array:
    """The f16 word of each word of e4m3 or e5m2."""
    return small_values(kind).astype(np.float16).view(np.uint16)


def widened_product(
    core: Arithmetic, a: Array, b: Array, c: Array, types: tuple[ElementType, ElementType, str], where: Array | None
) -> Array:
    """D = A * B + C of words of 8-bit floats; `where` are the columns of a stored A."""
    left, right = _as_halves(types[0]).take(a), _as_halves(types[1]).take(b)
    first = np.arange(len(left)) % 4 < 2
    total = np.zeros_like(c)
    unblocked = replace(core, block=len(b))
    for chosen in (first, ~first):
        if where is None:
            x, y = multiplicand(left[chosen], _F16), multiplicand(right[chosen], _F16)
        else:
            x, y = spread_multiplicand(left[chosen], where[chosen], len(b), _F16), multiplicand(right, _F16)
        total = fdp(unblocked, x, y, total, types[2])
    return plus(c, total, types[2])


def spread_multiplicand(stored: Array, where: Array, depth: int, element: ElementType, kind: str = "") -> Multiplicand:
    """Stored elements of a sparse A, decoded, at their columns."""
    present = spread(np.ones(stored.shape, np.bool_), where, depth)
    return multiplicand(spread(stored, where, depth), element, kind).where(present)


def as_singles(words: Array) -> Array:
    """f16 words as f32 words."""
    return floats.single(words, "f16").view(np.uint32)


def plus(c: Array, sums: Array, d: str) -> Array:
    """C + sums as an ordinary addition to nearest of f32 or f16 words."""
    kind = np.float32 if d == "f32" else np.float16
    with np.errstate(all="ignore"):
        total = c.view(kind) + sums.view(kind)
    return floats.canonical(total.view(c.dtype), total, d)


def scalar_product(a: Array, b: Array, c: Array, d: str) -> Array:
    """m8n8k4 of f16: A (4, m, warps), B (4, n, warps), words; C and D of type `d`. With f32 sums t is a chain of fused
    multiply-adds from 0, k ascending, and D = C + t. With f16 sums it is (C + p01) + p23 in f32, p01 and p23 being two
    products each, rounded to f16 once."""
    x, y = (words.view(np.float16).astype(np.float32) for words in (a, b))
    left, right = x[:, :, None], y[:, None]
    with np.errstate(all="ignore"):
        if d == "f32":
            total = np.zeros(c.shape, np.float32)
            for row, column in zip(left, right, strict=True):
                total = _fma(row, column, total)
            return plus(c, total.view(np.uint32), d)
        total = c.view(np.float16).astype(np.float32)
        for k in (0, 2):
            pair = _fma(left[k + 1], right[k + 1], left[k] * right[k])
            total = total + pair
        result = total.astype(np.float16)
    return floats.canonical(result.view(np.uint16), result, d)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once, of arrays that broadcast to c."""
    x, y = (np.broadcast_to(v, c.shape).reshape(-1) for v in (a, b))
    return floats.fma32(x, y, c.reshape(-1)).reshape(c.shape)


# What a matrix instruction computes: from its row and the target to a function of matrices.
#
# Matrices are arrays of words as `fragments` makes them of registers: A is (k, m, warps), of a sparse A the stored
# elements, B (k, n, warps), C and D (m, n, warps).


@dataclass(frozen=True, slots=True)
class SideOperands:
    """The columns of stored elements of A; the scales of A and B as words (vector, rows or columns, warps)."""

    columns: Array | None = None
    scale_a: Array | None = None
    scale_b: Array | None = None


@dataclass(frozen=True)
class MatrixProduct:
    """D = A * B + C as `row` says, in the arithmetic of an architecture."""

    row: Row
    core: Arithmetic

    @staticmethod
    def on(target: str, row: Row) -> MatrixProduct:
        """The product on a target such as "sm_90a". Raises ValueError if no arithmetic of it is known there."""
        return MatrixProduct(row, arithmetic(target, row))

    def __call__(self, a: Array, b: Array, c: Array, extras: SideOperands | None = None) -> Array:
        d = _COMPUTE[self.core.algorithm](self, a, b, c, extras or SideOperands())
        row = self.row
        return _clamped(d, row.d) if isinstance(row, WmmaMma) and row.satfinite and row.d.is_float else d


def _clamped(words: Array, type: ElementType) -> Array:
    """No infinities: the largest number in their place, and +0 in that of a NaN."""
    magnitude, infinity = (1 << type.bits - 1) - 1, ((1 << type.exponent) - 1) << type.mantissa
    size = words & words.dtype.type(magnitude)
    finite = np.where(size == infinity, words - words.dtype.type(1), words)
    return np.where(size > infinity, words.dtype.type(0), finite)


def _fused(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    row, d = p.row, p.row.d.name
    if row.c.name == "f32" and d == "f16":
        # wmma alone has such forms: the sum is f32, and then rounded again.
        with np.errstate(all="ignore"):
            return floats.rounded(floats.value(_sum(p, a, b, c, "f32", extras), "f32"), "f16")
    return _sum(p, a, b, c if row.c == row.d or p.core.half_addend else as_singles(c), d, extras)


def _sum(p: MatrixProduct, a: Array, b: Array, c: Array, d: str, extras: SideOperands) -> Array:
    row = p.row
    if extras.columns is None:
        left = multiplicand(a, row.a, row.kind)
    else:
        left = spread_multiplicand(a, extras.columns, len(b), row.a, row.kind)
    right = multiplicand(b, row.b, row.kind)
    if extras.scale_a is None or extras.scale_b is None or row.scale is None:
        return fdp(p.core, left, right, c, d)
    (sa, ea), (sb, eb) = (decoded(s[0], row.scale.type) for s in (extras.scale_a, extras.scale_b))
    result = fdp(p.core, left, right, c, d, ea[:, None] + eb[None])
    result[np.isnan(sa[:, None] * sb[None])] = floats.NAN[d]
    return result


def _grouped(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    row = p.row
    if extras.scale_a is None or extras.scale_b is None or row.scale is None:
        raise ValueError(f"{row.spelling} has no scales")
    x, y = (small_values(t).take(small_codes(w, t, row.kind)) for w, t in ((a, row.a), (b, row.b)))
    dots, sizes = (group_dots(*pair, len(a) // 16, extras.columns) for pair in ((x, y), (np.abs(x), np.abs(y))))
    return grouped_sum(p.core, dots, sizes == 0, c, extras.scale_a, extras.scale_b, row.scale.type)


def _integer(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    x = values(a, p.row.a) if extras.columns is None else spread(values(a, p.row.a), extras.columns, len(b))
    return add(dot(x, values(b, p.row.b)).astype(np.int64), c, p.row.satfinite)


_COMPUTE: dict[str, Callable[[MatrixProduct, Array, Array, Array, SideOperands], Array]] = {
    FUSED: _fused,
    WIDENED: lambda p, a, b, c, extras: widened_product(
        p.core, a, b, c, (p.row.a, p.row.b, p.row.d.name), extras.columns
    ),
    SCALAR: lambda p, a, b, c, _: scalar_product(a, b, c if p.row.c == p.row.d else as_singles(c), p.row.d.name),
    CHAIN: lambda p, a, b, c, _: numerics_f64.chain(a, b, c, p.row.rounding or "rn"),
    GROUPED: _grouped,
    INTEGER: _integer,
    BITS: lambda p, a, b, c, _: bits(a, b, c, getattr(p.row, "bit_op", "") or "xor"),
}
