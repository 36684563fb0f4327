"""Every instruction row against ptxas: what a row claims assembles, and its register types are ptxas's.

`make test` takes each row with each of its qualifiers once, and one of so many further combinations; see `samples`.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from ptx_rows import DECLARATIONS, SYMBOLS, WIDE, instructions, is_type, shuffled
from refused import reason
from samples import FULL, every

from warploom.dialect.isa.row import DISCARDED, NEWEST, TARGETS, Target, Version
from warploom.dialect.ptx.instructions import every_row, find
from warploom.dialect.ptx.rows.grammar import PatternRow, pieces
from warploom.dialect.ptx.text.reader import OperandReader
from warploom.dialect.ptx.text.syntax import REGISTER_BITS, compatible
from warploom.dialect.ptx.verifier import TargetContext, resolve

_WHEEL = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/ptxas"
PTXAS = str(_WHEEL) if _WHEEL.exists() else shutil.which("ptxas")

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

LOWEST = TARGETS["sm_75"]
"""The lowest target CUDA 13 assembles for, and with it the lowest PTX version that can be tried."""


def rejected(lines: list[str], target: Target, version: Version) -> dict[int, str]:
    """The lines that ptxas does not accept in a kernel, with its message. One can hide others: it tries again."""
    errors: dict[int, str] = {}
    left = list(range(len(lines)))
    while messages := blamed([lines[i] for i in left], target, version):
        errors |= {left[i]: message for i, message in messages.items()}
        left = [number for i, number in enumerate(left) if i not in messages]
    return errors


def blamed(lines: list[str], target: Target, version: Version) -> dict[int, str]:
    """What ptxas says of one file; where it names no line, of each half of it."""
    head = (
        f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n.visible .entry k(.param .b64 p) {{\n"
    )
    head += DECLARATIONS + (WIDE if version >= (8, 3) else "") + SYMBOLS
    text = head + "\n".join(lines) + "\nLABEL:\nret;\n}\n"
    command = [str(PTXAS), "-arch", target.name, "-", "-o", "/dev/null"]
    path = ["/dev/stdin" if word == "-" else word for word in command]
    done = subprocess.run(path, input=text, capture_output=True, text=True, check=False)
    first = head.count("\n") + 1
    messages = re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", done.stderr + done.stdout)
    errors = {int(line) - first: message for line, message in messages if 0 <= int(line) - first < len(lines)}
    if errors or done.returncode == 0:
        return errors
    half = len(lines) // 2
    if not half:
        return {0: "ptxas ends without a word"}
    rest = blamed(lines[half:], target, version)
    return blamed(lines[:half], target, version) | {half + i: message for i, message in rest.items()}


MAX, COMBINATIONS = 500, 11
"""Of a row with more spellings, those are taken that have each qualifier once; of the others one of so many too."""


def least(row: PatternRow) -> tuple[Target, Version]:
    """The lowest target and PTX version the row claims, among those that can be assembled for."""
    target = next(t for t in TARGETS.values() if t.sm >= LOWEST.sm and row.runs_on(t))
    return target, max(row.since(target) or row.ptx, target.ptx)


def accepted(groups: dict[tuple[Target, Version], list[str]]) -> list[str]:
    """The lines that ptxas takes, with where it does."""
    refused = {where: rejected(lines, *where) for where, lines in groups.items()}
    return [
        f"{line}, {where}" for where, lines in groups.items() for i, line in enumerate(lines) if i not in refused[where]
    ]


_REDUCING = re.compile(r"tcgen05\.ld\.(red|spcompress)|sp(de)?compress")

JUDGED = [row for row in every_row() if not _REDUCING.match(next(iter(row.spellings())))]
"""Rows whose samples ptxas can assign registers to: loads from tensor memory that reduce need results that are apart,
which `test_tcgen05_rows` gives them, and so do those that make registers sparse."""


def plainest() -> Iterator[tuple[PatternRow, PatternRow, str]]:
    """Each row with its plainest spelling, and with those that need more than it does: the row, what that one needs."""
    for row in every_row():
        first, *others = row.samples()
        yield row, row.spelled(first), first
        for spelling in others if row.needs else ():
            yield row, row.spelled(spelling), spelling


def grouped() -> dict[tuple[Target, Version], list[str]]:
    """Statements of each row, by the lowest target and PTX version that it claims for them."""
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in JUDGED:
        more = every(row.spellings(), COMBINATIONS) if row.size <= MAX else []
        for spelling in dict.fromkeys((*row.samples(), *more)):
            lines = [line for line in instructions(row, [spelling]) if not OF_FUNCTIONS.match(line)]
            groups[least(row.spelled(spelling))].extend(lines)
    return groups


OF_FUNCTIONS = re.compile(r"(ld|st)\.(\w+\.)*param::func|st\.(\w+\.)*param\.")
"""What ptxas 13.5 takes in functions alone, and what it ends on without a word in a kernel."""


def check_line(line: str, context: TargetContext | None) -> str | None:
    """What our verifier says about a line where the context is."""
    opcode, _, rest = line.rstrip(";").partition(" ")
    type_of = {f"%{type}": type for type in REGISTER_BITS}
    found = resolve(opcode, OperandReader().read(rest), lambda r: type_of.get(r.name.rpartition("_")[0]), context)
    return found if isinstance(found, str) else None


def problem(line: str) -> str | None:
    """What our verifier says about a line, its target aside."""
    return check_line(line, None)


def test_every_spelling_assembles_where_its_row_claims() -> None:
    for where, lines in every(sorted(grouped().items(), key=lambda group: str(group[0])), 36):
        errors = rejected(lines, *where)
        assert not [(*where, lines[i], message) for i, message in errors.items()]


def test_parameters_of_functions_are_read_and_written_in_functions() -> None:
    text = ".version 8.3\n.target sm_75\n.address_size 64\n"
    for i, words in enumerate(("ld.param::func.b32 x, [a]", "st.param::func.b32 [r], x", "st.param.b32 [r], x")):
        text += f".func (.param .b32 r) f{i}(.param .b32 a) {{ .reg .b32 x; {words}; ret; }}\n"
    command = [str(PTXAS), "-arch", "sm_75", "/dev/stdin", "-o", "/dev/null"]
    assert subprocess.run(command, input=text, capture_output=True, text=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_verifier_accepts_what_the_rows_spell() -> None:
    lines = [line for row in every_row() for line in instructions(row, row.samples())]
    assert not [p for line in lines if (p := problem(line))]


def test_no_row_claims_a_target_too_high() -> None:
    """One target below the one a row claims, ptxas takes none of it."""
    targets = [t for t in TARGETS.values() if not t.suffix and t.sm >= LOWEST.sm]
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row, each, spelling in plainest():
        if each.sm > LOWEST.sm and not each.only:
            below = max((t for t in targets if t.sm < each.sm), key=lambda t: t.sm)
            groups[below, max(each.ptx, below.ptx)].extend(instructions(row, [spelling]))
    assert not accepted(groups)


def test_rows_of_some_targets_alone() -> None:
    """A row for architecture-specific targets is legal on no other, and in no version before the one it names."""
    rows = [row for row in JUDGED if row.only]
    lines = [line for row in rows for line in instructions(row, row.samples()[:1])]
    wrong: list[tuple[str, Target, Version]] = []
    for number, target in enumerate(t for t in TARGETS.values() if t.sm >= 90):
        for version in every(sorted({max(t.ptx, target.ptx) for t in TARGETS.values()}), 18, number):
            errors = rejected(lines, target, version)
            for i, row in enumerate(rows):
                since = row.since(target)
                if (i not in errors) != (since is not None and since <= version):
                    wrong.append((lines[i], target, version))
    assert not wrong


def test_rows_that_ptx_no_longer_has() -> None:
    rows = [(row, row.gone) for row in every_row() if row.gone is not None]
    assert rows
    for row, (version, sm) in rows:
        lines = instructions(row, row.spellings())
        assert max(sm, LOWEST.sm) == LOWEST.sm
        assert len(rejected(lines, LOWEST, version)) == len(lines)
        assert check_line(lines[0], TargetContext(version, (LOWEST.name,))) is not None
        assert check_line(lines[0], TargetContext((6, 3), (LOWEST.name,))) is None


BLOCKS = re.compile(r"tcgen05\.mma(\.sp)?\.cta_group::\d\.kind::mxf(4|8f6f4)\.block_scale(\.collector::a::\w+)? ")
"""What stands for `.block32`: ptxas 13.0 says that this needs PTX 8.8, and 13.5 takes it in 8.6."""


def test_no_row_claims_a_version_too_high() -> None:
    """One PTX version below the one a row claims, ptxas takes none of it, where the target exists in that version."""
    versions = sorted({t.ptx for t in TARGETS.values()} | {each.ptx for _, each, _ in plainest()})
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row, each, spelling in plainest():
        target, version = least(each)
        below = max((v for v in versions if v < version), default=version)
        if each.ptx > target.ptx and below >= target.ptx:
            groups[target, below].extend(line for line in instructions(row, [spelling]) if not BLOCKS.match(line))
    assert not accepted(groups)


@pytest.mark.slow
def test_qualifiers_in_any_order() -> None:
    """ptxas takes all of them, but for the words of the opcode's name: our verdict is its verdict there too."""
    order = random.Random(0)
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in every(JUDGED, 3):
        choices = [piece.alternatives for piece in pieces(row.spelling)]
        spellings = {"".join(words[end] for words in choices) for end in (0, -1)}
        for line in instructions(row, spellings):
            opcode, end, rest = line.rstrip(";").partition(" ")
            first, *words = opcode.split(".")
            anyhow = sorted(words, key=lambda w: 1.0 if is_type(w) else order.random())
            for other in {shuffled(opcode, order), ".".join((first, *anyhow))}:
                groups[least(row.spelled(opcode))].append(f"{other}{end}{rest};")
    wrong: list[str] = []
    for where, lines in groups.items():
        errors = rejected(lines, *where)
        wrong += [line for i, line in enumerate(lines) if (problem(line) is None) == (i in errors)]
    assert not wrong


