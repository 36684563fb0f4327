"""Elementwise operations that belong to no product: `linalg.fill`, `copy`, `transpose`, `generic` over parallel loops.

Each becomes an operation on rows (`rows.py`) that takes none together. Where an input lies transposed, lanes go down as
many rows as fill a sector of 32 bytes of it, too, so that neither side reads or writes parts of sectors. What
`docs/epilogues.md` says of the arithmetic holds here as well: the body becomes the same `warp.map`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType, NoneAttr, UnitAttr, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.layouts.layout import Layout, column, row
from ...dialect.mlir.affine import FIXED, Nest, converted, loops_of, strides_of
from ...dialect.warp.attributes import BYTE, element_row, in_place_of, is_memory, memory_of
from ...dialect.warp.elements import IndexOp, YieldOp, element_type
from ...dialect.warp.rows import RowsOp
from ...dialect.warp.views import HALF_WORD
from ..diagnostics import fail
from ..linalg.elementwise import read_elementwise, why_not_elementwise
from ..schedule.defaults import SECTOR
from .traversal import (
    ACCESS_BITS,
    LANE_BITS,
    OF_SECTOR,
    WARPS,
    Traversal,
    TraversedMemory,
    lane_layout,
    lanes_along,
)

SECTOR_BITS = 8 * SECTOR

BYTES = Layout.parse("c4 c5 r2 r3 r4 | c0 c1 c2 c3 r0 r1"), Layout.parse("c4 c5 r2 r3 r4 | r0 r1 c0 c1 c2 c3")
"""How a warp's 32 rows of bytes lie where an input lies transposed, and how they are loaded: 4 bytes a lane, that moves
them within itself, so that eight load a sector."""

HALVES = Layout.parse("c3 c4 r0 r3 r4 | c0 c1 c2 r1 r2"), Layout.parse("r3 r4 c0 c3 c4 | r0 r1 r2 c1 c2")
"""The same of elements of 16 bits: 64 bytes of a row in neighbouring lanes."""

ROWS, ODD_ROWS = Layout.parse("c1 c2 c3 c4 c5 | c0"), Layout.parse("c0 c1 c2 c3 c4 | c5")
"""How a warp has rows that come from shared memory: words side by side, or halves where rows begin within words."""

CTA_ROWS, WARP_COLUMNS, FEWEST_TILES = 64, 16, 4
"""Where whole sectors are stored: rows of a CTA, columns that each of its warps loads (H200, by hand, copy 66 us: 64
rows of 128 columns 70 to 72 us, of 256 columns 74 to 78, 32 rows of 256 or 512 78 to 81), and tiles of a row, of which
those at its ends are not."""

LARGE, MANY_TILES = 1 << 24, 32
"""Elements of outputs that are stored so although `movmatrix` could turn them, and tiles of their rows where these
begin at sectors (H200, 2^26, copy 66 us: 73.2 us and 70.7, 72.6 and 69.1, of rows within sectors 119.3 and 70.6)."""

STAGED_WARPS = 8
"""Warps of a CTA whose columns go through shared memory."""

SIDE = 1 << LANE_BITS
"""Rows and columns of a warp's tile of elements of 16 bits that lie transposed."""

ELEMENTS = 16
"""Elements of all outputs that a lane computes: loads enough in flight, few CTAs that have little to do (H200, RoPE, of
two outputs: 71.1 us by 16 of each, 69.5 by 16 of both)."""

PACKED_BITS = 4
"""Bits of elements of which a kernel reads two in a byte."""

LARGEST_ROW = 1 << 31
"""Bytes: indices and rows stay below."""

TRAVERSED = frozenset((4, 8, 32))
"""Bits of the integers in memory that kernels of fragments go through."""

EXACT = "warp.exact"
"""On an operation: it uses no approximate functions, so that it gives what it does in the epilogue of a product."""

HAVE_KERNELS = "floats of 8, 16, 32 and 64 bits, and integers of 8 and 32 bits"


def is_traversed(op: LinalgStructuredOperation) -> bool:
    """Whether an operation is elementwise and of types that fragments can hold."""
    if why_not_elementwise(op):
        return False
    nest = Nest.of(op)
    if not nest.loops:
        return False
    types = [memory_of(access.value).element_type for access in nest.accesses if is_memory(access.value.type)]
    computed = [] if nest.indices else [value.type for inner in nest.body.ops for value in inner.results]
    integers = [kind.bitwidth for kind in types if isinstance(kind, IntegerType)]
    return TRAVERSED.issuperset(integers) and IntegerType(64) not in computed


