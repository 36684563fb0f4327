"""Writes pipeline.md: one product through every level, as `warploom-opt` prints it now.

    python docs/walk.py            # or: make docs

The prose is here; what is quoted is made anew, by the lines that a pattern each picks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from pathlib import Path

from warploom.dialect.ptx.text.printer import PtxTarget
from warploom.passes.context import make_context, parse_mlir
from warploom.passes.pipeline import lower, standard_pipeline

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "matmul.mlir"
SCHEDULE = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}

GENERATED = "<!-- Written by docs/walk.py; `make docs` writes it again. -->\n\n"


def passes() -> list[str]:
    """The standard pipeline with the schedule of this page, pass by pass."""
    return re.findall(r"[\w-]+(?:\{[^}]*\})?", standard_pipeline("sm_90a", SCHEDULE))


@cache
def level(after: str) -> str:
    """The module after the pass of that name, all those before it included."""
    names = [one.partition("{")[0] for one in passes()]
    context = make_context()
    module = parse_mlir(context, EXAMPLE.read_text())
    lower(module, context, ",".join(passes()[: names.index(after) + 1]))
    return f"{module}\n".replace("\t", "")


@cache
def ptx() -> str:
    """The PTX text."""
    context = make_context()
    module = parse_mlir(context, EXAMPLE.read_text())
    lower(module, context, ",".join(passes()))
    out = StringIO()
    PtxTarget().emit(context, module, out)
    return out.getvalue()


def quoted(text: str, patterns: Sequence[str], width: int = 170) -> str:
    """The first line after the last one found that each pattern matches, `...` where lines are left out.

    Raises:
        ValueError: if a pattern matches no line that is left.
    """
    lines, shown, at = text.splitlines(), list[str](), 0
    for pattern in patterns:
        found = next((i for i in range(at, len(lines)) if re.search(pattern, lines[i])), None)
        if found is None:
            raise ValueError(f"no line of this level matches '{pattern}' any more")
        if found > at:
            shown.append(f"{re.match(r' *', lines[found])[0]}...")  # pyright: ignore[reportOptionalSubscript]
        line = lines[found]
        shown.append(line if len(line) <= width else f"{line[: width - 4]} ...")
        at = found + 1
    return "\n".join(shown) + "\n"


def prose(text: str) -> str:
    """Paragraphs, with an empty line after them."""
    return f"{text.strip()}\n\n"


def block(language: str, text: str) -> str:
    return f"```{language}\n{text}```\n\n"


def command(after: str) -> str:
    names = [one.partition("{")[0] for one in passes()]
    return ",".join(passes()[: names.index(after) + 1])


def page() -> Iterator[str]:
    """The page, piece by piece."""
    yield GENERATED
    yield prose("""
# One product through the pipeline

A product goes from `linalg` to PTX in steps that can each be printed, edited and continued from. This page
takes [examples/matmul.mlir](../examples/matmul.mlir), C = A * B with f16 operands and f32 sums, through all of
them, with a schedule small enough to read. To see a level, leave the passes after it off the end of `-p`:
""")
    yield block("sh", f"warploom-opt examples/matmul.mlir -p \\\n  '{command('convert-warp-to-ptx')}'\n")
    yield prose("""
All of them together are `-p warploom`, with the same options; `warploom-schedule` ends at products with a schedule,
`warploom-tile` goes from there to kernels over fragments, and `warploom-finish` from there to PTX.
""")
    yield "## 1. What is asked for\n\n"
    yield block("mlir", quoted(EXAMPLE.read_text(), ["func.func", "constant", "fill", "matmul", "return", "}"]))
    yield prose("""
`warp-set-target` puts the GPU on the module; everything after it asks there which instructions exist.
`warp-bufferize` makes functions on tensors functions on memory; this one is already.

## 2. One operation: `warp-raise-matmul`, `warp-fold-fill`

Every way to write a product becomes one operation, `warp.matmul`, that says what there is to know of it: the
types that A and B are multiplied as, where the sum starts, how each operand lies. A fill before it becomes its
initial value, so that C is never read; elementwise operations after it become its epilogue, so that the product
itself is never stored.
""")
    yield block("mlir", quoted(level("warp-fold-fill"), ["func.func", "warp.matmul"], 200))
    yield prose("""
## 3. Every choice, made once: `warp-schedule`

The schedule is one attribute. The pass chooses it by a model of the target and the size; each field can be
given instead, and `warploom tune` finds the fastest by measuring.
""")
    yield block("mlir", quoted(level("warp-schedule"), [r"warp\.matmul"], 400))
    yield prose("""
A CTA computes a tile of C of 64x64, 32 of K at a time; each of its four warps 32x32 of it, with `mma`
instructions of 16x8x16.

## 4. One tile in each CTA: `warp-outline`

The product becomes a `gpu.func`, and in its place a launch. In the kernel it is the same operation still, of which a
CTA computes one `tile`; which one follows from the number of the CTA, so that CTAs that run at the same time share rows
of A and columns of B. Of a batch, and of memory that lies otherwise than row by row, `warp.matrix` takes one matrix.
""")
    yield block(
        "mlir",
        quoted(
            level("warp-outline"), ["gpu.launch_func", "gpu.func", "gpu.block_id", r"warp\.matmul", "gpu.return"], 200
        ),
    )
    yield prose("""
