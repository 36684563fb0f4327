"""From MLIR text to a kernel: parsing, the standard pipeline, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from xdsl.dialects import func, gpu, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    SymbolRefAttr,
    TensorType,
    i32,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import DiagnosticException, ParseError
from xdsl.utils.hints import isa

from ...dialect.isa.row import UnknownTargetError, named
from ...dialect.isa.row import target as target_row
from ...dialect.mlir.affine import FIXED, Nest, loops_of
from ...dialect.mlir.contraction import METADATA
from ...dialect.ptx.ops import FuncOp as PtxFuncOp
from ...dialect.ptx.ops import ModuleOp as PtxModuleOp
from ...dialect.ptx.ops import print_ptx
from ...dialect.ptx.printer import ptx_module
from ...dialect.schedule import ScheduleError, parse_options
from ...dialect.warp.attributes import UNUSED, memory_of, schedule_on, target_of
from ...dialect.warp.elements import M, N, companion_loops
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import METADATA_ROWS
from ...passes.allocate import allocate
from ...passes.diagnostics import describe, place_of, verify
from ...passes.linalg.operand import EXTENTS, promised, root
from ...passes.patterns import constant_value
from ...passes.pipeline import DEFAULT_TARGET, PARTS, STRATEGY, can_apply, contents, lower, phase, standard_pipeline
from ...passes.source import begins_as_ptx
from ...passes.universe import make_context, parse_mlir
from ..base.errors import CompileError, HostError
from ..base.launch import ELEMENT_NAMES, Dim3, Metadata, Parameter, Problem, Signature
from ..plan import host
from .kernel import Kernel, OnPhase, ScheduleOption

if TYPE_CHECKING:
    from ...passes.strategy.handle import Handle
    from .module import PtxModule

StrategyText: TypeAlias = tuple[str, str]
"""The text of a strategy, and what messages call it."""

LAST = "convert-warp-to-ptx"
"""The pass that leaves the level of fragments."""


def lowered(
    module: ModuleOp,
    target: str | None,
    name: str | None,
    file: str,
    on_phase: OnPhase | None,
    tf32: bool,
    tuned: str | None,
    schedule: Mapping[str, ScheduleOption],
    strategy: StrategyText | Callable[[Handle], None] | None = None,
) -> Kernel:
    """The kernel of a module's function, lowered in place. Arguments and errors are those of `compile`."""
    target = target or target_name(module)
    with as_compile_errors():
        pipeline = _pipeline(target, schedule, tf32, tuned)
        _apply_strategies(module, target, strategy)
        returned = {f.sym_name.data: len(f.function_type.outputs) for f in module.ops if isinstance(f, func.FuncOp)}
        function = signature_of(chosen(module, name, tf32=tf32))
        lower(module, make_context(), pipeline, on_phase)
        kernel = _kernel_of(module, function, returned[function.name], target, file, on_phase)
        # Rows and elementwise operations are the same for every number of rows as they are.
        asked = {name: value for name, value in schedule.items() if name != "batch_invariant"}
        if asked and kernel.plan.launches and not any(kernel.schedules.values()):
            fields = ", ".join(f"{name}={value}" for name, value in asked.items())
            raise CompileError(
                f"{file}: @{function.name} cannot have {fields}: its kernels have no schedule, because none "
                "of them is a product on tensor cores or an attention"
            )
        return kernel


def _apply_strategies(module: ModuleOp, target: str, strategy: StrategyText | Callable[[Handle], None] | None) -> None:
    """Applies a strategy, and that of the module where it has one, before anything else does."""
    if strategy is None and not can_apply(STRATEGY, module):
        return
    from ...passes.strategy.transform import apply_strategy, read_strategy

    ctx = make_context()
    lower(module, ctx, f"warp-set-target{{arch={target}}},{STRATEGY}")
    if strategy is not None:
        apply_strategy(ctx, module, strategy if callable(strategy) else read_strategy(ctx, *strategy))


def strategy_variants(
    text: str, file: str, target: str | None, strategy: StrategyText | Callable[[Handle], None]
) -> Iterator[tuple[tuple[int, ...], ModuleOp]]:
    """A module by each choice of a strategy's alternatives, with the choices. Raises CompileError for a strategy that
    applies in no way."""
    from ...passes.strategy.transform import read_strategy, variants

    module, ctx = parse(text, file), make_context()
    with as_compile_errors():
        lower(module, ctx, f"warp-set-target{{arch={target or target_name(module)}}}")
        yield from variants(ctx, module, strategy if callable(strategy) else read_strategy(ctx, *strategy))


def to_fragments(
    module: ModuleOp, target: str | None, tf32: bool, tuned: str | None, schedule: Mapping[str, ScheduleOption],
    strategy: StrategyText | None,
) -> None:  # fmt: skip
    """Lowers a module in place to kernels over fragments. Arguments and errors are those of `compile`."""
    with as_compile_errors():
        pipeline = _pipeline(target or target_name(module), schedule, tf32, tuned)
        _apply_strategies(module, target or target_name(module), strategy)
        without_tensors(module, tf32=tf32)
        lower(module, make_context(), pipeline.removesuffix(f",{LAST}"))


