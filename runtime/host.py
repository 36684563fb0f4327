"""Host functions: what they are called with, which kernels they launch, and the scratch memory between those.

A lowered host function is a list of launches with constant sizes, and of allocations that launches write for later
ones to read. Reading it gives plain records; running them is the business of a device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, TypeGuard

from xdsl.dialects import arith, func, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, NoneAttr, TensorType
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ..dialect.schedule import Schedule
from ..dialect.warp.attributes import ScheduleAttr
from ..passes.diagnostics import location_of
from .arrays import DTYPES, Parameter
from .errors import HostError
from .launch import Launch
from .problem import Problem

Structured: TypeAlias = NamedOperation | GenericOp


@dataclass(frozen=True)
class Signature:
    """A host function as its caller sees it.

    `written` are the positions of arguments the function writes, `filled` of those it overwrites
    before it reads them. `products` are the matrix products among its `linalg` operations, in order.
    """

    name: str
    parameters: tuple[Parameter, ...]
    written: frozenset[int]
    filled: frozenset[int]
    products: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return f"@{self.name}({', '.join(f'%{p.name}: {p}' for p in self.parameters)})"


def functions(module: ModuleOp) -> dict[str, func.FuncOp]:
    """The host functions with a body, by name."""
    found = (op for op in module.ops if isinstance(op, func.FuncOp))
    return {op.sym_name.data: op for op in found if not op.is_declaration}


def choose(module: ModuleOp, name: str | None) -> func.FuncOp:
    """The function called `name`, or the only one.

    Raises:
        HostError: naming the functions there are.
    """
    found = functions(module)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(f"@{n}" for n in found) or "none"
    if name is None:
        fix = "name one" if found else "wrap the operations in a func.func"
        raise HostError(f"expected a module with one function, got {len(found)} ({names}); {fix}")
    if name not in found:
        raise HostError(f"no function @{name} in the module; it has {names}")
    return found[name]


def signature(function: func.FuncOp) -> Signature:
    """What `function` takes and writes, read from its type and its `linalg` operations.

    A function without `linalg` operations (one already lowered) counts as writing every array.

    Raises:
        HostError: for a parameter that no numpy array can be.
    """
    arguments = function.body.block.args
    parameters = tuple(_parameter(function, argument) for argument in arguments)
    structured = [op for op in function.body.walk() if _is_structured(op)]
    if not structured:
        everything = frozenset(i for i, p in enumerate(parameters) if p.shape is not None)
        return Signature(function.sym_name.data, parameters, everything, frozenset())
    written = {v.index for op in structured for v in op.outputs if isinstance(v, BlockArgument)}
    filled = {a.index for a in arguments if _filled_first(a, structured)}
    products = tuple(product for op in structured if (product := _product(op)) is not None)
    return Signature(function.sym_name.data, parameters, frozenset(written), frozenset(filled), products)


def _product(op: Structured) -> Problem | None:
    """The sizes of a matrix product: loops over rows of A and C, columns of B and C, A and B, and all three."""
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    values = (*op.inputs, *op.outputs)
    if len(values) < 3 or len(maps) != len(values):
        return None
    # More inputs than two are scalars, such as zero points.
    operands = [(value, map_) for value, map_ in zip(values, maps, strict=True) if map_.results]
    if len(operands) != 3 or not all(isinstance(e, AffineDimExpr) for _, m in operands for e in m.results):
        return None
    loops: dict[int, tuple[int, set[int]]] = {}
    for i, (value, map_) in enumerate(operands):
        if not _is_array(value.type) or len(value.type.get_shape()) != len(map_.results):
            return None
        for extent, e in zip(value.type.get_shape(), map_.results, strict=True):
            if isinstance(e, AffineDimExpr):
                loops.setdefault(e.position, (extent, set()))[1].add(i)
    kinds = ({0, 2}, {1, 2}, {0, 1}, {0, 1, 2})
    if any(members not in kinds for _, members in loops.values()) or {0, 1} not in (s for _, s in loops.values()):
        return None
    return Problem(*(prod(extent for extent, members in loops.values() if members == kind) for kind in kinds))


def _is_structured(op: Operation) -> TypeGuard[Structured]:
    return isinstance(op, NamedOperation | GenericOp)


def _is_array(kind: Attribute) -> TypeGuard[MemRefType[Any] | TensorType[Any]]:
    return isinstance(kind, MemRefType | TensorType)


def _filled_first(argument: BlockArgument, ops: list[Structured]) -> bool:
    first = next((op for op in ops if argument in op.operands), None)
    if not isinstance(first, GenericOp):
        return isinstance(first, FillOp)
    # An elementwise operation that does not look at the old elements.
    written = [i for i, value in enumerate(first.operands) if value == argument]
    every = first.indexing_maps.data[written[0]].data == AffineMap.identity(len(first.iterator_types.data))
    return argument not in first.inputs and every and not any(first.body.block.args[i].uses for i in written)


def _parameter(function: func.FuncOp, argument: BlockArgument) -> Parameter:
    name = argument.name_hint or f"arg{argument.index}"
    where = f"{_place(function)}@{function.sym_name.data}: parameter {argument.index} (%{name})"
    kind, strides = argument.type, None
    if not _is_array(kind):
        element, shape = str(kind), None
    else:
        element, shape = str(kind.get_element_type()), kind.get_shape()
        if isinstance(kind, MemRefType) and not isinstance(kind.layout, NoneAttr):
            found = kind.layout.get_strides()
            if found is None:
                raise HostError(f"{where}: expected a row-major or strided memref, got {kind}")
            strides = tuple(found)
    if shape is not None and any(extent < 0 for extent in shape):
        raise HostError(f"{where}: expected a static shape, got {kind}; give every extent as a number")
    if element not in DTYPES:
        raise HostError(f"{where}: no array can be passed as {kind}; element types are {', '.join(DTYPES)}")
    return Parameter(name, element, shape, strides)


@dataclass(frozen=True)
class Plan:
    """What a call does: its launches in order, and the bytes of each buffer of scratch memory they share.

    In a launch's arguments the buffers count on after the function's parameters.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()


