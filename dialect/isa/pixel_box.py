"""What a tensor map in im2col mode has in the place of a box: PTX ISA 5.5.4.

The tensor is a batch of images of channels: dimension 0 is C, the last N, and between them are W, then H and D where
there are so many. Pixels are numbered along W, H, D and N, as a convolution numbers the places of its filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MOST_CHANNELS, MOST_PIXELS = 256, 1024

_BITS = {3: 16, 4: 8, 5: 5}
"""Of a corner of the bounding box along one dimension, and of an offset, by the rank of the tensor."""


@dataclass(frozen=True)
class PixelBox:
    """The box of a tensor map in im2col mode. A copy moves `pixels` pixels, and `channels` elements of each.

    The corner of the filter starts at the coordinates of the copy and moves from pixel to pixel within a bounding box.
    Along each dimension between C and N the box goes from `lower` to the last index of the tensor plus `upper`, both
    included. Each pixel is the corner plus the offsets of the copy.
    """

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
        least, most = -1 << _BITS[rank] - 1, (1 << _BITS[rank] - 1) - 1
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if len(corner) != rank - 2:
                return f"{name}: expected {rank - 2} numbers for {rank} dimensions, got {len(corner)}"
            for axis, value in enumerate(corner, 1):
                if not least <= value <= most:
                    return f"{name}: expected {least} to {most} along dimension {axis}, got {value}"
        for name, value, limit in (("channels", self.channels, MOST_CHANNELS), ("pixels", self.pixels, MOST_PIXELS)):
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


def most_offset(rank: int) -> int:
    """The largest offset of a copy from a tensor of a rank."""
    return (1 << _BITS[rank]) - 1
