"""`prove`: a kernel against a function, or against another kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ..arguments.launch_values import values
from ..base.errors import ArgumentError
from ..base.launch import Launch, Plan, dim3, text_or_file
from ..interp.machine.kernel import Observer
from ..kernel.binding import launch_values
from ..kernel.kernel import Kernel
from ..kernel.lowering import parse, without_tensors
from ..kernel.module import LaunchPlace, Options, PtxModule, may_write
from ..numerics.floats import Array
from ..plan import host
from ..reference.functions import accumulator_of
from .counterexample import Counterexample, KernelCall
from .question import Proof, Question, of_function, of_launches

if TYPE_CHECKING:
    from ..arguments.signature import Signature


class RunLaunch(Protocol):
    """Runs a launch on arrays."""

    def __call__(
        self, arrays: Sequence[Array], observer: Observer | None, checks: Sequence[str], *, report: bool = False
    ) -> LaunchPlace: ...


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a kernel of a PTX module. An argument that is a string names an array of the question; one that is a
    function is called with the arrays by name, such as `lambda arrays: TensorMap(arrays["A"], (64, 64))`; every other
    is passed as it is."""

    module: PtxModule
    kernel: str
    grid: int | Sequence[int]
    block: int | Sequence[int]
    args: Sequence[object]
    shared: int | None = None
    cluster: int | Sequence[int] | None = None

    def run(self, names: Sequence[str], max_steps: int | None = None) -> RunLaunch:
        """Runs it on arrays of these names.

        Raises:
            ArgumentError: for an argument that names no array.
        """
        for arg in self.args:
            if isinstance(arg, str) and arg not in names:
                raise ArgumentError(f"{self.kernel}: no array is called {arg}; there are {', '.join(names)}")

        def run(
            arrays: Sequence[Array], observer: Observer | None, checks: Sequence[str], *, report: bool = False
        ) -> LaunchPlace:
            by_name = dict(zip(names, arrays, strict=True))
            passed = [
                by_name[arg] if isinstance(arg, str) else arg(by_name) if callable(arg) else arg for arg in self.args
            ]
            everything = tuple(range(len(passed)))
            shape = None if self.cluster is None else dim3(self.cluster, "cluster")
            shared = self.module.shared.get(self.kernel, 0) if self.shared is None else self.shared
            sizes = (dim3(self.grid, "grid"), dim3(self.block, "block"))
            launch = Launch(self.kernel, *sizes, shared, everything, cluster=shape)
            options = Options(observer=observer, checks=checks, max_steps=max_steps, report=report)
            plan, function = Plan((launch,)), self.module.kernel(self.kernel)
            return self.module.run(plan, values(function, passed), device="interp", options=options)

        return run

    @property
    def written(self) -> frozenset[str]:
        """The names of the arrays that the kernel may write."""
        function = self.module.kernel(self.kernel)
        written = may_write(function)
        pairs = zip(function.parameters, self.args, strict=False)
        return frozenset(arg for p, arg in pairs if isinstance(arg, str) and p.name in written)


