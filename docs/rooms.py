"""Writes architecture.md: packages and their imports, levels of IR, the path of a product, terms, where to add what.

    python docs/rooms.py           # or: make docs
    python docs/rooms.py --added   # counts lines of each part from the history, for the table in `ADDED`

The prose is here. Packages, imports, passes, the IR they leave and the files on the path are read from the code.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import WARPLOOM_UNIVERSE, make_context, parse_mlir

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "test"))

import structure  # noqa: E402
from entered import entered  # noqa: E402

EXAMPLE = ROOT / "examples" / "matmul.mlir"
SCHEDULE = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}
WIDTH = 110

SHOWN = {
    "warp-set-target": "builtin.module",
    "warp-raise-matmul": "warp.matmul",
    "warp-fold-fill": "warp.matmul",
    "warp-schedule": "warp.matmul",
    "warp-stage": "warp.tile_mma",
    "warp-fragments": "warp.mma",
    "warp-epilogue": "warp.store",
    "warp-pipeline": "warp.copy",
    "warp-allocate": "memref.alloc",
    "convert-warp-to-ptx": "mma.sync",
}
"""The operation that shows best what a pass did; else the first line that is new."""

ADDITIONS = (
    ("a shape or type of a matrix instruction", "a row of `dialect/isa/`: [how](adding-an-instruction.md)"),
    ("a family of matrix instructions", "rows, an operation, a pattern, its semantics: [how](adding-a-family.md)"),
    ("any other instruction of PTX", "a row of `dialect/ptx/rows/`, and its meaning in a module of "
     "`runtime/interp/meaning/`: [how](adding-an-instruction.md#when-a-row-is-not-enough)"),
    ("a target", "a row of `dialect/isa/row.py`; what it alone has, as `only` in rows of instructions; its arithmetic "
     "in `runtime/numerics/product.py`, unless it is that of the target before it"),
    ("an element type of matrices", "a row of `dialect/isa/form.py`; MLIR's type in `dialect/warp/attributes.py`, that"
     " of arrays in `ELEMENT_NAMES` of `runtime/base/launch.py`; then rows of instructions"),
    ("the arithmetic of an instruction", "`runtime/numerics/`, which does not depend on the interpreter"),
    ("an operation between `linalg` and PTX", "`dialect/warp/`, and its conversion in `passes/to_ptx/`"),
    (
        "an operand of products with data beside its memory, such as scales",
        "an operation in `dialect/warp/`, an `OperandForm`",
    ),
    ("a way to multiply tiles in shared memory", "a class in `passes/tile/`, chosen in `stage.py`"),
    (
        "a way for warpgroups to multiply",
        "its schedules in `passes/schedule/`, in `warpgroup.py`; a class in `passes/tile/` as above",
    ),
    ("a kernel that reads and writes memory once, without a K loop", "what makes a `Traversal`, in `passes/tile/`"),
    ("the expansion of a macro-operation", "a pattern in `passes/tile/expand.py`, and its operation in `needs`"),
    ("a step of strategies", "a method of `Handle`, and MLIR's operation for it in `passes/strategy/transform.py`"),
    ("anything, from a package of your own", "an entry point: [how](strategies.md#packages-of-your-own)"),
    ("another form of product in `linalg`", "`passes/linalg/`: it becomes `warp.matmul`"),
    ("an operation of `linalg` by name", "`linalg_ops.py`, `contraction.py` or `convolution.py` of `dialect/mlir/`"),
    ("a function of elements, such as `math.erf`", "by other functions in `passes/linalg/functions.py`, or by "
     "instructions in `passes/to_ptx/functions.py`; in float64 in `runtime/reference/elements.py`. PyTorch's of the "
     "same name follows"),
    ("a choice of the lowering", "a field of `dialect/schedule/schedule.py`, which commands and Python have by its "
     "name; its default in `passes/schedule/`, a rewrite; values to try in `test/orders.py`"),
    ("a remark of a pass", "`remark` of `passes/diagnostics.py`, where the pass declines"),
    ("a constant measured on a GPU", "`passes/schedule/model.py`, or a file like it for another GPU"),
    ("a check of a running kernel", "a `Check` in `runtime/interp/watch/`, which hears `Events` of "
     "`runtime/interp/machine/events.py`; its name in `checks.py` there"),
    ("an event of a trace, or its duration", "`runtime/interp/watch/tracer.py`; its cycles in `timeline.py` there"),
    ("a check of PTX text", "`dialect/ptx/check/`"),
    ("a kind of argument", "`runtime/arguments/`"),
    ("an operation of PyTorch", "in `runtime/torch/`: on elements `scalars.py`, of shapes `views.py`, a product "
     "`products.py`, a reduction or places `importer.py`, by other operations `decompositions.py`"),
    ("a command", "`runtime/cli/`"),
    ("an option of how functions are compiled", "`COMPILATION` in `runtime/cli/options.py`; `compile` in "
     "`runtime/kernel/compile.py`"),
)  # fmt: skip

GLOSSARY = (
    ("CTA tile, warp tile", "the part of the result that a CTA, or a warp, computes at a time (`cta`, `warp`)"),
    ("fragment", "the part of a matrix that a warp holds in registers; its layout says which lane has which element"),
    ("warpgroup", "four warps of a CTA that multiply together by `wgmma`"),
    ("cluster", "CTAs that run at the same time and can copy to each other's shared memory (`cluster`)"),
    ("producer, consumer", "the warp that copies tiles to shared memory, and the warpgroups that multiply them"),
    ("tensor copy, tensor map", "a copy of a box by `cp.async.bulk.tensor`; the 128 bytes that describe the tensor"),
    ("stage", "one of the buffers of the ring in shared memory that copies fill in turn (`stages`)"),
    ("prefetch distance", "how many K tiles copies run ahead of the products (`prefetch`)"),
    (
        "split-K",
        "CTAs share the K of a tile, and add their partial sums in a workspace in global memory, or in the shared "
        "memory of a cluster (`split_k`, `partial_sums`)",
    ),
    ("sliced-K", "groups of warps share each K tile, and add their partial sums in shared memory (`sliced_k`)"),
    ("partial sum", "the sum over the part of K that one CTA of split-K, or one warp of sliced-K, computes"),
    ("epilogue", "the operations on an accumulator before it is stored: bias, activation, residual, conversion"),
    ("epilogue operand", "an operand that an epilogue reads: a matrix, a vector or a number"),
    ("staging of the epilogue", "elements change lanes in shared memory, so that warps store whole lines (`staging`)"),
    ("packing", "copying an operand to aligned rows in scratch memory before the product (`pack`)"),
    ("rasterisation", "the order in which CTA tiles are computed, for reuse in the L2 cache (`group`)"),
    ("persistent CTAs", "a fixed number of CTAs that go from tile to tile (`ctas`)"),
    ("swizzle", "a permutation of 16-byte chunks in shared memory that avoids bank conflicts (`swizzle`)"),
    ("index permutation", "an order of a fragment's indices in which wide loads fill its registers in sequence"),
    ("register overhead", "the registers that ptxas uses in addition to those of fragments and addresses"),
    ("fp8-as-f16 emulation", "8-bit floats are converted to f16 in registers, and multiplied as f16 (`fp8_as`)"),
    ("elementwise kernel", "a kernel of elementwise operations that are not fused with a product"),
    ("trace", "a record of what each warp of an interpreted launch does over time, in modelled cycles"),
    ("finding", "an error that a check reports in a running kernel: the line, the CTA, the warp and the two events"),
    ("row", "a frozen record of one instruction: spelling, operands, section of the ISA, version, target"),
)  # fmt: skip

INTRODUCTION = """
# Architecture

