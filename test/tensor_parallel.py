"""What one of two processes does that compute a perceptron together: see `unit/test_torch_sharding.py`."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from warploom.runtime import register_torch_sharding, torch_backend, torch_operators

WIDTH, ROWS = 16, 6


class Mlp(torch.nn.Module):
    """A perceptron of the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch_operators.linear(x, self.up.weight, self.up.bias, "gelu")
        return torch_operators.linear(hidden, self.down.weight, self.down.bias)


class Plain(Mlp):
    """The same, of torch's own operations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x)))


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def values(model: Any, call: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The result, and all gradients where that of the result is the input."""
    x = x.clone().requires_grad_()
    out = call(x)
    full = out.full_tensor() if isinstance(out, DTensor) else out
    full.backward(x.detach())
    tensors = {"out": full.detach(), "x": x.grad}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        tensors[name] = grad.full_tensor() if isinstance(grad, DTensor) else grad
    return tensors


def close(result: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> list[str]:
    """The names of values that are more than a few roundings to bf16 from exact ones."""
    return [
        name
        for name, value in exact.items()
        if not (result[name].double() - value).abs().max() <= 6 * 2.0**-8 * (1 + value.abs().max())
    ]


def work(rank: int, port: int) -> None:
    """Computes the perceptron on two processes, by operators on `DTensor` and by the backend, and compares."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH).bfloat16()
    model, state = Plain().double(), {}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    state = {name: value.bfloat16() for name, value in model.state_dict().items()}
    exact = values(model, model, x.double())

    register_torch_sharding()
    operators = Mlp().bfloat16()
    operators.load_state_dict(state)
    operators = parallelize_module(operators, mesh, PLAN)
    result = values(operators, lambda x: operators(DTensor.from_local(x, mesh, [Replicate()])), x)
    assert not (wrong := close(result, exact)), f"operators: {wrong}"

    plain = Plain().bfloat16()
    plain.load_state_dict(state)
    plain = parallelize_module(plain, mesh, PLAN)
    said: list[Any] = []
    with torch.no_grad():
        result = torch.compile(plain, backend=torch_backend, options={"explain": said.append})(x)
    assert not close({"out": result}, {"out": exact["out"]}), "backend"
    products = [[part for part in e.compiled if "aten.addmm.default" in part.operators] for e in said]
    assert [len(parts) for parts in products] == [2], said

    cut = distribute_tensor(x, mesh, [Shard(0)])
    product = torch_operators.matmul(cut, distribute_tensor(x.t().contiguous(), mesh, [Replicate()]))
    assert product.placements == (Shard(0),)
    assert not close({"x": product.full_tensor()}, {"x": x.double() @ x.double().t()})
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # without the destructors of torch, which now and then abort while threads of gloo run
