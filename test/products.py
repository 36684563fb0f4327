"""Products of every element type, however A and B lie, in every form: their MLIR. `problems.py` has numbers for them.

Whatever goes through all of them takes them from here: `grid.py` on the interpreter, `conformance/test_products.py`
against ptxas, `gpu/forms.py` on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.form import BY_MLIR_NAME
from warploom.dialect.isa.mma import Mma as Row
from warploom.dialect.isa.row import TARGETS
from warploom.runtime import Kernel, compile

Size = tuple[int, int, int]

LIES = ("A B", "A Bt", "At B", "At Bt")
"""How A and B lie: with a t, stored transposed."""


@dataclass(frozen=True)
class Types:
    """Element types of A, B and C as MLIR writes them, and what is asked of the accumulators ("": the default)."""

    a: str
    b: str
    c: str
    accumulate: str = ""

    def __str__(self) -> str:
        return f"{self.a} {self.b} {self.c}{f' in {self.accumulate}' if self.accumulate else ''}"

    @property
    def integers(self) -> bool:
        return "i" in self.a

    @property
    def bits(self) -> int:
        """Of an element of A."""
        return BY_MLIR_NAME[self.a].bits

    @property
    def sum(self) -> str:
        """The type of sums, which an epilogue begins with."""
        return "i32" if self.integers else "f64" if self.c == "f64" else "f32"

    @cache  # noqa: B019
    def rows(self, *, sparse: bool) -> list[Row]:
        """The instructions that multiply these types."""
        a, b = ("tf32" if kind == "f32" else BY_MLIR_NAME[kind].name for kind in (self.a, self.b))
        every = sparse_mma.rows() if sparse else mma.of_types(a, b)
        ordered = (r for r in every if not sparse or (r.sparse and r.ordered))
        wanted = self.accumulate or {"i32": "s32"}.get(self.sum, self.sum)
        return [r for r in ordered if (r.a.name, r.b.name, r.d.name) == (a, b, wanted) and not (r.satfinite or r.kind)]


@cache
def targets_of(types: Types, *, sparse: bool) -> frozenset[str]:
    """The names of the targets that have an instruction for the types."""
    rows = types.rows(sparse=sparse)
    return frozenset(name for name, target in TARGETS.items() if any(row.runs_on(target) for row in rows))


BYTES = ("f8E4M3FN", "f8E5M2")

TYPES = (
    Types("f16", "f16", "f32"),
    Types("f16", "f16", "f16"),
    Types("f16", "f16", "f16", "f16"),
    Types("bf16", "bf16", "f32"),
    Types("bf16", "bf16", "bf16"),
    Types("f32", "f32", "f32"),
    Types("f64", "f64", "f64"),
    *(Types(a, b, "i32") for bits in (8, 4) for a in (f"i{bits}", f"ui{bits}") for b in (f"i{bits}", f"ui{bits}")),
    *(Types(a, b, c) for a in BYTES for b in BYTES for c in ("f32", "f16", "bf16")),
)

GATE = """    %one = arith.constant 1.0 : f32
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %s = arith.addf %one, %e : f32
    %q = arith.divf %x, %s : f32
    %r = arith.mulf %q, %y : f32"""
"""silu(%x) * %y, the body of an operation on elements of f32, as %r."""

EPILOGUES: Mapping[str, tuple[str, ...]] = {
    "bias, relu": ("f32", "f64", "i32"),
    "residual": ("f32", "f64", "i32"),
    "minus, cast": ("f32", "i32"),
    "gelu by tanh": ("f32",),
    "gelu by erf": ("f32",),
    "log, residual": ("f32",),
}
"""What can follow a product, and the types of sums that it is for."""

FORMS = (
    "added", "cleared", "batch", "strided", "dynamic", "divisible", "generic", "quantized", "tensors", "sparse",
    "sparse, added", *EPILOGUES,
)  # fmt: skip


@dataclass(frozen=True)
class Product:
    """A function of one product, of size (m, n, k); what its schedule is asked to be, if anything."""

    types: Types
    form: str
    lies: str
    size: Size
    schedule: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        named = f"{self.types}, {self.form}, {self.lies}, {'x'.join(map(str, self.size))}"
        return named + "".join(f", {name}={value}" for name, value in self.schedule.items())

    @property
    def sparse(self) -> bool:
        return self.form.startswith("sparse")

    @property
    def cleared(self) -> bool:
        """Whether the sum starts from zero, whatever C holds."""
        return self.form in ("cleared", "sparse", *EPILOGUES)

    @property
    def legal(self) -> bool:
        """Whether there is such a function: of these types, however A and B lie, and of this size."""
        m, n, k = self.size
        at, bt = (name.endswith("t") for name in self.lies.split())
        if self.form in EPILOGUES and self.types.sum not in EPILOGUES[self.form]:
            return False
        if self.form == "quantized" and (self.lies != "A B" or self.types != Types("i8", "i8", "i32")):
            return False
        if self.sparse and (at or k % self.chunk or not self.types.rows(sparse=True)):
            return False
        if self.form == "divisible" and any(size % 8 for size in self.size):
            return False
        if self.types.bits == 4 and ((m if at else k) % 2 or (k if bt else n) % 2):
            return False
        # Numpy keeps elements of 4 bits one in a byte; they are packed on the way to a kernel, without gaps.
        return not (self.types.bits == 4 and self.form in ("strided", "dynamic"))

    @property
    def chunk(self) -> int:
        """Of how many columns of a sparse A a part is stored."""
        return {32: 2, 4: 8}.get(self.types.bits, 4)

    def runs_on(self, target: str) -> bool:
        """Whether the target has an instruction for it."""
        return target in targets_of(self.types, sparse=self.sparse)

    def compile(self, target: str) -> Kernel:
        asked = {"accumulate": self.types.accumulate} if self.types.accumulate else {}
        return compile(self.mlir, target, tf32=self.types.a == "f32", **asked, **self.schedule)

    # The text

    @property
    def mlir(self) -> str:
        if self.form == "generic":
            return self._generic()
        if self.form in EPILOGUES:
            return self._fused()
        if self.form == "tensors":
            return self._tensors()
        a, b, c = self._kinds()
        parameters = [f"%A: {a}", *([f"%E: {self._metadata()}"] if self.sparse else []), f"%B: {b}", f"%C: {c}"]
        if self.form == "divisible":
            parameters = [f"{each} {{warp.divisible = 8 : i64}}" for each in parameters]
        body = f"{self._clear('%C', c)}{self._product('%C', a, b, c)}  return"
        return f"func.func @f({', '.join(parameters)}) {{\n{body}\n}}"

    @property
    def loops(self) -> tuple[str, str, str]:
        """The loops that the dimensions of A, B and C run along."""
        at, bt = (name.endswith("t") for name in self.lies.split())
        batch = "b" if self.form == "batch" else ""
        return batch + ("km" if at else "mk"), batch + ("nk" if bt else "kn"), batch + "mn"

    def shapes(self) -> list[tuple[int, ...]]:
        """Of A, B and C."""
        sizes = dict(zip("bmnk", (BATCH, *self.size), strict=True))
        shapes = [tuple(sizes[loop] for loop in loops) for loops in self.loops]
        if self.sparse:
            shapes[0] = (self.size[0], self.size[2] // 2)
        return shapes

    def strides(self) -> list[tuple[int, int]]:
        """Elements from row to row, and before the first, of A, B and C."""
        gaps = ((8, 8), (16, 0), (8, 8)) if all(s % 8 == 0 for s in self.size) else ((5, 3), (4, 0), (7, 1))
        return [(shape[-1] + more, start) for shape, (more, start) in zip(self.shapes(), gaps, strict=True)]

    def _kinds(self) -> list[str]:
        """The types of A, B and C."""
        names = (self.types.a, self.types.b, self.types.c)
        if self.form in ("dynamic", "divisible"):
            return [f"memref<?x?x{name}>" for name in names]
        container = "tensor" if self.form == "tensors" else "memref"
        kinds = [f"{'x'.join(map(str, shape))}x{name}" for shape, name in zip(self.shapes(), names, strict=True)]
        if self.form == "strided":
            kinds = [f"{kind}, strided<[{row}, 1], offset: {start}>" for kind, (row, start) in zip(
                kinds, self.strides(), strict=True)]  # fmt: skip
        return [f"{container}<{kind}>" for kind in kinds]

    def _metadata(self) -> str:
        rows, words = self._metadata_shape()
        return f"memref<{rows}x{words}xi32>"

    def _metadata_shape(self) -> tuple[int, int]:
        m, _, k = self.size
        return -(-m // 16), -(-k // {32: 32, 4: 128}.get(self.types.bits, 64)) * 32

    def _clear(self, name: str, kind: str) -> str:
        if not self.cleared:
            return ""
        element = self.types.c if name == "%C" else self.types.sum
        zero = "0" if self.types.integers else "0.0"
        return (
            f"  %zero = arith.constant {zero} : {element}\n  linalg.fill ins(%zero : {element}) outs({name} : {kind})\n"
        )

    def _maps(self) -> str:
        loops = ", ".join("bmnk" if self.form == "batch" else "mnk")
        return ", ".join(f"affine_map<({loops}) -> ({', '.join(along)})>" for along in self.loops)

    def _product(self, output: str, a: str, b: str, c: str) -> str:
        if self.form == "quantized":
            return (
                f"  %none = arith.constant 0 : i32\n  linalg.quantized_matmul ins(%A, %B, %none, %none : {a}, {b}, "
                f"i32, i32) outs({output} : {c})\n"
            )
        name = "linalg.batch_matmul" if self.form == "batch" else "linalg.matmul"
        attributes = " {warp.metadata = 1}" if self.sparse else ""
        return f"  {name} indexing_maps = [{self._maps()}]{attributes} ins(%A, %B : {a}, {b}) outs({output} : {c})\n"

    def _tensors(self) -> str:
        a, b, c = self._kinds()
        product = self._product("%C", a, b, c).strip()
        return f"func.func @f(%A: {a}, %B: {b}, %C: {c}) -> {c} {{\n  %r = {product} -> {c}\n  return %r : {c}\n}}"

    def _generic(self) -> str:
        """The extensions and the sum as a frontend without named operations writes them."""
        shapes, element = self.shapes(), self.types.c
        names = [self.types.a.removeprefix("u"), self.types.b.removeprefix("u"), element]
        a, b, c = (f"memref<{'x'.join(map(str, s))}x{name}>" for s, name in zip(shapes, names, strict=True))
        lines: list[str] = []
        for operand, kind, value in (("%0", names[0], self.types.a), ("%1", names[1], self.types.b)):
            read = "%x" if operand == "%0" else "%y"
            extend = (
                ("arith.extui" if value.startswith("u") else "arith.extsi") if self.types.integers else "arith.extf"
            )
            if kind != element:
                lines.append(f"{operand} = {extend} {read} : {kind} to {element}")
        x, y = ("%0", "%1") if names[0] != element else ("%x", "%y")
        multiply, add = ("arith.muli", "arith.addi") if self.types.integers else ("arith.mulf", "arith.addf")
        lines += [
            f"%2 = {multiply} {x}, {y} : {element}",
            f"%3 = {add} %z, %2 : {element}",
            f"linalg.yield %3 : {element}",
        ]
        body = "\n    ".join((f"^bb0(%x: {names[0]}, %y: {names[1]}, %z: {element}):", *lines))
        return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
  linalg.generic {{indexing_maps = [{self._maps()}], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%A, %B : {a}, {b}) outs(%C : {c}) {{
    {body}
  }}
  return
}}"""

    @property
    def stored(self) -> str:
        """The element type of the output."""
        if self.form == "minus, cast":
            return "i8" if self.types.integers else "f16" if self.types.c == "bf16" else "bf16"
        return self.types.c

    def _fused(self) -> str:
        (m, n, _), total, out = self.size, self.types.sum, self.stored
        a, b, _ = self._kinds()
        t, d = f"memref<{m}x{n}x{total}>", f"memref<{m}x{n}x{out}>"
        extra = [(kind, f"memref<{'x'.join(map(str, shape))}x{kind}>") for kind, shape in self.epilogue_operands()]
        maps = ["#n" if len(shape) == 1 else "#mn" for _, shape in self.epilogue_operands()]
        arguments = ", ".join((f"%x: {total}", *(f"%e: {kind}" for kind, _ in extra), f"%old: {out}"))
        inputs = ", ".join(("%T", *("%E" for _ in extra))) + " : " + ", ".join((t, *(kind for _, kind in extra)))
        parameters = ", ".join((f"%A: {a}", f"%B: {b}", *(f"%E: {kind}" for _, kind in extra), f"%D: {d}"))
        body = "\n    ".join([*self._body(), f"linalg.yield %y : {out}"])
        return f"""#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f({parameters}) {{
  %T = memref.alloc() : {t}
{self._clear("%T", t)}{self._product("%T", a, b, t)}\
  linalg.generic {{indexing_maps = [{", ".join(("#mn", *maps, "#mn"))}], iterator_types = ["parallel", "parallel"]}}
      ins({inputs}) outs(%D : {d}) {{
  ^bb0({arguments}):
    {body}
  }}
  return
}}"""

    def epilogue_operands(self) -> list[tuple[str, tuple[int, ...]]]:
        """What an epilogue reads besides the product, a bias or a residual: element types and shapes."""
        m, n, _ = self.size
        if self.form == "bias, relu":
            return [(self.types.sum, (n,))]
        return [(self.types.c, (m, n))] if "residual" in self.form else []

    def _body(self) -> list[str]:
        """Operations that make %y of %x."""
        total, out = self.types.sum, self.stored
        lines = self._after()
        if out == total:
            return [line.replace("%r =", "%y =") for line in lines]
        return [*lines, f"%y = arith.{'trunci' if self.types.integers else 'truncf'} %r : {total} to {out}"]

    def _after(self) -> list[str]:
        """Operations that make %r of %x."""
        total, c = self.types.sum, self.types.c
        add, maximum, zero = ("addi", "maxsi", "0") if self.types.integers else ("addf", "maxnumf", "0.0")
        widened = [] if c == total else [f"%wide = arith.extf %e : {c} to {total}"]
        residual = "%wide" if widened else "%e"
        if self.form == "bias, relu":
            return [f"%floor = arith.constant {zero} : {total}", f"%0 = arith.{add} %x, %e : {total}",
                    f"%r = arith.{maximum} %0, %floor : {total}"]  # fmt: skip
        if self.form == "residual":
            return [*widened, f"%r = arith.{add} %x, {residual} : {total}"]
        if self.form == "log, residual":
            return ["%one = arith.constant 1.0 : f32", "%0 = math.absf %x : f32", "%1 = arith.addf %0, %one : f32",
                    "%2 = math.log %1 : f32", *widened, f"%r = arith.addf %2, {residual} : f32"]  # fmt: skip
        if self.form == "minus, cast":
            minus = f"arith.muli %x, %minus : {total}" if self.types.integers else f"arith.negf %x : {total}"
            constant = [f"%minus = arith.constant -1 : {total}"] if self.types.integers else []
            return [*constant, f"%r = {minus}"]
        return GELU[self.form].split("\n")


