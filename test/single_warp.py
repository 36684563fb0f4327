"""Kernels of one warp, written by their bodies: lowered to PTX and run on the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.tile.expand import ExpandPass
from warploom.passes.to_ptx.kernel import ConvertWarpToPtxPass
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import load_ptx

KERNEL = """
builtin.module attributes {{warp.target = #warp.target<{target}>}} {{
"gpu.module"() <{{sym_name = "kernels"}}> ({{
  "gpu.func"() <{{function_type = ({types}) -> (), kernel}}> ({{
  ^bb0({arguments}):
    %z = arith.constant 0 : index
{body}
    "gpu.return"() : () -> ()
  }}) {{sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>{attributes}}} : () -> ()
}}) : () -> ()
}}
"""
BARRIER = '"gpu.barrier"() : () -> ()'
SHARED = 16 * 1024
ELEMENTS = {"int8": "i8", "int32": "i32", "float16": "f16", "float32": "f32", "float64": "f64"}

Matrix = NDArray[Any]


def memref(array: Matrix) -> str:
    return f"memref<{'x'.join(map(str, array.shape))}x{ELEMENTS[array.dtype.name]}>"


def parsed(target: str, body: str, types: Mapping[str, str], attributes: str = "") -> ModuleOp:
    """The module of a kernel of one warp; `body` says `$A` for the type of argument %A."""
    for name, kind in types.items():
        body = body.replace(f"${name}", kind)
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in types.items())
    listed = ", ".join(types.values())
    text = KERNEL.format(target=target, types=listed, arguments=arguments, body=body, attributes=attributes)
    module = parse_mlir(make_context(), text)
    module.verify()
    return module


def launch(module: ModuleOp, arrays: Sequence[Matrix], ctas: int = 1, checks: str = "") -> None:
    """Lowers a kernel of one warp and runs it on the interpreter."""
    for one in (ExpandPass(), ConvertWarpToPtxPass()):
        one.apply(make_context(), module)
        module.verify()
    load_ptx(print_ptx(ptx_module(module))).launch(
        "k", grid=(ctas, 1, 1), block=(32, 1, 1), args=list(arrays), shared=SHARED, device="interp", checks=checks
    )


def run(target: str, body: str, types: Mapping[str, str] | None = None, ctas: int = 1, **arrays: Matrix) -> None:
    """Compiles and runs a kernel of one warp a CTA.

    `types` gives the types of arguments that are not those of their arrays.
    """
    kinds = {name: memref(array) for name, array in arrays.items()} | dict(types or {})
    launch(parsed(target, body, kinds), list(arrays.values()), ctas)
