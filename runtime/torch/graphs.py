"""Graphs of inference that are recorded as one CUDA graph each, in the default mode too: a call is two copies and one
launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from threading import get_ident, local
from typing import Any, TypeAlias

import torch

from ..arguments.arrays import stream_reader

Model: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph. It empties the list of its inputs."""

MOST_BYTES = 4 << 20
"""Of inputs and results that a call copies, at most: a few microseconds."""

MOST_RECORDINGS = 8
"""How often a graph is recorded again, because its weights lie elsewhere."""


class RecordedGraph(local):
    """A compiled graph that is recorded at its second call.

    Inductor's trees of CUDA graphs hand out results that lie in memory of a graph, until its next call. To know whether
    somebody still has them, and what a later graph may use, takes them longer on the host than a step of decoding takes
    on a GPU. Where inputs and results are small, as they are there, both are copied, and nothing needs to be known.
    Each thread has a graph of its own.

    - `static`: the positions of inputs that lie in the same place each time, weights and caches; graphs read and write
      them there.
    - `otherwise`: makes what runs graphs whose inputs or results are large.
    - `stream`: reads the handle of the current stream, a negative number where that is being captured. A graph is
      replayed on the stream that it was recorded for, so that what a call copies is not written by another.
    """

    def __init__(
        self, model: Model, static: Sequence[int], otherwise: Callable[[], Model], stream: Callable[[], int]
    ) -> None:
        self.model, self.static, self.otherwise, self.stream = model, tuple(static), otherwise, stream
        self.recordings = 0
        self.other: Model | None = None
        self.called = False
        self.addresses: list[int] = []
        self.graph: Any = None
        self.copied: list[tuple[int, torch.Tensor, Callable[[torch.Tensor], object]]] = []
        self.results: list[Any] = []

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self.other is not None:
            return self.other(inputs)
        here = [inputs[i].data_ptr() for i in self.static]
        here.append(self.stream())
        if here != self.addresses:
            return self._first(inputs, here)
        return self._replayed(inputs)

    def _replayed(self, inputs: list[Any]) -> list[Any]:
        for i, _, copy in self.copied:
            copy(inputs[i])
        inputs.clear()
        self.graph.replay()
        return [None if result is None else result.clone() for result in self.results]

    def _first(self, inputs: list[Any], here: list[int]) -> Sequence[Any]:
        """The first call is not recorded, for kernels are loaded and tuned in it."""
        if here[-1] < 0:
            return self.model(inputs)
        moving = [i for i in range(len(inputs)) if i not in self.static]
        if not self.called:
            self.called = True
            copied = [inputs[i] for i in moving]
            results = self.model(inputs)
            if not _are_small([*copied, *results]):
                self.other = self.otherwise()
            return results
        if self.recordings == MOST_RECORDINGS:
            self.other = self.otherwise()
            return self.other(inputs)
        self.recordings += 1
        self.copied = [(i, place, _copy_into(place)) for i in moving for place in (inputs[i].clone(),)]
        self.graph, self.results = self._recorded(inputs)
        self.addresses = here
        return self._replayed(inputs)

    def _recorded(self, inputs: list[Any]) -> tuple[Any, list[Any]]:
        """The calls of the model as a graph, and its results, which each replay writes again."""
        cuda: Any = torch.cuda
        graph, own = cuda.CUDAGraph(), list(inputs)
        for i, place, _ in self.copied:
            own[i] = place
        trees: Any = import_module("torch._inductor.cudagraph_trees")
        with cuda.device(own[0].device if own else None):
            key = get_ident(), cuda.current_device(), self.stream()
            if key not in POOLS:
                POOLS[key] = cuda.graph_pool_handle(), cuda.Stream()
            pool, stream = POOLS[key]
            where = {"pool": pool, "stream": stream, "capture_error_mode": "thread_local"}
            # cuBLAS keeps its scratch memory: each graph takes its own from the pool.
            with trees.clear_cublas_manager(), cuda.graph(graph, **where):
                results = list(self.model(own))
        return graph, results


POOLS: dict[tuple[int, int, int], tuple[Any, Any]] = {}
"""By thread, device and stream the memory that graphs there share, of which one runs at a time, and the stream that is
captured."""


def _copy_into(place: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """Copies tensors that lie in memory as `place` does into it; on a GPU by the driver, which takes the host a tenth
    of the time that torch's operator does."""
    if not place.is_cuda:
        return place.copy_
    from ..cuda.driver import gpu
    from ..cuda.launches import copier

    number = place.get_device()
    enqueue, stream = copier(gpu(number).driver, place.data_ptr(), place.nbytes), stream_reader(number)

    def copy(tensor: torch.Tensor) -> None:
        if enqueue(tensor.data_ptr(), stream()):  # as where the context is not the calling thread's
            place.copy_(tensor)

    return copy


def _are_small(values: Sequence[Any]) -> bool:
    """Whether all values are tensors on a GPU that copies have the strides of, or None, and of few bytes."""
    tensors = [value for value in values if value is not None]
    on_gpu = all(isinstance(x, torch.Tensor) and x.is_cuda for x in tensors)
    small = on_gpu and sum(x.nbytes for x in tensors) <= MOST_BYTES
    return small and all(torch.empty_like(x).stride() == x.stride() for x in tensors)


def recorded(
    trees: Callable[..., Model], model: Model, static_input_idxs: Sequence[int] = (), **settings: Any
) -> Model:
    """What runs a compiled graph in CUDA graphs, in the place of inductor's `cudagraphify`, which is `trees`."""
    otherwise = partial(trees, model, static_input_idxs, **settings)
    if not settings["is_inference"] or {*settings["mutated_input_idxs"]}.difference(static_input_idxs):
        return otherwise()
    read, capturing = stream_reader(settings["device_index"]), torch.cuda.is_current_stream_capturing
    return RecordedGraph(model, static_input_idxs, otherwise, lambda: -1 if capturing() else read())