The code has three layers. `dialect/` has the IR and the tables of instructions, `passes/` lowers the IR, and `runtime/`
runs kernels. A package of `runtime/` may import the other two layers. A package of `passes/` may import only
`dialect/`, and `dialect/` imports neither of the others. There are no import cycles. `python test/structure.py` checks
these rules, and `make test` runs it.

The folders are installed as the packages `warploom.dialect`, `warploom.passes` and `warploom.runtime`. Inside them,
imports are relative. `src/warploom/` has a link to each of them. An editable install (`pip install -e .`) is a path to
`src`, which editors and type checkers follow, and a file that is new or renamed is seen at once. In PyCharm, mark `src`
and `test` as source roots.
"""

LEVELS = """
## Levels

These passes lower a product, in this order. You can run a pass alone, omit it, or replace it. `warploom-opt
--print-between-passes` prints the IR after each pass, and [pipeline.md](pipeline.md) explains the passes. The last
column shows a line of the IR of `examples/matmul.mlir` that the pass changes.
"""

EVIDENCE = """
## One fact, one place

Each fact is stored once, and everything else reads it there:

| fact | where it is | what reads it |
|---|---|---|
| an instruction | a row of `dialect/isa/` or `dialect/ptx/rows/` | verifier, parser, printer, interpreter, emitter |
| the effects of an instruction | its traits, `dialect/ptx/instructions.py` | checks, traces, interpreter |
| the layout of each operand | the row of the instruction | figures, `warploom layout`, the interpreter, the lowering |
| all choices for a product | its schedule, an attribute in the IR | the lowering, which makes no other choices |
| the offset of a tile in shared memory | the IR, where `warp-allocate` writes it | the later passes |
| the launch: grid, block, shared memory, arguments | the IR | the runtime |

