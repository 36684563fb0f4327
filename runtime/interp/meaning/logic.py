"""Logic, shifts, moves, carries, and video instructions. PTX ISA 9.7.2, 9.7.8, 9.7.9.3, 9.7.18."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.rows.arithmetic import COMPARISONS
from ....dialect.ptx.text.syntax import Immediate, Not, Operand, Register, Vector
from ....dialect.ptx.types import bits_of
from ...numerics.array import Array
from ..machine.decode import Context, constant, meaning
from ..machine.names import DTYPES, integer_range
from ..machine.state import Action, RegisterSlot, Source, State
from .actions import elementwise, identity, several
from .integer import binary, high, unary, unsigned

# Logic and shifts (PTX ISA 9.7.8), byte permutation, moves (9.7.9.3 and on).

_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@meaning(*_LOGIC)
def logic(ctx: Context, bound: Bindings) -> Action:
    """Bitwise, and of predicates."""
    return binary(ctx, bound["T"], _LOGIC[ctx.row.root])


@meaning("not")
def invert(ctx: Context, bound: Bindings) -> Action:
    """Complement."""
    return unary(ctx, bound["T"], np.invert)


@meaning("cnot")
def cnot(ctx: Context, bound: Bindings) -> Action:
    """1 for zero, 0 for anything else."""
    return unary(ctx, bound["T"], lambda a: a == 0)


@meaning("lop3")
def lop3(ctx: Context, bound: Bindings) -> Action:
    """Any function of three bits, by its truth table; whether the result is not 0 may go to a predicate."""
    first, a, b, c, table, *rest = ctx.operands
    lut = ctx.integer(table)

    def combine(x: Array, y: Array, z: Array) -> Array:
        result = np.zeros_like(x)
        for row in range(8):
            if lut >> row & 1:
                result |= (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
        return result

    sources = [ctx.source(s, "b32") for s in (a, b, c)]
    if "OP" not in bound:
        return elementwise(combine, ctx.dest(first, "b32"), *sources)
    merge, (other, negated) = _LOGIC[bound["OP"]], ctx.predicate(rest[0])

    def both(x: Array, y: Array, z: Array, q: Array) -> tuple[Array, Array]:
        result = combine(x, y, z)
        return result, merge(result != 0, ~q if negated else q)

    d, p = ctx.pair(first)
    return several(both, [ctx.dest(d, "b32"), ctx.dest(p, "pred")], *sources, other)


@meaning("shl", "shr")
def shift(ctx: Context, bound: Bindings) -> Action:
    """Amounts from the width on give zeros or, for signed types, signs: as numpy's own shifts do."""
    left, type = ctx.row.root == "shl", bound["T"]
    dtype, ufunc = DTYPES[type], np.left_shift if left else np.right_shift
    d, a, b = ctx.operands
    if bits_of(type) == 32 and type[0] != "s":
        return elementwise(ufunc, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))

    def moved(value: Array, amount: Array) -> Array:
        return ufunc(value, np.minimum(amount, np.uint32(64)).astype(dtype))

    return elementwise(moved, ctx.dest(d, type), ctx.source(a, type), ctx.source(b, "u32"))


@meaning("shf")
def funnel(ctx: Context, bound: Bindings) -> Action:
    """Funnel shift of the 64 bits {b, a}."""
    left, wrap = bound["TO"] == "l", bound["RANGE"] == "wrap"
    d, a, b, c = ctx.operands

    def shifted(low: Array, upper: Array, amount: Array) -> Array:
        both = (upper.astype(np.uint64) << np.uint64(32)) | low
        n = (amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        return (both << n) >> np.uint64(32) if left else both >> n

    return elementwise(shifted, ctx.dest(d, "b32"), *(ctx.source(s, "u32") for s in (a, b, c)))


_PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda n, i: n + i,
    "b4e": lambda n, i: (n - i) & 7,
    "rc8": lambda n, i: n,
    "ecl": lambda n, i: max(n, i),
    "ecr": lambda n, i: min(n, i),
    "rc16": lambda n, i: 2 * (n & 1) + (i & 1),
}
"""The byte that each mode puts at place i, for each value n of the low two bits of the selector."""


