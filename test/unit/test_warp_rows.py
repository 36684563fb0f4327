"""Every row of `mma`, `mma.sp` and the matrix moves as an operation of the dialect `warp`.

It verifies, prints, parses, is refused where it does not run, and becomes its instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from lowered import INDEX, earliest, instruction, lowered, packed, pattern, reprinted
from xdsl.dialects import memref, test
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, i8, i64
from xdsl.ir import Block, Operation, SSAValue, TypeAttribute
from xdsl.utils.exceptions import VerifyException

from warploom.dialect.isa import mma, sparse_mma
from warploom.dialect.isa.mma import LoadMatrix, Mma, StoreMatrix
from warploom.dialect.isa.row import TARGETS
from warploom.dialect.layouts.layout import Bit, Layout
from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.warp.attributes import SHARED_SPACE, FragmentType, SwizzleAttr, TargetAttr, type_of_element
from warploom.dialect.warp.convert import ConvertLayoutOp
from warploom.dialect.warp.fragments import MatrixMove, unit
from warploom.dialect.warp.memory import LoadOp, StoreOp
from warploom.dialect.warp.mma import MmaOp, metadata_type

SHARED = IntegerAttr(SHARED_SPACE, i64)
NAMES = {"a": "a", "b": "b", "c": "acc", "d": "acc"}


def fragment(row: Mma, role: str) -> FragmentType:
    """One base tile of an operand."""
    layout, element = row.layout(role), row.element(role)
    size = layout.rows, layout.columns
    return FragmentType.of(NAMES[role], *size, type_of_element(element), layout, row.container_bits(role))


def scales(row: Mma) -> tuple[FragmentType, ...]:
    if row.scale is None:
        return ()
    layouts = (row.scale.layout("a"), row.scale.layout("b"))
    kind = type_of_element(row.scale.type)
    return tuple(FragmentType.of("scale", layout.rows, layout.columns, kind, layout) for layout in layouts)


def operand_types(row: Mma) -> tuple[FragmentType, ...]:
    """A, B, C, metadata, scales."""
    sparse = (metadata_type(row.metadata),) if row.metadata else ()
    return (*(fragment(row, role) for role in "abc"), *sparse, *scales(row))


def words(row: Mma) -> dict[str, Any]:
    """What shape and types do not say."""
    layouts = f"{row.a_layout}.{row.b_layout}"
    said = {"layouts": layouts * (layouts != "row.col"), "rounding": row.rounding, "bit_op": row.bit_op}
    return said | {"kind": row.kind, "ordered": row.ordered, "satfinite": row.satfinite}


def selectors(row: Mma) -> tuple[int, ...]:
    if row.scale is None:
        return ()
    return row.scale.byte_ids[-1], row.scale.thread_ids("a")[-1], row.scale.byte_ids[-1], row.scale.thread_ids("b")[-1]


def product_op(row: Mma, values: Sequence[SSAValue]) -> MmaOp:
    a, b, c, *others = values
    fields = words(row) | ({"e": others.pop(0), "selector": row.selectors[-1]} if row.sparse else {})
    fields |= {} if row.c == row.d else {"d": fragment(row, "d")}
    return MmaOp(row.shape, a, b, c, scales=others, selectors=selectors(row), **fields)


PRODUCTS = [*mma.rows(), *sparse_mma.rows()]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("row", PRODUCTS, ids=lambda r: r.spelling)
def test_products(row: Mma) -> None:
    op = product_op(row, test.TestOp(result_types=operand_types(row)).results)
    op.verify()
    own_row = op.row
    if row.scale and not row.scale.written:
        assert (own_row.shape, own_row.kind, own_row.a, own_row.b, own_row.scale and own_row.scale.vector) == (
            row.shape, row.kind, row.a, row.b, row.scale.vector
        )  # fmt: skip
    else:
        assert own_row is row
    for generic in (False, True):
        reprinted(op.clone(), generic)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("row", PRODUCTS, ids=lambda r: r.spelling)
def test_products_are_refused_where_they_do_not_run(row: Mma) -> None:
    operands = test.TestOp(result_types=operand_types(row))
    op = product_op(row, operands.results)
    module = ModuleOp([operands, op])
    for target in TARGETS.values():
        module.attributes[TargetAttr.name] = TargetAttr(target)
        if row.runs_on(target):
            op.verify()
        else:
            with pytest.raises(VerifyException, match=f"needs {re.escape(row.requirement())}, the module's target is"):
                op.verify()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", PRODUCTS, ids=lambda r: r.spelling)
def test_products_become_their_instruction(row: Mma) -> None:
    types = operand_types(row)
    result = fragment(row, "d")

    def build(body: Block, arguments: Sequence[SSAValue], zero: SSAValue) -> None:
        loads = [LoadOp(m, [zero, zero], kind, registers="vectors") for m, kind in zip(arguments, types, strict=False)]
        op = product_op(row, [load.fragment for load in loads])
        body.add_ops([*loads, op, StoreOp(op.d, arguments[-1], [zero, zero], registers="vectors")])

    target = earliest(row)
    module = lowered(target, packed((*types, result)), build)
    emitted = product_op(row, test.TestOp(result_types=types).results).row
    constants = {"f": str(row.selectors[-1])} if row.sparse else {}
    if row.scale:
        s = selectors(row)
        constants |= {"selector_a": f"{{{s[0]}, {s[1]}}}", "selector_b": f"{{{s[2]}, {s[3]}}}"}
    line = instruction(module, emitted.spelling)
    assert re.fullmatch(pattern(emitted, constants), line), line
    since = emitted.since(target)
    assert since is not None
    assert tuple(map(int, module.version.data.split("."))) >= since


def memory_layout(row: LoadMatrix | StoreMatrix, bits: int) -> Layout:
    """A fragment's layout that is as many matrices as a form moves, side by side down the rows of memory."""
    layout = unit(row, bits)
    number = sum(b.axis == "r" for b in layout.lane + layout.element)
    return Layout(layout.lane, (*layout.element, *(Bit("r", number + i) for i in range(row.count.bit_length() - 1))))


