"""Writes the pages of this folder that follow from the rows: support tables, arithmetic, the gallery of fragments.

    python docs/generate.py            # or: make docs

`isa.md` and `isa/` say which instructions there are, `arithmetic.md` what they compute, `fragments/` shows which lane
holds what; `schedules.md` has the fields of a schedule, from the records that hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warploom.dialect.isa.form import Form, Shape
from warploom.dialect.isa.row import TARGETS
from warploom.dialect.isa.wgmma import SWIZZLES, Wgmma
from warploom.dialect.isa.wgmma import rows as warpgroup_rows
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.layouts.pictures import Picture, svg
from warploom.dialect.ptx.instructions import FAMILIES
from warploom.dialect.schedule import FIELDS
from warploom.passes.listed import PARTS
from warploom.runtime.lookup.fragments import Fragment, short, shown
from warploom.runtime.lookup.isa_table import NOTATION, Query, by_section, forms, lines
from warploom.runtime.lookup.pictures import (
    SharedOperand,
    picture,
    shared_picture,
    tensor_memory_forms,
    tensor_memory_picture,
)
from warploom.runtime.numerics.product import BITS, CHAIN, FUSED, GROUPED, INTEGER, ROWS, SCALAR, WIDENED

HERE = Path(__file__).parent

SCHEDULES = """# Schedules

The schedule of a product has a field for every choice of the lowering. The pass `warp-schedule` chooses all fields by a
model of the target and the size, and writes them into the IR:

```mlir
warp.matmul ... {warp.schedule = #warp.schedule<cta = 128x256x32, warp = 64x64, mma = m16n8k16, stages = 8, ...>}
```

You can set any field yourself:

| in | for example |
|---|---|
| a pass | `warp-schedule{stages=4 edges=predicated}` |
| a command | `warploom run --schedule stages=4` |
| Python | `compile(text, stages=4)` |
| the IR | the attribute above |

- If you set a field, the compiler changes other fields only where they contradict it. If that is not enough, it takes
  the best schedule with other tiles or instructions that has the field, but not for more stages than the tile has
  memory for. `--remarks` lists the changes.
- A `cta` alone does not say which instruction multiplies. Warpgroups still do where they are the default and a side of
  the tile is a multiple of 64. `mma=m16n8k16` asks for `mma.sync`.
- If a schedule contradicts itself, or does not fit the product or the target, one error says why.
- Most fields are printed only if they differ from the default in the last column.
- `warploom tune` searches for the fastest schedule.

In Python, `schedule.stages` is a field, and so is `schedule["stages"]`. `schedule.with_fields(stages=4, group=2)`
returns a schedule with other values.
"""

OF_PARTS = {
    "tile": """
![a CTA tile of 64x64x32, four warps of 32x32, instructions m16n8k16, three stages](pictures/tiles-mma.svg)
![a CTA tile of 128x64x64, two warpgroups of 64x64, instructions m64n64k16](pictures/tiles-wgmma.svg)

The left picture shows `cta=64,64,32 warp=32,32 mma=m16n8k16`. Thin lines separate the instructions of the first warp.
The right picture shows `cta=128,64,64 warp=64,64 mma=m64n64k16`. Its parts belong to warpgroups, and one instruction
computes a whole part.

With `sliced_k=2`, two warps compute the same part of D, each from one slice of the K tile:

![a CTA tile of 64x64x32, four warps of 32x64 in two slices of K](pictures/tiles-sliced.svg)

The `order` of the instructions of a warp tile:

![numbers of the instructions of a warp tile, row by row and in a serpentine](pictures/orders.svg)
""",
    "loop": """
[pipeline.md](pipeline.md) has pictures of both kinds of pipeline over time, and explains their colours. These are the
pipeline of its first product, `stages=3`, with one field changed. With `stages=1`, each K tile waits for its copy:

![one CTA over time with one stage: copies and products take turns](pictures/stages.svg)

With `stages=3 prefetch=1`, one copy runs ahead instead of two:

![one CTA over time with three stages and a prefetch distance of one](pictures/prefetch.svg)
""",
    "shared": """
![where 16-byte chunks of rows lie without a swizzle, and with those of 128, 64 and 32 bytes](pictures/swizzle.svg)
""",
    "grid": """
