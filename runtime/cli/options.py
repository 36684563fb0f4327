"""Options that several commands have."""

from __future__ import annotations

import argparse


def natural(text: str) -> int:
    """A number from 0 on, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got '{text}'")
    return int(text)


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Adds `--seed`."""
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of random arrays (default 0)")
