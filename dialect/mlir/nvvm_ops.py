"""Operations of `nvvm`: special registers, barriers and fences, lanes of a warp. Operands, properties and text are
those of MLIR 22 (`mlir/include/mlir/Dialect/LLVMIR/NVVMOps.td`). `PTX` of an operation is its instruction, for both
directions: see `nvvm_types`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import BoolAttr, IntAttr, IntegerAttr, UnitAttr, VectorType, i1, i16, i32, i64
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute
from xdsl.irdl import (
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from ..isa.row import SPECIAL_REGISTERS
from . import nvvm_types as types
from .llvm import ConstantRangeAttr
from .upstream import SEGMENTS, ElectOp, NvvmOp, RegistersOp, operation, typed
from .words import defined

Integer = IntegerAttr[i32]


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


SPECIAL = {
    f"nvvm.read.ptx.sreg.{name[1:].replace('_', '.')}": name for name in SPECIAL_REGISTERS if _is_operation(name)
} | {"nvvm.read.ptx.sreg.warpsize": "WARP_SZ"}
"""The special register of each operation that reads one."""


class SpecialRegisterOp(NvvmOp):
    """The value of a special register."""

    assembly_format = "(`range` $range^)? attr-dict `:` type($res)"

    range = opt_prop_def(ConstantRangeAttr)
    res = result_def()


SPECIAL_OPERATIONS = {
    register: defined(SpecialRegisterOp, name, f"The special register {register}.")
    for name, register in SPECIAL.items()
}
"""The operation of each special register."""


# What a field is by its name: an operand by its type, a property by its words.


TensorPointer = LLVMPointerType(IntAttr(6))

_OPERANDS: Mapping[Attribute | type[Attribute], str] = {
    i32: "barrierId numberOfThreads reductionPredicate thread_mask offset mask_and_clamp count txcount phase ticks "
    "coordinates b c nCols idesc stride sources selector lo hi sparsitySelector scaleAData scaleBData",
    i1: "pred predicate enableInputD",
    i16: "multicastMask im2colOffsets byteIdA threadIdA byteIdB threadIdB",
    i64: "l2CacheHint size smem_desc matrixB scaleInputD zeroColMask descriptorA descriptorB",
    LLVMPointerType: "addr ptr dst src dstMem srcMem tmaDescriptor a",
    TensorPointer: "taddr tmemAddr matrixD scaleA scaleB sparseMetadata",
    VectorType: "disableOutputLane",
    Attribute: "mask val stateOrPhase cpSize matrixA args operandA operandB operandC",
}

_SEVERAL = ("coordinates", "im2colOffsets", "sources", "args", "operandA", "operandB", "operandC")

_PROPERTIES: Mapping[Any, str] = {
    UnitAttr: "aligned read uniform in_param_space tensormap pack unpack aShift orderedMetadata",
    Integer: "num m n k",
    types.MMA_LAYOUT: "layout layoutA layoutB",
    types.MMA_TYPE: "eltype eltypeA eltypeB multiplicandAPtxType multiplicandBPtxType",
    types.MMA_OVERFLOW: "intOverflowBehavior satfinite",
    types.MMA_BIT_OP: "b1Op",
    types.ShapeAttr: "shape",
    types.SCALE_VECTOR: "scaleVecSize",
    types.SCALE_FORMAT: "blockScaleFormat",
    types.WGMMA_TYPE: "typeA typeB typeD",
    types.WGMMA_SCALE_OUT: "scaleD",
    types.MMA_FRAGMENT: "frag",
    types.MATRIX_TYPE: "eltType",
    types.CTA_GROUP: "ctaGroup",
    types.CACHE_LEVEL: "cacheLevel",
    types.EVICTION: "evictPriority",
    types.REDUCTION: "reductionOp",
    types.TENSOR_COPY_FORMAT: "srcFormat",
}

_DEFINED: tuple[tuple[Mapping[Any, str], Any], ...] = (
    (_OPERANDS, (operand_def, opt_operand_def)),
    (_PROPERTIES, (prop_def, opt_prop_def)),
    ({Attribute: "res"}, (result_def, opt_result_def)),
)
KINDS: Mapping[str, tuple[Any, Any]] = {
    name: ((var_operand_def,) * 2 if name in _SEVERAL else definitions, kind)
    for table, definitions in _DEFINED
    for kind, names in table.items()
    for name in names.split()
}
"""How a field is defined, how one that may be left out, and its type."""

_OPTIONAL = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)\?")
"""A part of a text that may be left out."""


def row(name: str, summary: str, ptx: str, text: str, **own: object) -> type[NvvmOp]:
    """An operation whose fields are what its text and its opcode name, as `KINDS` says, unless they are its `own`.
    Operands are in the order of the text, behind those of `own`. May be left out what stands in an optional part of the
    text, or in front of `?` in the opcode."""
    optional = {*re.findall(r"\$(\w+)", " ".join(_OPTIONAL.findall(text))), *re.findall(r"\{(\w+)\?", ptx)}
    names = dict.fromkeys((*re.findall(r"\$(\w+)", text), *re.findall(r"\{(\w+)(?:\?\w*)?[/}]", ptx)))
    kinds = {each: KINDS[each] for each in names if each not in own}
    fields = {each: definitions[each in optional](kind) for each, (definitions, kind) in kinds.items()}
    return operation(name, summary, ptx, text, **own, **fields)


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