![numbers of the CTAs of 6x6 tiles: row by row, in groups of two rows, with four persistent CTAs](pictures/grid.svg)

![numbers of the clusters of 6x6 tiles, of two CTAs in a column, of two in a row, and of four](pictures/clusters.svg)

With `split_k=3`, each CTA multiplies a third of K. There are three times as many CTAs, and each takes less time:

![one CTA over time with a third of K](pictures/split_k.svg)

![which CTAs write which parts of a D that tiles do not divide: tiles moved inside, and predicated](pictures/edges.svg)
""",
    "operands": """
![rows of B in memory as given, packed to aligned rows, and transposed](pictures/operands.svg)

![rows of D in memory as given, and padded](pictures/padded.svg)
""",
}
"""What is shown of a part of a schedule beside its fields."""

KINDS = {int: "a number", str: "an element type", Shape: "a shape, such as `m16n8k16`"}

GENERATED = "<!-- Generated by docs/generate.py from the instruction rows; `make docs` writes it again. -->\n\n"


def pages() -> dict[str, str]:
    """Every generated file, by its path in this folder."""
    return {
        "isa.md": "".join(isa()),
        **{f"isa/{name}.md": "".join(isa_of(name)) for name in TARGETS},
        "arithmetic.md": "".join(arithmetic()),
        "schedules.md": "".join(schedules()),
        **gallery(),
    }


def schedules() -> Iterator[str]:
    """The fields of a schedule, part by part: what each says, and what it is unless given."""
    yield "<!-- Generated by docs/generate.py from `dialect/schedule/`; `make docs` writes it again. -->\n\n"
    yield SCHEDULES
    for name, summary in PARTS.items():
        yield f"\n## {name}\n\n{summary}\n\n"
        yield "| field | meaning | values | default |\n|---|---|---|---|\n"
        for field in (f for f in FIELDS.values() if f.part == name):
            kind = "M x N x K"[: 4 * field.count - 3] if field.count > 1 else KINDS[field.kind]
            values = ", ".join(f"`{value}`" for value in field.one_of) or kind
            default = "-" if field.always else f"`{field.default}`"
            yield f"| `{field.name}` | {field.meaning} | {values} | {default} |\n"
        yield OF_PARTS.get(name, "")


def isa() -> Iterator[str]:
    """All instructions: how many forms each target has, then each form with where and since when."""
    yield GENERATED
    yield "# Matrix instructions\n\n"
    yield "This page lists every form of PTX ISA 9.7.14 and 9.7.15, from the tables that verifier, printer and parser\n"
    yield "use. `warploom isa` prints the same, with filters. `warploom isa --json` has all fields of each form.\n\n"
    yield "## Forms on each GPU\n\nThe counts are for the latest PTX version.\n\n"
    names = list(FAMILIES)
    yield f"| GPU | {' | '.join(names)} | all |\n|---|{'---:|' * (len(names) + 1)}\n"
    for target in TARGETS:
        counts = [len(forms(Query(target=target, family=name))) for name in names]
        cells = " | ".join(str(count or "-") for count in counts)
        yield f"| [{target}](isa/{target}.md) | {cells} | {sum(counts)} |\n"
    yield f"\n## All forms\n\n{NOTATION}\n"
    for title, group in by_section(lines(forms(Query()))).items():
        yield f"\n### {title}\n\n| PTX | GPUs | forms | |\n|---|---|---|---:|\n"
        for line in group:
            yield f"| {line.ptx} | {line.requirement} | {_code(line.text)} | {line.count} |\n"


def isa_of(target: str) -> Iterator[str]:
    """The instructions of one target, with the first PTX version in which it has them."""
    rows = forms(Query(target=target))
    yield GENERATED
    yield f"# Matrix instructions of {target}\n\n"
    yield f"{len(rows)} forms; `warploom isa --target {target}` prints the same. {NOTATION}\n"
    for title, group in by_section(lines(rows, target)).items():
        yield f"\n## {title}\n\n| PTX | forms | |\n|---|---|---:|\n"
        for line in group:
            yield f"| {line.ptx} | {_code(line.text)} | {line.count} |\n"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


ARITHMETIC = """\
# What the matrix instructions compute

The interpreter computes every `mma`, `mma.sp`, `wmma.mma`, `wgmma.mma_async` and `tcgen05.mma` with the arithmetic of
the target GPU.

