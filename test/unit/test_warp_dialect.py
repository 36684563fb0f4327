"""The dialect `warp` as Python builds it: types, what is derived from them, constructors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StringAttr,
    i8,
    i64,
)
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from warploom.dialect.isa.form import Shape, element_type
from warploom.dialect.isa.mma import ROWS, Mma
from warploom.dialect.isa.row import TARGETS, target
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.schedule import SWIZZLES
from warploom.dialect.warp.attributes import (
    ROLES,
    SHARED_SPACE,
    FragmentType,
    LayoutAttr,
    SwizzleAttr,
    TargetAttr,
    element_row,
    float_type,
    fragment_of,
    memory_of,
    memory_space,
    target_of,
)
from warploom.dialect.warp.convert import ConvertOp
from warploom.dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, MatrixMove
from warploom.dialect.warp.memory import CopyOp, LoadOp, StoreOp
from warploom.dialect.warp.mma import MmaOp, part_of
from warploom.dialect.warp.op_shapes import bounds, bounds_attribute, in_memory
from warploom.dialect.warp.synchronisation import CP_ASYNC, WaitOp
from warploom.passes.universe import make_context

ELEMENTS = ("f16", "bf16", "f32")
SHARED = IntegerAttr(SHARED_SPACE, i64)
LOWERED = [r for r in ROWS if {r.a.name, r.c.name} <= set(ELEMENTS)]
"""The rows whose element types the dialect has."""


def value(kind: Attribute) -> SSAValue:
    return test.TestOp(result_types=[kind]).results[0]


def fragment(row: Mma, role: str, down: int = 1, across: int = 1) -> FragmentType:
    """The type of a row's operand, in some base tiles."""
    layout, kind = row.layout(role), float_type(row.element(role))
    name = "acc" if role in "cd" else role
    return FragmentType.of(name, down * layout.rows, across * layout.columns, kind, layout)


def reread(attribute: Attribute) -> Attribute:
    return Parser(make_context(), str(attribute)).parse_attribute()


@given(
    st.sampled_from(LOWERED),
    st.sampled_from("abc"),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(ELEMENTS),
)
def test_fragments(row: Mma, role: str, down: int, across: int, element: str) -> None:
    kind = fragment(row, role, down, across)
    assert reread(kind) == kind
    assert kind.tiles == (down, across)
    assert kind.element is row.element(role)
    assert kind.registers == down * across * row.registers(role)
    other = kind.with_element(float_type(element_type(element)))
    assert (other.shape, other.role, other.layout, other.element.name) == (kind.shape, kind.role, kind.layout, element)


def test_roles() -> None:
    layout = Layout.parse("c1 c2 r0 r1 r2 | c0")
    assert [FragmentType.of(role, 8, 8, Float16Type(), layout).role.data for role in ROLES] == [*ROLES]
    with pytest.raises(VerifyException, match="expected a fragment role of a, b, acc, meta, scale, got 'c'"):
        FragmentType.of("c", 8, 8, Float16Type(), layout)


@pytest.mark.parametrize("kind", [IndexType(), i64])
def test_element_types(kind: TypeAttribute) -> None:
    with pytest.raises(VerifyException, match=f"expected an element type of a matrix instruction, got {kind}"):
        FragmentType.of("a", 8, 8, kind, Layout.parse("c1 c2 r0 r1 r2 | c0"))
    assert element_row(kind) is None
    assert [row.name for t in (Float16Type(), BFloat16Type(), Float32Type()) if (row := element_row(t))] == [
        "f16",
        "bf16",
        "f32",
    ]


def test_memory_spaces() -> None:
    assert memory_space(MemRefType(Float16Type(), [8, 8])) == 0
    assert memory_space(MemRefType(Float16Type(), [8, 8], memory_space=SHARED)) == SHARED_SPACE
    assert memory_space(MemRefType(Float16Type(), [8, 8], memory_space=StringAttr("shared"))) == 0


def test_attributes_read_what_they_print() -> None:
    layouts = [LayoutAttr(row.layout(role)) for row in LOWERED for role in "abcd"]
    targets = [TargetAttr(t) for t in TARGETS.values()]
    for attribute in (*layouts, *targets, *map(SwizzleAttr, SWIZZLES)):
        assert reread(attribute) == attribute


def test_a_swizzle_has_no_affine_map() -> None:
    with pytest.raises(VerifyException, match="permutes address bits and has no affine map"):
        SwizzleAttr(128).get_affine_map()
    with pytest.raises(VerifyException, match="expected a swizzle of 4, 16, 32, 64, 128 bytes, got 256"):
        SwizzleAttr(256)


def test_the_target_is_that_of_the_innermost_module() -> None:
    op = test.TestOp()
    inner = ModuleOp([op])
    outer = ModuleOp([inner])
    assert target_of(op) is None
    outer.attributes[TargetAttr.name] = TargetAttr(target("sm_80"))
    assert target_of(op) is target_of(inner) is target("sm_80")
    inner.attributes[TargetAttr.name] = TargetAttr(target("sm_90a"))
    assert target_of(op) is target("sm_90a")
    assert target_of(outer) is target("sm_80")


@pytest.mark.parametrize("row", LOWERED, ids=lambda r: r.spelling)
def test_mma_finds_its_row(row: Mma) -> None:
    a, b, c = (value(fragment(row, role, 2, 2)) for role in "abc")
    op = MmaOp(row.shape, a, b, c)
    op.verify()
    assert op.row is row
    assert op.fragments == (a.type, b.type, c.type)
    assert op.d.type == c.type


