"""The bytes of a kernel's parameters; arrays get addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from ....dialect.isa.tensor_map import SIZE
from ....dialect.ptx.text.syntax import Function, Variable
from ...arguments.arrays import Argument
from ...arguments.launch_values import Packed, in_memory, pack, reachable, values
from ...errors import ArgumentError
from ...numerics.array import Array
from ..errors import InterpreterError
from .kernel import DecodedKernel
from .memory import Buffer, GlobalBuffers


def parameters(kernel: DecodedKernel, function: Function, args: Sequence[object], memory: GlobalBuffers) -> Array:
    """Puts arrays into memory, and all arguments where the kernel finds its parameters.

    Raises:
        InterpreterError: for arguments that the parameters do not take.
    """
    try:
        passed = values(function, args)
    except ArgumentError as error:
        raise InterpreterError(str(error)) from error
    declared = kernel.layout.parameters
    owners = {at: i for i in reversed(range(len(declared))) for at in reachable(passed, i)}
    addresses: dict[int, int] = {}
    for i, value in enumerate(passed):
        if isinstance(value, Argument):
            owner = owners.get(i, i)
            addresses[i] = memory.add(_buffer(value, declared[owner][0], owner))
    for i in in_memory(passed):
        held, owner = cast(Packed, passed[i]), owners[i]
        data = np.frombuffer(bytearray(held.filled(addresses.__getitem__)), np.uint8)
        what = f"struct of {data.size} bytes" if len(held.maps) * SIZE != data.size else f"{len(held.maps)} tensor maps"
        addresses[i] = memory.add(Buffer(f"argument {owner} ({declared[owner][0].name}, {what})", data))
    data = np.zeros(kernel.layout.parameter_bytes, np.uint8)
    for i, (variable, offset) in enumerate(declared):
        value = passed[i]
        if isinstance(value, Argument) or i in addresses:
            words = addresses[i].to_bytes(8, "little")
        elif isinstance(value, Packed):
            words = value.filled(addresses.__getitem__)
        else:
            words = pack(variable, value)
        data[offset : offset + len(words)] = np.frombuffer(words, np.uint8)
    return data


def _buffer(argument: Argument, variable: Variable, position: int) -> Buffer:
    """An array as memory, with a name for messages."""
    data, what = argument.array(), str(argument)
    if isinstance(argument.owner, np.ndarray):
        owner = cast(Array, argument.owner)
        what = f"{'x'.join(map(str, owner.shape)) or 'scalar'} {owner.dtype}"
    return Buffer(f"argument {position} ({variable.name}, {what})", data, bool(data.flags.writeable))
