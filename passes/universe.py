"""Every dialect, pass and target by name, and the context that reads modules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from math import prod
from typing import Any, NoReturn, TypeVar, cast

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BytesAttr,
    CallSiteLoc,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    MemRefLayoutAttr,
    MemRefType,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    TensorType,
    UnknownLoc,
    UnregisteredAttr,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue, TypeAttribute
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.rewriter import Rewriter
from xdsl.universe import Universe
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from ..dialect.index import DIALECTS, PASSES, TARGETS
from .diagnostics import LocatedError, verify_upstream, with_notes

# xDSL's parser of MLIR, which remembers where each operation stood and reads what MLIR prints behind a module.


_Element = TypeVar("_Element")


_ONE_VALUE = re.compile(r"<\s*[^\s\[\"(>][^\[\"<>]*>")
"""The elements of a constant of one value, which is a number."""


def _check_location(span: Span, value: Attribute) -> LocationAttr:
    """The value of an alias that stands in a location."""
    if not isinstance(value, LocationAttr):
        raise ParseError(span, f"expected the alias of a location, got {span.text}, which is {value}")
    return value


class _TensorElement(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """An element of `dense<...>`. For xDSL a hexadecimal float such as `0xFF800000` is a number; here it is a bit
    pattern."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if isinstance(type, AnyFloat) and self.span.text.startswith("0x") and isinstance(self.value, int):
            return type.unpack(self.value.to_bytes(type.size, "little"), 1)[0]
        return super().to_type(parser, type)


MAX_BYTES = 1 << 31
"""The size of the largest constant that is read."""


