"""Convolutions of few channels, of small groups, or of channels before pixels, by others that tensor copies read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, MemRefType, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, IndexOp, TransposeOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import FIXED, Nest, NestAccess, generic, loops_of, map_along
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.views import WindowOp
from ..diagnostics import chose
from ..patterns import IndexBuilder, operations_between
from .constants import number_of, permuted
from .contraction import multiplies_images
from .element_expressions import decline, writer_before
from .image_windows import ALIGNED, PANEL, ImageProduct, Padded, are_contiguous
from .operand import collapse, drop_unused, expand, numbered, part_of, root, users_of


class Widened(ImageProduct):
    """The same product, of images whose pixels contain the channels of all taps of a filter row. Tensor copies cannot
    read rows of a few channels, such as three colours. So the images are copied to pixels of `per_pixel` channels, a
    power of two. The taps of a row are then contiguous: `along` elements, which begin at a multiple of 16 bytes for
    each pixel of the result. These wide pixels overlap."""

    @property
    def pays(self) -> bool:
        """Whether the images need it, and the filter's channels are contiguous with its taps. The filter is B, or the
        result, which then starts from a number."""
        op, filter_, (tap, dilation, _) = self.op, self.filter, self.filter.taps[-1]
        loops = loops_of(op.maps[2 if self.is_gradient else 1])
        adjacent = tap in loops and loops[loops.index(tap) :][:2] == (tap, filter_.channel)
        few = self.channels < ALIGNED and (op.c is None if self.is_gradient else self.side == 0)
        of_channels = self.is_gradient or filter_.channel == op.outer + 2  # of one channel, k may be along the taps
        plain = dilation == 1 and not any(filter_.first) and filter_.group == FIXED
        return few and adjacent and of_channels and plain

    def replace(self) -> tuple[MatmulOp, WindowOp]:
        """Puts the product in the place of the other one."""
        (self.pixel, self.step, self.width), (self.tap, _, taps) = self.filter.pixels[-1], self.filter.taps[-1]
        self.per_pixel = next(n for n in (1, 2, 4, 8) if n >= self.channels and self.step * n % ALIGNED == 0)
        self.along, padded = taps * self.per_pixel, Padded.of(self.window.memory, self.op)
        padded = padded if padded is not None and padded.copy is not None else None
        op, images = self.op, self._images(padded)
        filter_, loops = (op.d, loops_of(op.maps[2])) if self.is_gradient else (op.b, loops_of(op.maps[1]))
        larger, sizes = self._larger(filter_, loops)
        copied = self.builder.insert(part_of(larger, [0] * len(loops), memory_of(filter_).get_shape())).result
        if self.is_gradient:
            a, b = (images.result, op.b) if self.side == 0 else (op.a, images.result)
            made = op.like(a=a, b=b, d=self._in_row(larger, loops, sizes))
        else:
            self.builder.insert(CopyOp([filter_], [copied], []))
            made = op.like(a=images.result, b=self._in_row(larger, loops, sizes))
        _take_place(op, made, self.window)
        if self.is_gradient:
            Rewriter.insert_op(CopyOp([copied], [filter_], []), InsertPoint.after(made))
        if padded is not None:
            padded.drop_unused(padded.images())
        return made, images

    def _images(self, padded: Padded | None) -> WindowOp:
        *outer, size, _ = memory_of(self.window.memory).get_shape()
        needed = max(size * self.per_pixel, (self.width - 1) * self.step * self.per_pixel + self.along)
        rounded = -(-needed // ALIGNED) * ALIGNED // self.per_pixel
        source, low = (self.window.memory, ()) if padded is None else (padded.images(), padded.low)
        kind, rank, first = memory_of(source), len(outer) + 2, [0, *(low or [0] * len(outer)), 0]
        copied = self.builder.filled(MemRefType(kind.element_type, [*outer, rounded, self.per_pixel]), 0)
        part = self.builder.insert(part_of(copied, first, kind.get_shape())).result
        self.builder.insert(CopyOp([source], [part], []))
        rows = self.builder.insert(collapse(copied, [*([d] for d in range(rank - 2)), [rank - 2, rank - 1]])).result
        *own, pixel, element = map(AffineDimExpr, range(rank))
        over = AffineMap(rank, 0, (*own, pixel * (self.step * self.per_pixel) + element))
        seen = self.builder.insert(WindowOp(rows, over, [*outer, self.width, self.along])).result
        forms, sizes = self.window.along, self.sizes | {self.tap: 1, self.filter.channel: self.along}
        pixel, tap = (AffineDimExpr(self.loops.index(loop)) for loop in (self.pixel, self.tap))
        along = AffineMap(forms.num_dims, 0, (*forms.results[:-2], pixel + tap, forms.results[-1]))
        return self.builder.insert(WindowOp(seen, along, [sizes[loop] for loop in self.loops]))

    def _larger(self, filter_: SSAValue, loops: Sequence[int]) -> tuple[SSAValue, list[int]]:
        """Memory for a filter in rows of as many elements as images have, and its sizes with one tap in a row."""
        sizes, at = [*memory_of(filter_).get_shape()], loops.index(self.tap)
        sizes[at : at + 2] = -(-self.along // ALIGNED) * ALIGNED // self.per_pixel, self.per_pixel
        kind, is_read = MemRefType(memory_of(filter_).element_type, sizes), filter_ is self.op.b
        larger = self.builder.filled(kind, 0) if is_read else self.builder.empty(kind)
        # Zeros behind the last tap would meet pixels that no tap reads, which may be no numbers.
        sizes[at : at + 2] = 1, self.along
        return larger, sizes

    def _in_row(self, larger: SSAValue, loops: Sequence[int], sizes: Sequence[int]) -> SSAValue:
        """The filter with one tap in a row, of all its channels."""
        at, places = loops.index(self.tap), [[d] for d in range(len(loops))]
        flat = self.builder.insert(collapse(larger, [*places[:at], [at, at + 1], *places[at + 2 :]])).result
        parts = [[size] for size in memory_of(flat).get_shape()]
        parts[at].insert(0, 1)
        padded = self.builder.insert(expand(flat, parts)).result
        return self.builder.insert(part_of(padded, [0] * len(sizes), sizes)).result


def _take_place(op: MatmulOp, made: MatmulOp, window: WindowOp) -> None:
    """Puts a product in the place of another one, and drops what only that one used."""
    made.attributes |= op.attributes
    through = op.through
    Rewriter.replace_op(op, made, [])
    drop_forms([through])
    drop_unused(window.result)


ROWS = 128
"""Pixels of a tile."""


class Blocked(ImageProduct):
    """The same product, of blocks of `count` groups as one group, which fill the boxes of copies better. The filter of
    a block has those of its groups on its diagonal, and zeros beside them. If the filter is the result, the products of
    all pairs of groups of a block are computed, of which the diagonal is copied. So what is no finite number reaches
    the results of a block, not only of a group."""

    def __init__(self, op: MatmulOp, window: WindowOp, side: int) -> None:
        super().__init__(op, window, side)
        self.group, self.made, self.count = self.filter.group, dict[SSAValue, SSAValue](), 1
        if self.group == FIXED:
            return
        others = loops_of(op.maps[1 - side])
        own = (op.outer, op.outer + 1)  # m and n
        self.inner = self.filter.channel, next(loop for loop in own if loop in others)
        self.sizes.update(zip(others, memory_of(op.a_and_b[1 - side]).get_shape(), strict=True))
        groups = self.sizes[self.group]
        self.count = min((n for n in range(1, groups + 1) if groups % n == 0), key=self._cost)

    @property
    def pays(self) -> bool:
        """Whether groups are small."""
        return self.count > 1

    def _cost(self, count: int) -> int:
        """What blocks of so many groups take: boxes, times the rows of A and B in each (`ROWS` pixels and features)."""
        groups, channels, features = (self.sizes[loop] for loop in (self.group, *self.inner))
        return groups // count * -(-count * channels // PANEL) * (ROWS + count * features)

    def replace(self) -> tuple[MatmulOp, WindowOp]:
        """Puts the product in the place of the other one. Raises NotFusedError if an operand does not lie so."""
        op, loops = self.op, [loops_of(map_) for map_ in self.op.maps]
        if self.is_gradient and op.c is not None:
            decline("the gradient of a filter of small groups is added to something")
        window = self._images()
        other, start = op.a_and_b[1 - self.side], op.init if op.c is None else self._merged(op.c, loops[2])
        if self.is_gradient:
            other, d = self._merged(other, loops[1 - self.side]), self._blocks(op.d, loops[2])
        else:
            other, d = self._spread(other, loops[1 - self.side]), self._merged(op.d, loops[2])
        a, b = (window.result, other) if self.side == 0 else (other, window.result)
        made = op.like(a=a, b=b, d=d, start=start, through=self._epilogue())
        filter_ = op.d
        _take_place(op, made, self.window)
        if self.is_gradient:
            self._copy_diagonal(d, filter_, loops[2], self.builder.after(made))
        return made, window

    def _images(self) -> WindowOp:
        """The window of images whose groups are blocks."""
        dimensions = [FIXED] * (memory_of(self.window.memory).get_num_dims() - 2)
        memory = self._merged(self.window.memory, (*dimensions, self.group, self.inner[0]))
        return self.builder.insert(WindowOp(memory, self.window.along, [*map(self._size, self.loops)]))

    def _size(self, loop: int) -> int:
        """The size of a loop of blocks."""
        if loop == self.group:
            return self.sizes[loop] // self.count
        return self.sizes[loop] * (self.count if loop in self.inner else 1)

    def _merged(self, value: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Memory of groups as that of blocks."""
        inside = [loop for loop in self.inner if loop in loops]
        if value in self.made or (not inside and self.group not in loops):
            return self.made.get(value, value)
        at = loops.index(self.group) if self.group in loops else 0
        if loops[at : at + 2] != (self.group, *inside) or not are_contiguous(value, (at, at + 1)):
            decline(f"expected the channels of all groups side by side, got {value.type}")
        places = [[d] for d in range(len(loops))]
        flat = self.builder.insert(collapse(value, [*places[:at], [at, at + 1], *places[at + 2 :]])).result
        parts = [[size] for size in memory_of(flat).get_shape()]
        parts[at] = [*map(self._size, loops[at : at + 2])]
        self.made[value] = self.builder.insert(expand(flat, parts)).result  # C stays the memory of D, where it is
        return self.made[value]

    def _blocks(self, filter_: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Memory for the blocks of a filter."""
        return self.builder.empty(MemRefType(memory_of(filter_).element_type, [*map(self._size, loops)]))

    def _numbered(
        self, builder: IndexBuilder, value: SSAValue, loops: Sequence[int], split: Sequence[int]
    ) -> tuple[SSAValue, list[list[int]]]:
        """Memory with each dimension of some loops as two, one of which is the number of a group in its block; and the
        dimensions for each loop."""
        parts, count = [[size] for size in memory_of(value).get_shape()], self.count
        for at, loop in enumerate(loops):
            (size,) = parts[at]
            if loop in split:
                parts[at] = [size // count, count] if loop == self.group else [count, size // count]
        return builder.insert(expand(value, parts)).result, numbered(parts)

    def _spread(self, filter_: SSAValue, loops: Sequence[int]) -> SSAValue:
        """Blocks with a filter on the diagonal."""
        blocks = self._blocks(filter_, loops)
        written, places = self._numbered(self.builder, blocks, loops, self.inner)
        read, _ = self._numbered(self.builder, filter_, loops, [self.group])
        numbers = [places[loops.index(loop)][0] for loop in self.inner]
        along = [place for loop, part in zip(loops, places, strict=True)
                 for place in ((*part, numbers[0]) if loop == self.group else part[-1:])]  # fmt: skip
        rank, element = memory_of(written).get_num_dims(), memory_of(filter_).element_type

        def chosen(of_filter: SSAValue, _: SSAValue) -> SSAValue:
            first, second = map(IndexOp, numbers)
            same = arith.CmpiOp(first, second, "eq")
            return arith.SelectOp(same, of_filter, number_of(element)).result

        self.builder.computed([read], written, [map_along(rank, along), AffineMap.identity(rank)], chosen)
        return blocks

    def _copy_diagonal(self, blocks: SSAValue, filter_: SSAValue, loops: Sequence[int], builder: IndexBuilder) -> None:
        """Copies the diagonal of blocks to the filter."""
        written, places = self._numbered(builder, filter_, loops, [self.group])
        shape, number = memory_of(written).get_shape(), AffineDimExpr(places[loops.index(self.group)][1])
        results = [AffineDimExpr(first) + number * self.sizes[loop] if loop in self.inner else AffineDimExpr(first)
                   for loop, (first, *_) in zip(loops, places, strict=True)]  # fmt: skip
        seen = builder.insert(WindowOp(blocks, AffineMap(len(shape), 0, tuple(results)), shape)).result
        builder.insert(CopyOp([seen], [written], []))

    def _epilogue(self) -> SSAValue | None:
        """The epilogue, of operands of blocks."""
        before = self.op.epilogue
        if before is None:
            return None
        placed = [
            (self._merged(value, loops_of(map_)) if loops_of(map_) else value, map_) for value, map_ in before.placed
        ]
        if self.is_gradient and any(loops_of(map_) for _, map_ in placed):
            decline("what follows the gradient of a filter of small groups reads memory")
        return self.builder.insert(before.moved(placed, self.op.maps[2].num_dims, 0)).function


# Convolutions of images whose channels come first, by those of images with channels last.
#
# Images, filter and result change their layout in launches of their own.


def _orders(op: LinalgStructuredOperation) -> dict[NestAccess, list[int]] | None:
    """The order of the dimensions of images, filter and result that has channels last; None for operations that are no
    convolution, or none that is computed so. The loop of groups is that of images, filter and result. Where each
    channel is a group, it is that of channels."""
    nest = Nest.of(op)
    if len(nest.reads) != 2 or len(nest.writes) != 1:
        return None
    image, kernel = sorted(nest.reads, key=lambda access: FIXED not in access.loops)
    written, shared = nest.writes[0], {*image.loops} & {*kernel.loops} - {FIXED}
    groups, channels = shared & {*written.loops}, shared & {*nest.summed}
    features = ({*kernel.loops} & {*written.loops}) - groups
    count = len(groups), len(channels), len(features)
    if FIXED in (*kernel.loops, *written.loops) or image.loops[0] not in written.loops or max(count) > 1:
        return None
    if count == (1, 0, 0):
        filter_ = _order(kernel, [], groups)
    elif count[1:] == (1, 1) and multiplies_images(op, *op.inputs):
        sizes = dict(zip(image.loops, shape_of(image.value), strict=True))
        size = prod(sizes[loop] for loop in shared)
        if image.loops[-1] in channels or (size >= ALIGNED and size % ALIGNED):
            return None
        filter_ = _order(kernel, [*groups, *features], channels)
    else:
        return None
    last = [*groups, *channels], [*groups, *features]
    return {image: _order(image, [], last[0]), kernel: filter_, written: _order(written, [], last[1])}


def _order(access: NestAccess, first: Collection[int], last: Collection[int]) -> list[int]:
    """The dimensions of an access in an order that begins and ends with those of these loops."""
    others = [d for d, loop in enumerate(access.loops) if loop not in (*first, *last)]
    return [*map(access.loops.index, first), *others, *map(access.loops.index, last)]


def with_channels_last(op: LinalgStructuredOperation) -> LinalgStructuredOperation | None:
    """Puts a convolution of images with channels last in the place of one with channels before pixels; None for any
    other operation, and for channels that tensor copies do not read."""
    orders = _orders(op) or {}
    changed = {access: order for access, order in orders.items() if order != sorted(order)}
    if not changed:
        return None
    nest, (image, kernel, written) = Nest.of(op), list(orders)
    what = "images, filter and result change their" if image in changed else "the filter changes its"
    chose(op, "warp-raise-matmul", f"{what} layout, for channels last")
    builder, moved = Builder(InsertPoint.before(op)), {access: access.value for access in orders}
    ends = 0, *(d for d, loop in enumerate(image.loops) if loop in kernel.loops)
    padded = Padded.of(image.value, op, ends) if image in changed else None
    padded = None if padded is None or padded.copy is None else padded
    fill = writer_before(written.value, op)
    for access in (access for access in (kernel, image, written) if access in changed):
        order = changed[access]
        if access is written and isinstance(fill, FillOp) and fill.outputs[0] is written.value:
            moved[access] = _allocated(builder, access.value, order)
            builder.insert(FillOp(list(fill.inputs), [moved[access]], []))
        else:
            moved[access] = transposed(builder, access.value, order) if access is not image else _images(
                builder, access.value, padded, order)  # fmt: skip
    maps = [AffineMap(nest.loops, 0, tuple(access.map.results[d] for d in orders[access])) for access in nest.accesses]
    inputs = [moved[access] for access in nest.reads]
    made = builder.insert(generic(op, inputs, [moved[written]], op.body.clone(), maps, nest.summed))
    if written in changed:
        end, sums, last = op, written.value, moved[written]
        while (follower := _follower(op, fill, sums)) is not None:
            end, sums, last = follower, *_moved_behind(follower, sums, last, orders[written])
        back = DenseArrayBase.from_list(i64, [orders[written].index(d) for d in range(len(orders[written]))])
        Builder(InsertPoint.after(end)).insert(TransposeOp(last, sums, back))
    Rewriter.erase_op(op)
    if isinstance(fill, FillOp) and written in changed:
        between = operations_between(fill, made)
        if between is not None and users_of(root(written.value)).isdisjoint(between):
            Rewriter.erase_op(fill)
    if padded is not None:
        padded.drop_unused(padded.images())
    return made


def _follower(op: LinalgStructuredOperation, fill: Operation | None, sums: SSAValue) -> GenericOp | None:
    """The elementwise operation that alone reads the result of another, in its order."""
    readers = users_of(root(sums)) - {op, fill}
    follower = next(iter(readers), None)
    if len(readers) != 1 or not isinstance(follower, GenericOp) or not isinstance(sums.owner, memref.AllocOp):
        return None
    nest = Nest.of(follower)
    read = [access for access in nest.reads if root(access.value) is sums]
    orders = {access.loops for access in (*read, *nest.writes)} if all(each.value is sums for each in read) else None
    plain = nest.is_elementwise and len(nest.writes) == 1 and not nest.writes[0].element.uses and not nest.indices
    return follower if plain and orders == {tuple(range(nest.loops))} and follower.parent is op.parent else None


def _moved_behind(op: GenericOp, sums: SSAValue, moved: SSAValue, order: Sequence[int]) -> tuple[SSAValue, SSAValue]:
    """Makes an elementwise operation read permuted sums, and write its result so. Returns the memory of its result, and
    that of the permuted one."""
    builder, maps, identity = Builder(InsertPoint.before(op)), list(op.indexing_maps.data), range(len(order))
    (written,) = op.outputs
    for number, (value, map_) in enumerate(zip(op.operands, maps, strict=True)):
        if loops_of(map_.data) == tuple(identity):
            made = moved if value is sums else _allocated if value is written else transposed
            op.operands[number] = made if isinstance(made, SSAValue) else made(builder, value, order)
            maps[number] = AffineMapAttr(map_along(len(order), order))
    op.properties["indexing_maps"] = ArrayAttr(maps)
    return written, op.operands[-1]


def _allocated(builder: Builder, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Memory with the dimensions of other memory in an order."""
    kind, index = memory_of(value), IndexBuilder(builder)
    sizes = [size for d in order if not isinstance(size := index.dim(value, d), int)]
    shape = [kind.get_shape()[d] for d in order]
    return builder.insert(memref.AllocOp(sizes, [], MemRefType(kind.element_type, shape))).memref


def transposed(builder: Builder, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """A copy of memory with its dimensions in an order; of a constant another constant."""
    if (constant := permuted(value, order)) is not None:
        return builder.insert(constant).memref
    made = _allocated(builder, value, order)
    builder.insert(TransposeOp(value, made, DenseArrayBase.from_list(i64, order)))
    return made


def _images(builder: Builder, value: SSAValue, padded: Padded | None, order: Sequence[int]) -> SSAValue:
    """A copy of images in an order; of images among zeros one that is copied among zeros."""
    if padded is None or padded.copy is None:
        return transposed(builder, value, order)
    inner, larger = transposed(builder, padded.copy.inputs[0], order), _allocated(builder, value, order)
    first, kind = (0, *padded.low, *[0] * (len(order) - 1 - len(padded.low))), memory_of(inner)
    builder.insert(FillOp(list(padded.fill.inputs), [larger], []))
    part = builder.insert(part_of(larger, first, kind.get_shape())).result
    builder.insert(CopyOp([inner], [part], []))
    return larger
