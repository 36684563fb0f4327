"""Declarations, special registers and targets are refused as ptxas 13.0.88 refuses them; one answer everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from expected_diagnostics import expect, messages

from warploom.dialect.isa.row import NEWEST, TARGETS, UnknownTargetError, named
from warploom.dialect.ptx.check.module import check_text
from warploom.passes import opt
from warploom.runtime import WarploomError, check_ptx, load_ptx
from warploom.runtime.cli import command


def module(top: str = "", body: str = "", version: str = "9.0", target: str = "sm_90a") -> str:
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.global .b32 gv;\n{top}\n"
        ".visible .entry k(.param .u64 pp)\n{\n.reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
        f"{body}\nret;\n}}\n"
    )


REFUSED_OUTSIDE = {
    ".func .attribute(.managed) f() { ret; }": "is for a .func of PTX 8.0 and sm_90 or later",
    ".calltargets k;": "expected it inside a function, got '.calltargets k;'",
    ".func f();": "function 'f' has no body here",
    ".extern .func f() { ret; }": "function 'f' is .extern, which has no body",
    ".func f(.param .f16x2 x) { ret; }": "a parameter is no .f16x2",
    ".func f(); .visible .func f() { ret; }": "function 'f' was declared with no linking, got .visible",
    ".func f() { ret; } .func f();": "function 'f' is defined twice",
    ".func f(.param .align 8 .b8 a[8]); .func f(.param .b8 a[8]) { ret; }": "declared with other parameters",
    ".entry f(); .func f() { ret; }": "'f' was declared as another kind of thing",
    ".extern .global .u32 x; .global .u32 x;": "variable 'x' was declared with .extern, got no linking",
    ".extern .global .u32 x; .visible .global .u64 x;": "variable 'x' was declared with another type",
    ".func f() { call g; ret; } .func g() { ret; }": "'g' is not declared",
    ".func f() { ret; } .func g() { ret; } .alias g, f;": "expected the declaration of a .func without a body",
    ".weak .func f() { ret; } .func g(); .alias g, f;": "expected a .func of this module above, neither .extern nor",
    ".func f(.shared .b32 x) { ret; }": "the parameters of a function are .param or .reg, got .shared",
    ".func f(.reg .b32 x[2]) { ret; }": "a register is of a type of registers, and no array",
    ".func f(.param .b32 _) { ret; }": "a variable cannot have this name",
    ".func f(.param .u16 x) { ret; }": "ptxas passes no .u16 to a function",
    ".func f(.param .align 256 .b8 x[4]) { ret; }": "the alignment of a parameter is at most 128, got 256",
    ".func f(.param .b8 x[2][2]) { ret; }": "a parameter has one extent, got 2",
    ".func (.reg .b32 x, .reg .b32 y) f() { ret; }": "a function returns at most one value",
    ".const .b8 x[65536]; .const .b8 y;": "the .const variables have at most 65536 bytes together, got 65537",
    ".global .b32 %tid;": "a variable cannot have this name",
    ".global .align 08 .b32 x;": "expected a number of 32 bits such as 64, got '08'",
    ".global .b32 x<2> = 1;": "numbered variables are no arrays, and have no initial values",
    ".global .attribute(.unified) .u32 x;": "'.attribute(.unified)' is not for a .global variable",
    ".global .u2 x;": "'.u2' is no type of variables",
    ".global .bf16 x;": "'.bf16' is no type of variables",
    ".global .pred q;": "a predicate is a register",
    ".shared .attribute(.managed) .u32 x;": "'.attribute(.managed)' is not for a .shared variable",
    ".global .attribute(.foo) .u32 x;": "'.attribute(.foo)' is not for a .global variable",
    ".shared .texref x;": "a .texref is a .global variable or a parameter",
    ".shared::cta .u32 x;": "expected .shared in a declaration, got .shared::cta",
    ".shared .u32 x = 4;": "a .shared variable has no initial value",
    ".local .u32 x;": "a .local variable stands inside a function",
    ".global .u32 x; .global .u32 x;": "variable 'x' is defined twice",
    ".func f() { ret; } .func f() { ret; }": "function 'f' is defined twice",
    ".global .u32 x[];": "an array of open size needs .extern or an initialiser",
    ".global .align 3 .u32 x;": "the alignment must be a power of two, got 3",
    ".global .v4 .u64 x;": ".v4 .u64 has more than 128 bits",
    ".common .shared .u32 x;": ".common variables are .global",
    ".global .u32 x[1] = {1,2};": "2 initial values for 1 elements",
    ".global .u32 x[2] = {1.5, 2};": "expected integers as initial values of .u32, got 1.5",
    ".global .f32 x = 1;": "expected floats as initial values of .f32, got 1",
    ".global .u32 x = 1/0;": "'1/0' divides by zero",
    ".global .u32 x = 0f3F800000;": "expected integers as initial values of .u32",
    ".global .u32 x[4*8];": "variable 'x': expected a size such as [64], got '[4*8]'",
    ".reg .u32 z;": "a .reg declaration must stand inside a function",
    ".visible .entry g(.param .u32 x, .param .u32 x) { ret; }": "'x' is declared twice in this scope",
    ".func (.param .b32 x) g(.param .b32 x) { ret; }": "'x' is declared twice in this scope",
    ".visible .entry g(.param .b8 x[]) { ret; }": "an array of open size",
    ".visible .entry g(.reg .u32 x) { ret; }": "the parameters of a kernel are .param, got .reg",
    ".visible .entry g(.param .v4 .u32 x) { ret; }": "the parameters of a kernel are no vectors",
    ".func f(.param .b32 a) { ret; } .func g() { .param .v4 p; call f, (p); ret; }": "'.v4' is no type of variables",
    ".func f(.param .u64 .ptr .global a) { ret; }": "is for the parameters of kernels",
    ".func f(.param .b8 x[], .param .b32 y) { ret; }": "an array of open size",
    ".func (.param .b8 x[]) f() { ret; }": "an array of open size",
    ".global .f16 x = 1.0;": "a .f16 variable has no initial value",
    ".global .u64 x[2] = 0;": "expected the initial values of an array or vector in braces, got 0",
    ".global .v4 .f32 x = {1.0};": "expected 4 initial values of a vector, got {1.0}",
    ".global .v2 .f32 x[2] = {1.0, 2.0};": "expected the initial values of an array or vector in braces, got 1.0",
    ".global .u32 x[2] = {{1}, {2}};": "expected one initial value, got {1}",
    ".global .u32 x[][2] = {};": "an array of open size has as many elements as values, got none",
    ".global .u32 x[2][0] = {};": "only the first extent of an array may be open",
    ".global .u64 x = nothing;": "'nothing' is not declared above",
    ".global .u64 x = k+4;": "'k' is not declared above",
    ".global .u64 x = k;": "'k' is not declared above",
    ".global .u64 x[2] = {0, generic(nothing)};": "'nothing' is not declared above",
    ".global .u8 x = 0xFF(nothing);": "'nothing' is not declared above",
    ".global .u8 x = 0xFE(gv);": "expected a mask of one byte such as 0xFF00, got 0xFE",
    ".global .u64 x = 0xFF(gv)+1;": "'0xFF(gv)+1' is no address",
    ".global .u16 x = 0xFF(gv);": "expected a variable of .u8, .u32, .u64 for the address 0xFF(gv), got .u16",
    ".global .u16 x = gv;": "expected a variable of .u32, .u64 for the address gv, got .u16",
    ".global .b64 x = gv;": "expected a variable of .u32, .u64 for the address gv, got .b64",
    ".global .u64 x = gv-4;": "'gv-4' is no address",
    ".global .u64 x = sizeof(gv);": "'sizeof(gv)' is no address",
    ".global .u64 x = gv+1.5;": "expected a whole offset, got gv+1.5",
    ".global .u64 x = gv+gv;": "'gv' is not a constant expression",
    ".shared .u32 s; .global .u64 x = s;": "expected the address of a .global or .const variable, got 's', a .shared",
    ".func f() { ret; } .global .u64 x = generic(f);": "the address of 'f', a function, is its name alone",
    '.pragma "bogus";': "a module has no such pragma; expected nounroll or abi_param_reg",
    '.pragma "nounroll x";': "a module has no such pragma",
    '.pragma "frequency 10";': "it stands in the body of a function, not in its module",
    ".file 1 x": 'expected .file 1 "name", got .file 1 x',
    '.file 4294967296 "x"': ".file: expected numbers of 32 bits",
    '.file 1 "x"\n.file 1 "y"': ".file: 1 stands for 'x' already",
    ".section debug_str { .b8 1 }": "expected a section such as .section .debug_str { .b8 0 }",
    ".section .debug_str { .b8 1, 256 }": ".section: expected a number of 8 bits for .b8, got 256",
    ".section .debug_str { .b16 here }": ".section: expected numbers for .b16, got here",
    ".section .debug_str { .u8 1 }": ".section: expected .b8, .b16, .b32 or .b64, got .u8",
    ".func f() .noreturn .noreturn { ret; }": ".noreturn: it stands twice",
    ".func f() .abi_preserve 255 { ret; }": ".abi_preserve: expected numbers up to 254, got 255",
    ".pragma nounroll;": 'expected strings such as .pragma "nounroll";, got .pragma nounroll;',
    '.entry g() .pragma "used_bytes_mask 1"; { ret; }': "it stands in the body of a function, not in its header",
    ".entry g() .pragma 3; { ret; }": "expected strings such as",
}
TAKEN_OUTSIDE = (
    ".func .attribute(.unified(1, 2)) f() { ret; }",
    ".global .u64 x = x;", ".global .u8 x[2] = {0xFF00(4096), 0xFF(gv)};", ".global .b32 x<2>; .global .u32 y = x1;",
    ".global .align 0x10 .b8 x[2];", ".func f() { ret; } .func g(); .alias g, f;",
    ".visible .func f(); .func f() { ret; }",
    ".extern .global .u32 x[]; .visible .global .u32 x[4];", ".global .texref t = {width = 64, height = 2};",
    ".global .attribute(.managed, .unified(1, 2)) .u32 x;",
    ".global .v2 .u32 x[][2] = {{{1,2}},{}};", ".global .u32 x[2][2][2] = {{{1},{2}},{{3}}};",
    ".global .u8 x[4] = {0xFF(gv), 65280(gv), 0xFFU(gv), 0xFF(generic(gv)+4)};", ".global .u64 x = gv+4*2;",
    ".func f() { ret; } .global .u64 x = f;", ".global .u64 x = gv+-4;", ".const .b32 %temp = 3;",
    ".entry g() { ret; } .global .u32 x[2][1] = {{g}, {gv}};", '.pragma "nounroll", "nounroll";',
    '.entry g() .pragma "anything"; { ret; }', ".global .b32 %g; .entry g() { .reg .b32 r; ld.global.b32 r, [%g+4]; }",
    ".extern .func (.param .b32 x) g(.param .b32 x, .param .b32 x);", ".extern .func f(.param .f16x2 x);",
    ".global .b128 x;", ".global .texref t;", ".global .attribute(.managed) .u32 x;", ".global .u32 x = (1<<4);",
    ".global .align 4 .attribute(.managed) .u32 x;", ".attribute(.managed) .global .u32 x;",
    ".global .attribute(.unified(1,2)) .u32 x;", ".global .u32 x[2] = {1<<4, 3};", ".global .u64 x = generic(gv)+8;",
    ".global .u8 x[8] = {0xff(gv), 0xff00(gv)};", ".global .f32 x = 0f3F800000;", ".global .u32 x[] = {1,2,3};",
    ".global .u32 x[2][2] = {{1,2},{3,4}};", ".shared .u32 x[WARP_SZ];", ".global .u32 x = 1, y = 2;",
    ".extern .shared .u32 x[];", ".func f(); .func f() { ret; }", ".extern .func f() .noreturn;",
    ".visible .entry g(.param .u64 .ptr .texref x, .param .texref t) { ret; }",
    ".func f(.param .b32 x, .param .align 8 .b8 rest[]) { ret; }",
)  # fmt: skip
REFUSED_INSIDE = {
    ".reg .b32 x[2];": "registers make no arrays, expected x<n>",
    ".reg .attribute(.managed) .b32 x;": "a register has no .managed",
    ".reg .b32 _;": "a register cannot have the name '_'",
    ".param .b32 a; ld.param.b32 %r0, [a];": "no call above writes 'a'",
    ".param .b32 a; mov.u64 %rd0, a;": "'a' is an argument or a result of calls, which has no address",
    "ld.param::func.u64 %rd0, [pp];": "'pp' is a parameter of a kernel",
    ".reg .b32 L; L: ret;": "'L' is declared twice in this scope",
    ".callprototype _ ();": "expected a label in front of .callprototype",
    "P: .callprototype p ();": "expected a prototype such as",
    "P: .callprototype (.param .b32 _) _ () .noreturn;": "the function returns a value",
    "P: .callprototype _ (.param .b32 _); call %rd0, P;": "expected 1 arguments, got 0",
    "call %rd0, P; P: .callprototype _ ();": "'P' is not declared",
    "P: .calltargets k; call %rd0, P;": "expected functions that are declared above, got 'k'",
    "P: .branchtargets L, M<2>; L: M0: brx.idx %r0, P;": "there is no label 'M1' here",
    "L: call L;": "expected a function",
    "mov.b32 %r0, {%tid.x, %tid.y};": "operand a: element 0: the special register",
    ".reg .b32 %r1;": "'%r1' is declared twice in this scope",
    ".reg .b32 %r<4>;": "'%r<4>' is declared twice",
    ".reg .b32 x; .shared .b32 x;": "'x' is declared twice in this scope",
    ".reg .b32 pp;": "'pp' is declared twice in this scope",
    "L: L: ret;": "label 'L' is defined twice",
    ".reg .v4 .b64 q;": ".v4 .b64 has more than 128 bits",
    ".reg .v2 .pred q;": "predicates make no vectors",
    ".local .u2 x;": "'.u2' is no type of variables",
    ".local .b8 x[];": "an array of open size",
    ".extern .shared .b8 x[];": ".extern stands outside of functions",
    ".local .u32 z = 3;": "a .local variable has no initial value",
}
TAKEN_INSIDE = ("P: .branchtargets L<2>; L0: L1: brx.idx %r0, P;",
                "P: .callprototype _ () .noreturn .abi_preserve 3; call %rd0, (), P;",
                "P: .callprototype (.param .f16x2 _) _ (.param .f16x2 _);",
                "{ .reg .b32 %r1; mov.u32 %r1, 3; }", ".reg .b32 gv;", "{ L: } L: ret;",
                ".shared .b32 x; { .shared .b32 x; }",
                ".reg .b32 a<3>; .reg .b32 a;", ".reg .b128 q;", ".reg .v2 .b64 q;")  # fmt: skip


def test_parameters_of_open_size_need_a_version_and_a_target() -> None:
    text = ".version {}\n.target {}\n.address_size 64\n.func f(.param .b8 rest[]) {{ ret; }}\n"
    assert messages(text.format("6.0", "sm_30")) == []
    for version, target, needed in (("5.0", "sm_30", "PTX 6.0"), ("6.0", "sm_20", "sm_30")):
        (message,) = messages(text.format(version, target))
        assert f"an array of open size needs {needed} or later" in message


@pytest.mark.parametrize("text", REFUSED_OUTSIDE)
def test_refused_outside_of_functions(text: str) -> None:
    assert any(REFUSED_OUTSIDE[text] in message for message in messages(module(text)))


@pytest.mark.parametrize("text", REFUSED_INSIDE)
def test_refused_inside_functions(text: str) -> None:
    assert any(REFUSED_INSIDE[text] in message for message in messages(module(body=text)))


@pytest.mark.parametrize("text", TAKEN_OUTSIDE)
def test_taken_outside_of_functions(text: str) -> None:
    assert messages(module(text)) == []


@pytest.mark.parametrize("text", TAKEN_INSIDE)
def test_taken_inside_functions(text: str) -> None:
    assert messages(module(body=text)) == []


@pytest.mark.parametrize(
    ("version", "target", "message"),
    [
        ("6.4", "sm_80", "target sm_80 needs PTX 7.0 or later, the module's version is 6.4"),
        ("8.5", "sm_101a", "target sm_101a needs PTX 8.6 or later"),
        ("8.6", "sm_101a", ""),
        ("4.1", "sm_52, texmode_independent", ""),
        ("4.1", "sm_52, debug", "debug needs a .section of debugging information, there is none"),
        ("9.0", "sm_52, map_f64_to_f32", "map_f64_to_f32 is for targets before sm_13, which have no f64"),
        ("9.0", "sm_52, texmode_unified, texmode_independent", "exclude each other"),
        ("9.0", "texmode_unified, sm_52", "expected a target such as sm_90a in front of texmode_unified"),
        ("4.0", "sm_52", "target sm_52 needs PTX 4.1"),
        ("8.8", "sm_88", "target sm_88 needs PTX 9.0 or later"),
        ("8.7", "sm_103f", "target sm_103f needs PTX 8.8 or later"),
        ("9.0", "sm_88", ""),
        ("8.8", "sm_103f", ""),
        *(
            (version, f"sm_107{suffix}", message and f"target sm_107{suffix} {message}")
            for version, message in (("9.3", "needs PTX 9.4 or later"), ("9.4", ""))
            for suffix in ("", "a", "f")
        ),
        ("8.0", "sm_99", "unknown target 'sm_99'"),
        ("8.0", "ampere", "a target is written like sm_90a"),
    ],
)
def test_targets_have_a_first_version(version: str, target: str, message: str) -> None:
    diagnostic = expect(module(version=version, target=target), message)
    assert [(d.line, d.column) for d in diagnostic] == [(2, 9)] * len(diagnostic)


def test_named_targets_hold_those_that_code_is_made_for() -> None:
    assert all(named(name) is row for name, row in TARGETS.items())
    assert named("sm_61").ptx == (5, 0)
    with pytest.raises(UnknownTargetError, match="unknown target 'sm_1'"):
        named("sm_1")


@pytest.mark.parametrize(
    ("body", "version", "target", "message"),
    [
        ("mov.u32 %r1, %clusterid.x;", "8.0", "sm_80", "%clusterid.x needs sm_90 or later"),
        ("mov.u32 %r1, %cluster_ctarank;", "8.0", "sm_90", ""),
        ("mov.u32 %r1, %total_smem_size;", "4.0", "sm_50", "needs PTX 4.1 or later"),
        ("mov.u32 %r1, %aggr_smem_size;", "8.0", "sm_90", "needs PTX 8.1 or later"),
        ("mov.u64 %rd1, %globaltimer;", "3.1", "sm_20", "needs sm_30 or later"),
        ("mov.u32 %r1, %clock_hi;", "4.3", "sm_50", "needs PTX 5.0 or later"),
        (".reg .b128 q;", "8.2", "sm_90", ".b128 needs PTX 8.3 or later"),
        (".reg .b128 q;", "8.3", "sm_60", ".b128 needs sm_70 or later"),
    ],
)
def test_registers_have_a_first_target_and_version(body: str, version: str, target: str, message: str) -> None:
    expect(module(body=body, version=version, target=target), message)


TEXTURE = "tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {%r1}]"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{TEXTURE};", ""),
        (f"{TEXTURE}, {{%r1}};", ""),
        (TEXTURE.replace("%rd1,", "%rd1, %rd2,") + ";", ""),
        (TEXTURE.replace("{%r1}]", "{%r1, %r2}]") + ";", "expected 1 coordinates, got 2"),
        (TEXTURE.replace("%rd1", "%r1") + ";", "expected the address of an opaque object in 64 bits, got .b32"),
        (TEXTURE.replace(", {%r1}", "") + ";", "expected [texture, {coordinates}], got an address"),
        (TEXTURE.replace("1d", "cube") + ";", "is not a PTX instruction known here"),
        ("txq.width.b32 %r1, [%rd1];", ""),
        ("suld.b.2d.v2.b32.trap {%r1, %r2}, [%rd1, {%r1, %r2}];", ""),
        ("sust.b.2d.b32.zero [%rd1, %rd2, {%r1, %r2}], %r1;", "expected [surface, {coordinates}], got an address"),
        ("sured.b.add.1d.s64.clamp [%rd1, {%r1}], %rd1;", "is not a PTX instruction known here"),
    ],
)
def test_textures_and_surfaces(body: str, message: str) -> None:
    expect(module(body=body), message)


WRONG = {
    "fmaa.rn.f32 %r1, %r2;": "'fmaa.rn.f32' is not a PTX instruction known here; the nearest are fma",
    "add.u32 %r1, %r9, %r2;": "add.u32: no .reg declares '%r9'",
    "add.u32 %r1, %r2;": "add.u32: expected 3 operands (d, a, b), got 2",
    "add.u32 %r1, %tid.x, 1;": "the special register %tid.x can be read by mov and cvt of .b, .u and .s types only",
    ".local .u2 x;": "variable 'x': '.u2' is no type of variables",
}


def answer(main: Callable[[Sequence[str]], int | None], *words: str) -> int | str | None:
    """The exit code of a command that is run within this process."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("body", WRONG)
