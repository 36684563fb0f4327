"""Every row of `wmma` as an operation of the dialect `warp`: it verifies, prints, parses, becomes its instruction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import pytest
from lowered import INDEX, earliest, instruction, lowered, pattern, reprinted
from xdsl.dialects import test
from xdsl.dialects.builtin import Float16Type, IntegerAttr, MemRefType, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from warploom.dialect.isa import wmma
from warploom.dialect.isa.form import Shape, element_type
from warploom.dialect.isa.wmma import WmmaLoad, WmmaMma, WmmaStore
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.warp.attributes import SHARED_SPACE, FragmentType, type_of_element
from warploom.dialect.warp.fragments import ConvertLayoutOp, ElementwiseOp, Kind
from warploom.dialect.warp.memory import LoadOp, StoreOp
from warploom.dialect.warp.mma import MmaOp
from warploom.dialect.warp.wmma import OpaqueType, WmmaMmaOp, load_row, store_row

NAMES = {"a": "a", "b": "b", "c": "acc", "d": "acc"}
HALF = Float16Type()
HELD, MEMORY, ZERO = test.TestOp(
    result_types=[OpaqueType.of("acc", Shape(16, 16, 16), HALF), MemRefType(HALF, [64, 64]), INDEX]
).results


def opaque(row: WmmaMma, role: str) -> OpaqueType:
    layout = {"a": row.a_layout, "b": row.b_layout}.get(role, "")
    return OpaqueType.of(NAMES[role], row.shape, type_of_element(row.element(role)), layout)


@cache
def memory_for(role: str, shape: Shape, name: str, layout: str, space: str) -> tuple[OpaqueType, MemRefType]:
    """A fragment, and memory that it lies in."""
    kind = OpaqueType.of(role, shape, type_of_element(element_type(name)), layout if role != "acc" else "")
    if space == wmma.SHARED:
        return kind, MemRefType(kind.element_type, [512, 512], memory_space=IntegerAttr(SHARED_SPACE, i64))
    return kind, MemRefType(kind.element_type, [512, 512])


LOADS = [r for r in wmma.load_rows() if r.space in (wmma.GLOBAL, wmma.SHARED)]
STORES = [r for r in wmma.store_rows() if r.space in (wmma.GLOBAL, wmma.SHARED)]


def opaque_move(row: WmmaLoad | WmmaStore, memory: SSAValue, zero: SSAValue, held: SSAValue | None) -> Operation:
    kind, _ = memory_for(_role(row), row.shape, row.type.name, row.layout, row.space)
    col = kind.role.data == "acc" and row.layout == "col"
    if isinstance(row, WmmaLoad):
        return LoadOp(memory, [zero, zero], kind, swapped=col)
    assert held is not None
    return StoreOp(held, memory, [zero, zero], swapped=col)


def _role(row: WmmaLoad | WmmaStore) -> str:
    return NAMES[row.role] if isinstance(row, WmmaLoad) else "acc"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", [*LOADS, *STORES], ids=lambda r: r.spelling)
def test_opaque_moves(row: WmmaLoad | WmmaStore) -> None:
    kind, memory = memory_for(_role(row), row.shape, row.type.name, row.layout, row.space)
    given = test.TestOp(result_types=[memory, INDEX, kind])
    op = opaque_move(row, *given.results)
    op.verify()
    assert isinstance(op, LoadOp | StoreOp)
    row_of = load_row if isinstance(row, WmmaLoad) else store_row
    assert row_of(kind, memory, op.swapped is not None) is row
    assert kind.registers == next(o.count for o in row.operands if o.name == "r")
    for generic in (False, True):
        reprinted(op.clone(), generic)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", [r for r in (*LOADS, *STORES) if r.space == wmma.GLOBAL], ids=lambda r: r.spelling)
def test_opaque_moves_become_their_instruction(row: WmmaLoad | WmmaStore) -> None:
    kind, memory = memory_for(_role(row), row.shape, row.type.name, row.layout, row.space)

    def build(body: Block, arguments: Sequence[SSAValue], zero: SSAValue) -> None:
        if isinstance(row, WmmaLoad):
            body.add_op(opaque_move(row, arguments[0], zero, None))
        else:
            load = LoadOp(arguments[0], [zero, zero], kind)
            body.add_ops([load, opaque_move(row, arguments[0], zero, load.fragment)])

    module = lowered(earliest(row), [memory], build)
    line = instruction(module, row.spelling)
    assert re.fullmatch(pattern(row, {"stride": "512"}), line), line


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", wmma.mma_rows(), ids=lambda r: r.spelling)
def test_opaque_products(row: WmmaMma) -> None:
    kinds = [opaque(row, role) for role in "abcd"]
    marks = [word for word in ("satfinite" if row.satfinite else "", row.rounding, row.bit_op) if word]
    given = test.TestOp(result_types=kinds)
    a, b, c, _ = given.results
    op = WmmaMmaOp(a, b, c, *marks, result=kinds[3])
    op.verify()
    assert op.row is row
    for generic in (False, True):
        reprinted(op.clone(), generic)

    def build(body: Block, arguments: Sequence[SSAValue], zero: SSAValue) -> None:
        loads = [LoadOp(m, [zero, zero], kind) for m, kind in zip(arguments, kinds[:3], strict=False)]
        a, b, c = (load.fragment for load in loads)
        product = WmmaMmaOp(a, b, c, *marks, result=kinds[3])
        body.add_ops([*loads, product, StoreOp(product.d, arguments[3], [zero, zero])])

    module = lowered(earliest(row), [MemRefType(kind.element_type, [512, 512]) for kind in kinds], build)
    line = instruction(module, row.spelling)
    assert re.fullmatch(pattern(row), line), line


@pytest.mark.parametrize(
    "op",
    [
        ElementwiseOp(Kind.Neg, HELD),
        MmaOp(Shape(16, 8, 16), HELD, HELD, HELD),
        ConvertLayoutOp(HELD, FragmentType.of("acc", 8, 8, HALF, Layout.parse("c1 c2 r0 r1 r2 | c0"))),
    ],
    ids=lambda op: op.name,
)
def test_nothing_else_takes_opaque_fragments(op: Operation) -> None:
    """Nobody can address the elements of a fragment of wmma."""
    with pytest.raises(VerifyException, match=r"should be of base attribute warp\.fragment"):
        op.verify()


@pytest.mark.parametrize(
    "store",
    [
        StoreOp(HELD, MEMORY, [ZERO, ZERO], registers="lanes"),
        StoreOp(HELD, MEMORY, [ZERO, ZERO], matrices="x4"),
    ],
    ids=["registers", "matrices"],
)
def test_opaque_fragments_lie_in_memory_in_one_way(store: StoreOp) -> None:
    with pytest.raises(VerifyException, match="an opaque fragment is written by wmma: all of it, in no other order"):
        store.verify()
