"""The arguments of a call, by position or by name: what each may be, and the outputs that it left out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from ..arguments.arrays import DTYPES, PACKED, Argument, DType, borrow, element_of, is_array
from ..arguments.launch_values import LaunchValue, Scalar, packed_number
from ..base.errors import ArgumentError
from ..base.launch import ELEMENT_NAMES, Parameter, Signature, describe, extents, position_of
from ..numerics.floats import Array

# Outputs that a caller did not bring: made by the library whose arrays were given, numpy where there are none.


def library_of(value: object) -> str:
    """The package that an array is of: "numpy", "torch", "jax", "cupy" or another."""
    packages = [kind.__module__.partition(".")[0].replace("jaxlib", "jax") for kind in type(value).__mro__]
    return next((package for package in packages if package in ("numpy", "torch", "jax", "cupy")), packages[0])


def model_of(values: Iterable[object]) -> object | None:
    """The array after which others are made: the first that is not numpy's, if there is one."""
    return next((v for v in values if is_array(v) and not isinstance(v, np.ndarray)), None)


def allocator(
    parameter: Parameter, shape: tuple[int, ...], like: object | None, *, zeros: bool
) -> Callable[[], object]:
    """A function that allocates arrays for `parameter`, of the library and on the device of `like`. With `zeros` they
    are zero, otherwise uninitialised. For a library with immutable arrays (jax) it allocates numpy arrays, which
    `finished` converts. Raises ArgumentError if none can be allocated, with the reason."""
    library = "numpy" if like is None else library_of(like)
    if parameter.element in PACKED:
        raise ArgumentError(f"no array of {parameter} is made, as numpy keeps an element in a byte; pass the bytes")
    if library == "torch":
        return _torch(parameter, shape, cast(Any, like), zeros)
    if library == "cupy":
        cupy = cast(Any, sys.modules["cupy"])
        return partial(cupy.zeros if zeros else cupy.empty, shape, DTYPES[parameter.element])
    if library == "jax" and int(cast(Any, like).__dlpack_device__()[0]) != 1:
        raise ArgumentError("arrays of jax on a GPU cannot be written; pass an output of torch or cupy")
    if library not in ("numpy", "jax"):
        raise ArgumentError(f"no arrays of {library} are made; pass the outputs too")
    if zeros:
        return lambda: laid_out(np.zeros(shape, DTYPES[parameter.element]), parameter)
    return partial(empty, parameter, shape)


def finished(array: object, like: object | None) -> object:
    """An output array as the caller gets it, converted to jax if `like` is a jax array."""
    if like is None or library_of(like) != "jax":
        return array
    return cast(Any, sys.modules["jax"]).numpy.asarray(array)


def empty(parameter: Parameter, shape: tuple[int, ...]) -> Array:
    """An uninitialised numpy array with the strides of `parameter`."""
    if parameter.strides is None:
        return np.empty(shape, DTYPES[parameter.element])
    elements = _steps(parameter, shape)
    count = 1 + sum(max(0, n - 1) * step for n, step in zip(shape, elements, strict=True))
    size = DTYPES[parameter.element].itemsize
    # Bytes, because arrays of types that are not numpy's own have no buffer.
    memory = np.zeros(count * size, np.uint8)
    array: Array = np.ndarray(shape, DTYPES[parameter.element], memory.data, 0, [size * step for step in elements])
    return array


def laid_out(array: Array, parameter: Parameter) -> Array:
    """A copy of an array with the strides of `parameter`."""
    copy = empty(parameter, array.shape)
    copy[...] = array
    return copy


def _steps(parameter: Parameter, shape: tuple[int, ...]) -> list[int]:
    """Strides in elements; those that the parameter leaves open as without gaps, the last dimension first."""
    wanted = parameter.strides or (None,) * len(shape)
    steps = [0 if step is None else step for step in wanted]
    span = max((step * extent for step, extent in zip(steps, shape, strict=True)), default=0)
    for i in reversed([i for i, step in enumerate(wanted) if step is None]):
        steps[i] = max(span, 1)
        span = steps[i] * max(shape[i], 1)
    return steps


def _torch(parameter: Parameter, shape: tuple[int, ...], like: Any, zeros: bool) -> Callable[[], object]:
    torch = cast(Any, sys.modules["torch"])
    dtype = getattr(torch, ELEMENT_NAMES[parameter.element].numpy, None)
    if dtype is None:
        raise ArgumentError(f"torch has no tensors of {parameter.element}; pass the output")
    kind = {"dtype": dtype, "device": like.device, "requires_grad": False}
    make = partial(torch.empty_strided, shape, _steps(parameter, shape), **kind)
    return (lambda: make().zero_()) if zeros else make


