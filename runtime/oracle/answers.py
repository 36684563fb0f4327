"""What answers of a candidate's process are made of: findings, and arrays as numpy and as torch have them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeGuard, cast

import numpy as np

from ..arguments.arrays import DTYPES, DType, element_of
from ..numerics.floats import Array
from ..proof.counterexample import KINDS

ERROR, NOTE = "error", "note"
"""Severities of findings: those of notes refuse no candidate."""


@dataclass(frozen=True)
class JudgeFinding:
    """What is wrong with a candidate; `docs/judge.md` says what each code means. `file` and `line` are a place in PTX,
    Python or CUDA, if there is one, and `source` the place that this was compiled from. `output` and `index` name an
    element of a result."""

    code: str
    message: str
    severity: str = ERROR
    file: str = ""
    line: int = 0
    column: int = 0
    source: str = ""
    output: str = ""
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        source = f" ({self.source})" if self.source else ""
        return f"{place}{self.severity}: {self.message}{source} [{self.code}]"


def note(code: str, message: str) -> JudgeFinding:
    return JudgeFinding(code, message, NOTE)


WORDS = {"bf16": ("int16", "bfloat16"), "f8E4M3FN": ("uint8", "float8_e4m3fn"), "f8E5M2": ("uint8", "float8_e5m2")}
"""Types that numpy lends torch as words."""


def is_ndarray(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def is_array(value: Any) -> bool:
    """Whether a value is a number or an array, and not an object that computes them on access."""
    torch: Any = sys.modules.get("torch")
    tensor = torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)
    return tensor or isinstance(value, np.ndarray | np.generic | bool | int | float)


def as_reals(array: Any) -> Any:
    """Complex numbers as pairs of real ones, anything else as it is."""
    if getattr(getattr(array, "dtype", None), "kind", "") != "c":
        return array
    return np.stack([array.real, array.imag], axis=-1)


def is_rounded(dtype: DType) -> bool:
    """Whether elements are floats, or complex."""
    return dtype.kind == "c" or is_float(dtype)


def is_float(dtype: DType) -> bool:
    """Whether elements are numbers that are rounded."""
    return dtype.kind == "f" or element_of(dtype) in KINDS


def tensors(values: Mapping[str, Any], framework: str) -> dict[str, Any]:
    """Copies of arrays, as a framework has them; other values as they are."""
    return {name: _tensor(v, framework) if is_ndarray(v) else v for name, v in values.items()}


def _tensor(array: Array, framework: str) -> Any:
    copy = np.array(array)
    if framework != "torch":
        return copy
    torch: Any = import_module("torch")
    words, name = WORDS.get(element_of(copy.dtype), ("", ""))
    if not words:
        return torch.from_numpy(copy)
    return torch.from_numpy(copy.view(words)).view(getattr(torch, name))


def to_array(value: Any) -> Any:
    """A copy of a tensor or of an array; any other value as it is."""
    if is_ndarray(value):
        return np.array(value)
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        tensor = value.detach().cpu().contiguous()
        torch: Any = import_module("torch")
        for element, (words, name) in WORDS.items():
            if tensor.dtype == getattr(torch, name):
                return np.array(tensor.view(getattr(torch, words)).numpy()).view(DTYPES[element])
        return np.array(tensor.numpy())
    return value


def to_arrays(values: Sequence[Any]) -> list[Any]:
    return [to_array(value) for value in values]


def flat(result: Any) -> list[Any]:
    """The outputs of a call as a flat list."""
    if isinstance(result, Mapping):
        return [each for value in cast("Mapping[str, Any]", result).values() for each in flat(value)]
    if isinstance(result, tuple | list):
        return [each for value in cast("Sequence[Any]", result) for each in flat(value)]
    return [result]


def overwrite(old: Any, new: Any) -> bool:
    """Puts the elements of an argument into the memory of an earlier one; whether they fit."""
    if not hasattr(old, "dtype") or not hasattr(new, "dtype") or (old.shape, old.dtype) != (new.shape, new.dtype):
        return False
    target: Any = old.detach() if hasattr(old, "detach") else old
    target[...] = new
    return True
