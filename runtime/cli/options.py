"""Options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..errors import ArgumentError


def filled(text: str) -> str:
    """A text that is not empty, for argparse: what a shell makes of a variable that is not set asks for nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a value, got nothing")
    return text


def natural(text: str) -> int:
    """A number from 0 on, for argparse."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A number from 1 on, for argparse."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number from {least} on, got '{text}'")
    return int(text)


def add_target(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--target`; `default` says which GPU is compiled for without it."""
    parser.add_argument("--target", type=filled, metavar="SM", help=f"compile for this GPU; default: {default}")


def add_tf32(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds `--tf32`."""
    parser.add_argument(
        "--tf32", action="store_true", help="multiply f32 operands with 10 of the 23 bits of their fractions"
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Adds `--seed`."""
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of random arrays (default 0)")


def add_compilation(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds what says how a function is compiled: `--function`, `--schedule`, `--tf32`, `--tuned`."""
    parser.add_argument("--function", type=filled, metavar="NAME", help="the function, if the file has several")
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="KEY=VALUE",
        help="override the schedule: cta=128,256,64 stages=4 ...; warploom-opt --help-schedule lists all keys",
    )  # fmt: skip
    add_tf32(parser)
    parser.add_argument(
        "--tuned", type=filled, metavar="FILE.json", help="use the schedules in this file of `warploom tune`"
    )


def schedule_options(texts: Sequence[str]) -> dict[str, str]:
    """`["cta=128,256,64 warp=64,64", "stages=4"]` as a mapping.

    Raises:
        ArgumentError: for a word that is not `key=value`, or a key that is given twice.
    """
    options: dict[str, str] = {}
    for word in (word for text in texts for word in text.split() or [""]):
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ArgumentError(f"--schedule: expected key=value, such as stages=4 or cta=128,256,64, got '{word}'")
        if key in options:
            raise ArgumentError(f"--schedule: {key} is given twice, {options[key]} and {value}")
        options[key] = value
    return options
