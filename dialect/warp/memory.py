"""Fragments from and to memory: `warp.load`, `warp.store`; and copies from memory to memory."""

from __future__ import annotations

from math import prod
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    Float8E8M0FNUType,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    bf16,
    i1,
    i64,
)
from xdsl.ir import Operation
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import SCALES_OF_WORD
from ..layouts.layout import column
from ..mlir.affine import strides_of
from ..mlir.words import irdl_op_definition
from .attributes import (
    BYTE,
    SHARED_SPACE,
    TENSOR_SPACE,
    FragmentType,
    Memory,
    element_row,
    fragment_of,
    is_shared,
    memory_of,
    memory_space,
)
from .fragments import AXES, ORDERS, MatrixMove, verify_matrix_move, verify_registers
from .op_shapes import (
    WHOLE_TILE,
    TilePart,
    WarpOp,
    bounds,
    in_memory,
    is_pure,
    same_words,
    verify_element,
    verify_indices,
    verify_one_warp,
    verify_target,
)
from .synchronisation import BarriersType, FenceOp
from .views import BlocksAttr


def _verify_scales(memory: Memory, fragment: FragmentType) -> None:
    """Checks that shared memory holds the scales of a fragment, of which each lane reads one word for each base
    tile."""
    verify_one_warp("scales", fragment)
    if not is_shared(memory):
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
        rank, of_tile = memory.get_num_dims(), is_shared(memory)
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
        if not is_shared(memory):
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

    With `within`, columns may also lie before the first one, and are not written there; neighbours of a lane lie where
    an access of all of them, or of 16 bytes, may. With `registers`, it writes the registers in the order `vectors` of
    `warp.load`. With `if`, it writes registers only if the condition is true::

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
    within = opt_prop_def(UnitAttr)

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
        if (self.cta or self.barriers) is not None and not (plain and is_shared(memory)):
            raise VerifyException(f"another CTA's memory is shared, and each lane writes its elements; got {memory}")
        fragment = fragment_of(self.fragment)
        if self.barriers is not None and (self.cta is not None or fragment.shape != (1, 1)):
            raise VerifyException(f"one element is sent to all CTAs, and counted there; got {fragment}")
        if self.within is not None and (self.order or self.matrices or is_shared(memory)):
            raise VerifyException(f"elements are stored within the columns of a matrix in global memory; got {memory}")
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
        or (isinstance(one, StoreOp) and is_shared(memory_of(one.memory)))
        for one in op.true_region.block.ops
    )


# Copies by all threads of a CTA: tiles from global to shared memory, and whole matrices to aligned rows.
#
# `warp.copy`, `warp.pack`.

SPREAD, DENSE = "b4x16_p64", "b6x16_p32"
"""The formats of 16 elements of 4 bits and of 6 bits that begin each 16 bytes (PTX ISA 5.5.1.1, 9.7.14.5.15)."""


