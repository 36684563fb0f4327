"""Rows and elementwise functions of PyTorch: each one kernel, also those with several results, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from warploom.runtime import compile  # noqa: E402
from warploom.runtime.kernel.lowering import parse, without_tensors  # noqa: E402
from warploom.runtime.torch.importer import torch_to_linalg  # noqa: E402

pytestmark = pytest.mark.sampled(2)
"""Of the cases of each test, one in two: what they share, compiling and interpreting, is most of their time."""

EIGHT, INF, NAN = torch.float8_e4m3fn, torch.inf, torch.nan


def draw(*shape: int, kind: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape).to(kind)


def norm_statistics(x: Any, w: Any, b: Any) -> Any:
    return torch.native_layer_norm(x, x.shape[-1:], w, b, 1e-5)


def add_norm(x: Any, r: Any, w: Any) -> Any:
    h = x + r
    return h, functional.rms_norm(h, x.shape[-1:], w, 1e-6)


def swiglu_backward(g: Any, a: Any, b: Any) -> Any:
    s = torch.sigmoid(a.float())
    return (g * b * s * (1 + a * (1 - s))).to(a.dtype), (g * a * s).to(b.dtype)


def softmax_backward(g: Any, y: Any) -> Any:
    return torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype)


def rope(x: Any, cosine: Any, sine: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((-b, a), -1) * sine


def rope_of_heads(x: Any, cosine: Any, sine: Any) -> Any:
    """As models write it: heads lie beside each other in memory, and are put before tokens."""
    return rope(x.transpose(1, 2), cosine, sine).contiguous()


def normed_rope(x: Any, w: Any, cosine: Any, sine: Any) -> Any:
    """As Qwen 3 writes it: each head is normed, put before tokens, and turned."""
    wide = x if x.dtype == torch.float64 else x.float()
    y = w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    return rope_of_heads(y, cosine, sine)


def layer_normed_rope(x: Any, w: Any, cosine: Any, sine: Any) -> Any:
    return rope(functional.layer_norm(x, x.shape[-1:], w, w), cosine[:, None], sine[:, None])


def normed_part(x: Any, w: Any, cosine: Any, sine: Any) -> Any:
    """A third of each head is turned, in halves, which are no equal parts of the head."""
    y = functional.layer_norm(x, x.shape[-1:], w)
    return torch.cat((rope(y[..., :16], cosine[:, None], sine[:, None]), y[..., 16:]), -1)


def queries_and_keys(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
    """Queries have more heads than keys have."""
    return tuple(rope(x, cosine[:, None], sine[:, None]) for x in (q, k))


def rope_pairs(x: Any, cosine: Any, sine: Any) -> Any:
    """Neighbours, turned, as they are converted first."""
    a, b = (x if x.dtype == torch.float64 else x.float()).unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2).to(x.dtype)


def quantised_blocks(x: Any) -> Any:
    y = x.unflatten(-1, (-1, 128))
    scale = y.abs().amax(-1, keepdim=True) / 448
    return (y / scale).to(EIGHT if x.dtype == torch.float32 else x.dtype).flatten(-2), scale.squeeze(-1)


def quantised_rows(x: Any) -> Any:
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x.float() / scale).to(EIGHT if x.dtype != torch.float64 else x.dtype), scale


def weight_gradients(g: Any, x: Any, scale: Any) -> Any:
    return (g.float() * x.float() * scale).sum(0).to(g.dtype), g.float().sum(0).to(g.dtype)


def group_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.group_norm(x, 3, w, b)


def variances(x: Any) -> Any:
    """Of channels, and their means."""
    return torch.var_mean(x, (0, 2, 3), correction=0)


def batch_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.batch_norm(x, None, None, w, b, training=True)


def mean_loss(x: Any, labels: Any) -> Any:
    return functional.cross_entropy(x, labels.long(), ignore_index=-1)


def smoothed_loss(x: Any, labels: Any) -> Any:
    return functional.cross_entropy(x, labels.long(), ignore_index=-1, label_smoothing=0.1)


def groups_with_weights(x: Any, z: Any, w: Any) -> Any:
    """Each of three groups of a row is normed, and a weight lies along the whole row."""
    y = (x.float() * torch.sigmoid(z.float())).unflatten(-1, (3, -1))
    return w * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).flatten(-2).to(x.dtype)


def gated(x: Any) -> Any:
    """Halves of each row after its conversion, by the largest element of what they make."""
    a, b = (x if x.dtype == torch.float64 else x.float()).chunk(2, -1)
    y = functional.silu(a) * b
    return y / y.abs().amax(-1, keepdim=True)


def embedded(tokens: Any, table: Any, w: Any) -> Any:
    """Rows of a table, and their norm."""
    h = functional.embedding(tokens.long(), table)
    return h, functional.rms_norm(h, h.shape[-1:], w, 1e-6)


def placed(tokens: Any, table: Any, kinds: Any, places: Any, w: Any, b: Any) -> Any:
    """The norm of rows of three tables: by tokens, by their place in a sequence, and by one kind for all."""
    h = functional.embedding(tokens.long(), table) + functional.embedding(torch.arange(tokens.shape[-1]), places)
    return functional.layer_norm(h + functional.embedding(torch.ones_like(tokens).long(), kinds), h.shape[-1:], w, b)


def causal(x: Any) -> Any:
    return torch.softmax(x.masked_fill(torch.arange(x.shape[-1]) > torch.arange(x.shape[-2])[:, None], -1e30), -1)


CASES: dict[str, tuple[Callable[..., Any], Any, float]] = {
    "embedded": (embedded, (torch.randint(50, (3, 7)), draw(50, 96), draw(96)), 2**-7),
    "embedded_long": (embedded, (torch.randint(9, (5,)).int(), draw(9, 5003), draw(5003)), 2**-7),
    "embedded_odd": (embedded, (torch.randint(9, (6, 1)), draw(9, 333), draw(333)), 2**-7),
    "placed": (placed, (torch.randint(50, (3, 7)), *(draw(n, 90) for n in (50, 2, 11)), draw(90), draw(90)), 2**-6),
    "causal": (causal, (draw(2, 19, 33, kind=torch.float32),), 2**-20),
    "norm_statistics": (norm_statistics, (draw(5, 77), draw(77), draw(77)), 2**-8),
    "norm_statistics_long": (norm_statistics, (draw(2, 1500), draw(1500), draw(1500)), 2**-8),
    "add_norm": (add_norm, (draw(2, 3, 200), draw(2, 3, 200), draw(200)), 2**-7),
    "add_norm_of_one_token": (add_norm, (draw(6, 1, 200), draw(6, 1, 200), draw(200)), 2**-7),
    "add_norm_of_one_sequence": (add_norm, (draw(1, 6, 72), draw(1, 6, 72), draw(72)), 2**-7),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), (draw(6, 50, kind=torch.float32),), 2**-20),
    "log_softmax_of_one_row": (lambda x: torch.log_softmax(x, -1), (draw(25, kind=torch.float32),), 2**-20),
    "softmax_backward": (softmax_backward, (draw(3, 90), torch.softmax(draw(3, 90), -1)), 2**-8),
    "swiglu_backward": (swiglu_backward, tuple(draw(5, 33, kind=torch.float32) for _ in range(3)), 2**-20),
    "rope": (rope, (draw(3, 2, 24), draw(3, 1, 24), draw(3, 1, 24)), 2**-6),
    "rope_of_heads": (rope_of_heads, (draw(2, 7, 3, 44), draw(7, 44), draw(7, 44)), 2**-6),
    "rope_of_many_heads": (rope_of_heads, (draw(2, 3, 32, 64), draw(3, 64), draw(3, 64)), 2**-6),
    "normed_rope": (normed_rope, (draw(2, 7, 3, 44), draw(44), draw(7, 44), draw(7, 44)), 2**-6),
    "layer_normed_rope": (layer_normed_rope, (draw(2, 7, 3, 36), draw(36), draw(7, 36), draw(7, 36)), 2**-6),
    "queries_and_keys": (
        queries_and_keys,
        (draw(2, 19, 6, 44), draw(2, 19, 2, 44), draw(19, 44), draw(19, 44)),
        2**-6,
    ),
    "rope_pairs": (rope_pairs, (draw(3, 2, 44), draw(3, 1, 22), draw(3, 1, 22)), 2**-6),
    "total": (lambda x: x.sum(), (torch.rand(37, 41),), 2**-18),
    "router": (lambda x: torch.softmax(x, -1).topk(2), (draw(7, 40, kind=torch.float32),), 2**-20),
    "quantised_blocks": (quantised_blocks, (draw(3, 256, kind=torch.float32),), 2**-4),
    "gated": (gated, (draw(5, 78),), 2**-18),
    "groups_with_weights": (groups_with_weights, (draw(5, 78), draw(5, 78), draw(78)), 2**-7),
}


IN_TWO: dict[str, tuple[Callable[..., Any], Any, float]] = {
    "columns_in_parts": (weight_gradients, (draw(192, 37), draw(192, 37), draw(192, 1).float()), 2**-8),
    "group_norm": (group_norm, (draw(2, 9, 5, 4), draw(9), draw(9)), 2**-7),
    "normed_part": (normed_part, (draw(2, 7, 3, 48), draw(48), draw(7, 16), draw(7, 16)), 2**-6),
    "everything": (lambda x: x.square().mean(), (draw(259, 261, kind=torch.float32),), 2**-18),
    "total_in_parts": (lambda x: x.sum(), (torch.rand(1 << 17),), 2**-18),
    "cross_entropy": (mean_loss, (draw(37, 41, kind=torch.float32), torch.arange(37) - 1), 2**-18),
    "smoothed_cross_entropy": (smoothed_loss, (draw(37, 41, kind=torch.float32), torch.arange(37) % 5 - 1), 2**-18),
}
"""Functions that are two kernels: columns, and few long rows, that are summed in parts; statistics and what is made
with them; what is summed of each row and then of all."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", IN_TWO)
def test_a_function_is_two_kernels(name: str) -> None:
    run(*IN_TWO[name], 2)


