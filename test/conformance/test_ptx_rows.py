"""Every instruction row against ptxas: what a row claims assembles, and its register types are ptxas's."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sysconfig
from collections import defaultdict
from pathlib import Path

import pytest
from ptx_rows import DECLARATIONS, SYMBOLS, WIDE, instructions, is_type, shuffled

from warploom.dialect.isa.targets import TARGETS, Target, Version
from warploom.dialect.ptx.instructions import ROWS, find
from warploom.dialect.ptx.operands import OperandReader
from warploom.dialect.ptx.rows.grammar import Row
from warploom.dialect.ptx.types import REGISTER_BITS
from warploom.dialect.ptx.verifier import Context, check, compatible

_WHEEL = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/ptxas"
PTXAS = str(_WHEEL) if _WHEEL.exists() else shutil.which("ptxas")

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

LOWEST = TARGETS["sm_75"]
"""The lowest target CUDA 13 assembles for, and with it the lowest PTX version that can be tried."""


def rejected(lines: list[str], target: Target, version: Version) -> dict[int, str]:
    """The lines that ptxas does not accept in a kernel, with its message."""
    head = (
        f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n.visible .entry k(.param .b64 p) {{\n"
    )
    head += DECLARATIONS + (WIDE if version >= (8, 3) else "") + SYMBOLS
    text = head + "\n".join(lines) + "\nLABEL:\nret;\n}\n"
    command = [str(PTXAS), "-arch", target.name, "-", "-o", "/dev/null"]
    path = ["/dev/stdin" if word == "-" else word for word in command]
    done = subprocess.run(path, input=text, capture_output=True, text=True, check=False)
    first = head.count("\n") + 1
    found = re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", done.stderr + done.stdout)
    errors = {int(line) - first: message for line, message in found}
    assert errors or done.returncode == 0, done.stderr
    return errors


def least(row: Row) -> tuple[Target, Version]:
    """The lowest target and PTX version the row claims, among those that can be assembled for."""
    target = next(t for t in TARGETS.values() if t.sm >= LOWEST.sm and row.runs_on(t))
    return target, max(row.since(target) or row.ptx, target.ptx)


def grouped() -> dict[tuple[Target, Version], list[tuple[Row, str]]]:
    groups: dict[tuple[Target, Version], list[tuple[Row, str]]] = defaultdict(list)
    for row in ROWS:
        for line in instructions(row, row.spellings()):
            groups[least(row)].append((row, line))
    return groups


def check_line(line: str, context: Context | None) -> str | None:
    """What our verifier says about a line where the context is."""
    opcode, _, rest = line.rstrip(";").partition(" ")
    type_of = {f"%{type}": type for type in REGISTER_BITS}
    return check(opcode, OperandReader().read(rest), lambda r: type_of.get(r.name.rpartition("_")[0]), context)


def problem(line: str) -> str | None:
    """What our verifier says about a line, its target aside."""
    return check_line(line, None)


GROUPS = grouped()


@pytest.mark.parametrize("where", sorted(GROUPS, key=str), ids=lambda w: f"{w[0]}-{w[1][0]}.{w[1][1]}")
def test_every_spelling_assembles_where_its_row_claims(where: tuple[Target, Version]) -> None:
    rows = GROUPS[where]
    errors = rejected([line for _, line in rows], *where)
    assert not [(rows[i][1] if 0 <= i < len(rows) else i, message) for i, message in errors.items()]


def test_the_verifier_accepts_what_the_rows_spell() -> None:
    lines = [line for row in ROWS for line in instructions(row, row.samples())]
    assert not [p for line in lines if (p := problem(line))]


def test_no_row_claims_a_target_too_high() -> None:
    """One target below the one a row claims, ptxas takes none of it."""
    known = [t for t in TARGETS.values() if not t.suffix and t.sm >= LOWEST.sm]
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in ROWS:
        if row.sm > LOWEST.sm:
            below = max((t for t in known if t.sm < row.sm), key=lambda t: t.sm)
            groups[below, max(row.ptx, below.ptx)].extend(instructions(row, row.samples()[:1]))
    accepted = [
        f"{line} on {where[0]}"
        for where, lines in groups.items()
        for i, line in enumerate(lines)
        if i not in rejected(lines, *where)
    ]
    assert not accepted


def test_rows_of_some_targets_alone() -> None:
    """A row for architecture-specific targets is legal on no other, and in no version before the one it names."""
    rows = [row for row in ROWS if row.only]
    lines = [line for row in rows for line in instructions(row, row.samples()[:1])]
    for target in (t for t in TARGETS.values() if t.sm >= 90):
        for version in sorted({max(t.ptx, target.ptx) for t in TARGETS.values()}):
            errors = rejected(lines, target, version)
            for i, row in enumerate(rows):
                since = row.since(target)
                assert (i not in errors) == (since is not None and since <= version), (lines[i], target, version)


def test_rows_that_ptx_no_longer_has() -> None:
    rows = [(row, row.gone) for row in ROWS if row.gone is not None]
    assert rows
    for row, (version, sm) in rows:
        lines = instructions(row, row.spellings())
        assert max(sm, LOWEST.sm) == LOWEST.sm
        assert len(rejected(lines, LOWEST, version)) == len(lines)
        assert check_line(lines[0], Context(version, (LOWEST.name,))) is not None
        assert check_line(lines[0], Context((6, 3), (LOWEST.name,))) is None


EARLIER = ("cp.async.ca.shared::cta.", "cp.async.cg.shared::cta.")
"""Spellings that ptxas takes in versions before the one the text names."""


def test_no_row_claims_a_version_too_high() -> None:
    """One PTX version below the one a row claims, ptxas takes none of it, where the target exists in that version."""
    versions = sorted({t.ptx for t in TARGETS.values()} | {row.ptx for row in ROWS})
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in ROWS:
        target, version = least(row)
        below = max((v for v in versions if v < version), default=version)
        if row.ptx > target.ptx and below >= target.ptx and not row.spelling.startswith(EARLIER):
            groups[target, below].extend(instructions(row, row.samples()[:1]))
    accepted = [
        f"{line} in PTX {where[1]}"
        for where, lines in groups.items()
        for i, line in enumerate(lines)
        if i not in rejected(lines, *where)
    ]
    assert not accepted


def test_qualifiers_in_any_order() -> None:
    """ptxas takes all of them, but for the words of the opcode's name: our verdict is its verdict there too."""
    order = random.Random(0)
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in ROWS:
        for line in instructions(row, {row.spellings()[0], row.spellings()[-1]}):
            opcode, end, rest = line.rstrip(";").partition(" ")
            first, *words = opcode.split(".")
            anyhow = sorted(words, key=lambda w: 1.0 if is_type(w) else order.random())
            for other in {shuffled(opcode, order), ".".join((first, *anyhow))}:
                groups[least(row)].append(f"{other}{end}{rest};")
    wrong: list[str] = []
    for where, lines in groups.items():
        errors = rejected(lines, *where)
        wrong += [line for i, line in enumerate(lines) if (problem(line) is None) == (i in errors)]
    assert not wrong


