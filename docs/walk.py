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

The compiler lowers a product from `linalg` to PTX in steps. You can print the IR after each step, edit it, and continue
from there. This page lowers [examples/matmul.mlir](../examples/matmul.mlir), C = A * B with f16 operands and f32 sums,
in two ways:

- with `mma.sync`: warps multiply fragments in their registers, and `cp.async` copies tiles to shared memory. This works
  on every GPU from sm_80 on.
- with `wgmma`: warpgroups multiply tiles in shared memory, and a producer warp copies the tiles there by tensor copies.
  This works on sm_90a (Hopper).

The first three steps are the same. Then the schedule decides between the two. This command prints the result of the
last pass. To print an earlier level, remove passes from the end of `-p`:
""")
    yield block("sh", f"warploom-opt examples/matmul.mlir -p \\\n  '{WARPS.until('convert-warp-to-ptx')}'\n")
    yield prose("""
`-p warploom` runs all passes and takes the same options. Three shorter pipelines run parts of it:

| pipeline | from | to |
|---|---|---|
| `warploom-schedule` | `linalg` | products with a schedule |
| `warploom-tile` | products with a schedule | kernels over fragments |
| `warploom-finish` | kernels over fragments | PTX |

""")
    yield "## 1. The input\n\n"
    yield block("mlir", quoted(EXAMPLE.read_text(), ["func.func", "constant", "fill", "matmul", "return", "}"]))
    yield prose("""
Four passes run first:

- `warp-set-target` writes the target GPU into the module. Later passes read there which instructions exist.
- `warp-bufferize` converts functions on tensors to functions on memory. This function is already on memory.
- `warp-fuse-attention` looks for [attention](attention.md).
- `warp-fuse-rows` looks for [operations along rows](rows.md), such as a softmax or a norm.

## 2. One operation: `warp-raise-matmul`, `warp-fold-fill`, `warp-fuse-epilogue`

`linalg` has many ways to write a product. Each of them becomes one operation, `warp.matmul`. It has the types in which
A and B are multiplied, the initial value of the sum, and the layout of each operand.

