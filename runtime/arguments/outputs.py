"""Outputs that a caller did not bring: made by the library whose arrays were given, numpy where there are none."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from ..base.errors import ArgumentError
from ..numerics.array import Array
from .arrays import is_array
from .dtypes import PACKED
from .elements import ELEMENT_NAMES
from .signature import Parameter


def library_of(value: object) -> str:
    """The package that an array is of: "numpy", "torch", "jax", "cupy" or another."""
    return type(value).__module__.partition(".")[0].replace("jaxlib", "jax")


def model_of(values: Iterable[object]) -> object | None:
    """The array after which others are made: the first that is not numpy's, if there is one."""
    return next((v for v in values if is_array(v) and not isinstance(v, np.ndarray)), None)


def allocate(parameter: Parameter, shape: tuple[int, ...], like: object | None, *, zeros: bool) -> object:
    """An array for `parameter`, of the library and on the device of `like`; with `zeros` all zeros, else of any values.
    Where arrays of that library never change (jax), one of numpy, for `finished` to turn.

    Raises:
        ArgumentError: saying why none can be made.
    """
    library = "numpy" if like is None else library_of(like)
    if parameter.element in PACKED:
        raise ArgumentError(f"no array of {parameter} is made, as numpy keeps an element in a byte; pass the bytes")
    if library == "torch":
        return _torch(parameter, shape, cast(Any, like), zeros)
    if library == "cupy":
        cupy = cast(Any, sys.modules["cupy"])
        return (cupy.zeros if zeros else cupy.empty)(shape, parameter.dtype)
    if library == "jax" and _on_gpu(like):
        raise ArgumentError("arrays of jax on a GPU cannot be written; pass an output of torch or cupy")
    if library not in ("numpy", "jax"):
        raise ArgumentError(f"no arrays of {library} are made; pass the outputs too")
    return laid_out(np.zeros(shape, parameter.dtype), parameter) if zeros else empty(parameter, shape)


def finished(array: object, like: object | None) -> object:
    """An array that a call wrote, as its caller gets it: one of jax where `like` is."""
    if like is None or library_of(like) != "jax":
        return array
    return cast(Any, sys.modules["jax"]).numpy.asarray(array)


def empty(parameter: Parameter, shape: tuple[int, ...]) -> Array:
    """A numpy array of any values whose elements lie as `parameter` wants them to."""
    if parameter.strides is None:
        return np.empty(shape, parameter.dtype)
    elements = _steps(parameter, shape)
    count = 1 + sum(max(0, n - 1) * step for n, step in zip(shape, elements, strict=True))
    size = parameter.dtype.itemsize
    # Bytes, because arrays of types that are not numpy's own have no buffer.
    memory = np.zeros(count * size, np.uint8)
    array: Array = np.ndarray(shape, parameter.dtype, memory.data, 0, [size * step for step in elements])
    return array


def laid_out(array: Array, parameter: Parameter) -> Array:
    """A copy of an array as `parameter` wants it to lie in memory."""
    copy = empty(parameter, array.shape)
    copy[...] = array
    return copy


def _steps(parameter: Parameter, shape: tuple[int, ...]) -> list[int]:
    """Elements from one index to the next: as the parameter says, else behind all that lie nearer, the last first."""
    wanted = parameter.strides or (None,) * len(shape)
    steps = [0 if step is None else step for step in wanted]
    span = max((step * extent for step, extent in zip(steps, shape, strict=True)), default=0)
    for i in reversed([i for i, step in enumerate(wanted) if step is None]):
        steps[i] = max(span, 1)
        span = steps[i] * max(shape[i], 1)
    return steps


def _torch(parameter: Parameter, shape: tuple[int, ...], like: Any, zeros: bool) -> object:
    torch = cast(Any, sys.modules["torch"])
    dtype = getattr(torch, ELEMENT_NAMES[parameter.element].numpy, None)
    if dtype is None:
        raise ArgumentError(f"torch has no tensors of {parameter.element}; pass the output")
    tensor = torch.empty_strided(shape, _steps(parameter, shape), dtype=dtype, device=like.device, requires_grad=False)
    return tensor.zero_() if zeros else tensor


def _on_gpu(value: object) -> bool:
    return int(cast(Any, value).__dlpack_device__()[0]) != 1
