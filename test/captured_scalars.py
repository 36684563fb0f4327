"""Instructions of registers alone for recording: every spelling of every row of arithmetic, logic, comparison,
selection, conversion and video that a target has, carries, what the lanes of a warp exchange, and what a thread alone
does to memory as one, each on words of its operands' types."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from captured import Codes, Random
from numpy.typing import NDArray

from warploom.dialect.isa.row import ADDRESS, CONSTANT, SCALAR, VECTOR, Slot, Target, Version
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.rows.grammar import PatternRow
from warploom.dialect.ptx.text.syntax import bits_of
from warploom.runtime.interp.machine.decode import REFUSED

COUNT = 128
"""Words of each operand: one for each thread."""

STATEMENTS = 48
"""Statements of one kernel."""

VERSION: Version = (8, 6)
"""Of the kernels' text: what the driver of a recording reads."""

WITHOUT = ("ld", "cvta", "isspacep", "mapa", "getctarank", "mov")
"""What reads memory or addresses, or moves words."""

GIVE = ("add", "sub", "mad")
TAKE = ("addc", "subc", "madc")
OF_MEMORY = ("atom", "red")
PLAIN = re.compile(r"\w+\.(global(?!.*f64)|shared(?!.*f16x2))\.(?!.*(shared|cache_hint|b128)).*")
"""Accesses of memory without an order or a scope, of words that a register holds; but those of f64 in global memory,
whose NaNs differ, and of pairs in shared memory, of which the driver's routine adds the lower half alone."""
OF_WARPS = ("shfl", "vote", "match", "redux")

ROUTINES = re.compile(r"fns\..*|v[a-z]+\..*\.(sat|min|max|shr\d+)(\..*)?")
"""What ptxas makes routines of that do not compute what the text says: video instructions of one number that clamp,
choose or shift sums of more than 32 bits, and `fns` beyond the ends of a word."""

