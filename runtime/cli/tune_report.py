"""The fastest schedule of a product, found by measuring on the GPU, and what `warploom tune` shows of it."""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from ...dialect.isa.row import target as target_row
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.matmul import MatmulOp
from ...passes.linalg.product import Product, read
from ...passes.pipeline import lower, standard_pipeline
from ...passes.schedule.candidates import AT, Timed, Tuned, candidates, fitted, key_of, spread
from ...passes.schedule.model import DRAWN, Fit
from ...passes.schedule.warp_schedule import default_schedule
from ...passes.universe import make_context
from ..arguments.arrays import Argument, borrow
from ..base.errors import ArgumentError, CompileError, CudaError, DeviceUnavailableError, WarploomError
from ..base.launch import Signature, describe, read_mlir
from ..cuda.driver import Gpu, gpu
from ..cuda.launch import Prepared, copy_in, copy_out, timer
from ..kernel.compile import compile
from ..kernel.lowering import as_compile_errors, parse, target_name
from ..numerics.floats import Array
from ..reference import inputs
from .options import requested_target

# Every schedule is compiled, its result held against that of the default, and timed. Each time goes to a file at once,
# so that a search can be stopped and gone on with; `compile(..., tuned=file)` and `warp-schedule{tuned=...}` read the
# best.

CLOSE = {2: 2.0**-6, 4: 2.0**-12, 8: 2.0**-40}
"""How far two right results may be apart, relative to their norm, by bytes of an element."""


@dataclass(frozen=True)
class Measured:
    """One schedule and its time; None where it failed, `problem` saying how. `default`: it is what the model chose."""

    schedule: Schedule
    microseconds: float | None
    problem: str = ""
    remembered: bool = False
    default: bool = False


OnMeasured = Callable[[Measured, int], None]
"""Called with each result and the number of schedules in all."""


def schedules(module: ModuleOp, target: str, *, tf32: bool = False) -> tuple[str, list[Schedule]]:
    """What the one product of a module is, and the schedules to try: its default first. Raises ArgumentError unless
    there is exactly one product; CompileError as `product_of`, and for a product that the target has no instruction
    for."""
    product = product_of(module, target, tf32=tf32)
    with as_compile_errors():
        where = target_row(target)
        return key_of(product), candidates(default_schedule(product, where), product, where)


def product_of(module: ModuleOp, target: str, *, tf32: bool = False) -> Product:
    """The one product of a module. Raises ArgumentError unless there is exactly one product; CompileError for an
    unknown target."""
    raised = module.clone()
    with as_compile_errors():
        target_row(target)
        before_scheduling, _, _ = standard_pipeline(target, tf32=tf32).partition(",warp-version")
        lower(raised, make_context(), before_scheduling)
        scheduled = [op for op in raised.walk() if isinstance(op, MatmulOp | AttentionOp | AttentionGradientOp)]
        if len(scheduled) == 1 and isinstance(product := scheduled[0], MatmulOp):
            return read(product)
        names = ", ".join([str(len(scheduled)), *(op.name for op in scheduled)]).replace(", ", ": ", 1)
        raise ArgumentError(f"tuning takes a function with one product, got {names}")


def arguments(
    module: ModuleOp, target: str, texts: Sequence[str], seed: int = 0, *, tf32: bool = False
) -> tuple[Signature, list[Array], str]:
    """The function of a module, the arrays to measure it with, and the sizes that they add to the key of a dynamic
    product. Raises ArgumentError for a function that takes numbers, or naming an argument of unknown size."""
    function = compile(module, target, tf32=tf32).function
    if any(p.shape is None for p in function.parameters):
        raise ArgumentError("tuning takes functions of arrays alone")
    arrays = inputs.arrays(function, texts, seed, poisoned=False)
    if all(min(p.shape or (), default=0) >= 0 for p in function.parameters):
        return function, arrays, ""
    pairs = zip(arrays, function.parameters, strict=True)
    return function, arrays, AT + " ".join(describe(array.shape, p.element) for array, p in pairs)


