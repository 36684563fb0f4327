"""What a CTA copies together: `warp.copy`, `warp.pack`."""

from __future__ import annotations

from math import prod
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    i1,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..mlir.words import irdl_op_definition
from .attributes import SHARED_SPACE, TENSOR_SPACE, Memory, element_row, enclosing, memory_of, memory_space
from .op_shapes import WHOLE_TILE, CountedType, TilePart, WarpOp, bounds, same_words, verify_indices
from .views import BlocksAttr

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
        wanted = TENSOR_SPACE if memory_space(source) == SHARED_SPACE else SHARED_SPACE
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


# Rings of stages of shared memory: `!warp.ring`, `warp.make_ring`, `warp.pipeline`.
#
# Who copies tiles fills one stage after the other, and who multiplies reads them in that order. A ring says how the two
# agree on which stages are full and which may be filled again. `warp-synchronise` makes barriers of it.


@irdl_attr_definition
class RingType(CountedType):
    """A ring of stages of shared memory: `!warp.ring<4>`."""

    name = "warp.ring"

    COUNTED = "stage"


@irdl_op_definition
class MakeRingOp(WarpOp):
    """Makes a ring of stages of shared memory::

        %ring = warp.make_ring {writers = 256 : i64, readers = 8 : i64} : !warp.ring<4>
        %ring = warp.make_ring peers(%a, %b) {writers = 1 : i64, readers = 24 : i64} : !warp.ring<4>
        %ring = warp.make_ring {ahead = 2 : i64} : !warp.ring<4>

    `writers` arrivals make a stage full, and those of `readers` warps empty, or of as many warpgroups with
    `each_warpgroup`, where products alone read. Who has read a stage tells the `peers` as well, other CTAs of the
    cluster, by rank. With `ahead`, all threads of the CTA copy and read, and meet at a barrier for each stage, of which
    so many are on their way while one is read. Threads may use the ring after a `gpu.barrier`.
    """

    name = "warp.make_ring"

    ring = result_def(RingType)
    writers = opt_prop_def(IntegerAttr)
    readers = opt_prop_def(IntegerAttr)
    peers = var_operand_def(IndexType())
    ahead = opt_prop_def(IntegerAttr)
    each_warpgroup = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = "(`peers` `(` $peers^ `)`)? attr-dict `:` type($ring)"

    def verify_(self) -> None:
        numbers = tuple(number is not None for number in (self.writers, self.readers, self.ahead))
        if numbers not in ((True, True, False), (False, False, True)):
            raise VerifyException("expected either the writers and the readers of a stage, or 'ahead'")
        if self.ahead is not None and self.peers:
            raise VerifyException("a barrier of a CTA has no peers")


ACQUIRE, COMMIT, WAIT, RELEASE = "producer_acquire", "producer_commit", "consumer_wait", "consumer_release"
FILLED, READ = "producer_advance", "consumer_advance"

STEPS = (ACQUIRE, COMMIT, WAIT, RELEASE, FILLED, READ)


@irdl_op_definition
class PipelineOp(WarpOp):
    """One step of who fills or reads a stage of a ring; steps have the names that CUTLASS gives them::

        %s = warp.pipeline producer_acquire %ring {bytes = 49152 : i64} : !warp.ring<4> -> index
        warp.pipeline consumer_release %ring {late} : !warp.ring<4>
        warp.pipeline consumer_advance %ring by %n : !warp.ring<4>

    - `producer_acquire` waits until a stage has been read. Tensor copies will fill it with so many `bytes`;
      `consumer_wait` waits until it is full.
    - `producer_commit` comes after copies to a stage were started, if they have no bytes; with `products`, the stage is
      full when the products in tensor memory that were started so far are done.
    - `consumer_release` says that a stage has been read; with `products`, that it will have been when the products in
      tensor memory that were started so far are done; with `late`, that the stage left to it has been, if there is one.
    - `producer_advance` and `consumer_advance` go on to the next stage, or by a number; `late` leaves it to a release.

    Producers and consumers are at a stage each, first at stage 0; branches of `scf.if` go on each for themselves. A
    result is the number of the stage. A step may name it instead, and where it waits the parity of its phase:
    `%ring[%stage] parity %parity`. Of a ring with `ahead`, all threads come to one stage after the other.
    """

    name = "warp.pipeline"

    step = prop_def(StringAttr)
    ring = operand_def(RingType)
    stage = opt_operand_def(IndexType())
    parity = opt_operand_def(IndexType())
    by = opt_operand_def(IndexType())
    bytes = opt_prop_def(IntegerAttr)
    products = opt_prop_def(UnitAttr)
    late = opt_prop_def(UnitAttr)
    number = opt_result_def(IndexType())

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = (
        "custom<BareWord>($step) $ring (`[` $stage^ `]`)? (`parity` $parity^)? (`by` $by^)? attr-dict"
        " `:` type($ring) (`->` type($number)^)?"
    )

    @property
    def at(self) -> SSAValue:
        """The number of the stage of a step that waits for one."""
        return self.results[0]

    def verify_(self) -> None:
        step = self.step.data
        if step not in STEPS:
            raise VerifyException(f"expected a step of {', '.join(STEPS)}, got '{step}'")
        waits = step in (ACQUIRE, WAIT) and self.stage is not None
        if (self.parity is not None) != waits:
            raise VerifyException(f"expected a parity where a stage is waited for, and nowhere else, in {step}")
        if self.products is not None and step not in (COMMIT, RELEASE):
            raise VerifyException(f"expected products in {COMMIT} or {RELEASE}, got them in {step}")
        if self.bytes is not None and step != ACQUIRE:
            raise VerifyException(f"expected bytes in {ACQUIRE}, got them in {step}")
        if self.late and (step not in (RELEASE, READ) or self.stage or self.by):
            raise VerifyException(f"expected late in {RELEASE} or {READ}, of the stage that it is at, got it in {step}")
        if (self.by is not None or self.stage is not None) and (self.by is None) == (step in (FILLED, READ)):
            raise VerifyException(f"expected 'by' in {FILLED} or {READ}, and a stage in other steps, got {step}")
        if self.number and (step not in (ACQUIRE, WAIT) or self.stage):
            raise VerifyException(f"expected a number of {ACQUIRE} or {WAIT} without a stage, got one of {step}")


