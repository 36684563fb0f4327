"""Operations of `nvvm`: special registers, barriers and fences, lanes of a warp.

Operands, properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/LLVMIR/NVVMOps.td`). `PTX` of an
operation is its instruction, for both directions: see `nvvm_text`.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i1, i32
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
)

from ..isa.row import SPECIAL_REGISTERS
from . import nvvm_types as types
from .nvvm_types import ConstantRangeAttr

SEGMENTS = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
"""Of an operation with several operands that may be left out."""

Integer = IntegerAttr[i32]


class NvvmOp(IRDLOperation):
    """An operation whose properties are written in its dictionary of attributes."""

    irdl_options = (ParsePropInAttrDict(),)

    PTX: ClassVar[str] = ""


def operation(name: str, summary: str, ptx: str, text: str, **fields: object) -> type[NvvmOp]:
    """An operation by its name, what it does, its line of `nvvm_text`, its text in MLIR, and its fields."""
    members = {"name": f"nvvm.{name}", "assembly_format": text, "__module__": __name__, "__doc__": summary}
    made = irdl_op_definition(type(name, (NvvmOp,), members | fields))
    made.PTX = ptx
    return made


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


def _special(name: str) -> type[SpecialRegisterOp]:
    members = {"name": name, "__module__": __name__, "__doc__": f"The special register {SPECIAL[name]}."}
    return irdl_op_definition(type(name, (SpecialRegisterOp,), members))


SPECIAL_OPERATIONS = {register: _special(name) for name, register in SPECIAL.items()}
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
    operation(
        "barrier",
        "All threads of a CTA, or some warps, wait for each other; `reductionOp` combines a predicate of each.",
        "bar.sync barrierId=0, numberOfThreads?",
        "(`id` `=` $barrierId^)? (`number_of_threads` `=` $numberOfThreads^)? (qualified($reductionOp)^"
        " $reductionPredicate)? attr-dict (`->` type($res)^)?",
        barrierId=opt_operand_def(i32), numberOfThreads=opt_operand_def(i32),
        reductionPredicate=opt_operand_def(i32), reductionOp=opt_prop_def(types.REDUCTION), res=opt_result_def(i32),
        irdl_options=SEGMENTS,
    ),
    operation(
        "barrier.arrive",
        "An arrival at a barrier for which others wait.",
        "bar.arrive barrierId=0, numberOfThreads",
        "(`id` `=` $barrierId^)? `number_of_threads` `=` $numberOfThreads attr-dict",
        barrierId=opt_operand_def(i32), numberOfThreads=operand_def(i32),
    ),
    operation(
        "bar.warp.sync",
        "Lanes of a warp wait for each other.",
        "bar.warp.sync mask",
        "$mask attr-dict `:` type($mask)",
        mask=operand_def(),
    ),
    operation(
        "cluster.arrive",
        "An arrival at the barrier of the cluster.",
        "barrier.cluster.arrive{aligned?/=.aligned}",
        "attr-dict",
        aligned=opt_prop_def(UnitAttr),
    ),
    operation(
        "cluster.arrive.relaxed",
        "An arrival at the barrier of the cluster that orders no memory.",
        "barrier.cluster.arrive.relaxed{aligned?/=.aligned}",
        "attr-dict",
        aligned=opt_prop_def(UnitAttr),
    ),
    operation(
        "cluster.wait",
        "Waits until all threads of the cluster have arrived.",
        "barrier.cluster.wait{aligned?/=.aligned}",
        "attr-dict",
        aligned=opt_prop_def(UnitAttr),
    ),
    operation(
        "fence.proxy",
        "Orders accesses by several proxies.",
        "fence.proxy.{kind/async=async/async.shared=async.shared/async.global=async.global/alias=alias}"
        "{space?/cta=::cta/cluster=::cluster}",
        "attr-dict",
        kind=prop_def(types.PROXY), space=opt_prop_def(types.SHARED_SPACE),
    ),
    operation(
        "memory.barrier",
        "Orders memory for the threads of a scope.",
        "membar.{scope/cta=cta/gpu=gl/sys=sys}",
        "$scope attr-dict",
        scope=prop_def(types.SCOPE),
    ),
    operation(
        "setmaxregister",
        "Takes registers from a warpgroup, or gives it some.",
        "setmaxnreg.{action/increase=inc/decrease=dec}.sync.aligned.u32 {regCount}",
        "$action $regCount attr-dict",
        regCount=prop_def(Integer), action=prop_def(types.REGISTER_ACTION),
    ),
    operation(
        "griddepcontrol",
        "Waits for the kernel before, or lets the one behind begin.",
        "griddepcontrol.{kind}",
        "$kind attr-dict",
        kind=prop_def(types.GRID_ACTION),
    ),

    # Lanes of a warp.
    operation(
        "shfl.sync",
        "The value of another lane.",
        "shfl.sync.{kind}.b32 res, val, offset, mask_and_clamp, thread_mask",
        "$kind $thread_mask `,` $val `,` $offset `,` $mask_and_clamp attr-dict `:` type($val) `->` type($res)",
        thread_mask=operand_def(i32), val=operand_def(), offset=operand_def(i32), mask_and_clamp=operand_def(i32),
        kind=prop_def(types.SHUFFLE), return_value_and_is_valid=opt_prop_def(UnitAttr), res=result_def(),
    ),
    operation(
        "vote.sync",
        "What the lanes say of a predicate.",
        "vote.sync.{kind/ballot=ballot.b32/any=any.pred/all=all.pred/uni=uni.pred} res, pred, mask",
        "$kind $mask `,` $pred attr-dict `->` type($res)",
        mask=operand_def(i32), pred=operand_def(i1), kind=prop_def(types.VOTE), res=result_def(),
    ),
    operation(
        "redux.sync",
        "A reduction over the lanes.",
        "redux.sync.{kind/add=add.s32/min=min.s32/max=max.s32/umin=min.u32/umax=max.u32"
        "/and=and.b32/or=or.b32/xor=xor.b32}"
        " res, val, mask_and_clamp",
        "$kind $val `,` $mask_and_clamp attr-dict `:` type($val) `->` type($res)",
        val=operand_def(), mask_and_clamp=operand_def(i32), kind=prop_def(types.REDUX), res=result_def(),
    ),
    operation(
        "elect.sync",
        "Whether this lane is the one of its warp that is chosen.",
        "elect.sync _|pred, membermask=0xFFFFFFFF",
        "($membermask^)? attr-dict `->` type($pred)",
        membermask=opt_operand_def(i32), pred=result_def(i1),
    ),
)  # fmt: skip
