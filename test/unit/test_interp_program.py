"""What compilers write around arithmetic: addresses that wrap, special registers, 24-bit products, register counts."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import Array, Loaded, apply, outputs, per_thread, program

from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.cuda import ptxas
from warploom.runtime.interp import InterpreterError

GENERATOR = np.random.default_rng(61)


def words(count: int = 200) -> Array:
    edges = np.array([0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    return np.concatenate([edges, GENERATOR.integers(0, 1 << 32, count, np.uint32)])


def pairs() -> tuple[Array, Array]:
    a, b = words(), words()
    GENERATOR.shuffle(b)
    return a, b


def low24(word: int, signed: bool) -> int:
    value = word & 0xFFFFFF
    return value - (1 << 24) if signed and value >> 23 else value


@pytest.mark.parametrize("type", ["u32", "s32"])
@pytest.mark.parametrize("part", ["lo", "hi"])
def test_products_of_24_bits(type: str, part: str) -> None:
    a, b = pairs()
    c = words()
    exact = [low24(int(x), type == "s32") * low24(int(y), type == "s32") for x, y in zip(a, b, strict=True)]
    half = [(value >> 16 if part == "hi" else value) & 0xFFFFFFFF for value in exact]
    assert apply(f"mul24.{part}.{type} %d, %a, %b;", "u4", a, b).tolist() == half
    summed = [(h + int(z)) & 0xFFFFFFFF for h, z in zip(half, c, strict=True)]
    assert apply(f"mad24.{part}.{type} %d, %a, %b, %c;", "u4", a, b, c).tolist() == summed


def test_sums_of_products_of_24_bits_are_clamped() -> None:
    a, b = pairs()
    c = words().view(np.int32)
    highs = [low24(int(x), True) * low24(int(y), True) >> 16 for x, y in zip(a, b, strict=True)]
    expected = [max(-(2**31), min(2**31 - 1, h + int(z))) for h, z in zip(highs, c, strict=True)]
    assert apply("mad24.hi.sat.s32 %d, %a, %b, %c;", "i4", a, b, c.view(np.uint32)).tolist() == expected


@pytest.mark.parametrize("space", ["shared", "shared::cta", "local", "shared::cluster"])
@pytest.mark.parametrize("register", ["%r3", "%rd3"])
def test_addresses_of_32_bits_wrap(space: str, register: str) -> None:
    """A negative base and an offset that brings it back, as nvrtc writes them."""
    wide = "cvt.u64.u32 %rd3, %r3;" if register == "%rd3" else ""
    own = space.partition("::")[0]
    got = per_thread(
        f".{own} .align 4 .b32 words[64]; mov.u32 %r1, %tid.x; mov.u32 %r2, words; shl.b32 %r3, %r1, 2;"
        f"add.s32 %r3, %r3, %r2; sub.s32 %r3, %r3, 4096; {wide} st.{space}.u32 [{register}+4100], %r1;"
        f"add.s32 %r3, %r3, 4100; {wide} ld.{space}.u32 %r0, [{register}];"
    )
    assert got.tolist() == list(range(32))


def test_addresses_that_wrap_are_still_checked() -> None:
    body = ".shared .align 4 .b32 words[32]; mov.u32 %r1, words; sub.u32 %r1, %r1, 128; ld.shared.u32 %r0, [%r1+64];"
    with pytest.raises(InterpreterError, match="shared access out of bounds: 4 bytes at address 0xffffffc0, of 128"):
        per_thread(body)


def test_a_base_beyond_32_bits_of_a_matrix_in_shared_memory_wraps() -> None:
    load = "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%r1+1152], 16;"
    body = f"""mov.u32 %r1, words; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r3, %r1, %r3;
        mov.u32 %r4, 0; LOOP: mad.lo.u32 %r5, %r4, 32, %r2; cvt.rn.f32.u32 %f8, %r5; st.shared.f32 [%r3], %f8;
        add.u32 %r3, %r3, 128; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 8; @%p1 bra LOOP; bar.warp.sync -1;
        sub.u32 %r1, %r1, 1152; {load} cvt.rzi.u32.f32 %r0, %f1;"""
    assert per_thread(f".shared .align 32 .b32 words[256]; {body}")[0] == 1


def test_special_registers_of_the_launch() -> None:
    body = """.shared .b8 own[100]; mov.u32 %r1, %total_smem_size; mov.u32 %r2, %dynamic_smem_size; mov.u32 %r3, %nsmid;
        mov.u32 %r4, %smid; setp.lt.u32 %p1, %r4, %r3; mov.u64 %rd1, %gridid; cvt.u32.u64 %r5, %rd1;
        mov.u32 %r6, %clock_hi; add.u32 %r5, %r5, %r6;
        mad.lo.u32 %r0, %r1, 1000, %r2; mad.lo.u32 %r0, %r0, 10, %r5; @!%p1 mov.u32 %r0, 0;"""
    assert set(per_thread(body, shared=48).tolist()) == {(256 * 1000 + 48) * 10 + 1}  # 100 + 48 bytes, in units of 128
    out = outputs(200, "u4")
    body = "mov.u32 %r1, %ctaid.x; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1; mov.u32 %r2, %smid;"
    for target, count in (("sm_90a", 132), ("sm_80", 108), ("sm_100a", 148)):
        of_target = program(f"{body} st.global.u32 [%rd1], %r2;", ".param .u64 out", target=target)
        of_target.launch("k", (200, 1, 1), (1, 1, 1), [out])
        assert out.tolist() == [cta % count for cta in range(200)]


def test_clocks_advance() -> None:
    """A loop that waits for so many ticks ends; the timer counts from some time on, and its halves are its own."""
    wait = "mov.u64 %rd1, %clock64; LOOP: mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %rd1;"
    loop = f"{wait} setp.lt.u64 %p1, %rd3, 5000; @%p1 bra LOOP; cvt.u32.u64 %r0, %rd3;"
    assert all(5000 <= n < 25000 for n in per_thread(loop).tolist())
    timer = """mov.u64 %rd1, %globaltimer; mov.u32 %r1, %globaltimer_hi; cvt.u64.u32 %rd2, %r1; shl.b64 %rd2, %rd2, 32;
        sub.u64 %rd3, %rd1, %rd2; shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r0, %rd3; setp.eq.u64 %p1, %rd1, 0;
        @%p1 mov.u32 %r0, 1;"""
    assert set(per_thread(timer).tolist()) == {0}


def test_numbers_of_registers_are_taken_and_not_counted() -> None:
    body = "mov.u32 %r0, 5; setmaxnreg.{}.sync.aligned.u32 {}; add.u32 %r0, %r0, 1;"
    assert set(per_thread(body.format("inc", 232), 128).tolist()) == {6}
    with pytest.raises(InterpreterError, match="multiple of 8 from 24 to 256, got 100"):
        per_thread(body.format("dec", 100))
    some = "mov.u32 %r0, 5; mov.u32 %r1, %laneid; setp.eq.u32 %p1, %r1, 3; @%p1 bra OUT;"
    with pytest.raises(InterpreterError, match="must be executed by all lanes of a warp together"):
        per_thread(f"{some} setmaxnreg.dec.sync.aligned.u32 40; OUT: bar.sync 0;", 128)


def test_initialisers_with_addresses() -> None:
    """Of variables, with offsets, generic, and byte by byte."""
    module = """.global .align 4 .u32 words[4] = {10, 0x20, 30U, -1};
