"""Compiles kernels of CUTLASS's examples for its Python language CuTe, which needs no GPU: products of warpgroups.

    python test/corpus/cute_ptx.py [--source FOLDER] [--out FOLDER]

`--source` is the folder of the examples (examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm); without it they are
fetched from GitHub. Each runs in a process of its own, as the compiler writes PTX where the environment says.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.cuda_ptx import plain
from corpus.store import OUT

COMMIT = "7107b05535f8977f5ecb9d01ee203205b1fd9bc4"
FOLDER = "examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm"
ADDRESS = f"https://raw.githubusercontent.com/NVIDIA/cutlass/{COMMIT}/{FOLDER}"

SIZES = 200, 136, 152
"""M, N and K of every product: multiples of 16 bytes as tensor maps want them, of no tile."""

PROGRAMS = {
    "c_gemm": ("dense_gemm", "HopperWgmmaGemmKernel", (64, 64), (1, 1)),
    "c_gemm_cluster": ("dense_gemm", "HopperWgmmaGemmKernel", (64, 64), (2, 1)),
}
"""By the kernel's name: the example, its class, the tile of a CTA, the cluster."""


def compile_here(name: str) -> None:
    """Compiles a program in this process."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    module, kind, tile, cluster = PROGRAMS[name]
    m, n, k = SIZES
    tensors = [
        make_fake_compact_tensor(cutlass.Float16, (*shape, 1), stride_order=(1, 0, 2), assumed_align=16)
        for shape in ((m, k), (n, k), (m, n))
    ]
    kernel = getattr(import_module(module), kind)(cutlass.Float32, tile, cluster)
    cute.compile(kernel, *tensors, make_fake_stream())


def write(name: str, source: Path, out: Path) -> None:
    """The PTX of a program, under its own name for the kernel and the notice of its source."""
    with tempfile.TemporaryDirectory() as folder:
        more = {
            "CUTE_DSL_ARCH": "sm_90a",
            "CUTE_DSL_KEEP": "ptx",
            "CUTE_DSL_DUMP_DIR": folder,
            "CUTE_DSL_NO_CACHE": "1",
        }
        command = [sys.executable, __file__, "--here", name]
        subprocess.run(command, env={**os.environ, **more, "PYTHONPATH": str(source)}, check=True)
        (found,) = Path(folder).glob("*.ptx")
        text = plain(found.read_text())
    long = re.search(r"\.entry (\w+)", text)
    if long is None:
        raise SystemExit(f"error: {name}: no kernel in what was compiled")
    notice = re.match(r"(#.*\n|\n)*", (source / f"{PROGRAMS[name][0]}.py").read_text())
    lines = ["//" + line[1:] for line in (notice[0] if notice else "").splitlines() if line]
    (out / f"{name}.sm_90a.ptx").write_text("\n".join([*lines, text.lstrip().replace(long[1], name)]))


def fetched(folder: Path) -> Path:
    """The examples, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in {program[0] for program in PROGRAMS.values()}:
        at = folder / f"{module}.py"
        if not at.exists():
            with urlopen(f"{ADDRESS}/{module}.py") as answer:
                at.write_bytes(answer.read())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--here", choices=PROGRAMS)
    args = parser.parse_args()
    if args.here:
        compile_here(args.here)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    source = args.source or fetched(args.out.parent / "cute")
    for name in PROGRAMS:
        write(name, source.resolve(), args.out)


if __name__ == "__main__":
    main()
