"""Compiles the corpus to PTX: `python test/corpus/cuda_ptx.py [--nvcc NVCC] [--out FOLDER] [FILE ...]`.

CUDA goes through nvcc, Triton, where it is installed, through its own compiler, which needs no GPU. Results that are
newer than their source are kept. `make corpus` installs both compilers and runs this.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.store import ARCHIVE, HERE, OUT, pack

TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def targets_of(source: Path) -> Iterator[str]:
    """The targets a source compiles for: all, from the first that its first line names (`// from sm_90`), or the one
    that it does (`// only sm_90a`)."""
    if alone := re.match(r"// only (sm_\w+)", source.read_text()):
        return iter(alone.groups())
    match = re.match(r"// from sm_(\d+)", source.read_text())
    least = int(match[1]) if match else 80
    return (name for name in TARGETS if int(re.sub(r"\D", "", name)) >= least)


def options_of(source: Path) -> list[str]:
    """What the line `// nvcc OPTIONS` of a source asks for."""
    match = re.search(r"^// nvcc (.*)$", source.read_text(), re.M)
    return match[1].split() if match else []


def plain(text: str) -> str:
    """PTX without comments and debug data, and without a folder of the machine in the names that nvcc makes up."""
    text = re.sub(r"\n\s*\.section\s+\.debug.*\Z", "\n", text, flags=re.S)
    text = re.sub(r"^\s*(\.(loc|file)\b.*|//.*)\n", "", text, flags=re.M)
    return re.sub(r"_GLOBAL__N__[0-9a-f]+_", "_GLOBAL__N__", re.sub(r"_INTERNAL_[0-9a-f]+_", "_INTERNAL_", text))


def compile_cuda(nvcc: str, source: Path, target: str, out: Path) -> str:
    """One PTX file; what the compiler complained of, empty if nothing."""
    at = out / f"{source.stem}.{target}.ptx"
    if at.exists() and at.stat().st_mtime > source.stat().st_mtime:
        return ""
    command = [nvcc, "-ptx", "-std=c++17", f"-arch={target}", *options_of(source), "-o", str(at), source.name]
    done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{source.name} for {target}: {done.stderr}"
    at.write_text(plain(at.read_text()))
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"), type=lambda path: path and str(Path(path).resolve()))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--pack", action="store_true", help="write the archive that is committed, and compile nothing")
    parser.add_argument("files", nargs="*", help="stems of sources; all, if none")
    args = parser.parse_args()
    if args.pack:
        print(f"{ARCHIVE.name}: {pack(args.out, ARCHIVE)} files, {ARCHIVE.stat().st_size} bytes")
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = args.targets.split(",")
    sources = [s for s in sorted((HERE / "cuda").glob("*.cu")) if not args.files or s.stem in args.files]
    failed: list[str] = []
    if args.nvcc:
        jobs = [(args.nvcc, s, t, args.out) for s in sources for t in targets_of(s) if t in wanted]
        with ThreadPoolExecutor(2) as pool:
            failed += filter(None, pool.map(lambda job: compile_cuda(*job), jobs))
    else:
        print("no nvcc: CUDA kernels are left out")
    print("\n".join(failed), file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
