"""Loops: a structured operation of `linalg` as a nest, and the product that its body adds; affine maps and expressions
as sums of loops, which xDSL 0.74 lacks, and the strides of memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    ShapedType,
    bf16,
    f16,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, IndexOp, YieldOp
from xdsl.dialects.math import FmaOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)

FIXED = -1
"""Where `loops_of` has no loop. Symbols are the numbers below it."""


def loops_of(map_: AffineMap) -> tuple[int, ...]:
    """The loops that a map's results run along; `FIXED` for anything but a loop or a symbol alone."""
    symbols: dict[AffineExpr, int] = {e: FIXED - 1 - e.position for e in map_.results if isinstance(e, AffineSymExpr)}
    return tuple(e.position if isinstance(e, AffineDimExpr) else symbols.get(e, FIXED) for e in map_.results)


def may_be_alike(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Whether sizes, -1 of which are unknown, may be the same."""
    return len(shape) == len(other) and all(a == b or min(a, b) < 0 for a, b in zip(shape, other, strict=True))


def map_along(loops: int, along: Iterable[int]) -> AffineMap:
    """A map of `loops` loops. Each result is the loop that `along` names; it is 0 for `FIXED`."""
    return AffineMap(loops, 0, tuple(AffineConstantExpr(0) if loop == FIXED else AffineDimExpr(loop) for loop in along))


def is_projection(map_: AffineMap) -> bool:
    """Whether each result runs along a loop of its own, or is always 0."""
    loops = [loop for loop in loops_of(map_) if loop != FIXED]
    return len(set(loops)) == len(loops) and map_ == map_along(map_.num_dims, loops_of(map_))


def is_plain(map_: AffineMap) -> bool:
    """Whether each result runs along a loop of its own."""
    loops = loops_of(map_)
    return FIXED not in loops and len(set(loops)) == len(loops)


def without_symbols(map_: AffineMap) -> tuple[AffineExpr, ...]:
    """A map's results, with its symbols as dimensions behind its own. xDSL 0.74 rebuilds no product of dimensions."""
    if not map_.num_symbols:
        return map_.results
    dims = [AffineDimExpr(number) for number in range(map_.num_dims + map_.num_symbols)]
    return tuple(expr.replace_dims_and_symbols(dims[: map_.num_dims], dims[map_.num_dims :]) for expr in map_.results)


LinearForm: TypeAlias = tuple[dict[int, int], int]
"""What a sum multiplies each of its loops with, and what it adds."""


def linear(expr: AffineExpr) -> LinearForm | None:
    """An expression as a sum of loops times constants; None if it is anything else."""
    match expr:
        case AffineDimExpr():
            return {expr.position: 1}, 0
        case AffineConstantExpr():
            return {}, expr.value
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add | AffineBinaryOpKind.Mul):
            left, right = linear(expr.lhs), linear(expr.rhs)
            if left is None or right is None:
                return None
            return _sum(left, right) if expr.kind == AffineBinaryOpKind.Add else _product(left, right)
        case _:
            return None


def _sum(left: LinearForm, right: LinearForm) -> LinearForm:
    loops = {loop: left[0].get(loop, 0) + right[0].get(loop, 0) for loop in {**left[0], **right[0]}}
    return loops, left[1] + right[1]


def _product(left: LinearForm, right: LinearForm) -> LinearForm | None:
    if left[0] and right[0]:
        return None
    (loops, offset), by = (left, right[1]) if left[0] else (right, left[1])
    return {loop: factor * by for loop, factor in loops.items()}, offset * by


def expression_of(form: LinearForm) -> AffineExpr:
    """A sum of loops times constants as an expression."""
    total: AffineExpr = AffineConstantExpr(form[1])
    for loop, factor in form[0].items():
        term = AffineDimExpr(loop) if factor == 1 else AffineDimExpr(loop) * factor
        total = term if total == AffineConstantExpr(0) else total + term
    return total


