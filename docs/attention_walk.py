"""Writes attention.md: what is taken for attention, what it becomes as it is printed now, and what it computes.

python docs/attention_walk.py       # or: make docs
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from levels import ATTENTION, ATTENTION_IN_TURNS, HERE, block, prose, quoted

from warploom.passes.schedule.attention import FIXED

GENERATED = "<!-- Written by docs/attention_walk.py; `make docs` writes it again. -->\n\n"


def page() -> Iterator[str]:
    """The page, piece by piece."""
    yield GENERATED
    yield from asked()
    yield from levels()
    yield from over_time()
    yield from computed()
    yield from declined()


def asked() -> Iterator[str]:
    """What is taken."""
    yield prose(
        """
# Attention

Two products with a softmax between them become one kernel. It streams over K and V, and keeps the scores in registers:

    S = scale * f(Q K^T)        P = exp(S - max S) / sum exp(S - max S)        O = P V

The input is ordinary `linalg` on tensors or memory, as in [examples/attention.mlir](../examples/attention.mlir).
`warp-fuse-attention` reads what an element of O is, as an expression of elements of Q, K and V. It does not matter
which operations write it so, in which order, or with how many temporaries:

- the division stands before or behind the second product, or is a multiplication by 1 / sum; the softmax is
  `linalg.softmax`, or written out with `math.exp` or `math.exp2`;
- K lies transposed or not; a batch has any number of dimensions, and several heads may share K and V through their
  indexing maps;
- f scales, adds operands in memory that run along any of the loops of the scores (masks, biases), and numbers, compares
  and computes with `linalg.index` (causal masks, ALiBi), and does what `arith` and `math` can with one score (softcap);
- Q, K and V are f16 or bf16, O is of that type or f32; the lengths of queries and keys differ and may be unknown
  (`?`); heads have up to 256 columns, padded in registers to 16, 32, 64, 128 or 256.

A comparison n > m + c that leads to minus infinity is the operation's `diagonal`: tiles that lie right of it are not
computed, those on it are masked in registers. Masks of other kinds are part of f.
"""
    )
    yield block("sh", "warploom run examples/attention.mlir --device interp --check\n")


def levels() -> Iterator[str]:
    """What it becomes."""
    yield prose("""
## The levels

The passes are those of [one product](pipeline.md). Small tiles make them easy to read:
""")
    passes = ATTENTION.until("convert-warp-to-ptx")
    yield block("sh", f"warploom-opt examples/attention.mlir -p \\\n  '{passes}'\n")
    yield prose("""
### One operation: `warp-fuse-attention`

All the function is one operation, and the temporaries are gone.
""")
    yield block(
        "mlir", quoted(ATTENTION.level("warp-fuse-attention"), ["func.func", r"warp\.attention", "return"], 400)
    )
    yield prose("""
### A kernel: `warp-outline`

`warp-schedule` chooses the tiles: a CTA has 32 rows of Q here, and goes over 64 keys at a time. The CTAs whose rows see
most keys come first.
""")
    yield block(
        "mlir",
        quoted(ATTENTION.level("warp-outline"), ["launch_func", "gpu.func", "arith.subi", r"warp\.attention"], 230),
    )
    yield prose("""
### A loop over tiles of K and V: `warp-stage`

The loop hands on the largest score of each row, the sum of each row in parts, and the sums of O. The scores of a tile
stay a fragment of accumulators: `warp.reduce` takes rows of it together, `warp.broadcast` spreads a column out again,
`warp.map` computes element by element. `warp.convert_layout` makes P the operand A of the second product; from f32
accumulators to 16-bit operands that is another order of registers, and takes no instruction. The products are
`warp.tile_mma`, as those of `warp.matmul` are, and go on as they do.
""")
    yield block(
        "mlir",
        quoted(
            ATTENTION.level("warp-stage"),
            [
                "warp.copy", "gpu.barrier", r"scf\.for", "warp.copy", "warp.copy", "gpu.barrier",
                r"warp\.tile_mma", r"scf\.if", "warp.step columns", "warp.step rows", "arith.select", "warp.reduce max",
                "math.exp2", "warp.broadcast", "math.fma", "math.exp2", "warp.reduce add", "warp.convert ",
                "warp.convert_layout", r"warp\.tile_mma", "scf.yield", "warp.reduce add", "arith.divf",
                r"warp\.epilogue",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The rest is as for products: `warp-fragments` takes products to instructions, `warp-pipeline` lets copies of K and V run
ahead, `warp-allocate` gives tiles a place, and `convert-warp-to-ptx` writes instructions for one thread. On sm_90a
products are `wgmma` and copies are tensor copies, by [warps of their own](hopper.md); with more than 64 queries that is
the default.
""")
    yield block(
        "ptx",
        quoted(
            ATTENTION.ptx(),
            [
                r"\.entry", "cp.async", "ldmatrix", "mma.sync", "selp", "// warp.reduce: max", "max.f32",
                "shfl.sync.bfly",
                "ex2.approx", "fma.rn", "ex2.approx", "// warp.reduce: add", r"cvt\.rn\.bf16x2", "mma.sync", "bra",
                "shfl.sync.bfly", "st.global",
            ],
        ),
    )  # fmt: skip


