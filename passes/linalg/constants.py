"""Constants of many elements, and tensors of i1 as bytes: memory of the module, `memref.global`, and of conditions. A
constant of one value is that number to an elementwise operation, and `linalg.fill` to any other. One of several values
is memory that the host function hands to its kernels, with contents that are known before a call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    AnyDenseElement,
    AnyFloat,
    ArrayAttr,
    BytesAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    RankedStructure,
    StringAttr,
    TensorType,
    UnitAttr,
    i1,
    i8,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp, GenericOp, YieldOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, weighted
from ...dialect.mlir.upstream import GlobalOp
from ...dialect.warp.attributes import enclosing, in_place_of, is_memory, memory_of
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail
from ..patterns import LocatedRewriter
from .product import fresh_name

COVERED = "warp.covered"
"""On a part that is put into a tensor: others are put into the rest of it."""


def is_splat(value: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements of a constant have the same bits."""
    data, count = value.data.data, len(value)
    return count > 0 and data == data[: len(data) // count] * count


def check_elements(op: Operation, kind: Attribute) -> None:
    """Fails at an operation that would have to copy or to fill memory whose elements are neither floats nor
    integers."""
    shaped = isa(kind, MemRefType[Attribute] | TensorType[Attribute])
    if not shaped or not isinstance(kind.element_type, AnyFloat | IntegerType):
        fail(op, f"expected elements that are floats or integers, got {kind}")


def copy_before(op: Operation, source: SSAValue, target: SSAValue) -> None:
    """Copies memory before an operation. Fails as `check_elements` does."""
    check_elements(op, target.type)
    LocatedRewriter(op).insert(CopyOp([source], [target], []))


def spread_number(op: arith.ConstantOp, value: DenseIntOrFPElementsAttr) -> None:
    """Replaces a constant tensor of one value. Elementwise operations read the number instead. Every other use gets a
    filled tensor of its own, so that its memory can become that of a result."""
    if isinstance(value.type.element_type, ComplexType):
        check_elements(op, value.type)
    # all of them, one by one, take minutes
    number = LocatedRewriter(op).insert(arith.ConstantOp(next(value.iter_attrs())))
    _spread(op.result, number)
    Rewriter.erase_op(op)


def _spread(value: SSAValue, number: arith.ConstantOp) -> None:
    """Does so for the uses of a tensor, of known sizes where it is seen in another shape."""
    from xdsl.dialects import tensor  # 5 ms, for modules that have tensors

    while (use := next(iter(value.uses), None)) is not None:
        user: Operation = use.operation
        if isinstance(user, GenericOp) and use.index < len(user.inputs) and Nest.of(user).is_elementwise:
            Rewriter.replace_op(user, number_for_input(user, use.index, number))
            continue
        if isinstance(user, tensor.CollapseShapeOp | tensor.ExpandShapeOp) and min(shape_of(user.result)) >= 0:
            _spread(user.result, number)
            Rewriter.erase_op(user)
            continue
        check_elements(user, value.type)
        empty = tensor.EmptyOp([], value.type)
        filled = FillOp([number.result], [empty.tensor], [value.type])
        LocatedRewriter(number, user).insert([empty, filled])
        user.operands[use.index] = filled.results[0]


def number_for_input(op: GenericOp, number: int, constant: arith.ConstantOp) -> GenericOp:
    """An operation that takes a number for each element of an input; it has the region of the one before."""
    body = op.detach_region(op.body)
    argument, inputs, maps = body.block.args[number], list(op.inputs), list(op.indexing_maps.data)
    argument.replace_all_uses_with(constant.result)
    body.block.erase_arg(argument)
    del inputs[number], maps[number]
    return in_place_of(
        op, GenericOp(inputs, list(op.outputs), body, ArrayAttr(maps), op.iterator_types, op.result_types)
    )


def global_of(op: arith.ConstantOp, value: DenseIntOrFPElementsAttr, module: ModuleOp) -> memref.GetGlobalOp:
    """The memory of a constant tensor; its contents become a constant of the module."""
    tensor_type = op.result.type
    if not isa(tensor_type, TensorType[Attribute]):
        fail(op, f"expected a constant tensor, got {tensor_type}")
    kind = MemRefType(tensor_type.element_type, tensor_type.get_shape(), NoneAttr(), NoneAttr())
    every = [other for other in module.ops if isinstance(other, memref.GlobalOp)]
    global_ = next((g for g in every if g.initial_value == value and g.type == kind and g.constant is not None), None)
    if global_ is None:
        taken = {name.data for other in module.ops if isinstance(name := other.properties.get("sym_name"), StringAttr)}
        name = StringAttr(fresh_name(op.result.name_hint or "constant", taken))
        private = StringAttr("private")
        properties = {"sym_name": name, "type": kind, "initial_value": value, "sym_visibility": private}
        global_ = GlobalOp.create(properties={**properties, "constant": UnitAttr()})
        global_.location = op.location
        Rewriter.insert_op(global_, InsertPoint.at_start(module.body.block))
    get = memref.GetGlobalOp(global_.sym_name.data, kind)
    get.location = op.location
    return get


def permuted(memory: SSAValue, order: Sequence[int]) -> memref.GetGlobalOp | None:
    """The memory of a constant, or of another shape of one, whose dimensions are in another order; None for other
    memory, or if the contents are not known."""
    import numpy as np

    kind, op = memory_of(memory), memory.owner
    while isinstance(op, memref.CollapseShapeOp | memref.ExpandShapeOp):
        op = op.src.owner
    if not isinstance(op, memref.GetGlobalOp):
        return None
    value, shape = contents(op), kind.get_shape()
    module = next((each for each in enclosing(op) if isinstance(each, ModuleOp)), None)
    if isinstance(value, str) or module is None or len(value.data.data) % prod(shape):
        return None
    elements = np.frombuffer(value.data.data, f"V{len(value.data.data) // prod(shape)}").reshape(shape).transpose(order)
    turned = TensorType(kind.element_type, elements.shape)
    if not isa(turned, RankedStructure[AnyDenseElement]):
        return None
    turned_value = DenseIntOrFPElementsAttr(turned, BytesAttr(elements.tobytes()))
    constant = arith.ConstantOp(turned_value, turned)
    constant.result.name_hint, constant.location = op.memref.name_hint, op.location
    return global_of(constant, turned_value, module)


def contents(op: memref.GetGlobalOp) -> DenseIntOrFPElementsAttr | str:
    """The elements of a `memref.global`; a reason if they are not known."""
    module = next((each for each in enclosing(op) if isinstance(each, ModuleOp)), None)
    name = op.name_.string_value()
    every = [] if module is None else [o for o in module.ops if isinstance(o, memref.GlobalOp)]
    global_ = next((o for o in every if o.sym_name.data == name), None)
    if global_ is None:
        return f"the module has no memref.global @{name}"
    if global_.constant is None or not isinstance(global_.initial_value, DenseIntOrFPElementsAttr):
        return f"memref.global @{name} is no constant; pass memory that changes as an argument"
    if global_.type != op.memref.type or not isinstance(global_.type.layout, NoneAttr):
        return f"expected memory row by row, of the type of memref.global @{name}, {global_.type}, got {op.memref.type}"
    return global_.initial_value


def is_multiplied(value: SSAValue) -> bool:
    """Whether a tensor is an operand of a product, or moved for one."""
    users = [use.operation for use in value.uses]
    return any(
        (isinstance(user, LinalgStructuredOperation) and weighted(user.body.block) is not None)
        or any(is_multiplied(result) for result in user.results if user.name.startswith("tensor.") or _moves(user))
        for user in users
    )


def _moves(op: Operation) -> bool:
    """Whether an operation of `linalg` does nothing but copy elements."""
    return isinstance(op, LinalgStructuredOperation) and len(list(op.body.block.ops)) == 1


def hold_conditions(op: LinalgStructuredOperation) -> None:
    """Makes an operation read and write conditions as bytes where its memory has bytes."""
    body, end = op.body.block, op.body.block.last_op
    moves = len(list(body.ops)) == 1
    for number, value in enumerate(op.operands):
        argument = body.args[number]
        if not is_memory(value.type):
            if value.type == i1 and isinstance(constant := value.owner, arith.ConstantOp) and moves:
                constant_ = constant.value.value.data if isinstance(constant.value, IntegerAttr) else 0
                byte = Builder(InsertPoint.before(op)).insert(arith.ConstantOp(IntegerAttr(constant_ & 1, i8)))
                op.operands[number] = byte.result
                Rewriter.replace_value_with_new_type(argument, i8)
            continue
        if argument.type != i1 or value.type.element_type != i8:
            continue
        argument = Rewriter.replace_value_with_new_type(argument, i8)
        if argument.uses and not moves:
            condition = arith.TruncIOp(argument, i1)
            argument.replace_all_uses_with(condition.result)
            condition.operands[0] = argument
            Builder(InsertPoint.at_start(body)).insert(condition)
        if number >= len(op.inputs) and isinstance(end, YieldOp) and end.operands[number - len(op.inputs)].type == i1:
            place = Builder(InsertPoint.before(end))
            end.operands[number - len(op.inputs)] = place.insert(
                arith.ExtUIOp(end.operands[number - len(op.inputs)], i8)
            ).result
