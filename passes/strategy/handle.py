"""What a strategy does: handles of operations, and steps that match them, set their schedules, tile, fuse and rewrite.

A strategy in Python is a function of the module's handle::

    def strategy(module: Handle) -> None:
        module.match("linalg.matmul").where(m="256..", types=["f16", "f16"]).set(cta=(128, 128, 32), stages=3)

One in MLIR's dialect `transform` is interpreted by calls of the same methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from math import prod
from typing import cast

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func, gpu, memref, scf, tensor
from xdsl.dialects.builtin import MemRefType, ModuleOp, TensorType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.transforms.tiling import tile_structured_op
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import PassPipeline
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import DiagnosticException, PassFailedException
from xdsl.utils.hints import isa

from ...dialect import plugins
from ...dialect.mlir.affine import Nest, loops_of
from ...dialect.schedule import PartialSchedule, ScheduleError
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import PartialScheduleAttr, ScheduleAttr, enclosing
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import chose, describe, location_of, remark, verify
from ..patterns import apply_patterns, mixed, operations_between
from ..universe import WARPLOOM_UNIVERSE, known_universe

# Facts about operations that strategies match: sizes of products, types of elements, names.


Elements = MemRefType[Attribute] | TensorType[Attribute]
"""What has elements of a type, and a shape."""

SIZES = ("m", "n", "k", "batch")
"""Loops of A and C alone, of B and C alone, of A and B alone, of all three."""

FACTS = (*SIZES, "types", "in", "name")
"""What can be asked of an operation."""


def holds(op: Operation, facts: Mapping[str, object]) -> bool:
    """Whether facts hold for an operation. A dynamic size, and a size of an operation that is no product, is in no
    range. Raises StepError for an unknown fact."""
    if unknown := [name for name in facts if name not in FACTS]:
        raise StepError("where", f"unknown fact '{unknown[0]}'; known: {', '.join(FACTS)}")
    sizes = sizes_of(op)
    return all(_holds(op, sizes, name, value) for name, value in facts.items())


def _holds(op: Operation, sizes: Mapping[str, int], name: str, value: object) -> bool:
    match name:
        case "types":
            kinds = (operand.type for operand in op.operands)
            types = [str(kind.element_type) for kind in kinds if isa(kind, Elements)]
            wanted = list(map(str, cast("list[object]", value) if isinstance(value, list | tuple) else [value]))
            return types[: len(wanted)] == wanted
        case "in":
            return value in [*_names_around(op)]
        case "name":
            return value in {each.name_hint for each in (*op.operands, *op.results)}
        case _:
            low, high = _range(name, str(value))
            return low <= sizes.get(name, -1) <= high


def _range(name: str, text: str) -> tuple[int, float]:
    """The least and the largest number that a range has: `64..256`, `64..`, `..256`, `64`."""
    match = re.fullmatch(r"(\d*)(\.\.)?(\d*)", text)
    if match is None or not text.strip(".") or (match[3] and not match[2]):
        raise StepError("where", f"{name}: expected a number or a range such as 64..256, got '{text}'")
    low = int(match[1] or 0)
    return low, low if not match[2] else int(match[3]) if match[3] else float("inf")


def _names_around(op: Operation) -> Iterator[str]:
    """The functions and kernels that an operation is, or is in."""
    for each in (op, *enclosing(op)):
        if isinstance(each, func.FuncOp | gpu.FuncOp):
            yield each.sym_name.data


def sizes_of(op: Operation) -> dict[str, int]:
    """The sizes of a product, by SIZES; -1 where only a call says one. Nothing of another operation."""
    if isinstance(op, MatmulOp):
        return _sizes(op.maps, [*op.matrices[:2], op.d])
    if not isinstance(op, LinalgStructuredOperation):
        return {}
    nest = Nest.of(op)
    if len(nest.reads) < 2 or len(nest.writes) != 1 or not nest.summed:
        return {}
    accesses = (*nest.reads[:2], *nest.writes)
    return _sizes([access.map for access in accesses], [access.value for access in accesses])


def _sizes(maps: Sequence[AffineMap], values: Sequence[SSAValue]) -> dict[str, int]:
    extent: dict[int, int] = {}
    for map_, value in zip(maps, values, strict=True):
        kind = value.type
        if isa(kind, Elements):
            extent.update(zip(loops_of(map_), kind.get_shape(), strict=False))
    a, b, c = (set(loops_of(map_)) for map_ in maps)
    loops = {"m": (a & c) - b, "n": (b & c) - a, "k": (a & b) - c, "batch": a & b & c}
    extents = {name: [extent[loop] for loop in each] for name, each in loops.items()}
    return {name: -1 if min(each, default=1) < 0 else prod(each) for name, each in extents.items()}


BY = "warp-transform"
"""What says what a strategy chose, in remarks."""


class StepError(DiagnosticException):
    """A step of a strategy does not apply. `why` is the reason; the operation is the one that it does not apply to, if
    any."""

    def __init__(self, step: str, why: str, payload: Operation | None = None) -> None:
        place = None if payload is None else location_of(payload)
        self.why = why if place is None else f"{why}, at {place}"
        super().__init__(f"{step} does not apply: {self.why}")


@dataclass
class Strategy:
    """A strategy that runs on a module. `choices` has the number of the alternative for each place with several, in the
    order of execution. Without a number, the first that applies is taken."""

    ctx: Context
    module: ModuleOp
    choices: Sequence[int] = ()
    met: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Which alternative was applied at each place, and of how many."""

    @property
    def root(self) -> Handle:
        """The module."""
        return Handle(self, (self.module,))


