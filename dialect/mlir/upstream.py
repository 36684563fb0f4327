"""Dialects as MLIR prints them, where xDSL's lack something: `builtin`, its locations, `memref` and `arith`."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TypeVar, cast

from xdsl.dialect_interfaces.op_asm import OpAsmDialectInterface
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyDenseElement,
    AnyFloat,
    ArrayAttr,
    Builtin,
    BytesAttr,
    CallSiteLoc,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FileLineColLoc,
    FunctionType,
    FusedLoc,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NameLoc,
    RankedStructure,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
    UnitAttr,
    UnrankedMemRefType,
    i32,
    i64,
)
from xdsl.ir import Attribute, Dialect
from xdsl.ir.affine import AffineDimExpr
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.type import get_element_type_or_self

Declared = TypeVar("Declared", bound=IRDLOperation)


def declared(parent: type[Declared], name: str, text: str, summary: str = "", /, **fields: object) -> type[Declared]:
    """An operation by its name, its text in MLIR's declarative format, what it does, and its fields."""
    members = {"name": name, "assembly_format": text, "__module__": __name__, "__doc__": summary or f"`{name}`."}
    return cast("type[Declared]", irdl_op_definition(type(name, (parent,), members | fields)))


# `builtin` as MLIR prints it: xDSL's dialect, with resources that belong to the text that they stand in.


PREFIX = len("0x") + 2 * 4
"""The digits before a blob's bytes: those of its alignment, a word of 32 bits (MLIR, AsmState.h, `AsmResourceBlob`)."""


class ResourceBlobs(OpAsmDialectInterface):
    """The blobs at the end of a text: `{-# dialect_resources: { builtin: { weights: "0x04000000..." } } #-}`.

    A key names one blob of a text. xDSL's own storage is shared by all texts of a process, and renames the second.
    """

    def declare_resource(self, key: str) -> str:
        self._blob_storage.setdefault(key, "")
        return key

    def take_all(self) -> dict[str, str]:
        """The blobs with contents, by key, none of which stay here."""
        blobs, self._blob_storage = self._blob_storage, {}
        return {key: blob for key, blob in blobs.items() if blob}

    def build_resources(self, keys: Iterable[str]) -> dict[str, str]:
        """None: attributes have their contents in themselves (`embed`)."""
        return {}


def embed(module: ModuleOp, blobs: dict[str, str]) -> None:
    """Gives the attributes of operations that name a blob its elements: `dense_resource<weights>` becomes `dense<...>`.

    Raises:
        ValueError: for a blob of another size than its type has.
    """
    for op in module.walk():
        for attributes in (op.properties, op.attributes):
            for name, value in attributes.items():
                if isinstance(value, DenseResourceAttr) and value.resource_handle.data in blobs:
                    attributes[name] = _elements(value, blobs[value.resource_handle.data])


def _elements(resource: DenseResourceAttr, blob: str) -> DenseIntOrFPElementsAttr:
    kind, name, data = resource.type, resource.resource_handle.data, bytes.fromhex(blob[PREFIX:])
    if not isa(kind, RankedStructure[AnyDenseElement]):
        raise ValueError(f"resource {name}: expected a shape of numbers, got {kind}")
    size = prod(kind.get_shape()) * kind.element_type.compile_time_size
    if len(data) != size:
        raise ValueError(f"resource {name}: expected {size} bytes of {kind}, got {len(data)}")
    return DenseIntOrFPElementsAttr(kind, BytesAttr(data))


def builtin() -> Dialect:
    """xDSL's `builtin` with resources of its own."""
    return Dialect(Builtin.name, list(Builtin.operations), list(Builtin.attributes), [ResourceBlobs()])


# Lines of files that locations name.


