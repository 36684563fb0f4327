"""`warp-fuse-rows`: operations on the same rows, of which some take rows together, become one `warp.rows`; and
`warp-fuse-elementwise`, which does the same with operations that take none together.

A softmax, a layer norm or an RMS norm is a chain of reductions along rows and elementwise operations. What counts is
what an element of the last result is, as an expression of elements of memory (`element_expressions.py`). Memory that
stays, arguments of the function for example, is read where it is; temporaries go.

Where such operations are not fused, `warploom-opt --remarks` says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, MemRefType, ModuleOp, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import FIXED, Nest, is_projection, loops_of, strides_of
from ...dialect.warp.attributes import element_row, is_memory, memory_of
from ...dialect.warp.elements import element_type, shape_of
from ...dialect.warp.rows import RowsOp
from ..diagnostics import chose, remark
from ..patterns import apply_patterns, fold_dimension, op_type_rewrite_pattern
from .contraction import around
from .element_expressions import (
    ROUNDED,
    ElementExpression,
    ElementReader,
    Name,
    Subscripts,
    map_of,
    multiplies,
    writer_before,
)
from .element_regions import is_of_elements, place_in, region_of
from .memory_uses import NotFusedError, Replacement, decline, place_in_block
from .operand import collapse, expand, groups_of, root, users_of

ALONG = "n"
"""The name of the loop along a row; those over rows are numbers."""


class RowReader(ElementReader):
    """An element reader that reads through all memory but that in `kept` and the results of products. `places` maps
    each operation that it has read through to the subscripts of its elements."""

    beyond, wide = math.inf, True

    def __init__(self, kept: Set[SSAValue], *, gathers: bool) -> None:
        super().__init__(ALONG)
        self.kept, self.places, self.gathers = kept, dict[Operation, Subscripts](), gathers

    def _element(self, value: SSAValue, at: Subscripts, before: Operation) -> ElementExpression:
        load, writer = ElementExpression("load", value=value, place=at), writer_before(value, before)
        if writer is None or len(writer.outputs) != 1 or root(value) in self.kept or multiplies(writer):
            return load
        output = writer.outputs[0]
        place = at if value is output else place_in(value, at, output)
        element = load if place is None else super()._element(output, place, before)
        if place is None or element == ElementExpression("load", value=output, place=place):
            self.left.add(writer)
            return load
        self.places[writer] = place
        return element

    def _bound(self, op: LinalgStructuredOperation, at: Subscripts) -> dict[int, Name] | None:
        map_ = op.get_indexing_maps().data[-1].data
        loops, sizes = loops_of(map_), shape_of(op.outputs[0])
        if not is_projection(map_) or any(FIXED in (a, b) and n != 1 for a, b, n in zip(loops, at, sizes, strict=True)):
            return None
        return {loop: name for loop, name in zip(loops, at, strict=True) if loop != FIXED}


class RowsMatch:
    """The results of a chain of operations on rows that ends in `last`, and intermediate results that are used
    elsewhere: `elements` by the memory that they are stored to, at `places`.

    If `elementwise`, there is no reduction, and there are several operations. With `again`, operations that others use
    stay, and are also computed here. Raises NotFusedError if there is no such match. The reason is empty.
    """

    def __init__(
        self,
        last: LinalgStructuredOperation,
        kept: frozenset[SSAValue] = frozenset(),
        *,
        again: bool = False,
        elementwise: bool = False,
    ) -> None:
        self.last, self.elementwise, self.result, self.kept = last, elementwise, last.outputs[0], set(kept)
        self.again = again
        kinds = [kind.data for kind in last.get_iterator_types()]
        rank, reduces = memory_of(self.result).get_num_dims(), kinds.count(IteratorType.REDUCTION)
        if (
            multiplies(last)
            or last.next_op is None
            or reduces > 1
            or len(kinds) != rank + reduces
            or (elementwise and not kinds)
        ):
            decline("")
        long = [d for d, n in enumerate(shape_of(self.result)) if n != 1] or [0]
        of_row = tuple(long.index(d) if d in long else FIXED for d in range(rank))
        along = rank - 1 if not elementwise else max(long)
        rows, single = [d for d in long if d != along], rank > 1 and along not in long
        each = tuple(ALONG if d == along else rows.index(d) if d in rows else FIXED for d in range(rank))
        places = ([] if reduces or single else [each]) + ([] if elementwise else [of_row])
        if not any(self._reads(place) for place in places):
            decline("")

    def _reads(self, place: Subscripts) -> bool:
        """Reads the elements for a result at `place`. Returns whether they form rows."""
        op, others = self.last, dict[LinalgStructuredOperation, Subscripts]()
        self.rows = sum(name not in (ALONG, FIXED) for name in place)
        while True:
            reader = RowReader(self.kept, gathers=not self.elementwise)
            self.places = {self.result: place} | {other.outputs[0]: at for other, at in others.items()}
            ends = {self.result: op} | {other.outputs[0]: other for other in others}
            self.elements = {
                value: reader.element(value, at, ends[value].next_op or self.last) for value, at in self.places.items()
            }
            if again := {root(op.operands[-1]) for op, at in reader.places.items() if self._repeats(op, at)}:
                self.kept |= again
                continue
            read = {root(load.value) for load in self._leaves("load") if load.value is not None}
            used = frozenset(each for each in reader.used if isinstance(each, LinalgStructuredOperation))
            self.replaced = Replacement(used, self.last, frozenset(self.places), read, reader.left)
            if self.replaced.is_torn:
                return False
            several = len(used) > 1 or not self.elementwise
            if bool(self._leaves("reduce")) == self.elementwise or not several or op not in used:
                return False
            if not self._stays(reader, others):
                return True

    def _repeats(self, op: Operation, at: Subscripts) -> bool:
        """Whether several rows would make again, one by one, what an operation reduces for all of them."""
        if not isinstance(op, LinalgStructuredOperation) or not Nest.of(op).summed:
            return False
        places = zip(self.places[self.result], shape_of(self.result), strict=True)
        rows = {name for name, size in places if name not in (ALONG, FIXED) and size != 1}
        return bool(rows.intersection(at)) and not rows.issubset(at)

    def _stays(self, reader: RowReader, others: dict[LinalgStructuredOperation, Subscripts]) -> bool:
        """Adds to `others` the operations whose results are also used elsewhere. Results that cannot be stored here
        stay in memory. Returns whether there were any."""
        staying = sorted(self.replaced.used - self.replaced.dead, key=place_in_block)
        placed = [op for op in staying if isinstance(op, LinalgStructuredOperation) and op in reader.places]
        for memory, op in {op.outputs[0]: op for op in placed}.items():  # the last that writes it
            at = reader.places[op]
            element = reader.element(memory, at, op.next_op or op)
            users = users_of(root(memory)) - self.replaced.used
            local = isinstance(root(memory).owner, memref.AllocOp)
            again = not self.elementwise and _is_read_as_well(element, memory) and not _is_of_products(element, op)
            if local and (not users or again or element.kind in ("load", "constant")):
                continue  # It serves what stays, or others read what it reads as well as this.
            stores = self._stores(op, at, element)
            if stores and local and self.again:
                continue
            follower = next(filter(None, (self._follower(user, op, at, reader) for user in users)), None)
            if follower is not None and follower[0] not in others:
                others[follower[0]] = follower[1]
                self.last = max(self.last, follower[0], key=place_in_block)
            elif stores and op not in others:
                others[op] = at
            else:
                self.kept.add(root(memory))
                others.clear()
            return True
        return False

    def _follower(
        self, user: Operation, op: LinalgStructuredOperation, at: Subscripts, reader: RowReader
    ) -> tuple[LinalgStructuredOperation, Subscripts] | None:
        """An operation that reads elements of `op` at a place, and nothing else from outside, with the place of its
        elements."""
        if not isinstance(user, LinalgStructuredOperation) or user.parent is not op.parent or user.next_op is None:
            return None
        if len(user.outputs) != 1 or multiplies(user):
            return None
        *maps, written = (attribute.data for attribute in user.get_indexing_maps())
        names = dict[int, Name]()
        for value, map_ in zip(user.inputs, maps, strict=True):
            place = place_in(op.outputs[0], at, value) if root(value) is root(op.outputs[0]) else None
            names |= dict(zip(loops_of(map_), place or (), strict=False))
        place = tuple(names.get(loop, FIXED) for loop in loops_of(written))
        if any(name == FIXED and n != 1 for name, n in zip(place, shape_of(user.outputs[0]), strict=True)):
            return None
        element = reader.element(user.outputs[0], place, user.next_op)
        loads = {root(load.value) for load in element.leaves("load") if load.value is not None}
        return (user, place) if loads <= self.replaced.read and self._stores(user, place, element) else None

    def _stores(self, op: LinalgStructuredOperation, at: Subscripts, element: ElementExpression) -> bool:
        """Whether an intermediate result can be stored here, in the order of the result: it has one element for each
        element or row of that, and the epilogue of a product could not store it. In another order, it is computed."""
        each = (*range(self.rows), ALONG)
        names = tuple(name for name in at if name != FIXED)
        names = names if ALONG in names[:-1] else tuple(sorted(names, key=str))
        return (
            (names == each or (names == each[:-1] != () and not self.elementwise))
            and (bool(element.leaves("reduce")) or not _is_of_products(element, op))
            and isinstance(element_type(op.outputs[0]), AnyFloat)
        )

    def _leaves(self, kind: str) -> list[ElementExpression]:
        """The leaves of a kind of all elements, each once."""
        return list(dict.fromkeys(leaf for element in self.elements.values() for leaf in element.leaves(kind)))

    @property
    def temporaries(self) -> frozenset[SSAValue]:
        """The intermediate memory that the rows make unnecessary."""
        return frozenset(root(value) for op in self.replaced.used for value in op.operands) - {root(self.result)}

    @property
    def others(self) -> frozenset[SSAValue]:
        """The memory that it stores besides its result."""
        return frozenset(map(root, self.places)) - {root(self.result)}

    def replace(self) -> None:
        """Replaces all operations by one. Raises NotFusedError if that would change another result, or there is no such
        operation."""
        views = list[Operation]()
        try:
            self.replaced.replace(partial(self._operation, views))
        except NotFusedError:
            for view in reversed(views):
                Rewriter.erase_op(view)
            raise

    def _operation(self, views: list[Operation]) -> RowsOp:
        inputs = {leaf: value for kind in ("load", "outside") for leaf in self._leaves(kind) if (value := leaf.value)}
        ends = [*((value, leaf.place) for leaf, value in inputs.items()), *self.places.items()]
        if not self.elementwise:
            along = [(value, d) for value, place in ends for d, name in enumerate(place) if name == ALONG]
            _check_length([*along, *self._reduced()], self.last)
        unknown = (strides_of(memory_of(v)) for v in inputs.values() if element_type(v) == i64 and is_memory(v.type))
        if any(strides is None or None in strides for strides in unknown):
            decline("the low words of integers are read out of memory of known strides")
        order: dict[Name, int] = {**{row: row for row in range(self.rows)}, ALONG: self.rows}
        numbers = list(dict.fromkeys(number for leaf in inputs for number in leaf.operands))
        order |= {number: FIXED - 1 - at for at, number in enumerate(numbers)}
        types = {leaf: element_type(value) for leaf, value in inputs.items()}
        stored = [memory_of(value).element_type for value in self.places]
        region = region_of([*self.elements.values()], types, stored, indices=order, across=True, numbers=numbers)
        seen = {end: self._seen(*end, views) for end in dict.fromkeys(ends)}  # what is updated in place is one value
        maps = [map_of(seen[end][1], order) for end in ends]
        if self.elementwise and any(self.rows in loops[:-1] for loops in map(loops_of, maps)):
            decline("an operand is transposed")
        indexed = numbers or any(leaf.name != ALONG for leaf in self._leaves("index"))
        if indexed and any(self.rows in loops_of(map_)[:-1] for map_ in maps):
            decline("it computes with numbers of rows, which lie across memory")
        of_rows = {root(value): number for number, (value, at) in enumerate(self.places.items()) if ALONG not in at}
        own = [(i, of_rows[root(value)]) for i, value in enumerate(inputs.values()) if root(value) in of_rows]
        if any(is_of_elements(region.block.args[i], number) for i, number in own):
            decline("elements of a row are computed with what is stored for the row in the same memory")
        values = [seen[end][0] for end in ends]
        return RowsOp(values[: len(inputs)], values[len(inputs) :], maps, region)

    def _reduced(self) -> list[tuple[SSAValue, int]]:
        """The reduced dimensions, one for each reduction. Elements that a row keeps may not have such a dimension."""
        dimensions = dict[tuple[Operation, int], tuple[SSAValue, int]]()
        for op in self.replaced.used:
            maps = [attribute.data for attribute in cast("LinalgStructuredOperation", op).get_indexing_maps()]
            for value, map_ in zip(op.operands, maps[:-1], strict=False):
                for d, loop in enumerate(loops_of(map_) if is_projection(map_) else ()):
                    if loop != FIXED and loop not in loops_of(maps[-1]):
                        dimensions.setdefault((op, loop), (value, d))
        return list(dimensions.values())

    def _seen(self, value: SSAValue, place: Subscripts, views: list[Operation]) -> tuple[SSAValue, Subscripts]:
        """A view of memory with a dimension for each of its loops, and those loops."""
        sizes = shape_of(value)
        if any(isinstance(name, tuple) for name in place):
            digits = [name if isinstance(name, tuple) else ((name, n),) for name, n in zip(place, sizes, strict=True)]
            if min(sizes) < 0:
                decline("memory with a size that only the caller knows is read in another shape")
            views.append(expand(value, [[n for _, n in part] for part in digits]))
            place = tuple(name for part in digits for name, _ in part)
            Rewriter.insert_op(views[-1], InsertPoint.before(self.last))
            value, sizes = views[-1].results[0], shape_of(views[-1].results[0])
        single = [d for d, name in enumerate(place) if name == FIXED and sizes[d] == 1]
        if single and len(single) < len(place):
            kept = [d for d in range(len(place)) if d not in single]
            views.append(collapse(value, around(kept, len(place))))
            Rewriter.insert_op(views[-1], InsertPoint.before(self.last))
            value, place = views[-1].results[0], tuple(place[d] for d in kept)
        return value, place


def _is_of_products(element: ElementExpression, op: Operation) -> bool:
    """Whether an element is computed, before an operation, of results of products, whose epilogues may do that."""
    writers = (writer_before(load.value, op) for load in element.leaves("load") if load.value is not None)
    return any(writer is not None and multiplies(writer) for writer in writers)


def _is_read_as_well(element: ElementExpression, memory: SSAValue) -> bool:
    """Whether computing an element again takes no more bits of memory than reading it: no reduction, and loads for each
    element that are no wider together, of no rows that a table says."""
    loads = [load for load in element.leaves("load") if len(load.place) == len(shape_of(memory))]
    kinds = [element_row(element_type(v)) for v in (memory, *(load.value for load in loads)) if v is not None]
    stored, *read = [0 if kind is None else kind.bits for kind in kinds]
    return not (element.leaves("reduce") or any(load.operands for load in loads)) and sum(read) <= stored


def _check_length(along: Sequence[tuple[SSAValue, int]], last: Operation) -> None:
    """Declines rows that may differ in length: dynamic dimensions of several memories. Dimensions along one loop of an
    operation are equal, and so are those of memory that was allocated with the same size."""
    if len({shape_of(value)[d] for value, d in along}) == 1 and shape_of(along[0][0])[along[0][1]] >= 0:
        return
    same = dict[object, object]()

    def first(one: object) -> object:
        while one in same:
            one = same[one]
        return one

    for op in last.parent.ops if last.parent is not None else ():
        for one, other in _equal_sizes(op):
            if (a := first(one)) != (b := first(other)):
                same[a] = b
    if len({first(one) for one in along}) > 1:
        decline("rows of sizes that are not known may differ in length")


def _equal_sizes(op: Operation) -> Iterator[tuple[object, object]]:
    """The dimensions of memory, and sizes, of which an operation says that they are equal."""
    if isinstance(op, LinalgStructuredOperation):
        loops = dict[int, tuple[SSAValue, int]]()
        for value, attribute in zip(op.operands, op.get_indexing_maps(), strict=False):
            for d, loop in enumerate(loops_of(attribute.data) if is_projection(attribute.data) else ()):
                yield (value, d), loops.setdefault(loop, (value, d))
    elif isinstance(op, memref.AllocOp):
        unknown = [d for d, n in enumerate(shape_of(op.memref)) if n < 0]
        yield from (((op.memref, d), size) for d, size in zip(unknown, op.dynamic_sizes, strict=True))
    elif isinstance(op, memref.DimOp) and isinstance(index := op.index.owner, arith.ConstantOp):
        yield op.result, (op.source, cast("IntegerAttr", index.value).value.data)
    elif isinstance(op, memref.CollapseShapeOp | memref.ExpandShapeOp):
        ends = op.results[0], op.operands[0]
        collapsed, expanded = ends if isinstance(op, memref.CollapseShapeOp) else ends[::-1]
        for d, group in enumerate(groups_of(op)):
            long = [g for g in group if shape_of(expanded)[g] != 1]
            if len(long) == 1:
                yield (collapsed, d), (expanded, long[0])


@dataclass(frozen=True)
class FuseRows(RewritePattern):
    """Replaces a chain that ends in an operation by `warp.rows`, or else the operation alone."""

    elementwise: bool = False

    @property
    def name(self) -> str:
        """The pass in remarks."""
        return (FuseElementwisePass if self.elementwise else FuseRowsPass).name

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
        if len(op.outputs) != 1 or op.results or not isinstance(op.outputs[0].type, MemRefType):
            return
        kept: frozenset[SSAValue] = frozenset()
        what = "operations on the same elements" if self.elementwise else "operations on the same rows"
        for again in (False, True, False, False):
            match = None
            try:
                match = RowsMatch(op, kept, again=again, elementwise=self.elementwise)
                match.replace()
                chose(op, self.name, f"{len(match.replaced.used)} {what} are one kernel")
                for element in match.elements.values():
                    _tell_products(op, element)
                rewriter.has_done_action = True
                return
            except NotFusedError as declined:
                if reason := str(declined):
                    remark(op, self.name, f"it is not fused with {what}: {reason}")
            if match is None or match.others | match.temporaries <= kept:
                return
            if again or not match.others:
                kept |= match.others or match.temporaries


class FuseRowsPass(ModulePass):
    """Replaces operations on the same rows, at least one of which reduces along the rows, by one `warp.rows`: row
    reductions, softmax, layer norm and RMS norm. The operations must be `linalg` operations on memory in one block."""

    name = "warp-fuse-rows"
    needs: ClassVar = ("reduced", "memref.dim")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([fold_dimension], op)
        if any(isinstance(each, LinalgStructuredOperation) and len(Nest.of(each).summed) > 2 for each in op.walk()):
            from .window_sums import split_pixels  # with what a product does not need

            apply_patterns([split_pixels], op)
        if any(isinstance(each, GenericOp) and len(each.outputs) > 1 for each in op.walk()):
            from .row_reductions import raise_scans  # with what a product does not need

            apply_patterns([raise_scans], op)
        _fuse(op, FuseRows())


class FuseElementwisePass(ModulePass):
    """Replaces a chain of elementwise operations, each of which reads results of an earlier one, by one `warp.rows`.
    The operations must be `linalg` operations on memory in one block."""

    name = "warp-fuse-elementwise"
    needs: ClassVar = ("linalg.*",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        _fuse(op, FuseRows(elementwise=True))


def _fuse(module: ModuleOp, pattern: FuseRows) -> None:
    apply_patterns([pattern], module, reverse=True)
    if made := sum(isinstance(each, RowsOp) for each in module.walk()):
        from .row_reductions import read_repeated, sum_logarithms  # with what a product does not need
        from .split_rows import merge_rows

        apply_patterns([read_repeated], module)
        apply_patterns([merge_rows] if made > 1 else [], module)
        apply_patterns([sum_logarithms], module)


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
