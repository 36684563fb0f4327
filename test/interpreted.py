"""Small PTX kernels around the instructions a test is about, run by the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.text.syntax import Module
from warploom.runtime.arguments.launch_values import values
from warploom.runtime.base.launch import Dim3, Launch, Options, Progress
from warploom.runtime.interp import Stats
from warploom.runtime.interp import load as load_program

Array = NDArray[Any]

REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %fd<8>;"
)
POISON = 0xA5


class Loaded:
    """A module for the interpreter, launched as it is: whether it is legal PTX is not asked."""

    def __init__(self, module: Module, name: str = "<ptx>", arch: str | None = None) -> None:
        self.module, self.program = module, load_program(module, name, arch)

    def launch(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[object],
        shared: int = 0,
        progress: Progress | None = None,
        cluster: Dim3 | None = None,
        **options: Any,
    ) -> Stats:
        """Runs a kernel; the options are those of `Options`."""
        launch = Launch(kernel, grid, block, shared, tuple(range(len(args))), cluster=cluster)
        passed = values(self.module.functions[kernel], args) if kernel in self.module.functions else []
        return self.program.launch(launch, passed, Options(**options), progress)


def program(body: str, parameters: str = "", target: str = "sm_90a", module: str = "", **options: str) -> Loaded:
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
    return Loaded(parse_ptx(text, "k.ptx"), "k.ptx", **options)


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


def collatz_steps(n: int) -> int:
    """How often a number is halved, or tripled and one added, until it is one: loops of which each lane has its own."""
    count = 0
    while n != 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count