def line_of(location: Attribute) -> FileLineColLoc | None:
    """The line of a location: of a fused location the first, of a call site the callee."""
    match location:
        case FileLineColLoc():
            return location
        case NameLoc():
            return line_of(location.location)
        case CallSiteLoc():
            return line_of(location.callee) or line_of(location.caller)
        case FusedLoc():
            return next((line for one in parts_of(location) if (line := line_of(one)) is not None), None)
        case _:
            return None


def parts_of(location: FusedLoc) -> tuple[Attribute, ...]:
    """The locations that were fused."""
    return cast("ArrayAttr[Attribute]", location.locations).data


# `memref` as MLIR prints it: xDSL's dialect, with the text of the operations that it has none for.


@irdl_op_definition
class CopyOp(memref.CopyOp):
    """Copies the elements of one memref to another of the same shape."""

    name = "memref.copy"
    assembly_format = "$source `,` $destination attr-dict `:` type($source) `to` type($destination)"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)


@irdl_op_definition
class CastOp(memref.CastOp):
    """The same memory with a type that has more or fewer static sizes."""

    name = "memref.cast"
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"

    source = operand_def(base(MemRefType) | base(UnrankedMemRefType))
    dest = result_def(base(MemRefType) | base(UnrankedMemRefType))


@irdl_op_definition
class GlobalOp(memref.GlobalOp):
    """Memory of the module: `memref.global "private" constant @bias : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>`."""

    name = "memref.global"

    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = prop_def(StringAttr)
    type = prop_def(MemRefType)
    initial_value = opt_prop_def(base(UnitAttr) | base(DenseIntOrFPElementsAttr))  # pyright: ignore[reportAssignmentType]
    constant = opt_prop_def(UnitAttr)
    alignment = opt_prop_def(IntegerAttr[i64])

    def verify_(self) -> None:
        """Replaces xDSL's verifier, which rejects declarations."""

    @classmethod
    def parse(cls, parser: Parser) -> GlobalOp:
        visibility = parser.parse_optional_str_literal() or "public"
        constant = parser.parse_optional_keyword("constant") is not None
        name = parser.parse_symbol_name()
        parser.parse_punctuation(":")
        position, kind = parser.pos, parser.parse_type()
        if not isa(kind, MemRefType[Attribute]):
            parser.raise_error(f"expected the type of memory, got {kind}", position)
        value: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation("="):
            value = {"initial_value": UnitAttr()}
            if not parser.parse_optional_keyword("uninitialized"):
                parser.parse_keyword("dense")
                shape = TensorType(kind.element_type, kind.get_shape())
                value["initial_value"] = parser.parse_dense_int_or_fp_elements_attr(shape)  # pyright: ignore[reportArgumentType]
        properties = {"sym_name": name, "type": kind, "sym_visibility": StringAttr(visibility), **value}
        attributes = parser.parse_optional_attr_dict()
        inherent = {name: attributes.pop(name) for name in ("alignment",) if name in attributes}
        inherent |= {"constant": UnitAttr()} if constant else {}
        return cls.create(properties=properties | inherent, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.sym_visibility.data)
        printer.print_string(" constant " if self.constant is not None else " ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" : ")
        printer.print_attribute(self.type)
        match self.initial_value:
            case DenseIntOrFPElementsAttr():
                printer.print_string(" = ")
                self.initial_value.print_without_type(printer)
            case UnitAttr():
                printer.print_string(" = uninitialized")
            case _:
                pass
        aligned = {} if self.alignment is None else {"alignment": self.alignment}
        printer.print_op_attributes(self.attributes | aligned)


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """The same memory with its dimensions in another order: `memref.transpose %a (i, j) -> (j, i) : ... to ...`."""

    name = "memref.transpose"

    source = operand_def(MemRefType)
    permutation = prop_def(AffineMapAttr)
    result = result_def(MemRefType)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        start, source = parser.pos, parser.parse_unresolved_operand()
        permutation = AffineMapAttr(parser.parse_affine_map())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_keyword("to")
        return cls.create(
            operands=parser.resolve_operands([source], [kind], start),
            properties={"permutation": permutation},
            attributes=dict(attributes),
            result_types=[parser.parse_type()],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" {self.permutation.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" : {self.source.type} to {self.result.type}")

    def verify_(self) -> None:
        kind, made, map_ = self.source.type, self.result.type, self.permutation.data
        order = [expr.position for expr in map_.results if isinstance(expr, AffineDimExpr)]
        if not isa(kind, MemRefType[Attribute]) or not isa(made, MemRefType[Attribute]):
            raise VerifyException(f"expected memory of known rank, got {kind} and {made}")
        if sorted(order) != list(range(kind.get_num_dims())) or len(order) != map_.num_dims:
            raise VerifyException(f"expected a permutation of the dimensions of {kind}, got {map_}")
        pairs = (kind.get_shape(), made.get_shape()), (kind.get_strides(), made.get_strides())
        if any(a is None or b is None or [a[d] for d in order] != list(b) for a, b in pairs):
            raise VerifyException(f"expected sizes and strides of {kind} in the order {map_}, got {made}")


ATOMIC_KINDS = (
    "addf", "addi", "assign", "maximumf", "maxs", "maxu", "minimumf", "mins", "minu", "mulf", "muli", "ori", "andi",
    "maxnumf", "minnumf", "xori",
)  # fmt: skip
"""What is done to an element at once, by its number (MLIR, `AtomicRMWKindAttr`)."""


@irdl_op_definition
class AtomicRMWOp(memref.AtomicRMWOp):
    """Changes an element at once: `memref.atomic_rmw addi %x, %m[%i] : (i32, memref<4xi32>) -> i32`."""

    name = "memref.atomic_rmw"

    value = operand_def()
    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    kind = prop_def(IntegerAttr[i64])
    result = result_def()

    @classmethod
    def parse(cls, parser: Parser) -> AtomicRMWOp:
        kind = parser.parse_keyword_in(ATOMIC_KINDS, "as what is done")
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        memory = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        start, type_ = parser.pos, parser.parse_type()
        if not isinstance(type_, FunctionType) or len(type_.inputs) != 2:
            parser.raise_error(f"expected types of a number and of memory, got {type_}", start)
        number, place = (parser.resolve_operand(v, t) for v, t in zip((value, memory), type_.inputs, strict=True))
        return cls.build(
            operands=[number, place, [parser.resolve_operand(index, IndexType()) for index in indices]],
            properties={"kind": IntegerAttr(ATOMIC_KINDS.index(kind), i64)},
            attributes=attributes,
            result_types=[type_.outputs.data],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {ATOMIC_KINDS[self.kind.value.data]} ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        printer.print_ssa_value(self.memref)
        with printer.in_square_brackets():
            printer.print_list(self.indices, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" : ({self.value.type}, {self.memref.type}) -> {self.result.type}")


_MEMREF = (memref.CopyOp, memref.CastOp, memref.GlobalOp, memref.AtomicRMWOp)

MEMREF = Dialect(
    "memref",
    [*(op for op in memref.MemRef.operations if op not in _MEMREF), CopyOp, CastOp, GlobalOp, AtomicRMWOp, TransposeOp],
    list(memref.MemRef.attributes),
)
"""xDSL's `memref` with these in place of its own; patterns written for xDSL's match them too."""


# `arith` as MLIR prints it: xDSL's dialect, with what MLIR says beside a conversion between floating-point types.


ROUNDING_MODES = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")
"""What MLIR calls them, by number."""

Conversion = TypeVar("Conversion", bound="arith.ExtFOp | arith.TruncFOp")


@irdl_op_definition
class ExtFOp(arith.ExtFOp):
    """The same number in a wider type: `arith.extf %x fastmath<contract> : f16 to f32`."""

    name = "arith.extf"
    assembly_format = None

    input = operand_def(arith.floatingPointLike)
    result = result_def(arith.floatingPointLike)
    fastmath = opt_prop_def(arith.FastMathFlagsAttr)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> ExtFOp:
        return _parsed(cls, parser)

    def print(self, printer: Printer) -> None:
        _print(self, printer)

    def verify_(self) -> None:
        if _bits(self.result.type) <= _bits(self.input.type):
            raise VerifyException(f"expected a type wider than {self.input.type}, got {self.result.type}")


@irdl_op_definition
class TruncFOp(arith.TruncFOp):
    """A number rounded to a narrower type: `arith.truncf %x fastmath<contract> : f32 to f16`.

    It is rounded to nearest even, which `to_nearest_even` before `fastmath` may say.
    """

    name = "arith.truncf"
    assembly_format = None

    input = operand_def(arith.floatingPointLike)
    result = result_def(arith.floatingPointLike)
    roundingmode = opt_prop_def(IntegerAttr)
    fastmath = opt_prop_def(arith.FastMathFlagsAttr)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> TruncFOp:
        return _parsed(cls, parser)

    def print(self, printer: Printer) -> None:
        _print(self, printer)

    def verify_(self) -> None:
        if _bits(self.result.type) >= _bits(self.input.type):
            raise VerifyException(f"expected a type narrower than {self.input.type}, got {self.result.type}")
        number = 0 if self.roundingmode is None else self.roundingmode.value.data
        if number not in range(len(ROUNDING_MODES)):
            raise VerifyException(f"expected a rounding mode of 0 to {len(ROUNDING_MODES) - 1}, got {number}")
        if number:
            raise VerifyException(f"expected arith.truncf to round to_nearest_even, got {ROUNDING_MODES[number]}")


def _bits(kind: Attribute) -> int:
    element = get_element_type_or_self(kind)
    return element.bitwidth if isinstance(element, AnyFloat) else 0


def _parsed(kind: type[Conversion], parser: Parser) -> Conversion:
    source = parser.parse_unresolved_operand()
    properties: dict[str, Attribute] = {}
    for number, mode in enumerate(ROUNDING_MODES if kind is TruncFOp else ()):
        if parser.parse_optional_keyword(mode) is not None:
            properties["roundingmode"] = IntegerAttr(number, i32)
    if parser.parse_optional_keyword("fastmath") is not None:
        properties["fastmath"] = arith.FastMathFlagsAttr(arith.FastMathFlagsAttr.parse_parameter(parser))
    attributes = parser.parse_optional_attr_dict()
    properties |= {name: attributes.pop(name) for name in ("roundingmode", "fastmath") if name in attributes}
    parser.parse_punctuation(":")
    operand = parser.resolve_operand(source, parser.parse_type())
    parser.parse_keyword("to")
    return kind.create(
        operands=[operand], result_types=[parser.parse_type()], properties=properties, attributes=attributes
    )


def _print(op: ExtFOp | TruncFOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.input)
    if isinstance(op, TruncFOp) and op.roundingmode is not None:
        printer.print_string(f" {ROUNDING_MODES[op.roundingmode.value.data]}")
    if op.fastmath is not None:
        printer.print_string(" fastmath")
        op.fastmath.print_parameter(printer)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.input.type)
    printer.print_string(" to ")
    printer.print_attribute(op.result.type)


_FLAGS = "(`fastmath` `` $fastmath^)? attr-dict"
_BINARY = f"$lhs `,` $rhs {_FLAGS} `:` type($result)"

_ARITH = (arith.ExtFOp, arith.TruncFOp)

ARITH = Dialect(
    "arith",
    [
        *(op for op in arith.Arith.operations if op not in _ARITH),
        ExtFOp,
        TruncFOp,
        declared(arith.FloatingPointLikeBinaryOperation, "arith.remf", _BINARY, "The remainder of a quotient."),
    ],
    list(arith.Arith.attributes),
)
"""xDSL's `arith` with these in place of its own; patterns written for xDSL's match them too."""
