"""What a matrix instruction computes: from its row and the target to a function of matrices.

Matrices are arrays of words as `fragments` makes them of registers: A is (k, m, warps), of a sparse A the stored
elements, B (k, n, warps), C and D (m, n, warps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...dialect.isa.mma import Mma
from ...dialect.isa.mma_sp import MmaSparse
from ...dialect.isa.types import ElementType
from ...dialect.isa.wmma import WmmaMma
from . import f64 as numerics_f64
from . import integer as numerics_integer
from .array import Array
from .block_scale import decoded, group_dots, grouped_sum
from .emulated import as_halves, as_singles, scalar_product, spread_multiplicand, widened_product
from .fused_sum import F32_NAN, fdp
from .operands import multiplicand, small_codes, small_values
from .parameters import BITS, CHAIN, FUSED, GROUPED, INTEGER, SCALAR, WIDENED, Arithmetic, Row, arithmetic
from .sparse import spread


@dataclass(frozen=True, slots=True)
class SideOperands:
    """What some instructions take besides A, B and C: where the stored elements of a sparse A belong (`columns`), and
    the scales of A and B, as words (vector, rows or columns, warps)."""

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
        """The product on a target such as "sm_90a".

        Raises:
            ValueError: if no arithmetic of it is known there.
        """
        return MatrixProduct(row, arithmetic(target, row))

    def __call__(self, a: Array, b: Array, c: Array, extras: SideOperands | None = None) -> Array:
        d = _COMPUTE[self.core.algorithm](self, a, b, c, extras or SideOperands())
        row = self.row
        return _clamped(d, row.d) if isinstance(row, WmmaMma) and row.satfinite and row.d.is_float else d

    @property
    def kind(self) -> str:
        """The `.kind` of the narrow floating-point types, or ""."""
        return self.row.kind if isinstance(self.row, Mma | MmaSparse) else ""


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
        return as_halves(_sum(p, a, b, c, "f32", extras))
    return _sum(p, a, b, c if row.c == row.d or p.core.half_addend else as_singles(c), d, extras)


def _sum(p: MatrixProduct, a: Array, b: Array, c: Array, d: str, extras: SideOperands) -> Array:
    row = p.row
    if extras.columns is None:
        left = multiplicand(a, row.a, p.kind)
    else:
        left = spread_multiplicand(a, extras.columns, len(b), row.a, p.kind)
    right = multiplicand(b, row.b, p.kind)
    if extras.scale_a is None or extras.scale_b is None or not isinstance(row, Mma | MmaSparse) or row.scale is None:
        return fdp(p.core, left, right, c, d)
    (sa, ea), (sb, eb) = (decoded(s[0], row.scale.type) for s in (extras.scale_a, extras.scale_b))
    result = fdp(p.core, left, right, c, d, ea[:, None] + eb[None])
    result[np.isnan(sa[:, None] * sb[None])] = F32_NAN
    return result


def _widened(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    return widened_product(p.core, a, b, c, (p.row.a, p.row.b, p.row.d.name), extras.columns)


def _scalar(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    return scalar_product(a, b, c if p.row.c == p.row.d else as_singles(c), p.row.d.name)


def _chain(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    return numerics_f64.chain(a, b, c, getattr(p.row, "rounding", "") or "rn")


def _grouped(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    row = p.row
    if extras.scale_a is None or extras.scale_b is None or not isinstance(row, Mma | MmaSparse) or row.scale is None:
        raise ValueError(f"{row.spelling} has no scales")
    x, y = (small_values(t).take(small_codes(w, t, p.kind)) for w, t in ((a, row.a), (b, row.b)))
    dots, sizes = (group_dots(*pair, len(a) // 16, extras.columns) for pair in ((x, y), (np.abs(x), np.abs(y))))
    return grouped_sum(p.core, dots, sizes == 0, c, extras.scale_a, extras.scale_b, row.scale.type)


def _integers(p: MatrixProduct, a: Array, b: Array, extras: SideOperands) -> tuple[Array, Array]:
    """Values of A, dense, and B."""
    x = numerics_integer.values(a, p.row.a)
    return x if extras.columns is None else spread(x, extras.columns, len(b)), numerics_integer.values(b, p.row.b)


def _integer(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    x, y = _integers(p, a, b, extras)
    return numerics_integer.add(numerics_integer.dot(x, y), c, p.row.satfinite)


def _bits(p: MatrixProduct, a: Array, b: Array, c: Array, extras: SideOperands) -> Array:
    return numerics_integer.bits(a, b, c, getattr(p.row, "bit_op", "") or "xor")


_COMPUTE: dict[str, Callable[[MatrixProduct, Array, Array, Array, SideOperands], Array]] = {
    FUSED: _fused,
    WIDENED: _widened,
    SCALAR: _scalar,
    CHAIN: _chain,
    GROUPED: _grouped,
    INTEGER: _integer,
    BITS: _bits,
}
