"""`linalg.pack` and `linalg.unpack`, which xDSL 0.74 lacks: matrices as tiles that lie one after another. Source: MLIR,
Linalg dialect, `LinalgRelayoutOps.td`."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IndexType, TensorType, i64
from xdsl.dialects.utils.dynamic_index_list import DynamicIndexList
from xdsl.ir import Attribute
from xdsl.irdl import (
    BaseAttr,
    IRDLOperation,
    VarConstraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .upstream import SEGMENTS
from .words import irdl_op_definition

Tensor = TensorType[Attribute]

NUMBERS = DenseArrayBase.constr(i64)

TILING = (
    "(`outer_dims_perm` `=` $outer_dims_perm^)? `inner_dims_pos` `=` $inner_dims_pos `inner_tiles` `=` "
    "custom<DynamicIndexList>($inner_tiles, $static_inner_tiles) `into` $dest attr-dict "
    "`:` type($source) `->` type($dest)"
)
"""What the text of both operations ends with."""


class _Tiled(IRDLOperation, ABC):
    """What `linalg.pack` and `linalg.unpack` have in common: a tensor and the same tensor in tiles. `inner_dims_pos`
    are the dimensions that are tiled, `inner_tiles` the tile sizes, `outer_dims_perm` the order of the tiles."""

    WRITTEN: ClassVar = VarConstraint("WRITTEN", BaseAttr(TensorType))
    """The type of `dest`, and of the result."""

    source = operand_def(TensorType)
    dest = operand_def(WRITTEN)
    inner_tiles = var_operand_def(IndexType())
    inner_dims_pos = prop_def(NUMBERS)
    static_inner_tiles = prop_def(NUMBERS)
    outer_dims_perm = opt_prop_def(NUMBERS)
    result = result_def(WRITTEN)

    irdl_options = SEGMENTS
    custom_directives: ClassVar = (DynamicIndexList,)
    PACKS: ClassVar[bool]

    @property
    def order(self) -> tuple[int, ...]:
        """Which dimension each outer dimension of the tiles runs along."""
        dimensions = () if self.outer_dims_perm is None else tuple(self.outer_dims_perm.get_values())
        return dimensions or tuple(range(self.plain.get_num_dims()))

    @property
    def tiles(self) -> dict[int, int]:
        """The tile size of each tiled dimension; negative if it is dynamic."""
        return dict(zip(self.inner_dims_pos.get_values(), self.static_inner_tiles.get_values(), strict=True))

    @property
    def plain(self) -> Tensor:
        """The type of the tensor that is not in tiles."""
        return self._types[0 if self.PACKS else 1]

    @property
    def tiled(self) -> Tensor:
        """The type of the tensor in tiles."""
        return self._types[1 if self.PACKS else 0]

    @property
    def _types(self) -> tuple[Tensor, Tensor]:
        source, dest = self.source.type, self.dest.type
        if not isa(source, Tensor) or not isa(dest, Tensor):
            raise VerifyException(f"expected tensors of known rank, got {source} and {dest}")
        return source, dest

    def verify_(self) -> None:
        rank, cut = self.plain.get_num_dims(), self.inner_dims_pos.get_values()
        if len(set(cut)) < len(cut) or not all(0 <= dimension < rank for dimension in cut):
            raise VerifyException(
                f"expected inner_dims_pos to name dimensions of 0 to {rank - 1} once, got {list(cut)}"
            )
        if len(cut) != len(self.static_inner_tiles):
            raise VerifyException(f"expected a tile size for each of {len(cut)} dimensions")
        if sorted(self.order) != list(range(rank)):
            raise VerifyException(f"expected outer_dims_perm to permute {rank} dimensions, got {list(self.order)}")
        if any(size < 1 and size != DYNAMIC_INDEX for size in self.tiles.values()):
            raise VerifyException("expected tiles of one element or more")
        wanted, got = self._shape(), self.tiled.get_shape()
        if len(wanted) != len(got) or any(min(a, b) >= 0 and a != b for a, b in zip(wanted, got, strict=True)):
            raise VerifyException(f"expected tiles of {'x'.join(map(str, wanted))} elements, got {self.tiled}")

    def _shape(self) -> list[int]:
        """The shape in tiles, negative where a size is not known."""
        tiles, sizes = self.tiles, self.plain.get_shape()
        outer = (
            size if (tile := tiles.get(d, 1)) == 1 else -1 if min(size, tile) < 0 else -(-size // tile)
            for d, size in ((d, sizes[d]) for d in self.order)
        )
        return [*outer, *tiles.values()]


@irdl_op_definition
class PackOp(_Tiled):
    """A tensor as tiles that lie one after another::

    %t = linalg.pack %x inner_dims_pos = [0, 1] inner_tiles = [8, 32] into %e
           : tensor<64x96xf16> -> tensor<8x3x8x32xf16>
    """

    name = "linalg.pack"

    source = operand_def(TensorType)
    dest = operand_def(_Tiled.WRITTEN)
    padding_value = opt_operand_def()
    inner_tiles = var_operand_def(IndexType())
    PACKS: ClassVar = True

    assembly_format = "$source (`padding_value` `` `(` $padding_value^ `:` type($padding_value) `)`)? " + TILING

    def verify_(self) -> None:
        super().verify_()
        sizes = self.plain.get_shape()
        uneven = [d for d, tile in self.tiles.items() if min(sizes[d], tile) >= 0 and sizes[d] % tile]
        if uneven and self.padding_value is None:
            raise VerifyException(f"expected a padding_value, as tiles do not divide dimension {uneven[0]}")
        if self.padding_value is not None and self.padding_value.type != self.plain.element_type:
            raise VerifyException(f"expected a padding_value of {self.plain.element_type}")


@irdl_op_definition
class UnPackOp(_Tiled):
    """The tensor that lies in tiles one after another::

    %x = linalg.unpack %t inner_dims_pos = [0, 1] inner_tiles = [8, 32] into %e
           : tensor<8x3x8x32xf16> -> tensor<64x96xf16>
    """

    name = "linalg.unpack"

    PACKS: ClassVar = False

    assembly_format = "$source " + TILING