Nearly all floating-point forms use one algorithm, the truncated fused sum, with different parameters. It computes an
element of D as follows:

1. D = C.
2. The products along k are added in blocks of L, in ascending order of k. Each block is added to D at once:
   1. Each product is exact. Each term, including D, is truncated toward zero to F bits below the largest exponent of
      the terms.
   2. The truncated terms are added exactly.
   3. The sum becomes the new D, rounded to f32 toward zero, or to f16 to nearest even.

Further rules:

- A zero has a special exponent, which is in the column "zero" of the table.
- A sum that is zero, or rounds to zero, is +0 and never -0.
- If C is f16 and D is f32, C is converted to f32 first. On sm_70, and for m8n8k4 on sm_75, C instead keeps the exponent
  that it has in f16.

## Parameters in Python

```python
from warploom.dialect.ptx.instructions import matrix_form
from warploom.runtime.interp import arithmetic

core = arithmetic("sm_100", matrix_form("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
print(core.block, core.fraction)   # L and F: 16 25
print(core.evidence)               # where they come from
print(core.compared)               # who compared them with a GPU: test/public_words.py
```

## What has been compared with hardware

The column "compared by" of the table has one of these values:

- "the tests": `test/unit/test_replay.py` replays results that a GPU of that architecture computed, and finds no
  difference.
