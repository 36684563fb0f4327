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
    yield from few_queries()
    yield from of_bytes()
    yield from gradients()
    yield from over_time()
    yield from computed()
    yield from declined()


def asked() -> Iterator[str]:
    """What is taken."""
    yield prose(
        """
# Attention

The compiler fuses two products with a softmax between them to one kernel. The kernel loops over tiles of K and V, and
keeps the scores in registers:

    S = scale * f(Q K^T)        P = exp(S - max S) / sum exp(S - max S)        O = P V

The input is ordinary `linalg` on tensors or memory, as in [examples/attention.mlir](../examples/attention.mlir).
`warp-fuse-attention` traces an element of O back to the elements of Q, K and V, so the operations, their order and the
number of temporaries may vary:

| part | what may vary |
|---|---|
| softmax | `linalg.softmax`, or operations with `math.exp` or `math.exp2` |
| division | before or after the second product, or as a multiplication by 1 / sum |
| K | may be transposed |
| batch | any number of dimensions; several heads may share K and V through their indexing maps |
| f: masks, biases | may scale a score, and add numbers and memory that any of the loops of the scores index |
| f: causal masks, windows, ALiBi | may compare and compute with `linalg.index` |
| f: documents, lengths | may compare numbers in memory of i32, such as one for each query and one for each key |
| sinks | max and sum may take one more number of each row from memory, by an operation or as the reduction's start |
| f: softcap | may apply `arith` and `math` operations to the score |
| types | Q, K and V are f16 or bf16, and O has the same type or f32; or they are [8-bit floats](#8-bit-floats) |
| scales of O | O may be multiplied by numbers, or memory that the batch and the queries index |
| pages | K and V may be gathered from pages by a table: `tensor.extract` of a cache, by that of a table of i32 or i64 |
| lengths | the numbers of queries and keys may differ, and may be dynamic (`?`) |
| sequences | of several lengths one behind the other: [a loop](#sequences-of-several-lengths), or `documents` |
| columns of a head | of Q up to 640, of V up to 256 or an even part of them; the two may differ |

If f makes a score minus infinity by one of these comparisons, or by `arith.ori` of several, the keys are not computed:

| comparison | becomes | and |
|---|---|---|
| n > m + c | `diagonal = c` | tiles to the right are skipped |
| n < m - w | `window = w` | tiles to the left are skipped |
| n >= L, in memory along the batch | `lengths` | tiles behind are skipped; `mma.sync` reads no key behind L |
| x(m) != y(n), in memory along queries and keys | `documents` | tiles before and behind are skipped |

Tiles that are partly left out are masked in registers. Other masks are part of f.

`documents` are several sequences in one batch, with a number for each token. A launch before the kernel
(`KeySpans` in `passes/tile/outline_attention.py`) finds the least and the largest number of each tile's queries, and
the first and the last key whose number is between them. Numbers may have any order; where tokens of a sequence follow
each other, a tile reads the keys of its own sequences only. Where sizes are not known, all keys are read. Gradients
have a launch for dQ, and one for dK and dV, which finds the queries of each tile of keys.

Columns are padded to 16, 32, 64, 128, 192 or 256, and those of Q further to multiples of 64. Where V has more than
256, `warp-fuse-attention` makes the parts of its columns a loop of the batch, each with a CTA that multiplies Q and K
again. V may be columns of K, as of one latent matrix with 576 columns of which V is the first 512: a CTA copies these
once (`of_keys`), if they begin and end at multiples of 64.
"""
    )
    yield block("sh", "warploom run examples/attention.mlir --device interp --check\n")