def test_check_opt_and_run_give_one_answer(body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(module(body=body))
    start = f"{path}:9:1: error: "
    assert answer(command.main, "check", str(path)) == 1
    checked = "".join(capsys.readouterr()).partition("\n")[0]
    assert answer(opt.main, str(path)) == 1
    read = "".join(capsys.readouterr()).partition("\n")[0]
    with pytest.raises(WarploomError) as error:
        load_ptx(path.read_text(), str(path)).launch("k", 1, 1, [0], device="interp")
    assert checked == read
    assert checked.startswith(start)
    assert WRONG[body] in checked
    assert str(error.value).startswith(checked)


def test_what_is_not_launched_may_hold_what_is_not_supported() -> None:
    other = (
        ".global .texref t;\n.visible .entry other() { .reg .f32 %f<4>; .reg .b64 %a;\n"
        "tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%a, {%f0}]; ret; }"
    )
    text = module(other, "ld.param.u64 %rd1, [pp]; st.global.u32 [%rd1], 7;")
    out = np.zeros(1, np.uint32)
    loaded = load_ptx(text, "k.ptx")
    loaded.launch("k", 1, 1, [out], device="interp")
    assert out[0] == 7
    with pytest.raises(WarploomError, match=r"k.ptx:7:1: error: .*tex"):
        loaded.launch("other", 1, 1, [], device="interp")


def test_a_variable_that_is_not_supported_refuses_the_kernel_that_uses_it() -> None:
    text = module(
        ".global .u64 t = generic(gone);", "mov.u64 %rd2, t; ld.param.u64 %rd1, [pp]; st.global.u64 [%rd1], %rd2;"
    )
    with pytest.raises(WarploomError, match=r"k.ptx:5:1: error: .gone. is not declared in this module"):
        load_ptx(text, "k.ptx").launch("k", 1, 1, [np.zeros(1, np.uint64)], device="interp")


def test_initialisers_are_expressions() -> None:
    text = module(".global .u32 t[2] = {1 << 4, ~0};", "ld.global.u32 %r1, [t]; ld.global.u32 %r2, [t+(1<<2)];\n"
                  "ld.param.u64 %rd1, [pp]; st.global.v2.u32 [%rd1], {%r1, %r2};")  # fmt: skip
    out = np.zeros(2, np.uint32)
    load_ptx(text).launch("k", 1, 1, [out], device="interp")
    assert out.tolist() == [16, 0xFFFFFFFF]


DIRECTIVES = {
    ".reqntid": ".reqntid: expected 1 to 3 numbers above 0, got none",
    ".reqntid 32, 2, 2, 2": ".reqntid: expected 1 to 3 numbers above 0, got 32, 2, 2, 2",
    ".reqntid 32, 0": ".reqntid: expected 1 to 3 numbers above 0, got 32, 0",
    ".reqntid 09": ".reqntid: expected 1 to 3 numbers above 0, got 09",
    ".maxnreg x": ".maxnreg: expected 1 number above 0, got x",
    ".maxclusterrank 8, 1": ".maxclusterrank: expected 1 number, got 8, 1",
    ".explicitcluster 3": ".explicitcluster: expected no numbers, got 3",
    ".noreturn": ".noreturn: expected it at a .func, got it at 'k'",
    ".foo 3": "'.foo' does not follow the header of a function; .maxnreg, ",
    ".reqntid WARP_SZ, 0x10\n.minnctapersm 1": "",
    ".reqnctapercluster 2, 0, 1\n.explicitcluster": "",
    '.pragma "nounroll";': "",
}


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_directives_of_a_kernel(directive: str) -> None:
    expect(module().replace(".param .u64 pp)", f".param .u64 pp)\n{directive}"), DIRECTIVES[directive])


@pytest.mark.parametrize(
    ("directive", "version", "target", "message"),
    [
        (".explicitcluster", "7.7", "sm_80", "needs PTX 7.8 or later, the module's version is 7.7"),
        (".reqnctapercluster 2", "7.8", "sm_80", "needs sm_90 or later, the module's target is sm_80"),
    ],
)
def test_directives_of_later_versions(directive: str, version: str, target: str, message: str) -> None:
    text = module(version=version, target=target).replace(".param .u64 pp)", f".param .u64 pp) {directive}")
    expect(text, f"{directive.split()[0]}: {message}")


def test_the_numbers_of_directives_are_read_as_others_are() -> None:
    text = module(target="sm_80").replace(".param .u64 pp)", ".param .u64 pp) .reqntid 0x20, WARP_SZ")
    load_ptx(text).launch("k", grid=1, block=(32, 32), args=[np.zeros(1, np.int32)], device="interp")


@pytest.mark.parametrize(("literal", "legal"), [("-0f3F800000", False), ("-0d3FF0000000000000", True)])
def test_signs_of_floats_by_their_bits(literal: str, legal: bool) -> None:
    text = module(body=f".reg .f32 %f;\nmov.f32 %f, {literal};")
    expect(text, "" if legal else f"'{literal}' is not an operand")


def verdict(text: str, message: str | None) -> None:
    """A text is refused with this message, or taken."""
    if message is None:
        assert messages(text) == []
    else:
        expect(text, message)


TOGETHER = {
    ".maxntid 128 .reqntid 128": ".maxntid: cannot stand with .reqntid",
    ".reqnctapercluster 2 .maxclusterrank 8": ".maxclusterrank: cannot stand with .reqnctapercluster",
    ".blocksareclusters": ".blocksareclusters: needs .reqntid beside it",
    ".reqntid 64 .blocksareclusters": ".blocksareclusters: needs .reqnctapercluster beside it",
    ".reqntid 64 .reqnctapercluster 2 .blocksareclusters": None,
    ".maxntid 128 .maxclusterrank 8": None,
    ".maxntid 4294967296": "expected numbers up to 4294967295, got 4294967296",
    ".local_maxnreg 32": None,
}


@pytest.mark.parametrize(("directives", "message"), TOGETHER.items())
def test_directives_that_exclude_or_need_each_other(directives: str, message: str | None) -> None:
    verdict(module().replace("(.param .u64 pp)\n", f"(.param .u64 pp) {directives}\n"), message)


STATEMENTS = {
    # Addresses
    "ld.global.u32 %r1, [%r2];": "a .global address takes 64 bits, got a .b32 register",
    "st.u32 [%r2], %r1;": "a generic address takes 64 bits, got a .b32 register",
    "prefetch.global.L1 [%r2];": "a .global address takes 64 bits",
    "ld.shared.u32 %r1, [%r2];": None,
    "ld.u32 %r1, [pp];": "expected a generic address, got 'pp', a .param variable",
    "ld.shared.u32 %r1, [gv];": "expected an address in .shared memory, got 'gv', a .global variable",
    "st.param.u32 [pp], %r1;": "the parameter 'pp' is received, it cannot be written",
    "ld.global.u32 %r1, [16];": "a literal address is one of .local memory",
    "ld.local.u32 %r1, [16];": None,
    "ld.global.u32 %r1, [%rd1-4];": "got '[%rd1-4]'; an offset below zero is written [%rd1+-4]",
    "mov.u32 %r1, gv;": "the address of 'gv' takes 64 bits",
    "cvta.shared.u32 %r1, %r2;": "a generic address takes 64 bits, .u32 has 32",
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%r2, {%r3}], [%r1];": None,
    "mapa.u64 %rd1, gv, 0;": "expected an address in .shared memory, got 'gv', a .global variable",
    "mapa.u64 %rd1, pp, 0;": "expected an address in .shared memory, got 'pp', a .param variable",
    "getctarank.u64 %r1, gv;": "expected an address in .shared memory, got 'gv', a .global variable",
    ".shared .b32 s; mapa.u64 %rd1, s, 0; mapa.u32 %r1, s, 0; getctarank.u64 %r1, s;": None,
    ".shared .b32 %s; ld.shared.b32 %r1, [%s]; mov.b32 %r1, %s;": None,
    # Places in files, guards, literals
    ".loc 1 1": "expected .loc file line column, or , function_name name, inlined_at ..., got .loc 1 1",
    ".loc 1 4294967296 1": ".loc: expected numbers of 32 bits",
    ".loc 1 2 3, function_name f, inlined_at 1 1 1": "no .loc above is the place 1 1 1 of inlined_at",
    ".loc 1 1 1\n.loc 1 2 3, function_name f, inlined_at 1  1 1": None,
    ".section .debug_str { .b8 0 }": "'.section' stands outside of functions",
    ".reg .pred %p; @ ! %p ret;\n# 1 \"x.cu\"": None,
    ".reg .f64 %d; mov.f64 %d, 1e400;": "'1e400' is beyond the numbers of 64 bits",
    ".reg .v4 .b32 %v; st.global.v4.b32 [%rd1], {%v};": "expected 4 x .b32, got 1",
    # Pragmas
    ".pragma;": 'expected strings such as .pragma "nounroll";',
    '.pragma "nounroll" "x";': "expected strings such as",
    '.pragma "used_bytes_mask ff";': "expected a number, got 'ff'",
    '.pragma "used_bytes_mask";': "expected a number, got ''",
    '.pragma "frequency 0";': "expected a number from 1, got 0",
    '.pragma "abi_param_reg all";': "it stands in the module or header of a function, not in its body",
    '.pragma "nounroll", "bogus"; .pragma "used_bytes_mask 0xFF"; .pragma "frequency 0x10"; .pragma "x";': None,
    # Special registers, literals, types
    ".reg .f32 %f; mov.f32 %f, %tid.x;": "%tid.x can be read by mov and cvt of .b, .u and .s types only",
    "mov.u64 %rd1, %tid.x;": "the special register has 32 or 16 bits, the type 64",
    "wgmma.wait_group.sync.aligned -1;": "expected a number from 0",
    ".reg .f16x2 %h; dp4a.s32.s32 %h, %r1, %r2, %r3;": "expected a register that holds .s32, got .f16x2",
    ".reg .f16x2 %h; bar.sync %h;": "expected a register that holds .u32, got .f16x2",
    ".reg .s16 %h<2>; multimem.ld_reduce.relaxed.sys.add.v2.bf16 {%h0, %h1}, [%rd1];": "holds .bf16, got .s16",
    "mov.b32 %r1, 1.5;": "the literal 1.5 is no .b32",
    "bar.sync WARP_SZ;": "expected a number from 0 to 15",
    "@%r1 mov.u32 %r1, %r2;": "expected a predicate as the guard, got a .b32 register",
    "add.u32 %r1.x, %r2, %r3;": "no .reg declares '%r1.x'",
    # Vectors
    ".reg .v4 .u32 w; ld.global.v4.u32 w, [%rd1]; mov.v4.u32 w, %tid; add.u32 w.x, w.r, w.w; mov.b64 %rd1, %r1;":
        "expected a register that holds .b64, got .b32",
    ".reg .v4 .u32 w; ld.global.v4.u32 w, [%rd1]; mov.v4.u32 w, %tid; add.u32 w.x, w.r, w.w;": None,
    ".reg .v4 .u32 w; mov.u32 %r1, w;": "got a vector of 4",
    ".reg .v4 .u32 w; ld.global.u32 %r1, [w];": "whose base is a vector",
    ".reg .u32 u; .reg .f32 f; ld.global.v2.b32 {u, f}, [%rd1];": "the elements of a vector have one type",
    # Families without rows
    "tcgen05.bogus;": "'tcgen05.bogus' is not a PTX instruction known here",
    "tex.9d.v4.f32.f32 {%r1, %r1, %r1, %r1}, [gv, {%r1}];": "'tex.9d.v4.f32.f32' is not a PTX instruction",
}  # fmt: skip


