"""Families of models through the backend of `torch.compile`, on the interpreter or a GPU, with tiny sizes and random
weights.

    python test/torch_families.py                          # all families in all modes
    python test/torch_families.py Llama BERT --modes inference training --left
    python test/torch_families.py --jobs 16 --table        # a table in Markdown, as docs/torch.md has it
    python test/torch_families.py --check                  # each compiled part beside eager mode too
    python test/torch_families.py --device cuda --rest inductor

`transformers`, `timm` and `torchvision` bring most of the models; families of a package that is not installed are
skipped, which is said. A model computes in bf16 (in f32 under autocast), and its results and gradients are compared
with those of the same model in f64: none may be further from them than torch's eager mode by more than a tenth. The
table has the nodes that compute in each mode, compiled and all, and the distance relative to that of eager mode; "in
parts" is what torch itself cannot capture as one graph. Then come the reasons of those that were left.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import importlib
import math
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from warploom.runtime import torch_backend, torch_load, torch_save

pytree: Any = importlib.import_module("torch.utils._pytree")
dynamo: Any = importlib.import_module("torch._dynamo")
testing: Any = importlib.import_module("torch._dynamo.testing")

FURTHER = 1.1
"""How much further from float64 than eager mode a result may be."""

LEVEL = 1.5
"""How much further one step may be before eager mode is asked whether two experts of its router are level."""

MIN = 2.0**-9
"""A relative distance from float64 that is no fault: half a rounding to bf16."""

DRAWS = 6
"""How many more inputs are drawn, or roundings, where a result is further off: few numbers may be so by chance."""

SMALL, ZERO = 2.0**-7, 2.0**-30
"""What is a small element, relative to the median of all tensors, and what is none."""

CONSTANT = 0.125
"""How far elements are put apart of parameters that begin as one number, such as biases: it would hide which are read.
"""

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Whether parts are compared with eager mode and the trace of a failure is printed; where kernels run, and who runs
    what is not compiled."""

    check: bool = False
    trace: bool = False
    device: str = "cpu"
    rest: str = "eager"


Task = tuple[str, str, Settings]
"""A family, a mode and the settings."""


@dataclass(frozen=True)
class Family:
    """A model with its inputs for a batch; `modes` beside those of all families."""

    package: str
    model: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    modes: tuple[str, ...] = ()
    transformer: bool = False
    dynamic: bool = True


def tokens(batch: int, length: int = 12, name: str = "input_ids", vocabulary: int = 96) -> Inputs:
    return {name: torch.randint(1, vocabulary, (batch, length))}


def image(batch: int, name: str = "x", size: int = 32) -> Inputs:
    return {name: torch.randn(batch, 3, size, size)}


def of_transformers(kind: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A model of `transformers`, by the name of its class, with a configuration of these sizes."""

    def make() -> nn.Module:
        module = importlib.import_module("transformers")
        model = getattr(module, kind)
        config = model.config_class(**sizes)
        return model._from_config(config) if hasattr(model, "_from_config") else model(config)

    return make


def of_timm(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    return lambda: importlib.import_module("timm").create_model(name, num_classes=10, **sizes)


def of_torchvision(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(importlib.import_module("torchvision").models, name)(num_classes=10, **sizes)


def declare_torchvision() -> None:
    """Lets torchvision be imported where its own operators do not load, for they need CUDA's libraries. Models call
    none of them; transformers and timm import it too."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in [m for m in sys.modules if m.startswith("torchvision")]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")


DECODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
ENCODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
IMAGES = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
GENERATES = ("generate-static", "generate-dynamic")


class Perceptron(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 24))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers, self.head = kind(16, 24, num_layers=2, batch_first=True), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Unet(nn.Module):
    """A UNet of two steps with group norms, attention at the bottom, and an embedding of the time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, n) for n in (16, 32, 32))
        self.time, self.middle = nn.Linear(16, 32), nn.Conv2d(32, 32, 3, padding=1)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.last = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        silu = nn.functional.silu
        skip = silu(self.norms[0](self.first(x)))
        y = silu(self.norms[1](self.down(skip))) + self.time(t)[:, :, None, None]
        y = self.middle(y)
        rows = self.norms[2](y).flatten(2).transpose(1, 2)
        y = y + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(y.shape)
        return self.last(torch.cat([skip, self.up(y)], 1))


class Attending(nn.Module):
    """Attention written by hand, with a causal mask and dropout of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).view(batch, rows, 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * 8**-0.5
        future = torch.ones(rows, rows, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))