@pytest.mark.parametrize(("kind", "bound"), [(torch.bfloat16, 2**-6), (torch.float16, 2**-9)])
def test_neighbours_are_read_and_written_as_words(kind: Any, bound: float) -> None:
    x, cosine, sine = draw(9, 5, 48, kind=kind), *(draw(9, 1, 24, kind=kind) for _ in range(2))
    ptx = run(rope_pairs, (x, cosine, sine), bound, 1)
    assert "ld.global.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx
    assert "global.b16" not in ptx


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("columns", "words"), [(46, "b32"), (45, "b16")])
def test_lanes_have_columns_side_by_side(monkeypatch: pytest.MonkeyPatch, columns: int, words: str) -> None:
    monkeypatch.setattr("warploom.passes.tile.row_shares.MIN_WARPS", 1)
    operands = draw(192, columns), draw(192, columns), draw(192, 1).float()
    assert f"ld.global.{words}" in run(weight_gradients, operands, 2**-8, 2)


def test_sums_of_columns_that_read_the_same_are_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warploom.passes.tile.row_shares.PER_LANE", 8)
    ptx = run(weight_gradients, (draw(192, 37), draw(192, 37), draw(192, 1).float()), 2**-8, 2)
    assert ptx.split(".visible .entry")[1].count(" bra ") == 1