FAMILIES = (
    "ld ldu st atom red multimem prefetch prefetchu discard applypriority createpolicy isspacep cvta mapa getctarank "
    "cp mbarrier fence membar bar barrier griddepcontrol"
)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("root", FAMILIES.split())
def test_verdicts_near_the_rows(root: str) -> None:
    """A word left out, another of the family in its place, or one more: accepted and refused as ptxas does."""
    rows = [row for row in every_row() if row.root == root]
    vocabulary = sorted({word for row in rows for sample in row.samples() for word in sample.split(".")[1:]})
    lines = sorted({line for row in rows for line in instructions(row, row.samples())})
    order = random.Random(root)
    near: list[str] = []
    for line in order.sample(lines, min(len(lines), 300 if FULL else 80)):
        opcode, end, rest = line.rstrip(";").partition(" ")
        first, *words = opcode.split(".")
        at, other = order.randrange(len(words)), order.choice(vocabulary)
        for changed in (
            [*words[:at], *words[at + 1 :]],
            [*words[:at], other, *words[at + 1 :]],
            [*words[:at], other, *words[at:]],
        ):
            near.append(f"{'.'.join((first, *changed))}{end}{rest};")
    target, version = TARGETS["sm_100a"], NEWEST
    errors = rejected(near, target, version)
    context = TargetContext(version, (target.name,))
    wrong = [line for i, line in enumerate(near) if (check_line(line, context) is None) == (i in errors)]
    wrong = [line for line in wrong if not OF_FUNCTIONS.match(line)]
    assert not [line for line in wrong if not unlike(line, check_line(line, context))]


