"""Operands of products that are more than their elements in memory: `!warp.operand`, and what makes one.

Each form is an operation in a file of its own: a sparse matrix has metadata (`sparse.py`), blocks have scales
(`scaling.py`), integers are converted (`stored.py`). A product takes the value that it makes in the matrix's place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParamAttrConstraint,
    VarConstraint,
    base,
    irdl_attr_definition,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa.mma import Variant
from ..isa.types import ELEMENT_TYPES, ElementType
from .attributes import Memory, element_row, memory_of
from .pointwise import PointwiseOp


@irdl_attr_definition
class OperandType(ParametrizedAttribute, TypeAttribute):
    """An operand of a product that is more than plain memory, such as a sparse matrix. Its elements are in memory of
    this type: `!warp.operand<memref<256x96xf16>>`."""

    name = "warp.operand"

    memory: MemRefType


MEMORY = VarConstraint("Memory", base(MemRefType))


class OperandForm(IRDLOperation, ABC):
    """Says how a product reads a matrix in memory, its first operand, and what else it reads for it, the others."""

    operand = result_def(ParamAttrConstraint(OperandType, (MEMORY,)))

    traits = traits_def(Pure())

    SIDES: ClassVar = "AB"
    """The operands of a product that may be of this form."""

    @property
    def matrix(self) -> SSAValue:
        """The elements in memory."""
        return self.operands[0]

    @property
    def sparsity(self) -> int:
        """How many elements the matrix has along k for each in memory."""
        return 1

    @property
    def beside(self) -> Sequence[SSAValue]:
        """Memory that is read beside the elements."""
        return self.operands[1:]

    @abstractmethod
    def of(self, memory: SSAValue, beside: Sequence[SSAValue]) -> OperandForm:
        """The same form of other memory."""

    def verify_multiplied(self, name: str) -> None:
        """Checks that the elements can be multiplied as a type of the ISA, of that name.

        Raises:
            VerifyException: if they cannot.
        """
        verify_held(memory_of(self.matrix), name)

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        """Checks what is read beside the elements of a matrix, "A" or "B" of a product, which is multiplied as a type.

        `sizes` are those of the batch, of rows of A or columns of B, and of k, below 0 where they are not known;
        `order` says which of them the dimensions of the matrix have.

        Raises:
            VerifyException: saying how much is expected.
        """


def form_of(value: SSAValue) -> OperandForm | None:
    """The form of an operand of a product; None of one that is all in memory, or in registers."""
    return value.owner if isinstance(value.owner, OperandForm) else None


def matrix_behind(value: SSAValue) -> SSAValue:
    """The elements of an operand of a product: memory, or registers."""
    form = form_of(value)
    return value if form is None else form.matrix


def memories_behind(value: SSAValue) -> tuple[SSAValue, ...]:
    """The elements of an operand of a product, and what is read beside them."""
    form = form_of(value)
    return (value,) if form is None else (form.matrix, *form.beside)


def of_form(
    form: OperandForm | None,
    memory: SSAValue,
    beside: Sequence[SSAValue],
    insert: Callable[[OperandForm], object],
) -> SSAValue:
    """An operand of this form, or of none, of other memory; `insert` puts the operation that makes it where it goes."""
    if form is None:
        return memory
    made = form.of(memory, beside)
    made.operand.name_hint = form.operand.name_hint
    insert(made)
    return made.operand


def drop_forms(values: Sequence[SSAValue | None]) -> None:
    """Erases forms of operands that nothing multiplies any more, and functions of elements that nothing computes."""
    for value in dict.fromkeys(values):
        if value is not None and isinstance(made := value.owner, OperandForm | PointwiseOp) and not value.uses:
            made.detach()
            made.erase()


def verify_held(memory: Memory, name: str) -> None:
    """Checks that memory can be read as a type of the ISA, of that name: its elements', or the same bits.

    Raises:
        VerifyException: if it cannot.
    """
    if not _holds(element_row(memory.element_type), ELEMENT_TYPES[name]):
        raise VerifyException(f"{memory} cannot be multiplied as {name}")


def _holds(row: ElementType | None, multiplied: ElementType) -> bool:
    if row is None or multiplied.name == "tf32":
        return row is not None and row.name == "f32"
    return row == multiplied or (not (row.is_float or multiplied.is_float) and row.bits == multiplied.bits)
