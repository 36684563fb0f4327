"""A product with its schedule, what follows from the two, and kernels with their launches."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from xdsl.builder import Builder
from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    FunctionType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.dialects.memref import CollapseShapeOp, ExpandShapeOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, TypeAttribute
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.wgmma import UNIT, Wgmma
from ...dialect.mlir.affine import map_along
from ...dialect.mlir.gpu import FuncOp, LaunchFuncOp, ReturnOp
from ...dialect.mlir.gpu import ModuleOp as GpuModuleOp
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.warp.attributes import (
    BYTE,
    COMPUTES,
    ZEROED,
    FragmentType,
    ScheduleAttr,
    memory_of,
    schedule_on,
    target_of,
    type_of_element,
)
from ...dialect.warp.elements import IndexOp, M, N, PointwiseOp
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.memory import CopyOp
from ...dialect.warp.op_shapes import OperandForm, bounds_attribute, of_form
from ...dialect.warp.operands import ScaledOp
from ...dialect.warp.tensor_maps import EncodeTensorMapOp, Im2colOp, TensorMapType
from ...dialect.warp.views import DIVISIBLE, MatrixOp
from ..diagnostics import fail
from ..linalg.operand import KernelArgument, MatrixOperand, MatrixPlace, Spread, VectorOperand, divisor_of
from ..linalg.product import LARGEST_GRID, Multiplied, Product, along_k, fresh_name
from ..patterns import Index, IndexBuilder, constant_value, op_type_rewrite_pattern
from ..schedule.defaults import Arrangement, arrange_in_registers, arrange_warpgroup
from ..schedule.needs import arrangement, not_copied, rows_of, warpgroup_rows
from .gelu import WINDOW, depends_on_neighbours

BOX_BITS = UNIT * BYTE
"""Bits of which the place of a box of a tensor copy is a multiple."""

ProductT = TypeVar("ProductT", bound=Multiplied, covariant=True)


@dataclass(frozen=True)
class Tiling(Generic[ProductT]):
    """A product, in memory or of tiles in shared memory, that is cut up as its schedule says."""

    product: ProductT
    schedule: Schedule

    # The fragments that a warp has

    @cached_property
    def row(self) -> Row | Wgmma:
        """The instruction. Raises a located diagnostic if there is none of the schedule's shape and types."""
        product, schedule = self.product, self.schedule
        every = rows_of(product) if schedule.together == 1 else warpgroup_rows(product, exchanged=schedule.exchanged)
        row = next((r for r in every if r.shape == schedule.mma and r.d.name == schedule.accumulate), None)
        if row is None:
            fail(self.product.op, f"the ISA has no mma {self.schedule.mma} for {self.product.a.element.name}")
        return row

    @cached_property
    def arrangement(self) -> Arrangement:
        """How operands lie in registers. Raises a located diagnostic if the warp tile is too small for it."""
        product, role = self.product, self.schedule.in_registers
        try:
            if isinstance(self.row, Wgmma) and role != "none":
                operand = product.a if role == "a" else product.b
                element = operand.element if operand.stored is None else operand.stored.element
                lies = along_k(product, role)
                return arrange_in_registers(self.row, role, element.memory_bits, along_k=lies, packed=operand.packed)
            if isinstance(self.row, Wgmma):
                return arrange_warpgroup(self.row, exchanged=self.schedule.exchanged)
            return arrangement(self.product, self.row, self.schedule.warp)
        except ScheduleError as error:
            fail(self.product.op, f"schedule: {error}")

    @cached_property
    def step(self) -> int:
        """Elements along k of a fragment: those of the instruction, or those of a register of integers if these are
        more."""
        k = self.schedule.mma.k
        return k if self.product.b.stored is None else max(k, self.arrangement.b.layout.rows)

    def fragment(self, role: str) -> FragmentType:
        """The type of a warp's fragment "a", "b" or "acc" for one step of the instruction."""
        (m, n), k, arrangement = self.schedule.warp, self.step, self.arrangement
        rows, columns = {"a": (m, k // self.product.sparsity), "b": (k, n), "acc": (m, n)}[role]
        layout = {"a": arrangement.a.layout, "b": arrangement.b.layout, "acc": arrangement.accumulator}[role]
        bits = self.row.container_bits("c" if role == "acc" else role)
        return FragmentType.of(role, rows, columns, self.element_type(role), layout, bits)

    def element_type(self, role: str) -> TypeAttribute:
        """The element type of the product's operand "a", "b" or "acc", as the instruction has it."""
        exchanged = {"a": "b", "b": "a"} if self.schedule.exchanged else {}
        return type_of_element(self.row.element("c" if role == "acc" else exchanged.get(role, role)))

    # The tiles of CTAs, of a product in memory

    def inside(self: Tiling[Product], axis: str) -> bool:
        """Whether no tile of D passes its end along an axis."""
        return self._fills(axis) or self.last_start(axis) is not None

    @property
    def in_bounds(self: Tiling[Product]) -> ArrayAttr[BoolAttr] | None:
        """Whether no tile of D passes its rows and its columns, as operations say it."""
        return bounds_attribute(*map(self.inside, "mn"))

    def last_start(self: Tiling[Product], axis: str) -> int | None:
        """The start of the last tile along an axis, if it is moved back so that it ends with the matrix; else None. The
        tile then overlaps its neighbour. Both store the same numbers, and their accesses need no bounds. This requires
        that the matrix has more than one tile, that D is not read, and that the new start is as aligned as the rows of
        A or B in memory; for tensor copies, also of D, it must be a multiple of 16 bytes. Metadata of a sparse A is
        read in whole tiles of rows. Columns whose words depend on their neighbours keep them."""
        if axis == "k" or not self.product.is_known(axis) or (axis == "m" and self.product.metadata is not None):
            return None
        product, (size, step) = self.product, self._extents(axis)
        operand = product.a if axis == "m" else product.b
        if self.schedule.edges != "inside" or (axis == "n" and product.blocks[1] > 1):
            return None
        if (axis == "n" and product.second is not None) or (product.scales and self.schedule.together > 1):
            return None
        if self.schedule.shares_tail:
            return None  # whose sums are in another order than those of the whole tile that has the same elements
        along_rows = operand.transposed == (axis == "m")
        operands = (product.a, product.b, product.c, *product.epilogue_operands)
        read = [memory_behind(o.value) for o in operands if o is not None]
        packed = ("a" if axis == "m" else "b") in roles(self.schedule.pack)
        if along_rows and (operand.shape[1] != size or packed):
            return None
        if size < step or self._fills(axis) or memory_behind(product.d.value) in read:
            return None
        if axis == "n" and (size - step) % WINDOW and depends_on_neighbours(product, target_of(product.op)):
            return None
        boxed = [operand] if along_rows else []
        boxed += [product.d] if axis == "n" and self.schedule.staging and not not_copied(product.d) else []
        if self.schedule.together > 1 and any((size - step) * o.element.memory_bits % BOX_BITS for o in boxed):
            return None
        return size - step

    def _fills(self: Tiling[Product], axis: str) -> bool:
        """Whether tiles end where the product does, also those that make the last cluster whole."""
        size, step = self._extents(axis)
        return size % (step * self.schedule.cluster["mn".index(axis)]) == 0

    def _extents(self: Tiling[Product], axis: str) -> tuple[int, int]:
        """The sizes of the product and of a CTA tile along rows or columns."""
        return (self.product.m, self.product.n)["mn".index(axis)], self.schedule.cta["mn".index(axis)]


def memory_behind(value: SSAValue) -> SSAValue:
    """The memory that a matrix is of."""
    return value.owner.memory if isinstance(value.owner, MatrixOp) else value


def schedule_of(op: Operation) -> Schedule:
    """The schedule that a product, or an attention, has. Raises a located diagnostic if it has none."""
    if (schedule := schedule_on(op)) is None:
        fail(op, f"expected a schedule on {op.name}; run warp-schedule first")
    return schedule


def outermost(op: Operation) -> Operation:
    """The outermost loop around an operation of a kernel, such as one over tiles; itself, if there is none."""
    while isinstance(around := op.parent_op(), scf.ForOp):
        op = around
    return op


KERNELS = "kernels"
"""The name of the gpu.module that kernels are outlined into, unless something else has it."""


def _module_for_kernels(op: Operation) -> gpu.ModuleOp:
    """The `gpu.module` that takes the kernels of an operation. It is created if there is none."""
    module = op.get_toplevel_object()
    if not isinstance(module, ModuleOp):
        fail(op, f"expected {op.name} in a builtin.module, into which its kernel goes")
    for op in module.body.block.ops:
        if isinstance(op, gpu.ModuleOp):
            return op
    taken = {name.data for op in module.body.block.ops if isinstance(name := op.properties.get("sym_name"), StringAttr)}
    name = fresh_name(KERNELS, taken)
    kernels = GpuModuleOp(SymbolRefAttr(name), Region(Block()))
    kernels.properties["sym_name"] = StringAttr(name)
    module.body.block.add_op(kernels)
    module.attributes["gpu.container_module"] = UnitAttr()
    return kernels


def promise(kernel: gpu.FuncOp, divisors: Sequence[int]) -> None:
    """Records the divisors of dynamic sizes and strides of a kernel's arguments, if any is above 1."""
    if any(divisor > 1 for divisor in divisors):
        kernel.attributes[DIVISIBLE] = ArrayAttr([IntegerAttr(divisor, i64) for divisor in divisors])


def kernel_body(operands: Sequence[KernelArgument]) -> tuple[IndexBuilder, Block, dict[SSAValue, SSAValue]]:
    """An empty body of a kernel with an argument for each operand, its builder, and the arguments by value of the
    host."""
    body = Block(arg_types=[operand.value.type for operand in operands])
    for argument, operand in zip(body.args, operands, strict=True):
        argument.name_hint = operand.name
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    return index, body, dict(zip((operand.value for operand in operands), body.args, strict=True))


class Outliner:
    """Puts the kernels of one operation into the module of kernels, and their launches in its place."""

    def __init__(self, op: Operation) -> None:
        self.op, self.kernels = op, _module_for_kernels(op)
        self._builder = Builder(InsertPoint.before(op))
        self.index = IndexBuilder(self._builder)
        self._scratch: list[SSAValue] = []

    def scratch(self, kind: MemRefType, sizes: Sequence[SSAValue] = (), *, zeroed: bool = False) -> SSAValue:
        """Memory that the launches share, and only they; if `zeroed`, they find zeros there and leave zeros. `sizes`
        are the dynamic ones."""
        alloc = self._builder.insert(memref.AllocOp(sizes, [], kind))
        if zeroed:
            alloc.attributes[ZEROED] = UnitAttr()
        self._scratch.append(alloc.memref)
        return alloc.memref

    def insert(self, op: ExpandShapeOp | CollapseShapeOp) -> SSAValue:
        """The same memory in another shape, for the launches that follow."""
        return self._builder.insert(op).result

    def launch(
        self,
        suffix: str,
        operands: Sequence[KernelArgument],
        body: Block,
        ctas: Index,
        threads: int,
        computes: str = "",
    ) -> gpu.FuncOp:
        """Makes a kernel of a body whose arguments are the operands, which returns behind it, and launches it. A kernel
        without a schedule says what it `computes`."""
        name = self._name(suffix)
        if isinstance(ctas, int) and ctas > LARGEST_GRID:
            fail(self.op, f"{self.op.name} takes {ctas} CTAs, a grid has at most {LARGEST_GRID}")
        types = list(body.arg_types)
        body.add_op(ReturnOp([]))
        kernel = FuncOp(name, (types, []), Region(body), kernel=True, known_block_size=[threads, 1, 1])
        kernel.location = self.op.location
        if computes:
            kernel.attributes[COMPUTES] = StringAttr(computes)
        promise(kernel, [operand.divisor for operand in operands])
        self.kernels.body.block.add_op(kernel)
        grid, block = self.index.values([ctas, 1, 1]), self.index.values([threads, 1, 1])
        symbol, values = SymbolRefAttr(self.kernels.sym_name.data, [name]), [operand.value for operand in operands]
        self._builder.insert(LaunchFuncOp(symbol, grid, block, kernelOperands=values))
        return kernel

    def finish(self) -> None:
        """Frees the scratch memory and erases the operation."""
        for memory in self._scratch:
            self._builder.insert(memref.DeallocOp.get(memory))
        operands = list(self.op.operands)
        Rewriter.erase_op(self.op)
        drop_forms(operands)

    def _name(self, suffix: str) -> str:
        parent = self.op.parent_op()
        while isinstance(parent, scf.ForOp | scf.IfOp) and not parent.results:
            parent = parent.parent_op()
        if not isinstance(parent, func.FuncOp):
            what = "the product" if isinstance(self.op, MatmulOp) else self.op.name
            where = "" if parent is None else f", got it in {parent.name}"
            fail(self.op, f"expected {what} in a func.func, or in scf.for and scf.if that carry no values{where}")
        taken = {op.sym_name.data for op in self.kernels.body.block.ops if isinstance(op, gpu.FuncOp)}
        # A kernel's name stands in the text, where not every name that MLIR allows can.
        stem = re.sub(r"^(?=\d)|[^A-Za-z0-9_$]", "_", parent.sym_name.data)
        return fresh_name(f"{stem}_{suffix}" if suffix else stem, taken)


class LaunchedKernel:
    """A kernel and its launch. What changes of the launch is written by `finish`."""

    def __init__(self, op: gpu.LaunchFuncOp, kernel: gpu.FuncOp) -> None:
        self.op, self.kernel = op, kernel
        self.host = Outliner(op)
        self.grid: list[Index] = [op.gridSizeX, op.gridSizeY, op.gridSizeZ]
        self.operands = list(op.kernelOperands)
        self.threads: Index = self.host.index.folded(op.blockSizeX)
        self.divisors = list(map(divisor_of, kernel.body.block.args))

    @property
    def schedule(self) -> Schedule:
        """The kernel's schedule."""
        return schedule_of(self.kernel)

    @property
    def body(self) -> Block:
        """The kernel's block."""
        return self.kernel.body.block

    def loop(self) -> scf.ForOp | None:
        """The loop over K of a kernel of `warp-tile`; None if it is inside of a loop over tiles."""
        loops = (op for op in self.body.ops if isinstance(op, scf.ForOp))
        return next((loop for loop in loops if any(isinstance(op, CopyOp) for op in loop.body.block.ops)), None)

    def block_id(self) -> SSAValue | None:
        """The number of the CTA's tile."""
        ids = (op for op in self.body.ops if isinstance(op, gpu.BlockIdOp))
        return next((op.result for op in ids if op.dimension.data == gpu.DimensionEnum.X), None)

    def insert(self, at: int, value: SSAValue, name: str) -> BlockArgument:
        """Gives the kernel one more argument before the one with the number `at`."""
        self.operands.insert(at, value)
        argument = self.body.insert_arg(value.type, at)
        argument.name_hint = name
        self.divisors.insert(at, 1)
        return argument

    def replace(self, argument: BlockArgument, copies: Sequence[CopyOp], value: SSAValue, name: str) -> BlockArgument:
        """Makes copies read a new argument in place of another one. The old argument is removed if it has no
        other use."""
        new = self.insert(argument.index, value, name)
        for copy in copies:
            copy.operands[0] = new
        self.drop_unused(argument)
        return new

    def tensor_map(
        self, memory: BlockArgument, order: Sequence[int], kind: TensorMapType, parts: int | None = None
    ) -> BlockArgument:
        """A further argument: the tensor map of the memory of another one, which the host encodes before the launch."""
        encoded = self.host.index.insert(EncodeTensorMapOp(self.operands[memory.index], order, kind, parts)).map
        return self.insert(len(self.operands), encoded, f"{memory.name_hint or 'memory'}_map")

    def drop_unused(self, argument: BlockArgument) -> None:
        """Removes an argument that has no uses; of matrices of images, which copies alone read, one without readers."""
        views = [use.operation for use in argument.uses if isinstance(use.operation, MatrixOp)]
        for view in views if isinstance(self.operands[argument.index].owner, Im2colOp) else ():
            if not view.results[0].uses:
                Rewriter.erase_op(view)
        if not argument.uses:
            del self.operands[argument.index], self.divisors[argument.index]
            self.body.erase_arg(argument)

    def inside(self, index: IndexBuilder, value: SSAValue) -> Index:
        """A number of the host, which follows from operands of the launch, computed in the kernel."""
        if (constant := constant_value(value)) is not None:
            return constant
        if value in self.operands:
            return self.body.args[self.operands.index(value)]
        op = value.owner
        if not isinstance(op, Operation):
            fail(self.op, "expected a grid that follows from the operands of the launch")
        computed = {operand: index.value(self.inside(index, operand)) for operand in op.operands}
        return index.insert(op.clone(computed)).results[0]

    def finish(self) -> None:
        """Puts the launch as it is now in place of the old one."""
        self.kernel.function_type = FunctionType.from_lists([argument.type for argument in self.body.args], [])
        promise(self.kernel, self.divisors)
        threads = (self.host.index.value(self.threads), self.op.blockSizeY, self.op.blockSizeZ)
        grid = self.host.index.values(self.grid)
        new = self.host.index.insert(LaunchFuncOp(self.op.kernel, grid, threads, kernelOperands=self.operands))
        new.location = self.op.location
        self.host.finish()


class LaunchPattern(RewritePattern):
    """A pattern that rewrites a scheduled kernel together with its launch."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: gpu.LaunchFuncOp, rewriter: PatternRewriter) -> None:
        kernel = SymbolTable.lookup_symbol(op, op.kernel)
        if isinstance(kernel, gpu.FuncOp) and ScheduleAttr.name in kernel.attributes:
            self.rewrite(LaunchedKernel(op, kernel))

    @abstractmethod
    def rewrite(self, launch: LaunchedKernel) -> None:
        """Rewrites the kernel and the launch."""


class Inside(NamedTuple):
    """The operands of an operation inside its kernel: `arguments` by value of the host, `views` of matrices, and the
    indices of the `batch` loops that its region uses."""

    arguments: Mapping[SSAValue, SSAValue]
    views: Mapping[MatrixPlace, SSAValue]
    numbers: Mapping[int, SSAValue]
    batch: int

    @staticmethod
    def of(
        index: IndexBuilder,
        function: PointwiseOp | None,
        operands: Sequence[KernelArgument],
        arguments: Mapping[SSAValue, SSAValue],
        batch: Sequence[Index],
        number: Index,
        part: Sequence[Index] = (),
        parted: Sequence[KernelArgument] = (),
    ) -> Inside:
        """The operands for one CTA. Memory of a batch, or in another layout than one matrix row by row, is replaced by
        the matrix of this `number` in the batch, limited to a `part` of its rows if it is divided."""
        seen = [o for o in operands if isinstance(o, MatrixOperand | Spread) and (o in parted or not o.is_whole)]
        at, views = index.unflattened(batch, number) if seen else [], dict[MatrixPlace, SSAValue]()
        for operand in seen:
            if operand.place not in views:
                rows = part if operand in parted else ()
                views[operand.place] = _view(index, operand, arguments[operand.value], at, rows)
        indices = [] if function is None else [op.number for op in function.body.block.ops if isinstance(op, IndexOp)]
        loops = sorted({loop for loop in indices if loop < len(batch)})
        at = index.unflattened(batch, number) if loops else []
        numbers = {loop: index.insert(arith.IndexCastOp(index.value(at[loop]), i32)).result for loop in loops}
        return Inside(arguments, views, numbers, len(batch))

    def seen(self, operand: KernelArgument) -> SSAValue:
        """The kernel's value for an operand."""
        view = None if isinstance(operand, VectorOperand) else self.views.get(operand.place)
        return view or self.arguments[operand.value]

    def factor(self, index: IndexBuilder, form: OperandForm | None, operands: Sequence[KernelArgument]) -> SSAValue:
        """The value of A or B in the kernel, in its form, with the operands that the form reads."""
        memory, *side_operands = map(self.seen, operands)
        factor = of_form(form, memory, side_operands, index.insert)
        if isinstance(scaled := factor.owner, ScaledOp):
            scaled.across = None  # views of scales have k last
        return factor

    def function(
        self,
        index: IndexBuilder,
        function: PointwiseOp | None,
        operands: Sequence[KernelArgument],
        at: tuple[int, int],
        loops: int,
    ) -> SSAValue | None:
        """The function of elements for a tile of `loops` loops, whose rows and columns run along those `at`; None
        without a function."""
        if function is None:
            return None
        maps = (map_along(loops, loops_in_tile(operand, at)) for operand in operands)
        inputs = [*zip(map(self.seen, operands), maps, strict=True)]
        return index.insert(function.moved(inputs, loops, self.batch, self.numbers)).function


def loops_in_tile(operand: KernelArgument, loops: tuple[int, int] = (M, N)) -> tuple[int, ...]:
    """The loops of an operand's dimensions. `loops` are those of a matrix at its place."""
    if isinstance(operand, VectorOperand):
        return tuple(loops["mn".index(axis)] for axis in operand.axis)
    return loops[::-1] if isinstance(operand, MatrixOperand) and operand.transposed else loops


def _view(
    index: IndexBuilder, operand: MatrixOperand | Spread, memory: SSAValue, at: Sequence[Index], part: Sequence[Index]
) -> SSAValue:
    """The matrix of this CTA, restricted to a `part` of its rows. `at` are the indices of the batch."""
    others = (d for d in range(memory_of(memory).get_num_dims()) if d not in operand.dimensions)
    dimensions = [d for d, loop in zip(others, operand.batch, strict=True) if loop >= len(at)]
    indices = index.values([at[loop] for loop in operand.batch if loop < len(at)])
    return index.insert(MatrixOp(memory, indices, *operand.dimensions, dimensions, index.values(part))).matrix
