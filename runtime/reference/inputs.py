"""Where the command's arrays come from and go to: `.npy` files, a seeded generator, constants."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from ...dialect.isa.form import BY_MLIR_NAME
from ..arguments.arrays import DTYPES, DType, element_of, integer_limits
from ..arguments.launch_values import Scalar
from ..arguments.structs import POINTER, Struct, TensorMap
from ..base.errors import ArgumentError, WarploomError
from ..base.launch import ELEMENT_NAMES, Parameter, Signature, describe, extents, position_of
from ..kernel.binding import laid_out
from ..numerics.floats import Array
from .functions import poison

SPELLINGS: Mapping[str, str] = {
    **{element: element for element in ELEMENT_NAMES},
    **{names.numpy: element for element, names in ELEMENT_NAMES.items()},
    **{f"{ptx}{bits}": f"{to}{bits}" for ptx, to in (("u", "ui"), ("b", "ui"), ("s", "i")) for bits in (8, 16, 32, 64)},
    **{row.name: element for element, row in BY_MLIR_NAME.items() if element in ELEMENT_NAMES},
    "pred": "i1",
}  # fmt: skip
"""What MLIR, numpy and PTX call an element type, and its name in MLIR."""

WORDS = ("random", "zeros", "ones", "nan")
"""Instead of a file: N(0, 1) of the seed (integers -8 to 7; powers of two 2^-4 to 2^4), 0, 1, or no value."""


def binding(text: str) -> tuple[str | None, str]:
    """The name and the value of `0=a.npy` or `%A=random`; no name of `c.npy`."""
    name, equals, value = text.partition("=")
    return (name.strip(), value) if equals else (None, text)


def named(option: str, name: str, parameters: Sequence[Parameter]) -> int:
    """The position of the parameter that an option calls `name`. Raises ArgumentError naming the option, and the
    parameters there are."""
    try:
        return position_of(name, parameters)
    except ArgumentError as error:
        raise ArgumentError(f"{option}: {error}") from None


def make(word: str, shape: tuple[int, ...], dtype: DType, seed: int, position: int) -> Array:
    """An array filled as one of WORDS says; equal seeds and positions give equal values, whatever the others are."""
    if word != "random":
        value = {"zeros": 0, "ones": 1}.get(word, poison(dtype))
        return np.full(shape, value, dtype)
    generator = np.random.default_rng([seed, position])
    if dtype.kind in "iu":
        return generator.integers(-8 if dtype.kind == "i" else 0, 8, shape, dtype=dtype)
    if dtype == DTYPES["f8E8M0FNU"]:
        return np.exp2(generator.integers(-4, 5, shape)).astype(dtype)
    if (limits := integer_limits(dtype)) is not None:
        return generator.integers(*limits, shape, endpoint=True).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def sized(value: str) -> tuple[str, tuple[int, ...] | None]:
    """Splits `random:256x192` into the word and the extents. Any other value, such as a file, has none. Raises
    ArgumentError for extents that cannot be parsed."""
    match = _SIZED.fullmatch(value)
    if match is None:
        word, colon, extents = value.partition(":")
        if colon and word in WORDS:
            raise ArgumentError(f"--in: expected extents such as {word}:256x192, got '{extents}' in '{value}'")
        return value, None
    return match[1], tuple(map(int, match[2].split("x")))


def _shapes(function: Signature, shapes: Mapping[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shape of every parameter: from its type, from `shapes`, or from a parameter that it is tied to. Raises
    ArgumentError for an unknown extent, or a shape that does not fit the parameter."""
    parameters = function.parameters
    for i, shape in shapes.items():
        if not parameters[i].takes_shape(shape):
            raise ArgumentError(
                f"--in: expected {parameters[i]} for %{parameters[i].name}, got {'x'.join(map(str, shape))}"
            )
    extents_ = extents(function, shapes)
    for parameter, shape in zip(parameters, extents_, strict=True):
        if min(shape, default=0) < 0:
            hint = f"--in {parameter.name}=random:{'x'.join('256' for _ in shape)}"
            raise ArgumentError(f"%{parameter.name} is {parameter}: say how large it is, as in {hint}, or give a file")
    return extents_


