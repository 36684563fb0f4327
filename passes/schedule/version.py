"""`warp-version`: a product of which only a call knows how it lies, or how large it is, becomes several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isqrt, lcm, prod

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.targets import Target
from ...dialect.schedule import ScheduleError
from ...dialect.warp.attributes import BYTE, ScheduleAttr
from ...dialect.warp.divisible import AssumeDivisibleOp, IsDivisibleOp
from ...dialect.warp.matmul import USUAL, MatmulOp
from ...dialect.warp.operand_forms import OperandForm
from ...dialect.warp.pointwise import PointwiseOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, read
from ..tile.index_builder import IndexBuilder
from .aligned_copies import CopiedOperands, Rounding, rounding
from .choice import default_schedule, products
from .h200 import FEW_ROWS, FULL_WAVE, LARGEST_TILE
from .packing import WIDEST
from .tuned import key_of
from .warp_schedule import read_tuned, target_for

DONE = (ScheduleAttr.name, USUAL)
"""The attributes of products that have their kernel, or their versions."""


def _divisor(operand: MatrixOperand) -> int:
    """What a call would have to promise of a matrix for whole accesses; 1 where nothing more than is known, or where
    what is known is in the way."""
    column, memory = operand.dimensions[1], operand.type
    steps = [stride for dimension, stride in enumerate(strides_of(memory) or ()) if dimension != column]
    parts = [None if (size := memory.get_shape()[column]) < 0 else size, memory.get_offset(), *steps]
    each = WIDEST * BYTE // operand.memory_bits
    fits = all(part is None or part % each == 0 for part in parts)
    return each if fits and None in parts and operand.divisor % each else 1


def _promises(product: Product) -> dict[SSAValue, int]:
    """The divisors of the product's matrices that only a call knows; none if neither A nor B has one."""
    divisors: dict[SSAValue, int] = {}
    for matrix in (operand for operand in product.operands if isinstance(operand, MatrixOperand)):
        if (divisor := _divisor(matrix)) > 1:
            divisors[matrix.value] = lcm(divisors.get(matrix.value, 1), divisor)
    return divisors if any(matrix.value in divisors for matrix in (product.a, product.b)) else {}


def _made_of(values: Sequence[SSAValue]) -> Iterator[Operation]:
    """The operations that make operands of a product of memory, each behind those that it needs."""
    for value in values:
        if isinstance(value.owner, OperandForm | PointwiseOp):
            yield from _made_of(value.owner.operands)
            yield value.owner


def _either(condition: SSAValue, product: MatmulOp, other: Sequence[Operation]) -> None:
    """Puts another product, with what it is made of, in the place of one where a condition holds."""
    then, otherwise = Block([*other, scf.YieldOp()]), Block()
    Rewriter.insert_op(scf.IfOp(condition, [], Region(then), Region(otherwise)), InsertPoint.before(product))
    product.detach()
    otherwise.add_ops([product, scf.YieldOp()])


def _by_rows(product: MatmulOp, divisors: dict[SSAValue, int]) -> MatmulOp:
    """Makes a version for rows that begin at multiples of these numbers of elements."""
    index = IndexBuilder(Builder(InsertPoint.before(product)))
    answers = [index.insert(IsDivisibleOp(memory, divisor)).answer for memory, divisor in divisors.items()]
    whole = reduce(lambda a, b: index.insert(arith.AndIOp(a, b)).result, answers)
    assumed = [AssumeDivisibleOp(memory, divisor) for memory, divisor in divisors.items()]
    known: dict[SSAValue, SSAValue] = {}
    for op in assumed:
        op.same.name_hint = op.memory.name_hint
        known[op.memory] = op.same
    made = [op.clone(known) for op in _made_of(product.operands)]
    _either(whole, product, [*assumed, *made, chosen := product.clone(known)])
    return chosen