Effects are those on memory and on other threads. `warploom isa`, these pages and the conformance tests also read the
rows. Checks, traces and the interpreter do not read the text of an opcode.

`passes/to_ptx` emits an instruction by its spelling and its operands (`passes/to_ptx/emitter.py`). The row gives the
rest: the type of the destination register, whether the instruction may be hoisted or computed once, and the first PTX
version that has it on the target. An instruction that no row allows is an error.
"""

NOT_PATTERNS = """
## Steps that are not patterns

Most steps are sets of patterns on operations, and the IR shows what they do. These steps do more at once:

- `passes/to_ptx/memory.py` divides a `warp.copy` among the threads of a CTA. Like a load or a store, the operation says
  what moves. The last pass chooses the accesses: their width, order and predicates. The passes for pipelines move
  whole copies, and no pass would change a part of one.
- The same file stores fragments to rows of an odd number of elements. It too chooses the accesses of one `warp.store`.
  Whether a lane takes an element of its neighbour depends on the address of the row, which a layout does not contain.
  Written as operations of one thread, a warp tile of 64x64 would need several hundred.
- `warp-pipeline` and `warp-specialise` rewrite a whole loop. A ring of stages is correct only if every copy, wait and
  product that shares it changes at the same time. Each pass first checks the loop, and leaves it unchanged if an
  operation does not fit. `warp-specialise` puts the steps of producers and of consumers into one loop, and then gives
  each role its part of it.
- A kernel of rows or of an elementwise operation is made from its operation in one step. It has no K loop, no stages
  and no matrix instruction to choose. `passes/tile/traversal.py` has the code that both share.
- Attention is one pattern on the `warp.attention` of a CTA. It makes loops, copies, `warp.tile_mma` and `warp.map`. The
  patterns for products and epilogues then expand these.