- A fill before the product becomes its initial value, so the kernel does not read C.
- Elementwise operations after the product become its epilogue, so the kernel does not store the product itself.
- `warp-fuse-weights` fuses the conversion of integer weights to f16 or bf16 into the product.
- `warp-im2col` makes a [convolution](hopper.md#convolutions) one product over all pixels, on `sm_90a`.
- If sizes or strides are [dynamic](sizes.md), `warp-version` makes several versions of the product, and each call
  chooses one.
""")
    yield block("mlir", quoted(WARPS.level("warp-fuse-epilogue"), ["func.func", "warp.matmul"], 200))
    yield prose("""
## 3. All choices in one attribute: `warp-schedule`

The schedule is one attribute of the product. The pass chooses it by a model of the target and the size. You can set
each field yourself ([schedules.md](schedules.md)), and `warploom tune` measures which schedule is fastest. The two
schedules of this page are small, so that the IR is easy to read:
""")
    yield block("mlir", quoted(WARPS.level("warp-schedule"), [r"warp\.matmul"], 400))
    yield block("mlir", quoted(WARPGROUPS.level("warp-schedule"), [r"warp\.matmul"], 400))
    yield prose("""
| | first schedule | second schedule |
|---|---|---|
| tile of C for each CTA | 64x64 | 128x64 |
| elements along K in each step | 32 | 64 |
| part of the tile | 32x32 for each of four warps | 64x64 for each of two warpgroups |
| instruction | `mma` of 16x8x16 | `wgmma` of 64x64x16 |
| CTAs | one for each tile | five, which compute two tiles each |

If the schedule asks for it, `warp-lay-out` transposes operands before the product, or copies D after it.

`warp-outline` makes a kernel of the product, a `gpu.func`, and replaces the product by a launch. The kernel contains
the same operation, restricted to one `tile` for each CTA. The index of the CTA determines its tile. CTAs that run at
the same time share rows of A and columns of B. `warp.matrix` selects one matrix of a batch, or of memory that is not
row-major.
""")
    patterns = ["gpu.launch_func", "gpu.func", "gpu.block_id", r"warp\.matmul", "gpu.return"]
    yield block("mlir", quoted(WARPS.level("warp-outline"), patterns, 200))


def levels_of_warps() -> Iterator[str]:
    """The way of `mma.sync`."""
    yield prose("""
## With `mma.sync`

### 4. A kernel over fragments: `warp-stage`, `warp-fragments`, `warp-epilogue`

`-p warp-tile` runs these three passes and `warp-raise-gelu`. `warp-stage` makes a loop over K for the tile. The loop is
not pipelined yet: it copies a tile of A and a tile of B to shared memory, waits, multiplies the two tiles there, and
waits again. Each warp multiplies its part of the tiles. A matrix in the registers of a warp is a value of type
`!warp.fragment`. The type has the role of the operand, its size, its element type and its layout. The layout maps each
bit of the lane number, and each bit of the element's number in the lane, to a bit of the row or of the column. After
the loop, `warp.epilogue` stores the sums.
""")
    staged = [
        "memref.alloc", "memref.alloc", "gpu.subgroup_id", "warp.constant", "scf.for", "warp.copy", "warp.copy",
        "gpu.barrier", "warp.tile_mma", "gpu.barrier", "scf.yield", "warp.epilogue",
    ]  # fmt: skip
    yield block("mlir", quoted(WARPS.level("warp-stage"), staged))
    yield prose("""
`warp-fragments` replaces the product of a warp's parts by matrix instructions: it loads fragments of A and B and
multiplies them, step by step along K. `warp-epilogue` expands the store of the sums. `warp-raise-gelu` replaces a
[gelu](epilogues.md#gelu) in an epilogue by one operation; this product has none.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("warp-epilogue"),
            [
                "memref.alloc", "memref.alloc", "warp.constant", "scf.for", "warp.copy", "warp.copy",
                "gpu.barrier", "warp.load", "warp.load", r"warp\.mma ", "warp.load", "warp.load", r"warp\.mma ",
                "gpu.barrier", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
`#warp.swizzle` is the layout of a tile in shared memory. It permutes chunks of 16 bytes, so that the rows that an
`ldmatrix` reads are in different banks. The rows of B run along N, so its loads are `trans`. The kernel already runs at
this level, but its copies do not overlap its products. You can also write such kernels by hand.

### 5. Other loops around the products: `warp-pack`, `warp-split-k`, `warp-persist`

Three passes rewrite the launch and the loops around the products if the schedule asks for it. This schedule does not.

- `warp-pack` adds a kernel that copies A or B to whole tiles of aligned rows.
- `warp-split-k` splits K among several CTAs. The last CTA of a tile to finish adds the partial sums.
- `warp-persist` makes each CTA compute one tile after another.

The kernel is also correct without these passes. If a pass cannot do what the schedule asks for, it writes a remark. Two
more passes change nothing here: `warp-fp8-as-f16`, which multiplies 8-bit floats as f16, and `warp-specialise`.
`gpu-kernel-outlining`, the second pass of the pipeline, makes kernels of the bodies of `gpu.launch`. After the last
one, `convert-warp-to-nvvm` can make [operations of upstream's `nvvm` and `llvm`](interop.md) of the PTX.
Before the first one, `convert-vector-to-warp` makes fragments of upstream's `vector.contract` and transfers.

### 6. Copies ahead of products: `warp-pipeline`, `warp-synchronise`

Each operand gets a ring of three buffers, `warp.make_ring`. While the warps multiply one tile, the next two tiles are
being copied (`async`). Steps of the ring, `warp.pipeline`, say where a stage is committed and waited for. The fragments
of the next step are loaded while the products of the current step run. The pass follows def-use chains, so a loop that
you write by hand may have constants anywhere, and several products. `warploom-opt --remarks` says where and why the
pass does not change a loop.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("warp-pipeline"),
            [
                "memref.alloc", "memref.alloc", "make_ring", r"warp\.copy.*async", "producer_commit", "consumer_wait",
                "warp.load", "warp.load", "scf.for", "warp.load", "warp.load",
                r"warp\.copy.*async", r"warp\.copy.*async", "producer_commit", r"warp\.mma ", "consumer_wait",
                "warp.load", r"warp\.mma ", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
`warp-synchronise` has a pattern for each way to agree on stages. Here all threads meet at a barrier, and each has
waited for its own copies before. With `sync = mbarrier` each stage has two mbarriers, and each warp waits for what it
needs.
""")
    patterns = ["scf.for", r"warp\.copy.*async", r"warp\.copy.*async", "warp.commit", "warp.wait", "gpu.barrier"]
    yield block("mlir", quoted(WARPS.level("warp-synchronise"), patterns))
    yield prose("""
`warploom run --trace` draws a timeline of one CTA ([trace.md](trace.md)):

![copies, products, waits and stores of each warp over time](pictures/pipeline-mma.svg)

### 7. Groups of rows and shared memory: `warp-expand`, `warp-allocate`

`warp-expand` writes out how a tile finds its group of rows. This kernel has no groups. `warp-allocate` writes the
offset of each allocation in shared memory into the IR, and the total number of bytes into the launch. It keeps offsets
that you set by hand, so tiles that are never used at the same time can share memory.
""")
    yield block("mlir", quoted(WARPS.level("warp-allocate"), ["i32$", "gpu.launch_func", r"alloc\(\)", r"alloc\(\)"]))
    yield prose("""
### 8. Instructions of one thread: `convert-warp-to-ptx`

Fragments become registers, and operations become instructions of the dialect `ptx`. Its verifier checks the operands,
the types and the target of each instruction. The pass computes equal addresses once and moves them out of loops, so the
loop consists mostly of loads, copies and products.
""")
    yield block(
        "mlir",
        quoted(
            WARPS.level("convert-warp-to-ptx"),
            ["ptx.module", "ptx.var", "ptx.func", "cp.async", "ptx.label", "ldmatrix", "mma.sync", "ptx.inst ret"],
        ),
    )
    yield "`-t ptx` prints the text. Comments name the tile, and the operation that each instruction comes from.\n\n"
    yield block(
        "ptx",
        quoted(
            WARPS.ptx(),
            [
                r"\.version", r"\.target", r"\.entry", r"\.param", "// schedule", r"// warp.copy", "cp.async.cg",
                "commit_group", "wait_group", "bar.sync", "loop_1:", "// warp.load", "ldmatrix", "// warp.mma",
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

The tile becomes the same unpipelined loop over K: copy, wait, multiply, wait. `warp-fragments` multiplies by
`warp.wgmma`:

- It reads both operands from shared memory. The only fragment is the accumulator, whose layout has two bits for the
  warp of the group (`r4 r5`).
- It is asynchronous. `warp.commit wgmma` closes a group of products, and `warp.wait wgmma` waits until at most
  `pending` groups are unfinished.
- `warp.fence async_proxy` makes writes of threads to shared memory visible to `wgmma`.
""")
    yield block(
        "mlir",
        quoted(
            WARPGROUPS.level("warp-epilogue"),
            [
                "memref.alloc", "memref.alloc", "warp.constant", "scf.for", "warp.copy", "warp.copy",
                "fence async_proxy", "gpu.barrier", "fence wgmma", r"warp\.wgmma ", r"warp\.wgmma ", "commit wgmma",
                "wait wgmma", "gpu.barrier", "scf.yield", "warp.store",
            ],
        ),
    )  # fmt: skip
    yield prose("""
### 5. One tile after another: `warp-persist`

The schedule asks for five CTAs (`ctas = 5`), and there are ten tiles. The pass puts a loop over tiles around the loop
over K.
""")
    patterns = ["gpu.launch_func", "gpu.block_id", "scf.for", "scf.for", "warp.copy", r"warp\.wgmma ", "warp.store"]
    yield block("mlir", quoted(WARPGROUPS.level("warp-persist"), patterns))
    yield prose("""
### 6. Producer and consumers: `warp-specialise`

The pass adds a third warpgroup, the producer, and makes a ring of stages, `warp.make_ring`. The host encodes a tensor
map for each argument.
""")
    specialised = WARPGROUPS.level("warp-specialise")
    yield block("mlir", quoted(specialised, [r"warp\.encode_tensor_map", r"warp\.encode_tensor_map", "launch_func"]))
    yield prose("""
One lane of the producer loops over all tiles. For each stage it acquires the stage, says how many bytes will fill it,
starts a tensor copy of A and one of B, and goes on to the next stage (`producer_advance`). The producer releases most
of its registers to the other warpgroups (`nvvm.setmaxregister`).
""")
    yield block(
        "mlir",
        quoted(
            specialised,
            [
                "make_ring", "setmaxregister", "elect.sync", "scf.for", "scf.for", "producer_acquire",
                "tensor_load", "tensor_load",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The other two warpgroups are consumers. For each stage, a consumer waits until the stage is full, starts its products,
and waits until the products of the previous stage are done. Then it releases the previous stage, so that the producer
can refill it. At the end of a tile, the consumers write their results to shared memory, and one thread of each starts
tensor stores to C. Meanwhile the producer copies the next tile.
""")
    yield block(
        "mlir",
        quoted(
            specialised,
            [
                "setmaxregister increase", "scf.for", "scf.for", "consumer_wait", "fence wgmma", r"warp\.wgmma ",
                "commit wgmma", "wait wgmma", "consumer_release", "scf.yield", "wait wgmma", "warp.store",
                "fence async_proxy", "barrier cta", "tensor_store", "commit bulk",
            ],
        ),
    )  # fmt: skip
    yield prose("""
The picture is a timeline of one CTA. A product of a warpgroup extends from its issue to the wait that covers it. In the
dark part the tensor cores multiply.

![tensor copies of the producer, products and stores of the consumers over time](pictures/pipeline-wgmma.svg)

### 7. Barriers: `warp-synchronise`

Loops now carry the number of the stage that a role is at, and its phase. The ring becomes two mbarriers for each stage:
`full` and `empty`. The producer waits until a stage is `empty` and tells the barrier `full` how many bytes to expect; a
consumer waits at `full` and arrives at `empty`.
""")
    patterns = ["make_barriers", "make_barriers", "warp.await", "warp.arrive", "warp.await", "warp.arrive"]
    yield block("mlir", quoted(WARPGROUPS.level("warp-synchronise"), patterns))
    yield prose("""
### 8. Shared memory of tiles and barriers: `warp-allocate`

`warp-pipeline` and `warp-expand` change nothing here. `warp-allocate` also sets the offset of each barrier.
""")
    patterns = ["i32$", "gpu.launch_func", "memref.alloc", "memref.alloc", "memref.alloc", "make_barriers"]
    yield block("mlir", quoted(WARPGROUPS.level("warp-allocate"), patterns))
    yield prose("""
### 9. Instructions of one thread: `convert-warp-to-ptx`

Barriers become mbarrier objects. Tensor copies become `cp.async.bulk.tensor`. The tiles of a product become matrix
descriptors: 64-bit words with the address and the swizzle of a tile. `warploom explain` prints the fields of a
descriptor.
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
[hopper.md](hopper.md) describes all operations for warpgroups, tensor copies and clusters, and says which products use
them by default.
""")


def last_levels() -> Iterator[str]:
    """What is done with the PTX."""
    yield prose("""
## Running it

`warploom run` compiles and launches the kernel. It uses a GPU if there is one for the target. Otherwise it uses the
interpreter, which runs the PTX above like any other PTX. `--check` compares the result with float64. `--check=all`
looks for races, for copies without a wait, and for reads of uninitialised data.
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
