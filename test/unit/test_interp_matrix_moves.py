"""`ldmatrix`, `stmatrix` and `movmatrix` in every form, by formulas of the text and of measured layouts."""

from __future__ import annotations

from typing import Any

import captured
import numpy as np
import pytest
from captured_memory import TILE, MemoryCase, inputs, kernel, output_words
from interpreted import Loaded, program
from numpy.typing import NDArray

from warploom.dialect.isa.mma import MOVMATRIX, LoadMatrix, StoreMatrix, load_rows, store_rows
from warploom.dialect.isa.row import target
from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.interp import InterpreterError

Array = NDArray[Any]
CTAS = 3
ROW = 16
"""Bytes from one row of `captured_memory` to the next."""
LOADS, STORES = [row for row in load_rows() if row.source != "s4"], store_rows()


def answers(row: Any) -> tuple[Array, Array]:
    """The input words of each CTA and what the instruction makes of them."""
    case = MemoryCase(row)
    words = np.ascontiguousarray(inputs(case, CTAS))
    out = np.full((CTAS, output_words(case)), 0xDEADBEEF, np.uint32)
    arch = target("sm_100a" if row.only else "sm_90")
    Loaded(parse_ptx(captured.module([kernel(case, "k")], arch))).launch("k", (CTAS, 1, 1), (32, 1, 1), [words, out])
    return words, out


def expanded(row: Array, bits: int) -> list[int]:
    """Sixteen elements from the low end of 16 bytes."""
    number = int.from_bytes(row.tobytes(), "little")
    return [number >> (bits * i) & ((1 << bits) - 1) for i in range(16)]


def loaded_bytes(row: LoadMatrix, rows: list[Array], lane: int, register: int) -> list[int]:
    """The four bytes of a register; `rows` are those of all matrices."""
    if row.element_bits == 16:
        matrix = np.stack(rows[8 * register : 8 * register + 8]).view(np.uint16)
        matrix = matrix.T if row.transpose else matrix
        pair = matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
        return list(np.ascontiguousarray(pair).view(np.uint8).tolist())
    elements = [expanded(r, row.memory_bits) for r in rows]
    if row.shape == "m8n16":
        return [elements[8 * register + lane // 4][4 * (lane % 4) + b] for b in range(4)]
    number, half = divmod(register, 2)
    return [elements[16 * number + 4 * (lane % 4) + b][lane // 4 + 8 * half] for b in range(4)]


def test_integers_of_4_bits_are_refused() -> None:
    line = "ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4 {%r1}, [%r2];"
    with pytest.raises(InterpreterError, match="how integers of 4 bits lie in a row is not known"):
        program(line)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("row", LOADS, ids=lambda r: r.spelling)
def test_ldmatrix(row: LoadMatrix) -> None:
    words, out = answers(row)
    for cta in range(CTAS):
        tile = words[cta, :TILE].view(np.uint8)
        rows = [tile[n : n + 16] for n in (words[cta, TILE:] * ROW).tolist()]
        got = out[cta].reshape(row.registers, 32)
        for lane in range(32):
            for register in range(row.registers):
                expected = loaded_bytes(row, rows, lane, register)
                assert list(int(got[register, lane]).to_bytes(4, "little")) == expected, (lane, register)


@pytest.mark.parametrize("row", STORES, ids=lambda r: r.spelling)
def test_stmatrix(row: StoreMatrix) -> None:
    words, out = answers(row)
    for cta in range(CTAS):
        registers = words[cta, :-32].reshape(-1, 32)
        tile = np.zeros(4 * TILE, np.uint8)
        for lane in range(32):
            for j in range(row.count):
                data = np.frombuffer(int(registers[j, lane]).to_bytes(4, "little"), np.uint8)
                for byte in range(4):
                    if row.element_bits == 8:
                        r, at = 2 * (lane % 4) + (byte & 1), lane // 4 + 8 * (byte >> 1)
                    else:
                        r, c = lane // 4, 2 * (lane % 4) + byte // 2
                        r, c = (c, r) if row.transpose else (r, c)
                        at = 2 * c + byte % 2
                    tile[ROW * int(words[cta, -32 + 8 * j + r]) + at] = data[byte]
        assert np.array_equal(out[cta].view(np.uint8), tile)


def test_movmatrix() -> None:
    words, out = answers(MOVMATRIX)
    before, after = (x.view(np.uint16).reshape(CTAS, 8, 8) for x in (words, out))
    assert np.array_equal(after, before.transpose(0, 2, 1))


HEAD = ".shared .align 16 .b8 tile[256]; .shared .align 16 .b8 more[16]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4;"
ONE = (1, 1, 1)


def test_rows_of_stmatrix_must_be_aligned_and_inside() -> None:
    row = next(r for r in STORES if r.count == 2 and not r.transpose and r.space == "shared")
    with pytest.raises(InterpreterError, match=r"misaligned shared access: address 0x8 .* lane 0\)"):
        program(f"{HEAD} {row.spelling} [%r2+8], {{%r3, %r4}};").launch("k", ONE, (32, 1, 1), [])
    with pytest.raises(InterpreterError, match=r"out of bounds: 16 bytes at address 0x110, .* lane 15\)"):
        program(f"{HEAD} {row.spelling} [%r2+32], {{%r3, %r4}};").launch("k", ONE, (32, 1, 1), [])
    program(f"{HEAD} {row.spelling} [%r2], {{%r3, %r4}};").launch("k", ONE, (32, 1, 1), [])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2};", "operand r: expected 2 x .b32, got 1"),
        (
            "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r2}, [%r1];",
            "; the nearest are ldmatrix",
        ),
        ("movmatrix.sync.aligned.m8n8.b16 %r1, %r2;", "nearest are movmatrix.sync.aligned.m8n8.trans.b16"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r2, %r3}, [%r1];", "not in sm_90a, it needs sm_100a"),
    ],
)
def test_what_is_not_there_is_refused_with_its_line(statement: str, message: str) -> None:
    with pytest.raises(InterpreterError) as caught:
        program(f"mov.u32 %r1, 0;\n  {statement}")
    assert str(caught.value).startswith("k.ptx:7:3: error: ")
    assert message in str(caught.value)
