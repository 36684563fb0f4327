"""`warploom cache`: where compiled kernels are kept, how many there are, and dropping them."""

from __future__ import annotations

import argparse
import os

CACHE_TEXT = """\
Show the cache of compiled kernels and machine code, or delete its entries.

The cache is in the platform's cache folder. The environment variable WARPLOOM_CACHE names another folder, or is "off".
With `--no-cache` the other commands neither read nor write the cache.
"""


def add_cache(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the subcommand to the parser."""
    cache = commands.add_parser(
        "cache",
        help="show or clear the cache of compiled kernels",
        description=CACHE_TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cache.set_defaults(command=_run, file="cache")
    cache.add_argument("--clear", action="store_true", help="delete all entries")
    cache.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Adds `--no-cache`."""
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache of compiled kernels")


def _run(args: argparse.Namespace) -> int:
    from ..cache import OFF, VARIABLE, configured

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
