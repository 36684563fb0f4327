"""Regions that say what happens to one element: the bodies of `warp.map` and `warp.pointwise`.

Such a region has one block. It takes an element of each input, does `arith` and `math` on scalars, and ends with
`warp.yield` of the element of the result. It sees nothing from outside: constants are made inside, and everything else
is an input.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, traits_def
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    RegionVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from ..effects import is_pure


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a region on elements, and yields the element of the result: `warp.yield %y : bf16`."""

    name = "warp.yield"

    element = operand_def()

    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$element attr-dict `:` type($element)"

    def __init__(self, element: SSAValue):
        super().__init__(operands=[element])


def yielded(region: Region) -> SSAValue:
    """The element that a verified region yields."""
    return _terminator(region).element


def _terminator(region: Region) -> YieldOp:
    last = region.block.last_op if len(region.blocks) == 1 else None
    if not isinstance(last, YieldOp):
        raise VerifyException("expected one block that ends with warp.yield")
    return last


def verify_elements(region: Region, inputs: Sequence[Attribute], result: Attribute) -> None:
    """Checks a region on elements of these types.

    Raises:
        VerifyException: if it takes or yields others, or does more than compute.
    """
    end, expected = _terminator(region), list(inputs)
    got = [argument.type for argument in region.block.args]
    if got != expected:
        raise VerifyException(f"expected a region on elements ({_listed(expected)}), got ({_listed(got)})")
    if end.element.type != result:
        raise VerifyException(f"expected warp.yield of an element of type {result}, got {end.element.type}")
    for op in region.block.ops:
        if op is not end and not only_computes(op):
            raise VerifyException(f"expected arithmetic on elements and warp.yield, got {op.name}")


def only_computes(op: Operation) -> bool:
    """Whether an operation makes values from values, and does nothing else."""
    return bool(op.results) and not op.regions and is_pure(op)


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))


@irdl_custom_directive
class ElementRegion(CustomDirective):
    """The text of a region on elements: `(%x: f32, %y: f16) {`, the body, and `}`."""

    body: RegionVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.body.set(state, parse_elements(parser))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        print_elements(printer, self.body.get(op))


def print_elements(printer: Printer, region: Region) -> None:
    """Prints `(%x : f32, %y : f16) {`, the body, and `}`."""
    with printer.in_parens():
        printer.print_list(region.block.args, printer.print_block_argument)
    printer.print_string(" ")
    printer.print_region(region, print_entry_block_args=False)


def parse_elements(parser: Parser) -> Region:
    """Reads what `print_elements` prints."""
    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
    return parser.parse_region(arguments)


def is_approximate(op: Operation) -> bool:
    """Whether an operation of a region may be approximate: `fastmath<afn>`."""
    flags = op.properties.get("fastmath")
    return isinstance(flags, FastMathFlagsAttr) and FastMathFlag.APPROX_FUNC in flags.data
