"""`warploom tune`: the fastest schedule of a product, found by measuring on the GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..base.errors import ArgumentError
from .options import Commands, add_command, add_seed, add_target, add_tf32, filled, positive

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


def add_tune(commands: Commands) -> None:
    """Adds `warploom tune`."""
    summary = "find the fastest schedule of a product by measuring on the GPU"
    tune = add_command(commands, "tune", _run, summary, TUNE_TEXT, TUNE_EXAMPLES)
    tune.add_argument(
        "file", metavar="FILE", nargs="?",
        help="an .mlir file with one function and one product, or - for standard input",
    )  # fmt: skip
    tune.add_argument("--device", type=positive, nargs="?", const=PRODUCTS, metavar="N",
                      help=f"measure N products (default {PRODUCTS}) and fit the model to this device")  # fmt: skip
    add_target(tune, "the file's own, else the one in use, with --list sm_90a")
    tune.add_argument("--tuned", type=_path, metavar="FILE.json",
                      help=f"keep the times and the schedules in this file (default {DEFAULT_FILE})")  # fmt: skip
    tune.add_argument("--cache", dest="tuned", type=_path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    tune.add_argument("--limit", type=positive, default=60, metavar="N", help="measure N schedules (default 60)")
    tune.add_argument("--top", type=positive, metavar="N", help=f"show the N fastest (default {SHOWN})")
    add_tf32(tune)
    add_seed(tune)
    tune.set_defaults(seed=None)
    tune.add_argument("--in", dest="inputs", action="append", default=[], metavar="NAME=random:MxN",
                      help="the size of an argument, if the file does not have it; or a .npy file")  # fmt: skip
    tune.add_argument(
        "--list", action="store_true", help="only list the schedules that would be measured; needs no GPU"
    )


def _path(text: str) -> Path:
    """A path that is not empty, for argparse."""
    return Path(filled(text))


def _run(args: argparse.Namespace) -> int:
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