BATCH = 2

GELU = {
    "gelu by tanh": """%c0 = arith.constant 0.7978845608 : f32
%c1 = arith.constant 0.044715 : f32
%half = arith.constant 0.5 : f32
%one = arith.constant 1.0 : f32
%0 = arith.mulf %x, %x : f32
%1 = arith.mulf %0, %c1 : f32
%2 = math.fma %1, %x, %x : f32
%3 = arith.mulf %2, %c0 : f32
%4 = math.tanh %3 : f32
%5 = arith.addf %4, %one : f32
%6 = arith.mulf %x, %half : f32
%r = arith.mulf %6, %5 : f32""",
    "gelu by erf": """%c0 = arith.constant 0.7071067811865476 : f32
%half = arith.constant 0.5 : f32
%one = arith.constant 1.0 : f32
%0 = arith.mulf %x, %c0 : f32
%1 = math.erf %0 : f32
%2 = arith.addf %1, %one : f32
%3 = arith.mulf %x, %half : f32
%r = arith.mulf %3, %2 : f32""",
}


def fitted(types: Types, form: str, lies: str, size: Size) -> Product:
    """The product of a size, or of the next smaller one that there is such a product of."""
    step = 8 if form == "divisible" else 2 if types.bits == 4 else 1
    m, n, k = (x if x < step else x - x % step for x in size)
    product = Product(types, form, lies, (m, n, k))
    return Product(types, form, lies, (m, n, k - k % product.chunk)) if product.sparse else product


