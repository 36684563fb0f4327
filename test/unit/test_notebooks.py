"""What notebooks show of kernels, schedules and layouts."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from warploom.dialect.isa import mma
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.schedule import FIELDS, Schedule
from warploom.runtime import Kernel, compile
from warploom.runtime.base.launch import Signature

SVG = "{http://www.w3.org/2000/svg}"
PRODUCT = """\
func.func @product(%A: memref<100x24xf16>, %B: memref<24x70xf16>, %C: memref<100x70xf32>) {
  linalg.matmul ins(%A, %B : memref<100x24xf16>, memref<24x70xf16>) outs(%C : memref<100x70xf32>)
  return
}
"""
SCHEDULE = Schedule.parse(
    "cta = 64x96x32, warp = 32x48, mma = m16n8k16, stages = 3, swizzle = 64, group = 2, accumulate = f32"
)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return compile(PRODUCT, cta=(32, 32, 32), warp=(16, 16), stages=2)


def drawn(shown: Any) -> tuple[list[dict[str, str]], list[str]]:
    """The rectangles of a picture, whose numbers are finite, and its words."""
    root = ElementTree.fromstring(shown._repr_svg_())
    boxes = [box.attrib for box in root.iter(f"{SVG}rect")][1:]
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for box in boxes:
        assert 0 <= float(box["x"]) < float(box["x"]) + float(box["width"]) <= width
        assert 0 <= float(box["y"]) < float(box["y"]) + float(box["height"]) <= height
    return boxes, [text.text or "" for text in root.iter(f"{SVG}text")]


def test_a_schedule_shows_its_tiles_and_stages() -> None:
    boxes, words = drawn(SCHEDULE)
    assert words[0] == "CTA tile 64x96x32, 4 warps of 32x48, mma m16n8k16"
    assert {"A 64x32", "B 32x96", "warp 0", "warp 3", "3 stages, copies 2 K tiles ahead"} <= {*words}
    assert len(boxes) == 2 + 4 + 3
    warps = [(float(box["width"]), float(box["height"])) for box in boxes[2:6]]
    assert all(abs(wide / high - 48 / 32) < 0.01 for wide, high in warps)


def test_a_schedule_of_warpgroups_shows_them() -> None:
    shape = mma.Shape.parse("m64n64k16")
    _, words = drawn(SCHEDULE.with_fields(cta=(128, 64, 64), warp=(64, 64), mma=shape, swizzle=128))
    assert words[0] == "CTA tile 128x64x64, 2 warpgroups of 64x64, mma m64n64k16"
    assert {"warpgroup 0", "warpgroup 1"} <= {*words}


def test_as_html_it_says_what_each_field_means() -> None:
    text = SCHEDULE._repr_html_()
    for name in FIELDS:
        assert f"<tr><th>{name}</th><td>" in text
    ElementTree.fromstring(text[text.index("<table>") :])


@pytest.mark.parametrize("role", "abd")
def test_a_layout_shows_every_element_once(role: str) -> None:
    row = next(row for row in mma.rows() if str(row.shape) == "m16n8k16" and row.a.name == "f16")
    layout = row.layout(role)
    root = ElementTree.fromstring(layout._repr_svg_())
    assert str(layout) in (root.findall(f"{SVG}text")[-1].text or "")
    assert layout._repr_html_().endswith(f"<code>{layout}</code>")


def test_one_with_another_axis_has_a_panel_for_each_of_its_values() -> None:
    texts = [text.text for text in ElementTree.fromstring(
        Layout.parse("r0 r1 q0 q1 r2 | c0 c1", "rcq")._repr_svg_()
    ).iter(f"{SVG}text")]  # fmt: skip
    assert {f"product {number}" for number in range(4)} <= {*texts}


def test_a_kernel_shows_its_result_in_tiles(kernel: Kernel) -> None:
    boxes, words = drawn(kernel)
    assert words == ["100x70x24: 4 x 3 CTA tiles of 32x32"]
    assert len(boxes) == 2


def test_as_html_it_holds_the_ptx(kernel: Kernel) -> None:
    text = kernel._repr_html_()
    root = ElementTree.fromstring(f"<div>{text}</div>")
    assert root.findall("details/pre")[0].text == kernel.ptx
    cells = [cell.text for cell in root.findall("table/tr/td")]
    assert cells[:2] == [str(kernel.function), "sm_90a"]
    assert cells[3] == str(kernel.schedule[0])


def test_one_of_unknown_size_is_not_drawn() -> None:
    kernel = compile(PRODUCT.replace("100x", "?x").replace("24x", "?x").replace("70x", "?x"), target="sm_80")
    assert isinstance(kernel.function, Signature)
    assert kernel._repr_svg_() is None
    assert kernel._repr_html_().startswith("<table>")
