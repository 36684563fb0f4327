"""The named convolutions of `linalg`, and the dialect with all that the project reads."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition

from .convolution import SPACE, ConvolutionDimensions, ConvolutionOp
from .matmul import LINALG_BASE

# The named convolutions of `linalg`, one row each; a context loads them when the first comes up.
#
# Source: MLIR, Linalg dialect, `LinalgNamedStructuredOps.yaml`.

NAMES = (
    "conv_1d",
    "conv_2d",
    "conv_3d",
    "conv_1d_nwc_wcf",
    "conv_1d_ncw_fcw",
    "conv_2d_nhwc_hwcf",
    "conv_2d_nhwc_hwcf_q",
    "conv_2d_nhwc_fhwc",
    "conv_2d_nhwc_fhwc_q",
    "conv_2d_nchw_fchw",
    "conv_2d_nchw_fchw_q",
    "conv_2d_ngchw_fgchw",
    "conv_2d_ngchw_gfchw",
    "conv_2d_ngchw_gfchw_q",
    "conv_2d_nhwgc_gfhwc",
    "conv_2d_nhwgc_gfhwc_q",
    "conv_3d_ndhwc_dhwcf",
    "conv_3d_ndhwc_dhwcf_q",
    "conv_3d_ncdhw_fcdhw",
    "depthwise_conv_1d_ncw_cw",
    "depthwise_conv_1d_nwc_wc",
    "depthwise_conv_1d_nwc_wcm",
    "depthwise_conv_2d_nchw_chw",
    "depthwise_conv_2d_nhwc_hwc",
    "depthwise_conv_2d_nhwc_hwc_q",
    "depthwise_conv_2d_nhwc_hwcm",
    "depthwise_conv_2d_nhwc_hwcm_q",
    "depthwise_conv_3d_ncdhw_cdhw",
    "depthwise_conv_3d_ndhwc_dhwc",
    "depthwise_conv_3d_ndhwc_dhwcm",
)
"""Every convolution that MLIR names."""


def _layout(name: str) -> ConvolutionDimensions:
    """The layout that the letters of a name say: `conv_2d_nhwc_hwcf`."""
    words = name.removesuffix("_q").replace("depthwise_", "").split("_")
    if len(words) == 2:
        image = SPACE[-int(words[1][0]) :]
        return ConvolutionDimensions(image, image, image)
    image, kernel = words[2:]
    if "f" in kernel:
        return ConvolutionDimensions(image, kernel, image.replace("c", "f"))
    return ConvolutionDimensions(image, kernel, image + "m" if "m" in kernel else image)


def _operation(name: str) -> type[ConvolutionOp]:
    fields = {
        "name": f"linalg.{name}",
        "__doc__": f"`linalg.{name}`",
        "__module__": __name__,
        "__annotations__": {"LAYOUT": ClassVar[ConvolutionDimensions], "QUANTIZED": ClassVar[bool]},
        "LAYOUT": _layout(name),
        "QUANTIZED": name.endswith("_q"),
    }
    title = "".join(word.capitalize() for word in name.split("_"))
    return irdl_op_definition(type(f"{title}Op", (ConvolutionOp,), fields))


CONVOLUTIONS = tuple(map(_operation, NAMES))
"""An operation for each."""


# The dialect `linalg` with all that the project reads.

LINALG = Dialect("linalg", [*LINALG_BASE.operations, *CONVOLUTIONS], [*LINALG_BASE.attributes])
"""xDSL's `linalg` with our operations in place of its own, and our convolutions."""
