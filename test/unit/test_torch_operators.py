"""The operators `torch.ops.warploom` on the interpreter: values and derivatives against float64, and torch's checks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from warploom.runtime import ArgumentError, CompileError, prune

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from warploom.runtime import torch_operators  # noqa: E402

BF16 = 2.0**-8
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape).to(dtype).requires_grad_(dtype == torch.bfloat16)


def pattern(rows: int, columns: int, dtype: Any = torch.float16) -> Any:
    """A matrix of which half is zero, two of each four."""
    return torch.from_numpy(prune(torch.randn(rows, columns).half().numpy())).to(dtype)


def assert_same(operator: Any, exact: Callable[..., Any], *tensors: Any, roundings: float = 4.0) -> None:
    """Value and derivatives are within so many roundings of the largest one's of those in float64."""
    wide = [x.detach().double().requires_grad_(x.requires_grad) for x in tensors]
    result, expected = operator(*tensors), exact(*wide)
    grad = torch.randn(expected.shape).to(result.dtype)
    pairs = [(result, expected)]
    if expected.requires_grad:
        result.backward(grad)
        expected.backward(grad.double())
        pairs += [(x.grad, y.grad) for x, y in zip(tensors, wide, strict=True)]
    for mine, theirs in pairs:
        assert (mine.double() - theirs).abs().max() <= roundings * BF16 * (1 + theirs.abs().max())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shapes", [((5, 16), (16, 8)), ((2, 1, 5, 16), (3, 16, 8)), ((1, 16), (16, 3))])
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert_same(torch_operators.matmul, torch.matmul, drawn(*shapes[0]), drawn(*shapes[1]))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear(activation: str) -> None:
    def exact(x: Any, w: Any, b: Any) -> Any:
        return ACTIVATIONS[activation](functional.linear(x, w, b))

    assert_same(
        lambda *given: torch_operators.linear(*given, activation), exact, drawn(2, 3, 16), drawn(8, 16), drawn(8)
    )


def test_one_kernel_for_many_rows() -> None:
    from warploom.runtime.torch import importer

    w = drawn(8, 16).detach()
    before = len(importer.KERNELS)
    for rows in (65, 70, 131):
        assert_same(torch_operators.linear, functional.linear, drawn(rows, 16).detach(), w)
    assert len(importer.KERNELS) == before + 1


def test_kernels_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """In other processes; what does not compile is told once, with its reason."""
    from warploom.passes.universe import make_context, parse_mlir
    from warploom.runtime.torch import importer, part
    from warploom.runtime.torch.options import BackendOptions

    def written(kind: str) -> Any:
        text = f"""func.func @f(%a: memref<16x16x{kind}>, %c: memref<16x16x{kind}>) {{
          linalg.matmul ins(%a, %a : memref<16x16x{kind}>, memref<16x16x{kind}>) outs(%c : memref<16x16x{kind}>)
          return
        }}"""
        layout = part.PartLayout((part.row_major(2),), (), (), {})
        return importer.ImportedRegion(parse_mlir(make_context(), text), layout, text, ())

    device, options = torch.device("cpu"), BackendOptions(target="sm_80")
    monkeypatch.setenv("WARPLOOM_CORES", "2")
    monkeypatch.setattr(importer, "KERNELS", {})
    parts = [written(kind) for kind in ("f64", "bf16", "f32")]
    ready = list[str]()
    importer.compile_together(parts[:1], device, options, ready.append)
    assert ready == [parts[0].text]
    importer.compile_together(parts, device, options, ready.append)
    assert sorted(ready) == sorted(one.text for one in parts)
    monkeypatch.setattr(importer, "compile", None)
    assert [importer.kernel_for(one, device, options).function.written for one in parts[:2]] == [frozenset({1})] * 2
    with pytest.raises(CompileError, match="tf32"):
        importer.kernel_for(parts[2], device, options)


