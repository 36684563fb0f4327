"""What candidates are held against: a function of linalg, numpy or torch, evaluated in float64 on drawn arguments.

A result of linalg has the bound of `runtime.reference`. Of other functions it is found by trials: how far the result
moves when every input is changed by the rounding of the type that is computed in, and how far the function itself is
off in its own type. Where all results are integers on inputs that are small integers, and the function gives them in
its own type too, nothing was rounded, and bits are compared.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any
from warnings import catch_warnings, simplefilter

import ml_dtypes
import numpy as np

from ..arguments.arrays import DTYPES, DType, element_of
from ..base.errors import ArgumentError, WarploomError
from ..numerics.floats import Array
from .answers import as_reals, flat, is_float, is_ndarray, is_rounded, tensors, to_arrays
from .candidate import Made, chosen, framework_of, load_module, number, split_name
from .worker import Forbidden

DRAWS: Mapping[str, int] = {"normal": 0, "altered": 0, "integers": 1, "wide": 2}
"""Kinds of data, with what is added to the seed: as the reference draws it; the same with one element altered;
small integers; numbers of many magnitudes and both signs."""
TRIALS, SAFETY_FACTOR, UNITS, OWN = 8, 32.0, 16.0, 8.0
"""Changed inputs; how many of their deviations, units of the result, and errors of the function itself are allowed."""
REFERENCES = ("Model", "reference")
"""What references are called in files."""
FLOAT64 = np.dtype(np.float64)


class NotComparedError(Exception):
    """The reference has no result for these arguments to compare with."""


@dataclass(frozen=True)
class Expected:
    """An expected output: its value, the smallest and largest correct ones, its type, whether nothing is rounded."""

    value: Array
    low: Array
    high: Array
    dtype: DType
    exact: bool = False


class JudgeReference(ABC):
    """Something to compare with. `names` are those of the arguments, `written` of those that are written in place."""

    names: Sequence[str] = ()
    written: Sequence[str] = ()
    file = ""
    made = Made()
    """What the model of a candidate is made with."""

    @abstractmethod
    def linalg(self, arguments: Mapping[str, Any]) -> str:
        """The function as `linalg` text, for proofs. Raises NotComparedError if it cannot be written in `linalg`."""

    @abstractmethod
    def draw(self, kind: str, seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Arguments of a kind."""

    @abstractmethod
    def expected(self, arguments: Mapping[str, Any]) -> list[Expected]:
        """The outputs: of `written`, or those returned. Raises NotComparedError where it says nothing."""


def varied(array: Array, kind: str, seed: Sequence[int]) -> Array:
    """An array of a kind of the shape and type of another one."""
    generator = np.random.default_rng(seed)
    if not is_float(array.dtype) or element_of(array.dtype) == "f8E8M0FNU" or kind == "normal" or not array.ndim:
        return array
    if kind == "integers":
        return generator.integers(-2, 3, array.shape).astype(array.dtype)
    if array.dtype.itemsize == 1:
        return array
    limit = 2 if array.dtype == np.float16 else 4
    scale = 10.0 ** generator.uniform(-limit, limit, array.shape)
    return (generator.standard_normal(array.shape) * scale).astype(array.dtype)


def altered(array: Array, seed: Sequence[int]) -> Array:
    """An array with one element replaced by the element that differs most from it."""
    flat_, numbers = array.flatten(), array.astype(_doubled(array.dtype)).reshape(-1)
    if flat_.size > 1 and is_rounded(array.dtype):
        at = np.random.default_rng(seed).integers(1, flat_.size)
        flat_[at] = flat_[np.argmax(np.abs(numbers - numbers[at]))]
    return flat_.reshape(array.shape)


