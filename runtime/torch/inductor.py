"""Graphs that inductor compiles, with calls of our kernels among its own: `torch.ops.warploom.region`.

inductor plans the memory of the graph, fuses what is between the products, writes one flat program of all launches,
and captures it in CUDA graphs where that is asked for. A compiled part is one call in that program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from torch.fx import Graph, GraphModule, Node

from .compared import ComparedPart
from .part import REGIONS, MemoryOrder, Region
from .products import warploom


def call_of(graph: Graph, region: Region | ComparedPart, inputs: Sequence[Node]) -> Node:
    """A call of a compiled part among the nodes of a graph."""
    REGIONS[region.name] = region
    return graph.call_function(warploom.region.default, (list(inputs), region.name))


def compile_whole(
    module: GraphModule, examples: Sequence[Any], replace: Callable[[GraphModule, Sequence[Any], str], None],
    mode: str | None,
) -> Callable[..., Any]:  # fmt: skip
    """A graph compiled by inductor; `replace` puts calls of compiled parts into each graph of ATen operations, of which
    it is told whether it is the forward, the backward or the inference graph."""
    inductor: Any = import_module("torch._inductor")
    compiler: Any = import_module("torch._inductor.compile_fx")
    functorch: Any = import_module("torch._functorch.config")
    kernels: Any = import_module("torch._inductor.select_algorithm").extern_kernels
    _lowered()

    def compile_inner(graph: GraphModule, inputs: Sequence[Any], *args: Any, **settings: Any) -> Any:
        name = "inference" if settings.get("is_inference") else "forward"
        replace(graph, inputs, "backward" if settings.get("is_backward") else name)
        for node in graph.graph.find_nodes(op="call_function", target=warploom.region.default):
            region = REGIONS[node.args[1]]
            setattr(kernels, node.args[1], region.into if len(region.layout.results) == 1 else region)
        return compiler.compile_fx_inner(graph, inputs, *args, **settings)

    patches: dict[str, Any] = inductor.list_mode_options(mode) if mode else {}
    # inductor's cache of graphs is asked behind `replace`; the one of autograd would leave out `replace`.
    with functorch.patch(enable_autograd_cache=False):
        return compiler.compile_fx(module, examples, inner_compile=compile_inner, config_patches=patches or None)


@cache
def _lowered() -> None:
    """Tells inductor how a call of a compiled part is written; once."""
    lowering: Any = import_module("torch._inductor.lowering")
    lowering.register_lowering(warploom.region.default, type_promotion_kind=None)(_call)


def _call(inputs: Sequence[Any], name: str) -> list[Any]:
    """The call in inductor's IR: operands lie in memory as the kernel takes them, and the result is a buffer that
    inductor allocates; several the call allocates."""
    ir: Any = import_module("torch._inductor.ir")
    virtualized: Any = import_module("torch._inductor.virtualized")
    region = REGIONS[name]
    operands = [_laid_out(ir, x, order) for x, order in zip(inputs, region.layout.orders, strict=True)]
    called = {"inputs": operands, "python_kernel_name": f"extern_kernels.{name}"}
    likes = virtualized.V.graph.current_node.meta["val"]
    lying = [[ir.convert_shape_to_inductor(x) for x in (like.shape, like.stride())] for like in likes]
    layouts = [ir.FixedLayout(x.device, x.dtype, *sizes) for x, sizes in zip(likes, lying, strict=True)]
    if len(layouts) == 1:
        return [ir.TensorBox.create(ir.ExternKernelOut(layout=layouts[0], **called))]
    packed = ir.ExternKernelAlloc(layout=ir.MultiOutputLayout(device=likes[0].device), **called)
    packed.outputs = [ir.MultiOutput(layout, packed, [(list, at)]) for at, layout in enumerate(layouts)]
    return [ir.TensorBox.create(out) for out in packed.outputs]


def _laid_out(ir: Any, value: Any, order: MemoryOrder) -> Any:
    """An operand in a memory order. inductor makes its producer write it in this order, or copies it."""
    strides = order.strides(value.get_size())
    kernel = ir.ExternKernel
    return kernel.realize_input(kernel.require_exact_strides(kernel.realize_input(value), strides))