"""


@cache
def packages() -> dict[str, list[structure.Module]]:
    """The modules of each package."""
    modules: dict[str, list[structure.Module]] = {}
    for module in structure.modules().values():
        modules.setdefault(module.package, []).append(module)
    return modules


@cache
def imported() -> dict[str, set[str]]:
    """Which modules each module imports: every one is read once."""
    return structure.edges(structure.modules())


def summary(package: str) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())) or ""
    return re.split(r"(?<=\.)\s", text.split("\n\n")[0].replace("\n", " "))[0].rstrip(".")


def package_imports(package: str) -> str:
    """What a package imports: packages of its own floor, and floors below."""
    graph, home, floor = imported(), structure.modules(), package.partition(".")[0]
    targets = {home[target].package for module in packages()[package] for target in graph[module.name]} - {package}
    below = {target.partition(".")[0] for target in targets} - {floor}
    here = {target for target in targets if target.partition(".")[0] == floor}
    return ", ".join(f"`{target.replace('.', '/')}`" for target in [*sorted(below), *sorted(here)])


def package_table() -> Iterator[str]:
    """The table of packages."""
    yield "## Packages\n\n| package | holds | imports |\n|---|---|---|\n"
    for package in sorted(packages()):
        yield f"| `{package.replace('.', '/')}` | {summary(package)} | {package_imports(package)} |\n"


def passes() -> list[str]:
    """The standard pipeline, with the schedule in its place; a given schedule leaves out a pass."""
    plain, pipeline = (
        re.findall(r"[\w-]+(?:\{[^}]*\})?", standard_pipeline("sm_90a", schedule)) for schedule in (None, SCHEDULE)
    )
    named = {one.partition("{")[0]: one for one in pipeline}
    return [named.get(one, one) for one in plain]


@cache
def level(count: int) -> str:
    """The module after that many passes."""
    context = make_context()
    module = parse_mlir(context, EXAMPLE.read_text())
    if count:
        lower(module, context, ",".join(passes()[:count]))
    return f"{module}\n".replace("\t", "")


def changed_line(number: int) -> str:
    """The line that shows what the pass of that number did; empty if it left everything as it was."""
    before, after = level(number).splitlines(), level(number + 1).splitlines()
    new = [
        line
        for tag, _, _, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if tag in ("replace", "insert")
        for line in after[start:end]
    ]
    wanted = SHOWN.get(passes()[number].partition("{")[0], "")
    line = next((one.strip() for one in new if wanted in one), "")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."


def pass_summary(name: str) -> str:
    """The first sentence of the docstring of a pass."""
    text = WARPLOOM_UNIVERSE.all_passes[name]().__doc__ or ""
    return re.split(r"(?<=[.:;])\s", " ".join(text.split()))[0].rstrip(".:;")


def pass_table() -> Iterator[str]:
    """The table of passes."""
    yield f"{LEVELS}\n| pass | what it does | for example |\n|---|---|---|\n"
    for number, name in enumerate(one.partition("{")[0] for one in passes()):
        line = changed_line(number).replace("|", "\\|")
        yield f"| `{name}` | {pass_summary(name)} | {f'`{line}`' if line else 'no change'} |\n"


def table(title: str, heads: tuple[str, str], rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f"\n## {title}\n\n| {heads[0]} | {heads[1]} |\n|---|---|\n"
    for left, right in rows:
        yield f"| {left} | {right} |\n"


FEATURES = """
## The files of a feature

For some features of the lowering, the table lists the files that have code only or mostly for this feature, and their
total number of lines, to within a hundred. A feature also has a field and defaults in `passes/schedule/`, and entries
in the lists of passes and operations.