def kernels(module: ModuleOp, target: str | None, file: str, block: Dim3 | None = None) -> PtxModule:
    """Lowers the kernels of a module's only `gpu.module`, without launches, and adds the shared memory of each. Kernels
    without a block size are compiled for blocks of `block` threads. Raises CompileError as `compile`, or if there is no
    `gpu.module`, or more than one."""
    modules = [op for op in module.ops if isinstance(op, gpu.ModuleOp)]
    if len(modules) != 1:
        names = ", ".join(f"@{op.sym_name.data}" for op in modules) or "none"
        raise CompileError(f"{file}: expected one gpu.module, whose kernels are launched, got {len(modules)} ({names})")
    target = target or target_name(module)
    size = None if block is None else DenseArrayBase.from_list(i32, block)
    for kernel in modules[0].walk():
        if isinstance(kernel, gpu.FuncOp) and kernel.known_block_size is None:
            kernel.known_block_size = size
    with as_compile_errors():
        target_row(target)
        finish = PARTS["finish"].of(standard_pipeline()).removesuffix(f",{LAST}")
        lower(module, make_context(), f"warp-set-target{{arch={target}}},{finish}")
        shared = {op.sym_name.data: allocate(op) for op in module.walk() if isinstance(op, gpu.FuncOp)}
        lower(module, make_context(), LAST)
        from .module import PtxModule

        return PtxModule(print_ptx(ptx_module(module)), f"<PTX of {file}>", shared)


def _pipeline(target: str, schedule: Mapping[str, ScheduleOption], tf32: bool, tuned: str | None) -> str:
    target_row(target)
    read = parse_options(schedule).items()
    fields = {name: cast(tuple[int, ...], v) if type(v) is tuple else str(v) for name, v in read}
    return standard_pipeline(target, fields, tf32=tf32, tuned=tuned)


def target_name(module: ModuleOp, otherwise: str = DEFAULT_TARGET) -> str:
    """The target that a module says it is for, or another where it says none. Raises CompileError for a `warp.target`
    that is none."""
    with as_compile_errors():
        own = target_of(module)
    return otherwise if own is None else own.name


