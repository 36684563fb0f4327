"""`convert-warp-to-ptx`: kernels over fragments become what each thread executes, by functions for each operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import chain, count
from math import prod
from typing import Any, TypeVar

from xdsl.context import Context
from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass

from ...dialect import plugins
from ...dialect.index import LOWERINGS
from ...dialect.isa.row import KIB, Target
from ...dialect.isa.row import target as target_named
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.upstream import RegistersOp
from ...dialect.ptx import ops as ptx
from ...dialect.ptx.text.syntax import Variable
from ...dialect.schedule import SHARED_ALIGNMENT
from ...dialect.schedule.schedule import MAX_THREADS
from ...dialect.warp.attributes import COMPUTES, FragmentType, ScheduleAttr, is_memory, is_shared, target_of
from ...dialect.warp.cta import MakeRingOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.synchronisation import CLUSTER_SIZE, CLUSTER_SM, MAX_CTAS, MIN_CTAS
from ..allocate import allocate, allocate_all
from ..diagnostics import fail, warn
from ..linalg.product import PTX_NAME, fresh_name
from ..patterns import apply_patterns, constant_value, operations_of
from .addressing import (
    CHUNK,
    INDEX_LIMIT,
    Addressing,
    GlobalMatrix,
    MemoryArgument,
    SharedBarriers,
    SharedPlace,
    SharedTile,
    TensorTile,
    matrix,
    parameters,
    static_shared,
)
from .addressing import argument as argument_of
from .emitter import Condition, Emitter, IndexValue, VirtualRegister
from .fragments import Fragment, FragmentEmitter, MatrixMoves, carried_into
from .memory import GlobalFragments, TileCopies
from .scalars import Scalars, divisor_of

# Which function lowers which operation.
#
# A module registers the functions it has, each for one type of operation, and is imported when the first of these
# operations comes up: a kernel waits only for what it contains.

LoweringT = TypeVar("LoweringT")
OpT = TypeVar("OpT", bound=Operation)
Handler = Callable[[Any, Any], None]
"""Takes the lowering of a kernel and an operation of it."""

HANDLERS: dict[str, Handler] = {}
"""The functions that are registered so far, by the names of operations."""


def lowers(kind: type[OpT]) -> Callable[[Callable[[LoweringT, OpT], None]], Callable[[LoweringT, OpT], None]]:
    """Registers a function as what lowers the operations of a type."""

    def register(handle: Callable[[LoweringT, OpT], None]) -> Callable[[LoweringT, OpT], None]:
        HANDLERS[kind.name] = handle
        return handle

    return register


def handler_of(op: Operation) -> Handler | None:
    """What lowers an operation; None if nothing does."""
    if op.name not in HANDLERS and op.name in LOWERINGS:
        import_module(f"...{LOWERINGS[op.name]}", __package__)
    elif op.name not in HANDLERS:
        plugins.loaded(plugins.LOWERINGS, op.name)
    return HANDLERS.get(op.name)


def is_index(lowering: KernelLowering, op: Operation, value: Attribute) -> bool:
    """Whether a constant is computed with as an index, as which its result is known then."""
    if not isinstance(value, IntegerAttr) or op.results[0].type in (i8, i16, i64):
        return False
    if not -INDEX_LIMIT <= (number := value.value.data) < INDEX_LIMIT:
        fail(op, f"indices are 32-bit, got {number}")
    lowering.values[op.results[0]] = number
    return True


def check_multiple(op: Operation, what: str, index: IndexValue, unit: int, why: str = "") -> None:
    """Refuses an index not known to be a multiple of a number; `what` begins the error, `why` says what it means."""
    if divisor_of(index) % unit:
        got = index if isinstance(index, int) else f"one that is known to be a multiple of {index.divisor}"
        fail(op, f"{what} that is a multiple of {unit}{why}, got {got}")


# One kernel: from the operations of a `gpu.func` to the body of a `ptx.func`.

TOGETHER = ("warp.", "nvgpu.", "nvvm.", "gpu.shuffle", "gpu.subgroup_")
"""How the names of operations begin that the lanes of a warp, which must all be there, do together."""

PATIENT = {"warp.mma", "warp.convert_layout", "warp.convert"}
"""Operations that write over no register that a fragment is yet to be made from: those may wait for their readers."""

KernelValue = (
    Fragment | VirtualRegister | int | bool | GlobalMatrix | MemoryArgument | SharedTile | SharedBarriers | TensorTile
)


class KernelLowering:
    """Lowers the body of one kernel; `emitter` then holds it. `shared_symbol` names the CTA's dynamic shared memory."""

    def __init__(self, kernel: gpu.FuncOp, target: Target, shared_symbol: str) -> None:
        self.kernel, self.target = kernel, target
        self.emitter = Emitter(target, kernel)
        self.scalars = Scalars(self.emitter)
        self.extents = self._extents()
        self.threads = min(prod(self.extents), MAX_THREADS)
        self.thread_along = [
            self.scalars.special(f"%tid.{axis}", n) if n > 1 or axis == "x" else 0
            for axis, n in zip("xyz", self.extents, strict=True)
        ]
        """The numbers of a thread along x, y and z."""
        self.thread = self._thread()
        """The number of a thread in its CTA."""
        self.labels: dict[Block, str] = {}
        """Where the blocks of a body of several begin."""
        lane = self.scalars.mask(self.thread, LANES - 1)
        self.lane = lane if isinstance(lane, VirtualRegister) else self.thread
        self.addressing = Addressing(self.emitter, self.scalars, shared_symbol, self.thread, self.lane)
        schedule = kernel.attributes.get(ScheduleAttr.name)
        self.schedule = chosen = schedule.data if isinstance(schedule, ScheduleAttr) else None
        self.fragments = FragmentEmitter(self.emitter, serpentine=chosen is None or chosen.order == "serpentine")
        self.globals = GlobalFragments(self.addressing)
        self.matrices = MatrixMoves(self.addressing)
        self.copies = TileCopies(self.addressing, self.thread, self.threads, chosen.access if chosen else CHUNK)
        self.values: dict[SSAValue, KernelValue] = {}
        self.memories: dict[SSAValue, MemoryArgument] = {}
        self.variables: dict[str, Variable] = {}
        """Memory of the module that the kernel reads or writes, by name."""
        self.own_variables: list[Variable] = []
        """Memory of each thread."""
        self.called: dict[str, ptx.FuncOp] = {}
        """Functions of the driver that the kernel calls, by name."""
        self.shared_bytes = allocate(kernel)

    def lower(self, parameters: Sequence[str]) -> None:
        """Emits the whole body; `parameters` names the kernel's parameters in the text."""
        block = self.kernel.body.blocks[0]
        for number, value in enumerate(block.args[len(parameters) :]):
            self.named_memory(self.kernel, value, f"{self.kernel.sym_name.data}_workgroup_{number}")
        for value, name in zip(block.args, parameters, strict=False):
            self._take(value, argument_of(self.kernel, self.emitter, self.scalars, value, name))
        of_blocks = handler_of(self.kernel) if len(self.kernel.body.blocks) > 1 else None
        if of_blocks is not None:
            of_blocks(self, self.kernel)
        else:
            self.block(block)
        if self.shared_bytes > self.target.shared:
            fail(self.kernel, f"the kernel takes {self.shared_bytes / KIB:g} KiB of shared memory, {self.target} has "
                 f"{self.target.shared / KIB:g} KiB for a CTA")  # fmt: skip

    def named_memory(self, op: Operation, value: SSAValue, name: str) -> None:
        """Declares shared memory under a name of the module and binds a value to it."""
        if not is_memory(value.type) or not is_shared(value.type):
            fail(op, f"expected shared memory, got {value.type}")
        self.memories[value], self.variables[name] = static_shared(op, self.emitter, name, value.type)

    def _extents(self) -> tuple[int, ...]:
        """The threads of a CTA along x, y and z; the most that there can be, if the kernel does not say."""
        size, names = self.kernel.known_block_size, {op.name for op in operations_of(self.kernel)}
        own = sorted(name for name in names if name.startswith("warp."))
        if size is None:
            if shared := [*own, *names & {"gpu.all_reduce"}]:
                fail(self.kernel, f"expected gpu.known_block_size on the kernel: {shared[0]} depends on it")
            return MAX_THREADS, MAX_THREADS, MAX_THREADS // 16  # CUDA's limits
        extents = tuple(int(n) for n in size.iter_values())
        together = {name for name in names if name.startswith(TOGETHER)}
        parts = prod(extents) % LANES and (prod(extents) > LANES or together - {"gpu.shuffle"}) and together
        fits = len(extents) == 3 and min(extents) >= 1 and prod(extents) <= MAX_THREADS
        if not fits or parts or (own and extents[1:] != (1, 1)):
            got = " x ".join(map(str, extents))
            fail(self.kernel, f"expected a block of whole warps along x, at most {MAX_THREADS} threads, got {got}")
        return extents

    def _thread(self) -> VirtualRegister:
        x, y, z = self.thread_along
        s, (along_x, along_y, _) = self.scalars, self.extents
        if self.kernel.known_block_size is None:
            along_x, along_y = (s.special(f"%ntid.{axis}", MAX_THREADS + 1) for axis in "xy")
        number = s.add(x, s.multiply(s.add(y, s.multiply(z, along_y)), along_x))
        if not isinstance(number, VirtualRegister):
            fail(self.kernel, "expected a number of each thread")
        if number.bound is None:
            number.bound = self.threads
        return number

    def _take(self, value: SSAValue, memory: MemoryArgument | VirtualRegister) -> None:
        """Binds an argument. Matrices are bound row by row."""
        if isinstance(memory, VirtualRegister):
            is_element = value.type not in (i1, i32) and isinstance(value.type, AnyFloat | IntegerType)
            self.values[value] = [memory] if is_element else memory
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
        register = self.values[value]
        if isinstance(register, (VirtualRegister, int)):
            return register
        owner = value.owner
        fail(owner if isinstance(owner, Operation) else self.kernel, f"expected an index, got {value.type}")

    def indices(self, values: Sequence[SSAValue]) -> tuple[IndexValue, ...]:
        return tuple(self.scalar(v) for v in values)

    def number(self, value: SSAValue) -> VirtualRegister:
        """The register of a scalar argument of the kernel."""
        register = (*self.fragment(value), self.values[value])[0]
        if isinstance(register, VirtualRegister):
            return register
        fail(self.kernel, f"expected a number that is an argument of the kernel, got {value.type}")

    def fragment(self, value: SSAValue) -> Fragment:
        fragment = self.values[value]
        return fragment if isinstance(fragment, list) else []

    def predicate(self, value: SSAValue) -> Condition:
        predicate = self.values[value]
        return predicate if isinstance(predicate, (VirtualRegister, bool)) else bool(predicate)

    def matrix(
        self, op: Operation, value: SSAValue, *, bits: bool = False, steps: bool = False, named: bool = False
    ) -> GlobalMatrix:
        """An argument; elements below a byte, apart in rows, or rows of a table only if `bits`, `steps`, `named`."""
        matrix = self.values[value]
        if isinstance(matrix, MemoryArgument):
            fail(op, f"expected one matrix, row by row, got {value.type}; warp.matrix takes one from memory")
        if not isinstance(matrix, GlobalMatrix):
            fail(op, f"expected memory that is an argument of the kernel, got {value.type}; fragments come from "
                 "shared memory by warp.load")  # fmt: skip
        if not named and matrix.table is not None:
            fail(op, f"{op.name} takes neighbouring rows, those of {value.type} are where a table says")
        if not steps and matrix.step is not None:
            fail(op, f"{op.name} takes rows whose elements are neighbours in memory, got {value.type}")
        if not bits and matrix.packed > 1:
            fail(op, f"{op.name} moves whole bytes, got {value.type}; packed elements move as registers")
        return matrix

    def whole_bytes(self, op: Operation, column: IndexValue, packed: int) -> IndexValue:
        """A column of elements that share bytes, in bytes."""
        check_multiple(op, "expected a column", column, packed, ", the elements of a byte")
        return self.scalars.quotient(column, packed)

    def tile(self, op: Operation, value: SSAValue) -> SharedTile:
        tile = self.values[value]
        if not isinstance(tile, SharedTile):
            fail(op, f"expected a tile allocated in shared memory, got {value.type}")
        return tile

    def shared_place(self, op: Operation, memory: SSAValue, indices: Sequence[SSAValue]) -> SharedPlace:
        """The element of a tile that indices name; a column of packed elements in bytes."""
        tile, (*stages, row, column) = self.tile(op, memory), self.indices(indices)
        return SharedPlace(tile, stages[0] if stages else 0, row, self.whole_bytes(op, column, tile.packed))

    def result(self, value: SSAValue, *, in_place: bool = False) -> Fragment:
        """Registers for a new fragment. They are those of the loop variable that it becomes in the next iteration, if
        these are free, or if the operation that makes it reads them `in_place`."""
        carried = carried_into(value, in_place=in_place)
        if carried is not None and isinstance(registers := self.values.get(carried), list):
            return registers
        return self.fresh(value.type)

    def fresh(self, kind: Attribute) -> Fragment:
        """Registers for a value of a type; none for what is no fragment."""
        if isinstance(kind, FragmentType):
            return self.fragments.fresh(kind)
        if kind in (IndexType(), i1, i32):
            return []
        from .elements import value_registers

        return value_registers(self.emitter, kind)


