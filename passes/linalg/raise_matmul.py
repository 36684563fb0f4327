"""`warp-raise-matmul`: every way to write a matrix product in `linalg` becomes `warp.matmul`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
)
from xdsl.dialects.linalg import ops
from xdsl.dialects.linalg.abstract_ops import ConvOperation, LinalgStructuredOperation
from xdsl.dialects.linalg.ops import GenericOp, QuantizedMatmulOp
from xdsl.dialects.math import FmaOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.types import ELEMENT_TYPES, ElementType
from ...dialect.linalg import CONTRACTIONS, METADATA, ContractionOp, ConvolutionOp
from ...dialect.linalg.body import weighted
from ...dialect.warp.attributes import element_row, in_place_of, memory_of
from ...dialect.warp.loops import loops_of
from ...dialect.warp.matmul import FASTMATH, MatmulOp
from ...dialect.warp.operand_forms import OperandForm
from ...dialect.warp.pointwise import with_functions
from ...dialect.warp.sparse import SparseOp
from ...dialect.warp.stored import StoredIntegers, StoredOp
from ...dialect.warp.view import strides_of
from ..diagnostics import fail
from ..tile.index_builder import constant_value
from . import contraction
from .matrices import lie_in_memory
from .overlap import check_product
from .split_loops import split_copy
from .unroll_windows import unroll
from .views import expanded
from .weights import weigh


def raise_products(module: Operation) -> None:
    """Raises every product below an operation; errors name the operation they are about."""
    for op in list(module.walk()):
        if isinstance(op, LinalgStructuredOperation) and _writes_nothing(op):
            Rewriter.erase_op(op)
        elif isinstance(op, LinalgStructuredOperation) and _read_by_maps(op):
            _raise_generic(op)
        elif isinstance(op, ContractionOp):
            _replace(op, _named(op))
        elif isinstance(op, QuantizedMatmulOp):
            _replace(op, _quantized(op))
        elif isinstance(op, ops.MatmulOp):
            _replace(op, _of_xdsl(op))
        else:
            split_copy(op)


def _raise_generic(op: LinalgStructuredOperation) -> None:
    """Replaces a product that its maps and body say; one of channels of their own, that are neighbours in memory, by an
    elementwise operation."""
    before = op.prev_op
    try:
        raised = _generic(op)
    except contraction.SeparateProductsError:
        while (made := op.prev_op) is not None and made is not before:
            Rewriter.erase_op(made)
        unroll(op)
    else:
        _replace(op, raised)


def _writes_nothing(op: LinalgStructuredOperation) -> bool:
    """Whether all that an operation writes is memory without elements."""
    kinds = [value.type for value in op.outputs]
    return all(isinstance(kind, MemRefType) and 0 in kind.get_shape() for kind in kinds)


def _read_by_maps(op: LinalgStructuredOperation) -> bool:
    """Whether maps and body say what an operation is, and no name."""
    if isinstance(op, ContractionOp):
        return isinstance(op, CONTRACTIONS) or op.repeats or op.converts
    return isinstance(op, ConvolutionOp | ConvOperation) or (isinstance(op, GenericOp) and contraction.sums(op))


def _named(op: ContractionOp) -> MatmulOp:
    a, b = op.inputs
    return _raised(op, a, b, [attribute.data for attribute in op.indexing_maps], (op.unsigned, op.unsigned))


def _of_xdsl(op: ops.MatmulOp) -> MatmulOp:
    """xDSL's own `linalg.matmul`, which plain `xdsl-opt` reads; in generic form its body may have casts."""
    if weighted(op.body.block) is None:
        fail(op, "expected linalg.matmul to multiply and add, as its body says otherwise; write linalg.generic")
    return _generic(op)


def _generic(op: LinalgStructuredOperation) -> MatmulOp:
    for name, value in zip("ABC", (*op.inputs[:2], *op.outputs), strict=False):
        _element(op, name, value)
    found = contraction.read_matrices(op)
    a, b, c = (_with_ones(op, value, map_) for value, map_ in zip(found.operands, found.maps, strict=True))
    raised = _raised(op, a, b, found.maps, found.unsigned, c)
    if not found.body.is_plain:
        plain, raised = raised, weigh(op, raised, found.body)
        plain.erase()
    end = op.body.block.last_op
    total = None if end is None else end.operands[0].owner
    if isinstance(total, arith.AddfOp | arith.SubfOp | FmaOp) and total.fastmath and total.fastmath.data:
        raised.attributes[FASTMATH] = total.fastmath
    return raised


