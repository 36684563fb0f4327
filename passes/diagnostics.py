"""Errors that name file, line and column: how they are raised, and how they are shown to a user."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from math import prod
from typing import NoReturn

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, ModuleOp, ShapedType, UnregisteredOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.traits import SymbolTable
from xdsl.utils.exceptions import DiagnosticException, MultipleSpansParseError, ParseError, VerifyException
from xdsl.utils.hints import isa

from .source import REMARKS


class LocatedError(DiagnosticException):
    """A diagnostic with its location in the user's file as "file:line:col"."""

    def __init__(self, location: str, message: str) -> None:
        super().__init__(location, message)
        self.location = location
        self.message = message

    def __str__(self) -> str:
        return f"{self.location}: error: {self.message}"


def name_of(op: Operation) -> str:
    """The name of an operation, also where its dialect is not known."""
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def location_of(op: Operation) -> str | None:
    """ "file:line:col" of an operation, or of the nearest enclosing one that has a location."""
    from ..dialect.mlir.upstream import line_of

    ancestor: Operation | None = op
    while ancestor is not None:
        if (location := line_of(ancestor.location)) is not None:
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        ancestor = ancestor.parent_op()
    return None


def place_of(op: Operation) -> str:
    """ "file:line:col: " of an operation, to start a message with; empty where it is not known."""
    location = location_of(op)
    return "" if location is None else f"{location}: "


def fail(op: Operation, message: str) -> NoReturn:
    """Stops the compilation with an error at `op`, located in the user's file if its place is known.

    Passes keep the place by giving new operations the `location` of the original.
    """
    location, message = location_of(op), message.replace(UnregisteredOp.name, name_of(op))
    raise DiagnosticException(message) if location is None else LocatedError(location, message)


def message_of(error: DiagnosticException) -> str:
    """What a diagnostic says, without its place."""
    return error.message if isinstance(error, LocatedError) else str(error)


_CHOSEN: ContextVar[bool] = ContextVar("chosen", default=False)

CHOSEN = "[chosen] "
"""What a remark begins with, behind the pass, that says what was done."""


@contextmanager
def remarks(*, chosen: bool = False) -> Generator[list[str]]:
    """Collects the remarks of passes on operations that they do not change: `file:line:col: remark: pass: message`.
    With `chosen`, also the choices that they made: `... remark: pass: [chosen] message`."""
    tokens = REMARKS.set(lines := []), _CHOSEN.set(chosen)
    try:
        yield lines
    finally:
        REMARKS.reset(tokens[0])
        _CHOSEN.reset(tokens[1])


def remark(op: Operation, by: str, message: str) -> None:
    """Says where and why the pass `by` declines; heard by `remarks`."""
    _say(op, "remark", by, message)


def chose(op: Operation, by: str, message: str) -> None:
    """A remark of pass `by` about its choice for an operation; `remarks(chosen=True)` collects it."""
    if _CHOSEN.get():
        _say(op, "remark", by, f"{CHOSEN}{message}")


def warn(op: Operation, by: str, message: str) -> None:
    """A warning of pass `by` about something that it left, probably against the user's intention. `remarks` collects
    it, and commands show it by default."""
    _say(op, "warning", by, message)


def is_warning(said: str) -> bool:
    """Whether a line of `remarks` is a warning."""
    return re.match(r"(\S.*?: )?warning: ", said) is not None


def _say(op: Operation, kind: str, by: str, message: str) -> None:
    if (collected := REMARKS.get()) is not None:
        collected.append(f"{place_of(op)}{kind}: {by}: {message}")


def culprit(root: Operation) -> Operation | None:
    """The operation whose own verifier fails first, in the order of verification; of a table of symbols, the one whose
    name an earlier one has."""
    for op in root.walk(region_first=True):
        try:
            op.verify(verify_nested_ops=False)
        except Exception:
            symbols = op.regions[0].ops if op.has_trait(SymbolTable) else ()
            named = [(one.get_attr_or_prop("sym_name"), one) for one in symbols]
            names = [name for name, _ in named]
            return next((one for i, (name, one) in enumerate(named) if name and name in names[:i]), op)
    return None


@contextmanager
def located(module: ModuleOp) -> Generator[None]:
    """Give a verifier's complaint that leaves the block the place of the operation it is about."""
    try:
        yield
    except VerifyException as error:
        op = culprit(module)
        location = None if op is None else location_of(op)
        if op is None or location is None:
            raise
        raise with_notes(LocatedError(location, f"{op.name}: {error}"), error) from error


