"""Graphs that are recorded as one CUDA graph each, in the default mode too: a call is one launch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from threading import get_ident, local
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

import torch

from ..arguments.arrays import stream_reader

Model: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph. It empties the list of its inputs."""

MAX_COPIED, MAX_KEPT = 64 << 20, 4 << 30
"""Bytes of inputs, and of results, that a call copies at most; and of what a graph keeps: results of training that a
call does not copy, in inference all values that it computes. The GPU works on more for longer than the host takes to
enqueue it."""

SMALL, MAX_PART = 1 << 30, 1.05
"""Where the pass backward reads more bytes than this, the memory of both graphs is so much of their values at the peak,
at most. torch makes blocks of the sizes that are asked for, so those that the pass forward frees may be too small for
the pass backward."""

DEVICE = "cuda"
"""Where graphs have memory."""

EVERY = range(sys.maxsize)
"""The positions of all results."""

MAX_AS_COMPILED = 8
"""How many calls of a graph are not replayed, because its inputs lie elsewhere or its results are in use, before it is
not recorded any more."""

users: Callable[[int], int] = cast("Any", torch)._C._storage_Use_Count

weak_reference: Callable[[object], Any] = import_module("torch.multiprocessing.reductions").StorageWeakRef


class Recording(NamedTuple):
    """What launches a graph, and its results, which each launch writes again; a number is that of an input. `copies`
    put inputs, named by position, where the graph reads them; it reads the others where they lay. Results that are not
    `shown` are handed out as they lie; `kept` are the storages that a launch overwrites, and how many users each has
    where nobody else has it. `read` lie where inputs do, and take their places, so that who has those is seen. `shared`
    are storages of several results, which have one copy. A pass forward has the `backward` one, whose gradients it
    overwrites, and what that one has as `shown`."""

    launch: Callable[[], object]
    results: Sequence[torch.Tensor | int | None]
    shown: Container[int]
    copies: Sequence[tuple[int, Callable[[torch.Tensor], object]]] = ()
    kept: Sequence[tuple[int, int, object]] = ()
    read: Sequence[tuple[int, torch.Tensor]] = ()
    shared: Mapping[int, Any] = {}
    backward: tuple[Recording, set[int]] | None = None

    @property
    def held(self) -> set[int]:
        """The storages that a launch overwrites and somebody has."""
        return {number for number, count, _ in self.kept if users(number) > count}

    def refused(self) -> str:
        """Why it cannot be launched now. Where only gradients are in the way, they are copies from now on."""
        if self.backward is not None:
            later, shown = self.backward
            if self.held.issubset(map(_storage, later.results)):
                shown.update(range(len(later.results)))
                return "somebody has gradients of an earlier call, or adds to them; from now on they are copied"
        return "somebody has what an earlier call left for its pass backward (two passes forward, retain_graph)"

    def __call__(self, inputs: list[Any]) -> Sequence[Any] | None:
        """The results; None, and nothing is computed, while somebody has what would be overwritten."""
        for i, x in self.read:
            inputs[i] = x
        if self.held:
            return None
        for i, copy in self.copies:
            copy(inputs[i])
        self.launch()
        copies = {number: storage.clone() for number, storage in self.shared.items()}

        def handed(at: int, x: torch.Tensor | int | None) -> Any:
            if not isinstance(x, torch.Tensor):
                return inputs[x] if isinstance(x, int) else x
            if copies and (number := _storage(x)) in copies:
                return _place(x, copies[number])
            return x.clone() if at in self.shown else x.data

        results = [handed(at, x) for at, x in enumerate(self.results)]
        inputs.clear()
        return results


@dataclass(eq=False)
class PassForward:
    """A pass forward of training that is recorded, before its pass backward is, into the same memory.

    That pass is recorded with results that own memory there, those of the first call, and frees what it has read, so
    that both take the memory that they take as compiled. Then results lie there without owning it, and a launch of
    either pass overwrites those of both: a call runs as compiled while somebody has one, or between the two recordings.

    - `recording`: hands out results where they lie; `keep` has it called from now on.
    - `where`: the memory, and the stream that is captured.
    - `places`: by storages of the results of the first call, those that lie there.
    - `owned`: weak references to such storages.
    - `values`: the bytes of its values at the peak, and of those that are left, where they are more than `SMALL`.
    - `refused`: why it is not recorded, as its pass backward found.
    """

    recording: Recording
    keep: Callable[[Recording], None]
    where: Any
    places: Mapping[int, Any]
    owned: Sequence[Any]
    values: Sequence[int]
    refused: str = ""

    @property
    def is_freed(self) -> bool:
        """Whether nobody has what the first call handed out."""
        return all(one.expired() for one in self.owned)

    def refuse(self, reason: str) -> None:
        """Lets go of its memory, for its call may be another thread's, and much later."""
        self.refused = reason
        del self.recording, self.places


