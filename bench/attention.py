"""Attention against torch's: FlashAttention (mma.sync) and cuDNN, forward, in one run.

    bench/with_gpu.sh python3 bench/attention.py --json out.json
    bench/with_gpu.sh python3 bench/attention.py --cases 128x4096 --causal both --try "stages=3" --try "cta=128x32x128"
    bench/with_gpu.sh python3 bench/attention.py --cases 128x16384 --form bytes --form sinks --form documents
    bench/with_gpu.sh python3 bench/attention.py --cases 128x4096 --causal yes --form window --form softcap --form alibi

A form is a kernel of its own beside the default: Q, K and V in e4m3, rounded from the same numbers; a sink for each
head; eight documents of one length, one after the other; the last 512 keys before a query alone; scores that do not
exceed 5; scores that fall by 1/16 from key to key. FlexAttention, compiled, is the peer of the last four.

Method: batch * length = 16384 and heads * width = 2048, as in the papers, operands from a normal distribution. Before
anything is timed, our result is compared with that in f32 of two heads: `error` is the largest difference over the
largest value. A time is the median over `--repeats` calls between two events, after three warm-up calls, with the L2
cache flushed before each and the call queued behind a pause; kernels take turns, so that a clock that changes meets all
of them. Operations are 4 * length^2 * width for each head, half of that where the mask is causal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from warploom.runtime import compile
from warploom.runtime.cuda.launch import FLUSH_BYTES

sys.path.insert(0, str(Path(__file__).parents[1] / "test"))

from attentions import CAP, SLOPE, Attention

TOKENS, WIDTH = 16384, 2048
CASES = ((128, 4096), (64, 4096), (256, 4096), (128, 512), (128, 16384))
WARM_UP = 3

SLEEP_CYCLES = 3_000_000
"""What the GPU waits before each call, so that the call is there when it begins: the host takes up to a millisecond."""

MAPS = """[affine_map<(h, m, n, d, e) -> (h, m, d)>, affine_map<(h, m, n, d, e) -> (h, n, d)>,
    affine_map<(h, m, n, d, e) -> (h, n, e)>, affine_map<(h, m, n, d, e) -> (h, m, e)>]"""


@dataclass
class Row:
    """One measurement."""

    width: int
    length: int
    causal: bool
    name: str
    microseconds: float
    tflops: float
    error: float


FLEXIBLE = ("documents", "window", "softcap", "alibi")
FORMS = ("bytes", "sinks", *FLEXIBLE)
DOCUMENTS, WINDOW = 8, 512


def source(heads: int, length: int, width: int, causal: bool, form: str = "") -> str:
    """The operation, in MLIR."""
    size = f"{heads}x{length}x{width}x"
    kind, result = f"memref<{size}{'f8E4M3FN' if form == 'bytes' else 'bf16'}>", f"memref<{size}bf16>"
    diagonal = "diagonal = 0 : i64, " if causal else ""
    loops = "affine_map<(h, m, n, d, e) ->"
    argument, maps, extra = {
        "sinks": (f", %x: memref<{heads}xf32>", f", sinks_map = {loops} (h)>", f" sinks %x : memref<{heads}xf32>"),
        "documents": (
            f", %x: memref<{length}xi32>",
            f", documents_maps = [{loops} (m)>, {loops} (n)>]",
            f" documents %x, %x : memref<{length}xi32>, memref<{length}xi32>",
        ),
    }.get(form, ("", "", ""))
    return f"""func.func @attention(%q: {kind}, %k: {kind}, %v: {kind}{argument}, %o: {result}) {{
      warp.attention %q, %k, %v into %o {{scale = {width**-0.5:e} : f32, {diagonal}indexing_maps = {MAPS}{maps}}}
        : {kind}, {kind}, {kind}, {result}{extra}
      return
    }}"""


def ours(
    tensors: Sequence[torch.Tensor], causal: bool, target: str, options: dict[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call of our kernel."""
    q, k, v = (tensor.flatten(0, 1) for tensor in tensors)
    heads, length, width = q.shape
    result, form = torch.full_like(q, float("nan")), options.get("form", "")
    options = {name: value for name, value in options.items() if name != "form"}
    text = source(heads, length, width, causal, form)
    if form in FLEXIBLE[1:]:
        window, function = (WINDOW, "") if form == "window" else (None, form)
        size, diagonal = (length, length, width, width), 0 if causal else None
        text = Attention(size, "bf16", (heads,), causal=diagonal, function=function, window=window).mlir
    kernel = compile(text, target=target, **options)
    if form == "bytes":
        q, k, v = (tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v))
    extra = {"sinks": [sinks(heads)], "documents": [documents(length)]}.get(form, [])

    def call() -> torch.Tensor:
        kernel(q, k, v, *extra, result)
        return result.view(tensors[0].shape)

    return call


def sinks(heads: int) -> torch.Tensor:
    """A number for each head."""
    return torch.linspace(-1, 1, heads, device="cuda")


