"""`warploom run`: compile or load, run, compare with float64, write traces."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from xdsl.dialects import func

from ...dialect.isa.row import NAMED
from ...dialect.ptx.check.registers import contractions
from ...passes.pipeline import DEFAULT_TARGET
from ...passes.start import versions
from ..arguments.arrays import element_of
from ..arguments.launch_values import values as check_values
from ..base.errors import ArgumentError, AssemblerError
from ..base.launch import Launch, Parameter, Problem, is_ptx, known_target
from ..cuda import ptxas
from ..interp.machine.memory import InterpreterError, WarpOrder
from ..interp.watch.checks import ALL_ORDERS
from ..interp.watch.timeline import LaunchTrace, chrome_trace, trace_svg
from ..kernel.kernel import Kernel
from ..kernel.lowering import chosen, kernels, parse
from ..kernel.module import LaunchPlace, PtxModule, choose_place, kernel_name
from ..numerics.floats import Array
from ..reference import functions as reference
from ..reference import inputs
from ..reference.inputs import check_writable
from ..reference.product import bound_text
from .options import compiled, requested_target, sizes_of
from .report import Report, progress_bar

# The file that `warploom run --trace` writes.

ENDINGS = (".json", ".svg")


def check_trace(path: str) -> None:
    """Refuses a path before anything is run for it. Raises WarploomError for another ending, or a folder that is not
    there."""
    if Path(path).suffix not in ENDINGS:
        raise ArgumentError(f"--trace {path}: expected a file that ends in .json (Chrome trace) or .svg (picture)")
    if Path(path).is_dir():
        raise ArgumentError(f"--trace {path}: this is a folder")
    check_writable(path)


def save_trace(path: str, traces: Sequence[LaunchTrace]) -> str:
    """Writes the Chrome trace of all launches, or a picture of the first CTA of the longest one. Returns a description
    of what was written. Raises ArgumentError if a picture is requested and nothing was launched."""
    if not traces and Path(path).suffix == ".svg":
        raise ArgumentError(f"--trace {path}: nothing was launched, so there is nothing to draw")
    if Path(path).suffix == ".svg":
        longest = max(traces, key=lambda trace: trace.cycles)
        written, what = trace_svg(longest), f"a picture of {longest.kernel}"
    else:
        written = json.dumps(chrome_trace(traces, versions("warploom")), separators=(",", ":"))
        what = f"{sum(len(trace.events) for trace in traces):,} events"
    Path(path).write_text(written, encoding="utf-8")
    traced, total = sum(len(trace.places) for trace in traces), sum(trace.total for trace in traces)
    return f"{what} to {path}, in modelled cycles, of {traced} of {total} CTAs"


# `warploom run FILE.mlir`: compile, run, compare with float64.


def run_mlir(args: argparse.Namespace, text: str) -> int:
    """Runs a kernel of MLIR text as the command line says. Returns the exit code. Raises WarploomError for any error of
    the input."""
    report = Report(stderr=args.json)
    place = choose_place(report_device(args), args.target or "")
    module = parse(text, args.file, report.phase)
    target = requested_target(args, module, place.gpu.device.target if place.gpu else DEFAULT_TARGET)
    function = chosen(module, args.function, tf32=args.tf32)
    kernel = compiled(args, module, target, args.file, report.phase)
    if place.gpu is not None:
        place = choose_place(report_device(args), target)
    arrays = inputs.arrays(kernel.function, args.inputs, args.seed)
    kernel = kernel.called_with(*arrays)
    report.compiled(kernel)
    report_resources(report, kernel.ptx, target, place, [launch.kernel for launch in kernel.launches])
    parameters = kernel.function.parameters
    outputs = outputs_of(args.outputs, parameters, arrays, max(kernel.function.written, default=None))
    before = [array.copy() for array in arrays] if args.check else []
    if args.check:
        function = chosen(parse(text, args.file), args.function, tf32=args.tf32, kept=reference.WITH_BOUNDS)
    done = _execute(report, kernel, arrays, place, args)
    failed = args.check and not _check(report, kernel, function, before, arrays, tf32=args.tf32)
    report.times()
    report.line("ran on", str(place))
    report_launches(report, done, args, outputs, [f"%{parameter.name}" for parameter in parameters], arrays)
    return 1 if failed else 0


def report_launches(
    report: Report, done: LaunchPlace, args: argparse.Namespace, outputs: Mapping[tuple[int, ...], str],
    names: Sequence[str], values: Sequence[object],
) -> None:  # fmt: skip
    """Saves outputs, writes the trace, and prints the reports that were requested of launches on the interpreter."""
    for place, path in outputs.items():
        inputs.save(path, _array_at(values, place))
        report.line("wrote", f"{'.'.join([names[place[0]], *map(str, place[1:])])} to {path}")
    if args.trace:
        report.line("wrote", save_trace(args.trace, done.traces))
    report.launched(done.reports, args.json)


def report_resources(report: Report, ptx: str, target: str, place: LaunchPlace, kernels: Sequence[str]) -> None:
    """Reports the resources of each kernel, from ptxas or else from the GPU's driver."""
    if ptxas.find() is None and place.gpu is not None:
        with report.timed("load"):
            loaded = place.gpu.load(ptx)
        for name in dict.fromkeys(kernels):
            report.loaded(loaded.kernel(name))
        return
    if ptxas.find() is None:
        report.line("uses", "unknown: no ptxas (pip install 'warploom[ptxas]')", "dim")
        return
    try:
        with report.timed("ptxas"):
            assembled = ptxas.assemble(ptx, target)
    except AssemblerError as error:
        report.line("uses", f"unknown: {error}", "yellow")
        return
    for name in dict.fromkeys(kernels):
        report.resources(name, assembled[name], f"ptxas {ptxas.version()}")


