"""`nvgpu` as MLIR prints it, which xDSL lacks: upstream's operations on tensor cores, shared memory and its barriers.
Operands, properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/NVGPU/IR`). The vector of an operation on
fragments is what one lane holds: `vector<4x2xf16>` is four registers of two halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    I1,
    I16,
    ArrayAttr,
    BoolAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    UnrankedMemRefType,
    VectorType,
    f32,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import CustomDirective, ParsingState, PrintingState, TypeDirective
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from .upstream import SEGMENTS, declared
from .words import BareWordAttr, FieldsAttr, defined, words


class StructType(FieldsAttr, TypeAttribute):
    """A type whose parameters are written by name."""


@irdl_attr_definition
class DeviceAsyncTokenType(ParametrizedAttribute, TypeAttribute):
    """A token that orders asynchronous copies, their group, and the wait for it."""

    name = "nvgpu.device.async.token"


@irdl_attr_definition
class MBarrierTokenType(ParametrizedAttribute, TypeAttribute):
    """The phase of an mbarrier that an arrival belongs to."""

    name = "nvgpu.mbarrier.token"


@irdl_attr_definition
class MBarrierGroupType(StructType):
    """Mbarriers in shared memory: `!nvgpu.mbarrier.group<memorySpace = 3 : i32, num_barriers = 4>`."""

    name = "nvgpu.mbarrier.group"
    DEFAULTS: ClassVar[Mapping[str, Attribute]] = {"num_barriers": IntegerAttr(1, i32)}

    memorySpace: Attribute  # noqa: N815
    num_barriers: IntegerAttr


@irdl_attr_definition
class TensorMapDescriptorType(StructType):
    """A tensor map: the shape of its copies, and their layout in shared memory."""

    name = "nvgpu.tensormap.descriptor"
    WORDS: ClassVar[Mapping[str, Sequence[str]]] = {
        "swizzle": ("none", "swizzle_32b", "swizzle_64b", "swizzle_128b"),
        "l2promo": ("none", "l2promo_64b", "l2promo_128b", "l2promo_256b"),
        "oob": ("zero", "nan"),
        "interleave": ("none", "interleave_16b", "interleave_32b"),
    }

    tensor: MemRefType[Attribute]
    swizzle: StringAttr
    l2promo: StringAttr
    oob: StringAttr
    interleave: StringAttr


@irdl_attr_definition
class WarpgroupDescriptorType(StructType):
    """The descriptor of a matrix in shared memory that `wgmma` reads."""

    name = "nvgpu.warpgroup.descriptor"

    tensor: MemRefType[Attribute]


@irdl_attr_definition
class WarpgroupAccumulatorType(StructType):
    """The sums of a warpgroup, distributed over its lanes as the D of `wgmma`."""

    name = "nvgpu.warpgroup.accumulator"

    fragmented: VectorType[Attribute]


class StructText(CustomDirective):
    """The type of an operand or result that can only be one: MLIR writes its parameters alone."""

    KIND: ClassVar[type[StructType]]

    types: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        kind = parser.parse_optional_type()
        if kind is None:
            kind = self.KIND.new(self.KIND.parse_parameters(parser))
        self.types.set(state, (kind,))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        for kind in self.types.get(op):
            if isinstance(kind, StructType):
                kind.print_parameters(printer)


def _text(name: str, kind: type[StructType]) -> type[CustomDirective]:
    return defined(StructText, name, f"The parameters of a {kind.name}.", {"types": TypeDirective}, KIND=kind)


TEXTS = (
    _text("GroupText", MBarrierGroupType),
    _text("TensorMapText", TensorMapDescriptorType),
    _text("DescriptorText", WarpgroupDescriptorType),
    _text("SumsText", WarpgroupAccumulatorType),
)
"""The directives that formats of operations name."""


class NvgpuOp(IRDLOperation):
    """An operation whose properties are written in its dictionary of attributes."""

    irdl_options = (ParsePropInAttrDict(),)
    custom_directives = TEXTS
    PTX: ClassVar = ""
    """Its instruction, as a line of `nvvm_types`, if it is one."""


KINDS: Mapping[str, object] = {
    **dict.fromkeys(("srcMemref", "dstMemref", "src", "dst"), operand_def(MemRefType[Attribute])),
    **dict.fromkeys(("indices", "srcIndices", "dstIndices"), var_operand_def(IndexType)),
    **dict.fromkeys(("coordinates", "boxDimensions"), var_operand_def(IndexType)),
    **dict.fromkeys(("count", "txcount", "ticks", "mbarId"), operand_def(IndexType)),
    **dict.fromkeys(("matrixA", "matrixB", "matrixC"), operand_def(VectorType)),
    **dict.fromkeys(("descriptorA", "descriptorB"), operand_def(WarpgroupDescriptorType)),
    **dict.fromkeys(("tf32Enabled", "bypassL1", "transposeA", "transposeB"), opt_prop_def(UnitAttr)),
    "res": result_def(VectorType),
    "transpose": prop_def(BoolAttr),
    "numTiles": prop_def(IntegerAttr[i32]),
    "mmaShape": prop_def(ArrayAttr[IntegerAttr[i64]]),
    "sparseMetadata": operand_def(VectorType(i16, [2])),
    "sparsitySelector": prop_def(IntegerAttr[i32], default_value=IntegerAttr(0, i32)),
    "srcElements": opt_operand_def(IndexType),
    "dstElements": prop_def(IntegerAttr[IndexType]),
    "inputTokens": var_operand_def(DeviceAsyncTokenType()),
    "asyncDependencies": opt_operand_def(DeviceAsyncTokenType()),
    "asyncToken": result_def(DeviceAsyncTokenType()),
    "numGroups": opt_prop_def(IntegerAttr[i32]),
    "barriers": operand_def(MBarrierGroupType),
    "token": operand_def(MBarrierTokenType),
    "phaseParity": operand_def(I1),
    "predicate": opt_operand_def(I1),
    "multicastMask": opt_operand_def(I16),
    "tensorMapDescriptor": operand_def(TensorMapDescriptorType),
    "tensor": operand_def(MemRefType[Attribute]),
    "tensorMap": operand_def(TensorMapDescriptorType),
    "waitGroup": opt_prop_def(IntegerAttr[i64]),
    "matrixD": result_def(WarpgroupAccumulatorType),
}
"""What a field is by its name, in the operations that say no other."""


def _row(name: str, fields: str, text: str, summary: str, **own: object) -> type[NvgpuOp]:
    """An operation by its name, its fields in their order, its text, and the fields that `KINDS` does not say."""
    kinds = {each: own.pop(each, None) or KINDS[each] for each in fields.split()}
    return declared(NvgpuOp, f"nvgpu.{name}", text, summary, **kinds, **own)


# Products of a warp, and their fragments.

_PRODUCT = "`(` $matrixA `,` $matrixB `,` $matrixC `)`"
_PRODUCT_TYPES = "attr-dict `:` `(` type($matrixA) `,` type($matrixB) `,` type($matrixC) `)` `->` type($res)"

LdmatrixOp = _row(
    "ldmatrix", "srcMemref indices transpose numTiles res",
    "$srcMemref `[` $indices `]` attr-dict `:` type($srcMemref) `->` type($res)",
    "A fragment of `numTiles` matrices of 8 rows of 16 bytes, each lane's row at its own indices of shared memory.",
)  # fmt: skip
MmaSyncOp = _row(
    "mma.sync", "matrixA matrixB matrixC mmaShape tf32Enabled res", f"{_PRODUCT} {_PRODUCT_TYPES}",
    "D = A B + C of one warp by `mma`, of the shape `mmaShape` (M, N, K).", traits=traits_def(Pure()),
)  # fmt: skip
MmaSparseSyncOp = _row(
    "mma.sp.sync", "matrixA matrixB matrixC sparseMetadata mmaShape sparsitySelector tf32Enabled res",
    f"{_PRODUCT} `metadata` `(` $sparseMetadata `)` {_PRODUCT_TYPES}",
    "D = A B + C of one warp by `mma.sp`: A has half of its elements, and `sparseMetadata` says which.",
    traits=traits_def(Pure()),
)  # fmt: skip


# Copies by `cp.async`.

DeviceAsyncCopyOp = _row(
    "device_async_copy", "dst dstIndices src srcIndices srcElements dstElements bypassL1 asyncToken",
    "$src `[` $srcIndices `]` `,` $dst `[` $dstIndices `]` `,` $dstElements (`,` $srcElements^)?"
    " attr-dict `:` type($src) `to` type($dst)",
    "Copies `dstElements` elements from global to shared memory by `cp.async`; those after `srcElements` are zero.",
    irdl_options=SEGMENTS,
)  # fmt: skip
DeviceAsyncCreateGroupOp = _row(
    "device_async_create_group", "inputTokens asyncToken", "$inputTokens attr-dict",
    "Puts the copies that were begun so far into one group.",
    PTX="cp.async.commit_group",
)  # fmt: skip
DeviceAsyncWaitOp = _row(
    "device_async_wait", "asyncDependencies numGroups", "($asyncDependencies^)? attr-dict",
    "Waits until at most `numGroups` groups of copies are pending; without it, until none is.",
    PTX="cp.async.wait_group {numGroups?0}",
)  # fmt: skip


# Mbarriers in shared memory.

_ONE, _OF_GROUP = "$barriers `[` $mbarId `]`", "attr-dict `:` custom<GroupText>(type($barriers))"
_GUARD = "(`,` `predicate` `=` $predicate^)?"
_ARRIVED = {"token": result_def(MBarrierTokenType)}

MBarrierCreateOp = _row(
    "mbarrier.create", "barriers", "attr-dict `->` custom<GroupText>(type($barriers))",
    "Mbarriers in shared memory that are not initialised yet.", barriers=result_def(MBarrierGroupType),
)  # fmt: skip
MBarrierGetOp = _row(
    "mbarrier.get", "barriers mbarId mbarrierPointer", f"{_ONE} {_OF_GROUP} `->` type($mbarrierPointer)",
    "The address of one mbarrier of a group.", mbarrierPointer=result_def(type(i64)),
)  # fmt: skip
MBarrierInitOp = _row(
    "mbarrier.init", "barriers count mbarId predicate", f"{_ONE} `,` $count {_GUARD} {_OF_GROUP}",
    "Initialises an mbarrier for `count` arrivals a phase.", PTX="mbarrier.init.shared.b64 [barriers+mbarId], count",
)  # fmt: skip
MBarrierTestWaitOp = _row(
    "mbarrier.test.wait", "barriers token mbarId waitComplete", f"{_ONE} `,` $token {_OF_GROUP} `,` type($token)",
    "Whether the phase of a token has ended.", waitComplete=result_def(I1),
    PTX="mbarrier.test_wait.shared.b64 waitComplete, [barriers+mbarId], token",
)  # fmt: skip
MBarrierArriveOp = _row(
    "mbarrier.arrive", "barriers mbarId token", f"{_ONE} {_OF_GROUP} `->` type($token)", "An arrival at an mbarrier.",
    **_ARRIVED, PTX="mbarrier.arrive.shared.b64 token, [barriers+mbarId]",
)  # fmt: skip
MBarrierArriveNoCompleteOp = _row(
    "mbarrier.arrive.nocomplete", "barriers mbarId count token", f"{_ONE} `,` $count {_OF_GROUP} `->` type($token)",
    "`count` arrivals at an mbarrier that do not end its phase.", **_ARRIVED,
    PTX="mbarrier.arrive.noComplete.shared.b64 token, [barriers+mbarId], count",
)  # fmt: skip
MBarrierArriveExpectTxOp = _row(
    "mbarrier.arrive.expect_tx", "barriers txcount mbarId predicate", f"{_ONE} `,` $txcount {_GUARD} {_OF_GROUP}",
    "An arrival at an mbarrier whose phase also waits for `txcount` bytes of asynchronous copies.",
    PTX="mbarrier.arrive.expect_tx.shared::cta.b64 _, [barriers+mbarId], txcount",
)  # fmt: skip
MBarrierTryWaitParityOp = _row(
    "mbarrier.try_wait.parity", "barriers phaseParity ticks mbarId", f"{_ONE} `,` $phaseParity `,` $ticks {_OF_GROUP}",
    "Waits until the phase of parity `phaseParity` has ended; `ticks` is how long one try may last, in nanoseconds.",
)  # fmt: skip


# Tensor copies. Coordinates: innermost first.

_MAP = "custom<TensorMapText>(type($tensorMapDescriptor))"

TmaFenceOp = _row(
    "tma.fence.descriptor", "tensorMapDescriptor", f"$tensorMapDescriptor attr-dict `:` {_MAP}",
    "Orders writes of a tensor map by the host before its use.",
    PTX="fence.proxy.tensormap::generic.acquire.sys [tensorMapDescriptor], 128",
)  # fmt: skip
TmaPrefetchOp = _row(
    "tma.prefetch.descriptor", "tensorMapDescriptor predicate",
    f"$tensorMapDescriptor {_GUARD} attr-dict `:` {_MAP}", "Brings a tensor map into the cache.",
    PTX="prefetch.tensormap [tensorMapDescriptor]",
)  # fmt: skip
TmaAsyncLoadOp = _row(
    "tma.async.load", "dst barriers tensorMapDescriptor coordinates mbarId multicastMask predicate",
    f"$tensorMapDescriptor `[` $coordinates `]` `,` {_ONE} `to` $dst (`multicast_mask` `=` $multicastMask^)?"
    f" {_GUARD} attr-dict `:` {_MAP} `,` custom<GroupText>(type($barriers)) `->` type($dst)",
    "Copies a box of a tensor to shared memory; its bytes count at an mbarrier.", irdl_options=SEGMENTS,
    PTX="cp.async.bulk.tensor.{#coordinates}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    "{multicastMask?=.multicast::cluster} [dst], [tensorMapDescriptor, {coordinates}], [barriers+mbarId],"
    " multicastMask?",
)  # fmt: skip
TmaAsyncStoreOp = _row(
    "tma.async.store", "src tensorMapDescriptor coordinates predicate",
    f"$src `to` $tensorMapDescriptor `[` $coordinates `]` {_GUARD} attr-dict `:` type($src) `->` {_MAP}",
    "Copies shared memory to a box of a tensor.", irdl_options=SEGMENTS,
    PTX="cp.async.bulk.tensor.{#coordinates}d.global.shared::cta.tile.bulk_group"
    " [tensorMapDescriptor, {coordinates}], [src]",
)  # fmt: skip
TmaCreateDescriptorOp = _row(
    "tma.create.descriptor", "tensor boxDimensions tensorMap",
    "$tensor `box` `[` $boxDimensions `]` attr-dict `:` type($tensor) `->` custom<TensorMapText>(type($tensorMap))",
    "A tensor map of a tensor in global memory, made by the host; `boxDimensions`: outermost first.",
    tensor=operand_def(UnrankedMemRefType), tensorMap=result_def(TensorMapDescriptorType),
)  # fmt: skip


# Products of a warpgroup.

WarpgroupGenerateDescriptorOp = _row(
    "warpgroup.generate.descriptor", "tensor tensorMap descriptor",
    "$tensor `,` $tensorMap attr-dict"
    " `:` type($tensor) `,` custom<TensorMapText>(type($tensorMap)) `->` custom<DescriptorText>(type($descriptor))",
    "Makes the descriptor by which `wgmma` reads a matrix that tensor copies wrote to shared memory.",
    descriptor=result_def(WarpgroupDescriptorType),
)  # fmt: skip
WarpgroupMmaOp = _row(
    "warpgroup.mma", "descriptorA descriptorB matrixC waitGroup transposeA transposeB matrixD",
    "$descriptorA `,` $descriptorB `,` $matrixC attr-dict `:` custom<DescriptorText>(type($descriptorA))"
    " `,` custom<DescriptorText>(type($descriptorB)) `,` custom<SumsText>(type($matrixC))"
    " `->` custom<SumsText>(type($matrixD))",
    "D = A B + C of a warpgroup by as many `wgmma` as the shapes need; waits for all but `waitGroup` groups.",
    matrixC=operand_def(WarpgroupAccumulatorType),
)  # fmt: skip
WarpgroupMmaStoreOp = _row(
    "warpgroup.mma.store", "matrixD dstMemref",
    "$matrixD `,` $dstMemref attr-dict `:` custom<SumsText>(type($matrixD)) `to` type($dstMemref)",
    "Writes the sums of a warpgroup to memory.", matrixD=operand_def(WarpgroupAccumulatorType),
)  # fmt: skip
WarpgroupMmaInitAccumulatorOp = _row(
    "warpgroup.mma.init.accumulator", "matrixC", "attr-dict `->` custom<SumsText>(type($matrixC))",
    "Sums of a warpgroup that are zero.", matrixC=result_def(WarpgroupAccumulatorType),
)  # fmt: skip


_SAME = VarConstraint("SAME", VectorType.constr(f32))

ROUNDING = words("nvgpu.rcp_rounding_mode", "approx rn rz rm rp", BareWordAttr)

RCP = declared(
    NvgpuOp, "nvgpu.rcp",
    "$in_ ` ` `{` `rounding` `=` $rounding (`,` `ftz` $ftz^)? `}` attr-dict `:` type($out)",
    "The reciprocal of each element.", in_=operand_def(_SAME), out=result_def(_SAME),
    rounding=prop_def(ROUNDING),
    ftz=opt_prop_def(UnitAttr), traits=traits_def(Pure()), irdl_options=(),
)  # fmt: skip

_KINDS = [kind for kind in globals().values() if isinstance(kind, type)]

OPERATIONS: list[type[Operation]] = [kind for kind in _KINDS if issubclass(kind, NvgpuOp) and kind is not NvgpuOp]
_OWN = [kind for kind in _KINDS if kind.__module__ == __name__ and kind is not StructType]
TYPES = [kind for kind in _OWN if issubclass(kind, ParametrizedAttribute)]

NVGPU = Dialect("nvgpu", OPERATIONS, [*TYPES, ROUNDING])
