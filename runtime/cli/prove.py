"""`warploom prove` and `warploom judge`: whether a kernel computes what a function says, or here is why not."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import ArgumentError, WarploomError
from ..base.launch import STDIN, is_ptx, read_source
from .options import Commands, add_command, add_compiling, add_seed, compiled, filled, natural, positive, sizes_of

if TYPE_CHECKING:
    from .. import KernelLaunch, Order, Proof
    from ..base.launch import Signature
    from ..kernel.kernel import Kernel
    from ..kernel.module import PtxModule
    from ..numerics.floats import Array


PROVE_TEXT = """\
Prove that a kernel computes what a function of linalg says, for all inputs of the sizes given; or say what is wrong.

FILE.ptx is launched with --grid and --block, and one --arg for each parameter: the name of an argument of the function,
or a value as for `warploom run`. Without --arg they are the function's arguments in order. FILE.mlir is compiled, and
proven against itself. With --against OTHER.ptx two kernels are compared on arrays that --in describes; options of the
second one begin with --other.

With --order ELEMENT, the order of the sums of one or two kernels is printed and compared instead.

The exit code is 0 for a proof, 1 otherwise. docs/prove.md says what is proven, and what is assumed.
"""

PROVE_EXAMPLES = """\
examples:
  warploom prove matmul.mlir --target sm_80
  warploom prove matmul.ptx --against matmul.mlir --grid 3,4 --block 128
  warploom prove split.ptx --against product.ptx --in A=random:f16:64x64 --in C=zeros:f32:64x64 --arg A --arg C \\
    --grid 1 --block 32 --other-arg A --other-arg C --other-grid 2 --other-block 64