@pytest.mark.parametrize(("body", "message"), STATEMENTS.items())
def test_statements_are_refused_as_ptxas_refuses_them(body: str, message: str | None) -> None:
    verdict(module(body=body), message)


CALLS = {
    "call.uni (r), f, (x);": None,
    "call.uni f, (x);": "expected 1 results, got 0",
    "call.uni (r), f, (x, x);": "expected 1 arguments, got 2",
    "call.uni (r), f, (y);": "argument for 'a': expected .b32, got .b64",
    "call.uni (r), f, (z);": "argument for 'a': expected .align 4, got .align 8",
    "call.uni (r), f, (gv);": "expected a .param variable, got 'gv' in .global",
    "call.uni (r), f, (%rd1);": "expected .b32, got a .b64 register",
    "call.uni (r), f, (1.5);": None,
    "call.uni (r), %rd1, (x);": "expected a label of .callprototype or .calltargets above, or a table",
    "call.uni k;": "'k' is a kernel, expected a .func",
    "call.uni (r), f, (x), x;": "expected the arguments in parentheses, and nothing after them",
}


@pytest.mark.parametrize(("call", "message"), CALLS.items())
def test_calls_fit_what_they_call(call: str, message: str | None) -> None:
    declared = ".param .b32 x; .param .b32 r; .param .b64 y; .param .align 8 .b32 z;"
    text = module(".extern .func (.param .b32 q) f (.param .b32 a);", f"{declared} {call}")
    verdict(text, message)


