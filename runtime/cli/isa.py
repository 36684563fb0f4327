"""`warploom isa`: which forms of the matrix instructions there are, where, and since when."""

from __future__ import annotations

import argparse

from .options import filled

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


def add_isa(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    isa = commands.add_parser(
        "isa",
        help="list the matrix instructions and what has them",
        description=ISA_TEXT,
        epilog=ISA_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    isa.set_defaults(command=_run, file="isa")
    isa.add_argument("--target", type=filled, metavar="SM", help="what this GPU has, and since which PTX version")
    isa.add_argument("--ptx", metavar="VERSION", help="what this PTX version has, such as 8.0")
    isa.add_argument("--family", metavar="NAME", help="one instruction: mma, mma.sp, wmma, wmma.load, ldmatrix, ...")
    isa.add_argument("--type", metavar="TYPE", help="with an operand of this element type, such as e4m3")
    isa.add_argument("--shape", metavar="SHAPE", help="of this shape, such as m16n8k16")
    isa.add_argument("--all", action="store_true", help="a line for each form")
    isa.add_argument("--json", action="store_true", help="print a list of objects, one for each form")
    isa.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    from ..lookup.isa_report import report
    from ..lookup.isa_table import Query

    query = Query(args.target, args.ptx, args.family, args.type, args.shape)
    return report(query, every=args.all, as_objects=args.json)
