"""Parts of a graph as kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import Node
from xdsl.dialects import arith
from xdsl.dialects import math as math_ops
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.dialects.utils import FastMathFlag

from ...passes.linalg.tensors import fuse_elementwise
from ...passes.patterns import float_value
from ...passes.pipeline import import_passes
from ..base.errors import AssemblerError, CompileError, WarploomError
from ..base.launch import cores
from ..interp.parallel import side_by_side
from ..kernel.compile import compile
from ..kernel.kernel import Kernel
from ..kernel.lowering import DEFAULT_TARGET
from .importer import Importer
from .options import BackendOptions, aten, metadata_shape
from .part import MemoryOrder, PartLayout, PartResult, Region, row_major
from .scalars import HALF_BYTE, HALVES, Size, UnsupportedError, shape_of
from .views import input_of_size, order_of, reordered, unpacking

import_passes()  # so that the first call does not, nor each process that compiles a part

SPARSE = {aten._sparse_semi_structured_mm.default: 0, aten._sparse_semi_structured_addmm.default: 1}
"""Operators that take such a tensor, and which argument its stored elements are; the metadata is the next one."""


class ImportedRegion(NamedTuple):
    """A part of a graph as a module of one function, which `text` prints, and how its tensors lie. Its last arguments
    are inputs of the graph that it takes only for their `sizes`."""

    module: ModuleOp
    layout: PartLayout
    text: str
    sizes: tuple[Node, ...]


def write(name: str, nodes: Sequence[Node], inputs: Sequence[Node], results: Sequence[Node]) -> ImportedRegion:
    """A function of a name, of the nodes `inputs`, that computes `nodes`, in order, and returns `results`.

    Raises:
        UnsupportedError: if a node cannot be lowered to `linalg`.
    """
    importer, examples, orders, sought = Importer(), list[torch.Tensor](), list[MemoryOrder](), list[Node]()
    places = [(node, SPARSE[node.target]) for node in nodes if node.target in SPARSE]
    sparse = {node.args[at + 1]: cast("Node", node.args[at]).meta["val"] for node, at in places}
    metadata: dict[int, torch.dtype] = {}
    halves = {made[0].args[0]: made for node in nodes if (made := unpacking(node))}

    def take(node: Node) -> None:
        name, example = f"arg{len(examples)}", node.meta["val"]
        if node in sparse:
            values = sparse[node]
            if values.dtype not in (torch.float16, torch.bfloat16, torch.int8):
                raise UnsupportedError(f"a sparse matrix of {values.dtype} is not lowered")
            metadata[len(examples)] = values.dtype
            words = metadata_shape(values.shape[0], 2 * values.shape[1], values.dtype)
            importer.values[node] = importer.builder.argument(name, words, torch.int32)
        elif node in halves:
            *sizes, last = shape_of(example)
            own = importer.builder.argument(name, (*sizes, 2 * last), HALF_BYTE)
            importer.values |= dict.fromkeys(halves[node], own)
        else:
            importer.argument(node, name, order_of(example))
        examples.append(example)
        orders.append(order_of(example))

    def seek(size: Size) -> None:
        if (node := input_of_size(results[0].graph, size, results[0].meta["val"].device)) is not None:
            sought.append(node)
            take(node)

    for node in inputs:
        take(node)
    importer.builder.seek = seek
    for node in nodes:
        if node not in importer.values:
            importer.run(node)
    written = list[PartResult]()
    for node in results:
        example, value, order = node.meta["val"], importer.values[node], order_of(node.meta["val"])
        plainly = order == row_major(order.rank)
        importer.values[node] = importer.builder.dense(value) if plainly else reordered(value, order.order)
        sizes = tuple(size if isinstance(size, int) else _place(size, examples) for size in shape_of(example))
        written.append(PartResult(sizes, order, example.dtype))
    module = importer.module(name, results)
    if written[0].dtype in HALVES:  # whose rounding hides what is lost: 2^-21 of a result, and numbers below 2^-126
        approximate(module)
    fuse_elementwise(module)
    return ImportedRegion(module, PartLayout(tuple(orders), tuple(written), metadata), str(module), tuple(sought))


MAX_EXPONENT = 64
"""Up to this, an approximate power is off by 2^-16 of itself."""


def approximate(module: ModuleOp) -> None:
    """Allows the approximate instructions of the GPU for exponentials, powers and quotients in f32."""
    for op in module.walk():
        if isinstance(op, math_ops.ExpOp | math_ops.PowFOp | arith.DivfOp) and op.results[0].type == f32:
            exponent = float_value(op.rhs) if isinstance(op, math_ops.PowFOp) else 0
            if exponent is not None and abs(exponent) <= MAX_EXPONENT:
                op.properties["fastmath"] = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def _place(size: Size, examples: Sequence[torch.Tensor]) -> tuple[int, int]:
    for number, example in enumerate(examples):
        if size in (sizes := shape_of(example)):
            return number, sizes.index(size)
    raise UnsupportedError(f"the size {size} of the result is none of an operand")


KernelKey: TypeAlias = tuple[object, ...]

KERNELS: dict[KernelKey, Kernel | WarploomError] = {}
"""Equal parts of graphs share a kernel, or the reason why they have none."""


def check_precision(operands: Sequence[torch.Tensor], *, drops_bits: bool) -> None:
    """Refuses products of f32 that may not drop bits; UnsupportedError saying how to allow it."""
    if not drops_bits and all(x.dtype == torch.float32 for x in operands):
        raise UnsupportedError(
            "tensor cores multiply f32 as tf32, without 13 bits of each operand; to allow that, "
            "torch.set_float32_matmul_precision('high') or options={'tf32': True}"
        )


def compile_together(
    parts: Iterable[ImportedRegion], device: torch.device, options: BackendOptions, ready: Callable[[str], object]
) -> None:
    """Compiles the kernels of parts for a device, for `kernel_for`, several at a time in processes. These assemble them
    for a GPU too, where there is ptxas: its driver assembles one after the other. `ready` is called with the text of
    each part that has a kernel now, while others are compiled."""
    missing = {key: part for part in parts if (key := _key(part, device, options)) not in KERNELS}
    if len(missing) < 2 or cores() == 1:
        return
    keys = sorted(missing, key=lambda key: -len(missing[key].text))

    def work(number: int) -> tuple[int, Kernel | WarploomError, bytes]:
        kernel = _compiled(missing[keys[number]].module, device, options)
        return number, kernel, assembled(kernel) if device.type == "cuda" else b""

    def keep(result: tuple[int, Kernel | WarploomError, bytes]) -> None:
        number, kernel, code = result
        KERNELS[keys[number]] = kernel
        if code and isinstance(kernel, Kernel):
            load_on(device.index or 0, kernel, code)
        ready(missing[keys[number]].text)

    # What this process imports for one of them, later ones have.
    side_by_side(work, len(keys) - 1, keep, lambda: keep(work(len(keys) - 1)))


def assembled(kernel: Kernel | WarploomError) -> bytes:
    """The machine code of a kernel, if there is one and ptxas takes it."""
    try:
        return b"" if isinstance(kernel, WarploomError) else kernel.cubin
    except AssemblerError:
        return b""


def load_on(number: int, kernel: Kernel, code: bytes) -> None:
    """Loads a kernel on a GPU by its machine code, if there is one: the driver takes longer to make it."""
    from ..cuda.driver import gpu

    gpu(number).load(kernel.ptx, code)


def kernel_for(part: ImportedRegion, device: torch.device, options: BackendOptions) -> Kernel:
    """The kernel of a region for a device; equal regions share one.

    Raises:
        CompileError: if it is not lowered, or there is no kernel for tensors there.
    """
    key = _key(part, device, options)
    if key not in KERNELS:
        KERNELS[key] = _compiled(part.module, device, options)
    if isinstance(kernel := KERNELS[key], WarploomError):
        raise kernel
    return kernel


def _key(part: ImportedRegion, device: torch.device, options: BackendOptions) -> KernelKey:
    """What a kernel depends on: the text of its module, its target, and the options."""
    schedule = str(sorted(options.schedule.items()))
    return target_of(device, options), options.drops_bits, part.text, options.tuned, schedule


def _compiled(module: ModuleOp, device: torch.device, options: BackendOptions) -> Kernel | WarploomError:
    asked: dict[str, Any] = {"tf32": options.drops_bits, "tuned": options.tuned, **options.schedule}
    try:
        return compile(module, target_of(device, options), file="<region>", **asked)
    except WarploomError as error:
        return error


def target_of(device: torch.device, options: BackendOptions) -> str:
    """The target of kernels for tensors on a device; CompileError for one that is neither the CPU nor a GPU."""
    if device.type not in ("cpu", "cuda"):
        raise CompileError(f"there are kernels for tensors on cpu and cuda, not on {device.type}")
    if options.target is not None or device.type == "cpu":
        return options.target or DEFAULT_TARGET
    from ..cuda.driver import gpu

    return gpu(device.index or 0).device.target


def region_of(written: ImportedRegion, kernel: Kernel, label: str = "") -> Region:
    """A kernel as a part of graphs. Its name says what it computes, and ends with 10 digits of a hash of its code."""
    text = f"{written.text}{written.layout}{kernel.target}{kernel.schedules}"
    name = f"{kernel.function.name}_{sha256(text.encode()).hexdigest()[:10]}"
    return Region(written.layout, kernel, name, label)