def test_textures_are_no_arguments_of_another_type() -> None:
    call = ".param .samplerref t; .param .b32 r; call.uni (r), f, (t);"
    diagnostics = messages(module(".extern .func (.param .b32 q) f (.param .b32 a);", call))
    assert "call.uni: argument for 'a': expected .b32, got .samplerref" in diagnostics


def test_the_header_is_stated_once_and_exists() -> None:
    expect(module().replace(".address_size 64", ".address_size 64\n.address_size 64"), ".address_size is stated twice")
    expect(module().replace(".address_size 64", ".global .b32 q;\n.address_size 64"), "expected .address_size at the")
    expect(module(version="7.9", target="sm_80"), "there is no PTX 7.9")
    expect(module(version="8.9", target="sm_80"), "there is no PTX 8.9")
    expect(module(".func g(.param .b32 x); .func g(.param .b64 x) { ret; }"), "'g' was declared with other parameters")


def test_a_newer_version_is_noted_and_judged_as_the_newest() -> None:
    newer = f"{NEWEST[0]}.{NEWEST[1] + 1}"
    checked = check_text(module(version=newer, body="add.u32 %r0, %r1, %r2; sin.approx.2pi.ftz.f32 %r0, %r1;"))
    assert checked.diagnostics == []
    judged = f"PTX {newer} is newer than what is known; the module is judged as PTX {NEWEST[0]}.{NEWEST[1]}"
    assert [(note.line, note.column, note.message) for note in checked.notes] == [(1, 10, judged)]
    assert check_text(module(version="{}.{}".format(*NEWEST))).notes == []


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ('.language "ptx", "CUDA C++", 0x7', ""),
        (".maxntid 32 .language 10", ""),
        (".language 11", "expected strings or numbers from 0 to 10, got 11"),
        (".language", "expected strings or numbers from 0 to 10, got none"),
        ('.language "c"', '"c" is no language; expected one of unknown, ptx'),
        (".minperctamemory 0", ""),
        (".minperctamemory 1, 2", "expected 1 number, got 1, 2"),
    ],
)
def test_what_later_versions_put_behind_a_header(header: str, problem: str) -> None:
    expect(f".version 9.4\n.target sm_90\n.address_size 64\n.entry k() {header} {{ ret; }}\n", problem)