def rows(batch: int, width: int = 24, length: int = 10) -> Inputs:
    return {"x": torch.randn(batch, length, width)}


def translated(batch: int) -> Inputs:
    return {**tokens(batch), **tokens(batch, 6, "decoder_input_ids")}


def patches(batch: int) -> Inputs:
    """Of 16 x 16 pixels, each of its patches as a row, and how many there are in rows and columns."""
    shapes = torch.tensor([[4, 4]] * batch)
    mask = torch.ones(batch, 16, dtype=torch.long)
    return {"pixel_values": torch.randn(batch, 16, 48), "pixel_attention_mask": mask, "spatial_shapes": shapes}


def decoder(kind: str, **sizes: Any) -> Family:
    """A decoder of `transformers`, which generates; a size of None is left out."""
    make = of_transformers(kind, **{k: v for k, v in {**DECODER, **sizes}.items() if v is not None})
    return Family("transformers", make, tokens, ("checkpointing", *GENERATES), True)


def encoder(kind: str, **sizes: Any) -> Family:
    return Family("transformers", of_transformers(kind, **{**ENCODER, **sizes}), tokens, ("checkpointing",), True)


def of_images(kind: str, name: str, *modes: str, **sizes: Any) -> Family:
    transformer = kind == "transformers"
    make = {"transformers": of_transformers, "timm": of_timm, "torchvision": of_torchvision}[kind](name, **sizes)
    return Family(kind, make, partial(image, name="pixel_values" if transformer else "x"), modes, transformer)


LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "head_dim": 8,
}  # fmt: skip
WHISPER = {
    "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 8,
    "max_source_positions": 16, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
CLIP = {"text_config": {**ENCODER, "eos_token_id": 2}, "vision_config": IMAGES, "projection_dim": 16}
T5 = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
      "decoder_start_token_id": 0}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 96, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
LINEAR = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "layer_types": ["linear_attention", "full_attention"]}  # fmt: skip
GROUPS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
          "n_group": 1, "topk_group": 1}  # fmt: skip
GEMMA_3N = {"vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8, "laurel_rank": 8, "sliding_window": 8,
            "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0, 0.0],
            "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
HYBRID = {
    "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 32, "mamba_n_heads": 8,
    "mamba_d_state": 8, "mamba_d_head": 8, "mamba_expand": 2, "mamba_chunk_size": 8,
    "layer_types": ["mamba", "attention"],
}  # fmt: skip
GPT_OSS = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
           "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
LLAMA_4 = {"intermediate_size_mlp": 64, "num_local_experts": 4, "num_experts_per_tok": 1, "attention_chunk_size": 8}
MAMBA_2 = {"vocab_size": 96, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "head_dim": 8, "num_heads": 8,
           "expand": 2, "n_groups": 1, "chunk_size": 8}  # fmt: skip
MULTIMODAL = {
    "vision_config": {**IMAGES, "crop_size": 32, "image_token_id": 90},
    "audio_config": {
        "hidden_size": 32, "intermediate_size": 32, "num_blocks": 1, "num_attention_heads": 4, "input_size": 16,
        "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "nemo_conv_channels": 32, "audio_token_id": 91,
    },
}  # fmt: skip
MODERN_BERT = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
               "local_attention": 8}  # fmt: skip
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
           "norm_rel_ebd": "layer_norm", "share_att_key": True}  # fmt: skip
