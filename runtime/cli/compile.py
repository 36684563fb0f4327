"""`warploom compile`: an MLIR file becomes PTX, machine code, or a level between."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..cache import unused
from ..errors import WarploomError
from ..source import STDIN, read_mlir
from .cache import add_no_cache
from .options import add_compilation, add_target, schedule_options

if TYPE_CHECKING:
    from ..kernel import Kernel

COMPILE_TEXT = """\
Compile one function of FILE.mlir to PTX, or write another level with --emit:

  ptx      PTX text (the default)
  cubin    machine code, made by ptxas
  json     parameters, launches, schedules and PTX of the function
  linalg   the function as linalg on memrefs; functions on tensors have become functions on memory
  mlir     the kernels over fragments, in the dialect warp; `warploom-opt -p convert-warp-to-ptx` lowers them to PTX

Without --emit the ending of OUT decides: .ptx, .cubin, .json or .mlir.
"""

COMPILE_EXAMPLES = """\
examples:
  warploom compile matmul.mlir
  warploom compile matmul.mlir --target sm_80 -o matmul.ptx
  warploom compile matmul.mlir --tuned h200.json -o matmul.cubin
  warploom compile matmul.mlir --schedule 'cta=128,128,64 stages=4' --emit mlir
"""

LEVELS = ("mlir", "linalg", "ptx", "cubin", "json")


def add_compile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "compile",
        help="compile an .mlir file to PTX or machine code",
        description=COMPILE_TEXT,
        epilog=COMPILE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_run)
    parser.add_argument("file", metavar="FILE", help="an .mlir file, or - for standard input")
    parser.add_argument("-o", dest="out", metavar="OUT", help="write to a file instead of standard output")
    parser.add_argument("--emit", choices=LEVELS, metavar="LEVEL", help=f"what to write: {', '.join(LEVELS)}")
    add_target(parser, "the file's own, else sm_90a")
    add_compilation(parser)
    add_no_cache(parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    with unused() if args.no_cache else nullcontext():
        return _emit(args)


def _emit(args: argparse.Namespace) -> int:
    level = args.emit or _level_of(args.out)
    text = read_mlir(args.file)
    if level == "cubin" and args.out is None and sys.stdout.isatty():
        raise WarploomError("--emit cubin writes machine code, which is no text; give a file with -o")
    schedule = schedule_options(args.schedule)
    make = _between if level in ("mlir", "linalg") else _compiled
    data = make(args, text, level, schedule)
    if args.out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        Path(args.out).write_bytes(data)
    return 0


def _level_of(out: str | None) -> str:
    """The level that an output's ending asks for."""
    ending = "" if out is None else Path(out).suffix.removeprefix(".")
    return ending if ending in LEVELS else "ptx"


def _compiled(args: argparse.Namespace, text: str, level: str, schedule: Mapping[str, str]) -> bytes:
    from ..compiler import compile

    kernel = compile(
        text + "\n" if args.file == STDIN else Path(args.file),  # text that ends a line is no path
        args.target,
        args.function,
        file=args.file,
        on_phase=None,
        tf32=args.tf32,
        tuned=args.tuned,
        cache=True,
        **schedule,
    )
    return _EMITTED[level](kernel)


def _json(kernel: Kernel) -> bytes:
    from ..record import facts_of

    return (json.dumps({**facts_of(kernel), "ptx": kernel.ptx}, indent=1) + "\n").encode()


_EMITTED: Mapping[str, Callable[[Kernel], bytes]] = {
    "ptx": lambda kernel: kernel.ptx.encode(), "cubin": lambda kernel: kernel.cubin, "json": _json,
}  # fmt: skip


def _between(args: argparse.Namespace, text: str, level: str, schedule: Mapping[str, str]) -> bytes:
    from ..lowering import parse, to_fragments, without_tensors

    module = parse(text, args.file)
    if level == "linalg":
        without_tensors(module)
    else:
        to_fragments(module, args.target, args.tf32, args.tuned, schedule)
    return (str(module) + "\n").encode()
