"""`warp.convert_layout`: the same matrix with its elements in other places of the warp's registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from ..layouts.layout import Layout
from .attributes import FragmentType, fragment_of
from .op_shapes import FragmentChange

if TYPE_CHECKING:
    from ..layouts.algebra import Conversion


@irdl_op_definition
class ConvertLayoutOp(FragmentChange):
    """Converts a fragment to another layout, and to another role if the type of the result has one::

        %a = warp.convert_layout %p : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
                                   to !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>

        %b = warp.convert_layout %raw : !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>
                                     to !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>

    `Conversion` (`dialect/layouts/algebra.py`) chooses the cheapest way: another order of registers, which needs no
    instruction, moves within lanes, or shuffles between lanes.
    """

    name = "warp.convert_layout"

    @staticmethod
    def to(value: SSAValue, layout: Layout) -> ConvertLayoutOp:
        """The same fragment in another layout."""
        return ConvertLayoutOp(value, fragment_of(value).with_layout(layout))

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the smallest tile that consists of whole base tiles of both layouts."""
        layouts = [fragment_of(value).layout.data for value in (self.input, self.fragment)]
        return max(layout.rows for layout in layouts), max(layout.columns for layout in layouts)

    def conversion(self) -> Conversion:
        """The ways from one layout to the other, for a tile.

        Raises:
            VerifyException: if there are none.
        """
        from ..layouts.algebra import LayoutMismatchError, convert  # 4 ms, of which a plain product has no use

        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if source.layout.data.warp != result.layout.data.warp:
            raise VerifyException(f"expected the warps to keep their rows, got {source} to {result}")
        try:
            before, after = (_of_a_warp(kind.layout.data, self.tile) for kind in (source, result))
            # A register of 64 bits moves as a whole.
            return convert(before, after, min(source.bits, 32))
        except LayoutMismatchError as error:
            raise VerifyException(str(error)) from None

    def verify_(self) -> None:
        source, result = fragment_of(self.input), fragment_of(self.fragment)
        if any(size % step for size, step in zip(source.shape, self.tile, strict=True)):
            raise VerifyException(f"expected whole tiles of {self.tile[0]}x{self.tile[1]}, got {source} to {result}")
        if (source.shape, source.element_type, source.bits) != (result.shape, result.element_type, result.bits):
            raise VerifyException(f"expected only the layout and the operand to change, got {source} to {result}")
        self.conversion()

    def registers(self, kind: FragmentType) -> Iterator[tuple[int, ...]]:
        """For each tile, row by row of tiles: the numbers of the registers that hold it of a fragment of this type."""
        (rows, columns), layout, (_, across) = self.tile, kind.layout.data, kind.tiles
        down, wide = rows // layout.rows, columns // layout.columns
        for top in range(0, kind.tiles[0], down):
            for left in range(0, across, wide):
                tiles = ((top + i) * across + left + j for i in range(down) for j in range(wide))
                yield tuple(tile * kind.tile_registers + i for tile in tiles for i in range(kind.tile_registers))


def _of_a_warp(base: Layout, tile: tuple[int, int]) -> Layout:
    """The layout of one warp's part of a tile, its bits of rows and columns numbered on without those of the warp."""
    from ..layouts.algebra import tiled

    layout = tiled(base, tile[0] // base.rows, tile[1] // base.columns)
    if not layout.warp:
        return layout
    held = (*layout.lane, *layout.element)
    own = (sorted(bit for bit in held if bit.axis == axis) for axis in "rc")
    names = {bit: bit._replace(number=i) for bits in own for i, bit in enumerate(bits)}
    return Layout(
        tuple(names.get(bit, bit) for bit in layout.lane), tuple(names.get(bit, bit) for bit in layout.element)
    )