.global .align 8 .u64 second = generic(words)+4;
.const .align 8 .u64 table[3] = {words+8, generic(second), 7};
.global .align 8 .u8 mixed[16] = {0xFF(words), 0xFF00(words), 0xFF0000(words), 0xFF000000(words), 1095216660480(words),
    0xFF0000000000(words), 0xFF000000000000(words), 0xFF00000000000000(words), 5};
.global .align 4 .f32 floats[2] = {0f3F800000, 2.5};"""
    body = """ld.global.u64 %rd1, [second]; ld.global.u32 %r1, [%rd1]; ld.const.u64 %rd2, [table]; ld.u32 %r2, [%rd2+4];
        ld.const.u64 %rd3, [table+8]; ld.u64 %rd4, [%rd3]; ld.global.u32 %r3, [%rd4+-4]; ld.global.u64 %rd5, [mixed];
        ld.global.u32 %r4, [%rd5+8]; ld.global.u8 %r5, [mixed+8]; ld.global.f32 %f1, [floats+4];
        cvt.rzi.u32.f32 %r6, %f1; ld.param.u64 %rd6, [out]; st.global.v4.u32 [%rd6], {%r1, %r2, %r3, %r4};
        st.global.v2.u32 [%rd6+16], {%r5, %r6};"""
    out = outputs(6, "u4")
    built = program(body, ".param .u64 out", module=module)
    for _ in range(2):
        built.launch("k", (1, 1, 1), (1, 1, 1), [out])
        assert out.tolist() == [0x20, 0xFFFFFFFF, 10, 30, 5, 2]


def test_initialisers_nest_as_the_dimensions_do() -> None:
    """What a row leaves out is zero, and an open array has as many rows as its initialiser."""
    module = ".global .u32 rows[][3] = {{1}, {2, 3}}; .global .v2 .u32 pairs[2][2] = {{{4, 5}}, {{6, 7}, {8, 9}}};"
    words = [f"[rows+{4 * n}]" for n in range(6)] + [f"[pairs+{4 * n}]" for n in range(8)]
    loads = "".join(f"ld.global.u32 %r1, {w}; st.global.u32 [%rd1+{4 * n}], %r1;\n" for n, w in enumerate(words))
    out = outputs(len(words), "u4")
    built = program(f"ld.param.u64 %rd1, [out];\n{loads}", ".param .u64 out", module=module)
    built.launch("k", (1, 1, 1), (1, 1, 1), [out])
    assert out.tolist() == [1, 0, 0, 2, 3, 0, 4, 5, 0, 0, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (".global .u64 p = other;", "'other' is not declared in this module"),
        (".global .u32 p[2] = {1, 2, 3};", "variable 'p': 3 initial values for 2 elements"),
        (".global .u32 p[] = {};", "variable 'p': an array of open size has as many elements as values"),
        (".global .u32 p = 1 + x;", "initialiser '1 . x' is not supported"),
        (".global .u32 p = 0xFF(1x);", "is not supported|is not declared"),
    ],
)
def test_initialisers_that_cannot_be(variable: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        program("mov.u64 %rd1, p;", module=variable).launch("k", (1, 1, 1), (1, 1, 1), [])


# Shared memory: what a kernel has of it, and where

MODULE = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 4 .b8 near[];
.extern .shared .align 1024 .b8 far[];
.shared .align 1 .b8 s[3];
.shared .align 16 .b8 t[5];
.shared .align 4 .b8 u[48];
.shared .b8 huge[245760];
.visible .func f();
.visible .func g();
.global .u64 pointer = g;
.visible .func g() { .shared .align 2 .b8 gv[32]; .reg .b32 %r; mov.u32 %r, gv; ret; }
.visible .func f() { .shared .align 2 .b8 fv[10]; .reg .b32 %r; ld.shared.u8 %r, [t]; ret; }
"""


