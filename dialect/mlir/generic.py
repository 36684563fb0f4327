"""`linalg.generic` and `linalg.softmax` as MLIR prints them, the attributes of `linalg` that xDSL lacks, and operations
that are read as others: functions of IREE's `util`, and `tm_tensor.scan` of torch-mlir."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    TensorType,
    bf16,
    f16,
    i64,
)
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.dialects.math import FmaOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, BlockArgument, Dialect, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, operand_def, opt_result_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .affine import map_along, may_be_alike
from .words import defined, irdl_op_definition, words

if TYPE_CHECKING:
    from xdsl.parser import Parser
    from xdsl.printer import Printer


TYPE_FN = words("linalg.type_fn", "cast_signed cast_unsigned")
"""`#linalg.type_fn<cast_unsigned>`: integers are extended with zeros to the type of the result."""

HALVES = (f16, bf16)
"""Floats of 16 bits, which hold integers of 8, and whose sums are made in f32."""

KINDS = {str(kind.value): kind for kind in IteratorType}


@irdl_op_definition
class GenericOp(ops.GenericOp):
    """xDSL's `linalg.generic` with MLIR's syntax: attribute aliases, and results in parentheses. It is a subclass of
    xDSL's operation, so that patterns for that match it too."""

    name = "linalg.generic"

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        trait = parser.parse_optional_attribute()
        if not isinstance(trait, DictionaryAttr):
            parser.raise_error("expected indexing_maps and iterator_types, or an alias of them", start)
        attributes = dict(trait.data)
        maps, kinds = attributes.pop("indexing_maps", None), attributes.pop("iterator_types", None)
        doc, call = attributes.pop("doc", None), attributes.pop("library_call", None)
        if not isa(maps, ArrayAttr[AffineMapAttr]):
            parser.raise_error(f"expected indexing_maps to be a list of affine maps, got {maps or 'none'}", start)
        iterators = _iterators(kinds)
        if iterators is None:
            parser.raise_error(
                f"expected iterator_types to be a list of {', '.join(KINDS)}, got {kinds or 'none'}", start
            )
        inputs, outputs = (parse_operands(parser, keyword) for keyword in ("ins", "outs"))
        if parser.parse_optional_keyword("attrs"):
            parser.parse_punctuation("=")
            attributes |= parser.parse_optional_attr_dict()
        body = parser.parse_region()
        generic = cls(
            inputs,
            outputs,
            body,
            maps,
            iterators,
            parse_results(parser),
            doc if isinstance(doc, StringAttr) else None,
            call if isinstance(call, StringAttr) else None,
        )
        generic.attributes |= attributes
        return generic

    def verify_(self) -> None:
        super().verify_()
        check_yield(self.body.block, self.outputs)


def check_yield(body: Block, outputs: Sequence[SSAValue]) -> None:
    """Refuses a body that does not yield one element of each output."""
    made = [value.type for value in body.last_op.operands] if isinstance(body.last_op, YieldOp) else []
    wanted = [value.type.get_element_type() for value in outputs if isa(value.type, TensorOrMemory)]
    if made != wanted:
        raise VerifyException(
            f"expected the body to yield {', '.join(map(str, wanted))}, an element of each output, got "
            f"{', '.join(map(str, made)) or 'nothing'}"
        )


def _iterators(kinds: Attribute | None) -> ArrayAttr[IteratorTypeAttr] | None:
    """Iterators as attributes, or by their names; None for anything else."""
    if not isa(kinds, ArrayAttr[Attribute]):
        return None
    iterators: list[IteratorTypeAttr] = []
    for kind in kinds:
        if isinstance(kind, StringAttr) and kind.data in KINDS:
            kind = IteratorTypeAttr(KINDS[kind.data])
        if not isinstance(kind, IteratorTypeAttr):
            return None
        iterators.append(kind)
    return ArrayAttr(iterators)


