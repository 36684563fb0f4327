"""`warploom compile`: an MLIR file becomes PTX, machine code, or a level between."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import ArgumentError, WarploomError
from ..base.launch import STDIN, Mapped, Passed, Shifted, Word, read_mlir
from .options import (
    Commands,
    add_command,
    add_compilation,
    add_no_cache,
    add_target,
    compiled,
    filled,
    schedule_options,
)

if TYPE_CHECKING:
    from ..kernel.kernel import Kernel

COMPILE_TEXT = """\
Compile one function of FILE.mlir to PTX, or write another level with --emit:

  ptx      PTX text (the default)
  cubin    machine code, made by ptxas
  json     parameters, launches, schedules and PTX of the function
  linalg   all functions as linalg on memrefs; functions on tensors have become functions on memory
  mlir     the kernels of all functions over fragments, in the dialect warp; `warploom-opt -p convert-warp-to-ptx`
           lowers them to PTX

Without --emit the ending of OUT decides: .ptx, .cubin, .json or .mlir. An OUT without an ending gets PTX; -o - is
standard output.
"""

COMPILE_EXAMPLES = """\
examples:
  warploom compile matmul.mlir
  warploom compile matmul.mlir --target sm_80 -o matmul.ptx
  warploom compile matmul.mlir --tuned h200.json -o matmul.cubin
  warploom compile matmul.mlir --schedule 'cta=128,128,64 stages=4' --emit mlir
"""

ENDINGS = {"mlir": ".mlir", "linalg": ".mlir", "ptx": ".ptx", "cubin": ".cubin", "json": ".json"}
"""How the name of a file with each level ends."""


def add_compile(commands: Commands) -> None:
    """Adds `warploom compile`."""
    summary = "compile an .mlir file to PTX or machine code"
    parser = add_command(commands, "compile", _run, summary, COMPILE_TEXT, COMPILE_EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="an .mlir file, or - for standard input")
    parser.add_argument(
        "-o", dest="out", type=filled, metavar="OUT", help="write to a file; default: -, standard output"
    )
    parser.add_argument("--emit", choices=ENDINGS, metavar="LEVEL", help=f"what to write: {', '.join(ENDINGS)}")
    add_target(parser, "the file's own, else sm_90a")
    add_compilation(parser)
    parser.add_argument(
        "--prove", action="store_true", help="prove that the kernels compute the function, or fail (docs/prove.md)"
    )
    add_no_cache(parser)


def _run(args: argparse.Namespace) -> int:
    out = None if args.out == STDIN else args.out
    level = _level_of(args.emit, out)
    _refuse_idle(args, level)
    text = read_mlir(args.file)
    if level == "cubin" and out is None and sys.stdout.isatty():
        raise WarploomError("--emit cubin writes machine code, which is no text; give a file with -o")
    schedule = schedule_options(args.schedule)
    _note_target(args, text)
    make = _between if level in ("mlir", "linalg") else _compiled
    data = make(args, text, level, schedule)
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        Path(out).write_bytes(data)
    return 0


def _note_target(args: argparse.Namespace, text: str) -> None:
    """Say so where `--target` replaces a file's own. Only text that may have one is parsed for that."""
    if args.target and "warp.target" in text:
        from ..kernel.lowering import parse
        from .options import requested_target

        requested_target(args, parse(text, args.file))


def _level_of(emit: str | None, out: str | None) -> str:
    """The level that `--emit` or the ending of an output's name asks for. Raises ArgumentError for an ending that no
    level has, unless the level is given, or one of another level."""
    ending = "" if out is None else Path(out).suffix
    if emit is None:
        if ending and ending not in ENDINGS.values():
            levels = ", ".join(dict.fromkeys(ENDINGS.values()))
            raise ArgumentError(f"-o {out}: expected a name ending in {levels}, or --emit to say what to write")
        return next((level for level in ("ptx", *ENDINGS) if ENDINGS[level] == ending), "ptx")
    if ending in ENDINGS.values() and ending != ENDINGS[emit]:
        raise ArgumentError(f"-o {out}: the ending is not that of --emit {emit}, {ENDINGS[emit]}")
    return emit


_IDLE = {
    "linalg": {"--function", "--schedule", "--tuned", "--tf32", "--target", "--prove"},
    "mlir": {"--function", "--prove"},
}
"""Options that say nothing of a level: those of later ones, and the function where all are written."""


def _refuse_idle(args: argparse.Namespace, level: str) -> None:
    """Raises:
    ArgumentError: for an option that changes nothing of the level.
    """
    for option in sorted(_IDLE.get(level, ())):
        if getattr(args, option.removeprefix("--")):
            why = "all functions are written" if option == "--function" else "it is for the levels behind linalg"
            raise ArgumentError(f"{option} has no effect on --emit {level}: {why}")


def _compiled(args: argparse.Namespace, text: str, level: str, schedule: Mapping[str, str]) -> bytes:
    source = text + "\n" if args.file == STDIN else Path(args.file)  # text that ends a line is no path
    kernel = compiled(args, source, args.target, args.file)
    if args.prove:
        _prove(args, kernel, text)
    return _EMITTED[level](kernel)


def _prove(args: argparse.Namespace, kernel: Kernel, text: str) -> None:
    """Raises:
    WarploomError: where the kernel is not proven to compute its function.
    """
    from .prove import prove_kernel

    proof = prove_kernel(kernel, text, [], 0, args.function)
    if not proof:
        raise WarploomError(f"{args.file}: {proof}")
    print(f"{args.file}: {proof}", file=sys.stderr)


def _json(kernel: Kernel) -> bytes:
    function, plan = kernel.function, kernel.plan
    facts = {
        "target": kernel.target,
        "function": {
            **vars(function),
            "parameters": [asdict(parameter) for parameter in function.parameters],
            "written": sorted(function.written),
            "filled": sorted(function.filled),
            "products": [product._asdict() for product in function.products],
            "ties": [sorted(tie) for tie in function.ties],
        },
        "plan": {
            "launches": [{**vars(each), "arguments": list(map(_argument, each.arguments))} for each in plan.launches],
            "scratch": [{**buffer._asdict(), "data": buffer.data.hex()} for buffer in plan.scratch],
            "dynamic": plan.dynamic,
        },
        "schedules": {name: None if schedule is None else str(schedule) for name, schedule in kernel.schedules.items()},
        "ptx": kernel.ptx,
    }
    return (json.dumps(facts, indent=1) + "\n").encode()


def _argument(argument: Passed) -> object:
    """A position, [a number by value], [a position, bytes behind it], or these with the bytes of a tensor map."""
    match argument:
        case Mapped(position, distance, fields):
            return [position, distance, fields.encode().hex()]
        case Word(value):
            return [value]
        case Shifted(position, distance):
            return [position, distance]
        case _:
            return argument


_EMITTED: Mapping[str, Callable[[Kernel], bytes]] = {
    "ptx": lambda kernel: kernel.ptx.encode(), "cubin": lambda kernel: kernel.cubin, "json": _json,
}  # fmt: skip


def _between(args: argparse.Namespace, text: str, level: str, schedule: Mapping[str, str]) -> bytes:
    from ..kernel.lowering import parse, to_fragments, without_tensors

    module = parse(text, args.file)
    if level == "linalg":
        without_tensors(module, tf32=args.tf32)
    else:
        to_fragments(module, args.target, args.tf32, args.tuned, schedule)
    return (str(module) + "\n").encode()
