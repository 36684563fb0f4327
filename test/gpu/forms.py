"""Products of every type and form that is lowered, to run on the interpreter and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warploom.runtime import Kernel, compile, compress, prune
from warploom.runtime.arrays import Parameter

Array = np.ndarray[Any, np.dtype[Any]]

METADATA = "E"
"""The name of the parameter that holds the metadata of the one called A."""


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
        drawn: dict[str, Array] = {}
        for i, parameter in enumerate(kernel.function.parameters):
            drawn[parameter.name] = _draw(random, parameter, cleared=i in kernel.function.filled)
        if METADATA in drawn:
            a = drawn["A"]
            values, drawn[METADATA] = compress(prune(_draw_like(random, (a.shape[0], 2 * a.shape[1]), a.dtype)))
            drawn["A"] = values
        return list(drawn.values())


def _draw(random: np.random.Generator, parameter: Parameter, *, cleared: bool) -> Array:
    shape = parameter.shape or ()
    if cleared:
        return np.full(shape, -1 if parameter.dtype.kind in "iu" else np.nan).astype(parameter.dtype)
    return _draw_like(random, shape, parameter.dtype)


def _draw_like(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    binades = 2 if dtype.itemsize == 1 else 6
    return (random.standard_normal(shape) * 2.0 ** random.integers(-binades, binades, shape)).astype(dtype)


def matmul(size: tuple[int, int, int], types: str, lies: str, attributes: str = "") -> str:
    """C += A * B; `lies` says "A B", with a t behind what is stored transposed."""
    (m, n, k), (a, b, c) = size, types.split()
    at, bt = (name.endswith("t") for name in lies.split())
    kinds = [
        f"memref<{k}x{m}x{a}>" if at else f"memref<{m}x{k}x{a}>",
        f"memref<{n}x{k}x{b}>" if bt else f"memref<{k}x{n}x{b}>",
        f"memref<{m}x{n}x{c}>",
    ]
    axes = ("(k, m)" if at else "(m, k)", "(n, k)" if bt else "(k, n)", "(m, n)")
    maps = ", ".join(f"affine_map<(m, n, k) -> {each}>" for each in axes)
    return f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul indexing_maps = [{maps}] {attributes} ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return
    }}"""


def sparse(size: tuple[int, int, int], types: str) -> str:
    """C = A * B with a sparse A."""
    (m, n, k), (a, b, c) = size, types.split()
    span = 32 if a == "f32" else 64
    words = f"memref<{-(-m // 16)}x{-(-k // span) * 32}xi32>"
    kinds = [f"memref<{m}x{k // 2}x{a}>", f"memref<{k}x{n}x{b}>", f"memref<{m}x{n}x{c}>"]
    zero = "0" if c == "i32" else "0.0"
    return f"""func.func @f(%A: {kinds[0]}, %E: {words}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      %zero = arith.constant {zero} : {c}
      linalg.fill ins(%zero : {c}) outs(%C : {kinds[2]})
      linalg.matmul {{warp.metadata = 1}} ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return
    }}"""


