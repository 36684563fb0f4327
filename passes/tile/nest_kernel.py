"""Operations of `linalg` that are neither products nor rows nor elementwise: a thread for each element that is written,
or for a block of them.

A thread goes along the loops that are reduced in their order, and computes the body as it stands: in f64 or i64, of
several results, with elements at places that it computes, of windows that overlap, and sums of what came before. Sums
are those of the IR, term by term, but those of 16-bit floats: they are added in f32, and rounded once.

Of a sum over windows in which each channel has a kernel of its own (`linalg/window_sums.py`), a thread computes some
neighbouring channels, as vectors, of several neighbouring pixels of a row. It goes along the other dimensions of the
window in loops, without turns for what lies in zeros around the images. In a turn it has a row of its kernel, and each
pixel that it reads is multiplied for all pixels of the result whose windows have it: a pixel is read once in a turn,
not once for each tap. Rows of a CTA read the same pixels out of the first cache.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith, math, memref, vector
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, MemRefType, NoneAttr, VectorType, f32, i1, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa
from xdsl.utils.type import get_element_type_or_self

from ...dialect.mlir.affine import FIXED, HALVES, Nest, NestAccess, is_constant, linear, number_of, weighted
from ...dialect.mlir.gpu import BlockIdOp, ThreadIdOp
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.matmul import BY_ELEMENT
from ..diagnostics import fail
from ..linalg.element_expressions import writer_before
from ..linalg.elementwise import is_index, objection
from ..linalg.memory_uses import check_unshared
from ..linalg.operand import VectorOperand, drop_unused, root
from ..linalg.product import LARGEST_GRID
from ..linalg.window_sums import BY_VECTORS, Finish, Point, WindowSum, is_by_channels
from ..patterns import Index, IndexBuilder, all_operands, constant_number, operations_between, rewrite_pattern
from .elementwise_kernel import is_traversed
from .tiling import Outliner, kernel_body

THREADS, WIDEST = 128, 8
"""Threads of a CTA, and elements of 16 bits in their widest access."""

WINDOW_THREADS, LANES, ROWS = 256, 64, 8
"""Of sums over windows, threads of a CTA at most, those along channels, and rows of pixels: so many share most of what
they read. Threads along channels come out even where they can (H100, 144 channels of 56x56 by a stride of 2: 55 us in
two groups of 32, of which the second has 4)."""


def why_not(op: LinalgStructuredOperation, nest: Nest) -> str:
    """Why no thread can compute the elements that an operation writes; "" if one can."""
    if op.results or not all(isinstance(access.value.type, MemRefType) for access in nest.writes):
        return "it is on tensors; bufferize them first"
    kept = [loop for loop in range(nest.loops) if loop not in nest.summed]
    for access in nest.writes:
        outer = sorted(loop for loop in access.loops if loop != FIXED and loop not in nest.summed)
        if outer != kept or not _is_fixed_elsewhere(access):
            return f"expected the output to be indexed by every loop that is not reduced, got {access.map}"
        if _is_of_turns(access, nest):
            if access.element.uses or not {*nest.summed} <= {*access.loops}:
                return f"it writes an element of {access.map} in several turns"
        elif nest.summed and not access.element.uses:
            return "it reduces over a loop without the value that its output has"
    if unknown := [loop for loop in range(nest.loops) if nest.along(loop) is None]:
        return f"no operand tells the size of loop {unknown[0]}"
    return objection(nest, is_index)


def _is_of_turns(access: NestAccess, nest: Nest) -> bool:
    """Whether an output has an element for each turn of a loop that others are reduced over."""
    return not {*nest.summed}.isdisjoint(access.loops)


def _is_fixed_elsewhere(access: NestAccess) -> bool:
    """Whether each dimension runs along a loop, or has one element."""
    pairs = zip(access.map.results, access.loops, shape_of(access.value), strict=True)
    return all(loop != FIXED or (size == 1 and expr == AffineConstantExpr(0)) for expr, loop, size in pairs)


class NestThread:
    """The code of one thread, built at `index`. `arguments` maps values of the host to values of the kernel. It
    computes a block of elements, as many along loops as `steps` says: `width` neighbours as vectors, and the others
    one `point` after another. `loops` has the indices of the loops that are open, of the first point."""

    def __init__(
        self, nest: Nest, arguments: Mapping[SSAValue, SSAValue], index: IndexBuilder, windows: WindowSum | None
    ) -> None:
        self.nest, self.arguments, self.index, self.windows = nest, dict(arguments), index, windows
        self.loops, self.point = dict[int, Index](), Point()
        self.places, self.read = dict[NestAccess, list[Index]](), dict[tuple[NestAccess, Sequence[int]], SSAValue]()
        self.last = (FIXED, *nest.writes[0].loops)[-1]
        self.width = width_of(nest) if windows is None else windows.width
        self.steps = {self.last: self.width}
        if windows is not None:
            self.steps |= {windows.row.tap: windows.taps, windows.row.pixel: windows.pixels}

    def size(self, loop: int) -> Index:
        """How many turns a loop has."""
        along = self.nest.along(loop)
        return 0 if along is None else self.index.dim(self.arguments[along[0].value], along[1])

    def blocks(self, loop: int) -> Index:
        """How many blocks a loop has."""
        return self.index.ceildiv(self.size(loop), self.steps.get(loop, 1))

    def constant(self, value: SSAValue) -> SSAValue:
        """The value inside the kernel for one from outside. Constants are created again."""
        if value not in self.arguments and isinstance(owner := value.owner, arith.ConstantOp):
            self.arguments[value] = self.index.constants.insert(owner.clone()).result
        return self.arguments[value]

    def offsets(self, access: NestAccess) -> tuple[int, ...]:
        """How far the element of a point is from that of the first, along each dimension."""
        factors = [(linear(expr) or ({}, 0))[0] for expr in access.map.results]
        return tuple(sum(by.get(loop, 0) * number for loop, number in self.point.items()) for by in factors)

    def place(self, access: NestAccess) -> list[Index]:
        """The indices of the element of a point."""
        if access not in self.places:
            places = (self.index.evaluated(expr, self.loops.__getitem__) for expr in access.map.results)
            self.places[access] = list(places)
        return [self.index.add(*each) for each in zip(self.places[access], self.offsets(access), strict=True)]

    def element(self, access: NestAccess) -> SSAValue:
        """The element of an operand, which points that read the same one read once, or a number."""
        if not isinstance(access.value.type, MemRefType):
            return self.constant(access.value)
        if (key := (access, self.offsets(access))) not in self.read:
            place, inside = self.place(access), None
            if self.windows is not None and access is self.windows.image:
                inside = self._inside(self.windows, place)
            value = self._loaded(access, place)
            if inside is not None:
                first = self.index.at(self.index.constants)
                zeros = spread(first, first.insert(number_of(element_type(access.value))).result, self.width)
                value = self.index.insert(arith.SelectOp(inside, value, zeros)).result
            self.read[key] = self._as(value, access.element.type)
        return self.read[key]

    def _loaded(self, access: NestAccess, place: Sequence[Index]) -> SSAValue:
        """Neighbours in memory, as a vector, or a single number."""
        memory, indices = self.arguments[access.value], self.index.values(place)
        if self.width == 1 or self.last not in access.loops:
            return self.index.insert(memref.LoadOp.get(memory, indices)).res
        return self.index.insert(vector.LoadOp(memory, indices, VectorType(element_type(memory), [self.width]))).result

    def _inside(self, windows: WindowSum, place: list[Index]) -> SSAValue | None:
        """Whether the pixel of a point is inside of the images, and its place one that is; None for what always is."""
        row, along = windows.row, windows.along
        if not (outside := windows.outside(self.point)):
            return None
        if windows.taps == row.taps and outside in ({0}, {windows.tiles - 1}):  # one question for many pixels
            inside = self.index.compare("ne", self.loops[row.pixel], outside.pop() * windows.pixels)
        else:
            inside = self.index.compare("ult", place[along], row.size)
        place[along] = self.index.insert(arith.SelectOp(inside, *self.index.values([place[along], 0]))).result
        return inside

    def _as(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """A float of 16 bits, or a vector of them, as f32, or the reverse; another value as it is."""
        if get_element_type_or_self(value.type) == kind:
            return value
        made = VectorType(kind, value.type.get_shape()) if isa(value.type, VectorType) else kind
        return self.index.insert((arith.ExtFOp if kind == f32 else arith.TruncFOp)(value, made)).result

    def compute(self, finish: Finish | None) -> None:
        """Computes and stores the elements for given indices of the parallel loops, after what finishes them."""
        windows = self.windows
        pixels = [Point()] if windows is None else [{windows.row.pixel: number} for number in range(windows.pixels)]
        started = [access for access in self.nest.writes if access.element.uses]
        carried = [self._start(access) for self.point in pixels for access in started]
        made = self._reduced(self.nest.summed if windows is None else windows.turns, carried)
        writes = [access for access in self.nest.writes if not _is_of_turns(access, self.nest)]
        for number, self.point in enumerate(pixels):
            values = made[number * len(writes) : (number + 1) * len(writes)]
            with self._within():
                if finish is None:
                    self._store(writes, values)
                else:
                    self._store([finish.written], self._finished(finish, values[0]))

    @contextmanager
    def _within(self) -> Generator[None]:
        """Does what follows for a point that is within the row of pixels."""
        self.places.clear()
        self.read.clear()
        index, last = self.index, None if self.windows is None else self.windows.last_tile(self.point)
        if last is None or self.windows is None:
            yield
            return
        with index.where(index.compare("ne", self.loops[self.windows.row.pixel], last)) as self.index:
            yield
        self.index = index

    def _store(self, writes: Sequence[NestAccess], values: Sequence[SSAValue]) -> None:
        for access, value in zip(writes, values, strict=True):
            made = spread(self.index, self._as(value, element_type(access.value)), self.width)
            kind = vector.StoreOp if isinstance(made.type, VectorType) else memref.StoreOp.get
            self.index.insert(kind(made, self.arguments[access.value], self.index.values(self.place(access))))

    def _finished(self, finish: Finish, total: SSAValue) -> list[SSAValue]:
        """What an operation makes of a sum, rounded as memory would have it."""
        mapped = self.arguments | {element: self._as(total, element.type) for element in finish.sums}
        mapped |= {access.element: self.element(access) for access in finish.reads}
        return self._evaluated(finish.body, mapped)

    def _start(self, access: NestAccess) -> SSAValue:
        """The initial value of an element: a constant of its fill, or the content of its memory."""
        around = self.nest.body.parent_op()
        starts = None if around is None else around.attributes.get(STARTS)
        if isa(starts, ArrayAttr[Attribute]):
            number = starts.data[self.nest.writes.index(access)]
            if isa(number, FloatAttr) or isa(number, IntegerAttr):
                value = self._as(self.index.constants.insert(arith.ConstantOp(number)).result, access.element.type)
                return spread(self.index, value, self.width)
        if self.windows is None or self.windows.last_tile(self.point) is None:
            return self.element(access)
        # Pixels behind the last are summed from that one, and not stored.
        *outer, pixel, channel = self.place(access)
        pixel = self.index.minimum(pixel, self.windows.sizes[self.windows.row.pixel] - 1)
        return self._as(self._loaded(access, [*outer, pixel, channel]), access.element.type)

    def _reduced(self, turns: Sequence[int], carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Runs these loops around the body. The result is the last values of what the loops carry."""
        if not turns:
            return self._block(carried)
        loop, step, around = turns[0], self.steps.get(turns[0], 1), self.index
        low, high = self._range(loop)
        if (low, high) == (0, step):
            self.loops[loop] = 0
            return self._reduced(turns[1:], carried)
        kinds = [value.type for value in carried]
        with around.loop(low, high, step, self._as_words(carried)) as turn:
            self.index, self.loops[loop] = turn.index, turn.counter
            turn.handed = self._as_words(self._reduced(turns[1:], self._of_words(turn.carried, kinds)))
        self.index = around
        return self._of_words(turn.results, kinds)

    def _range(self, loop: int) -> tuple[Index, Index]:
        """The turns of a loop that is reduced: of one along a window those in which it is inside the images."""
        windows, index = self.windows, self.index
        if windows is None or loop == windows.row.tap:
            return 0, self.size(loop)
        along, one = next((i, one) for i, one in enumerate(windows.dimensions) if one.tap == loop)
        if one.is_inside(windows.sizes):
            return 0, one.taps
        first = index.evaluated(windows.image.map.results[along], {**self.loops, loop: 0}.__getitem__)
        # Of taps forwards, those from index 0 on and below the size; of taps backwards, the reverse.
        before, behind = index.sub(0, first), index.sub(one.size, first)
        if one.dilation < 0:
            before, behind = index.add(index.sub(first, one.size), 1), index.add(first, 1)
        low, high = (index.ceildiv(index.from_zero(each), abs(one.dilation)) for each in (before, behind))
        return low, index.minimum(high, one.taps)

    def _block(self, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """The values of all points after a turn."""
        if (windows := self.windows) is None:
            return self._turn(carried)
        self.places.clear()
        self.read.clear()
        made, row, points = list(carried), [{windows.row.tap: tap} for tap in range(windows.taps)], windows.points
        for self.point in row:  # of the kernel, which is read first, but behind the place of the pixels
            self.place(windows.image)
            self.element(windows.kernel)
        for self.point in points:
            factors, number = map(self.element, (windows.image, windows.kernel)), self.point[windows.row.pixel]
            made[number] = self.index.insert(math.FmaOp(*factors, c=made[number])).result
        return made

    def _as_words(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """Conditions as words, which loops carry; other values as they are."""
        return [self.index.insert(arith.ExtUIOp(v, i32)).result if v.type == i1 else v for v in values]

    def _of_words(self, words: Sequence[SSAValue], kinds: Sequence[Attribute]) -> list[SSAValue]:
        """The reverse: values of these types."""
        typed = zip(words, kinds, strict=True)
        return [self.index.insert(arith.TruncIOp(word, i1)).result if kind == i1 else word for word, kind in typed]

    def _turn(self, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """The values that the body yields at the current loops, but for those that are stored in each turn."""
        nest, sums = self.nest, iter(carried)
        mapped = dict(self.arguments)
        for access in nest.accesses:
            if access in nest.writes and access.element.uses:
                mapped[access.element] = next(sums)
            elif access.element.uses:
                mapped[access.element] = self.element(access)
        made = list(zip(nest.writes, self._evaluated(nest.body, mapped), strict=True))
        written = [(access, value) for access, value in made if _is_of_turns(access, nest)]
        self._store([access for access, _ in written], [value for _, value in written])
        return [value for access, value in made if not _is_of_turns(access, nest)]

    def _evaluated(self, body: Block, mapped: dict[SSAValue, SSAValue]) -> list[SSAValue]:
        """What a body yields of these values."""
        for op in body.ops:
            if isinstance(op, IndexOp):
                mapped[op.result] = self.index.value(self.loops[op.dim.value.data])
            elif isinstance(op, YieldOp | ElementYieldOp):
                return [mapped[value] if value in mapped else self.constant(value) for value in op.operands]
            else:
                mapped |= {value: self.constant(value) for value in op.operands if value not in mapped}
                copy = self._of_neighbours(op, mapped) or op.clone(mapped)
                copy.location = op.location
                self.index.insert(copy)
                mapped |= dict(zip(op.results, copy.results, strict=True))
        raise AssertionError("a verified region ends with a terminator")

    def _of_neighbours(self, op: Operation, mapped: Mapping[SSAValue, SSAValue]) -> Operation | None:
        """An operation on vectors for one whose results differ among neighbours; None for any other."""
        if self.width == 1:
            return None
        operands = [mapped[value] for value in op.operands]
        if isinstance(op, memref.LoadOp) and _is_index(op.indices[-1], self.last):
            return vector.LoadOp(operands[0], operands[1:], VectorType(op.res.type, [self.width]))
        if not any(isinstance(value.type, VectorType) for value in operands):
            return None
        operands = [value if value.type == i1 else spread(self.index, value, self.width) for value in operands]
        kinds = [VectorType(result.type, [self.width]) for result in op.results]
        return type(op).create(operands=operands, result_types=kinds, properties=op.properties)


def spread(index: IndexBuilder, value: SSAValue, width: int) -> SSAValue:
    """A value for each of some neighbours."""
    if width == 1 or isinstance(value.type, VectorType):
        return value
    return index.insert(vector.BroadcastOp(value, VectorType(value.type, [width]))).vector


def _is_index(value: SSAValue, loop: int) -> bool:
    return isinstance(value.owner, IndexOp) and value.owner.dim.value.data == loop


def width_of(nest: Nest) -> int:
    """How many neighbours of its output a thread computes: one, or as many as an access of 16 bytes has where a body
    loads neighbours too, from a place that is the same for all: rows of a table, for example."""
    last = (FIXED, *nest.writes[0].loops)[-1]
    along = [access for access in nest.used if last in access.loops]
    if nest.summed or nest.writes[1:] or last == FIXED or any(last in access.loops[:-1] for access in along):
        return 1
    differing, loads = {access.element for access in along}, list[SSAValue]()
    for op in nest.body.ops:
        values = [value for value in op.operands if value in differing or _is_index(value, last)]
        vectors = isinstance(op, BY_VECTORS)
        vectors = vectors or (isinstance(op, arith.SelectOp) and op.cond not in values)
        if isinstance(op, memref.LoadOp) and values and values == [*op.indices[-1:]] and values[0] not in differing:
            loads.append(op.memref)
        elif values and not (vectors and differing.issuperset(values)):
            return 1
        differing.update(op.results if values else ())
    memories = [nest.writes[0].value, *loads, *(access.value for access in along)]
    widths = (w for w in (WIDEST, WIDEST // 2, WIDEST // 4) if loads and all(is_by_channels(m, w) for m in memories))
    return next(widths, 1)


def check(op: LinalgStructuredOperation) -> None:
    """Raises a located diagnostic for an operation that no thread can compute element by element."""
    if reason := why_not(op, Nest.of(op)):
        fail(op, f"{op.name} has no kernel: {reason}")
    check_unshared(op)


def widen_sums(nest: Nest) -> None:
    """Makes sums and products of 16-bit floats along loops those of f32; of a product of two inputs the factors, too.
    What is stored is rounded."""
    how, halves = nest.combination, {value for value in nest.body.args if value.type in HALVES}
    summed = nest.summed and how is not None and isinstance(how.by, arith.AddfOp | arith.SubfOp | arith.MulfOp)
    product = weighted(nest.body) if summed else None
    if how is None or not summed or not (product or nest.writes[0].element in halves):
        return
    for value in halves if product else {nest.writes[0].element}:
        Rewriter.replace_value_with_new_type(value, f32)
    for op in list(nest.body.ops) if product else [how.by]:
        if isinstance(op, arith.ExtFOp) and op.input.type == op.result.type:
            Rewriter.replace_op(op, [], [op.input])
        elif any(value.type == f32 for value in op.operands) and any(r.type in HALVES for r in op.results):
            for at, value in enumerate(op.operands):
                if value.type in HALVES:
                    Rewriter.insert_op(wide := arith.ExtFOp(value, f32), InsertPoint.before(op))
                    op.operands[at] = wide.result
            Rewriter.replace_value_with_new_type(op.results[0], f32)


def tile(op: LinalgStructuredOperation) -> None:
    """Makes an operation on memory, with the one that finishes the sums of a window, a kernel and its launch."""
    check(op)
    widen_sums(Nest.of(op))
    nest, windows = Nest.of(op), WindowSum.of(op) if BY_ELEMENT in op.attributes else None
    finish = None if windows is None or STARTS not in op.attributes else Finish.of(op, windows)
    sums, used = nest.writes[0].value, list(nest.reads)
    if finish is not None:  # no memory has the sums then
        nest, used = nest._replace(writes=(finish.written,)), [*used, *finish.reads]
    values = dict.fromkeys((*(access.value for access in (*used, *nest.writes)), *nest.captured))
    operands = [VectorOperand(v.name_hint or f"X{i}", v) for i, v in enumerate(values) if not is_constant(v)]
    outliner = Outliner(op if finish is None else finish.op)
    index, body, arguments = kernel_body(operands)
    thread = NestThread(nest, arguments, index, windows)
    host = NestThread(nest, {value: value for value in values}, outliner.index, windows)
    parts = _parts(thread)
    with ExitStack() as inside:
        _place(thread, parts, inside)
        thread.compute(finish)
    counts = [reduce(host.index.mul, map(host.blocks, part.loops), 1) for part in parts]
    every = [host.index.ceildiv(count, part.threads) for count, part in zip(counts, parts, strict=True)]
    ctas = reduce(host.index.mul, every)
    if isinstance(ctas, int) and not 0 < ctas <= LARGEST_GRID:
        most, written = LARGEST_GRID * THREADS, reduce(host.index.mul, counts)
        fail(op, f"{op.name} writes {written} elements; a grid has at least 1 and at most {most}")
    shape = "a thread for each " + ("element" if thread.width == 1 else f"{thread.width} neighbours")
    if windows is not None:
        shape = f"{windows.pixels} pixels of {windows.width} channels for each thread"
    outliner.launch("", operands, body, ctas, prod(part.threads for part in parts), f"{op.name}, {shape}")
    outliner.finish()
    if finish is not None:
        Rewriter.erase_op(op)
        drop_unused(sums)


@rewrite_pattern
def fold_start(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Starts the elements of a thread from the constant that directly precedes the operation as a fill."""
    if is_traversed(op):
        return
    fills = [_fill_of(op, access) for access in Nest.of(op).writes]
    if any(fills):
        numbers = (None if fill is None else constant_number(fill.inputs[0]) for fill in fills)
        op.attributes[STARTS] = ArrayAttr(NoneAttr() if number is None else number for number in numbers)
    for fill in filter(None, fills):
        rewriter.erase(fill)


STARTS = "warp.starts"
"""On an operation: the number that each output starts from, where it is not that of its memory."""


def _fill_of(op: LinalgStructuredOperation, access: NestAccess) -> FillOp | None:
    """The fill of an output that directly precedes the operation, which then writes all of it; None without one."""
    fill = writer_before(access.value, op)
    if not isinstance(fill, FillOp) or fill.outputs[0] is not access.value or not is_constant(fill.inputs[0]):
        return None
    memory, between = root(access.value), operations_between(fill, op)
    if between is None or any(root(read) is memory for read in op.inputs):
        return None
    used = (value for each in between for value in all_operands(each))
    return None if any(root(value) is memory for value in used) else fill


class LoopThreads(NamedTuple):
    """Loops that are divided among threads of a CTA, of which there are so many along them."""

    loops: Sequence[int]
    threads: int


def _parts(thread: NestThread) -> list[LoopThreads]:
    """How the loops that write are divided, those of neighbouring threads first."""
    outer = [loop for loop in thread.nest.writes[0].loops if loop != FIXED and loop not in thread.nest.summed]
    if (windows := thread.windows) is None:
        return [LoopThreads(outer, THREADS)]
    *others, pixel, channel = outer
    row = others.pop() if others and windows.sizes[others[-1]] > 0 else None
    groups = windows.sizes[channel] // thread.width
    even = [n for n in range(LANES // 4, min(LANES, groups) + 1) if groups % n == 0]
    lanes = even[-1] if even else min(LANES // 2, groups)
    down = 1 if row is None else min(ROWS, windows.sizes[row], WINDOW_THREADS // lanes)
    parts = [LoopThreads([channel], lanes), LoopThreads([pixel], min(windows.tiles, WINDOW_THREADS // (lanes * down)))]
    parts += [] if row is None else [LoopThreads([row], down)]
    return parts + [LoopThreads([loop], 1) for loop in reversed(others)]


def _place(thread: NestThread, parts: Sequence[LoopThreads], inside: ExitStack) -> None:
    """Finds the elements of this thread, and whether there are some."""
    cta, lane = thread.index.number(BlockIdOp), thread.index.number(ThreadIdOp)
    for number, (loops, threads) in enumerate(parts):
        index, is_last = thread.index, number == len(parts) - 1
        sizes = [thread.blocks(loop) for loop in loops]
        count = reduce(index.mul, sizes, 1)
        alone = all(part.threads == 1 for part in parts[number + 1 :])
        own, tile = lane, cta
        if not alone:
            own, lane = index.rem(lane, threads), index.div(lane, threads)
        if not is_last:
            ctas = index.ceildiv(count, threads)
            tile, cta = index.rem(cta, ctas), index.div(cta, ctas)
        at: Index = index.add(index.mul(tile, threads), own if threads > 1 else 0)
        if not (isinstance(count, int) and count % threads == 0):
            thread.index = inside.enter_context(index.where(index.compare("slt", at, count)))
        places = thread.index.unflattened(sizes, at)
        steps = (thread.steps.get(loop, 1) for loop in loops)
        thread.loops |= zip(loops, map(thread.index.mul, places, steps), strict=True)
