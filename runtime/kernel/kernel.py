"""Kernels: what compiling a function gives, and calling it.

Nothing here imports the compiler, so that a kernel that was kept is called without it, nor numpy, so that a kernel is
compiled without that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...dialect.schedule import Schedule
from ..base.errors import ArgumentError
from ..base.launch import Checks, Launch, Options, Plan, Progress, Signature

if TYPE_CHECKING:
    from ...dialect.ptx.text.syntax import Function
    from ..arguments.launch_values import LaunchValue
    from ..base.launch import Problem
    from ..cuda.driver import Gpu
    from ..cuda.launch import Graph, Prepared
    from ..cuda.launches import Launches
    from .module import LaunchPlace, PtxModule

# Calls with torch's tensors on a GPU: a call is checked and packed once for all tensors that lie alike. Later calls
# look at what tells tensors apart, put the addresses in, and enqueue the launches.

CallKey: TypeAlias = tuple[object, ...]

REMEMBERED = 256
"""Calls that a kernel remembers."""

ALIGNED = 256
"""Bytes: a call depends on addresses only by what is left of them modulo this."""


@dataclass
class Call:
    """A call whose arguments were checked.

    - `place`: where its launches run; `stream` reads torch's current stream there.
    - `makers`: functions that allocate the outputs which a caller omits, by position.
    - `scratch`: functions that allocate the scratch memory of a call.
    - `overlaps`: positions of a written array and another one, both the caller's, each with its bytes.
    - `fits`: whether other arguments differ from the checked ones by their addresses alone; None where torch has no
      function that tells. `offsets` are the addresses modulo ALIGNED.
    - `addresses`: those of the last call, in which arrays that are written were apart from others.
    """

    function: Signature
    launches: Launches
    place: LaunchPlace
    stream: Callable[[], int]
    makers: Mapping[int, Callable[[], object]]
    scratch: Sequence[Callable[[], Any]]
    overlaps: tuple[tuple[int, int, int, int], ...]
    fits: Callable[..., bool] | None
    offsets: list[int]
    addresses: list[int] = field(default_factory=list[int])

    def takes(self, addresses: list[int]) -> bool:
        """Whether arguments that it fits may have these addresses."""
        return addresses == self.addresses or [address % ALIGNED for address in addresses] == self.offsets

    def __call__(self, args: Sequence[object], addresses: list[int]) -> object:
        """Enqueue the launches on torch's current stream; `addresses` are those of the arguments.

        Returns:
            The outputs that were left out; if there are none, the `LaunchPlace`.

        Raises:
            ArgumentError: if an array that is written shares memory with another.
        """
        if self.makers:
            return self._with_outputs(args, addresses)
        if addresses != self.addresses:
            self._check_apart(args, addresses)
            self.addresses = addresses
        self._enqueue(addresses)
        return self.place

    def _with_outputs(self, args: Sequence[object], addresses: list[int]) -> object:
        complete, results = list(args), list[Any]()
        for i, make in self.makers.items():  # in order of positions
            results.append(made := cast(Any, make()))
            complete.insert(i, made)
            addresses.insert(i, made.data_ptr())
        self._check_apart(complete, addresses)
        self._enqueue(addresses)
        return results[0] if len(results) == 1 else tuple(results)

    def _enqueue(self, addresses: list[int]) -> None:
        if self.scratch:
            memory = [make() for make in self.scratch]
            addresses = [*addresses, *(one.data_ptr() for one in memory)]
        self.launches(addresses, self.stream())

    def _check_apart(self, args: Sequence[object], addresses: list[int]) -> None:
        for i, size, j, other in self.overlaps:
            first, second = addresses[i], addresses[j]
            if first < second + other and second < first + size:
                from .binding import launch_values

                launch_values(self.function, args)  # refuses elements in common


def key_of(args: Sequence[object]) -> tuple[CallKey, list[int]] | None:
    """The key of a call, and the addresses of its arguments (0: numbers); None if one is no plain tensor of torch."""
    torch = cast(Any, sys.modules["torch"])
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    key, addresses = list[object](), list[int]()
    for arg in args:
        kind = type(arg)
        if kind is tensor or kind is parameter:
            one: Any = arg
            try:
                address = one.data_ptr()
                key.append((
                    one.dtype, one.shape, one.stride(), one.get_device(), one.requires_grad, one.is_neg(),
                    address % ALIGNED,
                ))  # fmt: skip
            except RuntimeError:  # a tensor without memory or strides
                return None
            addresses.append(address)
        elif kind is int:
            key.append(arg)
            addresses.append(0)
        else:
            return None
    return tuple(key), addresses


def fitting(args: Sequence[object]) -> Callable[..., bool] | None:
    """A function of torch's that tells in one call whether tensors have the types, devices, sizes and strides of these,
    require gradients, are negatives of their memory, and so on, as these do or do not. None where there is none, or
    numbers are among the arguments."""
    guards = getattr(getattr(cast(Any, sys.modules["torch"])._C, "_dynamo", None), "guards", None)
    if guards is None or any(type(arg) is int for arg in args):
        return None
    return guards.TensorGuards(*args, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


@dataclass
class Calls:
    """The calls of a kernel that were checked, by what they depend on, and the last one of them."""

    function: Signature
    module: PtxModule
    plan_for: Callable[[Sequence[LaunchValue]], Plan]
    checked: dict[CallKey, Call] = field(default_factory=dict["CallKey", "Call"])
    last: Call | None = None

    def __call__(self, args: Sequence[object]) -> object:
        """Call the kernel with these arguments.

        Returns:
            What `Call` returns; None, and nothing was called, unless all arrays are torch's and lie in GPU memory.

        Raises:
            ArgumentError: naming the argument, if one does not fit its parameter.
            DeviceUnavailableError: if the GPU does not run the target.
        """
        call, tensors = self.last, cast("Sequence[Any]", args)
        if call is not None and len(args) == len(call.offsets) and call.fits is not None and call.fits(*args):
            addresses = [tensor.data_ptr() for tensor in tensors]
            if call.takes(addresses):
                return call(args, addresses)
        if sys.modules.get("torch") is None or (key_and_addresses := key_of(args)) is None:
            return None
        key, addresses = key_and_addresses
        if (call := self.checked.get(key)) is None:
            devices = [cast(Any, arg).get_device() for arg in args if type(arg) is not int]
            if not devices or min(devices) < 0:
                return None
            if len(self.checked) >= REMEMBERED:
                self.checked.clear()
            call = self.checked[key] = self._check(args, addresses)
        elif call is self.last:  # which did not fit in a mode of torch that is another one now
            call.fits = fitting(args)
        self.last = call
        return call(args, addresses)

    def _check(self, args: Sequence[object], addresses: list[int]) -> Call:
        from ..arguments.arrays import Argument, memory_maker, stream_reader
        from ..cuda.launch import packed, stream_of
        from ..cuda.launches import GpuProgram
        from .binding import bind, launch_values
        from .module import choose_place

        function, module = self.function, self.module
        bound = bind(function, args, {})
        values = launch_values(function, bound.arguments)
        plan = self.plan_for(values)
        place = choose_place("cuda", module.target, values)
        gpu = cast("Gpu", place.gpu)
        stream_of(gpu, values)  # waits where they were made on several
        arrays = {i: value for i, value in enumerate(values) if isinstance(value, Argument)}
        overlaps = tuple(
            (i, arrays[i].nbytes, j, other.nbytes) for i in sorted(function.written & arrays.keys())
            for j, other in arrays.items() if i != j and bound.makers.keys().isdisjoint((i, j))
        )  # fmt: skip
        ordinal = gpu.device.ordinal
        return Call(
            function=function,
            launches=packed(GpuProgram(gpu, module.text, module.kernels), plan, values),
            place=place,
            stream=stream_reader(ordinal),
            makers=bound.makers,
            scratch=tuple(memory_maker(buffer, f"cuda:{ordinal}") for buffer in plan.scratch),
            overlaps=overlaps,
            fits=fitting(args),
            offsets=[address % ALIGNED for address in addresses],
        )


# Kernels.

ScheduleOption: TypeAlias = str | int | Sequence[int]
OnPhase: TypeAlias = Callable[[str, float], None]
"""Called with the name of each phase of the compilation and the seconds it took."""

WAIT, NEWLINE = "griddepcontrol.wait;", "\n"
"""By which a kernel waits for earlier launches; and between the lines of its text."""


@dataclass(frozen=True, repr=False)
class Kernel:
    """A compiled host function, which is called with arrays.

    - `function`: the signature.
    - `plan`: what a call launches, in order, and the scratch memory that the launches share.
    - `schedules`: the schedule of each kernel by its name; None for a kernel without one.
    - `host`: where launches depend on the sizes of arguments, the lowered host function as text; elsewhere "".
    """

    function: Signature
    plan: Plan
    schedules: Mapping[str, Schedule | None] = field(hash=False)
    ptx: str
    target: str
    name: str = "<mlir>"
    host: str = ""

    def __repr__(self) -> str:
        count = len(self.launches)
        launches = f"{count} launch{'es' if count > 1 else ''}"
        if len(self.schedules) > len({launch.kernel for launch in self.launches}):
            launches += f" of {len(self.schedules)} kernels, by size and strides"
        chosen = "; ".join(str(schedule) for schedule in self.schedule if schedule is not None)
        return f"<Kernel {self.function} for {self.target}: {launches}{f', {chosen}' if chosen else ''}>"

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling and copying: the fields, without what is cached."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _repr_html_(self) -> str:
        """What it computes and launches, with the PTX, for notebooks."""
        from html import escape

        rows = [("function", str(self.function)), ("target", self.target)]
        for launch, schedule in zip(self.launches, self.schedule, strict=True):
            sizes = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
            rows.append((launch.kernel, "grid {}, block {}, {} bytes of shared memory".format(*sizes, launch.shared)))
            rows += [] if schedule is None else [("schedule", str(schedule))]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        summary = f"<summary>PTX, {len(self.ptx.splitlines())} lines</summary>"
        table = f"<table>{cells}</table><details>{summary}<pre>{escape(self.ptx)}</pre></details>"
        return f"{self._repr_svg_() or ''}{table}"

    def _repr_svg_(self) -> str | None:
        """The result of its first product in tiles, for notebooks; None for one without a product of known size."""
        from ...dialect.schedule.picture import result_picture

        products = ((p, s) for p, s in zip(self._problems(), self.schedule, strict=True) if p is not None)
        problem, schedule = next(products, (None, None))
        if problem is None or schedule is None:
            return None
        return result_picture(str(problem), problem.m, problem.n, schedule)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of a call, in order."""
        return self.plan.launches

    @property
    def schedule(self) -> tuple[Schedule | None, ...]:
        """The schedule of each launch; None for a kernel without one."""
        return tuple(self.schedules[launch.kernel] for launch in self.launches)

    def called_with(self, *args: object) -> Kernel:
        """The same kernel with the launches of a call with these arguments. If launches depend on sizes, this evaluates
        them before the call.

        Raises:
            ArgumentError: if an argument does not fit its parameter.
        """
        from .binding import launch_values

        return replace(self, plan=self.plan_for(launch_values(self.function, args)))

    @property
    def scratch(self) -> tuple[int, ...]:
        """The sizes in bytes of the scratch buffers of a call."""
        return tuple(buffer.bytes for buffer in self.plan.scratch)

    @cached_property
    def binary(self) -> PtxModule:
        """The PTX, parsed for launching."""
        from .module import PtxModule

        return PtxModule(self.ptx, f"<PTX of {self.name}>")

    @cached_property
    def entries(self) -> Mapping[str, Function]:
        """The kernels as launches on a GPU need them, by name: of a body only whether it waits for earlier launches,
        because to parse all of it takes ten times as long."""
        from ...dialect.ptx.parser import parse_ptx

        def waiting(body: re.Match[str]) -> str:
            return f"{{{WAIT if WAIT in body[0] else ''}{NEWLINE * body[0].count(NEWLINE)}}}"

        return parse_ptx(re.sub(r"^\{$.*?^\}$", waiting, self.ptx, flags=re.MULTILINE | re.DOTALL)).functions

    @property
    def cubin(self) -> bytes:
        """Machine code for the kernel's target, made by ptxas or read from the cache on disk.

        Raises:
            AssemblerError: if there is no ptxas.
        """
        from ..cuda.ptxas import machine_code

        return machine_code(self.ptx, self.target).cubin

    def __call__(
        self,
        *args: object,
        out: object = None,
        device: str = "auto",
        progress: Progress | None = None,
        arch: str | None = None,
        checks: Checks = (),
        report: bool = False,
        max_steps: int | None = None,
        trace: bool = False,
        **named: object,
    ) -> Any:
        """Run the function on arrays, and write its outputs in place.

        Arguments are numpy arrays (ml_dtypes.bfloat16 for bf16), or objects with `__cuda_array_interface__` or
        `__dlpack__`, by position or by the names of the function's parameters. You may omit outputs. The library of the
        given arrays then allocates them on the same device. They start as zeros if the function accumulates into them.

        - `out`: arrays for the outputs that are left out of the arguments: one array, several, or a mapping by name.
        - `device`: "interp", "cuda", or "auto", which takes a GPU if there is one that runs the target. If all arrays
          are in GPU memory, the launches are enqueued on the stream of the arrays' producer, and not waited for.
        - `progress`: called at intervals with the part of an interpreted launch that is done.
        - `arch`: the target whose matrix arithmetic the interpreter uses instead of the kernel's own.
        - `checks`: what the interpreter checks in addition to faults: names such as "races", or "all".
        - `report`: run on the interpreter, and count instructions, bank conflicts and sectors.
        - `trace`: run on the interpreter, and record what each warp does at which time, in modelled cycles.
        - `max_steps`: end an interpreted launch with an error after so many steps. A step is one instruction for all
          threads that run it together.

        Returns:
            The outputs that were left out or given as `out`: one array, or a tuple of several. If every argument is
            given, a `LaunchPlace` instead, which says where the function ran, and holds the report and the trace of
            each launch if asked for.

        Raises:
            ArgumentError: naming the argument, if one does not fit its parameter.
            DeviceUnavailableError: if a GPU is asked for and there is none that runs the target.
            WarploomError: if the kernel fails.
        """
        plain = not (named or checks or report or trace) and out is progress is arch is max_steps is None
        if plain and device in ("auto", "cuda") and (done := self._calls(args)) is not None:
            return done
        from .binding import bind, launch_values

        bound = bind(self.function, args, named, out)
        if (report or trace) and bound.results:
            missing, what = ", ".join(map(self.function.argument, bound.results)), "report" if report else "trace"
            raise ArgumentError(f"a call with every argument returns a {what}; pass {missing} by position or by name")
        options = Options(arch, checks, report, max_steps, trace=trace)
        values = launch_values(self.function, bound.arguments)
        plan = self.plan_for(values)
        place = self.binary.run(
            plan, values, device=device, written=self.function.written, progress=progress, options=options
        )
        if bound.results:
            return bound.returned()
        if not report:
            return place
        problems = replace(self, plan=plan)._problems()
        return replace(place, reports=tuple(r.against(p) for r, p in zip(place.reports, problems, strict=True)))

    @cached_property
    def _calls(self) -> Calls:
        """The calls with torch's tensors in GPU memory."""
        return Calls(self.function, self.binary, self.plan_for)

    def graph(self, *args: object, **named: object) -> Graph:
        """A call on these arrays in GPU memory as a CUDA graph: one call of the driver for all launches. The arrays
        must stay alive.

        Raises:
            ArgumentError: if one is missing, does not fit its parameter or lies in host memory.
            DeviceUnavailableError: if there is no GPU that runs the target.
        """
        return self.prepare(*args, **named).graph()

    def _problems(self) -> list[Problem | None]:
        """The product that each launch computes: one for each launch with a schedule, None for the others."""
        products = iter(self.function.products)
        if sum(s is not None for s in self.schedule) != len(self.function.products):
            return [None] * len(self.schedule)
        return [None if s is None else next(products) for s in self.schedule]

    def prepare(self, *args: object, **named: object) -> Prepared:
        """A call on these arrays in GPU memory. It is checked and packed once, and can be enqueued many times.

        Raises:
            ArgumentError: if one is missing, does not fit its parameter or lies in host memory.
            DeviceUnavailableError: if there is no GPU that runs the target.
        """
        from .binding import bind, launch_values

        bound = bind(self.function, args, named)
        if bound.results:
            missing = ", ".join(map(self.function.argument, bound.results))
            raise ArgumentError(f"{self.function}: a prepared call has all its arguments; missing: {missing}")
        values = launch_values(self.function, bound.arguments)
        return self.binary.prepare(self.plan_for(values), values)

    def plan_for(self, values: Sequence[LaunchValue]) -> Plan:
        """The launches and the scratch memory of a call with these arguments."""
        return self._planner(values) if self.plan.dynamic else self.plan

    @cached_property
    def _planner(self) -> Callable[[Sequence[LaunchValue]], Plan]:
        from ..plan.host import planner

        return planner(self.host, self.function.name)