def _with_ones(op: Operation, value: SSAValue, map_: AffineMap) -> SSAValue:
    """Memory with dimensions of size 1 before its own, so that it has as many as a map has results."""
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
    builder, sizes = Builder(InsertPoint.before(op)), list[SSAValue]()
    for dimension, size in enumerate(shape):
        if size < 0:
            number = builder.insert(arith.ConstantOp(IntegerAttr(dimension, IndexType()))).result
            sizes.append(builder.insert(memref.DimOp(value, number)).result)
    own = [[d + more for d in group] for group in ([d] for d in range(len(shape)))]
    groups = [[*range(more), *own[0]], *own[1:]] if own else []
    wider = MemRefType(kind.element_type, [*([1] * more), *shape], layout, kind.memory_space)
    return builder.insert(expanded(value, wider, groups, sizes)).result


def _quantized(op: QuantizedMatmulOp) -> MatmulOp:
    """A product of integers less their zero points, which must be zero."""
    a, b, *zeros = op.inputs
    for name, zero in zip("AB", zeros, strict=False):
        if constant_value(zero) != 0:
            fail(op, f"expected the zero point of {name} to be the constant 0; others are not lowered")
    map_a, map_b, _, _, map_c = (attribute.data for attribute in op.get_indexing_maps())
    return _raised(op, a, b, [map_a, map_b, map_c])


def _raised(
    op: LinalgStructuredOperation,
    a: SSAValue,
    b: SSAValue,
    maps: Sequence[AffineMap],
    unsigned: tuple[bool, bool] = (False, False),
    c: SSAValue | None = None,
) -> MatmulOp:
    """The product of A and B added to C, or else to the operation's output; `unsigned` says how the integers of each
    are read."""
    c = op.outputs[0] if c is None else c
    a_type, b_type, _ = (_element(op, name, value) for name, value in zip("ABC", (a, b, c), strict=True))
    types = [_multiplied(*given) for given in zip((a_type, b_type), unsigned, strict=True)]
    # The product of two bits is their and, whether a set one is read as 1 or as -1.
    words = ["and"] if types == ["b1", "b1"] and unsigned[0] == unsigned[1] else []
    e, integers = _metadata(op), None
    if _runs_down(op, c, maps[-1]):
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
    return MatmulOp(a, b, c, types, c=c, maps=maps, words=words)


def formed(op: Operation, form: OperandForm) -> SSAValue:
    """An operand of a form that is made before an operation, with the name of its memory."""
    form.operand.name_hint = form.matrix.name_hint and f"{form.matrix.name_hint}_{form.name.partition('.')[2]}"
    form.location = op.location
    return Builder(InsertPoint.before(op)).insert(form).operand


def _runs_down(op: Operation, c: SSAValue, map_: AffineMap) -> bool:
    """Whether neighbours in memory lie along m of C, so that its transpose, B^T * A^T, is what a kernel stores."""
    m, n = (loops_of(map_).index(map_.num_dims + loop) for loop in (-3, -2))
    return lie_in_memory(op, "C", memory_of(c), (m, n)) != (m, n)


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
    """The name of the type that memory is multiplied as: of integers to be read as unsigned, that of their width."""
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
    check_product(op, raised)
    Rewriter.replace_op(op, with_functions(raised), [])


@dataclass(frozen=True)
class RaiseMatmulPass(ModulePass):
    """Replaces every product in `linalg` on memrefs by a `warp.matmul`.

    Products are `linalg.matmul` and `batch_matmul`, their `_transpose_a` and `_transpose_b` forms, `quantized_matmul`
    with zero points of 0, and each `linalg.contract` or `linalg.generic` that sums products of matrices or vectors, as
    `matvec`, `vecmat` and `dot` do. A reduction of anything else is an error. A product whose C is column-major
    becomes the product of its transpose, and a vector becomes a matrix of one row. A copy along quotients and
    remainders of loops, as im2col writes a matrix of patches, becomes a copy along more loops. `tf32` allows products
    of f32 to drop 13 of the 23 fraction bits of each operand, because no instruction multiplies all of them.
    """

    name = "warp-raise-matmul"

    tf32: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        if self.tf32:
            for product in [o for o in op.walk() if isinstance(o, MatmulOp)]:
                if product.multiplied == ("f32", "f32"):
                    product.types = ArrayAttr([StringAttr("tf32")] * 2)
