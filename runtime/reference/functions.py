"""What a host function means in float64, and how far from it a result may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xdsl.dialects import arith, cf, func, memref, scf
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, i1, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import BlockArgument, Operation, Region, SSAValue

from ...dialect.isa.form import ELEMENT_TYPES
from ...dialect.isa.mma import blocks
from ...dialect.isa.row import target as target_row
from ...dialect.mlir.affine import Nest, NestAccess, loops_of
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.cta import DisjointOp, IsDivisibleOp
from ...dialect.warp.elements import K, N, PointwiseOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import OperandForm
from ...passes.diagnostics import place_of
from ...passes.linalg.operand import VIEWING, View, Viewing, seen
from ...passes.linalg.pages import pages_of, rows_of
from ..arguments.arrays import DTYPES, DType, integer_limits
from ..arguments.packed import packed_order
from ..base.errors import HostError
from ..numerics.floats import Array, Floats
from ..plan.host import elements_of, index_result
from .elements import OTHERS
from .nests import elementwise, evaluate_nest, letters
from .product import ACCUMULATORS, FLOAT64, FP8, Accumulator, History, Reference, expanded, product_of, rounded

WITH_BOUNDS = (*OTHERS, "math.round", "math.copysign", "math.atan2")
"""Functions with bounds of their own, which are evaluated before others take their place."""

# What `warp.matmul` means, in float64: the product in any of its forms, then its epilogue.


def evaluate_matmul(op: MatmulOp, scope: Mapping[SSAValue, Reference], accumulator: Accumulator) -> Reference:
    """The result D of the product."""
    product = evaluate_product(op, scope, replace(accumulator, tf32=op.multiplied == ("tf32", "tf32")))
    if op.epilogue is None:
        return product
    nest = epilogue_nest(op, op.epilogue)
    return elementwise(nest, {**scope, nest.body.args[0]: product})[0]


def epilogue_nest(op: MatmulOp, epilogue: PointwiseOp) -> Nest:
    """The epilogue as a nest, which reads the product as the first argument of its body."""
    block = epilogue.body.block
    placed = [(block.args[0], op.maps[2]), *op.placed_operands]
    reads = tuple(NestAccess(value, map_, element) for (value, map_), element in zip(placed, block.args, strict=True))
    return Nest(op.maps[2].num_dims, (), reads, (NestAccess(op.d, op.maps[2], op.d),), block)


def evaluate_product(op: MatmulOp, scope: Mapping[SSAValue, Reference], accumulator: Accumulator) -> Reference:
    """The product, in the type that an element of it is rounded to."""
    names = (op.multiplied[0], op.multiplied[1] if op.b_stored is None else op.b_stored.name)
    matrices = [scope[value].stored() for value in op.matrices]
    if op.metadata is not None:
        matrices[0] = expanded(op, matrices[0], scope[op.metadata])
    if op.is_packed:
        matrices[1] = unpacked(op, matrices[1])
    a, b = (read_multiplied(matrix, name) for matrix, name in zip(matrices, names, strict=True))
    if op.b_stored is not None:
        b = replace(b, value=b.value - op.b_stored.zero, dtype=FLOAT64)
    maps = [letters(loops_of(map_)) for map_ in op.maps]
    if op.scales:
        block, k = blocks()[op.variant], chr(ord("a") + op.outer + K)
        a, b = (
            Reference.exact(x.value * in_blocks(np.abs(scope[scales].value), block, x.value.shape, map_.index(k)))
            for x, scales, map_ in zip((a, b), op.scales, maps, strict=False)
        )
    if op.zero_points is not None:
        b = _less(b, scope[op.zero_points], DTYPES[op.multiplied[1]])
    if op.group_scales is not None:
        b = Reference.exact(b.value * in_groups(scope[op.group_scales].value, b.value.shape))
        each = rounded(b.value, DTYPES[op.multiplied[1]])
        if op.b_stored is not None and op.b_stored.rounded:
            b = replace(b, value=each)
        elif op.is_packed:
            b = replace(b, error=np.abs(each - b.value))  # each may be rounded, or the sums be scaled
    start, kind = scope[op.d if op.c is None else op.c], DTYPES[str(op.product_type)]
    if op.init is not None:
        start = Reference.exact(np.full_like(start.value, float(op.init.value.data)), kind)
    start = replace(start.stored(), dtype=kind)
    if op.variant.bit_op != "xor":
        return product_of(op, (a, b), start, maps, accumulator)
    # A bit of the xor is one where exactly one of the two is.
    first = product_of(op, (a, replace(b, value=1 - b.value)), start, maps, accumulator)
    return product_of(op, (replace(a, value=1 - a.value), b), first, maps, accumulator)


def read_multiplied(operand: Reference, multiplied: str) -> Reference:
    """An operand as the instruction reads it: integers of either sign."""
    element = ELEMENT_TYPES[multiplied]
    if element.is_float or element.signed:
        return operand
    return replace(operand, value=np.where(operand.value < 0, operand.value + 2.0**element.bits, operand.value))


def in_blocks(scales: Array, block: int, shape: Sequence[int], along: int) -> Array:
    """The scale of each element of an operand; `along` is its dimension along k, of the last two."""
    each = np.repeat(scales, block, axis=-1)[..., : shape[along]]
    return each if along == len(shape) - 1 else each.swapaxes(-1, -2)


def in_groups(each: Array, shape: Sequence[int]) -> Array:
    """The scale of each element of B, of which each group along k has several."""
    for axis, (size, count) in enumerate(zip(shape, each.shape, strict=True)):
        each = np.repeat(each, size // count, axis=axis)
    return each


def unpacked(op: MatmulOp, lines: Reference) -> Reference:
    """Packed weights as k x n."""
    n = memory_of(op.d).get_shape()[loops_of(op.maps[2]).index(N)]
    stored = ELEMENT_TYPES[op.b_stored.name] if op.b_stored is not None else None
    rows, columns, places = packed_order(8 if stored is None else stored.bits)
    blocks = np.empty((n // rows, lines.value.size // (n // rows * rows * columns), rows * columns))
    blocks[..., places] = lines.value.reshape(blocks.shape)
    value = blocks.reshape(*blocks.shape[:2], rows, columns).transpose(1, 3, 0, 2).reshape(-1, n)
    return Reference.exact(value, lines.dtype)


def _less(operand: Reference, points: Reference, kind: DType) -> Reference:
    """B less the zero points of its groups, rounded once."""
    each = np.repeat(points.value, operand.value.shape[0] // points.value.shape[0], axis=0)
    return replace(operand, value=rounded(operand.value - each, kind))


# The function is evaluated as written, before any lowering: constants, `linalg.fill`, every operation of `linalg`
# whose body adds products, by its indexing maps, elementwise ones (`elements.py` has their bounds), and those that
# reduce (`nests.py`). Beside every value goes a bound on the error of any correct evaluation; of products with the
# accumulators of the schedule:
#
#     |result - exact| <= (K + 2) u (|C| + |A| |B|) + (K + 2) t + |A| eB + eA |B| + eA eB + eC
#
# then rounded to the output's type. u is 2^-23 for f32 accumulators and 2^-10 for f16 ones, t the least subnormal; eA,
# eB, eC are the bounds of operands computed by the function itself (0 for its arguments). It holds for any order of
# summation and for tensor cores that cut every term at 24 bits or more below the largest one, as those of sm_80 and
# later do. Of f64 u is 2^-52; where f32 is multiplied as tf32, eA and eB are 2^-10 |A| and 2^-10 |B|. Where the
# schedule lets the instruction add up all products of 8-bit floats, u is 2^-13; where f32 registers add the sums of
# its K tiles, (T + 2) 2^-13 |A| |B| is added for tiles of T. Integers are exact, modulo their width.

FP8_DEPTHS, CUT_SM = (32, 64), 89
"""K of the instructions for 8-bit floats, dense and sparse; the target whose `mma` adds up short sums of them, as
`wgmma` does (docs/arithmetic.md)."""


def accumulator_of(schedules: Sequence[Schedule | None], target: str) -> Accumulator:
    """The least exact accumulator of the launches; f32 where none says."""
    used = [schedule for schedule in schedules if schedule is not None]
    kinds = {schedule.accumulate for schedule in used}
    kind = next((kind for kind in ("f16", "f32", "f64", "s32") if kind in kinds), "f32")
    return replace(ACCUMULATORS[kind], short=max((_short(schedule, target) for schedule in used), default=0))


def _short(schedule: Schedule, target: str) -> float:
    """Of how many products of 8-bit floats a schedule lets instructions add up short sums."""
    if schedule.mma.k not in FP8_DEPTHS:
        return 0
    if schedule.together > 1:
        return schedule.cta[2] if schedule.promote != "none" else math.inf
    return math.inf if target_row(target).sm == CUT_SM and schedule.fp8_as == "none" else 0


def evaluate(
    function: func.FuncOp, arguments: Sequence[Array], accumulator: Accumulator | None = None, *, tf32: bool = False
) -> list[Reference]:
    """The arguments of `function` as it leaves them, scalars included as arrays of no dimension, for an accumulator, or
    else for f32. `tf32` says that f32 operands may be multiplied as tf32. Raises HostError naming the first operation
    that has no meaning here."""
    evaluation = Evaluation(replace(accumulator or ACCUMULATORS["f32"], tf32=tf32))
    for parameter, array in zip(function.body.block.args, arguments, strict=True):
        made = Reference.exact(array.astype(np.float64), array.dtype)
        evaluation.scope[parameter] = replace(made, history=History(narrow=array.dtype in FP8))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        evaluation.all(function.body)
    return [evaluation.scope[parameter] for parameter in function.body.block.args]


class Evaluation:
    """Evaluates operations in order. `scope` maps values to their arrays."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.scope: dict[SSAValue, Reference] = {}
        self.accumulator = accumulator

    def all(self, region: Region) -> None:
        """Every operation of a region. Raises HostError naming the first operation that has no meaning here."""
        for op in region.block.ops if region.blocks else ():
            if not (self._gathers(op) or self.computes(op)):
                self._arranges(op)

    def computes(self, op: Operation) -> bool:
        """Evaluates an operation that computes elements. Returns False for any other operation."""
        scope = self.scope
        match op:
            case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as constant):
                scope[op.result] = _number(float(constant.value.data))
            case FillOp():
                store(op, _fill(op, scope), scope)
            case LinalgStructuredOperation() if results := evaluate_nest(op, scope, self.accumulator):
                for at, result in enumerate(results):
                    store(op, result, scope, at)
            case MatmulOp():
                result = evaluate_matmul(op, scope, self.accumulator)
                _put(result, scope[op.d])
            case memref.AllocOp() if str(op.memref.type.element_type) in DTYPES:
                kind, sizes = DTYPES[str(op.memref.type.element_type)], iter(op.dynamic_sizes)
                shape = [int(scope[next(sizes)].value) if n < 0 else n for n in op.memref.type.get_shape()]
                scope[op.memref] = Reference.exact(self.unwritten(shape, kind), kind)
            case memref.GetGlobalOp():
                elements = elements_of(op)
                scope[op.memref] = Reference.exact(self.embedded(elements.astype(np.float64)), elements.dtype)
            case _:
                return False
        return True

    def unwritten(self, shape: Sequence[int], kind: DType) -> Floats:
        """The elements of new memory."""
        return np.full(shape, np.nan if kind.kind not in "iu" else 0.0)

    def embedded(self, elements: Floats) -> Floats:
        """Constants of the module as elements of arrays."""
        return elements

    def integers(self, value: SSAValue) -> Floats:
        """The elements of an array of integers."""
        return self.scope[value].value

    def _gathers(self, op: Operation) -> bool:
        """Evaluates an operation that gathers sequences in pages, or rows. Returns False for any other operation."""
        view = pages_of(op) or rows_of(op)
        if view is None or not isinstance(op, GenericOp):
            return False
        table, matrix = self.integers(view.table).astype(np.int64), self.scope[view.memory]
        along, of_table, shape = view.loops, view.table_along.get_values(), matrix.value.shape
        (page, slot), rows = view.dimensions, 1 if view.dimensions[1] is None else shape[view.dimensions[1]]
        view.erase()
        sizes = dict(zip(along, shape, strict=True)) | dict(zip(of_table, table.shape, strict=False))
        sizes[along[page]] = table.shape[-1] * rows
        numbers = np.ogrid[tuple(slice(sizes[axis]) for axis in range(len(sizes)))]
        row = numbers[along[page]]
        at = [numbers[axis] for axis in along]
        at[page] = table[(*(numbers[axis] for axis in of_table), row // rows)]
        if slot is not None:
            at[slot] = row % rows
        value, error = (array[tuple(at)] for array in (matrix.value, matrix.error))
        store(op, replace(matrix, value=value, error=error), self.scope)
        return True

    def _arranges(self, op: Operation) -> None:
        """Sizes, views, and what is evaluated when."""
        scope = self.scope
        match op:
            case memref.DimOp():
                scope[op.result] = _number(scope[op.source].value.shape[int(scope[op.index].value)])
            case _ if isinstance(op, VIEWING) and not isinstance(op, memref.ViewOp):
                _view(op, scope)
            case IsDivisibleOp():
                scope[op.answer] = _number(1)  # both of what it chooses between compute the same
            case memref.DeallocOp() | DisjointOp() | OperandForm() | PointwiseOp() | scf.YieldOp() | cf.AssertOp():
                pass  # a call that an assertion does not hold for has ended before
            case memref.LoadOp() if op.res.type in (i1, i32):
                place = tuple(int(scope[at].value) for at in op.indices)
                scope[op.res] = _number(int(self.integers(op.memref)[place]))
            case arith.IndexCastOp():
                scope[op.result] = scope[op.input]
            case scf.ForOp() if all(value.type == IndexType() for value in op.iter_args):
                start, end, step = (int(scope[value].value) for value in (op.lb, op.ub, op.step))
                carried, (number, *arguments) = [scope[value] for value in op.iter_args], op.body.block.args
                for turn in range(start, end, step):
                    scope.update(zip((number, *arguments), (_number(turn), *carried), strict=True))
                    self.all(op.body)
                    carried = [scope[v] for v in (op.body.block.last_op or op).operands] if arguments else []
                scope.update(zip(op.results, carried, strict=True))
            case scf.IfOp() if not op.results:
                self.all(op.true_region if scope[op.cond].value else op.false_region)
            case _ if len(op.operands) == 2 and all(v.type in (IndexType(), i1) for v in op.operands):
                a, b = (int(scope[value].value) for value in op.operands)
                scope[op.results[0]] = _number(index_result(op, a, b))
            case func.ReturnOp() if all(isinstance(v, BlockArgument) for v in op.operands):
                pass
            case _:
                raise HostError(
                    f"{place_of(op)}no float64 reference for {op.name}; "
                    "--check knows constants, linalg.fill, warp.matmul, and operations of linalg that add products, "
                    "reduce, or are elementwise"
                )


def _number(value: float) -> Reference:
    return Reference.exact(np.array(float(value)))


def store(op: LinalgStructuredOperation, result: Reference, scope: dict[SSAValue, Reference], at: int = 0) -> None:
    """Keeps what an operation leaves in one of its outputs."""
    if op.results:
        scope[op.results[at]] = result
        return
    # In place, for others may see the same memory.
    _put(result, scope[op.outputs[at]])


def _put(result: Reference, memory: Reference) -> None:
    memory.value[...], memory.error[...] = result.value, result.error
    memory.history.become(result.history)


def _view(op: Viewing, scope: dict[SSAValue, Reference]) -> None:
    source = scope[op.operands[0]]

    def array(of: Floats) -> Floats:
        steps = tuple(stride // of.itemsize for stride in of.strides)
        view = seen(op, View(0, of.shape, steps), lambda value: int(scope[value].value))
        reach = view.offset + 1 + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        last = sum((n - 1) * abs(s) for n, s in zip(of.shape, steps, strict=True))
        if 0 not in (*view.shape, *of.shape) and not 0 <= view.offset < reach <= last + 1:
            raise HostError(f"{place_of(op)}{op.name} of shape {list(view.shape)} passes the end of its memory")
        line = as_strided(of, (max(reach, view.offset),), (of.itemsize,))[view.offset :]
        return as_strided(line, view.shape, [stride * of.itemsize for stride in view.strides])

    scope[op.results[0]] = replace(source, value=array(source.value), error=array(source.error))


def _fill(op: FillOp, scope: dict[SSAValue, Reference]) -> Reference:
    old = scope[op.outputs[0]]
    return Reference.exact(np.full_like(old.value, rounded(scope[op.inputs[0]].value, old.dtype)), old.dtype)


@dataclass(frozen=True)
class Comparison:
    """How a result differs from its reference. `relative` is against the largest exact value. `share` is the largest
    part of its bound that an element's error uses; `outside` counts elements beyond it; `worst` is the index of the one
    that uses most, and `allowed` its bound. `unbounded` counts elements whose bound is infinite, so that any number
    would be within it: they are not checked."""

    absolute: float
    relative: float
    share: float
    outside: int
    worst: tuple[int, ...]
    got: float
    expected: float
    allowed: float
    unbounded: int = 0

    @property
    def ok(self) -> bool:
        return self.outside == 0 and self.unbounded == 0


def compare(reference: Reference, result: Array) -> Comparison:
    """Hold a computed array against its reference. NaN and infinities must be where the reference has them, or
    where rounding to the output's type overflows."""
    got, exact, unbounded = result.astype(np.float64), reference.value, ~np.isfinite(reference.error)
    with np.errstate(invalid="ignore"):
        low, high = reference.interval()
    inside = ((got >= low) & (got <= high)) | (got == exact) | (np.isnan(got) & np.isnan(exact)) | unbounded
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact))
        allowed = np.maximum(high - exact, exact - low)
        share = np.where(inside & ~(error > 0), 0.0, error / allowed)
    rank = np.where(inside, np.nan_to_num(share, nan=0.0, posinf=0.0), np.inf)
    worst = tuple(int(i) for i in np.unravel_index(int(rank.argmax()), rank.shape)) if rank.size else ()
    return Comparison(
        absolute=_largest(error),
        relative=_largest(error) / (_largest(np.abs(exact)) or 1.0),
        share=_largest(share),
        outside=int((~inside).sum()),
        worst=worst,
        got=float(got[worst]) if rank.size else 0.0,
        expected=float(exact[worst]) if rank.size else 0.0,
        allowed=float(allowed[worst]) if rank.size else 0.0,
        unbounded=int(unbounded.sum()),
    )


def _largest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0


def poison(dtype: DType) -> object:
    """A value that no correct kernel writes: NaN, or the smallest number of a type without NaN."""
    if (limits := integer_limits(dtype)) is not None:
        least, greatest = limits
        return np.array(least or greatest).astype(dtype)[()]
    value = np.array(np.nan).astype(dtype)
    return value[()] if np.isnan(value) else np.array(-math.inf).astype(dtype)[()]
