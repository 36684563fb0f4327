"""More that random modules are drawn from: weights of few bits, functions of scores, experts, functions with gradients
of their own, hooks, complex and sparse values, what breaks a graph, and steps of optimisers."""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.utils import parametrizations, rnn
from torch_layers import Layer, With, gathered, to

grouped_mm: Any = getattr(functional, "grouped_mm", torch._grouped_mm)


def wide(v: Tensor) -> Tensor:
    """A value in a type that has complex numbers and sparse products."""
    return v if v.dtype == torch.float64 else v.float()


def quantized(v: Tensor, dtype: Any, size: int) -> tuple[Tensor, Tensor]:
    """The elements of rows in a narrow type, and the scales of `size` elements that follow each other."""
    groups = v.unflatten(-1, (-1, size))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-3) / (127 if dtype == torch.int8 else 448)
    narrow = (groups / scale).round().clamp(-127, 127) if dtype == torch.int8 else groups / scale
    return narrow.to(dtype).flatten(-2), scale.squeeze(-1)


class Quantized(nn.Module):
    """A linear layer as libraries of quantised models write it: of weights alone, or of rows at each call too."""

    def __init__(self, d: random.Random, x: Tensor) -> None:
        super().__init__()
        n, m = x.shape[-1], d.choice((8, 16))
        self.kind, self.n, self.exactly = d.choice(("int8", "rows", "int4", "fp8", "fp8 rows")), n, d.random() < 0.5
        self.size = 4 if n % 4 == 0 and d.random() < 0.5 and self.kind not in ("int8", "rows") else n
        dtype = torch.float8_e4m3fn if "fp8" in self.kind else torch.int8
        weight, scale = quantized(torch.randn(m, n) * n**-0.5, dtype, self.size)
        if self.kind == "int4":
            digits = functional.pad((weight // 16 + 8).to(torch.uint8), (0, n % 2))
            weight, scale = digits[:, ::2] | digits[:, 1::2] << 4, scale * 16
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        kept = self.weight
        super()._apply(fn, recurse)
        self.weight = kept.to(self.scale.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        w, s, kind = self.weight, self.scale, x.dtype
        if self.kind == "int4":
            w = torch.stack([w & 15, w >> 4], -1).flatten(1)[:, : self.n].to(torch.int8) - 8
        if "rows" not in self.kind:
            if self.exactly and self.size == self.n:
                return functional.linear(x, w.to(kind)) * s.squeeze(-1)
            return functional.linear(x, w.to(kind) * s.repeat_interleave(self.size, -1))
        rows, by = (t.flatten(0, -2) for t in quantized(x, w.dtype, self.size))
        if self.kind == "rows":
            y = torch._int_mm(rows, w.t()) if self.exactly else rows.to(kind) @ w.t().to(kind)
            y = y.to(kind) * by * s.t()
        elif self.exactly and kind == torch.bfloat16 and self.size == self.n:
            y = torch._scaled_mm(rows, w.t(), by.float(), s.t().contiguous().float(), out_dtype=kind)
        else:
            y = functional.linear(*(t.to(kind) * k.repeat_interleave(self.size, -1) for t, k in ((rows, by), (w, s))))
        return y.unflatten(0, x.shape[:-1])


# fmt: off
SCORES: tuple[Callable[..., Tensor], ...] = (
    lambda s, b, h, r, c: s + (c - r) * 0.125, lambda s, b, h, r, c: s * torch.exp2(-(h + 1.0)),
    lambda s, b, h, r, c: 3 * torch.tanh(s / 3), lambda s, b, h, r, c: torch.where(r >= c, s, s - 1),
)
KEEPS: tuple[Callable[..., Tensor], ...] = (
    lambda b, h, r, c: r >= c, lambda b, h, r, c: (r - c).abs() < 3, lambda b, h, r, c: c < 2 + b,
    lambda b, h, r, c: r // 3 == c // 3, lambda b, h, r, c: (c + h) % 3 != 1, lambda b, h, r, c: (r == c) | (c == 0),
)
# fmt: on


class Flex(nn.Module):
    """`flex_attention` with a chain of functions of scores, and masks that are joined, one of numbers of documents."""

    def __init__(self, d: random.Random, x: Tensor) -> None:
        super().__init__()
        (self.heads, self.kv), self.size = d.choice(((2, 2), (4, 2), (4, 1), (1, 1))), d.choice((16, 32))
        sizes = (n * self.size for n in (self.heads, self.kv, self.kv))
        self.q, self.k, self.v = (nn.Linear(x.shape[-1], size) for size in sizes)
        self.scores, self.keeps = ([d.choice(t) for _ in range(d.randrange(3))] for t in (SCORES, KEEPS))
        self.joined, self.fewer = d.choice((operator.and_, operator.or_)), d.choice((0, 3))
        self.register_buffer("slopes", torch.rand(self.heads))

    def forward(self, x: Tensor, i: Tensor) -> Any:
        x = x.unsqueeze(1).flatten(1, -2)
        slopes: Tensor = self.get_buffer("slopes")
        q, k, v = (f(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t[:, :, : t.shape[2] - self.fewer] if t.shape[2] > self.fewer else t for t in (k, v))
        document = (torch.arange(q.shape[2], device=x.device) // 2 + i[:1]).int()

        def score(s: Tensor, b: Tensor, h: Tensor, r: Tensor, c: Tensor) -> Tensor:
            s = reduce(lambda s, function: function(s, b, h, r, c), self.scores, s)
            return s - slopes[h] * (r - c).abs() if len(self.scores) == 2 else s

        def keep(b: Tensor, h: Tensor, r: Tensor, c: Tensor) -> Tensor:
            masks = [document[r] >= document[c]] if len(self.keeps) == 2 else []
            return reduce(self.joined, [*masks, *(f(b, h, r, c) for f in self.keeps)])

        sizes = len(x), self.heads, q.shape[2], k.shape[2]
        block = create_block_mask(keep, *sizes, x.device) if self.keeps else None
        y = flex_attention(q, k, v, score if self.scores else None, block, enable_gqa=self.heads != self.kv)
        return y.transpose(1, 2).flatten(2)


class Experts(nn.Module):
    """Experts of rows as models write them, with weights that a router gives, or that integers choose."""

    def __init__(self, d: random.Random, x: Tensor) -> None:
        super().__init__()
        n, self.count, self.top = x.shape[-1], d.choice((2, 3, 4)), d.choice((1, 2))
        self.router = nn.Linear(n, self.count) if d.random() < 0.6 else None
        self.up = nn.Parameter(torch.randn(self.count, n, 16) * n**-0.5)
        self.down = nn.Parameter(torch.randn(self.count, 16, n) * 0.25)
        self.spelling = d.choice(("grouped", "grouped", "loop", "one hot", "gathered"))

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        rows, up, down = x.flatten(0, -2), self.up, self.down
        chosen = (torch.arange(2 * len(rows), device=x.device).view(-1, 2)[:, : self.top] * 7 + i[:1]) % self.count
        share = torch.ones_like(chosen, dtype=x.dtype) / self.top
        if self.router is not None:
            share, chosen = self.router(rows).softmax(-1).topk(self.top, -1)
        hot, out = functional.one_hot(chosen, self.count), torch.zeros_like(rows)
        if self.spelling == "grouped" and x.dtype != torch.float64:
            order = chosen.flatten().argsort(stable=True)
            product = partial(grouped_mm, offs=hot.flatten(0, 1).sum(0).cumsum(0).int())
            y = product(functional.silu(product(rows[order // self.top], up.to(x.dtype))), down.to(x.dtype))
            out = out.index_add(0, order // self.top, (y * share.flatten()[order, None]).to(out.dtype))
        elif self.spelling == "loop":
            for e in range(self.count):
                row, place = torch.where(chosen == e)
                y = functional.silu(rows[row] @ up[e]) @ down[e] * share[row, place, None]
                out.index_add_(0, row, y.to(out.dtype))
        elif self.spelling == "gathered":
            y = functional.silu(rows[:, None, None] @ up[chosen]) @ down[chosen]
            out = (y[:, :, 0] * share[..., None]).sum(1)
        else:
            y = functional.silu(torch.einsum("te,tn->etn", hot.sum(1).to(x.dtype), rows) @ up) @ down
            out = torch.einsum("etn,te->tn", y, (hot.to(share.dtype) * share[..., None]).sum(1).to(y.dtype))
        return out.unflatten(0, x.shape[:-1])


class Clipped(torch.autograd.Function):
    """A function whose gradient is its own: clipped, and weighed by what was kept."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(v, w)
        return v * w.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        v, w = ctx.saved_tensors
        return grad.clamp(-0.5, 0.5) * w.sigmoid(), (grad * v).sum(tuple(range(v.dim() - 1))) * 0.5


turned = torch.library.custom_op("warploom_test::turned", lambda v: v.flip(-1) * 2, mutates_args=(),
                                 schema="(Tensor v) -> Tensor")  # fmt: skip
turned.register_fake(torch.empty_like)
turned.register_autograd(lambda ctx, grad: grad.flip(-1) * 2)


def hooked(d: random.Random, x: Tensor) -> nn.Module:
    """A linear layer with hooks before, behind and at its gradients."""
    layer, number = nn.Linear(x.shape[-1], 8), d.randrange(3)
    layer.register_forward_pre_hook(lambda m, a: (a[0] * 0.5,)) if number else None
    layer.register_forward_hook(lambda m, a, y: y + a[0].mean()) if number != 1 else None
    layer.register_full_backward_hook(lambda m, g, o: (g[0] * 2,)) if number != 2 else None
    return layer


def packed(m: nn.Module, v: Tensor, i: Tensor) -> Tensor:
    v = v.unsqueeze(1).flatten(1, -2)
    lengths = torch.arange(len(v)) % v.shape[1] + 1
    sequences = rnn.pack_padded_sequence(v, lengths, batch_first=True, enforce_sorted=False)
    return rnn.pad_packed_sequence(m(sequences)[0], batch_first=True, total_length=v.shape[1])[0]


def broken(kind: str, v: Tensor, i: Tensor) -> Tensor:
    """What torch runs between two graphs."""
    if kind == "item":
        v = v + 1 if float(v.sum()) > 0 else v - 1
    elif kind == "rows":
        v = v.index_copy(0, torch.where(i > 5)[0], v[i > 5].tanh()) + torch.unique(i).numel() * 0.125
    torch._dynamo.graph_break()
    return v.sigmoid() * v


def overlapping(v: Tensor, i: Tensor) -> Tensor:
    """Windows of a row that share memory, and a write to a copy of them."""
    flat = v.contiguous().flatten(1)
    windows = flat.as_strided((len(flat), flat.shape[1] - 2, 3), (flat.shape[1], 1, 1))
    return windows.clone().mul_(0.5) + windows.flip(-1) * windows.new_tensor(2.0).expand(3)


def inside(v: Tensor, i: Tensor) -> Tensor:
    """Contexts that change inside of a graph, and a hook at a gradient."""
    with torch.no_grad():
        size = v.square().mean(-1, keepdim=True)
    with torch.autocast(v.device.type, enabled=False):
        y = wide(v) * (wide(size) + 1).rsqrt()
    y.register_hook(lambda g: g.clamp(-0.25, 0.25)) if y.requires_grad else None
    return to(y, v.dtype) + v.detach()


def sparse(layout: Any, w: Tensor, v: Tensor, i: Tensor) -> Tensor:
    rows = wide(v.flatten(0, -2)).relu().to_sparse(layout=layout)
    return to(torch.sparse.mm(rows, w.to(rows)), v.dtype).unflatten(0, v.shape[:-1])


def bagged(m: nn.Module, v: Tensor, i: Tensor) -> Tensor:
    """Sums of embeddings of bags that begin at places, with weights, one of them empty."""
    offsets = torch.tensor([0, *range(len(i) - 1)], device=i.device)
    weights = torch.linspace(0, 1, len(i), device=i.device, dtype=v.dtype) if m.mode == "sum" else None
    bags = functional.embedding_bag(i % 16, m.weight.to(v.dtype), offsets, mode=m.mode, per_sample_weights=weights)
    return v + bags.reshape(len(v), *(1,) * (v.dim() - 2), -1)


# fmt: off
FEATURES: dict[str, Layer] = {
    **{f"quantised {n}": Quantized for n in range(4)}, **{f"flex {n}": Flex for n in range(3)},
    **{f"experts {n}": Experts for n in range(3)}, "hooked": hooked, "custom": lambda d, x: lambda v, i: turned(v) + v,
    "clipped": lambda d, x: With(nn.Linear(x.shape[-1], x.shape[-1]), lambda m, v, i: Clipped.apply(m(v), m.bias)),
    "weight norm": lambda d, x: parametrizations.weight_norm(nn.Linear(x.shape[-1], 8), dim=d.choice((0, 1, None))),
    "spectral norm": lambda d, x: parametrizations.spectral_norm(nn.Linear(x.shape[-1], 8)),
    "packed": lambda d, x: With(d.choice((nn.LSTM, nn.GRU))(x.shape[-1], 4, batch_first=True), packed),
    "bag": lambda d, x: With(nn.EmbeddingBag(16, x.shape[-1], mode=d.choice(("sum", "mean", "max"))), bagged),
    "fourier": lambda d, x: lambda v, i: to(torch.fft.irfft(torch.fft.rfft(wide(v), dim=1, norm="ortho") * (0.5 + 1j),
        n=v.shape[1], dim=1, norm="ortho"), v.dtype),
    "complex": lambda d, x: lambda v, i: to(torch.view_as_real(torch.view_as_complex(wide(
        v[..., : v.shape[-1] // 2 * 2]).unflatten(-1, (-1, 2)).contiguous()) * (0.5 + 1j)).flatten(-2), v.dtype),
    "absolute": lambda d, x: lambda v, i: to(torch.complex(wide(v), wide(v.flip(-1)) + 2).abs(), v.dtype),
    "break": lambda d, x: partial(broken, d.choice(("break", "item", "rows"))),
    "cond": lambda d, x: lambda v, i: torch.cond(i.sum() > 20, lambda v: v.sin() * 2, lambda v: v.cos() + v, (v,)),
    "overlapping": lambda d, x: overlapping, "inside": lambda d, x: inside,
    "sparse": lambda d, x: partial(sparse, d.choice((torch.sparse_coo, torch.sparse_csr)), torch.randn(x.shape[-1], 8)),
    "mapped": lambda d, x: With(nn.Linear(x.shape[-1], 8), lambda m, v, i: torch.func.vmap(m, 1, 1)(v)),
    "slope": lambda d, x: lambda v, i: torch.func.jvp(lambda t: t.sigmoid() * t, (v,), (torch.ones_like(v),))[1],
    "ensemble": lambda d, x: With(nn.Linear(x.shape[-1], 8), lambda m, v, i: torch.func.functional_call(m, {
        "weight": m.weight * 0.5, "bias": m.bias.detach()}, (v,))),
}


def per_place(v: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Logits with their classes last, and a class or none for each row."""
    labels = (torch.arange(v[..., 0].numel(), device=v.device) * 5 + i[0]) % v.shape[-1]
    return v.flatten(0, -2), torch.where(labels == 1, -100, labels)


MORE_LOSSES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda v, i: functional.cross_entropy(*per_place(v, i), label_smoothing=0.2, reduction="sum"),
    lambda v, i: functional.cross_entropy(wide(per_place(v, i)[0]), per_place(v, i)[1]),
    lambda v, i: functional.cross_entropy(v, torch.where(gathered(v, i).select(1, 0) == 0, 2, 0), ignore_index=2),
    lambda v, i: functional.cross_entropy(v, v.detach().softmax(1), label_smoothing=0.3, reduction="none"),
    lambda v, i: functional.ctc_loss(wide(v).log_softmax(-1).transpose(0, 1), (i[:, None] + torch.arange(2,
        device=v.device)) % (v.shape[-1] - 1) + 1, *(torch.full_like(i, n) for n in (v.shape[1], 2)),
        zero_infinity=True),
    lambda v, i: functional.margin_ranking_loss(v, v.flip(-1).detach(), v.detach().sign() * 2 + 1, margin=0.5),
    lambda v, i: functional.hinge_embedding_loss(v, gathered(v, i) % 2 * 2 - 1),
)
OPTIMIZERS: tuple[Callable[..., torch.optim.Optimizer], ...] = (
    *(partial(kind, foreach=each) for each in (True, False) for kind in (
        partial(torch.optim.Adam, lr=0.01, amsgrad=True), partial(torch.optim.AdamW, weight_decay=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), partial(torch.optim.RMSprop, centered=True),
        torch.optim.Adagrad, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adadelta)),
    partial(torch.optim.AdamW, fused=True), partial(torch.optim.Adam, lr=torch.tensor(0.01)), torch.optim.Adafactor,
)
# fmt: on