@dataclass
class _Reading:
    """What is known of the values of a host function: constants, and the positions that launches pass."""

    constants: dict[SSAValue, int]
    positions: dict[SSAValue, int]


def plan(function: func.FuncOp) -> Plan:
    """The launches of a lowered host function, in order, and the scratch memory of its `memref.alloc`s.

    Memory may be given another shape between them.

    Raises:
        HostError: naming the first operation that is neither a constant, an allocation, a launch nor the return.
    """
    arguments = function.body.block.args
    known = _Reading({}, {argument: i for i, argument in enumerate(arguments)})
    found: list[Launch] = []
    scratch: list[int] = []
    for op in function.body.block.ops:
        match op:
            case arith.ConstantOp():
                if isinstance(op.value, IntegerAttr):
                    known.constants[op.result] = op.value.value.data
            case memref.AllocOp():
                known.positions[op.memref] = len(arguments) + len(scratch)
                scratch.append(_bytes(op))
            case memref.ExpandShapeOp():
                if op.src in known.positions:
                    known.positions[op.result] = known.positions[op.src]
            case memref.DeallocOp():
                known.positions.pop(op.memref, None)
            case gpu.LaunchFuncOp():
                found.append(_launch(op, known))
            case func.ReturnOp() if not op.operands:
                pass
            case NamedOperation() | GenericOp():
                raise HostError(
                    f"{_place(op)}host function @{function.sym_name.data}: {op.name} has no kernel of its own; "
                    f"elementwise operations are fused into the product before them where docs/epilogues.md says so"
                )
            case _:
                raise HostError(
                    f"{_place(op)}host function @{function.sym_name.data}: expected arith.constant, memref.alloc, "
                    f"memref.expand_shape, memref.dealloc, gpu.launch_func and an empty func.return, got {op.name}; "
                    f"has the module been lowered?"
                )
    return Plan(tuple(found), tuple(scratch))


def _bytes(op: memref.AllocOp) -> int:
    kind = op.memref.type
    element, shape = str(kind.element_type), kind.get_shape()
    if element not in DTYPES or min(shape, default=1) < 0 or not isinstance(kind.layout, NoneAttr):
        raise HostError(
            f"{_place(op)}memref.alloc: expected scratch memory of static size, row-major, with elements of "
            f"{', '.join(DTYPES)}, got {kind}"
        )
    return math.prod(shape) * DTYPES[element].itemsize


def _launch(op: gpu.LaunchFuncOp, known: _Reading) -> Launch:
    if op.asyncDependencies or op.asyncToken is not None or op.clusterSizeX is not None:
        raise HostError(f"{_place(op)}gpu.launch_func: expected no async token and no cluster size")
    path = [op.kernel.root_reference, *op.kernel.nested_references.data]
    if len(path) != 2:
        raise HostError(f"{_place(op)}gpu.launch_func: expected kernel @module::@kernel, got {op.kernel}")
    sizes = [
        _constant(op, value, what, known.constants)
        for value, what in (
            (op.gridSizeX, "grid x"),
            (op.gridSizeY, "grid y"),
            (op.gridSizeZ, "grid z"),
            (op.blockSizeX, "block x"),
            (op.blockSizeY, "block y"),
            (op.blockSizeZ, "block z"),
        )
    ]
    shared = op.dynamicSharedMemorySize
    return Launch(
        module=path[0].data,
        kernel=path[1].data,
        grid=(sizes[0], sizes[1], sizes[2]),
        block=(sizes[3], sizes[4], sizes[5]),
        shared=0 if shared is None else _constant(op, shared, "dynamic shared memory", known.constants),
        arguments=tuple(_argument(op, value, i, known.positions) for i, value in enumerate(op.kernelOperands)),
    )


def _constant(op: Operation, value: SSAValue, what: str, constants: dict[SSAValue, int]) -> int:
    if value not in constants:
        raise HostError(f"{_place(op)}gpu.launch_func: expected {what} to be an arith.constant above it")
    return constants[value]


def _argument(op: Operation, value: SSAValue, position: int, positions: dict[SSAValue, int]) -> int:
    if value not in positions:
        raise HostError(
            f"{_place(op)}gpu.launch_func: expected operand {position} to be an argument of the host function, "
            f"or memory allocated in it and not yet freed"
        )
    return positions[value]


def _place(op: Operation) -> str:
    location = location_of(op)
    return "" if location is None else f"{location}: "


def schedule_of(kernel: Operation) -> Schedule | None:
    """The schedule a kernel was lowered with; None if it carries none."""
    attribute = kernel.attributes.get(ScheduleAttr.name)
    return attribute.data if isinstance(attribute, ScheduleAttr) else None