# `convert-warp-to-ptx`: kernels over fragments become what each thread executes.

FOREIGN = re.compile(r"[^A-Za-z0-9_$]")
"""What the name of a value may have and that of a parameter may not."""

DYNAMIC = re.compile(r"(_(size|stride)\d+)+$")
"""What `arguments.parameters` adds to the name of an argument, for its dynamic sizes and strides."""

SHARED_SYMBOL = "shared_tiles"
"""The name of the CTA's dynamic shared memory in the text, unless a kernel has it."""


def _check_launches(kernel: gpu.FuncOp, symbol: SymbolRefAttr, needed: int) -> None:
    """Checks that every launch gives a kernel the shared memory of its tiles."""
    module = kernel.get_toplevel_object()
    ops = operations_of(module) if isinstance(module, ModuleOp) else ()
    for launch in [op for op in ops if isinstance(op, gpu.LaunchFuncOp)]:
        size = launch.dynamicSharedMemorySize
        available = constant_value(size) if size is not None else 0
        if launch.kernel == symbol and available is not None and available < needed:
            fail(
                launch,
                f"expected at least {needed} bytes of dynamic shared memory for the kernel's tiles, got {available}",
            )


def _kernel(kernel: gpu.FuncOp, target: Target, module: str, shared: str) -> tuple[ptx.FuncOp, KernelLowering]:
    """The function, and its lowering with the names that it uses and the PTX version that it needs."""
    name = kernel.sym_name.data
    if not PTX_NAME.fullmatch(name):
        fail(kernel, f"'{name}' cannot be the name of a kernel in PTX; letters, digits, _ and $ can")
    arguments = kernel.body.blocks[0].args[: len(kernel.function_type.inputs)]
    names = _parameter_names(kernel)
    lowering = KernelLowering(kernel, target, shared)
    lowering.lower(names)
    _check_launches(kernel, SymbolRefAttr(module, [name]), lowering.shared_bytes)
    chosen = [] if (schedule := lowering.schedule) is None else [ptx.CommentOp(f" schedule: {schedule}")]
    if isinstance(computes := kernel.attributes.get(COMPUTES), StringAttr):
        chosen = [ptx.CommentOp(f" {computes.data}"), *chosen]
    func = ptx.FuncOp(
        name,
        [*chosen, *map(ptx.VarOp, lowering.own_variables), *lowering.emitter.finish()],
        parameters=[p for a, name in zip(arguments, names, strict=True) for p in parameters(a, name)],
        directives=[*_directives(kernel, lowering)],
    )
    func.location = kernel.location
    if schedule is not None:
        func.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    return func, lowering