def windows(map_: AffineMap, *, padded: bool = False) -> list[LinearForm] | None:
    """The linear forms of a map's results; None for a map with another result, or one that begins below 0 unless what
    it runs over is `padded`."""
    forms = [linear(expr) for expr in map_.results]
    linears = [form for form in forms if form is not None]
    return None if len(linears) < len(forms) or (not padded and any(first < 0 for _, first in linears)) else linears


def runs_backwards(map_: AffineMap) -> bool:
    """Whether a result of a map becomes less along a loop."""
    return any(min(by.values(), default=0) < 0 for by, _ in windows(map_) or ())


def steps_of(map_: AffineMap, strides: Sequence[int | None]) -> tuple[list[int | None], int | None]:
    """Elements from one index of each loop to the next, and those before the first, of memory with these strides."""
    steps: list[int | None] = [0] * map_.num_dims
    first: int | None = 0
    for (by, offset), stride in zip(windows(map_, padded=True) or (), strides, strict=True):
        for loop, factor in by.items():
            before = steps[loop]
            steps[loop] = (
                before if not factor else None if stride is None or before is None else before + factor * stride
            )
        first = first if not offset else None if stride is None or first is None else first + offset * stride
    return steps, first


def passed(map_: AffineMap, sizes: Sequence[int], shape: Sequence[int]) -> int | None:
    """The first dimension of memory of a shape whose end, or start, loops of these sizes would pass; None if they pass
    none. Sizes that are not known, below 0, pass nothing."""
    for dimension, ((by, offset), size) in enumerate(zip(windows(map_) or (), shape, strict=True)):
        lengths = {loop: sizes[loop] for loop in by}
        if size < 0 or min(lengths.values(), default=1) < 1:
            continue
        ways = [factor * (lengths[loop] - 1) for loop, factor in by.items()]
        first, last = (offset + sum(end(0, extent) for extent in ways) for end in (min, max))
        if first < 0 or last >= size:
            return dimension
    return None


def strides_of(memory: MemRefType[Attribute]) -> tuple[int | None, ...] | None:
    """The strides in elements, None for dynamic ones. None for a layout that is not strided."""
    strides = memory.get_strides()
    return None if strides is None else tuple(strides)


def dynamic_parts(memory: MemRefType[Attribute]) -> tuple[list[int], list[int]]:
    """The dimensions whose sizes are dynamic, and those whose strides are: both are passed to a kernel with the
    address. The strides of memory without a layout follow from its sizes."""
    sizes = [i for i, size in enumerate(memory.get_shape()) if size < 0]
    if isinstance(memory.layout, NoneAttr):
        return sizes, []
    return sizes, [i for i, stride in enumerate(strides_of(memory) or ()) if stride is None]


