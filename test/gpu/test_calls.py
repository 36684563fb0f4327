"""Calls with torch's tensors on a GPU, again and again: only addresses are new, and all else is checked."""

from __future__ import annotations

from typing import Any

import pytest

from warploom.runtime import ArgumentError, Kernel, compile
from warploom.runtime.cuda.driver import GpuDevice
from warploom.runtime.kernel.module import LaunchPlace

pytestmark = pytest.mark.gpu

M, N, K = 72, 136, 200


def product(m: object = M, n: object = N, k: object = K, *, layout: str = "", target: str, **schedule: Any) -> Kernel:
    a, b, c = (f"memref<{x}x{y}xbf16{layout}>" for x, y in ((m, k), (k, n), (m, n)))
    text = f"""func.func @matmul(%A: {a}, %B: {b}, %C: {c}) {{
      %zero = arith.constant 0.0 : bf16
      linalg.fill ins(%zero : bf16) outs(%C : {c})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
      return
    }}"""
    return compile(text, target, **schedule)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def drawn(torch: Any, seed: int, m: int = M, n: int = N, k: int = K) -> tuple[Any, Any, Any]:
    """Operands, and an output full of NaN."""
    draw = torch.Generator("cuda").manual_seed(seed)
    a, b = (torch.randn(*size, generator=draw, device="cuda").to(torch.bfloat16) for size in ((m, k), (k, n)))
    return a, b, torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")


def check(torch: Any, a: Any, b: Any, c: Any) -> None:
    """Against float64: sums in f32 in any order, rounded once to bf16."""
    wide, bound = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert bool(((c.double() - wide).abs() <= 2.0**-8 * wide.abs() + a.shape[1] * 2.0**-22 * bound).all())
    assert bool(torch.isfinite(c).all())


@pytest.mark.parametrize("schedule", [{}, {"split_k": 2}])
def test_each_call_has_its_own_arrays(torch: Any, device: GpuDevice, schedule: dict[str, Any]) -> None:
    kernel = product(target=device.target, **schedule)
    sets = [drawn(torch, seed) for seed in range(5)]
    places = [kernel(*arrays) for arrays in (*sets, *sets)]
    assert all(isinstance(place, LaunchPlace) and place.gpu is not None for place in places)
    for arrays in sets:
        check(torch, *arrays)


def test_an_output_is_made_for_each_call(torch: Any, device: GpuDevice) -> None:
    kernel = product(target=device.target)
    sets = [drawn(torch, seed)[:2] for seed in range(4)]
    results = [kernel(*arrays) for arrays in sets]
    assert len({c.data_ptr() for c in results}) == len(sets)
    for (a, b), c in zip(sets, results, strict=True):
        check(torch, a, b, c)


def test_sizes_that_only_a_call_knows(torch: Any, device: GpuDevice) -> None:
    kernel = product("?", "?", "?", layout=", strided<[?, 1], offset: ?>", target=device.target)
    for seed, (m, n, k) in enumerate([(72, 136, 200), (1, 24, 31), (72, 136, 200), (129, 40, 64)]):
        arrays = drawn(torch, seed, m, n, k)
        kernel(*arrays)
        check(torch, *arrays)
        a = torch.cat([arrays[0].flatten()[:1], arrays[0].flatten()])[1:].view(m, k)
        assert a.data_ptr() % 4
        again = torch.full_like(arrays[2], float("nan"))
        kernel(a, arrays[1], again)
        check(torch, a, arrays[1], again)


def test_what_is_wrong_is_found_at_each_call(torch: Any, device: GpuDevice) -> None:
    kernel = product(N, N, N, target=device.target)
    a, b, c = drawn(torch, 1, N, N, N)
    kernel(a, b, c)
    with pytest.raises(ArgumentError, match=r"argument 2 \(%C\) is written and shares memory with argument 0 \(%A\)"):
        kernel(c, b, c)
    with pytest.raises(ArgumentError, match=r"argument 1 \(%B\): expected 136x136xbf16, got 135x136xbf16"):
        kernel(a, b[1:], c)
    with pytest.raises(ArgumentError, match=r"argument 0 \(%A\): expected 136x136xbf16"):
        kernel(a.float(), b, c)
    with pytest.raises(ArgumentError, match=r"argument 0 \(%A\).*grad"):
        kernel(a.detach().requires_grad_(), b, c)
    with pytest.raises(ArgumentError, match=r"row-major order without gaps"):
        kernel(a.t(), b, c)
    with pytest.raises(ArgumentError):
        kernel(a.cpu(), b, c, device="cuda", arch="sm_90a")
    kernel(a, b, c)
    check(torch, a, b, c)


def test_the_stream_is_the_one_that_torch_works_on(torch: Any, device: GpuDevice) -> None:
    kernel = product(target=device.target)
    a, b, c = drawn(torch, 3)
    kernel(a, b, torch.empty_like(c))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late = a.clone()
        late.mul_(2)
        kernel(late, b, c)
    side.synchronize()
    check(torch, 2 * a, b, c)


def test_a_call_can_be_captured(torch: Any, device: GpuDevice) -> None:
    kernel = product(target=device.target)
    a, b, c = drawn(torch, 4)
    kernel(a, b, c)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, c)
    a.copy_(drawn(torch, 5)[0])
    c.fill_(float("nan"))
    graph.replay()
    check(torch, a, b, c)


@pytest.mark.parametrize("schedule", [{}, {"split_k": 2}])
def test_graphs(torch: Any, device: GpuDevice, schedule: dict[str, Any]) -> None:
    kernel = product(target=device.target, **schedule)
    a, b, c = drawn(torch, 6)
    graph = kernel.graph(a, b, c)
    for seed in (7, 8):
        a.copy_(drawn(torch, seed)[0])
        c.fill_(float("nan"))
        graph()
        check(torch, a, b, c)
