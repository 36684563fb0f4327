"""Text that cannot be read costs its own statement: what stands after it is still read and checked."""

from __future__ import annotations

import pytest

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.parser import parse_ptx, read_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.dialect.ptx.text.syntax import Immediate, Indexed, Instruction, Register, Symbol, Vector, operand_text
from warploom.runtime import check_ptx

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>; .reg .f32 %f<4>;"


def checked(body: str, before: str = "") -> list[tuple[int, str]]:
    """Line of the body, from 1, and message of each error."""
    start = HEAD + before + f".visible .entry k()\n{{ {REGISTERS}\n"
    diagnostics = check_ptx(f"{start}{body}\nret;\n}}\n")
    return [(d.line - start.count("\n"), d.message) for d in diagnostics]


def statements(body: str) -> list[Instruction]:
    module = parse_ptx(f"{HEAD}.visible .entry k() {{ {REGISTERS}\n{body} }}")
    return [s for s in module.functions["k"].body or () if isinstance(s, Instruction)]


@pytest.mark.parametrize(
    "wrong",
    [
        "add.u32 %r1, %r2, ;",
        "mov.u32 %r1, 1/0;",
        "@@ add.u32 %r1;",
        "ld.global.u32 %r1, [%rd1*4];",
        ".foo bar;",
        ".reg .b32 %x<99999999>;",
        "3add %r1;",
        "foo [%rd1, {%r1, %r2};",
    ],
)
def test_a_statement_that_cannot_be_read_costs_itself(wrong: str) -> None:
    diagnostics = checked(f"{wrong}\nadd.u32 %r1, %r2, %f1;\nadd.u32 %r1, %r2, %r3;\nadd.f32 %f1, %rd1, %f2;")
    assert [line for line, _ in diagnostics] == [1, 2, 4]


def test_an_unknown_register_type_costs_its_declaration_alone() -> None:
    diagnostics = checked(".reg .bf16 %h<4>, %q;\nadd.f32 %f1, %h1, %q;\nadd.u32 %r1, %r2, %f1;")
    assert [line for line, _ in diagnostics] == [1, 1, 3]
    assert "'.bf16' is not a register type" in diagnostics[0][1]


def test_what_stands_outside_functions() -> None:
    module, errors = read_ptx(
        HEAD
        + ".global .u32 x[;\n.entry a(.param ( ) { { ret; } }\nnonsense;\n.reg .b32 r;\n.func g() { ret; }\n"
        + ".entry b() { ret; }\n"
    )
    assert module is not None
    assert list(module.functions) == ["g", "b"]
    assert [error.line for error in errors] == [4, 5, 6, 7]


def test_a_function_that_is_not_closed_is_checked() -> None:
    module, (error,) = read_ptx(HEAD + ".entry k() { ret;")
    assert module is not None
    assert "k" in module.functions
    assert error.message == "the '{' of 'k' is not closed"


@pytest.mark.parametrize("text", ["", "foo", ".version x\n"])
def test_without_a_version_there_is_no_module(text: str) -> None:
    module, errors = read_ptx(text)
    assert module is None
    assert errors


def test_comments_between_a_header_and_its_body() -> None:
    header = ".visible .entry k()                 // @k\n// one {\n.maxntid 32, 1, 1 // two\n// three\n// four\n"
    text = HEAD + header + "{\n ret;\n}\n"
    function = parse_ptx(text).functions["k"]
    assert function.directives == (".maxntid 32, 1, 1",)
    assert check_ptx(text) == []


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[%rd1, {%r1, %r2}]", (Register("%rd1"), Vector((Register("%r1"), Register("%r2"))))),
        ("[map, {%r1, 3}]", (Symbol("map"), Vector((Register("%r1"), Immediate("3"))))),
        ("[t, s, {%f1}]", (Symbol("t"), Symbol("s"), Vector((Register("%f1"),)))),
    ],
)
def test_objects_with_coordinates(text: str, items: tuple[object, ...]) -> None:
    (operand,) = statements(f"tex.2d.v4.f32.f32 {text};")[0].operands
    assert isinstance(operand, Indexed)
    assert operand.items == items
    assert operand_text(operand) == text


def test_objects_with_coordinates_come_back() -> None:
    line = "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd1, {%f0, %f1}];"
    text = f"{HEAD}.visible .entry k() {{ {REGISTERS}\n{line}\nret; }}"
    assert line in print_ptx(import_ptx(parse_ptx(text)))


def test_constant_expressions_become_their_value() -> None:
    instructions = statements("mov.u32 %r1, (1<<4); mov.u32 %r1, 0x10|1; ld.global.u32 %r1, [%rd1+4*(1+1)];")
    assert [operand_text(i.operands[1]) for i in instructions] == ["16", "17", "[%rd1+8]"]
    assert [operand_text(i.operands[1]) for i in statements("mov.u32 %r1, ~0; mov.u64 %rd1, x+4*2;")] == ["-1", "x+8"]
    (call,) = statements("call (%r1), f, (5);")
    assert call.operands == (Vector((Register("%r1"),)), Symbol("f"), Vector((Immediate("5"),)))


def test_attributes_of_variables_and_parameters() -> None:
    text = (
        HEAD + ".global .attribute(.managed) .align 4 .u32 x;\n.extern .func f() .noreturn;\n"
        ".visible .entry k(.param .u64 .ptr .texref a, .param .u64 .ptr.global.align 4 b) { ret; }\n"
    )
    module = parse_ptx(text)
    printed = print_ptx(import_ptx(module))
    assert ".global .attribute(.managed) .align 4 .u32 x;" in printed
    assert ".extern .func f()\n.noreturn;" in printed
    assert ".param .u64 .ptr .texref a," in printed
    read, written = parse_ptx(printed).functions["k"].parameters, module.functions["k"].parameters
    assert [(v.name, v.pointer) for v in read] == [(v.name, v.pointer) for v in written]
    assert print_ptx(import_ptx(parse_ptx(printed))) == printed
