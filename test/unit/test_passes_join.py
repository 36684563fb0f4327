"""Launches of products of few rows become one if they do not depend on each other, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.runtime import compile

ROWS, COLUMNS, K = 5, (24, 40, 72), 136


def product(a: str, number: int, columns: int, k: int, d: str) -> str:
    b, d_type = f"memref<{k}x{columns}xf16>", f"memref<{ROWS}x{columns}xf16>"
    return f"""
  linalg.fill ins(%zero : f16) outs(%{d} : {d_type})
  linalg.matmul ins(%{a}, %B{number} : memref<{ROWS}x{k}xf16>, {b}) outs(%{d} : {d_type})"""


def function(body: str, arguments: dict[str, tuple[int, int]]) -> str:
    named = ", ".join(f"%{name}: memref<{rows}x{columns}xf16>" for name, (rows, columns) in arguments.items())
    return f"func.func @f({named}) {{\n  %zero = arith.constant 0.0 : f16{body}\n  return\n}}"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float16)


def distance(d: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> float:
    """How far a result is, of what rounding to f16 and sums in f32 may do."""
    return float((np.abs(d.astype(np.float64) - exact) / (2.0**-11 * np.abs(exact) + 2.0**-20 * bound)).max())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_products_of_one_a_are_one_launch(target: str) -> None:
    arguments = {"A": (ROWS, K)} | {f"B{i}": (K, n) for i, n in enumerate(COLUMNS)}
    arguments |= {f"D{i}": (ROWS, n) for i, n in enumerate(COLUMNS)}
    body = "".join(product("A", i, n, K, f"D{i}") for i, n in enumerate(COLUMNS))
    fields = {"cta": (16, 8, 64), "warp": (16, 8), "sliced_k": 2, "split_k": 1, "mma": "m16n8k16"}
    kernel = compile(function(body, arguments), target=target, cache=False, **fields)
    (launch,) = kernel.plan.launches
    assert launch.grid == (sum(COLUMNS) // 8, 1, 1)
    a, factors = drawn(ROWS, K), [drawn(K, n) for n in COLUMNS]
    results = [np.full((ROWS, n), np.nan, np.float16) for n in COLUMNS]
    kernel(a, *factors, *results, device="interp", checks="all")
    for b, d in zip(factors, results, strict=True):
        wide = a.astype(np.float64), b.astype(np.float64)
        assert distance(d, wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])) < 1


def test_joined_products_of_integers_are_one_wave() -> None:
    """As products apart they have tiles of 32 and of 16 columns."""
    arguments, body = "%A: memref<16x512xbf16>", "%zero = arith.constant 0.0 : bf16"
    maps = ", ".join(f"affine_map<(m, n, k) -> ({axes})>" for axes in ("m, k", "n, k", "m, n"))
    for number, n in enumerate((4096, 1024, 1024)):
        q, d = f"memref<{n}x512xi4>", f"memref<16x{n}xbf16>"
        arguments += f", %Q{number}: {q}, %D{number}: {d}"
        body += f"""
  linalg.fill ins(%zero : bf16) outs(%D{number} : {d})
  linalg.matmul indexing_maps = [{maps}] ins(%A, %Q{number} : memref<16x512xbf16>, {q}) outs(%D{number} : {d})"""
    (launch,) = compile(f"func.func @f({arguments}) {{ {body} return }}", target="sm_90a", cache=False).plan.launches
    assert launch.grid == (86 + 22 + 22, 1, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("operands", "d"),
    [(("A", "D0"), "D1"), (("A", "C"), "A"), (("A", "A"), "D0")],
    ids=["reads what was written", "writes what was read", "writes what was written"],
)
def test_products_that_depend_on_each_other_stay_apart(operands: tuple[str, str], d: str) -> None:
    arguments = dict.fromkeys(("A", "C", "D0", "D1"), (ROWS, K)) | {"B0": (K, K), "B1": (K, K)}
    body = product(operands[0], 0, K, K, "D0") + product(operands[1], 1, K, K, d)
    kernel = compile(function(body, arguments), target="sm_80", cache=False, cta=(16, 8, 64), warp=(16, 8), sliced_k=2)
    assert len(kernel.plan.launches) == 2
    given = {name: drawn(*shape) for name, shape in arguments.items()}
    values = {name: value.astype(np.float64) for name, value in given.items()}
    values["D0"] = (values[operands[0]] @ values["B0"]).astype(np.float16).astype(np.float64)
    values[d] = values[operands[1]] @ values["B1"]
    kernel(*given.values(), device="interp")
    assert np.allclose(given[d], values[d], rtol=2.0**-8, atol=2.0**-3)


def test_blocks_of_other_sizes_stay_apart() -> None:
    """A product of more rows has more warps."""
    text = """func.func @f(%A: memref<8x512xf16>, %B: memref<512x512xf16>, %D: memref<8x512xf16>,
                   %E: memref<2048x512xf16>, %F: memref<2048x512xf16>) {
  %zero = arith.constant 0.0 : f16
  linalg.fill ins(%zero : f16) outs(%D : memref<8x512xf16>)
  linalg.matmul ins(%A, %B : memref<8x512xf16>, memref<512x512xf16>) outs(%D : memref<8x512xf16>)
  linalg.fill ins(%zero : f16) outs(%F : memref<2048x512xf16>)
  linalg.matmul ins(%E, %B : memref<2048x512xf16>, memref<512x512xf16>) outs(%F : memref<2048x512xf16>)
  return
}"""
    assert len(compile(text, target="sm_80", cache=False).plan.launches) == 2


def parts(*copies: tuple[str, int, int, int]) -> str:
    """A function that copies rows of operands to columns of D: each by name, its first column, its columns of D and
    the first of them."""
    lines = list[str]()
    for i, (name, first, size, at) in enumerate(copies):
        whole, kind = "memref<37x300xf16>", f"memref<37x{size}xf16, strided<[300, 1], offset: "
        for which, start, memory in (("X", first, name), ("Y", at, "D")):
            cut = f"memref.subview %{memory}[0, {start}] [37, {size}] [1, 1]"
            lines.append(f"  %{which}{i} = {cut} : {whole} to {kind}{start}>>")
        lines.append(f"  linalg.copy ins(%X{i} : {kind}{first}>>) outs(%Y{i} : {kind}{at}>>)")
    return function("\n" + "\n".join(lines), dict.fromkeys(("A", "B", "D"), (37, 300)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("sizes", [(61, 25, 201), (64, 64, 128), (1, 299)], ids=str)
def test_what_writes_parts_of_one_memory_is_one_launch(sizes: tuple[int, ...], target: str) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    copies = [("AB"[i % 2], 3, size, start) for i, (size, start) in enumerate(zip(sizes, starts, strict=True))]
    copies = [(name, min(first, 300 - size), size, at) for name, first, size, at in copies]
    kernel = compile(parts(*copies), target=target, cache=False)
    assert len(kernel.plan.launches) == 1
    a, b, d = drawn(37, 300), drawn(37, 300), np.full((37, 300), 99, np.float16)
    kernel(a, b, d, device="interp", checks="all")
    wanted = [{"A": a, "B": b}[name][:, first : first + size] for name, first, size, _ in copies]
    assert (d[:, : sum(sizes)] == np.concatenate(wanted, 1)).all()
    assert (d[:, sum(sizes) :] == 99).all()


@pytest.mark.parametrize(
    "copies",
    [(("A", 0, 64, 0), ("B", 0, 64, 63)), (("A", 0, 64, 0), ("D", 32, 64, 128)), (("D", 200, 64, 0), ("B", 9, 8, 256))],
    ids=["writes what was written", "reads what was written", "writes what was read"],
)
def test_parts_that_share_elements_stay_apart(copies: tuple[tuple[str, int, int, int], ...]) -> None:
    kernel = compile(parts(*copies), target="sm_90a", cache=False)
    assert len(kernel.plan.launches) == 2
    memory = {name: drawn(37, 300) for name in "ABD"}
    wanted = {name: value.copy() for name, value in memory.items()}
    for name, first, size, at in copies:
        wanted["D"][:, at : at + size] = wanted[name][:, first : first + size]
    kernel(*memory.values(), device="interp")
    assert (memory["D"] == wanted["D"]).all()


def test_kernels_that_a_user_launches_stay_apart() -> None:
    """They have names that something else may ask for."""

    def kernel_and_launch(name: str, start: int) -> tuple[str, str]:
        kind = f"memref<32xf32, strided<[1], offset: {start}>>"
        kernel = f"""
  gpu.func @{name}(%D: {kind}) kernel attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
    %i = gpu.thread_id x
    %x = arith.constant {start}.5 : f32
    memref.store %x, %D[%i] : {kind}
    gpu.return
  }}"""
        launch = f"""
  %{name} = memref.subview %D[{start}] [32] [1] : memref<64xf32> to {kind}
  gpu.launch_func @k::@{name} blocks in (%1, %1, %1) threads in (%32, %1, %1) args(%{name} : {kind})"""
        return kernel, launch

    kernels, launches = map("".join, zip(kernel_and_launch("low", 0), kernel_and_launch("high", 32), strict=True))
    kernel = compile(f"""module attributes {{gpu.container_module}} {{
func.func @f(%D: memref<64xf32>) {{
  %1 = arith.constant 1 : index
  %32 = arith.constant 32 : index{launches}
  return
}}
gpu.module @k {{{kernels}
}}
}}""", target="sm_80", cache=False)  # fmt: skip
    assert len(kernel.plan.launches) == 2
    d = np.zeros(64, np.float32)
    kernel(d, device="interp", checks="all")
    assert (d == np.repeat(np.array([0.5, 32.5], np.float32), 32)).all()


@pytest.mark.parametrize(("columns", "ctas"), [(250, 5), (186, 6)])
def test_warps_lie_side_by_side_along_rows_that_begin_anywhere(columns: int, ctas: int) -> None:
    """Of tiles of 64 columns, four of them beside each other; where a row has three, none."""
    kernel = compile(parts(("A", 2, columns, 2)), target="sm_90a", cache=False)
    assert [launch.grid[0] for launch in kernel.plan.launches] == [ctas]
    a, b, d = (drawn(37, 300) for _ in range(3))
    kernel(a, b, d, device="interp", checks="all")
    assert (d[:, 2 : 2 + columns] == a[:, 2 : 2 + columns]).all()
