"""Random graphs through the backend of `torch.compile`, on the interpreter or a GPU, against eager mode.

    python test/torch_graphs.py                       # 500 graphs of a random seed, which is printed
    python test/torch_graphs.py --seed 77 --first 40 --graphs 20 --jobs 4
    python test/torch_graphs.py --only 77000012       # one graph, with its steps
    python test/torch_graphs.py --parts               # more parts of tensors that are merged, and written in place

A graph has pointwise operations, choices by masks, reductions along one or several dimensions, norms, products with
what they add, attention, views, joins, rows by indices, sums along a dimension so far, and writes to tensors and to
their views, of bf16, f16 and f32; a third has gradients, a third sizes that change, some of both dimensions and with
numbers that depend on them; some run under autocast. With `--parts`, which draws other graphs of the same seed, most
steps take a part of a value, move or repeat its dimensions and merge them, or write to such a part. All steps are
continuous, so that a rounding stays one: the distance from the same graph in f64 is at most 1.5 times that of eager
mode, or 2^-7 of the largest element. Where values cancel, eager mode may be exact by luck. So a larger distance may be
twice that of the graph in f64 with each value, and each gradient, off by a rounding in steps of narrow types, and a
gelu by what docs/epilogues.md has for it.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import TimeoutError, get_context
from typing import Any

import torch

from warploom.runtime import torch_backend

functional: Any = torch.nn.functional
dynamo: Any = torch._dynamo
Step = tuple[str, Callable[..., Any], tuple[int, ...], bool]
"""The name of a step, what it computes, the numbers of the values it takes, and whether it writes to the first."""

UNARY: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": lambda x: torch.exp(-x.abs()),
    "sqrt": lambda x: torch.sqrt(x.abs() + 0.5),
    "rsqrt": lambda x: torch.rsqrt(x.square() + 0.5),
    "scaled": lambda x: x * 0.5 + 1,
    "clamp": lambda x: x.clamp(-1.5, 2),
    "log1p": lambda x: torch.log1p(x.abs()),
    "expm1": lambda x: torch.expm1(-x.abs()),
    "softplus": functional.softplus,
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "hardswish": functional.hardswish,
    "elu": functional.elu,
    "cube": lambda x: torch.tanh(x) ** 3,
    "erf": torch.erf,
    "reciprocal": lambda x: 1 / (x.abs() + 0.5),
    "glu": lambda x: functional.glu(x, -1) if x.shape[-1] % 2 == 0 else x,
    "threshold": lambda x: torch.where(x > 0, x, 0.25 * x),
    "lower": lambda x: x.tril() if x.dim() > 1 else x,
    "softcap": lambda x: 5 * torch.tanh(x / 5),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda x, y: x * torch.tanh(y),
    "div": lambda x, y: x / (y.abs() + 1),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lerp": lambda x, y: x + 0.25 * (y - x),
    "hypot": lambda x, y: torch.sqrt(x.square() + y.square() + 0.5),
    "gate": lambda x, y: functional.silu(x) * torch.sigmoid(y),
    "fma": lambda x, y: torch.addcmul(x, torch.tanh(x), torch.tanh(y), value=0.5),
    "masked": lambda x, y: torch.where(_pattern(x), x, y.to(x.dtype)),
}
REDUCED: dict[str, Callable[..., Any]] = {
    "mean": lambda x, dim, keep: x.mean(dim, keepdim=keep),
    "sum": lambda x, dim, keep: x.sum(dim, keepdim=keep) * 0.25,
    "amax": lambda x, dim, keep: x.amax(dim, keepdim=keep),
    "amin": lambda x, dim, keep: x.amin(dim, keepdim=keep),
    "var": lambda x, dim, keep: x.var(dim, correction=0, keepdim=keep),
    "std": lambda x, dim, keep: (x.var(dim, correction=0, keepdim=keep) + 0.5).sqrt(),
    "norm": lambda x, dim, keep: (x.square().sum(dim, keepdim=keep) + 0.5).sqrt(),
    "logsumexp": lambda x, dim, keep: x.logsumexp(dim, keepdim=keep),
    "mean of squares": lambda x, dim, keep: (
        x.float().pow(2).mean(dim, keepdim=keep).to(x.dtype)
        if x.dtype != torch.float64
        else x.pow(2).mean(dim, keepdim=keep)
    ),
}
ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, dim: x.softmax(dim),
    "log_softmax": lambda x, dim: x.log_softmax(dim),
    "layer_norm": lambda x, dim: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x, dim: functional.rms_norm(x, x.shape[-1:], eps=1e-5),
    "normalized": lambda x, dim: x / (x.square().sum(dim, keepdim=True) + 1),
    "masked softmax": lambda x, dim: x.masked_fill(~_pattern(x), -30.0).softmax(dim),
    "centred": lambda x, dim: x - x.mean(dim, keepdim=True),
    "cumsum": lambda x, dim: x.cumsum(dim) * 0.25,
    "flip": lambda x, dim: x.flip(dim),
    "roll": lambda x, dim: x.roll(1, dim),
    "rope": lambda x, dim: x * 0.5 + torch.cat([-x.chunk(2, -1)[-1], x.chunk(2, -1)[0]], -1) * 0.25,
}
PARTS: dict[str, Callable[[Any, int, int], Any]] = {
    "to": lambda v, d, n: v.narrow(d, 0, v.shape[d] - n),
    "from": lambda v, d, n: v.narrow(d, n, v.shape[d] - n),
    "between": lambda v, d, n: v.narrow(d, 1, v.shape[d] - 1 - n),
    "one": lambda v, d, n: v.narrow(d, -n, 1),
    "every": lambda v, d, n: v.transpose(0, d)[n - 1 :: 2].transpose(0, d),
    "third": lambda v, d, n: v.transpose(0, d)[::3].transpose(0, d),
    "select": lambda v, d, n: v.select(d, -n),
    "unbind": lambda v, d, n: v.unbind(d)[n - 1],
    "chunk": lambda v, d, n: v.chunk(2, d)[n - 1],
    "split": lambda v, d, n: v.split(n, d)[0],
    "diagonal": lambda v, d, n: v.diagonal(n - 1, d, (d + 1) % v.dim()),
    "transpose": lambda v, d, n: v.transpose(d, (d + n) % v.dim()),
    "permute": lambda v, d, n: v.permute(*range(d, v.dim()), *range(d)),
    "unflatten": lambda v, d, n: v.unflatten(d, (-1, n + 1)),
    "unflatten outer": lambda v, d, n: v.unflatten(d, (n + 1, -1)),
    "unsqueeze": lambda v, d, n: v.unsqueeze(d),
    "merge": lambda v, d, n: v.flatten(d, min(d + n, v.dim() - 1)),
}
"""Parts of a value and other views along a dimension, with a number of 1 or 2."""

REPEATED: dict[str, Callable[[Any, int, int], Any]] = {
    "expand": lambda v, d, n: v.unsqueeze(d).expand(*v.shape[:d], n + 1, *v.shape[d:]),
    "unfold": lambda v, d, n: v.unfold(d, n + 1, 1),
    "broadcast": lambda v, d, n: v.narrow(d, n - 1, 1).expand(v.shape),
}
"""Views whose elements share memory, which are not written."""

MERGED: dict[str, Callable[[Any, int, int], Any]] = {
    "reshape": lambda v, d, n: v.reshape(-1),
    "rows": lambda v, d, n: v.reshape(-1, v.shape[-1]),
    "columns": lambda v, d, n: v.reshape(v.shape[0], -1),
    "flatten": lambda v, d, n: v.flatten(d, min(d + n, v.dim() - 1)),
    "regrouped": lambda v, d, n: v.reshape(*v.shape[:d], -1, n + 1),
    "heads": lambda v, d, n: v.reshape(*v.shape[:-1], n + 1, -1).transpose(-3, -2),
    "outer": lambda v, d, n: v.reshape(n + 1, -1),
    "as it is": lambda v, d, n: v,
}
SLOW = ("unbind", "unfold", "chunk", "third", "unflatten outer", "outer")
"""Views of which torch takes minutes to say what sizes they have, of several such that change."""

WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda v: v.add_(0.5),
    "mul_": lambda v: v.mul_(0.5),
    "tanh_": lambda v: v.tanh_(),
    "copy_": lambda v: v.copy_(v.flip(-1) * 0.5),
    "fill_": lambda v: v.fill_(0.5),
    "masked_fill_": lambda v: v.masked_fill_(_pattern(v), 0.5),
    "index_put_": lambda v: v.index_put_((_places(v).flip(0),), v * 0.5),
    "index_put_ sums": lambda v: v.index_put_((_places(v)[:1].expand(2),), v[:1] * 0.25, accumulate=True),
    "index_add_": lambda v: v.index_add_(0, _places(v), v.flip(0) * 0.5),
    "index_copy_": lambda v: v.index_copy_(-1, _places(v)[:1], v[..., -1:] * 0.5),
    "index_fill_": lambda v: v.index_fill_(-1, _places(v)[:1], 0.5),
    "scatter_": lambda v: v.scatter_(-1, torch.zeros_like(v[..., :1], dtype=torch.long), v[..., -1:] * 0.5),
    "scatter_add_": lambda v: v.scatter_add_(-1, torch.zeros_like(v, dtype=torch.long), v * 0.125),
    "[...] =": lambda v: v.__setitem__((..., 0), v[..., -1] * 0.5),
    "swapped": lambda v: v.copy_(torch.cat([v[..., 1:], v[..., :1]], -1)),
}


ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
GELU = 5e-7
"""How far a gelu of a narrow type is off beside that, times its operand: by one part of it where that is large."""

PROGRESS = 50
"""How often the number of graphs that are done is printed."""

DRAWS = 16
"""How often roundings are drawn anew."""


@dataclass
class Drawn:
    """A random graph: steps on a list of values, which begins with the inputs. `results` are numbers of values."""

    seed: int
    shapes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    dtypes: list[Any] = field(default_factory=list[Any])
    steps: list[Step] = field(default_factory=list[Step])
    results: tuple[int, ...] = ()
    training: bool = False
    dynamic: bool = False
    written: bool = False
    autocast: bool = False

    kinds: list[Any] = field(default_factory=list[Any])
    """The types of the steps' results."""

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values = list(inputs)
        for _, function, operands, _ in self.steps:
            values.append(function(*(values[x] for x in operands)))
        return tuple(values[x] for x in self.results)

    def rounded(self, *inputs: Any) -> tuple[Any, ...]:
        """The same, with each step's result and its gradient off by a random rounding. What the gradients read of a
        step is its rounded result, as in eager mode: two roundings of a tie are two values there too."""
        values = list(inputs)
        for (name, function, operands, writes), kind in zip(self.steps, self.kinds, strict=True):
            result = function(*(values[x] for x in operands))
            if not writes and _memory(result) not in map(_memory, values):
                round_ = partial(_off, ROUNDING.get(kind, 0.0))
                result.data.copy_(round_(result.data))
                if name == "gelu" and kind in ROUNDING:
                    result.data.add_(values[operands[0]].data, alpha=GELU * float(torch.rand(())))
                if result.requires_grad:
                    result.register_hook(round_)
            values.append(result)
        return tuple(values[x] for x in self.results)

    @property
    def text(self) -> str:
        steps = [f"  {n}: {name} {list(of)}" for n, (name, _, of, _) in enumerate(self.steps, len(self.shapes))]
        kinds = [str(x).removeprefix("torch.") for x in self.dtypes]
        inputs = list(zip(self.shapes, kinds, strict=True))
        flags = [x for x in ("training", "dynamic", "autocast") if getattr(self, x)]
        head = f"seed {self.seed}: {inputs} {' '.join(flags)}"
        return "\n".join([head, *steps, f"  results {self.results}"])


