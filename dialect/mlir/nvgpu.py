"""`nvgpu` as MLIR prints it, which xDSL lacks: upstream's operations on tensor cores, shared memory and its barriers.

Operands, properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/NVGPU/IR`). The vector of an operation
on fragments is what one lane holds: `vector<4x2xf16>` is four registers of two halves.
"""

from __future__ import annotations

from xdsl.dialects.builtin import (
    I1,
    I16,
    ArrayAttr,
    BoolAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    UnrankedMemRefType,
    VectorType,
    f32,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from .nvgpu_types import (
    TYPES,
    DescriptorText,
    DeviceAsyncTokenType,
    GroupText,
    MBarrierGroupType,
    MBarrierTokenType,
    SumsText,
    TensorMapDescriptorType,
    TensorMapText,
    WarpgroupAccumulatorType,
    WarpgroupDescriptorType,
)
from .upstream import declared
from .words import BareWordAttr, words


class NvgpuOp(IRDLOperation):
    """An operation whose properties are written in its dictionary of attributes."""

    irdl_options = (ParsePropInAttrDict(),)
    custom_directives = (GroupText, TensorMapText, DescriptorText, SumsText)


@irdl_op_definition
class LdmatrixOp(NvgpuOp):
    """A fragment of `numTiles` matrices of 8 rows of 16 bytes, each lane's row at its own indices of shared memory."""

    name = "nvgpu.ldmatrix"
    assembly_format = "$srcMemref `[` $indices `]` attr-dict `:` type($srcMemref) `->` type($res)"

    srcMemref = operand_def(MemRefType[Attribute])  # noqa: N815
    indices = var_operand_def(IndexType)
    transpose = prop_def(BoolAttr)
    numTiles = prop_def(IntegerAttr[i32])  # noqa: N815
    res = result_def(VectorType)


@irdl_op_definition
class MmaSyncOp(NvgpuOp):
    """D = A B + C of one warp by `mma`, of the shape `mmaShape` (M, N, K)."""

    name = "nvgpu.mma.sync"
    assembly_format = (
        "`(` $matrixA `,` $matrixB `,` $matrixC `)` attr-dict"
        " `:` `(` type($matrixA) `,` type($matrixB) `,` type($matrixC) `)` `->` type($res)"
    )

    matrixA = operand_def(VectorType)  # noqa: N815
    matrixB = operand_def(VectorType)  # noqa: N815
    matrixC = operand_def(VectorType)  # noqa: N815
    mmaShape = prop_def(ArrayAttr[IntegerAttr[i64]])  # noqa: N815
    tf32Enabled = opt_prop_def(UnitAttr)  # noqa: N815
    res = result_def(VectorType)

    traits = traits_def(Pure())


@irdl_op_definition
class MmaSparseSyncOp(NvgpuOp):
    """D = A B + C of one warp by `mma.sp`: A has half of its elements, and `sparseMetadata` says which."""

    name = "nvgpu.mma.sp.sync"
    assembly_format = (
        "`(` $matrixA `,` $matrixB `,` $matrixC `)` `metadata` `(` $sparseMetadata `)` attr-dict"
        " `:` `(` type($matrixA) `,` type($matrixB) `,` type($matrixC) `)` `->` type($res)"
    )

    matrixA = operand_def(VectorType)  # noqa: N815
    matrixB = operand_def(VectorType)  # noqa: N815
    matrixC = operand_def(VectorType)  # noqa: N815
    sparseMetadata = operand_def(VectorType(i16, [2]))  # noqa: N815
    mmaShape = prop_def(ArrayAttr[IntegerAttr[i64]])  # noqa: N815
    sparsitySelector = prop_def(IntegerAttr[i32], default_value=IntegerAttr(0, i32))  # noqa: N815
    tf32Enabled = opt_prop_def(UnitAttr)  # noqa: N815
    res = result_def(VectorType)

    traits = traits_def(Pure())


@irdl_op_definition
class DeviceAsyncCopyOp(NvgpuOp):
    """Copies `dstElements` elements from global to shared memory by `cp.async`; those after `srcElements` are zero."""

    name = "nvgpu.device_async_copy"
    assembly_format = (
        "$src `[` $srcIndices `]` `,` $dst `[` $dstIndices `]` `,` $dstElements (`,` $srcElements^)?"
        " attr-dict `:` type($src) `to` type($dst)"
    )

    dst = operand_def(MemRefType[Attribute])
    dstIndices = var_operand_def(IndexType)  # noqa: N815
    src = operand_def(MemRefType[Attribute])
    srcIndices = var_operand_def(IndexType)  # noqa: N815
    srcElements = opt_operand_def(IndexType)  # noqa: N815
    dstElements = prop_def(IntegerAttr[IndexType])  # noqa: N815
    bypassL1 = opt_prop_def(UnitAttr)  # noqa: N815
    asyncToken = result_def(DeviceAsyncTokenType)  # noqa: N815

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())


