"""`warploom run FILE.ptx --kernel K --grid G --block B --arg ...`: launch a kernel of any origin."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from ...dialect.isa.targets import NAMED
from ..arguments.dtypes import element_of
from ..arguments.launch_values import values as check_values
from ..arguments.parameter import Parameter
from ..check.unrounded_sums import contractions
from ..errors import ArgumentError
from ..launch import Launch, dim3
from ..module import PtxModule, choose_place
from ..numerics.array import Array
from ..problem import Problem
from ..source import is_ptx
from ..targets import known_target
from . import inputs
from .report import Report, progress_bar
from .run_mlir import report_device, report_launches, report_resources


def run(args: argparse.Namespace, text: str) -> int:
    """Do what the command line asks for; the exit code.

    Raises:
        WarploomError: for anything the user can put right.
    """
    report = Report(stderr=args.json)
    problem = Problem.parse(args.problem) if args.problem else None
    with report.timed("parse"):
        module = _module(args, text)
    name = _kernel_name(module, args.kernel)
    function = module.kernel(name)
    arch = _interpreted_as(args, module)
    values = [inputs.kernel_argument(arg, args.seed, i) for i, arg in enumerate(args.arguments)]
    parameters = tuple(Parameter(p.name, "", None) for p in function.parameters)
    outputs: dict[tuple[int, ...], str] = {}
    for place, path in (_output(text, parameters) for text in args.outputs):
        _array_at(values, place)
        if place in outputs:
            raise ArgumentError(f"--out: argument {'.'.join(map(str, place))} is given twice")
        outputs[place] = path
    shared = module.shared.get(name, 0) if args.shared is None else args.shared
    launch = Launch(name, _dim3(args.grid, "--grid"), _dim3(args.block, "--block"), shared, ())
    check_values(function, values)
    instead = f", as {arch} runs it" if arch else ""
    report.line("kernel", f"{name} of {args.file}, for {', '.join(module.syntax.targets)}{instead}")
    report.launch(launch)
    place = choose_place("interp" if arch else report_device(args), module.target)
    report_resources(report, module.text, arch or module.target, place, (name,))
    with report.timed("run"), progress_bar(name) as progress:
        done = module.launch(
            name,
            launch.grid,
            launch.block,
            values,
            shared,
            device="cuda" if place.gpu else "interp",
            progress=progress,
            arch=arch,
            checks=args.checks,
            report=args.report,
            max_steps=args.max_steps,
            trace=bool(args.trace),
            output=(sys.stderr if args.json else sys.stdout).write,
        )
    report.checks(args.checks, done.notes)
    report.contracted(module.name, () if place.gpu else contractions(module.syntax, name))
    report.times()
    report.line("ran on", str(place))
    for i, value in enumerate(values):
        for name, array in inputs.arrays_of(function.parameters[i].name, value):
            _summary(report, name, array)
    for place, path in outputs.items():
        inputs.save(path, _array_at(values, place))
        report.line("wrote", f"{'.'.join([function.parameters[place[0]].name, *map(str, place[1:])])} to {path}")
    reports = tuple(found.against(problem) for found in done.reports)
    report_launches(report, replace(done, reports=reports), args)
    return 0


def _module(args: argparse.Namespace, text: str) -> PtxModule:
    """The kernels of a file: of PTX, or of a `gpu.module`, compiled for the target asked for."""
    if is_ptx(args.file, text):
        return PtxModule(text, args.file)
    from ..lowering import kernels, parse

    return kernels(parse(text, args.file), args.target, args.file, _dim3(args.block, "--block"))


def _interpreted_as(args: argparse.Namespace, module: PtxModule) -> str | None:
    """The GPU that the interpreter stands for, where `--target` names one for a .ptx file.

    Raises:
        ArgumentError: for a GPU that is none, or does not run the file, or with a real one.
    """
    if not args.target or not is_ptx(args.file, module.text):
        return None
    asked, own = known_target("--target", args.target), NAMED.get(module.target)
    if args.device == "cuda":
        raise ArgumentError("--target of a .ptx file says which GPU the interpreter stands for; use --device interp")
    if own is not None and not own.runs_on(asked.sm):
        raise ArgumentError(f"--target: {args.file} is for {own}, which {asked} does not run")
    return asked.name


def _kernel_name(module: PtxModule, name: str | None) -> str:
    """The kernel asked for, or the only one. Raises ArgumentError if there are several and none was named."""
    if name is not None:
        return name
    if len(module.kernels) == 1:
        return next(iter(module.kernels))
    listed = ", ".join(module.kernels) or "none"
    raise ArgumentError(f"{module.name}: expected --kernel, as the file has {len(module.kernels)} kernels ({listed})")


def _array_at(values: Sequence[object], place: tuple[int, ...]) -> Array:
    """The array at a position among the arguments, or at one of the fields of a struct.

    Raises:
        ArgumentError: if there is none.
    """
    found = inputs.field_at(tuple(values), place)
    if not isinstance(found, np.ndarray):
        path = ".".join(map(str, place))
        raise ArgumentError(f"--out: argument {path} is no array, so nothing can be written from it")
    return cast(Array, found)


def _output(text: str, parameters: tuple[Parameter, ...]) -> tuple[tuple[int, ...], str]:
    """`2=c.npy`, or `0.1=c.npy` for what a field of a struct points to."""
    bound = inputs.binding(text)
    if bound.name is None:
        raise ArgumentError(f"--out: expected NAME=FILE for a .ptx file, such as 2=c.npy, got '{text}'")
    inputs.check_writable(bound.value)
    name, *fields = bound.name.split(".")
    if not all(field.isdecimal() for field in fields):
        raise ArgumentError(f"--out: expected the number of a field, such as 0.1=c.npy, got '{text}'")
    return (inputs.named("--out", name, parameters), *map(int, fields)), bound.value


def _dim3(text: str, what: str) -> tuple[int, int, int]:
    try:
        return dim3([int(size) for size in text.replace("x", ",").split(",")], what)
    except ValueError:
        raise ArgumentError(f"{what}: expected one to three sizes, such as 4 or 4,2,1, got '{text}'") from None


def _summary(report: Report, name: str, array: Array) -> None:
    shape = "x".join(map(str, array.shape))
    head = " ".join(str(value) for value in array.reshape(-1)[:4])
    report.line("array", f"{name}: {shape}x{element_of(array.dtype)}: {head}{' ...' if array.size > 4 else ''}")
