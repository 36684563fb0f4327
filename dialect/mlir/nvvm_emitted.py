"""Operations of `nvvm` that kernels of this project have. They stand apart from the dialect's other 120, which are made
of tables, so that a product is compiled without these."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, i1, i32
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict, opt_operand_def, prop_def, result_def

from .upstream import declared
from .words import BareWordAttr, words


class NvvmOp(IRDLOperation):
    """An operation whose properties are written in its dictionary of attributes."""

    irdl_options = (ParsePropInAttrDict(),)

    PTX: ClassVar[str] = ""


def operation(name: str, summary: str, ptx: str, text: str, **fields: object) -> type[NvvmOp]:
    """An operation by its name, what it does, its line of `nvvm_types`, its text in MLIR, and its fields."""
    made = declared(NvvmOp, f"nvvm.{name}", text, summary, **fields)
    made.PTX = ptx
    return made


REGISTER_ACTION = words("nvvm.action", "increase decrease", BareWordAttr)

INCREASE, DECREASE = map(REGISTER_ACTION.of, ("increase", "decrease"))
"""What `nvvm.setmaxregister` does with the registers of a warpgroup: waits for more, or gives some back."""

RegistersOp = operation(
    "setmaxregister",
    "Takes registers from a warpgroup, or gives it some.",
    "setmaxnreg.{action/increase=inc/decrease=dec}.sync.aligned.u32 {regCount}",
    "$action $regCount attr-dict",
    regCount=prop_def(IntegerAttr[i32]), action=prop_def(REGISTER_ACTION),
)  # fmt: skip

ElectOp = operation(
    "elect.sync",
    "Whether this lane is the one of its warp that is chosen.",
    "elect.sync _|pred, membermask=0xFFFFFFFF",
    "($membermask^)? attr-dict `->` type($pred)",
    membermask=opt_operand_def(i32), pred=result_def(i1),
)  # fmt: skip
"""In an `scf.if` of what it returns, one lane of a warp is alone: it arrives, copies and waits, and the warp meets
again behind it."""
