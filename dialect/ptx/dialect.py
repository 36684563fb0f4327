"""The `ptx` dialect: what one thread executes."""

from __future__ import annotations

from xdsl.ir import Dialect

from .declarations import RegOp, VarOp
from .instruction import InstOp
from .ops import CommentOp, DirectiveOp, FuncOp, LabelOp, ModuleOp, ScopeOp
from .types import ParamAttr, RegisterType

PTX = Dialect(
    "ptx",
    [ModuleOp, FuncOp, RegOp, VarOp, LabelOp, CommentOp, DirectiveOp, ScopeOp, InstOp],
    [RegisterType, ParamAttr],
)
