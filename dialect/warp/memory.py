"""Fragments from and to memory: `warp.load`, `warp.store`."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    Float8E8M0FNUType,
    IndexType,
    MemRefType,
    StringAttr,
    UnitAttr,
    bf16,
    i1,
)
from xdsl.ir import Operation
from xdsl.irdl import (
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import SCALES_OF_WORD
from ..layouts.layout import column
from ..mlir.affine import strides_of
from ..mlir.words import irdl_op_definition
from .attributes import (
    BYTE,
    SHARED_SPACE,
    FragmentType,
    Memory,
    fragment_of,
    memory_of,
    memory_space,
)
from .matrices import AXES, ORDERS, MatrixMove, verify_matrix_move, verify_registers
from .op_shapes import (
    WarpOp,
    bounds,
    in_memory,
    is_pure,
    verify_element,
    verify_indices,
    verify_one_warp,
    verify_target,
)
from .synchronisation import BarriersType, FenceOp


def _verify_scales(memory: Memory, fragment: FragmentType) -> None:
    """Checks that shared memory holds the scales of a fragment, of which each lane reads one word for each base
    tile."""
    verify_one_warp("scales", fragment)
    if memory_space(memory) != SHARED_SPACE:
        raise VerifyException(f"expected scales in shared memory (memory space {SHARED_SPACE}), got {memory}")
    along_k = fragment.tiles[any(bit.axis == "r" for bit in fragment.layout.data.lane)]
    if fragment.tile_registers != 1 or along_k != 1:
        raise VerifyException(f"expected a fragment of scales, one base tile deep, got {fragment}")
    if memory.element_type != fragment.element_type:
        raise VerifyException(f"expected memory of {fragment.element_type}, got {memory}")
    if (columns := memory.get_shape()[-1]) % SCALES_OF_WORD:
        raise VerifyException(f"expected rows of whole words of {SCALES_OF_WORD} scales, got {columns} in {memory}")


EXPONENT = Float8E8M0FNUType()
POINT = "point"
"""In the place of a dimension: all elements of a fragment are one of a tile."""


class _FragmentAccess(WarpOp):
    """A fragment from or to memory: each lane's own elements, all registers in an order, or matrices."""

    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    registers = opt_prop_def(StringAttr)
    matrices = opt_prop_def(StringAttr)
    swapped = opt_prop_def(UnitAttr)

    @property
    def order(self) -> str:
        """The order of registers in memory; "" if memory is ordered by elements."""
        return "" if self.registers is None else self.registers.data

    @property
    def move(self) -> MatrixMove | None:
        """The matrix move of the access; None if each lane moves its own elements."""
        return None if self.matrices is None else MatrixMove.of(self.matrices.data)


