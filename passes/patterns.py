"""Rewrite patterns applied to each operation once, with errors that users read; passes that are lists of patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

_COUNTS: ContextVar[Counter[str] | None] = ContextVar("counts", default=None)


@contextmanager
def counted(counts: Counter[str]) -> Generator[None]:
    """Counts the operations that each pattern rewrites, by the pattern's name."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)


def apply_patterns(patterns: Sequence[RewritePattern], root: Operation, *, reverse: bool = False) -> None:
    """Applies to each operation below another the first pattern that rewrites it; operations that patterns make are
    not visited.

    What a pattern raises is raised as it is: xDSL's walker puts the printed IR in its place.
    """
    for op in list(root.walk(reverse=reverse)):
        if op is not root and op.parent is not None:
            _apply_first(patterns, op)


def _apply_first(patterns: Sequence[RewritePattern], op: Operation) -> None:
    rewriter = PatternRewriter(op)
    for pattern in patterns:
        pattern.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action or op.parent is None:
            if (counts := _COUNTS.get()) is not None:
                counts[type(pattern).__name__] += 1
            return


class PatternPass(ModulePass):
    """A pass that applies its patterns to each operation of a module, as `apply_patterns` does."""

    patterns: ClassVar[tuple[type[RewritePattern], ...]]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([pattern() for pattern in self.patterns], op)
