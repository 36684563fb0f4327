"""Products of every type and form that is lowered, to run on the interpreter and on a GPU.

Each at its default schedule and, in tiles small enough for the interpreter, at those of large products.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from problems import problem
from products import (
    FORMS,
    LIES,
    TYPES,
    Product,
    Size,
    Types,
    fitted,
    of_warpgroups,
    packed_for_warpgroups,
    shared_by_ctas,
)
from streams import CHAIN, STREAMS, VIEWS

from warploom.runtime import Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.base.launch import Parameter

Array = np.ndarray[Any, np.dtype[Any]]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Form:
    """A function, and how to compile it."""

    name: str
    mlir: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.name

    def compile(self, target: str) -> Kernel:
        return compile(self.mlir, target, **self.options)

    def arrays(self, kernel: Kernel, seed: int = 0) -> list[Array]:
        """The arguments: numbers of mixed exponents, integers of every value; what is cleared starts as NaN or -1."""
        random = np.random.default_rng(seed)
        filled = kernel.function.filled
        return [_draw(random, p, cleared=i in filled) for i, p in enumerate(kernel.function.parameters)]


@dataclass(frozen=True)
class OfProduct:
    """A product of `products.py`; with `like`, at the default schedule of such a product of that size, in small tiles.

    Its K is then as many tiles as the loop's turns have, or as fill the stages again; less one if `like` is odd.
    """

    product: Product
    like: int = 0

    def __str__(self) -> str:
        return f"{self.product}{f', as of {self.like}' if self.like else ''}"

    def compile(self, target: str) -> Kernel:
        return self._scheduled.compile(target)

    def arrays(self, kernel: Kernel, seed: int = 0) -> list[Array]:
        return problem(self._scheduled, seed).arguments

    @cached_property
    def _scheduled(self) -> Product:
        if not self.like:
            return self.product
        types, form, lies, (m, n, _) = self.product.types, self.product.form, self.product.lies, self.product.size
        large = fitted(types, form, lies, (self.like, self.like, self.like)).compile(TARGET)
        schedule = next(s for s in large.schedule if s is not None)
        depth = schedule.cta[2]
        asked = {**schedule.options(), "cta": f"64,128,{depth}", "warp": "32,64"}
        asked.pop("accumulate")
        if schedule.ctas:
            asked["ctas"] = "3"
        k = depth * (schedule.unroll or schedule.split_k * (schedule.stages + 2))
        return dataclasses.replace(fitted(types, form, lies, (m, n, k - self.like % 2)), schedule=asked)


def _draw(random: np.random.Generator, parameter: Parameter, *, cleared: bool) -> Array:
    shape, dtype = parameter.shape or (), DTYPES[parameter.element]
    if cleared:
        return np.full(shape, -1 if dtype.kind in "iu" else np.nan).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return np.asarray(random.standard_normal(shape) * 2.0 ** random.integers(-6, 6, shape)).astype(dtype)


def _kin() -> list[list[Types]]:
    """The types, those together that differ in a sign or in which of two formats they are."""
    kin: dict[object, list[Types]] = {}
    for types in TYPES:
        alike = types.bits < 16
        kin.setdefault((types.integers, types.bits) if alike else types, []).append(types)
    return list(kin.values())


SIZES: tuple[Size, ...] = ((100, 140, 76), (33, 50, 45), (72, 64, 128), (130, 37, 90))

SCHEDULES: tuple[dict[str, Any], ...] = (
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 4},
    {"cta": (64, 64, 64), "warp": (32, 32), "stages": 1},
    {"cta": (64, 64, 64), "warp": (32, 32), "stages": 3, "sliced_k": 2},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "pack": "ab"},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "staging": 16},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "split_k": 7},
    {"cta": (64, 64, 64), "warp": (32, 32), "stages": 2, "sliced_k": 2, "split_k": 19},
    {"cta": (128, 128, 32), "warp": (64, 64), "stages": 3},
    {"cta": (64, 64, 32), "warp": (32, 32), "mma": "m16n8k8", "stages": 2},
)

LOOPS: tuple[dict[str, Any], ...] = (
    {"stages": 4, "sync": "mbarrier", "prefetch": 2},
    {"stages": 4, "ctas": 3},
    {"stages": 5, "sync": "mbarrier", "prefetch": 3, "ctas": 2},
    {"stages": 4, "sync": "mbarrier", "prefetch": 3, "ctas": 3, "unroll": 4},
)
"""Kinds of the K loop, for a K of 16 tiles."""

LARGE: Mapping[int, Size] = {4096: (200, 264, 1), 4095: (150, 201, 1), 1000: (200, 264, 1)}
"""Sizes whose default schedules are tried, and the M and N to try them with: several tiles for each CTA."""

TARGET = "sm_90"
"""The target whose default schedules are meant, all of them of fragments in registers."""


def products() -> Iterator[OfProduct]:
    """Every form of every kind of types, and each kind however A and B lie, the types of a kind and the sizes going
    round; an empty sum; and the schedules of large products."""
    turn = 0
    for kin in _kin():
        for form, lies in [*((form, "") for form in FORMS), *(("cleared", lies) for lies in LIES)]:
            lying = [lies] if lies else _turned(LIES, turn)
            tried = (fitted(t, form, lie, SIZES[turn % len(SIZES)]) for t in _turned(kin, turn) for lie in lying)
            if (product := next((p for p in tried if p.legal), None)) is not None:
                yield OfProduct(product)
                turn += 1
        for form in ("added", "cleared"):
            yield OfProduct(fitted(kin[0], form, "A B", (34, 50, 0)))
        for like, size in LARGE.items():
            yield OfProduct(fitted(kin[turn % len(kin)], "cleared", LIES[turn % len(LIES)], size), like)
            turn += 1


def _turned(items: Sequence[Item], turn: int) -> list[Item]:
    """A sequence from some place on, and what stands before it."""
    first = turn % len(items)
    return [*items[first:], *items[:first]]


def forms() -> Iterator[Form | OfProduct]:
    """Every type and form, every kind of schedule, and elementwise operations."""
    yield from products()
    plain = Types("bf16", "bf16", "f32")
    for schedule in SCHEDULES:
        yield OfProduct(Product(plain, "added", "A B", (150, 200, 133), schedule))
    for form, strip in (("gelu by erf", 0), ("log, residual", 16), ("minus, cast", 32)):
        yield OfProduct(Product(plain, form, "A B", (150, 200, 70), SCHEDULES[0] | {"staging": strip}))
    for loop in LOOPS:
        tile = {"cta": (64, 64, 32), "warp": (32, 32)}
        yield OfProduct(Product(plain, "added", "A B", (300, 264, 512), tile | loop))
    for kind, result, depth in (("i8", "i32", 64), ("f8E4M3FN", "f32", 64), ("f32", "f32", 16)):
        for lies in ("A Bt", "A B"):
            tile = {"cta": (64, 64, depth), "warp": (32, 32)}
            yield OfProduct(Product(Types(kind, kind, result), "added", lies, (200, 136, 16 * depth), tile | LOOPS[-1]))
    for kind, other in (("f8E4M3FN", "f8E4M3FN"), ("f8E5M2", "f8E4M3FN")):
        yield OfProduct(Product(Types(kind, other, "f32"), "added", "A Bt", (100, 140, 75), {"fp8_as": "none"}))
    large = {
        "cta": (128, 256, 32),
        "stages": 8,
        "sync": "mbarrier",
        "prefetch": 5,
        "unroll": 8,
        "ctas": 2,
        "staging": 16,
    }
    yield OfProduct(Product(Types("f16", "f16", "f32"), "added", "A B", (300, 520, 512), large))
    yield from map(OfProduct, of_warpgroups()[::5])
    yield from map(OfProduct, [product for product in of_warpgroups() if product.sparse][::3])
    yield from map(OfProduct, packed_for_warpgroups())
    yield from map(OfProduct, shared_by_ctas())
    bytes_ = Types("f8E4M3FN", "f8E4M3FN", "f32")
    for form, deep in (("added", 32), ("sparse", 64)):
        promoted = {"cta": (128, 128, 128), "mma": f"m64n128k{deep}", "ctas": 2, "promote": "f32"}
        yield OfProduct(Product(bytes_, form, "A Bt", (144, 208, 416), promoted))
    for name, text in STREAMS:
        yield Form(f"elementwise: {name}", text)
    yield Form("products and elementwise operations in turn", CHAIN)
    yield Form("views, a transposed residual, a vector", VIEWS)
