"""`warp.matmul`: a matrix product on memory with its epilogue; and what it shares with `warp.tile_mma`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
)
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    IRDLOperation,
    base,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES, KIND_F8F6F4, KIND_MXF4, KIND_MXF4NVF4, KIND_MXF8F6F4
from ..isa.mma import Variant, blocks
from ..mlir.affine import allows, loops_of
from ..mlir.words import irdl_op_definition
from .attributes import BYTE, SCALES, element_row, memory_of
from .elements import (
    DEFAULT_MAPS,
    OPERAND_LOOPS,
    K,
    LoopSizes,
    M,
    N,
    PointwiseOp,
    WithEpilogue,
    companion_loops,
    shape_of,
    verify_map,
)
from .op_shapes import (
    FieldValue,
    OperandForm,
    OperandType,
    TypeOfOptional,
    WarpOp,
    form_of,
    matrix_behind,
    verify_element_type,
)
from .operands import PairedOp, ScaledOp, SparseOp, grouped_loop, verify_groups
from .stored import StoredIntegers, StoredOp

# What `warp.matmul` and `warp.tile_mma` share: the types that A and B are multiplied as, and the words for how.

WORDS = {"bit_op": ("xor", "and"), "kind": (KIND_F8F6F4, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4)}
"""The properties that are words before the types, in this order, and what they may say."""


@irdl_custom_directive
class FactorTypes(CustomDirective):
    """The text that says how A and B are multiplied: words such as `xor`, then types of the ISA, as in `f16 x f16`."""

    types: AttributeVariable
    bit_op: AttributeVariable
    kind: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        for name, choices in WORDS.items():
            if (word := parser.parse_optional_keyword_in(choices)) is not None:
                state.properties[name] = StringAttr(word)
        types = [parser.parse_identifier(" as the type of A")]
        parser.parse_keyword("x")
        types.append(parser.parse_identifier(" as the type of B"))
        state.properties["types"] = ArrayAttr(map(StringAttr, types))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(op, FactorsOp):
            state.print_whitespace(printer)
            printer.print_string(" ".join((*op.words, " x ".join(op.multiplied))))
            state.should_emit_space = True


STORED_AS = {scaled: scale for scale, scaled in SCALES.items()}
"""The type of scales that memory of another type holds."""


def scale_type(scales: Sequence[SSAValue]) -> str:
    """The ISA's name of the type of scales; "" if there are none, or the ISA has no such type."""
    row = element_row(memory_of(scales[0]).element_type) if scales else None
    return "" if row is None else STORED_AS.get(row.name, row.name)


def verify_scaling(variant: Variant, scales: Sequence[SSAValue]) -> None:
    """Checks the number and the type of the scales of a kind of product. Raises VerifyException: saying what the kind
    takes."""
    if not (scales or variant.kind):
        return
    legal = [v.scale_type for v in blocks() if v.kind == variant.kind]
    if not scales:
        if legal:
            raise VerifyException(f"expected scales of A and B for kind {variant.kind}")
        return
    kinds = dict.fromkeys(v.kind for v in blocks())
    if not legal:
        raise VerifyException(f"expected a kind for scales, {', '.join(kinds)}; got '{variant.kind}'")
    if len(scales) != 2:
        raise VerifyException(f"expected scales of A and of B, got {len(scales)} operands")
    first, second = (memory_of(value).element_type for value in scales)
    if first != second:
        raise VerifyException(f"expected scales of A and B of one type, got {first} and {second}")
    if variant.scale_type not in legal:
        stored = " or ".join(ELEMENT_TYPES[SCALES.get(scale, scale)].mlir for scale in legal)
        raise VerifyException(f"expected scales of {stored} for {variant.kind}, got {first}")


FACTOR = base(MemRefType) | base(OperandType)
"""The types of A and B in memory."""


