"""Proofs of kernels that others have published, from packages that hold them: `liger-kernel` (Triton).

    pip install --no-deps liger-kernel==0.8.5 triton==3.9.0        # beside torch, which writes the references
    python test/corpus/public.py [--target sm_90a] [NAME ...]

Each kernel is compiled as its package launches it, without a GPU, and proven against a function of torch, which the
importer of torch writes as `linalg`; one without a function for sm_90a against what its compiler makes for sm_80.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.cuda_ptx import plain

from warploom.runtime import KernelLaunch, Proof, WarploomError, load_ptx, prove
from warploom.runtime.torch.importer import torch_to_linalg

ROWS, COLUMNS, BLOCK = 3, 100, 128
EPS = 2.0**-20


@dataclass(frozen=True)
class Public:
    """A kernel of a module: its arguments, of which strings name arrays of `SHAPES`; the arrays that it writes; and a
    function of the others, by their names, that gives what those should be."""

    module: str
    kernel: str
    arguments: Mapping[str, Any]
    outputs: Sequence[str]
    reference: Callable[..., Any] | None = None
    grid: tuple[int, ...] = (ROWS,)


MATRICES = ("x", "y", "dy", "dx", "a", "b", "r", "s", "loss")
SHAPES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(MATRICES, (ROWS, COLUMNS)), **dict.fromkeys(("w", "bias"), (COLUMNS,)),
    **dict.fromkeys(("mean", "rstd"), (ROWS,)), "alpha": (1,), "w3": (3,), "b1": (1,), "rstd3": (ROWS, 3),
}  # fmt: skip


def rows(*names: str, **more: Any) -> dict[str, Any]:
    """Arguments of a kernel on rows: pointers by turns with their strides."""
    parts: dict[str, Any] = {}
    for pair in names:
        key, _, value = pair.partition("=")
        pointer, _, stride = key.partition("/")
        parts[pointer] = value
        if stride:
            parts[stride] = int(np.prod(SHAPES[value][1:])) if len(SHAPES[value]) > 1 else 1
    return parts | more


def norm(x: Any) -> Any:
    return torch.rsqrt((x * x).mean(1, keepdim=True) + EPS)


def layer_norm(x: Any, w: Any, bias: Any) -> Any:
    mean = x.mean(1, keepdim=True)
    rstd = torch.rsqrt(((x - mean) * (x - mean)).mean(1, keepdim=True) + EPS)
    return (x - mean) * rstd * w + bias, mean[:, 0], rstd[:, 0]


def silu(x: Any) -> Any:
    return x / (1 + torch.exp(-x))


def gelu(a: Any, b: Any) -> Any:
    return 0.5 * a * (1 + torch.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))) * b


SOFTMAX = rows("Y_ptr/Y_row_stride=y", "X_ptr/X_row_stride=x", n_cols=COLUMNS, BLOCK_SIZE=BLOCK)
SOFTMAX_BACK = rows("dy_ptr/dy_stride=dy", "y_ptr/y_stride=x", "dx_ptr/dx_stride=dx", n_cols=COLUMNS, BLOCK_SIZE=BLOCK)
GATED = rows("a_ptr=a", "b_ptr=b", "c_ptr=y", stride=COLUMNS, gate_multiplier=1.0, n_cols=COLUMNS, BLOCK_SIZE=BLOCK)
GATED_BACK = rows("dc_ptr=dy", "a_ptr=a", "b_ptr=b", stride=COLUMNS, gate_multiplier=1.0, n_cols=COLUMNS,
                  BLOCK_SIZE=BLOCK)  # fmt: skip
RMS = rows("Y_ptr/Y_row_stride=y", "X_ptr/X_row_stride=x", "W_ptr/W_row_stride=w", "RSTD_ptr/RSTD_row_stride=rstd",
           n_cols=COLUMNS, eps=EPS, offset=1.0, casting_mode=1, elementwise_affine=True, BLOCK_SIZE=BLOCK)  # fmt: skip
RMS_BACK = rows("dY_ptr/dY_row_stride=dy", "dX_ptr/dX_row_stride=dx", "X_ptr/X_row_stride=x", "W_ptr/W_row_stride=w",
                "RSTD_ptr/RSTD_row_stride=rstd", "dW_ptr/dW_row_stride=y", n_rows=ROWS, n_cols=COLUMNS, offset=1.0,
                rows_per_program=1, casting_mode=1, elementwise_affine=True, BLOCK_SIZE=BLOCK, X_dtype="float32",
                COMPUTE_DW=True)  # fmt: skip
LAYER = rows("Y_ptr/Y_row_stride=y", "X_ptr/X_row_stride=x", "W_ptr/W_row_stride=w", "B_ptr/B_row_stride=bias",
             "Mean_ptr/Mean_row_stride=mean", "RSTD_ptr/RSTD_row_stride=rstd", n_cols=COLUMNS, eps=EPS,
             BLOCK_SIZE=BLOCK)  # fmt: skip
LAYER_BACK = rows("X_ptr/stride_x=x", "Mean_ptr/stride_mean=mean", "RSTD_ptr/stride_rstd=rstd", "DX_ptr/stride_dx=dx",
                  "DW_ptr/stride_dw=y", "DB_ptr/stride_db=s", "DY_ptr/stride_dy=dy", W_ptr="w", n_rows=ROWS,
                  n_cols=COLUMNS, rows_per_program=1, BLOCK_SIZE=BLOCK, COMPUTE_DW=True, COMPUTE_DB=True)  # fmt: skip
SQUARED = rows("Y_ptr/Y_stride=y", "X_ptr/X_stride=x", n_cols=COLUMNS, BLOCK_SIZE=BLOCK)
SQUARED_BACK = rows("dX_ptr/dX_stride=dx", "dY_ptr/dY_stride=dy", "X_ptr/X_stride=x", n_cols=COLUMNS, BLOCK_SIZE=BLOCK)
ADDED = rows("Y_ptr/Y_row_stride=y", "S_ptr/S_row_stride=s", "X_ptr/X_row_stride=x", "R_ptr/R_row_stride=r",
             "W_ptr/W_row_stride=w", "RSTD_ptr/RSTD_row_stride=rstd", n_cols=COLUMNS, eps=EPS, offset=1.0,
             casting_mode=1, BLOCK_SIZE=BLOCK)  # fmt: skip
POLY = rows("Y_ptr/Y_row_stride=y", "X_ptr/X_row_stride=x", "RSTD_ptr/RSTD_row_stride=rstd3", W_ptr="w3", B_ptr="b1",
            n_cols=COLUMNS, eps=EPS, BLOCK_SIZE=BLOCK)  # fmt: skip
TANH = {"X": "x", "Y": "y", "Alpha": "alpha", "Gamma": "w", "Beta": "bias", "HAVE_BETA": True, "N": COLUMNS,
        "BLOCK_N": BLOCK}  # fmt: skip
DIVERGENCE = rows("y_ptr/y_stride=x", "gt_ptr/gt_stride=a", "loss_ptr/loss_stride=loss", n_cols=COLUMNS, eps=EPS,
                  BLOCK_SIZE=BLOCK, reduction=0, log_target=True)  # fmt: skip
DIVERGENCE_BACK = rows("target_ptr/target_stride=a", "new_grads_ptr/new_grads_stride=dx", n_cols=COLUMNS,
                       BLOCK_SIZE=BLOCK, log_target=False)  # fmt: skip


def powers(x: Any, w3: Any, b1: Any) -> Any:
    x2, x3 = x * x, x * x * x
    n3, n2, n1 = norm(x3), norm(x2), norm(x)
    return w3[0] * x3 * n3 + w3[1] * x2 * n2 + w3[2] * x * n1 + b1[0], torch.cat((n3, n2, n1), 1)


def backwards(dy: Any, x: Any) -> Any:
    return x * (dy - (dy * x).sum(1, keepdim=True))


KERNELS = (
    Public("softmax", "_softmax_single_block_forward_kernel", SOFTMAX, "y", lambda x: torch.softmax(x, 1)),
    Public("softmax", "_softmax_multi_block_forward_kernel", SOFTMAX | {"BLOCK_SIZE": 32}, "y",
           lambda x: torch.softmax(x, 1)),
    Public("softmax", "_softmax_single_block_backward_kernel", SOFTMAX_BACK, ["dx"], backwards),
    Public("softmax", "_softmax_multi_block_backward_kernel", SOFTMAX_BACK | {"BLOCK_SIZE": 32}, ["dx"], backwards),
    Public("swiglu", "_swiglu_forward_kernel", GATED, "y", lambda a, b: silu(a) * b),
    Public("swiglu", "_swiglu_forward_kernel_tiled", GATED | {"BLOCK_SIZE": 32}, "y", lambda a, b: silu(a) * b,
           grid=(ROWS, 4)),
    Public("swiglu", "_swiglu_backward_kernel", GATED_BACK, "ab"),
    Public("swiglu", "_swiglu_backward_kernel_tiled", GATED_BACK | {"BLOCK_SIZE": 32}, "ab", grid=(ROWS, 4)),
    Public("geglu", "_geglu_tanh_forward_kernel", {"a": "a", "b": "b", "c": "y", "stride": COLUMNS, "n_cols": COLUMNS,
                                                  "BLOCK_SIZE": BLOCK}, "y", gelu),
    Public("geglu", "_geglu_tanh_backward_kernel", {"dc": "dy", "a": "a", "b": "b", "stride": COLUMNS,
                                                   "n_cols": COLUMNS, "BLOCK_SIZE": BLOCK}, "ab"),
    Public("rms_norm", "_rms_norm_forward_kernel", RMS, ["y", "rstd"],
           lambda x, w: (x * norm(x) * (1 + w), norm(x)[:, 0])),
    Public("rms_norm", "_block_rms_norm_forward_kernel", RMS | {"n_rows": ROWS, "BLOCK_ROW": 2}, ["y", "rstd"],
           lambda x, w: (x * norm(x) * (1 + w), norm(x)[:, 0]), grid=(2,)),
    Public("rms_norm", "_rms_norm_backward_kernel", RMS_BACK, ["dx", "y"]),
    Public("layer_norm", "_layer_norm_forward_kernel", LAYER, ["y", "mean", "rstd"], layer_norm),
    Public("layer_norm", "_layer_norm_backward_kernel", LAYER_BACK, ["dx", "y", "s"]),
    Public("relu_squared", "_relu_squared_forward_kernel", SQUARED, "y", lambda x: torch.relu(x) * torch.relu(x)),
    Public("relu_squared", "_relu_squared_backward_kernel", SQUARED_BACK, ["dx"],
           lambda dy, x: dy * (2 * torch.relu(x))),
    Public("fused_add_rms_norm", "_fused_add_rms_norm_forward_kernel", ADDED, ["y", "s", "rstd"],
           lambda x, r, w: ((x + r) * norm(x + r) * (1 + w), x + r, norm(x + r)[:, 0])),
    Public("poly_norm", "_poly_norm_forward_kernel", POLY, ["y", "rstd3"], powers),
    Public("dyt", "_dyt_fwd_kernel", TANH, "y", lambda x, alpha, w, bias: torch.tanh(alpha * x) * w + bias,
           grid=(1, ROWS)),
    Public("kl_div", "_kldiv_kernel_forward", DIVERGENCE, ["loss"], lambda x, a: torch.exp(a) * (a - x)),
    Public("kl_div", "_kldiv_kernel_backward", DIVERGENCE_BACK, ["dx"], lambda a: -a),
)  # fmt: skip


def warps(public: Public) -> int:
    """As many as have elements of their own."""
    return public.arguments.get("BLOCK_SIZE", BLOCK) // 32


def of_triton(public: Public) -> Any:
    """The function of Triton, without what tunes it."""
    function = getattr(import_module(f"liger_kernel.ops.{public.module}"), public.kernel)
    while not hasattr(function, "params"):
        function = function.fn
    return function


def ptx(public: Public, target: str) -> tuple[str, str, int]:
    """The text of a kernel for a target, its name, and its shared memory."""
    compiler, backends = import_module("triton.compiler"), import_module("triton.backends.compiler")
    function = of_triton(public)
    kinds: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for parameter in function.params:
        value = public.arguments[parameter.name]
        if parameter.is_constexpr:
            constants[parameter.name] = (
                getattr(import_module("triton.language"), value) if isinstance(value, str) else value
            )
            kinds[parameter.name] = "constexpr"
        else:
            kinds[parameter.name] = "*fp32" if isinstance(value, str) else "fp32" if isinstance(value, float) else "i32"
    source = compiler.ASTSource(function, signature=kinds, constexprs=constants)
    gpu = backends.GPUTarget("cuda", int("".join(filter(str.isdigit, target))), 32)
    made = import_module("triton").compile(source, target=gpu, options={"ptx_version": 86, "num_warps": warps(public)})
    return plain(made.asm["ptx"]), made.metadata.name, made.metadata.shared


def launch(public: Public, target: str) -> KernelLaunch:
    text, name, shared = ptx(public, target)
    module = load_ptx(text)
    by_name = {k: np.float32(v) if isinstance(v, float) else v for k, v in public.arguments.items()}
    args = [by_name[p.name] for p in of_triton(public).params if not p.is_constexpr]
    args += [0] * (len(module.kernel(name).parameters) - len(args))
    return KernelLaunch(module, name, public.grid, 32 * warps(public), args, shared)


def verdict(public: Public, target: str) -> Proof:
    """What a proof says of a kernel."""
    used = [v for v in public.arguments.values() if isinstance(v, str) and v in SHAPES]
    generator = np.random.default_rng(1)
    arrays = {name: np.abs(generator.standard_normal(SHAPES[name]).astype(np.float32)) for name in used}
    if public.reference is None:
        return prove(launch(public, target), launch(public, "sm_80"), arrays, explain=False)
    inputs = list(signature(public.reference).parameters)
    text = torch_to_linalg(public.reference, *(torch.from_numpy(arrays[name]) for name in inputs))
    return prove(launch(public, target), text, arrays, names=[*inputs, *public.outputs], explain=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("names", nargs="*", help="parts of names; all, if none")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for public in KERNELS:
        if args.names and not any(name in public.kernel for name in args.names):
            continue
        against = "torch" if public.reference else "sm_80"
        try:
            proof = verdict(public, args.target)
            outcome, why = proof.outcome, "" if proof else proof.text.splitlines()[0]
        except WarploomError as error:
            outcome, why = "undecided", str(error).splitlines()[0]
        except import_module("triton.compiler.errors").CompilationError as error:
            outcome, why = "refused", f"Triton: {str(error).splitlines()[-1]}"
        counts[outcome] += 1
        print(f"{outcome:9} {public.module}.{public.kernel} against {against}  {why[:200]}", flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