class LocatingParser(Parser):
    """xDSL's parser, which also remembers where each operation stood, and lets nothing but a
    ParseError or another diagnostic out of malformed text.
    """

    _TensorLiteralElement = _TensorElement

    def __init__(self, ctx: Context, text: str, name: str, line_offset: int = 0) -> None:
        super().__init__(ctx, text, name)
        self._file = StringAttr(name)
        self._line_offset = line_offset
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._used_before: dict[str, Span] = {}
        self._unresolved: dict[str, Span] = {}
        """Aliases of locations whose definitions come later, with the first use of each."""
        self._starts: dict[Operation, int] = {}

    def location_at(self, position: int) -> FileLineColLoc:
        """The place of a character offset, counting lines and columns from one."""
        line = bisect_right(self._line_starts, position)
        column = position - self._line_starts[line - 1] + 1
        return FileLineColLoc(self._file, IntAttr(line + self._line_offset), IntAttr(column))

    def parse_operation(self) -> Operation:
        start = self.pos
        try:
            op = super().parse_operation()
        except VerifyException as error:
            raise self._located(start, error) from error
        except (ParseError, DiagnosticException, ImportError, RecursionError):
            raise
        except Exception as error:  # xDSL checks some of what it reads by assertion, or by the exception of a helper
            raise self._unreadable(start, error) from error
        if isinstance(op.location, UnknownLoc):
            op.location = self.location_at(start)
        elif self._used_before:
            self._starts[op] = start
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        if name.startswith("transform.") and not self._is_generic():
            kind = self.ctx.get_optional_op(name)
            return CARRIED_STEP()(name) if kind is None or kind.parse.__func__ is Operation.parse.__func__ else kind
        kind = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack) or self._refuse(name)
        if kind.name == "builtin.unregistered" and not self._is_generic():
            self.raise_error(f"{name} is not registered: only its generic form can be read")
        if kind.parse.__func__ is Operation.parse.__func__ and not self._is_generic():  # pyright: ignore[reportFunctionMemberAccess]
            self.raise_error(f"only the generic form of {name} can be read; mlir-opt --mlir-print-op-generic prints it")
        return kind

    def _refuse(self, name: str) -> NoReturn:
        """Refuses an operation that is not registered, at its name."""
        from difflib import get_close_matches  # for messages alone

        dialect, _, last = name.partition(".")
        names = [op.name.partition(".") for op in self.ctx.loaded_ops]
        near = get_close_matches(last, [rest for first, _, rest in names if first == dialect], 1)
        fix = f"did you mean {dialect}.{near[0]}?" if near else "lower its dialect to linalg and others that are"
        start = self.lexer.input.content.rfind(name, 0, self.pos)
        self.raise_error(f"Operation {name} is not registered; {fix}", start, start + len(name))

    def _is_generic(self) -> bool:
        """Whether the name of an operation that has just been read stands in quotes."""
        return self.lexer.input.content[: self.pos].rstrip().endswith('"')

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            module = super().parse_module(allow_implicit_module)
            if self._used_before:
                self._resolve_aliases(module)
            if self.dialect_resources:
                self._embed_resources(module)
            return module
        except ParseError as error:
            name = next(iter(self.forward_ssa_references), "")
            if "used but not defined" not in str(error):
                raise
            raise ParseError(self._unresolved[name], f"%{name} is used but not defined") from None
        except (LocatedError, ImportError, RecursionError):
            raise
        except DiagnosticException as error:
            raise self._located(self.pos, error) from error
        except Exception as error:
            raise self._unreadable(self.pos, error) from error

    def resolve_operand(self, operand: UnresolvedOperand, type: Attribute) -> SSAValue:
        value = super().resolve_operand(operand, type)
        if isinstance(value, ForwardDeclaredValue):
            self._unresolved.setdefault(operand.operand_name, operand.span)
        return value

    def _embed_resources(self, module: ModuleOp) -> None:
        """Replaces constants that name a resource of the text by its elements. A resource without contents remains a
        name."""
        from ..dialect.mlir.upstream import ResourceBlobs, embed

        resources = self.ctx.get_dialect("builtin").get_interface(ResourceBlobs)
        if resources is not None:
            embed(module, resources.take_all())

    def _parse_external_resources(self) -> None:
        """Skips the external resources of a module. `warploom-opt --run-reproducer` reads them from the text."""
        self.parse_comma_separated_list(self.Delimiter.BRACES, self._parse_external_resource)

    def _parse_external_resource(self) -> None:
        self.parse_identifier()
        self.parse_punctuation(":")
        if self._current_token.kind == MLIRTokenKind.L_BRACE:
            self._parse_external_resources()
        elif self.parse_optional_str_literal() is None and self.parse_optional_boolean() is None:
            self.parse_integer()

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        """As xDSL's, but a splat constant makes one element instead of all (17 us each)."""
        if not _ONE_VALUE.match(self.lexer.input.content, self.pos):
            return self._literal(super().parse_dense_int_or_fp_elements_attr, type)
        self.parse_punctuation("<")
        (element,), _ = self._parse_tensor_literal()
        self.parse_punctuation(">")
        if type is None:
            self.parse_punctuation(":")
            type = self._parse_dense_literal_type()
        kind: TensorType[Any] = TensorType(type.element_type, [1])
        numbers: list[Any] = [element.to_type(self, type.element_type)]
        one: DenseIntOrFPElementsAttr = DenseIntOrFPElementsAttr.from_list(kind, numbers)
        if (size := len(one.data.data) * prod(type.get_shape())) > MAX_BYTES:
            self.raise_error(f"expected a constant of at most {MAX_BYTES} bytes, got {size}")
        return DenseIntOrFPElementsAttr(type, BytesAttr(one.data.data * prod(type.get_shape())))

    def parse_optional_builtin_int_or_float_attr(self) -> Any:
        return self._literal(super().parse_optional_builtin_int_or_float_attr)

    def _literal(self, parse: Callable[..., _Element], *args: Any) -> _Element:
        """What is read by `parse`. xDSL finds a literal wrong when it stands behind it: the error is at the literal."""
        start = self.pos
        try:
            return parse(*args)
        except ParseError as error:
            read = self.lexer.input.content[start : self.pos].rstrip()
            if error.span.start != self.pos or not read or read[-1] in ",:<([":
                raise
            raise ParseError(Span(start, start + len(read), self.lexer.input), error.msg) from None

    def _parse_dialect_type_or_attribute_body(
        self, attr_name: str, is_type: bool, is_opaque: bool, starting_opaque_pos: int | None
    ) -> Any:
        """As xDSL's, but text of an unknown dialect is one line: the printer would indent others, and so change it."""
        made = super()._parse_dialect_type_or_attribute_body(attr_name, is_type, is_opaque, starting_opaque_pos)
        if not isinstance(made, UnregisteredAttr):
            return made
        line = re.sub(r"\s*(//[^\n\"]*)?\n\s*", " ", made.value.data)
        return type(made)(made.attr_name, made.is_type, made.is_opaque, line)

    def parse_dimension_list(self) -> list[int]:
        """xDSL's list, but with spaces around each `x`, as in MLIR: `memref<2 x f32>`."""
        dims, place = list[int](), 0
        while self._current_token.kind in (MLIRTokenKind.INTEGER_LIT, MLIRTokenKind.QUESTION):
            dims.append(self.parse_shape_dimension())
            place = self._current_token.span.start
            if self._parse_optional_shape_delimiter() is None:
                return dims
        if dims:
            self._resume_from(place)
        return dims

    def parse_comma_separated_list(
        self, delimiter: Parser.Delimiter, parse: Callable[[], _Element], context_msg: str = ""
    ) -> list[_Element]:
        """As xDSL's; one type after an arrow, or a `scf.while` that carries nothing, needs no parentheses (MLIR)."""
        before = self.lexer.input.content[max(self.pos - 40, 0) : self.pos].rstrip().endswith
        if delimiter is Parser.Delimiter.PAREN and self._current_token.text != "(" and before(("->", "scf.while")):
            return [parse()] if before("->") else []
        return super().parse_comma_separated_list(delimiter, parse, context_msg)

    def _parse_location(self) -> LocationAttr:
        """As xDSL's; also a range, of which the start is kept, a fused location with metadata, which is dropped, and an
        alias that is defined later, which `parse_module` resolves."""
        if self._current_token.kind == MLIRTokenKind.HASH_IDENT:
            return self._alias()
        if self.parse_optional_keyword("fused"):
            if self.parse_optional_punctuation("<"):
                self.parse_attribute()
                self.parse_punctuation(">")
            parts = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
            return FusedLoc(tuple(parts), NoneAttr())
        location = super()._parse_location()
        if isinstance(location, FileLineColLoc) and self.parse_optional_keyword("to"):
            self.parse_optional_integer(allow_boolean=False, allow_negative=False)
            self.parse_punctuation(":")
            self.parse_integer(allow_boolean=False, allow_negative=False)
        return location

    def _alias(self) -> LocationAttr:
        """The location of an alias. One that is defined later is represented by its name."""
        span = self._current_token.span
        if span.text in self.attribute_aliases:
            return _check_location(span, self.parse_attribute())
        self._consume_token()
        self._used_before.setdefault(span.text, span)
        return NameLoc(StringAttr(span.text), NoneAttr())

    def _resolve_aliases(self, module: ModuleOp) -> None:
        """Gives operations and block arguments the locations whose aliases were defined after their use."""
        for name, span in self._used_before.items():
            if name not in self.attribute_aliases:
                raise ParseError(span, f"undefined symbol alias '{name}'")
            _check_location(span, self.attribute_aliases[name])
        for op in module.walk():
            op.location = self._resolved(op.location)
            if isinstance(op.location, UnknownLoc) and op in self._starts:
                op.location = self.location_at(self._starts[op])
            for argument in (a for region in op.regions for block in region.blocks for a in block.args):
                argument.location = self._resolved(argument.location)

    def _resolved(self, location: Attribute) -> LocationAttr:
        match location:
            case NameLoc() if location.desc.data in self._used_before:
                return self._resolved(self.attribute_aliases[location.desc.data])
            case NameLoc() if isinstance(location.location, LocationAttr):
                return NameLoc(location.desc, self._resolved(location.location))
            case CallSiteLoc():
                return CallSiteLoc(self._resolved(location.callee), self._resolved(location.caller))
            case FusedLoc():
                from ..dialect.mlir.upstream import parts_of

                return FusedLoc(tuple(map(self._resolved, parts_of(location))), location.metadata)
            case _:
                return cast("LocationAttr", location)

    def _located(self, position: int, error: DiagnosticException) -> LocatedError:
        place = self.location_at(position)
        where = f"{self._file.data}:{place.line.data}:{place.column.data}"
        return with_notes(LocatedError(where, str(error)), error)

    def _unreadable(self, start: int, error: Exception) -> ParseError:
        """A parse error at the current token, or at the start of the operation if the token is on a later line."""
        text = self.lexer.input.content
        behind_line = "\n" in text[len(text[: self.pos].rstrip()) : self.pos] and start < self.pos
        said = "" if isinstance(error, LookupError | TypeError | AttributeError) else str(error)  # of Python's own
        detail = said or "this is not something the operation accepts here"
        if behind_line and not said:
            detail = "its types or attributes are not those that this operation is known with"
        token = re.compile(r"\S*").match(text, start if behind_line else self.pos)
        span = Span(start, token.end(), self.lexer.input) if behind_line and token else self._current_token.span
        return ParseError(span, f"cannot read this: {detail}")


