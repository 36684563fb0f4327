"""Attention of one query for each head against torch's (cuDNN, FlashAttention), and what reading K and V takes.

    bench/with_gpu.sh python3 bench/decode.py --json out.json
    bench/with_gpu.sh python3 bench/decode.py --cases 16x32x8x2048x128 --try "split_k=2" --try "stages=3 split_k=4"

A case is sequences x heads x heads of K and V x keys x columns, in bf16; with a further number, V is so many of the
first columns of K, as of a latent matrix (16x16x1x4096x576x512), of which torch has no kernel. Before anything is
timed, the result is compared with that in f32: `error` is the largest difference over the largest value. Calls follow
on each other in a CUDA graph, each with another K and V, which the L2 cache does not hold together; a time is the
median over replays. "copy" is what K and V would take at the bandwidth of a copy of 512 MB, reads and writes counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from warploom.runtime import Kernel, WarploomError, compile

CASES = (
    "16x32x8x2048x128", "16x32x8x16384x128", "1x64x8x32768x128", "64x32x8x1024x128",
    "1x32x8x8192x128", "4x32x8x4096x128", "8x64x8x8192x128", "32x32x32x1024x128",
    "128x32x8x512x128", "1x32x32x4096x128", "32x16x2x4096x64", "2x64x8x65536x128",
)  # fmt: skip

ROTATED_BYTES, REPLAYS, COPIED_BYTES = 400_000_000, 5, 1 << 29

MAPS = """[affine_map<(b, h, g, m, n, d, e) -> (b, h, g, m, d)>, affine_map<(b, h, g, m, n, d, e) -> (b, h, n, d)>,
    affine_map<(b, h, g, m, n, d, e) -> (b, h, n, e)>, affine_map<(b, h, g, m, n, d, e) -> (b, h, g, m, e)>]"""

Call = Callable[[], object]


class Case(NamedTuple):
    """The sizes of an attention of one query."""

    sequences: int
    heads: int
    of_keys: int
    keys: int
    columns: int
    of_values: int = 0

    def text(self, rows: int) -> str:
        """The operation, in MLIR; with pages of so many rows, and lengths, if there are any."""
        b, _, g, n, d, e = self
        queries, cache = f"memref<{b}x{g}x{self.heads // g}x1x{d}xbf16>", f"memref<{b}x{g}x{n}x{d}xbf16>"
        attention = f"into %o {{scale = {d**-0.5:e} : f32, indexing_maps = {MAPS}"
        if e:
            view = f"memref<{b}x{g}x{n}x{e}xbf16, strided<[{g * n * d}, {n * d}, {d}, 1]>>"
            out = f"memref<{b}x{g}x{self.heads // g}x1x{e}xbf16>"
            return f"""func.func @decode(%q: {queries}, %k: {cache}, %o: {out}) {{
              %v = memref.subview %k[0, 0, 0, 0] [{b}, {g}, {n}, {e}] [1, 1, 1, 1] : {cache} to {view}
              warp.attention %q, %k, %v {attention}}} : {queries}, {cache}, {view}, {out}
              return
            }}"""
        if not rows:
            return f"""func.func @decode(%q: {queries}, %k: {cache}, %v: {cache}, %o: {queries}) {{
              warp.attention %q, %k, %v {attention}}} : {queries}, {cache}, {cache}, {queries}
              return
            }}"""
        pages, table = f"memref<{b * n // rows}x{rows}x{g}x{d}xbf16>", f"memref<{b}x{n // rows}xi32>"
        cache = f"memref<{b}x{g}x{n}x{d}xbf16, strided<[{n * g * d}, {d}, {g * d}, 1]>>"
        view = f"""by %t {{along = array<i64: 2, 2, 1, 3>, table_along = array<i64: 0>, page = 0 : i64, slot = 1 : i64}}
              : {pages}, {table} -> {cache}"""
        lengths, along = f"memref<{b}xi32>", "lengths_map = affine_map<(b, h, g, m, n, d, e) -> (b)>"
        arguments = f"%q: {queries}, %k: {pages}, %v: {pages}, %t: {table}, %l: {lengths}, %o: {queries}"
        return f"""func.func @decode({arguments}) {{
          %ks = warp.paged %k {view}
          %vs = warp.paged %v {view}
          warp.attention %q, %ks, %vs {attention}, {along}}} : {queries}, {cache}, {cache}, {queries}
            lengths %l : {lengths}
          return
        }}"""

    @property
    def bytes(self) -> int:
        """Of K and V."""
        return (2 if self.of_values else 4) * self.sequences * self.of_keys * self.keys * self.columns


@dataclass
class Row:
    """One measurement; `registers` of a thread of a kernel of ours."""

    case: str
    name: str
    microseconds: float
    error: float = 0.0
    schedule: str = ""
    registers: int = 0


def in_a_row(calls: Callable[[], Sequence[Call]]) -> float:
    """Microseconds of one of the calls, which are made for the stream that is current then."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        made = calls()
        for call in made:
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in made:
                call()
        times: list[float] = []
        for _ in range(REPLAYS + 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1000 * start.elapsed_time(end) / len(made))
    return statistics.median(times[1:])