def outputs_of(
    texts: Sequence[str], parameters: Sequence[Parameter], values: Sequence[object], last: int | None = None
) -> dict[tuple[int, ...], str]:
    """Which argument is written to which file: `2=c.npy`, or `0.1=c.npy` for what a field of a struct points to. A path
    alone means the argument `last`. Raises ArgumentError for a name that no parameter has, for what is no array, or an
    argument that is given twice."""
    outputs: dict[tuple[int, ...], str] = {}
    for text in texts:
        named, path = inputs.binding(text)
        if named is None and last is None:
            raise ArgumentError(f"--out: expected NAME=FILE, such as 2=c.npy, got '{text}'")
        inputs.check_writable(path)
        name, *fields = (str(last) if named is None else named).split(".")
        if not all(field.isdecimal() for field in fields):
            raise ArgumentError(f"--out: expected the number of a field, such as 0.1=c.npy, got '{text}'")
        place = (inputs.named("--out", name, parameters), *map(int, fields))
        _array_at(values, place)
        if place in outputs:
            raise ArgumentError(f"--out: argument {'.'.join(map(str, place))} is given twice")
        outputs[place] = path
    return outputs


def report_device(args: argparse.Namespace) -> str:
    """The device asked for; a report, a trace and checks want the interpreter. Raises ArgumentError if one of them and
    a GPU are asked for."""
    wishes = (
        (args.report, "--report counts what the interpreter executes"),
        (args.checks, f"--check={','.join(args.checks)} is made by the interpreter"),
        (args.trace, "--trace shows what the interpreter executes"),
        (args.max_steps is not None, "--max-steps counts what the interpreter executes"),
    )
    if (wish := next((text for wanted, text in wishes if wanted), None)) is None:
        return args.device
    if args.device == "cuda":
        raise ArgumentError(f"{wish}; use --device interp")
    return "interp"


def _execute(
    report: Report, kernel: Kernel, arrays: Sequence[Array], place: LaunchPlace, args: argparse.Namespace
) -> LaunchPlace:
    if place.gpu is not None:
        with report.timed("load"):
            place.gpu.load(kernel.ptx)
        with report.timed("run"):
            kernel(*arrays, device="cuda")
        return place
    with report.timed("decode"):
        _ = kernel.binary.program
    with report.timed("run"), progress_bar(f"@{kernel.function.name}") as progress:
        done = kernel(
            *arrays,
            device="interp",
            progress=progress,
            checks=args.checks,
            report=args.report,
            max_steps=args.max_steps,
            trace=bool(args.trace),
        )
    report.checks(args.checks, done.notes)
    return done


def _check(
    report: Report, kernel: Kernel, function: func.FuncOp, before: Sequence[Array], after: Sequence[Array], *,
    tf32: bool,
) -> bool:  # fmt: skip
    """Compare every written argument with float64 and report it; whether all are within the bound."""
    accumulator = reference.accumulator_of(kernel.schedule, kernel.target)
    with report.timed("check"):
        exact = reference.evaluate(function, before, accumulator, tf32=tf32)
    ok, parameters = True, kernel.function.parameters
    for position in sorted(kernel.function.written):
        compared = reference.compare(exact[position], after[position])
        bound = bound_text(exact[position].history, accumulator.unit)
        report.checked(parameters[position].name, compared, bound)
        ok = ok and compared.ok
    return ok


# `warploom run FILE.ptx --kernel K --grid G --block B --arg ...`: launch a kernel of any origin.


