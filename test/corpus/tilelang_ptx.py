"""Compiles programs of TileLang for sm_100a: it writes CUDA without a GPU, which nvcc compiles.

    python test/corpus/tilelang_ptx.py --nvcc NVCC [--include FOLDER ...] [--out FOLDER] [NAME ...]

The folders are those of libcu++ (include and include/cccl of the package nvidia-cuda-cccl).
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportInvalidTypeForm=false
from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tilelang
import tilelang.language as tl
from tilelang import tvm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.cuda_ptx import plain
from corpus.store import OUT

TARGET = "sm_100a"


def product(m: int, n: int, k: int, tile: tuple[int, int, int], types: tuple[str, str], stages: int = 2) -> Any:
    """C = A B^T in tensor memory; copies have a warpgroup of their own where there are stages."""
    bm, bn, bk = tile
    of, to = types

    @tl.prim_func
    def main(A: tl.Tensor((m, k), of), B: tl.Tensor((n, k), of), C: tl.Tensor((m, n), to)):
        with tl.Kernel(tl.ceildiv(n, bn), tl.ceildiv(m, bm), threads=128) as (column, row):
            a, b = tl.alloc_shared((bm, bk), of), tl.alloc_shared((bn, bk), of)
            total = tl.alloc_tmem([bm, bn], "float32")
            done = tl.alloc_barrier(1)
            sums, kept = tl.alloc_fragment((bm, bn), "float32"), tl.alloc_shared((bm, bn), to)
            for step in tl.Pipelined(tl.ceildiv(k, bk), num_stages=stages):
                tl.copy(A[row * bm, step * bk], a)
                tl.copy(B[column * bn, step * bk], b)
                tl.tcgen05_gemm(a, b, total, False, True, mbar=done, clear_accum=step == 0)
                tl.mbarrier_wait_parity(done, step % 2)
            tl.copy(total, sums)
            tl.copy(sums, kept)
            tl.copy(kept, C[row * bm, column * bn])

    return main


PLAIN = {"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True}
"""What the examples for tensor memory ask for: no tensor copies, and no warps with roles."""

PROGRAMS = {
    "l_tensor": product(200, 136, 152, (128, 128, 64), ("float16", "float16")),
    "l_tensor_plain": product(256, 128, 256, (128, 64, 64), ("float16", "float16"), stages=0),
    "l_tensor_example": product(256, 128, 256, (128, 64, 64), ("float16", "float16")),
    "l_tensor_bf16": product(200, 136, 152, (128, 64, 64), ("bfloat16", "float32")),
    "l_tensor_fp8": product(256, 128, 384, (128, 128, 128), ("float8_e4m3fn", "float16")),
}
"""By the kernel's name."""


def write(name: str, nvcc: str, include: list[Path], out: Path) -> None:
    """The PTX of a program."""
    target = tvm.target.Target({"kind": "cuda", "arch": TARGET})
    options = tvm.transform.PassContext(opt_level=3, config=PLAIN if name == "l_tensor_example" else {})
    with target, options:
        made = tilelang.lower(PROGRAMS[name], target=target)
    home = Path(tilelang.language.__path__[0]).parent
    folders = [home / "src", home / "3rdparty/cutlass/include", *include]
    with tempfile.TemporaryDirectory() as folder:
        source, ptx = Path(folder) / "a.cu", Path(folder) / "a.ptx"
        source.write_text(made.kernel_source)
        command = [nvcc, "-ptx", "-std=c++17", f"-arch={TARGET}", *(f"-I{f}" for f in folders), str(source)]
        subprocess.run([*command, "-o", str(ptx)], check=True, capture_output=True)
        text = plain(ptx.read_text())
    (out / f"{name}.{TARGET}.ptx").write_text(text.replace("main_kernel", name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", type=Path, nargs="*", default=[])
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or PROGRAMS:
        write(name, args.nvcc, args.include, args.out)


if __name__ == "__main__":
    main()