@pytest.mark.parametrize("row", LOWERED, ids=lambda r: r.spelling)
@pytest.mark.parametrize("name", ["sm_70", "sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_mma_runs_where_its_row_does(row: Mma, name: str) -> None:
    a, b, c = (test.TestOp(result_types=[fragment(row, role)]) for role in "abc")
    op = MmaOp(row.shape, a.results[0], b.results[0], c.results[0])
    module = ModuleOp([a, b, c, op])
    module.attributes[TargetAttr.name] = TargetAttr(target(name))
    if row.runs_on(target(name)):
        op.verify()
    else:
        with pytest.raises(VerifyException, match=f"needs sm_{row.sm} or later, the module's target is {name}"):
            op.verify()


def test_mma_of_what_is_no_fragment() -> None:
    a, b, c = (value(Float32Type()) for _ in "abc")
    op = MmaOp(Shape(16, 8, 16), a, b, c)
    with pytest.raises(VerifyException):
        op.verify()


@pytest.mark.parametrize(("count", "widths"), [(1, [1]), (2, [2, 1]), (4, [4, 2, 1])])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix_uses_its_width_and_narrower(count: int, widths: list[int], trans: bool) -> None:
    memory = value(MemRefType(Float16Type(), [16, 16], memory_space=SHARED))
    layout = Layout.parse("c1 c2 r0 r1 r2 | c0 r3 c3")
    kind = FragmentType.of("a", 16, 16, Float16Type(), layout.transposed() if trans else layout)
    move = MatrixMove(count, trans, False, "")
    op = LoadOp(memory, [value(IndexType())] * 2, kind, matrices=str(move))
    op.verify()
    assert op.move == move
    assert [r.count for r in move.loads(16)] == widths
    assert all(r.transpose == trans for r in move.loads(16))
    assert in_memory(kind, False) == kind.layout.data
    other = MatrixMove(count, not trans, False, "")
    swapped = LoadOp(memory, op.indices, kind, matrices=str(other), swapped=True)
    swapped.verify()
    assert in_memory(kind, True) == kind.layout.data.transposed()


def test_values_of_another_type() -> None:
    with pytest.raises(VerifyException, match="expected a memref, got i8"):
        memory_of(value(i8))
    with pytest.raises(VerifyException, match="expected a fragment, got i8"):
        fragment_of(value(i8))


def test_in_bounds() -> None:
    assert bounds(None) == (False, False)
    assert bounds_attribute(False, False) is None
    for flags in ((True, False), (False, True), (True, True)):
        assert bounds(bounds_attribute(*flags)) == flags


def test_constructors_build_what_verifies() -> None:
    row, index = LOWERED[0], [value(IndexType())] * 2
    acc = fragment(row, "c")
    matrix = value(MemRefType(acc.element_type, [64, 64]))
    zero = ConstantOp(FloatAttr(0.0, float_type(row.c)), acc)
    load = LoadOp(matrix, index, acc, in_bounds=bounds_attribute(True, False))
    total = ElementwiseOp(Kind.Add, zero.fragment, load.fragment)
    wide = ConvertOp(total.fragment, Float32Type())
    tile = value(MemRefType(acc.element_type, [3, 16, 64], SwizzleAttr(128), SHARED))
    copy = CopyOp(matrix, index, tile, index[:1], is_async=True)
    rest = (ElementwiseOp(Kind.Neg, total.fragment), StoreOp(total.fragment, matrix, index), copy, WaitOp(CP_ASYNC, 2))
    for op in (zero, load, total, wide, *rest):
        op.verify()
    assert wide.fragment.type == acc.with_element(Float32Type())
    assert [kind.operands for kind in Kind] == [2, 2, 2, 2, 2, 2, 2, 1]


def test_convert_takes_fragments() -> None:
    with pytest.raises(VerifyException, match="expected a fragment, got i8"):
        ConvertOp(value(i8), Float32Type())


def test_the_part_of_a_slice() -> None:
    down, across = (fragment(LOWERED[0], "c", *tiles) for tiles in ((4, 1), (1, 2)))
    rows, columns = down.shape[0], across.shape[1]
    assert part_of(down, 2) == down.with_shape(rows // 2, down.shape[1])
    assert part_of(across, 2) == part_of(across, 8) == across.with_shape(across.shape[0], columns // 2)
    six, seven = (fragment(LOWERED[0], "c", 1, count) for count in (6, 7))
    assert part_of(six, 4) == part_of(across, 1), "three get two base tiles each, and one none"
    assert part_of(seven, 4) == seven, "one gets all"
    for kind, slices, message in (
        (down, 3, "expected a power of two of slices, got 3"),
        (fragment(LOWERED[0], "c", 3, 2), 2, "the 3 x 2 base tiles of .* cannot be divided among 2 slices"),
        (fragment(LOWERED[0], "c", 1, 3), 4, "the 1 x 3 base tiles of .* cannot be divided among 4 slices"),
    ):
        with pytest.raises(VerifyException, match=message):
            part_of(kind, slices, all_get=True)


def test_an_operation_like_another() -> None:
    tile = MemRefType(Float16Type(), [2, 16, 32], NoneAttr(), SHARED)
    memory, to, one, other = test.TestOp(
        result_types=[MemRefType(Float16Type(), [64, 64]), tile, IndexType(), IndexType()]
    ).results
    copy = CopyOp(memory, [one, one], to, [one], in_bounds=bounds_attribute(True, False))
    copy.attributes["kept"] = StringAttr("as it is")
    like = copy.like(indices=[one, other], stage=[other], is_async=True, in_bounds=None)
    like.verify()
    assert list(like.operands) == [memory, one, other, to, other]
    assert (like.is_async is None, like.in_bounds, like.attributes) == (False, None, copy.attributes)
    assert list(copy.operands) == [memory, one, one, to, one]
    with pytest.raises(TypeError, match=r"warp.copy has the fields source, .*, got stages"):
        copy.like(stages=[other])
