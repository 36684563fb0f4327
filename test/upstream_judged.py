"""Where this compiler and upstream part on operations of `nvvm`, with ptxas as the judge of both.

    python test/upstream_judged.py FOLDER [sm_80 sm_90a sm_100a sm_120a]     # a checkout of llvm-project

Each function of MLIR's `Dialect/LLVMIR/nvvm*` becomes a kernel. `mlir-opt` makes PTX of it, and so does this compiler;
ptxas assembles what each makes. A line is printed where upstream's PTX, or a crash of LLVM behind a module that its
verifier took, shows that MLIR accepts what no such GPU has, and where the verdicts on the two differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from upstream import ABSENT, mlir_opt
from upstream_kernels import to_ptx
from upstream_suite import parts
from xdsl.utils.exceptions import DiagnosticException, ParseError

FEATURES = {"sm_80": "80", "sm_90a": "80", "sm_100a": "88", "sm_120a": "88"}
FUNCTION = re.compile(r"(?ms)^(?:llvm\.|func\.)func @(\w+)\((.*?)\)(?:\s*->.*?)?(?:\s*attributes .*?)?\s*\{\n(.*?)^\}")


def kernels(folder: Path, arch: str) -> Iterator[tuple[str, str]]:
    """Functions as kernels: vectors and addresses of tensor memory, which are no arguments of one, are loaded."""
    for file in sorted(folder.glob("nvvm*.mlir")):
        for part in parts(file):
            for name, arguments, body in FUNCTION.findall(re.sub(r"(?m)^\s*//.*$", "", part)):
                body = re.sub(r"(?m)^\s*(?:llvm\.|func\.)?return.*$", "", body)
                loads = ""
                for value, kind in re.findall(r"(%\w+)\s*:\s*(vector<[^>]*>|!llvm\.ptr<6>)", arguments):
                    arguments = arguments.replace(f"{value} : {kind}", f"{value}_at: !llvm.ptr")
                    arguments = arguments.replace(f"{value}: {kind}", f"{value}_at: !llvm.ptr")
                    loads += f"{value} = llvm.load {value}_at : !llvm.ptr -> {kind}\n"
                target = f'#nvvm.target<chip = "{arch}", features = "+ptx{FEATURES[arch]}">'
                head = f"llvm.func @{name}({arguments}) attributes {{gpu.kernel, nvvm.kernel}}"
                yield name, f"gpu.module @k [{target}] {{\n{head} {{\n{loads}{body}\nllvm.return\n}}\n}}"


def assembled(ptx: str, arch: str) -> str:
    """ "" if ptxas takes it, else its first error."""
    command = ["ptxas", f"-arch={arch}", "-o", "/dev/null", "/dev/stdin"]
    done = subprocess.run(command, input=ptx, capture_output=True, text=True, check=False)
    errors = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
    return "" if done.returncode == 0 else "ptxas: " + (errors or ["fails"])[0].partition("error")[2].lstrip(" :")


def by_upstream(text: str, arch: str) -> str:
    command = [mlir_opt() or "", "--convert-nvvm-to-llvm", "--gpu-module-to-binary=format=isa", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    match = re.search(r'assembly = "(.*?)">', done.stdout, re.DOTALL)
    if match is None:
        said = re.compile(r"(?i)error|immarg|number of arguments")
        line = next(filter(said.search, done.stderr.splitlines()), "crashes")
        return ("MLIR: " if re.search(r"<stdin>:|-:\d+:\d+: error", line) else "LLVM: ") + line[:110]
    return assembled(re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), match[1]), arch)


def by_this(text: str, arch: str) -> str:
    try:
        return assembled(to_ptx(text, arch), arch)
    except (DiagnosticException, ParseError) as error:
        return str(error).strip().splitlines()[-1].strip()[:160]


def main(folder: Path, targets: list[str]) -> int:
    verdicts: Counter[str] = Counter()
    behind: Counter[str] = Counter()
    for arch in targets or FEATURES:
        for name, text in kernels(folder, arch):
            theirs, ours = by_upstream(text, arch), by_this(text, arch)
            kind = ("both" if not ours else "upstream") if not theirs else "neither" if ours else "this compiler"
            verdicts[f"{arch} {kind}"] += 1
            if kind in ("upstream", "this compiler") or theirs.startswith("ptxas"):
                print(f"{arch:8} {name:40} {kind}", flush=True)
                print(f"    upstream: {theirs or 'accepted'}\n    here: {ours or 'accepted'}", flush=True)
            elif theirs.startswith("LLVM"):
                behind[f"{arch} {theirs}"] += 1
    for kind, count in (*sorted(verdicts.items()), *behind.most_common()):
        print(f"{count:5}  {kind}")
    return int(any(kind.endswith(("upstream", "this compiler")) for kind in verdicts))


if __name__ == "__main__":
    if len(sys.argv) < 2 or mlir_opt() is None:
        sys.exit(ABSENT if mlir_opt() is None else "could not have MLIR's test files: name a checkout of llvm-project")
    root = Path(sys.argv[1])
    places = [root / place / "Dialect/LLVMIR" for place in ("mlir/test", "test", ".")]
    sys.exit(main(next((place for place in places if place.is_dir()), root), sys.argv[2:]))
