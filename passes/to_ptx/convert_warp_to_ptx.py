"""`convert-warp-to-ptx`: kernels over fragments become what each thread executes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, count
from math import prod

from xdsl.context import Context
from xdsl.dialects import gpu
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ...dialect.isa.targets import Target, Version
from ...dialect.ptx import ops as ptx
from ...dialect.ptx.declarations import VarOp
from ...dialect.ptx.text.syntax import Variable
from ...dialect.schedule import SHARED_ALIGNMENT
from ...dialect.warp.attributes import COMPUTES, ScheduleAttr, target_of
from ...dialect.warp.clusters import CLUSTER_SIZE, CLUSTER_SM, MOST_CTAS
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.warpgroup import SetRegistersOp
from ..allocate import allocate_all
from ..diagnostics import fail, warn
from ..linalg.product import PTX_NAME, fresh_name
from ..tile.index_builder import constant_value
from .arguments import parameters
from .kernel import KernelLowering

FOREIGN = re.compile(r"[^A-Za-z0-9_$]")
"""What the name of a value may have and that of a parameter may not."""

DYNAMIC = re.compile(r"(_(size|stride)\d+)+$")
"""What `arguments.parameters` adds to the name of an argument, for its dynamic sizes and strides."""

SHARED_SYMBOL = "shared_tiles"
"""The name of the CTA's dynamic shared memory in the text, unless a kernel has it."""


def _check_launches(kernel: gpu.FuncOp, symbol: SymbolRefAttr, needed: int) -> None:
    """Every launch must give a kernel the shared memory that its tiles take."""
    module = kernel.get_toplevel_object()
    for launch in [o for o in module.walk() if isinstance(o, gpu.LaunchFuncOp)] if isinstance(module, ModuleOp) else ():
        size = launch.dynamicSharedMemorySize
        given = constant_value(size) if size is not None else 0
        if launch.kernel == symbol and given is not None and given < needed:
            fail(
                launch, f"expected at least {needed} bytes of dynamic shared memory for the kernel's tiles, got {given}"
            )


def _kernel(kernel: gpu.FuncOp, target: Target, module: str, shared: str) -> tuple[ptx.FuncOp, Version]:
    """The function, and the PTX version that its instructions need."""
    name = kernel.sym_name.data
    if not PTX_NAME.fullmatch(name):
        fail(kernel, f"'{name}' cannot be the name of a kernel in PTX; letters, digits, _ and $ can")
    arguments = kernel.body.block.args
    names = _parameter_names(kernel)
    lowering = KernelLowering(kernel, target, shared)
    lowering.lower(names)
    _check_launches(kernel, SymbolRefAttr(module, [name]), lowering.shared_bytes)
    schedule = kernel.attributes.get(ScheduleAttr.name)
    chosen = [ptx.CommentOp(f" schedule: {schedule.data}")] if isinstance(schedule, ScheduleAttr) else []
    if isinstance(computes := kernel.attributes.get(COMPUTES), StringAttr):
        chosen = [ptx.CommentOp(f" {computes.data}"), *chosen]
    func = ptx.FuncOp(
        name,
        [*chosen, *lowering.emitter.finish()],
        parameters=[p for a, name in zip(arguments, names, strict=True) for p in parameters(kernel, a, name)],
        directives=[f".reqntid {lowering.threads}, 1, 1", *_directives(kernel, target)],
    )
    func.location = kernel.location
    if schedule is not None:
        func.attributes[ScheduleAttr.name] = schedule
    return func, lowering.emitter.version


def _parameter_names(kernel: gpu.FuncOp) -> list[str]:
    """What arguments are called, each after its value. Values may share a name, which MLIR writes with a number behind
    it, and a name may be that of another argument's size; and PTX knows no `.` and no `-` in names."""
    names: list[str] = []
    taken: set[str] = set()
    for i, argument in enumerate(kernel.body.block.args):
        wanted = f"{kernel.sym_name.data}_{FOREIGN.sub('_', argument.name_hint or str(i))}"
        candidates = chain([wanted], (f"{wanted}_{number}" for number in count(i)))
        names.append(next(name for name in candidates if DYNAMIC.sub("", name) not in taken))
        taken.add(DYNAMIC.sub("", names[-1]))
    return names


def _directives(kernel: gpu.FuncOp, target: Target) -> Iterator[str]:
    """The size of clusters; and what lets the assembler know how many registers a thread has at entry, without which it
    drops `setmaxnreg`."""
    if CLUSTER_SIZE in kernel.attributes:
        yield f".reqnctapercluster {', '.join(map(str, _cluster(kernel, target)))}"
    if any(isinstance(op, SetRegistersOp) for op in kernel.walk()):
        yield ".minnctapersm 1"


def _cluster(kernel: gpu.FuncOp, target: Target) -> Sequence[int]:
    """The CTAs of a cluster along x, y and z."""
    given = kernel.attributes[CLUSTER_SIZE]
    sizes = [int(n) for n in given.iter_values()] if isinstance(given, DenseArrayBase) else []
    if len(sizes) != 3 or min(sizes) < 1 or prod(sizes) > MOST_CTAS:
        fail(kernel, f"expected {CLUSTER_SIZE} to be array<i32: x, y, z> of 1 to {MOST_CTAS} CTAs, got {given}")
    if target.sm < CLUSTER_SM:
        fail(kernel, f"{target} has no clusters; sm_{CLUSTER_SM} and later have them")
    return sizes


def _module(module: gpu.ModuleOp) -> ptx.ModuleOp:
    target = target_of(module)
    if target is None:
        fail(module, "expected a target on the module; run warp-set-target{arch=sm_90a} first")
    if target.sm < 75:
        fail(module, f"{target} has no ldmatrix; sm_75 and later have it")
    name = module.sym_name.data
    functions: list[Operation] = []
    version = target.ptx
    shared = fresh_name(SHARED_SYMBOL, {op.sym_name.data for op in module.body.block.ops if isinstance(op, gpu.FuncOp)})
    for op in module.body.block.ops:
        if not isinstance(op, gpu.FuncOp):
            fail(op, f"expected gpu.func in a module of kernels, got {op.name}")
        function, needed = _kernel(op, target, name, shared)
        functions.append(function)
        version = max(version, needed)
    tiles = Variable("shared", "b8", shared, count=0, align=SHARED_ALIGNMENT, linking="extern")
    return ptx.ModuleOp(
        name, [VarOp(tiles), *functions], version="{}.{}".format(*version), target=target.name
    )  # fmt: skip


class ConvertWarpToPtxPass(ModulePass):
    """Replaces every `gpu.module` by a `ptx.module` of the same name.

    It first gives offsets to allocations that have none, as `warp-allocate` does.
    """

    name = "convert-warp-to-ptx"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        allocate_all(op)
        modules = [o for o in op.body.block.ops if isinstance(o, gpu.ModuleOp)]
        left = next((o for o in op.walk() if o.name.startswith("linalg.") or isinstance(o, MatmulOp)), None)
        if not modules and left is not None:
            warn(
                left, self.name, f"nothing is converted: {left.name} is in no gpu.module; -p warploom runs every stage"
            )
        for module in modules:
            block = module.parent_block()
            if block is not None:
                block.insert_op_before(_module(module), module)
                module.detach()
                module.erase()
