"""Operand words for the matrix instructions that go through memory, drawn as in `captured`.

Fragments of `wmma` are opaque, so a case is a whole product: `wmma.load` of A, B and C, `wmma.mma`, `wmma.store`, with
matrices in memory. A case of `ldmatrix`, `stmatrix` or `movmatrix` is that instruction on random words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from captured import KINDS, LANES, Codes, Random, Words, codes

from warploom.dialect.isa import mma, wmma
from warploom.dialect.isa.form import ElementType
from warploom.dialect.isa.mma import LoadMatrix, MoveMatrix, StoreMatrix
from warploom.dialect.isa.row import Target
from warploom.dialect.isa.wmma import WmmaMma

Move: TypeAlias = LoadMatrix | StoreMatrix | MoveMatrix

TILE = 256
"""32-bit words of shared memory that a move has."""


@dataclass(frozen=True)
class MemoryCase:
    """One instruction; of `wmma.mma`, the loads and the store that go with it are implied."""

    row: WmmaMma | Move

    @property
    def name(self) -> str:
        return self.row.spelling


LAST = (9, 0)
"""The PTX version of the last instructions that were recorded."""


def cases(target: Target) -> Iterator[MemoryCase]:
    """Every `wmma.mma` and every matrix move that the target has, up to PTX 9.0."""
    rows = (*wmma.mma_rows(), *mma.load_rows(), *mma.store_rows(), mma.MOVMATRIX)
    yield from (MemoryCase(row) for row in rows if row.runs_on(target) and row.ptx <= LAST)


# wmma


def layouts(row: WmmaMma) -> dict[str, str]:
    """How the matrices lie in memory; C and D take turns, so that both ways are met."""
    return {"a": row.a_layout, "b": row.b_layout, "c": row.a_layout, "d": row.b_layout}


def in_memory(matrix: Codes, element: ElementType, layout: str) -> Words:
    """Matrices (count, rows, columns) as 32-bit words, row by row or column by column, without gaps."""
    flat = (matrix if layout == "row" else matrix.transpose(0, 2, 1)).reshape(len(matrix), -1)
    if element.bits == 64:
        return np.ascontiguousarray(flat).view(np.uint32)
    count = 32 // element.bits
    shifts = np.arange(count, dtype=np.uint64) * np.uint64(element.bits)
    return np.bitwise_or.reduce(flat.reshape(len(flat), -1, count) << shifts, axis=2).astype(np.uint32)


def drawn(row: WmmaMma, count: int) -> dict[str, Codes]:
    """Codes of A, B and C for `count` warps."""
    random = Random(row.spelling)
    drawn: dict[str, Codes] = {}
    for role in "abc":
        shape = wmma.extent(row.shape, role)
        each = [codes(random, row.element(role), shape, KINDS[i % len(KINDS)]) for i in range(count)]
        drawn[role] = np.stack(each)
    if row.a.is_float:
        sign = np.uint64(1 << (row.a.bits - 1))
        for i in range(KINDS.index("cancelling"), count, len(KINDS)):
            drawn["a"][i][:, 1::2] = drawn["a"][i][:, ::2] ^ sign
            drawn["b"][i][1::2] = drawn["b"][i][::2]
            drawn["b"][i][1::4] ^= np.uint64(1 << (row.b.bits - 1 - row.b.exponent - row.b.mantissa))
    return drawn


def words_of(row: WmmaMma, role: str) -> int:
    """32-bit words of a matrix."""
    rows, columns = wmma.extent(row.shape, role)
    return rows * columns * row.element(role).bits // 32


def _fragment(row: WmmaMma, role: str) -> str:
    operand = next(o for o in row.operands if o.name == role)
    return "{" + ", ".join(f"%{role}{i}" for i in range(operand.count)) + "}"


def _wmma_body(row: WmmaMma) -> list[str]:
    where = layouts(row)
    lines: list[str] = []
    start = 0
    for role in "abc":
        element, layout = row.element(role), where[role]
        stride = wmma.default_stride(row.shape, role, layout)
        lines.append(
            f"wmma.load.{role}.sync.aligned.{layout}.{row.shape}.global.{element.name} "
            f"{_fragment(row, role)}, [%in+{4 * start}], {stride};"
        )
        start += words_of(row, role)
    lines.append(f"{row.spelling} {', '.join(_fragment(row, role) for role in 'dabc')};")
    opcode = f"wmma.store.d.sync.aligned.{where['d']}.{row.shape}.global.{row.d.name}"
    lines.append(f"{opcode} [%out], {_fragment(row, 'd')}, {wmma.default_stride(row.shape, 'd', where['d'])};")
    declared: list[str] = []
    for operand in row.operands:
        kind = {"f32": "f32", "f64": "f64"}.get(operand.type, "b32")
        declared.append(f".reg .{kind} %{operand.name}<{operand.count}>;")
    return [*declared, *lines]


# Moves


def _move_words(row: Move) -> tuple[int, int]:
    """Input and output words of a warp. Of a load and a store, the last 32 inputs are the numbers of rows."""
    if isinstance(row, MoveMatrix):
        return LANES, LANES
    if isinstance(row, LoadMatrix):
        return TILE + LANES, row.registers * LANES
    return row.registers * LANES + LANES, TILE


def _move_inputs(row: Move, count: int) -> Words:
    random = Random(row.spelling)
    words, _ = _move_words(row)
    memory = random.bits((count, words), 32).astype(np.uint32)
    if not isinstance(row, MoveMatrix):
        # Every row of 16 bytes has a place of its own.
        memory[:, -LANES:] = np.argsort(random.bits((count, TILE // 4), 48), axis=1)[:, :LANES]
    return memory


def _copy(to: str, start: str, words: int) -> list[str]:
    """Lane l copies words l, l + 32 and so on, between global memory and the tile."""
    lines: list[str] = []
    for i in range(0, words, LANES):
        tile, memory = f"[%mine+{4 * i}]", f"[%{start}+{4 * i}]"
        if to == "tile":
            lines += [f"ld.global.b32 %x, {memory};", f"st.shared.b32 {tile}, %x;"]
        else:
            lines += [f"ld.shared.b32 %x, {tile};", f"st.global.b32 {memory}, %x;"]
    return lines


def _move_body(row: Move) -> list[str]:
    declared = [".shared .align 128 .b32 tile[256];", ".reg .b32 %x, %mine, %at;", ".reg .b64 %wide;"]
    begin = ["shl.b32 %x, %lane, 2;", "mov.u32 %mine, tile;", "add.u32 %mine, %mine, %x;",
             "mul.wide.u32 %wide, %lane, 4;", "add.u64 %in, %in, %wide;", "add.u64 %out, %out, %wide;"]  # fmt: skip
    if isinstance(row, MoveMatrix):
        declared.append(".reg .b32 %r0, %r1;")
        return [
            *declared,
            *begin,
            "ld.global.b32 %r0, [%in];",
            f"{row.spelling} %r1, %r0;",
            "st.global.b32 [%out], %r1;",
        ]
    names = [f"%r{i}" for i in range(row.registers)]
    declared.append(f".reg .b32 {', '.join(names)};")
    inputs, _ = _move_words(row)
    address = [f"ld.global.b32 %at, [%in+{4 * (inputs - LANES)}];", "shl.b32 %at, %at, 4;", "mov.u32 %x, tile;",
               "add.u32 %at, %at, %x;"]  # fmt: skip
    where = "[%at]"
    if not row.space:
        address += ["cvt.u64.u32 %wide, %at;", "cvta.shared.u64 %wide, %wide;"]
        where = "[%wide]"
    vector = "{" + ", ".join(names) + "}"
    if isinstance(row, LoadMatrix):
        end = [f"st.global.b32 [%out+{4 * LANES * i}], {name};" for i, name in enumerate(names)]
        act = [f"{row.spelling} {vector}, {where};", *end]
        return [*declared, *begin, *_copy("tile", "in", TILE), "bar.sync 0;", *address, *act]
    first = ["mov.u32 %x, 0;", *(f"st.shared.b32 [%mine+{4 * i}], %x;" for i in range(0, TILE, LANES)), "bar.sync 0;"]
    loads = [f"ld.global.b32 {name}, [%in+{4 * LANES * i}];" for i, name in enumerate(names)]
    act = [f"{row.spelling} {where}, {vector};", "bar.sync 0;", *_copy("memory", "out", TILE)]
    return [*declared, *begin, *first, *loads, *address, *act]


# Both


def inputs(case: MemoryCase, count: int) -> Words:
    """All input words of `count` warps: (warps, words)."""
    row = case.row
    if not isinstance(row, WmmaMma):
        return _move_inputs(row, count)
    matrices, where = drawn(row, count), layouts(row)
    return np.concatenate([in_memory(matrices[r], row.element(r), where[r]) for r in "abc"], axis=1)


def output_words(case: MemoryCase) -> int:
    """32-bit words of a warp's answer."""
    return words_of(case.row, "d") if isinstance(case.row, WmmaMma) else _move_words(case.row)[1]


def input_words(case: MemoryCase) -> int:
    """32-bit words of a warp's input."""
    row = case.row
    return sum(words_of(row, role) for role in "abc") if isinstance(row, WmmaMma) else _move_words(row)[0]


def kernel(case: MemoryCase, name: str) -> str:
    """A kernel of one warp per CTA that executes the case on its own part of `words` and writes its `answers`."""
    row = case.row
    body = _wmma_body(row) if isinstance(row, WmmaMma) else _move_body(row)
    lines = [
        f".visible .entry {name}(.param .u64 words, .param .u64 answers)", "{",
        ".reg .b64 %in, %out, %base;", ".reg .b32 %lane, %cta;",
        "ld.param.u64 %in, [words];", "ld.param.u64 %out, [answers];",
        "mov.u32 %lane, %tid.x;", "mov.u32 %cta, %ctaid.x;",
        f"mul.wide.u32 %base, %cta, {4 * input_words(case)};", "add.u64 %in, %in, %base;",
        f"mul.wide.u32 %base, %cta, {4 * output_words(case)};", "add.u64 %out, %out, %base;",
    ]  # fmt: skip
    return "\n".join([*lines, *body, "ret;", "}"])