def norm_gradients(g: Any, x: Any, w: Any, scale: Any, mean: Any = None) -> Any:
    if mean is None:
        return torch.ops.aten._fused_rms_norm_backward(g, x, x.shape[-1:], scale, w, [True] * 2)
    return torch.ops.aten.native_layer_norm_backward(g, x, x.shape[-1:], mean, scale, w, w, [True] * 3)


def exact_norm_gradients(g: Any, x: Any, w: Any, scale: Any, mean: Any = None) -> list[Any]:
    normal, weighted = (x if mean is None else x - mean) * scale, g * w
    less = normal * (weighted * normal).mean(-1, keepdim=True)
    less = less if mean is None else less + weighted.mean(-1, keepdim=True)
    sums = [(g * normal).flatten(0, -2).sum(0), g.flatten(0, -2).sum(0)]
    return [scale * (weighted - less), *sums[: 1 if mean is None else 2]]


def share_rows_in_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long rows are, in CTAs of two warps."""
    monkeypatch.setattr("warploom.passes.tile.row_shares.CLUSTER_WARPS", 2)
    monkeypatch.setattr("warploom.passes.tile.row_shares.LONG_ROW", 2)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("rows", "columns", "rms"),
    [((67,), 259, False), ((41,), 600, False), ((7, 5), 1027, False), ((3, 11), 520, True), ((23,), 2055, False)],
)
def test_columns_are_summed_by_the_kernel_of_their_rows(
    monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], columns: int, rms: bool
) -> None:
    monkeypatch.setattr("warploom.passes.linalg.split_rows.MIN_ROWS", 1)
    monkeypatch.setattr("warploom.passes.linalg.split_rows.FEW_ROWS", 5)
    if columns > 2048:
        share_rows_in_clusters(monkeypatch)
    statistics = torch.rand(*rows, 1) + 0.5, torch.randn(*rows, 1)
    operands = draw(*rows, columns), draw(*rows, columns), draw(columns), *statistics[: 2 - rms]
    kernel = compile(torch_to_linalg(norm_gradients, *operands), target="sm_90a", cache=False)
    exact = exact_norm_gradients(*(x.double() for x in operands))
    results = [torch.full(x.shape, 99.0).bfloat16() for x in exact]
    kernel(*operands, *results, device="interp", checks="all")
    assert len(kernel.launches) == 2
    assert (".reqnctapercluster 4" in kernel.ptx) == (columns > 2048)
    for result, wanted in zip(results, exact, strict=True):
        assert (result.double() - wanted).abs().max() <= 2**-7 * wanted.abs().max()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("columns", [1000, 2600, 3000, 5000])
def test_ctas_that_sum_columns_run_at_once(columns: int) -> None:
    """Also where the length of a row is no power of two of what a warp holds: an SM has registers for 16 warps."""
    kinds = [(32768, columns)] * 2 + [(columns,)] + [(32768, 1)] * 2
    operands = [torch.empty(shape, dtype=(torch.float32, torch.bfloat16)[n < 3], device="meta")
                for n, shape in enumerate(kinds)]  # fmt: skip
    first = compile(torch_to_linalg(norm_gradients, *operands), target="sm_90a", cache=False).launches[0]
    warps = math.prod(first.grid) * math.prod(first.block) // 32
    assert 0.9 * 132 * 16 < warps <= 132 * 16


def loss(x: Any, labels: Any, kind: Any = torch.float32) -> Any:
    return functional.cross_entropy(x.to(kind), labels, reduction="none")


def norm(x: Any, w: Any, b: Any, kind: Any = torch.float32) -> Any:
    return functional.layer_norm(x.to(kind), x.shape[-1:], w.to(kind), b.to(kind))


def rms_gradient(g: Any, x: Any, w: Any, kind: Any = torch.float32) -> Any:
    wide, weighted = x.to(kind), g.to(kind) * w.to(kind)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return scale * weighted - wide * scale.pow(3) * (weighted * wide).mean(-1, keepdim=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [loss, norm, rms_gradient])
def test_clusters_take_rows_in_turns(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]) -> None:
    """Those with vectors along them, or with one of two inputs that are reduced twice; others have a cluster each. Of a
    loss a register is compared with the label; its row is shared by the fewest warps."""
    share_rows_in_clusters(monkeypatch)
    monkeypatch.setattr("warploom.passes.tile.row_shares.clusters_at_once", lambda *_: 3)
    monkeypatch.setattr("warploom.passes.tile.row_shares.MIN_TURNS", 2)
    x, labels = draw(8, 4103), torch.tensor([0, 4102, 7, 2050, 1024, -100, 3000, 1023])
    operands = (x, labels) if function is loss else (x, *torch.randn(2, 4103))
    operands = (x, draw(8, 4103), draw(4103)) if function is rms_gradient else operands
    kernel = compile(torch_to_linalg(function, *operands), target="sm_90a", cache=False)
    exact = function(*operands, kind=torch.float64)
    result = torch.full(exact.shape, 99.0)
    kernel(*operands, result, device="interp", checks="all")
    assert (result - exact).abs().max() <= 2**-19 * exact.abs().max()
    assert f".reqnctapercluster {2 if function is loss else 4}" in kernel.ptx
    assert [launch.grid[0] for launch in kernel.launches] == [16 if function is loss else 12]
    assert kernel.ptx.count("setp.eq.s32") < 16
    if function is norm:  # two vectors and a row, and then a row in each turn
        first, turn = (text.count("ld.global") for text in kernel.ptx.split("loop", 1))
        assert first == 3 * turn


@pytest.mark.parametrize(("longest", "warps", "ctas"), [(2, 3, 2), (16, 6, 1)])
def test_rows_of_one_input_are_shared_exactly(
    monkeypatch: pytest.MonkeyPatch, longest: int, warps: int, ctas: int
) -> None:
    """By warps whose lanes all have elements, where there would be half as many again by a power of two."""
    monkeypatch.setattr("warploom.passes.tile.row_shares.PER_LANE", 8)
    monkeypatch.setattr("warploom.passes.tile.row_shares.LONG_ROW", longest)
    operands = draw(3, 1536), draw(1536), draw(1536)
    kernel = compile(torch_to_linalg(norm, *operands), target="sm_90a", cache=False)
    exact = norm(*operands, kind=torch.float64)
    result = torch.full(exact.shape, 99.0)
    kernel(*operands, result, device="interp", checks="all")
    assert (result - exact).abs().max() <= 2**-19 * exact.abs().max()
    assert [(launch.grid[0], launch.block[0]) for launch in kernel.launches] == [(3 * ctas, 32 * warps)]


def test_rows_that_clusters_take_in_turns_may_be_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CTA reads a row that another one writes, not even one row more than it has."""
    share_rows_in_clusters(monkeypatch)
    monkeypatch.setattr("warploom.passes.tile.row_shares.clusters_at_once", lambda *_: 3)
    monkeypatch.setattr("warploom.passes.tile.row_shares.MIN_TURNS", 2)
    operands = torch.randn(8, 4103), *torch.randn(2, 4103)
    module = parse(str(torch_to_linalg(norm, *operands)))
    without_tensors(module)
    function: Any = module.body.block.first_op
    memory, result = function.body.block.args[0], function.body.block.args[-1]
    result.replace_all_uses_with(memory)
    function.body.block.erase_arg(result)
    function.update_function_type()
    kernel, exact = compile(str(module), target="sm_90a", cache=False), norm(*operands, kind=torch.float64)
    kernel(*operands, device="interp", checks="all")
    assert (operands[0] - exact).abs().max() <= 2**-19 * exact.abs().max()
    assert [launch.grid[0] for launch in kernel.launches] == [12]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("columns", "width"), [(40, 8), (36, 4), (35, 1)])
