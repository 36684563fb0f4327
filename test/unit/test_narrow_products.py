"""Products of floats of 4, 6 and 8 bits, on sm_120a and in tensor memory: run on the interpreter."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects import func

from warploom.dialect.isa.form import BY_MLIR_NAME
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context
from warploom.runtime import ArgumentError, CompileError, Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.base.launch import Plan
from warploom.runtime.cli.command import main
from warploom.runtime.kernel.lowering import parse
from warploom.runtime.plan.host import plan

Array = NDArray[Any]
Size = tuple[int, int, int]

KINDS = ("f4E2M1FN", "f6E3M2FN", "f6E2M3FN", "f8E4M3FN", "f8E5M2")
PAIRS = [(a, b) for a, b in product(KINDS, repeat=2) if not (a[:2] == b[:2] == "f8")]
SIZES: list[Size] = [(1, 1, 1), (16, 8, 0), (37, 75, 53), (100, 19, 300)]


def memref(rows: int, columns: int, kind: str) -> str:
    pad = f", strided<[{columns + 1}, 1]>" if columns % 2 and kind.startswith("f4") else ""
    return f"memref<{rows}x{columns}x{kind}{pad}>"


def matmul(size: Size, a_kind: str, b_kind: str, lies: str = "A Bt", result: str = "f32", word: str = "") -> str:
    m, n, k = size
    at, bt = (name.endswith("t") for name in lies.split())
    a = memref(k, m, a_kind) if at else memref(m, k, a_kind)
    b = memref(n, k, b_kind) if bt else memref(k, n, b_kind)
    axes = ("(k, m)" if at else "(m, k)", "(n, k)" if bt else "(k, n)", "(m, n)")
    maps, c = ", ".join(f"affine_map<(m, n, k) -> {x}>" for x in axes), memref(m, n, result)
    types = " x ".join(BY_MLIR_NAME[kind].name for kind in (a_kind, b_kind))
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      warp.matmul {word} {types} %A, %B plus %C into %C maps [{maps}] : {a}, {b}, {c} plus {c}
      return
    }}"""


def check(size: Size, a_kind: str, b_kind: str, lies: str = "A Bt", **options: Any) -> None:
    """Within the bound of sums cut at 24 bits or more, against float64."""
    word, checks, target = options.pop("word", ""), options.pop("checks", ()), options.pop("target", "sm_120a")
    kernel = compile(matmul(size, a_kind, b_kind, lies, word=word), target=target, **options)
    assert within(kernel, size, a_kind, b_kind, lies, checks)


def within(kernel: Kernel, size: Size, a_kind: str, b_kind: str, lies: str = "A Bt", checks: Any = "all") -> bool:
    """Whether a kernel computes a product within that bound."""
    m, n, k = size
    rng = np.random.default_rng()
    a, b = rng.standard_normal((m, k)).astype(DTYPES[a_kind]), rng.standard_normal((k, n)).astype(DTYPES[b_kind])
    start = rng.standard_normal((m, n)).astype(np.float32)
    c = start.copy()
    first, second = (x.T.copy() if name.endswith("t") else x for x, name in zip((a, b), lies.split(), strict=True))
    kernel(first, second, c, device="interp", checks=checks)
    x, y, z = (matrix.astype(np.float64) for matrix in (a, b, start))
    bound = (k + 2) * 2.0**-23 * (np.abs(z) + np.abs(x) @ np.abs(y))
    return bool((np.abs(c - (z + x @ y)) <= bound).all())


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_every_mix(a: str, b: str) -> None:
    check((37, 27, 77), a, b)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("a", "b"), [("f4E2M1FN", "f8E5M2"), ("f6E2M3FN", "f4E2M1FN"), ("f6E3M2FN", "f6E3M2FN")])
def test_sizes(a: str, b: str, size: Size) -> None:
    check(size, a, b)


PAIRED = {"mma": "m128n64k32", "cta": (128, 128, 128), "cluster": (2, 1), "ctas": 2}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("a", "b", "size", "schedule"), [
    ("f6E2M3FN", "f8E4M3FN", (37, 53, 201), {}),
    ("f4E2M1FN", "f6E3M2FN", (272, 144, 384), PAIRED),
    ("f8E5M2", "f4E2M1FN", (130, 70, 200), {"target": "sm_103a"}),
    ("f4E2M1FN", "f4E2M1FN", (16, 8, 0), {}),
    ("f6E3M2FN", "f6E3M2FN", (1, 1, 33), {}),
    ("f8E4M3FN", "f8E4M3FN", (90, 40, 128), {"word": "f8f6f4"}),
])  # fmt: skip
def test_products_in_tensor_memory(a: str, b: str, size: Size, schedule: dict[str, Any]) -> None:
    """Tensor copies add padding to elements of 4 bits; a launch packs those of 6 bits, and rows of other lengths."""
    check(size, a, b, checks="all", **{"target": "sm_100a", **schedule})