def test_a_graph_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its second call on, with copies of what is not in the same place each time; with other weights anew."""
    from warploom.runtime.torch import graphs

    calls: list[int] = []

    def model(inputs: list[Any]) -> list[Any]:
        weight, x, cache = inputs
        calls.append(x.data_ptr())
        inputs.clear()
        cache += x
        return [weight * x, None]

    def small(values: list[Any]) -> bool:
        return all(v is None or v.numel() < 9 for v in values)

    class Recorded(graphs.RecordedGraph):
        def _captured(self, own: list[Any], where: Any) -> tuple[Any, list[Any]]:
            places = list(own)
            results = self.model(own)

            def again() -> None:
                for result, new in zip(results[:1], self.model(list(places))[:1], strict=True):
                    result.copy_(new)

            places[2] -= places[1]  # a recording computes nothing
            return again, list(results)

    monkeypatch.setattr(graphs, "obstacle", lambda what, values, _: "" if small(values) else f"{what} are large")
    weight, cache, xs = torch.randn(4), torch.zeros(4), [torch.randn(4) for _ in range(4)]
    said: list[str] = []

    def recorded() -> Any:
        return Recorded(model, (0, 2), lambda: lambda inputs: ["otherwise"], lambda: 0, said.append)

    call = recorded()
    results = [call([weight, x, cache]) for x in xs]
    assert all(torch.equal(output, weight * x) and none is None for (output, none), x in zip(results, xs, strict=True))
    assert torch.equal(cache, sum(xs, torch.zeros(4)))
    assert len(set(calls[1:])) == 1
    other = torch.randn(4)
    for x in xs[:2]:
        assert torch.equal(call([other, x, cache])[0], other * x)
    assert len(call.recordings) == 2
    assert said == ["recorded as a CUDA graph"]
    large = recorded()
    args = [torch.ones(9) for _ in range(3)]
    assert torch.equal(large(list(args))[0], torch.ones(9))
    assert large(list(args)) == ["otherwise"]
    assert said[1:] == ["not recorded: inputs are large"]
    number = recorded()
    assert number([weight, 3, cache]) == ["otherwise"]
    assert said[2:] == ["not recorded: an input is a number, as of dynamic sizes"]
    for later in (1 << 33, 0):  # the first call also tunes kernels
        tuning, taken = recorded(), [0, 1 << 33, 0, later]
        monkeypatch.setattr(graphs, "taken_bytes", lambda taken=taken: taken.pop(0))
        results = [tuning([weight, x, cache])[0] for x in xs]
        assert all(torch.equal(result, weight * x) for result, x in zip(results[:2], xs, strict=False))
        assert (results[2] == "otherwise") if later else torch.equal(results[2], weight * xs[2])
    assert said[3:] == ["not recorded: what it computes: 8192.0 MiB, of at most 4096.0", "recorded as a CUDA graph"]
    monkeypatch.setattr(graphs, "taken_bytes", lambda: 0)
    fixed = recorded()
    for x in (xs[0], xs[0], xs[1], xs[2], xs[0], xs[2]):
        x += 1
        assert torch.equal(fixed([weight, x, cache])[0], weight * x)
    copied = [[i for i, _ in recording.copies] for recording in fixed.recordings.values() if recording]
    assert copied == [[], [1]]  # read where it lies, unless it lies elsewhere


def test_results_of_a_graph_that_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of eager mode do, in each call memory of its own."""
    from warploom.runtime.torch import graphs

    class Recorded(graphs.RecordedGraph):
        def _captured(self, own: list[Any], where: Any) -> tuple[Any, list[Any]]:
            results = [*self.model([*own])]
            return lambda: [x.copy_(y) for x, y in zip(results, self.model([*own]), strict=True)], results

    def model(inputs: list[Any]) -> list[Any]:
        product = inputs[0] @ inputs[1]
        return [product[1:], product.t(), product * 2]

    monkeypatch.setattr(graphs, "obstacle", lambda *_: "")
    monkeypatch.setattr(graphs, "taken_bytes", lambda: 0)
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    graph, before = Recorded(model, (), lambda: model, lambda: 0, lambda _: None), list[Any]()
    for _ in range(4):
        a += 1
        part, turned, double = graph([a, b])
        before.append((turned, a @ b))
        part.zero_()
        assert torch.equal(turned[:, 1:], torch.zeros(4, 2))
        assert torch.equal(double, 2 * (a @ b))
        turned.copy_((a @ b).t())
    assert len(graph.recordings) == 1
    assert all(torch.equal(turned.t(), product) for turned, product in before)


