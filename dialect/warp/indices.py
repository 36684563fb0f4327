"""`warp.index`: where an element lies, in the region of an epilogue or of scores."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, i32, i64
from xdsl.ir import Block
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException


@irdl_op_definition
class IndexOp(IRDLOperation):
    """The index of an element along a loop of the product: `%row = warp.index 0 : i32`.

    It is used in the region of `warp.pointwise`. The loop must be one that indexes D, for a product, or the scores, for
    attention.
    """

    name = "warp.index"

    loop = prop_def(IntegerAttr[i64])
    result = result_def(i32)

    traits = traits_def(Pure())
    assembly_format = "$loop attr-dict `:` type($result)"

    def __init__(self, loop: int):
        super().__init__(properties={"loop": IntegerAttr(loop, i64)}, result_types=[i32])

    @property
    def number(self) -> int:
        """The number of the loop."""
        return self.loop.value.data


def verify_indices(block: Block, along: Sequence[int]) -> None:
    """Checks that a region takes indices of the loops alone that its elements run along.

    Raises:
        VerifyException: if it does not.
    """
    for op in block.ops:
        if isinstance(op, IndexOp) and op.number not in along:
            loops = ", ".join(map(str, along))
            raise VerifyException(f"expected the index of a loop that elements run along, {loops}, got {op.number}")
