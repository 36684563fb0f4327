"""A kernel for a sum over windows in which each channel has a kernel of its own (`linalg/window_sums.py`).

A thread computes some neighbouring channels, as vectors, of several neighbouring pixels of a row. It goes along the
other dimensions of the window in loops, without turns for what lies in zeros around the images. In a turn it has a row
of its kernel, and each pixel that it reads is multiplied for all pixels of the result whose windows have it: a pixel is
read once in a turn, not once for each tap. Rows of a CTA read the same pixels out of the first cache. What is done to
each element of the sums, and no reduction, is done before they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith, math, memref
from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, FloatAttr, MemRefType, VectorType, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, is_projection, loops_of, map_along
from ...dialect.mlir.gpu import BlockIdOp, ThreadIdOp
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.matmul import BY_ELEMENT
from ...dialect.warp.rows import RowsOp
from ..diagnostics import fail
from ..linalg.elementwise import read_elementwise
from ..linalg.memory_uses import touched
from ..linalg.operand import VectorOperand, drop_unused, root, users_of
from ..linalg.window_sums import WindowDimension, WindowSum, is_by_channels
from ..patterns import Index, IndexBuilder, operations_between
from . import nest_kernel
from .nest_kernel import BY_VECTORS, load, spread, start_of, store
from .tiling import Outliner, kernel_body

THREADS, LANES, ROWS = 256, 64, 8
"""Threads of a CTA at most, those along channels, and rows of pixels: so many share most of what they read. Threads
along channels come out even where they can (H100, 144 channels of 56x56 by a stride of 2: 55 us in two groups of 32,
of which the second has 4)."""

FEW_PIXELS = 4
"""Pixels of a thread with which parts of a row of taps are the outermost loop (H100, gradients of filters of 56x56: 70
us for 96 of 3x3, but 166 for 140 of 7x7; the turns of an innermost loop along parts are known)."""


class Finish(NamedTuple):
    """The operation that finishes the sums of a window: a body, the arguments of its elements, the inputs (None for the
    sums), and their maps by the output's loops in order."""

    op: Operation
    body: Block
    elements: Sequence[SSAValue]
    inputs: Sequence[SSAValue | None]
    maps: Sequence[AffineMap]
    output: SSAValue

    @staticmethod
    def of(op: LinalgStructuredOperation, windows: WindowSum) -> Finish | None:
        """The operation that finishes the sums of a window, if it is the only one that reads them. None if it computes
        something else, or if there are other readers."""
        sums = windows.nest.writes[0].value
        readers = users_of(root(sums)) - {op}
        made = _read(*readers) if len(readers) == 1 and isinstance(root(sums).owner, memref.AllocOp) else None
        between = None if made is None else operations_between(op, made.op)
        if made is None or between is None or not made.fits(windows, sums):
            return None
        touching, own = list(map(touched, between)), {root(access.value) for access in windows.nest.accesses}
        outside = {root(value) for value in made.inputs if value is not None and isinstance(value.type, MemRefType)}
        writes = [set[SSAValue]() if each is None else each[1] for each in touching]
        if None in touching or any(own & written for written in writes) or root(made.output) in own:
            return None
        if root(made.output) in outside:
            return None
        return made._replace(inputs=[None if value == sums else value for value in made.inputs])

    def fits(self, windows: WindowSum, sums: SSAValue) -> bool:
        """Whether threads do it to vectors of their channels."""
        rank = len(shape_of(sums))
        same, last = map_along(rank, range(rank)), rank - 1
        for op in self.body.ops:
            kinds = [value.type for value in (*op.operands, *op.results)]
            by_vectors = isinstance(op, (*BY_VECTORS, arith.ConstantOp, YieldOp, ElementYieldOp))
            if not by_vectors or not all(isa(kind, AnyFloat) for kind in kinds):
                return False
        for value, along, argument in zip(self.inputs, self.maps, self.elements, strict=True):
            if value is None or not argument.uses or not isinstance(value.type, MemRefType):
                continue
            by_channel = last in loops_of(along)
            if root(value) == root(sums) and (value != sums or along != same):
                return False
            if not is_projection(along) or (
                by_channel and not (loops_of(along)[-1] == last and is_by_channels(value, windows.width))
            ):
                return False
        return shape_of(self.output) == shape_of(sums) and is_by_channels(self.output, windows.width)


