"""Options that commands share, and `warploom cache`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..base.errors import ArgumentError
from ..base.launch import Dim3, dim3

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..kernel.kernel import Kernel, OnPhase

# Commands, and options that several of them have.

RunCommand: TypeAlias = Callable[[argparse.Namespace], int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]


def add_command(
    commands: Commands, name: str, run: RunCommand, summary: str, text: str, examples: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command, with what its help says in front of the options and behind them."""
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name, help=summary, description=text, epilog=examples, formatter_class=form)
    parser.set_defaults(command=run, parser=parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def filled(text: str) -> str:
    """An argument type of argparse for a text that is not empty, as that of a shell variable that is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a value, got nothing")
    return text


def path(text: str) -> Path:
    """A path that is not empty, for argparse."""
    return Path(filled(text))


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


def add_target(parser: argparse._ActionsContainer, default: str) -> None:  # pyright: ignore[reportPrivateUsage]
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


COMPILATION = ("function", "schedule", "tf32", "tuned", "transform")
"""The names of the options that say how a function is compiled."""


def add_compiling(parser: argparse._ActionsContainer, target: str = "") -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds the options of `COMPILATION`; and `--target`, which is `target` by default."""
    if target:
        add_target(parser, target)
    parser.add_argument("--function", type=filled, metavar="NAME", help="the function, if the file has several")
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="KEY=VALUE",
        help="override the schedule: cta=128,256,64 stages=4 ...; warploom-opt --help-schedule lists all keys",
    )  # fmt: skip
    add_tf32(parser)
    parser.add_argument(
        "--tuned", type=filled, metavar="FILE.json", help="use the schedules in this file of `warploom tune`"
    )
    parser.add_argument("--transform", type=path, metavar="FILE.mlir", help="apply the strategy in this file first")


def schedule_options(texts: Sequence[str]) -> dict[str, str]:
    """`["cta=128,256,64 warp=64,64", "stages=4"]` as a mapping. Raises ArgumentError for a word that is not
    `key=value`, or a key that is given twice."""
    options: dict[str, str] = {}
    for word in (word for text in texts for word in text.split() or [""]):
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ArgumentError(f"--schedule: expected key=value, such as stages=4 or cta=128,256,64, got '{word}'")
        if key in options:
            raise ArgumentError(f"--schedule: {key} is given twice, {options[key]} and {value}")
        options[key] = value
    return options


def compiled(
    args: argparse.Namespace, source: str | Path | ModuleOp, target: str | None, file: str,
    on_phase: OnPhase | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of text, a file or a module, as the options of `add_compiling` say. Messages call it `file`."""
    from ..kernel.compile import compile

    return compile(
        source, target, args.function, file=file, on_phase=on_phase, tf32=args.tf32, tuned=args.tuned,
        strategy=args.transform, cache=True, **schedule_options(args.schedule),
    )  # fmt: skip


def sizes_of(option: str, text: str) -> Dim3:
    """The sizes of an option such as `--grid`. Raises ArgumentError naming the option, if they are not one to three
    numbers."""
    try:
        return dim3([int(size) for size in text.replace("x", ",").split(",")], option)
    except ValueError:
        raise ArgumentError(f"{option}: expected one to three sizes, such as 4 or 4,2,1, got '{text}'") from None


# The GPU that a command compiles a module for.


def requested_target(args: argparse.Namespace, module: ModuleOp, otherwise: str | None = None) -> str:
    """The target: `--target`, else the module's own, else `otherwise`, else the default. If the first two differ, a
    note on stderr says so. Raises CompileError for a `warp.target` that is none."""
    from ...passes.pipeline import DEFAULT_TARGET
    from ..kernel.lowering import target_name

    target = args.target or target_name(module, otherwise or DEFAULT_TARGET)
    if (own := target_name(module, target)) != target:
        print(f"{args.file}: note: the module says {own}; --target compiles it for {target}", file=sys.stderr)
    return target


# `warploom cache`: where compiled kernels are kept, how many there are, and dropping them.

CACHE_TEXT = """\
Show the cache of compiled kernels and machine code, or delete its entries.

The cache is in the platform's cache folder. The environment variable WARPLOOM_CACHE names another folder, or is "off".
With `--no-cache` the other commands neither read nor write the cache.
"""


def add_cache(commands: Commands) -> None:
    """Adds `warploom cache`."""
    cache = add_command(commands, "cache", _run_cache, "show or clear the cache of compiled kernels", CACHE_TEXT)
    cache.add_argument("--clear", action="store_true", help="delete all entries")


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Adds `--no-cache`."""
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache of compiled kernels")


def _run_cache(args: argparse.Namespace) -> int:
    from ..base.cache import OFF, VARIABLE, configured

    cache = configured()
    if cache is None:
        print(f"off: {VARIABLE} is {OFF}")
        return 0
    print(f"folder   {cache.folder}")
    if args.clear:
        print(f"dropped  {cache.clear()} entries")
        return 0
    entries = cache.entries()
    size = sum(entry.bytes for entry in entries)
    print(f"entries  {len(entries)}, {_megabytes(size)} of at most {_megabytes(cache.limit)}")
    if cache.folder.exists() and not cache.folder.is_dir():
        print("nothing is kept: this is no folder")
    elif cache.folder.exists() and not os.access(cache.folder, os.W_OK):
        print("nothing is kept: the folder cannot be written")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