def chosen(module: ModuleOp, name: str | None, *, tf32: bool = False, kept: Collection[str] = ()) -> func.FuncOp:
    """The function called `name`, or the only one, converted by `without_tensors`. Functions that the named one does
    not call are erased first. Raises CompileError, as `without_tensors`; HostError, naming the functions there are."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
    if name in functions:
        used = [name]
        for symbol in used:
            inside = functions.pop(symbol).walk() if symbol in functions else ()
            attributes = (a for op in inside for a in (*op.properties.values(), *op.attributes.values()))
            used += [a.root_reference.data for a in attributes if isinstance(a, SymbolRefAttr)]
        for unused in functions.values():
            Rewriter.erase_op(unused)
    without_tensors(module, tf32=tf32, kept=kept)
    return host.choose(module, name)


def without_tensors(module: ModuleOp, *, tf32: bool = False, kept: Collection[str] = ()) -> None:
    """Verifies a module, and converts its functions on tensors to functions on memory, in place. Results become
    arguments that follow the others. Calls are inlined; functions of `math` that are `kept` stay. Raises
    CompileError for what a verifier refuses, an operation on tensors that is not bufferised, or a call that cannot
    be inlined."""
    with as_compile_errors():
        verify(module)
    if not can_apply("warp-bufferize", module):
        return
    from ...passes.linalg.generalize import GENERALIZED, generalize

    if not contents(module).isdisjoint(GENERALIZED):
        with as_compile_errors():
            generalize(module, kept)
    kinds = [f.function_type for f in module.ops if isinstance(f, func.FuncOp) and not f.is_declaration]
    if any(kind.outputs or any(isinstance(t, TensorType) for t in kind.inputs) for kind in kinds):
        from ...passes.linalg.bufferize import bufferize

        with as_compile_errors():
            verify(module)
            bufferize(module, tf32=tf32)


def parse(mlir: str, file: str = "<mlir>", on_phase: OnPhase | None = None) -> ModuleOp:
    """The module that MLIR text describes, not yet verified. Raises CompileError with file, line and column, if the
    text is no MLIR."""
    try:
        with phase("parse", on_phase), as_compile_errors():
            return parse_mlir(make_context(), mlir, file)
    except CompileError as error:
        if not begins_as_ptx(mlir):
            raise
        said = f"{file}: expected MLIR, got PTX; load_ptx, and `warploom run` of a .ptx file, launch PTX"
        raise CompileError(said) from error
    except RecursionError as error:
        raise CompileError(f"{file}: nested too deeply") from error


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


def _kernel_of(
    module: ModuleOp, function: Signature, results: int, target: str, file: str, on_phase: OnPhase | None
) -> Kernel:
    lowered = host.choose(module, function.name)
    plan = host.plan(lowered)
    launching = text_of(lowered) if plan.dynamic else ""
    device_modules = {op.sym_name.data: op for op in module.ops if isinstance(op, PtxModuleOp)}
    used = {launch.module for launch in plan.launches}
    empty = all(0 in (function.parameters[number].shape or ()) for number in function.written)
    last = len(function.parameters)
    returned = range(last - results, last)  # also those that nothing is written to
    function = function._replace(written=function.written.union(returned))
    if not used and (UNUSED in lowered.attributes or (function.written and empty)):
        version = ".".join(map(str, named(target).ptx))
        text = print_ptx(PtxModuleOp(function.name, [], version=version, target=target))
        return Kernel(function, plan, {}, text, target, file, launching)
    if not plan.launches:
        raise HostError(f"@{function.name} launches no kernel: there is no product and no elementwise operation in it")
    if len(used) != 1 or not used <= device_modules.keys():
        names = ", ".join(f"@{n}" for n in device_modules) or "none"
        raise HostError(
            f"@{function.name}: expected launches from one ptx.module of the module ({names}), got {sorted(used)}"
        )
    device = device_modules[used.pop()]
    with phase("print", on_phase):
        text = print_ptx(device)
    kernels = {op.sym_name.data: op for op in device.body.block.ops if isinstance(op, PtxFuncOp)}
    for launch in plan.launches:
        if launch.kernel not in kernels:
            raise HostError(
                f"gpu.launch_func: @{launch.module} has no kernel @{launch.kernel}; it has {', '.join(kernels)}"
            )
    schedules = {name: schedule_on(kernel) for name, kernel in kernels.items()}
    return Kernel(function, plan, schedules, text, target, file, launching)


@contextmanager
def as_compile_errors() -> Generator[None]:
    """Turn what the compiler raises for bad input into CompileError."""
    try:
        yield
    except (ParseError, DiagnosticException, ScheduleError, UnknownTargetError) as error:
        raise CompileError(describe(error).removeprefix("error: ")) from error


# What a host function is called with, and what it writes.

Structured: TypeAlias = LinalgStructuredOperation | MatmulOp


def signature_of(function: func.FuncOp) -> Signature:
    """The parameters of `function` and which of them it writes, from its type, its `linalg` operations and its
    `warp.matmul`. A function that is already lowered counts as writing every array. Raises HostError for a parameter
    that no numpy array can be, and for a function of several blocks."""
    name = function.sym_name.data
    if len(function.body.blocks) != 1:
        raise HostError(f"@{name}: expected one block; scf.for and scf.if replace branches")
    arguments = function.body.block.args
    parameters = tuple(_parameter(function, argument) for argument in arguments)
    structured = [op for op in function.body.walk() if isinstance(op, LinalgStructuredOperation | MatmulOp)]
    if not structured and UNUSED not in function.attributes:
        everything = frozenset(i for i, p in enumerate(parameters) if p.shape is not None)
        return Signature(name, parameters, everything, frozenset())
    outputs = (root(v) for op in structured for v in ((op.d,) if isinstance(op, MatmulOp) else op.outputs))
    written = {v.index for v in outputs if isinstance(v, BlockArgument)}
    filled = {a.index for a in arguments if _filled_first(a, structured)}
    products = tuple(product for op in structured if (product := _product(op)) is not None)
    ties = _ties([*_same_sizes(function), *chain.from_iterable(map(_along_loops, structured))], parameters)
    sparse = tuple(metadata for op in structured if (metadata := _metadata(op)) is not None)
    of_results = function.attributes.get(EXTENTS)
    computed = tuple(each.data for each in of_results) if isa(of_results, ArrayAttr[AffineMapAttr]) else ()
    return Signature(name, parameters, frozenset(written), frozenset(filled), products, ties, sparse, computed)


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


def _same_sizes(function: func.FuncOp) -> Iterator[Places]:
    """The dimensions of memory, and of views, whose sizes are said to be those of other memory."""
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
                yield {(op.results[0], dimension), (dim.source, other)}


def _along_loops(op: Structured) -> Collection[Places]:
    """The dimensions that run along each loop of an operation."""
    loops: dict[int, Places] = {}
    for value, along in (*_accesses(op), *_scales(op)):
        for dimension, loop in enumerate(along):
            if loop != FIXED:
                loops.setdefault(loop, set()).add((value, dimension))
    return loops.values()


def _ties(same: Iterable[Places], parameters: tuple[Parameter, ...]) -> tuple[frozenset[tuple[int, int]], ...]:
    """The dimensions of arguments that are of one size, where not all of their extents are known; loops of different
    operations are one where they go through the same memory."""
    groups = list[Places]()
    for places in same:
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
