"""What a strategy is worth: stream-K beside the default, and PyTorch.

    python bench/strategies.py      # on a GPU; microseconds, medians, fresh random operands

Each kernel is compared with PyTorch's result first. Calls take turns, behind a flush of the L2 cache.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warploom.passes.strategy.handle import Handle

REPEATS, WARM_UP, FLUSH_BYTES, SLEEP_CYCLES = 40, 5, 256 << 20, 200_000

PRODUCT = """
func.func @product(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: memref<{m}x{n}xf16>) {{
  %zero = arith.constant 0.0 : f16
  linalg.fill ins(%zero : f16) outs(%C : memref<{m}x{n}xf16>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%C : memref<{m}x{n}xf16>)
  return
}}
"""

PRODUCTS = ((2176, 1024, 8192), (4352, 1024, 4096), (1920, 1152, 16384))


def stream_k(sms: int) -> Callable[[Handle], None]:
    """A CTA for each SM, which go from tile to tile, and pairs of which share the last ones."""
    fields: dict[str, Any] = {"mma": "m64n128k16", "cta": (128, 128, 64), "ctas": sms, "split_k": 2}
    return lambda module: void(module.match("linalg.matmul").set(**fields))


def void(_: object) -> None:
    """Nothing."""


def timed(torch: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median of each in microseconds; they take turns."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM_UP + REPEATS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            torch.cuda._sleep(SLEEP_CYCLES)
            begin.record()
            call()
            end.record()
            end.synchronize()
            if turn >= WARM_UP:
                times[name].append(begin.elapsed_time(end) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def compared(torch: Any, what: str, text: str, variants: dict[str, Any], operands: list[Any], peer: Any) -> None:
    """Prints the times of some strategies for a program, and of PyTorch, and how far results are from its."""
    from warploom.runtime import compile

    wanted = peer()
    calls: dict[str, Callable[[], Any]] = {"torch": peer}
    for name, strategy in variants.items():
        try:
            kernel = compile(text, "sm_90a", strategy=strategy)
        except Exception as error:
            print(f"{what} {name}: {error}")
            continue
        result = torch.full_like(wanted, float("nan"))
        calls[name] = lambda kernel=kernel, result=result: kernel(*operands, result, device="cuda")
        calls[name]()
        torch.cuda.synchronize()
        distance = float((result - wanted).float().norm() / wanted.float().norm())
        print(f"{what} {name}: {len(kernel.plan.launches)} launches, distance {distance:.1e}")
    print(what, "  ".join(f"{name} {each:.1f}" for name, each in timed(torch, calls).items()), flush=True)


def main() -> int:
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    print(torch.cuda.get_device_name(0), sms, "SMs")
    for m, n, k in PRODUCTS:
        a, b = (torch.randn(*shape, device="cuda").half() / 8 for shape in ((m, k), (k, n)))
        variants = {"default": None, "stream-K": stream_k(sms)}
        text = PRODUCT.format(m=m, n=n, k=k)
        compared(torch, f"product {m}x{n}x{k}", text, variants, [a, b], lambda a=a, b=b: a @ b)
    return 0


if __name__ == "__main__":
    sys.exit(main())
