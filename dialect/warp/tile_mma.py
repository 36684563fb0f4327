"""`warp.tile_mma`: the product of tiles in shared memory."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    base,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space
from .matmul import FACTOR, FactorsOp
from .op_shapes import FieldValue, element_of

SUMS = VarConstraint("Sums", base(FragmentType))
"""The type of C and D."""


class GroupScales(NamedTuple):
    """Scales in memory, groups x columns, of groups of `size` neighbours along k; what they are for begins at k, n.
    Those of A, if it has some, are `of_rows`, groups x rows; A begins at row m. One scale may be for several rows, or
    columns: as many as `blocks` says."""

    scales: SSAValue
    size: int
    k: SSAValue
    n: SSAValue
    m: SSAValue | None = None
    of_rows: SSAValue | None = None
    blocks: tuple[int, int] = (1, 1)

    def fields(self) -> dict[str, FieldValue]:
        """What an operation with these scales has."""
        at = [at for at in (self.k, self.n, self.m) if at is not None]
        own: dict[str, FieldValue] = {"group_scales": self.scales, "group": self.size, "group_at": at}
        return own if self.of_rows is None else {**own, "row_scales": self.of_rows, "blocks": self.blocks}


@irdl_op_definition
class TileMmaOp(FactorsOp):
    """D = C + A * B of a warp's part, or that of a warpgroup, of A and B that are tiles in shared memory::

        %d = warp.tile_mma %As, %Bs, %c part [%m, %n, %k] {types = ["f16", "f16"], warp.schedule = #warp.schedule<...>}
          : memref<64x32xf16, #warp.swizzle<64>, 3>, memref<32x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, ...>

    A is m x k, B is k x n, and C and D are fragments. `part` has the first row, column and k of the part of the tiles.
    `types` are the ISA types in which A and B are multiplied. `bit_op` and `kind` are the words of `warp.matmul`. A and
    B may be results of `warp.sparse` and `warp.scaled`, as in `warp.matmul`. Those operations then take the tiles of
    metadata and of scales. With `transposed_a`, memory holds the tile of A as k x m. With `transposed_b`, it holds the
    tile of B as n x k. `warp.schedule` names the instruction.

    A may also be a fragment in the registers of the warp, with the rows of C and the warp's part of k. If B has
    integers (`warp.stored`), groups of `group` neighbours along k may have scales in global memory, groups x
    columns. They are printed after the types as `times %S[%k, %n] : memref<...>`, where k and n are the indices at
    which the tiles of A and B begin. Of 8-bit floats, A has scales too, groups x rows, and one scale may be for several
    rows or columns, a block: `times %SB[%k, %n, %m] : memref<...> and %SA : memref<...>`. Scales that are copied to
    shared memory with A and B are `lines %sa, %sb : memref<1x128xf32, ..., 3>, ...`, a line for each group of the tiles
    along k: those of A, those of B, or those of packed weights and their zero points.
    """

    name = "warp.tile_mma"

    a = operand_def(FACTOR | base(FragmentType))
    b = operand_def(FACTOR)
    c = operand_def(SUMS)
    part = var_operand_def(IndexType())
    group_scales = opt_operand_def(MemRefType)
    group_at = var_operand_def(IndexType())
    row_scales = opt_operand_def(MemRefType)
    lines = var_operand_def(MemRefType)
    group = opt_prop_def(IntegerAttr)
    blocks = opt_prop_def(DenseArrayBase.constr(i64))
    transposed_a = opt_prop_def(UnitAttr)
    transposed_b = opt_prop_def(UnitAttr)
    d = result_def(SUMS)

    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$a `,` $b `,` $c `part` `[` $part `]` attr-dict `:` type($a) `,` type($b) `,` type($c) "
        "(`times` $group_scales^ `[` $group_at `]` `:` type($group_scales))? "
        "(`and` $row_scales^ `:` type($row_scales))? (`lines` $lines^ `:` type($lines))?"
    )

    @property
    def groups(self) -> GroupScales | None:
        """The scales of groups along k, if there are any."""
        if self.group_scales is None or self.group is None:
            return None
        k, n, *m = self.group_at
        scales = GroupScales(self.group_scales, self.group.value.data, k, n)
        if self.blocks is None:
            return scales
        rows, columns = self.blocks.get_values()
        return scales._replace(m=m[0], of_rows=self.row_scales, blocks=(rows, columns))

    def _lying(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(m, stored k) of A and (k, n) of B."""
        a, b = map(_shape, self.matrices)
        a = a[::-1] if self.transposed_a else a
        if self.is_packed:
            return a, (a[1], b[0] * b[1] // a[1])
        return a, b[::-1] if self.transposed_b else b

    def verify_(self) -> None:
        self.verify_names()
        self.verify_forms()
        self.verify_words()
        for number, tile in enumerate(self.factors):
            if isinstance(tile.type, FragmentType):
                self._verify_register_operand(tile.type)
            elif memory_space(memory_of(tile)) != SHARED_SPACE or len(_shape(tile)) != 2:
                name = ("A", "B", "what is read beside A and B")[min(number, 2)]
                raise VerifyException(f"expected {name} to be a tile in shared memory, got {tile.type}")
        for name, multiplied, tile in zip("AB", self.multiplied, self.matrices, strict=True):
            stored, wanted = element_of(tile), ELEMENT_TYPES[multiplied]
            if name == "B" and self.b_stored is not None:
                self.b_stored.verify(multiplied, stored)
            elif stored.memory_bits not in (wanted.memory_bits, BYTE):
                raise VerifyException(f"{name} cannot be multiplied as {multiplied}, got {tile.type}")
        self._verify_shape()
        self._verify_groups()

    def _verify_groups(self) -> None:
        parts = [self.group_scales is not None, self.group is not None]
        if self.row_scales is None:
            parts += [len(self.group_at) == 2, bool(self.b_stored), self.blocks is None]
        else:
            parts += [len(self.group_at) == 3, self.blocks is not None and len(self.blocks) == 2]
        if self.group_scales is None and self.group is None and not self.group_at and self.row_scales is None:
            return
        if not all(parts) or (self.group is not None and self.group.value.data < 1):
            of_groups = "groups of integers", "size, and [k, n]"
            what = of_groups if self.row_scales is None else ("blocks", "sizes, and [k, n, m]")
            raise VerifyException(f"expected scales of {what[0]} with their {what[1]} of the tiles")

    def _verify_register_operand(self, a: FragmentType) -> None:
        """Checks an A in registers."""
        c = fragment_of(self.c)
        if a.shape[0] != c.shape[0] or a.role.data != "a" or self.transposed_a is not None:
            raise VerifyException(f"expected a dense A in registers to be a fragment a of C's rows, got {a} and {c}")

    def _verify_shape(self) -> None:
        (rows, stored), (k, columns) = self._lying()
        slices = k // stored if isinstance(self.matrices[0].type, FragmentType) else 1
        if stored * self.sparsity * slices != k:
            a, b = self.matrices
            raise VerifyException(f"expected A and B to agree on k, got {a.type} and {b.type}")
        if len(self.part) != len("mnk"):
            raise VerifyException(f"expected a warp's `part` [m, n, k] of the tiles, got {len(self.part)} indices")
        down, across = fragment_of(self.c).shape
        if rows % down or across > columns or fragment_of(self.c).role.data != "acc":
            what = f"a fragment of accumulators in parts of {rows}x{columns} that fill it"
            raise VerifyException(f"expected {what}, got {self.c.type}")


def _shape(tile: SSAValue) -> tuple[int, ...]:
    return tile.type.shape if isinstance(tile.type, FragmentType) else memory_of(tile).get_shape()


def part_of(fragment: FragmentType, slices: int, *, all_get: bool = False) -> FragmentType:
    """The part of a fragment that one slice gets: some rows of base tiles, or some columns if there is one row of them.
    If there are more slices than base tiles, a multiple of their number, it is a base tile, unless `all_get` one, as
    those of a K that is split do. Raises VerifyException if the number of slices is no power of two, or does not divide
    the base tiles."""
    if slices.bit_count() != 1:
        raise VerifyException(f"expected a power of two of slices, got {slices}")
    (down, across), (rows, columns) = fragment.tiles, fragment.shape
    if down % slices == 0:
        rows //= slices
    elif down == 1 and across % slices == 0:
        columns //= slices
    elif not all_get and slices > (base := max(down, across)) and min(down, across) == 1 and slices % base == 0:
        rows, columns = rows // down, columns // across
    else:
        raise VerifyException(f"the {down} x {across} base tiles of {fragment} cannot be divided among {slices} slices")
    return fragment.with_shape(rows, columns)
