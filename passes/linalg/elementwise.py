"""Elementwise operations of `linalg`, read once for the passes that fuse or lower them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from itertools import product
from typing import NamedTuple

from xdsl.dialects import arith, cf, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, IntegerType, MemRefType, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, Nest, is_projection, map_along, strides_of
from ...dialect.mlir.generic import contracted
from ...dialect.warp.attention import INPUTS, AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.cta import DisjointOp
from ...dialect.warp.elements import only_computes
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.rows import RowsOp
from ..diagnostics import fail
from ..patterns import LocatedRewriter, all_operands, constant_value
from .operand import SIZE_LIMIT, VIEWING, View, root, seen

# Arithmetic on the indices of elements, `linalg.index`, in 32 bits.
#
# MLIR's indices have as many bits as a target likes, and bodies cast them to i64; a kernel has registers of 32 bits.
# So each number on the way from an index is bounded by the sizes of its loops: what fits 32 bits is computed in them,
# with the same results, and anything else is refused.

Bounds = tuple[float, float]
"""The least and the largest value of a number."""

EVERYTHING = (-math.inf, math.inf)
BITS = 32
LIMIT = 1 << BITS - 1

CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)
"""Conversions that keep the value, or its low bits, as two's complement."""

_ARITHMETIC: Mapping[type[Operation], Callable[[float, float], float]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
}
"""Operations whose results at the ends of their operands bound them."""

_BITWISE = (arith.AndIOp, arith.OrIOp, arith.XOrIOp)
_QUOTIENTS = (arith.DivSIOp, arith.DivUIOp)
_REMAINDERS = (arith.RemSIOp, arith.RemUIOp)
_UNSIGNED = (arith.DivUIOp, arith.RemUIOp, arith.MinUIOp, arith.MaxUIOp)


def nearest(number: float, kind: Attribute) -> float | None:
    """A constant as f16 or bf16 holds it; None for another type."""
    element = element_row(kind)
    return element.nearest(number) if element is not None and element.name in ("f16", "bf16") else None


def is_long(kind: Attribute) -> bool:
    """Whether a type is an index, or a 64-bit integer that stands for one."""
    return isinstance(kind, IndexType) or kind == i64


def is_index(kind: Attribute) -> bool:
    """Whether a type is an index."""
    return isinstance(kind, IndexType)


def objection(nest: Nest, is_long: Callable[[Attribute], bool] = is_long) -> str:
    """The reason why a body cannot compute its indices in 32 bits; "" if it can. `is_long` tells types that are
    narrowed; an index cast from another type is an element's index and fits 32 bits."""
    bounds_of: dict[SSAValue, Bounds] = {}
    for index, loop in nest.indices.items():
        _, _, size = nest.along(loop) or (None, 0, -1)
        bounds_of[index] = 0, max(0, (SIZE_LIMIT if size < 0 else size) - 1)
    for op in nest.body.ops if bounds_of else ():
        if isinstance(op, IndexOp):
            continue
        if isinstance(op, arith.IndexCastOp) and is_long(op.result.type) and not is_long(op.input.type):
            bounds_of[op.result] = -LIMIT, LIMIT - 1
        elif any(is_long(value.type) for value in op.results):
            bounds_of[op.results[0]] = bounds = bounds_after(op, bounds_of)
            if not fits(bounds):
                return f"{op.name} of indices may pass {BITS} bits"
        elif isinstance(op, arith.UIToFPOp) and is_long(op.input.type) and _of(op.input, bounds_of)[0] < 0:
            return f"{op.name} of an index that may be negative"
    return ""


def _of(value: SSAValue, bounds_of: Mapping[SSAValue, Bounds]) -> Bounds:
    if value in bounds_of:
        return bounds_of[value]
    if (number := constant_value(value)) is not None:
        return number, number
    kind = value.type
    if isinstance(kind, IntegerType) and kind.bitwidth <= BITS:
        half = 1 << kind.bitwidth - 1
        return -half, half - 1
    return EVERYTHING


def fits(bounds: Bounds) -> bool:
    """Whether 32 bits hold a number, with its sign."""
    return bounds[0] >= -LIMIT and bounds[1] < LIMIT


