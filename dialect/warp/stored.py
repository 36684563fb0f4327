"""Operands that memory holds as integers, or floats, of few bits, and that are multiplied as f16 or bf16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import AnyFloat, IntegerAttr, MemRefType, NoneAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES, ElementType
from ..isa.mma import Variant
from ..layouts.layout import Layout
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, element_row, memory_of
from .op_shapes import MEMORY, OperandForm

INTEGERS = ("s8", "u8", "s4", "u4")
FLOATS = ("f16", "bf16")
BYTES = ("s8", "e4m3")
"""Types of 8 bits that integers of 4 bits are multiplied as, by warpgroups."""

NIBBLES, EXPONENTS = "e2m1", "ue8m0"
"""Floats of 4 bits, which packed weights may be, and the powers of two that the scales of their groups may be."""

SMALLER = 2.0**-6
"""Of what weights of bf16 are, what one multiply-add makes of integers (`to_ptx/widening.py`)."""

PACKED = {
    4: Layout.parse("c1 c2 r0 r1 r2 | r3 c3 c0 c4 c5 | r4 r5"),
    8: Layout.parse("c1 c2 r0 r1 r2 | r3 c0 c3 c4 | r4 r5"),
}
"""The order of packed weights of so many bits: blocks of 64 columns of B, the rows of the layout, by as many k as give
each of the 128 threads of a warpgroup 16 bytes. Elements of a thread follow one another, then threads. Those of a
register that a product multiplies are half a word apart (`to_ptx/widening.py`)."""

LINE = 128
"""Bytes of a line of packed weights: a row of their memory."""


BLOCK_LINES = 16
"""Lines of a block."""


def packed_lines(n: int, k: int, bits: int) -> int:
    """Lines of packed weights of n x k elements of so many bits, in blocks along k, then along n."""
    return n * k * bits // BYTE // LINE


class StoredIntegers(NamedTuple):
    """The integers that memory holds of an operand, in a type of the ISA. A zero point is subtracted from each. The
    differences, of at most 9 bits, are exact in f16 and bf16. If they are `rounded`, each is multiplied by its scale
    before the product, and rounded to the multiplied type."""

    name: str
    zero: int = 0
    rounded: bool = False

    @property
    def element(self) -> ElementType:
        """The type of the integers."""
        return ELEMENT_TYPES[self.name]

    @property
    def multiplied_as(self) -> tuple[str, ...]:
        """The types that have the differences exactly."""
        return (*FLOATS, *BYTES) if self.element.bits < BYTE else FLOATS

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer."""
        half = 1 << self.element.bits - 1
        return (-half, half - 1) if self.element.signed else (0, 2 * half - 1)

    def __str__(self) -> str:
        zero = f" minus {self.zero}" if self.zero else ""
        return f"as {self.name}{zero}{' rounded' * self.rounded}"

    def properties(self) -> dict[str, Attribute]:
        """The properties of an operation that stores this."""
        zero = {"zero": IntegerAttr(self.zero, i64)} if self.zero else {}
        return {"stored": StringAttr(self.name), **zero}

    @staticmethod
    def of(stored: StringAttr | None, zero: IntegerAttr | None) -> StoredIntegers | None:
        """What the properties of an operation say; None where they say nothing."""
        return None if stored is None else StoredIntegers(stored.data, 0 if zero is None else zero.value.data)

    def verify(self, multiplied: str, stored: ElementType | None) -> None:
        """Checks the multiplied type, and the element type of memory. Raises VerifyException if there is no such
        conversion."""
        if self.name == NIBBLES and multiplied == "bf16" and stored == self.element and not self.zero:
            return
        if self.name not in INTEGERS or multiplied not in self.multiplied_as:
            raise VerifyException(
                f"expected {', '.join(INTEGERS)} multiplied as {' or '.join(FLOATS)}, those of 4 bits as "
                f"{' or '.join(BYTES)} too, got {self.name} as {multiplied}"
            )
        if stored is None or stored.is_float or stored.bits != self.element.bits:
            raise VerifyException(f"expected memory of {self.element.bits}-bit integers for {self.name}")
        low, high = self.limits
        if not low <= self.zero <= high:
            raise VerifyException(f"expected a zero point from {low} to {high}, got {self.zero}")


