"""The operands of a product: matrices, vectors, numbers, views, their sizes, and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from xdsl.dialects import func, gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from ...dialect.isa.form import ElementType
from ...dialect.mlir.affine import loops_of, passed, steps_of, strides_of
from ...dialect.warp.attributes import BYTE, Memory, element_row, memory_of, memory_space
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import OperandForm
from ...dialect.warp.stored import StoredIntegers
from ...dialect.warp.tensor_maps import Im2colOp
from ...dialect.warp.views import DIVISIBLE, MatrixOp, PagedOp, WindowOp
from ..diagnostics import fail
from ..patterns import mixed, slice_of

if TYPE_CHECKING:
    from xdsl.dialects import tensor

Viewing: TypeAlias = (
    memref.SubviewOp | memref.CastOp | memref.ViewOp | memref.CollapseShapeOp | memref.ExpandShapeOp
    | memref.ReinterpretCastOp | WindowOp
)  # fmt: skip

VIEWING = (memref.SubviewOp, memref.CastOp, memref.ViewOp, memref.CollapseShapeOp, memref.ExpandShapeOp,
           memref.ReinterpretCastOp, WindowOp)  # fmt: skip
"""Operations of which a call knows what they make seen."""

VIEWS = (*VIEWING, Im2colOp, PagedOp)

WIDEST = 16
"""Bytes of the widest access."""


def root(value: SSAValue) -> SSAValue:
    """The memory of a view, or of a form of an operand."""
    while isinstance(value.owner, (*VIEWS, OperandForm)):
        value = value.owner.operands[0]
    return value


def users_of(memory: SSAValue) -> set[Operation]:
    """The operations that use memory or a view of it, except for `memref.dealloc`."""
    users: set[Operation] = set()
    for use in memory.uses:
        op = use.operation
        if isinstance(op, (*VIEWS, OperandForm)) and not use.index:
            users |= users_of(op.results[0])
        elif not isinstance(op, memref.DeallocOp):
            users.add(op)
    return users


def drop_unused(value: SSAValue) -> None:
    """Erases a view or an allocation without uses other than `memref.dealloc`, and then its source if that has none
    either."""
    op, uses = value.owner, [use.operation for use in value.uses]
    unused = all(isinstance(user, memref.DeallocOp) for user in uses)
    if not unused or not isinstance(op, (*VIEWS, memref.AllocOp, memref.AllocaOp)) or op.parent is None:
        return
    for user in uses:
        Rewriter.erase_op(user)
    source = op.operands[0] if isinstance(op, VIEWS) else None
    Rewriter.erase_op(op)
    if source is not None:
        drop_unused(source)


class View(NamedTuple):
    """Elements of memory: the first one's distance from the start, sizes, and distances along each dimension."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} from element {self.offset} with strides {list(self.strides)}"


Groups: TypeAlias = Sequence[Sequence[int]]

Number = Callable[[SSAValue], int]
"""What an index is in this call."""


ALIGNED = 16
"""Bytes: memory starts at a multiple of these."""


class WindowError(Exception):
    """With the sizes of a call, loops exceed the bounds of their memory."""


def seen(op: Viewing, source: View, number: Number) -> View:
    """The view that an operation makes of a view of memory."""
    match op:
        case memref.CastOp():
            return source
        case memref.ViewOp():
            return _typed(op, number)
        case memref.SubviewOp():
            return _part(op, source, number)
        case memref.ReinterpretCastOp():  # from where the memory begins
            (offset,), sizes, strides = slice_of(op, number)
            return View(offset, tuple(sizes), tuple(strides))
        case WindowOp():
            return _window(op, source, number)
        case memref.CollapseShapeOp():
            shape = tuple(math.prod(source.shape[d] for d in group) for group in groups_of(op))
            last = (_innermost(source.shape, group) for group in groups_of(op))
            return View(source.offset, shape, tuple(map(source.strides.__getitem__, last)))
        case memref.ExpandShapeOp():
            sizes = mixed(op.static_output_shape, op.output_shape)
            shape = tuple(size if isinstance(size, int) else number(size) for size in sizes)
            strides = [] if source.shape else [1] * len(shape)
            for group, stride in zip(groups_of(op), source.strides, strict=True):
                strides += [stride * math.prod(shape[d + 1 : group[-1] + 1]) for d in group]
            return View(source.offset, shape, tuple(strides))