def test_rows_of_a_table_are_read_by_wide_accesses(columns: int, width: int) -> None:
    tokens = torch.tensor([3, 36, 0, 3, -1])
    operands = draw(37, columns), tokens
    kernel = compile(torch_to_linalg(lambda x, at: x[at], *operands), target="sm_90a", cache=False)
    result = torch.full((5, columns), 99.0).bfloat16()
    kernel(*operands, result, device="interp", checks="all")
    assert torch.equal(result, operands[0][tokens])
    assert len(kernel.launches) == 1
    assert f"{width} neighbours" in kernel.ptx or width == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ctas", [1, 4])
def test_warps_meet_once_for_the_largest_element_and_the_sum_below_it(
    monkeypatch: pytest.MonkeyPatch, ctas: int
) -> None:
    """Also where all that a warp has are infinities."""
    if ctas > 1:
        share_rows_in_clusters(monkeypatch)
    x = 8 * draw(2, 4201 if ctas == 1 else 4200)
    x[0, :3000] = x[1, 100:4000] = -torch.inf
    kernel = compile(torch_to_linalg(lambda x: torch.log_softmax(x.float(), -1), x), target="sm_90a", cache=False)
    result = torch.full(x.shape, 99.0)
    kernel(x, result, device="interp", checks="all")
    wanted = torch.log_softmax(x.double(), -1)
    assert torch.equal(result == -torch.inf, wanted == -torch.inf)
    off = (result - wanted).nan_to_num(0).abs().max()
    assert off <= 2**-20 * wanted.nan_to_num(neginf=0).abs().max()
    assert kernel.ptx.count("bar.sync") == (ctas == 1)
    assert (f".reqnctapercluster {ctas}" in kernel.ptx) == (ctas > 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", [4200, 6144])
def test_rows_of_which_nothing_is_stored_are_read_once_by_a_loop(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """What a warp has summed below its largest element so far is scaled when that grows, also from infinity."""
    monkeypatch.setattr("warploom.passes.linalg.row_reductions.ONCE_WARPS", 12)
    x, labels = 8 * draw(3, columns), torch.tensor([5, columns - 1, 4096])
    x[0, :4096] = x[1, 4096:] = -torch.inf
    x[2] += torch.arange(columns) / 40
    kernel = compile(torch_to_linalg(loss, x, labels), target="sm_90a", cache=False)
    result, exact = torch.full((3,), 99.0), loss(x, labels, torch.float64)
    kernel(x, labels, result, device="interp", checks="all")
    assert torch.equal(result == torch.inf, exact == torch.inf)
    assert (result - exact).nan_to_num(0).abs().max() <= 2**-19 * exact.nan_to_num(posinf=0).abs().max()
    assert "loop_1" in kernel.ptx
    assert kernel.ptx.count("ld.global.v4") == 4
    assert [launch.block for launch in kernel.launches] == [(128, 1, 1)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("columns", "warps", "loads"), [(3104, 4, 4), (6208, 4, 4)])
def test_smoothed_losses_read_their_rows_once(
    monkeypatch: pytest.MonkeyPatch, columns: int, warps: int, loads: int
) -> None:
    """The sum of logarithms is made of that of the elements, also far from zero, of infinities and of NaN."""
    monkeypatch.setattr("warploom.passes.linalg.row_reductions.ONCE_WARPS", 12)
    x, labels = draw(4, columns, kind=torch.float16), torch.tensor([5, 1, columns - 1, 3000])
    x[1] += 50
    x[2, 7], x[3, 9] = -INF, NAN

    def smoothed(x: Any, labels: Any) -> Any:
        wide = x if x.dtype == torch.float64 else x.float()
        return functional.cross_entropy(wide, labels, label_smoothing=0.1, reduction="none")

    kernel = compile(torch_to_linalg(smoothed, x, labels), target="sm_90a", cache=False)
    result, exact = torch.full((4,), 99.0), smoothed(x.double(), labels)
    kernel(x, labels, result, device="interp", checks="all")
    assert exact[2] == result[2] == INF
    assert exact[3].isnan() == result[3].isnan()
    assert ((result - exact) / exact)[:2].abs().max() <= 2**-19
    assert kernel.ptx.count("ld.global.v4") == loads
    assert [launch.block for launch in kernel.launches] == [(32 * warps, 1, 1)]
    mean = compile(torch_to_linalg(lambda x, y: smoothed_loss(x.float(), y), x, labels), target="sm_90a", cache=False)
    assert mean.launches[0].block == (32 * warps, 1, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "rows", "columns", "grids"),
    [
        (mean_loss, 21, 600, [4, 1]),
        (smoothed_loss, 17, 1500, [8, 1]),
        (smoothed_loss, 33, 4096, [4, 1]),
        (mean_loss, 6, 4600, [6, 1]),
        (mean_loss, 17, 4090, [4, 1]),
        (lambda x, _: (y := torch.logsumexp(x, -1), y.square().mean()), 43, 520, [4, 1]),
    ],
)
def test_values_of_rows_are_summed_in_turns(
    monkeypatch: pytest.MonkeyPatch, function: Any, rows: int, columns: int, grids: list[int]
) -> None:
    """Of rows that a warp holds, or several; those that a loop reads have a CTA each. Repeats have the same bits."""
    monkeypatch.setattr("warploom.passes.linalg.row_reductions.ONCE_WARPS", 12)
    for name, value in (("MIN_ROWS", 0), ("RESIDENT_WARPS", 16), ("_sms", lambda _: 1)):
        monkeypatch.setattr(f"warploom.passes.linalg.split_rows.{name}", value)
    x, labels = draw(rows, columns, kind=torch.float32), torch.arange(rows) % 5 - 1
    kernel = compile(torch_to_linalg(function, x, labels), target="sm_90a", cache=False)
    exact, repeats = function(x.double(), labels), []
    exact = exact if isinstance(exact, tuple) else (exact,)
    for _ in range(2):
        results = [torch.full(each.shape, 99.0) for each in exact]
        kernel(x, labels, *results, device="interp", checks="all")
        for result, wanted in zip(results, exact, strict=True):
            assert (result - wanted).abs().max() <= 2**-19 * wanted.abs().max()
        repeats.append(results)
    assert all(torch.equal(*each) for each in zip(*repeats, strict=True))
    assert [launch.grid[0] for launch in kernel.launches] == grids


def test_few_columns_are_shared_by_lanes() -> None:
    assert "shfl.sync" in run(lambda x: x.float().sum(0), (draw(67, 37),), 2**-8, 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("images", [21, 6])
def test_channels_of_images_are_summed_in_two(images: int) -> None:
    """Over the pixels of each image, which are rows, and over images; of images and of pixels, either may be more."""
    run(batch_norm, (draw(images, 5, 3, 7), draw(5), draw(5)), 2**-7, 4)


@pytest.mark.parametrize("shape", [(21, 5, 3, 7), (6, 3, 9, 5)])
def test_variances_of_channels_far_from_zero_take_one_reading(shape: tuple[int, ...]) -> None:
    """About the mean of each image: 30 with a deviation of 2, and images that lie apart, within k 2^-24 for k additions
    in turn, of an element, at most 64, and of the means' rounding."""
    x = torch.randn(shape) * 2 + 30 + torch.arange(shape[0])[:, None, None, None]
    kernel = compile(torch_to_linalg(variances, x), target="sm_90a", cache=False)
    variance, mean = torch.full((2, shape[1]), 99.0)
    kernel(x, variance, mean, device="interp", checks="all")
    exact = variances(x.double())
    assert len(kernel.launches) == 4
    assert ((variance - exact[0]).abs() / exact[0]).max() <= 64 * 2**-24
    assert ((mean - exact[1]).abs() / exact[1]).max() <= 64 * 2**-24


@pytest.mark.parametrize(("rows", "columns", "launches"), [(128, 245760, 3), (132, 245760, 1), (128, 163840, 1)])
def test_few_rows_that_no_cluster_holds_are_reduced_in_parts(rows: int, columns: int, launches: int) -> None:
    x = torch.empty(rows, columns, dtype=torch.bfloat16, device="meta")
    kernel = compile(torch_to_linalg(lambda x: torch.var_mean(x.float(), -1), x), target="sm_90a", cache=False)
    assert len(kernel.launches) == launches


def test_columns_of_a_prime_length_are_one_part() -> None:
    run(weight_gradients, (draw(97, 40), draw(97, 40), draw(97, 1).float()), 2**-8, 1)


def test_statistics_of_columns_are_made_of_parts() -> None:
    """Within 8 n / 32 k 2^-24 for parts of n = 40 elements and k < 80 additions in turn, also of columns far from zero,
    and with an outlier in front of each part."""
    x = torch.randn(400, 37)
    x[:, 1] += 1000
    x[::40, 2] = 1e4
    x[:40, 3] -= 300
    x[7, 4] = torch.inf
    x[:, 5] = 0.3
    kernel = compile(torch_to_linalg(lambda x: torch.var_mean(x, 0, correction=0), x), target="sm_90a", cache=False)
    variance, mean = torch.full((2, 37), 99.0)
    kernel(x, variance, mean, device="interp", checks="all")
    assert len(kernel.launches) == 3
    assert (variance[4].isnan(), mean[4]) == (True, torch.inf)
    exact = torch.var_mean(x.double(), 0, correction=0)
    kept = [column for column in range(37) if column not in (4, 5)]
    assert ((variance - exact[0]).abs() / exact[0])[kept].max() <= 8 * 40 / 32 * 80 * 2**-24
    assert ((mean - exact[1]).abs() / x.abs().amax(0))[kept].max() <= 2**-20
    assert variance[5] <= 2**-40


def batch_norm_gradients(g: Any, x: Any, w: Any, mean: Any, scale: Any) -> Any:
    return torch.ops.aten.native_batch_norm_backward(g, x, w, None, None, mean, scale, True, 1e-5, [True] * 3)


def group_norm_gradients(g: Any, x: Any, w: Any, mean: Any, scale: Any) -> Any:
    n, c, *pixels = x.shape
    return torch.ops.aten.native_group_norm_backward(g, x, mean, scale, w, n, c, math.prod(pixels), 3, [True] * 3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("shape", "launches"), [((192, 37), 3), ((21, 5, 3, 7), 4)])
def test_gradients_of_batch_norm_read_their_operands_twice(shape: tuple[int, ...], launches: int) -> None:
    """For the sums of channels, all of them in one kernel, and for the gradient of what was normalised."""
    operands = *torch.randn(2, *shape), *torch.randn(2, shape[1]), torch.rand(shape[1]) + 0.5
    run(batch_norm_gradients, operands, 2**-17, launches)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [((8, 6, 32, 32), torch.bfloat16), ((8, 9, 32, 32), torch.float32), ((8, 27, 32, 64), torch.half)],
)
def test_group_norm_reads_a_weight_once_for_each_channel(shape: tuple[int, ...], kind: Any) -> None:
    """Of so many pixels that no warp holds those of two channels."""
    operands = draw(*shape, kind=kind), draw(shape[1], kind=kind), draw(shape[1], kind=kind)
    run(group_norm, operands, 2**-17 if kind == torch.float32 else 2**-7, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("channels", "cluster"), [(30, 1), (60, 2)])
def test_what_follows_a_group_norm_is_of_its_kernel(
    monkeypatch: pytest.MonkeyPatch, channels: int, cluster: int
) -> None:
    """Of groups of 10 and 20 times what a warp holds, of as many warps; exponentials of what is rounded are
    approximate."""
    monkeypatch.setattr("warploom.runtime.torch.decompositions.MANY_IMAGES", 2)
    ptx = run(
        lambda x, w, b: functional.silu(group_norm(x, w, b)),
        (draw(2, channels, 32, 32) + 3, draw(channels), draw(channels)),
        2**-7,
        1,
    )
    assert ".reqntid 320" in ptx
    assert (".reqnctapercluster 2" in ptx) == (cluster == 2)
    assert "ex2.approx" in ptx


def test_gradients_of_group_norm_read_their_operands_twice() -> None:
    statistics = draw(2, 3), (torch.rand(2, 3) + 0.5).bfloat16()
    ptx = run(group_norm_gradients, (draw(2, 9, 5, 4), draw(2, 9, 5, 4), draw(9), *statistics), 2**-7, 5)
    first, *_ = ptx.split(".visible .entry")[1].split(")")
    assert first.count(".param") == 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "launches"),
    [
        (lambda x: x.max(-1), 1),
        (lambda x: x.min(-1, keepdim=True), 1),
        (lambda x: x.float().argmax(-1), 1),
        (lambda x: x.argmin(1, keepdim=True), 1),
        (lambda x: x.argmax(), 1),
        (lambda x: x.min(0), 1),
    ],
)
def test_the_first_place_of_an_extreme(function: Callable[..., Any], launches: int) -> None:
    x = draw(7, 77)
    x[0] = x[0].round()
    x[1, [5, 70]] = x[3] = x[5, 40] = NAN
    x[2] = x[5, :40] = -INF
    x[4, [3, 60]], x[6] = INF, 2.5
    kernel, exact = compile(torch_to_linalg(function, x), target="sm_90a", cache=False), function(x)
    exact = exact if isinstance(exact, tuple) else (exact,)
    results = [torch.full_like(wanted, 99) for wanted in exact]
    kernel(x, *results, device="interp", checks="all")
    assert len(kernel.launches) == launches
    for result, wanted in zip(results, exact, strict=True):
        assert torch.equal(result.float().nan_to_num(7), wanted.float().nan_to_num(7))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64])
