"""`warp.convert_layout`: the same matrix with its elements in other places of the warp's registers."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..layouts.algebra import Conversion, LayoutMismatchError, convert, tiled
from ..layouts.layout import Layout
from .attributes import FragmentType, fragment_of


def whole_layout(kind: FragmentType) -> Layout:
    """The layout of the whole fragment, base tiles included.

    Raises:
        LayoutMismatchError: if the numbers of base tiles are no powers of two.
    """
    return tiled(kind.layout.data, *kind.tiles)


@irdl_op_definition
class ConvertLayoutOp(IRDLOperation):
    """A fragment in another layout, and as another operand of a product if its type says so::

        %a = warp.convert_layout %p : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
                                   to !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>

    How, `Conversion` says (`dialect/layouts/algebra.py`): by another order of registers, which takes no instruction, by
    moves within lanes, or by shuffles between them, whichever is cheapest.
    """

    name = "warp.convert_layout"

    input = operand_def(FragmentType)
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($fragment)"

    def __init__(self, value: SSAValue, fragment: FragmentType):
        super().__init__(operands=[value], result_types=[fragment])

    def conversion(self) -> Conversion:
        """The ways from one layout to the other, each as large as the whole fragment.

        Raises:
            VerifyException: if there are none.
        """
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.layout.data.warp != result.layout.data.warp:
            raise VerifyException(f"expected the warps to keep their rows, got {source} to {result}")
        try:
            return convert(_of_a_warp(source), _of_a_warp(result), source.bits)
        except LayoutMismatchError as error:
            raise VerifyException(str(error)) from None

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if (source.shape, source.element_type, source.bits) != (result.shape, result.element_type, result.bits):
            raise VerifyException(f"expected only the layout and the operand to change, got {source} to {result}")
        self.conversion()


def _of_a_warp(kind: FragmentType) -> Layout:
    """The layout of one warp's part, its row bits numbered on without those of the warp."""
    layout = whole_layout(kind)
    if not layout.warp:
        return layout
    own = sorted(bit for bit in (*layout.lane, *layout.element) if bit.axis == "r")
    names = {bit: bit._replace(number=i) for i, bit in enumerate(own)}
    return Layout(
        tuple(names.get(bit, bit) for bit in layout.lane), tuple(names.get(bit, bit) for bit in layout.element)
    )