class Drawing:
    """Draws a graph step by step; each value is known by an example."""

    def __init__(self, seed: int, parts: bool = False) -> None:
        self.draw = random.Random(seed)
        kind = seed % 3
        self.graph = Drawn(seed, training=kind == 1, dynamic=kind == 2)
        self.batch = self.draw.choice((2, 3, 5))
        wide, narrow = self.draw.random() < 0.3, torch.float16 if self.draw.random() < 0.15 else torch.bfloat16
        self.graph.autocast = wide and self.draw.random() < 0.3
        for _ in range(self.draw.randint(2, 3)):
            sizes = (2, 3, 4, 6, 9) if parts else (3, 5, 8, 17, 24)
            shape = tuple(self.draw.choice(sizes) for _ in range(self.draw.randint(1, 2) + parts))
            self.graph.shapes.append((self.batch, *shape))
            self.graph.dtypes.append(torch.float32 if wide and self.draw.random() < 0.5 else narrow)
        self.values = [torch.randn(s).to(d) for s, d in zip(self.graph.shapes, self.graph.dtypes, strict=True)]
        self.inputs = len(self.values)
        kinds = (self.unary, self.binary, self.binary, self.reduced, self.rows, self.product, self.product)
        kinds = (
            *kinds,
            self.view,
            self.view,
            self.join,
            self.cast,
            self.write,
            self.several,
            self.attend,
            self.rows_of,
            *(parts * 5 * (self.part, self.part, self.write_part)),
        )
        for _ in range(self.draw.randint(4, 11)):
            self.draw.choice(kinds)()
        used = {x for step in self.graph.steps for x in step[2]}
        ends = [x for x in range(self.inputs, len(self.values)) if x not in used]
        self.graph.results = tuple(dict.fromkeys([*ends, len(self.values) - 1]))

    def add(self, name: str, function: Callable[..., Any], *operands: int, writes: bool = False) -> None:
        """Appends a step if torch computes it and its result is small."""
        try:
            values = [x.clone() for x in self.values] if writes else self.values
            result = function(*(values[x] for x in operands))
        except (RuntimeError, IndexError):
            return
        if 0 < result.numel() <= 4096 and result.dim() <= 4:
            self.values.append(result)
            self.graph.kinds.append(result.dtype)
            self.graph.steps.append((name, function, operands, writes))

    def pick(self) -> int:
        """A value, sooner a late one."""
        count = len(self.values)
        return max(self.draw.randrange(count), self.draw.randrange(count))

    def dim(self, value: int) -> int:
        """A dimension of a value, in a graph of changing sizes never the first."""
        rank = self.values[value].dim()
        return self.draw.randrange(-1, max(0, rank - 1)) if rank > 1 and not self.graph.dynamic else -1

    def unary(self) -> None:
        name = self.draw.choice(list(UNARY))
        self.add(name, UNARY[name], self.pick())

    def binary(self) -> None:
        x = self.pick()
        fits = [y for y in range(len(self.values)) if _broadcasts(self.values[x].shape, self.values[y].shape)]
        name = self.draw.choice(list(BINARY))
        self.add(name, BINARY[name], x, self.draw.choice(fits))

    def reduced(self) -> None:
        x = self.pick()
        if self.values[x].dim() < 2:
            return
        name, dim, keep = self.draw.choice(list(REDUCED)), self.dim(x), self.draw.random() < 0.5
        self.add(f"{name} {dim} {keep}", partial(_reduced, name, dim, keep), x)

    def rows(self) -> None:
        x = self.pick()
        name, dim = self.draw.choice(list(ROWS)), self.dim(x)
        self.add(f"{name} {dim}", partial(_rows, name, dim), x)

    def product(self) -> None:
        x = self.pick()
        k = self.values[x].shape[-1] if self.values[x].dim() > 1 else 0
        fits = [y for y, v in enumerate(self.values) if v.dim() > 1 and k in v.shape[-2:]]
        if k and fits:
            y = self.draw.choice(fits)
            kind = self.draw.choice(("", "", "added", "activated", "scaled"))
            self.add(f"product {kind}", partial(_product, self.values[y].shape[-2] == k, kind), x, y)

    def several(self) -> None:
        """A reduction along several dimensions, or all."""
        x = self.pick()
        rank = self.values[x].dim()
        dims = tuple(range(1 if self.graph.dynamic else 0, rank))
        if rank > 1 and dims:
            dims = tuple(sorted(self.draw.sample(dims, self.draw.randint(1, len(dims)))))
            name, keep = self.draw.choice(("mean", "sum", "amax", "var", "norm")), self.draw.random() < 0.7
            self.add(f"{name} {dims} {keep}", partial(_reduced, name, dims, keep), x)

    def attend(self) -> None:
        """Attention of a value to another, as models call it, causal or with a mask."""
        x = self.pick()
        fits = [y for y, v in enumerate(self.values) if 2 <= v.dim() <= 4 and v.shape[-1:] == self.values[x].shape[-1:]]
        if self.values[x].dim() >= 2 and fits:
            kind = self.draw.choice(("plain", "causal", "masked", "by hand"))
            self.add(f"attention {kind}", partial(_attention, kind), x, self.draw.choice(fits))

    def rows_of(self) -> None:
        """Rows by their indices: an embedding, a gather, parts put together, or sums of rows."""
        x = self.pick()
        kind = self.draw.choice(("embedding", "index_select", "gather", "index_add", "index_put", "scatter"))
        if self.values[x].dim() > 1:
            self.add(kind, partial(_by_indices, kind), x)

    def view(self) -> None:
        x = self.pick()
        rank, dim = self.values[x].dim(), self.dim(x)
        n = self.values[x].shape[dim] if rank else 1
        first = self.draw.randrange(n)
        choices: list[tuple[str, Callable[[Any], Any]]] = [
            (f"transpose {dim}", lambda v: v.transpose(dim, dim - 1 if rank > 1 else dim)),
            (f"slice {dim} {first}", lambda v: v.narrow(dim, first, n - first)),
            (f"select {dim} {first}", lambda v: v.select(dim, first)),
            ("flatten", lambda v: v.flatten(-2) if rank > 1 else v),
            ("flatten start", lambda v: v.flatten(0, 1) if rank > 1 else v),
            ("unsqueeze", lambda v: v.unsqueeze(-2)),
            ("expand", lambda v: v.unsqueeze(-2).expand(*v.shape[:-1], 3, v.shape[-1])),
            (f"chunk {dim}", lambda v: v.chunk(2, dim)[0]),
            (f"last chunk {dim}", lambda v: v.chunk(2, dim)[-1]),
            (f"steps {dim}", lambda v: v[..., ::2] if v.shape[-1] > 1 else v),
            ("split", lambda v: v.split([first, n - first], dim)[1] if first else v),
            ("pad", lambda v: functional.pad(v, (1, 2))),
            ("repeat", lambda v: v.repeat_interleave(2, -1)),
            ("stack", lambda v: torch.stack([v, v * 0.5], -2)),
            ("unbind", lambda v: v.unbind(-1)[0] + v.unbind(-1)[-1]),
            ("permute", lambda v: v.permute(tuple(reversed(range(rank))))),
            ("reshape", lambda v: v.reshape(v.shape[0], -1)),
            ("sized", lambda v: v * (1 / v.shape[0]) + v.shape[-1] * 2.0**-6),
            ("counted", lambda v: torch.tanh(v) * v.shape[0] - v.shape[-1]),
            ("contiguous", lambda v: v.mT.contiguous() if rank > 1 else v.contiguous()),
        ]
        self.add(*self.draw.choice(choices), x)

    def views(self, rank: int, kinds: dict[str, Callable[[Any, int, int], Any]], count: int) -> list[Any]:
        """Names and functions of some of these views, one of the other: each along a dimension that there may be."""
        names = self.draw.choices([x for x in kinds if not self.graph.dynamic or x not in SLOW], k=count)
        places = [(name, self.draw.randrange(max(1, rank)), self.draw.randint(1, 2)) for name in names]
        return [(f"{name} {dim} {n}", partial(_viewed, kinds[name], dim, n)) for name, dim, n in places]

    def part(self) -> None:
        """A part of a value, with moved or repeated dimensions, that is merged."""
        x = self.pick()
        rank = self.values[x].dim()
        views = self.views(rank, {**PARTS, **REPEATED}, self.draw.randint(1, 3)) + self.views(rank, MERGED, 1)
        names, functions = zip(*views, strict=True)
        self.add(", ".join(names), partial(_in_turn, functions), x)

    def write_part(self) -> None:
        """A change in place of a part of a value, or of the value that it is a part of."""
        x = self.pick()
        value = self.values[x]
        shares = any(n > 1 and step == 0 for n, step in zip(value.shape, value.stride(), strict=True))
        if (x < self.inputs and self.graph.training) or not value.dim() or shares or _overlaps(value):
            return
        names, functions = zip(*self.views(value.dim(), PARTS, self.draw.randint(1, 3)), strict=True)
        name = self.draw.choice(list(WRITES))
        before = self.values[x].clone()
        count = len(self.values)
        self.add(f"{name} of {', '.join(names)}", partial(_written, functions, WRITES[name]), x, writes=True)
        self.graph.written |= x < self.inputs and len(self.values) > count
        self.values[x] = before

    def join(self) -> None:
        x = self.pick()
        same = [y for y, v in enumerate(self.values) if v.shape[:-1] == self.values[x].shape[:-1]]
        self.add("cat", lambda *v: torch.cat(v, -1), x, self.draw.choice(same))

    def cast(self) -> None:
        x = self.pick()
        other = torch.float32 if self.values[x].dtype == torch.bfloat16 else torch.bfloat16
        self.add(f"to {other}", partial(_converted, other), x)

    def write(self) -> None:
        """A change of a value in place, or of a part of it: of inputs too, where there are no gradients. Elements that
        share memory are not written, for what torch makes of that in graphs differs from its eager mode."""
        x = self.pick()
        shares = any(n > 1 and step == 0 for n, step in zip(self.values[x].shape, self.values[x].stride(), strict=True))
        if (x < self.inputs and self.graph.training) or not self.values[x].dim() or shares:
            return
        n, rank = self.values[x].shape[-1], self.values[x].dim()
        choices: list[tuple[str, Callable[[Any], Any]]] = [
            ("mul_", lambda v: v.mul_(0.5)),
            ("add_", lambda v: v.add_(1)),
            ("tanh_", lambda v: v.tanh_()),
            ("[..., 1:] add_", lambda v: (v[..., 1:].add_(0.5), v)[1]),
            ("[0] = ", lambda v: (v[..., 0].copy_(v[..., n - 1] * 0.5), v)[1]),
            ("mT.mul_", lambda v: (v.mT.mul_(0.5), v)[1] if rank > 1 else v.mul_(0.5)),
            ("copy_", lambda v: v.copy_(v.flip(-1) * 0.5)),
            ("masked_fill_", lambda v: v.masked_fill_(_pattern(v), 0.5)),
            ("index_copy_", lambda v: v.index_copy_(-1, _indices(v, 1), v[..., :1] * 0.5)),
            ("[-1] += ", lambda v: (v.select(0, -1).add_(v.select(0, 0) * 0.5), v)[1]),
            ("view.mul_", lambda v: (v.contiguous().view(-1).mul_(0.5), v)[1]),
            ("chunk.add_", lambda v: (v.chunk(2, -1)[0].add_(1), v)[1]),
            ("zero_", lambda v: (v[..., :1].zero_(), v)[1]),
        ]
        before = self.values[x]
        self.values[x] = before.clone()
        name, function = self.draw.choice(choices)
        self.add(name, function, x, writes=True)
        self.graph.written |= x < self.inputs


