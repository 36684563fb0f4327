"""What the backend made of a graph, as records and as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledPart:
    """Operations of a graph that became kernels, by the names of their nodes and their operators. `kernels` are the
    launches of a call with their schedules."""

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    mlir: str
    kernels: tuple[str, ...]

    def __str__(self) -> str:
        listed = " -> ".join(self.operators)
        return "\n".join(
            [f"  compiled {', '.join(self.nodes)}: {listed}", *(f"    {kernel}" for kernel in self.kernels)]
        )


@dataclass(frozen=True)
class LeftPart:
    """An operation of a graph that was not compiled, and why."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"  left {self.node}: {self.operator}: {self.reason}"


@dataclass(frozen=True)
class Explanation:
    """What became of a graph: `graph` is "forward", "backward" or "inference", `rest` who runs what was left."""

    graph: str
    compiled: tuple[CompiledPart, ...]
    left: tuple[LeftPart, ...]
    rest: str

    def __str__(self) -> str:
        products = len(self.compiled)
        start = f"warploom: {self.graph} graph: {products} compiled, {len(self.left)} left to {self.rest}"
        return "\n".join([start, *map(str, self.compiled), *map(str, self.left)])