# Every dialect, pass and target of the project by name, for the entry-point group `xdsl.universe`.
#
# Nothing is imported until it is asked for by name: a driver that lists names pays for none of them.


def _lazy(entry: Sequence[str]) -> Callable[[], Any]:
    """A factory that imports a name from a module of the package when called."""
    module, name = entry[:2]
    return lambda: getattr(import_module(f"..{module}", __package__), name)


WARPLOOM_UNIVERSE = Universe(
    all_dialects={
        name: _lazy(DIALECTS[name]) for name in ("warp", "ptx", "nvgpu", "nvvm", "util", "tm_tensor", "index")
    },
    all_passes={name: _lazy(entry) for name, entry in PASSES.items()},
    all_targets={name: _lazy(entry) for name, entry in TARGETS.items()},
)
"""What the entry point names; plain `xdsl-opt` finds the project through it."""

LAYOUT = "warp.layout"
"""On an operation: the layout of the tile that it makes, where types are written without layouts that MLIR lacks."""

NAMES = "warp.names"
"""On a kernel: the names of its arguments, which MLIR forgets, and after which parameters are called."""


# What the compiler knows, and how text becomes a module; the driver and the Python API share both.


CARRIED_STEP: Callable[[], Callable[[str], type[Operation]]] = _lazy(("dialect.schedule.transform", "carried"))
"""A step of `transform` by its name that is read and printed as it is written."""


