"""Writes the tables of README.md, docs/torch.md and bench/RESULTS.md from the measurements in bench/: what models are
made of, models, and functions of rows, beside their peers.

python docs/shares.py          # or: make docs
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import geometric_mean

ROOT = Path(__file__).parent.parent
README, TORCH, RESULTS = ROOT / "README.md", ROOT / "docs" / "torch.md", ROOT / "bench" / "RESULTS.md"
WORK = ROOT / "bench" / "work-h100.json"
KINDS = {
    "products": ("products of bf16, of shapes that models have", "cuBLAS"),
    "gated": (
        "SwiGLU of 16, 2048 and 8192 rows, 4096 -> 14336",
        "`torch.mm`, and kernels for silu and the product",
    ),
    "convolutions": ("convolutions with relu of ResNet-50, ConvNeXt-T and SDXL", "cuDNN without relu"),
    "rows": ("norms, softmax, losses, their gradients, quantisation, casts, at rows of 4096", "inductor"),
    "attention": ("attention, forward", "cuDNN"),
    "gradients": ("attention, backward", "cuDNN"),
    "decode": ("attention of one query for each head", "the better of cuDNN and FlashAttention"),
    "experts": ("products of experts, and the gradients of their weights", "`torch._grouped_mm`"),
    "blocks": ("products of 8-bit floats with scales of blocks", "`torch._scaled_mm`"),
    "weights": ("weights of 4 bits, in groups of 128 and mxfp4, for 16, 256 and 4096 rows", "cuBLAS with bf16"),
}
"""The kinds of `bench/work.py`, as they are named to a reader, and their peers."""
ROWS = ROOT / "bench" / "rows-h100.json"
MODELS = ROOT / "bench" / "torch-models-h100-2.json"
NAMES = {
    "llama-prefill": "Llama 3 8B, 2 layers, prefill 4 x 2048",
    "llama-decode": "the same, decode, batch 16, cache 2048",
    "llama-int8": "the same, weights of int8",
    "llama-int4": "the same, weights of int4",
    "vit": "ViT-L, 4 blocks, batch 32, inference",
    "vit-train": "the same, forward and backward",
    "gpt2-train": "GPT-2 medium, 4 layers, 8 x 1024, autocast, forward and backward",
    "mixtral": "Mixtral layer, 4096 tokens",
    "convnext": "ConvNeXt-T, batch 64, channels last",
    "resnet": "ResNet-50, batch 64, channels last",
}
"""The rows of `bench/torch_models.py`, as they are named to a reader."""


def work() -> str:
    """The mean speed of each kind relative to its peer, the least, and how many cases are slower than the peer."""
    run = json.loads(WORK.read_text())
    heads = (f"work, {run['device']}", "beside", "cases", "mean speed", "least", "slower")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for kind, (name, peer) in KINDS.items():
        found = [row["peer"] / row["ours"] for row in run["rows"] if row["kind"] == kind]
        slower = sum(round(speed, 2) < 1 for speed in found)
        speeds = f"{geometric_mean(found):.2f} | {min(found):.2f}"
        lines.append(f"| {name} | {peer} | {len(found)} | {speeds} | {slower} |")
    return "".join(f"{line}\n" for line in lines)


def models() -> str:
    """Milliseconds of each model, of some in CUDA graphs too, and the time relative to inductor's, with the host and
    without."""
    run = json.loads(MODELS.read_text())
    times: dict[tuple[str, str], float] = {}
    alone: dict[tuple[str, str], float] = {}
    for row in run["rows"]:
        times[row["row"], row["name"]], alone[row["row"], row["name"]] = row["milliseconds"], row["alone"]
    heads = (f"bf16, milliseconds, {run['device']}", "eager", "inductor", "Warploom", "of inductor", "the GPU alone")
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for row, name in NAMES.items():
        for graphs, shown in (("", name), (" graphs", f"{name}, in CUDA graphs")):
            ours, theirs = (times.get((row, f"{who}{graphs}")) for who in ("warploom", "inductor"))
            if ours is not None and theirs is not None:
                eager = "" if graphs else f"{times[row, 'eager']:.2f}"
                kept = alone[row, f"warploom{graphs}"] / alone[row, f"inductor{graphs}"]
                lines.append(f"| {shown} | {eager} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} | {kept:.2f} |")
    return "".join(f"{line}\n" for line in lines)


def rows() -> str:
    """Microseconds of each function of rows, for each length of them, and the speed relative to a copy and inductor."""
    found = {(row["case"], row["columns"]): row for row in json.loads(ROWS.read_text())}
    lengths = sorted({columns for _, columns in found})
    lines = [f"| us; of the copy; of inductor | kernels | {' | '.join(map(str, lengths))} |"]
    lines.append(f"| --- | ---: | {' | '.join('---' for _ in lengths)} |")
    for case in dict.fromkeys(case for case, _ in found):
        own = [found.get((case, columns)) for columns in lengths]
        cells = [_cell(row) if row else "" for row in own]
        kernels = sorted({row["launches"] for row in own if row})
        lines.append(f"| {case} | {', '.join(map(str, kernels))} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _cell(row: dict[str, float]) -> str:
    shares = [row[peer] / row["ours"] for peer in ("copy", "inductor") if row[peer] == row[peer]]
    return "; ".join([f"{row['ours']:.0f}", *(f"{share:.2f}" for share in shares)])


def text(page: Path = README) -> str:
    """A page with the tables as they are measured."""
    written = page.read_text(encoding="utf-8")
    for name, made in (("work", work), ("models", models), ("rows", rows)):
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        written = between.sub(lambda match, made=made: f"{match[1]}{made()}{match[2]}", written)
    return written


if __name__ == "__main__":
    for each in (README, TORCH, RESULTS):
        each.write_text(text(each), encoding="utf-8")
