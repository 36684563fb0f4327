"""Layers and functions of torch that random modules are drawn from, each for values like an example."""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

Layer = Callable[[random.Random, Tensor], Any]
"""Draws a layer for values like an example: a module, or a function of a value and of integers, a number a batch."""


def to(x: Tensor, dtype: Any) -> Tensor:
    """A conversion, which the module in f64 does without."""
    return x if x.dtype == torch.float64 else x.to(dtype)


def several(d: random.Random, x: Tensor, *choices: int) -> tuple[int, ...]:
    """A number for each dimension of an image."""
    return tuple(d.choice(choices) for _ in x.shape[2:])


def of_rank(name: str, x: Tensor) -> Any:
    return getattr(nn, f"{name}{x.dim() - 2}d")


def convolution(d: random.Random, x: Tensor) -> nn.Module:
    channels, transposed = x.shape[1], d.random() < 0.25
    groups = d.choice([g for g in (1, 1, 1, 2, 4, channels) if channels % g == 0])
    settings: dict[str, Any] = {"stride": several(d, x, 1, 1, 2), "dilation": several(d, x, 1, 1, 2),
                                "padding": several(d, x, 0, 1, 1), "groups": groups,
                                "bias": d.random() < 0.7}  # fmt: skip
    if transposed:
        settings["output_padding"] = tuple(d.randrange(s) for s in settings["stride"])
    else:
        settings["padding_mode"] = d.choice(("zeros", "zeros", "zeros", "reflect", "replicate", "circular"))
        if d.random() < 0.2:
            settings |= {"stride": 1, "padding": d.choice(("same", "valid"))}
    out = groups * d.choice((1, 2, 8, 8, 16) if groups < channels else (1, 2))
    return of_rank("ConvTranspose" if transposed else "Conv", x)(channels, out, several(d, x, 1, 2, 3, 3), **settings)


def padded(d: random.Random, x: Tensor) -> Any:
    sizes = [d.choice((0, 1, 2)) for _ in range(2 * (x.dim() - 2))]
    mode = d.choice(("constant", "reflect", "replicate", "circular"))
    return lambda v, i: functional.pad(v, sizes, mode, **({"value": 0.5} if mode == "constant" else {}))


def resized(d: random.Random, x: Tensor) -> Any:
    mode = d.choice(
        ("nearest", "nearest-exact", *{3: ["linear"], 4: ["bilinear", "bicubic"], 5: ["trilinear"]}[x.dim()])
    )
    corners = {} if mode.startswith("nearest") else {"align_corners": d.random() < 0.5}
    by = d.choice(({"scale_factor": d.choice((2, 1.5, 0.5))}, {"size": several(d, x, 3, 4, 7)}))
    return lambda v, i: functional.interpolate(v, mode=mode, **by, **corners)


