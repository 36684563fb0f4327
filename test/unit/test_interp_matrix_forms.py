"""Whole instructions of the narrow types, sparse and scaled: operands through registers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from captured import Case, Random, matrices, metadata, pack
from interpreted import outputs, program
from numpy.typing import NDArray
from ptx_rows import BY_SPELLING

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import Form, element_type, having
from warploom.dialect.isa.mma import Mma
from warploom.dialect.ptx.text.syntax import PtxSyntaxError
from warploom.runtime.interp import InterpreterError
from warploom.runtime.numerics.fused_sum import scales
from warploom.runtime.numerics.product import MatrixProduct, SideOperands
from warploom.runtime.numerics.sparse import columns

Array = NDArray[Any]
Row = Mma
ONE = (1, 1, 1)
WARPS = 4
NARROW: list[Row] = [
    r for r in (*mma.rows(), *sparse_mma.rows()) if r.kind and r.a.name == "e2m1" and r.b.name in ("e2m1", "e4m3")
]


def vector(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def executed(row: Row, words: Array, selectors: str) -> Array:
    """D (warps, registers, lanes) of one CTA whose warps read their words in the order of the operands."""
    total, place, text = words.shape[1], 0, ""
    operands: list[str] = []
    for operand in row.operands:
        if operand.name == "d":
            operands.append(vector("d", operand.count))
        elif operand.kind in ("vector", "scalar"):
            kind = "f32" if operand.type == "f32" else "b32"
            text += f".reg .{kind} %{operand.name}_<{operand.count}>;"
            for i in range(operand.count):
                text += f"ld.global.b32 %{operand.name}_{i}, [%rd1+{128 * (place + i)}];\n"
            place += operand.count
            operands.append(vector(f"{operand.name}_", operand.count))
        elif operand.kind == "constant":
            operands.append("0")
        else:
            operands.append(selectors)
    count = row.registers("d")
    stores = "".join(f"st.global.b32 [%rd2+{128 * i}], %d{i};" for i in range(count))
    body = f""".reg .{"f32" if row.d.bits == 32 else "b32"} %d<{count}>; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5;
        and.b32 %r3, %r1, 31; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
        mul.lo.u32 %r4, %r2, {total}; mad.lo.u32 %r4, %r4, 32, %r3; mad.wide.u32 %rd1, %r4, 4, %rd1;
        mul.lo.u32 %r4, %r2, {count}; mad.lo.u32 %r4, %r4, 32, %r3; mad.wide.u32 %rd2, %r4, 4, %rd2;
        {text} {row.spelling} {", ".join(operands)}; {stores}"""
    out = outputs(WARPS * count * 32, "u4").reshape(WARPS, count, 32)
    built = program(body, ".param .u64 x, .param .u64 y", "sm_120a")
    built.launch("k", ONE, (32 * WARPS, 1, 1), [np.ascontiguousarray(words), out])
    return out


@pytest.mark.parametrize("row", NARROW, ids=lambda r: r.spelling)
def test_operands_through_registers(row: Row) -> None:
    case, random = Case(row, 0 if row.sparse else None), Random(row.spelling)
    drawn = matrices(case, random, WARPS)
    if row.kind in ("f8f6f4", "mxf8f6f4"):
        drawn |= {role: drawn[role] << np.uint64(2) for role in "ab" if row.element(role).bits == 4}
    parts = [pack(case, role, drawn[role]) for role in "abc"]
    extras = SideOperands()
    if row.sparse:
        parts.append(metadata(case, random, WARPS))
        extras = SideOperands(columns(row, parts[-1][:, 0].T, 0))
    if row.scale:
        of_a, of_b = (random.bits((WARPS, 1, 32), 32).astype(np.uint32) for _ in range(2))
        parts += [of_a, of_b]
        chosen = row.scale.byte_ids[-1]
        operands = [scales(row.scale, role, w[:, 0].T, chosen, 1) for role, w in (("a", of_a), ("b", of_b))]
        extras = SideOperands(extras.columns, *operands)
    selectors = f"{{{row.scale.byte_ids[-1]}, 1}}" if row.scale else ""
    got = executed(row, np.concatenate(parts, axis=1), selectors)
    a, b, c = (drawn[role][:, 0] for role in "abc")
    a, b = a.transpose(2, 1, 0).astype(np.uint8), b.transpose(1, 2, 0).astype(np.uint8)
    d = MatrixProduct.on("sm_120a", row)(a, b, c.transpose(1, 2, 0).astype(f"u{row.c.bits // 8}"), extras)
    expected = pack(case, "d", d.astype(np.uint64).transpose(2, 0, 1)[:, None])
    assert np.array_equal(got, expected)


def spelled(row: Row, **other: str) -> str:
    """The instruction with registers, or what `other` says instead of an operand."""
    operands = {
        o.name: vector("f" if o.type == "f32" else "r", o.count)
        if o.kind == "vector" else "%r1" if o.kind == "scalar" else "0" if o.kind == "constant" else "{0, 0}"
        for o in row.operands
    } | other  # fmt: skip
    return f"{row.spelling} {', '.join(operands.values())};"


SPARSE = next(r for r in sparse_mma.rows() if r.ordered and r.a.name == "f16" and r.shape.k == 32 and r.d.bits == 32)
SCALED = next(r for r in mma.rows() if r.scale and r.scale.vector == 2)
(DENSE,) = having(mma.rows, shape=mma.Shape(16, 8, 16), a=element_type("f16"), d=element_type("f32"))


@pytest.mark.parametrize(
    ("statement", "target", "message"),
    [
        (spelled(SPARSE, f="2"), "sm_90", "operand f: expected 0 or 1, got 2"),
        (spelled(SPARSE, f="%r1"), "sm_90", "operand f: expected an integer literal"),
        (spelled(SCALED, selector_a="{1, 0}"), "sm_120a", "selector_a: byte-id: expected 0 or 2, got 1"),
        (spelled(SCALED, selector_b="{0, 4}"), "sm_120a", "thread-id: expected 0 or 1 or 2 or 3, got 4"),
        (spelled(SCALED), "sm_120", "it needs sm_120a, or the sm_120f family"),
        (spelled(DENSE, a="{%r1, %r2}"), "sm_90", "operand a: expected 4 x .f16x2, got 2"),
        (spelled(DENSE, d="{0, 0, 0, 0}"), "sm_90", "element 0: expected a .f32 register to write, got the literal 0"),
        (spelled(DENSE).replace("k16", "k12"), "sm_90", "; the nearest are mma.sync.aligned.m16n8k"),
        (spelled(DENSE), "sm_75", "it is not in sm_75, it needs sm_80 or later"),
    ],
)
def test_what_cannot_run_is_refused_at_load_time(statement: str, target: str, message: str) -> None:
    with pytest.raises(InterpreterError) as caught:
        program(f"mov.u32 %r1, 0;\n  {statement}", target=target)
    assert str(caught.value).startswith("k.ptx:7:3: error: ")
    assert message in str(caught.value)


def test_qualifiers_in_another_order_are_the_same_instruction() -> None:
    program(spelled(DENSE).replace("sync.aligned.m16n8k16", "m16n8k16.sync.aligned"))


def test_metadata_is_checked_where_it_is_used() -> None:
    built = program(f"mov.u32 %r1, 0x44;\n{spelled(SPARSE)}")
    with pytest.raises(InterpreterError, match=r"k.ptx:7:1: error: mma.sp.*: metadata 0b0000 for chunk 0 of row 8"):
        built.launch("k", ONE, (32, 1, 1), [])


JUNK = ("%r1", "%rd1", "%f1", "0", "-1", "0f00000000", "{%r1}", "{%r1, %r2}", "[%r1]", "[%rd1+4]", "%p1", "!%p1", "x",
        "_", "{}", "1.5", "%tid.x", "%h1", "{0, 0}", "{%r1, 0}", "[p]", "0x44444444", "%r1|%r2")  # fmt: skip
WORDS = ("", "f16", "s8", "row", "m16n8k16", "x2", "satfinite", "b8")
KINDS = {"scalar": "%r1", "constant": "0", "address": "[%rd1]", "selector": "{0, 0}"}


def mutated(random: np.random.Generator, row: Form) -> str:
    """The instruction with one operand, or one word of its opcode, replaced or dropped."""
    prefix = {"f32": "f", "f64": "fd"}
    operands = [KINDS.get(o.kind) or vector(prefix.get(o.type, "r"), min(o.count, 8)) for o in row.operands]
    words = row.spelling.split(".")
    at = int(random.integers(len(operands) + 2 * len(words)))
    if at < len(operands):
        operands[at] = str(random.choice(JUNK))
    elif at % 2:
        words[(at - len(operands)) // 2] = str(random.choice(WORDS))
    else:
        operands = operands[: int(random.integers(len(operands)))]
    return f"{'.'.join(w for w in words if w)} {', '.join(operands)};"


def outcome(statement: str, target: str) -> str:
    """How far an instruction gets: "refused", "fault" or "ran". Anything but a clear error is let through."""
    try:
        built = program(statement, ".param .u32 p", target)
    except (InterpreterError, PtxSyntaxError) as error:
        return "refused" if str(error).startswith("k.ptx:6:") else str(error)
    try:
        built.launch("k", ONE, (32, 1, 1), [0], max_steps=50)
    except InterpreterError as error:
        return "fault" if str(error).startswith("k.ptx:6:") else str(error)
    return "ran"


def test_anything_runs_or_gets_one_clear_error() -> None:
    random, rows = np.random.default_rng(11), list(BY_SPELLING.values())
    targets = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]
    outcomes = {
        outcome(mutated(random, rows[int(random.integers(len(rows)))]), str(random.choice(targets))) for _ in range(800)
    }
    assert outcomes == {"refused", "fault", "ran"}
