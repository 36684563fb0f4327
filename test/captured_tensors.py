"""Tensor copies for recording: maps of many kinds, and kernels that load or store one box of a tensor.

A load kernel gives back all of the shared memory that it filled before, so that what a copy leaves alone is seen too;
of a store the tensor is looked at, with what lies between its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from captured import Random
from numpy.typing import NDArray

from warploom.dialect.isa.tensor_map import ELEMENTS
from warploom.runtime import PixelBox, TensorMap

THREADS = 128
UNTOUCHED = 0xA5A5A5A5
AT = (0, 128, 512, 1024)
"""Where in shared memory, beyond a multiple of 1024 bytes, boxes begin."""


@dataclass(frozen=True)
class TensorCase:
    """A copy of a box of a tensor: sizes and box slowest dimension first, as numpy has them.

    `gap` is the bytes between rows of the fastest dimension; `store` is the operation of a reduction, "store", or "".
    """

    type: str
    sizes: tuple[int, ...]
    box: tuple[int, ...] | PixelBox
    start: tuple[int, ...]
    swizzle: int = 0
    steps: tuple[int, ...] = ()
    nan: bool = False
    at: int = 0
    gap: int = 0
    store: str = ""

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in vars(self).items())

    @property
    def size(self) -> int:
        return next(e.size for e in ELEMENTS if e.name == self.type)

    @property
    def mode(self) -> str:
        """How the instruction calls what it does."""
        return "tile"

    @property
    def more(self) -> str:
        """What a load takes behind the mbarrier."""
        return ""


_SIZES = {1: (70,), 2: (37, 72), 3: (9, 11, 40), 4: (4, 5, 6, 24), 5: (3, 4, 3, 5, 24)}
_BOXES = {1: (32,), 2: (8, 32), 3: (4, 6, 32), 4: (2, 3, 4, 16), 5: (2, 2, 2, 3, 16)}
_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "tf32", "f32.ftz", "tf32.ftz")
_FLOATS = ("f16", "f32", "f64", "bf16")


def cases() -> Iterator[TensorCase]:
    """Every rank, type, swizzle and fill; boxes inside, over each edge, and wholly outside."""
    random = Random("tensor maps")

    def pick(options: tuple[Any, ...]) -> Any:
        return options[int(random.below((1,), len(options))[0])]

    for rank, turn in product(range(1, 6), range(24)):
        type = _TYPES[(turn + rank) % len(_TYPES)]
        case = TensorCase(type, _SIZES[rank], _BOXES[rank], (0,) * rank)
        unit = max(1, 16 // case.size)
        swizzle = pick((0, 32, 64, 128))
        inner = min(_BOXES[rank][-1], (swizzle or 256) // case.size)
        box = (*_BOXES[rank][:-1], max(unit, inner // unit * unit))
        store = "store" if turn % 4 == 3 else ""
        low = 0 if store else -2
        start = [
            int(random.below((1,), size + b - low)[0]) + low - (0 if store else b // 2)
            for size, b in zip(case.sizes, box, strict=True)
        ]
        start[-1] = start[-1] // unit * unit
        start = [max(0, s) for s in start] if store else start
        steps = (*(pick((1, 1, 2, 3)) for _ in range(rank - 1)), 1) if turn % 5 == 4 else ()
        fill = type in _FLOATS and not store and turn % 2 == 0
        yield TensorCase(type, case.sizes, box, tuple(start), swizzle, steps, fill, pick(AT), pick((0, 16, 48)), store)
    yield TensorCase("f32", (20, 64), (4, 32), (100, 0))
    yield TensorCase("f16", (20, 64), (4, 64), (0, 640), 128, nan=True)
    yield TensorCase("u16", (64, 64), (8, 16), (3, 8), 128)
    yield TensorCase("u16", (64, 64), (8, 16), (3, 8), 64, at=128)


REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f32", "f16", "bf16"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("u32", "s32", "u64", "s64", "f32", "f64")),
}
"""The element types of maps that each operation takes: PTX ISA 9.7.9.25.5.3; the bitwise ones any of 32 or 64 bits."""

ILLEGAL = {(operation, type) for operation in ("and", "or", "xor") for type in ("s64", "f32", "f64")}
"""Of these, what is an illegal instruction on an H200."""


def reductions() -> Iterator[TensorCase]:
    """Every operation and type, in boxes over an edge, with a swizzle and without."""
    for turn, (operation, type) in enumerate((name, type) for name, types in REDUCTIONS.items() for type in types):
        if (operation, type) in ILLEGAL:
            continue
        swizzle, unit = (0, 128)[turn % 2], 16 // TensorCase(type, (), (), ()).size
        yield TensorCase(
            type, (9, 4 * unit), (6, 2 * unit), (turn % 8, 3 * unit), swizzle, at=AT[turn % 4], store=operation
        )


def array(case: TensorCase) -> NDArray[Any]:
    """The tensor, with gaps behind its rows, of random words."""
    row = -(-case.sizes[-1] * case.size // 16) * 16 + case.gap
    shape = (*case.sizes[:-1], row)
    words = Random(case.name).bits(shape, 8).astype(np.uint8)
    elements = words.view(f"u{case.size}")
    if case.type in ("f32.ftz", "tf32", "tf32.ftz"):
        # many subnormal numbers, which these types may treat otherwise
        few = Random(f"{case.name} subnormal").bits(elements.shape, 2) == 0
        elements[few] &= np.uint32(0x807FFFFF)
    return elements[..., : case.sizes[-1]]


def tensor_map(case: TensorCase, tensor: NDArray[Any]) -> TensorMap:
    """The map; elements are words of their size, whatever they mean."""
    return TensorMap(
        tensor, case.box, swizzle=case.swizzle, element_strides=case.steps or None,
        fill="nan" if case.nan else "zero", type=case.type,
    )  # fmt: skip


def words(case: TensorCase) -> int:
    """32-bit words of shared memory that a kernel has for the box."""
    box = tensor_map(case, array(case)).fields(0).extent
    return -(-(case.at + box) // 1024) * 256


def kernel(case: TensorCase) -> str:
    """A kernel of one CTA: `map`, the words that shared memory has at first, and where they go at the end."""
    rank, count = len(case.sizes), words(case)
    where = ", ".join(str(s) for s in reversed(case.start))
    fill = "\n".join(
        f"ld.global.b32 %x, [%in+{4 * i}]; st.shared.b32 [%mine+{4 * i}], %x;" for i in range(0, count, THREADS)
    )
    drain = "\n".join(
        f"ld.shared.b32 %x, [%mine+{4 * i}]; st.global.b32 [%out+{4 * i}], %x;" for i in range(0, count, THREADS)
    )
    operation = "" if case.store == "store" else f".{case.store}"
    root = "cp.async.bulk" if case.store == "store" else "cp.reduce.async.bulk"
    if case.store:
        copy = f"""@%first {root}.tensor.{rank}d.global.shared::cta{operation}.{case.mode}.bulk_group
        [%map, {{{where}}}], [%box];
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;"""
    else:
        copy = f"""@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], {_moved(case)};
    @%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.{case.mode}.mbarrier::complete_tx::bytes
        [%box], [%map, {{{where}}}], [done]{case.more};
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [done], 0;
    @!%p bra WAIT;"""
    return f"""
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 words, .param .u64 answers)
{{
    .shared .align 1024 .b8 memory[{4 * count}]; .shared .align 8 .b64 done;
    .reg .b32 %t, %x, %mine, %box; .reg .b64 %in, %out, %map, %at; .reg .pred %first, %p;
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
    mov.b64 %map, map; cvta.param.u64 %map, %map;
    ld.param.u64 %in, [words]; ld.param.u64 %out, [answers];
    mul.wide.u32 %at, %t, 4; add.s64 %in, %in, %at; add.s64 %out, %out, %at;
    mov.u32 %x, memory; add.u32 %box, %x, {case.at}; shl.b32 %mine, %t, 2; add.u32 %mine, %mine, %x;
    {fill}
    @%first mbarrier.init.shared::cta.b64 [done], 1;
    @%first fence.mbarrier_init.release.cluster;
    fence.proxy.async; bar.sync 0;
    {copy}
    bar.sync 0;
    {drain}
    ret;
}}
"""


def _moved(case: TensorCase) -> int:
    return tensor_map(case, array(case)).fields(0).moved_bytes


def inputs(case: TensorCase) -> NDArray[np.uint32]:
    """What shared memory has at first."""
    if case.store:
        return Random(f"{case.name} shared").bits((words(case),), 32).astype(np.uint32)
    return np.full(words(case), UNTOUCHED, np.uint32)


def answer(case: TensorCase, launch: Any) -> NDArray[Any]:
    """What a copy changed, by `launch(text, arguments)`: shared memory, or of a store the tensor and its gaps."""
    tensor = array(case)
    base = tensor.base if tensor.base is not None else tensor
    got = np.zeros(words(case), np.uint32)
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n"
    launch(head + kernel(case), [tensor_map(case, tensor), inputs(case), got])
    return np.ascontiguousarray(base).view(np.uint8).reshape(-1) if case.store else got.view(np.uint8)
