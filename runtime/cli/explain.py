"""`warploom explain`: the fields of a matrix descriptor or of a tensor map."""

from __future__ import annotations

import argparse

EXPLAIN_TEXT = """\
Print the fields of a matrix descriptor of wgmma, or of a tensor map, and their meanings.

VALUE is a descriptor of 64 bits, such as 0x4000004000010000; a tensor map as 256 hexadecimal digits, in the order of
its bytes in memory, or as 32 words of 32 bits in quotes; or a file of 8 or 128 bytes.
"""

EXPLAIN_EXAMPLES = """\
examples:
  warploom explain 0x4000004000010000
  warploom explain map.bin
"""


def add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    explain = commands.add_parser(
        "explain",
        help="show the fields of a matrix descriptor or tensor map",
        description=EXPLAIN_TEXT,
        epilog=EXPLAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.set_defaults(command=_run, file="explain")
    explain.add_argument("value", metavar="VALUE", help="a number, hexadecimal digits, or a file")
    explain.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    from ..lookup.explain import explain

    print(explain(args.value))
    return 0
