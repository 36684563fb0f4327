"""`warploom judge`: whether a candidate computes what a reference says."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..base.errors import ArgumentError, WarploomError
from .options import Commands, add_command, add_seed, filled, positive

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
    """Answers a client on standard input and output.

    Raises:
        ArgumentError: without the package `mcp`.
    """
    if find_spec("mcp") is None:
        raise ArgumentError("the server needs the package mcp: pip install 'warploom[mcp]'")
    server: Any = import_module("mcp.server.mcpserver").MCPServer("warploom")
    server.tool()(judge)
    server.run(transport="stdio")
