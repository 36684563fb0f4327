"""Products whose sums are in tensor memory: `warp.tensor_mma`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, UnitAttr, i1
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, traits_def, var_operand_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import SCALES_OF_WORD
from ..layouts.layout import LANES
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, TENSOR_SPACE, Memory, element_row, in_pairs, memory_of, memory_space
from .matmul import scale_type
from .op_shapes import WarpOp, element_of, verify_target
from .warpgroup import WgmmaOp, descriptor_of, find_row, multiplied, verify_tile

if TYPE_CHECKING:
    from ..isa.tensor_product import TensorProduct
    from ..isa.wgmma import Wgmma

WORD_BITS = 32
"""Of a lane of a column."""


@irdl_op_definition
class TensorMmaOp(WarpOp):
    """D = A * B + D on tiles in shared memory, with D in tensor memory. One thread of the warpgroup starts the product.
    It has ended when a barrier of `warp.arrive` with `products` has::

        warp.tensor_mma %As[%s, %m, %k], %Bs[%s, %n, %k], %D[%g] : memref<2x128x64xf16, #warp.swizzle<128>, 3>,
            memref<2x256x64xf16, #warp.swizzle<128>, 3>, memref<2x128x256xf32, 6>

    The operation is one instruction: the rows and columns of matrix `%g` of D, and 32 bytes of K. The indices and
    `mn_major_a`, `mn_major_b` are as in `warp.wgmma`. With `adds %p`, D = A * B where %p is false. Source: PTX ISA
    9.7.16.10.9.1.

    A may be in tensor memory as well, a matrix of the rows of D, of 16-bit elements that lie side by side along K.

    The scales of a product with scales, of A and of B, are in tensor memory too, where `warp.copy` brings them; so is
    the metadata of a sparse A. They are those of stage `%s`, of step `step` of the K tile::

        warp.tensor_mma %As[%s, %m, %k], %Bs[%s, %n, %k], %D[%g] with %SA, %SB[%s] {kind = "mxf4", step = 2 : i64} :
            ..., memref<4x128x8xf8E8M0FNU, 6>, memref<4x256x8xf8E8M0FNU, 6>

    In a kernel with `warp.pairs`, each CTA has half of the columns of B in its tile, and its own rows of A and D.
    """

    name = "warp.tensor_mma"

    a = operand_def(MemRefType)
    a_indices = var_operand_def(IndexType())
    b = operand_def(MemRefType)
    b_indices = var_operand_def(IndexType())
    d = operand_def(MemRefType)
    number = operand_def(IndexType())
    side_operands = var_operand_def(MemRefType)
    stage = opt_operand_def(IndexType())
    adds = opt_operand_def(i1)
    mn_major_a = opt_prop_def(UnitAttr)
    mn_major_b = opt_prop_def(UnitAttr)
    kind = opt_prop_def(StringAttr)
    step = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "$a `[` $a_indices `]` `,` $b `[` $b_indices `]` `,` $d `[` $number `]` "
        "(`with` $side_operands^ `[` $stage `]`)? (`adds` $adds^)? attr-dict `:` "
        "type($a) `,` type($b) `,` type($d) (`,` type($side_operands)^)?"
    )

    def __init__(
        self,
        product: WgmmaOp,
        places: tuple[Sequence[SSAValue], Sequence[SSAValue]],
        d: SSAValue,
        number: SSAValue,
        adds: SSAValue | None = None,
        side_operands: Sequence[SSAValue] = (),
        stage: SSAValue | None = None,
        a: SSAValue | None = None,
    ):
        """The product of warpgroups with tiles that begin at `places`, with D in tensor memory. It also reads
        `side_operands`. `a` is A in tensor memory, if it is there."""
        factors = (product.a if a is None else a, places[0], product.b, places[1])
        said = {name: product.properties.get(name) for name in ("mn_major_a", "mn_major_b", "kind", "step")}
        super().__init__(*factors, d, number, side_operands, stage if side_operands else None, adds, **said)

    def major(self, role: str) -> bool:
        """Whether operand "a" or "b" lies along M or N."""
        return (self.mn_major_a if role == "a" else self.mn_major_b) is not None

    @property
    def a_in_tensor_memory(self) -> bool:
        """Whether A is there too, as D is."""
        return memory_space(memory_of(self.a)) == TENSOR_SPACE

    def tiles(self) -> Iterator[tuple[str, SSAValue, Sequence[SSAValue]]]:
        """The operands in shared memory: "a" or "b", the tile, where in it they begin."""
        if not self.a_in_tensor_memory:
            yield "a", self.a, self.a_indices
        yield "b", self.b, self.b_indices

    @property
    def scale(self) -> str:
        """The type of the scales; empty where there are none."""
        return scale_type(self.side_operands) if len(self.side_operands) > 1 else ""

    @property
    def word(self) -> int:
        """The first word of a row's scales, or the first column of metadata, that the step reads."""
        if self.step is None:
            return 0
        return self.step.value.data * self._of_step() // (SCALES_OF_WORD if self.scale else 1)

    def _of_step(self) -> int:
        """Scales of a row, or columns of metadata, that a step reads."""
        row = self._row_of_warpgroup()
        if row.scale is not None:
            return row.scale.vector
        return 2 if row.a.bits == 8 else 1

    def _row_of_warpgroup(self) -> Wgmma:
        a, b, d = map(element_of, (self.a, self.b, self.d))
        *_, rows, columns = memory_of(self.d).get_shape()
        kind = "" if self.kind is None else self.kind.data
        sparse = len(self.side_operands) == 1
        types = multiplied(a, kind), multiplied(b, kind), d
        return find_row(*types, columns, rows, sparse=sparse, kind=kind, scale=self.scale)

    @property
    def row(self) -> TensorProduct:
        """The instruction."""
        from ..isa.tensor_product import of_pair, of_warpgroup

        *_, rows, columns = memory_of(self.d).get_shape()
        row = self._row_of_warpgroup()
        product = of_warpgroup(row)
        if product is None or product.shape.m != rows:
            raise VerifyException(f"no product has a D of {rows}x{columns}x{row.d.name} in tensor memory")
        if in_pairs(self):
            product = of_pair(product)
        step, wide = 0 if self.step is None else self.step.value.data, row.a.bits > BYTE
        first = 0 if row.scale is None else step * row.scale.vector % SCALES_OF_WORD
        # The selector is the lowest bit of the column of the metadata, as CUTLASS has it.
        selector = self.word % 2 if row.sparse and wide else 0
        along = self.major("a"), self.major("b")
        return replace(product, along_mn=along, scale_ids=(first, first), selector=selector)

    def verify_(self) -> None:
        matrices = [
            ("D", self.d),
            *([("A", self.a)] if self.a_in_tensor_memory else []),
            *(("scales and metadata", value) for value in self.side_operands),
        ]
        for name, memory in ((name, memory_of(value)) for name, value in matrices):
            if memory_space(memory) != TENSOR_SPACE or memory.get_num_dims() != 3:
                wanted = f"matrices in tensor memory (space {TENSOR_SPACE})"
                raise VerifyException(f"expected {name} to be {wanted}, got {memory}")
        if bool(self.side_operands) != (self.stage is not None):
            raise VerifyException("expected a stage with scales or metadata, and nowhere else")
        if self.a_in_tensor_memory:
            self._verify_a(memory_of(self.a))
        shared = self.kind is not None
        for role, value, indices in self.tiles():
            verify_tile(memory_of(value), indices, f"operand {role.upper()}", shared_bytes=shared)
            descriptor_of(memory_of(value), mn_major=self.major(role))
        verify_target(self, self.row)

    def _verify_a(self, a: Memory) -> None:
        """A in tensor memory: halves of words, of the rows of D."""
        rows, element = memory_of(self.d).get_shape()[-2], element_row(a.element_type)
        if element is None or 2 * element.memory_bits != WORD_BITS or a.get_shape()[-2] != rows or self.side_operands:
            raise VerifyException(f"expected A in tensor memory to be {rows} rows of 16 bits, and dense, got {a}")
        if len(self.a_indices) != 3 or self.major("a"):
            raise VerifyException("expected A in tensor memory along K, at a matrix, a row and a column of it")


def columns_of(memory: Memory) -> int:
    """Columns of tensor memory of a matrix there, the last two dimensions: those of its words, with two elements of 16
    bits each, or of the words of scales of 32 of its rows."""
    *_, rows, columns = memory.get_shape()
    if holds_scales(memory):
        return rows // LANES * (columns // SCALES_OF_WORD)
    element = element_row(memory.element_type)
    return columns if element is None else columns * element.memory_bits // WORD_BITS


def holds_scales(memory: Memory) -> bool:
    """Whether a matrix in tensor memory is one of scales, bytes, rather than of words."""
    element = element_row(memory.element_type)
    return element is not None and element.memory_bits <= BYTE