def test_tensor_copies_expand_whole_rows_of_128_elements_alone() -> None:
    """A map has no more elements than memory, but where memory has none, as for K = 0: nothing is copied then."""
    module = parse(matmul((16, 8, 128), "f4E2M1FN", "f4E2M1FN", "A Bt"))
    lower(module, make_context(), standard_pipeline("sm_100a"))
    host = next(str(op) for op in module.walk() if isinstance(op, func.FuncOp))

    def planned(k: int) -> Plan:
        text = re.sub(r"(memref<\d+)x128x", rf"\1x{k}x", host)
        return plan(next(op for op in parse(text).walk() if isinstance(op, func.FuncOp)))

    for k in (64, 192):
        with pytest.raises(ArgumentError, match=f"expected a box of 128 elements, .* got 128 and {k}"):
            planned(k)
    for k in (0, 256):
        assert planned(k).launches


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lies", ["A B", "At Bt", "At B"])
def test_floats_of_six_bits_lie_as_they_like(lies: str) -> None:
    check((37, 75, 53), "f6E3M2FN", "f8E4M3FN", lies)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("schedule", [
    {"cta": (64, 64, 128), "warp": (32, 32), "stages": 3},
    {"cta": (32, 16, 32), "warp": (16, 8), "stages": 1, "pack": "ab"},
    {"cta": (16, 64, 512), "warp": (16, 8), "stages": 2, "pack": "ab"},
    {"cta": (64, 32, 64), "warp": (32, 32), "stages": 4, "sync": "mbarrier", "pack": "ab"},
])  # fmt: skip
@pytest.mark.parametrize("k", [52, 136, 290])
def test_any_schedule(schedule: dict[str, Any], k: int) -> None:
    """Rows of four bits that are multiples of 2, 4 and 1 bytes."""
    check((97, 33, k), "f4E2M1FN", "f6E2M3FN", checks="all" if k == 136 else (), **schedule)


def test_results_of_sixteen_bits() -> None:
    a, b = (np.random.default_rng(i).standard_normal((32, 64)).astype(DTYPES["f4E2M1FN"]) for i in range(2))
    c = np.zeros((32, 32), np.float16)
    compile(matmul((32, 32, 64), "f4E2M1FN", "f4E2M1FN", result="f16"), target="sm_120a", accumulate="f16")(
        a, b, c, device="interp"
    )
    # Multiples of a quarter below 2^9 are exact.
    np.testing.assert_array_equal(c, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16))


def test_the_kind_may_be_named() -> None:
    """Eight bits have an instruction without a kind, which on sm_120 is another one."""
    text = matmul((32, 32, 64), "f8E4M3FN", "f8E5M2")
    named = matmul((32, 32, 64), "f8E4M3FN", "f8E5M2", word="f8f6f4")
    assert "kind" not in compile(text, target="sm_120a").ptx
    assert "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32" in compile(named, target="sm_120a").ptx
    check((33, 17, 65), "f8E4M3FN", "f8E5M2", word="f8f6f4")


def test_bad_products() -> None:
    text = matmul((32, 32, 64), "f4E2M1FN", "f6E3M2FN")
    message = (
        "sm_90a has no mma for e2m1 x e3m2 accumulated in f32; sm_120a, or the sm_120f family from PTX 8.8 has one"
    )
    with pytest.raises(CompileError, match=message):
        compile(text)
    with pytest.raises(CompileError, match="expected B of e2m1 with neighbours along k side by side in memory"):
        compile(matmul((32, 32, 64), "f6E3M2FN", "f4E2M1FN", "A B"), target="sm_120a")
    with pytest.raises(CompileError, match="no mma of kind f8f6f4 multiplies e3m2 x f16; e3m2 is multiplied with e2m1"):
        compile(matmul((32, 32, 64), "f6E3M2FN", "f16"), target="sm_120a")
    with pytest.raises(CompileError, match="rows of whole bytes, 2 elements each, got 53 4-bit elements"):
        compile(matmul((32, 32, 53), "f4E2M1FN", "f4E2M1FN").replace(", strided<[54, 1]>", ""), target="sm_120a")
    with pytest.raises(CompileError, match="expected C of f16 or bf16 or f32 for a product of e2m1 x e2m1, got s32"):
        compile(matmul((32, 32, 64), "f4E2M1FN", "f4E2M1FN", result="i32"), target="sm_120a")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "examples/narrow_matmul.mlir", "--target", "sm_120a", "--device", "interp", "--check"]
    assert main(command) == 0
    assert "(K + 2) 2^-23 (|C| + |A| |B|)" in capsys.readouterr().out
