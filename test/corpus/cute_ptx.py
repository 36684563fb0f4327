"""Compiles kernels of CUTLASS's examples for its Python language CuTe, which needs no GPU: products of warpgroups, and
in tensor memory.

    python test/corpus/cute_ptx.py [--source FOLDER] [--out FOLDER]

`--source` is the folder of the examples (examples/python/CuTeDSL/cute); without it they are
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
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.cuda_ptx import plain
from corpus.store import OUT

COMMIT = "7107b05535f8977f5ecb9d01ee203205b1fd9bc4"
FOLDER = "examples/python/CuTeDSL/cute"
ADDRESS = f"https://raw.githubusercontent.com/NVIDIA/cutlass/{COMMIT}/{FOLDER}"

SIZES = 200, 136, 152
"""M, N and K of every product: multiples of 16 bytes as tensor maps want them, of no tile."""
TUTORIAL_SIZES = 256, 256, 128
"""Those of the tutorial's products, multiples of their tiles."""


@dataclass(frozen=True)
class Program:
    """An example: its file, its class with what makes one, or a function; `more` follows the matrices."""

    file: str
    kind: str
    made: tuple[object, ...] | None = None
    more: tuple[object, ...] = ()
    target: str = "sm_100a"
    sizes: tuple[int, int, int] = SIZES
    types: tuple[str, str] = ("Float16", "Float16")


_HOPPER = "hopper/kernel/dense_gemm/dense_gemm", "HopperWgmmaGemmKernel"
_DENSE = "blackwell/kernel/dense_gemm/dense_gemm", "DenseGemmKernel"
_PERSISTENT = "blackwell/kernel/dense_gemm/dense_gemm_persistent", "PersistentDenseGemmKernel"
_TUTORIAL = "blackwell/tutorial/tutorial_gemm/fp16_gemm_"

PROGRAMS = {
    "c_gemm": Program(*_HOPPER, ((64, 64), (1, 1)), target="sm_90a"),
    "c_gemm_cluster": Program(*_HOPPER, ((64, 64), (2, 1)), target="sm_90a"),
    "c_tensor": Program(*_DENSE, (False, (128, 64), (1, 1), True)),
    "c_tensor_pair": Program(*_DENSE, (True, (256, 128), (2, 1), True)),
    "c_tensor_staged": Program(f"{_DENSE[0]}_software_pipeline", _DENSE[1], (False, (128, 64), (1, 1), True)),
    "c_tensor_persistent": Program(*_PERSISTENT, (False, (128, 64), (1, 1), True), (2,)),
    "c_tensor_persistent_pair": Program(*_PERSISTENT, (True, (256, 128), (2, 1), True), (1,)),
    "c_tensor_multicast": Program(*_PERSISTENT, (False, (128, 64), (2, 2), True), (1,)),
    "c_tensor_fp8": Program(*_PERSISTENT, (False, (128, 64), (1, 1), True), (2,), sizes=(208, 144, 160),
                            types=("Float8E4M3FN", "Float16")),
    "c_tensor_dynamic": Program(f"{_PERSISTENT[0]}_dynamic", _PERSISTENT[1], (False, (128, 64), (1, 1), True)),
    **{f"c_tutorial_{n}": Program(f"{_TUTORIAL}{n}", "host_function", sizes=TUTORIAL_SIZES) for n in (0, 1, 2)},
    "c_tutorial_3": Program(f"{_TUTORIAL}3", "host_function", None, (2,), sizes=TUTORIAL_SIZES),
}  # fmt: skip
"""By the kernel's name."""


def compile_here(name: str) -> None:
    """Compiles a program in this process."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    program = PROGRAMS[name]
    m, n, k = program.sizes
    batch, order = ((1,), (1, 0, 2)) if program.made is not None else ((), (1, 0))
    tensors = [
        make_fake_compact_tensor(getattr(cutlass, type), (*shape, *batch), stride_order=order, assumed_align=16)
        for shape, type in zip(((m, k), (n, k), (m, n)), (program.types[0], *program.types), strict=True)
    ]
    kernel = getattr(import_module(Path(program.file).name), program.kind)
    if program.made is None:
        cute.compile(kernel, *tensors, *program.more)
    else:
        cute.compile(kernel(cutlass.Float32, *program.made), *tensors, *program.more, make_fake_stream())


def write(name: str, source: Path, out: Path) -> None:
    """The PTX of a program, under its own name for the kernel and the notice of its source."""
    program = PROGRAMS[name]
    path = source / f"{program.file}.py"
    with tempfile.TemporaryDirectory() as folder:
        more = {
            "CUTE_DSL_ARCH": program.target,
            "CUTE_DSL_KEEP": "ptx",
            "CUTE_DSL_DUMP_DIR": folder,
            "CUTE_DSL_NO_CACHE": "1",
        }
        command = [sys.executable, __file__, "--here", name]
        subprocess.run(command, env={**os.environ, **more, "PYTHONPATH": str(path.parent)}, check=True)
        (written,) = Path(folder).glob("*.ptx")
        text = plain(written.read_text().rstrip("\0"))
    long = re.search(r"\.entry (\w+)", text)
    if long is None:
        raise SystemExit(f"error: {name}: no kernel in what was compiled")
    notice = re.match(r"(#.*\n|\n)*", path.read_text())
    lines = ["//" + line[1:] for line in (notice[0] if notice else "").splitlines() if line]
    text = "\n".join([*lines, text.lstrip().replace(long[1], name)])
    (out / f"{name}.{program.target}.ptx").write_text(text)


def fetched(folder: Path) -> Path:
    """The examples, in a folder."""
    for file in {program.file for program in PROGRAMS.values()}:
        at = folder / f"{file}.py"
        at.parent.mkdir(parents=True, exist_ok=True)
        if not at.exists():
            with urlopen(f"{ADDRESS}/{file}.py") as answer:
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
