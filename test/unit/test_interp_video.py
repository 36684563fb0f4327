"""Video instructions against a model of one thread in Python's integers, written from the text."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from interpreted import Array, apply

GENERATOR = np.random.default_rng(29)
TYPES = ("u32", "s32")
WORD = 0xFFFFFFFF
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": operator.add,
    "vsub": operator.sub,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + 1) // 2 if a + b >= 0 else (a + b) // 2,
}


def part(word: int, low: int, bits: int, type: str) -> int:
    value = word >> low & (1 << bits) - 1
    return value - (1 << bits) if type == "s32" and value >> bits - 1 else value


def place(selector: str) -> tuple[int, int]:
    size = {"": 32, "b": 8, "h": 16}[selector[:1]]
    return size * int(selector[1:] or 0), size


def clamp(value: int, bits: int, type: str) -> int:
    low, top = (-(1 << bits - 1), (1 << bits - 1) - 1) if type == "s32" else (0, (1 << bits) - 1)
    return max(low, min(top, value))


def operands(count: int = 60) -> list[Array]:
    edges = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x80008000, 0x7FFFFFFF, 0x80000000, WORD], np.uint32)
    return [
        np.concatenate([GENERATOR.permutation(edges), GENERATOR.integers(0, 1 << 32, count, np.uint32)]) for _ in "abc"
    ]


def some(count: int) -> list[tuple[str, str, str, str]]:
    """Types and a selector, at random."""
    selectors = ["", "b0", "b2", "b3", "h0", "h1"]
    return [(*GENERATOR.choice(TYPES, 3).tolist(), str(GENERATOR.choice(selectors))) for _ in range(count)]


def check_one_number(name: str, end: str, d: str, a: str, b: str, selector: str) -> None:
    into = "h1" if end == "into" else ""
    words, dot = operands(), f".{selector}" if selector else ""
    target, suffix = (f"%d.{into}", ".sat") if into else ("%d", end)
    third = "" if end in ("", ".sat") else ", %c"
    got = apply(f"{name}.{d}.{a}.{b}{suffix} {target}, %a{dot}, %b.b1{third};", "u4", *words)

    def model(x: int, y: int, z: int) -> int:
        value = OPERATIONS[name](part(x, *place(selector), a), part(y, 8, 8, b))
        if ".sat" in suffix:
            value = clamp(value, 16 if into else 32, d)
        if into:
            return z & 0xFFFF | (value & 0xFFFF) << 16
        second = {"add": operator.add, "min": min, "max": max}.get(end[-3:])
        return (second(part(value, 0, 32, d), part(z, 0, 32, d)) if second else value) & WORD

    assert got.tolist() == [model(*map(int, each)) for each in zip(*words, strict=True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("end", ["", ".sat", ".add", ".sat.min", ".max", "into"])
@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
def test_one_number(name: str, end: str) -> None:
    for d, a, b, selector in some(6):
        check_one_number(name, end, d, a, b, selector)


def check_shifts(name: str, mode: str, sat: str, d: str, a: str, selector: str) -> None:
    x, y, _ = operands()
    y[::2] &= 63
    dot = f".{selector}" if selector else ""
    got = apply(f"{name}.{d}.{a}.u32{sat}.{mode} %d, %a{dot}, %b;", "u4", x, y)

    def model(word: int, n: int) -> int:
        value, n = part(word, *place(selector), a), n & 31 if mode == "wrap" else min(n, 32)
        value = value << n if name == "vshl" else value >> n
        return (clamp(value, 32, d) if sat else value) & WORD

    assert got.tolist() == [model(int(p), int(q)) for p, q in zip(x, y, strict=True)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sat", ["", ".sat"])
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("name", ["vshl", "vshr"])
def test_shifts(name: str, mode: str, sat: str) -> None:
    for d, a, _, selector in some(4):
        check_shifts(name, mode, sat, d, a, selector)


def check_products(end: str, d: str, a: str, b: str, selector: str) -> None:
    words, dot = operands(), f".{selector}" if selector else ""
    got = apply(f"vmad.{d}.{a}.{b}{end} %d, %a{dot}, %b.h0, %c;", "u4", *words)
    final = "s32" if "s32" in (a, b) else "u32"

    def model(x: int, y: int, z: int) -> int:
        value = part(x, *place(selector), a) * part(y, 0, 16, b) + part(z, 0, 32, final) + (".po" in end)
        value >>= 7 if "shr7" in end else 15 if "shr15" in end else 0
        return (clamp(value, 32, final) if ".sat" in end else value) & WORD

    assert got.tolist() == [model(*map(int, each)) for each in zip(*words, strict=True)]


@pytest.mark.parametrize("end", ["", ".po", ".sat", ".sat.shr7", ".po.shr15"])
def test_products(end: str) -> None:
    for d, a, b, selector in some(6):
        check_products(end, d, a, b, selector)


@pytest.mark.parametrize("compare", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(compare: str) -> None:
    x, y, z = operands()
    y[::3] = x[::3]
    holds = [getattr(operator, compare)(part(int(p), 0, 32, "s32"), int(q)) for p, q in zip(x, y, strict=True)]
    assert apply(f"vset.s32.u32.{compare} %d, %a, %b;", "u4", x, y).tolist() == holds
    summed = [(int(r) + h) & WORD for r, h in zip(z, holds, strict=True)]
    assert apply(f"vset.s32.u32.{compare}.add %d, %a, %b, %c;", "u4", x, y, z).tolist() == summed


def check_several_numbers(name: str, end: str, count: int, d: str, a: str, b: str) -> None:
    bits, letter = 32 // count, "h" if count == 2 else "b"
    suffix = end if end.startswith(".") else ""
    if name == "vset":
        suffix = ".le" + suffix.replace(".sat", "")
    chosen = GENERATOR.integers(0, 2 * count, count).tolist() if end == "masked" else range(count)
    mask = [0, 3] if end == "masked" and count == 4 else [1] if end == "masked" else range(count)
    target, source = "%d", "%a"
    if end == "masked":
        target += f".{letter}" + "".join(map(str, reversed(mask)))
        source += f".{letter}" + "".join(map(str, reversed(chosen)))
    words = operands()
    types = f"{a}.{b}" if name == "vset" else f"{d}.{a}.{b}"
    got = apply(f"{name}{count}.{types}{suffix} {target}, {source}, %b, %c;", "u4", *words)

    def model(x: int, y: int, z: int) -> int:
        result = z
        for i in mask:
            left, right = part(x | y << 32, bits * chosen[i], bits, a), part(y, bits * i, bits, b)
            value = int(left <= right) if name == "vset" else OPERATIONS[name](left, right)
            value = clamp(value, bits, d) if suffix == ".sat" else value
            hole = ((1 << bits) - 1) << bits * i
            result = result + value if ".add" in suffix else result & ~hole | value << bits * i & hole
        return result & WORD

    assert got.tolist() == [model(*map(int, each)) for each in zip(*words, strict=True)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("end", ["", ".sat", ".add", "masked"])
@pytest.mark.parametrize("name", [*OPERATIONS, "vset"])
def test_several_numbers(name: str, end: str, count: int) -> None:
    for d, a, b, _ in some(4):
        check_several_numbers(name, end, count, d, a, b)
