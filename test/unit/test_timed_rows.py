"""Each function that `bench/rows.py` times, on rows of odd lengths, against float64."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
timed: Any = import_module("rows")
timed.DEVICE = "cpu"

from warploom.runtime import compile  # noqa: E402
from warploom.runtime.torch.importer import torch_to_linalg  # noqa: E402

OWN: dict[str, Callable[[], Any]] = {
    "router": lambda: ((torch.rand(7, 40).argsort() / 16 - 1).bfloat16(),),
    "group_norm": lambda: (timed.rows(33, 32, 3, 7), timed.rows(32), timed.rows(32)),
    "batch_norm": lambda: (timed.rows(9, 13, 5, 7), timed.rows(13), timed.rows(13)),
    "group_norm_gradients": lambda: (
        *(timed.rows(9, 96, 5, 7) for _ in range(2)),
        timed.rows(96),
        timed.rows(9, timed.GROUPS),
        timed.scales(9, timed.GROUPS).bfloat16(),
    ),
    "batch_norm_gradients": lambda: (
        *(timed.rows(9, 13, 5, 7) for _ in range(2)),
        timed.rows(13),
        *(timed.scales(13) for _ in range(2)),
    ),
    "rope_pairs": lambda: (timed.rows(3, 5, 26), timed.rows(3, 1, 13), timed.rows(3, 1, 13)),
    "gated_group_norm": lambda: (timed.rows(5, 296), timed.rows(5, 296), timed.rows(296)),
    "rope_part": lambda: (timed.rows(3, 5, 36), timed.rows(3, 1, 26), timed.rows(3, 1, 26)),
    "rope": lambda: (timed.rows(3, 5, 26), timed.rows(3, 1, 26), timed.rows(3, 1, 26)),
    "rope_of_heads": lambda: (timed.rows(2, 3, 33, 26), *(timed.rows(3, 26) for _ in range(2))),
    "norm_rope": lambda: (
        *(timed.rows(2, 7, heads, 26) for heads in (3, 1)),
        *(timed.rows(26) for _ in range(2)),
        *(timed.rows(7, 26) for _ in range(2)),
    ),
    "quantise_blocks": lambda: (timed.rows(5, 384),),
}
"""Operands of functions that do not take rows of any length; of a router, no two elements of a row are equal."""

SIZES = ((5, 174), (3, 1302))
CASES = [(name, size) for name in timed.CASES for size in SIZES if name not in OWN or size == SIZES[0]]
BOUNDS = {"cross_entropy": 2**-18, "mean_cross_entropy": 2**-18, "smoothed_cross_entropy": 2**-18,
          "mean_square": 2**-18, "router": 2**-18, "norm_rope": 2**-6,
          "transpose": 0, "cast": 0, "concatenate": 0, "concatenate_three": 0, "embedding": 0,
          "quantise_rows": 2**-3.5, "swiglu_quantise": 2**-3.5, "quantise_blocks": 2**-3.5}  # fmt: skip
"""Of the largest element: sums in f32, what is moved, a step of e4m3 where a quotient is a tie, and five roundings to
bf16; else of bf16."""


def operands_of(name: str, size: tuple[int, int]) -> Any:
    """Operands drawn afresh."""
    return OWN[name]() if name in OWN else timed.CASES[name].operands(*size)


def exact(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], operands: Any) -> list[Any]:
    """What a function computes in float64, wherever it asks for f32 or bf16."""
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "float", torch.Tensor.double)
        patched.setattr(torch.Tensor, "bfloat16", torch.Tensor.double)
        patched.setattr(torch, "empty", lambda *args, **given: torch.zeros(*args, dtype=torch.double))
        return timed.leaves(function(*(x.double() if x.is_floating_point() else x for x in operands)))


def compiled(name: str, operands: Any) -> tuple[Any, list[Any]]:
    """The kernel of a function as it is on a GPU, and results full of 99."""
    function, meta = timed.CASES[name].function, [x.to("meta") for x in operands]
    timed.DEVICE = "meta"
    try:
        made = timed.leaves(function(*meta))
        kernel = compile(torch_to_linalg(function, *meta), target="sm_90a", cache=False)
    finally:
        timed.DEVICE = "cpu"
    return kernel, [torch.full(x.shape, 99.0).to(x.dtype) for x in made]


@pytest.mark.sampled(48)
@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_timed_function_is_right(monkeypatch: pytest.MonkeyPatch, name: str, size: tuple[int, int]) -> None:
    monkeypatch.setattr(timed, "CHOSEN", 2)
    operands = operands_of(name, size)
    wanted = exact(monkeypatch, timed.CASES[name].function, operands)
    kernel, results = compiled(name, operands)
    kernel(*operands, *results, device="interp", checks="all")
    for result, right in zip(results, wanted, strict=True):
        off = (result.double() - right.double()).abs().max()
        assert off <= BOUNDS.get(name, 2**-7) * right.double().abs().max()
