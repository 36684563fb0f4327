"""`warp.gelu`: a gelu of one element, in a region on elements."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr, UnitAttr, f32
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .op_shapes import flag

GELUS = ("tanh", "erf")
"""How a gelu may be written."""


@irdl_op_definition
class GeluOp(IRDLOperation):
    """x times the normal distribution function of x, exactly or as `tanh` approximates it::

        %y = warp.gelu "erf" %x : f32      // x (1 + erf(x / sqrt(2))) / 2
        %y = warp.gelu "tanh" %x : f32     // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2

    With `approximate`, the error is at most 1e-3 of |x|.

    `warp-raise-gelu` replaces the operations of a gelu by this operation. D. Hendrycks and K. Gimpel, "Gaussian error
    linear units (GELUs)", 2016.
    """

    name = "warp.gelu"

    by = prop_def(StringAttr)
    approximate = opt_prop_def(UnitAttr)
    x = operand_def(f32)
    y = result_def(f32)

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$by $x attr-dict `:` type($y)"

    def __init__(self, by: str, x: SSAValue, *, approximate: bool = False):
        super().__init__(
            operands=[x],
            properties={"by": StringAttr(by), "approximate": flag(approximate)},
            result_types=[f32],
        )

    def verify_(self) -> None:
        if self.by.data not in GELUS:
            raise VerifyException(f'expected a gelu by {" or ".join(GELUS)}, got "{self.by.data}"')
