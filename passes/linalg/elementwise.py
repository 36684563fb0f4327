"""Elementwise operations of `linalg`, read once for the passes that lower them, or fuse them with products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, MemRefType, f64, i32, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import IndexOp, YieldOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import FIXED, Nest, contracted, is_projection, loops_of, map_along
from ...dialect.warp.attributes import element_row, memory_of
from ...dialect.warp.elements import IndexOp as ElementIndexOp
from ...dialect.warp.elements import M, PointwiseOp, element_type, only_computes, with_functions, yielded
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.op_shapes import OperandForm
from ..diagnostics import chose, remark
from ..patterns import constant_value, rewrite_pattern
from .memory_uses import Replacement, roots_of
from .operand import SIZE_LIMIT, drop_unused, lines_of, root

# Arithmetic on the indices of elements, `linalg.index`, in 32 bits.
#
# MLIR's indices have as many bits as a target likes, and bodies cast them to i64; a kernel has registers of 32 bits.
# So each number on the way from an index is bounded by the sizes of its loops: what fits 32 bits is computed in them,
# with the same results, and anything else is refused.

Bounds = tuple[float, float]
"""The least and the largest value of a number."""

EVERYTHING = (-math.inf, math.inf)
BITS = 32
LIMIT = 1 << BITS - 1

CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)
"""Conversions that keep the value, or its low bits, as two's complement."""

_ARITHMETIC: Mapping[type[Operation], Callable[[float, float], float]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
}
"""Operations whose results at the ends of their operands bound them."""

_BITWISE = (arith.AndIOp, arith.OrIOp, arith.XOrIOp)
_QUOTIENTS = (arith.DivSIOp, arith.DivUIOp)
_REMAINDERS = (arith.RemSIOp, arith.RemUIOp)
_UNSIGNED = (arith.DivUIOp, arith.RemUIOp, arith.MinUIOp, arith.MaxUIOp)


def is_long(kind: Attribute) -> bool:
    """Whether a type is an index, or a 64-bit integer that stands for one."""
    return isinstance(kind, IndexType) or kind == i64


def is_index(kind: Attribute) -> bool:
    """Whether a type is an index."""
    return isinstance(kind, IndexType)


def objection(nest: Nest, is_long: Callable[[Attribute], bool] = is_long) -> str:
    """The reason why a body cannot compute its indices in 32 bits; "" if it can. `is_long` tells types that are
    narrowed; an index cast from another type is an element's index and fits 32 bits."""
    bounds_of: dict[SSAValue, Bounds] = {}
    for index, loop in nest.indices.items():
        _, _, size = nest.along(loop) or (None, 0, -1)
        bounds_of[index] = 0, max(0, (SIZE_LIMIT if size < 0 else size) - 1)
    for op in nest.body.ops if bounds_of else ():
        if isinstance(op, IndexOp):
            continue
        if isinstance(op, arith.IndexCastOp) and is_long(op.result.type) and not is_long(op.input.type):
            bounds_of[op.result] = -LIMIT, LIMIT - 1
        elif any(is_long(value.type) for value in op.results):
            bounds_of[op.results[0]] = bounds = bounds_after(op, bounds_of)
            if not fits(bounds):
                return f"{op.name} of indices may pass {BITS} bits"
        elif isinstance(op, arith.UIToFPOp) and is_long(op.input.type) and _of(op.input, bounds_of)[0] < 0:
            return f"{op.name} of an index that may be negative"
    return ""


def _of(value: SSAValue, bounds_of: Mapping[SSAValue, Bounds]) -> Bounds:
    if value in bounds_of:
        return bounds_of[value]
    if (number := constant_value(value)) is not None:
        return number, number
    kind = value.type
    if isinstance(kind, IntegerType) and kind.bitwidth <= BITS:
        half = 1 << kind.bitwidth - 1
        return -half, half - 1
    return EVERYTHING


def fits(bounds: Bounds) -> bool:
    """Whether 32 bits hold a number, with its sign."""
    return bounds[0] >= -LIMIT and bounds[1] < LIMIT


