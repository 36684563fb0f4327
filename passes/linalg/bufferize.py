"""`warp-bufferize`: functions on tensors become functions on memory, and their results arguments that are written.

MLIR's one-shot bufferisation decides the same for programs of any shape; here a function is one block of structured
operations, so that one rule does: a result that is returned goes into an argument of its own, behind the others, and
what is on the way to it, being needed nowhere else, into the same memory. Everything else gets memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeGuard

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, math, memref, scf, tensor
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    ShapedType,
    TensorType,
    UnrankedTensorType,
    UnregisteredOp,
    i1,
    i8,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, number_of
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail, warn
from ..patterns import IndexBuilder, apply_patterns, constant_value
from .constants import copy_before, global_of, hold_conditions, is_multiplied
from .generalize import GENERALIZED, generalize
from .operand import EXTENTS, groups_of
from .reshapes import Shaped, is_collapsible, memory_like, regroups_static_sizes, reshaped, subview_of, viewed


def bufferize(module: ModuleOp, *, tf32: bool = False) -> None:
    """Bufferises every function of a module that has tensors. In other functions only the results change. Raises a
    located diagnostic for operations on tensors that are not structured operations of `linalg`."""
    for function in [op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration]:
        values = [a for b in function.body.blocks for a in b.args] + [r for op in function.walk() for r in op.results]
        kinds = {type(value.type): value.type for value in values}
        if UnrankedTensorType in kinds:
            fail(function, f"expected tensors of known rank alone, got {kinds[UnrankedTensorType]}")
        for kind in (value.type for value in values):
            if _is_tensor(kind) and not isinstance(kind.element_type, AnyFloat | IndexType | IntegerType):
                fail(function, f"expected tensors of floats, integers or indices, got {kind}")
        if TensorType in kinds:
            if len(function.body.blocks) == 1:
                simplify(function, tf32=tf32)
            TensorFunction(function).rewrite()
            update_signature(function)
        elif function.function_type.outputs and MemRefType in kinds and len(function.body.blocks) == 1:
            from .front_ends import return_in_arguments

            return_in_arguments(function)
            update_signature(function)


def simplify(function: func.FuncOp, *, tf32: bool = False) -> None:
    """Gives each operation a single result, and lets products read operands without the operations that moved them.
    With `tf32`, f32 factors may be rounded."""
    from . import front_ends, moved_operands, reshapes, sizes, tensors

    names, wide = {op.name for op in function.walk()}, tensors.fuse_wide

    def where(kind: type[Operation], pattern: RewritePattern) -> tuple[RewritePattern, ...]:
        return (pattern,) if kind.name in names else ()

    apply_patterns((*sizes.PATTERNS, *where(tensor.ExtractOp, sizes.read_in_order)), function)
    tensors.drop_unused(function.body.block, function)
    narrow = where(arith.TruncIOp, front_ends.narrow_sums)
    first = tensors.one_result_each, front_ends.pass_sizes, *where(tensor.ExtractOp, front_ends.read_number), *narrow
    apply_patterns((*first, tensors.add_start, tensors.fill_for_each, front_ends.compute_slice), function)
    tensors.drop_unused(function.body.block)
    chained, decomposed = tuple[RewritePattern, ...](), tuple[RewritePattern, ...]()
    if any(isinstance(op, math.ExpOp | tensor.ExpandShapeOp) for op in function.walk()):
        apply_patterns((moved_operands.expand_batch,), function)
        scaled = [moved_operands.scale_behind] if tf32 else []
        largest = where(arith.AndIOp, moved_operands.largest_of_all)
        chained, decomposed = moved_operands.DECOMPOSED, (*scaled, wide, wide, *largest)
    kinds = {value.type for op in function.walk() for value in (*op.operands, *op.results)}
    units = [reshapes.drop_unit_loops] if any(isinstance(t, ShapedType) and 1 in t.get_shape() for t in kinds) else []
    of_moves, last = (chained, moved_operands.PATTERNS), (tensors.fuse_diamond, wide, *units)
    for patterns in ((*units, moved_operands.reshape_units), chained, decomposed, moved_operands.PATTERNS, last):
        for pattern in patterns if patterns not in of_moves or any(map(tensors.moves, function.walk())) else ():
            apply_patterns((pattern,), function)
    if apply_patterns(where(arith.ExtUIOp, front_ends.count_in_floats), function):
        apply_patterns((wide,), function)
    if any(len(Nest.of(op).summed) > 1 for op in function.walk() if isinstance(op, LinalgStructuredOperation)):
        apply_patterns((reshapes.sum_in_two,), function)
        if apply_patterns((reshapes.collapse_summed, reshapes.collapse_pixels), function):
            apply_patterns((reshapes.collapse_row,), function)
            apply_patterns((reshapes.collapse_row,), function, reverse=True)
            apply_patterns((reshapes.fold_reshapes,), function)
    tensors.drop_unused(function.body.block)


def update_signature(function: func.FuncOp) -> None:
    """Updates the type of a function whose results became its last arguments. Attributes of arguments stay with them;
    those of results go to the arguments, as in MLIR's `buffer-results-to-out-params`, if each result became one."""
    before, results = len(function.function_type.inputs), function.properties.pop("res_attrs", None)
    function.update_function_type()
    none = [DictionaryAttr({})] * (len(function.args) - before)
    if function.arg_attrs is not None or results is not None:
        added = results if isa(results, ArrayAttr[DictionaryAttr]) and len(results) == len(none) else none
        function.arg_attrs = ArrayAttr([*(function.arg_attrs or [DictionaryAttr({})] * before), *added])


