"""`warp-fuse-weights`: the conversion of integer weights becomes part of the product that reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AnyFloat, MemRefType, ModuleOp, NoneAttr, bf16, f32
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from ...dialect.isa import wgmma
from ...dialect.layouts.layout import Bit
from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attributes import element_name, memory_of, target_of
from ...dialect.warp.elements import K, N, element_type, with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.stored import (
    BYTES,
    EXPONENTS,
    FLOATS,
    LINE,
    NIBBLES,
    PACKED,
    StoredIntegers,
    StoredOp,
    packed_lines,
)
from ..diagnostics import remark
from ..patterns import apply_patterns, rewrite_pattern
from .dequantised import (
    Dequantised,
    MadeOperand,
    dequantised,
    fuse_block_scales,
    inserted,
    sole_writer,
    with_scaled_sums,
)
from .operand import collapse, expand, root
from .raise_matmul import formed, raise_products

# `W = (q - z) s` of integers q of 8 or 4 bits, written for a product that alone reads it, is left out: the product
# reads q, and converts it in registers, less the zero point, which is exact. There it is multiplied by its scale too,
# and rounded as the operation says. Where flags allow to leave that rounding out, a scale that is the same along k is
# left to the epilogue: one product of sums, not a sum of scaled products, which is equal but for rounding, of which
# there is less.
#
# What is not fused stays as it is, a kernel of its own; `warploom-opt --remarks` says why.

MIN_GROUP = 32
"""Elements along k that a register of integers of 4 bits is multiplied with in a step."""


@dataclass(frozen=True)
class Weights(MadeOperand):
    """A B that is converted from integers, and how."""

    how: Dequantised

    @property
    def scales(self) -> list[tuple[SSAValue, AffineMap]]:
        """What the sums are multiplied with: memory and numbers, and how they are indexed."""
        return [(self.made.inputs[i], self.map_of(i)) for i in self.how.scales if i not in self.of_groups]

    @property
    def rounded(self) -> bool:
        """Whether the weights are rounded after they are scaled, and nothing allows to leave that out."""
        return bool(self.how.roundings) and bool(self.how.scales or self.how.factors)

    @property
    def of_groups(self) -> list[int]:
        """The scales that change from group to group along k, but not in one."""
        if len(self.along_k) == 1:
            return []
        outer, inner = self.along_k
        loops_of_scales = [(i, loops_of(self.made.maps[i])) for i in self.how.scales]
        return [i for i, loops in loops_of_scales if outer in loops and inner not in loops]

    @property
    def is_packed(self) -> bool:
        """Whether the integers lie in the order of `PACKED`: blocks along k, then along n."""
        order = PACKED[StoredIntegers(self.how.stored).element.bits]
        axes = ["r" if loop == self.product.outer + N else "c" for loop in loops_of(self.product.maps[1])]
        shape, bits = memory_of(self.made.output).get_shape(), dict[int, list[Bit]]()
        for axis, loops in zip(axes, self.dimensions, strict=True):
            first = 0
            for loop in reversed(loops):
                # Of a size that is no power of two the outermost loop stands for all further bits.
                count = max(1, (shape[loop] - 1).bit_length())
                bits[loop] = [Bit(axis, first + i) for i in range(count)] if shape[loop] > 1 else []
                first += len(bits[loop])
        bits_in_order = [bit for loop in reversed(loops_of(self.made.maps[self.how.weights])) for bit in bits[loop]]
        inside = [*order.element, *order.lane, *order.warp]
        rest = bits_in_order[len(inside) :]
        odd = [shape[loop] & (shape[loop] - 1) for loops in self.dimensions for loop in loops[1:]]
        return bits_in_order[: len(inside)] == inside and rest == sorted(rest) and not any(odd)

    def _packed_objection(self) -> str:
        """Why packed weights are not converted within the product; "" if they are."""
        product, made, how, target = self.product, self.made, self.how, target_of(self.product)
        kind = element_type(made.output)
        if target is None or not any(row.a.name in FLOATS and row.runs_on(target) for row in wgmma.rows()):
            return "packed weights are multiplied by warpgroups, which the target does not have"
        if product.outer or len(how.scales) != 1 or how.factors:
            return "packed weights take one scale for each group or column, and no batch"
        parameters = [made.inputs[i] for i in (*how.scales, how.points) if i >= 0]
        if how.roundings not in ([], [kind], [f32, kind]):
            return f"packed weights are rounded to {kind} once they are scaled"
        exponents = how.stored == NIBBLES and how.points < 0
        if exponents and kind != bf16:
            return f"packed floats of 4 bits are multiplied as bf16, got {kind}"
        if any(
            element_type(value) != kind and not (exponents and element_name(element_type(value)) == EXPONENTS)
            for value in parameters
        ):
            return f"scales and zero points of packed weights are expected in {kind}"
        if how.points >= 0 and any(op.results[0].type != kind for op in made.body.ops if isinstance(op, arith.SubfOp)):
            return f"zero points of packed weights are expected to be subtracted in {kind}"
        if self._groups(how.scales[0]) == 0 or (
            how.points >= 0 and self._groups(how.points) != self._groups(how.scales[0])
        ):
            return "scales and zero points of packed weights are expected as groups x n"
        size = product_k(product) // self._groups(how.scales[0])
        if size % MIN_GROUP:
            return f"its groups have {size} elements along k; expected a multiple of {MIN_GROUP}"
        return self.between("the integers, the scales or the zero points")

    def _groups(self, number: int) -> int:
        """The number of groups along k with a scale in each column; 0 if the scales are arranged in another way."""
        loops, made = list(loops_of(self.made.maps[number])), self.made
        of_n = self.dimensions[1 - self.dimensions.index(self.along_k)]
        count = len(loops) - len(of_n)
        plain = isinstance(memory_of(made.inputs[number]).layout, NoneAttr)
        if count < 0 or loops != [*self.along_k[:count], *of_n] or not plain:
            return 0
        return math.prod(memory_of(made.inputs[number]).get_shape()[:count])

    def objection(self) -> str:
        """Why the product cannot convert its B; "" if it can."""
        product = self.product
        if product.epilogue is not None or any(product.forms):
            return "the product is scaled, sparse or weighted already"
        (first, second), stored = product.multiplied, StoredIntegers(self.how.stored)
        if first != second or second not in stored.multiplied_as:
            return f"integers are converted to {' and '.join(stored.multiplied_as)}, got {first} x {second}"
        if sorted(loops_of(self.made.maps[self.how.weights])) != list(range(self.made.loops)):
            return "the integers are read more than once, or not all of them"
        if second in BYTES and (reason := self._bytes_objection(second)):
            return reason
        if self.is_packed and second in FLOATS:
            return self._packed_objection()
        if self.how.points >= 0:
            return "its zero point is no whole constant"
        if self.how.stored == NIBBLES:
            return "floats of 4 bits are converted within a product where they are packed"
        if reason := self._shaped() or self._grouped():
            return reason
        if any(not set(loops_of(map_)) <= set(loops_of(product.maps[2])) for _, map_ in self.scales):
            return "its scale changes along k"
        if self.rounded and (reason := self._rounded()):
            return f"{reason}, and no fastmath<contract> allows to leave its rounding out"
        if (self.how.scales or self.how.factors) and not isinstance(element_type(product.d), AnyFloat):
            return f"its result is of {element_type(product.d)}"
        return self.between("the integers or the scales")

    def _bytes_objection(self, multiplied: str) -> str:
        """Why integers of 4 bits are not multiplied as bytes within the product; "" if they are."""
        product, target = self.product, target_of(self.product)
        if target is None or not any(row.a.name == multiplied and row.runs_on(target) for row in wgmma.rows()):
            return f"warpgroups multiply them as {multiplied}, which the target does not have"
        if self.rounded or self.of_groups:
            return f"they are scaled before they become {multiplied}; only sums are scaled"
        k = product.outer + K
        lies = product.b is self.made.output and all(loops_of(map_)[-1:] == (k,) for map_ in product.maps[:2])
        plain = all(isinstance(memory_of(value).layout, NoneAttr) for value in (product.a, product.b))
        if product.outer or not lies or not plain or min(memory_of(product.b).get_shape()) < 1:
            return "bytes are multiplied along k by rows of both matrices, not in a batch"
        size = product_k(product)
        return f"rows of {MIN_GROUP} of them are copied, got {size}" if size % MIN_GROUP else ""

    def _shaped(self) -> str:
        """The reason why B is not the weights reshaped to (K, N), where K may be split into groups; "" if it is."""
        product, weights = self.product, memory_of(self.made.inputs[self.how.weights])
        if product.b is self.made.output:
            return ""
        if min(weights.get_shape()) < 1:
            return "it reads them in another shape, and their sizes are not known"
        plain = isinstance(weights.layout, NoneAttr)
        if product.outer or len(self.along_k) != 2 or len(self.dimensions) != self.made.loops - 1 or not plain:
            return "it reads them in another shape, which is not that of groups along k as one dimension"
        if loops_of(self.made.maps[self.how.weights]) != tuple(range(self.made.loops)):
            return "it reads them in another order of dimensions than they are made in"
        return ""

    def _rounded(self) -> str:
        """Why the product does not round weights that are scaled."""
        how, product, kind = self.how, self.product, element_type(self.made.output)
        exact = [*([f32] if len(how.roundings) > 1 else []), kind]
        if len(how.scales) != 1 or how.factors or how.roundings != exact:
            return "it is not multiplied by one scale in memory and rounded once"
        scales = self.made.inputs[how.scales[0]]
        if not isinstance(scales.type, MemRefType) or element_type(scales) != kind:
            return f"its scale is not of {kind}"
        if product.outer or min(*memory_of(product.b).get_shape(), *memory_of(scales).get_shape()) < 1:
            return "it is one of a batch, or its sizes are not known"
        if not self.of_groups and (len(memory_of(scales).get_shape()) != 1 or not loops_of(self.map_of(how.scales[0]))):
            return "its scale is not that of a column"
        return "" if isinstance(memory_of(scales).layout, NoneAttr) else "its scales lie apart in memory"

    def _grouped(self) -> str:
        """Why the scales of groups are not multiplied within the product."""
        if not self.of_groups:
            return ""
        size = memory_of(self.made.output).get_shape()[self.along_k[1]]
        if len(self.of_groups) > 1:
            return "its groups have more than one scale"
        scales, loops = self.made.inputs[self.of_groups[0]], loops_of(self.made.maps[self.of_groups[0]])
        wanted = [loops[0] for loops in self.dimensions]
        if sorted(loops) != sorted(wanted):
            return "the scales of its groups are not those of each column"
        if list(loops) != wanted:
            return "the scales of its groups lie the other way than the integers: one as groups x n, one as n x groups"
        if size < MIN_GROUP or size & (size - 1):
            return f"its groups have {size} elements along k; expected {MIN_GROUP}, or twice as many and so on"
        if not isinstance(memory_of(scales).layout, NoneAttr):
            return "the scales of its groups lie apart in memory"
        return ""

    def fuse(self) -> None:
        """Replaces both operations by a product of the integers."""
        stored = StoredIntegers(self.how.stored, self.how.zero, self.rounded)
        fused = self._of_packed(stored) if self.is_packed else self._of_integers(stored)
        Rewriter.replace_op(self.product, with_functions(fused), [])
        self.erase()

    def _of_integers(self, stored: StoredIntegers) -> MatmulOp:
        """The product of integers as they lie in memory."""
        product, made = self.product, self.made
        own = product.maps[1] if len(self.along_k) > 1 else self.map_of(self.how.weights)
        maps = [product.maps[0], own, product.maps[2]]
        integers = self.in_shape(self.how.weights)
        grouped = made.inputs[self.of_groups[0]] if self.of_groups else None
        if self.rounded:
            scales = self._of_columns() if grouped is None else grouped
            return product.like(b=formed(product, StoredOp(integers, stored, scales)), indexing_maps=maps)
        b = formed(product, StoredOp(integers, stored, grouped))
        if not self.scales and not self.how.factors:
            return product.like(b=b, indexing_maps=maps)
        kind = element_type(made.output)
        remark(made.op, FuseWeightsPass.name, f"scaled weights are not rounded to {kind}: sums are scaled instead")
        return with_scaled_sums(product, self.scales, self.how.factors, b=b, indexing_maps=maps)

    def _of_packed(self, stored: StoredIntegers) -> MatmulOp:
        """The product of packed weights."""
        product, made, how = self.product, self.made, self.how
        bits, n = stored.element.bits, memory_of(product.d).get_shape()[loops_of(product.maps[2]).index(N)]
        groups, k = self._groups(how.scales[0]), product_k(product)
        parameters = [made.inputs[number] for number in (*how.scales, how.points) if number >= 0]
        lines = _matrix(product, made.inputs[how.weights], packed_lines(n, k, bits), LINE * 8 // bits)
        form = StoredOp(
            lines, stored, *(_matrix(product, value, groups, n) for value in parameters), packed=True, group=k // groups
        )
        maps = [product.maps[0], map_along(product.maps[0].num_dims, (K, N)), product.maps[2]]
        return product.like(b=formed(product, form), indexing_maps=maps)

    def _of_columns(self) -> SSAValue:
        """The scales of the columns as those of one group along k, in the order of the dimensions of B."""
        scales = self.made.inputs[self.how.scales[0]]
        by_columns = loops_of(self.product.maps[1])[-1] != self.product.outer + K
        count = memory_of(scales).get_shape()[0]
        return inserted(self.product, expand(scales, [(1, count) if by_columns else (count, 1)]))


def product_k(product: MatmulOp) -> int:
    """The size of k, which A has."""
    return memory_of(product.a).get_shape()[loops_of(product.maps[0]).index(product.outer + K)]


def _matrix(product: MatmulOp, value: SSAValue, rows: int, columns: int) -> SSAValue:
    """Memory without gaps as a matrix of another shape."""
    if (rank := memory_of(value).get_num_dims()) > 1:
        value = inserted(product, collapse(value, [list(range(rank))]))
    return inserted(product, expand(value, [[rows, columns]]))


NOT_CONVERTED = "the product that reads it does not convert its integers"


def _weights(product: MatmulOp) -> Weights | None:
    """The operation that converts B from integers for the product alone; None and a remark if it must stay."""
    if (of_a := sole_writer(product, product.a)) is not None and dequantised(of_a) is not None:
        reason = "they are A, and those of B are converted; write the product of the transposes"
        remark(of_a.op, FuseWeightsPass.name, f"{NOT_CONVERTED}: {reason}")
    memory = root(product.matrices[1])
    made = sole_writer(product, product.matrices[1])
    how = None if made is None else dequantised(made)
    if made is None or how is None or any(root(value) is memory for value in made.read):
        return None
    weights = Weights(product, product.b, made, how)
    if memory is not product.matrices[1] and not isinstance(product.matrices[1].owner, memref.CollapseShapeOp):
        reason = "it reads them in another shape"
    elif memory in (product.matrices[0], product.c, product.d):
        reason = "it uses them twice"
    else:
        reason = how.objection or weights.objection()
    if reason:
        remark(made.op, FuseWeightsPass.name, f"{NOT_CONVERTED}: {reason}")
        return None
    return weights


@rewrite_pattern
def fuse_weights(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Lets a product read the integers from which its B is converted."""
    if (weights := _weights(op)) is not None:
        weights.fuse()
        rewriter.has_done_action = True


class FuseWeightsPass(ModulePass):
    """Fuses the conversion of 8-bit and 4-bit integer weights to f16 or bf16 into the product that reads them, and the
    scales of blocks of 8-bit floats. Products still in `linalg` are raised first."""

    name = "warp-fuse-weights"
    needs: ClassVar = (
        *("arith.sitofp", "arith.uitofp", "arith.extsi", "arith.extui"), *("f4E2M1FN", "f8E4M3FN", "f8E5M2"),
    )  # fmt: skip
    """What converts integers, and the floats of few bits."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        apply_patterns([fuse_weights, fuse_block_scales], op)
