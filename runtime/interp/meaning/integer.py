"""Integer arithmetic, logic, shifts, and carries: PTX ISA 9.7.1, 9.7.2, 9.7.8."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.ptx.rows.arithmetic import COMPARISONS, UNSIGNED
from ....dialect.ptx.text.syntax import bits_of
from ...numerics.floats import Array, ArrayFunction, on_parts
from ..machine.decode import DTYPES, Context, integer_range, meaning
from ..machine.state import Action, Source
from .access import computes, elementwise, operands, several

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ALL = np.uint32(0xFFFFFFFF)


def _unsigned(type: str) -> type[np.generic]:
    """The unsigned words of a type: wrapping arithmetic does not depend on the sign."""
    return DTYPES[f"u{bits_of(type)}"]


def quotient(a: Array, b: Array) -> Array:
    """Toward zero. Division by zero gives all ones, as the machine's own routine does."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    result = a // divisor if a.dtype.kind == "u" else (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~b, result)


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend; all ones for a divisor of zero."""
    return np.where(b == 0, ~b, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _count_leading_zeros(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    shift = 1
    while shift < bits:
        value = value | (value >> value.dtype.type(shift))
        shift *= 2
    return (bits - np.bitwise_count(value)).astype(np.uint32)


def _reverse(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    mask, shift = (1 << bits) - 1, bits // 2
    kind = value.dtype.type
    while shift:
        mask ^= (mask << shift) & ((1 << bits) - 1)
        value = ((value >> kind(shift)) & kind(mask)) | ((value & kind(mask)) << kind(shift))
        shift //= 2
    return value


def _find_set(mask: Array, base: Array, n: Array) -> Array:
    """The place of the n-th one bit from bit `base` on, upwards or, where n is negative, downwards; all ones if there
    is none. For n = 0, bit `base` itself."""
    n = n.view(np.int32)
    places, left = np.full(mask.shape, _ALL), np.maximum(np.abs(n.astype(np.int64)), 1)
    left = np.where(base < 32, left, 33)
    step, place = np.where(n < 0, -1, 1), base.astype(np.int64)
    for distance in range(32):
        inside = (place >= 0) & (place < 32) & ((n != 0) | (distance == 0))
        one = inside & (mask >> (place & 31).astype(np.uint32) & np.uint32(1) != 0)
        left -= one
        places = np.where(one & (left == 0), place, places)
        place = place + step
    return places


_PLAIN: dict[str, ArrayFunction] = {
    "div": quotient,
    "rem": remainder,
    "abs": np.abs,  # the least integer stays itself
    "neg": np.negative,
    "sad": lambda a, b, c: np.where(a < b, b - a, a - b) + c,
    "popc": np.bitwise_count,
    "clz": _count_leading_zeros,
    "brev": _reverse,
    "fns": _find_set,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "cnot": lambda a: a == 0,
}


@computes(*_PLAIN)
def plain(ctx: Context, bound: Bindings) -> ArrayFunction:
    """What does not depend on the qualifiers."""
    return _PLAIN[ctx.row.root]


_BY_HALVES: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}


@computes(*_BY_HALVES)
def by_halves(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Of integers, or of 2 or 4 in a word; `.sat` clamps to the type, `.relu` makes negative numbers 0."""
    function = _BY_HALVES[ctx.row.root]
    element, _, packed = bound["T"].partition("x")

    def compute(a: Array, b: Array) -> Array:
        if bound.get("RELU"):
            return np.maximum(function(a, b), 0)
        return np.clip(function(a.astype(np.int64), b), *integer_range(element)).astype(DTYPES[element])

    chosen = compute if bound.get("RELU") or bound.get("SAT") else function
    return on_parts(chosen, DTYPES[element]) if packed else chosen


