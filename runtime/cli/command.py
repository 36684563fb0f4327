"""The `warploom` command, and of its parts `isa`, `layout` and `explain`.

Exit code 0: done; 1: an error, or a result outside its bound; 2: misuse.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...passes.start import INTERRUPTED, parsed, versions
from ..base.cache import unused
from ..base.errors import WarploomError
from ..base.launch import DEVICES, STDIN, is_ptx, read_source
from .compile import add_compile, add_tune
from .options import (
    COMPILATION,
    Commands,
    add_cache,
    add_command,
    add_compiling,
    add_no_cache,
    add_seed,
    filled,
    natural,
    positive,
)
from .prove import add_judge, add_prove

if TYPE_CHECKING:
    from ...dialect.layouts.pictures import Picture

RUN_TEXT = """\
Compile and run an MLIR file, or launch a kernel of a PTX file.

FILE.mlir is compiled for --target, and its function is called. Arguments without --in are drawn from N(0, 1) with
--seed. Arguments that the function fills before it reads them start as NaN. FILE.ptx needs --grid, --block and one
--arg for each parameter, and --kernel if it has several kernels. So does a FILE.mlir that holds a gpu.module; the
shared memory of its kernels is computed.
"""

CHECK_TEXT = "Check a PTX file against the instruction tables: a line for each error, exit code 1 if any."

COMPARE = "float64"
"""The check that `--check` alone asks for."""

RUN_EXAMPLES = """\
examples:
  warploom run matmul.mlir --check
  warploom run matmul.mlir --in 0=a.npy --in %B=b.npy --in 2=zeros --out c.npy --device interp
  warploom run matmul.mlir --report
  warploom run matmul.mlir --trace out.json
  warploom run matmul.mlir --schedule 'cta=128,128,64 stages=4' --device cuda
  warploom run axpy.ptx --grid 4 --block 128 --arg x.npy --arg zeros:f32:512 --arg f32:1.5 --out 1=y.npy
  warploom run cute.ptx --grid 4 --block 128 --arg '{x.npy, i32:512}' --arg '{zeros:f32:512}' --out 1.0=y.npy
  warploom run matmul.mlir --check --check=all --device interp
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on its arguments and return the exit code. argparse exits by itself on misuse."""
    args = parsed(parser(), _spelled_out(sys.argv[1:] if argv is None else argv))
    try:
        with unused() if getattr(args, "no_cache", False) else nullcontext():
            code = int(args.command(args))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        return 1
    except WarploomError as error:
        return _fail(_as_option(str(error), args), 1)
    except OSError as error:
        if error.filename is None:
            _discard_output()
        return _fail(f"{error.filename or 'writing the output'}: {error.strerror or error}", 1)
    except RecursionError:
        return _fail(f"{getattr(args, 'file', 'input')}: nested too deeply", 1)
    except MemoryError as error:
        return _fail(f"out of memory: {error}", 1)
    except Exception as error:
        if args.debug:
            raise
        return _fail(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1)


def _spelled_out(argv: Sequence[str]) -> list[str]:
    """`--check` alone stands for a check by name; argparse would take the next word for its value."""
    return [f"--check={COMPARE}" if word == "--check" else word for word in argv]


def _as_option(message: str, args: argparse.Namespace) -> str:
    """Replaces Python arguments in a message by the options of this command."""
    option = "--device interp" if hasattr(args, "device") else "`warploom run --device interp`"
    return message.replace("device='interp'", option).replace("a larger max_steps", "a larger --max-steps")


def _discard_output() -> None:
    """Sends what is left to write to /dev/null: Python writes it at its end, and would complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    """Prints an error on stderr, behind its location if it has one, and returns `code`."""
    first, *_ = message.split("\n")
    if ": error: " not in first:
        message = re.sub(r"^(.*?:\d+:\d+: )?", r"\1error: ", message, count=1)
    print(message, file=sys.stderr)
    return code


