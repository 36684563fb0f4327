"""PyTorch on a real GPU: the backend and the operators, on any stream and device, and in CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from warploom.runtime.cuda.driver import GpuDevice

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch was built without CUDA"),
    pytest.mark.usefixtures("device"),
]
functional: Any = torch.nn.functional
BF16 = 2.0**-8


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Nothing compiled before."""
    torch._dynamo.reset()


def backend(function: Callable[..., Any], rest: str = "eager", **options: Any) -> Any:
    """A function whose products are all kernels of ours, unless inductor has the rest."""
    from warploom.runtime import torch_backend

    options["rest"] = rest
    dynamic = options.pop("dynamic", None)
    return torch.compile(function, backend=torch_backend, dynamic=dynamic, options=options)


def drawn(*shape: int, device: str = "cuda", dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape, device=device).to(dtype)


def close(result: Any, exact: Any, roundings: float) -> bool:
    return bool(torch.all((result.double() - exact).abs() <= roundings * BF16 * (1 + exact.abs().max())))


def products(said: list[Any]) -> list[int]:
    """How many parts with a product each graph has."""
    names = {"aten.mm.default", "aten.addmm.default", "aten.bmm.default"}
    return [sum(not names.isdisjoint(part.operators) for part in e.compiled) for e in said]


