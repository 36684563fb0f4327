"""Where elements lie: matrices in global memory, swizzled tiles in shared memory, bounds, parameters of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import NamedTuple

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.isa.tensor_map import MAP_ALIGNMENT
from ...dialect.isa.tensor_map import SIZE as MAP_BYTES
from ...dialect.layouts.layout import Bit, Layout
from ...dialect.mlir.affine import dynamic_parts, strides_of
from ...dialect.ptx.ops import VariableAttr
from ...dialect.ptx.text.syntax import Address, Symbol, Variable
from ...dialect.warp.attributes import Memory, element_row, is_memory, memory_of, memory_space, type_name
from ...dialect.warp.tensor_maps import TensorMapType
from ...dialect.warp.views import Dimensions
from ..diagnostics import fail
from ..linalg.operand import GLOBAL_SPACE, promised
from .emitter import At, Condition, Emitter, IndexValue, VirtualRegister
from .scalars import Scalars, divisor_of, runs, split

ALIGNMENT = 16
"""Bytes to which kernel arguments are aligned; the launch checks it."""

CHUNK = 16
"""Bytes that a swizzle moves together."""


@dataclass(frozen=True, eq=False)
class GlobalMatrix:
    """A matrix. `base` is its 64-bit global address, a multiple of `alignment`. `pitch` is the stride of rows in bytes,
    None if there are no gaps, `step` that of columns, None if they are contiguous; rows or columns of stride 0 repeat.
    Of elements of less than a byte, columns and sizes count bytes of `packed` ones. Where a `table` in memory has their
    numbers, it is its address, the number of the first row's, how many there are, and the bytes of each.
    """

    base: VirtualRegister
    rows: IndexValue
    columns: IndexValue
    element_bytes: int
    packed: int = 1
    pitch: IndexValue | None = None
    alignment: int = ALIGNMENT
    step: IndexValue | None = None
    table: tuple[VirtualRegister, IndexValue, IndexValue, int] | None = None

    @property
    def column_bytes(self) -> IndexValue:
        """Bytes from one column to the next."""
        return self.element_bytes if self.step is None else self.step

    @property
    def repeats(self) -> bool:
        """Whether elements of the matrix are the same memory."""
        return 0 in (self.row_bytes, self.column_bytes)

    @property
    def row_bytes(self) -> IndexValue:
        """Bytes from one row to the next."""
        if self.pitch is None and isinstance(self.columns, int):
            return self.columns * self.element_bytes
        return 0 if self.pitch is None else self.pitch

    def widest_access(self, limit: int = ALIGNMENT) -> int:
        """The widest access in bytes that is aligned in every row and never crosses the end of the row."""
        if self.step is not None:
            return self.element_bytes
        size = limit
        row = gcd(divisor_of(self.row_bytes), divisor_of(self.columns) * self.element_bytes)
        while row % size or self.alignment % size:
            size //= 2
        return max(size, self.element_bytes)


@dataclass(frozen=True, eq=False)
class MemoryArgument:
    """Memory of any rank: an argument's, or a CTA's (32-bit address). `strides` in elements: numbers or registers."""

    base: VirtualRegister
    shape: tuple[IndexValue, ...]
    strides: tuple[IndexValue, ...]
    element_bits: int
    alignment: int = ALIGNMENT
    space: str = "global"


@dataclass(frozen=True, eq=False)
class SharedTile:
    """Buffers of rows x columns in shared memory, `swizzle` bytes wide panels stored one after another. `offset` is in
    bytes from the start of the CTA's dynamic shared memory. `skip` bits of the row do not count for the permutation. Of
    elements of less than a byte, columns and sizes count bytes, each of `packed` elements. Tiles that are `row_by_row`
    are one panel, of which nothing is permuted, and columns go on in the next row."""

    offset: int
    stages: int
    rows: int
    columns: int
    element_bytes: int
    swizzle: int
    skip: int = 0
    packed: int = 1
    row_by_row: bool = False

    @property
    def stage_bytes(self) -> int:
        return self.rows * self.columns * self.element_bytes

    @property
    def panel_bytes(self) -> int:
        return self.rows * self.swizzle

    @property
    def panels(self) -> int:
        return self.columns * self.element_bytes // self.swizzle

    @property
    def chunks(self) -> int:
        """Chunks of a line that change places; 1 when nothing does."""
        return 1 if self.row_by_row else max(1, self.swizzle // CHUNK)

    def in_rows(self, rows: int, columns: int) -> SharedTile:
        """The memory of a tile in rows of so many columns, one after another."""
        return replace(self, rows=rows, columns=columns, swizzle=columns * self.element_bytes, row_by_row=True)

    @property
    def period(self) -> int:
        """After how many rows the permutation repeats."""
        return 8 << self.skip if self.chunks > 1 else 1


@dataclass(frozen=True, eq=False)
class SharedBarriers:
    """Mbarriers one after another, `offset` bytes from the start of the CTA's dynamic shared memory."""

    offset: int