FORMATS = {"f64": (11, 52), "f32": (8, 23), "tf32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}
"""Bits of exponents and of fractions."""

_OUTSIDE = np.array([0x7FF77FF7, 0xFFF7FFF7, 0x7FF73C00, 0x3C00FFF7, 0x7FF07FF0, 0x7FFF7FFF], np.uint64)
"""Pairs with the word that tensor copies put outside a tensor, and with others."""

POISON = 0xDEADBEEFDEADBEEF


@dataclass(frozen=True)
class Statement:
    """An opcode with its operands, the last constants of which are drawn by `draw`; behind another that gives it a
    carry."""

    opcode: str
    slots: tuple[Slot, ...]
    draw: int = 0
    carry: Statement | None = None

    @property
    def name(self) -> str:
        number = f" {self.draw}" if self.draw else ""
        return f"{self.carry.name}, {self.opcode}{number}" if self.carry else f"{self.opcode}{number}"

    @property
    def every(self) -> list[Statement]:
        """The one that gives a carry, and this one."""
        return [*(self.carry.every if self.carry else ()), self]

    def results(self) -> list[str]:
        """The types of what is written: of a pair, both; of a vector, each; two words of memory."""
        written = [slot for each in self.every for slot in each.slots if slot.written for _ in range(slot.count)]
        types = [type for slot in written for type in (slot.type, "pred" if slot.pair else "") if type]
        return types + ["b64"] * 2 * self.of_memory

    def reads(self) -> list[str]:
        """The types of the registers that are read, those of a vector one by one; of memory, two words of elements."""
        slots = [slot for each in self.every for slot in each.slots if not slot.written]
        registers = (slot for slot in slots if slot.kind in (SCALAR, VECTOR) and not of_warp(slot))
        types = [slot.type for slot in registers for _ in range(slot.count)]
        return [f"memory of {types[0]}"] * 2 * self.of_memory + types

    @property
    def of_memory(self) -> bool:
        return any(slot.kind == ADDRESS for slot in self.slots)


def of_warp(slot: Slot) -> bool:
    """Whether it names the lanes that take part."""
    return slot.name == "m" and slot.type == "u32"


def statements(target: Target) -> Iterator[Statement]:
    """Every spelling; of what takes a literal, four; of what takes a carry, behind each kind that gives one."""
    rows = [row for row in every_row() if row.runs_on(target) and row.ptx <= VERSION and row.meaning not in REFUSED]
    giving = [each for row in rows for each in _spelled(row) if ".cc." in each.opcode and row.root in GIVE]
    for row in rows:
        if row.root in TAKE:
            taking = list(_spelled(row))
            yield from (replace(each, carry=before) for each in taking for before in giving)
        elif (row.pure and row.root not in WITHOUT) or row.root in (*OF_WARPS, *OF_MEMORY):
            yield from _spelled(row)


def _spelled(row: PatternRow) -> Iterator[Statement]:
    for opcode in dict.fromkeys(row.spellings()):
        bindings = row.match(opcode)
        assert bindings is not None, opcode
        without_sync = row.root in OF_WARPS and ".sync" not in opcode
        ordered = row.root in OF_MEMORY and not PLAIN.fullmatch(opcode)
        if row.spelled(opcode).ptx > VERSION or without_sync or ordered or ROUTINES.fullmatch(opcode):
            continue
        for slots in row.signatures_of(bindings):
            literal = any(slot.kind == CONSTANT for slot in slots)
            yield from (Statement(opcode, slots, draw) for draw in range(4 if literal else 1))


def cases(target: Target) -> Iterator[ScalarCase]:
    """The statements of one root after the other."""
    by_root: dict[str, list[Statement]] = {}
    for statement in statements(target):
        by_root.setdefault(statement.opcode.partition(".")[0], []).append(statement)
    for root, all_of_root in by_root.items():
        for i in range(0, len(all_of_root), STATEMENTS):
            yield ScalarCase(f"{root} {i}", tuple(all_of_root[i : i + STATEMENTS]))


@dataclass(frozen=True)
class ScalarCase:
    """Some statements in one kernel."""

    name: str
    statements: tuple[Statement, ...]


def parts(type: str) -> tuple[str, int]:
    """What a register of a type holds, and how many of it."""
    match = re.fullmatch(r"(\w+?)x(\d)", type)
    return (match[1], int(match[2])) if match else (type, 1)


def words(random: Random, type: str, before: Sequence[Codes] = ()) -> Codes:
    """Words of a type. Of one in four the elements follow from those of the same type before: the first, or one beside
    it, or it with the other sign; of floats also what makes the product with the first the least normal number, and
    what a sum with the product of the first two cancels."""
    if type.startswith("memory of "):
        element = type.removeprefix("memory of ")
        size = bits_of(element)
        each = (words(random, element) << np.uint64(i) for i in range(0, 64, size))
        return np.bitwise_or.reduce(list(each))
    element, several = parts(type)
    bits, result = bits_of(type) // several, np.zeros(COUNT, np.uint64)
    for i in range(several):
        low = np.uint64(i * bits)
        part = _floats(random, element) if element in FORMATS else _integers(random, bits)
        if before:
            elements = [word >> low & np.uint64(2**bits - 1) for word in before]
            part = np.where(random.below((COUNT,), 4) == 0, _related(random, element, bits, elements), part)
        result |= (part & np.uint64(2**bits - 1)) << low
    return result


def _related(random: Random, element: str, bits: int, before: Sequence[Codes]) -> Codes:
    """Words that follow from others."""
    near, one = before[0], np.uint64(1)
    if element in FORMATS:
        first = _values(before[0], element)
        with np.errstate(all="ignore"):
            least = 2.0 ** (2 - 2 ** (FORMATS[element][0] - 1)) / first
            cancels = first * _values(before[1], element) if len(before) > 1 else first
        kinds = (near, _words(least, element), _words(cancels, element))
        near = np.choose(random.below((COUNT,), 3).astype(np.intp), kinds)
    near = near + random.below((COUNT,), 3) - one
    return near ^ random.bits((COUNT,), 1) << np.uint64(bits - 1)


def _values(words: Codes, element: str) -> NDArray[np.float64]:
    """The values of words of floats."""
    if element == "f64":
        return words.view(np.float64)
    if element == "f16":
        return words.astype(np.uint16).view(np.float16).astype(np.float64)
    single = (words << np.uint64(16 if element == "bf16" else 0)).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        return single.astype(np.float64)


def _words(values: NDArray[np.float64], element: str) -> Codes:
    """Words of floats near values."""
    with np.errstate(all="ignore"):
        if element == "f64":
            return values.copy().view(np.uint64)
        if element == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint64)
        single = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return single >> np.uint64(16) if element == "bf16" else single