def _viewed(function: Callable[[Any, int, int], Any], dim: int, n: int, x: Any) -> Any:
    return function(x, dim % x.dim(), n) if x.dim() else x


def _in_turn(functions: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for function in functions:
        x = function(x)
    return x


def _written(functions: Sequence[Callable[[Any], Any]], write: Callable[[Any], Any], x: Any) -> Any:
    write(_in_turn(functions, x))
    return x


def _overlaps(x: Any) -> bool:
    """Whether elements share memory."""
    places = torch.zeros((), dtype=torch.long)
    for n, step in zip(x.shape, x.stride(), strict=True):
        places = places[..., None] + torch.arange(n) * step
    return places.unique().numel() < x.numel()


def _memory(value: Any) -> int:
    return value.untyped_storage().data_ptr()


def _off(by: float, value: Any) -> Any:
    """A value that is off by at most so much of itself."""
    return value * (1 + by * (2 * torch.rand_like(value) - 1))


def _broadcasts(x: Any, y: Any) -> bool:
    return len(y) <= len(x) and all(a == b or b == 1 for a, b in zip(reversed(x), reversed(y), strict=False))


def _reduced(name: str, dim: Any, keep: bool, x: Any) -> Any:
    return REDUCED[name](x, dim, keep)


def _rows(name: str, dim: int, x: Any) -> Any:
    return ROWS[name](x, dim)


def _narrow(x: Any, y: Any) -> Any:
    wide = torch.promote_types(x.dtype, y.dtype)
    return wide if wide in (torch.float64, torch.float16) else torch.bfloat16


def _product(plain: bool, kind: str, x: Any, y: Any) -> Any:
    narrow = _narrow(x, y)
    a, b = x.to(narrow) * x.shape[-1] ** -0.5, (y if plain else y.mT).to(narrow)
    if kind == "added" and a.dim() == b.dim() == 2:
        return torch.addmm(b[0], a, b, alpha=0.5)
    if kind == "added" and a.dim() == b.dim() == 3 and len(a) == len(b):
        return torch.baddbmm(b[:, :1], a, b, beta=0.5)
    if kind == "scaled" and b.dim() == 2:
        return functional.linear(a, b.mT, b[0] * 0.5)
    product = torch.matmul(a, b)
    return functional.gelu(product) * 2 + 1 if kind == "activated" else product


def _attention(kind: str, x: Any, y: Any) -> Any:
    """Attention of the rows of x to those of y; the rows of what has fewer dimensions are those of all batches."""
    narrow, rank = _narrow(x, y), max(x.dim(), y.dim())
    q, k = (v.reshape((1,) * (rank - v.dim()) + tuple(v.shape)).to(narrow) for v in (x, y))
    sizes = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    q, k = (v.expand(*sizes, *v.shape[-2:]) for v in (q, k))
    q, k = (v[(None,) * (4 - rank)] for v in (q, k))
    mask = _pattern(q[0, 0, :, :1] + k[0, 0, :, 0]) if kind == "masked" else None
    if kind == "by hand":
        return (((q @ k.mT) * q.shape[-1] ** -0.5).softmax(-1) @ k).reshape(*sizes, q.shape[-2], -1)
    attention = functional.scaled_dot_product_attention(q, k, k, mask, is_causal=kind == "causal")
    return attention.reshape(*sizes, q.shape[-2], -1)


def _pattern(x: Any) -> Any:
    """A mask that no rounding changes: two of three elements along the last dimension, the first among them."""
    return torch.arange(x.shape[-1], device=x.device).remainder(3).ne(2).expand(x.shape)


def _places(x: Any) -> Any:
    return torch.arange(x.shape[0], device=x.device)


def _indices(x: Any, count: int) -> Any:
    return torch.arange(count, device=x.device) * 2 % x.shape[-1]


def _by_indices(kind: str, x: Any) -> Any:
    """Each index is there once, where order would matter."""
    rows, columns = x.shape[0], x.shape[-1]
    arange = partial(torch.arange, device=x.device)
    several = arange(rows + 1) * 2 % rows
    if kind == "embedding":
        return functional.embedding(several, x) if x.dim() == 2 else x[several]
    if kind == "index_select":
        return x.index_select(-1, arange(columns).flip(0))
    if kind == "gather":
        return x.gather(-1, arange(columns).flip(0).expand(x.shape))
    if kind == "index_add":
        return x.index_add(0, several, torch.cat([x, x[:1]]) * 0.25)
    if kind == "index_put":
        return x.index_put((arange(rows).flip(0),), x * 0.5)
    return x.scatter(-1, torch.zeros_like(x[..., :1], dtype=torch.long), x[..., :1] * 0.5)


def _converted(dtype: Any, x: Any) -> Any:
    return x if x.dtype == torch.float64 else x.to(dtype)


def drawn(seed: int, parts: bool = False) -> Drawn:
    """The graph of a seed, or that which has more parts."""
    torch.manual_seed(seed)
    return Drawing(seed, parts).graph


def _inputs(graph: Drawn, more: int) -> list[Any]:
    torch.manual_seed(graph.seed + more)
    return [
        torch.randn(shape[0] + more, *shape[1:]).to(dtype)
        for shape, dtype in zip(graph.shapes, graph.dtypes, strict=True)
    ]


def _results(call: Callable[..., Any], graph: Drawn, inputs: Sequence[Any]) -> list[Any]:
    """The results, the inputs as they are afterwards, and the gradients of the inputs."""
    own = [x.clone().requires_grad_(graph.training) for x in inputs]
    enabled = graph.autocast and inputs[0].dtype != torch.float64
    with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=enabled):
        out = list(call(*own))
    if graph.training:
        pairs = [x for x in out if x.requires_grad]
        torch.autograd.backward(pairs, [torch.ones_like(x) * 0.5 for x in pairs])
    grads = [x.grad for x in own if x.grad is not None]
    return [x.detach() for x in (*out, *([] if graph.training else own), *grads)]