GROUPS_SIZE: Size = (144, 208, 80)
"""For products of warpgroups: rows of whole 16 bytes in every type, multiples of no tile."""

SPARSE_GROUPS_SIZE: Size = (144, 208, 288)
"""The same of what is stored of a sparse A; several K tiles, for metadata comes with each."""


def of_warpgroups() -> list[Product]:
    """Types that warpgroups multiply in every form, however A and B may lie; tiles and CTAs go round."""
    products: list[Product] = []
    for types in TYPES:
        for form in FORMS:
            for lies in LIES:
                sparse = form.startswith("sparse")
                product = fitted(types, form, lies, SPARSE_GROUPS_SIZE if sparse else GROUPS_SIZE)
                depth = 32 * 8 // types.bits
                along_k = types.bits == 16 or lies == "A Bt"
                rows = form in ("dynamic", "quantized") or (types.bits == 8 and form in ("divisible", "strided"))
                if types.bits in (4, 64) or not product.legal or not along_k or rows:
                    continue
                if len(set(types.a + types.b) & set("u")) == 0:
                    n, m = ((128, 128), (64, 64), (256, 128))[len(products) % 3]
                    tile = {"cta": (m, n, 4 * depth), "mma": f"m64n{n}k{2 * depth if sparse else depth}"}
                    ctas = {"ctas": 3} if len(products) % 2 and form != "batch" else {}
                    # a warpgroup has no room for short sums of 256 columns beside those that they are added to
                    short = {"promote": "none"} if types.a in BYTES and n == 256 else {}
                    products.append(replace(product, schedule=tile | ctas | short))
    return products