# Arguments that share memory: what a kernel writes must be memory of its own.


def check_overlap(
    arguments: Mapping[int, Argument], parameters: tuple[Parameter, ...], written: frozenset[int]
) -> None:
    """Refuse a written argument that shares memory with another one, or within itself: the result would depend on
    timing. Raises ArgumentError naming the arguments."""
    for i in sorted(written & arguments.keys()):
        name = f"argument {i} (%{parameters[i].name})"
        if is_folded(arguments[i]):
            raise ArgumentError(
                f"{name} is written, and elements of it share memory (strides of {arguments[i].byte_strides} bytes); "
                "pass an array whose elements are apart"
            )
        for j, other in arguments.items():
            if i != j and overlap(arguments[i], other):
                raise ArgumentError(
                    f"{name} is written and shares memory with "
                    f"argument {j} (%{parameters[j].name}); pass separate arrays"
                )


def overlap(first: Argument, second: Argument) -> bool:
    """Whether two arrays have an element in common."""
    apart = first.address + first.nbytes <= second.address or second.address + second.nbytes <= first.address
    if first.on_device != second.on_device or apart or min(first.nbytes, second.nbytes) == 0:
        return False
    return bool(np.shares_memory(first.elements(first.raw()), second.elements(second.raw())))


def is_folded(argument: Argument) -> bool:
    """Whether elements of an array may share memory: a step along one dimension is within what smaller ones reach."""
    reach = argument.itemsize
    for stride, size in sorted(zip(map(abs, argument.byte_strides), argument.shape, strict=True)):
        if size > 1 and stride < reach:
            return 0 not in argument.shape
        reach += (size - 1) * stride
    return False


# Whether a parameter takes an argument: its shape, its elements, where they lie, and that it may be written.

REMEMBERED = 256
"""Kinds of arguments that a parameter remembers to take."""


def check(argument: Argument, parameter: Parameter, position: int, *, written: bool) -> None:
    """Checks that `parameter` can take an argument. Raises ArgumentError naming the argument by position and name, what
    was expected and what was got."""
    kind = (argument.shape, argument.strides, argument.element, argument.packed, argument.writable or not written)
    if kind not in parameter.accepted_kinds:
        _check(argument, parameter, position, written=written)
        if len(parameter.accepted_kinds) >= REMEMBERED:
            parameter.accepted_kinds.clear()
        parameter.accepted_kinds.add(kind)


def _check(argument: Argument, parameter: Parameter, position: int, *, written: bool) -> None:
    where = f"argument {position} (%{parameter.name})"
    if not parameter.takes_shape(argument.shape) or not _same_words(argument, DTYPES[parameter.element]):
        raise ArgumentError(f"{where}: expected {parameter}, got {argument}")
    if not _has_layout_of(argument, parameter):
        order = "" if parameter.strides is not None else " in row-major order without gaps"
        raise ArgumentError(
            f"{where}: expected {parameter}{order}, got strides of {argument.byte_strides} bytes{_copy_for(parameter)}"
        )
    if (number := _misfit(argument, parameter)) is not None:
        raise ArgumentError(
            f"{where}: warp.divisible promises extents and strides that are multiples of {parameter.divisor}, got "
            f"{number}"
        )
    if written and not argument.writable:
        raise ArgumentError(f"{where}: the kernel writes it, but the array is read-only; pass a writable copy")


def _copy_for(parameter: Parameter) -> str:
    """A hint how to copy an argument so that the parameter accepts it; empty if no single call does it."""
    *outer, last = parameter.strides or (1,)
    if last in (None, 1) and set(outer) <= {None}:
        return "; pass a contiguous copy (numpy.ascontiguousarray, torch's .contiguous())"
    return ""


def _has_layout_of(argument: Argument, parameter: Parameter) -> bool:
    """Whether the elements of an argument of the right shape lie where the parameter has them."""
    if parameter.strides is None:
        return argument.contiguous
    if 0 in argument.shape:
        return True
    for extent, stride, expected in zip(argument.shape, argument.byte_strides, parameter.strides, strict=True):
        elements, rest = divmod(stride, argument.itemsize)
        if extent > 1 and (rest or elements < 0 or expected not in (None, elements)):
            return False
    return True


