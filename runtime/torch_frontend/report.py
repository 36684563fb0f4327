"""What the backend made of a graph, as records and as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.fx import Node

OURS = tuple(str(folder) for folder in (Path(__file__).parent, Path(torch.__file__).parent))
"""The folders whose lines are no lines of a model."""


def place_of(node: Node) -> str:
    """`file:line` of the innermost line of the model that a node comes from; the module, where no line is the model's
    own; "" where torch tells neither."""
    lines: list[tuple[str, str]] = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if own := [f"{file}:{line}" for file, line in lines if not file.startswith(OURS)]:
        return own[-1]
    modules: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(modules.values()), ("", ""))
    return f"module {path}, {str(getattr(kind, '__qualname__', kind)).rpartition('.')[2]}" if path else ""


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
    """An operation of a graph that was not compiled, and why; `place` is a line of the model, where torch tells it."""

    node: str
    operator: str
    reason: str
    place: str = ""

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        return f"  left {self.node}: {self.operator}{place}: {self.reason}"


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
