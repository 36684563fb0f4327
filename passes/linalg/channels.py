"""Convolutions of few channels, of small groups, or of channels before pixels, by others that tensor copies read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, MemRefType, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, IndexOp, TransposeOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import FIXED, Nest, NestAccess, generic, loops_of, map_along, number_of
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.views import WindowOp
from ..diagnostics import chose
from ..patterns import IndexBuilder, operations_between
from .constants import permuted
from .contraction import multiplies_images
from .element_expressions import writer_before
from .image_windows import ALIGNED, PANEL, ImageProduct, Padded, are_contiguous
from .memory_uses import decline
from .operand import collapse, drop_unused, expand, numbered, part_of, root, users_of

MANY_TURNED = 1 << 20
"""Elements of a result that are worth the launch which turns a filter's taps, of three and more in a row (H200, images'
gradients in microseconds by pixels of single taps and so: 2x128x128x320 of 4 42.2 and 23.2, 64x64x320 12.1 and 8.2)."""

FULLER, MIN_SAVED = 1.4, 1 << 30
"""How many times as many boxes of channels single taps must have as rows of taps, where copies can read either, and how
many more multiply-adds of whole boxes, which are worth a copy of images among zeros (H200, microseconds by taps and by
rows: 3x3 of 64x56x56 pixels of 16 channels to 32 43.0 and 26.1, 5x5 of 45x45 of 8 to 664 15.2 and 7.8, of 16 to 696 by
weights 33.9 and 16.2; below, 3x3 of 2x128x128 of 32 to 128 13.0 and 14.7)."""


class Widened(ImageProduct):
    """The same product, of images whose pixels contain the channels of all taps of a filter row: `along` elements,
    which begin at a multiple of 16 bytes for each pixel of the result. These wide pixels overlap. Tensor copies cannot
    read rows of a few channels, such as three colours, so these images are copied to pixels of a power of two. Others
    are read where they are, with zeros around them in memory. A filter whose taps run backwards is copied `turned`."""

    def __init__(self, op: MatmulOp, window: WindowOp, side: int) -> None:
        super().__init__(op, window, side)
        self.pixel, self.step, self.width = self.filter.pixels[-1]
        self.tap, self.dilation, self.taps = self.filter.taps[-1]
        # The last tap is the first pixel.
        self.turned = not self.is_gradient and (self.dilation, self.filter.first[-1]) == (-1, self.taps - 1)
        self.in_place = self.channels % ALIGNED == 0

    @property
    def pays(self) -> bool:
        """Whether the images need it, or fill boxes better so, and the filter's channels follow its taps, but for taps
        of a large result that run backwards. The filter is B, or the result, which then starts from a number."""
        op, filter_, loops = self.op, self.filter, loops_of(self.op.maps[2 if self.is_gradient else 1])
        adjacent = self.tap in loops and loops[loops.index(self.tap) :][:2] == (self.tap, filter_.channel)
        few = self._fills_better() if self.in_place else self.channels < ALIGNED
        few = few and (op.c is None if self.is_gradient else self.side == 0)
        of_channels = self.is_gradient or filter_.channel == op.outer + 2  # of one channel, k may be along the taps
        plain = adjacent and self.dilation == 1 and not any(filter_.first)
        turned = self.turned and self.taps > 2 and prod(memory_of(op.d).get_shape()) >= MANY_TURNED
        return few and of_channels and (plain or turned) and filter_.group == FIXED

    def _fills_better(self) -> bool:
        """Whether rows of taps need so many fewer boxes than single taps that they are worth zeros around images."""
        single, row = self.taps * -(-self.channels // PANEL), -(-self.taps * self.channels // PANEL)
        each = prod(memory_of(self.op.a_and_b[1 - self.side] if self.is_gradient else self.op.d).get_shape())
        saved = (single - row) * PANEL * prod(size for *_, size in self.filter.taps[:-1]) * each
        rank = memory_of(self.window.memory).get_num_dims()
        inside = are_contiguous(self.window.memory, (rank - 2, rank - 1))
        return single >= FULLER * row and saved >= MIN_SAVED and inside

    def replace(self) -> tuple[MatmulOp, WindowOp]:
        """Puts the product in the place of the other one."""
        fitting = (n for n in (1, 2, 4, 8) if n >= self.channels and self.step * n % ALIGNED == 0)
        self.per_pixel = self.channels if self.in_place else next(fitting)
        self.along, padded = self.taps * self.per_pixel, Padded.of(self.window.memory, self.op)
        padded = padded if padded is not None and padded.copy is not None else None
        op, images = self.op, self._images(padded)
        filter_, number = (op.d, 2) if self.is_gradient else (op.b, 1)
        shape = dict(zip(loops_of(op.maps[number]), memory_of(filter_).get_shape(), strict=True))
        if self.turned:  # with channels behind the taps of a row
            shape |= {loop: shape.pop(loop) for loop in (self.tap, self.filter.channel)}
        at = [*shape].index(self.tap)
        is_copied = self.turned or not (self.in_place and are_contiguous(filter_, (at, at + 1)))
        larger = self._larger(shape) if is_copied else filter_
        row = self._in_row(larger, shape)
        if self.is_gradient:
            a, b = (images.result, op.b) if self.side == 0 else (op.a, images.result)
            made = op.like(a=a, b=b, d=row)
        else:
            maps = [op.maps[0], map_along(op.maps[1].num_dims, [*shape]), op.maps[2]]
            made = op.like(a=images.result, b=row, indexing_maps=maps)
        if is_copied and not self.is_gradient:
            self._copy_taps(larger, shape)
        _take_place(op, made, self.window)
        if is_copied and self.is_gradient:
            copied = part_of(larger, [0] * len(shape), [*shape.values()])
            Rewriter.insert_op([copied, CopyOp([copied.result], [filter_], [])], InsertPoint.after(made))
        if padded is not None and not self.in_place:
            padded.drop_unused(padded.images())
        return made, images

    def _copied(self, padded: Padded | None) -> SSAValue:
        """Images among zeros, of pixels as wide as they have to be."""
        *outer, size, _ = memory_of(self.window.memory).get_shape()
        needed = max(size * self.per_pixel, (self.width - 1) * self.step * self.per_pixel + self.along)
        rounded = -(-needed // ALIGNED) * ALIGNED // self.per_pixel
        source, low = (self.window.memory, ()) if padded is None else (padded.images(), padded.low)
        kind, first = memory_of(source), [0, *(low or [0] * len(outer)), 0]
        copied = self.builder.filled(MemRefType(kind.element_type, [*outer, rounded, self.per_pixel]), 0)
        part = self.builder.insert(part_of(copied, first, kind.get_shape())).result
        self.builder.insert(CopyOp([source], [part], []))
        return copied

    def _images(self, padded: Padded | None) -> WindowOp:
        copied = self.window.memory if self.in_place else self._copied(padded)
        outer, rank = memory_of(copied).get_shape()[:-2], memory_of(copied).get_num_dims()
        rows = self.builder.insert(collapse(copied, [*([d] for d in range(rank - 2)), [rank - 2, rank - 1]])).result
        *own, pixel, element = map(AffineDimExpr, range(rank))
        over = AffineMap(rank, 0, (*own, pixel * (self.step * self.per_pixel) + element))
        seen = self.builder.insert(WindowOp(rows, over, [*outer, self.width, self.along])).result
        forms, sizes = self.window.along, self.sizes | {self.tap: 1, self.filter.channel: self.along}
        pixel, tap = (AffineDimExpr(self.loops.index(loop)) for loop in (self.pixel, self.tap))
        along = AffineMap(forms.num_dims, 0, (*forms.results[:-2], pixel + tap, forms.results[-1]))
        return self.builder.insert(WindowOp(seen, along, [sizes[loop] for loop in self.loops]))

    def _copy_taps(self, larger: SSAValue, shape: Mapping[int, int]) -> None:
        """Copies B, of this shape, to larger memory, whose taps go as pixels do."""
        loops, taps, source = loops_of(self.op.maps[1]), shape[self.tap], self.op.b
        for tap in range(taps if self.turned else 1):
            first, sizes = [tap * (loop == self.tap) for loop in shape], [*shape.values()]
            if self.turned:
                sizes[[*shape].index(self.tap)] = 1
                places: list[AffineExpr] = [AffineDimExpr([*shape].index(loop)) for loop in loops]
                places[loops.index(self.tap)] += taps - 1 - tap
                source = self.builder.insert(WindowOp(self.op.b, AffineMap(len(loops), 0, tuple(places)), sizes)).result
            part = self.builder.insert(part_of(larger, first, sizes)).result
            self.builder.insert(CopyOp([source], [part], []))

    def _larger(self, shape: Mapping[int, int]) -> SSAValue:
        """Memory for a filter of this shape in rows of as many elements as images have."""
        sizes, at = [*shape.values()], [*shape].index(self.tap)
        sizes[at : at + 2] = -(-self.along // ALIGNED) * ALIGNED // self.per_pixel, self.per_pixel
        kind = MemRefType(memory_of(self.op.d if self.is_gradient else self.op.b).element_type, sizes)
        return self.builder.empty(kind) if self.is_gradient else self.builder.filled(kind, 0)

    def _in_row(self, larger: SSAValue, shape: Mapping[int, int]) -> SSAValue:
        """The filter with one tap in a row, of all its channels."""
        at, places = [*shape].index(self.tap), [[d] for d in range(len(shape))]
        flat = self.builder.insert(collapse(larger, [*places[:at], [at, at + 1], *places[at + 2 :]])).result
        parts, sizes = [[size] for size in memory_of(flat).get_shape()], [*shape.values()]
        parts[at].insert(0, 1)
        padded = self.builder.insert(expand(flat, parts)).result
        # Zeros behind the last tap would meet pixels that no tap reads, which may be no numbers.
        sizes[at : at + 2] = 1, self.along
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
        placed = [(self._merged(v, loops_of(map_)) if loops_of(map_) else v, map_) for v, map_ in before.placed]
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
