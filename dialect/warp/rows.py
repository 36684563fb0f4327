"""Along the rows of fragments: `warp.reduce`, `warp.broadcast`, `warp.step`.

What a row gives is a column: a fragment of one column, whose layout says with the axis `x` which lanes hold the same
element. A column of sums may still be in parts, one for each lane of a row::

    c1 c2 r0 r1 r2 | c0 r3       a matrix: each row lies in four lanes
    c0 c1 r0 r1 r2 | r3          what each lane makes of its own elements: four parts of a row
    x0 x1 r0 r1 r2 | r3          what four lanes make of these: each of them has the whole
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, StringAttr, i32
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import Bit, Layout
from .attributes import FragmentType, fragment_of
from .elementwise import IDENTITIES, Kind, KindAttr
from .epilogue import AXES
from .op_shapes import FragmentChange
from .text import BareWord

WORD_BITS = 32


def column_layout(layout: Layout, *, parts: bool = False) -> Layout:
    """The layout of what becomes of each row; with `parts`, of what each lane makes of its own elements of it."""

    def renamed(bits: tuple[Bit, ...]) -> Iterator[Bit]:
        count = 0
        for bit in bits:
            if bit.axis == "r":
                yield bit
            else:
                yield Bit("c" if parts and bit.axis == "c" else "x", count)
                count += 1

    element = tuple(bit for bit in layout.element if bit.axis == "r")
    return Layout(tuple(renamed(layout.lane)), element, layout.warp)


def column_of(kind: FragmentType, *, parts: bool = False) -> FragmentType:
    """The type of what becomes of each row of a fragment."""
    layout = column_layout(kind.layout.data, parts=parts)
    return FragmentType.of(kind.role.data, kind.shape[0], layout.columns, kind.element_type, layout)


@irdl_op_definition
class ReduceOp(FragmentChange):
    """Reduces each row of a fragment to one element, or to a partial result for each lane that has elements of the
    row::

        %m = warp.reduce max %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
                               to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
        %l = warp.reduce add %p : ... to !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>
        %sum = warp.reduce add %l : ... to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>

    Elements have 32 bits. Each lane combines the first and the second half of its elements, then the halves of the
    result, and so on. Then the lanes exchange their results by `shfl.sync.bfly`, beginning with the lowest bit of the
    lane number. If one operand is NaN, `max` and `min` return the number, and `maximum` and `minimum` return NaN.
    """

    name = "warp.reduce"

    kind = prop_def(KindAttr)

    assembly_format = "$kind $input attr-dict `:` type($input) `to` type($fragment)"

    def __init__(self, kind: Kind, value: SSAValue, *, parts: bool = False):
        result = column_of(fragment_of(value), parts=parts)
        super().__init__(value, result, {"kind": KindAttr(kind)})

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if self.kind.data not in IDENTITIES:
            raise VerifyException(f"expected {', '.join(IDENTITIES)}, got {self.kind.data}")
        if source.bits != WORD_BITS:
            raise VerifyException(f"expected elements of {WORD_BITS} bits, got {source}")
        if source.layout.data.warp and any(bit.axis == "c" for bit in source.layout.data.warp):
            raise VerifyException(f"expected each row within one warp, got {source}")
        whole, parts = column_of(source), column_of(source, parts=True)
        if result not in (whole, parts):
            raise VerifyException(f"expected a result of {whole} or {parts}, got {result}")


@irdl_op_definition
class BroadcastOp(FragmentChange):
    """Repeats the only element of each row in all columns. It needs no instruction::

    %b = warp.broadcast %m : !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
                          to !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    """

    name = "warp.broadcast"

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.bits != WORD_BITS:
            raise VerifyException(f"expected elements of {WORD_BITS} bits, got {source}")
        if (expected := column_of(result)) != source:
            raise VerifyException(f"expected a column {expected}, got {source}")


@irdl_op_definition
class StepOp(IRDLOperation):
    """A fragment whose elements are the numbers of their rows, or of their columns, counted from an index::

    %j = warp.step columns %start : !warp.fragment<acc, 16x64xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    """

    name = "warp.step"

    along = prop_def(StringAttr)
    start = operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    custom_directives: ClassVar = (BareWord,)
    assembly_format = "custom<BareWord>($along) $start attr-dict `:` type($fragment)"

    def __init__(self, along: str, start: SSAValue, fragment: FragmentType):
        super().__init__(
            operands=[start],
            properties={"along": StringAttr(along)},
            result_types=[fragment.with_element(i32)],
        )

    def verify_(self) -> None:
        if self.along.data not in AXES:
            raise VerifyException(f"expected numbers of {' or '.join(AXES)}, got '{self.along.data}'")
        if self.fragment.type.element_type != i32:
            raise VerifyException(f"expected elements of i32, got {self.fragment.type}")
