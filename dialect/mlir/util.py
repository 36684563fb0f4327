"""`util` of IREE as far as its input conversion prints it: functions and returns, which are read as those of `func`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects import func
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition

if TYPE_CHECKING:
    from xdsl.parser import Parser
    from xdsl.printer import Printer

# Source: IREE, `compiler/src/iree/compiler/Dialect/Util/IR/UtilOps.td`.


@irdl_op_definition
class HostFuncOp(IRDLOperation):
    """A function of the host: `util.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {...}`."""

    name = "util.func"

    @classmethod
    def parse(cls, parser: Parser) -> func.FuncOp:  # pyright: ignore[reportIncompatibleMethodOverride]
        return func.FuncOp.parse(parser)

    def print(self, printer: Printer) -> None:
        """Nothing is left of this operation to print."""


@irdl_op_definition
class HostReturnOp(IRDLOperation):
    """The terminator of a `util.func`."""

    name = "util.return"

    @classmethod
    def parse(cls, parser: Parser) -> func.ReturnOp:  # pyright: ignore[reportIncompatibleMethodOverride]
        return func.ReturnOp.parse(parser)

    def print(self, printer: Printer) -> None:
        """Nothing is left of this operation to print."""


UTIL = Dialect("util", [HostFuncOp, HostReturnOp], [])
