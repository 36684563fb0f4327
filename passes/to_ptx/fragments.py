"""Fragments in registers: constants, arithmetic, conversion, products, permutations; and moves of matrices."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from ...dialect.isa.form import ElementType
from ...dialect.isa.mma import LoadMatrix
from ...dialect.layouts.layout import LANES, Layout, row
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.fragments import Kind, Matrix, MoveRow, matrices, unit
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.op_shapes import in_memory
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import float_value
from .addressing import Addressing, Position, SharedPlace
from .emitter import Condition, EmittedOperand, Emitter, IndexValue, VirtualRegister, floating, word

# A fragment is a list of registers per lane: one `.f32` for each f32 element, one `.f64` for each of f64, one `.b32`
# for each pair of 16-bit elements, the first in the low half, or for as many others as fill it; base tile after base
# tile, row by row of tiles.

Fragment = list[VirtualRegister]

PAIRED = "x2"
"""In an opcode: it works on two 16-bit elements at once."""


def register_type(element: ElementType) -> str:
    """The PTX type of the registers that hold elements of this type in a fragment."""
    return element.name if element.name in ("f32", "f64") else "b32"


def per_register(type: FragmentType) -> int:
    """How many elements of a fragment one register holds."""
    return max(1, 32 // type.bits)


class TrailingOperand(NamedTuple):
    """The operands of a product after A, B and C, for each of the instruction's tiles of A or B."""

    of_tiles: Sequence[Sequence[EmittedOperand]]
    of_b: bool = False


class FragmentEmitter:
    """Emits what `warp.mma`, `warp.constant` and `warp.elementwise` mean for one lane."""

    def __init__(self, emitter: Emitter, *, serpentine: bool = True) -> None:
        """`serpentine`: products go back and forth along the rows of base tiles."""
        self.emitter, self.serpentine = emitter, serpentine

    def fresh(self, type: FragmentType) -> Fragment:
        """Registers for a fragment."""
        return self.emitter.registers(register_type(type.element), type.registers)

    def constant(self, type: FragmentType, value: float) -> Fragment:
        number = literal(type, value)
        return [self.emitter.compute(f"mov.{register_type(type.element)}", number) for _ in range(type.registers)]

    def copy(self, source: Fragment, into: Fragment) -> None:
        for a, b in zip(source, into, strict=True):
            if a is not b:
                self.emitter.move(b, a)

    def select(self, condition: Condition, yes: Fragment, no: Fragment) -> Fragment:
        """One of two fragments. If the condition is a register, the result has registers of its own."""
        if isinstance(condition, bool):
            return yes if condition else no
        return [self.emitter.compute(f"selp.{a.type}", a, b, condition) for a, b in zip(yes, no, strict=True)]

    def multiply(
        self, op: MmaOp, a: Fragment, b: Fragment, c: Fragment, d: Fragment, extras: Sequence[TrailingOperand] = ()
    ) -> Fragment:
        """D = A * B + C, one instruction for each triple of base tiles; D and C may be the same registers. Returns the
        registers that the last instruction sets."""
        row, last = op.row, d
        of_a, of_b, of_c = op.origins()
        # Tiles are found by where they begin, for the operands may number rows, columns and k otherwise.
        first, second, third = ({at: i for i, at in enumerate(tiles)} for tiles in (of_a, of_b, of_c))
        down, across = (list(dict.fromkeys(where)) for where in ((m for m, _ in of_a), (n for _, n in of_b)))
        deep = list(dict.fromkeys(k for _, k in of_a))
        na, nb, nc, nd = (row.registers(role) for role in "abcd")
        for step, k in enumerate(deep):
            source, n = (c, nc) if step == 0 else (d, nd)
            for i, m in enumerate(down):
                held_a = first[m, k]
                for j in reversed(across) if self.serpentine and i % 2 else across:
                    held_b, tile = second[k * op.sparsity, j], third[m, j]
                    trailing = (extra.of_tiles[held_b if extra.of_b else held_a] for extra in extras)
                    last = d[tile * nd : (tile + 1) * nd]
                    self.emitter.emit(
                        row.spelling,
                        last,
                        a[held_a * na : (held_a + 1) * na],
                        b[held_b * nb : (held_b + 1) * nb],
                        source[tile * n : (tile + 1) * n],
                        *(operand for operands in trailing for operand in operands),
                    )
        return last

    def elementwise(self, kind: Kind, element: ElementType, inputs: list[Fragment], into: Fragment) -> None:
        """Computes elementwise into registers, which may be those of an input."""
        opcode = elementwise_opcode(kind, element)
        for registers in zip(into, *inputs, strict=True):
            self.emitter.emit(opcode, *registers)

    def halves(self, source: Fragment, element: ElementType) -> Fragment:
        """8-bit floats as f16: two registers of each."""
        result: Fragment = []
        for packed in source:
            pairs = self.emitter.registers("b16", 2)
            for i, into in enumerate(wide := self.emitter.registers("b32", 2)):
                both = "mov.b32", (pairs, packed)
                self.emitter.defer(into, both, (f"cvt.rn.f16x2.{element.name}{PAIRED}", (into, pairs[i])))
            result += wide
        return result


