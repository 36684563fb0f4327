"""Operations of `nvvm`: copies, mbarriers, tensor copies, hints, addresses of a cluster."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i1, i16, i32, i64
from xdsl.dialects.llvm import LLVMPointerType
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

from . import nvvm_types as types
from .nvvm_ops import SEGMENTS, Integer, operation

COPIES = (
    # Copies by `cp.async`, mbarriers.
    operation(
        "cp.async.shared.global",
        "Copies 4, 8 or 16 bytes of global to shared memory; bytes behind `cpSize` are 0.",
        "cp.async.{modifier}.shared.global [dst@shared], [src@global], {size}, cpSize?",
        "$dst `,` $src `,` $size `,` `cache` `=` $modifier (`,` $cpSize^)? attr-dict `:` type($dst) `,`"
        " type($src) (`,` type($cpSize)^)?",
        dst=operand_def(LLVMPointerType), src=operand_def(LLVMPointerType), cpSize=opt_operand_def(),
        size=prop_def(Integer), modifier=prop_def(types.CACHE_MODIFIER),
    ),
    operation(
        "cp.async.wait.group",
        "Waits until at most `n` groups of copies are under way.",
        "cp.async.wait_group {n}",
        "$n attr-dict",
        n=prop_def(Integer),
    ),
    operation(
        "cp.async.mbarrier.arrive",
        "An arrival at an mbarrier when the copies of this thread have ended.",
        "cp.async.mbarrier.arrive{noinc?/true=.noinc}{@addr}.b64 [addr]",
        "$addr attr-dict `:` type($addr)",
        addr=operand_def(LLVMPointerType), noinc=opt_prop_def(IntegerAttr[i1]),
    ),
    operation(
        "mbarrier.init",
        "Initialises an mbarrier for `count` arrivals a phase.",
        "mbarrier.init{@addr}.b64 [addr], count",
        "$addr `,` $count (`,` `predicate` `=` $predicate^)? attr-dict `:` type($addr) `,` type($count) (`,`"
        " type($predicate)^)?",
        addr=operand_def(LLVMPointerType), count=operand_def(i32), predicate=opt_operand_def(i1),
    ),
    operation(
        "mbarrier.inval",
        "Ends the life of an mbarrier.",
        "mbarrier.inval{@addr}.b64 [addr]",
        "$addr attr-dict `:` type($addr)",
        addr=operand_def(LLVMPointerType),
    ),
    operation(
        "mbarrier.arrive",
        "An arrival at an mbarrier.",
        "mbarrier.arrive{@addr}.b64 res=_, [addr], count?",
        "$addr (`,` $count^)? attr-dict `:` type($addr) (`->` type($res)^)?",
        addr=operand_def(LLVMPointerType), count=opt_operand_def(i32), scope=opt_prop_def(types.SCOPE),
        relaxed=opt_prop_def(IntegerAttr[i1]), res=opt_result_def(i64),
    ),
    operation(
        "mbarrier.arrive.nocomplete",
        "`count` arrivals at an mbarrier that do not end its phase.",
        "mbarrier.arrive.noComplete{@addr}.b64 res, [addr], count",
        "$addr `,` $count attr-dict `:` type($addr) `,` type($count) `->` type($res)",
        addr=operand_def(LLVMPointerType), count=operand_def(i32), res=result_def(i64),
    ),
    operation(
        "mbarrier.arrive.expect_tx",
        "An arrival at an mbarrier whose phase also waits for `txcount` bytes.",
        "mbarrier.arrive.expect_tx{@addr}.b64 res=_, [addr], txcount",
        "$addr `,` $txcount (`,` `predicate` `=` $predicate^)? attr-dict `:` type($addr) `,` type($txcount)"
        " (`,` type($predicate)^)? (`->` type($res)^)?",
        addr=operand_def(LLVMPointerType), txcount=operand_def(i32), predicate=opt_operand_def(i1),
        scope=opt_prop_def(types.SCOPE), relaxed=opt_prop_def(IntegerAttr[i1]), res=opt_result_def(i64),
    ),
    operation(
        "mbarrier.test.wait",
        "Whether the phase of a token, or of a parity, has ended.",
        "mbarrier.test_wait{stateOrPhase#i32=.parity}{@addr}.b64 res, [addr], stateOrPhase",
        "$addr `,` $stateOrPhase attr-dict `:` type($addr) `,` type($stateOrPhase) `->` type($res)",
        addr=operand_def(LLVMPointerType), stateOrPhase=operand_def(), scope=opt_prop_def(types.SCOPE),
        relaxed=opt_prop_def(IntegerAttr[i1]), res=result_def(i1),
    ),
    operation(
        "mbarrier.try_wait",
        "As `test.wait`; may take a while.",
        "mbarrier.try_wait{stateOrPhase#i32=.parity}{@addr}.b64 res, [addr], stateOrPhase",
        "$addr `,` $stateOrPhase attr-dict `:` type($addr) `,` type($stateOrPhase) `->` type($res)",
        addr=operand_def(LLVMPointerType), stateOrPhase=operand_def(), scope=opt_prop_def(types.SCOPE),
        relaxed=opt_prop_def(IntegerAttr[i1]), res=result_def(i1),
    ),
    operation(
        "mbarrier.try_wait.parity",
        "Waits until the phase of a parity has ended: a loop of tries, each at most `ticks` nanoseconds long.",
        "",
        "$addr `,` $phase `,` $ticks attr-dict `:` type($addr) `,` type($phase) `,` type($ticks)",
        addr=operand_def(LLVMPointerType), phase=operand_def(i32), ticks=operand_def(i32),
    ),

    # Bulk and tensor copies, hints, addresses.
    operation(
        "cp.async.bulk.wait_group",
        "Waits until at most `group` groups of bulk copies are under way, or have yet to be read.",
        "cp.async.bulk.wait_group{read?/=.read} {group}",
        "$group attr-dict",
        group=prop_def(Integer), read=opt_prop_def(UnitAttr),
    ),
    operation(
        "cp.async.bulk.tensor.shared.cluster.global",
        "Copies a box of a tensor to shared memory; its bytes count at an mbarrier.",
        "cp.async.bulk.tensor.{#coordinates}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        "{multicastMask?=.multicast::cluster}"
        " [dstMem@shared::cluster], [tmaDescriptor, {coordinates}], [mbar@shared], multicastMask?",
        "$dstMem `,` $tmaDescriptor `,` $mbar `,` `box` `[` $coordinates `]` (`im2col` `[` $im2colOffsets^"
        " `]`)? (`multicast_mask` `=` $multicastMask^)? (`l2_cache_hint` `=` $l2CacheHint^)? (`predicate` `=`"
        " $predicate^)? attr-dict `:` type($dstMem) `,` type($tmaDescriptor)",
        dstMem=operand_def(LLVMPointerType), tmaDescriptor=operand_def(LLVMPointerType),
        coordinates=var_operand_def(i32), mbar=operand_def(LLVMPointerType(types.IntAttr(3))),
        im2colOffsets=var_operand_def(i16), multicastMask=opt_operand_def(i16), l2CacheHint=opt_operand_def(i64),
        predicate=opt_operand_def(i1), mode=opt_prop_def(types.TMA_LOAD_MODE),
        isCTAOnly=opt_prop_def(IntegerAttr[i1]), group=opt_prop_def(types.CTA_GROUP), irdl_options=SEGMENTS,
    ),
    operation(
        "cp.async.bulk.tensor.global.shared.cta",
        "Copies shared memory to a box of a tensor.",
        "cp.async.bulk.tensor.{#coordinates}d.global.shared::cta.tile.bulk_group [tmaDescriptor,"
        " {coordinates}], [srcMem@shared]",
        "$tmaDescriptor `,` $srcMem `,` `box` `[` $coordinates `]` (`l2_cache_hint` `=` $l2CacheHint^)? (`,`"
        " `predicate` `=` $predicate^)? attr-dict `:` type($tmaDescriptor) `,` type($srcMem)",
        tmaDescriptor=operand_def(LLVMPointerType), srcMem=operand_def(LLVMPointerType),
        coordinates=var_operand_def(i32), l2CacheHint=opt_operand_def(i64), predicate=opt_operand_def(i1),
        mode=opt_prop_def(types.TMA_STORE_MODE), irdl_options=SEGMENTS,
    ),
    operation(
        "prefetch",
        "Brings memory into a cache.",
        "prefetch{@addr}.{cacheLevel} [addr]",
        "(`level` `=` $cacheLevel^ (`uniform` $uniform^)? `,`)? (`tensormap` $tensormap^ (`in_param_space`"
        " $in_param_space^)? `,`)? (`evict_priority` `=` $evictPriority^ `,`)? $addr (`,` `predicate` `=`"
        " $predicate^)? attr-dict `:` type($addr) (`,` type($predicate)^)?",
        addr=operand_def(LLVMPointerType), predicate=opt_operand_def(i1), cacheLevel=opt_prop_def(types.CACHE_LEVEL),
        evictPriority=opt_prop_def(types.EVICTION), tensormap=opt_prop_def(UnitAttr), uniform=opt_prop_def(UnitAttr),
        in_param_space=opt_prop_def(UnitAttr),
    ),
    operation(
        "mapa",
        "The address of shared memory in another CTA of the cluster.",
        "mapa.shared::cluster.u32 res@shared::cluster, a@shared, b",
        "$a `,` $b attr-dict `:` type($a) `->` type($res)",
        a=operand_def(LLVMPointerType), b=operand_def(i32), res=result_def(LLVMPointerType),
        traits=traits_def(Pure()),
    ),
)  # fmt: skip
