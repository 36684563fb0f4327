"""What a host function asks of its caller before a launch."""

from __future__ import annotations

from xdsl.dialects.builtin import MemRefType, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of


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
