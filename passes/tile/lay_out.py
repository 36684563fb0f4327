"""`warp-lay-out`: operands that lie as a schedule asks, by operations of `linalg` around the product.

A and B that do not lie along K are transposed first, the `transpose` of a schedule::

    %Bt = memref.alloc;  linalg.transpose ins(%B) outs(%Bt);  warp.matmul %A, %Bt ... maps [(n, k)]

A D whose rows are no multiples of 16 bytes is made in rows that are, and copied, `padded`::

    %S = memref.alloc;  %part = memref.subview %S;  warp.matmul ... into %part;  linalg.copy ins(%part) outs(%D)
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, ModuleOp, i64
from xdsl.dialects.linalg.ops import CopyOp, TransposeOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import InsertPoint

from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import BYTE, Memory, ScheduleAttr, element_row, memory_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operand_forms import drop_forms, of_form
from ..schedule.laid_out import padded_type, transposed_type
from ..schedule.packing import roles


def _schedule(op: MatmulOp) -> Schedule | None:
    held = op.attributes.get(ScheduleAttr.name)
    return held.data if isinstance(held, ScheduleAttr) and not op.tile else None


def _aligned(rewriter: PatternRewriter, op: MatmulOp, types: tuple[Memory, Memory], name: str) -> SSAValue:
    """Scratch memory with aligned rows, until the product and what stands behind it now are done; the part that a
    matrix takes."""
    whole, part = types
    memory = rewriter.insert(memref.AllocOp([], [], whole)).memref
    Builder(InsertPoint.after(op)).insert(memref.DeallocOp.get(memory))
    view = rewriter.insert(memref.SubviewOp.get(memory, [0, 0], part.get_shape(), [1, 1], part)).result
    view.name_hint = name
    return view


def _number(op: MatmulOp, role: str) -> int:
    """Which operand of the operation A, B or D is."""
    return {"a": 0, "b": 1, "d": 2 + (op.c is not None)}[role]


def _bits(memory: Memory) -> int:
    element = element_row(memory.element_type)
    return BYTE if element is None else element.memory_bits


class TransposeOperands(RewritePattern):
    """A and B are transposed before."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        schedule = _schedule(op)
        for role in roles(schedule.operands.transpose) if schedule is not None else "":
            at = "ab".index(role)
            value, form, maps = op.matrices[at], op.forms[at], list(op.maps)
            kind = memory_of(value)
            name = f"{value.name_hint or role.upper()}_transposed"
            transposed = _aligned(rewriter, op, transposed_type(kind, _bits(kind)), name)
            rewriter.insert(TransposeOp(value, transposed, DenseArrayBase.from_list(i64, [1, 0])))
            beside = () if form is None else form.beside
            op.operands[_number(op, role)] = of_form(form, transposed, beside, rewriter.insert)
            maps[at] = AffineMap(maps[at].num_dims, 0, maps[at].results[::-1])
            op.indexing_maps = ArrayAttr([AffineMapAttr(each) for each in maps])
            drop_forms([] if form is None else [form.operand])


class PadResult(RewritePattern):
    """D is made in aligned rows, and copied behind."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        schedule, kind, d = _schedule(op), memory_of(op.d), SSAValue.get(op.d)
        if schedule is None or schedule.operands.padded != "d":
            return
        made = _aligned(rewriter, op, padded_type(kind, _bits(kind)), f"{d.name_hint or 'D'}_padded")
        op.operands[_number(op, "d")] = made
        Builder(InsertPoint.after(op)).insert(CopyOp([made], [d], []))


class LayOutPass(ModulePass):
    """Transposes the operands that a schedule's `transpose` names before the product. If the schedule has `padded`, it
    also computes D in aligned rows and copies it after the product.

    It runs after `warp-schedule`.
    """

    name = "warp-lay-out"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for pattern in (TransposeOperands(), PadResult()):
            PatternRewriteWalker(pattern, apply_recursively=False).rewrite_module(op)
