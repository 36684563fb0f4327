"""`warp-raise-matmul`: every way to write a matrix product in `linalg` becomes `warp.matmul`; `warp-fold-fill` and
`warp-fuse-epilogue`: so does what is done before and behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.builder import ImplicitBuilder
from xdsl.context import Context
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.dialects.math import FmaOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from ...dialect.isa.form import ELEMENT_TYPES, ElementType
from ...dialect.mlir.affine import FIXED, Nest, Weighted, arithmetic, converted, loops_of, strides_of, weighted
from ...dialect.mlir.contraction import METADATA, ContractionOp, PoolingOp
from ...dialect.warp.attributes import element_row, in_place_of, memory_of
from ...dialect.warp.elements import PointwiseOp, element_type, shape_of, with_functions
from ...dialect.warp.elements import YieldOp as ElementYieldOp
from ...dialect.warp.matmul import BY_ELEMENT, FASTMATH, MatmulOp
from ...dialect.warp.op_shapes import OperandForm
from ...dialect.warp.operands import SparseOp
from ...dialect.warp.stored import StoredIntegers, StoredOp
from ..diagnostics import chose, fail, message_of, remark
from ..patterns import IndexBuilder, LocatedRewriter, apply_patterns, constant_number, rewrite_pattern
from . import contraction
from .contraction import split_loops
from .memory_uses import Replacement, check_unshared, roots_of, unshaped
from .operand import expanded, lie_in_memory, root
from .product import read

# Products that are weighted, subtracted, or of integers added to floats: `C + w * A * B` becomes a product that starts
# from zero, with an epilogue that weighs it and adds C.
#
# That is one product of sums, not a sum of weighted products: equal but for rounding, of which there is less.

FLOAT_BITS = 32
"""Narrower floats are weighed and added as f32, and rounded once."""


def weigh(op: Operation, product: MatmulOp, body: Weighted) -> MatmulOp:
    """Makes a product that adds to C one that starts from zero. Its epilogue multiplies with the weight of the body and
    adds C. Raises a located diagnostic for integers whose sums may not fit their accumulators."""
    result_type = element_type(product.d)
    if body.converted:
        _check_exact(op, product)
    wide: Attribute = f32 if isinstance(result_type, AnyFloat) and result_type.bitwidth < FLOAT_BITS else result_type
    summed: Attribute = i32 if body.converted else wide
    weights = [value for value in dict.fromkeys(body.weights) if not isinstance(value.owner, arith.ConstantOp)]
    block = Block(arg_types=[summed, result_type, *(value.type for value in weights)])
    inside: dict[SSAValue, SSAValue] = dict(zip(weights, block.args[2:], strict=True))
    element, total = block.args[:2]
    with ImplicitBuilder(block):
        element = converted(element, wide)
        for weight in body.weights:
            if weight not in inside and isinstance(constant := weight.owner, arith.ConstantOp):
                inside[weight] = constant.clone().result
            element = arithmetic("mul", element, converted(inside[weight], wide))
        total = arithmetic("sub" if body.negated else "add", converted(total, wide), element)
        ElementYieldOp(converted(total, result_type))
    scalar = AffineMap(product.maps[2].num_dims, 0, ())
    epilogue = PointwiseOp([(product.d, product.maps[2]), *((value, scalar) for value in weights)], Region(block))
    epilogue.function.name_hint = "weighted"
    zero = FloatAttr(0.0, summed) if isinstance(summed, AnyFloat) else IntegerAttr(0, summed)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return product.like(start=zero, through=epilogue.function)


def _check_exact(op: Operation, product: MatmulOp) -> None:
    """Refuses integer products whose sums may overflow the 32 bits of accumulators, if the number of terms is known."""
    sizes = dict(zip(loops_of(product.maps[0]), shape_of(product.matrices[0]), strict=True))
    depth = math.prod(size for loop, size in sizes.items() if size > 0 and loop not in loops_of(product.maps[2]))
    bits = (ELEMENT_TYPES[name] for name in product.multiplied)
    largest = math.prod(1 << (row.bits - row.signed) for row in bits)
    if depth * largest > 1 << 31:
        fail(op, f"sums of {depth} products of integers may pass 32 bits before they are converted to floats")


def raise_products(module: Operation) -> None:
    """Raises every product below an operation; errors name the operation they are about."""
    apply_patterns([erase_empty, copy_strided], module)
    apply_patterns([raise_product, split_loops], module)


@rewrite_pattern
def erase_empty(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Erases an operation all of whose outputs are memory without elements."""
    kinds = [value.type for value in op.outputs]
    if all(isinstance(kind, MemRefType) and 0 in kind.get_shape() for kind in kinds):
        rewriter.erase(op)