def bounds_after(op: Operation, bounds_of: Mapping[SSAValue, Bounds]) -> Bounds:
    """The bounds of an operation's result."""
    bounds = [_of(value, bounds_of) for value in op.operands]
    if isinstance(op, arith.ConstantOp | arith.SelectOp):
        every = [_of(op.result, bounds_of)] if isinstance(op, arith.ConstantOp) else bounds[1:]
        return min(low for low, _ in every), max(high for _, high in every)
    if isinstance(op, CASTS):
        return bounds[0]
    if (compute := _ARITHMETIC.get(type(op))) is not None and EVERYTHING not in bounds:
        ends = [compute(a, b) for a, b in itertools.product(*bounds)]
        return min(ends), max(ends)
    if isinstance(op, arith.ExtUIOp) and isa(kind := op.input.type, IntegerType):
        return 0, (1 << kind.bitwidth) - 1
    if not all(map(fits, bounds)):
        return EVERYTHING
    if all(low >= 0 for low, _ in bounds) and isinstance(op, (*_QUOTIENTS, *_REMAINDERS, *_UNSIGNED)):
        return 0, bounds[1][1] - 1 if isinstance(op, _REMAINDERS) else max(high for _, high in bounds)
    overflows = isinstance(op, arith.DivSIOp) and bounds[0][0] == -LIMIT
    signed = isinstance(op, (*_BITWISE, arith.DivSIOp, arith.RemSIOp)) and not overflows
    return (-LIMIT, LIMIT - 1) if signed else EVERYTHING


def narrowed(op: Operation, mapped: dict[SSAValue, SSAValue], block: Block) -> SSAValue:
    """Appends an operation on indices to a block, in 32 bits, with its operands mapped. Returns its result."""
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        copy: Operation = arith.ConstantOp(IntegerAttr(op.value.value.data, i32))
    elif isinstance(op, CASTS):
        source, target = mapped[op.operands[0]], op.results[0].type
        target = i32 if is_long(target) else target
        if source.type == target:
            return source
        kind = arith.ExtSIOp if target == i32 else arith.TruncIOp
        copy = kind.build(operands=[source], result_types=[target])
    else:
        copy = op.clone(mapped)
        kinds = [i32 if is_long(result.type) else result.type for result in copy.results]
        copy = type(op).create(operands=copy.operands, properties=copy.properties, result_types=kinds)
    copy.location = op.location
    block.add_op(copy)
    return copy.results[0]


class Elementwise(NamedTuple):
    """One result from one element of each input: a `linalg.generic` over parallel loops, or a named operation. `inputs`
    are what the region's arguments stand for, with their maps: the operands, the output last, and then the numbers from
    outside that the region uses. Loops are numbered so that the output is indexed by them in order."""

    op: LinalgStructuredOperation
    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    captured: tuple[SSAValue, ...]

    @property
    def output(self) -> SSAValue:
        """The output memory."""
        return self.op.outputs[0]

    @property
    def body(self) -> Block:
        return self.op.body.block

    @property
    def loops(self) -> int:
        """The number of loops, which is the rank of the output."""
        return self.maps[0].num_dims

    def reads(self, number: int) -> bool:
        """Whether the region uses an input."""
        return number >= len(self.body.args) or bool(self.body.args[number].uses)

    @property
    def read(self) -> tuple[SSAValue, ...]:
        """The inputs that the region uses."""
        return tuple(value for number, value in enumerate(self.inputs) if self.reads(number))

    @property
    def indices(self) -> dict[SSAValue, int]:
        """The indices that the region uses, with their loops."""
        nest = Nest.of(self.op)
        return {index: nest.writes[0].loops.index(loop) for index, loop in nest.indices.items()}

    @property
    def indexed(self) -> tuple[int, ...]:
        """The loops whose indices the region uses."""
        return tuple(dict.fromkeys(self.indices.values()))

    def append(
        self, block: Block, elements: Mapping[int, SSAValue], indices: Mapping[int, SSAValue] | None = None
    ) -> SSAValue:
        """Appends the computation to a block that has these elements for the inputs used, and for the indices of
        loops; returns the result."""
        mapped: dict[SSAValue, SSAValue] = {}
        for number, element in elements.items():
            inner = self.body.args[number] if number < len(self.body.args) else self.inputs[number]
            mapped[inner] = element
        mapped |= {index: (indices or {})[loop] for index, loop in self.indices.items()}
        narrow = bool(self.indexed)

        def inside(value: SSAValue) -> SSAValue:
            """The value in the block for one from outside. Constants are created again."""
            if value not in mapped and isinstance(constant := value.owner, arith.ConstantOp):
                if narrow and is_long(value.type):
                    mapped[value] = narrowed(constant, mapped, block)
                else:
                    block.add_op(copy := constant.clone())
                    mapped[value] = copy.result
            return mapped[value]

        for op in self.body.ops:
            if isinstance(op, YieldOp):
                return inside(op.operands[0])
            if isinstance(op, IndexOp):
                continue
            if (wide := contracted(op)) is not None:
                mapped[op.results[0]] = inside(wide)
                continue
            for operand in op.operands:
                inside(operand)
            if narrow and any(is_long(value.type) for value in (*op.operands, *op.results)):
                mapped[op.results[0]] = narrowed(op, mapped, block)
            else:
                block.add_op(op.clone(mapped))
        raise AssertionError("a verified region ends with linalg.yield")


