"""`torch_to_linalg`: graphs of torch as `linalg`, compiled, interpreted, and compared with torch in float64."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

import ml_dtypes
import pytest
from upstream import ABSENT, mlir_opt

from warploom.passes.pipeline import lower
from warploom.passes.tile import row_shares
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import ArgumentError, CompileError, compile, torch_to_linalg

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional


def words(tensor: Any) -> Any:
    """A tensor as a numpy array that shares its memory."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.view(torch.uint8).numpy() if tensor.dtype == torch.bool else tensor.numpy()


def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape).to(dtype)


def interpreted(function: Callable[..., Any], *examples: Any) -> Any:
    """What the compiled graph computes, in a tensor whose elements were NaN."""
    expected = function(*examples)
    out = torch.full(expected.shape, torch.nan).to(expected.dtype)
    kernel = compile(torch_to_linalg(function, *examples))
    kernel(*(words(x) for x in examples), words(out), device="interp")
    return out


def assert_close(function: Callable[..., Any], *examples: Any, ulps: float = 1.0) -> None:
    """Within so many units in the last place of bf16 or f32 of the function in float64, and half a unit of sums."""
    result = interpreted(function, *examples)
    exact = function(*(x.double() if x.is_floating_point() else x for x in examples))
    unit = torch.finfo(result.dtype).eps
    assert torch.all((result.double() - exact).abs() <= ulps * unit * (1 + exact.abs()))


def test_an_example_that_stands_for_two_arguments() -> None:
    x, y = drawn(4, 8, dtype=torch.float32), drawn(4, 8, dtype=torch.float32)
    out = torch.full_like(x, torch.nan)
    compile(torch_to_linalg(lambda a, b: a * 2 - b, x, x))(words(x), words(y), words(out), device="interp")
    assert torch.equal(out, x * 2 - y)


def test_attention_of_one_sequence_is_one_kernel() -> None:
    q, k, v = (drawn(1, 2, 16, 16) for _ in range(3))
    assert len(compile(torch_to_linalg(functional.scaled_dot_product_attention, q, k, v)).launches) == 1


def test_a_layer_of_unknown_batch() -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return functional.gelu(functional.linear(x, w, b))

    x, w, b = drawn(5, 3, 24), drawn(20, 24), drawn(20)
    text = torch_to_linalg(layer, x, w, b, dynamic=({0: "batch"},))
    assert "func.func @layer(%x: tensor<?x3x24xbf16>, %w: tensor<20x24xbf16>, %b: tensor<20xbf16>)" in text
    kernel = compile(text)
    for batch in (5, 2):
        out = torch.full((batch, 3, 20), torch.nan, dtype=torch.bfloat16)
        kernel(words(x[:batch]), words(w), words(b), words(out), device="interp")
        exact = layer(x[:batch].double(), w.double(), b.double())
        # two roundings to bf16: of the layer, and of gelu, whose slope is at most 1.13
        assert torch.all((out.double() - exact).abs() <= 2.2 * 2**-8 * (1 + exact.abs()))


def batched(a: Any, b: Any) -> Any:
    return torch.matmul(a, b)


def repeated(a: Any, b: Any) -> Any:
    return torch.bmm(a.expand(3, -1, -1), b.expand(3, -1, -1))


def turned(a: Any, b: Any) -> Any:
    return (a.t() @ b.t()).t()


def vector(a: Any, b: Any) -> Any:
    return a @ b


def by_rows(a: Any, b: Any, c: Any) -> Any:
    return torch.relu((a @ b) * c[:, None])


def shifted(a: Any, b: Any, c: Any) -> Any:
    return torch.addmm(c, a, b, beta=0.5, alpha=2)


