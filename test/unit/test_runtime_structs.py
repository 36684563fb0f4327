"""Structs passed by value, with pointers in them: tuples, bytes, numpy records, ctypes; on the command line too."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.ptx.text.syntax import Function, Variable
from warploom.runtime import Struct, load_ptx
from warploom.runtime.arguments.arrays import Argument
from warploom.runtime.arguments.launch_values import Packed, values
from warploom.runtime.arguments.structs import image
from warploom.runtime.base.errors import ArgumentError
from warploom.runtime.cli.command import main
from warploom.runtime.interp import InterpreterError

STRUCTS = (Path(__file__).parents[1] / "data/kernels/structs.ptx").read_text()
N, STRIDE, SCALE = 77, 3, 1.0 / 3.0
GENERATOR = np.random.default_rng(8)

RECORD = np.dtype(
    [("n", "i4"), ("x", np.dtype([("data", "u8"), ("stride", "i4")], align=True)), ("scale", "f8"), ("bias", "f4", 3)],
    align=True,
)


class View(ctypes.Structure):
    _fields_: ClassVar = [("data", ctypes.c_void_p), ("stride", ctypes.c_int)]


class Parameters(ctypes.Structure):
    _fields_: ClassVar = [("n", ctypes.c_int), ("x", View), ("scale", ctypes.c_double), ("bias", ctypes.c_float * 3)]


Array = NDArray[Any]


def as_tuple(x: Array, bias: Array) -> object:
    return np.int32(N), (x, np.int32(STRIDE)), np.float64(SCALE), tuple(bias)


def as_record(x: Array, bias: Array) -> object:
    return Struct(np.array((N, (0, STRIDE), SCALE, bias), RECORD), {"x.data": x})


def as_scalar_record(x: Array, bias: Array) -> object:
    return Struct(np.array([(N, (0, STRIDE), SCALE, bias)], RECORD)[0], {8: x})


def as_ctypes(x: Array, bias: Array) -> object:
    return Struct(Parameters(N, View(None, STRIDE), SCALE, (ctypes.c_float * 3)(*bias)), {"x.data": x})


def as_bytes(x: Array, bias: Array) -> object:
    return Struct(np.array((N, (2**64 - 1, STRIDE), SCALE, bias), RECORD).tobytes(), {8: x})


@pytest.mark.parametrize("make", [as_tuple, as_record, as_scalar_record, as_ctypes, as_bytes])
@pytest.mark.parametrize("alone", [lambda out: out, lambda out: (out,), lambda out: Struct(bytes(8), {0: out})])
def test_structs_with_pointers(make: Callable[[Array, Array], object], alone: Callable[[Array], object]) -> None:
    x = GENERATOR.standard_normal(N * STRIDE).astype(np.float32)
    bias = GENERATOR.standard_normal(3).astype(np.float32)
    out = np.full(N + 5, np.nan, np.float32)
    load_ptx(STRUCTS).launch("affine", 3, 32, [make(x, bias), alone(out)], device="interp")
    expected = (x[::STRIDE].astype(np.float64) * SCALE).astype(np.float32) + bias[np.arange(N) % 3]
    np.testing.assert_array_equal(out[:N], expected)
    assert np.isnan(out[N:]).all()


def test_one_array_in_two_places_is_one_array() -> None:
    x = GENERATOR.standard_normal(N).astype(np.float32)
    expected = (x.astype(np.float64) * 2).astype(np.float32)
    fields = (np.int32(N), (x, np.int32(1)), np.float64(2), np.zeros(1, "f4,f4,f4")[0])
    load_ptx(STRUCTS).launch("affine", 3, 32, [fields, x], device="interp")
    np.testing.assert_array_equal(x, expected)


def test_a_pointer_that_leaves_its_array_names_the_argument() -> None:
    x = np.zeros(4, np.float32)
    fields = (np.int32(N), (x, np.int32(1)), np.float64(2), np.zeros(1, "f4,f4,f4")[0])
    with pytest.raises(InterpreterError, match=r"of argument 0 \(affine_param_0, 4 float32\)"):
        load_ptx(STRUCTS).launch("affine", 3, 32, [fields, np.zeros(N, np.float32)], device="interp")


def kernel(size: int, type: str = "b8") -> Function:
    return Function("k", True, (Variable("param", type, "p", count=size, align=8),), ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((np.int8(-1), np.int16(2), np.int32(3), (np.int8(4),)), "ff00020003000000" + "04000000"),
        ((np.float16(1), ctypes.c_double(2)), "003c000000000000" + "0000000000000040"),
        (b"12345678", "3132333435363738"),
        (bytearray(b"12345678"), "3132333435363738"),
        (np.int64(-2), "feffffffffffffff"),
        ((ctypes.c_uint8 * 8)(*range(8)), "0001020304050607"),
        (np.arange(8, dtype=np.uint8), "0001020304050607"),
        (np.array((1, 2.0), "u4,f4"), "0100000000000040"),
    ],
)
def test_bytes_of_structs_without_pointers(value: object, expected: str) -> None:
    (array,) = values(kernel(len(expected) // 2), [value])
    assert isinstance(array, bytes)
    assert array.hex() == expected


def test_arrays_behind_structs_are_borrowed() -> None:
    a, b = np.zeros(4), np.ones(3, np.int16)
    packed, first, second = values(kernel(24), [(a, np.int32(7), b)])
    assert isinstance(packed, Packed)
    assert packed.pointers == ((0, 1), (16, 2))
    assert [x.address for x in (first, second) if isinstance(x, Argument)] == [a.ctypes.data, b.ctypes.data]
    assert packed.filled(lambda at: at * 256).hex() == "0001000000000000" + "0700000000000000" + "0002000000000000"


def test_vectors_of_words_take_arrays_of_their_type() -> None:
    (array,) = values(kernel(2, "f64"), [np.array([1.0, 2.0])])
    assert array == np.array([1.0, 2.0]).tobytes()


@pytest.mark.parametrize(
    ("size", "value", "message"),
    [
        (
            16,
            np.zeros(9),
            r"argument 0 \(.align 8 .b8 p\[16\]\): expected 16 bytes, got the array 9xf64; pass",
        ),
        (16, 5, "expected 16 bytes, got int 5; pass a struct: a tuple of its fields"),
        (16, (np.zeros(9), 5), "a field 5 has no width; write numpy.int32"),
        (16, (np.zeros(9), "x"), r"expected a field of a struct \(an array, a number of numpy, bytes\), got str"),
        (16, (np.zeros(9),), "expected 16 bytes, got 8 with pointers at byte 0"),
        (16, b"12", "expected 16 bytes, got 2; "),
        (8, (np.zeros((4, 4))[:, ::2],), "4x2xf64 has gaps"),
        (8, Struct(bytes(8), {4: np.zeros(1)}), "a pointer at byte 4 does not lie in the 8 bytes of the struct"),
        (8, Struct(bytes(8), {0: 3}), "expected an array, a tensor map or a struct for the pointer 0, got int"),
        (8, Struct(bytes(8), {"x": np.zeros(1)}), "bytes has no field 'x'; name one, or its offset"),
        (48, Struct(Parameters(), {"x.y": np.zeros(1)}), "Parameters has no field 'x.y'"),
        (48, Struct(np.zeros((), RECORD), {"n": np.zeros(1)}), "the field 'n' has 4 bytes, a pointer has 8"),
        (48, Struct(Parameters(), {"n": np.zeros(1)}), "the field 'n' has 4 bytes, a pointer has 8"),
        (8, np.array((None,), [("p", "O")]), "holds Python objects; make its pointers 'u8' fields"),
    ],
)
def test_structs_that_do_not_fit(size: int, value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        values(kernel(size), [value])


def test_numbers_of_ctypes_are_numbers() -> None:
    function = Function("k", True, (Variable("param", "s32", "n"), Variable("param", "f32", "a")), ())
    assert values(function, [ctypes.c_int(-3), ctypes.c_float(1.5)]) == [-3, 1.5]


def test_tuples_are_laid_out_as_c_does() -> None:
    class Fields(ctypes.Structure):
        _fields_: ClassVar = [("a", ctypes.c_int8), ("b", View), ("c", ctypes.c_int16), ("d", ctypes.c_float * 2)]

    fields = (np.int8(5), (np.uint64(77), np.int32(6)), np.int16(7), (np.float32(1), np.float32(2)))
    expected = Fields(5, View(77, 6), 7, (ctypes.c_float * 2)(1, 2))
    assert image(fields).data == bytes(expected)
    assert image(fields).alignment == ctypes.alignment(Fields)


# The command line


def command(tmp_path: Path, *options: str) -> int:
    path = tmp_path / "structs.ptx"
    path.write_text(STRUCTS)
    return main(["run", str(path), "--device", "interp", "--grid", "3", "--block", "32", *options])


def test_structs_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = GENERATOR.standard_normal(N).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    fields = f"{{i32:{N}, {{{tmp_path}/x.npy, i32:1}}, f64:3, hex:0000803f, f32:2, f32:-1}}"
    code = command(tmp_path, "--arg", fields, "--arg", "{zeros:f32:80}", "--out", f"1.0={tmp_path}/y.npy")
    assert code == 0
    bias = np.array([1, 2, -1], np.float32)[np.arange(N) % 3]
    expected = (x.astype(np.float64) * 3).astype(np.float32) + bias
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [*expected, 0, 0, 0])
    printed = capsys.readouterr().out
    assert "affine_param_0.1.0: 77xf32" in printed
    assert "affine_param_1.0 to" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arg", "{i32:1", "--arg", "{zeros:f32:80}"], "argument 0: cannot read '{i32:1'"),
        (["--arg", "hex:123", "--arg", "{zeros:f32:80}"], "argument 0: cannot read 'hex:123'|unknown type 'hex'"),
        (["--arg", "{i32:1}", "--arg", "{zeros:f32:80}"], r"expected 48 bytes, got 4"),
        (["--arg", "{i32:1}", "--arg", "{zeros:f32:80}", "--out", "1.1=y.npy"], "--out: argument 1.1 is no array"),
        (["--arg", "{i32:1}", "--arg", "{zeros:f32:80}", "--out", "1.x=y.npy"], "expected the number of a field"),
    ],
)
def test_structs_that_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert command(tmp_path, *options) == 1
    assert re.search(message, capsys.readouterr().err)