def arrays(function: Signature, texts: Sequence[str], seed: int, *, poisoned: bool = True) -> list[Array]:
    """The arguments of a function: those given as `NAME=VALUE`, others drawn from the seed; `poisoned` ones that it
    fills before it reads them start as no value. Raises ArgumentError for a name or file that does not fit, or an
    extent that nothing tells."""
    parameters, sparse = function.parameters, {each.position: each.element for each in function.sparse}
    filled: Collection[int] = function.filled if poisoned else ()
    texts_: dict[int, str] = {}
    for text in texts:
        name, value = binding(text)
        if name is None:
            raise ArgumentError(f"--in: expected NAME=VALUE, such as 0=a.npy or %A=random, got '{text}'")
        position = named("--in", name, parameters)
        if position in texts_:
            raise ArgumentError(f"--in: argument {position} (%{parameters[position].name}) is given twice")
        texts_[position] = value
    words = [texts_.get(i, "nan" if i in filled else "random") for i in range(len(parameters))]
    loaded = {i: load(w, p) for i, (w, p) in enumerate(zip(words, parameters, strict=True)) if sized(w)[0] not in WORDS}
    shapes = {i: array.shape for i, array in loaded.items()}
    shapes |= {i: shape for i, word in enumerate(words) if (shape := sized(word)[1]) is not None}
    shapes_ = _shapes(function, shapes)
    return [
        loaded[i] if i in loaded else laid_out(_generated(words[i], shapes_[i], p, seed, i, sparse.get(i)), p)
        for i, p in enumerate(parameters)
    ]


def _generated(word: str, shape: tuple[int, ...], parameter: Parameter, seed: int, i: int, sparse: str | None) -> Array:
    """An array by a word; random metadata of a sparse A with these elements means something."""
    word, _ = sized(word)
    if sparse is None or word != "random":
        return make(word, shape, DTYPES[parameter.element], seed, i)
    from ..arguments.packed import random_metadata

    return random_metadata(shape, sparse, np.random.default_rng([seed, i]))


def load(path: str, parameter: Parameter) -> Array:
    """The array in a `.npy` file, as `parameter` takes it. 16-bit words of no float type (uint16, or the 'V2' that
    numpy writes bfloat16 as) are read as the parameter's type. Raises ArgumentError if the file is no `.npy` file, or
    holds another shape or type."""
    array = read_npy(path)
    dtype, wanted = array.dtype, DTYPES[parameter.element]
    if dtype.kind in "uV" and wanted.kind not in "iu" and dtype.itemsize == wanted.itemsize:
        array = array.view(DTYPES[parameter.element])
    if not parameter.takes_shape(array.shape) or array.dtype != DTYPES[parameter.element]:
        got = describe(array.shape, element_of(array.dtype))
        raise ArgumentError(f"{path}: expected {parameter} for %{parameter.name}, got {got}")
    return laid_out(array, parameter)


def read_npy(path: str) -> Array:
    """The array in a `.npy` file. Raises ArgumentError if there is none."""
    if not path:
        raise ArgumentError("expected the name of a .npy file, got ''")
    try:
        loaded: object = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ArgumentError(f"{path}: expected a .npy file of numbers") from error
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror or error}") from error
    if isinstance(loaded, np.lib.npyio.NpzFile):
        names = ", ".join(loaded.files) or "none"
        raise ArgumentError(f"{path}: expected a .npy file of one array, got a .npz archive of several ({names})")
    return cast(Array, loaded)


def check_writable(path: str) -> None:
    """Refuse a path that is a folder or lies in none before work is done for it. Raises WarploomError."""
    if not path:
        raise WarploomError("expected the name of a file to write, got ''")
    if Path(path).is_dir():
        raise WarploomError(f"{path}: Is a directory")
    folder = Path(path).parent
    if not folder.is_dir():
        raise WarploomError(f"{path}: there is no folder {folder}")


def save(path: str, array: Array) -> None:
    """Write a `.npy` file. Raises WarploomError if that is not possible."""
    try:
        with Path(path).open("wb") as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise WarploomError(f"{path}: {error.strerror or error}") from error


_SIZED = re.compile(rf"({'|'.join(WORDS)}):(\d+(?:x\d+)*)")
_SCALAR = re.compile(rf"(?!(?:{'|'.join(WORDS)}|hex):)(\w+):(\S+)$")
_BYTES = re.compile(r"hex:((?:[0-9a-fA-F]{2})+)")
_GENERATED = re.compile(rf"({'|'.join(WORDS)}):(\w+):(\d+(?:x\d+)*)$")
_MAP = re.compile(r"map\((.*)\)")


Field: TypeAlias = "Array | Scalar | TensorMap | Struct | tuple[Field, ...]"
"""An argument, or a field of one: arrays are pointers, tuples are structs."""


def kernel_argument(text: str, seed: int, position: int) -> Field:
    """A kernel argument as the command takes it: `a.npy`, `i32:5`, `f32:1.5`, `random:f16:256x192`, `zeros:f32:64`,
    `hex:0a0b` for bytes, `map(a.npy, box=64x64, swizzle=128)` for a tensor map with the options of `TensorMap`, and
    `{a.npy, i32:5}` for a struct of such fields, of which `&map(...)` and `&{...}` are pointers to what follows. Raises
    ArgumentError: saying what may be written."""
    try:
        # a parameter that is a pointer takes what it points to
        return _kernel_argument(text.strip().removeprefix("&").lstrip(), seed, position)
    except ArgumentError as error:
        raise ArgumentError(f"--arg: argument {position}: {error}") from error


