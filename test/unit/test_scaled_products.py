"""Products whose blocks of A's rows and B's columns have scales: compiled for sm_120a, run on the interpreter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.isa.form import BY_MLIR_NAME
from warploom.runtime import ArgumentError, CompileError, Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cli.command import main
from warploom.runtime.cuda import ptxas

Array = NDArray[Any]
Size = tuple[int, int, int]

ALONG_K = "maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"


@dataclass(frozen=True)
class Form:
    """A kind, the types of A, B and the scales, and how many elements share one (PTX ISA 9.7.14.3)."""

    kind: str
    a: str
    b: str
    scale: str = "f8E8M0FNU"
    block: int = 32

    def memref(self, rows: int, columns: int, kind: str) -> str:
        pad = f", strided<[{columns + 1}, 1]>" if columns % 2 and kind.startswith("f4") else ""
        return f"memref<{rows}x{columns}x{kind}{pad}>"

    def types(self, size: Size) -> list[str]:
        """The memrefs of A, B, the scales of both, and C."""
        (m, n, k), blocks = size, -(-size[2] // self.block)
        scales = (self.memref(rows, blocks, self.scale) for rows in (m, n))
        return [self.memref(m, k, self.a), self.memref(n, k, self.b), *scales, self.memref(m, n, "f32")]

    def text(self, size: Size) -> str:
        a, b, sa, sb, c = self.types(size)
        types = " x ".join(BY_MLIR_NAME[kind].name for kind in (self.a, self.b))
        return f"""func.func @f(%A: {a}, %B: {b}, %SA: {sa}, %SB: {sb}, %C: {c}) {{
          %a = warp.scaled %A, %SA : {a}, {sa}
          %b = warp.scaled %B, %SB : {b}, {sb}
          warp.matmul {self.kind} {types} %a, %b plus %C into %C {ALONG_K}
            : !warp.operand<{a}>, !warp.operand<{b}>, {c} plus {c}
          return
        }}"""

    def of_any_rows(self, size: Size) -> str:
        """The same with dynamic sizes of A's rows and B's columns."""
        (m, n, _), text = size, self.text(size)
        text = re.sub(rf"memref<(?:{m}|{n})x(\d+)x", r"memref<?x\1x", text)
        return text.replace(f"memref<?x{n}xf32>", "memref<?x?xf32>")

    def draw(self, size: Size) -> list[Array]:
        """A, B and the scales; those of e4m3 have signs, which do not count."""
        rng, (m, n, k) = np.random.default_rng(), size
        a, b = (rng.standard_normal((x, k)).astype(DTYPES[kind]) for x, kind in ((m, self.a), (n, self.b)))
        shapes = [(x, -(-k // self.block)) for x in (m, n)]
        if self.scale == "f8E8M0FNU":
            return [a, b, *(np.exp2(rng.integers(-20, 20, shape)).astype(DTYPES[self.scale]) for shape in shapes)]
        return [a, b, *((16 * rng.standard_normal(shape)).astype(DTYPES[self.scale]) for shape in shapes)]

    def check(self, size: Size, **options: Any) -> None:
        """Within the bound of sums that cut nothing above 24 bits, against the dequantised product in float64."""
        checks, target = options.pop("checks", ()), options.pop("target", "sm_120a")
        assert self.within(compile(self.text(size), target=target, **options), size, checks)

    def within(self, kernel: Kernel, size: Size, checks: Any = "all") -> bool:
        """Whether a kernel computes a product within that bound."""
        k, (a, b, of_a, of_b) = size[2], self.draw(size)
        start = np.random.default_rng().standard_normal(size[:2]).astype(np.float32)
        c = start.copy()
        kernel(a, b, of_a, of_b, c, device="interp", checks=checks)
        x, y = (dequantised(values, scales, self.block) for values, scales in ((a, of_a), (b, of_b)))
        bound = (k + 2) * 2.0**-23 * (np.abs(start) + np.abs(x) @ np.abs(y).T)
        return bool((np.abs(c - (start.astype(np.float64) + x @ y.T)) <= bound).all())


def dequantised(values: Array, scales: Array, block: int) -> NDArray[np.float64]:
    """Values times the scales of their blocks."""
    result = values.astype(np.float64)
    for column in range(values.shape[1]):
        result[:, column] *= np.abs(scales[:, column // block].astype(np.float64))
    return result


FORMS = [
    Form("mxf8f6f4", "f8E4M3FN", "f8E4M3FN"),
    Form("mxf8f6f4", "f8E5M2", "f4E2M1FN"),
    Form("mxf8f6f4", "f6E2M3FN", "f6E3M2FN"),
    Form("mxf4", "f4E2M1FN", "f4E2M1FN"),
    Form("mxf4nvf4", "f4E2M1FN", "f4E2M1FN"),
    Form("mxf4nvf4", "f4E2M1FN", "f4E2M1FN", "f8E4M3FN", 16),
]
SIZES: list[Size] = [(1, 1, 1), (16, 8, 0), (37, 75, 53), (130, 19, 300), (33, 64, 128)]


def name(form: Form) -> str:
    return f"{form.kind}-{form.a}-{form.b}-{form.scale}"


@pytest.mark.sampled(48)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=name)
def test_sizes(form: Form, size: Size) -> None:
    form.check(size)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("schedule", [
    {"cta": (64, 64, 256), "warp": (32, 32), "stages": 2},
    {"cta": (48, 40, 128), "warp": (48, 40), "stages": 1, "pack": "ab"},
    {"cta": (64, 48, 128), "warp": (16, 48), "stages": 3},
    {"cta": (64, 64, 128), "warp": (64, 32), "stages": 4, "sync": "mbarrier", "pack": "ab"},
])  # fmt: skip
@pytest.mark.parametrize("form", FORMS[1::2], ids=name)
def test_any_schedule(form: Form, schedule: dict[str, Any]) -> None:
    """Warp tiles whose words fill registers, and those that leave parts of them empty; several words in a K tile."""
    form.check((70, 65, 530), checks="all" if schedule["stages"] == 3 else (), **schedule)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("size", [(1, 1, 32), (130, 150, 300), (16, 8, 0), (100, 76, 320)], ids=str)
@pytest.mark.parametrize("form", FORMS, ids=name)
def test_scales_are_copied_to_tensor_memory(form: Form, size: Size) -> None:
    form.check(size, target="sm_100a", checks="all")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [
    {"cta": (128, 192, 256), "mma": "m128n96k64", "cluster": (2, 1), "ctas": 2, "target": "sm_103a"},
    {"cta": (128, 64, 256), "mma": "m128n32k32", "ctas": 2, "stages": 3, "target": "sm_100a"},
])  # fmt: skip
def test_scales_of_several_words_and_of_pairs(schedule: dict[str, Any]) -> None:
    form = FORMS[5 if "cluster" in schedule else 2]
    form.check((200, 80, 336), checks="all", **schedule)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("form", "target"), [(FORMS[3], "sm_100a"), (FORMS[5], "sm_120a")], ids=str)
def test_rows_of_any_number(form: Form, target: str) -> None:
    """A launch makes blocks of scales in memory whose size a call knows."""
    kernel = compile(form.of_any_rows((130, 150, 320)), target)
    assert ("tcgen05.mma" in kernel.ptx) == (target == "sm_100a")
    for size in ((130, 40, 320), (33, 150, 320)):
        assert form.within(kernel, size)
    a, b, scales, others = form.draw((130, 40, 320))
    with pytest.raises(ArgumentError, match=r"\(%SA\): expected 130 along dimension 0, as argument 0"):
        kernel(a, b, scales[:-1], others, np.zeros((130, 40), np.float32), device="interp")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [FORMS[1], FORMS[5]], ids=name)
def test_scales_take_no_registers(form: Form) -> None:
    kernel = compile(form.text((4096, 4096, 4096)), "sm_103a")
    assert ".block_scale." in kernel.ptx
    assert not any(resources.spills for resources in ptxas.assemble(kernel.ptx, "sm_103a").values())


def test_words_of_several_tiles_share_registers() -> None:
    """Of a 64x64 warp tile two registers hold the scales of A and two those of B, for four steps."""
    text = compile(FORMS[0].text((256, 256, 512)), target="sm_120a", cta=(128, 128, 128), warp=(64, 64), stages=2).ptx
    loop = text[text.index("// K loop") :]
    assert loop.count("warp.load: fragment scale 64x") == 1
    operands = re.findall(r"mma.sync.*, (\S+), {(.), (.)}, (\S+), {(.), (.)}", loop)
    assert len(operands) == 4 * 4 * 8
    a, byte_a, thread_a, b, byte_b, thread_b = map(set, zip(*operands, strict=True))
    assert (len(a), len(b)) == (2, 2)
    assert byte_a == byte_b == {*"0123"}
    assert (thread_a, thread_b) == ({*"01"}, {*"0123"})


def test_an_epilogue_is_fused() -> None:
    form, size = FORMS[3], (40, 24, 96)
    a, b, sa, sb, c = form.types(size)
    text = f"""func.func @f(%A: {a}, %B: {b}, %SA: {sa}, %SB: {sb}, %C: {c}, %D: {c}) {{
      %zero = arith.constant 0.0 : f32
      %T = memref.alloc() : {c}
      %a = warp.scaled %A, %SA : {a}, {sa}
      %b = warp.scaled %B, %SB : {b}, {sb}
      warp.matmul mxf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %T {ALONG_K} : !warp.operand<{a}>, !warp.operand<{b}>, {c}
      linalg.max ins(%T, %C : {c}, {c}) outs(%D : {c})
      return
    }}"""
    kernel = compile(text, target="sm_120a")
    assert len(kernel.launches) == 1
    values, others = form.draw(size), np.random.default_rng().standard_normal((40, 24)).astype(np.float32)
    d = np.full((40, 24), np.nan, np.float32)
    kernel(*values, others, d, device="interp")
    x, y = (dequantised(values[i], values[2 + i], 32) for i in range(2))
    bound = 98 * 2.0**-23 * (np.abs(x) @ np.abs(y).T)
    assert (np.abs(d - np.maximum(x @ y.T, others)) <= bound).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "m"), [("sm_120a", 20), ("sm_100a", 130)])
def test_a_batch(target: str, m: int) -> None:
    """A and its scales differ from matrix to matrix, B and its scales do not."""
    maps = ", ".join(f"affine_map<(b, m, n, k) -> {axes}>" for axes in ("(b, m, k)", "(n, k)", "(b, m, n)"))
    a, b, sa = f"memref<3x{m}x96xf4E2M1FN>", "memref<9x96xf4E2M1FN>", f"memref<3x{m}x6xf8E4M3FN>"
    kinds = f"!warp.operand<{a}>, !warp.operand<{b}>, memref<3x{m}x9xf32>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %SA: {sa}, %SB: memref<9x6xf8E4M3FN>, %C: memref<3x{m}x9xf32>) {{
      %a = warp.scaled %A, %SA : {a}, {sa}
      %b = warp.scaled %B, %SB : {b}, memref<9x6xf8E4M3FN>
      warp.matmul mxf4nvf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %C maps [{maps}] : {kinds}
      return
    }}"""
    of_a, of_b = FORMS[5].draw((3 * m, 1, 96)), FORMS[5].draw((1, 9, 96))
    values, scales = of_a[0].reshape(3, m, 96), of_a[2].reshape(3, m, 6)
    c = np.full((3, m, 9), np.nan, np.float32)
    compile(text, target=target)(values, of_b[1], scales, of_b[3], c, device="interp", checks="all")
    x, y = dequantised(of_a[0], of_a[2], 16), dequantised(of_b[1], of_b[3], 16)
    bound = 98 * 2.0**-23 * (np.abs(x) @ np.abs(y).T)
    assert (np.abs(c.reshape(3 * m, 9) - x @ y.T) <= bound).all()
    with pytest.raises(CompileError, match=f"expected 3x{m}x6 scales of A, one for each 16 elements of a row"):
        compile(text.replace(f"3x{m}x6xf8", f"{m}x3x6xf8"), target=target)