def halves(a: Any, b: Any) -> Any:
    return a[:, 3:9] @ b[1].unsqueeze(1).squeeze()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (batched, ((3, 1, 5, 10), (2, 10, 7))),
        (repeated, ((5, 13), (13, 7))),
        (turned, ((16, 9), (11, 16))),
        (vector, ((12,), (12, 7))),
        (vector, ((7, 12), (12,))),
        (by_rows, ((9, 16), (16, 11), (9,))),
        (shifted, ((9, 16), (16, 11), (1, 11))),
        (halves, ((5, 12), (2, 6, 5))),
    ],
)
def test_products(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    # one rounding, and one before what follows
    assert_close(function, *(drawn(*shape) for shape in shapes), ulps=2.0)


def test_rows_in_several_dimensions_are_those_of_one_product() -> None:
    """A kernel with a product for each of the outer ones would read all weights for a row, as in decoding."""

    def layer(x: Any, w: Any, r: Any) -> Any:
        return torch.relu(x @ w) + r

    x, w, r = drawn(4, 1, 3, 24), drawn(24, 20), drawn(4, 1, 3, 20)
    assert_close(layer, x, w, r, ulps=2.2)
    text = torch_to_linalg(layer, x, w, r)
    assert "ins(%0, %w : tensor<12x24xbf16>, tensor<24x20xbf16>)" in text
    assert len(compile(text).schedules) == 1


def test_views_that_lie_together_in_memory_are_no_copies() -> None:
    def split(x: Any) -> Any:
        return x.transpose(0, 1).unflatten(0, (2, 3)).sum(1)

    x = drawn(5, 6, 4, dtype=torch.float32)
    assert_close(split, x, ulps=4)
    assert torch_to_linalg(split, x).count("linalg.generic") == 1


def test_masks_of_indices_that_are_bytes_are_known_as_such() -> None:
    """Front ends store truth values as bytes between two operations; the keys behind the query are skipped still."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        rows, keys = torch.arange(q.shape[0])[:, None], torch.arange(k.shape[0])[None]
        return ((q @ k.mT).float().masked_fill(keys > rows, -torch.inf).softmax(-1).to(v.dtype)) @ v

    q, k, v = drawn(40, 16) / 4, drawn(40, 16), drawn(40, 16)
    ctx = make_context()
    module = parse_mlir(ctx, text := torch_to_linalg(attention, q, k, v))
    lower(module, ctx, "warp-bufferize,warp-fuse-attention")
    assert "diagonal = 0" in str(module)
    assert len(compile(text).schedules) == 1
    assert_close(attention, q, k, v, ulps=4)


def test_products_of_integers() -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((18, 24), (24, 16)))
    result = interpreted(lambda a, b: torch._int_mm(a, b), a, b)
    assert torch.equal(result.long(), a.long() @ b.long())


def test_products_of_groups() -> None:
    x, w, y = drawn(40, 64), drawn(3, 128, 64), drawn(40, 128)
    ends, rows = torch.tensor([5, 5, 33], dtype=torch.int32), (slice(0, 5), slice(5, 5), slice(5, 33))

    def of_rows(x: Any, w: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)

    def of_k(x: Any, y: Any, ends: Any) -> Any:
        return torch._grouped_mm(x.t(), y, offs=ends)

    by_rows = torch.cat([x[part].double() @ w[e].double().t() for e, part in enumerate(rows)])
    by_k = torch.stack([x[part].double().t() @ y[part].double() for part in rows])
    for function, right, exact in ((of_rows, w, by_rows), (of_k, y, by_k)):
        result = interpreted(function, x, right, ends)[: len(exact)].double()
        assert torch.all((result - exact).abs() <= 2.0**-8 * (1 + exact.abs()))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("groups", "step", "last"), [(1, 2, True), (8, 3, True), (16, 1, True), (4, 1, False), (16, 2, False)]
)
def test_convolutions(groups: int, step: int, last: bool) -> None:
    """With channels last as views of what has them last, and transposed, which takes each phase of pixels by itself."""
    x, w = drawn(1, 6, 7, 16), drawn(16, 3, 3, 16 // groups)
    view = [0, 3, 1, 2] if last else [0, 1, 2, 3]
    x, w = (each if last else each.permute(0, 3, 1, 2).contiguous() for each in (x, w))

    def function(x: Any, w: Any) -> Any:
        images, taps = x.permute(view), w.permute(view)
        forward = torch.conv2d(images, taps, None, step, 1, 1, groups)
        back = torch.conv_transpose2d(images, taps, None, step, 1, 0, groups) if last else images
        return torch.cat((forward.flatten(), back.flatten())) / 16

    assert_close(function, x, w)


def test_a_transposed_convolution_with_pixels_that_no_tap_meets() -> None:
    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.conv_transpose2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), b, (3, 2)) / 16

    assert_close(function, drawn(1, 3, 5, 16), drawn(16, 2, 1, 24), drawn(24))


def test_single_pixels_with_channels_before_them_are_columns() -> None:
    """One product for each image, with what follows; nothing changes its layout."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        return functional.relu(functional.conv2d(x, w, b)) / 16

    operands = drawn(3, 24, 8, 5), drawn(40, 24, 1, 1), drawn(40)
    assert_close(layer, *operands)
    assert len(compile(torch_to_linalg(layer, *operands), target="sm_90a").launches) == 1


def test_root_mean_square_norms_of_a_gpu() -> None:
    """torch exports them in a fused form, which torch 2.11 does not take apart."""
    with torch._subclasses.fake_tensor.FakeTensorMode():
        x, w = (torch.empty(*shape, dtype=torch.bfloat16, device="cuda") for shape in ((8, 64), (64,)))
    text = torch_to_linalg(lambda x, w: functional.rms_norm(x, (64,), w, 1e-5), x, w)
    assert text.count("math.rsqrt") == 1


def test_gradients_of_a_convolution() -> None:
    def function(slope: Any, x: Any, w: Any) -> Any:
        views = (each.permute(0, 3, 1, 2) for each in (slope, x, w))
        made = torch.ops.aten.convolution_backward(*views, [16], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, [True] * 3)
        return torch.cat([each.flatten() for each in made]) / 16

    assert_close(function, drawn(1, 3, 3, 16), drawn(1, 5, 6, 16), drawn(16, 3, 3, 8))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "taps", "step"), [((2, 6, 30, 8), 3, 1), ((3, 7, 9, 12), 5, 2)])