"""

FEATURE_FILES = {
    "block scales": "dialect/isa/form.py dialect/warp/operands.py dialect/warp/mma.py "
    "passes/linalg/product.py passes/tile/side_operands.py passes/to_ptx/memory_ops.py",
    "split-K": "dialect/schedule/schedule.py dialect/warp/mma.py passes/tile/split.py",
    "epilogues": "dialect/warp/elements.py dialect/warp/matmul.py dialect/warp/fragments.py "
    "passes/linalg/elementwise.py passes/tile/fragments.py",
    "products of any size": "passes/schedule/fragments.py passes/schedule/warpgroup_model.py passes/tile/outline.py",
    "two products of one A": "dialect/warp/operands.py passes/linalg/fuse_products.py passes/tile/operands.py "
    "passes/tile/fragments.py",
    "the same bits in every batch": "dialect/schedule/schedule.py passes/schedule/defaults.py",
    "staging of the epilogue": "dialect/schedule/schedule.py dialect/warp/convert.py passes/schedule/defaults.py "
    "passes/tile/fragments.py passes/to_ptx/products.py",
    "sparsity": "dialect/isa/sparse_mma.py dialect/warp/mma.py dialect/warp/operands.py passes/linalg/product.py "
    "passes/tile/side_operands.py passes/to_ptx/products.py",
    "products of warpgroups": "dialect/warp/warpgroup.py passes/schedule/warpgroup.py "
    "passes/schedule/warpgroup_schedule.py passes/schedule/warpgroup_model.py passes/tile/operands.py "
    "passes/to_ptx/products.py",
    "A or B in registers": "passes/schedule/warpgroup.py passes/tile/register_products.py dialect/warp/warpgroup.py",
    "packed weights": "dialect/warp/views.py passes/linalg/fuse_weights.py passes/tile/register_products.py "
    "runtime/arguments/packed.py",
    "tensor copies": "dialect/warp/tensor_maps.py passes/pipelining/tensor_copies.py "
    "passes/to_ptx/synchronisation.py runtime/plan/host.py",
    "producer and consumers": "passes/pipelining/specialise.py passes/pipelining/ring.py passes/pipelining/roles.py",
    "tensor memory": "dialect/isa/tensor_product.py dialect/layouts/tensor_memory.py dialect/warp/tensor_memory.py "
    "passes/schedule/warpgroup_model.py passes/pipelining/tensor_memory.py "
    "passes/to_ptx/tensor_memory.py passes/to_ptx/packing.py",
    "clusters": "dialect/schedule/schedule.py passes/tile/outline.py passes/pipelining/roles.py "
    "passes/pipelining/tensor_copies.py",
    "convolutions": "dialect/warp/tensor_maps.py passes/linalg/channels.py passes/linalg/convolution.py "
    "passes/linalg/image_windows.py passes/pipelining/tensor_copies.py",
    "depthwise convolutions": "passes/linalg/window_sums.py passes/tile/nest_kernel.py",
    "attention": "dialect/warp/attention.py passes/linalg/attention.py passes/linalg/read_attention.py "
    "passes/schedule/attention.py passes/tile/attention.py",
    "gradients of attention": "passes/linalg/attention_gradient.py "
    "passes/schedule/attention.py passes/tile/attention_gradient.py",
    "products of experts": "dialect/warp/operands.py passes/linalg/fuse_products.py passes/tile/outline.py",
    "scales of blocks of 8-bit floats": "dialect/warp/operands.py passes/linalg/dequantised.py "
    "passes/tile/side_operands.py",
    "pages of K and V": "dialect/warp/views.py passes/linalg/pages.py passes/tile/attention.py",
    "keys of few queries shared by CTAs": "passes/schedule/attention.py passes/tile/attention.py "
    "passes/tile/outline_attention.py",
    "rows": "dialect/warp/rows.py passes/linalg/fuse_rows.py "
    "passes/linalg/split_rows.py passes/linalg/generalize.py passes/tile/rows.py passes/tile/row_shares.py "
    "passes/tile/row_region.py passes/to_ptx/epilogue.py",
    "elementwise kernels": "passes/linalg/elementwise.py passes/linalg/tensors.py "
    "passes/tile/elementwise_kernel.py passes/tile/traversal.py",
    "calls that cost little": "runtime/kernel/kernel.py runtime/cuda/launch.py runtime/cuda/launches.py",
    "ping-pong": "dialect/schedule/schedule.py passes/pipelining/roles.py",
    "changes of layout": "dialect/warp/conversions.py dialect/warp/conversion_steps.py "
    "dialect/warp/convert.py passes/to_ptx/products.py",
    "kernels in upstream's dialects": "dialect/mlir/gpu.py "
    "dialect/mlir/nvgpu.py dialect/mlir/nvvm.py dialect/mlir/nvvm_types.py passes/to_ptx/nvgpu.py "
    "passes/to_ptx/upstream.py passes/to_ptx/llvm_kernel.py passes/to_ptx/llvm_operations.py "
    "passes/tile/foreign_kernels.py",
    "kernels and launches for upstream": "passes/to_nvvm/convert.py passes/to_nvvm/nvvm_operations.py "
    "passes/to_nvvm/arithmetic.py passes/to_nvvm/instruction.py passes/to_nvvm/blocks.py",
    "functions of front ends": "passes/linalg/front_ends.py passes/linalg/functions.py passes/linalg/moved_operands.py "
    "passes/linalg/tensors.py passes/partial.py",
    "strategies": "dialect/schedule/transform.py passes/strategy/transform.py passes/strategy/handle.py",
}
"""The files of each feature; the page is not written if one of them is gone."""


def about(feature: str, lines: int) -> int:
    """Lines to the nearest hundred; what the page says as long as it is no more than a hundred off, so that not every
    line that is added somewhere changes the page."""
    page = (HERE / "architecture.md").read_text(encoding="utf-8")
    present = re.search(rf"^\| {re.escape(feature)} \| \d+ \| (\d+) \|", page, re.MULTILINE)
    return int(present[1]) if present and abs(int(present[1]) - lines) <= 100 else round(lines, -2)


def feature_table() -> Iterator[str]:
    """A row for each feature."""
    for feature, text in FEATURE_FILES.items():
        files = [*dict.fromkeys(text.split())]
        if missing := [file for file in files if not (ROOT / file).exists()]:
            raise FileNotFoundError(f"{feature}: {', '.join(missing)}")
        lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)
        names = ", ".join(f"`{file}`" for file in files)
        yield f"| {feature} | {len(files)} | {about(feature, lines)} | {names} |\n"


SINCE = "eaadbbd3"
"""The commit of 2026-11-25 from which on additions are counted."""

ALL = "all commits of these days"

PARTS = {
    "attention": r"attention|\bkeys\b|queries|softcap|sinks?\b|documents?\b|pages of|dK|dV|dQ|delta\b|varlen",
    "experts": r"experts?\b|grouped products|groups of rows|ragged",
    "quantised products": r"\bweights\b|scales of|packed (floats|weights)|of (4|8|few) bits|promot|8-bit floats"
    r"|zero points?|dequant|scales$",
    "convolutions": r"convolution|im2col|\bimages?\b|pixels?|depthwise",
    "products that belong together": r"swiglu|two products|\bgate[sd]?\b|paired|of one A|Multiply one A",
    "the same bits in every batch": r"batch.?invariant|batch it is in|same bits",
    "calls that cost little": r"\bcalls? (of|with|between)\b|between calls|prepared|Enqueue|scratch memory"
    r"|launch(es)? .*(begin|overlap|start)|overlap(ping)? launches|behind the launch|CUDA graph|replayed graph",
    "products of any size": r"\bwave|parts? of K|\bcut K|split|few rows|narrow|any size|clusters|last set|edges"
    r"|choose tiles|model of products|tiles? of (warpgroups|transposes)|the transposes|which products|ping-?pong",
    "rows and elementwise work": r"\brows\b|norms?\b|softmax|elementwise|top-?k|router|quantis|transposes?\b|concat"
    r"|cross entropy|embedding|sums of columns|\bcasts?\b",
}
"""What the subject of a commit says if it belongs to a part; it belongs to the first that fits."""

ADDED = """
## What parts have taken

