"""Constants of many elements: tensors and memory of the module, `arith.constant dense<...>` and `memref.global`.

A constant of one value is that number to an elementwise operation, and `linalg.fill` to any other. One of several
values is memory that the host function hands to its kernels, with contents that are known before a call.
"""

from __future__ import annotations

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.upstream import GlobalOp
from ...dialect.nest import Nest
from ...dialect.warp.attributes import in_place_of
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail
from .product import fresh_name


def is_splat(value: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements of a constant have the same bits."""
    data, count = value.data.data, len(value)
    return count > 0 and data == data[: len(data) // count] * count


def number_of(kind: Attribute, number: int = 0) -> arith.ConstantOp:
    """A whole number of a type of floats or integers."""
    if isinstance(kind, AnyFloat):
        return arith.ConstantOp(FloatAttr(number, kind))
    return arith.ConstantOp(IntegerAttr(number, kind))  # pyright: ignore[reportArgumentType, reportCallIssue]


def spread_number(op: arith.ConstantOp, value: DenseIntOrFPElementsAttr) -> None:
    """Replaces a constant tensor of one value. Elementwise operations read the number instead. Every other use gets a
    filled tensor of its own, so that its memory can become that of a result."""
    number = arith.ConstantOp(next(value.iter_attrs()))  # all of them, one by one, take minutes
    number.location = op.location
    Rewriter.insert_op(number, InsertPoint.before(op))
    _spread(op.result, number)
    Rewriter.erase_op(op)


def _spread(value: SSAValue, number: arith.ConstantOp) -> None:
    """Does so for the uses of a tensor, of known sizes where it is seen in another shape."""
    from xdsl.dialects import tensor  # 5 ms, for modules that have tensors

    while (use := next(iter(value.uses), None)) is not None:
        user: Operation = use.operation
        if isinstance(user, GenericOp) and use.index < len(user.inputs) and Nest.of(user).is_elementwise:
            _number_for_input(user, use.index, number)
            continue
        if isinstance(user, tensor.CollapseShapeOp | tensor.ExpandShapeOp) and min(shape_of(user.result)) >= 0:
            _spread(user.result, number)
            Rewriter.erase_op(user)
            continue
        empty = tensor.EmptyOp([], value.type)
        filled = FillOp([number.result], [empty.tensor], [value.type])
        filled.location = number.location
        Rewriter.insert_op([empty, filled], InsertPoint.before(user))
        user.operands[use.index] = filled.results[0]


def _number_for_input(op: GenericOp, number: int, constant: arith.ConstantOp) -> None:
    """Replaces an input of an operation by a number."""
    body = op.detach_region(op.body)
    argument, inputs, maps = body.block.args[number], list(op.inputs), list(op.indexing_maps.data)
    argument.replace_all_uses_with(constant.result)
    body.block.erase_arg(argument)
    del inputs[number], maps[number]
    kinds = [result.type for result in op.results]
    new = GenericOp(inputs, list(op.outputs), body, ArrayAttr(maps), op.iterator_types, kinds)
    Rewriter.replace_op(op, in_place_of(op, new))


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


def contents(op: memref.GetGlobalOp) -> DenseIntOrFPElementsAttr | str:
    """The elements of the memory that an operation gets; why there are none, if there are none."""
    module = op.parent_op()
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
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
