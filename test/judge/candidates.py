"""Candidates for `judge`: good ones, and bad ones with the hacks and bugs that public reports describe.

A family is a reference with its arguments and ways to compute it that are right. Hacks are applied to what is right in
a family; kernels are compiled here, and changed in one place.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread, Timer
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from warploom.runtime import Launching, Verdict, compile, judge
from warploom.runtime.arguments.arrays import DTYPES

KERNELS = Path(__file__).parents[1] / "data" / "kernels"
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A candidate: what it is called, what it is judged by, and the codes of which one must be given; none for a good
    one."""

    name: str
    judged: Callable[[], Verdict]
    codes: tuple[str, ...] = ()

    def problem(self) -> str:
        """What the judge gets wrong; "" for nothing."""
        verdict = self.judged()
        if not self.codes:
            return "" if verdict else f"{self.name}: a good candidate is refused:\n{verdict}"
        if verdict:
            return f"{self.name}: a bad candidate passes"
        return "" if set(self.codes) & set(verdict.codes) else f"{self.name}: expected {self.codes}, got\n{verdict}"


# Functions of numpy.


@dataclass(frozen=True)
class Family:
    """A reference, its arguments, and right candidates by name."""

    computes: Function
    inputs: tuple[str, ...]
    good: Mapping[str, Function]
    draws: Callable[[int, Mapping[str, int]], Mapping[str, Any]] | None = None
    sizes: tuple[Mapping[str, int], ...] = field(default=({"M": 17, "N": 12, "K": 33}, {"M": 8, "N": 5, "K": 16}))


F32 = np.float32