def pooled(d: random.Random, x: Tensor) -> Any:
    name = d.choice(("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "LPPool", "indices"))
    if name.startswith("Adaptive"):
        return of_rank(name, x)(several(d, x, 1, 2, 3))
    size, settings = several(d, x, 2, 3), {"stride": several(d, x, 1, 2, 3), "ceil_mode": d.random() < 0.4}
    if name == "LPPool":
        return of_rank(name, x)(2, size, **settings)
    settings["padding"] = d.choice((0, 1))
    if name == "AvgPool":
        return of_rank(name, x)(size, count_include_pad=d.random() < 0.5, **settings)
    return of_rank("MaxPool", x)(size, dilation=d.choice((1, 1, 2)), return_indices=name == "indices", **settings)


def normalized(d: random.Random, x: Tensor) -> nn.Module:
    channels, affine = x.shape[1], d.random() < 0.7
    return d.choice((
        lambda: of_rank("BatchNorm", x)(channels, affine=affine, track_running_stats=d.random() < 0.8, momentum=0.25),
        lambda: of_rank("InstanceNorm", x)(channels, affine=affine),
        lambda: nn.GroupNorm(d.choice([g for g in (1, 2, 4, channels) if channels % g == 0]), channels, affine=affine),
    ))()  # fmt: skip


class Squeeze(nn.Module):
    """Channels scaled by what their means say, beside what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, 8), nn.Linear(8, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.up(functional.silu(self.down(x.flatten(2).mean(-1)))).sigmoid()
        return x + x * gate.reshape(*gate.shape, *(1,) * (x.dim() - 2))


# fmt: off
IMAGES: dict[str, Layer] = {
    "convolution": convolution, "convolution again": convolution, "third convolution": convolution, "pad": padded,
    "interpolate": resized, "pool": pooled, "norm": normalized, "norm again": normalized,
    "squeeze": lambda d, x: Squeeze(x.shape[1]),
    "shuffle": lambda d, x: d.choice((nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2))),
    "channels last": lambda d, x: lambda v, i: v.contiguous(memory_format=torch.channels_last),
    "prelu": lambda d, x: nn.PReLU(x.shape[1]),
    "unfold": lambda d, x: lambda v, i: functional.unfold(v, (2, 3), padding=1, stride=(1, 2)),
    "fold": lambda d, x: lambda v, i: functional.fold(functional.unfold(v, 2, padding=1), v.shape[2:], 2, padding=1),
    "grid": lambda d, x: lambda v, i: functional.grid_sample(v, functional.affine_grid(v.new_tensor([[[0.6, 0.1, 0.1],
        [0.0, 0.7, 0.2]]]).expand(len(v), 2, 3), v.shape, align_corners=False), align_corners=False),
    "patches": lambda d, x: lambda v, i: v.flatten(2).transpose(1, 2), "rows": lambda d, x: lambda v, i: v.flatten(1),
    "pixels": lambda d, x: lambda v, i: v.movedim(1, -1), "response": lambda d, x: nn.LocalResponseNorm(3),
    "moments": lambda d, x: lambda v, i: torch.cat([v.mean((2,), keepdim=True), v.std(2, keepdim=True)], 2),
}
# fmt: on


class With(nn.Module):
    """A module that a function calls."""

    def __init__(self, inner: nn.Module, function: Any) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: Tensor, i: Tensor) -> Any:
        return self.function(self.inner, x, i)


class Attention(nn.Module):
    """Self-attention of rows by one of its spellings, with settings that are drawn."""

    def __init__(self, d: random.Random, x: Tensor) -> None:
        super().__init__()
        self.heads, self.size = d.choice((2, 4)), d.choice((8, 16))
        self.kv = d.choice((1, 2, self.heads))
        self.q, self.k, self.v = (
            nn.Linear(x.shape[-1], n * self.size, bias=d.random() < 0.5) for n in (self.heads, self.kv, self.kv)
        )
        self.out = nn.Linear(self.heads * self.size, x.shape[-1])
        self.spelling = d.choice(("sdpa", "sdpa", "by hand", "by hand", "flex", "cache", "chunks"))
        self.masked = d.choice(("no", "causal", "causal", "lengths", "window", "float", "rows"))
        self.rope = d.choice(("no", "halves", "pairs", "complex", "partial"))
        self.scale, self.cap = d.choice((None, 0.25)), d.choice((0.0, 0.0, 5.0))
        self.norm = d.choice((nn.Identity, nn.RMSNorm, nn.LayerNorm))(self.size)
        self.bias = nn.Parameter(torch.randn(self.heads, 33) * 0.1) if d.random() < 0.3 else None
        self.sink = nn.Parameter(torch.randn(self.heads)) if d.random() < 0.2 else None
        self.chunk = d.choice((2, 3))

    def turned(self, x: Tensor) -> Tensor:
        n = self.size // 2 if self.rope == "partial" else self.size
        place = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
        angle = torch.outer(place, 0.5 ** torch.arange(n // 2, device=x.device))
        if self.rope == "complex":
            pairs = torch.view_as_complex(
                (x if x.dtype == torch.float64 else x.float()).unflatten(-1, (-1, 2)).contiguous()
            )
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(x.dtype)
        if self.rope == "pairs":
            cos, sin = (f(angle).repeat_interleave(2, -1).to(x.dtype) for f in (torch.cos, torch.sin))
            return x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin
        cos, sin = (torch.cat([f(angle)] * 2, -1).to(x.dtype) for f in (torch.cos, torch.sin))
        part, rest = x[..., :n], x[..., n:]
        first, second = part.chunk(2, -1)
        return torch.cat([part * cos + torch.cat([-second, first], -1) * sin, rest], -1)

    def mask(self, i: Tensor, n: int, m: int) -> Tensor | None:
        row, column = torch.arange(n, device=i.device)[:, None], torch.arange(m, device=i.device)
        causal = column <= row + (m - n)
        return {"no": None, "causal": causal, "window": causal & (column > row + (m - n) - 3),
                "lengths": column[None, None, None] <= i[:, None, None, None] % m,
                "rows": (column != 1) | (row == 1),
                "float": (column - row).abs()}[self.masked]  # fmt: skip

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (f if self.rope == "no" else self.turned(f) for f in (self.norm(q), self.norm(k)))
        n = q.shape[-2]
        if self.spelling == "cache":
            cache = [t.new_zeros(*t.shape[:2], n + 3, self.size) for t in (k, v)]
            for memory, new in zip(cache, (k, v), strict=True):
                memory[:, :, 3:] = new
                memory.index_copy_(2, torch.tensor([0, 2], device=x.device), new[:, :, -1:].expand(-1, -1, 2, -1))
            k, v = cache
        m = k.shape[-2]
        mask = self.mask(i, n, m)
        if self.spelling == "flex":
            own = {"causal": lambda b, h, r, c: r >= c, "window": lambda b, h, r, c: (r >= c) & (c > r - 3)}
            block = (
                create_block_mask(own[self.masked], None, None, n, m, device=x.device) if self.masked in own else None
            )
            bias, cap = self.bias, self.cap

            def score(s: Tensor, b: Tensor, h: Tensor, r: Tensor, c: Tensor) -> Tensor:
                s = s + bias[h, (r - c).clamp(-16, 16) + 16] if bias is not None else s - 0.1 * (r - c).abs()
                return cap * torch.tanh(s / cap) if cap else s

            return self.joined(flex_attention(q, k, v, score, block, self.scale, self.heads != self.kv))
        added = None if self.bias is None else self.bias[:, (torch.arange(m, device=x.device) % 33).expand(n, m)]
        if self.spelling in ("sdpa", "cache") and (added is None or mask is None):
            mask = added if mask is None else mask.to(q.dtype) * -0.25 if self.masked == "float" else mask
            causal = mask is None and added is None and self.masked == "no" and self.chunk == 2
            mask = None if mask is None else mask.to(q.dtype) if mask.is_floating_point() else mask
            return self.joined(functional.scaled_dot_product_attention(
                q, k, v, mask, is_causal=causal, scale=self.scale, enable_gqa=self.heads != self.kv))  # fmt: skip
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        scores = torch.matmul(q, k.mT) * (self.scale or self.size**-0.5)
        if self.cap:
            scores = torch.tanh(scores / self.cap) * self.cap
        if added is not None:
            scores = scores + added.to(scores.dtype)
        if mask is not None:
            scores = scores - 0.25 * mask if self.masked == "float" else scores.masked_fill(~mask, -1e4)
        if self.sink is not None:
            scores = torch.cat([scores, self.sink[:, None, None].expand(len(x), -1, n, 1).to(scores.dtype)], -1)
        weights = scores.softmax(-1, **({} if x.dtype == torch.float64 else {"dtype": torch.float32})).to(v.dtype)[
            ..., :m
        ]
        if self.spelling == "chunks":
            return self.joined(torch.cat([w @ v for w in weights.split(self.chunk, -2)], -2))
        return self.joined(weights @ v)

    def joined(self, x: Tensor) -> Tensor:
        return self.out(x.transpose(1, 2).flatten(2).to(self.out.weight.dtype))


class Loop(nn.Module):
    """A recurrent cell of `torch.nn` in a loop over rows, or a state that decays."""

    def __init__(self, d: random.Random, x: Tensor) -> None:
        super().__init__()
        kind = d.choice((nn.GRUCell, nn.RNNCell, None))
        self.cell = kind and kind(x.shape[-1], 8)
        self.gate = nn.Linear(x.shape[-1], x.shape[-1])

    def forward(self, x: Tensor) -> Tensor:
        state, rows = None if self.cell else torch.zeros_like(x[:, 0]), []
        for row in x.unbind(1):
            decay = self.gate(row).sigmoid()
            state = self.cell(row, state) if self.cell else decay * state + (1 - decay) * row
            rows.append(state)
        return torch.stack(rows, 1)


def recurrent(d: random.Random, x: Tensor) -> nn.Module:
    kind = d.choice((nn.LSTM, nn.GRU, nn.RNN))
    return kind(x.shape[-1], d.choice((3, 8)), d.choice((1, 2)), batch_first=True, bidirectional=d.random() < 0.5)


def gathered(v: Tensor, i: Tensor) -> Tensor:
    """Places of a value along its last dimension, of a batch each: every one once, turned by a number."""
    n = v.shape[-1]
    place = (torch.arange(n, device=v.device) + i.reshape(-1, *(1,) * (v.dim() - 1))) % n
    return place.expand(v.shape)


# fmt: off
ROWS: dict[str, Layer] = {
    "linear": lambda d, x: nn.Linear(x.shape[-1], d.choice((5, 8, 16)), bias=d.random() < 0.7),
    "linear again": lambda d, x: nn.Linear(x.shape[-1], d.choice((8, 16, 24))),
    "layer norm": lambda d, x: d.choice((nn.LayerNorm, nn.RMSNorm))(x.shape[-1]),
    "softmax": lambda d, x: partial(lambda n, v, i: v.softmax(n), d.randrange(1, x.dim())),
    "embedding": lambda d, x: With(nn.Embedding(16, x.shape[-1], padding_idx=d.choice((None, 3))), lambda e, v,
        i: (v + e(i).reshape(len(i), *(1,) * (v.dim() - 2), -1))),
    "bag": lambda d, x: With(nn.EmbeddingBag(16, 8, mode=d.choice(("sum", "mean"))), lambda e, v, i: (v.flatten(1)[:,
        :8] + e(torch.stack([i, (i + 5) % 16], 1)))),
    "gather": lambda d, x: lambda v, i: v.gather(-1, gathered(v, i)),
    "scatter": lambda d, x: lambda v, i: torch.zeros_like(v).scatter(-1, gathered(v, i), v * 2),
    "scatter_add": lambda d, x: lambda v, i: v.scatter_add(-1, gathered(v, i) // 2, v),
    "scatter_reduce": lambda d, x: partial(lambda how, v, i: v.scatter_reduce(-1, gathered(v, i) // 2, v * 0.5, how,
        include_self=how == "amax"), d.choice(("sum", "mean", "amax", "amin"))),
    "index_add": lambda d, x: lambda v, i: v.index_add(-1, i % v.shape[-1], v[..., :1].expand(*v.shape[:-1], len(i)),
        alpha=0.5),
    "index_select": lambda d, x: lambda v, i: v.index_select(-1, torch.arange(v.shape[-1] - 1, -1, -2,
        device=v.device)),
    "indexed": lambda d, x: lambda v, i: v[torch.arange(len(v), device=v.device), ...,
        i % v.shape[-1]].unsqueeze(-1) + v,
    "take_along": lambda d, x: lambda v, i: torch.take_along_dim(v, v.argsort(-1), -1),
    "top": lambda d, x: partial(lambda k, most, v, i: ((t := v.topk(min(k, v.shape[-1]), -1, most))[0], v.gather(-1,
        t[1])), d.choice((1, 2, 3)), d.random() < 0.6),
    "sort": lambda d, x: partial(lambda n, down, v, i: v.sort(n, down, stable=True), d.randrange(1, x.dim()),
        d.random() < 0.5),
    "extreme": lambda d, x: partial(lambda f, n, v, i: f(v, n, keepdim=True), d.choice((torch.max, torch.min,
        torch.cummax, torch.kthvalue)), d.randrange(1, x.dim())),
    "argmax": lambda d, x: lambda v, i: (v * 0.5, v.argmax(-1), v.argmin(1, keepdim=True)),
    "scan": lambda d, x: partial(lambda f, n, v, i: f(v * 0.5, n), d.choice((torch.cumsum, torch.logcumsumexp)),
        d.randrange(1, x.dim())),
    "cumprod": lambda d, x: lambda v, i: (v.tanh() + 1).cumprod(-1),
    "bucketize": lambda d, x: lambda v, i: v + to(torch.bucketize(i, torch.tensor([2, 5, 9], device=v.device)),
        v.dtype).reshape(-1, *(1,) * (v.dim() - 1)),
    "one_hot": lambda d, x: lambda v, i: v @ functional.one_hot(i[0] % 4 + torch.arange(v.shape[-1], device=v.device),
        v.shape[-1] + 4).to(v.dtype),
    "masked": lambda d, x: lambda v, i: v.masked_fill((gathered(v, i) % 3 == 0),
        -0.5) + v.masked_select(v == v).view(v.shape),
    "where": lambda d, x: lambda v, i: torch.where(gathered(v, i) > 2, v, v.amax(-1, keepdim=True).detach()),
    "einsum": lambda d, x: partial(lambda e, v, i: torch.einsum(e, *([v] * (e.count(",") + 1))) * 0.25,
        d.choice({2: ("ab,cb->ac", "ab,ab->ba", "ab,cb,ab->cb", "ab->ba"), 3: ("abc,adc->abd", "abc,dbc->abd",
        "abc,abd->acd", "abc,abc->ab", "abc,adc,adc->ab"), 4: ("abcd,abed->abce", "abcd,aecd->acbe", "abcd->adb",
        "abcd,abcd->bac")}[x.dim()])),
    "attention": lambda d, x: Attention(d, x), "attention again": lambda d, x: Attention(d, x),
    "third attention": lambda d, x: Attention(d, x),
    "multihead": lambda d, x: With(nn.MultiheadAttention(x.shape[-1], 2, batch_first=True), lambda m, v, i: m(v, v, v,
        need_weights=True)[0]),
    "encoder": lambda d, x: nn.TransformerEncoderLayer(x.shape[-1], 2, 16, 0.0, batch_first=True,
        norm_first=d.random() < 0.5),
    "recurrent": recurrent, "loop": Loop, "sequence": lambda d, x: lambda v, i: v.transpose(1, 2),
    "heads": lambda d, x: lambda v, i: v.unflatten(-1, (2, -1)).transpose(1, 2),
    "merge": lambda d, x: lambda v, i: v.flatten(1),
    "outer": lambda d, x: lambda v, i: v.unsqueeze(-1) * v.unsqueeze(-2),
    "distance": lambda d, x: lambda v, i: torch.cdist(v, v * 0.5 + 1, compute_mode="donot_use_mm_for_euclid_dist"),
    "normalize": lambda d, x: lambda v, i: functional.normalize(v, dim=-1) + functional.cosine_similarity(v,
        v.flip(-1), -1).unsqueeze(-1),
    "reduce": lambda d, x: partial(lambda f, n, v, i: v - f(v, n), d.choice((lambda v, n: v.var(n, keepdim=True),
        lambda v, n: v.std(n, keepdim=True), lambda v, n: torch.linalg.vector_norm(v, 3, n, keepdim=True), lambda v,
        n: v.logsumexp(n, keepdim=True), lambda v, n: v.prod(n, keepdim=True), lambda v, n: v.median(n,
        keepdim=True)[0], lambda v, n: v.mean() + v.sum(n, keepdim=True), lambda v, n: v.aminmax(dim=n,
        keepdim=True)[1], lambda v, n: v.nansum(n, keepdim=True))), d.randrange(1, x.dim())),
}
# fmt: on

# fmt: off
POINTWISE = (
    functional.relu, functional.gelu, functional.silu, functional.mish, functional.leaky_relu, functional.hardswish,
    functional.relu6, functional.softsign, functional.tanhshrink, functional.logsigmoid, functional.celu,
    functional.selu, functional.hardtanh, torch.atan, torch.sin, torch.erfinv, torch.frac, torch.sinc, torch.square,
    torch.sgn, torch.asinh, torch.special.i0, torch.nan_to_num, functional.softshrink, functional.hardshrink,
    functional.hardsigmoid, torch.trunc, torch.exp2, torch.deg2rad, torch.positive,
    lambda v: torch.atan2(v, v.abs() + 1), lambda v: torch.logaddexp(v, -v), lambda v: v.clamp(min=-0.5),
    lambda v: v.pow(3) * 0.1, lambda v: torch.copysign(v, v.cos()), lambda v: torch.polygamma(1, v.abs() + 1),
    lambda v: torch.xlogy(v, v.abs() + 0.5), lambda v: functional.dropout(v, 0.0),
    lambda v: to(to(v, torch.bfloat16) * 2, torch.float32), lambda v: to(v, torch.float16) + 1,
    lambda v: to(v, torch.float32).exp().log1p(), lambda v: v.roll((1, 2), (-1, 0)).rot90(1, (-2, -1)),
    lambda v: v.tile(2)[..., 1:], lambda v: torch.special.expit(v).logit(1e-3), lambda v: v.lerp(v.flip(-1), 0.3),
    lambda v: v.diff(dim=-1, prepend=v[..., :1]),
    lambda v: torch.stack(torch.meshgrid(v.flatten()[:4], v.flatten()[:3], indexing="ij"), 0),
    lambda v: v.tril(1) + v.triu(-1), lambda v: functional.threshold(v, 0.1, 0.7),
    lambda v: torch.addcdiv(v, v, v.abs() + 1, value=0.5), lambda v: v.repeat_interleave(2, 1),
    lambda v: v.unfold(-1, 2, 1).sum(-1), lambda v: functional.glu(v[..., : v.shape[-1] // 2 * 2]),
    lambda v: v.floor() + v.remainder(1.0),
)
# fmt: on

# fmt: off
INTEGERS = (
    lambda i: i * 7 - 50, lambda i: i // 3 - 2, lambda i: -i // 4, lambda i: i % 5, lambda i: -i % 7,
    lambda i: torch.fmod(-i, 7), lambda i: i << 3, lambda i: (i - 8) >> 1, lambda i: i & 6, lambda i: ~i,
    lambda i: i ^ (i + 9), lambda i: i.cumsum(0), lambda i: i.to(torch.int8) * 40, lambda i: i.to(torch.uint8) - 9,
    lambda i: i.int() * 2**28, lambda i: i.short() * 9999, lambda i: i.clamp(2, 9), lambda i: i.abs().sign() * 3,
    lambda i: torch.where(i > 5, i, -i), lambda i: (i.float() / 3).int(), lambda i: (i * 3.5).to(torch.int64),
    lambda i: i > i.flip(0), lambda i: i.sum(), lambda i: i.max() - i, lambda i: i[:, None] * i, lambda i: i.sort(0)[0],
    lambda i: (i % 3 == 0).any() | (i > 3), lambda i: i.bool().logical_not(),
    lambda i: torch.stack([i, i + 1], -1).prod(-1), lambda i: i.to(torch.float64).sqrt(), lambda i: i.double() / 7,
    lambda i: torch.isin(i, i[:1]), lambda i: i.to(torch.bool).cumsum(0), lambda i: i.argsort(stable=True),
    lambda i: torch.div(i, -3, rounding_mode="trunc"), lambda i: torch.div(-i, 3, rounding_mode="floor"),
    lambda i: i.neg().remainder(-4), lambda i: i.bitwise_left_shift(2), lambda i: i.pow(3),
    lambda i: torch.maximum(i, i.flip(0)), lambda i: i.new_full((2, 3), 7) + i.sum(),
    lambda i: i.float().round().to(torch.uint8), lambda i: i.all(0), lambda i: torch.gcd(i, i + 6),
    lambda i: i.unsqueeze(0).amax(0), lambda i: i.roll(1), lambda i: torch.bincount(i.abs() % 8, minlength=8),
    lambda i: i.mean(dtype=torch.float32),
)
# fmt: on

# fmt: off
LOSSES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda v, i: functional.cross_entropy(v, i % v.shape[1], ignore_index=3, label_smoothing=0.1),
    lambda v, i: functional.cross_entropy(v, i % v.shape[1], weight=v.new_ones(v.shape[1]) * 0.5, reduction="none"),
    lambda v, i: functional.cross_entropy(v, v.detach().softmax(1), reduction="sum"),
    lambda v, i: functional.nll_loss(v.log_softmax(-1), i % v.shape[1]),
    lambda v, i: functional.binary_cross_entropy_with_logits(v, (gathered(v, i) % 2).to(v.dtype),
        pos_weight=v.new_tensor(2.0)),
    lambda v, i: functional.binary_cross_entropy(v.sigmoid(), (gathered(v, i) % 2).to(v.dtype)),
    lambda v, i: functional.huber_loss(v, v.flip(-1).detach(), delta=0.5),
    lambda v, i: functional.smooth_l1_loss(v, v.detach() * 0.5, beta=0.3),
    lambda v, i: functional.kl_div(v.log_softmax(-1), v.detach().flip(-1).log_softmax(-1), reduction="batchmean",
        log_target=True), lambda v, i: functional.poisson_nll_loss(v, v.detach().abs()),
    lambda v, i: functional.gaussian_nll_loss(v, v.detach() * 0.5, v.detach().abs() + 0.1),
    lambda v, i: functional.multi_margin_loss(v, i % v.shape[1]),
    lambda v, i: functional.triplet_margin_loss(v, v.detach() * 0.5, v.detach().flip(-1)),
    lambda v, i: functional.cosine_embedding_loss(v, v.detach().flip(-1), (i % 2) * 2 - 1),
    lambda v, i: functional.soft_margin_loss(v, (gathered(v, i) % 2 * 2 - 1).to(v.dtype)),
    lambda v, i: functional.mse_loss(v, v.detach() * 0.5) + functional.l1_loss(v, v.detach().flip(-1)),
)
# fmt: on

# fmt: off
WRITES: tuple[Callable[[Tensor, Tensor, Tensor], Any], ...] = (
    lambda m, v, i: m.add_(v.detach().mean()), lambda m, v, i: m[:, 1:3].mul_(0.5),
    lambda m, v, i: m.index_fill_(1, i % m.shape[1], 0.5),
    lambda m, v, i: m.__setitem__((torch.arange(len(m), device=m.device), i % m.shape[1]), 2.0),
    lambda m, v, i: m.t()[2:].copy_(m.t()[:-2] * 0.5), lambda m, v, i: m.scatter_(1, (i % m.shape[1])[:, None], 0.25),
    lambda m, v, i: m.view(-1)[::3].zero_(), lambda m, v, i: m.masked_fill_(i[:, None] > 7, -1.0),
    lambda m, v, i: m.index_put_((i % len(m),), m[:1] * 0.5, accumulate=True), lambda m, v, i: m.cumsum_(1),
    lambda m, v, i: m.lerp_(torch.ones_like(m), 0.25), lambda m, v, i: (m.sigmoid_(), m.select(1, 0).exp_()),
    lambda m, v, i: m.copy_(m.roll(1, 0)), lambda m, v, i: m.fill_diagonal_(3.0), lambda m, v, i: m.squeeze_(0),
    lambda m, v, i: m.diagonal().add_(1), lambda m, v, i: m.clamp_(-0.5, 0.5), lambda m, v, i: torch.add(m, 1, out=m),
    lambda m, v, i: m.data.mul_(0.5),
)
# fmt: on

# fmt: off
ALIASES: tuple[Callable[[Tensor, Tensor, Tensor], Any], ...] = (
    lambda x, m, v: x, lambda x, m, v: m[:, ::2], lambda x, m, v: [x.transpose(0, 1), v],
    lambda x, m, v: {"own": m, "flat": v.flatten()}, lambda x, m, v: v.detach(), lambda x, m, v: (v.unsqueeze(0), v[0]),
    lambda x, m, v: (v.sum(), v.shape[0], None), lambda x, m, v: m.expand(2, *m.shape),
)
# fmt: on