def over_elements(
    op: Operation, inputs: Mapping[int, TraversedMemory], outputs: Sequence[TraversedMemory], output: TraversedMemory
) -> Traversal:
    """How warps traverse memory whose elements are read or written once. All outputs have the same index map."""
    columns, places = _columns(output), (*inputs.values(), *outputs)
    # Inputs whose elements are neighbours along another loop than the output's: rows go along that of the first.
    turned = [p for p in inputs.values() if columns in p.loops and p.neighbours not in (None, columns)]
    others = (loop for loop in reversed(output.loops) if loop != columns)
    rows = turned[0].neighbours if turned else next(others, None)
    written = max(place.bits for place in outputs)
    along: dict[SSAValue, Layout] = {}
    if staged := _staged(turned, outputs, output, rows, columns):
        along, warps = dict.fromkeys((place.value for place in turned), staged), _warps(output.size(columns))
        layout = ROWS if min(place.together() for place in outputs) > 1 else ODD_ROWS
        warp, cta = (SIDE // warps, SIDE * warps), (SIDE, SIDE * warps)
        fits = output.kind.get_shape()[columns] >= 0 and output.size(columns) % cta[1] == 0
        return Traversal(
            op, inputs, outputs, output, rows, columns, layout, warp, (warps, 1), cta, fits, turned=along, staged=True
        )
    if lying := _transposed(turned, outputs):
        layout, along = lying[0], dict.fromkeys((place.value for place in turned), lying[1])
    else:
        # Elements that are stored apart are stored by lanes side by side, whatever else is read together.
        beside = FIXED if output.neighbours is None and written < i32.bitwidth else columns
        layout = _layout(places, turned, output.size(rows), output.size(columns), beside, written)
    around = None if turned or len(outputs) == 1 else _along_shared(list(inputs.values()), rows, columns)
    full = around is not None and output.size(rows) > 1 and output.size(around) % (layout.rows * WARPS) == 0
    rows = around if full else rows
    tall, wide = power_of_two(output.size(rows), layout.rows), power_of_two(output.size(columns), layout.columns)
    of_all = layout.elements * sum(1 + place.pairs for place in outputs)
    times = max(1, min(ELEMENTS // of_all, tall * wide // WARPS))
    down = min(times, tall)
    warp = layout.rows * down, layout.columns * (times // down)
    # Rows that begin within units of 16 bytes share sectors: warps of a CTA lie side by side (H200: 95 us and 73).
    ragged = any(p.together() * p.bits < ACCESS_BITS for p in places if p.neighbours in {rows, columns} - {None})
    side_by_side = math.gcd(-(-output.size(columns) // warp[1]), WARPS) if not turned else 2 if along else 1
    across = side_by_side if ragged else 1
    down = min(WARPS // across, power_of_two(output.size(rows), warp[0]))
    warps = down, WARPS // down
    cta = warp[0] * warps[0], warp[1] * warps[1]
    fits = output.kind.get_shape()[columns] >= 0 and output.size(columns) % cta[1] == 0
    sizes = rows, columns, layout, warp, warps, cta, fits
    return Traversal(op, inputs, outputs, output, *sizes, turned=along, sharing=full)


def _along_shared(inputs: Sequence[TraversedMemory], rows: int | None, columns: int) -> int | None:
    """The loop around that of rows along which some inputs are the same, and others lie closer than along rows: that of
    heads that lie behind tokens, which share cosines (H200, RoPE that puts heads first: 77.4 us by rows of tokens, by
    rows of heads 76.4, 73.0 with all loads before the first store)."""
    around = None if rows is None else rows - 1
    if around is None or around in (-1, columns) or any(columns not in place.loops for place in inputs):
        return None
    same = [place for place in inputs if around not in place.loops]
    apart = [dict(zip(p.loops, strides_of(p.kind) or (), strict=False)) for p in inputs if around in p.loops]
    closer = all(rows in steps and (steps[around] or 0) < (steps[rows] or 0) for steps in apart)
    return around if same and apart and closer else None


def as_rows(op: LinalgStructuredOperation) -> RowsOp:
    """An elementwise operation on memory as one on rows, which is in no block. Raises a located diagnostic for any
    other, and for elements and memory that no kernel goes through."""
    if (elementwise := read_elementwise(op)) is None:
        fail(op, f"{op.name} has no kernel: {why_not_elementwise(op)}")
    block, inputs, maps, elements = Block(), list[SSAValue](), list[AffineMap](), dict[int, SSAValue]()
    for i, value in enumerate(elementwise.inputs):
        if elementwise.reads(i) and isinstance(value.owner, arith.ConstantOp):
            block.add_op(constant := value.owner.clone())
            elements[i] = constant.result
        elif elementwise.reads(i):
            inputs.append(value)
            maps.append(elementwise.maps[i])
            elements[i] = block.insert_arg(element_type(value), len(block.args))
    indices = {loop: IndexOp(loop) for loop in elementwise.indexed}
    block.add_ops(indices.values())
    result = elementwise.append(block, elements, {loop: index.result for loop, index in indices.items()})
    block.add_op(YieldOp(_cast(op, block, result, element_type(elementwise.output))))
    maps.append(AffineMap.identity(elementwise.loops))
    _check_memory(op, [*inputs, elementwise.output], maps)
    rows = in_place_of(op, RowsOp(inputs, [elementwise.output], maps, Region(block)))
    rows.attributes[EXACT] = UnitAttr()
    return rows


def _check_memory(op: Operation, values: Sequence[SSAValue], maps: Sequence[AffineMap]) -> None:
    """Refuses elements and memory that no kernel goes through."""
    memories = [(v, m) for v, m in zip(values, maps, strict=True) if isinstance(v.type, MemRefType)]
    *places, output = [TraversedMemory.of(value, loops_of(map_)) for value, map_ in memories]
    for place in (*places, output):
        if place.bits < 8 and (place is output or place.bits != PACKED_BITS):
            kind = place.kind.element_type
            fail(op, f"{op.name} on elements of {kind} has no kernel of its own; {HAVE_KERNELS} have")
    if any(p.value == output.value and p.loops != output.loops for p in places):
        fail(op, f"{op.name} reads its own output in another order than it writes it")
    if 0 in output.kind.get_shape():
        fail(op, f"the output of {op.name} has no elements to go through: {output.kind}")
    for place in places:
        if place.bits < 8 and (place.neighbours != _columns(output) or place.together() % 2):
            which = f"{op.name} on elements of {place.kind.element_type}"
            fail(op, f"{which} needs whole bytes of elements that are neighbours in its output too, got {place.kind}")


def _columns(output: TraversedMemory) -> int:
    """The loop along a row of the output: one along which its elements are neighbours."""
    return len(output.loops) - 1 if output.neighbours is None else output.neighbours


def _layout(
    places: Sequence[TraversedMemory],
    turned: Sequence[TraversedMemory],
    rows: int,
    length: int,
    columns: int,
    written: int,
) -> Layout:
    """The layout of a warp's base tile for every operand. The output has `rows` rows of `length` elements of `written`
    bits."""
    least = min(place.bits for place in places)
    elements, across = lanes_along(written, [p.together() for p in places if p.neighbours == columns], length)
    if turned:
        sector = SECTOR_BITS // max(place.bits for place in turned)
        across = LANE_BITS - min(LANE_BITS, sector.bit_length() - 1)
    across = LANE_BITS if rows == 1 else across
    # Elements that fill no register are of other rows, where there are any.
    return lane_layout(least, elements, across, more_rows=across < LANE_BITS)


def _transposed(turned: Sequence[TraversedMemory], outputs: Sequence[TraversedMemory]) -> tuple[Layout, Layout] | None:
    """How a warp's rows lie where inputs lie transposed, and how these are loaded, if both have accesses of 16 bytes:
    `movmatrix` takes one layout to the other. None for others."""
    written = max(place.bits for place in outputs)
    whole = all(place.together() * written >= ACCESS_BITS for place in (*turned, *outputs))
    if not turned or not whole or any(place.bits != written for place in turned):
        return None
    return {BYTE: BYTES, HALF_WORD: HALVES}.get(written)


def _staged(
    turned: Sequence[TraversedMemory],
    outputs: Sequence[TraversedMemory],
    output: TraversedMemory,
    rows: int | None,
    columns: int,
) -> Layout | None:
    """How a warp loads 32 rows of 32 elements of 16 bits that lie transposed, and that go through shared memory, for
    their rows, or those of the output, begin within units of 16 bytes. None for others, and for small matrices.

    Lanes are side by side to the end of 64 bytes, of the widest accesses 32: the lanes of two rows of shared memory
    meet at its banks, of four they would too."""
    places = (*turned, *outputs)
    if not turned or any(place.bits != HALF_WORD for place in places) or _transposed(turned, outputs):
        return None
    if output.size(rows) < SIDE or output.size(columns) <= SIDE:  # a row of one warp's columns has no two for a lane
        return None
    return _loaded(turned, SIDE, SIDE, 1)


def _loaded(turned: Sequence[TraversedMemory], rows: int, columns: int, widest: int) -> Layout:
    """How a warp loads so many elements that lie transposed: a lane has neighbours of one access, and lanes are side by
    side in memory, 2^`widest` of accesses of 16 bytes."""
    along, across = ([axis(i) for i in range(size.bit_length() - 1)] for axis, size in ((row, rows), (column, columns)))
    own = min(ACCESS_BITS // HALF_WORD, *(place.together() for place in turned))
    first = own.bit_length() - 1
    lanes = [*along[first : first + widest if own * HALF_WORD == ACCESS_BITS else None], *across[1:]][:LANE_BITS]
    rest = [bit for bit in (*along[first:], *across[1:]) if bit not in lanes]
    return Layout(tuple(lanes), (*along[:first], across[0], *rest))


def by_sectors(traversal: Traversal) -> Traversal:
    """The traversal, by whole sectors of the output if all inputs lie transposed and may go through shared memory, or
    are large, all else than rows is apart by sectors, and rows are not so short that their ends are most of them.
    Elements from row to row in shared memory are so many that rows there lie to sectors as they do in the output."""
    output, width = traversal.output, WARP_COLUMNS * STAGED_WARPS
    shape, strides = output.kind.get_shape(), dict(zip(output.loops, strides_of(output.kind) or (), strict=True))
    whole = isinstance(output.kind.layout, NoneAttr) and min(shape) >= 0 and math.prod(shape) < LARGEST_ROW
    turned = output.bits == HALF_WORD and all(p.value in traversal.turned for p in traversal.inputs.values())
    others = [stride or 0 for loop, stride in strides.items() if loop not in (traversal.rows, traversal.columns)]
    turned = turned and (traversal.staged or math.prod(shape) >= LARGE)
    begin = 0 if traversal.rows is None else (strides[traversal.rows] or 0) % OF_SECTOR
    tiles = FEWEST_TILES if traversal.staged or begin else MANY_TILES
    few = output.size(traversal.columns) < tiles * width or output.size(traversal.rows) < CTA_ROWS
    if not whole or not turned or few or any(stride % OF_SECTOR for stride in others):
        return traversal
    places, pitch = list(traversal.inputs.values()), width + begin
    layout = _loaded(places, CTA_ROWS, WARP_COLUMNS, CTA_ROWS.bit_length())
    return replace(
        traversal,
        layout=ROWS if output.together() > 1 else ODD_ROWS,
        warp=(CTA_ROWS // STAGED_WARPS, width),
        warps=(STAGED_WARPS, 1),
        cta=(CTA_ROWS, width - OF_SECTOR),
        fits=False,
        turned=dict.fromkeys((place.value for place in places), layout),
        staged=True,
        pitch=pitch,
    )


def _warps(columns: int) -> int:
    """Warps of a CTA, each of which loads 32 columns of an output."""
    return min(STAGED_WARPS, power_of_two(columns, SIDE))


def power_of_two(size: int, step: int) -> int:
    """The least power of two of steps that cover a size."""
    return 1 << (-(-size // step) - 1).bit_length()


def _cast(op: Operation, block: Block, value: SSAValue, wanted: Attribute) -> SSAValue:
    """A value converted to the type of the output, as `linalg.fill` and `linalg.copy` do."""
    source = value.type
    if source == wanted:
        return value
    rows = element_row(source), element_row(wanted)
    if rows[0] is None or rows[1] is None or rows[0].is_float != rows[1].is_float or rows[0].bits == rows[1].bits:
        fail(op, f"{op.name} from {source} to {wanted} is not lowered")
    with ImplicitBuilder(block):
        return converted(value, wanted)