@dataclass(frozen=True)
class BufferizePass(ModulePass):
    """Converts functions on tensors to functions on memory; each result becomes an argument after the others. The pass
    first inlines calls of functions of the module, and replaces composite operations by the operations that they stand
    for. With `tf32`, factors of f32 may be rounded."""

    name = "warp-bufferize"
    needs: ClassVar = (*GENERALIZED, "tensor", "returned")
    tf32: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        generalize(op)
        bufferize(op, tf32=self.tf32)


Tensor = TensorType[Attribute]


def _is_tensor(kind: Attribute) -> TypeGuard[Tensor]:
    return isinstance(kind, TensorType)


def _memory(kind: Attribute) -> MemRefType[Attribute]:
    if not _is_tensor(kind):
        raise ValueError(f"{kind} is no tensor")
    return MemRefType(kind.element_type, kind.get_shape(), NoneAttr(), NoneAttr())


def _stored(kind: Attribute) -> MemRefType[Attribute]:
    """The memory that a function has for a tensor: bytes for conditions."""
    memory = _memory(kind)
    return MemRefType(i8, memory.get_shape(), NoneAttr(), NoneAttr()) if memory.element_type == i1 else memory


@dataclass
class TensorFunction:
    """Rewrites one function in place. `buffers` maps each computed tensor to its memory, and `returned` each returned
    tensor to the argument that receives it. `copied` maps a value to further arguments that receive a copy. `done` has
    operations that were replaced. `turned` maps an operation to the memory of its operand, if it reshapes a returned
    tensor or inserts into another one."""

    function: func.FuncOp
    buffers: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    returned: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    copied: list[tuple[SSAValue, SSAValue]] = field(default_factory=list[tuple[SSAValue, SSAValue]])
    done: list[Operation] = field(default_factory=list[Operation])
    turned: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])

    def rewrite(self) -> None:
        if len(self.function.body.blocks) != 1:
            fail(self.function, "expected a function on tensors to be one block")
        block = self.function.body.block
        for argument in list(block.args):
            if _is_tensor(argument.type):
                plain = argument.type.element_type == i1 and is_multiplied(argument)
                kind = _memory(argument.type) if plain else _stored(argument.type)
                memory = Rewriter.replace_value_with_new_type(argument, kind)
                self.buffers[memory] = memory
        last = block.last_op
        if not isinstance(last, func.ReturnOp):
            fail(self.function, "expected a function on tensors to end with a return")
        self._add_results(last)
        for op in list(block.ops):
            self._rewrite(op)
        for op in reversed(self.done):
            Rewriter.erase_op(op)

    def _add_results(self, last: func.ReturnOp) -> None:
        """An argument for each value that is returned."""
        block = self.function.body.block
        if any(size < 0 for value in last.operands for size in shape_of(value)):
            from .sizes import extents_of

            if (extents := extents_of(last.operands, block.args)) is not None:
                self.function.attributes[EXTENTS] = extents
        for value in last.operands:
            kind = value.type if isinstance(value, BlockArgument) and value in self.buffers else None
            if kind is None and not _is_tensor(value.type):
                fail(last, f"{last.name}: expected tensors of known rank alone, got {value.type}")
            argument = block.insert_arg(_stored(value.type) if kind is None else kind, len(block.args))
            argument.name_hint = value.name_hint or "result"
            if kind is None and value not in self.returned:
                self.returned[value] = argument
            else:
                self.copied.append((value, argument))

    def _rewrite(self, op: Operation) -> None:
        if isinstance(op, func.ReturnOp):
            for value, argument in self.copied:
                copy_before(op, self._read(op, value), argument)
            Rewriter.replace_op(op, func.ReturnOp(), [])
        elif isinstance(op, tensor.EmptyOp):
            self.done.append(op)
        elif isinstance(op, arith.ConstantOp) and isinstance(op.value, DenseIntOrFPElementsAttr):
            self._constant(op, op.value)
        elif isinstance(op, arith.ConstantOp) and _is_tensor(op.result.type):
            fail(
                op,
                f"expected the elements of a constant as dense<...>, or as a resource of the text; {op.value} has no "
                f"contents: pass the tensor as an argument",
            )
        elif isinstance(op, tensor.DimOp):
            self._size(op)
        elif isinstance(op, Shaped):
            self._view(op)
        elif isinstance(op, tensor.InsertSliceOp):
            self._insert(op)
        elif isinstance(op, LinalgStructuredOperation):
            self._structured(op)
        elif isinstance(op, tensor.ExtractOp):
            Rewriter.replace_op(op, memref.LoadOp.get(self._read(op, op.tensor), op.indices))
        elif isinstance(op, scf.ForOp) and any(_is_tensor(result.type) for result in op.results):
            self._loop(op)
        elif isinstance(op, scf.ForOp):
            for inner in list(op.body.block.ops):
                self._rewrite(inner)
        elif isinstance(op, UnregisteredOp):
            self._unknown(op)
        elif inner := next((o for o in op.walk() if any(_is_tensor(v.type) for v in (*o.operands, *o.results))), None):
            fail(inner, f"{inner.name} on tensors is not bufferised; structured operations of linalg are")

    def _constant(self, op: arith.ConstantOp, value: DenseIntOrFPElementsAttr) -> None:
        """A constant tensor becomes memory of the module, copied if it is returned."""
        module, builder = self.function.parent_op(), Builder(InsertPoint.before(op))
        if not isinstance(module, ModuleOp):
            fail(op, "expected the function in a module")
        memory = builder.insert(global_of(op, value, module)).memref
        if (target := self.returned.get(op.result)) is not None:
            copy_before(op, memory, target)
        self.buffers[op.result] = memory
        self.done.append(op)

    def _unknown(self, op: UnregisteredOp) -> None:
        """An operation of an unknown dialect stays on tensors: of memory as it is there, and its results become
        memory."""
        from xdsl.dialects.bufferization import ToBufferOp, ToTensorOp

        kinds = (v.type for v in (*op.operands, *op.results) if _is_tensor(v.type))
        if condition := next((kind for kind in kinds if kind.element_type in (i1, IndexType())), None):
            fail(op, f"expected elements of whole bytes, as they are in memory, got {condition}")
        before, behind = Builder(InsertPoint.before(op)), Builder(InsertPoint.after(op))
        for number, value in enumerate(op.operands):
            if value in self.buffers:
                op.operands[number] = before.insert(ToTensorOp(self.buffers[value], restrict=True)).tensor
            elif isinstance(value.owner, tensor.EmptyOp):
                op.operands[number] = before.insert(value.owner.clone()).tensor
            elif _is_tensor(value.type):
                fail(op, f"{op.name} reads a tensor that nothing has been written to")
        for result in op.results:
            if _is_tensor(result.type):
                made = ToBufferOp.create(operands=[result], result_types=[_memory(result.type)])
                self.buffers[result] = behind.insert(made).results[0]
                if (argument := self.returned.get(result)) is not None:
                    behind.insert(CopyOp([made.results[0]], [argument], [])).location = op.location

    def _undefined(self, op: Operation, memory: SSAValue, builder: Builder) -> None:
        """Fills a tensor with zeros that is read before it is written, where any value is right."""
        warn(op, "warp-bufferize", f"{op.name} reads a tensor that nothing has been written to; zeros are taken for it")
        zero = builder.insert(number_of(memory_of(memory).element_type)).result
        builder.insert(FillOp([zero], [memory], [])).location = op.location

    def _size(self, op: tensor.DimOp) -> None:
        source, empty, number = self.buffers.get(op.source), op.source.owner, constant_value(op.index)
        if source is not None:
            Rewriter.replace_op(op, memref.DimOp(source, op.index))
        elif isinstance(empty, tensor.EmptyOp) and number is not None:
            shape = empty.tensor.type.get_shape()
            unknown = [d for d, size in enumerate(shape) if size < 0]
            if number in unknown:
                Rewriter.replace_op(op, [], [empty.dynamic_sizes[unknown.index(number)]])
            else:
                Rewriter.replace_op(op, arith.ConstantOp(IntegerAttr(shape[number], IndexType())))
        else:
            fail(op, "expected the size of a tensor whose contents are defined")

    def _view(self, op: Shaped) -> None:
        """A reshape or a part: a view of its memory, copied if it is returned. Of an empty tensor it gets its own."""
        if op.operands[0] not in self.buffers and -1 not in _memory(op.results[0].type).get_shape():
            self.done.append(op)
            return
        source = self._read(op, op.operands[0])
        target, builder = self._destination(op.results[0], op), Builder(InsertPoint.before(op))
        if isinstance(op, tensor.CollapseShapeOp) and not is_collapsible(source, groups_of(op)):
            kind, sizes = memory_of(source), IndexBuilder(builder).unknown_sizes(source)
            copied = builder.insert(memref.AllocOp(sizes, [], MemRefType(kind.element_type, kind.get_shape()))).memref
            copy_before(op, source, copied)
            source = copied
        place = None if target is None else target.owner
        if target is not None and (
            self.turned.get(op) is source or (isinstance(place, memref.SubviewOp) and place.source is source)
        ):
            # The source was put where its other shape is returned, or is the memory that the part is put back into.
            self.buffers[op.results[0]] = target
        else:
            view = builder.insert(viewed(op, source)).results[0]
            if target is not None:
                copy_before(op, view, target)
            self.buffers[op.results[0]] = view if target is None else target
        self.done.append(op)

    def _structured(self, op: LinalgStructuredOperation) -> None:
        if not op.results:
            if any(value in self.buffers for value in op.operands):
                fail(op, f"expected {op.name} on tensors to have a result for each output")
            return
        builder, targets, first = Builder(InsertPoint.before(op)), list[SSAValue](), len(op.inputs)
        for number, (init, result) in enumerate(zip(op.outputs, op.results, strict=True)):
            start, target, read = self.buffers.get(init), self._target(result, init, op), _uses(op, first + number)
            if start is not None and start != target and read:
                copy_before(op, start, target)
            if start is None and read:
                self._undefined(op, target, builder)
            targets.append(target)
        operands = [*(self._input(op, number, builder) for number in range(first)), *targets]
        regions = [region.clone() for region in op.regions]
        for inner in [o for region in regions for o in region.walk()]:
            if isinstance(inner, tensor.ExtractOp):
                Rewriter.replace_op(inner, memref.LoadOp.get(self._read(inner, inner.tensor), inner.indices))
            elif isinstance(inner, tensor.DimOp):
                self._size(inner)
        rewritten = type(op).create(
            operands=operands, properties=op.properties, attributes=op.attributes, regions=regions
        )
        rewritten.location = op.location
        builder.insert(rewritten)
        if any(value.type == i1 for region in regions for block in region.blocks for value in block.args):
            hold_conditions(rewritten)
        self.buffers.update(zip(op.results, targets, strict=True))
        self.done.append(op)

    def _input(self, op: LinalgStructuredOperation, number: int, builder: Builder) -> SSAValue:
        """The memory of an input. A tensor that only gives sizes, such as a pooling's window, gets new memory."""
        value = op.inputs[number]
        if isinstance(empty := value.owner, tensor.EmptyOp) and not _uses(op, number):
            return builder.insert(memref.AllocOp(list(empty.dynamic_sizes), [], _memory(value.type))).memref
        return self._read(op, value)

    def _insert(self, op: tensor.InsertSliceOp) -> None:
        """A tensor put into a part of another: copied into that part of its memory."""
        source, destination = self._read(op, op.source), self.buffers.get(op.dest)
        if destination is not None and self.turned.get(op) is source:
            self.buffers[op.result] = destination
            self.done.append(op)
            return
        from .front_ends import covers

        if destination is None and not covers(op):
            fail(op, "tensor.insert_slice puts a part into a tensor that nothing has been written to")
        target, builder = self._target(op.result, op.dest, op), Builder(InsertPoint.before(op))
        if destination is not None and destination != target:
            copy_before(op, destination, target)
        part = builder.insert(subview_of(op, target, memory_of(source).get_shape()))
        copy_before(op, source, part.result)
        self.buffers[op.result] = target
        self.done.append(op)

    def _loop(self, op: scf.ForOp) -> None:
        """A loop that carries tensors. Each becomes memory that every iteration writes."""
        body, last = op.body.block, op.body.block.last_op
        handed = [number for number, result in enumerate(op.results) if _is_tensor(result.type)]
        for number in handed:
            init, memory = op.iter_args[number], self.buffers.get(op.iter_args[number])
            target = self._target(op.results[number], init, op)
            if memory is not None and memory != target:
                copy_before(op, memory, target)
            self.buffers[body.args[1 + number]] = self.buffers[op.results[number]] = target
        for inner in list(body.ops):
            if inner is not last:
                self._rewrite(inner)
        others = [number for number in range(len(op.iter_args)) if number not in handed]
        values = [] if last is None else list(last.operands)
        for number in handed:
            made, target = self._read(op, values[number]), self.buffers[op.results[number]]
            if made != target:
                Builder(InsertPoint.at_end(body)).insert(CopyOp([made], [target], [])).location = op.location
        block = Block(arg_types=[body.args[0].type, *(op.iter_args[number].type for number in others)])
        for number, argument in zip((-1, *others), block.args, strict=True):
            body.args[1 + number].replace_all_uses_with(argument)
        for inner in [inner for inner in body.ops if inner is not last]:
            inner.detach()
            block.add_op(inner)
        block.add_op(scf.YieldOp(*(values[number] for number in others)))
        made = scf.ForOp(op.lb, op.ub, op.step, [op.iter_args[number] for number in others], block)
        Rewriter.insert_op(made, InsertPoint.before(op))
        made.location = op.location
        for number, result in zip(others, made.results, strict=True):
            op.results[number].replace_all_uses_with(result)
        self.done.append(op)

    def _read(self, op: Operation, value: SSAValue) -> SSAValue:
        if value in self.buffers:
            return self.buffers[value]
        if not _is_tensor(value.type):
            return value
        if not isinstance(empty := value.owner, tensor.EmptyOp) or not isinstance(op, LinalgStructuredOperation):
            fail(op, f"{op.name} reads a tensor that nothing has been written to")
        builder, kind = Builder(InsertPoint.before(op)), _stored(value.type)
        memory = builder.insert(memref.AllocOp(list(empty.dynamic_sizes), [], kind)).memref
        self._undefined(op, memory, builder)
        return memory

    def _target(self, result: SSAValue, init: SSAValue, op: Operation) -> SSAValue:
        """The memory of a result: the argument that returns it, that of its start value if that is free, or new."""
        returned, memory = self._destination(result, op), self.buffers.get(init)
        if returned is not None:
            return returned
        if memory is not None and isinstance(memory.owner, memref.AllocOp) and len(list(init.uses)) == 1:
            return memory
        kind, builder = _stored(result.type), Builder(InsertPoint.before(op))
        return builder.insert(memref.AllocOp(self._sizes(kind, init, memory, op, builder), [], kind)).memref

    def _place(self, insert: tensor.InsertSliceOp, memory: SSAValue, op: Operation) -> SSAValue | None:
        """The part of memory that a tensor is put into, where nothing else reads the tensor before: no other use of
        what a loop hands on, or one that has taken the same part, to write to. Inputs are not written, nor what another
        tensor is a view of."""
        is_input = memory.owner is self.function.body.block and memory not in self.returned.values()
        if isinstance(insert.dest.owner, Shaped) or is_input:
            return None
        others = [use.operation for use in insert.dest.uses if use.operation is not insert]
        part, block = others[0] if len(others) == 1 else None, op.parent
        if not others and isinstance(insert.dest, BlockArgument) and insert.dest.owner is block is insert.parent:
            makers = [each.owner for each in list(insert.operands)[2:] if isinstance(each.owner, Operation)]
            if not all(maker.parent is not block or maker.is_before_in_block(op) for maker in makers):
                return None
        elif not isinstance(part, tensor.ExtractSliceOp) or list(part.operands)[1:] != list(insert.operands)[2:]:
            return None
        else:
            names = ("static_offsets", "static_sizes", "static_strides")
            written = all(isinstance(u.operation, FillOp) and u.index == 1 for u in part.result.uses)
            if not written or any(part.properties[name] != insert.properties[name] for name in names):
                return None
        if insert not in self.turned:
            view = subview_of(insert, memory, _memory(insert.source.type).get_shape())
            self.turned[insert] = Builder(InsertPoint.before(op)).insert(view).result
        return self.turned[insert]

    @staticmethod
    def _sizes(
        kind: MemRefType[Attribute], init: SSAValue, start: SSAValue | None, op: Operation, builder: Builder
    ) -> list[SSAValue]:
        """The dynamic sizes of a tensor's memory: those of the `tensor.empty`, or of what the result starts from."""
        if isinstance(init.owner, tensor.EmptyOp):
            return list(init.owner.dynamic_sizes)
        if start is None and min(kind.get_shape(), default=0) < 0:
            fail(op, f"nothing tells the sizes of {kind}")
        return [] if start is None else IndexBuilder(builder).unknown_sizes(start)

    def _destination(self, value: SSAValue, op: Operation) -> SSAValue | None:
        """The argument that returns a value, or a tensor that is made of it in place; as a value before `op`."""
        if value in self.returned:
            return self.returned[value]
        uses = list(value.uses)
        user = uses[0].operation if len(uses) == 1 else None
        if isinstance(user, LinalgStructuredOperation) and user.results and value in user.outputs:
            return self._destination(user.results[uses[0].index - len(user.inputs)], op)
        if isinstance(user, tensor.InsertSliceOp) and value is user.dest:
            return self._destination(user.result, op)
        if isinstance(user, tensor.InsertSliceOp) and (memory := self.buffers.get(user.dest)) is not None:
            return self._place(user, memory, op)
        if isinstance(user, tensor.CollapseShapeOp | tensor.ExpandShapeOp) and user is not op:
            argument = self._destination(user.results[0], op)
            kind = _memory(value.type) if argument is None else memory_like(argument, value)
            if argument is not None and regroups_static_sizes(user, kind, memory_of(argument)):
                if user not in self.turned:
                    builder = Builder(InsertPoint.before(op))
                    self.turned[user] = builder.insert(reshaped(user, argument, kind, builder)).results[0]
                return self.turned[user]
        return None


def _uses(op: LinalgStructuredOperation, number: int) -> bool:
    """Whether the operation reads the previous content of an operand."""
    writes = isinstance(op, FillOp | CopyOp) and number >= len(op.inputs)
    return not writes and (not op.regions or not op.regions[0].blocks or bool(op.regions[0].block.args[number].uses))
