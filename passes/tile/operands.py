"""A and B on their way from memory to fragments, the turns of the loop over K, and how a warp multiplies its part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Generic, NamedTuple

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import DenseArrayBase, IndexType, MemRefType, f32, i8, i64
from xdsl.ir import Operation, SSAValue, TypeAttribute

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.layouts.layout import Layout
from ...dialect.mlir.gpu import BarrierOp, BlockIdOp, SubgroupIdOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import BYTE, FragmentType, ScheduleAttr, SwizzleAttr, enclosing, fragment_of, memory_of
from ...dialect.warp.convert import ConvertLayoutOp, ConvertOp
from ...dialect.warp.elements import IndexOp
from ...dialect.warp.fragments import ElementwiseOp, Kind, MatrixMove, SubfragmentOp
from ...dialect.warp.matmul import PADDED
from ...dialect.warp.memory import DENSE, SPREAD, CopyOp, LoadOp, StoreOp
from ...dialect.warp.mma import MmaOp, TileMmaOp
from ...dialect.warp.op_shapes import TilePart, bounds, bounds_attribute, tile_type
from ...dialect.warp.operands import SparseOp
from ...dialect.warp.stored import BLOCK_LINES, LINE, PACKED
from ...dialect.warp.synchronisation import ASYNC_PROXY, FenceOp
from ...dialect.warp.views import MatrixOp
from ..diagnostics import fail
from ..linalg.operand import MatrixOperand
from ..linalg.product import MatrixFactor, Product, TileProduct, block, shared_bits
from ..patterns import Index, IndexBuilder
from ..schedule.defaults import LANES as BY_LANES
from ..schedule.defaults import PIECES, Delivery
from ..schedule.needs import in_containers
from ..schedule.warpgroup_model import held_columns
from .fragments import converted, mapped_to, one_below
from .side_operands import CHUNK, MetadataTiles, Place, ScaleTiles
from .tiling import ProductT, Tiling, schedule_of

ONES, COLUMNS_OF_ONES = Layout.parse("c3 c4 c5 c6 c7 | c0 c1 c2"), 8
"""How a warp writes a column of ones, of 256 k, and how many columns there are, as few as an instruction has. An
instruction on bytes cuts what it adds 13 bits below the largest: of one sum of all, rows with a large element would
lose the others."""


@dataclass(frozen=True)
class OperandTiles(Generic[ProductT]):
    """The tiles of A or B, of `role` "a" or "b", on their way from memory to shared memory and to fragments."""

    tiling: Tiling[ProductT]
    role: str

    @property
    def operand(self) -> MatrixFactor:
        """A or B."""
        product = self.tiling.product
        return product.a if self.role == "a" else product.b

    @property
    def delivery(self) -> Delivery:
        """How the operand gets to registers."""
        return self.tiling.arrangement.a if self.role == "a" else self.tiling.arrangement.b

    @property
    def in_memory(self) -> str:
        """The product's axes along the rows and columns of memory."""
        axes = "mk" if self.role == "a" else "kn"
        return axes[::-1] if self.operand.transposed else axes

    @property
    def sparsity(self) -> int:
        """Elements along k for each that is stored."""
        return self.tiling.product.sparsity if self.role == "a" else 1

    @property
    def packed(self) -> str:
        """The format of 4-bit elements that have a byte each in shared memory, and of 6-bit ones that warpgroups read
        there; "" for others."""
        product, element = self.tiling.product, self.operand.element
        if shared_bits(product, self.operand) > element.memory_bits:
            return SPREAD
        return DENSE if self.tiling.schedule.together > 1 and in_containers(product, self.operand) else ""

    def place(self, index: IndexBuilder, at: Place) -> list[SSAValue]:
        """The row and column in memory, or in the tile, of the element at `at`: of a sparse A among the stored ones."""
        stored = at if self.sparsity == 1 else at | {"k": index.div(at["k"], self.sparsity)}
        return index.values([stored[axis] for axis in self.in_memory])

    def of_step(self, index: IndexBuilder, fragment: SSAValue, at: Place) -> SSAValue:
        """The part at k of an A in registers, for one step of the instruction."""
        start, kind = at["k"], self.tiling.fragment(self.role)
        if not isinstance(start, int):
            fail(self.tiling.product.op, "expected the k of a fragment to be known")
        return index.insert(SubfragmentOp([fragment], (0, start), kind.shape)).fragment

    def load(self, index: IndexBuilder, tile: SSAValue, at: Place, factors: Sequence[SSAValue] = ()) -> SSAValue:
        """Loads the fragment whose first element is at `at`, from the tile in shared memory or from a larger fragment.
        Integers are multiplied by `factors`, one after the other. B runs down the columns of memory unless it is
        transposed, so `ldmatrix` takes `.trans` there."""
        if isinstance(tile.type, FragmentType):
            return self.of_step(index, tile, at)
        transposed, path, where = self.operand.transposed, self.delivery, self.place(index, at)
        kind = self.tiling.fragment(self.role)
        if path.how == BY_LANES:
            loaded = index.insert(LoadOp(tile, where, kind.with_layout(path.delivered), swapped=transposed)).fragment
            same = path.delivered == path.layout
            return loaded if same else index.insert(ConvertLayoutOp.to(loaded, path.layout)).fragment
        trans = transposed != (self.role == "b")
        stored, element = self.operand.stored, memory_of(tile).element_type
        if stored is not None and isinstance(element, TypeAttribute):
            kind = FragmentType.of(self.role, *kind.shape, element, kind.layout.data)
        loaded = kind.with_layout(path.delivered)
        pieces = path.how == PIECES
        move = MatrixMove(4, trans, pieces, self.packed)
        raw = index.insert(LoadOp(tile, where, loaded, swapped=transposed, matrices=str(move))).fragment
        if stored is not None:
            made = index.insert(ConvertOp(raw, self.tiling.element_type(self.role), stored, path.layout)).fragment
            for factor in factors:
                made = index.insert(ElementwiseOp(Kind.Mul, made, factor)).fragment
            return made
        return index.insert(ConvertLayoutOp.to(raw, path.layout)).fragment if pieces else raw

    # From memory, where the operands of `warp.matmul` are, to shared memory

    def _stored(self) -> dict[str, int]:
        """Sizes of a CTA tile along m, n and k by axis, of k what is stored."""
        m, n, k = self.tiling.schedule.cta
        return {"m": m, "n": n, "k": k // self.sparsity}

    def _extents(self: OperandTiles[Product]) -> list[int]:
        """Rows and columns of a CTA tile in shared memory."""
        sizes = self._stored()
        if self.role == "b" and self.tiling.schedule.together > 1:
            sizes["n"] = held_columns(self.tiling.product, sizes["n"])
        return [sizes[axis] for axis in self.in_memory]

    def shared_type(self: OperandTiles[Product]) -> MemRefType:
        """The type of the tile in shared memory. It lies as in global memory, with the widest swizzle that its lines
        allow. Its elements are of the multiplied type, bytes that hold such elements, or the integers before the
        conversion."""
        product, (rows, columns) = self.tiling.product, self._extents()
        operand = product.a if self.role == "a" else product.b
        if operand.packed:
            per_line = LINE * BYTE // operand.memory_bits
            rows, columns = rows * columns // per_line, per_line
        line = columns * shared_bits(product, operand) // 8
        if self.role == "b" and not operand.transposed:
            line //= product.products  # whose panels have columns of one matrix
        width = max(CHUNK, min(self.tiling.schedule.swizzle, line & -line))
        plain = self.tiling.element_type(self.role) if operand.stored is None else operand.element_type
        element = i8 if self.packed == SPREAD else plain
        swizzle = SwizzleAttr(width, self.delivery.skip if width > CHUNK else 0)
        return tile_type(element, [rows, columns], swizzle)

    def with_ones(self: OperandTiles[Product], op: Operation, columns: int) -> SSAValue:
        """The tile in shared memory of a B whose last columns, from `columns` on, are of ones: their products are sums
        of A. Warps write them once, where the kernel of an operation begins, before a barrier behind which copies are
        read. Each column has the ones of some k and zeros elsewhere."""
        kernel = next(around for around in enclosing(op) if isinstance(around, gpu.FuncOp))
        index, element = IndexBuilder(kernel.body.block.first_op or op), self.tiling.element_type("b")
        tile, warp = index.alloc(self.shared_type()), index.insert(SubgroupIdOp()).result
        line, each = FragmentType.of("acc", 1, ONES.columns, element, ONES), ONES.columns // COLUMNS_OF_ONES

        with index.where(index.compare("slt", warp, COLUMNS_OF_ONES)) as inside:
            start = inside.value(inside.sub(0, inside.mul(warp, each)))
            own_k = inside.insert(IndexOp(1, start, line, step=each)).result
            place = inside.values([inside.add(warp, columns), 0])
            ones = mapped_to(inside, line, partial(one_below, each, element), own_k)
            inside.insert(StoreOp(ones, tile, place))
            inside.insert(FenceOp(ASYNC_PROXY))
        return tile

    def copy(
        self: OperandTiles[Product],
        index: IndexBuilder,
        at: Place,
        tile: SSAValue,
        until: SSAValue | None = None,
        source: SSAValue | None = None,
        part: TilePart | None = None,
    ) -> None:
        """Copies the tile that begins at `at`, by axis, to shared memory, or to a `part` of a tile there. `until` is
        that of `warp.copy`. `source` is another matrix like the operand."""
        steps, product = self._stored(), self.tiling.product
        operand = product.a if self.role == "a" else product.b
        second = product.second if self.role == "b" else None
        count = 1 if second is None else product.products
        extents = [n // (count if axis == "n" else 1) for n, axis in zip(self._extents(), self.in_memory, strict=True)]
        inside = bounds_attribute(
            *(
                own == steps[axis] and (size % extent == 0 or self.tiling.last_start(axis) is not None)
                for size, own, extent, axis in zip(operand.shape, self._extents(), extents, self.in_memory, strict=True)
            )
        )
        if until is not None:
            inside = bounds_attribute(False, bounds(inside)[1])
        if operand.packed:
            return self._copy_packed(index, at, tile)
        where, matrices = self.place(index, at), [operand] if second is None else [operand, second]
        for number, each in enumerate(matrices):
            copied, axis = source or matrix_of(index, each, at), int(self.in_memory[1] == "n")
            near, padded = self._padding(index, copied) if PADDED in product.op.attributes else ((), None)
            index.insert(CopyOp(copied, where, tile, in_bounds=inside, packed=self.packed, until=until, at=near,
                                part=(part or TilePart(number, count, axis)).property, padded=padded))  # fmt: skip

    def _padding(
        self: OperandTiles[Product], index: IndexBuilder, copied: SSAValue
    ) -> tuple[list[SSAValue], DenseArrayBase | None]:
        """The `at` and `padded` of the copy of a tile, of a window of images among zeros."""
        from ..linalg.image_windows import Padding  # with patterns that a product does not need

        around, view = Padding.of(self.tiling.product.op), copied.owner
        if around is None or around.role != self.role or not isinstance(view, MatrixOp):
            return [], None
        (row, column), others = view.dimensions, iter(view.indices)
        loops = [0 if d in (row, column) else next(others) for d in range(memory_of(view.memory).get_num_dims())]
        at, numbers = list[SSAValue](), [around.first]
        for expr, by, size in around.ends:
            at.append(index.value(index.evaluated(expr, lambda loop: loops[loop] if loop < len(loops) else 0)))
            numbers += [by.get(row or 0, 0), by.get(column or 0, 0), around.together, size]
        return at, DenseArrayBase.from_list(i64, numbers)

    def _copy_packed(self: OperandTiles[Product], index: IndexBuilder, at: Place, tile: SSAValue) -> None:
        """Copies the blocks of packed weights in a tile, those of each 64 columns at a time."""
        product, (_, columns, depth) = self.tiling.product, self.tiling.schedule.cta
        order, count = PACKED[product.b.memory_bits], columns // PACKED[product.b.memory_bits].rows
        inside = bounds_attribute(product.n % columns == 0 and product.k % depth == 0, True)
        for number in range(count):
            panel = index.add(index.div(at["n"], order.rows), number)
            block = index.add(index.mul(panel, product.k // order.columns), index.div(at["k"], order.columns))
            where = index.values([index.mul(block, BLOCK_LINES), 0])
            index.insert(CopyOp(product.b.value, where, tile, in_bounds=inside, part=TilePart(number, count).property))


def copies_done(index: IndexBuilder, schedule: Schedule) -> None:
    """Synchronises copies to shared memory with the reads of the tiles."""
    if schedule.together > 1:
        # Warpgroups read what threads have copied through the asynchronous proxy.
        index.insert(FenceOp(ASYNC_PROXY))
    index.insert(BarrierOp())


# The turns of the loop over K: the K tiles of k, for each index of the other loops that are summed over.
#
# All of them are one loop, so that copies run ahead from the last K tile of one index to the first of the next::
#
#     for turn = 0 to sizes * span step depth of a K tile:
#       s = min(turn / span, sizes - 1);  k = turn - s * span
#
# Turns behind the last one, which copies that run ahead reach, are so at a k behind the end, where zeros are copied.


def batch_sizes(index: IndexBuilder, product: Product, memory: Mapping[SSAValue, SSAValue]) -> tuple[Index, ...]:
    """The sizes of the loops around a product. Dynamic ones are those of the memory that stands for D in `memory`."""
    d = product.d
    if product.ends is not None:
        return product.batch
    others = [i for i in range(len(d.sizes)) if i not in d.dimensions]
    where = dict(zip(d.batch, others, strict=True))
    return tuple(
        index.dim(memory[d.value], where[loop]) if loop in product.dynamic else size
        for loop, size in enumerate(product.batch)
    )


def cta_number(index: IndexBuilder) -> SSAValue:
    """The number of this CTA."""
    return index.number(BlockIdOp)


def in_matrix(index: IndexBuilder, number: Index, tiles: Index) -> tuple[Index, Index]:
    """The tile of a CTA in its matrix, and the number of that matrix in a batch."""
    return index.rem(number, tiles), index.div(number, tiles)


def axis(loop: int) -> str:
    """The name of a reduction loop other than k."""
    return f"s{loop}"


class KTurns(NamedTuple):
    """The extent of the iterations of one k, in elements, and the sizes of the other reduction loops."""

    span: Index
    sizes: tuple[Index, ...]

    @staticmethod
    def of(index: IndexBuilder, tiling: Tiling[Product]) -> KTurns:
        product, depth = tiling.product, tiling.schedule.cta[2]
        a = product.a
        dynamic = memory_of(a.value).get_shape()[a.loops[1]] < 0 and not product.is_known("k")  # B may know it
        k = index.dim(a.value, a.loops[1]) if dynamic else product.k
        if not product.summed:
            return KTurns(k, ())
        others = [d for d in range(len(a.sizes)) if d not in a.dimensions]
        along = dict(zip(a.batch, others, strict=True))
        sizes = (index.dim(a.value, along[loop]) for loop in range(len(product.summed)))
        return KTurns(index.mul(index.ceildiv(k, depth), depth), tuple(sizes))

    def end(self, index: IndexBuilder) -> Index:
        return reduce(index.mul, self.sizes, self.span)

    def place(self, index: IndexBuilder, turn: Index) -> Place:
        """The k and the indices of the other loops of an iteration. If a loop is empty, which may be known only at the
        launch, k is beyond the end."""
        if not self.sizes:
            return {"k": turn}
        if 0 in (self.span, *self.sizes):
            return {"k": index.add(turn, self.span)} | {axis(loop): 0 for loop in range(len(self.sizes))}
        last = index.sub(reduce(index.mul, self.sizes, 1), 1)
        number = index.minimum(index.div(turn, self.span), last, signed=not isinstance(last, int))
        k = index.sub(turn, index.mul(number, self.span))
        return {"k": k} | {axis(loop): at for loop, at in enumerate(index.unflattened(self.sizes, number))}


def matrix_of(index: IndexBuilder, operand: MatrixOperand, at: Place) -> SSAValue:
    """The matrix of an operand at the indices of the reduction loops other than k."""
    if not operand.batch:
        return operand.value
    indices, owner = index.values([at[axis(loop)] for loop in operand.batch]), operand.value.owner
    if isinstance(owner, MatrixOp):
        return index.insert(owner.at(indices, *operand.dimensions)).matrix
    return index.insert(MatrixOp(operand.value, indices, *operand.dimensions)).matrix


def warp_origin(index: IndexBuilder, schedule: Schedule) -> tuple[Index, Index]:
    """The first row and column of this warp's tile within the CTA's."""
    rows, columns = schedule.warp
    across = schedule.cta[1] // columns
    if schedule.warps == schedule.sliced_k * schedule.together:
        return 0, 0
    warp: Index = index.div(index.insert(SubgroupIdOp()).result, schedule.together)
    if schedule.sliced_k > 1:
        warp = index.rem(warp, schedule.warps // schedule.sliced_k)
    down: Index = index.div(warp, across) if schedule.cta[0] > rows else 0
    return index.mul(down, rows), index.mul(index.rem(warp, across) if across > 1 else 0, columns)


def slice_number(index: IndexBuilder, schedule: Schedule) -> Index:
    """The number of this warp's slice."""
    if schedule.sliced_k == 1:
        return 0
    return index.div(index.insert(SubgroupIdOp()).result, schedule.warps // schedule.sliced_k)


KEPT_REGISTERS = 32
"""Registers of the fragments of a tile that stays that a lane keeps; of more, they are loaded again in each turn."""


class Multiplication(ABC):
    """The multiplication of a warp's part of `warp.tile_mma`. Loop-invariant code goes to `outside`, the rest to
    `index`."""

    def __init__(self, op: TileMmaOp, outside: IndexBuilder, index: IndexBuilder) -> None:
        self.op, self.outside, self.index = op, outside, index
        self.tiling = Tiling(TileProduct.of(op), schedule_of(op))
        self.operands = OperandTiles(self.tiling, "a"), OperandTiles(self.tiling, "b")
        self.tiles = op.matrices

    @abstractmethod
    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        """The accumulators of the part at `warp` after one K tile."""


class FragmentProduct(Multiplication):
    """`warp.mma` of fragments that a warp loads from shared memory, step by step of the instruction."""

    def __init__(self, op: TileMmaOp, outside: IndexBuilder, index: IndexBuilder) -> None:
        super().__init__(op, outside, index)
        self._scales: dict[int, list[SSAValue]] = {}

    def multiply(self, warp: Place, accumulator: SSAValue) -> SSAValue:
        schedule = self.tiling.schedule
        return self.steps(warp, accumulator, range(0, schedule.cta[2] // schedule.sliced_k, self.tiling.step))

    def steps(self, warp: Place, accumulator: SSAValue, every: range, factors: Sequence[SSAValue] = ()) -> SSAValue:
        """The accumulators after steps of the instruction, those at `every` k of the warp's part; integers of B are
        multiplied by `factors`."""
        for inner in every:
            at = warp | {"k": self.outside.add(warp["k"], inner)}
            own = warp | {"k": inner}  # A in registers is the warp's part
            a, b = (
                o.load(
                    self.outside if self._stays(tile) and self._fit(o) else self.index,
                    tile,
                    own if isinstance(tile.type, FragmentType) else at,
                    factors if o.role == "b" else (),
                )
                for o, tile in zip(self.operands, self.tiles, strict=True)
            )
            accumulator = self._step(a, b, accumulator, at, inner)
        return accumulator

    def _stays(self, tile: SSAValue) -> bool:
        """Whether a tile in shared memory is the same in all turns of the loop around."""
        return not isinstance(tile.type, FragmentType) and not any(
            isinstance(use.operation, CopyOp) and use.operation.parent is self.op.parent for use in tile.uses
        )

    def _fit(self, operand: OperandTiles[TileProduct]) -> bool:
        """Whether a lane has registers for all fragments of a tile."""
        schedule = self.tiling.schedule
        steps = schedule.cta[2] // schedule.sliced_k // self.tiling.step
        return self.tiling.fragment(operand.role).registers * steps <= KEPT_REGISTERS

    def _step(self, a: SSAValue, b: SSAValue, accumulator: SSAValue, at: Place, k: int) -> SSAValue:
        """The accumulators after one step of the instruction, at `at` in the tiles, with what lies beside A and B."""
        (sparse, _), shape, of = self.op.forms, self.tiling.schedule.mma, self.op.variant
        if isinstance(sparse, SparseOp):
            metadata = MetadataTiles(self.tiling)
            e, selector = metadata.load(self.index, sparse, at), metadata.selector(k)
            return self.index.insert(MmaOp(shape, a, b, accumulator, e=e, ordered=True, selector=selector)).d
        if not self.op.scales:
            return self.index.insert(MmaOp(shape, a, b, accumulator, bit_op=of.bit_op, kind=of.kind)).d
        word, byte = divmod(k // block(self.tiling.product), SCALES_OF_WORD)
        if word not in self._scales:
            pairs = zip("ab", self.op.scales, strict=True)
            self._scales[word] = [
                ScaleTiles(self.tiling, role).load(self.index, tile, at, word * SCALES_OF_WORD) for role, tile in pairs
            ]
        scales, selectors = self._scales[word], (byte, 0) * len(self.op.scales)
        return self.index.insert(MmaOp(shape, a, b, accumulator, kind=of.kind, scales=scales, selectors=selectors)).d


def group_end(index: IndexBuilder, ends: SSAValue, group: SSAValue) -> SSAValue:
    """The end of a group, which is the beginning of the next one."""
    return index.insert(arith.IndexCastOp(index.insert(memref.LoadOp.get(ends, [group])).res, IndexType())).result


def rows_of_group(index: IndexBuilder, ends: SSAValue, group: Index) -> tuple[SSAValue, SSAValue]:
    """The first row of a group, and how many it has; none behind the last group."""
    before = index.select("eq", group, 0, 0, index.sub(group, 1))
    last = index.minimum(group, memory_of(ends).get_shape()[0] - 1)
    begin = index.select("eq", group, 0, 0, group_end(index, ends, index.value(before)))
    rows = index.sub(group_end(index, ends, index.value(last)), begin)
    return index.value(begin), index.value(rows)


def multiplied(
    index: IndexBuilder, tiling: Tiling[Product], a: SSAValue, b: SSAValue, sums: SSAValue, part: Sequence[Index]
) -> SSAValue:
    """Sums with the product of tiles, or of a fragment and a tile, added; `part` is the warp's, [m, n, k]."""
    product = tiling.product
    transposed = product.a.transposed and isinstance(a.type, MemRefType)
    said = {"types": product.op.types, "transposed_a": transposed, "transposed_b": product.b.transposed}
    op = TileMmaOp(a, b, sums, index.values(part), **said)
    op.attributes[ScheduleAttr.name] = ScheduleAttr(tiling.schedule)
    op.location = product.op.location
    return index.insert(op).d


def as_operand(
    index: IndexBuilder,
    tiling: Tiling[Product],
    scores: SSAValue,
    order: Sequence[int] = (),
    rounded: Callable[[SSAValue], SSAValue] | None = None,
) -> SSAValue:
    """What becomes of scores as operand A of a product, `rounded` to its type, with their columns in another order."""
    kind, (rows, columns) = tiling.fragment("a"), fragment_of(scores).shape
    # Registers of f32 are renamed; those of bytes would be taken apart.
    operand = FragmentType.of("a", rows, columns, f32, kind.layout.data)
    ordered = index.insert(ConvertLayoutOp(scores, operand, columns=order)).fragment if order else scores
    half = converted(index, ordered, kind.element_type) if rounded is None else rounded(ordered)
    wanted = operand.with_element(kind.element_type)
    return half if order else index.insert(ConvertLayoutOp(half, wanted)).fragment
