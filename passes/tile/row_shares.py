"""How warps share the rows of `warp.rows`: what lanes, warps and CTAs hold of them, and how warps with one row reduce
it: through shared memory, of a CTA or of a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType, NoneAttr, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue

from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.layouts.layout import column as column_bit
from ...dialect.mlir.affine import loops_of, strides_of
from ...dialect.mlir.gpu import BarrierOp, ClusterBlockIdOp, SubgroupIdOp
from ...dialect.warp.attributes import BYTE, FragmentType, element_row, fragment_of
from ...dialect.warp.convert import IDENTITIES, ReduceOp, ScanOp
from ...dialect.warp.elements import IndexOp, all_yielded, element_type, shape_of
from ...dialect.warp.fragments import Kind
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.op_shapes import tile_type
from ...dialect.warp.rows import ACROSS, RowsOp, times_of
from ...dialect.warp.synchronisation import (
    CLUSTER,
    ArriveOp,
    AwaitOp,
    BarriersType,
    MakeBarriersOp,
    ScopedBarrierOp,
    has_clusters,
)
from ..diagnostics import fail
from ..linalg import operand as extents
from ..linalg.row_reductions import MAX_WARPS, PER_LANE, least_warps, reads_once
from ..linalg.split_rows import SUMMED, SUMMING_WARPS, clusters_at_once
from ..patterns import Index, IndexBuilder
from .elementwise_kernel import LARGEST_ROW, SECTOR_BITS, as_rows, by_sectors, over_elements, power_of_two
from .fragments import mapped, until
from .row_region import rescaled
from .traversal import ACCESS_BITS, LANE_BITS, WARPS, Traversal, TraversedMemory, lane_layout, lanes_along

# Lanes hold as many neighbours of a row as one access of 16 bytes takes, and follow each other along it; of short rows
# a warp takes several at a time. Where a row is longer than a warp holds, or its length is not known, each reduction
# is a loop along the row, and so is what is stored in the end: memory is read once for each.

SIDE_BY_SIDE = 2
"""Neighbours in memory that a lane holds of rows that lie across it (H100, sums of columns: one 0.79 to 0.83 of a copy,
two 0.91 to 0.93, four 0.83 to 0.90)."""

CLUSTER_WARPS, EXACT, NEARLY, MAX_CTAS = 8, ((2, 12), (4, 12), (8, 32)), ((2, 14), (4, 14), (8, 16)), 8
"""Where CTAs of a cluster share a row, warps of each, twice as many of rows that are too long otherwise; the most of
each of so many CTAs that share exactly a row along which inputs repeat, or of one input of 16 bits of which a
power of two of warps has no equal parts (H200, layer norm of 5120, 10240, 20480: 81.6, 88.3, 96.4 us by a power of two,
68.5, 71.4, 72.5 exactly; 262144: 138.2 and 112.2; where parts are equal, 24576: 79.5 and 91.5; gradient of RMS norm, of
two inputs, 5120: 98.0 and 110.8), or any longer row of two inputs without a vector (gradient of softmax, 151936: 168
and 121 us), or one that is scanned; nearly, of rows in groups of one such input (softmax of 50257: 110 and
100; its gradient, of two inputs: 100 and 130)."""

LONG_ROW = 16
"""How many warps may hold a row before CTAs share it (H100, rows of 32768: a softmax of one CTA of 32 warps 0.948 of a
copy, of four of 8 warps 0.993; its gradient 0.91 and 1.01)."""

MIN_WARPS = 2048
"""Warps that short rows are not spread over fewer than: a few for each SM."""

RESIDENT_WARPS, VECTOR_WARPS, SEVERAL, SMALL_BITS = 32, 40, 3, 16
"""Warps for which an SM has registers, of kernels whose CTAs share rows of so many inputs of so many bits (H100,
gradient of RMS norm in rows of 65536: 0.75 of a copy with 128 registers, 0.93 with 64; that of softmax loses), and of
fewer with a vector along them (H200, RMS norm in rows of 65536: 74.3 us, with 48 registers 71.0), or inputs that repeat
(group norm and SiLU in rows of 40960: 92.7 and 84.4)."""

TURNING_WARPS = 20
"""Warps for which an SM has registers where CTAs of half as many take rows of one input in turns (H200, layer norm of
20480, 40960: 72.5 and 73.4 us, not in turns 81.3 and 86.6; by seven warps, 28672: 112.6 and 84.8)."""

MIN_TURNS = 4
"""Rows of a cluster that takes them in turns, where vectors lie along them, which it then reads once (H100, rows of
65536: layer norm 106.0 and 98.2 microseconds; without vectors cross entropy 52.3 and 58.7), or one vector along long
rows of two inputs that are reduced twice (H200, gradient of RMS norm: 118.6 and 98.8; what is reduced once, a norm of a
sum: 134.1 and 139.5), or the longest rows of 16 bits that CTAs of 16 warps scan (131072: 79.5 and 72.4; of 8 warps,
65536: 67.1 and 70.5)."""


def traversal_of(op: RowsOp, outputs: Sequence[SSAValue], high: int) -> Traversal:
    """How warps go over rows. Each of `outputs` has a dimension for each loop. Inputs from `high` on are high words. Of
    memory of 16 bits whose element in the region is a word, words are read.

    Raises a located diagnostic for memory that no kernel goes through.
    """
    of_rows = [output for number, output in enumerate(outputs) if op.is_of_rows(number)]
    places, count = _places(op, outputs, high), len(op.inputs)
    reduces, indexed = reduces_rows(op), any(isinstance(inner, IndexOp) for inner in op.body.block.ops)
    made = [i for i in range(count, count + len(outputs)) if places[i].value not in of_rows]
    every = [i for i in range(count) if i in places and places[i].loops == tuple(range(op.loops))]
    main = next(iter((*made, *(every if op.is_summed(-1) else ()))), count)

    inputs = _joined(op, places, main, apart=reduces or indexed)
    output, written = inputs[main], [inputs[count + i] for i in range(len(outputs))]
    inputs = {i: place for i, place in inputs.items() if i < count}
    summed = [output for number, output in enumerate(outputs) if op.is_summed(number)]
    sums = [output for output in summed if output not in of_rows]
    if (op.is_numbered and summed) or (op.numbers and not reduces):
        fail(op, "numbers of rows are computed where rows are reduced, each on its own")
    if not reduces and any(place.times for place in inputs.values()):
        fail(op, "expected rows to be reduced, elements of whose inputs stand for several of a row")
    if not reduces and not summed:
        traversal = over_elements(op, inputs, written, output)
        return traversal if indexed else by_sectors(traversal)
    columns = len(output.loops) - 1
    rows = columns - 1 if columns else None
    each_row = [place for place in (*inputs.values(), *written) if place.value not in (*of_rows, *summed)]
    sizes = RowSizes.of(columns, each_row)
    group = group_of(op, sizes.long) if reduces and sizes.length is not None else 0
    # Of rows by groups with what is before them.
    length = None if sizes.length is None else sizes.length + max(0, group - 1)
    shared = length is not None and has_clusters(op)
    along = [place for place in inputs.values() if columns in place.loops and place not in written]
    per_lane = SUMMED if sums else PER_LANE
    once = length is not None and not op.is_numbered and reads_once(op)
    repeated, small = any(place.times for place in inputs.values()), all(place.bits <= SMALL_BITS for place in along)
    one = small and sum(rows in place.loops for place in along) == 1
    pair = small and not once and len(along) == sum(rows in place.loops for place in along) == 2
    scans = any(isinstance(inner, ScanOp) for inner in op.body.block.ops)

    def shares(*, narrow: int) -> tuple[Layout, int, RowShare, int]:
        several = None if op.is_numbered else rows
        layout = _layout(sizes, (*inputs.values(), *written), output, several, outputs, narrow=narrow, group=group)
        each = layout.columns * max(1, per_lane // layout.elements)
        share = RowShare(1, 1)
        if layout.rows == 1:
            share = RowShare.of(length or extents.USUAL, each, clusters=shared, exact=repeated)
            own = layout.columns * share.warps * share.ctas
            if one and length is not None and (length % own or length > own * (each // layout.columns)):
                share = RowShare.of(length, each, clusters=shared, exact=True, nearly=group > 0)
        if once and share.warps * share.ctas > (least := least_warps(output.size(rows), length or 1)):
            share = RowShare(least, 1)
        if shared and share == CROWDED and len(along) > 2 and sum(rows in place.loops for place in along) > 1:
            share = RowShare(CROWDED.warps // 2, 2)
        largest = RowShare(MAX_WARPS, MAX_CTAS)
        if layout.rows == 1 and (scans or pair) and (length is None or share.warps * share.ctas * each < length):
            if shared and length is not None and length <= largest.warps * largest.ctas * each:
                share = largest
            elif scans:  # one warp goes along a row by a loop
                share = RowShare(1, 1)
        parts = share.warps * share.ctas
        width = each if length is None else min(each, -(-length // (layout.columns * parts)) * layout.columns)
        if repeated:
            width = layout.columns * power_of_two(width, layout.columns)
        return layout, each, share, width

    layout, each, share, width = shares(narrow=0)
    accesses = layout.columns // LANES * max(place.bits for place in along) // ACCESS_BITS if along else 0
    if length is not None and layout.rows == 1 and (sums or group or accesses > 1):
        # Half as many neighbours in a lane, where an eighth of a row is then no longer beyond its end; of sums and two
        # inputs a quarter too (rows quantised, H100, 8416: 70 us by half, 84 by a quarter; halves, H200: 70 and 62).
        for halved in (1, 2) if sums or len(along) > 1 else (1,):
            narrow = shares(narrow=halved)
            less = width * share.warps * share.ctas - narrow[3] * narrow[2].warps * narrow[2].ctas
            layout, each, share, width = narrow if 8 * less >= length else (layout, each, share, width)
    for times in (place.times for place in inputs.values()):
        if times % width:
            fail(op, f"expected an element to stand for a multiple of the {width} that a warp holds, got {times}")
    across, parts, warp = share.warps, share.warps * share.ctas, (layout.rows, width)
    if across == 1 and length is not None and width >= length and not summed and not op.is_numbered:
        repeats = min(each // width, output.size(rows) // (warp[0] * MIN_WARPS))
        warp = layout.rows << max(0, repeats.bit_length() - 1), width
    warps = (1, across) if across > 1 else (1 if rows is None else WARPS, 1)
    fits = not group and length is not None and length % (width * parts) == 0
    cta = warp[0] * warps[0], None if share.ctas == 1 else width * across
    apart = shape_of(summed[0])[0] if summed else 0
    in_registers = reduces and length is not None and layout.rows == 1 and (once or width * parts >= length)
    in_registers = in_registers and rows is not None and min(output.kind.get_shape()) > 0
    if apart and not (in_registers and apart % warps[0] == 0):
        fail(op, "rows are summed where they are reduced too, each held by a CTA, of known sizes")
    vectors = sum(rows not in place.loops for place in along)
    own = TURNING_WARPS if one and 2 * across == TURNING_WARPS else SUMMING_WARPS
    in_cluster = in_registers and share.ctas > 1 and across <= own and columns == 1 and not op.is_numbered
    in_cluster = in_cluster and (repeated or own % across == 0)
    full = scans and not group and small and across == 2 * CLUSTER_WARPS and length == parts * each
    twice = sum(isinstance(inner, ReduceOp) for inner in op.body.block.ops) > 1 and parts > LONG_ROW
    if not apart and in_cluster and (full or vectors > 1 or (vectors and small and twice and len(along) >= SEVERAL)):
        at_once = clusters_at_once(parts, op, own)
        apart = at_once if output.size(rows) >= MIN_TURNS * at_once else 0
    resident = (own if sums or not summed else RESIDENT_WARPS) if apart else 0
    several = repeated and across <= VECTOR_WARPS // 2  # CTAs of an SM
    if share.ctas > 1 and small and (vectors or several or len(along) >= SEVERAL):
        resident = resident or (RESIDENT_WARPS if len(along) >= SEVERAL else VECTOR_WARPS)
    sizes_ = rows, columns, layout, warp, warps, cta, fits, of_rows, share.ctas
    return Traversal(op, inputs, written, output, *sizes_, parts=apart, resident=resident, group=group)


def is_turned(op: LinalgStructuredOperation) -> bool:
    """Whether an elementwise operation reads memory in layouts that are made for how it lies."""
    rows = as_rows(op)
    turned = traversal_of(rows, rows.outputs, len(rows.inputs)).turned
    rows.erase()
    return bool(turned)


def _joined(op: RowsOp, places: dict[int, TraversedMemory], main: int, *, apart: bool) -> dict[int, TraversedMemory]:
    """Memory with as few loops as possible, those of one with all of them, `main`. Rows that are `apart`, for they are
    reduced or have indices, keep their loop; others have less than `LARGEST_ROW` bytes. Raises a located diagnostic for
    memory that has no strides."""
    if other := next((place.kind for place in places.values() if strides_of(place.kind) is None), None):
        fail(op, f"expected strided memory, got {other}")
    widest = max(place.bits for place in places.values())
    for loop in range(len(places[main].loops) - 2, -1, -1):
        shape = places[main].kind.get_shape()
        of_rows = loop + 2 < len(shape) and not op.row_indices
        may_join = of_rows if apart else math.prod(shape[loop : loop + 2]) * widest // BYTE < LARGEST_ROW
        if may_join and all(place.joins(loop) for place in places.values()):
            fewer = {i: place.joined(loop) for i, place in places.items()}
            shapes = {(place.value, place.groups) for place in fewer.values()}
            if len(shapes) == len({value for value, _ in shapes}):  # memory has one shape, however often it is read
                places = fewer
    return places


def _places(op: RowsOp, outputs: Sequence[SSAValue], high: int) -> dict[int, TraversedMemory]:
    """The memory of inputs, by number, and behind them of outputs."""
    own = {op.outputs[number]: output for number, output in enumerate(outputs) if op.is_of_rows(number)}
    places: dict[int, TraversedMemory] = {}
    for i, (value, along) in enumerate(zip(op.inputs, op.maps, strict=False)):
        if isinstance(value.type, MemRefType):
            # What an element is added to, its own lane reads.
            pairs = op.body.block.args[i].type == i32 != element_type(value) != i64
            read = TraversedMemory.of(value, loops_of(along))
            read = read._replace(high=i >= high, pairs=pairs, times=times_of(along))
            places[i] = TraversedMemory.of(own[value], range(op.loops)) if value in own else read
    for i, (output, made) in enumerate(zip(outputs, all_yielded(op.body), strict=False), len(op.inputs)):
        pairs = made.type == i32 != element_type(output) != i64
        places[i] = TraversedMemory.of(output, range(op.loops))._replace(pairs=pairs)
    for place in places.values():
        if 0 in place.kind.get_shape():
            fail(op, f"warp.rows has no elements to go through: {place.kind}")
    return places


class RowShare(NamedTuple):
    """Warps of a CTA, and CTAs of a cluster, that share a row."""

    warps: int
    ctas: int

    @staticmethod
    def of(length: int, each: int, *, clusters: bool, exact: bool, nearly: bool = False) -> RowShare:
        """The share for rows of `length` elements, of which each warp takes `each`; if it is `exact`, of rows that are
        a multiple of these, no warp more, where a cluster has so many; if it is so `nearly`, the fewest warps."""
        if not clusters or length <= LONG_ROW * each:
            fewest = nearly or (exact and length % each == 0)
            return RowShare(min(MAX_WARPS, -(-length // each) if fewest else power_of_two(length, each)), 1)
        for ctas, most in NEARLY if nearly else EXACT if exact else ():
            warps = -(-length // (ctas * each))
            if warps <= most and (nearly or warps * ctas * each == length):
                return RowShare(warps, ctas)
        for warps in (CLUSTER_WARPS, 2 * CLUSTER_WARPS):
            if 1 < (ctas := power_of_two(length, warps * each)) <= MAX_CTAS:
                return RowShare(warps, ctas)
        return RowShare(min(MAX_WARPS, power_of_two(length, each)), 1)


CROWDED = RowShare(16, 1)
"""Warps whose registers an SM has room for once where each lane holds elements of two rows, and of a vector along them;
half as many in each of two CTAs are faster (H100, gradient of RMS norm in rows of 16384: 0.73 of a copy and 0.88)."""


def reduces_rows(op: RowsOp) -> bool:
    """Whether an operation reduces or scans along rows."""
    return any(isinstance(inner, ACROSS) for inner in op.body.block.ops)


class RowSizes(NamedTuple):
    """Memory with an element for each of a row, along a loop, and the length of rows; None if it is not known."""

    long: Sequence[TraversedMemory]
    length: int | None

    @staticmethod
    def of(columns: int, places: Sequence[TraversedMemory]) -> RowSizes:
        long = [place for place in places if columns in place.loops]
        sizes = (place.kind.get_shape()[place.loops.index(columns)] for place in long)
        return RowSizes(long, next((size for size in sizes if size >= 0), None))


def _layout(
    sizes: RowSizes,
    places: Sequence[TraversedMemory],
    output: TraversedMemory,
    rows: int | None,
    outputs: Sequence[SSAValue],
    *,
    narrow: int,
    group: int,
) -> Layout:
    """How a warp's base tile of every operand lies in its lanes; with neighbours halved `narrow` times;
    of rows in groups, if that is said."""
    columns = len(output.loops) - 1
    least = min(place.bits for place in places)
    wide = [group or place.together() for place in sizes.long if place.neighbours == columns]
    written = [place.bits for place in sizes.long if place.value in outputs]
    within, across = lanes_along(max(written, default=least), wide, sizes.length or extents.USUAL)
    across = LANE_BITS if rows is None or output.size(rows) == 1 else across
    of_both = [place for place in sizes.long if rows is not None and rows in place.loops]
    reduced = not any(place.value in outputs for place in sizes.long)
    if rows is not None and reduced and of_both and all(place.neighbours == rows for place in of_both):
        # Neighbours in memory, of other rows, go to lanes side by side, several to a lane where warps are many. Where
        # they are few, lanes have other elements of a row.
        warps = math.prod(map(output.size, range(columns))) // LANES
        side = min(SIDE_BY_SIDE, *(place.together() for place in of_both), max(1, warps // MIN_WARPS))
        few = min(
            MIN_WARPS // max(1, warps),
            LANES * min(p.bits for p in of_both) // SECTOR_BITS,
            sizes.length or extents.USUAL,
        )
        return lane_layout(least, 0, max(1, few).bit_length() - 1, more_rows=False, side=side.bit_length() - 1)
    return lane_layout(least, max(0, within - narrow), across, more_rows=False)


def group_of(op: RowsOp, places: Sequence[TraversedMemory]) -> int:
    """Elements of a group by which rows are read and stored, where memory with an element for each of a row has rows
    alone, of one odd length, one after another, and none is in place; 0 for others (H200, us, of pairs of elements: a
    softmax of 30522 takes 77.3 so and 71.5 otherwise, cross entropy 43.7 and 46.1)."""
    shapes = {(place.loops, place.kind.get_shape()) for place in places}
    (loops, shape), bits = min(shapes), [place.bits for place in places]
    group, summed = ACCESS_BITS // min(bits), any(map(op.is_summed, range(len(op.outputs))))
    plain = len(shapes) == 1 and loops == (0, 1) and len({place.value for place in places}) == len(places)
    if not plain or op.is_numbered or summed or shape[0] < 2 or shape[1] < LANES * PER_LANE:
        return 0
    if any(p.kind.layout != NoneAttr() or p.kind.element_type == i64 or p.pairs or p.times for p in places):
        return 0
    return group if shape[1] % 2 and math.prod(shape) * max(bits) < BYTE * LARGEST_ROW else 0


CHUNK_ELEMENTS = 4
"""Elements of f32 in the shortest line of shared memory."""


@dataclass
class RowJoin:
    """Reduces columns of a row over the warps of a CTA, or of CTAs, that share the row, through shared memory. `sent`
    has the bytes that a barrier counts for each reduction. In turns, lines and barriers of one are not those of the
    next, so that all have read a line before it is written again."""

    warps: int
    ctas: int
    copies: int
    sent: Sequence[int] = ()
    full: SSAValue | None = None
    turn: Index = 0
    reduced: int = 0

    @staticmethod
    def of(index: IndexBuilder, warps: int, ctas: int, op: RowsOp, *, turns: bool) -> RowJoin:
        """That of a kernel's rows. CTAs of a cluster count what others send at a barrier for each reduction."""
        copies = 2 if turns else 1
        if ctas == 1:
            return RowJoin(warps, ctas, copies)
        rows = [element_row(each.result.type) for each in op.body.block.ops if isinstance(each, ACROSS)]
        sent = [0 if row is None else row.bits // BYTE * warps * ctas for row in rows]
        full = index.insert(MakeBarriersOp(BarriersType.of(copies * len(sent)), 1)).barriers
        for number, size in enumerate(sent * copies):
            index.insert(ArriveOp(full, index.value(number), bytes=size))
        index.insert(ScopedBarrierOp(CLUSTER, arrive=True, mbarriers=True))
        return RowJoin(warps, ctas, copies, sent, full)

    def enter(self, index: IndexBuilder) -> None:
        """Waits until all CTAs run, before others write their memory."""
        if self.full is not None:
            index.insert(ScopedBarrierOp(CLUSTER, wait=True))

    def __call__(
        self, index: IndexBuilder, columns: Sequence[tuple[Kind, SSAValue]], below: bool, *, before: bool = False
    ) -> list[SSAValue]:
        """The columns of whole rows. With two that are `below`, sums below the largest of each warp are scaled. Those
        of the part of a row `before` what this warp has begin from the identity."""
        warps, count = self.warps, self.warps * self.ctas
        if count == 1:
            return [column for _, column in columns]
        element = [fragment_of(column).element_type for _, column in columns]
        bits = (count - 1).bit_length()
        kinds = [tile_type(e, [self.copies, max(1 << bits, CHUNK_ELEMENTS)]) for e in element]
        copy = index.rem(self.turn, self.copies)
        lines = [index.constants.insert(memref.AllocOp([], [], kind)).memref for kind in kinds]
        warp: Index = index.insert(SubgroupIdOp()).result

        def rank() -> Index:
            """The number of this warp among those that share a row."""
            return warp if self.ctas == 1 else index.add(index.mul(index.number(ClusterBlockIdOp), warps), warp)

        if self.copies == 1 and not self.reduced:
            self.enter(index)
        counted = list[tuple[SSAValue, SSAValue]]()
        for (_, column), memory in zip(columns, lines, strict=True):
            if self.full is None:
                index.insert(StoreOp(column, memory, index.values([copy, warp])))
                continue
            own = index.values([copy, rank()])
            full, number = self.full, index.value(index.add(index.mul(copy, len(self.sent)), self.reduced))
            counted.append((full, number))
            index.insert(StoreOp(column, memory, own, barriers=full, number=number))
            self.reduced += 1
        if self.full is None:
            index.insert(BarrierOp())
        parity = index.value(index.rem(index.div(self.turn, self.copies), 2))
        for barrier, size in zip(counted, self.sent[self.reduced - len(counted) :], strict=False):
            index.insert(AwaitOp(*barrier, parity))
            if self.copies > 1:
                index.insert(ArriveOp(*barrier, bytes=size))
        lane = [column_bit(i) if i < bits else Bit("x", i - bits) for i in range(LANE_BITS)]
        layout = Layout(tuple(lane), tuple(column_bit(i) for i in range(LANE_BITS, bits)))
        joined, parts = list[SSAValue](), list[SSAValue]()
        for (by, _), memory, kind in zip(columns, lines, element, strict=True):
            every = index.insert(
                LoadOp(memory, index.values([copy, 0]), FragmentType.of("acc", 1, 1 << bits, kind, layout))
            ).fragment
            if before or count < 1 << bits:
                every = until(index, every, index.sub(0, rank()) if before else -count, IDENTITIES[by], 1, -1)
            part = mapped(index, rescaled, every, parts[0], joined[0]) if below and len(parts) == 1 else every
            parts.append(part)
            joined.append(index.insert(ReduceOp(by, part)).result)
        return joined