def _complex(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((2, 40, 2)).astype(F32).view(np.complex64)[..., 0]


def product(A: Any, B: Any) -> Any:
    return A @ B


def outer_products(A: Any, B: Any) -> Any:
    result = np.zeros((A.shape[0], B.shape[1]), A.dtype)
    for k in range(A.shape[1]):
        result += np.outer(A[:, k], B[k])
    return result


def split(A: Any, B: Any, parts: int = 3) -> Any:
    cuts = np.array_split(np.arange(A.shape[1]), parts)
    return sum((A[:, c] @ B[c] for c in cuts), np.zeros((A.shape[0], B.shape[1]), A.dtype)).astype(A.dtype)


def backwards(A: Any, B: Any) -> Any:
    return A[:, ::-1].copy() @ B[::-1].copy()


def in_float64(A: Any, B: Any) -> Any:
    return (A.astype(float) @ B.astype(float)).astype(A.dtype)


def tiles(A: Any, B: Any, size: int = 8) -> Any:
    result = np.empty((A.shape[0], B.shape[1]), A.dtype)
    for i in range(0, A.shape[0], size):
        for j in range(0, B.shape[1], size):
            result[i : i + size, j : j + size] = A[i : i + size] @ B[:, j : j + size]
    return result


def in_threads(A: Any, B: Any) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return np.concatenate(list(pool.map(lambda rows: rows @ B, np.array_split(A, 2))))


def in_processes(A: Any, B: Any) -> Any:
    with get_context("fork").Pool(2) as pool:
        return np.concatenate(pool.starmap(product, [(rows, B) for rows in np.array_split(A, 2)]))


class Multiplier:
    """An object with memory of its own, which it does not return."""

    def __init__(self) -> None:
        self.memory: dict[Any, Any] = {}

    def __call__(self, A: Any, B: Any) -> Any:
        out = self.memory.setdefault((len(A), B.shape[1]), np.empty((len(A), B.shape[1]), A.dtype))
        return np.matmul(A, B, out=out).copy()


def softmax(X: Any) -> Any:
    e = np.exp(X - X.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_online(X: Any) -> Any:
    top, total = np.full((X.shape[0], 1), -np.inf, X.dtype), np.zeros((X.shape[0], 1), X.dtype)
    for part in np.array_split(X, 3, axis=1):
        new = np.maximum(top, part.max(1, keepdims=True))
        total = total * np.exp(top - new) + np.exp(part - new).sum(1, keepdims=True)
        top = new
    return np.exp(X - top) / total


def softmax_base_2(X: Any) -> Any:
    scaled = X.astype(F32) * F32(1.4426950408889634)
    e = np.exp2((scaled - scaled.max(1, keepdims=True)).astype(F32))
    return (e / e.sum(1, keepdims=True)).astype(F32)


def log_of_sum(X: Any) -> Any:
    top = X.max(1, keepdims=True)
    return np.exp(X - top - np.log(np.exp(X - top).sum(1, keepdims=True)))


def norm(X: Any, G: Any) -> Any:
    centred = X - X.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + X.dtype.type(1e-5)) * G


def norm_sums(X: Any, G: Any) -> Any:
    n = F32(X.shape[1])
    centred = X - X.sum(1, keepdims=True) / n
    return (centred * (F32(1) / np.sqrt(np.square(centred).sum(1, keepdims=True) / n + F32(1e-5)))) * G


def norm_loop(X: Any, G: Any) -> Any:
    return np.stack([norm(row[None], G)[0] for row in X]).astype(X.dtype)


def bias_relu(X: Any, G: Any) -> Any:
    return np.maximum(X + G, 0)


def clipped(X: Any, G: Any) -> Any:
    total = X + G
    return np.where(total > 0, total, 0).astype(X.dtype)


def running(X: Any) -> Any:
    return np.cumsum(X, axis=1, dtype=X.dtype)


def scanned(X: Any) -> Any:
    result, step = X.copy(), 1
    while step < X.shape[1]:
        result[:, step:] = result[:, step:] + result[:, :-step].copy()
        step *= 2
    return result


def scan_loop(X: Any) -> Any:
    result = X.copy()
    for i in range(1, X.shape[1]):
        result[:, i] += result[:, i - 1]
    return result


def axpy(X: Any, Y: Any) -> None:
    Y += X * Y.dtype.type(3)


def axpy_rows(X: Any, Y: Any) -> None:
    for i in range(len(Y)):
        Y[i] = Y[i] + 3 * X[i]


def best(X: Any) -> Any:
    return X.argmax(1)


def best_loop(X: Any) -> Any:
    return np.array([max(range(len(row)), key=lambda i, row=row: row[i]) for row in X])


A_B = ("A=random:{t}:{{M}}x{{K}}", "B=random:{t}:{{K}}x{{N}}")
PRODUCTS = {"outer": outer_products, "split": split, "backwards": backwards, "float64": in_float64, "tiles": tiles,
            "einsum": lambda A, B: np.einsum("mk,kn->mn", A, B),
            "transposed": lambda A, B: (B.T @ A.T).T.copy(), "view": lambda A, B: (B.T @ A.T).T,
            "reversed": lambda A, B: (A[::-1] @ B)[::-1], "threads": in_threads, "processes": in_processes,
            "destination": lambda A, B, out: np.copyto(out, A @ B), "dictionary": lambda A, B: {"C": A @ B},
            "option": lambda A, B, block=8: tiles(A, B, block), "object": Multiplier(),
            "prints": lambda A, B: (print("product"), A @ B)[1]}  # fmt: skip
X = "X=random:f32:{M}x{K}"
FAMILIES: Mapping[str, Family] = {
    "product": Family(product, tuple(t.format(t="f32") for t in A_B), PRODUCTS),
    "integers": Family(product, tuple(t.format(t="i32") for t in A_B), {
        k: PRODUCTS[k] for k in ("outer", "split", "tiles")}),
    "double": Family(product, tuple(t.format(t="f64") for t in A_B), {
        k: PRODUCTS[k] for k in ("outer", "split", "einsum")}),
    "softmax": Family(softmax, (X,), {"online": softmax_online, "base2": softmax_base_2, "log": log_of_sum}),
    "norm": Family(norm, (X, "G=random:f32:{K}"), {"sums": norm_sums, "loop": norm_loop, "float64": lambda X, G: norm(
        X.astype(float), G).astype(F32)}),
    "relu": Family(bias_relu, (X, "G=random:f32:{K}"), {
        "clipped": clipped, "rows": lambda X, G: np.stack([np.maximum(row + G, 0) for row in X])}),
    "scan": Family(running, (X,), {"doubling": scanned, "loop": scan_loop}),
    "axpy": Family(axpy, (X, X.replace("X", "Y", 1)), {
        "rows": axpy_rows, "at once": lambda X, Y: np.copyto(Y, Y + X * 3)}),
    "best": Family(best, (X,), {"loop": best_loop}),
    "complex": Family(lambda X: X * X, (), {"square": np.square}, draws=lambda seed, sizes: {"X": _complex(seed)}),
    "long": Family(lambda X: X + 1, (), {"negated": lambda X: -(-1 - X)}, draws=lambda seed, sizes: {
        "X": np.random.default_rng(seed).integers(2**60, 2**61, 40)}),
    "flags": Family(lambda X: X > 0, (X,), {"not": lambda X: ~(X <= 0)}),
    "total": Family(lambda X: X.sum(), (X,), {"number": lambda X: float(X.sum())}),
    "all maximum": Family(lambda X: np.full_like(X, X.max()), (X,), {
        "broadcast": lambda X: np.broadcast_to(X.max(), X.shape)}),
    "turned": Family(lambda X: X.T.copy(), (X,), {"view": lambda X: X.T}),
    "half": Family(product, tuple(t.format(t="f16") for t in A_B), {
        "f32": lambda A, B: (A.astype(F32) @ B.astype(F32)).astype(A.dtype),
        "tiles": lambda A, B: tiles(A.astype(F32), B.astype(F32)).astype(A.dtype)}),
    "mean": Family(lambda X: X.mean(1), (X,), {
        "sum": lambda X: X.sum(1) / F32(X.shape[1]), "loop": lambda X: np.array([row.mean() for row in X], F32),
        "factor": lambda X: X.sum(1) * F32(1 / X.shape[1])}),
    "square": Family(lambda X: X * X + F32(1), (X,), {
        "float64": lambda X: (X.astype(float) ** 2 + 1).astype(F32), "power": lambda X: X**2 + F32(1)}),
    "largest": Family(lambda X: X.max(1), (X,), {
        "sorted": lambda X: np.sort(X, 1)[:, -1].copy(), "pairs": lambda X: np.maximum(X[:, 1:], X[:, :-1]).max(1)}),
    "batches": Family(lambda A, B: A @ B, ("A=random:f32:3x{M}x{K}", "B=random:f32:3x{K}x{N}"), {
        "loop": lambda A, B: np.stack([a @ b for a, b in zip(A, B, strict=True)]),
        "einsum": lambda A, B: np.einsum("bmk,bkn->bmn", A, B)}),
}  # fmt: skip


# Hacks: what they make of something right, and the codes that name them.


def _first(make: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A hack of a result."""
    return lambda right: lambda *a: make(right(*a))


def _remembered(key: Callable[..., object]) -> Callable[[Function], Function]:
    def hack(right: Function) -> Function:
        kept: dict[object, Any] = {}

        def candidate(*a: Any) -> Any:
            if (k := key(*a)) not in kept:
                kept[k] = right(*a)
            return kept[k].copy()

        return candidate

    return hack


def _buffered(right: Function) -> Function:
    kept: dict[object, Any] = {}

    def candidate(*a: Any) -> Any:
        result = right(*a)
        buffer = kept.setdefault(result.shape, np.empty_like(result))
        buffer[...] = result
        return buffer

    return candidate


def _set(result: Any, at: Any, value: Any) -> Any:
    result = result.copy()
    result[at] = value
    return result


def _rounded(a: Any, kind: Any) -> Any:
    return a.astype(kind).astype(a.dtype)


def _changing(right: Function) -> Function:
    def candidate(*a: Any) -> Any:
        result = right(*a)
        a[0].reshape(-1)[0] += 1
        return result

    return candidate


def _connecting(right: Function) -> Function:
    def candidate(*a: Any) -> Any:
        with suppress(OSError):
            socket.create_connection(("192.0.2.1", 80), timeout=1)
        return right(*a)

    return candidate


def _endless(right: Function) -> Function:
    def candidate(*a: Any) -> Any:
        while True:
            pass

    return candidate


def _greedy(right: Function) -> Function:
    return lambda *a: (np.ones(1 << 28), right(*a))[1]


def _calls(number: int) -> Callable[[Function], Function]:
    """Right for so many calls."""

    def hack(right: Function) -> Function:
        seen: list[Any] = []

        def candidate(*a: Any) -> Any:
            if len(seen) < number:
                seen.append(right(*a))
            return seen[-1].copy()

        return candidate

    return hack


def _framed(right: Function) -> Function:
    """Looks for the reference in the frames below, and lets no profile see the call."""

    def candidate(*a: Any) -> Any:
        sys.setprofile(None)
        frame: Any = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while not callable(frame.f_locals.get("reference")):
            frame = frame.f_back
        return frame.f_locals["reference"](*a)

    return candidate


def _in_a_thread(right: Function) -> Function:
    def candidate(*a: Any) -> Any:
        results: list[Any] = []
        thread = Thread(target=lambda: results.append(REFERENCES["product"](*a)))
        thread.start()
        thread.join()
        return results[0]

    return candidate


def _later(right: Function) -> Function:
    """Lets a thread fill the result when it has been returned."""

    def candidate(*a: Any) -> Any:
        result = np.full((a[0].shape[0], a[1].shape[1]), np.nan, a[0].dtype)
        Timer(0.1, lambda: np.copyto(result, right(*a))).start()
        return result

    return candidate


class Odd:
    """Is equal to everything; and is read as code, where what a candidate returns is read so."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit(0)",)


class Lazy:
    """Computes when the result is looked at, which is later than when the candidate has returned."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.compute()


def _judging_itself(right: Function) -> Function:
    """Changes the code of the judge where it can."""

    def candidate(*a: Any) -> Any:
        for name, module in list(sys.modules.items()):
            if name.startswith("warploom.runtime.oracle"):
                vars(module).update(is_array=lambda value: True, compare=lambda *_: (np.zeros(1, bool), 0.0))
        return Odd()

    return candidate


def _answering(right: Function) -> Function:
    """Answers in place of the process that it runs in."""

    def candidate(*a: Any) -> Any:
        frame: Any = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while not isinstance(frame.f_locals.get("connection"), Connection):
            frame = frame.f_back
        wrong = np.zeros_like(right(*a))
        answer = import_module("warploom.runtime.oracle.worker").Answer([wrong])
        frame.f_locals["connection"].send(("answer", answer))
        return wrong

    return candidate


def _sampled(*a: Any) -> object:
    """What a cache may take for the data: the shapes, and a few elements."""
    return tuple((x.shape, *(float(x.reshape(-1)[i]) for i in (0, x.size // 2, -1))) for x in a)


WRONG = ("wrong-value", "wrong-bits", "not-finite", "ignores-input", "reduced-precision", "copied-input")
VALUES = ("wrong-value", "wrong-bits", "not-finite", "ignores-input")
HACKS: Mapping[str, tuple[Callable[[Function], Function], tuple[str, ...]]] = {
    "zeros": (_first(np.zeros_like), ("zeros",)),
    "constant": (_first(lambda r: np.full_like(r, r.reshape(-1)[0])), ("constant",)),
    "empty": (_first(lambda r: np.full_like(r, np.nan)), ("unwritten",)),
    "skipped rows": (_first(lambda r: _set(r, slice(-2, None), 0)), VALUES),
    "last element": (_first(lambda r: _set(r, (-1, -1), r[0, 0])), VALUES),
    "noise": (_first(lambda r: (r * F32(1.0005)).astype(r.dtype)), VALUES),
    "f16 result": (_first(lambda r: _rounded(r, np.float16)), ("reduced-precision", "not-finite")),
    "bf16 result": (_first(lambda r: _rounded(r, ml_dtypes.bfloat16)), ("reduced-precision",)),
    "f16 inputs": (lambda f: lambda *a: f(*(_rounded(x, np.float16) for x in a)), ("reduced-precision",)),
    "bf16 inputs": (lambda f: lambda *a: f(*(_rounded(x, ml_dtypes.bfloat16) for x in a)), ("reduced-precision",)),
    "float64": (_first(lambda r: r.astype(float)), ("wrong-type",)),
    "flat": (_first(lambda r: r.reshape(-1)), ("wrong-shape",)),
    "two": (_first(lambda r: (r, r)), ("missing-output",)),
    "nothing": (_first(lambda r: None), ("missing-output", "unwritten")),
    "by shape": (_remembered(lambda *a: a[0].shape), ("stale",)),
    "by address": (_remembered(lambda *a: a[0].__array_interface__["data"][0]), ("stale",)),
    "by corner": (_remembered(lambda *a: float(a[0].reshape(-1)[0]) > 0), ("stale", *VALUES)),
    "two calls": (_calls(2), ("stale",)),
    "by samples": (_remembered(_sampled), ("stale",)),
    "frames": (_framed, ("reference-called",)),
    "in a thread": (_in_a_thread, ("reference-called",)),
    "later": (_later, ("unwritten",)),
    "lazy": (lambda f: lambda *a: Lazy(lambda: f(*a)), ("wrong-type",)),
    "equal to all": (lambda f: lambda *a: Odd(), ("wrong-type",)),
    "judges itself": (_judging_itself, ("call-failed",)),
    "answers": (_answering, ("call-failed", "zeros")),
    "ends": (lambda f: lambda *a: sys.exit(0), ("call-failed",)),
    "buffer": (_buffered, ("result-overwritten",)),
    "changes": (_changing, ("input-modified",)),
    "connects": (_connecting, ("network",)),
    "endless": (_endless, ("time-limit",)),
    "greedy": (_greedy, ("memory-limit",)),
    "raises": (lambda f: lambda *a: {}[0], ("call-failed",)),
    "ones": (lambda f: lambda *a: f(a[0], *(np.ones_like(x) for x in a[1:])), VALUES),
    "swapped": (_first(lambda r: np.ascontiguousarray(r[::-1])), VALUES),
    "positive": (lambda f: lambda *a: f(*(np.abs(x) for x in a)), VALUES),
}
APPLIED: Mapping[str, Sequence[str]] = {
    "product": tuple(HACKS),
    "softmax": ("zeros", "constant", "skipped rows", "noise", "bf16 result", "by address", "buffer", "positive"),
    "norm": ("zeros", "last element", "f16 inputs", "by corner", "ones", "swapped"),
    "relu": ("bf16 inputs", "positive", "changes", "two calls"),
}
"""The hacks that are tried of each family."""
BUGS: Mapping[str, tuple[str, Function, tuple[str, ...]]] = {
    "one K left out": ("product", lambda A, B: A[:, 1:] @ B[1:], VALUES),
    "one K twice": ("product", lambda A, B: A @ B + np.outer(A[:, 0], B[0]), VALUES),
    "integers, one K left out": ("integers", lambda A, B: A[:, :-1] @ B[:-1], ("wrong-bits",)),
    "f32 for f64": ("double", lambda A, B: (A.astype(F32) @ B.astype(F32)).astype(float), VALUES),
    "no maximum": ("softmax", lambda X: np.exp(X) / np.exp(X).sum(1, keepdims=True), ("not-finite",)),
    "sum of all rows": ("softmax", lambda X: softmax(X) * 0 + np.exp(X - X.max()) / np.exp(X - X.max()).sum(), VALUES),
    "epsilon outside": ("norm", lambda X, G: norm(X, G) * np.sqrt(1 - F32(1e-3)), VALUES),
    "no gain": ("norm", lambda X, G: norm(X, np.ones_like(G)), VALUES),
    "no relu": ("relu", lambda X, G: X + G, VALUES),
    "no bias": ("relu", lambda X, G: np.maximum(X, 0) + 0 * G, VALUES),
    "copies": ("relu", lambda X, G: X.copy(), ("copied-input",)),
    "sum in blocks of 8": ("scan", lambda X: np.concatenate([running(p) for p in np.split(X, (8,), 1)], 1), VALUES),
    "leaves one row": ("axpy", lambda X, Y: np.copyto(Y[1:], Y[1:] + 3 * X[1:]), VALUES),
    "another factor": ("axpy", lambda X, Y: np.copyto(Y, Y + F32(3.001) * X), VALUES),
    "another imaginary part": ("complex", lambda X: (X * X).real + 0j, VALUES),
    "the last bit": ("long", lambda X: X + 2, ("wrong-bits",)),
    "worst": ("best", lambda X: X.argmin(1), VALUES),
}


def apart(function: Function) -> Function:
    """A function of its own that computes the same: candidates may call the one, and not the other."""
    return FunctionType(function.__code__.replace(co_name="reference"), function.__globals__)


REFERENCES = {name: apart(family.computes) for name, family in FAMILIES.items()}


def _of_function(name: str, candidate: Function) -> Verdict:
    family = FAMILIES[name]
    seconds = 2 if getattr(candidate, "__qualname__", "").startswith("_endless") else 20
    return judge(
        candidate, REFERENCES[name], inputs=family.draws or family.inputs, sizes=family.sizes, seconds=seconds,
        megabytes=512,
    )  # fmt: skip


def functions() -> Iterator[Case]:
    """Candidates that are functions."""
    for name, family in FAMILIES.items():
        for variant, right in family.good.items():
            yield Case(f"{name}: {variant}", partial(_of_function, name, right))
    for name, hacks in APPLIED.items():
        right = next(iter(FAMILIES[name].good.values()))
        for hack in hacks:
            change, codes = HACKS[hack]
            yield Case(f"{name}: {hack}", partial(_of_function, name, change(right)), codes)
    for bug, (name, wrong, codes) in BUGS.items():
        yield Case(f"{name}: {bug}", partial(_of_function, name, wrong), codes)
    calling = partial(_of_function, "product", lambda A, B: REFERENCES["product"](A, B))
    yield Case("product: calls the reference", calling, ("reference-called",))


FILE = """import ctypes, subprocess, sys
import numpy as np
def reference(A, B):
    return A @ B
def candidate(A, B):
"""
READING: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "imports": ("from reference import reference as right\n    return right(A, B)", ("reference-read",)),
    "other process": (
        "text = subprocess.run(['cat', {path!r}], capture_output=True, text=True).stdout\n"
        "    names = {{}}\n    exec(text, names)\n    return names['reference'](A, B)", ("call-failed",)),
    "native code": (
        "library, text = ctypes.CDLL(None), ctypes.create_string_buffer(4096)\n"
        "    library.read(library.open({path!r}.encode(), 0), text, 4096)\n"
        "    names = {{}}\n    exec(text.value.decode(), names)\n    return names['reference'](A, B)",
        ("call-failed",)),
}  # fmt: skip
"""How a file may come by the reference, and the codes that say so."""


def _reading(folder: Path, body: str) -> Verdict:
    head, _, begin = FILE.partition("def candidate")
    (folder / "reference.py").write_text(head)
    imports, path = head.partition("def reference")[0], str(folder / "reference.py")
    (folder / "reading.py").write_text(f"{imports}def candidate{begin}    {body.format(path=path)}")
    inputs = FAMILIES["product"].inputs
    return judge(folder / "reading.py", folder / "reference.py", inputs=inputs, sizes=FAMILIES["product"].sizes)


def files(folder: Path) -> Iterator[Case]:
    """Candidates of files that look for the file of the reference."""
    for name, (body, codes) in READING.items():
        yield Case(f"file: {name}", partial(_reading, folder, body), codes)


# Models of torch.

HEAD = """import torch
from torch import nn
from torch.nn import functional as F
{more}
class {name}(nn.Module):
"""
LINEAR = """    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(7, n)), nn.Parameter(torch.randn(7))
    def forward(self, x):
        return {0}