def parse_operands(parser: Parser, keyword: str, *, optional: bool = True) -> Sequence[SSAValue]:
    """`keyword(%a, %b : type, type)`, or nothing where that is `optional`."""
    start = parser.pos
    if not optional:
        parser.parse_characters(keyword)
    elif not parser.parse_optional_characters(keyword):
        return ()
    parser.parse_punctuation("(")
    values = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    if len(values) != len(types):
        parser.raise_error(f"expected a type for each of {len(values)} operands, got {len(types)}", start)
    return parser.resolve_operands(values, types, start)


def parse_results(parser: Parser) -> Sequence[Attribute]:
    """Parses `-> type`, `-> (type, type)` or nothing."""
    if not parser.parse_optional_punctuation("->"):
        return ()
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type) if types is None else types


def print_operands(op: LinalgStructuredOperation, printer: Printer, *, results: bool = True) -> None:
    """`ins(%a : type) outs(%b : type) -> type`"""
    for keyword, values in (("ins", op.inputs), ("outs", op.outputs)):
        if values:
            printer.print_string(f" {keyword}(")
            printer.print_list(values, printer.print_ssa_value)
            printer.print_string(" : ")
            printer.print_list(values.types, printer.print_attribute)
            printer.print_string(")")
    if results and op.res:
        printer.print_string(" -> ")
        printer.print_list(op.res.types, printer.print_attribute)


# `linalg.softmax`, which xDSL 0.74 lacks.

TensorOrMemory: TypeAlias = TensorType[Attribute] | MemRefType[Attribute]


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """exp(x - max) / sum(exp(x - max)) along one dimension, on a tensor or memory of floating-point numbers::

    %y = linalg.softmax dimension(2) ins(%x : tensor<2x40x70xf32>) outs(%e : tensor<2x40x70xf32>)
           -> tensor<2x40x70xf32>
    linalg.softmax dimension(1) ins(%x : memref<40x70xf32>) outs(%y : memref<40x70xf32>)
    """

    name = "linalg.softmax"

    input = operand_def()
    output = operand_def()
    dimension = prop_def(IntegerAttr[i64])
    result = opt_result_def()

    assembly_format = (
        "attr-dict `dimension` `` `(` $dimension `)` `ins` `` `(` $input `:` type($input) `)` "
        "`outs` `` `(` $output `:` type($output) `)` (`->` type($result)^)?"
    )

    def verify_(self) -> None:
        kind, output, at = self.input.type, self.output.type, self.dimension.value.data
        if not isa(kind, TensorOrMemory) or not isinstance(kind.element_type, AnyFloat):
            raise VerifyException(f"expected a tensor or memory of floating-point numbers, got {kind}")
        alike = isa(output, TensorOrMemory) and may_be_alike(output.get_shape(), kind.get_shape())
        if type(output) is not type(kind) or not alike:
            raise VerifyException(f"expected an output of the shape of the input {kind}, got {output}")
        if not 0 <= at < kind.get_num_dims():
            raise VerifyException(f"expected a dimension of 0 to {kind.get_num_dims() - 1}, got {at}")
        if [r.type for r in self.results] != ([output] if isinstance(kind, TensorType) else []):
            raise VerifyException("expected one result of the output's type on tensors, and none on memory")


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
    both = _may_contract(op) and _may_contract(truncated)
    return truncated.input if both and truncated.input.type == op.result.type else None


def _may_contract(op: Operation) -> bool:
    flags = op.properties.get("fastmath")
    return isinstance(flags, arith.FastMathFlagsAttr) and FastMathFlag.ALLOW_CONTRACT in flags.data


def may_scale_sums(op: Operation) -> bool:
    """Whether a rounded multiple of a factor of a product may be left out, and the sum be multiplied instead:
    `fastmath<contract>` or `fastmath<reassoc>`."""
    flags = op.properties.get("fastmath")
    return _may_contract(op) or (isinstance(flags, arith.FastMathFlagsAttr) and FastMathFlag.REASSOC in flags.data)


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
            return _product([total.rhs if total.lhs is start else total.lhs], block, zeros)
        case arith.SubfOp() | arith.SubiOp() if total.lhs is start:
            return _product([total.rhs], block, zeros, negated=True)
        case FmaOp() if total.c is start:
            return _product([total.a, total.b], block, zeros)
        case _:
            return None


