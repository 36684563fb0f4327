"""What `warp.matmul` and `warp.epilogue` share: C, D, and the epilogue that makes the elements of D."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import IRDLOperation, operand_def, opt_operand_def
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of
from .loops import LoopSizes
from .pointwise import PointwiseOp, PointwiseType, pointwise_of


class WithEpilogue(IRDLOperation):
    """Stores to `d` what the function `through` makes of the elements of a product."""

    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    through = opt_operand_def(PointwiseType())

    @property
    def epilogue(self) -> PointwiseOp | None:
        """The epilogue, if there is one."""
        return pointwise_of(self.through)

    @property
    def placed_operands(self) -> list[tuple[SSAValue, AffineMap]]:
        """The operands of the epilogue, with the loops that they run along."""
        return [] if self.epilogue is None else self.epilogue.placed

    @property
    def epilogue_operands(self) -> list[SSAValue]:
        """The operands of the epilogue."""
        return [value for value, _ in self.placed_operands]

    @property
    def product_type(self) -> TypeAttribute:
        """The type that an element of the product is rounded to: D's, or what the epilogue takes."""
        kind = memory_of(self.d).element_type if self.epilogue is None else self.epilogue.taken
        if not isinstance(kind, TypeAttribute):
            raise VerifyException(f"expected elements of a type, got {kind}")
        return kind

    def verify_stored(self, loops: int, along: Sequence[int], sizes: LoopSizes) -> None:
        """Checks that C, if there is one, has the shape of D, which runs along some of so many loops, and the epilogue.

        Raises:
            VerifyException: if it has not, or the epilogue makes other elements, or of operands that lie otherwise.
        """
        if self.c is not None and memory_of(self.c).get_shape() != memory_of(self.d).get_shape():
            raise VerifyException(f"expected C of the shape of D, got {self.c.type} and {self.d.type}")
        if self.epilogue is not None:
            made = memory_of(self.d).element_type
            self.epilogue.verify_use("epilogue operand", made, loops, along, sizes)
