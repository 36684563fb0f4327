"""Operations of front ends that are read as others: functions of IREE's `util`, and `tm_tensor.scan` of torch-mlir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects import func
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, TensorType
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import IRDLOperation
from xdsl.utils.hints import isa

from .affine import map_along
from .generic import GenericOp, parse_operands, parse_results
from .words import defined, irdl_op_definition

if TYPE_CHECKING:
    from xdsl.parser import Parser
    from xdsl.printer import Printer

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
