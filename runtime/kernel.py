"""Compiling MLIR, and calling what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.utils.exceptions import DiagnosticException, ParseError

from ..dialect.isa.targets import UnknownTargetError
from ..dialect.isa.targets import target as target_row
from ..dialect.ptx.ops import FuncOp as PtxFuncOp
from ..dialect.ptx.ops import ModuleOp as PtxModuleOp
from ..dialect.ptx.text.printer import print_ptx
from ..dialect.schedule import Schedule, ScheduleError, parse_options
from ..dialect.warp.attributes import target_of
from ..passes.context import make_context, parse_mlir
from ..passes.diagnostics import describe, verify
from ..passes.pipeline import DEFAULT_TARGET, lower, standard_pipeline
from . import host
from .arguments.aliasing import check_overlap
from .arguments.arrays import Argument, Parameter, borrow, check, packed_as
from .errors import ArgumentError, CompileError, HostError
from .grid import Progress
from .host import Plan, Signature
from .launch import Launch, LaunchValue, Scalar
from .module import Checks, LaunchPlace, Options, PtxModule
from .numerics.array import Array

if TYPE_CHECKING:
    from .cuda.launch import Prepared
    from .problem import Problem

ScheduleOption: TypeAlias = str | int | Sequence[int]
OnPhase: TypeAlias = Callable[[str, float], None]
"""Called with the name of each phase of the compilation and the seconds it took."""


@dataclass(frozen=True)
class Kernel:
    """A compiled host function.

    `module` is the lowered IR, `function` the signature, `plan` what a call launches, in order, and the scratch
    memory that the launches share; `schedule` holds each launch's schedule (None where the kernel carries none).
    """

    module: ModuleOp
    function: Signature
    plan: Plan
    schedule: tuple[Schedule | None, ...]
    ptx: str
    target: str
    name: str = field(default="<mlir>")

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of a call, in order."""
        return self.plan.launches

    @property
    def scratch(self) -> tuple[int, ...]:
        """Bytes of each buffer of scratch memory that a call takes while it runs."""
        return tuple(buffer.bytes for buffer in self.plan.scratch)

    @cached_property
    def binary(self) -> PtxModule:
        """The PTX, parsed for launching."""
        return PtxModule(self.ptx, f"<PTX of {self.name}>")

    def __call__(
        self,
        *args: object,
        device: str = "auto",
        progress: Progress | None = None,
        arch: str | None = None,
        checks: Checks = (),
        report: bool = False,
        max_steps: int | None = None,
    ) -> LaunchPlace:
        """Run on arrays; the written ones are written in place.

        Arguments are numpy arrays (ml_dtypes.bfloat16 for bf16) or objects with `__cuda_array_interface__` or
        `__dlpack__`. `device` is "interp", "cuda", or "auto": a GPU if there is one that runs the target. With every
        array in GPU memory the launches are enqueued on the stream of the arrays' producer and not waited for.
        `arch` is the target whose matrix arithmetic the interpreter uses instead of the kernel's own.
        `checks` are what the interpreter looks for beside faults: names such as "races", or "all".
        With `report` it runs on the interpreter, which counts instructions, bank conflicts and sectors. After
        `max_steps` steps, each an instruction for all threads that run it together, the interpreter ends a launch with
        an error.

        Returns:
            Where it ran, with a report of each launch if they were asked for.

        Raises:
            ArgumentError: naming the argument, if one does not fit its parameter.
            DeviceUnavailableError: if a GPU is asked for and there is none that runs the target.
            WarploomError: if the kernel fails.
        """
        values = self._values(args)
        plan = self.plan_for(values)
        place = self.binary.run(
            plan.launches,
            values,
            scratch=plan.scratch,
            device=device,
            written=self.function.written,
            progress=progress,
            options=Options(arch, checks, report, max_steps),
        )
        if not report:
            return place
        found = tuple(r.against(p) for r, p in zip(place.reports, self._problems(), strict=True))
        return replace(place, reports=found)

    def _problems(self) -> list[Problem | None]:
        """The product that each launch computes: each of those that have a schedule one, the others none."""
        products = iter(self.function.products)
        if sum(s is not None for s in self.schedule) != len(self.function.products):
            return [None] * len(self.schedule)
        return [None if s is None else next(products) for s in self.schedule]

    def prepare(self, *args: object) -> Prepared:
        """The call on these arrays in GPU memory, checked and packed once, to be enqueued many times.

        Raises:
            ArgumentError: if one does not fit its parameter or lies in host memory.
            DeviceUnavailableError: if there is no GPU that runs the target.
        """
        values = self._values(args)
        plan = self.plan_for(values)
        return self.binary.prepare(plan.launches, values, plan.scratch)

    def plan_for(self, values: Sequence[LaunchValue]) -> Plan:
        """What a call with these arguments does."""
        return host.plan(host.choose(self.module, self.function.name), values) if self.plan.dynamic else self.plan

    def _values(self, args: Sequence[object]) -> list[LaunchValue]:
        parameters = self.function.parameters
        if len(args) != len(parameters):
            raise ArgumentError(f"{self.function}: expected {len(parameters)} arguments, got {len(args)}")
        written = self.function.written
        values = [_value(p, arg, i, i in written) for i, (p, arg) in enumerate(zip(parameters, args, strict=True))]
        arrays = {i: v for i, v in enumerate(values) if isinstance(v, Argument)}
        check_overlap(arrays, parameters, written)
        for tie in self.function.ties:
            _check_tie(tie, arrays, parameters)
        for position, element in self.function.sparse:
            _check_metadata(position, element, arrays[position], parameters)
        return values


