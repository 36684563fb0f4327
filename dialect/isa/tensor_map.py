"""The tensor map: 128 bytes that describe a tensor to `cp.async.bulk.tensor`, and what `tensormap.replace` edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from .wgmma import UNIT

# What a tensor map in im2col mode has in the place of a box: PTX ISA 5.5.4.
#
# The tensor is a batch of images of channels: dimension 0 is C, the last N, and between them are W, then H and D where
# there are so many. Pixels are numbered along W, H, D and N, as a convolution numbers the places of its filter.

MAX_CHANNELS, MAX_PIXELS = 256, 1024

_BITS = {3: 16, 4: 8, 5: 5}
"""Of a corner of the bounding box along one dimension, and of an offset, by the rank of the tensor."""


@dataclass(frozen=True)
class PixelBox:
    """The box of a tensor map in im2col mode. A copy moves `pixels` pixels, and `channels` elements of each. The corner
    of the filter starts at the coordinates of the copy and moves from pixel to pixel within a bounding box. Along each
    dimension between C and N the box goes from `lower` to the last index of the tensor plus `upper`, both included.
    Each pixel is the corner plus the offsets of the copy."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int

    def reversed(self) -> PixelBox:
        """The same box with its dimensions in reverse order."""
        return PixelBox(tuple(self.lower[::-1]), tuple(self.upper[::-1]), self.channels, self.pixels)

    def problem(self, sizes: tuple[int, ...]) -> str | None:
        """The reason why a map of a tensor of these sizes, fastest dimension first, cannot have this box; None if it
        can."""
        rank = len(sizes)
        if rank not in _BITS:
            return f"pixels are those of tensors with 3 to 5 dimensions, got {rank}"
        least, largest = -1 << _BITS[rank] - 1, (1 << _BITS[rank] - 1) - 1
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if len(corner) != rank - 2:
                return f"{name}: expected {rank - 2} numbers for {rank} dimensions, got {len(corner)}"
            for axis, value in enumerate(corner, 1):
                if not least <= value <= largest:
                    return f"{name}: expected {least} to {largest} along dimension {axis}, got {value}"
        for name, value, limit in (("channels", self.channels, MAX_CHANNELS), ("pixels", self.pixels, MAX_PIXELS)):
            if not 1 <= value <= limit:
                return f"{name}: expected 1 to {limit}, got {value}"
        for axis, (first, last) in enumerate(zip(self.lower, self.last(sizes), strict=True), 1):
            if first > last:
                return f"the bounding box is empty along dimension {axis}: it goes from {first} to {last}"
        return None

    def last(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The last position of the filter's corner along each dimension between C and N."""
        return tuple(size - 1 + by for size, by in zip(sizes[1:-1], self.upper, strict=True))

    def corners(
        self, sizes: tuple[int, ...], steps: tuple[int, ...], start: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        """The position of the filter's corner for each pixel, from W to N, in a tensor of these sizes. The corner
        begins at `start`, which lies in the bounding box, and moves by `steps` elements along W, H and D."""
        at, last = list(start), self.last(sizes)
        for _ in range(self.pixels):
            yield tuple(at)
            for axis, (first, end, step) in enumerate(zip(self.lower, last, steps[1:-1], strict=True)):
                at[axis] += step
                if at[axis] <= end:
                    break
                at[axis] = first
            else:
                at[-1] += 1

    # Bits

    def encode_corners(self) -> int:
        """Both corners in 32 bits. The lowest bits hold the fastest dimension of the lower corner."""
        bits = _BITS[len(self.lower) + 2]
        return sum((v & (1 << bits) - 1) << bits * i for i, v in enumerate((*self.lower, *self.upper)))

    @staticmethod
    def decode(rank: int, corners: int, channels: int, pixels: int) -> PixelBox:
        """The box of a tensor of this rank whose corners are encoded in these bits."""
        bits = _BITS[rank]
        fields = [corners >> bits * i & (1 << bits) - 1 for i in range(2 * (rank - 2))]
        signed = [field - (field >> bits - 1 << bits) for field in fields]
        return PixelBox(tuple(signed[: rank - 2]), tuple(signed[rank - 2 :]), channels, pixels)


def max_offset(rank: int) -> int:
    """The largest offset of a copy from a tensor of a rank."""
    return (1 << _BITS[rank]) - 1


# The tensor map: what `cp.async.bulk.tensor` knows of a tensor, in 128 bytes.
#
# PTX calls the bytes opaque; `tensormap.replace` writes their fields in place, which shows where they are. Nothing
# shows where a driver puts those of im2col mode: their places are our own. Dimensions are in PTX's order, fastest
# first. Source: PTX ISA 5.5.4 (im2col mode), 5.5.8 (Tensor Map), 9.7.9.27 (tensormap.replace); CUDA driver API,
# cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.

SIZE = 128
"""Bytes of a map."""

MAP_ALIGNMENT = 64
"""Bytes that addresses of maps are multiples of."""

SWIZZLES = (0, 32, 64, 128)
"""Bytes within which units change places, by code."""

INTERLEAVES = (0, 16, 32)
"""Bytes of a channel group, by code."""

MAX_BOX, MAX_STEP, MAX_RANK = 256, 8, 5
_MAX_DIM, _MAX_STRIDE = 1 << 32, 1 << 40

_IM2COL = 1 << 31
"""In the word of the number of pixels, that the map is one of im2col mode."""


EXPANDED, EXPANDED_UNIT = 128, 32
"""Elements of less than a byte that a row of a box has, and a row of the tensor a multiple of; bytes that addresses and
strides are multiples of. 9.7.9.25.5.1"""


class Element(NamedTuple):
    """An element type: its code in the map, its bytes, its name in the driver's API, and whether it is tf32. Of types
    of less than a byte 16 elements are copied `together`, which make `size` bytes."""

    name: str
    code: int
    size: int
    driver: str
    rounded: bool = False
    together: int = 1

    @property
    def is_float(self) -> bool:
        return self.together == 1 and self.name[0] in "fbt"

    @property
    def shared(self) -> int:
        """Bytes of shared memory that elements take that are copied together."""
        return UNIT if self.expands else self.size

    @property
    def expands(self) -> bool:
        """Whether a copy to shared memory adds padding."""
        return self.name.endswith(("_p64", "_p32"))


ELEMENTS = (
    Element("u8", 0, 1, "UINT8"),
    Element("u16", 1, 2, "UINT16"),
    Element("u32", 2, 4, "UINT32"),
    Element("s32", 3, 4, "INT32"),
    Element("u64", 4, 8, "UINT64"),
    Element("s64", 5, 8, "INT64"),
    Element("f16", 6, 2, "FLOAT16"),
    Element("f32", 7, 4, "FLOAT32"),
    Element("f32.ftz", 8, 4, "FLOAT32_FTZ"),
    Element("f64", 9, 8, "FLOAT64"),
    Element("bf16", 10, 2, "BFLOAT16"),
    Element("tf32", 7, 4, "TFLOAT32", rounded=True),
    Element("tf32.ftz", 8, 4, "TFLOAT32_FTZ", rounded=True),
    Element("b4x16", 13, 8, "16U4_ALIGN8B", together=16),
    Element("b4x16_p64", 14, 8, "16U4_ALIGN16B", together=16),
    Element("b6x16_p32", 15, 12, "16U6_ALIGN16B", together=16),
)
"""In the order of `tensormap.replace`. Codes of types of less than a byte are our own: nothing shows the driver's."""


class TensorMapError(ValueError):
    """A tensor map that cannot be encoded. The message names the field, the expected value and the actual one."""


@dataclass(frozen=True)
class TensorMapFields:
    """The fields of a tensor map. The map is one of im2col mode if its box is a `PixelBox`.

    `address` is the address of the tensor. `sizes` and `box` count elements. `strides` has the bytes between neighbours
    along dimension 1 and the following dimensions. Along dimension i, every `steps[i]`-th element of the box is copied.
    Elements outside the tensor are read as zero or, with `nan_fill`, as a NaN.

    Raises:
        TensorMapError: if `cuTensorMapEncodeTiled`, or `cuTensorMapEncodeIm2col`, would refuse the map.
    """

    address: int
    element: Element
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | PixelBox
    steps: tuple[int, ...]
    swizzle: int = 0
    interleave: int = 0
    nan_fill: bool = False

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        if not 1 <= rank <= MAX_RANK:
            raise TensorMapError(f"expected 1 to {MAX_RANK} dimensions, got {rank}")
        for name, values, count in (("strides", self.strides, rank - 1), ("steps", self.steps, rank)):
            self._check_count(name, values, count)
        self._check_range("sizes", self.sizes, _MAX_DIM)
        self._check_box()
        self._check_range("steps", self.steps, MAX_STEP)
        self._check_alignment()
        self._check_swizzle()
        if self.nan_fill and not self.element.is_float:
            raise TensorMapError(f"only floating-point types are filled with NaN, got {self.element.name}")

    def _check_count(self, name: str, values: Sequence[int], count: int) -> None:
        if len(values) != count:
            raise TensorMapError(
                f"{name}: expected {count} numbers for {len(self.sizes)} dimensions, got {len(values)}"
            )

    def _check_box(self) -> None:
        if isinstance(self.box, PixelBox):
            if problem := self.box.problem(self.sizes):
                raise TensorMapError(problem)
            return
        self._check_count("box", self.box, len(self.sizes))
        self._check_range("box", self.box, MAX_BOX)

    def _check_range(self, name: str, values: Sequence[int], largest: int) -> None:
        for i, value in enumerate(values):
            if not 1 <= value <= largest:
                raise TensorMapError(f"{name}: expected 1 to {largest} along dimension {i}, got {value}")

    def _check_alignment(self) -> None:
        unit = EXPANDED_UNIT if self.interleave == 32 or self.element.expands else UNIT
        if self.address % unit:
            raise TensorMapError(f"address: expected a multiple of {unit} bytes, got {self.address:#x}")
        for i, stride in enumerate(self.strides, 1):
            if stride % unit or not 0 <= stride < _MAX_STRIDE:
                raise TensorMapError(
                    f"strides: expected a multiple of {unit} bytes below 2^40 along dimension {i}, got {stride}"
                )

    def _check_swizzle(self) -> None:
        inner = self.inner * self.element.shared // self.element.together
        if self.element.expands:
            self._check_expanded()
        if self.interleave not in INTERLEAVES or self.swizzle not in SWIZZLES:
            raise TensorMapError(
                f"expected an interleave of 0, 16 or 32 bytes and a swizzle of 0, 32, 64 or 128 bytes, got "
                f"{self.interleave} and {self.swizzle}"
            )
        if self.interleave:
            if len(self.sizes) < 3:
                raise TensorMapError(f"an interleaved tensor has 3 dimensions or more, got {len(self.sizes)}")
            if self.interleave == 32 and self.swizzle != 32:
                raise TensorMapError(f"an interleave of 32 bytes takes a swizzle of 32 bytes, got {self.swizzle}")
            return
        if inner % UNIT:
            raise TensorMapError(
                f"box: expected a multiple of {UNIT} bytes along the fastest dimension, got {self.inner} elements of "
                f"{self.element.size} bytes; {-(-inner // UNIT) * UNIT // self.element.size} elements fit"
            )
        if self.swizzle and inner > self.swizzle:
            raise TensorMapError(
                f"box: expected at most {self.swizzle} bytes along the fastest dimension, as the swizzle says, got "
                f"{inner}; {self.swizzle // self.element.size} elements fit"
            )

    def _check_expanded(self) -> None:
        if self.inner != EXPANDED or self.sizes[0] % EXPANDED:
            raise TensorMapError(
                f"{self.element.name}: expected a box of {EXPANDED} elements, of a tensor of a multiple of them, along "
                f"the fastest dimension, got {self.inner} and {self.sizes[0]}"
            )
        if self.swizzle not in (0, SWIZZLES[-1]) or self.interleave:
            raise TensorMapError(
                f"{self.element.name}: expected no interleave, and a swizzle of {SWIZZLES[-1]} bytes or none, got "
                f"{self.interleave} and {self.swizzle}"
            )

    @property
    def inner(self) -> int:
        """Elements of the box along the fastest dimension."""
        return self.box.channels if isinstance(self.box, PixelBox) else self.box[0]

    @property
    def copied(self) -> tuple[int, ...]:
        """How many elements of the box, or of what is copied together, are copied along each dimension, or the channels
        and pixels. Steps along the fastest dimension count only if the tensor is interleaved."""
        together = self.element.together
        if isinstance(self.box, PixelBox):
            return self.box.channels // together, self.box.pixels
        steps = self.steps if self.interleave else (1, *self.steps[1:])
        first, *others = (-(-n // step) for n, step in zip(self.box, steps, strict=True))
        return first // together, *others

    @property
    def pitch(self) -> int:
        """Bytes between rows in shared memory: those of a row, but no less than the swizzle."""
        return max(self.copied[0] * self.element.shared, self.swizzle)

    @property
    def extent(self) -> int:
        """Bytes of shared memory from the first row to the end of the last."""
        row = self.copied[0] * self.element.shared
        return (prod(self.copied[1:]) - 1) * self.pitch + row

    @property
    def moved_bytes(self) -> int:
        """Bytes that one copy transfers: the whole box, including what lies outside of the tensor, and no padding, as
        CUTLASS counts them."""
        return prod(self.copied) * self.element.size

    def encode(self) -> bytes:
        """The 128 bytes of the map. Bytes without a known field are zero."""
        words = [0] * (SIZE // 4)
        words[0], words[1] = self.address & 0xFFFFFFFF, self.address >> 32
        words[2] = (
            len(self.sizes) - 1 << 4 | self.element.code << 7 | INTERLEAVES.index(self.interleave) << 11
            | SWIZZLES.index(self.swizzle) << 13 | self.nan_fill << 15 | self.element.rounded << 16
        )  # fmt: skip
        for i, stride in enumerate(self.strides):
            words[3 + i] = stride >> 4 & 0xFFFFFFFF
            words[7] |= stride >> 36 << 4 * i
        for i, (size, step) in enumerate(zip(self.sizes, self.steps, strict=True)):
            words[8 + i] = size - 1
            words[13] |= step - 1 << 3 * i
        words[13] |= self.inner - 1 << 24
        if isinstance(self.box, PixelBox):
            words[14], words[15] = self.box.encode_corners(), self.box.pixels - 1 | _IM2COL
        else:
            words[14] = sum(size - 1 << 8 * i for i, size in enumerate(self.box[1:]))
        return b"".join(word.to_bytes(4, "little") for word in words)

    @staticmethod
    def decode(data: bytes) -> TensorMapFields:
        """The fields of a map of 128 bytes.

        Raises:
            TensorMapError: if the bytes are not a tensor map.
        """
        if len(data) != SIZE:
            raise TensorMapError(f"expected {SIZE} bytes of a tensor map, got {len(data)}")
        words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, SIZE, 4)]
        head, rank = words[2], (words[2] >> 4 & 7) + 1
        code, rounded = head >> 7 & 15, bool(head >> 16 & 1)
        element = next((e for e in ELEMENTS if (e.code, e.rounded) == (code, rounded)), None)
        if element is None or head >> 11 & 3 == 3:
            raise TensorMapError(f"the bytes are no tensor map: their third word is {head:#010x}")
        strides = (words[3 + i] << 4 | (words[7] >> 4 * i & 15) << 36 for i in range(rank - 1))
        return TensorMapFields(
            words[0] | words[1] << 32,
            element,
            tuple(words[8 + i] + 1 for i in range(rank)),
            tuple(strides),
            _decoded_box(rank, words),
            tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)),
            SWIZZLES[head >> 13 & 3],
            INTERLEAVES[head >> 11 & 3],
            bool(head >> 15 & 1),
        )


def _decoded_box(rank: int, words: Sequence[int]) -> tuple[int, ...] | PixelBox:
    """The box that the words of a map say."""
    inner = (words[13] >> 24 & 0xFF) + 1
    if not words[15] & _IM2COL:
        return inner, *((words[14] >> 8 * i & 0xFF) + 1 for i in range(rank - 1))
    if not 3 <= rank <= MAX_RANK:
        raise TensorMapError(f"pixels are those of tensors with 3 to {MAX_RANK} dimensions, got {rank}")
    return PixelBox.decode(rank, words[14], inner, (words[15] & ~_IM2COL) + 1)


def problem_of_copy(fields: TensorMapFields, start: tuple[int, ...], offsets: tuple[int, ...] | None) -> str | None:
    """Why a copy cannot begin there; `offsets` is None for one in tile mode."""
    box = fields.box
    if len(fields.sizes) != len(start):
        return f"the tensor map has {len(fields.sizes)} dimensions, the copy {len(start)}"
    if fields.interleave:
        return f"the interpreter copies no interleaved tensors; the map has an interleave of {fields.interleave} bytes"
    if isinstance(box, PixelBox) is (offsets is None):
        modes = ("tile", "im2col") if offsets is None else ("im2col", "tile")
        return f"the copy is one of {modes[0]} mode, the tensor map of {modes[1]} mode"
    if fields.element.expands and start[0] % EXPANDED:
        return f"a box of {fields.element.name} begins at a multiple of {EXPANDED} elements, got {start[0]}"
    if start[0] // fields.element.together * fields.element.size % UNIT:
        return (
            f"the box begins {start[0] * fields.element.size} bytes along the fastest dimension, which is no "
            f"multiple of {UNIT}: an illegal instruction on the GPU"
        )
    return _pixel_problem(box, fields.sizes, start, offsets or ()) if isinstance(box, PixelBox) else None


def _pixel_problem(
    box: PixelBox, sizes: tuple[int, ...], start: tuple[int, ...], offsets: tuple[int, ...]
) -> str | None:
    largest = max_offset(len(sizes))
    for by in offsets:
        if by > largest:
            return f"expected an im2col offset of 0 to {largest} for {len(sizes)} dimensions, got {by}"
    for axis, (at, first, last) in enumerate(zip(start[1:], box.lower, box.last(sizes), strict=False), 1):
        if not first <= at <= last:
            return (
                f"coordinate {axis} is outside of the bounding box of the tensor map: {at}, expected {first} to {last}"
            )
    return None


# What `tensormap.replace` writes where: a field of the 128 bytes of a tensor map in tile mode.
#
# Source: machine code that ptxas 13.0 makes for sm_90a. It leaves the bit of tf32 set when the elements become others.

ORDERED = ("box_dim", "global_dim", "element_stride", "global_stride")
"""The fields that each dimension has."""

MAX_STRIDES = 4


class Edit(NamedTuple):
    """Of the 32-bit word at a byte of the map, the bits of a mask become those of a value."""

    byte: int
    mask: int
    bits: int


class EditError(ValueError):
    """A field that maps in tile mode do not have, or an illegal value of it."""


def edits(field: str, ordinal: int, value: int) -> list[Edit]:
    """The edits of a tensor map that replace a field. `ordinal` is the dimension for fields in `ORDERED`, otherwise 0.
    Raises EditError for a value that these maps cannot have."""
    match field:
        case "global_address":
            return [Edit(0x00, 0xFFFFFFFF, value & 0xFFFFFFFF), Edit(0x04, 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF)]
        case "rank":
            return [_bits(0x08, 4, 3, value)]
        case "elemtype":
            return _element(value)
        case "interleave_layout":
            return [_bits(0x08, 11, 2, value)]
        case "swizzle_mode" if value < 4:
            return [_bits(0x08, 13, 2, value)]
        case "fill_mode":
            return [_bits(0x08, 15, 1, value)]
        case "box_dim":
            return [_bits(0x34, 24, 8, value - 1) if ordinal == 0 else _bits(0x38, 8 * (ordinal - 1), 8, value - 1)]
        case "global_dim":
            return [_bits(0x20 + 4 * ordinal, 0, 32, value - 1)]
        case "element_stride":
            return [_bits(0x34, 3 * ordinal, 3, value - 1)]
        case "global_stride" if ordinal < MAX_STRIDES:
            return [_bits(0x0C + 4 * ordinal, 0, 32, value >> 4), _bits(0x1C, 4 * ordinal, 4, value >> 36)]
        case "global_stride":
            raise EditError(f"a tensor map has the strides 0 to {MAX_STRIDES - 1}, got number {ordinal}")
        case _:
            raise EditError(f"the maps of tile mode have no {field} {value}")


def _element(value: int) -> list[Edit]:
    if value >= len(ELEMENTS):
        raise EditError(f"expected an element type of 0 to {len(ELEMENTS) - 1}, got {value}")
    element = ELEMENTS[value]
    return [_bits(0x08, 7, 4, element.code), *([_bits(0x08, 16, 1, 1)] if element.rounded else [])]


def _bits(byte: int, low: int, width: int, value: int) -> Edit:
    mask = (1 << width) - 1
    return Edit(byte, mask << low, (value & mask) << low)
