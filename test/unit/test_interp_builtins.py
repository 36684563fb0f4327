"""What kernels get from the driver: printf, assertions, traps and a heap."""

from __future__ import annotations

import ctypes
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import outputs, program

from warploom.runtime import load_ptx
from warploom.runtime.cli.command import main
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.state import parse, show

PRINTING = Path(__file__).parents[1] / "data/kernels/printing.ptx"
LIBC = ctypes.CDLL(None)
GENERATOR = np.random.default_rng(5)


def printed_by_c(format: bytes, *values: Any) -> str:
    buffer = ctypes.create_string_buffer(4096)
    LIBC.snprintf(buffer, ctypes.c_size_t(4096), format, *values)
    return buffer.value.decode("latin-1")


FLAGS = ("", "-", "+", " ", "#", "0", "-+", "#0", "+0", "- #0")
INTEGERS = (0, 1, -1, 12345, -(2**31), 2**31 - 1, 0x7FFF8001)
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e10, 3.14159, 1e-7, float("inf"), float("-inf"), 123456789.0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", list("diouxX"))
def test_integers_are_printed_as_c_prints_them(kind: str) -> None:
    for flags, width, precision, length in product(
        FLAGS, ("", "5", "12"), ("", ".0", ".", ".7"), ("", "l", "ll", "hh", "h")
    ):
        format = f"<%{flags}{width}{precision}{length}{kind}>".encode()
        for value in INTEGERS:
            wide = length in ("l", "ll")
            integer = (ctypes.c_longlong if wide else ctypes.c_int)(value)
            assert show(parse(format), [value & (2**64 - 1 if wide else 2**32 - 1)]) == printed_by_c(format, integer)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", list("eEfFgGaA"))
def test_floats_are_printed_as_c_prints_them(kind: str) -> None:
    for flags, width, precision in product(FLAGS, ("", "5", "14"), ("", ".0", ".", ".3", ".10")):
        format = f"<%{flags}{width}{precision}{kind}>".encode()
        for value in FLOATS:
            assert show(parse(format), [value]) == printed_by_c(format, ctypes.c_double(value))


def test_texts_characters_pointers_and_stars() -> None:
    cases = [(b"<%-8.3s|%c|%p|%5c%%>", b"hello", 65, 0x1234, 66), (b"%p|%s|%10s", 0, b"", b"right")]
    for format, *values in cases:
        passed = [v if isinstance(v, bytes) else ctypes.c_longlong(v) for v in values]
        assert show(parse(format), values) == printed_by_c(format, *passed)
    for width, precision in product((-9, 0, 9), (-1, 0, 3)):
        stars = [ctypes.c_int(width), ctypes.c_int(precision), ctypes.c_double(2.5)]
        values = [width & 0xFFFFFFFF, precision & 0xFFFFFFFF, 2.5]
        assert show(parse(b"<%*.*f>"), values) == printed_by_c(b"<%*.*f>", *stars)
    assert show(parse(b"%d of 100% %y"), [5]) == "5 of 100% %y"


def test_threads_print_in_the_order_of_ctas_and_threads() -> None:
    x, lines = GENERATOR.standard_normal(90).astype(np.float32), list[str]()
    module = load_ptx(PRINTING.read_text())
    module.launch("report", 3, 40, [x, 90], device="interp", output=lines.append)
    expected = ""
    for block in range(3):
        threads = [t for t in range(40) if block * 40 + t < 90]
        for t in threads:
            i = block * 40 + t
            expected += printed_by_c(
                b"block %d thread %2u: x = %8.3f %e|%-6s|%c|%#llx|100%%\n",
                *(ctypes.c_int(n) for n in (block, t)),
                *(ctypes.c_double(v) for v in (x[i], float(x[i]) * 1e10)),
                b"plus" if x[i] > 0 else b"minus",
                ctypes.c_int(ord("a") + i % 26),
                ctypes.c_ulonglong(1 << i % 64),
            )
        expected += "".join(f"every third: {-(block * 40 + t)}\n" for t in threads if t % 3 == 0)
        expected += "done (nil)\n"
    assert "".join(lines) == expected


def test_prints_go_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    command = ["run", str(PRINTING), "--device", "interp", "--kernel", "report", "--grid", "1", "--block", "1"]
    assert main([*command, "--arg", f"{tmp_path}/x.npy", "--arg", "i32:1"]) == 0
    assert "block 0 thread  0: x =    1.000 1.000000e+10|plus" in capsys.readouterr().out
    options = ["--arg", f"{tmp_path}/x.npy", "--arg", "i32:1", "--report", "--json"]
    assert main([*command, *options]) == 0
    captured = capsys.readouterr()
    assert "block 0" not in captured.out
    assert "block 0 thread  0" in captured.err