@dataclass(frozen=True)
class Handle:
    """Operations of a module, in their order there."""

    strategy: Strategy
    ops: tuple[Operation, ...]

    def __iter__(self) -> Iterator[Handle]:
        """A handle of each operation."""
        return (self.of(op) for op in self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def of(self, *ops: Operation) -> Handle:
        """A handle of other operations of the module."""
        return Handle(self.strategy, ops)

    def needed(self, step: str) -> tuple[Operation, ...]:
        """The operations of the handle. A step needs at least one, and all must still exist. Raises StepError if the
        handle is empty, or one of them has been replaced."""
        if not self.ops:
            raise StepError(step, "no operation matches")
        for op in self.ops:
            if op is not self.strategy.module and op.get_toplevel_object() is not self.strategy.module:
                raise StepError(step, f"{op.name} is not there any more; a step before replaced it", op)
        return self.ops

    # Which operations.

    def match(
        self,
        *names: str,
        attributes: Mapping[str, Attribute] | None = None,
        operands: Sequence[Attribute] | None = None,
        result: Attribute | None = None,
        structured: bool = False,
    ) -> Handle:
        """The operations inside this handle that have one of the names (any name if there are none), the attributes,
        and the types of operands and result. With `structured`, operations of `linalg` with loops and a body."""
        ops = chain.from_iterable(op.walk(region_first=True) for op in self.needed("match"))
        matched = dict.fromkeys(
            op
            for op in ops
            if (not names or op.name in names)
            and (not structured or isinstance(op, LinalgStructuredOperation))
            and all(op.get_attr_or_prop(name) == value for name, value in (attributes or {}).items())
            and (operands is None or [operand.type for operand in op.operands] == [*operands])
            and (result is None or [each.type for each in op.results] == [result])
        )
        return self.of(*matched)

    def where(self, **facts: object) -> Handle:
        """The operations for which facts hold: `m="64..", types=["f16", "f16"]`. `m`, `n`, `k` and `batch` are sizes of
        a product, a number or a range `"64..256"` of which either end may be left out; `types` the element types of its
        operands, `in` the function or kernel that it is in, `name` a name of one of its operands or results. Raises
        StepError for an unknown fact."""
        return self.of(*(op for op in self.needed("where") if holds(op, facts)))

    # What becomes of them.

    def set(self, **fields: object) -> Handle:
        """Sets fields of the schedules of products, or attentions: `cta=(128, 128, 32), stages=3`. Raises StepError for
        an unknown field, or an illegal value."""
        for op in self.needed("set"):
            if not isinstance(op, LinalgStructuredOperation | MatmulOp | AttentionOp):
                raise StepError("set", f"expected a product or an attention, got {op.name}", op)
            before = op.attributes.get(ScheduleAttr.name)
            own = before.data.options() if isinstance(before, ScheduleAttr | PartialScheduleAttr) else {}
            try:
                partial = PartialSchedule.of({**own, **fields})
            except ScheduleError as error:
                raise StepError("set", f"{error}", op) from None
            op.attributes[ScheduleAttr.name] = PartialScheduleAttr(partial)
            chose(op, BY, str(partial))
        return self

    def tile(self, *sizes: int) -> tuple[Handle, list[Handle]]:
        """Loops over tiles of operations of `linalg`, whose loops are cut into parts of so many steps (0: not at all).
        Returns the operations of a tile, and the loops, from the outermost. Raises StepError for what is none of
        `linalg`, or has fewer loops."""
        tiled, loops = list[Operation](), list[list[Operation]]()
        for op in self.needed("tile"):
            if not isinstance(op, LinalgStructuredOperation):
                raise StepError("tile", f"expected an operation of linalg, got {op.name}", op)
            if len(sizes) > op.get_num_loops() or min(sizes, default=0) < 0:
                loops_of = f"{op.name} has {op.get_num_loops()} loops"
                raise StepError("tile", f"{loops_of}, got sizes {', '.join(map(str, sizes))}", op)
            try:
                result = tile_structured_op(PatternRewriter(op), op, sizes)
            except PassFailedException as error:
                raise StepError("tile", f"{error}", op) from None
            result.tiled_op.location = op.location
            tiled.append(result.tiled_op)
            loops.append([*result.loops])
        return self.of(*tiled), [self.of(*each) for each in zip(*loops, strict=True)]

    def fuse_into(self, loops: Handle) -> tuple[Handle, Handle]:
        """Computes, in each turn of a loop over tiles, the parts of the operations' results that the turn reads.
        Returns what computes them, and the loop. Raises StepError if an operation cannot be computed in parts, or the
        loop does not read it so."""
        (loop,) = loops.needed("fuse_into_containing_op")
        parts: list[Operation] = []
        for op in self.needed("fuse_into_containing_op"):
            if not isinstance(op, LinalgStructuredOperation) or not isinstance(loop, scf.ForOp):
                raise StepError(
                    "fuse_into_containing_op", f"expected linalg and scf.for, got {op.name}, {loop.name}", op
                )
            try:
                parts += fuse_into(op, loop)
            except ValueError as error:
                raise StepError("fuse_into_containing_op", f"{error}", op) from None
        return self.of(*parts), loops

    def run(self, pipeline: str) -> Handle:
        """Runs passes on the module, or on the functions and kernels of the handle alone. Returns a handle of those
        that still exist. Raises StepError for an unknown pass, for other operations, and for errors of a pass."""
        ops = self.needed("apply_registered_pass")
        module, kept = self.strategy.module, [op for op in ops if isinstance(op, func.FuncOp | gpu.FuncOp)]
        if ops != (module,) and len(kept) < len(ops):
            other = next(op for op in ops if op not in kept)
            raise StepError(
                "apply_registered_pass", f"expected the module, functions or kernels, got {other.name}", other
            )
        functions = [op for op in module.walk() if isinstance(op, func.FuncOp | gpu.FuncOp)]
        aside = [] if ops == (module,) else [op for op in functions if op not in kept and _is_skipped(op, kept)]
        places = [(op, op.parent, op.next_op) for op in aside]
        for op in aside:
            op.detach()
        try:
            PassPipeline.parse_spec(known_universe().all_passes, pipeline).apply(self.strategy.ctx, module)
        except DiagnosticException as error:
            raise StepError("apply_registered_pass", f"{pipeline}: {describe(error)}") from error
        except (ValueError, KeyError) as error:
            raise StepError("apply_registered_pass", f"{pipeline}: {error}") from None
        finally:
            for op, block, before in reversed(places):
                if block is not None:
                    there = before is not None and before.parent is block
                    block.insert_op_before(op, before) if there and before is not None else block.add_op(op)
        verify(module)
        return self.of(*(op for op in ops if op is module or op.get_toplevel_object() is module))

    def rewrite(self, *patterns: str | RewritePattern) -> Handle:
        """Applies patterns, objects or names, to the operations and their contents. Raises StepError for an unknown
        name, or if no pattern applies."""
        rules = [pattern_named(each) if isinstance(each, str) else each for each in patterns]
        before = [id(op) for op in self.strategy.module.walk()]
        for op in self.needed("apply_patterns"):
            apply_patterns(rules, op, itself=op is not self.strategy.module)
        if [id(op) for op in self.strategy.module.walk()] == before:
            names = ", ".join(type(rule).__name__ for rule in rules)
            remark(self.ops[0], BY, f"apply_patterns: {names} changed no operation")
        return self.of(*(op for op in self.ops if op is self.strategy.module or op.parent is not None))

    def alternatives(self, *attempts: Callable[[Handle], object]) -> None:
        """Applies the first attempt of which all steps apply, each to the operation of this handle. Failed attempts are
        undone. Handles to operations inside of this one become invalid. Raises StepError if none applies, with the
        reason of each."""
        strategy, place = self.strategy, len(self.strategy.met)
        (scope,) = self.needed("alternatives")
        asked = strategy.choices[place : place + 1] or range(len(attempts))
        reasons: list[str] = []
        for number in (number for number in asked if number < len(attempts)):
            saved = scope.clone()
            strategy.met.append((number, len(attempts)))
            try:
                attempts[number](self.of(scope))
            except DiagnosticException as error:
                _restore(scope, saved)
                del strategy.met[place:]
                reasons.append(f"{number + 1}: {error}")
                remark(scope, BY, f"alternative {number + 1} of {len(attempts)} does not apply: {error}")
            else:
                saved.drop_all_references()
                chose(scope, BY, f"alternative {number + 1} of {len(attempts)}")
                return
        said = "; ".join(reasons) or f"there is no number {asked[0]}"
        raise StepError("alternatives", f"none of {len(attempts)} applies ({said})", scope)


def pattern_named(name: str) -> RewritePattern:
    """A pattern by the name of its class, from the file of a pass, or of another package by its entry point. Raises
    StepError if there is none."""
    modules = dict.fromkeys(import_module(factory().__module__) for factory in WARPLOOM_UNIVERSE.all_passes.values())
    every = ((module.__name__, value) for module in modules for value in vars(module).values())
    kinds = ((home, value if isinstance(value, type) else type(value)) for home, value in every)
    own = {kind.__name__: kind for home, kind in kinds if issubclass(kind, RewritePattern) and kind.__module__ == home}
    kind = own.get(name) or plugins.loaded(plugins.PATTERNS, name)
    if kind is None:
        names = ", ".join(sorted((*own, *plugins.entries(plugins.PATTERNS))))
        raise StepError("apply_patterns", f"there is no pattern {name}; there are {names}")
    try:
        return cast("type[RewritePattern]", kind)()
    except TypeError as error:
        raise StepError("apply_patterns", f"{name} is no pattern that is made of nothing: {error}") from None


def _is_skipped(op: Operation, kept: Sequence[Operation]) -> bool:
    """Whether passes skip a function: a host function, or a kernel if other kernels are named."""
    return isinstance(op, func.FuncOp) or any(isinstance(each, gpu.FuncOp) for each in kept)


def _restore(op: Operation, saved: Operation) -> None:
    """Restores the attributes and contents of an operation from a copy."""
    op.attributes, op.properties = saved.attributes, saved.properties
    for region in list(op.regions):
        op.detach_region(region)
        region.drop_all_references()
    for region in list(saved.regions):
        saved.detach_region(region)
        op.add_region(region)
    saved.drop_all_references()


# Fusion of producers into loops over tiles: each turn computes the part of a producer's result that it reads.

Slice = tensor.ExtractSliceOp | memref.SubviewOp
"""What takes a part of a tensor, or of memory."""

Size = int | SSAValue


def fuse_into(producer: LinalgStructuredOperation, loop: scf.ForOp) -> list[Operation]:
    """Computes, in each iteration of a loop, the parts of a producer's result that the iteration reads. Erases the
    producer if it has no other use. Returns the operations that compute the parts. Raises ValueError with the reason
    why that is not possible."""
    nest = Nest.of(producer)
    if len(nest.writes) != 1 or min(nest.writes[0].loops, default=-1) < 0:
        raise ValueError(f"{producer.name} has not one result, each of whose dimensions runs along a loop")
    on_memory = not producer.results
    produced = producer.outputs[0] if on_memory else producer.results[0]
    inside = [use.operation for use in produced.uses if loop.is_ancestor(use.operation)]
    slices = [op for op in loop.walk() if isinstance(op, Slice) and op.operands[0] is produced]
    if not slices or len(slices) < len(inside):
        raise ValueError("the loop reads no part of its result" if not inside else "the loop reads all of its result")
    if on_memory:
        _check_memory(producer, loop, produced, slices)
    made = [_part(producer, nest, op) for op in (slices[:1] if on_memory else slices)]
    if on_memory or not produced.uses:
        Rewriter.erase_op(producer)
    return made


def _check_memory(producer: Operation, loop: scf.ForOp, produced: SSAValue, slices: Sequence[Slice]) -> None:
    """Refuses memory of which parts cannot be written in turns in place of all of it. Raises ValueError saying why."""
    if not isinstance(produced.owner, memref.AllocOp):
        raise ValueError("its result lies in memory that others see; expected a memref.alloc")
    between = operations_between(producer, loop)
    for op in between or ():
        if any(produced in inner.operands for inner in op.walk()):
            raise ValueError(f"{op.name}, between it and the loop, uses its result")
    after = (
        u.operation for u in produced.uses if u.operation.parent is loop.parent and loop.is_before_in_block(u.operation)
    )
    if between is None or not all(isinstance(each, memref.DeallocOp) for each in after):
        raise ValueError("its result is used behind the loop, or the loop does not follow it")
    if any(each.parent_op() is not loop or _extents(each) != _extents(slices[0]) for each in slices):
        raise ValueError("the loop reads several parts of its result, or reads them in a loop in it")
    if loop.body.block.args[0] not in slices[0].offsets:
        raise ValueError("each turn of the loop reads the same part of its result")


def _part(producer: LinalgStructuredOperation, nest: Nest, of: Slice) -> Operation:
    """Computes the part of a producer's result that a slice reads, before its reader."""
    if any(stride != 1 for stride in of.static_strides.get_values()):
        raise ValueError("the loop reads a part with strides")
    at: dict[int, tuple[Size, Size]] = {}
    for loop, offset, size in zip(nest.writes[0].loops, *_extents(of), strict=True):
        at[loop] = offset, size
    builder = Builder(InsertPoint.before(of))
    operands = [
        _sliced(builder, access.value, [at.get(loop) for loop in access.loops], access.loops)
        for access in nest.accesses
    ]
    kinds = [operands[-1].type] if producer.results else []
    part = type(producer).create(
        operands=operands,
        result_types=kinds,
        properties=producer.properties,
        attributes=producer.attributes,
        regions=[region.clone() for region in producer.regions],
    )
    part.location = producer.location
    builder.insert(part)
    of.result.replace_all_uses_with(part.results[0] if producer.results else operands[-1])
    Rewriter.erase_op(of)
    return part


def _extents(of: Slice) -> tuple[list[Size], list[Size]]:
    """Where a part begins, and how large it is."""
    return mixed(of.static_offsets, of.offsets), mixed(of.static_sizes, of.sizes)


def _sliced(
    builder: Builder, value: SSAValue, at: Sequence[tuple[Size, Size] | None], loops: Sequence[int]
) -> SSAValue:
    """The part of an operand that a part of the loops reads."""
    kind = value.type
    if not isa(kind, Elements) or all(each is None for each in at):
        return value
    if min(loops) < 0:
        raise ValueError(f"an operand of type {kind} runs along sums of loops")
    extents = [(0, size) for size in kind.get_shape()]
    offsets, sizes = zip(*(own or all_ for own, all_ in zip(at, extents, strict=True)), strict=True)
    ones = [1] * len(offsets)
    if isinstance(kind, MemRefType):
        result = memref.SubviewOp.infer_result_type(kind, offsets, sizes, ones)
        return builder.insert(memref.SubviewOp.get(value, offsets, sizes, ones, result)).result
    result = tensor.ExtractSliceOp.infer_result_type(kind, sizes)
    return builder.insert(tensor.ExtractSliceOp(value, offsets, sizes, ones, result)).result