Lines that commits from 2026-11-25 to 2026-11-27 added to and removed from `dialect/`, `passes/` and `runtime/`, and the
files that they touched. A commit belongs to the first part that its subject names, and to none if it names none.

| part | commits | lines added | removed | net | files touched |
|---|---|---|---|---|---|
| attention | 69 | 8391 | 4119 | 4272 | 99 |
| experts | 9 | 1025 | 238 | 787 | 33 |
| quantised products | 44 | 3368 | 1818 | 1550 | 69 |
| convolutions | 42 | 4015 | 1627 | 2388 | 74 |
| products that belong together | 6 | 625 | 163 | 462 | 37 |
| the same bits in every batch | 1 | 63 | 16 | 47 | 13 |
| calls that cost little | 16 | 1136 | 600 | 536 | 30 |
| products of any size | 43 | 3033 | 2365 | 668 | 101 |
| rows and elementwise work | 97 | 7900 | 6998 | 902 | 179 |
| all commits of these days | 921 | 84094 | 63162 | 20932 | 466 |

Attention, experts and quantised products were to take at most 3,000 lines net. They took 6,609, which is 3,609 more.
The six parts below them were to take at most 3,500, and took 5,003, which is 1,503 more. `runtime/torch` was to have at
most 4,000 lines, and has about 5,500.
"""


def added() -> Iterator[str]:
    """Rows of the table of additions, from the history, and the sums of the parts that had a budget."""
    folders = ("dialect", "passes", "runtime")
    command = ["git", "log", "--no-merges", f"{SINCE}..", "--numstat", "--format=@%s", "--", *folders]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    changes: dict[str, list[list[list[str]]]] = {part: [] for part in (*PARTS, ALL)}
    for commit in log.split("\n@"):
        subject, *lines = commit.lstrip("@").splitlines()
        files = [line.split("\t") for line in lines if line.strip() and not line.startswith("-")]
        part = next((part for part, words in PARTS.items() if re.search(words, subject, re.IGNORECASE)), None)
        for one in (part, ALL) if files else ():
            if one:
                changes[one].append(files)
    net = dict[str, int]()
    for part, commits in changes.items():
        more, less = (sum(int(file[i]) for commit in commits for file in commit) for i in (0, 1))
        net[part] = more - less
        touched = {file[2] for commit in commits for file in commit}
        yield f"| {part} | {len(commits)} | {more} | {less} | {more - less} | {len(touched)} |"
    parts = [*PARTS]
    for named in (parts[:3], parts[3:]):
        yield f"{', '.join(named)}: {sum(net[part] for part in named):,}"


PATH = """
## The path of one product