class CopyEffects(MemoryEffect):
    """Effects of an operation that reads its `source` and writes its `destination`."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        copy = cast("CopyOp | PackOp", op)
        reads, writes = MemoryEffectKind.READ, MemoryEffectKind.WRITE
        return {EffectInstance(reads, copy.source), EffectInstance(writes, copy.destination)}


@irdl_op_definition
class CopyOp(WarpOp):
    """Copies the tile at `source[indices]` to shared memory. Each thread of the CTA copies a part.

    The tile is the last two dimensions of the destination, or of their rows part number i of n,
    with `part` [i, n]; with [i, n, 1] of their columns; with [i, n, 0, c] c parts of the rows, from i on. The leading
    dimensions are indexed, for example by the stage of a pipeline. Elements outside the source are written as zero;
    `in_bounds` [rows, columns] promises that there are none. All threads of the CTA execute the copy, and see the tile
    after a `gpu.barrier`. The bits are copied unchanged: f32 to a tile of tf32, or i8 to a tile of ui8. With
    `async`, the copy is in flight until a `warp.wait cp_async` covers its `warp.commit cp_async`. With `until`, rows
    of the source from this index on are not read, as if they were outside of it. With `padded` [f, r, c, d, n, ...]
    and `at`, the source is a window of images that have zeros around them, and begins f elements behind the memory.
    Its element (i, j) is not read unless at + r * i + c * (j / d) is from 0 on and below n, for each of `at`. With
    `packed`, elements of 4 bits are written in the format that `ldmatrix` reads: 16 elements in the first half of
    each 16 bytes. The type of the tile then has a byte for each element. Elements of 6 bits, a byte each in the
    source, begin each 16 bytes likewise; `warp-pack` gives the copy a source in which they do::

        warp.copy %A[%m, %k] to %As[%stage] {async} : memref<256x192xf16> to memref<4x128x64xf16, #warp.swizzle<128>, 3>
        warp.copy %A[%m, %k] to %As[] {packed = "b4x16_p64"} : memref<256x192xf4E2M1FN> to memref<128x64xi8, ..., 3>

    With `blocks`, the tile has blocks of the source as `warp.pack` makes them, of tiles of so many rows; `warp-pack`
    gives the copy a source that has them.

    From shared memory one thread copies a tile to tensor memory, in order with its products: the scales of a product
    as blocks, to a matrix of their rows, or words to the 128 lanes::

        warp.copy %SAs[%s, %zero, %zero] to %T[%s] : memref<4x64x16xf8E8M0FNU, #warp.swizzle<16>, 3>
            to memref<4x128x8xf8E8M0FNU, 6>
    """

    name = "warp.copy"

    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    destination = operand_def(MemRefType)
    stage = var_operand_def(IndexType())
    until = opt_operand_def(IndexType())
    at = var_operand_def(IndexType())
    is_async = opt_prop_def(UnitAttr, prop_name="async")
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])
    part = opt_prop_def(DenseArrayBase.constr(i64))
    packed = opt_prop_def(StringAttr)
    blocks = opt_prop_def(BlocksAttr)
    padded = opt_prop_def(DenseArrayBase.constr(i64))

    traits = traits_def(CopyEffects())
    assembly_format = (
        "$source `[` $indices `]` `to` $destination `[` $stage `]` (`until` $until^)? (`at` `[` $at^ `]`)? attr-dict"
        " `:` type($source) `to` type($destination)"
    )

    @property
    def place(self) -> TilePart:
        """Which part of the tile is copied."""
        return WHOLE_TILE if self.part is None else TilePart(*self.part.get_values())

    def verify_(self) -> None:
        source, destination = memory_of(self.source), memory_of(self.destination)
        number, parts, axis, span = self.place
        if not 0 <= number < number + span <= parts or destination.get_shape()[axis - 2] % parts:
            what = "columns" if axis else "rows"
            got = f"{span} from number {number}" if span > 1 else f"number {number}"
            raise VerifyException(f"expected a part of the {what} of {destination}, got {got} of {parts}")
        verify_indices("the source", source, self.indices)
        wanted = TENSOR_SPACE if is_shared(source) else SHARED_SPACE
        if memory_space(destination) != wanted:
            what = "tensor memory" if wanted == TENSOR_SPACE else "shared memory"
            raise VerifyException(f"expected a destination in {what} (space {wanted}), got {destination}")
        rank = destination.get_num_dims()
        if rank != 2 + len(self.stage):
            raise VerifyException(
                f"expected a destination of {len(self.stage)} stage index(es) and a tile, got rank {rank}"
            )
        if self.packed is not None:
            self.verify_packed(self.packed.data, source, destination)
        elif not same_words(source.element_type, destination.element_type):
            raise VerifyException(
                f"expected source and destination of one element type, got {source.element_type} "
                f"and {destination.element_type}"
            )
        rows, _ = bounds(self.in_bounds)
        if self.until is not None and rows:
            raise VerifyException("expected rows that may be out of bounds with `until`, got in_bounds = [true, ...]")
        if (self.padded is not None or self.at) and len(self.padded or ()) != 1 + 4 * len(self.at):
            raise VerifyException(
                f"expected padded = [f, r, c, d, n] with four more for each of `at`, got {self.padded}"
            )

    @staticmethod
    def verify_packed(packed: str, source: Memory, destination: Memory) -> None:
        from_, to = element_row(source.element_type), element_row(destination.element_type)
        if packed not in (SPREAD, DENSE):
            raise VerifyException(f"expected a packed format of {SPREAD} or {DENSE}, got '{packed}'")
        bits, wanted = (4, 8) if packed == SPREAD else (6, 6), "4 bits in a tile of bytes"
        if from_ is None or to is None or (from_.bits, to.bits) != bits:
            wanted = wanted if packed == SPREAD else "6 bits"
            raise VerifyException(f"{packed} is of elements of {wanted}, got {source} to {destination}")


@irdl_op_definition
class PackOp(WarpOp):
    """Copies a matrix to a larger one in global memory, with longer or more rows. The additional elements are zero.
    With `packed`, 16 elements of 6 bits begin each 16 bytes of the larger one, without bits between them.

    The CTAs of a grid share the work. Each copies part number `%share` of `shares` parts::

        warp.pack %A to %W share %cta {shares = 512 : i64} : memref<4095x4095xbf16> to memref<4096x4096xbf16>

    With `blocks`, the destination has the blocks of the source behind each other, those of the same rows first. Blocks
    begin with each tile of so many rows. The layout says which row and column of a block an element of each line is.
    Words of 32 bits beyond the source are metadata of the first elements of a chunk, 0x44444444. The source may be
    several matrices, whose blocks are behind each other::

        warp.pack %S to %W share %cta {blocks = #warp.blocks<192, 2, r0 r1 r2 r3 r4 | c0 c1 r5 r6>, shares = 1 : i64}
            : memref<200x8xf8E8M0FNU> to memref<256x16xf8E8M0FNU>

    Without `shares`, as for blocks of matrices of dynamic size, a part is a line for each thread.
    """

    name = "warp.pack"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)
    share = operand_def(IndexType())
    shares = opt_prop_def(IntegerAttr)
    blocks = opt_prop_def(BlocksAttr)
    packed = opt_prop_def(StringAttr)

    traits = traits_def(CopyEffects())
    assembly_format = "$source `to` $destination `share` $share attr-dict `:` type($source) `to` type($destination)"

    def verify_(self) -> None:
        source, destination = memory_of(self.source), memory_of(self.destination)
        if self.shares is None and self.blocks is None:
            raise VerifyException("expected shares of a matrix that is not in blocks")
        if self.shares is not None and self.shares.value.data < 1:
            raise VerifyException(f"expected at least one share, got {self.shares.value.data}")
        if source.element_type != destination.element_type:
            raise VerifyException(f"expected matrices of one element type, got {source} and {destination}")
        rank = source.get_num_dims()
        if rank < 2 or (rank > 2 and self.blocks is None) or destination.get_num_dims() != 2:
            raise VerifyException(f"expected matrices of rank 2, got {source} and {destination}")
        if self.packed is not None:
            CopyOp.verify_packed(self.packed.data, source, destination)
        if self.blocks is not None:
            self._verify_blocks(self.blocks, source.get_shape(), destination.get_shape())
        elif any(to < size for size, to in zip(source.get_shape(), destination.get_shape(), strict=True)):
            raise VerifyException(f"expected room for all of {source}, got {destination}")

    @staticmethod
    def _verify_blocks(blocks: BlocksAttr, source: tuple[int, ...], destination: tuple[int, ...]) -> None:
        order, (*others, rows, row), (lines, columns) = blocks.layout, source, destination
        wanted = prod(others) * -(-rows // blocks.rows) * blocks.tile_lines
        short = min(lines, rows) >= 0 and lines < wanted
        if columns != order.elements or short or row > blocks.along * order.columns:
            raise VerifyException(
                f"expected {max(wanted, 0)} lines of {order.elements} elements or more for "
                f"{'x'.join(map(str, source))} elements in {blocks}, got {lines}x{columns}"
            )
