"""Which memory operations read and write: whether that shares elements, and what replaces several operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import NamedTuple, NoReturn

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import DiagnosticException

from ...dialect.mlir.affine import Nest, strides_of
from ...dialect.warp.attention import INPUTS, AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.cta import DisjointOp
from ...dialect.warp.elements import with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.rows import RowsOp
from ..diagnostics import fail, message_of, name_of
from ..patterns import LocatedRewriter, all_operands, constant_value
from .operand import VIEWING, VIEWS, View, drop_unused, root, seen, users_of

# Operations that write memory which they also read.
#
# The CTAs of a kernel run in no order: one may write an element before another has read it. What an operation writes
# must therefore share no element with what it reads, but for elements that are read only where the same one is written:
# C of a product, and inputs of an elementwise operation, in place. Two views of one memory that share an element are an
# error where the operation stands. Where only a call knows, a `warp.disjoint` before the operation has the call
# refused. Different arguments of a function are told apart when it is called, too.


class MemoryUse(NamedTuple):
    """Memory that an operation reads or writes, and the map of its elements; None if the access is not by element."""

    name: str
    value: SSAValue
    map: AffineMap | None = None

    def __str__(self) -> str:
        hint = unshaped(self.value).name_hint if self.value.name_hint is None else self.value.name_hint
        return self.name if hint is None else f"{self.name} (%{hint})"


def uses_of(op: Operation) -> tuple[list[MemoryUse], list[MemoryUse]] | None:
    """What an operation reads, and what it writes; None if that is not known. A kernel reads C, and the inputs of
    elementwise operations, element by element where it writes; warps read their rows before they write them."""
    if is_pure(op) or isinstance(op, memref.AllocOp | memref.AllocaOp | DisjointOp) or op.name == "cf.assert":
        return [], []
    match op:
        case LinalgStructuredOperation():
            nest = Nest.of(op)
            reads = [MemoryUse("an input", access.value, access.map) for access in nest.used]
            reads += [MemoryUse("an input", value) for value in nest.captured]
            writes = [MemoryUse("the output", access.value, access.map) for access in nest.writes]
        case MatmulOp():
            others = {"the scales of groups": op.group_scales, "the metadata of A": op.metadata, "the ends": op.ends}
            reads = [*map(MemoryUse, "AB", op.matrices), *(MemoryUse("scales", value) for value in op.scales)]
            reads += [MemoryUse(name, value) for name, value in others.items() if value is not None]
            reads += [] if op.c is None else [MemoryUse("C", op.c, op.maps[2])]
            reads += [MemoryUse("an input of the epilogue", value, map_) for value, map_ in op.placed_operands]
            writes = [MemoryUse("the result", op.d, op.maps[2])]
        case AttentionOp():
            others = {"lengths": op.lengths, "sinks": op.sinks, "the ends": op.ends}
            reads = [MemoryUse(name, value) for name, value in zip("QKV", op.matrices, strict=False)]
            reads += [MemoryUse("an operand of a function", value) for value in op.function_operands]
            reads += [MemoryUse(name, value) for name, value in others.items() if value is not None]
            reads += [MemoryUse("numbers of documents", value) for value in op.documents]
            writes = [MemoryUse("the result", op.o, op.maps[3])]
            if (lse := op.placed("lse")) is not None:
                writes.append(MemoryUse("lse", *lse))
        case AttentionGradientOp():
            reads = [*map(MemoryUse, INPUTS, op.inputs)]
            reads += [MemoryUse("numbers beside scores", value) for value in (*op.function_operands, *op.documents)]
            writes = [MemoryUse(*gradient) for gradient in op.gradients]
        case RowsOp():
            reads = [MemoryUse("an input", value, map_) for value, map_ in zip(op.inputs, op.maps, strict=False)]
            writes = [MemoryUse("the output", *each) for each in zip(op.outputs, op.written, strict=True)]
        case _:
            return None
    return reads, writes


def touched(op: Operation) -> tuple[set[SSAValue], set[SSAValue]] | None:
    """The memory that an operation (reads or writes, writes); None if that is not known."""
    if isinstance(op, LinalgStructuredOperation):
        return roots_of(all_operands(op)), roots_of(op.outputs)  # a body may load from memory as well
    uses = None if isinstance(op, AttentionOp) else uses_of(op)
    if uses is None:
        return None
    reads, writes = (roots_of([use.value for use in each]) for each in uses)
    return reads | writes, writes


def roots_of(values: Iterable[SSAValue]) -> set[SSAValue]:
    """The memory that values are views of."""
    return {root(value) for value in values if isinstance(value.type, MemRefType)}


def check_unshared(op: Operation, source: Operation | None = None, *, ask: bool = True) -> None:
    """Refuses an operation whose results share elements with what it reads elsewhere, or at computed places. Errors are
    located at its source, by default itself. Where only a call knows, the call decides, or with `ask` off nobody."""
    reads, writes = uses_of(op) or ([], [])
    if source is not None:  # which may have A and B the other way round
        reads = [read._replace(name="an input") if read.name in ("A", "B") else read for read in reads]
    for written in writes:
        _check(source or op, reads, written, ask)


def _check(op: Operation, reads: Iterable[MemoryUse], written: MemoryUse, ask: bool) -> None:
    if isinstance(memory := root(written.value).owner, memref.GetGlobalOp):
        fail(op, f"{op.name}: the result is a constant, memref.global {memory.name_}; write to other memory")
    for read in reads:
        if not isinstance(read.value.type, MemRefType) or root(read.value) != root(written.value):
            continue
        in_step, view = read.map is not None and read.map == written.map, static_view(read.value)
        same = read.value == written.value or (view is not None and view == static_view(written.value))
        if in_step and same:
            continue
        shared = _share(read.value, written.value)
        if shared is None and ask:
            _ask(op, written.value, read.value, or_same=in_step)
        elif shared is not False:
            fail(op, f"{op.name}: {read} and {written} {'share' if shared else 'may share'} elements, which some "
                 "threads would write before others have read them; write to other memory")  # fmt: skip


def _ask(op: Operation, written: SSAValue, read: SSAValue, *, or_same: bool) -> None:
    """Lets the call decide, if it is not asked already."""
    for use in written.uses:
        asked = use.operation
        if isinstance(asked, DisjointOp) and (asked.written, asked.read) == (written, read):
            return
    LocatedRewriter(op).insert(DisjointOp(written, read, or_same=or_same))


def _share(read: SSAValue, written: SSAValue) -> bool | None:
    """Whether two views of one memory overlap; None if that is unknown."""
    if unshaped(read) == unshaped(written):
        return True
    first, second = static_view(read), static_view(written)
    return None if first is None or second is None else overlap(first, second)


def may_share(first: SSAValue, second: SSAValue) -> bool:
    """Whether two views of one memory may have an element in common."""
    return _share(first, second) is not False


def unshaped(value: SSAValue) -> SSAValue:
    """The memory that a value is all of, in another shape."""
    while isinstance(value.owner, memref.CastOp | memref.CollapseShapeOp | memref.ExpandShapeOp):
        value = value.owner.operands[0]
    return value


class _UnknownError(Exception):
    """A number that is unknown while compiling."""


def _number(value: SSAValue) -> int:
    number = constant_value(value)
    if number is None:
        raise _UnknownError
    return number


def static_view(value: SSAValue) -> View | None:
    """The elements of a view, relative to the start of its memory; None if they are not known."""
    try:
        view = _view(value)
    except _UnknownError:
        return None
    return view if DYNAMIC_INDEX not in view.shape else None


def _view(value: SSAValue) -> View:
    op = value.owner
    if isinstance(op, memref.ViewOp):
        raise _UnknownError
    if isinstance(op, VIEWING):
        source = _view(op.operands[0])
        if DYNAMIC_INDEX in source.shape and isinstance(op, memref.CollapseShapeOp | memref.ExpandShapeOp):
            raise _UnknownError
        return seen(op, source, _number)
    kind = memory_of(value)
    strides = strides_of(kind)
    static = [stride for stride in strides or () if stride is not None]
    if strides is None or len(static) < len(strides):
        raise _UnknownError
    return View(0, kind.get_shape(), tuple(static))


def overlap(first: View, second: View) -> bool:
    """Whether two views of one memory have an element in common: exactly."""
    if 0 in (*first.shape, *second.shape):
        return False
    # An element of both: first.offset + sum of i * stride = second.offset + sum of j * stride, each index in its range.
    # Indices that are multiplied with the same stride count as one.
    ranges: dict[int, tuple[int, int]] = {}
    for view, sign in ((first, 1), (second, -1)):
        for size, stride in zip(view.shape, view.strides, strict=True):
            ends = sorted((0, (size - 1) * (sign if stride >= 0 else -sign)))
            low, high = ranges.get(abs(stride), (0, 0))
            ranges[abs(stride)] = low + ends[0], high + ends[1]
    terms = [(stride, *ranges[stride]) for stride in sorted(ranges, reverse=True) if stride]
    return _reached(terms, second.offset - first.offset)


def _reached(terms: list[tuple[int, int, int]], target: int) -> bool:
    """Whether strides times numbers, each from its least to its largest, add up to a target."""
    if not terms:
        return target == 0
    (stride, low, high), *rest = terms
    least = reduce(lambda total, term: total + term[0] * term[1], rest, 0)
    largest = reduce(lambda total, term: total + term[0] * term[2], rest, 0)
    # What the rest can reach leaves few numbers for the largest stride.
    first, last = max(low, -((largest - target) // stride)), min(high, (target - least) // stride)
    return any(_reached(rest, target - number * stride) for number in range(first, last + 1))


# Several operations that one replaces.


class NotFusedError(Exception):
    """Why something is not fused."""


def decline(reason: str) -> NoReturn:
    """Leaves operations as they are; with no reason, because they do not look like what is fused at all."""
    raise NotFusedError(reason)


@dataclass(frozen=True)
class Replacement:
    """The operations `used` to compute `results`; `last` is the last of them. The replacement takes its place, and
    reads memory whose roots are `read`, some of it as the operations `left` write it."""

    used: frozenset[Operation]
    last: Operation
    results: frozenset[SSAValue]
    read: Set[SSAValue]
    left: Set[Operation]

    @property
    def is_torn(self) -> bool:
        """Whether it computes what an operation writes, and also reads that from memory, at another place."""
        return not self.left.isdisjoint(self.used)

    @cached_property
    def dead(self) -> frozenset[Operation]:
        """The operations that nobody needs any more."""
        dead = self.used
        while kept := {op for op in dead if not self._serves(op, dead)}:
            dead = dead - kept
        return dead

    def _serves(self, op: Operation, others: Set[Operation]) -> bool:
        """Whether the memory that an operation writes is a result, or is read by `others` only."""
        if op is self.last:
            return True
        if not isinstance(op, LinalgStructuredOperation | MatmulOp):
            return False
        written = op.d if isinstance(op, MatmulOp) else op.outputs[0]
        if written in self.results or not isinstance(root(written).owner, memref.AllocOp | memref.AllocaOp):
            return written in self.results
        return users_of(root(written)) <= others

    def objection(self) -> str:
        """The reason why the replacement would change a visible result; "" if it would not."""
        if self.is_torn:
            return "elements of what it computes are also read at other places"
        if any(root(a) is root(b) and may_share(a, b) for a, b in combinations(self.results, 2)):
            return "two of its results share elements, which the later one writes last"
        op: Operation | None = min(self.used, key=place_in_block)
        read = set[SSAValue]()
        while op is not self.last and op is not None:
            if op in self.used:
                read |= self.read & {*map(root, all_operands(op))}
            if op not in self.dead:
                touches = touched(op)
                if touches is None:
                    return f"{name_of(op)} stands between its operations, and may touch any memory"
                if touches[1] & read:
                    return f"{op.name} between its operations writes what it reads"
                used = [value for value in all_operands(op) if root(value) in touches[0] | touches[1]]
                if any(
                    root(value) is root(result) and may_share(value, result)
                    for value in used
                    for result in self.results
                ):
                    return f"{op.name} between its operations uses its result"
            op = op.next_op
        return ""

    def replace(self, make: Callable[[], Operation]) -> None:
        """Inserts the new operation and erases the old ones. Raises NotFusedError if moving the work here would change
        a result, or there is nothing to replace."""
        if objection := self.objection():
            decline(objection)
        op = make()
        try:
            for made in with_functions(op):
                made.verify()
            check_unshared(op, self.last, ask=len(self.used) == 1)  # what several do one after the other is right
        except (DiagnosticException, NotFusedError) as error:
            op.erase()  # it reads views, which nothing else does
            decline(message_of(error) if isinstance(error, DiagnosticException) else str(error))
        LocatedRewriter(self.last).insert(with_functions(op))
        self._erase()

    def _erase(self) -> None:
        """Erases the operations, and views and allocations that nothing uses then."""
        operands = {value for op in self.dead for value in op.operands}
        memories = [value for value in operands if isinstance(value.owner, (*VIEWS, memref.AllocOp))]
        for op in sorted(self.dead, key=place_in_block, reverse=True):
            Rewriter.erase_op(op)
        for memory in memories:
            drop_unused(memory)


def place_in_block(op: Operation) -> int:
    """Where in its block an operation stands."""
    return op.parent.get_operation_index(op) if op.parent is not None else 0
