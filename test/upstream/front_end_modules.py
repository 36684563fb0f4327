"""The modules that `front_ends.py` exports: each a function that makes a module, or a function, and its inputs."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

TORCH: dict[str, Callable[[], tuple[Any, ...]]] = {}
JAX: dict[str, Callable[[], tuple[Any, ...]]] = {}

DYNAMIC: dict[str, Callable[[int, int, int], tuple[Any, ...]]] = {}
"""Makers for sizes m, n and k."""

SIZES = (24, 40, 32), (33, 17, 45), (8, 70, 9)

Maker = Callable[[], tuple[Any, ...]]


def of(table: dict[str, Maker], name: str) -> Callable[[Maker], Maker]:
    """Puts a maker into a table."""

    def put(make: Maker) -> Maker:
        table[name] = make
        return make

    return put


if find_spec("torch") is not None:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as fn

    class Calls(nn.Module):
        """A module that calls a function on its inputs, and has other modules as parts."""

        def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
            super().__init__()
            for name, part in parts.items():
                self.add_module(name, part)
            self.function = function

        def forward(self, *inputs: Tensor) -> Any:
            return self.function(self, *inputs) if len(list(self.children())) else self.function(*inputs)

    f16, bf16 = torch.float16, torch.bfloat16

    def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape).to(dtype)

    def simple(name: str, function: Callable[..., Any], *inputs: Callable[[], Tensor], **parts: Any) -> None:
        """A module of one expression; inputs and parts are made when it is."""

        def make() -> tuple[Any, ...]:
            return (Calls(function, **{key: part() for key, part in parts.items()}), *(each() for each in inputs))

        TORCH[name] = make

    def x(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tensor]:
        return lambda: draw(*shape, dtype=dtype)

    def at(*shape: int, below: int) -> Callable[[], Tensor]:
        return lambda: torch.randint(0, below, shape)

    # Layers
    TORCH["linear f16"] = lambda: (nn.Linear(48, 40).to(f16), draw(33, 48, dtype=f16))
    TORCH["linear f16, 3 dimensions"] = lambda: (nn.Linear(48, 40).to(f16), draw(2, 9, 48, dtype=f16))
    TORCH["linear f32"] = lambda: (nn.Linear(48, 40), draw(33, 48))
    simple("a @ b.T f16", lambda a, b: a @ b.T, x(33, 48, dtype=f16), x(40, 48, dtype=f16))
    simple("bmm f16", torch.bmm, x(3, 17, 32, dtype=f16), x(3, 32, 24, dtype=f16))
    simple("einsum f16", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), x(2, 2, 17, 16, dtype=f16),
           x(2, 2, 19, 16, dtype=f16))  # fmt: skip
    simple("addmm f16", torch.addmm, x(40, dtype=f16), x(33, 48, dtype=f16), x(48, 40, dtype=f16))
    TORCH["mlp gelu f16"] = lambda: (
        nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).to(f16), draw(17, 32, dtype=f16),
    )  # fmt: skip
    TORCH["mlp relu f32"] = lambda: (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), draw(17, 32))

    def linear(i: int, o: int, dtype: torch.dtype = f16, *, bias: bool = False) -> Callable[[], nn.Module]:
        return lambda: nn.Linear(i, o, bias=bias).to(dtype)

    simple("swiglu f16", lambda m, v: m.down(fn.silu(m.gate(v)) * m.up(v)), x(17, 32, dtype=f16), gate=linear(32, 64),
           up=linear(32, 64), down=linear(64, 32))  # fmt: skip
    simple("concatenate and linear", lambda m, a, b: m.linear(torch.cat([a, b], 1)), x(17, 16, dtype=f16),
           x(17, 32, dtype=f16), linear=linear(48, 40))  # fmt: skip

    # Norms and rows
    simple("softmax f32", lambda v: torch.softmax(v, -1), x(9, 37))
    simple("log_softmax f16", lambda v: torch.log_softmax(v, -1), x(9, 37, dtype=f16))
    TORCH["layer norm f32"] = lambda: (nn.LayerNorm(48), draw(2, 9, 48))
    TORCH["layer norm f16"] = lambda: (nn.LayerNorm(48).to(f16), draw(9, 48, dtype=f16))
    TORCH["rms norm"] = lambda: (nn.RMSNorm(48), draw(9, 48))
    TORCH["group norm"] = lambda: (nn.GroupNorm(2, 8), draw(2, 8, 5, 5))
    TORCH["batch norm"] = lambda: (nn.BatchNorm2d(8), draw(2, 8, 5, 5))
    TORCH["instance norm"] = lambda: (nn.InstanceNorm2d(8), draw(2, 8, 5, 5))
    simple("variance and mean", lambda v: torch.var_mean(v, -1), x(9, 37))
    simple("sum of two dimensions", lambda v: v.sum((1, 2)), x(5, 7, 9))

    # Attention
    heads = (x(2, 2, 16, 16, dtype=f16),) * 3
    simple("attention, written out", lambda q, k, v: torch.softmax(q @ k.mT / 4, -1) @ v, *heads)
    simple("sdpa", fn.scaled_dot_product_attention, *heads)
    simple("sdpa, causal", lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, is_causal=True), *heads)
    simple("sdpa, mask of i1", fn.scaled_dot_product_attention, *heads, lambda: torch.ones(16, 16).tril().bool())
    simple("sdpa, mask of f16", fn.scaled_dot_product_attention, *heads, x(16, 16, dtype=f16))
    simple("multi-head attention", lambda m, v: m.attention(v, v, v, need_weights=False)[0], x(2, 9, 32),
           attention=lambda: nn.MultiheadAttention(32, 2, batch_first=True))  # fmt: skip

    def rotary(v: Tensor) -> Tensor:
        half = v.shape[-1] // 2
        angles = torch.arange(v.shape[-2])[:, None] * 0.5 ** torch.arange(half)[None, :].to(torch.float32)
        cos, sin = angles.cos().to(v.dtype), angles.sin().to(v.dtype)
        a, b = v[..., :half], v[..., half:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    simple("rotary embedding", rotary, x(2, 9, 16))

    # Convolutions and pooling
    TORCH["convolution and relu f16"] = lambda: (
        nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()).to(f16), draw(1, 8, 8, 8, dtype=f16),
    )  # fmt: skip
    TORCH["convolution, stride 2, f32"] = lambda: (nn.Conv2d(8, 16, 3, stride=2), draw(1, 8, 9, 9))
    TORCH["depthwise convolution"] = lambda: (nn.Conv2d(8, 8, 3, groups=8), draw(1, 8, 8, 8))
    TORCH["convolution of 1 dimension"] = lambda: (nn.Conv1d(8, 16, 3), draw(2, 8, 12))
    TORCH["max pooling"] = lambda: (nn.MaxPool2d(2), draw(1, 8, 8, 8))
    TORCH["average pooling"] = lambda: (nn.AvgPool2d(3, 2), draw(1, 8, 9, 9))
    TORCH["adaptive average pooling"] = lambda: (nn.AdaptiveAvgPool2d(1), draw(2, 8, 5, 5))

    # Indices
    TORCH["embedding"] = lambda: (nn.Embedding(50, 16), torch.randint(0, 50, (2, 9)))
    simple("gather", lambda v, i: torch.gather(v, 1, i), x(9, 16), at(9, 4, below=16))
    simple("index_select", lambda v, i: torch.index_select(v, 0, i), x(9, 16), at(5, below=9))
    simple("argmax", lambda v: torch.argmax(v, -1), x(9, 37))
    simple("largest and its index", lambda v: torch.max(v, -1), x(9, 37))
    simple("masked fill", lambda v, m: v.masked_fill(m, -1e9), x(9, 16), lambda: torch.randn(9, 16) > 0)
    simple("integer power", lambda v: v**3 + v.to(torch.float32).pow(2), x(9, 16))
    simple("cross entropy", fn.cross_entropy, x(9, 16), at(9, below=16))
    simple("sum of integers", lambda v: v.sum(-1), at(9, 16, below=100))

    # Forms of attention, gradients, and what is written in other ways
    narrow = (x(2, 2, 16, 16, dtype=bf16),) * 3
    simple("sdpa f32", fn.scaled_dot_product_attention, *(x(2, 2, 16, 16),) * 3)
    simple("sdpa bf16", fn.scaled_dot_product_attention, *narrow)
    simple("sdpa of one sequence", fn.scaled_dot_product_attention, *(x(1, 2, 16, 16, dtype=f16),) * 3)
    simple("sdpa, grouped heads", lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, enable_gqa=True),
           x(2, 4, 16, 16, dtype=f16), *(x(2, 2, 16, 16, dtype=f16),) * 2)  # fmt: skip

    def step(q: Tensor, k: Tensor, v: Tensor, k1: Tensor, v1: Tensor) -> Tensor:
        return fn.scaled_dot_product_attention(q, torch.cat([k, k1], 2), torch.cat([v, v1], 2))

    one, cache = x(1, 2, 1, 16, dtype=f16), x(1, 2, 31, 16, dtype=f16)
    simple("sdpa, step with a cache", step, one, cache, cache, one, one)
    simple("gelu exact", fn.gelu, x(9, 37))
    simple("gelu tanh f16", lambda v: fn.gelu(v, approximate="tanh"), x(9, 37, dtype=f16))
    simple("softmax, middle dimension", lambda v: torch.softmax(v, 1), x(5, 9, 37))
    simple("gradient of softmax",
           lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, torch.float32), x(9, 37), x(9, 37))  # fmt: skip

    def norm_backward(g: Tensor, v: Tensor, w: Tensor, b: Tensor) -> Any:
        mean, scale = v.mean(-1, keepdim=True), (v.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        return torch.ops.aten.native_layer_norm_backward(g, v, [48], mean, scale, w, b, [True, True, True])

    simple("gradient of a layer norm", norm_backward, x(9, 48), x(9, 48), x(48), x(48))
    TORCH["transposed convolution"] = lambda: (nn.ConvTranspose2d(8, 16, 3, stride=2), draw(1, 8, 5, 5))
    TORCH["grouped convolution"] = lambda: (nn.Conv2d(8, 16, 3, groups=2, padding=1), draw(1, 8, 8, 8))
    TORCH["convolution of 3 dimensions"] = lambda: (nn.Conv3d(4, 8, 3), draw(1, 4, 5, 6, 7))
    TORCH["max pooling, padded"] = lambda: (nn.MaxPool2d(3, 2, 1), draw(1, 8, 9, 9))
    simple("einsum of heads f32", lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), x(2, 9, 2, 16), x(2, 11, 2, 16))
    simple("einsum of three f16", lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), x(9, 16, dtype=f16),
           x(16, 24, dtype=f16), x(24, 8, dtype=f16))  # fmt: skip
    simple("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.5), x(3, 17, 24, dtype=f16),
           x(3, 17, 32, dtype=f16), x(3, 32, 24, dtype=f16))  # fmt: skip

    def bytes_of(*shape: int) -> Callable[[], Tensor]:
        return lambda: torch.randint(-128, 127, shape, dtype=torch.int8)

    simple("int8 product", lambda a, b: a.to(torch.int32) @ b.to(torch.int32), bytes_of(17, 32), bytes_of(32, 24))
    simple("int8 weights with scales f16", lambda v, w, s: v @ (w.to(v.dtype) * s), x(17, 32, dtype=f16),
           bytes_of(32, 24), lambda: (torch.rand(24) / 64).to(f16))  # fmt: skip
    simple("activations", lambda v: fn.hardswish(v) + fn.mish(v) + fn.elu(v) + fn.softplus(v), x(9, 37))
    simple("binary cross entropy", lambda a, b: fn.binary_cross_entropy_with_logits(a, b.sigmoid()), x(5, 7), x(5, 7))
    simple("roll", lambda v: torch.roll(v, 3, 1), x(9, 37))
    simple("reflecting padding", lambda v: fn.pad(v, (1, 2), mode="reflect"), x(1, 5, 9))
    simple("nearest upsampling", lambda v: fn.interpolate(v, scale_factor=2.0, mode="nearest"), x(1, 4, 5, 5))
    simple("largest, least, any", lambda v: (v.amax(0), v.amin((0, 1)), (v > 0).any(-1)), x(5, 7))
    simple("normalised rows", lambda v: fn.normalize(v, dim=-1), x(5, 7))
    simple("low-rank weights f16", lambda v, w, a, b: v @ w + (v @ a) @ b * 0.5, x(17, 32, dtype=f16),
           x(32, 24, dtype=f16), x(32, 8, dtype=f16), x(8, 24, dtype=f16))  # fmt: skip
    simple("cumulative sum", lambda v: torch.cumsum(v, -1), x(9, 37))

    # Blocks
    def attend(m: Any, v: Tensor, heads: int, turn: Callable[[Tensor], Tensor] = lambda v: v) -> Tensor:
        q, k, w = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in m.qkv(v).chunk(3, -1))
        y = fn.scaled_dot_product_attention(turn(q), turn(k), w, is_causal=True)
        return m.out(y.transpose(1, 2).flatten(2))

    def gpt2(m: Any, v: Tensor) -> Tensor:
        v = v + attend(m, m.norm(v), 2)
        return v + m.down(fn.gelu(m.up(m.norm2(v)), approximate="tanh"))

    simple("GPT-2 block f16", gpt2, x(1, 16, 32, dtype=f16), qkv=linear(32, 96, bias=True),
           out=linear(32, 32, bias=True), up=linear(32, 128, bias=True), down=linear(128, 32, bias=True),
           norm=lambda: nn.LayerNorm(32).to(f16), norm2=lambda: nn.LayerNorm(32).to(f16))  # fmt: skip

    def llama(m: Any, v: Tensor) -> Tensor:
        v = v + attend(m, m.norm(v), 2, rotary)
        y = m.norm2(v)
        return v + m.down(fn.silu(m.gate(y)) * m.up(y))

    simple("Llama block f16", llama, x(1, 16, 32, dtype=f16), qkv=linear(32, 96), out=linear(32, 32),
           gate=linear(32, 64), up=linear(32, 64), down=linear(64, 32), norm=lambda: nn.RMSNorm(32).to(f16),
           norm2=lambda: nn.RMSNorm(32).to(f16))  # fmt: skip

    def convolution(i: int, o: int, size: int) -> Callable[[], nn.Module]:
        return lambda: nn.Sequential(nn.Conv2d(i, o, size, padding=size // 2, bias=False), nn.BatchNorm2d(o))

    simple("ResNet block f32", lambda m, v: fn.relu(v + m.b(fn.relu(m.a(v)))), x(1, 8, 8, 8), a=convolution(8, 8, 3),
           b=convolution(8, 8, 3))  # fmt: skip
    simple("ResNet bottleneck f32", lambda m, v: fn.relu(v + m.c(fn.relu(m.b(fn.relu(m.a(v)))))), x(1, 16, 8, 8),
           a=convolution(16, 8, 1), b=convolution(8, 8, 3), c=convolution(8, 16, 1))  # fmt: skip
    TORCH["transformer encoder layer"] = lambda: (
        nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), draw(2, 9, 32),
    )  # fmt: skip
    TORCH["GRU cell"] = lambda: (nn.GRUCell(16, 32), draw(8, 16), draw(8, 32))
    simple("patch embedding", lambda m, v: m.patch(v).flatten(2).transpose(1, 2), x(1, 3, 16, 16),
           patch=lambda: nn.Conv2d(3, 32, 4, stride=4))  # fmt: skip

    # Modules of sizes that are not known.

    def sized(name: str, function: Callable[..., Any], shapes: Callable[[int, int, int], Any], dtype: Any) -> None:
        DYNAMIC[name] = lambda m, n, k: (Calls(function), *(draw(*shape, dtype=dtype) for shape in shapes(m, n, k)))

    f32 = torch.float32
    for kind, name in ((f16, "f16"), (f32, "f32")):
        sized(f"a @ b {name}", lambda a, b: a @ b, lambda m, n, k: ((m, k), (k, n)), kind)
    sized("a @ b.T f16", lambda a, b: a @ b.T, lambda m, n, k: ((m, k), (n, k)), f16)
    sized("bmm f16", torch.bmm, lambda m, n, k: ((3, m, k), (3, k, n)), f16)
    sized(
        "linear, relu f16", lambda x, w, b: torch.relu(fn.linear(x, w, b)), lambda m, n, k: ((m, k), (n, k), (n,)), f16
    )
    sized("addmm f32", torch.addmm, lambda m, n, k: ((n,), (m, k), (k, n)), f32)
    sized("swiglu f16", lambda x, g, u: fn.silu(x @ g.T) * (x @ u.T), lambda m, n, k: ((m, k), (n, k), (n, k)), f16)
    sized("softmax f32", lambda x: torch.softmax(x, -1), lambda m, n, _: ((m, n),), f32)
    sized("softmax f16, 3 dimensions", lambda x: torch.softmax(x, -1), lambda m, n, _: ((3, m, n),), f16)
    sized(
        "layer norm", lambda x, w, b: fn.layer_norm(x, (x.shape[-1],), w, b), lambda m, n, _: ((m, n), (n,), (n,)), f32
    )
    sized(
        "rms norm", lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w,
        lambda m, n, _: ((m, n), (n,)), f32,
    )  # fmt: skip
    sized("gelu and sum", lambda x, y: fn.gelu(x) + y, lambda m, n, _: ((m, n), (m, n)), f32)
    sized("tanh, broadcast", lambda x, y: torch.tanh(x * y) + 1, lambda m, n, _: ((m, n), (m, 1)), f32)
    sized("sum of columns", lambda x: x.sum(0), lambda m, n, _: ((m, n),), f32)
    sized("mean", lambda x: x.mean(-1), lambda m, n, _: ((m, n),), f32)
    sized("maximum", lambda x: x.amax(-1), lambda m, n, _: ((m, n),), f32)
    sized("transposed sum", lambda x, y: x.T + y, lambda m, n, _: ((m, n), (n, m)), f32)
    sized(
        "attention, written out", lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v,
        lambda m, n, _: ((2, m, 64), (2, n, 64), (2, n, 64)), f16,
    )  # fmt: skip
    sized(
        "sdpa f16", fn.scaled_dot_product_attention,
        lambda m, n, _: ((1, 2, m, 16), (1, 2, n, 16), (1, 2, n, 16)), f16,
    )  # fmt: skip


if find_spec("jax") is not None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def array(*shape: int, dtype: Any = np.float32) -> Any:
        return jnp.asarray(np.random.default_rng(1).standard_normal(shape), dtype)

    h = jnp.float16

    def norm(v: Any) -> Any:
        mean = v.mean(-1, keepdims=True)
        return (v - mean) * jax.lax.rsqrt(((v - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    def causal(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32) / 4
        s = jnp.where(jnp.arange(s.shape[1])[:, None] >= jnp.arange(s.shape[2])[None, :], s, -jnp.inf)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    def window(v: Any) -> Any:
        return jax.lax.reduce_window(v, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    JAX |= {
        "dot f16": lambda: (jnp.dot, array(33, 48, dtype=h), array(48, 40, dtype=h)),
        "dot bf16 to f32": lambda: (
            lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32),
            array(33, 48, dtype=jnp.bfloat16), array(48, 40, dtype=jnp.bfloat16)),
        "dense and relu f32": lambda: (
            lambda a, w, b: jax.nn.relu(a @ w + b), array(33, 48), array(48, 40), array(40)),
        "mlp gelu f16": lambda: (
            lambda a, w, u: jax.nn.gelu(a @ w) @ u, array(17, 32, dtype=h), array(32, 64, dtype=h) / 6,
            array(64, 32, dtype=h) / 8),
        "swiglu f16": lambda: (
            lambda a, g, u, d: (jax.nn.silu(a @ g) * (a @ u)) @ d, array(17, 32, dtype=h), array(32, 64, dtype=h) / 6,
            array(32, 64, dtype=h) / 6, array(64, 32, dtype=h) / 8),
        "einsum of heads f16": lambda: (
            lambda a, b: jnp.einsum("bihd,bjhd->bhij", a, b), array(2, 9, 2, 16, dtype=h),
            array(2, 11, 2, 16, dtype=h)),
        "vmap of a product": lambda: (jax.vmap(jnp.dot), array(3, 17, 32, dtype=h), array(3, 32, 24, dtype=h)),
        "softmax": lambda: (lambda v: jax.nn.softmax(v, -1), array(9, 37)),
        "log-sum-exp": lambda: (lambda v: jax.nn.logsumexp(v, -1), array(9, 37)),
        "layer norm": lambda: (norm, array(9, 48)),
        "rms norm f16": lambda: (
            lambda v, g: v * jax.lax.rsqrt((v.astype(jnp.float32) ** 2).mean(-1, keepdims=True) + 1e-6).astype(h) * g,
            array(9, 48, dtype=h), array(48, dtype=h)),
        "attention, causal, f16": lambda: (
            causal, array(2, 16, 16, dtype=h), array(2, 16, 16, dtype=h), array(2, 16, 16, dtype=h)),
        "convolution and relu": lambda: (
            lambda v, w: jax.nn.relu(jax.lax.conv_general_dilated(
                v, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))),
            array(1, 8, 8, 8), array(3, 3, 8, 16)),
        "max pooling": lambda: (window, array(1, 8, 8, 8)),
        "argmax": lambda: (lambda v: jnp.argmax(v, -1), array(9, 37)),
        "embedding": lambda: (
            lambda t, i: t[i], array(50, 16), jnp.asarray(np.random.default_rng(1).integers(0, 50, (2, 9)))),
        "one-hot": lambda: (
            lambda i: jax.nn.one_hot(i, 10), jnp.asarray(np.random.default_rng(1).integers(0, 10, (9,)))),
        "variance": lambda: (lambda v: (v.mean(-1), v.var(-1)), array(9, 37)),
        "loop that carries values": lambda: (
            lambda v, w: jax.lax.fori_loop(0, 4, lambda i, y: jnp.tanh(y @ w), v), array(17, 32), array(32, 32) / 6),
        "gradient of a layer": lambda: (
            jax.grad(lambda w, v: (jax.nn.relu(v @ w) ** 2).sum()), array(48, 40), array(33, 48)),
    }  # fmt: skip
