"""What the backend of `torch.compile` made of a graph, as records, as text and as a table; nothing here loads torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CompiledPart:
    """Operations of a graph that became kernels, by the names of their nodes and their operators. `kernels` are the
    launches of a call with their schedules, `measured` the times for which they were chosen, if they were measured.
    `label` is what profilers show, `place` the line of the model that the part ends with, where torch tells it."""

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    mlir: str
    kernels: tuple[str, ...]
    measured: str = ""
    label: str = ""
    place: str = ""

    def __str__(self) -> str:
        listed = " -> ".join(self.operators)
        details = [*self.kernels, *([self.measured] if self.measured else [])]
        return "\n".join([f"  compiled {', '.join(self.nodes)}: {listed}", *(f"    {line}" for line in details)])


@dataclass(frozen=True)
class LeftPart:
    """An operation of a graph that was not compiled, and why. `place` is a line of the model, if torch has it."""

    node: str
    operator: str
    reason: str
    place: str = ""

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        return f"  left {self.node}: {self.operator}{place}: {self.reason}"


@dataclass(frozen=True)
class Explanation:
    """The result of compiling a graph. `graph` is "forward", "backward" or "inference"; `rest` names the backend of the
    parts that were left. `calls` says whether calls of the graph are recorded as a CUDA graph, and why not, from when
    that is known on: with compiling, or from later calls."""

    graph: str
    compiled: tuple[CompiledPart, ...]
    left: tuple[LeftPart, ...]
    rest: str
    calls: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        products = len(self.compiled)
        start = f"warploom: {self.graph} graph: {products} compiled, {len(self.left)} left to {self.rest}"
        counts = [f"  {count} left: {reason}" for reason, count in self.reasons.items()] if len(self.left) > 1 else []
        calls = [f"  calls: {text}" for text in self.calls]
        return "\n".join([start, *map(str, self.compiled), *map(str, self.left), *counts, *calls])

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why operations were left, each reason with how many; the most frequent first."""
        return dict(Counter(part.reason for part in self.left).most_common())

    @property
    def table(self) -> str:
        """A row for compiled parts, then for operators that were left and why, in Markdown; `count` says how many."""
        compiled = Counter((part.label, part.measured or _brief(part.kernels)) for part in self.compiled)
        left = Counter((part.operator, f"left to {self.rest}: {part.reason}") for part in self.left)
        rows = [(part, str(count), what) for counts in (compiled, left) for (part, what), count in counts.items()]
        rows += [("calls", "", text) for text in self.calls]
        return aligned([(f"{self.graph} graph", "count", "kernels, or why not"), *rows])


def _brief(kernels: Sequence[str]) -> str:
    """The first kernel with the start of its schedule, and how many more there are."""
    first, *others = kernels
    fields = first.split(", ")
    more = f", and {len(others)} more" if others else ""
    return ", ".join(fields[:BRIEF]) + (", ..." if len(fields) > BRIEF else "") + more


BRIEF = 3
"""Fields of a schedule in a table."""


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table in Markdown, the first as its head."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells)