"""


def add_prove(commands: Commands) -> None:
    """Adds `warploom prove`."""
    parser = add_command(
        commands, "prove", _prove, "prove that a kernel computes a function", PROVE_TEXT, PROVE_EXAMPLES
    )
    parser.add_argument("file", metavar="FILE", help="a .ptx file with a kernel, or an .mlir file with a function")
    parser.add_argument(
        "--against", type=filled, metavar="FILE", help="an .mlir file with the function, or a .ptx file"
    )
    for prefix in ("", "other-"):
        _add_launch(parser, prefix)
    parser.add_argument(
        "--in", dest="inputs", action="append", default=[], metavar="NAME=VALUE",
        help="an argument of the function as for `warploom run`; of two kernels an array, such as A=random:f16:64x64",
    )  # fmt: skip
    parser.add_argument(
        "--other-in", dest="other_inputs", action="append", default=[], metavar="NAME=VALUE",
        help="with --order: an argument of the kernel --against, if its sizes are others",
    )  # fmt: skip
    parser.add_argument(
        "--order", type=filled, metavar="ELEMENT",
        help="print by which instructions an output, such as C[0,0], is summed up, and in which order; with --against, "
        "whether the other kernel computes all outputs that both have by the same ones",
    )  # fmt: skip
    add_compiling(parser, "the file's own, else sm_90a")
    add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")


def _add_launch(parser: argparse.ArgumentParser, prefix: str) -> None:
    of = "of the kernel --against" if prefix else "of FILE.ptx"
    parser.add_argument(f"--{prefix}kernel", type=filled, metavar="NAME", help=f"the kernel {of}, if it has several")
    parser.add_argument(f"--{prefix}grid", type=filled, metavar="X[,Y[,Z]]", help=f"blocks of the grid {of}")
    parser.add_argument(f"--{prefix}block", type=filled, metavar="X[,Y[,Z]]", help=f"threads of a block {of}")
    parser.add_argument(f"--{prefix}shared", type=natural, metavar="BYTES", help=f"dynamic shared memory {of}")
    parser.add_argument(f"--{prefix}arg", action="append", default=[], metavar="VALUE", help=f"an argument {of}")


def _prove(args: argparse.Namespace) -> int:
    from ..kernel.module import PtxModule

    text = read_source(args.file)
    if not is_ptx(args.file, text):
        for option in ("kernel", "grid", "block", "shared", "arg"):
            if vars(args)[option]:
                raise ArgumentError(f"--{option} has no effect on a function, which is launched as it is compiled")
    if args.order is not None:
        return _orders(args, text)
    if not is_ptx(args.file, text):
        return _report(args, _compiled(args, text))
    if args.against is None:
        raise ArgumentError("a kernel is proven against a function or a kernel; give a file with --against")
    other = read_source(args.against)
    module = PtxModule(text, args.file)
    if is_ptx(args.against, other):
        return _report(args, _kernels(args, module, PtxModule(other, args.against)))
    return _report(args, _against_function(args, module, other))


_ELEMENT = re.compile(r"%?(\w+)\[([\d, ]*)\]")


def _orders(args: argparse.Namespace, text: str) -> int:
    """The tree of an element, and whether another kernel has the same ones."""
    if (match := _ELEMENT.fullmatch(args.order)) is None:
        raise ArgumentError(f"--order: expected an element such as C[0,0], got '{args.order}'")
    name, index = match[1], tuple(int(n) for n in match[2].split(",") if n.strip())
    mine = _order(args, args.file, text, "")
    print(mine.tree(name, index))
    if args.against is None:
        return 0
    other = _order(args, args.against, read_source(args.against), "other_")
    if (differs := mine.compare(other)) is None:
        print("the same instructions in the same order for all outputs that both have: the same bits")
        return 0
    print(f"another order of sums; the other kernel computes\n{other.tree(*differs)}")
    return 1


def _order(args: argparse.Namespace, file: str, text: str, prefix: str) -> Order:
    from .. import order
    from ..kernel.module import PtxModule

    inputs = vars(args)[f"{prefix}inputs"] or args.inputs
    if is_ptx(file, text):
        named = _arrays(inputs, args.seed)
        return order(_launch(args, PtxModule(text, file), prefix, list(named)), named)
    kernel = compiled(args, text, args.target, file)
    return order(kernel, _drawn(kernel.function, inputs, args.seed, poisoned=False))


def _compiled(args: argparse.Namespace, text: str) -> Proof:
    """An .mlir file, compiled and proven against itself or another."""
    kernel = compiled(args, text, args.target, args.file)
    against = text if args.against is None else read_source(args.against)
    return prove_kernel(kernel, against, args.inputs, args.seed, args.function)


def prove_kernel(kernel: Kernel, text: str, inputs: list[str], seed: int, function: str | None = None) -> Proof:
    """A kernel against the function of a text that it was compiled from, on arguments as the command line has them."""
    from .. import prove

    return prove(kernel, text, _drawn(kernel.function, inputs, seed), function=function, seed=seed)


def _drawn(signature: Signature, inputs: list[str], seed: int, *, poisoned: bool = True) -> dict[str, Array]:
    from ..reference.inputs import arrays

    drawn = arrays(signature, inputs, seed, poisoned=poisoned)
    return {p.name: array for p, array in zip(signature.parameters, drawn, strict=True)}


def _against_function(args: argparse.Namespace, module: PtxModule, text: str) -> Proof:
    from .. import prove
    from ..kernel.lowering import chosen, parse, signature_of

    meant = parse(text, args.against)
    named = _drawn(signature_of(chosen(meant, args.function)), args.inputs, args.seed)
    launch = _launch(args, module, "", list(named))
    return prove(launch, meant, named, function=args.function, seed=args.seed)


def _kernels(args: argparse.Namespace, left: PtxModule, right: PtxModule) -> Proof:
    from .. import prove

    named = _arrays(args.inputs, args.seed)
    sides = [_launch(args, module, prefix, list(named)) for module, prefix in ((left, ""), (right, "other_"))]
    return prove(sides[0], sides[1], named, seed=args.seed)


def _arrays(inputs: list[str], seed: int) -> dict[str, Array]:
    from ..reference.inputs import binding, kernel_argument

    named: dict[str, Array] = {}
    for number, text in enumerate(inputs):
        name, value = binding(text)
        made = None if name is None else kernel_argument(value, seed, number)
        if name is None or not hasattr(made, "dtype"):
            raise ArgumentError(f"--in: expected NAME=WORD:TYPE:SIZES, such as A=random:f16:64x64, got '{text}'")
        named[name] = made  # pyright: ignore[reportArgumentType]
    return named


def _launch(args: argparse.Namespace, module: PtxModule, prefix: str, names: list[str]) -> KernelLaunch:
    from .. import KernelLaunch
    from ..kernel.module import kernel_name
    from ..reference.inputs import kernel_argument

    options, dashed = vars(args), f"--{prefix.replace('_', '-')}"
    for option in ("grid", "block"):
        if options[prefix + option] is None:
            raise ArgumentError(f"{module.name}: a kernel is launched with {dashed}{option}")
    name = kernel_name(module, options[f"{prefix}kernel"], f"{dashed}kernel")
    texts = options[f"{prefix}arg"] or names
    if not names:
        raise ArgumentError("a kernel has arrays; give each of them with --in, such as --in A=random:f16:64x64")
    for text in texts:
        if text.isidentifier() and text not in names:
            raise ArgumentError(f"{dashed}arg: no array is called {text}; there are {', '.join(names)}")
    passed = [t if t in names else kernel_argument(t, args.seed, i) for i, t in enumerate(texts)]
    grid, block = (sizes_of(f"--{option}", options[prefix + option]) for option in ("grid", "block"))
    return KernelLaunch(module, name, grid, block, passed, options[f"{prefix}shared"])


def _report(args: argparse.Namespace, proof: Proof) -> int:
    name = "standard input" if args.file == STDIN else Path(args.file).name
    print(json.dumps(asdict(proof)) if args.json else f"{name}: {proof}")
    return 0 if proof else 1


# `warploom judge`: whether a candidate computes what a reference says.

JUDGE_TEXT = """\
Judge whether a candidate computes what a reference says, and what is wrong with it.