class NestAccess(NamedTuple):
    """An operand, how the loops index it, and the argument of the body that is its element."""

    value: SSAValue
    map: AffineMap
    element: SSAValue

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops that its dimensions run along; `FIXED` for anything but a loop alone."""
        return loops_of(self.map)


class Combination(NamedTuple):
    """The operation of a body that combines a value with the previous value of its output, and that value."""

    by: Operation
    value: SSAValue


class Nest(NamedTuple):
    """A loop nest: the elements that it reads and writes for each index of its loops, and the body that computes the
    written elements from the read ones. Outputs are read too. `summed` are the numbers of the reduction loops."""

    loops: int
    summed: tuple[int, ...]
    reads: tuple[NestAccess, ...]
    writes: tuple[NestAccess, ...]
    body: Block

    @staticmethod
    def of(op: LinalgStructuredOperation) -> Nest:
        """The nest of an operation."""
        maps, body = [attribute.data for attribute in op.get_indexing_maps()], op.body.block
        accesses = tuple(map(NestAccess, op.operands, maps, body.args))
        kinds = [kind.data for kind in op.get_iterator_types()]
        summed = tuple(loop for loop, kind in enumerate(kinds) if kind != IteratorType.PARALLEL)
        first = len(op.inputs)
        return Nest(len(kinds), summed, accesses[:first], accesses[first:], body)

    @property
    def accesses(self) -> tuple[NestAccess, ...]:
        """The reads, then the writes."""
        return (*self.reads, *self.writes)

    @property
    def used(self) -> list[NestAccess]:
        """The accesses whose elements the body uses."""
        return [access for access in self.accesses if access.element.uses and is_inside(access.element, self.body)]

    @property
    def maps(self) -> list[AffineMap]:
        """The maps of all accesses."""
        return [access.map for access in self.accesses]

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values that the body yields, one for each output."""
        end = self.body.last_op
        return () if end is None else tuple(end.operands)

    @property
    def is_elementwise(self) -> bool:
        """Whether each output element is computed once: no loop is reduced, and every loop indexes every output."""
        return not self.summed and all(sorted(access.loops) == list(range(self.loops)) for access in self.writes)

    @property
    def combination(self) -> Combination | None:
        """How the body combines a new value with the previous value of the only output. None if it does not, or if it
        uses the previous value more than once."""
        if len(self.writes) != 1 or len(self.yielded) != 1 or not isinstance(op := self.yielded[0].owner, Operation):
            return None
        old = self.writes[0].element
        others = [value for value in op.operands if value is not old]
        once = len(others) == 1 and len(op.operands) == 2 and old.uses.get_length() == 1
        return Combination(op, others[0]) if once else None

    @property
    def indices(self) -> dict[SSAValue, int]:
        """The indices that the body uses, with their loops."""
        return {op.result: op.dim.value.data for op in self.body.ops if isinstance(op, IndexOp) and op.result.uses}

    @property
    def captured(self) -> tuple[SSAValue, ...]:
        """The values outside of the nest that the body uses, without constants."""
        used = dict.fromkeys(value for op in self.body.ops for value in op.operands)
        return tuple(value for value in used if not is_inside(value, self.body) and not is_constant(value))

    def along(self, loop: int) -> tuple[NestAccess, int, int] | None:
        """An access that has a dimension along this loop alone, the number of that dimension, and its size; None if
        there is no such access. Accesses of known size come first."""
        accesses = [
            (access, at := access.loops.index(loop), access.value.type.get_shape()[at])
            for access in self.accesses
            if loop in access.loops and isinstance(access.value.type, ShapedType)
        ]
        return next((each for each in accesses if each[2] >= 0), accesses[0] if accesses else None)


def is_inside(value: SSAValue, block: Block) -> bool:
    """Whether a value is an argument of a block, or a result of an operation in it."""
    return (value.owner if isinstance(value.owner, Block) else value.owner.parent) is block


def is_constant(value: SSAValue) -> bool:
    """Whether a value is a constant."""
    return isinstance(value.owner, arith.ConstantOp)


def generic(
    op: Operation,
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    body: Region,
    maps: Sequence[AffineMap],
    summed: Collection[int] = (),
    results: Sequence[Attribute] = (),
) -> GenericOp:
    """A `linalg.generic` with the location of `op`. `summed` are the reduction loops."""
    kinds = IteratorTypeAttr.parallel(), IteratorTypeAttr.reduction()
    iterators = ArrayAttr([kinds[loop in summed] for loop in range(maps[-1].num_dims)])
    made = GenericOp(inputs, outputs, body, ArrayAttr(map(AffineMapAttr, maps)), iterators, results)
    made.location = op.location
    return made


# What a body multiplies, adds, and converts.

HALVES = (f16, bf16)
"""Floats of 16 bits, which hold integers of 8, and whose sums are made in f32."""

EXTENSIONS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)
CONVERSIONS = (arith.SIToFPOp, arith.UIToFPOp)


