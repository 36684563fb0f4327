"""Writes limits.md: what is refused and why, each with the error that the compiler gives now.

python docs/limits.py          # or: make docs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warploom.dialect.isa.row import TARGETS
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.rows.grammar import name_of
from warploom.runtime import WarploomError, compile
from warploom.runtime.interp.machine.decode import REFUSED

HERE = Path(__file__).parent
GENERATED = "<!-- Written by docs/limits.py; `make docs` writes it again. -->\n\n"


@dataclass(frozen=True)
class Refused:
    """A function that is refused: why, in words, the types of A, B and C or its text, and how it is compiled."""

    title: str
    why: str
    text: str
    target: str = "sm_90a"
    schedule: Mapping[str, str] = field(default_factory=dict[str, str])

    def error(self) -> str:
        """The first line of the error.

        Raises:
            ValueError: if the function compiles.
        """
        try:
            compile(self.text, self.target, file="f.mlir", cache=False, **self.schedule)  # pyright: ignore[reportArgumentType]
        except WarploomError as error:
            return str(error).splitlines()[0]
        raise ValueError(f"'{self.title}' is no longer refused; take it off docs/limits.py")

    def how(self) -> str:
        """The options of the command."""
        fields = " ".join(f"{name}={value}" for name, value in self.schedule.items())
        return f"--target {self.target}" + (f" --schedule '{fields}'" if fields else "")


def product(a: str, b: str, c: str, into: str = "%C") -> str:
    """A product of memrefs of these types."""
    result = {"%A": a, "%C": c}[into]
    return (
        f"func.func @f(%A: memref<{a}>, %B: memref<{b}>, %C: memref<{c}>) {{\n"
        f"  linalg.matmul ins(%A, %B : memref<{a}>, memref<{b}>) outs({into} : memref<{result}>)\n  return\n}}\n"
    )


def square(a: str, b: str, c: str, size: int = 64) -> str:
    """A product of square matrices of these element types."""
    return product(*(f"{size}x{size}x{one}" for one in (a, b, c)))


REST = """func.func @f(%A: memref<64x64xf16>, %B: memref<64x64xf16>, %C: memref<64x64xf32>) {
  linalg.matmul ins(%A, %B : memref<64x64xf16>, memref<64x64xf16>) outs(%C : memref<64x64xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      outs(%C : memref<64x64xf32>) {
  ^bb0(%x: f32):
    %0 = arith.extf %x : f32 to f64
    %1 = arith.remf %0, %0 : f64
    %y = arith.truncf %1 : f64 to f32
    linalg.yield %y : f32
  }
  return
}
"""

GROUPS = """#map = affine_map<(n, g, k) -> (n, g, k)>
#group = affine_map<(n, g, k) -> (n, g)>
func.func @f(%A: memref<16x128xf16>, %Q: memref<32x2x64xi4>, %Z: memref<32x2xi4>, %C: memref<16x32xf32>) {
  %W = memref.alloc() : memref<32x2x64xf16>
  linalg.generic {indexing_maps = [#map, #group, #map], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%Q, %Z : memref<32x2x64xi4>, memref<32x2xi4>) outs(%W : memref<32x2x64xf16>) {
  ^bb0(%q: i4, %z: i4, %old: f16):
    %0 = arith.uitofp %q : i4 to f16
    %1 = arith.uitofp %z : i4 to f16
    %2 = arith.subf %0, %1 : f16
    linalg.yield %2 : f16
  }
  %B = memref.collapse_shape %W [[0], [1, 2]] : memref<32x2x64xf16> into memref<32x128xf16>
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                 affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<16x128xf16>, memref<32x128xf16>) outs(%C : memref<16x32xf32>)
  return
}
"""

BATCH_REDUCE = """func.func @f(%A: memref<8x512x64xf16>, %B: memref<8x64x512xf16>, %C: memref<512x512xf32>) {
  linalg.batch_reduce_matmul
      ins(%A, %B : memref<8x512x64xf16>, memref<8x64x512xf16>) outs(%C : memref<512x512xf32>)
  return
}
"""

CARRIED = """func.func @f(%A: memref<64x64xf16>, %B: memref<64x64xf16>, %C: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %c1 step %c1 iter_args(%x = %c0) -> (index) {
    linalg.matmul ins(%A, %B : memref<64x64xf16>, memref<64x64xf16>) outs(%C : memref<64x64xf32>)
    scf.yield %x : index
  }
  return
}
"""

EXP = """func.func @f(%A: memref<64x64xf32>, %C: memref<64x64xf32>) {
  linalg.exp ins(%A : memref<64x64xf32>) outs(%C : memref<64x64xf32>)
  return
}
"""


SECTIONS: dict[str, tuple[Refused, ...]] = {
    "Products": (
        Refused(
            "zero points of 4 bits that are the same along a row of weights",
            "A product can subtract only constant zero points. Weights with zero points from memory, or with odd "
            "groups, are converted by a separate kernel before the product. This kernel reads two elements of 4 bits "
            "from each byte, so they must be neighbours in its output too.",
            GROUPS,
        ),
        Refused(
            "loops that carry values",
            "The host runs `scf.for` and `scf.if` when the function is called. It computes bounds and conditions from "
            "sizes and constants only, and iterations can share data only in memory.",
            CARRIED,
        ),
        Refused(
            "warpgroups for sums over several loops",
            "Products that sum over several loops use `mma.sync` only, except convolutions, whose pixels tensor copies "
            "read.",
            BATCH_REDUCE,
            schedule={"mma": "m64n128k16"},
        ),
    ),
    "Types": (
        Refused(
            "f32 without tf32",
            "No matrix instruction multiplies f32 with all bits of its fraction. The option `tf32` allows tf32, which "
            "drops 13 of the 23 bits.",
            square("f32", "f32", "f32"),
        ),
        Refused(
            "two different types",
            "The instructions for 16-bit types multiply two operands of the same type. Those for 8-bit floats and for "
            "integers also accept two different 8-bit floats, or signed and unsigned integers.",
            square("f16", "bf16", "f32"),
        ),
        Refused(
            "a type that the target lacks",
            "Later GPUs multiply more types. `warploom isa --target SM` lists the instructions of a GPU.",
            square("bf16", "bf16", "f32"),
            "sm_75",
        ),
        Refused(
            "Volta",
            "sm_70 has only the shape m8n8k4, whose fragments differ from those of all later shapes. The compiler does "
            "not lower products to it. You can write kernels with it, and the interpreter runs them.",
            square("f16", "f16", "f32"),
            "sm_70",
        ),
    ),
    "Memory": (
        Refused(
            "a result that is also an operand",
            "Some CTAs write their tiles of C while other CTAs still read A. Elementwise operations may work in place.",
            product("64x64xf16", "64x64xf16", "64x64xf16", "%A"),
        ),
    ),
    "Epilogues": (
        Refused(
            "functions that are not lowered",
            "[epilogues.md](epilogues.md) lists the operations of epilogues. Each of them has a bound on its error, "
            "which `--check` uses.",
            REST,
        ),
    ),
    "Schedules": (
        Refused(
            "more shared memory than there is",
            "",
            square("f16", "f16", "f32", 512),
            schedule={"cta": "256,256,64", "stages": "8"},
        ),
        Refused(
            "tiles that do not divide each other",
            "",
            square("f16", "f16", "f32", 512),
            schedule={"cta": "64,64,32", "warp": "48,32"},
        ),
        Refused(
            "instructions of another GPU",
            "",
            square("f16", "f16", "f32", 512),
            "sm_80",
            {"mma": "m64n128k16"},
        ),
        Refused(
            "schedules of kernels that have none",
            "Kernels of elementwise operations and of rows have no schedule, so a field that is given for one is an "
            "error.",
            EXP,
            schedule={"stages": "3"},
        ),
        Refused(
            "split-K of dynamic sizes",
            "The workspace for partial sums is allocated for an M x N that is known at compile time.",
            product("?x?xf16", "?x?xf16", "?x?xf32"),
            schedule={"split_k": "2"},
        ),
    ),
}  # fmt: skip

HEAD = f"""# Limits

This page lists what the compiler refuses, and why. Each error below a function is what the compiler printed for it when
the page was generated. An error names the file, the line, and what would be accepted.

The targets are {", ".join(TARGETS)}.

What no matrix instruction multiplies is compiled all the same, to a kernel in which a thread adds up each element:
products of integers of 16, 32 and 64 bits, of i8 into i8, of f32 or f64 and another type of 16 bits or more, with zero
points, with integers of whole bytes in A and floats in B, of memory in which neither rows nor columns are contiguous,
and depthwise convolutions of integers or of unknown sizes. Such a kernel is right, and slow. `--remarks` says of each
why no tensor core multiplies it.

"""


def _not_run() -> Iterator[str]:
    """The lines of the table of instructions that no CPU runs here."""
    for meaning, reason in REFUSED.items():
        names = dict.fromkeys(name_of(row.samples()[0]) for row in every_row() if row.means == meaning)
        yield f"| {', '.join(f'`{name}`' for name in names)} | {reason} |"


NOT_RUN = "\n".join(_not_run())

TAIL = f"""## What is checked and not run

`warploom check` looks at every instruction of PTX 9.5. The interpreter refuses kernels that use some forms of these:

| instructions | why |
|---|---|
{NOT_RUN}

A form may be refused because of what a register holds when the kernel runs: products of `tcgen05` with K = 96, or with
the longer K of sm_107, and absolute addresses in descriptors of shared memory
([arithmetic.md](arithmetic.md#tensor-memory-what-no-silicon-has-confirmed) says why). The message names the bits.

## What is not measured

Kernels have run on H200 and H100 alone ([bench/RESULTS.md](../bench/RESULTS.md)). The constants of the model that
chooses schedules were measured on these. For other targets, the tests assemble the PTX with ptxas and interpret it with
the arithmetic of the target, but the speed of these kernels is not known. `warploom tune` measures on your GPU.

The arithmetic of the interpreter comes from measurements for some GPUs, and from published models for others.
[arithmetic.md](arithmetic.md) names the source for each GPU, and marks what nobody has compared with hardware.

The interpreter runs a few hundred million multiply-adds per second. It is made for tiles, tests and small problems. A
product of 4096 x 4096 x 4096 takes minutes ([bench/RESULTS.md](../bench/RESULTS.md)).

## What other compilers do

Warploom compiles products, attention, row reductions, and the elementwise operations around them. It leaves other
operations, such as sorting and memory management, to the compiler that uses it. In
PyTorch, these operations run in eager mode or through inductor ([torch.md](torch.md)).

The `Linalg` tests of LLVM 22 have 538 functions with a product. 502 of them compile, with f32 as tf32.
`python test/linalg_suite.py FOLDER --list` prints why each of the others does not.
"""


def page() -> Iterator[str]:
    """The page, section by section."""
    yield GENERATED
    yield HEAD
    for title, refused in SECTIONS.items():
        yield f"## {title}\n\n"
        for one in refused:
            yield f"### {one.title[0].upper()}{one.title[1:]}\n\n"
            if one.why:
                yield f"{one.why}\n\n"
            yield f"```mlir\n{one.text}```\n\n```text\n$ warploom compile f.mlir {one.how()}\n{one.error()}\n```\n\n"
    yield TAIL


def write() -> None:
    """Writes the page."""
    (HERE / "limits.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
