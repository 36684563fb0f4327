"""Writes pipeline.md: one product through every level, with `mma.sync` and with `wgmma`, as it is printed now.

    python docs/walk.py            # or: make docs

The prose is here; what is quoted is made anew, by the lines that a pattern each picks.
"""

from __future__ import annotations

from collections.abc import Iterator

from levels import EXAMPLE, HERE, WARPGROUPS, WARPS, block, prose, quoted

GENERATED = "<!-- Written by docs/walk.py; `make docs` writes it again. -->\n\n"


def page() -> Iterator[str]:
    """The page, piece by piece."""
    yield GENERATED
    yield from first_levels()
    yield from levels_of_warps()
    yield from levels_of_warpgroups()
    yield from last_levels()


def first_levels() -> Iterator[str]:
    """What both ways have in common."""
    yield prose("""
# One product through the pipeline

A product goes from `linalg` to PTX in steps. Each step can be printed, edited and continued from. This page takes
[examples/matmul.mlir](../examples/matmul.mlir), C = A * B with f16 operands and f32 sums, through all steps twice:

- with `mma.sync`: warps multiply fragments in their registers, and `cp.async` copies tiles to shared memory. This works
  on every GPU from sm_80 on.
- with `wgmma`: warpgroups multiply tiles in shared memory, and a producer warp copies them there by tensor copies.
  This works on sm_90a (Hopper).

The first three steps are the same. The schedule then says which way the product goes. To see a level, leave the passes
after it off the end of `-p`:
""")
    yield block("sh", f"warploom-opt examples/matmul.mlir -p \\\n  '{WARPS.until('convert-warp-to-ptx')}'\n")
    yield prose("""
`-p warploom` stands for all of them and takes the same options. `warploom-schedule` ends at products with a schedule,
`warploom-tile` goes from there to kernels over fragments, and `warploom-finish` goes from there to PTX.
""")
    yield "## 1. The input\n\n"
    yield block("mlir", quoted(EXAMPLE.read_text(), ["func.func", "constant", "fill", "matmul", "return", "}"]))
    yield prose("""
`warp-set-target` puts the GPU on the module. The passes after it ask there which instructions exist. `warp-bufferize`
turns functions on tensors into functions on memory. This function is already on memory. `warp-fuse-attention` looks for
[attention](attention.md), and `warp-fuse-rows` for [operations along rows](rows.md), such as a softmax or a norm.

## 2. One operation: `warp-raise-matmul`, `warp-fold-fill`, `warp-fuse-epilogue`

`linalg` has many ways to write a product. Each of them becomes one operation, `warp.matmul`. It has the types in which
A and B are multiplied, the initial value of the sum, and the layout of each operand. A fill before the product becomes
its initial value, so C is never read. Elementwise operations after the product become its epilogue, so the product
itself is never stored. `warp-fuse-weights` lets a product read integer weights that are converted to f16 or bf16 for
it. If sizes or strides are [dynamic](sizes.md), `warp-version` then makes several products of one, and each call
chooses among them.
""")
    yield block("mlir", quoted(WARPS.level("warp-fuse-epilogue"), ["func.func", "warp.matmul"], 200))
    yield prose("""
## 3. All choices in one attribute: `warp-schedule`

The schedule is one attribute of the product. The pass chooses it with a model of the target and the size. You can set
each field yourself ([schedules.md](schedules.md)), and `warploom tune` measures which schedule is fastest. The two
schedules of this page are small, so that the IR is easy to read:
""")
    yield block("mlir", quoted(WARPS.level("warp-schedule"), [r"warp\.matmul"], 400))
    yield block("mlir", quoted(WARPGROUPS.level("warp-schedule"), [r"warp\.matmul"], 400))
    yield prose("""
In the first, a CTA computes a tile of C of 64x64, with 32 of K in each step. Each of its four warps computes 32x32 of
the tile, with `mma` instructions of 16x8x16. In the second, a CTA computes a tile of 128x64, with 64 of K in each step.
Each of two warpgroups computes 64x64 of it, with `wgmma` instructions of 64x64x16. Five CTAs compute two tiles each.

If the schedule asks for it, `warp-lay-out` transposes operands before the product, or copies D after it. Then
`warp-outline` makes a kernel of the product, a `gpu.func`, and puts a launch in its place. The kernel has the same
operation, of which each CTA computes one `tile`. The index of the CTA determines its tile. CTAs that run at the same
time share rows of A and columns of B. `warp.matrix` selects one matrix of a batch, or of memory that is not
row-major.
""")
    patterns = ["gpu.launch_func", "gpu.func", "gpu.block_id", r"warp\.matmul", "gpu.return"]
    yield block("mlir", quoted(WARPS.level("warp-outline"), patterns, 200))


