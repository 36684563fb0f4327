"""What is known of A and B wherever they are multiplied: of a product in memory, and of its tiles in shared memory."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from xdsl.ir import Operation

from ...dialect.isa import mma
from ...dialect.isa.mma import Variant
from ...dialect.isa.product import IN_BYTES
from ...dialect.isa.types import ELEMENT_TYPES, ElementType
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.stored import StoredIntegers
from ...dialect.warp.tile_mma import TileMmaOp


class MatrixFactor(Protocol):
    """A or B: the type that it is multiplied as, and whether memory holds its transpose."""

    @property
    def element(self) -> ElementType: ...

    @property
    def transposed(self) -> bool: ...

    @property
    def stored(self) -> StoredIntegers | None:
        """What memory holds, of one that is converted on the way."""
        ...


class Multiplied(Protocol):
    """A product by its factors; `op` is the operation that errors name."""

    @property
    def op(self) -> Operation: ...

    @property
    def a(self) -> MatrixFactor: ...

    @property
    def b(self) -> MatrixFactor: ...

    @property
    def variant(self) -> Variant:
        """What tells its instructions from others for the same element types."""
        ...

    @property
    def sparsity(self) -> int:
        """How many elements of A there are for each that is stored."""
        ...


def along_k(product: Multiplied, role: str) -> bool:
    """Whether k runs along the rows of operand "a" or "b" in memory."""
    return not product.a.transposed if role == "a" else product.b.transposed


def block(product: Multiplied) -> int:
    """How many elements along k share a scale; 0 where there are none."""
    return mma.blocks()[product.variant] if product.variant.scale_type else 0


def shared_bits(product: Multiplied, factor: MatrixFactor) -> int:
    """Bits that an element of A or B takes in shared memory, where some instructions want a byte for each."""
    held = factor.element if factor.stored is None else factor.stored.element
    return BYTE if product.variant.kind in IN_BYTES else held.memory_bits


class TileFactor(NamedTuple):
    """A tile of A or B in shared memory."""

    element: ElementType
    transposed: bool
    stored: StoredIntegers | None = None


class TileProduct(NamedTuple):
    """The product of tiles that a verified `warp.tile_mma` computes."""

    op: TileMmaOp
    a: TileFactor
    b: TileFactor
    variant: Variant
    sparsity: int

    @staticmethod
    def of(op: TileMmaOp) -> TileProduct:
        """What an operation multiplies."""
        turned = (op.transposed_a is not None, op.transposed_b is not None)
        held = zip(op.multiplied, turned, (None, op.b_stored), strict=True)
        a, b = (TileFactor(ELEMENT_TYPES[name], across, stored) for name, across, stored in held)
        return TileProduct(op, a, b, op.variant, op.sparsity)
