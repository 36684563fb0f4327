"""Graphs of ATen operations as functions of `linalg` on tensors, and as kernels; `torch_to_linalg`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from types import FunctionType, MethodType
from typing import Any, NamedTuple, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg
from xdsl.dialects import arith
from xdsl.dialects import math as math_ops
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import IndexType, ModuleOp, f32, i1
from xdsl.dialects.linalg.ops import IndexOp
from xdsl.dialects.tensor import ExtractOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import SSAValue

from ...passes.linalg.tensors import fuse_elementwise
from ...passes.patterns import float_value
from ...passes.pipeline import DEFAULT_TARGET, import_passes
from ..base.errors import ArgumentError, CompileError, WarploomError
from ..base.launch import cores
from ..kernel.compile import compile
from ..kernel.kernel import Kernel
from .attention import results_of, taken_apart
from .builder import PLACES, SCANS, FunctionBuilder, is_pointwise, is_scan_of_rows, pointwise
from .decompositions import recurrent, simpler
from .options import NO_FORM, BackendOptions, aten, expression, is_attention, metadata_shape, place_of, prims, pytree
from .part import MemoryOrder, PartLayout, PartResult, Region, cached_code, row_major, warploom
from .products import PRODUCTS, SEMI_STRUCTURED
from .scalars import HALVES, RULES, UINT4, Body, ElementValue, Lowering, UnsupportedError, Value, element_of, shape_of
from .views import SPLITS, VIEWS, is_tensor, order_of, reordered, shown, sink_views, sized_input, unpacking, unsqueezed

import_passes()  # so that the first call does not, nor each process that compiles a part


def _constant(builder: FunctionBuilder, like: torch.Tensor, *args: object, **_: object) -> Value:
    """A tensor of one number, the last argument."""
    if not isinstance(number := args[-1], int | float):
        raise UnsupportedError("a tensor filled with a number that is not known is not lowered")
    return builder.filled(shape_of(like), like.dtype, number)


MIN_ROW = 256
"""Elements of a row, and rows, that are reduced one after the other where everything is."""


def _reduction(rule: str, start: float) -> Lowering:
    """A sum, a maximum, a minimum along some dimensions, or all; sums of 16-bit floats are rounded once."""

    def handler(
        builder: FunctionBuilder, like: torch.Tensor, value: Value, dims: Sequence[int] | int | None = None,
        keepdim: bool = False, **_: object,
    ) -> Value:  # fmt: skip
        rank, asked = len(value.shape), [dims] if isinstance(dims, int) else dims
        axes = sorted(d % rank for d in asked) if asked and rank else list(range(rank))
        begin, kind = start, like.dtype
        if not (math.isfinite(start) or kind.is_floating_point):
            least, most = (0, 1) if kind == torch.bool else (torch.iinfo(kind).min, torch.iinfo(kind).max)
            begin = least if start < 0 else most
        inner = torch.float32 if rule == "add" and kind in HALVES else torch.bool if rule == "bitwise_or" else kind
        reduced = builder.converted(value, inner)
        sizes = [size for size in value.shape if isinstance(size, int)]
        # Everything as rows, and then these: what computes the elements is one kernel with the rows.
        several = len(axes) == rank == len(sizes) > 1 and min(math.prod(sizes[:-1]), sizes[-1]) >= MIN_ROW
        for part in [axes[-1:], axes[:-1]] if several else [axes] if axes else []:
            reduced = builder.reduce(reduced, part, begin, RULES[rule])
        for axis in axes if keepdim else ():
            reduced = unsqueezed(reduced, axis)
        return builder.converted(reduced, kind)

    return handler


def _iota(builder: FunctionBuilder, like: torch.Tensor, _: object, start: Any, step: int, **__: object) -> Value:
    """The numbers `start`, `start + step` and so on; the first may follow from sizes."""
    (count,), first = shape_of(like), expression(start)
    span = step * (count - 1 if isinstance(count, int) else (1 << 30) - 1)
    kind = torch.int32 if all(abs(x) < 1 << 30 for x in (first, span) if isinstance(x, int)) else like.dtype

    def body(inside: Body, _: Sequence[ElementValue]) -> ElementValue:
        number = inside.convert(inside.index(0), kind)
        number = number if step == 1 else RULES["mul"](inside, [number, step])
        if isinstance(first, int):
            return inside.convert(RULES["add"](inside, [number, first]) if first else number, like.dtype)
        return RULES["add"](inside, [inside.convert(x, like.dtype) for x in (number, builder.number(inside, first))])

    return builder.generic([], shape_of(like), like.dtype, body)


def _picked(
    builder: FunctionBuilder, like: torch.Tensor, value: Value, places: Mapping[int, Value], own: Mapping[int, int],
    behind: int = 0,
) -> Value:  # fmt: skip
    """Elements at the places along some dimensions, by these; dimension d of the others runs along dimension `own[d]`
    of the result, which has so many dimensions `behind` those of places. An element at a place that there is not is
    NaN, or 0 of integers."""
    shape, sizes = shape_of(like), [value.shape[d] for d in places]
    if any(place.dtype not in (torch.int32, torch.int64) for place in places.values()):
        raise UnsupportedError("places are integers of 32 or 64 bits")
    indices = [reduce(unsqueezed, range(len(x.shape), len(x.shape) + behind), x) for x in places.values()]

    missing = math.nan if value.dtype.is_floating_point else 0

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        coordinates: dict[int, SSAValue] = {d: inside.insert(IndexOp(loop)).result for d, loop in own.items()}
        inner = inside.number(1, i1)
        for d, place, size in zip(places, elements, sizes, strict=True):
            if not isinstance(size, int):
                place, size = (inside.convert(x, torch.int64) for x in (place, builder.number(inside, size)))
            wrapped = RULES["add"](inside, [place, size])
            at = RULES["where"](inside, [RULES["lt"](inside, [place, 0]), wrapped, place])
            for name, bound in (("ge", 0), ("lt", size)):
                inner = RULES["bitwise_and"](inside, [inner, RULES[name](inside, [at, bound])])
            near = RULES["where"](inside, [inner, at, 0])
            coordinates[d] = inside.insert(arith.IndexCastOp(near.value, IndexType())).result
        by_dimension = {of: coordinates[d] for d, of in enumerate(value.dims) if of is not None}
        zero = builder.index(0)
        at = [by_dimension.get(d, zero) for d in range(value.tensor.type.get_num_dims())]
        element = inside.insert(ExtractOp(value.tensor, at, value.tensor.type.element_type)).result
        return RULES["where"](inside, [inner, inside.loaded(element, value.dtype), missing])

    return builder.generic(indices, shape, value.dtype, body)


def _index(builder: FunctionBuilder, like: torch.Tensor, value: Value, places: Sequence[Value | None]) -> Value:
    """Indexing by tensors; their dimensions come first where these are apart."""
    along = {d: place for d, place in enumerate(places) if place is not None}
    first = min(along) if max(along) - min(along) < len(along) else 0
    behind = len(value.shape) - len(along) - first
    others = [d for d in range(len(value.shape)) if d not in along]
    loops = [*range(first), *range(like.dim() - behind, like.dim())]
    return _picked(builder, like, value, along, dict(zip(others, loops, strict=True)), behind)


def _gather(builder: FunctionBuilder, like: torch.Tensor, value: Value, dim: int, places: Value, **_: object) -> Value:
    at = dim % len(value.shape)
    return _picked(builder, like, value, {at: places}, {d: d for d in range(like.dim()) if d != at})


def _begun(builder: FunctionBuilder, like: torch.Tensor, starts: Value, *_: object) -> Value:
    """How many of the sequences that start somewhere have begun at each token."""

    def counted(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        begun = RULES["le"](inside, [elements[0], inside.index(0)])
        return RULES["add"](inside, [inside.convert(begun, torch.int32), elements[1]])

    each = replace(starts, dims=(None, *starts.dims), shape=(*shape_of(like), *starts.shape))
    return builder.reduce(each, [1], 0, counted)


CONSTANTS: Mapping[object, Lowering] = {
    **dict.fromkeys((aten.full.default, aten.full_like.default, aten.scalar_tensor.default), _constant),
    prims.iota.default: _iota,
}
"""Tensors of one number, and of numbers equally far apart."""

REDUCTIONS: Mapping[object, Lowering] = {
    **dict.fromkeys((aten.sum.dim_IntList, aten.sum.default, prims.sum.default), _reduction("add", 0.0)),
    aten.amax.default: _reduction("maximum", -math.inf),
    aten.amin.default: _reduction("minimum", math.inf),
    **dict.fromkeys((aten.any.dim, aten.any.dims, aten.any.default), _reduction("bitwise_or", 0)),
    **SCANS,
    aten.index.Tensor: _index,
    aten.gather.default: _gather,
    warploom.begun.default: _begun,
}
"""Operations that take elements along some dimensions together, or some of them."""

HANDLERS: Mapping[object, Lowering] = {**VIEWS, **PRODUCTS, **REDUCTIONS, **CONSTANTS}


@dataclass
class Importer:
    """Nodes of a graph as operations of a function. `values` are what they compute."""

    builder: FunctionBuilder = field(default_factory=FunctionBuilder)
    values: dict[Node, Value] = field(default_factory=dict[Node, Value])

    def argument(self, node: Node, name: str, order: MemoryOrder) -> None:
        """Makes the result of a node an argument of the function, which lies in memory in an order."""
        example, sizes = node.meta["val"], shape_of(node.meta["val"])
        value = self.builder.argument(name, order.shape(sizes), example.dtype)
        self.values[node] = replace(value, dims=order.dims, shape=sizes)

    def run(self, node: Node) -> None:
        """Appends the lowering of a node; an UnsupportedError names an operation that has none."""
        if node.op != "call_function":
            raise UnsupportedError(f"{node.op} {node.target} is not lowered")
        like = node.meta.get("val")
        if is_attention(node):
            graph, operands = taken_apart(node)
            self.values |= zip(graph.find_nodes(op="placeholder"), map(self.values.__getitem__, operands), strict=True)
            for each in graph.nodes:
                _ = each.op == "call_function" and self.run(each)
            made: Any = graph.output_node().args[0]
            self.values |= zip(results_of(node), map(self.values.__getitem__, made), strict=True)
        elif isinstance(like, torch.Tensor) and node not in self.values:  # no size: those are read from tensors
            self.values[node] = self._value(node, like)

    def _value(self, node: Node, like: torch.Tensor) -> Value:
        of, index = cast("tuple[Any, int]", node.args if node.target is operator.getitem else (node, 0))
        operands: Any = map_arg((of.args, of.kwargs), lambda x: cast("Any", self.values).get(x, x.meta.get("val")))
        args, kwargs = operands
        options = {k: v for k, v in kwargs.items() if k not in PLACES}
        try:
            element_of(like.dtype)
            if of.target in SPLITS:
                return shown(of.target, self.builder, like, *args, part=index, **options)
            if node.target in SCANS and not is_scan_of_rows(node):
                raise UnsupportedError(NO_FORM)
            if of is node and (handler := HANDLERS.get(node.target)) is not None:
                return handler(self.builder, like, *args, **options)
            if of is node and is_pointwise(node.target):
                return pointwise(self.builder, shape_of(like), like.dtype, node.target, args, kwargs)
            raise UnsupportedError(NO_FORM)
        except UnsupportedError as error:
            raise UnsupportedError(f"{of.target}: {error}") from error

    def module(self, name: str, nodes: Iterable[Node]) -> ModuleOp:
        """A module with a function that returns the results of `nodes`: each tensor once, and no argument."""
        results, taken = list[SSAValue](), list[SSAValue](self.builder.block.args)
        for node in nodes:
            value = self.values[node]
            own = self.builder.copied if value.tensor in taken else self.builder.dense
            taken.append(value.tensor)
            results.append(own(value).tensor)
        return self.builder.module(name, results)


class ImportedRegion(NamedTuple):
    """A part of a graph as a module of one function, which `text` prints, and how its tensors lie. Its last arguments
    are inputs of the graph that it takes only for their `sizes`."""

    module: ModuleOp
    layout: PartLayout
    text: str
    sizes: tuple[Node, ...]


def write(name: str, nodes: Sequence[Node], inputs: Sequence[Node], results: Sequence[Node]) -> ImportedRegion:
    """A function of a name, of the nodes `inputs`, that computes `nodes`, in order, and returns `results`;
    UnsupportedError if a node cannot be lowered to `linalg`."""
    importer, examples, orders, sought = Importer(), list[torch.Tensor](), list[MemoryOrder](), list[Node]()
    operands: Any = [node.args[SEMI_STRUCTURED[node.target] :][:2] for node in nodes if node.target in SEMI_STRUCTURED]
    sparse = {places: stored.meta["val"] for stored, places in operands}
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
            own = importer.builder.argument(name, (*sizes, 2 * last), UINT4)
            importer.values |= dict.fromkeys(halves[node], own)
        else:
            importer.argument(node, name, order_of(example))
        examples.append(example)
        orders.append(order_of(example))

    def seek(size: Any) -> None:
        if (node := sized_input(results[0].graph, size, results[0].meta["val"].device)) is not None:
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
    layout = PartLayout(tuple(orders), tuple(x.dtype for x in examples), tuple(written), metadata)
    return ImportedRegion(module, layout, str(module), tuple(sought))


MAX_EXPONENT = 64
"""Up to this, an approximate power is off by 2^-16 of itself."""


def approximate(module: ModuleOp) -> None:
    """Allows the approximate instructions of the GPU for exponentials, powers and quotients in f32."""
    for op in module.walk():
        if isinstance(op, math_ops.ExpOp | math_ops.PowFOp | arith.DivfOp) and op.results[0].type == f32:
            exponent = float_value(op.rhs) if isinstance(op, math_ops.PowFOp) else 0
            if exponent is not None and abs(exponent) <= MAX_EXPONENT:
                op.properties["fastmath"] = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def _place(size: Any, examples: Sequence[torch.Tensor]) -> tuple[int, int]:
    for number, example in enumerate(examples):
        if size in (sizes := shape_of(example)):
            return number, sizes.index(size)
    raise UnsupportedError(f"the size {size} of the result is none of an operand")


KERNELS: dict[tuple[object, ...], Kernel | WarploomError] = {}
"""Equal parts of graphs share a kernel, or the reason why they have none."""


def compile_together(
    parts: Iterable[ImportedRegion], device: torch.device, options: BackendOptions, ready: Callable[[str], object]
) -> None:
    """Compiles the kernels of parts for a device, for `kernel_for`, several at a time in processes. Their machine code
    is in the cache then, where there is ptxas: the driver assembles one after the other. `ready` is called with the
    text of each part that has a kernel now, while others are compiled."""
    missing = {key: part for part in parts if (key := _key(part, device, options)) not in KERNELS}
    if not missing or cores() == 1:
        return
    keys = sorted(missing, key=lambda key: -len(missing[key].text))

    def work(number: int) -> tuple[int, Kernel | WarploomError]:
        kernel = _compiled(missing[keys[number]].module, device, options)
        if device.type == "cuda" and isinstance(kernel, Kernel):
            cached_code(kernel)
        return number, kernel

    def keep(result: tuple[int, Kernel | WarploomError]) -> None:
        number, kernel = result
        KERNELS[keys[number]] = kernel
        ready(missing[keys[number]].text)

    from ..interp.parallel import side_by_side  # with the interpreter, of which the import of the backend has no use

    # What this process imports for one of them, later ones have.
    side_by_side(work, len(keys) - 1, keep, lambda: keep(work(len(keys) - 1)))


def kernel_for(part: ImportedRegion, device: torch.device, options: BackendOptions) -> Kernel:
    """The kernel of a region for a device, which equal regions share; CompileError if there is none."""
    key = _key(part, device, options)
    if key not in KERNELS:
        KERNELS[key] = _compiled(part.module, device, options)
    if isinstance(kernel := KERNELS[key], WarploomError):
        raise kernel
    return kernel


def _key(part: ImportedRegion, device: torch.device, options: BackendOptions) -> tuple[object, ...]:
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


WHOLE = tuple(getattr(aten, x).default for x in ("matmul", "mv", "dot", "addmv", "scaled_dot_product_attention"))
"""Products and attention, which torch would write as copies and others, or as sums."""


def torch_to_linalg(
    function: Callable[..., object], *examples: torch.Tensor, dynamic: Sequence[Mapping[int, str] | None] = ()
) -> str:
    """Export the graph of a function, or a `torch.nn.Module`, as MLIR text: a module of one `func.func` of `linalg` on
    tensors, which upstream's `mlir-opt` reads too. Its arguments are the parameters and buffers of the module, and then
    the tensors of a call, all in row-major order. A bool is one byte.

    `examples` are tensors with which the function can be called. Their shapes and types become those of the MLIR
    function. `dynamic` names the dynamic dimensions of each example: `dynamic=({0: "batch"},)`.

    Raises:
        ArgumentError: for what is no function, no tensor, or no dimension of an example.
        CompileError: naming the line of the function and the operation, if the importer has no `linalg` for an
        operation, or if torch cannot export the function.
    """
    if not callable(cast("object", function)):
        raise ArgumentError(f"expected a function or a torch.nn.Module, got {type(function).__name__}")
    for position, example in enumerate(examples):
        if not isinstance(cast("object", example), torch.Tensor):
            raise ArgumentError(f"example {position}: expected a tensor, got {type(example).__name__}")
    try:
        named = [(examples[at], d, name) for at, sizes in enumerate(dynamic) for d, name in (sizes or {}).items()]
        fits = all(d in range(-x.dim(), x.dim()) and name.isidentifier() for x, d, name in named)
    except (AttributeError, IndexError, TypeError):  # where it is no sequence of mappings to names, or a longer one
        fits = False
    if not fits:
        raise ArgumentError(
            f"dynamic: expected names of dimensions of each example, as ({{0: 'batch'}},), got {dynamic}"
        )
    importer, program = Importer(), _exported(function, examples, dynamic)
    name = getattr(function, "__name__", type(function).__name__)
    sink_views(program.graph)
    *nodes, node = program.graph.nodes
    returned: list[Any] = pytree.tree_leaves(node.args)
    try:
        for node in nodes:
            if node.op == "placeholder":
                importer.argument(node, str(node.target), row_major(node.meta["val"].dim()))
            else:
                importer.run(node)
        if not returned or not all(map(is_tensor, returned)):
            raise UnsupportedError("expected a function that returns tensors")
    except UnsupportedError as error:
        raise CompileError(f"{place_of(node) or f'@{name}'}: {error}") from error
    return str(importer.module(re.sub(r"\W", "_", name), returned)) + "\n"


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """A program in operations that have a form here, where they have one."""
    table: dict[Any, Any] = {**torch.export.default_decompositions(), **simpler()}
    with recurrent():
        return cast("Any", program).run_decompositions({k: v for k, v in table.items() if k not in WHOLE})


def _exported(
    function: Callable[..., object], examples: Sequence[torch.Tensor], dynamic: Sequence[Mapping[int, str] | None]
) -> ExportedProgram:
    module: Any = function if isinstance(function, torch.nn.Module) else torch.nn.Module()
    if module is not function:
        module.forward = _named_forward(function)
    dims = {name: torch.export.Dim(name, min=2) for sizes in dynamic for name in (sizes or {}).values()}
    # torch reads one argument in the place of all that are the same tensor.
    examples = [x.detach() if any(x is y for y in examples[:at]) else x for at, x in enumerate(examples)]
    shapes: Any = torch.export.ShapesCollection()
    for example, sizes in zip(examples, dynamic, strict=False):
        shapes[example] = {d: dims[name] for d, name in (sizes or {}).items()}
    try:
        return decomposed(torch.export.export(module, tuple(examples), dynamic_shapes=shapes))
    except Exception as error:
        raise CompileError(f"torch.export: {str(error).strip() or type(error).__name__}") from error


def _named_forward(function: Callable[..., object]) -> Callable[..., object]:
    """The function with a code object called `forward`, for torch records source lines of that name only."""
    if isinstance(function, MethodType):
        return MethodType(_named_forward(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return lambda *examples: function(*examples)
    code = function.__code__.replace(co_name="forward")
    named = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    named.__kwdefaults__ = function.__kwdefaults__
    return named
