"""`warploom run FILE.ptx --kernel K --grid G --block B --arg ...`: launch a kernel of any origin."""

from __future__ import annotations

import argparse

import numpy as np

from . import inputs
from .arrays import Array, Parameter, element_of
from .errors import ArgumentError
from .launch import Launch, dim3
from .launch import values as check_values
from .module import PtxModule, choose_place
from .problem import Problem
from .report import Report, progress_bar
from .run_mlir import report_device, report_resources


def run(args: argparse.Namespace, text: str) -> int:
    """Do what the command line asks for; the exit code.

    Raises:
        WarploomError: for anything the user can put right.
    """
    report = Report(stderr=args.json)
    problem = Problem.parse(args.problem) if args.problem else None
    with report.timed("parse"):
        module = PtxModule(text, args.file)
    name = _kernel_name(module, args.kernel)
    function = module.kernel(name)
    values = [inputs.kernel_argument(arg, args.seed, i) for i, arg in enumerate(args.arguments)]
    parameters = tuple(Parameter(p.name, "", None) for p in function.parameters)
    outputs = dict(_output(text, parameters) for text in args.outputs)
    for position in outputs:
        if position >= len(values) or not isinstance(values[position], np.ndarray):
            raise ArgumentError(f"--out: argument {position} is no array, so nothing can be written from it")
    launch = Launch(name, _dim3(args.grid, "--grid"), _dim3(args.block, "--block"), args.shared, ())
    check_values(function, values)
    report.line("kernel", f"{name} of {args.file}, for {', '.join(module.syntax.targets)}")
    report.launch(launch)
    place = choose_place(report_device(args), module.target)
    report_resources(report, text, args.target or module.target, place, (name,))
    with report.timed("run"), progress_bar(name) as progress:
        reports = module.launch(
            name,
            launch.grid,
            launch.block,
            values,
            args.shared,
            device="cuda" if place.gpu else "interp",
            progress=progress,
            checks=args.checks,
            report=args.report,
        ).reports
    report.silent(args.checks)
    report.times()
    report.line("ran on", str(place))
    for i, value in enumerate(values):
        if isinstance(value, np.ndarray):
            _summary(report, function.parameters[i].name, value)
    for position, path in outputs.items():
        value = values[position]
        if isinstance(value, np.ndarray):
            inputs.save(path, value)
            report.line("wrote", f"{function.parameters[position].name} to {path}")
    report.launched([found.against(problem) for found in reports], args.json)
    return 0


def _kernel_name(module: PtxModule, name: str | None) -> str:
    """The kernel asked for, or the only one. Raises ArgumentError if there are several and none was named."""
    if name is not None:
        return name
    if len(module.kernels) == 1:
        return next(iter(module.kernels))
    listed = ", ".join(module.kernels) or "none"
    raise ArgumentError(f"{module.name}: expected --kernel, as the file has {len(module.kernels)} kernels ({listed})")


def _output(text: str, parameters: tuple[Parameter, ...]) -> tuple[int, str]:
    bound = inputs.binding(text)
    if bound.name is None:
        raise ArgumentError(f"--out: expected NAME=FILE for a .ptx file, such as 2=c.npy, got '{text}'")
    inputs.check_writable(bound.value)
    return inputs.position_of(bound.name, parameters), bound.value


def _dim3(text: str, what: str) -> tuple[int, int, int]:
    try:
        return dim3([int(size) for size in text.replace("x", ",").split(",")], what)
    except ValueError:
        raise ArgumentError(f"{what}: expected one to three sizes, such as 4 or 4,2,1, got '{text}'") from None


def _summary(report: Report, name: str, array: Array) -> None:
    shape = "x".join(map(str, array.shape))
    head = " ".join(str(value) for value in array.reshape(-1)[:4])
    report.line("array", f"{name}: {shape}x{element_of(array.dtype)}: {head}{' ...' if array.size > 4 else ''}")