@computes("neg.packed")
def negated(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Each of the integers of a word; the least stays itself."""
    return on_parts(np.negative, DTYPES[bound["T"].partition("x")[0]])


@computes("set.packed")
def compared(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A mask of all ones for each integer of a word for which a comparison holds."""
    word, element = bound["IS"], DTYPES[bound["T"].partition("x")[0]]
    compare = COMPARISONS.get(word) or UNSIGNED[word]

    def mask(a: Array, b: Array) -> Array:
        return np.negative(compare(a, b).astype(element))

    return on_parts(mask, element)


# Products


def high(a: Array, b: Array) -> Array:
    """The upper half of the product of two integers."""
    if a.dtype.itemsize < 8:
        bits = a.dtype.itemsize * 8
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
        return ((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype)
    if a.dtype == np.uint64:
        return _high64(a, b)
    x, y = a.view(np.uint64), b.view(np.uint64)
    correction = np.where(a < 0, y, np.uint64(0)) + np.where(b < 0, x, np.uint64(0))
    return (_high64(x, y) - correction).view(np.int64)


def _high64(a: Array, b: Array) -> Array:
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + (a0 * b0 >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


def _product24(part: str, type: str) -> Callable[[Array, Array], Array]:
    """Bits 31 to 0 (lo) or 47 to 16 (hi) of the product of the low 24 bits of two words; an s32 has bit 23 as sign."""
    wider = np.int64 if type == "s32" else np.uint64

    def product(a: Array, b: Array) -> Array:
        x, y = (v.astype(wider) << wider(40) >> wider(40) for v in (a, b))
        return (x * y >> wider(16 if part == "hi" else 0)).astype(DTYPES[type])

    return product


def _product(ctx: Context, bound: Bindings) -> Callable[[Array, Array], Array]:
    """The part of a product that the qualifiers name."""
    part, type = bound["PART"], bound["T"]
    if ctx.row.root.endswith("24"):
        return _product24(part, type)
    if part == "wide":
        return partial(np.multiply, dtype=DTYPES[f"{type[0]}{2 * bits_of(type)}"])
    return high if part == "hi" else np.multiply


@computes("mul", "mul24")
def multiply(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A part of the product of integers, or of their low 24 bits."""
    return _product(ctx, bound)


@computes("mad", "mad24")
def multiply_add(ctx: Context, bound: Bindings) -> ArrayFunction:
    """A part of a product, and a sum; with `.sat` it is clamped."""
    product = _product(ctx, bound)
    if bound.get("SAT"):
        return lambda a, b, c: np.clip(product(a, b).astype(np.int64) + c, -(2**31), 2**31 - 1).astype(np.int32)
    return lambda a, b, c: product(a, b) + c


@computes("clmad")
def carryless_multiply_add(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Half of a product without carries, and a sum without them."""
    upper = bound["PART"] == "hi"

    def compute(a: Array, b: Array, c: Array) -> Array:
        total = c.copy()
        for i in map(np.uint64, range(1 if upper else 0, 64)):
            part = b >> np.uint64(64) - i if upper else b << i
            total ^= np.where(a >> i & np.uint64(1), part, np.uint64(0))
        return total

    return compute


@computes("dp4a", "dp2a")
def dot_product(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Products of the bytes of b with bytes of a, or with halves of a, summed with c."""
    upper = bound.get("HALF") == "hi"
    wide = np.dtype(f"{'i' if bound['A'] == 's32' else 'u'}{2 if 'HALF' in bound else 1}")
    narrow = np.dtype(f"{'i' if bound['B'] == 's32' else 'u'}1")

    def dot(a: Array, b: Array, c: Array) -> Array:
        left = np.ascontiguousarray(a).view(wide).reshape(a.size, -1).astype(np.int64)
        right = np.ascontiguousarray(b).view(narrow).reshape(b.size, -1).astype(np.int64)
        n = left.shape[1]
        return (left * (right[:, n:] if upper else right[:, :n])).sum(axis=1) + c

    return dot


# Fields of bits


@computes("bfind")
def bfind(ctx: Context, bound: Bindings) -> ArrayFunction:
    """`bfind`: the position of the highest bit that is no sign bit; all ones if there is none."""
    bits, word = bits_of(bound["T"]), _unsigned(bound["T"])

    def find(value: Array) -> Array:
        plain = np.where(value < 0, ~value, value).astype(word)
        zeros = _count_leading_zeros(plain)
        return np.where(plain == 0, _ALL, zeros if bound["SHIFT"] else np.uint32(bits - 1) - zeros)

    return find


def _field(start: Array, length: Array, bits: int) -> tuple[Array, Array]:
    """Of 32 bits, only the low 8 bits of a position and a length count; 64-bit fields are software, which clamps."""
    if bits == 32:
        start, length = start & np.uint32(0xFF), length & np.uint32(0xFF)
    return start.astype(np.uint64), length.astype(np.uint64)


def _ones(length: Array) -> Array:
    one = np.uint64(1)
    return (one << length) - one


@computes("bfe")
def bfe(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Bit field extract: beyond the operand's top bit, the sign (or zero) goes on."""
    type = bound["T"]
    bits = bits_of(type)

    def extract(value: Array, start: Array, length: Array) -> Array:
        start, length = _field(start, length, bits)
        if type[0] == "u":
            return value.astype(np.uint64) >> start & _ones(length)
        shifted = value.astype(np.int64) >> np.minimum(start, np.uint64(63)).astype(np.int64)
        top = np.minimum(length, np.uint64(bits))
        left = np.uint64(64) - top
        kept = (shifted.view(np.uint64) << left).view(np.int64) >> np.minimum(left, np.uint64(63)).astype(np.int64)
        return np.where(top == 0, 0, kept)

    return extract


@computes("bfi")
def bfi(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Bit field insert: the low bits of a into b."""
    bits = bits_of(bound["T"])

    def insert(field: Array, into: Array, start: Array, length: Array) -> Array:
        start, length = _field(start, length, bits)
        mask = _ones(length) << start
        return (into & ~mask) | ((field.astype(np.uint64) << start) & mask)

    return insert


@computes("bmsk")
def bit_mask(ctx: Context, bound: Bindings) -> ArrayFunction:
    """b ones from bit a on; both are clamped to 32 bits, or taken modulo 32."""
    wrap = bound["RANGE"] == "wrap"

    def mask(start: Array, length: Array) -> Array:
        first, count = (v & 31 if wrap else np.minimum(v, 32) for v in (start, length))
        return _ones(count.astype(np.uint64)) << first.astype(np.uint64)

    return mask


@computes("szext")
def sign_extend(ctx: Context, bound: Bindings) -> ArrayFunction:
    """The low b bits of a, extended by their sign or by zeros."""
    wrap, signed = bound["RANGE"] == "wrap", bound["T"] == "s32"

    def extend(value: Array, length: Array) -> Array:
        count = (length & 31 if wrap else np.minimum(length, 32)).astype(np.int64)
        low = value.astype(np.int64) & ((1 << count) - 1)
        sign = np.where(count > 0, 1 << np.maximum(count - 1, 0), 0)
        return (low ^ sign) - sign if signed else low

    return extend


# Logic and shifts


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
    merge: np.ufunc = {"and": np.logical_and, "or": np.logical_or}[bound["OP"]]
    other, negated = ctx.predicate(rest[0])

    def both(x: Array, y: Array, z: Array, q: Array) -> tuple[Array, Array]:
        result = combine(x, y, z)
        return result, merge(result != 0, ~q if negated else q)

    d, p = ctx.pair(first)
    return several(both, [ctx.dest(d, "b32"), ctx.dest(p, "pred")], *sources, other)


@computes("shl", "shr")
def shift(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Amounts from the width on give zeros or, for signed types, signs: as numpy's own shifts do."""
    ufunc, dtype = np.left_shift if ctx.row.root == "shl" else np.right_shift, DTYPES[bound["T"]]
    if dtype is np.uint32:
        return ufunc
    return lambda value, amount: ufunc(value, np.minimum(amount, np.uint32(64)).astype(dtype))


@computes("shf")
def funnel(ctx: Context, bound: Bindings) -> ArrayFunction:
    """Funnel shift of the 64 bits {b, a}."""
    left, wrap = bound["TO"] == "l", bound["RANGE"] == "wrap"

    def shifted(low: Array, upper: Array, amount: Array) -> Array:
        both = (upper.astype(np.uint64) << np.uint64(32)) | low
        n = (amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        return (both << n) >> np.uint64(32) if left else both >> n

    return shifted


# Sums and products with a carry: PTX ISA 9.7.2. One flag in each thread, CC.CF, is the carry out of an adder.
#
# A difference is the sum of a, the complement of b, and 1, so that a borrow is a flag of 0. Where only differences
# follow differences nobody can tell; nvcc's division of 128 bits reads the flag of `subc.cc` with `addc`, and relies
# on it.


@meaning("add.cc", "addc", "sub.cc", "subc", "mad.cc", "madc")
def with_carry(ctx: Context, bound: Bindings) -> Action:
    """A sum, a difference, or a part of a product plus a sum, with carry; the same bits for signed and unsigned."""
    root, word = ctx.row.root, _unsigned(bound["T"])
    takes, gives = root in ("addc", "subc", "madc"), bool(bound["CC"])
    subtracts, product = root in ("sub", "subc"), np.multiply if bound.get("PART") == "lo" else high
    dest, *sources = operands(ctx, bound)
    carry = ctx.carry()
    ctx.reads += [carry] * takes
    ctx.writes += [carry] * gives
    unread = np.full(1, subtracts)

    def compute(*values: Array) -> tuple[Array, ...]:
        *factors, last, flag = values if takes else (*values, unread)
        first = product(*factors) if len(factors) > 1 else factors[0]
        a: Array = first.view(word)
        b: Array = last.view(word)
        part = a + (~b if subtracts else b)
        total = part + flag.astype(word)
        return (total, (part < a) | (total < part))[: 1 + gives]

    flags: list[Source] = [lambda state: state.banks[1][carry.index]]
    return several(compute, [dest, *flags * gives], *sources, *flags * takes)
