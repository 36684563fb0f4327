"""`torch_to_linalg`: what a function or a module computes, as `linalg` on tensors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..errors import ArgumentError, CompileError
from .importer import Importer
from .report import place_of
from .torch_api import aten, decompositions, leaves
from .types import UnsupportedError

COMPOSITE = (
    aten.native_layer_norm.default,
    aten._softmax.default,
    aten._log_softmax.default,
    aten.var_mean.correction,
    aten.var.correction,
)
"""Operations that are taken apart before, beside those that torch takes apart for export."""

WHOLE = (aten.matmul.default, aten.mv.default, aten.dot.default, aten.addmv.default)
"""Products that torch would write as copies and others, or as sums."""


def torch_to_linalg(
    function: Callable[..., object], *examples: torch.Tensor, dynamic: Sequence[Mapping[int, str] | None] = ()
) -> str:
    """Export the graph of a function, or a `torch.nn.Module`, as MLIR text: one `func.func` of `linalg` on tensors,
    which upstream's `mlir-opt` reads too. Its arguments are the parameters and buffers of the module, and then the
    tensors of a call, all in row-major order. A bool is one byte.

    `examples` are tensors with which the function can be called. Their shapes and types become those of the MLIR
    function. `dynamic` names the dynamic dimensions of each example: `dynamic=({0: "batch"},)`.

    Raises:
        CompileError: naming the line of the function and the operation, if the importer has no `linalg` for an
        operation, or if torch cannot export the function.
    """
    if not callable(cast("object", function)):
        raise ArgumentError(f"expected a function or a torch.nn.Module, got {type(function).__name__}")
    for position, example in enumerate(examples):
        if not isinstance(cast("object", example), torch.Tensor):
            raise ArgumentError(f"example {position}: expected a tensor, got {type(example).__name__}")
    program = _exported(function, examples, dynamic)
    importer, names = Importer(), _names(function, program)
    name = getattr(function, "__name__", type(function).__name__)
    for node in program.graph.nodes:
        if node.op != "output":
            _run(importer, node, names)
    return _text(importer, name, program.graph.output_node())


def _names(function: Callable[..., object], program: ExportedProgram) -> dict[str, str]:
    """What the function calls its arguments, by the names of the graph's."""
    if isinstance(function, torch.nn.Module):
        return {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # what is built in need not tell
        return {}
    names = [p.name for p in parameters if p.kind in kinds]
    return dict(zip(map(str, program.graph_signature.user_inputs), names, strict=False))


def _run(importer: Importer, node: Node, names: Mapping[str, str]) -> None:
    try:
        if node.op == "placeholder":
            importer.argument(node, names.get(node.name) or node.name)
        else:
            importer.run(node)
    except UnsupportedError as error:
        place = place_of(node)
        raise CompileError(f"{place}: {error}" if place else str(error)) from error


def _text(importer: Importer, name: str, output: Node) -> str:
    returned = [x for x in leaves(output.args) if isinstance(x, Node)]
    tensors = [node for node in returned if isinstance(node.meta.get("val"), torch.Tensor)]
    if not tensors or len(tensors) != len(leaves(output.args)):
        raise CompileError(f"@{name}: expected a function that returns tensors")
    try:
        return importer.builder.text(re.sub(r"\W", "_", name), importer.results(returned))
    except UnsupportedError as error:
        raise CompileError(f"@{name}: {error}") from error


def _exported(
    function: Callable[..., object], examples: Sequence[torch.Tensor], dynamic: Sequence[Mapping[int, str] | None]
) -> ExportedProgram:
    module = function if isinstance(function, torch.nn.Module) else _Wrapped(function)
    names = {n for sizes in dynamic for n in (sizes or {}).values()}
    known = {n: torch.export.Dim(n, min=2) for n in names}
    shapes = tuple({d: known[n] for d, n in (s or {}).items()} for s in (*dynamic, *[None] * len(examples)))
    try:
        program = torch.export.export(
            module,
            tuple(examples),
            dynamic_shapes=(shapes[: len(examples)],) if isinstance(module, _Wrapped) else shapes[: len(examples)],
        )
        table: dict[Any, Any] = dict(torch.export.default_decompositions())
        table |= decompositions(COMPOSITE)
        for operator in WHOLE:
            table.pop(operator, None)
        return cast("Any", program).run_decompositions(table)
    except Exception as error:
        raise CompileError(f"torch.export: {str(error).strip() or type(error).__name__}") from error


class _Wrapped(torch.nn.Module):
    """A function as the module that `torch.export` takes."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._function = _named_forward(function)

    def forward(self, *examples: torch.Tensor) -> object:
        return self._function(*examples)


def _named_forward(function: Callable[..., object]) -> Callable[..., object]:
    """The function with `forward` as the name of its code: torch tells the lines of code of that name alone."""
    if isinstance(function, MethodType):
        return MethodType(_named_forward(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    named = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    named.__kwdefaults__ = function.__kwdefaults__
    return named
