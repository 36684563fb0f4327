"""Rows and elementwise work against torch.compile, and against a copy of the same bytes, in one run.

    bench/with_gpu.sh python3 bench/rows.py --json out.json
    bench/with_gpu.sh python3 bench/rows.py --only softmax,rms_norm --columns 1024 65536
    bench/with_gpu.sh python3 bench/rows.py --warm     # compiles all of both, and times nothing
    bench/with_gpu.sh python3 bench/rows.py --inductor 4096 65536 --kernels folder     # inductor for these columns

Each case is a function of PyTorch. Ours is what `torch_to_linalg` makes of it, as one compiled function; the peer is
what inductor makes of it. Operands are bf16 from a normal distribution, `--elements` of them in rows of each length.
Launches are timed in CUDA graphs, one after another over sets of operands that the L2 cache does not hold; a time is
the median of several replays, kernels taking turns. `of copy` is the time in which the device copies as many bytes as
the function reads and writes, over that of the kernel; `launches` is how many kernels ours has. `error` is the largest
difference from float64 over the largest value, of the first rows, beside that of torch.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from warploom.runtime import Kernel, compile
from warploom.runtime.torch.importer import torch_to_linalg

Tensor = torch.Tensor
DEVICE = "cuda"
EPSILON, BLOCK, HEAD, LARGEST = 1e-6, 128, 128, 448.0
GROUPS, CHANNELS, NORMED = 32, 256, 8
EXPERTS, CHOSEN = 128, 8
SETS_BYTES, REPLAYS, SAMPLE, WHOLE = 300 << 20, 7, 8, 1 << 16


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], w, b)


def layer_norm_statistics(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return torch.native_layer_norm(x, x.shape[-1:], w, b, EPSILON)


def rms_norm(x: Tensor, w: Tensor | None) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], w, EPSILON)


def gated_group_norm(x: Tensor, z: Tensor, w: Tensor) -> Tensor:
    """What is gated, normed in groups of each row, as Mamba 2 does."""
    y = (x.float() * functional.silu(z.float())).unflatten(-1, (NORMED, -1))
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON)
    return w * y.flatten(-2).to(x.dtype)


def add_rms_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + r
    return h, functional.rms_norm(h, x.shape[-1:], w, EPSILON)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return functional.silu(a) * b


def swiglu_backward(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    g32, a32, b32 = g.float(), a.float(), b.float()
    s = torch.sigmoid(a32)
    return (g32 * b32 * s * (1 + a32 * (1 - s))).to(a.dtype), (g32 * a32 * s).to(b.dtype)


def softmax_backward(g: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype)


def rms_norm_backward(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """The gradient of the input."""
    wide, weighted = x.float(), g.float() * w.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return (scale * weighted - wide * scale.pow(3) * (weighted * wide).mean(-1, keepdim=True)).to(x.dtype)


def rms_norm_weight_gradient(g: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """Of the weight, from the scales of rows that the forward pass stored."""
    return (g.float() * x.float() * scale).sum(0).to(g.dtype)


def layer_norm_gradients(g: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Of input, weight and bias."""
    backward = torch.ops.aten.native_layer_norm_backward
    return backward(g, x, x.shape[-1:], mean, scale, w, torch.zeros_like(w), [True, True, True])


def bias_gradient(g: Tensor) -> Tensor:
    return g.float().sum(0).to(g.dtype)


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Halves of each head of 128, turned."""
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((-b, a), -1) * sine


def rope_of_heads(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The same of heads that lie before tokens afterwards, as attention takes them."""
    return rope(x.transpose(1, 2), cosine, sine).contiguous()


