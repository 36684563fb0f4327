"""Graphs of launches over operands that take turns: the time of a launch without the host, and of none that finds its
operands in the L2 cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

Size = tuple[int, int, int]

MAX_SETS, ROTATED_BYTES = 16, 128 << 20
GRAPH_US, MAX_LAUNCHES = 1000.0, 32
"""Microseconds that a graph should take, by an estimate; launches in it at most."""


class Graphs:
    """Operands, which are parts of one array of random numbers, and graphs on them."""

    def __init__(self, torch: Any, repeats: int) -> None:
        self.torch, self.repeats = torch, repeats
        self.pool = torch.randn(ROTATED_BYTES, device="cuda").to(torch.bfloat16).repeat(8)
        self.stream = torch.cuda.Stream()

    def sets(self, size: Size) -> list[tuple[Any, Any, Any]]:
        """A, B^T and a poisoned D of each turn."""
        m, n, k = size
        count = max(2, min(MAX_SETS, -(-ROTATED_BYTES // (2 * (m * k + n * k + m * n)))))
        place, made = 0, list[tuple[Any, Any, Any]]()
        for _ in range(count):
            operands = list[Any]()
            for rows in (m, n):
                if place + rows * k > self.pool.numel():
                    place = 0
                operands.append(self.pool[place : place + rows * k].view(rows, k))
                place += -(-rows * k // 128) * 128
            out = self.torch.full((m, n), float("nan"), device="cuda", dtype=self.torch.bfloat16)
            made.append((*operands, out))
        return made

    def graph(self, size: Size, calls: Sequence[Callable[[], object]]) -> tuple[Any, int]:
        """The calls in turns as a graph, and how many launches it has."""
        torch, (m, n, k) = self.torch, size
        one = 4 + 2 * m * n * k / 6e8 + 2 * (m * k + n * k + m * n) / 3e6
        count = max(2, min(MAX_LAUNCHES, int(GRAPH_US / one)))
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()  # `torch.cuda.graph` collects garbage first, which takes longer than all of this
        for i in range(count):
            calls[i % len(calls)]()
        graph.capture_end()
        return graph, count

    def microseconds(self, graphs: Sequence[tuple[Any, int]]) -> list[float]:
        """The time of a launch in each of the graphs, which take turns."""
        times: list[list[float]] = [[] for _ in graphs]
        for turn in range(self.repeats + 1):
            for (graph, count), taken in zip(graphs, times, strict=True):
                start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                taken += [1000 * start.elapsed_time(end) / count] * bool(turn)
        return [statistics.median(taken) for taken in times]
