"""What the named convolutions of `linalg` have in common.

A convolution sums a window of its input times a kernel: `D[o] += I[o * stride + k * dilation] * K[k]` along each of its
spatial dimensions. Its name gives the dimensions of input and kernel by letters: n of a batch, g groups, c channels
that are summed over, f features of the result, m channels of the result for each of the input's, and d, h, w those of
space. Source: MLIR, Linalg dialect, `LinalgNamedStructuredOps.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, ArrayAttr, DenseIntElementsAttr, IntegerType, TensorType
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.irdl import opt_prop_def
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .contraction import extended

SPACE = "dhw"
"""The dimensions of space, by letter; in capitals, in the names of loops, those of the kernel."""


class ConvolutionDimensions(NamedTuple):
    """The dimensions of the input, the kernel and the result."""

    image: str
    kernel: str
    result: str


class ConvolutionOp(NamedOperation):
    """A convolution of a `LAYOUT`; the operands are extended to the result's type first.

    With two more operands, the zero points of input and kernel, these are subtracted from each element.
    """

    LAYOUT: ClassVar[ConvolutionDimensions]
    QUANTIZED: ClassVar[bool] = False
    PRINT_ATTRS_IN_FRONT: ClassVar = True

    strides = opt_prop_def()
    dilations = opt_prop_def()

    @property
    def loops(self) -> str:
        """The loops by letter: those of the result, and those that are summed over, of the kernel in capitals."""
        _, kernel, result = self.LAYOUT
        return result + "".join(d.upper() if d in SPACE else d for d in kernel if d in SPACE or d not in result)

    def _steps(self, name: str) -> Sequence[int]:
        """The strides, or the dilations; 1 where none are given."""
        given, rank = self.properties.get(name), sum(d in SPACE for d in self.LAYOUT.image)
        if given is None:
            return [1] * rank
        if not isa(given, DenseIntElementsAttr):
            raise VerifyException(f"expected {name} to be dense integers, got {given}")
        return [int(value) for value in given.get_values()]

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        loops, (image, kernel, result) = self.loops, self.LAYOUT
        dims = {loop: AffineDimExpr(number) for number, loop in enumerate(loops)}
        steps = zip(self._steps("strides"), self._steps("dilations"), strict=False)
        by = dict(zip((d for d in image if d in SPACE), steps, strict=False))

        def along(dimension: str) -> AffineExpr:
            if dimension not in by:
                return dims[dimension]
            stride, dilation = by[dimension]
            return dims[dimension] * stride + dims[dimension.upper()] * dilation

        of_kernel = (dims[d.upper() if d in SPACE else d] for d in kernel)
        scalars = [()] * 2 if self.QUANTIZED else []
        operands = (map(along, image), of_kernel, *scalars, (dims[d] for d in result))
        return [AffineMap(len(loops), 0, tuple(results)) for results in operands]

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        kinds = IteratorTypeAttr.reduction(), IteratorTypeAttr.parallel()
        return ArrayAttr([kinds[loop in self.LAYOUT.result] for loop in self.loops])

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """The body. Raises VerifyException for operands that have none."""
        wanted = 4 if cls.QUANTIZED else 2
        if len(inputs) != wanted or len(outputs) != 1:
            raise VerifyException(
                f"expected {wanted} operands in ins(...) and one in outs(...), got {len(inputs)} and {len(outputs)}"
            )
        elements = [getattr(value.type, "element_type", value.type) for value in (*inputs, *outputs)]
        if not all(isa(element, AnyFloat | IntegerType) for element in elements):
            raise VerifyException(f"expected elements of floats or integers, got {', '.join(map(str, elements))}")
        block = Block(arg_types=cls.body_arg_types((*inputs, *outputs)))
        *given, total = block.args
        if not all(_extends(value.type, total.type) for value in given):
            shown = ", ".join(str(value.type) for value in given)
            raise VerifyException(f"expected elements that can be extended to {total.type}, got {shown}")
        floats = isinstance(total.type, AnyFloat)
        image, kernel, *zeros = (extended(block, value, total.type, unsigned=False) for value in given)
        if zeros:
            shifted = [arith.SubiOp(image, zeros[0]), arith.SubiOp(kernel, zeros[1])]
            block.add_ops(shifted)
            image, kernel = (op.result for op in shifted)
        product = arith.MulfOp(image, kernel) if floats else arith.MuliOp(image, kernel)
        summed = arith.AddfOp(total, product.result) if floats else arith.AddiOp(total, product.result)
        block.add_ops([product, summed, YieldOp(summed.result)])
        return Region(block)

    def verify_(self) -> None:
        rank = sum(d in SPACE for d in self.LAYOUT.image)
        for name in ("strides", "dilations"):
            if len(found := self._steps(name)) != rank or min(found) < 1:
                raise VerifyException(f"expected {rank} {name} of 1 or more, got {list(found)}")
        written: Attribute = self.outputs[0].type
        on_tensors = isinstance(written, TensorType)
        if [result.type for result in self.res] != ([written] if on_tensors else []):
            raise VerifyException(f"expected {'one result of the type of outs(...)' if on_tensors else 'no result'}")
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        try:
            return super().parse(parser)
        except VerifyException as error:
            parser.raise_error(str(error), start)


def _extends(source: Attribute, target: Attribute) -> bool:
    if source == target:
        return True
    same = isinstance(source, IntegerType) == isinstance(target, IntegerType)
    return same and isinstance(source, IntegerType | AnyFloat) and source.bitwidth < getattr(target, "bitwidth", 0)