- "test/public_words.py": this script replays results that others recorded and published, and finds no difference. They
  are 5000 dot products of moderate numbers, without infinities and NaNs, for each GPU and format. For tf32, each dot
  product has 4 terms, so they do not confirm L = 8. The results are licensed under BSD 2-Clause, and are part of
  [MATLAB-tensor-core](https://github.com/north-numerical-computing/MATLAB-tensor-core):

  ```sh
  git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
  python test/public_words.py MATLAB-tensor-core    # 240000 words, 40000 of them of B200: 0 differ
  ```

- "the models' authors": published models have these parameters. Their authors report that they compared them with GPUs.
  This project has no recorded results of such a GPU. `test/public_models.py` compares 194 forms of B200 and sm_120 with
  MMA-Sim 2.1.1, `tcgen05.mma` among them: random words, numbers near 1, sums that cancel.

  ```sh
  pip install torch --index-url https://download.pytorch.org/whl/cpu && pip install --no-deps mmasim==2.1.1
  python test/public_models.py --count 10000    # 194 forms, 1940000 words, 0 differ
  ```
- "**no one**": as far as is known, nobody has confirmed the row on hardware of that architecture. The last column says
  what the row rests on.

On a GPU, `test/gpu/capture.py` records the missing results.

## Tensor memory: what no silicon has confirmed

No recorded word is known to come from `tcgen05.mma`. The published results of B200 that are replayed were taken with
8-bit floats that are widened to f16, as `mma.sync` has them. Dense products are those of a published model (MMA-Sim),
whose authors compared it with GPUs; sparse ones nobody has compared. Open besides the sums are:

- f16 results are rounded once for each instruction; hardware might keep more between products of one accumulator.
- `scale-input-d` multiplies D by a power of two and rounds to nearest; sums of integers saturate once for each
  instruction.
- 4-bit elements of `kind::f8f6f4` and `kind::mxf8f6f4` lie in bits 5:2 of their bytes in tensor memory, 6-bit ones in
  bits 5:0.
- The metadata of a sparse A of 64 rows, and sparsity selectors other than 0. Kernels from `linalg` give the lowest bit
  of the column as selector, as CUTLASS does, so that both ways to read it are the same.
- `tcgen05.shift` and `.ashift` move rows to the next lane, and leave the first as it was.
- With `.cta_group::2` each CTA reads the scales of all columns of B in its own tensor memory.
- Verified as ptxas 13.5 does, and not run: K = 96 of `kind::mxf4` and `kind::mxf4nvf4`, and the longer K of sm_107
  (only figures say where the scales lie, and the order of the sum is not public); `kind::ti16` and `decompress::lut::b`
  (no text says what they compute); absolute addresses in descriptors of shared memory.
- `spcompress` and `tcgen05.ld.spcompress` (sm_107) keep NaNs before numbers, and 0.0 is greater than -0.0; of equal
  elements, and of more than two NaNs, they keep the first, which the text leaves open. `spdecompress` keeps the last of
  two elements for one place.
- Tensor copies with `.override` (sm_107) take the address, sizes and strides of their operands for those of the map.
  That 128 KiB from the address on can be read is not looked at.

What layouts and encodings could be held against are CUTLASS's traits, and kernels that Triton compiles for sm_100a:
f16, bf16, e4m3,
e5m2, e2m1 with scales of 32 and of 16, attention with A in tensor memory, tensor copies and warps with roles. All are
right here.

## The parameters

A GPU without a row has the arithmetic of the nearest lower one: sm_86 has that of sm_80, and sm_103 has that of sm_100.
The column "compared by" is about the GPU that the row names. Among the GPUs that share its arithmetic, the published
results cover A2 (sm_86), Ada and L40S (sm_89).

"""

CONTRACTION = """
## Multiply, then add

Write `.rn` on `mul`, `add` and `sub` if GPU and interpreter must give the same bits. Everything that Warploom writes
has it.

Scalar `add`, `sub`, `mul` and `fma` are rounded once, as the ISA defines them. But the ISA (9.7.3) allows the assembler
to contract: a `mul` **without a rounding modifier**, and an `add` or `sub` of its result, may become one `fma`, which
does not round the product. ptxas, and a driver that compiles PTX, do this in f16, bf16, f32 and f64, unless the option
is `--fmad=false`. The interpreter always rounds twice. So results of such a kernel may differ between GPU and
interpreter, and between two assemblers. With `.rn` on either instruction, ptxas 13.0 does not contract. With `.rn` on
both, the ISA forbids it:

```text
mul.f32    %f3, %f1, %f2;      // with the next line: one fma.rn.f32, or two roundings
add.f32    %f4, %f3, %f0;

mul.rn.f32 %f3, %f1, %f2;      // two roundings, everywhere
add.rn.f32 %f4, %f3, %f0;
```

CUDA C++ compilers write `fma.rn` where they contract, and `mul.rn` where they must not (`-fmad=false`, `__fmul_rn`).
But nvcc leaves `a * b - c * d` to the assembler. Triton and hand-written PTX often omit the modifier. When `warploom
run` uses the interpreter, it names the first sum of this kind.

## Approximate functions

The ISA bounds the error of `.approx` and `.full` instructions (ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div), but
does not define the bits of their results. In f32, f16 and bf16, the interpreter computes the bits of an H200, with and
without `.ftz` (`runtime/numerics/approximate.py`).

One unit of the GPU computes all of these functions. It divides a range of arguments into 64 segments (128 for the
reciprocal), and evaluates a quadratic polynomial in each. The coefficients have about 26, 16 and 10 bits. The squarer
omits every partial product below 2^-15. Results of 16 bits are the f32 results, rounded towards zero.

The coefficients (`runtime/numerics/coefficients.txt`) were derived from the results of an H200 for all arguments of one
or more binades. In each segment, exactly one pair of a linear and a quadratic coefficient gives all results.
`test/gpu/approximations.py` compares 36 whole binades on a GPU, 2^23 results each: none differs. The tests replay 4,096
recorded results of each instruction, including special values and subnormal numbers, and all 65,536 results of each
16-bit type: none differs.

In f64, `rcp.approx.ftz` and `rsqrt.approx.ftz` take the upper 32 bits of the argument and give those of the result:
the unit's results for the first 20 bits of the fraction, cut to as many. `rsqrt.approx` is one step of Halley's method
on that. No results of GPUs other than the H200 were available.

## All other scalar instructions

Every spelling of every instruction of registers that sm_90a has (arithmetic, logic, comparison, conversion, video,
carries), `shfl`, `vote`, `match` and `redux`, and `atom` and `red` of one thread was run on an H200: 6,790 statements
with 128 words for each operand, special values and ties among them. The tests replay them by the sums of their results
(`test/captured_scalars.py`): none differs. So do drawn programs of them, with branches, loops, calls and memory
(`test/captured_programs.py`), and drawn moves through memory: two CTAs of a cluster load, store, reduce and copy by
every spelling, behind every kind of barrier, and the interpreter's checks say nothing of them
(`test/captured_transfers.py`). What an H200 does and the ISA does not say:

- With `.ftz`, a product whose result rounds up to the least normal number is flushed, unless it would be normal if
  exponents had no end: to nearest, that is a quarter of a step below it.
- Of several NaNs, f64 keeps that of b, else of c, else of a, and makes it quiet.
- `fma.oob` is +0 where a or b is 0x7FF7 or 0xFFF7, the words that tensor copies put outside a tensor.
- Vectors of `atom` and `red` are for global memory alone. By a generic address of shared memory, an H200 writes other
  words, and reports nothing. The interpreter refuses that.

Left out are what the driver's assembler (13.0) or ptxas 13.5 gets wrong, or makes of other instructions than the ISA
says: guards of `set` with a float result and of `testp`; registers without a type that an instruction of floats
wrote, which it converts to numbers where they count a shift or a part of them is stored; `atom.shared.add.noftz` of
pairs, of which the lower half alone is added; `.sat`, `.min`, `.max` and shifts of video instructions of one number;
`fma` of bf16 that does not round to nearest, which the interpreter refuses; `cp.async` with a cache policy that no
constant gives, for which the assembler may name an odd register, at which the GPU stops.
"""


EXPLAINED = {
    FUSED: "the sum described above: truncated to a common exponent, and added exactly (`fused_sum`)",
    WIDENED: "8-bit floats become f16; fused sums for k mod 4 < 2 and for the rest; then C, to nearest (`product`)",
    SCALAR: "f32 multiply-adds of single elements, C last (`product`)",
    CHAIN: "IEEE fused multiply-adds from C, k ascending (`f64`)",
    GROUPED: "exact sums of 16 products times their scales, added with C as in a fused block; one that cancels keeps "
    "the exponent of its scales, one of zeros alone has that of a zero, as in MMA-Sim 2.1.1 (`fused_sum`)",
    INTEGER: "the exact sum, wrapped or clamped to 32 bits (`product`)",
    BITS: "the number of ones in the xor, or the and, added to C (`product`)",
}  # fmt: skip
"""The algorithms, and the modules that have them."""


def arithmetic() -> Iterator[str]:
    """The parameters of every architecture, and what they rest on."""
    yield GENERATED
    yield ARITHMETIC
    yield "| from | operands | algorithm | L | F | zero | compared by | evidence |\n"
    yield "|---|---|---|---:|---:|---:|---|---|\n"
    for row in sorted(ROWS, key=lambda r: (r.family, r.sparse, r.sm)):
        numbers = (row.block, row.fraction, row.zero_exponent) if row.block else ("-", "-", "-")
        cells = " | ".join(map(str, numbers))
        operands_ = f"{row.family}{', sparse' if row.sparse else ''}"
        compared = "**no one**" if row.compared == "no one" else row.compared
        yield f"| {row.arch} | {operands_} | {row.algorithm} | {cells} | {compared} | {row.evidence} |\n"
    yield "\n## The algorithms\n\n"
    for name, text in EXPLAINED.items():
        yield f"- {name}: {text}\n"
    yield "\nThe names in brackets are modules of `runtime/numerics/`.\n"
    yield CONTRACTION


def gallery() -> dict[str, str]:
    """The pictures, and the page that shows them."""
    by_file = {file(fragment): fragment for fragment in fragments()}
    pictures = {f"fragments/{name}": svg(picture(fragment)) for name, fragment in by_file.items()}
    pictures |= {f"fragments/{what.name}.svg": svg(shared_picture(what)) for what in shared_operands()}
    pictures |= {f"fragments/{_tensor_file(name, of)}": svg(drawn) for name, of, drawn in tensor_pictures()}
    return {"fragments/index.md": "".join((*_index(by_file), *_index_of_shared(), *_index_of_tensor())), **pictures}


def fragments() -> Iterator[Fragment]:
    """Each operand of each shape once for each layout that it has; D is left out, where it is as C."""
    for family in FAMILIES.values():
        groups: dict[tuple[str, str, Layout], list[Form]] = {}
        for form in family():
            for operand in form.layouts:
                at = form.layouts[operand]
                if operand != "d" or "c" not in form.layouts or at != form.layouts["c"]:
                    groups.setdefault((_group(form, operand), operand, at), []).append(form)
        yield from (Fragment(operand, at, tuple(group)) for (_, operand, at), group in groups.items())


def _group(form: Form, operand: str) -> str:
    """What forms share that have pictures together: a shape; of warpgroups, whose n does not matter, k, and of D
    nothing."""
    if isinstance(form, Wgmma):
        return "" if operand == "d" else f"{form.shape.k} {form.granularity}"
    return str(getattr(form, "shape", "")) if "c" in form.layouts else short(form)


def file(fragment: Fragment) -> str:
    """The name of a picture: what `warploom layout` takes, with what file names do not have replaced."""
    return f"{short(fragment.form, fragment.operand)}.{shown(fragment.operand)}.svg".replace("::", "-")


def _index(pages: dict[str, Fragment]) -> Iterator[str]:
    yield GENERATED
    yield "# Fragments\n\n"
    yield "The pictures show which lane of a warp, or thread of a warpgroup, holds which elements of the operands of\n"
    yield "matrix instructions. `T4:{a0,a1}` means elements 0 and 1 of lane 4. A missing D has the layout of C.\n"
    yield "`warploom layout INSTRUCTION OPERAND --svg FILE` draws any of these.\n"
    heading = ""
    for name, fragment in pages.items():
        family = fragment.form.spelling.partition(".sync")[0].partition("::")[0]
        if family != heading:
            heading = family
            yield f"\n## {family}\n"
        yield f"\n### {fragment.name}\n\n![{picture(fragment).title}]({name})\n"


SHARED = """
## Operands in shared memory

The pictures show how operands of `wgmma` lie in shared memory. A matrix descriptor describes this layout, and `warploom
explain` prints its fields. A tensor copy with the same swizzle writes the same layout: a row of its box is a row of the
picture. A matrix repeats the pattern. The pictures show B; for A, read m for n. `warploom layout INSTRUCTION B
--swizzle 128 --svg FILE` draws any of these layouts.
"""


def shared_operands() -> Iterator[SharedOperand]:
    """B of one form of `wgmma` for each size of its elements, in every layout that it can have."""
    sizes = {form.b.bits: form for form in reversed(warpgroup_rows()) if not form.granularity}
    for bits, form in sorted(sizes.items()):
        for along_mn in (False, True) if bits == 16 else (False,):
            yield from (SharedOperand(form, "b", swizzle, along_mn) for swizzle in SWIZZLES)


def _index_of_shared() -> Iterator[str]:
    yield SHARED
    for what in shared_operands():
        title = shared_picture(what).title.partition(": ")[2]
        yield f"\n### {title}\n\n![{title}]({what.name}.svg)\n"


TENSOR = """
## Tensor memory

The pictures show how operands of `tcgen05` lie in tensor memory: each layout once, under the name of the first form
that has it, of scales those of four to a word. Of products and copies the rows and columns are those of the matrix, and
`T5:{e0,e1}` is elements 0 and 1 of lane 5. Of loads and stores the rows are lanes, the columns those of tensor memory,
and `T5:{e0}` is register 0 of thread 5. `warploom layout INSTRUCTION OPERAND` takes the words of any form, and says
which these may be where they differ. In shared memory operands lie as those of `wgmma` above.
"""


def tensor_pictures() -> Iterator[tuple[str, str, Picture]]:
    """Each layout of loads, of copies and of products once: the name and the operand that has it first, its picture.
    Of scales those of whole words, of which others are bytes."""
    drawn = set[tuple[str, Layout]]()
    for name, operand, layout in tensor_memory_forms():
        key = name.split(".")[1].replace("st", "ld"), layout
        if key not in drawn and (not operand.startswith("scale") or ".4X" in name):
            drawn.add(key)
            yield name, operand, tensor_memory_picture(name, operand, layout)


def _tensor_file(name: str, operand: str) -> str:
    return f"{name}.{operand}.svg".replace("::", "-")


def _index_of_tensor() -> Iterator[str]:
    yield TENSOR
    for name, operand, drawn in tensor_pictures():
        yield f"\n### {name} {operand}\n\n![{drawn.title}]({_tensor_file(name, operand)})\n"


def write() -> None:
    """Write the pages, and remove generated ones that there are no more."""
    made = pages()
    for folder in ("isa", "fragments"):
        for old in (HERE / folder).glob("*"):
            if f"{folder}/{old.name}" not in made:
                old.unlink()
    for name, text in made.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
