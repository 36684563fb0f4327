"""`memref` as MLIR prints it: xDSL's dialect, with the text of the operations that it has none for."""

from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, UnrankedMemRefType
from xdsl.ir import Dialect
from xdsl.irdl import base, irdl_op_definition, operand_def, result_def


@irdl_op_definition
class CopyOp(memref.CopyOp):
    """Copies the elements of one memref to another of the same shape."""

    name = "memref.copy"
    assembly_format = "$source `,` $destination attr-dict `:` type($source) `to` type($destination)"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)


@irdl_op_definition
class CastOp(memref.CastOp):
    """The same memory, of which more or less is known."""

    name = "memref.cast"
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"

    source = operand_def(base(MemRefType) | base(UnrankedMemRefType))
    dest = result_def(base(MemRefType) | base(UnrankedMemRefType))


MEMREF = Dialect(
    "memref",
    [*(op for op in memref.MemRef.operations if op not in (memref.CopyOp, memref.CastOp)), CopyOp, CastOp],
    list(memref.MemRef.attributes),
)
"""xDSL's `memref` with these in place of its own; patterns written for xDSL's match them too."""
