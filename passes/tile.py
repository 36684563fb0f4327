"""`warp-tile`: a matrix product becomes a kernel of CTA tiles, warp tiles and instructions, and its launch.

The kernel is the plain form: per K tile it copies A and B to shared memory, waits, multiplies, waits.
`warp-pipeline` overlaps the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.dialects.linalg.ops import MatmulOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ..dialect.isa import mma
from ..dialect.schedule import Schedule
from ..dialect.warp.attributes import (
    SHARED_SPACE,
    FragmentType,
    ScheduleAttr,
    SwizzleAttr,
    float_type,
)
from ..dialect.warp.copy import CopyOp
from ..dialect.warp.elementwise import ConstantOp, ConvertOp
from ..dialect.warp.memory import LdmatrixOp, LoadOp, StoreOp, bounds_attribute
from ..dialect.warp.mma import MmaOp
from .diagnostics import fail
from .index_builder import Index, IndexBuilder
from .product import Operand, Product, fresh_name, read

KERNELS = "kernels"
"""The name of the gpu.module that kernels are outlined into, unless something else has it."""


def shared_tile(rows: int, columns: int, operand: Operand, schedule: Schedule) -> MemRefType:
    """The shared-memory tile of an operand, swizzled as wide as its lines and the schedule allow."""
    line = columns * operand.element.bits // 8
    width = max(16, min(schedule.swizzle, line & -line))
    space = IntegerAttr(SHARED_SPACE, i64)
    return MemRefType(operand.element_type, [rows, columns], SwizzleAttr(width), space)


@dataclass
class Kernel:
    """Builds the kernel of one product. Operands are the kernel's arguments, in the order A, B, C."""

    product: Product
    schedule: Schedule
    body: Block
    index: IndexBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.index = IndexBuilder(Builder(InsertPoint.at_end(self.body)))
        row = mma.find(self.schedule.mma, *(self.product.a.element.name,) * 2, *(self.schedule.accumulate,) * 2)
        if row is None:
            fail(self.product.op, f"the ISA has no mma {self.schedule.mma} for {self.product.a.element.name}")
        self.row = row

    def build(self) -> None:
        index = self.index
        m, n = self.cta_origin()
        warp_m, warp_n = self.warp_origin()
        tiles = [index.insert(memref.AllocOp([], [], kind)).memref for kind in self.shared_types()]
        accumulator = self.initial(index.add(m, warp_m), index.add(n, warp_n))
        loop_body = Block(arg_types=[index.value(0).type, accumulator.type])
        loop = scf.ForOp(
            index.value(0), index.value(self.product.k), index.value(self.schedule.cta[2]), [accumulator], loop_body
        )
        self.step(index.at(Builder(InsertPoint.at_end(loop_body))), loop_body, tiles, (m, n), (warp_m, warp_n))
        index.insert(loop)
        self.finish(loop.results[0], index.add(m, warp_m), index.add(n, warp_n))
        index.insert(gpu.ReturnOp([]))

    def grid(self) -> tuple[int, int]:
        """CTA tiles along M and N."""
        rows, columns, _ = self.schedule.cta
        return -(-self.product.m // rows), -(-self.product.n // columns)

    def cta_origin(self) -> tuple[Index, Index]:
        """The first row and column of this CTA's tile.

        CTAs that run at the same time should share rows of A and columns of B in L2, so they walk `group`
        rows of tiles together, column by column.
        """
        index, (down, across) = self.index, self.grid()
        cta = index.insert(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
        group = min(self.schedule.group, down)
        within = index.rem(cta, group * across)
        first = index.mul(index.div(cta, group * across), group)
        height: Index = group
        if down % group:
            height = index.minimum(index.sub(index.value(down), first), group)
        row, column = index.add(first, index.rem(within, height)), index.div(within, height)
        return index.mul(row, self.schedule.cta[0]), index.mul(column, self.schedule.cta[1])

    def warp_origin(self) -> tuple[Index, Index]:
        """The first row and column of this warp's tile within the CTA's."""
        index, (rows, columns) = self.index, self.schedule.warp
        across = self.schedule.cta[1] // columns
        if self.schedule.warps == 1:
            return 0, 0
        warp = index.insert(gpu.SubgroupIdOp()).result
        down: Index = index.div(warp, across) if self.schedule.cta[0] > rows else 0
        return index.mul(down, rows), index.mul(index.rem(warp, across) if across > 1 else 0, columns)

    def shared_types(self) -> tuple[MemRefType, MemRefType]:
        """The tiles of A and B in shared memory, stored as they lie in global memory."""
        m, n, k = self.schedule.cta
        a, b = self.product.a, self.product.b
        return (
            shared_tile(*((k, m) if a.transposed else (m, k)), a, self.schedule),
            shared_tile(*((n, k) if b.transposed else (k, n)), b, self.schedule),
        )

    def fragment(self, role: str) -> FragmentType:
        """The type of this warp's fragment "a", "b" or "acc" for one step of the instruction."""
        (m, n), k = self.schedule.warp, self.schedule.mma.k
        rows, columns = {"a": (m, k), "b": (k, n), "acc": (m, n)}[role]
        key = "c" if role == "acc" else role
        return FragmentType.of(role, rows, columns, float_type(self.row.element(key)), self.row.layout(key))

    def initial(self, m: Index, n: Index) -> SSAValue:
        """The accumulators at the start: a constant, or what C holds."""
        acc, c = self.fragment("acc"), self.product.c
        if self.product.initial is not None:
            self.check_initial(self.product.initial, acc)
            value = FloatAttr(self.product.initial, float_type(acc.element))
            return self.index.insert(ConstantOp(value, acc)).fragment
        held = acc.with_element(c.element_type)
        memory, where = self.body.args[2], self.index.values([m, n])
        loaded = self.index.insert(LoadOp(memory, where, held, self.in_bounds_c())).fragment
        return loaded if held == acc else self.index.insert(ConvertOp(loaded, acc.element_type)).fragment

    def check_initial(self, value: float, acc: FragmentType) -> None:
        """Refuses an initial value that only an infinity of the accumulators' type could stand for."""
        largest = acc.element.largest
        if abs(value) > largest and math.isfinite(value):
            fail(self.product.op, f"C starts from {value:g}, accumulators in {acc.element.name} hold up to {largest:g}")

    def finish(self, accumulator: SSAValue, m: Index, n: Index) -> None:
        """Stores the accumulators to C, rounded to its element type."""
        c = self.product.c
        if self.fragment("acc").element_type != c.element_type:
            accumulator = self.index.insert(ConvertOp(accumulator, c.element_type)).fragment
        where = self.index.values([m, n])
        self.index.insert(StoreOp(accumulator, self.body.args[2], where, self.in_bounds_c()))

    def in_bounds_c(self) -> ArrayAttr[BoolAttr] | None:
        m, n, _ = self.schedule.cta
        return bounds_attribute(self.product.m % m == 0, self.product.n % n == 0)

    def step(
        self,
        index: IndexBuilder,
        body: Block,
        tiles: Sequence[SSAValue],
        cta: tuple[Index, Index],
        warp: tuple[Index, Index],
    ) -> None:
        """One K tile: copy, barrier, multiply, barrier."""
        k, accumulator = body.args
        for i, (operand, axes) in enumerate(((self.product.a, "mk"), (self.product.b, "kn"))):
            self.copy(index, operand, self.body.args[i], axes, {"m": cta[0], "n": cta[1], "k": k}, tiles[i])
        index.insert(gpu.BarrierOp())
        for inner in range(0, self.schedule.cta[2], self.schedule.mma.k):
            a = self.ldmatrix(index, tiles[0], "a", self.product.a.transposed, (warp[0], inner))
            b = self.ldmatrix(index, tiles[1], "b", self.product.b.transposed, (inner, warp[1]))
            accumulator = index.insert(MmaOp(self.schedule.mma, a, b, accumulator)).d
        index.insert(gpu.BarrierOp())
        index.insert(scf.YieldOp(accumulator))

    def copy(
        self, index: IndexBuilder, operand: Operand, source: SSAValue, axes: str, at: dict[str, Index], tile: SSAValue
    ) -> None:
        """Copies the tile of an operand whose rows and columns run along `axes`."""
        if operand.transposed:
            axes = axes[::-1]
        sizes = {"m": self.product.m, "n": self.product.n, "k": self.product.k}
        steps = dict(zip("mnk", self.schedule.cta, strict=True))
        inside = bounds_attribute(*(sizes[axis] % steps[axis] == 0 for axis in axes))
        index.insert(CopyOp(source, index.values([at[axis] for axis in axes]), tile, in_bounds=inside))

    def ldmatrix(
        self, index: IndexBuilder, tile: SSAValue, role: str, transposed: bool, at: tuple[Index, Index]
    ) -> SSAValue:
        """Loads a fragment; B runs down the columns of memory unless it is transposed, so it takes `.trans`."""
        where = index.values(at[::-1] if transposed else at)
        trans = transposed != (role == "b")
        return index.insert(LdmatrixOp(tile, where, self.fragment(role), trans=trans, swapped=transposed)).fragment


def _module_for_kernels(module: ModuleOp) -> gpu.ModuleOp:
    """The gpu.module that kernels go into, made when there is none."""
    for op in module.body.block.ops:
        if isinstance(op, gpu.ModuleOp):
            return op
    taken = {name.data for op in module.body.block.ops if isinstance(name := op.properties.get("sym_name"), StringAttr)}
    name = fresh_name(KERNELS, taken)
    kernels = gpu.ModuleOp(SymbolRefAttr(name), Region(Block()))
    kernels.properties["sym_name"] = StringAttr(name)
    module.body.block.add_op(kernels)
    module.attributes["gpu.container_module"] = UnitAttr()
    return kernels


def _launch(matmul: MatmulOp, product: Product, schedule: Schedule, kernel: SymbolRefAttr, ctas: int) -> None:
    """Replaces a product by the launch of its kernel."""
    builder = Builder(InsertPoint.before(matmul))
    index = IndexBuilder(builder)
    shared = builder.insert(arith.ConstantOp(IntegerAttr(schedule.shared_bytes(product.a.element.bits), i32))).result
    launch = gpu.LaunchFuncOp(
        kernel,
        index.values([ctas, 1, 1]),
        index.values([schedule.threads, 1, 1]),
        kernelOperands=[product.a.value, product.b.value, product.c.value],
        dynamicSharedMemorySize=shared,
    )
    builder.insert(launch)
    matmul.detach()
    matmul.erase()


def _tile(matmul: MatmulOp, module: ModuleOp) -> None:
    attribute = matmul.attributes.get(ScheduleAttr.name)
    if not isinstance(attribute, ScheduleAttr):
        fail(matmul, "expected a schedule on the product; run warp-schedule first")
    schedule, product = attribute.data, read(matmul)
    parent = matmul.parent_op()
    if not isinstance(parent, func.FuncOp):
        fail(matmul, "expected the product directly in a func.func")
    kernels = _module_for_kernels(module)
    taken = {op.sym_name.data for op in kernels.body.block.ops if isinstance(op, gpu.FuncOp)}
    # A kernel's name stands in the text, where not every name that MLIR allows can.
    name = fresh_name(re.sub(r"^(?=\d)|[^A-Za-z0-9_$]", "_", parent.sym_name.data), taken)
    types = [product.a.type, product.b.type, product.c.type]
    body = Block(arg_types=types)
    for argument, operand in zip(body.args, (product.a, product.b, product.c), strict=True):
        argument.name_hint = operand.name
    kernel = gpu.FuncOp(name, (types, []), Region(body), kernel=True, known_block_size=[schedule.threads, 1, 1])
    kernel.attributes[ScheduleAttr.name] = attribute
    kernel.location = matmul.location
    builder = Kernel(product, schedule, body)
    builder.build()
    kernels.body.block.add_op(kernel)
    down, across = builder.grid()
    _launch(matmul, product, schedule, SymbolRefAttr(kernels.sym_name.data, [name]), down * across)


@dataclass(frozen=True)
class TilePass(ModulePass):
    """Outlines every scheduled `linalg.matmul` into a `gpu.func` over warp fragments, and launches it."""

    name = "warp-tile"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for matmul in [o for o in op.walk() if isinstance(o, MatmulOp)]:
            _tile(matmul, op)
