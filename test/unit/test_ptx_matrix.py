"""Every row of the matrix instructions in the `ptx` dialect: known, verified, parsed, printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import count

import pytest
from ptx_rows import BY_SPELLING
from samples import every

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import Form
from warploom.dialect.isa.mma import Mma
from warploom.dialect.isa.row import (
    ADDRESS,
    CONSTANT,
    DESCRIPTOR,
    PREDICATE,
    SCALAR,
    SELECTOR,
    TARGETS,
    Slot,
    Target,
    Version,
)
from warploom.dialect.ptx.instructions import FAMILIES, ROOTS, find, nearest
from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.dialect.ptx.text.reader import OperandReader
from warploom.dialect.ptx.text.syntax import Register
from warploom.dialect.ptx.verifier import TargetContext, resolve

LETTERS = {"b32": "r", "f16x2": "r", "bf16x2": "r", "f32": "f", "f64": "d", "s32": "r", "u16": "h"}
TYPES = {"r": "b32", "f": "f32", "d": "f64", "h": "u16", "p": "b64", "q": "pred"}


def type_of(register: Register) -> str | None:
    return TYPES.get(register.name[1])


def operands(form: Form, *, last: bool = True, signature: tuple[Slot, ...] | None = None) -> str:
    """Operands that fit a form, or one of its signatures; the optional one only if `last`."""
    numbers, texts = count(), list[str]()
    signature = signature or form.operands
    for operand in signature:
        letter = LETTERS.get(operand.type, "")
        if operand.kind == ADDRESS:
            texts.append("[%p0]")
        elif operand.kind == CONSTANT:
            texts.append(str(operand.values[-1]) if operand.values else "0")
        elif operand.kind == DESCRIPTOR:
            texts.append("%p0")
        elif operand.kind == PREDICATE:
            texts.append("!%q0")
        elif operand.kind == SELECTOR:
            texts.append("{0, 1}")
        elif operand.kind == SCALAR:
            texts.append(f"%{letter}{next(numbers)}")
        else:
            texts.append("{" + ", ".join(f"%{letter}{next(numbers)}" for _ in range(operand.count)) + "}")
    return ", ".join(texts if last or not signature[-1].optional else texts[:-1])


def problem(opcode: str, text: str, context: TargetContext | None = None) -> str | None:
    found = resolve(opcode, OperandReader().read(text), type_of, context)
    return found if isinstance(found, str) else None


WGMMA_TURNS = 7
"""Of the targets that lack a form of `wgmma` one of so many is tried, others for the next form."""


@cache
def forms() -> tuple[Form, ...]:
    return tuple(BY_SPELLING.values())


def earliest(form: Form) -> tuple[Target, Version]:
    """The first target of the table that has a form, and since when."""
    return next((t, since) for t in TARGETS.values() if (since := form.since(t)) is not None)


def previous(version: Version) -> Version:
    return (version[0], version[1] - 1) if version[1] else (version[0] - 1, 9)


def as_module(lines: Iterable[str], version: Version = (9, 5), target: str = "sm_120a") -> str:
    registers = "".join(f"    .reg .{t} %{letter}<160>;\n" for letter, t in TYPES.items())
    body = "".join(f"    {line}\n" for line in lines)
    head = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n\n"
    return f"{head}.visible .entry k()\n{{\n{registers}{body}}}\n\n"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_spelling_is_known_and_its_operands_fit(name: str) -> None:
    for form in FAMILIES[name]():
        assert find(form.spelling) == ((form, {}),)
        assert form.match(form.spelling) == {}
        for signature in form.signatures:
            for last in (True, False):
                assert problem(form.spelling, operands(form, last=last, signature=signature)) is None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_spelling_prints_as_it_was_parsed(name: str) -> None:
    target = "sm_90a" if name.startswith("wgmma") else "sm_120a"
    text = as_module((f"{form.spelling} {operands(form)};" for form in FAMILIES[name]()), target=target)
    module = import_ptx(parse_ptx(text), "k")
    module.verify()
    assert print_ptx(module) == text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_form_begins_with_its_version_and_its_targets(name: str) -> None:
    """The many targets that lack the many forms of `wgmma` are tried in turn; each with each by `make conformance`."""
    stride = WGMMA_TURNS if name.startswith("wgmma") else 1
    for number, form in enumerate(FAMILIES[name]()):
        target, since = earliest(form)
        text = operands(form)
        assert problem(form.spelling, text, TargetContext(since, (target.name,))) is None
        before = problem(form.spelling, text, TargetContext(previous(since), (target.name,)))
        assert before is not None
        assert f"needs PTX {since[0]}.{since[1]} or later, the module's version is" in before
        for other in every([t for t in TARGETS.values() if form.since(t) is None], stride, number):
            refused = problem(form.spelling, text, TargetContext((9, 9), (other.name,)))
            assert refused is not None
            assert f"{form.unavailable(other, (9, 9))}, the module's target is {other}" in refused


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_register_more_or_of_another_type_is_refused(name: str) -> None:
    for form in FAMILIES[name]():
        text = operands(form)
        for at, operand in enumerate(form.operands):
            pieces = list(_split(text))
            if operand.kind in (ADDRESS, CONSTANT):
                pieces[at] = "%f0"
            elif operand.kind == SELECTOR:
                pieces[at] = "{0, 1, 2}"
            else:
                pieces[at] = pieces[at].replace("}", ", %r0}") if pieces[at][0] == "{" else "%h0"
            message = problem(form.spelling, ", ".join(pieces))
            assert message is not None
            assert f"operand {operand.name}: expected" in message


def _split(text: str) -> list[str]:
    return re.findall(r"\{[^}]*\}|[^\s,]+", text)


def test_the_first_words_are_those_of_the_families() -> None:
    assert {"mma", "ldmatrix", "stmatrix", "movmatrix", "wmma", "wgmma"} == ROOTS


def test_qualifiers_may_stand_in_another_order() -> None:
    """As published kernels write them; the text printed is the text parsed."""
    opcode = "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
    ((row, _),) = find(opcode)
    assert row.spelling.startswith("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale")
    assert row.match(opcode) == {}
    assert row.match(row.spelling.replace("ue8m0", "ue4m3")) is None
    text = f"{opcode} {operands(BY_SPELLING[row.spelling])};"
    assert text in print_ptx(import_ptx(parse_ptx(as_module([text])), "k"))


def test_what_words_there_are_for_targets() -> None:
    form = BY_SPELLING["mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"]
    only = "needs sm_120a, or the sm_120f family from PTX 8.8, the module's target is"
    for context, words in (
        (
            TargetContext((9, 0), ("sm_120",)),
            f"{only} sm_120",
        ),
        (TargetContext((8, 6), ("sm_120a",)), "needs PTX 8.7 or later, the module's version is 8.6"),
        (TargetContext((8, 7), ("sm_121f",)), "needs PTX 8.8 or later, the module's version is 8.7"),
        (
            TargetContext((9, 0), ("sm_52",)),
            f"{only} sm_52",
        ),
        (TargetContext((9, 0), ("sm_120a", "debug")), None),
        (TargetContext((9, 0), ("texmode_unified",)), None),
    ):
        message = problem(form.spelling, operands(form), context)
        assert message is None if words is None else words in (message or "")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", [row for row in sparse_mma.rows() if row.ordered], ids=lambda r: r.spelling)
def test_sparsity_selectors(form: Mma) -> None:
    text = operands(form)
    at = [o.name for o in form.operands].index("f")
    pieces = _split(text)
    for value in range(-1, 6):
        pieces[at] = str(value)
        message = problem(form.spelling, ", ".join(pieces))
        legal = " or ".join(map(str, form.selectors))
        if value in form.selectors:
            assert message is None
        else:
            assert f"operand f: expected {legal}, got {value}" in (message or "")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", [r for r in (*mma.rows(), *sparse_mma.rows()) if r.scale], ids=lambda r: r.spelling)
def test_scale_selectors(form: Mma) -> None:
    scale = form.scale
    assert scale is not None
    pieces = _split(operands(form))
    for role in "ab":
        at = [o.name for o in form.operands].index(f"selector_{role}")
        for byte in range(-1, 5):
            for thread in range(-1, 5):
                changed = [*pieces[:at], f"{{{byte}, {thread}}}", *pieces[at + 1 :]]
                legal = byte in scale.byte_ids and thread in scale.thread_ids(role)
                message = problem(form.spelling, ", ".join(changed))
                assert (message is None) == legal
                what = "byte-id" if byte not in scale.byte_ids else "thread-id"
                assert legal or f"operand selector_{role}: {what}: expected" in (message or "")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("{%h0, %h1}", None),
        ("{%h0, 1}", None),
        ("{%r0, 1}", "byte-id: expected a register that holds .u16, got .b32"),
        ("{0, %f0}", "thread-id: expected a register that holds .u16, got .f32"),
        ("{0, 0f00000000}", "thread-id: expected an integer literal"),
        ("0", "expected {byte-id, thread-id}, got the literal 0"),
        ("{0}", "expected {byte-id, thread-id}, got a vector of 1"),
    ],
)
def test_scale_selectors_may_be_registers(items: str, message: str | None) -> None:
    form = next(r for r in mma.rows() if r.scale)
    complaint = problem(form.spelling, operands(form).replace("{0, 1}", items, 1))
    assert complaint is None if message is None else f"operand selector_a: {message}" in (complaint or "")


def test_words_of_metadata_and_scales_may_stand_in_braces() -> None:
    form = next(r for r in sparse_mma.rows() if r.scale)
    pieces = _split(operands(form))
    for name in ("e", "scale_a", "scale_b"):
        at = [o.name for o in form.operands].index(name)
        pieces[at] = f"{{{pieces[at]}}}"
    assert problem(form.spelling, ", ".join(pieces)) is None


def test_metadata_is_no_constant() -> None:
    opcode = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    pieces = _split(operands(BY_SPELLING[opcode]))
    pieces[4] = "0xEEEEEEEE"
    assert "operand e: expected a .b32 register, got the literal 0xEEEEEEEE" in (
        problem(opcode, ", ".join(pieces)) or ""
    )


def test_only_sparse_products_take_metadata() -> None:
    dense = mma.ROWS[0]
    assert (dense.sparse, dense.selectors, dense.codes, dense.metadata) == (False, (), (), None)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        ),
        (
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.tf32.tf32.f32",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        ),
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8", "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8"),
        ("movmatrix.sync.aligned.m8n8.b16", "movmatrix.sync.aligned.m8n8.trans.b16"),
        ("wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32", "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32"),
        ("wmma.load.d.sync.aligned.row.m16n16k16.f32", "wmma.load.c.sync.aligned.row.m16n16k16.f32"),
        ("wmma.bad.sync.aligned.row.m16n16k16.f32", "wmma.load.c.sync.aligned.row.m16n16k16.f32"),
    ],
)
def test_the_nearest_spelling_is_named(wrong: str, near: str) -> None:
    assert near in nearest(wrong)
    assert all(len(find(s)) == 1 for s in nearest(wrong))
    message = problem(wrong, "")
    assert message == f"'{wrong}' is not a PTX instruction known here; the nearest are {', '.join(nearest(wrong))}"
