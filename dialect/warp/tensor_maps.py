"""Tensor maps: `!warp.tensor_map`, an argument of kernels, and `warp.encode_tensor_map`, which makes one on the host.

Source: PTX ISA 5.5 and 9.7.9.25.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    MemRefType,
    StridedLayoutAttr,
    UnitAttr,
    i8,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import NoMemoryEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ElementType
from ..isa.tensor_map import ELEMENTS, MOST_RANK, PixelBox, TensorMapError, TensorMapFields
from ..isa.wgmma import UNIT
from .attributes import BYTE, Memory, element_row, memory_of, same_words
from .op_shapes import flag
from .views import strides_of

FAR = 1 << 30
"""Where the rows of a map of parts end."""


def moved_together(element_type: Attribute) -> int:
    """How many elements of memory make one of a tensor map, which has whole bytes."""
    row = element_row(element_type)
    return 1 if row is None else max(1, BYTE // row.memory_bits)


def moved_as(element_type: Attribute) -> Attribute:
    """The element type of the tensor map of memory: bytes, where elements share them."""
    return element_type if moved_together(element_type) == 1 else i8


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map, an argument of a kernel of 128 bytes. The type has the box that one copy moves, slowest dimension
    first, and the swizzle in bytes: `!warp.tensor_map<64x64xf16, swizzle 128>`. A map in im2col mode moves channels of
    pixels of a tensor of so many dimensions: `!warp.tensor_map<64x64xf16, swizzle 128, im2col 4>`."""

    name = "warp.tensor_map"

    box: ArrayAttr[IntAttr]
    element_type: Attribute
    swizzle: IntAttr
    im2col: IntAttr

    @property
    def rank(self) -> int:
        """The dimensions of the tensor."""
        return self.im2col.data or len(self.box)

    @property
    def shape(self) -> tuple[int, ...]:
        """The box."""
        return tuple(size.data for size in self.box)

    @property
    def element(self) -> ElementType:
        """The ISA's row of the element type.

        Raises:
            VerifyException: if it has none of whole bytes.
        """
        row = element_row(self.element_type)
        if row is None or row.memory_bits < UNIT // 2:
            raise VerifyException(f"expected a tensor map of elements of whole bytes, got {self.element_type}")
        return row

    @property
    def bytes(self) -> int:
        """Bytes of a box: what a mbarrier is to expect of a copy."""
        return prod(self.shape) * self.element.memory_bits // 8

    def verify(self) -> None:
        size = self.element.memory_bits // 8
        words = next(e for e in ELEMENTS if e.name == f"u{8 * size}")
        box = self.shape[::-1]
        try:
            TensorMapFields(0, words, box, (UNIT,) * (len(box) - 1), box, (1,) * len(box), self.swizzle.data)
        except TensorMapError as error:
            raise VerifyException(f"{error} (dimensions count from the fastest)") from None

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            numbers: dict[str, int] = {"swizzle": 0, "im2col": 0}
            while parser.parse_optional_punctuation(","):
                word = parser.parse_optional_keyword_in((*numbers,))
                if word is None:
                    parser.raise_error("expected swizzle: the word before the bytes of the swizzle")
                numbers[word] = parser.parse_integer(allow_negative=False, allow_boolean=False)
        return [ArrayAttr(IntAttr(size) for size in shape), element_type, *map(IntAttr, numbers.values())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("".join(f"{size}x" for size in self.shape))
            printer.print_attribute(self.element_type)
            if self.swizzle.data:
                printer.print_string(f", swizzle {self.swizzle.data}")
            if self.im2col.data:
                printer.print_string(f", im2col {self.im2col.data}")


@irdl_op_definition
class EncodeTensorMapOp(IRDLOperation):
    """Encodes, on the host, a tensor map of memory for the launches that follow. Its dimensions are those of the memory
    in the given order, slowest first. Elements are contiguous along the last one. If elements share bytes, the map is a
    map of bytes::

        %map = warp.encode_tensor_map %A [0, 1] : memref<4096x4096xf16> to !warp.tensor_map<128x64xf16, swizzle 128>

    Of the matrices of `warp.im2col` the map is one of the images, in im2col mode.

    With `parts`, boxes are those of any part of the rows along a dimension, and what lies in a box behind the part is
    neither read nor written. The map has two dimensions before the others, and its rows end at `FAR`. Of a part of n
    rows from b on, row i is at the coordinates `FAR`, b + n and, along the dimension, `FAR` - n + i::

        %map = warp.encode_tensor_map %A [0, 1] parts 0 : memref<96x64xf16> to !warp.tensor_map<1x1x64x64xf16>

    The address of row i is that of row b + i, modulo 2^64: the first stride is 2^34 less a row, of which there are
    `FAR` too many, and 2^34 `FAR` is 2^64.
    """

    name = "warp.encode_tensor_map"

    memory = operand_def(MemRefType)
    dimensions = prop_def(DenseArrayBase.constr(i64))
    parts = opt_prop_def(IntegerAttr[i64])
    map = result_def(TensorMapType)

    traits = traits_def(Pure())
    assembly_format = "$memory $dimensions (`parts` $parts^)? attr-dict `:` type($memory) `to` type($map)"

    def __init__(self, memory: SSAValue, dimensions: Sequence[int], kind: TensorMapType, parts: int | None = None):
        super().__init__(
            operands=[memory],
            properties={
                "dimensions": DenseArrayBase.from_list(i64, dimensions),
                "parts": None if parts is None else IntegerAttr(parts, i64),
            },
            result_types=[kind],
        )

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of memory, slowest first."""
        return tuple(int(dimension) for dimension in self.dimensions.iter_values())

    def verify_(self) -> None:
        memory, kind = memory_of(self.memory), self.map.type
        if kind.im2col.data and not isinstance(self.memory.owner, Im2colOp):
            raise VerifyException(f"expected the matrices of warp.im2col for {kind}, got {memory}")
        rank = len(self.order) + (0 if self.parts is None else 2)
        every = sorted(self.order) == list(range(memory.get_num_dims()))
        if not every or not (kind.im2col.data or rank == len(kind.shape)):
            raise VerifyException(f"expected the dimensions of {memory}, each once, for a box of {kind}")
        if not same_words(kind.element_type, moved := moved_as(memory.element_type)):
            raise VerifyException(f"expected a tensor map of elements of {moved}, got {kind}")
        strides = memory.get_strides()
        if strides is None or [*strides][self.order[-1]] != 1:
            raise VerifyException(f"expected neighbours along dimension {self.order[-1]} of {memory}, the fastest")


# `warp.im2col`: images as the matrix that a convolution multiplies.


@irdl_op_definition
class Im2colOp(IRDLOperation):
    """Images as a matrix for each tap of a filter. It has a row for each pixel of the result, in the order of images
    and of pixels in them, and a column for each channel::

        %A = warp.im2col %x taps [3, 3] pixels [28, 28] steps [2, 2] dilations [1, 1] low [1, 1]
            : memref<64x56x56x128xbf16> -> memref<3x3x50176x128xbf16, strided<[7168, 128, 256, 1]>>

    Row (n, y, x) of the matrix of tap (r, s) has the channels of pixel (y * step + r * dilation - low, ...) of image n,
    or zeros where there is no such pixel; dilations below 0 run backwards. If there is one tap, the result is its
    matrix. With `joined`, the matrices of all taps lie side by side as one::

        %A = warp.im2col %x ... {joined} : memref<64x56x56x128xbf16> -> memref<50176x1152xbf16, strided<[256, 1]>>

    The strides of the result are those between the pixels of one row of the result. Only tensor copies in im2col mode
    read the matrix (PTX ISA 5.5.4).
    """

    name = "warp.im2col"

    memory = operand_def(MemRefType)
    taps = prop_def(DenseArrayBase.constr(i64))
    pixels = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    low = prop_def(DenseArrayBase.constr(i64))
    joined = opt_prop_def(UnitAttr)
    matrix = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$memory `taps` $taps `pixels` $pixels `steps` $steps `dilations` $dilations `low` $low attr-dict"
        " `:` type($memory) `->` type($matrix)"
    )

    def __init__(
        self,
        memory: SSAValue,
        taps: Sequence[int],
        pixels: Sequence[int],
        steps: Sequence[int],
        dilations: Sequence[int],
        low: Sequence[int],
        *,
        joined: bool = False,
    ):
        numbers = {"taps": taps, "pixels": pixels, "steps": steps, "dilations": dilations, "low": low}
        properties = {name: DenseArrayBase.from_list(i64, list(values)) for name, values in numbers.items()}
        super().__init__(
            operands=[memory],
            properties={**properties, "joined": flag(joined)},
            result_types=[im2col_type(memory_of(memory), *(taps, pixels, steps, dilations), joined=joined)],
        )

    @property
    def numbers(self) -> list[tuple[int, ...]]:
        """Taps, pixels, steps, dilations and low, each along the dimensions of pixels, slowest first."""
        every = (self.taps, self.pixels, self.steps, self.dilations, self.low)
        return [tuple(int(value) for value in values.iter_values()) for values in every]

    @property
    def key(self) -> str:
        """The sizes of the images, the taps and the steps, as a product's name has them."""
        sizes, (taps, _, steps, *_) = memory_of(self.memory).get_shape(), self.numbers
        return " ".join("x".join(map(str, each)) for each in (sizes, taps, steps))

    def box(self, channels: int, pixels: int) -> PixelBox:
        """The box of copies of so many channels of so many pixels, slowest dimension first."""
        (_, every, steps, _, _), lower = self.numbers, [-by for by in self.corner]
        along = zip(memory_of(self.memory).get_shape()[1:-1], every, steps, lower, strict=True)
        upper = tuple((many - 1) * step + first - (size - 1) for size, many, step, first in along)
        return PixelBox(tuple(lower), upper, channels, pixels)

    @property
    def back(self) -> tuple[int, ...]:
        """How far the last tap is before the first one, along dimensions in which taps run backwards."""
        taps, _, _, dilations, _ = self.numbers
        return tuple(max(0, (1 - many) * by) for many, by in zip(taps, dilations, strict=True))

    @property
    def corner(self) -> tuple[int, ...]:
        """How far before the images the corner of the filter begins."""
        return tuple(by + back for by, back in zip(self.numbers[-1], self.back, strict=True))

    def verify_(self) -> None:
        memory, numbers = memory_of(self.memory), self.numbers
        if not 3 <= memory.get_num_dims() <= MOST_RANK or min(memory.get_shape()) < 1:
            raise VerifyException(f"expected images of known size with 1 to 3 dimensions of pixels, got {memory}")
        if any(len(each) != memory.get_num_dims() - 2 for each in numbers):
            raise VerifyException(f"expected {memory.get_num_dims() - 2} taps, pixels, steps, dilations and low")
        expected = im2col_type(memory, *numbers[:-1], joined=self.joined is not None)
        if self.matrix.type != expected:
            raise VerifyException(f"expected the matrix to be {expected}, got {self.matrix.type}")


def im2col_type(
    memory: Memory,
    taps: Sequence[int],
    pixels: Sequence[int],
    steps: Sequence[int],
    dilations: Sequence[int],
    *,
    joined: bool,
) -> MemRefType[Attribute]:
    """The type of the matrices of images, one for each tap.

    Raises:
        VerifyException: for images of unknown strides.
    """
    strides, shape = strides_of(memory), memory.get_shape()
    known = [stride for stride in strides or () if stride is not None]
    if not known or len(known) < len(shape):
        raise VerifyException(f"expected images with known strides, got {memory}")
    by_tap = [abs(dilation) * stride for dilation, stride in zip(dilations, known[1:-1], strict=False)]
    apart = prod(taps) > 1 and not joined
    sizes, along = ([*taps], by_tap) if apart else ([], [])
    columns = shape[-1] if apart else prod(taps) * shape[-1]
    layout = StridedLayoutAttr([*along, steps[-1] * known[-2], known[-1]], memory.get_offset())
    return MemRefType(memory.element_type, [*sizes, shape[0] * prod(pixels), columns], layout, memory.memory_space)