## 5. A kernel over fragments: `warp-tile`

The tile becomes a loop over K. What a warp holds in registers is a value of type `!warp.fragment`: its role, its size,
its element type and its layout, which says for each bit of the lane and of the element's number which bit of the row or
the column it is.
""")
    yield block(
        "mlir",
        quoted(
            level("warp-tile"),
            [
                "memref.alloc", "memref.alloc", "warp.constant", "scf.for", "warp.copy", "warp.copy",
                "gpu.barrier", "warp.ldmatrix", "warp.ldmatrix", r"warp\.mma ", "warp.ldmatrix", "warp.ldmatrix",
                r"warp\.mma ", "gpu.barrier", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
This is the plain form: copy a tile of A and of B to shared memory, wait, multiply, wait. `#warp.swizzle` is how
a tile lies there: chunks of 16 bytes are permuted so that `ldmatrix` meets no bank twice. B runs down the
columns of memory, so its loads are `trans`. Stop here to run a kernel without overlap, or to write such kernels
by hand.

## 6. Other nests of loops: `warp-pack`, `warp-split-k`, `warp-persist`

Three rewrites of the launch and of the loops around the products, for schedules that ask for them; this one does not.
`warp-pack` has a kernel before this one copy A or B to whole tiles of aligned rows, `warp-split-k` cuts K into parts
for CTAs of their own and has the last CTA of a tile add up what all of them leave in memory, and `warp-persist` has
each CTA go from tile to tile. A kernel is right without them, and each tells by a remark where it cannot do what is
asked. `warp-fp8-as-f16` then multiplies 8-bit floats as f16 where that is what the hardware does. `warp-specialise` is
for kernels of warpgroups, which larger products on sm_90a get: [hopper.md](hopper.md) shows what it makes of them.

## 7. Overlap: `warp-pipeline`

The loop gets a ring of three buffers. While one tile is multiplied the next two are on their way (`async`,
`commit`, `wait`), and the fragments of the next step load under the products of this one. The pass follows who makes
and who uses what, so loops written by hand may have constants anywhere and several products; of a loop that it leaves
as it is, `warploom-opt --remarks` says where and why.
""")
    yield block(
        "mlir",
        quoted(
            level("warp-pipeline"),
            [
                "memref.alloc", "memref.alloc", r"warp\.copy.*async", "warp.commit", "warp.commit", "warp.wait",
                "gpu.barrier", "warp.ldmatrix", "warp.ldmatrix", "scf.for", "warp.ldmatrix", "warp.ldmatrix",
                r"warp\.copy.*async", r"warp\.copy.*async", "warp.commit", r"warp\.mma ", "warp.wait", "gpu.barrier",
                "warp.ldmatrix", r"warp\.mma ", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
## 8. What macro-operations do: `warp-expand`

Operations that stand for more than a few instructions (sums over slices of K or over CTAs) become loads, stores,
barriers and arithmetic. This kernel has none.

## 9. Where tiles lie: `warp-allocate`

Each allocation gets its offset in the CTA's shared memory, and the launch says how much of it there is. An offset given
by hand is kept, so that tiles which are never used at the same time can share memory.
""")
    yield block("mlir", quoted(level("warp-allocate"), ["i32$", "gpu.launch_func", r"alloc\(\)", r"alloc\(\)"]))
    yield prose("""
## 10. What each thread does: `convert-warp-to-ptx`

Fragments become registers and every operation its instructions, in the dialect `ptx`, whose verifier knows each
instruction's operands, types and targets. Address arithmetic is numbered and hoisted as it is emitted, so the
loop has little beside loads, copies and products.
""")
    yield block(
        "mlir",
        quoted(
            level("convert-warp-to-ptx"),
            ["ptx.module", "ptx.var", "ptx.func", "cp.async", "ptx.label", "ldmatrix", "mma.sync", "ptx.inst ret"],
        ),
    )
    yield "`-t ptx` prints the text. Comments name the tile and the operation that instructions come from.\n\n"
    yield block(
        "ptx",
        quoted(
            ptx(),
            [
                r"\.version", r"\.target", r"\.entry", r"\.param", "// schedule", r"// warp.copy", "cp.async.cg",
                "commit_group", "wait_group", "bar.sync", "loop_1:", "// warp.ldmatrix", "ldmatrix", "// warp.mma",
                "mma.sync", "bra", "// warp.store", "st.global", "ret;",
            ],
        ),
    )  # fmt: skip
    yield prose("""
## 10. Running it

`warploom run` compiles, launches and compares: on a GPU through the driver, else on the interpreter, which
reads the text above as any other. With `--check` the result is held against float64, with `--check=all` the
interpreter looks for races, copies nobody waited for, and values nobody wrote.
""")
    yield block("sh", "warploom run examples/matmul.mlir --device interp --check\n")


def write() -> None:
    """Writes the page."""
    (HERE / "pipeline.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
