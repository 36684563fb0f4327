"""Kernels that come from outside: bodies of `gpu.launch` as kernels, and products of vectors as fragments of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, gpu, scf, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BoolAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    UnrealizedConversionCastOp,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.isa import mma
from ...dialect.isa.row import Target
from ...dialect.mlir.affine import FIXED, loops_of, map_along
from ...dialect.mlir.arithmetic import VectorContractOp
from ...dialect.mlir.gpu import (
    ATTRIBUTIONS,
    DIMENSIONS,
    BlockDimOp,
    BlockIdOp,
    FuncOp,
    GridDimOp,
    LaunchFuncOp,
    LaunchOp,
    ReturnOp,
    TerminatorOp,
    ThreadIdOp,
    attributions,
)
from ...dialect.mlir.gpu import ModuleOp as KernelModuleOp
from ...dialect.schedule.schedule import MAX_THREADS
from ...dialect.warp.attributes import FragmentType, enclosing, target_of, type_name, type_of_element
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.memory import LoadOp, StoreOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.views import MatrixOp
from ..diagnostics import fail
from ..linalg.product import fresh_name
from ..patterns import IndexBuilder, PatternPass, apply_patterns, captured, constant_value, rewrite_pattern

NUMBERS = (BlockIdOp, ThreadIdOp, GridDimOp, BlockDimOp)
"""What the arguments of a body are, three of each."""


@rewrite_pattern
def outline_launch(op: LaunchOp, rewriter: PatternRewriter) -> None:
    """Moves the body of a launch to a kernel; values from outside become arguments, constants are computed again."""
    if op.clusterSizeX is not None:
        fail(op, "a gpu.launch with clusters is not outlined; mlir-opt -gpu-kernel-outlining does it")
    module = op.get_toplevel_object()
    function = next((around for around in enclosing(op) if isinstance(around, func.FuncOp)), None)
    if not isinstance(module, ModuleOp) or function is None:
        fail(op, "expected gpu.launch in a function of a module")
    names = {each.sym_name.data for each in module.body.block.ops if isinstance(each, KernelModuleOp | func.FuncOp)}
    stem = fresh_name(f"{function.sym_name.data}_kernel", names)
    taken = [value for value in captured(op) if not isinstance(value.owner, arith.ConstantOp)]
    kernel = _kernel(op, stem, taken, rewriter)
    launch = LaunchFuncOp(
        SymbolRefAttr(stem, [stem]),
        op.sizes[:DIMENSIONS],
        op.sizes[DIMENSIONS : 2 * DIMENSIONS],
        kernelOperands=taken,
        dynamicSharedMemorySize=op.dynamicSharedMemorySize,
        asyncDependencies=op.asyncDependencies,
        async_launch=op.asyncToken is not None,
    )
    launch.location = op.location
    container = KernelModuleOp.build(properties={"sym_name": StringAttr(stem)}, regions=[Region(Block([kernel]))])
    rewriter.insert(container, InsertPoint.at_end(module.body.block))
    rewriter.replace(op, [launch], list(launch.results))
    module.attributes["gpu.container_module"] = UnitAttr()


def _kernel(op: LaunchOp, name: str, taken: list[SSAValue], rewriter: PatternRewriter) -> FuncOp:
    """Builds the kernel of a launch from its body."""
    workgroup, private = attributions(op, 2 * len(op.sizes))
    old, *others = op.body.blocks
    block = Block(arg_types=[value.type for value in (*taken, *workgroup, *private)])
    for value, argument in zip((*taken, *workgroup, *private), block.args, strict=True):
        argument.name_hint = value.name_hint
    inside: dict[SSAValue, SSAValue] = dict(zip(taken, block.args, strict=False))
    for value in captured(op):
        if value not in inside and isinstance(value.owner, Operation):
            again = value.owner.clone()
            block.add_op(again)
            inside[value] = again.results[0]
    index = IndexBuilder(Builder(InsertPoint.at_end(block)))
    for number, argument in enumerate(old.args[: len(NUMBERS) * DIMENSIONS]):
        if argument.uses:
            dimension = gpu.DimensionAttr(list(gpu.DimensionEnum)[number % DIMENSIONS])
            argument.replace_all_uses_with(index.number(NUMBERS[number // DIMENSIONS], dimension))
    for value, argument in zip((*workgroup, *private), block.args[len(taken) :], strict=True):
        value.replace_all_uses_with(argument)
    for inner in op.body.walk():
        for index, value in enumerate(inner.operands):
            if value in inside:
                inner.operands[index] = inside[value]
    for inner in list(old.ops):
        inner.detach()
        block.add_op(inner)
    for other in others:
        op.body.detach_block(other)
    for last in [each.last_op for each in (block, *others)]:
        if isinstance(last, TerminatorOp):
            rewriter.replace(last, ReturnOp([]))
    sizes = [constant_value(size) for size in op.sizes[DIMENSIONS : 2 * DIMENSIONS]]
    if any(size is not None and not 0 < size <= MAX_THREADS for size in sizes):
        fail(op, f"expected 1 to {MAX_THREADS} threads along each dimension of a CTA, got {sizes}")
    kernel = FuncOp(
        name, FunctionType.from_lists([value.type for value in taken], []), Region([block, *others]), kernel=True,
        known_block_size=[size for size in sizes if size is not None] if None not in sizes else None,
    )  # fmt: skip
    if workgroup:
        kernel.attributes[ATTRIBUTIONS] = IntegerAttr(len(workgroup), i64)
    kernel.location = op.location
    return kernel


class OutlineLaunchesPass(PatternPass):
    """Outlines the body of each `gpu.launch` as a kernel in its own `gpu.module`, and launches that kernel."""

    name = "gpu-kernel-outlining"
    needs: ClassVar = (LaunchOp.name,)
    patterns = (outline_launch,)


# `convert-vector-to-warp`: `vector.contract`, and the transfers of its operands, as fragments of a warp.
#
# A vector is a matrix that the 32 lanes of a warp hold together. Casts stand between vectors and fragments until what
# makes a vector, or takes it, is rewritten, too.

AnyVector = VectorType[Attribute]


def _cast(value: SSAValue, kind: Attribute, rewriter: PatternRewriter) -> SSAValue:
    """A value as another type: the operand of its cast if that has the type, otherwise a new cast."""
    if isinstance(value.owner, UnrealizedConversionCastOp) and value.owner.inputs[0].type == kind:
        return value.owner.inputs[0]
    cast = UnrealizedConversionCastOp.get([value], [kind])
    rewriter.insert(cast)
    return cast.results[0]


def _fragment(value: SSAValue) -> SSAValue | None:
    """The fragment from which a vector is cast; None if it has another origin."""
    made = value.owner
    if isinstance(made, UnrealizedConversionCastOp) and isinstance(made.inputs[0].type, FragmentType):
        return made.inputs[0]
    return None


@rewrite_pattern
def multiply_vectors(op: VectorContractOp, rewriter: PatternRewriter) -> None:
    """A product of two matrices becomes `warp.mma` of the instruction with the largest K, then the largest M, that
    divide the sizes."""
    maps = [each.data for each in op.indexing_maps if isinstance(each, AffineMapAttr)]
    kinds = [value.type for value in op.operands]
    loops = _loops(maps)
    if loops is None or op.kind.data != vector.CombiningKindFlag.ADD:
        fail(op, "vector.contract is lowered for sums of products of two matrices, whose loops are m, n and k")
    m, n, k = loops
    vectors = [(kind, loops_of(map_)) for kind, map_ in zip(kinds, maps, strict=True) if isa(kind, AnyVector)]
    sizes = {loop: size for kind, along in vectors for loop, size in zip(along, kind.get_shape(), strict=True)}
    row = _row([type_name(kind.element_type) for kind, _ in vectors], [sizes[loop] for loop in loops], target_of(op))
    if row is None:
        what = " x ".join(str(sizes[loop]) for loop in loops)
        fail(op, f"there is no mma for {what} of {kinds[0]} x {kinds[1]} into {kinds[2]}")
    sides = zip("abc", op.operands, maps, ((m, k), (k, n), (m, n)), strict=True)
    a, b, c = (_operand(row, *side, sizes, rewriter) for side in sides)
    product = MmaOp(row.shape, a, b, c)
    rewriter.replace(op, [product, UnrealizedConversionCastOp.get([product.d], [op.result.type])])


def _operand(
    row: mma.Mma, role: str, value: SSAValue, map_: AffineMap, along: tuple[int, int], sizes: dict[int, int],
    rewriter: PatternRewriter,
) -> SSAValue:  # fmt: skip
    """A vector as the fragment "a", "b" or "c" of an instruction, whose rows and columns are two loops."""
    rows, columns = (sizes[loop] for loop in along)
    element, name = type_of_element(row.element(role)), "acc" if role == "c" else role
    kind = FragmentType.of(name, rows, columns, element, row.layout(role), row.container_bits(role))
    if map_ == map_along(map_.num_dims, along):
        return _cast(value, kind, rewriter)
    cast = UnrealizedConversionCastOp.get([value], [kind])
    cast.attributes[SWAPPED] = UnitAttr()
    rewriter.insert(cast)
    return cast.results[0]


SWAPPED = "swapped"
"""On a cast: the vector is the transpose of the fragment."""


def _loops(maps: Sequence[AffineMap]) -> tuple[int, int, int] | None:
    """The loops m, n and k of a product whose result has its rows first."""
    for m, n, k in permutations(range(3)):
        choices = ((m, k), (k, m)), ((k, n), (n, k)), ((m, n),)
        if all(map_ in [map_along(3, pair) for pair in pairs] for map_, pairs in zip(maps, choices, strict=True)):
            return m, n, k
    return None


def _row(types: Sequence[str], sizes: Sequence[int], target: Target | None) -> mma.Mma | None:
    """The instruction of a product of these types, and sizes M, N and K, that the target has."""
    fits = [
        row
        for row in mma.rows()
        if [row.a.name, row.b.name, row.c.name, row.d.name] == [*types, types[-1]]
        and all(size % each == 0 for size, each in zip(sizes, row.shape, strict=True))
        and not (row.kind or row.scale or row.satfinite or row.rounding or row.bit_op)
        and (str(row.shape) != "m8n8k4" or row.a.name == "f64")
        and (target is None or row.runs_on(target))
    ]
    return max(fits, key=lambda row: (row.shape.k, row.shape.m), default=None)


@rewrite_pattern
def read_fragments(op: UnrealizedConversionCastOp, rewriter: PatternRewriter) -> None:
    """Replaces a cast of a read vector or constant by a load or constant of the fragment."""
    kind, source = op.results[0].type, op.inputs[0].owner
    if not isinstance(kind, FragmentType):
        return
    if (made := _fragment(op.inputs[0])) is not None and made.type == kind and SWAPPED not in op.attributes:
        rewriter.replace(op, [], [made])
    elif isinstance(source, vector.TransferReadOp):
        _read(op, source, kind, rewriter)
    elif isinstance(source, arith.ConstantOp) and isinstance(source.value, DenseIntOrFPElementsAttr):
        number = source.value.get_attrs()[0] if source.value.is_splat() else None
        if isa(number, IntegerAttr | FloatAttr):
            rewriter.replace(op, ConstantOp(number, kind))


def _read(
    op: UnrealizedConversionCastOp, read: vector.TransferReadOp, kind: FragmentType, rewriter: PatternRewriter
) -> None:
    padding = read.padding.owner
    number = padding.value if isinstance(padding, arith.ConstantOp) else None
    zero = isinstance(number, IntegerAttr | FloatAttr) and not number.value.data
    if not zero and not all(each.value.data for each in read.in_bounds):
        fail(read, "vector.transfer_read is lowered with a padding of zero, or in_bounds = [true, true]")
    rewriter.insertion_point = InsertPoint.before(read)  # what is behind it may write this memory
    memory, indices, bounds = _matrix(read, SWAPPED in op.attributes, rewriter)
    load = rewriter.insert(LoadOp(memory, indices, kind, in_bounds=bounds))
    rewriter.replace(op, [], [load.fragment])


def _matrix(
    op: vector.TransferReadOp | vector.TransferWriteOp, swapped: bool, rewriter: PatternRewriter
) -> tuple[SSAValue, Sequence[SSAValue], ArrayAttr[BoolAttr]]:
    """The matrix of memory that a fragment is a part of, where, and whether its rows and columns are in bounds; the
    vector may be the transpose of the fragment. Fails for what is no matrix of memory."""
    map_, inside = op.permutation_map.data, list(op.in_bounds)
    along = loops_of(map_)
    if op.mask is not None or not isa(op.source.type, MemRefType) or len(set(along)) != 2 or FIXED in along:
        fail(op, f"{op.name} is lowered for two dimensions of memory, without a mask, got {map_}")
    if swapped:
        along, inside = along[::-1], inside[::-1]
    row, column = along
    if (row, column) == (0, 1) and map_.num_dims == 2:
        return op.source, op.indices, ArrayAttr(inside)
    matrix = MatrixOp(op.source, [index for i, index in enumerate(op.indices) if i not in along], row, column)
    rewriter.insert(matrix)
    return matrix.matrix, (op.indices[row], op.indices[column]), ArrayAttr(inside)


@rewrite_pattern
def write_fragments(op: vector.TransferWriteOp, rewriter: PatternRewriter) -> None:
    """Replaces the write of a vector that comes from a fragment by a store of the fragment."""
    if (fragment := _fragment(op.vector)) is None:
        return
    memory, indices, bounds = _matrix(op, False, rewriter)
    rewriter.replace(op, StoreOp(fragment, memory, indices, in_bounds=bounds))


@rewrite_pattern
def carry_fragments(op: scf.ForOp, rewriter: PatternRewriter) -> None:
    """Makes a loop carry a fragment in place of the vector that is made of it."""
    last = op.body.block.last_op
    carried = {i: f for i, v in enumerate(last.operands) if (f := _fragment(v)) is not None} if last else {}
    if not carried or last is None:
        return
    block, starts = op.body.block, list(op.iter_args)
    for i, fragment in carried.items():
        kind = starts[i].type
        starts[i] = _cast(starts[i], fragment.type, rewriter)
        last.operands[i] = fragment
        argument = rewriter.replace_value_with_new_type(block.args[i + 1], fragment.type)
        inside = UnrealizedConversionCastOp.get([argument], [kind])
        argument.replace_uses_with_if(inside.results[0], lambda use, cast=inside: use.operation is not cast)
        block.insert_op_before(inside, block.first_op) if block.first_op else block.add_op(inside)
    loop = scf.ForOp(op.lb, op.ub, op.step, starts, rewriter.move_region_contents_to_new_regions(op.body))
    outside = [UnrealizedConversionCastOp.get([loop.results[i]], [op.results[i].type]) for i in carried]
    results: list[SSAValue] = list(loop.results)
    for i, cast in zip(carried, outside, strict=True):
        results[i] = cast.results[0]
    rewriter.replace(op, [loop, *outside], results)


class ConvertVectorToWarpPass(PatternPass):
    """Products of vectors in kernels become products of fragments of a warp, with `ldmatrix` or loads, and stores."""

    name = "convert-vector-to-warp"
    needs: ClassVar = (VectorContractOp.name,)
    patterns = (multiply_vectors, carry_fragments, read_fragments, write_fragments)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in [each for each in op.walk() if isinstance(each, gpu.ModuleOp)]:
            before: list[Operation] = []
            while (now := list(module.walk())) != before:
                before = now
                apply_patterns(self.patterns, module, reverse=True)
            for each in [cast for cast in module.walk(reverse=True) if isinstance(cast, UnrealizedConversionCastOp)]:
                _settle(each)
            for read in [each for each in module.walk() if isinstance(each, vector.TransferReadOp)]:
                if not read.result.uses:
                    Rewriter.erase_op(read)


def _settle(cast: UnrealizedConversionCastOp) -> None:
    """Erases a cast without uses. It is an error if one use needs the vector where another has a fragment."""
    if not any(result.uses for result in cast.results):
        Rewriter.erase_op(cast)
        return
    use, kind = next(iter(cast.results[0].uses)).operation, cast.results[0].type
    fail(use, f"{use.name} has {kind}, which vector.contract has as a fragment, and is not lowered of it")
