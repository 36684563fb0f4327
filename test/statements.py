"""Runs the straight-line integer statements of an emitter for many threads at once, with its own arithmetic.

`keep` marks a register; `run` gives the values of the marked ones, in order, one per thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from warploom.dialect.ptx.instruction import InstOp
from warploom.passes.to_ptx.emitter import Emitter, VirtualRegister

Lanes = NDArray[np.int64]
WORD = 0xFFFFFFFF


def signed(value: Lanes) -> Lanes:
    """Words as signed numbers."""
    return ((value & WORD) ^ 0x80000000) - 0x80000000


def _word(compute: Callable[[Lanes, Lanes], Lanes]) -> Callable[..., Lanes]:
    return lambda a, b: compute(a & WORD, b & WORD) & WORD


def _compare(compute: Callable[[Lanes, Lanes], Lanes]) -> Callable[..., Lanes]:
    return lambda a, b: compute(signed(a), signed(b)).astype(np.int64)


OPERATIONS: dict[str, Callable[..., Lanes]] = {
    "mov.u32": lambda a: a & WORD,
    "mov.b32": lambda a: a & WORD,
    "mov.b64": lambda a: a,
    "add.s32": _word(operator.add),
    "sub.s32": _word(operator.sub),
    "mul.lo.s32": _word(operator.mul),
    "shl.b32": _word(operator.lshift),
    "shr.u32": _word(operator.rshift),
    "and.b32": _word(operator.and_),
    "xor.b32": _word(operator.xor),
    "div.u32": _word(operator.floordiv),
    "rem.u32": _word(operator.mod),
    "min.u32": _word(np.minimum),
    "and.pred": operator.and_,
    "selp.b32": lambda a, b, p: np.where(p != 0, a, b) & WORD,
    "mul.wide.s32": lambda a, b: signed(a) * signed(b),
    "add.s64": operator.add,
    **{f"setp.{name}.s32": _compare(getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}


def keep(emitter: Emitter, *registers: VirtualRegister) -> None:
    """Marks registers whose values `run` should give: by moves to themselves."""
    for register in registers:
        emitter.emit(f"mov.{register.type}", register, register)


def name(op: InstOp) -> str:
    """The opcode; "keep" of what `keep` emits."""
    return "keep" if len(op.operands) == 2 and op.operands[0] is op.operands[1] else op.spelling()[0]


def instructions(emitter: Emitter) -> list[InstOp]:
    """What the emitter has emitted."""
    return [op for op in emitter.finish() if isinstance(op, InstOp)]


def run(emitter: Emitter, threads: int, names: Mapping[str, Lanes | int]) -> list[Lanes]:
    """Runs the statements; `names` gives special registers and symbols their values."""
    kept: list[Lanes] = []
    lanes: dict[SSAValue, Lanes] = {}
    for op in instructions(emitter):
        opcode, form, guard = op.spelling()
        assert not guard
        registers = iter(op.operands)
        if name(op) == "keep":
            kept.append(lanes[next(registers)])
            continue
        result, *words = form.split(", ")
        assert result == "?"
        into = next(registers)
        sources = [lanes[next(registers)] if word == "?" else _operand(word, names) for word in words]
        lanes[into] = np.broadcast_to(OPERATIONS[opcode](*sources), (threads,))
    return kept


def _operand(word: str, names: Mapping[str, Lanes | int]) -> Lanes:
    return np.asarray(names[word] if word in names else int(word), dtype=np.int64)
