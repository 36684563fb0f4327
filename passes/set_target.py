"""`warp-set-target`: records the GPU that a module is compiled for."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ..dialect.isa.targets import UnknownTargetError, target
from ..dialect.warp.attributes import TargetAttr


@dataclass(frozen=True)
class SetTargetPass(ModulePass):
    """Sets `warp.target` on the module; later passes and verifiers read it there."""

    name = "warp-set-target"

    arch: str

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            TargetAttr(target(self.arch)).set_on(op)
        except UnknownTargetError as e:
            raise PassFailedException(str(e)) from None
