"""From MLIR text to a kernel: parsing, the standard pipeline, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, cast

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, SymbolRefAttr, TensorType, i32
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import DiagnosticException, ParseError

from ...dialect.isa.row import UnknownTargetError, named
from ...dialect.isa.row import target as target_row
from ...dialect.ptx.ops import FuncOp as PtxFuncOp
from ...dialect.ptx.ops import ModuleOp as PtxModuleOp
from ...dialect.ptx.printer import print_ptx, ptx_module
from ...dialect.schedule import ScheduleError, parse_options
from ...dialect.warp.attributes import UNUSED, schedule_on, target_of
from ...passes.allocate import allocate
from ...passes.diagnostics import describe, verify
from ...passes.pipeline import DEFAULT_TARGET, PARTS, STRATEGY, can_apply, contents, lower, phase, standard_pipeline
from ...passes.source import begins_as_ptx
from ...passes.universe import make_context, parse_mlir
from ..arguments.signature import Signature
from ..base.errors import CompileError, HostError
from ..base.launch import Dim3
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
        function = host.signature(chosen(module, name, tf32=tf32))
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
    module: ModuleOp, target: str | None, tf32: bool, tuned: str | None, schedule: Mapping[str, ScheduleOption]
) -> None:
    """Lowers a module in place to kernels over fragments. Arguments and errors are those of `compile`."""
    with as_compile_errors():
        pipeline = _pipeline(target or target_name(module), schedule, tf32, tuned)
        _apply_strategies(module, target or target_name(module), None)
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
    if begins_as_ptx(mlir):
        raise CompileError(f"{file}: expected MLIR, got PTX; load_ptx, and `warploom run` of a .ptx file, launch PTX")
    try:
        with phase("parse", on_phase), as_compile_errors():
            return parse_mlir(make_context(), mlir, file)
    except RecursionError as error:
        raise CompileError(f"{file}: nested too deeply") from error


def _kernel_of(
    module: ModuleOp, function: Signature, results: int, target: str, file: str, on_phase: OnPhase | None
) -> Kernel:
    lowered = host.choose(module, function.name)
    plan = host.plan(lowered)
    launching = host.text_of(lowered) if plan.dynamic else ""
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