def test_the_first_place_of_an_extreme_of_integers(kind: Any) -> None:
    """Some are there twice, and integers of 64 bits differ beyond what an f64 holds."""
    x = (draw(5, 33).float() * 60).to(kind)
    if kind == torch.int64:
        x += (1 << 62) + 1

    def function(x: Any) -> Any:
        return *x.max(-1), *x.min(0), *(() if kind == torch.bool else (x.argmax(-1), x.argmin()))

    exact = function(x)
    results = [torch.full_like(wanted, 1) for wanted in exact]
    compile(torch_to_linalg(function, x), target="sm_90a", cache=False)(x, *results, device="interp", checks="all")
    assert all(map(torch.equal, results, exact))


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", CASES)
def test_a_function_is_one_kernel(name: str) -> None:
    run(*CASES[name], 1)


def run(function: Callable[..., Any], operands: Any, bound: float, launches: int) -> str:
    """Runs a function with poisoned results, and compares with float64; it has so many launches. Returns its PTX."""
    kernel = compile(torch_to_linalg(function, *operands), target="sm_90a", cache=False)
    assert len(kernel.launches) == launches
    exact = function(*(x.double() for x in operands))
    own = function(*operands)
    exact, own = (r if isinstance(r, tuple) else (r,) for r in (exact, own))
    results = [torch.full_like(x.float(), 99).to(x.dtype) for x in own]
    kernel(*operands, *results, device="interp", checks="all")
    for result, wanted in zip(results, exact, strict=True):
        assert (result.double() - wanted).abs().max() <= bound * wanted.abs().max()
    return kernel.ptx


