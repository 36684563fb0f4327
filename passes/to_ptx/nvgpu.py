"""Operations of upstream's `nvgpu`: products, `ldmatrix`, asynchronous copies, mbarriers, tensor copies, warpgroups.

Each becomes what `convert-nvgpu-to-nvvm` of MLIR 22 makes of it. What an operation says of its instruction is held
against the rows of the ISA: one that does not exist, or that the target lacks, is refused where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, f32, i1, i16, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialect.isa.form import BY_MLIR_NAME
from ...dialect.isa.wgmma import UNIT
from ...dialect.layouts.layout import LANES
from ...dialect.mlir import nvgpu
from ...dialect.mlir.nvgpu import TensorMapDescriptorType, WarpgroupAccumulatorType, WarpgroupDescriptorType
from ...dialect.mlir.nvvm import COPIES, EXCHANGES, NVVM, PLAIN
from ...dialect.mlir.upstream import ElectOp, RegistersOp
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import SHARED_SPACE, Memory, memory_of, type_name
from ..diagnostics import fail
from .addressing import element_bits, static_shared
from .emitter import At, Condition, EmittedOperand, IndexValue, VirtualRegister
from .fragments import Fragment, only_use_is_here
from .kernel import KernelLowering, lowers
from .llvm_kernel import InstructionLine, Receiver, Words
from .memory_views import place_of
from .products import descriptor_word
from .synchronisation import map_address
from .thread_code import AnyVector, is_vector, number_of, vector_registers


def _element(kind: Attribute, tf32: bool) -> str:
    """The element type of a product's operand in PTX."""
    name = type_name(kind.element_type if is_vector(kind) else kind)
    if tf32 and name == "f32":
        return "tf32"
    return BY_MLIR_NAME[name].name if name in BY_MLIR_NAME else name


# Products of a warp.


@lowers(nvgpu.MmaSyncOp)
@lowers(nvgpu.MmaSparseSyncOp)
def _product(lowering: KernelLowering, op: Any) -> None:
    name: str = op.name.removeprefix("nvgpu.").removesuffix(".sync")
    m, n, k = (size.value.data for size in op.mmaShape)
    tf32 = op.tf32Enabled is not None
    a, b, c = (_element(value.type, tf32 and i < 2) for i, value in enumerate(op.operands[:3]))
    clamped = ".satfinite" if c == "s32" else ""
    opcode = f"{name}.sync.aligned.m{m}n{n}k{k}.row.col{clamped}.{c}.{a}.{b}.{c}"
    result = vector_registers(lowering, op, op.res.type)
    first, second, third = (
        _words(lowering, value) if element == "tf32" else lowering.fragment(value)
        for value, element in zip(op.operands[:3], (a, b, c), strict=True)
    )
    last: list[EmittedOperand] = []
    if name == "mma.sp":
        last = [lowering.fragment(op.sparseMetadata)[0], op.sparsitySelector.value.data]
    lowering.emitter.emit(opcode, result, first, second, third, *last)
    lowering.values[op.res] = result


def _words(lowering: KernelLowering, value: SSAValue) -> Fragment:
    """The bits of numbers of f32, as products take tf32."""
    return [lowering.emitter.compute("mov.b32", register, type="b32") for register in lowering.fragment(value)]


