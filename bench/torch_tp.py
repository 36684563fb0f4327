"""A perceptron whose weights are cut among GPUs (tensor parallelism): 1 against 2, eager against warploom, in one run.

    bench/with_gpu.sh python bench/torch_tp.py --json out.json
    bench/with_gpu.sh python bench/torch_tp.py --gpus 1 2 --width 8192 --rows 8192

The first weight is cut by its rows and the second by its columns (`torch.distributed.tensor.parallel`), so that one sum
over the GPUs follows; NCCL makes it. Before anything is timed, result and gradients of `--checked` rows are compared
with those of the whole perceptron in f32. A time is the median of forward and backward over `--repeats` calls, after
three, of the slowest process. On the CPU (`--device cpu --width 32 --rows 16 --checked 16`) processes talk through
gloo, kernels run on the interpreter, and times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing.spawn import spawn

from warploom.runtime import torch_backend

WARM_UP = 3
TOLERANCE = 2.0
"""How many times as far from f32 as eager a compiled perceptron may be."""


class Mlp(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x), approximate="tanh"))


def perceptron(options: argparse.Namespace, dtype: torch.dtype) -> Mlp:
    """The perceptron, the same in every process."""
    torch.manual_seed(0)
    return Mlp(options.width).to(options.device).to(torch.bfloat16).to(dtype)


def drawn(options: argparse.Namespace, rows: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(rows, options.width).bfloat16().to(options.device)


def results(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """The result for some rows, and the gradient of the input where that of each element of the result is x's."""
    x = x.detach().requires_grad_()
    out = call(x)
    out.backward(x.detach())
    assert x.grad is not None
    return [out.detach(), x.grad]


def distance(result: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The larger relative distance, in the Frobenius norm."""
    return max(float((f.float() - e).norm() / e.norm()) for f, e in zip(result, exact, strict=True))


def milliseconds(call: Callable[[], object], options: argparse.Namespace) -> float:
    """The median time of a call in the slowest process."""
    times: list[float] = []
    for number in range(WARM_UP + options.repeats):
        dist.barrier()
        _wait(options)
        start = time.perf_counter()
        call()
        _wait(options)
        slowest = torch.tensor([(time.perf_counter() - start) * 1e3], device=options.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if number >= WARM_UP:
            times.append(float(slowest))
    return statistics.median(times)


def _wait(options: argparse.Namespace) -> None:
    if options.device == "cuda":
        torch.cuda.synchronize()


def work(rank: int, size: int, options: argparse.Namespace) -> None:
    """What one of `size` processes does; the first writes what was found."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port + size))
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", rank=rank, world_size=size)
    mesh = init_device_mesh(options.device, (size,))
    few, many = drawn(options, options.checked), drawn(options, options.rows).requires_grad_()
    exact = results(perceptron(options, torch.float32), few.float())
    cut = parallelize_module(
        perceptron(options, torch.bfloat16), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    calls: dict[str, Any] = {"eager": cut, "warploom": torch.compile(cut, backend=torch_backend)}
    errors = {name: distance(results(call, few), exact) for name, call in calls.items()}
    if not errors["warploom"] <= TOLERANCE * errors["eager"]:
        raise SystemExit(f"warploom on {size}: {errors['warploom']:.2e} from f32, eager {errors['eager']:.2e}")
    torch._dynamo.reset()  # or the number of rows would be unknown from here on
    grad = drawn(options, options.rows)
    rows = [
        {
            "gpus": size,
            "name": name,
            "error": errors[name],
            "milliseconds": milliseconds(_step(call, many, grad), options),
        }
        for name, call in calls.items()
    ]
    if rank == 0:
        options.out.joinpath(f"{size}.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


def _step(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, grad: torch.Tensor) -> Callable[[], object]:
    return lambda: call(x).backward(grad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--checked", type=int, default=256, help="rows compared with f32")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.out = Path(folder)
        for size in options.gpus:
            spawn(work, (size, options), nprocs=size)
        rows = [row for size in options.gpus for row in json.loads((options.out / f"{size}.json").read_text())]
    # forward is two products, backward four
    operations = 6 * 2 * options.rows * options.width * 4 * options.width
    first = {row["name"]: row["milliseconds"] for row in rows if row["gpus"] == options.gpus[0]}
    sizes = f"{options.width} -> {4 * options.width} -> {options.width}"
    print(f"torch {torch.__version__}, {options.rows} rows, {sizes}, bf16")
    for row in rows:
        row["tflops"] = operations / row["milliseconds"] / 1e9
        row["times_faster"] = first[row["name"]] / row["milliseconds"]
        print(
            f"{row['name']:10} on {row['gpus']}: {row['milliseconds']:9.3f} ms, {row['tflops']:8.1f} TFLOP/s, "
            f"{row['times_faster']:.2f} times as fast as on {options.gpus[0]}, {row['error']:.2e} from f32"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
