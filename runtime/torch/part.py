"""Compiled parts of graphs, called with tensors: nothing here needs the compiler, and so a saved program runs without
it. `torch.ops.warploom` has the operators: `region` is a call of such a part in a graph."""

from __future__ import annotations

import pickle
from base64 import b85decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from zipfile import is_zipfile

import torch
from torch._prims_common import suggest_memory_format

from ..arguments.arrays import PACKED, Argument, current_stream, memory_maker
from ..base.cache import kept, read_records
from ..base.errors import ArgumentError, AssemblerError
from ..base.launch import Plan
from ..kernel.kernel import Kernel

if TYPE_CHECKING:
    from ..cuda.launches import Launches


class MemoryOrder(NamedTuple):
    """Dimensions of a tensor from the outermost to the innermost in memory; others have one element or stride 0. The
    memory is a tensor of its own, in row-major order: `dims` says which dimension of it each of the tensor's is."""

    order: tuple[int, ...]
    rank: int

    @property
    def dims(self) -> tuple[int | None, ...]:
        """For each dimension of the tensor the one in memory."""
        return tuple(self.order.index(d) if d in self.order else None for d in range(self.rank))

    def shape(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The sizes of the memory, for those of the tensor."""
        return tuple(sizes[d] for d in self.order)

    def strides(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """The strides of a tensor of these sizes in this order."""
        strides: list[Any] = [1 if size == 1 else 0 for size in sizes]
        step: Any = 1
        for d in reversed(self.order):
            strides[d] = step
            step = step * sizes[d]
        return tuple(strides)

    def holds(self, sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
        """Whether the elements of a tensor of these sizes and strides lie like this."""
        return all(n == 1 or a == b for n, a, b in zip(sizes, strides, self.strides(sizes), strict=True))

    def laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's elements, once each, in memory like this: a copy where they do not lie so."""
        others = [d for d in range(self.rank) if d not in self.order]
        for d in others:
            tensor = tensor.narrow(d, 0, 1)
        return tensor.permute([*self.order, *others]).contiguous()


def row_major(rank: int) -> MemoryOrder:
    """The order of a contiguous tensor."""
    return MemoryOrder(tuple(range(rank)), rank)


REMEMBERED, ALIGNMENT = 256, 16
"""Sizes whose launches a part remembers, and bytes that divide the addresses of what kernels read and write."""

SizeSource: TypeAlias = int | tuple[int, int]
"""A size: a number, or a dimension of an input."""


class PartResult(NamedTuple):
    """Where the sizes of a result come from, its memory order, and the type of its elements."""

    shape: tuple[SizeSource, ...]
    order: MemoryOrder
    dtype: torch.dtype

    def empty(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """A tensor for the result of these inputs."""
        sizes = tuple(p if isinstance(p, int) else inputs[p[0]].shape[p[1]] for p in self.shape)
        return torch.empty_strided(sizes, self.order.strides(sizes), dtype=self.dtype, device=inputs[0].device)


class PartLayout(NamedTuple):
    """The memory layout of a part's tensors: the order and the type of each input, and the results. `metadata` are the
    inputs in CUTLASS's layout, with the type of the sparse matrix."""

    orders: tuple[MemoryOrder, ...]
    dtypes: tuple[torch.dtype, ...]
    results: tuple[PartResult, ...]
    metadata: Mapping[int, torch.dtype]


PreparedPart: TypeAlias = "tuple[Launches, tuple[Callable[[], torch.Tensor], ...]]"
"""The launches of a part for tensors of some sizes, and what allocates their scratch memory."""

PROFILING: Callable[[], bool] = cast("Any", torch.autograd)._profiler_enabled


class Region:
    """A compiled part of a graph, called with its inputs: on the interpreter for CPU tensors, on torch's current stream
    for GPU tensors. A call allocates by torch only, so that CUDA graphs can capture it. `name` is its name in a graph;
    profilers show `label` around the launches."""

    def __init__(self, layout: PartLayout, kernel: Kernel, name: str, label: str) -> None:
        self.layout, self.kernel, self.name, self.label = layout, kernel, name, label
        weak: Any = import_module("torch.utils.weak")
        self._words: Any = weak.WeakTensorKeyDictionary()
        self._dynamic = kernel.plan.dynamic
        self._prepared: dict[int | tuple[int | torch.Size, ...], PreparedPart] = {}

    def __reduce__(self) -> tuple[type[Region], tuple[object, ...]]:
        return Region, (self.layout, self.kernel, self.name, self.label)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        outs = [result.empty(inputs) for result in self.layout.results]
        holds = all(order.holds(x.shape, x.stride()) for order, x in zip(self.layout.orders, inputs, strict=True))
        self.run(inputs, outs, holds=holds)
        return outs

    def into(self, *inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Computes the result in `out`. The inputs must have the memory orders of the part and be on torch's device."""
        self.run(inputs, [out])

    def run(self, inputs: tuple[torch.Tensor, ...], outs: Sequence[torch.Tensor], *, holds: bool = True) -> None:
        """Computes the results in `outs`; `holds` says whether the inputs have the memory orders of the part."""
        if PROFILING():
            with torch.profiler.record_function(self.label):
                self._launch(inputs, outs, holds)
        else:
            self._launch(inputs, outs, holds)

    def _launch(self, inputs: tuple[torch.Tensor, ...], outs: Sequence[torch.Tensor], holds: bool) -> None:
        device = outs[0].get_device()
        key = (device, *[x.shape for x in inputs]) if self._dynamic else device
        addresses = [x.data_ptr() for x in (*inputs, *outs)]
        ready = self._prepared.get(key) if holds else None
        if ready is None or reduce(int.__or__, addresses) % ALIGNMENT:
            if (first := self._first(inputs, outs)) is not None:
                if len(self._prepared) >= REMEMBERED:
                    self._prepared.clear()
                self._prepared[key] = first
            return
        launches, scratch = ready
        memory = [make() for make in scratch]
        addresses += [t.data_ptr() for t in memory]
        launches(addresses, current_stream(device))

    def _first(self, inputs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> PreparedPart | None:
        """The first call with tensors of these strides. Returns its launches and what allocates their scratch memory,
        or None if an output is empty; later calls on a GPU reuse them, unless tensors were copied. An ArgumentError for
        tensors on several devices."""
        if not all(out.numel() for out in outs):
            return None
        if len(devices := sorted({str(x.device) for x in (*inputs, *outs)})) > 1:
            raise ArgumentError(f"{self.name}: expected tensors on one device, got {', '.join(devices)}")
        tensors = list(inputs)
        for number, dtype in self.layout.metadata.items():
            version, _ = self._words.get(inputs[number], (None, None))
            if version != inputs[number]._version:
                self._words[inputs[number]] = inputs[number]._version, _words(inputs[number], dtype)
            tensors[number] = self._words[inputs[number]][1]
        placed = [_placed(t, order) for t, order in zip(tensors, self.layout.orders, strict=True)]
        lying = [result.order.shape(tuple(out.shape)) for result, out in zip(self.layout.results, outs, strict=True)]
        arrays = zip((*placed, *zip(outs, lying, strict=True)), self.kernel.function.parameters, strict=True)
        values = [
            _argument(*array, "i8" if to.element in PACKED else to.element).packed_as(to.element, to.shape or ())
            for array, to in arrays
        ]
        plan = self.kernel.plan_for(values)
        prepared = (_enqueue if outs[0].is_cuda else _interpret)(self.kernel, plan, values, outs[0].device)
        copied = any(t is not tensor for (t, _), tensor in zip(placed, inputs, strict=True))
        return None if copied else prepared


def _placed(tensor: torch.Tensor, order: MemoryOrder) -> tuple[torch.Tensor, tuple[int, ...]]:
    """A tensor with the memory order and alignment that a kernel takes, copied if necessary, and the sizes of its
    memory."""
    sizes = order.shape(tuple(tensor.shape))
    if not order.holds(tensor.shape, tensor.stride()):
        tensor = order.laid_out(tensor)
    if tensor.data_ptr() % ALIGNMENT:
        tensor = order.laid_out(tensor).clone()
    return tensor, sizes


def _argument(tensor: torch.Tensor, shape: tuple[int, ...], element: str) -> Argument:
    """Memory as an argument of a kernel: without gaps, in row-major order."""
    return Argument(
        address=tensor.data_ptr(), shape=shape, element=element, itemsize=tensor.element_size(), strides=None,
        on_device=tensor.is_cuda, writable=True, owner=tensor,
    )  # fmt: skip


def _interpret(kernel: Kernel, plan: Plan, values: Sequence[Argument], device: torch.device) -> None:
    kernel.binary.run(plan, values, device="interp", written=kernel.function.written)


def _enqueue(kernel: Kernel, plan: Plan, values: Sequence[Argument], device: torch.device) -> PreparedPart:
    """Enqueues the launches on the current stream of the tensors' device; nothing is waited for."""
    from ..cuda.driver import gpu
    from ..cuda.launches import GpuProgram, Launches

    scratch = tuple(memory_maker(buffer, device) for buffer in plan.scratch)
    memory = [make() for make in scratch]
    everything = [*values, *(_argument(t, tuple(t.shape), "i8") for t in memory)]
    here = gpu(device.index or 0)
    here.load(kernel.ptx, partial(cached_code, kernel))
    launches = Launches(GpuProgram(here, kernel.ptx, kernel.entries), plan.launches, everything)
    launches([value.address for value in everything], current_stream(device.index or 0))
    return launches, scratch


def cached_code(kernel: Kernel) -> bytes:
    """The machine code of a kernel, which is in the cache then, so that a process loads it in less time than the driver
    makes it; empty without a cache, or where ptxas is not there or does not take the text."""
    with suppress(AssemblerError):
        return kernel.cubin if kept() else b""
    return b""


def _words(metadata: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The kernel's metadata words of CUTLASS's metadata, converted on the host. The positions are found by expanding a
    matrix of ones."""
    from .options import compressed

    conversions: Any = import_module("torch.sparse._semi_structured_conversions")
    rows, columns = metadata.shape
    ones = torch.ones(rows, 4 * columns * metadata.element_size(), dtype=dtype)  # two bits say where an element is
    dense = conversions.sparse_semi_structured_to_dense_cutlass(ones, metadata.cpu())
    return compressed(dense)[1].to(metadata.device)


library: Any = torch.library
LIBRARY = library.Library("warploom", "DEF")

SIGNATURES = (
    "region(Tensor[] inputs, str name) -> Tensor[]",
    "matmul(Tensor a, Tensor b) -> Tensor",
    'linear(Tensor x, Tensor weight, Tensor? bias=None, str activation="none") -> Tensor',
    "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType out_dtype=bfloat16) -> Tensor",
    "sparse_matmul(Tensor values, Tensor metadata, Tensor b) -> Tensor",
    "compress(Tensor dense) -> (Tensor, Tensor)",
    "filter_gradient(Tensor slope, Tensor x, int[] shape, int[] steps, int[] padding, int[] dilations, int groups) "
    "-> Tensor",
    "contract(Tensor a, Tensor b, str loops, int[] order, *, ScalarType dtype) -> Tensor",
    "begun(Tensor starts, SymInt tokens) -> Tensor",
)

for signature in SIGNATURES:
    LIBRARY.define(signature, tags=(torch.Tag.pt2_compliant_tag,))


def eager_filter_gradient(slope: torch.Tensor, x: torch.Tensor, shape: Sequence[int], *options: Any) -> torch.Tensor:
    """What torch computes where a gradient of a filter is not compiled, and of tensors without elements."""
    *moves, groups = options
    weight, mask = x.new_empty(shape), [False, True, False]
    made = torch.ops.aten.convolution_backward(slope, x, weight, None, *moves, False, [0, 0], groups, mask)[1]
    return made.contiguous(memory_format=suggest_memory_format(x))


def _like_contract(a: torch.Tensor, b: torch.Tensor, loops: str, _: object, *, dtype: torch.dtype) -> torch.Tensor:
    return cast("Any", torch).einsum(loops, a, b).to(dtype).contiguous()


def _like_begun(starts: torch.Tensor, tokens: int) -> torch.Tensor:
    return starts.new_empty([tokens], dtype=torch.int32)


library.register_kernel("warploom::filter_gradient", ("cpu", "cuda"), eager_filter_gradient)
library.register_fake("warploom::filter_gradient", eager_filter_gradient)
library.register_fake("warploom::contract", _like_contract)
library.register_fake("warploom::begun", _like_begun)

warploom: Any = torch.ops.warploom
"""The namespace `torch.ops.warploom` of the operators, which docs/torch.md describes."""

REGIONS: dict[str, Any] = {}
"""The compiled parts of all graphs, compared ones too, by name. A name says what a part computes, and ends with a hash
of all of it, so that code which inductor keeps on disk calls the same part in another process."""


def _compute(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    """The results of a part; an ArgumentError for a tensor of another type than the part was compiled for, or on
    another device than the first, which nothing else guards in a program that was loaded."""
    part, device = REGIONS[name], inputs[0].device
    for number, (x, dtype) in enumerate(zip(inputs, part.layout.dtypes, strict=True)):
        if x.dtype != dtype or x.device != device:
            place = f"{part.label}: input {number} of {'x'.join(map(str, x.shape))}"
            raise ArgumentError(f"{place}: expected {dtype} on {device}, got {x.dtype} on {x.device}")
    return part(*inputs)


def _like(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    return [result.empty(inputs) for result in REGIONS[name].layout.results]


library.register_kernel("warploom::region", ("cpu", "cuda"), _compute)
library.register_fake("warploom::region", _like)


def regions_in(module: torch.fx.GraphModule) -> list[Any]:
    """The compiled parts that a graph calls, and those that the graphs call which its operations do, each once."""
    graphs, target = (x.graph for x in module.modules() if isinstance(x, torch.fx.GraphModule)), warploom.region.default
    calls = (node for graph in graphs for node in graph.find_nodes(op="call_function", target=target))
    return [REGIONS[name] for name in dict.fromkeys(str(node.args[1]) for node in calls)]


KERNELS_FILE = "warploom_kernels"
"""The file of kernels among those of a saved program."""


def _is_other(module_name: str, global_name: str) -> bool:
    is_dtype = module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
    return is_dtype or (module_name, global_name) == (__name__, "Region")


def torch_load(path: str | PathLike[str]) -> torch.nn.Module:
    """A program that `torch_save` wrote, as a module; its kernels are called, and nothing is compiled.

    Raises:
        ArgumentError: for a file that is no program or has no kernels, or whose file of kernels has something else.
    """
    if not is_zipfile(path):
        raise ArgumentError(f"{path}: no such file, or not one that torch_save wrote")
    files = {KERNELS_FILE: ""}
    program = torch.export.load(path, extra_files=files)
    if not files[KERNELS_FILE]:
        raise ArgumentError(f"{path}: a program without kernels; expected a file that torch_save wrote")
    try:
        parts = read_records(b85decode(files[KERNELS_FILE]), _is_other)
    except (ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError) as error:
        raise ArgumentError(f"{path}: the file of its kernels is not what torch_save writes: {error}") from error
    REGIONS.update((part.name, part) for part in parts)
    return program.module()
