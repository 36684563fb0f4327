"""Small PTX kernels around the instructions a test is about, run by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.interp import Program, load

Array = NDArray[Any]

REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %fd<8>;"
)
POISON = 0xA5


def program(body: str, parameters: str = "", target: str = "sm_90a", module: str = "", **options: str) -> Program:
    """A module whose kernel `k` has the body; registers %p, %h, %r, %rd, %f and %fd are declared.

    The body begins on line 6 of the text.
    """
    text = f""".version 9.5
.target {target}
.address_size 64
{module}
.visible .entry k({parameters}) {{ {REGISTERS}
{body}
}}
"""
    return load(parse_ptx(text, "k.ptx"), "k.ptx", **options)


def outputs(count: int, dtype: str) -> Array:
    """An array full of poison."""
    return np.full(count * np.dtype(dtype).itemsize, POISON, np.uint8).view(dtype)


def apply(instructions: str, result: str, *operands: Array, keep: str = "", target: str = "sm_90a") -> Array:
    """Runs instructions once per element: they read %a, %b, ... and write %d, of numpy type `result`.

    The registers have the width of the elements. `keep` is declared in addition.
    """
    count = operands[0].size
    out = outputs(count, result)
    names = "abcefg"[: len(operands)]
    parameters = ", ".join([".param .u64 out", ".param .u32 n", *(f".param .u64 in_{x}" for x in names)])
    declared = [f".reg .b{8 * v.dtype.itemsize} %{x};" for x, v in zip(names, operands, strict=True)]
    declared.append(f".reg .b{8 * out.dtype.itemsize} %d; {keep}")
    loads = [
        f"ld.param.u64 %rd1, [in_{x}]; mad.wide.u32 %rd1, %r0, {v.dtype.itemsize}, %rd1; "
        f"ld.global.b{8 * v.dtype.itemsize} %{x}, [%rd1];"
        for x, v in zip(names, operands, strict=True)
    ]
    size = out.dtype.itemsize
    body = "\n".join(
        [
            *declared,
            "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r3;",
            "ld.param.u32 %r4, [n]; setp.ge.u32 %p0, %r0, %r4; @%p0 exit;",
            *loads,
            instructions,
            f"ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r0, {size}, %rd1; st.global.b{8 * size} [%rd1], %d;",
        ]
    )
    arrays = [np.ascontiguousarray(v) for v in operands]
    program(body, parameters, target).launch("k", (-(-count // 64), 1, 1), (64, 1, 1), [out, count, *arrays])
    return out


def per_thread(body: str, count: int = 32, dtype: str = "u4", **launch: Any) -> Array:
    """Runs a body in which each thread leaves a word in %r0 (or %rd0), stored by its number in the grid."""
    size = np.dtype(dtype).itemsize
    register = {4: "%r0", 8: "%rd0"}[size]
    store = (
        "mov.u32 %r31, %tid.x; mov.u32 %r30, %ctaid.x; mov.u32 %r29, %ntid.x; mad.lo.u32 %r31, %r30, %r29, %r31;"
        f"ld.param.u64 %rd15, [out]; mad.wide.u32 %rd15, %r31, {size}, %rd15;"
        f"st.global.b{8 * size} [%rd15], {register};"
    )
    out = outputs(count, dtype)
    grid, block = launch.pop("grid", (1, 1, 1)), launch.pop("block", (count, 1, 1))
    extra = launch.pop("args", [])
    parameters = launch.pop("parameters", "")
    built = program(f"{body}\n{store}", ".param .u64 out" + (f", {parameters}" if parameters else ""))
    built.launch("k", grid, block, [out, *extra], **launch)
    return out