def _check_tie(
    tie: frozenset[tuple[int, int]], arrays: Mapping[int, Argument], parameters: Sequence[Parameter]
) -> None:
    """Refuses arguments whose extents along one loop of the function differ."""
    (first, along), *others = sorted(tie)
    extent = arrays[first].shape[along]
    for i, dimension in others:
        if arrays[i].shape[dimension] != extent:
            raise ArgumentError(
                f"argument {i} (%{parameters[i].name}): expected {extent} along dimension {dimension}, as argument "
                f"{first} (%{parameters[first].name}) has along dimension {along}, got {arrays[i]}"
            )


def _check_metadata(position: int, element: str, given: Argument, parameters: Sequence[Parameter]) -> None:
    """Refuses metadata of a sparse A that means nothing, where it lies in host memory."""
    if given.on_device:
        return
    from .sparse import check_metadata

    whole = given.array() if given.contiguous else np.ascontiguousarray(cast("Array", given.owner)).view(np.uint8)
    try:
        check_metadata(whole.view(np.uint32).reshape(given.shape), element)
    except ArgumentError as error:
        raise ArgumentError(f"argument {position} (%{parameters[position].name}): {error}") from error


def _value(parameter: Parameter, arg: object, position: int, written: bool) -> LaunchValue:
    if parameter.shape is None:
        return _scalar(parameter, arg, position)
    try:
        argument = packed_as(borrow(arg, parameter.element), parameter)
    except ArgumentError as error:
        raise ArgumentError(f"argument {position} (%{parameter.name}): expected {parameter}: {error}") from error
    check(argument, parameter, position, written=written)
    return argument


def _scalar(parameter: Parameter, arg: object, position: int) -> Scalar:
    try:
        return cast(Scalar, np.asarray(arg).astype(parameter.dtype)[()])
    except (TypeError, ValueError) as error:
        where = f"argument {position} (%{parameter.name})"
        raise ArgumentError(f"{where}: expected a number for {parameter.element}, got {arg!r}") from error