def _parameter_names(kernel: gpu.FuncOp) -> list[str]:
    """The names of the parameters, after the values. Values may share a name, which MLIR prints with a number, and a
    name may be that of another argument's size. PTX names have no `.` and no `-`."""
    names: list[str] = []
    taken: set[str] = set()
    for i, argument in enumerate(kernel.body.blocks[0].args[: len(kernel.function_type.inputs)]):
        wanted = f"{kernel.sym_name.data}_{FOREIGN.sub('_', argument.name_hint or str(i))}"
        candidates = chain([wanted], (f"{wanted}_{number}" for number in count(i)))
        names.append(next(name for name in candidates if DYNAMIC.sub("", name) not in taken))
        taken.add(DYNAMIC.sub("", names[-1]))
    return names


def _directives(kernel: gpu.FuncOp, lowering: KernelLowering) -> Iterator[str]:
    """The sizes of CTAs and of clusters; and what lets the assembler know how many registers a thread has at entry,
    without which it drops `setmaxnreg`, and for which it spills some where one CTA has all of tensor memory."""
    if (size := kernel.known_block_size) is not None:
        yield f".reqntid {', '.join(map(str, lowering.extents))}"
    if cluster := cluster_of(kernel, lowering.target):
        yield f".reqnctapercluster {', '.join(map(str, cluster))}"
    if (schedule := lowering.schedule) is not None and schedule.registers:
        yield f".maxnreg {schedule.registers}"
    if isinstance(least := kernel.attributes.get(MIN_CTAS), IntegerAttr):
        yield f".minnctapersm {least.value.data}"
    elif size is not None and any(op.name in (RegistersOp.name, "warp.tensor_mma") for op in operations_of(kernel)):
        yield ".minnctapersm 1"


