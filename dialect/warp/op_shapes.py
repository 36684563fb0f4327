"""Shapes that many operations share: operands, products' among them, result, effects, and the parts of their text."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IntAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    IRDLOperation,
    OpDef,
    OptionalDef,
    ParamAttrConstraint,
    ParsePropInAttrDict,
    ResultDef,
    VarConstraint,
    VerificationContext,
    base,
    irdl_attr_definition,
    result_def,
    traits_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    FormatDirective,
    OptionalOperandVariable,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffectKind, Pure, get_effects, is_side_effect_free
from xdsl.utils.exceptions import VerifyException

from ..isa.form import ELEMENT_TYPES, ElementType, Form
from ..isa.mma import Variant
from ..layouts.layout import Bit, Layout
from .attributes import (
    SHARED_SPACE,
    FragmentType,
    Memory,
    SwizzleAttr,
    element_row,
    known_element,
    memory_of,
    target_of,
)

# What operations do to memory, with what xDSL 0.74 leaves unsaid of `arith`.


def is_pure(op: Operation) -> bool:
    """Whether an operation neither reads nor writes memory."""
    return is_side_effect_free(op) or isinstance(op, arith.RemUIOp | arith.ExtSIOp)


def only_reads(op: Operation, memory: SSAValue | None = None) -> bool:
    """Whether all that an operation may do to memory, or to one `memory` and through views of it, is to read it."""
    effects = frozenset[EffectInstance]() if is_pure(op) else get_effects(op)
    views = [each for each in op.results if memory is not None and isinstance(each.type, MemRefType)]
    return (
        effects is not None
        and all(one.kind == MemoryEffectKind.READ or one.value not in (None, memory) for one in effects)
        and all(only_reads(use.operation, view) for view in views for use in view.uses)
    )


@irdl_custom_directive
class BareWord(CustomDirective):
    """A text that stands without quotes, as `bulk` in `warp.commit bulk`; or none, where it is optional."""

    attribute: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        optional = self.attribute.is_optional
        word = parser.parse_optional_identifier() if optional else parser.parse_identifier(" as a word of the text")
        if word is not None:
            self.attribute.set(state, StringAttr(word))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if isinstance(word := self.attribute.get(op), StringAttr):
            state.print_whitespace(printer)
            printer.print_string(word.data)
            state.should_emit_space = True


@irdl_custom_directive
class TypeOfOptional(CustomDirective):
    """The type of an optional operand, with the text before it: ` plus memref<256x320xf32>`."""

    before: FormatDirective
    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        start, operand = parser.pos, self.type.inner
        self.before.parse_optional(parser, state)
        is_present = isinstance(operand, OptionalOperandVariable) and bool(state.operands[operand.index])
        if is_present != (parser.pos > start):
            name = operand.name if isinstance(operand, OptionalOperandVariable) else "it"
            parser.raise_error(
                f"expected {'the' if is_present else 'no'} type of {name}, which is {'' if is_present else 'not '}given"
            )
        self.type.set(state, (parser.parse_type(),) if is_present else ())

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if self.type.get(op):
            self.before.print(printer, state, op)
            self.type.print(printer, state, op)


FieldValue: TypeAlias = (
    SSAValue | Attribute | Region | AffineMap | str | int | Sequence[SSAValue] | Sequence[int] | Sequence[str]
    | Sequence[AffineMap] | None
)  # fmt: skip
"""What may be given for a field: an operand or several, the type of a result, a region, or what a property says."""


def property_of(value: FieldValue) -> Attribute | None:
    """What a property says, as its attribute: a flag, an integer of 64 bits, a word, a map, or several of these. None
    of what is left out: False, no text, nothing of several."""
    match value:
        case None:
            return None
        case bool():
            return UnitAttr() if value else None
        case int():
            return IntegerAttr(value, i64)
        case str():
            return StringAttr(value) if value else None
        case AffineMap():
            return AffineMapAttr(value)
        case Sequence():
            if value and isinstance(value[0], int):
                return DenseArrayBase.from_list(i64, [each for each in value if isinstance(each, int)])
            return ArrayAttr([made for each in value if (made := property_of(each)) is not None]) if value else None
        case _:
            return value if isinstance(value, Attribute) else None


class WarpOp(IRDLOperation):
    """An operation that is made of its fields: operands, results, properties and regions, in the order in which its
    class has them, or by name. An operand or a property that may be missing may be left out, and a result of the only
    type that it can have."""

    irdl_options = (ParsePropInAttrDict(),)
    custom_directives: ClassVar = (BareWord, TypeOfOptional)

    def __init__(self, *values: FieldValue, **named: FieldValue) -> None:
        definition, (fields, properties) = self.get_irdl_definition(), _fields(type(self))
        if len(values) > len(fields) or not named.keys() <= fields.keys():
            raise TypeError(f"{self.name} has the fields {', '.join(fields)}, got {len(values)} and {', '.join(named)}")
        by_name: dict[str, Any] = dict(zip(fields, values, strict=False)) | named
        super().__init__(
            operands=[by_name.get(name) for name, _ in definition.operands],
            result_types=[
                kind if (kind := by_name.get(name)) is not None else _inferred(each, by_name, definition)
                for name, each in definition.results
            ],
            properties={name: property_of(by_name.get(field)) for field, name in properties.items()},
            regions=[by_name[name] for name, _ in definition.regions],
        )

    def like(self, **changes: Any) -> Self:
        """The same operation with its attributes and location, except for the given fields."""
        definition, (fields, properties) = self.get_irdl_definition(), _fields(type(self))
        if not changes.keys() <= fields.keys():
            raise TypeError(f"{self.name} has the fields {', '.join(fields)}, got {', '.join(changes)}")
        said = {properties[field]: property_of(value) for field, value in changes.items() if field in properties}
        made = self.build(
            operands=[changes.get(name, getattr(self, name)) or () for name, _ in definition.operands],
            result_types=[changes.get(name) or getattr(self, name).type for name, _ in definition.results],
            properties={name: said.get(name, self.properties.get(name)) for name in properties.values()},
            attributes=self.attributes,
            regions=[changes.get(name) or getattr(self, name).clone() for name, _ in definition.regions],
        )
        made.location = self.location
        return made


@cache
def _fields(kind: type[WarpOp]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The fields of an operation, first those of its class; and its properties, first those of its base, by what they
    are called in the text."""
    definition = kind.get_irdl_definition()
    names = {name: name for part in (definition.operands, definition.results, definition.regions) for name, _ in part}
    renamed = {field: name for field, (name, _) in definition.accessor_names.items()}
    names |= {name: name for name in definition.properties if name not in renamed.values()} | renamed
    fields = [{field: names[field] for field in vars(base) if field in names} for base in kind.__mro__]
    properties = {
        field: name for own in reversed(fields) for field, name in own.items() if name in definition.properties
    }
    return {field: name for own in fields for field, name in own.items()}, properties


