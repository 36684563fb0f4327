"""What the compiler knows, and how text becomes a module; the driver and the Python API share both."""

from __future__ import annotations

from functools import cache

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.universe import Universe

from .diagnostics import LocatingParser
from .universe import GPU, LINALG, MEMREF, WARPLOOM_UNIVERSE

OWN = {"gpu": GPU, "linalg": LINALG, "memref": MEMREF}
"""The dialects that stand in place of xDSL's of these names."""


@cache
def known_universe() -> Universe:
    """xDSL's dialects, passes and targets, those of installed plugins, and ours.

    Ours are there whether or not the package's entry points are installed, and those of
    `OWN` stand in place of xDSL's.
    """
    found = Universe.get_multiverse()
    return Universe(
        all_dialects=found.all_dialects | WARPLOOM_UNIVERSE.all_dialects | OWN,
        all_passes=found.all_passes | WARPLOOM_UNIVERSE.all_passes,
        all_targets=found.all_targets | WARPLOOM_UNIVERSE.all_targets,
    )


def make_context() -> Context:
    """A fresh context with every dialect the driver knows, each loaded when first used."""
    ctx = Context()
    for name, factory in known_universe().all_dialects.items():
        ctx.register_dialect(name, factory)
    return ctx


def parse_mlir(
    ctx: Context, text: str, name: str = "<string>", *, implicit_module: bool = True, line_offset: int = 0
) -> ModuleOp:
    """The module that MLIR text describes, its operations located in `name`; not yet verified.

    Raises ParseError (or another DiagnosticException) for text that is not MLIR.
    `line_offset` is added to line numbers when `text` is a later part of the file.
    """
    return LocatingParser(ctx, text, name, line_offset).parse_module(implicit_module)
