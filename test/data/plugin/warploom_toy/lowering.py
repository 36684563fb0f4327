"""How `toy.twice` becomes an instruction."""

from warploom.passes.to_ptx.elements import HeldElement
from warploom.passes.to_ptx.kernel import lowers
from warploom.passes.to_ptx.thread_code import give, number_of

from .passes import TwiceOp


@lowers(TwiceOp)
def twice(lowering, op: TwiceOp) -> None:
    give(lowering, op.y, HeldElement(lowering.emitter.compute("twice.f32", number_of(lowering, op.x).word)))