@irdl_op_definition
class DeviceAsyncCreateGroupOp(NvgpuOp):
    """Puts the copies that were begun so far into one group."""

    name = "nvgpu.device_async_create_group"
    assembly_format = "$inputTokens attr-dict"

    inputTokens = var_operand_def(DeviceAsyncTokenType())  # noqa: N815
    asyncToken = result_def(DeviceAsyncTokenType())  # noqa: N815


@irdl_op_definition
class DeviceAsyncWaitOp(NvgpuOp):
    """Waits until at most `numGroups` groups of copies are pending; without it, until none is."""

    name = "nvgpu.device_async_wait"
    assembly_format = "($asyncDependencies^)? attr-dict"

    asyncDependencies = opt_operand_def(DeviceAsyncTokenType())  # noqa: N815
    numGroups = opt_prop_def(IntegerAttr[i32])  # noqa: N815


@irdl_op_definition
class MBarrierCreateOp(NvgpuOp):
    """Mbarriers in shared memory that are not initialised yet."""

    name = "nvgpu.mbarrier.create"
    assembly_format = "attr-dict `->` custom<GroupText>(type($barriers))"

    barriers = result_def(MBarrierGroupType)


@irdl_op_definition
class MBarrierGetOp(NvgpuOp):
    """The address of one mbarrier of a group."""

    name = "nvgpu.mbarrier.get"
    assembly_format = (
        "$barriers `[` $mbarId `]` attr-dict `:` custom<GroupText>(type($barriers)) `->` type($mbarrierPointer)"
    )

    barriers = operand_def(MBarrierGroupType)
    mbarId = operand_def(IndexType)  # noqa: N815
    mbarrierPointer = result_def(base(type(i64)))  # noqa: N815


@irdl_op_definition
class MBarrierInitOp(NvgpuOp):
    """Initialises an mbarrier for `count` arrivals a phase."""

    name = "nvgpu.mbarrier.init"
    assembly_format = (
        "$barriers `[` $mbarId `]` `,` $count (`,` `predicate` `=` $predicate^)? attr-dict"
        " `:` custom<GroupText>(type($barriers))"
    )

    barriers = operand_def(MBarrierGroupType)
    count = operand_def(IndexType)
    mbarId = operand_def(IndexType)  # noqa: N815
    predicate = opt_operand_def(I1)


@irdl_op_definition
class MBarrierTestWaitOp(NvgpuOp):
    """Whether the phase of a token has ended."""

    name = "nvgpu.mbarrier.test.wait"
    assembly_format = (
        "$barriers `[` $mbarId `]` `,` $token attr-dict `:` custom<GroupText>(type($barriers)) `,` type($token)"
    )

    barriers = operand_def(MBarrierGroupType)
    token = operand_def(MBarrierTokenType)
    mbarId = operand_def(IndexType)  # noqa: N815
    waitComplete = result_def(I1)  # noqa: N815


@irdl_op_definition
class MBarrierArriveOp(NvgpuOp):
    """An arrival at an mbarrier."""

    name = "nvgpu.mbarrier.arrive"
    assembly_format = "$barriers `[` $mbarId `]` attr-dict `:` custom<GroupText>(type($barriers)) `->` type($token)"

    barriers = operand_def(MBarrierGroupType)
    mbarId = operand_def(IndexType)  # noqa: N815
    token = result_def(MBarrierTokenType)


@irdl_op_definition
class MBarrierArriveNoCompleteOp(NvgpuOp):
    """`count` arrivals at an mbarrier that do not end its phase."""

    name = "nvgpu.mbarrier.arrive.nocomplete"
    assembly_format = (
        "$barriers `[` $mbarId `]` `,` $count attr-dict `:` custom<GroupText>(type($barriers)) `->` type($token)"
    )

    barriers = operand_def(MBarrierGroupType)
    mbarId = operand_def(IndexType)  # noqa: N815
    count = operand_def(IndexType)
    token = result_def(MBarrierTokenType)


