"""`warp-transform`: applies a strategy that is written in MLIR's dialect `transform`, in the module or in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects import transform
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue, TypeAttribute
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, PassFailedException

from ...dialect.schedule.transform import (
    AlternativesOp,
    AnnotateOp,
    ForeachOp,
    FuseIntoContainingOp,
    IncludeOp,
    MergeHandlesOp,
    ParamConstantOp,
    SplitHandleOp,
)
from ...dialect.warp.attributes import PartialScheduleAttr, ScheduleAttr
from ..diagnostics import fail, located, name_of, remark
from ..source import read_text
from ..universe import parse_mlir
from .handle import BY, Handle, StepError, Strategy

FACTS_OF = "warp.where"
"""The attribute of a match that stands for facts, `{m = "256..", types = [f16, f16]}` (`Handle.where`). A match by
facts alone takes operations of the handle, not those inside them."""

APPLY_PATTERNS = "warp-apply-patterns"
"""What is applied as a pass, and takes a handle of other operations than functions."""

MAIN = "__transform_main"
"""The sequence that a strategy begins with, as in upstream."""

Value = Handle | Attribute


@singledispatch
def apply_step(op: Operation, interpreter: Interpreter, operands: Sequence[Any]) -> Sequence[Value]:
    """Applies a step: of its operands it makes its results."""
    fail(op, f"{name_of(op)} is no step that strategies have here")


@dataclass
class Interpreter:
    """Applies sequences; `values` are the handles and parameters of the strategy's values."""

    strategy: Strategy
    sequences: dict[str, transform.NamedSequenceOp]
    values: dict[SSAValue, Value] = field(default_factory=dict[SSAValue, Value])

    def block(self, block: Block, arguments: Sequence[Value]) -> Sequence[Value]:
        """Applies the steps of a block, and returns what it yields. Raises a located diagnostic at the first that does
        not apply."""
        self.values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [self.values[operand] for operand in op.operands]
            if isinstance(op, transform.YieldOp):
                return operands
            try:
                results = apply_step(op, self, operands)
            except StepError as error:
                fail(op, f"{op.name} does not apply: {error.why}")
            if len(results) != len(op.results):
                fail(op, f"{op.name} has {len(results)} results here, got {len(op.results)}")
            self.values.update(zip(op.results, results, strict=True))
        return ()


# Control.


@apply_step.register(IncludeOp)
def _include(op: IncludeOp, interpreter: Interpreter, operands: Sequence[Value]) -> Sequence[Value]:
    name = op.target.root_reference.data
    sequence = interpreter.sequences.get(name)
    if sequence is None:
        raise StepError(op.name, f"there is no transform.named_sequence @{name}")
    if len(sequence.body.block.args) != len(operands):
        raise StepError(op.name, f"@{name} takes {len(sequence.body.block.args)} values, got {len(operands)}")
    try:
        return interpreter.block(sequence.body.block, operands)
    except DiagnosticException as error:
        if op.failures.data == transform.FailurePropagationModeType.PROPAGATE:
            raise
        remark(op, BY, f"@{name} stops: {error}")
        return [interpreter.strategy.root.of() for _ in op.results]