def _rounded(graph: Drawn, inputs: Sequence[Any], at: int, exact: Any) -> float:
    """How far roundings put a result from its exact value, at most: twice as far as some draws of them."""
    wide = [x.double() for x in inputs]
    results = (_results(graph.rounded, graph, wide)[at] for _ in range(DRAWS))
    return 2 * max(float((x - exact).abs().max()) for x in results)


def _by_torch(graph: Drawn, inputs: Sequence[Any]) -> list[Any] | None:
    """The results of torch's own graph of operators; None if it makes none: it reads parts of what `index_add_` gives
    other strides."""
    dynamo.reset()
    try:
        return _results(torch.compile(graph, backend="aot_eager", dynamic=graph.dynamic or None), graph, inputs)
    except Exception:
        return None


def fault(seed: int, parts: bool = False) -> str:
    """What is wrong with the graph of a seed, or that which has more parts; "" if nothing is."""
    dynamo.reset()
    graph = drawn(seed, parts)
    if not graph.steps:
        return ""
    sizes = [_inputs(graph, more) for more in ((0, 2) if graph.dynamic else (0,))]
    try:
        expected = [(_results(graph, graph, [x.double() for x in i]), _results(graph, graph, i)) for i in sizes]
    except RuntimeError:  # writes that torch refuses where there are gradients, sizes that fit by chance
        return ""
    try:
        compiled = torch.compile(graph, backend=torch_backend, dynamic=graph.dynamic or None, options={"rest": "eager"})
        for inputs, (exact, eager) in zip(sizes, expected, strict=True):
            for at, (f, e, x) in enumerate(zip(_results(compiled, graph, inputs), eager, exact, strict=True)):
                if f.shape != e.shape or f.dtype != e.dtype:
                    return f"result {at}: expected {e.dtype} {tuple(e.shape)}, got {f.dtype} {tuple(f.shape)}"
                own, other = (float((y.double() - x).abs().max()) for y in (f, e))
                bound = max(1.5 * other, 2.0**-7 * (1e-3 + float(x.abs().max())))
                if own <= bound or own <= _rounded(graph, inputs, at, x):
                    continue
                # With a default device torch's graph of operators writes `index_put_` elsewhere.
                if (torchs := _by_torch(graph, inputs)) is None or float(
                    (torchs[at].double() - x).abs().max()
                ) <= bound:
                    return f"result {at}: {own:.3g} from float64, where eager mode is {other:.3g} from it"
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        if any(_by_torch(graph, inputs) is None for inputs in sizes):
            return ""
        return f"{type(error).__name__}: {' '.join(lines[:2])[:300]}"
    return ""


