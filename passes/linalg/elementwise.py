"""Elementwise operations of `linalg`, read once for the passes that fuse or lower them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, MemRefType, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import FIXED, is_projection, loops_of, map_along
from ...dialect.mlir.bodies import contracted
from ...dialect.warp.elements import only_computes, shape_of
from .operand import SIZE_LIMIT

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


def is_wide(kind: Attribute) -> bool:
    """Whether a type is an index, or an integer that an index is cast to and no register holds."""
    return isinstance(kind, IndexType) or kind == i64


def indexed(body: Block) -> tuple[int, ...]:
    """The loops whose indices a body uses."""
    return tuple(dict.fromkeys(op.dim.value.data for op in body.ops if isinstance(op, IndexOp) and op.result.uses))


def objection(body: Block, sizes: Sequence[int]) -> str:
    """Why a body cannot compute with its indices in 32 bits; "" if it can. `sizes` are those of the loops, -1 where one
    is not known."""
    if not indexed(body):
        return ""
    known: dict[SSAValue, Bounds] = {}
    for op in body.ops:
        if isinstance(op, IndexOp):
            size = sizes[op.dim.value.data]
            known[op.result] = 0, max(0, (SIZE_LIMIT if size < 0 else size) - 1)
        elif any(is_wide(value.type) for value in op.results):
            known[op.results[0]] = found = _bounds(op, known)
            if not _fits(found):
                return f"{op.name} of indices may pass {BITS} bits"
        elif isinstance(op, arith.UIToFPOp) and is_wide(op.input.type) and _of(op.input, known)[0] < 0:
            return f"{op.name} of an index that may be negative"
    return ""


def _of(value: SSAValue, known: Mapping[SSAValue, Bounds]) -> Bounds:
    if value in known:
        return known[value]
    if isinstance(owner := value.owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data, owner.value.value.data
    kind = value.type
    if isinstance(kind, IntegerType) and kind.bitwidth <= BITS:
        half = 1 << kind.bitwidth - 1
        return -half, half - 1
    return EVERYTHING


def _fits(bounds: Bounds) -> bool:
    """Whether 32 bits hold a number, with its sign."""
    return bounds[0] >= -LIMIT and bounds[1] < LIMIT


def _bounds(op: Operation, known: Mapping[SSAValue, Bounds]) -> Bounds:
    """The bounds of what an operation makes."""
    given = [_of(value, known) for value in op.operands]
    if isinstance(op, arith.ConstantOp | arith.SelectOp):
        every = [_of(op.result, known)] if isinstance(op, arith.ConstantOp) else given[1:]
        return min(low for low, _ in every), max(high for _, high in every)
    if isinstance(op, CASTS):
        return given[0]
    if (compute := _ARITHMETIC.get(type(op))) is not None and EVERYTHING not in given:
        ends = [compute(a, b) for a, b in product(*given)]
        return min(ends), max(ends)
    if not all(map(_fits, given)):
        return EVERYTHING
    if all(low >= 0 for low, _ in given) and isinstance(op, (*_QUOTIENTS, *_REMAINDERS, *_UNSIGNED)):
        return 0, given[1][1] - 1 if isinstance(op, _REMAINDERS) else max(high for _, high in given)
    overflows = isinstance(op, arith.DivSIOp) and given[0][0] == -LIMIT
    signed = isinstance(op, (*_BITWISE, arith.DivSIOp, arith.RemSIOp)) and not overflows
    return (-LIMIT, LIMIT - 1) if signed else EVERYTHING


def narrowed(op: Operation, known: dict[SSAValue, SSAValue], block: Block) -> SSAValue:
    """Appends an operation on indices to a block, in 32 bits; `known` has what stands for its operands. Returns its
    result."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        copy: Operation = arith.ConstantOp(IntegerAttr(op.value.value.data, i32))
    elif isinstance(op, CASTS):
        source, target = known[op.operands[0]], op.results[0].type
        target = i32 if is_wide(target) else target
        if source.type == target:
            return source
        kind = arith.ExtSIOp if target == i32 else arith.TruncIOp
        copy = kind.build(operands=[source], result_types=[target])
    else:
        copy = op.clone(known)
        kinds = [i32 if is_wide(result.type) else result.type for result in copy.results]
        copy = type(op).create(operands=copy.operands, properties=copy.properties, result_types=kinds)
    copy.location = op.location
    block.add_op(copy)
    return copy.results[0]


# Elementwise operations of `linalg`, read once for the passes that fuse or lower them, and regions on elements.