def _by_copies(product: MatmulOp, found: Product, how: Rounding, *, few: bool) -> MatmulOp:
    """Makes a version of copies with aligned rows, for sizes of which that is faster: the only one, if the sizes are
    known to be such; none, if they are known not to be. Returns the product of the other sizes, if there are any."""
    index = IndexBuilder(Builder(InsertPoint.before(product)))
    sizes = how.sizes(index)
    if (pays := how.pays(index, sizes, found.op.batch, few=few)) is False:
        return product
    copies = CopiedOperands(found, how, sizes)
    known = copies.of_all()
    made = [op.clone(known) for op in _made_of(product.operands)]
    chosen = product.clone(known)
    other = [*copies.before(), *made, chosen, *copies.behind]
    _say_usual(chosen, found.m, found.n)
    if pays is True:
        Rewriter.replace_op(product, other, [])
        return chosen
    _either(pays, product, other)
    return product


@dataclass(frozen=True)
class Sizes:
    """Products of up to `most` results, or rows if `rows`, that are usually of `m` x `n`."""

    most: int
    m: int
    n: int
    rows: bool = False

    def holds(self, index: IndexBuilder, product: Product) -> SSAValue:
        """Whether a call's sizes are these."""
        d = product.d
        dimensions = d.dimensions[:1] if self.rows else range(len(d.sizes))
        size = reduce(index.mul, (index.dim(d.value, dimension) for dimension in dimensions), 1)
        return index.insert(arith.CmpiOp(index.value(size), index.value(self.most), "ule")).result


def _sizes(product: Product, target: Target) -> Iterator[Sizes]:
    """Sizes for which other tiles may be better than those for large ones: a few rows, where reading B takes the time,
    and results that leave SMs without a tile of the largest ones."""
    m_known, n_known = product.is_known("m"), product.is_known("n")
    if not m_known:
        yield Sizes(FEW_ROWS, FEW_ROWS, product.n, rows=True)
    batch = product.matrices
    full = int(FULL_WAVE * target.sms * prod(LARGEST_TILE)) // batch
    half = full // 2
    m = product.m if m_known else isqrt(half) if not n_known else half // product.n
    n = product.n if n_known else half // max(1, m)
    if min(m, n) > 0 and (m_known or m > FEW_ROWS):
        yield Sizes(full * batch, m, n)


def _by_size(product: MatmulOp, found: Product, target: Target) -> None:
    """Makes a version for each of some sizes, if the default for it is another schedule."""
    taken = [default_schedule(found, target)]
    # Of nibbles ptxas spills in the kernel for a few tiles (sm_100a: 8 bytes, with 96 registers).
    known = (found.is_known("m") and found.is_known("n")) or found.a.element.bits < BYTE
    for sizes in () if known else _sizes(found, target):
        _say_usual(product, sizes.m, sizes.n)
        if (schedule := default_schedule(read(product), target)) not in taken:
            taken.append(schedule)
            index = IndexBuilder(Builder(InsertPoint.before(product)))
            _either(sizes.holds(index, found), product, [product.clone()])
    _say_usual(product, found.m, found.n)


def _say_usual(product: MatmulOp, m: int, n: int) -> None:
    product.attributes[USUAL] = DenseArrayBase.from_list(i64, [m, n])


@dataclass(frozen=True)
class VersionPass(ModulePass):
    """Makes several kernels for a product with dynamic strides or sizes; each call chooses between them.

    - If strides or offsets are dynamic, one kernel requires rows that begin at multiples of 16 bytes, as tensor copies
      and 16-byte accesses do, and another kernel takes any rows. Of products of other rows, all but the smallest are
      computed from copies with rows that do, which other kernels make.
    - If the sizes of the result are dynamic, there are kernels for a few rows, for results of a few tiles, and for
      larger results, as far as their default schedules differ.

    A product stays as it is if it has a schedule, or if the file `tuned`, which `warploom tune` wrote, has one for it.
    """

    name = "warp-version"

    tuned: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        tuned = read_tuned(op, self.tuned)
        for product in [found for found in products(op) if found.attributes.keys().isdisjoint(DONE)]:
            found = read(product)
            divisors = _promises(found)
            if not found.dynamic and not divisors:
                continue
            target = target_for(product)
            if tuned is not None and tuned.best(target.name, key_of(found)) is not None:
                continue
            try:
                whole = _by_rows(product, divisors) if divisors else None
                _say_usual(product, found.m, found.n)
                if (how := rounding(found, target)) is not None:
                    product = _by_copies(product, found, how, few=whole is not None)
                sized = product if whole is None else whole
                _by_size(sized, read(sized), target)
            except ScheduleError as error:
                fail(product, f"schedule: {error}")