def test_gradients_of_filters_for_each_channel(shape: tuple[int, ...], taps: int, step: int) -> None:
    """The filter's in parts of the pixels, a row of 30 in parts of its own; that of the images backwards."""
    (n, *size, c), around = shape, taps // 2
    slopes = drawn(n, *((each + 2 * around - taps) // step + 1 for each in size), c)

    def function(slopes: Any, x: Any, w: Any) -> Any:
        views = (each.permute(0, 3, 1, 2) for each in (slopes, x, w))
        asked = [step] * 2, [around] * 2, [1, 1], False, [0, 0], c, [True, True, False]
        images, taps = torch.ops.aten.convolution_backward(*views, None, *asked)[:2]
        return torch.cat((images.flatten(), taps.flatten())) / 16

    assert_close(function, slopes, drawn(*shape), drawn(c, taps, taps, 1))


def test_cross_entropy_of_labels_in_64_bits() -> None:
    """One kernel forward and one backward, with a label that is ignored."""
    scores, labels, weights = drawn(13, 300), torch.randint(300, (13,)), torch.rand(13)
    labels[3], labels[5] = -100, 299

    def loss(x: Any, labels: Any) -> Any:
        return functional.cross_entropy(x.float(), labels, reduction="none")

    def slopes(g: Any, y: Any, labels: Any) -> Any:
        of_log = torch.ops.aten.nll_loss_backward(g, y, labels, None, 0, -100, torch.empty([]))
        return torch.ops.aten._log_softmax_backward_data(of_log, y, -1, torch.float32).bfloat16()

    logarithms, shares = (f(scores.double(), -1) for f in (torch.log_softmax, torch.softmax))
    chosen = functional.one_hot(labels.clamp(0), 300) * (labels != -100)[:, None]
    exact = -(chosen * logarithms).sum(-1), weights[:, None] * (shares * chosen.sum(-1, keepdim=True) - chosen)
    for function, operands, wanted in zip(
        (loss, slopes), ((scores, labels), (weights, logarithms.float(), labels)), exact, strict=True
    ):
        kernel = compile(torch_to_linalg(function, *operands))
        out = torch.full(wanted.shape, torch.nan).to(function(*operands).dtype)
        kernel(*map(words, operands), words(out), device="interp", checks="all")
        assert len(kernel.launches) == 1
        assert torch.all((out.double() - wanted).abs() <= torch.finfo(out.dtype).eps * 4 * (1 + wanted.abs()))


@pytest.mark.parametrize(
    ("function", "shape", "kernels"),
    [
        (lambda x: x.cumsum(-1), (3, 1000), 1),
        (lambda x: (x * 0.5).cumsum(1).relu(), (2, 261), 2),
        (lambda x: x.cumprod(2), (2, 3, 70), 1),
    ],
)
def test_what_rows_combine_to_so_far(function: Callable[..., Any], shape: tuple[int, ...], kernels: int) -> None:
    text = torch_to_linalg(function, drawn(*shape))
    assert compile(text).ptx.count(".visible .entry") == kernels
    for dtype in (torch.bfloat16, torch.float32):
        x = drawn(*shape, dtype=dtype)
        result, exact, largest = interpreted(function, x), function(x.double()), function(x.double().abs()).max()
        # f32 in any order, rounded once
        bound = shape[-1] * 2.0**-24 * largest + torch.finfo(dtype).eps * exact.abs()
        assert torch.all((result.double() - exact).abs() <= bound)


def test_gradients_of_the_longest_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of more than 131072 elements, which half the warps would not hold."""
    for name, number in (("MAX_WARPS", 4), ("CLUSTER_WARPS", 1), ("LONG_ROW", 1)):
        monkeypatch.setattr(row_shares, name, number)

    def gradient(g: Any, y: Any) -> Any:
        return torch.ops.aten._softmax_backward_data.default(g, y, -1, y.dtype)

    g, y = drawn(2, 20000), torch.rand(2, 20000).bfloat16()
    kernel, out = compile(torch_to_linalg(gradient, g, y), cache=False), torch.empty_like(g)
    assert ".reqnctapercluster 8" in kernel.ptx
    kernel(words(g), words(y), words(out), device="interp")
    exact = gradient(g.double(), y.double())
    assert torch.all((out.double() - exact).abs() <= 2.0**-8 * (1 + exact.abs()))


def test_products_with_scales() -> None:
    a = drawn(17, 32, dtype=torch.float8_e4m3fn)
    b = drawn(16, 32, dtype=torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(17, 1), torch.rand(1, 16)

    def scaled(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    out = torch.full((17, 16), torch.nan, dtype=torch.bfloat16)
    kernel = compile(torch_to_linalg(scaled, a, b, scale_a, scale_b))
    types = ml_dtypes.float8_e4m3fn
    kernel(a.view(torch.uint8).numpy().view(types), b.view(torch.uint8).numpy().view(types), scale_a.numpy(),
           scale_b.numpy(), words(out), device="interp")  # fmt: skip
    exact = (a.double() @ b.double().t()) * scale_a.double() * scale_b.double()
    assert torch.all((out.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-4)


def test_fast_accumulation_is_asked_for() -> None:
    """By default sums of 8-bit floats are those of f32."""
    a, b = (drawn(n, 32, dtype=torch.float8_e4m3fn) for n in (17, 16))
    one = torch.ones(1)
    for fast, converted in ((False, "f16"), (True, "none")):

        def scaled(a: Any, b: Any, s: Any, t: Any, fast: bool = fast) -> Any:
            return torch._scaled_mm(a, b.t(), s, t, out_dtype=torch.bfloat16, use_fast_accum=fast)

        (schedule,) = compile(torch_to_linalg(scaled, a, b, one, one), target="sm_89").schedule
        assert schedule is not None
        assert schedule.fp8_as == converted


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.hardswish(x) + functional.leaky_relu(x),
        lambda x: functional.softplus(x),
        lambda x: torch.expm1(x) * torch.where(x > 0, x, x * 0.2),
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda x: torch.sigmoid(x) / (x.clamp(-1, 0.5) ** 2 + 1),
        lambda x: (x.round() + x.floor()).abs(),
        lambda x: (x.abs() + 0.25) ** -0.5 + x.to(torch.bfloat16).to(torch.float16),
    ],
)
def test_pointwise(function: Callable[..., Any]) -> None:
    assert_close(function, drawn(5, 7, dtype=torch.float32), ulps=16.0)


def test_truth_values() -> None:
    x = torch.randn(5, 7)
    result = interpreted(lambda x: (x > 0) & ~(x > 1), x)
    assert torch.equal(result, (x > 0) & ~(x > 1))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.attention = torch.nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        q, k, v = (y.unflatten(2, (2, 8)).transpose(1, 2) for y in self.attention(self.norm(x)).split(16, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).flatten(2)


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_upstream_reads_it() -> None:
    texts = [
        torch_to_linalg(Block(), torch.randn(3, 5, 16), dynamic=({0: "batch"},)),
        torch_to_linalg(lambda x, y: ((x @ y).sum(0) > 0, x.amax(1), x * torch.inf), drawn(3, 4), drawn(4, 5)),
    ]
    for text in texts:
        done = subprocess.run([mlir_opt() or "", "-"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_dimension_before_one_of_one_element() -> None:
    """Both have the same stride; one of them is the dimension in memory."""
    assert_close(lambda x: torch.cat([x.unsqueeze(1), x.unsqueeze(1)], 1), drawn(2, 1, 24))


def test_what_has_no_form() -> None:
    def sorted_rows(x: Any) -> Any:
        return x.erfinv() + 1

    with pytest.raises(CompileError, match=r"aten\.erfinv\.default: prims\.erf_inv\.default is not lowered"):
        torch_to_linalg(sorted_rows, torch.randn(3))
    with pytest.raises(CompileError, match=r"aten\.cumsum\.default: there is no form of it in linalg here"):
        torch_to_linalg(lambda x: x.cumsum(0), torch.randn(3))
    for dynamic in (3, ({2: "batch"},), ({0: 5},), ({}, {0: "batch"})):
        with pytest.raises(ArgumentError, match=r"dynamic: expected names of dimensions of each example, as "):
            torch_to_linalg(torch.relu, torch.randn(3, 4), dynamic=cast("Any", dynamic))
    with pytest.raises(CompileError, match=r"torch\.export: "):
        torch_to_linalg(lambda x: x if x.sum() > 0 else -x, torch.randn(3))
    with pytest.raises(CompileError, match="expected a function that returns tensors"):
        torch_to_linalg(lambda x: 3, torch.randn(3))
    with pytest.raises(CompileError, match=r"elements of torch\.complex64 are not lowered"):
        torch_to_linalg(lambda x: x, torch.randn(3, dtype=torch.complex64))


class Summed(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x + 1
        return y.cumsum(0)


def summed(x: Any, *, along: int = 0) -> Any:
    y = x + 1
    return y.cumsum(along)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    ("model", "code"),
    [
        (Summed(), Summed.forward.__code__),
        (torch.nn.Sequential(torch.nn.ReLU(), Summed()), Summed.forward.__code__),
        (summed, summed.__code__),
        (Summed().forward, Summed.forward.__code__),
    ],
)
def test_an_error_names_the_line_of_the_model(model: Any, code: CodeType) -> None:
    with pytest.raises(CompileError) as caught:
        torch_to_linalg(model, torch.randn(4, 6))
    place = f"{__file__}:{code.co_firstlineno + 2}"
    assert str(caught.value) == f"{place}: aten.cumsum.default: there is no form of it in linalg here"


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_an_error_names_the_module_where_no_line_is_the_models() -> None:
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    with pytest.raises(CompileError, match=r"^module 1, MaxPool2d: aten\.max_pool2d_with_indices\.default: "):
        torch_to_linalg(model, torch.randn(1, 4, 6))
