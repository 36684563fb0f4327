"""Functions with parameters and results, jumps through tables, and what cannot be called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from interpreted import Loaded, collatz_steps, per_thread

from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime import load_ptx
from warploom.runtime.base.launch import Checks
from warploom.runtime.interp import InterpreterError

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
BODY = """.visible .entry k(.param .u64 out) { .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f64 %fd<4>;
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 8, %rd1;
"""


def run(functions: str, body: str, threads: int = 64, checks: str = "all") -> list[int]:
    """What each thread leaves in the 64 bits at %rd1; %r1 is its number. Every check is on, and silent."""
    out = np.full(threads, 0xA5A5A5A5A5A5A5A5, np.uint64)
    built = Loaded(parse_ptx(HEAD + functions + BODY + body + "}", "k.ptx"), "k.ptx")
    built.launch("k", (1, 1, 1), (threads, 1, 1), [out], checks=checks)
    return out.tolist()


STEPS = """.func (.param .b32 steps) collatz(.param .b32 start)
{ .reg .pred %p<3>; .reg .b32 %r<8>; ld.param.u32 %r1, [start]; mov.u32 %r2, 0;
LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE; and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; add.u32 %r2, %r2, 1;
@%p2 shr.u32 %r1, %r1, 1; @!%p2 mad.lo.u32 %r1, %r1, 3, 1; bra LOOP;
DONE: st.param.b32 [steps], %r2; ret; }
"""


def test_lanes_take_different_ways_through_a_function_and_meet_behind_it() -> None:
    """Only some lanes call; behind the call, all of them are together."""
    body = """add.u32 %r2, %r1, 1; mov.u32 %r3, 7; and.b32 %r4, %r1, 3; setp.eq.u32 %p1, %r4, 0; @%p1 bra JOIN;
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call.uni (b), collatz, (a); ld.param.b32 %r3, [b]; }
        JOIN: activemask.b32 %r6; mov.b64 %rd2, {%r3, %r6}; st.global.b64 [%rd1], %rd2;"""
    assert run(STEPS, body) == [(0xFFFFFFFF << 32) | (7 if t % 4 == 0 else collatz_steps(t + 1)) for t in range(64)]


def test_functions_call_functions_and_come_back_to_several_places() -> None:
    functions = f"""{STEPS}
.func (.param .b64 r) twice(.param .b64 v, .param .b32 n) {{ .reg .b32 %r<4>; .reg .b64 %rd<4>;
{{ .param .b32 a; .param .b32 b; ld.param.b32 %r1, [n]; st.param.b32 [a], %r1; call (b), collatz, (a);
ld.param.b32 %r2, [b]; }} ld.param.b64 %rd1, [v]; mad.wide.u32 %rd1, %r2, 2, %rd1; st.param.b64 [r], %rd1; }}
"""
    body = """.param .b32 a; .param .b32 b; .param .b64 v; .param .b64 r; add.u32 %r2, %r1, 1; st.param.b32 [a], %r2;
        mov.u64 %rd3, 1000000; st.param.b64 [v], %rd3; call (b), collatz, (a); and.b32 %r4, %r1, 1;
        setp.eq.u32 %p1, %r4, 1; ld.param.u32 %r3, [b]; cvt.u64.u32 %rd2, %r3; @%p1 call (r), twice, (v, a);
        @%p1 ld.param.b64 %rd4, [r]; @%p1 add.u64 %rd2, %rd2, %rd4; st.global.b64 [%rd1], %rd2;"""
    expected = [collatz_steps(t + 1) + (1000000 + 2 * collatz_steps(t + 1) if t % 2 else 0) for t in range(64)]
    assert run(functions, body) == expected


def test_structs_by_value_and_pointers_to_them() -> None:
    """The function sees a copy: what it does to it, the caller does not see."""
    functions = """.func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 s[16])
{ .reg .b64 %rd<6>; mov.b64 %rd1, s; ld.param.b64 %rd2, [%rd1]; ld.param.b64 %rd3, [s+8]; st.param.b64 [s], 0;
st.param.v2.b64 [r], {%rd3, %rd2}; ret; }
"""
    body = """.param .align 8 .b8 s[16]; .param .align 8 .b8 r[16]; cvt.u64.u32 %rd2, %r1; st.param.b64 [s+8], 5;
        st.param.b64 [s], %rd2; call (r), swap, (s); ld.param.v2.b64 {%rd3, %rd4}, [r]; ld.param.b64 %rd5, [s];
        mad.lo.u64 %rd6, %rd3, 100, %rd4; mad.lo.u64 %rd6, %rd6, 100, %rd5; st.global.b64 [%rd1], %rd6;"""
    assert run(functions, body) == [50000 + 101 * t for t in range(64)]


def test_parameters_in_registers() -> None:
    functions = """.func (.reg .b32 %low, .reg .f64 %half) split(.reg .b64 %v, .reg .pred %q, .reg .b32 %n)
{ .reg .b32 %h; mov.b64 {%low, %h}, %v; cvt.rn.f64.u32 %half, %h; @%q add.f64 %half, %half, 0d3FE0000000000000;
add.u32 %low, %low, %n; }
"""
    body = """mul.wide.u32 %rd2, %r1, 0x7FFFFFFF; setp.gt.u32 %p1, %r1, 30; call (%r3, %fd1), split, (%rd2, %p1, 9);
        cvt.rzi.u32.f64 %r4, %fd1; fma.rn.f64 %fd1, %fd1, 0d4000000000000000, 0d0000000000000000;
        cvt.rzi.u32.f64 %r4, %fd1; mov.b64 %rd3, {%r3, %r4}; st.global.b64 [%rd1], %rd3;"""
    expected: list[int] = []
    for t in range(64):
        low, high = t * 0x7FFFFFFF & 0xFFFFFFFF, t * 0x7FFFFFFF >> 32
        expected.append((low + 9 & 0xFFFFFFFF) | 2 * high + (t > 30) << 32)
    assert run(functions, body) == expected


def test_functions_without_parameters_exit_and_use_shared_memory() -> None:
    functions = """.shared .align 4 .b32 word[64];