def _inferred(result: ResultDef, by_name: Mapping[str, Any], definition: OpDef) -> Sequence[Attribute]:
    """The type of a result that is not given, by its constraint and those of the operands; none if it is optional."""
    if isinstance(result, OptionalDef):
        return ()
    context = VerificationContext()
    for name, operand in definition.operands:
        if isinstance(value := by_name.get(name), SSAValue) and operand.constr.variables():
            operand.constr.verify((cast(SSAValue, value).type,), context)
    return result.constr.infer(context, length=1)


def same_words(a: Attribute, b: Attribute) -> bool:
    """Whether memory of one type may be read as the other: integers of any signedness, and f32 with tf32."""
    if a == b:
        return True
    first, second = element_row(a), element_row(b)
    if first is None or second is None or first.bits != second.bits:
        return False
    return not (first.is_float or second.is_float) or {first.name, second.name} == {"f32", "tf32"}


def bounds(in_bounds: ArrayAttr[BoolAttr] | None) -> tuple[bool, bool]:
    """Whether rows and columns are known to be inside of the memref; both False without the property."""
    if in_bounds is None:
        return False, False
    flags = tuple(bool(flag) for flag in in_bounds)
    if len(flags) != 2:
        raise VerifyException(f"expected in_bounds for rows and columns, got {len(flags)} flags")
    return flags[0], flags[1]


