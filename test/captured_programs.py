"""Drawn programs of scalar instructions for recording: arithmetic under predicates, branches and loops that lanes take
apart, calls, shared, local and global memory, reductions in memory, and what the lanes of a warp exchange. They are
drawn from the rows that sm_90a has up to PTX 8.6: another row among these needs another recording."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from captured import Choices, Random
from captured_scalars import OF_WARPS, Statement, from_word, statements, to_word, words
from numpy.typing import NDArray

from warploom.dialect.isa.row import CONSTANT, SCALAR, Slot, target
from warploom.dialect.ptx.text.syntax import bits_of

THREADS = 128
REGISTERS = {"pred": ("p", 4), "b16": ("h", 6), "b32": ("r", 10), "b64": ("q", 5)}
"""Registers of a program: the names' first letters, and how many."""
SLOT = 32
"""Bytes of shared, local and global memory that each thread has for itself."""
FLOATS = ("f16", "f16x2", "f32", "f64")
"""Types of registers that only floats have."""
DECLARED = " ".join(
    [f".reg .{kind} %{name}<{count}>;" for kind, (name, count) in REGISTERS.items()]
    + [f".reg .{kind} %{kind}_<8>;" for kind in FLOATS]
)
CELLS = 8
"""Words of shared and of global memory that all threads reduce into."""
LEFT_OUT = ("fns", "set", "testp", "mul24", "mad24", "atom", "red")
SUMS, SIGNS = ("add", "sub", "mul", "fma", "mad"), ("abs", "neg", "min", "max")
FULL = "0xffffffff"
DEPTH = 3
POISON = 0xDEADBEEFDEADBEEF


@dataclass(frozen=True)
class ProgramCase:
    """A program by its number."""

    number: int

    @property
    def name(self) -> str:
        return f"program {self.number}"


def cases(count: int = 300) -> Iterator[ProgramCase]:
    yield from map(ProgramCase, range(count))


@cache
def by_root() -> dict[str, list[Statement]]:
    """Statements of the target by their root, but for what lanes exchange, what ptxas gets wrong (it loses guards of
    `set` and `testp`, and folds constants of `mul24` otherwise than the machine multiplies), and what gives NaNs that
    depend on ptxas: it exchanges operands of f64, and makes moves of signs and of the lesser of two equal registers."""
    table: dict[str, list[Statement]] = {}
    for each in statements(target("sm_90a")):
        root = each.opcode.partition(".")[0]
        plain = all(_class(slot) or slot.kind == CONSTANT for slot in each.slots)
        type = each.slots[0].type
        nans = (root in SUMS and type == "f64") or (root in SIGNS and "f" in type)
        if plain and not nans and not each.carry and root not in (*OF_WARPS, *LEFT_OUT) and root[0] != "v":
            table.setdefault(root, []).append(each)
    return table


def _class(slot: Slot) -> str:
    """The class of registers that holds an operand, if there is one."""
    bits = bits_of(slot.type) if slot.kind == SCALAR else 0
    return {1: "pred", 16: "b16", 32: "b32", 64: "b64"}.get(bits, "")


