"""Models through `torch.compile`: eager, inductor and warploom, in one run. A row is a model, in a process of its own.

    bench/with_gpu.sh python bench/torch_models.py --rows llama-prefill llama-decode --json out.json
    bench/with_gpu.sh python bench/torch_models.py --rows vit gpt2-train --profile profiles

Models are written here, or those of `transformers` (BERT, T5, Whisper), with random weights. A time is the median over
`--repeats` calls between two events, so that what the host takes is in it; the contenders take turns. `graphs` are both
in `mode="reduce-overhead"`. An error is the largest distance of a result, or of a gradient, from that of the same model
in float32 in eager, relative in the Frobenius norm. `alone` is the median between two events with the host ahead.
Memory is the peak of a call beyond what lies there before, with all that CUDA graphs keep. `--compile` compiles alone,
to warm caches.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false, reportPrivateImportUsage=false, reportIncompatibleMethodOverride=false
# Attributes of torch's modules are tensors or modules to a type checker.

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from warploom.runtime import torch_backend

WARM_UP = 4

AHEAD = 30_000_000
"""Cycles that the GPU waits while the host enqueues a step."""


class RmsNorm(nn.Module):
    """As models write it: in float32, rounded before the weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * scaled.to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions by halves, as Llama's code has them."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder."""

    width: int = 4096
    heads: int = 32
    shared: int = 8
    inner: int = 14336
    experts: int = 0

    @property
    def head(self) -> int:
        return self.width // self.heads


