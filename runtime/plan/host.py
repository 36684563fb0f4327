"""What a lowered host function does when it is called: its launches, and the scratch memory between those.

Such a function is a list of launches, of allocations that launches write for later ones to read, and of arithmetic on
constants and on the sizes of its arguments. Reading it gives plain records; running them is the business of a device.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IndexType, IntegerAttr, ModuleOp, NoneAttr
from xdsl.ir import BlockArgument, Operation, Region, SSAValue

from ...dialect.isa.tensor_map import EXPANDED, EXPANDED_UNIT, TensorMapError, TensorMapFields
from ...dialect.mlir.affine import dynamic_parts, strides_of
from ...dialect.warp.attributes import ZEROED, is_memory, memory_of
from ...dialect.warp.cta import DisjointOp, IsDivisibleOp
from ...dialect.warp.tensor_maps import FAR, EncodeTensorMapOp, Im2colOp, moved_as, moved_together
from ...passes.diagnostics import name_of, place_of
from ...passes.linalg.memory_uses import overlap
from ...passes.linalg.operand import SIZE_LIMIT, VIEWING, View, Viewing, WindowError, seen
from ...passes.universe import make_context, parse_mlir
from ..base.errors import ArgumentError, HostError
from ..base.launch import (
    ELEMENT_NAMES,
    Launch,
    Mapped,
    Passed,
    Plan,
    ScratchBuffer,
    Shifted,
    Word,
    map_element,
    memory_bytes,
)

if TYPE_CHECKING:
    from xdsl.dialects.cf import AssertOp

    from ..arguments.arrays import Argument
    from ..arguments.launch_values import LaunchValue
    from ..numerics.floats import Array

REMEMBERED = 256
"""Plans of calls that are kept of a function."""

ROW_LIMIT = 1 << 31
"""Kernels compute with 32-bit distances of rows in bytes."""

_ARITHMETIC: Mapping[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.DivUIOp: lambda a, b: a // b,
    arith.FloorDivSIOp: lambda a, b: a // b,
    arith.RemUIOp: lambda a, b: a % b,
    arith.CeilDivUIOp: lambda a, b: -(-a // b),
    arith.MinUIOp: min,
    arith.MaxUIOp: max,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
    arith.AndIOp: lambda a, b: a & b,
}

_ORDERS = (operator.lt, operator.le, operator.gt, operator.ge)
_COMPARED: Sequence[Callable[[int, int], bool]] = (operator.eq, operator.ne, *_ORDERS, *_ORDERS)
"""The predicates of `arith.cmpi` by number, on sizes, which are not negative."""


def index_result(op: Operation, a: int, b: int) -> int:
    """The value of an operation on two sizes. Raises HostError for an operation that is not supported here."""
    if isinstance(op, arith.CmpiOp):
        return int(_COMPARED[op.predicate.value.data](a, b))
    if type(op) not in _ARITHMETIC:
        raise HostError(f"{place_of(op)}expected arith on sizes, got {op.name}")
    return _ARITHMETIC[type(op)](a, b)


def choose(module: ModuleOp, name: str | None) -> func.FuncOp:
    """The function called `name`, or the only one. Raises HostError naming the functions there are."""
    functions = (op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration)
    by_name = {op.sym_name.data: op for op in functions}
    if name is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(f"@{n}" for n in by_name) or "none"
    if name is None:
        kernels = any(isinstance(op, gpu.ModuleOp) for op in module.ops)
        launch = "launch a kernel of its gpu.module with a grid and a block"
        fix = "name one (name=, --function)" if by_name else launch if kernels else "wrap the operations in a func.func"
        raise HostError(f"expected a module with one function, got {len(by_name)} ({names}); {fix}")
    if name not in by_name:
        raise HostError(f"no function @{name} in the module; it has {names}")
    return by_name[name]


def planner(text: str, name: str) -> Callable[[Sequence[LaunchValue]], Plan]:
    """A function that plans a call from its arguments. `text` is the lowered host function, printed by `text_of`. The
    plan depends on the layouts of the arguments alone. Calls with equal layouts share one plan."""
    function = choose(parse_mlir(make_context(), text, name), name)
    asked = (op for op in function.walk() if isinstance(op, IsDivisibleOp))
    bytes_ = math.lcm(*(memory_bytes(str(memory_of(op.memory).element_type), op.number) for op in asked))
    indices = [argument.index for argument in function.body.block.args if isinstance(argument.type, IndexType)]
    plans: dict[tuple[object, ...], Plan] = {}

    def plan_of(values: Sequence[LaunchValue]) -> Plan:
        key = (*(layout_key(value, bytes_) for value in values), *(int(cast("Any", values[i])) for i in indices))
        if (made := plans.get(key)) is None:
            made = plan(function, values)
            if len(plans) >= REMEMBERED:
                plans.clear()
            plans[key] = made
        return made

    return plan_of


def plan(function: func.FuncOp, values: Sequence[LaunchValue] | None = None) -> Plan:
    """The launches of a lowered host function, in order, and the scratch memory of its `memref.alloc`s.

    `values` are the arguments of the call, where launches depend on them. A launch of no CTAs is left out.

    Raises:
        HostError: naming the first operation that has no meaning here.
        ArgumentError: for a size or stride that is too large for a kernel.
    """
    reading = _Reading(function, values)
    for argument in function.body.block.args:
        if isinstance(argument.type, IndexType):
            reading.take_index(argument)
    for op in function.body.block.ops:
        reading.read(op)
    return Plan(tuple(reading.launches), tuple(reading.scratch), reading.dynamic)


class CallMemory(NamedTuple):
    """Memory in a call: the position of an argument or a scratch buffer, and a view of it."""

    position: int
    view: View


@dataclass
class _Reading:
    """The values of a host function: numbers and memory."""

    function: func.FuncOp
    values: Sequence[LaunchValue] | None
    numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    memories: dict[SSAValue, CallMemory] = field(default_factory=dict[SSAValue, CallMemory])
    maps: dict[SSAValue, Mapped] = field(default_factory=dict[SSAValue, Mapped])
    launches: list[Launch] = field(default_factory=list[Launch])
    scratch: list[ScratchBuffer] = field(default_factory=list[ScratchBuffer])
    free: list[int] = field(default_factory=list[int])
    """The positions of buffers that were freed."""
    dynamic: bool = False
    unknown: set[SSAValue] = field(default_factory=set[SSAValue])
    """Numbers that follow from unknown sizes. Where one chooses, `else` is read: the kernel for large sizes."""
    constants: dict[str, int] = field(default_factory=dict[str, int])

    def take_index(self, argument: BlockArgument) -> None:
        """Reads an index argument of the call; 1 without a call. Raises ArgumentError for an index out of the range of
        kernels."""
        number = 1 if self.values is None else int(cast("Any", self.values[argument.index]))
        if not -SIZE_LIMIT < number < SIZE_LIMIT:
            raise ArgumentError(f"argument {argument.index}: kernels take indices below 2^31 - 2^16, got {number}")
        self.numbers[argument], self.dynamic = number, True
        if self.values is None:
            self.unknown.add(argument)

    def read(self, op: Operation) -> None:
        match op:
            case arith.ConstantOp():
                if isinstance(op.value, IntegerAttr):
                    self.numbers[op.result] = op.value.value.data
            case memref.DimOp() if op.index in self.numbers:
                self.numbers[op.result] = self._memory(op, op.source).view.shape[self.numbers[op.index]]
                if self.values is None and memory_of(op.source).get_shape()[self.numbers[op.index]] < 0:
                    self.unknown.add(op.result)
            case memref.AllocOp():
                shape = self._allocated_shape(op)
                size = memory_bytes(str(op.memref.type.element_type), math.prod(shape))
                position = self._buffer(ScratchBuffer(size, zeroed=ZEROED in op.attributes))
                self.memories[op.memref] = CallMemory(position, View(0, shape, row_major(shape)))
            case memref.GetGlobalOp():
                self._constant(op)
            case _ if isinstance(op, VIEWING):
                self._view(op)
            case DisjointOp():
                self._disjoint(op)
            case IsDivisibleOp():
                self.numbers[op.answer] = int(self._is_divisible(op))
            case memref.DeallocOp():
                self._free(self.memories.pop(op.memref, None))
            case EncodeTensorMapOp():
                self.maps[op.map] = self._map(op)
            case Im2colOp():
                pass  # its only reader is `_map`
            case gpu.LaunchFuncOp():
                self._launch(op)
            case func.ReturnOp() | scf.YieldOp() if not op.operands:
                pass
            case scf.ForOp() if not op.iter_args:
                self._loop(op)
            case scf.IfOp() if not op.results:
                holds = self._number(op, op.cond, "its condition")
                if op.cond in self.unknown and op.false_region.blocks:
                    holds = 0
                self._read_all(op.true_region if holds else op.false_region)
            case Operation(name="cf.assert") if op.operands[0] in self.numbers:
                self.dynamic, message = True, cast("AssertOp", op).msg.data
                if self.values is not None and not self.numbers[op.operands[0]]:
                    raise ArgumentError(f"{place_of(op)}with these sizes an assertion does not hold: {message}")
            case arith.IndexCastOp() | arith.ExtSIOp() | arith.TruncIOp() if op.input in self.numbers:
                self.numbers[op.result] = self.numbers[op.input]
                if op.input in self.unknown:
                    self.unknown.add(op.result)
            case _ if type(op) in (*_ARITHMETIC, arith.CmpiOp) and all(v in self.numbers for v in op.operands):
                a, b = (self.numbers[v] for v in op.operands)
                self.numbers[op.results[0]] = index_result(op, a, b)
                if not self.unknown.isdisjoint(op.operands):
                    self.unknown.add(op.results[0])
                    if not isinstance(op, arith.CmpiOp):  # a size, of which a call has 1 or more
                        self.numbers[op.results[0]] = max(1, self.numbers[op.results[0]])
            case _:
                raise HostError(
                    f"{place_of(op)}host function @{self.function.sym_name.data}: expected arith on constants and "
                    f"sizes, memref.dim, memref.alloc, memref.dealloc, memref.get_global, views of memory, scf.for and "
                    f"scf.if that carry no values, cf.assert, gpu.launch_func and an empty func.return, got "
                    f"{name_of(op)}; loops over elements are written as linalg.generic, or as threads of a gpu.func"
                )

    def _buffer(self, wanted: ScratchBuffer) -> int:
        """The number of a buffer. A free one of equal size is reused, since launches run one after the other."""
        first = len(self.function.body.block.args)
        fitting = (at for at in self.free if self.scratch[at - first] == wanted and not wanted.zeroed)
        if (position := next(fitting, None)) is not None:
            self.free.remove(position)
            return position
        self.scratch.append(wanted)
        return first + len(self.scratch) - 1

    def _free(self, memory: CallMemory | None) -> None:
        if memory is not None and memory.position >= len(self.function.body.block.args):
            self.free.append(memory.position)

    def _constant(self, op: memref.GetGlobalOp) -> None:
        """Memory whose contents are known; the same for all that get it."""
        name, shape = op.name_.string_value(), op.memref.type.get_shape()
        if name not in self.constants:
            self.constants[name] = len(self.function.body.block.args) + len(self.scratch)
            data = bytes_of(op)
            self.scratch.append(ScratchBuffer(len(data), data=data))
        self.memories[op.memref] = CallMemory(self.constants[name], View(0, shape, row_major(shape)))

    def _loop(self, op: scf.ForOp) -> None:
        bounds = zip((op.lb, op.ub, op.step), ("its start", "its end", "its step"), strict=True)
        start, end, step = (self._number(op, value, what) for value, what in bounds)
        if step < 1:
            raise HostError(f"{place_of(op)}scf.for: expected a step of 1 or more, got {step}")
        turns = range(start, end, step)
        for number in turns if self.unknown.isdisjoint((op.lb, op.ub, op.step)) else turns[:1]:
            self.numbers[op.body.block.args[0]] = number
            self._read_all(op.body)

    def _read_all(self, region: Region) -> None:
        for op in region.block.ops if region.blocks else ():
            self.read(op)

    def _view(self, op: Viewing) -> None:
        memory = self._memory(op, op.operands[0])
        try:
            view = seen(op, memory.view, lambda value: self._number(op, value, "an offset, a size or a stride"))
        except WindowError as error:
            if self.values is not None:
                raise ArgumentError(f"{place_of(op)}with these sizes {error}") from None
            shape = tuple(max(1, size) for size in memory_of(op.results[0]).get_shape())
            view = View(0, shape, row_major(shape))
        self.memories[op.results[0]] = memory._replace(view=view)

    def _disjoint(self, op: DisjointOp) -> None:
        """Refuses a call that writes what it reads, see `passes.linalg.overlap`."""
        # What is asked depends on sizes, so that every call has a plan of its own.
        self.dynamic = True
        written, read = self._memory(op, op.written), self._memory(op, op.read)
        if self.values is None or written.position != read.position or (op.or_same is not None and written == read):
            return
        if overlap(*(_in_bytes(m.view, v) for m, v in ((written, op.written), (read, op.read)))):
            arguments = self.function.body.block.args
            name = arguments[read.position].name_hint if read.position < len(arguments) else None
            where = "memory of the function" if name is None else f"argument {read.position} (%{name})"
            raise ArgumentError(
                f"{place_of(op)}with these sizes the part of {where} that is written, {written.view}, and the part "
                f"that is read, {read.view}, share elements; write to other memory"
            )

    def _is_divisible(self, op: IsDivisibleOp) -> bool:
        """The answer of `warp.is_divisible`; that it is, where nothing is known of the call."""
        self.dynamic = True
        (position, view), kind = self._memory(op, op.memory), memory_of(op.memory)
        if self.values is None:
            return True
        steps = zip(view.shape, view.strides, strides_of(kind) or (), strict=True)
        places = (view.offset, *(size if step == 1 else stride for size, stride, step in steps))
        argument = _argument(self.values[position]) if position < len(self.values) else None
        address = 0 if argument is None else argument.address
        return address % memory_bytes(str(kind.element_type), op.number) == 0 and not any(p % op.number for p in places)

    def _memory(self, op: Operation, value: SSAValue, what: str = "its operand") -> CallMemory:
        if value in self.memories:
            return self.memories[value]
        inside = isinstance(value, BlockArgument) and value.block is self.function.body.block
        if not isinstance(value, BlockArgument) or not inside or not is_memory(value.type):
            raise HostError(
                f"{place_of(op)}{op.name}: expected {what} to be an argument of the host function, or memory "
                f"allocated in it and not yet freed, or a view of these"
            )
        shape, strides = value.type.get_shape(), strides_of(value.type)
        if strides is None:
            raise HostError(f"{place_of(op)}{op.name}: expected strided memory, got {value.type}")
        passed = None if self.values is None else self.values[value.index]
        if dynamic_parts(value.type) == ([], []):
            return CallMemory(value.index, View(0, shape, tuple(stride or 0 for stride in strides)))
        self.dynamic = True
        if passed is not None and (argument := _argument(passed)) is not None:
            return CallMemory(value.index, View(0, argument.shape, tuple(_steps(argument, value.index))))
        shape = tuple(max(1, size) for size in shape)
        return CallMemory(value.index, View(0, shape, row_major(shape)))

    def _allocated_shape(self, op: memref.AllocOp) -> tuple[int, ...]:
        kind, sizes = op.memref.type, [self.numbers.get(v) for v in op.dynamic_sizes]
        dynamic = iter(sizes)
        shape = tuple(next(dynamic, None) if size < 0 else size for size in kind.get_shape())
        extents = tuple(size for size in shape if size is not None)
        has_name = str(kind.element_type) in ELEMENT_NAMES and len(extents) == len(shape)
        if not has_name or not isinstance(kind.layout, NoneAttr):
            raise HostError(
                f"{place_of(op)}memref.alloc: expected scratch memory of known size, row-major, with elements of "
                f"{', '.join(ELEMENT_NAMES)}, got {kind}"
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
        arguments = [word for i, value in enumerate(op.kernelOperands) for word in self._kernel_arguments(op, value, i)]
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
            raise HostError(f"{place_of(op)}{op.name}: expected {what} to be an arith.constant, or computed, above it")
        return self.numbers[value]

    def _map(self, op: EncodeTensorMapOp) -> Mapped:
        """The tensor map of memory as it is in this call."""
        images = op.memory.owner if isinstance(op.memory.owner, Im2colOp) else None
        seen_as = op.memory if images is None else images.memory
        memory, kind = self._memory(op, seen_as), memory_of(seen_as)
        expands = op.map.type.expands
        element = op.map.type.copied if expands else map_element(str(moved_as(kind.element_type)))
        if element is None:
            raise HostError(f"{place_of(op)}{op.name}: a tensor map has no elements of type {kind.element_type}")
        # Of memory without elements nothing is copied; a map has one along each, or as many as expand together.
        order = op.order if images is None else range(kind.get_num_dims())
        together = element.together if expands else moved_together(kind.element_type)
        first, *others = (max(1, memory.view.shape[d]) for d in reversed(order))
        strides = tuple(memory.view.strides[d] * element.size // together for d in reversed(order))
        if expands and not memory.view.shape[order[-1]]:
            first = EXPANDED
        sizes = (first if expands else -(-first // together), *others)
        # Of a dimension of one index no stride is known, and none is needed; nor of arguments that are not there yet.
        strides_known = (self.values is not None or dynamic_parts(kind) == ([], [])) and 0 not in memory.view.shape
        strides = tuple(s if strides_known and n > 1 else EXPANDED_UNIT for s, n in zip(strides, sizes, strict=True))
        rows, columns = op.map.type.shape[-2:] if images else (0, 0)
        box = op.map.type.shape[::-1] if images is None else images.box(columns, rows).reversed()
        if op.parts is not None:
            at = len(op.order) - 1 - op.order.index(op.parts.value.data)
            sizes = (*sizes[:at], FAR, *sizes[at + 1 :], 2 * FAR, 2 * FAR)
            strides = (*strides, strides[at], (1 << 64) // FAR - strides[at])
        steps = (1,) * len(sizes) if images is None else (1, *images.numbers[2][::-1], 1)
        try:
            fields = TensorMapFields(0, element, sizes, strides[1:], box, steps, op.map.type.swizzle.data)
        except TensorMapError as error:
            raise ArgumentError(f"{place_of(op)}tensor map of {memory.view}: {error}") from None
        return Mapped(memory.position, memory_bytes(str(kind.element_type), memory.view.offset), fields)

    def _kernel_arguments(self, op: Operation, value: SSAValue, number: int) -> list[Passed]:
        """What an operand of a launch is passed as: its address, its dynamic sizes, its dynamic strides."""
        if value in self.maps:
            return [self.maps[value]]
        if value in self.numbers:
            return [Word(self.numbers[value])]
        if not is_memory(value.type):
            if not isinstance(value, BlockArgument):
                raise HostError(f"{place_of(op)}gpu.launch_func: expected operand {number} to be memory or an argument")
            return [value.index]
        memory = self._memory(op, value, f"operand {number}")
        shift = memory_bytes(str(value.type.element_type), memory.view.offset)
        sizes, strides = dynamic_parts(value.type)
        return [
            Shifted(memory.position, shift) if shift else memory.position,
            *(Word(memory.view.shape[i]) for i in sizes),
            *(Word(memory.view.strides[i]) for i in strides),
        ]


def _in_bytes(view: View, value: SSAValue) -> View:
    """The bytes of a view, of elements of whole bytes."""
    size = memory_bytes(str(memory_of(value).element_type), 1)
    return View(view.offset * size, (*view.shape, size), (*(stride * size for stride in view.strides), 1))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of memory without gaps, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def layout_key(value: LaunchValue, bytes_: int) -> object:
    """What a plan depends on of a value: an array's sizes and strides, and its address modulo `bytes_`."""
    array = _argument(value)
    return array and (array.shape, array.byte_strides, array.itemsize, array.address % bytes_)