@lowers(nvgpu.LdmatrixOp)
def _ldmatrix(lowering: KernelLowering, op: Any) -> None:
    space, place = place_of(lowering, op, op.srcMemref, lowering.indices(op.indices))
    if space != "shared":
        fail(op, f"expected shared memory, got {op.srcMemref.type}")
    result = vector_registers(lowering, op, op.res.type)
    count = op.numTiles.value.data
    if len(result) != count:
        fail(op, f"expected {count} registers of 32 bits for {count} matrices, got {op.res.type}")
    transposed = ".trans" if op.transpose.value.data else ""
    words = [lowering.emitter.register("b32") if one.type == "f32" else one for one in result]
    lowering.emitter.emit(f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16", words, place)
    for word_, register in zip(words, result, strict=True):
        if word_ is not register:
            lowering.emitter.move(register, word_)
    lowering.values[op.res] = result


# Copies by `cp.async`.


@lowers(nvgpu.DeviceAsyncCopyOp)
def _copy(lowering: KernelLowering, op: Any) -> None:
    size = element_bits(op, memory_of(op.src)) // 8
    (_, source), (_, target) = (
        place_of(lowering, op, memory, lowering.indices(indices))
        for memory, indices in ((op.src, op.srcIndices), (op.dst, op.dstIndices))
    )
    count = op.dstElements.value.data * size
    cached = "cg" if op.bypassL1 is not None else "ca"
    read: list[EmittedOperand] = []
    if op.srcElements is not None:
        read = [_register(lowering, lowering.scalars.multiply(lowering.scalar(op.srcElements), size))]
    lowering.emitter.emit(f"cp.async.{cached}.shared.global", target, source, count, *read)


def _register(lowering: KernelLowering, value: IndexValue) -> VirtualRegister:
    return value if isinstance(value, VirtualRegister) else lowering.emitter.pure("mov.b32", value)


# mbarriers.


@lowers(nvgpu.MBarrierCreateOp)
def _create(lowering: KernelLowering, op: Any) -> None:
    kind = op.barriers.type
    name = f"{lowering.kernel.sym_name.data}_mbarriers_{len(lowering.variables)}"
    memory = MemRefType(i64, [kind.num_barriers.value.data], memory_space=IntegerAttr(SHARED_SPACE, i64))
    lowering.memories[op.barriers], lowering.variables[name] = static_shared(op, lowering.emitter, name, memory)


@lowers(nvgpu.MBarrierTryWaitParityOp)
def _try_wait(lowering: KernelLowering, op: Any) -> None:
    """Upstream tries again until the phase has ended."""
    (_, place), emitter = place_of(lowering, op, op.barriers, lowering.indices([op.mbarId])), lowering.emitter
    parity = lowering.scalars.select(lowering.predicate(op.phaseParity), 1, 0)
    ticks = _register(lowering, lowering.scalar(op.ticks))
    emitter.until("mbarrier.try_wait.parity.shared.b64", place, parity, ticks)


# Products of a warpgroup.

TypeT = TypeVar("TypeT", bound=Attribute)


def _of(op: Operation, value: SSAValue, kind: type[TypeT]) -> TypeT:
    """The type of an operand, of the kind that the operation verifies."""
    if not isinstance(value.type, kind):
        fail(op, f"expected {kind.name}, got {value.type}")
    return value.type


M = 64
"""Rows of one `wgmma`."""

SWIZZLES = {"none": (0, 16), "swizzle_128b": (1, 128), "swizzle_64b": (2, 64), "swizzle_32b": (3, 32)}
"""The code of a swizzle in a descriptor, and the bytes of a line that it permutes."""

K_BYTES = 32
"""Bytes of a row of A that one `wgmma` reads."""


@lowers(nvgpu.WarpgroupGenerateDescriptorOp)
def _descriptor(lowering: KernelLowering, op: Any) -> None:
    """Eight lines are a stride apart, and boxes of the tensor map a leading dimension."""
    kind = _of(op, op.tensorMap, TensorMapDescriptorType)
    code, line = SWIZZLES[kind.swizzle.data]
    if not code:
        fail(op, "expected a tensor map that swizzles 32, 64 or 128 bytes, got none")
    rows = kind.tensor.get_shape()[0]
    bits = code << 62 | (8 * line // UNIT) << 32 | (rows * line // UNIT) << 16
    _, place = place_of(lowering, op, op.tensor, [0] * len(memory_of(op.tensor).get_shape()))
    base = lowering.scalars.add(place.base, place.offset)
    lowering.values[op.descriptor] = [descriptor_word(lowering, base, bits)]


@lowers(nvgpu.WarpgroupMmaInitAccumulatorOp)
def _zeros(lowering: KernelLowering, op: Any) -> None:
    registers = _accumulator(lowering, op, op.matrixC.type)
    lowering.emitter.clear(registers)
    lowering.values[op.matrixC] = registers


def _accumulator(lowering: KernelLowering, op: Operation, kind: WarpgroupAccumulatorType) -> Fragment:
    """Fresh registers for the sums of a warpgroup: those of each `wgmma`, in the order of rows."""
    rows, columns = _sizes(op, kind.fragmented)
    if kind.fragmented.element_type != f32 or rows % M:
        fail(op, f"{op.name} is lowered for sums in f32 of a multiple of {M} rows, got {kind.fragmented}")
    return lowering.emitter.registers("f32", rows * columns // (4 * LANES))


def _sizes(op: Operation, kind: Memory | AnyVector) -> tuple[int, int]:
    shape = kind.get_shape()
    if len(shape) != 2 or min(shape) <= 0:
        fail(op, f"expected two sizes that are known, got {kind}")
    return shape[0], shape[1]


def _boxes(
    op: Operation, descriptor: SSAValue, across: int, deep: int, size: int, *, transposed: bool
) -> Callable[[int, int], int]:
    """How many bytes behind the start of a matrix its element of a row of A, or a column of B, and of K lies. Its lines
    go along K, transposed across it, and are as long as the swizzle; boxes of the tensor map follow one another."""
    if not isinstance(descriptor.owner, nvgpu.WarpgroupGenerateDescriptorOp):
        fail(op, "expected descriptors of nvgpu.warpgroup.generate.descriptor")
    made: Any = descriptor.owner
    kind = _of(made, made.tensorMap, TensorMapDescriptorType)
    line, lines = SWIZZLES[kind.swizzle.data][1], kind.tensor.get_shape()[0]
    each, extents = line // size, (deep, across) if transposed else (across, deep)
    if extents[1] > each and extents[0] > lines:
        fail(op, f"expected boxes of {extents[0]} lines of {line} bytes, got {kind.tensor}")

    def place(row: int, k: int) -> int:
        down, along = (k, row) if transposed else (row, k)
        return along // each * lines * line + down * line + along % each * size

    return place


@lowers(nvgpu.WarpgroupMmaOp)
def _warpgroup_mma(lowering: KernelLowering, op: Any) -> None:
    """As many `wgmma` as the shapes need, in one group."""
    tensors = [_of(op, value, WarpgroupDescriptorType).tensor for value in (op.descriptorA, op.descriptorB)]
    (rows, deep), (_, columns) = (_sizes(op, tensor) for tensor in tensors)
    a, b = (_element(tensor.element_type, tf32=True) for tensor in tensors)
    size = element_bits(op, tensors[0]) // 8
    emitter, k = lowering.emitter, K_BYTES // size
    opcode = f"wgmma.mma_async.sync.aligned.m{M}n{columns}k{k}.f32.{a}.{b}"
    sums = lowering.fragment(op.matrixC)
    in_place = op.matrixC.type == op.matrixD.type and only_use_is_here(op.matrixC, op)
    result = sums if in_place else _accumulator(lowering, op, op.matrixD.type)
    lowering.fragments.copy(sums, result)
    (first,), (second,) = lowering.fragment(op.descriptorA), lowering.fragment(op.descriptorB)
    each = M * columns // (4 * LANES)
    flags = [op.transposeA is not None, op.transposeB is not None]
    transposes = [int(flag) for flag in flags] if size == 2 else []
    sides = zip((op.descriptorA, op.descriptorB), (rows, columns), flags, strict=True)
    along_a, along_b = (_boxes(op, value, across, deep, size, transposed=flag) for value, across, flag in sides)
    emitter.emit("wgmma.fence.sync.aligned")
    for down in range(rows // M):
        own = result[down * each : (down + 1) * each]
        for step in range(deep // k):
            descriptors = (
                _behind(lowering, first, along_a(down * M, step * k)),
                _behind(lowering, second, along_b(0, step * k)),
            )
            emitter.emit(opcode, own, *descriptors, 1, 1, 1, *transposes)
    emitter.emit("wgmma.commit_group.sync.aligned")
    emitter.emit("wgmma.wait_group.sync.aligned", 1 if op.waitGroup is None else op.waitGroup.value.data)
    lowering.values[op.matrixD] = result


class _Lines(Receiver):
    """Takes instructions of operations that say them into a kernel of `gpu`."""

    def __init__(self, lowering: KernelLowering) -> None:
        super().__init__(lowering.emitter)
        self.lowering = lowering

    def words(self, value: SSAValue) -> Words:
        word = number_of(self.lowering, value).word
        if value.type == i16 and not isinstance(word, int):
            return [self.emitter.compute("cvt.u16.u32", word)]
        return [Immediate(str(word)) if isinstance(word, int) else word]

    def give(self, op: Operation, *words: VirtualRegister | Immediate) -> None:
        if len(words) != 1 or not isinstance(word := words[0], VirtualRegister):
            fail(op, f"{op.name} has one result in a kernel of gpu, got {op.results[0].type}")
        self.lowering.values[op.results[0]] = word if op.results[0].type in (i1, i32) else [word]

    def fresh(self, kind: Attribute) -> Fragment:
        if isinstance(kind, nvgpu.MBarrierTokenType | nvgpu.DeviceAsyncTokenType):
            return self.emitter.registers("b64", kind.name == nvgpu.MBarrierTokenType.name)
        return super().fresh(kind)

    def condition(self, value: SSAValue) -> Condition:
        return self.lowering.predicate(value)

    def place(self, op: Operation, value: SSAValue, indices: Sequence[SSAValue]) -> At:
        if isinstance(value.type, TensorMapDescriptorType):
            return At(map_address(self.lowering, op, value))
        at = self.lowering.indices(indices) or [0] * len(memory_of(value).get_shape())
        return place_of(self.lowering, op, value, at)[1]


def _line(lowering: KernelLowering, op: Any) -> None:
    """An operation of `nvgpu` that is one instruction, or one of `nvvm` that has no pointers."""
    InstructionLine(_Lines(lowering), op).emit()


_WAIT = next(op for op in NVVM.operations if op.name == "nvvm.wgmma.wait.group.sync.aligned")
_LINES = (*PLAIN, *EXCHANGES, *(each for each in COPIES if not each.get_irdl_definition().operands))
_OTHERS = (ElectOp, RegistersOp, *(each for each in PLAIN if ".wgmma." in each.name))

for _kind in (*_LINES, _WAIT, *nvgpu.OPERATIONS):
    if getattr(_kind, "PTX", "") and _kind not in _OTHERS:
        lowers(_kind)(_line)


def _behind(lowering: KernelLowering, descriptor: VirtualRegister, bytes: int) -> VirtualRegister:
    """The descriptor of the matrix that begins `bytes` bytes later."""
    return lowering.emitter.pure("add.s64", descriptor, bytes // UNIT) if bytes else descriptor


@lowers(nvgpu.WarpgroupMmaStoreOp)
def _store_sums(lowering: KernelLowering, op: Any) -> None:
    """Each warp has 16 rows of every 64: a lane two neighbours of a row, and two eight rows below, of eight columns."""
    rows, columns = _sizes(op, _of(op, op.matrixD, WarpgroupAccumulatorType).fragmented)
    registers, s = iter(lowering.fragment(op.matrixD)), lowering.scalars
    warp, lane = s.shift_right(lowering.thread, 5), lowering.lane
    row = s.add(s.multiply(s.mask(warp, 3) if isinstance(warp, VirtualRegister) else warp, 16), s.shift_right(lane, 2))
    column = s.multiply(s.mask(lane, 3), 2)
    for down in range(rows // M):
        for across in range(columns // 8):
            for below in (0, 8):
                for right in (0, 1):
                    at = s.add(row, down * M + below), s.add(column, across * 8 + right)
                    space, place = place_of(lowering, op, op.dstMemref, at)
                    lowering.emitter.store(space, [next(registers)], place)