@irdl_op_definition
class MBarrierArriveExpectTxOp(NvgpuOp):
    """An arrival at an mbarrier whose phase also waits for `txcount` bytes of asynchronous copies."""

    name = "nvgpu.mbarrier.arrive.expect_tx"
    assembly_format = (
        "$barriers `[` $mbarId `]` `,` $txcount (`,` `predicate` `=` $predicate^)? attr-dict"
        " `:` custom<GroupText>(type($barriers))"
    )

    barriers = operand_def(MBarrierGroupType)
    txcount = operand_def(IndexType)
    mbarId = operand_def(IndexType)  # noqa: N815
    predicate = opt_operand_def(I1)


@irdl_op_definition
class MBarrierTryWaitParityOp(NvgpuOp):
    """Waits until the phase of parity `phaseParity` has ended; `ticks` is how long one try may last, in nanoseconds."""

    name = "nvgpu.mbarrier.try_wait.parity"
    assembly_format = (
        "$barriers `[` $mbarId `]` `,` $phaseParity `,` $ticks attr-dict `:` custom<GroupText>(type($barriers))"
    )

    barriers = operand_def(MBarrierGroupType)
    phaseParity = operand_def(I1)  # noqa: N815
    ticks = operand_def(IndexType)
    mbarId = operand_def(IndexType)  # noqa: N815


@irdl_op_definition
class TmaFenceOp(NvgpuOp):
    """Orders writes of a tensor map by the host before its use."""

    name = "nvgpu.tma.fence.descriptor"
    assembly_format = "$tensorMapDescriptor attr-dict `:` custom<TensorMapText>(type($tensorMapDescriptor))"

    tensorMapDescriptor = operand_def(TensorMapDescriptorType)  # noqa: N815


@irdl_op_definition
class TmaPrefetchOp(NvgpuOp):
    """Brings a tensor map into the cache."""

    name = "nvgpu.tma.prefetch.descriptor"
    assembly_format = (
        "$tensorMapDescriptor (`,` `predicate` `=` $predicate^)? attr-dict"
        " `:` custom<TensorMapText>(type($tensorMapDescriptor))"
    )

    tensorMapDescriptor = operand_def(TensorMapDescriptorType)  # noqa: N815
    predicate = opt_operand_def(I1)


@irdl_op_definition
class TmaAsyncLoadOp(NvgpuOp):
    """Copies a box of a tensor to shared memory; its bytes count at an mbarrier. Coordinates: innermost first."""

    name = "nvgpu.tma.async.load"
    assembly_format = (
        "$tensorMapDescriptor `[` $coordinates `]` `,` $barriers `[` $mbarId `]` `to` $dst"
        " (`multicast_mask` `=` $multicastMask^)? (`,` `predicate` `=` $predicate^)? attr-dict"
        " `:` custom<TensorMapText>(type($tensorMapDescriptor)) `,` custom<GroupText>(type($barriers)) `->` type($dst)"
    )

    dst = operand_def(MemRefType[Attribute])
    barriers = operand_def(MBarrierGroupType)
    tensorMapDescriptor = operand_def(TensorMapDescriptorType)  # noqa: N815
    coordinates = var_operand_def(IndexType)
    mbarId = operand_def(IndexType)  # noqa: N815
    multicastMask = opt_operand_def(I16)  # noqa: N815
    predicate = opt_operand_def(I1)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())


@irdl_op_definition
class TmaAsyncStoreOp(NvgpuOp):
    """Copies shared memory to a box of a tensor. Coordinates: innermost first."""

    name = "nvgpu.tma.async.store"
    assembly_format = (
        "$src `to` $tensorMapDescriptor `[` $coordinates `]` (`,` `predicate` `=` $predicate^)? attr-dict"
        " `:` type($src) `->` custom<TensorMapText>(type($tensorMapDescriptor))"
    )

    src = operand_def(MemRefType[Attribute])
    tensorMapDescriptor = operand_def(TensorMapDescriptorType)  # noqa: N815
    coordinates = var_operand_def(IndexType)
    predicate = opt_operand_def(I1)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())