def packed_for_warpgroups() -> list[Product]:
    """Products whose rows tensor copies cannot move, so that operands are packed first: one of them, or both."""
    kinds = (("bf16", "bf16", "f32"), ("bf16", "bf16", "bf16"), ("f16", "f16", "f16"), ("i8", "i8", "i32"),
             ("f32", "f32", "f32"), ("f8E4M3FN", "f8E4M3FN", "bf16"))  # fmt: skip
    products: list[Product] = []
    for names in kinds:
        for form, size in (("cleared", (145, 209, 99)), ("added", (144, 209, 96)), ("residual", (145, 208, 99))):
            types = Types(*names)
            depth, lies = 32 * 8 // types.bits, LIES[len(products) % 4] if types.bits == 16 else "A Bt"
            tile = {"cta": (128, 128, 4 * depth), "mma": f"m64n128k{depth}", "ctas": 3}
            products.append(Product(types, form, lies, size, tile))
    return products


def shared_by_ctas() -> list[Product]:
    """Products of warpgroups whose CTAs share K or what they copy, whose consumers have tiles of their own, and whose
    operands are laid out by other launches, or change in registers."""
    half, mixed, s8 = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f32"), Types("i8", "i8", "i32")
    tile: dict[str, Any] = {"cta": (64, 64, 64), "mma": "m64n64k16"}
    deep: dict[str, Any] = {"cta": (128, 64, 128), "mma": "m64n64k32"}
    joined: dict[str, Any] = {**tile, "partial_sums": "cluster"}
    turns: dict[str, Any] = {**tile, "ctas": 3, "consumers": "pingpong"}
    transposed: dict[str, Any] = {"cta": (64, 128, 32), "in_registers": "b"}
    along_m: dict[str, Any] = {"cta": (128, 64, 32), "in_registers": "a"}
    return [
        Product(half, "added", "A B", (136, 72, 328), tile | {"split_k": 4}),
        Product(s8, "cleared", "A Bt", (144, 112, 656), deep | {"split_k": 2, "cluster": "1x2"}),
        Product(mixed, "residual", "A Bt", (136, 136, 520), joined | {"split_k": 2, "cluster": "2x1"}),
        Product(half, "added", "A Bt", (72, 136, 1032), joined | {"split_k": 8}),
        Product(mixed, "residual", "A B", (250, 248, 264), tile | {"cluster": "2x2", "ctas": 8}),
        Product(mixed, "added", "A B", (300, 304, 104), tile | {"cluster": "2x2", "ctas": 8}),
        Product(
            half,
            "cleared",
            "A B",
            (392, 200, 136),
            tile | {"cta": (192, 176, 64), "mma": "m64n176k16", "cluster": "1x2"},
        ),
        Product(half, "gelu by tanh", "A Bt", (248, 120, 136), tile | {"cluster": "2x1"}),
        Product(half, "bias, relu", "A B", (200, 136, 456), turns),
        Product(mixed, "cleared", "At B", (200, 136, 72), turns | {"cta": (64, 128, 64), "mma": "m64n128k16"}),
        Product(s8, "added", "At B", (144, 120, 400), deep),
        Product(Types("f32", "f32", "f32"), "cleared", "A B", (72, 121, 104), {"cta": (64, 64, 32), "mma": "m64n64k8"}),
        Product(half, "residual", "A Bt", (145, 121, 80), tile | {"padded": "d"}),
        Product(Types("f32", "f32", "f32"), "residual", "A B", (72, 120, 104), transposed | {"mma": "m64n64k8"}),
        Product(s8, "added", "A B", (144, 112, 400), transposed | {"cta": (64, 128, 128), "mma": "m64n64k32"}),
        Product(Types("f32", "f32", "f32"), "residual", "At Bt", (120, 72, 104), along_m | {"mma": "m64n64k8"}),
        Product(s8, "added", "At Bt", (144, 112, 400), along_m | {"cta": (128, 64, 128), "mma": "m64n64k32"}),
        Product(
            Types("f8E4M3FN", "f8E5M2", "bf16"),
            "gelu by tanh",
            "At B",
            (272, 80, 144),
            along_m | {"cta": (128, 64, 128), "mma": "m64n64k32", "transpose": "b", "ctas": 3, "promote": "none"},
        ),
    ]
