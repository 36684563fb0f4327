"""A matmul and a softmax as Triton prints them, for sm_80 and sm_90. Run it to write the .ptx files again."""

import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def triton_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        x = tl.load(
            a + row[:, None] * k + at + inner[None], mask=(row[:, None] < m) & (at + inner[None] < k), other=0.0
        )
        y = tl.load(
            b + (at + inner[:, None]) * n + column[None], mask=(at + inner[:, None] < k) & (column[None] < n), other=0.0
        )
        acc = tl.dot(x, y, acc)
    tl.store(c + row[:, None] * n + column[None], acc.to(tl.float16), mask=(row[:, None] < m) & (column[None] < n))


@triton.jit
def triton_softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


def write(kernel, signature: dict[str, str], constants: dict[str, int], sm: int, options: dict[str, int]) -> None:
    """Compiles a kernel for a target and keeps its PTX, without paths of the machine."""
    # Pointers divisible by 16, as an allocator gives them; sizes are not promised anything.
    hints = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=hints)
    text = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options).asm["ptx"]
    text = re.sub(r"\n\s*\.section\s+\.debug.*\Z", "\n", text, flags=re.S)
    text = re.sub(r"^\s*\.(loc|file)\b.*\n", "", text, flags=re.M)
    name = Path(__file__).with_name(f"{kernel.__name__}_sm{sm}.ptx")
    name.write_text("\n".join(line.rstrip() for line in text.splitlines() if not line.startswith("//")) + "\n")


def main() -> None:
    for sm in (80, 90):
        signature = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("mnk", "i32")}
        sizes = {"BM": 64, "BN": 64, "BK": 32}
        write(
            triton_matmul,
            {**signature, **dict.fromkeys(sizes, "constexpr")},
            sizes,
            sm,
            {"num_warps": 4, "num_stages": 3},
        )
        signature = {"x": "*fp32", "y": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
        write(triton_softmax, signature, {"BLOCK": 256}, sm, {"num_warps": 4})


if __name__ == "__main__":
    main()