class TensorTile(NamedTuple):
    """Matrices in tensor memory side by side, each of `columns` columns, from the address in `base` on."""

    base: VirtualRegister
    columns: int


class Position(NamedTuple):
    """A coordinate in three parts: of the lane or thread, of the program, and known while compiling."""

    lane: IndexValue = 0
    program: IndexValue = 0
    constant: int = 0

    @staticmethod
    def of(lane: IndexValue, program: IndexValue, constant: int) -> Position:
        """The position with the constant part of `program` moved where it belongs."""
        register, offset = split(program)
        return Position(lane, register if register is not None else 0, constant + offset)


class GlobalPlace(NamedTuple):
    """Where a fragment of a matrix begins, before its first column perhaps if it is to lie `within` them; `in_bounds`
    says of rows and columns that all of them are inside."""

    matrix: GlobalMatrix
    row: IndexValue
    column: IndexValue
    in_bounds: tuple[bool, bool]
    within: bool = False


class SharedPlace(NamedTuple):
    """The element of a tile at which a fragment begins."""

    tile: SharedTile
    stage: IndexValue
    row: IndexValue
    column: IndexValue


class Addressing:
    """Computes addresses and bounds over an emitter, of one thread and its lane."""

    def __init__(
        self, emitter: Emitter, scalars: Scalars, shared: str, thread: IndexValue, lane: VirtualRegister
    ) -> None:
        self.emitter, self.scalars, self.shared_symbol, self.thread, self.lane = emitter, scalars, shared, thread, lane

    def from_bits(self, source: IndexValue, bits: tuple[Bit, ...], axis: str) -> IndexValue:
        """The coordinate along an axis that bits of `source` encode; consecutive bits are shifted together."""
        places = [bit.number if bit.axis == axis else None for bit in bits]
        return self.scalars.sum(0, *(self.scalars.bits(source, *run) for run in runs(places)))

    def holder(self, layout: Layout) -> IndexValue:
        """The number of a lane among the threads that hold a fragment, several warps perhaps."""
        return self.scalars.mask(self.thread, layout.threads - 1) if layout.warp else self.lane

    def lane_position(self, layout: Layout) -> tuple[IndexValue, IndexValue]:
        """(row, column) of a lane's first element; of a thread's, where several warps hold the matrix."""
        holder, bits = self.holder(layout), layout.lane + layout.warp
        return self.from_bits(holder, bits, "r"), self.from_bits(holder, bits, "c")

    def shared(self, tile: SharedTile, stage: IndexValue, row: Position, column: Position) -> At:
        """The shared address of an element whose column is a multiple of an access."""
        s, width = self.scalars, tile.swizzle
        start = s.add(self._shared_base(), tile.offset)
        stage_offset, size = s.multiply(stage, tile.stage_bytes), tile.element_bytes
        lane, program = s.multiply(column.lane, size), s.multiply(column.program, size)
        panel, within = divmod(column.constant * size, width)
        periods, rest = divmod(row.constant, tile.period)
        fixed = panel * tile.panel_bytes + periods * tile.period * width
        # Rows whose bits the lane's have not, are permuted by the same as the lane's, and by what these bits say.
        apart = divisor_of(row.lane) % (1 << rest.bit_length()) == 0
        rows_repeat = divisor_of(row.program) % tile.period == 0 and apart
        line = s.sum(row.lane, row.program, rest)
        if tile.row_by_row:
            return self._general(tile, s.add(start, stage_offset), line, s.sum(lane, program), fixed + within)
        if not (rows_repeat and self._disjoint(lane, program, within, width)):
            return self._general(tile, s.add(start, stage_offset), line, s.sum(lane, program, within), fixed)
        within, fixed = s.xor(within, self._permutation(tile, rest)), fixed + rest * width
        line = s.multiply(row.lane, width)
        inside = s.xor(s.add(line, lane), self._permutation(tile, row.lane))
        whole_panels, rest_of_line = self._panels(tile, program)
        base = s.sum(start, s.xor(inside, rest_of_line), whole_panels, s.multiply(row.program, width))
        if isinstance(stage_offset, int):
            # Stages are whole lines, so what is XORed into a line may be before a known one is added.
            return self.settle(s.xor(base, within), fixed + stage_offset)
        return self.settle(s.xor(s.sum(base, stage_offset), within), fixed)

    def origin(self, tile: SharedTile, stage: IndexValue, row: IndexValue, column: IndexValue) -> At:
        """The shared address of an element whose line nothing permutes: the first of eight, as for a descriptor."""
        s = self.scalars
        panels, rest = self._panels(tile, s.multiply(column, tile.element_bytes))
        along = s.sum(s.multiply(stage, tile.stage_bytes), panels, s.multiply(row, tile.swizzle), rest)
        return self.shared_bytes_at(tile.offset, along)

    def shared_bytes_at(self, offset: int, along: IndexValue) -> At:
        """The address `offset` + `along` bytes into the CTA's shared memory."""
        return self.settle(self.scalars.sum(self._shared_base(), along), offset)

    def _general(self, tile: SharedTile, start: IndexValue, line: IndexValue, column: IndexValue, offset: int) -> At:
        """The address with nothing known of the alignment of its parts; `column` is in bytes."""
        s = self.scalars
        whole_panels, rest = self._panels(tile, column)
        inside = s.xor(s.add(s.multiply(line, tile.swizzle), rest), self._permutation(tile, line))
        return self.settle(s.sum(start, whole_panels, inside), offset)

    def _panels(self, tile: SharedTile, column_bytes: IndexValue) -> tuple[IndexValue, IndexValue]:
        """The offset of a column's panel, and the bytes into its line."""
        s, width = self.scalars, tile.swizzle
        if divisor_of(column_bytes) % width == 0:
            return s.multiply(column_bytes, tile.panel_bytes // width), 0
        if tile.panels == 1:
            return 0, column_bytes
        return s.multiply(s.quotient(column_bytes, width), tile.panel_bytes), s.mask(column_bytes, width - 1)

    def _permutation(self, tile: SharedTile, row: IndexValue) -> IndexValue:
        """What is XORed into the byte offset of a line: the line's number in units of 128 bytes (after a skip, of
        twice or four times that), times 16."""
        s = self.scalars
        if tile.chunks == 1:
            return 0
        lines_per_unit = (128 << tile.skip) // tile.swizzle
        return s.multiply(s.mask(s.quotient(row, lines_per_unit), tile.chunks - 1), CHUNK)

    @staticmethod
    def _disjoint(lane: IndexValue, program: IndexValue, within: int, width: int) -> bool:
        """Whether the parts of a column never share a bit below `width`, so that adding them is XORing them."""
        if isinstance(lane, VirtualRegister) and (lane.bound is None or lane.bound > width):
            return False
        spans: list[tuple[int, int]] = []
        for part in (lane, program, within):
            if isinstance(part, VirtualRegister):
                spans.append((part.divisor & -part.divisor, part.bound or width))
            elif part:
                spans.append((part & -part, 1 << part.bit_length()))
        top = 1
        for low, high in sorted(spans):
            if low < min(top, width):
                return False
            top = max(top, high)
        return True

    def _shared_base(self) -> VirtualRegister:
        return self.emitter.pure("mov.u32", Symbol(self.shared_symbol))

    def settle(self, address: IndexValue, offset: int) -> At:
        """The address `offset` bytes behind one in shared memory."""
        base, constant = split(address)
        return At(self.emitter.pure("mov.u32", address), offset) if base is None else At(base, constant + offset)

    def inside(self, position: Position, extent: int, size: IndexValue) -> Condition:
        """Whether a coordinate lies below `size`. The lane's part stays below `extent`; where it does so with the
        constant's remainder, and size and program are multiples of the extent, a block is inside as a whole or not."""
        s, (lane, program, start) = self.scalars, position
        most = lane if isinstance(lane, int) else min(lane.bound or extent, extent) - 1
        together = start % extent + most < extent
        if not together and program == 0 and isinstance(size, int) and size % extent == 0 and start + most < size:
            return True
        if together and divisor_of(size) % extent == 0 and divisor_of(program) % extent == 0:
            return s.compare("lt", program, s.subtract(size, start - start % extent))
        return s.compare("lt", s.sum(lane, program), s.subtract(size, start))


# Parameters of a kernel: how they are declared, and what a thread has of them.

INDEX_LIMIT = 1 << 31

NUMBERS = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "i1": "b8", "i8": "b8", "i16": "b16", "i32": "b32",
           "i64": "b64", "index": "u32"}  # fmt: skip
