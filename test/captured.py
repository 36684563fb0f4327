"""Operand words for matrix instructions, drawn the same way wherever a product is recorded or replayed.

Everything comes from the raw output of numpy's Philox generator, which numpy promises never to change, so that a
recording needs to keep only the answers. Cases cycle through `KINDS`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import ElementType
from warploom.dialect.isa.mma import Mma
from warploom.dialect.isa.row import VECTOR, Target
from warploom.dialect.layouts.layout import LANES

Row: TypeAlias = Mma
Codes: TypeAlias = NDArray[np.uint64]
Words: TypeAlias = NDArray[np.uint32]

KINDS = ("moderate", "wide", "subnormal", "cancelling", "exact", "bits", "special", "mixed")
"""What floating-point operands look like, case by case; integers alternate between small numbers and all bits."""


class Random:
    """Uniform integers from raw generator output."""

    def __init__(self, key: str) -> None:
        self._bits = np.random.Philox(key=zlib.crc32(key.encode()))

    def bits(self, shape: tuple[int, ...], width: int) -> Codes:
        """Uniform numbers of `width` bits, at most 64."""
        raw = np.asarray(self._bits.random_raw(int(np.prod(shape))), np.uint64)
        return (raw >> np.uint64(64 - width)).reshape(shape) if width else np.zeros(shape, np.uint64)

    def below(self, shape: tuple[int, ...], limit: int) -> Codes:
        """Numbers from 0 to limit - 1, near enough to uniform."""
        return self.bits(shape, 32) % np.uint64(limit)


class Choices:
    """Choices one at a time, of the numbers of a key."""

    def __init__(self, key: str) -> None:
        self.random = Random(key)

    def below(self, limit: int) -> int:
        return int(self.random.below((1,), limit)[0])

    def pick(self, options: Any) -> Any:
        return options[self.below(len(options))]


@dataclass(frozen=True)
class Case:
    """One instruction as it is recorded: a row, and the sparsity selector where it takes one."""

    row: Row
    selector: int | None = None
    limits: bool = False
    """Whether C lies near the least and the largest integer, so that sums wrap or are clamped; of floating-point types,
    whether sums are so small that they round to zero."""

    @property
    def name(self) -> str:
        selector = "" if self.selector is None else f" f={self.selector}"
        return f"{self.row.spelling}{selector}{' limits' if self.limits else ''}"


def cases(target: Target) -> Iterator[Case]:
    """Every form of `mma` and `mma.sp` that the target has, with every selector; block-scaled forms apart."""
    yield from (Case(row) for row in mma.rows() if row.runs_on(target) and row.scale is None)
    sparse = (row for row in sparse_mma.rows() if row.runs_on(target) and row.scale is None)
    yield from (Case(row, f) for row in sparse for f in row.selectors)


def limit_cases(target: Target) -> Iterator[Case]:
    """The forms of `cases` with sums near the ends of the range; not those of f64, which every sum of IEEE's does."""
    yield from (replace(case, limits=True) for case in cases(target) if case.row.a.name != "f64")