def _builtin() -> Dialect:
    from ..dialect.mlir.upstream import builtin

    return builtin()


OWN: dict[str, Callable[[], Dialect]] = {"builtin": _builtin} | {
    name: _lazy(DIALECTS[name])
    for name in ("affine", "arith", "gpu", "linalg", "llvm", "math", "memref", "scf", "tensor", "transform", "vector")
}
"""The dialects that stand in place of xDSL's of these names: with the text and the operations of MLIR that those lack.
They are not in the universe, where two dialects of one name are an error."""


@cache
def known_universe() -> Universe:
    """xDSL's dialects, passes and targets, those of installed plugins, and ours.

    Ours are there whether or not the package's entry points are installed, and those of `OWN` stand in place of xDSL's.
    """
    multiverse = Universe.get_multiverse()
    return Universe(
        all_dialects=multiverse.all_dialects | WARPLOOM_UNIVERSE.all_dialects | OWN,
        all_passes=multiverse.all_passes | WARPLOOM_UNIVERSE.all_passes,
        all_targets=multiverse.all_targets | WARPLOOM_UNIVERSE.all_targets,
    )


FURTHER = {
    "linalg": {"linalg_ops": ("OPERATIONS", "ATTRIBUTES"), "convolution": ("CONVOLUTIONS",)},
    "gpu": {"gpu_carried": ("OPERATIONS", "ATTRIBUTES")},
}
"""Modules with the rest of a dialect, and its names there, loaded when a name is met that no earlier module has."""


