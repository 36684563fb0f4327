"""The rows of every warp-level matrix instruction: fragments by the formulas of the text, registers, availability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from ptx_rows import BY_SPELLING

from warploom.dialect.isa import mma, sparse_mma, wmma
from warploom.dialect.isa.form import BY_MLIR_NAME, ELEMENT_TYPES, BlockScale, Form, Shape, element_type
from warploom.dialect.isa.mma import LoadMatrix, Mma, StoreMatrix
from warploom.dialect.isa.row import TARGETS, Slot, target
from warploom.dialect.isa.sparse_mma import FOUR_OF_EIGHT, ONE_OF_TWO, TWO_OF_FOUR
from warploom.dialect.layouts.layout import LANES, Layout
from warploom.dialect.ptx import instructions

Formula = Callable[[int, int, int], tuple[int, int]]
"""From (groupID, threadID_in_group, i) to (row, column)."""


# The formulas of 9.7.14.5.2 to 9.7.14.5.13 for A and B, by shape and bits of an element in its register.
A: dict[tuple[str, int], Formula] = {
    ("m8n8k4", 64): lambda g, t, i: (g, t),
    ("m8n8k16", 8): lambda g, t, i: (g, t * 4 + i),
    ("m8n8k32", 4): lambda g, t, i: (g, t * 8 + i),
    ("m8n8k128", 1): lambda g, t, i: (g, t * 32 + i),
    ("m16n8k4", 32): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k4", 64): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 16): lambda g, t, i: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ("m16n8k8", 32): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k8", 64): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k16", 16): lambda g, t, i: (
        g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
        t * 2 + (i & 1) if i < 4 else t * 2 + (i & 1) + 8,
    ),
    ("m16n8k16", 64): lambda g, t, i: (g if i % 2 == 0 else g + 8, i * 2 + t if i % 2 == 0 else i * 2 - 2 + t),
    ("m16n8k16", 8): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    ("m16n8k32", 4): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    ("m16n8k32", 8): lambda g, t, i: (
        g if 0 <= i < 4 or 8 <= i < 12 else g + 8,
        t * 4 + (i & 3) if i < 8 else t * 4 + (i & 3) + 16,
    ),
    ("m16n8k64", 4): lambda g, t, i: (
        g if 0 <= i < 8 or 16 <= i < 24 else g + 8,
        t * 8 + (i & 7) if i < 16 else t * 8 + (i & 7) + 32,
    ),
    ("m16n8k128", 1): lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 0x1F)),
    ("m16n8k256", 1): lambda g, t, i: (
        g if 0 <= i < 32 or 64 <= i < 96 else g + 8,
        t * 32 + (i & 0x1F) if i < 64 else t * 32 + (i & 0x1F) + 128,
    ),
}
B: dict[tuple[str, int], Formula] = {
    ("m8n8k4", 64): lambda g, t, i: (t, g),
    ("m8n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m8n8k32", 4): lambda g, t, i: (t * 8 + i, g),
    ("m8n8k128", 1): lambda g, t, i: (t * 32 + i, g),
    ("m16n8k4", 32): lambda g, t, i: (t, g),
    ("m16n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k8", 16): lambda g, t, i: (t * 2 + i, g),
    ("m16n8k8", 32): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m16n8k8", 64): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m16n8k16", 16): lambda g, t, i: (t * 2 + (i & 1) if i < 2 else t * 2 + (i & 1) + 8, g),
    ("m16n8k16", 64): lambda g, t, i: (t + i * 4, g),
    ("m16n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m16n8k32", 4): lambda g, t, i: (t * 8 + (i & 7), g),
    ("m16n8k32", 8): lambda g, t, i: (t * 4 + (i & 3) if i < 4 else t * 4 + (i & 3) + 16, g),
    ("m16n8k64", 4): lambda g, t, i: (t * 8 + (i & 7) if i < 8 else t * 8 + (i & 7) + 32, g),
    ("m16n8k128", 1): lambda g, t, i: (t * 32 + i, g),
    ("m16n8k256", 1): lambda g, t, i: (t * 32 + (i & 0x1F) if i < 32 else t * 32 + (i & 0x1F) + 128, g),
    # Figures 121, 124, 132 to 135 and 142 to 145: a register after the other runs on down the rows.
    ("m16n8k16", 32): lambda g, t, i: (t + i * 4, g),
    ("m16n8k32", 16): lambda g, t, i: (t * 2 + (i & 1) + i // 2 * 8, g),
    ("m16n8k64", 8): lambda g, t, i: (t * 4 + (i & 3) + i // 4 * 16, g),
    ("m16n8k128", 4): lambda g, t, i: (t * 8 + (i & 7) + i // 8 * 32, g),
}


def accumulator(g: int, t: int, i: int) -> tuple[int, int]:
    """C and D of all of them but m8n8k4 in f16: m8n8 has c0 and c1 only."""
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


# 9.7.14.5.1, from (%laneid, i) to (row, column).
FOUR_PRODUCTS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "a.row": lambda lane, i: (lane % 4 if lane < 16 else lane % 4 + 4, i),
    "a.col": lambda lane, i: (i % 4 if lane < 16 else i % 4 + 4, lane % 4),
    "b.row": lambda lane, i: (lane % 4, i if lane < 16 else i + 4),
    "b.col": lambda lane, i: (i, lane % 4 if lane < 16 else lane % 4 + 4),
    "f16": lambda lane, i: (lane % 4 if lane < 16 else lane % 4 + 4, i),
    "f32": lambda lane, i: (
        (lane & 1) + (i & 2) + (0 if lane < 16 else 4),
        (i & 4) + (lane & 2) + (i & 1),
    ),
}

DENSE, SPARSE = mma.rows(), sparse_mma.rows()
SINGLE = [row for row in DENSE if row.products == 1]
FOURFOLD = [row for row in DENSE if row.products == 4]


def places(layout: Layout) -> list[tuple[int, int]]:
    return [layout.position(lane, i) for lane in range(LANES) for i in range(layout.elements)]


def by_formula(formula: Formula, layout: Layout) -> list[tuple[int, int]]:
    return [formula(lane >> 2, lane % 4, i) for lane in range(LANES) for i in range(layout.elements)]


def layouts() -> Iterator[tuple[Mma, str, Layout]]:
    """Each layout once, with a row that has it."""
    seen: set[tuple[object, ...]] = set()
    for row, role in product((*SINGLE, *SPARSE), "abcd"):
        key = (row.sparse, row.shape, row.container_bits(role), role)
        if key not in seen:
            seen.add(key)
            yield row, role, row.layout(role)


def test_fragments_have_the_formulas_of_the_text() -> None:
    checked: Counter[str] = Counter()
    for row, role, layout in layouts():
        if row.sparse and role == "a":
            continue
        key = (str(row.shape), row.container_bits(role))
        formula = {"a": A, "b": B}[role][key] if role in "ab" else accumulator
        assert places(layout) == by_formula(formula, layout), (row.spelling, role)
        checked[role] += 1
    assert checked["a"] == len(A)
    assert checked["b"] == len(B) + len({"m16n8k8 32", "m16n8k16 16", "m16n8k32 8", "m16n8k64 4"})


def test_every_fragment_covers_its_matrix_once() -> None:
    for row, role, layout in layouts():
        m, n, k = row.shape
        depth = k // 2 if row.sparse and role == "a" else k
        rows, columns = {"a": (m, depth), "b": (k, n)}.get(role, (m, n))
        assert (layout.rows, layout.columns) == (rows, columns)
        assert sorted(places(layout)) == [(r, c) for r in range(rows) for c in range(columns)], (row.spelling, role)
        assert {layout.inverse()[layout.position(5, 0)]} == {(5, 0)}


def test_four_products_have_the_formulas_of_the_text() -> None:
    """MMA computation q is that of lanes 4q to 4q + 3 and 16 further on."""
    assert len(FOURFOLD) == 12
    for row, role in product(FOURFOLD, "abcd"):
        name = {"a": f"a.{row.a_layout}", "b": f"b.{row.b_layout}"}.get(role) or row.element(role).name
        layout = row.layout(role)
        for lane, i in product(range(LANES), range(layout.elements)):
            assert layout.position(lane, i) == FOUR_PRODUCTS[name](lane, i), (row.spelling, role)
            assert layout.coordinates(lane, i)["q"] == lane % 16 // 4
        for q in range(4):
            inverse = layout.inverse(q=q)
            assert len(set(inverse.values())) == layout.rows * layout.columns
            assert all(layout.position(*place) == where for where, place in inverse.items())


# 9.7.14.6.2: the columns of A that the elements of a register stand for, from (threadID_in_group, i) to the first one.
WINDOWS: dict[tuple[str, int], tuple[Callable[[int, int], int], int]] = {
    ("m16n8k16", 16): (lambda t, i: t * 4, 4),
    ("m16n8k32", 16): (lambda t, i: t * 4 if i < 4 else t * 4 + 16, 4),
    ("m16n8k16", 32): (lambda t, i: t * 2 if i < 2 else t * 2 + 8, 2),
    ("m16n8k8", 32): (lambda t, i: t * 2, 2),
    ("m16n8k32", 8): (lambda t, i: t * 8, 8),
    ("m16n8k64", 8): (lambda t, i: t * 8 if i < 8 else t * 8 + 32, 8),
    ("m16n8k64", 4): (lambda t, i: t * 16, 16),
    ("m16n8k128", 4): (lambda t, i: t * 16 if i < 16 else t * 16 + 64, 16),
}
# The rows of those elements, from (groupID, i).
SPARSE_ROWS: dict[tuple[str, int], Callable[[int, int], int]] = {
    ("m16n8k16", 16): lambda g, i: g if i < 2 else g + 8,
    ("m16n8k32", 16): lambda g, i: g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
    ("m16n8k16", 32): lambda g, i: g if i in (0, 2) else g + 8,
    ("m16n8k8", 32): lambda g, i: g if i == 0 else g + 8,
    ("m16n8k32", 8): lambda g, i: g if 0 <= i < 4 else g + 8,
    ("m16n8k64", 8): lambda g, i: g if 0 <= i < 4 or 8 <= i < 12 else g + 8,
    ("m16n8k64", 4): lambda g, i: g if 0 <= i < 8 else g + 8,
    ("m16n8k128", 4): lambda g, i: g if 0 <= i < 8 or 16 <= i < 24 else g + 8,
}


def test_sparse_a_stands_for_the_columns_of_the_text() -> None:
    keys = {(str(row.shape), row.container_bits("a")): row for row in SPARSE}
    assert keys.keys() == WINDOWS.keys() == SPARSE_ROWS.keys()
    for key, row in keys.items():
        (first, width), layout, grain = WINDOWS[key], row.layout("a"), row.granularity
        per_register = max(1, 32 // row.container_bits("a"))
        assert grain is not None
        for lane, start in product(range(LANES), range(0, layout.elements, per_register)):
            stored = [layout.position(lane, start + i) for i in range(per_register)]
            assert {r for r, _ in stored} == {SPARSE_ROWS[key](lane >> 2, start)}
            chunks = {c // grain.stored for _, c in stored}
            columns = sorted(chunk * grain.chunk + i for chunk in chunks for i in range(grain.chunk))
            begin = first(lane % 4, start)
            assert columns == list(range(begin, begin + width)), row.spelling


# Figures 119 to 147, by width of A's elements and shape: from (group, half, chunk, selector) to (lane, nibble).
METADATA: dict[tuple[str, int], Callable[[int, int, int, int], tuple[int, int]]] = {
    **dict.fromkeys([("m16n8k16", 16), ("m16n8k8", 32)], lambda g, h, c, f: (4 * g + f, 4 * h + c)),
    **dict.fromkeys(
        [("m16n8k32", 16), ("m16n8k16", 32)], lambda g, h, c, f: (4 * g + 2 * f + c // 4, 4 * h + c % 4)
    ),
    **dict.fromkeys([("m16n8k32", 8), ("m16n8k64", 4)], lambda g, h, c, f: (4 * g + 2 * f + h, c)),
    **dict.fromkeys([("m16n8k64", 8), ("m16n8k128", 4)], lambda g, h, c, f: (4 * g + 2 * (c // 8) + h, c % 8)),
}  # fmt: skip


def test_metadata_lies_where_the_figures_have_it() -> None:
    for row in SPARSE:
        formula = METADATA[str(row.shape), row.container_bits("a")]
        assert row.granularity is not None
        assert row.metadata is not None
        chunks = row.shape.k // row.granularity.chunk
        for r, c, f in product(range(16), range(chunks), row.selectors):
            assert row.metadata.find(r=r, c=c, f=f) == formula(r % 8, r // 8, c, f), row.spelling


# 9.7.14.6.1: how many values the sparsity selector has, by shape and width of A's elements.
SELECTORS = {
    ("m16n8k16", 16): 4, ("m16n8k32", 16): 2, ("m16n8k8", 32): 4, ("m16n8k16", 32): 2, ("m16n8k32", 8): 2,
    ("m16n8k64", 4): 2, ("m16n8k64", 8): 1, ("m16n8k128", 4): 1,
}  # fmt: skip


def test_granularities_selectors_and_codes() -> None:
    """9.7.14.6.1."""
    for row in SPARSE:
        name = row.a.name
        pairs = name in ("s4", "u4") or (name == "e2m1" and row.kind in ("mxf4", "mxf4nvf4"))
        assert row.granularity == (ONE_OF_TWO if name == "tf32" else FOUR_OF_EIGHT if pairs else TWO_OF_FOUR)
        assert list(row.selectors) == list(range(SELECTORS[str(row.shape), row.container_bits("a")]))
        ordered = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
        if name == "tf32":
            assert row.codes == (0b0100, 0b1110)
        elif row.ordered:
            assert row.codes == ordered
        else:
            assert set(row.codes) == set(range(16)) - {0b0000, 0b0101, 0b1010, 0b1111}
    assert [str(g) for g in (ONE_OF_TWO, TWO_OF_FOUR, FOUR_OF_EIGHT)] == ["1:2", "2:4", "4:8 in pairs"]


def test_scales_lie_where_the_figures_have_them() -> None:
    """Row g + 8h of A: lane 4g + 2 * thread-id + h; column n of B: lane 4n + thread-id; scale s: byte byte-id + s."""
    for vector in (1, 2, 4):
        scale = BlockScale(vector, element_type("ue8m0"))
        a, b = scale.layout("a"), scale.layout("b")
        for (number, byte), s in product(enumerate(scale.byte_ids), range(vector)):
            for r, t in product(range(16), scale.thread_ids("a")):
                assert a.find(r=r, c=s, t=t, b=number) == (4 * (r % 8) + 2 * t + r // 8, byte + s)
            for n, t in product(range(8), scale.thread_ids("b")):
                assert b.find(r=s, c=n, t=t, b=number) == (4 * n + t, byte + s)
    assert [BlockScale(v, element_type("ue8m0")).byte_ids for v in (1, 2, 4)] == [(0, 1, 2, 3), (0, 2), (0,)]
    assert {row.scale.vector for row in mma.rows() if row.scale is not None} == {1, 2, 4}


def test_kinds_and_scales_go_together_as_in_table_36() -> None:
    for row in (*DENSE, *SPARSE):
        if row.scale is None:
            assert row.kind in ("", "f8f6f4")
            continue
        quarters = {(2, "ue8m0"), (4, "ue4m3"), (4, "ue8m0")}
        legal = {"mxf8f6f4": {(1, "ue8m0")}, "mxf4": {(2, "ue8m0")}, "mxf4nvf4": quarters}
        assert (row.scale.vector, row.scale.type.name) in legal[row.kind]
        assert row.scale.written or row.kind != "mxf4nvf4"
        assert row.container_bits("a") == (8 if row.kind == "mxf8f6f4" else 4)


def test_moves_by_the_figures() -> None:
    """Figures 104 to 108: from (lane, register of the matrix, part of it) to (row in memory, element of the row)."""
    moved: dict[tuple[str, str, bool], Callable[[int, int, int], tuple[int, int]]] = {
        ("ldmatrix", "m8n8", False): lambda lane, r, i: (lane // 4, 2 * (lane % 4) + i),
        ("ldmatrix", "m8n8", True): lambda lane, r, i: (2 * (lane % 4) + i, lane // 4),
        ("ldmatrix", "m16n16", True): lambda lane, r, i: (4 * (lane % 4) + i, lane // 4 + 8 * r),
        ("ldmatrix", "m8n16", False): lambda lane, r, i: (lane // 4, 4 * (lane % 4) + i),
        ("stmatrix", "m8n8", False): lambda lane, r, i: (lane // 4, 2 * (lane % 4) + i),
        ("stmatrix", "m8n8", True): lambda lane, r, i: (2 * (lane % 4) + i, lane // 4),
        ("stmatrix", "m16n8", True): lambda lane, r, i: (2 * (lane % 4) + (i & 1), lane // 4 + 8 * (i >> 1)),
    }
    for row in (*mma.load_rows(), *mma.store_rows()):
        formula = moved[row.spelling.split(".")[0], row.shape, row.transpose]
        per_register = 32 // row.element_bits
        for lane, element in product(range(LANES), range(row.layout.elements)):
            assert row.layout.position(lane, element) == formula(lane, *divmod(element, per_register)), row.spelling
        assert len(set(places(row.layout))) == row.layout.rows * row.layout.columns
        assert row.registers == row.count * (2 if row.shape == "m16n16" else 1)
        assert row.addresses == row.count * (16 if row.shape == "m16n16" else 8) <= LANES
    assert mma.MOVMATRIX.layout == mma.MOVMATRIX.source.transposed()
    assert {(r.source, r.memory_bits) for r in mma.load_rows() if r.type == "b8x16"} == {
        ("b6x16_p32", 6),
        ("b4x16_p64", 4),
    }


def test_wmma_fragments_have_the_registers_of_the_text() -> None:
    """9.7.14.4.1, and that A and B of f16 take eight in every shape."""
    wide = {"m16n16k16": (2, 2), "m8n32k16": (1, 4), "m32n8k16": (4, 1)}
    text = {
        **{(shape, t): counts for shape, counts in wide.items() for t in ("s8", "u8")},
        **{(shape, "bf16"): (2 * a, 2 * b) for shape, (a, b) in wide.items()},
        **{(shape, "f16"): (8, 8) for shape in wide},
        ("m16n16k8", "tf32"): (4, 4),
        ("m8n8k4", "f64"): (1, 1),
        **{("m8n8k32", t): (1, 1) for t in ("s4", "u4")},
        ("m8n8k128", "b1"): (1, 1),
    }
    sums = {("f16", True): 4, ("f32", True): 8, ("s32", True): 8, ("s32", False): 2, ("f64", False): 2}
    for row in wmma.mma_rows():
        d, a, b, c = (o.count for o in row.operands)
        assert (a, b) == text[str(row.shape), row.a.name]
        for role, count in (("d", d), ("c", c)):
            assert count == sums[row.element(role).name, row.shape.n * row.shape.m == 256]
    assert {(str(r.shape), r.a.name) for r in wmma.mma_rows()} == text.keys()


def test_wmma_strides_and_alignment() -> None:
    """9.7.14.4.2: the table of default strides, and the example of the text."""
    table = {
        "16x16x16": (16, 16, 16, 16, 16, 16), "8x32x16": (16, 8, 32, 16, 32, 8), "32x8x16": (16, 32, 8, 16, 8, 32),
        "8x8x32": (32, 8, 8, 32, 8, 8), "8x8x128": (128, 8, 8, 128, 8, 8), "16x16x8": (8, 16, 16, 8, 16, 16),
        "8x8x4": (4, 8, 8, 4, 8, 8),
    }  # fmt: skip
    for name, strides in table.items():
        shape = Shape(*map(int, name.split("x")))
        got = [wmma.default_stride(shape, role, layout) for role in "abc" for layout in ("row", "col")]
        assert tuple(got) == strides
    assert wmma.alignment(wmma.M16N16K16, "a", element_type("f16")) == 32


def test_every_spelling_finds_its_row() -> None:
    rows = [row for make in instructions.FAMILIES.values() for row in make()]
    assert len(rows) == len(BY_SPELLING) == len(set(BY_SPELLING)) == 2171
    assert Counter(instructions.family(row.spelling) for row in rows) == {
        "wmma.load": 352, "wmma.store": 104, "wmma.mma": 138, "mma": 215, "ldmatrix": 63, "stmatrix": 27,
        "movmatrix": 1, "mma.sp": 197, "wgmma.mma_async": 1074,
    }  # fmt: skip
    for row in rows:
        assert BY_SPELLING[row.spelling] is instructions.matrix_form(row.spelling) is row
        assert row.section.startswith(("9.7.14.", "9.7.15."))
        assert row.operands


@pytest.mark.parametrize(
    "spelling", ["", "mma", "add.s32", "wgmma.mma_async", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16"]
)
def test_what_is_no_spelling(spelling: str) -> None:
    assert instructions.matrix_form(spelling) is None
    assert spelling not in BY_SPELLING


def test_the_order_of_qualifiers_is_free_but_for_those_of_a_kind() -> None:
    find = instructions.matrix_form
    assert find("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16") is find(LoadMatrix(4, True).spelling)
    assert find("mma.sync.aligned.m16n8k16.row.col.f32.f32.f16.f16") is None
    assert find("mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32") is None
    assert find("wmma.load.sync.aligned.a.row.m16n16k16.f16") is None


def test_operands_in_the_order_of_the_text() -> None:
    sparse = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    row = BY_SPELLING[sparse]
    assert [o.name for o in row.operands] == [*"dabcef", "scale_a", "selector_a", "scale_b", "selector_b"]
    assert [o.count for o in row.operands[:4]] == [4, 4, 4, 4]
    double = BY_SPELLING["mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64.rz"]
    assert [(o.type, o.count) for o in double.operands] == [("f64", 4), ("f64", 8), ("f64", 4), ("f64", 4)]
    load = BY_SPELLING["wmma.load.a.sync.aligned.row.m16n16k16.global.f16"]
    assert load.operands[0] == Slot("r", "vector", "f16x2", 8, written=True)
    assert [o.optional for o in load.operands] == [False, False, True]


def row_of(spelling: str) -> Form:
    return BY_SPELLING[spelling]


SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
SPARSE_SCALED = SCALED.replace("mma.", "mma.sp::ordered_metadata.", 1).replace("k64", "k128")


@pytest.mark.parametrize(
    ("spelling", "name", "version", "reason"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_75", (9, 0), "needs sm_80 or later"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80", (7, 0), None),
        ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16", "sm_90", (8, 6), "needs PTX 8.7"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_80", (7, 0), "needs PTX 7.1"),
        (SCALED, "sm_120", (9, 0), "needs sm_120a, or the sm_120f family from PTX 8.8"),
        (SCALED, "sm_100a", (9, 0), "needs sm_120a, or the sm_120f family from PTX 8.8"),
        (SCALED, "sm_120a", (8, 7), None),
        (SCALED, "sm_121a", (8, 8), None),
        (SCALED, "sm_121f", (8, 7), "needs PTX 8.8"),
        (SPARSE_SCALED, "sm_120f", (9, 0), "needs sm_120a, or sm_121a from PTX 8.8"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.b8", "sm_103a", (9, 0), None),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.b8", "sm_100", (9, 0),
         "needs sm_100a, sm_101a, sm_120a from PTX 8.7, the sm_100f family from PTX 8.8, the sm_101f family from "
         "PTX 8.8, the sm_110f family from PTX 9.0, or the sm_120f family from PTX 8.8"),
        ("stmatrix.sync.aligned.m8n8.x1.shared::cta.b16", "sm_90", (7, 7), "needs PTX 7.8"),
    ],
)  # fmt: skip
def test_why_a_form_is_not_available(spelling: str, name: str, version: tuple[int, int], reason: str | None) -> None:
    row = row_of(spelling)
    assert row.unavailable(target(name), version) == reason
    assert row.runs_on(target(name)) == (reason is None or reason.startswith("needs PTX"))


def test_where_forms_run_by_the_count() -> None:
    """How many forms each target has, as ptxas counts them."""
    counts = {"sm_75": 495, "sm_80": 772, "sm_89": 796, "sm_90": 829, "sm_90a": 829 + 9 + 1074, "sm_100": 829,
              "sm_100a": 883, "sm_120": 829, "sm_120a": 1097, "sm_120f": 1092, "sm_121a": 1097}  # fmt: skip
    rows = list(BY_SPELLING.values())
    assert {name: sum(row.runs_on(TARGETS[name]) for row in rows) for name in counts} == counts


def test_element_types_have_one_mlir_name_each() -> None:
    assert {name: row.name for name, row in BY_MLIR_NAME.items()} == {
        "f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "tf32", "f64": "f64", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2",
        "f6E3M2FN": "e3m2", "f6E2M3FN": "e2m3", "f4E2M1FN": "e2m1", "f8E8M0FNU": "ue8m0", "i32": "s32", "i8": "s8",
        "ui8": "u8", "i4": "s4", "ui4": "u4", "i1": "b1",
    }  # fmt: skip
    assert set(ELEMENT_TYPES) - {row.name for row in BY_MLIR_NAME.values()} == {"ue4m3"}


def test_forms_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="stmatrix stores 1, 2 or 4 matrices, got 3"):
        StoreMatrix(3, False)
    with pytest.raises(TypeError, match="Form has no spelling of its own"):
        _ = Form().spelling


def test_a_layout_finds_what_lies_where() -> None:
    layout = Layout.parse("c2 f0 r0 r1 r2 | c0 c1 r3", "rcf")
    assert layout.find(r=9, c=5, f=1) == (4 + 2 + 1, 4 + 1)
    with pytest.raises(ValueError, match=r"expected the sparsity selector to be from 0 to 1 in layout .*, got 2"):
        layout.find(f=2)
    with pytest.raises(ValueError, match="expected the axis 'y' to be from 0 to 0"):
        layout.find(y=1)
    with pytest.raises(ValueError, match="expected a layout bit such as r0 or c3, got 'f0'"):
        Layout.parse("c2 f0 r0 r1 r2 | c0 c1 r3")