def tune(
    module: ModuleOp, gpu: Gpu, file: Path, *, target: str = "", tf32: bool = False, limit: int = 60, seed: int = 0,
    on_measured: OnMeasured | None = None, specifications: Sequence[str] = (),
) -> list[Measured]:  # fmt: skip
    """Measures up to `limit` schedules of a module's one product, those in the file from there; the fastest first.
    `specifications` are arguments as `NAME=VALUE`, such as "A=random:512x4096": they tell sizes that a module does not.
    Raises ArgumentError naming an argument whose size nothing tells; DeviceUnavailableError if the GPU does not run
    code for the target, which is the module's own by default; WarploomError if the default schedule fails."""
    target = target or target_name(module, gpu.device.target)
    if not gpu.device.runs(target):
        raise DeviceUnavailableError(f"{gpu.device} does not run PTX for {target}", f"tune for {gpu.device.target}")
    key, every = schedules(module, target, tf32=tf32)
    function, arrays, sizes = arguments(module, target, specifications, seed, tf32=tf32)
    key += sizes
    with as_compile_errors():
        chosen, tuned = spread(every, limit), Tuned.read(file) if file.exists() else Tuned(file)
    texts = {str(schedule) for schedule in every}  # those of another version may not fit any more
    entry = tuned.entry(gpu.device.name, target, key)
    results: list[Measured] = []
    with ExitStack() as stack:
        bench = Bench(module, gpu, target, tf32, arrays, sorted(function.written), stack)
        for i, schedule in enumerate(chosen):
            text = str(schedule)
            if text in entry["measured"]:
                result = Measured(schedule, entry["measured"][text], remembered=True)
            else:
                result = bench.measure(schedule)
                if result.problem and i == 0:
                    raise WarploomError(f"the default schedule fails: {result.problem}")
                entry["measured"][text] = result.microseconds
            results.append(replace(result, default=i == 0))
            timed = {name: time for name, time in entry["measured"].items() if time is not None and name in texts}
            entry["best"] = min(timed, key=lambda name: timed[name], default="")
            tuned.write()
            if on_measured is not None:
                on_measured(result, len(chosen))
    return sorted(results, key=lambda r: (r.microseconds is None, r.microseconds or 0.0))


# A device: products of many sizes, each in several schedules, and the model's constants fitted to their times.

MIN, MAX, STEP = 64, 8192, 8
"""Sizes of a device's products are between these, log-uniform, and multiples of `STEP`."""

FEWEST = 24
"""Schedules of warpgroups that a fit of constants takes at least."""


def text_of(m: int, n: int, k: int) -> str:
    """A product of bf16 with the weights of `nn.Linear`."""
    a, b, d = (f"memref<{rows}x{columns}xbf16>" for rows, columns in ((m, k), (n, k), (m, n)))
    return f"""func.func @product(%A: {a}, %B: {b}, %D: {d}) {{
  %zero = arith.constant 0.0 : bf16
  linalg.fill ins(%zero : bf16) outs(%D : {d})
  linalg.matmul_transpose_b ins(%A, %B : {a}, {b}) outs(%D : {d})
  return
}}"""


def drawn(count: int, seed: int) -> list[str]:
    """Products of sizes that a seed gives."""
    source, low, high = random.Random(seed), math.log(MIN), math.log(MAX)
    sizes = [round(math.exp(source.uniform(low, high)) / STEP) * STEP for _ in range(3 * count)]
    return [text_of(*sizes[i : i + 3]) for i in range(0, len(sizes), 3)]


def tune_device(
    gpu: Gpu, file: Path, *, target: str, count: int, limit: int, seed: int = 0, on_measured: OnMeasured | None = None
) -> tuple[Fit, float, int]:
    """Measures `limit` schedules of each of `count` products, fits the model's constants to them, and keeps both in a
    file: the constants, how far the model is from the times by them, and how many times there are. Raises ArgumentError
    for a target without warpgroups, or where too little was measured."""
    row, timed = target_row(target), list[Timed]()
    if row.sm < WARPGROUP_SM:
        raise ArgumentError(f"--device fits the model of products of warpgroups, which {target} has not; tune products")
    for text in drawn(count, seed):
        results = tune(parse(text), gpu, file, target=target, limit=limit, seed=seed, on_measured=on_measured)
        times = {r.schedule: r.microseconds for r in results if r.microseconds and r.schedule.together > 1}
        timed += [(product_of(parse(text), target), times)] if times else []
    if (number := sum(len(times) for _, times in timed)) < FEWEST:
        raise ArgumentError(f"{number} schedules of warpgroups were measured, a fit takes {FEWEST}; use --limit")
    row = replace(row, sms=gpu.device.multiprocessors)
    fit, error = fitted(timed, row)
    tuned = Tuned.read(file)
    tuned.device(gpu.device.name, target).update(sms=row.sms, timing=[*fit])
    tuned.write()
    return fit, error, number


