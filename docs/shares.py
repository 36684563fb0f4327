"""Writes the tables of README.md, docs/torch.md and bench/RESULTS.md from the measurements in bench/: what models are
made of, models, and functions of rows, beside their peers.

python docs/shares.py          # or: make docs
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).parent.parent
README, TORCH, RESULTS = ROOT / "README.md", ROOT / "docs" / "torch.md", ROOT / "bench" / "RESULTS.md"
WORK = [ROOT / "bench" / f"work-{gpu}.json" for gpu in ("h200", "h100")]
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
MODELS = [ROOT / "bench" / f"torch-models-{gpu}.json" for gpu in ("h200", "h100")]
"""The runs of `bench/torch_models.py`, those that tables show first."""
NAMES = {
    "llama-prefill": "Llama 3 8B, 2 layers, prefill 4 x 2048",
    "llama-decode": "the same, decode, batch 16, cache 2048",
    "llama-int8": "the same, weights of int8",
    "llama-int4": "the same, weights of int4",
    "vit": "ViT-L, 4 blocks, batch 32, inference",
    "vit-train": "the same, forward and backward",
    "gpt2-train": "GPT-2 medium, 4 layers, 8 x 1024, autocast, forward and backward",
    "bert-train": "BERT-large, 4 layers, 16 x 512, autocast, forward and backward",
    "t5": "T5-base, 4 layers each, 16 x 512 and 128",
    "whisper": "Whisper-small, 4 layers of its encoder, batch 8",
    "sdxl": "a block of SDXL's UNet, 640 channels, 64 x 64, batch 2, channels last",
    "mixtral": "Mixtral layer, 4096 tokens",
    "convnext": "ConvNeXt-T, batch 64, channels last",
    "resnet": "ResNet-50, batch 64, channels last",
}
"""The rows of `bench/torch_models.py`, as they are named to a reader."""


def work() -> str:
    """The mean speed of each kind relative to its peer, the least, and how many cases are slower, on each GPU."""
    runs = [json.loads(path.read_text()) for path in WORK]
    heads = ["work", "beside", "cases"]
    for run in runs:
        heads += [f"{_short(run)}: mean speed", "least", "slower"]
    lines = [f"| {' | '.join(heads)} |", f"| --- | --- | ---: |{' ---: | ---: | ---: |' * len(runs)}"]
    for kind, (name, peer) in KINDS.items():
        relative = [[row["peer"] / row["ours"] for row in run["rows"] if row["kind"] == kind] for run in runs]
        cells = [_speeds(each) if each else " |  | " for each in relative]
        lines.append(f"| {name} | {peer} | {max(map(len, relative))} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def slowest(below: float = 0.97) -> str:
    """The cases of each kind whose speed relative to the peer is below a limit, the slowest first."""
    lines = [f"| GPU | kind | cases below {below} of their peer |", "| --- | --- | --- |"]
    for run in (json.loads(path.read_text()) for path in WORK):
        for kind in KINDS:
            of_kind = ((row["peer"] / row["ours"], row["case"]) for row in run["rows"] if row["kind"] == kind)
            cases = [f"{case} {speed:.2f}" for speed, case in sorted(of_kind) if speed < below]
            if cases:
                lines.append(f"| {_short(run)} | {kind} | {'; '.join(cases)} |")
    return "".join(f"{line}\n" for line in lines)


def _short(run: dict[str, Any]) -> str:
    """The name of a GPU without its maker and its memory, such as "H100"."""
    return run["device"].removeprefix("NVIDIA ").split()[0]


def _speeds(speeds: list[float]) -> str:
    slower = sum(round(speed, 2) < 1 for speed in speeds)
    return f"{geometric_mean(speeds):.2f} | {min(speeds):.2f} | {slower}"


def _measured(path: Path) -> tuple[str, dict[tuple[str, str], dict[str, Any]]]:
    """The GPU of a run of models, and what was measured for each model and contender."""
    run = json.loads(path.read_text())
    return _short(run), {(row["row"], row["name"]): row for row in run["rows"]}


def models() -> str:
    """Milliseconds of each model on the first GPU, of some in CUDA graphs too, and the time relative to inductor's on
    each GPU, with the host and without. A cell is empty where the model was not measured."""
    gpus, runs = zip(*map(_measured, MODELS), strict=True)
    heads = [f"bf16, milliseconds, one {gpus[0]}", "eager", "inductor", "Warploom", "of inductor", "the GPU alone"]
    heads += [head for gpu in gpus[1:] for head in (f"one {gpu}: of inductor", "the GPU alone")]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for row, name in NAMES.items():
        for graphs, title in (("", name), (" graphs", f"{name}, in CUDA graphs")):
            if any((row, f"warploom{graphs}") in run for run in runs):
                contenders = "" if graphs else "eager", f"inductor{graphs}", f"warploom{graphs}"
                times = (runs[0].get((row, contender)) for contender in contenders)
                cells = ["" if time is None else f"{time['milliseconds']:.2f}" for time in times]
                cells += [cell for run in runs for cell in _of_inductor(run, row, graphs)]
                lines.append(f"| {title} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _of_inductor(run: dict[tuple[str, str], dict[str, Any]], row: str, graphs: str) -> list[str]:
    if (row, f"warploom{graphs}") not in run:
        return ["", ""]
    ours, theirs = run[row, f"warploom{graphs}"], run[row, f"inductor{graphs}"]
    return [f"{ours[key] / theirs[key]:.2f}" for key in ("milliseconds", "alone")]


def models_in_full() -> str:
    """What each contender takes for each model on each GPU, with its memory, its error and its first call."""
    heads = ("GPU", "model", "", "ms", "the GPU alone", "MiB", "error", "first call, s")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for gpu, run in map(_measured, MODELS):
        for (row, name), of in run.items():
            cells = (f"{of['milliseconds']:.3f}", f"{of['alone']:.3f}", f"{of['megabytes']:.0f}", f"{of['error']:.1e}")
            lines.append(f"| {gpu} | {row} | {name} | {' | '.join(cells)} | {of['first_call_seconds']:.1f} |")
    return "".join(f"{line}\n" for line in lines)


def rows() -> str:
    """Microseconds of each function of rows, for each length of them, and the speed relative to a copy and inductor."""
    rows = {(row["case"], row["columns"]): row for row in json.loads(ROWS.read_text())}
    lengths = sorted({columns for _, columns in rows})
    lines = [f"| us; of the copy; of inductor | kernels | {' | '.join(map(str, lengths))} |"]
    lines.append(f"| --- | ---: | {' | '.join('---' for _ in lengths)} |")
    for case in dict.fromkeys(case for case, _ in rows):
        own = [rows.get((case, columns)) for columns in lengths]
        cells = [_cell(row) if row else "" for row in own]
        kernels = sorted({row["launches"] for row in own if row})
        lines.append(f"| {case} | {', '.join(map(str, kernels))} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _cell(row: dict[str, float]) -> str:
    shares = [row[peer] / row["ours"] for peer in ("copy", "inductor") if row[peer] == row[peer]]
    return "; ".join([f"{row['ours']:.0f}", *(f"{share:.2f}" for share in shares)])


TABLES = {"work": work, "slowest": slowest, "models": models, "models in full": models_in_full, "rows": rows}
"""The tables, by their names in the comments that enclose them on the pages."""


def text(page: Path = README) -> str:
    """A page with the tables as they are measured."""
    written = page.read_text(encoding="utf-8")
    for name, made in TABLES.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        written = between.sub(lambda match, made=made: f"{match[1]}{made()}{match[2]}", written)
    return written


if __name__ == "__main__":
    for each in (README, TORCH, RESULTS):
        each.write_text(text(each), encoding="utf-8")