def _misfit(argument: Argument, parameter: Parameter) -> int | None:
    """An extent or stride of the argument that the parameter's divisor does not divide."""
    if parameter.divisor == 1:
        return None
    last = len(argument.shape) - 1
    steps = parameter.strides or tuple(int(i == last) for i in range(len(argument.shape)))
    strides = [stride // argument.itemsize for stride in argument.byte_strides]
    shape = zip(parameter.shape or (), argument.shape, steps, strict=True)
    checked = [extent for wanted, extent, step in shape if step == 1 and wanted < 0]
    checked += [s for s, n, step in zip(strides, argument.shape, steps, strict=True) if step is None and n > 1]
    return next((number for number in checked if number % parameter.divisor), None)


def _same_words(argument: Argument, expected: DType) -> bool:
    """Equal types, signless integers, bytes of truth values, and raw words ('V2', as numpy loads files of bf16)."""
    if argument.itemsize != expected.itemsize or argument.packed != PACKED.get(element_of(expected), 1):
        return False
    if argument.element == element_of(expected) or argument.element.startswith("|V"):
        return True
    if argument.element in ("i1", "bool"):
        return element_of(expected) == "i8"
    return argument.element.removeprefix("u") == element_of(expected).removeprefix("u")


# The arguments of a call, by position or by name, with the outputs that it did not bring; and what they may be.


@dataclass(frozen=True)
class Bound:
    """The arguments of a call, the positions of its results, and what makes the outputs that were not passed."""

    arguments: tuple[object, ...]
    results: tuple[int, ...]
    model: object | None
    makers: Mapping[int, Callable[[], object]]

    def returned(self) -> object:
        """The outputs that the call returns: one, or several as a tuple."""
        outputs = tuple(finished(self.arguments[i], self.model) for i in self.results)
        return outputs[0] if len(outputs) == 1 else outputs


def bind(function: Signature, args: Sequence[object], named: Mapping[str, object], out: object = None) -> Bound:
    """Every argument of a call. Outputs that are not given are made; one that the function reads before it writes it,
    as C in C += A B, starts as zeros. Raises ArgumentError naming the argument that is missing, unknown or given twice,
    or cannot be made."""
    if len(args) > len(function.parameters):
        raise ArgumentError(_miscounted(function, len(args)))
    arguments = dict(enumerate(args))
    for name, value in named.items():
        _give(function, arguments, position_of(name, function.parameters), value)
    outputs = [i for i in sorted(function.written) if i not in arguments]
    for i, value in _out(function, out, outputs).items():
        _give(function, arguments, i, value)
    missing = [i for i in range(len(function.parameters)) if i not in arguments and i not in function.written]
    if missing:
        raise ArgumentError(
            f"{_miscounted(function, len(arguments))}; missing: {', '.join(map(function.argument, missing))}"
        )
    model = model_of(arguments.values())
    makers = _makers(function, arguments, model)
    complete = {**arguments, **{i: make() for i, make in makers.items()}}
    return Bound(tuple(complete[i] for i in range(len(function.parameters))), tuple(outputs), model, makers)


def _give(function: Signature, arguments: dict[int, object], position: int, value: object) -> None:
    if position in arguments:
        raise ArgumentError(f"{function}: {function.argument(position)} is given twice")
    arguments[position] = value


def _out(function: Signature, out: object, outputs: Sequence[int]) -> dict[int, object]:
    """The outputs in `out`, by position. `out` is one array, a sequence, or a mapping by name."""
    if out is None:
        return {}
    if isinstance(out, Mapping):
        named = cast("Mapping[object, object]", out)
        outputs_by_position = {position_of(str(name), function.parameters): value for name, value in named.items()}
        if foreign := [i for i in outputs_by_position if i not in function.written]:
            raise ArgumentError(f"out: {function.argument(foreign[0])} of {function} is no output")
        return outputs_by_position
    several = cast("Sequence[object]", out) if isinstance(out, tuple | list) else (out,)
    if len(several) != len(outputs):
        names = ", ".join(map(function.argument, outputs)) or "none"
        raise ArgumentError(f"out: expected an array for each output that is not given ({names}), got {len(several)}")
    return dict(zip(outputs, several, strict=True))


def _makers(
    function: Signature, arguments: Mapping[int, object], model: object | None
) -> dict[int, Callable[[], object]]:
    """What makes the arrays that are not given, by position."""
    absent = [i for i in range(len(function.parameters)) if i not in arguments]
    if not absent:
        return {}
    arrays = {i: value for i, value in arguments.items() if function.parameters[i].shape is not None}
    shapes = {i: _ranked(function.parameters[i], value, i).shape for i, value in arrays.items()}
    all_shapes, makers = extents(function, shapes, arguments), dict[int, Callable[[], object]]()
    for i in absent:
        if min(all_shapes[i], default=0) < 0:
            raise ArgumentError(
                f"{function.argument(i)}: nothing tells the extents of {function.parameters[i]}; pass the array"
            )
        try:
            makers[i] = allocator(function.parameters[i], all_shapes[i], model, zeros=i not in function.filled)
        except ArgumentError as error:
            raise ArgumentError(f"{function.argument(i)}: {error}") from error
    return makers


def _miscounted(function: Signature, got: int) -> str:
    return f"{function}: expected {len(function.parameters)} arguments, got {got}"


def launch_values(function: Signature, args: Sequence[object]) -> list[LaunchValue]:
    """The arguments as launches take them: arrays borrowed, numbers of their parameters' types. Raises ArgumentError
    naming the argument that does not fit its parameter, or the others."""
    parameters, written = function.parameters, function.written
    if len(args) != len(parameters):
        raise ArgumentError(_miscounted(function, len(args)))
    values = [_value(p, arg, i, i in written) for i, (p, arg) in enumerate(zip(parameters, args, strict=True))]
    arrays = {i: v for i, v in enumerate(values) if isinstance(v, Argument)}
    check_overlap(arrays, parameters, written)
    for tie in function.ties:
        _check_tie(tie, arrays, function)
    if function.computed:
        _check_computed(arrays, args, function)
    for metadata in function.sparse:
        where, array = function.argument(metadata.position), arrays[metadata.position]
        if metadata.of >= 0 and array.shape[-2] != (rows := -(-arrays[metadata.of].shape[-2] // metadata.rows)):
            of = f"one for each {metadata.rows} rows of {function.argument(metadata.of)}"
            raise ArgumentError(f"{where}: expected {rows} rows of metadata, {of}, got {array}")
        _check_metadata(where, metadata.element, array)
    return values


def _check_computed(arrays: Mapping[int, Argument], args: Sequence[object], function: Signature) -> None:
    """Refuses results of other extents than the function computes."""
    shapes = extents(function, {i: array.shape for i, array in arrays.items()}, dict(enumerate(args)))
    for i in range(len(args) - len(function.computed), len(args)):
        if arrays[i].shape != shapes[i]:
            wanted = describe(shapes[i], function.parameters[i].element)
            raise ArgumentError(f"{function.argument(i)}: expected {wanted}, got {arrays[i]}")


def _check_tie(tie: frozenset[tuple[int, int]], arrays: Mapping[int, Argument], function: Signature) -> None:
    """Refuses arguments whose extents along one loop of the function differ."""
    (first, along), *others = sorted(tie)
    extent = arrays[first].shape[along]
    for i, dimension in others:
        if arrays[i].shape[dimension] != extent:
            raise ArgumentError(
                f"{function.argument(i)}: expected {extent} along dimension {dimension}, as "
                f"{function.argument(first)} has along dimension {along}, got {arrays[i]}"
            )


def _check_metadata(where: str, element: str, array: Argument) -> None:
    """Refuses metadata of a sparse A that means nothing, where it lies in host memory."""
    if array.on_device:
        return
    from ..arguments.packed import check_metadata

    words = array.array() if array.contiguous else np.ascontiguousarray(cast("Array", array.owner)).view(np.uint8)
    try:
        check_metadata(words.view(np.uint32).reshape(array.shape), element)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from error


def _value(parameter: Parameter, arg: object, position: int, written: bool) -> LaunchValue:
    if parameter.shape is None:
        return _scalar(parameter, arg, position)
    argument = _borrowed(parameter, arg, position)
    check(argument, parameter, position, written=written)
    return argument


def _borrowed(parameter: Parameter, arg: object, position: int) -> Argument:
    try:
        return borrow(arg, parameter.element).packed_as(parameter.element, parameter.shape or ())
    except ArgumentError as error:
        raise ArgumentError(f"argument {position} (%{parameter.name}): expected {parameter}: {error}") from error


def _ranked(parameter: Parameter, arg: object, position: int) -> Argument:
    """An array with the rank of its parameter; its sizes are not checked."""
    argument = _borrowed(parameter, arg, position)
    if len(argument.shape) != len(parameter.shape or ()):
        raise ArgumentError(f"argument {position} (%{parameter.name}): expected {parameter}, got {argument}")
    return argument


def _scalar(parameter: Parameter, arg: object, position: int) -> Scalar:
    try:
        return cast(Scalar, np.frombuffer(packed_number(DTYPES[parameter.element], arg), DTYPES[parameter.element])[0])
    except ArgumentError as error:
        raise ArgumentError(f"argument {position} (%{parameter.name}): {error}") from error