def error_of(result: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
    """The largest difference of the last sequence from what f32 gives, over the largest value."""
    of_q, of_k, of_v = (tensor[-1].float() for tensor in (q, k, v))
    of_q = of_q.view(k.shape[1], -1, q.shape[-1])
    wanted = torch.softmax(of_q @ of_k.mT * q.shape[-1] ** -0.5, -1) @ of_v
    difference = (result[-1].float().reshape(wanted.shape) - wanted).abs().max() / wanted.abs().max()
    return float(difference)


def peer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, backend: SDPBackend) -> torch.Tensor:
    """One of torch's."""
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def paged(options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Rows of a page, and the schedule."""
    return int(options.get("pages", 0)), {name: value for name, value in options.items() if name != "pages"}


def compiled(case: Case, options: dict[str, Any], target: str) -> Kernel | str:
    """The kernel, with its machine code in the cache if there is a ptxas; or why there is none."""
    try:
        rows, schedule = paged(options)
        kernel = compile(case.text(rows), target=target, **schedule)
    except WarploomError as error:
        return str(error).splitlines()[0]
    with contextlib.suppress(WarploomError):
        _ = kernel.cubin
    return kernel


def _in_pages(cache: torch.Tensor, table: torch.Tensor, rows: int) -> torch.Tensor:
    """A cache as the pages that a table has the numbers of, in memory of as many bytes."""
    b, g, n, d = cache.shape
    pages = torch.empty(table.numel(), rows, g, d, device="cuda", dtype=cache.dtype)
    blocks = cache.view(b, g, n // rows, rows, d).permute(0, 2, 3, 1, 4)
    pages[table.long()] = blocks.reshape(-1, rows, g, d)
    return pages.view(b, g, n, d)


def refusal(case: Case, options: dict[str, Any], target: str) -> str | None:
    """Compiles for the cache: why there is no kernel, if there is none."""
    kernel = compiled(case, options, target)
    return kernel if isinstance(kernel, str) else None


def measure(case: Case, variants: Sequence[dict[str, Any]], target: str, rate: float) -> list[Row]:
    """All kernels for one case."""
    b, h, g, n, d, e = case
    q = torch.randn(b, h, 1, d, device="cuda").bfloat16()
    count = max(2, ROTATED_BYTES // case.bytes)
    made = range(1 if e else 2)
    caches = [[torch.randn(b, g, n, d, device="cuda", dtype=torch.bfloat16) for _ in made] for _ in range(count)]
    k, v = (caches[0][0], caches[0][0][..., :e]) if e else caches[0]
    name = "x".join(map(str, filter(None, case)))
    rows = [Row(name, "copy", case.bytes / rate)]
    peers = (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))
    for label, backend in () if e else peers:
        try:
            error = error_of(peer(q, k, v, backend), q, k, v)
            time = in_a_row(lambda b=backend: [lambda kv=kv: peer(q, kv[0], kv[1], b) for kv in caches] * 2)
            rows.append(Row(name, label, time, error))
        except RuntimeError as failed:
            print(label, str(failed).splitlines()[0])
    queries = q.view(b, g, h // g, 1, d)
    out = torch.full((*queries.shape[:-1], e or d), float("nan"), device="cuda", dtype=torch.bfloat16)
    for options in variants:
        kernel = compiled(case, options, target)
        if isinstance(kernel, str):
            print(name, options, kernel)
            continue
        out.fill_(float("nan"))
        size, _ = paged(options)
        table, lengths = torch.randperm(b * n // size if size else 1, device="cuda").int(), torch.full((b,), n).int()
        operands = [table.view(b, -1), lengths.cuda()] if size else []

        def prepare(*kv: torch.Tensor, kernel: Kernel = kernel, size: int = size, others: Any = operands) -> Any:
            pages = [of.view(-1, size, g, d) for of in kv] if size else kv
            return kernel.prepare(queries, *pages, *others, out)

        in_pages = [_in_pages(of, table, size) if size else of for of in caches[0]]
        prepared = prepare(*in_pages)
        prepared()
        torch.cuda.synchronize()
        error, registers = error_of(out, q, k, v), max(loaded.registers for loaded in prepared.kernels)
        time = in_a_row(lambda prepare=prepare: [prepare(*kv) for kv in caches] * 2)
        label = "warploom " + " ".join(f"{key}={value}" for key, value in options.items())
        rows.append(Row(name, label.strip(), time, error, str(kernel.schedule[-1]), registers))
    return rows


def copy_rate() -> float:
    """Bytes that a copy reads and writes in a microsecond."""
    source, target = (torch.zeros(COPIED_BYTES, dtype=torch.int8, device="cuda") for _ in range(2))
    return 2 * COPIED_BYTES / in_a_row(lambda: [lambda: target.copy_(source)] * 2)


def options_of(text: str) -> dict[str, Any]:
    """`stages=3 cta=128x32x128` as keyword arguments."""
    return {key: value for key, _, value in (word.partition("=") for word in text.split())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument(
        "--try", dest="tries", action="append", default=[], help="a schedule, or pages: 'pages=64 split_k=4'"
    )
    parser.add_argument("--compile", action="store_true", help="compile only, on all cores")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases = [Case(*map(int, case.split("x"))) for case in arguments.cases]
    variants = [{}, *map(options_of, arguments.tries)]
    if arguments.compile:
        with ProcessPoolExecutor() as pool:
            tried = [pool.submit(refusal, case, options, arguments.target) for case in cases for options in variants]
            print([measured for one in tried if isinstance(measured := one.result(), str)])
        return
    torch.manual_seed(0)
    rate, rows = copy_rate(), list[Row]()
    print(f"{torch.cuda.get_device_name()}, copy {rate / 1e6:.2f} TB/s")
    for case in cases:
        measured = measure(case, variants, arguments.target, rate)
        for row in measured:
            print(
                f"{row.case:20} {row.microseconds:8.1f} us  error {row.error:.1e}  {row.name} {row.registers or ''} "
                f"{row.schedule}",
                flush=True,
            )
        rows += measured
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
