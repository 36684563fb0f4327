"""One kernel: from the operations of a `gpu.func` to the body of a `ptx.func`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.isa.targets import KIB, Target
from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import FragmentType, ScheduleAttr
from ..allocate import allocate
from ..diagnostics import fail
from .addressing import CHUNK, Addressing, GlobalMatrix, MemoryArgument, OwnRow, SharedBarriers, SharedTile
from .arguments import argument, matrix
from .copies import TileCopies
from .emitter import Emitter, divisor_of
from .fragments import Fragment, FragmentEmitter, register_type
from .loops import Loops, carried_into
from .memory import GlobalFragments, MatrixMoves
from .operands import IndexValue, VirtualRegister
from .registry import handler_of
from .scalars import Scalars

PATIENT = {"warp.mma", "warp.mma_sp", "warp.convert_layout", "warp.convert"}
"""Operations that write over no register that a fragment is yet to be made from: those may wait for their readers."""

KernelValue = (
    Fragment | VirtualRegister | int | bool | GlobalMatrix | MemoryArgument | SharedTile | OwnRow | SharedBarriers
)


class KernelLowering:
    """Lowers the body of one kernel; `emitter` then holds it. `shared_symbol` names the CTA's dynamic shared memory."""

    def __init__(self, kernel: gpu.FuncOp, target: Target, shared_symbol: str) -> None:
        self.kernel, self.target = kernel, target
        self.emitter = Emitter(target, kernel)
        self.scalars = Scalars(self.emitter)
        self.threads = self._threads()
        self.thread = self.scalars.special("%tid.x", self.threads)
        self.addressing = Addressing(self.emitter, self.scalars, shared_symbol, self.thread)
        lane = self.scalars.mask(self.thread, LANES - 1)
        self.lane = lane if isinstance(lane, VirtualRegister) else self.thread
        schedule = kernel.attributes.get(ScheduleAttr.name)
        chosen = schedule.data if isinstance(schedule, ScheduleAttr) else None
        serpentine = chosen is None or chosen.tile.order == "serpentine"
        self.fragments = FragmentEmitter(self.emitter, serpentine=serpentine)
        self.loops = Loops(self.emitter, self.scalars)
        self.globals = GlobalFragments(self.emitter, self.scalars, self.addressing, self.lane)
        self.matrices = MatrixMoves(self.emitter, self.scalars, self.addressing, self.lane)
        widest = CHUNK if chosen is None else chosen.operands.access
        self.copies = TileCopies(self.emitter, self.scalars, self.addressing, self.thread, self.threads, widest)
        self.values: dict[SSAValue, KernelValue] = {}
        self.memories: dict[SSAValue, MemoryArgument] = {}
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

    def _take(self, value: SSAValue, memory: MemoryArgument | VirtualRegister) -> None:
        """Makes an argument known: as a matrix, if it is one, row by row."""
        if isinstance(memory, VirtualRegister):
            self.values[value] = memory
            return
        self.memories[value] = memory
        rank = len(memory.shape)
        plain = rank in (1, 2) and memory.strides[-1] == 1
        dimensions = (None, 0) if rank == 1 else (0, 1)
        self.values[value] = matrix(self.kernel, self.scalars, memory, dimensions, []) if plain else memory

    def block(self, block: Block) -> None:
        around = self.emitter.operation
        for op in block.ops:
            lower = handler_of(op)
            if lower is None:
                fail(op, f"{op.name} is not lowered to PTX inside a kernel")
            self.emitter.operation = op
            if op.name not in PATIENT:
                self.emitter.settle()
            lower(self, op)
        self.emitter.operation = around

    # Values

    def scalar(self, value: SSAValue) -> IndexValue:
        """The register or number behind an index."""
        found = self.values[value]
        if isinstance(found, (VirtualRegister, int)):
            return found
        owner = value.owner
        fail(owner if isinstance(owner, Operation) else self.kernel, f"expected an index, got {value.type}")

    def indices(self, values: Sequence[SSAValue]) -> tuple[IndexValue, ...]:
        return tuple(self.scalar(v) for v in values)

    def number(self, value: SSAValue) -> VirtualRegister:
        """The register of a number that the kernel was given."""
        found = self.values[value]
        if isinstance(found, VirtualRegister):
            return found
        fail(self.kernel, f"expected a number that is an argument of the kernel, got {value.type}")

    def fragment(self, value: SSAValue) -> Fragment:
        found = self.values[value]
        return found if isinstance(found, list) else []

    def predicate(self, value: SSAValue) -> VirtualRegister | bool:
        found = self.values[value]
        return found if isinstance(found, (VirtualRegister, bool)) else bool(found)

    def matrix(self, op: Operation, value: SSAValue, *, bits: bool = False, steps: bool = False) -> GlobalMatrix:
        """An argument; its elements may be of less than a byte only if `bits`, and apart in a row only if `steps`."""
        found = self.values[value]
        if isinstance(found, MemoryArgument):
            fail(op, f"expected one matrix, row by row, got {value.type}; warp.matrix takes one from memory")
        if not isinstance(found, GlobalMatrix):
            fail(op, f"expected memory that is an argument of the kernel, got {value.type}; fragments come from "
                 "shared memory by warp.ldmatrix")  # fmt: skip
        if not steps and found.step is not None:
            fail(op, f"{op.name} takes rows whose elements are neighbours in memory, got {value.type}")
        if not bits and found.packed > 1:
            fail(op, f"{op.name} moves whole bytes, got {value.type}; warp.load_words moves packed elements")
        return found

    def whole_bytes(self, op: Operation, column: IndexValue, packed: int) -> IndexValue:
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

    def result(self, value: SSAValue, *, in_place: bool = False) -> Fragment:
        """Registers for a new fragment: those of the loop variable it becomes in the next turn, if they are free, or
        read by what makes it `in_place`."""
        carried = carried_into(value, in_place=in_place)
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