CANDIDATE is FILE.ptx or FILE.cu (with --grid and --block), FILE.py with a class ModelNew, or FILE.py:NAME. REFERENCE is
FILE.mlir, FILE.py with a class Model and get_inputs, or FILE.py:NAME. The candidate runs in a process of its own,
without network, on data of several kinds; kernels run on the interpreter, under all checks, and are proven.

The exit code is 0 if the candidate passes, 1 if it is refused, 2 if the question cannot be answered. docs/judge.md has
the codes of findings.
"""

JUDGE_EXAMPLES = """\
examples:
  warploom judge matmul.ptx matmul.mlir --grid 3,4 --block 128
  warploom judge matmul.ptx reference.py:matmul --in A=random:f16:{M}x{K} --in B=random:f16:{K}x{N} \\
    --size M=33,N=40,K=64 --size M=64,N=64,K=32 --grid 'cdiv(N,64),cdiv(M,64)' --block 128 --arg A --arg B --arg out
  warploom judge model_new.py model.py --set N=64 --json
  warploom judge --mcp
"""


def add_judge(commands: Commands) -> None:
    """Adds `warploom judge`."""
    summary = "judge whether a candidate computes what a reference says"
    parser = add_command(commands, "judge", _run, summary, JUDGE_TEXT, JUDGE_EXAMPLES)
    parser.add_argument("file", nargs="?", metavar="CANDIDATE", help="a .ptx, .cu or .py file")
    parser.add_argument("reference", nargs="?", metavar="REFERENCE", help="an .mlir or .py file")
    parser.add_argument(
        "--in", dest="inputs", action="append", default=[], metavar="NAME=VALUE",
        help="an argument of the reference, such as A=random:f16:{M}x{K}; of linalg as for `warploom run`",
    )  # fmt: skip
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N,...", help="numbers by name, for each size to judge at"
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=N", help="another constant of Python files"
    )
    parser.add_argument("--kernel", type=filled, metavar="NAME", help="the kernel, if there are several")
    parser.add_argument("--grid", type=filled, metavar="X[,Y[,Z]]", help="blocks of the grid: expressions of sizes")
    parser.add_argument("--block", type=filled, metavar="X[,Y[,Z]]", help="threads of a block")
    parser.add_argument("--cluster", type=filled, metavar="X[,Y[,Z]]", help="blocks of a cluster")
    parser.add_argument("--shared", default="", metavar="BYTES", help="dynamic shared memory of a block")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="VALUE",
        help="an argument of the kernel: the name of one of the reference, out for what that returns, or i32:M",
    )  # fmt: skip
    parser.add_argument("--function", type=filled, metavar="NAME", help="the function of an .mlir file with several")
    parser.add_argument("--arrays", choices=("numpy", "torch"), default="", help="what Python candidates take")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="time of the candidate (default: 60)")
    parser.add_argument(
        "--megabytes", type=positive, default=4096, metavar="N", help="memory of the candidate (default: 4096)"
    )
    parser.add_argument("--no-proof", action="store_true", help="do not prove a kernel against a function of linalg")
    add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--mcp", action="store_true", help="answer a client of the Model Context Protocol, on stdio")


def _run(args: argparse.Namespace) -> int:
    if args.mcp:
        serve()
        return 0
    try:
        return _judge(args)
    except WarploomError as error:
        print(json.dumps({"error": str(error)}) if args.json else f"error: {error}", file=sys.stderr)
        return 2


def _judge(args: argparse.Namespace) -> int:
    from .. import Launching, judge

    if args.file is None or args.reference is None:
        raise ArgumentError("expected a candidate and a reference")
    if bool(args.grid) != bool(args.block):
        raise ArgumentError("a kernel is launched with --grid and --block")
    launch = None
    if args.grid:
        launch = Launching(args.grid, args.block, tuple(args.arg), args.kernel, args.shared, args.cluster)
    verdict = judge(
        args.file, args.reference, launch=launch, inputs=args.inputs, sizes=[_numbers(text) for text in args.size],
        settings=_numbers(",".join(args.settings)), function=args.function, framework=args.arrays,
        seconds=args.seconds, megabytes=args.megabytes, seed=args.seed, proof=not args.no_proof,
    )  # fmt: skip
    print(json.dumps(verdict.as_json()) if args.json else verdict)
    return 0 if verdict else 1


def _numbers(text: str) -> dict[str, int]:
    """`M=33,K=64` as numbers by name."""
    numbers: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value.strip().isdigit():
            raise ArgumentError(f"expected NAME=N,..., such as M=33,K=64, got '{text}'")
        numbers[name.strip()] = int(value)
    return numbers


# `warploom judge --mcp`: the same answers for a client of the Model Context Protocol.

SPARE = 120.0
"""Seconds for the judge besides the candidate's."""


