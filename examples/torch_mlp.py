"""A perceptron of PyTorch, compiled by Warploom, forward and backward, and what became of its graphs.

python examples/torch_mlp.py           # on a GPU if there is one, or else on the interpreter
"""

from __future__ import annotations

import torch

from warploom.runtime import torch_backend


class Mlp(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Mlp(32).to(device).bfloat16()
    # installed, `backend="warploom"` says the same
    compiled = torch.compile(model, backend=torch_backend, options={"explain": True})

    x = torch.randn(4, 6, 32, device=device).bfloat16().requires_grad_()
    out = compiled(x)
    out.sum().backward()

    eager = model(x)
    print(f"largest difference from eager: {(out - eager).abs().max():.3g} of {eager.abs().max():.3g}")
    assert torch.allclose(out, eager, rtol=2**-6, atol=2**-6)


if __name__ == "__main__":
    main()