class Arena:
    """Memory of graphs as an allocator has it: what a capture makes lies there, and is free when nobody has it."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Any, Any]] = []

    def taken(self, x: Any) -> Any:
        block = x.numpy().copy()
        owner = torch.from_numpy(block)
        self.blocks.append((block, StorageWeakRef(owner.untyped_storage())))
        return owner

    def free(self) -> list[Any]:
        return [block for block, owner in self.blocks if owner.expired()]


def recorded_passes(monkeypatch: pytest.MonkeyPatch, replays: list[str], free: int = 1 << 30) -> Any:
    """A function with a derivative whose passes are recorded: the third power of an input, times a weight. What a
    replay of either pass finds in memory of the other one that was free is gone."""
    from warploom.runtime.torch import graphs

    def at(address: int, shape: Any, kind: str = "<f4", owner: object = None) -> Any:
        told = {"data": (address, False), "shape": tuple(shape), "typestr": kind, "version": 3}
        return np.asarray(type("Lying", (), {"__array_interface__": told, "owner": owner})())

    def lying_at(memory: Any) -> Any:
        told = memory.__cuda_array_interface__
        return torch.from_numpy(at(told["data"][0], told["shape"], told["typestr"], memory)).untyped_storage()

    def forward(inputs: list[Any]) -> list[Any]:
        weight, x = inputs
        inputs.clear()
        square = x * x
        return [weight * square * x, square, x, weight, weight.view(-1, 1)]

    def backward(inputs: list[Any]) -> list[Any]:
        square, x, weight, _, grad = inputs
        inputs.clear()
        return [grad * square * x, grad * weight * 3 * square]

    class Recorded(graphs.RecordedGraph):
        def _captured(self, own: list[Any], where: Arena) -> tuple[Any, list[Any]]:
            places = [torch.from_numpy(at(x.data_ptr(), x.shape)) for x in own]  # nobody's
            there = {x.data_ptr() for x in places}
            free = where.free()
            made = self.model(own)
            free = where.free() if self.model is backward else free
            before = len(where.blocks)
            results = [x if x.data_ptr() in there else where.taken(x) for x in made]
            lying = [block for block, _ in where.blocks[before:]]

            def again() -> None:
                replays.append("backward" if self.model is backward else "forward")
                found = [x.clone() for x in self.model(list(places)) if x.data_ptr() not in there]
                later = [] if self.model is backward else [block for block, _ in where.blocks]
                for block in (*free, *later):
                    block.fill(np.nan)
                for block, x in zip(lying, found, strict=True):
                    block[...] = x.numpy()

            return again, results

    monkeypatch.setattr(graphs, "obstacle", lambda *_: "")
    monkeypatch.setattr(graphs, "_memory", Arena)
    monkeypatch.setattr(graphs, "free_bytes", lambda: free)
    monkeypatch.setattr(graphs, "DEVICE", "cpu")
    monkeypatch.setattr(graphs, "lying_at", lying_at)
    said: tuple[list[str], list[str]] = [], []
    first = Recorded(forward, (0,), lambda: forward, lambda: 0, said[0].append, (0,))
    second = Recorded(backward, range(4), lambda: backward, lambda: 0, said[1].append, ())

    class Passes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Any, x: Any) -> Any:
            out, *saved = first([weight.detach(), x.detach()])
            ctx.save_for_backward(*saved)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            inputs = [*ctx.saved_tensors, grad]
            ctx.maybe_clear_saved_tensors()
            return tuple(second(inputs))

    Passes.passes, Passes.said = (first, second), said
    return Passes


def test_passes_that_memory_has_no_place_for_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[str] = []
    function = recorded_passes(monkeypatch, replays, free=64)
    weight = torch.randn(5, requires_grad=True)
    for _ in range(4):
        function.apply(weight, torch.randn(5)).sum().backward()
        weight.grad = None
    assert replays == []
    assert all(each.other is not None for each in function.passes)
    reads = "not recorded: what the pass backward reads: 0.0 MiB, of at most 0.0"
    assert function.said[0] == [reads]


def test_what_training_keeps_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pass backward reads, and gradients, lie in memory that both passes share; calls while somebody has what
    they would overwrite run as compiled."""
    replays: list[str] = []
    function = recorded_passes(monkeypatch, replays)
    weight = torch.randn(5, requires_grad=True)

    def forward() -> tuple[Any, Any]:
        x = torch.randn(5).requires_grad_()
        out = function.apply(weight, x)
        assert torch.allclose(out, weight * x**3)
        return x, out

    def backward(x: Any, out: Any, **settings: Any) -> None:
        before = 0 if weight.grad is None else weight.grad.clone()
        grad = torch.randn(5)
        out.backward(grad, **settings)
        assert torch.allclose(weight.grad, before + grad * x.detach() ** 3, atol=1e-5)
        assert torch.allclose(x.grad, grad * weight.detach() * 3 * x.detach() ** 2)

    def step(count: int = 2, **settings: Any) -> None:
        weight.grad = None
        replays.clear()
        one = forward()
        backward(*one, **settings)
        assert len(replays) == count

    step(0)  # as compiled
    for _ in range(4):
        step()
    weight.grad = None
    one, two = forward(), forward()  # the second pass forward while somebody has what the first one keeps
    backward(*one)
    backward(*two)
    del one, two
    step()
    grad: Any = weight.grad
    copy = grad.clone()
    step(0)  # gradients of the step before live
    assert torch.equal(grad, copy)
    del grad
    step()
    for _ in range(3):  # from then on they are copies, which may be added up
        replays.clear()
        backward(*forward())
        assert replays == ["forward", "backward"]
    weight.grad = None
    replays.clear()
    one = forward()
    backward(*one, retain_graph=True)
    one[0].grad = None
    backward(*one)
    assert replays == ["forward", "backward"]
    del one
    weight.grad = None
    forward()  # never backward
    step()
    for passes in function.passes:
        assert passes.other is None
    held = [forward() for _ in range(9)]
    assert function.passes[0].other is not None
    for each in held:
        backward(*each)
    step(0)
    forwards, backwards = function.said
    assert [text.partition(":")[0] for text in forwards] == [
        "recorded as a CUDA graph",
        *["a call is launches"] * 2,
        "not recorded",
    ]
    assert "what an earlier call left for its pass backward" in forwards[1]
    assert "gradients of an earlier call" in forwards[2]
    assert "8 calls" in forwards[3]
    assert backwards[0] == "recorded as a CUDA graph"


