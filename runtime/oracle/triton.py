"""Programs of Triton without a GPU: each launch is compiled to PTX, and runs on the interpreter under its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..base.errors import ArgumentError

TARGET, VERSION = 90, 90
"""What is compiled for: sm_90, with the version of PTX that drivers of CUDA 13.0 take."""
OPTIONS = ("num_warps", "num_stages", "num_ctas")
POINTERS = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip
"""What Triton calls elements of torch and numpy."""


def interpreted(path: Path) -> None:
    """Lets kernels of Triton run on the interpreter, in this process from here on; of configurations the first is
    taken.

    Raises:
        ArgumentError: if there is no Triton.
    """
    if find_spec("triton") is None:
        raise ArgumentError(f"{path}: Triton is not installed; pip install triton")
    jit, autotuner = (import_module(f"triton.runtime.{name}") for name in ("jit", "autotuner"))
    jit.JITFunction.run = _run
    autotuner.Autotuner.run = _first


def _first(self: Any, *args: Any, **options: Any) -> Any:
    return self.fn.run(*args, **{**self.configs[0].all_kwargs(), **options})


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
    """What a launch of a kernel does."""
    from ..interp.watch.checks import CHECKS
    from ..kernel.module import PtxModule

    wanted = {key: options.pop(key) for key in OPTIONS if key in options}
    names = [p.name for p in self.params]
    bound = {p.name: p.default for p in self.params if p.has_default} | dict(zip(names, args, strict=False))
    bound |= {key: value for key, value in options.items() if key in names}
    constant = {p.name: bound[p.name] for p in self.params if p.is_constexpr or bound[p.name] is None}
    text, shared = _compiled(self, {n: bound[n] for n in names}, constant, wanted)
    module = PtxModule(text, f"{self.fn.__name__}.ptx")
    kernel = next(iter(module.kernels))
    passed = [bound[name] for name in names if name not in constant]
    passed += [0] * (len(module.kernels[kernel].parameters) - len(passed))
    sizes: Any = grid(bound) if callable(grid) else grid
    block = 32 * int(wanted.get("num_warps", 4))
    module.launch(kernel, tuple(sizes), block, passed, shared, device="interp", checks=tuple(CHECKS))


def _compiled(
    function: Any, bound: Mapping[str, Any], constant: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, int]:
    """The PTX of a kernel, and its shared memory in bytes."""
    compile_triton: Callable[..., Any] = import_module("triton").compile
    compiler, backends = import_module("triton.compiler"), import_module("triton.backends.compiler")
    signature = {n: "constexpr" if n in constant else _kind(v) for n, v in bound.items()}
    hints = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = compiler.ASTSource(function, signature=signature, constexprs=dict(constant), attrs=hints)
    made = compile_triton(
        source, target=backends.GPUTarget("cuda", TARGET, 32), options={**options, "ptx_version": VERSION}
    )
    return made.asm["ptx"], int(made.metadata.shared)


def _kind(value: Any) -> str:
    """The type of an argument."""
    if hasattr(value, "dtype"):
        return f"*{POINTERS[str(value.dtype).removeprefix('torch.')]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"
