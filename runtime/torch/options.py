"""Options of the backend, names of torch, and where in the model the nodes of a graph come from."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import ml_dtypes as ml_dtypes
import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from ...dialect.isa.form import ELEMENT_TYPES
from ...dialect.isa.row import UnknownTargetError, target
from ...dialect.layouts.layout import LANES
from ...dialect.schedule.schedule import ScheduleError, parse_options
from ...dialect.warp.operands import METADATA_ROWS, metadata_span
from ..arguments.packed import compress
from ..base.cache import kept, key_of
from ..base.errors import ArgumentError
from ..base.explanation import Explanation

RESTS = ("eager", "inductor")

MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of `torch.compile` that say how inductor compiles."""


@dataclass(frozen=True)
class BackendOptions:
    """What `torch.compile(..., options={...})` takes.

    `explain` prints what was compiled of each graph and why the rest was not, with "table" as a table, or is called
    with an `Explanation`. `check` compares each call of a compiled part with eager mode, and stops at the first that
    differs. `rest` is who runs what is not compiled: "eager" or "inductor"; by default inductor for tensors on a GPU
    where triton is installed. `mode` is inductor's, as `torch.compile` takes it where there are no options. `target` is
    the target of kernels, by default that of the GPU that tensors lie on, and sm_90a on the CPU. `tf32` lets products
    of f32 drop 13 bits of each operand; by default as `torch.set_float32_matmul_precision` says. `tuned` and `schedule`
    are those of `runtime.compile`.

    Raises:
        ArgumentError: for a value that an option does not take.
    """

    explain: bool | str | Callable[[Explanation], object] = False
    check: bool = False
    rest: str | None = None
    mode: str | None = None
    target: str | None = None
    tf32: bool | None = None
    tuned: str | None = None
    schedule: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        kinds = cast("object", self.schedule), cast("object", self.tf32), cast("object", self.check)
        explains = self.explain in (True, False, "table") or callable(self.explain)
        expected = (
            ("rest", self.rest in (None, *RESTS), " or ".join(RESTS)),
            ("mode", self.mode in (None, *MODES), ", ".join(MODES)),
            ("schedule", isinstance(kinds[0], Mapping), "a dictionary such as {'stages': 3}"),
            ("tf32", isinstance(kinds[1], bool | None), "True or False"),
            ("check", isinstance(kinds[2], bool), "True or False"),
            ("explain", explains, "True, False, 'table' or a function"),
        )
        for name, fits, what in expected:
            if not fits:
                raise ArgumentError(f"option {name!r}: expected {what}, got {getattr(self, name)!r}")
        for name, value, check in (("target", self.target, target), ("schedule", self.schedule, parse_options)):
            try:
                _ = value and check(cast("Any", value))
            except (UnknownTargetError, ScheduleError) as error:
                raise ArgumentError(f"option {name!r}: {error}") from error
        if self.tuned is not None and not os.path.isfile(self.tuned):
            raise ArgumentError(f"option 'tuned': {self.tuned}: no such file; `warploom tune` writes such files")
        if self.check and self.mode in ("reduce-overhead", "max-autotune"):
            raise ArgumentError(f"option 'check' waits for the GPU, which the CUDA graphs of mode {self.mode!r} cannot")

    def rest_for(self, examples: Sequence[Any]) -> str:
        """The backend that runs what is not compiled of a graph with these inputs."""
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in examples)
        return self.rest or ("inductor" if on_gpu and find_spec("triton") is not None else "eager")

    @property
    def key(self) -> str:
        """A digest of all that says what is compiled, and how; empty where somebody wants to see that of each graph, or
        there is no cache."""
        if self.explain or self.check or kept() is None:
            return ""
        read = {"tuned": self.tuned and Path(self.tuned).read_text(), "tf32": self.drops_bits}
        return key_of("options", {**vars(self), "schedule": dict(self.schedule), **read})

    @property
    def drops_bits(self) -> bool:
        """Whether products of f32 may be multiplied as tf32."""
        return torch.get_float32_matmul_precision() != "highest" if self.tf32 is None else self.tf32


def read(options: Mapping[str, Any] | None) -> BackendOptions:
    """BackendOptions as torch passes them on; ArgumentError for an unknown option, or a wrong value."""
    names = [f.name for f in fields(BackendOptions)]
    for name in options or {}:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(f"no option {name!r} of the backend warploom; there are {', '.join(names)}{hint}")
    return BackendOptions(**(options or {}))


NO_FORM = "there is no form of it in linalg here"
"""Why an operation is left that nothing here writes."""

pytree: Any = import_module("torch.utils._pytree")
_ops: Any = import_module("torch._ops")
sympy: Any = import_module("sympy")

aten: Any = torch.ops.aten
prims: Any = torch.ops.prims


def is_operator(target: object) -> bool:
    """Whether the target of a node is an operator of torch, such as `torch.ops.aten.mm.default`."""
    return isinstance(target, _ops.OpOverload)


KINDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")