def _argument(value: LaunchValue) -> Argument | None:
    from ..arguments.arrays import Argument

    return value if isinstance(value, Argument) else None


def _steps(argument: Argument, position: int) -> list[int]:
    """The strides of an argument in elements; of a dimension of one index, none."""
    strides = argument.byte_strides
    row = max((s for s, n in sorted(zip(strides, argument.shape, strict=True))[:2] if n > 1), default=0)
    if row >= ROW_LIMIT or max(argument.shape, default=0) >= SIZE_LIMIT:
        raise ArgumentError(
            f"argument {position}: kernels take sizes below 2^31 - 2^16 and rows below 2^31 bytes, got {argument} with "
            f"strides of {strides} bytes"
        )
    return [s // argument.itemsize if n > 1 else 0 for s, n in zip(strides, argument.shape, strict=True)]


# Constants of a module, as a call hands them to its kernels.


def elements_of(op: memref.GetGlobalOp) -> Array:
    """The elements of the constant memory that an operation gets. Raises HostError if it is not constant, or its
    elements are of a type that kernels do not have."""
    import numpy as np

    from ...passes.linalg.constants import contents
    from ..arguments.arrays import DTYPES

    value, kind = contents(op), str(op.memref.type.element_type)
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise HostError(f"{place_of(op)}{op.name}: {value}")
    if kind not in DTYPES:
        raise HostError(f"{place_of(op)}{op.name}: expected elements of {', '.join(DTYPES)}, got {kind}")
    dtype, data = DTYPES[kind], value.data.data
    if len(data) == len(value) * dtype.itemsize and dtype.kind != "b":
        return np.frombuffer(data, dtype).reshape(op.memref.type.get_shape())
    return np.array(value.get_values()).astype(dtype).reshape(op.memref.type.get_shape())


def bytes_of(op: memref.GetGlobalOp) -> bytes:
    """The bytes of the constant memory that an operation gets, as kernels read them. Raises HostError as `elements_of`,
    and for rows that end within a byte."""
    from ..arguments.arrays import borrow

    elements = elements_of(op)
    borrowed = borrow(elements)
    data = cast("Array", borrowed.owner).tobytes() if borrowed.packed > 1 else elements.tobytes()
    if len(data) != memory_bytes(str(op.memref.type.element_type), elements.size):
        raise HostError(f"{place_of(op)}{op.name}: expected rows of whole bytes, got {op.memref.type}")
    return data
