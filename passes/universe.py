"""Every dialect, pass and target by name, and the context that reads modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import ArrayAttr, MemRefLayoutAttr, MemRefType, ModuleOp, NoneAttr, StringAttr
from xdsl.ir import Attribute, Dialect, Operation, TypeAttribute
from xdsl.rewriter import Rewriter
from xdsl.universe import Universe
from xdsl.utils.hints import isa

from ..dialect.index import DIALECTS, PASSES, TARGETS
from .diagnostics import LocatedError
from .parser import LocatingParser

# Every dialect, pass and target of the project by name, for the entry-point group `xdsl.universe`.
#
# Nothing is imported until it is asked for by name: a driver that lists names pays for none of them.


def _lazy(entry: tuple[str, str]) -> Callable[[], Any]:
    """A factory that imports a name from a module of the package when called."""
    module, name = entry
    return lambda: getattr(import_module(f"..{module}", __package__), name)


WARPLOOM_UNIVERSE = Universe(
    all_dialects={name: _lazy(DIALECTS[name]) for name in ("warp", "ptx", "nvgpu", "nvvm")},
    all_passes={name: _lazy(entry) for name, entry in PASSES.items()},
    all_targets={name: _lazy(entry) for name, entry in TARGETS.items()},
)
"""What the entry point names; plain `xdsl-opt` finds the project through it."""

LINALG: Callable[[], Dialect] = _lazy(DIALECTS["linalg"])
"""xDSL's `linalg` with a matmul that takes what MLIR takes. Not in the universe, where two dialects
of one name are an error: the project's own driver puts it in place of xDSL's."""

LINALG_BASE: Callable[[], Dialect] = _lazy(DIALECTS["linalg_base"])
"""The same but for its 30 convolutions."""

GPU: Callable[[], Dialect] = _lazy(DIALECTS["gpu"])
"""xDSL's `gpu` with the text that MLIR has for kernels and launches; as for `linalg`."""

MEMREF: Callable[[], Dialect] = _lazy(DIALECTS["memref"])
"""xDSL's `memref` with the text that MLIR has for `memref.copy` and `memref.cast`; as for `linalg`."""

ARITH: Callable[[], Dialect] = _lazy(DIALECTS["arith"])
"""xDSL's `arith` with the flags and the rounding mode that MLIR has for conversions; as for `linalg`."""

LLVM: Callable[[], Dialect] = _lazy(DIALECTS["llvm"])
"""xDSL's `llvm` with the operations of kernels that it lacks; as for `linalg`."""


LAYOUT = "warp.layout"
"""On an operation: the layout of the tile that it makes, where types are written without layouts that MLIR lacks."""

NAMES = "warp.names"
"""On a kernel: the names of its arguments, which MLIR forgets, and after which parameters are called."""


# What the compiler knows, and how text becomes a module; the driver and the Python API share both.


def _builtin() -> Dialect:
    from ..dialect.mlir.builtin import builtin

    return builtin()


OWN = {"arith": ARITH, "builtin": _builtin, "gpu": GPU, "linalg": LINALG, "llvm": LLVM, "memref": MEMREF}
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


class _Context(Context):
    """A context that looks for plugins when it meets a dialect that is neither xDSL's nor ours, and that loads the
    convolutions of `linalg` when it meets one.

    Looking for plugins reads the metadata of all installed packages: 20 of the 700 ms of a first compile. Convolutions
    are 30 operations: 5 ms, and 0.4 MB.
    """

    _convolutions = False

    def _load_convolutions(self) -> None:
        from ..dialect.mlir.convolution import CONVOLUTIONS

        self._convolutions = True
        for op in CONVOLUTIONS:
            self.load_op(op)

    def _find(self, name: str) -> None:
        """Registers every dialect there is if that of a name is not known."""
        dialect, dot, operation = name.partition(".")
        if dialect == "linalg" and "conv_" in operation and not self._convolutions:
            self._load_convolutions()
        if dot and dialect not in self.registered_dialect_names:
            for found, factory in known_universe().all_dialects.items():
                if found not in self.registered_dialect_names:
                    self.register_dialect(found, factory)

    def clone(self) -> _Context:
        found = _Context()
        vars(found).update(vars(super().clone()))
        return found

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        self._find(name)
        return super().get_optional_op(name, dialect_stack=dialect_stack)

    def get_optional_type(self, name: str) -> type[TypeAttribute] | None:
        self._find(name)
        return super().get_optional_type(name)

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        self._find(name)
        return super().get_optional_attr(name)


def make_context() -> Context:
    """A fresh context with every dialect the driver knows, each loaded when first used."""
    ctx, own = _Context(), get_all_dialects() | WARPLOOM_UNIVERSE.all_dialects | OWN | {"linalg": LINALG_BASE}
    for name, factory in own.items():
        ctx.register_dialect(name, factory)
    return ctx


def parse_mlir(
    ctx: Context, text: str, name: str = "<string>", *, implicit_module: bool = True, line_offset: int = 0
) -> ModuleOp:
    """The module that MLIR text describes, its operations located in `name`; not yet verified.

    Raises ParseError (or another DiagnosticException) for text that is not MLIR, or none at all.
    `line_offset` is added to line numbers when `text` is a later part of the file.
    """
    if not text.strip():
        raise LocatedError(f"{name}:{line_offset + 1}:1", "expected MLIR, got no text")
    module = LocatingParser(ctx, text, name, line_offset).parse_module(implicit_module)
    if f"{LAYOUT} =" in text or f"{NAMES} =" in text:
        _restore(module)
    return module


def _restore(module: ModuleOp) -> None:
    """Gives memory the layout that the operation which makes it says, where it is written without one; arguments their
    names."""
    for op in module.walk():
        names = op.attributes.pop(NAMES, None)
        if isa(names, ArrayAttr[StringAttr]) and op.regions and op.regions[0].blocks:
            for argument, name in zip(op.regions[0].blocks[0].args, names, strict=False):
                argument.name_hint = name.data or None
        layout = op.attributes.pop(LAYOUT, None)
        for result in op.results if layout is not None else ():
            kind = result.type
            if isa(kind, MemRefType[Attribute]) and isinstance(kind.layout, NoneAttr):
                plain = MemRefType(kind.element_type, kind.shape, cast("MemRefLayoutAttr", layout), kind.memory_space)
                Rewriter.replace_value_with_new_type(result, plain)
