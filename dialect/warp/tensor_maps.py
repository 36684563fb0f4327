"""Tensor maps: `!warp.tensor_map`, an argument of kernels, and `warp.encode_tensor_map`, which makes one on the host.

Source: PTX ISA 5.5 and 9.7.9.25.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntAttr, IntegerAttr, MemRefType, i8, i64
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
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
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..isa.tensor_map import ELEMENTS, TensorMapError, TensorMapFields
from ..isa.types import ElementType
from ..isa.wgmma import UNIT
from .attributes import BYTE, element_row, memory_of, same_words

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
    first, and the swizzle in bytes: `!warp.tensor_map<64x64xf16, swizzle 128>`."""

    name = "warp.tensor_map"

    box: ArrayAttr[IntAttr]
    element_type: Attribute
    swizzle: IntAttr

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
            swizzle = 0
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("swizzle", ": the word before the bytes of the swizzle")
                swizzle = parser.parse_integer(allow_negative=False, allow_boolean=False)
        return [ArrayAttr(IntAttr(size) for size in shape), element_type, IntAttr(swizzle)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("".join(f"{size}x" for size in self.shape))
            printer.print_attribute(self.element_type)
            if self.swizzle.data:
                printer.print_string(f", swizzle {self.swizzle.data}")


@irdl_op_definition
class EncodeTensorMapOp(IRDLOperation):
    """Encodes, on the host, a tensor map of memory for the launches that follow. Its dimensions are those of the memory
    in the given order, slowest first. Elements are contiguous along the last one. If elements share bytes, the map is a
    map of bytes::

        %map = warp.encode_tensor_map %A [0, 1] : memref<4096x4096xf16> to !warp.tensor_map<128x64xf16, swizzle 128>

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
        rank = len(self.order) + (0 if self.parts is None else 2)
        if sorted(self.order) != list(range(memory.get_num_dims())) or rank != len(kind.shape):
            raise VerifyException(f"expected the dimensions of {memory}, each once, for a box of {kind}")
        if not same_words(kind.element_type, moved := moved_as(memory.element_type)):
            raise VerifyException(f"expected a tensor map of elements of {moved}, got {kind}")
        strides = memory.get_strides()
        if strides is None or [*strides][self.order[-1]] != 1:
            raise VerifyException(f"expected neighbours along dimension {self.order[-1]} of {memory}, the fastest")
