"""Inputs of `warp.rows` whose elements repeat along rows, such as the weights of a group norm: channels of many pixels.

What writes them out for each element goes, and they are read where they are, at the quotient of the place in a row."""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attributes import is_memory
from ...dialect.warp.elements import shape_of
from ...dialect.warp.fragments import ReduceOp
from ...dialect.warp.rows import RowsOp
from ..diagnostics import chose
from ..patterns import op_type_rewrite_pattern
from .element_expressions import writer_before
from .fuse_rows import FuseRowsPass
from .operand import collapse, drop_unused, expand, root, users_of
from .row_reductions import HELD


class ReadRepeated(RewritePattern):
    """Reads inputs that repeat so many times that no warp holds elements of two."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: RowsOp, rewriter: PatternRewriter) -> None:
        reduces = any(isinstance(inner, ReduceOp) for inner in op.body.block.ops)
        for number, value in enumerate(op.inputs if reduces else ()):
            writer = writer_before(value, op) if is_memory(value.type) else None
            if not isinstance(writer, GenericOp) or not _repeats(writer) or users_of(root(value)) != {writer, op}:
                continue
            (source,), map_, shape, times = writer.inputs, op.maps[number], shape_of(value), shape_of(root(value))[-1]
            along = op.loops - 1
            if times % (LANES * HELD) or loops_of(map_)[-1] != along or min(shape) < 0 or shape[-1] % times:
                continue
            flat = collapse(source, [[*range(len(shape_of(source)))]])
            split = expand(flat.results[0], [[*shape[:-1], shape[-1] // times]])
            for view in (flat, split):
                Rewriter.insert_op(view, InsertPoint.before(op))
            quotient = AffineDimExpr(along) // times
            maps = [*op.maps]
            maps[number] = AffineMap(map_.num_dims, map_.num_symbols, (*map_.results[:-1], quotient))
            inputs = [*op.inputs[:number], split.results[0], *op.inputs[number + 1 :]]
            made = RowsOp(inputs, op.outputs, maps, op.detach_region(op.body))
            made.attributes, made.location = op.attributes, op.location
            Rewriter.replace_op(op, made)
            Rewriter.erase_op(writer)
            drop_unused(value)
            chose(made, FuseRowsPass.name, f"an input is read once for {times} elements of a row")
            op = made
            rewriter.has_done_action = True


def _repeats(op: GenericOp) -> bool:
    """Whether an operation writes each element of contiguous memory several times side by side."""
    maps, block = [attribute.data for attribute in op.indexing_maps], op.body.block
    loops = range(maps[-1].num_dims)
    plain = maps == [map_along(len(loops), along) for along in (loops[:-1], loops)] and len(block.ops) == 1
    copied = block.last_op is not None and block.last_op.operands[0] == block.args[0]
    return plain and copied and isinstance(op.outputs[0].owner, memref.AllocOp) and min(shape_of(op.outputs[0])) > 0