def run_ptx(args: argparse.Namespace, text: str) -> int:
    """Runs a kernel of PTX text as the command line says. Returns the exit code. Raises WarploomError for any error of
    the input."""
    report = Report(stderr=args.json)
    problem = Problem.parse(args.problem) if args.problem else None
    with report.timed("parse"):
        module = _module(args, text)
    name = kernel_name(module, args.kernel, "--kernel")
    function = module.kernel(name)
    arch = _interpreted_as(args, module)
    values = [inputs.kernel_argument(arg, args.seed, i) for i, arg in enumerate(args.arguments)]
    parameters = tuple(Parameter(p.name, "", None) for p in function.parameters)
    outputs = outputs_of(args.outputs, parameters, values)
    shared = module.shared.get(name, 0) if args.shared is None else args.shared
    launch = Launch(name, sizes_of("--grid", args.grid), sizes_of("--block", args.block), shared, ())
    check_values(function, values)
    instead = f", as {arch} runs it" if arch else ""
    report.line("kernel", f"{name} of {args.file}, for {', '.join(module.syntax.targets)}{instead}")
    report.launch(launch)
    place = choose_place("interp" if arch else report_device(args), module.target)
    report_resources(report, module.text, arch or module.target, place, (name,))
    run = partial(module.launch, name, launch.grid, launch.block, shared=shared, max_steps=args.max_steps)
    order = _counterexample(args, run) if args.replay else None
    with _traced(args, report), report.timed("run"), progress_bar(name) as progress:
        done = run(
            args=values,
            device="cuda" if place.gpu else "interp",
            progress=progress,
            arch=arch,
            checks=args.checks,
            report=args.report,
            trace=bool(args.trace),
            order=order,
            output=(sys.stderr if args.json else sys.stdout).write,
        )
    report.checks(args.checks, done.notes)
    report.contracted(module.name, () if place.gpu else contractions(module.syntax, name))
    report.times()
    report.line("ran on", str(place))
    for i, value in enumerate(values):
        for name, array in inputs.arrays_of(function.parameters[i].name, value):
            _summary(report, name, array)
    reports = tuple(each.against(problem) for each in done.reports)
    done = replace(done, reports=reports)
    report_launches(report, done, args, outputs, [parameter.name for parameter in parameters], values)
    return 0


@contextmanager
def _traced(args: argparse.Namespace, report: Report) -> Generator[None]:
    """Writes the trace of a launch that fails, too."""
    try:
        yield
    except InterpreterError as error:
        if args.trace and error.trace is not None:
            report.line("wrote", save_trace(args.trace, (error.trace,)))
        raise


def _counterexample(args: argparse.Namespace, run: Callable[..., LaunchPlace]) -> WarpOrder:
    """The first order of warps that leads to a different decision; prints what the check reports. Raises ArgumentError
    if there is none."""
    values = [inputs.kernel_argument(arg, args.seed, i) for i, arg in enumerate(args.arguments)]
    try:
        run(args=values, device="interp", checks=(ALL_ORDERS,), output=str)
    except InterpreterError as error:
        for finding in error.findings:
            if finding.order is not None:
                print(f"replaying: {finding}", file=sys.stderr)
                return finding.order
    raise ArgumentError("--replay: the check all-orders finds no order of warps that decides otherwise")


def _module(args: argparse.Namespace, text: str) -> PtxModule:
    """The kernels of a file: of PTX, or of a `gpu.module`, compiled for the target asked for."""
    if is_ptx(args.file, text):
        return PtxModule(text, args.file)
    return kernels(parse(text, args.file), args.target, args.file, sizes_of("--block", args.block))


def _interpreted_as(args: argparse.Namespace, module: PtxModule) -> str | None:
    """The GPU that the interpreter stands for, where `--target` names one for a .ptx file. Raises ArgumentError for a
    GPU that is none, or does not run the file, or with a real one."""
    if not args.target or not is_ptx(args.file, module.text):
        return None
    asked, own = known_target(args.target, "--target"), NAMED.get(module.target)
    if args.device == "cuda":
        raise ArgumentError("--target of a .ptx file says which GPU the interpreter stands for; use --device interp")
    if own is not None and not own.runs_on(asked.sm):
        raise ArgumentError(f"--target: {args.file} is for {own}, which {asked} does not run")
    return asked.name


def _array_at(values: Sequence[object], place: tuple[int, ...]) -> Array:
    """The array at a position among the arguments, or at one of the fields of a struct. Raises ArgumentError if there
    is none."""
    field = inputs.field_at(tuple(values), place)
    if not isinstance(field, np.ndarray):
        path = ".".join(map(str, place))
        raise ArgumentError(f"--out: argument {path} is no array, so nothing can be written from it")
    return cast(Array, field)


def _summary(report: Report, name: str, array: Array) -> None:
    shape = "x".join(map(str, array.shape))
    head = " ".join(str(value) for value in array.reshape(-1)[:4])
    report.line("array", f"{name}: {shape}x{element_of(array.dtype)}: {head}{' ...' if array.size > 4 else ''}")