def compile(
    mlir: str | ModuleOp,
    target: str | None = None,
    name: str | None = None,
    *,
    file: str = "<mlir>",
    on_phase: OnPhase | None = None,
    tf32: bool = False,
    tuned: str | Path | None = None,
    **schedule: ScheduleOption,
) -> Kernel:
    """Compile one function of an MLIR module down to PTX.

    `mlir` is text, or a module, which is left as it is. `target` is by default the module's `warp.target`, or sm_90a
    where it has none. `name` chooses the function where there are several;
    `file` stands in error messages. `tf32` lets products of f32 drop 13 of the 23 bits of each operand's fraction;
    without it they are refused. `schedule` overrides parts of the schedule: `cta=(128, 256, 64), stages=3`.
    `tuned` is a file of measured schedules, which `warploom tune` writes. A function on tensors is called with its
    results as arguments behind its own.

    Raises:
        CompileError: with file, line and column where they are known, for text that does not parse or verify,
            an unknown target, a schedule that does not fit, or a product the target has no instruction for.
        HostError: if there is no such function, or it does something other than launch kernels.
    """
    module = mlir.clone() if isinstance(mlir, ModuleOp) else parse(mlir, file, on_phase)
    target = target or target_name(module)
    with _errors():
        target_row(target)
        parse_options(schedule)
        without_tensors(module)
        function = host.signature(host.choose(module, name))
        pipeline = standard_pipeline(target, schedule, tf32=tf32, tuned=None if tuned is None else str(tuned))
        lower(module, make_context(), pipeline, on_phase)
        return _kernel_of(module, function, target, file, on_phase)


def target_name(module: ModuleOp, otherwise: str = DEFAULT_TARGET) -> str:
    """The target that a module says it is for, or another where it says none."""
    own = target_of(module)
    return otherwise if own is None else own.name


def without_tensors(module: ModuleOp) -> None:
    """Makes functions on tensors functions on memory, in place: a result becomes an argument behind the others. Calls
    are replaced by what they call.

    Raises:
        CompileError: for an operation on tensors that is not bufferised, or a call that cannot be replaced.
    """
    from ..passes.linalg.generalize import generalize, is_generalized

    if any(map(is_generalized, module.walk())):
        with _errors():
            verify(module)
            generalize(module)
    inputs = (t for f in module.ops if isinstance(f, func.FuncOp) for t in f.function_type.inputs)
    if any(isinstance(t, TensorType) for t in inputs):
        from ..passes.linalg.bufferize import bufferize

        with _errors():
            verify(module)
            bufferize(module)


def parse(mlir: str, file: str = "<mlir>", on_phase: OnPhase | None = None) -> ModuleOp:
    """The module that MLIR text describes, not yet verified.

    Raises:
        CompileError: with file, line and column, if the text is no MLIR.
    """
    start = time.perf_counter()
    with _errors():
        module = parse_mlir(make_context(), mlir, file)
    _report(on_phase, "parse", start)
    return module


def _report(on_phase: OnPhase | None, name: str, start: float) -> None:
    if on_phase is not None:
        on_phase(name, time.perf_counter() - start)


def _kernel_of(module: ModuleOp, function: Signature, target: str, file: str, on_phase: OnPhase | None) -> Kernel:
    plan = host.plan(host.choose(module, function.name))
    device_modules = {op.sym_name.data: op for op in module.ops if isinstance(op, PtxModuleOp)}
    used = {launch.module for launch in plan.launches}
    if len(used) != 1 or not used <= device_modules.keys():
        found = ", ".join(f"@{n}" for n in device_modules) or "none"
        raise HostError(
            f"@{function.name}: expected launches from one ptx.module of the module ({found}), got {sorted(used)}"
        )
    device = device_modules[used.pop()]
    start = time.perf_counter()
    text = print_ptx(device)
    _report(on_phase, "print", start)
    kernels = {op.sym_name.data: op for op in device.body.block.ops if isinstance(op, PtxFuncOp)}
    schedules = tuple(host.schedule_of(_kernel(kernels, x)) for x in plan.launches)
    return Kernel(module, function, plan, schedules, text, target, file)


def _kernel(kernels: dict[str, PtxFuncOp], launch: Launch) -> PtxFuncOp:
    if launch.kernel not in kernels:
        raise HostError(
            f"gpu.launch_func: @{launch.module} has no kernel @{launch.kernel}; it has {', '.join(kernels)}"
        )
    return kernels[launch.kernel]


@contextmanager
def _errors() -> Generator[None]:
    """Turn what the compiler raises for bad input into CompileError."""
    try:
        yield
    except (ParseError, DiagnosticException, ScheduleError, UnknownTargetError) as error:
        raise CompileError(describe(error).removeprefix("error: ")) from error