"""
FORWARD = """    def forward(self, {arguments}):
        return {{0}}
"""
ONE, THREE = FORWARD.format(arguments="x"), FORWARD.format(arguments="q, k, v")
MODELS: Mapping[str, tuple[str, str, str, Sequence[str], Mapping[str, str]]] = {
    "linear": (LINEAR, "[torch.rand(5, N)]", "torch.relu(F.linear(x, self.weight, self.bias))", (
        "torch.clamp(x @ self.weight.T + self.bias, min=0)", "F.relu(torch.addmm(self.bias, x, self.weight.t()))",
        "torch.relu((x[:, None] * self.weight).sum(-1) + self.bias)"), {
        "no relu": "F.linear(x, self.weight, self.bias)", "no bias": "torch.relu(F.linear(x, self.weight))",
        "bf16": "torch.relu(F.linear(x.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16())).float()"}),
    "attention": (THREE, "[torch.randn(2, 3, 20, 16) for _ in range(3)]", "F.scaled_dot_product_attention(q, k, v)", (
        "torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v", "(torch.softmax((q * 0.25) @ k.mT, dim=3) @ v)"), {
        "no scale": "torch.softmax(q @ k.mT, -1) @ v",
        "causal": "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "k for v": "torch.softmax(q @ k.mT / 4, -1) @ k"}),
    "gelu": (ONE, "[torch.randn(4, N)]", "F.gelu(x)", ("x * 0.5 * (1 + torch.erf(x * 0.7071067811865476))",), {
        "by tanh": "F.gelu(x, approximate='tanh')", "relu": "torch.relu(x)"}),
    "norm": (ONE, "[torch.randn(4, 6, N)]", "F.layer_norm(x, x.shape[-1:])", (
        "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)",), {
        "unbiased": "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)"}),
}  # fmt: skip
"""A model, its inputs, what its reference computes, and what good and bad candidates do."""


def _of_model(folder: Path, name: str, computed: str) -> Verdict:
    body, drawn, reference, *_ = MODELS[name]
    inputs = f"N = 4096\ndef get_inputs():\n    return {drawn}\n"
    inputs += "def get_init_inputs():\n    return [N]\n" if body is LINEAR else ""
    (folder / "reference.py").write_text(HEAD.format(name="Model", more=inputs) + body.format(reference))
    (folder / "candidate.py").write_text(HEAD.format(name="ModelNew", more="") + body.format(computed))
    return judge(folder / "candidate.py", folder / "reference.py", settings={"N": 48})


def models(folder: Path) -> Iterator[Case]:
    """Candidates that are modules of torch."""
    for name, (*_, good, bad) in MODELS.items():
        for number, computed in enumerate(good):
            yield Case(f"model {name}: {number}", partial(_of_model, folder, name, computed))
        for bug, computed in bad.items():
            yield Case(
                f"model {name}: {bug}", partial(_of_model, folder, name, computed), (*VALUES, "reduced-precision")
            )


# Kernels.

PRODUCT = """func.func @f(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%C : memref<{m}x{n}xf32>)
  return
}}"""
SOFTMAX = """func.func @f(%X: memref<{m}x{n}xf32>, %Y: memref<{m}x{n}xf32>) {{
  linalg.softmax dimension(1) ins(%X : memref<{m}x{n}xf32>) outs(%Y : memref<{m}x{n}xf32>)
  return
}}"""
RELU = """func.func @f(%X: memref<{m}x{n}xf32>, %Y: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%X : memref<{m}x{n}xf32>) outs(%Y : memref<{m}x{n}xf32>) {{
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %x, %zero : f32
    linalg.yield %r : f32
  }}
  return
}}"""
SMALL = {"m": 24, "n": 24, "k": 40, "t": "bf16"}
SCHEDULE = {"target": "sm_80", "cta": "16,16,16", "warp": "16,16", "stages": "2"}
OWN: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, str]]] = {
    "bf16": (PRODUCT, SMALL, SCHEDULE),
    "f16": (PRODUCT, SMALL | {"t": "f16"}, SCHEDULE),
    "f8": (PRODUCT, SMALL | {"t": "f8E4M3FN", "k": 64}, {"target": "sm_89"}),
    "odd": (PRODUCT, SMALL | {"k": 21}, {"target": "sm_80"}),
    "edges": (PRODUCT, SMALL | {"m": 21, "n": 19, "k": 37}, {"target": "sm_80"}),
    "one stage": (PRODUCT, SMALL, SCHEDULE | {"stages": "1"}),
    "sliced": (PRODUCT, SMALL | {"k": 64}, {"target": "sm_80", "cta": "16,16,32", "warp": "16,16", "sliced_k": "2"}),
    "warpgroup": (PRODUCT, {"m": 64, "n": 16, "k": 64, "t": "bf16"}, {"target": "sm_90a"}),
    "copies": (PRODUCT, {"m": 70, "n": 24, "k": 72, "t": "f16"}, {"target": "sm_90a"}),
    "softmax": (SOFTMAX, {"m": 5, "n": 70}, {"target": "sm_80"}),
    "long softmax": (SOFTMAX, {"m": 2, "n": 600}, {"target": "sm_90a"}),
    "relu": (RELU, {"m": 9, "n": 33}, {"target": "sm_80"}),
    "aligned relu": (RELU, {"m": 8, "n": 32}, {"target": "sm_90a"}),
}
"""Functions compiled here, with their sizes and schedules."""
GRID_STRIDE = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 kept[1188];
.visible .entry relu(.param .u64 X, .param .u64 Y, .param .u32 N)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>;
    ld.param.u64 %d1, [X]; ld.param.u64 %d2, [Y]; ld.param.u32 %r1, [N];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r3;
LOOP:
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 ret;
    mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;
    ld.global.f32 %f1, [%d4];
    max.f32 %f2, %f1, 0f00000000;
    st.global.f32 [%d5], %f2;
    add.u32 %r5, %r5, %r6; bra LOOP;
}
"""
FOREIGN: Mapping[str, tuple[str, Mapping[str, object], Launching]] = {
    "wmma_gemm": (PRODUCT, {"m": 32, "n": 32, "k": 48, "t": "f16"}, Launching(
        "2,1", "64", ("A", "B", "C", "i32:32", "i32:32", "i32:48"))),
    "mma_pipeline": (PRODUCT, {"m": 128, "n": 64, "k": 96, "t": "f16"}, Launching(
        "1,2", "128", ("A", "B", "C", "i32:128", "i32:64", "i32:96"))),
    "softmax": (SOFTMAX, {"m": 5, "n": 200}, Launching("5", "128", ("X", "Y", "i32:5", "i32:200"))),
    "triton_softmax_sm80": (SOFTMAX, {"m": 5, "n": 200}, Launching(
        "5", "128", ("X", "Y", "i32:200", "i64:0", "i64:0"), shared="1024")),
    "triton_softmax_sm90": (SOFTMAX, {"m": 4, "n": 130}, Launching(
        "4", "128", ("X", "Y", "i32:130", "i64:0", "i64:0"), shared="1024")),
}  # fmt: skip
"""Kernels of nvcc and Triton, and how they are launched."""
FAULTS = ("check-fault", "check-races", "check-all-orders", "check-uninitialised", "check-barriers", "check-bounds")
Change = tuple[str, str, str, tuple[str, ...]]
CHANGES: Mapping[str, Change] = {
    "elements left out": (
        "bf16", r"(cp\.async\.cg[^;]*), 16, (%r\d+);", r"{ .reg .b32 %q; min.u32 %q, \2, 14; \1, 16, %q; }", VALUES),
    "no barrier": ("bf16", r"    bar\.sync[^;]*;\n", "", FAULTS),
    "no barrier in time": ("edges", r"    bar\.sync[^;]*;\n", "", FAULTS),
    "no barriers of one stage": ("one stage", r"    bar\.sync[^;]*;\n", "", FAULTS),
    "copies not waited for": ("bf16", r"    cp\.async\.wait_group[^;]*;\n", "", (*FAULTS, *VALUES)),
    "A for B": ("f16", r"\[f_B\]", "[f_A]", VALUES),
    "B for A": ("odd", r"\[f_A\]", "[f_B]", (*VALUES, *FAULTS)),
    "writes A": ("f16", r"\[f_C\]", "[f_A]", ("check-fault", "input-modified")),
    "not transposed": ("bf16", r"\.trans\.shared", ".shared", VALUES),
    "f16 for bf16": ("bf16", r"f32\.bf16\.bf16\.f32", "f32.f16.f16.f32", (*VALUES, "zeros")),
    "stores nothing": ("f16", r"    (@%p\d+ )?st\.global[^;]*;\n", "", ("unwritten",)),
    "no maximum": ("softmax", r"max\.NaN\.f32 (%f\d+), ([^,]+), [^;]+;", r"mov.f32 \1, \2;", VALUES),
    "difference for maximum": ("relu", r"max\.NaN\.f32 (%f\d+), ([^,]+), [^;]+;", r"mov.f32 \1, \2;", WRONG),
    "constant": ("aligned relu", r"ld\.global[.\w]* (\{?%f\d+)", r"mov.f32 %f0, 0f3F800000; //",
                 ("constant", "ptx-invalid", *VALUES)),
    "out of bounds": ("aligned relu", r"(ld\.global[^\[]*\[%rd\d+)\]", r"\1+4096]", ("check-fault",)),
    "results kept": (
        "grid stride", r"    max\.f32[^;]*;", """    mov.u64 %d6, kept; cvta.global.u64 %d6, %d6; add.u64 %d6, %d6, %d3;
    ld.global.f32 %f2, [%d6]; setp.ne.f32 %p2, %f2, 0f00000000; @!%p2 max.f32 %f2, %f1, 0f00000000;
    st.global.f32 [%d6], %f2;""", ("stale", *VALUES)),
    "clipped": ("grid stride", r"(    st\.global)", r"    min.f32 %f2, %f2, 0f461C4000;\n\1", VALUES),
    "no such instruction": ("f16", r"mma\.sync\.aligned\.m16n8k16", "mma.sync.aligned.m16n8k17", ("ptx-invalid",)),
}  # fmt: skip
"""Kernels changed everywhere that a pattern fits: of which, the pattern, what stands there, the codes."""
LAUNCHED: Mapping[str, tuple[str, Callable[[Launching], Launching], tuple[str, ...]]] = {
    "a block too few": (
        "edges", lambda how: replace(how, grid=str(int(how.grid.partition(",")[0]) - 1)), ("unwritten",)),
    "too little shared memory": ("bf16", lambda how: replace(how, shared="64"), FAULTS),
    "arguments swapped": ("f16", lambda how: replace(how, args=("B", "A", "C")), (*VALUES, *FAULTS)),
}  # fmt: skip