def test_tokens_beyond_a_table_are_nan_and_negative_ones_count_from_its_end() -> None:
    table, w, tokens = draw(7, 80), draw(80), torch.tensor([-7, 3, 7, -1, 1 << 40])
    kernel = compile(torch_to_linalg(embedded, tokens, table, w), target="sm_90a")
    rows, normed = (torch.full((5, 80), 99.0).bfloat16() for _ in range(2))
    kernel(tokens, table, w, rows, normed, device="interp", checks="all")
    assert rows[[2, 4]].isnan().all()
    assert normed[[2, 4]].isnan().all()
    assert torch.equal(rows[[0, 1, 3]], table[[0, 3, 6]])
    exact = embedded(torch.tensor([0, 3, 6]), table.double(), w.double())[1]
    assert (normed[[0, 1, 3]].double() - exact).abs().max() <= 2**-7 * exact.abs().max()


@pytest.mark.slow
def test_the_first_of_equal_elements_is_chosen_and_nan_before_numbers() -> None:
    inf = torch.inf
    x = torch.tensor([[1.0, 2, 2, -1], [-inf, -inf, 0, -inf], [inf, 1, torch.nan, 3]]).bfloat16()
    kernel = compile(torch_to_linalg(lambda x: x.topk(3), x), target="sm_90a")
    values, places = torch.full((3, 3), 99.0).bfloat16(), torch.full((3, 3), -1)
    kernel(x, values, places, device="interp", checks="all")
    assert len(kernel.launches) == 1
    assert ".align 8 " in kernel.ptx  # of the second places
    assert places.tolist() == [[1, 2, 0], [2, 0, 1], [2, 0, 3]]
    assert torch.equal(values.nan_to_num(7), x.gather(1, places).nan_to_num(7))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("columns", "compared", "inside"), [(1536, 0, 0), (1560, 4, 2), (1556, 7, 5)])
