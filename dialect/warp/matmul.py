"""`warp.matmul`: a whole matrix product on memory, with all that is done to it on the way out.

Every way to write a product in `linalg` is raised to this one operation, so that the passes after it read one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
)
from xdsl.ir import Attribute, Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .attributes import memory_of
from .elements import parse_elements, print_elements
from .endings import product_type, verify_epilogue, verify_like
from .factors import FACTOR, WORD_CHOICES, FactorsOp
from .loops import (
    DEFAULT_MAPS,
    OPERAND_LOOPS,
    K,
    LoopSizes,
    M,
    N,
    loops_beside,
    loops_of,
    shape_of,
    verify_along,
    verify_map,
)
from .operand_forms import verify_held
from .product import word_properties
from .stored import group_scales_of

Number: TypeAlias = FloatAttr | IntegerAttr


@irdl_op_definition
class MatmulOp(FactorsOp):
    """D = C + A * B, or D = init + A * B, on matrices in memory.

    Printed as::

        warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D : memref<256x192xf16>, memref<192x320xf16>, memref<...>
        warp.matmul bf16 x bf16 %A, %B plus %C into %C maps [...] : memref<...>, memref<...>, memref<...>, memref<...>
        warp.matmul xor b1 x b1 %A, %B init 0 : i32 into %D maps [...] : memref<256x8192xi1>, memref<320x8192xi1>, ...

    The types before the operands are the types of the ISA as which A and B are multiplied. They distinguish signed from
    unsigned integers. With single bits an element of the product is the number of ones in the `xor`, or the `and`, of a
    row of A and a column of B. `maps` are indexing maps over the loops of the product, of which the last three are m, n
    and k. Without `maps`, A, B and D are row-major. C has the layout of D. Loops before m, n and k are a batch: all of
    them index D, and those along which their matrices differ index A and B. After the batch there may be loops that
    index A and B, but not D. The product is summed over these loops, as over k.

    A and B are memory, or the result of an operation that makes another form of operand: a sparse A (`warp.sparse`), A
    and B with scales (`warp.scaled`), or a B of integers (`warp.stored`)::

        %sparse = warp.sparse %A, %E : memref<256x96xf16>, memref<16x96xi32>
        warp.matmul f16 x f16 %sparse, %B init 0.0 : f32 into %D : !warp.operand<memref<256x96xf16>>, memref<...>, ...

    An epilogue computes the elements of D from those of the product. Its arguments are the element of the product,
    rounded to the type of the first argument, and one element of each epilogue operand. It yields the element of D::

        warp.matmul bf16 x bf16 %A, %B init 0.0 : f32 into %D with %bias maps [..., affine_map<(m, n, k) -> (n)>]
            : memref<...>, memref<...>, memref<256x320xbf16>, memref<320xf32> epilogue(%x: f32, %b: f32) {
          %sum = arith.addf %x, %b : f32
          %y = arith.truncf %sum : f32 to bf16
          warp.yield %y : bf16
        }

    An epilogue operand is memory, indexed by any loops except k, or a number, whose map has no results. It may be D,
    with the map of D.

    In a kernel the operation computes the tile of one CTA, `... into %D tile [%m, %n] ...`. The tile has the size of
    the schedule's CTA tile, and its first element has these indices.
    """

    name = "warp.matmul"

    a = operand_def(FACTOR)
    b = operand_def(FACTOR)
    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    epilogue_operands = var_operand_def()
    tile = var_operand_def(IndexType())
    init = opt_prop_def(Number)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    epilogue = opt_region_def()

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), IsolatedFromAbove())
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
        epilogue_operands: Sequence[SSAValue] = (),
        epilogue: Region | None = None,
        words: Sequence[str] = (),
        tile: Sequence[SSAValue] = (),
    ):
        """`words` are those of the text before the types."""
        super().__init__(
            operands=[a, b, [c] if c else [], d, list(epilogue_operands), list(tile)],
            properties={
                "types": ArrayAttr([StringAttr(t) for t in types]),
                "init": init,
                "indexing_maps": ArrayAttr([AffineMapAttr(m) for m in maps]),
                **word_properties(words),
            },
            regions=[[] if epilogue is None else [epilogue]],
        )

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of A, B, D and the epilogue operands."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def group_scales(self) -> SSAValue | None:
        """The scales of groups along k of a B of integers; their dimensions run along those of B."""
        return group_scales_of(self.b)

    @property
    def outer(self) -> int:
        """How many loops there are before m, n and k."""
        return self.maps[0].num_dims - len(OPERAND_LOOPS)

    @property
    def batch(self) -> int:
        """How many of these D runs along: the first ones. The others are summed over."""
        return len([loop for loop in loops_of(self.maps[2]) if 0 <= loop < self.outer])

    @property
    def product_type(self) -> TypeAttribute:
        """The type that an element of the product is rounded to: D's, or what the epilogue takes."""
        return product_type(self.d, self.epilogue)

    def verify_(self) -> None:
        if (self.c is None) == (self.init is None):
            raise VerifyException("expected the product to start either from C or from a constant")
        if len(self.tile) not in (0, 2):
            raise VerifyException(f"expected the row and the column of a tile of D, got {len(self.tile)} indices")
        verify_epilogue(self.d, self.epilogue, self.epilogue_operands, loops_of(self.maps[2]))
        self._verify_types()
        self._verify_maps()
        verify_like(self.c, self.d)

    def _verify_types(self) -> None:
        self.verify_names()
        self.verify_forms()
        for multiplied, operand, form in zip(self.multiplied, (self.a, self.b), self.forms, strict=True):
            if form is None:
                verify_held(memory_of(operand), multiplied)
            else:
                form.verify_multiplied(multiplied)
        self.verify_words()
        if self.init is not None and self.init.type != self.product_type:
            whose = "D's element type" if self.epilogue is None else "the type that the epilogue takes"
            raise VerifyException(f"expected an initial value of {whose}, got {self.init.type}")

    def _verify_maps(self) -> None:
        operands, epilogue_operands = (*self.matrices, self.d), self.maps[len(OPERAND_LOOPS) :]
        if len(self.maps) != len(operands) + len(self.epilogue_operands):
            also = f" and {len(self.epilogue_operands)} epilogue operands" if self.epilogue_operands else ""
            raise VerifyException(f"expected indexing maps of A, B and D{also}, got {len(self.maps)}")
        sizes = LoopSizes({self.outer + loop: axis for axis, loop in zip("mnk", (M, N, K), strict=True)})
        for name, loops, map_, operand in zip("ABD", OPERAND_LOOPS, self.maps, operands, strict=False):
            verify_map(name, loops, map_, self.outer, self.batch)
            sizes.add(name, operand, loops_of(map_), self._shape_of_a() if name == "A" else None)
        for number, form in enumerate(self.forms):
            if form is not None:
                loops = loops_beside(self.maps[number], (M, N)[number], self.outer)
                order = [loops.index(loop) for loop in loops_of(self.maps[number])]
                lengths = [sizes[loop] for loop in loops]
                form.verify_sizes("AB"[number], self.multiplied[number], self.variant, lengths, order)
        for number, (map_, operand) in enumerate(zip(epilogue_operands, self.epilogue_operands, strict=True)):
            verify_along(f"epilogue operand {number}", map_, self.maps[2].num_dims, loops_of(self.maps[2]))
            sizes.add(f"epilogue operand {number}", operand, loops_of(map_))
            if operand == self.d and map_ != self.maps[2]:
                raise VerifyException("expected D as an epilogue operand to be indexed as D is")

    def _shape_of_a(self) -> list[int]:
        """The shape of A, with the elements of a sparse one that are not stored."""
        shape, k = list(shape_of(self.matrices[0])), loops_of(self.maps[0]).index(self.outer + K)
        if k < len(shape) and shape[k] >= 0:
            shape[k] *= self.sparsity
        return shape

    @classmethod
    def parse(cls, parser: Parser) -> MatmulOp:
        words: list[str] = []
        while (word := parser.parse_optional_keyword_in(WORD_CHOICES)) is not None:
            words.append(word)
        types = [parser.parse_identifier(" as the type of A")]
        parser.parse_keyword("x")
        types.append(parser.parse_identifier(" as the type of B"))
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
        init: Attribute | None = None
        if parser.parse_optional_keyword("init"):
            init = parser.parse_attribute()
        elif parser.parse_optional_keyword("plus"):
            operands.append(parser.parse_unresolved_operand())
        has_c = len(operands) > 2
        parser.parse_keyword("into")
        operands.append(parser.parse_unresolved_operand())
        fixed = len(operands)
        if parser.parse_optional_keyword("with"):
            operands += parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        square = parser.Delimiter.SQUARE
        has_tile = parser.parse_optional_keyword("tile") is not None
        tile = parser.parse_comma_separated_list(square, parser.parse_unresolved_operand) if has_tile else []
        maps: Attribute = ArrayAttr([AffineMapAttr(m) for m in DEFAULT_MAPS])
        if parser.parse_optional_keyword("maps"):
            maps = parser.parse_attribute()
        if not isa(maps, ArrayAttr[AffineMapAttr]):
            parser.raise_error(f"expected maps to be a list of affine maps, got {maps}", position)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types_of = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(types_of) != len(operands):
            parser.raise_error(f"expected a type for each of {len(operands)} operands, got {len(types_of)}", position)
        values = parser.resolve_operands(operands, types_of, position)
        if init is not None and not isa(init, Number):
            parser.raise_error(f"expected the initial value to be a number, got {init}", position)
        epilogue = parse_elements(parser) if parser.parse_optional_keyword("epilogue") else None
        op = cls(
            *(values[0], values[1], values[fixed - 1], types),
            c=values[2] if has_c else None,
            init=init,
            maps=[attribute.data for attribute in maps],
            epilogue_operands=values[fixed:],
            epilogue=epilogue,
            words=words,
            tile=parser.resolve_operands(tile, [IndexType()] * len(tile), position),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {' '.join((*self.words, ' x '.join(self.multiplied)))} ")
        printer.print_list((self.a, self.b), printer.print_ssa_value)
        if self.init is not None:
            printer.print_string(" init ")
            printer.print_attribute(self.init)
        if self.c is not None:
            printer.print_string(" plus ")
            printer.print_ssa_value(self.c)
        printer.print_string(" into ")
        printer.print_ssa_value(self.d)
        if self.epilogue_operands:
            printer.print_string(" with ")
            printer.print_list(self.epilogue_operands, printer.print_ssa_value)
        if self.tile:
            printer.print_string(" tile ")
            with printer.in_square_brackets():
                printer.print_list(self.tile, printer.print_ssa_value)
        if self.maps != DEFAULT_MAPS:
            printer.print_string(" maps ")
            printer.print_attribute(self.indexing_maps)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types[: len(self.operands) - len(self.tile)], printer.print_attribute)
        if self.epilogue is not None:
            printer.print_string(" epilogue")
            print_elements(printer, self.epilogue)
