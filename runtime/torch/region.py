"""Parts of a graph as kernels that are called with tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch.fx import Node
from xdsl.dialects import arith
from xdsl.dialects import math as math_ops
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.utils import FastMathFlag

from ...passes.linalg.fuse_elementwise import fuse_elementwise
from ..arguments.arrays import Argument, current_stream
from ..base.errors import CompileError
from ..base.launch import Plan, ScratchBuffer
from ..kernel.compile import compile
from ..kernel.kernel import Kernel
from .attention import GRADIENTS, is_attention, results_of
from .importer import Importer
from .options import BackendOptions, aten, compressed, metadata_shape
from .scalars import TYPE_NAMES, Size, UnsupportedError, shape_of
from .views import MemoryOrder, order_of, reordered, row_major

if TYPE_CHECKING:
    from ..cuda.launches import Launches


METADATA = {aten._sparse_semi_structured_mm.default: 1, aten._sparse_semi_structured_addmm.default: 2}
"""Operators that take such a tensor, and which argument the metadata is."""

TYPES = (torch.float16, torch.bfloat16, torch.int8)
"""Elements of which two in four are stored."""

STORED_BY_BYTE = 4
"""Elements whose places a byte says, two bits for each."""


def metadata_of(node: Node) -> tuple[Node, Node] | None:
    """Of a product with such a tensor: the nodes of the metadata and of the stored elements.

    Raises:
        UnsupportedError: for elements that are stored otherwise.
    """
    place = METADATA.get(node.target)
    if place is None:
        return None
    metadata: Any = node.args[place]
    values: Any = node.args[place - 1]
    if values.meta["val"].dtype not in TYPES:
        raise UnsupportedError(f"a sparse matrix of {values.meta['val'].dtype} is not lowered")
    return metadata, values


def _words(metadata: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The metadata that a kernel takes, made on the host of that of CUTLASS: of a matrix of its ones."""
    conversions: Any = import_module("torch.sparse._semi_structured_conversions")
    rows, columns = metadata.shape
    ones = torch.ones(rows, columns * metadata.element_size() * STORED_BY_BYTE, dtype=dtype)
    dense = conversions.sparse_semi_structured_to_dense_cutlass(ones, metadata.cpu())
    return compressed(dense)[1].to(metadata.device)


DEFAULT_TARGET = "sm_90a"
FILE = "<region>"
REMEMBERED = 256
"""Sizes whose launches a part remembers."""

ALIGNMENT = 16
"""Bytes that divide the addresses of what kernels read and write."""

SizeSource: TypeAlias = int | tuple[int, int]
"""A size: a number, or a dimension of an input."""


