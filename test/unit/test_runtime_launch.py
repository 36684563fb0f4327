"""Launches as data: sizes, scalars and pointers in the words a kernel expects."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from warploom.dialect.ptx.text.syntax import Function, Variable
from warploom.runtime.arguments.arrays import Argument
from warploom.runtime.arguments.launch_values import Scalar, alignment, check_alignment, pack, parameter_dtype, values
from warploom.runtime.base.errors import ArgumentError
from warploom.runtime.base.launch import Launch, dim3


def parameter(kind: str, count: int | None = None, pointer: str = "") -> Variable:
    return Variable("param", kind, "p", count=count, pointer=pointer)


def kernel(*kinds: str) -> Function:
    return Function("k", True, tuple(parameter(kind) for kind in kinds), ())


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("u32", 5, "05000000"),
        ("s32", -1, "ffffffff"),
        ("u64", 2**64 - 1, "ff" * 8),
        ("b16", np.float16(1.0), "003c"),
        ("b32", np.float32(1.0), "0000803f"),
        ("f32", 1.5, "0000c03f"),
        ("f64", 2, "0000000000000040"),
        ("bf16", 1.0, "803f"),
        ("u8", np.int64(7), "07"),
        ("f16", ml_dtypes.bfloat16(1.0), "003c"),
    ],
)
def test_scalars_become_words(kind: str, value: Scalar, expected: str) -> None:
    assert pack(parameter(kind), value).hex() == expected


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("u32", 2**32, "expected an integer of 32 bits, got 4294967296"),
        ("s8", -129, "expected an integer of 8 bits"),
        ("u32", 1.5, "expected an integer of 32 bits, got float 1.5"),
        ("f32", b"abcd", "expected a number, got 4 bytes"),
        ("pred", 1, "nothing can be passed as .pred"),
    ],
)
def test_scalars_that_do_not_fit(kind: str, value: Scalar, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        pack(parameter(kind), value)


def test_array_parameters_take_exactly_their_bytes() -> None:
    assert pack(parameter("b8", 4), b"abcd") == b"abcd"
    with pytest.raises(ArgumentError, match=r"expected 4 bytes, got 3; pass a struct"):
        pack(parameter("b8", 4), b"abc")
    with pytest.raises(ArgumentError, match="expected 4 bytes, got int 7"):
        pack(parameter("b8", 4), 7)


def test_arrays_are_pointers_and_array_parameters_are_not() -> None:
    function = Function("k", True, (parameter("u64"), parameter("b8", 8)), ())
    pointer, block = values(function, [np.zeros(4), np.arange(8, dtype=np.uint8)])
    assert isinstance(pointer, Argument)
    assert block == bytes(range(8))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            [1],
            r"kernel k: expected 2 arguments \(.u64 p, .f32 p\), got 1; missing: argument 1 \(.f32 p\); given: int 1",
        ),
        (
            [np.zeros(3), np.zeros(3)],
            r"k: argument 1 \(.f32 p\): expected a scalar, got the array 3xf64; pointers are 64-bit",
        ),
        ([np.zeros(8)[::2], 1.0], r"argument 0 \(.u64 p\): 4xf64 has gaps"),
        ([0, "x"], r"argument 1 \(.f32 p\): expected a number, got 'x'"),
    ],
)
def test_arguments_that_do_not_fit(args: list[object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        values(kernel("u64", "f32"), args)


def test_dim3() -> None:
    assert dim3(4, "grid") == (4, 1, 1)
    assert dim3((2, 3), "grid") == (2, 3, 1)
    for bad in ((), (1, 2, 3, 4), (1.5,), "x"):
        with pytest.raises(ArgumentError, match="expected grid to be one to three integers"):
            dim3(bad, "grid")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((0, 1, 1), (1, 1, 1), 0, "expected grid from"),
        ((1, 65536, 1), (1, 1, 1), 0, "expected grid from"),
        ((1, 1, 1), (1, 1, 65), 0, "expected block from"),
        ((1, 1, 1), (64, 32, 1), 0, "a block has at most 1024 threads, got 2048"),
        ((1, 1, 1), (1, 1, 1), -1, "expected bytes of shared memory from 0 on, got -1"),
    ],
)
def test_impossible_launches(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        Launch("k", grid, block, shared, ())


def test_alignment_comes_from_the_pointer_attributes() -> None:
    aligned = parameter("u64", pointer=".ptr .global .align 16")
    assert (alignment(aligned), alignment(parameter("u64"))) == (16, 1)
    check_alignment(aligned, 4096, 0, 16)
    with pytest.raises(
        ArgumentError, match=r"argument 0 \(.u64 p\): expected an address that is a multiple of 16, got 0x1004"
    ):
        check_alignment(aligned, 4100, 0, 16)


def test_parameter_types() -> None:
    assert parameter_dtype(parameter("u64")) == np.uint64
    assert parameter_dtype(parameter("bf16")) == ml_dtypes.bfloat16
