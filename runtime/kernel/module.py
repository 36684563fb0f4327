"""PTX of any origin, loaded and launched: on a GPU through the driver, or on the CPU by the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ...dialect.ptx.instructions import traits
from ...dialect.ptx.text import syntax
from ...dialect.ptx.text.syntax import Address, Function, Instruction, Module, Operand, Register, Symbol, instructions
from ..arguments.arrays import Argument, borrow
from ..arguments.launch_values import LaunchValue, Scalar, in_memory, reachable, values, where
from ..base.errors import ArgumentError, DeviceUnavailableError, WarploomError
from ..base.launch import DEFAULT, DEVICES, Checks, Launch, Mapped, Options, Output, Plan, Progress, Shifted, dim3

if TYPE_CHECKING:
    from ..cuda.driver import Gpu
    from ..cuda.launch import Prepared
    from ..interp import Program
    from ..interp.machine.memory import Finding, WarpOrder
    from ..interp.watch.report import LaunchReport, Reporter
    from ..interp.watch.timeline import LaunchTrace
    from ..interp.watch.tracer import Tracer

# Which arrays a kernel may write, as its text says: where pointers of its parameters go.
#
# A name, of a register or a variable, holds a pointer of a parameter if an instruction that computes it reads one that
# does, wherever that stands. What pointers are stored in memory may come out of every load.

ANSWERS = ("set", "setp", "isspacep", "bar", "barrier")
"""Instructions whose result says how operands compare, and is made of none of them."""

MEMORY = "[]"

Holders = Mapping[str, set[str]]


def may_write(kernel: Function) -> frozenset[str]:
    """The parameters whose arrays the kernel may write, among them those that functions get pointers of."""
    body = list(instructions(kernel.body or ()))
    holders = _spread(body, [p.name for p in kernel.parameters])
    written: set[str] = set()
    for instruction in body:
        if instruction.is_call:
            written |= _parameters_behind(holders, _names(instruction.operands))
        elif traits(instruction.opcode).writes_memory:
            addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
            written |= _parameters_behind(holders, _names(addresses[:1]))
    return frozenset(written)


def _spread(body: Sequence[Instruction], parameters: Sequence[str]) -> Holders:
    """The parameters that each name may hold a pointer of."""
    holders: dict[str, set[str]] = {name: {name} for name in parameters}
    changed = True
    while changed:
        changed = False
        for instruction in body:
            for target, sources in _moves(instruction):
                pointed = _parameters_behind(holders, sources)
                if not pointed <= holders.get(target, set()):
                    holders.setdefault(target, set()).update(pointed)
                    changed = True
    return holders


def _parameters_behind(holders: Holders, names: Iterator[str] | Sequence[str]) -> set[str]:
    return {parameter for name in names for parameter in holders.get(name, ())}


def _moves(instruction: Instruction) -> Iterator[tuple[str, list[str]]]:
    """The names that an instruction assigns, each with the names that its value comes from."""
    effects = traits(instruction.opcode)
    if not instruction.operands or instruction.is_call or effects.root in ANSWERS:
        return
    first, *rest = instruction.operands
    if effects.root == "st":
        for target in _names([first]) if effects.space == "param" else [MEMORY]:
            yield target, list(_names(rest))
    elif effects.row is None or effects.row.operands[0].written:
        loads = effects.has_address and effects.space != "param"
        for target in _names([first]):
            yield target, [MEMORY] if loads else list(_names(rest))


def _names(operands: Sequence[Operand]) -> Iterator[str]:
    return (leaf.name for o in operands for leaf in syntax.leaves(o) if isinstance(leaf, Register | Symbol))


# PTX of any origin, loaded and launched.


@dataclass(frozen=True)
class LaunchPlace:
    """Where launches run: on `gpu`, or on the interpreter if it is None; `reason` says why the interpreter. `reports`
    and `traces` are what launches on the interpreter did, one for each, where they were asked for; `notes` are what
    checks found that is no error."""

    gpu: Gpu | None
    reason: str = ""
    reports: tuple[LaunchReport, ...] = ()
    notes: tuple[Finding, ...] = ()
    traces: tuple[LaunchTrace, ...] = ()

    def __str__(self) -> str:
        if self.gpu is not None:
            return f"cuda: {self.gpu.device}"
        return f"interp ({self.reason})" if self.reason else "interp"


def choose_place(device: str, target: str, values: Sequence[LaunchValue] = ()) -> LaunchPlace:
    """Where to run PTX for `target`: "interp", "cuda", or "auto", which is a GPU if there is one that runs it. Raises
    ArgumentError for another word, or for arrays in GPU memory on the interpreter; DeviceUnavailableError if a GPU is
    asked for and none can run it."""
    if device not in DEVICES:
        raise ArgumentError(f"expected device to be one of {', '.join(DEVICES)}, got {device!r}")
    on_gpu = [i for i, v in enumerate(values) if isinstance(v, Argument) and v.on_device]
    if device == "interp":
        if on_gpu:
            raise ArgumentError(
                f"argument {on_gpu[0]} lies in GPU memory, which device='interp' cannot read; pass a host copy"
            )
        return LaunchPlace(None)
    from ..cuda.launch import gpu_of

    try:
        chosen = gpu_of(values)
        if not chosen.device.runs(target):
            raise DeviceUnavailableError(
                f"{chosen.device} does not run PTX for {target}",
                f"compile for {chosen.device.target}, or use device='interp'",
            )
    except DeviceUnavailableError as error:
        if device == "cuda" or on_gpu:
            raise
        return LaunchPlace(None, error.reason)
    return LaunchPlace(chosen)


class PtxModule:
    """A parsed PTX module. `shared` has the bytes of dynamic shared memory of each kernel for which they are known.

    Raises:
        WarploomError: with file, line and column, if the text is not PTX.
    """

    def __init__(self, text: str, name: str = "<ptx>", shared: Mapping[str, int] | None = None) -> None:
        from ...dialect.ptx.parser import parse_ptx
        from ...dialect.ptx.text.syntax import PtxSyntaxError

        self.text = text
        self.shared = shared or {}
        self.name = name
        self._programs: dict[str | None, Program] = {}
        self._legal: set[str] = set()
        try:
            self.syntax: Module = parse_ptx(text, name)
        except PtxSyntaxError as error:
            raise WarploomError(str(error)) from error

    def __repr__(self) -> str:
        return f"<PtxModule {self.name} for {self.target}: {', '.join(self.kernels) or 'no kernel'}>"

    def __reduce__(self) -> tuple[type[PtxModule], tuple[str, str, dict[str, int]]]:
        return PtxModule, (self.text, self.name, dict(self.shared))

    @property
    def target(self) -> str:
        """The first name in `.target`, such as "sm_90a"."""
        return self.syntax.targets[0] if self.syntax.targets else ""

    @cached_property
    def kernels(self) -> dict[str, Function]:
        """The kernels with a body, by name."""
        return {name: f for name, f in self.syntax.functions.items() if f.entry}

    @cached_property
    def program(self) -> Program:
        """The module decoded for the interpreter, with the arithmetic of its own target."""
        return self.program_for(None)

    def program_for(self, arch: str | None) -> Program:
        """The module decoded for the interpreter, once for each target `arch`, with the arithmetic of that target.

        Raises:
            InterpreterError: with file, line and column, at the first instruction that cannot be run there.
        """
        from ..interp import load

        if arch not in self._programs:
            self._programs[arch] = load(self.syntax, self.name, arch)
        return self._programs[arch]

    def kernel(self, name: str) -> Function:
        """The kernel called `name`.

        Raises:
            ArgumentError: if there is none, naming the kernels that there are.
        """
        if name not in self.kernels:
            raise ArgumentError(f"no kernel '{name}' in {self.name}; it has {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]

    def _require_legal(self, name: str) -> None:
        """Checks that a kernel is legal PTX. Raises InterpreterError at the first place that `warploom check`
        reports."""
        if name in self._legal:
            return
        from ...dialect.ptx.check.module import Checker
        from ...dialect.ptx.verifier import TargetContext
        from ..interp.machine.memory import Finding, InterpreterError

        checker = Checker(self.syntax, TargetContext(self.syntax.version, self.syntax.targets), uses=False)
        first = min(checker.kernel(self.kernel(name)), default=None)
        if first is not None:
            finding = Finding("load", first.message, self.name, first.line, first.column, name)
            raise InterpreterError(str(finding), [finding])
        self._legal.add(name)

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        shared: int | None = None,
        device: str = "auto",
        progress: Progress | None = None,
        arch: str | None = None,
        cluster: int | Sequence[int] | None = None,
        checks: Checks = (),
        report: bool = False,
        max_steps: int | None = None,
        output: Output | None = None,
        trace: bool = False,
        order: WarpOrder | None = None,
    ) -> LaunchPlace:
        """Launch a kernel.

        If all arrays are in GPU memory, the launch is enqueued on the stream of the arrays' producer, and this returns
        at once. Otherwise this returns when the kernel is done. `device`, `progress`, `arch`, `checks`, `report`,
        `trace` and `max_steps` are those of `Kernel.__call__`.

        - `args`: scalars are passed by value, arrays as pointers to their elements. A struct (`.param .b8 p[16]`) is a
          tuple, bytes, a numpy record or a ctypes structure; a `Struct` puts pointers and tensor maps into it. For a
          64-bit parameter, a `TensorMap`, a `Struct` or a tuple is put into global memory, and its address is passed.
        - `shared`: bytes of dynamic shared memory; by default those that the kernel is known to take, or 0.
        - `cluster`: the shape of the clusters of blocks, if the kernel does not fix it.
        - `order`: the `order` of a finding of the check "all-orders": the warps run in it at first.
        - `output`: is called with the text that an interpreted kernel prints; by default it goes to standard output.

        Returns:
            Where the kernel ran, the report and the trace if asked for, and the notes of checks, which are not errors.

        Raises:
            WarploomError: for arguments that do not fit, a missing GPU, or a kernel that fails.
            InterpreterError: with `findings`, if the checks find anything.
        """
        plan, passed = self.planned(name, grid, block, args, shared, cluster)
        options = Options(arch, checks, report, max_steps, output, trace, order=order)
        if choose_place(options.on(device), self.target, passed).gpu is None:
            # what a GPU may run is for its driver to say
            self._require_legal(name)
        return self.run(plan, passed, device=device, progress=progress, options=options)

    def planned(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        shared: int | None,
        cluster: int | Sequence[int] | None,
    ) -> tuple[Plan, list[LaunchValue]]:
        """The plan of one launch, and the values that `run` takes for its arguments. See `launch`."""
        passed, everything = values(self.kernel(name), args), tuple(range(len(args)))
        shape = None if cluster is None else dim3(cluster, "cluster")
        shared = self.shared.get(name, 0) if shared is None else shared
        launch = Launch(name, dim3(grid, "grid"), dim3(block, "block"), shared, everything, cluster=shape)
        return Plan((launch,)), passed

    def run(
        self,
        plan: Plan,
        values: Sequence[LaunchValue],
        *,
        device: str = "auto",
        written: frozenset[int] | None = None,
        progress: Progress | None = None,
        options: Options = DEFAULT,
    ) -> LaunchPlace:
        """Run the launches of a plan, one after the other on the same arguments. See `launch`.

        `written` has the positions of the arrays that are copied back from a GPU (None: all). The plan's scratch memory
        lives as long as the call.
        """
        if device == "cuda" and options.unsupported_options:
            raise ArgumentError(options.unsupported_options[0])
        place = choose_place(options.on(device), self.target, values)
        if place.gpu is None:
            return self._interpret(place, plan, values, progress, options)
        from ..cuda.launch import run
        from ..cuda.launches import GpuProgram

        copied_back = self._written(plan.launches, values) if written is None else written
        run(GpuProgram(place.gpu, self.text, self.kernels), plan, values, copied_back)
        return place

    def _written(self, launches: Sequence[Launch], values: Sequence[LaunchValue]) -> frozenset[int]:
        """The arrays to copy back: those that may be written. Raises ArgumentError if one of those that launches may
        write is read-only."""
        fixed = {i for i, value in enumerate(values) if isinstance(value, Argument) and not value.writable}
        for launch in launches if fixed else ():
            function = self.kernel(launch.kernel)
            written = may_write(function)
            for i, (parameter, argument) in enumerate(zip(function.parameters, launch.arguments, strict=True)):
                value = values[argument] if isinstance(argument, int) and argument < len(values) else None
                position = argument.position if isinstance(argument, Shifted | Mapped) else argument
                places = reachable(values, argument) if isinstance(argument, int) and value is not None else {position}
                if parameter.name in written and places & fixed:
                    raise ArgumentError(
                        f"kernel {launch.kernel}: {where(parameter, i)}: the kernel may write it, but the array is "
                        "read-only; pass a writable copy"
                    )
        return frozenset(range(len(values))) - fixed

    def prepare(self, plan: Plan, values: Sequence[LaunchValue]) -> Prepared:
        """A plan on arrays in GPU memory, whose launches can be enqueued many times.

        Raises:
            ArgumentError: naming the first array in host memory.
        """
        for i, value in enumerate(values):
            if isinstance(value, Argument) and not value.on_device:
                raise ArgumentError(f"argument {i} ({value}) lies in host memory; prepare takes arrays in GPU memory")
        from ..cuda.launch import Prepared
        from ..cuda.launches import GpuProgram

        self._written(plan.launches, values)
        place = choose_place("cuda", self.target, values)
        prepared = Prepared(GpuProgram(cast("Gpu", place.gpu), self.text, self.kernels), plan, values)
        if plan.scratch or in_memory(values):
            prepared.wait()  # The memory is there in the order of one stream; after this, for every stream.
        return prepared

    def _interpret(
        self, place: LaunchPlace, plan: Plan, values: Sequence[LaunchValue], progress: Progress | None, options: Options
    ) -> LaunchPlace:
        from ..interp.machine.memory import InterpreterError

        everything = [*values, *(borrow(buffer.host()) for buffer in plan.scratch)]
        notes, reports, traces = list["Finding"](), list["LaunchReport"](), list["LaunchTrace"]()
        for launch in plan.launches:
            reporter, tracer, observer = _observers(options)
            try:
                watched = replace(options, observer=observer)
                notes += self.program_for(options.arch).launch(launch, everything, watched, progress).notes
            except InterpreterError as error:
                error.trace = tracer.trace() if tracer is not None and tracer.timeline.places else None
                raise
            reports += [] if reporter is None else [reporter.report()]
            traces += [] if tracer is None else [tracer.trace()]
        return replace(place, reports=tuple(reports), notes=tuple(notes), traces=tuple(traces))


def _observers(options: Options) -> tuple[Reporter | None, Tracer | None, Any]:
    """What makes the report and the trace of a launch, and all that observes it; None for what is not asked for."""
    if not (options.report or options.trace):
        return None, None, options.observer
    from ..interp.watch.findings import Observers
    from ..interp.watch.report import Reporter

    reporter, tracer = Reporter() if options.report else None, None
    if options.trace:
        from ..interp.watch.tracer import Tracer

        tracer = Tracer()
    return reporter, tracer, Observers([one for one in (reporter, tracer, options.observer) if one is not None])


def kernel_name(module: PtxModule, name: str | None, option: str) -> str:
    """The name given by an option, else that of the only kernel; ArgumentError if there is not exactly one."""
    if name is None and len(module.kernels) != 1:
        listed = f"{len(module.kernels)} kernels ({', '.join(module.kernels) or 'none'})"
        raise ArgumentError(f"{module.name}: expected {option}, as the file has {listed}")
    return name or next(iter(module.kernels))


__all__ = ["Checks", "LaunchPlace", "Progress", "PtxModule", "Scalar", "choose_place"]