def _integers(random: Random, bits: int) -> Codes:
    """Words of any length, of either sign, beside 0 and beside powers of two."""
    shape = (COUNT,)
    anything = random.bits(shape, bits)
    short = anything >> (random.below(shape, bits))
    power = (np.uint64(1) << random.below(shape, bits)) + random.below(shape, 3) - np.uint64(1)
    small = random.below(shape, 80) - np.uint64(8)
    kinds = (anything, short, np.uint64(0) - short, power, small)
    return np.choose(random.below(shape, len(kinds)).astype(np.intp), kinds)


def _floats(random: Random, element: str) -> Codes:
    """Special values, any bits, numbers near 1, those of few bits, those between two of fewer bits, those of integers,
    subnormal ones, and those about the ends of narrower types."""
    exponent, fraction = FORMATS[element]
    shape, top, bias = (COUNT,), 2**exponent - 1, 2 ** (exponent - 1) - 1
    sign = random.bits(shape, 1) << np.uint64(exponent + fraction)
    mantissa = random.bits(shape, fraction)
    few = mantissa & ~np.uint64(2 ** (fraction - min(fraction, 4)) - 1)
    cut = random.below(shape, fraction)
    tie = (mantissa >> cut << cut | np.uint64(1) << cut >> np.uint64(1)) + random.below(shape, 3) - np.uint64(1)
    tie &= np.uint64(2**fraction - 1)

    def of(exponents: Codes, mantissas: Codes) -> Codes:
        return sign | exponents << np.uint64(fraction) | mantissas

    ends = np.array([0, 1, 2**fraction - 1, 2 ** (fraction - 1), 2 ** (fraction - 1) + 1], np.uint64)
    near = np.uint64(max(1, bias - 3)) + random.below(shape, 7)
    narrower = [bias + e for e in (-1022, -149, -127, -126, -24, -15, -14, 15, 16, 31, 32, 63, 64, 127, 128)]
    limits = np.array([e for e in narrower if 0 < e < top], np.uint64)
    kinds = (
        of(np.array([0, 1, bias - 1, bias, top - 1, top], np.uint64)[random.below(shape, 6)],
           ends[random.below(shape, ends.size)]),
        random.bits(shape, 1 + exponent + fraction),
        of(near, mantissa),
        of(near, few),
        of(near, tie),
        of(np.uint64(bias) + random.below(shape, min(68, bias)), tie),
        of(np.uint64(0) * mantissa, mantissa >> random.below(shape, fraction)),
        of(np.uint64(1) + random.below(shape, top - 1), few),
        of(limits[random.below(shape, limits.size)], tie),
    )  # fmt: skip
    return np.choose(random.below(shape, len(kinds)).astype(np.intp), kinds)


def arguments(case: ScalarCase) -> NDArray[np.uint64]:
    """(registers read, COUNT): those of one statement behind those of another."""
    rows: list[Codes] = []
    for statement in case.statements:
        random, before = Random(statement.name), dict[str, list[Codes]]()
        for type in statement.reads():
            in_memory = type.startswith("memory of ")
            of_type = before.setdefault(type.removeprefix("memory of "), [])
            of_type.append(words(random, type, of_type))
            bits = 64 if in_memory else bits_of(type)
            if statement.opcode.startswith("match"):  # so that lanes match
                of_type[-1] &= np.uint64(3)
            if ".oob." in statement.opcode:
                outside = _OUTSIDE[random.below((COUNT,), _OUTSIDE.size)] & np.uint64(2**bits - 1)
                of_type[-1] = np.where(random.below((COUNT,), 4) == 0, outside, of_type[-1])
            rows.append(of_type[-1])
    return np.array(rows)


def _literal(statement: Statement, slot: Slot) -> int:
    drawn = int(Random(f"{statement.name} {slot.name}").bits((1,), 8)[0])
    return slot.values[drawn % len(slot.values)] if slot.values else drawn