def dense(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Narrow(nn.Module):
    """A linear layer with weights of 8 bits and a scale for each output."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        scale = layer.weight.detach().abs().amax(1) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (layer.weight.detach() / scale[:, None]).round().to(torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.to(x.dtype) * self.scale[:, None])


class Packed(nn.Module):
    """A linear layer with weights of 4 bits, two in a byte, and a scale for each group of a row."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.group = 128 if layer.in_features % 128 == 0 else 16
        groups = layer.weight.detach().unflatten(1, (-1, self.group))
        scale = groups.abs().amax(2) / 7
        codes = (groups / scale[:, :, None]).round().add(8).to(torch.uint8).flatten(1)
        self.register_buffer("scale", scale)
        self.register_buffer("weight", codes[:, ::2] | codes[:, 1::2] << 4)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.stack((self.weight & 15, self.weight >> 4), -1).flatten(1).to(x.dtype) - 8
        return functional.linear(x, (weight.unflatten(1, (-1, self.group)) * self.scale[:, :, None]).flatten(1))


def narrowed(model: nn.Module, kind: type[nn.Module] = Narrow) -> nn.Module:
    """The model with weights of 8 or 4 bits in place of those of its linear layers."""
    for name, child in model.named_children():
        setattr(model, name, kind(child) if isinstance(child, nn.Linear) else narrowed(child, kind))
    return model


class SharedAttention(nn.Module):
    """Attention whose queries share keys and values, with a cache where `cached` says how long and for which batch."""

    def __init__(self, shape: Shape, cached: tuple[int, int] | None) -> None:
        super().__init__()
        self.shape = shape
        self.q, self.o = dense(shape.width, shape.width), dense(shape.width, shape.width)
        self.k, self.v = (dense(shape.width, shape.shared * shape.head) for _ in range(2))
        if cached is not None:
            for name in ("keys", "values"):
                cache = torch.randn(cached[0], shape.shared, cached[1], shape.head)
                self.register_buffer(name, cache, persistent=True)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None) -> Tensor:
        heads = (*x.shape[:-1], -1, self.shape.head)
        q, k, v = (f(x).view(heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if at is not None:
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
            k, v = self.keys, self.values
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=at is None, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate, self.up = dense(shape.width, shape.inner), dense(shape.width, shape.inner)
        self.down = dense(shape.inner, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def grouped(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Products of groups of rows, each with its weights; torch has them for bf16 alone."""
    if rows.dtype == torch.bfloat16:
        return torch._grouped_mm(rows, weights, offs=ends)
    parts = rows.tensor_split(ends[:-1].cpu().long())
    return torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])


class Experts(nn.Module):
    """The two best of several SwiGLU for each token, sorted by expert, by products of groups."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.router, self.experts = dense(shape.width, shape.experts), shape.experts
        self.both = nn.Parameter(torch.randn(shape.experts, shape.width, 2 * shape.inner) * shape.width**-0.5)
        self.down = nn.Parameter(torch.randn(shape.experts, shape.inner, shape.width) * shape.inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = torch.softmax(self.router(tokens).float(), -1).topk(2)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort()
        numbers = torch.arange(self.experts, device=x.device)
        ends = (chosen.flatten() == numbers[:, None]).sum(1).cumsum(0).to(torch.int32)
        rows = tokens[order // 2]
        gate, up = grouped(rows, self.both, ends).chunk(2, -1)
        outputs = grouped(functional.silu(gate) * up, self.down, ends)
        outputs = outputs * weights.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, order // 2, outputs).view(x.shape)


class Decoder(nn.Module):
    """Layers as Llama and Mixtral have them."""

    def __init__(self, shape: Shape, layers: int, length: int, cached: tuple[int, int] | None = None) -> None:
        super().__init__()
        kind = Experts if shape.experts else Gated
        self.layers = nn.ModuleList(
            nn.ModuleList(
                (RmsNorm(shape.width), SharedAttention(shape, cached), RmsNorm(shape.width), kind(shape))
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm = RmsNorm(shape.width)
        steps = torch.outer(torch.arange(length), 500000.0 ** (-torch.arange(0, shape.head, 2) / shape.head))
        self.register_buffer("cos", torch.cat((steps, steps), -1).cos())
        self.register_buffer("sin", torch.cat((steps, steps), -1).sin())

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        cos, sin = (t if at is None else t[at] for t in (self.cos, self.sin))
        for first, attention, second, perceptron in self.layers:
            x = x + attention(first(x), cos, sin, at)
            x = x + perceptron(second(x))
        return self.norm(x)


class Block(nn.Module):
    """Attention and a perceptron with GELU, as ViT and GPT-2 have them."""

    def __init__(self, width: int, heads: int, causal: bool, approximate: str) -> None:
        super().__init__()
        self.heads, self.causal, self.approximate = heads, causal, approximate
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x)), approximate=self.approximate))


class Gpt2(nn.Module):
    """GPT-2 with its loss; the last product has the weights of the embedding."""

    def __init__(self, width: int, heads: int, layers: int, length: int, words: int = 50257) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True, "tanh") for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        scores = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class ChannelNorm(nn.LayerNorm):
    """A norm of channels where they come first."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """ConvNeXt-T."""
    stages: list[nn.Module] = []
    before = 3
    for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        step = 4 if before == 3 else 2
        down = nn.Conv2d(before, width, step, step)
        stages += [down, ChannelNorm(width)] if before == 3 else [ChannelNorm(before), down]
        stages += [ConvNextBlock(width) for _ in range(depth)]
        before = width
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))


def convolved(inputs: int, outputs: int, size: int, step: int = 1) -> list[nn.Module]:
    """A convolution with its norm."""
    return [nn.Conv2d(inputs, outputs, size, step, size // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, step: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *convolved(inputs, width, 1), nn.ReLU(), *convolved(width, width, 3, step), nn.ReLU(),
            *convolved(width, 4 * width, 1),
        )  # fmt: skip
        same = inputs == 4 * width and step == 1
        self.short = nn.Identity() if same else nn.Sequential(*convolved(inputs, 4 * width, 1, step))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.main(x) + self.short(x))


def resnet() -> nn.Module:
    """ResNet-50."""
    parts: list[nn.Module] = [*convolved(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(depth):
            parts.append(Bottleneck(before, width, 2 if width > 64 and number == 0 else 1))
            before = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Taken(nn.Module):
    """A model of `transformers`, or the part of one, called with `named` arguments; a result of it by name."""

    def __init__(self, kind: str, named: Sequence[str], result: str, part: str = "", **sizes: object) -> None:
        super().__init__()
        made: Any = getattr(import_module("transformers"), kind)
        model = made(made.config_class(**sizes))
        self.model, self.named, self.result = getattr(model, part) if part else model, named, result

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.named, inputs, strict=True)))[self.result]


class ResidualConvolutions(nn.Module):
    """Two 3x3 convolutions of normed images, the step of the noise between them, as SDXL's UNet has them."""

    def __init__(self, width: int, steps: int, groups: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(groups, width), nn.GroupNorm(groups, width)
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.step = nn.Linear(steps, width)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        y = self.convolutions[0](functional.silu(self.first(x)))
        y = y + self.step(functional.silu(step))[:, :, None, None]
        return x + self.convolutions[1](functional.silu(self.second(y)))


class Reading(nn.Module):
    """Attention to a text, or of pixels to each other."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.heads, self.q, self.out = heads, dense(width, width), nn.Linear(width, width)
        self.k, self.v = dense(text, width), dense(text, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        parts = self.q(x), self.k(text), self.v(text)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ReadingBlock(nn.Module):
    """Attention of pixels, attention to a text, and a perceptron with GEGLU."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.other = Reading(width, heads, width), Reading(width, heads, text)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.other(self.norms[1](x), text)
        y, gate = self.up(self.norms[2](x)).chunk(2, -1)
        return x + self.down(y * functional.gelu(gate))


class UNetBlock(nn.Module):
    """A block of SDXL's UNet: convolutions, and two blocks of attention that read the text."""

    def __init__(self, width: int, heads: int, steps: int, text: int, groups: int) -> None:
        super().__init__()
        self.convolved = ResidualConvolutions(width, steps, groups)
        self.norm = nn.GroupNorm(groups, width, 1e-6)
        self.into, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(ReadingBlock(width, heads, text) for _ in range(2))

    def forward(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        x = self.convolved(x, step)
        y = self.into(self.norm(x).permute(0, 2, 3, 1).flatten(1, 2))
        for block in self.blocks:
            y = block(y, text)
        return x + self.out(y).unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Row:
    """A model, its inputs, and how it is run. `small` are for a machine without a GPU."""

    model: Callable[[bool], nn.Module]
    inputs: Callable[[bool], list[Tensor]]
    training: bool = False
    autocast: bool = False
    channels_last: bool = False
    graphs: bool = False


SMALL = Shape(width=32, heads=4, shared=2, inner=48)
LLAMA, MIXTRAL = Shape(), Shape(experts=8)


def _vit(small: bool) -> nn.Module:
    return nn.Sequential(
        *(Block(32 if small else 1024, 2 if small else 16, False, "none") for _ in range(1 if small else 4))
    )


def _patches(small: bool) -> list[Tensor]:
    return [torch.randn(1, 5, 32) if small else torch.randn(32, 197, 1024)]


def _images(small: bool) -> list[Tensor]:
    return [torch.randn(1 if small else 64, 3, 32 if small else 224, 32 if small else 224)]


def _words(batch: int, length: int) -> Tensor:
    return torch.randint(0, 90, (batch, length))


def _padded(batch: int, length: int) -> list[Tensor]:
    """Words of texts of several lengths, where they are, and the words that the loss takes."""
    words, lengths = _words(batch, length), torch.randint(length // 2, length + 1, (batch, 1))
    there = torch.arange(length) < lengths
    return [words, there.long(), torch.where(there, words, -100)]


def _bert(small: bool) -> nn.Module:
    """BERT-large with four of its layers, and the loss of its words."""
    width, layers = (32, 1) if small else (1024, 4)
    sizes = {"num_attention_heads": width // (8 if small else 64), "intermediate_size": 4 * width}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "hidden_size": width}
    named = "input_ids", "attention_mask", "labels"
    return Taken("BertForMaskedLM", named, "loss", num_hidden_layers=layers, **sizes)


def _t5(small: bool) -> nn.Module:
    """T5-base, encoder and decoder, with four layers each."""
    width, heads, layers = (32, 4, 1) if small else (768, 12, 4)
    sizes = {"d_model": width, "num_heads": heads, "d_kv": width // heads, "d_ff": 4 * width, "use_cache": False}
    named = "input_ids", "decoder_input_ids"
    return Taken("T5Model", named, "last_hidden_state", num_layers=layers, **sizes)


def _whisper(small: bool) -> nn.Module:
    """The encoder of Whisper-small with four of its layers."""
    width, heads, layers = (32, 4, 1) if small else (768, 12, 4)
    sizes = {"d_model": width, "encoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_layers": 1}
    sizes |= {"decoder_attention_heads": heads}
    sizes |= {"num_mel_bins": 8, "max_source_positions": 8} if small else {}
    named = ("input_features",)
    return Taken("WhisperModel", named, "last_hidden_state", "encoder", encoder_layers=layers, **sizes)


ROWS = {
    "llama-prefill": Row(
        lambda small: Decoder(SMALL, 1, 8) if small else Decoder(LLAMA, 2, 2048),
        lambda small: [torch.randn(1, 8, 32) if small else torch.randn(4, 2048, 4096)],
    ),
    "llama-decode": Row(
        lambda small: Decoder(SMALL, 1, 8, (2, 8)) if small else Decoder(LLAMA, 2, 2048, (16, 2048)),
        lambda small: [torch.randn(*(2, 1, 32) if small else (16, 1, 4096)), torch.tensor([7 if small else 2047])],
        graphs=True,
    ),
    "llama-int8": Row(
        lambda small: narrowed(Decoder(SMALL, 1, 8, (2, 8)) if small else Decoder(LLAMA, 2, 2048, (16, 2048))),
        lambda small: [torch.randn(*(2, 1, 32) if small else (16, 1, 4096)), torch.tensor([7 if small else 2047])],
        graphs=True,
    ),
    "llama-int4": Row(
        lambda small: narrowed(Decoder(SMALL, 1, 8, (2, 8)) if small else Decoder(LLAMA, 2, 2048, (16, 2048)), Packed),
        lambda small: [torch.randn(*(2, 1, 32) if small else (16, 1, 4096)), torch.tensor([7 if small else 2047])],
        graphs=True,
    ),
    "vit": Row(_vit, _patches),
    "vit-train": Row(_vit, _patches, training=True),
    "gpt2-train": Row(
        lambda small: Gpt2(32, 2, 1, 8, 100) if small else Gpt2(1024, 16, 4, 1024),
        lambda small: [torch.randint(0, 100, (1, 8)) if small else torch.randint(0, 50257, (8, 1024))],
        training=True, autocast=True,
    ),
    "mixtral": Row(
        lambda small: Decoder(Shape(32, 4, 2, 48, 4), 1, 8) if small else Decoder(MIXTRAL, 1, 4096),
        lambda small: [torch.randn(1, 8, 32) if small else torch.randn(1, 4096, 4096)],
    ),
    "bert-train": Row(
        _bert, lambda small: _padded(2, 8) if small else _padded(16, 512), training=True, autocast=True
    ),
    "t5": Row(_t5, lambda small: [_words(1, 8), _words(1, 6)] if small else [_words(16, 512), _words(16, 128)]),
    "whisper": Row(_whisper, lambda small: [torch.randn(*(1, 8, 16) if small else (8, 80, 3000))]),
    "sdxl": Row(
        lambda small: UNetBlock(32, 2, 24, 40, 4) if small else UNetBlock(640, 10, 1280, 2048, 32),
        lambda small: (
            [torch.randn(1, 32, 4, 4), torch.randn(1, 24), torch.randn(1, 5, 40)]
            if small
            else [torch.randn(2, 640, 64, 64), torch.randn(2, 1280), torch.randn(2, 77, 2048)]
        ),
        channels_last=True,
    ),
    "convnext": Row(lambda _: convnext(), _images, channels_last=True),
    "resnet": Row(lambda _: resnet(), _images, channels_last=True),
}  # fmt: skip


@dataclass
class Measured:
    """What a contender took of a row: milliseconds, with the host and by the GPU alone, bytes, and distances from
    float32."""

    row: str
    name: str
    milliseconds: float
    alone: float
    of_inductor: float
    megabytes: float
    error: float
    first_call_seconds: float


class Contender:
    """A model as somebody runs it. A step is a call, with the backward pass where the row trains."""

    def __init__(self, name: str, row: Row, model: nn.Module, inputs: list[Tensor], explain: bool) -> None:
        self.name, self.row, self.model, self.inputs = name, row, model, inputs
        mode = "reduce-overhead" if name.endswith("graphs") else None
        if name.startswith("inductor"):
            self.call = torch.compile(model, mode=mode)
        elif name.startswith("warploom"):
            options = {"explain": explain, **({"mode": mode} if mode else {})}
            self.call = torch.compile(model, backend=torch_backend, options=options)
        else:
            self.call = model
        torch.manual_seed(1)
        self.grad: Tensor | None = None
        self.kept = 0

    def __call__(self) -> list[Tensor]:
        if not self.row.training:
            with torch.no_grad():
                return [self.call(*self.inputs)]
        autocast: AbstractContextManager[Any] = nullcontext()
        if self.row.autocast and self.name != "float32":
            autocast = torch.autocast(self.inputs[0].device.type, dtype=torch.bfloat16)
        with autocast:
            out = self.call(*self.inputs)
        if self.grad is None:
            draw = torch.Generator(out.device).manual_seed(5)
            self.grad = (
                torch.randn(out.shape, generator=draw, device=out.device).to(out.dtype)
                if out.dim()
                else torch.ones_like(out)
            )
        out.backward(self.grad)
        return [out]

    def results(self) -> list[Tensor]:
        """The result, and all gradients where the row trains."""
        self.model.zero_grad(set_to_none=True)
        out = [x.detach().clone() for x in self()]
        grads = [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
        self.model.zero_grad(set_to_none=True)
        return out + grads


ZERO = 2.0**-20
"""Gradients of so small a part of the largest norm are zero but for rounding, as that of the bias of keys."""


def distance(result: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest relative distance, in the Frobenius norm."""
    norms = [float(e.float().norm()) for e in exact]
    least = max(1e-20, ZERO * max(norms))
    return max(
        float((f.float() - e.float()).norm()) / norm
        for f, e, norm in zip(result, exact, norms, strict=True)
        if norm > least
    )


def one_time(contender: Contender, *, ahead: bool = False) -> float:
    """Milliseconds of a step, the host's included; or of the GPU alone, which waits until the host is done."""
    contender.model.zero_grad(set_to_none=True)
    if not torch.cuda.is_available():
        start = time.perf_counter()
        contender()
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if ahead:
        torch.cuda._sleep(AHEAD)
    begin.record()
    contender()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def kept_by_graphs() -> int:
    """Bytes of memory that CUDA graphs have for themselves; 0 without a GPU."""
    segments = torch.cuda.memory_snapshot() if torch.cuda.is_available() else []
    return sum(segment["total_size"] for segment in segments if tuple(segment["segment_pool_id"]) != (0, 0))


def peak(contender: Contender) -> float:
    """Megabytes that a step takes beyond what lies there, and those that its graphs keep."""
    contender.model.zero_grad(set_to_none=True)
    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    contender()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before + contender.kept) / 2**20


def profiled(contender: Contender, path: Path) -> None:
    """Writes which kernels the GPU runs, and for how long."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            contender()
        torch.cuda.synchronize()
    table = profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=45, max_name_column_width=90)
    path.write_text(table)


def run(name: str, options: argparse.Namespace) -> list[Measured]:
    """One row."""
    row, device = ROWS[name], options.device
    small = device == "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    with torch.device(device):
        exact, inputs = row.model(small), row.inputs(small)
    exact.train(row.training)
    model = deepcopy(exact) if row.autocast else deepcopy(exact).bfloat16()
    if row.channels_last:
        model = model.to(memory_format=torch.channels_last)
    ours = [x.bfloat16() if x.is_floating_point() and not row.autocast else x for x in inputs]
    ours = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in ours]
    expected = [x.cpu() for x in Contender("float32", row, exact, inputs, False).results()]
    del exact
    names = ["eager", "inductor", "warploom"] + (["inductor graphs", "warploom graphs"] if row.graphs else [])
    contenders, firsts, errors = [], [], []
    for contender in (
        Contender(n, row, model, ours, options.explain)
        for n in names
        if n in options.contenders or not options.contenders
    ):
        torch._dynamo.reset() if small else None
        start = time.perf_counter()
        results = contender.results()
        firsts.append(time.perf_counter() - start)
        errors.append(distance([x.cpu() for x in results], expected))
        contenders.append(contender)
        print(f"{name}: {contender.name}: {firsts[-1]:.2f} s, {errors[-1]:.2e} from float32", flush=True)
    if options.compile:
        return []
    for contender in contenders:
        before = kept_by_graphs()
        for _ in range(WARM_UP):
            one_time(contender)
        contender.kept = kept_by_graphs() - before
    times = [[one_time(c) for c in contenders] for _ in range(options.repeats)]
    medians = dict(zip((c.name for c in contenders), map(statistics.median, zip(*times, strict=True)), strict=True))
    alone = {c.name: statistics.median(one_time(c, ahead=True) for _ in range(10)) for c in contenders}
    measured = []
    for contender, first, error in zip(contenders, firsts, errors, strict=True):
        peer = "inductor graphs" if contender.name.endswith("graphs") else "inductor"
        median = medians[contender.name]
        measured.append(
            Measured(
                name,
                contender.name,
                median,
                alone[contender.name],
                median / medians.get(peer, median),
                peak(contender),
                error,
                first,
            )
        )
        if options.profile:
            options.profile.mkdir(parents=True, exist_ok=True)
            profiled(contender, options.profile / f"{name}-{contender.name.replace(' ', '-')}.txt")
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--contenders", nargs="+", default=[])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if len(options.rows) > 1:  # each in a process of its own
        rest = [x for x in sys.argv[1:] if x not in (*options.rows, "--rows")]
        for name in options.rows:
            path = [str(options.json.with_suffix(f".{name}.json"))] if options.json else []
            cut = rest if not options.json else [x for x in rest if x not in ("--json", str(options.json))]
            subprocess.run(
                [sys.executable, __file__, "--rows", name, *cut, *(["--json", *path] if path else [])], check=False
            )
        return
    measured = run(options.rows[0], options)
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the interpreter"
    for one in measured:
        print(
            f"{one.row:14} {one.name:16} {one.milliseconds:9.3f} ms {one.of_inductor:6.3f} of inductor "
            f"{one.alone:9.3f} ms alone "
            f"{one.megabytes:9.1f} MiB {one.error:9.2e} from float32, first call {one.first_call_seconds:.1f} s"
        )
    if options.json and measured:
        options.json.write_text(json.dumps({"device": where, "rows": [asdict(one) for one in measured]}, indent=1))


if __name__ == "__main__":
    main()