def read_elementwise(op: Operation) -> Elementwise | None:
    """The elementwise function of an operation on memory; None for other operations."""
    if not isinstance(op, LinalgStructuredOperation) or why_not_elementwise(op):
        return None
    nest = Nest.of(op)
    order, captured = nest.writes[0].loops, nest.captured
    maps = (
        map_along(nest.loops, (FIXED if loop == FIXED else order.index(loop) for loop in access.loops))
        for access in nest.accesses
    )
    scalars = (AffineMap(nest.loops, 0, ()) for _ in captured)
    return Elementwise(op, (*op.inputs, *op.outputs, *captured), (*maps, *scalars), captured)


def why_not_elementwise(op: LinalgStructuredOperation) -> str:
    """Why an operation on memory is not elementwise; "" if it is."""
    nest = Nest.of(op)
    if nest.summed:
        return "it reduces over a loop; of such operations, products and reductions of rows are lowered"
    if op.results or not all(isinstance(value.type, MemRefType) for value in op.outputs):
        return "it is on tensors; bufferize them first"
    if len(op.outputs) != 1:
        return f"expected one output, got {len(op.outputs)}"
    if other := next((map_ for map_ in nest.maps if not is_projection(map_)), None):
        return f"expected every dimension to run along a loop of its own, got {other}"
    inner = [op for op in nest.body.ops if not isinstance(op, arith.ConstantOp | IndexOp | YieldOp)]
    if other := next((op.name for op in inner if not (op.operands and only_computes(op))), ""):
        return f"its body does more than arithmetic on elements: {other}"
    return objection(nest) if nest.is_elementwise else "expected the output to be indexed by all loops"


# `warp-fuse-epilogue`: elementwise operations on a product's result move into the product.
#
# `D = f(A B, X, ...)` written as a product into a temporary memref (or into D itself) and a `linalg.generic` that
# reads it becomes one `warp.matmul` with an epilogue. Nothing about the values changes: an element of the product is
# still rounded to the temporary's element type before f sees it.
#
# Fusing is legal when nobody can tell that the temporary is never written, and that the product is computed later,
# where the elementwise operation stands:
#
# - the temporary is the operation's own output, or a `memref.alloc` that nothing else uses;
# - the operations in between neither write what the product reads, nor touch the temporary;
# - the output shares no memory with A or B, and only element by element with C and the other inputs.
#
# What is not fused stays as it is; `warploom-opt --remarks` says why.

FUSE = "warp-fuse-epilogue"
"""The pass, as remarks name it."""

BYTE = 8
"""Bits of the widest elements of which two fill no register."""