def answers(
    work: Callable[[int], Any], seeds: Sequence[int], jobs: int, seconds: float, tasks: int | None = None
) -> Iterator[Any]:
    """What `work` answers to seeds in so many processes, each for so many `tasks`, until some seconds have passed."""
    start = time.monotonic()
    with get_context("spawn").Pool(jobs, maxtasksperchild=tasks) as pool:
        every = pool.imap_unordered(work, seeds)
        with suppress(StopIteration, TimeoutError):
            while True:
                yield every.next(min(max(0.0, seconds + start - time.monotonic()), threading.TIMEOUT_MAX))
        pool.terminate()


def _one(parts: bool, device: str, seed: int) -> tuple[int, str]:
    torch.set_num_threads(1)
    torch.set_default_device(device)
    warnings.simplefilter("ignore")
    return seed, fault(seed, parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(100_000))
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the number of the first graph, where a run goes on")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--parts", action="store_true", help="graphs with more parts of tensors, merged and written")
    parser.add_argument("--device", default="cpu", help="cpu, where kernels are interpreted, or cuda")
    parser.add_argument("--only", type=int, metavar="SEED")
    options = parser.parse_args()
    torch.set_default_device(options.device)
    if options.only is not None:
        print(drawn(options.only, options.parts).text)
        print(fault(options.only, options.parts) or "right")
        return 0
    print(f"seed {options.seed}", flush=True)
    done, wrong = 0, list[int]()
    seeds = [1000 * options.seed + n for n in range(options.first, options.first + options.graphs)]
    for seed, text in answers(partial(_one, options.parts, options.device), seeds, options.jobs, options.seconds):
        done += 1
        if text:
            wrong.append(seed)
            print(f"{drawn(seed, options.parts).text}\n  {text}", flush=True)
        if not done % PROGRESS:
            print(f"{done} graphs, {len(wrong)} wrong", flush=True)
    print(f"{done} graphs, {len(wrong)} wrong: {sorted(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