WAV2VEC2 = {
    **ENCODER, "conv_dim": (8, 8), "conv_stride": (4, 2), "conv_kernel": (8, 4), "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "hidden_dropout": 0.0, "feat_proj_dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "layerdrop": 0.0, "mask_time_prob": 0.0, "apply_spec_augment": False,
}  # fmt: skip
SEGFORMER = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "drop_path_rate": 0.0,
}  # fmt: skip
BART = {
    "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "perceptron": Family("torch", Perceptron, rows),
    "attention by hand": Family("torch", Attending, partial(rows, width=32)),
    "TransformerEncoder": Family("torch", Encoder, partial(rows, width=32), (), True),
    "LSTM": Family("torch", partial(Recurrent, nn.LSTM), partial(rows, width=16)),
    "GRU": Family("torch", partial(Recurrent, nn.GRU), partial(rows, width=16)),
    "UNet": Family("torch", Unet, lambda batch: {**image(batch, size=16), "t": torch.randn(batch, 16)}),
    "Llama": decoder("LlamaForCausalLM"),
    "Mistral": decoder("MistralForCausalLM", sliding_window=8),
    "Qwen2": decoder("Qwen2ForCausalLM"),
    "Qwen3": decoder("Qwen3ForCausalLM"),
    "Gemma 2": decoder("Gemma2ForCausalLM", sliding_window=8),
    "Gemma 3": decoder("Gemma3ForCausalLM", sliding_window=8),
    "Phi-3": decoder("Phi3ForCausalLM"),
    "GPT-2": Family(
        "transformers", of_transformers("GPT2LMHeadModel", **GPT2), tokens, ("checkpointing", *GENERATES), True
    ),
    "GPT-NeoX": decoder("GPTNeoXForCausalLM"),
    "OPT": decoder("OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32, dropout=0.0),
    "Falcon": decoder("FalconForCausalLM", head_dim=None, num_kv_heads=2, new_decoder_architecture=True),
    "Mixtral": decoder("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2),
    "Qwen3-MoE": decoder("Qwen3MoeForCausalLM", **EXPERTS),
    "DeepSeek-V3": decoder("DeepseekV3ForCausalLM", **LATENT),
    "Mamba": Family(
        "transformers",
        of_transformers("MambaForCausalLM", vocab_size=96, hidden_size=32, state_size=4, num_hidden_layers=2),
        tokens,
    ),
    "BERT": encoder("BertModel"),
    "RoBERTa": encoder("RobertaModel", pad_token_id=0),
    "DistilBERT": encoder(
        "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=64, dropout=0.0, attention_dropout=0.0
    ),
    "T5": Family(
        "transformers", of_transformers("T5ForConditionalGeneration", **T5), translated, ("checkpointing",), True
    ),
    "Whisper": Family(
        "transformers",
        of_transformers("WhisperForConditionalGeneration", **WHISPER),
        lambda batch: {"input_features": torch.randn(batch, 8, 32), **tokens(batch, 6, "decoder_input_ids")},
        ("checkpointing",),
        True,
    ),
    "CLIP": Family(
        "transformers",
        of_transformers("CLIPModel", **CLIP),
        lambda batch: {**tokens(batch), **image(batch, "pixel_values")},
        (),
        True,
    ),
    "ViT": of_images("transformers", "ViTModel", "checkpointing", **IMAGES),
    "DINOv2": of_images("transformers", "Dinov2Model", **{k: v for k, v in IMAGES.items() if k != "intermediate_size"}),
    "Qwen3-Next": decoder("Qwen3NextForCausalLM", **EXPERTS, **LINEAR, shared_expert_intermediate_size=32),
    "Qwen3.5": decoder("Qwen3_5ForCausalLM", **LINEAR),
    "GLM-4": decoder("Glm4ForCausalLM"),
    "GLM-4 MoE": decoder("Glm4MoeForCausalLM", **GROUPS),
    # In training it clamps weights in place. With checkpointing, autograd then refuses the gradient of any AOT backend.
    "Gemma 3n": replace(decoder("Gemma3nForCausalLM", **GEMMA_3N), modes=GENERATES),
    "SmolLM3": decoder("SmolLM3ForCausalLM"),
    "Granite": decoder("GraniteForCausalLM"),
    "Granite hybrid": decoder("GraniteMoeHybridForCausalLM", **HYBRID),
    "OLMo 2": decoder("Olmo2ForCausalLM"),
    "OLMo 3": decoder("Olmo3ForCausalLM", sliding_window=8),
    "gpt-oss": decoder("GptOssForCausalLM", **GPT_OSS),
    "Llama 4": decoder("Llama4ForCausalLM", **LLAMA_4),
    "LFM2": decoder("Lfm2ForCausalLM", layer_types=["conv", "full_attention"], block_multiple_of=8),
    "Cohere 2": decoder("Cohere2ForCausalLM", sliding_window=8),
    "Phi-4 multimodal": decoder("Phi4MultimodalForCausalLM", **MULTIMODAL),
    "Mamba 2": Family("transformers", of_transformers("Mamba2ForCausalLM", **MAMBA_2), tokens),
    "ModernBERT": encoder("ModernBertModel", **MODERN_BERT),
    "DeBERTa v2": encoder("DebertaV2Model", **DEBERTA),
    "BART": Family("transformers", of_transformers("BartModel", **BART), translated, ("checkpointing",), True),
    "Wav2Vec2": Family(
        "transformers",
        of_transformers("Wav2Vec2Model", **WAV2VEC2),
        lambda batch: {"input_values": torch.randn(batch, 200)},
        ("checkpointing",),
        True,
    ),
    "SigLIP": of_images("transformers", "SiglipVisionModel", "checkpointing", **IMAGES),
    "SigLIP 2": Family(
        "transformers",
        of_transformers("Siglip2VisionModel", **{**IMAGES, "num_patches": 16, "patch_size": 4}),
        patches,
        ("checkpointing",),
        True,
    ),
    "DINOv3": of_images("transformers", "DINOv3ViTModel", "checkpointing", pos_embed_rescale=None, **IMAGES),
    "SegFormer": of_images("transformers", "SegformerModel", **SEGFORMER),
    "timm ViT": of_images(
        "timm", "vit_tiny_patch16_224", "checkpointing", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4
    ),
    "ConvNeXt": of_images("timm", "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    "ResNet": of_images("timm", "resnet18", layers=(1, 1, 1, 1), channels=(8, 16, 24, 32)),
    # Of 32 x 32 pixels the last norms have two values for each channel: their gradients are roundings alone.
    "EfficientNet": replace(of_images("timm", "test_efficientnet"), inputs=partial(image, size=64)),
    "Swin": of_images(
        "timm",
        "swin_tiny_patch4_window7_224",
        img_size=32,
        patch_size=4,
        window_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 4),
        drop_path_rate=0.0,
    ),
    "MLP-Mixer": Family(
        "timm",
        lambda: importlib.import_module("timm.models.mlp_mixer").MlpMixer(
            num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32
        ),
        image,
    ),
    "torchvision ResNet": of_images("torchvision", "resnet18"),
    "torchvision MobileNet": of_images("torchvision", "mobilenet_v3_small", width_mult=0.25, dropout=0.0),
    "torchvision VGG": of_images("torchvision", "vgg11_bn", dropout=0.0),
}

MODES = ("inference", "training", "dynamic", "autocast", "export", "saved")


@dataclass
class Outcome:
    """Of one family in one mode: nodes compiled and left by reason, distances from float64, and what failed."""

    compiled: int = 0
    left: Counter[str] = None  # pyright: ignore[reportAssignmentType]
    further: float = 0.0
    failure: str = ""
    graphs: int = 0
    broken: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.left or Counter()

    @property
    def text(self) -> str:
        nodes = f"{self.compiled}/{self.compiled + self.left.total()}"
        return self.failure or f"{nodes}, " + (
            f"{self.graphs} graphs" if self.graphs else f"{self.further:.2f}{' in parts' * self.broken}"
        )


def floats(results: Any) -> list[Tensor]:
    """The tensors of floats in what a model returns."""
    flat = pytree.tree_leaves(dict(results) if hasattr(results, "to_tuple") else results)
    return [x for x in flat if isinstance(x, Tensor) and x.is_floating_point()]


def placed(family: Family, batch: int, device: str) -> Inputs:
    return {k: v.to(device) for k, v in family.inputs(batch).items()}


def cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


def stepped(call: Callable[..., Any], model: nn.Module, inputs: Inputs, training: bool) -> list[Tensor]:
    """The results of a step, and the gradients of the parameters where it trains; the losses weigh results alike."""
    model.zero_grad(set_to_none=True)
    if not training:
        with torch.inference_mode():
            return [x.clone() for x in floats(call(**inputs))]
    out = [x for x in floats(call(**inputs)) if x.requires_grad]
    draw = torch.Generator().manual_seed(3)
    grads = [torch.randn(x.shape, generator=draw).to(x) for x in out]
    torch.autograd.backward(out, grads)
    return [x.detach() for x in out] + [p.grad for p in model.parameters() if p.grad is not None]


def distance(result: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The relative distance of all tensors, each by its own norm, or by what is a small element elsewhere. Gradients
    that are zero but for roundings, such as those of a bias of keys, are sums of elements as large as those of others,
    by which their distance is measured."""
    if len(result) != len(exact):
        raise ValueError(f"expected {len(exact)} tensors, got {len(result)}")
    pairs = [(f, e) for f, e in zip(result, exact, strict=True) if e.numel()]
    sizes = [float(e.double().square().mean().sqrt()) for _, e in pairs]
    middle = sorted(sizes)[len(sizes) // 2]
    sizes = [max(size, SMALL * middle, 1e-9) if size > ZERO * middle else max(middle, 1e-9) for size in sizes]
    parts = [(f.double() - e.double()).square().mean().sqrt() / size for (f, e), size in zip(pairs, sizes, strict=True)]
    return float(torch.stack(parts).square().mean().sqrt())


def distances(results: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]) -> tuple[float, float]:
    """How far from float64 results and eager mode's are."""
    return distance(results, exact), distance(eager, exact)


def further(away: Sequence[tuple[float, float]]) -> float:
    """How much further from float64 results are than eager mode's, over all inputs; NaN is infinitely far."""
    own, other = (math.sqrt(sum(x * x for x in each) / len(each)) for each in zip(*away, strict=True))
    return own / max(other, MIN) if own == own else float("inf")


def loaded(program: Any, options: dict[str, Any]) -> nn.Module:
    """A program as it is read from the file that it was saved to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        torch_save(program, path, **{k: v for k, v in options.items() if k != "rest"})
        return torch_load(path)


def run(family: Family, mode: str, settings: Settings) -> Outcome:
    """One family in one mode.

    Raises:
        Exception: whatever the model, torch or the backend raises.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain = family.model().to(settings.device)
    for parameter in plain.parameters():
        if parameter.is_floating_point() and parameter.unique().numel() == 1:
            parameter.data.add_(CONSTANT * torch.randn_like(parameter))
    torch.manual_seed(1)
    batches = [
        partial(placed, family, n, settings.device) for n in ((2, 3) if mode == "dynamic" and family.dynamic else (2,))
    ]
    again = DRAWS * batches[-1:]
    training = mode in ("training", "autocast", "checkpointing")
    plain.train(training)
    if mode == "checkpointing":
        enable = getattr(plain, "gradient_checkpointing_enable", None) or partial(plain.set_grad_checkpointing, True)
        enable()
    exact = deepcopy(plain).double()
    if hasattr(getattr(exact, "config", None), "_experts_implementation"):
        setting: Any = exact.config
        setting._experts_implementation = "eager"  # torch has no products of groups in f64
    model = plain if mode == "autocast" else plain.bfloat16()
    outcome, seen = Outcome(), []
    options = {"explain": seen.append, "rest": settings.rest, "check": settings.check}
    if mode in GENERATES:
        outcome.failure = generated(model, batches[0](), mode, options)
    else:
        eager, autocast = deepcopy(model), mode == "autocast"
        called = model
        if mode in ("export", "saved"):
            for each in (*model.modules(), *exact.modules()):
                if hasattr(each, "config"):
                    config: Any = each.config
                    config.use_cache = False  # caches are no type that export returns
            exported = torch.export.export(model, (), cast(batches[0](), torch.bfloat16), strict=False)
            called = loaded(exported, options) if mode == "saved" else exported.module()
        full = mode in ("inference", "export")
        compiling = partial(torch.compile, called, backend=torch_backend, options=options)
        call = called if mode == "saved" else compiling(fullgraph=full, dynamic=mode == "dynamic")
        away = list[tuple[float, float]]()
        for inputs in (batch() for batch in (*batches, *again)):
            if len(away) >= len(batches) and further(away) <= FURTHER:
                break
            cast_inputs = cast(inputs, torch.float32 if autocast else torch.bfloat16)
            wide = stepped(exact, exact, cast(inputs, torch.float64), training)
            if training and distance(stepped(exact, exact, cast(inputs, torch.float64), training), wide) > MIN:
                raise ValueError("results depend on random numbers, which are others in each step: set dropout to 0")
            with torch.autocast(settings.device, torch.bfloat16) if autocast else nullcontext():
                try:
                    ours = stepped(call, called, cast_inputs, training)
                except (dynamo.exc.Unsupported, dynamo.exc.UserError):  # what torch cannot capture as one graph
                    outcome.broken, call = True, compiling()
                    ours = stepped(call, called, cast_inputs, training)
                step = partial(stepped, eager, eager, cast_inputs, training)
                own, other = distances(ours, step(), wide)
                if own > LEVEL * max(other, MIN) and own <= rounded_step(step, eager, wide):
                    other = own
                if own > FURTHER * max(other, MIN) and settings.rest == "inductor":  # it takes an LSTM apart
                    inductors = stepped(torch.compile(eager, backend="inductor"), eager, cast_inputs, training)
                    other = max(other, distance(inductors, wide))
            away.append((own, other))
        outcome.further = further(away)
    outcome.graphs = len(seen) if mode in GENERATES else 0
    for explanation in seen:
        outcome.compiled += sum(len(part.nodes) for part in explanation.compiled)
        outcome.left.update(f"{part.operator}: {part.reason}" for part in explanation.left)
    return outcome


def put_off(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Gives a model these weights, each off by a rounding at most."""
    with torch.no_grad():
        for key, weight in model.state_dict().items():
            if weight.is_floating_point():
                weight.copy_(weights[key] * (1 + 2.0**-8 * (2 * torch.rand(weight.shape).to(weight.device) - 1)))


def rounded_step(step: Callable[[], Sequence[Tensor]], model: nn.Module, exact: Sequence[Tensor]) -> float:
    """How far from float64 a step of eager mode is where each weight is off by a rounding, at most in some draws: a
    router may choose another expert then, where two are level."""
    weights, away = {k: v.clone() for k, v in model.state_dict().items()}, list[float]()
    for _ in range(DRAWS):
        put_off(model, weights)
        away.append(distance(step(), exact))
    model.load_state_dict(weights)
    return max(away)


def generated(model: nn.Module, inputs: Inputs, mode: str, options: dict[str, Any]) -> str:
    """Whether generation gives a token that eager mode gives too, of no more graphs than torch asks for; "" if so.
    Logits of equal size may change places."""
    settings: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "output_logits": True,
                                "return_dict_in_generate": True, "min_new_tokens": 4}  # fmt: skip
    if mode == "generate-static":
        settings |= {"cache_implementation": "static", "disable_compile": True}
    forward, counter = model.forward, testing.CompileCounter()
    model.forward = torch.compile(forward, backend=counter)
    expected: Any = model.generate(**inputs, **settings)
    torch._dynamo.reset()
    seen: list[Any] = []

    def explain(explanation: Any) -> None:
        seen.append(explanation)
        options["explain"](explanation)

    model.forward = torch.compile(forward, backend=torch_backend, options={**options, "explain": explain})
    output: Any = model.generate(**inputs, **settings)
    if len(seen) > counter.frame_count:
        return f"{len(seen)} graphs, where any backend gets {counter.frame_count}"
    for step, (ours, theirs) in enumerate(zip(output.logits, expected.logits, strict=True)):
        bound, off = 2.0**-5 * float(theirs.abs().max()), float((ours - theirs).abs().max())
        if not off <= bound and not off <= rounded(model, forward, inputs, expected.sequences, step):
            return f"logits differ by {off:.3g}"
        if not torch.equal(ours.argmax(-1), theirs.argmax(-1)):
            break
    return ""


def rounded(model: nn.Module, forward: Any, inputs: Inputs, sequences: Tensor, step: int) -> float:
    """How far the logits of a step are off where each weight is off by a rounding: at most twice as far as in some
    draws. A router may choose another expert then, where two are level."""
    prefix = {**inputs, "input_ids": sequences[:, : inputs["input_ids"].shape[1] + step]}
    model.forward, weights = forward, {k: v.clone() for k, v in model.state_dict().items()}
    logits = list[Tensor]()
    with torch.inference_mode():
        for draw in range(DRAWS + 1):
            if draw:
                put_off(model, weights)
            logits.append(model(**prefix).logits[:, -1].double())
    return 2 * max(float((x - logits[0]).abs().max()) for x in logits[1:])


def attempt(name: str, mode: str, settings: Settings) -> Outcome:
    """One family in one mode; what it raises is its failure."""
    prepare()
    start = time.perf_counter()
    try:
        outcome = run(FAMILIES[name], mode, settings)
    except Exception as error:
        if settings.trace:
            traceback.print_exc()
        first = " ".join(str(error).split("\n\n")[0].split())
        outcome = Outcome(failure=f"{type(error).__name__}: {first}"[:400])
    outcome.seconds = time.perf_counter() - start
    return outcome


@cache
def prepare() -> None:
    """Settings of torch, once in each process."""
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.allow_rnn = True
    torch.backends.mkldnn.set_flags(_enabled=False)  # its LSTM is one operation, which has no form but torch's
    declare_torchvision()


def alone(task: Task) -> tuple[str, str, Outcome]:
    """A task of a pool, in a process with one thread."""
    torch.set_num_threads(1)
    return *task[:2], attempt(*task)


def installed(package: str) -> bool:
    return find_spec(package) is not None


def outcomes(tasks: Sequence[Task], jobs: int, seconds: float) -> Iterator[tuple[str, str, Outcome]]:
    """What comes of the tasks, in their order with one job; none that ends after so many seconds."""
    start = time.monotonic()
    if jobs == 1:
        for task in tasks:
            yield *task[:2], attempt(*task)
        return
    with get_context("spawn").Pool(jobs) as pool:
        every = pool.imap_unordered(alone, tasks)
        for _ in tasks:
            try:
                yield every.next(min(max(0.1, seconds + start - time.monotonic()), threading.TIMEOUT_MAX))
            except TimeoutError:
                pool.terminate()
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--modes", nargs="+", default=[*MODES, "checkpointing", *GENERATES])
    parser.add_argument("--left", action="store_true", help="list the reasons by family")
    parser.add_argument("--table", action="store_true", help="print a table of all results in Markdown at the end")
    parser.add_argument("--check", action="store_true", help="compare each compiled part with eager mode")
    parser.add_argument("--trace", action="store_true", help="print the trace of what fails")
    parser.add_argument("--device", default="cpu", help="cpu, where kernels are interpreted, or cuda")
    parser.add_argument("--rest", default="eager", help="eager or inductor")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, with several jobs")
    options = parser.parse_args()
    prepare()
    settings = Settings(options.check, options.trace, options.device, options.rest)
    tasks: list[Task] = []
    for mode in options.modes:
        for name, family in FAMILIES.items():
            if options.families and name not in options.families:
                continue
            if not installed(family.package):
                print(f"{name}: skipped, {family.package} is not installed") if mode == options.modes[0] else None
            elif mode in MODES or mode in family.modes:
                tasks.append((name, mode, settings))
    done: dict[str, dict[str, Outcome]] = {}
    faults, share, reasons = 0, [0, 0], Counter[str]()
    for name, mode, outcome in outcomes(tasks, options.jobs, options.seconds):
        done.setdefault(name, {})[mode] = outcome
        reasons += outcome.left
        faults += bool(outcome.failure) or outcome.further > FURTHER
        if FAMILIES[name].transformer:
            share[0] += outcome.compiled
            share[1] += outcome.compiled + outcome.left.total()
        print(f"{name}, {mode}: {outcome.text} ({outcome.seconds:.0f} s)", flush=True)
        for reason, count in outcome.left.most_common() if options.left else ():
            print(f"    {count:4} {reason}")
    print("\nleft:")
    for reason, count in reasons.most_common(60):
        print(f"{count:6} {reason}")
    if options.table:
        print(f"\n{table(done, options.modes)}")
    if share[1]:
        print(f"\ntransformers: {share[0]} of {share[1]} nodes that compute are compiled, {share[0] / share[1]:.1%}")
    print(f"{sum(map(len, done.values()))} of {len(tasks)}, {faults} failed")
    return 1 if faults else 0


def table(done: dict[str, dict[str, Outcome]], modes: Sequence[str]) -> str:
    """Families and modes in Markdown: nodes compiled and all, and the distance relative to that of eager mode."""
    lines = [["family", *modes], ["---"] * (1 + len(modes))]
    for name in FAMILIES:
        if name in done:
            lines.append([name, *(done[name][mode].text if mode in done[name] else "" for mode in modes)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