@irdl_op_definition
class StoredOp(OperandForm):
    """A B that memory holds as integers of 8 or 4 bits. The kernel subtracts a zero point, and multiplies them as f16
    or bf16::

        %weights = warp.stored %Q as u4 minus 8 : memref<512x64xi4>
        warp.matmul bf16 x bf16 %A, %weights init 0.0 : f32 into %D : memref<16x512xbf16>, !warp.operand<...>, ...

    Groups of neighbours along k may have floating-point scales. The scales have the dimensions of B in the same order.
    The kernel adds the products of a group, and multiplies the sum in each column by the scale of the group in that
    column; of packed weights it may scale and round each instead. With `rounded`, it multiplies each integer by its
    scale instead, and rounds the result to the type that is multiplied, which the scales have too::

        %weights = warp.stored %Q as s4 times %S : memref<512x64xi4>, memref<4x64xbf16>
        %weights = warp.stored %Q as s8 rounded times %S : memref<512x64xi8>, memref<1x64xbf16>

    Weights that are `packed`, which may be floats of 4 bits (e2m1) of bf16, lie in the order of `PACKED`, in lines of
    128 bytes. Their groups may have zero points too, of the type that is multiplied, to which differences are rounded::

        %weights = warp.stored %Q as u4 rounded times %S less %Z {packed}
            : memref<128x256xi4>, memref<4x64xbf16>, memref<4x64xbf16>

    In a kernel, where these are tiles, `group` has the elements along k of a group.
    """

    name = "warp.stored"

    memory = operand_def(MEMORY)
    scales = opt_operand_def(MemRefType)
    points = opt_operand_def(MemRefType)
    stored = prop_def(StringAttr)
    zero = opt_prop_def(IntegerAttr[i64])
    rounded = opt_prop_def(UnitAttr)
    packed = opt_prop_def(UnitAttr)
    group = opt_prop_def(IntegerAttr[i64])

    SIDES: ClassVar = "B"
    assembly_format = (
        "$memory `as` custom<BareWord>($stored) (`minus` $zero^)? (`rounded` $rounded^)? (`times` $scales^)?"
        " (`less` $points^)? attr-dict"
        " `:` type($memory) custom<TypeOfOptional>(`,`, type($scales)) custom<TypeOfOptional>(`,`, type($points))"
    )

    def __init__(
        self,
        memory: SSAValue,
        integers: StoredIntegers,
        scales: SSAValue | None = None,
        points: SSAValue | None = None,
        *,
        packed: bool = False,
        group: int = 0,
    ):
        own = {"rounded": integers.rounded, "packed": packed, "group": group or None}
        super().__init__(memory, scales, points, **integers.properties(), **own)

    @property
    def integers(self) -> StoredIntegers:
        """The integers in memory."""
        zero = 0 if self.zero is None else self.zero.value.data
        return StoredIntegers(self.stored.data, zero, self.rounded is not None)

    def verify_multiplied(self, name: str) -> None:
        self.integers.verify(name, element_row(memory_of(self.memory).element_type))

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        if self.packed is not None:
            self._verify_packed(sizes)
        elif self.points is not None or self.integers.name == NIBBLES:
            raise VerifyException("expected packed weights, the only ones that are floats or have zero points")
        if self.points is not None and (self.scales is None or self.points.type != self.scales.type):
            raise VerifyException(f"expected zero points of the type of the scales, got {self.points.type}")
        if self.scales is None:
            if self.rounded is not None:
                raise VerifyException("expected scales that integers are rounded with: `rounded times %scales`")
            return
        scales, (*outer, n, k) = memory_of(self.scales), sizes
        shape = dict(zip(order, scales.get_shape(), strict=False))
        if outer or len(shape) != scales.get_num_dims() or not isinstance(scales.element_type, AnyFloat):
            raise VerifyException(
                f"expected scales of groups as a matrix of floats for one B of integers, got {scales}"
            )
        if min(shape.values()) < 1 or shape[0] != n or k % shape[1]:
            raise VerifyException(f"expected {n} columns of scales of groups that divide k of {k}, got {scales}")
        if self.packed is not None and (self.group is None or self.group.value.data * shape[1] != k):
            raise VerifyException(f"expected group = {k // shape[1]}, as the scales have it")
        if self.rounded is not None and str(scales.element_type) != multiplied and self.integers.name != NIBBLES:
            raise VerifyException(
                f"expected scales of {multiplied}, to which products with them are rounded, got {scales}"
            )

    def _verify_packed(self, sizes: Sequence[int]) -> None:
        """Checks that packed weights consist of whole blocks, in lines."""
        packed, (*outer, n, k), bits = memory_of(self.memory), sizes, self.integers.element.bits
        rows, columns = PACKED[bits].rows, PACKED[bits].columns
        if outer or n % rows or k % columns:
            raise VerifyException(f"expected packed weights of multiples of {rows} x {columns}, got {n} x {k}")
        expected = (packed_lines(n, k, bits), LINE * BYTE // bits)
        if packed.get_shape() != expected or not isinstance(packed.layout, NoneAttr):
            raise VerifyException(f"expected packed weights in {expected[0]} lines of {expected[1]}, got {packed}")
