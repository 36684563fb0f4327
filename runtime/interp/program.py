"""A module ready to be launched on the CPU, and the bytes of its parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from ...dialect.isa.row import TARGETS
from ...dialect.isa.tensor_map import SIZE
from ...dialect.ptx.text.source_lines import SourceLines
from ...dialect.ptx.text.syntax import Module, Variable
from ..arguments.arrays import Argument
from ..arguments.launch_values import LaunchValue, Packed, Scalar, in_memory, pack, reachable
from ..base.launch import DEFAULT, Dim3, Launch, Mapped, Options, Passed, Progress, Shifted, Word, cores, dim3
from ..numerics.floats import Array
from .machine.decode import NameScope, VariablePlace
from .machine.kernel import MATRICES, DecodedKernel, Functions, KernelDecoder
from .machine.machine import KernelRun, Machine, Stats, geometry_of, shared_bytes
from .machine.memory import (
    Buffer,
    DecodeError,
    Finding,
    GlobalBuffers,
    Heap,
    InterpreterError,
    initial,
    size_of,
    static_places,
)
from .machine.state import WORKSPACE, WORKSPACE_BYTES, State, align

if TYPE_CHECKING:
    from ...dialect.ptx.check.module import Diagnostic

IN_FLIGHT_BYTES = 200 << 20
IN_FLIGHT_WARPS = 1024
IN_FLIGHT_WARPS_MATRIX = 128


def run(launch: KernelRun) -> Stats:
    """Runs all CTAs. Raises InterpreterError if a thread does something wrong, waits for ever, or the steps run out."""
    queue, total = launch.queue, math.prod(launch.sizes.grid)
    at_once = min(total, _ctas_in_flight(launch))
    cancels = any(decoded.traits.means == "cancel.try" for decoded in launch.kernel.code)
    if cancels:  # so that there is something to cancel
        at_once = min(at_once, align(-(-total // 2), geometry_of(launch, 0, 1).cluster_size))
    stats, queue.total = Stats(), total
    with np.errstate(all="ignore"):
        if not cancels and cores() > 1:
            from .parallel import run_in_processes

            if run_in_processes(launch, at_once, stats):
                return stats
        while queue.begun < queue.total:
            first, ctas = queue.begun, min(at_once, queue.total - queue.begun)
            queue.begun += ctas
            Machine(launch, geometry_of(launch, first, ctas), stats).run()
            if launch.progress:
                launch.progress(queue.begun, queue.total)
    return stats


def _ctas_in_flight(launch: KernelRun) -> int:
    layout = launch.kernel.layout
    one = geometry_of(launch, 0, 1)
    per_thread = sum(max(bits // 8, 1) * n for bits, n in layout.slots.items()) + layout.local_bytes + 64
    per_cta = one.threads * per_thread + shared_bytes(launch)
    if launch.observer is not None:
        per_cta += launch.observer.weight(shared_bytes(launch), one.warps * one.cluster_size)
    warps = IN_FLIGHT_WARPS_MATRIX if launch.kernel.uses(*MATRICES) else IN_FLIGHT_WARPS
    clusters = min(IN_FLIGHT_BYTES // per_cta, warps // one.warps) // one.cluster_size
    return max(1, clusters) * one.cluster_size


# The bytes of a kernel's parameters; arrays get addresses.


def parameters(
    kernel: DecodedKernel, args: Sequence[Passed], values: Sequence[LaunchValue], memory: GlobalBuffers
) -> Array:
    """Puts what a launch passes of `values` where the kernel finds its parameters, and arrays into memory."""
    data = np.zeros(kernel.layout.parameter_bytes, np.uint8)
    for i, ((variable, offset), passed) in enumerate(zip(kernel.layout.parameters, args, strict=True)):
        words = _words(variable, i, passed, values, memory)
        data[offset : offset + len(words)] = np.frombuffer(words, np.uint8)
    return data


def _words(
    variable: Variable, number: int, passed: Passed, values: Sequence[LaunchValue], memory: GlobalBuffers
) -> bytes:
    """The bytes of a parameter. Arrays, and structs in memory, that it leads to get addresses."""
    if isinstance(passed, Word):
        return pack(variable, passed.value)
    position = passed if isinstance(passed, int) else passed.position
    value, addresses = values[position], dict[int, int]()
    reached = reachable(values, position) if isinstance(value, Packed) else {position}
    for at in sorted(reached):
        if isinstance(array := values[at], Argument):
            skipped = passed.bytes if isinstance(passed, Shifted) else 0
            addresses[at] = memory.add(_buffer(array, variable, number, skipped))
    for at in (at for at in in_memory(values) if at in reached) if isinstance(value, Packed) else ():
        struct = cast(Packed, values[at])
        data, maps = np.frombuffer(bytearray(struct.filled(addresses.__getitem__)), np.uint8), len(struct.maps)
        what = f"{maps} tensor maps" if maps * SIZE == data.size else f"struct of {data.size} bytes"
        addresses[at] = memory.add(Buffer(f"argument {number} ({variable.name}, {what})", data))
    if isinstance(passed, Mapped):
        return replace(passed.fields, address=addresses[position] + passed.bytes).encode()
    if position in addresses:
        return addresses[position].to_bytes(8, "little")
    return value.filled(addresses.__getitem__) if isinstance(value, Packed) else pack(variable, cast(Scalar, value))


def _buffer(argument: Argument, variable: Variable, position: int, skipped: int) -> Buffer:
    """An array as memory, but for its first bytes, with a name for messages."""
    data, what = argument.array()[skipped:], str(argument)
    if isinstance(argument.owner, np.ndarray):
        owner = cast(Array, argument.owner)
        what = f"{'x'.join(map(str, owner.shape)) or 'scalar'} {owner.dtype}"
    return Buffer(f"argument {position} ({variable.name}, {what})", data, bool(data.flags.writeable))


# A module ready to be launched on the CPU.

_CLUSTER = 16
_CLUSTER_SM = 90


def load(module: Module, name: str = "<ptx>", arch: str | None = None) -> Program:
    """A module to launch kernels of, decoded when first launched; the only kernel of a module at once. `arch` is the
    target whose matrix arithmetic is meant, such as "sm_80"; without it the module's own `.target`. Raises
    InterpreterError with file, line and column, at the first instruction that is not supported."""
    program = Program(module, name, arch)
    if len(program.kernels) == 1:
        program.kernel(program.kernels[0])
    return program


def refused(text: str, name: str = "<ptx>", arch: str | None = None) -> list[Diagnostic]:
    """What of the kernels in PTX text, and of the functions they call, cannot be run: each statement once, in the order
    of the file. Statements that cannot be read are omitted. Raises InterpreterError for a target that is none."""
    from ...dialect.ptx.check.module import Diagnostic
    from ...dialect.ptx.parser import read_ptx

    module, _ = read_ptx(text, name)
    if module is None:
        return []
    program = Program(module, name, arch)
    findings = [finding for kernel in program.kernels for finding in program.refused(kernel)]
    first = {(f.line, f.column, f.message): f for f in reversed(findings)}.values()
    return sorted(
        Diagnostic(f.line, f.column, f"cannot be interpreted: {f.message} (kernel {f.kernel})", f.source) for f in first
    )


class Program:
    """A decoded module. Its `.global` and `.const` variables keep their values from launch to launch."""

    def __init__(self, module: Module, name: str, arch: str | None) -> None:
        self.name = name
        self.target = arch or (module.targets[0] if module.targets else "sm_90")
        if not re.fullmatch(r"sm_\d+[af]?", self.target):
            raise InterpreterError(f"unknown target '{self.target}'; a target is written like sm_90a")
        variables = {v.name: v for v in module.items if isinstance(v, Variable)}
        names = NameScope()
        self._variables: dict[str, Buffer] = {}
        self._heap = Heap()
        self._places = static_places([v.name for v in variables.values() if v.space in ("global", "const")])
        functions = Functions.of(module)
        self._addresses = functions.addresses | self._places
        for function, address in functions.addresses.items():
            names.places[function] = VariablePlace("code", lambda _, at=address: at, code=address)
        for variable in variables.values():
            if variable.space in ("global", "const"):
                self._declare(variable, names)
        self._callable, self._names, self._declared = functions, names, variables
        self._sources = SourceLines(module)
        self._functions = {f.name: f for f in module.functions.values() if f.entry}
        self._kernels: dict[str, DecodedKernel] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(self._functions)

    def refused(self, kernel: str) -> list[Finding]:
        """What of a kernel, and of the functions it calls, cannot be run."""
        decoder = KernelDecoder(self._functions[kernel], self._names, self.name, self.target, self._callable)
        return decoder.refused(self._declared)

    def kernel(self, name: str) -> DecodedKernel:
        """A kernel, decoded at its first use, for others may have unsupported instructions. Raises InterpreterError if
        there is no such kernel, or at its first unsupported instruction."""
        function = self._functions.get(name)
        if function is None:
            listed = ", ".join(self._functions) or "none"
            raise InterpreterError(f"no kernel '{name}' in {self.name}; it has {listed}")
        if name not in self._kernels:
            decoder = KernelDecoder(function, self._names, self.name, self.target, self._callable)
            self._kernels[name] = replace(decoder.decode(self._declared), sources=self._sources)
        return self._kernels[name]

    def _declare(self, variable: Variable, names: NameScope) -> None:
        try:
            size, _ = size_of(variable)
            data = initial(variable, size, self._addresses.get)
        except (DecodeError, ValueError) as error:
            names.places[variable.name] = _unusable(InterpreterError(f"{self.name}:{variable.line}:1: error: {error}"))
            return
        self._variables[variable.name] = Buffer(f"variable {variable.name}", data)
        names.places[variable.name] = VariablePlace("global", lambda state: state.addresses[variable.name])

    def launch(
        self, launch: Launch, values: Sequence[LaunchValue], options: Options = DEFAULT,
        progress: Progress | None = None,
    ) -> Stats:  # fmt: skip
        """Runs a kernel to its end on values that were checked before, of which the launch says what it passes.

        Arrays are passed as pointers to their bytes and written in place; scalars by value. `progress` is called with
        the CTAs done and the CTAs there are. A kernel that checks find fault with runs to its end.

        Raises:
            InterpreterError: for a launch that cannot be, or when a thread does something wrong; `findings` has what.
            ArgumentError: for a name of no check.
        """
        decoded = self.kernel(launch.kernel)
        self._check_sizes(decoded, launch)
        sizes = replace(launch, cluster=self._cluster(decoded, launch.grid, launch.cluster))
        memory = GlobalBuffers(self._heap)
        for name, buffer in self._variables.items():
            memory.put(self._places[name], buffer)
        words = parameters(decoded, launch.arguments, values, memory)
        meeting = memory.add(Buffer("where the CTAs of a cooperative launch meet", np.zeros(WORKSPACE_BYTES, np.uint8)))
        places = {**self._places, WORKSPACE: meeting}
        launched = KernelRun(decoded, sizes, options, memory, words, places, progress, options.observer)
        return _checked(launched) if options.checks else run(launched)

    def _cluster(self, kernel: DecodedKernel, grid: Dim3, asked: Dim3 | None) -> Dim3 | None:
        """The clusters of a launch; None if it has none."""
        where, numbers = f"kernel {kernel.name}", kernel.function.numbers
        required = _three(numbers(".reqnctapercluster"))
        cluster = asked or required
        if cluster is None:
            if numbers(".explicitcluster") is not None:
                raise InterpreterError(f"{where}: .explicitcluster asks for a launch with a cluster")
            return None
        if required and cluster != required:
            raise InterpreterError(f"{where}: .reqnctapercluster asks for a cluster of {required}, got {cluster}")
        size, limit = cluster[0] * cluster[1] * cluster[2], (numbers(".maxclusterrank") or (_CLUSTER,))[0]
        if int(re.sub(r"\D", "", self.target)) < _CLUSTER_SM:
            raise InterpreterError(f"{where}: clusters need sm_{_CLUSTER_SM}, the target is {self.target}")
        if min(cluster) < 1 or size > limit:
            raise InterpreterError(f"{where}: expected a cluster of at most {limit} CTAs, got {cluster}")
        if any(n % c for n, c in zip(grid, cluster, strict=True)):
            raise InterpreterError(f"{where}: expected a grid that is a multiple of the cluster {cluster}, got {grid}")
        return cluster

    def _check_sizes(self, kernel: DecodedKernel, launch: Launch) -> None:
        where, numbers = f"kernel {kernel.name}", kernel.function.numbers
        limit = math.prod(numbers(".maxntid") or (launch.threads,))
        if launch.threads > limit:
            raise InterpreterError(f"{where}: a block has at most {limit} threads here, got {launch.threads}")
        required = _three(numbers(".reqntid"))
        if required and launch.block != required:
            raise InterpreterError(f"{where}: .reqntid asks for a block of {required}, got {launch.block}")
        target, static = TARGETS.get(self.target), kernel.layout.shared
        if target is not None and static > target.static_shared:
            raise InterpreterError(
                f"{where}: {static} bytes of static shared memory; ptxas takes at most {target.static_shared} for "
                f"{self.target}{', dynamic shared memory may be larger' * (target.suffix != 'a')}"
            )
        total = static + launch.shared
        if target is not None and total > target.shared:
            has = f"a CTA on {self.target} has at most {target.shared}"
            raise InterpreterError(f"{where}: {total} bytes of shared memory are asked for; {has}")


def _three(sizes: Sequence[int] | None) -> Dim3 | None:
    """The sizes of a directive; None without them."""
    return dim3(sizes, "sizes") if sizes else None


def _checked(launch: KernelRun) -> Stats:
    from .watch.checks import CheckObserver
    from .watch.findings import Observers

    checks = CheckObserver(launch.options.checks)
    others = () if launch.observer is None else (launch.observer,)
    try:
        stats = run(replace(launch, observer=Observers((checks, *others))))
    except InterpreterError as fault:
        raise checks.error(fault) or fault from fault
    error = checks.error()
    if error is not None:
        raise error
    return replace(stats, notes=checks.findings.notes())


def _unusable(error: InterpreterError) -> VariablePlace:
    """A variable that a kernel is refused for when it comes to use it."""

    def address(state: State) -> int:
        raise error

    return VariablePlace("global", address)
