"""`warp-set-target`: records the GPU that a module is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ..dialect.isa.targets import UnknownTargetError, target
from ..dialect.warp.attributes import TargetAttr, target_of
from .diagnostics import remark
from .pipeline import DEFAULT_TARGET


@dataclass(frozen=True)
class SetTargetPass(ModulePass):
    """Sets `warp.target` on the module. Later passes and verifiers read the target there.

    Without `arch`, a module keeps its target; the target of a module that has none is sm_90a.
    """

    name = "warp-set-target"

    arch: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        held = target_of(op)
        if self.arch is None and held is not None:
            return
        try:
            asked = target(self.arch or DEFAULT_TARGET)
        except UnknownTargetError as e:
            raise PassFailedException(str(e)) from None
        if held not in (None, asked):
            remark(op, self.name, f"the module says {held}; it is compiled for {asked}, which was asked for")
        TargetAttr(asked).set_on(op)
