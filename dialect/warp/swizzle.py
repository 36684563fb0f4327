"""How a tile lies in shared memory: `#warp.swizzle`."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    IntAttr,
    MemRefLayoutAttr,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..schedule import SWIZZLES

WORD_PANEL = 4
"""The width of panels that are one word wide."""

MAX_SKIP = 2
"""The most bits of the row that a swizzle leaves out: those of elements of 4 bits that share a 16-bit piece."""


@irdl_attr_definition
class SwizzleAttr(ParametrizedAttribute, MemRefLayoutAttr):
    """The layout of a tile in shared memory: `#warp.swizzle<128>`.

    The last dimension is divided into panels of this many bytes. A panel stores its rows one after another. Within a
    line, the 16-byte chunks are permuted: bits 4 and up of the byte address are XORed with bits 7 and up, as many bits
    as number the chunks of a line. So eight rows of one column of chunks are in different banks. 32, 64 and 128 are the
    swizzles of the bulk tensor copies (PTX ISA 5.5.5, Swizzling Modes). 16 and 4 permute nothing. With 4, the words of
    one column are contiguous.

    `#warp.swizzle<128, skip 1>` uses bits 8 and up instead, so that rows 2i and 2i + 1 share a permutation. Then eight
    rows whose numbers differ in bits 1 to 3 are in different banks. This is needed for matrices of 16-bit pieces if a
    piece is two elements of 8 bits, because one matrix delivers only every second of the rows that a lane holds. `skip
    2` is needed if a piece is four elements of 4 bits, because then it delivers only every fourth row.
    """

    name = "warp.swizzle"

    width: IntAttr
    skipped: IntAttr

    def __init__(self, width: int, skip: int = 0):
        super().__init__(IntAttr(width), IntAttr(skip))

    @property
    def bytes(self) -> int:
        """The width of a panel."""
        return self.width.data

    @property
    def skip(self) -> int:
        """How many low bits of the row do not count."""
        return self.skipped.data

    def verify(self) -> None:
        if self.bytes not in (WORD_PANEL, *SWIZZLES):
            raise VerifyException(
                f"expected a swizzle of {', '.join(map(str, (WORD_PANEL, *SWIZZLES)))} bytes, got {self.bytes}"
            )
        if not 0 <= self.skip <= MAX_SKIP:
            raise VerifyException(f"expected a swizzle to skip 0 to {MAX_SKIP} bits of the row, got {self.skip}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            width, skip = parser.parse_integer(allow_negative=False, allow_boolean=False), 0
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("skip", ": the word before the number of bits of the row left out")
                skip = parser.parse_integer(allow_negative=False, allow_boolean=False)
        return [IntAttr(width), IntAttr(skip)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.bytes}" + (f", skip {self.skip}" if self.skip else ""))

    def get_affine_map(self) -> AffineMap:
        raise VerifyException("#warp.swizzle permutes address bits and has no affine map")
