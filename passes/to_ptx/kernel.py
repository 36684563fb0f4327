"""One kernel: from the operations of a `gpu.func` to the body of a `ptx.func`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from ...dialect.isa.targets import KIB, Target
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import (
    SHARED_SPACE,
    FragmentType,
    SwizzleAttr,
    element_row,
    fragment_of,
    memory_of,
    memory_space,
)
from ...dialect.warp.copy import CommitOp, CopyOp, WaitOp
from ...dialect.warp.memory import LoadOp, StoreOp, bounds
from ...dialect.warp.view import MatrixOp
from ..allocate import allocate, offset_of
from ..diagnostics import fail
from . import barriers, fragment_ops, index_ops
from .addressing import CHUNK, Addressing, GlobalMatrix, GlobalMemory, SharedTile
from .arguments import INDEX_LIMIT, argument, matrix
from .copies import ASYNC_SM, TileCopies
from .emitter import Emitter, Register, Value, divisor_of
from .fragments import Fragment, Fragments, register_type
from .loops import Loops, carried_into, only_use_is_here
from .matrix_ops import HANDLERS, load_shared, stage_text
from .memory import GlobalFragments, MatrixMoves
from .scalars import Scalars

PATIENT = {"warp.mma", "warp.mma_sp", "warp.regroup", "warp.convert"}
"""Operations that write over no register that a fragment is yet to be made from: those may wait for their readers."""

OpT = TypeVar("OpT", bound=Operation)
KernelValue = Fragment | Register | int | bool | GlobalMatrix | GlobalMemory | SharedTile | barriers.SharedBarriers


class KernelLowering:
    """Lowers the body of one kernel; `emitter` then holds it. `shared_symbol` names the CTA's dynamic shared memory."""

    def __init__(self, kernel: gpu.FuncOp, target: Target, shared_symbol: str) -> None:
        self.kernel, self.target = kernel, target
        self.emitter = Emitter()
        self.scalars = Scalars(self.emitter)
        self.addressing = Addressing(self.emitter, self.scalars, shared_symbol)
        self.threads = self._threads()
        self.thread = self.scalars.special("%tid.x", self.threads)
        lane = self.scalars.mask(self.thread, LANES - 1)
        self.lane = lane if isinstance(lane, Register) else self.thread
        self.fragments = Fragments(self.emitter, target)
        self.loops = Loops(self.emitter, self.scalars)
        self.globals = GlobalFragments(self.emitter, self.scalars, self.addressing, self.lane)
        self.matrices = MatrixMoves(self.emitter, self.scalars, self.addressing, target, self.lane)
        self.copies = TileCopies(self.emitter, self.scalars, self.addressing, target, self.thread, self.threads)
        self.values: dict[SSAValue, KernelValue] = {}
        self.memories: dict[SSAValue, GlobalMemory] = {}
        self.shared_bytes = allocate(kernel)

    def lower(self, parameters: Sequence[str]) -> None:
        """Emits the whole body; `parameters` names the kernel's parameters in the text."""
        block = self.kernel.body.block
        for value, name in zip(block.args, parameters, strict=True):
            self._take(value, argument(self.kernel, self.emitter, self.scalars, value, name))
        self.block(block)
        if self.shared_bytes > self.target.shared:
            fail(self.kernel, f"the kernel takes {self.shared_bytes / KIB:g} KiB of shared memory, {self.target} has "
                 f"{self.target.shared / KIB:g} KiB for a CTA")  # fmt: skip

    def _threads(self) -> int:
        size = self.kernel.known_block_size
        if size is None:
            fail(self.kernel, "expected gpu.known_block_size on the kernel: copies are divided among its threads")
        extents = tuple(int(n) for n in size.iter_values())
        if len(extents) != 3 or extents[1:] != (1, 1) or not 0 < extents[0] <= 1024 or extents[0] % LANES:
            got = " x ".join(map(str, extents))
            fail(self.kernel, f"expected a block of whole warps along x, at most 1024 threads, got {got}")
        return extents[0]

    def _take(self, value: SSAValue, memory: GlobalMemory | Register) -> None:
        """Makes an argument known: as a matrix, if it is one, row by row."""
        if isinstance(memory, Register):
            self.values[value] = memory
            return
        self.memories[value] = memory
        rank = len(memory.shape)
        plain = rank in (1, 2) and memory.strides[-1] == 1
        dimensions = (None, 0) if rank == 1 else (0, 1)
        self.values[value] = matrix(self.kernel, self.scalars, memory, dimensions, []) if plain else memory

    def block(self, block: Block) -> None:
        for op in block.ops:
            handler = _HANDLERS.get(type(op)) or _rare().get(type(op))
            if handler is None:
                fail(op, f"{op.name} is not lowered to PTX inside a kernel")
            if op.name not in PATIENT:
                self.emitter.settle()
            handler(self, op)

    # Values

    def scalar(self, value: SSAValue) -> Value:
        """The register or number behind an index."""
        found = self.values[value]
        if isinstance(found, (Register, int)):
            return found
        owner = value.owner
        fail(owner if isinstance(owner, Operation) else self.kernel, f"expected an index, got {value.type}")

    def indices(self, values: Sequence[SSAValue]) -> tuple[Value, ...]:
        return tuple(self.scalar(v) for v in values)

    def number(self, value: SSAValue) -> Register:
        """The register of a number that the kernel was given."""
        found = self.values[value]
        if isinstance(found, Register):
            return found
        fail(self.kernel, f"expected a number that is an argument of the kernel, got {value.type}")

    def fragment(self, value: SSAValue) -> Fragment:
        found = self.values[value]
        return found if isinstance(found, list) else []

    def predicate(self, value: SSAValue) -> Register | bool:
        found = self.values[value]
        return found if isinstance(found, (Register, bool)) else bool(found)

    def matrix(self, op: Operation, value: SSAValue, *, bits: bool = False, steps: bool = False) -> GlobalMatrix:
        """An argument; its elements may be of less than a byte only if `bits`, and apart in a row only if `steps`."""
        found = self.values[value]
        if isinstance(found, GlobalMemory):
            fail(op, f"expected one matrix, row by row, got {value.type}; warp.matrix takes one from memory")
        if not isinstance(found, GlobalMatrix):
            fail(op, f"expected memory that is an argument of the kernel, got {value.type}; fragments come from "
                 "shared memory by warp.ldmatrix")  # fmt: skip
        if not steps and found.step is not None:
            fail(op, f"{op.name} takes rows whose elements are neighbours in memory, got {value.type}")
        if not bits and found.packed > 1:
            fail(op, f"{op.name} moves whole bytes, got {value.type}; warp.load_words moves packed elements")
        return found

    def whole_bytes(self, op: Operation, column: Value, packed: int) -> Value:
        """A column of elements that share bytes, in bytes."""
        if divisor_of(column) % packed:
            got = column if isinstance(column, int) else f"one that is known to be a multiple of {column.divisor}"
            fail(op, f"expected a column that is a multiple of {packed}, the elements of a byte, got {got}")
        return self.scalars.quotient(column, packed)

    def tile(self, op: Operation, value: SSAValue) -> SharedTile:
        found = self.values[value]
        if not isinstance(found, SharedTile):
            fail(op, f"expected a tile allocated in shared memory, got {value.type}")
        return found

    def result(self, value: SSAValue) -> Fragment:
        """Registers for a new fragment: those of the loop variable it becomes in the next turn, if they are free."""
        carried = carried_into(value)
        if carried is not None and isinstance(held := self.values.get(carried), list):
            return held
        return self.fresh(value.type)

    def fresh(self, kind: Attribute) -> Fragment:
        """Registers for a value of a type; none for what is no fragment."""
        if isinstance(kind, FragmentType):
            return self.fragments.fresh(kind)
        from ...dialect.warp.opaque import OpaqueType

        if isinstance(kind, OpaqueType):
            return self.emitter.registers(register_type(kind.element), kind.registers)
        return []

    # Operations

    def alloc(self, op: memref.AllocOp) -> None:
        kind = op.memref.type
        element = element_row(kind.element_type)
        shape = kind.get_shape()
        if memory_space(kind) != SHARED_SPACE or element is None or len(shape) not in (2, 3) or min(shape) <= 0:
            fail(op, f"expected a shared-memory tile of 2 dimensions, or 3 with stages, got {kind}")
        *stages, rows, columns = shape
        size, packed = max(1, element.memory_bits // 8), max(1, 8 // element.memory_bits)
        layout = kind.layout if isinstance(kind.layout, SwizzleAttr) else SwizzleAttr(CHUNK)
        line = columns * element.memory_bits
        if line % (8 * layout.bytes):
            fail(op, f"expected lines of whole {layout.bytes}-byte panels, got {line // 8} bytes in {kind}")
        self.values[op.memref] = SharedTile(
            offset_of(op), stages[0] if stages else 1, rows, columns // packed, size, layout.bytes, layout.skip, packed
        )

    def constant(self, op: arith.ConstantOp) -> None:
        if not isinstance(op.value, IntegerAttr):
            fail(op, f"expected an integer constant, got {op.value}")
        number = op.value.value.data
        if not -INDEX_LIMIT <= number < INDEX_LIMIT:
            fail(op, f"indices are 32-bit, got {number}")
        self.values[op.result] = number

    def barrier(self, op: gpu.BarrierOp) -> None:
        self.emitter.emit("bar.sync", "0")

    def finish(self, op: gpu.ReturnOp) -> None:
        self.emitter.emit("ret", "")

    def load(self, op: LoadOp) -> None:
        kind = op.fragment.type
        if memory_space(memory_of(op.memory)) == SHARED_SPACE:
            load_shared(self, op, self.result(op.fragment))
            return
        matrix = self.matrix(op, op.memory, steps=True)
        row, column = self.indices(op.indices)
        if matrix.repeats:
            from .epilogue import own

            found = self.globals.load_repeated(kind, matrix, (row, column), bounds(op.in_bounds))
            self.values[op.fragment] = own(self, op.fragment, found)
            return
        into = self.result(op.fragment)
        self.globals.load(kind, matrix, (row, column), bounds(op.in_bounds), into)
        self.values[op.fragment] = into

    def store(self, op: StoreOp) -> None:
        kind, matrix = fragment_of(op.fragment), self.matrix(op, op.memory, steps=True)
        row, column = self.indices(op.indices)
        shown = f"{kind.role.data} {kind.shape[0]}x{kind.shape[1]}"
        self.emitter.comment(f"{op.name}: fragment {shown} to {_name(op.memory)}")
        self.globals.store(kind, matrix, (row, column), bounds(op.in_bounds), self.fragment(op.fragment))

    def copy(self, op: CopyOp) -> None:
        source = self.matrix(op, op.source, bits=True)
        row, column = self.indices(op.indices)
        tile, stages = self.tile(op, op.destination), self.indices(op.stage)
        place = stage_text(stages[0] if stages else None, "the stage to fill")
        self.emitter.comment(
            f"{op.name}: a {tile.rows}x{tile.columns * tile.packed} tile of {_name(op.source)} to {place}"
        )
        self.copies.copy(
            source,
            (row, self.whole_bytes(op, column, source.packed)),
            tile,
            stages[0] if stages else 0,
            bounds(op.in_bounds),
            asynchronous=op.is_async is not None,
            spread=op.packed is not None,
        )

    def view(self, op: MatrixOp) -> None:
        if op.memory not in self.memories:
            fail(op, f"expected memory that is an argument of the kernel, got {op.memory.type}")
        at = list(self.indices(op.indices))
        self.values[op.matrix] = matrix(self.kernel, self.scalars, self.memories[op.memory], op.dimensions, at)

    def dim(self, op: memref.DimOp) -> None:
        number = self.scalar(op.index)
        if op.source not in self.memories or not isinstance(number, int):
            fail(op, f"expected a known dimension of an argument of the kernel, got {op.source.type}")
        self.values[op.result] = self.memories[op.source].shape[number]

    def commit(self, op: CommitOp) -> None:
        if self.target.sm >= ASYNC_SM:
            self.emitter.emit("cp.async.commit_group", "")

    def wait(self, op: WaitOp) -> None:
        if self.target.sm >= ASYNC_SM:
            self.emitter.emit("cp.async.wait_group", str(op.pending.value.data))

    def loop(self, op: scf.ForOp) -> None:
        """A counted loop; its variables are registers that each turn sets anew."""
        lower, upper, step = self.indices((op.lb, op.ub, op.step))
        block, loops = op.body.block, self.loops
        initial = [self._loop_variable(value, op) for value in op.iter_args]
        with self.emitter.loop():
            counter, variables = loops.enter(lower, step, initial)
            name = "tile" if any(isinstance(inner, scf.ForOp) for inner in block.ops) else "K"
            with loops.turns(counter, lower, upper, step, name):
                self.values |= dict(zip(block.args, (counter, *variables), strict=True))
                self.block(block)
                loops.next_turn(
                    variables, [self._yielded(v) for v in block.ops.last.operands] if block.ops.last else []
                )
        self.values |= dict(zip(op.results, loops.after(variables), strict=True))

    def _yielded(self, value: SSAValue) -> Fragment | Value:
        held = self.values[value]
        return held if isinstance(held, list) else self.scalar(value)

    def _loop_variable(self, value: SSAValue, loop: scf.ForOp) -> Fragment | Value:
        """The initial value; of a fragment, registers that the loop may overwrite."""
        held = self._yielded(value)
        if isinstance(held, list) and not only_use_is_here(value, loop):
            fresh = self.fresh(value.type)
            self.fragments.copy(held, fresh)
            return fresh
        return held


def _name(memory: SSAValue) -> str:
    """What a memref is called in comments."""
    number = f"argument {memory.index}" if isinstance(memory, BlockArgument) else "memory"
    return memory.name_hint or number


def _ignore(lowering: KernelLowering, op: Operation) -> None:
    """The terminator of a loop is handled by the loop."""


def _handlers() -> dict[type[Operation], Callable[[KernelLowering, Operation], None]]:
    table: dict[type[Operation], Callable[[KernelLowering, Operation], None]] = {scf.YieldOp: _ignore}
    L = KernelLowering

    def add(kind: type[OpT], method: Callable[[KernelLowering, OpT], None]) -> None:
        def handle(lowering: KernelLowering, op: Operation) -> None:
            if isinstance(op, kind):
                method(lowering, op)

        table[kind] = handle

    add(memref.AllocOp, L.alloc)
    add(arith.ConstantOp, L.constant)
    add(gpu.BarrierOp, L.barrier)
    add(gpu.ReturnOp, L.finish)
    add(LoadOp, L.load)
    add(StoreOp, L.store)
    add(CopyOp, L.copy)
    add(MatrixOp, L.view)
    add(memref.DimOp, L.dim)
    add(CommitOp, L.commit)
    add(WaitOp, L.wait)
    add(scf.ForOp, L.loop)
    for handlers in (HANDLERS, barriers.HANDLERS, fragment_ops.HANDLERS, index_ops.HANDLERS):
        table |= dict(handlers)
    return table


_HANDLERS = _handlers()


@cache
def _rare() -> Mapping[type[Operation], Callable[[KernelLowering, Operation], None]]:
    """What plain kernels do not have, and should not wait for."""
    from .rare_ops import HANDLERS

    return HANDLERS
