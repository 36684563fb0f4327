"""Several operations of `linalg` in one block that one comes to stand for: which of them go, and whether they may."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from xdsl.dialects import memref
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.warp.pointwise import with_functions
from .element_regions import decline
from .fuse_epilogue import touched
from .views import root

OpT = TypeVar("OpT", bound=Operation)


@dataclass(frozen=True)
class Replacement:
    """The operations that make `result`, `last` at the end; what takes their place stands there, and reads memory whose
    roots are `read`."""

    used: frozenset[Operation]
    last: Operation
    result: SSAValue
    read: Set[SSAValue]

    @cached_property
    def dead(self) -> frozenset[Operation]:
        """The operations that nobody needs any more."""
        dead = self.used
        while kept := {op for op in dead if not self._serves(op, dead)}:
            dead = dead - kept
        return dead

    def _serves(self, op: Operation, others: Set[Operation]) -> bool:
        """Whether what an operation writes is the result, or read by these others alone."""
        if op is self.last:
            return True
        if not isinstance(op, LinalgStructuredOperation):
            return False
        memory = op.outputs[0]
        if memory is self.result or not isinstance(memory.owner, memref.AllocOp | memref.AllocaOp):
            return memory is self.result
        users = (use.operation for use in memory.uses)
        return all(user in others or isinstance(user, memref.DeallocOp) for user in users)

    def objection(self) -> str:
        """What would change that somebody can see; "" if nothing."""
        op: Operation | None = min(self.used, key=_number)
        while op is not self.last and op is not None:
            if op not in self.dead:
                found = touched(op)
                if found is None:
                    return f"{op.name} stands between its operations, and may touch any memory"
                if found[1] & self.read:
                    return f"{op.name} between its operations writes what it reads"
                if root(self.result) in found[0] | found[1]:
                    return f"{op.name} between its operations uses its result"
            op = op.next_op
        return ""

    def replace(self, make: Callable[[], OpT], check: Callable[[Operation, OpT], None]) -> None:
        """Puts an operation in their place. `check` refuses one whose result shares elements with what it reads.

        Raises:
            NotFusedError: if it may not stand there, or is none.
        """
        if objection := self.objection():
            decline(objection)
        op = make()
        op.location = self.last.location
        try:
            for made in with_functions(op):
                made.verify()
        except VerifyException as error:
            decline(str(error))
        check(self.last, op)
        Rewriter.insert_op(with_functions(op), InsertPoint.before(self.last))
        self._erase()

    def _erase(self) -> None:
        """Erases the operations, and allocations that nothing uses then."""
        memories = {value for op in self.dead for value in op.operands if isinstance(value.owner, memref.AllocOp)}
        for op in sorted(self.dead, key=_number, reverse=True):
            Rewriter.erase_op(op)
        for memory in memories:
            users = [use.operation for use in memory.uses]
            if all(isinstance(user, memref.DeallocOp) for user in users) and isinstance(memory.owner, Operation):
                for user in users:
                    Rewriter.erase_op(user)
                Rewriter.erase_op(memory.owner)


def _number(op: Operation) -> int:
    """Where in its block an operation stands."""
    return op.parent.get_operation_index(op) if op.parent is not None else 0