@irdl_op_definition
class LoadOp(_FragmentAccess):
    """Reads a fragment from memory. Each lane reads its own elements, but with `matrices`.

    From global memory, elements outside the memref read as zero; `in_bounds` [rows, columns] promises that there are
    none. With `swapped`, memory holds the transpose of the fragment::

        %c = warp.load %C[%m, %n] {in_bounds = [true, false]} : memref<100x77xf32> -> !warp.fragment<...>
        %b = warp.load %Bs[%n, %k] {swapped} : memref<64x16xf64, #warp.swizzle<128>, 3> -> !warp.fragment<b, ...>

    With `along`, memory has a vector, and the rows of the fragment, or its columns, are all the same. The word says
    along which dimension the vector runs: with `columns`, element j of every row is %bias[%n + j]. Each lane loads an
    element only once, even if several of its registers hold it. The vector may also be a row of a matrix whose rows are
    all the same (`warp.matrix` without `row`), or a row of a tile in shared memory, a column of one that is `swapped`::

        %b = warp.load %bias[%n] {along = "columns"} : memref<320xf32> -> !warp.fragment<acc, 64x64xf32, ...>
        %s = warp.load %tile[%g, %n] {along = "columns"} : memref<32x64xf16, ..., 3> -> !warp.fragment<acc, ...>

    Of scales, a row of memory has those of a row of A, or of a column of B with `swapped`, in the order of k. A lane
    reads the word of four of them that begins at the column, a multiple of four. The byte-ids of an instruction select
    among these four::

        %s = warp.load %S[%stage, %row, %column] : memref<3x128x4xf8E8M0FNU, ..., 3> -> !warp.fragment<scale, ...>

    Scales of f8E8M0FNU in such a tile are read as bf16. With `point`, all elements are the one at the indices of a tile
    in shared memory.

    With `registers`, memory has the registers of the fragment from the indices on, in one of these orders::

        %x = warp.load %s[%i, %j] {registers = "vectors"} : memref<4x2048xf32, 3> -> !warp.fragment<acc, ...>
        %e = warp.load %Es[%stage, %row, %word] {registers = "tiles"} : memref<4x8x32xi32, ..., 3> -> ...

    - `vectors`: a row has the first 16 bytes of lane 0, of lane 1, and so on, then the next 16 bytes of lane 0; fewer
      bytes where the registers of a lane do not come out even. Each access of a warp is of whole lines. The column is
      a multiple of 16 bytes. In shared memory the rows are contiguous. In a tile with a swizzle they are 16 bytes of
      all threads of the fragment, and go on from line to line, from the first of eight.
    - `tiles`: a row of shared memory has the word of each lane, for one base tile of metadata. Base tile i of the
      fragment is in row `%row` + i. If a warpgroup holds the fragment, warp w of it reads row `%row` + w.
      `warp.copy` writes zeros outside the metadata, and ordered metadata has no word of zeros: with `padded`, a word
      of zeros is read as one that names elements 0 and 1 of every chunk.

    With `matrices`, the warp reads shared memory with `ldmatrix`, so many matrices at a time; if their number does not
    divide that of the fragment, the last load is narrower (PTX ISA 9.7.14.5.15)::

        %a = warp.load %As[%s, %m, %k] {matrices = "x4"} : memref<4x128x64xf16, #warp.swizzle<128>, 3> -> ...
        %b = warp.load %Bs[%stage, %k, %n] {matrices = "x4.trans"} : memref<...> -> !warp.fragment<b, ...>
        %b = warp.load %Bs[%k, %n] {matrices = "x4.trans.b16"} : memref<...xi8, 3> -> !warp.fragment<b, ...>
        %b = warp.load %Bs[%n, %k] {matrices = "x2.b6x16_p32", swapped} : memref<...xi8, 3> -> ...

    - Without `trans`, a matrix is 8 rows of 16 bytes, whatever the element type.
    - With `trans`, elements of 16 bits move in 8x8 matrices, and elements of 8 bits in 16x16 matrices.
    - With `trans.b16`, narrower elements move in 8x8 matrices of 16-bit pieces. Neighbours in a row then stay together,
      and `warp.convert_layout` separates them.
    - With a packed format, `b6x16_p32` or `b4x16_p64`, 16 bytes of memory hold 16 elements of 6 or 4 bits, followed by
      padding. The fragment gets one byte for each element.

    Of matrices in tensor memory a warpgroup reads one, of products (`warp.tensor_mma`) that are done. The fragment is
    that of a product of warpgroups (PTX ISA 9.7.16.8)::

        %d = warp.load %D[%g, %zero, %zero] : memref<2x64x128xf32, 6> -> !warp.fragment<acc, 64x128xf32, ...>

    The rows of a matrix may be at any addresses: the layout of a fragment may have other bits of the row in place of
    bits 0 to 2.
    """

    name = "warp.load"

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    fragment = result_def(FragmentType)
    along = opt_prop_def(StringAttr)
    padded = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryReadEffect())
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"

    def verify_(self) -> None:
        memory = memory_of(self.memory)
        bounds(self.in_bounds)
        if self.along is not None:
            self._verify_vector(self.along.data, memory, fragment_of(self.fragment))
            return
        verify_indices("the memref", memory, self.indices)
        fragment = fragment_of(self.fragment)
        if (move := self.move) is not None:
            if self.in_bounds is not None or self.order:
                raise VerifyException("matrices lie in shared memory: they have no in_bounds and no registers")
            verify_target(self, verify_matrix_move(move, memory, fragment, self.swapped is not None, loads=True))
        elif self.order:
            if self.in_bounds is not None or self.swapped is not None:
                raise VerifyException("registers lie in memory as a whole: they have no in_bounds and no swapped")
            verify_registers(self.order, ORDERS, memory, fragment)
        elif fragment.role.data == "scale":
            _verify_scales(memory, fragment)
        else:
            self._verify_elements(memory, fragment)
        if self.padded is not None and self.order != "tiles":
            raise VerifyException("padded is of metadata, whose registers lie in the order tiles")

    def _verify_vector(self, along: str, memory: Memory, fragment: FragmentType) -> None:
        rank, of_tile = memory.get_num_dims(), memory_space(memory) == SHARED_SPACE
        repeats = rank == 2 and (strides_of(memory) or (None,))[0] == 0
        if not (rank in (2, 3) if of_tile else (rank == 1 or repeats) and self.swapped is None):
            raise VerifyException(f"expected memory of rank 1, or a tile of rank 2 in shared memory, got {memory}")
        if len(self.indices) != rank:
            raise VerifyException(f"expected one index for each of the {rank} dimensions, got {len(self.indices)}")
        if not (of_tile and (memory.element_type, fragment.element_type) == (EXPONENT, bf16)):
            verify_element(memory, fragment)
        if along not in (*AXES, *((POINT,) if of_tile else ())):
            raise VerifyException(f"expected a vector along {' or '.join(AXES)}, got '{along}'")
        if self.order or self.padded is not None or self.matrices is not None:
            raise VerifyException("a vector has elements in memory, no registers and no matrices")

    def _verify_elements(self, memory: Memory, fragment: FragmentType) -> None:
        verify_element(memory, fragment)
        if memory_space(memory) != SHARED_SPACE:
            if self.swapped is not None:
                raise VerifyException(f"expected the transpose of a fragment in shared memory, got {memory}")
            return
        if self.in_bounds is not None:
            raise VerifyException("a tile in shared memory holds all of a fragment: it has no in_bounds")
        layout = in_memory(fragment, self.swapped is not None)
        together = (BYTE // min(BYTE, fragment.bits)).bit_length() - 1
        if layout.element[:together] != tuple(map(column, range(together))):
            raise VerifyException(
                f"expected the elements of a byte to lie side by side in memory, there the fragment is [{layout}]"
            )


@irdl_op_definition
class StoreOp(_FragmentAccess):
    """Writes a fragment to memory. Each lane writes its own elements. Elements outside the memref are not written::

        warp.store %d, %C[%m, %n] {in_bounds = [true, true]} : !warp.fragment<...>, memref<256x320xf32>

    With `registers`, it writes the registers in the order `vectors` of `warp.load`. With `if`, it writes
    registers only if the condition is true::

        warp.store %part, %s[%row, %column] if %others {registers = "vectors"} : !warp.fragment<...>, memref<...>

    With `at`, it writes the shared memory of another CTA of the cluster, the CTA with that rank::

        warp.store %sum, %s[%c0, %warp] at %rank : !warp.fragment<...>, memref<1x32xf32, 3>

    With `counted`, a lane for each CTA of the cluster sends it the only element, and does not wait. It arrives with its
    bytes at the same barrier of that CTA, which then sees it without a fence. Source: PTX ISA 9.7.9.12, `st.async`::

        warp.store %sum, %s[%c0, %warp] counted %full[%c0] : !warp.fragment<...>, memref<..., 3>, ...

    With `matrices`, the warp writes shared memory with `stmatrix`, in the words of `warp.load`; with `swapped`, memory
    gets the transpose. With `trans`, elements of 16 bits move in 8x8 matrices and those of 8 bits in matrices that are
    8x16 in memory (PTX ISA 9.7.14.5.16)::

        warp.store %d, %Ds[%m, %n] {matrices = "x4"} : !warp.fragment<acc, ...>, memref<128x64xf16, ..., 3>
    """

    name = "warp.store"

    fragment = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    taken = opt_operand_def(i1)
    cta = opt_operand_def(IndexType())
    barriers = opt_operand_def(BarriersType)
    number = opt_operand_def(IndexType())

    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$fragment `,` $memory `[` $indices `]` (`if` $taken^)? (`at` $cta^)? (`counted` $barriers^ `[` $number `]`)? "
        "attr-dict `:` type($fragment) `,` type($memory) (`,` type($barriers)^)?"
    )

    def verify_(self) -> None:
        memory, swapped = memory_of(self.memory), self.swapped is not None
        verify_indices("the memref", memory, self.indices)
        bounds(self.in_bounds)
        plain = self.matrices is None and self.in_bounds is None
        if (self.cta or self.barriers) is not None and not (plain and memory_space(memory) == SHARED_SPACE):
            raise VerifyException(f"another CTA's memory is shared, and each lane writes its elements; got {memory}")
        fragment = fragment_of(self.fragment)
        if self.barriers is not None and (self.cta is not None or fragment.shape != (1, 1)):
            raise VerifyException(f"one element is sent to all CTAs, and counted there; got {fragment}")
        if swapped and self.matrices is None:
            raise VerifyException("expected matrices where memory gets the transpose of a fragment")
        if (move := self.move) is not None:
            if self.in_bounds is not None or self.order or self.taken is not None:
                raise VerifyException("matrices go to shared memory: no in_bounds, no registers, no condition")
            verify_target(self, verify_matrix_move(move, memory, fragment, swapped, loads=False))
        elif self.order:
            verify_registers(self.order, ORDERS[:1], memory, fragment)
        else:
            verify_element(memory, fragment)
            if self.taken is not None:
                raise VerifyException("expected no condition: only registers are stored under one")


def fills_shared(op: Operation) -> bool:
    """Whether an operation stores to shared memory under a condition, and does nothing else."""
    return isinstance(op, scf.IfOp) and all(
        is_pure(one)
        or isinstance(one, FenceOp | scf.YieldOp)
        or (isinstance(one, StoreOp) and memory_space(memory_of(one.memory)) == SHARED_SPACE)
        for one in op.true_region.block.ops
    )
