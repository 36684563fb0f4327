"""Arithmetic on fragments: `warp.constant`, `warp.elementwise`, `warp.convert`."""

from __future__ import annotations

from xdsl.ir import Operation

from ...dialect.isa.types import FP8, ElementType
from ...dialect.ptx.instructions import find
from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.elementwise import ConstantOp, ConvertOp, ElementwiseOp, Kind
from ..diagnostics import fail
from .fragments import elementwise_opcode, widening
from .kernel import KernelLowering
from .registry import lowers
from .widening import Widening


@lowers(ConstantOp)
def _constant(lowering: KernelLowering, op: ConstantOp) -> None:
    lowering.values[op.fragment] = lowering.fragments.constant(op.fragment.type, op.value.value.data)


@lowers(ElementwiseOp)
def _elementwise(lowering: KernelLowering, op: ElementwiseOp) -> None:
    inputs = [lowering.fragment(v) for v in op.inputs]
    kind, element = op.kind.data, op.fragment.type.element
    if not (kind is Kind.Add and element.name in ("f64", "s32")):
        _computes(op, element)
    _require(lowering, op, elementwise_opcode(kind, element), f"{kind} of {element.name}")
    into = lowering.result(op.fragment, in_place=True)
    lowering.fragments.elementwise(kind, element, inputs, into)
    lowering.values[op.fragment] = into


@lowers(ConvertOp)
def _convert(lowering: KernelLowering, op: ConvertOp) -> None:
    given, to = fragment_of(op.input), op.fragment.type
    if (stored := op.integers) is not None:
        opcode = "fma.rn.bf16x2" if to.element.name == "bf16" else "sub.rn.f16x2"
        _require(lowering, op, opcode, f"conversion to {to.element.name}")
        lowering.emitter.comment(f"{op.name}: {stored.name} to {to.element.name}")
        convert = Widening(lowering.emitter, stored, to.element).convert
        lowering.values[op.fragment] = convert(lowering.fragment(op.input), op.order)
        return
    if given.element.name in FP8 and to.element.name == "f16":
        _require(lowering, op, widening(given.element), f"conversion of {given.element.name}")
        lowering.emitter.comment(f"{op.name}: {given.element.name} to f16")
    else:
        _computes(op, to.element)
        _computes(op, given.element)
        if to.element.bits == 16:
            opcode = lowering.fragments.narrowing(to.element)
            _require(lowering, op, opcode, f"conversion to {to.element.name}")
    lowering.values[op.fragment] = lowering.fragments.convert(lowering.fragment(op.input), given, to)


def _computes(op: Operation, element: ElementType) -> None:
    if element.name not in ("f16", "bf16", "f32"):
        fail(op, f"{op.name} is lowered for f16, bf16 and f32, got {element.name}")


def _require(lowering: KernelLowering, op: Operation, opcode: str, what: str) -> None:
    """Refuses an operation whose instruction the target does not have."""
    lowest = min((row.sm for row, _ in find(opcode)), default=0)
    if lowest > lowering.target.sm:
        fail(op, f"{what} takes {opcode}, which needs sm_{lowest} or later; the target is {lowering.target}")
