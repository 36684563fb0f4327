"""Every form of `wgmma.mma_async` against ptxas, and spellings around them that do not exist."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterable
from itertools import product

import pytest
from assembler import PTXAS

from warploom.dialect.isa import wgmma
from warploom.dialect.isa.row import CONSTANT, DESCRIPTOR, NEWEST, PREDICATE, TARGETS, VECTOR, Slot, Version
from warploom.dialect.ptx.text.reader import OperandReader
from warploom.dialect.ptx.text.syntax import Register
from warploom.dialect.ptx.verifier import TargetContext, resolve

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

TYPES = {"f": "f32", "r": "b32", "q": "b64", "p": "pred"}
HEAD = "\n".join(f".reg .{type} %{letter}<130>;" for letter, type in TYPES.items())
CURRENT: Version = NEWEST


def rejected(lines: list[str], target: str = "sm_90a", version: Version = CURRENT) -> set[int]:
    """The numbers of the statements that ptxas refuses, each in a function of its own."""
    text = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64"]
    first: dict[int, int] = {}
    for i, line in enumerate(lines):
        text += [f".func f{i}() {{", *HEAD.splitlines()]
        first[len(text) + 1] = i
        text += [line, "ret; }"]
    command = [str(PTXAS), "-arch", target, "-c", "/dev/stdin", "-o", "/dev/null"]
    done = subprocess.run(command, input="\n".join(text), capture_output=True, text=True, check=False)
    blamed = [int(n) for n in re.findall(r"line (\d+); (?:error|fatal)", done.stderr + done.stdout)]
    assert blamed or done.returncode == 0, done.stderr
    return {first[n] for n in blamed}


def registers(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"


def written(operand: Slot, turn: int) -> str:
    """An operand that fits; constants and predicates change with `turn`."""
    if operand.kind == VECTOR:
        return registers("f" if operand.type == "f32" else "r", operand.count)
    if operand.kind == DESCRIPTOR:
        return "%q0" if operand.name == "a" else "%q1"
    if operand.kind == CONSTANT:
        return str(operand.values[turn % len(operand.values)])
    if operand.kind == PREDICATE:
        return ("%p0", "!%p1", "0", "1")[turn % 4]
    return "%r0"


def statements(rows: Iterable[wgmma.Wgmma]) -> list[str]:
    return [
        f"{row.spelling} {', '.join(written(o, turn) for o in signature)};"
        for turn, (row, i) in enumerate(product(rows, (0, 1)))
        for signature in (row.signatures[i],)
    ]


def problem(line: str, target: str = "sm_90a", version: Version = CURRENT) -> str | None:
    opcode, _, rest = line.rstrip(";").partition(" ")

    def type_of(register: Register) -> str | None:
        return TYPES.get(register.name[1])

    found = resolve(opcode, OperandReader().read(rest), type_of, TargetContext(version, (target,)))
    return found if isinstance(found, str) else None


def test_every_form_assembles() -> None:
    """With A in shared memory and in registers, one size of each type in CI's sample, the rest by its verifier."""
    lines = statements(row for row in wgmma.rows() if row.shape.n in (8, 96, 240))
    assert not [line for line in lines if problem(line)]
    assert not [lines[i] for i in rejected(lines)]


def test_forms_begin_with_their_version() -> None:
    for version, before in (((8, 0), None), ((8, 2), (8, 1)), ((8, 4), (8, 3))):
        rows = [row for row in wgmma.rows() if row.ptx == version and row.shape.n == 16]
        assert rows
        lines = statements(rows)
        assert not rejected(lines, version=version)
        if before:
            assert len(rejected(lines, version=before)) == len(lines)
            assert all(problem(line, version=before) for line in lines)


def test_no_other_target_has_them() -> None:
    lines = statements(row for row in wgmma.rows() if row.shape.n == 8 and row.a.name == "bf16")
    for name in ("sm_90", "sm_100a", "sm_120a"):
        assert len(rejected(lines, name)) == len(lines)
        assert all(problem(line, name) for line in lines)
    assert not any(TARGETS[name] in TARGETS.values() and wgmma.rows()[0].runs_on(TARGETS[name]) for name in ("sm_90",))


def test_spellings_that_do_not_exist() -> None:
    """Types, sizes and operands around the legal ones: ptxas and the verifier agree on each."""
    draw = random.Random(5)
    lines: list[str] = []
    names = ("f16", "bf16", "tf32", "f32", "e4m3", "e5m2", "s8", "u8", "s4", "b1")
    for sparse, d, a, b in product(("", ".sp"), ("f16", "f32", "bf16", "s32"), names, names):
        if draw.random() < 0.5:
            continue
        k, n = draw.choice((8, 16, 32, 64, 128, 256)), draw.choice((4, 8, 24, 40, 100, 256, 264))
        count = n // 2 // (2 if "16" in d else 1)
        listed = registers("f" if d == "f32" else "r", min(count, 130))
        more = ", %r0, 0" if sparse else ""
        end = draw.choice(("", ", 1, 1", ", 1, -1, 0, 1"))
        lines.append(
            f"wgmma.mma_async{sparse}.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {listed}, %q0, %q1{more}, %p0{end};"
        )
    base = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, "
    lines += [base + rest for rest in (
        "%q0, %q1, %p0, 1, 1, 0, 2;", "%q0, %q1, %p0, 2, 1, 0, 0;", "%q0, %q1, %r0, 1, 1, 0, 0;",
        "%q0, %q1, 2, 1, 1, 0, 0;", "%r0, %q1, 1, 1, 1, 0, 0;", "%q0, %r1, 1, 1, 1, 0, 0;",
        "{%r0, %r1, %r2}, %q1, 1, 1, 1, 0;", "{%r0, %r1, %r2, %r3}, %q1, 1, 1, 1, 0, 0;", "%q0, %q1, 1, 1, 1, 0;",
        "%q0, {%r0, %r1, %r2, %r3}, 1, 1, 1, 0;", "%q0, %q1, 1;", "%q0, %q1;",
    )]  # fmt: skip
    refused = rejected(lines)
    assert len(refused) > 300
    assert not [
        f"{line}: ptxas {'refuses' if i in refused else 'takes'}" for i, line in enumerate(lines)
        if (problem(line) is not None) != (i in refused)
    ]  # fmt: skip