def verify(module: ModuleOp) -> None:
    """Verify a module. Raises LocatedError where the operation at fault has a place in a file, also for what a verifier
    does not foresee, such as a division by zero in a map."""
    with located(module):
        try:
            module.verify()
        except DiagnosticException:
            raise
        except Exception as error:
            raise VerifyException(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


TAKEN, PUT = ("memref.subview", "tensor.extract_slice"), ("tensor.insert_slice", "tensor.parallel_insert_slice")
"""Operations that make a part of their first operand, and that put their first operand into the second."""


def verify_upstream(op: Operation, visible: set[SSAValue] | None = None) -> None:
    """Checks inside an operation what MLIR's verifiers check and those of xDSL do not: that operands are defined ahead
    of their use, in a block that dominates it, and the numbers of slices, sizes and reshapes. Values in a module, or
    in a region of an operation that is not registered, have no order.

    Raises LocatedError, or DiagnosticException where the place is not known.
    """
    visible = set() if visible is None else visible
    for number, operand in enumerate(op.operands):
        if operand not in visible:
            fail(op, f"operand #{number} does not dominate this use")
    if op.name in _VERIFIERS:
        _VERIFIERS[op.name](op)
    for region in op.regions:
        dominance = DominanceInfo(region) if len(region.blocks) > 1 else None
        for block in region.blocks:
            ahead: Iterable[Block] = ()
            if isinstance(op, ModuleOp | UnregisteredOp):
                ahead = region.blocks
            elif dominance is not None:
                ahead = [other for other in region.blocks if dominance.strictly_dominates(other, block)]
            inside = {value for other in ahead for value in _defined(other)}.union(block.args)
            visible |= inside
            for each in block.ops:
                verify_upstream(each, visible)
                visible.update(each.results)
            visible -= inside.union(_defined(block))


def _verify_slice(op: Operation) -> None:
    """Checks the numbers of a slice, and that the part has its sizes, but for any number of dimensions of size 1."""
    values = op.operands[:2] if op.name in PUT else [*op.results, *op.operands[:1]]
    kinds = [kind for value in values if isinstance(kind := value.type, ShapedType)]
    if len(kinds) != 2:
        return
    part, rank = kinds[0], kinds[1].get_num_dims()
    columns: list[list[int]] = []
    for what in ("offset", "size", "stride"):
        numbers = op.properties.get(f"static_{what}s")
        if not isinstance(numbers, DenseArrayBase):
            return
        columns.append([int(number) for number in numbers.get_values()])
        if len(columns[-1]) != rank:
            fail(op, f"expected {rank} {what} values, got {len(columns[-1])}")
    left = list(part.get_shape())
    for size in columns[1]:
        if left[:1] == [size]:
            del left[0]
        elif size != 1:
            left.append(size)
            break
    if left:
        fail(op, f"expected a part with the sizes of the slice, got {part}")
    for number, (offset, size, stride, length) in enumerate(zip(*columns, kinds[1].get_shape(), strict=True)):
        end = offset + (size - 1) * stride + 1
        if min(offset, size, stride, length) >= 0 and size and end > length:
            fail(op, f"expected a slice within the {length} elements of dimension {number}, got one to {end}")


def _verify_sizes(op: Operation) -> None:
    """Checks that operands are the sizes that a type does not say; memory may have symbols, too."""
    if isinstance(kind := op.results[0].type, ShapedType):
        unknown, got = sum(size < 0 for size in kind.get_shape()), len(op.operands)
        if got < unknown or (got > unknown and op.name == "tensor.empty"):
            fail(op, f"expected {unknown} sizes, those that {kind} does not say, got {got}")


def _verify_dimension(op: Operation) -> None:
    """Checks the dimension whose size is asked for."""
    at, kind = op.operands[1].owner, op.operands[0].type
    number = at.properties.get("value") if isinstance(at, Operation) and at.name == "arith.constant" else None
    if not isinstance(kind, ShapedType) or not isinstance(number, IntegerAttr):
        return
    if not 0 <= number.value.data < (rank := kind.get_num_dims()):
        fail(op, f"expected the number of a dimension, from 0 to {rank - 1}, got {number.value.data}")


def _verify_reshape(op: Operation) -> None:
    """Checks that groups of dimensions, all of the larger shape's in order, have as many elements as one dimension."""
    kinds, groups = [v.type for v in (op.operands[0], op.results[0])], op.properties.get("reassociation")
    shapes = sorted((list(kind.get_shape()) for kind in kinds if isinstance(kind, ShapedType)), key=len)
    if len(shapes) != 2 or not isa(groups, ArrayAttr[ArrayAttr[IntegerAttr]]) or not shapes[0]:
        return  # a number is of any dimensions of one element
    along = [[number.value.data for number in group] for group in groups]
    if len(along) != len(shapes[0]) or [*chain(*along)] != [*range(len(shapes[1]))]:
        fail(op, f"expected {len(shapes[0])} groups of dimensions from 0 to {len(shapes[1]) - 1}, got {along}")
    for size, group in zip(shapes[0], along, strict=True):
        sizes = [shapes[1][number] for number in group]
        if min(size, *sizes) >= 0 and prod(sizes) != size:
            fail(op, f"expected a dimension of {size} elements for dimensions {group}, got {prod(sizes)}")


_VERIFIERS = {
    **dict.fromkeys((*TAKEN, *PUT), _verify_slice), **dict.fromkeys(("tensor.dim", "memref.dim"), _verify_dimension),
    **dict.fromkeys(("tensor.empty", "memref.alloc", "memref.alloca"), _verify_sizes),
    **{f"{of}.{how}_shape": _verify_reshape for of in ("memref", "tensor") for how in ("expand", "collapse")},
}  # fmt: skip


def _defined(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def describe(error: BaseException) -> str:
    """An error as a user should read it: `file:line:col: error: message` where the place is known."""
    if isinstance(error, ParseError):
        return _describe_parse_error(error)
    text = str(error).strip()
    if isinstance(error, LocatedError) or _LOCATED.match(text):
        return text
    return f"error: {text or type(error).__name__}"


_LOCATED = re.compile(r"\S[^\n]*?:\d+:\d+: error: ")


def _describe_parse_error(error: ParseError) -> str:
    """xDSL shows the place, the line, a caret and the message; here the message comes first."""
    place, *context = error.span.print_with_context().rstrip("\n").split("\n")
    message, got = error.msg.strip() or "syntax error", error.span.text
    if message == "in block definition":
        message = f"expected an operation, a block or '}}', got {repr(got) if got else 'the end'}"
    lines = [f"{place}: error: {message}", *context]
    if isinstance(error, MultipleSpansParseError):
        lines += [span.print_with_context(message).rstrip("\n") for span, message in error.refs]
    return "\n".join(lines)


def with_notes(error: LocatedError, cause: BaseException) -> LocatedError:
    for note in getattr(cause, "__notes__", ()):
        error.add_note(note)
    return error
