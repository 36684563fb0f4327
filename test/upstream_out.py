"""The pinned kernels out by `convert-warp-to-nvvm`, through LLVM, and back as PTX: by family, what comes of them.

    python test/upstream_out.py [--words] [--every N] [--only TEXT] [--kept FOLDER]

Each kernel of `test/pins.py` goes through `mlir-opt`, `mlir-translate` and `llc`, and ptxas assembles the PTX that LLVM
prints. With `--words` the interpreter runs such PTX, at the size of the recorded words, and the bytes of its results
must be those of `test/data/pins/words.txt`. A table counts by family; above it stands a line for each kernel that
fails, with the reason, and below it the instructions that were inline PTX. `--kept` is a folder of LLVM's texts by a
hash of this compiler's: what is there is not made again, so that a machine without LLVM can run or time it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path

import pins
from attentions import Attention
from pins import Level, Pinned
from upstream import ABSENT, piped, tool
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.passes.diagnostics import remarks
from warploom.passes.to_nvvm.convert import ConvertWarpToNvvmPass
from warploom.passes.universe import make_context
from warploom.runtime.cuda.ptxas import assemble, find

FAMILIES = (
    ("sparse", r"\.sp\b"),
    ("tensor memory", r"tcgen05\.mma"),
    ("warpgroups", r"wgmma"),
    ("warps", r"\bmma\.sync"),
    ("rows and elements", r""),
)
"""Kernels by the instructions that their PTX has; the first that fits."""


def converted(ptx: str, bare: bool = True) -> tuple[str, list[str]]:
    """A module of PTX as `convert-warp-to-nvvm` leaves it, and the remarks of the pass."""
    module = ModuleOp([import_ptx(parse_ptx(ptx))])
    with remarks() as said:
        ConvertWarpToNvvmPass(bare).apply(make_context(), module)
    module.verify()
    out = StringIO()
    Printer(out).print_op(module)
    return out.getvalue(), [str(each) for each in said]


def by_llvm(ptx: str) -> tuple[str, list[str]]:
    """The PTX that LLVM makes of a module, for the same target and at least the same version, and the remarks."""
    text, said = converted(ptx)
    major, minor, target = re.findall(r"(?m)^\.version (\d+)\.(\d+)\n\.target (\w+)", ptx)[0]
    version = max(80, int(major + minor))
    llc = ("llc", "-mtriple=nvptx64-nvidia-cuda", f"-mcpu={target}", f"-mattr=+ptx{version}", "--nvptx-short-ptr")
    return piped(text, ("mlir-opt", "--convert-nvvm-to-llvm"), ("mlir-translate", "--mlir-to-llvmir"), llc), said


@dataclass
class Outcome:
    """How far a kernel came, and why not further."""

    name: str
    family: str = ""
    out: bool = False
    assembled: bool = False
    same: bool | None = None
    reason: str = ""
    inlined: Sequence[str] = ()


def family_of(pinned: Pinned, ptx: str) -> str:
    if isinstance(pinned.source, Attention) or "attention" in str(pinned):
        return "attention"
    return next(name for name, pattern in FAMILIES if re.search(pattern, ptx))


def kept_by_llvm(ptx: str, kept: Path | None) -> tuple[str, list[str]]:
    """`by_llvm`, of a text that a folder already has without LLVM; the remarks are the first lines of the file."""
    if kept is None:
        return by_llvm(ptx)
    file = kept / f"{pins.digest(ptx)}.ptx"
    if not file.exists():
        made, said = by_llvm(ptx)
        file.write_text("".join(f"//{line}\n" for line in said) + made, encoding="utf-8")
    text = file.read_text(encoding="utf-8")
    return text, re.findall(r"(?m)^//(.*inline PTX.*)", text)


def tried(pinned: Pinned, words: bool, kept: Path | None) -> Outcome:
    outcome = Outcome(str(pinned))
    try:
        level = isinstance(pinned.source, Level)
        for ptx in pinned.source.texts() if isinstance(pinned.source, Level) else [pinned.compile().ptx]:
            outcome.family = family_of(pinned, ptx)
            made, said = kept_by_llvm(ptx, kept)
            outcome.inlined = [each for line in said for each in line.partition("inline PTX: ")[2].split(", ")]
            outcome.out = True
            if find() is not None:
                assemble(made, re.findall(r"(?m)^\.target (\w+)", made)[0])
        outcome.assembled = find() is not None
        if words and not level:
            result = pinned.result(by=lambda kernel: replace(kernel, ptx=kept_by_llvm(kernel.ptx, kept)[0]))
            outcome.same = result.digest == pins.recorded(pins.WORDS)[str(pinned)]
    except Exception as error:
        outcome.reason = f"{type(error).__name__}: {error}".strip()[:1500]
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", action="store_true", help="run LLVM's PTX on the interpreter")
    parser.add_argument("--every", type=int, default=1, help="one kernel of so many")
    parser.add_argument("--only", default="", help="kernels whose names have this text")
    parser.add_argument("--kept", type=Path, help="a folder with LLVM's PTX by hashes of this compiler's")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    asked = parser.parse_args()
    os.environ["WARPLOOM_CORES"] = "1"
    chosen = [each for each in pins.pinned() if asked.only in str(each)][:: asked.every]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for each in pool.map(partial(tried, words=asked.words, kept=asked.kept), chosen):
            outcomes.append(each)
            if each.reason or each.same is False:
                print(f"{each.family}: {each.name}: {each.reason or 'other words'}", flush=True)
    show(outcomes)
    return int(any(each.reason or each.same is False for each in outcomes))


def show(outcomes: Sequence[Outcome]) -> None:
    print("| family | kernels | out | assembled | run | same words |\n|---|---|---|---|---|---|")
    for family in sorted({each.family for each in outcomes}):
        of = [each for each in outcomes if each.family == family]
        counts = (sum(e.out for e in of), sum(e.assembled for e in of), sum(e.same is not None for e in of),
                  sum(e.same is True for e in of))  # fmt: skip
        print(f"| {family} | {len(of)} | {' | '.join(map(str, counts))} |")
    inlined = Counter(re.sub(r" \(\d+\)$", "", opcode) for each in outcomes for opcode in each.inlined)
    print("\ninline PTX, by the kernels that have it:")
    for opcode, count in inlined.most_common():
        print(f"{count:5}  {opcode}")


if __name__ == "__main__":
    if tool("llc") is None:
        sys.exit(f"{ABSENT}, with llc and mlir-translate")
    sys.exit(main())