def test_a_pass_backward_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its first call leaves others what it reads, or there is none: gradients are right, and no more is
    recorded. Where it is refused, neither pass is replayed."""
    for kept in (True, False):
        replays: list[str] = []
        function = recorded_passes(monkeypatch, replays)
        weight = torch.randn(5, requires_grad=True)
        for number in range(14):
            x, grad = torch.randn(5), torch.randn(5)
            out = function.apply(weight, x)
            assert torch.allclose(out, weight * x**3)
            if kept or number == 0:
                weight.grad = None
                for _ in range(2):
                    out.backward(grad, retain_graph=True)
                assert torch.allclose(weight.grad, 2 * grad * x**3)
        assert replays.count("backward") == kept
        assert replays.count("forward") == 1 if kept else 1 < replays.count("forward") < 9
        assert function.passes[0].other is not None


@pytest.mark.parametrize("segments", [105, 106])
def test_passes_whose_graphs_take_much_memory(monkeypatch: pytest.MonkeyPatch, segments: int) -> None:
    """They take at most 1.05 of what their values do, which are 100 bytes at the peak: 80 and 20 more. Gradients of
    what is refused are nobody else's."""
    from warploom.runtime.torch import graphs

    replays: list[str] = []
    function = recorded_passes(monkeypatch, replays)
    weight, used = torch.randn(5, requires_grad=True), [(1100, 1010), (0, 1080), (1090, 1080), (0, 1000)]
    monkeypatch.setattr(graphs, "SMALL", 0)
    monkeypatch.setattr(graphs, "allocated_bytes", lambda _: used.pop())
    monkeypatch.setattr(graphs, "segment_bytes", lambda _: segments)
    recorded, grads = segments == 105, list[Any]()
    for _ in range(4):
        x, grad = torch.randn(5), torch.randn(5)
        weight.grad = None
        function.apply(weight, x).backward(grad)
        left: Any = weight.grad
        assert torch.allclose(left, grad * x**3)
        grads.extend([] if recorded else [(left, left.clone())])
        del left
    assert used == []
    assert replays == ["forward", "backward"] * (3 if recorded else 1)
    assert all(torch.equal(x, y) for x, y in grads)
    said = "not recorded: memory of graphs: 0.0 MiB, of at most 0.0"
    assert [texts.count(said) for texts in function.said] == [not recorded] * 2
    assert [each.other is None for each in function.passes] == [recorded] * 2


def test_scaled_matmul() -> None:
    a, b = (torch.randn(17, 32).to(torch.float8_e4m3fn) for _ in range(2))
    row, column, bias = torch.rand(17, 1), torch.rand(1, 17), drawn(17).detach()

    def exact(*operands: Any) -> Any:
        x, y, row, column, bias = operands
        return x @ y.t() * row * column + bias

    assert_same(lambda x, y, *rest: torch_operators.scaled_matmul(x, y.t(), *rest), exact, a, b, row, column, bias)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sparse_matmul(dtype: Any) -> None:
    a, b = pattern(24, 64, dtype), torch.randn(9, 64).to(dtype).t()
    values, metadata = torch_operators.compress(a)
    assert values.shape == (24, 32)
    result = torch_operators.sparse_matmul(values, metadata, b)
    exact = a.double() @ b.double()
    assert (result.double() - exact).abs().max() <= BF16 * (1 + exact.abs().max())


