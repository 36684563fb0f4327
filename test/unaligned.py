"""Products of dynamic sizes and rows that begin anywhere, with operands to try them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from warploom.runtime import Kernel, compile

TYPES = {
    "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "i8": "i1", "ui8": "u1", "f16": "f2", "f32": "f4",
    "f64": "f8", "i32": "i4",
}  # fmt: skip
ANYWHERE = ", strided<[?, 1], offset: ?>"
SIZES = {"m": 70, "n": 51, "k": 45, "0": 1}


@dataclass(frozen=True)
class Case:
    """D = A B, plus the matrices and vectors that are added: loops of each, those of known size, the layout in memory,
    and the launches that it takes."""

    element: str
    result: str
    target: str
    a: str = "mk"
    b: str = "kn"
    static: str = ""
    layout: str = ""
    added: tuple[str, ...] = ()
    onto_d: bool = False
    launches: int = 6

    def memory(self, loops: str, element: str, layout: str = "") -> str:
        sizes = ["1" if loop == "0" else str(SIZES[loop]) if loop in self.static else "?" for loop in loops]
        return f"memref<{'x'.join(sizes)}x{element}{layout}>"

    @property
    def text(self) -> str:
        a, b = (self.memory(loops, self.element, self.layout) for loops in (self.a, self.b))
        d = self.memory("mn", self.result, self.layout)
        more = [self.memory(loops, self.result) for loops in self.added]
        arguments = [f"%A: {a}", f"%B: {b}", *(f"%X{i}: {kind}" for i, kind in enumerate(more)), f"%D: {d}"]
        maps = [f"affine_map<(m, n, k) -> ({', '.join(loops)})>" for loops in (self.a, self.b, "mn")]
        exact = self.result == "i32"
        fill = "" if self.onto_d else f"linalg.fill ins(%zero : {self.result}) outs(%D : {d})"
        cast = "unsigned" if self.element[0] == "u" else "signed"
        product = (
            f"linalg.contract indexing_maps = [{', '.join(maps)}] {{cast = #linalg.type_fn<cast_{cast}>}} "
            f"ins(%A, %B : {a}, {b}) outs(%D : {d})"
        )
        sums: list[str] = []
        for i, (loops, kind) in enumerate(zip(self.added, more, strict=True)):
            along = [f"affine_map<(m, n) -> ({', '.join(loops)})>", "affine_map<(m, n) -> (m, n)>"]
            sums.append(
                f"""linalg.generic {{indexing_maps = [{", ".join(along)}], iterator_types = ["parallel", "parallel"]}}
                    ins(%X{i} : {kind}) outs(%D : {d}) {{
                ^bb0(%x: {self.result}, %d: {self.result}):
                  %s = arith.{"addi" if exact else "addf"} %x, %d : {self.result}
                  linalg.yield %s : {self.result}
                }}"""
            )
        return f"""func.func @f({", ".join(arguments)}) {{
          %zero = arith.constant {"0" if exact else "0.0"} : {self.result}
          {fill}
          {product}
          {" ".join(sums)}
          return
        }}"""

    def operands(self, rng: np.random.Generator) -> list[Any]:
        """A, B, what is added, and D, which holds NaN or 77 if nothing is added to it."""
        kinds = [self.element, self.element, *[self.result] * (1 + len(self.added))]
        lie = (self.a, self.b, *self.added, "mn")
        arrays = [
            drawn(rng, tuple(SIZES[loop] for loop in loops), kind) for loops, kind in zip(lie, kinds, strict=True)
        ]
        if not self.onto_d:
            arrays[-1][...] = 77 if self.result == "i32" else np.nan
        return arrays

    def compiled(self) -> Kernel:
        return compile(self.text, target=self.target, tf32=self.element == "f32")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Any:
    if "i" in element:
        return rng.integers(0 if element[0] == "u" else -9, 9, shape).astype(TYPES[element])
    return rng.standard_normal(shape).astype(TYPES[element])


CASES = [
    Case("bf16", "bf16", "sm_90a", layout=ANYWHERE),
    Case("bf16", "f32", "sm_90a", added=("mn", "n"), launches=10),
    Case("f16", "f32", "sm_90a", added=("nm", "0n", "m"), launches=9),
    Case("f16", "f32", "sm_80", onto_d=True, launches=8),
    Case("f16", "f16", "sm_75", a="km", b="nk"),
    Case("bf16", "bf16", "sm_120a", static="nk", launches=5),
    Case("f32", "f32", "sm_90a", b="nk"),
    Case("f32", "f32", "sm_80", launches=1),
    Case("f64", "f64", "sm_90a", launches=1),
    Case("f8E4M3FN", "f32", "sm_90a", b="nk", layout=ANYWHERE),
    Case("i8", "i32", "sm_80", b="nk", added=("n",), launches=8),
    Case("ui8", "i32", "sm_80", b="nk", launches=1),
]
