"""What an elementwise operation makes of integers, or floats, of few bits: `(q - z) s`, read from its body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    Float8E4M3FNType,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerType,
    StringAttr,
    f32,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa import wgmma
from ...dialect.isa.form import FP8
from ...dialect.mlir.affine import FIXED, arithmetic, converted, loops_of, map_along, may_scale_sums, number_of
from ...dialect.warp.attributes import element_name, memory_of, target_of
from ...dialect.warp.elements import K, PointwiseOp, YieldOp, element_type, with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import ScaledOp
from ...dialect.warp.stored import NIBBLES, StoredIntegers
from ..diagnostics import remark
from ..patterns import constant_number, float_value, operations_between, rewrite_pattern
from .elementwise import Elementwise, read_elementwise
from .memory_uses import touched
from .operand import collapse, drop_unused, expand, groups_of, root, users_of
from .raise_matmul import formed

# `q - z` has 9 bits, so f16, bf16 and wider types have it exactly. Of a scale of 16 bits f32 has the product exactly
# too: its rounding to 16 bits, and a multiplication in 16 bits, are then one rounding of the exact product.

BITS = (4, 8)
"""Widths of integers that products convert."""

CASTS = (arith.ExtFOp, arith.TruncFOp)
EXACT = (Float16Type, BFloat16Type, Float32Type, Float64Type)
"""Types that have integers of 9 bits."""
SIGNED = (arith.ExtSIOp, arith.SIToFPOp)
UNSIGNED = (arith.ExtUIOp, arith.UIToFPOp)


@dataclass
class Dequantised:
    """Input `weights` of an operation, integers of the ISA's type `stored`, less `zero` or input `points`, times the
    inputs `scales` and the numbers `factors`. `objection` says why products do not convert them so, `roundings` which
    types the element is rounded to, in order, where nothing allows to leave that out."""

    weights: int = -1
    stored: str = ""
    zero: int = 0
    points: int = -1
    scales: list[int] = field(default_factory=list[int])
    factors: list[float] = field(default_factory=list[float])
    roundings: list[Attribute] = field(default_factory=list[Attribute])
    objection: str = ""
    narrowed: Attribute | None = None
    """A type on the way that does not have integers of 9 bits."""


class _Reader:
    """Reads one body, from what it yields back to the integers."""

    def __init__(self, made: Elementwise) -> None:
        self.made, self.how = made, Dequantised()
        self.after = 0
        """How many roundings come after the first multiplication: those before it are of integers, and exact."""

    def read(self) -> Dequantised | None:
        """The conversion of narrow integers to floats; None if the body is something else."""
        last = self.made.body.last_op
        if last is None or not self._scaled(last.operands[0]):
            return None
        self.how.roundings = self.how.roundings[len(self.how.roundings) - self.after :]
        return self.how

    def widened(self) -> Dequantised | None:
        """The conversion of 4-bit integers to wider ones; None if the body is something else."""
        last = self.made.body.last_op
        kind = None if last is None else last.operands[0].type
        if last is None or not isinstance(kind, IntegerType) or not self._integer(last.operands[0], unsigned=False):
            return None
        if int(self.how.stored[1:]) > BITS[0]:
            return None
        if kind.bitwidth != BITS[1]:
            self.how.objection = f"they become {kind}, and a kernel of its own widens them"
        return self.how

    def _scaled(self, value: SSAValue) -> bool:
        """Follows a value to the integers through casts, scales and offsets, which it records."""
        while True:
            match value.owner:
                case arith.ExtFOp() | arith.TruncFOp() as cast:
                    self._round(cast)
                    value = cast.operands[0]
                case arith.MulfOp() as product if self._has_integers(product.lhs) != self._has_integers(product.rhs):
                    sides = product.lhs, product.rhs
                    value, scale = sides if self._has_integers(product.lhs) else sides[::-1]
                    self._round(product)
                    self.after = len(self.how.roundings)
                    self._scale(scale)
                case arith.SubfOp() as difference if self._has_integers(difference.lhs):
                    self._point(difference.rhs)
                    return self._converted(difference.lhs)
                case _:
                    return self._converted(value)

    def _round(self, op: Operation) -> None:
        """Notes the rounding of an operation, if its flags do not allow to leave it out."""
        self._exact(op.results[0])
        if not isinstance(op, arith.ExtFOp) and not may_scale_sums(op):
            self.how.roundings.insert(0, op.results[0].type)

    def _scale(self, value: SSAValue) -> None:
        while isinstance(value.owner, arith.ExtFOp):
            value = value.owner.input
        if (factor := float_value(value)) is not None:
            self.how.factors.append(factor)
        elif (number := self._input(value)) is not None:
            self.how.scales.append(number)
        else:
            self.how.objection = "its scale is computed"

    def _converted(self, value: SSAValue) -> bool:
        while isinstance(value.owner, CASTS):
            self._exact(value)
            value = value.owner.operands[0]
        cast = value.owner
        if element_name(value.type) == NIBBLES and (number := self._input(value)) is not None:
            self.how.weights, self.how.stored = number, NIBBLES
            return True
        self._exact(value)
        if not isinstance(cast, arith.SIToFPOp | arith.UIToFPOp):
            return False
        return self._integer(cast.input, isinstance(cast, arith.UIToFPOp))

    def _exact(self, value: SSAValue) -> None:
        if not isinstance(value.type, EXACT):
            self.how.narrowed = value.type

    def _integer(self, value: SSAValue, unsigned: bool) -> bool:
        """Reads integers: an argument, extended or not, less a zero point."""
        owner = value.owner
        if unsigned and isinstance(owner, arith.SubiOp | arith.ExtSIOp):
            self.how.objection = f"it converts what {owner.name} gives as unsigned"
        if isinstance(owner, arith.SubiOp) and self._has_integers(owner.lhs):
            self._point(owner.rhs)
            if not isinstance(owner.lhs.owner, arith.ExtSIOp | arith.ExtUIOp):
                self.how.objection = "its zero point is subtracted in as many bits, and may pass them"
            value, owner = owner.lhs, owner.lhs.owner
        if isinstance(owner, arith.ExtSIOp | arith.ExtUIOp):
            unsigned, value = isinstance(owner, arith.ExtUIOp), owner.input
        number, kind = self._input(value), value.type
        if number is None or not isinstance(kind, IntegerType) or kind.bitwidth not in BITS:
            return False
        self.how.weights, self.how.stored = number, f"{'u' if unsigned else 's'}{kind.bitwidth}"
        return True

    def _point(self, value: SSAValue) -> None:
        """Reads a zero point: a constant, extended or converted, or a float of memory."""
        if isinstance(value.type, AnyFloat) and (number := self._input(value)) is not None:
            self.how.points = number
            return
        while isinstance(owner := value.owner, (*CASTS, *SIGNED, *UNSIGNED)):
            value = owner.operands[0]
        constant = constant_number(value)
        number = 0.5 if constant is None else constant.value.data
        if number != int(number):
            self.how.objection = "its zero point is no whole constant"
        self.how.zero = int(number)

    def _has_integers(self, value: SSAValue) -> bool:
        """Whether a value is made of integers, or floats, of few bits from memory."""
        if isinstance(value, BlockArgument):
            kind = value.type
            narrow = isinstance(kind, IntegerType) and kind.bitwidth in BITS
            return value.owner is self.made.body and (narrow or element_name(value.type) == NIBBLES)
        owner = value.owner
        if not isinstance(owner, Operation) or owner.parent is not self.made.body:
            return False
        return any(map(self._has_integers, owner.operands))

    def _input(self, value: SSAValue) -> int | None:
        """Which input of the operation a value is."""
        if isinstance(value, BlockArgument) and value.owner is self.made.body:
            return value.index
        captured = value in self.made.captured
        return next((i for i, input_ in enumerate(self.made.inputs) if captured and input_ is value), None)


def dequantised(made: Elementwise) -> Dequantised | None:
    """How an operation converts integers to floats, or widens those of 4 bits; None if it does not, or computes
    something else."""
    conversion = _Reader(made).read() or _Reader(made).widened()
    if conversion is None or conversion.objection:
        return conversion
    stored, narrowed = StoredIntegers(conversion.stored), conversion.narrowed
    floats, (low, high) = conversion.stored == NIBBLES, stored.limits
    # Differences of integers of 4 bits are at most 16, which e4m3 has exactly.
    exact = not floats and stored.element.bits == BITS[0] and isinstance(narrowed, Float8E4M3FNType)
    if narrowed is not None and not exact:
        conversion.objection = f"they become {narrowed} on the way"
    elif not floats and not low <= conversion.zero <= high:
        conversion.objection = f"its zero point is none of {conversion.stored}, {conversion.zero}"
    return conversion


# Operands of 8-bit floats times scales of blocks, `W = q s`, become operands of the product that reads them.
#
# Written for a product, `W` is a matrix of its own, made by an elementwise operation of the floats and of scales along
# quotients of its loops: `(m, k) -> (m, k floordiv 128)`. The product reads the floats instead, and multiplies the sums
# of blocks along k with the scales of both operands::
#
#     %a = warp.scaled %A, %SA : memref<256x512xf8E4M3FN>, memref<256x4xf32>


BY = "warp-fuse-weights"
"""The pass that remarks."""

MIN_SM = 89
"""The first target with instructions for 8-bit floats."""


@dataclass(frozen=True)
class MadeOperand:
    """An operand of a product, and the elementwise operation that makes it for the product alone."""

    product: MatmulOp
    value: SSAValue
    made: Elementwise

    @property
    def dimensions(self) -> list[list[int]]:
        """For each dimension of the operand, the loops of the operation that it runs along: two for blocks and the
        elements inside of them. Each has one if the operand has neither the shape before the reshape nor the one after
        it."""
        output, view = self.made.output.owner, self.value.owner
        if isinstance(output, memref.ExpandShapeOp) and output.src is self.value:
            return groups_of(output)
        if isinstance(view, memref.CollapseShapeOp) and view.src is self.made.output:
            return groups_of(view)
        return [[loop] for loop in range(self.made.loops)]

    @property
    def map(self) -> AffineMap:
        """How the product indexes the operand."""
        return self.product.maps[0 if self.value is self.product.a else 1]

    @property
    def along_k(self) -> list[int]:
        """The loops of the operation that k of the product is."""
        return self.dimensions[loops_of(self.map).index(self.product.outer + K)]

    def map_of(self, number: int) -> AffineMap:
        """How an input of the operation, which does not run along k, is indexed by the loops of the product."""
        along = loops_of(self.map)
        own = {FIXED: FIXED} | {loop: along[d] for d, loops in enumerate(self.dimensions) for loop in loops}
        return map_along(self.map.num_dims, [own[loop] for loop in loops_of(self.made.maps[number])])

    def in_shape(self, number: int) -> SSAValue:
        """An input of the operation, in the shape in which the product reads the operand."""
        source = self.made.inputs[number]
        if self.made.output is self.value:
            return source
        if isinstance(source.owner, memref.ExpandShapeOp) and groups_of(source.owner) == self.dimensions:
            return source.owner.src
        return inserted(self.product, collapse(source, self.dimensions))

    def between(self, what: str) -> str:
        """The reason why the operation cannot move to the product: another one between them changes what it reads,
        which are `what`; "" if there is none."""
        inputs, standing = set(map(root, self.made.inputs)), operations_between(self.made.op, self.product)
        if standing is None:
            return "it does not stand before the product"
        for op in standing:
            memory = touched(op)
            if memory is None:
                return f"{op.name} between them may touch any memory"
            if memory[1] & inputs:
                return f"an operation between them writes {what}"
        return f"the result of the product shares memory with {what}" if root(self.product.d) in inputs else ""

    def erase(self) -> None:
        """Erases the operation, and memory that only it and the product used."""
        unused = (self.made.output, *self.made.inputs, self.value)
        Rewriter.erase_op(self.made.op)
        for value in unused:
            drop_unused(value)


def inserted(product: MatmulOp, view: memref.ExpandShapeOp | memref.CollapseShapeOp) -> SSAValue:
    """A view that is put before a product."""
    Rewriter.insert_op(view, InsertPoint.before(product))
    return view.result


def with_scaled_sums(
    product: MatmulOp, scales: Sequence[tuple[SSAValue, AffineMap]], factors: Sequence[float] = (), **changed: Any
) -> MatmulOp:
    """The product that starts from zero, with further changes. Its epilogue multiplies it with scales and factors, and
    adds the former start value."""
    operands = [*scales] if product.c is None else [*scales, (product.c, product.maps[2])]
    block = Block(arg_types=[f32, *(element_type(value) for value, _ in operands)])
    element, *parameters = block.args
    for argument, (value, _) in zip(parameters, scales, strict=False):
        argument.name_hint = value.name_hint
    with ImplicitBuilder(block):
        for scale in parameters[: len(scales)]:
            element = arithmetic("mul", element, converted(scale, f32))
        for number in factors:
            element = arithmetic("mul", element, number_of(f32, number).result)
        if product.c is not None:
            element = arithmetic("add", converted(parameters[-1], f32), element)
        elif product.init is not None and product.init.value.data:
            element = arithmetic("add", number_of(f32, product.init.value.data).result, element)
        YieldOp(converted(element, element_type(product.d)))
    epilogue = PointwiseOp(operands, Region(block))
    epilogue.function.name_hint = "scaled"
    return product.like(start=FloatAttr(0.0, f32), through=epilogue.function, **changed)


@dataclass(frozen=True)
class ScaledOperand(MadeOperand):
    """An operand, and the inputs of what makes it that are its floats and its scales."""

    floats: int
    scales: int

    @staticmethod
    def of(product: MatmulOp, value: SSAValue) -> ScaledOperand | None:
        """The operand, if it is made of 8-bit floats and scales, for the product alone."""
        made = sole_writer(product, value)
        last = None if made is None else made.body.last_op
        if made is None or last is None:
            return None
        factor = _uncast(last.operands[0]).owner
        pair = [_uncast(side) for side in factor.operands] if isinstance(factor, arith.MulfOp) else []
        numbers = [side.index for side in pair if isinstance(side, BlockArgument) and side.owner is made.body]
        narrow = [number for number in numbers if element_name(element_type(made.inputs[number])) in FP8]
        if len(numbers) != 2 or len(narrow) != 1:
            return None
        (scales,) = [number for number in numbers if number not in narrow]
        return ScaledOperand(product, value, made, narrow[0], scales)

    @property
    def of_rows(self) -> bool:
        """Whether there is one scale for each row of A, or column of B, the same along k."""
        rows = [loops for loops in self.dimensions if loops != self.along_k]
        return [[loop] for loop in loops_of(self.made.maps[self.scales])] == rows

    @property
    def one_block(self) -> bool:
        """Whether all rows of A, or columns of B, are in one block, so that scales have no dimension of them."""
        return len(self.along_k) > 1 and [*loops_of(self.made.maps[self.scales])] == self.along_k[:1]

    def objection(self) -> str:
        """Why the product cannot multiply the floats themselves; "" if it can."""
        made, dimensions = self.made, self.dimensions
        along, outer = loops_of(made.maps[self.scales]), [loops[0] for loops in dimensions]
        if str(memory_of(made.inputs[self.scales]).element_type) != "f32":
            return "scales are expected in f32"
        same = made.output is self.value or len(dimensions) < made.loops
        if loops_of(made.maps[self.floats]) != tuple(range(made.loops)) or len(dimensions) != 2 or not same:
            return "the floats are read in another order, or another shape"
        blocks = max(map(len, dimensions)) <= 2 and (self.one_block or sorted(along) == sorted(outer))
        if not self.of_rows and not blocks:
            return "scales are expected for blocks along both dimensions"
        return self.between("the floats or the scales")

    def formed(self) -> SSAValue:
        """The operand of the product."""
        floats, scales = self.in_shape(self.floats), self.made.inputs[self.scales]
        across = not self.one_block and loops_of(self.made.maps[self.scales])[0] in self.along_k
        if self.one_block:
            scales = inserted(self.product, expand(scales, [(1, memory_of(scales).get_shape()[0])]))
        return formed(self.product, ScaledOp(floats, scales, across=across))


def sole_writer(product: MatmulOp, value: SSAValue) -> Elementwise | None:
    """The elementwise operation that makes an operand, if it does so for the product alone."""
    memory = root(value)
    writers = users_of(memory) - {product}
    made = read_elementwise(*writers) if len(writers) == 1 and isinstance(memory.owner, memref.AllocOp) else None
    return made if made is not None and root(made.output) is memory else None


def _uncast(value: SSAValue) -> SSAValue:
    """A float before it was converted to other floats."""
    while isinstance(value.owner, arith.ExtFOp | arith.TruncFOp):
        value = value.owner.operands[0]
    return value


@rewrite_pattern
def fuse_block_scales(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Fuses the scales of blocks of 8-bit floats into the product that reads the scaled matrices."""
    sides = [None if any(op.forms) else ScaledOperand.of(op, value) for value in (op.a, op.b)]
    operands = [side for side in sides if side is not None]
    if not operands:
        return
    target, reasons = target_of(op), [side.objection() for side in operands]
    of_rows = [side.of_rows for side in operands]
    if any(of_rows) and (op.c is not None or (op.init is not None and op.init.value.data)):
        reasons.append("scales of rows are for sums that start from zero")
    if len(operands) < 2 or op.outer or op.epilogue is not None or op.a is op.b:
        reasons.append("it takes a product of two such matrices, with blocks that divide them")
    elif any(of_rows):
        if not all(of_rows) or target is None or target.sm < MIN_SM:
            reasons.append(f"both operands have scales of rows, for sm_{MIN_SM} or later")
    elif target is None or not any(row.a.name in FP8 and row.runs_on(target) for row in wgmma.rows()):
        reasons.append("warpgroups multiply them so, which the target does not have")
    if reason := next(filter(None, reasons), ""):
        remark(operands[0].made.op, BY, f"the product does not multiply 8-bit floats themselves: {reason}")
        return
    if all(of_rows):
        a, b = (side.made.inputs[side.floats] for side in operands)
        scales = [(side.made.inputs[side.scales], side.map_of(side.scales)) for side in operands]
        fused = with_scaled_sums(op, scales, a=a, b=b)
    else:
        a, b = (side.formed() for side in operands)
        fused = op.like(a=a, b=b)
    kinds = (element_type(side.made.inputs[side.floats]) for side in operands)
    fused.types = ArrayAttr([StringAttr(element_name(kind)) for kind in kinds])
    remark(op, BY, f"scaled operands are not rounded: sums{'' if all(of_rows) else ' of blocks'} are scaled instead")
    Rewriter.replace_op(op, with_functions(fused), [])
    for side in operands:
        side.erase()
    rewriter.has_done_action = True
