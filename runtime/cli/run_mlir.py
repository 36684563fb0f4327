"""`warploom run FILE.mlir`: compile, run, compare with float64."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xdsl.dialects import func

from ...passes.pipeline import DEFAULT_TARGET
from .. import host
from ..compiler import compile
from ..cuda import ptxas
from ..errors import ArgumentError, AssemblerError
from ..kernel import Kernel
from ..lowering import parse, without_tensors
from ..module import LaunchPlace, choose_place
from ..numerics.array import Array
from ..reference import functions as reference
from . import inputs
from .options import schedule_options
from .report import Report, progress_bar
from .target import target_asked


def run(args: argparse.Namespace, text: str) -> int:
    """Do what the command line asks for; the exit code.

    Raises:
        WarploomError: for anything the user can put right.
    """
    report = Report(stderr=args.json)
    place = choose_place(report_device(args), args.target or "")
    module = parse(text, args.file, report.phase)
    target = target_asked(args, module, place.gpu.device.target if place.gpu else DEFAULT_TARGET)
    without_tensors(module)
    kernel = compile(
        module,
        target,
        args.function,
        file=args.file,
        on_phase=report.phase,
        tf32=args.tf32,
        tuned=args.tuned,
        cache=True,
        **schedule_options(args.schedule),
    )
    if place.gpu is not None:
        place = choose_place(report_device(args), target)
    function = host.choose(module, kernel.function.name)
    arrays = inputs.arrays(kernel.function, args.inputs, args.seed)
    kernel = kernel.called_with(*arrays)
    report.compiled(kernel)
    report_resources(report, kernel.ptx, target, place, [launch.kernel for launch in kernel.launches])
    outputs = resolve_outputs(kernel, args.outputs)
    before = [array.copy() for array in arrays] if args.check else []
    done = _execute(report, kernel, arrays, place, args)
    failed = args.check and not _check(report, kernel, function, before, arrays, tf32=args.tf32)
    report.times()
    report.line("ran on", str(place))
    for position, path in outputs.items():
        inputs.save(path, arrays[position])
        report.line("wrote", f"%{kernel.function.parameters[position].name} to {path}")
    report_launches(report, done, args)
    return 1 if failed else 0


def report_launches(report: Report, done: LaunchPlace, args: argparse.Namespace) -> None:
    """What was asked for of launches on the interpreter: the file of a trace, the tables of reports."""
    if args.trace:
        from .trace import save_trace

        report.line("wrote", save_trace(args.trace, done.traces))
    report.launched(done.reports, args.json)


def report_resources(report: Report, ptx: str, target: str, place: LaunchPlace, kernels: Sequence[str]) -> None:
    """Ask ptxas what each kernel needs, without it the GPU's driver."""
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
            found = ptxas.assemble(ptx, target)
    except AssemblerError as error:
        report.line("uses", f"unknown: {error}", "yellow")
        return
    for name in dict.fromkeys(kernels):
        report.resources(name, found[name], f"ptxas {ptxas.version()}")


def resolve_outputs(kernel: Kernel, texts: Sequence[str]) -> dict[int, str]:
    """Which argument is written to which file; a path alone means the last argument that the function writes.

    Raises:
        ArgumentError: for a name that no parameter has, or an argument that is given twice.
    """
    outputs: dict[int, str] = {}
    parameters = kernel.function.parameters
    for text in texts:
        bound = inputs.binding(text)
        if bound.name is None and not kernel.function.written:
            raise ArgumentError(f"--out {text}: the function writes no argument; name one, as in 2={text}")
        inputs.check_writable(bound.value)
        i = max(kernel.function.written) if bound.name is None else inputs.named("--out", bound.name, parameters)
        if i in outputs:
            raise ArgumentError(f"--out: argument {i} (%{parameters[i].name}) is given twice")
        outputs[i] = bound.value
    return outputs


def report_device(args: argparse.Namespace) -> str:
    """The device asked for; a report, a trace and checks want the interpreter.

    Raises:
        ArgumentError: if one of them and a GPU are asked for.
    """
    if args.report and args.device == "cuda":
        raise ArgumentError("--report counts what the interpreter executes; use --device interp")
    if args.checks and args.device == "cuda":
        raise ArgumentError(f"--check={','.join(args.checks)} is made by the interpreter; use --device interp")
    if args.trace and args.device == "cuda":
        raise ArgumentError("--trace shows what the interpreter executes; use --device interp")
    if args.max_steps is not None and args.device == "cuda":
        raise ArgumentError("--max-steps counts what the interpreter executes; use --device interp")
    interpreted = args.report or args.trace or args.checks or args.max_steps is not None
    return "interp" if interpreted else args.device


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
    report: Report,
    kernel: Kernel,
    function: func.FuncOp,
    before: Sequence[Array],
    after: Sequence[Array],
    *,
    tf32: bool,
) -> bool:
    """Compare every written argument with float64 and report it; whether all are within the bound."""
    accumulator = reference.accumulator_of(kernel.schedule, kernel.target)
    with report.timed("check"):
        exact = reference.evaluate(function, before, accumulator, tf32=tf32)
    ok, parameters = True, kernel.function.parameters
    for position in sorted(kernel.function.written):
        found = reference.compare(exact[position], after[position])
        bound = reference.bound_of(exact[position], accumulator)
        report.checked(parameters[position].name, found, bound)
        ok = ok and found.ok
    return ok