SPELLINGS = {Kind.Maximum: "max.NaN", Kind.Minimum: "min.NaN"}
"""Instructions that are called otherwise than what they do."""


def elementwise_opcode(kind: Kind, element: ElementType) -> str:
    """The instruction that does an operation on one register of elements."""
    type = element.name if element.bits >= 32 else f"{element.name}x2"
    rounded = "rn." if element.is_float and kind in (Kind.Add, Kind.Sub, Kind.Mul) else ""
    return f"{SPELLINGS.get(kind, str(kind))}.{rounded}{type}"


def literal(type: FragmentType, value: float) -> Immediate:
    """A register full of one value, as a literal."""
    element, bits = type.element, element_bits(type.element, value)
    if element.name == "e2m1" and type.bits > element.bits:
        bits <<= 2  # PTX ISA 9.7.14.5.14: e2m1 lies in the middle of its byte.
    if element.name == "f32":
        return floating(bits)
    if element.name == "f64":
        return floating(bits, 64)
    return word(sum(bits << place for place in range(0, 32, type.bits)))


def element_bits(element: ElementType, value: float) -> int:
    """The bits of one element, rounded to nearest even."""
    if not element.is_float:
        return int(value) & ((1 << element.bits) - 1)
    if element.bits <= 8:
        import ml_dtypes
        import numpy as np

        return int(np.array([value], getattr(ml_dtypes, element.numpy)).view(np.uint8)[0])
    if element.name in ("f16", "f64"):
        return _bits(value, *{"f16": ("<e", "<H"), "f64": ("<d", "<Q")}[element.name])
    return _bits(_as_bf16(value), "<f", "<I") >> 16 if element.name == "bf16" else _bits(value, "<f", "<I")


def _bits(value: float, format: str, word: str) -> int:
    """The bits of a value in a format of `struct`; an infinity where it is too large."""
    try:
        packed = struct.pack(format, value)
    except OverflowError:
        packed = struct.pack(format, math.copysign(math.inf, value))
    return struct.unpack(word, packed)[0]


def _as_bf16(value: float) -> float:
    """The value rounded to the 8 significant bits of a bf16, or to its least subnormal, 2^-133."""
    if not math.isfinite(value):
        return value
    quantum = max(math.frexp(value)[1] - 8, -133)
    return math.copysign(math.ldexp(round(math.ldexp(value, -quantum)), quantum), value)


# Elements that change places within a lane, a register at a time.

REGISTER_BITS, HALF = 32, 16
"""Bits of a register, and of the pieces that two of make one."""


AND_OR = word(0xEA, 2)
"""The truth table of a & b | c."""


def gather(emitter: Emitter, tile: Fragment, places: Sequence[tuple[int, int]], bits: int) -> VirtualRegister:
    """A register of the elements at (register, number within it)."""
    registers = {register for register, _ in places}
    if len(registers) == 1 and [number for _, number in places] == [*range(len(places))]:
        return tile[places[0][0]]
    if bits >= 8:
        parts = bits // 8
        elements = [(tile[register], number * parts + i) for register, number in places for i in range(parts)]
        return _bytes(emitter, elements)
    return _result_bits(emitter, [(tile[register], number * bits) for register, number in places], bits)