def test_directives_and_registers_of_later_versions() -> None:
    located = ".loc 1 3 0\n.loc_intermediate 2 4 1\nmov.u32 %r0, 1;"
    expect(module(body=located, version="9.4"), "")
    expect(module(body=located, version="9.3"), ".loc_intermediate needs PTX 9.4 or later")
    expect(module(body='.pragma "mma_throughput";', version="9.3"), "")
    expect(module(body='.pragma "mma_throughput";', version="9.2"), "needs PTX 9.3 or later")
    allotted = module(body="mov.u64 %rd0, %perctamemoryoffset; mov.u32 %r0, %perctamemorysize;", version="9.4")
    expect(allotted.replace("pp)\n", "pp) .minperctamemory 16\n"), "")
    text = module(body="mov.u32 %r0, %perctamemorysize;", version="9.4")
    expect(text, "the special register %perctamemorysize needs .minperctamemory at its kernel")
    spilling = module(".extern .shared .b8 s[];", '.pragma "enable_smem_spilling";')
    expect(spilling, "enable_smem_spilling is for modules without shared memory of open size")
    expect(module(body="mov.u32 %r0, %perctamemorysize;", version="9.3"), "needs PTX 9.4 or later")
    expect(module(body="mov.u32 %r0, %locality_domain_id;", version="9.5", target="sm_100"), "")
    expect(module(body="mov.u32 %r0, %locality_domain_id;", version="9.5"), "needs sm_100 or later")


