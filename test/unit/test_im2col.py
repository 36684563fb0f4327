"""Tensor copies in im2col mode against a model of their own: images inside a large array of what fills them.

The rules are those of PTX ISA 5.5.4. `test_replay.py` holds the interpreter against the words of a GPU too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import captured_pixels
import numpy as np
import pytest
from captured_pixels import PixelCase
from captured_tensors import array, inputs, kernel, tensor_map
from numpy.typing import NDArray

from warploom.dialect.isa.tensor_map import TensorMapError, TensorMapFields
from warploom.runtime import ArgumentError, PixelBox, TensorMap, WarploomError, explain, load_ptx
from warploom.runtime.interp import InterpreterError

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
MARGIN = 64
NAN = b"\xf7\x7f" * 4


def launched(case: PixelCase, text: str | None = None) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The bytes of shared memory and the tensor after a copy."""
    tensor, got = array(case), np.zeros_like(inputs(case))
    args = [tensor_map(case, tensor), inputs(case), got]
    load_ptx(HEAD + (text or kernel(case))).launch("k", (1, 1, 1), (128, 1, 1), args, device="interp")
    return got.view(np.uint8), tensor


def pixels(case: PixelCase) -> list[tuple[int, ...]]:
    """The index of the first channel of each pixel that is moved, slowest dimension first."""
    assert isinstance(case.box, PixelBox)
    steps = case.steps[1:-1] or (1,) * len(case.box.lower)
    ranges = [
        range(low, size + up, step)
        for low, up, size, step in zip(case.box.lower, case.box.upper, case.sizes[1:-1], steps, strict=True)
    ]
    places = list(product(range(case.sizes[0] + case.box.pixels), *ranges))
    first = places.index(case.start[:-1])
    by = (0, *((0,) * len(ranges) if case.store else case.offsets))
    chosen = places[first : first + case.box.pixels]
    return [(*(at + more for at, more in zip(place, by, strict=True)), case.start[-1]) for place in chosen]


def units(case: PixelCase) -> list[tuple[int, int, int]]:
    """Of each 16 bytes that are moved: their place in shared memory, the pixel, the first byte of its channels."""
    assert isinstance(case.box, PixelBox)
    row = case.box.channels * case.size
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[case.swizzle]
    boxes: list[tuple[int, int, int]] = []
    for pixel, first in product(range(case.box.pixels), range(0, row, 16)):
        address = case.at + pixel * max(row, case.swizzle) + first
        boxes.append((address ^ (address >> 7 & mask) << 4, pixel, first))
    return boxes


def surrounded(case: PixelCase, tensor: NDArray[Any], fill: bytes) -> NDArray[Any]:
    """The tensor in a large one of what fills it."""
    word = np.frombuffer(fill[: case.size], tensor.dtype)[0]
    return np.pad(tensor, [(0, MARGIN), *[(4, 4)] * (tensor.ndim - 2), (MARGIN, 2 * MARGIN)], constant_values=word)


def loaded(case: PixelCase) -> NDArray[np.uint8]:
    """What shared memory has after a load."""
    assert isinstance(case.box, PixelBox)
    base = surrounded(case, array(case), NAN if case.nan else bytes(8))
    memory = inputs(case).view(np.uint8).copy()
    columns = []
    for n, *middle, c in pixels(case):
        first = c + MARGIN
        columns.append(base[(n, *(at + 4 for at in middle))][first : first + case.box.channels].tobytes())
    for place, pixel, first in units(case):
        memory[place : place + 16] = np.frombuffer(columns[pixel][first : first + 16], np.uint8)
    return memory


