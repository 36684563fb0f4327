"""Tensor maps, arguments of kernels that the host encodes, and copies of boxes by them: `warp.tensor_load`,
`warp.tensor_store`; `warp.prefetch`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntAttr,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    i8,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    base,
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, NoMemoryEffect, Pure
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ElementType
from ..isa.tensor_map import ELEMENTS, EXPANDED_UNIT, MAX_RANK, Element, PixelBox, TensorMapError, TensorMapFields
from ..isa.wgmma import UNIT
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, FragmentType, Memory, element_row, is_shared, memory_of
from .cta import RingType
from .op_shapes import WarpOp, bounds, same_words, verify_element, verify_indices
from .synchronisation import BarriersType
from .views import im2col_type
from .warpgroup import box_of, verify_tile

# Tensor maps: `!warp.tensor_map`, an argument of kernels, and `warp.encode_tensor_map`, which makes one on the host.
#
# Source: PTX ISA 5.5 and 9.7.9.25.5.


FAR = 1 << 30
"""Where the rows of a map of parts end."""


def moved_together(element_type: Attribute) -> int:
    """The number of elements of memory in one element of a tensor map, which consists of whole bytes."""
    row = element_row(element_type)
    return 1 if row is None else max(1, BYTE // row.memory_bits)


def moved_as(element_type: Attribute) -> Attribute:
    """The element type of the tensor map of memory: bytes, where elements share them."""
    return element_type if moved_together(element_type) == 1 else i8


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map, an argument of a kernel of 128 bytes. The type has the box that one copy moves, slowest dimension
    first, and the swizzle in bytes: `!warp.tensor_map<64x64xf16, swizzle 128>`. A map in im2col mode moves channels of
    pixels of a tensor of so many dimensions: `!warp.tensor_map<64x64xf16, swizzle 128, im2col 4>`. Copies by a map of
    elements of 4 bits add padding to tiles of bytes, 8 bytes to each 16 elements (PTX ISA 5.5.1.1)::

        !warp.tensor_map<128x128xf4E2M1FN, swizzle 128>
    """

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
        """The ISA's row of the element type. Raises VerifyException if it has none of whole bytes, or of floats of 4
        bits."""
        row = element_row(self.element_type)
        if row is None or (row.memory_bits < BYTE and not self.expands):
            raise VerifyException(f"expected a tensor map of elements of whole bytes, got {self.element_type}")
        return row

    @property
    def expands(self) -> bool:
        """Whether copies add padding to elements of 4 bits."""
        row = element_row(self.element_type)
        return row is not None and row.is_float and row.memory_bits == BYTE // 2

    @property
    def copied(self) -> Element:
        """The elements of the map."""
        name = "b4x16_p64" if self.expands else f"u{self.element.memory_bits}"
        return next(e for e in ELEMENTS if e.name == name)

    @property
    def bytes(self) -> int:
        """Bytes of a box: what a mbarrier is to expect of a copy, without padding."""
        return prod(self.shape) * self.element.memory_bits // BYTE

    def verify(self) -> None:
        box, strides = self.shape[::-1], (EXPANDED_UNIT,) * (len(self.box) - 1)
        try:
            TensorMapFields(0, self.copied, box, strides, box, (1,) * len(box), self.swizzle.data)
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
class EncodeTensorMapOp(WarpOp):
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
    map = result_def(TensorMapType)
    parts = opt_prop_def(IntegerAttr[i64])

    traits = traits_def(Pure())
    assembly_format = "$memory $dimensions (`parts` $parts^)? attr-dict `:` type($memory) `to` type($map)"

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
        moved = memory.element_type if kind.expands else moved_as(memory.element_type)
        if not same_words(kind.element_type, moved):
            raise VerifyException(f"expected a tensor map of elements of {moved}, got {kind}")
        strides = memory.get_strides()
        if strides is None or [*strides][self.order[-1]] != 1:
            raise VerifyException(f"expected neighbours along dimension {self.order[-1]} of {memory}, the fastest")