def levels() -> Iterator[str]:
    """What it becomes."""
    yield prose("""
## The levels

Attention uses the same passes as [a product](pipeline.md). This schedule has small tiles, so that the IR is easy to
read:
""")
    passes = ATTENTION.until("convert-warp-to-ptx")
    yield block("sh", f"warploom-opt examples/attention.mlir -p \\\n  '{passes}'\n")
    yield prose("""
### One operation: `warp-fuse-attention`

The pass replaces the whole function by one operation without temporaries.
""")
    yield block(
        "mlir", quoted(ATTENTION.level("warp-fuse-attention"), ["func.func", r"warp\.attention", "return"], 400)
    )
    yield prose("""
### A kernel: `warp-outline`

`warp-schedule` chooses the tiles. Here a CTA has 32 rows of Q, and reads 64 keys at a time. The CTAs whose rows attend
to the most keys start first.
""")
    yield block(
        "mlir",
        quoted(ATTENTION.level("warp-outline"), ["launch_func", "gpu.func", "arith.subi", r"warp\.attention"], 230),
    )
    yield prose("""
### A loop over tiles of K and V: `warp-stage`

The loop carries the largest score of each row, partial sums of each row, and the sums of O. The scores of a tile stay
in a fragment of accumulators, on which three operations work:

- `warp.reduce` reduces its rows.
- `warp.map` computes elements, and repeats those of a column along the rows.
- `warp.convert_layout` converts P to the layout of operand A of the second product. From f32 accumulators to 16-bit
  operands, this only renames registers and needs no instruction.

The products are `warp.tile_mma`, and are lowered like those of `warp.matmul`.
""")
    yield block(
        "mlir",
        quoted(
            ATTENTION.level("warp-stage"),
            [
                "warp.copy", "gpu.barrier", r"scf\.for", "warp.copy", "warp.copy", "gpu.barrier",
                r"warp\.tile_mma", r"scf\.if", "warp.index 1 from", "warp.index 0 from", "arith.select",
                "warp.reduce max", "math.exp2", "math.fma", "math.exp2", "warp.reduce add",
                "warp.convert ", "warp.convert_layout", r"warp\.tile_mma", "scf.yield", "warp.reduce add", "arith.divf",
                r"warp\.epilogue",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The other passes work as for products. `warp-fragments` lowers products to matrix instructions, `warp-pipeline` makes
copies of K and V run ahead of the products, `warp-allocate` places tiles in shared memory, and `convert-warp-to-ptx`
emits the instructions of one thread. On sm_90a, attention with more than 64 queries uses `wgmma`, and
[a producer warp](hopper.md) with tensor copies, if heads of Q have 33 to 256 columns, those of V more than 32, and
tensor copies can read V. Other heads, as of 576 columns of Q and 512 of V, and pages of K and V are multiplied by
`mma`, and `--remarks` says why. Elements of a byte have heads of at most 128 columns for `wgmma`. On sm_100a, scores, P
and O are [in tensor memory](hopper.md#attention-in-tensor-memory).
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


def few_queries() -> Iterator[str]:
    """What is otherwise for few queries."""
    yield prose("""
## Few queries

A decoder has one query for each head. The kernel takes as long as K and V are read, so they are read once, by all SMs:

- Heads that share K and V become the rows of one tile: `warp-fuse-attention` exchanges the loop over the only query
  with that over these heads, unless a `diagonal` or a `window` counts queries.
- The warps of a CTA share the keys of each tile (`warp` narrower than `cta`): each multiplies its keys by all of Q, and
  holds all columns of O. At the end they merge what they have in shared memory, each for a part of the columns.
- CTAs share the keys of a tile of O (`split_k`), as many as there are SMs for. Each leaves its largest scores, sums and
  products in scratch memory, and the last one to arrive merges them, in order, so that every run gives the same bits.
  They do so wherever `mma.sync` has fewer tiles of rows than there are SMs, except where rows are to have the same bits
  in every batch.

Merging is exact in the same sense as the loop: m' is the largest m, and each l and O is multiplied by 2^(c m - c m').

K and V in pages are views of a cache, `warp.paged`. A tile of keys lies in one page: pages have a power of two of rows,
16 or more, and with fewer than 64 of them a tile has fewer keys. Their attention is lowered to `mma.sync`. V may be a
slice of the columns of K, or gathered from the first columns of the same pages. Pages of other sizes, in a cache of
unknown size, whose last rows are left out, or that something else reads too, are gathered by a kernel before.
""")


def gradients() -> Iterator[str]:
    """What training needs."""
    yield prose("""
## Gradients

The forward pass leaves the logarithm of the sum of each row, lse = M + log L with M = max S and L = sum exp(S - M): if
the function stores that number of each query too, as f32, the kernel of O does it.

The backward pass is fused by meaning as the forward pass is, one result at a time, where its elements are these:

    P = exp(S - lse)        dP = dO V^T        dS = scale * P * (dP - delta)
    dV = P^T dO             dK = dS^T Q        dQ = dS K

| part | what may vary |
|---|---|
| S | scaled, masked by `diagonal`, `window`, `documents`, through functions as f, also by lengths; not of sequences |
| lse, delta | memory of f32 with a number for each query, along any loops of the batch; what makes it before stays |
| delta | the sum of dO * O along a row: an argument, or computed before, by a kernel of its own |
| scale | at any place in dS; it is that of S |
| mask | memory of f16, bf16 or f32, added to scaled scores, along queries, keys, heads or some; it gets no gradient |
| P, dS | rounded to the type of the matrices that they are multiplied with |
| batch | heads that share K and V: dK and dV are summed over what indexes Q, and not K |
| results | dQ, dK and dV, or some of them, dV not alone; f16, bf16 or f32 |

They become `warp.attention_gradient`: one for dQ, one for dK and dV, or two where their columns are more than 256
together. The rows of the first are queries, those of the second keys, and each CTA has some rows. It keeps its tiles of
Q and dO, or of K and V, and loops over tiles of the other two. Scores are computed again, and P and dS stay in
registers, as operand A of the products that are added up. Nothing is added by several CTAs, so every run gives the
same bits; Q K^T and dO V^T are computed twice for that, seven products in place of five.

The launches of warpgroups overlap: a kernel lets the next one begin when all its CTAs have begun
(`griddepcontrol.launch_dependents`), and that one waits for it at its end (`griddepcontrol.wait`), so that its CTAs
fill the SMs that the last ones leave. `passes/tile/launches.py` does so for launches of which none writes what another
one reads or writes.

S starts from -lse / scale and dP from -delta, so that neither takes registers or instructions of its own; with a mask S
starts from 0, for a mask may be as low as f32 is, and an lse of -inf counts as the lowest number. Without one, a row
that no key counts for has lse = -inf and a delta of NaN, and gradients of NaN as its O.
`test/attention_gradients.py` states the bounds on errors.
""")


def of_bytes() -> Iterator[str]:
    """Operands of 8 bits."""
    yield prose("""
## Sequences of several lengths

Sequences may lie one behind the other, with memory of i32 that has where each ends, as `cu_seqlens[1:]` does. Front
ends write a loop over them, as over [groups of experts](experts.md):

```mlir
%end, %O = scf.for %s = %c0 to %count step %c1 iter_args(%start = %c0, %old = %all) -> (index, tensor<4096x8x64xf16>) {
  %last = tensor.extract %ends[%s] : tensor<16xi32>
  %stop = arith.index_cast %last : i32 to index
  %rows = arith.subi %stop, %start : index
  %q = tensor.extract_slice %Q[%start, 0, 0] [%rows, 8, 64] [1, 1, 1] : tensor<4096x8x64xf16> to tensor<?x8x64xf16>
  // likewise %k and %v, and %old to be written; an attention of ? queries and ? keys to %o
  %new = tensor.insert_slice %o into %old[%start, 0, 0] [%rows, 8, 64] [1, 1, 1]
    : tensor<?x8x64xf16> into tensor<4096x8x64xf16>
  scf.yield %stop, %new : index, tensor<4096x8x64xf16>
}
```

`warp-group` makes one `warp.attention ... grouped %ends` of it. Queries and keys count from the beginning of their
sequence, so diagonals, windows and functions of indices are those of one sequence. There is a CTA for each tile that
there may be; it finds its sequence by the ends (`warp.find_group`), and copies the rows of that alone, by tensor maps
of [parts](experts.md#what-the-kernel-does). Sequences may be empty, and rows behind the last end are neither read nor
written. Ends must not decrease, or pass the last row; nothing checks that. Masks, lengths, documents and sinks that a
sequence has of its own are not fused: `--remarks` says so.

Numbers of `documents` do the same where sequences are not in order, where their rows are to be masked only, and in
gradients.

## 8-bit floats

Q, K and V may be `f8E4M3FN`, and O is f16, bf16 or f32. Scales of Q and K multiply the score, that of V multiplies O:
numbers, or memory with one for each head. The exponentials are rounded to e4m3 for the second product, times 2^8,
because those below 2^-6 would have fewer digits; sums of rows are of the same numbers in f32, so their quotient is not
changed. The IR may round them before or after the division, of which the kernel does the better one.

Warpgroups with 256 keys in a tile, which is the default where nothing masks keys, make three of eight registers of P by
a polynomial in f16, beside the exponentials of the others (`warp.convert` with `powers`): its relative error is below
2^-6.9, where rounding to e4m3 has 2^-4. Sums of rows are then products too, of P as it is rounded, with eight columns
of ones beside those of V. Each has the ones of 32 keys of a tile: in one sum, a key that weighs most would hide the
others of its tile, because instructions on bytes cut what they add. Where the logarithm of the sum is a result, all are
exponentials, and sums are in f32.

`wgmma` adds products of bytes with 13 bits behind the point of the largest. So each tile of keys is summed from zero,
and added to O in f32, by the multiply-add that scales O for a new largest score. It takes both operands along k alone,
which for V means keys side by side: V that lies otherwise is transposed by a launch before, if its size is known. Where
keys and columns are multiples of 16 that launch also puts each 16 keys in the order in which lanes have P, which so is
operand A without an exchange between lanes. Heads of up to 128 columns use it, others `mma.sync` (sm_89 and later).
`test/attention_problems.py` has the bound: that below, with 2^-4 for the rounding of P, 2^-18 of the sum of |V| for
what is too small, and 2^-12 of |Q| |K| and of P |V| for each instruction, whose products are cut 13 bits below the
largest one.
""")


def over_time() -> Iterator[str]:
    """The picture of a kernel."""
    yield prose("""
## Over time

The picture is a timeline of one CTA of the Hopper kernel, in modelled cycles ([trace.md](trace.md)). The CTA computes
two tiles of O:
""")
    command = f"warploom run examples/attention.mlir --schedule '{ATTENTION_IN_TURNS.schedule}' --trace out.svg"
    yield block("sh", f"{command}\n")
    yield "![tensor copies, products of two warpgroups in turn, and stores over time](pictures/attention-wgmma.svg)\n\n"
    yield prose("""
- Warp 8 is the producer. It copies Q, and keeps two stages of K and V full. It copies the operands of the next tile of
  O while the consumers compute and store the current one.
- Warps 0 to 3 are one consumer warpgroup, and warps 4 to 7 are the other. Each has 64 rows. For each tile of keys, a
  warpgroup multiplies twice, Q K^T and P V.
- The two warpgroups take turns (`consumers=pingpong`): while one multiplies, the other computes its softmax or waits
  for its turn. In a turn, a warpgroup multiplies P V of a tile of keys, and starts Q K^T of the next one. With 128
  columns and more it starts Q K^T first, and then P V of the tile before, which runs while it computes P of this one
  (`passes/pipelining/rotate.py`); K and V have rings of stages of their own then.
""")


def computed() -> Iterator[str]:
    """The arithmetic."""
    yield prose("""
## Arithmetic

Scores, the softmax and all sums are f32. Scores are rounded where the IR rounds them, for example if they are stored in
f16. If the IR rounds the exponent, the exponentials or their sum, it is not an attention, and a remark says so. P is
rounded to the type of V before the second product, and O is rounded once at the end. Let s be the scores of a tile, m
the largest score of a row so far, l the sum of a row so far, and c the scale times log2(e). Then the kernel
computes for each tile:

    m' = max(m, max s)     p = 2^(c s - c m')     a = 2^(c m - c m')     l' = a l + sum p     O' = a O + p V

2^x is `ex2.approx.ftz.f32`. The PTX ISA bounds its relative error by 2^-22, and results below 2^-126 become 0. The
interpreter computes the bits of an H200, so both give the same results (`test/gpu/test_attention.py`). Without f,
c s - c m' is one `fma`. In c m - c m' both products are rounded, so that a is 1 while m stays. With f, the kernel
computes s - m' first, so scores may have any value of f32.

Without f, the p of the largest score is 2^d, where c m was rounded by d. Behind the loop, l gets what rounding this p
to the type of V changes. So a row whose other keys weigh nothing is exactly the row of V, as the gradients of attention
expect: they multiply differences of V and O by the scores.

The error is bounded as follows. Let u be the rounding error of P's type (2^-11 for f16, 2^-8 for bf16), D the number of
columns and N the number of keys. Then

    |O - exact| <= sum over n of P |V| (2 x + u + (N + 16) 2^-23) + 2^-25 sum over n of |V| + rounding of O

where x bounds the error of the exponent of a score: (D + 8) 2^-23 scale |Q| |K|^T for the product, plus 2^-21 of the
largest score, mask and value of f in it. `test/attention_grid.py` checks kernels of all forms against float64 with this
bound. `--check` evaluates the function as written, in float64, and propagates an error bound through every operation.
It allows P to be rounded before or after the division.

Special values give these results:

| a row of scores | result |
|---|---|
| all minus infinity, or no key left of the diagonal | NaN, as 0 / 0 is |
| some minus infinity | the result without these keys |
| a NaN in the row of Q, in K, or plus infinity | NaN |
| the lowest number of f32, as in masks | as for any other number: a row with no other score weighs all keys equally |
| a NaN or an infinity in V | the same in its column, unless the key is in a tile that is skipped, or not read |
""")


def declined() -> Iterator[str]:
    """What is left."""
    yield prose("""
## What is not fused

If a function does not match, the compiler compiles the products separately, and `warploom-opt --remarks` says why at
the second product. The reasons are:

- The scores, a temporary computed from them, or the sums before the division have another use than O and lse.
- The divisor of P is not the sum of the same exponentials, or the subtracted number is not the largest score of the
  row.
- The scores depend on several products, or have a negative scale.
- An operation between the products writes memory that is read, uses the result, or may access any memory.
- The second product accumulates into its result, or the result shares memory with Q, K or V.
- Types or sizes are not those above. For example, no instruction multiplies f32 with all its bits.

Targets before sm_80 are refused, because they lack the instructions.
""")
    fixed = ", ".join(f"`{name}`" for name in FIXED)
    yield prose(
        fill(
            f"These fields of a schedule do not apply to attention: {fixed}. [schedules.md](schedules.md) describes "
            "the others. The `cta` tile of attention is rows of Q x keys x columns of Q.",
            120,
        )
    )


def write() -> None:
    """Writes the page."""
    (HERE / "attention.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