def unlike(line: str, message: str | None) -> str | None:
    """Why we refuse on sm_100a what ptxas takes."""
    return reason(line.rstrip(";").partition(" ")[0], message, "sm_100a") if message else None


LITERALS = {
    "bar.sync {};": (-1, 0, 15, 16),
    "barrier.cta.sync.aligned 1, {};": (-32, 0, 31, 32, 33, 65536),
    "bar.arrive 1, {};": (-1, 0, 1, 32, 96),
    "bar.red.popc.u32 %b32_0, {}, %pred_1;": (15, 16),
    "bar.red.or.pred %pred_0, 3, {}, %pred_1;": (0, 32, 40),
    "mbarrier.try_wait.parity.shared.b64 %pred_0, [smem], {};": (0, 1, 2),
    "cp.async.ca.shared.global [smem], [%b64_0], {};": (0, 2, 4, 8, 12, 16, 32),
    "cp.async.cg.shared.global [smem], [%b64_0], {};": (4, 8, 16),
    "cp.async.ca.shared.global [smem], [%b64_0], 4, {};": (-1, 0, 3, 4, 5),
    "cp.async.ca.shared.global [smem], [%b64_0], 8, {};": (4, 8, 9),
    "cp.async.bulk.prefetch.L2.global [%b64_0], {};": (0, 15, 16, 48, 1 << 20),
    "cp.async.bulk.global.shared::cta.bulk_group [%b64_0], [smem], {};": (8, 16, (1 << 20) - 16, 1 << 20),
    "st.bulk.shared::cta [%b64_0], {}, 0;": (0, 7, 8, 4096),
    "st.bulk.shared::cta [%b64_0], 8, {};": (0, 1),
    "setmaxnreg.dec.sync.aligned.u32 {};": (16, 24, 36, 40, 256, 264),
    "pmevent {};": (0, 15, 16),
    "pmevent.mask {};": (0, 65535, 65536),
    "discard.global.L2 [%b64_0], {};": (64, 128),
    "createpolicy.fractional.L2::evict_last.b64 %b64_0, {};": (
        "0.5",
        "1.0",
        "0.0",
        "2.0",
        "-0.5",
        "1e-3",
        "0f00000001",
        "0f3F800001",
        "0f7FC00000",
        "0f80000000",
    ),
}
"""Statements, and literals to try."""


