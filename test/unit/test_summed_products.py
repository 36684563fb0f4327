"""Products that are summed over several loops, and along windows of an operand: run on the interpreter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from warploom.runtime import ArgumentError, WarploomError, compile

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]
UNIT = 2.0**-23
"""What an f32 accumulator may lose of a sum, relative to it, for each product that is added."""

BODY = """\
  ^bb0(%a: f16, %b: f16, %c: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.extf %b : f16 to f32
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  }
  return
}
"""


@dataclass(frozen=True)
class Form:
    """A product over `loops`, a letter each, with the maps of A, B and C."""

    loops: str
    maps: tuple[str, str, str]

    def text(self, shapes: Sequence[Sequence[int | str]]) -> str:
        """The function @f of this form."""
        loops = ", ".join(self.loops)
        maps = ", ".join(f"affine_map<({loops}) -> ({map_})>" for map_ in self.maps)
        kinds = ", ".join('"parallel"' if loop in self.maps[2] else '"reduction"' for loop in self.loops)
        a, b, c = (
            f"memref<{'x'.join([*map(str, shape), kind])}>"
            for shape, kind in zip(shapes, ("f16", "f16", "f32"), strict=True)
        )
        return (
            f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n"
            f"  linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}\n"
            f"      ins(%A, %B : {a}, {b}) outs(%C : {c}) {{\n{BODY}"
        )

    def windows(self, array: Floats, map_: str, sizes: dict[str, int]) -> Floats:
        """An operand with a dimension for each loop, found index by index."""
        used = [loop for loop in self.loops if loop in map_]
        windows = np.empty([sizes[loop] for loop in used])
        for index in product(*(range(sizes[loop]) for loop in used)):
            where = eval(f"({map_},)", dict(zip(used, index, strict=True)))
            windows[index] = array[where]
        return windows.reshape([sizes[loop] if loop in used else 1 for loop in self.loops])

    def exact(self, a: Floats, b: Floats, sizes: dict[str, int]) -> Floats:
        """The sums of products, in float64."""
        products = self.windows(a, self.maps[0], sizes) * self.windows(b, self.maps[1], sizes)
        products = np.broadcast_to(products, [sizes[loop] for loop in self.loops])
        out = [loop.strip() for loop in self.maps[2].split(",")]
        summed = products.sum(axis=tuple(i for i, loop in enumerate(self.loops) if loop not in out))
        kept = [loop for loop in self.loops if loop in out]
        return summed.transpose([kept.index(loop) for loop in out])


def check(
    form: Form,
    sizes: dict[str, int],
    shapes: tuple[Shape, Shape, Shape],
    typed: Sequence[Sequence[int | str]] = (),
    **fields: object,
) -> None:
    """Compiles a form, runs it on random arrays, and holds the result against float64."""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in shapes[:2])
    c = rng.standard_normal(shapes[2]).astype(np.float32)
    wanted = c + form.exact(a.astype(np.float64), b.astype(np.float64), sizes)
    size = np.abs(c) + form.exact(np.abs(a).astype(np.float64), np.abs(b).astype(np.float64), sizes)
    terms = 2 + np.prod([sizes[loop] for loop in form.loops if loop not in form.maps[2]])
    kernel = compile(form.text(typed or shapes), target="sm_80", cache=False, **fields)  # pyright: ignore[reportArgumentType]
    kernel(a, b, c, device="interp")
    assert (np.abs(c - wanted) <= (terms + 1) * UNIT * size).all()


FORMS = {
    "batch-reduce": (Form("bmnk", ("b, m, k", "b, k, n", "m, n")), ((3, 21, 7), (3, 7, 13), (21, 13))),
    "tiles": (Form("MNKmnk", ("M, K, m, k", "N, K, n, k", "M, N, m, n")), ((2, 3, 7, 4), (2, 3, 6, 4), (2, 2, 7, 6))),
    "joined": (Form("mnkl", ("m, k, l", "k, l, n", "m, n")), ((9, 3, 7), (3, 7, 13), (9, 13))),
    "of A alone": (Form("mnkl", ("m, k, l", "k, n", "m, n")), ((9, 7, 3), (7, 13), (9, 13))),
    "A repeated": (Form("mnk", ("k", "k, n", "m, n")), ((7,), (7, 13), (9, 13))),
    "both repeated": (Form("mnk", ("k", "k", "m, n")), ((7,), (7,), (9, 13))),
    "A without k": (Form("mnk", ("m", "k, n", "m, n")), ((9,), (7, 13), (9, 13))),
    "diagonal": (Form("mnk", ("m, m, k", "k, n", "m, n")), ((9, 9, 7), (7, 13), (9, 13))),
    "columns": (Form("smnk", ("s, k, m", "s, n, k", "n, m")), ((3, 7, 21), (3, 13, 7), (13, 21))),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    form, shapes = FORMS[name]
    sizes = {
        loop.strip(): size
        for map_, shape in zip(form.maps, shapes, strict=True)
        for loop, size in zip(map_.split(","), shape, strict=True)
    }
    check(form, sizes, shapes)


CONVOLUTION = Form("nhwfijc", ("n, h * 2 + i, w + j * 3, c", "i, j, c, f", "n, h, w, f"))
IMAGES: tuple[Shape, Shape, Shape] = ((2, 8, 14, 5), (3, 2, 5, 6), (2, 3, 11, 6))
IMAGE_SIZES = {"n": 2, "h": 3, "w": 11, "f": 6, "i": 3, "j": 2, "c": 5}


def test_windows() -> None:
    check(CONVOLUTION, IMAGE_SIZES, IMAGES)


def test_unknown_sizes() -> None:
    check(CONVOLUTION, IMAGE_SIZES, IMAGES, [("?", "?", "?", 5), (3, 2, 5, 6), ("?", "?", "?", 6)])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("operand", [True, False])
@pytest.mark.parametrize(("batch", "k"), [(0, 7), (3, 0), (0, 0)])
def test_no_terms(*, batch: int, k: int, operand: bool) -> None:
    form, shapes = FORMS["batch-reduce"][0], ((batch, 21, k), (batch, k, 13), (21, 13))
    typed = () if operand else [("?", 21, "?"), ("?", "?", 13), (21, 13)]
    check(form, {"b": batch, "m": 21, "n": 13, "k": k}, shapes, typed)


def test_vectors_that_begin_anywhere() -> None:
    text = Form("mk", ("m, k", "k", "m")).text([("?", "?"), ("?",), ("?",)])
    text = re.sub(r"memref<\?x(f16|f32)>", r"memref<?x\1, strided<[1], offset: ?>>", text)
    x = np.random.default_rng(0).integers(-4, 5, 12).astype(np.float16)
    a, c = np.ones((9, 7), np.float16), np.zeros(20, np.float32)
    compile(text, target="sm_80", cache=False)(a, x[3:10], c[5:14], device="interp", checks="all")
    np.testing.assert_array_equal(c[5:14], np.full(9, x[3:10].sum(dtype=np.float32)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fields", [{"sync": "mbarrier", "prefetch": 2, "unroll": 3, "ctas": 2}, {"stages": 1}])
def test_loops_over_all_k_tiles(fields: dict[str, object]) -> None:
    form, sizes = FORMS["batch-reduce"][0], {"b": 3, "m": 40, "n": 24, "k": 32}
    schedule = {"cta": (32, 16, 32), "warp": (16, 16), "stages": 3} | fields
    check(form, sizes, ((3, 40, 32), (3, 32, 24), (40, 24)), (), **schedule)


def test_a_window_that_passes_the_end_is_refused() -> None:
    text = CONVOLUTION.text([("?", "?", "?", 5), (3, 2, 5, 6), ("?", "?", "?", 6)])
    kernel = compile(text, target="sm_80", cache=False)
    a, b, c = np.zeros((2, 6, 14, 5), np.float16), np.zeros(IMAGES[1], np.float16), np.zeros(IMAGES[2], np.float32)
    with pytest.raises(ArgumentError, match="pass the end of dimension 1 of memory of 2x6x14x5"):
        kernel(a, b, c, device="interp")


def test_warpgroups_and_split_k_say_why_not() -> None:
    text = FORMS["batch-reduce"][0].text(((3, 256, 64), (3, 64, 256), (256, 256)))
    with pytest.raises(WarploomError, match="summed over several loops"):
        compile(text, target="sm_90a", cache=False, mma="m64n128k16")
    with pytest.raises(WarploomError, match="a product summed over several loops is not split"):
        compile(text, target="sm_90a", cache=False, split_k=2)
