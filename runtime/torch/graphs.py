"""Graphs that are recorded as one CUDA graph each, in the default mode too: a call is one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Sequence
from functools import partial
from importlib import import_module
from threading import get_ident, local
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from ..arguments.arrays import stream_reader

Model: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph. It empties the list of its inputs."""

MOST_COPIED, MOST_KEPT = {True: 4 << 20, False: 64 << 20}, {True: 0, False: 64 << 20}
"""Bytes of inputs, and of results, that a call copies at most, and of results that it does not copy; in inference or
not. The GPU works on more for longer than the host takes to enqueue it, and what is not copied stays in memory."""

EVERY = range(sys.maxsize)
"""The positions of all results."""

MOST_AS_COMPILED = 8
"""How many calls of a graph are not replayed, because its inputs lie elsewhere or its results are in use, before it is
not recorded any more."""

users: Callable[[int], int] = cast("Any", torch)._C._storage_Use_Count


class Recording(NamedTuple):
    """What launches a graph, and its results, which each launch writes again; a number is that of an input. `copies`
    put inputs, named by position, where the graph reads them; it reads the others where they lay. Results that are not
    `shown` are handed out as they lie; `kept` are their storages, and how many users each has where nobody has it."""

    launch: Callable[[], object]
    results: Sequence[torch.Tensor | int | None]
    shown: Container[int]
    copies: Sequence[tuple[int, Callable[[torch.Tensor], object]]] = ()
    kept: Sequence[tuple[int, int, object]] = ()

    def __call__(self, inputs: list[Any]) -> Sequence[Any] | None:
        """The results; None, and nothing is done, while somebody has those of an earlier call."""
        if any(users(number) > count for number, count, _ in self.kept):
            return None
        for i, copy in self.copies:
            copy(inputs[i])
        self.launch()
        handed = [
            (x.clone() if i in self.shown else x.data) if isinstance(x, torch.Tensor) else x
            for i, x in enumerate(self.results)
        ]
        given = [inputs[x] if isinstance(x, int) else x for x in handed]
        inputs.clear()
        return given


class RecordedGraph(local):
    """A compiled graph that is recorded once its weights lie where they did in the call before.

    Inductor's trees of CUDA graphs hand out results that lie in memory of a graph, until its next call. To know whether
    somebody still has them, and what a later graph may use, takes them longer on the host than a step of decoding takes
    on a GPU. In inference results are small, as they are there, and are copied, so nothing needs to be known. In
    training, what the pass backward reads and gradients are handed out as they lie; while somebody has those of an
    earlier call, a call runs as it is compiled. Inputs that lie where they did in the call before are read there: to
    copy one takes the host as long as to launch the graph. Each thread has a graph of its own.

    - `static`: the positions of inputs that lie in the same place each time, weights and caches; graphs read and write
      them there.
    - `otherwise`: makes what runs graphs whose inputs or results are large.
    - `stream`: reads the handle of the current stream, a negative number where that is being captured. A graph is
      replayed on the stream that it was recorded for, so that what a call copies is not written by another.
    - `shown`: in training, the results that users see, by position.
    - `draws`: whether it has random numbers, whose state torch moves on at each launch.
    """

    def __init__(
        self, model: Model, static: Sequence[int], otherwise: Callable[[], Model], stream: Callable[[], int],
        shown: Container[int] | None = None, draws: bool = True,
    ) -> None:  # fmt: skip
        self.model, self.static, self.otherwise, self.stream, self.draws = model, static, otherwise, stream, draws
        self.inference, self.shown = shown is None, EVERY if shown is None else shown
        self.other: Model | None = None
        self.before: tuple[int, ...] = ()
        self.recordings: dict[tuple[int, ...], Recording | None] = {}
        self.as_compiled = 0

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self.other is not None:
            return self.other(inputs)
        try:
            here = (*[x.data_ptr() for x in inputs], self.stream())
        except AttributeError:  # a number
            self.other = self.otherwise()
            return self.other(inputs)
        recording = self.recordings.get(here) or self._elsewhere(inputs, here)
        results = recording and recording(inputs)
        return self._as_compiled(inputs, here) if results is None else results

    def _elsewhere(self, inputs: list[Any], here: tuple[int, ...]) -> Recording | None:
        fixed, before, self.before = [*self.static, -1], self.before, here
        key = tuple(here[i] for i in fixed)
        recording = self.recordings.get(key)
        if recording is None and here[-1] >= 0 and before and key == tuple(before[i] for i in fixed):
            moving = [i for i in range(len(inputs)) if here != before and i not in self.static]
            recording = self.recordings[key if moving else here] = self._recorded(inputs, moving)
        return recording

    def _as_compiled(self, inputs: list[Any], here: Sequence[int]) -> Sequence[Any]:
        """The first call is one, for kernels are loaded and tuned in it."""
        fits = _are_small([x for i, x in enumerate(inputs) if i not in self.static], MOST_COPIED[self.inference])
        results = self.model(inputs)
        shown = [x for i, x in enumerate(results) if i in self.shown]
        kept = sum(x.nbytes for i, x in enumerate(results) if isinstance(x, torch.Tensor) and i not in self.shown)
        fits = fits and _are_small(shown, MOST_COPIED[self.inference]) and kept <= MOST_KEPT[self.inference]
        self.as_compiled += here[-1] >= 0
        if self.as_compiled > MOST_AS_COMPILED or not fits:
            self.other = self.otherwise()
            self.recordings.clear()
        return results

    def _recorded(self, inputs: Sequence[Any], moving: Sequence[int]) -> Recording | None:
        """The graph, with places of its own for moving inputs; None for gradients that lie where an input does."""
        own = [x.clone() if i in moving else x for i, x in enumerate(inputs)]
        launch, found = self._captured(list(own))
        fixed = [(i, x) for i, x in enumerate(own) if i not in moving]
        there, numbers = {x.untyped_storage()._cdata for _, x in fixed}, {id(x): i for i, x in fixed}
        results = [None if x is None else numbers.get(id(x), x.data) for x in found]
        lying = [x for i, x in enumerate(results) if isinstance(x, torch.Tensor) and i not in self.shown]
        storages = {x._cdata: x for x in (cast("Any", x).untyped_storage() for x in lying)}
        if not self.shown and not there.isdisjoint(storages):
            self.other = self.otherwise()
            return None
        copies = [(i, _copy_into(own[i])) for i in moving]
        del own, fixed, found, lying
        kept = [(number, users(number), x) for number, x in storages.items() if number not in there]
        return Recording(launch, results, self.shown, copies, kept)

    def _captured(self, own: list[Any]) -> tuple[Callable[[], object], Sequence[Any]]:
        """What launches the calls of the model as a graph, and its results."""
        from ..cuda.launches import graph_launch

        cuda: Any = torch.cuda
        graph, trees = cuda.CUDAGraph(), cast("Any", import_module("torch._inductor.cudagraph_trees"))
        with cuda.device(own[0].device if own else None):
            key = get_ident(), cuda.current_device(), self.stream()
            fresh = cuda.graph_pool_handle(), cuda.Stream()
            pool, stream = POOLS.setdefault(key, fresh) if self.inference else fresh
            where = {"pool": pool, "stream": stream, "capture_error_mode": "thread_local"}
            # cuBLAS keeps its scratch memory: each graph takes its own from the pool.
            with trees.clear_cublas_manager(), cuda.graph(graph, **where):
                results = list(self.model(own))
        if self.draws:
            return graph.replay, results
        launch = _by_driver(key[1], lambda driver: graph_launch(driver, graph.raw_cuda_graph_exec()), graph.replay)
        return launch, results


