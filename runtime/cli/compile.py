"""`warploom compile`, and `warploom tune`: the fastest schedule of a product, found by measuring on the GPU."""

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
from . import options

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


def add_compile(commands: options.Commands) -> None:
    """Adds `warploom compile`."""
    summary = "compile an .mlir file to PTX or machine code"
    parser = options.add_command(commands, "compile", _run, summary, COMPILE_TEXT, COMPILE_EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="an .mlir file, or - for standard input")
    parser.add_argument(
        "-o", dest="out", type=options.filled, metavar="OUT", help="write to a file; default: -, standard output"
    )
    parser.add_argument("--emit", choices=ENDINGS, metavar="LEVEL", help=f"what to write: {', '.join(ENDINGS)}")
    options.add_compiling(parser, "the file's own, else sm_90a")
    parser.add_argument(
        "--prove", action="store_true", help="prove that the kernels compute the function, or fail (docs/prove.md)"
    )
    options.add_no_cache(parser)


def _run(args: argparse.Namespace) -> int:
    out = None if args.out == STDIN else args.out
    level = _level_of(args.emit, out)
    _refuse_idle(args, level)
    text = read_mlir(args.file)
    if level == "cubin" and out is None and sys.stdout.isatty():
        raise WarploomError("--emit cubin writes machine code, which is no text; give a file with -o")
    schedule = options.schedule_options(args.schedule)
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

        options.requested_target(args, parse(text, args.file))


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
    "linalg": {f"--{name}" for name in (*options.COMPILATION, "target", "prove")},
    "mlir": {"--function", "--prove"},
}
"""Options that say nothing of a level: those of later ones, and the function where all are written."""


def _refuse_idle(args: argparse.Namespace, level: str) -> None:
    """Raises ArgumentError for an option that changes nothing of the level."""
    for option in sorted(_IDLE.get(level, ())):
        if getattr(args, option.removeprefix("--")):
            why = "all functions are written" if option == "--function" else "it is for the levels behind linalg"
            raise ArgumentError(f"{option} has no effect on --emit {level}: {why}")


def _compiled(args: argparse.Namespace, text: str, level: str, schedule: Mapping[str, str]) -> bytes:
    source = text + "\n" if args.file == STDIN else Path(args.file)  # text that ends a line is no path
    kernel = options.compiled(args, source, args.target, args.file)
    if args.prove:
        _prove(args, kernel, text)
    return _EMITTED[level](kernel)


def _prove(args: argparse.Namespace, kernel: Kernel, text: str) -> None:
    """Raises WarploomError where the kernel is not proven to compute its function."""
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
            **function._asdict(),
            "parameters": [asdict(parameter) for parameter in function.parameters],
            "written": sorted(function.written),
            "filled": sorted(function.filled),
            "products": [product._asdict() for product in function.products],
            "ties": [sorted(tie) for tie in function.ties],
            "computed": list(map(str, function.computed)),
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
    from ..kernel.compile import text_or_file
    from ..kernel.lowering import parse, to_fragments, without_tensors

    module, strategy = parse(text, args.file), None if args.transform is None else text_or_file(args.transform, "", "")
    if level == "linalg":
        without_tensors(module, tf32=args.tf32)
    else:
        to_fragments(module, args.target, args.tf32, args.tuned, schedule, strategy)
    return (str(module) + "\n").encode()


TUNE_TEXT = """\
Measure schedules of the one product of FILE.mlir on the GPU and keep the times in a JSON file, that of --tuned.

The keys of the file are device, sizes and element types. It is written after every measurement. A search that was
stopped continues there, and one with a larger --limit adds to it. Use the schedules with `warploom run --tuned`,
`compile(..., tuned=...)` or `warploom-opt -p 'warp-schedule{tuned="..."}'`.

With --device, measure products of many sizes instead of FILE.mlir, and fit the constants of the model of products of
warpgroups to the times. They are kept in the file, too: other products are then scheduled for that device.
"""

TUNE_EXAMPLES = """\
examples:
  warploom tune matmul.mlir
  warploom tune matmul.mlir --limit 200 --tuned h200.json
  warploom tune dynamic.mlir --in A=random:512x4096 --in B=random:4096x4096
  warploom run matmul.mlir --tuned h200.json --device cuda
  warploom tune --device --limit 12 --tuned h20.json
"""

DEFAULT_FILE = "warploom-tuned.json"

PRODUCTS = 24
"""How many products are measured of a device, unless `--device` says so."""

SHOWN = 5
"""How many of the fastest are shown unless `--top` says so."""


def add_tune(commands: options.Commands) -> None:
    """Adds `warploom tune`."""
    summary = "find the fastest schedule of a product by measuring on the GPU"
    tune = options.add_command(commands, "tune", _run_tune, summary, TUNE_TEXT, TUNE_EXAMPLES)
    tune.add_argument(
        "file", metavar="FILE", nargs="?",
        help="an .mlir file with one function and one product, or - for standard input",
    )  # fmt: skip
    tune.add_argument("--device", type=options.positive, nargs="?", const=PRODUCTS, metavar="N",
                      help=f"measure N products (default {PRODUCTS}) and fit the model to this device")  # fmt: skip
    options.add_target(tune, "the file's own, else the one in use, with --list sm_90a")
    tune.add_argument("--tuned", type=options.path, metavar="FILE.json",
                      help=f"keep the times and the schedules in this file (default {DEFAULT_FILE})")  # fmt: skip
    tune.add_argument("--cache", dest="tuned", type=options.path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    tune.add_argument(
        "--limit", type=options.positive, default=60, metavar="N", help="measure N schedules (default 60)"
    )
    tune.add_argument("--top", type=options.positive, metavar="N", help=f"show the N fastest (default {SHOWN})")
    options.add_tf32(tune)
    options.add_seed(tune)
    tune.set_defaults(seed=None)
    tune.add_argument("--in", dest="inputs", action="append", default=[], metavar="NAME=random:MxN",
                      help="the size of an argument, if the file does not have it; or a .npy file")  # fmt: skip
    tune.add_argument(
        "--list", action="store_true", help="only list the schedules that would be measured; needs no GPU"
    )


def _run_tune(args: argparse.Namespace) -> int:
    from .tune_report import list_schedules, tune_device_with_report, tune_with_report

    if (args.device is None) == (args.file is None):
        raise ArgumentError("tune takes a FILE, or --device without one")
    of_file = {"--top": args.top, "--in": args.inputs, "--list": args.list, "--tf32": args.tf32}
    if args.device is not None and (idle := [option for option, value in of_file.items() if value]):
        raise ArgumentError(f"{', '.join(idle)}: --device measures products of its own; leave out one of them")
    measuring = {"--tuned": "tuned", "--top": "top", "--seed": "seed"}
    if args.list and (idle := [option for option, name in measuring.items() if getattr(args, name) is not None]):
        raise ArgumentError(f"{', '.join(idle)}: --list measures nothing; leave out one of them")
    if args.list:
        return list_schedules(args)
    args.tuned, args.top, args.seed = args.tuned or Path(DEFAULT_FILE), args.top or SHOWN, args.seed or 0
    return tune_with_report(args) if args.device is None else tune_device_with_report(args)
