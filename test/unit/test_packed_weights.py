"""Packed weights of 4 and 8 bits, converted and scaled in registers of warpgroups, against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import Kernel, compile, pack_weights, unpack_weights

Array = NDArray[Any]

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Half a step between neighbours, relative to them."""


def shape(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def function(
    m: int, n: int, k: int, bits: int, group: int, kind: str, *, points: bool = False, out: str = "f32"
) -> str:
    """A product of packed weights; each loop of a block is one of `linalg`'s."""
    inner = 64 * 4 // bits
    along = {"g": k // group, "k": group // inner} if group >= inner else {"g": k // inner, "t": inner // group}
    loops = {"n": n // 64, "w": 4, "h": 2, "r": 8, **along}
    left = inner // 16 if group >= inner else group // 16
    loops |= {"s": left, "c": 2, "q": 4, "e": 2}
    blocks = "gk" if group >= inner else "g"
    steps = "s" if group >= inner else "ts"
    order = f"n{blocks}wrq" + (f"{steps}ech" if bits == 4 else f"{steps}ceh")
    scaled = ("g" if group >= inner else "gt") + "nwhr"
    names, made = ", ".join(loops), shape(*loops.values())
    held = shape(*(loops[axis] for axis in order))
    scale = shape(*(loops[axis] for axis in scaled))
    groups = f"[[{', '.join(map(str, range(4)))}], [{', '.join(map(str, range(4, len(loops))))}]]"
    parts, scales = ", ".join(order), ", ".join(scaled)
    zero = f", %Z : memref<{held}xi{bits}>, memref<{scale}x{kind}>, memref<{scale}x{kind}>"
    ins = f"%Q, %S{zero}" if points else f"%Q, %S : memref<{held}xi{bits}>, memref<{scale}x{kind}>"
    maps = "#q, #s, #s, #w" if points else "#q, #s, #w"
    less = f"%d = arith.subf %f, %z : {kind}" if points else ""
    signed = "arith.uitofp" if points else "arith.sitofp"
    return f"""#q = affine_map<({names}) -> ({parts})>
#s = affine_map<({names}) -> ({scales})>
#w = affine_map<({names}) -> ({names})>
func.func @f(%A: memref<{m}x{k}x{kind}>, %Q: memref<{held}xi{bits}>, %S: memref<{scale}x{kind}>,
             {f"%Z: memref<{scale}x{kind}>, " * points}%D: memref<{m}x{n}x{out}>) {{
  %zero = arith.constant 0.0 : {out}
  %W = memref.alloc() : memref<{made}x{kind}>
  linalg.generic {{indexing_maps = [{maps}], iterator_types = [{", ".join(['"parallel"'] * len(loops))}]}}
      ins({ins}) outs(%W : memref<{made}x{kind}>) {{
  ^bb0(%q: i{bits}, %s: {kind}, {f"%z: {kind}, " * points}%old: {kind}):
    %f = {signed} %q : i{bits} to {kind}
    {less}
    %w = arith.mulf {"%d" if points else "%f"}, %s : {kind}
    linalg.yield %w : {kind}
  }}
  %B = memref.collapse_shape %W {groups} : memref<{made}x{kind}> into memref<{n}x{k}x{kind}>
  linalg.fill ins(%zero : {out}) outs(%D : memref<{m}x{n}x{out}>)
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<{m}x{k}x{kind}>, memref<{n}x{k}x{kind}>) outs(%D : memref<{m}x{n}x{out}>)
  return
}}"""


def run(
    m: int, n: int, k: int, bits: int, group: int, kind: str, *, points: bool = False, **schedule: Any
) -> tuple[Kernel, Array, Array, Array]:
    """The kernel, what it computes, that in float64 of weights as they are rounded, and the sum of all magnitudes."""
    kernel = compile(function(m, n, k, bits, group, kind, points=points), target="sm_90a", cache=False, **schedule)
    rng, dtype = np.random.default_rng(), FLOATS[kind]
    a, half = rng.standard_normal((m, k)).astype(dtype), 0 if points else 1 << bits - 1
    q = rng.integers(-half, (1 << bits) - half, (n, k))
    s = (rng.random((k // group, n)) / 16 + 0.01).astype(dtype)
    z = (rng.random((k // group, n)) * (1 << bits)).astype(dtype)
    each = [np.repeat(x.astype(np.float64), group, 0).T for x in (s, z)]
    w = ((q - each[1] * points).astype(dtype).astype(np.float64) * each[0]).astype(dtype).astype(np.float64)
    d = np.full((m, n), np.nan, np.float32)
    arguments = [a, pack_weights(q.astype(np.int8), bits), s, *([z] if points else []), d]
    kernel(*shaped(arguments, m, n, k, bits, group, points), device="interp", checks="all")
    exact = a.astype(np.float64) @ w.T
    return kernel, d, exact, np.abs(a.astype(np.float64)) @ np.abs(w).T


def shaped(arguments: list[Array], m: int, n: int, k: int, bits: int, group: int, points: bool) -> list[Array]:
    """Arguments in the shapes that the function has."""
    text = function(m, n, k, bits, group, "f16", points=points)
    declared = text[text.index("@f(") : text.index(") {")].split("memref<")[1:]
    found: list[Array] = []
    for array, kind in zip(arguments, declared, strict=True):
        sizes = [int(size) for size in kind.split(">")[0].split("x")[:-1]]
        if array is arguments[1] and bits == 4:
            sizes[-1] //= 2
        found.append(array if array is arguments[-1] else array.reshape(sizes))
    return found


@pytest.mark.parametrize(
    ("m", "n", "k", "bits", "group", "kind", "points"),
    [
        (16, 64, 256, 4, 128, "bf16", False),
        (5, 192, 320, 4, 64, "bf16", True),
        (70, 128, 192, 4, 32, "f16", True),
        (19, 192, 224, 8, 32, "bf16", True),
        (130, 64, 384, 8, 128, "f16", False),
    ],
)
def test_packed_weights_are_multiplied_as_their_rounded_products(
    m: int, n: int, k: int, bits: int, group: int, kind: str, points: bool
) -> None:
    kernel, found, exact, size = run(m, n, k, bits, group, kind, points=points)
    assert len(kernel.launches) == 1
    assert kernel.scratch == ()
    np.testing.assert_array_less(np.abs(found - exact), (k + 2) * 2.0**-23 * size + 1e-30)


@pytest.mark.parametrize("bits", [4, 8])
def test_unpacking_inverts_packing(bits: int) -> None:
    q = np.random.default_rng().integers(-(1 << bits - 1), 1 << bits - 1, (128, 192)).astype(np.int8)
    np.testing.assert_array_equal(unpack_weights(pack_weights(q, bits), bits, signed=True), q)
