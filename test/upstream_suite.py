"""How much of MLIR's own test files of GPU dialects this compiler reads, prints and reads back.

    python test/upstream_suite.py FOLDER     # a checkout of llvm-project, or its folder `mlir`; prints a table

Each file is split at `// -----`; parts in which MLIR expects an error do not count. A part that cannot be read whole is
read function by function. What is read is printed and read again; the round trip is exact if it prints the same text
twice, and `mlir-opt`, where it is there, must print the same of it as of the original. Operations of dialects that are
not known are read in their generic form, as MLIR's tests ask of `mlir-opt`. Without a folder it says what it could not
have.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from upstream import mlir_opt
from xdsl.context import Context
from xdsl.irdl import AnyAttr, IRDLOperation, VarConstraint, operand_def, result_def
from xdsl.utils.exceptions import DiagnosticException, ParseError

from warploom.dialect.mlir.upstream import declared
from warploom.passes.universe import make_context, parse_mlir

FOLDERS = ("Dialect/NVGPU", "Dialect/GPU", "Dialect/LLVMIR/nvvm*", "Conversion/NVGPUToNVVM", "Conversion/GPUToNVVM",
           "Dialect/Linalg")  # fmt: skip


def parts(path: Path) -> Iterator[str]:
    """The parts of a file that MLIR takes."""
    for part in re.split(r"(?m)^// -----.*$", path.read_text(encoding="utf-8")):
        if "expected-error" not in part and re.search(r"(?m)^\s*[^/\s]", part):
            yield part


def functions(part: str) -> Iterator[str]:
    """What stands at the top of a part, each with the aliases of all."""
    alias = r"(?m)^[#!][\w.]+ = .*(?:\n(?:[ \t]+|[\]}]).*)*"
    aliases = "\n".join(re.findall(alias, part))
    rest = re.sub(r"(?m)^\s*//.*$", "", re.sub(alias, "", part))
    for item in re.split(r"(?m)^(?!attributes)(?=[a-z\"][\w.]*[ \"(])", rest):
        if item.strip():
            yield f"{aliases}\n{item}"


SAME = VarConstraint("SAME", AnyAttr())

TEST = (
    *(declared(IRDLOperation, f"test.nvvm_requires_sm_{sm}", "attr-dict") for sm in ("80", "90a", "90a_or_sm_100a")),
    declared(
        IRDLOperation, "test.reflect_bounds", "$value attr-dict `:` type($value)", value=operand_def(SAME),
        result=result_def(SAME),
    ),
    declared(IRDLOperation, "test.with_bounds", "attr-dict `:` type($result)", result=result_def()),
)  # fmt: skip
"""What these files use of MLIR's own dialect for tests (`mlir/test/lib/Dialect/Test`, and `lib/Dialect/LLVM`)."""


def context() -> Context:
    """One that takes operations of dialects that are not known, and has those of MLIR's tests."""
    ctx = make_context()
    for op in TEST:
        ctx.load_op(op)
    ctx.allow_unregistered = True
    return ctx


def outcome(text: str) -> tuple[str, str]:
    """ "exact", "read" where the text differs when read again, or "refused" and why."""
    try:
        first = str(parse_mlir(context(), text))
    except (ParseError, DiagnosticException) as error:
        return "refused", str(error).strip().splitlines()[-1].strip()
    try:
        return ("exact" if str(parse_mlir(context(), first)) == first else "read"), ""
    except (ParseError, DiagnosticException) as error:
        return "read", str(error).strip().splitlines()[-1].strip()


def by_upstream(text: str) -> bool | None:
    """Whether `mlir-opt` prints the same of our text as of the original; None if it does not read that."""
    command = [mlir_opt() or "", "--allow-unregistered-dialect", "-"]
    ours = str(parse_mlir(context(), text))
    one, other = (subprocess.run(command, input=t, capture_output=True, text=True, check=False) for t in (text, ours))
    return None if one.returncode else one.stdout == other.stdout


def main(folder: Path) -> int:
    tests = next((each for each in (folder / "mlir" / "test", folder / "test", folder) if each.is_dir()), folder)
    why: Counter[str] = Counter()
    print(f"{'files of':28}{'parts':>7}{'read':>7}{'exact':>7}{'functions':>11}{'read':>7}{'exact':>7}{'mlir-opt':>10}")
    for name in FOLDERS:
        files = [
            f for place in tests.glob(name) for f in ([place] if place.is_file() else sorted(place.rglob("*.mlir")))
        ]
        if not files:
            print(f"{name:28} could not be had: there is no {tests / name}")
            continue
        totals, each, same = Counter[str](), Counter[str](), Counter[bool | None]()
        for text in (text for file in files for text in parts(file)):
            kind, _ = outcome(text)
            totals[kind] += 1
            if kind == "exact" and mlir_opt() is not None:
                same[by_upstream(text)] += 1
            for function in functions(text):
                own, reason = outcome(function) if kind == "refused" else (kind, "")
                each[own] += 1
                if kind == "refused" and own == "exact" and mlir_opt() is not None:
                    same[by_upstream(function)] += 1
                why[reason] += own == "refused"
            gc.collect()
        line = "".join(f"{c.total():{w}}{c['exact'] + c['read']:7}{c['exact']:7}" for c, w in ((totals, 7), (each, 11)))
        print(f"{name:28}{line}{same[True]:5}/{same[True] + same[False]:<4}", flush=True)
    for reason, count in why.most_common(20):
        print(f"{count:5}  {reason}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("could not have MLIR's test files: name a checkout of llvm-project")
    sys.exit(main(Path(sys.argv[1])))