@dataclass(frozen=True)
class ImportedResult:
    """Where the sizes of a result come from, its memory order, and the type of its elements."""

    shape: tuple[SizeSource, ...]
    order: MemoryOrder
    dtype: torch.dtype

    def empty(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """A tensor for the result of these inputs."""
        sizes = tuple(p if isinstance(p, int) else inputs[p[0]].shape[p[1]] for p in self.shape)
        return torch.empty_strided(sizes, self.order.strides(sizes), dtype=self.dtype, device=inputs[0].device)


@dataclass(frozen=True)
class ImportedRegion:
    """A part of a graph as a module of one function: the memory order of each input, and its results. `metadata` are
    the inputs that lie as CUTLASS has them, with the type of the sparse matrix."""

    module: ModuleOp
    orders: tuple[MemoryOrder, ...]
    results: tuple[ImportedResult, ...]
    metadata: Mapping[int, torch.dtype]


def write(nodes: Sequence[Node], inputs: Sequence[Node], results: Sequence[Node]) -> ImportedRegion:
    """Nodes of a graph, in order, as a function of the values of others; it returns those of `results`.

    Raises:
        UnsupportedError: if one has no form in `linalg` here.
    """
    importer = Importer()
    examples = [node.meta["val"] for node in inputs]
    orders = tuple(map(order_of, examples))
    sparse = dict(pair for node in nodes if (pair := metadata_of(node)))
    metadata: dict[int, torch.dtype] = {}
    for number, (node, example, order) in enumerate(zip(inputs, examples, orders, strict=True)):
        if node in sparse:
            values = sparse[node].meta["val"]
            metadata[number] = values.dtype
            words = metadata_shape(values.shape[0], 2 * values.shape[1], values.dtype)
            importer.values[node] = importer.builder.argument(f"arg{number}", words, torch.int32)
            continue
        sizes = shape_of(example)
        value = importer.builder.argument(f"arg{number}", order.shape(sizes), example.dtype)
        importer.values[node] = replace(value, dims=order.dims, shape=sizes)
    for node in nodes:
        importer.run(node)
    written = list[ImportedResult]()
    for node in results:
        example, value = node.meta["val"], importer.values[node]
        order, shape = order_of(example), tuple(_place(size, examples) for size in shape_of(example))
        plainly = order == row_major(order.rank)
        importer.values[node] = importer.builder.dense(value) if plainly else reordered(value, order.order)
        written.append(ImportedResult(shape, order, example.dtype))
    module = importer.module(name_of(nodes), results)
    if written[0].dtype in NARROW:
        approximate(module)
    fuse_elementwise(module)
    return ImportedRegion(module, orders, tuple(written), metadata)


NARROW = (torch.bfloat16, torch.float16)
"""Results whose rounding hides what approximate instructions lose: 2^-21 of a result, and numbers below 2^-126."""


def approximate(module: ModuleOp) -> None:
    """Allows the approximate instructions of the GPU for exponentials and quotients in f32."""
    for op in module.walk():
        if isinstance(op, math_ops.ExpOp | arith.DivfOp) and op.results[0].type == f32:
            op.properties["fastmath"] = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


NAME_LENGTH, HASH_LENGTH = 64, 10
"""Characters of a kernel's name, and of the hash behind that of a part."""


def name_of(nodes: Sequence[Node]) -> str:
    """What profilers call the kernel of these nodes: its operations in order and the type of its result, such as
    `addmm_gelu_bfloat16`. Equal parts of a graph have one kernel, so that it does not say which part it is."""
    if attention := next(filter(is_attention, nodes), None):
        dtype = str(results_of(attention)[0].meta["val"].dtype).removeprefix("torch.")
        return f"attention_{'gradients_' if attention.target in GRADIENTS else ''}{dtype}"
    names = (str(node.target).removeprefix("aten.").removeprefix("warploom.").partition(".")[0] for node in nodes)
    operations = "_".join(re.sub(r"\W", "_", name).strip("_") for name in names)
    dtype = str(nodes[-1].meta["val"].dtype).removeprefix("torch.")
    return f"{operations[: NAME_LENGTH - len(dtype) - 1]}_{dtype}"


def _place(size: Size, examples: Sequence[torch.Tensor]) -> SizeSource:
    if isinstance(size, int):
        return size
    for number, example in enumerate(examples):
        for dimension, other in enumerate(shape_of(example)):
            if other == size:
                return number, dimension
    raise UnsupportedError(f"the size {size} of the result is none of an operand")


KERNELS: dict[tuple[object, ...], Kernel] = {}
"""Equal parts of graphs share a kernel."""


WHOLE_F32 = (
    "tensor cores multiply f32 as tf32, without 13 bits of each operand; to allow that, "
    "torch.set_float32_matmul_precision('high') or options={'tf32': True}"
)


def check_precision(operands: Sequence[torch.Tensor], *, drops_bits: bool) -> None:
    """Refuses products of f32 that may not drop bits; UnsupportedError saying how to allow it."""
    if not drops_bits and all(x.dtype == torch.float32 for x in operands):
        raise UnsupportedError(WHOLE_F32)


def kernel_for(module: ModuleOp, device: torch.device, options: BackendOptions) -> Kernel:
    """The kernel of a region for a device; equal regions share one.

    Raises:
        CompileError: if it is not lowered, or there is no kernel for tensors there.
    """
    target, tf32, schedule = target_of(device, options), options.drops_bits, options.schedule
    key = (str(module), target, tf32, options.tuned, str(sorted(schedule.items())))
    if key not in KERNELS:
        KERNELS[key] = compile(module, target, file=FILE, tf32=tf32, tuned=options.tuned, **schedule)
    return KERNELS[key]


def target_of(device: torch.device, options: BackendOptions) -> str:
    """The target of kernels for tensors on a device; CompileError for one that is neither the CPU nor a GPU."""
    if device.type not in ("cpu", "cuda"):
        raise CompileError(f"there are kernels for tensors on cpu and cuda, not on {device.type}")
    if options.target is not None or device.type == "cpu":
        return options.target or DEFAULT_TARGET
    from ..cuda.driver import gpu

    return gpu(device.index or 0).device.target


PROFILING: Callable[[], bool] = cast("Any", torch.autograd)._profiler_enabled


class Region(torch.nn.Module):
    """A compiled part of a graph, called with its inputs. On the CPU it runs on the interpreter, on a GPU on torch's
    current stream. All memory that a call takes is torch's, so that it can be captured in a CUDA graph. `name` says
    what it computes, and ends with a hash of its code and target; profilers show `label` around the launches."""

    def __init__(self, written: ImportedRegion, kernel: Kernel, label: str = "") -> None:
        super().__init__()
        self.written, self.kernel, self.label = written, kernel, label
        text = f"{written.module}{written.orders}{written.results}{written.metadata}{kernel.target}{kernel.schedules}"
        self.name = f"{kernel.function.name}_{sha256(text.encode()).hexdigest()[:HASH_LENGTH]}"
        weak: Any = import_module("torch.utils.weak")
        self._words: Any = weak.WeakTensorKeyDictionary()
        self._dynamic = kernel.plan.dynamic
        self._plans: dict[tuple[tuple[int, ...], ...], Plan] = {}
        self._prepared: dict[tuple[torch.Size, ...] | None, tuple[Launches, Plan]] = {}

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        outs = [result.empty(inputs) for result in self.written.results]
        if all(order.holds(x) for order, x in zip(self.written.orders, inputs, strict=True)):
            self.into(*inputs, out=outs)
        else:
            self._first(inputs, outs)
        return outs

    def into(self, *inputs: torch.Tensor, out: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """Computes the results in tensors, of inputs that lie in the memory orders of the part, on torch's device."""
        outs = [out] if isinstance(out, torch.Tensor) else out
        if PROFILING():
            with torch.profiler.record_function(self.label):
                self._into(inputs, outs)
        else:
            self._into(inputs, outs)

    def _into(self, inputs: tuple[torch.Tensor, ...], outs: Sequence[torch.Tensor]) -> None:
        key = tuple([x.shape for x in inputs]) if self._dynamic else None
        addresses, bits = list[int](), 0
        for tensor in (*inputs, *outs):
            address = tensor.data_ptr()
            addresses.append(address)
            bits |= address
        ready = self._prepared.get(key)
        if ready is None or bits % ALIGNMENT:
            if (first := self._first(inputs, outs)) is not None:
                if len(self._prepared) >= REMEMBERED:
                    self._prepared.clear()
                self._prepared[key] = first
            return
        launches, plan = ready
        memory = [_scratch(buffer, outs[0].device) for buffer in plan.scratch]
        addresses += [t.data_ptr() for t in memory]
        launches.enqueue(addresses, current_stream(outs[0].get_device()))

    def _first(self, inputs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> tuple[Launches, Plan] | None:
        """A call with tensors that lie as in no call before; on a GPU its launches, for those that lie alike, unless
        tensors were copied."""
        if not all(out.numel() for out in outs):
            return None
        tensors = list(inputs)
        for number, dtype in self.written.metadata.items():
            version, _ = self._words.get(inputs[number], (None, None))
            if version != inputs[number]._version:
                self._words[inputs[number]] = inputs[number]._version, _words(inputs[number], dtype)
            tensors[number] = self._words[inputs[number]][1]
        placed = [_placed(t, order) for t, order in zip(tensors, self.written.orders, strict=True)]
        lying = [result.order.shape(tuple(out.shape)) for result, out in zip(self.written.results, outs, strict=True)]
        values = [_argument(tensor, shape) for tensor, shape in (*placed, *zip(outs, lying, strict=True))]
        plan = self._plan(values)
        launches = RUNNERS[outs[0].device.type](self.kernel, plan, values, outs[0].device)
        copied = any(t is not given for (t, _), given in zip(placed, inputs, strict=True))
        return None if launches is None or copied else (launches, plan)

    def _plan(self, values: Sequence[Argument]) -> Plan:
        if not self._dynamic:
            return self.kernel.plan
        key = tuple(value.shape for value in values)
        if key not in self._plans:
            self._plans[key] = self.kernel.plan_for(values)
        return self._plans[key]


def _placed(tensor: torch.Tensor, order: MemoryOrder) -> tuple[torch.Tensor, tuple[int, ...]]:
    """A tensor whose memory is as a kernel takes it, and the sizes of that memory."""
    sizes = order.shape(tuple(tensor.shape))
    if not order.holds(tensor):
        tensor = order.laid_out(tensor)
    if tensor.data_ptr() % ALIGNMENT:
        tensor = order.laid_out(tensor).clone()
    return tensor, sizes


def _argument(tensor: torch.Tensor, shape: tuple[int, ...]) -> Argument:
    """Memory as an argument of a kernel: without gaps, in row-major order."""
    return Argument(
        address=tensor.data_ptr(),
        shape=shape,
        element=TYPE_NAMES[tensor.dtype],
        itemsize=tensor.element_size(),
        strides=None,
        on_device=tensor.is_cuda,
        writable=True,
        owner=tensor,
    )


def _interpret(kernel: Kernel, plan: Plan, values: Sequence[Argument], device: torch.device) -> None:
    written = kernel.function.written
    kernel.binary.run(plan, values, device="interp", written=written)


def _enqueue(kernel: Kernel, plan: Plan, values: Sequence[Argument], device: torch.device) -> Launches:
    """Enqueues the launches on the current stream of the tensors' device; nothing is waited for."""
    from ..cuda.driver import gpu
    from ..cuda.launches import Launches

    scratch = [_scratch(buffer, device) for buffer in plan.scratch]
    everything = [*values, *(_argument(t, tuple(t.shape)) for t in scratch)]
    launches = Launches(gpu(device.index or 0), kernel.ptx, kernel.binary.kernels, plan.launches, everything)
    launches([value.address for value in everything], current_stream(device.index or 0))
    return launches


def _scratch(buffer: ScratchBuffer, device: torch.device) -> torch.Tensor:
    make = torch.zeros if buffer.zeroed else torch.empty
    return make(max(1, buffer.bytes), dtype=torch.uint8, device=device)


RUNNERS: Mapping[str, Callable[[Kernel, Plan, Sequence[Argument], torch.device], Launches | None]] = {
    "cpu": _interpret,
    "cuda": _enqueue,
}