def stored(case: PixelCase) -> NDArray[Any]:
    """What the tensor is after a store."""
    base, memory = surrounded(case, array(case), bytes(8)), inputs(case).view(np.uint8)
    places = pixels(case)
    for place, pixel, first in units(case):
        n, *middle, c = places[pixel]
        channel = c + first // case.size + MARGIN
        line = base[(n, *(at + 4 for at in middle))]
        line[channel : channel + 16 // case.size] = memory[place : place + 16].view(base.dtype)
    inside = [slice(0, case.sizes[0]), *(slice(4, 4 + size) for size in case.sizes[1:-1])]
    return base[(*inside, slice(MARGIN, MARGIN + case.sizes[-1]))]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", list(captured_pixels.cases()), ids=lambda case: case.name)
def test_pixels_are_those_of_the_model(case: PixelCase) -> None:
    memory, tensor = launched(case)
    if case.store:
        assert np.array_equal(tensor, stored(case))
    else:
        assert np.array_equal(memory, loaded(case))


def test_a_convolution_is_a_product_of_loaded_columns() -> None:
    """3 x 3 with padding 1 and stride 2: the columns of each place of the filter times its weights."""
    random = np.random.default_rng()
    images = random.integers(-4, 5, (2, 7, 9, 8)).astype(np.float32)
    weights = random.integers(-4, 5, (3, 3, 8, 5)).astype(np.float32)
    box = PixelBox((-1, -1), (-1, -1), 8, 2 * 4 * 5)
    total = np.zeros((40, 5), np.float32)
    for r, s in product(range(3), range(3)):
        case = PixelCase("f32", (2, 7, 9, 8), box, (0, -1, -1, 0), steps=(1, 2, 2, 1), offsets=(r, s))
        got, args = np.zeros_like(inputs(case)), [TensorMap(images, box, element_strides=case.steps), inputs(case)]
        load_ptx(HEAD + kernel(case)).launch("k", (1, 1, 1), (128, 1, 1), [*args, got], device="interp")
        total += got.view(np.float32)[:320].reshape(40, 8) @ weights[r, s]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.stack([
        np.tensordot(padded[n, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3], weights, 3)
        for n, y, x in product(range(2), range(4), range(5))
    ])  # fmt: skip
    assert np.array_equal(total, expected)


SMALL = PixelCase("f16", (3, 7, 6, 24), PixelBox((0, -1), (0, 0), 8, 16), (0, 0, 0, 0), offsets=(0, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{0, 0, 0, 0}", "{0, 6, 0, 0}", "coordinate 1 is outside of the bounding box .*: 6, expected -1 to 5"),
        ("{0, 0, 0, 0}", "{4, 0, 0, 0}", "the box begins 8 bytes along the fastest dimension"),
        ("{1, 0}", "{256, 0}", "expected an im2col offset of 0 to 255 for 4 dimensions, got 256"),
        (".im2col.", ".tile.", "the copy is one of tile mode, the tensor map of im2col mode"),
        (".4d.", ".3d.", "the tensor map has 4 dimensions, the copy 3"),
    ],
)  # fmt: skip
def test_copies_that_no_map_allows(old: str, new: str, message: str) -> None:
    text = kernel(SMALL)
    if "tile" in new:
        text = text.replace(", {1, 0};", ";")
    if "3d" in new:
        text = text.replace("{0, 0, 0, 0}", "{0, 0, 0}").replace("{1, 0}", "{1}")
    assert old in text or "3d" in new
    with pytest.raises(InterpreterError, match=message):
        launched(SMALL, text.replace(old, new))


def test_a_map_of_tile_mode_takes_no_pixels() -> None:
    flat = TensorMap(array(SMALL), (1, 1, 16, 8))
    with pytest.raises(InterpreterError, match="the copy is one of im2col mode, the tensor map of tile mode"):
        load_ptx(HEAD + kernel(SMALL)).launch(
            "k", (1, 1, 1), (128, 1, 1), [flat, inputs(SMALL), inputs(SMALL)], device="interp"
        )


def test_a_store_at_a_negative_coordinate() -> None:
    case = PixelCase("f16", (3, 7, 6, 24), PixelBox((0, -1), (0, 0), 8, 16), (0, 0, -1, 0), store="store")
    with pytest.raises(WarploomError, match="a store begins at the negative coordinate -1"):
        launched(case)


def test_a_store_of_pixels_beside_the_image() -> None:
    case = PixelCase("f16", (3, 7, 6, 24), PixelBox((0, 0), (0, 1), 8, 16), (0, 0, 0, 0), store="store")
    with pytest.raises(WarploomError, match="a store has pixels beside the image: an illegal instruction on the GPU"):
        launched(case)
    launched(replace(case, box=PixelBox((0, 0), (0, 1), 8, 2)))


@pytest.mark.parametrize(
    ("box", "more", "message"),
    [
        (PixelBox((0,), (0, 0), 8, 16), {}, "lower: expected 2 numbers for 4 dimensions, got 1"),
        (PixelBox((0, 0), (0, 128), 8, 16), {}, "upper: expected -128 to 127 along dimension 1, got 128"),
        (PixelBox((0, 0), (0, 0), 512, 16), {}, "channels: expected 1 to 256, got 512"),
        (PixelBox((0, 0), (0, 0), 8, 1025), {}, "pixels: expected 1 to 1024, got 1025"),
        (PixelBox((0, 0), (0, -6), 8, 16), {}, "the bounding box is empty along dimension 1: it goes from 0 to -1"),
        (PixelBox((0, 0), (0, 0), 4, 16), {}, "a multiple of 16 bytes along the fastest dimension, got 4 elements"),
        (PixelBox((0, 0), (0, 0), 64, 16), {"swizzle": 64}, "expected at most 64 bytes along the fastest dimension"),
        (PixelBox((0, 0), (0, 0), 8, 16), {"element_strides": (1, 9, 1, 1)}, "steps: expected 1 to 8 .* 2, got 9"),
    ],
)  # fmt: skip
def test_the_limits_of_the_driver(box: PixelBox, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        TensorMap(array(SMALL), box, **more)


def test_a_tensor_of_two_dimensions_has_no_pixels() -> None:
    with pytest.raises(ArgumentError, match="pixels are those of tensors with 3 to 5 dimensions, got 2"):
        TensorMap(np.zeros((8, 16), np.float16), PixelBox((), (), 8, 16))


@pytest.mark.parametrize("case", list(captured_pixels.map_cases())[::7], ids=lambda case: case.name)
def test_bytes_say_what_they_were_made_of(case: captured_pixels.MapCase) -> None:
    fields = tensor_map(case, np.zeros(case.sizes, np.uint16)).fields(0)
    assert TensorMapFields.decode(fields.encode()) == fields


def test_a_map_is_explained() -> None:
    told = explain(tensor_map(SMALL, array(SMALL)).fields(0x1000).encode()).splitlines()
    assert "  pixels     16 of 8 channels each, im2col mode" in told
    assert "  bounds     -1..5 x 0..6" in told
    assert "  moves      256 bytes: what an mbarrier is to expect" in told


def test_bits_that_no_pixels_have() -> None:
    data = bytearray(TensorMap(np.zeros((8, 16), np.float16), (8, 16)).fields(0).encode())
    data[63] = 0x80
    with pytest.raises(TensorMapError, match="pixels are those of tensors with 3 to 5 dimensions, got 2"):
        TensorMapFields.decode(bytes(data))
