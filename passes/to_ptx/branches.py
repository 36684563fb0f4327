"""Bodies of several blocks, and what threads ask of the driver: `cf.br`, `cf.cond_br`, `cf.assert`, `gpu.printf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects import arith, cf, gpu
from xdsl.dialects.builtin import IndexType, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.mlir.arithmetic import INDEX
from ...dialect.mlir.subgroup import PrintfOp
from ...dialect.ptx.ops import FuncOp
from ...dialect.ptx.text.syntax import Symbol, Variable
from ...dialect.ptx.types import VariableAttr
from ...dialect.warp.attributes import type_name
from ..diagnostics import fail
from .control_flow import set_to, value_of, variable_of
from .elements import held_as
from .emitter import At, IndexValue, VirtualRegister
from .fragments import Fragment
from .kernel import KernelLowering, handler_of, lowers
from .thread_code import number_of


@lowers(gpu.FuncOp)
def _blocks(lowering: KernelLowering, kernel: gpu.FuncOp) -> None:
    """Emits a body of several blocks. Each has a label and registers for its arguments, which branches set. Each block
    is a loop level of its own inside a common one, so that hoisted code precedes the first block."""
    emitter, blocks = lowering.emitter, list(kernel.body.blocks)
    lowering.labels = {block: emitter.fresh_label("block") for block in blocks}
    with emitter.loop(), emitter.loop():
        lowering.values |= {a: variable_of(lowering, a) for block in blocks[1:] for a in block.args}
    with emitter.loop():
        for number, block in enumerate(blocks):
            if number:
                emitter.label(lowering.labels[block])
            with emitter.loop():
                lowering.block(block)


def _go(lowering: KernelLowering, op: Operation, target: Block, values: Sequence[SSAValue]) -> None:
    """Sets the arguments of a block, all at once, and goes there."""
    if target not in lowering.labels:
        fail(op, f"{op.name} is lowered between the blocks of a kernel")
    for argument, source in zip(target.args, [_own(lowering, value, target) for value in values], strict=True):
        register = lowering.values[argument]
        if isinstance(source, list) and isinstance(register, list):
            lowering.fragments.copy(source, register)
        elif not isinstance(source, list) and isinstance(register, VirtualRegister):
            set_to(lowering, register, source)
    lowering.emitter.branch(lowering.labels[target])


def _own(lowering: KernelLowering, value: SSAValue, target: Block) -> Fragment | IndexValue:
    """A value, copied to other registers if the same branch sets its own."""
    own = value_of(lowering, value)
    if value.owner is not target:
        return own
    registers = own if isinstance(own, list) else [own]
    copies = [lowering.emitter.compute(f"mov.{r.type}", r) for r in registers if isinstance(r, VirtualRegister)]
    return copies if isinstance(own, list) else copies[0] if copies else own


@lowers(cf.BranchOp)
def _branch(lowering: KernelLowering, op: cf.BranchOp) -> None:
    _go(lowering, op, op.successor, op.arguments)


@lowers(cf.ConditionalBranchOp)
def _branch_if(lowering: KernelLowering, op: cf.ConditionalBranchOp) -> None:
    taken, emitter = lowering.predicate(op.cond), lowering.emitter
    if not isinstance(taken, VirtualRegister):
        target = (op.then_block, op.then_arguments) if taken else (op.else_block, op.else_arguments)
        _go(lowering, op, *target)
        return
    otherwise = emitter.fresh_label("otherwise")
    emitter.branch(otherwise, unless=taken)
    _go(lowering, op, op.then_block, op.then_arguments)
    emitter.label(otherwise)
    _go(lowering, op, op.else_block, op.else_arguments)


@lowers(cf.AssertOp)
def _assert(lowering: KernelLowering, op: cf.AssertOp) -> None:
    """Stops the kernel where a condition does not hold."""
    holds, emitter = lowering.predicate(op.arg), lowering.emitter
    if isinstance(holds, VirtualRegister):
        end = emitter.fresh_label("holds")
        with emitter.loop():
            emitter.branch(end, unless=emitter.compute("not.pred", holds))
            emitter.emit("trap")
            emitter.label(end)
    elif not holds:
        emitter.emit("trap")


# Text that threads print. Source: PTX Writer's Guide to Interoperability, 4, System Calls.

VPRINTF = FuncOp(
    "vprintf", None, entry=False, linking="extern", returns=[VariableAttr.of("b32", "printed")],
    parameters=[VariableAttr.of("b64", "format"), VariableAttr.of("b64", "arguments")],
)  # fmt: skip
"""What a text asks of the driver: its format and its arguments are addresses."""


@lowers(PrintfOp)
def _print(lowering: KernelLowering, op: Any) -> None:
    """Stores the arguments in memory of the thread, each at a multiple of its size, and calls `vprintf`."""
    emitter, function = lowering.emitter, lowering.kernel.sym_name.data
    number, text = len(lowering.own_variables), op.format.data.encode() + b"\0"
    name, arguments = f"{function}_format_{number}", f"{function}_printed_{number}"
    values = [_argument(lowering, op, value) for value in op.args]
    places, end = list[int](), 0
    for size, _ in values:
        places.append(-(-end // size) * size)
        end = places[-1] + size
    init = f"{{{', '.join(map(str, text))}}}"
    lowering.variables[name] = Variable("global", "b8", name, count=len(text), align=1, init=init)
    lowering.own_variables.append(Variable("local", "b8", arguments, count=max(end, 8), align=8))
    lowering.called[VPRINTF.sym_name.data] = VPRINTF.clone()
    own = emitter.compute("mov.b64", Symbol(arguments))
    for (_, register), place in zip(values, places, strict=True):
        emitter.store("local", [register], At(own, place))
    addresses = (
        emitter.compute("cvta.global.u64", emitter.compute("mov.b64", Symbol(name))),
        emitter.compute("cvta.local.u64", own),
    )
    emitter.emit("call.uni", (emitter.register("b32"),), Symbol(VPRINTF.sym_name.data), addresses)


def _argument(lowering: KernelLowering, op: Operation, value: SSAValue) -> tuple[int, VirtualRegister]:
    """The size of an argument and its register. Floats are printed as f64, small integers as i32."""
    emitter, kind = lowering.emitter, value.type
    word = _word(lowering, kind, number_of(lowering, value).held)
    match type_name(kind):
        case "f32" | "f16" | "bf16":
            return 8, emitter.compute("cvt.f64.f32", word)
        case "f64" | "i64":
            return 8, word
        case "i1":
            return 4, emitter.compute("selp.b32", 1, 0, word)
        case "index":
            return 8, emitter.compute("cvt.s64.s32", word, type="b64")
        case "i8" | "i16" | "i32":
            return 4, word
        case _:
            fail(op, f"{op.name} prints numbers, got {kind}")


def _word(lowering: KernelLowering, kind: Attribute, value: object) -> VirtualRegister:
    if isinstance(value, VirtualRegister):
        return value
    type = "b32" if kind == IndexType() else "pred" if kind == i1 else held_as(kind)
    return lowering.emitter.compute(f"mov.{type}", value)  # pyright: ignore[reportArgumentType]


# Arithmetic on indices.

_INDEX: Mapping[str, type[Operation]] = {
    "add": arith.AddiOp, "sub": arith.SubiOp, "mul": arith.MuliOp, "divu": arith.DivUIOp, "remu": arith.RemUIOp,
    "minu": arith.MinUIOp, "mins": arith.MinSIOp, "xor": arith.XOrIOp, "casts": arith.IndexCastOp,
}  # fmt: skip
"""Operations of `index` that are those of `arith`; unsigned conversions are, too, as indices stay below 2^31."""


def _of_index(kind: type[Operation], same: type[Operation]) -> None:
    def handle(lowering: KernelLowering, op: Operation) -> None:
        equal = same.create(operands=op.operands, result_types=[result.type for result in op.results])
        if (lower := handler_of(equal)) is not None:
            lower(lowering, equal)
        lowering.values[op.results[0]] = lowering.values.pop(equal.results[0])
        equal.drop_all_references()

    lowers(kind)(handle)


for _kind in INDEX.operations:
    if (_same := _INDEX.get(_kind.name.removeprefix("index."))) is not None:
        _of_index(_kind, _same)
