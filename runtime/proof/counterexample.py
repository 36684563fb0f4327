"""Runs on drawn numbers, to find some for which a kernel fails, or is wrong by more than rounding explains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from xdsl.dialects import func

from ..arguments.arrays import borrow, element_of
from ..base.errors import HostError
from ..interp.machine.events import Look, Selection
from ..interp.machine.kernel import Observer
from ..interp.machine.memory import FaultError, Finding, InterpreterError, MachineLimitError
from ..numerics.floats import Array
from ..reference import functions as reference
from ..reference.product import Accumulator

KernelCall: TypeAlias = Callable[[Sequence[Array], "Observer | None", Sequence[str]], object]
"""Runs launches on arrays, watched by an observer and by the checks of these names."""
KINDS = {"f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2",
         "f8E8M0FNU": "ue8m0"}  # fmt: skip
"""The element types whose elements are followed as numbers, and what instructions call them."""
CHECKS = ("races", "uninitialised")
"""What a run is checked for besides what ends it."""
ENDED = (FaultError.check, MachineLimitError.check)
"""Of findings that are the last of a run."""
LARGE = (64.0, 1024.0)
"""Factors of further runs: exponentials leave the range of f32, unless their maximum is taken off."""
TINY = 2.0**-126
"""The least normal number of f32: what is smaller may be flushed to zero, or have lost bits."""
FAR = 2.0**-4
"""How far equal results may be apart where no bound is known, relative to the value and to the largest one."""


def fault_of(error: InterpreterError) -> Finding | None:
    """What the program did wrong; None if the run ended only because the interpreter cannot follow or run it."""
    wrong = [f for f in error.findings if f.severity == "error" and f.check not in (MachineLimitError.check, "load")]
    return wrong[0] if wrong else None


@dataclass(frozen=True)
class Counterexample:
    """Looks for numbers that refute a kernel: `kernel` runs it, `against` is the function or another kernel. With the
    accumulator of the kernel, results have the bound of float64; else they are refuted if they are far off."""

    kernel: KernelCall
    against: func.FuncOp | KernelCall
    accumulator: Accumulator | None = None

    def search(
        self, names: Sequence[str], arrays: Sequence[Array], outputs: Sequence[int], filled: Collection[int],
        *, zeros: bool = True,
    ) -> str:  # fmt: skip
        """Searches for an error of the kernel on the given numbers, on larger ones, or on zeros; "" if there is none.
        Zeros are for endless loops, in which sums would keep the state from recurring."""
        large = () if self.accumulator is None else LARGE
        for factor in (1.0, *large, *((0.0,) if zeros else ())):
            scaled = [_scaled(array, factor) for array in arrays]
            for i in filled:
                scaled[i][...] = reference.poison(scaled[i].dtype)
            if wrong := self._wrong(names, scaled, outputs, None if factor else Rounds()):
                of = {0.0: "zeros", 1.0: "the numbers drawn"}.get(factor, f"{factor:g} times the numbers drawn")
                return f"{wrong} on {of}"
        return ""

    def _wrong(
        self, names: Sequence[str], inputs: Sequence[Array], outputs: Sequence[int], observer: Observer | None
    ) -> str:
        """The error of one run; "" if it is right."""
        left = [copied(array) for array in inputs]
        try:
            self.kernel(left, observer, CHECKS)
        except InterpreterError as error:
            fault = fault_of(error)
            return "" if fault is None else f"the run fails: {fault}"
        try:
            expected = self._expected(inputs)
        except (HostError, InterpreterError):
            return ""
        for i in outputs:
            compared = reference.compare(expected[i], left[i])
            if compared.outside:
                place = f"{names[i]}[{', '.join(map(str, compared.worst))}]"
                return (
                    f"{place} is {compared.got:.9g}, and {compared.expected:.9g} +- {compared.allowed:.3g} in float64,"
                )
        return ""

    def _expected(self, inputs: Sequence[Array]) -> list[reference.Reference]:
        arrays = [copied(array) for array in inputs]
        if isinstance(self.against, func.FuncOp):
            references = reference.evaluate(self.against, arrays, self.accumulator, tf32=True)
        else:
            self.against(arrays, None, ())
            references = [reference.Reference.exact(a.astype(np.float64), a.dtype) for a in arrays]
        if self.accumulator is None:
            return [_within_far(of) for of in references]
        return [replace(of, error=of.error + TINY) for of in references]


def _within_far(of: reference.Reference) -> reference.Reference:
    """A result that is only known to be near a value. Where the value is not a number, nothing is known."""
    size = np.abs(np.where(np.isfinite(of.value), of.value, 0))
    error = np.where(np.isfinite(of.value), FAR * (size + size.max(initial=0)), np.inf)
    return reference.Reference(of.value, error, of.dtype)


def _scaled(array: Array, factor: float) -> Array:
    """Numbers times a factor, if it is 0 or their type is wide; as they are otherwise."""
    made, name = copied(array), element_of(array.dtype)
    if array.ndim and name in KINDS and (not factor or name in ("f32", "f64")):
        made[...] = array * array.dtype.type(factor)
    return made


class Rounds(Observer):
    """Finds endless loops: all threads left come to a branch where they were before, and nothing has changed."""

    def begun(self) -> None:
        self.seen: set[tuple[int, bytes]] = set()

    def issue(self, pc: int) -> Look | None:
        source = self.kernel.code[pc].source
        return partial(self._look, pc) if source.root == "bra" else None

    def _look(self, pc: int, sel: Selection) -> None:
        state, memory = self.state, self.state.memory
        flying = state.copies.pending, state.mbarriers.deferred, state.mbarriers.bulk, state.warpgroups.pending
        if sel.count < np.count_nonzero(state.flow.live) or any(flying):
            return
        buffers = (memory.shared.buffer, memory.local.buffer, *memory.memory.buffers())
        contents = (*state.banks.values(), *(buffer.data for buffer in buffers if buffer.writable))
        digest = blake2b(b"".join(array.tobytes() for array in contents)).digest()
        if (pc, digest) in self.seen:
            raise FaultError("a loop without end: registers and memory are as they were when threads came here before")
        self.seen.add((pc, digest))


def copied(array: Array) -> Array:
    """An array of its own with the same strides."""
    if not array.ndim:
        return array
    made = borrow(array)
    if made.contiguous:
        return array.copy()
    flat = made.array().copy()
    return np.ndarray(array.shape, array.dtype, flat.data, 0, array.strides)
