"""`-t upstream`: a module as `mlir-opt --allow-unregistered-dialect` reads it, at any level above the dialect `ptx`.

Operations are printed in their generic form. A memref of MLIR has no layout of another dialect, so that a tile in
shared memory is printed without its swizzle; the operation that makes it says it: `warp.layout = #warp.swizzle<128>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType, ModuleOp, NoneAttr
from xdsl.ir import Attribute
from xdsl.pattern_rewriter import PatternRewriteWalker, TypeConversionPattern, attr_type_rewrite_pattern
from xdsl.printer import Printer
from xdsl.utils.hints import isa
from xdsl.utils.target import Target

from ..dialect.warp.swizzle import SwizzleAttr

LAYOUT = "warp.layout"
"""On an operation: the layout of the tile that it makes."""


@dataclass
class _WithoutSwizzle(TypeConversionPattern):
    """Memory without a layout that MLIR does not know."""

    @attr_type_rewrite_pattern
    def convert_type(self, typ: MemRefType[Attribute]) -> MemRefType[Attribute]:
        if not isinstance(typ.layout, SwizzleAttr):
            return typ
        return MemRefType(typ.element_type, typ.shape, NoneAttr(), typ.memory_space)


@dataclass(frozen=True)
class UpstreamTarget(Target):
    """Prints the module as upstream `mlir-opt --allow-unregistered-dialect` reads it."""

    name = "upstream"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        plain = module.clone()
        for op in plain.walk():
            for result in op.results:
                if isa(result.type, MemRefType[Attribute]) and isinstance(result.type.layout, SwizzleAttr):
                    op.attributes[LAYOUT] = result.type.layout
            if isinstance(op, gpu.FuncOp) and op.kernel is not None:
                op.attributes["gpu.kernel"] = op.kernel  # which MLIR has as an attribute, not as a property
        PatternRewriteWalker(_WithoutSwizzle(recursive=True)).rewrite_module(plain)
        Printer(output, print_generic_format=True).print_op(plain)
        output.write("\n")
