"""Writes the tables of README.md and docs/torch.md from the measurements in bench/: models, products and attention
beside their peers.

python docs/shares.py          # or: make docs
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, TORCH = ROOT / "README.md", ROOT / "docs" / "torch.md"
MEASURED = ROOT / "bench" / "hopper-h200.json"
RUN = "bf16"
SIZES = ("1024", "2048", "4096", "8192", "4095", "16x8192x8192", "128x16384x4096")
ATTENTION = ROOT / "bench" / "attention-h200.json"
WIDTHS, LENGTH = (64, 128, 256), 4096
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


def table() -> str:
    """TFLOP/s and shares, size by size."""
    (run,) = (run for run in json.loads(MEASURED.read_text()) if run["run"] == RUN)
    found = {(row["name"], row["size"]): row["tflops"] for row in run["rows"]}
    ours, theirs = ([found[name, _full(size)] for size in SIZES] for name in ("warploom", "cuBLAS"))
    rows = (
        ("M x N x K", *(size if "x" in size else f"{size}³" for size in SIZES)),
        ("---", *("---:" for _ in SIZES)),
        ("TFLOP/s", *(f"{one:.{0 if one >= 100 else 1}f}" for one in ours)),
        ("relative to cuBLAS", *(f"{one / other:.2f}" for one, other in zip(ours, theirs, strict=True))),
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


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


def attention() -> str:
    """The same of attention, without a mask and with a causal one."""
    rows = [row for row in json.loads(ATTENTION.read_text()) if row["length"] == LENGTH]
    found = {(row["name"], row["width"], row["causal"]): row["tflops"] for row in rows}
    kinds = [(width, causal) for width in WIDTHS for causal in (False, True)]
    ours, theirs = ([found[name, *kind] for kind in kinds] for name in ("warploom", "cudnn"))
    table = (
        ("head size", *(f"{width}{', causal' if causal else ''}" for width, causal in kinds)),
        ("---", *("---:" for _ in kinds)),
        ("TFLOP/s", *(f"{one:.0f}" for one in ours)),
        ("relative to cuDNN", *(f"{one / other:.2f}" for one, other in zip(ours, theirs, strict=True))),
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def _full(size: str) -> str:
    return size if "x" in size else f"{size}x{size}x{size}"


def text(page: Path = README) -> str:
    """A page with the tables as they are measured."""
    written = page.read_text(encoding="utf-8")
    for name, made in (("models", models), ("shares", table), ("attention", attention)):
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        written = between.sub(lambda match, made=made: f"{match[1]}{made()}{match[2]}", written)
    return written


if __name__ == "__main__":
    for each in (README, TORCH):
        each.write_text(text(each), encoding="utf-8")