def floats(random: Random, element: ElementType, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of a floating-point type, of one of `KINDS` but "cancelling" and "mixed"."""
    e, m = element.exponent, element.mantissa
    bias, top = (1 << (e - 1)) - 1, (1 << e) - 1
    sign, mantissa = random.bits(shape, 1), random.bits(shape, m)
    near = np.uint64(max(1, bias - 3)) + random.below(shape, min(6, top))
    exponent = np.minimum(near, np.uint64(max(1, top - 1)))
    if kind == "wide":
        exponent = random.below(shape, max(1, top))
    elif kind == "subnormal":
        exponent = np.where(random.bits(shape, 2) != 0, np.uint64(0), random.below(shape, max(1, top)))
    elif kind == "exact":
        exponent = np.minimum(np.uint64(bias) + random.below(shape, 3), np.uint64(top - 1))
        mantissa &= np.uint64(((1 << min(2, m)) - 1) << (m - min(2, m)))
    elif kind == "bits":
        exponent = random.bits(shape, e)
    elif kind == "special":
        # One in eight has the largest exponent: infinities and NaN, or the largest numbers of a type without them.
        chosen = random.bits(shape, 3) == 0
        exponent = np.where(chosen, np.uint64(top), exponent)
        mantissa = np.where(chosen & (random.bits(shape, 1) == 0), np.uint64(0), mantissa)
        zero = random.bits(shape, 4) == 0
        exponent, mantissa = np.where(zero, np.uint64(0), exponent), np.where(zero, np.uint64(0), mantissa)
    return sign << np.uint64(e + m) | exponent << np.uint64(m) | mantissa


def codes(random: Random, element: ElementType, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of any element type, where they lie in its register."""
    if not element.is_float:
        width = element.bits if kind in ("wide", "bits", "special", "mixed", "cancelling") else min(element.bits, 4)
        codes = random.bits(shape, width)
        small = (codes ^ np.uint64(8)) - np.uint64(8) if width == 4 and element.signed else codes
        return small & np.uint64((1 << element.bits) - 1)
    if kind == "mixed":
        parts = [floats(random, element, shape, k) for k in ("wide", "subnormal", "bits", "special")]
        codes = np.choose(random.bits(shape, 2).astype(np.intp), parts)
    else:
        codes = floats(random, element, shape, "moderate" if kind == "cancelling" else kind)
    if element.name == "tf32":
        # The hardware drops the low 13 bits; they are drawn at random to see that it does.
        codes = codes << np.uint64(13) | random.bits(shape, 13)
    return codes


def matrices(case: Case, random: Random, count: int) -> dict[str, Codes]:
    """Codes of A (stored elements), B and C for `count` warps: arrays (warps, products, rows, columns)."""
    row = case.row
    result: dict[str, Codes] = {}
    for role in "abc":
        layout, element = row.layout(role), row.element(role)
        shape = (layout.extent("q"), layout.rows, layout.columns)
        result[role] = np.stack([codes(random, element, shape, KINDS[i % len(KINDS)]) for i in range(count)])
    if case.limits and row.a.is_float:
        return _least(case, random, {role: drawn.shape for role, drawn in result.items()})
    if case.limits:
        result |= {role: random.bits(result[role].shape, row.element(role).bits) for role in "ab"}
        away = random.below(result["c"].shape, 300)
        result["c"] = np.where(away & np.uint64(1), np.uint64(0x7FFFFFFF) - away, np.uint64(0x80000000) + away)
    for i in range(KINDS.index("cancelling"), count, len(KINDS)):
        _cancel(row, result["a"][i], result["b"][i])
    return result


def _least(case: Case, random: Random, shapes: dict[str, tuple[int, ...]]) -> dict[str, Codes]:
    """Matrices whose sums have the size of the least numbers of D, of either sign: in every other warp the products
    cancel in pairs, but for a last bit here and there. C is a zero of either sign, or a few of its least numbers."""
    row = case.row
    drawn: dict[str, Codes] = {}
    for role, span in (("a", 12), ("b", 4)):
        element, shape = row.element(role), shapes[role]
        bias, m = (1 << (element.exponent - 1)) - 1, element.mantissa
        exponent = np.uint64(max(0, bias - 72)) + random.below(shape, min(span, 1 << (element.exponent - 1)))
        sign = random.bits(shape, 1) << np.uint64(element.exponent)
        # Subnormal numbers of every size.
        mantissa = random.bits(shape, m) >> np.where(exponent == 0, random.below(shape, m), np.uint64(0))
        low = np.uint64(13 if element.name == "tf32" else 0)
        drawn[role] = (sign | exponent) << np.uint64(m) << low | mantissa << low
    a, b = drawn["a"][1::2], drawn["b"][1::2]
    low, top = (np.uint64(1 << place) for place in ((13, 31) if row.a.name == "tf32" else (0, row.a.bits - 1)))
    a[..., 1::2] = a[..., ::2] ^ top ^ low * (random.bits(a[..., 1::2].shape, 3) == 0)
    group = 2 * b.shape[-2] // a.shape[-1]
    for i in range(1, group):
        b[..., i::group, :] = b[..., ::group, :]
    sign = random.bits(shapes["c"], 1) << np.uint64(row.c.bits - 1)
    small = random.below(shapes["c"], 4) * random.bits(shapes["c"], 1)
    return drawn | {"c": sign | small}


def _cancel(row: Row, a: Codes, b: Codes) -> None:
    """Makes each odd product of a sum nearly the negative of the one before, for floating-point types."""
    if row.a.is_float and row.b.is_float and a.shape[-1] > 1 and b.shape[-2] == a.shape[-1]:
        sign = np.uint64(1 << (row.a.bits - 1))
        a[..., 1::2] = a[..., ::2] ^ sign
        b[..., 1::2, :] = b[..., ::2, :]
        low = row.b.bits - 1 - row.b.exponent - row.b.mantissa
        b[..., 1::4, :] ^= np.uint64(1 << low)


def pack(case: Case, role: str, matrix: Codes) -> Words:
    """The register words that hold a matrix: (warps, words, lanes); 64-bit registers are two words, low first."""
    layout, width = case.row.layout(role), case.row.container_bits(role)
    place = [[layout.coordinates(lane, e) for lane in range(LANES)] for e in range(layout.elements)]
    q, r, c = (np.array([[p[axis] for p in element] for element in place]) for axis in "qrc")
    elements = matrix[:, q, r, c]
    if width == 64:
        halves = np.stack([elements & np.uint64(0xFFFFFFFF), elements >> np.uint64(32)], axis=2)
        return halves.reshape(len(matrix), -1, LANES).astype(np.uint32)
    per_word = 32 // width
    grouped = elements.reshape(len(matrix), -1, per_word, LANES)
    shifts = (np.arange(per_word, dtype=np.uint64) * np.uint64(width))[:, None]
    return np.bitwise_or.reduce(grouped << shifts, axis=2).astype(np.uint32)


def metadata(case: Case, random: Random, count: int) -> Words:
    """One word of legal nibbles for each lane: (warps, 1, lanes)."""
    if not case.row.sparse:
        return np.zeros((count, 0, LANES), np.uint32)
    legal = np.array(case.row.codes, np.uint64)
    nibbles = legal[random.below((count, 8, LANES), len(legal)).astype(np.intp)]
    shifts = (np.arange(8, dtype=np.uint64) * np.uint64(4))[:, None]
    return np.bitwise_or.reduce(nibbles << shifts, axis=1).astype(np.uint32)[:, None]


def inputs(case: Case, count: int) -> Words:
    """All input words of `count` warps, operand after operand in the order a, b, c, e: (warps, words, lanes)."""
    random = Random(case.name)
    drawn = matrices(case, random, count)
    return np.concatenate([*(pack(case, role, drawn[role]) for role in "abc"), metadata(case, random, count)], axis=1)


def output_words(case: Case) -> int:
    """32-bit words per lane of D."""
    return case.row.registers("d") * (2 if case.row.d.bits == 64 else 1)


def kernel(case: Case, name: str) -> str:
    """A kernel of one warp per CTA that reads a warp's input words, executes the instruction and writes its D.

    Word i of lane l of CTA c lies at ((c * words + i) * 32 + l) * 4 in both arrays.
    """
    row = case.row
    lines = [f".visible .entry {name}(.param .u64 words, .param .u64 answers)", "{"]
    body: list[str] = []
    operands: list[str] = []
    used = 0
    d_words = output_words(case)
    declared = [".reg .b64 %in, %out, %base;", ".reg .b32 %lane, %cta, %at;"]
    for operand in row.operands:
        if operand.kind == VECTOR:
            names = [f"%{operand.name}{i}" for i in range(operand.count)]
            kind = {"f32": "f32", "f64": "f64"}.get(operand.type, "b32")
            declared.append(f".reg .{kind} {', '.join(names)};")
            operands.append("{" + ", ".join(names) + "}")
            if operand.name != "d":
                used += _loads(body, names, kind, used)
        elif operand.name == "e":
            declared.append(".reg .b32 %e;")
            used += _loads(body, ["%e"], "b32", used)
            operands.append("%e")
        else:
            operands.append(str(case.selector))
    start = [
        "ld.param.u64 %in, [words];", "ld.param.u64 %out, [answers];",
        "mov.u32 %lane, %tid.x;", "mov.u32 %cta, %ctaid.x;",
        f"mad.lo.u32 %at, %cta, {used * LANES}, %lane;", "mul.wide.u32 %base, %at, 4;", "add.u64 %in, %in, %base;",
        f"mad.lo.u32 %at, %cta, {d_words * LANES}, %lane;", "mul.wide.u32 %base, %at, 4;", "add.u64 %out, %out, %base;",
    ]  # fmt: skip
    stores = _stores([f"%d{i}" for i in range(row.registers("d"))], row.d.bits, declared)
    lines += [*declared, *start, *body, f"{row.spelling} {', '.join(operands)};", *stores, "ret;", "}"]
    return "\n".join(lines)


def _loads(body: list[str], names: list[str], kind: str, first: int) -> int:
    """Appends the loads of some registers; the number of words they take."""
    if kind == "f64":
        for i, name in enumerate(names):
            low, high = (f"[%in+{(first + 2 * i + half) * LANES * 4}]" for half in (0, 1))
            body += ["{ .reg .b32 %low, %high;", f"ld.global.b32 %low, {low};", f"ld.global.b32 %high, {high};"]
            body += [f"mov.b64 {name}, {{%low, %high}};", "}"]
        return 2 * len(names)
    body += [f"ld.global.{kind} {name}, [%in+{(first + i) * LANES * 4}];" for i, name in enumerate(names)]
    return len(names)


def _stores(names: list[str], bits: int, declared: list[str]) -> list[str]:
    if bits != 64:
        return [f"st.global.b32 [%out+{i * LANES * 4}], {name};" for i, name in enumerate(names)]
    declared.append(".reg .b32 %low, %high;")
    stores: list[str] = []
    for i, name in enumerate(names):
        stores.append(f"mov.b64 {{%low, %high}}, {name};")
        stores += [f"st.global.b32 [%out+{(2 * i + h) * LANES * 4}], %{w};" for h, w in enumerate(("low", "high"))]
    return stores


def module(kernels: list[str], target: Target) -> str:
    """A PTX module of some kernels, in a version that has every instruction the target may have."""
    major, minor = max(target.ptx, (8, 7))
    return f".version {major}.{minor}\n.target {target.name}\n.address_size 64\n" + "\n".join(kernels) + "\n"
