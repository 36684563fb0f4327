"""Modules of torch-mlir and JAX as users write them: exported, compiled unmodified, run, compared, counted.

    python test/upstream/front_ends.py [torch] [dynamic] [jax] [--only NAME ...] [--target sm_80] [--save FOLDER]

It needs `torch` and `torch_mlir` for the one, `jax` and `iree-base-compiler` (whose input conversion makes `linalg` of
StableHLO) for the other, and says which it could not have. Each module is run on the interpreter; its results are
compared with those of the front end itself, PyTorch in float64 or JAX on the CPU, and must differ by at most BOUND of
the largest element, f32 being multiplied as tf32. Those of `dynamic` are exported by torch-mlir with sizes that are not
known, and called with several. A line tells how many kernels it is, how many of them are products
or attentions on tensor cores, and the difference; or why it was refused.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from front_end_modules import DYNAMIC, JAX, SIZES, TORCH
from ml_dtypes import bfloat16

from warploom.runtime import WarploomError, compile

BOUND = 5e-3
"""tf32 and bf16 have fractions of 10 and 7 bits, whose roundings add up over the layers of a block."""


class Exported(NamedTuple):
    """A module in `linalg`, and calls: arguments, and what the front end itself returns, in float64."""

    text: str
    calls: list[tuple[list[Any], list[Any]]]


def export_torch(make: Callable[[], tuple[Any, ...]]) -> Exported:
    """What torch-mlir makes of a module of PyTorch."""
    import torch

    torch.manual_seed(1)
    module, *inputs = make()
    return _exported(module.eval(), [inputs])


def export_dynamic(make: Callable[..., tuple[Any, ...]]) -> Exported:
    """The same of a module each of whose sizes is another in each call, but for those that the module fixes."""
    import torch
    from torch.export import Dim

    torch.manual_seed(1)
    (module, *first), *others = (make(*sizes) for sizes in SIZES)
    shapes = [[x.shape for x in inputs] for inputs in (first, *(rest for _, *rest in others))]
    dims = [tuple(Dim.AUTO if len(set(each)) > 1 else Dim.STATIC for each in zip(*of_one, strict=True))
            for of_one in zip(*shapes, strict=True)]  # fmt: skip
    return _exported(module, [first, *(rest for _, *rest in others)], dynamic_shapes=(tuple(dims),))


def _exported(module: Any, calls: list[Any], **options: Any) -> Exported:
    import torch
    from torch_mlir import fx

    exported = torch.export.export(module, tuple(calls[0]), **options)
    text = str(fx.export_and_import(exported, output_type="linalg-on-tensors", func_name="main"))
    module, made = module.double(), list[tuple[list[Any], list[Any]]]()
    for inputs in calls:
        with torch.no_grad():
            wide = module(*(x.double() if x.is_floating_point() else x for x in inputs))
        results = [wide] if isinstance(wide, torch.Tensor) else list(wide)
        # torch makes no arrays of bf16.
        arguments = [x.float().numpy().astype(bfloat16) if x.dtype == torch.bfloat16 else x.numpy() for x in inputs]
        made.append((arguments, [result.numpy() for result in results]))
    return Exported(text, made)


def export_jax(make: Callable[[], tuple[Any, ...]]) -> Exported:
    """What IREE's input conversion makes of a function of JAX."""
    import jax
    from iree.compiler import tools

    function, *inputs = make()
    stablehlo = jax.jit(function).lower(*inputs).as_text()
    text = tools.compile_str(stablehlo, input_type="stablehlo", extra_args=["--compile-to=input"]).decode()
    results = jax.tree.leaves(function(*inputs))
    return Exported(text, [([np.asarray(x) for x in inputs], [np.asarray(result) for result in results])])


def run(exported: Exported, target: str) -> str:
    """The line of a module: its kernels, and how far its results are."""
    kernel = compile(exported.text, target=target, tf32=True, cache=False)
    worst = 0.0
    for arguments, wanted in exported.calls:
        got = kernel(*arguments, device="interp")
        results = list(got) if isinstance(got, (tuple, list)) else [got]
        for result, expected in zip(results, wanted, strict=True):
            if np.asarray(result).shape != expected.shape:
                return f"WRONG: shape {np.asarray(result).shape} for {expected.shape}"
            worst = max(worst, _difference(np.asarray(result), expected))
    verdict = "" if worst <= BOUND else "  WRONG"
    names = [launch.kernel for launch in kernel.plan.launches]
    return f"{len(names):3} kernels  {worst:.1e}{verdict}  {kernels_of(kernel)}"


def _difference(result: Any, expected: Any) -> float:
    """The largest difference, of the largest element."""
    wanted, values = (np.atleast_1d(array).astype(np.float64) for array in (expected, result))
    difference = np.where(wanted == values, 0.0, np.abs(values - wanted))
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(difference.max(initial=0) / max(1e-30, finite.max(initial=0)))


def kernels_of(kernel: Any) -> str:
    """How many kernels multiply on tensor cores."""
    several = [each for each in kernel.ptx.split(".entry")[1:] if "mma" in each]
    return f"{len(several)} on tensor cores" if several else ""


FRONT_ENDS: dict[str, tuple[tuple[str, ...], dict[str, Any], Callable[[Any], Exported]]] = {
    "torch": (("torch", "torch_mlir"), TORCH, export_torch),
    "dynamic": (("torch", "torch_mlir"), DYNAMIC, export_dynamic),
    "jax": (("jax", "iree.compiler"), JAX, export_jax),
}


def lines(name: str, only: list[str], target: str, save: Path | None) -> Iterator[tuple[str, str]]:
    """What became of each module of a front end."""
    _, modules, export = FRONT_ENDS[name]
    for title, make in modules.items():
        if only and not any(word in title for word in only):
            continue
        start = time.perf_counter()
        try:
            exported = export(make)
        except Exception as error:
            yield title, f"not exported: {type(error).__name__}: {str(error).splitlines()[0][:100]}"
            continue
        if save is not None:
            (save / f"{name}-{title}.mlir").write_text(exported.text)
        try:
            said = run(exported, target)
        except WarploomError as error:
            said = f"REFUSED {str(error).splitlines()[0][:230]}"
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = f"CRASHED {type(error).__name__}: {str(error)[:150]} ({Path(at.filename).name}:{at.lineno})"
        yield title, f"{said}  ({time.perf_counter() - start:.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("front_ends", nargs="*", choices=[*FRONT_ENDS, []], help="which; both by default")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="modules whose names have this in them")
    parser.add_argument("--target", default="sm_80", metavar="SM")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="where the modules of linalg are written")
    args = parser.parse_args()
    bad = 0
    for name in args.front_ends or FRONT_ENDS:
        if missing := [package for package in FRONT_ENDS[name][0] if find_spec(package.split(".")[0]) is None]:
            print(f"{name}: could not have {', '.join(missing)}")
            continue
        count = compiled = 0
        for title, said in lines(name, args.only, args.target, args.save):
            print(f"{name:7} {title:28} {said}", flush=True)
            count, compiled = count + 1, compiled + (" kernels " in said and "WRONG" not in said)
        print(f"{name}: {compiled} of {count} modules compiled and right")
        bad += count - compiled
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