class LinalgReference(JudgeReference):
    """A function of an MLIR file. `inputs` are as `warploom run --in` takes them, with sizes in braces."""

    def __init__(self, text: str, file: str, inputs: Sequence[str] = (), function: str | None = None) -> None:
        from ..kernel.lowering import chosen, parse, signature_of
        from ..reference.functions import WITH_BOUNDS

        self.text, self.file, self.inputs = text, file, inputs
        self.function = chosen(parse(text, file), function, kept=WITH_BOUNDS)
        self.signature = signature_of(self.function)
        self.names = [p.name for p in self.signature.parameters]
        self.positions = sorted(self.signature.written)
        self.written = [self.names[i] for i in self.positions]

    def linalg(self, arguments: Mapping[str, Any]) -> str:
        return self.text

    def draw(self, kind: str, seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        from ..reference.inputs import arrays

        drawn = arrays(self.signature, [text.format(**sizes) for text in self.inputs], seed)
        filled = self.signature.filled
        return {
            name: array if i in filled else varied(array, kind, (seed, i, 3))
            for i, (name, array) in enumerate(zip(self.names, drawn, strict=True))
        }

    def expected(self, arguments: Mapping[str, Any]) -> list[Expected]:
        from ..reference.functions import evaluate

        left = evaluate(self.function, list(arguments.values()))
        expected: list[Expected] = []
        for i in self.positions:
            with np.errstate(invalid="ignore", over="ignore"):
                low, high = left[i].interval()
            dtype = DTYPES[self.signature.parameters[i].element]
            expected.append(Expected(left[i].value, low, high, dtype, exact=not is_float(dtype)))
        return expected


class FunctionReference(JudgeReference):
    """A function of numpy or of torch. `draws` makes its arguments, of a seed and sizes."""

    def __init__(
        self, function: Callable[..., Any], draws: Callable[[int, Mapping[str, int]], Mapping[str, Any]],
        framework: str, file: str = "",
    ) -> None:  # fmt: skip
        self.function, self.draws, self.framework, self.file = function, draws, framework, file

    def draw(self, kind: str, seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        drawn = dict(self.draws(seed, sizes))
        self.names = list(drawn)
        return {
            name: varied(value, kind, (seed, i, 3)) if is_ndarray(value) else value
            for i, (name, value) in enumerate(drawn.items())
        }

    def linalg(self, arguments: Mapping[str, Any]) -> str:
        """The function as torch's importer writes it; numpy's are imported as those of torch with the same names."""
        if self.written or not all(map(is_ndarray, arguments.values())):
            raise NotComparedError("a function that writes its arguments, or takes numbers, is not written as linalg")
        try:
            from ..torch.importer import torch_to_linalg

            function = self.function if self.framework == "torch" else _as_torch(self.function)
            with catch_warnings():
                simplefilter("ignore")
                return torch_to_linalg(function, *tensors(arguments, "torch").values())
        except Exception as error:
            raise NotComparedError(f"the reference is not written as linalg: {str(error).splitlines()[0]}") from error

    def expected(self, arguments: Mapping[str, Any]) -> list[Expected]:
        plain = self._evaluated(arguments, None)
        exact = self._evaluated(arguments, FLOAT64)
        trials = [self._evaluated(self._moved(arguments, i), FLOAT64) for i in range(TRIALS)]
        integers = all(_small_integers(v) for v in arguments.values() if is_ndarray(v))
        intervals = [_interval(p, e, [t[i] for t in trials]) for i, (p, e) in enumerate(zip(plain, exact, strict=True))]
        is_exact = integers and all(
            np.array_equal(f.value, np.round(f.value)) and np.array_equal(_float64(p), f.value)
            for f, p in zip(intervals, plain, strict=True)
        )
        return [Expected(f.value, f.value, f.value, f.dtype, exact=True) for f in intervals] if is_exact else intervals

    def _moved(self, arguments: Mapping[str, Any], trial: int) -> dict[str, Any]:
        """Arguments that each are off by the rounding of f32, or of f64."""
        generator = np.random.default_rng([trial, 11])
        moved: dict[str, Any] = {}
        for name, value in arguments.items():
            moved[name] = value
            if is_ndarray(value) and is_rounded(value.dtype):
                wide = value.astype(_doubled(value.dtype))
                unit = 2.0**-53 if value.dtype == wide.dtype else 2.0**-24
                moved[name] = wide * (1 + unit * generator.standard_normal(value.shape))
        return moved

    def _evaluated(self, arguments: Mapping[str, Any], dtype: DType | None) -> list[Array]:
        """The outputs, computed in the type of the arguments or in float64."""
        values = {
            name: v.astype(_doubled(v.dtype)) if dtype is not None and is_ndarray(v) else v
            for name, v in arguments.items()
        }
        made = tensors(values, self.framework)
        try:
            with np.errstate(all="ignore"):
                result = self._function(dtype)(*made.values())
        except WarploomError:
            raise
        except Exception as error:
            raise NotComparedError(f"{type(error).__name__}: {error}") from error
        if result is None:
            after = dict(zip(made, to_arrays(list(made.values())), strict=True))
            if not self.written:
                self.written = [
                    n for n, v in after.items() if is_ndarray(v) and v.tobytes() != np.asarray(values[n]).tobytes()
                ]
            return [after[name] for name in self.written]
        return [as_reals(np.asarray(each)) for each in to_arrays(flat(result))]

    def _function(self, dtype: DType | None) -> Callable[..., Any]:
        if dtype is None or not hasattr(self.function, "double"):
            return self.function
        return copy.deepcopy(self.function).double()  # pyright: ignore[reportFunctionMemberAccess]


def _as_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy on tensors: its names for numpy stand for torch's numpy."""
    numpy: Any = import_module("torch._numpy")
    own: Any = inspect.unwrap(function)
    names = {name: numpy if value is np else value for name, value in own.__globals__.items()}
    traced = FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)

    def called(*examples: Any) -> Any:
        results = flat(traced(*map(numpy.asarray, examples)))
        return tuple(result.tensor for result in results)

    return called


def _doubled(dtype: DType) -> DType:
    """The type of twice the precision, as far as there is one."""
    return np.dtype(np.complex128) if dtype.kind == "c" else FLOAT64 if is_float(dtype) else dtype


def _float64(array: Array) -> Array:
    return np.asarray(array).astype(np.float64)


def _small_integers(array: Array) -> bool:
    if not is_float(array.dtype):
        return True
    value = _float64(array)
    return bool((np.abs(value) <= 8).all() and np.array_equal(value, np.round(value)))


def _interval(plain: Array, exact: Array, trials: Sequence[Array]) -> Expected:
    """The interval of a correct output, from its exact value, perturbed trials and the function itself."""
    dtype = plain.dtype
    if not is_float(dtype):
        own, value = (a.astype(np.int8) if a.dtype.kind == "b" else a for a in (plain, exact))
        return Expected(own, np.minimum(own, value), np.maximum(own, value), dtype, exact=True)
    own, value = _float64(plain), _float64(exact)
    finfo: Any = np.finfo if dtype.kind == "f" else ml_dtypes.finfo
    info: Any = finfo(dtype)
    with np.errstate(all="ignore"):
        off = np.sqrt(np.mean([(_float64(t) - value) ** 2 for t in trials], axis=0))
        error = np.abs(own - value)
        mean = np.sqrt(np.mean(np.where(np.isfinite(error), error, 0.0) ** 2)) if error.size else 0.0
        unit = float(info.eps) / 2
        bound = SAFETY_FACTOR * off + UNITS * unit * np.abs(value) + OWN * mean + float(info.smallest_normal)
        if not (np.isfinite(value).all() and np.isfinite(bound).all() and np.isfinite(own).all()):
            raise NotComparedError("the reference has infinities or NaN")
    return Expected(value, np.minimum(value - bound, own), np.maximum(value + bound, own), dtype)


def of_source(
    source: str | Callable[..., Any], inputs: Sequence[str], function: str | None, settings: Mapping[str, int],
    framework: str, draws: Callable[[int, Mapping[str, int]], Mapping[str, Any]] | None, seed: int,
) -> JudgeReference:  # fmt: skip
    """The reference of `FILE.mlir`, `FILE.py`, `FILE.py:NAME`, or a function. Raises ArgumentError for another file, or
    a function whose arguments nothing describes."""
    if callable(source):
        return FunctionReference(source, draws or _drawn(inputs, source), framework or framework_of(source))
    path, name = split_name(source)
    if path.suffix == ".mlir":
        return LinalgReference(path.read_text(), str(path), inputs, function)
    if path.suffix != ".py":
        raise ArgumentError(f"{path}: expected a reference of a file ending in .mlir or .py")
    module = load_module(path, settings)
    made = chosen(module, name, REFERENCES)
    how = Made()
    if isinstance(made, type):
        made, how = _model(module, made, seed)
    get = getattr(module, "get_inputs", None)
    reference = FunctionReference(
        made, draws or (_drawn(inputs, made) if get is None or inputs else _of_get_inputs(get)),
        framework or framework_of(str(path)), str(path),
    )  # fmt: skip
    reference.made = how
    return reference


def _model(module: Any, kind: Any, seed: int) -> tuple[Any, Made]:
    """The model of a file, with the data of its creation."""
    get = getattr(module, "get_init_inputs", None)
    _seed(seed)
    initial = list(get()) if get is not None else []
    made = kind(*initial)
    parameters: dict[str, Any] = made.state_dict() if hasattr(made, "state_dict") else {}
    return made, Made(initial, seed, dict(zip(parameters, to_arrays(list(parameters.values())), strict=True)))


def _seed(seed: int) -> None:
    torch: Any = import_module("torch")
    torch.manual_seed(seed)


def _of_get_inputs(get: Callable[[], Any]) -> Callable[[int, Mapping[str, int]], dict[str, Any]]:
    def draw(seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        np.random.seed(seed)
        with suppress(ImportError):
            _seed(seed)
        return {f"input{i}": value for i, value in enumerate(to_arrays(list(get())))}

    return draw


def _drawn(inputs: Sequence[str], function: Callable[..., Any]) -> Callable[[int, Mapping[str, int]], dict[str, Any]]:
    """Arguments as `--in NAME=random:TYPE:SIZES` describes them, in the order of the function."""
    from ..reference.inputs import binding

    texts = {name: value for name, value in map(binding, inputs) if name is not None}
    names = list(inspect.signature(function).parameters)
    missing = [n for n in names if n not in texts]
    if missing:
        raise ArgumentError(f"say what {', '.join(missing)} is, as in --in {missing[0]}=random:f32:64x48")

    def draw(seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        from ..reference.inputs import kernel_argument

        return {
            n: number(texts[n], sizes) if texts[n].count(":") == 1 and texts[n][0] in "iu"
            else kernel_argument(texts[n].format(**sizes), seed, i)
            for i, n in enumerate(names)
        }  # fmt: skip

    return draw


def forbidden_of(source: str | Callable[..., Any], candidate: str | Callable[..., Any]) -> Forbidden:
    """The reference, which a candidate must not call."""
    if callable(source):
        return Forbidden(source)
    path, name = split_name(source)
    if callable(candidate) or split_name(candidate)[0].resolve() != path.resolve():
        return Forbidden(file=str(path.resolve()))
    return Forbidden(names=frozenset([name] if name else REFERENCES))