def _kernel_argument(text: str, seed: int, position: int) -> Field:
    if text[:1] == "{" and text[-1:] == "}":
        return tuple(_kernel_argument(field.strip(), seed + i, position) for i, field in enumerate(_fields(text[1:-1])))
    if text[:1] == "&":
        return Struct(bytes(POINTER), {0: _kernel_argument(text[1:].strip(), seed, position)})
    if match := _MAP.fullmatch(text):
        return _tensor_map(match[1], seed, position)
    if match := _GENERATED.match(text):
        shape = tuple(int(extent) for extent in match[3].split("x"))
        return make(match[1], shape, _dtype(match[2], text), seed, position)
    if match := _BYTES.fullmatch(text):
        return bytes.fromhex(match[1])
    if match := _SCALAR.match(text):
        return _scalar(match[1], match[2])
    if text.endswith(".npy"):
        return np.ascontiguousarray(read_npy(text))
    forms = "a.npy, i32:5, f32:1.5, random:f16:256x192, zeros:f32:64, {a.npy, i32:5}, hex:0a0b, map(a.npy, box=64x64)"
    raise ArgumentError(f"cannot read '{text}'; it is written like one of {forms}")


_EXTENTS = ("box", "element_strides")
_WORDS = ("fill", "type")
_OPTIONS = (*_EXTENTS, "swizzle", "interleave", "l2_promotion", *_WORDS)
"""The options of `TensorMap` that the command has."""


def _tensor_map(text: str, seed: int, position: int) -> TensorMap:
    """A tensor map, of what stands between its parentheses: an array, and options with their values."""
    array, *rest = map(str.strip, _fields(text))
    options: dict[str, Any] = {}
    for option in rest:
        name, equals, value = map(str.strip, option.partition("="))
        if not equals or name not in _OPTIONS:
            raise ArgumentError(f"expected an option of a tensor map ({', '.join(_OPTIONS)}), got '{option}'")
        try:
            options[name] = _option(name, value)
        except ValueError:
            raise ArgumentError(f"tensor map: expected {'extents' if name in _EXTENTS else 'a number'} for {name}, "
                                f"got '{value}'") from None  # fmt: skip
    if "box" not in options:
        raise ArgumentError(f"a tensor map needs a box, as in map({array}, box=64x64)")
    of = _kernel_argument(array, seed, position)
    if not isinstance(of, np.ndarray):
        raise ArgumentError(f"a tensor map is one of an array, such as map(a.npy, box=64x64), got '{array}'")
    return TensorMap(of, **options)


def _option(name: str, value: str) -> object:
    """The value of an option of a tensor map. Raises ValueError if it has none such."""
    if name in _EXTENTS:
        return tuple(map(int, value.split("x")))
    return value if name in _WORDS else int(value)


def field_at(value: object, place: Sequence[int]) -> object:
    """The array at a place in an argument: the numbers of the fields of structs. A map stands for its array, and a
    pointer for what it points to. None if there is none."""
    if isinstance(value, TensorMap):
        return field_at(value.array, place)
    if isinstance(value, Struct):
        return field_at(value.pointers[0], place)
    if not place:
        return value
    fields = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    return field_at(fields[place[0]], place[1:]) if place[0] < len(fields) else None


def arrays_of(name: str, value: object) -> Iterator[tuple[str, Array]]:
    """The arrays that an argument is, points to or maps, with the names of their places."""
    inner = field_at(value, ())
    if isinstance(inner, np.ndarray):
        yield name, cast(Array, inner)
    for i, field in enumerate(cast("tuple[object, ...]", inner) if isinstance(inner, tuple) else ()):
        yield from arrays_of(f"{name}.{i}", field)


def _fields(text: str) -> list[str]:
    """The fields of a struct or a map, split at commas that are not inside a nested one."""
    fields, depth = [""], 0
    for letter in text:
        depth += (letter in "{(") - (letter in "})")
        if letter == "," and not depth:
            fields.append("")
        else:
            fields[-1] += letter
    return fields


def _scalar(element: str, text: str) -> Scalar:
    dtype = _dtype(element, f"{element}:{text}")
    try:
        return dtype.type(int(text, 0) if dtype.kind in "iu" else float(text))
    except OverflowError as error:
        raise ArgumentError(f"{text} does not fit in {element}") from error
    except ValueError as error:
        raise ArgumentError(f"expected a number for {element}, got '{text}'") from error


def _dtype(name: str, text: str) -> DType:
    """The type that MLIR, numpy or PTX calls so."""
    if name not in SPELLINGS:
        raise ArgumentError(f"unknown type '{name}' in '{text}'; known: {', '.join(SPELLINGS)}")
    return DTYPES[SPELLINGS[name]]