def bounds_after(op: Operation, bounds_of: Mapping[SSAValue, Bounds]) -> Bounds:
    """The bounds of an operation's result."""
    bounds = [_of(value, bounds_of) for value in op.operands]
    if isinstance(op, arith.ConstantOp | arith.SelectOp):
        every = [_of(op.result, bounds_of)] if isinstance(op, arith.ConstantOp) else bounds[1:]
        return min(low for low, _ in every), max(high for _, high in every)
    if isinstance(op, CASTS):
        return bounds[0]
    if (compute := _ARITHMETIC.get(type(op))) is not None and EVERYTHING not in bounds:
        ends = [compute(a, b) for a, b in product(*bounds)]
        return min(ends), max(ends)
    if isinstance(op, arith.ExtUIOp) and isa(kind := op.input.type, IntegerType):
        return 0, (1 << kind.bitwidth) - 1
    if not all(map(fits, bounds)):
        return EVERYTHING
    if all(low >= 0 for low, _ in bounds) and isinstance(op, (*_QUOTIENTS, *_REMAINDERS, *_UNSIGNED)):
        return 0, bounds[1][1] - 1 if isinstance(op, _REMAINDERS) else max(high for _, high in bounds)
    overflows = isinstance(op, arith.DivSIOp) and bounds[0][0] == -LIMIT
    signed = isinstance(op, (*_BITWISE, arith.DivSIOp, arith.RemSIOp)) and not overflows
    return (-LIMIT, LIMIT - 1) if signed else EVERYTHING


