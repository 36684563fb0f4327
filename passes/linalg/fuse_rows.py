"""`warp-fuse-rows`: operations on the same rows, of which some take rows together, become one `warp.rows`.

A softmax, a layer norm or an RMS norm is a chain of reductions along rows and elementwise operations. What counts is
what an element of the last result is, as an expression of elements of memory (`element_expressions.py`). Memory that
stays, arguments of the function for example, is read where it is; temporaries go.

Where such operations are not fused, `warploom-opt --remarks` says why.
"""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialect.warp.attention import RowsOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import element_type
from ..diagnostics import chose, remark
from ..patterns import apply_patterns
from .element_expressions import (
    ROUNDED,
    ElementExpression,
    ElementReader,
    Name,
    NotFusedError,
    Subscripts,
    decline,
    map_of,
    multiplies,
    region_of,
    writer_before,
)
from .fuse_epilogue import Replacement
from .operand import FoldDimension, root
from .overlap import check_rows

ALONG = "n"
"""The name of the loop along a row; those over rows are numbers."""


class RowReader(ElementReader):
    """Reads elements through temporaries, but not through products, or memory that others see or that is `kept`."""

    def __init__(self, result: SSAValue, kept: Set[SSAValue]) -> None:
        super().__init__(ALONG)
        self.result, self.kept = result, kept

    def _element(self, value: SSAValue, at: Subscripts, before: Operation) -> ElementExpression:
        local = isinstance(value.owner, memref.AllocOp | memref.AllocaOp) and value not in self.kept
        writer = writer_before(value, before)
        if (not local and value is not self.result) or (writer is not None and multiplies(writer)):
            return ElementExpression("load", value=value, place=at)
        return super()._element(value, at, before)

    def _onto(
        self, op: LinalgStructuredOperation, at: Subscripts, combined: Operation, taken: ElementExpression
    ) -> ElementExpression:
        before = self.element(op.outputs[0], at, op)
        if isinstance(combined, arith.SubfOp):
            combined = arith.AddfOp(combined.lhs, combined.rhs)
        return ElementExpression("op", combined.name, (before, taken), op=combined)


class RowsMatch:
    """What the operation `last` makes of rows.

    Raises:
        NotFusedError: if it takes no row together, for a reason that is empty.
    """

    def __init__(self, last: LinalgStructuredOperation, kept: frozenset[SSAValue] = frozenset()) -> None:
        self.last, self.result = last, last.outputs[0]
        kinds = [kind.data for kind in last.get_iterator_types()]
        rank, reduces = memory_of(self.result).get_num_dims(), kinds.count(IteratorType.REDUCTION)
        if multiplies(last) or last.next_op is None or reduces > 1 or len(kinds) != rank + reduces or not kinds:
            decline("")
        self.rows = rank if reduces else rank - 1
        over: Subscripts = tuple(range(self.rows))
        self.place = over if reduces else (*over, ALONG)
        while True:
            self.reader = RowReader(self.result, kept)
            self.element = self.reader.element(self.result, self.place, last.next_op)
            used = frozenset(op for op in self.reader.used if isinstance(op, LinalgStructuredOperation))
            self.replaced = Replacement(used, last, self.result, self._read())
            staying = frozenset(op.outputs[0] for op in used - self.replaced.dead)
            if not staying - {self.result}:
                break
            kept |= staying
        if not any(self.element.leaves("reduce")):
            decline("")
        self.loads = list(self.element.leaves("load"))
        self.numbers = list(self.element.leaves("outside"))

    @property
    def temporaries(self) -> frozenset[SSAValue]:
        """Memory that it reads through."""
        return frozenset(value for op in self.replaced.used for value in op.operands) - {self.result}

    def _read(self) -> set[SSAValue]:
        return {root(load.value) for load in self.element.leaves("load") if load.value is not None}

    def replace(self) -> None:
        """Puts one operation in the place of all.

        Raises:
            NotFusedError: if it may not, or there is no such operation.
        """
        self.replaced.replace(self._operation, check_rows)

    def _operation(self) -> RowsOp:
        inputs = {leaf: value for leaf in (*self.loads, *self.numbers) if (value := leaf.value) is not None}
        order: dict[Name, int] = {**{row: row for row in range(self.rows)}, ALONG: self.rows}
        given = {leaf: element_type(value) for leaf, value in inputs.items()}
        stored = memory_of(self.result).element_type
        maps = [map_of(place, order) for place in (*(leaf.place for leaf in inputs), self.place)]
        region = region_of(self.element, given, stored=stored, across=True)
        return RowsOp(list(inputs.values()), self.result, maps, region)


class FuseRows(RewritePattern):
    """Replaces what an operation stands at the end of by `warp.rows`; where that may not be, the operation alone."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
        if len(op.outputs) != 1 or op.results or not isinstance(op.outputs[0].type, MemRefType):
            return
        kept: frozenset[SSAValue] = frozenset()
        for _ in range(2):
            match = None
            try:
                match = RowsMatch(op, kept)
                match.replace()
                chose(op, FuseRowsPass.name, f"{len(match.replaced.used)} operations on the same rows are one kernel")
                _tell_products(op, match.element)
                rewriter.has_done_action = True
                return
            except NotFusedError as declined:
                if reason := str(declined):
                    remark(op, FuseRowsPass.name, f"it is not fused with operations on the same rows: {reason}")
            if match is None or match.temporaries <= kept:
                return
            kept = match.temporaries


class FuseRowsPass(ModulePass):
    """Replaces operations on the same rows, at least one of which reduces along the rows, by one `warp.rows`: row
    reductions, softmax, layer norm and RMS norm.

    The operations must be `linalg` operations on memory in one block.
    """

    name = "warp-fuse-rows"
    needs: ClassVar = ("linalg.*", "memref.dim")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([FoldDimension()], op)
        apply_patterns([FuseRows()], op, reverse=True)


def _tell_products(op: LinalgStructuredOperation, element: ElementExpression) -> None:
    """Says of each product of matrices in an expression why no tensor core multiplies it."""
    for total in element.leaves("reduce"):
        (term,) = total.operands
        while term.is_op("arith.negf"):
            (term,) = term.operands
        rounded = term.type if term.is_op(ROUNDED) else None
        product = term if rounded is None else term.operands[0]
        loads = [leaf for factor in product.operands for leaf in factor.leaves("load")]
        rows = {frozenset(leaf.place) - {ALONG} for leaf in loads if ALONG in leaf.place}
        if total.name != "add" or not product.is_op("arith.mulf") or len(rows) < 2:
            continue
        reason = "its factors are computed, or more than two"
        if rounded is not None:
            reason = f"each product is rounded to {rounded} before it is added; extend the factors, not their product"
        remark(op, FuseRowsPass.name, f"a product of matrices uses no tensor core: {reason}")
