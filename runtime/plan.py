"""What a lowered host function does when it is called: its launches, and the scratch memory between those.

Such a function is a list of launches, of allocations that launches write for later ones to read, and of arithmetic on
constants and on the sizes of its arguments. Reading it gives plain records; running them is the business of a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, func, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, NoneAttr
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.utils.hints import isa

from ..dialect.warp.parts import ZEROED
from ..dialect.warp.view import dynamic_parts
from ..passes.diagnostics import location_of
from .arrays import DTYPES, Argument, memory_bytes
from .errors import ArgumentError, HostError
from .launch import Buffer, Launch, Value, Word

INDEX_LIMIT = 1 << 31
"""Kernels compute with 32-bit sizes, and 32-bit distances of rows in bytes."""

_ARITHMETIC: Mapping[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.DivUIOp: lambda a, b: a // b,
    arith.RemUIOp: lambda a, b: a % b,
    arith.CeilDivUIOp: lambda a, b: -(-a // b),
    arith.MinUIOp: min,
    arith.MaxUIOp: max,
}


@dataclass(frozen=True)
class Plan:
    """What a call does: its launches in order, and each buffer of scratch memory they share.

    In a launch's arguments the buffers count on after the function's parameters. `dynamic` says that launches depend
    on the sizes of the arguments; a plan made without arguments is then one for sizes of 1.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...] = ()
    dynamic: bool = False


def plan(function: func.FuncOp, values: Sequence[Value] | None = None) -> Plan:
    """The launches of a lowered host function, in order, and the scratch memory of its `memref.alloc`s.

    `values` are the arguments of the call, where launches depend on them. A launch of no CTAs is left out.

    Raises:
        HostError: naming the first operation that has no meaning here.
        ArgumentError: for a size or stride that is too large for a kernel.
    """
    reading = _Reading(function, values)
    for op in function.body.block.ops:
        reading.read(op)
    return Plan(tuple(reading.launches), tuple(reading.scratch), reading.dynamic)