def narrowed(op: Operation, mapped: dict[SSAValue, SSAValue], block: Block) -> SSAValue:
    """Appends an operation on indices to a block, in 32 bits, with its operands mapped. Returns its result."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        copy: Operation = arith.ConstantOp(IntegerAttr(op.value.value.data, i32))
    elif isinstance(op, CASTS):
        source, target = mapped[op.operands[0]], op.results[0].type
        target = i32 if is_long(target) else target
        if source.type == target:
            return source
        kind = arith.ExtSIOp if target == i32 else arith.TruncIOp
        copy = kind.build(operands=[source], result_types=[target])
    else:
        copy = op.clone(mapped)
        kinds = [i32 if is_long(result.type) else result.type for result in copy.results]
        copy = type(op).create(operands=copy.operands, properties=copy.properties, result_types=kinds)
    copy.location = op.location
    block.add_op(copy)
    return copy.results[0]


class Elementwise(NamedTuple):
    """One result from one element of each input: a `linalg.generic` over parallel loops, or a named operation. `inputs`
    are what the region's arguments stand for, with their maps: the operands, the output last, and then the numbers from
    outside that the region uses. Loops are numbered so that the output is indexed by them in order."""

    op: LinalgStructuredOperation
    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    captured: tuple[SSAValue, ...]

    @property
    def output(self) -> SSAValue:
        """The output memory."""
        return self.op.outputs[0]

    @property
    def body(self) -> Block:
        return self.op.body.block

    @property
    def loops(self) -> int:
        """The number of loops, which is the rank of the output."""
        return self.maps[0].num_dims

    def reads(self, number: int) -> bool:
        """Whether the region uses an input."""
        return number >= len(self.body.args) or bool(self.body.args[number].uses)

    @property
    def read(self) -> tuple[SSAValue, ...]:
        """The inputs that the region uses."""
        return tuple(value for number, value in enumerate(self.inputs) if self.reads(number))

    @property
    def indices(self) -> dict[SSAValue, int]:
        """The indices that the region uses, with their loops."""
        nest = Nest.of(self.op)
        return {index: nest.writes[0].loops.index(loop) for index, loop in nest.indices.items()}

    @property
    def indexed(self) -> tuple[int, ...]:
        """The loops whose indices the region uses."""
        return tuple(dict.fromkeys(self.indices.values()))

    def append(
        self, block: Block, elements: Mapping[int, SSAValue], indices: Mapping[int, SSAValue] | None = None
    ) -> SSAValue:
        """Appends the computation to a block that has these elements for the inputs used, and for the indices of
        loops; returns the result."""
        mapped: dict[SSAValue, SSAValue] = {}
        for number, element in elements.items():
            inner = self.body.args[number] if number < len(self.body.args) else self.inputs[number]
            mapped[inner] = element
        mapped |= {index: (indices or {})[loop] for index, loop in self.indices.items()}
        narrow = bool(self.indexed)

        def inside(value: SSAValue) -> SSAValue:
            """The value in the block for one from outside. Constants are created again."""
            if value not in mapped and isinstance(constant := value.owner, arith.ConstantOp):
                if narrow and is_long(value.type):
                    mapped[value] = narrowed(constant, mapped, block)
                else:
                    block.add_op(copy := constant.clone())
                    mapped[value] = copy.result
            return mapped[value]

        for op in self.body.ops:
            if isinstance(op, YieldOp):
                return inside(op.operands[0])
            if isinstance(op, IndexOp):
                continue
            if (wide := contracted(op)) is not None:
                mapped[op.results[0]] = inside(wide)
                continue
            for operand in op.operands:
                inside(operand)
            if narrow and any(is_long(value.type) for value in (*op.operands, *op.results)):
                mapped[op.results[0]] = narrowed(op, mapped, block)
            else:
                block.add_op(op.clone(mapped))
        raise AssertionError("a verified region ends with linalg.yield")


def read_elementwise(op: Operation) -> Elementwise | None:
    """The elementwise function of an operation on memory; None for other operations."""
    if not isinstance(op, LinalgStructuredOperation) or why_not_elementwise(op):
        return None
    nest = Nest.of(op)
    order, captured = nest.writes[0].loops, nest.captured
    maps = (
        map_along(nest.loops, (FIXED if loop == FIXED else order.index(loop) for loop in access.loops))
        for access in nest.accesses
    )
    scalars = (AffineMap(nest.loops, 0, ()) for _ in captured)
    return Elementwise(op, (*op.inputs, *op.outputs, *captured), (*maps, *scalars), captured)


def why_not_elementwise(op: LinalgStructuredOperation) -> str:
    """Why an operation on memory is not elementwise; "" if it is."""
    nest = Nest.of(op)
    if nest.summed:
        return "it reduces over a loop; of such operations, products and reductions of rows are lowered"
    if op.results or not all(isinstance(value.type, MemRefType) for value in op.outputs):
        return "it is on tensors; bufferize them first"
    if len(op.outputs) != 1:
        return f"expected one output, got {len(op.outputs)}"
    if other := next((map_ for map_ in nest.maps if not is_projection(map_)), None):
        return f"expected every dimension to run along a loop of its own, got {other}"
    inner = [op for op in nest.body.ops if not isinstance(op, arith.ConstantOp | IndexOp | YieldOp)]
    if other := next((op.name for op in inner if not (op.operands and only_computes(op))), ""):
        return f"its body does more than arithmetic on elements: {other}"
    return objection(nest) if nest.is_elementwise else "expected the output to be indexed by all loops"


# Operations that write memory which they also read.
#
# The CTAs of a kernel run in no order: one may write an element before another has read it. What an operation writes
# must therefore share no element with what it reads, but for elements that are read only where the same one is written:
# C of a product, and inputs of an elementwise operation, in place. Two views of one memory that share an element are an
# error where the operation stands. Where only a call knows, a `warp.disjoint` before the operation has the call
# refused. Different arguments of a function are told apart when it is called, too.


class MemoryUse(NamedTuple):
    """Memory that an operation reads or writes, and the map of its elements; None if the access is not by element."""

    name: str
    value: SSAValue
    map: AffineMap | None = None

    def __str__(self) -> str:
        hint = unshaped(self.value).name_hint if self.value.name_hint is None else self.value.name_hint
        return self.name if hint is None else f"{self.name} (%{hint})"


def uses_of(op: Operation) -> tuple[list[MemoryUse], list[MemoryUse]] | None:
    """What an operation reads, and what it writes; None if that is not known. A kernel reads C, and the inputs of
    elementwise operations, element by element where it writes; warps read their rows before they write them."""
    if is_pure(op) or isinstance(op, memref.AllocOp | memref.AllocaOp | DisjointOp | cf.AssertOp):
        return [], []
    match op:
        case LinalgStructuredOperation():
            nest = Nest.of(op)
            reads = [MemoryUse("an input", access.value, access.map) for access in nest.used]
            reads += [MemoryUse("an input", value) for value in nest.captured]
            writes = [MemoryUse("the output", access.value, access.map) for access in nest.writes]
        case MatmulOp():
            others = {"the scales of groups": op.group_scales, "the metadata of A": op.metadata, "the ends": op.ends}
            reads = [*map(MemoryUse, "AB", op.matrices), *(MemoryUse("scales", value) for value in op.scales)]
            reads += [MemoryUse(name, value) for name, value in others.items() if value is not None]
            reads += [] if op.c is None else [MemoryUse("C", op.c, op.maps[2])]
            reads += [MemoryUse("an input of the epilogue", value, map_) for value, map_ in op.placed_operands]
            writes = [MemoryUse("the result", op.d, op.maps[2])]
        case AttentionOp():
            others = {"lengths": op.lengths, "sinks": op.sinks, "the ends": op.ends}
            reads = [MemoryUse(name, value) for name, value in zip("QKV", op.matrices, strict=False)]
            reads += [MemoryUse("an operand of a function", value) for value in op.function_operands]
            reads += [MemoryUse(name, value) for name, value in others.items() if value is not None]
            reads += [MemoryUse("numbers of documents", value) for value in op.documents]
            writes = [MemoryUse("the result", op.o, op.maps[3])]
            if op.lse is not None and op.lse_map is not None:
                writes.append(MemoryUse("lse", op.lse, op.lse_map.data))
        case AttentionGradientOp():
            reads = [*map(MemoryUse, INPUTS, op.inputs)]
            reads += [MemoryUse("numbers beside scores", value) for value in (*op.function_operands, *op.documents)]
            writes = [MemoryUse(*gradient) for gradient in op.gradients]
        case RowsOp():
            reads = [MemoryUse("an input", value, map_) for value, map_ in zip(op.inputs, op.maps, strict=False)]
            writes = [MemoryUse("the output", *each) for each in zip(op.outputs, op.written, strict=True)]
        case _:
            return None
    return reads, writes


def touched(op: Operation) -> tuple[set[SSAValue], set[SSAValue]] | None:
    """The memory that an operation (reads or writes, writes); None if that is not known."""
    if isinstance(op, LinalgStructuredOperation):
        return roots_of(all_operands(op)), roots_of(op.outputs)  # a body may load from memory as well
    uses = None if isinstance(op, AttentionOp) else uses_of(op)
    if uses is None:
        return None
    reads, writes = (roots_of([use.value for use in each]) for each in uses)
    return reads | writes, writes


def roots_of(values: Iterable[SSAValue]) -> set[SSAValue]:
    """The memory that values are views of."""
    return {root(value) for value in values if isinstance(value.type, MemRefType)}


def check_unshared(op: Operation, source: Operation | None = None, *, ask: bool = True) -> None:
    """Refuses an operation whose results share elements with what it reads elsewhere, or at computed places. Errors are
    located at its source, by default itself. Where only a call knows, the call decides, or with `ask` off nobody."""
    reads, writes = uses_of(op) or ([], [])
    if source is not None:  # which may have A and B the other way round
        reads = [read._replace(name="an input") if read.name in ("A", "B") else read for read in reads]
    for written in writes:
        _check(source or op, reads, written, ask)


def _check(op: Operation, reads: Iterable[MemoryUse], written: MemoryUse, ask: bool) -> None:
    if isinstance(memory := root(written.value).owner, memref.GetGlobalOp):
        fail(op, f"{op.name}: the result is a constant, memref.global {memory.name_}; write to other memory")
    for read in reads:
        if not isinstance(read.value.type, MemRefType) or root(read.value) != root(written.value):
            continue
        in_step, view = read.map is not None and read.map == written.map, static_view(read.value)
        same = read.value == written.value or (view is not None and view == static_view(written.value))
        if in_step and same:
            continue
        shared = _share(read.value, written.value)
        if shared is None and ask:
            _ask(op, written.value, read.value, or_same=in_step)
        elif shared is not False:
            fail(op, f"{op.name}: {read} and {written} {'share' if shared else 'may share'} elements, which some "
                 "threads would write before others have read them; write to other memory")  # fmt: skip


def _ask(op: Operation, written: SSAValue, read: SSAValue, *, or_same: bool) -> None:
    """Lets the call decide, if it is not asked already."""
    for use in written.uses:
        asked = use.operation
        if isinstance(asked, DisjointOp) and (asked.written, asked.read) == (written, read):
            return
    LocatedRewriter(op).insert(DisjointOp(written, read, or_same=or_same))


def _share(read: SSAValue, written: SSAValue) -> bool | None:
    """Whether two views of one memory overlap; None if that is unknown."""
    if unshaped(read) == unshaped(written):
        return True
    first, second = static_view(read), static_view(written)
    return None if first is None or second is None else overlap(first, second)


def may_share(first: SSAValue, second: SSAValue) -> bool:
    """Whether two views of one memory may have an element in common."""
    return _share(first, second) is not False


def unshaped(value: SSAValue) -> SSAValue:
    """The memory that a value is all of, in another shape."""
    while isinstance(value.owner, memref.CastOp | memref.CollapseShapeOp | memref.ExpandShapeOp):
        value = value.owner.operands[0]
    return value


class _UnknownError(Exception):
    """A number that is unknown while compiling."""


def _number(value: SSAValue) -> int:
    number = constant_value(value)
    if number is None:
        raise _UnknownError
    return number


def static_view(value: SSAValue) -> View | None:
    """The elements of a view, relative to the start of its memory; None if they are not known."""
    try:
        view = _view(value)
    except _UnknownError:
        return None
    return view if DYNAMIC_INDEX not in view.shape else None


def _view(value: SSAValue) -> View:
    op = value.owner
    if isinstance(op, memref.ViewOp):
        raise _UnknownError
    if isinstance(op, VIEWING):
        source = _view(op.operands[0])
        if DYNAMIC_INDEX in source.shape and isinstance(op, memref.CollapseShapeOp | memref.ExpandShapeOp):
            raise _UnknownError
        return seen(op, source, _number)
    kind = memory_of(value)
    strides = None if isinstance(op, memref.ReinterpretCastOp) else strides_of(kind)
    static = [stride for stride in strides or () if stride is not None]
    if strides is None or len(static) < len(strides):
        raise _UnknownError
    return View(0, kind.get_shape(), tuple(static))


def overlap(first: View, second: View) -> bool:
    """Whether two views of one memory have an element in common: exactly."""
    if 0 in (*first.shape, *second.shape):
        return False
    # An element of both: first.offset + sum of i * stride = second.offset + sum of j * stride, each index in its range.
    # Indices that are multiplied with the same stride count as one.
    ranges: dict[int, tuple[int, int]] = {}
    for view, sign in ((first, 1), (second, -1)):
        for size, stride in zip(view.shape, view.strides, strict=True):
            ends = sorted((0, (size - 1) * (sign if stride >= 0 else -sign)))
            low, high = ranges.get(abs(stride), (0, 0))
            ranges[abs(stride)] = low + ends[0], high + ends[1]
    terms = [(stride, *ranges[stride]) for stride in sorted(ranges, reverse=True) if stride]
    return _reached(terms, second.offset - first.offset)


def _reached(terms: list[tuple[int, int, int]], target: int) -> bool:
    """Whether strides times numbers, each from its least to its largest, add up to a target."""
    if not terms:
        return target == 0
    (stride, low, high), *rest = terms
    least = reduce(lambda total, term: total + term[0] * term[1], rest, 0)
    largest = reduce(lambda total, term: total + term[0] * term[2], rest, 0)
    # What the rest can reach leaves few numbers for the largest stride.
    first, last = max(low, -((largest - target) // stride)), min(high, (target - least) // stride)
    return any(_reached(rest, target - number * stride) for number in range(first, last + 1))
