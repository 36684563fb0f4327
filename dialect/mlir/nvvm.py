"""`nvvm` as MLIR prints it, which xDSL lacks: one instruction of PTX each, on values of `llvm`. Operands, properties
and text are those of MLIR 22 (`NVVMOps.td`). `PTX` of an operation is its instruction, for both directions: see
`nvvm_types`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from xdsl.dialects.builtin import BoolAttr, IntAttr, IntegerAttr, UnitAttr, VectorType, f32, i1, i8, i32, i64
from xdsl.dialects.llvm import LLVMPointerType, LLVMStructType
from xdsl.ir import Dialect
from xdsl.irdl import (
    IRDLOperation,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from ..isa.row import SPECIAL_REGISTERS
from . import nvvm_types as types
from .llvm import CONSTANT_RANGE
from .nvvm_types import ATTRIBUTES, Integer, MatrixShapeAttr, TensorPointer, row
from .upstream import REGISTER_ACTION, SEGMENTS, ElectOp, NvvmOp, RegistersOp, operation, typed
from .words import defined

# Special registers.

_ABSENT = ("clock_hi", "globaltimer_hi", "pm", "reserved", "current_graph_exec", "is_explicit_cluster")
"""How the names begin of those that `nvvm` has no operation for."""

_LAST = (9, 0)
"""The PTX version of the last special registers that `nvvm` reads, in MLIR 22."""

_WITH_PARTS = frozenset(name.rpartition(".")[0] for name in SPECIAL_REGISTERS if name.endswith(".x"))


def _is_operation(name: str) -> bool:
    if SPECIAL_REGISTERS[name].ptx > _LAST:
        return False
    return not (name.endswith(".w") or name in _WITH_PARTS or name[1:].startswith(_ABSENT))


class SpecialRegisterOp(NvvmOp):
    """The value of a special register."""

    assembly_format = "(`range` $range^)? attr-dict `:` type($res)"

    range = opt_prop_def(CONSTANT_RANGE)
    res = result_def()


def _special(register: str, name: str) -> type[SpecialRegisterOp]:
    line = f"<mov.u{{res#i32=32/i64=64}} res, {register}"
    return defined(SpecialRegisterOp, f"nvvm.read.ptx.sreg.{name}", f"The special register {register}.", PTX=line)


SPECIAL_OPERATIONS = {
    **{name: _special(name, name[1:].replace("_", ".")) for name in SPECIAL_REGISTERS if _is_operation(name)},
    "WARP_SZ": _special("WARP_SZ", "warpsize"),
}
"""The operation of each special register."""


# Operations without operands.


PLAIN = tuple(
    operation(name, f"`{ptx}`.", ptx, "attr-dict")
    for name, ptx in (
        ("barrier0", "bar.sync 0"),
        ("fence.mbarrier.init", "fence.mbarrier_init.release.cluster"),
        ("fence.sc.cluster", "fence.sc.cluster"),
        ("cp.async.commit.group", "cp.async.commit_group"),
        ("cp.async.bulk.commit.group", "cp.async.bulk.commit_group"),
        ("wgmma.fence.aligned", "wgmma.fence.sync.aligned"),
        ("wgmma.commit.group.sync.aligned", "wgmma.commit_group.sync.aligned"),
        ("exit", "exit"),
        ("breakpoint", "brkpt"),
    )
)


EXCHANGES = (
    # Barriers and fences.
    row("barrier",
        "All threads of a CTA, or some warps, wait for each other; `reductionOp` combines a predicate of each.",
        "bar.sync barrierId=0, numberOfThreads?",
        "(`id` `=` $barrierId^)? (`number_of_threads` `=` $numberOfThreads^)? (qualified($reductionOp)^"
        " $reductionPredicate)? attr-dict (`->` type($res)^)?", res=opt_result_def(i32), irdl_options=SEGMENTS),
    row("barrier.arrive", "An arrival at a barrier for which others wait.", "bar.arrive barrierId=0, numberOfThreads",
        "(`id` `=` $barrierId^)? `number_of_threads` `=` $numberOfThreads attr-dict"),
    row("bar.warp.sync", "Lanes of a warp wait for each other.", "bar.warp.sync mask", typed("mask")),
    *(
        row(f"cluster.{name}", summary, f"barrier.cluster.{name}{{aligned?/=.aligned}}", "attr-dict")
        for name, summary in (
            ("arrive", "An arrival at the barrier of the cluster."),
            ("arrive.relaxed", "An arrival at the barrier of the cluster that orders no memory."),
            ("wait", "Waits until all threads of the cluster have arrived."),
        )
    ),
    row("fence.proxy", "Orders accesses by several proxies.",
        "fence.proxy.{kind/async=async/async.shared=async.shared/async.global=async.global/alias=alias}"
        "{space?/cta=::cta/cluster=::cluster}", "attr-dict", kind=prop_def(types.PROXY),
        space=opt_prop_def(types.SHARED_SPACE)),
    row("memory.barrier", "Orders memory for the threads of a scope.", "membar.{scope/cta=cta/gpu=gl/sys=sys}",
        "$scope attr-dict", scope=prop_def(types.SCOPE)),
    RegistersOp,
    row("griddepcontrol", "Waits for the kernel before, or lets the one behind begin.", "griddepcontrol.{kind}",
        "$kind attr-dict", kind=prop_def(types.GRID_ACTION)),

    # Lanes of a warp.
    row("shfl.sync", "The value of another lane.",
        "shfl.sync.{kind}.b32 res, val, offset, mask_and_clamp, thread_mask",
        "$kind $thread_mask `,` $val `,` $offset `,` $mask_and_clamp attr-dict `:` type($val) `->` type($res)",
        kind=prop_def(types.SHUFFLE), return_value_and_is_valid=opt_prop_def(UnitAttr)),
    row("vote.sync", "What the lanes say of a predicate.",
        "vote.sync.{kind/ballot=ballot.b32/any=any.pred/all=all.pred/uni=uni.pred} res, pred, mask",
        "$kind $mask `,` $pred attr-dict `->` type($res)", mask=operand_def(i32), kind=prop_def(types.VOTE)),
    row("match.sync", "The lanes that have the same value; of `all` also whether all have it.",
        "match.{kind}.sync{val#i32=.b32/i64=.b64} res, val, thread_mask",
        "$kind $thread_mask `,` $val attr-dict `:` type($val) `->` type($res)", kind=prop_def(types.MATCH)),
    row("redux.sync", "A reduction over the lanes.",
        "redux.sync.{kind/add=add.s32/min=min.s32/max=max.s32/umin=min.u32/umax=max.u32"
        "/and=and.b32/or=or.b32/xor=xor.b32/fmin=min/fmax=max}{abs/true=.abs/false=}{nan/true=.NaN/false=}{val#f32=.f32/i32=}"
        " res, val, mask_and_clamp",
        "$kind $val `,` $mask_and_clamp attr-dict `:` type($val) `->` type($res)", kind=prop_def(types.REDUX),
        **{name: prop_def(BoolAttr, default_value=BoolAttr.from_bool(False)) for name in ("abs", "nan")}),
    ElectOp,
)  # fmt: skip


# Operations of `nvvm`: copies, mbarriers, tensor copies, hints, addresses of a cluster.


_ORDER = {"scope": opt_prop_def(types.SCOPE), "relaxed": opt_prop_def(IntegerAttr[i1])}
"""How an access to an mbarrier is ordered, which stands in the dictionary of attributes."""

_GUARD, _GUARD_TYPE = "(`,` `predicate` `=` $predicate^)?", "(`,` type($predicate)^)?"

COPIES = (
    # Copies by `cp.async`, mbarriers.
    row("cp.async.shared.global", "Copies 4, 8 or 16 bytes of global to shared memory; bytes behind `cpSize` are 0.",
        "cp.async.{modifier}.shared.global [dst@shared], [src@global], {size}, cpSize?",
        "$dst `,` $src `,` $size `,` `cache` `=` $modifier (`,` $cpSize^)? attr-dict `:` type($dst) `,`"
        " type($src) (`,` type($cpSize)^)?", size=prop_def(Integer), modifier=prop_def(types.CACHE_MODIFIER)),
    row("cp.async.wait.group", "Waits until at most `n` groups of copies are under way.", "cp.async.wait_group {n}",
        "$n attr-dict"),
    row("cp.async.mbarrier.arrive", "An arrival at an mbarrier when the copies of this thread have ended.",
        "cp.async.mbarrier.arrive{noinc?/true=.noinc}{@addr}.b64 [addr]", typed("addr"),
        noinc=opt_prop_def(IntegerAttr[i1])),
    row("mbarrier.init", "Initialises an mbarrier for `count` arrivals a phase.",
        "mbarrier.init{@addr}.b64 [addr], count", f"{typed('addr', 'count', then=_GUARD)} {_GUARD_TYPE}"),
    row("mbarrier.inval", "Ends the life of an mbarrier.", "mbarrier.inval{@addr}.b64 [addr]", typed("addr")),
    row("mbarrier.arrive", "An arrival at an mbarrier.", "mbarrier.arrive{@addr}.b64 res=_, [addr], count?",
        "$addr (`,` $count^)? attr-dict `:` type($addr) (`->` type($res)^)?", res=opt_result_def(i64), **_ORDER),
    row("mbarrier.arrive.nocomplete", "`count` arrivals at an mbarrier that do not end its phase.",
        "mbarrier.arrive.noComplete{@addr}.b64 res, [addr], count", f"{typed('addr', 'count')} `->` type($res)",
        res=result_def(i64)),
    row("mbarrier.arrive.expect_tx", "An arrival at an mbarrier whose phase also waits for `txcount` bytes.",
        "mbarrier.arrive.expect_tx{@addr}.b64 res=_, [addr], txcount",
        f"{typed('addr', 'txcount', then=_GUARD)} {_GUARD_TYPE} (`->` type($res)^)?", res=opt_result_def(i64),
        **_ORDER),
    *(
        row(f"mbarrier.{name}", summary,
            f"mbarrier.{name.replace('.', '_')}{{stateOrPhase#i32=.parity/i64=}}{{@addr}}.b64 res, [addr],"
            " stateOrPhase",
            f"{typed('addr', 'stateOrPhase')} `->` type($res)", res=result_def(i1), **_ORDER)
        for name, summary in (
            ("test.wait", "Whether the phase of a token, or of a parity, has ended."),
            ("try_wait", "As `test.wait`; may take a while."),
        )
    ),
    row("mbarrier.try_wait.parity",
        "Waits until the phase of a parity has ended: a loop of tries, each at most `ticks` nanoseconds long.", "",
        typed("addr", "phase", "ticks")),

    # Bulk and tensor copies, hints, addresses.
    row("cp.async.bulk.wait_group",
        "Waits until at most `group` groups of bulk copies are under way, or have yet to be read.",
        "cp.async.bulk.wait_group{read?/=.read} {group}", "$group attr-dict", group=prop_def(Integer)),
    row("cp.async.bulk.tensor.shared.cluster.global",
        "Copies a box of a tensor to shared memory; its bytes count at an mbarrier.",
        "cp.async.bulk.tensor.{#coordinates}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        "{multicastMask?=.multicast::cluster}{group?/cta_1=.cta_group::1/cta_2=.cta_group::2}"
        " [dstMem@shared::cluster], [tmaDescriptor, {coordinates}], [mbar@shared], multicastMask?",
        "$dstMem `,` $tmaDescriptor `,` $mbar `,` `box` `[` $coordinates `]` (`im2col` `[` $im2colOffsets^"
        " `]`)? (`multicast_mask` `=` $multicastMask^)? (`l2_cache_hint` `=` $l2CacheHint^)? (`predicate` `=`"
        " $predicate^)? attr-dict `:` type($dstMem) `,` type($tmaDescriptor)",
        dstMem=operand_def(LLVMPointerType), tmaDescriptor=operand_def(LLVMPointerType),
        coordinates=var_operand_def(i32), mbar=operand_def(LLVMPointerType(IntAttr(3))),
        mode=opt_prop_def(types.TMA_LOAD_MODE), isCTAOnly=opt_prop_def(IntegerAttr[i1]),
        group=opt_prop_def(types.CTA_GROUP), irdl_options=SEGMENTS),
    row("cp.async.bulk.tensor.global.shared.cta", "Copies shared memory to a box of a tensor.",
        "cp.async.bulk.tensor.{#coordinates}d.global.shared::cta.tile.bulk_group [tmaDescriptor,"
        " {coordinates}], [srcMem@shared]",
        "$tmaDescriptor `,` $srcMem `,` `box` `[` $coordinates `]` (`l2_cache_hint` `=` $l2CacheHint^)? (`,`"
        " `predicate` `=` $predicate^)? attr-dict `:` type($tmaDescriptor) `,` type($srcMem)",
        mode=opt_prop_def(types.TMA_STORE_MODE), irdl_options=SEGMENTS),
    row("st.bulk", "Sets `size` bytes of shared memory to `initVal`, which is 0.",
        "st.bulk.weak{@addr/shared=shared::cta} [addr], size, {initVal}",
        "$addr `,` `size` `=` $size (`,` `init` `=` $initVal^)? attr-dict `:` type($addr)",
        initVal=prop_def(IntegerAttr[i64], default_value=IntegerAttr(0, i64))),
    row("prefetch", "Brings memory into a cache.",
        "prefetch{uniform?/=u}{in_param_space?/=.param}{@addr}{cacheLevel?/L1=.L1/L2=.L2}"
        "{evictPriority?/evict_last=::evict_last/evict_normal=::evict_normal}{tensormap?/=.tensormap} [addr]",
        "(`level` `=` $cacheLevel^ (`uniform` $uniform^)? `,`)? (`tensormap` $tensormap^ (`in_param_space`"
        " $in_param_space^)? `,`)? (`evict_priority` `=` $evictPriority^ `,`)?"
        f" {typed('addr', then=_GUARD)} {_GUARD_TYPE}"),
    row("mapa", "The address of shared memory in another CTA of the cluster.",
        "mapa{@a/shared=shared::cluster.u32/=u64} res@shared::cluster, a@shared, b",
        "$a `,` $b attr-dict `:` type($a) `->` type($res)", res=result_def(LLVMPointerType), traits=traits_def(Pure())),
)  # fmt: skip


ROWS = (
    # Arithmetic.
    *(
        row(f"dot.accumulate.{number}way", f"The sum of `c` and {number} products of numbers of 8 or 16 bits.",
            f"{ptx}.{{a_type/signed=s32/unsigned=u32}}.{{b_type/signed=s32/unsigned=u32}} res, a, b, c",
            "$a $a_type `,` $b $b_type `,` $c attr-dict `:` type($a) `,` type($b)",
            a=operand_def(VectorType), b=operand_def(VectorType(i8, [4])), a_type=prop_def(types.DOT_TYPE),
            b_type=prop_def(types.DOT_TYPE), res=result_def(i32), traits=traits_def(Pure()), **high)
        for number, ptx, high in ((4, "dp4a", {}), (2, "dp2a.{b_hi/true=hi/false=lo}", {"b_hi": prop_def(BoolAttr)}))
    ),
    row("rcp.approx.ftz.f", "1 / x, to one bit of the last place; what is subnormal is 0.",
        "rcp.approx.ftz.f32 res, arg", "$arg attr-dict `:` type($res)", arg=operand_def(f32), res=result_def(f32),
        traits=traits_def(Pure())),
    row("prmt", "Bytes of two words, each chosen by a nibble.", "prmt.b32{mode/default=} res, lo, hi, selector",
        "$mode $selector `,` $lo (`,` $hi^)? attr-dict `:` type($res)", lo=operand_def(i32), hi=opt_operand_def(i32),
        mode=prop_def(types.PERMUTE_MODE), res=result_def(i32), traits=traits_def(Pure())),

    # Matrices.
    row("ldmatrix", "Matrices of shared memory, each lane's row at its own address.",
        "ldmatrix.sync.aligned.{shape}.x{num}{layout/row=/col=.trans}.shared.{eltType} (res), [ptr@shared]",
        "$ptr attr-dict `:` functional-type($ptr, $res)", shape=prop_def(MatrixShapeAttr)),
    row("stmatrix", "Stores matrices to shared memory, each lane's row at its own address.",
        "stmatrix.sync.aligned.{shape}.x{#sources}{layout/row=/col=.trans}.shared.{eltType} [ptr@shared], (sources)",
        typed("ptr", "sources"), shape=prop_def(MatrixShapeAttr)),
    row("wmma.load", "A matrix of memory whose rows or columns are `stride` elements apart, for `wmma.mma`.",
        "wmma.load.{frag}.sync.aligned.{layout}.m{m}n{n}k{k}{@ptr}.{eltype} (res:eltype), [ptr], stride",
        "$ptr `,` $stride attr-dict `:` functional-type($ptr, $res)"),
    row("wmma.store", "Stores such a matrix.",
        "wmma.store.d.sync.aligned.{layout}.m{m}n{n}k{k}{@ptr}.{eltype} [ptr], (args:eltype), stride",
        "$ptr `,` $stride `,` $args attr-dict `:` type($ptr) `,` type($args)", ptr=operand_def(LLVMPointerType),
        args=var_operand_def()),
    row("wgmma.wait.group.sync.aligned",
        "Waits until at most `group` groups of products of the warpgroup are under way.",
        "wgmma.wait_group.sync.aligned {group}", "$group attr-dict", group=prop_def(IntegerAttr[i64])),
)  # fmt: skip


# Tensor memory.


def _defaulted(words: type[types.WordAttr], word: str) -> Any:
    return prop_def(words, default_value=words.of(word))


def _sized(words: type[types.WordAttr]) -> str:
    """The piece of an opcode that is a property `shape`."""
    return "{shape/" + "/".join(f"{word}={word.removeprefix('shape_')}" for word in words.WORDS) + "}"


def _collected(matrix: str) -> str:
    """The piece of an opcode that says what becomes of a matrix that is kept for the products behind."""
    kept = (f"{word}=.collector::{matrix}::{word}" for word in types.TENSOR_COLLECTOR.WORDS)
    return f"{{collectorOp?/{'/'.join(kept)}}}"


def _by_group(name: str, summary: str, ptx: str, text: str, **own: object) -> type[NvvmOp]:
    """An operation of one CTA or of a pair, as the word behind the first ones of its opcode says."""
    grouped = ptx.replace(".cta_group", ".cta_group::{group/cta_1=1/cta_2=2}", 1)
    own["group"] = _defaulted(types.CTA_GROUP, "cta_1")
    return row(f"tcgen05.{name}", summary, f"tcgen05.{grouped}", text, **own)


TENSOR_MEMORY = (
    _by_group("alloc", "Allocates columns of tensor memory; their address is stored to shared memory.",
              "alloc.cta_group.sync.aligned{@addr/shared=shared::cta}.b32 [addr], nCols", typed("addr", "nCols")),
    _by_group("dealloc", "Frees columns of tensor memory.", "dealloc.cta_group.sync.aligned.b32 taddr@tensor, nCols",
              typed("taddr", "nCols")),
    _by_group("relinquish_alloc_permit", "This CTA allocates no more tensor memory.",
              "relinquish_alloc_permit.cta_group.sync.aligned", "attr-dict"),
    _by_group("commit",
              "An arrival at an mbarrier, also in other CTAs, when what this thread began on tensor memory has ended.",
              "commit.cta_group.mbarrier::arrive::one{@addr/shared=shared::cluster}"
              "{multicastMask?=.multicast::cluster}.b64 [addr], multicastMask?",
              "$addr (`,` `multicast_mask` `=` $multicastMask^)? attr-dict `:` type(operands)"),
    _by_group("shift", "Moves the rows of a matrix down by one.", "shift.cta_group.down [taddr@tensor]",
              typed("taddr")),
    _by_group("cp", "Copies a matrix of shared memory, by its descriptor, to tensor memory.",
              f"cp.cta_group.{_sized(types.TENSOR_COPY_SHAPE)}"
              "{multicast/none=/warpx2_02_13=.warpx2::02_13/warpx2_01_23=.warpx2::01_23/warpx4=.warpx4}"
              "{srcFormat?/b6x16_p32=.b8x16.b6x16_p32/b4x16_p64=.b8x16.b4x16_p64} [taddr@tensor], smem_desc",
              "$taddr `,` $smem_desc attr-dict", shape=prop_def(types.TENSOR_COPY_SHAPE),
              multicast=_defaulted(types.TENSOR_COPY_MULTICAST, "none")),
    row("tcgen05.fence", "Orders operations on tensor memory before, or after, those that threads synchronise with.",
        "tcgen05.fence::{kind/before=before_thread_sync/after=after_thread_sync}", "$kind attr-dict",
        kind=prop_def(types.TENSOR_FENCE)),
    row("tcgen05.wait", "Waits for the loads, or the stores, of this thread.",
        "tcgen05.wait::{kind/load=ld/store=st}.sync.aligned", "$kind attr-dict", kind=prop_def(types.TENSOR_WAIT)),
    row("tcgen05.mma_smem_desc", "The descriptor of a matrix in shared memory.", "",
        "`(` operands `)` attr-dict `:` `(` type(operands) `)` `->` type($res)",
        startAddr=operand_def(i32), leadingDimOffset=operand_def(i32), strideDimOffset=operand_def(i32),
        baseOffset=operand_def(i8), leadingDimMode=operand_def(i1), swizzleMode=operand_def(i8), res=result_def(i64),
        traits=traits_def(Pure())),
    row("tcgen05.ld", "Loads what this warp may access of tensor memory.",
        f"tcgen05.ld.sync.aligned.{_sized(types.TENSOR_MOVE_SHAPE)}.x{{*res}}{{pack?/=.pack::16b}}.b32"
        " <res>, [tmemAddr@tensor], offset?",
        "$tmemAddr (`,` $offset^)? (`pack` $pack^)? attr-dict `:` type($res)",
        tmemAddr=operand_def(TensorPointer), offset=opt_operand_def(i64), shape=prop_def(types.TENSOR_MOVE_SHAPE)),
    row("tcgen05.st", "Stores to what this warp may access of tensor memory.",
        f"tcgen05.st.sync.aligned.{_sized(types.TENSOR_MOVE_SHAPE)}.x{{*val}}{{unpack?/=.unpack::16b}}.b32"
        " [tmemAddr@tensor], offset?, <val>",
        "$tmemAddr `,` $val (`,` $offset^)? (`unpack` $unpack^)? attr-dict `:` type($val)",
        tmemAddr=operand_def(TensorPointer), val=operand_def(), offset=opt_operand_def(i64),
        shape=prop_def(types.TENSOR_MOVE_SHAPE)),
)  # fmt: skip


def _tensor_products(sparse: str, metadata: str, *more: str) -> Iterator[type[NvvmOp]]:
    """The products whose sums lie in tensor memory: plain, with scales of blocks, and with B in a buffer."""
    pair, does = "cta_group::{ctaGroup/cta_1=1/cta_2=2}", "D = A B + D in tensor memory, begun"
    factors = f"[matrixD@tensor], [matrixA@tensor|i64], matrixB,{metadata} idesc,"
    operands = ("matrixD", "matrixA", "matrixB", "idesc", "enableInputD", *more)
    text, listed = (" `,` ".join(form.format(name) for name in operands) for form in ("${}", "type(${})"))
    types_of = "attr-dict `:` `(` type(operands) `)`"
    kind: dict[str, Any] = {
        "kind": prop_def(types.TENSOR_KIND), "collectorOp": _defaulted(types.TENSOR_COLLECTOR, "discard"),
    }  # fmt: skip
    yield row(f"tcgen05.mma{sparse}", f"{does}; D is scaled by a power of 2, rows of it may stay as they are.",
        f"tcgen05.mma{sparse}.{pair}.kind::{{kind}}{{aShift?/=.ashift}}{_collected('a')}"
        f" {factors} <disableOutputLane>?, enableInputD, scaleInputD?",
        f"{text} (`scale` `=` $scaleInputD^)? (`mask` `=` $disableOutputLane^)? attr-dict `:` `(` {listed}"
        " (`,` type($scaleInputD)^)? (`,` type($disableOutputLane)^)? `)`", **kind, irdl_options=SEGMENTS)  # fmt: skip
    yield row(f"tcgen05.mma{sparse}.block_scale", f"{does}; blocks of A and B have scales.",
        f"tcgen05.mma{sparse}.{pair}.kind::{{kind}}.block_scale{{blockScale/default=/block16=.block16/block32=.block32}}"
        f"{_collected('a')} {factors} [scaleA@tensor], [scaleB@tensor], enableInputD",
        f"{text} `,` $scaleA `,` $scaleB {types_of}", **kind | {"kind": prop_def(types.SCALE_KIND)},
        blockScale=_defaulted(types.TENSOR_SCALE, "default"))  # fmt: skip
    yield row(f"tcgen05.mma.ws{sparse}", f"{does}; B stays in a buffer, columns of it may count as zero.",
        f"tcgen05.mma.ws{sparse}.cta_group::1.kind::{{kind}}.collector::{{collectorBBuffer}}::{{collectorOp}}"
        f" {factors} enableInputD, zeroColMask?", f"{text} (`,` $zeroColMask^)? {types_of}", **kind,
        collectorBBuffer=_defaulted(types.TENSOR_COLLECTOR_B, "b0"))  # fmt: skip


TENSOR_PRODUCTS = (*_tensor_products("", ""), *_tensor_products(".sp", " [sparseMetadata@tensor],", "sparseMetadata"))

# Products of a warp, and of a warpgroup.


@irdl_custom_directive
class RegisterTypes(CustomDirective):
    """The type of a register of each matrix: `(i32, i32, f32)`."""

    a: TypeDirective
    b: TypeDirective
    c: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        place, matrices = parser.pos, (self.a, self.b, self.c)
        kinds = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        if len(kinds) != len(matrices):
            parser.raise_error("expected a type for each of A, B and C", place)
        for each, kind in zip(matrices, kinds, strict=True):
            registers = state.operands[cast("VariadicOperandVariable", each.inner).index]
            each.set(state, (kind,) * len(registers or ()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        with printer.in_parens():
            printer.print_list([each.get(op)[0] for each in (self.a, self.b, self.c)], printer.print_attribute)


_DENSE = "mma.sync.aligned.{shape}.{layoutA}.{layoutB}"
_SPARSE = "mma.sp{orderedMetadata?/=::ordered_metadata}.sync.aligned.{shape}.row.col"
_FLOATS, _INTEGERS = "?f16/f16/bf16/tf32", "/s8/u8/s4/u4"
_CLAMPED = "/satfinite=.satfinite/wrapped=}"
_SCALED = ".kind::{kind}.block_scale.scale_vec::{scaleVecSize/x1=1X/x2=2X/x4=4X}"
_SELECTED = ", sparseMetadata, sparsitySelector"
_SIGNS, _UNSIGNED = ", {scaleA/one=1/neg=-1}, {scaleB/one=1/neg=-1}", "{scaleA/one=/neg=}{scaleB/one=/neg=}"
_ROWS = "{layoutA/row=}{layoutB/col=}"
_FACTORS = ", (scaleAData), (byteIdA+threadIdA), (scaleBData), (byteIdB+threadIdB)"


def _line(opcode: str, types: str, behind: str = "", operands: str = "") -> str:
    """The line of a product whose A and B have some of these types."""
    return (
        f"{opcode}{{res#}}.{{multiplicandAPtxType{types}}}.{{multiplicandBPtxType{types}}}{{operandC#}}{behind} (res),"
        f" (operandA:multiplicandAPtxType), (operandB:multiplicandBPtxType), (operandC){operands}"
    )


def _mma(name: str, summary: str, *lines: str, more: str = "", **own: object) -> type[NvvmOp]:
    """A product of a warp: operands in brackets behind their names, the matrices register by register."""
    text = (
        f"`A` `[` $operandA `]` `B` `[` $operandB `]` `C` `[` $operandC `]` {more} attr-dict `:`"
        " custom<RegisterTypes>(type($operandA), type($operandB), type($operandC)) `->` type($res)"
    )
    return row(f"mma.{name}", summary, "\n".join(lines), text, irdl_options=SEGMENTS, traits=traits_def(Pure()),
               custom_directives=(RegisterTypes,), **own)  # fmt: skip


_SELECTION: dict[str, Any] = {
    "more": "`sparseMetadata` `[` $sparseMetadata `]` `selector` `[` $sparsitySelector `]`",
    "sparseMetadata": operand_def(i32),
}
_SCALES = " ".join(f"`scale{x}` `[` $scale{x}Data `,` $byteId{x} `,` $threadId{x} `]`" for x in "AB")

PRODUCTS = (
    _mma("sync", "D = A B + C of one warp by `mma`.",
         _line(f"{_DENSE.replace('shape', 'shape/m8n8k4')}{{operandA#f64=}}", "?f64/f64"), _line(_DENSE, _FLOATS),
         _line(f"{_DENSE}{{intOverflowBehavior?satfinite{_CLAMPED}", _INTEGERS),
         _line(_DENSE, "/b1", "{b1Op?xor_popc/xor_popc=.xor.popc/and_popc=.and.popc}"), f"<{_line(_DENSE, '')}"),
    _mma("sp.sync",
         "D = A B + C of one warp by `mma.sp`: A has half of its elements, and `sparseMetadata` says which.",
         _line(_SPARSE, _FLOATS, operands=_SELECTED),
         f"<{_line(f'{_SPARSE}{{kind?/f8f6f4=.kind::f8f6f4}}{{intOverflowBehavior?{_CLAMPED}', '', '', _SELECTED)}",
         **_SELECTION, kind=opt_prop_def(types.MMA_KIND)),
    _mma("block_scale", "D = A B + C of one warp by `mma`, with scales of blocks of A and B.",
         f"<{_line(f'mma.sync.aligned.{{shape}}.row.col{_SCALED}', '', '.{blockScaleFormat}', _FACTORS)}",
         more=_SCALES, kind=prop_def(types.SCALE_KIND)),
    _mma("sp.block_scale", "The same with a sparse A.",
         f"<{_line(f'{_SPARSE}{_SCALED}', '', '.{blockScaleFormat}', f'{_SELECTED}{_FACTORS}')}",
         **{**_SELECTION, "more": f"{_SELECTION['more']} {_SCALES}"}, kind=prop_def(types.SCALE_KIND)),
    row("wmma.mma", "D = A B + C of matrices for `wmma`; `args` are the registers of A, B and C.",
        "\n".join(
            f"{opcode}.sync.aligned.{{layoutA}}.{{layoutB}}.m{{m}}n{{n}}k{{k}}{rounding}.{{eltypeB}}{types}.{{eltypeB}}"
            f" (res:eltypeB), (args:{a}), (args:{a}), (args:eltypeB)"
            for opcode, rounding, types, a in (
                ("wmma.mma", "", "{eltypeA/f16=}", "f16"),
                ("wmma.mma", "", ".{eltypeA/bf16/tf32/s8/u8}.{eltypeA}", "eltypeA"),
                *(("wmma.mma", rounding, ".{eltypeA/f64}.{eltypeA}", "f64") for rounding in (".rn", "")),
                ("<wmma.mma{eltypeA/b1=.xor.popc/s4=/u4=}", "", ".{eltypeA}.{eltypeA}", "eltypeA"),
            )
        ), "$args attr-dict `:` functional-type($args, $res)", res=result_def(LLVMStructType)),
    row("wgmma.mma_async",
        "D = A B + D of a warpgroup, begun: A and B lie in shared memory, `inouts` are the sums in registers.",
        "\n".join(
            f"wgmma.mma_async.sync.aligned.{{shape}}.{{typeD}}.{{typeA/{a}}}.{{typeB}}{behind}"
            f" (results_<inouts:typeD), [descriptorA|i64], [descriptorB|i64], {{scaleD/one=1/zero=0}}{more}"
            for a, behind, more in (
                ("f16/bf16", "", f"{_SIGNS}, {{layoutA/row=0/col=1}}, {{layoutB/col=0/row=1}}"),
                ("tf32/e4m3/e5m2", _ROWS, _SIGNS),
                ("u8/s8", f"{{satfinite?wrapped{_CLAMPED}{_UNSIGNED}{_ROWS}", ""),
                ("b1", f".and.popc{_UNSIGNED}{_ROWS}", ""),
            )
        ),
        "$descriptorA `,` $descriptorB `,` $inouts `,` $shape `,` `D` `[` $typeD `,` $scaleD (`,` $satfinite^)? `]`"
        " `,` `A` `[` $typeA `,` $scaleA `,` $layoutA `]` `,` `B` `[` $typeB `,` $scaleB `,` $layoutB `]`"
        " attr-dict `:` type($inouts) `->` type($results_)",
        inouts=operand_def(LLVMStructType), results_=result_def(LLVMStructType),
        **{f"scale{x}": prop_def(types.WGMMA_SCALE_IN) for x in "AB"}),
)  # fmt: skip


OPERATIONS: list[type[NvvmOp]] = [
    *SPECIAL_OPERATIONS.values(), *PLAIN, *EXCHANGES, *COPIES, *ROWS, *TENSOR_MEMORY, *TENSOR_PRODUCTS, *PRODUCTS,
]  # fmt: skip

NVVM = Dialect("nvvm", [*OPERATIONS], [*ATTRIBUTES, REGISTER_ACTION])
