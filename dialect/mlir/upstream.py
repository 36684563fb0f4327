"""Dialects as MLIR prints them, where xDSL's lack something: `builtin`, its locations, `memref` and `arith`; and two
operations of `nvvm`, which kernels of this project have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import ClassVar, TypeVar, cast

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
    FusedLoc,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NameLoc,
    RankedStructure,
    StringAttr,
    TensorType,
    UnitAttr,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    base,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    RegionVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.type import get_element_type_or_self

from .words import BareWordAttr, WordText, defined, irdl_op_definition, words

Declared = TypeVar("Declared", bound=IRDLOperation)
T = TypeVar("T")


def declared(parent: type[Declared], name: str, text: str, summary: str = "", /, **fields: object) -> type[Declared]:
    """An operation by its name, its text in MLIR's declarative format, what it does, and its fields."""
    return defined(parent, name, summary or f"`{name}`.", assembly_format=text, **fields)


def typed(*names: str, then: str = "") -> str:
    """The text of operands, of what stands behind them, and of their types."""
    operands, types = " `,` ".join(f"${name}" for name in names), " `,` ".join(f"type(${name})" for name in names)
    return f"{operands} {then} attr-dict `:` {types}".replace("  ", " ")


def parse_assignment(parser: Parser) -> tuple[Parser.UnresolvedArgument, UnresolvedOperand]:
    """Parses `%name = %operand`."""
    name = parser.parse_argument(expect_type=False)
    parser.parse_punctuation("=")
    return name, parser.parse_unresolved_operand()


def print_assignment(printer: Printer, pair: tuple[SSAValue, SSAValue]) -> None:
    """Prints `%name = %operand`."""
    printer.print_ssa_value(pair[0])
    printer.print_string(" = ")
    printer.print_ssa_value(pair[1])


def print_listed(printer: Printer, word: str, values: Iterable[T], each: Callable[[T], object]) -> None:
    """Prints ` word(value, value)`."""
    printer.print_string(f" {word}(")
    printer.print_list(values, each)
    printer.print_string(")")


def extended(
    dialect: Dialect, operations: Sequence[type[Operation]], attributes: Sequence[type[Attribute]] = ()
) -> Dialect:
    """xDSL's dialect with operations and attributes of ours, in place of its own where names are the same. Patterns for
    an operation of xDSL match a subclass of it too."""
    own = {each.name for each in (*operations, *attributes)}
    return Dialect(
        dialect.name,
        [*(op for op in dialect.operations if op.name not in own), *operations],
        [*(kind for kind in dialect.attributes if kind.name not in own), *attributes],
    )


SEGMENTS = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
"""Of an operation with several operands that may be left out, whose properties are in its dictionary of attributes."""