class Mlp(torch.nn.Module):
    def __init__(self, width: int = 200) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 328), torch.nn.Linear(328, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def pair() -> tuple[Any, Any]:
    """A perceptron in bf16, and the same in float64."""
    model, exact = Mlp().cuda().bfloat16(), Mlp().cuda().double()
    exact.load_state_dict(model.state_dict())
    return model, exact


def test_forward_and_backward(device: GpuDevice) -> None:
    model, exact = pair()
    said: list[Any] = []
    call = backend(model, explain=said.append)
    x, grad = drawn(3, 37, 200).requires_grad_(), drawn(3, 37, 200)
    wide = x.detach().double().requires_grad_()
    result, expected = call(x), exact(wide)
    result.backward(grad)
    expected.backward(grad.double())
    assert close(result, expected, 4.0)
    assert close(x.grad, wide.grad, 6.0)
    for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert close(mine.grad, theirs.grad, 8.0)
    assert products(said) == [2, 4]


def test_the_words_of_the_interpreter(device: GpuDevice) -> None:
    def function(x: Any, w: Any) -> Any:
        return functional.relu(functional.linear(x, w))

    x, w = drawn(70, 200, device="cpu"), drawn(72, 200, device="cpu")
    target = {"target": device.target}
    on_cpu = backend(function, **target)(x, w)
    on_gpu = backend(function, **target)(x.cuda(), w.cuda())
    assert torch.equal(on_cpu.view(torch.int16), on_gpu.cpu().view(torch.int16))


def test_one_kernel_for_every_batch(device: GpuDevice) -> None:
    model, exact = pair()
    said: list[Any] = []
    call = backend(model, dynamic=True, explain=said.append)
    with torch.no_grad():
        for batch in (3, 130, 2):
            x = drawn(batch, 37, 200)
            assert close(call(x), exact(x.double()), 4.0)
    assert len(said) == 1


def test_a_captured_graph_is_replayed(device: GpuDevice) -> None:
    model, exact = pair()
    call, x = backend(model), drawn(3, 37, 200)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            call(x)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call(x)
        for _ in range(3):
            x.copy_(drawn(3, 37, 200))
            out.fill_(torch.nan)
            graph.replay()
            assert close(out, exact(x.double()), 4.0)


def test_a_captured_step_of_split_k(device: GpuDevice) -> None:
    """Partial sums take scratch memory, of which some starts with zeros at every replay."""
    call = backend(lambda a, b: a @ b, schedule={"split_k": 4})
    a, b = drawn(64, 2048), drawn(2048, 64)
    call(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(a, b)
    for _ in range(3):
        a.copy_(drawn(64, 2048))
        graph.replay()
        assert close(out, a.double() @ b.double(), 1.0)


def test_the_current_stream(device: GpuDevice) -> None:
    call, a, b = backend(lambda a, b: a @ b), drawn(256, 256), drawn(256, 256)
    call(a, b)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        a.copy_(drawn(256, 256))
        out = call(a, b)
    side.synchronize()
    assert close(out, a.double() @ b.double(), 1.0)


def test_another_device(device: GpuDevice) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    call = backend(lambda a, b: a @ b)
    for name in ("cuda:1", "cuda:0"):
        a, b = drawn(70, 200, device=name), drawn(200, 72, device=name)
        result = call(a, b)
        assert result.device == torch.device(name)
        assert close(result, a.double() @ b.double(), 1.0)


def test_memory_that_no_kernel_reads_is_copied(device: GpuDevice) -> None:
    base, b = drawn(70 * 200 + 1), drawn(200, 72)
    call = backend(lambda a, b: a @ b)
    for a in (base[1:].view(70, 200), base[:-1].view(200, 70).t(), drawn(70, 400)[:, ::2]):
        assert close(call(a, b), a.double() @ b.double(), 1.0)


def test_autocast(device: GpuDevice) -> None:
    def layer(x: Any, w: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return functional.relu(functional.linear(x, w))

    said: list[Any] = []
    x, w = drawn(70, 200), drawn(72, 200)
    result = backend(layer, explain=said.append)(x.float(), w.float())
    assert close(result, functional.relu(x.double() @ w.double().t()), 1.0)
    assert products(said) == [1]


def test_operators(device: GpuDevice) -> None:
    from warploom.runtime import prune, torch_operators

    a, b = drawn(70, 200).requires_grad_(), drawn(200, 72).requires_grad_()
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    result, exact = torch_operators.matmul(a, b), torch.matmul(*wide)
    assert close(result, exact, 1.0)
    result.backward(result.detach())
    exact.backward(result.detach().double())
    assert close(a.grad, wide[0].grad, 1.0)
    assert close(b.grad, wide[1].grad, 1.0)

    x, y = (drawn(80, 96, dtype=torch.float8_e4m3fn) for _ in range(2))
    scales = torch.tensor(0.5, device="cuda"), torch.tensor(2.0, device="cuda")
    assert close(torch_operators.scaled_matmul(x, y.t(), *scales), x.double() @ y.double().t(), 1.0)

    dense = torch.from_numpy(prune(torch.randn(80, 128).half().numpy())).cuda()
    values, metadata = torch_operators.compress(dense)
    right = drawn(128, 72, dtype=torch.float16)
    assert close(torch_operators.sparse_matmul(values, metadata, right), dense.double() @ right.double(), 1.0)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_inductor_has_the_rest(device: GpuDevice, mode: str | None) -> None:
    pytest.importorskip("triton")
    model, exact = pair()
    said: list[Any] = []
    call = backend(model, "inductor", explain=said.append, **({"mode": mode} if mode else {}))
    inputs = [drawn(3, 37, 200) for _ in range(4)]
    with torch.no_grad():
        results = [call(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):  # each result is there, whatever is called after it
        assert close(result, exact(x.double()), 4.0)
    assert said[0].rest == "inductor"
    measured = [part.measured for part in said[0].compiled] + [part.reason for part in said[0].left]
    assert any("measured " in text for text in measured)


def waiting(x: Any) -> Any:
    return x * float(x.abs().max() > -1)


waits: Any = torch.library.custom_op("warploom_test::waits", waiting, mutates_args=(), schema="(Tensor x) -> Tensor")
waits.register_fake(torch.empty_like)


def test_calls_are_recorded(device: GpuDevice) -> None:
    """Small graphs of inference, for a stream and for weights; not while somebody else records, nor what waits."""
    pytest.importorskip("triton")
    graphs: Any = pytest.importorskip("warploom.runtime.torch.graphs")
    recorded: list[int] = []
    record = graphs.RecordedGraph._recorded
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(graphs.RecordedGraph, "_recorded", lambda *args: (recorded.append(1), record(*args))[1])
        model, exact = pair()
        call = backend(model, "inductor")

        def check() -> None:
            for _ in range(4):
                x = drawn(3, 37, 200)
                result = call(x)
                call(x + 1)
                assert close(result, exact(x.double()), 4.0)

        check()
        assert len(recorded) == 1
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            check()
            graph, x = torch.cuda.CUDAGraph(), drawn(3, 37, 200)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=side):
                out = call(x)
            graph.replay()
            assert close(out, exact(x.double()), 4.0)
        torch.cuda.synchronize()
        assert len(recorded) == 2
        model.up.weight.data = drawn(328, 200) / 16
        exact.up.weight.data = model.up.weight.double()
        check()
        assert len(recorded) == 3
        x = drawn(5, 200)
        call_of_it = backend(lambda x: waits(x + 1) * 2, "inductor")
        assert all(close(call_of_it(x), 2 * (x.double() + 1), 2.0) for _ in range(4))
        assert len(recorded) == 3


def test_training_is_recorded(device: GpuDevice) -> None:
    """Both passes, for other inputs and weights; results and gradients that somebody has are not overwritten."""
    pytest.importorskip("triton")
    graphs: Any = pytest.importorskip("warploom.runtime.torch.graphs")
    replayed: list[int] = []
    replay = graphs.Recording.__call__

    def counted(*args: Any) -> Any:
        results = replay(*args)
        replayed.extend([1] * (results is not None))
        return results

    model, exact = pair()
    call, held = backend(model, "inductor"), list[tuple[Any, Any]]()
    draws, keep = [drawn(3, 37, 200) for _ in range(30)], list[Any]()  # none lies where another did

    def passes(count: int = 1) -> None:
        """Of some inputs forward, then backward."""
        inputs, grads = ([draws.pop() for _ in range(count)] for _ in range(2))
        keep.extend((*inputs, *grads))
        for function, dtype in ((call, torch.bfloat16), (exact, torch.float64)):
            outs = [function(x.to(dtype)) for x in inputs]
            held.extend((out, out.detach().clone()) for out in outs)
            for out, grad in zip(outs, grads, strict=True):
                out.backward(grad.to(dtype))
        for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
            assert close(mine.grad, theirs.grad, 16.0 * count)

    def forget() -> None:
        for one in (model, exact):
            one.zero_grad(set_to_none=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs.Recording, "__call__", counted)
        for _ in range(6):
            forget()
            passes()
        assert len(replayed) == 5 + 5
        for x, y in zip(model.parameters(), exact.parameters(), strict=True):
            x.data.mul_(0.5)
            y.data.copy_(x.data)
        forget()
        passes(2)  # the second runs as it is compiled
        forget()
        passes()
        mine = [p.grad for p in model.parameters()]
        before = [x.clone() for x in mine]
        forget()
        passes()
        assert all(torch.equal(x, y) for x, y in zip(mine, before, strict=True))
        assert len(replayed) == 10 + 2 + 2  # gradients lie where both passes do
        del mine
        forget()
        passes()
        assert len(replayed) == 10 + 2 + 2 + 2
        for _ in range(3):
            passes()  # gradients are added up: they are copies since somebody had them
        assert len(replayed) == 16 + 3 * 2
        assert all(torch.equal(out, copy) for out, copy in held)
        x, masks = (torch.rand(64, 200, device="cuda") + 0.5).requires_grad_(), list[Any]()
        dropped = backend(lambda x: functional.dropout(x * 2, 0.5), "inductor")
        for _ in range(6):
            x.grad = None
            out = dropped(x)
            out.backward(torch.ones_like(out))
            masks.append(out != 0)
            assert torch.equal(masks[-1], x.grad != 0)
        assert all(0.4 < float((a != b).double().mean()) < 0.6 for a, b in pairwise(masks))


def test_a_cache_stays_where_it_is(device: GpuDevice) -> None:
    """Nothing of the size of a changed input is allocated."""
    pytest.importorskip("triton")
    cache, rows, at = drawn(4096, 1024), drawn(2, 1024), torch.tensor([5, 9], device="cuda")

    def function(cache: Any, rows: Any, at: Any) -> Any:
        cache.index_copy_(0, at, rows * 2)
        return cache[at].sum()

    call = backend(function, "inductor")
    with torch.no_grad():
        call(cache, rows, at)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(cache, rows, at)
    assert torch.equal(cache[at], rows * 2)
    assert torch.cuda.max_memory_allocated() - before < cache.nbytes // 2


@pytest.mark.parametrize(("queries", "causal"), [(130, True), (1, False)])
def test_attention(device: GpuDevice, queries: int, causal: bool) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    said: list[Any] = []
    q, k, v = drawn(2, queries, 8, 64), drawn(2, 130, 2, 64), drawn(2, 130, 2, 64)
    with torch.no_grad():
        result = backend(function, explain=said.append)(q, k, v)
    assert close(result, function(q.double(), k.double(), v.double()), 2.0)
    assert len(said[0].compiled) == 1
