"""Writes limits.md: what is refused and why, each with the error that the compiler gives now.

python docs/limits.py          # or: make docs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warploom.dialect.isa.targets import TARGETS
from warploom.dialect.ptx.unmodelled import FAMILIES, family
from warploom.runtime import WarploomError, compile

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
        given = " ".join(f"{name}={value}" for name, value in self.schedule.items())
        return f"--target {self.target}" + (f" --schedule '{given}'" if given else "")


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


TAN = """func.func @f(%A: memref<64x64xf16>, %B: memref<64x64xf16>, %C: memref<64x64xf32>) {
  linalg.matmul ins(%A, %B : memref<64x64xf16>, memref<64x64xf16>) outs(%C : memref<64x64xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      outs(%C : memref<64x64xf32>) {
  ^bb0(%x: f32):
    %y = math.tan %x : f32
    linalg.yield %y : f32
  }
  return
}
"""

DEPTHWISE = """func.func @f(%I: memref<1x16x16x64xf16>, %K: memref<9x9x64xf16>, %O: memref<1x8x8x64xf32>) {
  linalg.depthwise_conv_2d_nhwc_hwc
      ins(%I, %K : memref<1x16x16x64xf16>, memref<9x9x64xf16>) outs(%O : memref<1x8x8x64xf32>)
  return
}
"""

GROUPS = """#map = affine_map<(g, k, n) -> (g, k, n)>
#group = affine_map<(g, k, n) -> (g, n)>
func.func @f(%A: memref<16x128xf16>, %Q: memref<2x64x32xi4>, %Z: memref<2x32xf16>, %C: memref<16x32xf32>) {
  %W = memref.alloc() : memref<2x64x32xf16>
  linalg.generic {indexing_maps = [#map, #group, #map], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%Q, %Z : memref<2x64x32xi4>, memref<2x32xf16>) outs(%W : memref<2x64x32xf16>) {
  ^bb0(%q: i4, %z: f16, %old: f16):
    %0 = arith.uitofp %q : i4 to f16
    %1 = arith.subf %0, %z : f16
    linalg.yield %1 : f16
  }
  %B = memref.collapse_shape %W [[0, 1], [2]] : memref<2x64x32xf16> into memref<128x32xf16>
  linalg.matmul ins(%A, %B : memref<16x128xf16>, memref<128x32xf16>) outs(%C : memref<16x32xf32>)
  return
}
"""

ZERO_POINTS = """func.func @f(%I: memref<1x16x16x64xi8>, %K: memref<3x3x64x32xi8>, %O: memref<1x14x14x32xi32>) {
  %zero = arith.constant 0 : i32
  %point = arith.constant 3 : i32
  linalg.conv_2d_nhwc_hwcf_q ins(%I, %K, %point, %zero : memref<1x16x16x64xi8>, memref<3x3x64x32xi8>, i32, i32)
      outs(%O : memref<1x14x14x32xi32>)
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

SECTIONS: dict[str, tuple[Refused, ...]] = {
    "Products": (
        Refused(
            "depthwise convolutions with their channels last, of large windows",
            "Each channel is multiplied with a kernel of its own, and neighbours in memory are of different channels: "
            "no rows or columns of a matrix lie there. The sum is written out, as an elementwise kernel that reads a "
            "view of each input for each place of the window. With channels first they are products of matrices and "
            "vectors.",
            DEPTHWISE,
        ),
        Refused("zero points other than 0", "Integers are multiplied as they are stored.", ZERO_POINTS),
        Refused(
            "integers times floats, the integers as A",
            "Integers of 8 and 4 bits are converted on the way in where they are B ([narrow.md](narrow.md)).",
            product("64x64xi8", "64x64xf16", "64x64xf32"),
        ),
        Refused(
            "weights of 4 bits with zero points from memory, or with odd groups",
            "A zero point is subtracted in registers, where it is a constant. Scales of groups are multiplied with the "
            "sums of 32 elements along k, or of 64, 128 and so on. Weights of 8 bits with others are converted by a "
            "kernel of their own, before the product.",
            GROUPS,
        ),
        Refused(
            "loops that hand on values",
            "Loops and conditions of the host run when a function is called. They have sizes for bounds.",
            CARRIED,
        ),
        Refused(
            "warpgroups for several sums",
            "Products that are summed over several loops, convolutions among them, are multiplied by `mma.sync`.",
            BATCH_REDUCE,
            schedule={"mma": "m64n128k16"},
        ),
    ),
    "Types": (
        Refused(
            "f32 without tf32",
            "No matrix instruction multiplies f32 with all bits of its fraction. What drops bits is done only when "
            "asked for.",
            square("f32", "f32", "f32"),
        ),
        Refused(
            "two different types",
            "The instructions for 16-bit types multiply a type with itself. 8-bit floats and integers may differ in "
            "kind or sign.",
            square("f16", "bf16", "f32"),
        ),
        Refused("32-bit integers", "There is no such instruction.", square("i32", "i32", "i32")),
        Refused(
            "a type that the target lacks",
            "Types came to tensor cores one after the other. `warploom isa --target SM` lists what each GPU has.",
            square("bf16", "bf16", "f32"),
            "sm_75",
        ),
        Refused(
            "Volta",
            "sm_70 has one shape, m8n8k4, whose fragments are unlike all later ones. The interpreter runs it, and "
            "kernels may be written with it. Products are not lowered to it.",
            square("f16", "f16", "f32"),
            "sm_70",
        ),
    ),
    "Memory": (
        Refused(
            "elements that are not side by side",
            "Copies to shared memory move 4 to 16 bytes. Along one of the two dimensions elements must follow each "
            "other. Any stride is fine along the other.",
            product("64x64xf16, strided<[128, 2]>", "64x64xf16", "64x64xf32"),
        ),
        Refused(
            "a result that is an operand",
            "CTAs write their tiles of C while others read A. In-place elementwise operations are fine.",
            product("64x64xf16", "64x64xf16", "64x64xf16", "%A"),
        ),
    ),
    "Epilogues": (
        Refused(
            "functions without an instruction",
            "An epilogue has the operations that [epilogues.md](epilogues.md) lists. Each of them has a bound for its "
            "error, by which results are checked.",
            TAN,
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
            "split-K of unknown sizes",
            "How many parts K has decides how much memory their sums take, before the sizes are known.",
            product("?x?xf16", "?x?xf16", "?x?xf32"),
            schedule={"split_k": "2"},
        ),
    ),
}  # fmt: skip

HEAD = f"""# Limits

What Warploom refuses, and why. Each function of this page is compiled when the page is written, and the error is
the one that it gave. Nothing on this page is a crash: an error names the file, the line, and what would be
accepted.

Targets are {", ".join(TARGETS)}.

"""

NAMES = ", ".join(f"`{name}`" for name in FAMILIES if family(name))

TAIL = f"""## What is not modelled

Of these families of instructions `warploom check` looks at names only, and the interpreter refuses kernels that use
them: {NAMES}. So sm_100 and later multiply with `mma.sync` here, not with `tcgen05`.

The interpreter also refuses tensor maps that a kernel edits (`tensormap.replace`): maps are made by the host.

## What is not measured

Schedules are chosen by a model with constants of one H200 ([bench/RESULTS.md](../bench/RESULTS.md)), and an H200 is
the only GPU that kernels have run on. For other targets ptxas assembles the PTX, and the interpreter computes with
the target's arithmetic; nobody has measured how fast they are. `warploom tune` measures on the GPU that is there.

The arithmetic of the interpreter rests on measurements of some GPUs and on published models for others.
[arithmetic.md](arithmetic.md) says which, and marks what no one has compared with hardware.

The interpreter runs a few hundred million multiply-adds in a second. It is made for tiles, tests and small
problems. A product of 4096 x 4096 x 4096 takes minutes ([bench/RESULTS.md](../bench/RESULTS.md)).

## What is left to others

Warploom compiles products, attention, reductions of rows, what is fused with them, and elementwise operations
beside them. What a function does otherwise (reductions along several loops, sorting, memory management) belongs to
the compiler around it. In PyTorch such operations stay with eager mode, or go to inductor ([torch.md](torch.md)).

Of the 538 functions with a product in LLVM 22's own tests of `Linalg`, 413 compile, with f32 as tf32. The others have
a reason each: `python test/linalg_suite.py FOLDER --list`.
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