WAITING: WeakValueDictionary[int, PassForward] = WeakValueDictionary()
"""Passes forward by the storages that they handed out: passes backward run in threads of autograd."""


class GraphMemory:
    """Memory of graphs, which live as long as a tensor lies there."""

    def __init__(self, storage: torch.UntypedStorage, graphs: Sequence[object]) -> None:
        where = {"data": (storage.data_ptr(), False), "shape": (storage.nbytes(),), "typestr": "|u1", "version": 2}
        self.__cuda_array_interface__, self.graphs = where, graphs


class RecordedGraph(local):
    """A compiled graph that is recorded once its weights lie where they did in the call before.

    Inductor's trees of CUDA graphs hand out results that lie in memory of a graph, until its next call. To know whether
    somebody still has them, and what a later graph may use, takes them longer on the host than a step of decoding takes
    on a GPU. In inference results are copied, so nothing needs to be known. Inputs that lie where they did in the call
    before are read there: to copy one takes the host as long as to launch the graph. In training, what the pass
    backward reads and gradients are handed out as they lie. Each thread has a graph of its own.

    - `static`: the positions of inputs that lie in the same place each time, weights and caches; graphs read and write
      them there.
    - `otherwise`: makes what runs graphs whose inputs or results are large.
    - `stream`: reads the handle of the current stream, a negative number where that is being captured. A graph is
      replayed on the stream that it was recorded for, so that what a call copies is not written by another.
    - `shown`: in training, the results that users see, by position.
    - `draws`: whether it has random numbers, whose state torch moves on at each launch.
    - `say`: is told whether it is recorded, and why calls are not replayed.
    """

    def __init__(
        self, model: Model, static: Sequence[int], otherwise: Callable[[], Model], stream: Callable[[], int],
        say: Callable[[str], object], shown: Container[int] | None = None, draws: bool = True,
    ) -> None:  # fmt: skip
        self.model, self.static, self.otherwise, self.stream, self.draws = model, static, otherwise, stream, draws
        self.say = cache(say)  # each thing once
        self.inference, self.shown = shown is None, EVERY if shown is None else shown
        self.other: Model | None = None
        self.before: tuple[int, ...] = ()
        self.recordings: dict[tuple[int, ...], Recording] = {}
        self.begun: PassForward | None = None
        self.as_compiled = 0
        self.is_large = False

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self.other is not None:
            return self.other(inputs)
        try:
            here = (*[x.data_ptr() for x in inputs], self.stream())
        except AttributeError:
            return self._left("an input is a number, as of dynamic sizes")(inputs)
        if recording := self.recordings.get(here) or self._elsewhere(inputs, here):
            if (results := recording(inputs)) is not None:
                return results
            self.say(f"a call is launches: {recording.refused()}")
        return self._as_compiled(inputs, here)

    def _left(self, reason: str) -> Model:
        """What runs the graph from now on."""
        self.other = self.otherwise()
        self.recordings.clear()
        self.begun = None
        self.say(f"not recorded: {reason}")
        return self.other

    def _elsewhere(self, inputs: list[Any], here: tuple[int, ...]) -> Recording | None:
        fixed, before, self.before = [*self.static, -1], self.before, here
        key = tuple(here[i] for i in fixed)
        if (found := self.recordings.get(key)) or here[-1] < 0 or not before or self.as_compiled > MAX_AS_COMPILED:
            return found
        begun = (WAITING.get(_storage(x)) for x in inputs if not self.shown)
        waiting = {x for x in begun if x and not x.refused}
        ready = len(waiting) == 1 or (self.shown and key == tuple(before[i] for i in fixed))
        if not ready or (self.begun and (self.begun.refused or not self.begun.is_freed)):
            return None
        moving = [i for i in range(len(inputs)) if i not in self.static and not (self.inference and here == before)]
        if not self.inference:
            self.as_compiled += 1
            self.recordings.clear()  # and its memory
            self.begun = None
        return self._recorded(inputs, moving, key if moving else here, *waiting)

    def _as_compiled(self, inputs: list[Any], here: Sequence[int]) -> Sequence[Any]:
        """The first call is one, for kernels are loaded and tuned in it."""
        reason = obstacle("inputs", [x for i, x in enumerate(inputs) if i not in self.static], MAX_COPIED)
        before = taken_bytes() if self.inference else 0
        results = self.model(inputs)
        reason = reason or obstacle("results", [x for i, x in enumerate(results) if i in self.shown], MAX_COPIED)
        kept = sum(x.nbytes for i, x in enumerate(results) if isinstance(x, torch.Tensor) and i not in self.shown)
        self.is_large = kept > SMALL
        what = "what the pass backward reads" if self.shown else "gradients"
        if self.inference:
            kept, what = taken_bytes() - before, "what it computes"
        if kept and not reason:  # blocks of graphs do not fill their memory
            reason = _over(what, kept, MAX_KEPT) or _over(what, kept, free_bytes() // 2)
            if reason and self.inference and not self.as_compiled:
                reason, self.before = "", ()  # the first call also tunes kernels: the second one tells
        if self.begun and self.begun.refused:
            reason = self.begun.refused
            torch.cuda.empty_cache()  # which has the memory of its graphs
        self.as_compiled += here[-1] >= 0
        if self.as_compiled > MAX_AS_COMPILED:
            reason = f"{MAX_AS_COMPILED} calls had inputs elsewhere, or while results of earlier ones were kept"
        if reason:
            self._left(reason)
        return results

    def _recorded(
        self, inputs: list[Any], moving: Sequence[int], key: tuple[int, ...], begun: PassForward | None = None
    ) -> Recording:
        """The graph, with places of its own for moving inputs; what hands out its results for the first time. A pass
        backward takes the others out of the list, as a capture does not free what somebody else has."""
        own = [x.clone() if i in moving else x for i, x in enumerate(inputs)]
        copies, there = [(i, _copy_into(own[i])) for i in moving], list(map(_storage, own))
        before: Mapping[int, Any] = begun.places if begun else {}
        read = [(i, _place(own[i], before[x])) for i, x in enumerate(there) if x in before]
        apart = {x for i, x in enumerate(there) if i not in moving and x not in before}
        numbers = {} if begun else {id(x): i for i, x in enumerate(own) if i not in moving}
        if begun:
            inputs[:] = [x if i in moving else None for i, x in enumerate(inputs)]
        where = begun.where if begun else None if self.inference else _memory()
        devices = [x.device for x in own[:1] if self.is_large or (begun and begun.values)]
        at_start = [allocated_bytes(device)[1] for device in devices]
        launch, found = self._captured(own, where)
        values = [x - at_start[0] for device in devices for x in allocated_bytes(device)]
        results = [None if x is None else numbers.get(id(x), x.data) for x in found]
        first = Recording(launch, results, self.shown, copies)
        self.say("recorded as a CUDA graph")
        if self.inference:
            tensors = [x for x in results if isinstance(x, torch.Tensor)]
            uses = Counter(map(_storage, tensors))
            shared = {n: x.untyped_storage() for x in tensors if uses[n := _storage(x)] > 1}
            self.recordings[key] = first = first._replace(shared=shared)
            return first
        del found
        owners, places = _lying(results, apart, (launch, copies, begun and begun.recording.launch))
        later = first._replace(results=[_place(x, places[n]) if (n := _storage(x)) in places else x for x in results])
        if not begun:
            owned = [weak_reference(owners[number]) for number in owners.keys() - {there[i] for i in moving}]
            self.begun = PassForward(later, partial(self.recordings.__setitem__, key), where, places, owned, values)
            WAITING.update(dict.fromkeys(owners, self.begun))
            return first
        reason = ""
        if not begun.is_freed or not apart.isdisjoint(map(_storage, results)):
            reason = "somebody has what the pass backward reads, or is given it back"
        elif values:
            peak = max(begun.values[0], begun.values[1] + values[0])
            reason = _over("memory of graphs", segment_bytes(begun.where), int(MAX_PART * peak))
        if reason:
            begun.refuse(reason)
            self._left(reason)
            return first._replace(shown=EVERY)
        kept = [(x._cdata, users(x._cdata), x) for x in (*before.values(), *places.values())]
        shown = set[int]()
        self.recordings[key] = later._replace(kept=kept, read=read, shown=shown)
        begun.keep(begun.recording._replace(kept=kept, backward=(later, shown)))
        return later

    def _captured(self, own: list[Any], where: Any) -> tuple[Callable[[], object], Sequence[Any]]:
        """What launches the calls of the model as a graph, and its results, which lie in a memory or in that of graphs
        of inference; it empties the list of inputs."""
        from ..cuda.launches import graph_launch

        cuda: Any = torch.cuda
        graph, trees = cuda.CUDAGraph(), cast("Any", import_module("torch._inductor.cudagraph_trees"))
        with cuda.device(own[0].device if own else None):
            number = cuda.current_device()
            pool, stream = where or POOLS.setdefault((get_ident(), number, self.stream()), _memory())
            where = {"pool": pool, "stream": stream, "capture_error_mode": "thread_local"}
            # cuBLAS keeps its scratch memory: each graph takes its own from the pool.
            with trees.clear_cublas_manager(), cuda.graph(graph, **where):
                results = list(self.model(own))
        if self.draws:
            return graph.replay, results
        launch = _by_driver(number, lambda driver: graph_launch(driver, graph.raw_cuda_graph_exec()), graph.replay)
        return launch, results


POOLS: dict[tuple[int, int, int], tuple[Any, Any]] = {}
"""By thread, device and stream the memory that graphs of inference there share, of which one runs at a time, and the
stream that is captured."""


def _memory() -> tuple[Any, Any]:
    return torch.cuda.graph_pool_handle(), torch.cuda.Stream()


def free_bytes() -> int:
    """The memory of the current GPU that holds no tensor."""
    cuda: Any = torch.cuda
    return cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated()


def taken_bytes() -> int:
    """The memory that tensors have taken from the current GPU so far, whether they live or not."""
    return cast("Any", torch.cuda).memory_stats().get("allocated_bytes.all.allocated", 0)


def allocated_bytes(device: object) -> tuple[int, int]:
    """The memory of a GPU that holds tensors: at the peak since the last call, and now."""
    cuda: Any = torch.cuda
    both = cuda.max_memory_allocated(device), cuda.memory_allocated(device)
    cuda.reset_peak_memory_stats(device)
    return both


def segment_bytes(where: tuple[Any, Any]) -> int:
    """What a memory of graphs has."""
    cuda: Any = torch.cuda
    return sum(x["total_size"] for x in cuda.memory_snapshot() if tuple(x["segment_pool_id"]) == tuple(where[0]))


def _storage(x: Any) -> int:
    """The number of a tensor's storage, as long as that lives; that of None and of numbers is 0."""
    return cast("Any", x).untyped_storage()._cdata if isinstance(x, torch.Tensor) else 0


def _lying(
    results: Sequence[Any], apart: Container[int], graphs: Sequence[object]
) -> tuple[dict[int, Any], dict[int, Any]]:
    """By their numbers the storages of results in memory of graphs, and others in their places that do not own it."""
    there = [x for x in results if isinstance(x, torch.Tensor) and x.nbytes and x.device.type == DEVICE]
    owners = {number: cast("Any", x).untyped_storage() for x in there if (number := _storage(x)) not in apart}
    return owners, {number: lying_at(GraphMemory(x, graphs)) for number, x in owners.items()}


def lying_at(memory: GraphMemory) -> Any:
    """A storage there."""
    return torch.as_tensor(memory).untyped_storage()


def _place(x: Any, storage: Any) -> torch.Tensor:
    """A tensor that lies in a storage as another one does in its own."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(storage, x.storage_offset(), x.shape, x.stride())


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


def obstacle(what: str, values: Sequence[Any], most: int) -> str:
    """Why values are not copied, "" if they are: all are tensors on a GPU that copies have the strides of, or None, and
    of few bytes."""
    tensors = [value for value in values if value is not None]
    for x in tensors:
        if not (isinstance(x, torch.Tensor) and x.is_cuda and torch.empty_like(x).stride() == x.stride()):
            return f"{what} are not all tensors on a GPU without gaps in memory"
    return _over(what, sum(x.nbytes for x in tensors), most)


def _over(what: str, size: int, most: int) -> str:
    return f"{what}: {size / 2**20:.1f} MiB, of at most {most / 2**20:.1f}" if size > most else ""


def recorded(
    trees: Callable[..., Model] | None, model: Model, static_input_idxs: Sequence[int] = (),
    shown: Container[int] | None = None, draws: bool = True, *, say: Callable[[str], object], **settings: Any,
) -> Model:  # fmt: skip
    """What runs a compiled graph in CUDA graphs, in the place of inductor's `cudagraphify`, which is `trees`; without
    it, a graph that cannot be recorded is called as it is. `shown`, `draws` and `say` are those of `RecordedGraph`."""
    otherwise = partial(trees, model, static_input_idxs, **settings) if trees else lambda: model
    trained = trees is not None and not settings["is_inference"]
    if trained or {*settings["mutated_input_idxs"]}.difference(static_input_idxs):
        say("recorded by inductor, if at all" if trees else "not recorded: it changes inputs that may lie elsewhere")
        return otherwise()
    read, capturing = stream_reader(settings["device_index"]), torch.cuda.is_current_stream_capturing
    return RecordedGraph(model, static_input_idxs, otherwise, lambda: -1 if capturing() else read(), say, shown, draws)