def test_assertions_say_what_and_where() -> None:
    module = load_ptx(PRINTING.read_text(), "printing.ptx")
    with pytest.raises(InterpreterError) as caught:
        module.launch("checked", (1, 1), (3, 4), [np.zeros(12, np.int32), 2], device="interp")
    assert str(caught.value).startswith("printing.ptx:")
    assert 'assertion `i < n && "within the array"` failed at printing.cu:16 in void checked(const int *, int)' in str(
        caught.value
    )


def test_assertions_of_several_lines_are_told_in_one() -> None:
    text = PRINTING.read_text().replace("105, 32, 60, 32, 110", "105, 10, 60, 7, 110")
    assert text != PRINTING.read_text()
    with pytest.raises(InterpreterError) as caught:
        load_ptx(text).launch("checked", 1, 12, [np.zeros(12, np.int32), 2], device="interp")
    assert r'assertion `i\n<\x07n && "within the array"` failed' in str(caught.value)


def test_assertions_and_traps_name_the_thread() -> None:
    module = load_ptx(PRINTING.read_text())
    with pytest.raises(InterpreterError, match=r"thread \(35, 0, 0\); 4 other threads fail .*warp 1, lane 3"):
        module.launch("checked", 1, 40, [np.zeros(40, np.int32), 35], device="interp")
    x = np.zeros(80, np.int32)
    x[45] = -1
    with pytest.raises(InterpreterError, match=r"executed a trap, thread \(5, 0, 0\) .*CTA \(1, 0, 0\)"):
        module.launch("checked", 2, 40, [x, 80], device="interp")


def test_what_was_printed_before_an_error_is_shown() -> None:
    lines = list[str]()
    x = np.zeros(4, np.float32)
    with pytest.raises(InterpreterError, match="out of bounds"):
        load_ptx(PRINTING.read_text()).launch("report", 2, 4, [x, 8], device="interp", output=lines.append)
    assert lines == [] or "".join(lines).startswith("block 0 thread")


def test_blocks_of_the_heap() -> None:
    sums = outputs(37, "i4")
    load_ptx(PRINTING.read_text()).launch("lists", 1, 37, [sums, 3], device="interp", checks="all")
    expected = list[int]()
    for thread in range(37):
        total = 0
        for i in reversed(range(3 + thread)):
            total = total * 31 + i * i
        expected.append((total + 2**31) % 2**32 - 2**31)
    assert sums.tolist() == expected


HEAP = """.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.global .u64 kept;"""


def heap(body: str) -> None:
    program(body, module=HEAP).launch("k", (1, 1, 1), (2, 1, 1), [])


MALLOC = "mov.u64 %rd1, 12; call (%rd2), malloc, (%rd1); "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (MALLOC + "st.u32 [%rd2+12], 1;", "at byte 12 of a block of 12 bytes from malloc"),
        (MALLOC + "call free, (%rd2); ld.u32 %r1, [%rd2];", "which is in no allocation"),
        (MALLOC + "call free, (%rd2); call free, (%rd2);", "which malloc has not given, or which is free already"),
        (MALLOC + "add.u64 %rd2, %rd2, 8; call free, (%rd2);", "which malloc has not given"),
    ],
)
def test_misuse_of_the_heap(body: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        heap(body)


def test_the_heap_ends_and_stays_from_launch_to_launch() -> None:
    out = outputs(4, "u8")
    body = """ld.param.u64 %rd5, [out]; ld.param.u64 %rd1, [n]; ld.global.u64 %rd3, [kept];
        call (%rd2), malloc, (%rd1); st.global.u64 [kept], %rd2; mov.u64 %rd4, 0; setp.ne.u64 %p1, %rd3, 0;
        @%p1 ld.u64 %rd4, [%rd3]; @%p1 call free, (%rd3); setp.ne.u64 %p2, %rd2, 0; @%p2 st.u64 [%rd2], %rd1;
        st.global.u64 [%rd5], %rd4; selp.u64 %rd4, 1, 0, %p2; st.global.u64 [%rd5+8], %rd4; mov.u64 %rd6, 0;
        call free, (%rd6);"""
    built = program(body, ".param .u64 out, .param .u64 n", module=HEAP)
    seen = list[list[int]]()
    for size in (5 << 20, 5 << 20, 4 << 20, 16, 0):
        built.launch("k", (1, 1, 1), (1, 1, 1), [out, size])
        seen.append(out[:2].tolist())
    assert seen == [[0, 1], [5 << 20, 0], [0, 1], [4 << 20, 1], [16, 0]]


def test_calls_of_the_driver_s_functions_are_checked() -> None:
    for body, message in (
        ("call (%rd2), malloc, (%rd1, %rd1);", "malloc has 1 arguments, got 2"),
        ("call free, (%r1);", "expected a register of 64 bits"),
        (".param .b32 x; call free, (x);", "expected a .param variable of 8 bytes, got one of 4"),
        (".param .b32 x; call (x), malloc, (%rd1);", "expected a .param variable of 8 bytes, got one of 4"),
        ("call other, (%rd1);", "function 'other' has no body in this module"),
    ):
        with pytest.raises(InterpreterError, match=message):
            heap(body)
