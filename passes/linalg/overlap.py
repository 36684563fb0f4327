"""Operations that write memory which they also read.

The CTAs of a kernel run in no order: one may write an element before another has read it. What an operation writes
must therefore share no element with what it reads, but for elements that are read only where the same one is written:
C of a product, and inputs of an elementwise operation, in place. Two views of one memory that share an element are an
error where the operation stands. Where only a call knows, a `warp.disjoint` before the operation has the call refused.
Different arguments of a function are told apart when it is called, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.warp.assumptions import DisjointOp
from ...dialect.warp.attention import AttentionOp, RowsOp
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.views import strides_of
from ..builder import constant_value
from ..diagnostics import fail
from .elementwise import Elementwise
from .operand import VIEWING, View, root, seen


class MemoryUse(NamedTuple):
    """Memory that an operation reads or writes, and the loops that it does so along; None if not element by element."""

    name: str
    value: SSAValue
    map: AffineMap | None = None

    def __str__(self) -> str:
        hint = _whole(self.value).name_hint if self.value.name_hint is None else self.value.name_hint
        return self.name if hint is None else f"{self.name} (%{hint})"


def check_product(op: Operation, product: MatmulOp) -> None:
    """Refuses a product whose result shares elements with what it reads; errors are about `op`, which it is made of."""
    names = ("A", "B") if op is product else ("an input", "an input")
    reads = [MemoryUse(name, value) for name, value in zip(names, product.matrices, strict=True)]
    reads += [MemoryUse("scales", value) for value in product.scales]
    reads += [] if product.group_scales is None else [MemoryUse("the scales of groups", product.group_scales)]
    reads += [] if product.metadata is None else [MemoryUse("the metadata of A", product.metadata)]
    reads += [] if product.c is None else [MemoryUse("C", product.c, product.maps[2])]
    reads += [MemoryUse("an input of the epilogue", value, map_) for value, map_ in product.placed_operands]
    _check(op, reads, MemoryUse("the result", product.d, product.maps[2]))


def check_attention(op: Operation, attention: AttentionOp) -> None:
    """Refuses an attention whose result shares elements with what it reads; errors are about `op`."""
    reads = [MemoryUse(name, value) for name, value in zip("QKV", attention.matrices, strict=False)]
    reads += [MemoryUse("an operand of the scores", value) for value in attention.score_operands]
    reads += [] if attention.lengths is None else [MemoryUse("lengths", attention.lengths)]
    _check(op, reads, MemoryUse("the result", attention.o, attention.maps[3]))


def check_rows(op: Operation, rows: RowsOp) -> None:
    """Refuses rows whose output shares elements with an input that is read elsewhere; errors are about `op`.

    Each warp reads its rows before it writes them.
    """
    *maps, written = rows.maps
    reads = [MemoryUse("an input", value, map_) for value, map_ in zip(rows.inputs, maps, strict=True)]
    _check(op, reads, MemoryUse("the output", rows.output, written))


def check_elementwise(found: Elementwise) -> None:
    """Refuses an elementwise operation whose output shares elements with an input that is read elsewhere."""
    inputs = zip(found.inputs, found.maps, strict=True)
    reads = [MemoryUse("an input", value, map_) for i, (value, map_) in enumerate(inputs) if found.reads(i)]
    output = len(found.op.inputs)
    _check(found.op, reads, MemoryUse("the output", found.output, found.maps[output]))


def _check(op: Operation, reads: Iterable[MemoryUse], written: MemoryUse) -> None:
    if isinstance(memory := root(written.value).owner, memref.GetGlobalOp):
        fail(op, f"{op.name}: the result is a constant, memref.global {memory.name_}; write to other memory")
    for read in reads:
        if not isinstance(read.value.type, MemRefType) or root(read.value) != root(written.value):
            continue
        in_step = read.map is not None and read.map == written.map
        if in_step and _is_same(read.value, written.value):
            continue
        shared = _share(read.value, written.value)
        if shared:
            fail(op, f"{op.name}: {read} and {written} share elements, which some threads would write before others "
                 "have read them; write to other memory")  # fmt: skip
        if shared is None:
            _ask(op, written.value, read.value, or_same=in_step)


def _ask(op: Operation, written: SSAValue, read: SSAValue, *, or_same: bool) -> None:
    """Lets the call decide, if it is not asked already."""
    for use in written.uses:
        asked = use.operation
        if isinstance(asked, DisjointOp) and (asked.written, asked.read) == (written, read):
            return
    asking = DisjointOp(written, read, or_same=or_same)
    asking.location = op.location
    Rewriter.insert_op(asking, InsertPoint.before(op))


def _is_same(read: SSAValue, written: SSAValue) -> bool:
    """Whether each index of two views is known to be one element."""
    if read == written:
        return True
    view = known_view(read)
    return view is not None and view == known_view(written)


def _share(read: SSAValue, written: SSAValue) -> bool | None:
    """Whether two views of one memory have an element in common; None if that is not known."""
    if _whole(read) == _whole(written):
        return True
    first, second = known_view(read), known_view(written)
    return None if first is None or second is None else overlap(first, second)


def _whole(value: SSAValue) -> SSAValue:
    """The memory that a value is all of, in another shape."""
    while isinstance(value.owner, memref.CastOp | memref.CollapseShapeOp | memref.ExpandShapeOp):
        value = value.owner.operands[0]
    return value


class _UnknownError(Exception):
    """A number that only a call knows."""


def _number(value: SSAValue) -> int:
    found = constant_value(value)
    if found is None:
        raise _UnknownError
    return found


def known_view(value: SSAValue) -> View | None:
    """What a value is of the memory that it is a view of, counted from its start; None if that is not known."""
    try:
        view = _view(value)
    except _UnknownError:
        return None
    return view if DYNAMIC_INDEX not in view.shape else None


def _view(value: SSAValue) -> View:
    op = value.owner
    if isinstance(op, VIEWING):
        source = _view(op.operands[0])
        if DYNAMIC_INDEX in source.shape and isinstance(op, memref.CollapseShapeOp | memref.ExpandShapeOp):
            raise _UnknownError
        return seen(op, source, _number)
    kind = memory_of(value)
    strides = None if isinstance(op, memref.ReinterpretCastOp) else strides_of(kind)
    known = [stride for stride in strides or () if stride is not None]
    if strides is None or len(known) < len(strides):
        raise _UnknownError
    return View(0, kind.get_shape(), tuple(known))


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
    most = reduce(lambda total, term: total + term[0] * term[2], rest, 0)
    # What the rest can reach leaves few numbers for the largest stride.
    first, last = max(low, -((most - target) // stride)), min(high, (target - least) // stride)
    return any(_reached(rest, target - number * stride) for number in range(first, last + 1))