def rope_part(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The first half of each head, turned, and the second as it is."""
    size = cosine.shape[-1]
    return torch.cat((rope(x[..., :size], cosine, sine), x[..., size:]), -1)


def rope_pairs(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Neighbours of each head, turned."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2).to(x.dtype)


def norm_rope(q: Tensor, k: Tensor, w: Tensor, v: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    """Heads of queries and of keys as Qwen 3 has them: normed, put before tokens, and turned."""
    normed = (w * rms_norm(q.float(), None).to(q.dtype), v * rms_norm(k.float(), None).to(k.dtype))
    return tuple(rope(x.transpose(1, 2), cosine, sine).contiguous() for x in normed)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True) / LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def quantise_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.float().unflatten(-1, (-1, BLOCK))
    scale = y.abs().amax(-1, keepdim=True) / LARGEST
    return (y / scale).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)


def swiglu_quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of what one product made, gated, and quantised by rows."""
    a, b = x.float().chunk(2, -1)
    y = functional.silu(a) * b
    scale = y.abs().amax(-1, keepdim=True) / LARGEST
    return (y / scale).to(torch.float8_e4m3fn), scale


def cast(x: Tensor) -> Tensor:
    return x.float()


def concatenate(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors, -1)


def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(x.float(), labels, reduction="none")


def cross_entropy_backward(g: Tensor, y: Tensor, labels: Tensor) -> Tensor:
    """From the logarithms that the forward pass stored."""
    slopes = torch.ops.aten.nll_loss_backward(g, y, labels, None, 0, -100, torch.empty([], device=y.device))
    return torch.ops.aten._log_softmax_backward_data(slopes, y, -1, y.dtype).bfloat16()


def mean_cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(x.float(), labels)


def smoothed_cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    """Of labels of which some are to be ignored."""
    return functional.cross_entropy(x.float(), labels, ignore_index=0, label_smoothing=0.1)


def mean_square(x: Tensor) -> Tensor:
    return x.float().square().mean()


def router(x: Tensor) -> tuple[Tensor, Tensor]:
    """The experts of tokens, and their shares."""
    shares, places = torch.softmax(x.float(), -1).topk(CHOSEN)
    return shares, places


def embedding(table: Tensor, tokens: Tensor) -> Tensor:
    return functional.embedding(tokens, table)


def embedding_norm(table: Tensor, tokens: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of a table, and their norm."""
    h = functional.embedding(tokens, table)
    return h, functional.rms_norm(h, h.shape[-1:], w, EPSILON)


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """As in training, by the statistics of these images."""
    return functional.batch_norm(x, None, None, w, b, training=True)


def batch_norm_gradients(g: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Of images or rows, weight and bias."""
    backward = torch.ops.aten.native_batch_norm_backward
    return backward(g, x, w, None, None, mean, scale, True, EPSILON, [True, True, True])


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.group_norm(x, GROUPS, w, b)


def group_norm_gradients(g: Tensor, x: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Of images, weight and bias."""
    backward = torch.ops.aten.native_group_norm_backward
    return backward(g, x, mean, scale, w, *x.shape[:2], x.shape[2] * x.shape[3], GROUPS, [True, True, True])


def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest element of each row, and its place."""
    values, places = x.max(-1)
    return values, places


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE).bfloat16()


def scales(*shape: int) -> Tensor:
    return torch.rand(*shape, device=DEVICE) + 0.5


def images(m: int, n: int) -> Tensor:
    """As many elements as `m` rows of `n`."""
    return rows(m * n // (CHANNELS * 1024), CHANNELS, 32, 32)


@dataclass(frozen=True)
class Case:
    """A function, and its operands for so many rows of a length."""

    function: Callable[..., Any]
    operands: Callable[[int, int], Sequence[Tensor]]


CASES = {
    "layer_norm": Case(layer_norm, lambda m, n: (rows(m, n), rows(n), rows(n))),
    "layer_norm_statistics": Case(layer_norm_statistics, lambda m, n: (rows(m, n), rows(n), rows(n))),
    "rms_norm": Case(rms_norm, lambda m, n: (rows(m, n), rows(n))),
    "add_rms_norm": Case(add_rms_norm, lambda m, n: (rows(m, n), rows(m, n), rows(n))),
    "gated_group_norm": Case(gated_group_norm, lambda m, n: (rows(m, n), rows(m, n), rows(n))),
    "softmax": Case(softmax, lambda m, n: (rows(m, n),)),
    "log_softmax": Case(log_softmax, lambda m, n: (rows(m, n),)),
    "swiglu": Case(swiglu, lambda m, n: (rows(m, n), rows(m, n))),
    "swiglu_backward": Case(swiglu_backward, lambda m, n: (rows(m, n), rows(m, n), rows(m, n))),
    "softmax_backward": Case(softmax_backward, lambda m, n: (rows(m, n), rows(m, n))),
    "rms_norm_backward": Case(rms_norm_backward, lambda m, n: (rows(m, n), rows(m, n), rows(n))),
    "rms_norm_weight_gradient": Case(rms_norm_weight_gradient, lambda m, n: (rows(m, n), rows(m, n), scales(m, 1))),
    "layer_norm_gradients": Case(
        layer_norm_gradients, lambda m, n: (rows(m, n), rows(m, n), rows(n), scales(m, 1), scales(m, 1))
    ),
    "bias_gradient": Case(bias_gradient, lambda m, n: (rows(m, n),)),
    "cross_entropy": Case(cross_entropy, lambda m, n: (rows(m, n), torch.randint(n, (m,), device=DEVICE))),
    "cross_entropy_backward": Case(
        cross_entropy_backward,
        lambda m, n: (
            torch.rand(m, device=DEVICE),
            torch.log_softmax(rows(m, n).float(), -1),
            torch.randint(n, (m,), device=DEVICE),
        ),
    ),
    "mean_cross_entropy": Case(mean_cross_entropy, lambda m, n: (rows(m, n), torch.randint(n, (m,), device=DEVICE))),
    "smoothed_cross_entropy": Case(
        smoothed_cross_entropy, lambda m, n: (rows(m, n), torch.randint(n, (m,), device=DEVICE))
    ),
    "mean_square": Case(mean_square, lambda m, n: (rows(m, n),)),
    "router": Case(router, lambda m, n: (rows(m * n // (64 * EXPERTS), EXPERTS),)),
    "embedding": Case(embedding, lambda m, n: (rows(m, n), torch.randperm(m, device=DEVICE))),
    "embedding_norm": Case(embedding_norm, lambda m, n: (rows(m, n), torch.randperm(m, device=DEVICE), rows(n))),
    "group_norm": Case(group_norm, lambda m, n: (images(m, n), rows(CHANNELS), rows(CHANNELS))),
    "group_norm_gradients": Case(
        group_norm_gradients,
        lambda m, n: (
            *(images(m, n) for _ in range(2)),
            rows(CHANNELS),
            rows(m * n // (CHANNELS * 1024), GROUPS),
            scales(m * n // (CHANNELS * 1024), GROUPS).bfloat16(),
        ),
    ),
    "batch_norm": Case(batch_norm, lambda m, n: (images(m, n), rows(CHANNELS), rows(CHANNELS))),
    "batch_norm_gradients": Case(
        batch_norm_gradients,
        lambda m, n: (*(images(m, n) for _ in range(2)), rows(CHANNELS), *(scales(CHANNELS) for _ in range(2))),
    ),
    "batch_norm_columns": Case(batch_norm, lambda m, n: (rows(m, n), rows(n), rows(n))),
    "batch_norm_columns_gradients": Case(
        batch_norm_gradients, lambda m, n: (rows(m, n), rows(m, n), rows(n), scales(n), scales(n))
    ),
    "cumsum": Case(cumsum, lambda m, n: (rows(m, n),)),
    "largest": Case(largest, lambda m, n: (rows(m, n),)),
    "concatenate": Case(concatenate, lambda m, n: (rows(m, n // 2), rows(m, n // 2))),
    "concatenate_three": Case(concatenate, lambda m, n: (rows(m, n // 4), rows(m, n // 4), rows(m, n // 2))),
    "rope": Case(rope, lambda m, n: (rows(m, n // HEAD, HEAD), rows(m, 1, HEAD), rows(m, 1, HEAD))),
    "rope_of_heads": Case(rope_of_heads, lambda m, n: (rows(1, m, n // HEAD, HEAD), rows(m, HEAD), rows(m, HEAD))),
    "rope_part": Case(rope_part, lambda m, n: (rows(m, n // HEAD, HEAD), *(rows(m, 1, HEAD // 2) for _ in range(2)))),
    "rope_pairs": Case(
        rope_pairs, lambda m, n: (rows(m, n // HEAD, HEAD), rows(m, 1, HEAD // 2), rows(m, 1, HEAD // 2))
    ),
    "norm_rope": Case(
        norm_rope,
        lambda m, n: (
            *(rows(1, m, n // HEAD // share, HEAD) for share in (1, 4)),
            *(rows(HEAD) for _ in range(2)),
            *(rows(m, HEAD) for _ in range(2)),
        ),
    ),
    "swiglu_quantise": Case(swiglu_quantise, lambda m, n: (rows(m, n),)),
    "quantise_rows": Case(quantise_rows, lambda m, n: (rows(m, n),)),
    "quantise_blocks": Case(quantise_blocks, lambda m, n: (rows(m, n),)),
    "cast": Case(cast, lambda m, n: (rows(m, n),)),
    "transpose": Case(transpose, lambda m, n: (rows(m, n),)),
}


ANY_LENGTH = frozenset(
    (
        "swiglu",
        "swiglu_backward",
        "mean_square",
        "router",
        "group_norm",
        "group_norm_gradients",
        "batch_norm",
        "batch_norm_gradients",
        "concatenate",
        "rope",
        "rope_of_heads",
        "rope_part",
        "rope_pairs",
        "norm_rope",
        "quantise_blocks",
        "cast",
    )
)
"""Those whose kernel is the same for any length of rows, which are timed for one."""


@dataclass(frozen=True)
class Result:
    """Microseconds of ours, inductor and the copy; errors of ours and of torch."""

    case: str
    rows: int
    columns: int
    ours: float
    inductor: float
    copy: float
    launches: int
    error: float
    torch_error: float

    def __str__(self) -> str:
        size, share = f"{self.rows}x{self.columns}", self.copy / self.ours
        times = f"{self.ours:9.2f} {self.inductor:9.2f} {self.copy:9.2f}"
        errors = f"{self.error:9.1e} {self.torch_error:9.1e}"
        shares = f"{share:8.3f} {self.inductor / self.ours:8.3f}"
        return f"{self.case:22} {size:>13} {times} {shares} {self.launches:3} {errors}"


HEADER = f"{'case':22} {'size':>13} " + " ".join(
    f"{title:>{width}}"
    for title, width in (("ours us", 9), ("inductor", 9), ("copy", 9), ("of copy", 8), ("speedup", 8), ("#", 3),
                         ("error", 9), ("torch", 9))
)  # fmt: skip


def leaves(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


def size_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def ours(case: Case, operands: Sequence[Tensor], target: str, file: Path | None = None) -> Kernel:
    """The compiled function, from a file that an earlier run has written, if there is one."""
    if file is not None and file.exists():
        return pickle.loads(file.read_bytes())
    kernel = compile(torch_to_linalg(case.function, *operands), target=target)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(kernel))
    return kernel


def in_graph(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """The calls, one after another, as a graph."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    torch.cuda.synchronize()
    return graph


def timed(graphs: Sequence[tuple[torch.cuda.CUDAGraph, int]]) -> list[float]:
    """Microseconds of each of so many calls of graphs, which take turns."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(REPLAYS + 1):
        for (graph, count), milliseconds in zip(graphs, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            milliseconds.append(1e3 * start.elapsed_time(end) / count)
    return [statistics.median(milliseconds[1:]) for milliseconds in times]


def errors(case: Case, operands: Sequence[Tensor], results: Sequence[Tensor], own: Sequence[Tensor]) -> list[float]:
    """The largest errors of our results and of torch's, in the first rows."""
    if case.function in (transpose, cast, concatenate):
        return [float((a != b).sum()) for a, b in zip(results, own, strict=True)] * 2
    sums = case.function in (
        rms_norm_weight_gradient,
        layer_norm_gradients,
        bias_gradient,
        cross_entropy,
        cross_entropy_backward,
        mean_cross_entropy,
        smoothed_cross_entropy,
        batch_norm,
        batch_norm_gradients,
        group_norm_gradients,
        mean_square,
        embedding,
        embedding_norm,
        rope_of_heads,
        norm_rope,
    )
    wide = [(x[:SAMPLE] if x.dim() > 1 and not sums else x) for x in operands]
    wide = [x.double() if x.is_floating_point() else x for x in wide]
    worst = [0.0, 0.0]
    for exact, mine, peer in zip(leaves(case.function(*wide)), results, own, strict=True):
        for number, result in enumerate((mine, peer)):
            part = result if sums else result[:SAMPLE]
            off = (part.double() - exact.double()).abs().max() / exact.double().abs().max()
            worst[number] = max(worst[number], float(off))
    return worst


def measure(name: str, m: int, n: int, target: str, *, alone: bool = False, kernel: Kernel | None = None) -> Result:
    """A case for a size; `alone` without inductor, whose time is not a number then."""
    case = CASES[name]
    first = case.operands(m, n)
    call, compiled = kernel or ours(case, first, target), None if alone else torch.compile(case.function, dynamic=False)
    own = leaves(case.function(*first))
    moved = size_of(first) + size_of(own)
    sets = [first, *(case.operands(m, n) for _ in range(max(1, math.ceil(SETS_BYTES / moved)) - 1))]
    outputs = [[torch.zeros_like(x) for x in own] for _ in sets]
    call(*first, *outputs[0])
    torch.cuda.synchronize()
    error, torch_error = errors(case, first, outputs[0], own)
    half = moved // (2 * WHOLE) * WHOLE  # copies of other sizes take a quarter longer
    halves = [torch.empty(half, dtype=torch.uint8, device=DEVICE) for _ in range(2 * len(sets))]
    calls = list(range(len(sets))) * max(1, 6 // len(sets))
    graphs = [
        in_graph([lambda i=i: call(*sets[i], *outputs[i]) for i in calls]),
        in_graph([lambda i=i: halves[2 * i].copy_(halves[2 * i + 1]) for i in calls]),
        *([] if compiled is None else [in_graph([lambda i=i, run=compiled: run(*sets[i]) for i in calls])]),
    ]
    mine, copy, peer = *timed([(graph, len(calls)) for graph in graphs]), *([math.nan] if alone else [])
    return Result(name, m, n, mine, peer, copy, call.ptx.count(".visible .entry"), error, torch_error)


def warm(name: str, m: int, n: int, target: str, *, alone: bool = False, file: Path | None = None) -> str:
    """Compiles both for a size, or ours `alone`."""
    case = CASES[name]
    operands = case.operands(m, n)
    kernel = ours(case, operands, target, file)
    results = leaves((case.function if alone else torch.compile(case.function, dynamic=False))(*operands))
    kernel(*operands, *results)
    torch.cuda.synchronize()
    return f"{name} {m}x{n}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="cases, with commas between them")
    parser.add_argument("--columns", nargs="*", type=int, default=[1024, 4096, 16384, 65536])
    parser.add_argument("--elements", type=int, default=1 << 26)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without inductor")
    parser.add_argument("--inductor", nargs="*", type=int, help="the columns for which it is timed, otherwise all")
    parser.add_argument("--kernels", type=Path, help="a folder of compiled functions, which are written once")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    if not args.alone:
        torch._dynamo.config.recompile_limit = 64
    names = args.only.split(",") if args.only else list(CASES)
    lengths = {name: args.columns[1:2] or args.columns if name in ANY_LENGTH else args.columns for name in names}
    sizes = [(name, args.elements // n, n) for name in names for n in lengths[name]]
    if not args.warm:
        print(torch.cuda.get_device_name())
        print(HEADER)
    results: list[Result] = []
    for name, m, n in sizes:
        alone = args.alone or (args.inductor is not None and n not in args.inductor)
        file = args.kernels and args.kernels / f"{name}-{m}x{n}"
        try:
            if args.warm:
                print(warm(name, m, n, args.target, alone=alone, file=file), flush=True)
                continue
            kernel = ours(CASES[name], (), args.target, file) if file and file.exists() else None
            results.append(measure(name, m, n, args.target, alone=alone, kernel=kernel))
            print(results[-1], flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
        except Exception as error:  # one case that fails leaves the others
            print(f"{name:22} {m}x{n} {type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