@cache
def own(name: str) -> tuple[str, str, Launching]:
    """A kernel compiled here: the function, the PTX, the launch."""
    if name == "grid stride":
        return RELU.format(m=9, n=33), GRID_STRIDE, Launching("2", "128", ("X", "Y", "i32:297"))
    text, sizes, how = OWN[name]
    source = text.format(**sizes)
    kernel = compile(source, **how)  # pyright: ignore[reportArgumentType]
    arrays = [np.zeros(p.shape or (), DTYPES[p.element]) for p in kernel.function.parameters]
    launch, *more = kernel.called_with(*arrays).plan.launches
    assert not more, f"{name} is several launches"
    names = [p.name for p in kernel.function.parameters]
    args = tuple(names[a] if isinstance(a, int) else str(a) for a in launch.arguments)
    grid, block = (",".join(map(str, shape)) for shape in (launch.grid, launch.block))
    return source, kernel.ptx, Launching(grid, block, args, launch.kernel, str(launch.shared))


def _of_kernel(folder: Path, ptx: str, source: str, launch: Launching) -> Verdict:
    (folder / "kernel.ptx").write_text(ptx)
    (folder / "function.mlir").write_text(source)
    return judge(folder / "kernel.ptx", folder / "function.mlir", launch=launch, seconds=60)