ATTENTIONS = frozenset(
    {aten.scaled_dot_product_attention.default, *(getattr(aten, f"_scaled_dot_product_{k}").default for k in KINDS)}
)
"""Operations that are attention. All but the first have several results: the attention, for each row the logarithm of
the sum of the exponentials of its scores, and the state of dropout."""

GRADIENTS = frozenset(getattr(aten, f"_scaled_dot_product_{kind}_backward").default for kind in KINDS)
"""Operations that compute the gradients of Q, K, V and a mask."""

SEQUENCES = "torch_attn._varlen_attn.default", "torch_attn._varlen_attn_backward.default"
"""Attention of sequences that follow one another, whose ends are in memory, and its gradients; torch has them once a
module is imported."""

FLEXIBLE = {
    "flex_attention": ("query", "key", "value", "score_mod", "block_mask", "scale", "", "buffers", "mask_buffers"),
    "flex_attention_backward": (
        *("query", "key", "value", "out", "logsumexp", "grad_out", "grad_logsumexp", "score_mod", "joint"),
        *("block_mask", "scale", "", "buffers", "mask_buffers"),
    ),
}
"""FlexAttention and its gradients, with the names of their arguments: functions of a score and its place are graphs of
their own. Logarithms are those of base 2."""


def is_attention(node: Node) -> bool:
    """Whether a node is attention, or computes its gradients."""
    attention = node.target in ATTENTIONS or is_gradient(node) or str(node.target) in (*SEQUENCES, *FLEXIBLE)
    return node.op == "call_function" and attention


def is_gradient(node: Node) -> bool:
    """Whether a node computes the gradients of an attention."""
    return node.target in GRADIENTS or str(node.target) in (SEQUENCES[1], "flex_attention_backward")


def numbered(count: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The numbers from 0 on, so many, as one operation of a traced graph."""
    return prims.iota(count, start=0, step=1, dtype=dtype, device=device, requires_grad=False)


def decompositions(operators: Sequence[object] | None = None) -> dict[Any, Any]:
    """torch's decompositions of operators; all of them if none are named."""
    module: Any = import_module("torch._decomp")
    return dict(module.decomposition_table if operators is None else module.get_decompositions(operators))


def traced(function: Callable[..., object], tensors: Sequence[torch.Tensor], table: dict[Any, Any]) -> Graph:
    """The graph of operators that a function calls, with some of them decomposed."""
    proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
    module: GraphModule = proxy_tensor.make_fx(function, decomposition_table=table)(*tensors)
    module.graph.eliminate_dead_code()
    return module.graph


def expression(size: Any) -> Any:
    """A size of torch as a number if it is constant, otherwise as an expression of sympy."""
    if isinstance(size, int):
        return size
    node = size.node
    number = node.maybe_as_float() if isinstance(size, torch.SymFloat) else node.maybe_as_int()
    return node.expr if number is None else number


SPARSE_ELEMENTS = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "tf32", torch.int8: "s8", torch.float8_e4m3fn: "e4m3",
}  # fmt: skip
"""What the ISA calls the types that a sparse matrix can have."""


def metadata_shape(rows: int, columns: int, dtype: torch.dtype) -> tuple[int, int]:
    """The sizes of the metadata of a sparse matrix; ArgumentError for elements that no instruction takes."""
    if dtype not in SPARSE_ELEMENTS:
        raise ArgumentError(f"there is no sparse matrix of {dtype}; expected {', '.join(map(str, SPARSE_ELEMENTS))}")
    return -(-rows // METADATA_ROWS), -(-columns // metadata_span(ELEMENT_TYPES[SPARSE_ELEMENTS[dtype]])) * LANES


def compressed(dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The stored elements and the metadata of a matrix with half of its elements zero, as `runtime.compress` makes
    them; an ArgumentError names a place that breaks the pattern."""
    words = dense.detach().cpu().contiguous().view(torch.uint8).numpy()
    values, metadata = compress(words.view(str(dense.dtype).removeprefix("torch.")))  # names that ml_dtypes adds
    stored, metadata = map(cast("Any", torch).from_numpy, (values.view(np.uint8), metadata))
    return stored.view(dense.dtype).to(dense.device), metadata.to(dense.device)


def place_of(node: Node) -> str:
    """`file:line` of the innermost line of the model from which a node comes, else the module, else ""."""
    ours = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    lines: list[tuple[str, str]] = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if own := [f"{file}:{line}" for file, line in lines if not file.startswith(ours)]:
        return own[-1]
    path, kind = _module_of(node)
    return f"module {path}, {str(getattr(kind, '__qualname__', kind)).rpartition('.')[2]}" if path else ""


def _module_of(node: Node) -> tuple[str, object]:
    """The path and the class of the module of a node. A gradient has those of its forward node."""
    modules: dict[str, Any] = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return next(reversed(modules.values()), ("", ""))


def layer_of(node: Node) -> str:
    """The path of the module of a node, such as `layers.0.mlp`; "" for the outermost module."""
    path = re.sub(r"\['?(\w+)'?\]", r".\1", _module_of(node)[0])
    return re.sub(r"^L\.\w+", "", path).replace("._modules", "").strip(".")