.func leave() { .reg .b32 %r<3>; .reg .pred %p; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r0, word;
add.u32 %r2, %r0, %r2; st.shared.u32 [%r2], %r1; setp.ge.u32 %p, %r1, 40; @%p exit; bar.sync 0; }
"""
    body = """call leave; ld.shared.u32 %r2, [word+156]; call.uni leave, (); cvt.u64.u32 %rd2, %r2;
        st.global.b64 [%rd1], %rd2;"""
    with pytest.raises(InterpreterError, match="reads what warp 1, lane 7 writes"):
        run(functions.replace("@%p exit", "@%p ret"), body, checks="races")
    assert run(functions, body, checks="uninitialised") == [39] * 40 + [0xA5A5A5A5A5A5A5A5] * 24


def test_jumps_through_a_table() -> None:
    body = """ways: .branchtargets A, B, C; mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3; brx.idx %r2, ways;
        A: mov.u32 %r0, 10; bra END; B: mov.u32 %r0, 20; bra END; C: mov.u32 %r0, 30;
        END: activemask.b32 %r3; setp.eq.u32 %p1, %r3, -1; @%p1 add.u32 %r0, %r0, %r1;"""
    numbered = body.replace("A, B, C;", "A, L<2>;").replace("B: mov", "L0: mov").replace("C: mov", "L1: mov")
    for text in (body, numbered):
        assert per_thread(text).tolist() == [(10, 20, 30)[t % 3] + t for t in range(32)]
    with pytest.raises(InterpreterError, match=r"brx.idx: expected an index from 0 to 2, got 7 .* lane 7"):
        per_thread(
            body.replace("rem.u32 %r2, %r1, 3;", "and.b32 %r2, %r1, 7; min.u32 %r2, %r2, %r1;").replace(
                "and.b32 %r2, %r1, 7;", "mov.u32 %r2, 0; setp.eq.u32 %p2, %r1, 7; @%p2 mov.u32 %r2, 7;"
            )
        )


def test_registers_that_a_function_does_not_set_are_found() -> None:
    functions = ".func (.reg .b32 %x) f(.reg .b32 %n) { .reg .pred %p; setp.eq.u32 %p, %n, 5; @%p mov.u32 %x, 1; }\n"
    with pytest.raises(InterpreterError, match=r"register %x .* before it is written|%x"):
        run(functions, "call (%r2), f, (%r1); cvt.u64.u32 %rd2, %r2; st.global.b64 [%rd1], %rd2;")


# What cannot be called

F = ".func (.param .b32 r) f(.param .b32 a) { ret; }\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("functions", "body", "message"),
    [
        (
            F.replace("ret", ".param .b32 x; call (x), f, (x)"),
            ".param .b32 v; call (v), f, (v);",
            "the stack of 32768 bytes is used up; does the recursion end?",
        ),
        (
            ".func g();\n.func f() { call g; }\n.func g() { call f; }\n",
            "call f;",
            "is used up; does the recursion end?",
        ),
        (
            ".func (.param .b32 r, .param .b32 s) f() { .param .b32 x; .param .b32 y; call (x, y), f; }\n",
            "call (%r1, %r2), f;",
            "function 'f' calls itself or is called through a register; it can return one result of at most 256 bytes",
        ),
        ("", "call nowhere;", "function 'nowhere' has no body in this module"),
        (".extern .func g();\n", "call g;", "function 'g' has no body in this module"),
        (
            F,
            "call (%r1), %rd1, (%r2), p;",
            "0x1000000000 is the address of no function with these arguments (known",
        ),
        (F, ".param .b32 v; call (v), f, (v, v);", "f has 1 arguments, got 2"),
        (F, ".param .b32 v; call f, (v);", "f has 1 results, got 0"),
        (F, ".param .b64 v; call (%r1), f, (v);", "expected a .param variable of 4 bytes for a, got 8 bytes"),
        (F, "call (%r1), f, (out);", "expected a .param variable of 4 bytes for a, got something else"),
        (F, "call (%r1), f, (%rd1);", "expected a register of 32 bits"),
        (
            F.replace(".b32 a", ".b8 a[12]"),
            "call (%r1), f, (%r1);",
            "expected a .param variable of 12 bytes for a, got %r1",
        ),
        (F, "call (%r1), k, (%r1);", "'k' is a kernel; only functions can be called"),
        ("", "brx.idx %r1, nowhere;", "expected a label of .branchtargets, got nowhere"),
        ("", "w: .branchtargets A; brx.idx %r1, w;", "no label A in this function"),
        (
            "",
            "w: .branchtargets 7; brx.idx %r1, w;",
            "expected names as in .branchtargets a, b;, got .branchtargets 7;",
        ),
    ],
)
def test_what_is_refused_at_load_time(functions: str, body: str, message: str) -> None:
    with pytest.raises(InterpreterError) as caught:
        run(functions, body)
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ptx:")


def test_two_kernels_call_one_function() -> None:
    other = BODY.replace("entry k(", "entry other(") + "call (%r2), f, (%r1); st.global.u32 [%rd1], %r2; }\n"
    module = HEAD + F.replace("ret;", ".reg .b32 %r1; ld.param.b32 %r1, [a]; st.param.b32 [r], %r1;") + other
    built = Loaded(parse_ptx(module + other.replace("other(", "k("), "k.ptx"), "k.ptx")
    for name in ("k", "other"):
        out = np.zeros(32, np.uint64)
        built.launch(name, (1, 1, 1), (32, 1, 1), [out])
        assert out.tolist() == list(range(32))


# Functions that call themselves, and functions that are called by their addresses


def word(value: int) -> int:
    """As 32 bits with a sign hold it."""
    return (value + 2**31) % 2**32 - 2**31


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def permutations(items: list[int], left: int, weight: int) -> int:
    if left == 0:
        return weight
    total = 0
    for i in range(left):
        rest = [*items[:i], *items[i + 1 : left]]
        total = word(total + permutations(rest, left - 1, word(weight * 10 + items[i])))
        total = word(total ^ (items[i] << left))
    return total


RECURSION = Path(__file__).parents[1] / "data/kernels/recursion.ptx"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checks", [(), "all"])
def test_functions_that_call_themselves_and_each_other(checks: Checks) -> None:
    """As nvcc compiles them: every call has local arrays of its own, and reads those of its caller."""
    n = 75
    out = np.full(3 * n + 3, -1, np.int32)
    load_ptx(RECURSION.read_text()).launch("recurse", 2, 40, [out, n], device="interp", checks=checks)
    expected = [
        value
        for t in range(n)
        for value in (
            fibonacci(t % 11),
            1 if t % 2 == 0 else 2,
            permutations([t, t + 1, t * t, 7, t ^ 5], t % 5, t),
        )
    ]
    assert out.tolist() == [*expected, -1, -1, -1]


def area(side: int, height: int | None) -> int:
    return side * side if height is None else 2 * side * side + 4 * side * height


def test_tables_of_functions_and_virtual_functions() -> None:
    n = 75
    out = np.full(2 * n + 2, -1, np.int32)
    load_ptx(RECURSION.read_text()).launch("dispatch", 2, 40, [out, n], device="interp")
    expected: list[int] = []
    for t in range(n):
        x = t
        for i in range(4):
            x = word((x + 1, 2 * x, x * x)[(t + i) % 3])
        own = area(t, None if t % 2 else 3)
        expected += [x, word(own * 1000 + area(t + 1, own))]
    assert out.tolist() == [*expected, -1, -1]


TABLE = """.func (.param .b32 r) up(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; add.u32 %r, %r, 1;
st.param.b32 [r], %r; ret; }
.func (.param .b32 r) down(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; sub.u32 %r, %r, 1;
st.param.b32 [r], %r; ret; }
.func (.param .b32 r) sum(.param .b32 a, .param .b32 b) { ret; }
.global .u64 ways[3] = {up, down, sum};
"""
THROUGH = """.param .b32 a; .param .b32 r; st.param.b32 [a], %r1; mov.u32 %r9, 0;
    p: .callprototype (.param .b32 _) _ (.param .b32 _); call (r), %rd2, (a), p; ld.param.b32 %r3, [r];
    cvt.u64.u32 %rd3, %r3; st.global.b64 [%rd1], %rd3;"""


def test_calls_through_registers_that_differ_by_thread() -> None:
    choose = """and.b32 %r2, %r1, 1; mul.wide.u32 %rd3, %r2, 8; mov.u64 %rd4, ways; add.u64 %rd3, %rd4, %rd3;
        ld.global.u64 %rd2, [%rd3];"""
    assert run(TABLE, choose + THROUGH) == [t + 1 if t % 2 == 0 else t - 1 for t in range(64)]
    assert run(TABLE, "mov.u64 %rd2, down; add.u32 %r1, %r1, 5;" + THROUGH) == [t + 4 for t in range(64)]


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("mov.u64 %rd2, 0;", r"call: a null pointer is the address of no function with these arguments \(known: "),
        ("mov.u64 %rd2, sum;", r"is the address of no function .*\(known: down at 0x800000000000020, up at"),
        ("mov.u64 %rd2, up; setp.eq.u32 %p1, %r1, 33; @%p1 add.u64 %rd2, %rd2, 4;", r"warp 1, lane 1"),
    ],
)
def test_calls_through_registers_that_go_nowhere(pointer: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        run(TABLE, pointer + THROUGH)


def test_memory_of_functions_on_the_stack() -> None:
    """`alloca` in a function is given back when it returns; what it returns to is not disturbed."""
    functions = """.func (.param .b32 r) fill(.param .b32 n) { .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p;
        ld.param.u32 %r1, [n]; cvt.u64.u32 %rd1, %r1; shl.b64 %rd1, %rd1, 2; alloca.u64 %rd2, %rd1, 64;
        mov.u64 %rd3, %rd2; mov.u32 %r2, 0; L: st.local.u32 [%rd3], %r2; add.u64 %rd3, %rd3, 4; add.u32 %r2, %r2, 1;
        setp.lt.u32 %p, %r2, %r1; @%p bra L; sub.u64 %rd3, %rd3, 4; ld.local.u32 %r3, [%rd3]; cvt.u32.u64 %r4, %rd2;
        and.b32 %r4, %r4, 63; shl.b32 %r4, %r4, 16; add.u32 %r3, %r3, %r4; st.param.b32 [r], %r3; ret; }
"""
    body = """stacksave.u64 %rd5; alloca.u64 %rd2, 8; st.local.u64 [%rd2], 77; add.u32 %r2, %r1, 1; mov.u32 %r4, 0;
        mov.u32 %r5, 0; L: call (%r3), fill, (%r2); add.u32 %r4, %r4, %r3; add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 200; @%p1 bra L; ld.local.u64 %rd3, [%rd2]; cvt.u64.u32 %rd4, %r4;
        mad.lo.u64 %rd3, %rd3, 1000000, %rd4; stackrestore.u64 %rd5; alloca.u64 %rd6, 8; setp.ne.u64 %p2, %rd6, %rd2;
        @%p2 mov.u64 %rd3, 0; st.global.b64 [%rd1], %rd3;"""
    assert run(functions, body) == [77000000 + 200 * t for t in range(64)]
    with pytest.raises(InterpreterError, match=r"alloca.u64: the stack of 32768 bytes is used up"):
        run("", "alloca.u64 %rd2, 40000;")
    with pytest.raises(InterpreterError, match=r"alloca.u64: operand n: expected 1 or 2 or 4 or .*, got 12"):
        run("", "alloca.u64 %rd2, 40, 12;")
