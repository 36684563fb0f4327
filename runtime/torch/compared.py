"""Compiled parts that are compared with torch's eager mode in each call: `options={"check": True}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ..base.errors import WarploomError
from ..base.explanation import place_of
from .attention import ATTENTIONS
from .clusters import Cluster, is_product
from .options import expression
from .part import Region

APART = {torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8, torch.float32: 2.0**-14, torch.float64: 2.0**-40}
"""How far a result may be from eager mode's, of the largest element: some roundings, and sums in another order."""

TF32 = 2.0**-7
"""The same for products of f32, which drop 13 bits of each operand."""

EXPONENT, OF_EXPONENT = 2.0**-6, 2.0**-18
"""How far logarithms of sums may be at most, and how far in addition, of the largest: gradients raise them to a power
again, where a distance becomes a factor."""


class ComparedPart:
    """A compiled part that raises an error if a result differs from what eager mode computes of the same tensors."""

    def __init__(self, region: Region, part: Cluster) -> None:
        self.region, self.name, self.layout = region, region.name, region.layout
        self.label, self.place, self.multiplies = part.label, place_of(part.last), is_product(part.core)
        self._inputs, self._results = part.inputs, part.results
        self.attends = part.core.target in ATTENTIONS
        self._calls = [(node, node.target, node.args, node.kwargs) for node in part.nodes]  # the graph loses them

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        outs = self.region(*inputs)
        self._compare(inputs, outs)
        return outs

    def into(self, *inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Computes the result in a tensor."""
        self.region.into(*inputs, out=out)
        self._compare(inputs, [out])

    def _compare(self, inputs: tuple[torch.Tensor, ...], outs: Sequence[torch.Tensor]) -> None:
        for out, expected in zip(outs, self._eager(inputs), strict=True):
            ours, theirs = out.detach().double(), expected.detach().double()
            share = TF32 if self.multiplies and out.dtype == torch.float32 else APART.get(out.dtype, 0.0)
            finite = theirs[theirs.isfinite()].abs()
            largest = float(finite.max()) if finite.numel() else 0.0
            bound = share * largest
            if self.attends and out.dtype == torch.float32:
                bound = min(bound, EXPONENT + OF_EXPONENT * largest)
            close = ((ours - theirs).abs() <= bound) | (ours == theirs) | (ours.isnan() & theirs.isnan())
            if bool(close.all()):
                continue
            at = tuple(int(x[0]) for x in (~close).nonzero(as_tuple=True))
            place = f" ({self.place})" if self.place else ""
            raise WarploomError(
                f"check: {self.label}{place} is not what eager mode computes in {int((~close).sum())} of {out.numel()} "
                f"elements: expected {float(theirs[at]):.6g} within {bound:.3g} at {list(at)}, "
                f"got {float(ours[at]):.6g}"
            )

    def _eager(self, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        values: dict[Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        pairs = [pair for node, x in values.items() for pair in zip(node.meta["val"].shape, x.shape, strict=True)]
        sizes = {expression(symbol): size for symbol, size in pairs if not isinstance(symbol, int)}

        def resolved(node: Node) -> Any:
            if isinstance(node.meta["val"], torch.Tensor) and node not in values:  # the state of dropout
                return torch.zeros(node.meta["val"].shape, dtype=node.meta["val"].dtype, device=inputs[0].device)
            return values[node] if node in values else int(expression(node.meta["val"]).subs(sizes))

        with torch.no_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            for node, target, args, kwargs in self._calls:
                args, kwargs = map_arg((args, kwargs), resolved)
                values[node] = cast("Any", target)(*args, **kwargs)
        return [values[node] for node in self._results]