def kernel(name: str, variables: str, *named: str, body: str = "") -> str:
    """A kernel that writes where variables lie."""
    stores = "".join(f"mov.u32 %r0, {v}; st.global.u32 [%rd0+{4 * i}], %r0; " for i, v in enumerate(named))
    return f""".visible .entry {name}(.param .u64 out) {{ .reg .b32 %r<2>; .reg .b64 %rd<3>; {variables}
ld.param.u64 %rd0, [out]; {stores} {body} ret; }}
"""


SHARED = {
    "own": (kernel("own", ".shared .align 16 .b8 v[48];", "v", "near", "far"), [0, 48, 1024], 1024),
    "module": (kernel("module", ".shared .align 2 .b8 v[6];", "v", "u", "t", "s", "near"), [0, 24, 16, 6, 80], 1024),
    "unused": (kernel("unused", ".shared .align 2 .b8 v[6]; .shared .b8 z[1077];", "v", "near"), [0, 1088], 2048),
    "called": (kernel("called", ".shared .align 2 .b8 v[6];", "v", "u", "t", "near", body="call f;"),
        [10, 24, 16, 80], 1024),
    "taken": (kernel("taken", ".shared .b8 v[6];", "v", "near", body="mov.u64 %rd1, f;"), [10, 32], 1024),
    "initialised": (kernel("initialised", ".shared .b8 v[6];", "v", "near", body="ld.global.u64 %rd1, [pointer];"),
        [32, 48], 1024),
    "nothing": (kernel("nothing", ""), [], 0),
    "hidden": (kernel("hidden", ".shared .align 2 .b8 v[6]; .shared .b8 s[2];", "v", "s", "near"), [0, 6, 16], 1024),
}  # fmt: skip
"""Kernels, where ptxas 13.0 puts their variables for sm_80, and how many bytes of static memory it gives them."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_lies_where_ptxas_puts_it(name: str) -> None:
    """Dynamic memory at its own alignment, behind what the kernel and its callees use; the static part is padded."""
    text, places, static = SHARED[name]
    built = Loaded(parse_ptx(MODULE + text, "k.ptx"), "k.ptx")
    out = outputs(len(places) + 1, "u4")
    built.launch(name, (1, 1, 1), (1, 1, 1), [out], shared=64)
    assert out.tolist() == [*places, 0xA5A5A5A5]
    assert built.program.kernel(name).layout.shared == static
    if ptxas.find() is not None:
        assert ptxas.assemble(MODULE + text, "sm_80")[name].shared == static


def test_limits_of_shared_memory_are_those_of_the_padded_sizes() -> None:
    text = MODULE + kernel("k", ".shared .b8 v[48];", "v", "far") + kernel("h", ".shared .b8 v[48129];", "far")
    built = Loaded(parse_ptx(text, "k.ptx"), "k.ptx")
    built.launch("k", (1, 1, 1), (1, 1, 1), [outputs(2, "u4")], shared=162 * 1024)
    with pytest.raises(InterpreterError, match=r"kernel k: 166913 bytes of shared memory are asked for; .* 166912"):
        built.launch("k", (1, 1, 1), (1, 1, 1), [outputs(2, "u4")], shared=162 * 1024 + 1)
    built.launch("h", (1, 1, 1), (1, 1, 1), [outputs(1, "u4")])
    built = Loaded(parse_ptx(text.replace("48129", "49153"), "k.ptx"), "k.ptx")
    with pytest.raises(InterpreterError, match=r"50176 bytes of static .* at most 49152 for sm_80, dynamic"):
        built.launch("h", (1, 1, 1), (1, 1, 1), [outputs(1, "u4")])
    text = text.replace("sm_80", "sm_90a")
    Loaded(parse_ptx(text.replace("48129", "232448"), "k.ptx")).launch("h", (1, 1, 1), (1, 1, 1), [outputs(1, "u4")])
    built = Loaded(parse_ptx(text.replace("48129", "232449"), "k.ptx"), "k.ptx")
    with pytest.raises(InterpreterError, match="233472 bytes of static shared memory; ptxas takes at most 232448"):
        built.launch("h", (1, 1, 1), (1, 1, 1), [outputs(1, "u4")])