def _read(op: Operation) -> Finish | None:
    if isinstance(op, RowsOp):
        one = len(op.outputs) == 1 and not op.is_of_rows(0)
        body, maps = op.body.block, op.maps[: len(op.inputs)]
        return Finish(op, body, body.args, op.inputs, maps, op.outputs[0]) if one else None
    made = read_elementwise(op)
    if made is None or made.indexed or made.body.args[-1].uses:
        return None
    count, inputs = len(made.op.inputs), (*made.op.inputs, *made.captured)
    maps, elements = (*made.maps[:count], *made.maps[count + 1 :]), (*made.body.args[:count], *made.captured)
    return Finish(op, made.body, elements, inputs, maps, made.output)


@dataclass
class WindowThread:
    """What a thread does, where `index` builds; `arguments` are what stands in the kernel for values of the host, `at`
    its place along each loop, the first of its pixels and channels, and `first_tap` the first tap of a row that it
    holds."""

    windows: WindowSum
    arguments: dict[SSAValue, SSAValue]
    index: IndexBuilder
    at: dict[int, Index] = field(default_factory=dict[int, Index])
    tile: Index = 0
    first_tap: Index = 0

    def kind(self, element: Attribute) -> Attribute:
        """The type of so many neighbouring channels: a vector, or a number of a single one."""
        return element if self.windows.width == 1 else VectorType(element, [self.windows.width])

    def load(self, value: SSAValue, indices: Sequence[Index]) -> SSAValue:
        """Loads contiguous channels."""
        return load(self.index, self.arguments[value], indices, self.windows.width)

    def wide(self, value: SSAValue) -> SSAValue:
        """The channels as f32."""
        kind = self.kind(f32)
        return value if value.type == kind else self.index.insert(arith.ExtFOp(value, kind)).result

    def splat(self, number: float, element: AnyFloat = f32) -> SSAValue:
        """A number for all channels of a thread."""
        if self.windows.width == 1:
            return self.index.constants.insert(arith.ConstantOp(FloatAttr(number, element))).result
        kind = VectorType(element, [self.windows.width])
        splat: DenseIntOrFPElementsAttr = DenseIntOrFPElementsAttr.from_list(kind, [number])
        return self.index.constants.insert(arith.ConstantOp(splat)).result

    def _zero(self, memory: SSAValue) -> SSAValue:
        element = element_type(memory)
        return self.splat(0.0, element if isa(element, AnyFloat) else f32)

    def sums(self, start: Callable[[int], SSAValue]) -> list[SSAValue]:
        """The sums of all pixels of this thread, from what they start from."""
        windows = self.windows
        others = [i for i in range(len(windows.dimensions)) if i != windows.along]
        place: dict[int, Index] = {}
        begun = [self.wide(start(pixel)) for pixel in range(windows.pixels)]
        # Parts of a row are the outermost loop: the first cache has them from row to row.
        if windows.pixels <= FEW_PIXELS:
            return self._in_parts(begun, partial(self._along, others, place))
        return self._along(others, place, begun)

    def _in_parts(
        self, sums: Sequence[SSAValue], add: Callable[[Sequence[SSAValue]], list[SSAValue]]
    ) -> list[SSAValue]:
        """Adds products of all taps of a row, of as many at a time as a thread holds."""
        windows, index = self.windows, self.index
        if windows.taps == windows.row.taps:
            return add(sums)
        with index.loop(0, windows.row.taps, windows.taps, sums) as turn:
            self.index, self.first_tap = turn.index, turn.counter
            turn.handed = add(turn.carried)
        self.index = index
        return turn.results

    def _along(self, others: Sequence[int], place: dict[int, Index], sums: Sequence[SSAValue]) -> list[SSAValue]:
        """Adds the products of the window along the dimensions `others`. `place` has the index along each earlier
        one."""
        if not others:
            row = partial(self._row, place)
            return row(sums) if self.windows.pixels <= FEW_PIXELS else self._in_parts(sums, row)
        one, index = self.windows.dimensions[others[0]], self.index
        first = index.add(index.mul(self.at.get(one.pixel, 0), one.step), one.first)
        first = index.add(index.mul(self.at.get(one.outer, 0), one.outer_step), first)
        low, high = (0, 1) if one.tap < 0 else self._turns(one, first)
        if (low, high) == (0, 1):
            self.at[one.tap] = 0
            return self._along(others[1:], {**place, others[0]: first}, sums)
        with index.loop(low, high, 1, sums) as turn:
            self.index, self.at[one.tap] = turn.index, turn.counter
            here = turn.index.add(first, turn.index.mul(turn.counter, one.dilation))
            turn.handed = self._along(others[1:], {**place, others[0]: here}, turn.carried)
        self.index = index
        return turn.results

    def _turns(self, one: WindowDimension, first: Index) -> tuple[Index, Index]:
        """The turns of a loop along the window in which it is inside the images."""
        sizes = self.windows.sizes
        taps = [tap * one.dilation for tap in (0, one.taps - 1)]
        ends = [pixel + tap for pixel in (one.first, one.last(sizes)) for tap in taps]
        if min(sizes.get(one.pixel, 1), one.size) > 0 and min(ends) >= 0 and max(ends) < one.size:
            return 0, one.taps
        index, by = self.index, abs(one.dilation)
        # Of taps forwards, those from index 0 on and below the size; of taps backwards, the reverse.
        before, behind = index.sub(0, first), index.sub(one.size, first)
        if one.dilation < 0:
            before, behind = index.add(index.sub(first, one.size), 1), index.add(first, 1)
        low, high = (index.ceildiv(index.from_zero(each), by) for each in (before, behind))
        return low, index.minimum(high, one.taps)

    def _row(self, place: dict[int, Index], sums: Sequence[SSAValue]) -> list[SSAValue]:
        """Adds a row of the window, or some of its taps."""
        windows, index, start = self.windows, self.index, self.first_tap
        row, made = windows.row, list(sums)
        weights = [self.wide(self._weight(index.add(start, tap))) for tap in range(windows.taps)]
        uses: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(windows.pixels):
            for tap in range(windows.taps):
                uses.setdefault(pixel * row.step + tap * row.dilation, []).append((pixel, tap))
        base = index.add(index.mul(self.tile, windows.pixels * row.step), row.first)
        base = index.add(index.mul(start, row.dilation), base)
        for offset, pairs in sorted(uses.items()):
            x = self._pixel(place, base, offset)
            if x is not None:
                for pixel, tap in sorted(pairs, key=lambda pair: pair[1]):
                    made[pixel] = index.insert(math.FmaOp(x, weights[tap], made[pixel])).result
        return made

    def _weight(self, tap: Index) -> SSAValue:
        self.at[self.windows.row.tap] = tap
        kernel = self.windows.kernel
        return self.load(kernel.value, [self.at[loop] for loop in kernel.loops])

    def _pixel(self, place: dict[int, Index], base: Index, offset: int) -> SSAValue | None:
        """The channels of a pixel, zero where it is outside of the images; None for one that is so in all tiles."""
        windows, index, row = self.windows, self.index, self.windows.row
        step, along = windows.pixels * row.step, index.add(base, offset)
        tiles = range(-(-windows.sizes[row.pixel] // windows.pixels))
        starts = [tap * row.dilation for tap in range(0, row.taps, windows.taps)]
        places = [(tile, tile * step + row.first + offset + start) for tile in tiles for start in starts]
        outside = [tile for tile, at in places if not 0 <= at < row.size]
        if len(outside) == len(places):
            return None
        inside = None
        if outside:
            ends = outside[0] if len(starts) == 1 and outside in ([0], [tiles[-1]]) else None
            inside = index.compare("ult", along, row.size) if ends is None else index.compare("ne", self.tile, ends)
            along = index.insert(arith.SelectOp(inside, index.value(along), index.value(0))).result
        indices = [{**place, windows.along: along}[i] for i in range(len(windows.dimensions))]
        x = self.load(windows.image.value, [*indices, self.at[windows.channel]])
        if inside is not None:
            x = index.insert(arith.SelectOp(inside, x, self._zero(windows.image.value))).result
        return self.wide(x)

    def finished(self, finish: Finish | None, sums: SSAValue, place: Sequence[Index]) -> SSAValue:
        """The values to store for a pixel's sums, after the operation that finishes them."""
        rounded = self.rounded(sums, element_type(self.windows.nest.writes[0].value))
        if finish is None:
            return rounded
        mapped: dict[SSAValue, SSAValue] = {}
        for value, along, argument in zip(finish.inputs, finish.maps, finish.elements, strict=True):
            if argument.uses:
                mapped[argument] = rounded if value is None else self._beside(value, along, place)
        for op in finish.body.ops:
            for value in op.operands:
                if value not in mapped and isinstance(value.owner, arith.ConstantOp):
                    mapped[value] = self._constant(value.owner)
            if not isinstance(op, (arith.ConstantOp, YieldOp, ElementYieldOp)):
                kinds = [self.kind(value.type) for value in op.results]
                inner = type(op).create(operands=[mapped[value] for value in op.operands], result_types=kinds,
                                        properties=op.properties)  # fmt: skip
                mapped[op.results[0]] = self.index.insert(inner).results[0]
        return mapped[end.operands[0]] if (end := finish.body.last_op) is not None else rounded

    def rounded(self, sums: SSAValue, element: Attribute) -> SSAValue:
        """Sums as memory has them."""
        return sums if element == f32 else self.index.insert(arith.TruncFOp(sums, self.kind(element))).result

    def _constant(self, op: arith.ConstantOp) -> SSAValue:
        if not isa(op.value, FloatAttr[AnyFloat]):
            fail(op, f"expected a float, got {op.value}")
        return self.splat(op.value.value.data, op.value.type)

    def _beside(self, value: SSAValue, along: AffineMap, place: Sequence[Index]) -> SSAValue:
        """The elements of an input for the channels of a pixel: contiguous ones, or a scalar for all."""
        own = [0 if loop == FIXED else place[loop] for loop in loops_of(along)]
        if own and loops_of(along)[-1] == len(place) - 1:
            return self.load(value, own)
        number = self.arguments[value]
        number = load(self.index, number, own, 1) if isinstance(value.type, MemRefType) else number
        return spread(self.index, number, self.windows.width)


class WindowGrid(NamedTuple):
    """Threads of a CTA along channels, tiles of pixels and rows, and how many groups, tiles and rows there are."""

    threads: tuple[int, int, int]
    counts: tuple[int, int, int]
    row: int | None
    outer: Sequence[int]

    @staticmethod
    def of(windows: WindowSum) -> WindowGrid:
        *outer, _, _ = windows.nest.writes[0].loops
        row = outer.pop() if outer and windows.sizes[outer[-1]] > 0 else None
        groups = windows.sizes[windows.channel] // windows.width
        tiles = -(-windows.sizes[windows.row.pixel] // windows.pixels)
        rows = 1 if row is None else windows.sizes[row]
        even = [n for n in range(LANES // 4, min(LANES, groups) + 1) if groups % n == 0]
        lanes = even[-1] if even else min(LANES // 2, groups)
        down = min(ROWS, rows, THREADS // lanes)
        return WindowGrid((lanes, min(tiles, THREADS // (lanes * down)), down), (groups, tiles, rows), row, outer)


def _place(thread: WindowThread, grid: WindowGrid, sizes: Callable[[int], Index], inside: ExitStack) -> None:
    """Computes the place of a thread, and a condition that it has one."""
    index = thread.index
    cta: Index = index.number(BlockIdOp)
    lane: Index = index.number(ThreadIdOp)
    places = list[Index]()
    for number, (count, threads) in enumerate(zip(grid.counts, grid.threads, strict=True)):
        ctas = index.ceildiv(count, threads)
        own = lane if number == 2 else index.rem(lane, threads)
        lane, at = index.div(lane, threads), index.add(index.mul(index.rem(cta, ctas), threads), own)
        cta = index.div(cta, ctas)
        places.append(0 if count == 1 else at)
    for loop in reversed(grid.outer):
        thread.at[loop] = cta if loop == grid.outer[0] else index.rem(cta, sizes(loop))
        cta = index.div(cta, sizes(loop))
    for at, count, threads in zip(places, grid.counts, grid.threads, strict=True):
        if count % threads:
            thread.index = inside.enter_context(thread.index.where(thread.index.compare("slt", at, count)))
    thread.at[thread.windows.channel] = thread.index.mul(places[0], thread.windows.width)
    thread.tile = places[1]
    if grid.row is not None:
        thread.at[grid.row] = places[2]


def _compute(thread: WindowThread, finish: Finish | None, starts: SSAValue | None) -> None:
    """Computes and stores the elements of a thread."""
    windows = thread.windows
    written, size = windows.nest.writes[0], windows.sizes[windows.row.pixel]
    first = thread.index.mul(thread.tile, windows.pixels)

    def place(pixel: int) -> list[Index]:
        thread.at[windows.row.pixel] = thread.index.add(first, pixel)
        return [thread.at[loop] for loop in written.loops]

    def start(pixel: int) -> SSAValue:
        if starts is not None:
            return starts
        at = place(pixel)
        if size % windows.pixels and pixel >= size % windows.pixels:
            # Pixels behind the last are summed from another, and not stored.
            at[-2] = thread.index.select("eq", thread.tile, size // windows.pixels, first, at[-2])
        return thread.load(written.value, at)

    sums, output = thread.sums(start), written.value if finish is None else finish.output
    for pixel, total in enumerate(sums):
        with ExitStack() as inside:
            if size % windows.pixels and pixel >= size % windows.pixels:
                last = size // windows.pixels
                outer, condition = thread.index, thread.index.compare("ne", thread.tile, last)
                thread.index = inside.enter_context(outer.where(condition))
                inside.callback(setattr, thread, "index", outer)
            value = thread.finished(finish, total, at := place(pixel))
            store(thread.index, value, thread.arguments[output], at)


def tile(op: LinalgStructuredOperation) -> None:
    """Outlines a sum over windows, with the operation that finishes it, as a kernel; any other operation as that of its
    elements."""
    nest_kernel.check(op)
    windows, start = WindowSum.of(op) if BY_ELEMENT in op.attributes else None, start_of(op)
    if windows is None:
        return nest_kernel.tile(op)
    finish = None if start is None else Finish.of(op, windows)
    end = op if finish is None else finish.op
    outliner, sums = Outliner(end), windows.nest.writes[0].value
    values = [windows.image.value, windows.kernel.value, *([] if finish else [sums])]
    if finish is not None:
        inputs = zip(finish.inputs, finish.elements, strict=True)
        values += [value for value, argument in inputs if value is not None and argument.uses] + [finish.output]
    operands = [VectorOperand(value.name_hint or f"X{i}", value) for i, value in enumerate(dict.fromkeys(values))]
    index, body, arguments = kernel_body(operands)
    thread, grid = WindowThread(windows, arguments, index), WindowGrid.of(windows)

    def dim(builder: IndexBuilder, memory: SSAValue, loop: int) -> Index:
        return builder.dim(memory, windows.nest.writes[0].loops.index(loop))

    output = sums if finish is None else finish.output
    with ExitStack() as inside:
        _place(thread, grid, lambda loop: dim(index, arguments[output], loop), inside)
        _compute(thread, finish, None if start is None else thread.splat(start))
    static = prod(-(-count // each) for count, each in zip(grid.counts, grid.threads, strict=True))
    ctas: Index = static
    for loop in grid.outer:
        ctas = outliner.index.mul(ctas, dim(outliner.index, output, loop))
    shape = f"{windows.pixels} pixels of {windows.width} channels for each thread"
    outliner.launch("", operands, body, ctas, prod(grid.threads), f"{op.name}, {shape}")
    outliner.finish()
    if finish is not None:
        Rewriter.erase_op(op)
        drop_unused(sums)