def prove(
    kernel: Kernel | KernelLaunch,
    against: str | PathLike[str] | ModuleOp | KernelLaunch,
    arrays: Mapping[str, Array] | None = None,
    *,
    function: str | None = None,
    names: Sequence[str] = (),
    seed: int = 0,
    explain: bool = True,
    max_steps: int | None = None,
) -> Proof:
    """Prove that a kernel computes a function of `linalg`, or what another kernel does, for all inputs of these sizes.

    - `kernel`: what `compile` gives, or a `KernelLaunch` of PTX from any compiler.
    - `against`: MLIR text, the path of a file, a module, or another launch.
    - `arrays`: the arguments by name, for their sizes, strides and integers; numbers in floating point do not matter.
      Those of a function that are left out are drawn, if their sizes are known.
    - `function`: the function to prove, if the module has several.
    - `names`: what the launch calls the arguments of the function, in order; by default as the function does.
    - `explain`: whether to look for the product that the first output that differs lacks, which takes some more runs.
    - `max_steps`: end a launch after so many steps, in case it does not end.

    Returns:
        The verdict, which is true if it is a proof.

    Raises:
        HostError: for a function with an operation that has no meaning here.
        ArgumentError: for arrays that do not fit.
    """
    if isinstance(against, KernelLaunch):
        return _between(kernel, against, arrays or {}, (seed, explain), max_steps)
    if isinstance(against, ModuleOp):
        module, file = against.clone(), "<mlir>"
    else:
        text, file = text_or_file(against, ".mlir", "<mlir>")
        module = parse(text, file)
    without_tensors(module)
    meant = host.choose(module, function or (kernel.function.name if isinstance(kernel, Kernel) else None))
    signature = host.signature(meant)
    names = list(names) or [p.name for p in signature.parameters]
    if len(names) != len(signature.parameters):
        raise ArgumentError(f"@{signature.name} has {len(signature.parameters)} arguments, got {', '.join(names)}")
    renamed = tuple(replace(p, name=name) for p, name in zip(signature.parameters, names, strict=True))
    arguments = _arguments(replace(signature, parameters=renamed), arrays or {}, seed)
    run, target = run_of(kernel, names, arguments, max_steps)
    sides = of_launches(run, target), of_function(meant)
    accumulator = accumulator_of(kernel.schedule, target) if isinstance(kernel, Kernel) else None
    refuted = Counterexample(run, meant, accumulator)
    return Question(
        names, arguments, sorted(signature.written), signature.filled, *sides, refuted, seed, explain
    ).decide()


def run_of(
    kernel: Kernel | KernelLaunch, names: Sequence[str], arrays: Sequence[Array], max_steps: int | None
) -> tuple[KernelCall, str]:
    """What runs a kernel on the arguments of a function, and its target."""
    if isinstance(kernel, KernelLaunch):
        return kernel.run(names, max_steps), kernel.module.target
    called = kernel.called_with(*arrays)

    def run(mine: Sequence[Array], observer: Observer | None, checks: Sequence[str]) -> object:
        options = Options(observer=observer, checks=checks, max_steps=max_steps)
        passed = launch_values(called.function, mine)
        return called.binary.run(called.plan, passed, device="interp", options=options)

    return run, kernel.target


def _arguments(signature: Signature, arrays: Mapping[str, Array], seed: int) -> list[Array]:
    """The arguments of a function: those given, others drawn."""
    from ..reference.inputs import arrays as drawn

    for name in arrays:
        if name not in [p.name for p in signature.parameters]:
            raise ArgumentError(f"@{signature.name} has no argument {name}")
    texts = [f"{name}=random:{'x'.join(map(str, a.shape))}" for name, a in arrays.items() if a.ndim]
    arguments = [
        a if a.ndim or a.dtype.kind in "iu" else np.array(abs(a), a.dtype) for a in drawn(signature, texts, seed)
    ]
    return [arrays.get(p.name, array) for p, array in zip(signature.parameters, arguments, strict=True)]


def _between(
    left: Kernel | KernelLaunch, right: KernelLaunch, arrays: Mapping[str, Array], how: tuple[int, bool],
    max_steps: int | None,
) -> Proof:  # fmt: skip
    """Two launches on the same arrays."""
    if isinstance(left, Kernel):
        raise ArgumentError("two kernels are compared by their launches; give a KernelLaunch of the first one, too")
    names, values = list(arrays), list(arrays.values())
    written = left.written | right.written
    outputs = [i for i, name in enumerate(names) if name in written]
    runs = [side.run(names, max_steps) for side in (left, right)]
    one, other = (of_launches(run, side.module.target) for run, side in zip(runs, (left, right), strict=True))
    return Question(names, values, outputs, frozenset(), one, other, Counterexample(runs[0], runs[1]), *how).decide()
