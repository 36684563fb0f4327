"""`warp.matmul`: a whole matrix product on memory, with all that is done to it on the way out.

Every way to write a product in `linalg` is raised to this one operation, so that the passes after it read one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, FloatAttr, IntegerAttr, MemRefType, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ..isa.types import ELEMENT_TYPES, ElementType
from .attributes import element_row, memory_of

M, N, K = 0, 1, 2
"""The loops of a product, by number."""

OPERAND_LOOPS = ((M, K), (K, N), (M, N))
"""The loops that the rows and the columns of A, B, and C or D run along, when nothing is transposed."""

Number: TypeAlias = FloatAttr | IntegerAttr

DEFAULT_MAPS = tuple(AffineMap(3, 0, tuple(map(AffineDimExpr, loops))) for loops in OPERAND_LOOPS)


@irdl_op_definition
class MatmulOp(IRDLOperation):
    """D = C + A * B, or D = init + A * B, on matrices in memory.

    Printed as::

        warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D : memref<256x192xf16>, memref<192x320xf16>, memref<...>
        warp.matmul bf16 x bf16 %A, %B plus %C into %C maps [...] : memref<...>, memref<...>, memref<...>, memref<...>

    The types before the operands are those of the ISA that A and B are multiplied as: they tell signed integers from
    unsigned ones. `maps` say which loops (m, n, k by number) the dimensions of A, B and D run along; left out, they
    are those of row-major A, B and D. C lies as D does.
    """

    name = "warp.matmul"

    a = operand_def(MemRefType)
    b = operand_def(MemRefType)
    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    types = prop_def(ArrayAttr[StringAttr])
    init = opt_prop_def(Number)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        d: SSAValue,
        types: Sequence[str],
        *,
        c: SSAValue | None = None,
        init: Number | None = None,
        maps: Sequence[AffineMap] = DEFAULT_MAPS,
    ):
        super().__init__(
            operands=[a, b, [] if c is None else [c], d],
            properties={
                "types": ArrayAttr([StringAttr(t) for t in types]),
                "init": init,
                "indexing_maps": ArrayAttr([AffineMapAttr(m) for m in maps]),
            },
        )

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of A, B and D."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def multiplied(self) -> tuple[str, ...]:
        """The ISA's names of the types that A and B are multiplied as."""
        return tuple(t.data for t in self.types)

    # Verification

    def verify_(self) -> None:
        if (self.c is None) == (self.init is None):
            raise VerifyException("expected the product to start either from C or from a constant")
        self._verify_types()
        self._verify_maps()
        if self.c is not None and memory_of(self.c).get_shape() != memory_of(self.d).get_shape():
            raise VerifyException(f"expected C of the shape of D, got {self.c.type} and {self.d.type}")

    def _verify_types(self) -> None:
        if len(self.multiplied) != 2:
            raise VerifyException(f"expected a type each for A and B, got {len(self.multiplied)}")
        for name, multiplied, operand in zip("AB", self.multiplied, (self.a, self.b), strict=True):
            if multiplied not in ELEMENT_TYPES:
                raise VerifyException(f"'{multiplied}' is no type of the ISA that {name} could be multiplied as")
            if not _holds(memory_of(operand).element_type, ELEMENT_TYPES[multiplied]):
                raise VerifyException(f"{operand.type} cannot be multiplied as {multiplied}")
        stored = memory_of(self.d).element_type
        if self.init is not None and self.init.type != stored:
            raise VerifyException(f"expected an initial value of D's element type, got {self.init.type}")

    def _verify_maps(self) -> None:
        if len(self.maps) != len(OPERAND_LOOPS):
            raise VerifyException(f"expected indexing maps of A, B and D, got {len(self.maps)}")
        sizes: dict[int, tuple[str, int]] = {}
        for name, loops, map_, operand in zip("ABD", OPERAND_LOOPS, self.maps, (self.a, self.b, self.d), strict=True):
            shape, found = memory_of(operand).get_shape(), loops_of(map_)
            if map_.num_dims != 3 or map_.num_symbols or sorted(found) != sorted(loops):
                raise VerifyException(f"expected {name} to be indexed by d{loops[0]} and d{loops[1]}, got {map_}")
            if len(shape) != 2:
                raise VerifyException(f"expected {name} of rank 2, got {operand.type}")
            for loop, size in zip(found, shape, strict=True):
                other, known = sizes.setdefault(loop, (name, size))
                if known != size and min(known, size) >= 0:
                    raise VerifyException(
                        f"expected {other} and {name} to agree on {'mnk'[loop]}, got {known} and {size}"
                    )

    # Text

    @classmethod
    def parse(cls, parser: Parser) -> MatmulOp:
        types = [parser.parse_identifier(" as the type of A")]
        parser.parse_keyword("x")
        types.append(parser.parse_identifier(" as the type of B"))
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
        init: Attribute | None = None
        c: list[UnresolvedOperand] = []
        if parser.parse_optional_keyword("init"):
            init = parser.parse_attribute()
        elif parser.parse_optional_keyword("plus"):
            c.append(parser.parse_unresolved_operand())
        parser.parse_keyword("into")
        operands += [*c, parser.parse_unresolved_operand()]
        maps: Attribute = ArrayAttr([AffineMapAttr(m) for m in DEFAULT_MAPS])
        if parser.parse_optional_keyword("maps"):
            maps = parser.parse_attribute()
        if not isa(maps, ArrayAttr[AffineMapAttr]):
            parser.raise_error(f"expected maps to be a list of affine maps, got {maps}", position)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        memories = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(memories) != len(operands):
            parser.raise_error(f"expected a type for each of {len(operands)} operands, got {len(memories)}", position)
        values = parser.resolve_operands(operands, memories, position)
        if init is not None and not isa(init, Number):
            parser.raise_error(f"expected the initial value to be a number, got {init}", position)
        op = cls(
            values[0],
            values[1],
            values[-1],
            types,
            c=values[2] if c else None,
            init=init,
            maps=[attribute.data for attribute in maps],
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {' x '.join(self.multiplied)} ")
        printer.print_list((self.a, self.b), printer.print_ssa_value)
        if self.init is not None:
            printer.print_string(" init ")
            printer.print_attribute(self.init)
        if self.c is not None:
            printer.print_string(" plus ")
            printer.print_ssa_value(self.c)
        printer.print_string(" into ")
        printer.print_ssa_value(self.d)
        if self.maps != DEFAULT_MAPS:
            printer.print_string(" maps ")
            printer.print_attribute(self.indexing_maps)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)


def loops_of(map_: AffineMap) -> tuple[int, ...]:
    """The loops that a map's results run along; -1 for anything but a loop alone."""
    return tuple(e.position if isinstance(e, AffineDimExpr) else -1 for e in map_.results)


def _holds(stored: Attribute, multiplied: ElementType) -> bool:
    """Whether memory of an MLIR element type can be read as a type of the ISA: itself, or the same bits."""
    row = element_row(stored)
    if row is None:
        return False
    if multiplied.name == "tf32":
        return row.name == "f32"
    return row == multiplied or (not (row.is_float or multiplied.is_float) and row.bits == multiplied.bits)
