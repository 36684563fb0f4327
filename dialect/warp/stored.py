"""Operands that memory holds as integers of 8 or 4 bits, and that are multiplied as f16 or bf16: `warp.stored`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import AnyFloat, IntegerAttr, MemRefType, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant
from ..isa.types import ELEMENT_TYPES, ElementType
from .attributes import element_row, memory_of
from .operand_forms import MEMORY, OperandForm, OperandType, form_of
from .text import BareWord, TypeOfOptional

INTEGERS = ("s8", "u8", "s4", "u4")
FLOATS = ("f16", "bf16")


class StoredIntegers(NamedTuple):
    """What memory holds of an operand: integers of a type of the ISA, from each of which a zero point is subtracted.

    Their differences, of 9 bits at most, are f16 and bf16 exactly.
    """

    name: str
    zero: int = 0

    @property
    def element(self) -> ElementType:
        """The type of the integers."""
        return ELEMENT_TYPES[self.name]

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer."""
        half = 1 << self.element.bits - 1
        return (-half, half - 1) if self.element.signed else (0, 2 * half - 1)

    def __str__(self) -> str:
        return f"as {self.name} minus {self.zero}" if self.zero else f"as {self.name}"

    def properties(self) -> dict[str, Attribute]:
        """How an operation holds it."""
        zero = {"zero": IntegerAttr(self.zero, i64)} if self.zero else {}
        return {"stored": StringAttr(self.name), **zero}

    @staticmethod
    def of(stored: StringAttr | None, zero: IntegerAttr | None) -> StoredIntegers | None:
        """What the properties of an operation say; None where they say nothing."""
        return None if stored is None else StoredIntegers(stored.data, 0 if zero is None else zero.value.data)

    def verify(self, multiplied: str, held: ElementType | None) -> None:
        """Checks the type that it is multiplied as, and that of the elements of memory.

        Raises:
            VerifyException: if there is no such conversion.
        """
        if self.name not in INTEGERS or multiplied not in FLOATS:
            raise VerifyException(
                f"expected {', '.join(INTEGERS)} multiplied as {' or '.join(FLOATS)}, got {self.name} as {multiplied}"
            )
        if held is None or held.is_float or held.bits != self.element.bits:
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
    column::

        %weights = warp.stored %Q as s4 times %S : memref<512x64xi4>, memref<4x64xbf16>
    """

    name = "warp.stored"

    memory = operand_def(MEMORY)
    scales = opt_operand_def(MemRefType)
    stored = prop_def(StringAttr)
    zero = opt_prop_def(IntegerAttr[i64])

    SIDES: ClassVar = "B"
    custom_directives: ClassVar = (BareWord, TypeOfOptional)
    assembly_format = (
        "$memory `as` custom<BareWord>($stored) (`minus` $zero^)? (`times` $scales^)? attr-dict"
        " `:` type($memory) custom<TypeOfOptional>(`,`, type($scales))"
    )

    def __init__(self, memory: SSAValue, integers: StoredIntegers, scales: SSAValue | None = None):
        super().__init__(
            operands=[memory, [] if scales is None else [scales]],
            properties=integers.properties(),
            result_types=[OperandType(memory_of(memory))],
        )

    @property
    def integers(self) -> StoredIntegers:
        """What memory holds."""
        return StoredIntegers(self.stored.data, 0 if self.zero is None else self.zero.value.data)

    def of(self, memory: SSAValue, beside: Sequence[SSAValue]) -> StoredOp:
        return StoredOp(memory, self.integers, *beside)

    def verify_multiplied(self, name: str) -> None:
        self.integers.verify(name, element_row(memory_of(self.memory).element_type))

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        if self.scales is None:
            return
        held, (*outer, n, k) = memory_of(self.scales), sizes
        shape = dict(zip(order, held.get_shape(), strict=False))
        if outer or len(shape) != held.get_num_dims() or not isinstance(held.element_type, AnyFloat):
            raise VerifyException(f"expected scales of groups as a matrix of floats for one B of integers, got {held}")
        if min(shape.values()) < 1 or shape[0] != n or k % shape[1]:
            raise VerifyException(f"expected {n} columns of scales of groups that divide k of {k}, got {held}")


def stored_of(b: SSAValue) -> StoredIntegers | None:
    """What memory holds of a B that is converted on the way."""
    form = form_of(b)
    return form.integers if isinstance(form, StoredOp) else None


def group_scales_of(b: SSAValue) -> SSAValue | None:
    """The scales of groups along k of a B of integers."""
    form = form_of(b)
    return form.scales if isinstance(form, StoredOp) else None