def test_bad_scales() -> None:
    form, size = FORMS[0], (64, 32, 100)

    def refused(text: str, target: str = "sm_120a", **options: Any) -> str:
        with pytest.raises(CompileError) as error:
            compile(text, target=target, **options)
        return str(error.value)

    text = form.text(size)
    message = refused(text.replace("memref<64x4xf8E8M0FNU>", "memref<64x3xf8E8M0FNU>"))
    assert "expected 64x4 scales of A, one for each 32 elements of a row, got memref<64x3xf8E8M0FNU>" in message
    message = refused(text.replace("memref<32x4xf8E8M0FNU>", "memref<4x32xf8E8M0FNU>"))
    assert "expected 32x4 scales of B, one for each 32 elements of a column, got memref<4x32xf8E8M0FNU>" in message
    message = refused(text.replace("f8E8M0FNU", "f8E4M3FN"))
    assert "expected scales of f8E8M0FNU for mxf8f6f4, got f8E4M3FN" in message
    message = refused(text.replace("memref<32x4xf8E8M0FNU>", "memref<32x4xf8E4M3FN>"))
    assert "expected scales of A and B of one type, got f8E8M0FNU and f8E4M3FN" in message
    message = refused(text.replace(" mxf8f6f4 ", " "))
    assert "expected a kind for scales, mxf8f6f4, mxf4, mxf4nvf4; got ''" in message
    message = refused(text.replace(" mxf8f6f4 ", " mxf4 "))
    assert "no mma of kind mxf4 multiplies e4m3 x e4m3" in message
    message = refused(FORMS[3].text((37, 75, 53)), target="sm_100a")
    assert "in tensor memory: A must have rows that are multiples of 16 bytes, got memref<37x53xf4E2M1FN" in message
    message = refused(text, target="sm_100a", cta=(128, 256, 128), mma="m128n128k32", stages=22)
    assert "stages = 22: beside the sums, tensor memory has columns for what 21 stages bring" in message
    message = refused(text, target="sm_90a")
    assert "sm_90a has no mma for e4m3 x e4m3 accumulated in f32; sm_120a, or the sm_120f family" in message
    message = refused(text, cta=(64, 32, 64), warp=(32, 32))
    assert "scales come for 128 elements along k at a time, got a CTA tile of (64, 32, 64)" in message
    message = refused(text, split_k=2)
    assert "split_k = 2: a scaled product is not split" in message
    by_rows = text.replace("(n, k)>, affine_map<(m, n, k) -> (m", "(k, n)>, affine_map<(m, n, k) -> (m")
    message = refused(by_rows.replace("memref<32x100xf8E4M3FN>", "memref<100x32xf8E4M3FN>"))
    assert "expected B of a scaled product by columns, along which it is scaled, got memref<100x32xf8E4M3FN>" in message
    message = refused(
        text.replace("%a, %b plus", "%a, %B plus").replace(
            "!warp.operand<memref<32x100xf8E4M3FN>>", "memref<32x100xf8E4M3FN>"
        )
    )
    assert "expected scales of A and of B, got 1 operands" in message


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "examples/block_scaled_matmul.mlir", "--target", "sm_120a", "--device", "interp", "--check"]
    assert main(command) == 0
    assert "(K + 2) 2^-23 (|C| + |A| |B|)" in capsys.readouterr().out