class Match(NamedTuple):
    """An elementwise operation with the product whose result it reads from `temporary`."""

    product: MatmulOp
    elementwise: Elementwise

    @property
    def temporary(self) -> SSAValue:
        return self.product.d

    @property
    def of_product(self) -> tuple[int, ...]:
        """The inputs of the elementwise operation that are the product's element."""
        return tuple(i for i, value in enumerate(self.elementwise.inputs) if value == self.temporary)

    @property
    def others(self) -> tuple[int, ...]:
        """The other inputs of the operation."""
        inputs = range(len(self.elementwise.inputs))
        return tuple(i for i in inputs if i not in self.of_product and self.elementwise.reads(i))

    def map_of(self, number: int) -> AffineMap:
        """How an input is indexed by the loops of the product."""
        loops = self.product.maps[2]
        along = (loops.results[loop] for loop in loops_of(self.elementwise.maps[number]))
        return AffineMap(loops.num_dims, 0, tuple(along))

    def objection(self) -> str:
        """Why fusing would change what somebody can see: see the module. "" if it would not."""
        product, last, in_place = self.product, self.elementwise.op, self.temporary == self.elementwise.output
        read = [value for value in (*product.factors, product.c, *product.epilogue_operands) if value is not None]
        results = frozenset([self.temporary] if in_place else [])
        fused = Replacement(frozenset((product, last)), last, results, roots_of(read), frozenset())
        if reason := fused.objection():
            return reason
        if self.elementwise.loops != len(product.maps[2].results):
            return "it has other loops than the product's result has dimensions"
        if any(FIXED in loops_of(map_) for map_ in self.elementwise.maps):
            return "it reads one place along a dimension"
        if any(self.map_of(i) != product.maps[2] for i in self.of_product):
            return "it reads the product's result in another order than it is written"
        row, column = (loops_of(product.maps[2]).index(product.maps[2].num_dims + loop) for loop in (-3, -2))
        if lines_of(memory_of(self.elementwise.output), (row, column)) != (row, column):
            return "rows of its output are not contiguous, as those of the product's result are"
        if product not in fused.dead:
            return "others use the product's result too"
        if product.grouped is not None and (product.grouped != M or self.elementwise.indexed or self._selects()):
            return "it is of the sums of groups, asks for indices, or chooses what rows behind the last group have"
        if product.grouped is not None and in_place:
            return "it also updates rows behind the last group, which others read"
        values = [self.elementwise.output, *(self.elementwise.inputs[i] for i in self.others)]
        kinds = [element_type(value) for value in values if isinstance(value.type, MemRefType)]
        rows = {kind: element_row(kind) for kind in kinds}
        if wide := next((kind for kind, row in rows.items() if row is None), None):
            return f"no fragments of {wide} are loaded or stored with a product"
        if product.product_type == f64 and (
            narrow := next((r.mlir for r in rows.values() if r and r.bits <= BYTE), "")
        ):
            return f"a lane holds 2 neighbouring sums of f64, and 2 elements of {narrow} fill no register"
        return "" if self._is_unshared() else "its output shares memory with what the product or it reads"

    def _selects(self) -> bool:
        """Whether results may not depend on the product's: rows behind the last group are not written then."""
        return any(isinstance(op, arith.SelectOp) for op in self.elementwise.body.ops)

    def _is_unshared(self) -> bool:
        """Whether every element is read by all its readers before it is overwritten."""
        product, output = self.product, self.elementwise.output
        if any(root(value) == root(output) for value in product.factors):
            return False
        others = [(product.c, product.maps[2])]
        others += product.placed_operands
        others += [(self.elementwise.inputs[i], self.map_of(i)) for i in self.others]
        return all(
            value is None or root(value) != root(output) or (value == output and map_ == product.maps[2])
            for value, map_ in others
        )


