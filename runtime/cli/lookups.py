"""`warploom isa`, `layout` and `explain`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import WarploomError
from .options import Commands, add_command, filled, natural

if TYPE_CHECKING:
    from ...dialect.layouts.pictures import Picture

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
        "--svg", type=filled, metavar="FILE", help="write the picture to a file instead of the terminal"
    )


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