def documents(length: int) -> torch.Tensor:
    """The document of each token."""
    return (torch.arange(length, device="cuda") * DOCUMENTS // length).int()


def peer(tensors: Sequence[torch.Tensor], causal: bool, backend: SDPBackend) -> Callable[[], torch.Tensor]:
    """A call of one of torch's."""

    def call() -> torch.Tensor:
        with sdpa_kernel(backend):
            q, k, v = tensors
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def flexible(tensors: Sequence[torch.Tensor], causal: bool, form: str) -> Callable[[], torch.Tensor]:
    """A call of FlexAttention, compiled, for a form."""
    length = tensors[0].shape[-2]
    of, flex = documents(length), torch.compile(flex_attention, dynamic=False)

    def counts(b: Any, h: Any, m: Any, n: Any) -> Any:
        inside = n <= m if causal else n >= 0
        return inside & {"window": n >= m - WINDOW, "documents": of[m] == of[n]}.get(form, n >= 0)

    def scored(s: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
        return {"softcap": CAP * torch.tanh(s / CAP), "alibi": s + SLOPE * (n - m)}[form]

    q, k, v = tensors
    masked = causal or form in ("window", "documents")
    blocks = create_block_mask(counts, None, None, length, length, device="cuda") if masked else None
    score = scored if form in ("softcap", "alibi") else None
    return lambda: flex(q, k, v, score_mod=score, block_mask=blocks)


def error_of(result: torch.Tensor, tensors: Sequence[torch.Tensor], causal: bool, form: str = "") -> float:
    """The largest difference of the first and the last head from what f32 gives, over the largest value."""
    worst = 0.0
    for batch, head in ((0, 0), (-1, -1)):
        q, k, v = (tensor[batch, head].float() for tensor in tensors)
        scores = q @ k.T * q.shape[-1] ** -0.5
        if form == "softcap":
            scores = CAP * torch.tanh(scores / CAP)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        if form == "documents":
            numbers = documents(len(q))
            scores = scores.masked_fill(numbers[:, None] != numbers[None, :], float("-inf"))
        if form == "window":
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).tril(-WINDOW - 1), float("-inf"))
        if form == "alibi":
            at = torch.arange(len(q), device="cuda")
            scores = scores + SLOPE * (at[None, :] - at[:, None])
        if form == "sinks":
            heads = tensors[0].shape[0] * tensors[0].shape[1]
            last = sinks(heads)[-1 if head else 0].expand(len(q), 1)
            wanted = torch.softmax(torch.cat([scores, last], -1), -1)[:, :-1] @ v
        else:
            wanted = torch.softmax(scores, -1) @ v
        difference = (result[batch, head].float() - wanted).abs().max() / wanted.abs().max()
        worst = max(worst, float(difference)) if not difference.isnan() else float("nan")
    return worst


def timed(calls: dict[str, Callable[[], torch.Tensor]], repeats: int) -> dict[str, float]:
    """The median of each in microseconds; they take turns."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    measured: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            torch.cuda._sleep(SLEEP_CYCLES)  # pyright: ignore[reportPrivateUsage]
            begin.record()
            call()
            end.record()
            end.synchronize()
            measured[name].append(begin.elapsed_time(end) * 1e3)
    return {name: statistics.median(times) for name, times in measured.items()}


def measure(
    size: Sequence[int], causal: bool, target: str, variants: Sequence[dict[str, Any]], repeats: int
) -> list[Row]:
    """All kernels for one size: columns, length, heads, batch."""
    width, length, heads, batch = size
    tensors = [torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(3)]
    calls: dict[str, Callable[[], torch.Tensor]] = {}
    for options in variants:
        name = "warploom " + " ".join(f"{key}={value}" for key, value in options.items())
        try:
            calls[name.strip()] = ours(tensors, causal, target, options)
        except Exception as error:
            print(name, error)
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        calls[name] = peer(tensors, causal, backend)
    for form in {options.get("form", "") for options in variants}.intersection(FLEXIBLE):
        calls[f"flex form={form}"] = flexible(tensors, causal, form)
    forms = {name: name.partition("form=")[2].split(" ")[0] for name in calls}
    errors = {name: error_of(call(), tensors, causal, forms[name]) for name, call in calls.items()}
    work = 4 * length**2 * width * heads * batch / (2 if causal else 1)
    times = timed(calls, repeats)
    return [
        Row(width, length, causal, name, round(time, 1), round(work / time / 1e6, 1), errors[name])
        for name, time in times.items()
    ]


def options_of(text: str) -> dict[str, Any]:
    """`stages=3 cta=128x32x128` as keyword arguments."""
    return {key: value for key, _, value in (word.partition("=") for word in text.split())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases",
        nargs="*",
        default=["x".join(map(str, case)) for case in CASES],
        help="columns x length, or columns x length x heads x batch",
    )
    parser.add_argument("--causal", choices=("no", "yes", "both"), default="both")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--try", dest="tries", action="append", default=[], help="a schedule: 'stages=3 warp=16x64'")
    parser.add_argument("--form", dest="forms", action="append", default=[], choices=FORMS)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows: list[Row] = []
    for case in options.cases:
        width, length, *rest = map(int, case.split("x"))
        size = (width, length, *(rest or (WIDTH // width, TOKENS // length)))
        for causal in {"no": (False,), "yes": (True,), "both": (False, True)}[options.causal]:
            variants = [{}, *({"form": form} for form in options.forms), *map(options_of, options.tries)]
            contender = measure(size, causal, options.target, variants, options.repeats)
            for row in contender:
                mask = "causal" if causal else "full"
                print(
                    f"D {width:3} S {length:5} {mask:6} {row.microseconds:9.1f} us {row.tflops:7.1f} TFLOP/s "
                    f"error {row.error:.1e}  {row.name}"
                )
            rows += contender
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