The table lists the files with a function that runs when a product of bf16 is compiled for sm_80 (100x100x100) and for
sm_90a (4096x4096x4096), and when the first one is interpreted too. `python test/entered.py "compile a product, sm_80"`
prints them.

"""

STEPS = (
    ("MLIR is read, and a kernel returned", "runtime runtime/base runtime/kernel runtime/plan passes"),
    ("`linalg` becomes `warp.matmul`", "dialect/mlir passes/linalg"),
    ("a schedule is chosen", "dialect/schedule passes/schedule"),
    ("it becomes a kernel over tiles, then fragments", "dialect/layouts dialect/warp passes/tile"),
    ("copies run ahead of products", "passes/pipelining"),
    (
        "fragments become instructions of one thread, and PTX",
        "dialect/isa dialect/ptx dialect/ptx/rows dialect/ptx/text passes/to_ptx",
    ),
)
"""The steps by which a product is compiled, and the packages that take part in each."""

PATH_AIMS = (
    ("compiled for sm_80", "compile a product, sm_80"),
    ("compiled for sm_90a", "compile a product, sm_90a"),
    ("compiled and interpreted", "compile and interpret"),
)


def file_names(files: Iterable[str]) -> str:
    """Files of one package after the other: the package once, then the names of its modules."""
    by_package: dict[str, list[str]] = {}
    for file in files:
        package, _, name = file.rpartition("/")
        by_package.setdefault(package, []).append(name.removesuffix(".py"))
    return "; ".join(f"`{package}`: {', '.join(names)}" for package, names in by_package.items())


def path_table() -> Iterator[str]:
    """A row for each step on the path of a product, with the files that run in it, and how many there are in all.

    Raises:
        ValueError: if a file is of a package that no step has.
    """
    sm_80, sm_90a, interpreted = (entered(task) for _, task in PATH_AIMS)
    yield f"{PATH}| step | sm_80 | sm_90a | files for sm_80 | for sm_90a in addition |\n|---|---|---|---|---|\n"
    left = {*sm_80.files, *sm_90a.files}
    for step, packages in STEPS:
        both = [[file for file in one.files if file.rpartition("/")[0] in packages.split()] for one in (sm_80, sm_90a)]
        further = [file for file in both[1] if file not in both[0]]
        left -= {*both[0], *both[1]}
        yield f"| {step} | {len(both[0])} | {len(both[1])} | {file_names(both[0])} | {file_names(further)} |\n"
    if left:
        raise ValueError(f"files on the path of a product in no step: {', '.join(sorted(left))}")
    further = [file for file in interpreted.files if file not in sm_80.files]
    yield f"| the interpreter runs the PTX | {len(further)} | | {file_names(further)} | |\n"
    yield "\n| a product | files | lines of the functions that run | aim for files |\n|---|---|---|---|\n"
    for (how, task), one in zip(PATH_AIMS, (sm_80, sm_90a, interpreted), strict=True):
        aim = structure.FIGURES[f"files entered, {task}"]
        yield f"| {how} | {len(one.files)} | {about(how, one.lines)} | {aim} |\n"


def page() -> Iterator[str]:
    """The page, piece by piece."""
    yield "<!-- Written by docs/rooms.py; `make docs` writes it again. -->\n"
    yield f"{INTRODUCTION}\n"
    yield from package_table()
    yield from pass_table()
    yield from path_table()
    yield EVIDENCE
    yield NOT_PATTERNS
    yield from table("Where to add what", ("to add", "go to"), ADDITIONS)
    yield f"{FEATURES}| feature | files | lines | which |\n|---|---|---|---|\n"
    yield from feature_table()
    yield ADDED
    yield from table("Terms", ("term", "meaning"), GLOSSARY)


def write() -> None:
    """Writes the page."""
    (HERE / "architecture.md").write_text("".join(page()).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--added" in sys.argv[1:]:
        print("\n".join(added()))
    else:
        write()
