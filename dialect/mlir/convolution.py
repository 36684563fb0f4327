"""The named convolutions of `linalg`, which xDSL 0.74 has six of, and the dialect with all that the project reads.

A convolution sums a window of its input times a kernel: `D[o] += I[o * stride + k * dilation] * K[k]` along each of its
spatial dimensions. Its name gives the dimensions of input and kernel by letters: n of a batch, g groups, c channels
that are summed over, f features of the result, m channels of the result for each of the input's, and d, h, w those of
space. Source: MLIR, Linalg dialect, `LinalgNamedStructuredOps.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, ArrayAttr, DenseIntElementsAttr, IntegerType, TensorType
from xdsl.dialects.linalg.abstract_ops import NamedOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.irdl import IRDLOperation, operand_def, opt_prop_def, prop_def, result_def
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from . import linalg_ops
from .affine import converted, product_body
from .contraction import PoolingOp
from .generic import LINALG_BASE
from .upstream import declared, extended
from .words import BareWordAttr, defined, words

SPACE = "dhw"
"""The dimensions of space, by letter; in capitals, in the names of loops, those of the kernel."""


class ConvolutionDimensions(NamedTuple):
    """The dimensions of the input, the kernel and the result."""

    image: str
    kernel: str
    result: str


class ConvolutionOp(NamedOperation):
    """A convolution of a `LAYOUT`; the operands are converted to the result's type first. With two more operands, the
    zero points of input and kernel, these are subtracted from each element."""

    LAYOUT: ClassVar[ConvolutionDimensions]
    QUANTIZED: ClassVar[bool] = False
    PRINT_ATTRS_IN_FRONT: ClassVar = True

    strides = opt_prop_def()
    dilations = opt_prop_def()

    @property
    def loops(self) -> str:
        """The loops by letter: those of the result, and the reduction loops. Loops of the kernel are capitals."""
        _, kernel, result = self.LAYOUT
        return result + "".join(d.upper() if d in SPACE else d for d in kernel if d in SPACE or d not in result)

    def _steps(self, name: str) -> Sequence[int]:
        """The strides, or the dilations; 1 where none are given."""
        values, rank = self.properties.get(name), sum(d in SPACE for d in self.LAYOUT.image)
        if values is None:
            return [1] * rank
        if not isa(values, DenseIntElementsAttr):
            raise VerifyException(f"expected {name} to be dense integers, got {values}")
        return [int(value) for value in values.get_values()]

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
        return cls._body(cls.body_arg_types((*inputs, *outputs)))

    @classmethod
    def _body(cls, types: Sequence[Attribute]) -> Region:
        """What is done with an element of each operand."""
        return product_body(types)

    def verify_(self) -> None:
        rank = sum(d in SPACE for d in self.LAYOUT.image)
        for name in ("strides", "dilations"):
            if len(steps := self._steps(name)) != rank or min(steps, default=1) < 1:
                raise VerifyException(f"expected {rank} {name} of 1 or more, got {list(steps)}")
        written: Attribute = self.outputs[0].type
        on_tensors = isinstance(written, TensorType)
        if [result.type for result in self.res] != ([written] if on_tensors else []):
            raise VerifyException(f"expected {'one result of the type of outs(...)' if on_tensors else 'no result'}")
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start, properties = parser.pos, parser.parse_optional_properties_dict()
        try:
            op = super().parse(parser)
        except VerifyException as error:
            parser.raise_error(f"{cls.name}: {error}", start)
        op.properties |= properties
        return op


# A context loads the convolutions when the first comes up.

NAMES = (
    "conv_1d", "conv_2d", "conv_3d", "conv_1d_nwc_wcf", "conv_1d_ncw_fcw", "conv_2d_nhwc_hwcf", "conv_2d_nhwc_hwcf_q",
    "conv_2d_nhwc_fhwc", "conv_2d_nhwc_fhwc_q", "conv_2d_nchw_fchw", "conv_2d_nchw_fchw_q", "conv_2d_ngchw_fgchw",
    "conv_2d_ngchw_gfchw", "conv_2d_ngchw_gfchw_q", "conv_2d_nhwgc_gfhwc", "conv_2d_nhwgc_gfhwc_q",
    "conv_3d_ndhwc_dhwcf", "conv_3d_ndhwc_dhwcf_q", "conv_3d_ncdhw_fcdhw", "depthwise_conv_1d_ncw_cw",
    "depthwise_conv_1d_nwc_wc", "depthwise_conv_1d_nwc_wcm", "depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc",
    "depthwise_conv_2d_nhwc_hwc_q", "depthwise_conv_2d_nhwc_hwcm", "depthwise_conv_2d_nhwc_hwcm_q",
    "depthwise_conv_3d_ncdhw_cdhw", "depthwise_conv_3d_ndhwc_dhwc", "depthwise_conv_3d_ndhwc_dhwcm",
)  # fmt: skip
"""Every convolution that MLIR names."""


POOLINGS = (
    *(f"pooling_{layout}_{how}" for layout in ("nwc", "nhwc", "ndhwc") for how in ("sum", "max", "min")),
    *(f"pooling_{layout}_{how}_unsigned" for layout in ("nwc", "nhwc") for how in ("max", "min")),
    *(f"pooling_{layout}_{how}" for layout in ("ncw", "nchw") for how in ("sum", "max")),
)
"""Every pooling that MLIR names."""


class WindowOp(ConvolutionOp, PoolingOp):
    """A pooling, whose second input has the sizes of the window, and is not read."""

    @classmethod
    def _body(cls, types: Sequence[Attribute]) -> Region:
        how, block = cls.name.split("_", 3)[2:], Block(arg_types=types)
        of_floats, of_integers = POOLED["_".join(how)]
        with ImplicitBuilder(block):
            element = converted(block.args[0], types[-1], unsigned=how[-1].endswith("unsigned"))
            YieldOp((of_floats if isinstance(types[-1], AnyFloat) else of_integers)(block.args[-1], element))
        return Region(block)


POOLED = {
    "sum": (arith.AddfOp, arith.AddiOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
    "max_unsigned": (arith.MaximumfOp, arith.MaxUIOp),
    "min_unsigned": (arith.MinimumfOp, arith.MinUIOp),
}
"""Operations on two floats, and on two integers."""


def _layout(name: str) -> ConvolutionDimensions:
    """The layout that the letters of a name say: `conv_2d_nhwc_hwcf`."""
    if name in POOLINGS:
        image = name.split("_")[1]
        return ConvolutionDimensions(image, "".join(d for d in image if d in SPACE), image)
    words = name.removesuffix("_q").replace("depthwise_", "").split("_")
    if len(words) == 2:
        image = SPACE[-int(words[1][0]) :]
        return ConvolutionDimensions(image, image, image)
    image, kernel = words[2:]
    if "f" in kernel:
        return ConvolutionDimensions(image, kernel, image.replace("c", "f"))
    return ConvolutionDimensions(image, kernel, image + "m" if "m" in kernel else image)


def _operation(name: str, layout: ConvolutionDimensions | None = None) -> type[ConvolutionOp]:
    base: type[ConvolutionOp] = WindowOp if name in POOLINGS else ConvolutionOp
    own = {"LAYOUT": layout or _layout(name), "QUANTIZED": layout is not None or name.endswith("_q")}
    return defined(base, f"linalg.{name}", f"`linalg.{name}`", **own)


_WINOGRAD = words("linalg.winograd_conv2d_fmr", "F_2_3 F_4_3 F_2_5", BareWordAttr)


def _transform(tile: str) -> type[IRDLOperation]:
    """A step of Winograd's convolution. It is parsed and printed, but not lowered."""
    operands = "`ins` `(` $input `:` type($input) `)` `outs` `(` $output `:` type($output) `)` `->` type($result)"
    return declared(
        IRDLOperation, f"linalg.winograd_{tile}_transform", f"attr-dict `fmr` `(` $fmr `)` {operands}",
        f"The transform of the {tile}.", fmr=prop_def(_WINOGRAD), input=operand_def(), output=operand_def(),
        result=result_def(),
    )  # fmt: skip


BY_NAME = {name: _operation(name) for name in (*NAMES, *POOLINGS)}
"""The convolutions and poolings."""

QUANTIZED_BATCH = _operation("quantized_batch_matmul", ConvolutionDimensions("bmk", "bkn", "bmn"))
"""A product less zero points is as a quantised convolution without dimensions of space."""

CONVOLUTIONS = (*BY_NAME.values(), QUANTIZED_BATCH, *map(_transform, ("filter", "input", "output")))
"""An operation for each, and what is read of its kind."""


LINALG = extended(LINALG_BASE, (*linalg_ops.OPERATIONS, *CONVOLUTIONS), linalg_ops.ATTRIBUTES)