def levels_of_warps() -> Iterator[str]:
    """The way of `mma.sync`."""
    yield prose("""
## With `mma.sync`

### 4. A kernel over fragments: `warp-stage`, `warp-distribute`, `warp-fragments`, `warp-epilogue`

`-p warp-tile` stands for these four passes and `warp-raise-gelu`. `warp-stage` makes a loop over K of the tile. The
loop is not pipelined yet: it copies a tile of A and one of B to shared memory, waits, multiplies the two tiles there,
and waits again. The sums are a value of type `!warp.cta_tile`, which the warps of the CTA hold together. After the
loop, `warp.epilogue` stores them.
""")
    staged = [
        "memref.alloc", "memref.alloc", "warp.cta_constant", "scf.for", "warp.copy", "warp.copy", "gpu.barrier",
        "warp.tile_mma", "gpu.barrier", "scf.yield", "warp.epilogue",
    ]  # fmt: skip
    yield block("mlir", quoted(WARPS.level("warp-stage"), staged))
    yield prose("""
`warp-distribute` gives each warp its part of the sums, and of the tiles that it multiplies. A matrix in the registers
of a warp is a value of type `!warp.fragment`. The type has the role of the operand, its size, its element type and its
layout. The layout maps each bit of the lane number, and of the number of the element in the lane, to a bit of the row
or of the column.
""")
    distributed = ["gpu.subgroup_id", "warp.constant", "scf.for", "warp.tile_mma", "scf.yield", "warp.epilogue"]
    yield block("mlir", quoted(WARPS.level("warp-distribute"), distributed))
    yield prose("""
`warp-fragments` multiplies the part of a warp by matrix instructions: it loads fragments of A and B and multiplies
them, step by step along K. `warp-epilogue` expands the store of the sums. `warp-raise-gelu` replaces a
[gelu](epilogues.md#gelu) in an epilogue by one operation; this product has none.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("warp-epilogue"),
            [
                "memref.alloc", "memref.alloc", "warp.constant", "scf.for", "warp.copy", "warp.copy",
                "gpu.barrier", "warp.ldmatrix", "warp.ldmatrix", r"warp\.mma ", "warp.ldmatrix", "warp.ldmatrix",
                r"warp\.mma ", "gpu.barrier", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
`#warp.swizzle` is the layout of a tile in shared memory: chunks of 16 bytes are permuted, so that the rows that an
`ldmatrix` reads are in different banks. The rows of B run along N, so its loads are `trans`. You can stop here and run
the kernel, whose copies do not overlap its products. You can also write such kernels by hand.

### 5. Other loops around the products: `warp-pack`, `warp-split-k`, `warp-persist`

Three passes rewrite the launch and the loops around the products if the schedule asks for it. This schedule does not.
`warp-pack` adds a kernel that copies A or B to whole tiles of aligned rows. `warp-split-k` cuts K into parts, and
different CTAs compute them. The last CTA of a tile adds the sums of all parts. `warp-persist` lets each CTA compute one
tile after another. A kernel is correct without these passes. A pass that cannot do what the schedule asks for writes a
remark.
`warp-fp8-as-f16` multiplies 8-bit floats as f16 where the hardware does the same. `warp-specialise` does nothing here.

### 6. Copies ahead of products: `warp-pipeline`

Each tile gets a ring of three buffers. While one tile is multiplied, the next two are being copied (`async`, `commit`,
`wait`), and the fragments of the next step are loaded while the products of this step run. The pass follows def-use
chains. So loops that are written by hand may have constants anywhere, and several products. `warploom-opt --remarks`
says where and why the pass does not change a loop.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("warp-pipeline"),
            [
                "memref.alloc", "memref.alloc", r"warp\.copy.*async", "warp.commit", "warp.commit", "warp.wait",
                "gpu.barrier", "warp.ldmatrix", "warp.ldmatrix", "scf.for", "warp.ldmatrix", "warp.ldmatrix",
                r"warp\.copy.*async", r"warp\.copy.*async", "warp.commit", r"warp\.mma ", "warp.wait", "gpu.barrier",
                "warp.ldmatrix", r"warp\.mma ", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
`warploom run --trace` draws what one CTA does over time ([trace.md](trace.md)):

![copies, products, waits and stores of each warp over time](pictures/pipeline-mma.svg)

### 7. Macro-operations and shared memory: `warp-expand`, `warp-allocate`

`warp-expand` replaces operations that stand for more than a few instructions (sums over slices of K or over CTAs,
copies to aligned rows) by loads, stores, barriers and arithmetic. This kernel has none. `warp-allocate` gives each
allocation its offset in shared memory, and writes the total number of bytes into the launch. It keeps offsets that
are given by hand, so that tiles that are never used at the same time can share memory.
""")
    yield block("mlir", quoted(WARPS.level("warp-allocate"), ["i32$", "gpu.launch_func", r"alloc\(\)", r"alloc\(\)"]))
    yield prose("""
### 8. Instructions of one thread: `convert-warp-to-ptx`

Fragments become registers, and operations become instructions of the dialect `ptx`. Its verifier knows the operands,
the types and the targets of each instruction. The pass computes equal addresses once and moves them out of loops. So
the loop consists mostly of loads, copies and products.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("convert-warp-to-ptx"),
            ["ptx.module", "ptx.var", "ptx.func", "cp.async", "ptx.label", "ldmatrix", "mma.sync", "ptx.inst ret"],
        ),
    )
    yield "`-t ptx` prints the text. Comments name the tile and the operation from which instructions were made.\n\n"
    yield block(
        "ptx",
        quoted(
            WARPS.ptx(),
            [
                r"\.version", r"\.target", r"\.entry", r"\.param", "// schedule", r"// warp.copy", "cp.async.cg",
                "commit_group", "wait_group", "bar.sync", "loop_1:", "// warp.ldmatrix", "ldmatrix", "// warp.mma",
                "mma.sync", "bra", "// warp.store", "st.global", "ret;",
            ],
        ),
    )  # fmt: skip


def levels_of_warpgroups() -> Iterator[str]:
    """The way of `wgmma`."""
    yield prose("""
## With `wgmma`

The passes are the same. Only the schedule differs:
""")
    yield block("sh", f"warploom-opt examples/matmul.mlir -p \\\n  '{WARPGROUPS.until('convert-warp-to-ptx')}'\n")
    yield prose("""
### 4. A kernel over tiles in shared memory: `warp-stage` to `warp-epilogue`

The tile becomes the same plain loop over K: copy, wait, multiply, wait. `warp-fragments` multiplies by `warp.wgmma`. It
reads both operands from shared memory, and needs no fragment but the accumulator, whose layout has two bits for the
warp of the group (`r4 r5`). Its products go on while the warps do other things: `warp.wgmma_commit` closes a group of
products, and `warp.wgmma_wait` waits until at most `pending` groups are under way. `warp.proxy_fence` makes what
threads wrote visible to `wgmma`.
""")
    yield block(
        "mlir",
        quoted(
            WARPGROUPS.level("warp-epilogue"),
            [
                "memref.alloc", "memref.alloc", "warp.constant", "scf.for", "warp.copy", "warp.copy", "proxy_fence",
                "gpu.barrier", "wgmma_fence", r"warp\.wgmma ", r"warp\.wgmma ", "wgmma_commit", "wgmma_wait",
                "gpu.barrier", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
### 5. One tile after another: `warp-persist`

The schedule asks for five CTAs (`ctas = 5`), and there are ten tiles. So the pass puts a loop over tiles around the
loop over K.
""")
    patterns = ["gpu.launch_func", "gpu.block_id", "scf.for", "scf.for", "warp.copy", r"warp\.wgmma ", "warp.store"]
    yield block("mlir", quoted(WARPGROUPS.level("warp-persist"), patterns))
    yield prose("""
### 6. Producer and consumers: `warp-specialise`

The pass adds a third warpgroup, the producer, and gives each stage of the ring two barriers: `full` and `empty`. The
host encodes a tensor map of each argument.
""")
    specialised = WARPGROUPS.level("warp-specialise")
    yield block("mlir", quoted(specialised, [r"warp\.encode_tensor_map", r"warp\.encode_tensor_map", "launch_func"]))
    yield prose("""
One lane of the producer goes through all tiles. For each stage it waits until the stage is `empty`, says at `full` how
many bytes will arrive, and starts a tensor copy of A and one of B. The warpgroup gives most of its registers to the
others (`warp.set_registers`).
""")
    yield block(
        "mlir",
        quoted(
            specialised,
            [
                "make_barriers", "make_barriers", "set_registers", "warp.elect", "scf.for", "scf.for", "warp.await",
                "warp.expect", "tensor_load", "tensor_load",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The other two warpgroups are consumers. Each waits until a stage is `full`, starts its products, and waits until those
of the stage before are done. Then it arrives at the `empty` barrier of that stage, so that the producer may fill it
again. At the end of a tile the consumers write their results to shared memory, and one thread of each starts tensor
stores to C. The producer copies the next tile meanwhile.
""")
    yield block(
        "mlir",
        quoted(
            specialised,
            [
                "set_registers.*grow", "scf.for", "scf.for", "warp.await", "wgmma_fence", r"warp\.wgmma ",
                "wgmma_commit", "wgmma_wait", "warp.arrive", "scf.yield", "wgmma_wait", "warp.store", "proxy_fence",
                "named_barrier", "tensor_store", "bulk_commit",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The picture shows what one CTA does over time. A product of a warpgroup is drawn from its issue to the wait that covers
it. In the dark part the tensor cores multiply.

![tensor copies of the producer, products and stores of the consumers over time](pictures/pipeline-wgmma.svg)

### 7. Shared memory of tiles and barriers: `warp-allocate`

`warp-pipeline` and `warp-expand` have nothing to do here. `warp-allocate` also gives each barrier its offset.
""")
    patterns = ["i32$", "gpu.launch_func", "memref.alloc", "memref.alloc", "memref.alloc", "make_barriers"]
    yield block("mlir", quoted(WARPGROUPS.level("warp-allocate"), patterns))
    yield prose("""
### 8. Instructions of one thread: `convert-warp-to-ptx`

Barriers become mbarrier objects, tensor copies become `cp.async.bulk.tensor`, and the tiles of a product become matrix
descriptors: 64-bit words with the address and the swizzle of a tile, which `warploom explain` takes apart.
""")
    yield block(
        "ptx",
        quoted(
            WARPGROUPS.ptx(),
            [
                r"\.version", r"\.target", r"\.entry", r"\.param", "// schedule", "mbarrier.init", "setmaxnreg.dec",
                "elect.sync", "try_wait", "expect_tx", r"cp\.async\.bulk\.tensor", "setmaxnreg.inc", "try_wait",
                "wgmma.fence", "wgmma.mma_async", "wgmma.commit_group", "wgmma.wait_group", "mbarrier.arrive",
                "st.shared", "fence.proxy.async", r"cp\.async\.bulk\.tensor.*global", "ret;",
            ],
        ),
    )  # fmt: skip
    yield prose("""
[hopper.md](hopper.md) has all operations for warpgroups, tensor copies and clusters, and says which products go this
way by default.
""")


def last_levels() -> Iterator[str]:
    """What is done with the PTX."""
    yield prose("""
## Running it

`warploom run` compiles, launches and compares. It launches on a GPU if there is one that runs the target, else on the
interpreter, which reads the PTX above like any other. `--check` compares the result with float64. `--check=all`
looks for races, for copies that nobody waits for, and for values that nobody wrote.
""")
    yield block(
        "sh",
        "warploom run examples/matmul.mlir --device interp --check\n"
        f"warploom run examples/matmul.mlir --device interp --check --schedule '{WARPGROUPS.schedule}'\n",
    )


def write() -> None:
    """Writes the page."""
    (HERE / "pipeline.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
