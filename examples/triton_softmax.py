"""A softmax of each row, in Triton, and its PTX. It needs no GPU, but Triton: pip install triton

    python examples/triton_softmax.py > softmax.ptx
    warploom run softmax.ptx --grid 5 --block 128 --shared 1024 --arg random:f32:5x200 --arg zeros:f32:5x200 \
        --arg i32:200 --arg i64:0 --arg i64:0 --check=all

The block is 32 times `num_warps`. `compiled.metadata.shared` has the bytes of shared memory that a launch takes.
After the arguments of the program Triton passes two pointers of its own, which are 0 here. The PTX has the version that
the ptxas in the package of Triton takes.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


if __name__ == "__main__":
    signature = {"x": "*fp32", "y": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    source = ASTSource(softmax, signature=signature, constexprs={"BLOCK": 256})
    options = {"num_warps": 4}
    print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])