def scaled_operands() -> tuple[Any, ...]:
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    return a, b.t(), torch.tensor(0.5), torch.tensor(2.0)


CHECKED: dict[str, Callable[[], tuple[Any, ...]]] = {
    "matmul": lambda: (drawn(2, 5, 16), drawn(16, 8)),
    "linear": lambda: (drawn(2, 5, 16), drawn(8, 16), drawn(8), "gelu"),
    "scaled_matmul": scaled_operands,
    "sparse_matmul": lambda: (*torch_operators.compress(pattern(16, 32)), torch.randn(32, 8).half()),
    "compress": lambda: (pattern(16, 32),),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CHECKED)
def test_torch_finds_nothing_wrong(name: str) -> None:
    # torch cannot compare 8-bit floats, with which its check of the signature starts
    skipped = {"test_schema"} if name == "scaled_matmul" else set[str]()
    every = {"test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"}
    operator = getattr(torch_operators, name).default
    outcome = torch.library.opcheck(operator, CHECKED[name](), test_utils=sorted(every - skipped))
    assert set(outcome.values()) == {"SUCCESS"}


def test_the_backend_fuses_what_follows_an_operator() -> None:
    said: list[Any] = []

    def function(x: Any, w: Any) -> Any:
        return torch_operators.linear(x, w, None, "relu") * 2

    compiled = torch.compile(function, backend="warploom", options={"explain": said.append})
    x, w = drawn(5, 16).detach(), drawn(8, 16).detach()
    assert_same(compiled, lambda x, w: functional.relu(x @ w.t()) * 2, x, w)
    assert said[0].compiled[0].operators == ("warploom.linear.default", "aten.mul.Tensor")


def test_errors() -> None:
    with pytest.raises(ArgumentError, match=r"expected an activation of none, relu, .*, got 'rely'"):
        torch_operators.linear(drawn(5, 16), drawn(8, 16), None, "rely")
    with pytest.raises(ArgumentError, match="expected matrices, got tensors of 1 and 2 dimensions"):
        torch_operators.matmul(drawn(16), drawn(16, 8))
    with pytest.raises(CompileError, match=r"f32 .* torch\.set_float32_matmul_precision\('high'\)"):
        torch_operators.matmul(torch.randn(5, 16), torch.randn(16, 8))
    with pytest.raises(CompileError, match=r"^warploom\.matmul\.default: products of torch\.int64 are not lowered"):
        torch_operators.matmul(torch.ones(5, 16, dtype=torch.int64), torch.ones(16, 8, dtype=torch.int64))
    with pytest.raises(ArgumentError, match="cannot compress: "):
        torch_operators.compress(torch.ones(16, 32, dtype=torch.float16))
    with pytest.raises(ArgumentError, match=r"mma\.sp takes no sparse matrix of f64"):
        torch_operators.compress(torch.ones(16, 32, dtype=torch.float64))
    with pytest.raises(
        CompileError, match=r"^warploom\.matmul\.default: products of torch\.bfloat16 and torch\.float16 are"
    ):
        torch_operators.matmul(torch.ones(4, 4).bfloat16(), torch.ones(4, 4).half())


def test_operands_elsewhere() -> None:
    """A kernel would read an address of another device, also after calls with the same sizes on one device."""
    operators: Any = import_module("warploom.runtime.torch.operators")
    a, b, target = drawn(5, 16), drawn(16, 9), torch.ops.warploom.matmul.default
    assert operators._computed(target, a, b).shape == (5, 9)
    with pytest.raises(ArgumentError, match=r"^matmul_bfloat16_\w+: expected tensors on one device, got cpu, meta$"):
        operators._computed(target, a, b.to("meta"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_autocast_converts_operands(name: str) -> None:
    """As it does for torch's own products; a call outside keeps their types."""
    a, b = torch.randn(5, 24, requires_grad=True), torch.randn(24, 24)
    operator = getattr(torch.ops.warploom, name)
    with torch.autocast("cpu", torch.bfloat16):
        result = operator(a, b)
    exact = a.detach().bfloat16().double() @ (b if name == "matmul" else b.t()).bfloat16().double()
    assert result.dtype == torch.bfloat16
    assert torch.all((result.double() - exact).abs() <= 2.0**-8 * exact.abs() + 2.0**-16)
    result.float().sum().backward()
    assert a.grad.dtype == torch.float32
