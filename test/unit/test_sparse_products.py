"""Products with a sparse A, from pruning on the host to the result, on the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.passes import opt
from warploom.runtime import ArgumentError, CompileError, HostError, check_metadata, compile, compress, expand, prune
from warploom.runtime.cli.command import main
from warploom.runtime.interp.machine.memory import InterpreterError
from warploom.runtime.kernel.lowering import parse
from warploom.runtime.numerics.sparse import WGMMA_SP
from warploom.runtime.plan.host import choose
from warploom.runtime.reference.functions import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
SIZES = [(1, 1, 4), (17, 9, 60), (33, 130, 64), (100, 77, 52), (129, 65, 300)]


def text(m: int, n: int, k: int, element: str, words: tuple[int, ...], result: str = "f32", clear: bool = True) -> str:
    a, b, c = f"memref<{m}x{k // 2}x{element}>", f"memref<{k}x{n}x{element}>", f"memref<{m}x{n}x{result}>"
    fill = f"%z = arith.constant 0.0 : {result} linalg.fill ins(%z : {result}) outs(%C : {c})" if clear else ""
    e = f"memref<{words[0]}x{words[1]}xi32>"
    return f"""func.func @f(%A: {a}, %E: {e}, %B: {b}, %C: {c}) {{
      {fill}
      linalg.matmul {{warp.metadata = 1}} ins(%A, %B : {a}, {b}) outs(%C : {c})
      return
    }}"""


def operands(m: int, n: int, k: int, element: str, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng((m, n, k, seed))
    dtype = DTYPES[element]
    return prune(random.standard_normal((m, k)).astype(dtype)), random.standard_normal((k, n)).astype(dtype)


def check(c: Array, a: Array, b: Array, start: Array | float = 0.0) -> None:
    """Within the bound of f32 accumulation in any order, against float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[1] + 2) * 2.0**-23 * (np.abs(a) @ np.abs(b) + np.abs(start))
    assert np.all(np.abs(c - (start + a @ b)) <= bound)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_any_size(m: int, n: int, k: int, element: str) -> None:
    a, b = operands(m, n, k, element)
    values, metadata = compress(a)
    assert values.shape == (m, k // 2)
    c = np.full((m, n), np.nan, np.float32)
    compile(text(m, n, k, element, metadata.shape))(values, metadata, b, c, device="interp")
    check(c, a, b)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "schedule",
    [
        {"cta": (32, 16, 64), "warp": (16, 8), "stages": 1},
        {"cta": (64, 64, 128), "warp": (32, 32), "stages": 3},
        {"cta": (32, 32, 64), "warp": (16, 16), "mma": "m16n8k16", "stages": 2},
        {"cta": (32, 24, 64), "warp": (32, 24), "stages": 3, "sync": "mbarrier", "prefetch": 2, "ctas": 4},
    ],
)
def test_any_schedule_and_what_c_holds(schedule: dict[str, Any]) -> None:
    m, n, k = 70, 46, 200
    a, b = operands(m, n, k, "bf16")
    values, metadata = compress(a)
    start = np.random.default_rng(3).standard_normal((m, n)).astype(np.float32)
    c = start.copy()
    compile(text(m, n, k, "bf16", metadata.shape, clear=False), **schedule)(values, metadata, b, c, device="interp")
    check(c, a, b, start.astype(np.float64))


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("element", "result", "words"),
    [
        ("f16", "f32", 64),
        ("bf16", "bf16", 64),
        ("f8E4M3FN", "f32", 64),
        ("i8", "i32", 64),
        ("i4", "i32", 32),
        ("f32", "f32", 128),
    ],
)
@pytest.mark.parametrize("raised", [False, True])
def test_the_check_knows_what_is_stored(
    element: str, result: str, words: int, raised: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sparse.mlir"
    path.write_text(text(32, 24, 128, element, (2, words), result, clear=result != "i32"))
    if raised:
        opt.main([str(path), "-p", "warp-raise-matmul{tf32=true}"])
        path.write_text(capsys.readouterr().out)
    assert main(["run", str(path), "--device", "interp", "--check", "--tf32"]) == 0
    assert "; within the bound " in capsys.readouterr().out


def test_the_reference_is_the_product_of_the_dense_matrix() -> None:
    a, b = operands(33, 18, 72, "f16")
    values, metadata = compress(a)
    function = choose(parse(text(33, 18, 72, "f16", metadata.shape)), "f")
    c = np.zeros((33, 18), np.float32)
    expected = evaluate(function, [values, metadata, b, c])[3]
    np.testing.assert_allclose(expected.value, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-12, atol=1e-12)
    with pytest.raises(HostError, match=r"<mlir>:3:7: no float64 reference for this sparse A: .*code"):
        evaluate(function, [values, np.zeros_like(metadata), b, c])


BATCH = """func.func @f(%A: memref<2x144x96xbf16>, %E: memref<2x9x96xi32>, %B: {b}, %C: memref<2x144x72xf32>) {{
  %a = warp.sparse %A, %E : memref<2x144x96xbf16>, memref<2x9x96xi32>
  warp.matmul bf16 x bf16 %a, %B plus %C into %C
    maps [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> {lies}>,
          affine_map<(b, m, n, k) -> (b, m, n)>]
    : !warp.operand<memref<2x144x96xbf16>>, {b}, memref<2x144x72xf32> plus memref<2x144x72xf32>
  return
}}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "schedule"), [
    ("sm_80", {}),
    ("sm_90a", {"cta": (128, 128, 128), "mma": "m64n128k32"}),
    ("sm_100a", {"cta": (128, 64, 128), "mma": "m128n32k32", "ctas": 3}),
])  # fmt: skip
def test_a_batch(target: str, schedule: dict[str, Any]) -> None:
    """Each matrix has its own A and metadata; B is the same for all, or not."""
    shared = target == "sm_80"
    b = "memref<72x192xbf16>" if shared else "memref<2x72x192xbf16>"
    kernel = compile(BATCH.format(b=b, lies="(n, k)" if shared else "(b, n, k)"), target, **schedule)
    pairs = [operands(144, 72, 192, "bf16", seed) for seed in range(2)]
    stored = [compress(sparse) for sparse, _ in pairs]
    values, metadata = (np.stack(parts) for parts in zip(*stored, strict=True))
    others = [dense.T.copy() for _, dense in pairs][: 1 + (not shared)]
    c = np.ones((2, 144, 72), np.float32)
    arguments = [values, metadata, others[0] if shared else np.stack(others), c]
    kernel(*arguments, device="interp", checks="all")
    for number, (sparse, dense) in enumerate(pairs):
        check(c[number], sparse, pairs[0][1] if shared else dense, 1.0)


def test_compress_and_expand() -> None:
    for dtype, chunk in ((np.float16, 4), (ml_dtypes.bfloat16, 4), (np.int8, 4), (np.float32, 2)):
        random = np.random.default_rng(9)
        a = prune((random.standard_normal((37, 25 * chunk)) * 50).astype(dtype))
        assert np.count_nonzero(a.astype(np.float64)) <= a.size // 2
        values, metadata = compress(a)
        np.testing.assert_array_equal(expand(values, metadata), a)


def test_bad_arrays() -> None:
    a = np.ones((4, 8), np.float16)
    with pytest.raises(ArgumentError, match="cannot compress: row 0"):
        compress(a)
    with pytest.raises(ArgumentError, match="6 columns are no whole chunks of 4"):
        compress(a[:, :6])
    with pytest.raises(ArgumentError, match="no sparse matrix of f64"):
        prune(a.astype(np.float64))
    values, metadata = compress(prune(a))
    with pytest.raises(ArgumentError, match="cannot expand"):
        expand(values, metadata[:0])


def test_metadata_of_the_wrong_size_is_refused_by_the_compiler() -> None:
    with pytest.raises(CompileError, match=r"expected metadata of 4x64 words for a sparse A of 64x128 f16, got .*4x32"):
        compile(text(64, 32, 128, "f16", (4, 32)))


def test_a_tile_less_deep_than_the_metadata_is_refused() -> None:
    with pytest.raises(CompileError, match="metadata comes for 64 columns of A at a time"):
        compile(text(64, 32, 128, "f16", (4, 64)), cta=(32, 32, 32), warp=(16, 16))


def test_words_that_are_no_ordered_metadata_are_found_at_run_time() -> None:
    a, b = operands(16, 8, 64, "f16")
    values, metadata = compress(a)
    c = np.full((16, 8), np.nan, np.float32)
    kernel = compile(text(16, 8, 64, "f16", metadata.shape))
    with pytest.raises(ArgumentError, match=r"argument 1 \(%E\): metadata that means nothing"):
        kernel(values, np.full_like(metadata, -1), b, c, device="interp")
    # The kernel's own instruction sees it too, wherever its PTX is launched from.
    words = np.full_like(metadata, 0x44444444)
    words[0, 5] = 0x44044444
    (launch,) = kernel.launches
    args = [[values, words, b, c][i] for i in launch.arguments if isinstance(i, int)]
    with pytest.raises(InterpreterError, match=r"metadata 0b0000 for chunk .* of row 9 of A means nothing"):
        kernel.binary.launch(launch.kernel, launch.grid, launch.block, args, launch.shared, device="interp")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("m", "k"), [(64, 128), (33, 68), (17, 60)])
def test_metadata_that_was_never_filled_is_an_error(m: int, k: int) -> None:
    """Also where rows or columns of a tile lie outside of A, whose words the kernel makes up."""
    a, b = operands(m, 8, k, "f16")
    values, metadata = compress(a)
    c = np.full((m, 8), np.nan, np.float32)
    kernel = compile(text(m, 8, k, "f16", metadata.shape))
    message = r"argument 1 \(%E\): metadata that means nothing: row tile {}, .*lane {}, nibble {}.*0b{} of word 0x{}"
    with pytest.raises(ArgumentError, match=message.format(0, 0, 0, "0000", "00000000")):
        kernel(values, np.zeros_like(metadata), b, c, device="interp")
    one = metadata.copy()
    one[1, 7] = 0
    with pytest.raises(ArgumentError, match=message.format(1, 7, 0, "0000", "00000000")):
        kernel(values, one, b, c, device="interp")
    view = np.zeros((len(metadata), 2 * metadata.shape[1]), np.int32)[:, ::2]
    with pytest.raises(ArgumentError, match=r"expected|means nothing"):
        kernel(values, view, b, c, device="interp")
    assert np.isnan(c).all()
    kernel(values, metadata, b, c, device="interp")
    check(c, a, b)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (100, 200), (1, 4)])
def test_storage_for_warpgroups_and_back(dtype: Any, rows: int, columns: int) -> None:
    dense = prune(np.random.default_rng(2).integers(-9, 9, (rows, columns)).astype(dtype))
    values, metadata = compress(dense, WGMMA_SP)
    groups = -(-columns // (32 if dtype is np.float32 else 64))
    assert values.shape == (rows, columns // 2)
    assert metadata.shape == (-(-rows // 64), 128 * groups)
    element = {np.float32: "f32", np.int8: "i8", np.float16: "f16"}.get(
        dtype, "bf16" if values.itemsize == 2 else "f8E4M3FN"
    )
    check_metadata(metadata, element, WGMMA_SP)
    assert np.array_equal(expand(values, metadata, WGMMA_SP), dense)


def test_the_words_of_a_warpgroup_are_where_its_instruction_looks() -> None:
    """Warp w has rows 16w to 16w + 15; with selector f the pair 4g + 2f, 4g + 2f + 1 of lanes those of row g."""
    dense = np.zeros((64, 64), np.float16)
    dense[16 * 2 + 8 + 3, 32 + 4 * 5 + 1] = dense[16 * 2 + 8 + 3, 32 + 4 * 5 + 3] = 1
    _, metadata = compress(dense, WGMMA_SP)
    word = int(metadata.view(np.uint32)[0, 32 * 2 + 4 * 3 + 2 + 1])
    assert word >> 4 * (4 + 1) & 15 == 0b1101


def test_what_instructions_take_no_sparse_matrix_of() -> None:
    with pytest.raises(ArgumentError, match=r"takes no sparse matrix of s4; it takes f16, bf16, tf32"):
        compress(np.zeros((64, 128), ml_dtypes.int4), WGMMA_SP)
    with pytest.raises(ArgumentError, match=r"expected the instruction mma.sp or wgmma.mma_async.sp, got 'wgmma'"):
        compress(np.zeros((64, 128), np.float16), "wgmma")