class _Context(Context):
    """A context that looks for plugins when it meets an unknown dialect, and that loads rarely used operations when it
    meets the first of them.

    Looking for plugins reads the metadata of all installed packages: 20 of the 700 ms of a first compile. Elementwise
    operations and convolutions are 60 operations: 15 ms, and a megabyte.
    """

    _loaded: frozenset[str] = frozenset()

    def _load_further(self, name: str) -> None:
        """Loads parts of the rest of a dialect, until one has a name."""
        for module, tables in FURTHER.get(name.partition(".")[0], {}).items():
            if module not in self._loaded and name not in self._loaded_ops and name not in self._loaded_attrs:
                self._loaded |= {module}
                for kind in chain(*(_lazy((f"dialect.mlir.{module}", table))() for table in tables)):
                    if issubclass(kind, Operation):
                        self.load_op(kind)
                    else:
                        self.load_attr_or_type(kind)

    def _find(self, name: str) -> None:
        """Registers every dialect there is if that of a name is not known."""
        dialect, dot, _ = name.partition(".")
        if dot and dialect not in self.registered_dialect_names:
            for dialect_name, factory in known_universe().all_dialects.items():
                if dialect_name not in self.registered_dialect_names:
                    self.register_dialect(dialect_name, factory)

    def clone(self) -> _Context:
        context = _Context()
        vars(context).update(vars(super().clone()))
        context._loaded = self._loaded
        return context

    def _get_known_op(self, name: str) -> type[Operation] | None:
        kind = super()._get_known_op(name)
        if kind is None and self.get_optional_dialect(name.partition(".")[0]) is not None:
            self._load_further(name)
            return self._loaded_ops.get(name)
        return kind

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        self._find(name)
        return super().get_optional_op(name, dialect_stack=dialect_stack)

    def get_optional_type(self, name: str) -> type[TypeAttribute] | None:
        self._find(name)
        if name not in self._loaded_types and self.get_optional_dialect(name.partition(".")[0]) is not None:
            self._load_further(name)
        return super().get_optional_type(name)

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        self._find(name)
        if name not in self._loaded_attrs and self.get_optional_dialect(name.partition(".")[0]) is not None:
            self._load_further(name)
        return super().get_optional_attr(name)


def make_context() -> Context:
    """A fresh context with every dialect the driver knows, each loaded when first used."""
    ctx, base = _Context(), {"linalg": _lazy(DIALECTS["linalg_base"])}  # which FURTHER completes
    for name, factory in (get_all_dialects() | WARPLOOM_UNIVERSE.all_dialects | OWN | base).items():
        ctx.register_dialect(name, factory)
    return ctx


def is_blank(text: str) -> bool:
    """Whether MLIR text has nothing but comments."""
    return not re.sub("//.*", "", text).strip()


def parse_mlir(
    ctx: Context, text: str, name: str = "<string>", *, implicit_module: bool = True, line_offset: int = 0
) -> ModuleOp:
    """The module that MLIR text describes, its operations located in `name`; not yet verified.

    Raises ParseError (or another DiagnosticException) for text that is not MLIR, or none at all, and for a value that
    is used where its definition does not dominate. `line_offset` is added to line numbers: of a later part of a file.
    """
    if is_blank(text):
        raise LocatedError(f"{name}:{line_offset + 1}:1", "expected MLIR, got no text")
    name = name.encode(errors="replace").decode()  # a path may have bytes that are no UTF-8
    module = LocatingParser(ctx, text, name, line_offset).parse_module(implicit_module)
    if f"{LAYOUT} =" in text or f"{NAMES} =" in text:
        _restore(module)
    verify_upstream(module)
    return module


def _restore(module: ModuleOp) -> None:
    """Restores what the upstream form loses: the layouts of memory, which the operation that makes it names, and the
    names of arguments."""
    for op in module.walk():
        names = op.attributes.pop(NAMES, None)
        if isa(names, ArrayAttr[StringAttr]) and op.regions and op.regions[0].blocks:
            for argument, name in zip(op.regions[0].blocks[0].args, names, strict=False):
                argument.name_hint = name.data or None
        layout = op.attributes.pop(LAYOUT, None)
        for result in op.results if layout is not None else ():
            kind = result.type
            if isa(kind, MemRefType[Attribute]) and isinstance(kind.layout, NoneAttr):
                plain = MemRefType(kind.element_type, kind.shape, cast("MemRefLayoutAttr", layout), kind.memory_space)
                Rewriter.replace_value_with_new_type(result, plain)