@dataclass
class _Reading:
    """What is known of the values of a host function: numbers, memory allocated with its position and sizes, and the
    memory behind another shape of it."""

    function: func.FuncOp
    values: Sequence[Value] | None
    numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    allocated: dict[SSAValue, tuple[int, tuple[int, ...]]] = field(
        default_factory=dict[SSAValue, tuple[int, tuple[int, ...]]]
    )
    shaped: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    launches: list[Launch] = field(default_factory=list[Launch])
    scratch: list[Buffer] = field(default_factory=list[Buffer])
    dynamic: bool = False

    def read(self, op: Operation) -> None:
        match op:
            case arith.ConstantOp():
                if isinstance(op.value, IntegerAttr):
                    self.numbers[op.result] = op.value.value.data
            case memref.DimOp() if op.index in self.numbers:
                self.numbers[op.result] = self._shape(op, op.source)[self.numbers[op.index]]
            case memref.AllocOp():
                shape = self._allocated_shape(op)
                self.allocated[op.memref] = len(self.function.body.block.args) + len(self.scratch), shape
                size = memory_bytes(str(op.memref.type.element_type), math.prod(shape))
                self.scratch.append(Buffer(size, zeroed=ZEROED in op.attributes))
            case memref.ExpandShapeOp() | memref.CollapseShapeOp():
                self.shaped[op.result] = self.shaped.get(op.src, op.src)
            case memref.DeallocOp():
                self.allocated.pop(op.memref, None)
            case gpu.LaunchFuncOp():
                self._launch(op)
            case func.ReturnOp() if not op.operands:
                pass
            case _ if type(op) in _ARITHMETIC and all(v in self.numbers for v in op.operands):
                a, b = (self.numbers[v] for v in op.operands)
                self.numbers[op.results[0]] = _ARITHMETIC[type(op)](a, b)
            case _:
                raise HostError(
                    f"{place_of(op)}host function @{self.function.sym_name.data}: expected arith on constants and "
                    f"sizes, memref.dim, memref.alloc, memref.expand_shape, memref.collapse_shape, memref.dealloc, "
                    f"gpu.launch_func and an empty func.return, got {op.name}; has the module been lowered?"
                )

    def _position(self, value: SSAValue) -> int | None:
        """The number of an argument of the function; None for another value."""
        if isinstance(value, BlockArgument) and value.block is self.function.body.block:
            return value.index
        return None

    def _shape(self, op: Operation, value: SSAValue) -> tuple[int, ...]:
        """The sizes of memory in this call."""
        if value in self.allocated:
            return self.allocated[value][1]
        position = self._position(value)
        if position is None or not isa(value.type, MemRefType[Attribute]):
            raise HostError(f"{place_of(op)}{op.name}: expected an argument of the host function, or memory allocated")
        shape = value.type.get_shape()
        if min(shape, default=0) < 0:
            self.dynamic = True
            given = None if self.values is None else self.values[position]
            return given.shape if isinstance(given, Argument) else tuple(max(1, size) for size in shape)
        return shape

    def _allocated_shape(self, op: memref.AllocOp) -> tuple[int, ...]:
        kind, sizes = op.memref.type, [self.numbers.get(v) for v in op.dynamic_sizes]
        known = iter(sizes)
        shape = tuple(next(known, None) if size < 0 else size for size in kind.get_shape())
        extents = tuple(size for size in shape if size is not None)
        if str(kind.element_type) not in DTYPES or len(extents) < len(shape) or not isinstance(kind.layout, NoneAttr):
            raise HostError(
                f"{place_of(op)}memref.alloc: expected scratch memory of known size, row-major, with elements of "
                f"{', '.join(DTYPES)}, got {kind}"
            )
        return extents

    def _launch(self, op: gpu.LaunchFuncOp) -> None:
        if op.asyncDependencies or op.asyncToken is not None or op.clusterSizeX is not None:
            raise HostError(f"{place_of(op)}gpu.launch_func: expected no async token and no cluster size")
        path = [op.kernel.root_reference, *op.kernel.nested_references.data]
        if len(path) != 2:
            raise HostError(f"{place_of(op)}gpu.launch_func: expected kernel @module::@kernel, got {op.kernel}")
        grid = [self._number(op, v, f"grid {axis}") for axis, v in zip(
            "xyz", (op.gridSizeX, op.gridSizeY, op.gridSizeZ), strict=True)]  # fmt: skip
        block = [self._number(op, v, f"block {axis}") for axis, v in zip(
            "xyz", (op.blockSizeX, op.blockSizeY, op.blockSizeZ), strict=True)]  # fmt: skip
        arguments = [word for i, value in enumerate(op.kernelOperands) for word in self._passed(op, value, i)]
        shared = op.dynamicSharedMemorySize
        bytes_ = 0 if shared is None else self._number(op, shared, "dynamic shared memory")
        if 0 in grid and self.dynamic:
            return
        self.launches.append(
            Launch(
                module=path[0].data,
                kernel=path[1].data,
                grid=(grid[0], grid[1], grid[2]),
                block=(block[0], block[1], block[2]),
                shared=bytes_,
                arguments=tuple(arguments),
            )
        )

    def _number(self, op: Operation, value: SSAValue, what: str) -> int:
        if value not in self.numbers:
            raise HostError(
                f"{place_of(op)}gpu.launch_func: expected {what} to be an arith.constant, or computed, above it"
            )
        return self.numbers[value]

    def _passed(self, op: Operation, value: SSAValue, number: int) -> list[int | Word]:
        """What an operand of a launch is passed as: its address, its dynamic sizes, its dynamic strides."""
        whole = self.shaped.get(value, value)
        position = self.allocated[whole][0] if whole in self.allocated else self._position(whole)
        if position is None:
            raise HostError(
                f"{place_of(op)}gpu.launch_func: expected operand {number} to be an argument of the host function, "
                f"or memory allocated in it and not yet freed"
            )
        if not isa(value.type, MemRefType[Attribute]) or (parts := dynamic_parts(value.type)) == ([], []):
            return [position]
        self.dynamic = True
        sizes, strides = parts
        shape = self._shape(op, value)
        given = None if self.values is None or value in self.allocated else self.values[position]
        steps = _steps(given, position) if isinstance(given, Argument) else [1] * len(shape)
        return [position, *(Word(shape[i]) for i in sizes), *(Word(steps[i]) for i in strides)]


def _steps(argument: Argument, position: int) -> list[int]:
    """The strides of an argument in elements; of a dimension of one index, none."""
    strides = argument.byte_strides
    row = max((s for s, n in sorted(zip(strides, argument.shape, strict=True))[:2] if n > 1), default=0)
    if max(row, *argument.shape) >= INDEX_LIMIT:
        raise ArgumentError(
            f"argument {position}: kernels take sizes and rows below 2^31 elements and bytes, got {argument} with "
            f"strides of {strides} bytes"
        )
    return [s // argument.itemsize if n > 1 else 0 for s, n in zip(strides, argument.shape, strict=True)]


def place_of(op: Operation) -> str:
    """ "file:line:col: " of an operation, empty where it is not known."""
    location = location_of(op)
    return "" if location is None else f"{location}: "
