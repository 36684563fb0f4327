"""The signatures of the operators `torch.ops.warploom`; what they do is in `operators.py`, how they are written as
`linalg` in `products.py`."""

from __future__ import annotations

from typing import Any

import torch

from .torch_api import library

LIBRARY = library.Library("warploom", "DEF")

SIGNATURES = (
    "matmul(Tensor a, Tensor b) -> Tensor",
    'linear(Tensor x, Tensor weight, Tensor? bias=None, str activation="none") -> Tensor',
    "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType out_dtype=bfloat16) -> Tensor",
    "sparse_matmul(Tensor values, Tensor metadata, Tensor b) -> Tensor",
    "compress(Tensor dense) -> (Tensor, Tensor)",
)

for signature in SIGNATURES:
    LIBRARY.define(signature, tags=(torch.Tag.pt2_compliant_tag,))

warploom: Any = torch.ops.warploom
"""The namespace `torch.ops.warploom` of the operators, which docs/torch.md describes."""