class Factor(NamedTuple):
    """One factor of a product: which argument of the body, and whether it is extended with zeros."""

    argument: int
    unsigned: bool = False


def product_body(types: Sequence[Attribute], *, unsigned: bool = False) -> Region:
    """`yield c + convert(a) * convert(b)` of elements a, b and c of these types; with two more behind a and b, their
    zero points, `yield c + (convert(a) - convert(x)) * (convert(b) - convert(y))`."""
    block = Block(arg_types=types)
    *elements, c = block.args
    with ImplicitBuilder(block):
        a, b, *zeros = (converted(value, c.type, unsigned=unsigned) for value in elements)
        if zeros:
            a, b = arithmetic("sub", a, zeros[0]), arithmetic("sub", b, zeros[1])
        YieldOp(arithmetic("add", c, arithmetic("mul", a, b)))
    return Region(block)


ARITHMETIC = {
    "add": (arith.AddfOp, arith.AddiOp),
    "sub": (arith.SubfOp, arith.SubiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
}
"""Operations on two floats, and on two integers."""


def arithmetic(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    """A sum, difference or product, as floats or as integers, where an `ImplicitBuilder` stands."""
    of_floats, of_integers = ARITHMETIC[name]
    return (of_floats if isinstance(a.type, AnyFloat) else of_integers)(a, b).result


def number_of(kind: Attribute, number: float = 0) -> arith.ConstantOp:
    """A number of a type of floats or integers."""
    if isinstance(kind, AnyFloat):
        return arith.ConstantOp(FloatAttr(number, kind))
    return arith.ConstantOp(IntegerAttr(int(number), kind, truncate_bits=True))  # pyright: ignore[reportArgumentType, reportCallIssue]


def converted(value: SSAValue, kind: Attribute, *, unsigned: bool = False) -> SSAValue:
    """A value converted to another type, where an `ImplicitBuilder` stands; integers may be `unsigned`."""
    source = value.type
    if source == kind:
        return value
    narrower = getattr(kind, "bitwidth", 0) < getattr(source, "bitwidth", 0)
    match source, kind:
        case IntegerType(), IntegerType():
            cast = arith.TruncIOp if narrower else arith.ExtUIOp if unsigned else arith.ExtSIOp
        case IntegerType(), _:
            cast = arith.UIToFPOp if unsigned else arith.SIToFPOp
        case _, IntegerType():
            cast = arith.FPToUIOp if unsigned else arith.FPToSIOp
        case _:
            cast = arith.TruncFOp if narrower else arith.ExtFOp
    return cast.build(operands=[value], result_types=[kind]).results[0]


def contracted(op: Operation) -> SSAValue | None:
    """The operand of a truncation that an extension may use directly: both have `fastmath<contract>`, and the types
    agree, as in MLIR's folding. None where the rounding is kept."""
    if not isinstance(op, arith.ExtFOp) or not isinstance(truncated := op.input.owner, arith.TruncFOp):
        return None
    both = all(allows(one.properties.get("fastmath"), "contract") for one in (op, truncated))
    return truncated.input if both and truncated.input.type == op.result.type else None


def allows(flags: Attribute | None, *words: str) -> bool:
    """Whether flags of `fastmath` have one of these, such as `contract`."""
    return isinstance(flags, arith.FastMathFlagsAttr) and not flags.data.isdisjoint(words)


def may_scale_sums(op: Operation) -> bool:
    """Whether a rounded multiple of a factor of a product may be left out, and the sum be multiplied instead:
    `fastmath<contract>` or `fastmath<reassoc>`."""
    return allows(op.properties.get("fastmath"), "contract", "reassoc")


class Weighted(NamedTuple):
    """The body `c + w * extend(a) * extend(b)`: its factors, in the order in which they are multiplied, and its weight.
    The weight is the product of `weights`, numbers from outside of the body or constants in it, and -1 if `negated`.
    With `converted`, both factors are integers that are converted to c's type."""

    factors: tuple[Factor, Factor]
    weights: tuple[SSAValue, ...] = ()
    negated: bool = False
    converted: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is `c + extend(a) * extend(b)`."""
        return not (self.weights or self.negated or self.converted)


def factors(block: Block, zeros: Collection[int] = ()) -> tuple[Factor, Factor] | None:
    """The two factors of a body that adds a product to its last argument, in the order of the multiplication; None for
    any other body. Arguments in `zeros` are known to be 0."""
    body = weighted(block, zeros)
    return body.factors if body is not None and body.is_plain else None


def weighted(block: Block, zeros: Collection[int] = ()) -> Weighted | None:
    """The product that a body adds to its last argument, or subtracts from it; None for any other body. `zeros` are the
    arguments that are 0."""
    end = block.last_op
    if not isinstance(end, YieldOp) or len(end.operands) != 1 or not block.args:
        return None
    total, start = end.operands[0].owner, block.args[-1]
    match total:
        case arith.AddfOp() | arith.AddiOp() if start in (total.lhs, total.rhs):
            return _product_of([total.rhs if total.lhs is start else total.lhs], block, zeros)
        case arith.SubfOp() | arith.SubiOp() if total.lhs is start:
            return _product_of([total.rhs], block, zeros, negated=True)
        case FmaOp() if total.c is start:
            return _product_of([total.a, total.b], block, zeros)
        case _:
            return None


def _product_of(
    values: Sequence[SSAValue], block: Block, zeros: Collection[int], *, negated: bool = False
) -> Weighted | None:
    """The product of several values, which may be products themselves."""
    operands: list[tuple[Factor, bool]] = []
    weights: list[SSAValue] = []
    rest = list(values)
    while rest:
        value = rest.pop(0)
        owner = value.owner
        if isinstance(owner, arith.MulfOp | arith.MuliOp):
            rest = [owner.lhs, owner.rhs, *rest]
        elif isinstance(owner, arith.NegfOp):
            negated, rest = not negated, [owner.operand, *rest]
        elif (factor := _factor(value, block, zeros)) is not None:
            operands.append(factor)
        elif is_constant(value) or not is_inside(value, block):  # the same for every element
            weights.append(value)
        else:
            return None
    if len(operands) != 2 or any(factor.argument == len(block.args) - 1 for factor, _ in operands):
        return None
    (a, first), (b, second) = operands
    return Weighted((a, b), tuple(weights), negated, first and second)


def _factor(value: SSAValue, block: Block, zeros: Collection[int] = ()) -> tuple[Factor, bool] | None:
    """The argument of a factor, and whether it is an integer converted to a float. An integer may have one kind of
    extension only."""
    kinds: set[str] = set()
    if isinstance(owner := value.owner, arith.ExtFOp) and _is_exact(owner.input.owner):
        value = owner.input
    converted = isinstance(value.owner, CONVERSIONS)
    if isinstance(cast := value.owner, CONVERSIONS):
        kinds |= {(arith.ExtUIOp if isinstance(cast, arith.UIToFPOp) else arith.ExtSIOp).name}
        value = cast.input
    if isinstance(shifted := value.owner, arith.SubiOp):
        zero = _factor(shifted.rhs, block)
        value = shifted.lhs if zero is not None and zero[0].argument in zeros else value
    while isinstance(owner := value.owner, EXTENSIONS):
        kinds.add(owner.name)
        value = owner.input
    if not isinstance(value, BlockArgument) or value.owner is not block or len(kinds) > 1:
        return None
    return Factor(value.index, arith.ExtUIOp.name in kinds), converted


def _is_exact(op: Operation | Block) -> bool:
    """Whether it converts an integer of at most 8 bits, which floats of 16 hold."""
    if not isinstance(op, CONVERSIONS) or not isinstance(kind := op.input.type, IntegerType):
        return False
    return kind.bitwidth <= 8 and op.result.type in HALVES