def _product(
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
        elif _is_weight(value, block):
            weights.append(value)
        else:
            return None
    if len(operands) != 2 or any(factor.argument == len(block.args) - 1 for factor, _ in operands):
        return None
    (a, first), (b, second) = operands
    return Weighted((a, b), tuple(weights), negated, first and second)


def _is_weight(value: SSAValue, block: Block) -> bool:
    """Whether a value is the same for every element: a constant, or a number from outside of the body."""
    owner = value.owner
    outside = owner is not block and not (isinstance(owner, Operation) and owner.parent is block)
    return isinstance(owner, arith.ConstantOp) or outside


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


# Source: IREE, `compiler/src/iree/compiler/Dialect/Util/IR/UtilOps.td`.


class ReadAsOther(IRDLOperation):
    """An operation whose parser makes another one."""

    def print(self, printer: Printer) -> None:
        """Nothing is left of this operation to print."""


def _read_as(name: str, other: type[IRDLOperation], summary: str) -> type[ReadAsOther]:
    """An operation with the text of another one."""

    def parse(_: type[ReadAsOther], parser: Parser) -> IRDLOperation:
        return other.parse(parser)

    return defined(ReadAsOther, name, summary, parse=classmethod(parse))


UTIL = Dialect(
    "util",
    [
        _read_as("util.func", func.FuncOp, "A function of the host: `util.func public @main(%x: f32) {...}`."),
        _read_as("util.return", func.ReturnOp, "The terminator of a `util.func`."),
    ],
    [],
)

# Source: torch-mlir, `include/torch-mlir-dialects/Dialect/TMTensor/IR/TMTensorOps.td`.


@irdl_op_definition
class ScanOp(ReadAsOther):
    """What rows add up to so far, `%y, %last = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<9x37xf32>)
    outs(%y0, %last0 : tensor<9x37xf32>, tensor<9xf32>) {...} -> tensor<9x37xf32>, tensor<9xf32>`. It is read as a
    `linalg.generic` that goes along the dimension, and writes an element in each turn."""

    name = "tm_tensor.scan"

    @classmethod
    def parse(cls, parser: Parser) -> GenericOp:  # pyright: ignore[reportIncompatibleMethodOverride]
        place = parser.pos
        parser.parse_keyword("dimension")
        with parser.in_parens():
            dimension = parser.parse_integer()
        parser.parse_keyword("inclusive")
        with parser.in_parens():
            inclusive = parser.parse_boolean()
        inputs, outputs = (parse_operands(parser, keyword, optional=False) for keyword in ("ins", "outs"))
        body = parser.parse_region()
        kind, end = inputs[0].type, body.block.last_op
        if not isa(kind, TensorType[Attribute]) or len(outputs) != 2 or len(body.block.args) != 2 or end is None:
            parser.raise_error("expected one tensor in ins(...), two in outs(...), and a body of two elements", place)
        rank = kind.get_num_dims()
        so_far = body.block.args[1]
        body.block.insert_arg(kind.element_type, 1)
        end.operands = [end.operands[0] if inclusive else so_far, end.operands[0]]
        loops = [loop for loop in range(rank) if loop != dimension]
        maps = [map_along(rank, each) for each in (range(rank), range(rank), loops)]
        kinds = [IteratorTypeAttr.parallel() if loop in loops else IteratorTypeAttr.reduction() for loop in range(rank)]
        results = parse_results(parser)
        return GenericOp(inputs, outputs, body, ArrayAttr(map(AffineMapAttr, maps)), ArrayAttr(kinds), results)


TM_TENSOR = Dialect(
    "tm_tensor", [ScanOp, _read_as("tm_tensor.yield", YieldOp, "The end of a body: `tm_tensor.yield %sum : f32`.")], []
)