SOME_WARPS = "warp.warps"
"""The attribute of an `scf.if` whose region only so many warps of a CTA execute, from the first on."""


OF_SLICES = "warp.of_slices"
"""The attribute of what makes the sum of all slices of K."""


def some_warps(op: Operation) -> int | None:
    """How many warps execute an operation; None if all of the CTA do."""
    counts = (around.attributes.get(SOME_WARPS) for around in enclosing(op))
    return next((count.value.data for count in counts if isinstance(count, IntegerAttr)), None)


PAIRS = "warp.pairs"
"""The attribute of a kernel whose CTAs, two in each cluster, multiply together in tensor memory: a product has 128 rows
of A and D in each, and half of the columns of B. The first CTA starts all products, and waits at barriers of its
own for copies and readers in both; both are told when products are done. Source: PTX ISA 9.7.16.5.1."""


def in_pairs(op: Operation) -> bool:
    """Whether the kernel of an operation multiplies in pairs of CTAs."""
    return any(PAIRS in each.attributes for each in (op, *enclosing(op)))


@irdl_op_definition
class DisjointOp(WarpOp):
    """Makes a call fail if two views of memory share an element::

        warp.disjoint %written, %read : memref<?x64xf32, strided<[128, 1]>>, memref<64x?xf32, strided<[128, 1]>>
        warp.disjoint %written, %read or_same : memref<?x64xf32, strided<[?, 1]>>, memref<?x64xf32, strided<[?, 1]>>

    The compiler puts it before an operation that writes one view and reads the other, if dynamic sizes decide whether
    they share an element. With `or_same`, the two views may also be the same elements in the same places. Two arguments
    of a function never share memory if one of them is written.
    """

    name = "warp.disjoint"

    written = operand_def(MemRefType)
    read = operand_def(MemRefType)
    or_same = opt_prop_def(UnitAttr)

    assembly_format = "$written `,` $read (`or_same` $or_same^)? attr-dict `:` type($written) `,` type($read)"

    def verify_(self) -> None:
        written, read = memory_of(self.written), memory_of(self.read)
        if written.element_type != read.element_type:
            raise VerifyException(
                f"expected two views of one memory, got elements of {written.element_type} and {read.element_type}"
            )


@irdl_op_definition
class IsDivisibleOp(WarpOp):
    """Whether, in this call, the rows of memory begin at multiples of a number of elements::

        %whole = warp.is_divisible %A by 8 : memref<?x?xbf16>

    It is true if the number divides the size of the contiguous dimension, every other stride, and the address of the
    first element. Where it is true, a `memref.cast` to the same type has the attribute `warp.divisible`, by which an
    argument of a function promises it for each call.
    """

    name = "warp.is_divisible"

    memory = operand_def(MemRefType)
    divisor = prop_def(IntegerAttr[i64])
    answer = result_def(i1)

    traits = traits_def(Pure())
    assembly_format = "$memory `by` $divisor attr-dict `:` type($memory)"

    @property
    def number(self) -> int:
        """The divisor, in elements."""
        return self.divisor.value.data

    def verify_(self) -> None:
        if self.number < 1:
            raise VerifyException(f"expected a divisor of 1 or more, got {self.number}")
