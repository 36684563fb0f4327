"""`warploom tune`: the fastest schedule of a product, found by measuring on the GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import add_seed

TUNE_TEXT = """\
Measure schedules of the one product of FILE.mlir on the GPU and keep the times in a JSON file.

The keys of the file are device, sizes and element types. It is written after every measurement. A search that was
stopped continues there, and one with a larger --limit adds to it. Use the schedules with `warploom run --tuned`,
`compile(..., tuned=...)` or `warploom-opt -p 'warp-schedule{tuned="..."}'`.
"""

TUNE_EXAMPLES = """\
examples:
  warploom tune matmul.mlir
  warploom tune matmul.mlir --limit 200 --cache h200.json
  warploom tune dynamic.mlir --in A=random:512x4096 --in B=random:4096x4096
  warploom run matmul.mlir --tuned h200.json --device cuda
"""

DEFAULT_CACHE = "warploom-tuned.json"


def add_tune(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    tune = commands.add_parser(
        "tune",
        help="find the fastest schedule of a product by measuring on the GPU",
        description=TUNE_TEXT,
        epilog=TUNE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tune.set_defaults(command=_run)
    tune.add_argument(
        "file", metavar="FILE", help="an .mlir file with one function and one product, or - for standard input"
    )
    tune.add_argument("--target", metavar="SM", help="compile for this target; default: that of the GPU")
    tune.add_argument("--cache", type=Path, default=Path(DEFAULT_CACHE), metavar="FILE.json",
                      help=f"where times are kept (default {DEFAULT_CACHE})")  # fmt: skip
    tune.add_argument("--limit", type=int, default=60, metavar="N", help="schedules to measure (default 60)")
    tune.add_argument("--top", type=int, default=5, metavar="N", help="how many to show (default 5)")
    tune.add_argument("--tf32", action="store_true", help="multiply f32 operands with 10 bits of fraction")
    add_seed(tune)
    tune.add_argument("--in", dest="inputs", action="append", default=[], metavar="NAME=random:MxN",
                      help="the size of an argument, if the file does not have it; or a .npy file")  # fmt: skip
    tune.add_argument(
        "--list", action="store_true", help="only list the schedules that would be measured; needs no GPU"
    )
    tune.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    from .tune_report import list_schedules, tune

    return list_schedules(args) if args.list else tune(args)
