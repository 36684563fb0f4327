"""What rows combine to so far, such as `cumsum`, as `warp.rows`: a loop nest that writes an element in each turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, bf16, f16, f32
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.dialects.memref import AllocOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from ...dialect.mlir.affine import Nest, is_constant, is_projection
from ...dialect.warp.attributes import is_memory
from ...dialect.warp.elements import YieldOp, element_type, only_computes
from ...dialect.warp.fragments import IDENTITIES, Kind, ReduceOp
from ...dialect.warp.rows import RowsOp, ScanOp
from ..diagnostics import chose, remark
from ..patterns import float_value, op_type_rewrite_pattern
from .element_expressions import REDUCTIONS, writer_before
from .element_regions import ElementBuilder
from .operand import root, users_of
from .row_reductions import PASS


class Scan(NamedTuple):
    """What a body combines, along the last loop, of a value of each element and of what is before it."""

    kind: Kind
    value: SSAValue
    result: SSAValue

    @staticmethod
    def of(op: GenericOp) -> Scan | None:
        """The scan that an operation is, of which the first output has each element, and the second the last."""
        nest = Nest.of(op)
        if len(op.outputs) != 2 or op.results or nest.summed != (nest.loops - 1,):
            return None
        (each, last), (element, total) = nest.writes, nest.yielded
        every, by = tuple(range(nest.loops)), total.owner
        if (each.loops, last.loops) != (every, every[:-1]) or not isinstance(by, Operation) or each.element.uses:
            return None
        others = [value for value in by.operands if value is not last.element]
        rounded = element.owner.input if isinstance(element.owner, arith.TruncFOp) else element
        once = len(others) == 1 and last.element.uses.get_length() == 1 and rounded is total
        if by.name not in REDUCTIONS or not once or not isinstance(total.type, AnyFloat):
            return None
        return Scan(REDUCTIONS[by.name], others[0], total)


class RaiseScans(RewritePattern):
    """Makes rows of a loop nest that goes along them and writes an element in each turn. Floats of 16 bits are combined
    in f32, and rounded once."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GenericOp, rewriter: PatternRewriter) -> None:
        if (scan := Scan.of(op)) is None:
            return
        fills = [writer for value in op.outputs if isinstance(writer := writer_before(value, op), FillOp)]
        if reason := _obstacle(op, scan, fills):
            remark(op, PASS, f"what rows combine to so far is made by a thread for each: {reason}")
            return
        each, last = op.outputs
        is_seen = not isinstance(root(last).owner, AllocOp) or users_of(root(last)) - {op, *fills}
        outputs = [each, last] if is_seen else [each]
        region = _region(op, scan, outputs)
        maps = [attribute.data for attribute in op.get_indexing_maps()][: len(op.inputs) + len(outputs)]
        rows = RowsOp(op.inputs, outputs, maps, region)
        rows.location = op.location
        chose(op, PASS, "what rows combine to so far is one kernel")
        rewriter.replace(op, rows)
        for fill in fills:
            rewriter.erase(fill)


def _obstacle(op: GenericOp, scan: Scan, fills: Sequence[FillOp]) -> str:
    """Why an operation is not made by warps that hold rows; "" if nothing is in the way."""
    nest, identity = Nest.of(op), IDENTITIES[scan.kind]
    starts = [float_value(fill.inputs[0]) for fill in fills if fill.outputs[0] == op.outputs[1]]
    if starts != [identity]:
        return f"it does not start from {identity}"
    if nest.captured or not all(is_memory(value.type) and is_projection(map_) for value, map_, _ in nest.accesses):
        return "it takes other than elements of memory"
    if any(element_type(value) not in (f16, bf16, f32) for value in op.operands):
        return "its elements are not f32, f16 or bf16"
    own = root(op.outputs[0])
    if any(root(read.value) is own and read.map != nest.writes[0].map for read in nest.reads):
        return "it reads other elements of the memory that it writes"
    others = [each for each in nest.body.ops if each not in (scan.result.owner, nest.body.last_op)]
    floats = all(each.results[0].type == f32 or isinstance(each, arith.TruncFOp) for each in others)
    return "" if floats and all(map(only_computes, others)) else "it computes with other than f32"


def _region(op: GenericOp, scan: Scan, outputs: Sequence[SSAValue]) -> Region:
    """The region of `warp.rows`: the body with a scan, and if there are two outputs a reduction, in f32."""
    block, body = Block(arg_types=[element_type(value) for value in op.inputs]), op.body.block
    builder = ElementBuilder(block, {})
    made: dict[SSAValue, SSAValue] = dict(zip(body.args, map(builder.widened, block.args), strict=False))
    for each in body.ops:
        for constant in filter(is_constant, each.operands):
            if constant not in made and isinstance(constant.owner, Operation):
                made[constant] = builder.added(constant.owner.clone())
        if each is scan.result.owner:
            break
        if isinstance(each, arith.ExtFOp) and made[each.input].type == f32:
            made[each.result] = made[each.input]
        else:
            made[each.results[0]] = builder.added(each.clone(made))
    value = made[scan.value]
    results = [
        builder.added(ScanOp(scan.kind, value)),
        *(builder.added(ReduceOp(scan.kind, value)) for _ in outputs[1:]),
    ]
    pairs = zip(results, map(element_type, outputs), strict=True)
    block.add_op(YieldOp(*(builder.narrowed(result, kind) for result, kind in pairs)))
    return Region(block)