@irdl_op_definition
class TmaCreateDescriptorOp(NvgpuOp):
    """A tensor map of a tensor in global memory, made by the host; `boxDimensions`: outermost first."""

    name = "nvgpu.tma.create.descriptor"
    assembly_format = (
        "$tensor `box` `[` $boxDimensions `]` attr-dict `:` type($tensor) `->` custom<TensorMapText>(type($tensorMap))"
    )

    tensor = operand_def(UnrankedMemRefType)
    boxDimensions = var_operand_def(IndexType)  # noqa: N815
    tensorMap = result_def(TensorMapDescriptorType)  # noqa: N815


@irdl_op_definition
class WarpgroupGenerateDescriptorOp(NvgpuOp):
    """Makes the descriptor by which `wgmma` reads a matrix that tensor copies wrote to shared memory."""

    name = "nvgpu.warpgroup.generate.descriptor"
    assembly_format = (
        "$tensor `,` $tensorMap attr-dict"
        " `:` type($tensor) `,` custom<TensorMapText>(type($tensorMap)) `->` custom<DescriptorText>(type($descriptor))"
    )

    tensor = operand_def(MemRefType[Attribute])
    tensorMap = operand_def(TensorMapDescriptorType)  # noqa: N815
    descriptor = result_def(WarpgroupDescriptorType)


@irdl_op_definition
class WarpgroupMmaOp(NvgpuOp):
    """D = A B + C of a warpgroup by as many `wgmma` as the shapes need; waits for all but `waitGroup` groups."""

    name = "nvgpu.warpgroup.mma"
    assembly_format = (
        "$descriptorA `,` $descriptorB `,` $matrixC attr-dict `:` custom<DescriptorText>(type($descriptorA))"
        " `,` custom<DescriptorText>(type($descriptorB)) `,` custom<SumsText>(type($matrixC))"
        " `->` custom<SumsText>(type($matrixD))"
    )

    descriptorA = operand_def(WarpgroupDescriptorType)  # noqa: N815
    descriptorB = operand_def(WarpgroupDescriptorType)  # noqa: N815
    matrixC = operand_def(WarpgroupAccumulatorType)  # noqa: N815
    waitGroup = opt_prop_def(IntegerAttr[i64])  # noqa: N815
    transposeA = opt_prop_def(UnitAttr)  # noqa: N815
    transposeB = opt_prop_def(UnitAttr)  # noqa: N815
    matrixD = result_def(WarpgroupAccumulatorType)  # noqa: N815


@irdl_op_definition
class WarpgroupMmaStoreOp(NvgpuOp):
    """Writes the sums of a warpgroup to memory."""

    name = "nvgpu.warpgroup.mma.store"
    assembly_format = "$matrixD `,` $dstMemref attr-dict `:` custom<SumsText>(type($matrixD)) `to` type($dstMemref)"

    matrixD = operand_def(WarpgroupAccumulatorType)  # noqa: N815
    dstMemref = operand_def(MemRefType[Attribute])  # noqa: N815


@irdl_op_definition
class WarpgroupMmaInitAccumulatorOp(NvgpuOp):
    """Sums of a warpgroup that are zero."""

    name = "nvgpu.warpgroup.mma.init.accumulator"
    assembly_format = "attr-dict `->` custom<SumsText>(type($matrixC))"

    matrixC = result_def(WarpgroupAccumulatorType)  # noqa: N815


_SAME = VarConstraint("SAME", VectorType.constr(f32))

ROUNDING = words("nvgpu.rcp_rounding_mode", "approx rn rz rm rp", BareWordAttr)

RCP = declared(
    NvgpuOp, "nvgpu.rcp",
    "$in_ ` ` `{` `rounding` `=` $rounding (`,` `ftz` $ftz^)? `}` attr-dict `:` type($out)",
    "The reciprocal of each element.", in_=operand_def(_SAME), out=result_def(_SAME),
    rounding=prop_def(ROUNDING),
    ftz=opt_prop_def(UnitAttr), traits=traits_def(Pure()), irdl_options=(),
)  # fmt: skip

OPERATIONS: list[type[Operation]] = [
    op for op in globals().values() if isinstance(op, type) and issubclass(op, NvgpuOp) and op is not NvgpuOp
]

NVGPU = Dialect("nvgpu", OPERATIONS, [*TYPES, ROUNDING])