POOLS: dict[tuple[int, int, int], tuple[Any, Any]] = {}
"""By thread, device and stream the memory that graphs of inference there share, of which one runs at a time, and the
stream that is captured. In training others run before what is kept was read."""


def _by_driver(
    number: int, make: Callable[[Any], Callable[..., int]], by_torch: Callable[..., object]
) -> Callable[..., object]:
    """What `make` makes for the driver, called with addresses of tensors and torch's current stream of a GPU: it takes
    the host a half to a tenth of the time that torch does. It returns a code, other than 0 as where the context is not
    the calling thread's."""
    from ..cuda.driver import gpu

    enqueue, stream = make(gpu(number).driver), stream_reader(number)

    def call(*tensors: torch.Tensor) -> None:
        if enqueue(*[x.data_ptr() for x in tensors], stream()):
            by_torch(*tensors)

    return call


def _copy_into(place: torch.Tensor) -> Callable[..., object]:
    """Copies tensors that lie in memory as `place` does into it."""
    if not place.is_cuda:
        return place.copy_
    from ..cuda.launches import copier

    address, size = place.data_ptr(), place.nbytes
    return _by_driver(place.get_device(), lambda driver: copier(driver, address, size), place.copy_)


def _are_small(values: Sequence[Any], most: int) -> bool:
    """Whether all values are tensors on a GPU that copies have the strides of, or None, and of few bytes."""
    tensors = [value for value in values if value is not None]
    on_gpu = all(isinstance(x, torch.Tensor) and x.is_cuda for x in tensors)
    small = on_gpu and sum(x.nbytes for x in tensors) <= most
    return small and all(torch.empty_like(x).stride() == x.stride() for x in tensors)


def recorded(
    trees: Callable[..., Model] | None, model: Model, static_input_idxs: Sequence[int] = (),
    shown: Container[int] | None = None, draws: bool = True, **settings: Any,
) -> Model:  # fmt: skip
    """What runs a compiled graph in CUDA graphs, in the place of inductor's `cudagraphify`, which is `trees`; without
    it, a graph that cannot be recorded is called as it is. `shown` and `draws` are those of `RecordedGraph`."""
    otherwise = partial(trees, model, static_input_idxs, **settings) if trees else lambda: model
    trained = trees is not None and not settings["is_inference"]
    if trained or {*settings["mutated_input_idxs"]}.difference(static_input_idxs):
        return otherwise()
    read, capturing = stream_reader(settings["device_index"]), torch.cuda.is_current_stream_capturing
    return RecordedGraph(model, static_input_idxs, otherwise, lambda: -1 if capturing() else read(), shown, draws)