def test_literals_are_those_that_ptxas_takes() -> None:
    lines = [statement.format(value) for statement, values in LITERALS.items() for value in values]
    errors = rejected(lines, TARGETS["sm_100a"], NEWEST)
    assert not [line for i, line in enumerate(lines) if (problem(line) is None) == (i in errors)]


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


_BYTES = "wmma.mma.sync.aligned.row.row.m16n16k16.s32.u8.u8.s32"
_SUMS = f"{{{', '.join(f'%s32_{i}' for i in range(8))}}}"

SWEPT = (
    *(f"ld.mmio.{order}.sys{space}.b128 %b128_1, [%b64_7];" for order in ("relaxed", "acquire", "release")
      for space in ("", ".global", ".shared")),
    *(f"st.relaxed.sys.mmio{space}.{t} [%b64_7], %{t}_1;" for t in ("b64", "b128") for space in ("", ".global")),
    *(f"{_BYTES} {_SUMS}, {{%{a}_0, %{a}_1}}, {{%{b}_0, %{b}_1}}, {_SUMS};"
      for a in ("b32", "f32", "u32", "f16x2") for b in ("b32", "f32", "s32")),
    *(f"wmma.load.a.sync.aligned.row.m16n16k8.tf32 {{%{t}_0, %{t}_1, %{t}_2, %{t}_3}}, [%b64_7];"
      for t in ("b32", "f32", "u32")),
    *(f"tcgen05.mma.sp.cta_group::1.kind::f16 [%{d}_1], [%{a}_2], %b64_3, [%{e}_4], %u32_5, %pred_6;"
      for d in ("b32", "s32", "f32") for a in ("b32", "u32") for e in ("b32", "s32")),
    *(f"tcgen05.shift.cta_group::1.down [%{t}_1];" for t in ("b32", "s32", "u32", "f32")),
    *(f"red.async.{order}.gpu.add.s64 [%b64_7], %s64_1;" for order in ("relaxed", "release")),
    *(f"{root}.add.noftz.v2.f16 {d}[%b64_7], {{{b}}};" for root, d in (("red", ""), ("atom", "{%f16_2, %f16_3}, "))
      for b in ("%f16_0, 1.0", "1.0, %f16_0", "%f16_0, 1", "1.0, 1.0")),
    *(f"mma{at[0]}.sync.aligned{at[1]}.m16n8k64.row.col.s32.s4.s4.s32 {{%s32_0, %s32_1, %s32_2, %s32_3}}, "
      "{%b32_0, %b32_1, %b32_2, %b32_3}, {%b32_0, %b32_1}, {%s32_0, %s32_1, %s32_2, %s32_3};"
      for at in (("", ""), (".and", ""), ("", ".and"), (".xor", ""))),
    *(f"mma.sync.aligned{at[0]}.m16n8k32.row.col{at[1]}.f32.e4m3.e5m2.f32 {{%f32_0, %f32_1, %f32_2, %f32_3}}, "
      "{%b32_0, %b32_1, %b32_2, %b32_3}, {%b32_0, %b32_1}, {%f32_0, %f32_1, %f32_2, %f32_3};"
      for kind in ("f8f6f4", "mxf4nvf4") for at in (("", f".kind::{kind}"), (f".kind::{kind}", ""))),
    *(f"cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      f"[%b64_7], [%b64_6, {{%b32_0}}], [%b64_7], {mask};" for mask in ("-1", "65535", "65536", "%u16_1")),
    *(f"tcgen05.mma.cta_group::1.kind::f16 [%b32_7], %b64_1, %b64_2, %b32_3, {{{mask}, {mask}, {mask}, {last}}}, "
      "%pred_5;" for mask in ("5", "0f3F800000", "%b32_1", "%tid.x") for last in ("5", "0f3F800000", "%b32_1")),
    *(f"tcgen05.st.sync.aligned.16x64b.x1.b32 [%b32_7], {{{x}}};" for x in ("5", "0f3F800000", "1.5", "%u32_1")),
    *(f"cvt.rn.satfinite.s2f6x2.f32 %{t}_0, %f32_1, %f32_2;" for t in ("b16", "b32", "f16", "u16")),
    *(f"cvt.rn.satfinite.s2f6x2.f32 %b16_0, %{t}_1, %f32_2;" for t in ("b32", "b64", "f32")),
    *(f"vset2.s32.u32.eq %u32_0, %s32_1, %u32_2, %{t}_3;" for t in ("u32", "b32", "f16x2")),
    *(f"addc.sat.s32 %{t}_0, %s32_1, %s32_2;" for t in ("s32", "u32", "f16x2", "f32")),
    *(f"cvt.rn.satfinite.e2m1x2.bf16x2 %b8_0, {a};" for a in ("%b32_1", "{%b32_1, %b32_2}", "{%b16_1, %b16_2}")),
    *(f"madc.hi.sat.s32 %{t}_0, %s32_1, %s32_2, %s32_3;" for t in ("s32", "f16x2")),
    *(f"sub.e4m3x4.ue8m0x4 %b32_0, %{t}_1, %b32_2;" for t in ("b32", "f16x2")),
    *(f"add.u32 %u32_0, %u32_1, {x};" for x in ("smem", "smem+4", "18446744073709551616", "WARP_SZ")),
    *(f"tex.1d.v4.f32.f32 {{%f32_0, %f32_1, %f32_2, %f32_3}}, [{x}, {{%f32_0}}];" for x in ("%b64_6", "WARP_SZ", "_")),
    *(f"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%f64_0, %f64_1}}, {{%f64_0}}, {{{x}}}, {{{x}, {x}}};"
      for x in ("1.5", "0f3F800000", "%f64_3")),
)  # fmt: skip
"""Neighbours of statements on which sweeps found that we and ptxas differed."""


def test_what_sweeps_found() -> None:
    target, version = TARGETS["sm_100a"], NEWEST
    errors, context = rejected(list(SWEPT), target, version), TargetContext(version, (target.name,))
    wrong = [line for i, line in enumerate(SWEPT) if (check_line(line, context) is None) == (i in errors)]
    assert not [line for line in wrong if not unlike(line, check_line(line, context))]


DISCARDS = 24
"""Of so many rows that write registers, one is tried with `_` in their place."""


def discarded(row: PatternRow, spelling: str) -> Iterator[str]:
    """A spelling with results written as `_`: all of each, the first of a vector, one of a pair, both."""
    (slots,) = row.signatures_of(row.match(spelling) or {})
    for line in instructions(row, [spelling]):
        opcode, _, rest = line.rstrip(";").partition(" ")
        operands = re.split(r", (?![^{]*\})(?![^\[]*\])", rest)
        for at, slot in enumerate(slots):
            if slot.written and slot.kind != DISCARDED:
                for other in sinks(operands[at], pair=bool(slot.pair)):
                    yield f"{opcode} {', '.join((*operands[:at], other, *operands[at + 1 :]))};"


def sinks(operand: str, *, pair: bool) -> tuple[str, ...]:
    if operand[0] == "{":
        first, *rest = operand[1:-1].split(", ")
        return tuple("{" + ", ".join(items) + "}" for items in (["_", *rest], ["_"] * len([first, *rest])))
    first, _, second = operand.partition("|")
    second = second or "%pred_7"
    return ("_", f"{first}|_", f"_|{second}", "_|_") if pair else ("_",)


def test_results_are_discarded_where_ptxas_says() -> None:
    """But for the two results of packed comparisons, which 9.7.7.2 writes `p|q`: ptxas takes one alone, `_` too; and
    for textures of f16x2, whose results ptxas moves, and refuses the `mov`."""
    groups: dict[tuple[Target, Version], list[str]] = defaultdict(list)
    for row in every([row for row in every_row() if any(slot.written for slot in row.operands)], DISCARDS):
        for spelling in {row.samples()[0], row.samples()[-1]}:
            groups[least(row.spelled(spelling))].extend(discarded(row, spelling))
    groups[TARGETS["sm_80"], (7, 0)] += ["mbarrier.arrive.b64 _, [%b64_7];", "mbarrier.arrive_drop.b64 _, [%b64_7];"]
    groups[TARGETS["sm_80"], (7, 1)] += ["mbarrier.arrive.noComplete.b64 _, [%b64_7], %u32_1;"]
    groups[TARGETS["sm_75"], (6, 3)] += [
        "setp.eq.f16x2 _|%pred_1, %f16x2_1, %f16x2_2;",
        "match.all.sync.b32 _|_, 1, 1;",
    ]
    groups[TARGETS["sm_90a"], (8, 0)] += [
        "elect.sync _|%pred_0, -1;", "elect.sync %b32_0|_, -1;", "movmatrix.sync.aligned.m8n8.trans.b16 _, %b32_0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {_, %f32_1, %f32_2, %f32_3}, %b64_1, %b64_2, 1, 1, 1, 0, 0;",
        "lop3.and.b32 _|%pred_0, %b32_1, %b32_2, %b32_3, 1, %pred_5;", "add.s32 _, %s32_1, %s32_2;",
    ]  # fmt: skip
    groups[TARGETS["sm_100"], (8, 8)] += [
        "st.global.v4.b64 [%b64_7], {_, %b64_1, _, _};", "st.global.v4.b64 [%b64_7], {_, _, _, _};",
        "st.global.v4.b32 [%b64_7], {_, %b32_1, _, _};",
    ]  # fmt: skip
    wrong: list[str] = []
    for where, lines in groups.items():
        errors, context = rejected(lines, *where), TargetContext(where[1], (where[0].name,))
        wrong += [line for i, line in enumerate(lines) if (check_line(line, context) is None) == (i in errors)]
    assert not [line for line in wrong if not re.match(r"setp.*x2 _,|tex\..*\.v2\.f16x2\..* \{_,", line)]


def test_every_row_is_found_by_its_spellings() -> None:
    for row in every_row():
        for spelling in every(row.samples(), 6):
            assert row.spelled(spelling) in [other for other, _ in find(spelling)], spelling