class Elementwise(NamedTuple):
    """One result from one element of each input: a `linalg.generic` over parallel loops, or a named operation.

    `inputs` are what the region's arguments stand for, with their maps: the operands, the output last, and then the
    numbers from outside that the region uses. Loops are numbered so that the output is indexed by them in order.
    """

    op: LinalgStructuredOperation
    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    captured: tuple[SSAValue, ...]

    @property
    def output(self) -> SSAValue:
        """The memory that is written."""
        return self.op.outputs[0]

    @property
    def body(self) -> Block:
        return self.op.body.block

    @property
    def loops(self) -> int:
        """How many loops there are; the output has as many dimensions."""
        return self.maps[0].num_dims

    def reads(self, number: int) -> bool:
        """Whether the region uses an input."""
        return number >= len(self.body.args) or bool(self.body.args[number].uses)

    @property
    def read(self) -> tuple[SSAValue, ...]:
        """The inputs that the region uses."""
        return tuple(value for number, value in enumerate(self.inputs) if self.reads(number))

    @property
    def indexed(self) -> tuple[int, ...]:
        """The loops whose indices the region uses."""
        order = loops_of(self.op.get_indexing_maps().data[-1].data)
        return tuple(order.index(loop) for loop in indexed(self.body))

    def append(
        self, block: Block, elements: Mapping[int, SSAValue], indices: Mapping[int, SSAValue] | None = None
    ) -> SSAValue:
        """Appends the computation to a block that has these elements for the inputs used, and for the indices of
        loops; returns the result."""
        known: dict[SSAValue, SSAValue] = {}
        for number, element in elements.items():
            inner = self.body.args[number] if number < len(self.body.args) else self.inputs[number]
            known[inner] = element
        found = dict(zip(indexed(self.body), ((indices or {})[loop] for loop in self.indexed), strict=True))
        for op in self.body.ops:
            if isinstance(op, YieldOp):
                return _known(op.operands[0], known, block, narrow=bool(found))
            if isinstance(op, IndexOp):
                known[op.result] = found.get(op.dim.value.data, op.result)
                continue
            if (wide := contracted(op)) is not None:
                known[op.results[0]] = _known(wide, known, block, narrow=bool(found))
                continue
            for operand in op.operands:
                _known(operand, known, block, narrow=bool(found))
            if found and any(is_wide(value.type) for value in (*op.operands, *op.results)):
                known[op.results[0]] = narrowed(op, known, block)
            else:
                block.add_op(op.clone(known))
        raise AssertionError("a verified region ends with linalg.yield")


def _known(value: SSAValue, known: dict[SSAValue, SSAValue], block: Block, *, narrow: bool) -> SSAValue:
    """What stands for a value in the block; a constant from outside is made there again."""
    if value not in known:
        constant = value.owner
        if isinstance(constant, arith.ConstantOp) and narrow and is_wide(constant.result.type):
            known[value] = narrowed(constant, known, block)
        elif isinstance(constant, arith.ConstantOp):
            copy = constant.clone()
            block.add_op(copy)
            known[value] = copy.result
    return known[value]


def read_elementwise(op: Operation) -> Elementwise | None:
    """What an operation does to elements of memory; None if it does something else, or not to memory."""
    if not isinstance(op, LinalgStructuredOperation) or len(op.outputs) != 1 or op.results:
        return None
    if any(iterator != IteratorTypeAttr.parallel() for iterator in op.get_iterator_types()):
        return None
    maps = tuple(attribute.data for attribute in op.get_indexing_maps())
    order = loops_of(maps[-1])
    if not isinstance(op.outputs[0].type, MemRefType) or sorted(order) != list(range(maps[-1].num_dims)):
        return None
    if not all(map(is_projection, maps)) or not _computes(op.body.block):
        return None
    if objection(op.body.block, _sizes(op, order)):
        return None
    maps = tuple(_renamed(map_, order) for map_ in maps)
    captured = _captured(op.body.block)
    scalar = AffineMap(maps[-1].num_dims, 0, ())
    return Elementwise(op, (*op.inputs, *op.outputs, *captured), (*maps, *(scalar for _ in captured)), captured)


def why_not_elementwise(op: LinalgStructuredOperation) -> str:
    """Why an operation on memory is not elementwise."""
    if any(iterator != IteratorTypeAttr.parallel() for iterator in op.get_iterator_types()):
        return "it reduces over a loop; of such operations, products and reductions of rows are lowered"
    if op.results or not all(isinstance(value.type, MemRefType) for value in op.outputs):
        return "it is on tensors; bufferize them first"
    if len(op.outputs) != 1:
        return f"expected one output, got {len(op.outputs)}"
    for map_ in (attribute.data for attribute in op.get_indexing_maps()):
        if not is_projection(map_):
            return f"expected every dimension to run along a loop of its own, got {map_}"
    if not _computes(op.body.block):
        other = next((o.name for o in op.body.block.ops if _counts(o) and not _is_arithmetic(o)), "linalg.yield")
        return f"its body does more than arithmetic on elements, or less: {other}"
    order = loops_of(op.get_indexing_maps().data[-1].data)
    every = sorted(order) == list(range(op.get_num_loops()))
    return (objection(op.body.block, _sizes(op, order)) if every else "") or (
        "expected the output to be indexed by all loops"
    )


def _sizes(op: LinalgStructuredOperation, order: Sequence[int]) -> list[int]:
    """The size of each loop, which the dimensions of the output run along in this order."""
    sizes = dict(zip(order, shape_of(op.outputs[0]), strict=True))
    return [sizes[loop] for loop in range(len(order))]


def _renamed(map_: AffineMap, order: Sequence[int]) -> AffineMap:
    """A map with loops numbered as they stand in `order`."""
    return map_along(map_.num_dims, (FIXED if loop == FIXED else order.index(loop) for loop in loops_of(map_)))


def _computes(body: Block) -> bool:
    """Whether a body does nothing but arithmetic on its elements."""
    *ops, end = body.ops
    if not isinstance(end, YieldOp) or len(end.operands) != 1:
        return False
    return all(_is_arithmetic(op) for op in ops if _counts(op))


def _is_arithmetic(op: Operation) -> bool:
    return bool(op.operands) and only_computes(op)


def _counts(op: Operation) -> bool:
    return not isinstance(op, arith.ConstantOp | IndexOp)


def _captured(body: Block) -> tuple[SSAValue, ...]:
    """Values from outside that a body uses, constants apart."""
    found: dict[SSAValue, None] = {}
    for op in body.ops:
        for value in op.operands:
            inside = value.owner is body or (isinstance(value.owner, Operation) and value.owner.parent is body)
            if not inside and not isinstance(value.owner, arith.ConstantOp):
                found.setdefault(value)
    return tuple(found)
