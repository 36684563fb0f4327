"""Operations of `linalg` that are neither products nor rows nor elementwise: a thread for each element that is written.

A thread goes along the loops that are reduced in their order, and computes the body as it stands: in f64 or i64, of
several results, with elements at places that it computes, of windows that overlap, and sums of what came before. Sums
are those of the IR, term by term, but those of 16-bit floats: they are added in f32, and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import reduce

from xdsl.dialects import arith, math, memref, vector
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, MemRefType, NoneAttr, VectorType, f32, i1, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, Nest, NestAccess, is_constant
from ...dialect.mlir.generic import HALVES, weighted
from ...dialect.mlir.gpu import BlockIdOp, ThreadIdOp
from ...dialect.warp.elements import element_type, shape_of
from ..diagnostics import fail
from ..linalg.element_expressions import writer_before
from ..linalg.elementwise import is_index, objection
from ..linalg.memory_uses import check_unshared
from ..linalg.operand import VectorOperand, root
from ..linalg.product import LARGEST_GRID
from ..linalg.window_sums import is_by_channels
from ..patterns import Index, IndexBuilder, all_operands, constant_number, operations_between, rewrite_pattern
from .elementwise_kernel import is_traversed
from .tiling import Outliner, kernel_body

THREADS, WIDEST = 128, 8
"""Threads of a CTA, and elements of 16 bits in their widest access."""

BY_VECTORS = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
    arith.MaxnumfOp, arith.MinnumfOp, arith.ExtFOp, arith.TruncFOp, math.AbsFOp, math.FmaOp, math.ExpOp, math.Exp2Op,
    math.TanhOp, math.ErfOp, math.SqrtOp, math.RsqrtOp,
)  # fmt: skip
"""What threads do to vectors, element by element."""


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


class ElementThread:
    """The code of one thread, built at `index`. `arguments` maps values of the host to values of the kernel, and
    `loops` has the indices of the loops that are open. It computes `width` neighbours of the output, as vectors."""

    def __init__(self, nest: Nest, arguments: Mapping[SSAValue, SSAValue], index: IndexBuilder, width: int = 1) -> None:
        self.nest, self.arguments, self.index, self.width = nest, dict(arguments), index, width
        self.loops: dict[int, Index] = {}
        self.last = (FIXED, *nest.writes[0].loops)[-1]

    def size(self, loop: int) -> Index:
        """How many turns a loop has, of neighbours in the last of the output's."""
        along = self.nest.along(loop)
        size = 0 if along is None else self.index.dim(self.arguments[along[0].value], along[1])
        return self.index.div(size, self.width) if loop == self.last else size

    def constant(self, value: SSAValue) -> SSAValue:
        """The value inside the kernel for one from outside. Constants are created again."""
        if value not in self.arguments and isinstance(owner := value.owner, arith.ConstantOp):
            self.arguments[value] = self.index.constants.insert(owner.clone()).result
        return self.arguments[value]

    def place(self, map_: AffineMap) -> list[SSAValue]:
        """The indices of a map at the current loops."""
        return self.index.values([self.index.evaluated(expr, self.loops.__getitem__) for expr in map_.results])

    def element(self, access: NestAccess) -> SSAValue:
        """The element of an operand, or a number."""
        if not isinstance(access.value.type, MemRefType):
            return self.constant(access.value)
        width = self.width if self.last in access.loops else 1
        return self._widened(load(self.index, self.arguments[access.value], self.place(access.map), width), access)

    def _widened(self, value: SSAValue, access: NestAccess) -> SSAValue:
        """An element in the type that the body reads."""
        is_wider = value.type in HALVES and access.element.type == f32
        return self.index.insert(arith.ExtFOp(value, f32)).result if is_wider else value

    def compute(self) -> None:
        """Computes and stores the elements for given indices of the parallel loops."""
        carried = [self._start(access) for access in self.nest.writes if access.element.uses]
        made = self._reduced(list(self.nest.summed), carried)
        self._store([access for access in self.nest.writes if not _is_of_turns(access, self.nest)], made)

    def _store(self, writes: Sequence[NestAccess], values: Sequence[SSAValue]) -> None:
        for access, value in zip(writes, values, strict=True):
            kind = element_type(access.value)
            if value.type == f32 and kind in HALVES:
                value = self.index.insert(arith.TruncFOp(value, kind)).result
            made = spread(self.index, value, self.width)
            store(self.index, made, self.arguments[access.value], self.place(access.map))

    def _start(self, access: NestAccess) -> SSAValue:
        """The initial value of an element: a constant of its fill, or the content of its memory."""
        around = self.nest.body.parent_op()
        starts = None if around is None else around.attributes.get(STARTS)
        if isa(starts, ArrayAttr[Attribute]):
            number = starts.data[self.nest.writes.index(access)]
            if isa(number, FloatAttr) or isa(number, IntegerAttr):
                return self._widened(self.index.constants.insert(arith.ConstantOp(number)).result, access)
        return self.element(access)

    def _reduced(self, summed: Sequence[int], carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Runs the loops of `summed` around the body. The result is the last values of what the loops carry."""
        if not summed:
            made = list(zip(self.nest.writes, self._turn(carried), strict=True))
            written = [(access, value) for access, value in made if _is_of_turns(access, self.nest)]
            self._store([access for access, _ in written], [value for _, value in written])
            return [value for access, value in made if not _is_of_turns(access, self.nest)]
        around, size = self.index, self.index.value(self.size(summed[0]))
        kinds = [value.type for value in carried]
        with around.loop(0, size, 1, self._as_words(carried)) as turn:
            self.index, self.loops[summed[0]] = turn.index, turn.counter
            turn.handed = self._as_words(self._reduced(summed[1:], self._of_words(turn.carried, kinds)))
        self.index = around
        return self._of_words(turn.results, kinds)

    def _as_words(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """Conditions as words, which loops carry; other values as they are."""
        return [self.index.insert(arith.ExtUIOp(v, i32)).result if v.type == i1 else v for v in values]

    def _of_words(self, words: Sequence[SSAValue], kinds: Sequence[Attribute]) -> list[SSAValue]:
        """The reverse: values of these types."""
        typed = zip(words, kinds, strict=True)
        return [self.index.insert(arith.TruncIOp(word, i1)).result if kind == i1 else word for word, kind in typed]

    def _turn(self, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """The values that the body yields at the current loops."""
        nest, sums = self.nest, iter(carried)
        mapped = dict(self.arguments)
        for access in nest.accesses:
            if access in nest.writes and access.element.uses:
                mapped[access.element] = next(sums)
            elif access.element.uses:
                mapped[access.element] = self.element(access)
        for op in nest.body.ops:
            if isinstance(op, IndexOp):
                mapped[op.result] = self.index.value(self.loops[op.dim.value.data])
            elif isinstance(op, YieldOp):
                return [mapped[value] if value in mapped else self.constant(value) for value in op.operands]
            else:
                mapped |= {value: self.constant(value) for value in op.operands if value not in mapped}
                copy = self._of_neighbours(op, mapped) or op.clone(mapped)
                copy.location = op.location
                self.index.insert(copy)
                mapped |= dict(zip(op.results, copy.results, strict=True))
        raise AssertionError("a verified region ends with linalg.yield")

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


def load(index: IndexBuilder, memory: SSAValue, place: Sequence[Index], width: int) -> SSAValue:
    """Loads neighbours in memory, as a vector, or a number of a single one."""
    if width == 1:
        return index.insert(memref.LoadOp.get(memory, index.values(place))).res
    return index.insert(vector.LoadOp(memory, index.values(place), VectorType(element_type(memory), [width]))).result


def store(index: IndexBuilder, value: SSAValue, memory: SSAValue, place: Sequence[Index]) -> None:
    """Stores them."""
    made = vector.StoreOp if isinstance(value.type, VectorType) else memref.StoreOp.get
    index.insert(made(value, memory, index.values(place)))


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
        vectors = isinstance(op, (*BY_VECTORS, YieldOp))
        vectors = vectors or (isinstance(op, arith.SelectOp) and op.cond not in values)
        if isinstance(op, memref.LoadOp) and values and values == [*op.indices[-1:]] and values[0] not in differing:
            loads.append(op.memref)
        elif values and not (vectors and differing.issuperset(values)):
            return 1
        differing.update(op.results if values else ())
    memories = [nest.writes[0].value, *loads, *(access.value for access in along)]
    widths = (w for w in (WIDEST, WIDEST // 2, WIDEST // 4) if loads and all(is_by_channels(m, w) for m in memories))
    return next(widths, 1)


def _captured(nest: Nest) -> list[SSAValue]:
    """The values outside of the nest that the kernel takes as arguments."""
    used = [access.value for access in nest.accesses]
    used += [value for value in nest.captured if value not in used]
    return [value for value in dict.fromkeys(used) if not is_constant(value)]


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
    if how is None or not summed or nest.writes[0].element not in halves:
        return
    product = weighted(nest.body)
    for value in halves if product else {nest.writes[0].element}:
        Rewriter.replace_value_with_new_type(value, f32)
    for op in list(nest.body.ops) if product else [how.by]:
        if isinstance(op, arith.ExtFOp) and op.input.type == f32:
            Rewriter.replace_op(op, [], [op.input])
        elif any(value.type == f32 for value in op.operands) and any(r.type in HALVES for r in op.results):
            for at, value in enumerate(op.operands):
                if value.type in HALVES:
                    Rewriter.insert_op(wide := arith.ExtFOp(value, f32), InsertPoint.before(op))
                    op.operands[at] = wide.result
            Rewriter.replace_value_with_new_type(op.results[0], f32)


def tile(op: LinalgStructuredOperation) -> None:
    """Makes an operation on memory a kernel, and its launch."""
    widen_sums(Nest.of(op))
    nest, outliner = Nest.of(op), Outliner(op)
    operands = [VectorOperand(value.name_hint or f"X{i}", value) for i, value in enumerate(_captured(nest))]
    index, body, arguments = kernel_body(operands)
    thread = ElementThread(nest, arguments, index, width := width_of(nest))
    _compute_one(thread)
    host = ElementThread(nest, {operand.value: operand.value for operand in operands}, outliner.index, width)
    count = reduce(outliner.index.mul, map(host.size, _outer(nest)), 1)
    ctas = outliner.index.ceildiv(count, THREADS)
    if isinstance(ctas, int) and not 0 < ctas <= LARGEST_GRID:
        fail(op, f"{op.name} writes {count} elements; a grid has at least 1 and at most {LARGEST_GRID * THREADS}")
    each = "element" if width == 1 else f"{width} neighbours"
    outliner.launch("", operands, body, ctas, THREADS, f"{op.name}, a thread for each {each}")
    outliner.finish()


def start_of(op: LinalgStructuredOperation) -> float | None:
    """The number that the only output of a sum was filled with just before; None if it starts from memory."""
    starts = op.attributes.get(STARTS)
    number = starts.data[0] if isa(starts, ArrayAttr[Attribute]) else None
    return number.value.data if isinstance(number, FloatAttr) else None


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


def _outer(nest: Nest) -> list[int]:
    """The loops that are divided among threads. The contiguous loop of the first output is the last one."""
    return [loop for loop in nest.writes[0].loops if loop != FIXED and loop not in nest.summed]


def _compute_one(thread: ElementThread) -> None:
    """Finds the element of this thread, and computes it if there is one."""
    index = thread.index
    cta, lane = index.number(BlockIdOp), index.number(ThreadIdOp)
    number: Index = index.add(index.mul(cta, THREADS), lane)
    outer = _outer(thread.nest)
    sizes = {loop: thread.size(loop) for loop in (*outer, *thread.nest.summed)}
    count = reduce(index.mul, (sizes[loop] for loop in outer), 1)
    exact = isinstance(count, int) and count % THREADS == 0
    with nullcontext(index) if exact else index.where(index.compare("slt", number, count)) as thread.index:
        places = thread.index.unflattened([sizes[loop] for loop in outer], number)
        steps = (thread.width if loop == thread.last else 1 for loop in outer)
        thread.loops |= zip(outer, map(thread.index.mul, places, steps), strict=True)
        thread.compute()
