"""The gradients of attention against torch's backward (cuDNN, FlashAttention), in one run.

    bench/with_gpu.sh python3 bench/attention_gradient.py --json out.json
    bench/with_gpu.sh python3 bench/attention_gradient.py --cases 128x4096 --try "dQ cta=128x64x128"

Method: as `attention.py`. Ours is one function from O, dO and the logarithms of sums to dQ, dK and dV, with the sums of
dO * O, and with `--parts` each of its operations alone. `error` is the largest difference of a gradient of two heads
from that in f32, over the largest value.
Operations are those of five products, 10 * length^2 * width for each head, half of that where the mask is causal.
Schedules given by `--try` are for the kernel of the results named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from attention import TOKENS, WIDTH, Row, options_of, timed
from torch.nn.attention import SDPBackend, sdpa_kernel

from warploom.runtime import WarploomError, compile

CASES = ("128x4096", "128x4096xc", "64x4096xc", "128x1024xc", "128x16384xc", "256x4096xc")

LOOPS = {
    **dict.fromkeys(("q", "dq"), "(h, m, d)"),
    **dict.fromkeys(("k", "dk"), "(h, n, d)"),
    **dict.fromkeys(("v", "dv"), "(h, n, e)"),
    **dict.fromkeys(("o", "do"), "(h, m, e)"),
    **dict.fromkeys(("lse", "delta"), "(h, m)"),
}

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def source(heads: int, length: int, width: int, causal: bool, parts: Sequence[str]) -> str:
    """A function of all that a backward pass reads and makes; "delta", the sums of dO * O, and the results of each part
    are computed by an operation."""
    matrix, row = f"memref<{heads}x{length}x{width}xbf16>", f"memref<{heads}x{length}xf32>"
    types = {name: row if name in ("lse", "delta") else matrix for name in LOOPS}
    delta = f"""%zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%delta : {row})
      linalg.generic {{indexing_maps = [affine_map<(h, m, e) -> (h, m, e)>, affine_map<(h, m, e) -> (h, m, e)>,
          affine_map<(h, m, e) -> (h, m)>], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%o, %do : {matrix}, {matrix}) outs(%delta : {row}) {{
      ^bb0(%a: bf16, %b: bf16, %s: f32):
        %x = arith.extf %a : bf16 to f32
        %y = arith.extf %b : bf16 to f32
        %p = arith.mulf %x, %y : f32
        %r = arith.addf %s, %p : f32
        linalg.yield %r : f32
      }}"""
    inputs, diagonal = ("q", "k", "v", "do", "lse", "delta"), "diagonal = 0 : i64, " if causal else ""
    body = [delta] if "delta" in parts else []
    for outputs in (part.split(",") for part in parts if part != "delta"):
        maps = ", ".join(f"affine_map<(h, m, n, d, e) -> {LOOPS[name]}>" for name in (*inputs, *outputs))
        body.append(f"""warp.attention_gradient {", ".join("%" + name for name in inputs)} into
        {", ".join("%" + n for n in outputs)} {{scale = {width**-0.5:e} : f32, {diagonal}indexing_maps = [{maps}]}}
        : {", ".join(types[name] for name in inputs)} into {", ".join(types[name] for name in outputs)}""")
    parameters = ", ".join(f"%{name}: {types[name]}" for name in LOOPS)
    return f"func.func @gradient({parameters}) {{\n      " + "\n      ".join([*body, "return"]) + "\n}"


def parts_of(width: int) -> tuple[str, ...]:
    """What each operation makes."""
    return ("delta", "dq", "dk,dv") if width <= 128 else ("delta", "dq", "dk", "dv")


def kernels(
    heads: int, length: int, width: int, causal: bool, target: str, options: dict[str, dict[str, Any]], only: str = ""
) -> list[Any]:
    """A call of all, of one part alone, or of each part with options of its own."""
    every = parts_of(width)
    named = [(part,) for part in every] if options else [(only,)] if only else [every]
    return [
        compile(
            source(heads, length, width, causal, parts),
            target=target,
            **options.get("".join(parts).replace(",", ""), {}),
        )
        for parts in named
    ]


def ours(
    inputs: Sequence[torch.Tensor], lse: torch.Tensor, causal: bool, target: str, options: dict[str, dict[str, Any]],
    only: str = "",
) -> Callable[[], Gradients]:  # fmt: skip
    """A call of our kernels, or of those of one part."""
    shape = inputs[0].shape
    q, k, v, o, do = (tensor.flatten(0, 1) for tensor in inputs)
    every = kernels(q.shape[0], q.shape[1], q.shape[2], causal, target, options, only)
    rows = lse.reshape(q.shape[:2]).float().contiguous()
    delta = torch.full_like(rows, float("nan"))
    results = {name: torch.full_like(q, float("nan")) for name in ("dq", "dk", "dv")}
    named = {"q": q, "k": k, "v": v, "o": o, "do": do, "lse": rows, "delta": delta, **results}

    def call() -> Gradients:
        for kernel in every:
            kernel(*(named[name] for name in LOOPS))
        dq, dk, dv = (result.view(shape) for result in results.values())
        return dq, dk, dv

    return call


def peer(inputs: Sequence[torch.Tensor], causal: bool, backend: SDPBackend) -> Callable[[], Gradients]:
    """A call of one of torch's."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in inputs[:3])
    with sdpa_kernel(backend):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def call() -> Gradients:
        dq, dk, dv = torch.autograd.grad(o, (q, k, v), inputs[4], retain_graph=True)
        return dq, dk, dv

    return call


def error_of(results: Gradients, inputs: Sequence[torch.Tensor], causal: bool) -> float:
    """The largest difference of the first and the last head from what f32 gives, over the largest value."""
    worst = 0.0
    for batch, head in ((0, 0), (-1, -1)):
        q, k, v, _, do = (tensor[batch, head].float() for tensor in inputs)
        scores = q @ k.T * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        p = torch.softmax(scores, -1)
        dp = do @ v.T
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        for result, wanted in zip(results, (ds @ k, ds.T @ q, p.T @ do), strict=True):
            difference = (result[batch, head].float() - wanted).abs().max() / wanted.abs().max()
            worst = max(worst, float(difference)) if not difference.isnan() else float("nan")
    return worst


def prepared(size: Sequence[int], causal: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Q, K, V, O and dO, and the logarithms of sums."""
    width, length, heads, batch = size
    q, k, v, do = (torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(4))
    o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)  # pyright: ignore
    return [q, k, v, o.contiguous(), do], lse


def size_of(case: str) -> tuple[tuple[int, int, int, int], bool]:
    """Columns, length, heads and batch of a case, and whether it is causal."""
    width, length = map(int, case.split("x")[:2])
    return (width, length, WIDTH // width, TOKENS // length), case.endswith("c")


def tried(text: str) -> dict[str, dict[str, Any]]:
    """`dq stages=3` as options by kernel."""
    name, _, rest = text.partition(" ")
    return {name: options_of(rest)} if name else {}


def compiled(case: str, target: str, text: str) -> str:
    """Compiles for the cache: why there is no kernel, if there is none."""
    (width, length, heads, batch), causal = size_of(case)
    try:
        for only in ("",) if text else ("", *parts_of(width)):
            for kernel in kernels(heads * batch, length, width, causal, target, tried(text), only):
                _ = kernel.cubin
    except WarploomError as error:
        return f"{case} {text}: {error}"
    return ""


def measure(
    size: Sequence[int], causal: bool, target: str, tries: Sequence[str], repeats: int, *, parts: bool
) -> list[Row]:
    """All kernels for one size: columns, length, heads, batch."""
    width, length, heads, batch = size
    inputs, lse = prepared(size, causal)
    calls: dict[str, Callable[[], Any]] = {"warploom": ours(inputs, lse, causal, target, {})}
    for text in tries:
        try:
            calls[f"warploom {text}"] = ours(inputs, lse, causal, target, tried(text))
        except WarploomError as error:
            print(text, error)
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        calls[name] = peer(inputs, causal, backend)
    errors = {name: error_of(call(), inputs, causal) for name, call in calls.items()}
    if parts:
        calls |= {f"warploom {name} alone": ours(inputs, lse, causal, target, {}, name) for name in parts_of(width)}
    work = 10 * length**2 * width * heads * batch / (2 if causal else 1)
    return [
        Row(width, length, causal, name, round(time, 1), round(work / time / 1e6, 1), errors.get(name, 0.0))
        for name, time in timed(calls, repeats).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="columns x length, or with xc: causal")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--try", dest="tries", action="append", default=[], help="'dq stages=3', 'dkdv cta=128x32x128'")
    parser.add_argument("--compile", action="store_true", help="only compile, for the cache")
    parser.add_argument("--parts", action="store_true", help="the kernels of each result alone, too")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.compile:
        with ProcessPoolExecutor() as pool:
            every = [
                pool.submit(compiled, case, options.target, text)
                for case in options.cases
                for text in ("", *options.tries)
            ]
            print([refused for one in every if (refused := one.result())])
        return
    torch.manual_seed(0)
    rows: list[Row] = []
    for case in options.cases:
        size, causal = size_of(case)
        some = measure(size, causal, options.target, options.tries, options.repeats, parts=options.parts)
        for row in some:
            mask = "causal" if row.causal else "full"
            print(
                f"D {row.width:3} S {row.length:5} {mask:6} {row.microseconds:9.1f} us {row.tflops:7.1f} TFLOP/s "
                f"error {row.error:.1e}  {row.name}",
                flush=True,
            )
        rows += some
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