"""How a number is declared, by its MLIR type."""


TENSOR_MAPS = (TensorMapType.name, "nvgpu.tensormap.descriptor")
"""The types of a tensor map that a kernel is given."""


def parameters(value: SSAValue, name: str) -> list[VariableAttr]:
    """The declarations of what an argument of a kernel is passed as: a number, or the address of the first element,
    the sizes of dynamic dimensions and then dynamic strides, in elements."""
    if value.type.name in TENSOR_MAPS:
        return [VariableAttr.of("b8", name, count=MAP_BYTES, align=MAP_ALIGNMENT)]
    if str(value.type) in NUMBERS:
        return [VariableAttr.of(NUMBERS[str(value.type)], name)]
    pointer = VariableAttr.of("u64", name, pointer=f".ptr .global .align {alignment(value.type, promised(value))}")
    sizes, strides = dynamic_parts(memory_of(value))
    return [
        pointer,
        *(VariableAttr.of("u32", f"{name}_size{i}") for i in sizes),
        *(VariableAttr.of("u64", f"{name}_stride{i}") for i in strides),
    ]


def alignment(kind: Attribute, divisor: int = 1) -> int:
    """The alignment of an argument's first element in bytes, at most `ALIGNMENT`, as its layout's offset allows."""
    if not is_memory(kind) or not (bits := _bits_of(kind.element_type)):
        return ALIGNMENT
    offset = kind.get_offset()
    return gcd(ALIGNMENT, max(1, bits // 8, divisor * bits // 8) if offset is None else offset * bits // 8)


def _bits_of(kind: Attribute) -> int:
    """The bits of an element in memory; 0 of other types."""
    element = element_row(kind)
    return OTHERS.get(type_name(kind), 0) if element is None else element.memory_bits


def argument(
    kernel: gpu.FuncOp, emitter: Emitter, scalars: Scalars, value: SSAValue, name: str
) -> MemoryArgument | VirtualRegister:
    """The kernel's view of an argument: memory (one row for a vector), the register of a number, or that of the address
    of a tensor map. Raises a located diagnostic for memory that is not strided, or too large for 32-bit indices."""
    if value.type.name in TENSOR_MAPS:
        return emitter.pure("cvta.param.u64", emitter.pure("mov.b64", Symbol(name)))
    if not isinstance(value.type, MemRefType):
        return _number(kernel, emitter, value, name)
    kind = memory_of(value)
    shape, strides = kind.get_shape(), strides_of(kind)
    if memory_space(kind) != GLOBAL_SPACE or strides is None:
        fail(kernel, f"expected kernel arguments in global memory, strided, got {kind}")
    bits = _bits_of(kind.element_type)
    if not bits:
        fail(kernel, f"expected an element type of a matrix instruction, or i16, i64, index, got {kind}")
    strides_ = [stride or 0 for stride in strides]
    if max((0, *shape, *(n * bits // 8 for n in (*shape[-1:], *strides_[-2:])))) >= INDEX_LIMIT:
        fail(kernel, f"indices and rows must stay below 2^31 elements and bytes, got {kind}")
    base = emitter.pure("cvta.to.global.u64", _passed(emitter, "u64", name))
    by = promised(value)
    aligned = alignment(kind, by)
    if dynamic_parts(kind) == ([], []):
        return MemoryArgument(base, shape, tuple(strides_), bits, aligned)
    sizes = _sizes(emitter, kind, name, by)
    return MemoryArgument(base, sizes, _strides(emitter, scalars, kind, sizes, name, by), bits, aligned)


def _sizes(emitter: Emitter, kind: Memory, name: str, divisor: int) -> tuple[IndexValue, ...]:
    """The sizes of memory. Dynamic sizes are registers."""
    sizes, strides = list[IndexValue](kind.get_shape()), strides_of(kind) or ()
    for i in dynamic_parts(kind)[0]:
        sizes[i] = register = _passed(emitter, "u32", f"{name}_size{i}")
        register.divisor = divisor if strides[i] == 1 else 1
    return tuple(sizes)


def _strides(
    emitter: Emitter, scalars: Scalars, kind: Memory, sizes: tuple[IndexValue, ...], name: str, divisor: int
) -> tuple[IndexValue, ...]:
    """The strides of memory in elements. Dynamic ones are 64-bit registers."""
    result: list[IndexValue] = []
    _, passed = dynamic_parts(kind)
    for i, stride in enumerate(strides_of(kind) or ()):
        if stride is not None:
            result.append(stride)
        elif i in passed:
            register = _passed(emitter, "u64", f"{name}_stride{i}")
            register.divisor = divisor
            result.append(register)
        else:
            result.append(scalars.product64(sizes[i + 1 :]))
    return tuple(result)


def _number(kernel: gpu.FuncOp, emitter: Emitter, value: SSAValue, name: str) -> VirtualRegister:
    kind = str(value.type)
    if kind not in NUMBERS:
        fail(kernel, f"expected kernel arguments to be memrefs or numbers of {', '.join(NUMBERS)}, got {kind}")
    if kind == "f16":
        return emitter.pure("cvt.f32.f16", _passed(emitter, "b16", name))
    if kind == "bf16":
        return emitter.pure("mov.b32", emitter.pure("shl.b32", _passed(emitter, "u16", name, "b32"), 16), type="f32")
    if kind == "i1":
        return emitter.pure("setp.ne.s32", _passed(emitter, "u8", name, "b32"), 0)
    if kind == "index":
        return _passed(emitter, "u32", name)
    if kind.startswith("i"):
        return _passed(emitter, f"s{kind[1:]}", name, "b64" if kind == "i64" else "b32")
    return _passed(emitter, kind, name)


def _passed(emitter: Emitter, kind: str, name: str, type: str = "") -> VirtualRegister:
    """A parameter of a PTX type, in a register of `type` if that is wider."""
    return emitter.pure(f"ld.param.{kind}", Address(Symbol(name)), type=type)


def matrix(
    kernel: gpu.FuncOp, scalars: Scalars, memory: MemoryArgument, dimensions: Dimensions, at: Sequence[IndexValue],
    part: Sequence[IndexValue] = (),
) -> GlobalMatrix:  # fmt: skip
    """The matrix of memory with these dimensions as rows and columns (None: a repeated one), at the indices `at` of the
    others. `part` is the first of some rows, and their number. Raises a located diagnostic for rows of elements that do
    not start with a byte. Spare bits of a row's last byte are read as elements, so they must be zero in memory."""
    row, column = dimensions
    bits, packed = memory.element_bits, max(1, 8 // memory.element_bits)
    others = [stride for i, stride in enumerate(memory.strides) if i not in dimensions]
    base, aligned = memory.base, memory.alignment
    others += [memory.strides[row or 0] for _ in part[:1]]
    for index, stride in zip((*at, *part[:1]), others, strict=True):
        base = scalars.offset_far(base, index, stride, bits)
        aligned = gcd(aligned, divisor_of(index) * divisor_of(stride) * bits // 8)
    rows, pitch = (1, 0) if row is None else ((*part[1:], memory.shape[row])[0], memory.strides[row])
    length, step = (1, 0) if column is None else (memory.shape[column], memory.strides[column])
    in_bytes = all(divisor_of(v) % packed == 0 for v in (pitch, *others))
    if packed > 1 and (step != 1 or not in_bytes or (isinstance(length, VirtualRegister) and length.divisor % packed)):
        hint = f"; warp.divisible = {packed} promises them where sizes are not known"
        if isinstance(length, int):
            hint = f", got {length} {bits}-bit elements; strided<[{-(-length // packed) * packed}, 1]> pads them"
        fail(kernel, f"expected rows of whole bytes, {packed} elements each{hint}")
    return GlobalMatrix(
        base,
        rows,
        -(-length // packed) if isinstance(length, int) else scalars.quotient(length, packed),
        max(1, bits // 8),
        packed,
        scalars.bytes_of(pitch, bits),
        aligned,
        None if step == 1 else scalars.bytes_of(step, bits),
    )


# Memory of the CTA that has a name and a size of its own.

OTHERS = {"i1": 8, "i16": 16, "i64": 64, "index": 64}
"""Bits in memory of elements that no product has."""


def element_bits(op: Operation, kind: Memory) -> int:
    """The bits of an element of memory or of a vector: whole bytes."""
    bits = _bits_of(kind.element_type)
    if bits % 8 or not bits:
        fail(op, f"{op.name} is lowered for elements of whole bytes, got {kind}")
    return bits


def static_shared(op: Operation, emitter: Emitter, name: str, kind: Memory) -> tuple[MemoryArgument, Variable]:
    """Memory of the CTA under a name of the module, row by row, and its declaration."""
    bits, shape, strides = element_bits(op, kind), kind.get_shape(), strides_of(kind)
    if min(shape, default=1) < 0 or strides is None or None in strides:
        fail(op, f"expected shared memory of a size that is known, got {kind}")
    variable = Variable("shared", "b8", name, count=prod(shape) * bits // 8, align=ALIGNMENT)
    base = emitter.pure("mov.u32", Symbol(name))
    strides_ = tuple(stride or 0 for stride in strides)
    return MemoryArgument(base, shape, strides_, bits, space="shared"), variable