def put_together(emitter: Emitter, pieces: Fragment, into: Fragment) -> None:
    """Makes registers of halves, or of bytes in registers of their own, each of neighbours."""
    each = len(pieces) // len(into)
    for number, register in enumerate(into):
        own = pieces[number * each :][:each]
        if each == 2:
            emitter.emit("mov.b32", register, own)
        else:
            emitter.move(register, gather(emitter, own, [(i, 0) for i in range(each)], REGISTER_BITS // each))


def _bytes(emitter: Emitter, wanted: Sequence[tuple[VirtualRegister, int]]) -> VirtualRegister:
    """Four bytes gathered by `prmt`, one for each source after the first."""
    first, *others = dict.fromkeys(register for register, _ in wanted)
    gathered = first
    for other in others or [first]:
        # Bytes that wait for a later source are whatever is there.
        selector = 0
        for i, (register, byte) in enumerate(wanted):
            mine = byte + 4 if register is other and other is not first else byte if gathered is first else i
            selector |= mine << 4 * i
        gathered = emitter.compute("prmt.b32", gathered, other, word(selector, 4))
    return gathered


def _result_bits(emitter: Emitter, wanted: Sequence[tuple[VirtualRegister, int]], bits: int) -> VirtualRegister:
    """Gathers elements by shifts and masks; those of one register that move alike are moved together."""
    masks: dict[tuple[VirtualRegister, int], int] = {}
    for i, (register, at) in enumerate(wanted):
        shift = i * bits - at
        masks[register, shift] = masks.get((register, shift), 0) | ((1 << bits) - 1) << i * bits
    gathered: VirtualRegister | None = None
    for (register, shift), mask in masks.items():
        moved = register
        if shift:
            moved = emitter.compute("shl.b32" if shift > 0 else "shr.b32", register, abs(shift))
        if gathered is None:
            gathered = emitter.compute("and.b32", moved, word(mask))
        else:
            # (moved & mask) | gathered in one instruction.
            gathered = emitter.compute("lop3.b32", moved, word(mask), gathered, AND_OR)
    return gathered if gathered is not None else wanted[0][0]


# Fragments from and to shared memory in matrices of rows of 16 bytes, which lanes exchange.


class MatrixMoves:
    """Moves fragments from and to shared memory with `ldmatrix` and `stmatrix`."""

    def __init__(self, addressing: Addressing) -> None:
        self.scalars, self.addressing = addressing.scalars, addressing

    def move(
        self, rows: Sequence[MoveRow], type: FragmentType, swapped: bool, place: SharedPlace, registers: Fragment
    ) -> None:
        """Loads or stores the fragment that begins at a place of a tile."""
        pieces = matrices(type, swapped, unit(rows[0], type.bits)) or []
        start = 0
        while start < len(pieces):
            row = next(r for r in rows if _fits(pieces[start : start + r.count], r.count))
            together = pieces[start : start + row.count]
            moved = [registers[number] for matrix in together for number in matrix.registers]
            self._move(row, unit(row, type.bits).rows, together, place, moved, self._of_warp(in_memory(type, swapped)))
            start += row.count

    def _of_warp(self, layout: Layout) -> tuple[IndexValue, IndexValue]:
        """The row and the column at which a warp's part of a shared fragment begins."""
        if not layout.warp:
            return 0, 0
        warp = self.scalars.quotient(self.addressing.holder(layout), LANES)
        return self.addressing.from_bits(warp, layout.warp, "r"), self.addressing.from_bits(warp, layout.warp, "c")

    def _move(self, move: MoveRow, height: int, together: list[Matrix], place: SharedPlace, registers: Fragment,
              of_warp: tuple[IndexValue, IndexValue]) -> None:  # fmt: skip
        tile, stage, row_start, column_start = place
        first, s, height_bits = together[0], self.scalars, height.bit_length() - 1
        lane = self.addressing.lane
        lane_row = self.addressing.from_bits(lane, tuple(map(row, first.rows)), "r")
        lane_column: IndexValue = 0
        # Lane height*j + i gives the address of row i of matrix j; each bit of j moves by one step.
        for bit in range(move.count.bit_length() - 1):
            other = together[1 << bit]
            chosen = s.bits(lane, height_bits + bit, 1, 0)
            lane_row = self._plus(lane_row, chosen, other.row - first.row)
            lane_column = self._plus(lane_column, chosen, (other.column - first.column) // tile.packed)
        lane_row, lane_column = self._sum(lane_row, of_warp[0]), self._sum(lane_column, of_warp[1])
        where = (
            Position.of(lane_row, row_start, first.row),
            Position.of(lane_column, column_start, first.column // tile.packed),
        )
        at = self.addressing.shared(tile, stage, *where)
        operands = (registers, at) if isinstance(move, LoadMatrix) else (at, registers)
        self.addressing.emitter.emit(move.spelling, *operands)

    def _plus(self, value: IndexValue, chosen: IndexValue, step: int) -> IndexValue:
        return self._sum(value, self.scalars.multiply(chosen, step))

    def _sum(self, value: IndexValue, moved: IndexValue) -> IndexValue:
        """A sum, with its bound if the bounds of both terms are known."""
        total = self.scalars.add(value, moved)
        if (
            isinstance(total, VirtualRegister)
            and isinstance(value, VirtualRegister)
            and isinstance(moved, VirtualRegister)
        ):
            bounded = value.bound is not None and moved.bound is not None
            total.bound = (value.bound or 0) + (moved.bound or 0) - 1 if bounded else None
        return total


def _fits(matrices: list[Matrix], count: int) -> bool:
    """Whether there are `count` matrices on a grid that the bits of their number span."""
    if len(matrices) < count:
        return False
    if count < 4:
        return True
    (r0, c0), (r1, c1), (r2, c2), (r3, c3) = ((m.row, m.column) for m in matrices)
    return (r3 - r0, c3 - c0) == (r1 - r0 + r2 - r0, c1 - c0 + c2 - c0)


# Registers that a value may be made in.


def only_use_is_here(value: SSAValue, op: Operation) -> bool:
    """Whether `op` may overwrite the registers of a value: it is the only use, and runs once for each definition."""
    owner = value.owner
    block = owner.parent if isinstance(owner, Operation) else owner
    return value.has_one_use() and block is op.parent


def carried_into(value: SSAValue, *, in_place: bool = False) -> SSAValue | None:
    """The loop variable that a value becomes in the next iteration, if the value can be defined in its registers. That
    requires that the value is only yielded, and that every use of the variable comes earlier in the body, or is the
    definition itself, if that works `in_place`: it reads each register before it writes it. Products of warpgroups
    leave sums where they are."""
    use, op = value.get_user_of_unique_use(), value.owner
    while isinstance(use, WgmmaOp) and use.c is value:
        value = use.d
        use = value.get_user_of_unique_use()
    if not isinstance(use, scf.YieldOp) or not isinstance(op, Operation) or op.parent is not use.parent:
        return None
    loop = use.parent_op()
    if not isinstance(loop, scf.ForOp):
        return None
    variable = loop.body.block.args[1 + list(use.operands).index(value)]
    users = [u.operation for u in variable.uses]
    if all((in_place and u is op) or (u.parent is op.parent and u.is_before_in_block(op)) for u in users):
        return variable
    return None


LESSER, GREATER = (arith.MinimumfOp, arith.MinnumfOp), (arith.MaximumfOp, arith.MaxnumfOp)
"""What an element is clamped by."""


def is_clamped(value: SSAValue, bound: float) -> bool:
    """Whether a value is clamped by a maximum and a minimum to constants of absolute values below a bound."""
    for lower, upper in ((LESSER, GREATER), (GREATER, LESSER)):
        inner = _other_than_constant(value, lower, bound)
        if inner is not None and _other_than_constant(inner, upper, bound) is not None:
            return True
    return False


def _other_than_constant(value: SSAValue, kinds: tuple[type[Operation], ...], bound: float) -> SSAValue | None:
    """For an operation of these kinds with a constant operand below `bound`, the other operand; None otherwise."""
    owner = value.owner
    if not isinstance(owner, kinds):
        return None
    for other, constant in (owner.operands, owner.operands[::-1]):
        number = float_value(constant)
        if number is not None and abs(number) < bound:
            return other
    return None