def bounds_attribute(rows: bool, columns: bool) -> ArrayAttr[BoolAttr] | None:
    """The property `in_bounds`; None if neither dimension is known to be in bounds."""
    return ArrayAttr([BoolAttr.from_bool(rows), BoolAttr.from_bool(columns)]) if rows or columns else None


def element_of(value: SSAValue) -> ElementType:
    """The ISA's element type of a fragment, or of memory. Raises VerifyException if it has none."""
    kind = value.type
    return kind.element if isinstance(kind, FragmentType) else known_element(memory_of(value).element_type)


def verify_one_warp(what: str, fragment: FragmentType) -> None:
    """Checks that one warp holds a fragment. Raises VerifyException if several warps hold it; `what` names the
    operand."""
    if (warps := 1 << len(fragment.layout.data.warp)) > 1:
        raise VerifyException(f"expected {what} that one warp holds, got that of {warps} warps {fragment}")


def verify_target(op: IRDLOperation, row: Form) -> None:
    """Checks that the target of the module has the instruction. Raises VerifyException: saying where it runs."""
    target = target_of(op)
    if target is not None and not row.runs_on(target):
        raise VerifyException(f"{row.spelling} needs {row.requirement()}, the module's target is {target}")


class CountedType(ParametrizedAttribute, TypeAttribute, ABC):
    """A type of a number of equal objects: `!warp.barriers<8>`."""

    count: IntAttr

    COUNTED: ClassVar[str]

    @classmethod
    def of(cls, count: int) -> Self:
        return cls(IntAttr(count))

    def verify(self) -> None:
        if self.count.data < 1:
            raise VerifyException(f"expected at least one {self.COUNTED}, got {self.count.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer(allow_boolean=False))]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.count.data))


class TilePart(NamedTuple):
    """`span` of the equal `parts` that the rows of a tile have (`axis` 0), or its columns (1), from `number` on."""

    number: int = 0
    parts: int = 1
    axis: int = 0
    span: int = 1

    @property
    def property(self) -> DenseArrayBase | None:
        """The property of an operation that says which part it is; None for the whole tile."""
        fields = 4 if self.span > 1 else 3 if self.axis else 2
        return None if self.parts == 1 else DenseArrayBase.from_list(i64, self[:fields])

    def first(self, extent: int) -> int:
        """The first of so many rows or columns of the tile that it has."""
        return extent // self.parts * self.number

    def extent(self, extent: int) -> int:
        """How many of so many rows or columns of the tile it has."""
        return extent // self.parts * self.span


WHOLE_TILE = TilePart()


# Fragments and memory.
#
# Indices name the element at the fragment's first row and column. A fragment of role b is k x n whatever the memory
# looks like; `swapped` says that memory holds the transpose.


def tile_type(
    element: Attribute,
    shape: Sequence[int],
    layout: SwizzleAttr | StridedLayoutAttr | None = None,
    space: int = SHARED_SPACE,
) -> Memory:
    """The type of a tile in shared memory, row by row unless it has another layout."""
    return MemRefType(element, shape, layout or NoneAttr(), IntegerAttr(space, i64))


def in_memory(fragment: FragmentType, swapped: bool) -> Layout:
    """The fragment's layout by the rows and columns of memory. With `swapped`, memory holds the transposed matrix."""
    layout = fragment.layout.data
    if fragment.role.data == "scale":
        # The byte of a word is a further bit along k.
        along = "c" if any(bit.axis == "r" for bit in layout.lane) else "r"
        vector = sum(bit.axis == along for bit in layout.element)
        element = tuple(Bit(along, vector + bit.number) if bit.axis == "b" else bit for bit in layout.element)
        layout = Layout(layout.lane, element, layout.warp)
    return layout.transposed() if swapped else layout


def verify_indices(what: str, memory: Memory, indices: Sequence[SSAValue]) -> None:
    """Checks that there is one index for each dimension of a memref of rank 2 or more."""
    rank = memory.get_num_dims()
    if rank < 2:
        raise VerifyException(f"expected {what} to have at least 2 dimensions, got {memory}")
    if len(indices) != rank:
        raise VerifyException(f"expected one index for each of the {rank} dimensions of {what}, got {len(indices)}")


def verify_element(memory: Memory, fragment: FragmentType) -> None:
    if memory.element_type != fragment.element_type:
        raise VerifyException(
            f"expected memory of the fragment's element type {fragment.element_type}, got {memory.element_type}"
        )


# Operands of products that are more than their elements in memory: `!warp.operand`, and what makes one.
#
# Each form is an operation: a sparse matrix has metadata, blocks have scales, and integers are converted (`stored.py`).
# A product takes the value that it makes in the matrix's place.


@irdl_attr_definition
class OperandType(ParametrizedAttribute, TypeAttribute):
    """The type of an operand with a form, such as a sparse matrix. Its elements are in memory of the given type:
    `!warp.operand<memref<256x96xf16>>`."""

    name = "warp.operand"

    memory: MemRefType


MEMORY = VarConstraint("Memory", base(MemRefType))


class OperandForm(WarpOp):
    """A form in which a product reads A or B. The first operand is the matrix in memory. The others are read with
    it."""

    operand = result_def(ParamAttrConstraint(OperandType, (MEMORY,)))

    traits = traits_def(Pure())

    SIDES: ClassVar = "AB"
    """The operands of a product that may be of this form."""

    @property
    def matrix(self) -> SSAValue:
        """The elements in memory."""
        return self.operands[0]

    @property
    def sparsity(self) -> int:
        """How many elements the matrix has along k for each in memory."""
        return 1

    @property
    def side_operands(self) -> Sequence[SSAValue]:
        """Operands other than the elements."""
        return self.operands[1:]

    def of(self, memory: SSAValue, side_operands: Sequence[SSAValue]) -> OperandForm:
        """The same form on other memory."""
        names = [name for name, _ in self.get_irdl_definition().operands]
        operands = dict.fromkeys(names) | dict(zip(names, (memory, *side_operands), strict=False))
        return self.like(operand=OperandType(memory_of(memory)), **operands)

    def verify_multiplied(self, name: str) -> None:
        """Checks that a product can use the elements as an ISA type of that name. Raises VerifyException if it
        cannot."""
        verify_element_type(memory_of(self.matrix), name)

    def verify_sizes(
        self, side: str, multiplied: str, variant: Variant, sizes: Sequence[int], order: Sequence[int]
    ) -> None:
        """Checks the operands that are read with the elements of A or B (`side`), which is multiplied as a type.
        `sizes` are the sizes of the batch, of rows of A or columns of B, and of k; dynamic ones are negative. `order`
        says which of them each dimension of the matrix has. Raises VerifyException with the expected number."""


def form_of(value: SSAValue) -> OperandForm | None:
    """The form of an operand of a product; None of one that is all in memory, or in registers."""
    return value.owner if isinstance(value.owner, OperandForm) else None


def matrix_behind(value: SSAValue) -> SSAValue:
    """The elements of an operand of a product: memory, or registers."""
    form = form_of(value)
    return value if form is None else form.matrix


def memories_behind(value: SSAValue) -> tuple[SSAValue, ...]:
    """The memory of an operand of a product, with that of its scales, zero points and the like."""
    form = form_of(value)
    return (value,) if form is None else (form.matrix, *form.side_operands)


def of_form(
    form: OperandForm | None,
    memory: SSAValue,
    side_operands: Sequence[SSAValue],
    insert: Callable[[OperandForm], object],
) -> SSAValue:
    """A factor of other memory in the given form, or that memory itself if there is no form. `insert` inserts the new
    operation."""
    if form is None:
        return memory
    made = form.of(memory, side_operands)
    made.operand.name_hint = form.operand.name_hint
    insert(made)
    return made.operand


def verify_element_type(memory: Memory, name: str) -> None:
    """Checks that memory has elements of a type of the ISA, or of the same bits. Raises VerifyException if it has
    not."""
    if not _holds(element_row(memory.element_type), ELEMENT_TYPES[name]):
        raise VerifyException(f"{memory} cannot be multiplied as {name}")


def _holds(row: ElementType | None, multiplied: ElementType) -> bool:
    if row is None or multiplied.name == "tf32":
        return row is not None and row.name == "f32"
    return row == multiplied or (not (row.is_float or multiplied.is_float) and row.bits == multiplied.bits)
