"""Kernels of `door_programs.py` that multiply matrices: what they have in common, and those of one warp."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

from warploom.runtime import TensorMap, load_ptx

Array = np.ndarray[Any, Any]

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "si8": np.int8,
    "ui8": np.uint8, "i8": np.int8, "i4": np.int8, "i32": np.int32, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def constants(*numbers: int) -> list[str]:
    """Numbers of `index`, each by its name."""
    return [f"%c{n} = arith.constant {n} : index" for n in dict.fromkeys(numbers)]


class Matrices:
    """A kernel on arrays, some of which are passed as tensor maps (by number: box and swizzle), and what some must be
    behind it. Operands are small integers, so that all sums are exact in any order."""

    targets, threads, shared = ("sm_80", "sm_90a"), 32, 0

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.draw, self.data = kind, random.Random(number), np.random.default_rng(number)
        self.arrays: list[Array] = []
        self.maps: dict[int, tuple[tuple[int, ...], int]] = {}
        self.expected: dict[int, Array] = {}
        self.globals: list[str] = []

    def small(self, shape: tuple[int, ...], element: str) -> Array:
        return self.data.integers(-3, 4, shape).astype(DTYPES[element])

    def kernel(self, parameters: str, lines: list[str]) -> str:
        """A module with the kernel; constants that are there already are left out."""
        seen = set[str]()
        kept = [line for line in lines if not (line.startswith("%c") and (line in seen or seen.add(line)))]
        body = "\n    ".join(kept)
        variables = "".join(f"  {each}\n" for each in self.globals)
        return (
            f"gpu.module @m {{\n{variables}  gpu.func @k({parameters}) kernel attributes {{known_block_size = "
            f"array<i32: {self.threads}, 1, 1>}} {{\n    {body}\n    gpu.return\n  }}\n}}"
        )

    def results(self, ptx: str, device: str = "interp") -> list[Array]:
        """The arrays behind a launch."""
        arrays = [array.copy() for array in self.arrays]
        passed: list[object] = [
            TensorMap(array, self.maps[i][0], swizzle=self.maps[i][1]) if i in self.maps else array
            for i, array in enumerate(arrays)
        ]
        load_ptx(ptx).launch(
            "k",
            1,
            self.threads,
            passed,
            shared=self.shared or None,
            device=device,
            checks="all" if device == "interp" else (),
        )
        return arrays

    def run(self, ptx: str) -> str:
        """What is wrong with the results of a kernel; "" if they are right."""
        results = self.results(ptx)
        for i, expected in self.expected.items():
            differ = np.argwhere(~(results[i].astype(np.float64) == expected))
            if len(differ):
                at = tuple(differ[0])
                return f"argument {i}, {len(differ)} elements: {results[i][at]} for {expected[at]} at {at}"
        return ""


# Opaque fragments of a warp.


class OpaqueKernel(Matrices):
    """D = A B + C by `gpu.subgroup_mma_*`, of all types and shapes, and operations on its elements."""

    def build(self) -> str:
        draw = self.draw
        element = draw.choice(("f16", "f16", "f32", "f64", "si8", "ui8"))
        total = {"f16": draw.choice(("f16", "f32")), "f32": "f32", "f64": "f64"}.get(element, "i32")
        m, n, k = {"f32": (16, 16, 8), "f64": (8, 8, 4)}.get(
            element, draw.choice(((16, 16, 16), (32, 8, 16), (8, 32, 16)))
        )
        self.lines = ["%c0 = arith.constant 0 : index"]
        self.parameters: list[str] = []
        self.numbers = 0
        steps = draw.randint(1, 2)
        turned = [draw.random() < 0.5 for _ in "ab"]
        c, sums = self.start(m, n, total)
        for _ in range(steps):
            a, first = self.load("A", m, k, element, turned[0])
            b, second = self.load("B", k, n, element, turned[1])
            flags = [f"{name}_transpose" for name, flag in zip("ab", turned, strict=True) if flag]
            attributes = f" {{{', '.join(flags)}}}" if flags else ""
            kinds = self.kind_of(m, k, element, "A"), self.kind_of(k, n, element, "B"), self.kind_of(m, n, total, "C")
            made = self.fresh()
            self.lines.append(
                f"{made} = gpu.subgroup_mma_compute {a}, {b}, {c}{attributes} : {kinds[0]}, {kinds[1]} -> {kinds[2]}"
            )
            c, sums = made, first @ second + sums
        for _ in range(draw.randint(0, 3) if total != "f64" else 0):  # of which MLIR has no constants
            c, sums, total = self.elementwise(c, sums, m, n, total)
        self.store(c, sums, m, n, total)
        return self.kernel(", ".join(self.parameters), self.lines)

    def fresh(self) -> str:
        self.numbers += 1
        return f"%v{self.numbers}"

    def kind_of(self, rows: int, columns: int, element: str, role: str) -> str:
        return f'!gpu.mma_matrix<{rows}x{columns}x{element}, "{role}Op">'

    def memory(self, array: Array, element: str) -> str:
        name = f"%X{len(self.arrays)}"
        stored = element.removeprefix("s").removeprefix("u")
        self.parameters.append(f"{name}: memref<{'x'.join(map(str, array.shape))}x{stored}>")
        self.arrays.append(array)
        return name

    def place(self, rows: int, columns: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where a matrix lies in one that is larger, and its size: each row begins at a multiple of 16 bytes."""
        unit = max(1, 16 // size)
        at = self.draw.choice((0, 0, 8, 16)), self.draw.choice((0, 0, 2, 4)) * unit
        more = self.draw.choice((0, 0, 2)), self.draw.choice((0, 0, 1, 3)) * unit
        return at, (at[0] + rows + more[0], -(-(at[1] + columns) // unit) * unit + more[1])

    def load(self, role: str, rows: int, columns: int, element: str, turned: bool) -> tuple[str, Array]:
        dtype = np.dtype(DTYPES[element])
        low = 0 if element == "ui8" else -4
        values = self.data.integers(low, 200 if element == "ui8" else 5, (rows, columns)).astype(dtype)
        shape = (columns, rows) if turned else (rows, columns)
        at, whole = self.place(*shape, dtype.itemsize)
        array = self.data.integers(low, 9, whole).astype(dtype)
        array[at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]] = values.T if turned else values
        name, made = self.memory(array, element), self.fresh()
        self.lines += constants(*at)
        flag = ", transpose" if turned else ""
        stored = element.removeprefix("s").removeprefix("u")
        self.lines.append(
            f"{made} = gpu.subgroup_mma_load_matrix {name}[%c{at[0]}, %c{at[1]}] {{leadDimension = {whole[1]} : "
            f"index{flag}}} : memref<{whole[0]}x{whole[1]}x{stored}> -> {self.kind_of(rows, columns, element, role)}"
        )
        return made, values.astype(np.int64)

    def start(self, m: int, n: int, total: str) -> tuple[str, Array]:
        """C: read, or one number."""
        if total == "f64" or self.draw.random() < 0.6:
            return self.load("C", m, n, total, self.draw.random() < 0.4)
        return self.repeated(m, n, total)

    def repeated(self, m: int, n: int, total: str) -> tuple[str, Array]:
        number, name, made = self.draw.randint(-5, 5), self.fresh(), self.fresh()
        value = f"{number}.0" if total[0] == "f" else str(number)
        self.lines += [
            f"{name} = arith.constant {value} : {total}",
            f"{made} = gpu.subgroup_mma_constant_matrix {name} : {self.kind_of(m, n, total, 'C')}",
        ]
        return made, np.full((m, n), number, np.int64)

    def elementwise(self, c: str, sums: Array, m: int, n: int, total: str) -> tuple[str, Array, str]:
        kind, made = self.kind_of(m, n, total, "C"), self.fresh()
        real = total[0] == "f"
        word = self.draw.choice(
            ("addf", "subf", "maxf", "minf", "negatef") if real else ("addi", "subi", "muli", "divs", "negates")
        )
        if word.startswith("negate"):
            self.lines.append(f"{made} = gpu.subgroup_mma_elementwise {word} {c} : ({kind}) -> {kind}")
            return made, -sums, total
        other, numbers = self.repeated(m, n, total)
        if word == "divs" and not numbers.all():
            word = "addi"
        self.lines.append(f"{made} = gpu.subgroup_mma_elementwise {word} {c}, {other} : ({kind}, {kind}) -> {kind}")
        functions = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
            "div": lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // abs(b)),
        }  # fmt: skip
        return made, functions[word[:3]](sums, numbers), total

    def store(self, c: str, sums: Array, m: int, n: int, total: str) -> None:
        turned = self.draw.random() < 0.4
        shape = (n, m) if turned else (m, n)
        dtype = np.dtype(DTYPES[total])
        at, whole = self.place(*shape, dtype.itemsize)
        array = self.data.integers(-4, 9, whole).astype(dtype)
        self.expected[len(self.arrays)] = expected = array.astype(np.float64)
        expected[at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]] = sums.T if turned else sums
        name = self.memory(array, total)
        self.lines += constants(*at)
        flag = ", transpose" if turned else ""
        self.lines.append(
            f"gpu.subgroup_mma_store_matrix {c}, {name}[%c{at[0]}, %c{at[1]}] {{leadDimension = {whole[1]} : "
            f"index{flag}}} : {self.kind_of(m, n, total, 'C')}, memref<{whole[0]}x{whole[1]}x{total}>"
        )