class _Draw(Choices):
    """The text of a program."""

    def __init__(self, number: int) -> None:
        super().__init__(f"program {number}")
        self.labels = 0
        self.functions: list[str] = []

    def register(self, kind: str) -> str:
        name, count = REGISTERS[kind]
        return f"%{name}{self.below(count)}"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def guard(self) -> str:
        return f"@{self.pick(('', '!'))}{self.register('pred')} " if self.below(4) == 0 else ""

    def arithmetic(self) -> str:
        """An instruction. Floats go by registers of their type: ptxas takes a register without one that was written as
        a float for a number, and converts it where a byte of it is stored or it counts the bits of a shift."""
        statement: Statement = self.pick(by_root()[self.pick(sorted(by_root()))])
        operands, before, after, guard = list[str](), list[str](), list[str](), self.guard()
        for number, slot in enumerate(statement.slots):
            if slot.kind == CONSTANT:
                operands.append(str(self.pick(slot.values) if slot.values else self.below(256)))
                continue
            register, bits = self.register(_class(slot)), bits_of(slot.type)
            operands.append(register)
            if slot.type in FLOATS:
                operands[-1] = f"%{slot.type}_{number}"
                moves = after if slot.written else before
                pair = (register, operands[-1]) if slot.written else (operands[-1], register)
                moves.append(f"{guard if slot.written else ''}mov.b{bits} {', '.join(pair)};")
            if slot.pair and slot.written:
                operands[-1] += f"|{self.other(operands[-1])}"
        return " ".join([*before, f"{guard}{statement.opcode} {', '.join(operands)};", *after])

    def other(self, register: str) -> str:
        """A predicate that is another."""
        return self.pick([p for p in (f"%p{i}" for i in range(REGISTERS["pred"][1])) if p != register])

    def memory(self) -> str:
        """A load or a store of the thread's own bytes, anywhere that is aligned. Bytes go by registers of 32 bits: of a
        half that ptxas keeps above another it stores the other's byte."""
        space, address = self.pick((("shared", "%own"), ("local", "%mine"), ("global", "%place")))
        size = self.pick((1, 2, 4, 8))
        count = self.pick((1, 2, 4) if size < 8 else (1, 2))
        kind = {2: "b16", 8: "b64"}.get(size, "b32") if self.below(3) or size == 8 else "b32"
        kind = "b64" if size == 4 and self.below(5) == 0 else kind
        sign = self.pick("us") if self.below(2) else "b"
        offset = self.below(SLOT // (size * count)) * size * count
        name, registers = REGISTERS[kind]
        first = self.below(registers - count + 1)
        several = ", ".join(f"%{name}{first + i}" for i in range(count))
        several = f"{{{several}}}" if count > 1 else several
        vector = f".v{count}" if count > 1 else ""
        type = f"{vector}.{sign}{8 * size}"
        if self.below(2):
            return f"{self.guard()}st.{space}{type} [{address}+{offset}], {several};"
        return f"{self.guard()}ld.{space}{type} {several}, [{address}+{offset}];"

    def reduction(self) -> str:
        """What many threads do to one word in any order, or one thread to its own."""
        operation = self.pick(("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "max.s32"))
        cell = 4 * (REDUCED.index(operation) % CELLS)
        if self.below(2):
            space, base = self.pick((("shared", "cells"), ("global", "%cells")))
            return f"{self.guard()}red.{space}.{operation} [{base}+{cell}], {self.register('b32')};"
        space, address = self.pick((("shared", "%own"), ("global", "%place")))
        alone = self.pick((*REDUCED, "exch.b32", "inc.u32", "dec.u32", "cas.b32"))
        operands = [self.register("b32") for _ in range(2 if alone == "cas.b32" else 1)]
        at = 4 * self.below(SLOT // 4)
        return f"{self.guard()}atom.{space}.{alone} {self.register('b32')}, [{address}+{at}], {', '.join(operands)};"

    def exchange(self, lanes: str) -> str:
        """What the lanes of a mask do together; no guard, so that all of them come."""
        d, a, b, c, p = (*(self.register("b32") for _ in range(4)), self.register("pred"))
        if lanes == FULL and self.below(2):
            return f"shfl.sync.{self.pick(('up', 'down', 'bfly', 'idx'))}.b32 {d}|{p}, {a}, {b}, {c}, {lanes};"
        return self.pick(
            (
                f"vote.sync.ballot.b32 {d}, {p}, {lanes};",
                f"vote.sync.{self.pick(('any', 'all', 'uni'))}.pred {p}, {self.pick(('', '!'))}{p}, {lanes};",
                f"match.any.sync.b32 {d}, {a}, {lanes};",
                f"match.all.sync.b32 {d}|{p}, {a}, {lanes};",
                f"redux.sync.{self.pick(('add.u32', 'min.s32', 'max.u32', 'and.b32', 'xor.b32'))} {d}, {a}, {lanes};",
            )
        )

    def call(self) -> str:
        """A call of a function that is drawn for it."""
        name = f"f{len(self.functions)}"
        self.functions.append("")
        wide = self.pick(("b32", "b64"))
        body = " ".join(self.arithmetic() for _ in range(3))
        d = "%r0" if wide == "b32" else "%q0"
        others = [f"add.u32 %r{i}, %r1, {i};" for i in range(REGISTERS["b32"][1]) if i != 1]
        others += [f"add.u64 %q{i}, %q1, {i};" for i in range(REGISTERS["b64"][1]) if i != 1]
        others += [f"cvt.u16.u32 %h{i}, %r{i};" for i in range(REGISTERS["b16"][1])]
        flags = " ".join(f"setp.gt.u32 %p{i}, %r{i + 2}, %r1;" for i in range(REGISTERS["pred"][1]))
        self.functions[int(name[1:])] = (
            f".func (.param .{wide} out) {name}(.param .b32 x, .param .b64 y) {{ {DECLARED}"
            f" ld.param.b32 %r1, [x]; ld.param.b64 %q1, [y]; {' '.join(others)} {flags} {body}"
            f" st.param.{wide} [out], {d}; ret; }}"
        )
        return (
            f"{{ .param .b32 x; .param .b64 y; .param .{wide} out; st.param.b32 [x], {self.register('b32')};"
            f" st.param.b64 [y], {self.register('b64')}; call (out), {name}, (x, y);"
            f" ld.param.{wide} {self.register(wide)}, [out]; }}"
        )

    def block(self, depth: int, lanes: str, count: int) -> list[str]:
        """Statements; `lanes` names the lanes that are there, in every warp."""
        lines: list[str] = []
        for _ in range(count):
            kind = self.below(16)
            if kind < 7:
                lines.append(self.arithmetic())
            elif kind < 10:
                lines.append(self.memory())
            elif kind == 10:
                lines.append(self.reduction())
            elif kind == 11:
                lines.append(self.exchange(lanes))
            elif kind == 12 and lanes == FULL:
                lines.append(self.call())
            elif depth and kind == 13:
                lines += self.apart(depth, lanes)
            elif depth and kind == 14:
                lines += self.loop(depth, lanes)
            elif depth and kind == 15:
                lines += self.switch(depth)
        return lines

    def apart(self, depth: int, lanes: str) -> list[str]:
        """Lanes of either side; each knows its own."""
        p, other, end = self.register("pred"), self.label(), self.label()
        masks = [f"%m{2 * depth}", f"%m{2 * depth + 1}"]
        return [
            f"vote.sync.ballot.b32 {masks[0]}, {p}, {lanes};",
            f"vote.sync.ballot.b32 {masks[1]}, !{p}, {lanes};",
            f"@!{p} bra {other};",
            *self.block(depth - 1, masks[0], 3),
            f"bra {end};",
            f"{other}:",
            *self.block(depth - 1, masks[1], 3),
            f"{end}:",
        ]

    def loop(self, depth: int, lanes: str) -> list[str]:
        """One that all lanes of the mask go through as often, or each as often as its number says."""
        head, end, counter = self.label(), self.label(), f"%c{depth}"
        if self.below(2):
            return [
                f"mov.u32 {counter}, {1 + self.below(3)};",
                f"{head}:",
                *self.block(depth - 1, lanes, 3),
                f"sub.u32 {counter}, {counter}, 1; setp.ne.u32 %again, {counter}, 0; @%again bra {head};",
            ]
        return [
            f"and.b32 {counter}, {self.register('b32')}, {self.pick((1, 3, 7))};",
            f"{head}:",
            f"setp.eq.u32 %again, {counter}, 0; @%again bra {end};",
            *(self.arithmetic() for _ in range(2)),
            self.memory(),
            f"sub.u32 {counter}, {counter}, 1; bra {head};",
            f"{end}:",
        ]

    def switch(self, depth: int) -> list[str]:
        """A branch by an index."""
        ways, end = [self.label() for _ in range(3)], self.label()
        lines = [
            f"rem.u32 %c{depth}, {self.register('b32')}, 3;",
            f"T{end}: .branchtargets {', '.join(ways)};",
            f"brx.idx %c{depth}, T{end};",
        ]
        for way in ways:
            lines += [f"{way}:", self.arithmetic(), self.memory(), f"bra {end};"]
        return [*lines, f"{end}:"]


REDUCED = ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "max.s32")


def kernel(case: ProgramCase) -> str:
    """A kernel `k`: the words that registers begin with, where they end, the threads' places, and the cells."""
    draw = _Draw(case.number)
    body: list[str] = []
    for _ in range(4):
        body += draw.block(DEPTH, FULL, 8)
        body.append("bar.sync 0;")
    reads, writes, at = list[str](), list[str](), 0
    for kind, (name, count) in REGISTERS.items():
        for i in range(count):
            register = f"%{name}{i}"
            reads.append(f"ld.global.b64 %w, [%in+{8 * THREADS * at}]; " + from_word(register, kind))
            writes.append(to_word(register, kind) + f" st.global.b64 [%out+{8 * THREADS * at}], %w;")
            at += 1
    for i in range(SLOT // 8):
        for base in ("shared.b64 %w, [%own", "local.b64 %w, [%mine"):
            writes.append(f"ld.{base}+{8 * i}]; st.global.b64 [%out+{8 * THREADS * at}], %w;")
            at += 1
    writes.append(
        f"and.b32 %t, %t, {CELLS - 1}; mul.lo.u32 %t, %t, 4; mov.u32 %a, cells; add.u32 %a, %a, %t;"
        f" ld.shared.u32 %w, [%a]; st.global.b64 [%out+{8 * THREADS * at}], %w;"
    )
    newline = "\n    "
    clear = " ".join(
        f"add.s64 %w, %at, {i + 77}; st.local.b64 [%mine+{8 * i}], %w; st.shared.b64 [%own+{8 * i}], %w;"
        for i in range(SLOT // 8)
    )
    return f""".version 8.6
.target sm_90a
.address_size 64
{newline.join(draw.functions)}
.visible .entry k(.param .u64 words, .param .u64 answers, .param .u64 places, .param .u64 cells_)
{{
    {DECLARED} .reg .b32 %m<8>; .reg .b32 %c<4>; .reg .pred %again, %first;
    .reg .b32 %t, %a, %own; .reg .b64 %in, %out, %at, %w, %mine, %place, %cells;
    .shared .align 16 .b8 bytes[{SLOT * THREADS}]; .shared .align 16 .b8 cells[{4 * CELLS}];
    .local .align 16 .b8 stack[{SLOT}];
    mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 8; ld.param.u64 %in, [words]; ld.param.u64 %out, [answers];
    add.s64 %in, %in, %at; add.s64 %out, %out, %at;
    ld.param.u64 %place, [places]; mul.wide.u32 %at, %t, {SLOT}; add.s64 %place, %place, %at;
    ld.param.u64 %cells, [cells_]; mov.u32 %own, bytes; mad.lo.u32 %own, %t, {SLOT}, %own;
    mov.u64 %mine, stack; {clear}
    setp.lt.u32 %first, %t, {CELLS}; mov.u32 %a, cells; mad.lo.u32 %a, %t, 4, %a; @%first st.shared.u32 [%a], %t;
    {newline.join(reads)}
    bar.sync 0;
    {newline.join(body)}
    {newline.join(writes)}
    ret;
}}
"""


def results(case: ProgramCase, launch: Any) -> NDArray[np.uint64]:
    """All that a program leaves, by `launch(text, arguments)`, with one CTA of THREADS threads: registers, shared and
    local memory of each thread, and global memory."""
    random, kinds = Random(f"words {case.number}"), [kind for kind, (_, n) in REGISTERS.items() for _ in range(n)]
    types = {"pred": ("pred",), "b16": ("u16", "f16", "bf16"), "b32": ("u32", "f32", "f16x2"), "b64": ("u64", "f64")}
    operands = np.array([
        np.resize(words(random, types[kind][i % len(types[kind])]), THREADS) for i, kind in enumerate(kinds)
    ])  # fmt: skip
    left = np.full((len(kinds) + 2 * SLOT // 8 + 1, THREADS), POISON, np.uint64)
    places = np.arange(THREADS * SLOT // 8, dtype=np.uint64)
    cells = np.arange(CELLS, dtype=np.uint32)
    launch(kernel(case), [operands, left, places, cells])
    return np.concatenate([left.reshape(-1), places, cells.astype(np.uint64)])


def answer(case: ProgramCase, launch: Any) -> NDArray[np.uint32]:
    """Its sum by CRC-32."""
    return np.array([zlib.crc32(results(case, launch).tobytes())], np.uint32)