def over_time() -> Iterator[str]:
    """The picture of a kernel."""
    yield prose("""
## Over time

What a CTA of the Hopper kernel does, in cycles of a model ([trace.md](trace.md)); it computes two tiles of O here:
""")
    command = f"warploom run examples/attention.mlir --schedule '{ATTENTION_IN_TURNS.schedule}' --trace out.svg"
    yield block("sh", f"{command}\n")
    yield "![tensor copies, products of two warpgroups in turn, and stores over time](pictures/attention-wgmma.svg)\n\n"
    yield prose("""
Warp 8 is the producer: it copies Q, and keeps two stages of K and V full. Warps 0 to 3 and 4 to 7 each have 64 rows.
For each tile of keys a warpgroup has two products, Q K^T and P V, and computes the softmax between them, where its row
is blank. The two take turns (`consumers=pingpong`): while one multiplies, the other has its softmax, or waits to be let
in. The producer goes on to the next tile of O while the last one is multiplied and stored.
""")


def computed() -> Iterator[str]:
    """The arithmetic."""
    yield prose("""
## What is computed

Scores, the softmax and all sums are f32, whatever the types of temporaries are; P is rounded to the type of V before
its product, O once at the end. With s the scores of a tile, m and l the largest score and the sum of a row so far, and
c the scale times log2(e):

    m' = max(m, max s)     p = 2^(c s - c m')     a = 2^(c m - c m')     l' = a l + sum p     O' = a O + p V

2^x is `ex2.approx.ftz.f32`: the PTX ISA bounds its relative error by 2^-22, and numbers below 2^-126 become 0. The
interpreter has its bits on an H200, so that both give the same words (`test/gpu/test_attention.py`). Without
f, c s - c m' is one `fma`; where there is an f, s - m' is subtracted first, so that scores may be as large as f32 is.
With u the rounding of P's type (2^-11 for f16, 2^-8 for bf16), D columns and N keys:

    |O - exact| <= sum over n of P |V| (2 x + u + (N + 16) 2^-23) + 2^-25 sum over n of |V| + rounding of O

x is how far the exponent of a score may be off: (D + 8) 2^-23 scale |Q| |K|^T for the product, and 2^-21 of the
largest score, mask and value of f that it is made of. `test/attention_grid.py` holds kernels of all forms against
float64 with this bound. `--check` evaluates the function as it is written, in float64, and carries a bound through
every operation; it grants P the rounding of its type before or after the division.

| a row of scores | gives |
|---|---|
| all minus infinity, or no key left of the diagonal | NaN, as 0 / 0 is |
| some minus infinity | as if these keys were not there |
| a NaN in the row of Q, in K, or plus infinity | NaN |
| the lowest number of f32, as in masks | as any other number: a row of nothing else weighs all keys alike |
| a NaN or an infinity in V | the same in its column, but for keys in tiles right of the diagonal |
""")


def declined() -> Iterator[str]:
    """What is left."""
    yield prose("""
## What declines

What is nearly attention stays as it is: the products are compiled separately, and `warploom-opt --remarks` says why at
the second product. The reasons are that

- the scores, or what becomes of them, are used by others too, or the sums before they are divided;
- what P is divided by is not the sum of the same exponentials, or what is subtracted is not the largest score of the
  row;
- the scores depend on several products, or on a negative scale;
- an operation between them writes what is read, uses the result, or may touch any memory;
- the second product adds to what its result holds, or its result is where Q, K or V is;
- types or sizes are not those above: f32, for example, which no instruction multiplies whole.

Targets before sm_80 have no instruction for it, and are refused.
""")
    fixed = ", ".join(f"`{name}`" for name in FIXED)
    yield prose(
        fill(
            f"These fields of a schedule are no choices of an attention: {fixed}. The others are, as "
            "[schedules.md](schedules.md) says: a CTA tile is rows of Q x keys x columns of Q.",
            120,
        )
    )


def write() -> None:
    """Writes the page."""
    (HERE / "attention.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