def _run(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if args.file != STDIN and path.suffix not in (".mlir", ".mlirbc", ".ptx"):
        raise WarploomError(f"{path}: expected a file ending in .mlir or .ptx, or {STDIN} for standard input")
    text = read_source(path)
    _read_checks(args)
    if args.trace:
        from .run import check_trace

        check_trace(args.trace)
    launched = is_ptx(path, text) or any(getattr(args, _LAUNCH_ONLY[name]) for name in ("--grid", "--block"))
    _refuse_options(args, launched)
    from .run import run_mlir, run_ptx

    return run_ptx(args, text) if launched else run_mlir(args, text)


def _check(args: argparse.Namespace) -> int:
    from ...dialect.isa.row import UnknownTargetError
    from ...dialect.ptx.check.module import check_text

    text = read_source(args.file)
    try:
        checked = check_text(text, args.target, args.file)
    except UnknownTargetError as error:
        raise WarploomError(str(error)) from error
    diagnostics = list(checked.diagnostics)
    if args.runnable:
        wrong = {(d.line, d.column) for d in diagnostics}
        from ..interp.program import refused

        others = (d for d in refused(text, args.file, args.target) if (d.line, d.column) not in wrong)
        diagnostics = sorted([*diagnostics, *others])
    for diagnostic in (*diagnostics, *checked.notes):
        print(diagnostic.show(args.file))
    return 1 if diagnostics else 0


def _read_checks(args: argparse.Namespace) -> None:
    """Parses `--check`: then `check` says whether to compare with float64, `checks` names the interpreter's checks."""
    words = [word for text in args.check for word in text.split(",")]
    args.check, args.checks = COMPARE in words, tuple(word for word in words if word != COMPARE)
    if args.checks:
        from ..interp.watch.checks import chosen

        args.checks = chosen(args.checks)


_REPORT_ONLY = {"--json": "json", "--problem": "problem"}
_FUNCTION_ONLY = {"--in": "inputs"} | {f"--{name}": name for name in ("check", *COMPILATION)}
_LAUNCH_ONLY = {"--arg": "arguments"} | {
    f"--{name}": name for name in ("kernel", "grid", "block", "shared", "problem", "replay")
}  # fmt: skip


def _refuse_options(args: argparse.Namespace, launched: bool) -> None:
    """Say so when an option has no meaning for what is run, a kernel or a function, and when one is missing."""
    other = _FUNCTION_ONLY if launched else _LAUNCH_ONLY
    for option, name in other.items():
        if _is_set(getattr(args, name)):
            what = "functions of .mlir files" if launched else "kernels, which are launched with --grid and --block"
            raise WarploomError(f"{option} is for {what}")
    for option, name in _REPORT_ONLY.items():
        if getattr(args, name) and not args.report:
            raise WarploomError(f"{option} says how to make a report; add --report")
    missing = [option for option in ("--grid", "--block") if not getattr(args, _LAUNCH_ONLY[option])]
    if launched and missing:
        raise WarploomError(
            f"{args.file}: a kernel is launched with {' and '.join(missing)}, such as {missing[0]} 4,1,1"
        )


def _is_set(value: object) -> bool:
    """Whether an option has a value; 0 is one."""
    return value is not None and value is not False and value != []


class _ShowVersions(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(versions(parser.prog.split()[0]))
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    top = argparse.ArgumentParser(prog="warploom", description="A compiler for NVIDIA tensor cores.")
    top.add_argument("-v", "--version", action=_ShowVersions, nargs=0, help="print the versions and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    summary = "compile and run an .mlir file, or launch a kernel of a .ptx file"
    run = add_command(commands, "run", _run, summary, RUN_TEXT, RUN_EXAMPLES)
    _add_common(run)
    _add_mlir(run.add_argument_group("for functions of .mlir files"))
    _add_ptx(run.add_argument_group("for kernels of .ptx files, and of a gpu.module of .mlir files"))
    check = add_command(commands, "check", _check, "check the instructions of a .ptx file", CHECK_TEXT)
    check.add_argument("file", metavar="FILE", help="a .ptx file, or - for standard input")
    check.add_argument(
        "--target", type=filled, metavar="SM", help="check for this GPU instead of the file's own .target"
    )
    check.add_argument(
        "--runnable", action="store_true", help="also report what `warploom run --device interp` would refuse"
    )
    add_compile(commands)
    add_cache(commands)
    add_explain(commands)
    add_isa(commands)
    add_judge(commands)
    add_layout(commands)
    add_prove(commands)
    add_tune(commands)
    for command in commands.choices.values():
        command.add_argument("--version", action=_ShowVersions, nargs=0, help=argparse.SUPPRESS)
    return top


def _add_common(run: argparse.ArgumentParser) -> None:
    run.add_argument("file", metavar="FILE", help="an .mlir or .ptx file, or - for standard input")
    run.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="auto (default): a GPU if one can be used, else the interpreter",
    )
    run.add_argument(
        "--target", type=filled, metavar="SM",
        help="compile for this GPU; default: the file's own, else the one in use, else sm_90a. A .ptx file is "
        "interpreted with the matrix arithmetic of this GPU, for which ptxas also assembles it",
    )  # fmt: skip
    run.add_argument(
        "--out", dest="outputs", action="append", default=[], metavar="[NAME=]FILE.npy",
        help="write an argument to a file; NAME is a position or %%name, by default the last argument written",
    )  # fmt: skip
    run.add_argument(
        "--check", action="append", default=[], metavar="[=NAME,...]",
        help="compare the result of an .mlir file with float64; with names (races, uninitialised, barriers, bounds, "
        "wmma, wgmma, tensor, all; all-orders), look for these bugs on the interpreter; with strict, notes are errors; "
        "exit 1 if anything is wrong",
    )  # fmt: skip
    run.add_argument(
        "--max-steps", type=positive, metavar="N",
        help="end a launch on the interpreter with an error after N steps, in case a loop does not end; a step is one "
        "instruction for all threads that run it together",
    )  # fmt: skip
    run.add_argument(
        "--report", action="store_true",
        help="count what the interpreter executes: instructions, bank conflicts, sectors, matrix products",
    )  # fmt: skip
    run.add_argument(
        "--json", action="store_true", help="with --report: print it as JSON, and everything else on standard error"
    )
    run.add_argument(
        "--trace", type=filled, metavar="FILE",
        help="record what the interpreter's warps do over time: copies, products, waits, stores; FILE.json is a Chrome "
        "trace for chrome://tracing or Perfetto, FILE.svg a picture of the first CTA; times are cycles of a model, "
        "not measurements (docs/trace.md)",
    )  # fmt: skip
    add_seed(run)
    add_no_cache(run)


def _add_mlir(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    group.add_argument(
        "--in", dest="inputs", action="append", default=[], metavar="NAME=VALUE",
        help="an argument by position or %%name: FILE.npy, random, zeros, ones or nan; random:256x192 gives its sizes",
    )  # fmt: skip
    add_compiling(group)


def _add_ptx(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    group.add_argument("--kernel", type=filled, metavar="NAME", help="the kernel to launch")
    group.add_argument("--grid", type=filled, metavar="X[,Y[,Z]]", help="blocks of the grid")
    group.add_argument("--block", type=filled, metavar="X[,Y[,Z]]", help="threads of a block")
    group.add_argument(
        "--arg", dest="arguments", action="append", default=[], metavar="VALUE",
        help="an argument: a.npy, i32:5, f32:1.5, random:f16:256x192, zeros:f32:64; {a.npy, i32:5} is a struct with a "
        "pointer to an array, hex:0a0b raw bytes, map(a.npy, box=64x64, swizzle=128) a tensor map, or for a 64-bit "
        "parameter a pointer to one; &map(...) is such a pointer in a struct",
    )  # fmt: skip
    group.add_argument(
        "--problem",
        type=filled,
        metavar="MxNxK",
        help="with --report: the product the kernel computes, to compare with",
    )
    group.add_argument(
        "--replay", action="store_true",
        help="run in the first order of warps that --check=all-orders finds fault with; --trace shows it",
    )  # fmt: skip
    group.add_argument("--shared", type=natural, metavar="BYTES",
        help="dynamic shared memory of a block; default: what a kernel of an .mlir file takes, else 0",
    )  # fmt: skip


# `warploom isa`: which forms of the matrix instructions there are, where, and since when.

ISA_TEXT = """\
List the matrix instructions of warps and warpgroups (PTX ISA 9.7.14 and 9.7.15), with the PTX version and the GPUs
that each needs. --family lists any other instruction, such as cp.async.bulk.tensor or mbarrier, with its operands.

A line stands for several forms: .(a|b) is one of several qualifiers, and [.a] is an optional one. --all prints one
line for each form. --json has every field, operand and fragment layout.
"""

ISA_EXAMPLES = """\
examples:
  warploom isa --target sm_90a
  warploom isa --family mma --type f16
  warploom isa --target sm_120f --family mma.sp --shape m16n8k64 --all
  warploom isa --target sm_89 --json
  warploom isa --target sm_90a --family cp.async.bulk.tensor
"""


def add_isa(commands: Commands) -> None:
    """Adds `warploom isa`."""
    summary = "list the matrix instructions and what has them"
    isa = add_command(commands, "isa", _run_isa, summary, ISA_TEXT, ISA_EXAMPLES)
    isa.add_argument("--target", type=filled, metavar="SM", help="what this GPU has, and since which PTX version")
    isa.add_argument("--ptx", metavar="VERSION", help="what this PTX version has, such as 8.0")
    isa.add_argument("--family", metavar="NAME", help="one instruction: mma, mma.sp, wmma, wmma.load, ldmatrix, ...")
    isa.add_argument("--type", metavar="TYPE", help="with an operand of this element type, such as e4m3")
    isa.add_argument("--shape", metavar="SHAPE", help="of this shape, such as m16n8k16")
    isa.add_argument("--all", action="store_true", help="a line for each form")
    isa.add_argument("--json", action="store_true", help="print a list of objects, one for each form")


def _run_isa(args: argparse.Namespace) -> int:
    from ..lookup.isa_table import Query, report

    query = Query(args.target, args.ptx, args.family, args.type, args.shape)
    return report(query, every=args.all, as_objects=args.json)


# `warploom layout`: which lane holds which element of an operand, in the terminal and as SVG; and ways to another.

LAYOUT_TEXT = """\
Show which lane of a warp holds which elements of an operand of a matrix instruction.

INSTRUCTION is a full spelling, a part of one such as mma.m16n8k16.f16, or a shape if it is unique. OPERAND is A, B, C
or D; E, the metadata of a sparse A; scale_a or scale_b, the scales of block-scaled products; D of ldmatrix; R of
stmatrix.

With --swizzle, show instead the layout of operand A or B of wgmma in shared memory, for a matrix descriptor with that
swizzle. Elements are contiguous along K or, with --mn-major, along M or N.

With --to, show instead how to convert the operand to another one of the same matrix, by lane-local permutes, shuffles,
matrix moves or shared memory. The cheapest way comes first. Costs are issue slots of a warp.
"""

LAYOUT_EXAMPLES = """\
examples:
  warploom layout mma.m16n8k16.f16 A
  warploom layout mma.m16n8k32.s8 B --svg b.svg
  warploom layout mma.sp.m16n8k32.f16 E
  warploom layout mma.m16n8k64.kind::mxf4nvf4.4X scale_a
  warploom layout ldmatrix.m8n8.x4.trans D
  warploom layout mma.m16n8k16.f32 C --to mma.m16n8k16.f16 A
  warploom layout wgmma.mma_async.m64n64k16.f16 B --swizzle 128
  warploom layout tcgen05.mma.cta_group::1.kind::f16.m64.f16 D
"""


def add_layout(commands: Commands) -> None:
    """Adds `warploom layout`."""
    summary = "show which lane holds which element"
    layout = add_command(commands, "layout", _run_layout, summary, LAYOUT_TEXT, LAYOUT_EXAMPLES)
    layout.add_argument("instruction", metavar="INSTRUCTION", help="such as mma.m16n8k16.f16")
    layout.add_argument("operand", metavar="OPERAND", help="A, B, C, D, E, scale_a, ...")
    layout.add_argument("--to", nargs=2, metavar=("INSTRUCTION", "OPERAND"), help="show the ways to this operand")
    layout.add_argument(
        "--swizzle", type=natural, metavar="BYTES", help="of an operand in shared memory: 0, 32, 64 or 128"
    )
    layout.add_argument("--mn-major", action="store_true", help="with --swizzle: rows of M or N side by side")
    layout.add_argument(
        "--svg", type=_svg, metavar="FILE.svg", help="write the picture to a file instead of the terminal"
    )


def _svg(path: str) -> str:
    """A file for a picture. Raises ArgumentTypeError for another ending than its format's."""
    if not path.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"expected a file that ends in .svg, got {path!r}")
    return path


def _run_layout(args: argparse.Namespace) -> int:
    if args.mn_major and args.swizzle is None:
        raise WarploomError("--mn-major is of operands in shared memory; give --swizzle as well")
    if args.to:
        return _show_routes(args)
    from ...dialect.layouts.pictures import svg
    from ..lookup.fragments import terminal

    drawn = _picture(args)
    if args.svg:
        Path(args.svg).write_text(svg(drawn), encoding="utf-8")
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(terminal(drawn, console.width), soft_wrap=True)
    else:
        print("\n".join(line.rstrip() for line in terminal(drawn).plain.split("\n")))
    return 0


def _picture(args: argparse.Namespace) -> Picture:
    if args.swizzle is not None:
        from ..lookup.pictures import find_shared, shared_picture

        return shared_picture(find_shared(args.instruction, args.operand, args.swizzle, args.mn_major))
    if args.instruction.startswith("tcgen05"):
        from ..lookup.pictures import tensor_picture

        return tensor_picture(args.instruction, args.operand)
    from ..lookup.fragments import find
    from ..lookup.pictures import picture

    return picture(find(args.instruction, args.operand))


def _show_routes(args: argparse.Namespace) -> int:
    from ..lookup.fragments import find, lines

    for option in ("svg", "swizzle"):
        if getattr(args, option) is not None:
            raise WarploomError(f"--{option} draws one operand; leave out --to")
    print(*lines(find(args.instruction, args.operand), find(*args.to)), sep="\n")
    return 0


# `warploom explain`: the fields of a matrix descriptor or of a tensor map.

EXPLAIN_TEXT = """\
Print the fields of a matrix descriptor of wgmma or tcgen05, of an instruction descriptor of tcgen05, or of a tensor
map, and their meanings.

VALUE is a descriptor of 64 bits, such as 0x4000004000010000; a tensor map as 256 hexadecimal digits, in the order of
its bytes in memory, or as 32 words of 32 bits in quotes; the opcode of a tcgen05.mma and its instruction descriptor,
in quotes; or a file of 8 or 128 bytes.
"""

EXPLAIN_EXAMPLES = """\
examples:
  warploom explain 0x4000004000010000
  warploom explain map.bin
  warploom explain "tcgen05.mma.cta_group::1.kind::f16 0x08100010"
"""


def add_explain(commands: Commands) -> None:
    """Adds `warploom explain`."""
    summary = "show the fields of a matrix descriptor or tensor map"
    explain = add_command(commands, "explain", _run_explain, summary, EXPLAIN_TEXT, EXPLAIN_EXAMPLES)
    explain.add_argument("value", metavar="VALUE", help="a number, hexadecimal digits, or a file")


def _run_explain(args: argparse.Namespace) -> int:
    from ..lookup.explain import explain

    print(explain(args.value))
    return 0