class Bench:
    """One function's arguments on a GPU, to run and time it with any schedule."""

    def __init__(
        self, module: ModuleOp, gpu: Gpu, target: str, tf32: bool, arrays: list[Array], written: list[int],
        stack: ExitStack
    ) -> None:  # fmt: skip
        self.module, self.gpu, self.target, self.tf32 = module, gpu, target, tf32
        self.arrays, self.written = arrays, written
        with gpu.current():
            self.placed = [copy_in(gpu, stack, borrow(a), 0) for a in self.arrays]
        self.microseconds = stack.enter_context(timer(gpu))
        self.expected: list[Array] = []

    def measure(self, schedule: Schedule) -> Measured:
        """The time of one schedule. Its result must equal that of the first schedule."""
        try:
            options: dict[str, Any] = schedule.options()
            kernel = compile(self.module, self.target, tf32=self.tf32, cache=False, **options)
            plan = kernel.plan_for([borrow(array) for array in self.arrays])
            launches = kernel.binary.prepare(plan, self.placed)
            problem = self._compare(launches)
            if problem:
                return Measured(schedule, None, problem)
            return Measured(schedule, self.microseconds(launches))
        except (CompileError, CudaError) as error:
            return Measured(schedule, None, str(error).split("\n")[0])

    def _compare(self, launches: Prepared) -> str:
        """Runs once from the same start; what is wrong with the result, "" if nothing is."""
        results = [self.arrays[i].copy() for i in self.written]
        self._reset()
        launches()
        launches.wait()
        with self.gpu.current():
            for i, result in zip(self.written, results, strict=True):
                copy_out(self.gpu, borrow(result), self.placed[i])
        self._reset()
        if not self.expected:
            self.expected = results
            return ""
        worst = max((_distance(a, b) for a, b in zip(results, self.expected, strict=True)), default=0.0)
        return "" if worst <= 1 else f"its result differs from the default's by {worst:.3g} times what rounding allows"

    def _reset(self) -> None:
        """Gives the written arrays what they held at first."""
        with self.gpu.current():
            for i in self.written:
                host: Argument = borrow(self.arrays[i])
                self.gpu.driver.cuMemcpyHtoD(self.placed[i].address, host.address, host.nbytes)


def _distance(result: Array, expected: Array) -> float:
    """The distance of two arrays in units of what rounding allows; integers must agree."""
    if expected.dtype.kind in "iu":
        return 0.0 if np.array_equal(result, expected) else float("inf")
    exact = expected.astype(np.float64)
    norm = float(np.linalg.norm(exact)) or 1.0
    return float(np.linalg.norm(result.astype(np.float64) - exact)) / norm / CLOSE.get(expected.dtype.itemsize, 2.0**-3)


# What `warploom tune` shows: a progress bar while it measures, then the fastest schedules.


def list_schedules(args: argparse.Namespace) -> int:
    """Prints the schedules that would be measured, the default first."""
    module = parse(read_mlir(args.file), args.file)
    target = requested_target(args, module)
    key, fitting = schedules(module, target, tf32=args.tf32)
    if args.inputs:
        key += arguments(module, target, args.inputs, tf32=args.tf32)[2]
    print(f"{key}: {len(fitting)} schedules fit")
    for schedule in spread(fitting, args.limit):
        print(f"  {schedule}")
    return 0


def tune_with_report(args: argparse.Namespace) -> int:
    """Measures, and prints the fastest schedules beside the default."""
    module = parse(read_mlir(args.file), args.file)
    try:
        device = gpu()
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(error.reason, "--list shows, without one, what would be measured") from error
    target = requested_target(args, module, device.device.target)
    with _progress() as on_measured:
        results = tune(
            module, device, args.tuned, target=target, tf32=args.tf32, limit=args.limit, seed=args.seed,
            on_measured=on_measured, specifications=args.inputs,
        )  # fmt: skip
    base = next(r.microseconds for r in results if r.default)
    out = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("us", "of the default's time", "schedule"):
        table.add_column(name, justify="left" if name == "schedule" else "right", overflow="fold")
    timed = [r for r in results if r.microseconds is not None]
    for result in timed[: args.top]:
        time = result.microseconds or 0.0
        table.add_row(f"{time:.1f}", f"{100 * time / base:.0f} %" if base else "-", str(result.schedule))
    out.print(table)
    again = sum(r.remembered for r in results)
    failed = [r for r in results if r.microseconds is None]
    out.print(f"{len(results)} schedules on {device.device}, {again} of them measured before, in {args.tuned}")
    for result in failed:
        if result.problem:
            out.print(f"left out: {result.schedule}: {result.problem}", soft_wrap=True)
    return 0


def tune_device_with_report(args: argparse.Namespace) -> int:
    """Measures a device, and prints the constants that were fitted."""
    device = gpu()
    target = args.target or device.device.target
    with _progress() as on_measured:
        fit, error, number = tune_device(
            device, args.tuned, target=target, count=args.device, limit=args.limit, seed=args.seed,
            on_measured=on_measured,
        )  # fmt: skip
    print(f"{number} schedules of {args.device} products on {device.device}, in {args.tuned}")
    print(f"the model is {100 * error:.1f} % from their times, with these constants (an H100's):")
    for name, value, of_h100 in zip(Fit._fields, fit, DRAWN, strict=True):
        print(f"  {name} = {value:.4g} ({of_h100:g})")
    return 0


@contextmanager
def _progress() -> Generator[OnMeasured | None]:
    """A progress bar on standard error; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, fastest = bar.add_task("measuring", total=None), float("inf")

        def show(result: Measured, total: int) -> None:
            nonlocal fastest
            fastest = min(fastest, result.microseconds or fastest)
            bar.update(task, advance=1, total=total, description=f"fastest {fastest:.1f} us")

        yield show
