"""A dialect with one operation, a pass, a pattern, and a model of schedules."""

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.arith import NegfOp
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.universe import Universe

from warploom.passes.patterns import PatternPass


@irdl_op_definition
class TwiceOp(IRDLOperation):
    """Two times a number."""

    name = "toy.twice"
    x = operand_def(f32)
    y = result_def(f32)
    assembly_format = "$x attr-dict `:` type($x) `->` type($y)"


class DoubleNegation(RewritePattern):
    """-(-x) is x."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: NegfOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.operand.owner, NegfOp):
            rewriter.replace(op, [], [inner.operand])


class DoubleNegationPass(PatternPass):
    """Drops two negations, one of the other. It is a pass of patterns."""

    name = "toy-negations"
    patterns = (DoubleNegation,)


@dataclass(frozen=True)
class NamePass(ModulePass):
    """Names a module."""

    name = "toy-name"
    called: str = "toy"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from xdsl.dialects.builtin import StringAttr

        op.sym_name = StringAttr(self.called)


def narrow(op: Operation, target: object) -> Mapping[str, object]:
    """Small tiles, for whatever product."""
    return {"cta": (16, 16, 32), "stages": 1}


UNIVERSE = Universe(
    all_dialects={"toy": lambda: Dialect("toy", [TwiceOp])},
    all_passes={"toy-negations": lambda: DoubleNegationPass, "toy-name": lambda: NamePass},
)