def cluster_of(kernel: gpu.FuncOp, target: Target) -> Sequence[int]:
    """The CTAs of a cluster along x, y and z; none where the kernel does not say."""
    attribute = kernel.attributes.get(CLUSTER_SIZE)
    if attribute is None:
        return ()
    sizes = [int(n) for n in attribute.iter_values()] if isinstance(attribute, DenseArrayBase) else []
    if len(sizes) != 3 or min(sizes) < 1 or prod(sizes) > MAX_CTAS:
        fail(kernel, f"expected {CLUSTER_SIZE} to be array<i32: x, y, z> of 1 to {MAX_CTAS} CTAs, got {attribute}")
    if target.sm < CLUSTER_SM:
        fail(kernel, f"{target} has no clusters; sm_{CLUSTER_SM} and later have them")
    return sizes


def chip_of(module: gpu.ModuleOp) -> Target | None:
    """The one GPU that upstream's `#nvvm.target` on a module names."""
    targets = module.properties.get("targets")
    chips = re.findall(r'chip = "(sm_\w+)"', str(targets)) if targets is not None else []
    return None if len(chips) != 1 else target_named(chips[0])


def _module(module: gpu.ModuleOp) -> ptx.ModuleOp:
    target = target_of(module) or chip_of(module)
    if target is None:
        fail(module, "expected a target on the module; run warp-set-target{arch=sm_90a} first")
    name = module.sym_name.data
    functions: list[Operation] = []
    version, variables, called = target.ptx, dict[str, Variable](), dict[str, ptx.FuncOp]()
    shared = fresh_name(SHARED_SYMBOL, {op.sym_name.data for op in module.body.block.ops if isinstance(op, gpu.FuncOp)})
    for op in module.body.block.ops:
        if isinstance(op, memref.GlobalOp):
            continue  # which the kernels that read it declare
        if op.name.startswith("llvm."):
            from .llvm_operations import of_module

            return of_module(module, target)
        if not isinstance(op, gpu.FuncOp):
            fail(op, f"expected gpu.func in a module of kernels, got {op.name}")
        function, lowering = _kernel(op, target, name, shared)
        functions.append(function)
        version = max(version, lowering.emitter.version)
        variables |= lowering.variables
        called |= lowering.called
    tiles = Variable("shared", "b8", shared, count=0, align=SHARED_ALIGNMENT, linking="extern")
    body = [ptx.VarOp(tiles), *map(ptx.VarOp, variables.values()), *called.values(), *functions]
    return ptx.ModuleOp(name, body, version="{}.{}".format(*version), target=target.name)