class FactorsOp(WarpOp):
    """An operation that multiplies A and B, each in memory or given by an `OperandForm`."""

    types = prop_def(ArrayAttr[StringAttr])
    bit_op = opt_prop_def(StringAttr)
    kind = opt_prop_def(StringAttr)

    @property
    def a_and_b(self) -> tuple[SSAValue, SSAValue]:
        """A and B, each in memory, in registers, or of a form: the first two operands."""
        return self.operands[0], self.operands[1]

    @property
    def forms(self) -> tuple[OperandForm | None, OperandForm | None]:
        """The forms of A and of B; None of what is all in memory, or in registers."""
        a, b = self.a_and_b
        return form_of(a), form_of(b)

    @property
    def matrices(self) -> tuple[SSAValue, SSAValue]:
        """Where the elements of A and of B are."""
        a, b = self.a_and_b
        return matrix_behind(a), matrix_behind(b)

    @property
    def factors(self) -> tuple[SSAValue, ...]:
        """The memory of A and B, with that of their scales and zero points."""
        of_forms = [value for form in self.forms if form is not None for value in form.side_operands]
        return (*self.matrices, *of_forms)

    @property
    def metadata(self) -> SSAValue | None:
        """The metadata of a sparse A."""
        form, _ = self.forms
        return form.metadata if isinstance(form, SparseOp) else None

    @property
    def scales(self) -> tuple[SSAValue, ...]:
        """The scales of A and B that instructions take, or none."""
        return tuple(form.scales for form in self.forms if isinstance(form, ScaledOp) and not form.of_any_blocks)

    @property
    def products(self) -> int:
        """The number of products of D: two if B has two matrices, otherwise one."""
        return 2 if isinstance(self.forms[1], PairedOp) else 1

    @property
    def block_scales(self) -> tuple[ScaledOp, ...]:
        """The forms of A and B whose blocks have scales of f32, or none."""
        return tuple(form for form in self.forms if isinstance(form, ScaledOp) and form.of_any_blocks)

    @property
    def weights(self) -> StoredOp | None:
        """The form of a B that is converted while it is loaded; None of any other B."""
        form = self.forms[1]
        return form if isinstance(form, StoredOp) else None

    @property
    def b_stored(self) -> StoredIntegers | None:
        """The integers that memory holds if B is converted while it is loaded; None for any other B."""
        return None if self.weights is None else self.weights.integers

    @property
    def is_packed(self) -> bool:
        """Whether B has packed weights."""
        return self.weights is not None and self.weights.packed is not None

    @property
    def multiplied(self) -> tuple[str, ...]:
        """The ISA's names of the types that A and B are multiplied as."""
        return tuple(t.data for t in self.types)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the text before the types, which say how they are multiplied."""
        properties = (self.properties.get(name) for name in WORDS)
        return tuple(word.data for word in properties if isinstance(word, StringAttr))

    @property
    def variant(self) -> Variant:
        """What distinguishes the instructions for this product from others with the same element types. Floats of 6 and
        4 bits without scales have one kind."""
        scaled = scale_type(self.scales)
        narrow = any((row := ELEMENT_TYPES[name]).is_float and row.bits < BYTE for name in self.multiplied)
        kind = self.kind.data if self.kind is not None else KIND_F8F6F4 if narrow and not scaled else ""
        return Variant("" if self.bit_op is None else self.bit_op.data, kind, scaled)

    @property
    def sparsity(self) -> int:
        """Elements of A for each stored element: 2 if A is sparse, 1 otherwise."""
        form, _ = self.forms
        return 1 if form is None else form.sparsity

    def verify_names(self) -> None:
        """Checks that A and B are multiplied as types of the ISA. Raises VerifyException naming the one that is not."""
        if len(self.multiplied) != 2:
            raise VerifyException(f"expected a type each for A and B, got {len(self.multiplied)}")
        for name, multiplied in zip("AB", self.multiplied, strict=True):
            if multiplied not in ELEMENT_TYPES:
                raise VerifyException(f"'{multiplied}' is no type of the ISA that {name} could be multiplied as")

    def verify_forms(self) -> None:
        """Checks that the forms of A and B are legal, and legal together. Raises VerifyException if they are not."""
        for side, value, form in zip("AB", self.a_and_b, self.forms, strict=True):
            if isinstance(value.type, OperandType) and form is None:
                made = value.owner.name if isinstance(value.owner, Operation) else "a block argument"
                raise VerifyException(
                    f"expected {side} from an operation that says its form, such as warp.sparse, got {made}"
                )
            if form is not None and side not in form.SIDES:
                raise VerifyException(f"expected no {side} of the form {form.name}")
        if len(self.block_scales) == 1:
            raise VerifyException("expected scales of blocks of both A and B")
        if self.b_stored is not None and (self.scales or self.metadata is not None):
            raise VerifyException("expected integers to be converted for a dense product without scales")

    def verify_words(self) -> None:
        """Checks that products of single bits, and only these, name their operation, and that the kind exists. Raises
        VerifyException with what is expected."""
        if self.kind is not None and self.kind.data not in WORDS["kind"]:
            raise VerifyException(f"expected a kind of {', '.join(WORDS['kind'])}, got '{self.kind.data}'")
        verify_scaling(self.variant, self.scales)
        ops = " or ".join(WORDS["bit_op"])
        if self.bit_op is not None and self.bit_op.data not in WORDS["bit_op"]:
            raise VerifyException(f"expected the operation on single bits to be {ops}, got '{self.bit_op.data}'")
        if (self.bit_op is not None) != (self.multiplied == ("b1", "b1")):
            raise VerifyException(f"expected {ops} before b1 x b1, and only there, got {' x '.join(self.multiplied)}")


# `warp.matmul`: a whole matrix product on memory, with all that is done to it on the way out.
#
# Every way to write a product in `linalg` is raised to this one operation, so that the passes after it read one form.

PADDED = "warp.padded"
"""Says that A or B is a window of images among zeros that are no memory, and of which."""

BY_ELEMENT = "warp.by_element"
"""On a product in `linalg`: no matrix instruction multiplies it, so that a thread adds up each element."""

FASTMATH = "warp.fastmath"
"""The attribute with the `fastmath` flags of the additions of a product, on `linalg` operations without a body of their
own, too."""

USUAL = "warp.usual"
"""The attribute that says how many rows and columns a product usually has whose sizes are not known: two numbers."""

InitialValue: TypeAlias = FloatAttr | IntegerAttr


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

    With `grouped by`, memory of i32 has where groups of rows end, and the first loop runs over the groups. If D does
    not run along it, the rows of A and D belong to groups, and the rows of a group are multiplied with its own B. If D
    does, the rows along k of A and B belong to groups, and each group has its own D. Rows behind the last end belong to
    no group: they are neither read nor written::

        warp.matmul bf16 x bf16 %A, %B init 0.0 : f32 into %D grouped by %ends
            maps [(g, m, n, k) -> (m, k), (g, m, n, k) -> (g, k, n), (g, m, n, k) -> (m, n)] : ... grouped memref<8xi32>

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
    ends = opt_operand_def(MemRefType)
    init = opt_prop_def(InitialValue)
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=ArrayAttr(map(AffineMapAttr, DEFAULT_MAPS)))

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    custom_directives: ClassVar = (FactorTypes, TypeOfOptional)
    assembly_format = (
        "custom<FactorTypes>($types, $bit_op, $kind) $a `,` $b (`init` $init^)? (`plus` $c^)? `into` $d"
        " (`grouped` `by` $ends^)? (`through` $through^)? (`tile` `[` $tile^ `]`)? (`maps` $indexing_maps^)? attr-dict"
        " `:` type($a) `,` type($b) `,` type($d) custom<TypeOfOptional>(`plus`, type($c))"
        " custom<TypeOfOptional>(`grouped`, type($ends))"
    )

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        d: SSAValue,
        types: Sequence[str],
        *,
        maps: Sequence[AffineMap] = DEFAULT_MAPS,
        **others: FieldValue,
    ):
        super().__init__(a, b, d=d, types=types, indexing_maps=maps, **others)

    def like(self, *, start: SSAValue | InitialValue | None = None, **changes: Any) -> Self:
        """The same product with its attributes and location, except for the given fields. `start` is C, or the number
        that it starts from."""
        if start is not None:
            c, init = (start, None) if isinstance(start, SSAValue) else (None, start)
            changes = {"c": c, "init": init, **changes}
        return super().like(**changes)

    @property
    def usual(self) -> dict[int, int]:
        """The usual sizes of dynamic loops, by number, if the operation has them."""
        usual = self.attributes.get(USUAL)
        if not isinstance(usual, DenseArrayBase):
            return {}
        return dict(zip((self.outer + M, self.outer + N), usual.get_values(), strict=False))

    @property
    def is_approximate(self) -> bool:
        """Whether sums may be approximate."""
        return allows(self.attributes.get(FASTMATH), "afn")

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of A, B and D."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def group_scales(self) -> SSAValue | None:
        """The scales of groups along k of a B of integers; their dimensions run along those of B."""
        return None if self.weights is None else self.weights.scales

    @property
    def zero_points(self) -> SSAValue | None:
        """The zero points of the groups, in the layout of the scales."""
        return None if self.weights is None else self.weights.points

    @property
    def outer(self) -> int:
        """How many loops there are before m, n and k."""
        return self.maps[0].num_dims - len(OPERAND_LOOPS)

    @property
    def grouped(self) -> int | None:
        """The loop, M or K, whose indices belong to groups; None of a product without groups."""
        return None if self.ends is None else grouped_loop(self.maps)

    @property
    def batch(self) -> int:
        """How many of these D, or the groups of its rows, run along: the first ones. The others are summed over."""
        return 1 if self.grouped == M else sum(0 <= loop < self.outer for loop in loops_of(self.maps[2]))

    @property
    def memories(self) -> list[SSAValue]:
        """All memory that is read or written, and numbers."""
        others = [value for value in (self.ends, self.c) if value is not None]
        return [*self.factors, *others, self.d, *self.epilogue_operands]

    def verify_(self) -> None:
        if (self.c is None) == (self.init is None):
            raise VerifyException("expected the product to start either from C or from a constant")
        if (taken := 1 if self.epilogue is None else self.epilogue.products) != self.products:
            raise VerifyException(f"expected an epilogue of {self.products} products, got one of {taken}")
        if self.products > 1 and self.c is not None:
            raise VerifyException("expected two products to start from a constant, got C")
        if len(self.tile) not in (0, 2):
            raise VerifyException(f"expected the row and the column of a tile of D, got {len(self.tile)} indices")
        self._verify_types()
        self._verify_maps()

    def _verify_types(self) -> None:
        self.verify_names()
        self.verify_forms()
        for multiplied, operand, form in zip(self.multiplied, (self.a, self.b), self.forms, strict=True):
            if form is None:
                verify_element_type(memory_of(operand), multiplied)
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
            if self.ends is None:
                verify_map(name, loops, map_, self.outer, self.batch)
            if name == "B" and self.is_packed:
                continue  # whose lines have no loops of their own
            sizes.add(name, operand, loops_of(map_), self._shape_of_a() if name == "A" else None)
        if self.ends is not None:
            if self.outer != 1 or any(form and not isinstance(form, PairedOp) for form in self.forms):
                raise VerifyException("expected one loop over groups, A in memory, and B or a pair of them in memory")
            verify_groups(self.ends, self.maps, sizes)
        for number, form in enumerate(self.forms):
            if form is not None:
                loops = companion_loops(self.maps[number], (M, N)[number], self.outer)
                order = [loops.index(loop) for loop in loops_of(self.maps[number])]
                lengths = [sizes[loop] for loop in loops]
                form.verify_sizes("AB"[number], self.multiplied[number], self.variant, lengths, order)
        along = sorted({*range(self.batch), *loops_of(self.maps[2])})
        self.verify_stored(self.maps[2].num_dims, along, sizes)
        if any(operand == self.d and map_ != self.maps[2] for operand, map_ in self.placed_operands):
            raise VerifyException("expected D as an epilogue operand to be indexed as D is")

    def _shape_of_a(self) -> list[int]:
        """The shape of A, with the elements of a sparse one that are not stored."""
        shape, k = list(shape_of(self.matrices[0])), loops_of(self.maps[0]).index(self.outer + K)
        if k < len(shape) and shape[k] >= 0:
            shape[k] *= self.sparsity
        return shape


def drop_forms(values: Sequence[SSAValue | None]) -> None:
    """Erases unused forms of operands and unused functions of elements."""
    for value in dict.fromkeys(values):
        if value is not None and isinstance(made := value.owner, OperandForm | PointwiseOp) and not value.uses:
            made.detach()
            made.erase()
