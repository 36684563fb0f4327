"""Fewer launches: a gate of two products by warps, and memory of several parts, each as one kernel and as two.

    bench/with_gpu.sh python bench/parts.py

Kernels are compiled for sm_80. What is one kernel by default is parted by the text: of the gate, the second product has
an A of its own, which is the same matrix; of the parts, each writer is a function of its own. A figure is the median of
turns, each the median of 20 launches with the L2 cache emptied before each, in microseconds; kernels behind one another
are added up. Results of the gates must be equal.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from swiglu import text

from warploom.runtime import Kernel, compile

TURNS = 7

GATES = (2048, 14336, 4096), (16, 14336, 4096), (512, 4096, 1024), (4096, 4096, 4096)


class Parts(NamedTuple):
    """Memory, its parts by offsets and sizes, and whether there are zeros around them."""

    shape: tuple[int, ...]
    pieces: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    filled: bool


PARTS = {
    "16x64x56x56 padded": Parts((16, 64, 58, 58), (((0, 0, 1, 1), (16, 64, 56, 56)),), True),
    "1x8x8x8 padded": Parts((1, 8, 10, 10), (((0, 0, 1, 1), (1, 8, 8, 8)),), True),
    "4096x4096 twice": Parts((4096, 8192), (((0, 0), (4096, 4096)), ((0, 4096), (4096, 4096))), False),
    "512x1024 twice": Parts((512, 2048), (((0, 0), (512, 1024)), ((0, 1024), (512, 1024))), False),
    "a row to 8x2047x128": Parts((8, 2048, 128), (((0, 0, 0), (8, 2047, 128)), ((0, 2047, 0), (8, 1, 128))), False),
}


def apart(gate: str) -> str:
    """The gate whose second product has an A of its own."""
    head, _, body = gate.partition(") {")
    a = head[head.index("%A: ") + len("%A: ") :].partition(",")[0]
    first, second = body.split("ins(%A, %B2")
    return f"{head}, %X: {a}) {{{first}ins(%X, %B2{second}"


def memref(shape: Sequence[int], more: str = "") -> str:
    return f"memref<{'x'.join(map(str, shape))}xf16{more}>"


def writer(parts: Parts, chosen: Sequence[int]) -> str:
    """A function of the writers with these numbers: the fill, if there is one, then a copy for each part."""
    arguments, lines = [f"%y: {memref(parts.shape)}"], list[str]()
    strides = [prod(parts.shape[i + 1 :]) for i in range(len(parts.shape))]
    if parts.filled and 0 in chosen:
        lines += ["%z = arith.constant 0.0 : f16", f"linalg.fill ins(%z : f16) outs(%y : {memref(parts.shape)})"]
    for number, (offsets, sizes) in enumerate(parts.pieces):
        if number + parts.filled not in chosen:
            continue
        start = sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))
        kind = memref(sizes, f", strided<{strides}, offset: {start}>")
        arguments.append(f"%x{number}: {memref(sizes)}")
        place = f"{list(offsets)} {list(sizes)} {[1] * len(sizes)}"
        lines.append(f"%v{number} = memref.subview %y{place} : {memref(parts.shape)} to {kind}")
        lines.append(f"linalg.copy ins(%x{number} : {memref(sizes)}) outs(%v{number} : {kind})")
    return f"func.func @f({', '.join(arguments)}) {{\n{chr(10).join(lines)}\nreturn\n}}"


def cases() -> Iterator[tuple[str, str, list[Kernel]]]:
    """Each with its kernels."""
    for size in GATES:
        yield f"gate {size}", "default", [compile(text(*size), target="sm_80")]
        yield f"gate {size}", "apart", [compile(apart(text(*size)), target="sm_80")]
    for name, parts in PARTS.items():
        count = len(parts.pieces) + parts.filled
        yield name, "default", [compile(writer(parts, range(count)), target="sm_80")]
        yield name, "apart", [compile(writer(parts, [number]), target="sm_80") for number in range(count)]


def arguments(kernel: Kernel, generator: Any) -> list[Any]:
    """Random matrices, the A of both products the same."""
    import torch

    made: dict[str, Any] = {}
    for parameter in kernel.function.parameters:
        kind = torch.bfloat16 if parameter.element == "bf16" else torch.float16
        drawn = torch.randn(parameter.shape or (), device="cuda", generator=generator) / 8
        made[parameter.name] = made["A"] if parameter.name == "X" else drawn.to(kind)
    return list(made.values())


def main() -> None:
    import torch

    from warploom.runtime.cuda.driver import gpu
    from warploom.runtime.cuda.launch import timer

    print(torch.cuda.get_device_name())
    calls: dict[tuple[str, str], list[Any]] = {}
    results: dict[str, list[Any]] = {}
    for name, how, kernels in cases():
        generator = torch.Generator("cuda").manual_seed(0)
        for kernel in kernels:
            values = arguments(kernel, generator)
            calls.setdefault((name, how), []).append(prepared := kernel.prepare(*values))
            prepared()
            prepared.wait()
            if name.startswith("gate"):
                results.setdefault(name, []).append(values[3])
    for name, (one, other) in results.items():
        assert torch.equal(one, other), f"{name}: results differ"
    times: dict[tuple[str, str], list[float]] = {}
    with timer(gpu()) as microseconds:
        for _ in range(TURNS):
            for key, prepared in calls.items():
                times.setdefault(key, []).append(sum(map(microseconds, prepared)))
    for (name, how), each in times.items():
        spread = 100 * (max(each) / min(each) - 1)
        launches = sum(len(one.kernels) for one in calls[name, how])
        print(
            f"{name:26}{how:9}{launches:3} kernels {statistics.median(each):9.1f} us  spread {spread:.1f} %", flush=True
        )


if __name__ == "__main__":
    main()