@rewrite_pattern
def copy_strided(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Lets a product read, and write, copies of memory of which every stride is dynamic."""
    if not isinstance(op, ContractionOp) and not (Nest.of(op).summed and contraction.adds_products(op)):
        return
    for number, value in enumerate(op.operands):
        strides = strides_of(memory_of(value)) if isinstance(value.type, MemRefType) else None
        if not strides or any(stride is not None for stride in strides):
            continue
        index = IndexBuilder(op)
        kind, sizes = memory_of(value), index.unknown_sizes(value)
        copied = index.insert(memref.AllocOp(sizes, [], MemRefType(kind.element_type, kind.get_shape()))).memref
        remark(op, RaiseMatmulPass.name, f"operand {number} is copied, as all strides of {kind} are dynamic")
        index.insert(ops.CopyOp([value], [copied], []))
        if number >= len(op.inputs):
            rewriter.insert(ops.CopyOp([copied], [value], []), InsertPoint.after(op))
        op.operands[number] = copied
        rewriter.has_done_action = True


BY_THREADS = (f16, BFloat16Type(), f32, f64, i8, i16, i32, i64)
"""The types of elements that a thread adds up."""


@rewrite_pattern
def raise_product(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Replaces a product by `warp.matmul`. A product of contiguous channels that are each their own group becomes an
    elementwise operation. Products that no matrix instruction computes stay for a kernel with a thread per element,
    with a remark."""
    if isinstance(op, PoolingOp) or not (isinstance(op, ContractionOp) or Nest.of(op).summed):
        return
    if BY_ELEMENT in op.attributes:
        return
    if any(FIXED in access.loops for access in Nest.of(op).reads):
        from .channels import with_channels_last  # with what other products do not need

        if (made := with_channels_last(op)) is not None:
            op, rewriter = made, PatternRewriter(made)
    if isinstance(op, ops.GenericOp) and not contraction.adds_products(op):
        remark(op, RaiseMatmulPass.name, "it adds no products of two inputs of types that tensor cores multiply")
        return
    rewriter.has_done_action = True
    before, apart, raised = op.prev_op, False, None
    on_tensors = any(isinstance(value.type, TensorType) for value in op.operands)
    by_threads = all(element_type(value) in BY_THREADS for value in op.operands)
    needs_instruction = METADATA in op.attributes or on_tensors or not by_threads
    try:
        raised = _raised(op)
        reason = "" if needs_instruction else _objection(raised)
    except contraction.SeparateProductsError as error:
        reason, apart = str(error), True
    except DiagnosticException as error:
        reason = message_of(error)
    if raised is not None and not reason:
        kinds = " x ".join(raised.multiplied)
        chose(op, RaiseMatmulPass.name, f"{op.name} is a product of {kinds} on tensor cores")
        _replace(op, raised)
        return
    if needs_instruction and not apart:
        fail(op, reason if reason.startswith(op.name) else f"{op.name}: {reason}")
    while (made := op.prev_op) is not None and made is not before:
        Rewriter.erase_op(made, safe_erase=False)  # a product that is in no block may use it
    windows = None
    if apart:
        from .window_sums import WindowSum  # with what a product does not need

        windows = WindowSum.of(op)
    each = "an element" if windows is None else f"{windows.pixels} pixels of {windows.width} channels"
    remark(op, RaiseMatmulPass.name, f"no tensor core multiplies it, a thread adds up {each}: {reason}")
    op.attributes[BY_ELEMENT] = UnitAttr()


def _objection(raised: MatmulOp) -> str:
    """The reason why no matrix instruction of any GPU multiplies these operands; "" if one may. F32 counts as tf32,
    which an option allows, and reversed operands as readable by tensor copies. A mix of f16 and bf16 is left to the
    choice of an instruction, which rejects it."""
    backwards = any((step or 0) < 0 for value in raised.matrices for step in strides_of(memory_of(value)) or ())
    if backwards or sorted(raised.multiplied) == ["bf16", "f16"]:
        return ""
    types = raised.types
    raised.types = ArrayAttr(StringAttr("tf32") if kind.data == "f32" else kind for kind in types)
    try:
        raised.verify()
        read(raised)
    except DiagnosticException as error:
        return message_of(error)
    finally:
        raised.types = types
    return ""


def _raised(op: LinalgStructuredOperation) -> MatmulOp:
    """The product that an operation is, by its maps and body."""
    if isinstance(op, ops.MatmulOp) and weighted(op.body.block) is None:
        fail(op, "its body does more than to extend, multiply and add")
    for name, value in zip("ABC", (*op.inputs[:2], *op.outputs), strict=False):
        _element(op, name, value)
    product = contraction.read(op)
    a, b, c = (_with_ones(op, value, map_) for value, map_ in zip(product.operands, product.maps, strict=True))
    raised = _product(op, a, b, c, product)
    if not product.body.is_plain:
        plain, raised = raised, weigh(op, raised, product.body)
        plain.erase()
    end = op.body.block.last_op
    total = None if end is None else end.operands[0].owner
    if isinstance(total, arith.AddfOp | arith.SubfOp | FmaOp) and total.fastmath and total.fastmath.data:
        raised.attributes[FASTMATH] = total.fastmath
    return raised


def _with_ones(op: Operation, value: SSAValue, map_: AffineMap) -> SSAValue:
    """Memory with leading dimensions of size 1, so that its rank is the number of results of the map."""
    kind, more = memory_of(value), len(map_.results) - memory_of(value).get_num_dims()
    if not more:
        return value
    shape, strides = kind.get_shape(), strides_of(kind)
    layout = kind.layout
    if not isinstance(layout, NoneAttr) and strides is not None:
        unknown = strides[:1] == (None,) or min(shape[:1], default=0) < 0
        first = None if unknown else (strides[0] or 0) * shape[0] if shape else 1
        # A dimension of one index may step as far as any; neighbours are along it where they are along no other.
        first = first if 1 in strides else 1
        layout = StridedLayoutAttr([first] * more + list(strides), kind.get_offset())
    index = IndexBuilder(op)
    sizes = index.unknown_sizes(value)
    own = [[d + more for d in group] for group in ([d] for d in range(len(shape)))]
    groups = [[*range(more), *own[0]], *own[1:]] if own else []
    wider = MemRefType(kind.element_type, [*([1] * more), *shape], layout, kind.memory_space)
    return index.insert(expanded(value, wider, groups, sizes)).result


def _product(
    op: LinalgStructuredOperation, a: SSAValue, b: SSAValue, c: SSAValue, read: contraction.Contraction
) -> MatmulOp:
    """The product of A and B added to C, each of them a matrix or several."""
    maps: Sequence[AffineMap] = read.maps
    unsigned = read.unsigned
    a_type, b_type = (_element(op, name, value) for name, value in zip("AB", (a, b), strict=True))
    types = [_multiplied(*typed) for typed in zip((a_type, b_type), unsigned, strict=True)]
    # The product of two bits is their and, whether a set one is read as 1 or as -1.
    bit_op = "and" if types == ["b1", "b1"] and unsigned[0] == unsigned[1] else ""
    e, integers = _metadata(op), None
    m, n = (loops_of(maps[-1]).index(maps[-1].num_dims + loop) for loop in (-3, -2))
    if lie_in_memory(op, "C", memory_of(c), (m, n)) != (m, n):  # contiguous along m: the transpose, B^T * A^T
        if e is not None:
            fail(op, f"expected C of a sparse A row by row, got {c.type}")
        map_b, map_a, map_c = map(_exchanged, maps)
        a, b, types, maps = b, a, types[::-1], [map_a, map_b, map_c]
    if a_type.is_float != b_type.is_float:
        if e is not None or not ELEMENT_TYPES[types[0]].is_float:
            fail(op, "expected integers times floats to have the integers in B, and a dense A of floats, got "
                 f"{' x '.join(types)}; if A has the integers, exchange A and B, and transpose C")  # fmt: skip
        # The integers are converted to the type that they are multiplied with, which has all of them.
        integers, types = StoredIntegers(types[1]), [types[0]] * 2
    a = a if e is None else formed(op, SparseOp(a, e))
    b = b if integers is None else formed(op, StoredOp(b, integers))
    return MatmulOp(a, b, c, types, c=c, maps=maps, bit_op=bit_op)


def formed(op: Operation, form: OperandForm) -> SSAValue:
    """Inserts the form of an operand before an operation. Its name derives from that of its memory."""
    form.operand.name_hint = form.matrix.name_hint and f"{form.matrix.name_hint}_{form.name.partition('.')[2]}"
    return LocatedRewriter(op).insert(form).operand


def _exchanged(map_: AffineMap) -> AffineMap:
    """A map with m and n having changed names."""
    m, n = map_.num_dims - 3, map_.num_dims - 2
    names = {m: n, n: m}
    return AffineMap(map_.num_dims, 0, tuple(AffineDimExpr(names.get(loop, loop)) for loop in loops_of(map_)))


def _metadata(op: Operation) -> SSAValue | None:
    """The metadata of a sparse A, which an attribute names by its number among the function's arguments."""
    named = op.attributes.pop(METADATA, None)
    if named is None:
        return None
    function = op.parent_op()
    arguments = function.body.block.args if isinstance(function, func.FuncOp) else ()
    number = named.value.data if isinstance(named, IntegerAttr) else -1
    if not 0 <= number < len(arguments) or not isinstance(arguments[number].type, MemRefType):
        fail(op, f"expected {METADATA} to be the number of an argument of the function, a memref, got {named}")
    return arguments[number]


def _multiplied(element: ElementType, unsigned: bool) -> str:
    """The name of the multiplied type. Integers that are read as unsigned have the unsigned type of their width."""
    return f"u{element.bits}" if unsigned and element.bits > 1 and not element.is_float else element.name


def _element(op: Operation, name: str, value: SSAValue) -> ElementType:
    if not isinstance(value.type, MemRefType):
        fail(op, f"expected {name} to be a memref, got {value.type}; bufferize tensors first")
    kind = memory_of(value).element_type
    element = element_row(kind)
    if element is None:
        fail(op, f"expected {name} of a type that matrix instructions know, got {kind}")
    return element


def _replace(op: Operation, raised: MatmulOp) -> None:
    """Puts the raised product in place of an operation, with its place in the file and its attributes."""
    in_place_of(op, raised)
    try:
        for made in (*(form for form in raised.forms if form is not None), *with_functions(raised)):
            made.verify()
    except VerifyException as error:
        fail(op, str(error))
    check_unshared(raised, op)
    stored = element_type(raised.d)
    if isinstance(stored, AnyFloat) and stored.bitwidth < FLOAT_BITS:
        said = f"its body rounds each product and each sum to {stored}; the kernel adds exact products, and rounds once"
        remark(
            op, RaiseMatmulPass.name, f"{said} (accumulate = f16: after each instruction)" if stored == f16 else said
        )
    Rewriter.replace_op(op, with_functions(raised), [])


@dataclass(frozen=True)
class RaiseMatmulPass(ModulePass):
    """Replaces every product in `linalg` on memrefs by a `warp.matmul`.

    Products are `linalg.matmul` and `batch_matmul`, their `_transpose_a` and `_transpose_b` forms, `quantized_matmul`
    and `quantized_batch_matmul` with zero points of 0, and each `linalg.contract` or `linalg.generic` that sums
    products of matrices or vectors, as `matvec`, `vecmat` and `dot` do. A reduction of anything else is an error. A
    product whose C is column-major becomes the product of its transpose, and a vector becomes a matrix of one row.
    A copy along quotients and remainders of loops, as im2col writes a matrix of patches, becomes a copy along more
    loops. `tf32` allows products of f32 to drop 13 of the 23 fraction bits of each operand, because no instruction
    multiplies all of them.
    """

    name = "warp-raise-matmul"

    tf32: bool = False

    needs: ClassVar = ("linalg.*", "linalg.matmul", "linalg.batch_matmul", "linalg.fill")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        if self.tf32:
            for product in [o for o in op.walk() if isinstance(o, MatmulOp)]:
                if product.multiplied == ("f32", "f32"):
                    product.types = ArrayAttr([StringAttr("tf32")] * 2)


@rewrite_pattern
def fold_fill(op: FillOp, rewriter: PatternRewriter) -> None:
    """Makes a product start from a constant, if its memory is filled with that before."""
    value = constant_number(op.inputs[0])
    product = _folded_into(op, "" if value is not None else "what it fills with is no constant")
    if product is not None:
        chose(op, FoldFillPass.name, "the product starts from it")
        rewriter.replace(product, product.like(start=value), [])
        rewriter.erase(op)


@rewrite_pattern
def fold_copy(op: CopyOp, rewriter: PatternRewriter) -> None:
    """Makes a product start from the source of a copy to its memory."""
    source, copied = op.inputs[0], op.outputs[0]
    within = "it copies within one memory" if root(source) == root(copied) else ""
    reason = f"it copies {source.type} to {copied.type}" if source.type != copied.type else within
    if (product := _folded_into(op, reason)) is None:
        return
    wider = product.d.owner
    if isinstance(wider, memref.ExpandShapeOp) and wider.src == copied:
        source = rewriter.insert(wider.clone({copied: source}), InsertPoint.before(product)).result
    if source.type == product.d.type:
        rewriter.replace(product, product.like(start=source), [])
        rewriter.erase(op)


def _folded_into(op: FillOp | CopyOp, reason: str) -> MatmulOp | None:
    """The product that adds to all of what a fill or a copy writes; None if it may not start from that, and a remark
    that says why."""
    product, memory = op.next_op, op.outputs[0]
    while product is not None and not (isinstance(product, MatmulOp) and _overwrites(product, memory)):
        product = product.next_op
    if not isinstance(product, MatmulOp) or op.results:
        return None
    both = frozenset((op, product))
    folded = Replacement(both, product, frozenset((memory,)), roots_of(op.inputs), frozenset())
    if reason := reason or folded.objection():
        remark(op, FoldFillPass.name, f"it is not folded into the product that adds to what it writes: {reason}")
        return None
    return product


def _overwrites(product: MatmulOp, memory: SSAValue) -> bool:
    """Whether a product adds to all of a memory, and reads it nowhere else."""
    all_of_it = product.c == product.d and unshaped(product.d) == unshaped(memory)
    return all_of_it and root(memory) not in map(root, product.factors)


class FoldFillPass(ModulePass):
    """Folds `linalg.fill` with a constant, or `linalg.copy`, into the product that follows it on the same memref. No
    operation between the two may touch that memory. Products still in `linalg` are raised first."""

    name = "warp-fold-fill"
    needs: ClassVar = ("linalg.*", "linalg.fill")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        apply_patterns([fold_fill], op)
        apply_patterns([fold_copy], op)


@dataclass(frozen=True)
class FuseEpiloguePass(ModulePass):
    """Moves elementwise operations of `linalg` on the result of a product, or on those of two products of one A, into
    its epilogue. With `approximate`, epilogues use the GPU's approximate instructions, as if each operation had
    `fastmath<afn>`. Products still in `linalg` are raised first."""

    name = "warp-fuse-epilogue"
    needs: ClassVar = ("linalg.*",)

    approximate: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from .elementwise import approximate_epilogue, fuse_epilogue

        raise_products(op)
        if sum(isinstance(each, MatmulOp | memref.SubviewOp) for each in op.walk()) > 1:
            from .fuse_products import fuse_results  # of two products, or of halves of the columns of one

            fuse_results(op)
        else:
            apply_patterns([fuse_epilogue], op)
        if self.approximate:
            apply_patterns([approximate_epilogue], op)