def batch(size: tuple[int, int, int, int], types: str) -> str:
    """C += A * B for each of a batch."""
    (count, m, n, k), (a, b, c) = size, types.split()
    kinds = [f"memref<{count}x{m}x{k}x{a}>", f"memref<{count}x{k}x{n}x{b}>", f"memref<{count}x{m}x{n}x{c}>"]
    return f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.batch_matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return
    }}"""


def elementwise(shape: str, types: str, maps: str, body: str) -> str:
    """Y = f(X, v): X and v of the first two types, indexed by the first two maps of loops m and n."""
    sizes = dict(zip("mn", shape.split("x"), strict=True))
    kinds = [
        f"memref<{''.join(f'{sizes[loop]}x' for loop in loops)}{kind}>"
        for loops, kind in zip((*maps.split(), "mn"), types.split(), strict=True)
    ]
    spelled = ", ".join(f"affine_map<(m, n) -> ({', '.join(loops)})>" for loops in (*maps.split(), "mn"))
    x, v, y = types.split()
    return f"""func.func @f(%X: {kinds[0]}, %v: {kinds[1]}, %Y: {kinds[2]}) {{
      linalg.generic {{indexing_maps = [{spelled}], iterator_types = ["parallel", "parallel"]}}
        ins(%X, %v : {kinds[0]}, {kinds[1]}) outs(%Y : {kinds[2]}) {{
      ^bb0(%x: {x}, %v0: {v}, %old: {y}): {body}
      }}
      return
    }}"""


def fused(size: tuple[int, int, int], types: str) -> str:
    """D = erf(tanh(A * B + bias) + R)."""
    (m, n, k), (a, r, d) = size, types.split()
    kinds = {"A": f"{m}x{k}x{a}", "B": f"{k}x{n}x{a}", "bias": f"{n}xf32", "R": f"{m}x{n}x{r}", "D": f"{m}x{n}x{d}"}
    held = {name: f"memref<{kind}>" for name, kind in kinds.items()}
    mn, t = "affine_map<(m, n) -> (m, n)>", f"memref<{m}x{n}xf32>"
    return f"""func.func @f({", ".join(f"%{name}: {kind}" for name, kind in held.items())}) {{
      %zero = arith.constant 0.0 : f32
      %T = memref.alloc() : {t}
      linalg.fill ins(%zero : f32) outs(%T : {t})
      linalg.matmul ins(%A, %B : {held["A"]}, {held["B"]}) outs(%T : {t})
      linalg.generic {{indexing_maps = [{mn}, affine_map<(m, n) -> (n)>, {mn}, {mn}],
                      iterator_types = ["parallel", "parallel"]}}
        ins(%T, %bias, %R : {t}, {held["bias"]}, {held["R"]}) outs(%D : {held["D"]}) {{
      ^bb0(%p: f32, %b: f32, %r: {r}, %old: {d}):
        %0 = arith.addf %p, %b : f32
        %1 = math.tanh %0 : f32
        %2 = arith.extf %r : {r} to f32
        %3 = arith.addf %1, %2 : f32
        %4 = math.erf %3 : f32
        %5 = arith.truncf %4 : f32 to {d}
        linalg.yield %5 : {d}
      }}
      memref.dealloc %T : {t}
      return
    }}"""


NARROWED = """%0 = arith.addf %x, %v0 : f32
  %1 = math.tanh %0 : f32
  %2 = arith.truncf %1 : f32 to bf16
  linalg.yield %2 : bf16"""
STREAMS = (
    ("rows", elementwise("130x256", "f32 f32 bf16", "mn n", NARROWED)),
    ("odd rows", elementwise("131x77", "f32 f32 bf16", "mn m", NARROWED)),
    ("transposed", elementwise("131x136", "f32 f32 bf16", "nm mn", NARROWED)),
    ("integers", elementwise("70x90", "i8 i8 i32", "nm m", """%0 = arith.extsi %x : i8 to i32
      %1 = arith.extui %v0 : i8 to i32 %2 = arith.muli %0, %1 : i32 linalg.yield %2 : i32""")),
)  # fmt: skip
"""Elementwise operations without a product."""

CHAIN = """#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
func.func @f(%A: memref<100x75xf32>, %B: memref<75x140xbf16>, %T: memref<100x140xf32>, %D: memref<100x33xbf16>,
             %C: memref<140x33xf32>) {
  %z = arith.constant 0.0 : f32
  %narrow = memref.alloc() : memref<100x75xbf16>
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%A : memref<100x75xf32>) outs(%narrow : memref<100x75xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.maximumf %x, %z : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  }
  linalg.fill ins(%z : f32) outs(%T : memref<100x140xf32>)
  linalg.matmul ins(%narrow, %B : memref<100x75xbf16>, memref<75x140xbf16>) outs(%T : memref<100x140xf32>)
  %turned = memref.alloc() : memref<140x100xbf16>
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<100x140xf32>) outs(%turned : memref<140x100xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  }
  linalg.fill ins(%z : f32) outs(%C : memref<140x33xf32>)
  linalg.matmul ins(%turned, %D : memref<140x100xbf16>, memref<100x33xbf16>) outs(%C : memref<140x33xf32>)
  return
}"""
"""A product between elementwise operations that are no part of it, and another product."""

LIES = ("A Bt", "A B", "At Bt", "At B")
SIZE = (100, 140, 75)
UNSIGNED = "{cast = #linalg.type_fn<cast_unsigned>}"
TYPES = (
    "i8 i8 i32",
    "f32 f32 f32",
    "f64 f64 f64",
    "f8E4M3FN f8E4M3FN f32",
    "f8E4M3FN f8E5M2 bf16",
    "f8E5M2 f8E4M3FN f16",
    "f16 f16 f32",
    "bf16 bf16 bf16",
)
SCHEDULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("four stages", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 4}),
    ("one stage", {"cta": (64, 64, 64), "warp": (32, 32), "stages": 1}),
    ("slices", {"cta": (64, 64, 64), "warp": (32, 32), "stages": 3, "slices": 2}),
    ("packed", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "pack": "ab"}),
    ("parts of K", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "split_k": 7}),
    ("parts of K, slices", {"cta": (64, 64, 64), "warp": (32, 32), "stages": 2, "slices": 2, "split_k": 19}),
    ("large warps", {"cta": (128, 128, 32), "warp": (64, 64), "stages": 3}),
    ("strips", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "strip": 16}),
    ("deep steps", {"cta": (64, 64, 32), "warp": (32, 32), "mma": "m16n8k8", "stages": 2}),
)


LOOPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mbarriers", {"stages": 4, "sync": "mbarrier", "ahead": 2}),
    ("tiles in turn", {"stages": 4, "ctas": 3}),
    ("tiles in turn, mbarriers", {"stages": 5, "sync": "mbarrier", "ahead": 3, "ctas": 2}),
    ("unrolled", {"stages": 4, "sync": "mbarrier", "ahead": 3, "ctas": 3, "unroll": 4}),
)
"""Kinds of the K loop, for a K of 16 tiles."""


def forms() -> Iterator[Form]:
    """Every type however A and B lie, and every form and kind of schedule once."""
    for types in TYPES:
        for lies in LIES:
            yield Form(f"{types}, {lies}", matmul(SIZE, types, lies), {"tf32": types.startswith("f32")})
    yield Form("unsigned", matmul(SIZE, "i8 i8 i32", "A B", UNSIGNED))
    yield Form("batch", batch((3, 33, 50, 41), "f16 f16 f32"))
    for types in ("i8 i8 i32", "f8E4M3FN f8E4M3FN f32", "f32 f32 f32"):
        yield Form(f"sparse {types}", sparse((100, 140, 152), types), {"tf32": types.startswith("f32")})
    yield Form("sparse f16", sparse((100, 140, 76), "f16 f16 f32"))
    yield Form("sparse bf16", sparse((130, 257, 192), "bf16 bf16 f32"))
    for strip in (0, 16, 32):
        tile = {"cta": (64, 64, 32), "warp": (32, 32), "strip": strip}
        yield Form(f"fused: strips of {strip}", fused((150, 200, 70), "bf16 bf16 f16"), tile)
    for name, schedule in SCHEDULES:
        yield Form(name, matmul((150, 200, 133), "bf16 bf16 f32", "A B"), schedule)
    for name, loop in LOOPS:
        tile = {"cta": (64, 64, 32), "warp": (32, 32)}
        yield Form(f"loop: {name}", matmul((300, 264, 512), "bf16 bf16 f32", "A B"), tile | loop)
    for name, text in STREAMS:
        yield Form(f"elementwise: {name}", text)
    yield Form("products and elementwise operations in turn", CHAIN)
    large = {"cta": (128, 256, 32), "stages": 8, "sync": "mbarrier", "ahead": 5, "unroll": 8, "ctas": 2, "strip": 16}
    yield Form("loop: the default of large products", matmul((300, 520, 512), "f16 f16 f32", "A B"), large)