def moved(row: LoadMatrix | StoreMatrix) -> tuple[FragmentType, TypeAttribute]:
    """A fragment that one instruction of a form moves, and the element type of memory."""
    source = row.source if isinstance(row, LoadMatrix) else ""
    kind: TypeAttribute = {16: type_of_element(mma.ROWS[0].a), 8: i8}[row.element_bits]
    if source:
        name = {"b6x16_p32": "e3m2", "b4x16_p64": "e2m1"}[source]
        kind = type_of_element(next(r.a for r in mma.rows() if r.a.name == name))
    layout = memory_layout(row, row.element_bits)
    bits = 8 if source else None
    return FragmentType.of("a", layout.rows, layout.columns, kind, layout, bits), i8 if source else kind


MOVES = [
    row for row in (*(r for r in mma.load_rows() if r.source != "s4"), *mma.store_rows()) if row.space == mma.SHARED
]
"""Those that `warp.load` and `warp.store` make: no operand of a product is s8 made of s4."""


def move_op(row: LoadMatrix | StoreMatrix, memory: SSAValue, zero: SSAValue, matrix: SSAValue | None) -> Operation:
    kind, _ = moved(row)
    if isinstance(row, LoadMatrix):
        move = MatrixMove(row.count, row.transpose, False, row.source)
        return LoadOp(memory, [zero, zero], kind, matrices=str(move))
    assert matrix is not None
    move = MatrixMove(row.count, row.transpose, False, "")
    return StoreOp(matrix, memory, [zero, zero], matrices=str(move))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", MOVES, ids=lambda r: r.spelling)
def test_moves(row: LoadMatrix | StoreMatrix) -> None:
    kind, element = moved(row)
    memory = MemRefType(element, [64, 64], memory_space=SHARED)
    operands = test.TestOp(result_types=[memory, INDEX, kind])
    op = move_op(row, operands.results[0], operands.results[1], operands.results[2])
    module = ModuleOp([operands, op])
    op.verify()
    for target in TARGETS.values():
        module.attributes[TargetAttr.name] = TargetAttr(target)
        if row.runs_on(target):
            op.verify()
        else:
            with pytest.raises(VerifyException, match=f"needs {re.escape(row.requirement())}"):
                op.verify()
    op.detach()
    for generic in (False, True):
        reprinted(op.clone(), generic)


@pytest.mark.parametrize("row", MOVES, ids=lambda r: r.spelling)
def test_moves_become_their_instruction(row: LoadMatrix | StoreMatrix) -> None:
    kind, element = moved(row)

    def build(body: Block, arguments: Sequence[SSAValue], zero: SSAValue) -> None:
        tile = memref.AllocOp([], [], MemRefType(element, [64, 64], SwizzleAttr(32), SHARED))
        if isinstance(row, LoadMatrix):
            op = move_op(row, tile.memref, zero, None)
            body.add_ops([tile, op, StoreOp(op.results[0], arguments[0], [zero, zero], registers="vectors")])
        else:
            load = LoadOp(arguments[0], [zero, zero], kind, registers="vectors")
            body.add_ops([tile, load, move_op(row, tile.memref, zero, load.fragment)])

    module = lowered(earliest(row), packed([kind]), build)
    line = instruction(module, row.spelling)
    assert re.fullmatch(pattern(row), line), line


def test_movmatrix() -> None:
    half = type_of_element(mma.ROWS[0].a)
    accumulator, multiplicand = fragment_of_16x8("acc", half), fragment_of_16x8("b", half)

    def build(body: Block, arguments: Sequence[SSAValue], zero: SSAValue) -> None:
        load = LoadOp(arguments[0], [zero, zero], accumulator, registers="vectors")
        there = ConvertLayoutOp(load.fragment, multiplicand)
        back = ConvertLayoutOp(there.fragment, accumulator)
        body.add_ops([load, there, back, StoreOp(back.fragment, arguments[0], [zero, zero], registers="vectors")])
        reprinted(there.clone(), False)
        reprinted(there.clone(), True)

    text = print_ptx(lowered(earliest(mma.MOVMATRIX), packed([accumulator]), build))
    assert len(re.findall(r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16 %r\d+, %r\d+;", text)) == 4
    assert ".version 7.8" in text


def fragment_of_16x8(role: str, kind: TypeAttribute) -> FragmentType:
    layout = Layout.parse("c1 c2 r0 r1 r2 | c0 r3" if role == "acc" else "r1 r2 c0 c1 c2 | r0 r3")
    return FragmentType.of(role, 16, 8, kind, layout)
