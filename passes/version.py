"""The versions of this package and of xDSL, as commands print them."""

from __future__ import annotations


def versions(program: str) -> str:
    """A program with its versions: `warploom 0.1.0 on xDSL 0.74.0`."""
    return f"{program} {_version('warploom')} on xDSL {_version('xdsl')}"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes as long to import as all else

    try:
        return version(package)
    except PackageNotFoundError:
        return "of a checkout"
