"""Each kind of convolution that `bench/convolutions.py` times, of odd sizes, and its gradients, against float64."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
Layer: Any = import_module("convolutions").Layer

from warploom.passes.linalg import channels  # noqa: E402
from warploom.runtime import compile  # noqa: E402

KINDS = {
    "3x3": Layer("odd", 3, 24, 7, 40, 3, 1, 1),
    "3x3, a step of two": Layer("odd", 1, 40, 9, 24, 3, 2, 1),
    "pixels": Layer("odd", 3, 72, 5, 40),
    "pixels, a step of two": Layer("odd", 3, 40, 7, 72, 1, 2),
    "three channels": Layer("odd", 1, 3, 11, 24, 3, 2, 1),
    "odd channels": Layer("odd", 2, 5, 7, 9, 3, 1, 1),
    "four channels": Layer("odd", 1, 4, 11, 40, 3, 1, 1),
    "four filters": Layer("odd", 1, 40, 9, 4, 3, 2, 1),
    "groups": Layer("odd", 2, 48, 7, 72, 3, 1, 1, groups=3),
    "a filter for each channel": Layer("odd", 1, 12, 11, 12, 7, 1, 3, apart=True),
    "a filter for each channel, a step of two": Layer("odd", 2, 20, 9, 20, 3, 2, 1, apart=True),
    "channels first": Layer("odd", 1, 24, 7, 40, 3, 1, 1, first=True),
}
CASES = [
    (kind, by)
    for kind, layer in KINDS.items()
    for by in ("images", "weights", "data")
    if by == "images" or not layer.first
]
ORDER = {"images": (0, 1, 2), "weights": (0, 2, 1), "data": (2, 1, 0)}


def drawn(layer: Any) -> list[Any]:
    """Images, filters and results with channels where the layer has them."""
    channels = 1 if layer.apart else layer.channels // layer.groups
    sizes = (layer.images, layer.channels, layer.size), (layer.features, channels, layer.taps), (
        layer.images, layer.features, layer.result)  # fmt: skip
    order = torch.contiguous_format if layer.first else torch.channels_last
    return [torch.randn(*n, n[-1]).bfloat16().to(memory_format=order) for n in sizes]


def seen(layer: Any, tensors: list[Any]) -> list[Any]:
    """The operands of the layer's function, as its text has them."""
    groups = layer.groups if not layer.is_imported else 1
    views = [x if layer.first else x.permute(0, 2, 3, 1) for x in tensors]
    if groups > 1:
        views = [x.unflatten(0 if i == 1 else -1, (groups, -1)) for i, x in enumerate(views)]
    if layer.apart and not layer.is_imported:
        views[1] = tensors[1].squeeze(1).permute(1, 2, 0).contiguous()
    return [views[i] for i in ORDER[layer.by]]


def exact(layer: Any, tensors: list[Any]) -> Any:
    """The last operand in float64, with relu where it is a result of images."""
    x, w, y = (each.double() for each in tensors)
    groups, number = layer.channels if layer.apart else layer.groups, ORDER[layer.by][-1]
    steps = [[layer.stride] * 2, [layer.padding] * 2]
    if number == 2:
        return torch.nn.functional.conv2d(x, w, None, *steps, groups=groups).relu()
    asked = [number == 0, number == 1, False]
    return torch.ops.aten.convolution_backward(y, x, w, None, *steps, [1, 1], False, [0, 0], groups, asked)[number]


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("kind", "by"), CASES)
def test_a_timed_convolution_is_right(kind: str, by: str) -> None:
    _compared(KINDS[kind]._replace(by=by))


def test_filters_of_one_image_are_a_product_over_all_pixels() -> None:
    four = compile(Layer("odd", 4, 40, 19, 24, by="weights").text(), target="sm_90a")
    assert _compared(Layer("odd", 1, 40, 38, 24, by="weights")).schedule == four.schedule, "no loop over rows of 38"


@pytest.mark.parametrize(("by", "launches"), [("images", 2), ("weights", 2), ("data", 3)])
def test_channels_that_fill_a_box_badly_are_read_by_rows(
    monkeypatch: pytest.MonkeyPatch, by: str, launches: int
) -> None:
    monkeypatch.setattr(channels, "MIN_SAVED", 0)
    monkeypatch.setattr(channels, "MANY_TURNED", 0)
    wide, narrow = (16, 40) if by == "data" else (40, 16)
    kernel = _compared(Layer("odd", 2, narrow, 9, wide, 3, 1, 1, by=by))
    assert len(kernel.plan.launches) == launches, "zeros around images, a turned filter"


def test_filters_of_few_channels_are_turned_for_large_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MANY_TURNED", 0)
    kernel = _compared(Layer("odd", 1, 40, 9, 3, 5, 1, 2, by="data"))
    assert len(kernel.plan.launches) == 3, "images, filter, and a product of a row of taps at once"


def _compared(layer: Any) -> Any:
    """The kernel of a layer, whose result on the interpreter is near float64's."""
    tensors = drawn(layer)
    wanted = exact(layer, tensors)
    operands = seen(layer, tensors)
    operands[-1].fill_(99.0)
    kernel = compile(layer.text(), target="sm_90a", cache=False)
    kernel(*operands, device="interp", checks="all")
    result = tensors[ORDER[layer.by][-1]].double()
    assert (result - wanted).abs().max() <= 2**-7 * wanted.abs().max()
    return kernel