@irdl_op_definition
class Im2colOp(WarpOp):
    """Images as a matrix for each tap of a filter. It has a row for each pixel of the result, in the order of images
    and of pixels in them, and a column for each channel::

        %A = warp.im2col %x taps [3, 3] pixels [28, 28] steps [2, 2] dilations [1, 1] low [1, 1]
            : memref<64x56x56x128xbf16> -> memref<3x3x50176x128xbf16, strided<[7168, 128, 256, 1]>>

    Row (n, y, x) of the matrix of tap (r, s) has the channels of pixel (y * step + r * dilation - low, ...) of image n,
    or zeros where there is no such pixel; dilations below 0 run backwards. If there is one tap, the result is its
    matrix. With `joined`, the matrices of all taps lie side by side as one::

        %A = warp.im2col %x ... {joined} : memref<64x56x56x128xbf16> -> memref<50176x1152xbf16, strided<[256, 1]>>

    The strides of the result are those between the pixels of one row of the result. Only tensor copies in im2col mode
    read the matrix (PTX ISA 5.5.4). They write it, too, if each of its rows is a pixel of the images.

    With `groups`, the channels are in so many groups of one size, and each has matrices of its own; a box that is wider
    than a group has channels of the next one::

        %A = warp.im2col %x ... {joined, groups = 2 : i64} : memref<64x56x56x128xbf16> -> memref<2x50176x576xbf16, ...>
    """

    name = "warp.im2col"

    memory = operand_def(MemRefType)
    taps = prop_def(DenseArrayBase.constr(i64))
    pixels = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    low = prop_def(DenseArrayBase.constr(i64))
    joined = opt_prop_def(UnitAttr)
    groups = opt_prop_def(IntegerAttr[i64])
    matrix = result_def(MemRefType)

    traits = traits_def(NoMemoryEffect())
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
        groups: int = 0,
    ):
        matrix = im2col_type(memory_of(memory), taps, pixels, steps, dilations, joined=joined, groups=groups)
        super().__init__(memory, taps, pixels, steps, dilations, low, joined, groups or None, matrix)

    @property
    def channels(self) -> int:
        """The channels of a group."""
        every = memory_of(self.memory).get_shape()[-1]
        return every if self.groups is None else every // self.groups.value.data

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
        """The box of a copy of `channels` channels of `pixels` pixels, slowest dimension first."""
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
        if not 3 <= memory.get_num_dims() <= MAX_RANK or min(memory.get_shape()) < 1:
            raise VerifyException(f"expected images of known size with 1 to 3 dimensions of pixels, got {memory}")
        if any(len(each) != memory.get_num_dims() - 2 for each in numbers):
            raise VerifyException(f"expected {memory.get_num_dims() - 2} taps, pixels, steps, dilations and low")
        groups = 0 if self.groups is None else self.groups.value.data
        if groups and memory.get_shape()[-1] % groups:
            raise VerifyException(f"expected groups of as many channels each, got {groups} of {memory}")
        expected = im2col_type(memory, *numbers[:-1], joined=self.joined is not None, groups=groups)
        if self.matrix.type != expected:
            raise VerifyException(f"expected the matrix to be {expected}, got {self.matrix.type}")


# Copies of boxes between tensors in global memory and tiles in shared memory: `warp.tensor_load`, `warp.tensor_store`.
#
# One thread of the CTA issues a copy, the first unless `by` names another, or that thread of each warpgroup.
# Source: PTX ISA 9.7.9.25.5.


def _verify_box(kind: TensorMapType, coordinates: Sequence[SSAValue], tile: Memory, at: Sequence[SSAValue]) -> None:
    """Checks that a box fits the tile. Raises VerifyException with the box that would fit."""
    verify_tile(tile, at, "the tile", shared_bytes=True, copied=True)
    if len(coordinates) != kind.rank:
        raise VerifyException(f"expected {kind.rank} coordinates for a box of {kind}, got {len(coordinates)}")
    wanted = i8 if kind.expands else kind.element_type
    if not same_words(wanted, moved_as(tile.element_type)):
        raise VerifyException(f"expected a tile of elements of {wanted}, got {tile}")
    (width, line), swizzle, size = box_of(tile), kind.swizzle.data, max(kind.element.memory_bits, BYTE) // BYTE
    if (swizzle or UNIT) != width:
        nearest = f"#warp.swizzle<{swizzle or UNIT}>"
        raise VerifyException(f"a copy of {kind} writes {nearest}, which is not the layout of {tile}")
    *others, along = kind.shape
    if along * size != line:
        raise VerifyException(
            f"a box of {along} elements ({along * size} bytes) along the fastest dimension does not fit panels of "
            f"{line} bytes; {line // size} elements do"
        )
    lines, has = prod(others), tile.get_shape()[-2]
    if lines > has:
        raise VerifyException(f"a box of {lines} rows does not fit a tile of {has} rows")


