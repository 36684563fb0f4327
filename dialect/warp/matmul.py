"""`warp.matmul`: a whole matrix product on memory, with all that is done to it on the way out.

Every way to write a product in `linalg` is raised to this one operation, so that the passes after it read one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
)
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of
from .endings import WithEpilogue
from .factors import FACTOR, FactorsOp, FactorTypes
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
    verify_map,
)
from .operand_forms import verify_held
from .product import word_properties
from .stored import group_scales_of
from .text import TypeOfOptional

FASTMATH = "warp.fastmath"
"""The attribute with the `fastmath` flags of the additions of a product, on `linalg` operations without a body of their
own, too."""

USUAL = "warp.usual"
"""The attribute that says how many rows and columns a product usually has whose sizes are not known: two numbers."""

Number: TypeAlias = FloatAttr | IntegerAttr


def _maps(maps: Sequence[AffineMap]) -> ArrayAttr[AffineMapAttr]:
    return ArrayAttr([AffineMapAttr(map_) for map_ in maps])


@irdl_op_definition
class MatmulOp(FactorsOp, WithEpilogue):
    """D = C + A * B, or D = init + A * B, on matrices in memory.

    Printed as::

        warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D : memref<256x192xf16>, memref<192x320xf16>, memref<...>
        warp.matmul bf16 x bf16 %A, %B plus %C into %C maps [...] : memref<...>, memref<...>, memref<...>, memref<...>
        warp.matmul xor b1 x b1 %A, %B init 0 : i32 into %D maps [...] : memref<256x8192xi1>, memref<320x8192xi1>, ...

    The types before the operands are the ISA types in which A and B are multiplied. They distinguish signed from
    unsigned integers. With single bits, an element of the product is the number of ones in the `xor`, or the `and`, of
    a row of A and a column of B. `maps` are indexing maps over the loops of the product, of which the last three are m,
    n and k. Without `maps`, A, B and D are row-major. C has the layout of D. Loops before m, n and k are a batch. All
    of them index D. They index A or B if its matrices differ along the loop. After the batch there may be loops that
    index A and B, but not D. The product is summed over these loops, as over k.

    A and B are memory, or the result of an operation that defines another form of operand: a sparse A (`warp.sparse`),
    A and B with scales (`warp.scaled`), or a B of integers (`warp.stored`)::

        %sparse = warp.sparse %A, %E : memref<256x96xf16>, memref<16x96xi32>
        warp.matmul f16 x f16 %sparse, %B init 0.0 : f32 into %D : !warp.operand<memref<256x96xf16>>, memref<...>, ...

    An epilogue, which `warp.pointwise` defines, computes the elements of D from those of the product, rounded to the
    type that the epilogue takes. Its operands may be indexed by any loops except k. One operand may be D, with the map
    of D::

        warp.matmul bf16 x bf16 %A, %B init 0.0 : f32 into %D through %gelu : memref<...>, memref<...>, memref<...>

    If sizes are dynamic, `{warp.usual = array<i64: 64, 4096>}` gives the usual numbers of rows and columns of D. It
    affects only the choice of a schedule. The product is correct for all sizes.

    `{warp.fastmath = #arith.fastmath<afn>}` are the flags of the additions in the body of the product. With `afn`, sums
    may be approximate: of 8-bit floats, those that the instruction cuts short.

    In a kernel, the operation computes the tile of one CTA, `... into %D tile [%m, %n] ...`. The tile has the size of
    the schedule's CTA tile, and its first element has these indices.
    """

    name = "warp.matmul"

    a = operand_def(FACTOR)
    b = operand_def(FACTOR)
    tile = var_operand_def(IndexType())
    init = opt_prop_def(Number)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=_maps(DEFAULT_MAPS))

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    custom_directives: ClassVar = (FactorTypes, TypeOfOptional)
    assembly_format = (
        "custom<FactorTypes>($types, $bit_op, $kind) $a `,` $b (`init` $init^)? (`plus` $c^)? `into` $d"
        " (`through` $through^)? (`tile` `[` $tile^ `]`)? (`maps` $indexing_maps^)? attr-dict"
        " `:` type($a) `,` type($b) `,` type($d) custom<TypeOfOptional>(`plus`, type($c))"
    )

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
        through: SSAValue | None = None,
        words: Sequence[str] = (),
        tile: Sequence[SSAValue] = (),
    ):
        """`words` are those of the text before the types."""
        super().__init__(
            operands=[a, b, list(tile), c, d, through],
            properties={
                "types": ArrayAttr([StringAttr(t) for t in types]),
                "init": init,
                "indexing_maps": _maps(maps),
                **word_properties(words),
            },
        )

    @property
    def usual(self) -> dict[int, int]:
        """How large loops usually are that are not known, by their numbers, if that is said."""
        found = self.attributes.get(USUAL)
        if not isinstance(found, DenseArrayBase):
            return {}
        return dict(zip((self.outer + M, self.outer + N), found.get_values(), strict=False))

    @property
    def is_approximate(self) -> bool:
        """Whether sums may be approximate."""
        flags = self.attributes.get(FASTMATH)
        return isinstance(flags, FastMathFlagsAttr) and FastMathFlag.APPROX_FUNC in flags.data

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of A, B and D."""
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
    def memories(self) -> list[SSAValue]:
        """All memory that is read or written, and numbers."""
        return [*self.factors, *([] if self.c is None else [self.c]), self.d, *self.epilogue_operands]

    def verify_(self) -> None:
        if (self.c is None) == (self.init is None):
            raise VerifyException("expected the product to start either from C or from a constant")
        if len(self.tile) not in (0, 2):
            raise VerifyException(f"expected the row and the column of a tile of D, got {len(self.tile)} indices")
        self._verify_types()
        self._verify_maps()

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
        operands = (*self.matrices, self.d)
        if len(self.maps) != len(operands):
            raise VerifyException(f"expected indexing maps of A, B and D, got {len(self.maps)}")
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
        self.verify_stored(self.maps[2].num_dims, loops_of(self.maps[2]), sizes)
        if any(operand == self.d and map_ != self.maps[2] for operand, map_ in self.placed_operands):
            raise VerifyException("expected D as an epilogue operand to be indexed as D is")

    def _shape_of_a(self) -> list[int]:
        """The shape of A, with the elements of a sparse one that are not stored."""
        shape, k = list(shape_of(self.matrices[0])), loops_of(self.maps[0]).index(self.outer + K)
        if k < len(shape) and shape[k] >= 0:
            shape[k] *= self.sparsity
        return shape
