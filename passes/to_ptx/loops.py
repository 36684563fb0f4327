"""Counted loops over registers: labels, branches, and loop variables.

A loop variable is a register, or the registers of a fragment, that each turn sets anew. Where a fragment's
next value is made after the last use of the current one, it is made in the same registers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from .emitter import Emitter, common_divisor
from .fragments import Fragment
from .operands import IndexValue, VirtualRegister
from .scalars import Scalars

Variable = Fragment | VirtualRegister


class Loops:
    """Emits the frame of counted loops."""

    def __init__(self, emitter: Emitter, scalars: Scalars) -> None:
        self.emitter, self.scalars = emitter, scalars

    def enter(
        self, lower: IndexValue, step: IndexValue, initial: Sequence[Fragment | IndexValue]
    ) -> tuple[VirtualRegister, list[Variable]]:
        """The counter and the loop variables, set for the first turn; fragments keep their registers."""
        counter = self.emitter.register("b32", divisor=common_divisor((lower, step)))
        self.emitter.move(counter, lower)
        return counter, [value if isinstance(value, list) else self._variable(value) for value in initial]

    @contextmanager
    def turns(
        self, counter: VirtualRegister, lower: IndexValue, upper: IndexValue, step: IndexValue, name: str = "K"
    ) -> Generator[None]:
        """What is emitted inside is repeated while the counter is below `upper`."""
        stem = self.emitter.fresh_label("loop")
        entered = self.scalars.compare("ge", lower, upper)
        self.emitter.branch(f"{stem}_end", guard=entered)
        self.emitter.label(stem)
        self.emitter.comment(f"{name} loop, step {step}" if isinstance(step, int) else f"{name} loop")
        yield
        self.emitter.emit("add.s32", counter, counter, step)
        self.emitter.branch(stem, guard=self.emitter.compute("setp.lt.s32", counter, upper))
        self.emitter.label(f"{stem}_end")

    def after(self, variables: Sequence[Variable]) -> list[Variable]:
        """The variables as values of the enclosing level; single registers are copied, so that arithmetic on them
        stays behind the loop."""
        results: list[Variable] = []
        for variable in variables:
            if isinstance(variable, VirtualRegister):
                variable = self._variable(variable)
            results.append(variable)
        return results

    def next_turn(self, variables: Sequence[Variable], values: Sequence[Fragment | IndexValue]) -> None:
        """Moves the values of the next turn into the loop variables, all at once."""
        moves: list[tuple[VirtualRegister, IndexValue]] = []
        for variable, value in zip(variables, values, strict=True):
            if isinstance(variable, list) and isinstance(value, list):
                moves += [(v, h) for v, h in zip(variable, value, strict=True) if v is not h]
            elif isinstance(variable, VirtualRegister) and not isinstance(value, list) and value is not variable:
                moves.append((variable, value))
        written = {id(variable) for variable, _ in moves}
        for i, (variable, value) in enumerate(moves):
            if isinstance(value, VirtualRegister) and id(value) in written:
                saved = self.emitter.register(value.type)
                self.emitter.move(saved, value)
                moves[i] = (variable, saved)
        for variable, value in moves:
            self.emitter.move(variable, value)

    def _variable(self, initial: IndexValue) -> VirtualRegister:
        return self.emitter.compute("mov.b32", initial)


def only_use_is_here(value: SSAValue, op: Operation) -> bool:
    """Whether `op` may overwrite the registers of a value: it is the only use, and runs once for each definition."""
    owner = value.owner
    block = owner.parent if isinstance(owner, Operation) else owner
    return value.has_one_use() and block is op.parent


def carried_into(value: SSAValue, *, in_place: bool = False) -> SSAValue | None:
    """The loop variable that a value becomes in the next turn, if its registers can be written at the definition.

    That is so when the value is only yielded, and every use of the variable comes earlier in the body, or is the
    definition, if that works `in_place`: reads each register before it writes the same one.
    """
    use, op = value.get_user_of_unique_use(), value.owner
    if not isinstance(use, scf.YieldOp) or not isinstance(op, Operation) or op.parent is not use.parent:
        return None
    loop = use.parent_op()
    if not isinstance(loop, scf.ForOp):
        return None
    variable = loop.body.block.args[1 + list(use.operands).index(value)]
    users = [u.operation for u in variable.uses]
    if all((in_place and u is op) or (u.parent is op.parent and u.is_before_in_block(op)) for u in users):
        return variable
    return None