@irdl_op_definition
class TensorLoadOp(WarpOp):
    """Copies a box of a tensor to a tile in shared memory. The coordinates of the box are given slowest first. An
    mbarrier counts its bytes, that of a number or that of a stage of a ring::

        warp.tensor_load %map[%m, %k] to %As[%s, %zero, %zero], %full[%s] {by = 128 : i64} :
            !warp.tensor_map<64x64xf16, swizzle 128> to memref<2x64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<2>

    A box is as wide as one panel of the tile, and is written at the indices of the tile. With `multicast`, the box is
    copied to each CTA of the cluster whose bit is set in a mask. It goes to the same address in each CTA, and the same
    mbarrier of each CTA counts its bytes::

        warp.tensor_load %map[%m, %k] to %As[%s, %zero, %zero], %full[%s] multicast %mask : ...

    In im2col mode the coordinates are those of the first channel of the pixel at which the filter's corner is, and
    `offsets` are the place of the pixel in the filter::

        warp.tensor_load %map[%n, %y, %x, %k] offsets[%r, %s] to %As[%stage, %zero, %zero], %full[%stage] : ...

    Source: PTX ISA 9.7.9.25.5.2.
    """

    name = "warp.tensor_load"

    map = operand_def(TensorMapType)
    coordinates = var_operand_def(IndexType())
    offsets = var_operand_def(IndexType())
    tile = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    barriers = operand_def(base(BarriersType) | base(RingType))
    number = operand_def(IndexType())
    mask = opt_operand_def(IndexType())
    by = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    assembly_format = (
        "$map `[` $coordinates `]` (`offsets` `[` $offsets^ `]`)? "
        "`to` $tile `[` $indices `]` `,` $barriers `[` $number `]` (`multicast` $mask^)? "
        "attr-dict `:` type($map) `to` type($tile) `,` type($barriers)"
    )

    def verify_(self) -> None:
        if isinstance(kind := self.map.type, TensorMapType):
            _verify_box(kind, self.coordinates, memory_of(self.tile), self.indices)
            if len(self.offsets) != (expected := max(0, kind.im2col.data - 2)):
                raise VerifyException(f"expected {expected} offsets for a box of {kind}, got {len(self.offsets)}")


@irdl_op_definition
class TensorStoreOp(WarpOp):
    """Copies a tile, or the part of it that begins at the indices, to a box of a tensor. The copy is complete after
    `warp.wait bulk`::

        warp.tensor_store %Cs[%zero, %zero] to %map[%m, %n] :
            memref<64x32xf32, #warp.swizzle<128>, 3> to !warp.tensor_map<64x32xf32, swizzle 128>

    If ordinary stores wrote the tile, a `warp.fence async_proxy` and a barrier must come first.

    Source: PTX ISA 9.7.9.25.5.2.
    """

    name = "warp.tensor_store"

    tile = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    map = operand_def(TensorMapType)
    coordinates = var_operand_def(IndexType())
    by = opt_prop_def(IntegerAttr)
    each_warpgroup = opt_prop_def(UnitAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$tile `[` $indices `]` `to` $map `[` $coordinates `]` attr-dict `:` type($tile) `to` type($map)"

    def verify_(self) -> None:
        if isinstance(kind := self.map.type, TensorMapType):
            _verify_box(kind, self.coordinates, memory_of(self.tile), self.indices)


@irdl_op_definition
class PrefetchOp(WarpOp):
    """Prefetches the lines of global memory from which a fragment will be loaded, or a box of a tensor, which the first
    thread of the CTA asks for. It does not wait::

        warp.prefetch %C[%m, %n] {in_bounds = [true, false]} : memref<100x77xf32> as <acc, 64x64xf32, ...>
        warp.prefetch %map[%m, %k] : !warp.tensor_map<64x64xf16, swizzle 128>

    Source: PTX ISA 9.7.9.15, 9.7.9.25.5.4.
    """

    name = "warp.prefetch"

    memory = operand_def(base(MemRefType) | base(TensorMapType))
    indices = var_operand_def(IndexType())
    fragment = opt_prop_def(FragmentType)
    in_bounds = opt_prop_def(ArrayAttr[BoolAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) (`as` $fragment^)?"

    def verify_(self) -> None:
        kind, got = self.memory.type, len(self.indices)
        if isinstance(kind, TensorMapType) == (self.fragment is not None):
            raise VerifyException(f"expected a fragment of memory, and none of a tensor map, got {kind}")
        if isinstance(kind, TensorMapType) and (kind.im2col.data or got != kind.rank):
            raise VerifyException(f"expected {kind.rank} coordinates for a box of a tensor, got {got} of {kind}")
        if self.fragment is not None:
            memory = memory_of(self.memory)
            verify_indices("the memref", memory, self.indices)
            verify_element(memory, self.fragment)
            bounds(self.in_bounds)
            if is_shared(memory):
                raise VerifyException(f"expected global memory, got {memory}")