@irdl_custom_directive
class BodyText(CustomDirective):
    """A region of one block, which may have no operations."""

    body: RegionVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        region = parser.parse_region()
        self.body.set(state, region if region.blocks else Region(Block()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        printer.print_string(" ")
        printer.print_region(self.body.get(op), print_empty_block=False)


# `builtin` as MLIR prints it: xDSL's dialect, with resources that belong to the text that they stand in.


PREFIX = len("0x") + 2 * 4
"""The digits before a blob's bytes: those of its alignment, a word of 32 bits (MLIR, AsmState.h, `AsmResourceBlob`)."""


class ResourceBlobs(OpAsmDialectInterface):
    """The blobs at the end of a text: `{-# dialect_resources: { builtin: { weights: "0x04000000..." } } #-}`. A key
    names one blob of a text. xDSL's own storage is shared by all texts of a process, and renames the second."""

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
    Raises ValueError for a blob of another size than its type has."""
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


CopyOp = declared(
    memref.CopyOp, "memref.copy", "$source `,` $destination attr-dict `:` type($source) `to` type($destination)",
    "Copies the elements of one memref to another of the same shape.",
)  # fmt: skip

CastOp = declared(
    memref.CastOp, "memref.cast", "$source attr-dict `:` type($source) `to` type($dest)",
    "The same memory with a type that has more or fewer static sizes.",
)  # fmt: skip


@irdl_custom_directive
class Visibility(CustomDirective):
    """`"private"`, or nothing for `"public"`."""

    visibility: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.visibility.set(state, StringAttr(parser.parse_optional_str_literal() or "public"))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.visibility.print(printer, state, op)


@irdl_custom_directive
class InitialValueText(CustomDirective):
    """`memref<4xf32> = dense<1.0>`: the type of memory, and numbers, `uninitialized` or nothing of a declaration."""

    kind: AttributeVariable
    value: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        position, kind = parser.pos, parser.parse_type()
        if not isa(kind, MemRefType[Attribute]):
            parser.raise_error(f"expected the type of memory, got {kind}", position)
        self.kind.set(state, kind)
        if parser.parse_optional_punctuation("=") is None:
            return
        if parser.parse_optional_keyword("uninitialized") is not None:
            self.value.set(state, UnitAttr())
        else:
            parser.parse_keyword("dense")
            shape = TensorType(kind.element_type, kind.get_shape())
            self.value.set(state, parser.parse_dense_int_or_fp_elements_attr(shape))  # pyright: ignore[reportArgumentType]

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.kind.print(printer, state, op)
        match self.value.get(op):
            case DenseIntOrFPElementsAttr() as numbers:
                printer.print_string(" = ")
                numbers.print_without_type(printer)
            case UnitAttr():
                printer.print_string(" = uninitialized")
            case _:
                pass


@irdl_op_definition
class GlobalOp(memref.GlobalOp):
    """Memory of the module: `memref.global "private" constant @bias : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>`."""

    name = "memref.global"
    custom_directives = (Visibility, InitialValueText)
    assembly_format = (
        "custom<Visibility>($sym_visibility) (`constant` $constant^)? $sym_name `:`"
        " custom<InitialValueText>($type, $initial_value) attr-dict"
    )
    irdl_options = (ParsePropInAttrDict(),)

    initial_value = opt_prop_def(base(UnitAttr) | base(DenseIntOrFPElementsAttr))  # pyright: ignore[reportAssignmentType]

    def verify_(self) -> None:
        """Replaces xDSL's verifier, which rejects declarations."""


@irdl_custom_directive
class BareMap(CustomDirective):
    """A map without the word `affine_map`: `(i, j) -> (j, i)`."""

    map: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.map.set(state, AffineMapAttr(parser.parse_affine_map()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        if isinstance(value := self.map.get(op), AffineMapAttr):
            printer.print_string(str(value.data))


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """The same memory with its dimensions in another order: `memref.transpose %a (i, j) -> (j, i) : ... to ...`."""

    name = "memref.transpose"
    custom_directives = (BareMap,)
    assembly_format = "$source custom<BareMap>($permutation) attr-dict `:` type($source) `to` type($result)"

    source = operand_def(MemRefType)
    permutation = prop_def(AffineMapAttr)
    result = result_def(MemRefType)

    traits = traits_def(Pure())

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


AtomicKind = defined(WordText, "AtomicKind", "What is done.", {"attribute": AttributeVariable}, WORDS=ATOMIC_KINDS)

AtomicRMWOp = declared(
    memref.AtomicRMWOp, "memref.atomic_rmw",
    "custom<AtomicKind>($kind) $value `,` $memref `[` $indices `]` attr-dict"
    " `:` `(` type($value) `,` type($memref) `)` `->` type($result)",
    "Changes an element at once: `memref.atomic_rmw addi %x, %m[%i] : (i32, memref<4xi32>) -> i32`.",
    value=operand_def(), memref=operand_def(MemRefType), result=result_def(), custom_directives=(AtomicKind,),
)  # fmt: skip


MEMREF = extended(memref.MemRef, (CopyOp, CastOp, GlobalOp, AtomicRMWOp, TransposeOp))


# `arith` as MLIR prints it: xDSL's dialect, with what MLIR says beside a conversion between floating-point types.


ROUNDING_MODES = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")
"""What MLIR calls them, by number."""

_FLAGS = "(`fastmath` `` $fastmath^)? attr-dict"


RoundingMode = defined(
    WordText, "RoundingMode", "How it is rounded.", {"attribute": AttributeVariable}, WORDS=ROUNDING_MODES, KIND=i32
)


def _check_bits(op: IRDLOperation, *, wider: bool) -> None:
    before, after = (get_element_type_or_self(value.type) for value in (*op.operands, *op.results))
    more = _bits(after) - _bits(before)
    if more <= 0 if wider else more >= 0:
        word = "wider" if wider else "narrower"
        raise VerifyException(f"expected a type {word} than {op.operands[0].type}, got {op.results[0].type}")


def _bits(element: Attribute) -> int:
    return element.bitwidth if isinstance(element, AnyFloat | IntegerType) else 0


def _check_rounding(op: IRDLOperation) -> None:
    _check_bits(op, wider=False)
    if "roundingmode" in op.attributes:
        raise VerifyException("expected roundingmode as a word before fastmath, got an attribute")
    mode = op.properties.get("roundingmode")
    number = mode.value.data if isinstance(mode, IntegerAttr) else 0
    if number not in range(len(ROUNDING_MODES)):
        raise VerifyException(f"expected a rounding mode of 0 to {len(ROUNDING_MODES) - 1}, got {number}")
    if number:
        raise VerifyException(f"expected arith.truncf to round to_nearest_even, got {ROUNDING_MODES[number]}")


TruncFOp = declared(
    arith.TruncFOp, "arith.truncf",
    f"$input custom<RoundingMode>($roundingmode) {_FLAGS} `:` type($input) `to` type($result)",
    """A number rounded to a narrower type: `arith.truncf %x fastmath<contract> : f32 to f16`. It is rounded to nearest
    even, which `to_nearest_even` before `fastmath` may say.""",
    fastmath=opt_prop_def(arith.FastMathFlagsAttr), roundingmode=opt_prop_def(IntegerAttr), traits=traits_def(Pure()),
    custom_directives=(RoundingMode,), verify_=_check_rounding,
)  # fmt: skip


_BINARY = f"$lhs `,` $rhs {_FLAGS} `:` type($result)"

RemFOp = declared(arith.FloatingPointLikeBinaryOperation, "arith.remf", _BINARY, "The remainder of a quotient.")


def _cast(parent: type[Declared], text: str = "attr-dict", **own: object) -> type[Declared]:
    """A conversion that rounds nothing, or from or to integers: xDSL's, also of vectors and tensors."""
    word, ends = parent.name.removeprefix("arith."), {True: arith.floatingPointLike, False: arith.signlessIntegerLike}

    def verify_(op: Declared) -> None:
        if word[:3] in ("ext", "tru"):
            _check_bits(op, wider=word[0] == "e")

    return declared(
        parent, parent.name, f"$input {text} `:` type($input) `to` type($result)", verify_=verify_,
        input=operand_def(ends[word[:2] == "fp" or word == "extf"]),
        result=result_def(ends[word[-2:] == "fp" or word == "extf"]), traits=traits_def(Pure()), **own,
    )  # fmt: skip


_CASTS = (
    arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp, arith.IndexCastOp, arith.SIToFPOp, arith.UIToFPOp, arith.FPToSIOp,
    arith.FPToUIOp,
)  # fmt: skip


@irdl_op_definition
class IndexCastUIOp(IRDLOperation):
    """An index from an integer without a sign, or the other way."""

    name = "arith.index_castui"

    input = operand_def(arith.signlessIntegerLike)
    result = result_def(arith.signlessIntegerLike)

    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    traits = traits_def(Pure())


ExtFOp = _cast(arith.ExtFOp, _FLAGS, fastmath=opt_prop_def(arith.FastMathFlagsAttr))

ARITH = extended(arith.Arith, (ExtFOp, TruncFOp, RemFOp, IndexCastUIOp, *map(_cast, _CASTS)))


class NvvmOp(IRDLOperation):
    """An operation of `nvvm`, whose properties are written in its dictionary of attributes. But for two, which kernels
    of this project have, they stand apart (`nvvm`), so that a product is compiled without them."""

    irdl_options = (ParsePropInAttrDict(),)
    PTX: ClassVar[str] = ""


def operation(name: str, summary: str, ptx: str, text: str, **fields: object) -> type[NvvmOp]:
    """An operation by its name, what it does, its line of `nvvm_types`, its text in MLIR, and its fields."""
    made = declared(NvvmOp, f"nvvm.{name}", text, summary, **fields)
    made.PTX = ptx
    return made


REGISTER_ACTION = words("nvvm.action", "increase decrease", BareWordAttr)

INCREASE, DECREASE = map(REGISTER_ACTION.of, ("increase", "decrease"))
"""What `nvvm.setmaxregister` does with the registers of a warpgroup: waits for more, or gives some back."""

RegistersOp = operation(
    "setmaxregister",
    "Takes registers from a warpgroup, or gives it some.",
    "setmaxnreg.{action/increase=inc/decrease=dec}.sync.aligned.u32 {regCount}",
    "$action $regCount attr-dict",
    regCount=prop_def(IntegerAttr[i32]), action=prop_def(REGISTER_ACTION),
)  # fmt: skip

ElectOp = operation(
    "elect.sync",
    "Whether this lane is the one of its warp that is chosen.",
    "elect.sync _|pred, membermask=0xFFFFFFFF",
    "($membermask^)? attr-dict `->` type($pred)",
    membermask=opt_operand_def(i32), pred=result_def(i1),
)  # fmt: skip
"""In an `scf.if` of what it returns, one lane of a warp is alone: it arrives, copies and waits, and the warp meets
again behind it."""
