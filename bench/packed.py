"""Products of packed weights of 4 and 8 bits, whose groups have scales and zero points, on a GPU.

    bench/with_gpu.sh python bench/packed.py --rows 16 256 4096
    bench/with_gpu.sh python bench/packed.py --rows 16 --bits 4 --schedule "cta=16x128x128 warp=16x64 mma=m64n16k16"

Method: that of `weights.py`. Weights are drawn, packed by `runtime.pack_weights`, and results are held against the
product in float64 of weights as the operations round them. Peers in the same run: cuBLAS on bf16, in a row by turns
with each kernel, and kernels that only read as many bytes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

from reading import NOTHING
from weights import ROTATED_BYTES, ReadTimer, in_turns, peers

from warploom.runtime import CompileError, Kernel, compile, pack_weights

LIMIT = 3e-3
"""Relative error in the Frobenius norm that a right kernel stays under, its result rounded to bf16."""

PEER = "cuBLAS, by turns"
"""cuBLAS on the weights as bf16, in a row with each kernel."""

NIBBLES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The floats of 4 bits without a sign."""


class Packed(NamedTuple):
    """A product of packed weights of so many bits, (n, k), groups of which along k have a scale and a zero point; or of
    floats of 4 bits, whose groups have powers of two (`floats`). Of `unrounded` ones sums may be scaled instead."""

    m: int
    n: int
    k: int
    bits: int
    group: int
    points: bool = True
    kind: str = "bf16"
    out: str = "bf16"
    floats: bool = False
    unrounded: bool = False

    @property
    def loops(self) -> dict[str, int]:
        """The loops of `linalg` and their sizes: those of n, then those of k."""
        block = 256 // self.bits
        groups = {"g": self.k // self.group, "b": self.group // block, "s": block // 16}
        if self.group < block:
            groups = {"b": self.k // block, "g": block // self.group, "s": self.group // 16}
        return {"n": self.n // 64, "w": 4, "h": 2, "r": 8, **groups, "c": 2, "q": 4, "e": 2}

    @property
    def orders(self) -> tuple[str, str]:
        """The loops in the order in which weights, and scales, lie."""
        steps = "s" if self.group >= 256 // self.bits else "gs"
        blocks = "gb" if self.group >= 256 // self.bits else "b"
        pairs = "ech" if self.bits == 4 else "ceh"
        return f"n{blocks}wrq{steps}{pairs}", ("g" if blocks == "gb" else "bg") + "nwhr"

    def sizes(self, order: str) -> list[int]:
        """The sizes of what lies in an order of the loops."""
        return [self.loops[loop] for loop in order]

    @property
    def shapes(self) -> list[list[int]]:
        """Those of the arguments as arrays: A, bytes of weights, scales, zero points, D."""
        weights, scales = (self.sizes(order) for order in self.orders)
        weights[-1] = weights[-1] * self.bits // 8
        return [[self.m, self.k], weights, scales, *([scales] if self.points else []), [self.m, self.n]]

    def text(self) -> str:
        """The weights are made by an operation of their own, in the order in which they lie."""
        kind, bits, out, loops = self.kind, self.bits, self.out, "".join(self.loops)
        weights, scales = self.orders
        stored, scale = ("f4E2M1FN", "f8E8M0FNU") if self.floats else (f"i{bits}", kind)
        cast = "extf" if self.floats else "uitofp" if self.points else "sitofp"
        wide = f"%e = arith.extf %s : {scale} to {kind}" if self.floats else ""
        maps = [f"#{name} = affine_map<({', '.join(loops)}) -> ({', '.join(order)})>" for name, order in (
            ("q", weights), ("s", scales), ("w", loops))]  # fmt: skip
        q, s, w = (
            f"memref<{'x'.join(map(str, self.sizes(order)))}x{element}>"
            for order, element in ((weights, stored), (scales, scale), (loops, kind))
        )
        a, b, d = (
            f"memref<{self.m}x{self.k}x{kind}>",
            f"memref<{self.n}x{self.k}x{kind}>",
            f"memref<{self.m}x{self.n}x{out}>",
        )
        groups = f"[[0, 1, 2, 3], [{', '.join(map(str, range(4, len(loops))))}]]"
        z = self.points
        return (
            "\n".join(maps)
            + f"""
func.func @f(%A: {a}, %Q: {q}, %S: {s}, {f"%Z: {s}, " * z}%D: {d}) {{
  %zero = arith.constant 0.0 : {out}
  %W = memref.alloc() : {w}
  linalg.generic {{indexing_maps = [#q, #s, {"#s, " * z}#w],
                  iterator_types = [{", ".join(['"parallel"'] * len(loops))}]}}
      ins(%Q, %S{", %Z" * z} : {q}, {s}{f", {s}" * z}) outs(%W : {w}) {{
  ^bb0(%q: {stored}, %s: {scale}, {f"%z: {kind}, " * z}%old: {kind}):
    %0 = arith.{cast} %q : {stored} to {kind}
    {f"%1 = arith.subf %0, %z : {kind}" * z}{wide}
    %2 = arith.mulf %{1 * z}, {"%e" if wide else "%s"}{" fastmath<contract>" * self.unrounded} : {kind}
    linalg.yield %2 : {kind}
  }}
  %B = memref.collapse_shape %W {groups} : {w} into {b}
  linalg.fill ins(%zero : {out}) outs(%D : {d})
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : {a}, {b}) outs(%D : {d})
  return
}}
"""
        )


def compiled(product: Packed, schedules: list[str]) -> dict[str, Kernel]:
    """The default, and those that are asked for."""
    kernels: dict[str, Kernel] = {}
    for text in ["", *schedules]:
        fields: dict[str, Any] = dict(field.split("=") for field in text.split())
        try:
            kernels[text] = compile(product.text(), target="sm_90a", **fields)
        except CompileError as error:
            print(f"{product.m} rows, {product.bits} bits, {text}: {str(error).splitlines()[0]}", file=sys.stderr)
    return kernels


def measured(torch: Any, timer: ReadTimer, product: Packed, kernels: dict[str, Kernel]) -> dict[str, float]:
    """Prints the time of each kernel, alone and in a row, that of cuBLAS by turns with it, the share of memory's
    bandwidth, and its error. Returns the milliseconds in a row, and those of cuBLAS beside the last kernel (`PEER`)."""
    times = dict[str, float]()
    m, n, k, bits, group, points, *_, floats, _ = product
    dtype = torch.bfloat16 if product.kind == "bf16" else torch.float16
    low = 0 if points or floats else -(1 << bits - 1)
    q = torch.randint(low, low + (1 << bits), (n, k), dtype=torch.int16)
    s, z = (torch.rand((k // group, n), device="cuda") for _ in range(2))
    s, z = (s / 64 + 1e-3).to(dtype), (z * (1 << bits)).floor().to(dtype)
    a = torch.randn((m, k), device="cuda", dtype=dtype)
    packed = torch.from_numpy(pack_weights(q.numpy().astype("uint8" if low == 0 else "int8"), bits)).cuda()
    values = q.cuda().to(dtype)
    if floats:
        table = torch.tensor(NIBBLES, device="cuda", dtype=dtype)
        values = torch.cat([table, -table])[q.cuda().long()]
        s = torch.randint(110, 125, s.shape, device="cuda", dtype=torch.uint8)
    scale = torch.pow(2.0, s.float() - 127).to(dtype) if floats else s
    each = [x.repeat_interleave(group, 0).t() for x in (scale, z)]
    w = (values - each[1] if points else values) * each[0]
    exact = a.double() @ w.double().t()
    del each, values
    wide = [w.contiguous(), w.clone()]
    for text, kernel in kernels.items():
        out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        arguments = [a, packed, s, *([z] if points else []), out]
        arguments[2] = arguments[2].view(torch.float8_e8m0fnu) if floats else arguments[2]
        arguments = [x.view(shape) for x, shape in zip(arguments, product.shapes, strict=True)]
        prepared = kernel.prepare(*arguments)
        prepared()
        torch.cuda.synchronize()
        error = float((out.double() - exact).norm() / exact.norm())
        if not error < LIMIT:
            print(f"{product}: relative error {error:.1e} with {text or 'the default'}", file=sys.stderr)
        ms, copies = (
            timer.milliseconds(prepared),
            [packed.clone() for _ in range(max(1, ROTATED_BYTES // packed.numel()))],
        )

        def calls(kernel: Kernel = kernel, copies: Any = copies, of_call: Any = arguments) -> list[Any]:
            return [kernel.prepare(of_call[0], copy.view(product.shapes[1]), *of_call[2:]) for copy in copies]

        row, times[PEER] = in_turns(torch, [calls, lambda: [lambda each=each: a @ each.t() for each in wide]])
        times[text] = row
        registers = max(loaded.registers for loaded in prepared.kernels)
        rates = f"{packed.numel() / ms / 1e6:6.0f} GB/s {2 * m * n * k / ms / 1e9:6.0f} TFLOP/s"
        name = "mxfp4" if floats else f"W{bits} g{group}{'' if points else ' s'}{' u' * product.unrounded}"
        beside = f"{row * 1e3:8.1f} (cuBLAS {times[PEER] * 1e3:.1f})"
        print(f"{m:5} {name:11} {ms * 1e3:8.1f} us, in a row {beside} {rates} {error:.1e} {registers:4} "
              f"{text or kernel.schedule[-1]}", flush=True)  # fmt: skip
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 256, 4096])
    parser.add_argument("--size", default="8192x8192", metavar="NxK")
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--no-points", action="store_true", help="signed integers, without zero points")
    parser.add_argument("--unrounded", action="store_true", help="also weights whose flags let sums be scaled instead")
    parser.add_argument("--floats", action="store_true", help="mxfp4: floats of 4 bits, powers of two for each 32")
    parser.add_argument("--schedule", action="append", default=[], help="one more, such as 'stages=6'")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--compile-only", action="store_true", help="fill the cache of kernels, and measure nothing")
    args = parser.parse_args()
    n, k = (int(part) for part in args.size.split("x"))
    products = [
        Packed(m, n, k, bits, args.group, points=not args.no_points, unrounded=unrounded)
        for m in args.rows for bits in args.bits for unrounded in (False, True)[: 1 + args.unrounded]
    ]  # fmt: skip
    if args.floats:
        products = [Packed(m, n, k, 4, 32, points=False, floats=True) for m in args.rows]
    kernels = {product: compiled(product, args.schedule) for product in products}
    if args.compile_only:
        return
    import torch

    timer = ReadTimer(torch, args.repeats)
    for m in args.rows:
        for row in peers(torch, timer, (m, n, k)):
            if row.name != NOTHING:
                print(
                    f"{m:5} {row.name:24} {row.milliseconds * 1e3:8.1f} us, in a row {(row.in_a_row or 0) * 1e3:8.1f}"
                )
        for product in products:
            if product.m == m:
                measured(torch, timer, product, kernels[product])


if __name__ == "__main__":
    main()
