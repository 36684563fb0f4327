"""Drawn functions whose kernels have schedules: products, attentions and their kin, with fresh arguments and bounds."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "unit"))

import attention_gradients
import attention_grid
import attention_problems
import problems
import test_block_scales as blocks
import test_convolutions as convolutions
import test_experts as experts
from products import FORMS, GATE, LIES, TYPES, fitted

from warploom.dialect.isa.row import TARGETS

Array = np.ndarray[Any, np.dtype[Any]]
Instance = tuple[list[Array], Callable[[], str]]
"""Arguments, whose outputs hold poison, and what is wrong with the outputs after a call."""


@dataclass(frozen=True)
class Function:
    """A function of MLIR for a target, and fresh arguments of it, the same at each call."""

    name: str
    text: str
    target: str
    instance: Callable[[], Instance]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _size(draw: random.Random, low: int = 1, high: int = 200) -> int:
    return draw.choice((1, 1, 8, 16)) * max(1, round(2 ** draw.uniform(np.log2(low), np.log2(high)) / 8)) if (
        draw.random() < 0.6
    ) else draw.randint(low, high)  # fmt: skip


def product(draw: random.Random) -> Function:
    """Every type and form of `products.py`."""
    while True:
        types, form, lies = draw.choice(TYPES), draw.choice(FORMS), draw.choice(LIES)
        asked = fitted(types, form, lies, (_size(draw), _size(draw), _size(draw, 1, 600)))
        at = draw.choice((*TARGETS, "sm_90a", "sm_90a", "sm_80", "sm_100a"))
        if asked.legal and asked.runs_on(at):
            break
    options: dict[str, Any] = {"tf32": True} if types.a == "f32" else {}
    options |= {"accumulate": types.accumulate} if types.accumulate else {}

    def instance() -> Instance:
        made = problems.problem(asked, 1)
        return made.arguments, made.wrong

    return Function(str(asked), asked.mlir, at, instance, options)


def attention(draw: random.Random) -> Function:
    """Attentions of `attention_grid.py`."""
    asked, _ = next(attention_grid.cases(1, draw.randrange(1 << 30), 150))
    at = draw.choice(("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_90a", "sm_100a", "sm_120a"))

    def instance() -> Instance:
        made = attention_problems.problem(asked, 1)
        return made.arguments, made.wrong

    return Function(str(asked), asked.mlir, at, instance)


def gradient(draw: random.Random) -> Function:
    """Gradients of attention."""
    m, n = draw.randint(1, 140), draw.randint(1, 140)
    d = draw.choice((32, 64, 128, 40, 72))
    size = (draw.randint(1, 2), draw.randint(1, 2), m, n, d, draw.choice((d, 64)))
    asked = attention_gradients.AttentionGradient(
        size,
        draw.choice(("f16", "bf16")),
        draw.choice((None, None, n)),
        results=draw.choice((("dQ", "dK", "dV"), ("dQ",), ("dK", "dV"))),
        delta=draw.random() < 0.5,
        cap=draw.choice((0.0, 0.0, 5.0)),
    )
    at = draw.choice(("sm_80", "sm_89", "sm_90a", "sm_90a", "sm_100a", "sm_120a"))

    def instance() -> Instance:
        made = attention_gradients.problem(asked, 1)
        return made.arguments, made.wrong

    return Function(str(asked), asked.mlir, at, instance)


def _held(arguments: list[Array], value: Array, bound: Array) -> Instance:
    """The last argument, the output, against a value and a bound; where the value is NaN, the output is too."""

    def wrong() -> str:
        result = arguments[-1].astype(np.float64)
        right = (np.abs(result - value) <= bound) | (np.isnan(value) & np.isnan(result))
        at = tuple(np.argwhere(~right)[0].tolist()) if not right.all() else ()
        return (
            f"{(~right).sum()} of {right.size} are wrong, first {at}: {result[at]}, expected {value[at]}" if at else ""
        )

    return arguments, wrong


def block_scales(draw: random.Random) -> Function:
    """8-bit floats with scales of blocks."""
    rows, columns = draw.choice((1, 1, 128)), draw.choice((1, 128))
    m, n, k = (draw.choice((128, 256)) if rows > 1 else draw.randint(1, 200)), draw.choice((128, 256)), draw.choice(
        (128, 256, 384)
    )  # fmt: skip
    across = draw.random() < 0.5 and rows == 1 and m % 4 == 0

    def instance() -> Instance:
        rng = np.random.default_rng(1)
        a = rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
        b = rng.standard_normal((n, k)).astype(ml_dtypes.float8_e5m2)
        lines = (m // rows, n // columns)
        sa, sb = (np.exp2(rng.uniform(-3, 3, (count, k // 128))).astype(np.float32) for count in lines)
        x = a.astype(np.float64) * np.repeat(np.repeat(sa.astype(np.float64), rows, 0), 128, 1)
        y = b.astype(np.float64) * np.repeat(np.repeat(sb.astype(np.float64), columns, 0), 128, 1)
        x, y = (z.astype(ml_dtypes.bfloat16).astype(np.float64) for z in (x, y))
        bound = np.abs(x) @ np.abs(y).T * (2.0**-7 + 132 * 2.0**-13)
        of_sa = np.ascontiguousarray(sa.T) if across else sa
        return _held([a, of_sa, b, sb, np.full((m, n), np.nan, np.float32)], x @ y.T, bound)

    text = blocks.text(m, n, k, columns, across=across, rows=rows)
    name = f"blocks {m}x{n}x{k}, {rows} rows, {columns} columns{', across' * across}"
    return Function(name, text, draw.choice(("sm_90a", "sm_90a", "sm_89", "sm_100a")), instance)


WEIGHTS = """#kn = affine_map<({order}) -> ({order})>
#s = affine_map<({order}) -> ({scaled})>
func.func @f(%A: memref<{m}x{k}x{f}>, %Q: memref<{q}xi{bits}>, %S: memref<{s}x{f}>, %C: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<{q}x{f}>
  linalg.generic {{indexing_maps = [#kn, #s, #kn], iterator_types = ["parallel", "parallel"]}}
      ins(%Q, %S : memref<{q}xi{bits}>, memref<{s}x{f}>) outs(%W : memref<{q}x{f}>) {{
  ^bb0(%q: i{bits}, %s: {f}, %old: {f}):
    %0 = arith.sitofp %q : i{bits} to {f}
    %w = arith.mulf %0, %s{flags} : {f}
    linalg.yield %w : {f}
  }}
  linalg.fill ins(%zero : f32) outs(%C : memref<{m}x{n}xf32>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({order})>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %W : memref<{m}x{k}x{f}>, memref<{q}x{f}>) outs(%C : memref<{m}x{n}xf32>)
  memref.dealloc %W : memref<{q}x{f}>
  return
}}"""


def weights(draw: random.Random) -> Function:
    """Weights of 8 or 4 bits whose groups along k have scales."""
    bits, by, group, f = draw.choice((8, 4)), draw.choice(("nk", "kn")), draw.choice((32, 64, 128)), "f16"
    m, n, k = draw.choice((1, 5, 16, 18, 33, 64, 130)), 8 * draw.randint(1, 20), group * draw.randint(1, 4)
    flags = draw.choice(("", " fastmath<contract>"))
    scaled = {"nk": f"n, k floordiv {group}", "kn": f"k floordiv {group}, n"}[by]
    q, s = (f"{n}x{k}", f"{n}x{k // group}") if by == "nk" else (f"{k}x{n}", f"{k // group}x{n}")
    text = WEIGHTS.format(order=", ".join(by), scaled=scaled, m=m, n=n, k=k, f=f, q=q, bits=bits, s=s, flags=flags)

    def instance() -> Instance:
        rng = np.random.default_rng(1)
        a, q = rng.standard_normal((m, k)).astype(np.float16), rng.integers(-(1 << bits - 1), 1 << bits - 1, (k, n))
        scales = (rng.random((k // group, n)) / 16 + 0.01).astype(np.float16)
        stored = np.ascontiguousarray(q if by == "kn" else q.T)
        stored = stored.astype(np.int8) if bits == 8 else (
            ((stored[:, ::2] & 15) | (stored[:, 1::2] << 4)).astype(np.uint8)
        )  # fmt: skip
        w, x = q * np.repeat(scales.astype(np.float64), group, 0), a.astype(np.float64)
        if not flags:
            w = w.astype(np.float16).astype(np.float64)
        bound = np.abs(x) @ np.abs(w) * (k + 4) * 2.0**-23 + 1e-7
        of_s = np.ascontiguousarray(scales if by == "kn" else scales.T)
        return _held([a, stored, of_s, np.full((m, n), np.nan, np.float32)], x @ w, bound)

    at = draw.choice(("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_90a", "sm_100a", "sm_120a", "sm_75"))
    return Function(f"weights i{bits} {by} {m}x{n}x{k} groups of {group}{flags}", text, at, instance)


GATED = """#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<{m}x{k}x{f}>, %B: memref<{k}x{n}x{f}>, %U: memref<{k}x{n}x{f}>, %D: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %G = memref.alloc() : memref<{m}x{n}xf32>
  %H = memref.alloc() : memref<{m}x{n}xf32>
  linalg.fill ins(%zero : f32) outs(%G : memref<{m}x{n}xf32>)
  linalg.fill ins(%zero : f32) outs(%H : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{f}>, memref<{k}x{n}x{f}>) outs(%G : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %U : memref<{m}x{k}x{f}>, memref<{k}x{n}x{f}>) outs(%H : memref<{m}x{n}xf32>)
  linalg.generic {{indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%G, %H : memref<{m}x{n}xf32>, memref<{m}x{n}xf32>) outs(%D : memref<{m}x{n}xf32>) {{
  ^bb0(%x: f32, %y: f32, %old: f32):
{body}
    linalg.yield %r : f32
  }}
  return
}}"""


def gated(draw: random.Random) -> Function:
    """Two products of one A, of which one is the gate of the other."""
    (m, n, k), f = (_size(draw), _size(draw), _size(draw, 1, 400)), draw.choice(("f16", "bf16"))

    def instance() -> Instance:
        rng = np.random.default_rng(1)
        dtype = np.float16 if f == "f16" else ml_dtypes.bfloat16
        a, b, u = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n), (k, n)))
        x, y, z = (each.astype(np.float64) for each in (a, b, u))
        (g, h), unit = (x @ y, x @ z), (k + 2) * 2.0**-23
        dg, dh = np.abs(x) @ np.abs(y) * unit, np.abs(x) @ np.abs(z) * unit
        silu = g / (1 + np.exp(-g))
        bound = 1.1 * dg * np.abs(h) + np.abs(silu) * dh + np.abs(silu * h) * 2e-6 + 2.0**-140
        return _held([a, b, u, np.full((m, n), np.nan, np.float32)], silu * h, bound)

    at = draw.choice(("sm_80", "sm_75", "sm_89", "sm_90a", "sm_90a", "sm_100a", "sm_120a"))
    return Function(f"gated {f} {m}x{n}x{k}", GATED.format(m=m, n=n, k=k, f=f, body=GATE), at, instance)


def of_experts(draw: random.Random) -> Function:
    """Rows of experts, whose ends the device has."""
    kind, transposed = draw.choice(("f16", "bf16")), draw.random() < 0.5
    text = experts.forward(kind, transposed=transposed, epilogue=experts.SCALED)
    seed = draw.randrange(1 << 30)

    def instance() -> Instance:
        rng = np.random.default_rng(seed)
        ends, (t, e, k, n) = experts.drawn(rng), (experts.T, experts.E, experts.K, experts.N)
        a, b = experts.operands(rng, experts.DTYPES[kind], ends, (t, k), (e, n, k) if transposed else (e, k, n))
        s, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((e, n), (t,)))
        value, bound = np.full((t, n), np.nan), np.zeros((t, n))
        for expert, rows in enumerate(experts.spans(ends)):
            x, y = a[rows].astype(np.float64), b[expert].astype(np.float64)
            y = y.T if transposed else y
            value[rows] = (x @ y + s[expert]) * r[rows, None]
            bound[rows] = (k + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y) + np.abs(s[expert])) * np.abs(r[rows, None])
        return _held([a, b, np.array(ends, np.int32), s, r, np.full((t, n), np.nan, np.float32)], value, bound + 1e-40)

    at = draw.choice(("sm_80", "sm_89", "sm_90a", "sm_90a", "sm_90a", "sm_100a", "sm_120a"))
    return Function(f"experts {kind}{', transposed' * transposed}", text, at, instance)


def convolution(draw: random.Random) -> Function:
    """Named convolutions, with strides and dilations."""
    name = draw.choice(
        [each for each in convolutions.LAYOUTS if re.fullmatch(r"(depthwise_)?conv_[12]d\w*(?<!_q)", each)]
    )
    sizes = convolutions.SIZES | {"c": draw.choice((5, 8, 16, 64)), "f": draw.choice((1, 6, 8, 64))}
    steps = [[draw.choice((1, 1, 2)) for _ in range(3)] for _ in range(2)]

    def instance() -> Instance:
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in case.shapes[:2])
        c = rng.standard_normal(case.shapes[2]).astype(np.float32)
        start, x, y = (each.astype(np.float64) for each in (c, a, b))
        exact, size = case.exact(x, y), np.abs(start) + case.exact(np.abs(x), np.abs(y))
        return _held([a, b, c], start + exact, 600 * 2.0**-23 * size)

    convolutions.SIZES.update(sizes)
    case = convolutions.Case(name, *steps)
    at = draw.choice(("sm_80", "sm_89", "sm_90a", "sm_90a", "sm_100a", "sm_120a"))
    return Function(f"{name} {sizes['c']} {sizes['f']} {steps}", case.text(("f16", "f16", "f32")), at, instance)


KINDS: Mapping[str, Callable[[random.Random], Function]] = {
    "product": product, "attention": attention, "gradient": gradient, "blocks": block_scales, "weights": weights,
    "gated": gated, "experts": of_experts, "convolution": convolution,
}  # fmt: skip
