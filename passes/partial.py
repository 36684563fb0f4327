"""Partial conversion: what fits is lowered, and every other operation stays where it is, with a remark that says why.

An operation that a pass refuses stands aside while the passes run again: an operation that no pass knows holds its
place, has its operands, and takes part in whatever order memory asks for. Then it comes back, on the memory that its
operands have become, or on tensors of that memory. A symbol that cannot be lowered at all, such as a function of
several blocks, is put aside whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, UnregisteredOp, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator, SymbolTable
from xdsl.utils.exceptions import DiagnosticException

from .diagnostics import LocatedError, fail, location_of, name_of, remark
from .patterns import captured

BY = "partial-conversion"
"""What says that an operation stays, in remarks."""

ASIDE = "warp.aside"
"""What holds the place of an operation, by the number in its attribute of this name."""


@dataclass
class PartialConversion:
    """The operations and symbols that were taken out of a module, by number, with their places in it."""

    aside: list[Operation] = field(default_factory=list[Operation])
    symbols: list[Operation] = field(default_factory=list[Operation])
    reasons: list[tuple[Operation, str]] = field(default_factory=list[tuple[Operation, str]])

    def apply(self, module: ModuleOp, lower: Callable[[ModuleOp], None]) -> None:
        """Lowers those operations of a module that can be lowered, in place. Errors without a location are raised."""
        attempt = self._lowered(module, lower)
        module.attributes.update(attempt.attributes)
        module.properties.update(attempt.properties)
        region = attempt.body
        attempt.detach_region(region)
        old = module.body
        module.detach_region(old)
        old.drop_all_references()
        module.add_region(region)
        self._bring_back(module)

    def _lowered(self, module: ModuleOp, lower: Callable[[ModuleOp], None], *, several: bool = True) -> ModuleOp:
        """A lowered copy of what is left of a module. Once a module of kernels stays, `several` others are each tried
        alone: the passes would run over all of them again for each that stays."""
        while True:
            attempt, stay = module.clone(), len(self.symbols)
            try:
                lower(attempt)
                return attempt
            except DiagnosticException as error:
                if not isinstance(error, LocatedError) or (op := _at(module, error.location)) is None:
                    raise
                self._put_aside(op, error.message)
            if several and any(isinstance(symbol, gpu.ModuleOp) for symbol in self.symbols[stay:]):
                several = False
                self._try_alone(module, lower)

    def _try_alone(self, module: ModuleOp, lower: Callable[[ModuleOp], None]) -> None:
        """Takes out each module of kernels that cannot be lowered: none depends on another, or on a host function."""
        moved = [op for op in module.ops if isinstance(op, gpu.ModuleOp | func.FuncOp)]
        for op in moved:
            op.detach()
        for op in moved:
            if isinstance(op, gpu.ModuleOp):
                module.body.block.add_op(op)
                self._lowered(module, lower, several=False)
                if op not in self.symbols:
                    op.detach()
        module.body.block.add_ops(op for op in moved if op not in self.symbols)

    def _put_aside(self, op: Operation, reason: str) -> None:
        """Takes an operation out of the module. If it is part of a symbol that is not converted, takes out that
        symbol, or the module around it."""
        top = op
        while (parent := top.parent_op()) is not None and parent.parent is not None:
            top = parent
        nested = _in_function(op)
        self.reasons.append((self._original(op if nested is None else nested), reason))
        if nested is None or nested.has_trait(IsTerminator) or ASIDE in nested.attributes:
            self._take_out(top)
            return
        place = UnregisteredOp.with_name(f"{ASIDE}.{nested.name}").create(
            operands=[*nested.operands, *captured(nested)],
            result_types=[result.type for result in nested.results],
            attributes={ASIDE: IntegerAttr(len(self.aside), i64)},
        )
        place.location = nested.location
        copy = nested.clone()
        copy.location = nested.location
        self.aside.append(copy)
        Rewriter.replace_op(nested, place)

    def _original(self, op: Operation) -> Operation:
        """The operation whose place another one holds; itself if it holds none."""
        number = op.attributes.get(ASIDE)
        return self.aside[number.value.data] if isinstance(number, IntegerAttr) else op

    def _take_out(self, symbol: Operation) -> None:
        """Takes a symbol out of the module, with the functions that it calls and whose types would be others."""
        calls = [op.callee for op in symbol.walk() if isinstance(op, func.CallOp)]
        called = [SymbolTable.lookup_symbol(symbol, callee) for callee in calls]
        self.symbols.append(symbol)
        symbol.detach()
        for function in called:
            if isinstance(function, func.FuncOp) and function.parent is not None and not function.is_declaration:
                inputs, outputs = function.function_type.inputs, function.function_type.outputs
                if outputs or any(isinstance(kind, TensorType) for kind in inputs):
                    self.reasons.append((function, "a function that stays calls it"))
                    self._take_out(function)

    def _bring_back(self, module: ModuleOp) -> None:
        for symbol in self.symbols:
            module.body.block.add_op(symbol)
        for place in [op for op in module.walk() if ASIDE in op.attributes]:
            op = self._original(place)
            if op.parent is not None:  # a pass made two of the place
                op = op.clone()
                op.location = place.location
            own, outer = place.operands[: len(op.operands)], place.operands[len(op.operands) :]
            op.operands, inside = own, dict(zip(captured(op), outer, strict=True))
            for inner in (i for region in op.regions for i in region.walk()):
                inner.operands = [inside.get(value, value) for value in inner.operands]
            for result, placed in zip(op.results, place.results, strict=True):
                result.name_hint = placed.name_hint
            Rewriter.replace_op(place, op)


def _in_function(op: Operation) -> Operation | None:
    """The top-level operation of a host function that contains an operation; None for the function."""
    while (parent := op.parent_op()) is not None:
        if isinstance(parent, gpu.ModuleOp):
            return None
        if isinstance(parent, func.FuncOp) or parent.name.startswith("scf."):
            return None if isinstance(op, func.FuncOp) else op
        op = parent
    return None


def _at(module: ModuleOp, location: str) -> Operation | None:
    """The first operation at a place in a file."""
    return next((op for op in module.walk() if op is not module and location_of(op) == location), None)


def left_in(module: ModuleOp) -> Iterator[tuple[Operation, str]]:
    """The operations of host functions that no host program can have: those of unknown dialects and of `linalg`."""
    for op in module.walk():
        if isinstance(op, UnregisteredOp):
            yield op, "its dialect is not known"
        elif isinstance(op, LinalgStructuredOperation):
            yield op, "no pass lowered it"


def convert_partly(module: ModuleOp, lower: Callable[[ModuleOp], None], *, all_of_it: bool) -> None:
    """Lowers the parts of a module that can be lowered. A remark says why each other operation stays.

    With `all_of_it`, the first operation that stays is an error.
    """
    conversion = PartialConversion()
    conversion.apply(module, lower)
    said = {location_of(op) for op, _ in conversion.reasons}
    rest = [(op, why) for op, why in left_in(module) if location_of(op) not in said]
    for op, why in (*conversion.reasons, *rest):
        if all_of_it:
            fail(op, f"{name_of(op)} is not lowered: {why}")
        remark(op, BY, f"{name_of(op)} stays as it is: {why}")
