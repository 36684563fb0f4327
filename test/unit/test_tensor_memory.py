"""Layouts of tensor memory against the places that CUTLASS's traits and the text give, and their look-up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warploom.dialect.isa.tensor_product import InstructionDescriptorError, Opcode, TensorProduct, products
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.layouts.tensor_memory import COPIES, MOVES, metadata, multiplicand, result, scales
from warploom.runtime import WarploomError
from warploom.runtime.lookup.explain import explain
from warploom.runtime.lookup.pictures import tensor_picture

LOADS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "32x32b": lambda t, j: (t, j),
    "16x64b": lambda t, j: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * j),
    "16x128b": lambda t, j: (t // 4 + 8 * (j % 2), t % 4 + 4 * (j // 2)),
    "16x256b": lambda t, j: (t // 4 + 8 * (j // 2 % 2), 2 * (t % 4) + j % 2 + 8 * (j // 4)),
}


@pytest.mark.parametrize("shape", LOADS)
def test_loads_and_stores(shape: str) -> None:
    layout = MOVES[shape]
    for thread in range(32):
        for register in range(4 * layout.elements):
            tile, element = divmod(register, layout.elements)
            row, column = layout.position(thread, element)
            assert (row, column + tile * layout.columns) == LOADS[shape](thread, register)


def test_a_load_in_two_parts() -> None:
    places = [MOVES["16x32bx2"].coordinates(thread, 0) for thread in range(32)]
    assert [(place["r"], place["p"]) for place in places] == [(t % 16, t // 16) for t in range(32)]


RESULTS: dict[tuple[int, int, bool, bool], Callable[[int, int], int]] = {
    (128, 1, False, False): lambda m, part: m,
    (64, 1, False, False): lambda m, part: m % 16 + 32 * (m // 16),
    (256, 2, False, False): lambda m, part: m,
    (128, 2, False, False): lambda m, part: m + 64 * part,
    (128, 2, False, True): lambda m, part: m % 16 + 32 * (m // 16),
    (64, 1, True, False): lambda m, part: m + 64 * part,
    (32, 1, True, False): lambda m, part: m + 32 * part,
}


@pytest.mark.parametrize("key", RESULTS)
def test_results_and_left_operands(key: tuple[int, int, bool, bool]) -> None:
    layout = result(*key)
    left = multiplicand(*key, 16)
    for m in range(key[0] // key[1]):
        for part in range(layout.extent("p")):
            assert layout.find(r=m, c=5, p=part) == (RESULTS[key](m, part), 5)
            assert left.find(r=m, c=1, x=part) == (RESULTS[key](m, part), 1)


def test_copies() -> None:
    def lanes(layout: Layout, row: int) -> list[int]:
        return sorted({lane for lane in range(128) if layout.position(lane, 0)[0] == row})

    assert lanes(COPIES["32x128b.warpx4"], 7) == [7, 39, 71, 103]
    assert lanes(COPIES["64x128b.warpx2::02_13"], 40) == [40, 104]
    assert lanes(COPIES["64x128b.warpx2::01_23"], 40) == [72, 104]
    assert COPIES["4x256b"].find(r=2, c=3) == (64, 3)
    assert COPIES["128x256b"].find(r=99, c=7) == (99, 7)


@pytest.mark.parametrize(("vector", "byte"), [(1, 3), (2, 1), (4, 0)])
def test_scales(vector: int, byte: int) -> None:
    for row in range(128):
        lane, place = scales(128, vector).find(r=row, c=vector - 1, b=byte)
        assert (lane, place) == (row % 32, 4 * (row // 32) + byte * vector + vector - 1)


def test_metadata() -> None:
    halves, bytes_ = metadata(128, 1, False, 16), metadata(128, 1, False, 8)
    for row in range(128):
        for chunk in range(8):
            lane = row % 8 + 8 * (chunk // 4) + 16 * (row // 16)
            assert halves.find(r=row, c=chunk) == (lane, chunk % 4 + 4 * (row // 8 % 2))
        for chunk in range(16):
            assert bytes_.find(r=row, c=chunk) == (row, chunk)


def test_instruction_descriptors_go_round() -> None:
    assert len(products()) > 500
    for product in products():
        assert TensorProduct.decode(product.opcode, product.encode()) == product


def test_the_descriptor_of_the_facts() -> None:
    assert TensorProduct.decode(Opcode("f16", 1), 0x08100010).encode() == 0x08100010
    with pytest.raises(InstructionDescriptorError, match=r"bits 28:24 \(M / 16\).*expected 4 or 8, got 1"):
        TensorProduct.decode(Opcode("f16", 1), 0x01100010)


def test_descriptors_are_explained() -> None:
    text = explain("tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X 0x10200480")
    assert "shape     m256n128k64" in text
    assert "4 a row of ue4m3, from byte 0" in text
    assert "swizzle        128 bytes, which moves 32 bytes together" in explain(0x2000404000010000)
    with pytest.raises(WarploomError, match=r"expected the opcode of a tcgen05.mma and a number"):
        explain("tcgen05.mma.nothing 3")
    with pytest.raises(WarploomError, match=r"bit 6 \(reserved\)"):
        explain("tcgen05.mma.cta_group::1.kind::f16 0x08100050")


def test_layouts_are_found_by_name() -> None:
    assert "[r0 r1 r2 r3 h0 | c0 c1 c2 | r4 r5]" in explain("tcgen05.mma.cta_group::1.kind::f16 0x04100010")
    drawn = tensor_picture("tcgen05.mma.cta_group::1.kind::f16.m64.f16", "d")
    assert "r0 r1 r2 r3 h0 | c0 c1 c2 | r4 r5" in drawn.notes[0]
    assert "c1 c2 r0 r1 r2 | c0 r3" in tensor_picture("tcgen05.ld.16x256b", "D").notes[0]
    with pytest.raises(WarploomError, match=r"say which: tcgen05.mma"):
        tensor_picture("tcgen05.mma.kind::f16", "D")
    with pytest.raises(WarploomError, match="has no operand 'B' in tensor memory; it has D, A"):
        tensor_picture("tcgen05.mma.kind::f16", "B")