TYPED = {
    "add.s32 %{0}_0, %{0}_1, %{0}_2;": ("s32", False),
    "and.b16 %{0}_0, %{0}_1, %{0}_2;": ("b16", False),
    "and.b64 %{0}_0, %{0}_1, %{0}_2;": ("b64", False),
    "fma.rn.f16x2 %{0}_0, %{0}_1, %{0}_2, %{0}_3;": ("f16x2", False),
    "fma.rn.bf16x2 %{0}_0, %{0}_1, %{0}_2, %{0}_3;": ("bf16x2", False),
    "fma.rn.f32 %{0}_0, %{0}_1, %{0}_2, %{0}_3;": ("f32", False),
    "fma.rn.f64 %{0}_0, %{0}_1, %{0}_2, %{0}_3;": ("f64", False),
    "mov.b32 %{0}_0, %{0}_1;": ("b32", False),
    "mov.u32 %{0}_0, %{0}_1;": ("u32", False),
    "ld.shared.b8 %{0}_0, [smem];": ("b8", True),
    "ld.shared.u16 %{0}_0, [smem];": ("u16", True),
    "ld.shared.f32 %{0}_0, [smem];": ("f32", True),
    "st.shared.b32 [smem], %{0}_0;": ("b32", True),
    "cvt.s16.u32 %{0}_0, %u32_0;": ("s16", True),
    "cvt.rna.tf32.f32 %{0}_0, %f32_0;": ("tf32", False),
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f32_0, %f32_1, %f32_2, %f32_3}}, {{%{0}_0, %{0}_1}}, "
    "{{%{0}_2}}, {{%f32_0, %f32_1, %f32_2, %f32_3}};": ("f16x2", False),
}


def test_register_types_are_compatible_where_ptxas_says() -> None:
    cases = [(template.format(type), *how, type) for template, how in TYPED.items() for type in REGISTER_BITS]
    errors = rejected([line for line, *_ in cases], TARGETS["sm_90"], (8, 3))
    wrong = [
        f"{line}: ptxas {'rejects' if i in errors else 'accepts'}"
        for i, (line, instruction, wider, register) in enumerate(cases)
        if compatible(instruction, register, wider=wider) == (i in errors)
    ]
    assert not wrong
    assert not [line for i, (line, *_) in enumerate(cases) if (problem(line) is None) == (i in errors)]


def test_every_row_is_found_by_its_spellings() -> None:
    for row in ROWS:
        for spelling in row.samples():
            assert row in [found for found, _ in find(spelling)], spelling
