"""Calls with torch's tensors on a GPU: a call is checked and packed once for all tensors that lie alike.

Later calls look at what tells tensors apart, put the addresses in, and enqueue the launches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..arguments.arrays import Argument, memory_maker, stream_reader
from ..arguments.launch_values import LaunchValue
from ..arguments.signature import Signature
from ..base.launch import Plan
from .binding import bind, launch_values
from .module import LaunchPlace, PtxModule, choose_place

if TYPE_CHECKING:
    from ..cuda.driver import Gpu
    from ..cuda.launches import Launches

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
        from ..cuda.launch import packed, stream_of
        from ..cuda.launches import GpuProgram

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
