"""Tensor copies in im2col mode for recording, and the bytes of the tensor maps that they take.

What an instruction of a case changes is taken as for other tensor copies; a map case gives back the bytes of its map,
of which each case changes one field: those that differ say where the driver puts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from captured import Random
from captured_tensors import AT, TensorCase, array, tensor_map
from numpy.typing import NDArray

from warploom.dialect.isa.tensor_map import SIZE
from warploom.runtime import PixelBox


@dataclass(frozen=True)
class PixelCase(TensorCase):
    """A copy of pixels; `offsets` are slowest dimension first, as all else."""

    offsets: tuple[int, ...] = ()

    @property
    def mode(self) -> str:
        return "im2col_no_offs" if self.store else "im2col"

    @property
    def more(self) -> str:
        return f", {{{', '.join(map(str, reversed(self.offsets)))}}}"


_SIZES = {3: (3, 11, 40), 4: (3, 7, 6, 24), 5: (2, 4, 3, 5, 24)}
_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")
_FLOATS = ("f16", "f32", "f64", "bf16")


def cases() -> Iterator[PixelCase]:
    """Every rank, type, swizzle and fill; columns inside an image, over its edges, over several, and past the last."""
    random = Random("pixels of tensors")

    def pick(low: int, high: int) -> int:
        return low + int(random.below((1,), high - low + 1)[0])

    for rank, turn in ((rank, turn) for rank in (3, 4, 5) for turn in range(20)):
        type = _TYPES[(turn + rank) % len(_TYPES)]
        store = ("", "", "", "store")[turn % 4]
        sizes, size = _SIZES[rank], TensorCase(type, (), (), ()).size
        swizzle, unit = (0, 32, 64, 128)[pick(0, 3)], 16 // size
        lower = tuple(pick(0 if store else -2, 1) for _ in sizes[1:-1])
        upper = tuple(pick(-1, 2) for _ in sizes[1:-1])
        steps = tuple(pick(1, 2) if turn % 3 == 2 else 1 for _ in sizes[1:-1])
        channels = unit * pick(1, (swizzle or 64) // 16)
        box = PixelBox(lower, upper, channels, pick(1, 50))
        places = zip(lower, upper, sizes[1:-1], steps, strict=True)
        corner = [low + step * pick(0, (size - 1 + up - low) // step) for low, up, size, step in places]
        channel = unit * pick(0 if store else -1, sizes[-1] // unit)
        start = (pick(0, sizes[0] - 1), *corner, channel)
        fill = type in _FLOATS and not store and turn % 2 == 0
        case = PixelCase(
            type, sizes, box, start, swizzle, (1, *steps, 1) if turn % 3 == 2 else (), fill, AT[pick(0, 3)],
            16 * pick(0, 2), store, tuple(pick(0, 2) for _ in corner),
        )  # fmt: skip
        if not store or max(upper) <= 0:  # A store of pixels beside the image is an illegal instruction on an H200.
            yield case


class MapCase(TensorCase):
    """A map of which the bytes are recorded."""


_LARGE = {3: (1, 40000, 8), 4: (1, 200, 200, 8), 5: (1, 40, 40, 40, 8)}


def map_cases() -> Iterator[MapCase]:
    """Maps that differ from the first of their rank in one field, and of the corners in one bit of it."""
    for rank, sizes in _LARGE.items():
        flat = PixelBox((0,) * (rank - 2), (0,) * (rank - 2), 8, 16)
        plain = MapCase("f16", sizes, flat, (0,) * rank)
        yield plain
        for corner, axis, bit in product(("lower", "upper"), range(rank - 2), range({3: 16, 4: 8, 5: 5}[rank])):
            at = tuple(-1 << bit if i == axis else 0 for i in range(rank - 2))
            yield replace(plain, box=PixelBox(**{**vars(flat), corner: at}))
        for channels in (16, 32, 64, 128, 256):
            yield replace(plain, box=replace(flat, channels=channels))
        for pixels in (1, *(1 << bit for bit in range(1, 11))):
            yield replace(plain, box=replace(flat, pixels=pixels))
        for axis in range(rank):
            yield replace(plain, steps=tuple(2 if i == axis else 1 for i in range(rank)))


def map_bytes(case: MapCase, launch: Any) -> NDArray[Any]:
    """The bytes of a map, but for the address, by `launch(text, arguments)`."""
    moves = "\n".join(f"ld.param.b32 %x, [map+{i}]; st.global.b32 [%out+{i}], %x;" for i in range(8, SIZE, 4))
    text = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[{SIZE}], .param .u64 answers)
{{
    .reg .b32 %t, %x; .reg .b64 %out; .reg .pred %other;
    mov.u32 %t, %tid.x; setp.ne.u32 %other, %t, 0; @%other bra END;
    ld.param.u64 %out, [answers];
    {moves}
END: ret;
}}
"""
    got = np.zeros(SIZE, np.uint8)
    launch(text, [tensor_map(case, array(case)), got])
    return got
