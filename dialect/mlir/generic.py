"""`linalg.generic` and `linalg.softmax` as MLIR prints them, `linalg` without its convolutions, and operations that are
read as others: functions of IREE's `util`, and `tm_tensor.scan` of torch-mlir."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.dialects.linalg import Linalg, ops
from xdsl.dialects.linalg.abstract_ops import ConvOperation, ElementwiseOperation, PoolingOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, operand_def, opt_result_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .affine import map_along, may_be_alike
from .contraction import CONTRACTIONS, TYPE_FN, parse_operands, parse_results
from .upstream import extended
from .words import defined, irdl_op_definition

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


# `linalg` but for what is loaded when it is met, elementwise operations and convolutions: xDSL's dialect, and the
# operations and forms of MLIR that it lacks.

_ELSEWHERE = (ElementwiseOperation, ops.ReduceOp, ConvOperation, PoolingOperation)
_HERE = [op for op in Linalg.operations if op is ops.CopyOp or not issubclass(op, _ELSEWHERE)]

LINALG_BASE = extended(
    Dialect("linalg", _HERE, list(Linalg.attributes)), [GenericOp, *CONTRACTIONS, SoftmaxOp], (TYPE_FN,)
)

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