def fuse(matches: Sequence[Match], b: OperandForm | None = None) -> None:
    """Replaces an elementwise operation, and the products whose results it reads, by one product where it stands: of
    several by one of a `b` that has those of all."""
    products, elementwise, first = [match.product for match in matches], matches[0].elementwise, matches[0]
    block = Block(arg_types=[product.product_type for product in products for _ in range(product.products)])
    of_products = {i: number for number, match in enumerate(matches) for i in match.of_product}
    others = {i: (elementwise.inputs[i], first.map_of(i)) for i in first.others if i not in of_products}
    operands = list(dict.fromkeys([*(o for p in products for o in p.placed_operands), *others.values()]))
    arguments, elements = iter(list(block.args)), list[SSAValue]()
    place = {(value, map_): block.insert_arg(element_type(value), len(block.args)) for value, map_ in operands}
    for product in products:
        own = [next(arguments) for _ in range(product.products)]
        taken = [*own, *(place[operand] for operand in product.placed_operands)]
        elements.append(own[0] if product.epilogue is None else inlined(product.epilogue.body, block, taken))
    inputs = {i: elements[number] for i, number in of_products.items()} | {i: place[o] for i, o in others.items()}
    loops = loops_of(first.product.maps[2])
    indices = {loop: ElementIndexOp(loops[loop]) for loop in elementwise.indexed}
    block.add_ops(indices.values())
    result = elementwise.append(block, inputs, {loop: index.result for loop, index in indices.items()})
    block.add_op(ElementYieldOp(result))
    name_arguments(block, operands)
    epilogue = PointwiseOp(operands, Region(block))
    epilogue.function.name_hint, epilogue.location = "epilogue", products[0].location
    operand = products[0].b if b is None else b.operand
    fused = products[0].like(b=operand, d=elementwise.output, through=epilogue.function)
    Rewriter.insert_op([*([] if b is None else [b]), *with_functions(fused)], InsertPoint.before(elementwise.op))
    for op in (elementwise.op, *products):
        Rewriter.erase_op(op)
    drop_forms([product.through for product in products])
    for match in matches:
        drop_unused(match.temporary)


def inlined(epilogue: Region, block: Block, arguments: Sequence[SSAValue]) -> SSAValue:
    """Appends an epilogue to a block. `arguments` are the values of its first arguments. Returns the yielded value."""
    mapped: dict[SSAValue, SSAValue] = dict(zip(epilogue.block.args, arguments, strict=False))
    for op in epilogue.block.ops:
        if not isinstance(op, ElementYieldOp):
            block.add_op(op.clone(mapped))
    return mapped[yielded(epilogue)]


def name_arguments(block: Block, epilogue_operands: Sequence[tuple[SSAValue, AffineMap]]) -> None:
    """Names arguments after the operands that they stand for."""
    products = len(block.args) - len(epilogue_operands)
    for argument in block.args[:products]:
        argument.name_hint = "product"
    for argument, (value, _) in zip(block.args[products:], epilogue_operands, strict=True):
        argument.name_hint = value.name_hint


def producers(elementwise: Elementwise, limit: int = 1) -> list[Match]:
    """Up to `limit` earlier products that can be fused with an operation, the last one first. A remark says why a
    product that it reads cannot be fused."""
    wanted, matches, reason, op = set(elementwise.read), list[Match](), "", elementwise.op.prev_op
    while op is not None and len(matches) < limit:
        if isinstance(op, MatmulOp) and op.d in wanted:
            match = Match(op, elementwise)
            obstacle = match.objection()
            matches += [] if obstacle else [match]
            reason = reason or obstacle
        op = op.prev_op
    if reason and limit == 1 and not matches:
        remark(elementwise.op, FUSE, f"it is not fused with the product whose result it reads: {reason}")
    return matches


@rewrite_pattern
def fuse_epilogue(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Moves an elementwise operation on the result of a product into its epilogue."""
    elementwise = read_elementwise(op)
    for match in [] if elementwise is None else producers(elementwise):
        fuse([match])
        chose(op, FUSE, f"{op.name} is part of the product whose result it reads")
        rewriter.has_done_action = True


@rewrite_pattern
def approximate_epilogue(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Allows approximate functions and quotients in an epilogue, in addition to its fastmath flags."""
    for inner in () if op.epilogue is None else op.epilogue.body.block.ops:
        flags, approximates = inner.properties.get("fastmath"), inner.name.startswith(("math.", arith.DivfOp.name))
        if approximates and isinstance(flags, arith.FastMathFlagsAttr):
            inner.properties["fastmath"] = arith.FastMathFlagsAttr([*flags.data, FastMathFlag.APPROX_FUNC])