@pytest.mark.parametrize(
    ("target", "line", "problem"),
    [
        ("sm_90a", "tcgen05.wait::st.sync.aligned;", "needs sm_100a, sm_101a, the sm_100f family"),
        ("sm_120a", "tcgen05.wait::ld.sync.aligned;", "needs sm_100a, sm_101a, the sm_100f family"),
        ("sm_100", "tcgen05.wait::ld.sync.aligned;", "needs sm_100a, sm_101a, the sm_100f family"),
        (
            "sm_103a",
            "tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd1, %r1, %p1;",
            "needs sm_100a, sm_101a, or",
        ),
        ("sm_90a", "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;", "needs sm_100 or later"),
        (
            "sm_100a",
            "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r0, %r1}, %r1, [%r1];",
            "needs sm_101a, the",
        ),
        ("sm_103a", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r0, %r1}, %r1, [%r1];", ""),
        ("sm_100a", "tcgen05.wait::ld.sync.aligned;", ""),
        ("sm_103f", "tcgen05.wait::ld.sync.aligned;", ""),
    ],
)
def test_tensor_memory_and_families_without_rows_have_targets(target: str, line: str, problem: str) -> None:
    registers = ".reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .b128 %q<2>; .reg .pred %p<2>;"
    text = f".version 8.8\n.target {target}\n.address_size 64\n.entry k() {{ {registers}\n{line}\nret; }}\n"
    messages = [diagnostic.message for diagnostic in check_ptx(text)]
    assert len(messages) == bool(problem)
    assert all(problem in message for message in messages)
