"""What a host function asks of how memory lies, and what it then knows."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

MEMORY = VarConstraint("Memory", base(MemRefType))


class _Divided(IRDLOperation):
    """An operation about memory and a number of elements."""

    divisor = prop_def(IntegerAttr[i64])

    traits = traits_def(Pure())

    @property
    def number(self) -> int:
        """The divisor, in elements."""
        return self.divisor.value.data

    def verify_(self) -> None:
        if self.number < 1:
            raise VerifyException(f"expected a divisor of 1 or more, got {self.number}")


@irdl_op_definition
class IsDivisibleOp(_Divided):
    """Whether, in this call, the rows of memory begin at multiples of a number of elements::

        %whole = warp.is_divisible %A by 8 : memref<?x?xbf16>

    It is true if the number divides the size of the contiguous dimension, every other stride, and the address of the
    first element.
    """

    name = "warp.is_divisible"

    memory = operand_def(MemRefType)
    answer = result_def(i1)

    assembly_format = "$memory `by` $divisor attr-dict `:` type($memory)"

    def __init__(self, memory: SSAValue, divisor: int):
        super().__init__(operands=[memory], properties={"divisor": IntegerAttr(divisor, i64)}, result_types=[i1])


@irdl_op_definition
class AssumeDivisibleOp(_Divided):
    """The same memory, for which `warp.is_divisible` is known to be true::

        %rows = warp.assume_divisible %A by 8 : memref<?x?xbf16>

    The compiler uses it in the branch where `warp.is_divisible` was true. The attribute `warp.divisible` of a
    function's argument promises the same for each call.
    """

    name = "warp.assume_divisible"

    memory = operand_def(MEMORY)
    same = result_def(MEMORY)

    assembly_format = "$memory `by` $divisor attr-dict `:` type($memory)"

    def __init__(self, memory: SSAValue, divisor: int):
        super().__init__(
            operands=[memory], properties={"divisor": IntegerAttr(divisor, i64)}, result_types=[memory.type]
        )