@apply_step.register(ForeachOp)
def _foreach(op: ForeachOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    if op.shortest is None and len({len(handle) for handle in operands}) > 1:
        raise StepError(op.name, f"expected handles of equally many, got {', '.join(str(len(h)) for h in operands)}")
    turns = [interpreter.block(op.body.block, turn) for turn in zip(*operands, strict=op.shortest is None)]
    return [_merged(interpreter, handles) for handles in zip(*turns, strict=True)] if turns and op.results_ else ()


@apply_step.register(AlternativesOp)
def _alternatives(op: AlternativesOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    def attempt(block: Block) -> Callable[[Handle], object]:
        return lambda scope: interpreter.block(block, [scope][: len(block.args)])

    scope = operands[0] if operands else interpreter.strategy.root
    scope.alternatives(*(attempt(region.block) for region in op.alternatives))
    return ()


# Handles and parameters.


@apply_step.register(transform.MatchOp)
def _match(op: transform.MatchOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    target, types = operands[0], op.filter_operand_types
    attributes = {} if op.op_attrs is None else dict(op.op_attrs.data)
    facts = attributes.pop(FACTS_OF, None)
    matched = target
    if op.ops is not None or op.interface is not None or attributes or types is not None or facts is None:
        matched = target.match(
            *(() if op.ops is None else (name.data for name in op.ops)),
            attributes=attributes,
            operands=None if types is None else types.data,
            result=op.filter_result_type,
            structured=op.interface is not None,
        )
    if isinstance(facts, DictionaryAttr) and matched.ops:
        matched = matched.where(**{name: _plain(value) for name, value in facts.data.items()})
    if not matched.ops:
        remark(op, BY, f"{op.name} matches no operation")
    return (matched,)


def _plain(value: Attribute) -> object:
    """What an attribute says, as Python has it."""
    match value:
        case IntegerAttr() | FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case SymbolRefAttr():
            return value.root_reference.data
        case ArrayAttr():
            return [_plain(each) for each in value.data]
        case DictionaryAttr():
            return {name: _plain(each) for name, each in value.data.items()}
        case _:
            return str(value) if isinstance(value, TypeAttribute) else value


@apply_step.register(SplitHandleOp)
def _split(op: SplitHandleOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    if len(operands[0]) != len(op.parts):
        raise StepError(
            op.name, f"expected {len(op.parts)} operations, got {len(operands[0])}", next(iter(operands[0].ops), None)
        )
    return [*operands[0]]


@apply_step.register(MergeHandlesOp)
def _merge(op: MergeHandlesOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    return (_merged(interpreter, operands),)


def _merged(interpreter: Interpreter, handles: Iterable[Value]) -> Handle:
    """The operations of several handles, each once."""
    ops = (each for handle in handles if isinstance(handle, Handle) for each in handle.ops)
    return interpreter.strategy.root.of(*dict.fromkeys(ops))


# What changes the program.


@apply_step.register(ParamConstantOp)
def _param(op: ParamConstantOp, interpreter: Interpreter, operands: Sequence[Value]) -> Sequence[Value]:
    return (op.value,)


@apply_step.register(AnnotateOp)
def _annotate(op: AnnotateOp, interpreter: Interpreter, operands: Sequence[Any]) -> Sequence[Value]:
    target, value, name = operands[0], operands[1] if op.param is not None else UnitAttr(), op.attribute.data
    if isinstance(value, PartialScheduleAttr | ScheduleAttr) and name == ScheduleAttr.name:
        target.set(**value.data.options())
    elif name == ScheduleAttr.name:
        raise StepError(op.name, f"expected fields of a schedule, #{name}<...>, got {value}")
    else:
        for each in target.needed(op.name):
            each.attributes[name] = value
    return ()


@apply_step.register(transform.TileOp)
def _tile(op: transform.TileOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    if op.dynamic_sizes or op.interchange or any(op.scalable_sizes.get_values() if op.scalable_sizes else ()):
        raise StepError(op.name, "sizes that are values, scalable sizes and interchange are not applied here")
    tiled, loops = operands[0].tile(*(op.static_sizes.get_values() if op.static_sizes else ()))
    return [tiled, *loops]


@apply_step.register(FuseIntoContainingOp)
def _fuse(op: FuseIntoContainingOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    return operands[0].fuse_into(operands[1])


@apply_step.register(transform.ApplyRegisteredPassOp)
def _pass(op: transform.ApplyRegisteredPassOp, interpreter: Interpreter, operands: Sequence[Handle]) -> Sequence[Value]:
    name, target = op.pass_name.data, operands[0]
    if name == APPLY_PATTERNS:
        return (target.rewrite(*_option(op.options.data.get("patterns", StringAttr(""))).split(",")),)
    options = " ".join(f"{name}={_option(value)}" for name, value in op.options.data.items())
    return (target.run(f"{name}{{{options}}}" if options else name),)


def _option(value: Attribute) -> str:
    """A value as the options of a pass have it."""
    plain = _plain(value)
    return ",".join(map(str, plain)) if isinstance(plain, list) else str(plain)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


# The pass.


def sequences_of(module: ModuleOp) -> dict[str, transform.NamedSequenceOp]:
    """The named sequences of a module."""
    return {op.sym_name.data: op for op in module.walk() if isinstance(op, transform.NamedSequenceOp)}


def apply_strategy(
    ctx: Context, module: ModuleOp, strategy: ModuleOp | Callable[[Handle], None], choices: Sequence[int] = ()
) -> Strategy:
    """Applies a strategy, a module with named sequences or a function, to a module in place.

    Raises a located diagnostic for a step that does not apply.
    """
    running = Strategy(ctx, module, choices)
    if not isinstance(strategy, ModuleOp):
        strategy(running.root)
        return running
    sequences = sequences_of(strategy)
    main = sequences.get(MAIN)
    if main is None or len(main.body.block.args) != 1:
        names = ", ".join(f"@{name}" for name in sequences) or "none"
        first = next(iter(sequences.values()), strategy)
        fail(first, f"expected a transform.named_sequence @{MAIN} of one handle, the module; there is {names}")
    Interpreter(running, sequences).block(main.body.block, [running.root])
    return running


def variants(
    ctx: Context, module: ModuleOp, strategy: ModuleOp | Callable[[Handle], None]
) -> Iterator[tuple[tuple[int, ...], ModuleOp]]:
    """The module by every choice of alternatives that applies, with the choices; the module itself is not changed.

    Raises a located diagnostic for a strategy that applies in no way.
    """
    wanted: list[tuple[int, ...]] = [()]
    while wanted:
        asked, variant = wanted.pop(0), module.clone()
        try:
            met = apply_strategy(ctx, variant, strategy, asked).met
        except DiagnosticException:
            if not asked:
                raise
            continue
        taken = tuple(number for number, _ in met)
        for place in range(len(asked), len(met)):
            number, count = met[place]
            wanted += [(*taken[:place], other) for other in range(number + 1, count)]
        yield taken, variant


def read_strategy(ctx: Context, text: str, name: str) -> ModuleOp:
    """Parses and verifies a strategy."""
    strategy = parse_mlir(ctx, text, name)
    with located(strategy):
        strategy.verify()
    return strategy


@dataclass(frozen=True)
class TransformPass(ModulePass):
    """Applies a strategy: named sequences of the dialect `transform`, from a `file` or from the module. Sequences of
    the module are erased.

    `choose` has a number for each `transform.alternatives`, in the order of execution: which alternative to apply.
    Without a number, the first that applies is taken.
    """

    name = "warp-transform"
    needs: ClassVar = (transform.NamedSequenceOp.name,)

    file: str | None = None
    choose: tuple[int, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.file is not None:
            try:
                strategy = read_strategy(ctx, read_text(self.file), self.file)
            except OSError as error:
                raise PassFailedException(f"{self.file}: {error.strerror or error}") from None
            apply_strategy(ctx, op, strategy, self.choose)
            return
        own = [each for each in op.ops if isinstance(each, transform.NamedSequenceOp) or _is_library(each)]
        if not own:
            return
        strategy = ModuleOp([])
        strategy.location = op.location
        for each in own:
            each.detach()
            strategy.body.block.add_op(each)
        op.attributes.pop("transform.with_named_sequence", None)
        apply_strategy(ctx, op, strategy, self.choose)


def _is_library(op: Operation) -> bool:
    """Whether an operation is a module of named sequences alone, as files have it that hold a program too."""
    return isinstance(op, ModuleOp) and "transform.with_named_sequence" in op.attributes