def test_neighbours_are_beyond_the_end_of_a_row_together(columns: int, compared: int, inside: int) -> None:
    """Neighbours that divide the length are compared with it once; those that all warps have inside are not. Lanes have
    8 neighbours of 8 bits, not 16, where rows fill them then."""
    before = run(quantised_rows, (draw(3, columns),), 2**-4, 1).split("warp.reduce")[0]
    masks = before[before.rindex("ld.global") :]
    assert (masks.count("setp.lt.s32"), masks.count(", -1;")) == (compared, inside)


def softmax_gradient(g: Any, y: Any) -> Any:
    return torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype)


@pytest.mark.parametrize(
    ("function", "shape", "bound"),
    [
        (lambda x: torch.softmax(x, -1), (3, 1031), 2**-8),
        (lambda x: torch.softmax(x, -1), (2, 17001), 2**-8),  # by a cluster
        (lambda x: x.float().cumsum(-1) if x.dtype == torch.bfloat16 else x.cumsum(-1), (3, 1031), 2**-18),
        (lambda x: x.cumsum(-1), (2, 17001), 2**-7),
        (softmax_gradient, (3, 1027), 2**-7),
        (lambda x: (x.log_softmax(-1), x.amax(-1)), (6, 2049), 2**-8),
        (quantised_rows, (5, 1033), 2**-4),
    ],
)
def test_rows_that_begin_anywhere_are_whole_accesses(
    function: Callable[..., Any], shape: tuple[int, int], bound: float
) -> None:
    """From that on in which a row begins, with what other rows have there, which shows where that is NaN."""
    operands = [draw(*shape) for _ in range(2 if function is softmax_gradient else 1)]
    ptx = run(function, operands, bound, 1)
    assert "ld.global.v" in ptx
    assert "st.global.v" in ptx
    operands[0][1] = torch.nan
    kernel, own = compile(torch_to_linalg(function, *operands), target="sm_90a", cache=False), function(*operands)
    own = own if isinstance(own, tuple) else (own,)
    results = [torch.full_like(x.float(), 99).to(x.dtype) for x in own]
    kernel(*operands, *results, device="interp", checks="all")
    for result, wanted in zip(results, own, strict=True):
        assert torch.equal(result.float().isnan(), wanted.float().isnan())


@pytest.mark.parametrize("columns", [1031, 5003])
def test_losses_of_rows_that_begin_anywhere(columns: int) -> None:
    """By a loop along them, of one warp or of several; the label's element lies at its own place."""
    x, labels = draw(5, columns), torch.tensor([0, columns - 1, 7, 1024, columns - 8])
    kernel = compile(torch_to_linalg(loss, x, labels), target="sm_90a", cache=False)
    result = torch.full((5,), 99.0)
    kernel(x, labels, result, device="interp", checks="all")
    exact = loss(x, labels, torch.float64)
    assert (result - exact).abs().max() <= 2**-19 * exact.abs().max()
    assert "ld.global.v" in kernel.ptx


def test_conditions_that_are_reduced_and_used_again_are_no_fragments() -> None:
    """Of a router of many experts in several neighbours of a lane; no two of a row are equal."""
    x = torch.stack([torch.randperm(128) for _ in range(5)]).bfloat16() / 16
    run(lambda x: torch.softmax(x if x.dtype == torch.float64 else x.float(), -1).topk(2), (x,), 2**-8, 1)


def test_lanes_keep_half_of_the_neighbours_of_rows_that_are_not_summed() -> None:
    """A quarter of them would leave fewer lanes beyond the end, but take narrow accesses."""
    kernel = compile(torch_to_linalg(quantised_rows, draw(3, 8416)), target="sm_90a", cache=False)
    assert kernel.ptx.count("ld.global.v4.b32") == 3
    assert "ld.global.v2" not in kernel.ptx


