"""Compiles triton_programs.py, for which Triton needs no GPU: `python test/corpus/triton_ptx.py [NAME ...]`."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from triton import compile as compile_triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.cuda_ptx import TARGETS, plain
from corpus.store import OUT
from corpus.triton_programs import ONLY, PROGRAMS

for _module in ("triton_hopper", "triton_blackwell", "gluon_blackwell"):
    import_module(f"corpus.{_module}")  # enters its programs

PTX = 90
"""The version of PTX from sm_90 on, what a driver of CUDA 13.0 takes; before, Triton's own choice is older."""


def write(name: str, target: str, out: Path) -> None:
    """Compiles a program; the PTX's first line says how much shared memory a launch takes."""
    kernel, arguments, options = PROGRAMS[name]
    constants = {k: getattr(value, "value", value) for k, value in arguments.items() if not isinstance(value, str)}
    signature = {key: "constexpr" if key in constants else value for key, value in arguments.items()}
    # Pointers divisible by 16, as an allocator gives them; sizes are not promised anything.
    hints = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if str(kind).startswith("*")}
    make = GluonASTSource if kernel.is_gluon() else ASTSource
    source = make(kernel, signature=signature, constexprs=constants, attrs=hints)
    sm = int("".join(filter(str.isdigit, target)))
    version = {"ptx_version": PTX} if sm >= 90 and ONLY.get(name) != "sm_100a" else {}
    compiled = compile_triton(source, target=GPUTarget("cuda", sm, 32), options=options | version)
    text = f"// shared {compiled.metadata.shared}\n{plain(compiled.asm['ptx'])}"
    text = text.replace(compiled.metadata.name, name)
    (out / f"{name}.{target}.ptx").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--targets", default=",".join(t for t in TARGETS if t != "sm_75"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sources = (*Path(__file__).parent.glob("triton_*.py"), *Path(__file__).parent.glob("gluon_*.py"))
    newest = max(source.stat().st_mtime for source in sources)
    failed = 0
    for name in args.names or PROGRAMS:
        for target in args.targets.split(","):
            at = args.out / f"{name}.{target}.ptx"
            if ONLY.get(name, target) != target or (at.exists() and at.stat().st_mtime > newest and not args.names):
                continue
            try:
                write(name, target, args.out)
            except Exception as error:
                failed += 1
                print(f"{name} for {target}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
