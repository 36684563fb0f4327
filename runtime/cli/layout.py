"""`warploom layout`: which lane holds which element of an operand, in the terminal and as SVG; and ways to another."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import WarploomError

LAYOUT_TEXT = """\
Show which lane of a warp holds which elements of an operand of a matrix instruction.

INSTRUCTION is a full spelling, part of one such as mma.m16n8k16.f16, or a shape that says all. OPERAND is A, B, C or D;
E, the metadata of mma.sp; scale_a or scale_b, the scales of block-scaled products; D of ldmatrix, R of stmatrix.

With --to, show instead what turns that operand into another one of the same matrix: every way there is, by lane-local
permutes, shuffles, matrix moves or shared memory, the cheapest first, with its cost in issue slots of a warp.
"""

LAYOUT_EXAMPLES = """\
examples:
  warploom layout mma.m16n8k16.f16 A
  warploom layout mma.m16n8k32.s8 B --svg b.svg
  warploom layout mma.sp.m16n8k32.f16 metadata
  warploom layout mma.m16n8k64.kind::mxf4nvf4.4X scale_a
  warploom layout ldmatrix.m8n8.x4.trans D
  warploom layout mma.m16n8k16.f32 C --to mma.m16n8k16.f16 A
"""


def add_layout(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    layout = commands.add_parser(
        "layout",
        help="show which lane holds which element",
        description=LAYOUT_TEXT,
        epilog=LAYOUT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    layout.set_defaults(command=_run, file="layout")
    layout.add_argument("instruction", metavar="INSTRUCTION", help="such as mma.m16n8k16.f16")
    layout.add_argument("operand", metavar="OPERAND", help="A, B, C, D, E, scale_a, ...")
    layout.add_argument("--to", nargs=2, metavar=("INSTRUCTION", "OPERAND"), help="show the ways to this operand")
    layout.add_argument("--svg", metavar="FILE", help="write the picture to a file instead of the terminal")
    layout.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    from ..lookup.fragments import find

    if args.to:
        return _show_ways(args)
    from ..lookup.draw import svg, terminal
    from ..lookup.pictures import picture

    drawn = picture(find(args.instruction, args.operand))
    if args.svg:
        Path(args.svg).write_text(svg(drawn), encoding="utf-8")
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(terminal(drawn, console.width), soft_wrap=True)
    else:
        print("\n".join(line.rstrip() for line in terminal(drawn).plain.split("\n")))
    return 0


def _show_ways(args: argparse.Namespace) -> int:
    from ..lookup.conversion_report import lines
    from ..lookup.fragments import find

    if args.svg:
        raise WarploomError("--svg draws one operand; leave out --to")
    print(*lines(find(args.instruction, args.operand), find(*args.to)), sep="\n")
    return 0
