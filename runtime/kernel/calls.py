"""Calls with torch's tensors on a GPU: a call is checked and packed once for all tensors that lie alike.

Later calls look at what tells tensors apart, put the addresses in, and enqueue the launches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..arguments.arrays import Argument, current_stream
from ..arguments.launch_values import LaunchValue
from ..arguments.signature import Signature
from ..base.launch import Plan
from .binding import bind, launch_values
from .module import LaunchPlace, PtxModule, choose_place

if TYPE_CHECKING:
    from ..cuda.driver import Gpu

CallKey: TypeAlias = tuple[object, ...]

REMEMBERED = 256
"""Calls that a kernel remembers."""

ALIGNED = 256
"""Bytes: a call depends on addresses only by what is left of them modulo this."""


@dataclass(frozen=True)
class Call:
    """A call whose arguments were checked.

    - `enqueue`: enqueues the launches on arrays at these addresses, on a stream.
    - `makers`: functions that allocate the outputs which a caller omits, by position.
    - `overlaps`: positions of a written array and another one, each with its bytes.
    """

    function: Signature
    enqueue: Callable[[list[int], int], None]
    place: LaunchPlace
    device: int
    makers: Mapping[int, Callable[[], object]]
    overlaps: tuple[tuple[int, int, int, int], ...]

    def __call__(self, args: Sequence[object], addresses: list[int]) -> object:
        """Enqueue the launches on torch's current stream; `addresses` are those of the arguments.

        Returns:
            The outputs that were left out; if there are none, the `LaunchPlace`.

        Raises:
            ArgumentError: if an array that is written shares memory with another.
        """
        results = list[object]()
        for i, make in self.makers.items():  # in order of positions
            made = cast(Any, make())
            results.append(made)
            args = [*args[:i], made, *args[i:]]
            addresses.insert(i, made.data_ptr())
        for i, size, j, other in self.overlaps:
            first, second = addresses[i], addresses[j]
            if first < second + other and second < first + size:
                launch_values(self.function, args)  # refuses elements in common
        self.enqueue(addresses, current_stream(self.device))
        return self.place if not results else results[0] if len(results) == 1 else tuple(results)


def key_of(args: Sequence[object]) -> tuple[CallKey, list[int]] | None:
    """The key of a call, and the addresses of the arguments, 0 for numbers. None if an argument is neither a number nor
    a plain tensor of torch."""
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


@dataclass
class Calls:
    """The calls of a kernel that were checked, by what they depend on."""

    function: Signature
    module: PtxModule
    plan_for: Callable[[Sequence[LaunchValue]], Plan]
    checked: dict[CallKey, Call] = field(default_factory=dict["CallKey", "Call"])

    def find(self, args: Sequence[object]) -> Callable[[], object] | None:
        """A call with these arguments; None unless all arrays are torch's and lie in GPU memory.

        Raises:
            ArgumentError: naming the argument, if one does not fit its parameter.
            DeviceUnavailableError: if the GPU does not run the target.
        """
        if (key_and_addresses := key_of(args)) is None:
            return None
        key, addresses = key_and_addresses
        if (call := self.checked.get(key)) is None:
            devices = [cast(Any, arg).get_device() for arg in args if type(arg) is not int]
            if not devices or min(devices) < 0:
                return None
            if len(self.checked) >= REMEMBERED:
                self.checked.clear()
            call = self.checked[key] = self._check(args)
        return partial(call, args, addresses)

    def _check(self, args: Sequence[object]) -> Call:
        from ..cuda.launch import enqueue, packed, stream_of

        function, module = self.function, self.module
        bound = bind(function, args, {})
        values = launch_values(function, bound.arguments)
        plan = self.plan_for(values)
        place = choose_place("cuda", module.target, values)
        gpu = cast("Gpu", place.gpu)
        stream = stream_of(gpu, values)
        launches = packed(gpu, module.text, module.kernels, plan, values, stream)
        arrays = {i: value for i, value in enumerate(values) if isinstance(value, Argument)}
        overlaps = tuple(
            (i, arrays[i].nbytes, j, other.nbytes) for i in sorted(function.written & arrays.keys())
            for j, other in arrays.items() if i != j
        )  # fmt: skip
        enqueued = partial(enqueue, launches, plan.scratch)
        return Call(function, enqueued, place, gpu.device.ordinal, bound.makers, overlaps)