def _typed(op: memref.ViewOp, number: Number) -> View:
    """The elements of another type in bytes, counted as such."""
    kind, shape, start = memory_of(op.result), _shape(op, number), number(op.byte_shift)
    row = element_row(kind.element_type)
    if row is None or row.bits < BYTE or start % ALIGNED:
        raise WindowError(f"{kind} starts at byte {start}; kernels take whole bytes from multiples of {ALIGNED}")
    return View(start * BYTE // row.bits, shape, tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))))


def _shape(op: memref.ViewOp | WindowOp, number: Number) -> tuple[int, ...]:
    sizes = iter(op.sizes)
    return tuple(size if size >= 0 else number(next(sizes)) for size in memory_of(op.result).get_shape())


def _part(op: memref.SubviewOp, source: View, number: Number) -> View:
    offsets, sizes, steps = slice_of(op, number)
    offset = source.offset + sum(o * s for o, s in zip(offsets, source.strides, strict=True))
    strides = [step * stride for step, stride in zip(steps, source.strides, strict=True)]
    kept = kept_dimensions(sizes, memory_of(op.result).get_shape())
    return View(offset, tuple(sizes[d] for d in kept), tuple(strides[d] for d in kept))


def _window(op: WindowOp, source: View, number: Number) -> View:
    shape = _shape(op, number)
    if op.padded is None and (dimension := passed(op.along, shape, source.shape)) is not None:
        raise WindowError(
            f"loops of {'x'.join(map(str, shape))} along {op.along} pass the end of dimension {dimension} of memory of "
            f"{'x'.join(map(str, source.shape))}"
        )
    steps, first = steps_of(op.along, source.strides)
    return View(source.offset + (0 if op.padded else first or 0), shape, tuple(step or 0 for step in steps))


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The dimensions that a rank-reduced result keeps. The others have size 1."""
    kept: list[int] = []
    for dimension, size in enumerate(sizes):
        spare = len(sizes) - dimension > len(shape) - len(kept)
        fits = len(kept) < len(shape) and shape[len(kept)] in (size, DYNAMIC_INDEX)
        if fits and not (size == 1 and spare and shape[len(kept)] != 1):
            kept.append(dimension)
    return kept


def part_of(memory: SSAValue, first: Sequence[int], sizes: Sequence[int]) -> memref.SubviewOp:
    """A part of memory of these sizes, from these indices on."""
    return memref.SubviewOp.from_static_parameters(memory, memory_of(memory), first, sizes, [1] * len(sizes))


def expand(value: SSAValue, parts: Sequence[Sequence[int]], sizes: Sequence[SSAValue] = ()) -> memref.ExpandShapeOp:
    """Memory with each dimension split into several of these sizes. `sizes` has the dynamic ones."""
    kind = memory_of(value)
    steps = [
        None if stride is None or min(inner := part[at + 1 :], default=0) < 0 else stride * math.prod(inner)
        for stride, part in zip(strides_of(kind) or (), parts, strict=True)
        for at in range(len(part))
    ]
    return expanded(value, _seen_with(kind, sum(map(list, parts), list[int]()), steps), numbered(parts), sizes)


def numbered(parts: Sequence[Sequence[object]]) -> list[list[int]]:
    """The new dimensions of each old one, if it becomes as many as it has parts."""
    places = iter(range(sum(map(len, parts))))
    return [[next(places) for _ in part] for part in parts]


def collapse(value: SSAValue, groups: Groups) -> memref.CollapseShapeOp:
    """Memory with the dimensions of each group merged. The last dimension of more than one element gives the stride."""
    kind, strides = memory_of(value), strides_of(memory_of(value)) or ()
    shape = kind.get_shape()
    sizes = [math.prod(s) if min(s := [shape[d] for d in group]) >= 0 else DYNAMIC_INDEX for group in groups]
    return collapsed(value, _seen_with(kind, sizes, [strides[_innermost(shape, group)] for group in groups]), groups)


def _seen_with(kind: Memory, shape: Sequence[int], strides: Sequence[int | None]) -> Memory:
    """The type of memory with other dimensions; without a layout if the memory has none."""
    layout = NoneAttr() if isinstance(kind.layout, NoneAttr) else StridedLayoutAttr(strides, kind.get_offset())
    return MemRefType(kind.element_type, shape, layout, kind.memory_space)


def expanded(value: SSAValue, kind: Memory, groups: Groups, sizes: Sequence[SSAValue] = ()) -> memref.ExpandShapeOp:
    """Memory with some dimensions split: `groups` has the new ones of each old one, `sizes` those that are dynamic."""
    shape = DenseArrayBase.from_list(i64, kind.get_shape())
    return memref.ExpandShapeOp.create(
        operands=[value, *sizes],
        properties={"reassociation": reassociation(groups), "static_output_shape": shape},
        result_types=[kind],
    )


def collapsed(value: SSAValue, kind: Memory, groups: Groups) -> memref.CollapseShapeOp:
    """Memory with several dimensions as one; `groups` says which."""
    return memref.CollapseShapeOp.create(
        operands=[value], properties={"reassociation": reassociation(groups)}, result_types=[kind]
    )


def reassociation(groups: Groups) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    """Groups of dimensions as an operation has them."""
    return ArrayAttr(ArrayAttr(IntegerAttr(d, i64) for d in group) for group in groups)


def groups_of(
    op: memref.CollapseShapeOp | memref.ExpandShapeOp | tensor.CollapseShapeOp | tensor.ExpandShapeOp,
) -> list[list[int]]:
    """The groups of dimensions that are merged, or that come from one."""
    return [[d.value.data for d in group] for group in op.reassociation]


def _innermost(shape: Sequence[int], group: Sequence[int]) -> int:
    """Of dimensions that are merged the one whose stride they have: the last one with more than one index."""
    return next((d for d in reversed(group) if shape[d] != 1), group[-1])


# Sizes that are not known while compiling: what stands for them, and what is known of them.
#
# Passes reason about a product with numbers. For a size or stride that only the caller knows they use a sample: a
# number of the usual magnitude that is divisible by what the caller promises and by nothing more, so that whatever
# follows from its divisors is true of every size. What needs the size itself takes it from the memory when the kernel
# runs.

SIZE_LIMIT = (1 << 31) - (1 << 16)
"""Sizes that only a call knows are below it: kernels compute with indices of 32 bits, and a little beyond the end."""

USUAL = 4095
"""About how large a dynamic size is taken to be when a schedule is chosen."""


def sample(divisor: int, usual: int = USUAL) -> int:
    """An odd multiple of a divisor, of the usual magnitude."""
    return divisor * ((max(1, usual // divisor) - 1) | 1)


def divisor_of(value: SSAValue) -> int:
    """A divisor that the function promises for an argument's dynamic size along its contiguous dimension, for its
    dynamic strides and its dynamic offset."""
    owner = value.owner
    if isinstance(owner, MatrixOp | PagedOp):
        return divisor_of(owner.memory)
    if isinstance(owner, memref.CastOp) and isinstance(assumed := owner.attributes.get(DIVISIBLE), IntegerAttr):
        return math.lcm(max(1, assumed.value.data), divisor_of(owner.source))
    return promised(value)


def promised(value: SSAValue) -> int:
    """The `warp.divisible` of an argument of a kernel, or of a function; 1 without, and for other values."""
    if not isinstance(value, BlockArgument):
        return 1
    function, listed = value.block.parent_op(), None
    if isinstance(function, gpu.FuncOp):
        listed = function.attributes.get(DIVISIBLE)
    elif isinstance(function, func.FuncOp):
        listed = function.arg_attrs
    every = cast("ArrayAttr[Attribute]", listed).data if isinstance(listed, ArrayAttr) else ()
    own = every[value.index] if value.index < len(every) else None
    divisor = own.data.get(DIVISIBLE) if isinstance(own, DictionaryAttr) else own
    return max(1, divisor.value.data) if isinstance(divisor, IntegerAttr) else 1


def strides(kind: Memory, sizes: tuple[int, ...], divisor: int) -> tuple[int, ...]:
    """The strides of memory, with samples in place of dynamic ones. `sizes` has samples already."""
    strides_, plain = strides_of(kind) or (), isinstance(kind.layout, NoneAttr)
    if len(strides_) != len(sizes):
        return ()
    return tuple(
        stride if stride is not None else math.prod(sizes[i + 1 :]) if plain else sample(divisor)
        for i, stride in enumerate(strides_)
    )


def pitch(kind: Memory, column: int, divisor: int, sizes: tuple[int, ...] = ()) -> int:
    """A divisor of the offset of every row in memory, in elements. The dimension `column` is contiguous. `sizes` are
    those of memory, with samples for dynamic ones; without them, they follow from the divisor."""
    sizes_ = sizes or tuple(
        size if size >= 0 else sample(divisor if i == column else 1) for i, size in enumerate(kind.get_shape())
    )
    steps = [stride for i, stride in enumerate(strides(kind, sizes_, divisor)) if i != column]
    offset = kind.get_offset()
    return math.gcd(divisor if offset is None else offset, *steps)


MatrixPlace: TypeAlias = tuple[SSAValue, tuple[int | None, int | None], tuple[int, ...]]
"""Memory, the dimensions that are the rows and columns of a matrix in it, and the loops of the others."""


@dataclass(frozen=True)
class MatrixOperand:
    """A matrix of a product, or a batch of them: its memref, and whether memory holds its transpose. `element` is the
    type that is multiplied, added or stored. If memory has another type, that is `stored`, in lines if `packed`.
    `dimensions` of the memref are the rows and the columns; columns are contiguous. `batch` has the loop of each other
    dimension. `samples` has a number in place of each dynamic size (`sample`). `divisor` divides columns, strides and
    offset."""

    name: str
    value: SSAValue
    type: Memory
    element_type: TypeAttribute
    element: ElementType
    transposed: bool
    dimensions: tuple[int, int] = (0, 1)
    batch: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    divisor: int = 1
    stored: StoredIntegers | None = None
    packed: bool = False

    @property
    def memory_bits(self) -> int:
        """Bits of an element in memory."""
        return (self.element if self.stored is None else self.stored.element).memory_bits

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The size of each dimension, or a sample."""
        return tuple(s if s >= 0 else self.samples[i] for i, s in enumerate(self.type.get_shape()))

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in memory."""
        row, column = self.dimensions
        return self.sizes[row], self.sizes[column]

    @property
    def loops(self) -> tuple[int, int]:
        """The dimensions of the memref along the first and the second loop of the operand."""
        row, column = self.dimensions
        return (column, row) if self.transposed else (row, column)

    @property
    def pitch(self) -> int | None:
        """Elements from one row to the next; None if they are not known."""
        strides = strides_of(self.type)
        return None if strides is None else strides[self.dimensions[0]]

    @property
    def is_compact(self) -> bool:
        """Whether the memref is the matrix, of known size, row by row without gaps, from the start of an allocation."""
        strides = strides_of(self.type) or (None,)
        static = self.is_whole and min(self.type.get_shape()) >= 0
        return static and strides[0] == self.shape[1] and self.type.get_offset() == 0

    @cached_property
    def aligned_bits(self) -> int:
        """Bits that divide the length of every row, and the place of each in memory."""
        row = -(-self.shape[1] * self.memory_bits // BYTE) * BYTE
        return math.gcd(row, self.pitch_bits)

    @property
    def access_bytes(self) -> int:
        """The widest access that every row allows."""
        return math.gcd(WIDEST, self.aligned_bits // BYTE)

    @cached_property
    def pitch_bits(self) -> int:
        """Bits that divide the place of every row in memory."""
        return pitch(self.type, self.dimensions[1], self.divisor, self.sizes) * self.memory_bits

    @property
    def place(self) -> MatrixPlace:
        """A key that distinguishes the matrices of one memory."""
        return self.value, self.dimensions, self.batch

    @property
    def is_whole(self) -> bool:
        """Whether the memref is the matrix, row by row."""
        return not self.batch and self.dimensions == (0, 1)


class VectorOperand(NamedTuple):
    """A scalar operand of an epilogue, or a vector along one of D's axes, "m" or "n"."""

    name: str
    value: SSAValue
    axis: str = ""
    divisor: int = 1


class Spread(NamedTuple):
    """An epilogue operand that is not a matrix like D: transposed, strided, repeated for all rows or columns, or one
    for each matrix of a batch. `dimensions` are along m and n, or None. `batch` has the loops of the others."""

    name: str
    value: SSAValue
    dimensions: tuple[int | None, int | None]
    batch: tuple[int, ...]
    divisor: int = 1

    @property
    def place(self) -> MatrixPlace:
        """A key that distinguishes the matrices of one memory."""
        return self.value, self.dimensions, self.batch

    @property
    def is_whole(self) -> bool:
        """It is always seen through `warp.matrix`."""
        return False


KernelArgument: TypeAlias = MatrixOperand | VectorOperand | Spread
"""What a kernel is given."""


def each_once(operands: Iterable[KernelArgument]) -> tuple[KernelArgument, ...]:
    """The first operand of each memory and of each number."""
    operands_: dict[SSAValue, KernelArgument] = {}
    for operand in operands:
        operands_.setdefault(operand.value, operand)
    return tuple(operands_.values())


EXTENTS = "warp.extents"
"""The attribute of a function with a map for each result: its sizes by those of all arguments, in their order, of which
an index is one. It is there where a size is computed."""

GLOBAL_SPACE = 0
"""The memory space of operands: none named, or 0."""


def read_matrix(
    op: MatmulOp,
    name: str,
    value: SSAValue,
    loops: tuple[int, int],
    sizes: Mapping[int, int],
    map_: AffineMap,
    element: ElementType | None = None,
) -> MatrixOperand:
    """Reads an operand, or an operand that is read with it, as a matrix in memory with rows and columns along two
    loops. Raises a located diagnostic for memory and elements that are not lowered."""
    kind = memory_of(value)
    if memory_space(kind) != GLOBAL_SPACE:
        fail(op, f"expected {name} in global memory, got {kind}")
    stored, element_type = element_row(kind.element_type), kind.element_type
    if stored is None or not isinstance(element_type, TypeAttribute):
        fail(op, f"expected {name} of a type that matrix instructions know, got {kind.element_type}")
    along = loops_of(map_)
    axes = tuple(along.index(op.outer + loop) for loop in loops)
    row, column = lie_in_memory(op, name, kind, (axes[0], axes[1]))
    batch = tuple(loop for dimension, loop in enumerate(along) if dimension not in axes)
    lengths = tuple(s if s >= 0 else sizes[along[i]] for i, s in enumerate(kind.get_shape()))
    types = (element_type, element or stored)
    turned = (row, column) != axes
    return MatrixOperand(name, value, kind, *types, turned, (row, column), batch, lengths, divisor_of(value))


def lie_in_memory(op: Operation, name: str, kind: Memory, axes: tuple[int, int]) -> tuple[int, int]:
    """The dimensions of the rows and of the columns, which are contiguous, out of two dimensions of memory. Raises a
    located diagnostic if neither dimension is contiguous."""
    if (lines := lines_of(kind, axes)) is None:
        fail(op, f"expected the rows or the columns of {name} to be contiguous, got {kind}")
    return lines


def lines_of(kind: Memory, axes: tuple[int, int]) -> tuple[int, int] | None:
    """Two dimensions of memory, the contiguous one last; None if neither is."""
    strides = strides_of(kind)
    lower, upper = sorted(axes)
    ordered = (lower, upper), (upper, lower)
    return next(((row, column) for row, column in ordered if strides is not None and strides[column] == 1), None)
