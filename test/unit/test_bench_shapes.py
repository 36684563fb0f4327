"""The shapes of models that `bench/shapes.py` measures."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

shapes: Any = import_module("shapes")


def test_each_line_is_a_product_of_a_layer() -> None:
    all_shapes = shapes.read()
    assert len(all_shapes) >= 40
    assert len({(s.m, s.n, s.k) for s in all_shapes}) == len(all_shapes)
    assert all(": " in shape.layer for shape in all_shapes)


@pytest.mark.parametrize("line", ["4096 4096", "4096 4096 0 a layer", "4096 4096 x a layer", "4096 4096 4096"])
def test_a_line_without_a_shape_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "shapes.txt"
    file.write_text(f"# M N K\n\n{line}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"shapes.txt:3: error: expected M N K and the layer, got '{line}'"):
        shapes.read(file)
