"""A transformer block through `torch.compile`: eager, inductor and warploom, forward and backward, in one run.

    bench/with_gpu.sh python bench/torch_block.py --json out.json
    bench/with_gpu.sh python bench/torch_block.py --batch 8 --length 2048 --width 4096 --backends eager warploom

Method: the block is in bf16, its heads are left to torch's attention. Before anything is timed, the result and all
gradients are compared with those of the same block in f32, on a batch of one: a compiled block may be no further from
them than twice eager's distance. A time is the median over `--repeats` calls between two events, after three warm-up
calls, with the L2 cache flushed before each; the backends take turns, so that a clock that changes meets all of them.
Then each product of the block alone: torch.mm against the kernel of the same product. Before these the GPU has so much
to do that the host has asked for the product when it starts. On the CPU
(`--device cpu --batch 2 --length 8 --width 32 --heads 2`) kernels run on the interpreter, and times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from warploom.runtime import torch_backend, torch_operators
from warploom.runtime.cuda.launch import FLUSH_BYTES

WARM_UP = 3

HOST_CYCLES = 1_000_000
"""How long the GPU is kept busy while the host asks for a product: half a millisecond."""

Forward: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

TOLERANCE = 2.0
"""How many times as far from f32 as eager a compiled block may be."""


class Block(torch.nn.Module):
    """Attention and a perceptron, each behind a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention, self.joined = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.shape[-1]
        parts = self.attention(self.first(x)).split(width, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.joined(attention.transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x)), approximate="tanh"))


@dataclass
class Row:
    """One measurement: medians in milliseconds."""

    name: str
    milliseconds: float
    of_eager: float
    detail: str = ""


class Timer:
    """Times calls, on a GPU between events with the L2 cache flushed; `ahead` leaves out what the host takes."""

    def __init__(self, device: str, repeats: int, *, ahead: bool = False) -> None:
        self.device, self.repeats, self.ahead = device, repeats, ahead
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device) if device == "cuda" else None

    def once(self, call: Callable[[], object]) -> float:
        """The time of one call, in milliseconds."""
        if self.flush is None:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        self.flush.zero_()
        if self.ahead:
            torch.cuda._sleep(HOST_CYCLES)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def medians(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """The median time of each call; they take turns."""
        for call in calls:
            for _ in range(WARM_UP):
                call()
        times = [[self.once(call) for call in calls] for _ in range(self.repeats)]
        return [statistics.median(column) for column in zip(*times, strict=True)]


def compiled(block: Block, backend: str) -> Forward:
    """The block as a backend runs it."""
    if backend == "eager":
        return block
    return torch.compile(block, backend=torch_backend if backend == "warploom" else backend)


def results(call: Forward, block: Block, x: torch.Tensor, grad: torch.Tensor) -> list[Any]:
    """The block's result and all gradients."""
    x = x.detach().requires_grad_()
    block.zero_grad()
    out = call(x)
    out.backward(grad)
    return [out.detach(), x.grad, *(p.grad.clone() for p in block.parameters() if p.grad is not None)]


def distance(result: list[Any], exact: list[Any]) -> float:
    """The largest relative distance, in the Frobenius norm."""
    return max(float((f.float() - e).norm() / e.norm()) for f, e in zip(result, exact, strict=True))


def check(block: Block, options: argparse.Namespace) -> dict[str, float]:
    """How far each backend is from f32.

    Raises:
        SystemExit: if a compiled block is further from it than eager allows.
    """
    shape = (1, options.length, options.width)
    x, grad = (torch.randn(shape, device=options.device).bfloat16() for _ in range(2))
    layer = Block(options.width, options.heads).to(options.device)
    layer.load_state_dict({name: value.float() for name, value in block.state_dict().items()})
    exact = results(layer, layer, x.float(), grad.float())
    errors = {name: distance(results(compiled(block, name), block, x, grad), exact) for name in options.backends}
    for name, error in errors.items():
        if not error <= TOLERANCE * errors["eager"]:
            raise SystemExit(f"{name}: {error:.2e} from f32, eager {errors['eager']:.2e}")
    return errors


def measured(block: Block, errors: dict[str, float], options: argparse.Namespace) -> list[Row]:
    """Forward, then forward and backward, by each backend."""
    shape = (options.batch, options.length, options.width)
    x, grad = (torch.randn(shape, device=options.device).bfloat16() for _ in range(2))
    x.requires_grad_()
    torch._dynamo.reset()
    calls = {name: compiled(block, name) for name in options.backends}
    for call in calls.values():
        call(x).backward(grad)
    timer, rows = Timer(options.device, options.repeats), list[Row]()

    def add(what: str, steps: list[Callable[[], object]]) -> None:
        times = timer.medians(steps)
        for name, milliseconds in zip(calls, times, strict=True):
            rows.append(Row(f"{name}, {what}", milliseconds, milliseconds / times[0], f"{errors[name]:.2e} from f32"))

    def inferred(call: Forward) -> Callable[[], object]:
        def step() -> object:
            with torch.no_grad():
                return call(x)

        return step

    def trained(call: Forward) -> Callable[[], object]:
        return lambda: call(x).backward(grad)

    add("forward", [inferred(call) for call in calls.values()])
    add("forward and backward", [trained(call) for call in calls.values()])
    return rows


def products(options: argparse.Namespace) -> list[Row]:
    """Each product of the block alone."""
    m, w = options.batch * options.length, options.width
    timer, rows = Timer(options.device, options.repeats, ahead=True), list[Row]()
    for n, k in ((3 * w, w), (w, w), (4 * w, w), (w, 4 * w)):
        forms = {
            "x W^T": ((m, k), (n, k), lambda a, b: (a, b.t())),
            "dy W": ((m, n), (n, k), lambda a, b: (a, b)),
            "dy^T x": ((m, n), (m, k), lambda a, b: (a.t(), b)),
        }
        for form, (first, second, seen) in forms.items():
            a, b = seen(*(torch.randn(s, device=options.device).bfloat16() for s in (first, second)))
            calls = [lambda a=a, b=b: torch.mm(a, b), lambda a=a, b=b: torch_operators.matmul(a, b)]
            theirs, ours = timer.medians(calls)
            name = f"{form}, {a.shape[0]}x{b.shape[1]}x{a.shape[1]}"
            rows.append(Row(name, ours, ours / theirs, f"torch.mm {theirs:.3f} ms"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--backends", nargs="+", default=["eager", "inductor", "warploom"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.backends = list(dict.fromkeys(["eager", *options.backends]))
    torch.manual_seed(0)
    block = Block(options.width, options.heads).to(options.device).bfloat16()
    rows = [*measured(block, check(block, options), options), *products(options)]
    device = torch.cuda.get_device_name() if options.device == "cuda" else "the interpreter"
    print(f"torch {torch.__version__}, {device}")
    for row in rows:
        print(f"{row.name:40} {row.milliseconds:10.3f} ms {row.of_eager:6.2f} of eager  {row.detail}")
    if options.json:
        options.json.write_text(json.dumps({"device": device, "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
