"""Dot products of Blackwell's tensor cores by the published model MMA-Sim and by ours: the words that differ.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    pip install --no-deps mmasim==2.1.1
    python test/public_models.py [--count 20000] [--seed 1]

The forms are all that the model has for B200 (`tcgen05.mma` and `mma` of sm_100) and for sm_120. A quarter of the
operands of each form are random words, with infinities, NaNs and subnormal numbers; the others are numbers near 1, of
which a half cancel with C.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa import mma
from warploom.dialect.isa.form import ElementType, ProductForm
from warploom.dialect.isa.tensor_product import Opcode, TensorProduct, types_of
from warploom.runtime.numerics.product import MatrixProduct, SideOperands

Words = NDArray[Any]
UNITS = {"Blackwell": "sm_100", "RTX Blackwell": "sm_120"}


def forms() -> Iterator[tuple[str, Any, str, ProductForm]]:
    """A name, MMA-Sim's model, a target and our form, of each shape of K and each type once."""
    models = importlib.import_module("mmasim.nv_ptx")
    for name, target in UNITS.items():
        for module, kind, scaled in (
            ("isa_mma", "MMA", ""), ("isa_mma", "MMABlockScale", "_block_scale"),
            ("isa_tcgen05mma", "TCGen05MMA", ""), ("isa_tcgen05mma", "TCGen05MMABlockScale", "_block_scale"),
        ):  # fmt: skip
            table = getattr(importlib.import_module(f"mmasim.nv_ptx.{module}"), f"{module[4:]}{scaled}_shape_and_type")
            for text in table.get(name, ()):
                shape, *words = text.split(".")
                tensor = module == "isa_tcgen05mma"
                if words[-1] == "f64" or (tensor and not shape.startswith("m128n16k")):
                    continue  # f64 is exact; M and N say nothing of the sum
                row = tensor_form(int(shape.rpartition("k")[2]), words) if tensor else warp_form(shape, words)
                if row is not None:
                    yield (
                        f"{'tcgen05 ' if tensor else ''}{target} {text}",
                        getattr(models, kind)(name, text),
                        target,
                        row,
                    )


def tensor_form(depth: int, words: list[str]) -> TensorProduct:
    """Our form of `kind::K{.blockB}.D.A.B{.SCALES}`."""
    kind, *words = words
    kind = kind.removeprefix("kind::")
    block = int(words.pop(0)[5:]) if words[0].startswith("block") else 0
    d, a, b, *scales = words
    codes = {element: code for code, element in types_of(kind).items()}
    word = codes[a] << 7 | codes[b] << 10 | 16 >> 3 << 17 | 128 >> 4 << 24
    word |= (scales[0] == "ue8m0") << 23 if scales else (d == "f32") << 4
    return TensorProduct.decode(Opcode(kind, 1, vector=depth // block if block else 0), word)


def warp_form(shape: str, words: list[str]) -> ProductForm | None:
    """Our form of `{kind::K.}{blockB.}D.A.B.C{.SCALES}`; None for those that only sm_70 and sm_75 have units for."""
    kind = words.pop(0).removeprefix("kind::") if words[0].startswith("kind") else ""
    block = int(words.pop(0)[5:]) if words[0].startswith("block") else 0
    d, a, b, c, *scales = words
    for row in mma.rows():
        has = (str(row.shape), row.d.name, row.a.name, row.b.name, row.c.name, row.kind)
        if has != (shape, d, a, b, c, kind) or row.sparse or row.satfinite or shape == "m8n8k4":
            continue
        if not block or (row.scale and (row.shape.k // row.scale.vector, row.scale.type.name) == (block, scales[0])):
            return row
    return None


def drawn(draw: np.random.Generator, element: ElementType, size: tuple[int, ...]) -> Words:
    """Words of a type: a quarter of the last axis at random, the others numbers near 1, or any of narrow types."""
    bits = 32 if element.name == "tf32" else max(8, element.bits)
    words = draw.integers(0, 1 << bits, size, np.uint64)
    near = draw.standard_normal(size) * 2.0 ** draw.integers(-3, 4, size)
    if bits >= 16:
        single = near.astype(np.float32)
        moderate = single.view(np.uint32) if bits == 32 else (single.view(np.uint32) >> 16).astype(np.uint64)
        if element.name == "f16":
            moderate = near.astype(np.float16).view(np.uint16)
        words = np.where(np.arange(size[-1]) % 4 == 0, words, moderate)
    elif element.name in ("e4m3", "e5m2"):  # few NaNs and infinities, which would hide all else
        finite = 0x7E if element.name == "e4m3" else 0x7B
        special = (words & 0x7F > finite) & (draw.random(size) < 0.98)
        words = np.where(special, words & 0x80 | 0x38, words)
    return words.astype(f"u{bits // 8}")


def torch_words(words: Words, type: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    return torch.from_numpy(np.ascontiguousarray(words).view(f"i{words.itemsize}")).view(type)


def differences(model: Any, target: str, row: ProductForm, count: int, draw: np.random.Generator) -> int:
    """How many of so many dot products differ."""
    depth = row.shape.k
    a, b = (drawn(draw, element, (depth, count)) for element in (row.a, row.b))
    c = drawn(draw, row.c, (1, count))[0]
    half = depth // 2
    a[half:, count // 2 :], b[half:, count // 2 :] = a[:half, count // 2 :], b[:half, count // 2 :]
    if row.a.bits > 4 and row.a == row.b:  # the second half of K takes the first away, but for its last product
        b[half:-1, count // 2 :] ^= b.dtype.type(1 << 8 * b.itemsize - 1)
    packed = row.kind.endswith(("mxf4", "mxf4nvf4"))
    if packed:
        a, b = a & 15, b & 15
    scale = getattr(row, "scale", None)
    extras, more = None, ()
    if scale is not None:
        scales = [draw.integers(110, 140, (scale.vector, count), np.uint8) for _ in "ab"]
        if scale.type.name == "ue4m3":
            scales = [draw.integers(0, 128, (scale.vector, count), np.uint8) for _ in "ab"]
        extras = SideOperands(scale_a=scales[0][:, None], scale_b=scales[1][:, None])
        more = tuple(torch_words(words.T, model.s_type) for words in scales)
    ours = MatrixProduct.on(target, row)(a[:, None], b[:, None], c[None, None], extras)[0, 0]
    left, right = (words[0::2] << 4 | words[1::2] if packed else words for words in (a, b))
    theirs = model.dpa(
        torch_words(left.T, model.a_type), torch_words(right.T, model.b_type), torch_words(c, model.c_type), *more
    )
    return int((ours != theirs.numpy().view(ours.dtype)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000, help="dot products of each form")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    number = wrong = 0
    for name, model, target, row in forms():
        bad = differences(model, target, row, args.count, draw)
        number, wrong = number + 1, wrong + bad
        print(f"{name:64} {bad} of {args.count} differ", flush=True)
    print(f"{number} forms, {number * args.count} words, {wrong} differ")
    sys.exit(f"error: {wrong} words differ" if wrong or not number else 0)


if __name__ == "__main__":
    main()