def kernel(case: ScalarCase) -> str:
    """A kernel `k` of one CTA of COUNT threads."""
    body: list[str] = []
    read = written = 0
    for statement in case.statements:
        loads, lines, stores = list[str](), list[str](), list[str]()
        space, cell = ("shared", "%own") if ".shared." in statement.opcode else ("global", "%cell")
        for place, each in enumerate(statement.every):
            operands: list[str] = []
            for number, slot in enumerate(each.slots):
                kind = "" if slot.kind == ADDRESS else f"%{_class(slot.type)}_{100 * place + 10 * number}"
                registers = [f"{kind}{i}_" for i in range(slot.count)]
                if slot.kind == ADDRESS:
                    for i in range(2):
                        loads.append(
                            f"ld.global.b64 %w, [%in+{8 * COUNT * read}]; st.{space}.b64 [{cell}+{8 * i}], %w;"
                        )
                        read += 1
                    registers = [f"[{cell}]"]
                elif slot.kind == CONSTANT:
                    registers = [str(_literal(each, slot))]
                elif of_warp(slot):
                    registers = ["0xffffffff"]
                elif not slot.written:
                    for register in registers:
                        loads += [f"ld.global.b64 %w, [%in+{8 * COUNT * read}];", from_word(register, slot.type)]
                        read += 1
                else:
                    pair = [(f"%p_{100 * place + 99}_", "pred")] if slot.pair else []
                    for register, type in [*((each, slot.type) for each in registers), *pair]:
                        stores += [to_word(register, type), f"st.global.b64 [%out+{8 * COUNT * written}], %w;"]
                        written += 1
                    registers[0] += f"|{pair[0][0]}" if pair else ""
                operands.append(f"{{{', '.join(registers)}}}" if slot.kind == VECTOR else registers[0])
            lines.append(f"{each.opcode} {', '.join(operands)};")
        for i in range(2 * statement.of_memory):
            stores.append(f"ld.{space}.b64 %w, [{cell}+{8 * i}]; st.global.b64 [%out+{8 * COUNT * written}], %w;")
            written += 1
        lines = [*loads, *lines, *stores]
        body.append("{ " + " ".join([*_declared(lines), *lines]) + " }")
    newline = "\n    "
    return f""".version {VERSION[0]}.{VERSION[1]}
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 answers, .param .u64 memory)
{{
    .reg .b32 %t, %own; .reg .b64 %in, %out, %at, %w, %cell; .shared .align 16 .b8 bytes[{16 * COUNT}];
    mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 16; ld.param.u64 %cell, [memory]; add.s64 %cell, %cell, %at;
    mov.u32 %own, bytes; mad.lo.u32 %own, %t, 16, %own; mul.wide.u32 %at, %t, 8;
    ld.param.u64 %in, [words]; ld.param.u64 %out, [answers]; add.s64 %in, %in, %at; add.s64 %out, %out, %at;
    {newline.join(body)}
    ret;
}}
"""


def _class(type: str) -> str:
    """The registers that a type is held by."""
    return "p" if type == "pred" else f"b{bits_of(type)}"


def _declared(lines: Sequence[str]) -> list[str]:
    """The registers that statements name."""
    names = sorted({name for line in lines for name in re.findall(r"%(?:p|b\d+)_\d+_", line)})
    return [f".reg .{'pred' if name[1] == 'p' else name[1:].partition('_')[0]} {name};" for name in names]


def from_word(register: str, type: str) -> str:
    """Takes a register's bits from the word %w."""
    bits = bits_of(type)
    return {1: f"setp.ne.u64 {register}, %w, 0;", 64: f"mov.b64 {register}, %w;"}.get(
        bits, f"cvt.u{bits}.u64 {register}, %w;"
    )


def to_word(register: str, type: str) -> str:
    """Puts a register's bits into the word %w."""
    bits = bits_of(type)
    return {1: f"selp.u64 %w, 1, 0, {register};", 64: f"mov.b64 %w, {register};"}.get(
        bits, f"cvt.u64.u{bits} %w, {register};"
    )


def results(case: ScalarCase, launch: Any) -> NDArray[np.uint64]:
    """(results, COUNT), by `launch(text, arguments)`, with CTAs of COUNT threads."""
    count = sum(len(statement.results()) for statement in case.statements)
    got = np.full((count, COUNT), POISON, np.uint64)
    launch(kernel(case), [arguments(case), got, np.zeros(2 * COUNT, np.uint64)])
    return got


def answer(case: ScalarCase, launch: Any) -> NDArray[np.uint32]:
    """The sum of each statement's results by CRC-32."""
    got = iter(results(case, launch))
    sums = [zlib.crc32(b"".join(next(got).tobytes() for _ in each.results())) for each in case.statements]
    return np.array(sums, np.uint32)
