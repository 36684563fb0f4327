"""`warp-fp8-as-f16`: products of 8-bit floats as products of f16, on operands that are converted in registers.

A register of four neighbours along k becomes two of two. The order of the terms of a sum being free, as long as A and B
agree, the first two of each four belong to one f16 product and the others to the next: no element moves.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects import gpu
from xdsl.dialects.builtin import Float16Type, ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)

from ...dialect.isa.product import Shape
from ...dialect.isa.types import FP8
from ...dialect.layouts.layout import Bit, Layout
from ...dialect.warp.attributes import ScheduleAttr, fragment_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.elementwise import ConvertOp
from ...dialect.warp.mma import MmaOp


def halves(layout: Layout, k_axis: str) -> Layout:
    """The layout of f16 that holds what one of 8-bit elements does: the second bit of k says which of two products."""
    which = Bit(k_axis, 1)
    return Layout(layout.lane, (*(bit for bit in layout.element if bit != which), which))


class Fp8ProductAsF16(RewritePattern):
    """`warp.mma` of 8-bit floats: the operands as f16, and a product of an instruction of half the depth."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MmaOp, rewriter: PatternRewriter) -> None:
        operands = (op.a, "c"), (op.b, "r")
        if op.scales or any(fragment_of(value).element.name not in FP8 for value, _ in operands):
            return
        a, b = (self._widened(rewriter, value, axis) for value, axis in operands)
        m, n, k = Shape.parse(op.shape.data)
        rewriter.replace(op, MmaOp(Shape(m, n, k // 2), a, b, op.c))

    @staticmethod
    def _widened(rewriter: PatternRewriter, value: SSAValue, k_axis: str) -> SSAValue:
        wide = ConvertOp(value, Float16Type())
        ordered = ConvertLayoutOp.to(wide.fragment, halves(fragment_of(value).layout.data, k_axis))
        rewriter.insert([wide, ordered])
        return ordered.fragment


class Fp8AsF16Pass(ModulePass):
    """Multiplies 8-bit floats as f16 in kernels whose schedule says `fp8_as = f16`.

    On targets such as sm_90a, ptxas also converts the operands of these instructions to f16, but adds each product to
    the accumulators by separate instructions. With this pass, the f16 instructions accumulate. Without it, the kernel
    uses the PTX instructions for 8-bit floats.
    """

    name = "warp-fp8-as-f16"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in [o for o in op.walk() if isinstance(o, gpu.FuncOp)]:
            schedule = kernel.attributes.get(ScheduleAttr.name)
            if isinstance(schedule, ScheduleAttr) and schedule.data.operands.fp8_as != "none":
                patterns = GreedyRewritePatternApplier([Fp8ProductAsF16()])
                PatternRewriteWalker(patterns, apply_recursively=False).rewrite_region(kernel.body)