def _own(folder: Path, name: str) -> Verdict:
    source, ptx, launch = own(name)
    return _of_kernel(folder, ptx, source, launch)


def _foreign(folder: Path, name: str) -> Verdict:
    text, sizes, launch = FOREIGN[name]
    return _of_kernel(folder, (KERNELS / f"{name}.ptx").read_text(), text.format(**sizes), launch)


def _changed(folder: Path, of: str, pattern: str, by: str) -> Verdict:
    source, ptx, launch = own(of)
    changed, count = re.subn(pattern, by, ptx)
    assert count, f"{pattern} is nowhere in the kernel {of}"
    return _of_kernel(folder, changed, source, launch)


def _launched(folder: Path, of: str, how: Callable[[Launching], Launching]) -> Verdict:
    source, ptx, launch = own(of)
    return _of_kernel(folder, ptx, source, how(launch))


def kernels(folder: Path) -> Iterator[Case]:
    """Candidates that are kernels; a folder has their files."""
    for name in (*OWN, "grid stride"):
        yield Case(f"kernel: {name}", partial(_own, folder, name))
    for name in FOREIGN:
        yield Case(f"kernel of another compiler: {name}", partial(_foreign, folder, name))
    for name, (of, pattern, by, codes) in CHANGES.items():
        yield Case(f"{of} kernel: {name}", partial(_changed, folder, of, pattern, by), codes)
    for name, (of, how, codes) in LAUNCHED.items():
        yield Case(f"{of} kernel: {name}", partial(_launched, folder, of, how), codes)


def cases(folder: Path) -> list[Case]:
    """All candidates."""
    return [*functions(), *files(folder), *models(folder), *kernels(folder)]
