"""Host functions: what they are called with, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from math import lcm, prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from xdsl.dialects import func, gpu, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    TensorType,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.printer import Printer
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, Nest, loops_of
from ...dialect.mlir.contraction import METADATA
from ...dialect.warp.attributes import UNUSED, memory_of
from ...dialect.warp.cta import IsDivisibleOp
from ...dialect.warp.elements import M, N, companion_loops
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import METADATA_ROWS
from ...passes.diagnostics import place_of
from ...passes.linalg.operand import EXTENTS, promised, root
from ...passes.patterns import constant_value
from ...passes.universe import make_context, parse_mlir
from ..arguments.signature import Metadata, Parameter, Signature
from ..base.errors import HostError
from ..base.launch import ELEMENT_NAMES, Plan, Problem, memory_bytes
from .plan import layout_key, plan

if TYPE_CHECKING:
    from ..arguments.launch_values import LaunchValue

REMEMBERED = 256
"""Plans of calls that are kept of a function."""

Structured: TypeAlias = LinalgStructuredOperation | MatmulOp


def text_of(function: func.FuncOp) -> str:
    """A lowered host function as text, with the constants that it uses and the places of its operations."""
    out = StringIO()
    module, used = function.parent_op(), {op.name_ for op in function.walk() if isinstance(op, memref.GetGlobalOp)}
    constants = module.ops if isinstance(module, ModuleOp) and used else ()
    names = {name.string_value() for name in used}
    printer = Printer(out, print_generic_format=True, print_debuginfo=True)
    for op in (*(o for o in constants if isinstance(o, memref.GlobalOp) and o.sym_name.data in names), function):
        printer.print_op(op)
        out.write("\n")
    return out.getvalue()


def planner(text: str, name: str) -> Callable[[Sequence[LaunchValue]], Plan]:
    """A function that plans a call from its arguments. `text` is the lowered host function, printed by `text_of`. The
    plan depends on the layouts of the arguments alone. Calls with equal layouts share one plan."""
    function = choose(parse_mlir(make_context(), text, name), name)
    asked = (op for op in function.walk() if isinstance(op, IsDivisibleOp))
    bytes_ = lcm(*(memory_bytes(str(memory_of(op.memory).element_type), op.number) for op in asked))
    indices = [argument.index for argument in function.body.block.args if isinstance(argument.type, IndexType)]
    plans: dict[tuple[object, ...], Plan] = {}

    def plan_of(values: Sequence[LaunchValue]) -> Plan:
        key = (*(layout_key(value, bytes_) for value in values), *(int(cast("Any", values[i])) for i in indices))
        if (made := plans.get(key)) is None:
            made = plan(function, values)
            if len(plans) >= REMEMBERED:
                plans.clear()
            plans[key] = made
        return made

    return plan_of


def choose(module: ModuleOp, name: str | None) -> func.FuncOp:
    """The function called `name`, or the only one. Raises HostError naming the functions there are."""
    functions = (op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration)
    by_name = {op.sym_name.data: op for op in functions}
    if name is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(f"@{n}" for n in by_name) or "none"
    if name is None:
        kernels = any(isinstance(op, gpu.ModuleOp) for op in module.ops)
        launch = "launch a kernel of its gpu.module with a grid and a block"
        fix = "name one (name=, --function)" if by_name else launch if kernels else "wrap the operations in a func.func"
        raise HostError(f"expected a module with one function, got {len(by_name)} ({names}); {fix}")
    if name not in by_name:
        raise HostError(f"no function @{name} in the module; it has {names}")
    return by_name[name]


def signature(function: func.FuncOp) -> Signature:
    """The parameters of `function` and which of them it writes, from its type, its `linalg` operations and its
    `warp.matmul`. A function that is already lowered counts as writing every array. Raises HostError for a parameter
    that no numpy array can be, and for a function of several blocks."""
    if len(function.body.blocks) != 1:
        raise HostError(
            f"@{function.sym_name.data}: expected a function of one block; scf.for and scf.if replace branches"
        )
    arguments = function.body.block.args
    parameters = tuple(_parameter(function, argument) for argument in arguments)
    structured = [op for op in function.body.walk() if isinstance(op, LinalgStructuredOperation | MatmulOp)]
    if not structured and UNUSED not in function.attributes:
        everything = frozenset(i for i, p in enumerate(parameters) if p.shape is not None)
        return Signature(function.sym_name.data, parameters, everything, frozenset())
    outputs = (root(v) for op in structured for v in ((op.d,) if isinstance(op, MatmulOp) else op.outputs))
    written = {v.index for v in outputs if isinstance(v, BlockArgument)}
    filled = {a.index for a in arguments if _filled_first(a, structured)}
    products = tuple(product for op in structured if (product := _product(op)) is not None)
    ties = _ties(structured, _same_sizes(function), parameters)
    sparse = tuple(metadata for op in structured if (metadata := _metadata(op)) is not None)
    of_results = function.attributes.get(EXTENTS)
    computed = tuple(each.data for each in of_results) if isa(of_results, ArrayAttr[AffineMapAttr]) else ()
    return Signature(
        function.sym_name.data, parameters, frozenset(written), frozenset(filled), products, ties, sparse, computed
    )


def _metadata(op: Structured) -> Metadata | None:
    """The metadata of a product with a sparse A, if it is an argument."""
    number = op.attributes.get(METADATA)
    if isinstance(op, MatmulOp):
        position = root(op.metadata) if op.metadata is not None else None
        place = position.index if isinstance(position, BlockArgument) else None
    else:
        place = number.value.data if isinstance(number, IntegerAttr) else None
    a, _ = _accesses(op)[0]
    of = a.index if isinstance(a, BlockArgument) else -1
    if place is None or not _is_array(a.type):
        return None
    return Metadata(place, str(a.type.element_type), of, METADATA_ROWS)


Places = set[tuple[SSAValue, int]]
"""Dimensions of one size."""


def _same_sizes(function: func.FuncOp) -> list[Places]:
    """The dimensions of memory, and of views, whose sizes are said to be those of other memory."""
    same = list[Places]()
    for op in function.walk():
        match op:
            case memref.AllocOp():
                sizes = op.dynamic_sizes
            case memref.SubviewOp():
                sizes = op.sizes
            case memref.ExpandShapeOp():
                sizes = op.output_shape
            case _:
                continue
        unknown = [d for d, size in enumerate(memory_of(op.results[0]).get_shape()) if size < 0]
        for dimension, size in zip(unknown, sizes, strict=False):
            if isinstance(dim := size.owner, memref.DimOp) and (other := constant_value(dim.index)) is not None:
                same.append({(op.results[0], dimension), (dim.source, other)})
    return same


def _ties(
    ops: Sequence[Structured], same: Sequence[Places], parameters: tuple[Parameter, ...]
) -> tuple[frozenset[tuple[int, int]], ...]:
    """The dimensions of arguments that run along one loop, where not all of their extents are known; loops of different
    operations are one where they go through the same memory."""
    groups = list[Places]()
    for op in (*same, *ops):
        loops: dict[int, Places] = {}
        for value, along in () if isinstance(op, set) else (*_accesses(op), *_scales(op)):
            for dimension, loop in enumerate(along):
                if loop != FIXED:
                    loops.setdefault(loop, set()).add((value, dimension))
        for places in [op] if isinstance(op, set) else loops.values():
            apart = [group for group in groups if group.isdisjoint(places)]
            groups = [*apart, places.union(*(group for group in groups if not group.isdisjoint(places)))]

    def unknown(position: int, dimension: int) -> bool:
        shape = parameters[position].shape or ()
        return dimension < len(shape) and shape[dimension] < 0

    ties = (frozenset((v.index, d) for v, d in group if isinstance(v, BlockArgument)) for group in groups)
    return tuple(tie for tie in ties if any(unknown(*place) for place in tie))


def _product(op: Structured) -> Problem | None:
    """The sizes of a matrix product: loops over rows of A and C, columns of B and C, A and B, and all three."""
    # More inputs than two are scalars, such as zero points.
    accesses = [(value, loops) for value, loops in _accesses(op) if loops]
    if len(accesses) != 3:
        return None
    sizes: dict[int, int] = {}
    for value, loops in accesses:
        shape = value.type.get_shape() if _is_array(value.type) else ()
        if len(shape) != len(loops) or min(shape) < 0:
            return None
        sizes = dict(zip(loops, shape, strict=True)) | sizes
    a, b, c = (set(loops) for _, loops in accesses)
    kinds = ((a & c) - b, (b & c) - a, (a & b) - c, a & b & c)
    if FIXED in sizes or not kinds[2] or set().union(*kinds) != sizes.keys():
        return None
    return Problem(*(prod(sizes[loop] for loop in loops) for loops in kinds))


def _accesses(op: Structured) -> list[tuple[SSAValue, tuple[int, ...]]]:
    """What an operation reads, then writes (of `warp.matmul` matrices alone), with the loops of the dimensions."""
    if isinstance(op, MatmulOp):
        return list(zip((*op.matrices, op.d), map(loops_of, op.maps), strict=False))
    return [(access.value, access.loops) for access in Nest.of(op).accesses]


def _scales(op: Structured) -> list[tuple[SSAValue, tuple[int, ...]]]:
    """The scales of blocks of A and B, which have no loop along K."""
    if not isinstance(op, MatmulOp):
        return []
    loops = (companion_loops(map_, own, op.outer)[:-1] for map_, own in zip(op.maps, (M, N), strict=False))
    return [(value, (*along, FIXED)) for value, along in zip(op.scales, loops, strict=False)]


def _is_array(kind: Attribute) -> TypeGuard[MemRefType[Any] | TensorType[Any]]:
    return isinstance(kind, MemRefType | TensorType)


def _filled_first(argument: BlockArgument, ops: list[Structured]) -> bool:
    """Whether the first operation on an argument overwrites it without reading it."""
    touched = ((op, op.memories if isinstance(op, MatmulOp) else op.operands) for op in ops)
    first = next((op for op, values in touched if argument in map(root, values)), None)
    if first is not None and not isinstance(first.parent_op(), func.FuncOp):
        return False  # it may have no turn
    if isinstance(first, MatmulOp):
        others = (*first.factors, *first.epilogue_operands)
        return first.c is None and argument == first.d and argument not in map(root, others)
    if first is None or argument in map(root, first.inputs) or argument not in first.outputs:
        return False
    nest = Nest.of(first)
    access = next(access for access in nest.writes if access.value is argument)
    every = sorted(loop for loop in access.loops if loop != FIXED) == list(range(nest.loops))
    return every and not access.element.uses


def _parameter(function: func.FuncOp, argument: BlockArgument) -> Parameter:
    name = argument.name_hint or f"arg{argument.index}"
    kind, strides = argument.type, None
    if not _is_array(kind):
        element, shape = "i64" if isinstance(kind, IndexType) else str(kind), None
    else:
        element, shape = str(kind.get_element_type()), kind.get_shape()
        if isinstance(kind, MemRefType) and not isinstance(kind.layout, NoneAttr):
            steps = kind.layout.get_strides()
            if steps is None:
                raise _refused(function, argument, f"expected a row-major or strided memref, got {kind}")
            strides = tuple(steps)
    if element not in ELEMENT_NAMES:
        listed = ", ".join(ELEMENT_NAMES)
        raise _refused(function, argument, f"no array can be passed as {kind}; element types are {listed}")
    return Parameter(name, element, shape, strides, promised(argument))


def _refused(function: func.FuncOp, argument: BlockArgument, message: str) -> HostError:
    name = argument.name_hint or f"arg{argument.index}"
    return HostError(f"{place_of(function)}@{function.sym_name.data}: parameter {argument.index} (%{name}): {message}")


__all__ = ["Plan", "Signature", "choose", "plan", "planner", "signature", "text_of"]