async def judge(
    candidate: str, reference: str, options: list[str] | None = None, seconds: float = 60.0, megabytes: int = 4096
) -> dict[str, Any]:
    """Judge whether a GPU kernel or a Python function computes what a reference says.

    `candidate` is the path of a .ptx, .cu or .py file (FILE.py:NAME for one function), `reference` that of an .mlir or
    .py file. `options` are those of the command `warploom judge`, such as ["--grid", "4", "--block", "128", "--in",
    "A=random:f32:{M}x{K}", "--size", "M=33,K=64"]. The answer has `passed`, the `codes` of what is wrong, and
    `findings` with a sentence and a place each; or `error`, if the question cannot be answered.
    """
    import asyncio  # for the server alone

    command = [
        *(sys.executable, "-m", "warploom", "judge", candidate, reference, "--json"),
        *("--seconds", str(seconds), "--megabytes", str(megabytes), *(options or ())),
    ]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, errors = await asyncio.wait_for(process.communicate(), seconds + SPARE)
    except TimeoutError:
        process.kill()
        return {"error": f"no verdict in {seconds + SPARE:g} seconds"}
    lines = (out if process.returncode in (0, 1) else errors).decode().strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": "\n".join(lines) or f"the judge ended with code {process.returncode}"}


def serve() -> None:
    """Answers a client on standard input and output. Raises ArgumentError without the package `mcp`."""
    if find_spec("mcp") is None:
        raise ArgumentError("the server needs the package mcp: pip install 'warploom[mcp]'")
    server: Any = import_module("mcp.server.mcpserver").MCPServer("warploom")
    server.tool()(judge)
    server.run(transport="stdio")