def _expand_functions(module: ModuleOp) -> None:
    """Replaces functions that no instruction computes by others, where a kernel has one left."""
    from ..linalg.functions import LAST, OF_F64, ExpandFunction  # of which most kernels have no use

    ops = operations_of(module)
    left = {each.name for each in ops if each.name not in OF_F64 or each.operands[0].type == f64}
    while not left.isdisjoint(LAST) and apply_patterns((ExpandFunction(last=True),), module):
        continue  # with the functions that the others are made from


class ConvertWarpToPtxPass(ModulePass):
    """Replaces every `gpu.module` by a `ptx.module` of the same name. It first expands remaining rings to barriers, as
    `warp-synchronise` does, and allocates memory without an offset, as `warp-allocate` does."""

    name = "convert-warp-to-ptx"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        names = {each.name for each in operations_of(op)}
        if "vector.contract" in names:
            from ..tile.foreign_kernels import ConvertVectorToWarpPass

            ConvertVectorToWarpPass().apply(ctx, op)
        if MakeRingOp.name in names:
            from ..pipelining.ring import SynchronisePass

            SynchronisePass().apply(ctx, op)
        if any(name.startswith("math.") or (name.startswith("arith.") and name not in LOWERINGS) for name in names):
            _expand_functions(op)
        allocate_all(op)
        modules = [o for o in op.body.block.ops if isinstance(o, gpu.ModuleOp)]
        others = [] if modules else operations_of(op)
        one = next((o for o in others if o.name.startswith("linalg.") or isinstance(o, MatmulOp)), None)
        if one is not None:
            warn(one, self.name, f"nothing is converted: {one.name} is in no gpu.module; -p warploom runs every stage")
        for module in modules:
            op.body.block.insert_op_before(_module(module), module)
            module.detach()
            module.erase()