@meaning("prmt")
def prmt(ctx: Context, bound: Bindings) -> Action:
    """Picks bytes from two registers; bit 3 of a selector spreads the byte's sign."""
    mode = bound["MODE"]
    d, a, b, c = ctx.operands
    table = [sum(_PERMUTATIONS[mode](n, i) << 4 * i for i in range(4)) for n in range(4)] if mode else None

    def permute(low: Array, upper: Array, selectors: Array) -> Array:
        both = (upper.astype(np.uint64) << np.uint64(32)) | low
        if table is not None:
            selectors = np.array(table, np.uint32)[selectors & np.uint32(3)]
        result = np.zeros_like(both)
        for i in range(4):
            selector = (selectors >> np.uint32(4 * i)).astype(np.uint64)
            byte = both >> ((selector & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            result |= np.where(selector & np.uint64(8), sign, byte) << np.uint64(8 * i)
        return result

    return elementwise(permute, ctx.dest(d, "b32"), *(ctx.source(s, "u32") for s in (a, b, c)))


# Moves


@meaning("mov")
def mov(ctx: Context, bound: Bindings) -> Action:
    """A register, a constant, an address, or the complement of a predicate."""
    type = bound["T"]
    d, a = ctx.operands
    if isinstance(a, Not):
        return elementwise(np.invert, ctx.dest(d, type), ctx.source(a.register, type))
    return elementwise(identity, ctx.dest(d, type), ctx.source(a, type))


@meaning("mov.vector")
def mov_vector(ctx: Context, bound: Bindings) -> Action:
    """Each element of a vector."""
    type = bound["T"]
    d, a = (ctx.items(operand) for operand in ctx.operands)
    return several(_unchanged, [ctx.dest(i, type) for i in d], *(ctx.source(i, type) for i in a))


@meaning("mov.b128")
def halves(ctx: Context, bound: Bindings) -> Action:
    """128 bits: a register or a literal, or two registers of 64, into the same."""

    def parts(operand: Operand, *, written: bool) -> list[Source]:
        if isinstance(operand, Vector):
            take = ctx.dest if written else ctx.source
            return [take(item, "b64") for item in ctx.items(operand)]
        if isinstance(operand, Immediate) and not written:
            return [ctx.source(operand, "b64"), constant(np.uint64(ctx.integer(operand) >> 64 & (1 << 64) - 1))]
        slot = ctx.slot(operand)
        (ctx.writes if written else ctx.reads).append(slot)
        return [lambda state, i=i: state.banks[128][slot.index].view(np.uint64)[i::2] for i in range(2)]

    d, a = ctx.operands
    return several(lambda low, upper: (low, upper), parts(d, written=True), *parts(a, written=False))


def _parts(ctx: Context, operand: Operand, type: str) -> tuple[tuple[Operand, ...], str]:
    """The items of `{...}`, and the type of each, which together are as wide as `type`."""
    items = ctx.items(operand)
    return items, f"b{bits_of(type) // len(items)}"


@meaning("mov.unpack")
def unpack(ctx: Context, bound: Bindings) -> Action:
    """The parts of a register."""
    d, a = ctx.operands
    items, part = _parts(ctx, d, bound["T"])
    count, dtype = len(items), DTYPES[part]

    def split(value: Array) -> tuple[Array, ...]:
        parts = np.ascontiguousarray(value).view(dtype).reshape(-1, count)
        return tuple(parts[:, i].copy() for i in range(count))

    return several(split, [ctx.dest(item, part) for item in items], ctx.source(a, bound["T"]))


@meaning("mov.pack")
def pack(ctx: Context, bound: Bindings) -> Action:
    """Registers as the parts of a wider one."""
    d, a = ctx.operands
    items, part = _parts(ctx, a, bound["T"])
    bits, word = bits_of(part), np.dtype(DTYPES[bound["T"]])

    def join(*parts: Array) -> Array:
        result = cast(Array, parts[0].astype(word))
        for i, value in enumerate(parts[1:], 1):
            result |= np.left_shift(value.astype(word), np.array(bits * i, word))
        return result

    return elementwise(join, ctx.dest(d, bound["T"]), *(ctx.source(item, part) for item in items))


def _unchanged(*values: Array) -> tuple[Array, ...]:
    return values


# Sums and products with a carry: PTX ISA 9.7.2. One flag in each thread, CC.CF, is the carry out of an adder.
#
# A difference is the sum of a, the complement of b, and 1, so that a borrow is a flag of 0. Where only differences
# follow differences nobody can tell; nvcc's division of 128 bits reads the flag of `subc.cc` with `addc`, and relies
# on it.


@meaning("add.cc", "addc", "sub.cc", "subc")
def add_sub(ctx: Context, bound: Bindings) -> Action:
    """Sum and difference: what is written goes by the bits alone."""
    type = unsigned(bound["T"])
    d, a, b = ctx.operands
    combine = _sum if ctx.row.root in ("add", "addc") else _difference
    return _action(ctx, combine, bound, [ctx.dest(d, type)], [ctx.source(a, type), ctx.source(b, type)])


@meaning("mad.cc", "madc")
def multiply_add_carry(ctx: Context, bound: Bindings) -> Action:
    """Half of a product, and a sum."""
    part, type = bound["PART"], bound["T"]
    d, a, b, c = ctx.operands
    word = DTYPES[unsigned(type)]

    def combine(x: Array, y: Array, z: Array, carry: Array) -> tuple[Array, Array]:
        product = np.multiply(x, y) if part == "lo" else high(x, y)
        return _sum(product.view(word), z.view(word), carry)

    sources = [ctx.source(o, type) for o in (a, b, c)]
    return _action(ctx, combine, bound, [ctx.dest(d, unsigned(type))], sources)


@meaning("carry.untold")
def untold(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always.
    """
    ctx.fail("ptxas takes this with a carry, and the text does not say what it computes")


def _action(
    ctx: Context,
    combine: Callable[..., tuple[Array, Array]],
    bound: Bindings,
    dests: Sequence[Source],
    sources: Sequence[Source],
) -> Action:
    """`combine` takes the operands and a carry, and gives a word and a carry."""
    takes, gives = ctx.row.root in ("addc", "subc", "madc"), bool(bound["CC"])
    flag = _flag(ctx.carry())
    word = DTYPES[unsigned(bound["T"])]
    if takes:
        ctx.reads.append(ctx.carry())
    if gives:
        ctx.writes.append(ctx.carry())

    unread = np.full(1, combine is _difference)

    def compute(*values: Array) -> tuple[Array, ...]:
        *operands, carry = values if takes else (*values, unread)
        result, over = combine(*operands, carry.astype(word))
        return (result, over) if gives else (result,)

    return several(compute, [*dests, flag] if gives else dests, *sources, *([flag] if takes else []))


def _flag(slot: RegisterSlot) -> Source:
    return lambda state: _row(state, slot)


def _row(state: State, slot: RegisterSlot) -> Array:
    return state.banks[1][slot.index]


def _sum(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    part = a + b
    total = part + carry
    return total, (part < a) | (total < part)


def _difference(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    return _sum(a, ~b, carry)


# Video instructions: PTX ISA 9.7.18. Numbers are taken from parts of registers and computed without overflow.

_WORD = (1 << 32) - 1

BitField: TypeAlias = tuple[int, int]
"""The lowest bit and the number of bits."""
Compute: TypeAlias = Callable[[Array, Array, Bindings], Array]


def _average(a: Array, b: Array, bound: Bindings) -> Array:
    """A half is rounded up, of negative sums away from zero."""
    return (a + b + (a + b >= 0)) >> 1


def _shift(left: bool) -> Compute:
    def shift(a: Array, b: Array, bound: Bindings) -> Array:
        amount = b & 31 if bound["MODE"] == "wrap" else np.minimum(b, 32)
        if not left:
            return a >> amount
        # By 32, no bit is left and only the sign still counts: 64 bits would not hold more.
        return np.where(amount == 32, np.sign(a) << 32, a << np.minimum(amount, 31))

    return shift


_OPERATIONS: dict[str, Compute] = {
    "vadd": lambda a, b, bound: a + b,
    "vsub": lambda a, b, bound: a - b,
    "vabsdiff": lambda a, b, bound: np.abs(a - b),
    "vmin": lambda a, b, bound: np.minimum(a, b),
    "vmax": lambda a, b, bound: np.maximum(a, b),
    "vavrg": _average,
    "vshl": _shift(left=True),
    "vshr": _shift(left=False),
    "vset": lambda a, b, bound: COMPARISONS[bound["CMP"]](a, b).astype(np.int64),
}


def _extended(word: Array, part: BitField, signed: bool) -> Array:
    """A part of words as numbers."""
    low, bits = part
    value = word.astype(np.int64) >> low & (1 << bits) - 1
    return value - ((value >> bits - 1) << bits) if signed else value


def _selector(operand: Operand) -> tuple[Operand, str]:
    """An operand, and which of its parts are meant."""
    if isinstance(operand, Register) and "." in operand.name:
        name, _, selector = operand.name.rpartition(".")
        return Register(name), selector
    return operand, ""


def _place(selector: str) -> BitField:
    """The part that `b2` or `h1` names."""
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return int(selector[1:] or 0) * bits, bits


def _clamped(value: Array, type: str, bits: int) -> Array:
    return np.clip(value, *integer_range(f"{type[0]}{bits}"))


def _second(op: str, value: Array, c: Array) -> Array:
    return {"add": np.add, "min": np.minimum, "max": np.maximum}[op](value, c)


def _scalar(name: str) -> Callable[[Context, Bindings], Action]:
    operation = _OPERATIONS[name]

    def action(ctx: Context, bound: Bindings) -> Action:
        """One number; then clamped to the part it goes to, combined with c, or put beside the rest of c."""
        type, sat, op = bound.get("D", "u32"), bound.get("SAT"), bound.get("OP")
        (d, target), (a, first), (b, second) = map(_selector, ctx.operands[:3])
        low, bits = _place(target)
        hole = ~np.int64(((1 << bits) - 1) << low)

        def compute(x: Array, y: Array, *rest: Array) -> Array:
            left, right = (
                _extended(v, _place(s), t == "s32") for v, s, t in ((x, first, bound["A"]), (y, second, bound["B"]))
            )
            value = operation(left, right, bound)
            value = _clamped(value, type, bits) if sat else value
            if op:
                value = _second(
                    op, _extended(value, (0, 32), type == "s32"), _extended(rest[0], (0, 32), type == "s32")
                )
            elif target:
                value = (value & ~hole >> low) << low | rest[0].astype(np.int64) & hole
            return (value & _WORD).astype(np.uint32)

        return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, *ctx.operands[3:])))

    return action


@meaning("video.vmad")
def multiply_add_video(ctx: Context, bound: Bindings) -> Action:
    """A product of parts and a sum, shifted right; `.po` adds one."""
    signed = "s32" in (bound["A"], bound["B"])
    shift = int(bound["SCALE"][3:] or 0)
    d, (a, first), (b, second), c = ctx.operands[0], *map(_selector, ctx.operands[1:3]), ctx.operands[3]

    def compute(x: Array, y: Array, z: Array) -> Array:
        left, right = (
            _extended(x, _place(first), bound["A"] == "s32"),
            _extended(y, _place(second), bound["B"] == "s32"),
        )
        # Exact: products of 32 bits and a sum need 65 bits.
        addend = _extended(z, (0, 32), signed).astype(object) + bool(bound["PO"])
        value = left.astype(object) * right.astype(object) + addend >> shift
        if bound["SAT"]:
            value = np.clip(value, *integer_range("s32" if signed else "u32"))
        return (value & _WORD).astype(np.uint32)

    return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, c)))


def _selected_parts(selector: str, count: int, first: int) -> Sequence[int]:
    """Which parts of the registers {b, a} the numbers are, the lowest first; by default one register's own."""
    chosen = selector[1:] or "".join(str(first + i) for i in reversed(range(count)))
    return [int(digit) for digit in reversed(chosen)]


def _packed(name: str, count: int) -> Callable[[Context, Bindings], Action]:
    operation, bits = _OPERATIONS[name], 32 // count

    def action(ctx: Context, bound: Bindings) -> Action:
        """2 or 4 numbers, for which parts of both registers are chosen; those that d does not name stay as in c."""
        type, add = bound.get("D", "u32"), bound.get("OP")
        (d, mask), (a, first), (b, second) = map(_selector, ctx.operands[:3])
        named = {int(digit) for digit in mask[1:]} or set(range(count))

        def compute(x: Array, y: Array, z: Array) -> Array:
            both = x.astype(np.int64) | y.astype(np.int64) << 32
            result = z.astype(np.int64)
            for i, left, right in zip(
                range(count), _selected_parts(first, count, 0), _selected_parts(second, count, count), strict=True
            ):
                if i in named:
                    p = _extended(both, (left * bits, bits), bound["A"] == "s32")
                    q = _extended(both, (right * bits, bits), bound["B"] == "s32")
                    value = operation(p, q, bound)
                    value = _clamped(value, type, bits) if bound.get("SAT") else value
                    hole = ((1 << bits) - 1) << bits * i
                    result = result + value if add else result & ~hole | value << bits * i & hole
            return (result & _WORD).astype(np.uint32)

        return elementwise(compute, ctx.dest(d, "b32"), *(ctx.source(o, "b32") for o in (a, b, ctx.operands[3])))

    return action


for _name in _OPERATIONS:
    if _name != "vavrg":
        meaning(f"video.{_name}")(_scalar(_name))
    if _name not in ("vshl", "vshr"):
        for _count in (2, 4):
            meaning(f"video.{_name}{_count}")(_packed(_name, _count))