def edges(*shape: int) -> Any:
    """Rows of numbers, zeros, numbers whose inverse is infinite, or has few bits, quotients halfway between two of
    e4m3, infinities and NaN."""
    x = torch.randn(*shape)
    x[1] = x[2, 3:] = 0
    for row, largest in ((3, 3e-41), (4, 2e-38), (5, 3e38)):
        x[row] = (torch.rand(shape[1]) * 2 - 1) * largest
    x[6] = torch.randint(-7, 8, shape[1:]) / 2**10 + torch.randint(-6, 6, shape[1:])
    x[6, 0] = 7
    x[7, 5] = -torch.inf
    x[8, 7] = torch.nan
    return x


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", [quantised_rows, lambda x: (x / x.abs().amax(-1, keepdim=True),)])
def test_elements_are_divided_by_a_value_of_their_row_as_f32_divides(function: Callable[..., Any]) -> None:
    """By its inverse in two parts, once a row; f32 may be off by one in the last place."""
    x = edges(9, 1300)
    own = function(x)
    results = [torch.full_like(y.float(), 99).to(y.dtype) for y in own]
    kernel = compile(torch_to_linalg(function, x), target="sm_90a", cache=False)
    kernel(x, *results, device="interp", checks="all")
    for result, wanted in zip(results, own, strict=True):
        assert torch.equal(result.float().isnan(), wanted.float().isnan())
        if wanted.dtype == EIGHT:
            assert torch.equal(result.float().nan_to_num(9), wanted.float().nan_to_num(9))
        else:
            words = (y.nan_to_num(9).view(torch.int32) for y in (result, wanted))
            assert next(words).sub(next(words)).abs().max() <= 1
    assert kernel.ptx.count("div.rn") == len(own)


def gated_norm(x: Any, z: Any) -> Any:
    """Of what is gated, which is computed once."""
    wide = (x, z) if x.dtype == torch.float64 else (x.float(), z.float())
    y = wide[0] * functional.silu(wide[1])
    return functional.rms_norm(y, y.shape[-1:], None, 1e-6).to(x.dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "exponentials", "quotients"), [(gated, 0, 32), (gated_norm, 32, 0)])
def test_what_is_reduced_and_used_again_is_computed_once(
    function: Callable[..., Any], exponentials: int, quotients: int
) -> None:
    operands = (draw(2, 4096),) if function is gated else (draw(2, 1024), draw(2, 1024))
    text = run(function, operands, 2**-8, 1)
    assert text.count("ex2.approx") == exponentials
    assert text.count("div.rn") == quotients + 1


def test_scales_of_elements_of_8_bits_take_approximate_functions() -> None:
    """What those are off by is within the bounds of `docs/rows.md`, also where all of a row is far below zero."""

    def function(x: Any) -> Any:
        a, b = (x if x.dtype == torch.float64 else x.float()).chunk(2, -1)
        return quantised_rows(functional.silu(a) * b)

    x = draw(3, 594)
    x[1], x[2, :297] = 8 * x[1], -60 + x[2, :297]
    kernel = compile(torch_to_linalg(function, x), target="sm_90a", cache=False)
    own, scale = torch.full((3, 297), 99.0).to(EIGHT), torch.full((3, 1), 99.0)
    kernel(x, own, scale, device="interp", checks="all")
    exact, wanted = function(x.double())
    assert ((scale - wanted).abs() <= (2**-20 + 64 * 2**-23) * wanted).all()
    assert ((own.double() - exact).abs() <= 2**-3.9 * exact.abs() + 2**-10).all()
    assert "ex2.approx" in kernel.ptx
    assert kernel.ptx.count("div.rn") == 2  # of the scale, and its inverse


def test_what_is_read_in_between_stays_in_memory() -> None:
    """A product reads the sum before the norm that follows it is done."""

    def function(x: Any, r: Any, b: Any, w: Any) -> Any:
        h = x + r
        return functional.rms_norm(h @ b + h, (32,), w, 1e-6)

    operands = draw(16, 32), draw(16, 32), draw(32, 32), draw(32)
    kernel = compile(torch_to_linalg(function, *operands), target="sm_90a")
    result = torch.full((16, 32), 99.0).bfloat16()
    kernel(*operands, result, device="interp", checks="all")
    exact = function(*(x.double() for x in operands))
    assert (result.double() - exact).abs().max() <= 2**-5 * exact.abs().max()


def test_what_is_looked_up_in_between_stays_in_memory() -> None:
    """A lookup, which its body does, reads the sum before the kernel that also needs the sum."""

    def function(x: Any, places: Any) -> Any:
        y = x + x
        looked_up = y.view(5, 3, 24).index_select(0, places) * 0.25
        return y + looked_up[:5].reshape(15, 24)

    x, places = draw(15, 24), torch.tensor([0, 2, 4, 1, 3, 0])
    kernel = compile(torch_to_linalg(function, x, places), target="sm_90a")
    result = torch.full((15, 24), 99.0).bfloat16()
    kernel(x, places, result, device="interp", checks="all")
    assert torch.equal(result, function(x, places))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("function", "sizes", "launches"),
    [
        (lambda x, y: x.softmax(-1), (17, 17), 1),
        (lambda x, y: x.sum(-1, keepdim=True) * 0.25, (17, 17), 1),
        (lambda x, y: y + x.sum(-1, keepdim=True), (17, 11), 2),
    ],
)
def test_rows_of_unknown_length_are_as_long_as_their_sums(function: Any, sizes: Any, launches: int) -> None:
    """Only where the function says so: else they are kernels of their own."""
    dynamic = ({0: "rows", 1: "columns"}, {0: "rows", 1: "others"})
    kernel = compile(torch_to_linalg(function, torch.randn(4, 9), torch.randn(4, 7), dynamic=dynamic), target="sm_90a")
    assert len(kernel.launches) == launches
    x, y = torch.randn(5, sizes[0]), torch.randn(5, sizes[1])
    wanted = function(x.double(), y.double())
    result = torch.full(wanted.shape, 99.0)
    kernel(x, y, result, device="interp")
    assert (result - wanted).abs().max() <= 2**-18 * wanted.abs().max()
