"""What a host function assumes of its arguments: disjoint memory, divisible sizes and addresses."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, MemRefType, UnitAttr, i1, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of

# What a host function asks of its caller before a launch.


@irdl_op_definition
class DisjointOp(IRDLOperation):
    """Makes a call fail if two views of memory share an element::

        warp.disjoint %written, %read : memref<?x64xf32, strided<[128, 1]>>, memref<64x?xf32, strided<[128, 1]>>
        warp.disjoint %written, %read or_same : memref<?x64xf32, strided<[?, 1]>>, memref<?x64xf32, strided<[?, 1]>>

    The compiler puts it before an operation that writes one view and reads the other, if dynamic sizes decide whether
    they share an element. With `or_same`, the two views may also be the same elements in the same places. Two arguments
    of a function never share memory if one of them is written.
    """

    name = "warp.disjoint"

    written = operand_def(MemRefType)
    read = operand_def(MemRefType)
    or_same = opt_prop_def(UnitAttr)

    assembly_format = "$written `,` $read (`or_same` $or_same^)? attr-dict `:` type($written) `,` type($read)"

    def __init__(self, written: SSAValue, read: SSAValue, *, or_same: bool = False):
        super().__init__(operands=[written, read], properties={"or_same": UnitAttr()} if or_same else {})

    def verify_(self) -> None:
        written, read = memory_of(self.written), memory_of(self.read)
        if written.element_type != read.element_type:
            raise VerifyException(
                f"expected two views of one memory, got elements of {written.element_type} and {read.element_type}"
            )


# What a host function asks of how memory lies, and what it then knows.

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
